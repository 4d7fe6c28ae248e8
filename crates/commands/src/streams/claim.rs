//! Owns pending entries of consumer groups: acknowledging, listing, and claiming from other consumers. Never knows how
//! a stream is stored.

use super::state::Who;
use super::{BASE, READ, WRITE_FAST, WRONG, ids, no_group, reply_entry, reply_id};
use super::{of_ids, of_stream, stream, stream_mut};
use crate::cx::Cx;
use crate::number::{int, int_or_error};
use crate::row::{Access, Effect, KeyUse, Row, is, starts};
use crate::stop::{Run, SYNTAX, Stop};
use resp::reply::Out;
use store::{Class, Keyspace, NOTHING};
use value::stream::{Group, Id, Stream};

pub const ROWS: &[Row] = &[
    Row {
        name: "xack",
        arity: -4,
        access: Access::All(KeyUse::UPDATE),
        flags: WRITE_FAST,
        complexity: "O(log(N)) for each id where N is the number of entries not yet acknowledged.",
        summary: "Acknowledges entries of a group; returns how many were pending.",
        syntax: "key group id [id ...]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XACK s g 1-1 2-1", "(integer) 1"),
            is("XACK s g 1-1", "(integer) 0"),
            is("XACK s nosuch 1-1", "(integer) 0"),
            is("XACK s g x", "(error) ERR Invalid stream ID specified as stream command argument"),
        ],
        run: xack,
        ..BASE
    },
    Row {
        name: "xautoclaim",
        arity: -6,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE_FAST,
        tips: &["nondeterministic_output"],
        effect: Effect::Stated,
        since: "6.2.0",
        complexity: "O(1) when COUNT is small.",
        summary: "Gives a consumer entries that have been pending at others for some time, some at each call, from a cursor on.",
        syntax: "key group consumer min-idle-time start [COUNT count] [JUSTID]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD s 2-1 b 2", "\"2-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XAUTOCLAIM s g bob 0 - COUNT 1 JUSTID", "1) \"2-1\"\n2) 1) \"1-1\"\n3) (empty array)"),
            is("XDEL s 2-1", "(integer) 1"),
            is("XAUTOCLAIM s g bob 0 2-1", "1) \"0-0\"\n2) (empty array)\n3) 1) \"2-1\""),
            is("XAUTOCLAIM s g bob 0 - COUNT 0", "(error) ERR COUNT must be > 0"),
            is("XAUTOCLAIM s h bob 0 -", "(error) NOGROUP No such key 's' or consumer group 'h'"),
        ],
        run: xautoclaim,
        ..BASE
    },
    Row {
        name: "xclaim",
        arity: -6,
        access: Access::All(KeyUse::UPDATE),
        flags: WRITE_FAST,
        tips: &["nondeterministic_output"],
        effect: Effect::Stated,
        complexity: "O(log(N)) for each id where N is the number of entries not yet acknowledged.",
        summary: "Gives a consumer entries that have been pending at other consumers for some time.",
        syntax: "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] \
                 [FORCE] [JUSTID] [LASTID lastid]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XCLAIM s g bob 0 1-1", "1) 1) \"1-1\"\n   2) 1) \"a\"\n      2) \"1\""),
            is("XCLAIM s g ann 3600000 1-1", "(empty array)"),
            is("XCLAIM s g ann 0 1-1 JUSTID", "1) \"1-1\""),
            is("XCLAIM s g ann 0 1-1 NOSUCH", "(error) ERR Unrecognized XCLAIM option 'NOSUCH'"),
            is("XCLAIM s h ann 0 1-1", "(error) NOGROUP No such key 's' or consumer group 'h'"),
        ],
        run: xclaim,
        ..BASE
    },
    Row {
        name: "xpending",
        arity: -3,
        flags: READ,
        tips: &["nondeterministic_output"],
        complexity: "O(N) where N is the number of entries given, or of consumers.",
        summary: "Lists the pending entries of a group, as a summary or one by one.",
        syntax: "key group [[IDLE min-idle-time] start end count [consumer]]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            is("XPENDING s g", "1) (integer) 0\n2) (nil)\n3) (nil)\n4) (nil)"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XPENDING s g", "1) (integer) 1\n2) \"1-1\"\n3) \"1-1\"\n4) 1) 1) \"ann\"\n      2) \"1\""),
            starts("XPENDING s g - + 10", "1) 1) \"1-1\"\n   2) \"ann\"\n   3) (integer) "),
            is("XPENDING s g IDLE 3600000 - + 10 ann", "(empty array)"),
            is("XPENDING s h", "(error) NOGROUP No such key 's' or consumer group 'h'"),
            is("XPENDING s g -", "(error) ERR syntax error"),
            is("SET k x", "OK"),
            is("XPENDING k g", WRONG),
        ],
        run: xpending,
        ..BASE
    },
];

fn xack(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let ids = || args.from(3).map(|id| ids::strict(id, 0));
    let mut acknowledged = 0;
    if let Some(group) = stream(cx.ks.get_for(key, NOTHING)?)?.and_then(|stream| stream.group(&args[2])) {
        let mut any = false;
        for id in ids() {
            let id = id?;
            any = any || group.pending_at(id).is_some();
        }
        if any && let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
            let count = |_: &Stream, group: &mut Group| ids().flatten().filter(|&id| group.acknowledge(id)).count();
            acknowledged = stream_mut(&mut value).with_group(&args[2], count).unwrap_or(0);
        }
    }
    cx.out.int(acknowledged as i64);
    Ok(())
}

/// XPENDING's arguments after the group.
struct Listed<'a> {
    idle_ms_min: i64,
    start: Id,
    end: Id,
    count: i64,
    consumer: Option<&'a [u8]>,
}

fn xpending(cx: &mut Cx<'_>) -> Run {
    let (args, key, now_ms) = (cx.args, &cx.keys[0], cx.ks.clock_ms() as i64);
    let listed = match args.len() {
        3 => None,
        6..=9 => {
            let (mut at, mut idle_ms_min) = (3, 0);
            if args[3].eq_ignore_ascii_case(b"idle") {
                idle_ms_min = int_or_error(&args[4])?;
                if args.len() < 8 {
                    return Err(SYNTAX);
                }
                at = 5;
            }
            let count = int_or_error(&args[at + 2])?;
            let (start, end) = (ids::start(&args[at])?, ids::end(&args[at + 1])?);
            Some(Listed { idle_ms_min, start, end, count, consumer: args.get(at + 3) })
        }
        _ => return Err(SYNTAX),
    };
    let group = stream(cx.ks.get_for(key, NOTHING)?)?.and_then(|stream| stream.group(&args[2]));
    let group = group.ok_or_else(|| no_group(key.name, &args[2]))?;
    match listed {
        Some(listed) => list(group, &listed, now_ms, &mut cx.out),
        None => sum_up(group, &mut cx.out),
    }
    Ok(())
}

fn sum_up(group: &Group, out: &mut Out<'_>) {
    out.array(4);
    out.int(group.pending_len() as i64);
    let (first, last) = (group.pending(..).next(), group.pending(..).next_back());
    let (Some((&first, _)), Some((&last, _))) = (first, last) else {
        out.null();
        out.null();
        out.null_array();
        return;
    };
    reply_id(out, first);
    reply_id(out, last);
    let busy = group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
    out.array(busy.clone().count());
    for (name, consumer) in busy {
        out.array(2);
        out.bulk(name);
        out.bulk_int(consumer.pending().len() as i64);
    }
}

fn list(group: &Group, listed: &Listed<'_>, now_ms: i64, out: &mut Out<'_>) {
    let (mark, mut given) = (out.array_deferred(), 0);
    let mut visit = |id: Id| {
        let Some(pending) = group.pending_at(id) else { return true };
        let idle_ms = now_ms.saturating_sub(pending.delivered_ms);
        if listed.idle_ms_min != 0 && idle_ms < listed.idle_ms_min {
            return true;
        }
        out.array(4);
        reply_id(out, id);
        out.bulk(&pending.consumer);
        out.int(idle_ms.max(0));
        out.int(pending.deliveries as i64);
        given += 1;
        (given as i64) < listed.count
    };
    if listed.count > 0 && listed.start <= listed.end {
        let range = listed.start..=listed.end;
        match listed.consumer {
            None => _ = group.pending(range).all(|(&id, _)| visit(id)),
            Some(name) => {
                if let Some(consumer) = group.consumer(name) {
                    consumer.pending().range(range).all(|&id| visit(id));
                }
            }
        }
    }
    out.finish(mark, given);
}

/// The options of a claim.
struct Claim<'a> {
    consumer: &'a [u8],
    idle_ms_min: i64,
    now_ms: i64,
    delivered_ms: i64,
    deliveries: Option<u64>,
    just_id: bool,
    force: bool,
}

enum Claimed {
    Given,
    /// The entry is not pending, or not for long enough.
    Passed,
    /// The entry was pending but is deleted from the stream: it is not pending any more.
    Deleted,
}

impl Claim<'_> {
    /// Whether an entry delivered at that time has been pending for long enough.
    fn is_due(&self, delivered_ms: i64) -> bool {
        self.idle_ms_min <= 0 || self.now_ms.saturating_sub(delivered_ms) >= self.idle_ms_min
    }

    fn take(&self, stream: &Stream, group: &mut Group, id: Id, out: &mut Out<'_>) -> Claimed {
        let pending = group.pending_at(id).map(|pending| (pending.delivered_ms, pending.deliveries));
        let Some(entry) = stream.get(id) else {
            return if group.acknowledge(id) { Claimed::Deleted } else { Claimed::Passed };
        };
        let deliveries = match pending {
            None if !self.force => return Claimed::Passed,
            None => 1,
            Some((delivered_ms, deliveries)) => {
                if !self.is_due(delivered_ms) {
                    return Claimed::Passed;
                }
                deliveries
            }
        };
        // At most the largest number that RETRYCOUNT accepts.
        let counted = if self.just_id { deliveries } else { deliveries.saturating_add(1) }.min(i64::MAX as u64);
        group.assign(id, self.consumer, self.delivered_ms, self.deliveries.unwrap_or(counted));
        group.activate_consumer(self.consumer, self.now_ms);
        if self.just_id {
            reply_id(out, id);
        } else {
            reply_entry(out, &entry);
        }
        Claimed::Given
    }
}

/// What was claimed in a group, to state the effect.
#[derive(Default)]
struct Change {
    is_new_consumer: bool,
    /// The group's last id, if it was raised.
    last_id: Option<Id>,
    /// Each id with its number of deliveries after the claim.
    given: Vec<(Id, u64)>,
    deleted: Vec<Id>,
}

impl Change {
    fn note(&mut self, group: &Group, id: Id, claimed: &Claimed) {
        match claimed {
            Claimed::Given => self.given.extend(group.pending_at(id).map(|pending| (id, pending.deliveries))),
            Claimed::Deleted => self.deleted.push(id),
            Claimed::Passed => {}
        }
    }

    fn state(self, who: Who<'_>, ks: &mut Keyspace<'_>, delivered_ms: i64) {
        if !ks.records_effects() {
            return;
        }
        if self.is_new_consumer {
            who.created(ks);
        }
        if self.last_id.is_some() || !self.is_new_consumer && self.given.is_empty() {
            who.seen(ks, self.last_id);
        }
        who.given_each(ks, &self.given, delivered_ms);
        if !self.deleted.is_empty() {
            who.acknowledged(ks, &self.deleted);
        }
    }
}

fn idle_ms_min(text: &[u8], command: &str) -> Result<i64, Stop> {
    let error = || Stop::Error(format!("ERR Invalid min-idle-time argument for {command}").into());
    int(text).map(|idle_ms| idle_ms.max(0)).ok_or_else(error)
}

fn xclaim(cx: &mut Cx<'_>) -> Run {
    let (args, key, now_ms) = (cx.args, &cx.keys[0], cx.ks.clock_ms() as i64);
    // The first argument that is not an id starts the options.
    let ids = args.from(5).map_while(|id| ids::strict(id, 0).ok());
    let group = stream(cx.ks.get_for(key, &of_ids(ids.clone()))?)?.and_then(|stream| stream.group(&args[2]));
    group.ok_or_else(|| no_group(key.name, &args[2]))?;
    let ids: Vec<Id> = ids.collect();
    let idle_ms_min = idle_ms_min(&args[4], "XCLAIM")?;
    let mut claim = Claim {
        consumer: args.get(3).unwrap_or_default(),
        idle_ms_min,
        now_ms,
        delivered_ms: now_ms,
        deliveries: None,
        just_id: false,
        force: false,
    };
    let mut last_id = Id::MIN;
    let mut at = 5 + ids.len();
    while let Some(word) = args.get(at) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let number = |text: &[u8], option: &str| {
            let error = || Stop::Error(format!("ERR Invalid {option} option argument for XCLAIM").into());
            int(text).ok_or_else(error)
        };
        match args.get(at + 1) {
            _ if says("force") => claim.force = true,
            _ if says("justid") => claim.just_id = true,
            Some(text) => {
                if says("idle") {
                    claim.delivered_ms = now_ms.wrapping_sub(number(text, "IDLE")?);
                } else if says("time") {
                    claim.delivered_ms = number(text, "TIME")?;
                } else if says("retrycount") {
                    claim.deliveries = u64::try_from(number(text, "RETRYCOUNT")?).ok();
                } else if says("lastid") {
                    last_id = ids::strict(text, 0)?;
                } else {
                    return Err(unknown_option(word));
                }
                at += 1;
            }
            None => return Err(unknown_option(word)),
        }
        at += 1;
    }
    // An impossible time is replaced by now, because clocks differ. A repeated command keeps its time: the clock of the
    // server that first ran it counts.
    if claim.delivered_ms < 0 || claim.delivered_ms > now_ms && !cx.session.repeats {
        claim.delivered_ms = now_ms;
    }
    let out = &mut cx.out;
    let (mark, mut change) = (out.array_deferred(), Change::default());
    if let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
        stream_mut(&mut value).with_group(&args[2], |stream, group| {
            if last_id > group.last_id {
                group.last_id = last_id;
                change.last_id = Some(last_id);
            }
            change.is_new_consumer = group.see_consumer(claim.consumer, now_ms);
            for id in ids {
                let claimed = claim.take(stream, group, id, out);
                change.note(group, id, &claimed);
            }
        });
    }
    out.finish(mark, change.given.len());
    if change.is_new_consumer {
        cx.ks.event(Class::STREAM, "xgroup-createconsumer", key);
    }
    let who = Who { key, group: &args[2], consumer: claim.consumer };
    change.state(who, &mut cx.ks, claim.delivered_ms);
    Ok(())
}

fn unknown_option(word: &[u8]) -> Stop {
    Stop::Error(format!("ERR Unrecognized XCLAIM option '{}'", super::shown(word)).into())
}

/// For each entry that may be claimed, look at up to this many pending entries.
const ATTEMPTS: usize = 10;
const COUNT_MAX: i64 = i64::MAX / 16;

fn xautoclaim(cx: &mut Cx<'_>) -> Run {
    let (args, key, now_ms) = (cx.args, &cx.keys[0], cx.ks.clock_ms() as i64);
    let mut claim = Claim {
        consumer: args.get(3).unwrap_or_default(),
        idle_ms_min: idle_ms_min(&args[4], "XAUTOCLAIM")?,
        now_ms,
        delivered_ms: now_ms,
        deliveries: None,
        just_id: false,
        force: false,
    };
    let start = ids::start(&args[5])?;
    let mut count = 100;
    let mut at = 6;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if word.eq_ignore_ascii_case(b"count") => {
                let number = int(number).filter(|number| (1..=COUNT_MAX).contains(number));
                count = number.ok_or(Stop::error("ERR COUNT must be > 0"))? as usize;
                at += 1;
            }
            _ if word.eq_ignore_ascii_case(b"justid") => claim.just_id = true,
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    // Each entry that has been pending for long enough counts, whether it still exists or not.
    let touched = of_stream(|stream, out| {
        let Some(group) = stream.group(&args[2]) else { return };
        let mut left = count;
        for (&id, pending) in group.pending(start..).take(count.saturating_mul(ATTEMPTS)) {
            stream.want_id(id, out);
            left -= usize::from(claim.is_due(pending.delivered_ms));
            if left == 0 {
                break;
            }
        }
    });
    let group = stream(cx.ks.get_for(key, &touched)?)?.and_then(|stream| stream.group(&args[2]));
    group.ok_or_else(|| no_group(key.name, &args[2]))?;
    // The cursor is known last, but comes first in the reply.
    let mut entries = Vec::new();
    let out = &mut Out::new(&mut entries, cx.out.proto());
    let (mut next, mut change) = (None, Change::default());
    let mark = out.array_deferred();
    if let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
        stream_mut(&mut value).with_group(&args[2], |stream, group| {
            change.is_new_consumer = group.see_consumer(claim.consumer, now_ms);
            next = Some(start);
            for _ in 0..count.saturating_mul(ATTEMPTS) {
                let Some(id) = next.and_then(|next| group.pending(next..).next()).map(|(&id, _)| id) else {
                    next = None;
                    break;
                };
                if change.given.len() + change.deleted.len() == count {
                    break;
                }
                let claimed = claim.take(stream, group, id, out);
                change.note(group, id, &claimed);
                next = id.next();
            }
            next = next.and_then(|next| group.pending(next..).next()).map(|(&id, _)| id);
        });
    }
    out.finish(mark, change.given.len());
    let out = &mut cx.out;
    out.array(3);
    reply_id(out, next.unwrap_or(Id::MIN));
    out.raw(&entries);
    out.array(change.deleted.len());
    change.deleted.iter().for_each(|&id| reply_id(out, id));
    if change.is_new_consumer {
        cx.ks.event(Class::STREAM, "xgroup-createconsumer", key);
    }
    let who = Who { key, group: &args[2], consumer: claim.consumer };
    change.state(who, &mut cx.ks, claim.delivered_ms);
    Ok(())
}
