//! Owns the data types in memory and the encodings of values. Never knows keys, flash or sockets.

#![forbid(unsafe_code)]

use std::ops::Range;

mod fit;
pub mod hash;
pub mod hll;
mod input;
pub mod list;
pub mod listpack;
mod part;
pub mod rdb;
pub mod set;
mod skeleton;
pub mod stream;
mod tag;
mod tagged;
mod varint;
pub mod walk;
pub mod zset;

pub use part::{Absent, AbsentPart, Fate, FlashCopies, Forgotten, Swept};

/// The type of a value, as stored in index entries and on flash. Numbers are only added, never changed.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    String = 0,
    Hash = 1,
    List = 2,
    Set = 3,
    ZSet = 4,
    Stream = 5,
}

impl Kind {
    pub fn from_u8(number: u8) -> Option<Kind> {
        Some(match number {
            0 => Kind::String,
            1 => Kind::Hash,
            2 => Kind::List,
            3 => Kind::Set,
            4 => Kind::ZSet,
            5 => Kind::Stream,
            _ => return None,
        })
    }

    /// The name that TYPE returns.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::ZSet => "zset",
            Kind::Stream => "stream",
        }
    }
}

/// Bytes that can grow and shrink in place. Packed collections are edited through this.
pub trait Buffer {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Replaces the bytes `at` by the concatenation of `with`.
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]);
}

impl Buffer for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        Vec::splice(self, at, with.iter().flat_map(|part| part.iter().copied()));
    }
}

/// Bytes read from flash that are not a valid value of their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// Whether bytes from flash are a valid packed value of their type. Walking packed bytes never panics, but bytes that
/// fail here would lose everything after the fault.
pub fn check_packed(kind: Kind, bytes: &[u8]) -> Result<(), Corrupt> {
    match kind {
        Kind::String => Ok(()),
        Kind::Hash => hash::packed::check(bytes),
        Kind::List => list::packed::check(bytes),
        Kind::Set => set::check_packed(bytes),
        Kind::ZSet => zset::run::check(bytes),
        Kind::Stream => Err(Corrupt),
    }
}

/// Memory of an allocation of `bytes` (jemalloc): size classes are multiples of 16 up to 128, and then four per
/// doubling. Zero bytes take no memory.
pub fn malloc_bytes(bytes: usize) -> usize {
    let step = match bytes {
        0 => return 0,
        1..=8 => 8,
        9..=128 => 16,
        _ => bytes.next_power_of_two() / 8,
    };
    bytes.next_multiple_of(step)
}

/// A collection too large for its packed form.
#[derive(Debug, Clone)]
pub enum Boxed {
    Hash(hash::Table),
    List(list::List),
    Set(set::Table),
    ZSet(zset::Tree),
    /// Also small streams: streams have no packed form.
    Stream(Box<stream::Stream>),
}

impl Boxed {
    pub fn kind(&self) -> Kind {
        match self {
            Boxed::Hash(_) => Kind::Hash,
            Boxed::List(_) => Kind::List,
            Boxed::Set(_) => Kind::Set,
            Boxed::ZSet(_) => Kind::ZSet,
            Boxed::Stream(_) => Kind::Stream,
        }
    }

    /// Appends the value's compact form for flash.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Boxed::Hash(table) => table.encode(out),
            Boxed::List(list) => list.encode(out),
            Boxed::Set(table) => table.encode(out),
            Boxed::ZSet(tree) => tree.encode(out),
            Boxed::Stream(stream) => stream.encode(out),
        }
    }

    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Boxed, Corrupt> {
        match kind {
            Kind::Hash => hash::Table::decode(bytes).map(Boxed::Hash),
            Kind::List => list::List::decode(bytes).map(Boxed::List),
            Kind::Set => set::Table::decode(bytes).map(Boxed::Set),
            Kind::ZSet => zset::Tree::decode(bytes).map(Boxed::ZSet),
            Kind::Stream => stream::Stream::decode(bytes).map(Box::new).map(Boxed::Stream),
            Kind::String => Err(Corrupt),
        }
    }

    /// When the first element expires, in milliseconds since 1970: a field of a hash.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        match self {
            Boxed::Hash(table) => table.next_deadline(),
            _ => None,
        }
    }

    /// Removes what has expired. True: nothing is left.
    pub fn expire(&mut self, now_ms: u64, gone: &mut dyn FnMut(&[u8])) -> bool {
        match self {
            Boxed::Hash(table) => {
                table.expire(now_ms, gone);
                table.is_empty()
            }
            _ => false,
        }
    }

    /// Bytes of memory that the value holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        match self {
            Boxed::Hash(table) => table.mem_bytes(),
            Boxed::List(list) => list.mem_bytes(),
            Boxed::Set(table) => table.mem_bytes(),
            Boxed::ZSet(tree) => tree.mem_bytes(),
            Boxed::Stream(stream) => size_of::<stream::Stream>() + stream.mem_bytes(),
        }
    }

    /// Takes the value out and leaves an empty one of the same type.
    pub fn take(&mut self) -> Boxed {
        let empty = match self {
            Boxed::Hash(_) => Boxed::Hash(hash::Table::new()),
            Boxed::List(_) => Boxed::List(list::List::new()),
            Boxed::Set(_) => Boxed::Set(set::Table::new()),
            Boxed::ZSet(_) => Boxed::ZSet(zset::Tree::new()),
            Boxed::Stream(_) => Boxed::Stream(Box::default()),
        };
        std::mem::replace(self, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_by_size_class() {
        let classes = [(0, 0), (1, 8), (8, 8), (9, 16), (17, 32), (128, 128), (129, 160), (160, 160), (161, 192)];
        for (asked, taken) in classes.into_iter().chain([(256, 256), (257, 320), (513, 640), (4097, 5120)]) {
            assert_eq!(malloc_bytes(asked), taken, "{asked}");
        }
    }

    #[test]
    fn kinds_keep_their_numbers() {
        let kinds = [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::ZSet, Kind::Stream];
        for (number, kind) in kinds.into_iter().enumerate() {
            assert_eq!(Kind::from_u8(number as u8), Some(kind));
            assert_eq!(kind as usize, number);
        }
        assert_eq!(Kind::from_u8(6), None);
        assert_eq!(Boxed::decode(Kind::String, b"\0").err(), Some(Corrupt));
    }
}
