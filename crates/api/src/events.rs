//! Owns events for operators, and the audit log of who changed what. Never knows the cause of an event.

use crate::app::App;
use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::lines::{KEPT, Lines};
use crate::route::{Answer, Route, flag, list, number, text};
use crate::text::size;
use node::{Database, DatabaseState, Recovered, Rot};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/events",
        tag: "Events",
        summary: "What happened, newest first: databases, alerts, benchmarks, the node.",
        query: &[
            number("before_ms", "only what happened before"),
            number("count", "at most so many, 1 to 1000; 100 unless said"),
            text("kind", "only of this kind: node, database, replication, backup, alert, benchmark, webhook, user"),
            number("after_ms", "only what happened after"),
            text("database", "only of this database, and of the node"),
            flag("marked", "true: only what graphs show"),
        ],
        reply: Answer::Json(list::<Event>),
        run: events,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/audit",
        role: Some(Role::Admin),
        tag: "Events",
        summary: "Who changed what, newest first.",
        query: &[
            number("before_ms", "only what happened before"),
            number("count", "at most so many, 1 to 1000; 100 unless said"),
        ],
        reply: Answer::Json(list::<Audited>),
        run: audit,
        ..Route::BASE
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub id: u64,
    pub at_ms: u64,
    pub kind: String,
    pub severity: Severity,
    /// Empty: the node.
    pub database: String,
    /// Empty: nobody in particular.
    pub user: String,
    pub message: String,
    /// A word that graphs show at this moment: resize, paused, restarted and the like; empty: they show none.
    #[serde(default)]
    pub mark: String,
}

impl Event {
    pub fn info(kind: &str, database: &str, message: impl Into<String>) -> Event {
        Event {
            id: 0,
            at_ms: 0,
            kind: kind.to_owned(),
            severity: Severity::Info,
            database: database.to_owned(),
            user: String::new(),
            message: message.into(),
            mark: String::new(),
        }
    }

    #[must_use]
    pub fn mark(mut self, word: &str) -> Event {
        self.mark = word.to_owned();
        self
    }

    #[must_use]
    pub fn by(mut self, user: String) -> Event {
        self.user = user;
        self
    }

    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Event {
        self.severity = severity;
        self
    }
}

pub struct Events(Mutex<(Lines<Event>, u64)>);

impl Events {
    pub fn new(lines: Lines<Event>) -> Events {
        let last = lines.newest().next().map_or(0, |event| event.id);
        Events(Mutex::new((lines, last)))
    }

    pub fn push(&self, now_ms: u64, mut event: Event) {
        let (lines, last) = &mut *self.0.lock();
        *last += 1;
        event.id = *last;
        event.at_ms = now_ms;
        if let Err(error) = lines.push(event) {
            tracing::error!("the events cannot be written: {error}");
        }
    }
}

/// Writes events about datasets that were restored, and about backups that have ended. Called every second.
pub fn look(app: &App) {
    for database in app.node.databases() {
        if let Some(Recovered { keys, took_ms, from, to, records }) = database.take_recovered() {
            let after = if app.has_crashed { " after a crash" } else { "" };
            let seconds = took_ms as f64 / 1000.0;
            let text = format!(
                "restarted{after}: {keys} keys in {seconds:.1} s, journal replayed from {from} to {to}, {records} records"
            );
            let severity = if app.has_crashed { Severity::Warning } else { Severity::Info };
            app.event(Event::info("database", database.name(), text).severity(severity).mark("restarted"));
        }
        if let Some(text) = lost(app, &database) {
            app.event(Event::info("database", database.name(), text).severity(Severity::Warning));
        }
        for text in database.take_rot().iter().flat_map(damage) {
            app.event(Event::info("database", database.name(), text).severity(Severity::Critical));
        }
        for text in database.take_replication_news() {
            app.event(Event::info("replication", database.name(), text).severity(Severity::Critical));
        }
        for news in database.take_archive_news() {
            let event = match news {
                Ok(text) => Event::info("backup", database.name(), text),
                Err(text) => Event::info("backup", database.name(), text).severity(Severity::Critical),
            };
            app.event(event);
        }
        for ended in database.take_ended_backups() {
            let event = match &ended.outcome {
                Ok(backup) => {
                    let (path, keys, bytes) = (&backup.path, backup.keys, backup.bytes);
                    let text = format!("a backup is made and verified: {path}, {keys} keys, {}", size(bytes));
                    Event::info("backup", database.name(), text)
                }
                Err(why) => {
                    let text = format!("a backup failed: {why}");
                    Event::info("backup", database.name(), text).severity(Severity::Critical)
                }
            };
            app.event(event);
        }
    }
}

/// What a database without persistence has lost in a restart. Reported once, when the start is over.
fn lost(app: &App, database: &Database) -> Option<String> {
    if matches!(database.state(), DatabaseState::Loading { .. }) {
        return None;
    }
    let before = app.watch.take_keys_before(database.name())?;
    let loaded = database.keys_loaded();
    if before == 0 || loaded >= before || database.definition().persistence != "none" {
        return None;
    }
    let what = match loaded {
        0 => format!("restarted empty: {} gone, because its persistence is none", keys(before)),
        loaded => format!(
            "restarted with {} of a dump: it had {before} when the node ended, and what came after the dump is lost, because its \
             persistence is none",
            keys(loaded)
        ),
    };
    Some(what)
}

fn keys(count: u64) -> String {
    if count == 1 { "1 key".to_owned() } else { format!("{count} keys") }
}

/// Describes the damage that the scrubber has found.
fn damage(rot: &Rot) -> Vec<String> {
    let Rot { pages, keys, rescued, checkpoints, journals, backups } = *rot;
    let mut found = Vec::new();
    if pages > 0 {
        found.push(format!(
            "{pages} damaged pages were found on flash: {keys} keys have lost values, {rescued} more values are in RAM and \
             are written again; the log names the places"
        ));
    }
    if checkpoints > 0 {
        found.push(format!("the scrubber has found {checkpoints} damaged checkpoints; a new one is written"));
    }
    if journals > 0 {
        found.push(
            "the scrubber has found damage in the journal; a new checkpoint is written, which needs none of it"
                .to_owned(),
        );
    }
    if backups > 0 {
        found.push(format!(
            "the scrubber has found {backups} damaged files of backups or of the archived journal; the log names them: make a new \
             backup, and delete them"
        ));
    }
    found
}

fn events(cx: &Cx) -> Result<Reply, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = cx.number("count", 100, (1, KEPT))?;
    let after_ms = cx.number("after_ms", 0, (0, u64::MAX))?;
    let (kind, database, marked) = (cx.query("kind"), cx.query("database"), cx.flag("marked")?);
    let (lines, _) = &*cx.app.events.0.lock();
    let fits = |event: &&Event| {
        event.at_ms < before_ms
            && (after_ms == 0 || event.at_ms > after_ms)
            && kind.is_none_or(|kind| event.kind == kind)
            && database.is_none_or(|database| event.database.is_empty() || event.database == database)
            && !(marked && event.mark.is_empty())
    };
    Reply::json(&lines.newest().filter(fits).take(count).collect::<Vec<_>>())
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Audited {
    pub at_ms: u64,
    /// Of a token: its name.
    pub user: String,
    pub role: String,
    pub address: String,
    /// `database.create` and the like.
    pub action: String,
    /// The database, user or rule it was done to.
    pub target: String,
    /// What exactly, or why not. Never a password or a value.
    pub detail: String,
    pub ok: bool,
}

fn audit(cx: &Cx) -> Result<Reply, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = cx.number("count", 100, (1, KEPT))?;
    let lines = cx.app.audit.lock();
    Reply::json(&lines.newest().filter(|line| line.at_ms < before_ms).take(count).collect::<Vec<_>>())
}
