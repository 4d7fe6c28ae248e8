//! Owns numbers as commands take them: integers, databases, cursors, counts. Never knows which command asks.

use crate::cx::{NOT_INTEGER, Stop};

/// A decimal integer exactly as Redis takes it: no plus, no space, no leading zero, no `-0`.
#[inline]
pub fn int(text: &[u8]) -> Option<i64> {
    resp::number::parse_i64(text)
}

/// As [`int`], or Redis's error.
#[inline]
pub fn int_or_error(text: &[u8]) -> Result<i64, Stop> {
    int(text).ok_or(NOT_INTEGER)
}

/// A C `int`, which is what database numbers are.
pub fn int32(text: &[u8]) -> Option<i32> {
    int(text).and_then(|value| i32::try_from(value).ok())
}

/// SCAN's cursor by the rules of `strtoul`, which Redis follows: a sign is taken, `-1` is the largest number, nothing
/// is 0, and no more than 64 bits are allowed.
pub fn cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return text.is_empty().then_some(0);
    }
    let mut value = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

/// An integer as text on the stack.
pub struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    pub fn new(value: i64) -> Digits {
        let mut digits = Digits { bytes: [0; 20], start: 20 };
        let mut rest = value.unsigned_abs();
        loop {
            digits.push((rest % 10) as u8 + b'0');
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            digits.push(b'-');
        }
        digits
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        assert_eq!(int(b"-9223372036854775808"), Some(i64::MIN));
        for text in [&b""[..], b"+1", b" 1", b"1 ", b"01", b"-0", b"-", b"1.0", b"0x1", b"9223372036854775808"] {
            assert_eq!(int(text), None, "{text:?}");
        }
        assert_eq!(int32(b"2147483648"), None);
        assert_eq!(int32(b"-1"), Some(-1));
    }

    #[test]
    fn cursors_are_strtoul_s() {
        assert_eq!(cursor(b"0"), Some(0));
        assert_eq!(cursor(b""), Some(0));
        assert_eq!(cursor(b"007"), Some(7));
        assert_eq!(cursor(b"-1"), Some(u64::MAX));
        assert_eq!(cursor(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b"18446744073709551616"[..], b"x", b" 1", b"1 ", b"-", b"1-"] {
            assert_eq!(cursor(text), None, "{text:?}");
        }
    }

    #[test]
    fn digits_are_the_number() {
        for value in [0, 7, -7, 10, 1234567890, i64::MAX, i64::MIN] {
            assert_eq!(Digits::new(value).as_bytes(), value.to_string().as_bytes());
        }
    }
}
