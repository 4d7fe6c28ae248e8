//! Owns the bytes of a record. Never knows what the effect in it means.
//!
//! A record is one piece, or several if its RESP is longer than [`PIECE_BYTES_MAX`]. All integers are little-endian. A piece:
//!
//! ```text
//!   0        4        8         16     20       22      23     24
//!   | crc32c | length | time    | db   | unused | flags | zero | RESP bytes … |
//!   | u32    | u32    | u64, ms | u32  | u16    | u8    | u8   | length       |
//! ```
//!
//! *Time* is the wall clock that the command saw. Flag 1: the record continues in the next piece. Flag 2: this piece continues a record. A
//! record whose last piece is missing was cut off by a crash, and does not count. The CRC-32C covers bytes 4 to the end of the RESP bytes.
//! *Unused* is written as 65,535, and not read.

use std::ops::ControlFlow;

/// Maximum of RESP bytes in one piece, so that every record fits into frames.
pub const PIECE_BYTES_MAX: usize = 16 << 10;
pub const HEADER_BYTES: usize = 24;

const UNUSED: u16 = u16::MAX;
const GOES_ON: u8 = 1;
const CONTINUED: u8 = 2;

const AT_LENGTH: usize = 4;
const AT_TIME: usize = 8;
const AT_DB: usize = 16;
const AT_UNUSED: usize = 20;
const AT_FLAGS: usize = 22;
const AT_ZERO: usize = 23;
const _: () = assert!(AT_ZERO + 1 == HEADER_BYTES);

/// The effect of one outermost command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The logical database.
    pub db: u32,
    /// The time that the command saw, in milliseconds since 1970.
    pub time_ms: u64,
    pub resp: &'a [u8],
}

/// A record whose RESP bytes are written directly into the journal's memory. Their number is not known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draft {
    /// The logical database.
    pub db: u32,
    /// The time that the command saw, in milliseconds since 1970.
    pub time_ms: u64,
    pub resp_bytes_max: usize,
}

/// How far a record with this many RESP bytes advances the position.
pub fn stored_bytes(resp_bytes: usize) -> u64 {
    (resp_bytes + resp_bytes.div_ceil(PIECE_BYTES_MAX).max(1) * HEADER_BYTES) as u64
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub record: Record<'a>,
    pub goes_on: bool,
    pub continued: bool,
}

impl Record<'_> {
    /// The record's piece, if it has only one.
    #[inline]
    pub(crate) fn only_piece(&self) -> Option<Piece<'_>> {
        let fits = self.resp.len() <= PIECE_BYTES_MAX;
        fits.then_some(Piece { record: *self, goes_on: false, continued: false })
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let count = self.resp.len().div_ceil(PIECE_BYTES_MAX).max(1);
        (0..count).map(move |at| {
            let from = at * PIECE_BYTES_MAX;
            let resp = &self.resp[from..self.resp.len().min(from + PIECE_BYTES_MAX)];
            Piece { record: Record { resp, ..*self }, goes_on: at + 1 < count, continued: at > 0 }
        })
    }
}

impl Draft {
    /// Maximum bytes of the record's piece. `None`: the record may need more than one piece.
    pub(crate) fn piece_bytes_max(&self) -> Option<usize> {
        (self.resp_bytes_max <= PIECE_BYTES_MAX).then_some(HEADER_BYTES + self.resp_bytes_max)
    }

    /// Writes the record's only piece. `resp` writes the RESP bytes and returns their number. Returns the bytes of the
    /// piece.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], resp: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let Draft { db, time_ms, .. } = *self;
        write_piece(Head { db, time_ms, flags: 0 }, out, resp)
    }
}

#[derive(Clone, Copy)]
struct Head {
    db: u32,
    time_ms: u64,
    flags: u8,
}

#[inline]
fn write_piece(head: Head, out: &mut [u8], resp: impl FnOnce(&mut [u8]) -> usize) -> usize {
    let (header, body) = out.split_first_chunk_mut::<HEADER_BYTES>().expect("at least a header");
    let length = resp(body);
    *header = head.sealed(&body[..length]);
    HEADER_BYTES + length
}

impl Head {
    /// The header of a piece with these RESP bytes.
    #[inline]
    fn sealed(self, resp: &[u8]) -> [u8; HEADER_BYTES] {
        let Head { db, time_ms, flags } = self;
        let mut header = [0; HEADER_BYTES];
        header[AT_LENGTH..AT_TIME].copy_from_slice(&(resp.len() as u32).to_le_bytes());
        header[AT_TIME..AT_DB].copy_from_slice(&time_ms.to_le_bytes());
        header[AT_DB..AT_UNUSED].copy_from_slice(&db.to_le_bytes());
        header[AT_UNUSED..AT_FLAGS].copy_from_slice(&UNUSED.to_le_bytes());
        header[AT_FLAGS] = flags;
        let crc = base::crc::crc32c_append(base::crc::crc32c(&header[AT_LENGTH..]), resp);
        header[..AT_LENGTH].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// A CRC over the CRCs and lengths of complete pieces. It covers the pieces, because each piece's CRC covers the piece.
/// `None`: these are not pieces.
pub(crate) fn crc_of_crcs(mut pieces: &[u8]) -> Option<u32> {
    let (mut crc, mut heads, mut count) = (0, [[0; AT_TIME]; 128], 0);
    while !pieces.is_empty() {
        let piece = Piece::bytes_of(pieces)?;
        heads[count] = get(piece, 0);
        count += 1;
        if count == heads.len() {
            crc = base::crc::crc32c_append(crc, heads.as_flattened());
            count = 0;
        }
        pieces = &pieces[piece.len()..];
    }
    Some(base::crc::crc32c_append(crc, heads[..count].as_flattened()))
}

impl<'a> Piece<'a> {
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.record.resp.len()
    }

    /// The bytes of the piece before its RESP bytes.
    #[inline]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let Record { db, time_ms, resp } = self.record;
        let flags = if self.goes_on { GOES_ON } else { 0 } | if self.continued { CONTINUED } else { 0 };
        Head { db, time_ms, flags }.sealed(resp)
    }

    /// `out` is as long as the piece.
    pub fn write(&self, out: &mut [u8]) {
        self.write_after(&self.header(), out);
    }

    /// Like [`Piece::write`], with the header that [`Piece::header`] has made.
    #[inline]
    pub fn write_after(&self, header: &[u8; HEADER_BYTES], out: &mut [u8]) {
        out[..HEADER_BYTES].copy_from_slice(header);
        out[HEADER_BYTES..].copy_from_slice(self.record.resp);
    }

    pub fn push_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.bytes(), 0);
        self.write(&mut out[start..]);
    }

    /// The bytes of the piece at the start of `bytes`, if `bytes` are long enough. The piece may be damaged.
    #[inline]
    pub fn bytes_of(bytes: &[u8]) -> Option<&[u8]> {
        let length = u32::from_le_bytes(*bytes.get(AT_LENGTH..)?.first_chunk()?) as usize;
        bytes.get(..HEADER_BYTES.checked_add(length)?)
    }

    /// The piece at the start of `bytes`. `None`: it is damaged.
    pub fn read(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let bytes = Piece::bytes_of(bytes)?;
        if u32::from_le_bytes(get(bytes, 0)) != checksum(bytes) { None } else { Piece::read_checked(bytes) }
    }

    /// Like [`Piece::read`], for bytes whose checksum was checked already.
    pub fn read_checked(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let bytes = Piece::bytes_of(bytes)?;
        if bytes[AT_FLAGS] > 3 || bytes[AT_ZERO] != 0 {
            return None;
        }
        let record = Record {
            db: u32::from_le_bytes(get(bytes, AT_DB)),
            time_ms: u64::from_le_bytes(get(bytes, AT_TIME)),
            resp: &bytes[HEADER_BYTES..],
        };
        let flags = bytes[AT_FLAGS];
        Some(Piece { record, goes_on: flags & GOES_ON != 0, continued: flags & CONTINUED != 0 })
    }
}

/// Puts records together from their pieces.
#[derive(Default)]
pub(crate) struct Joiner {
    /// The RESP bytes so far of a record that continues.
    begun: Option<Vec<u8>>,
}

impl Joiner {
    /// Takes the next piece. If it ends a record, calls `each` with the record. `end` is the position after the piece.
    /// `None`: the piece continues a record that was not begun.
    pub fn join(
        &mut self,
        end: u64,
        piece: &Piece,
        each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let Piece { record, goes_on, continued } = *piece;
        // A begun record that does not continue here was cut off by a crash.
        let mut whole = if continued { self.begun.take()? } else { Vec::new() };
        if continued || goes_on {
            whole.extend_from_slice(record.resp);
        }
        Some(match (goes_on, continued) {
            (true, _) => {
                self.begun = Some(whole);
                ControlFlow::Continue(())
            }
            (false, true) => each(end, &Record { resp: &whole, ..record }),
            (false, false) => {
                self.begun = None;
                each(end, &record)
            }
        })
    }
}

#[inline]
fn checksum(piece: &[u8]) -> u32 {
    base::crc::crc32c(&piece[AT_LENGTH..])
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_long_as_it_says() {
        for length in [0, 1, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 5 * PIECE_BYTES_MAX] {
            let resp = vec![7; length];
            let record = Record { db: 3, time_ms: 9, resp: &resp };
            let mut out = Vec::new();
            record.pieces().for_each(|piece| piece.push_to(&mut out));
            assert_eq!(out.len() as u64, stored_bytes(length));
            let (mut rest, mut back, mut pieces) = (&out[..], Vec::new(), 0);
            while !rest.is_empty() {
                let piece = Piece::read(rest).unwrap();
                assert_eq!((piece.record.db, piece.record.time_ms), (3, 9));
                assert_eq!((piece.continued, piece.goes_on), (pieces > 0, piece.bytes() < rest.len()));
                back.extend_from_slice(piece.record.resp);
                pieces += 1;
                rest = &rest[piece.bytes()..];
            }
            assert_eq!(back, resp);
        }
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let mut out = Vec::new();
        let record = Record { db: 0, time_ms: 1, resp: b"*1\r\n$4\r\nPING\r\n" };
        record.pieces().for_each(|piece| piece.push_to(&mut out));
        for bit in 0..out.len() * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Piece::read(&out), None, "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Piece::read(&out).is_some());
        assert_eq!(Piece::read(&out[..out.len() - 1]), None);
        assert_eq!(Piece::read(&[]), None);
    }
}
