//! Owns the casts to narrower integers that several modules need. Never knows what a number counts: a cast that is right because of
//! what its number counts stands where that is known, with the reason.
//!
//! Everywhere else in the crate, a cast that could cut something off is an error of clippy (`cast_possible_truncation`).

const _: () = assert!(usize::BITS == u64::BITS, "the store runs on processors with 64 bits");

/// A number of bytes or an index, as memory counts it.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, as asserted above")]
pub const fn to_usize(number: u64) -> usize {
    number as usize
}

/// The low 64 bits; the others are cut off.
#[inline(always)]
pub const fn low64(number: u128) -> u64 {
    (number & 0xffff_ffff_ffff_ffff) as u64
}

/// The low 32 bits; the others are cut off.
#[inline(always)]
pub const fn low32(number: u64) -> u32 {
    (number & 0xffff_ffff) as u32
}

/// The low 16 bits; the others are cut off.
#[inline(always)]
pub const fn low16(number: u64) -> u16 {
    (number & 0xffff) as u16
}

/// The low 8 bits; the others are cut off.
#[inline(always)]
pub const fn low8(number: u64) -> u8 {
    (number & 0xff) as u8
}

/// A number without its fraction. One that is negative or no number becomes 0, and one that is too large the largest.
#[expect(clippy::cast_possible_truncation, reason = "a cast of a float cuts off the fraction only: it never wraps")]
pub fn whole(number: f64) -> u64 {
    number as u64
}
