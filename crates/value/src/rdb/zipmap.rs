//! Owns the zipmap, in which Redis stored small hashes before 2.6. Never writes one.
//!
//! ```text
//! pairs      1 byte; 254 and more: count them
//! field      length, bytes
//! value      length, 1 byte for how many bytes behind it are unused, bytes, unused bytes
//! 11111111   the end
//!
//! length     1 byte below 254, else 254 and 4 bytes, little-endian
//! ```

use super::Parts;
use crate::Corrupt;

pub fn parts(map: &[u8]) -> Result<Parts, Corrupt> {
    let (&counted, mut rest) = map.split_first().ok_or(Corrupt)?;
    let mut parts = Parts::new();
    while rest != [0xff] {
        let field = length(&mut rest)?;
        parts.push(take(&mut rest, field)?)?;
        let value = length(&mut rest)?;
        let unused = take(&mut rest, 1)?[0];
        parts.push(take(&mut rest, value)?)?;
        take(&mut rest, unused.into())?;
    }
    if counted >= 254 || usize::from(counted) * 2 == parts.len() { Ok(parts) } else { Err(Corrupt) }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Corrupt> {
    let (taken, left) = rest.split_at_checked(len).ok_or(Corrupt)?;
    *rest = left;
    Ok(taken)
}

fn length(rest: &mut &[u8]) -> Result<usize, Corrupt> {
    match take(rest, 1)?[0] {
        254 => take(rest, 4)?.try_into().map(u32::from_le_bytes).map(|len| len as usize).map_err(|_| Corrupt),
        255 => Err(Corrupt),
        byte => Ok(byte.into()),
    }
}
