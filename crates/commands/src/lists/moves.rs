//! Owns the list commands on several keys: LMOVE, RPOPLPUSH and LMPOP. Never knows how a list is stored.

use super::{BASE, End, GROW, WRONG_TYPE_REPLY, elements, notify, of_pop, of_push, push, take};
use crate::cx::{Args, Cx};
use crate::number::{Digits, int};
use crate::row::{Access, Effect, Flag, KeyUse, Keys, Row, is};
use crate::stop::{SYNTAX, Stop};
use std::iter::once;

/// A source and a destination.
pub(super) const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };

pub const ROWS: &[Row] = &[
    Row {
        name: "lmove",
        arity: 5,
        access: Access::First(KeyUse::TAKE, KeyUse::INSERT),
        keys: TWO,
        flags: GROW,
        since: "6.2.0",
        summary: "Takes an element from an end of one list and puts it at an end of another, or of the same.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        examples: &[
            is("RPUSH a 1 2 3", "(integer) 3"),
            is("LMOVE a b RIGHT LEFT", "\"3\""),
            is("LMOVE a b LEFT RIGHT", "\"1\""),
            is("LRANGE b 0 -1", "1) \"3\"\n2) \"1\""),
            is("LMOVE nosuch b LEFT LEFT", "(nil)"),
            is("LMOVE a b LEFT UP", "(error) ERR syntax error"),
        ],
        run: |cx| {
            let (from, to) = (End::parse(&cx.args[3])?, End::parse(&cx.args[4])?);
            if !move_one(cx, from, to)? {
                cx.out.null();
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "lmpop",
        arity: -4,
        keys: Keys::Counted { at: 1 },
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::MovableKeys],
        effect: Effect::Stated,
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M the number of elements taken.",
        summary: "Takes elements from the first of several lists that has any.",
        syntax: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        examples: &[
            is("RPUSH b 1 2 3", "(integer) 3"),
            is("LMPOP 2 a b LEFT COUNT 2", "1) \"b\"\n2) 1) \"1\"\n   2) \"2\""),
            is("LMPOP 2 a b RIGHT COUNT 9", "1) \"b\"\n2) 1) \"3\""),
            is("LMPOP 2 a b LEFT", "(nil)"),
            is("LMPOP 0 a LEFT", "(error) ERR numkeys should be greater than 0"),
        ],
        run: |cx| {
            let (end, count) = end_and_count(cx.args, 1)?;
            if !pop_first(cx, end, Some(count))? {
                cx.out.null_array();
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "rpoplpush",
        arity: 3,
        access: Access::First(KeyUse::TAKE, KeyUse::INSERT),
        keys: TWO,
        flags: GROW,
        since: "1.2.0",
        summary: "Takes the last element of one list and puts it before the first of another; LMOVE knows the other ends.",
        syntax: "source destination",
        examples: &[
            is("RPUSH a 1 2", "(integer) 2"),
            is("RPOPLPUSH a b", "\"2\""),
            is("RPOPLPUSH a a", "\"1\""),
            is("RPOPLPUSH nosuch b", "(nil)"),
            is("SET s x", "OK"),
            is("RPOPLPUSH a s", WRONG_TYPE_REPLY),
        ],
        run: |cx| {
            if !move_one(cx, End::Back, End::Front)? {
                cx.out.null();
            }
            Ok(())
        },
        ..BASE
    },
];

/// Moves an element from the first key to the second and replies with it. False: there is no element, and no reply yet.
pub(super) fn move_one(cx: &mut Cx<'_>, from: End, to: End) -> Result<bool, Stop> {
    let (source, destination) = (&cx.keys[0], &cx.keys[1]);
    let element = match elements(cx.ks.view_for(source, &of_pop(from, 1))?)?.and_then(|list| list.at(from)) {
        Some(element) => element.to_vec(),
        None => return Ok(false),
    };
    let limit = cx.settings.list_limit;
    let element = &element[..];
    // Check that the destination can take the element before the element is removed.
    elements(cx.ks.view_for(destination, &of_push(once(element), to, limit))?)?;
    // Within one list, push first and pop afterwards: the key stays, and the element now at that end is equal to the
    // popped one.
    let within_one = source.name == destination.name;
    let mut is_gone = false;
    if !within_one {
        is_gone = take(cx, source, from, 1)?;
    }
    push(&mut cx.ks, destination, once(element), to, limit)?;
    if within_one {
        take(cx, source, from, 1)?;
    }
    notify(cx, destination, to.push_event(), false);
    notify(cx, source, from.pop_event(), is_gone);
    cx.out.bulk(element);
    Ok(true)
}

/// The arguments of LMPOP and BLMPOP from the number of keys on.
pub(super) fn end_and_count(args: Args<'_>, numkeys_at: usize) -> Result<(End, usize), Stop> {
    let positive = |text: &[u8]| int(text).and_then(|number| usize::try_from(number).ok()).filter(|&number| number > 0);
    let numkeys = positive(&args[numkeys_at]).ok_or(Stop::error("ERR numkeys should be greater than 0"))?;
    let end_at = numkeys.saturating_add(numkeys_at + 1);
    let end = End::parse(args.get(end_at).ok_or(SYNTAX)?)?;
    let count = match (args.get(end_at + 1), args.get(end_at + 2)) {
        (None, _) => 1,
        (Some(word), Some(number)) if word.eq_ignore_ascii_case(b"count") => {
            positive(number).ok_or(Stop::error("ERR count should be greater than 0"))?
        }
        _ => return Err(SYNTAX),
    };
    if args.len() > end_at + 3 { Err(SYNTAX) } else { Ok((end, count)) }
}

/// Pops from the first key that is a list and replies with the key's name: one element as it is, or up to `count`
/// elements in an array. False: there is no element, and no reply yet.
pub(super) fn pop_first(cx: &mut Cx<'_>, end: End, count: Option<usize>) -> Result<bool, Stop> {
    for key in cx.keys {
        let Some(list) = elements(cx.ks.view_for(key, &of_pop(end, count.unwrap_or(1)))?)? else { continue };
        let taken = count.unwrap_or(1).min(list.len());
        cx.out.array(2);
        cx.out.bulk(key.name);
        if count.is_some() {
            cx.out.array(taken);
        }
        list.reply(end, taken, &mut cx.out);
        let is_gone = take(cx, key, end, taken)?;
        notify(cx, key, end.pop_event(), is_gone);
        let name: &[u8] = if end == End::Front { b"LPOP" } else { b"RPOP" };
        match count {
            None => cx.effect(&[name, key.name]),
            Some(_) => cx.effect(&[name, key.name, Digits::new(taken as i64).as_bytes()]),
        }
        return Ok(true);
    }
    Ok(false)
}
