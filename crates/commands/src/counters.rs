//! Owns the commands that count in strings: INCR and the like. Never knows other types, except to refuse them.

use crate::cx::Cx;
use crate::number::{Digits, int, int_or_error};
use crate::row::{Effect, Flag, Group, Row, is};
use crate::stop::{NOT_FLOAT, NOT_INTEGER, Run, Stop, WRONG_TYPE};
use crate::strings::string;
use resp::LongDouble;
use store::{Class, Kind};

const BASE: Row =
    Row { flags: &[Flag::Write, Flag::Denyoom, Flag::Fast], group: Group::String, since: "1.0.0", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "decr",
        arity: 2,
        summary: "Subtracts one from the integer at a key; no key counts as 0.",
        examples: &[
            is("SET k 10", "OK"),
            is("DECR k", "(integer) 9"),
            is("DECR nosuch", "(integer) -1"),
            is("SET k abc", "OK"),
            is("DECR k", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| add(cx, -1),
        ..BASE
    },
    Row {
        name: "decrby",
        arity: 3,
        summary: "Subtracts a number from the integer at a key; no key counts as 0.",
        syntax: "key decrement",
        examples: &[
            is("SET k 10", "OK"),
            is("DECRBY k 3", "(integer) 7"),
            is("DECRBY k -3", "(integer) 10"),
            is("DECRBY k -9223372036854775808", "(error) ERR decrement would overflow"),
        ],
        run: |cx| {
            let delta = int_or_error(&cx.args[2])?;
            add(cx, delta.checked_neg().ok_or(Stop::error("ERR decrement would overflow"))?)
        },
        ..BASE
    },
    Row {
        name: "incr",
        arity: 2,
        summary: "Adds one to the integer at a key; no key counts as 0.",
        examples: &[
            is("INCR visits", "(integer) 1"),
            is("INCR visits", "(integer) 2"),
            is("GET visits", "\"2\""),
            is("SET visits 9223372036854775807", "OK"),
            is("INCR visits", "(error) ERR increment or decrement would overflow"),
        ],
        run: |cx| add(cx, 1),
        ..BASE
    },
    Row {
        name: "incrby",
        arity: 3,
        summary: "Adds a number to the integer at a key; no key counts as 0.",
        syntax: "key increment",
        examples: &[
            is("INCRBY k 5", "(integer) 5"),
            is("INCRBY k -7", "(integer) -2"),
            is("INCRBY k 1.5", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| {
            let delta = int_or_error(&cx.args[2])?;
            add(cx, delta)
        },
        ..BASE
    },
    Row {
        name: "incrbyfloat",
        arity: 3,
        effect: Effect::Stated,
        since: "2.6.0",
        summary: "Adds a number with a fraction to the number at a key; no key counts as 0.",
        syntax: "key increment",
        examples: &[
            is("SET k 10.50", "OK"),
            is("INCRBYFLOAT k 0.1", "\"10.6\""),
            is("INCRBYFLOAT k -5", "\"5.6\""),
            is("SET k 5.0e3", "OK"),
            is("INCRBYFLOAT k 2.0e2", "\"5200\""),
            is("INCRBYFLOAT k inf", "(error) ERR increment would produce NaN or Infinity"),
            is("INCRBYFLOAT k abc", "(error) ERR value is not a valid float"),
        ],
        run: incrbyfloat,
        ..BASE
    },
];

pub const OVERFLOW: Stop = Stop::error("ERR increment or decrement would overflow");
pub const NOT_FINITE: Stop = Stop::error("ERR increment would produce NaN or Infinity");

fn add(cx: &mut Cx<'_>, delta: i64) -> Run {
    let key = &cx.keys[0];
    let sum = match cx.ks.get_mut(key)? {
        Some(mut value) => {
            let text = value.inline().filter(|_| value.kind() == Kind::String).ok_or(WRONG_TYPE)?;
            let sum = int(text).ok_or(NOT_INTEGER)?.checked_add(delta).ok_or(OVERFLOW)?;
            value.replace_inline(Digits::new(sum).as_bytes());
            sum
        }
        None => {
            cx.ks.set_string(key, Digits::new(delta).as_bytes(), None);
            delta
        }
    };
    cx.ks.event(Class::STRING, "incrby", key);
    cx.out.int(sum);
    Ok(())
}

fn incrbyfloat(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let old = string(cx.ks.view(key)?)?.unwrap_or(b"0");
    let old = LongDouble::parse(old).ok_or(NOT_FLOAT)?;
    let delta = LongDouble::parse(&cx.args[2]).ok_or(NOT_FLOAT)?;
    let mut sum = Vec::with_capacity(32);
    old.checked_add(delta).ok_or(NOT_FINITE)?.format(&mut sum);
    let expiry = cx.ks.expiry(key)?.flatten();
    cx.ks.set_string(key, &sum, expiry);
    cx.ks.event(Class::STRING, "incrbyfloat", key);
    cx.effect(&[b"SET", key.name, &sum, b"KEEPTTL"]);
    cx.out.bulk(&sum);
    Ok(())
}
