//! Owns repeating effects on an empty store, and comparing that store with the first one. Never knows where the effects
//! come from.

use super::Harness;
use std::collections::BTreeMap;
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

    fn concerns(&self, key: &[u8]) -> bool {
        let of_all: [&[u8]; 3] = [b"FLUSHDB", b"FLUSHALL", b"SWAPDB"];
        of_all.iter().any(|name| name.eq_ignore_ascii_case(&self.words[0]))
            || self.words[1..].iter().any(|word| word == key)
    }
}

impl std::fmt::Display for Stated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let words: String = words.join(" ").chars().take(300).collect();
        write!(f, "{} db{} {}: {words}", self.why, self.db, self.now_ms)
    }
}

/// Runs a command on one of the two stores. Returns the reply as redis-cli prints it.
pub type Ask<'a> = &'a mut dyn FnMut(&[&[u8]]) -> String;

/// For a key that differs, show at most this many effects.
const SHOWN: usize = 15;
/// And at most this many characters of their values.
const SHOWN_CHARS: usize = 3000;

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

    pub fn repeat_all(&mut self, groups: &[Effects], what: &str) {
        groups.iter().flat_map(Effects::iter).for_each(|effect| self.repeat(Stated::of(effect), what));
    }

    /// Runs an effect in its database, at its time.
    pub fn repeat(&mut self, stated: Stated, what: &str) {
        (self.there.session.db, self.there.now_ms) = (stated.db, stated.now_ms);
        let words: Vec<&[u8]> = stated.words.iter().map(Vec::as_slice).collect();
        let reply = self.there.words(&words);
        assert!(!reply.starts_with("(error)"), "{what}: {stated}: {reply}");
        self.done.push(stated);
    }

    /// [`Replay::assert_same`] for a first store that is in this process.
    pub fn compare(&mut self, here: &mut Harness, what: &str) {
        // At a moment at which nothing has expired, so that what has, and is still there, counts: whoever removes it says so.
        // Not with flash: a copy there keeps fields that have expired, and whoever reads it removes them again.
        let (now_ms, db) = (here.now_ms, here.session.db);
        if !here.store.has_flash() {
            here.now_ms = 0;
        }
        let compared_ms = here.now_ms;
        let digest = digest(&mut |words| here.words(words));
        self.assert_same(&digest, &mut |words| here.words(words), compared_ms, what);
        (here.now_ms, here.session.db) = (now_ms, db);
    }

    /// The first store holds what this one does: each stripe has the same digest. `digest` is the first one's [`digest`]; what
    /// has expired by `now_ms` does not count. Where they differ, `here` is asked for its keys.
    pub fn assert_same(&mut self, digest: &str, here: Ask<'_>, now_ms: u64, what: &str) {
        self.there.now_ms = now_ms;
        let theirs = self::digest(&mut |words| self.there.words(words));
        if digest == theirs {
            return;
        }
        let sizes = |digest: &str| digest.lines().filter(|line| line.contains(": ")).collect::<Vec<_>>().join("; ");
        let sizes = format!("keys here {}\nkeys there {}", sizes(digest), sizes(&theirs));
        let (ours, theirs) = (dataset(here), dataset(&mut |words| self.there.words(words)));
        let mut report = format!("{what}: the effects give another dataset\n{sizes}\n");
        let mut keys: Vec<_> =
            ours.keys().chain(theirs.keys()).filter(|key| ours.get(*key) != theirs.get(*key)).collect();
        keys.sort();
        keys.dedup();
        for &(db, ref key) in keys {
            let shown = |found: Option<&String>| match found {
                None => "nothing".to_owned(),
                Some(text) => text.chars().take(SHOWN_CHARS).collect::<String>(),
            };
            let place = (db, key.clone());
            report += &format!("\nkey {} in database {db}\nis {}\n", key.escape_ascii(), shown(ours.get(&place)));
            report += &format!("and by its effects {}\nafter\n", shown(theirs.get(&place)));
            let last: Vec<&Stated> = self.done.iter().rev().filter(|done| done.concerns(key)).take(SHOWN).collect();
            last.iter().rev().for_each(|done| report += &format!("  {done}\n"));
        }
        panic!("{report}");
    }
}

/// The digests of the stripes from DEBUG FLINT-DIGEST (functions are not part of them), and the number of keys in each
/// logical database. Expired keys that are still there count: whoever removes one must state that, or a replica would
/// keep it for ever. The last database stays selected.
pub fn digest(ask: Ask<'_>) -> String {
    let reply = ask(&[b"DEBUG", b"FLINT-DIGEST", b"STRIPES"]);
    let (_, stripes) = reply.split_once("\"stripes\"").unwrap_or_else(|| panic!("no digest: {reply}"));
    let mut digest = stripes.to_owned();
    for db in 0..16 {
        ask(&[b"SELECT", db.to_string().as_bytes()]);
        digest += &format!("\n{db}: {}", ask(&[b"DBSIZE"]));
    }
    digest
}

/// The content of a store as text, by logical database and key.
fn dataset(ask: Ask<'_>) -> BTreeMap<(usize, Vec<u8>), String> {
    let mut dataset = BTreeMap::new();
    for db in 0..16 {
        ask(&[b"SELECT", db.to_string().as_bytes()]);
        let keys = ask(&[b"KEYS", b"*"]);
        for key in keys.lines().filter_map(quoted) {
            let shown = describe(ask, &key);
            if !shown.starts_with("none") {
                dataset.insert((db, key), shown);
            }
        }
    }
    dataset
}

/// The quoted string at the end of a line of redis-cli's output.
fn quoted(line: &str) -> Option<Vec<u8>> {
    let (_, text) = line.split_once(") ")?;
    super::words(text).pop()
}

fn describe(ask: Ask<'_>, key: &[u8]) -> String {
    let kind = ask(&[b"TYPE", key]);
    let value = match kind.as_str() {
        "string" => ask(&[b"GET", key]),
        "list" => ask(&[b"LRANGE", key, b"0", b"-1"]),
        "zset" => ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
        "set" => sorted(&ask(&[b"SMEMBERS", key])),
        "hash" => {
            let mut fields: Vec<Vec<u8>> = ask(&[b"HKEYS", key]).lines().filter_map(quoted).collect();
            fields.sort();
            let mut shown = String::new();
            for field in fields {
                shown += &format!("{} {}", field.escape_ascii(), ask(&[b"HGET", key, &field]));
                shown += &format!(" {}\n", ask(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", &field]));
            }
            shown
        }
        "stream" => described_stream(&ask(&[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])),
        _ => String::new(),
    };
    format!("{kind} until {}\n{value}", ask(&[b"PEXPIRETIME", key]))
}

fn sorted(lines: &str) -> String {
    let mut items: Vec<&str> = lines.lines().filter_map(|line| line.split_once(") ").map(|(_, item)| item)).collect();
    items.sort_unstable();
    items.join("\n")
}

/// Without what is not part of the digest: chunks, and when consumers were seen.
fn described_stream(shown: &str) -> String {
    let left_out = ["radix-tree-keys", "radix-tree-nodes", "seen-time", "active-time"];
    let mut skip = false;
    let lines = shown.lines().filter(|line| {
        let was_name = std::mem::replace(&mut skip, left_out.iter().any(|name| line.contains(name)));
        !(was_name || skip)
    });
    lines.map(|line| format!("{line}\n")).collect()
}
