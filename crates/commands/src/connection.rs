//! Owns the commands about the connection itself. Never knows the socket: the session is plain data, and the host
//! handles what concerns other connections.

use crate::cx::{Args, Cx};
use crate::host::{ClientFilter, ClientKind, Pause, Unblock};
use crate::number;
use crate::row::{Flag, Group, Handling, Keys, Row, Secrets, Values, is, is_behind, only_here, starts};
use crate::session::Reply;
use crate::stop::{Run, SYNTAX, Stop};
use resp::reply::Proto;

/// What all rows of this file share.
pub(crate) const BASE: Row = Row {
    keys: Keys::NONE,
    values: Values::Untouched,
    group: Group::Connection,
    since: "1.0.0",
    syntax: "",
    ..Row::BASE
};

const HANDSHAKE: &[Flag] = &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy];
pub(crate) const CLIENT: &[Flag] = &[Flag::Noscript, Flag::Loading, Flag::Stale];
const CLIENT_ADMIN: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];

pub const ROWS: &[Row] = &[
    Row {
        name: "auth",
        handling: &[Handling::ChangesUser, Handling::OfConnection],
        arity: -2,
        secrets: Secrets::From(1),
        flags: HANDSHAKE,
        complexity: "O(N) where N is the number of passwords defined for the user",
        summary: "Authenticates the connection.",
        syntax: "[username] password",
        examples: &[
            starts("AUTH secret", "(error) ERR AUTH <password> called without any password configured"),
            is("AUTH default secret", "OK"),
            is("AUTH nobody secret", "(error) WRONGPASS invalid username-password pair or user is disabled."),
        ],
        run: auth,
        ..BASE
    },
    Row {
        name: "client",
        handling: &[Handling::KeepsCaching],
        arity: -2,
        flags: &[],
        since: "2.4.0",
        complexity: "Depends on subcommand.",
        summary: "A container for client connection commands.",
        subcommands: CLIENT_ROWS,
        examples: &[is("CLIENT NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.")],
        run: |cx| unknown_subcommand(cx.args, "CLIENT"),
        ..BASE
    },
    Row {
        name: "echo",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
        summary: "Returns the given string.",
        syntax: "message",
        examples: &[is("ECHO 'Hello World!'", "\"Hello World!\"")],
        run: |cx| {
            cx.out.bulk(&cx.args[1]);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hello",
        handling: &[Handling::ChangesUser, Handling::OfConnection],
        arity: -1,
        secrets: Secrets::Rule(|args, at| is_behind(args, at, "AUTH", 2, 1)),
        flags: HANDSHAKE,
        since: "6.0.0",
        summary: "Handshakes with the server and chooses the protocol version.",
        syntax: "[protover [AUTH username password] [SETNAME clientname]]",
        examples: &[
            starts("HELLO", " 1) \"server\"\n 2) \"redis\"\n 3) \"version\"\n 4) \"7."),
            is("HELLO 4", "(error) NOPROTO unsupported protocol version"),
            is("HELLO 2 NOSUCH", "(error) ERR Syntax error in HELLO option 'NOSUCH'"),
        ],
        run: hello,
        ..BASE
    },
    Row {
        name: "ping",
        handling: &[Handling::Listening],
        arity: -1,
        flags: &[Flag::Fast],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        summary: "Returns the server's liveliness response.",
        syntax: "[message]",
        examples: &[is("PING", "PONG"), is("PING 'hello world'", "\"hello world\"")],
        run: ping,
        ..BASE
    },
    Row {
        name: "quit",
        handling: &[Handling::Listening, Handling::Unqueued, Handling::OfConnection],
        arity: -1,
        flags: HANDSHAKE,
        summary: "Closes the connection.",
        examples: &[is("QUIT", "OK")],
        run: |cx| {
            cx.session.close = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "reset",
        handling: &[
            Handling::Listening,
            Handling::Unqueued,
            Handling::Unwatches,
            Handling::ChangesUser,
            Handling::OfConnection,
        ],
        arity: 1,
        flags: HANDSHAKE,
        since: "6.2.0",
        summary: "Resets the connection.",
        examples: &[is("RESET", "RESET")],
        run: |cx| {
            crate::pubsub::leave_all(cx);
            crate::tracking::stop(cx);
            if std::mem::take(&mut cx.session.monitors) {
                cx.server.monitors_changed(cx.session);
            }
            cx.session.reset();
            cx.server.access().start_over(cx.session);
            cx.out.set_proto(Proto::Resp2);
            cx.out.simple("RESET");
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "select",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
        summary: "Changes the selected database.",
        syntax: "index",
        examples: &[
            is("SELECT 1", "OK"),
            is("SELECT x", "(error) ERR value is not an integer or out of range"),
            is("SELECT 1000", "(error) ERR DB index is out of range"),
        ],
        run: select,
        ..BASE
    },
];

const CLIENT_ROWS: &[Row] = &[
    crate::tracking::CACHING,
    crate::tracking::GETREDIR,
    crate::tracking::TRACKING,
    crate::tracking::TRACKINGINFO,
    Row {
        name: "getname",
        arity: 2,
        flags: CLIENT,
        since: "2.6.9",
        summary: "Returns the name of the connection.",
        examples: &[is("CLIENT GETNAME", "(nil)"), is("CLIENT SETNAME web1", "OK"), is("CLIENT GETNAME", "\"web1\"")],
        run: |cx| {
            let name = &cx.session.labels.name;
            cx.out.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        since: "5.0.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("CLIENT HELP", " 1) CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "CLIENT", CLIENT_ROWS),
        ..BASE
    },
    Row {
        name: "id",
        arity: 2,
        flags: CLIENT,
        since: "5.0.0",
        summary: "Returns the unique client ID of the connection.",
        examples: &[starts("CLIENT ID", "(integer) ")],
        run: |cx| {
            cx.out.int(cx.session.id as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "info",
        arity: 2,
        flags: CLIENT,
        tips: &["nondeterministic_output"],
        since: "6.2.0",
        summary: "Returns information about the connection.",
        examples: &[starts("CLIENT INFO", "\"id=")],
        run: |cx| {
            let me = ClientFilter { ids: vec![cx.session.id], ..ClientFilter::default() };
            cx.out.verbatim("txt", cx.server.client_list(cx.session, &me).as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "kill",
        arity: -3,
        flags: CLIENT_ADMIN,
        since: "2.4.0",
        complexity: "O(N) where N is the number of client connections",
        summary: "Terminates open connections.",
        syntax: "<ip:port | <ID client-id | TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | USER username | ADDR ip:port | \
                 LADDR ip:port | SKIPME <YES | NO> | MAXAGE maxage> ...>",
        examples: &[
            is("CLIENT KILL 1.1.1.1:1", "(error) ERR No such client"),
            is("CLIENT KILL ADDR 1.1.1.1:1", "(integer) 0"),
            is("CLIENT KILL TYPE normal SKIPME yes", "(integer) 0"),
            is("CLIENT KILL ID 0", "(error) ERR client-id should be greater than 0"),
            only_here("CLIENT KILL MAXAGE 100000", "(integer) 0"),
        ],
        run: client_kill,
        ..BASE
    },
    Row {
        name: "list",
        arity: -2,
        flags: CLIENT_ADMIN,
        tips: &["nondeterministic_output"],
        since: "2.4.0",
        complexity: "O(N) where N is the number of client connections",
        summary: "Lists open connections.",
        syntax: "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        examples: &[
            starts("CLIENT LIST TYPE normal", "\"id="),
            is("CLIENT LIST TYPE master", "\"\""),
            is("CLIENT LIST ID x", "(error) ERR Invalid client ID"),
        ],
        run: client_list,
        ..BASE
    },
    Row {
        name: "no-evict",
        arity: 3,
        flags: CLIENT_ADMIN,
        since: "7.0.0",
        summary: "Sets the client eviction mode of the connection.",
        syntax: "<ON | OFF>",
        examples: &[is("CLIENT NO-EVICT ON", "OK"), is("CLIENT NO-EVICT maybe", "(error) ERR syntax error")],
        run: |cx| {
            cx.session.no_evict = on_off(&cx.args[2])?;
            cx.session.changed = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "no-touch",
        arity: 3,
        flags: CLIENT,
        since: "7.2.0",
        summary: "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
        syntax: "<ON | OFF>",
        examples: &[only_here("CLIENT NO-TOUCH ON", "OK"), only_here("CLIENT NO-TOUCH OFF", "OK")],
        run: |cx| {
            cx.session.no_touch = on_off(&cx.args[2])?;
            cx.session.changed = true;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "pause",
        arity: -3,
        flags: CLIENT_ADMIN,
        since: "3.0.0",
        summary: "Suspends commands processing.",
        syntax: "timeout [WRITE | ALL]",
        examples: &[
            is("CLIENT PAUSE 1 WRITE", "OK"),
            is("CLIENT PAUSE -1", "(error) ERR timeout is negative"),
            is("CLIENT PAUSE x", "(error) ERR timeout is not an integer or out of range"),
        ],
        run: client_pause,
        ..BASE
    },
    Row {
        name: "reply",
        arity: 3,
        flags: CLIENT,
        since: "3.2.0",
        summary: "Instructs the server whether to reply to commands.",
        syntax: "<ON | OFF | SKIP>",
        examples: &[is("CLIENT REPLY ON", "OK"), is("CLIENT REPLY perhaps", "(error) ERR syntax error")],
        run: client_reply,
        ..BASE
    },
    Row {
        name: "setinfo",
        arity: 4,
        flags: CLIENT,
        since: "7.2.0",
        summary: "Sets information specific to the client or connection.",
        syntax: "<LIB-NAME libname | LIB-VER libver>",
        examples: &[
            only_here("CLIENT SETINFO LIB-NAME redis-py", "OK"),
            only_here(
                "CLIENT SETINFO LIB-VER 'a b'",
                "(error) ERR lib-ver cannot contain spaces, newlines or special characters.",
            ),
            only_here("CLIENT SETINFO COLOUR blue", "(error) ERR Unrecognized option 'COLOUR'"),
        ],
        run: client_setinfo,
        ..BASE
    },
    Row {
        name: "setname",
        arity: 3,
        flags: CLIENT,
        since: "2.6.9",
        summary: "Sets the connection name.",
        syntax: "connection-name",
        examples: &[
            is("CLIENT SETNAME web1", "OK"),
            is(
                "CLIENT SETNAME 'web 1'",
                "(error) ERR Client names cannot contain spaces, newlines or special characters.",
            ),
        ],
        run: |cx| {
            set_name(cx, 2)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "unblock",
        arity: -3,
        flags: CLIENT_ADMIN,
        since: "5.0.0",
        complexity: "O(log N) where N is the number of client connections",
        summary: "Ends the wait of a client that is blocked by a command like BLPOP.",
        syntax: "client-id [TIMEOUT | ERROR]",
        examples: &[
            is("CLIENT UNBLOCK 1000000", "(integer) 0"),
            is("CLIENT UNBLOCK 1000000 ERROR", "(integer) 0"),
            is("CLIENT UNBLOCK 1 perhaps", "(error) ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
            is("CLIENT UNBLOCK x", "(error) ERR value is not an integer or out of range"),
        ],
        run: client_unblock,
        ..BASE
    },
    Row {
        name: "unpause",
        arity: 2,
        flags: CLIENT_ADMIN,
        since: "6.2.0",
        complexity: "O(N) Where N is the number of paused clients",
        summary: "Resumes processing commands from paused clients.",
        examples: &[is("CLIENT UNPAUSE", "OK")],
        run: |cx| {
            cx.server.client_unpause();
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
];

/// The reply to an unknown subcommand of a container.
pub fn unknown_subcommand(args: Args<'_>, container: &str) -> Run {
    let name = args.get(1).unwrap_or_default();
    let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
    Err(Stop::Error(format!("ERR unknown subcommand '{shown}'. Try {container} HELP.").into()))
}

/// The reply to a known subcommand with a wrong number of arguments.
pub(crate) fn wrong_subcommand(args: Args<'_>, container: &str) -> Stop {
    let name = args.get(1).unwrap_or_default();
    let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
    Stop::Error(
        format!("ERR unknown subcommand or wrong number of arguments for '{shown}'. Try {container} HELP.").into(),
    )
}

/// HELP of a container, made from its rows.
pub(crate) fn help(cx: &mut Cx<'_>, container: &str, rows: &[Row]) -> Run {
    cx.out.array(1 + 2 * rows.len());
    cx.out.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for row in rows {
        let name = row.name.to_ascii_uppercase();
        let gap = if row.syntax.is_empty() { "" } else { " " };
        cx.out.simple(&format!("{name}{gap}{}", row.syntax));
        cx.out.simple(&format!("    {}", row.summary));
    }
    Ok(())
}

pub(crate) fn on_off(word: &[u8]) -> Result<bool, Stop> {
    match word {
        _ if word.eq_ignore_ascii_case(b"on") => Ok(true),
        _ if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(SYNTAX),
    }
}

fn ping(cx: &mut Cx<'_>) -> Run {
    match cx.args.len() {
        1 | 2 if cx.session.listens_only => {
            cx.out.array(2);
            cx.out.bulk(b"pong");
            cx.out.bulk(cx.args.get(1).unwrap_or_default());
        }
        1 => cx.out.simple("PONG"),
        2 => cx.out.bulk(&cx.args[1]),
        _ => return Err(Stop::error("ERR wrong number of arguments for 'ping' command")),
    }
    Ok(())
}

const WRONG_PASSWORD: Stop = Stop::error("WRONGPASS invalid username-password pair or user is disabled.");

fn authenticate(cx: &mut Cx<'_>, user: &[u8], password: &[u8]) -> Run {
    if cx.server.access().authenticate(cx.session, &cx.args[0], user, password) { Ok(()) } else { Err(WRONG_PASSWORD) }
}

fn auth(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    match args.len() {
        2 if cx.server.access().user(b"default").is_some_and(|user| user.flags.contains(&"nopass")) => {
            return Err(Stop::error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(cx, b"default", &args[1])?,
        3 => authenticate(cx, &args[1], &args[2])?,
        _ => return Err(SYNTAX),
    }
    cx.out.ok();
    Ok(())
}

/// The first command of every client. The reply has the protocol version that the command chose.
fn hello(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let mut proto = None;
    if let Some(version) = args.get(1) {
        proto = Some(match number::int(version) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err(Stop::error("NOPROTO unsupported protocol version")),
            None => return Err(Stop::error("ERR Protocol version is not an integer or out of range")),
        });
    }
    let mut at = 2;
    let (mut credentials, mut name) = (None, None);
    while let Some(option) = args.get(at) {
        let left = args.len() - at - 1;
        if option.eq_ignore_ascii_case(b"auth") && left >= 2 {
            credentials = Some((at + 1, at + 2));
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && left >= 1 {
            name = Some(at + 1);
            at += 2;
        } else {
            let shown = String::from_utf8_lossy(&option[..option.len().min(128)]);
            return Err(Stop::Error(format!("ERR Syntax error in HELLO option '{shown}'").into()));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(cx, &args[user], &args[password])?;
    }
    if !cx.session.authenticated {
        return Err(Stop::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time",
        ));
    }
    if let Some(name) = name {
        set_name(cx, name)?;
    }
    if let Some(proto) = proto {
        cx.session.set_proto(proto);
        cx.out.set_proto(proto);
    }
    cx.out.map(7);
    cx.out.bulk(b"server");
    cx.out.bulk(b"redis");
    cx.out.bulk(b"version");
    cx.out.bulk(crate::host::REDIS_VERSION.as_bytes());
    cx.out.bulk(b"proto");
    cx.out.int(if cx.session.proto == Proto::Resp3 { 3 } else { 2 });
    cx.out.bulk(b"id");
    cx.out.int(cx.session.id as i64);
    cx.out.bulk(b"mode");
    cx.out.bulk(b"standalone");
    cx.out.bulk(b"role");
    cx.out.bulk(if cx.server.is_replica() { b"replica" } else { b"master" });
    cx.out.bulk(b"modules");
    cx.out.array(0);
    Ok(())
}

fn select(cx: &mut Cx<'_>) -> Run {
    let db = crate::keys::database(cx, &cx.args[1])?;
    // A script has called it.
    if db != 0 && cx.session.is_divided() {
        return Err(Stop::error("ERR SELECT is not allowed in cluster mode"));
    }
    cx.session.db = db;
    cx.session.changed = true;
    cx.out.ok();
    Ok(())
}

/// CLIENT LIST's format requires printable ASCII without spaces.
fn label(text: &[u8]) -> Option<Box<str>> {
    let fits = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    fits.then(|| String::from_utf8_lossy(text).into())
}

fn set_name(cx: &mut Cx<'_>, at: usize) -> Run {
    let name = label(&cx.args[at]);
    cx.session.labels.name =
        name.ok_or(Stop::error("ERR Client names cannot contain spaces, newlines or special characters."))?;
    cx.session.changed = true;
    Ok(())
}

fn client_setinfo(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let (option, text) = (&args[2], &args[3]);
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        let shown = String::from_utf8_lossy(&option[..option.len().min(128)]);
        return Err(Stop::Error(format!("ERR Unrecognized option '{shown}'").into()));
    }
    let Some(label) = label(text) else {
        let option = String::from_utf8_lossy(option).to_ascii_lowercase();
        return Err(Stop::Error(format!("ERR {option} cannot contain spaces, newlines or special characters.").into()));
    };
    let labels = &mut cx.session.labels;
    *if is_name { &mut labels.lib_name } else { &mut labels.lib_version } = label;
    cx.session.changed = true;
    cx.out.ok();
    Ok(())
}

fn client_reply(cx: &mut Cx<'_>) -> Run {
    let mode = &cx.args[2];
    if mode.eq_ignore_ascii_case(b"on") {
        cx.session.reply = Reply::On;
        cx.out.ok();
    } else if mode.eq_ignore_ascii_case(b"off") {
        cx.session.reply = Reply::Off;
    } else if mode.eq_ignore_ascii_case(b"skip") {
        // SKIP has no effect while replies are off.
        if cx.session.reply != Reply::Off {
            cx.session.reply = Reply::SkipNext;
        }
    } else {
        return Err(SYNTAX);
    }
    Ok(())
}

fn client_pause(cx: &mut Cx<'_>) -> Run {
    if cx.args.len() > 4 {
        return Err(wrong_subcommand(cx.args, "CLIENT"));
    }
    let what = match cx.args.get(3) {
        None => Pause::All,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => Pause::All,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => Pause::Write,
        Some(_) => return Err(Stop::error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let duration_ms = number::int(&cx.args[2]).ok_or(Stop::error("ERR timeout is not an integer or out of range"))?;
    let Ok(duration_ms) = u64::try_from(duration_ms) else { return Err(Stop::error("ERR timeout is negative")) };
    cx.server.client_pause(duration_ms, what);
    cx.out.ok();
    Ok(())
}

fn client_unblock(cx: &mut Cx<'_>) -> Run {
    let how = match cx.args.get(3) {
        None => Unblock::Timeout,
        Some(_) if cx.args.len() > 4 => return Err(wrong_subcommand(cx.args, "CLIENT")),
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => Unblock::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"error") => Unblock::Error,
        Some(_) => return Err(Stop::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = number::int_or_error(&cx.args[2])?;
    let unblocked = u64::try_from(id).is_ok_and(|id| cx.server.client_unblock(id, how));
    cx.out.int(unblocked.into());
    Ok(())
}

fn kind(name: &[u8]) -> Result<ClientKind, Stop> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientKind::Normal),
        b"master" => Ok(ClientKind::Master),
        b"replica" | b"slave" => Ok(ClientKind::Replica),
        b"pubsub" => Ok(ClientKind::Pubsub),
        _ => Err(Stop::Error(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)).into())),
    }
}

fn client_list(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let mut filter = ClientFilter::default();
    match args.get(2) {
        None => {}
        Some(word) if word.eq_ignore_ascii_case(b"type") && args.len() == 4 => filter.kind = Some(kind(&args[3])?),
        Some(word) if word.eq_ignore_ascii_case(b"id") && args.len() > 3 => {
            for id in args.from(3) {
                let id = number::int(id).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
                filter.ids.push(id.ok_or(Stop::error("ERR Invalid client ID"))?);
            }
        }
        Some(_) => return Err(SYNTAX),
    }
    cx.out.verbatim("txt", cx.server.client_list(cx.session, &filter).as_bytes());
    Ok(())
}

fn client_kill(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let text = |at: usize| String::from_utf8_lossy(&args[at]).into_owned();
    let by_address = args.len() == 3;
    let mut filter = ClientFilter { skip_me: !by_address, ..ClientFilter::default() };
    if by_address {
        filter.addr = Some(text(2));
    } else {
        if !args.len().is_multiple_of(2) {
            return Err(SYNTAX);
        }
        for at in (2..args.len()).step_by(2) {
            let value = &args[at + 1];
            match args[at].to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number::int(value).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
                    filter.ids = vec![id.ok_or(Stop::error("ERR client-id should be greater than 0"))?];
                }
                b"type" => filter.kind = Some(kind(value)?),
                b"addr" => filter.addr = Some(text(at + 1)),
                b"laddr" => filter.laddr = Some(text(at + 1)),
                b"user" if cx.server.access().user(value).is_some() => filter.user = Some(text(at + 1)),
                b"user" => return Err(Stop::Error(format!("ERR No such user '{}'", text(at + 1)).into())),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.skip_me = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.skip_me = false,
                b"maxage" => {
                    let age = number::int(value).ok_or(Stop::error("ERR maxage is not an integer or out of range"))?;
                    let age = u64::try_from(age).ok().filter(|&age| age > 0);
                    filter.age_s_min = Some(age.ok_or(Stop::error("ERR maxage should be greater than 0"))?);
                }
                _ => return Err(SYNTAX),
            }
        }
    }
    let killed = cx.server.client_kill(cx.session, &filter);
    if killed.me {
        cx.session.close = true;
    }
    match (by_address, killed.count) {
        (true, 0) => return Err(Stop::error("ERR No such client")),
        (true, _) => cx.out.ok(),
        (false, count) => cx.out.int(count as i64),
    }
    Ok(())
}
