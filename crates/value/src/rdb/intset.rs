//! Owns the intset: integers of one width in ascending order. Never knows a set.
//!
//! ```text
//! width     4 bytes, little-endian: 2, 4 or 8
//! count     4 bytes, little-endian
//! integers  little-endian
//! ```

use super::Parts;
use crate::Corrupt;

pub fn parts(bytes: &[u8]) -> Result<Parts, Corrupt> {
    let header = bytes.first_chunk::<8>().ok_or(Corrupt)?;
    let width = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let body = &bytes[8..];
    if !matches!(width, 2 | 4 | 8) || body.len() != count.checked_mul(width).ok_or(Corrupt)? {
        return Err(Corrupt);
    }
    let (mut parts, mut last) = (Parts::new(), None);
    for item in body.chunks_exact(width) {
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(item);
        let number = i64::from_le_bytes(wide) >> (64 - 8 * width);
        if last.is_some_and(|last| last >= number) {
            return Err(Corrupt);
        }
        last = Some(number);
        parts.push(number.to_string().as_bytes())?;
    }
    Ok(parts)
}

/// Encodes the numbers in the narrowest width that fits all of them.
pub fn bytes(numbers: &[i64]) -> Vec<u8> {
    let width = numbers.iter().map(|&number| match number {
        _ if i16::try_from(number).is_ok() => 2,
        _ if i32::try_from(number).is_ok() => 4,
        _ => 8,
    });
    let width: usize = width.max().unwrap_or(2);
    let mut bytes = Vec::with_capacity(8 + width * numbers.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()[..width]));
    bytes
}
