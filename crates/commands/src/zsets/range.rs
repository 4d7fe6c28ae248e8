//! Owns the commands on ranges of a sorted set, by rank, score or member. Never knows how a sorted set is stored.

use super::form::{Draft, Entries, Limits, of_tree, remove_range, zset};
use super::{BASE, READ, READ_FAST, WRITE, WRONG};
use crate::cx::{Args, BULK_FRAME_BYTES, Cx, claim_reply};
use crate::number::{self, Digits, int_or_error};
use crate::row::{Access, Effect, Flag, KeyUse, Keys, Row, is};
use crate::stop::{Run, SYNTAX, Stop};
use std::ops::Range;
use value::zset::{Edge, Side, Tree, View};
use value::{Absent, Boxed};

const RANGE_COMPLEXITY: &str = "O(log(N)+M) where N is the number of members and M that of those in the range.";
const NO_FLOAT: &str = "(error) ERR min or max is not a float";
const NO_LEX: &str = "(error) ERR min or max not valid string range item";

pub const ROWS: &[Row] = &[
    Row {
        name: "zcount",
        arity: 4,
        flags: READ_FAST,
        summary: "Counts the members with scores in a range.",
        syntax: "key min max",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZCOUNT z (1 +inf", "(integer) 2"),
            is("ZCOUNT nosuch 0 1", "(integer) 0"),
            is("ZCOUNT z x 1", NO_FLOAT),
        ],
        run: |cx| count(cx, By::Score),
        ..BASE
    },
    Row {
        name: "zlexcount",
        arity: 4,
        flags: READ_FAST,
        since: "2.8.9",
        summary: "Counts the members in a range, in a sorted set whose scores are all the same.",
        syntax: "key min max",
        examples: &[
            is("ZADD z 0 a 0 b 0 c", "(integer) 3"),
            is("ZLEXCOUNT z [b +", "(integer) 2"),
            is("ZLEXCOUNT z - (c", "(integer) 2"),
            is("ZLEXCOUNT z b +", NO_LEX),
        ],
        run: |cx| count(cx, By::Lex),
        ..BASE
    },
    Row {
        name: "zrange",
        arity: -4,
        flags: READ,
        since: "1.2.0",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives a range of members by rank, score or member, in order or in reverse.",
        syntax: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        examples: &[
            is("ZADD z 1 one 2 two 3 three", "(integer) 3"),
            is("ZRANGE z 0 -1", "1) \"one\"\n2) \"two\"\n3) \"three\""),
            is("ZRANGE z 0 0 REV WITHSCORES", "1) \"three\"\n2) \"3\""),
            is("ZRANGE z (1 +inf BYSCORE LIMIT 1 1", "1) \"three\""),
            is("ZRANGE z [t [u BYLEX", "1) \"two\"\n2) \"three\""),
            is("ZRANGE nosuch 0 -1", "(empty array)"),
            is(
                "ZRANGE z 0 -1 LIMIT 0 1",
                "(error) ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ),
            is("ZRANGE z 0 x", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, None, None, true)?),
        ..BASE
    },
    Row {
        name: "zrangebylex",
        arity: -4,
        flags: READ,
        since: "2.8.9",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives the members in a range, in a sorted set whose scores are all the same.",
        syntax: "key min max [LIMIT offset count]",
        examples: &[
            is("ZADD z 0 a 0 b 0 c", "(integer) 3"),
            is("ZRANGEBYLEX z (a +", "1) \"b\"\n2) \"c\""),
            is("ZRANGEBYLEX z - + LIMIT 1 1", "1) \"b\""),
            is("ZRANGEBYLEX z a b", NO_LEX),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, Some(By::Lex), Some(false), true)?),
        ..BASE
    },
    Row {
        name: "zrangebyscore",
        arity: -4,
        flags: READ,
        since: "1.0.5",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives the members with scores in a range.",
        syntax: "key min max [WITHSCORES] [LIMIT offset count]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZRANGEBYSCORE z (1 3", "1) \"b\"\n2) \"c\""),
            is("ZRANGEBYSCORE z -inf inf WITHSCORES LIMIT 0 1", "1) \"a\"\n2) \"1\""),
            is("ZRANGEBYSCORE z x 3", NO_FLOAT),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, Some(By::Score), Some(false), true)?),
        ..BASE
    },
    Row {
        name: "zrangestore",
        arity: -5,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        flags: &[Flag::Write, Flag::Denyoom],
        effect: Effect::Stated,
        since: "6.2.0",
        complexity: RANGE_COMPLEXITY,
        summary: "Stores what ZRANGE gives in a key, as a sorted set, and tells how many members that are.",
        syntax: "destination-key source-key min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        examples: &[
            is("ZADD z 1 one 2 two 3 three", "(integer) 3"),
            is("ZRANGESTORE d z 1 -1", "(integer) 2"),
            is("ZRANGE d 0 -1 WITHSCORES", "1) \"two\"\n2) \"2\"\n3) \"three\"\n4) \"3\""),
            is("ZRANGESTORE d nosuch 0 -1", "(integer) 0"),
            is("EXISTS d", "(integer) 0"),
            is("ZRANGESTORE d z 0 -1 WITHSCORES", "(error) ERR syntax error"),
        ],
        run: zrangestore,
        ..BASE
    },
    Row {
        name: "zremrangebylex",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE,
        effect: Effect::Stated,
        since: "2.8.9",
        complexity: RANGE_COMPLEXITY,
        summary: "Removes the members in a range, in a sorted set whose scores are all the same.",
        syntax: "key min max",
        examples: &[
            is("ZADD z 0 a 0 b 0 c", "(integer) 3"),
            is("ZREMRANGEBYLEX z - (c", "(integer) 2"),
            is("ZRANGE z 0 -1", "1) \"c\""),
            is("ZREMRANGEBYLEX z a b", NO_LEX),
        ],
        run: |cx| remove(cx, By::Lex),
        ..BASE
    },
    Row {
        name: "zremrangebyrank",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE,
        complexity: RANGE_COMPLEXITY,
        summary: "Removes the members in a range of ranks.",
        syntax: "key start stop",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZREMRANGEBYRANK z 0 -2", "(integer) 2"),
            is("ZREMRANGEBYRANK z 0 -1", "(integer) 1"),
            is("EXISTS z", "(integer) 0"),
            is("ZREMRANGEBYRANK z 0 x", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| remove(cx, By::Rank),
        ..BASE
    },
    Row {
        name: "zremrangebyscore",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE,
        since: "1.2.0",
        complexity: RANGE_COMPLEXITY,
        summary: "Removes the members with scores in a range.",
        syntax: "key min max",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZREMRANGEBYSCORE z -inf (3", "(integer) 2"),
            is("ZCARD z", "(integer) 1"),
            is("ZREMRANGEBYSCORE z x 3", NO_FLOAT),
        ],
        run: |cx| remove(cx, By::Score),
        ..BASE
    },
    Row {
        name: "zrevrange",
        arity: -4,
        flags: READ,
        since: "1.2.0",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives a range of members by rank, in reverse.",
        syntax: "key start stop [WITHSCORES]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZREVRANGE z 0 1 WITHSCORES", "1) \"c\"\n2) \"3\"\n3) \"b\"\n4) \"2\""),
            is("ZREVRANGE z 0 1 REV", "(error) ERR syntax error"),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, Some(By::Rank), Some(true), true)?),
        ..BASE
    },
    Row {
        name: "zrevrangebylex",
        arity: -4,
        flags: READ,
        since: "2.8.9",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives the members in a range in reverse, in a sorted set whose scores are all the same.",
        syntax: "key max min [LIMIT offset count]",
        examples: &[
            is("ZADD z 0 a 0 b 0 c", "(integer) 3"),
            is("ZREVRANGEBYLEX z + (a", "1) \"c\"\n2) \"b\""),
            is("ZREVRANGEBYLEX z a b", NO_LEX),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, Some(By::Lex), Some(true), true)?),
        ..BASE
    },
    Row {
        name: "zrevrangebyscore",
        arity: -4,
        flags: READ,
        since: "2.2.0",
        complexity: RANGE_COMPLEXITY,
        summary: "Gives the members with scores in a range, in reverse.",
        syntax: "key max min [WITHSCORES] [LIMIT offset count]",
        examples: &[
            is("ZADD z 1 a 2 b 3 c", "(integer) 3"),
            is("ZREVRANGEBYSCORE z 3 (1", "1) \"c\"\n2) \"b\""),
            is("ZREVRANGEBYSCORE z 3 x", NO_FLOAT),
            is("SET k x", "OK"),
            is("ZREVRANGEBYSCORE k 3 1", WRONG),
        ],
        run: |cx| range(cx, Select::parse(cx.args, 1, Some(By::Score), Some(true), true)?),
        ..BASE
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The ends of a range. Both belong to the range.
#[derive(Clone, Copy)]
enum Ends<'a> {
    /// From the start, or from the end if negative.
    Ranks(i64, i64),
    Edges(Edge<'a>, Edge<'a>),
}

impl<'a> Ends<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Ends<'a>, Stop> {
        Ok(match by {
            By::Rank => Ends::Ranks(int_or_error(min)?, int_or_error(max)?),
            By::Score => match (score_edge(min, Side::Before), score_edge(max, Side::After)) {
                (Some(low), Some(high)) => Ends::Edges(low, high),
                _ => return Err(Stop::error("ERR min or max is not a float")),
            },
            By::Lex => match (lex_edge(min, Side::Before), lex_edge(max, Side::After)) {
                (Some(low), Some(high)) => Ends::Edges(low, high),
                _ => return Err(Stop::error("ERR min or max not valid string range item")),
            },
        })
    }

    /// The first rank in the range and the number of ranks, counted from the end if reversed.
    fn ranks(self, zset: View<'_>, reverse: bool) -> (usize, usize) {
        let (low, high) = match self {
            Ends::Edges(low, high) => (zset.rank(&low), zset.rank(&high)),
            Ends::Ranks(start, stop) => {
                let len = zset.len() as i64;
                let from_start = |rank: i64| if rank < 0 { rank.saturating_add(len) } else { rank };
                let start = from_start(start).clamp(0, len);
                let end = from_start(stop).min(len - 1) + 1;
                return (start as usize, usize::try_from(end - start).unwrap_or(0));
            }
        };
        let first = if reverse { zset.len() - high } else { low };
        (first, high.saturating_sub(low))
    }
}

impl Ends<'_> {
    /// The parts of a sorted set that are read to find the ranks.
    fn want(self, tree: &Tree, out: &mut Absent) {
        if let Ends::Edges(low, high) = self {
            tree.want_rank(&low, out);
            tree.want_rank(&high, out);
        }
    }
}

/// `5`, `(5`, `-inf` …; `side` is the side of the edge if the range includes the score itself.
fn score_edge(text: &[u8], side: Side) -> Option<Edge<'static>> {
    let (text, side) = match text.strip_prefix(b"(") {
        Some(text) => (text, other(side)),
        None => (text, side),
    };
    Some(Edge::Score(number::range_end(text)?, side))
}

/// `[a`, `(a`, `-`, `+`.
fn lex_edge(text: &[u8], side: Side) -> Option<Edge<'_>> {
    match text {
        // Redis stops reading at a NUL.
        [b'-'] | [b'-', 0, ..] => Some(Edge::START),
        [b'+'] | [b'+', 0, ..] => Some(Edge::END),
        [b'[', member @ ..] => Some(Edge::Member(member, side)),
        [b'(', member @ ..] => Some(Edge::Member(member, other(side))),
        _ => None,
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Before => Side::After,
        Side::After => Side::Before,
    }
}

/// The arguments of ZRANGE and the like.
struct Select<'a> {
    ends: Ends<'a>,
    reverse: bool,
    offset: i64,
    limit: i64,
    with_scores: bool,
}

impl<'a> Select<'a> {
    /// The source's key is argument `key`. Options cannot change what the command itself fixes.
    fn parse(
        args: Args<'a>,
        key: usize,
        by: Option<By>,
        reverse: Option<bool>,
        scores_allowed: bool,
    ) -> Result<Select<'a>, Stop> {
        let (mut by_option, mut reverse_option) = (by, reverse);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut at = key + 3;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match (args.get(at + 1), args.get(at + 2)) {
                _ if scores_allowed && says("withscores") => with_scores = true,
                (Some(first), Some(second)) if says("limit") => {
                    (offset, limit) = (int_or_error(first)?, int_or_error(second)?);
                    at += 2;
                }
                _ if reverse_option.is_none() && says("rev") => reverse_option = Some(true),
                _ if by_option.is_none() && says("bylex") => by_option = Some(By::Lex),
                _ if by_option.is_none() && says("byscore") => by_option = Some(By::Score),
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        let by = by_option.unwrap_or(By::Rank);
        let reverse = reverse_option.unwrap_or(false);
        if limit != -1 && by == By::Rank {
            return Err(Stop::error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Stop::error("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (start, stop) = (args.get(key + 1).unwrap_or_default(), args.get(key + 2).unwrap_or_default());
        let (min, max) = if reverse && by != By::Rank { (stop, start) } else { (start, stop) };
        let ends = Ends::parse(by, min, max)?;
        if by == By::Rank {
            (offset, limit) = (0, -1);
        }
        Ok(Select { ends, reverse, offset, limit, with_scores })
    }

    /// The ranks of the entries that exist.
    fn ranks(&self, zset: View<'_>) -> Range<usize> {
        let (first, count) = self.ends.ranks(zset, self.reverse);
        let skipped = usize::try_from(self.offset).map_or(count, |offset| offset.min(count));
        let taken = usize::try_from(self.limit).map_or(count, |limit| limit).min(count - skipped);
        match taken {
            0 => 0..0,
            _ if self.reverse => zset.len() - first - skipped - taken..zset.len() - first - skipped,
            _ => first + skipped..first + skipped + taken,
        }
    }

    /// The number of entries, and the entries.
    fn entries<'z>(&self, zset: View<'z>) -> (usize, value::zset::Range<'z>) {
        let ranks = self.ranks(zset);
        let start = if self.reverse && !ranks.is_empty() { ranks.end - 1 } else { ranks.start };
        (ranks.len(), zset.range(start, ranks.len(), self.reverse))
    }

    /// The parts of a sorted set that the command reads.
    fn of_entries(&self) -> impl Fn(&Boxed, &mut Absent) {
        of_tree(|tree, out| {
            self.ends.want(tree, out);
            if out.is_empty() {
                tree.want_range(self.ranks(View::Tree(tree)), out);
            }
        })
    }
}

fn range(cx: &mut Cx<'_>, select: Select<'_>) -> Run {
    let Some(zset) = zset(cx.ks.get_for(&cx.keys[0], &select.of_entries())?)? else {
        cx.out.array(0);
        return Ok(());
    };
    let (count, found) = select.entries(zset);
    claim_reply(cx.settings, cx.session, &mut cx.out, reply_bytes(zset, count))?;
    let mut entries = Entries { out: &mut cx.out, with_scores: select.with_scores };
    entries.header(count);
    found.for_each(|(score, member)| entries.entry(score, member));
    Ok(())
}

/// Estimated size of a reply with this many members, as if all had the same length. A packed sorted set is small, so it
/// counts as 0.
pub fn reply_bytes(zset: View<'_>, count: usize) -> usize {
    match zset {
        View::Run(_) => 0,
        View::Tree(tree) => (tree.mem_bytes() / tree.len().max(1) + 2 * BULK_FRAME_BYTES) * count,
    }
}

fn zrangestore(cx: &mut Cx<'_>) -> Run {
    let select = Select::parse(cx.args, 2, None, None, false)?;
    let limits = Limits::of(cx.settings);
    let (mut found, mut ranks): (Vec<(f64, &[u8])>, _) = (Vec::new(), 0..0);
    if let Some(zset) = zset(cx.ks.get_for(&cx.keys[1], &select.of_entries())?)? {
        found.extend(select.entries(zset).1);
        ranks = select.ranks(zset);
    }
    if select.reverse {
        found.reverse();
    }
    let draft = Draft::of_sorted(&found, limits);
    let (to, from) = (&cx.keys[0], &cx.keys[1]);
    let len = draft.store(cx, to, "zrangestore")?;
    if len > 0 {
        // State ranks: which members lie between two members of different scores depends on the encoding of the sorted
        // set.
        let [first, last] = as_text(ranks);
        cx.effect(&[b"ZRANGESTORE", to.name, from.name, first.as_bytes(), last.as_bytes()]);
    } else if cx.ks.wrote() {
        cx.effect(&[b"DEL", to.name]);
    }
    cx.out.int(len as i64);
    Ok(())
}

/// The first and the last rank, as text for a command.
fn as_text(ranks: Range<usize>) -> [Digits; 2] {
    [ranks.start as i64, ranks.end as i64 - 1].map(Digits::new)
}

fn count(cx: &mut Cx<'_>, by: By) -> Run {
    let args = cx.args;
    let ends = Ends::parse(by, &args[2], &args[3])?;
    let of_ends = of_tree(|tree, out| ends.want(tree, out));
    let count = zset(cx.ks.get_for(&cx.keys[0], &of_ends)?)?.map_or(0, |zset| ends.ranks(zset, false).1);
    cx.out.int(count as i64);
    Ok(())
}

fn remove(cx: &mut Cx<'_>, by: By) -> Run {
    let args = cx.args;
    let ends = Ends::parse(by, &args[2], &args[3])?;
    let of_range = of_tree(|tree, out| {
        ends.want(tree, out);
        if out.is_empty() {
            let (first, count) = ends.ranks(View::Tree(tree), false);
            tree.want_remove_range(first..first + count, out);
        }
    });
    let zset = zset(cx.ks.view_for(&cx.keys[0], &of_range)?)?;
    let (first, count) = zset.map_or((0, 0), |zset| ends.ranks(zset, false));
    if count > 0 {
        let event = match by {
            By::Rank => "zremrangebyrank",
            By::Score => "zremrangebyscore",
            By::Lex => "zremrangebylex",
        };
        let (key, ranks) = (&cx.keys[0], first..first + count);
        remove_range(cx, key, ranks.clone(), event)?;
        // As in `zrangestore`.
        if by == By::Lex {
            let [first, last] = as_text(ranks);
            cx.effect(&[b"ZREMRANGEBYRANK", key.name, first.as_bytes(), last.as_bytes()]);
        }
    }
    cx.out.int(count as i64);
    Ok(())
}
