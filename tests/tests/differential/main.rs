//! Random commands, valid and hostile, to FlintKV and to a real Redis: every reply must be the same, byte by byte.
//!
//! Four parts: everything in RAM; everything on flash now and then; everything on flash at each command
//! (`debug-tier-mode cold`); and with other clients that fill the node, so that keys are demoted, promoted, collected
//! and moved while commands run. Commands are sent in pipelines. Unordered replies (HGETALL of a table, SMEMBERS, KEYS)
//! are compared as sets, random replies are checked against the content, and times may differ as the clocks do.
//!
//! `FLINTKV_SEED` replays a run (`random` draws one). `FLINTKV_TEST_SECONDS` is how long each part runs after its
//! minimum of commands. `FLINTKV_DIFF_COMMANDS` sets the number of commands of each part, whatever the time.
//! `FLINTKV_DIFF_GO_ON=1` reports every difference instead of stopping at the first (later ones may be its
//! consequences).

mod dumps;

use flintkv_tests::compare::{Compared, compare_pipeline, sorted, sorted_pairs, sorted_scores};
use flintkv_tests::generator::{Commands, SETTINGS};
use flintkv_tests::{Client, Node, Random, Redis, eventually, number, one_line, seed};
use resp::client::{Value, encode_command};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const PIPELINE_MAX: usize = 24;
/// The database of the other clients. The commands under test do not use it.
const OTHERS_DB: &str = "9";

#[test]
fn in_ram() {
    let node = Node::start(&[]);
    let report = run(&node, 60, 20_000, &mut || {});
    println!("in RAM: {report}");
}

#[test]
fn on_flash() {
    let flash = flash_dir();
    let node = Node::start(&small_flash(&flash));
    let mut client = node.connect();
    let mut batches = 0;
    let report = run(&node, 400, 15_000, &mut || {
        batches += 1;
        if batches % 6 == 1 {
            for mode in ["cold", "off"] {
                assert_eq!(client.run(&format!("CONFIG SET debug-tier-mode {mode}")), "OK");
            }
        }
    });
    let flash_reads = client.info_number("tiering", "flash_kv_reads");
    println!("on flash: {report}, {flash_reads} values read from flash");
    assert!(flash_reads > report.commands / 20, "only {flash_reads} reads met flash");
}

#[test]
fn always_on_flash() {
    let flash = flash_dir();
    let node = Node::start(&[&small_flash(&flash)[..], &[("debug-tier-mode", "cold")]].concat());
    let report = run(&node, 100, 10_000, &mut || {});
    let mut client = node.connect();
    let flash_reads = client.info_number("tiering", "flash_kv_reads");
    let collected = client.info_number("tiering", "collected_segments");
    println!("always on flash: {report}, {flash_reads} values read from flash, {collected} segments collected");
    assert!(flash_reads > report.commands / 4, "only {flash_reads} reads met flash");
    assert_eq!(client.info_number("tiering", "values_in_ram"), 0);
}

/// In memory where possible. In force-demote mode each command waits for its write, and on some file systems the first
/// write to each place of a new file takes milliseconds.
fn flash_dir() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("flintkv-test-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).expect("a directory")
}

/// So small that it is filled and collected many times in a run.
fn small_flash(dir: &tempfile::TempDir) -> [(&'static str, &str); 3] {
    let path = dir.path().to_str().expect("a path of plain letters");
    [("memory-limit", "160mb"), ("ram-limit", "128mb"), ("flash-path", path)]
}

#[test]
fn while_others_fill_the_node() {
    let node = Node::start(&[("memory-limit", "168mb"), ("ram-limit", "128mb"), ("flash-segment-size", "1mb")]);
    // Under this load the node itself needs some 13 MB more than at the start.
    node.limit_objects(24 << 20);
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        for worker in 0..2 {
            let (stop, node) = (&stop, &node);
            scope.spawn(move || fill(node, worker, stop));
        }
        // The fillers must stop even if the test fails.
        let _stop_at_end = Stop(&stop);
        run(&node, 600, 20_000, &mut || {})
    });
    let mut client = node.connect();
    let demotions = client.info_number("tiering", "demotions_written");
    let collected = client.info_number("tiering", "collected_segments");
    let flash_reads = client.info_number("tiering", "flash_kv_reads");
    println!("while others fill: {report}, {demotions} demotions, {collected} segments collected, {flash_reads} reads");
    assert!(demotions > 1000, "only {demotions} values were written to flash");
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes and reads values of many sizes in a database of its own, several times more than fits into RAM.
fn fill(node: &Node, worker: u64, stop: &AtomicBool) {
    let mut random = Random::new(worker);
    let mut client = node.connect();
    assert_eq!(client.run(&format!("SELECT {OTHERS_DB}")), "OK");
    while !stop.load(Relaxed) {
        let mut bytes = Vec::new();
        for _ in 0..30 {
            let key = format!("filler:{}", random.below(40_000));
            if random.one_in(4) {
                encode_command(&[b"GET", key.as_bytes()], &mut bytes);
            } else {
                let size = [32, 500, 500, 500, 2000][random.below(5)];
                encode_command(&[b"SET", key.as_bytes(), &random.text(size)], &mut bytes);
            }
        }
        client.send(&bytes);
        for _ in 0..30 {
            if let Some(Value::Error(text)) = client.reply() {
                panic!("a filler: {}", String::from_utf8_lossy(&text));
            }
        }
        sleep(Duration::from_millis(1));
    }
}

struct Report {
    seed: u64,
    commands: u64,
    errors: u64,
    took: Duration,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { seed, commands, errors, took } = self;
        write!(f, "seed {seed}, {commands} commands in {took:.1?}, {errors} of them answered with an error")
    }
}

/// At least `commands_min` commands run, however slow the machine is. `between` runs between pipelines.
fn run(node: &Node, keys: usize, commands_min: u64, between: &mut dyn FnMut()) -> Report {
    // Make Redis check restored values as closely as FlintKV does: its RESTORE would trust the input.
    let redis = Redis::start(&["--sanitize-dump-payload", "yes"]);
    let seed = seed();
    let mut pair = Pair {
        ours: node.connect(),
        theirs: redis.connect(),
        seed,
        done: 0,
        errors: 0,
        past: VecDeque::new(),
        differences: 0,
    };
    pair.same(SETTINGS.split(' ').map(|word| word.as_bytes().to_vec()).collect());
    let mut commands = Commands::new(seed, keys);
    let wanted = number("FLINTKV_DIFF_COMMANDS", 0);
    let (started, budget) = (Instant::now(), seeds::budget());
    let goes_on = |done: u64| match wanted {
        0 => done < commands_min || started.elapsed() < budget,
        wanted => done < wanted,
    };
    while goes_on(pair.done) {
        let count = 1 + commands.random.below(PIPELINE_MAX);
        let batch: Vec<_> = (0..count).flat_map(|_| commands.next_batch()).collect();
        between();
        pair.batch(&batch);
        if commands.random.one_in(8) {
            pair.odd_one(&mut commands);
        }
    }
    pair.contents();
    assert_eq!(pair.differences, 0);
    Report { seed, commands: pair.done, errors: pair.errors, took: started.elapsed() }
}

/// Both servers, and the commands sent so far.
struct Pair {
    ours: Client,
    theirs: Client,
    seed: u64,
    done: u64,
    errors: u64,
    past: VecDeque<Vec<Vec<u8>>>,
    differences: u64,
}

const PAST_MAX: usize = 5000;

impl Pair {
    fn same(&mut self, words: Vec<Vec<u8>>) {
        self.batch(&[words]);
    }

    fn batch(&mut self, batch: &[Vec<Vec<u8>>]) {
        let compared = compare_pipeline(&mut self.ours, &mut self.theirs, batch);
        for (at, words) in batch.iter().enumerate() {
            self.remember(words);
            let Some(Compared { is_error, difference }) = compared.get(at) else {
                self.fail(words, "FlintKV closed the connection");
                panic!("nothing can follow");
            };
            self.done += 1;
            self.errors += u64::from(*is_error);
            if let Some(difference) = difference {
                self.fail(words, difference);
            }
        }
    }

    /// Expired keys count until they are noticed. On flash that is when they are read or their segment is collected,
    /// which may be much later.
    fn same_size(&mut self) {
        eventually(&format!("both hold the same number of keys; seed {}", self.seed), || {
            let Value::Array(keys) = self.ours.call(&[b"KEYS", b"*"]) else { panic!("KEYS gives an array") };
            for key in &keys {
                let Value::Bulk(key) = key else { panic!("a key") };
                self.ours.call(&[b"TYPE", key]);
            }
            self.ours.call(&[b"DBSIZE"]) == self.theirs.call(&[b"DBSIZE"])
        });
    }

    fn remember(&mut self, words: &[Vec<u8>]) {
        self.past.push_back(words.to_vec());
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
    }

    /// Reports the seed, the command, and the earlier commands on its keys.
    fn fail(&mut self, words: &[Vec<u8>], difference: &str) {
        let line = |words: &[Vec<u8>]| {
            let words = words.iter().map(|word| {
                let text = word[..word.len().min(100)].escape_ascii();
                if word.len() > 100 { format!("\"{text}\"... ({} bytes)", word.len()) } else { format!("\"{text}\"") }
            });
            words.collect::<Vec<_>>().join(" ")
        };
        // Two OBJECT commands are not related only because they have the same subcommand.
        let telling = |words: &[Vec<u8>]| if words[0] == b"OBJECT" { words.len().min(2) } else { 1 };
        let touches = |past: &&Vec<Vec<u8>>| {
            past[telling(past)..].iter().any(|word| words[telling(words)..].contains(word))
                || ["SELECT", "SWAPDB", "RESET", "FLUSHDB", "FLUSHALL"].iter().any(|name| past[0] == name.as_bytes())
        };
        let mut story: Vec<String> = self.past.iter().rev().filter(touches).take(30).map(|past| line(past)).collect();
        story.reverse();
        let what = format!(
            "seed {}, command {}: {}\n{difference}\nbefore, with words in common:\n  {}",
            self.seed,
            self.done,
            line(words),
            story.join("\n  ")
        );
        assert!(std::env::var_os("FLINTKV_DIFF_GO_ON").is_some(), "{what}");
        self.differences += 1;
        println!("{what}\n");
    }

    /// A command whose reply cannot be compared in a pipeline.
    fn odd_one(&mut self, commands: &mut Commands) {
        let random = &mut commands.random;
        match random.below(10) {
            9 => {
                let key = commands.any_key();
                let faults = (0..2).map(|_| commands.random.draw()).collect::<Vec<_>>();
                self.moved(&key, &faults);
            }
            5 => {
                let options = random.of(&["", "MATCH m1*", "COUNT 1000", "COUNT 2"]);
                let key = commands.key('m');
                self.scan(&[b"SSCAN", &key], options);
            }
            6 => {
                let count = random.of(&["", "1", "3", "-5", "0", "20", "x"]);
                let key = commands.key('m');
                self.random_members(&key, count);
            }
            7 => {
                let options = random.of(&["", "MATCH m1*", "COUNT 1000", "COUNT 2"]);
                let key = commands.key('z');
                self.scan(&[b"ZSCAN", &key], options);
            }
            8 => {
                let options = random.of(&["", "1", "5", "-5", "20 WITHSCORES", "-20 withscores", "0", "x", "1 foo"]);
                let key = commands.key('z');
                self.random_scores(&key, options);
            }
            0 => {
                let options = random.of(&[
                    "",
                    "MATCH s*",
                    "COUNT 1000",
                    "COUNT 3 TYPE hash",
                    "TYPE string",
                    "TYPE nosuch",
                    "MATCH [^s]?",
                ]);
                self.scan(&[b"SCAN"], options);
            }
            1 => {
                let options = random.of(&["", "MATCH f1*", "COUNT 1000", "COUNT 2"]);
                let key = commands.key('h');
                self.scan(&[b"HSCAN", &key], options);
            }
            2 => self.random_key(),
            3 => {
                let options =
                    random.of(&["", "1", "5", "-5", "20 WITHVALUES", "-20 withvalues", "0", "-9223372036854775808"]);
                let key = commands.key('h');
                self.random_fields(&key, options);
            }
            _ => {
                let keys: Vec<_> = (0..1 + commands.random.below(4)).map(|_| commands.any_key()).collect();
                self.expire(&keys);
            }
        }
    }

    fn scan(&mut self, command: &[&[u8]], options: &str) {
        let options: Vec<&[u8]> = options.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
        let ours = self.ours.scan(command, &options).map(|found| elements(command, found));
        let theirs = self.theirs.scan(command, &options).map(|found| elements(command, found));
        let words: Vec<Vec<u8>> = command.iter().chain(&options).map(|word| word.to_vec()).collect();
        if ours != theirs {
            self.fail(&words, &format!("FlintKV: {ours:?}\nRedis:   {theirs:?}"));
        }
        self.done += 1;
    }

    fn random_key(&mut self) {
        let words = [b"RANDOMKEY".to_vec()];
        let (ours, theirs) = (self.ours.call(&[b"RANDOMKEY"]), self.theirs.call(&[b"RANDOMKEY"]));
        let is_right = match &ours {
            Value::Bulk(key) => self.theirs.call(&[b"EXISTS", key]) == Value::Int(1),
            Value::Null => matches!(theirs, Value::Null),
            _ => false,
        };
        if !is_right {
            self.fail(&words, &format!("FlintKV: {}\nRedis:   {}", one_line(&ours), one_line(&theirs)));
        }
        self.done += 1;
    }

    fn random_fields(&mut self, key: &[u8], options: &str) {
        let mut words = vec![b"HRANDFIELD".as_slice(), key];
        words.extend(options.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes));
        let (ours, theirs) = (self.ours.call(&words), self.theirs.call(&words));
        let contents = sorted_pairs(self.theirs.call(&[b"HGETALL", key]));
        let is_field = |value: &Value| contents.iter().any(|(field, _)| *field == one_line(value));
        let is_pair = |field: &Value, value: &Value| contents.contains(&(one_line(field), one_line(value)));
        let is_right = match (&ours, &theirs) {
            (Value::Bulk(_), Value::Bulk(_)) => is_field(&ours),
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => match words.len() {
                // In RESP3 each field and its value are an array of two.
                4 => {
                    ours.iter().all(|pair| matches!(pair, Value::Array(pair) if is_pair(&pair[0], &pair[1])))
                        || ours.chunks(2).all(|pair| is_pair(&pair[0], &pair[1]))
                }
                _ => ours.iter().all(is_field),
            },
            (ours, theirs) => ours == theirs,
        };
        if !is_right {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
            self.fail(&words, &format!("FlintKV: {}\nRedis:   {}", one_line(&ours), one_line(&theirs)));
        }
        self.done += 1;
    }

    fn random_scores(&mut self, key: &[u8], options: &str) {
        let mut words = vec![b"ZRANDMEMBER".as_slice(), key];
        words.extend(options.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes));
        let (ours, theirs) = (self.ours.call(&words), self.theirs.call(&words));
        // With a count, compare all members. Without one, treat the member as an array of one.
        let call = [&[b"ZRANDMEMBER".as_slice(), key, b"1000000"], words.get(3..).unwrap_or_default()].concat();
        let all = self.theirs.call(&call);
        let is_pairs = words.len() == 4;
        let parts = |value: &Value| match value {
            Value::Array(_) if is_pairs => sorted_scores(value),
            Value::Array(items) => items.iter().map(one_line).collect(),
            other => vec![one_line(other)],
        };
        let (drawn, others, all) = (parts(&ours), parts(&theirs), parts(&all));
        let is_right = match &theirs {
            Value::Bulk(_) | Value::Array(_) => {
                drawn.len() == others.len() && drawn.iter().all(|member| all.contains(member))
            }
            theirs => ours == *theirs,
        };
        if !is_right {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
            self.fail(&words, &format!("FlintKV: {}\nRedis:   {}", one_line(&ours), one_line(&theirs)));
        }
        self.done += 1;
    }

    /// SRANDMEMBER, and SPOP of the members that it drew last.
    fn random_members(&mut self, key: &[u8], count: &str) {
        let mut words = vec![b"SRANDMEMBER".as_slice(), key];
        words.extend([count].iter().filter(|word| !word.is_empty()).map(|word| word.as_bytes()));
        let (ours, theirs) = (self.ours.call(&words), self.theirs.call(&words));
        let members = sorted(self.theirs.call(&[b"SMEMBERS", key]));
        let is_right = match (&ours, &theirs) {
            (Value::Bulk(_), Value::Bulk(_)) => members.contains(&one_line(&ours)),
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                ours.iter().all(|member| members.contains(&one_line(member)))
            }
            (ours, theirs) => ours == theirs,
        };
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        if !is_right {
            self.fail(&words, &format!("FlintKV: {}\nRedis:   {}", one_line(&ours), one_line(&theirs)));
        }
        self.done += 1;
        // The other server removes what this one popped.
        if let Value::Bulk(_) = &ours
            && let Value::Bulk(popped) = self.ours.call(&[b"SPOP", key])
            && self.theirs.call(&[b"SREM", key, &popped]) != Value::Int(1)
        {
            self.fail(&words, &format!("SPOP gives {:?}, which Redis does not have", popped.escape_ascii()));
        }
    }

    /// Expires keys in a way on which two clocks agree, then lets both servers notice.
    fn expire(&mut self, keys: &[Vec<u8>]) {
        let command = |name: &str, key: &[u8], more: &[&[u8]]| {
            let words = [&[name.as_bytes(), key], more].concat();
            words.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let batch: Vec<_> = keys.iter().map(|key| command("PEXPIRE", key, &[b"1"])).collect();
        self.batch(&batch);
        sleep(Duration::from_millis(8));
        let batch: Vec<_> = keys.iter().map(|key| command("TYPE", key, &[])).collect();
        self.batch(&batch);
    }

    /// Compares the whole content of both servers.
    fn contents(&mut self) {
        self.same(vec![b"HELLO".to_vec(), b"2".to_vec()]);
        for db in ["0", "1", "15"] {
            self.same(vec![b"SELECT".to_vec(), db.into()]);
            self.scan(&[b"SCAN"], "COUNT 100");
            self.same_size();
            let Value::Array(keys) = self.theirs.call(&[b"KEYS", b"*"]) else { panic!("KEYS gives an array") };
            for key in &keys {
                let Value::Bulk(key) = key else { panic!("a key") };
                self.same_value(key);
            }
        }
    }

    fn same_value(&mut self, key: &[u8]) {
        let read = match one_line(&self.theirs.call(&[b"TYPE", key])).as_str() {
            "hash" => "HGETALL key",
            "set" => "SMEMBERS key",
            "list" => "LRANGE key 0 -1",
            "zset" => "ZRANGE key 0 -1 WITHSCORES",
            "stream" => "XINFO STREAM key FULL COUNT 0",
            _ => "GET key",
        };
        self.batch(&["TYPE key", "PTTL key", "OBJECT ENCODING key", read].map(|line| {
            let words = line.split(' ');
            words.map(|word| if word == "key" { key.to_vec() } else { word.into() }).collect::<Vec<Vec<u8>>>()
        }));
    }
}

/// The elements that a scan found, sorted: the order is free, and elements may repeat.
fn elements(command: &[&[u8]], found: Vec<Vec<u8>>) -> Vec<String> {
    let array = |found: Vec<Vec<u8>>| Value::Array(found.into_iter().map(Value::Bulk).collect());
    let mut elements = if command[0] == b"ZSCAN" {
        sorted_scores(&array(found))
    } else if command[0] == b"HSCAN" {
        sorted_pairs(array(found)).into_iter().map(|(field, value)| format!("{field}: {value}")).collect()
    } else {
        sorted(array(found))
    };
    elements.dedup();
    elements
}
