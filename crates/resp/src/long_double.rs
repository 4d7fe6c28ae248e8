//! Owns the arithmetic of INCRBYFLOAT and HINCRBYFLOAT: numbers with a 64-bit mantissa. They are read, added and
//! printed as Redis does it with the x87 `long double` of its usual builds. Never knows commands or RESP.
//!
//! With doubles, rounding errors would show where Redis shows none: 0.1 + 0.2 is `0.3` in Redis, and
//! `0.30000000000000004` in doubles. Reading rounds once, correctly. Adding rounds once, to even. Printing gives at
//! most 17 digits after the point. Hexadecimal numbers are read too, as by C's `strtold`.

use std::cmp::Ordering;

use crate::number::format_i64;

/// The longest text that Redis accepts for such a number.
pub const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// mantissa × 2^exponent, with the mantissa's top bit set. Zero has mantissa 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// A finite number's top bit is worth at most 2^16383.
const EXPONENT_MAX: i32 = 16383 - 63;
const EXPONENT_INFINITE: i32 = i32::MAX;
/// Decimal exponents beyond these are always out of range, so they bound the work. The largest number is near 10^4932,
/// the smallest near 10^-4951.
const DECIMAL_EXPONENT_MAX: i64 = 4_940;
const DECIMAL_EXPONENT_MIN: i64 = -4_960;
const FRACTION_DIGITS: usize = 17;
const FRACTION_SCALE: u128 = 10u128.pow(FRACTION_DIGITS as u32);

impl LongDouble {
    const ZERO: LongDouble = LongDouble { negative: false, mantissa: 0, exponent: 0 };

    /// A decimal number with optional sign, point and exponent, or an infinity. `None` for everything else, including
    /// NaN and numbers that would become infinity or zero.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', text @ ..] => (true, text),
            [b'+', text @ ..] => (false, text),
            text => (false, text),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(LongDouble { negative, mantissa: 0, exponent: EXPONENT_INFINITE });
        }
        if let [b'0', b'x' | b'X', text @ ..] = text {
            return from_hexadecimal(negative, text);
        }
        let Decimal { digits, exponent } = Decimal::parse(text)?;
        let Some(digits_exponent) = digits.len().checked_sub(1) else {
            return Some(LongDouble { negative, ..LongDouble::ZERO });
        };
        let magnitude = exponent + digits_exponent as i64;
        if !(DECIMAL_EXPONENT_MIN..=DECIMAL_EXPONENT_MAX).contains(&magnitude) {
            return None;
        }
        let value = if digits.len() <= 19 && (-18..=0).contains(&exponent) {
            from_short_decimal(negative, &digits, exponent as i32)
        } else {
            from_decimal(negative, &digits, exponent as i32)
        };
        // The smallest number is 2^-16445. Smaller results round to zero.
        (value.is_finite() && value.exponent + 63 >= -16_446).then_some(value)
    }

    /// The nearest double: infinity or zero beyond a double's range.
    pub fn to_f64(self) -> f64 {
        // Multiply by half of the power at a time: the whole power may be out of a double's range even if the result is
        // not.
        let half = self.exponent.clamp(-20_000, 20_000) / 2;
        let rest = self.exponent.clamp(-20_000, 20_000) - half;
        let magnitude = match self.is_finite() {
            true => self.mantissa as f64 * 2f64.powi(half) * 2f64.powi(rest),
            false => f64::INFINITY,
        };
        if self.negative { -magnitude } else { magnitude }
    }

    pub fn is_finite(self) -> bool {
        self.exponent != EXPONENT_INFINITE
    }

    /// The sum. `None`: the sum is not finite.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        if !self.is_finite() || !other.is_finite() {
            return None;
        }
        let (large, small) =
            if self.magnitude().cmp(&other.magnitude()) == Ordering::Less { (other, self) } else { (self, other) };
        if small.mantissa == 0 {
            return Some(large);
        }
        // 63 bits below the large mantissa, and one flag for all bits below those.
        let distance = (large.exponent - small.exponent) as u32;
        let large_bits = (large.mantissa as u128) << 63;
        let small_bits = (small.mantissa as u128) << 63;
        let aligned = small_bits.checked_shr(distance).unwrap_or(0);
        let inexact = aligned.checked_shl(distance).unwrap_or(0) != small_bits;
        let bits = if large.negative == small.negative {
            large_bits + aligned
        } else {
            large_bits - aligned - u128::from(inexact)
        };
        let sum = rounded(large.negative, bits, large.exponent - 63, inexact);
        sum.is_finite().then_some(sum)
    }

    /// Compares magnitudes: for normalised mantissas the exponents decide first.
    fn magnitude(self) -> (bool, i32, u64) {
        (self.mantissa != 0, self.exponent, self.mantissa)
    }

    /// Appends the number without an exponent, with at most 17 digits after the point, without trailing zeros, and
    /// never as `-0`. At most 4,933 digits.
    pub fn format(self, out: &mut Vec<u8>) {
        if !self.is_finite() {
            return out.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
        }
        if self.exponent >= 0 && self.mantissa != 0 {
            if self.negative {
                out.push(b'-');
            }
            let mut integer = Natural::from(self.mantissa as u128);
            integer.shift_left(self.exponent as usize);
            return integer.format(out);
        }
        // In units of the last printed digit; 64 + 57 bits.
        let scaled = self.mantissa as u128 * FRACTION_SCALE;
        let shift = self.exponent.unsigned_abs();
        let units = if shift < 128 { half_even(scaled, shift, false) } else { 0 };
        if self.negative && units != 0 {
            out.push(b'-');
        }
        // A mantissa with a negative exponent is below 2^63.
        format_i64((units / FRACTION_SCALE) as i64, out);
        let mut fraction = units % FRACTION_SCALE;
        if fraction == 0 {
            return;
        }
        let mut digits = [b'.'; FRACTION_DIGITS + 1];
        for digit in digits[1..].iter_mut().rev() {
            *digit = b'0' + (fraction % 10) as u8;
            fraction /= 10;
        }
        let len = digits.iter().rposition(|&digit| digit != b'0').expect("the point is no zero") + 1;
        out.extend_from_slice(&digits[..len]);
    }
}

/// digits × 10^exponent, with digits as values 0 to 9 without leading zeros.
struct Decimal {
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Decimal> {
        let mut digits = Vec::with_capacity(text.len().min(32));
        let (mut exponent, mut point, mut any) = (0i64, false, false);
        let mut rest = text;
        while let [byte, tail @ ..] = rest {
            match byte {
                b'0'..=b'9' => {
                    any = true;
                    exponent -= i64::from(point);
                    if *byte != b'0' || !digits.is_empty() {
                        digits.push(byte - b'0');
                    }
                }
                b'.' if !point => point = true,
                _ => break,
            }
            rest = tail;
        }
        if !any {
            return None;
        }
        match rest {
            [] => {}
            [b'e' | b'E', power @ ..] => exponent += power_of(power)?,
            _ => return None,
        }
        Some(Decimal { digits, exponent })
    }
}

/// Hexadecimal digits with an optional point, and an optional power of two behind `p`.
fn from_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    /// Digits beyond these only say whether the rest is zero.
    const DIGITS_MAX: u32 = 30;
    let (mut bits, mut digits, mut exponent) = (0u128, 0, 0i64);
    let (mut point, mut any, mut inexact) = (false, false, false);
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        match (*byte as char).to_digit(16) {
            Some(digit) => {
                any = true;
                exponent -= 4 * i64::from(point);
                if digits < DIGITS_MAX {
                    bits = bits << 4 | u128::from(digit);
                    digits += u32::from(bits != 0);
                } else {
                    exponent += 4;
                    inexact |= digit != 0;
                }
            }
            None if *byte == b'.' && !point => point = true,
            None => break,
        }
        rest = tail;
    }
    if !any {
        return None;
    }
    match rest {
        [] => {}
        [b'p' | b'P', power @ ..] => exponent += power_of(power)?,
        _ => return None,
    }
    if bits == 0 {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    // Far beyond the range of the numbers.
    let exponent = i32::try_from(exponent).ok().filter(|exponent| exponent.abs() < 1 << 20)?;
    let value = rounded(negative, bits, exponent, inexact);
    (value.is_finite() && value.exponent + 63 >= -16_446).then_some(value)
}

/// The digits of an exponent with an optional sign.
fn power_of(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Far beyond any exponent that the number of digits could bring back into range.
    let power = digits.iter().fold(0, |sum: i64, &digit| (sum * 10 + (digit - b'0') as i64).min(1 << 32));
    Some(if negative { -power } else { power })
}

/// For at most 19 digits and an exponent of -18 to 0: the division fits into 128 bits.
fn from_short_decimal(negative: bool, digits: &[u8], exponent: i32) -> LongDouble {
    let value = digits.iter().fold(0u128, |sum, &digit| sum * 10 + digit as u128);
    let divisor = 10u128.pow(exponent.unsigned_abs());
    // A dividend of 128 bits over a divisor of at most 60 bits leaves at least 67 bits.
    let shift = value.leading_zeros();
    let dividend = value << shift;
    rounded(negative, dividend / divisor, -(shift as i32), dividend % divisor != 0)
}

fn from_decimal(negative: bool, digits: &[u8], exponent: i32) -> LongDouble {
    let mut dividend = Natural::default();
    for chunk in digits.chunks(9) {
        let value = chunk.iter().fold(0, |sum, &digit| sum * 10 + digit as u32);
        dividend.multiply_add(10u32.pow(chunk.len() as u32), value);
    }
    let mut divisor = Natural::from(1);
    let scaled = if exponent >= 0 { &mut dividend } else { &mut divisor };
    let power = exponent.unsigned_abs();
    for _ in 0..power / 9 {
        scaled.multiply_add(10u32.pow(9), 0);
    }
    scaled.multiply_add(10u32.pow(power % 9), 0);
    // Scaled so that the quotient has 66 or 67 bits, then divided bit by bit.
    let shift = 66 - (dividend.bits() as i32 - divisor.bits() as i32);
    if shift >= 0 {
        dividend.shift_left(shift as usize);
    } else {
        divisor.shift_left(shift.unsigned_abs() as usize);
    }
    const QUOTIENT_BITS: usize = 67;
    divisor.shift_left(QUOTIENT_BITS);
    let mut quotient = 0u128;
    for _ in 0..QUOTIENT_BITS {
        dividend.shift_left(1);
        quotient <<= 1;
        if dividend.subtract_if_not_less(&divisor) {
            quotient |= 1;
        }
    }
    rounded(negative, quotient, -shift, dividend.bits() > 0)
}

/// The number nearest to bits × 2^exponent, ties to even. `inexact`: nonzero bits follow the last bit; then there are
/// more than 64 bits.
fn rounded(negative: bool, bits: u128, exponent: i32, inexact: bool) -> LongDouble {
    if bits == 0 {
        return LongDouble::ZERO;
    }
    let used = 128 - bits.leading_zeros();
    let (mut mantissa, mut exponent) = if used <= 64 {
        debug_assert!(!inexact);
        (bits << (64 - used), exponent - (64 - used) as i32)
    } else {
        (half_even(bits, used - 64, inexact), exponent + (used - 64) as i32)
    };
    if mantissa > u64::MAX as u128 {
        mantissa >>= 1;
        exponent += 1;
    }
    if exponent > EXPONENT_MAX {
        return LongDouble { negative, mantissa: 0, exponent: EXPONENT_INFINITE };
    }
    LongDouble { negative, mantissa: mantissa as u64, exponent }
}

/// bits ÷ 2^shift (a shift below 128), rounded to the nearest integer, ties to even unless more bits follow.
fn half_even(bits: u128, shift: u32, more: bool) -> u128 {
    let quotient = bits >> shift;
    let rest = bits - (quotient << shift);
    let half = if shift == 0 {
        return quotient;
    } else {
        1u128 << (shift - 1)
    };
    let up = rest > half || (rest == half && (more || quotient & 1 == 1));
    quotient + u128::from(up)
}

/// A natural number of any size, with limbs of 32 bits, lowest first, and no zero limb at the top.
#[derive(Default)]
struct Natural {
    limbs: Vec<u32>,
}

impl From<u128> for Natural {
    fn from(value: u128) -> Natural {
        let mut natural = Natural { limbs: (0..4).map(|limb| (value >> (32 * limb)) as u32).collect() };
        natural.trim();
        natural
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    fn bits(&self) -> usize {
        self.limbs.last().map_or(0, |top| self.limbs.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = addend as u64;
        for limb in &mut self.limbs {
            carry += *limb as u64 * factor as u64;
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.limbs.push(carry as u32);
        }
    }

    /// Returns the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            rest = rest << 32 | *limb as u64;
            *limb = (rest / divisor as u64) as u32;
            rest %= divisor as u64;
        }
        self.trim();
        rest as u32
    }

    fn shift_left(&mut self, bits: usize) {
        let small = bits % 32;
        if small > 0 {
            self.multiply_add(1 << small, 0);
        }
        self.limbs.splice(0..0, std::iter::repeat_n(0, bits / 32));
        self.trim();
    }

    /// Subtracts `other` and returns true, unless `other` is larger.
    fn subtract_if_not_less(&mut self, other: &Natural) -> bool {
        let order = self.limbs.len().cmp(&other.limbs.len());
        if order.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev())) == Ordering::Less {
            return false;
        }
        let mut borrow = 0i64;
        for (index, limb) in self.limbs.iter_mut().enumerate() {
            let difference = *limb as i64 - other.limbs.get(index).copied().unwrap_or(0) as i64 + borrow;
            *limb = difference as u32;
            borrow = difference >> 32;
        }
        assert_eq!(borrow, 0);
        self.trim();
        true
    }

    fn format(mut self, out: &mut Vec<u8>) {
        let start = out.len();
        while !self.limbs.is_empty() {
            let mut chunk = self.divide(10u32.pow(9));
            for _ in 0..9 {
                out.push(b'0' + (chunk % 10) as u8);
                chunk /= 10;
            }
        }
        while out.len() > start + 1 && out.last() == Some(&b'0') {
            out.pop();
        }
        out[start..].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: LongDouble) -> String {
        let mut out = b"> ".to_vec();
        value.format(&mut out);
        String::from_utf8(out).unwrap().split_off(2)
    }

    /// The reply to `SET k a` and then `INCRBYFLOAT k b`.
    fn sum(a: &str, b: &str) -> String {
        let [a, b] = [a, b].map(|text| LongDouble::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}")));
        let [ab, ba] = [a.checked_add(b), b.checked_add(a)].map(|sum| sum.map_or("not finite".into(), text));
        assert_eq!(ab, ba);
        ab
    }

    #[test]
    fn sums_as_redis_7_0_gives_them() {
        for line in include_str!("long_double/redis-7.0-sums.txt").lines() {
            let [a, b, expected] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn decimals_add_up_as_people_expect() {
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("3", "-3"), "0");
        assert_eq!(sum("0", "-0.0"), "0");
        assert_eq!(sum("-1e-20", "0"), "0");
        assert_eq!(sum(".5", "+1."), "1.5");
    }

    #[test]
    fn a_bit_beyond_the_guard_bits_breaks_the_tie() {
        // 2^64 + 2 minus slightly more than 1: below the middle between its neighbours.
        assert_eq!(sum("18446744073709551618", "-1.000000000000000000108420217248550443"), "18446744073709551616");
        assert_eq!(sum("18446744073709551618", "-0.999999999999999999"), "18446744073709551618");
    }

    #[test]
    fn limits() {
        assert_eq!(sum("1e4932", "0").len(), 4933);
        assert_eq!(sum("1e4932", "1e4932"), "not finite");
        assert_eq!(sum("1", "-inf"), "not finite");
        assert_eq!(sum("1e-4950", "1"), "1");
        let nines = "9".repeat(TEXT_BYTES_MAX - 200);
        assert_eq!(sum(&format!("{nines}e-{}", nines.len()), "0"), "1");
    }

    #[test]
    fn hexadecimal_numbers_are_read_as_by_c() {
        for (text, expected) in [
            ("0x10", "16"),
            ("-0X1.8p1", "-3"),
            ("0x.8", "0.5"),
            ("0x0", "0"),
            ("0x7fffffffffffffff", "9223372036854775807"),
            ("0x1.00000000000000000000000000000000000001p64", "18446744073709551616"),
        ] {
            assert_eq!(sum(text, "0"), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_are_not_numbers() {
        let texts = [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "1 ",
            " 1",
            "1x",
            "--1",
            "1.2.3",
            "nan",
            "-NaN",
            "0x",
            "0xg",
            "0x1p",
            "0x1.1.1",
            "0x1p99999",
            "in",
            "1\0",
        ];
        for text in texts.into_iter().chain(["1e5000", "1e99999999999999999999", "1e-5000", "-1e4933"]) {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; TEXT_BYTES_MAX + 1]), None);
    }
}
