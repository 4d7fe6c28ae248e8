//! Owns the size of a value in a file that compresses long strings, as Redis shows it in DEBUG OBJECT. Never writes
//! such a file.

use super::{Compressor, FOOTER_BYTES, Reader, Type, put_len};
use crate::Corrupt;

/// Strings up to this length are not compressed, and compression must save at least `SAVED_BYTES_MIN`.
const COMPRESSED_BYTES_MIN: usize = 20;
const SAVED_BYTES_MIN: usize = 4;

/// How many bytes of a file the value of this payload takes, without its type. The payload is one of [`super::dump`].
pub fn saved_bytes(payload: &[u8]) -> Result<usize, Corrupt> {
    let body = payload.get(1..payload.len().saturating_sub(FOOTER_BYTES)).ok_or(Corrupt)?;
    let kind = Type::from_u8(payload[0]).ok_or(Corrupt)?;
    let mut sizes = Sizes { reader: Reader::new(body), compressor: Compressor::default(), saved: 0 };
    match kind {
        Type::String | Type::SetIntset | Type::HashListpack | Type::ZSetListpack | Type::SetListpack => {
            sizes.string()?
        }
        Type::List | Type::Set | Type::Hash | Type::ZSet => {
            let count = sizes.reader.len()?;
            for _ in 0..count {
                sizes.string()?;
                match kind {
                    Type::Hash => sizes.string()?,
                    Type::ZSet => _ = sizes.reader.take(8)?,
                    _ => {}
                }
            }
        }
        Type::ListQuicklist2 => {
            for _ in 0..sizes.reader.len()? {
                sizes.reader.len()?;
                sizes.string()?;
            }
        }
        // An id, which is never compressed, and a listpack. What follows has only short strings, except for names.
        Type::Stream2 | Type::Stream3 => {
            for _ in 0..sizes.reader.len()? {
                sizes.reader.string()?;
                sizes.string()?;
            }
        }
        _ => return Err(Corrupt),
    }
    Ok(body.len() - sizes.saved)
}

struct Sizes<'a> {
    reader: Reader<'a>,
    compressor: Compressor,
    /// How many bytes compression saves.
    saved: usize,
}

impl Sizes<'_> {
    fn string(&mut self) -> Result<(), Corrupt> {
        let before = self.reader.left();
        let text = self.reader.string()?;
        let plain = before - self.reader.left();
        if text.len() <= COMPRESSED_BYTES_MIN {
            return Ok(());
        }
        let compressed = self.compressor.compress(&text).filter(|bytes| bytes.len() + SAVED_BYTES_MIN <= text.len());
        if let Some(compressed) = compressed {
            let mut lengths = Vec::new();
            put_len(&mut lengths, compressed.len() as u64);
            put_len(&mut lengths, text.len() as u64);
            self.saved += plain.saturating_sub(1 + lengths.len() + compressed.len());
        }
        Ok(())
    }
}
