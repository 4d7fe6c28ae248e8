//! Owns XINFO: the properties of a stream, its groups and their consumers. Never changes them.

use super::groups::wrong_arguments;
use super::{BASE, Count, READ, WRONG, no_such_group, of_stream, reply_entry, reply_id, stream};
use crate::connection::{help, unknown_subcommand};
use crate::cx::Cx;
use crate::number::int_or_error;
use crate::row::{Flag, Keys, Row, Values, is, only_here, starts};
use crate::stop::{NO_SUCH_KEY, Run, Stop};
use resp::reply::Out;
use store::{NOTHING, Want};
use value::stream::{Entry, Group, Id, Order, Stream};

pub const ROWS: &[Row] = &[Row {
    name: "xinfo",
    arity: -2,
    keys: Keys::NONE,
    values: Values::Untouched,
    complexity: "Depends on subcommand.",
    summary: "A container for commands that describe streams.",
    syntax: "",
    examples: &[
        is("XINFO NOSUCH s", "(error) ERR unknown subcommand 'NOSUCH'. Try XINFO HELP."),
        is("XINFO", "(error) ERR wrong number of arguments for 'xinfo' command"),
    ],
    subcommands: SUBCOMMANDS,
    run: |cx| unknown_subcommand(cx.args, "XINFO"),
    ..BASE
}];

const SUBCOMMAND: Row = Row { keys: Keys::Range { first: 2, last: 2, step: 1 }, flags: READ, ..BASE };

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "consumers",
        arity: 4,
        tips: &["nondeterministic_output"],
        summary: "Describes the consumers of a group.",
        syntax: "key group",
        examples: &[
            is("XGROUP CREATE s g $ MKSTREAM", "OK"),
            is("XINFO CONSUMERS s g", "(empty array)"),
            is("XGROUP CREATECONSUMER s g ann", "(integer) 1"),
            starts(
                "XINFO CONSUMERS s g",
                "1) 1) \"name\"\n   2) \"ann\"\n   3) \"pending\"\n   4) (integer) 0\n   5) \"idle\"",
            ),
            is("XINFO CONSUMERS s h", "(error) NOGROUP No such consumer group 'h' for key name 's'"),
            is("XINFO CONSUMERS nosuch g", "(error) ERR no such key"),
        ],
        run: consumers,
        ..SUBCOMMAND
    },
    Row {
        name: "groups",
        arity: 3,
        summary: "Describes the groups of a stream.",
        syntax: "key",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            is(
                "XINFO GROUPS s",
                "1)  1) \"name\"\n    2) \"g\"\n    3) \"consumers\"\n    4) (integer) 0\n    5) \"pending\"\n    \
                 6) (integer) 0\n    7) \"last-delivered-id\"\n    8) \"0-0\"\n    9) \"entries-read\"\n   \
                 10) (nil)\n   11) \"lag\"\n   12) (integer) 1",
            ),
            is("SET k x", "OK"),
            is("XINFO GROUPS k", WRONG),
        ],
        run: groups,
        ..SUBCOMMAND
    },
    Row {
        name: "help",
        arity: 2,
        keys: Keys::NONE,
        flags: &[Flag::Loading, Flag::Stale],
        values: Values::Untouched,
        summary: "Lists the subcommands.",
        syntax: "",
        examples: &[
            starts("XINFO HELP", "1) XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
            is("XINFO HELP me", "(error) ERR wrong number of arguments for 'xinfo|help' command"),
        ],
        run: |cx| help(cx, "XINFO", SUBCOMMANDS),
        ..SUBCOMMAND
    },
    Row {
        name: "stream",
        arity: -3,
        complexity: "O(1), with FULL O(N) where N is the number of entries and pending entries shown.",
        summary: "Describes a stream; with FULL, also its first entries, its groups and their pending entries.",
        syntax: "key [FULL [COUNT count]]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            starts("XINFO STREAM s", " 1) \"length\"\n 2) (integer) 1\n 3) \"radix-tree-keys\"\n 4) (integer) 1"),
            starts("XINFO STREAM s FULL COUNT 1", " 1) \"length\"\n 2) (integer) 1"),
            only_here(
                "XINFO STREAM s COUNT 1",
                "(error) ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
            ),
            is("XINFO STREAM nosuch", "(error) ERR no such key"),
        ],
        run: describe,
        ..SUBCOMMAND
    },
];

/// The stream at the command's key, with the wanted parts in RAM.
fn existing<'k>(cx: &'k mut Cx<'_>, want: Want<'_>) -> Result<(&'k Stream, resp::Out<'k>), Stop> {
    let stream = stream(cx.ks.get_for(&cx.keys[0], want)?)?.ok_or(NO_SUCH_KEY)?;
    Ok((stream, cx.out.reborrow()))
}

fn named_int(out: &mut Out<'_>, name: &str, number: i64) {
    out.bulk(name.as_bytes());
    out.int(number);
}

fn named_id(out: &mut Out<'_>, name: &str, id: Id) {
    out.bulk(name.as_bytes());
    reply_id(out, id);
}

fn named_int_or_null(out: &mut Out<'_>, name: &str, number: Option<i64>) {
    match number {
        Some(number) => named_int(out, name, number),
        None => {
            out.bulk(name.as_bytes());
            out.null();
        }
    }
}

/// How much a group has read, if that is known.
fn progress(out: &mut Out<'_>, stream: &Stream, group: &Group) {
    named_int_or_null(out, "entries-read", group.entries_read.map(|read| read as i64));
    named_int_or_null(out, "lag", stream.lag(group));
}

fn groups(cx: &mut Cx<'_>) -> Run {
    let (stream, mut out) = existing(cx, NOTHING)?;
    let out = &mut out;
    out.array(stream.groups().len());
    for (name, group) in stream.groups() {
        out.map(6);
        out.bulk(b"name");
        out.bulk(name);
        named_int(out, "consumers", group.consumers().len() as i64);
        named_int(out, "pending", group.pending_len() as i64);
        named_id(out, "last-delivered-id", group.last_id);
        progress(out, stream, group);
    }
    Ok(())
}

fn consumers(cx: &mut Cx<'_>) -> Run {
    let (key, name, now_ms) = (cx.keys[0], cx.args.get(3).unwrap_or_default(), cx.ks.now_ms() as i64);
    let (stream, mut out) = existing(cx, NOTHING)?;
    let out = &mut out;
    let group = stream.group(name).ok_or_else(|| no_such_group(name, key.name))?;
    out.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        out.map(4);
        out.bulk(b"name");
        out.bulk(name);
        named_int(out, "pending", consumer.pending().len() as i64);
        named_int(out, "idle", now_ms.saturating_sub(consumer.seen_ms).max(0));
        let inactive_ms = if consumer.active_ms == -1 { -1 } else { now_ms.saturating_sub(consumer.active_ms) };
        named_int(out, "inactive", inactive_ms);
    }
    Ok(())
}

/// Entries and pending entries that FULL shows without a COUNT.
const FULL_COUNT: u64 = 10;

fn describe(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    // The key is looked up before the options are checked.
    existing(cx, NOTHING)?;
    let full = match args.len() {
        3 => None,
        4 | 6 if args[3].eq_ignore_ascii_case(b"full") => match (args.get(4), args.get(5)) {
            (Some(word), Some(number)) if word.eq_ignore_ascii_case(b"count") => {
                Some(Count(u64::try_from(int_or_error(number)?).unwrap_or(FULL_COUNT)))
            }
            (None, _) => Some(Count(FULL_COUNT)),
            _ => return Err(wrong_arguments(args)),
        },
        _ => return Err(wrong_arguments(args)),
    };
    let touched = of_stream(|stream, out| match full {
        Some(Count(count)) => stream.want(Id::MIN, Id::MAX, Order::Ascending, count, out),
        None => [Order::Ascending, Order::Descending]
            .into_iter()
            .for_each(|order| stream.want(Id::MIN, Id::MAX, order, 1, out)),
    });
    let (stream, mut out) = existing(cx, &touched)?;
    let out = &mut out;
    out.map(if full.is_some() { 9 } else { 10 });
    named_int(out, "length", stream.len() as i64);
    named_int(out, "radix-tree-keys", stream.chunks() as i64);
    // A tree has a root besides its leaves.
    named_int(out, "radix-tree-nodes", stream.chunks() as i64 + 1);
    named_id(out, "last-generated-id", stream.last_id);
    named_id(out, "max-deleted-entry-id", stream.max_deleted_id);
    named_int(out, "entries-added", stream.entries_added as i64);
    named_id(out, "recorded-first-entry-id", stream.first_id());
    if let Some(count) = full {
        in_full(stream, count, out);
        return Ok(());
    }
    named_int(out, "groups", stream.groups().len() as i64);
    for (name, order) in [("first-entry", Order::Ascending), ("last-entry", Order::Descending)] {
        out.bulk(name.as_bytes());
        let mut any = false;
        stream.each(Id::MIN, Id::MAX, order, |entry: &Entry<'_>| {
            any = true;
            reply_entry(out, entry);
            false
        });
        if !any {
            out.null();
        }
    }
    Ok(())
}

fn in_full(stream: &Stream, count: Count, out: &mut Out<'_>) {
    out.bulk(b"entries");
    let (mark, mut given) = (out.array_deferred(), 0);
    stream.each(Id::MIN, Id::MAX, Order::Ascending, |entry| {
        reply_entry(out, entry);
        given += 1;
        !count.is_reached(given)
    });
    out.finish(mark, given);
    out.bulk(b"groups");
    out.array(stream.groups().len());
    let most = count.most();
    for (name, group) in stream.groups() {
        out.map(7);
        out.bulk(b"name");
        out.bulk(name);
        named_id(out, "last-delivered-id", group.last_id);
        progress(out, stream, group);
        named_int(out, "pel-count", group.pending_len() as i64);
        out.bulk(b"pending");
        out.array(group.pending_len().min(most));
        for (&id, pending) in group.pending(..).take(most) {
            out.array(4);
            reply_id(out, id);
            out.bulk(&pending.consumer);
            out.int(pending.delivered_ms);
            out.int(pending.deliveries as i64);
        }
        out.bulk(b"consumers");
        out.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            out.map(5);
            out.bulk(b"name");
            out.bulk(name);
            named_int(out, "seen-time", consumer.seen_ms);
            named_int(out, "active-time", consumer.active_ms);
            named_int(out, "pel-count", consumer.pending().len() as i64);
            out.bulk(b"pending");
            out.array(consumer.pending().len().min(most));
            for &id in consumer.pending().iter().take(most) {
                out.array(3);
                reply_id(out, id);
                let pending = group.pending_at(id).map_or((0, 0), |pending| (pending.delivered_ms, pending.deliveries));
                out.int(pending.0);
                out.int(pending.1 as i64);
            }
        }
    }
}
