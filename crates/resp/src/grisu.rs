//! Owns the digits of a double as Redis prints them since 7.2: those of the algorithm Grisu2. They identify the double, and
//! are the shortest such digits or nearly: the last ones may differ from the nearest shortest digits.
//!
//! Source: Florian Loitsch, Printing Floating-Point Numbers Quickly and Accurately with Integers, PLDI 2010. Products are
//! rounded to 64 bits, and the scaled value has an exponent of -60 to -32.

/// mantissa × 2^exponent
#[derive(Clone, Copy)]
struct Float {
    mantissa: u64,
    exponent: i32,
}

impl Float {
    fn normalized(self) -> Float {
        let shift = self.mantissa.leading_zeros();
        Float { mantissa: self.mantissa << shift, exponent: self.exponent - shift as i32 }
    }

    fn times(self, other: Float) -> Float {
        let product = u128::from(self.mantissa) * u128::from(other.mantissa) + (1 << 63);
        Float { mantissa: (product >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

const FIRST_POWER: i32 = -348;
const POWER_STEP: i32 = 8;
/// The mantissas of 10^-348, 10^-340 … 10^340, rounded to the nearest.
#[rustfmt::skip]
const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288, 0xbaae_e17f_a23e_bf76, 0x8b16_fb20_3055_ac76, 0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d, 0xe61a_cf03_3d1a_45df, 0xab70_fe17_c79a_c6ca, 0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c, 0x8dd0_1fad_907f_fc3c, 0xd351_5c28_3155_9a83, 0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb, 0xaecc_4991_4078_536d, 0x823c_1279_5db6_ce57, 0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f, 0xd774_85cb_2582_3ac7, 0xa086_cfcd_97bf_97f4, 0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e, 0x84c8_d4df_d2c6_3f3b, 0xc5dd_4427_1ad3_cdba, 0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584, 0xa3ab_6658_0d5f_daf6, 0xf3e2_f893_dec3_f126, 0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b, 0xc9bc_ff60_34c1_3053, 0x964e_858c_91ba_2655, 0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f, 0xf8a9_5fcf_8874_7d94, 0xb944_7093_8fa8_9bcf, 0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6, 0x993f_e2c6_d07b_7fac, 0xe45c_10c4_2a2b_3b06, 0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e, 0xbce5_0864_9211_1aeb, 0x8cbc_cc09_6f50_88cc, 0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000, 0xe8d4_a510_0000_0000, 0xad78_ebc5_ac62_0000, 0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3, 0x8f7e_32ce_7bea_5c70, 0xd5d2_38a4_abe9_8068, 0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27, 0xb0de_6538_8cc8_ada8, 0x83c7_088e_1aab_65db, 0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758, 0xda01_ee64_1a70_8dea, 0xa26d_a399_9aef_774a, 0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877, 0x865b_8692_5b9b_c5c2, 0xc835_53c5_c896_5d3d, 0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3, 0xa59b_c234_db39_8c25, 0xf6c6_9a72_a398_9f5c, 0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2, 0xcc20_ce9b_d35c_78a5, 0x9816_5af3_7b21_53df, 0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396, 0xfb9b_7cd9_a4a7_443c, 0xbb76_4c4c_a7a4_4410, 0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c, 0x9b10_a4e5_e991_3129, 0xe710_9bfb_a19c_0c9d, 0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85, 0xbf21_e440_03ac_dd2d, 0x8e67_9c2f_5e44_ff8f, 0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9, 0xeb96_bf6e_badf_77d9, 0xaf87_023b_9bf0_ee6b,
];
const EXPONENT_MIN: i32 = -60;
const EXPONENT_MAX: i32 = -32;

/// A power of ten that brings a float with this exponent into the wanted range, and the power's decimal exponent.
fn power_for(exponent: i32) -> (Float, i32) {
    let near = (-f64::from(exponent + POWERS.len() as i32) * std::f64::consts::LOG10_2) as i32;
    let mut at = (near - FIRST_POWER) / POWER_STEP;
    loop {
        let ten = FIRST_POWER + at * POWER_STEP;
        // The exponent of 10^ten with a mantissa of 64 bits; the factor is log2(10) × 2^16.
        let power = Float { mantissa: POWERS[at as usize], exponent: ((ten * 217_706) >> 16) - 63 };
        match exponent + power.exponent + 64 {
            ..EXPONENT_MIN => at += 1,
            found if found > EXPONENT_MAX => at -= 1,
            _ => return (power, ten),
        }
    }
}

/// Writes the digits of `value`, which must be positive and finite. Returns how many they are, and the power of ten of the
/// last digit.
pub fn digits(value: f64, out: &mut [u8; 20]) -> (usize, i32) {
    const HIDDEN: u64 = 1 << 52;
    let (biased, fraction) = ((value.to_bits() >> 52) as i32, value.to_bits() & (HIDDEN - 1));
    let float = match biased {
        0 => Float { mantissa: fraction, exponent: -1074 },
        _ => Float { mantissa: fraction | HIDDEN, exponent: biased - 1075 },
    };
    // The bounds are half way to the neighbouring doubles. Below a power of two the neighbour is nearer.
    let upper = Float { mantissa: (float.mantissa << 1) + 1, exponent: float.exponent - 1 }.normalized();
    let shift = if float.mantissa == HIDDEN { 2 } else { 1 };
    let lower = ((float.mantissa << shift) - 1) << (float.exponent - shift - upper.exponent);
    let lower = Float { mantissa: lower, exponent: upper.exponent };
    let (power, ten) = power_for(upper.exponent);
    let (middle, upper, lower) = (float.normalized().times(power), upper.times(power), lower.times(power));
    // The rounded products may be one too large or too small.
    let (upper, lower) = (Float { mantissa: upper.mantissa - 1, ..upper }, lower.mantissa + 1);
    let (count, left) = generate(middle, upper, lower, out);
    (count, left - ten)
}

/// Generates digits of `upper` until the rest is within the bounds, then lowers the last digit towards `middle`. Returns the
/// number of digits and the power of ten of the last one.
fn generate(middle: Float, upper: Float, lower: u64, out: &mut [u8; 20]) -> (usize, i32) {
    let bits = -upper.exponent;
    let mask = (1u64 << bits) - 1;
    let (mut whole, mut rest) = (upper.mantissa >> bits, upper.mantissa & mask);
    let (mut distance, mut delta) = (upper.mantissa - middle.mantissa, upper.mantissa - lower);
    let mut count = 0;
    let mut put = |digit: u64| {
        if digit > 0 || count > 0 {
            out[count] = b'0' + digit as u8;
            count += 1;
        }
        count
    };
    let mut power = 10;
    while power > 0 {
        power -= 1;
        let unit = 10u64.pow(power as u32);
        let count = put(whole / unit);
        whole %= unit;
        let left = (whole << bits) + rest;
        if left <= delta {
            lower_last(&mut out[count - 1], delta, left, unit << bits, distance);
            return (count, power);
        }
    }
    loop {
        (rest, delta, distance) = (rest * 10, delta * 10, distance * 10);
        power -= 1;
        let count = put(rest >> bits);
        rest &= mask;
        if rest < delta {
            lower_last(&mut out[count - 1], delta, rest, 1 << bits, distance);
            return (count, power);
        }
    }
}

fn lower_last(digit: &mut u8, delta: u64, mut left: u64, unit: u64, distance: u64) {
    while left < distance
        && delta - left >= unit
        && (left + unit < distance || distance - left > left + unit - distance)
    {
        *digit -= 1;
        left += unit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the digits are, they mean the same double, and there are at most 17.
    #[test]
    fn digits_read_back_as_the_same_double() {
        let mut state = 1u64;
        for round in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = match round % 3 {
                0 => f64::from_bits(state >> 1),
                1 => (state >> 11) as f64 / (1u64 << 53) as f64,
                _ => (state >> 40) as f64 / 1000.0,
            };
            if !value.is_finite() || value == 0.0 {
                continue;
            }
            let mut out = [0; 20];
            let (count, last) = digits(value, &mut out);
            let text = format!("{}e{last}", std::str::from_utf8(&out[..count]).unwrap());
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{value:e}: {text}");
            assert!(count <= 17, "{value:e}: {text}");
        }
    }
}
