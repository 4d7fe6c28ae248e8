//! The data types in memory. Owns values' encodings; never knows keys, flash or sockets.

use std::ops::Range;

pub mod hash;

/// The type of a value, as it stands in index entries and on flash: numbers only grow.
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

    /// TYPE's name for it.
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

/// Bytes that can grow and shrink in place: a packed collection is edited over them.
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

/// Bytes read from flash that are not a value of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// A collection too large for its packed form.
#[derive(Debug, Clone)]
pub enum Boxed {
    Hash(hash::Table),
}

impl Boxed {
    pub fn kind(&self) -> Kind {
        match self {
            Boxed::Hash(_) => Kind::Hash,
        }
    }

    /// Appends the value's compact form for flash.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Boxed::Hash(table) => table.encode(out),
        }
    }

    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Boxed, Corrupt> {
        match kind {
            Kind::Hash => hash::Table::decode(bytes).map(Boxed::Hash),
            _ => Err(Corrupt),
        }
    }

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        match self {
            Boxed::Hash(table) => table.mem_bytes(),
        }
    }
}
