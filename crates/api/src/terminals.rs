//! Owns the connections of command lines, each with its state: a transaction, watched keys, the logical database, and a
//! stream of messages. Never knows a route.
//!
//! A browser may disappear without closing its terminal. So a terminal that was not used for [`IDLE_MS`] is closed, and the
//! number of terminals is bounded.

use crate::auth::{Role, Who, random};
use crate::error::ApiError;
use crate::link::{Link, text};
use crate::stream::LiveStream;
use commands::row::Row;
use node::Database;
use parking_lot::Mutex;
use resp::client::Value;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use utoipa::ToSchema;

/// A terminal ends after this time without a request.
pub const IDLE_MS: u64 = 10 * 60 * 1000;
/// A stream ends if it was not read for so long, because MONITOR costs the database work with every command. Browsers let a
/// page in the background send a request only once a minute.
pub const UNREAD_MS: u64 = 2 * 60 * 1000;
/// The most terminals of one user. A new one replaces the one that was idle longest.
const EACH_MAX: usize = 8;
/// The most terminals of all users. Each may have a thread and a buffer for its stream.
const ALL_MAX: usize = 32;

#[derive(Default)]
pub struct Terminals(Mutex<HashMap<String, Arc<Terminal>>>);

pub struct Terminal {
    pub id: String,
    /// Says whether the owner is a user or a token, because both may have the same name.
    owner: String,
    role: Role,
    database: String,
    used_ms: AtomicU64,
    /// Locked while a command runs.
    pub line: Mutex<Line>,
    pub listening: Mutex<Listening>,
}

/// The connection for commands, and its state.
pub struct Line {
    link: Link,
    pub db: u32,
    pub transaction: Option<Transaction>,
    pub is_watching: bool,
    /// A SELECT is queued in the transaction.
    selects: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Transaction {
    pub queued: u32,
    /// A command was refused, so EXEC will refuse all of them.
    pub is_broken: bool,
}

#[derive(Default)]
pub struct Listening {
    pub stream: Option<LiveStream>,
    /// The number of the last row of the earlier streams. A new stream continues the numbers, so that a reader cannot
    /// confuse its rows with older ones.
    pub after: u64,
    /// When the stream was last read.
    pub read_ms: u64,
}

impl Listening {
    pub fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.after = stream.last();
        }
    }
}

fn owner(who: &Who) -> String {
    who.token().map_or_else(|| format!("user {}", who.name), |id| format!("token {id}"))
}

impl Terminals {
    pub fn open(&self, who: &Who, database: &Database, db: u32, now_ms: u64) -> Result<Arc<Terminal>, ApiError> {
        let line = Line::open(database, who.role, db)?;
        let terminal = Arc::new(Terminal {
            id: random(16),
            owner: owner(who),
            role: who.role,
            database: database.name().to_owned(),
            used_ms: AtomicU64::new(now_ms),
            line: Mutex::new(line),
            listening: Mutex::default(),
        });
        // Closed after the lock is released.
        let mut quietest = None;
        let mut open = self.0.lock();
        let own = || open.values().filter(|other| other.owner == terminal.owner);
        if own().count() >= EACH_MAX {
            quietest = own().min_by_key(|other| other.used_ms.load(Relaxed)).map(|other| other.id.clone());
        }
        let quietest = quietest.and_then(|id| open.remove(&id));
        if open.len() >= ALL_MAX {
            let text = format!("{ALL_MAX} command lines are open, the most that this node keeps");
            return Err(ApiError::rate_limited(text, 60).hint("close one, or use redis-cli"));
        }
        open.insert(terminal.id.clone(), Arc::clone(&terminal));
        drop(open);
        drop(quietest);
        Ok(terminal)
    }

    /// The terminal of this user. For another user's terminal, the error is the same as if it did not exist.
    pub fn find(&self, who: &Who, database: &str, id: &str, now_ms: u64) -> Result<Arc<Terminal>, ApiError> {
        let found = self.0.lock().get(id).cloned();
        let found = found.filter(|terminal| terminal.owner == owner(who) && terminal.database == database);
        let closed =
            |why: &str| ApiError::not_found(why).hint("open a new one; its transaction, WATCH and SELECT are lost");
        let terminal = found.ok_or_else(|| closed("this command line's connection is closed"))?;
        if terminal.role != who.role {
            self.close(id);
            return Err(closed("this command line's connection is closed: your role has changed"));
        }
        terminal.used_ms.fetch_max(now_ms, Relaxed);
        Ok(terminal)
    }

    pub fn close(&self, id: &str) {
        let closed = self.0.lock().remove(id);
        drop(closed);
    }

    /// Called every second: closes unused terminals and streams.
    pub fn look(&self, now_ms: u64) {
        let mut idle = Vec::new();
        let mut open = self.0.lock();
        open.retain(|_, terminal| {
            let is_idle = terminal.used_ms.load(Relaxed) + IDLE_MS <= now_ms;
            if is_idle {
                idle.push(Arc::clone(terminal));
            }
            !is_idle
        });
        let rest: Vec<Arc<Terminal>> = open.values().cloned().collect();
        drop(open);
        drop(idle);
        for terminal in rest {
            // If it is locked, a handler is using it.
            let Some(mut listening) = terminal.listening.try_lock() else { continue };
            if listening.read_ms + UNREAD_MS <= now_ms {
                listening.close();
            }
        }
    }
}

impl Line {
    pub fn open(database: &Database, role: Role, db: u32) -> Result<Line, ApiError> {
        let link = Link::open(database, role.on_database(), db)?;
        Ok(Line { link, db, transaction: None, is_watching: false, selects: false })
    }

    /// Sends a command, returns its reply, and tracks the state of the connection. After an error the connection cannot
    /// be used.
    pub fn ask(&mut self, row: Option<&Row>, words: &[&[u8]]) -> Result<Value, ApiError> {
        self.link.renew();
        let value = self.link.ask(words)?;
        let name = row.map_or("", |row| row.name);
        let is_error = matches!(value, Value::Error(_));
        match (name, &mut self.transaction) {
            ("exec", transaction) => {
                // EXEC ends the transaction whatever it replies.
                *transaction = None;
                self.is_watching = false;
                if std::mem::take(&mut self.selects) {
                    self.db = self.db_of_connection()?;
                }
            }
            ("discard", transaction) if !is_error => {
                *transaction = None;
                (self.is_watching, self.selects) = (false, false);
            }
            // These commands are refused inside a transaction, and the transaction stays open.
            ("multi" | "watch", Some(_)) => {}
            (_, Some(transaction)) if is_error => transaction.is_broken = true,
            (_, Some(transaction)) => {
                transaction.queued += 1;
                self.selects |= name == "select";
            }
            (_, None) if is_error => {}
            ("multi", transaction) => *transaction = Some(Transaction::default()),
            ("watch", None) => self.is_watching = true,
            ("unwatch", None) => self.is_watching = false,
            ("select", None) => {
                let number = words.get(1).and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
                self.db = number.unwrap_or(self.db);
            }
            _ => {}
        }
        Ok(value)
    }

    fn db_of_connection(&mut self) -> Result<u32, ApiError> {
        let told = text(self.link.ask(&[b"CLIENT", b"INFO"])?);
        let db = told.split(' ').find_map(|pair| pair.strip_prefix("db=")?.parse().ok());
        Ok(db.unwrap_or(self.db))
    }
}
