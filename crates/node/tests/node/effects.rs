//! Several connections change the same keys of one node: with single commands, in transactions, in scripts and
//! functions, and blocked, while keys and fields expire. The effects, applied to an empty store in their order, must
//! give the node's digest. This is tested with all data in RAM, with all data on flash, and while keys are evicted.
//!
//! `FLINTKV_SEED` gives the connections the same commands again, but not the same order between connections.
//! `FLINTKV_TEST_SECONDS` makes more runs.

use crate::common::harness::replay::{Replay, Stated, digest};
use crate::common::{Client, Node, eventually, shown};
use base::clock::wall_ms;
use commands::table;
use commands::{Args, Keys};
use flintkv_tests::generator::Writes;
use resp::Span;
use resp::client::{Value, encode_command, parse_value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file in the node's `state-dir` that asks the node to keep effects. The node removes it when it has started to
/// keep them.
const WANTED: &str = "keep-effects";
/// The file of the kept effects. Each effect is a RESP command: reason, database, time, command.
const KEPT: &str = "effects";

/// Runs in the node's process.
pub fn keep(node: &Arc<node::Node>, folder: &Path) {
    if !folder.join(WANTED).exists() {
        return;
    }
    let file = Mutex::new(File::create(folder.join(KEPT)).unwrap());
    let database = node.database(node::DEFAULT_NAME).expect("the default database");
    database.set_change_log(Arc::new(move |effects: &store::Effects| {
        let mut bytes = Vec::new();
        for effect in effects.iter() {
            let (why, db, now_ms) = (format!("{:?}", effect.why), effect.db.to_string(), effect.now_ms.to_string());
            let head = [why.as_bytes(), db.as_bytes(), now_ms.as_bytes()];
            encode_command(&head.into_iter().chain(effect.words()).collect::<Vec<_>>(), &mut bytes);
        }
        file.lock().unwrap().write_all(&bytes).unwrap();
    }));
    fs::remove_file(folder.join(WANTED)).unwrap();
}

/// The effects that a node has kept. The file is read further as it grows.
struct RecordedEffects {
    path: PathBuf,
    read: usize,
}

impl RecordedEffects {
    fn bytes(&self) -> usize {
        fs::metadata(&self.path).unwrap().len() as usize
    }

    /// Replays the effects up to the moment when the file was `bytes` long.
    fn repeat(&mut self, bytes: usize, replay: &mut Replay, what: &str) {
        let file = fs::read(&self.path).unwrap();
        let kept = &file[..bytes];
        while let Some((value, consumed)) = parse_value(&kept[self.read..]).expect("effects as they were written") {
            self.read += consumed;
            let Value::Array(items) = value else { panic!("an effect, not {value:?}") };
            let mut words = items.into_iter().map(|item| match item {
                Value::Bulk(bytes) => bytes,
                other => panic!("a word, not {other:?}"),
            });
            let mut head = || String::from_utf8(words.next().unwrap()).unwrap();
            let (why, db, now_ms) = (head(), head().parse().unwrap(), head().parse().unwrap());
            replay.repeat(Stated { why, db, now_ms, words: words.collect() }, what);
        }
        assert_eq!(self.read, bytes, "whole effects");
    }
}

/// Connections that change values of all kinds, and connections that block on keys which are mostly empty.
const CLIENTS: u64 = 5;
const WAITERS: u64 = 4;
/// How long a node runs commands between two comparisons, and how many comparisons there are.
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: u64 = 2;
/// Keys that only fill RAM.
const FILLERS: usize = 4000;
/// The longest of the short expiries. The other expiries are a day away.
const SHORT_MS: u64 = 1000;

/// Blocking commands. [`SERVES`] serve them, and so do the moves of other blocked commands.
const WAITS: &[&str] = &[
    "{BLPOP|BRPOP} wl0 wl1 0.1",
    "{BLPOP|BRPOP} wl1 wl2 0.1",
    "BLMOVE wl0 {wl1|wl2|l1} {LEFT|RIGHT} {LEFT|RIGHT} 0.1",
    "BRPOPLPUSH wl1 {wl0|wl2|wl1} 0.1",
    "BLMPOP 0.1 2 wl2 wl0 {LEFT|RIGHT} {|COUNT_3}",
    "{BZPOPMIN|BZPOPMAX} wz0 wz1 0.1",
    "BZMPOP 0.1 2 wz1 wz0 {MIN|MAX} {|COUNT_3}",
    "XREADGROUP GROUP $gr $co {|COUNT_2} BLOCK 100 {|NOACK} STREAMS wx0 wx1 > >",
    "XREADGROUP GROUP group0 $co BLOCK 100 STREAMS x0 >",
];

const SERVES: &[&str] = &[
    "{RPUSH|LPUSH} {wl0|wl1|wl2} *3:$v",
    "LMOVE {wl0|l0|l1} {wl0|wl1|wl2} LEFT RIGHT",
    "RENAME {l0|l1} {wl0|wl1|wl2}",
    "SORT {l0|s0} ALPHA LIMIT 0 3 STORE {wl0|wl1}",
    "ZADD {wz0|wz1} *3:$q,$m",
    "ZRANGESTORE {wz0|wz1} $z 0 3",
    "XADD {wx0|wx1} MAXLEN 20 * $f $v",
    "XADD {wx0|wx1} * $f $v",
    "XGROUP CREATE {wx0|wx1} $gr $ MKSTREAM",
    "XGROUP DESTROY {wx0|wx1} $gr",
    "DEL {wl0|wl1|wl2|wz0|wz1|wx0}",
    "PEXPIRE {wl0|wl1|wl2|wz0|wz1|wx1} {1|20}",
];

/// Runs the commands in its arguments. For each: the way to call it, the number of words, the words. The last
/// argument may make the script end with an error.
const BODY: &str = "
    local i = 1
    while i <= #args do
        if args[i] == 'fail' then error('it ends in an error') end
        local count = tonumber(args[i + 1])
        redis[args[i]](unpack(args, i + 2, i + 1 + count))
        i = i + 2 + count
    end
    return 'done'";

fn script() -> String {
    format!("local args = ARGV {BODY}")
}

fn library() -> String {
    format!("#!lua name=proof\nredis.register_function('run', function(keys, args) {BODY} end)")
}

/// One connection, and counts of what its commands led to.
struct Changer {
    client: Client,
    writes: Writes,
    /// The bytes of each key that only fills RAM; 0: there are no such keys.
    filler_bytes: usize,
    came_to: BTreeMap<&'static str, usize>,
}

impl Changer {
    fn count(&mut self, what: &'static str) {
        *self.came_to.entry(what).or_default() += 1;
    }

    fn send(&mut self, words: &[Vec<u8>]) -> Value {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.client.value(&words).expect("the connection stays open")
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        match self.writes.random.one_in(5) {
            true => self.writes.of(SERVES, wall_ms()),
            false => self.writes.command(wall_ms()),
        }
    }

    fn commands(&mut self) -> Vec<Vec<Vec<u8>>> {
        (0..=self.writes.random.below(5)).map(|_| self.command()).collect()
    }

    fn wait(&mut self) {
        let command = self.writes.of(WAITS, wall_ms());
        match self.send(&command) {
            Value::Null | Value::NullArray => self.count("waits that ended by their time"),
            // The stream's group may be missing.
            Value::Error(_) => {
                let group = self.writes.of(&["XGROUP CREATE {wx0|wx1|x0} $gr $ MKSTREAM"], wall_ms());
                self.send(&group);
            }
            _ => self.count("waits that were served"),
        }
    }

    fn step(&mut self) {
        if self.filler_bytes > 0 && self.writes.random.one_in(3) {
            let key = format!("filler{}", self.writes.random.below(FILLERS));
            let value = vec![b'f'; self.filler_bytes];
            self.send(&[b"SET".to_vec(), key.into_bytes(), value]);
        }
        match self.writes.random.below(20) {
            0..8 => {
                let command = self.command();
                self.send(&command);
            }
            8..12 => self.transaction(),
            12..16 => self.script(b"EVAL", script().as_bytes()),
            16..18 => self.script(b"FCALL", b"run"),
            18 => {
                let select = self.writes.of(&["SELECT $db"], wall_ms());
                self.send(&select);
            }
            // All of these commands wait for flash together, and are rehearsed.
            _ => {
                let mut bytes = Vec::new();
                let commands = self.commands();
                for command in &commands {
                    encode_command(&command.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
                }
                self.client.send(&bytes);
                commands.iter().for_each(|_| drop(self.client.reply().expect("the connection stays open")));
            }
        }
    }

    fn transaction(&mut self) {
        if self.writes.random.one_in(3) {
            let watch = self.writes.of(&["WATCH $a $a"], wall_ms());
            self.send(&watch);
            let between = self.command();
            self.send(&between);
        }
        self.client.run("MULTI");
        for command in self.commands() {
            self.send(&command);
        }
        match self.client.run(if self.writes.random.one_in(10) { "DISCARD" } else { "EXEC" }).as_str() {
            "OK" => self.count("transactions given up"),
            "(nil)" => self.count("transactions whose keys had changed"),
            reply if reply.starts_with("(error)") => self.count("transactions refused"),
            reply if reply.contains("(error)") => self.count("transactions with an error"),
            _ => self.count("transactions"),
        }
    }

    fn script(&mut self, how: &[u8], what: &[u8]) {
        let commands = self.commands();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut args = Vec::new();
        let declares = self.writes.random.one_in(2);
        for command in &commands {
            if declares {
                keys.extend(keys_of(command));
            }
            let call = if self.writes.random.one_in(2) { "call" } else { "pcall" };
            args.extend([call.as_bytes().to_vec(), command.len().to_string().into_bytes()]);
            args.extend(command.iter().cloned());
        }
        if self.writes.random.one_in(5) {
            args.push(b"fail".to_vec());
        }
        let mut words = vec![how.to_vec(), what.to_vec(), keys.len().to_string().into_bytes()];
        words.extend(keys);
        words.extend(args);
        match self.send(&words) {
            Value::Error(text) => {
                assert!(!text.starts_with(b"ERR Function not found"), "{}", text.escape_ascii());
                self.count("scripts that ended in an error");
            }
            _ => self.count("scripts"),
        }
    }
}

fn keys_of(command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let Some(row) = table::find(&command[0]) else { return Vec::new() };
    let row = command.get(1).and_then(|word| table::find_subcommand(row, word)).unwrap_or(row);
    if matches!(row.keys, Keys::None) {
        return Vec::new();
    }
    let (bytes, mut spans) = (command.concat(), Vec::new());
    for word in command {
        let start = spans.last().map_or(0, |span: &Span| span.start + span.len);
        spans.push(Span { start, len: word.len() as u32 });
    }
    let mut positions = Vec::new();
    row.keys.positions(&Args::new(&bytes, &spans), &mut positions);
    positions.into_iter().map(|at| command[at].clone()).collect()
}

/// Checks that nodes' effects give the nodes' digests. Returns the counts of effects and of outcomes.
fn prove(directives: &[(&str, &str)], filler_bytes: usize) -> BTreeMap<String, usize> {
    let mut met = BTreeMap::new();
    seeds::each(20_261_122, 1, |seed| run(seed, directives, filler_bytes, &mut met));
    for what in [
        "effects of Command",
        "effects of Script",
        "effects of Expired",
        "scripts",
        "scripts that ended in an error",
        "transactions",
        "transactions with an error",
        "waits that were served",
    ] {
        assert!(met.contains_key(what), "no {what} in {met:#?}");
    }
    met
}

fn run(seed: u64, directives: &[(&str, &str)], filler_bytes: usize, met: &mut BTreeMap<String, usize>) {
    let directory = tempfile::tempdir().unwrap();
    let flash = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::create_dir_all(&state).unwrap();
    File::create(state.join(WANTED)).unwrap();
    let flash = flash.path().to_str().unwrap();
    let mut all = vec![
        ("dir", directory.path().to_str().unwrap()),
        ("state-dir", "state"),
        ("io-threads", "2"),
        ("enable-debug-command", "yes"),
    ];
    all.extend(directives.iter().map(|&(name, value)| (name, if value == "FLASH" { flash } else { value })));
    let node = Node::start(&all);
    eventually("the node keeps effects", || !state.join(WANTED).exists());
    let mut client = node.connect();
    let loaded = client.value(&[b"FUNCTION", b"LOAD", library().as_bytes()]).map(|reply| shown(&reply));
    assert_eq!(loaded.as_deref(), Some("\"proof\""));

    // However slow the machine is, RAM must be full before the first round.
    if filler_bytes > 0 {
        let value = vec![b'f'; filler_bytes];
        let mut fillers = (0..FILLERS).cycle();
        eventually("keys are evicted", || {
            for at in fillers.by_ref().take(50) {
                client.value(&[b"SET", format!("filler{at}").as_bytes(), &value]);
            }
            client.info("stats", "evicted_keys") != "0"
        });
    }

    let (mut kept, mut replay) = (RecordedEffects { path: state.join(KEPT), read: 0 }, Replay::new());
    for round in 0..ROUNDS {
        let what = format!("FLINTKV_SEED={seed}, round {round}");
        let until = Instant::now() + ROUND;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS + WAITERS)
                .map(|at| {
                    let mut changer = Changer {
                        client: node.connect(),
                        writes: Writes::new(seed + 100 * round + at),
                        filler_bytes,
                        came_to: BTreeMap::new(),
                    };
                    scope.spawn(move || {
                        while Instant::now() < until {
                            if at < CLIENTS { changer.step() } else { changer.wait() }
                        }
                        changer.came_to
                    })
                })
                .collect();
            for thread in threads {
                for (what, times) in thread.join().unwrap() {
                    *met.entry(what.to_owned()).or_default() += times;
                }
            }
        });
        let ended_ms = wall_ms();
        eventually("short expiries are over", || wall_ms() > ended_ms + SHORT_MS);
        let mut ask = |words: &[&[u8]]| client.value(words).map_or("(closed)".to_owned(), |reply| shown(&reply));
        // Keys may still be evicted. So repeat until digest and effects are of the same moment.
        let (digest, now_ms, bytes) = loop {
            let (bytes, now_ms, digest) = (kept.bytes(), wall_ms(), digest(&mut ask));
            if bytes == kept.bytes() {
                break (digest, now_ms, bytes);
            }
        };
        kept.repeat(bytes, &mut replay, &what);
        replay.assert_same(&digest, &mut ask, now_ms, &what);
    }
    for done in replay.done() {
        *met.entry(format!("effects of {}", done.why)).or_default() += 1;
    }
}

#[test]
fn effects_of_several_connections_give_the_node_s_digest() {
    prove(&[], 0);
}

#[test]
fn effects_of_several_connections_give_the_node_s_digest_while_all_is_on_flash() {
    prove(
        &[
            ("flash-path", "FLASH"),
            ("memory-limit", "120mb"),
            ("ram-limit", "64mb"),
            ("flash-split-size", "1kb"),
            ("debug-tier-mode", "cold"),
        ],
        0,
    );
}

#[test]
fn effects_of_several_connections_give_the_node_s_digest_while_keys_are_evicted() {
    let met = prove(&[("maxmemory", "48mb"), ("maxmemory-policy", "allkeys-lru")], 50_000);
    assert!(met.contains_key("effects of Evicted"), "{met:#?}");
}
