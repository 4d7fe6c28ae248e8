//! Owns analyses of a database's keys: which patterns, types and times to live there are, which keys are large, and which are used.
//! Never reads a value from flash, and so moves none: the key, type and tier of a value on flash are known without reading
//! the value, and its size on flash is estimated by the mean of all values there. Never works for more than a quarter of the
//! time.

use crate::clock::Clock;
use crate::error::ApiError;
use crate::link::{Link, number as int};
use crate::metrics::watch::Watch;
use crate::scan::{Filter, slice};
use crate::text::{Bytes, lossy, shown};
use node::{Database, Node};
use parking_lot::Mutex;
use resp::client::Value;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// Keys of one slice: some milliseconds of work, shared by this thread and the workers.
const SLICE_KEYS: usize = 500;
/// After a slice the thread pauses for so many times the slice's own duration.
const REST: u32 = 3;
/// The number of keys in the list of the largest, and in that of the most used.
const LISTED: usize = 50;
/// The most patterns that are counted separately. All further ones are counted as one.
const PATTERNS_MAX: usize = 2000;
/// The number of patterns that are shown: the largest ones.
const PATTERNS_SHOWN: usize = 100;
/// The first parts of a key, which make its pattern; the rest is individual to the key.
const PARTS_MAX: usize = 4;
const PATTERN_CHARS_MAX: usize = 120;
const OTHERS: &str = "(others)";
/// How use is measured.
const FREQUENCY: &str = "frequency";
const IDLE: &str = "idle";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum AnalysisState {
    Running,
    Done,
    Stopped,
    Failed,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Analysis {
    state: AnalysisState,
    db: u32,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Why it failed.
    failure: String,
    keys_total: u64,
    keys_done: u64,
    /// The average size of a value on flash. The `flash_bytes` of the groups are estimated with it.
    flash_bytes_each: u64,
    /// Keys grouped by a pattern of their names, such as `user:*:cart`. Only the largest groups.
    patterns: Vec<KeyGroup>,
    /// Keys grouped by what precedes the first colon in their names. Only the largest groups.
    prefixes: Vec<KeyGroup>,
    /// Keys grouped by their types.
    types: Vec<KeyGroup>,
    /// Keys grouped by their times to live. Only keys whose values are in RAM.
    ttls: Vec<TtlBand>,
    /// The keys with the largest values in RAM, the largest first.
    largest: Vec<ListedKey>,
    /// The most used keys whose values are in RAM, the most used first.
    hottest: Vec<ListedKey>,
    /// What `used` says of these keys: `frequency` (if the eviction policy is LFU) or `idle`.
    hottest_by: String,
}

#[derive(Clone, Debug, Default, Serialize, ToSchema)]
struct KeyGroup {
    name: String,
    keys: u64,
    keys_in_ram: u64,
    ram_bytes: u64,
    keys_on_flash: u64,
    /// Estimated: `keys_on_flash` times `flash_bytes_each`.
    flash_bytes: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct TtlBand {
    name: String,
    keys: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct ListedKey {
    key: Bytes,
    #[serde(rename = "type")]
    kind: String,
    bytes: u64,
    /// What OBJECT FREQ or OBJECT IDLETIME says: how often the key is used, or for how many seconds it was not used.
    used: u64,
}

/// The upper ends of the bands, in seconds.
const TTL_BANDS: [(u64, &str); 6] = [
    (60, "below a minute"),
    (3600, "below an hour"),
    (86_400, "below a day"),
    (604_800, "below a week"),
    (2_592_000, "below a month"),
    (u64::MAX, "longer"),
];
const NO_EXPIRY: &str = "no expiry";

/// The last analysis of each database.
pub struct Analyses {
    node: Arc<Node>,
    watch: Arc<Watch>,
    now_ms: Clock,
    runs: Mutex<BTreeMap<String, Arc<Run>>>,
}

struct Run {
    stop: AtomicBool,
    found: Mutex<Found>,
}

/// What was found so far.
struct Found {
    /// The result, except for the groups of keys, which are counted in the fields below.
    analysis: Analysis,
    patterns: HashMap<String, KeyGroup>,
    prefixes: HashMap<String, KeyGroup>,
    types: HashMap<String, KeyGroup>,
}

impl Analyses {
    pub fn new(node: Arc<Node>, watch: Arc<Watch>, now_ms: Clock) -> Analyses {
        Analyses { node, watch, now_ms, runs: Mutex::default() }
    }

    /// The last analysis of a database, with its progress.
    pub fn of(&self, database: &str) -> Option<Analysis> {
        let run = self.runs.lock().get(database).cloned()?;
        let found = run.found.lock();
        Some(found.shown())
    }

    /// Starts an analysis of a logical database, with the rights of a role. One at a time for each database.
    pub fn start(&self, database: Arc<Database>, role: node::Role, db: u32) -> Result<Analysis, ApiError> {
        // An unknown logical database is reported as an error here, before the thread starts.
        Link::open(&database, role, db)?;
        let run = Arc::new(Run { stop: AtomicBool::new(false), found: Mutex::new(Found::new(db, (self.now_ms)())) });
        {
            let mut runs = self.runs.lock();
            if runs.get(database.name()).is_some_and(|run| run.found.lock().analysis.state == AnalysisState::Running) {
                return Err(ApiError::busy("an analysis is running").hint("wait for it, or stop it"));
            }
            runs.retain(|name, _| self.node.database(name).is_some());
            runs.insert(database.name().to_owned(), Arc::clone(&run));
        }
        let begun = run.found.lock().shown();
        let (node, watch, now_ms) = (Arc::clone(&self.node), Arc::clone(&self.watch), Arc::clone(&self.now_ms));
        let work = move || {
            let outcome = go_over_keys(&node, &watch, &database, role, db, &run);
            let found = &mut run.found.lock().analysis;
            found.ended_ms = Some(now_ms());
            found.state = match &outcome {
                Ok(true) => AnalysisState::Done,
                Ok(false) => AnalysisState::Stopped,
                Err(_) => AnalysisState::Failed,
            };
            found.failure = outcome.err().map_or(String::new(), |error| error.message().to_owned());
        };
        std::thread::Builder::new()
            .name("flintkv-analysis".to_owned())
            .spawn(work)
            .map_err(|error| ApiError::failed(format!("cannot start a thread: {error}")))?;
        Ok(begun)
    }

    pub fn stop(&self, database: &str) -> Result<(), ApiError> {
        let run = self.runs.lock().get(database).cloned();
        run.ok_or_else(|| ApiError::not_found("there is no analysis"))?.stop.store(true, Relaxed);
        Ok(())
    }

    /// Stops all analyses, because the node ends.
    pub fn stop_all(&self) {
        self.runs.lock().values().for_each(|run| run.stop.store(true, Relaxed));
    }
}

impl Found {
    fn new(db: u32, now_ms: u64) -> Found {
        let bands = TTL_BANDS.iter().map(|(_, name)| *name).chain([NO_EXPIRY]);
        Found {
            analysis: Analysis {
                state: AnalysisState::Running,
                db,
                started_ms: now_ms,
                ended_ms: None,
                failure: String::new(),
                keys_total: 0,
                keys_done: 0,
                flash_bytes_each: 0,
                patterns: Vec::new(),
                prefixes: Vec::new(),
                types: Vec::new(),
                ttls: bands.map(|name| TtlBand { name: name.to_owned(), keys: 0 }).collect(),
                largest: Vec::new(),
                hottest: Vec::new(),
                hottest_by: IDLE.to_owned(),
            },
            patterns: HashMap::new(),
            prefixes: HashMap::new(),
            types: HashMap::new(),
        }
    }

    fn shown(&self) -> Analysis {
        let each = self.analysis.flash_bytes_each;
        let sorted = |groups: &HashMap<String, KeyGroup>, max: usize| {
            let mut groups: Vec<KeyGroup> = groups.values().cloned().collect();
            groups.iter_mut().for_each(|group| group.flash_bytes = group.keys_on_flash * each);
            groups.sort_by(|a, b| {
                (b.ram_bytes + b.flash_bytes, b.keys, &a.name).cmp(&(a.ram_bytes + a.flash_bytes, a.keys, &b.name))
            });
            groups.truncate(max);
            groups
        };
        Analysis {
            keys_total: self.analysis.keys_total.max(self.analysis.keys_done),
            patterns: sorted(&self.patterns, PATTERNS_SHOWN),
            prefixes: sorted(&self.prefixes, PATTERNS_SHOWN),
            types: sorted(&self.types, usize::MAX),
            ..self.analysis.clone()
        }
    }

    /// `bytes`: the size in RAM; `None`: the value is on flash.
    fn count(&mut self, key: &[u8], kind: &str, bytes: Option<u64>) {
        self.analysis.keys_done += 1;
        let text = shown(key);
        let names = [
            (&mut self.patterns, pattern(&text)),
            (&mut self.prefixes, prefix(&text)),
            (&mut self.types, kind.to_owned()),
        ];
        for (groups, name) in names {
            let name = if groups.len() < PATTERNS_MAX || groups.contains_key(&name) { name } else { OTHERS.to_owned() };
            // A look-up before an insertion: nearly every key has the pattern of an earlier key.
            let group = match groups.get_mut(&name) {
                Some(group) => group,
                None => groups.entry(name.clone()).or_insert(KeyGroup { name, ..KeyGroup::default() }),
            };
            group.keys += 1;
            match bytes {
                Some(bytes) => {
                    group.keys_in_ram += 1;
                    group.ram_bytes += bytes;
                }
                None => group.keys_on_flash += 1,
            }
        }
    }

    fn count_ttl(&mut self, ms: Option<u64>) {
        let band = match ms {
            Some(ms) => TTL_BANDS.iter().position(|(end, _)| ms / 1000 < *end).unwrap_or(TTL_BANDS.len() - 1),
            None => TTL_BANDS.len(),
        };
        self.analysis.ttls[band].keys += 1;
    }

    fn list(&mut self, key: &[u8], kind: &str, bytes: u64, used: u64) {
        let listed = || ListedKey { key: Bytes(key.to_vec()), kind: kind.to_owned(), bytes, used };
        keep(&mut self.analysis.largest, |key| u64::MAX - key.bytes, u64::MAX - bytes, listed);
        // The most used keys: those with the highest frequency, or with the shortest idle time.
        let by_frequency = self.analysis.hottest_by == FREQUENCY;
        let order = |used: u64| if by_frequency { u64::MAX - used } else { used };
        keep(&mut self.analysis.hottest, |key| order(key.used), order(used), listed);
    }
}

/// Inserts a key into a list that is sorted in ascending order, if it belongs to the first keys of the list.
fn keep(list: &mut Vec<ListedKey>, order: impl Fn(&ListedKey) -> u64, its: u64, key: impl FnOnce() -> ListedKey) {
    let place = list.partition_point(|other| order(other) <= its);
    if place < LISTED {
        list.insert(place, key());
        list.truncate(LISTED);
    }
}

/// The pattern of `user:1001:cart` is `user:*:cart`: parts that identify one item among many become a star.
fn pattern(key: &str) -> String {
    let mut parts: Vec<&str> = key.splitn(PARTS_MAX + 1, ':').collect();
    let goes_on = parts.len() > PARTS_MAX;
    parts.truncate(PARTS_MAX);
    let mut text: Vec<String> =
        parts.into_iter().map(|part| if is_own(part) { "*".into() } else { shape(part) }).collect();
    if goes_on {
        text.push("*".to_owned());
    }
    text.join(":").chars().take(PATTERN_CHARS_MAX).collect()
}

/// The first part, or the whole pattern of a key without parts.
fn prefix(key: &str) -> String {
    match key.split_once(':') {
        Some((first, _)) if !is_own(first) => format!("{}:*", shape(first)).chars().take(PATTERN_CHARS_MAX).collect(),
        Some(_) => "*:*".to_owned(),
        None => pattern(key),
    }
}

/// Whether the part is a number or a long identifier: hexadecimal digits, a UUID, base64.
fn is_own(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let all = |good: fn(&u8) -> bool| part.bytes().all(|byte| good(&byte));
    !part.is_empty()
        && (digits == part.len()
            || (part.len() >= 8 && digits > 0 && all(|byte| byte.is_ascii_hexdigit() || *byte == b'-'))
            || (part.len() >= 16 && digits > 0 && all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(byte))))
}

/// The shape of `memtier-00042` is `memtier-*`: the number at the end is individual to the key.
fn shape(part: &str) -> String {
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
    if name.len() == part.len() { part.to_owned() } else { format!("{name}*") }
}

/// Returns false if it was stopped.
fn go_over_keys(
    node: &Node,
    watch: &Watch,
    database: &Database,
    role: node::Role,
    db: u32,
    run: &Run,
) -> Result<bool, ApiError> {
    let filter = Filter::new(None, None)?;
    let mut cursor = "0".to_owned();
    let mut link = Link::open(database, role, db)?;
    loop {
        link.renew();
        let begun = Instant::now();
        {
            let now = watch.now(database.name());
            let value = |name: &str| now.get(name).copied().flatten().unwrap_or(0.0);
            let on_flash = value("values_in_flash");
            let total = int(&link.call(&[b"DBSIZE"])?).unwrap_or(0).unsigned_abs();
            let found = &mut run.found.lock().analysis;
            found.flash_bytes_each = if on_flash > 0.0 { (value("live_flash_bytes") / on_flash) as u64 } else { 0 };
            found.keys_total = total;
        }
        let slice = slice(&mut link, &cursor, &filter, SLICE_KEYS)?;
        look(&mut link, &slice.keys, run)?;
        cursor = slice.cursor;
        if cursor == "0" {
            return Ok(true);
        }
        if run.stop.load(Relaxed) || node.is_stopping() || node.database(database.name()).is_none() {
            return Ok(false);
        }
        std::thread::sleep((begun.elapsed() * REST).min(Duration::from_secs(1)));
    }
}

/// Asks for those properties of some keys that need no read from flash.
fn look(link: &mut Link, keys: &[Vec<u8>], run: &Run) -> Result<(), ApiError> {
    let asked: Vec<Vec<&[u8]>> =
        keys.iter().flat_map(|key| [vec![&b"OBJECT"[..], b"TIER", key], vec![&b"TYPE"[..], key]]).collect();
    let replies = link.pipeline(&asked)?;
    let text = |reply: &Value| match reply {
        Value::Bulk(text) | Value::Simple(text) => lossy(text),
        _ => String::new(),
    };
    // A key that was removed meanwhile has no tier.
    let facts = keys.iter().zip(replies.chunks(2)).map(|(key, facts)| (key, text(&facts[0]), text(&facts[1])));
    let facts: Vec<(&Vec<u8>, String, String)> = facts.filter(|(_, tier, _)| !tier.is_empty()).collect();
    let hot: Vec<&Vec<u8>> = facts.iter().filter(|(_, tier, _)| tier == "ram").map(|(key, ..)| *key).collect();
    let Some(first) = hot.first() else {
        let mut found = run.found.lock();
        facts.iter().for_each(|(key, _, kind)| found.count(key, kind, None));
        return Ok(());
    };
    let whole = |reply: &Value| int(reply).and_then(|number| u64::try_from(number).ok());
    // The eviction policy decides which of the two a database maintains.
    let by_frequency = whole(&link.ask(&[b"OBJECT", b"FREQ", first])?).is_some();
    let use_of = if by_frequency { &b"FREQ"[..] } else { b"IDLETIME" };
    let asked: Vec<Vec<&[u8]>> = hot
        .iter()
        .flat_map(|key| {
            [vec![&b"MEMORY"[..], b"USAGE", key], vec![&b"PTTL"[..], key], vec![&b"OBJECT"[..], use_of, key]]
        })
        .collect();
    let replies = link.pipeline(&asked)?;
    let mut details = replies.chunks(3);
    let mut found = run.found.lock();
    found.analysis.hottest_by = if by_frequency { FREQUENCY } else { IDLE }.to_owned();
    for (key, tier, kind) in facts {
        let Some(details) = (if tier == "ram" { details.next() } else { None }) else {
            found.count(key, &kind, None);
            continue;
        };
        let [bytes, ttl_ms, used] = [0, 1, 2].map(|at| whole(&details[at]));
        found.count(key, &kind, Some(bytes.unwrap_or(0)));
        found.count_ttl(ttl_ms);
        found.list(key, &kind, bytes.unwrap_or(0), used.unwrap_or(0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_patterns() {
        for (key, wanted) in [
            ("user:1001:cart", "user:*:cart"),
            ("session:9f86d081884c7d65", "session:*"),
            ("memtier-00042", "memtier-*"),
            ("config", "config"),
            ("a:b:c:d:e:f", "a:b:c:d:*"),
            ("7", "*"),
            ("", ""),
            ("job:6f1c1c1e-6b7a-4b8f-9a63-2f6f0a0c9a11", "job:*"),
        ] {
            assert_eq!(pattern(key), wanted, "{key}");
        }
        assert_eq!(
            (prefix("user:1001:cart"), prefix("17:x"), prefix("solo9")),
            ("user:*".into(), "*:*".into(), "solo*".into())
        );
    }

    #[test]
    fn groups_are_bounded_and_sorted() {
        let mut found = Found::new(0, 1);
        found.analysis.flash_bytes_each = 100;
        for number in 0..PATTERNS_MAX + 500 {
            let letters: String = number.to_string().bytes().map(|digit| (b'a' + digit - b'0') as char).collect();
            found.count(format!("{letters}:x").as_bytes(), "string", Some(1));
        }
        (0..50).for_each(|number| found.count(format!("cold:{number}").as_bytes(), "hash", None));
        assert_eq!(found.patterns.len(), PATTERNS_MAX + 1);
        let shown = found.shown();
        assert_eq!((shown.patterns[0].name.as_str(), shown.patterns.len()), (OTHERS, PATTERNS_SHOWN));
        let hash = shown.types.iter().find(|group| group.name == "hash").unwrap();
        assert_eq!((hash.keys_on_flash, hash.flash_bytes, hash.ram_bytes), (50, 5000, 0));
        for (ms, band) in [(Some(59_999), 0), (Some(60_000), 1), (Some(u64::MAX), 5), (None, 6)] {
            let before = found.analysis.ttls[band].keys;
            found.count_ttl(ms);
            assert_eq!(found.analysis.ttls[band].keys, before + 1, "{ms:?}");
        }
    }

    #[test]
    fn the_largest_and_the_most_used_are_listed_in_their_order() {
        let mut found = Found::new(0, 1);
        // 0, 37, 74, 11 …: each number below 100 once.
        for number in (0..100).map(|number| number * 37 % 100) {
            found.list(number.to_string().as_bytes(), "string", number, number);
        }
        let numbers = |list: &[ListedKey]| list.iter().map(|key| key.used).collect::<Vec<_>>();
        assert_eq!(numbers(&found.analysis.largest), (50..100).rev().collect::<Vec<_>>());
        // The keys with the shortest idle time.
        assert_eq!(numbers(&found.analysis.hottest), (0..50).collect::<Vec<_>>());
        found.analysis.hottest_by = FREQUENCY.to_owned();
        found.analysis.hottest.clear();
        (0..100).for_each(|number| found.list(b"key", "string", 1, number));
        assert_eq!(numbers(&found.analysis.hottest), (50..100).rev().collect::<Vec<_>>());
    }
}
