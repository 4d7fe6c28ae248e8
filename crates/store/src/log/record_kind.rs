//! Owns the byte of a record that says which kind of value follows. Pages carry this byte and do not read it. Never knows pages.

use value::Kind;

/// The decoded byte: type, encoding, and whether a string was edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKind {
    pub kind: Kind,
    pub boxed: bool,
    pub raw: bool,
    /// The record is a part of a value, not a whole value.
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
