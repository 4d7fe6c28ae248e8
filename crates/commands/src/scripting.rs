//! Owns the commands about scripts and functions: their rows, and what they ask of the server. Never runs a script: the
//! server does, because it holds the stripes and Lua's state.

use crate::connection::{help, unknown_subcommand, wrong_subcommand};
use crate::cx::Cx;
use crate::job::{FunctionsChange, RestorePolicy};
use crate::row::{Access, Flag, Group, Handling, KeyUse, Keys, Row, Values, is, starts};
use crate::stop::{Run, Stop};

const FLAGS: &[Flag] = &[Flag::Noscript, Flag::Stale, Flag::SkipMonitor, Flag::NoMandatoryKeys, Flag::MovableKeys];
const READ_FLAGS: &[Flag] =
    &[Flag::Readonly, Flag::Noscript, Flag::Stale, Flag::SkipMonitor, Flag::NoMandatoryKeys, Flag::MovableKeys];

const BASE: Row = Row {
    arity: -3,
    keys: Keys::Counted { at: 2 },
    access: Access::All(KeyUse::CHANGE),
    flags: FLAGS,
    group: Group::Scripting,
    since: "2.6.0",
    complexity: "Depends on the script.",
    ..Row::BASE
};

pub const ROWS: &[Row] = &[
    Row {
        name: "eval",
        handling: &[Handling::Script],
        summary: "Runs a Lua script atomically: nobody sees it half done.",
        syntax: "script numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[
            is("EVAL \"return {KEYS[1], ARGV[1], 3.9}\" 1 k v", "1) \"k\"\n2) \"v\"\n3) (integer) 3"),
            is("EVAL \"return redis.call('INCRBY', KEYS[1], ARGV[1])\" 1 n 5", "(integer) 5"),
            is("EVAL \"return redis.status_reply('DONE')\" 0", "DONE"),
            is("EVAL \"return 1\" 2 k", "(error) ERR Number of keys can't be greater than number of args"),
        ],
        ..BASE
    },
    Row {
        name: "eval_ro",
        handling: &[Handling::Script],
        access: Access::All(KeyUse::READ),
        flags: READ_FLAGS,
        since: "7.0.0",
        summary: "Runs a Lua script that may only read.",
        syntax: "script numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[
            is("SET k v", "OK"),
            is("EVAL_RO \"return redis.call('GET', KEYS[1])\" 1 k", "\"v\""),
            starts(
                "EVAL_RO \"return redis.call('DEL', KEYS[1])\" 1 k",
                "(error) ERR Write commands are not allowed from read-only scripts.",
            ),
        ],
        ..BASE
    },
    Row {
        name: "evalsha",
        handling: &[Handling::Script],
        summary: "Runs a script that the server knows, by the SHA-1 of its text.",
        syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[
            is("SCRIPT LOAD \"return ARGV[1]\"", "\"098e0f0d1448c0a81dafe820f66d460eb09263da\""),
            is("EVALSHA 098e0f0d1448c0a81dafe820f66d460eb09263da 0 hello", "\"hello\""),
            is(
                "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
                "(error) NOSCRIPT No matching script. Please use EVAL.",
            ),
        ],
        ..BASE
    },
    Row {
        name: "evalsha_ro",
        handling: &[Handling::Script],
        access: Access::All(KeyUse::READ),
        flags: READ_FLAGS,
        since: "7.0.0",
        summary: "Runs a script that the server knows and that may only read.",
        syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[
            is("SCRIPT LOAD \"return ARGV[1]\"", "\"098e0f0d1448c0a81dafe820f66d460eb09263da\""),
            is("EVALSHA_RO 098e0f0d1448c0a81dafe820f66d460eb09263da 0 hello", "\"hello\""),
        ],
        ..BASE
    },
    Row {
        name: "fcall",
        handling: &[Handling::Script],
        since: "7.0.0",
        complexity: "Depends on the function.",
        summary: "Runs a function of a library.",
        syntax: "function numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[
            is(LOAD, "\"mylib\""),
            is("FCALL myget 1 k", "(nil)"),
            is("FCALL nosuch 0", "(error) ERR Function not found"),
        ],
        ..BASE
    },
    Row {
        name: "fcall_ro",
        handling: &[Handling::Script],
        access: Access::All(KeyUse::READ),
        flags: READ_FLAGS,
        since: "7.0.0",
        complexity: "Depends on the function.",
        summary: "Runs a function of a library that has the flag no-writes.",
        syntax: "function numkeys [key [key ...]] [arg [arg ...]]",
        examples: &[is(LOAD, "\"mylib\""), is("FCALL_RO myget 1 k", "(nil)")],
        ..BASE
    },
    Row {
        name: "function",
        arity: -2,
        keys: Keys::NONE,
        flags: &[],
        values: Values::Untouched,
        since: "7.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for commands about functions.",
        syntax: "",
        examples: &[is("FUNCTION NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try FUNCTION HELP.")],
        subcommands: FUNCTION,
        run: |cx| unknown_subcommand(cx.args, "FUNCTION"),
        ..BASE
    },
    Row {
        name: "script",
        arity: -2,
        keys: Keys::NONE,
        flags: &[],
        values: Values::Untouched,
        complexity: "Depends on subcommand.",
        summary: "A container for commands about scripts.",
        syntax: "",
        examples: &[is("SCRIPT NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try SCRIPT HELP.")],
        subcommands: SCRIPT,
        run: |cx| unknown_subcommand(cx.args, "SCRIPT"),
        ..BASE
    },
];

const SUBCOMMAND: Row = Row {
    keys: Keys::NONE,
    flags: &[Flag::Noscript],
    values: Values::Untouched,
    complexity: "O(1)",
    syntax: "",
    ..BASE
};

const HELP: Row = Row {
    name: "help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    since: "5.0.0",
    summary: "Returns helpful text about the different subcommands.",
    ..SUBCOMMAND
};

const SCRIPT: &[Row] = &[
    Row {
        name: "debug",
        arity: 3,
        since: "3.2.0",
        summary: "Chooses how scripts are debugged. There is no debugger, so only NO is accepted.",
        syntax: "<YES | SYNC | NO>",
        examples: &[is("SCRIPT DEBUG NO", "OK"), is("SCRIPT DEBUG MAYBE", "(error) ERR Use SCRIPT DEBUG YES/SYNC/NO")],
        run: debug,
        ..SUBCOMMAND
    },
    Row {
        name: "exists",
        arity: -3,
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        complexity: "O(N) where N is the number of scripts asked for.",
        summary: "Tells for each SHA-1 whether the server knows the script.",
        syntax: "sha1 [sha1 ...]",
        examples: &[
            is("SCRIPT LOAD \"return 1\"", "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\""),
            is("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db nosuch", "1) (integer) 1\n2) (integer) 0"),
        ],
        run: |cx| {
            cx.out.array(cx.args.len() - 2);
            for sha in cx.args.from(2) {
                cx.out.int(cx.server.script_exists(sha).into());
            }
            Ok(())
        },
        ..SUBCOMMAND
    },
    Row {
        name: "flush",
        arity: -2,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of known scripts.",
        summary: "Removes all scripts.",
        syntax: "[ASYNC | SYNC]",
        examples: &[
            is("SCRIPT FLUSH", "OK"),
            is("SCRIPT FLUSH SYNC", "OK"),
            is("SCRIPT FLUSH NOW", "(error) ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ],
        run: |cx| {
            if !is_flush(cx) {
                return Err(Stop::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            cx.server.script_flush();
            cx.out.ok();
            Ok(())
        },
        ..SUBCOMMAND
    },
    Row {
        examples: &[starts("SCRIPT HELP", " 1) SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "SCRIPT", SCRIPT),
        ..HELP
    },
    Row {
        name: "kill",
        arity: 2,
        flags: &[Flag::Noscript, Flag::AllowBusy],
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        summary: "Ends a script that runs for too long and has written nothing.",
        examples: &[is("SCRIPT KILL", "(error) NOTBUSY No scripts in execution right now.")],
        run: |cx| {
            cx.server.script_kill().map_err(Stop::error)?;
            cx.out.ok();
            Ok(())
        },
        ..SUBCOMMAND
    },
    Row {
        name: "load",
        arity: 3,
        flags: &[Flag::Noscript, Flag::Stale],
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the length of the script.",
        summary: "Loads a script without running it, and returns its SHA-1.",
        syntax: "script",
        examples: &[
            is("SCRIPT LOAD \"return 1\"", "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\""),
            is(
                "SCRIPT LOAD \"x y\"",
                "(error) ERR Error compiling script (new function): user_script:1: '=' expected near 'y'",
            ),
        ],
        run: |cx| {
            let sha = cx.server.script_load(&cx.args[2]).map_err(|text| Stop::Error(text.into()))?;
            cx.out.bulk(&sha);
            Ok(())
        },
        ..SUBCOMMAND
    },
];

/// A library for the examples.
const LOAD: &str = "FUNCTION LOAD REPLACE \"#!lua name=mylib\\nredis.register_function{function_name='myget', callback=\
                    function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}\"";

const FUNCTION_WRITE: Row = Row { flags: &[Flag::Write, Flag::Noscript, Flag::Barrier], ..FUNCTION_READ };

const FUNCTION_READ: Row = Row { since: "7.0.0", ..SUBCOMMAND };

const FUNCTION: &[Row] = &[
    Row {
        name: "delete",
        arity: 3,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        summary: "Removes a library and its functions.",
        syntax: "library-name",
        examples: &[
            is(LOAD, "\"mylib\""),
            is("FUNCTION DELETE mylib", "OK"),
            is("FUNCTION DELETE mylib", "(error) ERR Library not found"),
        ],
        run: |cx| {
            let change = FunctionsChange::Delete { library: cx.args[2].into() };
            change_functions(cx, change)
        },
        ..FUNCTION_WRITE
    },
    Row {
        name: "dump",
        arity: 2,
        complexity: "O(N) where N is the size of all libraries.",
        summary: "Returns all libraries in the format of FUNCTION RESTORE, for this server or for Redis.",
        examples: &[is("FUNCTION FLUSH", "OK"), starts("FUNCTION DUMP", "\"")],
        run: |cx| {
            cx.out.bulk(&cx.server.function_dump());
            Ok(())
        },
        ..FUNCTION_READ
    },
    Row {
        name: "flush",
        arity: -2,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of functions.",
        summary: "Removes all libraries.",
        syntax: "[ASYNC | SYNC]",
        examples: &[
            is("FUNCTION FLUSH ASYNC", "OK"),
            is("FUNCTION FLUSH NOW", "(error) ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        ],
        run: |cx| {
            if cx.args.len() > 3 {
                return Err(wrong_subcommand(cx.args, "FUNCTION"));
            }
            if !is_flush(cx) {
                return Err(Stop::error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            change_functions(cx, FunctionsChange::Flush)
        },
        ..FUNCTION_WRITE
    },
    Row {
        examples: &[starts("FUNCTION HELP", " 1) FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        since: "7.0.0",
        run: |cx| help(cx, "FUNCTION", FUNCTION),
        ..HELP
    },
    Row {
        name: "kill",
        arity: 2,
        flags: &[Flag::Noscript, Flag::AllowBusy],
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        summary: "Ends a function that runs for too long and has written nothing.",
        examples: &[is("FUNCTION KILL", "(error) NOTBUSY No scripts in execution right now.")],
        run: |cx| {
            cx.server.function_kill().map_err(Stop::error)?;
            cx.out.ok();
            Ok(())
        },
        ..FUNCTION_READ
    },
    Row {
        name: "list",
        arity: -2,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of functions.",
        summary: "Describes the libraries and their functions.",
        syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        examples: &[
            is(LOAD, "\"mylib\""),
            starts("FUNCTION LIST LIBRARYNAME my* WITHCODE", "1) 1) \"library_name\"\n   2) \"mylib\"\n"),
            is("FUNCTION LIST NOSUCH", "(error) ERR Unknown argument NOSUCH"),
        ],
        run: list,
        ..FUNCTION_READ
    },
    Row {
        name: "load",
        arity: -3,
        flags: &[Flag::Write, Flag::Denyoom, Flag::Noscript, Flag::Barrier],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(1), plus what the library's code does when it is run to register its functions.",
        summary: "Adds a library of functions.",
        syntax: "[REPLACE] function-code",
        examples: &[
            is(LOAD, "\"mylib\""),
            is("FUNCTION LOAD \"return 1\"", "(error) ERR Missing library metadata"),
            is("FUNCTION LOAD NOSUCH \"return 1\"", "(error) ERR Unknown option given: NOSUCH"),
        ],
        run: load,
        ..FUNCTION_WRITE
    },
    Row {
        name: "restore",
        arity: -3,
        flags: &[Flag::Write, Flag::Denyoom, Flag::Noscript, Flag::Barrier],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of functions.",
        summary: "Adds the libraries of a FUNCTION DUMP.",
        syntax: "serialized-value [FLUSH | APPEND | REPLACE]",
        examples: &[
            is("FUNCTION RESTORE nosuch", "(error) ERR DUMP payload version or checksum are wrong"),
            is(
                "FUNCTION RESTORE nosuch NOSUCH",
                "(error) ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ),
        ],
        run: restore,
        ..FUNCTION_WRITE
    },
    Row {
        name: "stats",
        arity: 2,
        flags: &[Flag::Noscript, Flag::AllowBusy],
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        summary: "Shows the function that runs for too long, and the number of libraries and functions.",
        examples: &[starts("FUNCTION STATS", "1) \"running_script\"\n2) (nil)\n3) \"engines\"\n")],
        run: stats,
        ..FUNCTION_READ
    },
];

fn load(cx: &mut Cx<'_>) -> Run {
    let (args, last) = (cx.args, cx.args.len() - 1);
    let mut replace = false;
    for option in args.from(2).take(last - 2) {
        if !option.eq_ignore_ascii_case(b"replace") {
            return Err(Stop::Error(format!("ERR Unknown option given: {}", String::from_utf8_lossy(option)).into()));
        }
        replace = true;
    }
    let name = cx.server.library_name(&args[last]).map_err(|text| Stop::Error(text.into()))?;
    let change = FunctionsChange::Load { code: args[last].into(), replaces: replace };
    cx.server.change_functions(cx.session, change)?;
    cx.ks.modified_libraries();
    cx.out.bulk(name.as_bytes());
    Ok(())
}

/// For those that reply OK.
fn change_functions(cx: &mut Cx<'_>, change: FunctionsChange) -> Run {
    cx.server.change_functions(cx.session, change)?;
    cx.ks.modified_libraries();
    cx.out.ok();
    Ok(())
}

fn list(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            at += 1;
            let Some(given) = args.get(at) else { return Err(Stop::error("ERR library name argument was not given")) };
            pattern = Some(given);
        } else {
            return Err(Stop::Error(format!("ERR Unknown argument {}", String::from_utf8_lossy(word)).into()));
        }
        at += 1;
    }
    let libraries = cx.server.function_list(pattern);
    let out = &mut cx.out;
    out.array(libraries.len());
    for library in libraries {
        out.map(if with_code { 4 } else { 3 });
        out.bulk(b"library_name");
        out.bulk(library.name.as_bytes());
        out.bulk(b"engine");
        out.bulk(b"LUA");
        out.bulk(b"functions");
        out.array(library.functions.len());
        for function in library.functions {
            out.map(3);
            out.bulk(b"name");
            out.bulk(function.name.as_bytes());
            out.bulk(b"description");
            out.bulk_or_null(function.description.as_deref().map(str::as_bytes));
            out.bulk(b"flags");
            out.set(function.flags.len());
            function.flags.iter().for_each(|flag| out.simple(flag));
        }
        if with_code {
            out.bulk(b"library_code");
            out.bulk(&library.code);
        }
    }
    Ok(())
}

fn restore(cx: &mut Cx<'_>) -> Run {
    let policy = match cx.args.get(3) {
        None => RestorePolicy::Append,
        Some(_) if cx.args.len() > 4 => {
            let given = String::from_utf8_lossy(&cx.args[1]);
            let text = format!("ERR unknown subcommand or wrong number of arguments for '{given}'. Try FUNCTION HELP.");
            return Err(Stop::Error(text.into()));
        }
        Some(word) if word.eq_ignore_ascii_case(b"flush") => RestorePolicy::Flush,
        Some(word) if word.eq_ignore_ascii_case(b"append") => RestorePolicy::Append,
        Some(word) if word.eq_ignore_ascii_case(b"replace") => RestorePolicy::Replace,
        Some(_) => {
            return Err(Stop::error(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let change = FunctionsChange::Restore { payload: cx.args[2].into(), policy };
    change_functions(cx, change)
}

fn stats(cx: &mut Cx<'_>) -> Run {
    let stats = cx.server.function_stats().map_err(Stop::error)?;
    let out = &mut cx.out;
    out.map(2);
    out.bulk(b"running_script");
    match stats.running {
        None => out.null(),
        Some(running) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(running.name.as_bytes());
            out.bulk(b"command");
            out.array(running.command.len());
            running.command.iter().for_each(|word| out.bulk(word));
            out.bulk(b"duration_ms");
            out.int(running.duration_ms as i64);
        }
    }
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.int(stats.libraries as i64);
    out.bulk(b"functions_count");
    out.int(stats.functions as i64);
    Ok(())
}

/// `[ASYNC | SYNC]`. Both do the same, because there is little to free.
fn is_flush(cx: &Cx<'_>) -> bool {
    match cx.args.len() {
        2 => true,
        3 => cx.args[2].eq_ignore_ascii_case(b"async") || cx.args[2].eq_ignore_ascii_case(b"sync"),
        _ => false,
    }
}

fn debug(cx: &mut Cx<'_>) -> Run {
    let word = &cx.args[2];
    if word.eq_ignore_ascii_case(b"no") {
        cx.out.ok();
        return Ok(());
    }
    Err(Stop::error(if word.eq_ignore_ascii_case(b"yes") || word.eq_ignore_ascii_case(b"sync") {
        "ERR FlintKV has no Lua debugger: use redis.log, or debug the script on a Redis server"
    } else {
        "ERR Use SCRIPT DEBUG YES/SYNC/NO"
    }))
}
