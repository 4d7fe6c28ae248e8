//! Owns parsing of numbers in arguments: integers, databases, cursors, counts. Never knows the command.

use crate::stop::{NOT_INTEGER, Stop};

/// A decimal integer exactly as Redis accepts it: no plus, no space, no leading zero, no `-0`.
#[inline]
pub fn int(text: &[u8]) -> Option<i64> {
    resp::number::parse_i64(text)
}

/// Like [`int`], with Redis's error.
#[inline]
pub fn int_or_error(text: &[u8]) -> Result<i64, Stop> {
    int(text).ok_or(NOT_INTEGER)
}

/// A C `int`: database numbers have this type.
pub fn int32(text: &[u8]) -> Option<i32> {
    int(text).and_then(|value| i32::try_from(value).ok())
}

/// SCAN's cursor by the rules of `strtoul`, as in Redis: a sign is allowed, `-1` is the largest number, the empty text
/// is 0, and more than 64 bits are an error.
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

/// A number with a fraction as Redis accepts it (`strtod`), without hexadecimal numbers: no spaces, no NaN, no overflow
/// or underflow.
pub fn double(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let digits =
        || text.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e')).filter(|byte| byte.is_ascii_digit());
    let exceeds = if value.is_infinite() {
        digits().next().is_some()
    } else {
        value == 0.0 && digits().any(|&digit| digit != b'0')
    };
    (!value.is_nan() && !exceeds).then_some(value)
}

/// The end of a range of scores, where Redis is more lenient: leading spaces, overflow, the empty text, and anything
/// after a NUL are accepted.
pub fn range_end(text: &[u8]) -> Option<f64> {
    if text.first().is_none_or(|&byte| byte == 0) {
        return Some(0.0);
    }
    let value: f64 = std::str::from_utf8(unspaced(text)).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// What SORT sorts by: like [`range_end`], but overflow is an error.
pub fn sort_score(text: &[u8]) -> Option<f64> {
    match unspaced(text) {
        [] if text.first().is_none_or(|&byte| byte == 0) => Some(0.0),
        text => double(text),
    }
}

/// The text up to a NUL, without leading spaces, as `strtod` reads it.
fn unspaced(text: &[u8]) -> &[u8] {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let is_space = |byte: &&u8| matches!(**byte, b' ' | b'\t'..=b'\r');
    &text[text.iter().take_while(is_space).count()..]
}

/// Appends a number as C's `%.17g` prints it.
pub fn format_general(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() || value == 0.0 {
        return resp::number::format_double(value, out);
    }
    let scientific = format!("{value:.16e}");
    let (digits, exponent) = scientific.split_once('e').expect("it asked for one");
    let exponent: i32 = exponent.parse().expect("an integer");
    let without_zeros = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    let text = if (-4..17).contains(&exponent) {
        match usize::try_from(16 - exponent) {
            Ok(0) | Err(_) => format!("{value:.0}"),
            Ok(decimals) => without_zeros(&format!("{value:.decimals$}")),
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs())
    };
    out.extend_from_slice(text.as_bytes());
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
    fn cursors_follow_strtoul() {
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
    fn doubles_follow_strtod() {
        for (text, value) in [("1", 1.0), ("-.5", -0.5), ("5.", 5.0), ("+1e3", 1000.0), ("inf", f64::INFINITY)] {
            assert_eq!(double(text.as_bytes()), Some(value), "{text}");
        }
        assert_eq!(double(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(double(b"5e-324"), Some(5e-324));
        assert_eq!(double(b"0e-9999"), Some(0.0));
        for text in ["", " 1", "1 ", "x", "nan", "-nan", "1e400", "-1e400", "1e-400", "1e", "0x10", "1,5", "1\0"] {
            assert_eq!(double(text.as_bytes()), None, "{text}");
        }
        for (text, value) in
            [("", 0.0), (" 1", 1.0), ("1\0x", 1.0), ("1e400", f64::INFINITY), ("-inf", f64::NEG_INFINITY)]
        {
            assert_eq!(range_end(text.as_bytes()), Some(value), "{text}");
        }
        for text in [" ", "x", "nan", "1 ", "1x"] {
            assert_eq!(range_end(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn seventeen_digits_follow_c() {
        let cases = [
            (0.1, "0.10000000000000001"),
            (2.5, "2.5"),
            (-3.0, "-3"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1.5e300, "1.5000000000000001e+300"),
            (-0.0, "-0"),
            (f64::NEG_INFINITY, "-inf"),
            (99999999999999990.0, "99999999999999984"),
        ];
        for (value, text) in cases {
            let mut out = Vec::new();
            format_general(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn digits_give_the_number() {
        for value in [0, 7, -7, 10, 1234567890, i64::MAX, i64::MIN] {
            assert_eq!(Digits::new(value).as_bytes(), value.to_string().as_bytes());
        }
    }
}
