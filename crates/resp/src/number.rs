//! Owns numbers as text: integers and doubles exactly as Redis prints them, integers exactly as it accepts them.
//! Never knows RESP types.

use crate::grisu;

/// A decimal integer as Redis accepts it in arguments and lengths: an optional minus, no plus, no leading zero, no
/// space, no `-0`. `None` for any other text, and for a number that does not fit.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {
            // 19 digits stay below 10^19, which fits into a u64.
            let mut value = 0u64;
            for &byte in digits {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                value = value * 10 + digit as u64;
            }
            value
        }
        _ => return None,
    };
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The digits of 0 to 99.
pub(crate) const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Appends a decimal integer.
#[inline]
pub fn format_i64(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let start = format_backwards(value.unsigned_abs(), &mut digits);
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
}

/// The number of decimal digits of `value`.
#[inline]
pub(crate) fn decimal_digits(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Fills `digits` from its end and returns where the number starts.
#[inline(always)]
pub(crate) fn format_backwards(mut value: u64, digits: &mut [u8; 20]) -> usize {
    let mut start = digits.len();
    while value >= 100 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if value >= 10 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[value as usize]);
    } else {
        start -= 1;
        digits[start] = b'0' + value as u8;
    }
    start
}

/// Appends a double as Redis has printed scores and RESP3 doubles since 7.2. Integers up to 2^62 have no point. Other
/// numbers have digits that read back as the same double ([`grisu`]), in scientific form (`1e+20`, `1.5e-9`) if the
/// plain form would be long. Redis 7.0 prints 17 significant digits instead: `3.1` is `3.1000000000000001` there.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    const INTEGER_MAX: f64 = (1u64 << 62) as f64;
    if value != 0.0 && value.abs() <= INTEGER_MAX && value.trunc() == value {
        return format_i64(value as i64, out);
    }
    format_shortest(value, out);
}

/// As [`format_double`], without the rule for integers: `1e+8`. This is the output of Redis's double printer.
pub fn format_shortest(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    }
    if value == 0.0 {
        return out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let mut digits = [0; 20];
    let (count, last) = grisu::digits(value.abs(), &mut digits);
    format_digits(&digits[..count], last + count as i32 - 1, out);
}

/// Chooses between the plain and the scientific form by the rule of Redis's double printer (fpconv).
fn format_digits(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    // The power of ten of the last digit.
    let last = exponent - (digits.len() as i32 - 1);
    if last >= 0 && exponent < digits.len() as i32 + 7 {
        out.extend_from_slice(digits);
        out.resize(out.len() + last as usize, b'0');
    } else if last < 0 && (last > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        format_i64(exponent.abs().into(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"> ".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap().split_off(2)
    }

    #[test]
    fn integers_redis_accepts() {
        for value in [0, 1, -1, 10, 1234567890, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
            assert_eq!(text(|out| format_i64(value, out)), value.to_string());
        }
    }

    #[test]
    fn integers_redis_refuses() {
        let texts = ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1x", "0x1", "1.0", "--1", "1\0", "\u{ff}"];
        let overflows = ["9223372036854775808", "-9223372036854775809", "18446744073709551617", "10000000000000000000"];
        for text in texts.into_iter().chain(overflows) {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn digits_of_a_number() {
        for value in [0, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(decimal_digits(value), value.to_string().len());
        }
    }

    #[test]
    fn doubles() {
        let expected = [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-17.5, "-17.5"),
            (3.1, "3.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000"),
            (4503599627370495.5, "4503599627370495.5"),
            (4503599627370497.0, "4503599627370497"),
            (1e16, "10000000000000000"),
            (-1.5e18, "-1500000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (4611686018427388928.0, "4611686018427389000"),
            (1.5e20, "1.5e+20"),
            (123456789010000000.0, "123456789010000000"),
            (1234567890100000000.0, "1234567890100000000"),
            (12345678901000000000.0, "1.2345678901e+19"),
            (12345678901234567890.0, "12345678901234567000"),
            (1e20, "1e+20"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (0.001, "0.001"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (5e-324, "5e-324"),
            // The nearest of the shortest digits end in 5.
            (265499.47992567345, "2.6549947992567346e+5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN, "nan"),
        ];
        for (value, expected) in expected {
            assert_eq!(text(|out| format_double(value, out)), expected);
        }
    }
}
