//! Owns streams in dumps. Never knows other types.
//!
//! ```text
//! chunks           how many; each the 16 bytes of its first id and a listpack, both as strings
//! entries          how many
//! last id          ms, seq
//! first id, largest deleted id, entries added                       from version 2 on
//! groups           how many; each
//!   name, last id
//!   entries read                                                    from version 2 on, before it as the entries tell; all ones: not known
//!   pending        how many; each an id (16 bytes), a time (8 bytes), deliveries
//!   consumers      how many; each
//!     name, seen (8 bytes)
//!     active (8 bytes)                                              from version 3 on
//!     pending      how many; each an id (16 bytes)
//! ```

use super::Decoded;
use super::{Reader, put_len, put_string};
use crate::Corrupt;
use crate::stream::{Counts, Group, Id, Stream};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// Before Redis 7.0.
    V1,
    /// Redis 7.0.
    V2,
    /// Redis 7.2.
    V3,
}

fn put_id(out: &mut Vec<u8>, id: Id) {
    put_len(out, id.ms);
    put_len(out, id.seq);
}

fn put_ms(out: &mut Vec<u8>, ms: i64) {
    out.extend_from_slice(&ms.to_le_bytes());
}

/// Writes a stream. V1 is never written.
pub fn write(stream: &Stream, version: Version, out: &mut Vec<u8>) {
    let chunks = stream.raw_chunks();
    put_len(out, chunks.len() as u64);
    for (base, list) in chunks {
        put_string(out, &base.to_bytes());
        put_string(out, list);
    }
    write_after_chunks(stream, version, out);
}

/// Writes what follows the chunks. V2 leaves out when consumers were active; V1 is never written.
pub fn write_after_chunks(stream: &Stream, version: Version, out: &mut Vec<u8>) {
    put_len(out, stream.len());
    for id in [stream.last_id, stream.first_id(), stream.max_deleted_id] {
        put_id(out, id);
    }
    put_len(out, stream.entries_added);
    let groups = stream.groups();
    put_len(out, groups.len() as u64);
    for (name, group) in groups {
        put_string(out, name);
        put_id(out, group.last_id);
        put_len(out, group.entries_read.unwrap_or(u64::MAX));
        put_len(out, group.pending_len() as u64);
        for (id, pending) in group.pending(..) {
            out.extend_from_slice(&id.to_bytes());
            put_ms(out, pending.delivered_ms);
            put_len(out, pending.deliveries);
        }
        let consumers = group.consumers();
        put_len(out, consumers.len() as u64);
        for (name, consumer) in consumers {
            put_string(out, name);
            put_ms(out, consumer.seen_ms);
            if version >= Version::V3 {
                put_ms(out, consumer.active_ms);
            }
            put_len(out, consumer.pending().len() as u64);
            consumer.pending().iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
        }
    }
}

fn id(reader: &mut Reader<'_>) -> Result<Id, Corrupt> {
    Ok(Id::new(reader.len()?, reader.len()?))
}

pub fn raw_id(reader: &mut Reader<'_>) -> Result<Id, Corrupt> {
    reader.array().map(Id::from_bytes)
}

fn ms(reader: &mut Reader<'_>) -> Result<i64, Corrupt> {
    reader.array().map(i64::from_le_bytes)
}

/// Counts of a stream that disagree with its entries. Redis before 7.0 wrote such streams after some XTRIMs, and
/// accepts them: its XLEN returns the count in the file. Here the entries are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscount {
    pub told: u64,
    pub found: u64,
    /// Number of chunks whose own counts were wrong.
    pub chunks: u64,
}

impl Miscount {
    fn of(told: u64, found: u64, chunks: u64, wrong: u64) -> Result<Option<Miscount>, Corrupt> {
        // Redis refuses this too: entries are counted, but there are none.
        if chunks == 0 && told > 0 {
            return Err(Corrupt);
        }
        Ok((told != found || wrong > 0).then_some(Miscount { told, found, chunks: wrong }))
    }
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Miscount { told, found, chunks } = self;
        write!(f, "the stream should have {told} entries by its own count, but it has {found}")?;
        if *chunks > 0 {
            write!(f, "; the counts of {chunks} of its nodes were wrong")?;
        }
        f.write_str(". The counts are corrected")
    }
}

/// Reads a stream. Every counted item takes at least one byte, so no loop runs longer than the input.
pub fn read(reader: &mut Reader<'_>, version: Version) -> Result<Decoded, Corrupt> {
    let mut stream = Stream::new();
    let (chunks, mut wrong) = (reader.len()?, 0);
    for _ in 0..chunks {
        let base = reader.string()?;
        let base = Id::from_bytes(base[..].try_into().map_err(|_| Corrupt)?);
        wrong += u64::from(stream.push_chunk(base, reader.string()?.into_owned())?);
    }
    let told = read_after_chunks(&mut stream, reader, version)?;
    let found = stream.len();
    let miscount = Miscount::of(told, found, chunks, wrong)?;
    Ok(Decoded::Stream(stream.into(), miscount))
}

/// Reads what follows the chunks, which `stream` already has. Returns the number of entries that the input claims.
pub fn read_after_chunks(stream: &mut Stream, reader: &mut Reader<'_>, version: Version) -> Result<u64, Corrupt> {
    let told = reader.len()?;
    stream.last_id = id(reader)?;
    stream.check_last_id()?;
    stream.entries_added = stream.len();
    if version >= Version::V2 {
        // Ignored: the first id follows from the entries.
        id(reader)?;
        stream.max_deleted_id = id(reader)?;
        stream.entries_added = reader.len()?;
    }
    for _ in 0..reader.len()? {
        let name = reader.string()?;
        let mut group = group(reader, version)?;
        if version < Version::V2 {
            group.entries_read = stream.entries_until(group.last_id);
        }
        if !stream.create_group(&name, group) {
            return Err(Corrupt);
        }
    }
    Ok(told)
}

fn group(reader: &mut Reader<'_>, version: Version) -> Result<Group, Corrupt> {
    let last_id = id(reader)?;
    let read = if version >= Version::V2 { Some(reader.len()?).filter(|&read| read != u64::MAX) } else { None };
    let mut group = Group::new(last_id, read);
    // The consumers follow, and say which of them has each of these entries.
    let mut pending = std::collections::BTreeMap::new();
    for _ in 0..reader.len()? {
        let (id, delivered_ms, deliveries) = (raw_id(reader)?, ms(reader)?, reader.len()?);
        if pending.insert(id, (delivered_ms, deliveries)).is_some() {
            return Err(Corrupt);
        }
    }
    for _ in 0..reader.len()? {
        let name = reader.string()?;
        let seen_ms = ms(reader)?;
        let active_ms = if version >= Version::V3 { ms(reader)? } else { seen_ms };
        if !group.create_consumer(&name, seen_ms) {
            return Err(Corrupt);
        }
        if let Some(consumer) = group.consumer_mut(&name) {
            consumer.active_ms = active_ms;
        }
        for _ in 0..reader.len()? {
            let id = raw_id(reader)?;
            let (delivered_ms, deliveries) = pending.remove(&id).ok_or(Corrupt)?;
            group.assign(id, &name, delivered_ms, deliveries);
        }
    }
    // Every pending entry must belong to a consumer.
    if pending.is_empty() { Ok(group) } else { Err(Corrupt) }
}

// --- in parts ---

/// The fields between the chunks and the groups.
pub struct Head {
    /// How many entries the input claims, and how many its chunks have.
    told: u64,
    entries: u64,
    last_id: Id,
    max_deleted_id: Id,
    entries_added: u64,
}

impl Head {
    /// Sets these fields of a stream, or of a part of one.
    pub fn put(&self, stream: &mut Stream) -> Result<(), Corrupt> {
        stream.last_id = self.last_id;
        stream.check_last_id()?;
        (stream.max_deleted_id, stream.entries_added) = (self.max_deleted_id, self.entries_added);
        Ok(())
    }

    /// What is wrong with the counts. `chunks`: the number of chunks, and the number of those whose own counts were
    /// wrong.
    pub fn miscount(&self, (chunks, wrong): (u64, u64)) -> Result<Option<Miscount>, Corrupt> {
        Miscount::of(self.told, self.entries, chunks, wrong)
    }

    /// How many entries were added up to an id, if that is known. `first_id`: the first id of the whole stream.
    pub fn entries_until(&self, first_id: Option<Id>, id: Id) -> Option<u64> {
        let Head { entries, last_id, max_deleted_id, entries_added, .. } = *self;
        Counts { entries, entries_added, first_id: first_id.unwrap_or(Id::MIN), last_id, max_deleted_id }.until(id)
    }
}

/// Reads a chunk: its first id and its listpack.
pub fn chunk(reader: &mut Reader<'_>) -> Result<(Id, Vec<u8>), Corrupt> {
    let base = reader.string()?;
    let base = Id::from_bytes(base[..].try_into().map_err(|_| Corrupt)?);
    Ok((base, reader.string()?.into_owned()))
}

/// Adds a chunk to a part of a stream, whose other chunks are not known. True: the chunk's own counts were wrong, and
/// were corrected.
pub fn add_chunk(part: &mut Stream, base: Id, list: Vec<u8>) -> Result<bool, Corrupt> {
    let is_corrected = part.push_chunk(base, list)?;
    part.end_with_chunks(base);
    Ok(is_corrected)
}

/// Reads the fields that follow the chunks, which have `entries` entries. Returns them, and the number of groups that
/// follow.
pub fn head(reader: &mut Reader<'_>, version: Version, entries: u64) -> Result<(Head, u64), Corrupt> {
    let told = reader.len()?;
    let last_id = id(reader)?;
    let (mut max_deleted_id, mut entries_added) = (Id::MIN, entries);
    if version >= Version::V2 {
        // Ignored: the first id follows from the entries.
        id(reader)?;
        max_deleted_id = id(reader)?;
        entries_added = reader.len()?;
    }
    Ok((Head { told, entries, last_id, max_deleted_id, entries_added }, reader.len()?))
}

/// A group's name, its last id, how many entries it has read, and how many pending entries follow.
pub fn group_head(reader: &mut Reader<'_>, version: Version) -> Result<(Vec<u8>, Id, Option<u64>, u64), Corrupt> {
    let name = reader.string()?.into_owned();
    let last_id = id(reader)?;
    let read = if version >= Version::V2 { Some(reader.len()?).filter(|&read| read != u64::MAX) } else { None };
    Ok((name, last_id, read, reader.len()?))
}

/// A pending entry's id, when it was delivered, and how often.
pub fn pending(reader: &mut Reader<'_>) -> Result<(Id, i64, u64), Corrupt> {
    Ok((raw_id(reader)?, ms(reader)?, reader.len()?))
}

/// A consumer's name, when it was seen and active, and how many of its pending entries follow.
pub fn consumer(reader: &mut Reader<'_>, version: Version) -> Result<(Vec<u8>, i64, i64, u64), Corrupt> {
    let name = reader.string()?.into_owned();
    let seen_ms = ms(reader)?;
    let active_ms = if version >= Version::V3 { ms(reader)? } else { seen_ms };
    Ok((name, seen_ms, active_ms, reader.len()?))
}
