//! Owns the changes of whole logical databases: exchanging and emptying them, with every stripe locked.
//! Never knows which command needs them.

use crate::keyspace::guards::Held;
use crate::mem::hash::STRIPES;
use crate::store::{Orphan, Store};
use crate::stripe::Database;
use crate::stripe::wait::Ready;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Exchanges two logical databases. `held` must hold every stripe.
    pub(crate) fn swap(&self, a: usize, b: usize, held: &mut Held<'_>, now_ms: u64, ready: &mut Vec<Ready>) {
        let (first, second) = (self.table_id(a), self.table_id(b));
        for stripe in 0..STRIPES {
            let stripe = held.get(stripe);
            if let Some(waiters) = &stripe.waiters {
                waiters.note_all(&self.hasher, |db| db == a || db == b, ready);
            }
            if let Some(watched) = &stripe.watched {
                watched.swapped([a, b], |name| {
                    let key = self.hasher.key(name);
                    [first, second].iter().any(|&table_id| stripe.has_live(table_id, &key, now_ms))
                });
            }
        }
        self.stripes.swap(a, b);
    }

    /// Takes the contents of a logical database, or of all of them, out of the stripes. The caller gives the result to
    /// [`Store::drop_databases`]. `held` must hold every stripe.
    pub(crate) fn take(&self, db: Option<usize>, held: &mut Held<'_>, ready: &mut Vec<Ready>) -> Vec<Database> {
        let (mut taken, mut orphans) = (Vec::new(), Vec::new());
        self.emptying.fetch_add(1, Relaxed);
        let table_ids = match db {
            None => 0..u32::MAX,
            Some(db) => self.table_id(db)..self.table_id(db) + 1,
        };
        for number in 0..STRIPES {
            let stripe = held.get(number);
            if let Some(waiters) = &stripe.waiters {
                waiters.note_all(&self.hasher, |waited| db.is_none_or(|db| db == waited), ready);
            }
            for table_id in table_ids.start..table_ids.end.min(stripe.table_ids()) {
                let database = std::mem::take(stripe.database_mut(table_id));
                match database.table.is_cut() {
                    true => orphans.push(Orphan { stripe: number, table_id, database }),
                    false => taken.push(database),
                }
            }
        }
        if let Some(cut) = self.cut.read().as_ref().filter(|_| !orphans.is_empty()) {
            self.emptying.fetch_add(1, Relaxed);
            cut.adopt(orphans);
        }
        taken
    }
}
