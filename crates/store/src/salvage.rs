//! Owns the search on flash for keys whose entries in a checkpoint's index are damaged. It reads the segments that the
//! checkpoint knows, and chooses for each key the record that was its value at the cut. Never knows a file.
//!
//! A segment that an entry may name is not written again before the next checkpoint, so the record of every key whose
//! value was on flash is still there. Of the records of one key that were copied before the cut, the one with the
//! highest sequence number is the newest. But flash does not record that a key was deleted. Only the remains of a
//! damaged entry prove that the key existed at the cut, if they still name the key's hash or its place.
//!
//! The search also finds out which values that entries name cannot be read.

use crate::checkpoint_index::{CheckpointIndex, Restoring, key_in_parts, load_parts};
use crate::keyspace::{Value, direct};
use crate::log::compression::ZSTD_LEVEL;
use crate::log::fill::place_of;
use crate::log::page::{Corrupt, Dictionary, Page, Record, Scratch, Stamp, scan};
use crate::log::parts::place_of_number;
use crate::log::read::ReadError;
use crate::log::record_kind::RecordKind;
use crate::log::segment::{SavedSegment, Segments};
use crate::log::sequence::Order;
use crate::mem::hash::{Hasher, KeyHash, STRIPES, first_slot};
use crate::mem::word::Word;
use crate::store::log_id;
use flash::io::PAGE_BYTES;
use smallvec::SmallVec;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;
use value::{Boxed, Kind};

/// A table id, and the upper half of a key's hash.
type Name = (u16, u64);

/// A word of a damaged entry, and its table id if that is known.
type Named = (u64, Option<u16>);

/// For each stripe and table id: the hashes and words of its entries.
pub type Entries = Vec<(u16, u16, Vec<(u64, u64)>)>;

/// Called with the logical database of a key, the key, its expiry, and its value.
pub type Show<'s, E> = dyn FnMut(u64, &[u8], Option<u64>, Value<'_>) -> Result<(), E> + 's;

/// A segment to be read.
#[derive(Clone, Copy, Debug)]
pub struct SegmentAt {
    pub number: u32,
    pub path: u16,
    pub offset: u64,
    pub bytes: u64,
}

/// Finds keys again. The order of the calls: first the `know_` methods and [`Salvage::name`], then [`Salvage::read`]
/// for each segment, then [`Salvage::finish`].
pub struct Salvage {
    log: Segments,
    /// What the checkpoint says of the segments. `Err`: this table is lost, so each page must itself say which page it
    /// is; the error is the log's number.
    saved: Result<Vec<SavedSegment>, u32>,
    hasher: Hasher,
    dictionaries: Vec<Arc<Dictionary>>,
    table_ids: Vec<u32>,
    order: Option<Order>,
    /// The stripes and table ids whose keys are wanted. `None`: all.
    wanted: Option<HashSet<(u16, u16)>>,
    known: HashSet<Name>,
    /// The words of damaged entries, each with its table id if that is known, by the hash that stands before the word.
    /// Several databases may have a key with this hash.
    named: HashMap<u64, SmallVec<[Named; 1]>>,
    best: HashMap<Name, Best>,
    /// The keys whose values were in parts, and those of them whose entries are sound.
    large: HashMap<Name, Vec<u8>>,
    is_whole: HashSet<Name>,
    /// Keys that were left out, because their last version is not known.
    doubtful: HashSet<Name>,
    damaged_pages: u64,
    scratch: Scratch,
}

/// The newest record of a key that was found so far.
struct Best {
    stripe: u16,
    word: Word,
    seq: u64,
    expiry: Option<u64>,
    /// A hash of value, kind and expiry: equal records have equal hashes.
    content: u64,
    /// A damaged entry names the key and this place.
    is_named: bool,
    /// Another record may be newer: the sequence numbers do not tell.
    has_rival: bool,
}

impl Best {
    /// Compares this record with another one of the same key, which was found behind it, and keeps the newer. Sequence
    /// numbers below `ordered_from` do not tell which is newer, but a damaged entry that names one of the places does.
    fn meet(&mut self, found: Best, ordered_from: u64) {
        let rank = |best: &Best| (if best.seq >= ordered_from { best.seq } else { 0 }, best.is_named, best.seq);
        // Within a page, and so within a unit, the later record is the later version.
        let is_later = rank(&found) >= rank(self);
        let is_told = self.word.place().page == found.word.place().page || self.content == found.content;
        let had_rival = self.has_rival;
        if is_later {
            *self = found;
        }
        self.has_rival = self.seq < ordered_from && (had_rival || !is_told);
    }
}

type EachPage<'e> = dyn FnMut(&mut Salvage, &Page<'_>, u32, &mut Scratch) -> Result<(), Corrupt> + 'e;

/// Number of damaged pages: 1 if this page is damaged, else 0. A stale or empty page does not count: it was being
/// written when the node was killed, or was written again after the checkpoint, and no entry names it.
fn damage(page: Result<(), Corrupt>) -> u64 {
    match page {
        Ok(()) | Err(Corrupt::Stale | Corrupt::Empty) => 0,
        Err(_) => 1,
    }
}

/// The result of a salvage.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Keys that a damaged entry names.
    pub named: u64,
    /// Keys that no damaged entry names: these keys existed once, but may have been deleted before the cut.
    pub unnamed: u64,
    /// Keys that are left out, because their last version is not known, or cannot be read.
    pub doubtful: u64,
    /// Pages that cannot be read.
    pub damaged_pages: u64,
    /// Keys whose values were in parts, and cannot be put together: the logical database and the name.
    pub large: Vec<(u64, Vec<u8>)>,
}

impl Salvage {
    /// `wanted`: the stripes and table ids whose keys are looked for; `None`: all. An error says what is damaged.
    pub fn new(checkpoint: &CheckpointIndex, wanted: Option<HashSet<(u16, u16)>>) -> Result<Salvage, &'static str> {
        let saved = &checkpoint.segments;
        let log = checkpoint.log(checkpoint.segments_saved(), log_id(checkpoint.secret));
        // Restores the generations of the segments, against which pages are checked.
        log.restore(saved, 0, 0);
        Salvage::of(checkpoint, log, Ok(saved.clone()), checkpoint.secret, wanted)
    }

    /// For a log whose table of segments is lost, so that only [`CheckpointIndex::essentials`] is left. The log has
    /// this number of paths, each with this number of bytes. `secret` is random.
    pub fn without_table(
        essentials: &[u8],
        (paths, bytes_per_path): (usize, u64),
        secret: [u64; 2],
    ) -> Result<Salvage, &'static str> {
        let (log_id, checkpoint) =
            CheckpointIndex::from_essentials(essentials).ok_or("its description of the flash is invalid")?;
        let segments = checkpoint.segments_in(paths, bytes_per_path).ok_or("it had another number of flash paths")?;
        Salvage::of(&checkpoint, checkpoint.log(segments, log_id), Err(log_id), secret, None)
    }

    fn of(
        checkpoint: &CheckpointIndex,
        log: Segments,
        saved: Result<Vec<SavedSegment>, u32>,
        secret: [u64; 2],
        wanted: Option<HashSet<(u16, u16)>>,
    ) -> Result<Salvage, &'static str> {
        let dictionaries = checkpoint.dictionaries.iter();
        let dictionaries = dictionaries.map(|bytes| Dictionary::deserialize(bytes, ZSTD_LEVEL).map(Arc::new));
        Ok(Salvage {
            log,
            saved,
            hasher: Hasher::new(secret),
            dictionaries: dictionaries.collect::<Option<_>>().ok_or("a dictionary is damaged")?,
            table_ids: checkpoint.table_ids.clone(),
            order: checkpoint.order.clone(),
            wanted,
            known: HashSet::new(),
            named: HashMap::new(),
            best: HashMap::new(),
            large: HashMap::new(),
            is_whole: HashSet::new(),
            doubtful: HashSet::new(),
            damaged_pages: 0,
            scratch: Scratch::new(),
        })
    }

    /// Notes a sound entry of the index: its key need not be found again.
    pub fn know_entry(&mut self, stripe: u16, table_id: u16, high: u64) {
        if self.wants(stripe, table_id) {
            self.known.insert((table_id, high));
        }
    }

    /// Notes the sound entry of a value in parts, in the bytes that a checkpoint handed out.
    pub fn know_parts(&mut self, stripe: u16, table_id: u16, saved: &[u8]) {
        let Some(key) = key_in_parts(saved) else { return };
        let high = self.hasher.hash(key).high;
        self.know_entry(stripe, table_id, high);
        self.is_whole.insert((table_id, high));
    }

    /// Notes a key whose value was in parts at the cut. It cannot be found again: parts do not name their key, and any
    /// other record of the key is older.
    pub fn know_large(&mut self, table_id: u16, key: &[u8]) {
        let hash = self.hasher.hash(key);
        if self.wants(hash.stripe_u16(), table_id) {
            self.large.insert((table_id, hash.high), key.to_vec());
        }
    }

    /// Notes a key whose value was in RAM only at the cut.
    pub fn know_key(&mut self, db: u64, key: &[u8]) {
        let hash = self.hasher.hash(key);
        if let Some(table_id) = self.table_id(db) {
            self.know_entry(hash.stripe_u16(), table_id, hash.high);
        }
    }

    /// Must be called if it is not known which values were in parts. Then only keys that a damaged entry names are
    /// found again.
    pub fn know_no_large(&mut self) {
        self.order = None;
    }

    /// Notes what may be an entry in a damaged part of the index, and its table id if the part's header names it.
    pub fn name(&mut self, high: u64, word: u64, table_id: Option<u16>) {
        self.named.entry(high).or_default().push((word, table_id));
    }

    /// The segments that entries may name.
    pub fn segments(&self) -> Vec<SegmentAt> {
        let may_have = |&number: &u32| match &self.saved {
            Ok(saved) => saved[number as usize].content.is_some(),
            Err(_) => true,
        };
        let place = |number| {
            let (path, offset) = self.log.location(number * self.log.segment_pages);
            SegmentAt { number, path, offset, bytes: self.log.segment_bytes() }
        };
        (0..self.log.count()).filter(may_have).map(place).collect()
    }

    /// Looks for records of wanted keys in a segment. `bytes` is shorter than the segment if the rest cannot be read.
    pub fn read(&mut self, segment: u32, bytes: &[u8]) {
        let mut damaged_pages = 0;
        let cut = self.order.as_ref().map_or(u64::MAX, |order| order.cut);
        self.each_page(segment, bytes, &mut damaged_pages, &mut |salvage, page, number, scratch| {
            let dictionaries = salvage.dictionaries.clone();
            let find = |id| dictionaries.iter().find(|dictionary| dictionary.id() == id).cloned();
            let taken = page.for_each(&find, scratch, &mut |record, pages| salvage.take(record, number, pages));
            // Damage in a page that was written after the cut loses nothing: of the time before the cut, such a page
            // contains only copies of records that are elsewhere too.
            if page.seq() >= cut { Ok(()) } else { taken }
        });
        self.damaged_pages += damaged_pages;
    }

    /// Shows the values that were found in a segment: the logical database, the key, its expiry, and the value. After [`Salvage::finish`].
    pub fn show<E: From<Corrupt>>(&mut self, segment: u32, bytes: &[u8], show: &mut Show<'_, E>) -> Result<(), E> {
        let mut shown = Ok(());
        let mut damaged_pages = 0;
        self.each_page(segment, bytes, &mut damaged_pages, &mut |salvage, page, number, scratch| {
            let dictionaries = salvage.dictionaries.clone();
            let find = |id| dictionaries.iter().find(|dictionary| dictionary.id() == id).cloned();
            page.for_each(&find, scratch, &mut |record, pages| {
                let Ok(table_id) = u16::try_from(record.db) else { return };
                let hash = salvage.hasher.hash(record.key);
                let name = (table_id, hash.high);
                let place = place_of(number, pages);
                let is_it = |best: &&Best| best.seq == record.seq && best.word.place() == place;
                if shown.is_err() || salvage.best.get(&name).filter(is_it).is_none() {
                    return;
                }
                let db = salvage.db(record.db);
                let kind = RecordKind::from_byte(record.kind).expect("it was looked at");
                shown = match kind.boxed || kind.kind == Kind::Stream {
                    false => show(db, record.key, record.expiry_ms, Value::Inline(kind.kind, record.value)),
                    true => match Boxed::decode(kind.kind, record.value) {
                        Ok(value) => show(db, record.key, record.expiry_ms, Value::Boxed(&value)),
                        Err(_) => Err(Corrupt::Lengths.into()),
                    },
                };
            })
        });
        shown
    }

    /// Calls `each` with the pages of a segment that are whole, and their numbers.
    fn each_page(&mut self, segment: u32, bytes: &[u8], damaged_pages: &mut u64, each: &mut EachPage<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let first = segment * self.log.segment_pages;
        match &self.saved {
            Ok(saved) => {
                let units = saved[segment as usize].content.as_ref().map(|content| content.units.clone());
                for (unit, pages) in units.into_iter().flatten() {
                    let from = usize::from(unit) * PAGE_BYTES;
                    let to = (from + usize::from(pages) * PAGE_BYTES).min(bytes.len());
                    let there = bytes.get(from..to).unwrap_or_default();
                    *damaged_pages += u64::from(pages) - (there.len() / PAGE_BYTES) as u64;
                    let first = first + u32::from(unit);
                    for (at, page) in scan(there, self.log.stamp(first)) {
                        *damaged_pages += damage(page.and_then(|page| each(self, &page, first + at, &mut scratch)));
                    }
                }
            }
            &Err(log) => {
                for (number, page) in (0..=u16::MAX).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                    let stamp = Stamp { log, number, ..Stamp::of(page) };
                    let page = Page::open(&bytes[usize::from(number) * PAGE_BYTES..], stamp);
                    let at = first + u32::from(number);
                    *damaged_pages += damage(page.and_then(|page| each(self, &page, at, &mut scratch)));
                }
            }
        }
        self.scratch = scratch;
    }

    fn take(&mut self, record: &Record<'_>, page: u32, pages: usize) {
        let Some(kind) = RecordKind::from_byte(record.kind) else { return };
        if self.order.as_ref().is_some_and(|order| !order.counts(record.seq)) {
            return;
        }
        if kind.part {
            return;
        }
        let hash = self.hasher.hash(record.key);
        let stripe = hash.stripe_u16();
        let Some(table_id) =
            u16::try_from(record.db).ok().filter(|&table_id| usize::from(table_id) < self.table_ids.len())
        else {
            return;
        };
        let name = (table_id, hash.high);
        if !self.wants(stripe, table_id) || self.known.contains(&name) || self.large.contains_key(&name) {
            return;
        }
        let place = place_of(page, pages);
        let names = |&(word, of): &Named| {
            !Word(word).is_hot() && Word(word).place() == place && of.is_none_or(|of| of == table_id)
        };
        let is_named = self.named.get(&hash.high).is_some_and(|words| words.iter().any(names));
        let mut content = DefaultHasher::new();
        (record.value, record.kind, record.expiry_ms).hash(&mut content);
        let found = Best {
            stripe,
            word: Word::cold(hash, place, kind.kind, record.expiry_ms.is_some(), false),
            seq: record.seq,
            expiry: record.expiry_ms,
            content: content.finish(),
            is_named,
            has_rival: false,
        };
        let ordered_from = self.order.as_ref().map_or(u64::MAX, |order| order.from);
        match self.best.entry(name) {
            Entry::Vacant(empty) => _ = empty.insert(found),
            Entry::Occupied(mut best) => best.get_mut().meet(found, ordered_from),
        }
    }

    /// The logical database with this number in the index.
    fn db(&self, table_id: u32) -> u64 {
        self.table_ids.iter().position(|&of| of == table_id).unwrap_or(table_id as usize) as u64
    }

    /// The number in the index of this logical database. `None`: the dataset has no such database.
    fn table_id(&self, db: u64) -> Option<u16> {
        let table_id = usize::try_from(db).ok().and_then(|db| self.table_ids.get(db))?;
        u16::try_from(*table_id).ok()
    }

    fn wants(&self, stripe: u16, table_id: u16) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&(stripe, table_id)))
    }

    /// Whether a damaged entry names this key and its newest record.
    pub fn is_named(&self, table_id: u16, high: u64) -> bool {
        self.best.get(&(table_id, high)).is_some_and(|best| best.is_named)
    }

    /// For the keys of a stripe and a table id that no damaged entry names: the hash, and the two words that the key's
    /// entry may have had. The second word has the reference bit, which a checkpoint sets if the value was in RAM too.
    pub fn unnamed_in(&self, stripe: u16, table_id: u16) -> Vec<(u64, [u64; 2])> {
        let is_there = |((of, _), best): &(&Name, &Best)| *of == table_id && best.stripe == stripe && !best.is_named;
        let entry =
            |(&(_, high), best): (&Name, &Best)| (high, [false, true].map(|is| best.word.with_referenced(is).0));
        self.best.iter().filter(is_there).map(entry).collect()
    }

    /// Notes that a damaged entry names this key and its newest record after all.
    pub fn confirm(&mut self, table_id: u16, high: u64) {
        self.best.get_mut(&(table_id, high)).into_iter().for_each(|best| best.is_named = true);
    }

    /// Must be called when all segments were read. `missing`: the number of entries that the index lacks.
    pub fn finish(&mut self, missing: u64, now_ms: u64) -> Salvaged {
        let mut salvaged = Salvaged { damaged_pages: self.damaged_pages, ..Salvaged::default() };
        let has_order = self.order.is_some() && self.damaged_pages == 0;
        let all_named = self.best.values().filter(|best| best.is_named).count() as u64 >= missing;
        let Salvage { best, doubtful, .. } = self;
        best.retain(|name, best| {
            let has_expired = best.expiry.is_some_and(|expiry| expiry <= now_ms);
            if !best.is_named && (all_named || has_expired) {
                return false;
            }
            let is_sure = best.is_named || has_order && !best.has_rival;
            match (is_sure, best.is_named) {
                (false, _) => _ = doubtful.insert(*name),
                (true, true) => salvaged.named += 1,
                (true, false) => salvaged.unnamed += 1,
            }
            is_sure
        });
        salvaged.doubtful = self.doubtful.len() as u64;
        let lost = self.large.iter().filter(|(name, _)| !self.is_whole.contains(name));
        salvaged.large = lost.map(|(&(table_id, _), key)| (self.db(table_id.into()), key.clone())).collect();
        salvaged.large.sort_unstable();
        salvaged
    }

    /// Called for a key that a command after the cut changed in a way that depends on its old value. If that value is
    /// not certain, removes the key. Returns whether it is not certain: the key may have been deleted before the cut,
    /// or its value is not known. To be called after [`Salvage::finish`].
    pub fn leave_out(&mut self, db: u64, key: &[u8]) -> bool {
        let Some(table_id) = self.table_id(db) else { return false };
        let name = (table_id, self.hasher.hash(key).high);
        let is_unnamed = self.best.get(&name).is_some_and(|best| !best.is_named);
        if is_unnamed {
            self.best.remove(&name);
        }
        let is_lost = self.large.contains_key(&name) && !self.is_whole.contains(&name);
        is_unnamed || is_lost || self.doubtful.contains(&name)
    }

    /// For each stripe and table id: the hashes and words of the entries that were found, as a checkpoint hands them out.
    pub fn entries(&self) -> Entries {
        let mut entries: BTreeMap<(u16, u16), Vec<(u64, u64)>> = BTreeMap::new();
        for (&(table_id, high), best) in &self.best {
            entries.entry((best.stripe, table_id)).or_default().push((high, best.word.0));
        }
        let sorted = |((stripe, table_id), mut pairs): (_, Vec<_>)| {
            pairs.sort_unstable();
            (stripe, table_id, pairs)
        };
        entries.into_iter().map(sorted).collect()
    }
}

impl Restoring {
    /// Tries to read the record of an entry. The entry need not be added.
    pub fn try_entry(&self, stripe: u16, table_id: u16, (high, word): (u64, u64)) -> Result<(), ReadError> {
        let word = Word(word);
        let is_outside = word.is_hot() || u64::from(word.place().page) >= self.store.segments.pages();
        if is_outside || usize::from(stripe) >= STRIPES {
            return Err(ReadError::Missing);
        }
        let slot = first_slot(stripe.into());
        direct::name(&self.store, KeyHash { high, low: word.0, slot }, table_id.into(), word).map(drop)
    }

    /// Like [`Restoring::try_entry`], for a value in parts: its key, and whether all parts can be read. `None`: the
    /// bytes are no value in parts.
    pub fn try_parts<'s>(&self, saved: &'s [u8]) -> Option<(&'s [u8], Result<(), ReadError>)> {
        let (name, _, id, value) = load_parts(saved)?;
        let mut absent = value::Absent::new();
        value.absent(&mut absent);
        let kind = value.kind();
        let is_there = |part: &value::AbsentPart| {
            let page = place_of_number(part.place).page;
            u64::from(page) < self.store.segments.pages()
        };
        let read = absent.into_iter().try_for_each(|part| match is_there(&part) {
            true => direct::try_part(&self.store, kind, id, part),
            false => Err(ReadError::Missing),
        });
        Some((name, read))
    }
}
