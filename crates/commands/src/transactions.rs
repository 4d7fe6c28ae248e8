//! Owns MULTI and the like, as far as they change only the connection's state. Never runs a transaction: the server
//! does, because it holds the stripes of all its commands at once.

use crate::cx::Cx;
use crate::row::{Access, Flag, Group, Handling, KeyUse, Keys, Row, Values, is};
use crate::session::Multi;
use crate::stop::{Run, Stop};

const FLAGS: &[Flag] = &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::AllowBusy];

const BASE: Row = Row {
    keys: Keys::NONE,
    flags: FLAGS,
    values: Values::Untouched,
    group: Group::Transactions,
    since: "2.2.0",
    syntax: "",
    ..Row::BASE
};

pub const ROWS: &[Row] = &[
    Row {
        name: "discard",
        handling: &[Handling::Unqueued, Handling::Unwatches, Handling::OfTransaction],
        arity: 1,
        since: "2.0.0",
        complexity: "O(N) where N is the number of queued commands.",
        summary: "Discards the commands queued since MULTI, and forgets the watched keys.",
        examples: &[
            is("MULTI", "OK"),
            is("SET k v", "QUEUED"),
            is("DISCARD", "OK"),
            is("EXISTS k", "(integer) 0"),
            is("DISCARD", "(error) ERR DISCARD without MULTI"),
        ],
        run: |cx| {
            if cx.session.multi.take().is_none() {
                return Err(Stop::error("ERR DISCARD without MULTI"));
            }
            cx.session.watches.clear();
            cx.session.changed = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "exec",
        handling: &[Handling::Exec, Handling::Unqueued, Handling::Unwatches, Handling::OfTransaction],
        arity: 1,
        flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::SkipSlowlog],
        since: "1.2.0",
        complexity: "Depends on the commands of the transaction.",
        summary: "Runs the commands queued since MULTI as one, unless a watched key has changed.",
        examples: &[
            is("MULTI", "OK"),
            is("SET k 1", "QUEUED"),
            is("INCR k", "QUEUED"),
            is("EXEC", "1) OK\n2) (integer) 2"),
            is("EXEC", "(error) ERR EXEC without MULTI"),
            is("MULTI", "OK"),
            is("GET", "(error) ERR wrong number of arguments for 'get' command"),
            is("EXEC", "(error) EXECABORT Transaction discarded because of previous errors."),
        ],
        // The server takes EXEC over and runs the queue before this handler would run.
        run: |_| Err(Stop::error("ERR EXEC without MULTI")),
        ..BASE
    },
    Row {
        name: "multi",
        handling: &[Handling::Unqueued, Handling::OfTransaction],
        arity: 1,
        since: "1.2.0",
        summary: "Starts a transaction: the commands that follow are queued until EXEC.",
        examples: &[
            is("MULTI", "OK"),
            is("PING", "QUEUED"),
            is("MULTI", "(error) ERR MULTI calls can not be nested"),
            is("EXEC", "1) PONG"),
        ],
        run: |cx| {
            if cx.session.multi.is_some() {
                return Err(Stop::error("ERR MULTI calls can not be nested"));
            }
            cx.session.multi = Some(Box::new(Multi::default()));
            cx.session.changed = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "unwatch",
        handling: &[Handling::Unwatches, Handling::OfTransaction],
        arity: 1,
        complexity: "O(N) where N is the number of watched keys.",
        summary: "Forgets the watched keys.",
        examples: &[is("WATCH k", "OK"), is("UNWATCH", "OK")],
        run: |cx| {
            cx.session.watches.clear();
            cx.session.changed = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "watch",
        handling: &[Handling::Unqueued, Handling::Watches, Handling::OfTransaction],
        arity: -2,
        access: Access::All(KeyUse::LOOK),
        keys: Keys::ALL,
        complexity: "O(N) where N is the number of keys. A cold key that expires is read from flash.",
        summary: "Makes the next EXEC do nothing if one of these keys changes before it.",
        syntax: "key [key ...]",
        examples: &[
            is("WATCH k", "OK"),
            is("SET k changed", "OK"),
            is("MULTI", "OK"),
            is("WATCH k", "(error) ERR WATCH inside MULTI is not allowed"),
            is("GET k", "QUEUED"),
            is("EXEC", "(nil)"),
            is("WATCH", "(error) ERR wrong number of arguments for 'watch' command"),
        ],
        run: watch,
        ..BASE
    },
];

fn watch(cx: &mut Cx<'_>) -> Run {
    if cx.session.multi.is_some() {
        return Err(Stop::error("ERR WATCH inside MULTI is not allowed"));
    }
    cx.ks.watch(cx.keys, &mut cx.session.watches)?;
    cx.session.changed = true;
    cx.out.ok();
    Ok(())
}
