//! Owns COMMAND: what the rows of all families say, in Redis's reply formats. Never says anything that is not in a row.

use super::arguments::{self, arguments};
use super::{BASE, WATCH};
use crate::connection::{help, unknown_subcommand};
use crate::cx::{Args, Cx};
use crate::row::{
    Access, Acl, Flag, Group, HowMany, KeyLocation, KeyUse, Keys, Row, categories, is, only_here, starts,
};
use crate::stop::{Run, SYNTAX, Stop};
use crate::table;
use base::glob;
use resp::reply::Out;

const CONNECTION: &[Acl] = &[Acl::Connection];

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "count",
        arity: 2,
        flags: WATCH,
        acl: CONNECTION,
        since: "2.8.13",
        summary: "Returns a count of commands.",
        examples: &[starts("COMMAND COUNT", "(integer) ")],
        run: |cx| {
            cx.out.int(table::all().count() as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "docs",
        arity: -2,
        flags: WATCH,
        acl: CONNECTION,
        tips: &["nondeterministic_output_order"],
        since: "7.0.0",
        complexity: "O(N) where N is the number of commands to look up",
        summary: "Returns documentary information about one, multiple or all commands.",
        syntax: "[command-name [command-name ...]]",
        examples: &[is("COMMAND DOCS nosuchcommand", "(empty array)"), starts("COMMAND DOCS ping", "1) \"ping\"\n2) ")],
        run: docs,
        ..BASE
    },
    Row {
        name: "getkeys",
        arity: -3,
        flags: WATCH,
        acl: CONNECTION,
        since: "2.8.13",
        complexity: "O(N) where N is the number of arguments to the command",
        summary: "Extracts the key names from an arbitrary command.",
        syntax: "command [arg [arg ...]]",
        examples: &[
            is("COMMAND GETKEYS MSET a 1 b 2", "1) \"a\"\n2) \"b\""),
            only_here("COMMAND GETKEYS PING", "(error) ERR The command has no key arguments"),
            is("COMMAND GETKEYS NOSUCH x", "(error) ERR Invalid command specified"),
            only_here("COMMAND GETKEYS GET", "(error) ERR Invalid number of arguments specified for command"),
        ],
        run: |cx| get_keys(cx, false),
        ..BASE
    },
    Row {
        name: "getkeysandflags",
        arity: -3,
        flags: WATCH,
        acl: CONNECTION,
        since: "7.0.0",
        complexity: "O(N) where N is the number of arguments to the command",
        summary: "Extracts the key names and access flags for an arbitrary command.",
        syntax: "command [arg [arg ...]]",
        examples: &[is("COMMAND GETKEYSANDFLAGS GET a", "1) 1) \"a\"\n   2) 1) RO\n      2) access")],
        run: |cx| get_keys(cx, true),
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: WATCH,
        acl: CONNECTION,
        since: "5.0.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("COMMAND HELP", " 1) COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "COMMAND", ROWS),
        ..BASE
    },
    Row {
        name: "info",
        arity: -2,
        flags: WATCH,
        acl: CONNECTION,
        tips: &["nondeterministic_output_order"],
        since: "2.8.13",
        complexity: "O(N) where N is the number of commands to look up",
        summary: "Returns information about one, multiple or all commands.",
        syntax: "[command-name [command-name ...]]",
        examples: &[
            is("COMMAND INFO nosuchcommand", "1) (nil)"),
            starts(
                "COMMAND INFO get",
                "1)  1) \"get\"\n    2) (integer) 2\n    3) 1) readonly\n       2) fast\n    4) (integer) 1\n",
            ),
        ],
        run: |cx| {
            if cx.args.len() == 2 {
                return write_all(&mut cx.out);
            }
            cx.out.array(cx.args.len() - 2);
            for name in cx.args.from(2) {
                match named(name) {
                    Some((container, row)) => write_info(&mut cx.out, container, row),
                    None => cx.out.null(),
                }
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "list",
        arity: -2,
        flags: WATCH,
        acl: CONNECTION,
        tips: &["nondeterministic_output_order"],
        since: "7.0.0",
        complexity: "O(N) where N is the total number of commands",
        summary: "Returns a list of command names.",
        syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
        examples: &[
            is("COMMAND LIST FILTERBY PATTERN getrang?", "1) \"getrange\""),
            is("COMMAND LIST FILTERBY MODULE nosuchmodule", "(empty array)"),
            is("COMMAND LIST FILTERBY", "(error) ERR syntax error"),
        ],
        run: list,
        ..BASE
    },
];

/// COMMAND without arguments describes every command.
pub(super) fn all(cx: &mut Cx<'_>) -> Run {
    if cx.args.len() > 1 {
        return unknown_subcommand(cx.args, "COMMAND");
    }
    write_all(&mut cx.out)
}

fn write_all(out: &mut Out<'_>) -> Run {
    out.array(table::all().count());
    for row in table::all() {
        write_info(out, None, row);
    }
    Ok(())
}

/// The row of `name` or `container|name`, in any case.
fn named(name: &[u8]) -> Option<(Option<&'static str>, &'static Row)> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let first = parts.next()?;
    let row = table::all().find(|row| row.name.as_bytes().eq_ignore_ascii_case(first))?;
    match parts.next() {
        None => Some((None, row)),
        Some(sub) => {
            let sub = row.subcommands.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(sub))?;
            Some((Some(row.name), sub))
        }
    }
}

fn write_name(out: &mut Out<'_>, container: Option<&str>, row: &Row) {
    match container {
        None => out.bulk(row.name.as_bytes()),
        Some(container) => out.bulk(format!("{container}|{}", row.name).as_bytes()),
    }
}

fn write_info(out: &mut Out<'_>, container: Option<&str>, row: &'static Row) {
    out.array(10);
    write_name(out, container, row);
    out.int(row.arity.into());
    let flags: Vec<&str> = row.flags.iter().filter_map(|&flag| flag_name(flag)).collect();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let (first, last, step) = match row.keys {
        Keys::Range { first, last, step } | Keys::NotKeys { first, last, step } => (first, last, step),
        Keys::FirstAnd(..) => (1, 1, 1),
        Keys::UsuallyAt(at, ..) => (at, at, 1),
        Keys::None | Keys::Counted { .. } | Keys::Rule(..) => (0, 0, 0),
    };
    for position in [first, last, step] {
        out.int(position.into());
    }
    let categories = categories(row);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(&format!("@{category}")));
    out.set(row.tips.len());
    row.tips.iter().for_each(|tip| out.simple(tip));
    let specs = key_specs(row);
    out.set(specs.len());
    specs.iter().for_each(|spec| write_key_spec(out, spec));
    out.set(row.subcommands.len());
    for sub in row.subcommands {
        write_info(out, Some(row.name), sub);
    }
}

/// A key specification: keys that are found in the same way and used in the same way.
struct Spec {
    flags: Vec<&'static str>,
    begin: Begin,
    find: Find,
}

enum Begin {
    Index(i16),
    Keyword(&'static str, i16),
    Unknown,
}

enum Find {
    Range { last: i16, step: i16, limit: i16 },
    Counted,
    Unknown,
}

fn key_specs(row: &Row) -> Vec<Spec> {
    const ONE: Find = Find::Range { last: 0, step: 1, limit: 0 };
    let mut found: Vec<(Begin, Find)> = Vec::new();
    let places = match row.keys {
        Keys::None => &[],
        Keys::Range { first, last, step } if matches!(row.access, Access::First(..)) => {
            // The first key, and the other keys.
            let second = first + step;
            found.push((Begin::Index(first), ONE));
            found.push((Begin::Index(second), Find::Range { last: from_first(last, second), step, limit: 0 }));
            &[][..]
        }
        Keys::Range { first, last, step } | Keys::NotKeys { first, last, step } => {
            found.push((Begin::Index(first), Find::Range { last: from_first(last, first), step, limit: 0 }));
            &[]
        }
        Keys::Counted { at } => {
            found.push((Begin::Index(at), Find::Counted));
            &[]
        }
        Keys::Rule(_, places) => places,
        Keys::UsuallyAt(at, _, places) => {
            found.push((Begin::Index(at), ONE));
            places
        }
        Keys::FirstAnd(_, places) => {
            found.push((Begin::Index(1), ONE));
            places
        }
    };
    let named = found.len();
    found.extend(places.iter().map(|&place| match place {
        KeyLocation::Counted { at } => (Begin::Index(at), Find::Counted),
        KeyLocation::Behind { word, from, how_many } => {
            let (last, limit) = match how_many {
                HowMany::One => (0, 0),
                HowMany::All => (-1, 0),
                HowMany::Half => (-1, 2),
            };
            (Begin::Keyword(word, from), Find::Range { last, step: 1, limit })
        }
        KeyLocation::Anywhere | KeyLocation::Unnamed => (Begin::Unknown, Find::Unknown),
    }));
    let flags = |nth: usize| {
        let place = nth.checked_sub(named).map(|nth| places[nth]);
        let mut flags = match place {
            _ if matches!(row.keys, Keys::NotKeys { .. }) => vec!["not_key"],
            Some(KeyLocation::Unnamed) => KeyUse::READ.words.to_vec(),
            // The arguments decide, so the real use may be more or less.
            _ if matches!(row.access, Access::Rule(_)) => [KeyUse::CHANGE.words, &["variable_flags"]].concat(),
            _ => row.key_use(nth, &Args::new(b"", &[])).words.to_vec(),
        };
        if matches!(place, Some(KeyLocation::Behind { from: ..0, .. })) {
            flags.push("incomplete");
        }
        flags
    };
    let specs = found.into_iter().enumerate();
    specs.map(|(nth, (begin, find))| Spec { flags: flags(nth), begin, find }).collect()
}

/// Redis counts the last key from the first one, unless it counts from the end.
fn from_first(last: i16, first: i16) -> i16 {
    if last < 0 { last } else { last - first }
}

fn write_key_spec(out: &mut Out<'_>, Spec { flags, begin, find }: &Spec) {
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    out.bulk(b"begin_search");
    match *begin {
        Begin::Index(index) => {
            write_way(out, "index", 1);
            write_number(out, "index", index);
        }
        Begin::Keyword(word, from) => {
            write_way(out, "keyword", 2);
            out.bulk(b"keyword");
            out.bulk(word.as_bytes());
            write_number(out, "startfrom", from);
        }
        Begin::Unknown => write_way(out, "unknown", 0),
    }
    out.bulk(b"find_keys");
    match *find {
        Find::Range { last, step, limit } => {
            write_way(out, "range", 3);
            write_number(out, "lastkey", last);
            write_number(out, "keystep", step);
            write_number(out, "limit", limit);
        }
        Find::Counted => {
            write_way(out, "keynum", 3);
            write_number(out, "keynumidx", 0);
            write_number(out, "firstkey", 1);
            write_number(out, "keystep", 1);
        }
        Find::Unknown => write_way(out, "unknown", 0),
    }
}

/// How clients search for the keys; this many fields follow.
fn write_way(out: &mut Out<'_>, name: &str, fields: usize) {
    out.map(2);
    out.bulk(b"type");
    out.bulk(name.as_bytes());
    out.bulk(b"spec");
    out.map(fields);
}

fn write_number(out: &mut Out<'_>, name: &str, number: i16) {
    out.bulk(name.as_bytes());
    out.int(number.into());
}

fn docs(cx: &mut Cx<'_>) -> Run {
    let out = &mut cx.out;
    if cx.args.len() == 2 {
        out.map(table::all().count());
        for row in table::all() {
            write_docs(out, None, row);
        }
        return Ok(());
    }
    let found: Vec<_> = cx.args.from(2).filter_map(named).collect();
    out.map(found.len());
    for (container, row) in found {
        write_docs(out, container, row);
    }
    Ok(())
}

fn write_docs(out: &mut Out<'_>, container: Option<&str>, row: &'static Row) {
    write_name(out, container, row);
    let has_subcommands = !row.subcommands.is_empty();
    let arguments = arguments(row, &named_key_specs(row));
    out.map(4 + usize::from(has_subcommands) + usize::from(!arguments.is_empty()));
    for (name, text) in [
        ("summary", row.summary),
        ("since", row.since),
        ("group", group_name(row.group)),
        ("complexity", row.complexity),
    ] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        out.bulk(b"arguments");
        arguments::write(out, &arguments);
    }
    if has_subcommands {
        out.bulk(b"subcommands");
        out.map(row.subcommands.len());
        for sub in row.subcommands {
            write_docs(out, Some(row.name), sub);
        }
    }
}

/// The key specifications of keys that are arguments.
fn named_key_specs(row: &Row) -> Vec<usize> {
    let specs = key_specs(row);
    let is_named = |spec: &Spec| matches!(spec.begin, Begin::Index(_) | Begin::Keyword(..)) || spec.flags[0] == "OW";
    (0..specs.len()).filter(|&at| is_named(&specs[at])).collect()
}

/// COMMAND LIST's FILTERBY.
enum Filter<'a> {
    All,
    /// FlintKV has no modules.
    Module,
    Category(&'a [u8]),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn fits(&self, name: &str, row: &Row) -> bool {
        match self {
            Filter::All => true,
            Filter::Module => false,
            Filter::Category(wanted) => {
                categories(row).iter().any(|category| category.as_bytes().eq_ignore_ascii_case(wanted))
            }
            Filter::Pattern(pattern) => glob::matches(pattern, name.as_bytes(), true),
        }
    }
}

fn list(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let filter = match args.len() {
        2 => Filter::All,
        5 if args[2].eq_ignore_ascii_case(b"filterby") => match args[3].to_ascii_lowercase().as_slice() {
            b"module" => Filter::Module,
            b"aclcat" => Filter::Category(&args[4]),
            b"pattern" => Filter::Pattern(&args[4]),
            _ => return Err(SYNTAX),
        },
        _ => return Err(SYNTAX),
    };
    let mark = cx.out.array_deferred();
    let mut count = 0;
    for row in table::all() {
        if filter.fits(row.name, row) {
            cx.out.bulk(row.name.as_bytes());
            count += 1;
        }
        for sub in row.subcommands {
            let name = format!("{}|{}", row.name, sub.name);
            if filter.fits(&name, sub) {
                cx.out.bulk(name.as_bytes());
                count += 1;
            }
        }
    }
    cx.out.finish(mark, count);
    Ok(())
}

fn get_keys(cx: &mut Cx<'_>, with_flags: bool) -> Run {
    let args: Args<'_> = cx.args.tail(2);
    let Some((_, mut row)) = named(&args[0]) else { return Err(Stop::error("ERR Invalid command specified")) };
    if let Some(sub) = args.get(1)
        && let Some(sub) = row.subcommands.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(sub))
    {
        row = sub;
    }
    if matches!(row.keys, Keys::None | Keys::NotKeys { .. }) {
        return Err(Stop::error("ERR The command has no key arguments"));
    }
    let fits = if row.arity >= 0 {
        args.len() == row.arity as usize
    } else {
        args.len() >= usize::from(row.arity.unsigned_abs())
    };
    if !fits {
        return Err(Stop::error("ERR Invalid number of arguments specified for command"));
    }
    let mut positions = Vec::new();
    row.keys.named(&args, &mut positions);
    // EVAL and the like need no keys.
    if positions.is_empty() && !row.flags.contains(&Flag::NoMandatoryKeys) {
        return Err(Stop::error("ERR Invalid arguments specified for command"));
    }
    cx.out.array(positions.len());
    for (nth, at) in positions.into_iter().enumerate() {
        if with_flags {
            cx.out.array(2);
            cx.out.bulk(&args[at]);
            let key_use = row.key_use(nth, &args);
            cx.out.set(key_use.words.len());
            key_use.words.iter().for_each(|word| cx.out.simple(word));
        } else {
            cx.out.bulk(&args[at]);
        }
    }
    Ok(())
}

/// The flag's name in COMMAND INFO. `None`: only FlintKV has this flag.
fn flag_name(flag: Flag) -> Option<&'static str> {
    Some(match flag {
        Flag::Write => "write",
        Flag::Readonly => "readonly",
        Flag::Denyoom => "denyoom",
        Flag::Admin => "admin",
        Flag::Pubsub => "pubsub",
        Flag::Noscript => "noscript",
        Flag::Blocking => "blocking",
        Flag::Loading => "loading",
        Flag::Stale => "stale",
        Flag::SkipMonitor => "skip_monitor",
        Flag::SkipSlowlog => "skip_slowlog",
        Flag::Asking => "asking",
        Flag::Fast => "fast",
        Flag::NoAuth => "no_auth",
        Flag::NoMulti => "no_multi",
        Flag::MovableKeys => "movablekeys",
        Flag::NoMandatoryKeys => "no_mandatory_keys",
        Flag::AllowBusy => "allow_busy",
        Flag::NoAsyncLoading => "no_async_loading",
        Flag::Keyspace | Flag::Barrier | Flag::UnnamedKeys => return None,
    })
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::Generic => "generic",
        Group::String => "string",
        Group::List => "list",
        Group::Set => "set",
        Group::SortedSet => "sorted-set",
        Group::Hash => "hash",
        Group::Pubsub => "pubsub",
        Group::Transactions => "transactions",
        Group::Connection => "connection",
        Group::Server => "server",
        Group::Scripting => "scripting",
        Group::HyperLogLog => "hyperloglog",
        Group::Cluster => "cluster",
        Group::Geo => "geo",
        Group::Stream => "stream",
        Group::Bitmap => "bitmap",
    }
}
