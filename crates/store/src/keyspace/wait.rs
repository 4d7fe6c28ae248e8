//! Owns how a blocked command enters and leaves the queues of its keys, and which waiter is next. Never wakes a waiter.

use super::Keyspace;
use crate::mem::hash::Key;
use crate::store::Store;
use crate::stripe::Stripe;
use crate::stripe::wait::{Ready, Wants};
use value::Kind;

impl Keyspace<'_> {
    /// Adds the client to the end of the queues of these keys. Returns its ticket.
    pub fn wait(&mut self, keys: &[Key<'_>], client: u64, wants: Wants) -> u64 {
        let (db, counts) = (self.db(), &self.store().wait_counts);
        let ticket = counts.ticket();
        for key in keys {
            let waiters = self.stripe_of(key).waiters.get_or_insert_default();
            waiters.add(db, key, ticket, (client, wants), counts);
        }
        ticket
    }

    /// Removes the waiter from the queues.
    pub fn leave(&mut self, keys: &[Key<'_>], ticket: u64) {
        let (db, counts) = (self.db(), &self.store().wait_counts);
        for key in keys {
            let stripe = self.stripe_of(key);
            let Some(waiters) = &mut stripe.waiters else { continue };
            waiters.remove(db, key, ticket, counts);
            if waiters.is_empty() {
                stripe.waiters = None;
            }
        }
    }

    /// Makes these keys ready for the waiters behind this ticket, because the waiter with this ticket is done and
    /// blocks them no longer.
    pub fn pass_on(&mut self, keys: &[Key<'_>], ticket: u64) {
        let db = self.db();
        for key in keys {
            let waits = self.stripe_of(key).waiters.as_ref().is_some_and(|all| all.wait_for(db, key));
            if waits {
                self.resume.ready.push(Ready::new(db, key, ticket));
            }
        }
    }
}

impl Store {
    /// The next waiter of the key whose condition may be satisfied: its ticket and its client's number. The key counts as existing
    /// although it may have expired: the waiter's command finds out, and removes it.
    pub fn waiter(&self, ready: &Ready) -> Option<(u64, u64)> {
        let stripe = self.stripe(ready.hash.stripe());
        stripe.waiters.as_ref()?.next(ready, || self.kind_of(&stripe, ready))
    }

    fn kind_of(&self, stripe: &Stripe, ready: &Ready) -> Option<Kind> {
        let database = stripe.database(self.table_id(ready.db))?;
        let entry = database.table.entry(database.find(&ready.key())?);
        Some(entry.object().map_or_else(|| entry.word().kind(), |object| object.kind()))
    }

    /// Number of keys with waiters, and of those where a waiter wants any change.
    pub fn waited_for(&self) -> (u64, u64) {
        self.wait_counts.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::keyspace::Resume;
    use crate::keyspace::guards::Reach;
    use std::sync::Arc;

    const LIST: Wants = Wants { kind: Kind::List, any_change: false };
    const GROUP: Wants = Wants { kind: Kind::Stream, any_change: true };

    struct Bench {
        store: Arc<Store>,
        resume: Resume,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { store: Store::new(&StoreConfig::in_ram(1)), resume: Resume::default() }
        }

        fn with<R>(&mut self, db: usize, names: &[&str], act: impl FnOnce(&mut Keyspace<'_>, &[Key<'_>]) -> R) -> R {
            let keys: Vec<Key<'_>> = names.iter().map(|name| self.store.hasher().key(name.as_bytes())).collect();
            let mut ks = match keys[..] {
                [] => self.store.try_lock_all(db, 0, true, Reach::All, &mut self.resume).expect("nobody else locks"),
                _ => self.store.lock(&keys, db, 0, true, &mut self.resume),
            };
            let result = act(&mut ks, &keys);
            ks.close();
            result
        }

        fn wait(&mut self, db: usize, names: &[&str], client: u64, wants: Wants) -> u64 {
            self.with(db, names, |ks, keys| ks.wait(keys, client, wants))
        }

        fn leave(&mut self, db: usize, names: &[&str], ticket: u64) {
            self.with(db, names, |ks, keys| ks.leave(keys, ticket));
        }

        fn put(&mut self, db: usize, name: &str, kind: Kind) {
            self.with(db, &[name], |ks, keys| ks.set_packed(&keys[0], kind, b"\x01a\x01", None));
        }

        /// The clients that the recorded changes wake, in order.
        fn woken(&mut self) -> Vec<u64> {
            let mut woken = Vec::new();
            for mut ready in std::mem::take(&mut self.resume.ready) {
                while let Some((ticket, client)) = self.store.waiter(&ready) {
                    woken.push(client);
                    ready.behind(ticket);
                }
            }
            woken
        }
    }

    #[test]
    fn waiters_are_woken_in_order_and_only_for_what_they_want() {
        let mut bench = Bench::new();
        bench.wait(0, &["a", "b"], 7, LIST);
        bench.wait(0, &["a"], 8, Wants { kind: Kind::ZSet, any_change: false });
        bench.wait(0, &["a"], 9, LIST);
        bench.put(0, "c", Kind::List);
        assert_eq!(bench.woken(), [0; 0], "nobody waits for it");
        bench.put(0, "a", Kind::Hash);
        assert_eq!(bench.woken(), [0; 0], "of another kind");
        bench.put(0, "a", Kind::List);
        bench.put(0, "a", Kind::List);
        assert_eq!(bench.woken(), [7, 9], "noted once");
        bench.put(1, "a", Kind::List);
        assert_eq!(bench.woken(), [0; 0], "in another database");
        bench.with(0, &["a"], |ks, keys| ks.remove(&keys[0]).unwrap());
        assert_eq!(bench.woken(), [0; 0]);
    }

    #[test]
    fn a_waiter_that_leaves_leaves_nothing_behind() {
        let mut bench = Bench::new();
        let first = bench.wait(0, &["a", "b", "a"], 7, GROUP);
        let second = bench.wait(0, &["a"], 8, LIST);
        let third = bench.wait(1, &["a"], 9, LIST);
        assert_eq!(bench.store.waited_for(), (3, 2));
        bench.leave(0, &["a", "b", "a"], first);
        bench.leave(0, &["a", "b", "a"], first);
        assert_eq!(bench.store.waited_for(), (2, 0));
        bench.leave(0, &["a"], second);
        bench.leave(1, &["a"], third);
        assert_eq!(bench.store.waited_for(), (0, 0));
        let stripe = bench.store.hasher().key(b"a").hash.stripe();
        assert!(bench.store.stripe(stripe).waiters.is_none());
    }

    #[test]
    fn a_removal_counts_as_any_change() {
        let mut bench = Bench::new();
        bench.wait(0, &["s"], 1, LIST);
        bench.wait(0, &["s"], 2, GROUP);
        bench.put(0, "s", Kind::String);
        assert_eq!(bench.woken(), [2]);
        bench.with(0, &["s"], |ks, keys| ks.remove(&keys[0]).unwrap());
        assert_eq!(bench.woken(), [2]);
        bench.with(0, &[], |ks, _| ks.flush(Some(1), false));
        assert_eq!(bench.woken(), [0; 0]);
        bench.with(0, &[], |ks, _| ks.flush(None, false));
        assert_eq!(bench.woken(), [2]);
    }

    /// A hash table with std's random key would give another order in each run.
    #[test]
    fn flushing_makes_the_keys_of_a_stripe_ready_in_the_order_of_their_names() {
        let mut bench = Bench::new();
        let names: Vec<String> = (0..40).map(|number| format!("{{tag}}{}", number * 37 % 100)).collect();
        for (client, name) in names.iter().enumerate() {
            bench.wait(0, &[name], client as u64, GROUP);
        }
        bench.with(0, &[], |ks, _| ks.flush(None, false));
        let mut by_name: Vec<u64> = (0..40).collect();
        by_name.sort_by_key(|&client| &names[client as usize]);
        assert_eq!(bench.woken(), by_name);
    }

    #[test]
    fn databases_are_exchanged_under_the_waiters() {
        let mut bench = Bench::new();
        bench.wait(0, &["k"], 1, LIST);
        bench.wait(1, &["k"], 2, LIST);
        bench.put(5, "k", Kind::List);
        bench.with(0, &[], |ks, _| ks.swap(5, 0));
        assert_eq!(bench.woken(), [1]);
        bench.with(0, &[], |ks, _| ks.swap(0, 1));
        assert_eq!(bench.woken(), [2]);
    }

    #[test]
    fn a_change_of_the_expiry_or_the_value_in_place_is_noted() {
        let mut bench = Bench::new();
        bench.put(0, "k", Kind::Stream);
        bench.wait(0, &["k"], 1, GROUP);
        bench.with(0, &["k"], |ks, keys| _ = ks.get(&keys[0]));
        assert_eq!(bench.woken(), [0; 0], "reading changes nothing");
        bench.with(0, &["k"], |ks, keys| _ = ks.get_mut(&keys[0]));
        assert_eq!(bench.woken(), [0; 0], "opening it changes nothing");
        bench.with(0, &["k"], |ks, keys| _ = ks.get_mut(&keys[0]).unwrap().unwrap().inline_mut());
        assert_eq!(bench.woken(), [1]);
        bench.with(0, &["k"], |ks, keys| _ = ks.set_expiry(&keys[0], Some(1)));
        assert_eq!(bench.woken(), [1]);
        let keys = [bench.store.hasher().key(b"k")];
        let found = bench.store.lock(&keys, 0, 5, true, &mut bench.resume).peek(&keys[0]);
        assert_eq!(found, Ok(None), "it has expired");
        assert_eq!(bench.woken(), [1]);
    }

    #[test]
    fn later_waiters_get_their_turn_after_one_that_blocked_them() {
        let mut bench = Bench::new();
        bench.put(0, "k", Kind::List);
        let first = bench.wait(0, &["k"], 1, LIST);
        bench.wait(0, &["k"], 2, LIST);
        bench.with(0, &["k"], |ks, keys| ks.pass_on(keys, first));
        assert_eq!(bench.woken(), [2]);
    }
}
