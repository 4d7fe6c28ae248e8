//! Owns unions, intersections and differences of sorted sets, and of sets as if every score were 1. Never knows where
//! the result goes in memory.

use super::form::{Draft, Entries, Limits, zset};
use super::{BASE, WRONG};
use crate::cx::{Args, Cx};
use crate::number::{self, int_or_error};
use crate::row::{Access, Flag, KeyLocation, KeyUse, Keys, Row, is};
use crate::sets::form::{Member, Set, set};
use crate::sets::limit_of;
use crate::stop::{Run, SYNTAX, Stop};
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use store::{Key, Keyspace, Kind, Value};
use value::Boxed;
use value::zset::View;

const READ: &[Flag] = &[Flag::Readonly, Flag::MovableKeys];
const WRITE: &[Flag] = &[Flag::Write, Flag::Denyoom, Flag::MovableKeys];
const SOURCES: Keys = Keys::Counted { at: 1 };
const TARGET_AND_SOURCES: Keys =
    Keys::FirstAnd(|args, at| Keys::Counted { at: 2 }.positions(args, at), &[KeyLocation::Counted { at: 2 }]);
const UNION_COMPLEXITY: &str =
    "O(N)+O(M*log(M)) where N is the number of members of all sources and M that of the result.";
const INTER_COMPLEXITY: &str =
    "O(N*K)+O(M*log(M)) where N is the size of the smallest source, K the number of sources and M that of the result.";

pub const ROWS: &[Row] = &[
    Row {
        name: "zdiff",
        arity: -3,
        keys: SOURCES,
        flags: READ,
        since: "6.2.0",
        complexity: UNION_COMPLEXITY,
        summary: "Gives the members of the first sorted set that are in none of the others.",
        syntax: "numkeys key [key ...] [WITHSCORES]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("ZADD b 5 one", "(integer) 1"),
            is("ZDIFF 2 a b WITHSCORES", "1) \"two\"\n2) \"2\""),
            is("ZDIFF 0 a", "(error) ERR at least 1 input key is needed for 'zdiff' command"),
            is("ZDIFF 2 a b WEIGHTS 1 1", "(error) ERR syntax error"),
        ],
        run: |cx| reply(cx, Operation::Diff, "zdiff"),
        ..BASE
    },
    Row {
        name: "zdiffstore",
        arity: -4,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: TARGET_AND_SOURCES,
        flags: WRITE,
        since: "6.2.0",
        complexity: UNION_COMPLEXITY,
        summary: "Stores what ZDIFF gives in a key and tells how many members that are.",
        syntax: "destination-key numkeys key [key ...]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("ZADD b 5 one", "(integer) 1"),
            is("ZDIFFSTORE d 2 a b", "(integer) 1"),
            is("ZRANGE d 0 -1 WITHSCORES", "1) \"two\"\n2) \"2\""),
            is("ZDIFFSTORE d 3 a b", "(error) ERR syntax error"),
        ],
        run: |cx| store(cx, Operation::Diff, "zdiffstore"),
        ..BASE
    },
    Row {
        name: "zinter",
        arity: -3,
        keys: SOURCES,
        flags: READ,
        since: "6.2.0",
        complexity: INTER_COMPLEXITY,
        summary: "Gives the members that all of the sorted sets have, their scores joined.",
        syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("SADD b two three", "(integer) 2"),
            is("ZINTER 2 a b WEIGHTS 10 1 WITHSCORES", "1) \"two\"\n2) \"21\""),
            is("ZINTER 2 a nosuch", "(empty array)"),
            is("ZINTER 2 a b WEIGHTS 1 x", "(error) ERR weight value is not a float"),
            is("SET k x", "OK"),
            is("ZINTER 2 a k", WRONG),
        ],
        run: |cx| reply(cx, Operation::Inter, "zinter"),
        ..BASE
    },
    Row {
        name: "zintercard",
        arity: -3,
        keys: SOURCES,
        flags: READ,
        since: "7.0.0",
        complexity: "O(N*K) where N is the size of the smallest sorted set and K the number of them.",
        summary: "Counts the members that all of the sorted sets have, up to a limit.",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        examples: &[
            is("ZADD a 1 x 2 y 3 z", "(integer) 3"),
            is("ZADD b 1 x 2 y", "(integer) 2"),
            is("ZINTERCARD 2 a b", "(integer) 2"),
            is("ZINTERCARD 2 a b LIMIT 1", "(integer) 1"),
            is("ZINTERCARD 2 a b LIMIT -1", "(error) ERR LIMIT can't be negative"),
        ],
        run: zintercard,
        ..BASE
    },
    Row {
        name: "zinterstore",
        arity: -4,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: TARGET_AND_SOURCES,
        flags: WRITE,
        complexity: INTER_COMPLEXITY,
        summary: "Stores what ZINTER gives in a key and tells how many members that are.",
        syntax: "destination-key numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("ZADD b 5 one", "(integer) 1"),
            is("ZINTERSTORE d 2 a b AGGREGATE MAX", "(integer) 1"),
            is("ZSCORE d one", "\"5\""),
            is("ZINTERSTORE d 2 a b AGGREGATE AVG", "(error) ERR syntax error"),
        ],
        run: |cx| store(cx, Operation::Inter, "zinterstore"),
        ..BASE
    },
    Row {
        name: "zunion",
        arity: -3,
        keys: SOURCES,
        flags: READ,
        since: "6.2.0",
        complexity: UNION_COMPLEXITY,
        summary: "Gives the members that any of the sorted sets has, their scores joined.",
        syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("ZADD b 5 one", "(integer) 1"),
            is("ZUNION 2 a b WITHSCORES", "1) \"two\"\n2) \"2\"\n3) \"one\"\n4) \"6\""),
            is("ZUNION 1 nosuch", "(empty array)"),
            is("ZUNION x a", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| reply(cx, Operation::Union, "zunion"),
        ..BASE
    },
    Row {
        name: "zunionstore",
        arity: -4,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: TARGET_AND_SOURCES,
        flags: WRITE,
        complexity: UNION_COMPLEXITY,
        summary: "Stores what ZUNION gives in a key and tells how many members that are.",
        syntax: "destination-key numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        examples: &[
            is("ZADD a 1 one 2 two", "(integer) 2"),
            is("ZADD b 5 one", "(integer) 1"),
            is("ZUNIONSTORE d 2 a b WEIGHTS 2 1 AGGREGATE MIN", "(integer) 2"),
            is("ZRANGE d 0 -1 WITHSCORES", "1) \"one\"\n2) \"2\"\n3) \"two\"\n4) \"4\""),
            is("ZUNIONSTORE d 0 a", "(error) ERR at least 1 input key is needed for 'zunionstore' command"),
        ],
        run: |cx| store(cx, Operation::Union, "zunionstore"),
        ..BASE
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Inter,
    Union,
    Diff,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    ZSet(View<'a>),
    Set(Set<'a>),
}

type Scored<'a> = (f64, Cow<'a, [u8]>);

impl<'a> Source<'a> {
    fn of(value: Option<Value<'a>>) -> Result<Option<Source<'a>>, Stop> {
        Ok(match value {
            Some(Value::Inline(Kind::Set, _) | Value::Boxed(Boxed::Set(_))) => set(value)?.map(Source::Set),
            _ => zset(value)?.map(Source::ZSet),
        })
    }

    fn len(self) -> usize {
        match self {
            Source::ZSet(zset) => zset.len(),
            Source::Set(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::ZSet(zset) => zset.score(member),
            Source::Set(set) => set.contains(member).then_some(1.0),
        }
    }

    fn iter(self) -> Box<dyn Iterator<Item = Scored<'a>> + 'a> {
        match self {
            Source::ZSet(zset) => Box::new(zset.iter().map(|(score, member)| (score, Cow::Borrowed(member)))),
            Source::Set(set) => Box::new(set.iter().map(|member| match member {
                Member::Text(text) => (1.0, Cow::Borrowed(text)),
                Member::Int(_) => (1.0, Cow::Owned(member.with(<[u8]>::to_vec))),
            })),
        }
    }
}

/// The sources of a command. `None`: no such key.
fn sources<'k>(ks: &'k mut Keyspace<'_>, keys: &[Key<'_>]) -> Result<Vec<Option<Source<'k>>>, Stop> {
    ks.get_all(keys)?.into_iter().map(Source::of).collect()
}

/// The number of sources that argument `at` gives.
fn source_count(args: Args<'_>, at: usize, command: &str) -> Result<usize, Stop> {
    let count = int_or_error(&args[at])?;
    if count < 1 {
        return Err(Stop::Error(format!("ERR at least 1 input key is needed for '{command}' command").into()));
    }
    usize::try_from(count).ok().filter(|&count| count < args.len() - at).ok_or(SYNTAX)
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn join(self, old: f64, new: f64) -> f64 {
        match self {
            // Infinity minus infinity counts as 0.
            Aggregate::Sum => number_or_zero(old + new),
            Aggregate::Min => {
                if new < old {
                    new
                } else {
                    old
                }
            }
            Aggregate::Max => {
                if new > old {
                    new
                } else {
                    old
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The arguments after the sources.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Options {
    fn parse(args: Args<'_>, from: usize, sources: usize, operation: Operation, stores: bool) -> Result<Options, Stop> {
        let mut options = Options { weights: vec![1.0; sources], aggregate: Aggregate::Sum, with_scores: false };
        let joins = operation != Operation::Diff;
        let mut at = from;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if joins && says("weights") && args.len() - at > sources {
                for (weight, text) in options.weights.iter_mut().zip(args.from(at + 1)) {
                    *weight = number::double(text).ok_or(Stop::error("ERR weight value is not a float"))?;
                }
                at += 1 + sources;
            } else if joins && says("aggregate") && args.len() - at > 1 {
                options.aggregate = match args[at + 1].to_ascii_lowercase().as_slice() {
                    b"sum" => Aggregate::Sum,
                    b"min" => Aggregate::Min,
                    b"max" => Aggregate::Max,
                    _ => return Err(SYNTAX),
                };
                at += 2;
            } else if !stores && says("withscores") {
                options.with_scores = true;
                at += 1;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }
}

/// The result, in order.
fn combine<'k>(sources: &[Option<Source<'k>>], operation: Operation, options: &Options) -> Vec<Scored<'k>> {
    let aggregate = options.aggregate;
    let mut result: Vec<Scored<'k>> = Vec::new();
    // Smallest source first, as in Redis: the sum of fractions depends on the order.
    let mut weighted: Vec<(Option<Source<'k>>, f64)> =
        sources.iter().copied().zip(options.weights.iter().copied()).collect();
    if operation != Operation::Diff {
        weighted.sort_by_key(|(source, _)| source.map_or(0, Source::len));
    }
    match operation {
        Operation::Inter => intersect(&weighted, &mut |entry, others| {
            let joined = others.fold(entry.0, |score, other| aggregate.join(score, other));
            result.push((joined, entry.1));
            true
        }),
        Operation::Union => {
            let mut scores: HashMap<Cow<'k, [u8]>, f64> = HashMap::new();
            for (source, weight) in weighted {
                for (score, member) in source.iter().flat_map(|source| source.iter()) {
                    let score = number_or_zero(weight * score);
                    match scores.entry(member) {
                        Entry::Vacant(place) => _ = place.insert(score),
                        Entry::Occupied(mut place) => *place.get_mut() = aggregate.join(*place.get(), score),
                    }
                }
            }
            result.extend(scores.into_iter().map(|(member, score)| (score, member)));
        }
        Operation::Diff => {
            let (first, others) = sources.split_first().expect("there is at least one");
            let is_left = |member: &[u8]| others.iter().flatten().all(|other| other.score(member).is_none());
            result.extend(first.iter().flat_map(|first| first.iter()).filter(|(_, member)| is_left(member)));
        }
    }
    result.sort_unstable_by(|a, b| a.0.partial_cmp(&b.0).expect("no score is NaN").then_with(|| a.1.cmp(&b.1)));
    result
}

/// Calls `visit` for each member that all sources contain, with its weighted score in the first source and its scores
/// in the others, until `visit` returns false. The first source is the smallest.
fn intersect<'k>(
    sources: &[(Option<Source<'k>>, f64)],
    visit: &mut dyn FnMut(Scored<'k>, &mut dyn Iterator<Item = f64>) -> bool,
) {
    let all: Option<Vec<(Source<'k>, f64)>> = sources.iter().map(|&(source, weight)| Some((source?, weight))).collect();
    let Some(all) = all else { return };
    let (first, weight) = all[0];
    let mut scores = Vec::new();
    for (score, member) in first.iter() {
        scores.clear();
        for (other, weight) in &all[1..] {
            let Some(score) = other.score(&member) else { break };
            scores.push(score * weight);
        }
        if scores.len() + 1 == all.len()
            && !visit((number_or_zero(weight * score), member), &mut scores.iter().copied())
        {
            return;
        }
    }
}

fn reply(cx: &mut Cx<'_>, operation: Operation, command: &str) -> Run {
    let args = cx.args;
    let count = source_count(args, 1, command)?;
    let sources = sources(&mut cx.ks, cx.keys)?;
    let options = Options::parse(args, 2 + count, count, operation, false)?;
    let result = combine(&sources, operation, &options);
    let mut entries = Entries { out: &mut cx.out, with_scores: options.with_scores };
    entries.header(result.len());
    result.iter().for_each(|(score, member)| entries.entry(*score, member));
    Ok(())
}

fn store(cx: &mut Cx<'_>, operation: Operation, command: &'static str) -> Run {
    let (args, limits) = (cx.args, Limits::of(cx.settings));
    let count = source_count(args, 2, command)?;
    let draft = {
        let sources = sources(&mut cx.ks, &cx.keys[1..])?;
        let options = Options::parse(args, 3 + count, count, operation, true)?;
        Draft::of_sorted(&combine(&sources, operation, &options), limits)
    };
    let len = draft.store(cx, &cx.keys[0], command)?;
    cx.out.int(len as i64);
    Ok(())
}

fn zintercard(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let count = source_count(args, 1, "zintercard")?;
    let sources = sources(&mut cx.ks, cx.keys)?;
    let (mut limit, mut at) = (usize::MAX, 2 + count);
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if word.eq_ignore_ascii_case(b"limit") => limit = limit_of(number)?,
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    let mut weighted: Vec<_> = sources.iter().map(|&source| (source, 1.0)).collect();
    weighted.sort_by_key(|(source, _)| source.map_or(0, Source::len));
    let mut found = 0;
    intersect(&weighted, &mut |_, _| {
        found += 1;
        found < limit
    });
    cx.out.int(found as i64);
    Ok(())
}
