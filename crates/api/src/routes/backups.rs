//! Owns backups as resources: list, begin, progress. Never knows how a backup is made.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::route::{Answer, Method, Route, one, text};
use crate::text::size;
use node::{Backup, Database, EndedBackup, Node, NodeError, WantedBackup};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/backups",
        tag: "Backups",
        summary: "All backups below the node's backup-path, newest first, also those of databases that are deleted.",
        reply: Answer::Json(one::<AllBackups>),
        run: all,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/backups",
        tag: "Backups",
        summary: "The backups of a database, newest first, the one that is being made, and how the last one ended.",
        reply: Answer::Json(one::<Backups>),
        run: of_database,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/backups",
        role: Some(Role::Operator),
        tag: "Backups",
        summary: "Starts a backup of a database, which continues to serve clients. One at a time for each database.",
        body: Some(one::<NewBackup>),
        reply: Answer::Created(one::<RunningInfo>),
        action: "backup.create",
        run: begin,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/backups/verify",
        role: Some(Role::Operator),
        tag: "Backups",
        summary: "Reads a backup again, and compares it with its description. One at a time. For a large backup the request ends earlier, and an event has the result.",
        body: Some(one::<ThatBackup>),
        action: "backup.verify",
        run: verify,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/backups",
        role: Some(Role::Operator),
        tag: "Backups",
        summary: "Deletes a backup, which cannot be undone.",
        query: &[
            text("path", "Its directory below the node's backup-path."),
            text("confirm", "The same path again, so that no backup is deleted by mistake."),
        ],
        action: "backup.delete",
        run: delete,
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct AllBackups {
    /// The directory of all backups.
    directory: String,
    backups: Vec<BackupInfo>,
}

#[derive(Serialize, ToSchema)]
struct Backups {
    running: Option<RunningInfo>,
    /// The last backup that has ended since the node has started.
    last: Option<EndedInfo>,
    backups: Vec<BackupInfo>,
}

#[derive(Serialize, ToSchema)]
struct BackupInfo {
    /// The backup's directory, below the node's backup-path: the `from` of a new database.
    path: String,
    database: String,
    created_ms: u64,
    node_version: String,
    rdb_version: u32,
    keys: u64,
    bytes: u64,
    /// The checksum of dump.rdb.
    sha256: String,
    /// Made by the schedule. The node deletes such backups by itself.
    scheduled: bool,
    /// The moment of the backup. With the archived journal, a new database can get the dataset of a later moment too: its `at_ms`. null: the
    /// backup does not say where the journal continues, so no later moment can be restored.
    moment_ms: Option<u64>,
    /// The last moment that can be restored from this backup and the archived journal. null: only the moment of the backup.
    reaches_ms: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct RunningInfo {
    path: String,
    scheduled: bool,
    started_ms: u64,
    phase: Phase,
    /// How much is done of `total`: keys in the phase `writing`, bytes in the phase `verifying`.
    done: u64,
    total: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Writing,
    Verifying,
}

#[derive(Serialize, ToSchema)]
struct EndedInfo {
    path: String,
    scheduled: bool,
    started_ms: u64,
    took_ms: u64,
    /// Why the backup failed. null: it is made and verified.
    error: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBackup {
    /// A new directory below the node's backup-path. Missing: one with the database's name and the time.
    to: Option<String>,
    /// The version of the RDB format: 10 (Redis 7.0), 11 (7.2) or 12 (7.4). Missing: 12, the only one that has expiries of hash fields.
    rdb_version: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ThatBackup {
    /// Its directory below the node's backup-path.
    path: String,
}

fn cards(node: &Node, backups: Vec<Backup>) -> Vec<BackupInfo> {
    let reaches_ms = node.reaches_ms(&backups);
    backups.into_iter().zip(reaches_ms).map(|(backup, reaches_ms)| card(backup, reaches_ms)).collect()
}

fn card(backup: Backup, reaches_ms: Option<u64>) -> BackupInfo {
    let Backup { path, database, created_ms, node_version, rdb_version, keys, bytes, sha256, is_scheduled, cut } =
        backup;
    let moment_ms = cut.map(|cut| cut.at_ms);
    let scheduled = is_scheduled;
    BackupInfo {
        path,
        database,
        created_ms,
        node_version,
        rdb_version,
        keys,
        bytes,
        sha256,
        scheduled,
        moment_ms,
        reaches_ms,
    }
}

fn running(database: &Database) -> Option<RunningInfo> {
    let (running, done, total) = database.running_backup()?;
    let phase = if running.is_verifying() { Phase::Verifying } else { Phase::Writing };
    let (scheduled, started_ms) = (running.is_scheduled, running.started_ms);
    Some(RunningInfo { path: running.path.clone(), scheduled, started_ms, phase, done, total })
}

fn ended(ended: EndedBackup) -> EndedInfo {
    let EndedBackup { path, is_scheduled, started_ms, took_ms, outcome } = ended;
    EndedInfo { path, scheduled: is_scheduled, started_ms, took_ms, error: outcome.err() }
}

fn all(cx: &Cx) -> Result<Reply, ApiError> {
    let node = &cx.app.node;
    Reply::json(&AllBackups {
        directory: node.backup_path().display().to_string(),
        backups: cards(node, node.backups()),
    })
}

fn of_database(cx: &Cx) -> Result<Reply, ApiError> {
    let database = cx.database()?;
    // Read before the list, so that a backup that ends now is in at least one of the two.
    let running = running(&database);
    let node = &cx.app.node;
    let mut backups = node.backups();
    backups.retain(|backup| backup.database == database.name());
    Reply::json(&Backups { running, last: database.last_backup().map(ended), backups: cards(node, backups) })
}

fn begin(cx: &Cx) -> Result<Reply, ApiError> {
    let NewBackup { to, rdb_version } = cx.body()?;
    let database = cx.own_database()?;
    cx.note(database.name(), to.clone().unwrap_or_default());
    let begun = database.start_backup(&WantedBackup { to, rdb_version, is_scheduled: false }, cx.now_ms());
    let begun = begun.map_err(|error| match error {
        NodeError::Busy(why) => ApiError::busy(why).hint("try again later"),
        NodeError::NoRoom { message } => {
            ApiError::no_room(message).hint("free space there, or set backup-path to another file system")
        }
        error => error.into(),
    })?;
    cx.note(database.name(), begun.path.clone());
    let text = format!("a backup was started: {}", begun.path);
    cx.app.event(Event::info("backup", database.name(), text).by(cx.user()));
    Reply::created(&RunningInfo {
        path: begun.path.clone(),
        scheduled: false,
        started_ms: begun.started_ms,
        phase: Phase::Writing,
        done: 0,
        total: begun.keys_total,
    })
}

/// Only one verification at a time: two would compete for the same device.
static VERIFIES: AtomicBool = AtomicBool::new(false);

fn verify(cx: &Cx) -> Result<Reply, ApiError> {
    let ThatBackup { path } = cx.body()?;
    cx.note(path.clone(), "");
    if VERIFIES.swap(true, Relaxed) {
        return Err(ApiError::busy("another backup is being verified").hint("try again later"));
    }
    let verified = cx.app.node.verify_backup(&path);
    VERIFIES.store(false, Relaxed);
    let event = match &verified {
        Ok(backup) => {
            let text = format!("a backup was verified: {path}, {} keys, {}", backup.keys, size(backup.bytes));
            Event::info("backup", &backup.database, text)
        }
        Err(why) => {
            let of = path.split('/').next().unwrap_or_default();
            Event::info("backup", of, format!("a backup is damaged: {why}")).severity(Severity::Critical)
        }
    };
    cx.app.event(event.by(cx.user()));
    verified?;
    Ok(Reply::none())
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let path = cx.query("path").ok_or_else(|| ApiError::field("path", "is missing"))?.to_owned();
    cx.note(path.clone(), "");
    if cx.query("confirm") != Some(path.as_str()) {
        return Err(ApiError::field("confirm", "must be the path of the backup"));
    }
    let backup = cx.app.node.delete_backup(&path)?;
    let text = format!("a backup was deleted: {path}");
    cx.app.event(Event::info("backup", &backup.database, text).by(cx.user()));
    Ok(Reply::none())
}
