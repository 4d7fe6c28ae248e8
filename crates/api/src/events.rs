//! Owns the log of events for operators, and the lines of the audit log: who changed what. Never knows the cause of an event.

use crate::clock::Clock;
use crate::lines::Lines;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    /// The database that the event is about. Empty: it is about the node.
    pub database: String,
    /// The user who has caused the event. Empty: no user has.
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

pub struct Events {
    now_ms: Clock,
    /// With the id of the newest event.
    written: Mutex<(Lines<Event>, u64)>,
}

impl Events {
    pub fn new(lines: Lines<Event>, now_ms: Clock) -> Events {
        let last = lines.newest().next().map_or(0, |event| event.id);
        Events { now_ms, written: Mutex::new((lines, last)) }
    }

    /// Gives the event its id and its time, and writes it.
    pub fn push(&self, mut event: Event) {
        let (lines, last) = &mut *self.written.lock();
        *last += 1;
        event.id = *last;
        event.at_ms = (self.now_ms)();
        if let Err(error) = lines.push(event) {
            tracing::error!("the events cannot be written: {error}");
        }
    }

    /// The newest events that fit, newest first, at most `count`.
    pub fn newest(&self, count: usize, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
        let (lines, _) = &*self.written.lock();
        lines.newest().filter(|event| fits(event)).take(count).cloned().collect()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Audited {
    pub at_ms: u64,
    /// The name of the user, or of the token that a program has used.
    pub user: String,
    pub role: String,
    pub address: String,
    /// The node of the cluster that was asked first and has checked the user; empty: this one.
    #[serde(default)]
    pub through: String,
    /// What was asked for, such as `database.create`.
    pub action: String,
    /// The name of what was to be changed: a database, user or rule, for example.
    pub target: String,
    /// Details of the request, and the reason if it has failed. Never a password or a value.
    pub detail: String,
    pub ok: bool,
}
