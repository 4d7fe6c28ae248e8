//! Owns the bytes of skeletons: a collection whose parts stay where they are on flash. Never knows where a place is.
//!
//! ```text
//! | 1 u8 | number of the collection u64 | by type |
//! hash     table, then the deadlines as in its form for flash, if there are any
//! set      table
//! zset     table of leaf numbers | height u8 | leaves | free leaves | numbers of these | the root
//!   inner  children | each: where it begins, a score (8 bytes) and a name, without those of the first; the child
//!   leaf   number | entries | part
//! list     chunks | each: number, as the difference to the one before; elements; where they start; part
//! stream   chunks | each: number, as above; base, first and last id (16 bytes each); entries; deleted ones; part
//!          number of the next chunk | what follows the chunks in a dump, see `rdb::stream`
//! table    salt u64 | chunks | each: depth u8, the bits that its tags share, entries, part
//! part     place + 1 | bytes                 on flash
//!          0 | bytes | the bytes             in memory only
//! ```
//! Numbers without a size are LEB128, and so are the lengths of names. Integers are little-endian.

use crate::input::Input;
use crate::{Boxed, Corrupt, Kind, hash, list, set, stream, zset};

const FORMAT: u8 = 1;

impl Boxed {
    /// Appends the skeleton of a collection whose parts move individually, with the bytes of the parts that are in memory only.
    pub fn encode_skeleton(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        out.extend_from_slice(&self.shelf_id().expect("its parts move individually").to_le_bytes());
        match self {
            Boxed::Hash(table) => table.save(out),
            Boxed::Set(table) => table.save(out),
            Boxed::ZSet(tree) => tree.save(out),
            Boxed::List(list) => list.save(out),
            Boxed::Stream(stream) => stream.save(out),
        }
    }

    /// The collection, with its number. It must be [`Boxed::split`] before it is used.
    pub fn decode_skeleton(kind: Kind, bytes: &[u8]) -> Result<(u64, Boxed), Corrupt> {
        let mut input = Input::new(bytes);
        if input.byte()? != FORMAT {
            return Err(Corrupt);
        }
        let id = u64::from_le_bytes(input.array()?);
        let value = match kind {
            Kind::Hash => Boxed::Hash(hash::Table::load(&mut input)?),
            Kind::Set => Boxed::Set(set::Table::load(&mut input)?),
            Kind::ZSet => Boxed::ZSet(zset::Tree::load(&mut input)?),
            Kind::List => Boxed::List(list::List::load(&mut input)?),
            Kind::Stream => Boxed::Stream(Box::new(stream::Stream::load(&mut input)?)),
            Kind::String => return Err(Corrupt),
        };
        if input.is_empty() { Ok((id, value)) } else { Err(Corrupt) }
    }
}

#[cfg(test)]
mod tests;
