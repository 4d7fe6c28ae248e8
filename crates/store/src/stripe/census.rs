//! Owns the numbers of keys by stripe, for statistics. Never waits for a stripe that a script holds: for that stripe the last known
//! numbers count.

use crate::mem::hash::STRIPES;
use crate::stripe::{LOCK_TIMEOUT, Stripe, StripeSet};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// The numbers of keys of a logical database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Keys whose value is in RAM.
    pub hot: u64,
}

impl KeyCounts {
    fn add(&mut self, other: KeyCounts) {
        self.keys += other.keys;
        self.expires += other.expires;
        self.hot += other.hot;
    }
}

/// The numbers of the whole store. The stripes are counted one after the other, so they are nearly of one moment.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Bytes of RAM of the index.
    pub index_bytes: u64,
    /// One element for each logical database.
    pub databases: Vec<KeyCounts>,
}

/// Number of stripes that a count prefetches.
const PREFETCHED: usize = 8;

/// The last known numbers of a stripe. Takes some 50 bytes, more with several logical databases.
#[derive(Clone, Default)]
struct Seen {
    index_bytes: u64,
    /// One element for each table id.
    databases: SmallVec<[KeyCounts; 1]>,
}

/// The last known numbers, by stripe. Locked during a count: some ten microseconds, and at most [`LOCK_TIMEOUT`] more.
pub(crate) struct LastSeen(Mutex<Box<[Seen]>>);

impl Default for LastSeen {
    fn default() -> LastSeen {
        LastSeen(Mutex::new(vec![Seen::default(); STRIPES].into()))
    }
}

impl LastSeen {
    /// Counts the keys. For a stripe that a script holds, the last known numbers count, so that monitoring is never blocked by a
    /// script. After the first stripe that could not be locked within [`LOCK_TIMEOUT`], it does not wait for any other.
    pub fn census(&self, stripes: &StripeSet) -> Census {
        let mut seen = self.0.lock();
        let mut timeout = LOCK_TIMEOUT;
        let mut index_bytes = size_of_val(&**seen) as u64 + stripes.bytes();
        let mut by_uid: Vec<KeyCounts> = Vec::new();
        for (number, seen) in seen.iter_mut().enumerate() {
            // Most stripes are not in the processor's cache, so ask for them some steps ahead.
            stripes.prefetch((number + PREFETCHED) % STRIPES);
            if let Some(stripe) = stripes.lock_or_skip(number, &mut timeout) {
                look_at(&stripe, seen);
            }
            index_bytes += seen.index_bytes;
            if by_uid.len() < seen.databases.len() {
                by_uid.resize(seen.databases.len(), KeyCounts::default());
            }
            by_uid.iter_mut().zip(&seen.databases).for_each(|(sum, &counts)| sum.add(counts));
        }
        let of = |db| by_uid.get(stripes.table_id(db) as usize).copied().unwrap_or_default();
        Census { index_bytes, databases: (0..stripes.databases()).map(of).collect() }
    }
}

fn look_at(stripe: &Stripe, seen: &mut Seen) {
    seen.index_bytes = 0;
    seen.databases.clear();
    for database in stripe.all() {
        seen.index_bytes += database.table.mem_bytes() as u64;
        seen.databases.push(KeyCounts {
            keys: database.table.len() as u64,
            expires: database.expires as u64,
            hot: database.hot as u64,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::keyspace::Resume;
    use crate::store::Store;

    fn set(store: &Store, name: &[u8], db: usize) {
        let key = store.hasher().key(name);
        let mut resume = Resume::default();
        let mut ks = store.lock(&[key], db, 1, true, &mut resume);
        ks.set_string(&key, b"v", None);
        ks.close();
    }

    #[test]
    fn a_locked_stripe_counts_with_its_last_known_numbers() {
        let store = Store::new(&StoreConfig::in_ram(1));
        (0..3_000).for_each(|key: u32| set(&store, &key.to_be_bytes(), 0));
        set(&store, b"other", 3);
        let counted = store.census();
        assert_eq!(counted.databases[0], KeyCounts { keys: 3_000, expires: 0, hot: 3_000 });
        assert_eq!(counted.databases[3].keys, 1);
        assert_eq!(counted.databases.len(), store.databases());
        let name = 7_u32.to_be_bytes();
        let kept = store.hasher().key(&name);
        let mut resume = Resume::default();
        let script = store.lock(&[kept], 0, 1, true, &mut resume);
        // Count on another thread, because this thread holds the stripe.
        let meanwhile = std::thread::scope(|scope| scope.spawn(|| store.census()).join().unwrap());
        assert_eq!((meanwhile.index_bytes, &meanwhile.databases), (counted.index_bytes, &counted.databases));
        drop(script);
        set(&store, b"one more", 0);
        assert_eq!(store.census().databases[0].keys, 3_001);
    }
}
