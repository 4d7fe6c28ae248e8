//! Owns values in the format of Redis's DUMP and RDB files. It writes as Redis 7.2 writes, and reads everything that
//! 7.2 and older versions write. Never knows keys or commands, and never trusts its input: a length counts only as far
//! as there are bytes, and the number of bytes bounds the memory used.
//!
//! ```text
//! type       1 byte, see `Type`
//! value
//! version    2 bytes, little-endian: of the format
//! checksum   8 bytes, little-endian: CRC-64 of all before it
//!
//! length     00llllll                    6 bits
//!            01llllll llllllll           14 bits
//!            10000000 length             4 bytes, most significant first
//!            10000001 length             8 bytes, most significant first
//! string     length, bytes
//!            11000000 n                  the text of an integer of 1 byte, 11000001 of 2, 11000010 of 4, little-endian
//!            11000011 length length …    compressed with LZF: compressed length, length, bytes
//! ```

mod collect;
mod crc64;
mod intset;
mod lzf;
mod saved;
pub mod stream;
mod ziplist;
mod zipmap;

pub use collect::Parts;
pub use crc64::{crc64, crc64_after};
pub use lzf::Compressor;
pub use saved::saved_bytes;

use self::stream::Miscount;
use crate::stream::Stream;
use crate::{Corrupt, listpack};
use std::borrow::Cow;

/// The version that Redis 7.2 writes, and the newest one that is read.
pub const VERSION: u16 = 11;
const FOOTER_BYTES: usize = 10;
/// All compressed strings of one payload may expand to at most this, together.
const EXPANDED_BYTES_MAX: usize = 1 << 30;
/// Limits of one listpack of a list: elements and bytes.
const LIST_NODE_BYTES: usize = 8192;

/// The encodings of values, by number.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String = 0,
    List = 1,
    Set = 2,
    ZSetText = 3,
    Hash = 4,
    ZSet = 5,
    HashZipmap = 9,
    ListZiplist = 10,
    SetIntset = 11,
    ZSetZiplist = 12,
    HashZiplist = 13,
    ListQuicklist = 14,
    Stream1 = 15,
    HashListpack = 16,
    ZSetListpack = 17,
    ListQuicklist2 = 18,
    Stream2 = 19,
    SetListpack = 20,
    Stream3 = 21,
}

impl Type {
    const ALL: [Type; 19] = [
        Type::String,
        Type::List,
        Type::Set,
        Type::ZSetText,
        Type::Hash,
        Type::ZSet,
        Type::HashZipmap,
        Type::ListZiplist,
        Type::SetIntset,
        Type::ZSetZiplist,
        Type::HashZiplist,
        Type::ListQuicklist,
        Type::Stream1,
        Type::HashListpack,
        Type::ZSetListpack,
        Type::ListQuicklist2,
        Type::Stream2,
        Type::SetListpack,
        Type::Stream3,
    ];

    /// The first version of the format with this encoding; 6 (Redis 2.6) if the encoding is older than DUMP.
    pub fn version(self) -> u16 {
        match self {
            Type::ListQuicklist => 7,
            Type::ZSet => 8,
            Type::Stream1 => 9,
            Type::HashListpack | Type::ZSetListpack | Type::ListQuicklist2 | Type::Stream2 => 10,
            Type::SetListpack | Type::Stream3 => 11,
            _ => 6,
        }
    }

    /// Whether a sorted set of this type is one string, in which a score is a text: it may be minus zero.
    pub fn has_text_scores(self) -> bool {
        matches!(self, Type::ZSetZiplist | Type::ZSetListpack)
    }

    pub fn from_u8(number: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|&kind| kind as u8 == number)
    }
}

/// A value that was read. The caller that builds the collection checks whether its members are distinct.
#[derive(Debug)]
pub enum Decoded {
    String(Vec<u8>),
    List(Parts),
    Set(Parts),
    /// Fields and values alternately.
    Hash(Parts),
    /// Members with their scores; no score is NaN.
    ZSet(Parts, Vec<f64>),
    /// A stream, and what was wrong with its counts.
    Stream(Box<Stream>, Option<Miscount>),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its version or checksum is wrong.
    Envelope,
    Corrupt,
}

impl From<Corrupt> for Refused {
    fn from(_: Corrupt) -> Refused {
        Refused::Corrupt
    }
}

/// A payload with the value that `write` appends.
pub fn dump(kind: Type, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    dump_for(kind, VERSION, write)
}

/// Like [`dump`], in the format of that version.
pub fn dump_for(kind: Type, version: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![kind as u8];
    write(&mut out);
    out.extend_from_slice(&version.to_le_bytes());
    let sum = crc64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// The value of a payload.
pub fn restore(payload: &[u8]) -> Result<Decoded, Refused> {
    let (sealed, sum) = payload.split_last_chunk::<8>().ok_or(Refused::Envelope)?;
    let (value, version) = sealed.split_last_chunk::<2>().ok_or(Refused::Envelope)?;
    if u16::from_le_bytes(*version) > VERSION || u64::from_le_bytes(*sum) != crc64(sealed) {
        return Err(Refused::Envelope);
    }
    Ok(read_value(value)?)
}

/// Corrects the envelope of a payload, for tests that change its content.
pub fn reseal(payload: &mut Vec<u8>, version: u16) {
    payload.truncate(payload.len().saturating_sub(FOOTER_BYTES));
    payload.extend_from_slice(&version.to_le_bytes());
    let sum = crc64(payload);
    payload.extend_from_slice(&sum.to_le_bytes());
}

fn read_value(bytes: &[u8]) -> Result<Decoded, Corrupt> {
    let mut reader = Reader::new(bytes);
    let kind = Type::from_u8(reader.byte()?).ok_or(Corrupt)?;
    let value = match kind {
        Type::String => Decoded::String(reader.string()?.into_owned()),
        Type::List => Decoded::List(reader.parts(1)?),
        Type::Set => Decoded::Set(reader.parts(1)?),
        Type::Hash => Decoded::Hash(reader.parts(2)?),
        Type::ZSet | Type::ZSetText => {
            let (mut members, mut scores) = (Parts::new(), Vec::new());
            for _ in 0..reader.len()? {
                members.push(&reader.string()?)?;
                scores.push(reader.score(kind)?);
            }
            Decoded::ZSet(members, scores)
        }
        Type::HashZipmap
        | Type::ListZiplist
        | Type::SetIntset
        | Type::ZSetZiplist
        | Type::HashZiplist
        | Type::HashListpack
        | Type::ZSetListpack
        | Type::SetListpack => packed(kind, &reader.string()?)?,
        Type::ListQuicklist | Type::ListQuicklist2 => {
            let mut parts = Parts::new();
            for _ in 0..reader.len()? {
                reader.quicklist_node(kind, &mut parts)?;
            }
            Decoded::List(parts)
        }
        Type::Stream1 => stream::read(&mut reader, stream::Version::V1)?,
        Type::Stream2 => stream::read(&mut reader, stream::Version::V2)?,
        Type::Stream3 => stream::read(&mut reader, stream::Version::V3)?,
    };
    let is_sound = match &value {
        Decoded::String(_) | Decoded::Stream(..) => true,
        Decoded::Hash(parts) => !parts.is_empty() && parts.len().is_multiple_of(2),
        Decoded::List(parts) | Decoded::Set(parts) | Decoded::ZSet(parts, _) => !parts.is_empty(),
    };
    if is_sound && reader.is_empty() { Ok(value) } else { Err(Corrupt) }
}

/// The members of a collection that is one string.
pub fn packed(kind: Type, bytes: &[u8]) -> Result<Decoded, Corrupt> {
    Ok(match kind {
        Type::HashZipmap => Decoded::Hash(zipmap::parts(bytes)?),
        Type::ListZiplist => Decoded::List(ziplist::parts(bytes)?),
        Type::SetIntset => Decoded::Set(intset::parts(bytes)?),
        Type::ZSetZiplist => scored(&ziplist::parts(bytes)?)?,
        Type::HashZiplist => Decoded::Hash(ziplist::parts(bytes)?),
        Type::HashListpack => Decoded::Hash(listpack_parts(bytes)?),
        Type::ZSetListpack => scored(&listpack_parts(bytes)?)?,
        Type::SetListpack => Decoded::Set(listpack_parts(bytes)?),
        _ => return Err(Corrupt),
    })
}

/// The elements of a listpack.
pub fn listpack_parts(list: &[u8]) -> Result<Parts, Corrupt> {
    listpack::check(list)?;
    let mut parts = Parts::new();
    listpack::iter(list).try_for_each(|element| parts.push_element(element))?;
    Ok(parts)
}

/// Members and scores alternately.
fn scored(parts: &Parts) -> Result<Decoded, Corrupt> {
    let (mut members, mut scores) = (Parts::new(), Vec::with_capacity(parts.len() / 2));
    let mut all = parts.iter();
    while let Some(member) = all.next() {
        members.push(member)?;
        let text = std::str::from_utf8(all.next().ok_or(Corrupt)?).map_err(|_| Corrupt)?;
        scores.push(sound_score(text.parse().map_err(|_| Corrupt)?)?);
    }
    Ok(Decoded::ZSet(members, scores))
}

pub fn sound_score(score: f64) -> Result<f64, Corrupt> {
    if score.is_nan() { Err(Corrupt) } else { Ok(score) }
}

pub fn put_len(out: &mut Vec<u8>, len: u64) {
    match len {
        0..64 => out.push(len as u8),
        64..0x4000 => out.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
        0x4000..0x1_0000_0000 => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Writes a string: as an integer where that is shorter than the integer's text. Never compressed.
pub fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    // A longer text is never an integer of four bytes.
    let number = if text.len() <= 11 { listpack::int(text) } else { None };
    match number {
        Some(n) if i8::try_from(n).is_ok() => out.extend_from_slice(&[0xc0, n as u8]),
        Some(n) if i16::try_from(n).is_ok() => {
            out.push(0xc1);
            out.extend_from_slice(&(n as i16).to_le_bytes());
        }
        Some(n) if i32::try_from(n).is_ok() => {
            out.push(0xc2);
            out.extend_from_slice(&(n as i32).to_le_bytes());
        }
        _ => {
            put_len(out, text.len() as u64);
            out.extend_from_slice(text);
        }
    }
}

/// Writes a count and then strings. For strings in pairs, the count is that of the pairs.
pub fn put_strings<'a>(out: &mut Vec<u8>, count: usize, strings: impl Iterator<Item = &'a [u8]>) {
    put_len(out, count as u64);
    strings.for_each(|string| put_string(out, string));
}

/// Strings as one listpack.
pub fn put_listpack<'a>(out: &mut Vec<u8>, strings: impl Iterator<Item = &'a [u8]>) {
    let mut list = listpack::new();
    listpack::append(&mut list, |push| strings.for_each(|string| push.bytes(string)));
    put_string(out, &list);
}

/// Members with scores as one listpack.
pub fn put_scored_listpack<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a [u8], f64)>) {
    put_string(out, &scored_listpack(members));
}

/// The listpack of a sorted set: members and their scores as texts.
pub fn scored_listpack<'a>(members: impl Iterator<Item = (&'a [u8], f64)>) -> Vec<u8> {
    let mut list = listpack::new();
    listpack::append(&mut list, |push| {
        for (member, score) in members {
            push.bytes(member);
            push.bytes(format!("{score:?}").trim_end_matches(".0").as_bytes());
        }
    });
    list
}

/// Whether the score is minus zero. The packed form of a sorted set has it only if it was made by Redis before 7.2.
pub fn is_minus_zero(score: f64) -> bool {
    score == 0.0 && score.is_sign_negative()
}

/// Writes members with their scores one by one.
pub fn put_scored<'a>(out: &mut Vec<u8>, count: usize, members: impl Iterator<Item = (&'a [u8], f64)>) {
    put_len(out, count as u64);
    for (member, score) in members {
        put_string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

/// Writes a set of integers, which must be in ascending order.
pub fn put_intset(out: &mut Vec<u8>, numbers: &[i64]) {
    put_string(out, &intset::bytes(numbers));
}

/// Writes a list as nodes of some KB. A longer element becomes a node of its own.
pub fn put_list<'a>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'a [u8]>) {
    let (mut nodes, mut body, mut list) = (0u64, Vec::new(), listpack::new());
    let mut end_node = |list: &mut Vec<u8>, body: &mut Vec<u8>| {
        if list.len() > listpack::FIRST + 1 {
            nodes += 1;
            put_len(body, 2);
            put_string(body, &std::mem::replace(list, listpack::new()));
        }
        nodes
    };
    let mut plain = 0;
    for element in elements {
        if list.len() + element.len() > LIST_NODE_BYTES {
            end_node(&mut list, &mut body);
        }
        if element.len() > LIST_NODE_BYTES {
            plain += 1;
            put_len(&mut body, 1);
            put_string(&mut body, element);
        } else {
            listpack::append(&mut list, |push| push.bytes(element));
        }
    }
    let packed = end_node(&mut list, &mut body);
    put_len(out, packed + plain);
    out.append(&mut body);
}

/// Reads the pieces of a value. Every method fails rather than read past the end.
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// How many bytes compressed strings may still expand to.
    expansion_left: usize,
    /// How many bytes were missing when the input ended too early.
    missing: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, expansion_left: EXPANDED_BYTES_MAX, missing: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number of bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// After an error: how many more bytes the reader needs at least. 0: the bytes are wrong.
    pub fn missing(&self) -> usize {
        self.missing
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            self.missing = len - self.bytes.len();
            return Err(Corrupt);
        };
        self.bytes = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let Some((array, rest)) = self.bytes.split_first_chunk::<N>() else {
            self.missing = N - self.bytes.len();
            return Err(Corrupt);
        };
        self.bytes = rest;
        Ok(*array)
    }

    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A length, a count, or any other non-negative number.
    pub fn len(&mut self) -> Result<u64, Corrupt> {
        match self.byte()? {
            byte @ 0..0x40 => Ok(byte.into()),
            byte @ 0x40..0x80 => Ok(u64::from(byte & 0x3f) << 8 | u64::from(self.byte()?)),
            0x80 => self.array().map(u32::from_be_bytes).map(u64::from),
            0x81 => self.array().map(u64::from_be_bytes),
            _ => Err(Corrupt),
        }
    }

    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        let Some(first) = self.bytes.first() else {
            self.missing = 1;
            return Err(Corrupt);
        };
        let number = match first {
            0xc0 => self.array::<2>().map(|bytes| i64::from(bytes[1] as i8))?,
            0xc1 => self.array::<3>().map(|[_, low, high]| i64::from(i16::from_le_bytes([low, high])))?,
            0xc2 => self.array::<5>().map(|[_, a, b, c, d]| i64::from(i32::from_le_bytes([a, b, c, d])))?,
            0xc3 => return self.compressed().map(Cow::Owned),
            _ => {
                let len = usize::try_from(self.len()?).map_err(|_| Corrupt)?;
                return self.take(len).map(Cow::Borrowed);
            }
        };
        Ok(Cow::Owned(number.to_string().into_bytes()))
    }

    fn compressed(&mut self) -> Result<Vec<u8>, Corrupt> {
        self.byte()?;
        let compressed_len = usize::try_from(self.len()?).map_err(|_| Corrupt)?;
        let len = usize::try_from(self.len()?).map_err(|_| Corrupt)?;
        let compressed = self.take(compressed_len)?;
        self.expansion_left = self.expansion_left.checked_sub(len).ok_or(Corrupt)?;
        lzf::decompress(compressed, len)
    }

    /// A length, and then that many groups of `each` strings.
    fn parts(&mut self, each: u64) -> Result<Parts, Corrupt> {
        let count = self.len()?.checked_mul(each).ok_or(Corrupt)?;
        let mut parts = Parts::new();
        for _ in 0..count {
            parts.push(&self.string()?)?;
        }
        Ok(parts)
    }

    /// A node of a quicklist: its elements are appended to `parts`.
    pub fn quicklist_node(&mut self, kind: Type, parts: &mut Parts) -> Result<(), Corrupt> {
        if kind == Type::ListQuicklist {
            return parts.append(&ziplist::parts(&self.string()?)?);
        }
        match self.len()? {
            1 => parts.push(&self.string()?),
            2 => parts.append(&listpack_parts(&self.string()?)?),
            _ => Err(Corrupt),
        }
    }

    /// A member's score in a sorted set of this type.
    pub fn score(&mut self, kind: Type) -> Result<f64, Corrupt> {
        let score = if kind == Type::ZSetText { self.text_score()? } else { f64::from_le_bytes(self.array()?) };
        sound_score(score)
    }

    /// A score as text, as Redis wrote it before 4.0.
    fn text_score(&mut self) -> Result<f64, Corrupt> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Err(Corrupt),
            len => {
                let text = std::str::from_utf8(self.take(len.into())?).map_err(|_| Corrupt)?;
                text.parse().map_err(|_| Corrupt)
            }
        }
    }
}

#[cfg(test)]
mod tests;
