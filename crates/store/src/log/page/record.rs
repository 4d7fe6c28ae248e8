//! Owns the bytes of one record inside a frame.
//! Never knows the place of a frame or its compression.
//!
//! ```text
//! | flags u8 | kind u8? | db varint? | key bytes varint | value bytes varint | expiry zigzag? | seq zigzag? | key | value |
//! flags: bit 0 kind ≠ 0, bit 1 db ≠ 0, bit 2 has an expiry, bit 3 seq ≠ the page's; others 0
//! ```
//!
//! This is four bytes for a string of 500 bytes in db 0. Expiry and seq are stored as zigzag varint differences from the page's
//! bases, because both are close to them. Any u64 can be stored.

use super::Corrupt;
use crate::narrow::{low8, low16};

/// One version of a key's value, as it is written to flash and read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Type, encoding and flags, in the caller's encoding. Zero takes no byte.
    pub kind: u8,
    pub db: u32,
    pub expiry_ms: Option<u64>,
    pub seq: u64,
    /// The key's hash. Its low 16 bits are the fingerprint. A record read from flash has only these bits.
    pub hash: u64,
}

/// The numbers that a page's records are written relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bases {
    pub seq: u64,
    pub expiry_s: u32,
}

impl Bases {
    fn expiry_ms(self) -> u64 {
        u64::from(self.expiry_s) * 1000
    }
}

const HAS_KIND: u8 = 1;
const HAS_DB: u8 = 1 << 1;
const HAS_EXPIRY: u8 = 1 << 2;
const HAS_SEQ: u8 = 1 << 3;
const FLAGS: u8 = HAS_KIND | HAS_DB | HAS_EXPIRY | HAS_SEQ;

impl<'a> Record<'a> {
    pub(super) fn fingerprint(&self) -> u16 {
        low16(self.hash)
    }

    /// Appends the record; its lengths are below [`super::RECORD_BYTES_MAX`].
    pub(super) fn encode(&self, bases: Bases, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.kind != 0 {
            flags |= HAS_KIND;
        }
        if self.db != 0 {
            flags |= HAS_DB;
        }
        if self.expiry_ms.is_some() {
            flags |= HAS_EXPIRY;
        }
        if self.seq != bases.seq {
            flags |= HAS_SEQ;
        }
        out.push(flags);
        if self.kind != 0 {
            out.push(self.kind);
        }
        if self.db != 0 {
            put_varint(out, self.db.into());
        }
        put_varint(out, self.key.len() as u64);
        put_varint(out, self.value.len() as u64);
        if let Some(expiry_ms) = self.expiry_ms {
            put_varint(out, zigzag(expiry_ms.wrapping_sub(bases.expiry_ms())));
        }
        if self.seq != bases.seq {
            put_varint(out, zigzag(self.seq.wrapping_sub(bases.seq)));
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }

    /// Reads the record at `*at`, and moves `*at` behind it.
    pub(super) fn decode(frame: &'a [u8], at: &mut usize, bases: Bases, hash: u16) -> Result<Record<'a>, Corrupt> {
        let mut rest = frame.get(*at..).ok_or(Corrupt::Lengths)?;
        let (record, value_bytes) = Record::head(&mut rest, bases, hash)?;
        let value = take(&mut rest, value_bytes)?;
        *at = frame.len() - rest.len();
        Ok(Record { value, ..record })
    }

    /// Reads the record at `*at` without its value, which the bytes need not contain, and moves `*at` behind it.
    pub(super) fn decode_key(frame: &'a [u8], at: &mut usize, bases: Bases, hash: u16) -> Result<Record<'a>, Corrupt> {
        let mut rest = frame.get(*at..).ok_or(Corrupt::Lengths)?;
        let (record, value_bytes) = Record::head(&mut rest, bases, hash)?;
        let value_bytes = usize::try_from(value_bytes).map_err(|_| Corrupt::Lengths)?;
        *at = (frame.len() - rest.len()).checked_add(value_bytes).ok_or(Corrupt::Lengths)?;
        Ok(record)
    }

    /// Takes all but the value from the front. Returns a record without a value, and the value's length.
    #[inline]
    fn head(rest: &mut &'a [u8], bases: Bases, hash: u16) -> Result<(Record<'a>, u64), Corrupt> {
        let flags = take_byte(rest)?;
        if flags & !FLAGS != 0 {
            return Err(Corrupt::Lengths);
        }
        let has = |flag: u8| flags & flag != 0;
        let kind = if has(HAS_KIND) { take_byte(rest)? } else { 0 };
        let db = if has(HAS_DB) { take_varint(rest)? } else { 0 };
        let db = u32::try_from(db).map_err(|_| Corrupt::Lengths)?;
        let key_bytes = take_varint(rest)?;
        let value_bytes = take_varint(rest)?;
        let expiry_ms = match has(HAS_EXPIRY) {
            true => Some(bases.expiry_ms().wrapping_add(unzigzag(take_varint(rest)?))),
            false => None,
        };
        let seq = match has(HAS_SEQ) {
            true => bases.seq.wrapping_add(unzigzag(take_varint(rest)?)),
            false => bases.seq,
        };
        let key = take(rest, key_bytes)?;
        Ok((Record { key, value: &[], kind, db, expiry_ms, seq, hash: hash.into() }, value_bytes))
    }
}

/// Moves `*at` behind the record there without decoding the record.
pub(super) fn skip(frame: &[u8], at: &mut usize, bases: Bases) -> Result<(), Corrupt> {
    // The usual record: a string with nothing special but its seq, and a value of less than 16 KB.
    if let Some(&[flags @ (0 | HAS_SEQ), key_bytes @ ..0x80, low, high]) =
        frame.get(*at..).and_then(<[u8]>::first_chunk)
        && (low < 0x80 || high < 0x80)
    {
        let (value_bytes, mut header_bytes) = match low {
            ..0x80 => (usize::from(low), 3),
            _ => (usize::from(low & 0x7f) | usize::from(high) << 7, 4),
        };
        if flags == HAS_SEQ {
            let seq = &frame[*at + header_bytes..];
            header_bytes += 1 + seq.iter().position(|&byte| byte < 0x80).ok_or(Corrupt::Lengths)?;
        }
        *at += header_bytes + usize::from(key_bytes) + value_bytes;
        return if *at <= frame.len() { Ok(()) } else { Err(Corrupt::Lengths) };
    }
    Record::decode(frame, at, bases, 0).map(|_| ())
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

fn unzigzag(v: u64) -> u64 {
    (v >> 1) ^ (v & 1).wrapping_neg()
}

/// LEB128: seven bits a byte, least significant first.
fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(low8(v) | 0x80);
        v >>= 7;
    }
    out.push(low8(v));
}

#[inline]
fn take_varint(rest: &mut &[u8]) -> Result<u64, Corrupt> {
    if let [byte @ ..0x80, tail @ ..] = *rest {
        *rest = tail;
        return Ok((*byte).into());
    }
    take_long_varint(rest)
}

fn take_long_varint(rest: &mut &[u8]) -> Result<u64, Corrupt> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(rest)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Corrupt::Lengths);
        }
        v |= bits << shift;
        if byte < 0x80 {
            return Ok(v);
        }
    }
    Err(Corrupt::Lengths)
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, Corrupt> {
    let (&byte, tail) = rest.split_first().ok_or(Corrupt::Lengths)?;
    *rest = tail;
    Ok(byte)
}

fn take<'a>(rest: &mut &'a [u8], bytes: u64) -> Result<&'a [u8], Corrupt> {
    let bytes = usize::try_from(bytes).map_err(|_| Corrupt::Lengths)?;
    let (taken, tail) = rest.split_at_checked(bytes).ok_or(Corrupt::Lengths)?;
    *rest = tail;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASES: Bases = Bases { seq: 1 << 40, expiry_s: 1_700_000_000 };

    fn round_trip(record: Record<'_>, header_bytes: usize) {
        let mut out = vec![0xee; 3];
        record.encode(BASES, &mut out);
        assert_eq!(out.len(), 3 + header_bytes + record.key.len() + record.value.len(), "{record:?}");
        let mut at = 3;
        assert_eq!(Record::decode(&out, &mut at, BASES, record.hash as u16), Ok(record));
        assert_eq!(at, out.len());
        let mut at = 3;
        assert_eq!((skip(&out, &mut at, BASES), at), (Ok(()), out.len()));
        let without_value = Record { value: &[], ..record };
        let mut at = 3;
        let head = &out[..out.len() - record.value.len()];
        assert_eq!(Record::decode_key(head, &mut at, BASES, record.hash as u16), Ok(without_value));
        assert_eq!(at, out.len());
        for cut in 3..out.len() {
            let key = Record::decode_key(&out[..cut], &mut 3, BASES, 0);
            assert_eq!(key.is_err(), cut < head.len(), "{key:?}");
            assert_eq!(Record::decode(&out[..cut], &mut 3, BASES, 0), Err(Corrupt::Lengths));
            assert_eq!(skip(&out[..cut], &mut 3, BASES), Err(Corrupt::Lengths));
        }
    }

    #[test]
    fn a_header_takes_only_what_the_record_needs() {
        let value = [7; 500];
        let plain =
            Record { key: b"key", value: &value, kind: 0, db: 0, expiry_ms: None, seq: BASES.seq, hash: 0xbeef };
        round_trip(plain, 4);
        round_trip(Record { kind: 0x25, ..plain }, 5);
        round_trip(Record { db: 300, ..plain }, 6);
        round_trip(Record { seq: BASES.seq - 64, ..plain }, 5);
        round_trip(Record { expiry_ms: Some(BASES.expiry_ms() + 3_600_000), ..plain }, 8);
        round_trip(Record { key: b"", value: b"", ..plain }, 3);
        for (bytes, header_bytes) in [(127, 3), (128, 4), (16_383, 4), (16_384, 5)] {
            round_trip(Record { value: &vec![7; bytes], ..plain }, header_bytes);
        }
        round_trip(Record { key: &value, ..plain }, 5);
        let far = Record { kind: 255, db: u32::MAX, expiry_ms: Some(u64::MAX), seq: 0, ..plain };
        round_trip(far, 2 + 5 + 1 + 2 + 6 + 6);
        let opposite = 1 << 63;
        round_trip(Record { expiry_ms: Some(opposite), seq: opposite, ..far }, 2 + 5 + 1 + 2 + 10 + 10);
    }

    #[test]
    fn overlong_varints_and_unknown_flags_are_refused() {
        for hostile in [&[0xf0, 0, 0][..], &[0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], &[0, 1, 0]] {
            assert_eq!(Record::decode(hostile, &mut 0, BASES, 0), Err(Corrupt::Lengths));
        }
    }
}
