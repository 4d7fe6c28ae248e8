//! Owns the sweep over the index that finds what leaves RAM. Never writes to flash itself.
//!
//! Every access adds to an entry's frequency (0 to 3); the hand takes one off as it passes, and what it finds
//! at zero is a victim (generalised CLOCK). A new key begins at zero and so is on probation, as in S3-FIFO; a value
//! read from flash stays only at its second touch when RAM is full, which the cold entry's reference bit remembers.

use crate::arena::{CELL_BYTES_MAX, Cells};
use crate::commit::Leave;
use crate::counters::Counter;
use crate::fill::write_number;
use crate::hash::{KeyHash, STRIPES};
use crate::index::Slot;
use crate::object::Object;
use crate::parts::PartName;
use crate::store::{Store, Stripe};
use crate::word::Word;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use value::{Boxed, Fate, Kind};

/// Where a sweep stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hand {
    stripe: usize,
    uid: u32,
    high: u64,
    /// Of the value at `high`, when that moves in parts.
    parts: PartsHand,
    /// Leaves whose victims go alone, because what lay near the last one was in use.
    alone: u32,
}

/// Where a sweep over a value's parts stands.
#[derive(Clone, Copy, Debug, Default)]
struct PartsHand {
    from: u64,
    /// Something left, or is being written, since the first part.
    found: bool,
    /// All were in use when this began anew: in the round over everything else they would be again.
    again: bool,
}

/// Parts of one value that are looked at before others have their turn.
const PARTS_MAX: usize = 256;

/// How long a slice of upkeep waits for stripes that are locked, all together: longer than a command takes.
pub(crate) const UPKEEP_PATIENCE: Duration = Duration::from_millis(1);

/// After neighbours of which three quarters were in use, so many leaves' victims go alone.
const LEAVES_ALONE: u32 = 31;

/// A dirty value that is to be written.
pub(crate) struct Victim {
    pub hash: KeyHash,
    pub uid: u32,
    pub object: Object,
    pub has_expiry: bool,
}

/// What copies victims into the unit that is being filled: the lane. Their stripe is locked.
pub(crate) trait Writer {
    fn value(&mut self, victim: Victim) -> Verdict;
    fn part(&mut self, name: PartName, write: u32, kind: Kind, bytes: &[u8]) -> Verdict;
}

/// The lane's answer to a victim.
pub(crate) enum Verdict {
    Taken,
    /// It cannot be written at all (too large): it stays.
    Keep,
    /// No room to write: the slice ends.
    Stop,
}

pub(crate) struct Slice {
    /// Bytes of RAM freed at once.
    pub freed: usize,
    pub stopped: bool,
}

impl Hand {
    /// Goes over at most one leaf for victims. What lies near the first dirty one is put into `near`, for
    /// [`Hand::sweep_near`]; `writer` is given those that have no neighbours. Without flash neither is done, and
    /// victims are evicted by the policy.
    /// A stripe that a script keeps is skipped: see [`Store::stripe_or_skip`].
    pub fn sweep_leaf(
        &mut self,
        store: &Store,
        now_ms: u64,
        patience: &mut Duration,
        near: &mut Cells,
        writer: &mut dyn Writer,
    ) -> Slice {
        near.clear();
        let alone = self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        let mut slice = Slice { freed: 0, stopped: false };
        let Some(mut stripe) = store.stripe_or_skip(self.stripe, patience) else {
            self.next_stripe(store);
            store.tier.skip();
            return slice;
        };
        if self.uid >= stripe.uids() {
            drop(stripe);
            self.next_stripe(store);
            return slice;
        }
        let database = stripe.database_mut(self.uid);
        let slot = (self.stripe * (crate::hash::SLOTS / STRIPES)) as u16;
        let policy = store.tier.policy();
        let mut chilled = 0;
        let mut unfinished = false;
        let mut gone: Vec<u64> = Vec::new();
        let (entries, next) = database.table.leaf_at_mut(self.high);
        let resumed = std::mem::take(&mut self.parts);
        for entry in entries.iter_mut().filter(|entry| entry.high >= self.high) {
            let word = entry.word;
            if !word.is_hot() {
                entry.word = word.with_referenced(false);
                continue;
            }
            let object = Object::from_address(word.address());
            if let Some(value) = object.boxed_mut().filter(|value| word.is_dirty() && store.moves_in_parts(value)) {
                let expired = word.has_expiry() && object.expiry().is_some_and(|expiry| expiry <= now_ms);
                if expired {
                    gone.push(word.0);
                    continue;
                }
                let id = store.split(value, store.hasher.hash(object.key()), self.uid);
                let mut hand = if entry.high == self.high { resumed } else { PartsHand::default() };
                let swept = sweep_parts(store, id, value, hand.from, false, writer);
                object.account(&store.arena);
                slice.freed += swept.freed;
                slice.stopped = swept.stopped;
                if swept.written || swept.freed > 0 {
                    hand.found = true;
                    store.tier.progress();
                }
                let goes_on = match swept.next {
                    Some(next) => Some(PartsHand { from: next, ..hand }),
                    None if !hand.found && !hand.again => Some(PartsHand { again: true, ..PartsHand::default() }),
                    None => None,
                };
                if let Some(hand) = goes_on {
                    (self.high, self.parts) = (entry.high, hand);
                    unfinished = true;
                    break;
                }
                continue;
            }
            if word.frequency() > 0 {
                entry.word = word.with_frequency(word.frequency() - 1);
                continue;
            }
            if object.is_writing() {
                continue;
            }
            if word.has_expiry() && object.expiry().is_some_and(|expiry| expiry <= now_ms) {
                gone.push(word.0);
                continue;
            }
            let bytes = object.ram_bytes();
            if !word.is_dirty() {
                entry.word = Word(object.place().expect("a clean object knows its place"));
                chilled += 1;
                slice.freed += bytes;
                if let Some(value) = object.free(&store.arena) {
                    store.bury(value);
                }
                continue;
            }
            if !store.has_flash() {
                if policy.evicts(word.has_expiry()) {
                    gone.push(word.0);
                    slice.freed += bytes;
                }
                continue;
            }
            if near.is_empty() && !alone {
                object.neighbours(&store.arena, near);
            }
            if crate::arena::rounded(object.bytes()) <= CELL_BYTES_MAX && !near.is_empty() {
                // It goes with its neighbours, or with those of another victim, in the order of their addresses.
                continue;
            }
            let hash = store.hasher.hash(object.key());
            debug_assert_eq!(hash.slot / 16, slot / 16);
            match writer.value(Victim { hash, uid: self.uid, object, has_expiry: word.has_expiry() }) {
                Verdict::Taken => store.tier.progress(),
                Verdict::Keep => entry.word = word.with_frequency(crate::word::FREQUENCY_MAX),
                Verdict::Stop => {
                    slice.stopped = true;
                    break;
                }
            }
        }
        if chilled > 0 {
            database.hot -= chilled;
            store.cold.fetch_add(chilled as u64, Relaxed);
            store.counters.add(Counter::DemotionsClean, chilled as u64);
        }
        for word in gone {
            let high = store.hasher.hash(Object::from_address(Word(word).address()).key()).high;
            let slot = database.table.find(high, |found| found.0 == word).expect("seen under this lock");
            if Object::from_address(Word(word).address()).expiry().is_some_and(|expiry| expiry <= now_ms) {
                store.commit_leave(Leave::expired(self.uid, None, now_ms), database, slot, None);
            } else {
                store.commit_leave(Leave::evicted(self.uid, None, now_ms), database, slot, None);
            }
        }
        if slice.freed > 0 {
            store.tier.progress();
        }
        if !slice.stopped && !unfinished {
            match next {
                Some(high) => self.high = high,
                None => (self.uid, self.high) = (self.uid + 1, 0),
            }
        }
        slice
    }

    /// Sends to flash what lies near a victim of the last leaf and was not used either. Objects made one after the other
    /// lie one after the other: they belong together more often than those whose hashes do, so their pages
    /// compress better, and their slab is freed as a whole.
    pub fn sweep_near(&mut self, store: &Store, near: &Cells, writer: &mut dyn Writer) -> Slice {
        let mut slice = Slice { freed: 0, stopped: false };
        let (mut chilled, mut written, mut used) = (0, 0, 0);
        let mut patience = UPKEEP_PATIENCE;
        for &(cell, of) in near {
            let Some(mut stripe) = store.stripe_or_skip(of.into(), &mut patience) else { continue };
            // What a flush has taken out of its stripe is freed without the stripe's lock.
            if store.emptying.load(Relaxed) > 0 {
                break;
            }
            if !store.arena.belongs(cell, of) {
                continue;
            }
            let object = Object::in_cell(cell);
            if object.is_writing() {
                continue;
            }
            let Some((hash, uid, slot)) = entry_of(store, &stripe, object) else { continue };
            let database = stripe.database_mut(uid);
            let word = database.table.word(slot);
            if word.frequency() > 0 {
                used += 1;
                continue;
            }
            if word.is_dirty() && object.boxed().is_some_and(|value| store.moves_in_parts(value)) {
                continue;
            }
            if !word.is_dirty() {
                slice.freed += object.ram_bytes();
                database.chill(store, slot, Word(object.place().expect("a clean object knows its place")));
                chilled += 1;
                continue;
            }
            match writer.value(Victim { hash, uid, object, has_expiry: word.has_expiry() }) {
                Verdict::Taken => written += 1,
                Verdict::Keep => *database.table.word_mut(slot) = word.with_frequency(crate::word::FREQUENCY_MAX),
                Verdict::Stop => {
                    slice.stopped = true;
                    break;
                }
            }
        }
        let gone = chilled + written;
        if gone > 0 {
            store.tier.progress();
            store.counters.add(Counter::DemotionsClean, chilled as u64);
        }
        if used > 3 * gone {
            self.alone = LEAVES_ALONE;
        }
        slice
    }

    /// Moves objects out of a slab that is being emptied. False if some must stay for now: they are being written, or a script
    /// keeps their stripe.
    pub fn sweep_evacuated(store: &Store, cells: &Cells) -> bool {
        let mut emptied = true;
        let mut patience = UPKEEP_PATIENCE;
        for &(cell, of) in cells {
            let Some(mut stripe) = store.stripe_or_skip(of.into(), &mut patience) else {
                emptied = false;
                continue;
            };
            if store.emptying.load(Relaxed) > 0 {
                return false;
            }
            if !store.arena.belongs(cell, of) {
                continue;
            }
            let object = Object::in_cell(cell);
            let Some((_, uid, slot)) = entry_of(store, &stripe, object).filter(|_| !object.is_writing()) else {
                emptied = false;
                continue;
            };
            let word = stripe.database_mut(uid).table.word_mut(slot);
            *word = word.with_address(object.moved(&store.arena, of).address());
            store.counters.add(Counter::EvacuatedObjects, 1);
        }
        emptied
    }

    /// Removes hot keys of one leaf that have expired; returns (seen with an expiry, expired).
    /// A stripe that a script keeps is skipped: see [`Store::stripe_or_skip`].
    pub fn expire_leaf(
        &mut self,
        store: &Store,
        now_ms: u64,
        patience: &mut Duration,
        ttl: &mut TtlSample,
    ) -> (usize, usize) {
        let stripe = store.stripe_or_skip(self.stripe, patience);
        let Some(mut stripe) = stripe.filter(|stripe| self.uid < stripe.uids()) else {
            self.stripe = (self.stripe + 1) % STRIPES;
            (self.uid, self.high) = (0, 0);
            return (0, 0);
        };
        let database = stripe.database_mut(self.uid);
        if database.expires == 0 {
            (self.uid, self.high) = (self.uid + 1, 0);
            return (0, 0);
        }
        let (entries, next) = database.table.leaf_at(self.high);
        let (mut seen, mut gone) = (0, Vec::new());
        for entry in entries.iter().filter(|entry| entry.word.is_hot() && entry.word.has_expiry()) {
            seen += 1;
            let object = Object::from_address(entry.word.address());
            match object.expiry() {
                Some(expiry) if expiry <= now_ms => gone.push(*entry),
                Some(expiry) => ttl.add(self.uid, expiry - now_ms),
                None => {}
            }
        }
        let expired = gone.len();
        for entry in gone {
            let slot = database.table.find(entry.high, |word| word == entry.word).expect("seen under this lock");
            store.commit_leave(Leave::expired(self.uid, None, now_ms), database, slot, None);
        }
        match next {
            Some(high) => self.high = high,
            None => (self.uid, self.high) = (self.uid + 1, 0),
        }
        (seen, expired)
    }

    /// Whether the sweep stands at the start of a stripe.
    pub fn at_stripe_start(&self) -> bool {
        self.uid == 0 && self.high == 0
    }

    pub fn stripe(&self) -> usize {
        self.stripe
    }

    fn next_stripe(&mut self, store: &Store) {
        self.stripe = store.tier.next_stripe.fetch_add(1, Relaxed) as usize % STRIPES;
        (self.uid, self.high) = (0, 0);
    }
}

pub(crate) struct SweptParts {
    pub next: Option<u64>,
    pub freed: usize,
    pub written: bool,
    pub stopped: bool,
}

/// Goes over some parts of a value (`of_all`: also those in use): those on flash too leave RAM, others are written.
pub(crate) fn sweep_parts(
    store: &Store,
    id: u64,
    value: &mut Boxed,
    from: u64,
    of_all: bool,
    writer: &mut dyn Writer,
) -> SweptParts {
    let (kind, mut written) = (value.kind(), false);
    let swept = value.sweep(from, PARTS_MAX, of_all, &mut |number, bytes| {
        let write = write_number();
        match writer.part(PartName { id, number }, write, kind, bytes) {
            Verdict::Taken => {
                written = true;
                Fate::Written(write)
            }
            Verdict::Keep => Fate::Stays,
            Verdict::Stop => Fate::Stop,
        }
    });
    store.counters.add(Counter::PartDemotions, swept.left as u64);
    SweptParts { next: swept.next, freed: swept.freed, written, stopped: swept.stopped }
}

/// The entry that holds this object, which lies in a cell of the stripe.
fn entry_of(store: &Store, stripe: &Stripe, object: Object) -> Option<(KeyHash, u32, Slot)> {
    let hash = store.hasher.hash(object.key());
    let address = object.address();
    (0..stripe.uids()).find_map(|uid| Some((hash, uid, stripe.database(uid)?.find_address(hash.high, address)?)))
}

/// Times to live met by an expiry sweep, for INFO's avg_ttl.
#[derive(Default)]
pub(crate) struct TtlSample(Vec<(u64, u64)>);

impl TtlSample {
    fn add(&mut self, uid: u32, ttl_ms: u64) {
        let uid = uid as usize;
        if uid >= self.0.len() {
            self.0.resize(uid + 1, (0, 0));
        }
        // An expiry may lie as far away as a command can say: a few of those fill the sum.
        self.0[uid].0 = self.0[uid].0.saturating_add(ttl_ms);
        self.0[uid].1 += 1;
    }

    /// Publishes the averages and begins anew.
    pub fn publish(&mut self, store: &Store) {
        for (uid, average) in store.average_ttl.iter().enumerate() {
            let (sum, count) = self.0.get(uid).copied().unwrap_or_default();
            average.store(sum.checked_div(count).unwrap_or(0), Relaxed);
        }
        self.0.clear();
    }
}
