//! Owns the walk over all keys: SCAN's cursor and its guarantee, and random keys.
//! Never reads values: for a cold entry it reads only the name.

use super::{Cold, ColdRead, Identity, Keyspace, Resume};
use crate::keyspace::direct;
use crate::mem::hash::{KeyHash, STRIPES};
use crate::mem::index::Entry;
use crate::store::Store;
use crate::stripe::Stripe;
use value::Kind;

impl Keyspace<'_> {
    /// A random key of the current logical database. All keys are about equally likely.
    pub fn random(&mut self) -> Result<Option<Vec<u8>>, Cold> {
        let store = self.store;
        // Expired keys are skipped, so several random positions may be needed.
        for _ in 0..100 {
            let random = *self.resume.random.get_or_insert_with(|| store.next_random());
            let mut found = None;
            let next = self.walk(random, 1, true, &mut |name, _| found = Some(name.to_vec()))?;
            if found.is_some() {
                return Ok(found);
            }
            if next == 0 {
                // The walk reached the end. A second walk from the start shows whether the database is empty.
                let next = self.walk(0, 1, true, &mut |name, _| found = Some(name.to_vec()))?;
                if found.is_some() || next == 0 {
                    return Ok(found);
                }
            }
            self.resume.random = None;
        }
        Ok(None)
    }

    /// One step of a walk in the order of hashes. Visits at least `count` keys, or all remaining keys. Returns the cursor for
    /// the next step, 0 at the end. A key that exists from the first step to the last is visited. A key that is added or
    /// removed meanwhile may be visited.
    pub fn scan(&mut self, cursor: u64, count: usize, visit: &mut dyn FnMut(&[u8], Kind)) -> Result<u64, Cold> {
        self.walk(cursor, count, false, visit)
    }

    fn walk(
        &mut self,
        cursor: u64,
        count: usize,
        stop_at_one: bool,
        visit: &mut dyn FnMut(&[u8], Kind),
    ) -> Result<u64, Cold> {
        let mut step = Step { wanted: count.clamp(1, SCAN_KEYS_MAX), found: Vec::new(), missing: Vec::new() };
        let mut cursor = Cursor::new(cursor);
        let mut next = 0;
        let has_all = self.has_all();
        while cursor.stripe < STRIPES {
            let mut own;
            let stripe = if has_all {
                &*self.held.get(cursor.stripe)
            } else {
                own = self.store.stripe(cursor.stripe);
                &mut own
            };
            let position = step.gather(self.store, stripe, self.uid, cursor, self.now_ms, self.resume);
            if self.at_once {
                step.read(self.store, self.now_ms, self.resume)?;
            }
            match position {
                Some(high) => {
                    next = Cursor { stripe: cursor.stripe, high }.number();
                    break;
                }
                None => cursor = Cursor { stripe: cursor.stripe + 1, high: 0 },
            }
        }
        if !step.missing.is_empty() {
            self.stopped = true;
            self.resume.cold.append(&mut step.missing);
            return Err(Cold);
        }
        // KEYS takes many steps, so names are dropped after each. RANDOMKEY's second walk still needs the names of its first walk.
        if !stop_at_one {
            self.resume.names.clear();
        }
        for (name, kind) in step.found.iter().take(if stop_at_one { 1 } else { usize::MAX }) {
            visit(name, *kind);
        }
        Ok(next)
    }
}

/// Maximum number of keys in one step of a walk, whatever COUNT says, so that the work of a step is bounded.
const SCAN_KEYS_MAX: usize = 10_000;

/// A position of the walk: the stripe in the upper 10 bits, then the upper 54 bits of the hash.
#[derive(Clone, Copy)]
struct Cursor {
    stripe: usize,
    high: u64,
}

impl Cursor {
    const HASH_BITS: u32 = 54;

    fn new(number: u64) -> Cursor {
        Cursor { stripe: (number >> Self::HASH_BITS) as usize, high: number << (64 - Self::HASH_BITS) }
    }

    fn number(self) -> u64 {
        (self.stripe as u64) << Self::HASH_BITS | self.high >> (64 - Self::HASH_BITS)
    }
}

struct Step {
    wanted: usize,
    found: Vec<(Box<[u8]>, Kind)>,
    missing: Vec<ColdRead>,
}

impl Step {
    /// Collects the keys of a stripe from the cursor on. If enough keys were found, returns where to continue in this stripe.
    /// Entries whose hashes agree in the cursor's bits always come in the same step.
    fn gather(
        &mut self,
        store: &Store,
        stripe: &Stripe,
        uid: u32,
        from: Cursor,
        now_ms: u64,
        resume: &Resume,
    ) -> Option<u64> {
        let table = &stripe.database(uid)?.table;
        let coarse = |high: u64| high >> (64 - Cursor::HASH_BITS);
        let mut last = None;
        let mut leaf = Some(from.high);
        while let Some(high) = leaf {
            let (entries, next) = table.leaf_at(high);
            for entry in entries.iter().filter(|entry| entry.high() >= from.high) {
                let enough = self.found.len() + self.missing.len() >= self.wanted;
                if enough && last != Some(coarse(entry.high())) {
                    return Some(entry.high());
                }
                last = Some(coarse(entry.high()));
                self.take(store, entry, uid, from.stripe, now_ms, resume);
            }
            leaf = next;
        }
        None
    }

    /// Reads the missing names at once, with their stripe locked.
    fn read(&mut self, store: &Store, now_ms: u64, resume: &mut Resume) -> Result<(), Cold> {
        for cold in self.missing.drain(..) {
            match direct::name(store, cold.hash, cold.uid, cold.word) {
                Ok(named) => {
                    if named.expiry.is_none_or(|expiry| expiry > now_ms) {
                        self.found.push((named.name, cold.word.kind()));
                    }
                }
                Err(error) => {
                    resume.failed = Some(error);
                    return Err(Cold);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, store: &Store, entry: &Entry, uid: u32, stripe: usize, now_ms: u64, resume: &Resume) {
        let live = |expiry: Option<u64>| expiry.is_none_or(|expiry| expiry > now_ms);
        if let Some(object) = entry.object() {
            if live(object.expiry()) {
                self.found.push((object.key().into(), object.kind()));
            }
            return;
        }
        let word = entry.word();
        let hash =
            KeyHash { high: entry.high(), low: word.0, slot: (stripe * (crate::mem::hash::SLOTS / STRIPES)) as u16 };
        match resume.names.get(&Identity::new(hash, word)) {
            Some(named) if live(named.expiry) => self.found.push((named.name.clone(), word.kind())),
            Some(_) => {}
            None => self.missing.push(store.cold_read(hash, uid, word, None)),
        }
    }
}
