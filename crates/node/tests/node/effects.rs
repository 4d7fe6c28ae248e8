//! Several connections change the same keys of one node: with single commands, in transactions, in scripts and
//! functions, and blocked, while keys and fields expire. A replica, which gets the effects as they are stated, and the
//! node itself, which is killed and gets them from its journal, must have the same dataset. This is tested with all data
//! in RAM, with all data on flash, and while keys are evicted.
//!
//! `FLINTKV_SEED` gives the connections the same commands again, but not the same order between connections.
//! `FLINTKV_TEST_SECONDS` makes more runs.

use crate::common::{Client, Node, eventually, shown};
use crate::persist::{digest, kill, loaded, with};
use crate::replica::{are_same, follow};
use base::clock::wall_ms;
use commands::table;
use commands::{Args, Keys};
use flintkv_tests::compare::assert_same_dataset;
use flintkv_tests::generator::Writes;
use resp::Span;
use resp::client::{Value, encode_command};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Small enough that values change their encoding.
const SMALL: &[(&str, &str)] = &[
    ("io-threads", "2"),
    ("hash-max-listpack-entries", "6"),
    ("zset-max-listpack-entries", "6"),
    ("stream-node-max-entries", "4"),
    ("maxmemory-policy", "allkeys-lru"),
];

/// The replica has settings of its own, because no effect may depend on settings. HyperLogLogs stay sparse until an effect makes
/// them dense.
const OTHERS: &[(&str, &str)] = &[
    ("enable-debug-command", "yes"),
    ("hash-max-listpack-entries", "2"),
    ("zset-max-listpack-entries", "2"),
    ("set-max-intset-entries", "1"),
    ("set-max-listpack-entries", "1"),
    ("list-max-listpack-size", "2"),
    ("stream-node-max-entries", "2"),
    ("hll-sparse-max-bytes", "15000"),
];

/// Connections that change values of all kinds, and connections that block on keys which are mostly empty.
const CLIENTS: u64 = 5;
const WAITERS: u64 = 4;
/// How long a node runs commands between two comparisons, and how many comparisons there are.
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: u64 = 2;
/// Keys that only fill RAM.
const FILLERS: usize = 4000;
const FILLER_BYTES: usize = 50_000;
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
    /// Also sets keys that only fill RAM.
    fills: bool,
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
        if self.fills && self.writes.random.one_in(3) {
            let key = format!("filler{}", self.writes.random.below(FILLERS));
            let value = vec![b'f'; FILLER_BYTES];
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

/// How many keys each logical database has. Those that have expired count until they are removed.
fn sizes(client: &mut Client) -> Vec<String> {
    let sizes = (0..16).map(|db| {
        client.run(&format!("SELECT {db}"));
        client.run("DBSIZE")
    });
    let sizes = sizes.collect();
    client.run("SELECT 0");
    sizes
}

/// Checks the effects of nodes. Returns how often what was met.
fn prove(directives: &[(&str, &str)], evicts: bool) -> BTreeMap<&'static str, usize> {
    let mut met = BTreeMap::new();
    seeds::each(20_261_122, 1, |seed| run(seed, directives, evicts, &mut met));
    for what in [
        "expired_keys",
        "scripts",
        "scripts that ended in an error",
        "transactions",
        "transactions with an error",
        "waits that were served",
    ] {
        assert!(met.get(what).is_some_and(|&times| times > 0), "no {what} in {met:#?}");
    }
    met
}

fn run(seed: u64, directives: &[(&str, &str)], evicts: bool, met: &mut BTreeMap<&'static str, usize>) {
    let directives = with(&[SMALL, directives].concat());
    let (mut node, other) = (Node::start(&directives), Node::start(OTHERS));
    let mut replica = other.connect();
    let loaded_library = node.connect().value(&[b"FUNCTION", b"LOAD", library().as_bytes()]).map(|reply| shown(&reply));
    assert_eq!(loaded_library.as_deref(), Some("\"proof\""));
    for round in 0..ROUNDS {
        let mut client = node.connect();
        follow(&mut replica, node.port);
        if evicts {
            fill(&mut client);
        }
        let until = Instant::now() + ROUND;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS + WAITERS)
                .map(|at| {
                    let mut changer = Changer {
                        client: node.connect(),
                        writes: Writes::new(seed + 100 * round + at),
                        fills: evicts,
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
            client.run("BGREWRITEAOF");
            for thread in threads {
                for (what, times) in thread.join().unwrap() {
                    *met.entry(what).or_default() += times;
                }
            }
        });
        // From here on nothing changes: no key is evicted, and none of the short expiries is left.
        assert_eq!(client.run("CONFIG SET maxmemory 0"), "OK");
        let ended_ms = wall_ms();
        eventually("short expiries are over", || wall_ms() > ended_ms + SHORT_MS);
        are_same(&mut client, &mut replica);
        eventually("the replica has removed what has expired", || sizes(&mut client) == sizes(&mut replica));
        for figure in ["expired_keys", "evicted_keys"] {
            *met.entry(figure).or_default() += client.info_number("stats", figure) as usize;
        }
        let before = digest(&mut client);
        node = kill(node, &directives);
        let mut client = loaded(&node);
        if digest(&mut client) != before {
            assert_same_dataset(&mut client, &mut replica);
            panic!("FLINTKV_SEED={seed}, round {round}: after the kill, the same keys and values have another digest");
        }
    }
}

/// However slow the machine is, RAM must be full before a round.
fn fill(client: &mut Client) {
    assert_eq!(client.run("CONFIG SET maxmemory 48mb"), "OK");
    let (value, mut fillers) = (vec![b'f'; FILLER_BYTES], (0..FILLERS).cycle());
    eventually("keys are evicted", || {
        for at in fillers.by_ref().take(50) {
            client.value(&[b"SET", format!("filler{at}").as_bytes(), &value]);
        }
        client.info("stats", "evicted_keys") != "0"
    });
}

#[test]
fn effects_of_several_connections_repeat_the_dataset() {
    prove(&[], false);
}

#[test]
fn effects_of_several_connections_repeat_the_dataset_while_all_is_on_flash() {
    let directives = [
        ("flash-path", "flash"),
        ("memory-limit", "120mb"),
        ("ram-limit", "64mb"),
        ("flash-split-size", "1kb"),
        ("debug-tier-mode", "cold"),
    ];
    prove(&directives, false);
}

#[test]
fn effects_of_several_connections_repeat_the_dataset_while_keys_are_evicted() {
    let met = prove(&[], true);
    assert!(met["evicted_keys"] > 100, "{met:#?}");
}
