//! Owns repeating effects on an empty store, and comparing that store with the first one. Never knows where the effects
//! come from.

use super::Harness;
use flintkv_tests::compare::assert_same;
use store::digest::DatasetDigest;
use store::{Effect, Effects};
use value::list::Limit;

/// An effect, owned.
pub struct Stated {
    pub why: String,
    pub db: usize,
    pub now_ms: u64,
    pub words: Vec<Vec<u8>>,
}

impl Stated {
    pub fn of(effect: Effect<'_>) -> Stated {
        let words = effect.words().map(<[u8]>::to_vec).collect();
        Stated { why: format!("{:?}", effect.why), db: effect.db, now_ms: effect.now_ms, words }
    }

    /// `key` as [`super::text::Text`] writes it.
    fn concerns(&self, key: &str) -> bool {
        let of_all: [&[u8]; 3] = [b"FLUSHDB", b"FLUSHALL", b"SWAPDB"];
        of_all.iter().any(|name| name.eq_ignore_ascii_case(&self.words[0]))
            || self.words[1..].iter().any(|word| word.escape_ascii().to_string() == key)
    }
}

impl std::fmt::Display for Stated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let words: String = words.join(" ").chars().take(300).collect();
        write!(f, "{} db{} {}: {words}", self.why, self.db, self.now_ms)
    }
}

/// Show the effects on at most this many keys that differ, and for each of them at most as many effects.
const SHOWN: usize = 15;

/// A store on which effects are repeated.
pub struct Replay {
    there: Harness,
    done: Vec<Stated>,
}

impl Replay {
    /// The replay has settings of its own, because nothing may depend on settings. HyperLogLogs stay sparse until an
    /// effect makes them dense.
    pub fn new() -> Replay {
        let mut there = Harness::new();
        there.settings.hash_max_listpack_entries = 2;
        there.settings.zset_max_listpack_entries = 2;
        there.settings.set_max_intset_entries = 1;
        there.settings.set_max_listpack_entries = 1;
        there.settings.list_limit = Limit::of(2);
        there.settings.stream_node_max_entries = 2;
        there.settings.hll_sparse_max_bytes = usize::MAX;
        Replay { there, done: Vec::new() }
    }

    /// How many effects were repeated.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    pub fn done(&self) -> impl Iterator<Item = &Stated> {
        self.done.iter()
    }

    /// Runs each effect in its database, at its time.
    pub fn repeat_all(&mut self, groups: &[Effects], what: &str) {
        for stated in groups.iter().flat_map(Effects::iter).map(Stated::of) {
            (self.there.session.db, self.there.now_ms) = (stated.db, stated.now_ms);
            let words: Vec<&[u8]> = stated.words.iter().map(Vec::as_slice).collect();
            let reply = self.there.words(&words);
            assert!(!reply.starts_with("(error)"), "{what}: {stated}: {reply}");
            self.done.push(stated);
        }
    }

    /// This store holds what the first one does.
    pub fn compare(&mut self, here: &mut Harness, what: &str) {
        // What has expired, and is still there, counts: whoever removes it says so. Not with flash: a copy there keeps fields that
        // have expired, and whoever reads it removes them again.
        let now_ms = if here.store.has_flash() { here.now_ms } else { 0 };
        self.there.now_ms = here.now_ms;
        let (ours, theirs) = (state(here, now_ms), state(&mut self.there, now_ms));
        if ours == theirs {
            return;
        }
        let (our_text, their_text) = (here.text().0, self.there.text().0);
        let differs = |key: &&String| our_text.get(*key) != their_text.get(*key);
        for key in our_text.keys().chain(their_text.keys()).filter(differs).take(SHOWN) {
            let name = key.split_once(' ').map_or("", |(_, name)| name);
            let last: Vec<&Stated> = self.done.iter().rev().filter(|done| done.concerns(name)).take(SHOWN).collect();
            last.iter().rev().for_each(|done| eprintln!("{key}: {done}"));
        }
        assert_same(&our_text, &their_text, &format!("{what}: the effects give another dataset"));
        assert_eq!(ours, theirs, "{what}");
    }
}

/// The digest of what has not expired by then, and the number of keys in each logical database: those that have expired and are still
/// there count, since a replica would keep them for ever if nobody said that they go.
fn state(here: &mut Harness, now_ms: u64) -> (DatasetDigest, Vec<String>) {
    let db = here.session.db;
    let sizes = (0..16).map(|db| {
        here.session.db = db;
        here.run("DBSIZE")
    });
    let sizes = sizes.collect();
    here.session.db = db;
    (here.digest(now_ms), sizes)
}
