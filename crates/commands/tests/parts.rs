//! Random commands on lists and streams whose chunks go to flash and come back, and the same where everything stays in
//! RAM: every reply must be the same. `FLINTKV_SEED` replays a run, `FLINTKV_COMMANDS` makes it longer.

mod harness;

use harness::Harness;
use std::collections::BTreeSet;
use value::list::Limit;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// A word of one or two small letters stands for what [`word`] makes of it; `?` before it is perhaps, `*` any number.
const LISTS: &[&str] = &[
    "RPUSH l v *v *v *v",
    "RPUSH l v *v *v *v",
    "LPUSH l v *v *v *v",
    "RPUSHX l v *v",
    "LPUSHX l v",
    "LPOP l",
    "RPOP l",
    "LPOP l n",
    "RPOP l n",
    "LLEN l",
    "LINDEX l i",
    "LINDEX l i",
    "LSET l i v",
    "LSET l i v",
    "LRANGE l i i",
    "LRANGE l i i",
    "LTRIM l n -3",
    "LTRIM l 0 -2",
    "LINSERT l BEFORE v v",
    "LINSERT l AFTER v v",
    "LREM l i v",
    "LREM l 1 v",
    "LPOS l v",
    "LPOS l v COUNT n",
    "LPOS l v RANK -1 COUNT n MAXLEN n",
    "LPOS l v RANK n",
    "LMOVE l l e e",
    "RPOPLPUSH l l",
    "LMPOP 2 l l e COUNT n",
    "BLPOP l l 0.001",
    "BLMOVE l l e e 0.001",
    "SORT l ALPHA LIMIT 0 n",
    "COPY l l REPLACE",
    "RENAME l l",
    "EXISTS l",
    "TYPE l",
];

fn word(kind: &str, random: &mut Random) -> String {
    match kind {
        "l" => random.of(&["l1", "l2", "l3", "l4"]).into(),
        "v" => match random.below(20) {
            0 => "x".repeat(200),
            1 => "y".repeat(9000),
            n => format!("v{}", n % 7),
        },
        "i" => (random.below(50) as i64 - 25).to_string(),
        "n" => random.below(7).to_string(),
        "e" => random.of(&["LEFT", "RIGHT"]).into(),
        literal => literal.into(),
    }
}

fn command(templates: &[&str], random: &mut Random) -> Vec<String> {
    let mut words = Vec::new();
    for part in random.of(templates).split(' ') {
        let (kind, times) = match part.split_at(1) {
            ("?", kind) => (kind, random.below(2)),
            ("*", kind) => (kind, random.below(3)),
            _ => (part, 1),
        };
        words.extend((0..times).map(|_| word(kind, random)));
    }
    words
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs random commands in both places; the names of those that had to wait for flash.
fn compare(templates: &[&str], commands: u64) -> BTreeSet<String> {
    let seed = number("FLINTKV_SEED", 20_261_121);
    let mut random = Random(seed);
    let (mut whole, mut parts) = (Harness::new(), Harness::in_parts(seed));
    for harness in [&mut whole, &mut parts] {
        harness.settings.list_limit = Limit::of(4);
        harness.settings.stream_node_max_entries = 3;
    }
    for step in 0..number("FLINTKV_COMMANDS", commands) {
        let words = command(templates, &mut random);
        let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let (expected, given) = (whole.words(&bytes), parts.words(&bytes));
        assert_eq!(given, expected, "seed {seed}, command {step}: {words:?}");
        for harness in [&mut whole, &mut parts] {
            harness.now_ms += 1;
        }
        if step % 3 == 0 {
            parts.squeeze();
        }
    }
    let reads = parts.store.stats().flash_part_reads;
    assert!(reads > commands / 20, "{reads} parts were read");
    parts.colds.into_keys().collect()
}

#[test]
fn lists_in_parts_answer_as_those_in_ram() {
    let waited = compare(LISTS, 10_000);
    assert!(waited.len() >= 18, "{waited:?}");
}

/// Parts that a command reads of a value of which all are on flash.
fn reads(here: &mut Harness, line: &str) -> u64 {
    (0..5).for_each(|_| here.squeeze());
    let before = here.store.stats().flash_part_reads;
    here.run(line);
    here.store.stats().flash_part_reads - before
}

#[test]
fn a_long_list_is_read_by_its_chunks() {
    let mut here = Harness::in_parts(1);
    for n in 0..2000 {
        here.run(&format!("RPUSH l {n:0100}"));
    }
    for (line, at_most) in [
        ("LLEN l", 0),
        ("TYPE l", 0),
        ("RENAME l m", 0),
        ("RENAME m l", 0),
        ("LINDEX l 1000", 1),
        ("LRANGE l -10 -1", 1),
        ("LSET l 500 x", 1),
        ("RPUSH l x", 1),
        ("LPOP l", 1),
        ("LMOVE l l LEFT RIGHT", 2),
        ("LTRIM l 300 1500", 2),
        ("LPOS l x", 10),
        ("DEL l", 0),
    ] {
        let read = reads(&mut here, line);
        assert!(read <= at_most && (read > 0) == (at_most > 0), "{line} has read {read} parts");
    }
}
