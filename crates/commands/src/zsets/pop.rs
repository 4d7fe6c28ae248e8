//! Owns the commands that remove the first or last members of a sorted set, at once or as soon as there are any. Never
//! knows how they wait: the handler runs again when a key has become a sorted set.

use super::form::{of_tree, remove_range, zset};
use super::range::reply_bytes;
use super::{BASE, WRITE_FAST, WRONG};
use crate::block::Block;
use crate::cx::{Args, Cx, claim_reply};
use crate::number::{Digits, int};
use crate::row::{Access, Effect, Flag, KeyUse, Keys, Row, is};
use crate::sets::positive;
use crate::stop::{Run, SYNTAX, Stop};
use crate::timeout::until_seconds;
use resp::reply::Proto;
use std::ops::Range;
use store::{Key, Kind, NOTHING};
use value::{Absent, Boxed};

const COMPLEXITY: &str = "O(log(N)*M) where N is the number of members and M that of those taken.";
const MPOP_COMPLEXITY: &str =
    "O(K) + O(M*log(N)) where K is the number of keys, N that of members and M that of those taken.";

const BZPOP: Row = Row {
    arity: -3,
    // The timeout comes after the keys.
    keys: Keys::Range { first: 1, last: -2, step: 1 },
    flags: &[Flag::Write, Flag::Fast, Flag::Blocking],
    since: "5.0.0",
    complexity: "O(log(N)) where N is the number of members.",
    syntax: "key [key ...] timeout",
    ..BASE
};

pub const ROWS: &[Row] = &[
    Row {
        name: "bzmpop",
        arity: -5,
        keys: Keys::Counted { at: 2 },
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
        effect: Effect::Stated,
        since: "7.0.0",
        complexity: MPOP_COMPLEXITY,
        summary: "Takes members as ZMPOP does, waiting for some if there are none.",
        syntax: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
        examples: &[
            is("ZADD z 1 a 2 b", "(integer) 2"),
            is(
                "BZMPOP 0 2 nosuch z MIN COUNT 9",
                "1) \"z\"\n2) 1) 1) \"a\"\n      2) \"1\"\n   2) 1) \"b\"\n      2) \"2\"",
            ),
            is("BZMPOP 0.001 1 z MAX", "(nil)"),
            is("BZMPOP 0 0 z MAX", "(error) ERR numkeys should be greater than 0"),
            is("BZMPOP -1 1 z MAX", "(error) ERR timeout is negative"),
        ],
        run: |cx| {
            let (end, count) = parse_pop(cx.args, 2)?;
            blocking(cx, end, count, Shape::Pairs, 1)
        },
        ..BASE
    },
    Row {
        name: "bzpopmax",
        access: Access::All(KeyUse::TAKE),
        effect: Effect::Stated,
        summary: "Takes the member with the highest score of the first sorted set that has any, waiting for one if none has.",
        examples: &[
            is("ZADD z 1 a 2.5 b", "(integer) 2"),
            is("BZPOPMAX nosuch z 0", "1) \"z\"\n2) \"b\"\n3) \"2.5\""),
            is("BZPOPMAX nosuch 0.001", "(nil)"),
            is("BZPOPMAX z x", "(error) ERR timeout is not a float or out of range"),
        ],
        run: |cx| blocking(cx, End::Max, 1, Shape::Flat, cx.args.len() - 1),
        ..BZPOP
    },
    Row {
        name: "bzpopmin",
        access: Access::All(KeyUse::TAKE),
        effect: Effect::Stated,
        summary: "Takes the member with the lowest score of the first sorted set that has any, waiting for one if none has.",
        examples: &[
            is("ZADD z 1 a 2.5 b", "(integer) 2"),
            is("BZPOPMIN nosuch z 0", "1) \"z\"\n2) \"a\"\n3) \"1\""),
            is("BZPOPMIN nosuch 0.001", "(nil)"),
            is("BZPOPMIN z -1", "(error) ERR timeout is negative"),
            is("SET k x", "OK"),
            is("BZPOPMIN k z 0", WRONG),
        ],
        run: |cx| blocking(cx, End::Min, 1, Shape::Flat, cx.args.len() - 1),
        ..BZPOP
    },
    Row {
        name: "zmpop",
        arity: -4,
        keys: Keys::Counted { at: 1 },
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::MovableKeys],
        effect: Effect::Stated,
        since: "7.0.0",
        complexity: MPOP_COMPLEXITY,
        summary: "Takes members with the lowest or highest scores out of the first sorted set that has any.",
        syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZMPOP 2 nosuch z MIN", "1) \"z\"\n2) 1) 1) \"a\"\n      2) \"1\""),
            is("ZMPOP 1 z MAX COUNT 5", "1) \"z\"\n2) 1) 1) \"c\"\n      2) \"3\"\n   2) 1) \"b\"\n      2) \"2\""),
            is("ZMPOP 1 z MIN", "(nil)"),
            is("ZMPOP 0 z MIN", "(error) ERR numkeys should be greater than 0"),
            is("ZMPOP 1 z MIN COUNT 0", "(error) ERR count should be greater than 0"),
            is("ZMPOP 1 z MIDDLE", "(error) ERR syntax error"),
        ],
        run: |cx| {
            let (end, count) = parse_pop(cx.args, 1)?;
            if !take_first(cx, end, count, Shape::Pairs)? {
                cx.out.null_array();
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "zpopmax",
        arity: -2,
        access: Access::All(KeyUse::TAKE),
        flags: WRITE_FAST,
        since: "5.0.0",
        complexity: COMPLEXITY,
        summary: "Takes the members with the highest scores out of a sorted set.",
        syntax: "key [count]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZPOPMAX z", "1) \"c\"\n2) \"3\""),
            is("ZPOPMAX z 2", "1) \"b\"\n2) \"2\"\n3) \"a\"\n4) \"1\""),
            is("ZPOPMAX z", "(empty array)"),
            is("SET k x", "OK"),
            is("ZPOPMAX k", WRONG),
        ],
        run: |cx| zpop(cx, End::Max),
        ..BASE
    },
    Row {
        name: "zpopmin",
        arity: -2,
        access: Access::All(KeyUse::TAKE),
        flags: WRITE_FAST,
        since: "5.0.0",
        complexity: COMPLEXITY,
        summary: "Takes the members with the lowest scores out of a sorted set.",
        syntax: "key [count]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZPOPMIN z", "1) \"a\"\n2) \"1\""),
            is("ZPOPMIN z 5", "1) \"b\"\n2) \"2\"\n3) \"c\"\n4) \"3\""),
            is("EXISTS z", "(integer) 0"),
            is("ZPOPMIN z -1", "(error) ERR value is out of range, must be positive"),
        ],
        run: |cx| zpop(cx, End::Min),
        ..BASE
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn parse(word: &[u8]) -> Result<End, Stop> {
        match word {
            _ if word.eq_ignore_ascii_case(b"min") => Ok(End::Min),
            _ if word.eq_ignore_ascii_case(b"max") => Ok(End::Max),
            _ => Err(SYNTAX),
        }
    }
}

impl End {
    /// The ranks of `count` entries at this end. The caller checked that they exist.
    fn ranks(self, count: usize, len: usize) -> Range<usize> {
        match self {
            End::Min => 0..count,
            End::Max => len - count..len,
        }
    }
}

/// The parts that hold `count` entries at this end.
fn of_end(end: End, count: usize) -> impl Fn(&Boxed, &mut Absent) {
    of_tree(move |tree, out| tree.want_remove_range(end.ranks(count.min(tree.len()), tree.len()), out))
}

/// The format of the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Members and scores in one array.
    Flat,
    /// An array for each member and its score.
    Pairs,
}

fn zpop(cx: &mut Cx<'_>, end: End) -> Run {
    let args = cx.args;
    let (count, shape) = match args.get(2) {
        None => (1, Shape::Flat),
        Some(_) if args.len() > 3 => return Err(SYNTAX),
        Some(count) if cx.out.proto() == Proto::Resp3 => (positive(count)?, Shape::Pairs),
        Some(count) => (positive(count)?, Shape::Flat),
    };
    if !take(cx, &cx.keys[0], end, count, shape)? {
        cx.out.array(0);
    }
    Ok(())
}

/// Removes entries of the sorted set at the key and writes them to the reply. False: there are none, and nothing was
/// written.
fn take(cx: &mut Cx<'_>, key: &Key<'_>, end: End, count: usize, shape: Shape) -> Result<bool, Stop> {
    let Some(zset) = zset(cx.ks.view_for(key, &of_end(end, count))?)? else { return Ok(false) };
    let count = count.min(zset.len());
    claim_reply(cx.settings, cx.session, &mut cx.out, reply_bytes(zset, count))?;
    cx.out.array(if shape == Shape::Flat { 2 * count } else { count });
    write_and_remove(cx, key, end, count, shape)?;
    Ok(true)
}

/// Like [`take`], when all parts are in RAM and the reply has begun.
fn write_and_remove(cx: &mut Cx<'_>, key: &Key<'_>, end: End, count: usize, shape: Shape) -> Result<(), Stop> {
    let Some(zset) = zset(cx.ks.view_for(key, NOTHING)?)?.filter(|_| count > 0) else { return Ok(()) };
    let ranks = end.ranks(count, zset.len());
    let start = if end == End::Max { ranks.end - 1 } else { ranks.start };
    for (score, member) in zset.range(start, count, end == End::Max) {
        if shape == Shape::Pairs {
            cx.out.array(2);
        }
        cx.out.bulk(member);
        cx.out.double(score);
    }
    let event = if end == End::Min { "zpopmin" } else { "zpopmax" };
    remove_range(cx, key, ranks, event)
}

/// Removes entries of the first key that is a sorted set and writes them after the key's name. False: there are none,
/// and nothing was written.
fn take_first(cx: &mut Cx<'_>, end: End, count: usize, shape: Shape) -> Result<bool, Stop> {
    for key in cx.keys {
        let Some(zset) = zset(cx.ks.view_for(key, &of_end(end, count))?)? else { continue };
        let count = count.min(zset.len());
        cx.out.array(if shape == Shape::Flat { 1 + 2 * count } else { 2 });
        cx.out.bulk(key.name);
        if shape == Shape::Pairs {
            cx.out.array(count);
        }
        write_and_remove(cx, key, end, count, shape)?;
        let name: &[u8] = if end == End::Min { b"ZPOPMIN" } else { b"ZPOPMAX" };
        match count {
            1 => cx.effect(&[name, key.name]),
            _ => cx.effect(&[name, key.name, Digits::new(count as i64).as_bytes()]),
        }
        return Ok(true);
    }
    Ok(false)
}

fn blocking(cx: &mut Cx<'_>, end: End, count: usize, shape: Shape, timeout_at: usize) -> Run {
    let until_ms = until_seconds(&cx.args[timeout_at], cx.ks.now_ms())?;
    if take_first(cx, end, count, shape)? {
        return Ok(());
    }
    Err(Block::new(cx.keys.len(), Kind::ZSet, until_ms).into())
}

/// The arguments of ZMPOP from its number of keys on: which end, and how many.
fn parse_pop(args: Args<'_>, numkeys_at: usize) -> Result<(End, usize), Stop> {
    let positive = |text: &[u8], error| {
        let number = int(text).filter(|&number| number > 0).ok_or(error)?;
        Ok::<usize, Stop>(usize::try_from(number).unwrap_or(usize::MAX))
    };
    let keys = positive(&args[numkeys_at], Stop::error("ERR numkeys should be greater than 0"))?;
    let end_at = keys.saturating_add(numkeys_at + 1);
    let end = End::parse(args.get(end_at).ok_or(SYNTAX)?)?;
    let count = match (args.get(end_at + 1), args.get(end_at + 2)) {
        (None, _) => 1,
        (Some(word), Some(count)) if word.eq_ignore_ascii_case(b"count") => {
            positive(count, Stop::error("ERR count should be greater than 0"))?
        }
        _ => return Err(SYNTAX),
    };
    if args.len() > end_at + 3 { Err(SYNTAX) } else { Ok((end, count)) }
}
