//! Owns who follows whom as a resource: show, follow, promote, hand over. Never knows how a replica gets its data.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::link::Link;
use crate::route::{Answer, Method, Route, one};
use node::{Database, PrimaryFigures, ReplicaFigures};
use resp::client::Value;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// How long a switchover without a time limit waits for the replica.
const SWITCHOVER_MS: u64 = 10_000;
const LOOK: Duration = Duration::from_millis(20);

const ADMIN: Route = Route { role: Some(Role::Admin), tag: "Replication", ..Route::BASE };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/databases/{name}/replication",
        tag: "Replication",
        summary: "A database's primary, its replicas, and how far each of them is.",
        reply: Answer::Json(one::<Replication>),
        run: |cx| Reply::json(&shown(cx, &*cx.database()?)),
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/replicate",
        summary: "Makes a database the replica of another server. Its own keys are lost when the primary's dataset arrives.",
        body: Some(one::<Primary>),
        reply: Answer::Json(one::<Replication>),
        action: "database.replicate",
        run: replicate,
        ..ADMIN
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/promote",
        summary: "Makes a replica a primary. It applies what it has received before it takes writes.",
        reply: Answer::Json(one::<Replication>),
        action: "database.promote",
        run: promote,
        ..ADMIN
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/switchover",
        summary: "Hands a primary's role to one of its replicas without losing a write, and follows it.",
        body: Some(one::<Switchover>),
        reply: Answer::Json(one::<Replication>),
        action: "database.switchover",
        run: switchover,
        ..ADMIN
    },
];

#[derive(Serialize, ToSchema)]
struct Replication {
    /// primary or replica.
    role: &'static str,
    /// The id of the stream of changes. Empty: no replica has asked for the stream yet.
    id: String,
    /// The length of the stream so far, in bytes.
    offset: u64,
    /// How many of the newest bytes of the stream are kept. A replica whose link was lost needs no full synchronisation if it
    /// misses no more than these.
    backlog_bytes: u64,
    /// Whether a switchover is under way: no-failover, waiting-for-sync or failover-in-progress.
    failover: &'static str,
    primary: Option<PrimaryInfo>,
    replicas: Vec<ReplicaInfo>,
}

#[derive(Serialize, ToSchema)]
struct PrimaryInfo {
    host: String,
    port: u16,
    /// connect, connecting, handshake, sync or connected.
    state: &'static str,
    is_up: bool,
    /// The time since the primary last sent something, in milliseconds; null: it has sent nothing yet.
    silent_ms: Option<u64>,
    /// How long the link has been down; null: it is up.
    down_ms: Option<u64>,
    /// The size of the dataset that is being received from the primary; 0: not known.
    sync_total_bytes: u64,
    /// How much of the primary's dataset was received.
    sync_bytes: u64,
    error: Option<String>,
    /// Commands of the primary that have failed here.
    failed_commands: u64,
}

#[derive(Serialize, ToSchema)]
struct ReplicaInfo {
    address: String,
    version: String,
    /// wait_bgsave, send_bulk, online or rdb_transmitted.
    state: &'static str,
    /// How many bytes of the stream the replica has confirmed.
    offset: u64,
    /// How many bytes of the stream the replica has not confirmed yet.
    lag_bytes: u64,
    /// The age of the oldest change that the replica has not confirmed yet, exact to a second.
    lag_ms: u64,
    /// The time since the replica last sent something, in milliseconds.
    silent_ms: u64,
    /// The size of the dataset that is being sent to the replica; 0: none is being sent.
    sync_total_bytes: u64,
    /// How much of the dataset was sent to the replica.
    sync_bytes: u64,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Primary {
    host: String,
    port: u16,
    /// The user on the primary. Missing: the default one.
    username: Option<String>,
    password: Option<String>,
    /// Whether the primary's port speaks TLS. Missing: no.
    tls: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Switchover {
    /// HOST:PORT of the replica that becomes the primary. Missing: the replica that has received most of the stream.
    to: Option<String>,
    /// The time that the replica has to catch up, in milliseconds. Missing: 10,000.
    timeout_ms: Option<u64>,
}

fn shown(cx: &Cx, database: &Database) -> Replication {
    let figures = database.replication_figures();
    let primary = figures.primary.map(|primary| {
        let PrimaryFigures { host, port, state, is_up, silent_ms, down_ms, .. } = primary;
        let PrimaryFigures { sync_total_bytes, sync_bytes, error, .. } = primary;
        PrimaryInfo {
            host,
            port,
            state,
            is_up,
            silent_ms,
            down_ms,
            sync_total_bytes,
            sync_bytes,
            error,
            failed_commands: figures.failed_commands,
        }
    });
    let replicas = figures.replicas.into_iter().map(|replica| {
        let ReplicaFigures { ip, port, version, state, offset, lag_bytes, silent_ms, sync_total_bytes, sync_bytes } =
            replica;
        ReplicaInfo {
            address: format!("{ip}:{port}"),
            version,
            state,
            offset,
            lag_bytes,
            lag_ms: cx.app.watch.lag_ms(database.name(), offset, cx.now_ms()),
            silent_ms,
            sync_total_bytes,
            sync_bytes,
        }
    });
    Replication {
        role: if primary.is_some() { "replica" } else { "primary" },
        id: figures.id,
        offset: figures.offset,
        backlog_bytes: figures.backlog.end - figures.backlog.start,
        failover: figures.failover,
        primary,
        replicas: replicas.collect(),
    }
}

fn link(cx: &Cx, database: &Database) -> Result<Link, ApiError> {
    Link::open(database, cx.role().on_database(), 0)
}

fn replicate(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: Primary = cx.body()?;
    let database = cx.own_database()?;
    let place = format!("{}:{}", wanted.host, wanted.port);
    cx.note(database.name(), format!("of {place}"));
    let mut link = link(cx, &database)?;
    let tls = if wanted.tls.unwrap_or(false) { "yes" } else { "no" };
    let (user, password) = (wanted.username.unwrap_or_default(), wanted.password.unwrap_or_default());
    let settings: [(&str, &str); 3] = [("masteruser", &user), ("masterauth", &password), ("tls-replication", tls)];
    for (name, value) in settings {
        link.call(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()])?;
    }
    link.call(&[b"REPLICAOF", wanted.host.as_bytes(), wanted.port.to_string().as_bytes()])?;
    answer(cx, &database, &mut link, format!("follows {place}"))
}

fn promote(cx: &Cx) -> Result<Reply, ApiError> {
    let database = cx.own_database()?;
    let mut link = link(cx, &database)?;
    if database.replication_figures().primary.is_none() {
        return Err(ApiError::busy(format!("'{}' is a primary already", database.name())));
    }
    link.call(&[b"REPLICAOF", b"NO", b"ONE"])?;
    answer(cx, &database, &mut link, "is a primary now".to_owned())
}

fn switchover(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: Switchover = cx.body()?;
    let database = cx.own_database()?;
    let timeout_ms = wanted.timeout_ms.unwrap_or(SWITCHOVER_MS);
    let millis = timeout_ms.to_string();
    let mut words: Vec<&[u8]> = vec![b"FAILOVER"];
    if let Some(to) = &wanted.to {
        let (host, port) = to.rsplit_once(':').ok_or_else(|| ApiError::field("to", "HOST:PORT is expected"))?;
        words.extend([&b"TO"[..], host.as_bytes(), port.as_bytes()]);
    }
    words.extend([&b"TIMEOUT"[..], millis.as_bytes()]);
    let mut link = link(cx, &database)?;
    link.call(&words)?;
    let until = Instant::now() + Duration::from_millis(timeout_ms) + Duration::from_secs(1);
    while database.replication_figures().failover != "no-failover" && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    match database.replication_figures().primary {
        Some(primary) => {
            let what = format!("has handed over to {}:{}, and follows it", primary.host, primary.port);
            answer(cx, &database, &mut link, what)
        }
        None => Err(ApiError::busy("no replica has taken over in time; the database remains the primary")
            .hint("see the log for the reason; a replica must be online and have received all writes")),
    }
}

/// Writes the role to the configuration file, if there is one, and returns what was done.
fn answer(cx: &Cx, database: &Database, link: &mut Link, what: String) -> Result<Reply, ApiError> {
    let kept = link.ask(&[b"CONFIG", b"REWRITE"])?;
    let event = match kept {
        Value::Error(_) => format!("{what}; without a configuration file, this is lost at a restart"),
        _ => what,
    };
    cx.app.event(Event::info("database", database.name(), event).severity(Severity::Warning).by(cx.user()));
    Reply::json(&shown(cx, database))
}
