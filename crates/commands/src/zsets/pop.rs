//! Owns the commands that take the first or last members out of a sorted set.

use super::form::{remove_range, zset};
use super::{ACL_WRITE, ACL_WRITE_FAST, BASE, WRITE_FAST, WRONG};
use crate::cx::{Args, Cx, Run, SYNTAX, Stop};
use crate::number::int;
use crate::row::{Flag, Keys, Row, is};
use crate::sets::{counted_keys, positive};
use resp::reply::Proto;
use store::Key;

const COMPLEXITY: &str = "O(log(N)*M) where N is the number of members and M that of those taken.";

pub const ROWS: &[Row] = &[
    Row {
        name: "zmpop",
        arity: -4,
        keys: Keys::Counted { at: 1 },
        flags: &[Flag::Write, Flag::MovableKeys],
        acl: ACL_WRITE,
        since: "7.0.0",
        complexity: "O(K) + O(M*log(N)) where K is the number of keys, N that of members and M that of those taken.",
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
        run: zmpop,
        ..BASE
    },
    Row {
        name: "zpopmax",
        arity: -2,
        flags: WRITE_FAST,
        acl: ACL_WRITE_FAST,
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
        flags: WRITE_FAST,
        acl: ACL_WRITE_FAST,
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

/// How the reply of entries is built.
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

/// Takes entries out of the sorted set at the key and writes them. False, and nothing written, if there is none.
fn take(cx: &mut Cx<'_>, key: &Key<'_>, end: End, count: usize, shape: Shape) -> Result<bool, Stop> {
    let Some(zset) = zset(cx.ks.get(key)?)? else { return Ok(false) };
    let len = zset.len();
    let count = count.min(len);
    cx.out.array(if shape == Shape::Flat { 2 * count } else { count });
    let ranks = match end {
        End::Min => 0..count,
        End::Max => len - count..len,
    };
    let start = if end == End::Min { 0 } else { len - 1 };
    for (score, member) in zset.range(start, count, end == End::Max) {
        if shape == Shape::Pairs {
            cx.out.array(2);
        }
        cx.out.bulk(member);
        cx.out.double(score);
    }
    if count > 0 {
        remove_range(cx, key, ranks)?;
    }
    Ok(true)
}

/// What ZMPOP takes after its keys.
fn parse_pop(args: Args<'_>, at: usize) -> Result<(End, usize), Stop> {
    let end = End::parse(args.get(at).ok_or(SYNTAX)?)?;
    let mut count = None;
    let mut at = at + 1;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if count.is_none() && word.eq_ignore_ascii_case(b"count") => {
                let number = int(number).filter(|&count| count > 0);
                count = Some(number.ok_or(Stop::error("ERR count should be greater than 0"))?);
            }
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    Ok((end, count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX))))
}

fn zmpop(cx: &mut Cx<'_>) -> Run {
    let keys = counted_keys_or_syntax(cx)?;
    let (end, count) = parse_pop(cx.args, 2 + keys)?;
    for key in cx.keys {
        if zset(cx.ks.get(key)?)?.is_some() {
            cx.out.array(2);
            cx.out.bulk(key.name);
            take(cx, key, end, count, Shape::Pairs)?;
            return Ok(());
        }
    }
    cx.out.null_array();
    Ok(())
}

/// As for SINTERCARD, but too few keys are a syntax error.
fn counted_keys_or_syntax(cx: &Cx<'_>) -> Result<usize, Stop> {
    let count = int(&cx.args[1]).filter(|&count| count > 0).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    match count {
        Some(count) if count >= cx.args.len() - 2 => Err(SYNTAX),
        _ => counted_keys(cx),
    }
}
