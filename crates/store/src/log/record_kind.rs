//! Owns the byte of a record that pages carry and do not read: what kind of value follows. Never knows pages.

use value::Kind;

/// A record's opaque byte: type, encoding, and how a string came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKind {
    pub kind: Kind,
    pub boxed: bool,
    pub raw: bool,
    /// A part of a value, not a value.
    pub part: bool,
}

impl RecordKind {
    pub fn part(kind: Kind) -> RecordKind {
        RecordKind { kind, boxed: true, raw: false, part: true }
    }

    pub fn to_byte(self) -> u8 {
        self.kind as u8 | u8::from(self.boxed) << 3 | u8::from(self.raw) << 4 | u8::from(self.part) << 5
    }

    pub fn from_byte(byte: u8) -> Option<RecordKind> {
        if byte >> 6 != 0 {
            return None;
        }
        let bit = |at: u8| byte >> at & 1 != 0;
        Some(RecordKind { kind: Kind::from_u8(byte & 7)?, boxed: bit(3), raw: bit(4), part: bit(5) })
    }
}
