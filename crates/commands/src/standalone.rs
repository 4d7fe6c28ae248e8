//! Owns REPLICAOF and the commands of dumps and of the journal, which it hands on to the server. Owns the commands of clusters and
//! modules, too: there are none, so it refuses them. Never pretends that something was done.

use crate::connection::{help, unknown_subcommand};
use crate::cx::Cx;
use crate::number::int;
use crate::row::{Acl, Flag, Group, Handling, Keys, Row, Values, is, only_here, starts};
use crate::stop::{Run, SYNTAX, Stop};

const BASE: Row = Row { keys: Keys::NONE, values: Values::Untouched, group: Group::Server, syntax: "", ..Row::BASE };

const ADMIN: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading];
const ADMIN_STALE: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Stale, Flag::NoAsyncLoading];
const FIRM: &[Flag] = &[Flag::Loading, Flag::Stale, Flag::Fast];

const NO_CLUSTER: Stop = Stop::error("ERR This instance has cluster support disabled");
const MODULE_NOT_ALLOWED: Stop = Stop::error(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
const NO_MODULES: Stop = Stop::error("ERR Error loading the extension: modules are not supported");
const NO_SUCH_MODULE: Stop = Stop::error("ERR Error unloading module: no such module with that name");

pub const ROWS: &[Row] = &[
    Row {
        name: "asking",
        acl: &[Acl::Connection],
        handling: &[Handling::OfConnection],
        arity: 1,
        flags: &[Flag::Fast],
        group: Group::Cluster,
        since: "3.0.0",
        summary: "Tells a node of a cluster that the next command follows a redirection.",
        examples: &[is("ASKING", CLUSTER_DISABLED)],
        run: |_| Err(NO_CLUSTER),
        ..BASE
    },
    Row {
        name: "bgrewriteaof",
        arity: 1,
        flags: ADMIN,
        since: "1.0.0",
        summary: "Writes a new checkpoint of the journal; refused where there is none.",
        examples: &[only_here(
            "BGREWRITEAOF",
            "(error) ERR BGREWRITEAOF needs a journal: switch it on with CONFIG SET appendonly yes",
        )],
        run: |cx| {
            cx.server.rewrite_journal()?;
            cx.out.simple("Background append only file rewriting started");
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "bgsave",
        arity: -1,
        flags: ADMIN,
        since: "1.0.0",
        summary: "Saves the dataset to a dump in the background.",
        syntax: "[SCHEDULE]",
        // Not BGSAVE itself: a SAVE among the following examples would sometimes find it in progress.
        examples: &[is("BGSAVE NOW", "(error) ERR syntax error")],
        run: |cx| {
            let schedule = match cx.args.get(1) {
                None => false,
                Some(word) if cx.args.len() == 2 && word.eq_ignore_ascii_case(b"schedule") => true,
                Some(_) => return Err(SYNTAX),
            };
            let reply = cx.server.save_in_background(schedule).map_err(|text| Stop::Error(text.into()))?;
            cx.out.simple(reply);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "cluster",
        arity: -2,
        group: Group::Cluster,
        since: "3.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for commands about a cluster.",
        examples: &[is("CLUSTER NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.")],
        subcommands: CLUSTER,
        run: |cx| unknown_subcommand(cx.args, "CLUSTER"),
        ..BASE
    },
    Row {
        name: "lastsave",
        acl: &[Acl::Admin, Acl::Dangerous],
        arity: 1,
        flags: FIRM,
        tips: &["nondeterministic_output"],
        since: "1.0.0",
        summary: "Gives the second since 1970 when the dataset was last saved; if it never was, when the server started.",
        examples: &[starts("LASTSAVE", "(integer) ")],
        run: |cx| {
            cx.out.int(cx.server.last_save_s() as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "module",
        arity: -2,
        since: "4.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for commands about modules.",
        examples: &[is("MODULE NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try MODULE HELP.")],
        subcommands: MODULE,
        run: |cx| unknown_subcommand(cx.args, "MODULE"),
        ..BASE
    },
    Row {
        name: "readonly",
        acl: &[Acl::Connection],
        handling: &[Handling::OfConnection],
        arity: 1,
        flags: FIRM,
        group: Group::Cluster,
        since: "3.0.0",
        summary: "Allows a connection to a replica of a cluster to read.",
        examples: &[is("READONLY", CLUSTER_DISABLED)],
        run: |_| Err(NO_CLUSTER),
        ..BASE
    },
    Row {
        name: "readwrite",
        acl: &[Acl::Connection],
        handling: &[Handling::OfConnection],
        arity: 1,
        flags: FIRM,
        group: Group::Cluster,
        since: "3.0.0",
        summary: "Ends the effect of READONLY.",
        examples: &[is("READWRITE", CLUSTER_DISABLED)],
        run: |_| Err(NO_CLUSTER),
        ..BASE
    },
    Row {
        name: "replicaof",
        arity: 3,
        flags: ADMIN_STALE,
        handling: &[Handling::WhileArriving],
        since: "5.0.0",
        summary: "Makes this server a replica of another: its dataset is replaced by a copy of the other's, and follows it. NO ONE makes it a primary again, with the dataset that it has.",
        syntax: "host port",
        examples: &[is("REPLICAOF NO ONE", "OK"), is("REPLICAOF localhost 99999", "(error) ERR Invalid master port")],
        run: replicaof,
        ..BASE
    },
    Row {
        name: "save",
        arity: 1,
        flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
        since: "1.0.0",
        complexity: "O(N) where N is the size of the dataset.",
        summary: "Writes the dataset to a dump file that Redis loads, and replies when it is written. Other connections go on meanwhile.",
        examples: &[is("SAVE", "OK")],
        run: |cx| {
            cx.server.save(cx.session)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "slaveof",
        arity: 3,
        flags: ADMIN_STALE,
        handling: &[Handling::WhileArriving],
        since: "1.0.0",
        summary: "The older name of REPLICAOF.",
        syntax: "host port",
        examples: &[
            is("SLAVEOF NO ONE", "OK"),
            is("SLAVEOF localhost x", "(error) ERR Invalid master port"),
            only_here("SLAVEOF '' 6379", "(error) ERR Invalid master host"),
        ],
        run: replicaof,
        ..BASE
    },
];

const CLUSTER_DISABLED: &str = "(error) ERR This instance has cluster support disabled";

const STALE: &[Flag] = &[Flag::Stale];
const LOOKS: &[Flag] = &[Flag::Admin, Flag::Stale];
const CHANGES: &[Flag] = &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading];

const CLUSTER_BASE: Row = Row { group: Group::Cluster, flags: STALE, since: "3.0.0", run: |_| Err(NO_CLUSTER), ..BASE };

const fn refused(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Row {
    Row { name, arity, syntax, summary, ..CLUSTER_BASE }
}

// A macro, because a const function cannot join the words of an example.
macro_rules! cluster {
    ($name:literal, $arity:literal, $syntax:literal, $summary:literal, $example:literal $(, $field:ident: $value:expr)*) => {
        Row {
            examples: &[is(concat!("CLUSTER ", $example), CLUSTER_DISABLED)],
            $($field: $value,)*
            ..refused($name, $arity, $syntax, $summary)
        }
    };
}

const UNSTEADY: &[&str] = &["nondeterministic_output"];

const CLUSTER: &[Row] = &[
    cluster!("addslots", -3, "slot [slot ...]", "Gives slots to this node.", "ADDSLOTS 1", flags: CHANGES),
    cluster!("addslotsrange", -4, "start-slot end-slot [start-slot end-slot ...]", "Gives ranges of slots to this node.", "ADDSLOTSRANGE 1 2", flags: CHANGES, since: "7.0.0"),
    cluster!("bumpepoch", 2, "", "Advances the epoch of the cluster's configuration.", "BUMPEPOCH", flags: CHANGES, tips: UNSTEADY),
    cluster!("count-failure-reports", 3, "node-id", "Counts the nodes that call one failed.", "COUNT-FAILURE-REPORTS x", flags: LOOKS, tips: UNSTEADY),
    cluster!("countkeysinslot", 3, "slot", "Counts the keys of a slot.", "COUNTKEYSINSLOT 1"),
    cluster!("delslots", -3, "slot [slot ...]", "Takes slots from this node.", "DELSLOTS 1", flags: CHANGES),
    cluster!("delslotsrange", -4, "start-slot end-slot [start-slot end-slot ...]", "Takes ranges of slots from this node.", "DELSLOTSRANGE 1 2", flags: CHANGES, since: "7.0.0"),
    cluster!("failover", -2, "[FORCE | TAKEOVER]", "Lets a replica take over from its primary.", "FAILOVER", flags: CHANGES),
    cluster!("flushslots", 2, "", "Takes all slots from this node.", "FLUSHSLOTS", flags: CHANGES),
    cluster!("forget", 3, "node-id", "Removes a node from this one's table.", "FORGET x", flags: CHANGES),
    cluster!("getkeysinslot", 4, "slot count", "Gives keys of a slot.", "GETKEYSINSLOT 1 1", tips: UNSTEADY),
    cluster!("help", 2, "", "Lists the subcommands.", "HELP", flags: &[Flag::Loading, Flag::Stale], since: "5.0.0"),
    cluster!("info", 2, "", "Tells the cluster's state.", "INFO", tips: UNSTEADY),
    cluster!("keyslot", 3, "key", "Gives the slot of a key.", "KEYSLOT k"),
    cluster!("links", 2, "", "Lists the connections between this node and the others.", "LINKS", since: "7.0.0", tips: UNSTEADY),
    cluster!("meet", -4, "ip port [cluster-bus-port]", "Makes this node know another.", "MEET 127.0.0.1 7000", flags: CHANGES),
    cluster!("myid", 2, "", "Gives this node's name.", "MYID"),
    Row {
        examples: &[only_here("CLUSTER MYSHARDID", CLUSTER_DISABLED)],
        since: "7.2.0",
        ..refused("myshardid", 2, "", "Gives the name of this node's shard.")
    },
    cluster!("nodes", 2, "", "Describes the cluster as this node sees it.", "NODES", tips: UNSTEADY),
    cluster!("replicas", 3, "node-id", "Lists a node's replicas.", "REPLICAS x", flags: LOOKS, since: "5.0.0", tips: UNSTEADY),
    cluster!("replicate", 3, "node-id", "Makes this node a replica of another.", "REPLICATE x", flags: CHANGES),
    cluster!("reset", -2, "[HARD | SOFT]", "Makes this node forget the cluster.", "RESET", flags: &[Flag::Admin, Flag::Noscript, Flag::Stale]),
    cluster!("saveconfig", 2, "", "Writes the cluster's configuration to disk.", "SAVECONFIG", flags: CHANGES),
    cluster!("set-config-epoch", 3, "config-epoch", "Sets a new node's epoch.", "SET-CONFIG-EPOCH 1", flags: CHANGES),
    cluster!("setslot", -4, "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>", "Assigns a slot to a node, or marks it as moving.", "SETSLOT 1 STABLE", flags: CHANGES),
    cluster!("shards", 2, "", "Maps slots to shards and their nodes.", "SHARDS", since: "7.0.0", tips: UNSTEADY),
    cluster!("slaves", 3, "node-id", "The older name of REPLICAS.", "SLAVES x", flags: LOOKS, tips: UNSTEADY),
    cluster!("slots", 2, "", "Maps slots to nodes.", "SLOTS", tips: UNSTEADY),
];

const MODULE: &[Row] = &[
    Row {
        name: "help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        since: "5.0.0",
        summary: "Lists the subcommands.",
        examples: &[starts("MODULE HELP", " 1) MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "MODULE", MODULE),
        ..BASE
    },
    Row {
        name: "list",
        arity: 2,
        flags: &[Flag::Admin, Flag::Noscript],
        tips: &["nondeterministic_output_order"],
        since: "4.0.0",
        summary: "Lists the modules that are loaded: none.",
        examples: &[is("MODULE LIST", "(empty array)")],
        run: |cx| {
            cx.out.array(0);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "load",
        arity: -3,
        flags: ADMIN,
        since: "4.0.0",
        summary: "Loads a module; refused.",
        syntax: "path [arg [arg ...]]",
        examples: &[starts(
            "MODULE LOAD x.so",
            "(error) ERR MODULE command not allowed. If the enable-module-command ",
        )],
        run: |cx| Err(module_refused(cx, NO_MODULES)),
        ..BASE
    },
    Row {
        name: "loadex",
        arity: -3,
        flags: ADMIN,
        since: "7.0.0",
        summary: "Loads a module with its configuration; refused.",
        syntax: "path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
        examples: &[starts(
            "MODULE LOADEX x.so",
            "(error) ERR MODULE command not allowed. If the enable-module-command ",
        )],
        run: |cx| Err(module_refused(cx, NO_MODULES)),
        ..BASE
    },
    Row {
        name: "unload",
        arity: 3,
        flags: ADMIN,
        since: "4.0.0",
        summary: "Unloads a module; there is none.",
        syntax: "name",
        examples: &[starts("MODULE UNLOAD x", "(error) ERR MODULE command not allowed. If the enable-module-command ")],
        run: |cx| Err(module_refused(cx, NO_SUCH_MODULE)),
        ..BASE
    },
];

/// As in Redis, the directive `enable-module-command` is checked first.
fn module_refused(cx: &Cx<'_>, otherwise: Stop) -> Stop {
    if cx.server.modules_allowed(cx.session) { otherwise } else { MODULE_NOT_ALLOWED }
}

fn replicaof(cx: &mut Cx<'_>) -> Run {
    let (host, port) = (&cx.args[1], &cx.args[2]);
    let primary = if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        None
    } else {
        let port = int(port).and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or(Stop::error("ERR Invalid master port"))?;
        let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty());
        Some((host.ok_or(Stop::error("ERR Invalid master host"))?, port))
    };
    // Only in the first run: the handler runs again after its job.
    if cx.session.job.is_none()
        && let Some((host, port)) = primary
        && cx.server.followed().is_some_and(|followed| followed == (host.to_owned(), port))
    {
        cx.out.simple("OK Already connected to specified master");
        return Ok(());
    }
    let may_wait = !cx.ks.runs_once();
    cx.server.follow(cx.session, primary, may_wait)?;
    cx.out.ok();
    Ok(())
}
