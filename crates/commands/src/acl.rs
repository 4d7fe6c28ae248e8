//! Owns the commands about users. Never knows how rules are stored or checked: the host does that.

use crate::connection::{BASE as CONNECTION, help, unknown_subcommand, wrong_subcommand};
use crate::cx::Cx;
use crate::host::{AclDenial, AclSelector};
use crate::number;
use crate::row::{CATEGORIES, Flag, Group, Row, Secrets, categories, category_name, is, only_here, starts};
use crate::stop::{Run, Stop};
use crate::table;
use resp::reply::Out;

const PLAIN: &[Flag] = &[Flag::Noscript, Flag::Loading, Flag::Stale];
const ADMIN: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];

const BASE: Row = Row { flags: PLAIN, group: Group::Server, since: "6.0.0", ..CONNECTION };
const ADMIN_BASE: Row = Row { flags: ADMIN, ..BASE };

pub const ROWS: &[Row] = &[Row {
    name: "acl",
    arity: -2,
    flags: &[],
    complexity: "Depends on subcommand.",
    summary: "A container for commands about users and their rights.",
    examples: &[is("ACL NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try ACL HELP.")],
    subcommands: SUBCOMMANDS,
    run: |cx| unknown_subcommand(cx.args, "ACL"),
    ..BASE
}];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "cat",
        arity: -2,
        complexity: "O(1) since the categories and commands are a fixed set.",
        summary: "Lists the categories of commands, or the commands inside one.",
        syntax: "[category]",
        examples: &[
            starts("ACL CAT", " 1) \"keyspace\"\n 2) \"read\"\n 3) \"write\""),
            is("ACL CAT nosuch", "(error) ERR Unknown category 'nosuch'"),
        ],
        run: cat,
        ..BASE
    },
    Row {
        name: "deluser",
        arity: -3,
        secrets: Secrets::From(2),
        complexity: "O(1) amortized time considering the typical user.",
        summary: "Deletes users, and ends their connections.",
        syntax: "username [username ...]",
        examples: &[
            is("ACL SETUSER bob", "OK"),
            is("ACL DELUSER bob nobody", "(integer) 1"),
            is("ACL DELUSER default", "(error) ERR The 'default' user cannot be removed"),
        ],
        run: delete,
        ..ADMIN_BASE
    },
    Row {
        name: "dryrun",
        arity: -4,
        since: "7.0.0",
        complexity: "O(1).",
        summary: "Tells whether a user may run a command, without running it.",
        syntax: "username command [arg [arg ...]]",
        examples: &[
            is("ACL SETUSER bob +get ~public:*", "OK"),
            is("ACL DRYRUN bob GET public:1", "OK"),
            only_here("ACL DRYRUN bob SET public:1 v", "\"User bob has no permissions to run the 'set' command\""),
            only_here("ACL DRYRUN bob GET secret", "\"User bob has no permissions to access the 'secret' key\""),
            is("ACL DRYRUN nobody PING", "(error) ERR User 'nobody' not found"),
            is("ACL DRYRUN bob NOSUCH", "(error) ERR Command 'NOSUCH' not found"),
        ],
        run: dry_run,
        ..ADMIN_BASE
    },
    Row {
        name: "genpass",
        arity: -2,
        summary: "Generates a random password, in hexadecimal.",
        syntax: "[bits]",
        examples: &[
            starts("ACL GENPASS 5", "\""),
            is(
                "ACL GENPASS 0",
                "(error) ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                 number up to 4096",
            ),
        ],
        run: generate,
        ..BASE
    },
    Row {
        name: "getuser",
        arity: 3,
        secrets: Secrets::From(2),
        complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
        summary: "Shows the rules of a user.",
        syntax: "username",
        examples: &[
            is("ACL SETUSER bob on >secret +get ~public:*", "OK"),
            starts("ACL GETUSER bob", " 1) \"flags\"\n 2) 1) \"on\""),
            is("ACL GETUSER nobody", "(nil)"),
        ],
        run: get,
        ..ADMIN_BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("ACL HELP", " 1) ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "ACL", SUBCOMMANDS),
        ..BASE
    },
    Row {
        name: "list",
        arity: 2,
        complexity: "O(N). Where N is the number of configured users.",
        summary: "Lists the rules of all users as the configuration file would have them.",
        examples: &[
            starts("ACL DELUSER bob", "(integer) "),
            only_here("ACL LIST", "1) \"user default on nopass sanitize-payload ~* &* +@all\""),
        ],
        run: |cx| {
            let lines = cx.server.access().user_lines();
            cx.out.array(lines.len());
            lines.iter().for_each(|line| cx.out.bulk(line.as_bytes()));
            Ok(())
        },
        ..ADMIN_BASE
    },
    Row {
        name: "load",
        arity: 2,
        complexity: "O(N). Where N is the number of configured users.",
        summary: "Reads all users again from the ACL file.",
        examples: &[starts("ACL LOAD", "(error) ERR This Redis instance is not configured to use an ACL file.")],
        run: |cx| {
            let ends = cx.server.access().load_users(cx.session).map_err(|text| Stop::Error(text.into()))?;
            users_changed(cx, ends);
            Ok(())
        },
        ..ADMIN_BASE
    },
    Row {
        name: "log",
        arity: -2,
        complexity: "O(N) with N being the number of entries shown.",
        summary: "Shows the latest refusals, or clears them.",
        syntax: "[count | RESET]",
        examples: &[
            is("ACL LOG RESET", "OK"),
            is("AUTH nobody secret", "(error) WRONGPASS invalid username-password pair or user is disabled."),
            starts("ACL LOG 1", "1)  1) \"count\"\n    2) (integer) 1\n    3) \"reason\"\n    4) \"auth\""),
            is("ACL LOG x", "(error) ERR value is not an integer or out of range"),
        ],
        run: log,
        ..ADMIN_BASE
    },
    Row {
        name: "save",
        arity: 2,
        complexity: "O(N). Where N is the number of configured users.",
        summary: "Writes all users to the ACL file.",
        examples: &[starts("ACL SAVE", "(error) ERR This Redis instance is not configured to use an ACL file.")],
        run: |cx| {
            cx.server.access().save_users().map_err(|text| Stop::Error(text.into()))?;
            cx.out.ok();
            Ok(())
        },
        ..ADMIN_BASE
    },
    Row {
        name: "setuser",
        arity: -3,
        secrets: Secrets::From(2),
        complexity: "O(N). Where N is the number of rules provided.",
        summary: "Creates a user, or changes a user's rules.",
        syntax: "username [rule [rule ...]]",
        examples: &[
            is("ACL SETUSER bob on >secret +@read -keys ~cache:* %R~shared:* (+set ~bob:*)", "OK"),
            is("ACL SETUSER bob reset", "OK"),
            is(
                "ACL SETUSER bob +nosuch",
                "(error) ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL",
            ),
            is("ACL SETUSER bob (+get", "(error) ERR Unmatched parenthesis in acl selector starting at '(+get'."),
        ],
        run: set,
        ..ADMIN_BASE
    },
    Row {
        name: "users",
        arity: 2,
        complexity: "O(N). Where N is the number of configured users.",
        summary: "Lists the names of all users.",
        examples: &[starts("ACL DELUSER bob", "(integer) "), is("ACL USERS", "1) \"default\"")],
        run: |cx| {
            let names = cx.server.access().user_names();
            cx.out.array(names.len());
            names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
            Ok(())
        },
        ..ADMIN_BASE
    },
    Row {
        name: "whoami",
        arity: 2,
        summary: "Names the user of this connection.",
        examples: &[is("ACL WHOAMI", "\"default\"")],
        run: |cx| {
            cx.out.bulk(cx.session.user.as_bytes());
            Ok(())
        },
        ..BASE
    },
];

/// The server checks the caller's own rights again before the caller's next command.
fn users_changed(cx: &mut Cx<'_>, ends: bool) {
    cx.session.changed = true;
    cx.session.close |= ends;
    cx.out.ok();
}

fn cat(cx: &mut Cx<'_>) -> Run {
    let Some(wanted) = cx.args.get(2) else {
        cx.out.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|&category| cx.out.bulk(category_name(category).as_bytes()));
        return Ok(());
    };
    if cx.args.len() > 3 {
        return Err(wrong_subcommand(cx.args, "ACL"));
    }
    let category = CATEGORIES.iter().find(|&&known| category_name(known).as_bytes().eq_ignore_ascii_case(wanted));
    let Some(&category) = category else {
        let shown = String::from_utf8_lossy(&wanted[..wanted.len().min(128)]);
        return Err(Stop::Error(format!("ERR Unknown category '{shown}'").into()));
    };
    let name = category_name(category);
    let mark = cx.out.array_deferred();
    let mut count = 0;
    for row in table::all() {
        if categories(row).contains(&name) {
            cx.out.bulk(row.name.as_bytes());
            count += 1;
        }
        for sub in row.subcommands.iter().filter(|sub| categories(sub).contains(&name)) {
            cx.out.bulk(format!("{}|{}", row.name, sub.name).as_bytes());
            count += 1;
        }
    }
    cx.out.finish(mark, count);
    Ok(())
}

fn delete(cx: &mut Cx<'_>) -> Run {
    let names: Vec<&[u8]> = cx.args.from(2).collect();
    if names.contains(&&b"default"[..]) {
        return Err(Stop::error("ERR The 'default' user cannot be removed"));
    }
    let deleted = cx.server.access().delete_users(cx.session, &names);
    cx.session.close |= deleted.me;
    cx.out.int(deleted.count as i64);
    Ok(())
}

fn dry_run(cx: &mut Cx<'_>) -> Run {
    match cx.server.access().dry_run(&cx.args[2], cx.args.tail(3)) {
        Ok(None) => cx.out.ok(),
        Ok(Some(why_not)) => cx.out.bulk(why_not.as_bytes()),
        Err(text) => return Err(Stop::Error(text.into())),
    }
    Ok(())
}

const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

fn generate(cx: &mut Cx<'_>) -> Run {
    let bits = match cx.args.get(2) {
        Some(_) if cx.args.len() > 3 => return Err(wrong_subcommand(cx.args, "ACL")),
        Some(bits) => number::int_or_error(bits)?,
        None => PASSWORD_BITS,
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Stop::error(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    // A hexadecimal digit holds four bits. A remainder of bits takes one more digit.
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    cx.server.access().random(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    cx.out.bulk(&hex.as_bytes()[..digits]);
    Ok(())
}

fn get(cx: &mut Cx<'_>) -> Run {
    let Some(user) = cx.server.access().user(&cx.args[2]) else {
        cx.out.null();
        return Ok(());
    };
    let out = &mut cx.out;
    out.map(6);
    out.bulk(b"flags");
    out.set(user.flags.len());
    user.flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    out.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| out.bulk(hash.as_bytes()));
    let (own, others) = user.selectors.split_first().expect("a user has rules of its own");
    show_rules(out, own);
    out.bulk(b"selectors");
    out.array(others.len());
    for selector in others {
        out.map(3);
        show_rules(out, selector);
    }
    Ok(())
}

fn show_rules(out: &mut Out<'_>, selector: &AclSelector) {
    for (name, text) in [
        ("commands", &selector.commands),
        ("keys", &selector.keys.join(" ")),
        ("channels", &selector.channels.join(" ")),
    ] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
}

/// Entries that ACL LOG shows without an argument.
const LOG_SHOWN: usize = 10;

fn log(cx: &mut Cx<'_>) -> Run {
    let count = match cx.args.get(2) {
        Some(_) if cx.args.len() > 3 => return Err(wrong_subcommand(cx.args, "ACL")),
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            cx.server.access().forget_denials();
            cx.out.ok();
            return Ok(());
        }
        Some(count) => usize::try_from(number::int_or_error(count)?).unwrap_or(0),
        None => LOG_SHOWN,
    };
    let now_ms = cx.server.time_us() / 1000;
    let denials = cx.server.access().denials(count);
    cx.out.array(denials.len());
    denials.iter().for_each(|denial| show(cx, denial, now_ms));
    Ok(())
}

fn show(cx: &mut Cx<'_>, denial: &AclDenial, now_ms: u64) {
    let out = &mut cx.out;
    out.map(10);
    out.bulk(b"count");
    out.int(denial.count as i64);
    for (name, text) in [
        (&b"reason"[..], denial.reason.as_bytes()),
        (b"context", denial.context.as_bytes()),
        (b"object", &denial.object),
        (b"username", &denial.user),
    ] {
        out.bulk(name);
        out.bulk(text);
    }
    out.bulk(b"age-seconds");
    out.double(now_ms.saturating_sub(denial.created_ms) as f64 / 1000.0);
    out.bulk(b"client-info");
    out.bulk(denial.client.as_bytes());
    out.bulk(b"entry-id");
    out.int(denial.id as i64);
    out.bulk(b"timestamp-created");
    out.int(denial.created_ms as i64);
    out.bulk(b"timestamp-last-updated");
    out.int(denial.updated_ms as i64);
}

fn set(cx: &mut Cx<'_>) -> Run {
    let rules = cx.args.from(3).map(<[u8]>::to_vec).collect();
    let ends = cx.server.access().set_user(cx.session, &cx.args[2], rules);
    users_changed(cx, ends.map_err(|text| Stop::Error(text.into()))?);
    Ok(())
}
