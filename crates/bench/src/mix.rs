//! Owns the order of requests: SETs and GETs by their ratio, WAITs between them, `--command`s by their ratios,
//! captures, and SCAN that follows its cursor. Never knows sockets or time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};

use crate::config::{CommandSpec, Commands, Config, KeyPattern, SetGet, Work};
use crate::data::{Data, constant};
use crate::keys::Keys;
use crate::monitor::split;
use crate::rng::Rng;
use crate::template::{Arg, Draw, KeyHead, Template, header};
use base::random::mix;

/// Index of a row of statistics.
pub type KindIndex = u16;

const SET: KindIndex = 0;
const GET: KindIndex = 1;
const WAIT: KindIndex = 2;

/// What one row of statistics counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `SET`, as in the distribution.
    pub name: String,
    /// `Sets`, as in the table.
    pub row: String,
    pub hits: Hits,
}

/// What counts as a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// No reply: the command does not look up a value.
    None,
    /// A reply that is neither nil nor empty.
    Reply,
    /// Every element that is not nil.
    Elements,
}

/// Commands that look up one value, or one collection.
const LOOKUPS: &[&str] = &[
    "dump",
    "get",
    "getdel",
    "getex",
    "getrange",
    "getset",
    "hget",
    "hgetall",
    "hkeys",
    "hrandfield",
    "hvals",
    "lindex",
    "lpop",
    "lrange",
    "rpop",
    "rpoplpush",
    "lmove",
    "smembers",
    "spop",
    "srandmember",
    "sdiff",
    "sinter",
    "sunion",
    "substr",
    "xrange",
    "xrevrange",
    "zpopmax",
    "zpopmin",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrank",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zrandmember",
    "zscore",
];
/// Commands that look up several values.
const MULTI_LOOKUPS: &[&str] = &["geohash", "geopos", "hgetdel", "hgetex", "hmget", "mget", "smismember", "zmscore"];

impl Kind {
    fn of_command(name: &[u8]) -> Kind {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let lower = name.to_ascii_lowercase();
        let mut letters = lower.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let row = first.into_iter().chain(letters).chain(['s']).collect();
        let hits = if LOOKUPS.contains(&lower.as_str()) {
            Hits::Reply
        } else if MULTI_LOOKUPS.contains(&lower.as_str()) {
            Hits::Elements
        } else {
            Hits::None
        };
        Kind { name, row, hits }
    }

    fn new(name: &str, row: &str, hits: Hits) -> Kind {
        Kind { name: name.to_owned(), row: row.to_owned(), hits }
    }
}

/// The data that all connections of a workload share.
pub struct Plan {
    pub kinds: Vec<Kind>,
    work: PlannedWork,
    constant: Arc<[u8]>,
}

enum PlannedWork {
    SetGet {
        spec: SetGet,
        set: Template,
        get: Template,
        wait: Option<Template>,
        mget_key: KeyHead,
        lasting: Option<Lasting>,
    },
    Commands(Vec<Planned>),
    Scan {
        start: Template,
        next: Template,
        continuations_max: u64,
    },
}

/// If the range of the times to live begins with 0, one of so many SETs has no time to live.
struct Lasting {
    set: Template,
    one_of: u64,
}

struct Planned {
    ratio: u32,
    pattern: KeyPattern,
    source: Source,
}

enum Source {
    Template(Template, KindIndex),
    /// Lines of a capture, in order over all connections or at random.
    Capture {
        lines: Vec<(Box<[u8]>, KindIndex)>,
        next: AtomicUsize,
        random: bool,
    },
}

impl Plan {
    pub fn new(config: &Config) -> Result<Plan> {
        let mut kinds = Vec::new();
        let work = match &config.work {
            Work::SetGet(spec) => {
                let hits = if spec.multi_key_get > 0 { Hits::Elements } else { Hits::Reply };
                kinds.push(Kind::new("SET", "Sets", Hits::None));
                kinds.push(Kind::new("GET", "Gets", hits));
                kinds.push(Kind::new("WAIT", "Waits", Hits::None));
                Plan::set_get(config, spec)?
            }
            Work::Commands(spec) if spec.scan.is_some() => {
                kinds.push(Kind::new("SCAN 0", "Scan 0s", Hits::None));
                kinds.push(Kind::new("SCAN <cursor>", "Scan <cursor>s", Hits::None));
                Plan::scan(config, spec)?
            }
            Work::Commands(spec) => Plan::commands(config, spec, &mut kinds)?,
        };
        Ok(Plan { kinds, work, constant: constant(&config.data) })
    }

    fn set_get(config: &Config, spec: &SetGet) -> Result<PlannedWork> {
        let (key, value) = (Arg::Text(b"__key__"), Arg::Text(b"__data__"));
        let offset = config.data.offset;
        let number = |low, high| Arg::Number { low, high, normal: false };
        let set: Vec<Arg<'_>> = match &spec.expiry {
            _ if offset > 0 => vec![Arg::Literal(b"SETRANGE"), key, number(offset, offset), value],
            Some(expiry) => {
                vec![Arg::Literal(b"SETEX"), key, number((*expiry.start()).max(1), (*expiry.end()).max(1)), value]
            }
            None => vec![Arg::Literal(b"SET"), key, value],
        };
        let key = Arg::Text(b"__key__");
        let get = if offset > 0 {
            vec![Arg::Literal(b"GETRANGE"), key, number(offset, offset), Arg::End { offset }]
        } else {
            vec![Arg::Literal(b"GET"), key]
        };
        let template = |args: &[Arg<'_>]| Template::new(args, &config.keys.prefix, &config.data);
        let wait = match &spec.wait {
            None => None,
            Some(wait) => {
                let replicas = number(*wait.replicas.start(), *wait.replicas.end());
                let (low, high) = (*wait.timeout_ms.start(), *wait.timeout_ms.end());
                Some(template(&[Arg::Literal(b"WAIT"), replicas, Arg::Number { low, high, normal: true }])?)
            }
        };
        let mget_key = KeyHead::new(b"", b"", &config.keys.prefix, 0);
        let (set, get) = (template(&set)?, template(&get)?);
        let lasting = match &spec.expiry {
            Some(expiry) if *expiry.start() == 0 => {
                let set = template(&[Arg::Literal(b"SET"), Arg::Text(b"__key__"), Arg::Text(b"__data__")])?;
                Some(Lasting { set, one_of: expiry.end().saturating_add(1) })
            }
            _ => None,
        };
        Ok(PlannedWork::SetGet { spec: spec.clone(), set, get, wait, mget_key, lasting })
    }

    fn scan(config: &Config, spec: &Commands) -> Result<PlannedWork> {
        let words = split(spec.specs[0].line.as_bytes())?;
        let mut args: Vec<Arg<'_>> = words.iter().map(|word| Arg::Text(word)).collect();
        let template = |args: &[Arg<'_>]| Template::new(args, &config.keys.prefix, &config.data);
        let start = template(&args)?;
        args[1] = Arg::Cursor;
        let next = template(&args)?;
        let continuations_max = spec.scan.map_or(0, |scan| scan.continuations_max);
        Ok(PlannedWork::Scan { start, next, continuations_max })
    }

    fn commands(config: &Config, spec: &Commands, kinds: &mut Vec<Kind>) -> Result<PlannedWork> {
        let planned = spec.specs.iter().map(|command| {
            let source =
                Plan::source(config, spec, command, kinds).with_context(|| format!("--command={}", command.line))?;
            Ok(Planned { ratio: command.ratio, pattern: command.pattern, source })
        });
        Ok(PlannedWork::Commands(planned.collect::<Result<_>>()?))
    }

    fn source(config: &Config, spec: &Commands, command: &CommandSpec, kinds: &mut Vec<Kind>) -> Result<Source> {
        let line = command.line.trim();
        let own_row = |kind: Kind| {
            if spec.by_line { Kind { row: line.to_owned(), name: line.to_owned(), ..kind } } else { kind }
        };
        let captured = line.strip_prefix("__monitor_line").and_then(|rest| rest.strip_suffix("__"));
        let Some(which) = captured else {
            let words = split(line.as_bytes())?;
            ensure!(!words.is_empty(), "an empty command");
            let args: Vec<Arg<'_>> = words.iter().map(|word| Arg::Text(word)).collect();
            let template = Template::new(&args, &config.keys.prefix, &config.data)?;
            return Ok(Source::Template(template, intern(kinds, own_row(Kind::of_command(&words[0])))?));
        };
        let monitor = spec.monitor.as_ref().context("__monitor_line…__ needs --monitor-input")?;
        let chosen = if which == "@" {
            &monitor.lines[..]
        } else {
            let number: usize = which.parse().context("expected __monitor_line@__ or __monitor_lineN__")?;
            let line = number.checked_sub(1).and_then(|index| monitor.lines.get(index));
            std::slice::from_ref(line.with_context(|| format!("the capture has lines 1 to {}", monitor.lines.len()))?)
        };
        let mut lines = Vec::with_capacity(chosen.len());
        for words in chosen {
            let kind = intern(kinds, own_row(Kind::of_command(&words[0])))?;
            let mut bytes = Vec::new();
            header(&mut bytes, b'*', words.len() as u64);
            for word in words {
                crate::template::literal(&mut bytes, word);
            }
            lines.push((bytes.into_boxed_slice(), kind));
        }
        Ok(Source::Capture { lines, next: AtomicUsize::new(0), random: monitor.random })
    }
}

/// The index of `kind` among `kinds`. Adds it if it is new.
fn intern(kinds: &mut Vec<Kind>, kind: Kind) -> Result<KindIndex> {
    let known = kinds.iter().position(|other| other.row == kind.row);
    let index = known.unwrap_or_else(|| {
        kinds.push(kind);
        kinds.len() - 1
    });
    KindIndex::try_from(index).context("more than 65536 different commands")
}

/// The requests of one connection, in order.
pub struct Requests {
    rng: Rng,
    data: Data,
    cursors: Vec<Keys>,
    turn: MixProgress,
    /// SCAN's cursor in the last reply, and how often it was followed.
    scan_cursor: Vec<u8>,
    scan_followed: u64,
}

/// The position in the ratio: which command is next.
#[derive(Default)]
struct MixProgress {
    sets_in_round: u32,
    gets_in_round: u32,
    sets: u64,
    waits: u64,
    command: usize,
    sent_in_turn: u32,
}

impl Requests {
    /// The `index`-th connection of the workload.
    pub fn new(plan: &Plan, config: &Config, index: u64) -> Requests {
        let count = config.connections();
        let keys = |pattern| Keys::new(pattern, &config.keys, index, count);
        let cursors = match &plan.work {
            PlannedWork::SetGet { spec, .. } => {
                vec![keys(spec.set_pattern), keys(spec.get_pattern)]
            }
            PlannedWork::Commands(commands) => commands.iter().map(|command| keys(command.pattern)).collect(),
            PlannedWork::Scan { .. } => vec![keys(KeyPattern::Random)],
        };
        let seed = config.seeding.seed.wrapping_add(if config.seeding.distinct { index } else { 0 });
        let data_seed = mix(mix(config.seeding.seed) ^ index);
        Requests {
            rng: Rng::new(seed),
            data: Data::new(&config.data, &config.keys, &plan.constant, data_seed),
            cursors,
            turn: MixProgress::default(),
            scan_cursor: b"0".to_vec(),
            scan_followed: 0,
        }
    }

    /// Appends the next request to `out` and returns the row that it counts in.
    #[inline]
    pub fn write_next(&mut self, plan: &Plan, out: &mut Vec<u8>) -> KindIndex {
        match &plan.work {
            PlannedWork::SetGet { spec, set, get, wait, mget_key, lasting } => {
                let turn = &mut self.turn;
                if turn.sets_in_round >= spec.sets && turn.gets_in_round >= spec.gets {
                    (turn.sets_in_round, turn.gets_in_round) = (0, 0);
                }
                if let (Some(template), Some(ratio)) = (wait, &spec.wait)
                    && ratio.waits > 0
                    && (turn.waits == 0 || turn.sets * u64::from(ratio.waits) > turn.waits * u64::from(ratio.sets))
                {
                    turn.waits += 1;
                    self.write(template, 0, out);
                    return WAIT;
                }
                if turn.sets_in_round < spec.sets {
                    turn.sets_in_round += 1;
                    turn.sets += 1;
                    let set = match lasting {
                        Some(lasting) if self.rng.range(1, lasting.one_of) == 1 => &lasting.set,
                        _ => set,
                    };
                    self.write(set, 0, out);
                    return SET;
                }
                if spec.multi_key_get == 0 {
                    turn.gets_in_round += 1;
                    self.write(get, 1, out);
                    return GET;
                }
                let count = spec.multi_key_get.min(spec.gets - turn.gets_in_round);
                turn.gets_in_round += count;
                header(out, b'*', u64::from(count) + 1);
                out.extend_from_slice(b"$4\r\nMGET\r\n");
                for _ in 0..count {
                    mget_key.write(out, self.cursors[1].next(&mut self.rng));
                    out.extend_from_slice(b"\r\n");
                }
                GET
            }
            PlannedWork::Commands(commands) => {
                if self.turn.sent_in_turn == commands[self.turn.command].ratio {
                    self.turn.command = (self.turn.command + 1) % commands.len();
                    self.turn.sent_in_turn = 0;
                }
                self.turn.sent_in_turn += 1;
                let index = self.turn.command;
                match &commands[index].source {
                    Source::Template(template, kind) => {
                        self.write(template, index, out);
                        *kind
                    }
                    Source::Capture { lines, next, random } => {
                        let line = if *random {
                            self.rng.range(0, lines.len() as u64 - 1) as usize
                        } else {
                            next.fetch_add(1, Ordering::Relaxed) % lines.len()
                        };
                        let (bytes, kind) = &lines[line];
                        out.extend_from_slice(bytes);
                        *kind
                    }
                }
            }
            PlannedWork::Scan { start, next, continuations_max } => {
                let limit = *continuations_max;
                if self.scan_cursor == b"0" || (limit > 0 && self.scan_followed == limit) {
                    self.scan_followed = 0;
                    self.write(start, 0, out);
                    return 0;
                }
                self.scan_followed += 1;
                self.write(next, 0, out);
                1
            }
        }
    }

    /// Whether the next request depends on the last reply.
    pub fn follows_cursor(plan: &Plan) -> bool {
        matches!(plan.work, PlannedWork::Scan { .. })
    }

    pub fn set_cursor(&mut self, cursor: &[u8]) {
        self.scan_cursor.clear();
        self.scan_cursor.extend_from_slice(cursor);
    }

    #[inline]
    fn write(&mut self, template: &Template, cursor: usize, out: &mut Vec<u8>) {
        let keys = &mut self.cursors[cursor];
        template.write(out, &mut Draw { keys, rng: &mut self.rng, data: &mut self.data, cursor: &self.scan_cursor });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeySpace, Monitor, ScanFollow, Seeding, Wait};

    fn config(work: Work) -> Config {
        let keys = KeySpace { prefix: b"k".to_vec(), min: 1, max: 100, ..KeySpace::default() };
        Config { work, keys, threads: 1, clients: 2, ..Config::default() }
    }

    /// The first `count` requests of the connection, each as one line of words.
    fn requests(config: &Config, index: u64, count: usize) -> Vec<String> {
        config.validate().expect("a good configuration");
        let plan = Plan::new(config).expect("plan");
        let mut requests = Requests::new(&plan, config, index);
        let lines = (0..count).map(|_| {
            let mut out = Vec::new();
            requests.write_next(&plan, &mut out);
            let text = String::from_utf8(out).expect("text");
            let words: Vec<&str> = text.split("\r\n").skip(1).filter(|word| !word.starts_with('$')).collect();
            words.join(" ").trim_end().to_owned()
        });
        lines.collect()
    }

    fn names(config: &Config, count: usize) -> Vec<String> {
        let lines = requests(config, 0, count);
        lines.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    fn command(line: &str, ratio: u32, pattern: KeyPattern) -> CommandSpec {
        CommandSpec { line: line.to_owned(), ratio, pattern }
    }

    fn commands(specs: Vec<CommandSpec>) -> Work {
        Work::Commands(Commands { specs, ..Commands::default() })
    }

    #[test]
    fn ratio_2_to_3_is_two_sets_then_three_gets() {
        let work = Work::SetGet(SetGet { sets: 2, gets: 3, ..SetGet::default() });
        let expected = ["SET", "SET", "GET", "GET", "GET", "SET", "SET", "GET"];
        assert_eq!(names(&config(work), 8), expected);
    }

    #[test]
    fn a_side_of_zero_is_left_out() {
        let only = |sets, gets| names(&config(Work::SetGet(SetGet { sets, gets, ..SetGet::default() })), 3);
        assert_eq!(only(0, 1), ["GET", "GET", "GET"]);
        assert_eq!(only(1, 0), ["SET", "SET", "SET"]);
    }

    #[test]
    fn sets_and_gets_have_their_own_cursors() {
        let pattern = KeyPattern::Sequential;
        let work = SetGet { sets: 1, gets: 1, set_pattern: pattern, get_pattern: pattern, ..SetGet::default() };
        let mut config = config(Work::SetGet(work));
        config.data.size = crate::config::SizeSpec::Fixed(1);
        assert_eq!(requests(&config, 1, 4), ["SET k1 x", "GET k1", "SET k2 x", "GET k2"]);
    }

    #[test]
    fn a_wait_follows_every_second_set() {
        let wait = Wait { sets: 2, waits: 1, replicas: 1..=1, timeout_ms: 0..=0 };
        let work = Work::SetGet(SetGet { sets: 1, gets: 0, wait: Some(wait), ..SetGet::default() });
        let expected = ["WAIT", "SET", "SET", "SET", "WAIT", "SET", "SET", "WAIT", "SET", "SET", "WAIT"];
        assert_eq!(names(&config(work), 11), expected);
    }

    #[test]
    fn gets_gather_into_mgets_up_to_the_ratio() {
        let pattern = KeyPattern::Sequential;
        let work = SetGet { sets: 0, gets: 5, get_pattern: pattern, multi_key_get: 3, ..SetGet::default() };
        let config = config(Work::SetGet(work));
        assert_eq!(requests(&config, 0, 3), ["MGET k1 k2 k3", "MGET k4 k5", "MGET k6 k7 k8"]);
    }

    #[test]
    fn an_expiry_makes_setex_and_an_offset_ranges() {
        let mut config = config(Work::SetGet(SetGet { sets: 1, gets: 1, expiry: Some(60..=60), ..SetGet::default() }));
        config.keys.max = 1;
        config.data.size = crate::config::SizeSpec::Fixed(2);
        assert_eq!(requests(&config, 0, 2), ["SETEX k1 60 xx", "GET k1"]);
        // A time to live of 0 means none.
        config.work = Work::SetGet(SetGet { sets: 1, gets: 0, expiry: Some(0..=2), ..SetGet::default() });
        let all = requests(&config, 0, 300);
        for form in ["SET k1 xx", "SETEX k1 1 xx", "SETEX k1 2 xx"] {
            let count = all.iter().filter(|request| *request == form).count();
            assert!((70..130).contains(&count), "{form}: {count}");
        }
        config.work = Work::SetGet(SetGet { sets: 1, gets: 0, expiry: Some(0..=0), ..SetGet::default() });
        assert_eq!(requests(&config, 0, 2), ["SET k1 xx", "SET k1 xx"]);
        config.work = Work::SetGet(SetGet { sets: 1, gets: 1, ..SetGet::default() });
        config.data.offset = 10;
        assert_eq!(requests(&config, 0, 2), ["SETRANGE k1 10 xx", "GETRANGE k1 10 11"]);
    }

    #[test]
    fn commands_take_turns_by_ratio_each_with_its_own_cursor() {
        let pattern = KeyPattern::Sequential;
        let work = commands(vec![command("incr __key__", 2, pattern), command("get __key__", 1, pattern)]);
        assert_eq!(requests(&config(work), 0, 5), ["incr k1", "incr k2", "get k1", "incr k3", "incr k4"]);
    }

    #[test]
    fn parallel_commands_split_the_range() {
        let work = commands(vec![command("get __key__", 1, KeyPattern::Parallel)]);
        assert_eq!(requests(&config(work), 1, 2), ["get k51", "get k52"]);
    }

    #[test]
    fn all_connections_replay_one_sequence_unless_seeds_are_distinct() {
        let mut config = config(Work::SetGet(SetGet::default()));
        assert_eq!(requests(&config, 0, 50), requests(&config, 1, 50));
        config.seeding = Seeding { seed: 0, distinct: true };
        assert_ne!(requests(&config, 0, 50), requests(&config, 1, 50));
        let again = requests(&config, 1, 50);
        config.seeding.seed = 1;
        assert_eq!(requests(&config, 0, 50), again, "seed and index add up");
    }

    #[test]
    fn rows_are_commands_or_lines() {
        let specs = vec![
            command("hset __key__ a 1", 1, KeyPattern::Random),
            command("HSET __key__ b 2", 1, KeyPattern::Random),
            command("hgetall __key__", 1, KeyPattern::Random),
        ];
        let rows = |by_line| {
            let work = Work::Commands(Commands { specs: specs.clone(), by_line, ..Commands::default() });
            Plan::new(&config(work)).expect("plan").kinds.into_iter().map(|kind| kind.row).collect::<Vec<_>>()
        };
        assert_eq!(rows(false), ["Hsets", "Hgetalls"]);
        assert_eq!(rows(true), ["hset __key__ a 1", "HSET __key__ b 2", "hgetall __key__"]);
    }

    #[test]
    fn a_capture_is_replayed_in_order_or_by_line() {
        let lines: Vec<Vec<Vec<u8>>> =
            ["SET a 1", "GET a", "DEL a"].iter().map(|line| split(line.as_bytes()).expect("words")).collect();
        let work = |line| {
            let monitor = Some(Monitor { lines: lines.clone().into(), random: false });
            let specs = vec![command(line, 1, KeyPattern::Random)];
            Work::Commands(Commands { specs, monitor, ..Commands::default() })
        };
        let all = config(work("__monitor_line@__"));
        assert_eq!(requests(&all, 0, 4), ["SET a 1", "GET a", "DEL a", "SET a 1"]);
        assert_eq!(requests(&config(work("__monitor_line2__")), 0, 2), ["GET a", "GET a"]);
        assert!(Plan::new(&config(work("__monitor_line4__"))).is_err());
        assert!(Plan::new(&config(work("__monitor_line0__"))).is_err());
    }

    #[test]
    fn scan_follows_its_cursor_and_starts_again() {
        let work = Commands {
            specs: vec![command("SCAN 0 COUNT 5", 1, KeyPattern::Random)],
            scan: Some(ScanFollow { continuations_max: 2 }),
            ..Commands::default()
        };
        let config = config(Work::Commands(work));
        config.validate().expect("good");
        let plan = Plan::new(&config).expect("plan");
        let mut requests = Requests::new(&plan, &config, 0);
        let mut sent = Vec::new();
        for cursor in ["7", "9", "11", "0", "3"] {
            let mut out = Vec::new();
            let kind = requests.write_next(&plan, &mut out);
            let text = String::from_utf8(out).expect("text");
            sent.push((kind, text.split("\r\n").nth(4).unwrap_or_default().to_owned()));
            requests.set_cursor(cursor.as_bytes());
        }
        let expected = [(0, "0"), (1, "7"), (1, "9"), (0, "0"), (0, "0")];
        assert_eq!(sent, expected.map(|(kind, cursor)| (kind, cursor.to_owned())));
    }
}
