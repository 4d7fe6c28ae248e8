//! Owns the sweep over the index that chooses the values that leave RAM. Never writes to flash itself.
//!
//! Generalised CLOCK: every access increments an entry's frequency (0 to 3). The hand decrements it when it passes, and an entry
//! at zero is a victim. A new key begins at zero, so it is on probation, as in S3-FIFO. If RAM is full, a value read from
//! flash stays only at its second access; the cold entry's reference bit remembers the first. A value that leaves RAM also
//! leaves this bit, because it was used when it came. The hand clears it when it passes, except in some turns: see
//! [`Turn`](crate::mem::tier::Turn). docs/internals/memory.md has the simulated hit ratios.

use crate::counters::Counter;
use crate::keyspace::commit::Leave;
use crate::log::fill::Verdict;
use crate::log::parts::PartName;
use crate::mem::arena::{CELL_BYTES_MAX, Cells};
use crate::mem::hash::{KeyHash, STRIPES, first_slot};
use crate::mem::index::{Entry, OwnedWord, Slot, prefetch_line};
use crate::mem::object::{ObjectMut, ObjectRef};
use crate::mem::word::Word;
use crate::store::Store;
use crate::stripe::{Database, Stripe, UPKEEP_TIMEOUT};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use value::{Boxed, Fate, Kind, Swept};

/// The position of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockHand {
    stripe: usize,
    table_id: u32,
    high: u64,
    /// The position inside the value at `high`, if that value moves in parts.
    parts: PartsHand,
    /// Number of leaves whose victims are written without their neighbours, because the neighbours of the last victim
    /// were in use.
    alone: u32,
    /// The value that `alone` was last set to.
    alone_last: u32,
}

/// The position of a sweep over a value's parts.
#[derive(Clone, Copy, Debug, Default)]
struct PartsHand {
    from: u64,
    /// Since the first part, some part has left RAM or is being written.
    found: bool,
    /// All parts were in use, so the sweep over them started a second round.
    again: bool,
}

/// Number of parts of one value that one step visits before other values get their turn.
const PARTS_MAX: usize = 256;

/// An object's header and key are prefetched this many neighbours before the object is visited.
const CELLS_AHEAD: usize = 4;

/// If three quarters of the neighbours were in use, the victims of this many leaves are written without neighbours: at
/// first the minimum, and twice as many each time that this happens again. Looking at the neighbours costs some hundred
/// look-ups in the index.
const LEAVES_ALONE_MIN: u32 = 31;
const LEAVES_ALONE_MAX: u32 = 1023;

/// A dirty value that must be written.
pub(crate) struct Victim<'t> {
    pub hash: KeyHash,
    pub table_id: u32,
    pub object: ObjectMut<'t>,
    pub has_expiry: bool,
    /// Whether the value leaves RAM when it is written, if it was not used meanwhile.
    pub leaves: bool,
    /// Whether a snapshot still needs the value, so that the value is as it was at the cut.
    pub is_wanted: bool,
}

/// A dirty part of a value that must be written.
pub(crate) struct DirtyPart<'t> {
    pub name: PartName,
    pub write: u32,
    pub kind: Kind,
    pub bytes: &'t [u8],
    /// As for a [`Victim`].
    pub leaves: bool,
}

/// Numbers of demotion writes. Two stores in a process may share the counter: a number only identifies the write that an object
/// waits for.
static WRITE_NUMBER: AtomicU32 = AtomicU32::new(1);

/// A new number for a write. The objects that the write copies are marked with it.
pub(crate) fn write_number() -> u32 {
    WRITE_NUMBER.fetch_add(1, Relaxed) & 0xff_ffff
}

/// Copies victims into the unit that is being filled, while their stripe is locked. The lane implements this.
pub(crate) trait Writer {
    fn value(&mut self, victim: Victim<'_>) -> Verdict;
    fn part(&mut self, part: DirtyPart<'_>) -> Verdict;
}

pub(crate) struct Slice {
    /// Bytes of RAM freed at once.
    pub freed: usize,
    pub stopped: bool,
}

impl ClockHand {
    /// Visits at most one leaf for victims. Puts the neighbours of the first dirty victim into `near`, for
    /// [`ClockHand::sweep_near`]. Gives victims without neighbours to `writer`. Without flash, victims are evicted by the policy
    /// instead.
    /// A stripe that a script holds is skipped: see [`Store::stripe_or_skip`].
    pub fn sweep_leaf(
        &mut self,
        store: &Store,
        now_ms: u64,
        timeout: &mut Duration,
        near: &mut Cells,
        writer: &mut dyn Writer,
    ) -> Slice {
        near.clear();
        let alone = self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        let mut slice = Slice { freed: 0, stopped: false };
        let Some(mut stripe) = store.stripe_or_skip(self.stripe, timeout) else {
            self.next_stripe(store);
            store.tier.skip();
            return slice;
        };
        if self.table_id >= stripe.table_ids() {
            drop(stripe);
            self.next_stripe(store);
            return slice;
        }
        let owned = stripe.owned;
        let database = stripe.database_mut(self.table_id);
        let slot = first_slot(self.stripe);
        let policy = store.tier.policy();
        let mut demoted = 0;
        let mut unfinished = false;
        let mut gone: Vec<(u64, Word)> = Vec::new();
        let (entries, wanted, next) = database.table.leaf_at_mut(self.high);
        store.counters.add(Counter::SweptEntries, entries.len() as u64);
        let resumed = std::mem::take(&mut self.parts);
        let from = self.high;
        let (forgets, mut met, mut idle) = (store.tier.turn.forgets(), 0, 0);
        let mut next_at = entries.partition_point(|entry| entry.high() < from);
        // The cache misses of all objects overlap.
        entries[next_at..].iter().filter(|entry| is_visited(entry.word())).for_each(Entry::prefetch_object);
        loop {
            next_at = pass_cold(entries, next_at, forgets);
            let Some(entry) = entries.get_mut(next_at) else { break };
            let at = next_at;
            next_at += 1;
            let (high, word) = (entry.high(), entry.word());
            if !is_visited(word) {
                met += 1;
                entry.set_frequency(word.frequency() - 1);
                continue;
            }
            let object = entry.hot();
            debug_assert_eq!(object.is_boxed(), word.is_boxed());
            if word.is_boxed() && word.is_dirty() && object.boxed().is_some_and(|value| store.moves_in_parts(value)) {
                let expired = owned && word.has_expiry() && store.lane_removes(object.expiry(), now_ms);
                if expired {
                    gone.push((high, word));
                    continue;
                }
                let hash = store.hasher.hash(object.key());
                let mut object = entry.hot_mut();
                let value = object.boxed_mut().expect("it was just seen");
                let id = store.split(value, hash, self.table_id);
                let mut hand = if high == self.high { resumed } else { PartsHand::default() };
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
                    (self.high, self.parts) = (high, hand);
                    unfinished = true;
                    break;
                }
                continue;
            }
            met += 1;
            if word.frequency() > 0 {
                entry.set_frequency(word.frequency() - 1);
                continue;
            }
            idle += 1;
            if object.is_writing() {
                continue;
            }
            if owned && word.has_expiry() && store.lane_removes(object.expiry(), now_ms) {
                gone.push((high, word));
                continue;
            }
            let bytes = object.ram_bytes();
            if !word.is_dirty() {
                let cold = Word(object.place().expect("a clean object knows its place"));
                let hot = entry.replace(OwnedWord::cold(cold));
                demoted += 1;
                slice.freed += bytes;
                store.free(hot.into_object().expect("the entry was hot"));
                continue;
            }
            if !store.has_flash() {
                if owned && policy.evicts(word.has_expiry()) {
                    gone.push((high, word));
                    slice.freed += bytes;
                }
                continue;
            }
            if near.is_empty() && !alone {
                object.neighbours(&store.arena, near);
            }
            if crate::mem::arena::rounded(object.bytes()) <= CELL_BYTES_MAX && !near.is_empty() {
                // The victim is written with its neighbours or with those of another victim, in the order of addresses.
                continue;
            }
            let hash = store.hasher.hash(object.key());
            debug_assert_eq!(hash.slot / 16, slot / 16);
            let object = entry.hot_mut();
            let victim = Victim {
                hash,
                table_id: self.table_id,
                object,
                has_expiry: word.has_expiry(),
                leaves: true,
                is_wanted: wanted >> at & 1 == 1,
            };
            match writer.value(victim) {
                Verdict::Taken => store.tier.progress(),
                Verdict::Keep => entry.set_frequency(crate::mem::word::FREQUENCY_MAX),
                Verdict::Stop => {
                    slice.stopped = true;
                    break;
                }
            }
        }
        store.tier.turn.meets(met, idle);
        if demoted > 0 {
            database.hot -= demoted;
            store.cold.fetch_add(demoted as u64, Relaxed);
            store.counters.add(Counter::DemotionsClean, demoted as u64);
        }
        for (high, word) in gone {
            let slot = database.table.find(high, |found| found.word() == word).expect("seen under this lock");
            if store.lane_removes(database.table.entry(slot).hot().expiry(), now_ms) {
                store.commit_leave(Leave::expired(self.table_id, None, now_ms), database, slot, None);
            } else {
                store.commit_leave(Leave::evicted(self.table_id, None, now_ms), database, slot, None);
            }
        }
        if slice.freed > 0 {
            store.tier.progress();
        }
        if !slice.stopped && !unfinished {
            match next {
                Some(high) => self.high = high,
                None => (self.table_id, self.high) = (self.table_id + 1, 0),
            }
        }
        slice
    }

    /// Writes the neighbours in memory of a victim to flash, if they were not used either. Objects that were created one after
    /// the other are neighbours and often belong together. So their pages compress better than in the order of hashes, and their
    /// slab is freed as a whole.
    pub fn sweep_near(&mut self, store: &Store, near: &Cells, writer: &mut dyn Writer) -> Slice {
        let mut slice = Slice { freed: 0, stopped: false };
        let (mut demoted, mut written, mut used) = (0, 0, 0);
        store.counters.add(Counter::SweptEntries, near.len() as u64);
        let all = |_: ObjectRef<'_>| true;
        visit_near(store, near, all, |database, slot, hash, table_id| {
            let is_wanted = database.table.wants(slot);
            let entry = database.table.entry_mut(slot);
            let (word, object) = (entry.word(), entry.hot());
            if object.is_writing() {
                return true;
            }
            if word.frequency() > 0 {
                used += 1;
                return true;
            }
            if word.is_boxed() && word.is_dirty() && object.boxed().is_some_and(|value| store.moves_in_parts(value)) {
                return true;
            }
            if !word.is_dirty() {
                slice.freed += object.ram_bytes();
                let cold = Word(object.place().expect("a clean object knows its place"));
                database.force_demote(store, slot, cold);
                demoted += 1;
                return true;
            }
            match writer.value(Victim {
                hash,
                table_id,
                object: entry.hot_mut(),
                has_expiry: word.has_expiry(),
                leaves: true,
                is_wanted,
            }) {
                Verdict::Taken => written += 1,
                Verdict::Keep => entry.set_frequency(crate::mem::word::FREQUENCY_MAX),
                Verdict::Stop => slice.stopped = true,
            }
            !slice.stopped
        });
        let gone = demoted + written;
        if gone > 0 {
            store.tier.progress();
            store.tier.turn.meets(gone, gone);
            store.counters.add(Counter::DemotionsClean, demoted);
        }
        self.alone_last = match used > 3 * gone {
            true => (2 * self.alone_last + 1).clamp(LEAVES_ALONE_MIN, LEAVES_ALONE_MAX),
            false => 0,
        };
        self.alone = self.alone_last;
        slice
    }

    /// Moves objects out of a slab that is being emptied. False if some objects must stay for now, because they are being written
    /// or a script holds their stripe.
    pub fn sweep_evacuated(store: &Store, cells: &Cells) -> bool {
        let mut emptied = true;
        let mut timeout = UPKEEP_TIMEOUT;
        store.counters.add(Counter::SweptEntries, cells.len() as u64);
        for &(cell, of) in cells {
            let Some(mut stripe) = store.stripe_or_skip(of.into(), &mut timeout) else {
                emptied = false;
                continue;
            };
            if store.emptying.load(Relaxed) > 0 {
                return false;
            }
            if !store.arena.belongs(cell, of) {
                continue;
            }
            let Some((_, table_id, slot)) = entry_of(store, &stripe, cell, |_| true) else {
                emptied = false;
                continue;
            };
            let entry = stripe.database_mut(table_id).table.entry_mut(slot);
            if entry.hot().is_writing() {
                emptied = false;
                continue;
            }
            entry.move_object(&store.arena, of);
            store.counters.add(Counter::EvacuatedObjects, 1);
        }
        emptied
    }

    /// Removes the expired hot keys of one leaf. Returns (number of keys with an expiry, number of expired keys).
    /// A stripe that a script holds is skipped: see [`Store::stripe_or_skip`].
    pub fn expire_leaf(
        &mut self,
        store: &Store,
        now_ms: u64,
        timeout: &mut Duration,
        ttl: &mut TtlSample,
    ) -> (usize, usize) {
        let stripe = store.stripe_or_skip(self.stripe, timeout);
        let Some(mut stripe) = stripe.filter(|stripe| stripe.owned && self.table_id < stripe.table_ids()) else {
            self.stripe = (self.stripe + 1) % STRIPES;
            (self.table_id, self.high) = (0, 0);
            return (0, 0);
        };
        let database = stripe.database_mut(self.table_id);
        if database.expires == 0 {
            (self.table_id, self.high) = (self.table_id + 1, 0);
            return (0, 0);
        }
        let (entries, next) = database.table.leaf_at(self.high);
        store.counters.add(Counter::SweptEntries, entries.len() as u64);
        let (mut seen, mut gone) = (0, Vec::new());
        for entry in entries.iter().filter(|entry| entry.word().has_expiry()) {
            let Some(object) = entry.object() else { continue };
            seen += 1;
            match object.expiry() {
                Some(expiry) if expiry <= now_ms => gone.push((entry.high(), entry.word())),
                Some(expiry) => ttl.add(self.table_id, expiry - now_ms),
                None => {}
            }
        }
        let expired = gone.len();
        for (high, word) in gone {
            let slot = database.table.find(high, |found| found.word() == word).expect("seen under this lock");
            store.commit_leave(Leave::expired(self.table_id, None, now_ms), database, slot, None);
        }
        match next {
            Some(high) => self.high = high,
            None => (self.table_id, self.high) = (self.table_id + 1, 0),
        }
        (seen, expired)
    }

    /// Whether the sweep is at the start of a stripe.
    pub fn at_stripe_start(&self) -> bool {
        self.table_id == 0 && self.high == 0
    }

    pub fn stripe(&self) -> usize {
        self.stripe
    }

    fn next_stripe(&mut self, store: &Store) {
        self.stripe = store.tier.next_stripe.fetch_add(1, Relaxed) as usize % STRIPES;
        if self.stripe == 0 {
            store.tier.turn.ends();
        }
        (self.table_id, self.high) = (0, 0);
    }
}

/// The position of the next hot entry. Clears the reference bits of the cold entries before it if `forgets`.
fn pass_cold(entries: &mut [Entry], from: usize, forgets: bool) -> usize {
    let rest = &mut entries[from..];
    let cold = rest.iter().position(|entry| entry.word().is_hot()).unwrap_or(rest.len());
    if forgets {
        rest[..cold].iter_mut().for_each(|entry| entry.set_referenced(false));
    }
    from + cold
}

/// Whether the hand looks at the object of an entry. Those in use are passed without: most of them would be cache misses.
fn is_visited(word: Word) -> bool {
    word.is_hot() && (word.is_boxed() || word.frequency() == 0)
}

pub(crate) struct SweptParts {
    pub next: Option<u64>,
    pub freed: usize,
    pub written: bool,
    pub stopped: bool,
}

/// Visits some parts of a value. Parts with a copy on flash leave RAM, others are written. With `of_all`, also parts in use.
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
        let fate = write_part(writer, PartName { id, number }, kind, bytes, true);
        written |= matches!(fate, Fate::Written(_));
        fate
    });
    store.counters.add(Counter::PartDemotions, swept.left as u64);
    SweptParts { next: swept.next, freed: swept.freed, written, stopped: swept.stopped }
}

/// Writes some parts of a value that are in RAM only. The parts stay in RAM. Returns what was visited, and the bytes
/// that were taken.
pub(crate) fn copy_parts(id: u64, value: &mut Boxed, from: u64, writer: &mut dyn Writer) -> (Swept, usize) {
    let (kind, mut taken) = (value.kind(), 0);
    let swept = value.copy(from, PARTS_MAX, &mut |number, bytes| {
        let fate = write_part(writer, PartName { id, number }, kind, bytes, false);
        taken += if matches!(fate, Fate::Written(_)) { bytes.len() } else { 0 };
        fate
    });
    (swept, taken)
}

fn write_part(writer: &mut dyn Writer, name: PartName, kind: Kind, bytes: &[u8], leaves: bool) -> Fate {
    let write = write_number();
    match writer.part(DirtyPart { name, write, kind, bytes, leaves }) {
        Verdict::Taken => Fate::Written(write),
        Verdict::Keep => Fate::Stays,
        Verdict::Stop => Fate::Stop,
    }
}

/// Visits those objects in these cells that are still there and that `is_of_interest` accepts, each while its stripe is
/// locked, as long as `visit` returns true. Objects in stripes that a script holds are left out.
pub(super) fn visit_near(
    store: &Store,
    near: &Cells,
    is_of_interest: impl Fn(ObjectRef<'_>) -> bool,
    mut visit: impl FnMut(&mut Database, Slot, KeyHash, u32) -> bool,
) {
    let mut timeout = UPKEEP_TIMEOUT;
    for (at, &(cell, of)) in near.iter().enumerate() {
        if let Some((ahead, _)) = near.get(at + CELLS_AHEAD) {
            prefetch_line(ahead.as_ptr());
        }
        let Some(mut stripe) = store.stripe_or_skip(of.into(), &mut timeout) else { continue };
        // A flush frees objects that left their stripe without the stripe's lock.
        if store.emptying.load(Relaxed) > 0 {
            return;
        }
        if !store.arena.belongs(cell, of) {
            continue;
        }
        let Some((hash, table_id, slot)) = entry_of(store, &stripe, cell, &is_of_interest) else { continue };
        if !visit(stripe.database_mut(table_id), slot, hash, table_id) {
            return;
        }
    }
}

/// The entry that holds the object in this cell, if the object is of interest. The cell belongs to the stripe.
fn entry_of(
    store: &Store,
    stripe: &Stripe,
    cell: NonNull<u8>,
    is_of_interest: impl Fn(ObjectRef<'_>) -> bool,
) -> Option<(KeyHash, u32, Slot)> {
    debug_assert_eq!(store.emptying.load(Relaxed), 0);
    // SAFETY: the callers hold the stripe's lock. Under this lock they have checked that no flush is freeing objects
    // and that the cell belongs to the stripe. The object is only read here, while `stripe` is borrowed shared.
    let object = unsafe { ObjectRef::in_cell(cell) };
    if !is_of_interest(object) {
        return None;
    }
    let hash = store.hasher.hash(object.key());
    let address = object.address();
    (0..stripe.table_ids())
        .find_map(|table_id| Some((hash, table_id, stripe.database(table_id)?.find_address(hash.high, address)?)))
}

/// The times to live that an expiry sweep met, for INFO's avg_ttl.
#[derive(Default)]
pub(crate) struct TtlSample(Vec<(u64, u64)>);

impl TtlSample {
    fn add(&mut self, table_id: u32, ttl_ms: u64) {
        let table_id = table_id as usize;
        if table_id >= self.0.len() {
            self.0.resize(table_id + 1, (0, 0));
        }
        // Saturate, because a few keys with a very distant expiry could overflow the sum.
        self.0[table_id].0 = self.0[table_id].0.saturating_add(ttl_ms);
        self.0[table_id].1 += 1;
    }

    /// Publishes the averages and starts a new sample.
    pub fn publish(&mut self, store: &Store) {
        for (table_id, average) in store.average_ttl.iter().enumerate() {
            let (sum, count) = self.0.get(table_id).copied().unwrap_or_default();
            average.store(sum.checked_div(count).unwrap_or(0), Relaxed);
        }
        self.0.clear();
    }
}
