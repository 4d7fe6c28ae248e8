//! Owns the list commands that wait for an element. Never knows how they wait: the handler runs again when a key has
//! become a list.

use super::moves::{TWO, end_and_count, move_one, pop_first};
use super::{BASE, End};
use crate::block::Block;
use crate::cx::Cx;
use crate::row::{Access, Effect, Flag, KeyUse, Keys, Row, is};
use crate::stop::Run;
use crate::timeout::until_seconds;
use store::Kind;

/// The keys; the timeout comes after them.
const KEYS_TIMEOUT: Keys = Keys::Range { first: 1, last: -2, step: 1 };

const BLOCKING: Row = Row { flags: &[Flag::Write, Flag::Blocking], ..BASE };
const BLOCKING_MOVE: Row = Row { flags: &[Flag::Write, Flag::Denyoom, Flag::Blocking], keys: TWO, ..BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "blmove",
        arity: 6,
        access: Access::First(KeyUse::TAKE, KeyUse::INSERT),
        effect: Effect::Stated,
        since: "6.2.0",
        summary: "Moves an element as LMOVE does, waiting for one if there is none.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        examples: &[
            is("RPUSH a 1 2 3", "(integer) 3"),
            is("BLMOVE a b LEFT RIGHT 0", "\"1\""),
            is("BLMOVE nosuch b LEFT RIGHT 0.001", "(nil)"),
            is("BLMOVE a b LEFT RIGHT -1", "(error) ERR timeout is negative"),
        ],
        run: |cx| {
            let (from, to) = (End::parse(&cx.args[3])?, End::parse(&cx.args[4])?);
            blocking_move(cx, from, to, 5)
        },
        ..BLOCKING_MOVE
    },
    Row {
        name: "blmpop",
        arity: -5,
        keys: Keys::Counted { at: 2 },
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
        effect: Effect::Stated,
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M the number of elements taken.",
        summary: "Takes elements as LMPOP does, waiting for some if there are none.",
        syntax: "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        examples: &[
            is("RPUSH b 1 2 3", "(integer) 3"),
            is("BLMPOP 0 2 a b LEFT COUNT 2", "1) \"b\"\n2) 1) \"1\"\n   2) \"2\""),
            is("BLMPOP 0.001 1 a LEFT", "(nil)"),
            is("BLMPOP x 1 a LEFT", "(error) ERR timeout is not a float or out of range"),
        ],
        run: |cx| {
            let (end, count) = end_and_count(cx.args, 2)?;
            blocking_pop(cx, end, Some(count), 1)
        },
        ..BLOCKING
    },
    Row {
        name: "blpop",
        arity: -3,
        keys: KEYS_TIMEOUT,
        access: Access::All(KeyUse::TAKE),
        effect: Effect::Stated,
        since: "2.0.0",
        complexity: "O(N) where N is the number of keys.",
        summary: "Takes the first element of the first list that has one, waiting for one if none has.",
        syntax: "key [key ...] timeout",
        examples: &[
            is("RPUSH b 1 2", "(integer) 2"),
            is("BLPOP a b 0", "1) \"b\"\n2) \"1\""),
            is("BLPOP a 0.001", "(nil)"),
            is("BLPOP a x", "(error) ERR timeout is not a float or out of range"),
        ],
        run: |cx| blocking_pop(cx, End::Front, None, cx.args.len() - 1),
        ..BLOCKING
    },
    Row {
        name: "brpop",
        arity: -3,
        keys: KEYS_TIMEOUT,
        access: Access::All(KeyUse::TAKE),
        effect: Effect::Stated,
        since: "2.0.0",
        complexity: "O(N) where N is the number of keys.",
        summary: "Takes the last element of the first list that has one, waiting for one if none has.",
        syntax: "key [key ...] timeout",
        examples: &[
            is("RPUSH b 1 2", "(integer) 2"),
            is("BRPOP a b 0", "1) \"b\"\n2) \"2\""),
            is("BRPOP a 0.001", "(nil)"),
            is("BRPOP a -0.5", "(error) ERR timeout is negative"),
        ],
        run: |cx| blocking_pop(cx, End::Back, None, cx.args.len() - 1),
        ..BLOCKING
    },
    Row {
        name: "brpoplpush",
        arity: 4,
        access: Access::First(KeyUse::TAKE, KeyUse::INSERT),
        effect: Effect::Stated,
        since: "2.2.0",
        summary: "Moves an element as RPOPLPUSH does, waiting for one if there is none.",
        syntax: "source destination timeout",
        examples: &[
            is("RPUSH a 1 2", "(integer) 2"),
            is("BRPOPLPUSH a b 0", "\"2\""),
            is("BRPOPLPUSH nosuch b 0.001", "(nil)"),
            is("BRPOPLPUSH a b x", "(error) ERR timeout is not a float or out of range"),
        ],
        run: |cx| blocking_move(cx, End::Back, End::Front, 3),
        ..BLOCKING_MOVE
    },
];

fn blocking_pop(cx: &mut Cx<'_>, end: End, count: Option<usize>, timeout_at: usize) -> Run {
    let until_ms = until_seconds(&cx.args[timeout_at], cx.ks.now_ms())?;
    if pop_first(cx, end, count)? {
        return Ok(());
    }
    Err(Block::new(cx.keys.len(), Kind::List, until_ms).into())
}

/// The command waits for the source. A destination of another type is an error only when there is an element to move.
fn blocking_move(cx: &mut Cx<'_>, from: End, to: End, timeout_at: usize) -> Run {
    let until_ms = until_seconds(&cx.args[timeout_at], cx.ks.now_ms())?;
    if move_one(cx, from, to)? {
        let (args, source, destination) = (cx.args, &cx.keys[0], &cx.keys[1]);
        match timeout_at {
            // BRPOPLPUSH: the command's name fixes the ends.
            3 => cx.effect(&[b"RPOPLPUSH", source.name, destination.name]),
            _ => cx.effect(&[b"LMOVE", source.name, destination.name, &args[3], &args[4]]),
        }
        return Ok(());
    }
    Err(Block { at_once: |out| out.null(), ..Block::new(1, Kind::List, until_ms) }.into())
}
