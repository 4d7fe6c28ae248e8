//! Owns random keys. Never reads values: of a cold entry it reads only the name.

use super::list::Cursor;
use super::{Cold, ColdRead, Keyspace, Named};
use crate::keyspace::direct;
use crate::mem::hash::{KeyHash, STRIPES, first_slot};

/// An entry.
enum Entry {
    /// The name of a key in RAM, unless it has expired.
    Hot(Option<Vec<u8>>),
    /// A read of its name.
    Cold(ColdRead),
}

impl Keyspace<'_> {
    /// A random key of the current logical database. All keys are about equally likely.
    pub fn random(&mut self) -> Result<Option<Vec<u8>>, Cold> {
        let store = self.store;
        // Expired keys are skipped, so several random positions may be needed.
        for _ in 0..100 {
            let random = *self.resume.random.get_or_insert_with(|| store.next_random());
            let Some(entry) = self.entry_from(Cursor::new(random)).or_else(|| self.entry_from(Cursor::default()))
            else {
                return Ok(None);
            };
            let name = match entry {
                Entry::Hot(name) => name,
                Entry::Cold(read) => self.name(read)?,
            };
            if name.is_some() {
                return Ok(name);
            }
            self.resume.random = None;
        }
        Ok(None)
    }

    /// The first entry from a position on.
    fn entry_from(&mut self, from: Cursor) -> Option<Entry> {
        let (store, table_id, now_ms) = (self.store, self.table_id, self.now_ms);
        (from.stripe..STRIPES).find_map(|number| {
            let from = if number == from.stripe { from.high } else { 0 };
            self.look_in(number, |stripe, _| {
                let table = &stripe.database(table_id).filter(|_| stripe.owned)?.table;
                let mut leaf = Some(from);
                while let Some(high) = leaf {
                    let (entries, next) = table.leaf_at(high);
                    if let Some(entry) = entries.iter().find(|entry| entry.high() >= from) {
                        let slot = first_slot(number);
                        return Some(match entry.object() {
                            Some(object) => {
                                let is_live = object.expiry().is_none_or(|expiry| expiry > now_ms);
                                Entry::Hot(is_live.then(|| object.key().to_vec()))
                            }
                            None => {
                                let word = entry.word();
                                let hash = KeyHash { high: entry.high(), low: word.0, slot };
                                Entry::Cold(store.cold_read(hash, table_id, word, None))
                            }
                        });
                    }
                    leaf = next;
                }
                None
            })
        })
    }

    /// The name of a cold key, unless it has expired.
    fn name(&mut self, read: ColdRead) -> Result<Option<Vec<u8>>, Cold> {
        let named = match self.resume.names.remove(&read.identity()) {
            Some(named) => named,
            // A name that cannot be read is left out; the log says so.
            None if self.at_once => {
                direct::name(self.store, read.hash, read.table_id, read.word).unwrap_or_else(|_| Named::unknown())
            }
            None => {
                self.stopped = true;
                self.resume.cold.push(read);
                return Err(Cold);
            }
        };
        Ok(named.expiry.is_none_or(|expiry| expiry > self.now_ms).then(|| named.name.into_vec()))
    }
}
