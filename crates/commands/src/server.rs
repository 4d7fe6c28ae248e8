//! Owns the commands about the server: their rows, and the handlers of a few lines. Never knows how the host finds its
//! answers.
//!
//! `command` is COMMAND, made from every family's rows; `monitor` is MEMORY, SLOWLOG and LATENCY; `debug` is DEBUG and
//! LOLWUT.

mod arguments;
mod command;
mod debug;
mod digest;
mod monitor;

use crate::block::{Block, UntilReached};
use crate::connection::{help, unknown_subcommand};
use crate::cx::Cx;
use crate::host::Shutdown;
use crate::row::{Acl, Effect, Flag, Group, Handling, Keys, Row, Secrets, Values, is, only_here, starts};
use crate::stop::{Run, SYNTAX, Stop};

/// What most rows of this file share.
const BASE: Row =
    Row { keys: Keys::NONE, values: Values::Untouched, group: Group::Server, since: "1.0.0", syntax: "", ..Row::BASE };

const WATCH: &[Flag] = &[Flag::Loading, Flag::Stale];
const ADMIN: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];

pub const ROWS: &[Row] = &[
    Row {
        name: "command",
        acl: &[Acl::Connection],
        arity: -1,
        flags: WATCH,
        tips: &["nondeterministic_output_order"],
        since: "2.8.13",
        complexity: "O(N) where N is the total number of commands",
        summary: "Returns detailed information about all commands.",
        examples: &[is("COMMAND NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try COMMAND HELP.")],
        subcommands: command::ROWS,
        run: command::all,
        ..BASE
    },
    Row {
        name: "config",
        arity: -2,
        since: "2.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for server configuration commands.",
        examples: &[is("CONFIG NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.")],
        subcommands: CONFIG,
        run: |cx| unknown_subcommand(cx.args, "CONFIG"),
        ..BASE
    },
    Row {
        name: "debug",
        arity: -2,
        keys: Keys::Rule(debug::keys, &[]),
        // For DIGEST and POPULATE: two transactions that each take every stripe one after the other would deadlock.
        flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale, Flag::UnnamedKeys],
        values: Values::Read,
        effect: Effect::Stated,
        complexity: "Depends on subcommand.",
        summary: "A container for debugging commands.",
        syntax: "<SLEEP seconds | OBJECT key [FAST] | SDSLEN key | LISTPACK key | DIGEST | FLINT-DIGEST [STRIPES] | \
                 DIGEST-VALUE key [key ...] | RELOAD [NOSAVE] | POPULATE count [prefix [size]] | \
                 SET-ACTIVE-EXPIRE <0 | 1> | \
                 PROTOCOL type | ERROR string | LOG message | STRINGMATCH-LEN len pattern | PANIC | HELP>",
        examples: &[starts("DEBUG SLEEP 0", "(error) ERR DEBUG command not allowed.")],
        run: debug::run,
        ..BASE
    },
    Row {
        name: "info",
        acl: &[Acl::Dangerous],
        arity: -1,
        flags: WATCH,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        summary: "Returns information and statistics about the server.",
        syntax: "[section [section ...]]",
        examples: &[
            starts("INFO server", "\"# Server\\r\\nredis_version:7."),
            starts("INFO clients cpu", "\"# Clients\\r\\nconnected_clients:"),
            is("INFO nosuchsection", "\"\""),
        ],
        run: |cx| {
            let sections: Vec<&[u8]> = cx.args.from(1).collect();
            cx.out.verbatim("txt", cx.server.info(&sections).as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "latency",
        arity: -2,
        since: "2.8.13",
        complexity: "Depends on subcommand.",
        summary: "A container for latency diagnostics commands.",
        examples: &[is("LATENCY NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try LATENCY HELP.")],
        subcommands: monitor::LATENCY,
        run: |cx| unknown_subcommand(cx.args, "LATENCY"),
        ..BASE
    },
    Row {
        name: "lolwut",
        arity: -1,
        flags: &[Flag::Readonly, Flag::Fast],
        since: "5.0.0",
        summary: "Displays computer art and the server version.",
        syntax: "[VERSION version]",
        examples: &[starts("LOLWUT", "\"")],
        run: debug::lolwut,
        ..BASE
    },
    Row {
        name: "memory",
        arity: -2,
        since: "4.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for memory diagnostics commands.",
        examples: &[is("MEMORY NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try MEMORY HELP.")],
        subcommands: monitor::MEMORY,
        run: |cx| unknown_subcommand(cx.args, "MEMORY"),
        ..BASE
    },
    Row {
        name: "monitor",
        handling: &[Handling::Streams],
        arity: 1,
        flags: ADMIN,
        summary: "Shows all commands that the server runs, except administration commands and passwords.",
        examples: &[is("MONITOR", "OK"), is("RESET", "RESET")],
        run: |cx| {
            cx.out.ok();
            if !std::mem::replace(&mut cx.session.monitors, true) {
                cx.session.changed = true;
                cx.server.monitors_changed(cx.session);
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "shutdown",
        handling: &[Handling::Unpausable],
        arity: -1,
        flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale, Flag::NoMulti, Flag::AllowBusy],
        summary: "Shuts down the server.",
        syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        examples: &[
            is("SHUTDOWN ABORT", "(error) ERR No shutdown in progress."),
            is("SHUTDOWN SAVE NOSAVE", "(error) ERR syntax error"),
        ],
        run: shutdown,
        ..BASE
    },
    Row {
        name: "slowlog",
        arity: -2,
        since: "2.2.12",
        complexity: "Depends on subcommand.",
        summary: "A container for slow log commands.",
        examples: &[is("SLOWLOG NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try SLOWLOG HELP.")],
        subcommands: monitor::SLOWLOG,
        run: |cx| unknown_subcommand(cx.args, "SLOWLOG"),
        ..BASE
    },
    Row {
        name: "time",
        arity: 1,
        flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
        tips: &["nondeterministic_output"],
        since: "2.6.0",
        summary: "Returns the server time.",
        examples: &[starts("TIME", "1) \"1")],
        run: |cx| {
            let now_us = cx.server.time_us();
            cx.out.array(2);
            cx.out.bulk_int((now_us / 1_000_000) as i64);
            cx.out.bulk_int((now_us % 1_000_000) as i64);
            Ok(())
        },
        ..BASE
    },
];

const CONFIG: &[Row] = &[
    Row {
        name: "get",
        arity: -3,
        flags: ADMIN,
        since: "2.0.0",
        complexity: "O(N) when N is the number of configuration parameters provided",
        summary: "Returns the effective values of configuration parameters.",
        syntax: "parameter [parameter ...]",
        examples: &[
            is("CONFIG GET hash-max-listpack-value", "1) \"hash-max-listpack-value\"\n2) \"64\""),
            is("CONFIG GET nosuchparameter", "(empty array)"),
        ],
        run: |cx| {
            let patterns: Vec<&[u8]> = cx.args.from(2).collect();
            let found = cx.server.config_get(&patterns);
            cx.out.map(found.len());
            for (name, value) in &found {
                cx.out.bulk(name.as_bytes());
                cx.out.bulk(value);
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: WATCH,
        since: "5.0.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("CONFIG HELP", " 1) CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "CONFIG", CONFIG),
        ..BASE
    },
    Row {
        name: "resetstat",
        arity: 2,
        flags: ADMIN,
        since: "2.0.0",
        summary: "Resets the server's statistics.",
        examples: &[is("CONFIG RESETSTAT", "OK")],
        run: |cx| {
            cx.server.reset_stats();
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "rewrite",
        arity: 2,
        flags: ADMIN,
        since: "2.8.0",
        summary: "Persists the effective configuration to file.",
        examples: &[is("CONFIG REWRITE", "(error) ERR The server is running without a config file")],
        run: |cx| {
            let may_wait = !cx.ks.runs_once();
            cx.server.config_rewrite(cx.session, may_wait)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "set",
        arity: -4,
        secrets: Secrets::Directives(2),
        flags: ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        since: "2.0.0",
        complexity: "O(N) when N is the number of configuration parameters provided",
        summary: "Sets configuration parameters in-flight.",
        syntax: "parameter value [parameter value ...]",
        examples: &[
            is("CONFIG SET slowlog-max-len 128", "OK"),
            is("CONFIG SET slowlog-max-len", "(error) ERR wrong number of arguments for 'config|set' command"),
            starts("CONFIG SET nosuchparameter 1", "(error) ERR Unknown option or number of arguments for CONFIG SET"),
            only_here("CONFIG GET maxmemory-policy", "1) \"maxmemory-policy\"\n2) \"noeviction\""),
        ],
        run: |cx| {
            let args = cx.args;
            if !args.len().is_multiple_of(2) {
                return Err(Stop::error("ERR syntax error"));
            }
            let pairs: Vec<(&[u8], &[u8])> = (2..args.len()).step_by(2).map(|at| (&args[at], &args[at + 1])).collect();
            let may_wait = !cx.ks.runs_once();
            cx.server.config_set(cx.session, &pairs, may_wait)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
];

fn shutdown(cx: &mut Cx<'_>) -> Run {
    let (mut save, mut nosave, mut abort, mut now, mut force) = (false, false, false, false, false);
    for word in cx.args.from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"now" => now = true,
            b"force" => force = true,
            b"abort" => abort = true,
            _ => return Err(SYNTAX),
        }
    }
    if (save && nosave) || (abort && (save || nosave || now || force)) {
        return Err(SYNTAX);
    }
    if abort {
        cx.server.shutdown(cx.session, Shutdown::Abort).map_err(|text| Stop::Error(text.into()))?;
        cx.out.ok();
        return Ok(());
    }
    if save || (!nosave && cx.server.saves_at_end()) {
        match cx.server.save(cx.session) {
            Err(Stop::Error(_)) if force => {}
            saved => saved?,
        }
    }
    let begin = Shutdown::Begin { saves: (save || nosave).then_some(save), now, force };
    if cx.server.shutdown(cx.session, begin).map_err(|text| Stop::Error(text.into()))? {
        // This condition never holds, so the client waits until the node ends or the shutdown is aborted.
        let never = UntilReached {
            position: 0,
            waits_here: false,
            offset: u64::MAX,
            replicas: usize::MAX,
            durably: false,
            reply: |out, _| out.null(),
            without: "",
        };
        let null = |out: &mut resp::Out<'_>| out.null();
        let block = Block::new(0, store::Kind::String, None);
        return Err(Block { until_reached: Some(never), at_timeout: null, at_once: null, ..block }.into());
    }
    // As in Redis, a successful shutdown sends no reply.
    cx.session.close = true;
    Ok(())
}
