//! Owns databases as resources: list, create, change, pause, flush, delete. Never knows how a database is opened.

use crate::auth::Role;
use crate::condition::{Condition, Facts, Filling};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::link::Link;
use crate::route::{Answer, Method, Route, flag, one, text};
use crate::routes::node::{RoomInfo, room};
use crate::text::size;
use crate::words::{CodecWord, PolicyWord};
use base::{Codec, Policy};
use node::{Database, DatabaseState, Definition, DefinitionChange, NodeError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use utoipa::ToSchema;

/// The reply to a resize waits this long. A longer resize continues, and the reply tells its progress.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(3);
/// The default RAM share of the memory limit.
const RAM_PERCENT: u64 = 30;

const OPERATOR: Route = Route { role: Some(Role::Operator), tag: "Databases", ..Route::BASE };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/databases",
        tag: "Databases",
        summary: "All databases, the default one first, and the RAM and flash left for more.",
        reply: Answer::Json(one::<DatabaseList>),
        run: all,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases",
        summary: "Creates a database.",
        query: &[flag("dry_run", "true: only checks whether the database could be created")],
        body: Some(one::<NewDatabase>),
        reply: Answer::Created(one::<Db>),
        action: "database.create",
        run: create,
        ..OPERATOR
    },
    Route {
        path: "/api/v1/databases/{name}",
        tag: "Databases",
        summary: "One database.",
        reply: Answer::Json(one::<Db>),
        run: |cx| Reply::json(&card(cx, &*cx.database()?)),
        ..Route::BASE
    },
    Route {
        method: Method::Patch,
        path: "/api/v1/databases/{name}",
        summary: "Changes limits, policy, compression, password, backups, persistence or the target of a restart's time while the database serves clients. Its state is resizing while values move.",
        query: &[flag(
            "dry_run",
            "true: only checks whether the new limits could be set; whether the data fit is known only when they are.",
        )],
        body: Some(one::<DatabaseChange>),
        reply: Answer::Json(one::<Db>),
        action: "database.update",
        run: change,
        ..OPERATOR
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}",
        summary: "Deletes a database with all its data, which cannot be undone: POST …/backups first, and wait for its end.",
        query: &[text("confirm", "the database's name, once more")],
        action: "database.delete",
        run: delete,
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/pause",
        summary: "Pauses a database: clients get an error until it is resumed.",
        reply: Answer::Json(one::<Db>),
        action: "database.pause",
        run: |cx| pause(cx, true),
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/resume",
        summary: "Resumes a paused database.",
        reply: Answer::Json(one::<Db>),
        action: "database.resume",
        run: |cx| pause(cx, false),
        ..OPERATOR
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/flush",
        summary: "Deletes all keys of all logical databases of a database, which cannot be undone.",
        body: Some(one::<Confirmation>),
        reply: Answer::Json(one::<Db>),
        action: "database.flush",
        run: flush,
        ..OPERATOR
    },
];

#[derive(Serialize, ToSchema)]
struct DatabaseList {
    databases: Vec<Db>,
    /// Defined, and not served because they could not be opened.
    failed: Vec<FailedDatabase>,
    room: RoomInfo,
}

#[derive(Serialize, ToSchema)]
struct FailedDatabase {
    name: String,
    why: String,
}

#[derive(Serialize, ToSchema)]
pub struct Db {
    name: String,
    state: StateName,
    /// What it is and does, the worst first; never empty.
    conditions: Vec<Condition>,
    ram: Filling,
    /// The values on flash, and how much they may take.
    flash: Filling,
    /// While it is resizing or loading.
    progress: Option<Progress>,
    /// Why it has failed.
    failure: Option<String>,
    is_default: bool,
    /// It was started with a configuration file, which CONFIG REWRITE can write.
    has_file: bool,
    definition: DefinitionInfo,
    endpoints: Vec<EndpointInfo>,
    /// Every metric of the catalog as it is now; null where nothing is known.
    now: BTreeMap<&'static str, Option<f64>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateName {
    /// Its dataset is being loaded; a backup is read twice.
    Loading,
    /// Its dataset could not be loaded, so it serves nobody.
    Failed,
    Active,
    Paused,
    Resizing,
    Deleting,
}

#[derive(Serialize, ToSchema)]
struct Progress {
    done_bytes: u64,
    total_bytes: u64,
}

#[derive(Serialize, ToSchema)]
struct DefinitionInfo {
    port: u16,
    tls_port: u16,
    unixsocket: Option<String>,
    /// Empty: the node's.
    bind: Vec<String>,
    /// RAM and flash together.
    memory_limit_bytes: u64,
    ram_limit_bytes: u64,
    /// All files on flash; 0: what the other limits and the persistence need.
    flash_limit_bytes: u64,
    #[schema(value_type = PolicyWord)]
    policy: String,
    #[schema(value_type = CodecWord)]
    compression: String,
    has_password: bool,
    /// HOST:PORT of the primary that the database follows; empty: it is a primary.
    replica_of: String,
    shards: u32,
    replicas: u32,
    persistence: String,
    /// How long a restart should take at most; 0: no target.
    recovery_time_target_s: u32,
    /// How often the node makes a backup: 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never.
    backup_schedule: String,
    /// How many scheduled backups are kept.
    backup_keep: u32,
    /// For how long a database can be made of any moment between backups: 7d, 12h; empty: the journal is not archived.
    backup_journal_keep: String,
    zones: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct EndpointInfo {
    kind: String,
    address: String,
    /// A line for a shell.
    command: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewDatabase {
    /// Small letters, digits and dashes, 1 to 40.
    name: String,
    /// Missing: the next free one.
    port: Option<u16>,
    tls_port: Option<u16>,
    unixsocket: Option<String>,
    bind: Option<Vec<String>>,
    /// RAM and flash together.
    memory_limit_bytes: u64,
    /// Missing: 30 % of the memory limit, or all of it on a node without flash.
    ram_limit_bytes: Option<u64>,
    /// All files on flash: values, and with persistence the journal and two checkpoints. Missing or 0: what they need.
    flash_limit_bytes: Option<u64>,
    /// Missing: noeviction.
    #[schema(value_type = Option<PolicyWord>)]
    policy: Option<String>,
    /// Missing: lz4.
    #[schema(value_type = Option<CodecWord>)]
    compression: Option<String>,
    password: Option<String>,
    /// HOST:PORT of the primary that the database follows from its start. Missing: it is a primary. A primary that wants a login is
    /// followed with /databases/{name}/replicate.
    replica_of: Option<String>,
    shards: Option<u32>,
    replicas: Option<u32>,
    /// none, no, everysec or always. Missing: everysec with flash, otherwise none.
    persistence: Option<String>,
    /// How long a restart should take at most; 0: no target. Missing: 10.
    recovery_time_target_s: Option<u32>,
    /// Missing: no schedule.
    backup_schedule: Option<String>,
    /// Missing: 7.
    backup_keep: Option<u32>,
    /// 7d, 12h. Missing: the journal is not archived.
    backup_journal_keep: Option<String>,
    zones: Option<Vec<String>>,
    /// The backup that the database begins with: its directory below the node's backup-path. With at_ms it may be a directory of
    /// backups, such as a database's name.
    from: Option<String>,
    /// The moment whose dataset the database gets, in milliseconds since 1970: the newest backup before it, and the archived journal
    /// up to it. Missing: the moment of the backup.
    at_ms: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DatabaseChange {
    memory_limit_bytes: Option<u64>,
    ram_limit_bytes: Option<u64>,
    flash_limit_bytes: Option<u64>,
    #[schema(value_type = Option<PolicyWord>)]
    policy: Option<String>,
    #[schema(value_type = Option<CodecWord>)]
    compression: Option<String>,
    /// none, no, everysec or always, in a request of its own. The reply comes when the change is in effect, or after some seconds.
    persistence: Option<String>,
    /// 0: no target.
    recovery_time_target_s: Option<u32>,
    /// 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never.
    backup_schedule: Option<String>,
    backup_keep: Option<u32>,
    /// 7d, 12h; empty: the journal is not archived.
    backup_journal_keep: Option<String>,
    /// HOST:PORT of the primary to follow, whose dataset replaces this one; empty: it becomes a primary. In a request of its own.
    replica_of: Option<String>,
    /// null takes the password away.
    #[serde(default, deserialize_with = "crate::cx::given")]
    #[schema(value_type = Option<String>)]
    password: Option<Option<String>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    /// The database's name, once more.
    confirm: String,
}

pub fn card(cx: &Cx, database: &Database) -> Db {
    let definition = database.definition();
    let (figures, now) = (database.figures(), cx.app.watch.now(database.name()));
    let facts = Facts::of(database, &figures, now.get("refused").copied().flatten().is_some_and(|rate| rate > 0.0));
    let (state, progress) = match database.state() {
        DatabaseState::Loading { done_bytes, total_bytes } => {
            (StateName::Loading, Some(Progress { done_bytes, total_bytes }))
        }
        DatabaseState::Failed => (StateName::Failed, None),
        DatabaseState::Active => (StateName::Active, None),
        DatabaseState::Paused => (StateName::Paused, None),
        DatabaseState::Deleting => (StateName::Deleting, None),
        DatabaseState::Resizing { done_bytes, total_bytes } => {
            (StateName::Resizing, Some(Progress { done_bytes, total_bytes }))
        }
    };
    let has_password = definition.password.as_ref().is_some_and(|password| !password.is_empty());
    let endpoints = database.addresses().into_iter().map(|endpoint| EndpointInfo {
        command: command(endpoint.kind, &endpoint.address, has_password),
        kind: endpoint.kind.to_owned(),
        address: endpoint.address.clone(),
    });
    Db {
        name: database.name().to_owned(),
        state,
        conditions: facts.conditions(),
        ram: facts.ram(),
        flash: facts.flash(),
        progress,
        failure: database.load_failure(),
        has_file: database.config().file().is_some(),
        is_default: database.is_default(),
        endpoints: endpoints.collect(),
        definition: DefinitionInfo {
            port: definition.port,
            tls_port: definition.tls_port,
            unixsocket: definition.unixsocket.map(|path| path.display().to_string()),
            bind: definition.bind,
            memory_limit_bytes: definition.memory_limit_bytes,
            ram_limit_bytes: definition.ram_limit_bytes,
            flash_limit_bytes: definition.flash_limit_bytes,
            policy: definition.policy,
            compression: definition.compression,
            has_password,
            replica_of: definition.replica_of,
            shards: definition.shards,
            replicas: definition.replicas,
            persistence: definition.persistence,
            recovery_time_target_s: definition.recovery_time_target_s,
            backup_schedule: definition.backup_schedule,
            backup_keep: definition.backup_keep,
            backup_journal_keep: definition.backup_journal_keep,
            zones: definition.zones,
        },
        now,
    }
}

/// The command line to connect with. redis-cli asks for the password, so that no shell history holds it.
fn command(kind: &str, address: &str, has_password: bool) -> String {
    let ask = if has_password { " --askpass" } else { "" };
    if kind == "unix" {
        return format!("redis-cli -s {}{ask}", config::join_words(&[address]));
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "0.0.0.0" | "*" | "" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let tls = if kind == "tls" { " --tls" } else { "" };
    format!("redis-cli -h {host} -p {port}{tls}{ask}")
}

fn all(cx: &Cx) -> Result<Reply, ApiError> {
    let databases = cx.app.node.databases();
    let failed = cx.app.node.failed().into_iter().map(|(name, why)| FailedDatabase { name, why });
    Reply::json(&DatabaseList {
        databases: databases.iter().map(|database| card(cx, database)).collect(),
        failed: failed.collect(),
        room: room(cx),
    })
}

fn definition(cx: &Cx, wanted: NewDatabase) -> Definition {
    let has_flash = !cx.app.node.config().snapshot().flash_paths.is_empty();
    let ram_limit_bytes = wanted.ram_limit_bytes.unwrap_or_else(|| match has_flash {
        true => (u128::from(wanted.memory_limit_bytes) * u128::from(RAM_PERCENT) / 100) as u64,
        false => wanted.memory_limit_bytes,
    });
    Definition {
        name: wanted.name,
        port: wanted.port.unwrap_or(0),
        tls_port: wanted.tls_port.unwrap_or(0),
        unixsocket: wanted.unixsocket.map(PathBuf::from),
        bind: wanted.bind.unwrap_or_default(),
        memory_limit_bytes: wanted.memory_limit_bytes,
        ram_limit_bytes,
        flash_limit_bytes: wanted.flash_limit_bytes.unwrap_or(0),
        policy: wanted.policy.unwrap_or_else(|| Policy::NoEviction.as_str().to_owned()),
        compression: wanted.compression.unwrap_or_else(|| Codec::Lz4.as_str().to_owned()),
        password: wanted.password.filter(|password| !password.is_empty()).map(|text| config::word(text.as_bytes())),
        shards: wanted.shards.unwrap_or(1),
        replicas: wanted.replicas.unwrap_or(0),
        persistence: wanted.persistence.unwrap_or_else(|| {
            match has_flash && ram_limit_bytes < wanted.memory_limit_bytes {
                true => "everysec".to_owned(),
                false => "none".to_owned(),
            }
        }),
        recovery_time_target_s: wanted.recovery_time_target_s.unwrap_or(Definition::default().recovery_time_target_s),
        backup_schedule: wanted.backup_schedule.unwrap_or_default(),
        backup_keep: wanted.backup_keep.unwrap_or(Definition::default().backup_keep),
        backup_journal_keep: wanted.backup_journal_keep.unwrap_or_default(),
        zones: wanted.zones.unwrap_or_default(),
        from: wanted.from,
        at_ms: wanted.at_ms,
        replica_of: wanted.replica_of.unwrap_or_default(),
    }
}

fn create(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: NewDatabase = cx.body()?;
    let dry_run = cx.flag("dry_run")?;
    let definition = definition(cx, wanted);
    if dry_run {
        cx.unaudited();
        cx.app.node.plan(&definition)?;
        return Ok(Reply::none());
    }
    let limits = format!("memory {}, RAM {}", size(definition.memory_limit_bytes), size(definition.ram_limit_bytes));
    cx.note(definition.name.clone(), limits.clone());
    let database = cx.app.node.create(&definition)?;
    cx.note(database.name(), format!("port {}, {limits}", database.definition().port));
    let of = &definition.replica_of;
    let of = if of.is_empty() { String::new() } else { format!(" as a replica of {of}") };
    let from = definition.from.map_or(String::new(), |from| format!(" from the backup {from}"));
    let at = definition.at_ms.map_or(String::new(), |at_ms| format!(", as it was at {}", base::time::instant(at_ms)));
    let text = format!("the database was created{from}{at}{of}");
    cx.app.event(Event::info("database", database.name(), text).by(cx.user()));
    Reply::created(&card(cx, &database))
}

fn change(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: DatabaseChange = cx.body()?;
    let database = cx.database()?;
    let mut changed: Vec<String> = Vec::new();
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
    changed.extend(number("memory_limit_bytes", wanted.memory_limit_bytes));
    changed.extend(number("ram_limit_bytes", wanted.ram_limit_bytes));
    changed.extend(number("flash_limit_bytes", wanted.flash_limit_bytes));
    changed.extend(wanted.policy.as_ref().map(|policy| format!("policy {policy}")));
    changed.extend(wanted.compression.as_ref().map(|compression| format!("compression {compression}")));
    changed.extend(wanted.persistence.as_ref().map(|persistence| format!("persistence {persistence}")));
    changed.extend(number("recovery_time_target_s", wanted.recovery_time_target_s.map(u64::from)));
    changed.extend(wanted.backup_schedule.as_ref().map(|schedule| format!("backup_schedule '{schedule}'")));
    changed.extend(wanted.backup_keep.map(|keep| format!("backup_keep {keep}")));
    changed.extend(wanted.backup_journal_keep.as_ref().map(|keep| format!("backup_journal_keep '{keep}'")));
    changed.extend(wanted.replica_of.as_ref().map(|primary| format!("replica_of '{primary}'")));
    changed.extend(wanted.password.as_ref().map(|_| "password".to_owned()));
    if changed.is_empty() {
        return Err(ApiError::invalid("the request changes nothing"));
    }
    let changed = changed.join(", ");
    cx.note(database.name(), changed.clone());
    let change = DefinitionChange {
        memory_limit_bytes: wanted.memory_limit_bytes,
        ram_limit_bytes: wanted.ram_limit_bytes,
        flash_limit_bytes: wanted.flash_limit_bytes,
        policy: wanted.policy,
        compression: wanted.compression,
        persistence: wanted.persistence,
        recovery_time_target_s: wanted.recovery_time_target_s,
        backup_schedule: wanted.backup_schedule,
        backup_keep: wanted.backup_keep,
        backup_journal_keep: wanted.backup_journal_keep,
        replica_of: wanted.replica_of,
        password: wanted.password,
    };
    if cx.flag("dry_run")? {
        cx.unaudited();
        cx.app.node.plan_resize(database.name(), &change)?;
        return Reply::json(&card(cx, &database));
    }
    let is_resize =
        [change.memory_limit_bytes, change.ram_limit_bytes, change.flash_limit_bytes].iter().any(Option::is_some);
    let mark = if is_resize { "resized" } else { "changed" };
    let (done, outcome) = mpsc::channel::<Result<(), NodeError>>();
    let (app, name, user) = (std::sync::Arc::clone(&cx.app), database.name().to_owned(), cx.user());
    std::thread::spawn(move || {
        let result = app.node.resize(&name, &change);
        let why = result.as_ref().err().map(ToString::to_string);
        // Nobody waits any more, so an event reports the result.
        if let (Err(_), why) = (done.send(result), why) {
            let event = match why {
                None => Event::info("database", &name, "the change is done").mark(mark),
                Some(why) => {
                    Event::info("database", &name, format!("the change failed: {why}")).severity(Severity::Warning)
                }
            };
            app.event(event.by(user));
        }
    });
    if let Ok(result) = outcome.recv_timeout(RESIZE_TIMEOUT) {
        result?;
        cx.app.event(Event::info("database", database.name(), format!("changed: {changed}")).by(cx.user()).mark(mark));
    }
    Reply::json(&card(cx, &database))
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let database = cx.database()?;
    if database.is_default() {
        return Err(ApiError::unsupported("the default database cannot be deleted").hint("flush it, or stop the node"));
    }
    confirmed(cx.query("confirm").unwrap_or(""), "the database and all its data", &database)?;
    cx.app.node.delete(database.name())?;
    cx.app.event(
        Event::info("database", database.name(), "the database was deleted").severity(Severity::Warning).by(cx.user()),
    );
    Ok(Reply::none())
}

/// What cannot be undone is told, and a backup offered.
fn confirmed(given: &str, lost: &str, database: &Database) -> Result<(), ApiError> {
    let name = database.name();
    if given == name {
        return Ok(());
    }
    Err(ApiError::field(
        "confirm",
        format!("this deletes {lost}, which cannot be undone: give confirm={name} to be sure"),
    )
    .hint(format!("flintkv database backup {name}, or POST /api/v1/databases/{name}/backups, makes a backup first")))
}

fn pause(cx: &Cx, paused: bool) -> Result<Reply, ApiError> {
    let database = cx.database()?;
    if paused {
        cx.app.node.pause(database.name())?;
    } else {
        cx.app.node.resume(database.name())?;
    }
    let what = if paused { "paused" } else { "resumed" };
    cx.app.event(Event::info("database", database.name(), what).by(cx.user()).mark(what));
    Reply::json(&card(cx, &database))
}

fn flush(cx: &Cx) -> Result<Reply, ApiError> {
    let Confirmation { confirm } = cx.body()?;
    let database = cx.database()?;
    confirmed(&confirm, "all its keys", &database)?;
    Link::open(&database, cx.role().on_database(), 0)?.call(&[b"FLUSHALL"])?;
    cx.app.event(
        Event::info("database", database.name(), "all keys were deleted")
            .severity(Severity::Warning)
            .by(cx.user())
            .mark("flushed"),
    );
    Reply::json(&card(cx, &database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
        assert_eq!(command("tcp", "127.0.0.1:6380", false), "redis-cli -h 127.0.0.1 -p 6380");
        assert_eq!(command("tls", "[::]:6380", true), "redis-cli -h ::1 -p 6380 --tls --askpass");
        assert_eq!(command("tcp", "0.0.0.0:6380", false), "redis-cli -h 127.0.0.1 -p 6380");
        assert_eq!(command("unix", "/run/a b.sock", false), "redis-cli -s \"/run/a b.sock\"");
    }

    #[test]
    fn null_removes_the_password_and_missing_keeps_it() {
        let change = |text| serde_json::from_str::<DatabaseChange>(text).unwrap().password;
        assert_eq!(change("{}"), None);
        assert_eq!(change("{\"password\":null}"), Some(None));
        assert_eq!(change("{\"password\":\"x\"}"), Some(Some("x".into())));
    }
}
