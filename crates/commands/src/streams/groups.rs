//! Owns XGROUP: consumer groups and their consumers. Never knows pending entries.

use super::ids::{self, IdText};
use super::{BASE, WRONG, no_such_group, stream, stream_mut};
use crate::connection::{help, unknown_subcommand};
use crate::cx::{Args, Cx};
use crate::number::int_or_error;
use crate::row::{Access, Effect, Flag, KeyUse, Keys, Row, Values, is, starts};
use crate::stop::{Run, Stop};
use store::{Class, NOTHING};
use value::Boxed;
use value::stream::{Group, Id, Stream};

pub const ROWS: &[Row] = &[Row {
    name: "xgroup",
    arity: -2,
    keys: Keys::NONE,
    values: Values::Untouched,
    complexity: "Depends on subcommand.",
    summary: "A container for commands that manage the consumer groups of a stream.",
    syntax: "",
    examples: &[
        is("XGROUP NOSUCH s", "(error) ERR unknown subcommand 'NOSUCH'. Try XGROUP HELP."),
        is("XGROUP", "(error) ERR wrong number of arguments for 'xgroup' command"),
    ],
    subcommands: SUBCOMMANDS,
    run: |cx| unknown_subcommand(cx.args, "XGROUP"),
    ..BASE
}];

const SUBCOMMAND: Row = Row { keys: Keys::Range { first: 2, last: 2, step: 1 }, flags: &[Flag::Write], ..BASE };

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "create",
        arity: -5,
        access: Access::All(KeyUse::INSERT),
        flags: &[Flag::Write, Flag::Denyoom],
        effect: Effect::Stated,
        summary: "Creates a group that reads entries above an id, or above the last one ($).",
        syntax: "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
        examples: &[
            is("XGROUP CREATE s g $ MKSTREAM", "OK"),
            is("XGROUP CREATE s g 0", "(error) BUSYGROUP Consumer Group name already exists"),
            starts("XGROUP CREATE nosuch g 0", "(error) ERR The XGROUP subcommand requires the key to exist."),
            is("XGROUP CREATE s h 0 ENTRIESREAD -2", "(error) ERR value for ENTRIESREAD must be positive or -1"),
            is("SET k x", "OK"),
            is("XGROUP CREATE k g 0", WRONG),
        ],
        run: create,
        ..SUBCOMMAND
    },
    Row {
        name: "createconsumer",
        arity: 5,
        access: Access::All(KeyUse::INSERT),
        flags: &[Flag::Write, Flag::Denyoom],
        since: "6.2.0",
        summary: "Creates a consumer of a group; reading with a consumer does the same.",
        syntax: "key group consumer",
        examples: &[
            is("XGROUP CREATE s g $ MKSTREAM", "OK"),
            is("XGROUP CREATECONSUMER s g ann", "(integer) 1"),
            is("XGROUP CREATECONSUMER s g ann", "(integer) 0"),
            is("XGROUP CREATECONSUMER s h ann", "(error) NOGROUP No such consumer group 'h' for key name 's'"),
        ],
        run: create_consumer,
        ..SUBCOMMAND
    },
    Row {
        name: "delconsumer",
        arity: 5,
        access: Access::All(KeyUse::DELETE),
        summary: "Removes a consumer with its pending entries; returns how many there were.",
        syntax: "key group consumer",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XGROUP DELCONSUMER s g ann", "(integer) 1"),
            is("XGROUP DELCONSUMER s g ann", "(integer) 0"),
            is("XGROUP DELCONSUMER s h ann", "(error) NOGROUP No such consumer group 'h' for key name 's'"),
        ],
        run: delete_consumer,
        ..SUBCOMMAND
    },
    Row {
        name: "destroy",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        complexity: "O(N) where N is the number of entries not yet acknowledged.",
        summary: "Removes a group; clients that wait to read with it get an error.",
        syntax: "key group",
        examples: &[
            is("XGROUP CREATE s g $ MKSTREAM", "OK"),
            is("XGROUP DESTROY s g", "(integer) 1"),
            is("XGROUP DESTROY s g", "(integer) 0"),
            starts("XGROUP DESTROY nosuch g", "(error) ERR The XGROUP subcommand requires the key to exist."),
        ],
        run: destroy,
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
            starts("XGROUP HELP", " 1) XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
            is("XGROUP HELP me", "(error) ERR wrong number of arguments for 'xgroup|help' command"),
        ],
        run: |cx| help(cx, "XGROUP", SUBCOMMANDS),
        ..SUBCOMMAND
    },
    Row {
        name: "setid",
        arity: -5,
        access: Access::All(KeyUse::UPDATE),
        effect: Effect::Stated,
        summary: "Sets the id above which a group reads.",
        syntax: "key group <id | $> [ENTRIESREAD entries-read]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g $", "OK"),
            is("XGROUP SETID s g 0", "OK"),
            starts("XREADGROUP GROUP g ann STREAMS s >", "1) 1) \"s\""),
            is("XGROUP SETID s h 0", "(error) NOGROUP No such consumer group 'h' for key name 's'"),
        ],
        run: set_id,
        ..SUBCOMMAND
    },
];

/// The options of CREATE and SETID, after the id.
struct Options {
    make_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, may_make: bool, repeats: bool) -> Result<Options, Stop> {
        let mut options = Options { make_stream: false, entries_read: None };
        let mut at = 5;
        while let Some(word) = args.get(at) {
            match args.get(at + 1) {
                _ if may_make && word.eq_ignore_ascii_case(b"mkstream") => options.make_stream = true,
                Some(number) if word.eq_ignore_ascii_case(b"entriesread") => {
                    options.entries_read = match int_or_error(number)? {
                        -1 => None,
                        // Redis 7.0 sometimes counts below zero, and sends such a count to its replicas.
                        ..0 if repeats => None,
                        number => Some(
                            u64::try_from(number)
                                .map_err(|_| Stop::error("ERR value for ENTRIESREAD must be positive or -1"))?,
                        ),
                    };
                    at += 1;
                }
                _ => return Err(wrong_arguments(args)),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// A known subcommand with a wrong number of arguments.
pub(super) fn wrong_arguments(args: Args<'_>) -> Stop {
    let (container, name) = (super::shown(&args[0]).to_uppercase(), args.get(1).unwrap_or_default());
    let name = super::shown(&name[..name.len().min(128)]);
    let text = format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.");
    Stop::Error(text.into())
}

const NO_KEY: Stop = Stop::error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

fn create(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let options = Options::parse(args, true, cx.session.repeats)?;
    let found = stream(cx.ks.get_to_edit_for(key, NOTHING)?)?;
    if found.is_none() && !options.make_stream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(wrong_arguments(args));
    }
    let (name, id) = (&args[3], &args[4]);
    let last_id = match id {
        b"$" => found.map_or(Id::MIN, |stream| stream.last_id),
        id => ids::strict(id, 0)?,
    };
    let group = Group::new(last_id, options.entries_read);
    match found {
        Some(stream) if stream.group(name).is_some() => {
            return Err(Stop::error("BUSYGROUP Consumer Group name already exists"));
        }
        Some(_) => {
            if let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
                stream_mut(&mut value).create_group(name, group);
            }
        }
        None => {
            let mut stream = Box::new(Stream::new());
            stream.create_group(name, group);
            cx.ks.set_boxed(key, Boxed::Stream(stream), None);
        }
    }
    cx.ks.event(Class::STREAM, "xgroup-create", key);
    state(cx, "CREATE", last_id);
    cx.out.ok();
    Ok(())
}

/// States the command with the id that it resolved to.
fn state(cx: &mut Cx<'_>, name: &str, last_id: Id) {
    let (args, key) = (cx.args, &cx.keys[0]);
    let words = [b"XGROUP", name.as_bytes(), key.name, &args[3]];
    cx.ks.effect(words.into_iter().chain([IdText::new(last_id).as_bytes()]).chain(args.from(5)));
}

/// The stream and the group that the command names.
fn existing<'k>(cx: &'k mut Cx<'_>) -> Result<(&'k Stream, &'k Group), Stop> {
    let (key, name) = (&cx.keys[0], &cx.args[3]);
    let stream = stream(cx.ks.get_to_edit_for(key, NOTHING)?)?.ok_or(NO_KEY)?;
    let group = stream.group(name).ok_or_else(|| no_such_group(name, key.name))?;
    Ok((stream, group))
}

fn change<T>(cx: &mut Cx<'_>, change: impl FnOnce(&mut Group) -> T) -> Result<Option<T>, Stop> {
    let Some(mut value) = cx.ks.get_mut_aside(&cx.keys[0], NOTHING)? else { return Ok(None) };
    Ok(stream_mut(&mut value).with_group(&cx.args[3], |_, group| change(group)))
}

fn set_id(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let options = Options::parse(args, false, cx.session.repeats)?;
    let (stream, _) = existing(cx)?;
    let last_id = match &args[4] {
        b"$" => stream.last_id,
        id => ids::bound(id, 0)?,
    };
    if args.len() > 7 {
        return Err(wrong_arguments(args));
    }
    change(cx, |group| (group.last_id, group.entries_read) = (last_id, options.entries_read))?;
    cx.ks.event(Class::STREAM, "xgroup-setid", &cx.keys[0]);
    state(cx, "SETID", last_id);
    cx.out.ok();
    Ok(())
}

fn destroy(cx: &mut Cx<'_>) -> Run {
    let (key, name) = (&cx.keys[0], &cx.args[3]);
    let is_there = stream(cx.ks.get_to_edit_for(key, NOTHING)?)?.ok_or(NO_KEY)?.group(name).is_some();
    if is_there && let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
        stream_mut(&mut value).remove_group(name);
        cx.ks.wake(key);
        cx.ks.event(Class::STREAM, "xgroup-destroy", key);
    }
    cx.out.int(is_there.into());
    Ok(())
}

fn create_consumer(cx: &mut Cx<'_>) -> Run {
    let (name, now_ms) = (cx.args.get(4).unwrap_or_default(), cx.ks.clock_ms());
    let is_new = existing(cx)?.1.consumer(name).is_none();
    if is_new {
        change(cx, |group| group.create_consumer(name, now_ms as i64))?;
        cx.ks.event(Class::STREAM, "xgroup-createconsumer", &cx.keys[0]);
    }
    cx.out.int(is_new.into());
    Ok(())
}

fn delete_consumer(cx: &mut Cx<'_>) -> Run {
    let name = cx.args.get(4).unwrap_or_default();
    let mut pending = 0;
    if existing(cx)?.1.consumer(name).is_some() {
        pending = change(cx, |group| group.remove_consumer(name))?.flatten().unwrap_or(0);
        cx.ks.event(Class::STREAM, "xgroup-delconsumer", &cx.keys[0]);
    }
    cx.out.int(pending as i64);
    Ok(())
}
