//! Owns the short lines that RESP is made of, a tag and a number, in both directions. Never knows what they count.

use crate::number::{PAIRS, format_backwards};

/// A line holding a length: its value, and the position after its end.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) value: usize,
    pub(crate) end: usize,
}

/// The usual line: one to nine digits without a leading zero, then CR LF. Everything else, also what is incomplete,
/// is `None` and left to the slow path.
#[inline(always)]
pub(crate) fn short_length(input: &[u8], at: usize) -> Option<Length> {
    let rest = input.get(at..)?;
    let first = rest.first()?.wrapping_sub(b'0');
    // A leading zero is either zero itself or an error.
    if first.wrapping_sub(1) > 8 {
        return None;
    }
    let mut value = first as usize;
    let mut index = 1;
    while index < 10 {
        let byte = *rest.get(index)?;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if byte == b'\r' && *rest.get(index + 1)? == b'\n' {
                return Some(Length { value, end: at + index + 2 });
            }
            return None;
        }
        value = value * 10 + digit as usize;
        index += 1;
    }
    None
}

/// Appends `tag`, a decimal integer and CR LF: the shape of every RESP length and integer.
#[inline(always)]
pub(crate) fn line_u64(tag: u8, value: u64, out: &mut Vec<u8>) {
    // Fixed-size pieces become plain stores; a slice of variable length would be a call of memcpy.
    match value {
        0..=9 => out.extend_from_slice(&[tag, b'0' + value as u8, b'\r', b'\n']),
        10..=99 => {
            let [d1, d0] = PAIRS[value as usize];
            out.extend_from_slice(&[tag, d1, d0, b'\r', b'\n']);
        }
        100..=999 => {
            let [d1, d0] = PAIRS[value as usize % 100];
            out.extend_from_slice(&[tag, b'0' + (value / 100) as u8, d1, d0, b'\r', b'\n']);
        }
        1000..=9999 => {
            let [d3, d2] = PAIRS[value as usize / 100];
            let [d1, d0] = PAIRS[value as usize % 100];
            out.extend_from_slice(&[tag, d3, d2, d1, d0, b'\r', b'\n']);
        }
        _ => long_line(tag, false, value, out),
    }
}

/// As [`line_u64`], signed.
#[inline(always)]
pub(crate) fn line_i64(tag: u8, value: i64, out: &mut Vec<u8>) {
    match u64::try_from(value) {
        Ok(value) => line_u64(tag, value, out),
        Err(_) => long_line(tag, true, value.unsigned_abs(), out),
    }
}

#[inline(never)]
fn long_line(tag: u8, negative: bool, magnitude: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let start = format_backwards(magnitude, &mut digits);
    out.reserve(24);
    out.push(tag);
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
    out.extend_from_slice(b"\r\n");
}
