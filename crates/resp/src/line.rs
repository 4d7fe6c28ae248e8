//! Owns RESP's short lines, a tag and a number, in both directions. Never knows what the number counts.

use crate::number::{PAIRS, format_backwards};
use std::num::NonZeroUsize;

/// A line with a length: the value, and the position after the line.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) value: usize,
    /// Never 0: so an `Option<Length>` fits two registers.
    end: NonZeroUsize,
}

impl Length {
    #[inline(always)]
    pub(crate) fn new(value: usize, end: usize) -> Length {
        Length { value, end: NonZeroUsize::new(end).expect("no line is empty") }
    }

    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        self.end.get()
    }
}

/// The usual line: one to nine digits without a leading zero, then CR LF. For anything else, incomplete lines included,
/// returns `None`, and the slow path decides.
#[inline(always)]
pub(crate) fn short_length(input: &[u8], at: usize) -> Option<Length> {
    let rest = input.get(at..)?;
    match rest.first_chunk() {
        Some(&eight) => eight_bytes(eight, at).or_else(|| digit_by_digit(rest, at)),
        None => digit_by_digit(rest, at),
    }
}

/// The usual line before an argument: a dollar sign, then as [`short_length`]. The position is counted from the start of `line`.
/// Up to three digits are read here.
#[inline(always)]
pub(crate) fn bulk_length(line: &[u8]) -> Option<Length> {
    let Some(&[b'$', a, b, c, d, e, ..]) = line.first_chunk::<8>() else { return long_bulk_length(line) };
    let end = *b"\r\n";
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    let first = digit(a);
    if first <= 9 {
        if [b, c] == end {
            return Some(Length::new(first, 4));
        }
        let two = first * 10 + digit(b);
        if first > 0 && digit(b) <= 9 {
            if [c, d] == end {
                return Some(Length::new(two, 5));
            }
            if digit(c) <= 9 && [d, e] == end {
                return Some(Length::new(two * 10 + digit(c), 6));
            }
        }
    }
    long_bulk_length(line)
}

#[inline(never)]
fn long_bulk_length(line: &[u8]) -> Option<Length> {
    if *line.first()? != b'$' {
        return None;
    }
    short_length(line, 1)
}

/// Reads up to six digits and the line end from one register: one digit at a time costs three times as much.
#[inline(always)]
fn eight_bytes(eight: [u8; 8], at: usize) -> Option<Length> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x80 * ONES;
    if eight[1] == b'\r' {
        let digit = eight[0].wrapping_sub(b'0');
        return (digit.wrapping_sub(1) <= 8 && eight[2] == b'\n').then_some(Length::new(digit as usize, at + 3));
    }
    if eight[2] == b'\r' {
        let (tens, ones) = (eight[0].wrapping_sub(b'0'), eight[1].wrapping_sub(b'0'));
        return (tens.wrapping_sub(1) <= 8 && ones <= 9 && eight[3] == b'\n')
            .then_some(Length::new(tens as usize * 10 + ones as usize, at + 4));
    }
    let word = u64::from_le_bytes(eight);
    // The lowest set high bit is that of the first CR. Higher ones may be wrong.
    let other = word ^ (b'\r' as u64 * ONES);
    let returns = other.wrapping_sub(ONES) & !other & HIGHS;
    let digits = returns.trailing_zeros() as usize / 8;
    if !(3..=6).contains(&digits) || eight[0] == b'0' || eight[digits + 1] != b'\n' {
        return None;
    }
    // Move the digits to the top bytes, with zeros below them: an eight-digit number with leading zeros.
    let tens = (word << (64 - 8 * digits)) ^ ((b'0' as u64 * ONES) << (64 - 8 * digits));
    if (tens | tens.wrapping_add(0x76 * ONES)) & HIGHS != 0 {
        return None;
    }
    let pairs = tens.wrapping_mul(10).wrapping_add(tens >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let value = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    Some(Length::new(value as usize, at + digits + 2))
}

fn digit_by_digit(rest: &[u8], at: usize) -> Option<Length> {
    let first = rest.first()?.wrapping_sub(b'0');
    // A leading zero is either the number zero or an error.
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
                return Some(Length::new(value, at + index + 2));
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
    // Pieces of fixed size become plain stores; a slice of variable length would call memcpy.
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

/// Like [`line_u64`], signed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_before_arguments_are_strict() {
        let read = |line: &[u8]| bulk_length(line).map(|length| (length.value, length.end()));
        for digits in 1..=9 {
            for value in [10usize.pow(digits - 1), 10usize.pow(digits) - 1, 123_456_789 / 10usize.pow(9 - digits)] {
                let line = format!("${value}\r\n");
                assert_eq!(read(line.as_bytes()), Some((value, line.len())), "{line:?}");
                assert_eq!(read(format!("{line}GET\r\n").as_bytes()), Some((value, line.len())), "{line:?}");
            }
        }
        assert_eq!(read(b"$0\r\n\r\n$1"), Some((0, 4)));
        for line in ["$01\r\nabc", "$012\r\nab", "$00\r\nabc", "$1:\r\nabc", "$1/2\r\nab", "$12:\r\nab", "$-1\r\nabc"] {
            assert_eq!(read(line.as_bytes()), None, "{line:?}");
        }
        for line in ["*1\r\nabcd", "$\r\nabcde", "$1\rxabcd", "$12x\nabc", "$123\r_ab", "$1\n\rabcd"] {
            assert_eq!(read(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn eight_bytes_at_once_give_what_single_digits_give() {
        let mut state = 88172645463325252u64;
        for round in 0..400_000u64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Correct lines, lines with one byte exchanged, and a few of random bytes.
            let mut line = format!("{}\r\n$3\r\nGET\r\n", state % 10u64.pow((round % 10) as u32 + 1)).into_bytes();
            if round % 3 == 1 {
                line[(state >> 32) as usize % 8] = (state >> 40) as u8;
            }
            if round % 3 == 2 {
                line[(state >> 32) as usize % 8] = b"0\r\n9"[(state >> 41) as usize % 4];
            }
            let read = |length: Option<Length>| length.map(|length| (length.value, length.end()));
            assert_eq!(
                read(short_length(&line, 0)),
                read(digit_by_digit(&line, 0)),
                "{:?}",
                String::from_utf8_lossy(&line)
            );
        }
    }
}
