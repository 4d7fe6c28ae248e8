//! Owns databases as resources: list, create, change, pause, flush, delete. Never knows how a database is opened.

use crate::auth::Role;
use crate::condition::{Condition, Facts, Filling};
use crate::cx::{Cx, Reply};
use crate::definition::{DatabaseChange, DefinitionInfo, NewDatabase};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::link::Link;
use crate::route::{Answer, Method, Route, flag, list, one, text};
use crate::routes::cluster::{self, PlacementInfo, ShardInfo};
use crate::routes::node::{RoomInfo, room};
use crate::text::size;
use ::cluster::failover::CopyAnswer;
use ::cluster::ids::{CopyNumber, NodeId, ShardNumber, ShardUid, shard_uid};
use ::cluster::records::{Assignment, ShardRecord};
use ::cluster::view::View;
use agent::Agent;
use config::definition::{Definition, Field, Form};
use node::{Database, DatabaseState, NodeError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
        dry_run_reply: Some(one::<PlacementInfo>),
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
        summary: "Changes limits, policy, compression, password, backups, persistence or the target of a restart's time while the database serves clients. Its state is resizing while values move. replica_of needs the role admin.",
        query: &[flag(
            "dry_run",
            "true: only checks whether the new limits could be set. Whether the data fit is known only when the limits are set.",
        )],
        body: Some(one::<DatabaseChange>),
        reply: Answer::Json(one::<Db>),
        dry_run_reply: Some(one::<PlacementInfo>),
        action: "database.update",
        run: change,
        ..OPERATOR
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}",
        summary: "Deletes a database with all its data, which cannot be undone. Make a backup first with POST …/backups, and wait for its end.",
        query: &[text("confirm", "the database's name again")],
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
        path: "/api/v1/databases/{name}/shards",
        tag: "Databases",
        summary: "The shards of a database of the cluster, each with what its node says of it.",
        reply: Answer::Json(list::<ShardFigures>),
        run: shards,
        ..Route::BASE
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
    /// Of a database of the cluster.
    shards: Option<Vec<ShardInfo>>,
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
struct EndpointInfo {
    kind: String,
    address: String,
    /// A line for a shell.
    command: String,
}

/// A shard of a database, and its figures; null: the shard does not answer.
#[derive(Serialize, ToSchema)]
struct ShardFigures {
    number: u16,
    node: String,
    epoch: u64,
    is_served: bool,
    keys: Option<u64>,
    used_ram_bytes: Option<u64>,
    ram_limit_bytes: Option<u64>,
    used_flash_bytes: Option<u64>,
    values_in_ram: Option<u64>,
    values_in_ram_percent: Option<f64>,
    ram_hit_percent: Option<f64>,
    ops_per_s: Option<u64>,
    /// Why it does not answer.
    trouble: Option<String>,
    /// Where it is, the primary first.
    copies: Vec<CopyInfo>,
}

/// A copy of a shard.
#[derive(Serialize, ToSchema)]
struct CopyInfo {
    node: String,
    /// primary or replica.
    role: &'static str,
    /// What its node says of it.
    state: String,
    /// A failover may make it the primary: it has every acknowledged write.
    is_in_sync: bool,
    /// The bytes of the shard's stream that it has; null: the shard has no replicas, or the node does not say it.
    offset: Option<u64>,
    /// The bytes that it has not received yet.
    lag_bytes: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    /// The database's name, once more.
    confirm: String,
}

pub fn card(cx: &Cx, database: &Database) -> Db {
    let (definition, shards, unserved) =
        of_cluster(cx, database).unwrap_or_else(|| (database.definition(), None, Vec::new()));
    let figures = cx.app.watch.judged(database, database.figures());
    let now = cx.app.watch.now(database.name());
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
    let (mut ram, mut flash) = (facts.ram(), facts.flash());
    if shards.is_some() {
        let value = |name: &str| now.get(name).copied().flatten();
        let is_full = |name: &str| value(name).is_some_and(|full| full > 0.0);
        let ram_limit = definition.ram_limit_bytes;
        let flash_limit = definition.memory_limit_bytes.saturating_sub(ram_limit);
        ram = facts.of_shards(value("used_ram_bytes"), ram_limit, is_full("ram_full")).unwrap_or(ram);
        flash = facts.of_shards(value("used_flash_bytes"), flash_limit, is_full("flash_full")).unwrap_or(flash);
    }
    let has_password = definition.password.as_ref().is_some_and(|password| !password.is_empty());
    let endpoints = database.addresses().into_iter().map(|endpoint| EndpointInfo {
        command: command(endpoint.kind, &endpoint.address, has_password),
        kind: endpoint.kind.to_owned(),
        address: endpoint.address.clone(),
    });
    Db {
        name: database.name().to_owned(),
        state,
        conditions: facts.conditions_and(unserved),
        ram,
        flash,
        progress,
        failure: database.load_failure(),
        has_file: database.config().file().is_some(),
        is_default: database.is_default(),
        endpoints: endpoints.collect(),
        definition: DefinitionInfo { definition, has_password },
        shards,
        now,
    }
}

/// The definition and the shards of a database of the cluster, and why some are not served: its endpoint here knows nothing of that.
fn of_cluster(cx: &Cx, database: &Database) -> Option<(Definition, Option<Vec<ShardInfo>>, Vec<Condition>)> {
    let status = cx.app.agent.as_ref().filter(|_| database.is_of_cluster())?.status().ok()?;
    let (_, found) = status.view.named(database.name())?;
    let definition = found.spec.as_ref()?.definition();
    let shards = cluster::shards(&status.view, found);
    let unserved = cluster::unserved(&status.view, &shards);
    Some((definition, Some(shards), unserved))
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
    let mut failed: Vec<FailedDatabase> =
        cx.app.node.failed().into_iter().map(|(name, why)| FailedDatabase { name, why }).collect();
    failed.extend(without_endpoint(cx));
    Reply::json(&DatabaseList {
        databases: databases.iter().map(|database| card(cx, database)).collect(),
        failed,
        room: room(cx),
    })
}

/// The databases of the cluster that clients cannot reach at this node.
fn without_endpoint(cx: &Cx) -> Vec<FailedDatabase> {
    let Some(status) = cx.app.agent.as_ref().and_then(|agent| agent.status().ok()) else { return Vec::new() };
    let trouble = |((id, shard), why): (&(_, Option<_>), &String)| {
        let spec = status.view.databases.get(id)?.spec.as_ref().filter(|_| shard.is_none())?;
        Some(FailedDatabase { name: spec.name.to_string(), why: why.clone() })
    };
    status.troubles.iter().filter_map(trouble).collect()
}

/// The definition that is asked for, completed by what only the node knows.
fn definition(cx: &Cx, NewDatabase(mut new): NewDatabase) -> Definition {
    let has_flash = !cx.app.node.config().snapshot().flash_paths.is_empty();
    let memory = new.memory_limit_bytes;
    let ram = *new.ram_limit_bytes.get_or_insert(match has_flash {
        true => (u128::from(memory) * u128::from(RAM_PERCENT) / 100) as u64,
        false => memory,
    });
    let on_flash = has_flash && ram < memory;
    new.persistence.get_or_insert_with(|| if on_flash { "everysec" } else { "none" }.to_owned());
    let definition = Definition::from(new);
    let password = definition.password.filter(|password| !password.is_empty());
    Definition { password: password.map(|text| config::word(text.as_bytes())), ..definition }
}

fn create(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: NewDatabase = cx.body()?;
    let dry_run = cx.flag("dry_run")?;
    let definition = definition(cx, wanted);
    if let Some(agent) = cluster::agent_of_member(cx)? {
        return create_in_cluster(cx, agent, &definition, dry_run);
    }
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

/// On a member of a cluster, every new database is the cluster's.
fn create_in_cluster(cx: &Cx, agent: &Agent, definition: &Definition, dry_run: bool) -> Result<Reply, ApiError> {
    if dry_run {
        cx.unaudited();
        return Reply::json(&cluster::placement(&agent.plan(definition)?));
    }
    let limits = format!("memory {}, RAM {}", size(definition.memory_limit_bytes), size(definition.ram_limit_bytes));
    cx.note(definition.name.clone(), format!("{} shards, {limits}", definition.shards));
    agent.create(definition, &cx.user())?;
    let database = cx.database_named(&definition.name)?;
    let text = format!("the database was created with {} shards", definition.shards);
    cx.app.event(Event::info("database", database.name(), text).by(cx.user()));
    Reply::created(&card(cx, &database))
}

/// A changed field, for the audit log and the event.
fn noted(field: &Field, value: &str) -> String {
    match field.form {
        Form::Password => field.name.to_owned(),
        Form::Text | Form::Primary => format!("{} '{value}'", field.name),
        _ => format!("{} {value}", field.name),
    }
}

fn change(cx: &Cx) -> Result<Reply, ApiError> {
    let DatabaseChange(change) = cx.body()?;
    let database = cx.database()?;
    let changed: Vec<String> = change.words().iter().map(|(field, words)| noted(field, &words.concat())).collect();
    if changed.is_empty() {
        return Err(ApiError::invalid("the request changes nothing"));
    }
    let changed = changed.join(", ");
    cx.note(database.name(), changed.clone());
    // Its own keys are lost when it follows another server, so this needs what POST …/replicate and …/promote need.
    if change.replica_of.is_some() && cx.role() < Role::Admin {
        return Err(ApiError::role(Role::Admin.name(), &cx.user(), cx.role().name()));
    }
    if cx.flag("dry_run")? {
        cx.unaudited();
        if database.is_of_cluster() {
            return Reply::json(&cluster::placement(&cluster::agent(cx)?.plan_resize(database.name(), &change)?));
        }
        cx.app.node.plan_resize(database.name(), &change)?;
        return Reply::json(&card(cx, &database));
    }
    if database.is_of_cluster() {
        if !cluster::agent(cx)?.resize(database.name(), &change, &cx.user())? {
            cx.note_more("; a node that does not run follows when it is back");
        }
        cx.app.event(
            Event::info("database", database.name(), format!("changed: {changed}")).by(cx.user()).mark("resized"),
        );
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
    let name = cx.param("name");
    // Also if its endpoint here could not be opened.
    if let Ok(agent) = cluster::agent(cx)
        && agent.has(name)
    {
        confirmed(cx.query("confirm").unwrap_or(""), "the database and all its data", name)?;
        if !agent.delete(name, &cx.user())? {
            cx.note_more("; a node that does not run deletes its shards when it is back");
        }
    } else {
        let database = cx.database()?;
        if database.is_default() {
            let why = "the default database cannot be deleted";
            return Err(ApiError::unsupported(why).hint("flush it, or stop the node"));
        }
        confirmed(cx.query("confirm").unwrap_or(""), "the database and all its data", name)?;
        cx.app.node.delete(name)?;
    }
    let event = Event::info("database", name, "the database was deleted");
    cx.app.event(event.severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

/// What cannot be undone is told, and a backup offered.
fn confirmed(given: &str, lost: &str, name: &str) -> Result<(), ApiError> {
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
    if database.is_of_cluster() {
        cluster::agent(cx)?.set_paused(database.name(), paused, &cx.user())?;
    } else if paused {
        cx.app.node.pause(database.name())?;
    } else {
        cx.app.node.resume(database.name())?;
    }
    let what = if paused { "paused" } else { "resumed" };
    cx.app.event(Event::info("database", database.name(), what).by(cx.user()).mark(what));
    Reply::json(&card(cx, &database))
}

fn shards(cx: &Cx) -> Result<Reply, ApiError> {
    let agent = cluster::agent(cx)?;
    let status = agent.status().map_err(|error| ApiError::unsupported(error.to_string()))?;
    let name = cx.param("name");
    let (id, found) = status.view.named(name).ok_or_else(|| {
        ApiError::not_found(format!("the cluster has no database '{name}'"))
            .hint("a database of this node alone has no shards")
    })?;
    let said = agent.shard_copies(id).map_err(|error| ApiError::unsupported(error.to_string()))?;
    let infos = agent.shard_infos(id, "everything").map_err(|error| ApiError::unsupported(error.to_string()))?;
    let figures = |(shard, info): (ShardInfo, Result<String, String>)| {
        let text = info.as_ref().map_or("", String::as_str);
        let value = |field: &str| text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let whole = |field: &str| value(field).and_then(|value| value.parse().ok());
        let part = |field: &str| value(field).and_then(|value| value.parse().ok());
        // `db0:keys=1,…`, a line for each logical database.
        let keys = |line: &str| line.strip_prefix("db")?.split_once(":keys=")?.1.split(',').next()?.parse::<u64>().ok();
        ShardFigures {
            number: shard.number,
            node: shard.node,
            epoch: shard.epoch,
            is_served: shard.is_served,
            keys: info.is_ok().then(|| text.lines().filter_map(keys).sum()),
            used_ram_bytes: whole("used_ram"),
            ram_limit_bytes: whole("ram_limit"),
            used_flash_bytes: whole("used_flash"),
            values_in_ram: whole("values_in_ram"),
            values_in_ram_percent: part("values_in_ram_perc"),
            ram_hit_percent: part("ram_hit_ratio"),
            ops_per_s: whole("instantaneous_ops_per_sec"),
            trouble: shard.advice.or(info.err()),
            copies: found.shards.get(&ShardNumber(shard.number)).map_or_else(Vec::new, |record| {
                copies(&status.view, shard_uid(id, ShardNumber(shard.number)), record, &said)
            }),
        }
    };
    let shards = cluster::shards(&status.view, found).into_iter().zip(infos);
    Reply::json(&shards.map(figures).collect::<Vec<_>>())
}

/// `said`: what the nodes say of their copies.
fn copies(
    view: &View,
    shard: ShardUid,
    record: &ShardRecord,
    said: &BTreeMap<NodeId, Vec<CopyAnswer>>,
) -> Vec<CopyInfo> {
    let of = |node: NodeId, copy: CopyNumber| {
        let mut answers = said.get(&node)?.iter();
        answers.find(|answer| answer.shard == shard && answer.report.copy == copy)
    };
    let end = record.primary_node().and_then(|node| of(node, record.primary)).map(|answer| answer.report.received);
    let copy = |assigned: &Assignment| {
        let answer = of(assigned.node, assigned.copy);
        let is_primary = assigned.copy == record.primary;
        let state = match answer {
            Some(answer) => answer.state.clone(),
            None if !view.live.contains_key(&assigned.node) => "its node does not run".to_owned(),
            None if record.assignments.len() > 1 => "is being opened".to_owned(),
            None if view.is_served(record) => "serves".to_owned(),
            None => "does not serve".to_owned(),
        };
        let offset = answer.map(|answer| answer.report.received);
        let members = || record.in_sync.iter().filter(|member| member.copy == assigned.copy);
        CopyInfo {
            node: view.node_name(assigned.node),
            role: if is_primary { "primary" } else { "replica" },
            state,
            is_in_sync: match answer {
                Some(answer) => members().any(|member| member.incarnation == answer.report.incarnation),
                None => members().next().is_some(),
            },
            offset,
            lag_bytes: end.zip(offset).map(|(end, offset)| end.saturating_sub(offset)),
        }
    };
    let mut copies: Vec<CopyInfo> = record.assignments.iter().map(copy).collect();
    copies.sort_by_key(|copy| copy.role);
    copies
}

fn flush(cx: &Cx) -> Result<Reply, ApiError> {
    let Confirmation { confirm } = cx.body()?;
    let database = cx.database()?;
    confirmed(&confirm, "all its keys", database.name())?;
    if database.is_of_cluster() {
        if !cluster::agent(cx)?.flush(database.name(), &cx.user())? {
            cx.note_more("; a node that does not run deletes its keys when it is back");
        }
    } else {
        Link::open(&database, cx.role().on_database(), 0)?.call(&[b"FLUSHALL"])?;
    }
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
}
