//! Owns a run of a sorted set's entries: the packed form, and a leaf of the tree. Never knows which of the two it is.
//!
//! ```text
//! score          1 byte: 0 to 239 is the score itself; 240: 2 bytes follow, a signed integer; 241: 4; 242: 6;
//!                243: 4 bytes, an f32; 244: 8 bytes, an f64. Little-endian, the shortest that holds it exactly
//! member length  varint (1 byte below 128)
//! member
//! ... the next entry, in the order of score and then member
//! ```
//! Malformed bytes (possible only if a flash page is wrong despite its checksum) end the run early. They never cause a
//! panic.

use super::edge::{Edge, Side};
use crate::varint::{self, Varint};
use crate::{Buffer, Corrupt};

const SMALL_MAX: u8 = 239;
const I16: u8 = 240;
const I32: u8 = 241;
const I48: u8 = 242;
const F32: u8 = 243;
const F64: u8 = 244;

/// A score as bytes, on the stack.
pub(super) struct ScoreBytes {
    bytes: [u8; 9],
    len: usize,
}

impl ScoreBytes {
    pub fn new(score: f64) -> ScoreBytes {
        let integer = score as i64;
        // Minus zero is not stored as an integer.
        let is_integer = (integer as f64).to_bits() == score.to_bits();
        let (code, len) = if is_integer && (0..=i64::from(SMALL_MAX)).contains(&integer) {
            (integer as u8, 0)
        } else if is_integer && i16::try_from(integer).is_ok() {
            (I16, 2)
        } else if is_integer && i32::try_from(integer).is_ok() {
            (I32, 4)
        } else if f64::from(score as f32).to_bits() == score.to_bits() {
            (F32, 4)
        } else if is_integer && integer << 16 >> 16 == integer {
            (I48, 6)
        } else {
            (F64, 8)
        };
        let content = match code {
            F32 => u64::from((score as f32).to_bits()),
            F64 => score.to_bits(),
            _ => integer as u64,
        };
        let mut bytes = [0; 9];
        bytes[0] = code;
        bytes[1..].copy_from_slice(&content.to_le_bytes());
        ScoreBytes { bytes, len: 1 + len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[inline]
fn read_score(bytes: &[u8], at: usize) -> Option<(f64, usize)> {
    let code = *bytes.get(at)?;
    if code <= SMALL_MAX {
        return Some((code.into(), at + 1));
    }
    let len = match code {
        I16 => 2,
        I32 | F32 => 4,
        I48 => 6,
        F64 => 8,
        _ => return None,
    };
    let mut content = [0; 8];
    content[..len].copy_from_slice(bytes.get(at + 1..at + 1 + len)?);
    let content = u64::from_le_bytes(content);
    let score = match code {
        F32 => f32::from_bits(content as u32).into(),
        F64 => f64::from_bits(content),
        // The sign of the number is that of its highest byte.
        _ => (((content << (64 - 8 * len)) as i64) >> (64 - 8 * len)) as f64,
    };
    (!score.is_nan()).then_some((score, at + 1 + len))
}

/// A decoded entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub score: f64,
    pub member: &'a [u8],
    /// Where the next entry starts.
    pub end: usize,
}

#[inline]
pub(super) fn entry(bytes: &[u8], at: usize) -> Option<Entry<'_>> {
    let (score, at) = read_score(bytes, at)?;
    let member = varint::read_part(bytes, at)?;
    let end = member.end;
    Some(Entry { score, member: &bytes[member], end })
}

/// The bytes of an entry.
pub(super) fn size(score: f64, member: &[u8]) -> usize {
    ScoreBytes::new(score).as_bytes().len() + varint::width(member.len()) + member.len()
}

/// The position of an entry, and the number of entries before it.
#[derive(Clone, Copy, Debug)]
pub struct EntryPosition {
    at: usize,
    end: usize,
    pub index: usize,
    pub score: f64,
}

#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (f64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(f64, &'a [u8])> {
        let entry = entry(self.bytes, self.at)?;
        self.at = entry.end;
        Some((entry.score, entry.member))
    }
}

pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter { bytes, at: 0 }
}

/// The number of entries. Walks all of them.
pub fn len(bytes: &[u8]) -> usize {
    iter(bytes).count()
}

#[inline]
pub fn find(bytes: &[u8], member: &[u8]) -> Option<EntryPosition> {
    let (mut at, mut index) = (0, 0);
    loop {
        let entry = entry(bytes, at)?;
        if entry.member.len() == member.len() && entry.member == member {
            return Some(EntryPosition { at, end: entry.end, index, score: entry.score });
        }
        (at, index) = (entry.end, index + 1);
    }
}

/// The position of the first entry that is not before the edge, and the number of entries before it.
pub(super) fn seek(bytes: &[u8], edge: &Edge<'_>) -> (usize, usize) {
    let (mut at, mut index) = (0, 0);
    while let Some(entry) = entry(bytes, at) {
        if !edge.is_after(entry.score, entry.member) {
            break;
        }
        (at, index) = (entry.end, index + 1);
    }
    (at, index)
}

/// How many entries are before the edge.
pub fn rank(bytes: &[u8], edge: &Edge<'_>) -> usize {
    seek(bytes, edge).1
}

/// The position of the entry with this index.
pub(super) fn skip(bytes: &[u8], index: usize) -> usize {
    let mut entries = iter(bytes);
    entries.by_ref().take(index).for_each(drop);
    entries.at
}

/// The position of each entry.
pub(super) fn offsets(bytes: &[u8]) -> Vec<u32> {
    let mut offsets = Vec::new();
    let mut at = 0;
    while let Some(entry) = entry(bytes, at) {
        offsets.push(at as u32);
        at = entry.end;
    }
    offsets
}

/// Adds a member. The caller knows that it does not exist.
pub fn insert<B: Buffer + ?Sized>(buffer: &mut B, score: f64, member: &[u8]) {
    let (at, _) = seek(buffer.bytes(), &Edge::Entry(score, member, Side::Before));
    buffer.splice(at..at, &[ScoreBytes::new(score).as_bytes(), Varint::new(member.len()).as_bytes(), member]);
}

/// Like [`insert`], for an entry that comes last.
pub fn append<B: Buffer + ?Sized>(buffer: &mut B, score: f64, member: &[u8]) {
    let end = buffer.bytes().len();
    buffer.splice(end..end, &[ScoreBytes::new(score).as_bytes(), Varint::new(member.len()).as_bytes(), member]);
}

pub fn remove<B: Buffer + ?Sized>(buffer: &mut B, place: EntryPosition) {
    buffer.splice(place.at..place.end, &[]);
}

/// Removes the entries with these indices.
pub fn remove_range<B: Buffer + ?Sized>(buffer: &mut B, entries: std::ops::Range<usize>) {
    let start = skip(buffer.bytes(), entries.start);
    let end = start + skip(&buffer.bytes()[start..], entries.len());
    buffer.splice(start..end, &[]);
}

pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    let mut entries = iter(bytes);
    let mut last: Option<(f64, &[u8])> = None;
    for (score, member) in entries.by_ref() {
        if last.is_some_and(|(score_before, before)| {
            !Edge::Entry(score, member, Side::Before).is_after(score_before, before)
        }) {
            return Err(Corrupt);
        }
        last = Some((score, member));
    }
    if entries.at == bytes.len() { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scores_come_back_bit_by_bit_and_short_ones_are_short() {
        let scores = [
            (0.0, 1),
            (239.0, 1),
            (240.0, 3),
            (-1.0, 3),
            (-32768.0, 3),
            (32768.0, 5),
            (-2147483648.0, 5),
            (1_700_000_000_000.0, 7),
            (-140_737_488_355_327.0, 7),
            (140_737_488_355_328.0, 5),
            (9_007_199_254_740_991.0, 9),
            (1.5, 5),
            (-0.0, 5),
            (0.1, 9),
            (f64::INFINITY, 5),
            (f64::NEG_INFINITY, 5),
            (f64::MAX, 9),
            (5e-324, 9),
            (1e19, 9),
        ];
        for (score, len) in scores {
            let bytes = ScoreBytes::new(score);
            assert_eq!(bytes.as_bytes().len(), len.min(9), "{score}");
            let (back, end) = read_score(bytes.as_bytes(), 0).unwrap();
            assert_eq!((back.to_bits(), end), (score.to_bits(), bytes.as_bytes().len()), "{score}");
            for cut in 0..end {
                assert!(read_score(&bytes.as_bytes()[..cut], 0).is_none());
            }
        }
        assert!(read_score(&[F64, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f], 0).is_none(), "not a number");
        assert!(read_score(&[245, 0, 0, 0, 0, 0, 0, 0, 0], 0).is_none());
    }

    #[test]
    fn a_run_out_of_order_is_refused() {
        let mut run = Vec::new();
        insert(&mut run, 2.0, b"b");
        insert(&mut run, 1.0, b"c");
        insert(&mut run, 2.0, b"a");
        assert_eq!(run, b"\x01\x01c\x02\x01a\x02\x01b");
        assert_eq!(check(&run), Ok(()));
        for bytes in [&b"\x02\x01b\x01\x01c"[..], b"\x02\x01b\x02\x01b", b"\x02\x01b\x02\x01a", b"\x02\x01", b"\xff"] {
            assert_eq!(check(bytes), Err(Corrupt), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = check(&bytes).is_ok();
            prop_assert_eq!(offsets(&bytes).len(), len(&bytes));
            if let Some(place) = find(&bytes, b"a") {
                remove(&mut bytes, place);
            }
            insert(&mut bytes, 3.0, b"a");
            remove_range(&mut bytes, 1..3);
            prop_assert!(!whole || check(&bytes).is_ok());
        }
    }
}
