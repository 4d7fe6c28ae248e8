//! Owns OBJECT: how a value is stored. Never changes a value, and does not count as use of it.

use crate::connection::{help, unknown_subcommand};
use crate::cx::Cx;
use crate::number::int;
use crate::row::{Access, Flag, KeyUse, Keys, Row, Values, is, only_here, starts};
use crate::stop::{Run, Stop};
use store::{Inspect, Kind, Value};

const SUBCOMMAND: Row = Row {
    arity: 3,
    keys: Keys::Range { first: 2, last: 2, step: 1 },
    flags: &[Flag::Readonly],
    since: "2.2.3",
    ..Row::BASE
};

pub const ROWS: &[Row] = &[Row {
    name: "object",
    arity: -2,
    keys: Keys::NONE,
    values: Values::Untouched,
    since: "2.2.3",
    complexity: "Depends on subcommand.",
    summary: "A container for commands that describe how a value is stored.",
    syntax: "",
    examples: &[
        is("OBJECT NOSUCH k", "(error) ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP."),
        is("OBJECT", "(error) ERR wrong number of arguments for 'object' command"),
    ],
    subcommands: SUBCOMMANDS,
    run: |cx| unknown_subcommand(cx.args, "OBJECT"),
    ..Row::BASE
}];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "encoding",
        access: Access::All(KeyUse::LOOK),
        tips: &["nondeterministic_output"],
        summary: "Names the encoding of a value.",
        examples: &[
            is("SET k 12345", "OK"),
            is("OBJECT ENCODING k", "\"int\""),
            is("SET k short", "OK"),
            is("OBJECT ENCODING k", "\"embstr\""),
            is("APPEND k er", "(integer) 7"),
            is("OBJECT ENCODING k", "\"raw\""),
            is("HSET h f v", "(integer) 1"),
            is("OBJECT ENCODING h", "\"listpack\""),
            is("OBJECT ENCODING nosuch", "(nil)"),
            is("OBJECT ENCODING", "(error) ERR wrong number of arguments for 'object|encoding' command"),
        ],
        run: encoding,
        ..SUBCOMMAND
    },
    Row {
        name: "freq",
        access: Access::All(KeyUse::LOOK),
        tips: &["nondeterministic_output"],
        since: "4.0.0",
        summary: "Gives how often a key is used, on a logarithmic scale, under an LFU maxmemory-policy.",
        examples: &[
            is("SET k v", "OK"),
            is("OBJECT FREQ nosuch", "(nil)"),
            starts(
                "OBJECT FREQ k",
                "(error) ERR An LFU maxmemory policy is not selected, access frequency not tracked.",
            ),
        ],
        run: freq,
        ..SUBCOMMAND
    },
    Row {
        name: "help",
        arity: 2,
        keys: Keys::NONE,
        flags: &[Flag::Loading, Flag::Stale],
        values: Values::Untouched,
        since: "6.2.0",
        summary: "Lists the subcommands.",
        syntax: "",
        examples: &[
            starts("OBJECT HELP", " 1) OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
            is("OBJECT HELP me", "(error) ERR wrong number of arguments for 'object|help' command"),
        ],
        run: |cx| help(cx, "OBJECT", SUBCOMMANDS),
        ..SUBCOMMAND
    },
    Row {
        name: "idletime",
        access: Access::All(KeyUse::LOOK),
        tips: &["nondeterministic_output"],
        summary: "Gives the seconds since a key was last used, unless the maxmemory-policy is LFU.",
        examples: &[
            is("SET k v", "OK"),
            is("OBJECT IDLETIME k", "(integer) 0"),
            is("OBJECT IDLETIME nosuch", "(nil)"),
            is("OBJECT IDLETIME", "(error) ERR wrong number of arguments for 'object|idletime' command"),
        ],
        run: idletime,
        ..SUBCOMMAND
    },
    Row {
        name: "refcount",
        access: Access::All(KeyUse::LOOK),
        tips: &["nondeterministic_output"],
        summary: "Gives the number of references to a value: always 1, as values are not shared.",
        examples: &[
            is("SET k v", "OK"),
            is("OBJECT REFCOUNT k", "(integer) 1"),
            is("OBJECT REFCOUNT nosuch", "(nil)"),
            is("OBJECT REFCOUNT", "(error) ERR wrong number of arguments for 'object|refcount' command"),
        ],
        run: |cx| {
            inspected(cx, |cx, _| {
                cx.out.int(1);
                Ok(())
            })
        },
        ..SUBCOMMAND
    },
    Row {
        name: "tier",
        access: Access::All(KeyUse::LOOK),
        tips: &["nondeterministic_output"],
        values: Values::Untouched,
        since: "7.2.0",
        summary: "Tells whether a value is in RAM or on flash, without reading it.",
        examples: &[
            only_here("OBJECT TIER nosuch", "(nil)"),
            only_here("OBJECT TIER", "(error) ERR wrong number of arguments for 'object|tier' command"),
        ],
        run: tier,
        ..SUBCOMMAND
    },
];

/// Redis stores strings up to this length in one allocation with their header.
const EMBEDDED_BYTES_MAX: usize = 44;

fn inspected(cx: &mut Cx<'_>, answer: fn(&mut Cx<'_>, Inspect) -> Run) -> Run {
    match cx.ks.inspect(&cx.keys[0])? {
        Some(found) => answer(cx, found),
        None => {
            cx.out.null();
            Ok(())
        }
    }
}

fn encoding(cx: &mut Cx<'_>) -> Run {
    inspected(cx, |cx, found| {
        let name = encoding_name(cx, &found)?;
        cx.out.bulk(name.as_bytes());
        Ok(())
    })
}

/// Redis's name for the encoding of the first key's value.
pub(crate) fn encoding_name(cx: &mut Cx<'_>, found: &Inspect) -> Result<&'static str, Stop> {
    Ok(match (found.kind, found.boxed) {
        (Kind::String, _) if found.raw => "raw",
        (Kind::String, _) => match cx.ks.view(&cx.keys[0])? {
            Some(Value::Inline(_, bytes)) if int(bytes).is_some() => "int",
            Some(Value::Inline(_, bytes)) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
            _ => "raw",
        },
        (Kind::Set, false) => match cx.ks.view(&cx.keys[0])? {
            Some(Value::Inline(_, bytes)) if value::set::is_ints(bytes) => "intset",
            _ => "listpack",
        },
        (_, false) => "listpack",
        (Kind::List, true) => "quicklist",
        (Kind::ZSet, true) => "skiplist",
        (Kind::Stream, true) => "stream",
        (_, true) => "hashtable",
    })
}

/// OBJECT TIER exists only in FlintKV.
fn tier(cx: &mut Cx<'_>) -> Run {
    match cx.ks.is_hot(&cx.keys[0]) {
        Some(true) => cx.out.bulk(b"ram"),
        Some(false) => cx.out.bulk(b"flash"),
        None => cx.out.null(),
    }
    Ok(())
}

/// What Redis shows for a new key.
const FREQUENCY_OF_NEW: u8 = 5;

fn freq(cx: &mut Cx<'_>) -> Run {
    inspected(cx, |cx, found| {
        if !cx.settings.lfu {
            return Err(Stop::error(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        cx.out.int(found.restored_frequency.unwrap_or(FREQUENCY_OF_NEW + found.frequency).into());
        Ok(())
    })
}

fn idletime(cx: &mut Cx<'_>) -> Run {
    inspected(cx, |cx, found| {
        if cx.settings.lfu {
            return Err(Stop::error(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
                 between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        cx.out.int(found.idle_seconds as i64);
        Ok(())
    })
}
