//! Owns the commands on members of a sorted set: adding, removing, scores, ranks, random members. Never knows how a
//! sorted set is stored.

use super::form::{Draft, Edit, Entries, Limits, of_members, of_tree, zset};
use super::range::reply_bytes;
use super::{BASE, READ, READ_FAST, WRITE_FAST, WRONG};
use crate::cx::{BULK_FRAME_BYTES, Cx, REPLY_BYTES_MAX, claim_reply, drawn_bytes};
use crate::number;
use crate::random::{self, Draws, SAMPLE_MAX, Selection};
use crate::row::{Access, Flag, KeyUse, Row, is, only_here};
use crate::scan::{INVALID_CURSOR, SCAN_COUNT, ScanOf, ScanOptions};
use crate::sets::count_of;
use crate::stop::{NOT_FLOAT, OUT_OF_RANGE, Run, SYNTAX, Stop};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::iter::once;
use store::{Class, NOTHING};
use value::zset::{Step, View};
use value::{Absent, Boxed};

pub const ROWS: &[Row] = &[
    Row {
        name: "zadd",
        arity: -4,
        access: Access::All(KeyUse::UPDATE),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        since: "1.2.0",
        complexity: "O(log(N)) for each member, where N is the number of members of the sorted set.",
        summary: "Sets the scores of members of a sorted set; absent members are added.",
        syntax: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        examples: &[
            is("ZADD z 1 one 2 two", "(integer) 2"),
            is("ZADD z CH 3 two 3 three", "(integer) 2"),
            is("ZADD z NX 9 one", "(integer) 0"),
            is("ZADD z XX GT CH 0 one 5 three", "(integer) 1"),
            is("ZADD z INCR 1.5 one", "\"2.5\""),
            is("ZADD z XX INCR 1 nosuch", "(nil)"),
            is("ZADD z NX XX 1 one", "(error) ERR XX and NX options at the same time are not compatible"),
            is("ZADD z GT LT 1 a", "(error) ERR GT, LT, and/or NX options at the same time are not compatible"),
            is("ZADD z INCR 1 a 2 b", "(error) ERR INCR option supports a single increment-element pair"),
            is("ZADD z x one", "(error) ERR value is not a valid float"),
            is("ZADD z 1 one 2", "(error) ERR syntax error"),
        ],
        run: |cx| zadd(cx, Rule::default()),
        ..BASE
    },
    Row {
        name: "zcard",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        since: "1.2.0",
        complexity: "O(1); a compact sorted set is walked.",
        summary: "Gives the number of members of a sorted set.",
        examples: &[
            is("ZADD z 1 a 2 b", "(integer) 2"),
            is("ZCARD z", "(integer) 2"),
            is("ZCARD nosuch", "(integer) 0"),
            is("SET k x", "OK"),
            is("ZCARD k", WRONG),
        ],
        run: |cx| {
            let len = zset(cx.ks.get_for(&cx.keys[0], NOTHING)?)?.map_or(0, View::len);
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "zincrby",
        arity: 4,
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        since: "1.2.0",
        summary: "Adds a number to a member's score; no member counts as 0.",
        syntax: "key increment member",
        examples: &[
            is("ZINCRBY z 2 a", "\"2\""),
            is("ZINCRBY z -0.5 a", "\"1.5\""),
            is("ZADD z inf b", "(integer) 1"),
            is("ZINCRBY z -inf b", "(error) ERR resulting score is not a number (NaN)"),
            is("ZINCRBY z x a", "(error) ERR value is not a valid float"),
            is("ZINCRBY z NX a", "(error) ERR syntax error"),
        ],
        // A word in the increment's place that is an option counts as an option, and the pair is then incomplete.
        run: |cx| zadd(cx, Rule { incr: true, ..Rule::default() }),
        ..BASE
    },
    Row {
        name: "zmscore",
        arity: -3,
        flags: READ_FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members asked for.",
        summary: "Gives the scores of several members, null for those that are not there.",
        syntax: "key member [member ...]",
        examples: &[
            is("ZADD z 1 a 2.5 b", "(integer) 2"),
            is("ZMSCORE z b nosuch a", "1) \"2.5\"\n2) (nil)\n3) \"1\""),
            is("ZMSCORE nosuch a", "1) (nil)"),
            is("ZMSCORE z", "(error) ERR wrong number of arguments for 'zmscore' command"),
        ],
        run: zmscore,
        ..BASE
    },
    Row {
        name: "zrandmember",
        arity: -2,
        flags: READ,
        tips: &["nondeterministic_output"],
        since: "6.2.0",
        complexity: "O(N) where N is the number of members given.",
        summary: "Gives random members of a sorted set: distinct ones for a positive count, any for a negative one.",
        syntax: "key [count [WITHSCORES]]",
        examples: &[
            is("ZADD z 1.5 only", "(integer) 1"),
            is("ZRANDMEMBER z", "\"only\""),
            is("ZRANDMEMBER z -2", "1) \"only\"\n2) \"only\""),
            is("ZRANDMEMBER z 5 WITHSCORES", "1) \"only\"\n2) \"1.5\""),
            is("ZRANDMEMBER nosuch 2", "(empty array)"),
            is("ZRANDMEMBER z x", "(error) ERR value is not an integer or out of range"),
            is("ZRANDMEMBER z 1 WITHSCORE", "(error) ERR syntax error"),
        ],
        run: zrandmember,
        ..BASE
    },
    Row {
        name: "zrank",
        arity: -3,
        flags: READ_FAST,
        summary: "Gives how many members of a sorted set come before one, and on request its score.",
        syntax: "key member [WITHSCORE]",
        examples: &[
            is("ZADD z 1 one 2 two", "(integer) 2"),
            is("ZRANK z two", "(integer) 1"),
            is("ZRANK z nosuch", "(nil)"),
            only_here("ZRANK z two WITHSCORE", "1) (integer) 1\n2) \"2\""),
            only_here("ZRANK z nosuch WITHSCORE", "(nil)"),
            only_here("ZRANK z two x", "(error) ERR syntax error"),
            is("SET k x", "OK"),
            is("ZRANK k two", WRONG),
        ],
        run: |cx| rank(cx, "zrank", false),
        ..BASE
    },
    Row {
        name: "zrem",
        arity: -3,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE_FAST,
        since: "1.2.0",
        complexity: "O(M*log(N)) where N is the number of members and M that of those removed.",
        summary: "Removes members of a sorted set; the last one takes the key with it.",
        syntax: "key member [member ...]",
        examples: &[
            is("ZADD z 1 a 2 b", "(integer) 2"),
            is("ZREM z a nosuch", "(integer) 1"),
            is("ZREM z b", "(integer) 1"),
            is("EXISTS z", "(integer) 0"),
            is("SET k x", "OK"),
            is("ZREM k a", WRONG),
        ],
        run: zrem,
        ..BASE
    },
    Row {
        name: "zrevrank",
        arity: -3,
        flags: READ_FAST,
        summary: "Gives how many members of a sorted set come after one, and on request its score.",
        syntax: "key member [WITHSCORE]",
        examples: &[
            is("ZADD z 1 one 2 two", "(integer) 2"),
            is("ZREVRANK z two", "(integer) 0"),
            is("ZREVRANK nosuch two", "(nil)"),
            only_here("ZREVRANK z one WITHSCORE", "1) (integer) 1\n2) \"1\""),
            is("SET k x", "OK"),
            is("ZREVRANK k two", WRONG),
        ],
        run: |cx| rank(cx, "zrevrank", true),
        ..BASE
    },
    Row {
        name: "zscan",
        arity: -3,
        flags: READ,
        tips: &["nondeterministic_output"],
        since: "2.8.0",
        complexity: "O(1) for a call, O(N) for all of a sorted set of N members.",
        summary: "Walks the members of a sorted set with their scores, some at each call.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        examples: &[
            is("ZADD z 1 one 2.5 two", "(integer) 2"),
            is("ZSCAN z 0", "1) \"0\"\n2) 1) \"one\"\n   2) \"1\"\n   3) \"two\"\n   4) \"2.5\""),
            is("ZSCAN z 0 MATCH t*", "1) \"0\"\n2) 1) \"two\"\n   2) \"2.5\""),
            is("ZSCAN nosuch 0", "1) \"0\"\n2) (empty array)"),
            is("ZSCAN z x", "(error) ERR invalid cursor"),
            is("ZSCAN z 0 COUNT 0", "(error) ERR syntax error"),
        ],
        run: zscan,
        ..BASE
    },
    Row {
        name: "zscore",
        arity: 3,
        flags: READ_FAST,
        since: "1.2.0",
        complexity: "O(1)",
        summary: "Gives a member's score.",
        syntax: "key member",
        examples: &[
            is("ZADD z 2.5 a", "(integer) 1"),
            is("ZSCORE z a", "\"2.5\""),
            is("ZSCORE z nosuch", "(nil)"),
            is("SET k x", "OK"),
            is("ZSCORE k a", WRONG),
        ],
        run: |cx| {
            let member = &cx.args[2];
            let zset = zset(cx.ks.get_for(&cx.keys[0], &of_members(once(member)))?)?;
            match zset.and_then(|zset| zset.score(member)) {
                Some(score) => cx.out.double(score),
                None => cx.out.null(),
            }
            Ok(())
        },
        ..BASE
    },
];

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rule {
    pub nx: bool,
    pub xx: bool,
    pub gt: bool,
    pub lt: bool,
    pub ch: bool,
    pub incr: bool,
}

/// The result for one member.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    /// The options forbid the change.
    Refused,
    Same(f64),
    Added(f64),
    Updated(f64),
}

impl Change {
    fn score(self) -> Option<f64> {
        match self {
            Change::Refused => None,
            Change::Same(score) | Change::Added(score) | Change::Updated(score) => Some(score),
        }
    }

    fn writes(self) -> bool {
        matches!(self, Change::Added(_) | Change::Updated(_))
    }
}

impl Rule {
    /// Whether the result depends on the member's old score.
    fn looks_first(self) -> bool {
        self.nx || self.xx || self.gt || self.lt || self.incr
    }

    fn change(self, old: Option<f64>, given: f64) -> Result<Change, Stop> {
        let Some(old) = old else {
            return Ok(if self.xx { Change::Refused } else { Change::Added(given) });
        };
        if self.nx {
            return Ok(Change::Refused);
        }
        let score = if self.incr { old + given } else { given };
        if score.is_nan() {
            return Err(Stop::error("ERR resulting score is not a number (NaN)"));
        }
        Ok(if self.gt && score <= old || self.lt && score >= old {
            Change::Refused
        } else if score == old {
            Change::Same(score)
        } else {
            Change::Updated(score)
        })
    }
}

/// ADD and INCRBY: options, then pairs of score and member.
fn zadd(cx: &mut Cx<'_>, mut rule: Rule) -> Run {
    let args = cx.args;
    let mut from = 2;
    while let Some(word) = args.get(from) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let option = match word.len() {
            2 if says("nx") => &mut rule.nx,
            2 if says("xx") => &mut rule.xx,
            2 if says("gt") => &mut rule.gt,
            2 if says("lt") => &mut rule.lt,
            2 if says("ch") => &mut rule.ch,
            4 if says("incr") => &mut rule.incr,
            _ => break,
        };
        *option = true;
        from += 1;
    }
    let words = args.len() - from;
    if words == 0 || words % 2 == 1 {
        return Err(SYNTAX);
    }
    if rule.nx && rule.xx {
        return Err(Stop::error("ERR XX and NX options at the same time are not compatible"));
    }
    if [rule.gt, rule.lt, rule.nx].into_iter().filter(|&on| on).count() > 1 {
        return Err(Stop::error("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if rule.incr && words > 2 {
        return Err(Stop::error("ERR INCR option supports a single increment-element pair"));
    }
    let scores = args.from(from).step_by(2).map(|text| number::double(text).ok_or(NOT_FLOAT));
    let scores = scores.collect::<Result<_, Stop>>()?;
    put(cx, rule, scores, args.from(from + 1).step_by(2))
}

/// The parts of a sorted set that [`put`] touches.
fn of_put<'a>(rule: Rule, pairs: impl Iterator<Item = (f64, &'a [u8])> + Clone) -> impl Fn(&Boxed, &mut Absent) {
    of_tree(move |tree, out| {
        let pairs = pairs.clone();
        if !rule.looks_first() {
            return tree.want_put(pairs.map(|(score, member)| (member, score)), out);
        }
        pairs.clone().for_each(|(_, member)| tree.want(member, out));
        if out.is_empty() {
            let changed = |(given, member): (f64, &'a [u8])| {
                let change = rule.change(tree.score(member), given).ok().filter(|change| change.writes())?;
                Some((member, change.score()?))
            };
            tree.want_put(pairs.filter_map(changed), out);
        }
    })
}

/// Sets the scores of members; there is at least one member.
pub(crate) fn put<'a>(
    cx: &mut Cx<'_>,
    rule: Rule,
    scores: SmallVec<[f64; 4]>,
    members: impl Iterator<Item = &'a [u8]> + Clone,
) -> Run {
    let (key, limits) = (&cx.keys[0], Limits::of(cx.settings));
    let pairs = scores.iter().copied().zip(members.clone());
    let (mut added, mut updated, mut last) = (0, 0, Change::Refused);
    let mut count = |change: Change| {
        added += i64::from(matches!(change, Change::Added(_)));
        updated += i64::from(matches!(change, Change::Updated(_)));
        last = change;
    };
    match zset(cx.ks.view_for(key, &of_put(rule, pairs.clone()))?)? {
        None if rule.xx => {}
        None => {
            let mut draft = Draft::new(members.clone().next().unwrap_or_default(), scores.len(), limits);
            for (given, member) in pairs {
                let change = rule.change(draft.view().score(member), given)?;
                count(change);
                if let (true, Some(score)) = (change.writes(), change.score()) {
                    draft.set(member, score, limits);
                }
            }
            draft.put(cx, key);
        }
        Some(old) => {
            // A ZADD that changes nothing must not make the value dirty.
            let mut writes = false;
            for (given, member) in pairs.clone() {
                let change = rule.change(old.score(member), given)?;
                writes |= change.writes();
                if writes {
                    break;
                }
                count(change);
            }
            let outgrows = matches!(old, View::Run(_)) && scores.len() > limits.entries;
            if (writes || outgrows)
                && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)?
            {
                let mut edit = Edit { value: &mut value };
                if outgrows {
                    edit.make_tree();
                }
                for (given, member) in pairs {
                    let change = rule.change(edit.score(member), given)?;
                    count(change);
                    if let (true, Some(score)) = (change.writes(), change.score()) {
                        edit.set(member, score, limits);
                    }
                }
            }
        }
    }
    if added + updated > 0 {
        cx.ks.event(Class::SORTED_SET, if rule.incr { "zincr" } else { "zadd" }, key);
    }
    match last.score() {
        Some(score) if rule.incr => cx.out.double(score),
        None if rule.incr => cx.out.null(),
        _ => cx.out.int(if rule.ch { added + updated } else { added }),
    }
    Ok(())
}

fn zrem(cx: &mut Cx<'_>) -> Run {
    let (key, members) = (&cx.keys[0], cx.args.from(2));
    let old = zset(cx.ks.view_for(key, &of_members(members.clone()))?)?;
    // Removing a member that is not there must not make the value dirty.
    let found = old.is_some_and(|zset| members.clone().any(|member| zset.score(member).is_some()));
    let mut removed = 0;
    if found && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? {
        let mut edit = Edit { value: &mut value };
        removed = members.filter(|member| edit.remove(member)).count();
        let is_empty = edit.is_empty();
        cx.ks.event(Class::SORTED_SET, "zrem", key);
        if is_empty {
            cx.ks.remove(key)?;
            cx.ks.event(Class::GENERIC, "del", key);
        }
    }
    cx.out.int(removed as i64);
    Ok(())
}

fn zmscore(cx: &mut Cx<'_>) -> Run {
    let members = cx.args.from(2);
    let zset = zset(cx.ks.get_for(&cx.keys[0], &of_members(members.clone()))?)?;
    cx.out.array(members.len());
    for member in members {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => cx.out.double(score),
            None => cx.out.null(),
        }
    }
    Ok(())
}

fn rank(cx: &mut Cx<'_>, command: &str, from_end: bool) -> Run {
    let args = cx.args;
    let with_score = match args.get(3) {
        _ if args.len() > 4 => return Err(crate::stop::wrong_arity(command)),
        Some(word) if !word.eq_ignore_ascii_case(b"withscore") => return Err(SYNTAX),
        word => word.is_some(),
    };
    let zset = zset(cx.ks.get_for(&cx.keys[0], &of_members(once(&args[2])))?)?;
    match zset.and_then(|zset| Some((zset.len(), zset.rank_of(&args[2])?))) {
        Some((len, (rank, score))) => {
            if with_score {
                cx.out.array(2);
            }
            cx.out.int(if from_end { len - 1 - rank } else { rank } as i64);
            if with_score {
                cx.out.double(score);
            }
        }
        None if with_score => cx.out.null_array(),
        None => cx.out.null(),
    }
    Ok(())
}

fn zrandmember(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let mut draws = Draws::of(&mut cx.ks);
    let Some(count) = args.get(2) else {
        match zset(cx.ks.get_for(&cx.keys[0], &of_sample(1, false, draws))?)? {
            Some(zset) => cx.out.bulk(random_entry(zset, &mut draws).1),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let count = count_of(count)?;
    let with_scores = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"withscores") => true,
        Some(_) => return Err(SYNTAX),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let is_distinct = count > 0;
    let Some(zset) = zset(cx.ks.get_for(&cx.keys[0], &of_sample(wanted, is_distinct, draws))?)? else {
        cx.out.array(0);
        return Ok(());
    };
    let bytes = match is_distinct {
        true => reply_bytes(zset, wanted.min(zset.len())),
        false => drawn_bytes(element_bytes(zset), wanted, zset.len()),
    };
    claim_reply(cx.settings, cx.session, &mut cx.out, bytes)?;
    let mut entries = Entries { out: &mut cx.out, with_scores };
    if is_sample(zset, wanted, is_distinct) {
        let ranks = sample(zset.len(), wanted, is_distinct, draws);
        entries.header(ranks.len());
        let found = ranks.into_iter().flat_map(|rank| zset.range(rank, 1, false));
        found.for_each(|(score, member)| entries.entry(score, member));
        return Ok(());
    }
    if count < 0 {
        return with_repetition(entries, zset, wanted, draws);
    }
    distinct(entries, zset, wanted);
    Ok(())
}

/// Estimated bytes of all members and scores.
fn element_bytes(zset: View<'_>) -> usize {
    match zset {
        View::Run(_) => zset.iter().map(|(_, member)| member.len() + BULK_FRAME_BYTES).sum(),
        View::Tree(tree) => tree.mem_bytes() + tree.len() * BULK_FRAME_BYTES,
    }
}

/// Whether to draw this many members one by one, by rank. If so, only the parts of those members are read. Distinct
/// members must be few compared with the length, so that each takes less than 1.5 draws on average. A packed sorted set
/// is walked once instead.
fn is_sample(zset: View<'_>, count: usize, distinct: bool) -> bool {
    matches!(zset, View::Tree(_)) && count <= SAMPLE_MAX && (!distinct || count < zset.len() / 3)
}

/// The ranks of this many random members of `len`.
fn sample(len: usize, count: usize, distinct: bool, mut draws: Draws) -> Vec<usize> {
    let (mut ranks, mut seen) = (Vec::with_capacity(count), HashSet::new());
    while ranks.len() < count {
        let rank = draws.below(len);
        if !distinct || seen.insert(rank) {
            ranks.push(rank);
        }
    }
    ranks
}

/// The parts of a sorted set that hold this many random members.
fn of_sample(count: usize, distinct: bool, draws: Draws) -> impl Fn(&Boxed, &mut Absent) {
    of_tree(move |tree, out| {
        if !is_sample(View::Tree(tree), count, distinct) {
            return tree.want_range(0..tree.len(), out);
        }
        let ranks = sample(tree.len(), count, distinct, draws);
        ranks.into_iter().for_each(|rank| tree.want_range(rank..rank + 1, out));
    })
}

/// A sorted set is never empty.
fn random_entry<'a>(zset: View<'a>, draws: &mut Draws) -> (f64, &'a [u8]) {
    zset.range(draws.below(zset.len().max(1)), 1, false).next().unwrap_or_default()
}

fn with_repetition(mut entries: Entries<'_, '_>, zset: View<'_>, wanted: usize, mut draws: Draws) -> Run {
    // An element takes at least 6 bytes of reply. This check refuses early what the loop below would refuse late.
    if wanted > REPLY_BYTES_MAX / 6 {
        return Err(OUT_OF_RANGE);
    }
    let before = entries.out.len();
    // Walk a packed sorted set once, not once per draw.
    let all: Vec<(f64, &[u8])> = if let View::Run(_) = zset { zset.iter().collect() } else { Vec::new() };
    entries.header(wanted);
    for _ in 0..wanted {
        let (score, member) = if all.is_empty() { random_entry(zset, &mut draws) } else { all[draws.below(all.len())] };
        entries.entry(score, member);
        if entries.out.len() - before > REPLY_BYTES_MAX {
            return Err(OUT_OF_RANGE);
        }
    }
    Ok(())
}

fn distinct(mut entries: Entries<'_, '_>, zset: View<'_>, draws: usize) {
    let len = zset.len();
    let draws = draws.min(len);
    entries.header(draws);
    if draws >= len / 3 {
        let mut selection = Selection::new(draws, len);
        let chosen = zset.iter().filter(|_| selection.takes());
        return chosen.for_each(|(score, member)| entries.entry(score, member));
    }
    // Few of many: draw ranks until there are enough, with less than 1.5 draws for each.
    let mut drawn = HashSet::with_capacity(draws);
    while drawn.len() < draws {
        let rank = random::below(len);
        if drawn.insert(rank) {
            zset.range(rank, 1, false).for_each(|(score, member)| entries.entry(score, member));
        }
    }
}

fn zscan(cx: &mut Cx<'_>) -> Run {
    let cursor = number::cursor(&cx.args[2]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(cx.args, 3, ScanOf::ZSet);
    let count = options.as_ref().map_or(1, |options| options.count.unwrap_or(SCAN_COUNT));
    let of_step = of_tree(|tree, out| tree.want_scan(cursor, count, out));
    // Redis looks up the key before it checks the options.
    let Some(zset) = zset(cx.ks.get_for(&cx.keys[0], &of_step)?)? else {
        cx.out.array(2);
        cx.out.bulk(b"0");
        cx.out.array(0);
        return Ok(());
    };
    let options = options?;
    let mut found = Vec::new();
    let mut take = |member, score| {
        if options.fits(member) {
            found.push((member, score));
        }
    };
    let next = match zset {
        View::Run(_) => {
            zset.iter().for_each(|(score, member)| take(member, score));
            Step::End
        }
        View::Tree(tree) => tree.scan(cursor, count, &mut take),
    };
    cx.out.array(2);
    cx.out.bulk_int(match next {
        // A cursor is smaller than 2^32.
        Step::Next(cursor) => cursor as i64,
        Step::End => 0,
    });
    cx.out.array(2 * found.len());
    let mut text = Vec::new();
    for (member, score) in found {
        cx.out.bulk(member);
        text.clear();
        match zset {
            View::Run(_) => resp::number::format_double(score, &mut text),
            // Redis prints the scores of its skip list with 17 digits.
            View::Tree(_) => number::format_general(score, &mut text),
        }
        cx.out.bulk(&text);
    }
    Ok(())
}
