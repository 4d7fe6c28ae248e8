//! Owns what a store must know, besides the entries of its index, to find its values on flash again after a restart: the secret,
//! the layout, the segments, the dictionaries. Never knows a file.
//!
//! A checkpoint is made of this table, and of the entries and the skeletons of values in parts of one moment
//! ([`Snapshot::run_places`](crate::Snapshot::run_places)). A store comes back in three steps: [`CheckpointIndex::configure`] before it is
//! made, [`Store::restore`], [`Adding::add`] for all entries and [`Restoring::add_parts`] for all values in parts. Then [`Restoring::finish`] frees the segments that no entry names.

use crate::config::{FlashConfig, StoreConfig};
use crate::log::parts::{PARTS_UID, place_of_number};
use crate::log::segment::{
    Input, NamedPages, PATHS_MAX, SEGMENT_PAGES_MAX, SavedSegment, Segments, Tally, decode, encode,
};
use crate::log::sequence::Order;
use crate::mem::hash::STRIPES;
use crate::mem::index::OwnedWord;
use crate::mem::object::{Object, ObjectRef, Parts, clock_at};
use crate::mem::word::{PAGE_BITS, Word};
use crate::narrow::to_usize;
use crate::store::{Store, log_id};
use crate::stripe::DATABASES_MAX;
use base::Codec;
use flash::io::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use value::{Boxed, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointIndex {
    pub(crate) secret: [u64; 2],
    segment_pages: u32,
    paths: u32,
    data_offset: u64,
    /// The table id of each logical database.
    pub(crate) table_ids: Vec<u32>,
    next_owner: u64,
    sealed: u64,
    pub(crate) order: Option<Order>,
    pub(crate) dictionaries: Vec<Vec<u8>>,
    pub(crate) segments: Vec<SavedSegment>,
}

/// Format 1 has no order.
const FORMAT: u32 = 2;

/// A count, or a number of bytes, as a checkpoint contains it.
fn count(number: usize) -> u32 {
    u32::try_from(number).expect("nothing in a checkpoint has 2^32 of anything: segments, databases, or bytes of a key")
}

impl CheckpointIndex {
    /// ```text
    /// | format u32 | secret 2 × u64 | segment pages u32 | paths u32 | data offset u64 | next owner u64 | sealed u64 | cut u64 | ordered from u64 |
    /// | lost u32 | each: first u64, behind the last u64 |
    /// | databases u32 | table ids × u32 | dictionaries u32 | each: bytes u32, the dictionary | segments, see `log::segment::saved` |
    /// ```
    /// Integers are little-endian. Format 1 lacks everything from the cut up to the databases.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        self.secret.iter().for_each(|half| out.extend_from_slice(&half.to_le_bytes()));
        out.extend_from_slice(&self.segment_pages.to_le_bytes());
        out.extend_from_slice(&self.paths.to_le_bytes());
        let (cut, from) = self.order.as_ref().map_or((0, 0), |order| (order.cut, order.from));
        for long in [self.data_offset, self.next_owner, self.sealed, cut, from] {
            out.extend_from_slice(&long.to_le_bytes());
        }
        let lost = self.order.iter().flat_map(|order| &order.lost);
        out.extend_from_slice(&count(lost.clone().count()).to_le_bytes());
        lost.flat_map(|lost| [lost.start, lost.end]).for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        out.extend_from_slice(&count(self.table_ids.len()).to_le_bytes());
        self.table_ids.iter().for_each(|table_id| out.extend_from_slice(&table_id.to_le_bytes()));
        out.extend_from_slice(&count(self.dictionaries.len()).to_le_bytes());
        for dictionary in &self.dictionaries {
            out.extend_from_slice(&count(dictionary.len()).to_le_bytes());
            out.extend_from_slice(dictionary);
        }
        encode(&self.segments, &mut out);
        out
    }

    /// `None`: these are not the bytes of a checkpoint.
    pub fn decode(bytes: &[u8]) -> Option<CheckpointIndex> {
        let mut input = Input(bytes);
        let format = input.u32()?;
        if !(1..=FORMAT).contains(&format) {
            return None;
        }
        let secret = [input.u64()?, input.u64()?];
        let (segment_pages, paths) = (input.u32()?, input.u32()?);
        let (data_offset, next_owner, sealed) = (input.u64()?, input.u64()?, input.u64()?);
        let order = match format {
            1 => None,
            _ => {
                let (cut, from) = (input.u64()?, input.u64()?);
                let mut lost = Vec::new();
                for _ in 0..input.u32()? {
                    lost.push(input.u64()?..input.u64()?);
                }
                Some(Order { cut, from, lost }).filter(|order| order.cut > 0)
            }
        };
        let table_ids = (0..input.u32()?).map(|_| input.u32()).collect::<Option<Vec<_>>>()?;
        let mut dictionaries = Vec::new();
        for _ in 0..input.u32()? {
            let bytes = input.u32()?;
            dictionaries.push(input.bytes(bytes as usize)?.to_vec());
        }
        if segment_pages == 0 || segment_pages > SEGMENT_PAGES_MAX || paths == 0 || paths > PATHS_MAX {
            return None;
        }
        if table_ids.len() > DATABASES_MAX {
            return None;
        }
        let segments = decode(&mut input, segment_pages)?;
        let mut sorted = table_ids.clone();
        sorted.sort_unstable();
        let is_valid = input.0.is_empty()
            && sorted.iter().zip(0..).all(|(&table_id, number)| table_id == number)
            && segments.len() as u64 * u64::from(segment_pages) <= 1 << PAGE_BITS;
        let checkpoint = CheckpointIndex {
            secret,
            segment_pages,
            paths,
            data_offset,
            table_ids,
            next_owner,
            sealed,
            order,
            dictionaries,
            segments,
        };
        is_valid.then_some(checkpoint)
    }

    /// The layout of the log.
    pub fn layout(&self, codec: Codec) -> FlashConfig {
        FlashConfig {
            paths: self.paths,
            data_offset: self.data_offset,
            segment_bytes: u64::from(self.segment_pages) * PAGE_BYTES as u64,
            segments: self.segments_saved(),
            codec,
        }
    }

    /// What is needed to find the values again if the index is lost: this table without the secret and without the
    /// segments.
    ///
    /// ```text
    /// | the log's number in its pages, u32 | a checkpoint |
    /// ```
    pub fn essentials(&self) -> Vec<u8> {
        let mut out = log_id(self.secret).to_le_bytes().to_vec();
        out.extend_from_slice(&CheckpointIndex { secret: [0; 2], segments: Vec::new(), ..self.clone() }.encode());
        out
    }

    /// What [`CheckpointIndex::essentials`] wrote.
    pub(crate) fn from_essentials(bytes: &[u8]) -> Option<(u32, CheckpointIndex)> {
        let (number, checkpoint) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*number), CheckpointIndex::decode(checkpoint)?))
    }

    /// The secret of the keys' hashes.
    pub fn secret(&self) -> [u64; 2] {
        self.secret
    }

    /// The table id of each logical database.
    pub fn table_ids(&self) -> &[u32] {
        &self.table_ids
    }

    /// The number of logical databases.
    pub fn databases(&self) -> usize {
        self.table_ids.len()
    }

    /// How many segments the log had.
    pub(crate) fn segments_saved(&self) -> u32 {
        count(self.segments.len())
    }

    /// How many segments a log with this layout has. There may be more than a log can address, which [`CheckpointIndex::log`] leaves
    /// out.
    pub(crate) fn segments_in(&self, paths: usize, bytes_per_path: u64) -> Option<u32> {
        let segment_bytes = u64::from(self.segment_pages) * PAGE_BYTES as u64;
        let segments = || bytes_per_path / segment_bytes * u64::from(self.paths);
        (paths == self.paths as usize).then(|| u32::try_from(segments()).unwrap_or(u32::MAX))
    }

    /// A log with this layout and this number of segments.
    pub(crate) fn log(&self, segments: u32, log_id: u32) -> Segments {
        Segments::new(segments, self.segment_pages, self.paths, self.data_offset, log_id)
    }

    /// Removes the segments that lie behind this length of the files. They were emptied before the log became smaller;
    /// an entry that names one of them is refused ([`Adding::add`]).
    pub fn fit(&mut self, bytes_per_path: u64) {
        let segment_bytes = u64::from(self.segment_pages) * PAGE_BYTES as u64;
        self.segments.truncate(to_usize(bytes_per_path / segment_bytes * u64::from(self.paths)));
    }

    /// Enters the settings with which the store must be made. An error says which setting does not suit the dataset.
    pub fn configure(&self, config: &mut StoreConfig) -> Result<(), String> {
        let is_moved = |(db, &table_id): (usize, &u32)| table_id as usize != db;
        if self.table_ids.len() > config.databases
            && self.table_ids.iter().enumerate().skip(config.databases).any(is_moved)
        {
            return Err(format!(
                "the dataset has {} logical databases that were swapped: set databases to that",
                self.table_ids.len()
            ));
        }
        config.secret = self.secret;
        Ok(())
    }
}

/// Encodes a key whose value is in parts. The parts stay where they are on flash. Integers are little-endian.
///
/// ```text
/// | kind u8 | has an expiry u8 | expiry u64 | key bytes u32 | key | skeleton, see `value::skeleton` |
/// ```
pub(crate) fn save_parts(object: ObjectRef<'_>) -> Vec<u8> {
    let (key, expiry) = (object.key(), object.expiry());
    let mut out = vec![object.kind() as u8, expiry.is_some().into()];
    out.extend_from_slice(&expiry.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&count(key.len()).to_le_bytes());
    out.extend_from_slice(key);
    object.boxed().expect("it is in parts").encode_skeleton(&mut out);
    out
}

/// Decodes what [`save_parts`] wrote: the key, its expiry, the number of its value, and the value.
pub(crate) fn load_parts(bytes: &[u8]) -> Option<(&[u8], Option<u64>, u64, Boxed)> {
    let mut input = Input(bytes);
    let kind = Kind::from_u8(input.u8()?)?;
    let has_expiry = input.u8()? != 0;
    let expiry = Some(input.u64()?).filter(|_| has_expiry);
    let key_bytes = input.u32()?;
    let key = input.bytes(key_bytes as usize)?;
    let (id, value) = Boxed::decode_skeleton(kind, input.0).ok()?;
    Some((key, expiry, id, value))
}

/// The key of a value in parts, as a checkpoint handed it out.
pub fn key_in_parts(saved: &[u8]) -> Option<&[u8]> {
    load_parts(saved).map(|(key, ..)| key)
}

/// A store that is being restored: its entries are being added.
pub struct Restoring {
    pub(crate) store: Arc<Store>,
    named: NamedPages,
    entries: AtomicU64,
}

/// One thread's share of the restoring. When it is dropped, its entries are counted in the segments.
pub struct Adding<'r> {
    restoring: &'r Restoring,
    tally: Tally,
}

/// An entry does not suit the checkpoint, or the store.
#[derive(Debug)]
pub struct Unsuitable(pub &'static str);

impl Store {
    /// Makes the table that is needed to find all values on flash again. All entries of the checkpoint must have been
    /// taken from the index before this call, so that the table contains their segments. `dbs`: the logical database of
    /// each table id at the cut. `cut`: see [`Order`]. `is_ordered`: all records that entries name have sequence
    /// numbers below `cut`.
    pub(crate) fn checkpoint(&self, dbs: &[usize], cut: u64, is_ordered: bool) -> CheckpointIndex {
        let mut table_ids = vec![0; dbs.len()];
        dbs.iter().zip(0..).for_each(|(&db, table_id)| table_ids[db] = table_id);
        // Take the segments before the number of the next owner: a part of a later owner is then in a unit that the
        // table does not contain.
        let segments = self.segments.saved();
        let flash = &self.segments;
        CheckpointIndex {
            secret: self.secret,
            segment_pages: flash.segment_pages,
            paths: flash.paths,
            data_offset: flash.data_offset(),
            table_ids,
            next_owner: self.owners.next(),
            sealed: flash.sealed_count(),
            order: Some(self.sequence.order(cut, is_ordered)),
            dictionaries: self.compression.saved(),
            segments,
        }
    }

    /// Begins to bring the values of a checkpoint back. The store is new and was made with the checkpoint's layout and secret. No
    /// lane runs. `random` differs at each start.
    pub fn restore(
        self: &Arc<Store>,
        checkpoint: &CheckpointIndex,
        random: u32,
        now_ms: u64,
    ) -> Result<Restoring, Unsuitable> {
        if !self.compression.restore(&checkpoint.dictionaries) {
            return Err(Unsuitable("a dictionary is damaged"));
        }
        self.stripes.set_uids(&checkpoint.table_ids);
        self.owners.set_next(checkpoint.next_owner);
        self.sequence.go_on(checkpoint.order.as_ref(), now_ms);
        let jump = 2 + random % (1 << 16);
        let named = self.segments.restore(&checkpoint.segments, checkpoint.sealed, jump);
        self.set_quarantine(true);
        Ok(Restoring { store: Arc::clone(self), named, entries: AtomicU64::new(0) })
    }
}

impl Restoring {
    /// Makes the adder of one thread.
    pub fn adding(&self) -> Adding<'_> {
        Adding { restoring: self, tally: self.store.segments.tally() }
    }

    /// Adds a key whose value is in parts. Threads may do so at the same time.
    pub fn add_parts(&self, stripe: u16, table_id: u16, saved: &[u8], now_ms: u64) -> Result<(), Unsuitable> {
        let store = &*self.store;
        self.check_home(stripe, table_id)?;
        let (name, expiry, id, mut value) = load_parts(saved).ok_or(Unsuitable("a large collection is damaged"))?;
        let hash = store.hasher.hash(name);
        let mut is_valid = hash.stripe() == usize::from(stripe) && id < store.owners.next();
        value.copies(&mut |place| is_valid &= store.segments.is_restorable(place_of_number(place)));
        if !is_valid || store.owners.get(id).is_some() {
            return Err(Unsuitable("a large collection has moved, or names a position on flash that is not in use"));
        }
        value.copies(&mut |place| store.segments.reborn(place_of_number(place), &self.named));
        store.adopt(id, &mut value, hash, table_id.into());
        let clock = clock_at(now_ms);
        let parts = Parts { key: name, kind: value.kind(), raw: false, expiry, place: None, clock, stripe };
        let object = Object::new_boxed(&store.arena, &parts, value);
        let deadline = object.view().next_deadline();
        let mut guard = store.stripe(stripe.into());
        let database = guard.database_mut(table_id.into());
        database.table.insert(hash.high, OwnedWord::hot(hash, object, 0, expiry.is_some(), true));
        database.hot += 1;
        database.expires += usize::from(expiry.is_some());
        // Note the deadline after the key is in the table: the note of a key that is not there may be dropped at once.
        database.note_deadline(store, hash.high, deadline);
        self.entries.fetch_add(1, Relaxed);
        Ok(())
    }

    fn check_home(&self, stripe: u16, table_id: u16) -> Result<(), Unsuitable> {
        if usize::from(stripe) >= STRIPES || u32::from(table_id) == PARTS_UID {
            return Err(Unsuitable("an entry belongs to no stripe"));
        }
        if usize::from(table_id) >= self.store.databases() {
            return Err(Unsuitable("it has keys in a logical database that does not exist here: raise databases"));
        }
        Ok(())
    }

    /// How many entries were added.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Must be called after all entries were added. The store may be used then.
    pub fn finish(self) {
        self.store.segments.restored(&self.named, false);
    }

    /// As [`Restoring::finish`], but an older checkpoint may still name records in segments that no entry of this one names. These are
    /// free when [`Store::checkpoint_durable`] is called with the returned cut, or a later one.
    pub fn finish_holding(self) -> u64 {
        self.store.segments.restored(&self.named, true);
        self.store.checkpoint_cut()
    }
}

impl Adding<'_> {
    /// Adds entries.
    pub fn add(&mut self, stripe: u16, table_id: u16, pairs: &[(u64, u64)]) -> Result<(), Unsuitable> {
        let Adding { restoring, tally } = self;
        let store = &*restoring.store;
        restoring.check_home(stripe, table_id)?;
        let mut guard = store.stripe(stripe.into());
        let database = guard.database_mut(table_id.into());
        for &(_, word) in pairs {
            let word = Word(word);
            let is_valid = !word.is_hot()
                && Kind::from_u8((word.0 >> 3 & 7) as u8).is_some()
                && store.segments.tally_reborn(word.place(), &restoring.named, tally);
            if !is_valid {
                return Err(Unsuitable("an entry names a position on flash that is not in use"));
            }
            database.expires += usize::from(word.has_expiry());
        }
        database.table.insert_cold(pairs);
        drop(guard);
        store.cold.fetch_add(pairs.len() as u64, Relaxed);
        restoring.entries.fetch_add(pairs.len() as u64, Relaxed);
        Ok(())
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        self.restoring.store.segments.count_tally(&self.tally);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> CheckpointIndex {
        CheckpointIndex {
            secret: [1, 2],
            segment_pages: 64,
            paths: 3,
            data_offset: 4,
            table_ids: vec![1, 0],
            next_owner: 5,
            sealed: 6,
            order: Some(Order { cut: 7, from: 8, lost: std::iter::once(1..2).collect() }),
            dictionaries: vec![b"dictionary".to_vec()],
            segments: vec![SavedSegment { generation: 9, content: None }],
        }
    }

    const FORMAT_1: &str = "01000000 0100000000000000 0200000000000000 40000000 03000000 0400000000000000 0500000000000000 \
        0600000000000000 02000000 01000000 00000000 01000000 0a000000 64696374696f6e617279 01000000 09000000 00";

    /// Bytes written once are read for ever.
    #[test]
    fn the_formats_are_frozen() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            digits.chunks(2).map(byte).collect()
        };
        let before = CheckpointIndex { order: None, ..some() };
        assert_eq!(CheckpointIndex::decode(&bytes(FORMAT_1)), Some(before.clone()));
        let with_order = FORMAT_1.replacen("01", "02", 1);
        let (front, behind) = with_order.split_at(with_order.rfind("02000000 01000000").unwrap());
        let format_2 = bytes(&format!(
            "{front}0700000000000000 0800000000000000 01000000 0100000000000000 0200000000000000 {behind}"
        ));
        assert_eq!(some().encode(), format_2);
        assert_eq!(CheckpointIndex::decode(&format_2), Some(some()));
        // A dataset of an earlier release that was opened and not yet written again.
        assert_eq!(CheckpointIndex::decode(&before.encode()), Some(before));
        assert_eq!(CheckpointIndex::decode(&[&[3], &format_2[1..]].concat()), None, "a newer format");
        for cut in 0..format_2.len() {
            assert_eq!(CheckpointIndex::decode(&format_2[..cut]), None, "cut at {cut}");
        }
    }

    /// Numbers that the bytes have room for and the store has not: they were cut off later, and named another path or database.
    #[test]
    fn numbers_that_the_store_cannot_hold_are_refused() {
        let decoded = |checkpoint: &CheckpointIndex| CheckpointIndex::decode(&checkpoint.encode()).is_some();
        for (paths, is_valid) in [(0, false), (65_536, true), (65_537, false), (u32::MAX, false)] {
            assert_eq!(decoded(&CheckpointIndex { paths, ..some() }), is_valid, "{paths} paths");
        }
        for (databases, is_valid) in [(65_536, true), (65_537, false)] {
            let table_ids = (0..databases).collect();
            assert_eq!(decoded(&CheckpointIndex { table_ids, ..some() }), is_valid, "{databases} databases");
        }
    }

    /// A sparse file may be of any length. A log of as many segments as an index can address is searched then, not of the few that the
    /// lower bits of their number told.
    #[test]
    fn a_file_of_any_length_has_no_fewer_segments() {
        let segment_bytes = 64 * PAGE_BYTES as u64;
        let segments = |bytes_per_path| some().segments_in(3, bytes_per_path);
        assert_eq!(segments(5 * segment_bytes + 1), Some(15));
        assert_eq!(segments((1 << 32) * segment_bytes), Some(u32::MAX));
        assert_eq!(segments(i64::MAX as u64), Some(u32::MAX));
        assert_eq!(some().segments_in(2, segment_bytes), None, "another number of paths");
    }

    #[test]
    fn the_essentials_have_no_secret() {
        let essentials = some().essentials();
        let (number, read) = CheckpointIndex::from_essentials(&essentials).unwrap();
        assert_eq!(number, log_id([1, 2]));
        assert_eq!(read, CheckpointIndex { secret: [0; 2], segments: vec![], ..some() });
    }
}
