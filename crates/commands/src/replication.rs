//! Owns the commands of replication at a primary: those that replicas send (REPLCONF, PSYNC, SYNC), those by which
//! clients wait for replicas (WAIT, WAITAOF), ROLE and FAILOVER. Never knows how data is sent to a replica: PSYNC only
//! stores in its session what the replica has.

use crate::block::{Block, Reached, UntilReached};
use crate::cx::Cx;
use crate::host::{Failover, ReplicaState, Role};
use crate::number::{int, int_or_error};
use crate::row::{Acl, Flag, Group, Handling, Keys, Row, Values, is, only_here, starts};
use crate::session::{Ask, Written};
use crate::stop::{Run, SYNTAX, Stop};
use crate::timeout::until_milliseconds;
use resp::reply::Out;
use store::Kind;
use store::page_import::PAGES_CAPA;

const BASE: Row = Row { keys: Keys::NONE, values: Values::Untouched, group: Group::Server, syntax: "", ..Row::BASE };
const FOLLOWS: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti];

/// The longest address that a replica may announce.
const IP_BYTES_MAX: usize = 46;

pub const ROWS: &[Row] = &[
    Row {
        name: "failover",
        arity: -1,
        flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
        since: "6.2.0",
        summary: "Makes a replica the primary, and this server its replica, without losing a write.",
        syntax: "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        examples: &[
            is("FAILOVER", "(error) ERR FAILOVER requires connected replicas."),
            is("FAILOVER ABORT", "(error) ERR No failover in progress."),
            is("FAILOVER NOW", "(error) ERR syntax error"),
        ],
        run: failover,
        ..BASE
    },
    Row {
        name: "psync",
        handling: &[Handling::Streams],
        arity: -3,
        flags: FOLLOWS,
        since: "2.8.0",
        summary: "Makes the connection a replica's, which gets what it has not: the rest of the stream, or a dump and the stream.",
        syntax: "replicationid offset [FAILOVER]",
        examples: &[is("PSYNC ? x", "(error) ERR value is not an integer or out of range")],
        run: psync,
        ..BASE
    },
    Row {
        name: "replconf",
        arity: -1,
        flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale, Flag::AllowBusy],
        since: "3.0.0",
        summary: "A replica's report to its primary: who it is, what it can do, and what it has.",
        syntax: "[option value ...]",
        examples: &[
            is("REPLCONF listening-port 7000", "OK"),
            is("REPLCONF capa", "(error) ERR syntax error"),
            is("REPLCONF colour red", "(error) ERR Unrecognized REPLCONF option: colour"),
        ],
        run: replconf,
        ..BASE
    },
    Row {
        name: "role",
        acl: &[Acl::Admin, Acl::Dangerous],
        arity: 1,
        flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast],
        since: "2.8.12",
        summary: "Returns the replication role.",
        examples: &[starts("ROLE", "1) \"master\"\n2) (integer) ")],
        run: role,
        ..BASE
    },
    Row {
        name: "sync",
        handling: &[Handling::Streams],
        arity: 1,
        flags: FOLLOWS,
        since: "1.0.0",
        summary: "The older form of PSYNC: a dump, and then the stream.",
        examples: &[is("SYNC now", "(error) ERR wrong number of arguments for 'sync' command")],
        run: |cx| {
            follow(cx, Ask { is_old: true, ..Ask::default() });
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "wait",
        acl: &[Acl::Connection],
        arity: 3,
        flags: &[Flag::Blocking],
        group: Group::Generic,
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        since: "3.0.0",
        summary: "Waits until a number of replicas have the client's earlier writes.",
        syntax: "numreplicas timeout",
        examples: &[
            is("WAIT 0 100", "(integer) 0"),
            is("WAIT 1 1", "(integer) 0"),
            is("WAIT x 1", "(error) ERR value is not an integer or out of range"),
            is("WAIT 1 -1", "(error) ERR timeout is negative"),
        ],
        run: wait,
        ..BASE
    },
    Row {
        name: "waitaof",
        acl: &[Acl::Connection],
        arity: 4,
        flags: &[Flag::Blocking],
        group: Group::Generic,
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        since: "7.2.0",
        summary: "Waits until the client's earlier writes are durable here (numlocal 1), and on a number of replicas.",
        syntax: "numlocal numreplicas timeout",
        examples: &[
            only_here("WAITAOF 0 0 100", "1) (integer) 0\n2) (integer) 0"),
            only_here("WAITAOF 0 1 1", "1) (integer) 0\n2) (integer) 0"),
            only_here(
                "WAITAOF 1 0 1",
                "(error) ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ),
        ],
        run: waitaof,
        ..BASE
    },
];

// --- commands that replicas send ---

fn replconf(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    for at in (1..args.len()).step_by(2) {
        let (option, value) = (&args[at], &args[at + 1]);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("ack") || is("getack") {
            // ACK and GETACK belong to the replication stream. A connection without this stream gets no reply to them,
            // as in Redis.
            return Ok(());
        }
        let replica = cx.session.replica.get_or_insert_default();
        match () {
            () if is("listening-port") => {
                let port = int_or_error(value)?;
                replica.port = u16::try_from(port).map_err(|_| Stop::error("ERR value is out of range"))?;
            }
            () if is("ip-address") => {
                if value.len() >= IP_BYTES_MAX {
                    let bytes = value.len();
                    let text =
                        format!("ERR REPLCONF ip-address provided by replica instance is too long: {bytes} bytes");
                    return Err(Stop::Error(text.into()));
                }
                replica.ip = printable(value);
            }
            () if is("capa") => {
                replica.psync2 |= value.eq_ignore_ascii_case(b"psync2");
                replica.flint |= value.eq_ignore_ascii_case(b"flint");
                replica.tail |= value.eq_ignore_ascii_case(b"tail");
                replica.truncates |= value.eq_ignore_ascii_case(b"truncate");
                replica.pieces |= value.eq_ignore_ascii_case(b"pieces");
                replica.pages |= value.eq_ignore_ascii_case(PAGES_CAPA.as_bytes());
            }
            () if is("rdb-only") => replica.only_dump = int_or_error(value)? != 0,
            () if is("version") => replica.version = printable(value),
            () if replica.is_of_shard && is("copy") => replica.copy = number(value)?,
            () if replica.is_of_shard && is("incarnation") => replica.incarnation = printable(value),
            () if replica.is_of_shard && is("epoch") => replica.epoch = number(value)?,
            () => {
                let text = format!("ERR Unrecognized REPLCONF option: {}", String::from_utf8_lossy(option));
                return Err(Stop::Error(text.into()));
            }
        }
    }
    cx.out.ok();
    Ok(())
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T, Stop> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or(Stop::error("ERR value is not an integer or out of range"))
}

/// Keeps only printable characters, because the text becomes a part of a line of INFO.
fn printable(bytes: &[u8]) -> Box<str> {
    bytes.iter().filter(|byte| byte.is_ascii_graphic()).map(|&byte| byte as char).collect()
}

fn psync(cx: &mut Cx<'_>) -> Run {
    let (id, offset) = (printable(&cx.args[1]), int_or_error(&cx.args[2])?);
    let promotes = match cx.args.get(3) {
        None => false,
        Some(word) if cx.args.len() == 4 && word.eq_ignore_ascii_case(b"failover") => true,
        Some(_) => return Err(SYNTAX),
    };
    if promotes {
        cx.server.take_over(cx.session, &id)?;
    } else if let Role::Replica { state, .. } = cx.server.role()
        && state != "connected"
    {
        return Err(Stop::error("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    follow(cx, Ask { id, offset, is_old: false });
    Ok(())
}

/// Marks the connection as a replica's: it becomes one after the replies so far are sent.
fn follow(cx: &mut Cx<'_>, ask: Ask) {
    cx.session.replica.get_or_insert_default().asks = Some(ask);
    cx.session.changed = true;
}

// --- commands by which clients wait for replicas ---

const REPLICAS_WAIT: &str = "cannot be used with replica instances. Please also note that writes to replicas are just local and \
                             are not propagated.";
const LOST_SIGHT: &str = "UNCERTAIN a shard's primary was lost or replaced after this connection had written to it: what no replica has may be lost";
const NO_JOURNAL: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

fn not_at_replica(cx: &Cx<'_>, command: &str) -> Run {
    match cx.server.is_replica() {
        true => Err(Stop::Error(format!("ERR {command} {REPLICAS_WAIT}").into())),
        false => Ok(()),
    }
}

fn wait(cx: &mut Cx<'_>) -> Run {
    not_at_replica(cx, "WAIT")?;
    let replicas = int_or_error(&cx.args[1])?;
    let until_ms = until_milliseconds(&cx.args[2], cx.ks.now_ms())?;
    let reply = |out: &mut Out<'_>, reached: Reached| out.int(reached.replicas as i64);
    let until = UntilReached {
        position: 0,
        waits_here: false,
        offset: cx.server.written_offset(cx.session),
        replicas: replicas.max(0) as usize,
        durably: false,
        reply,
        without: NO_JOURNAL,
    };
    block_until(cx, until, until_ms, |out| out.int(0))
}

fn waitaof(cx: &mut Cx<'_>) -> Run {
    not_at_replica(cx, "WAITAOF")?;
    let local = int_or_error(&cx.args[1])?;
    if !(0..=1).contains(&local) {
        return Err(Stop::error("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = int_or_error(&cx.args[2])?;
    if replicas < 0 {
        return Err(Stop::error("ERR value is out of range, must be positive"));
    }
    let until_ms = until_milliseconds(&cx.args[3], cx.ks.now_ms())?;
    let journaled = cx.server.journaled(cx.session);
    if local > 0 && journaled.is_none() {
        return Err(Stop::error(NO_JOURNAL));
    }
    let reply = |out: &mut Out<'_>, reached: Reached| {
        out.array(2);
        out.int(i64::from(reached.here));
        out.int(reached.replicas as i64);
    };
    let until = UntilReached {
        position: journaled.map_or(0, |(position, _)| position),
        waits_here: local > 0,
        offset: cx.server.written_offset(cx.session),
        replicas: replicas as usize,
        durably: true,
        reply,
        without: NO_JOURNAL,
    };
    let nowhere = |out: &mut Out<'_>| {
        out.array(2);
        out.int(0);
        out.int(0);
    };
    block_until(cx, until, until_ms, nowhere)
}

/// Waits until the writes are where `until` wants them. `nowhere`: the reply if it is not known where the writes are.
fn block_until(cx: &mut Cx<'_>, until: UntilReached, until_ms: Option<u64>, nowhere: fn(&mut Out<'_>)) -> Run {
    // Said once: what the client writes from now on is known again.
    if let Some(forwarded) = &mut cx.session.forwarded
        && std::mem::take(&mut forwarded.may_lack_writes)
    {
        return Err(Stop::error(LOST_SIGHT));
    }
    let reached = cx.server.reached(&until);
    let is_there = (reached.here || !until.waits_here) && reached.replicas >= until.replicas;
    // A transaction cannot wait.
    if is_there || cx.ks.runs_once() {
        (until.reply)(&mut cx.out, reached);
        return Ok(());
    }
    if until.replicas > 0 {
        let asked = cx.server.ask_replicas(until.offset);
        // The request for acknowledgements is in the stream too, but is no write of the client.
        cx.session.replicated = Written { from: asked, to: until.offset };
    }
    let block = Block::new(0, Kind::String, until_ms);
    Err(Block { until_reached: Some(until), at_timeout: nowhere, at_once: nowhere, ..block }.into())
}

// --- roles ---

fn role(cx: &mut Cx<'_>) -> Run {
    match cx.server.role() {
        Role::Primary { offset, replicas } => {
            cx.out.array(3);
            cx.out.bulk(b"master");
            cx.out.int(offset as i64);
            cx.out.array(replicas.len());
            for ReplicaState { ip, port, offset } in replicas {
                cx.out.array(3);
                cx.out.bulk(ip.as_bytes());
                cx.out.bulk(port.to_string().as_bytes());
                cx.out.bulk(offset.to_string().as_bytes());
            }
        }
        Role::Replica { host, port, state, offset } => {
            cx.out.array(5);
            cx.out.bulk(b"slave");
            cx.out.bulk(host.as_bytes());
            cx.out.int(i64::from(port));
            cx.out.bulk(state.as_bytes());
            cx.out.int(offset);
        }
    }
    Ok(())
}

fn failover(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let is = |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    let mut wanted = Failover::default();
    if args.len() == 2 && is(1, b"abort") {
        let may_wait = !cx.ks.runs_once();
        cx.server.abort_failover(cx.session, may_wait)?;
        cx.out.ok();
        return Ok(());
    }
    let mut at = 1;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match () {
            () if is(at, b"timeout") && left >= 1 && wanted.timeout_ms.is_none() => {
                let timeout_ms = int_or_error(&args[at + 1])?;
                if timeout_ms <= 0 {
                    return Err(Stop::error("ERR FAILOVER timeout must be greater than 0"));
                }
                wanted.timeout_ms = Some(timeout_ms as u64);
                2
            }
            () if is(at, b"to") && left >= 2 && wanted.to.is_none() => {
                int_or_error(&args[at + 2])?;
                let port = int(&args[at + 2]).and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
                wanted.to = Some((String::from_utf8_lossy(&args[at + 1]).into_owned(), port));
                3
            }
            () if is(at, b"force") && !wanted.force => {
                wanted.force = true;
                1
            }
            () => return Err(SYNTAX),
        };
    }
    cx.server.fail_over(wanted)?;
    cx.out.ok();
    Ok(())
}
