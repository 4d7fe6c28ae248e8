//! Owns the lists of connections and of slow commands. Never knows how the server collects them.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{self, items, number as int};
use crate::route::{Answer, Method, Route, list, number};
use crate::text::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/databases/{name}/slowlog",
        tag: "Slow log",
        summary: "The slowest commands, newest first; `slowlog-log-slower-than` sets the threshold.",
        query: &[number("count", "the most entries, 1 to 10000; default 128")],
        reply: Answer::Json(list::<SlowCommand>),
        run: slow_log,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}/slowlog",
        role: Some(Role::Operator),
        tag: "Slow log",
        summary: "Empties the slow log.",
        action: "slowlog.reset",
        run: |cx| {
            cx.link()?.call(&[b"SLOWLOG", b"RESET"])?;
            Ok(Reply::none())
        },
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/clients",
        tag: "Clients",
        summary: "All connections.",
        reply: Answer::Json(list::<ClientInfo>),
        run: clients,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}/clients/{id}",
        role: Some(Role::Operator),
        tag: "Clients",
        summary: "Closes a connection.",
        action: "client.kill",
        run: kill,
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct SlowCommand {
    id: i64,
    at_ms: i64,
    duration_us: i64,
    args: Vec<Bytes>,
    client: String,
    client_name: String,
}

fn slow_log(cx: &Cx) -> Result<Reply, ApiError> {
    let count = cx.number("count", 128, (1, 10_000u32))?.to_string();
    let entries = cx.link()?.call(&[b"SLOWLOG", b"GET", count.as_bytes()])?;
    let entry = |entry| {
        let [id, at_s, duration_us, args, client, name] = <[_; 6]>::try_from(items(entry)).ok()?;
        Some(SlowCommand {
            id: int(&id)?,
            at_ms: int(&at_s)? * 1000,
            duration_us: int(&duration_us)?,
            args: items(args).into_iter().map(|arg| Bytes(link::bytes(arg))).collect(),
            client: link::text(client),
            client_name: link::text(name),
        })
    };
    Reply::json(&items(entries).into_iter().filter_map(entry).collect::<Vec<_>>())
}

#[derive(Default, Serialize, ToSchema)]
struct ClientInfo {
    id: u64,
    addr: String,
    laddr: String,
    name: String,
    user: String,
    age_s: u64,
    idle_s: u64,
    db: u32,
    /// The last command.
    cmd: String,
    flags: String,
    /// Waiting to be read, and to be sent.
    in_bytes: u64,
    out_bytes: u64,
    memory_bytes: u64,
    lib: String,
    /// 2 or 3.
    resp: u8,
    /// Queued in a transaction; -1 outside one.
    multi: i64,
    watch: u64,
    /// Channels and patterns that it listens to.
    subscriptions: u64,
}

/// Parses a line of CLIENT LIST. A name cannot contain a space.
fn client(line: &str) -> Option<ClientInfo> {
    let fields: BTreeMap<&str, &str> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    let text = |name: &str| fields.get(name).copied().unwrap_or("").to_owned();
    let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (lib, version) = (text("lib-name"), text("lib-ver"));
    Some(ClientInfo {
        id: fields.get("id")?.parse().ok()?,
        addr: text("addr"),
        laddr: text("laddr"),
        name: text("name"),
        user: text("user"),
        age_s: number("age"),
        idle_s: number("idle"),
        db: number("db") as u32,
        cmd: text("cmd"),
        flags: text("flags"),
        in_bytes: number("qbuf"),
        out_bytes: number("omem") + number("obl"),
        memory_bytes: number("tot-mem"),
        lib: format!("{lib} {version}").trim().to_owned(),
        resp: if text("resp") == "3" { 3 } else { 2 },
        multi: fields.get("multi").and_then(|text| text.parse().ok()).unwrap_or(-1),
        watch: number("watch"),
        subscriptions: number("sub") + number("psub") + number("ssub"),
    })
}

fn clients(cx: &Cx) -> Result<Reply, ApiError> {
    let mut link = cx.link()?;
    let own = int(&link.call(&[b"CLIENT", b"ID"])?).unwrap_or(0);
    let lines = link::text(link.call(&[b"CLIENT", b"LIST"])?);
    // Leave out the connection that asks.
    let others = lines.lines().filter_map(client).filter(|client| i64::try_from(client.id) != Ok(own));
    Reply::json(&others.collect::<Vec<_>>())
}

fn kill(cx: &Cx) -> Result<Reply, ApiError> {
    let id = cx.param("id");
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::field("id", "a number is expected"));
    }
    cx.note(cx.param("name"), format!("client {id}"));
    let killed = cx.link()?.call(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()])?;
    match int(&killed) {
        Some(1..) => Ok(Reply::none()),
        _ => Err(ApiError::not_found(format!("there is no client {id}"))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_of_client_list() {
        let line = "id=7 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=9 name=w age=3 idle=1 flags=N db=2 sub=1 psub=1 ssub=0 \
                    multi=-1 watch=0 qbuf=10 obl=1 omem=4 tot-mem=99 cmd=client|list user=default redir=-1 resp=3 lib-name=py lib-ver=5";
        let client = super::client(line).unwrap();
        assert_eq!((client.id, client.db, client.subscriptions, client.out_bytes, client.resp), (7, 2, 2, 5, 3));
        assert_eq!((client.lib.as_str(), client.cmd.as_str(), client.multi), ("py 5", "client|list", -1));
        assert!(super::client("").is_none());
    }
}
