//! Owns how many keys each logical database holds: INFO's Keyspace, asked for every ten seconds so that a scrape need not ask.

use crate::link::{self, Link};
use parking_lot::Mutex;
use server::{Node, Role};
use std::collections::HashMap;

const EVERY_MS: u64 = 10_000;

/// Number, and keys and those of them that expire.
pub type Counts = Vec<(u32, [u64; 2])>;

#[derive(Default)]
pub struct Keyspaces(Mutex<(u64, HashMap<String, Counts>)>);

impl Keyspaces {
    pub fn of(&self, database: &str) -> Counts {
        self.0.lock().1.get(database).cloned().unwrap_or_default()
    }

    /// Called every second; a database that does not answer keeps what was known.
    pub fn look(&self, node: &Node, now_ms: u64) {
        let mut state = self.0.lock();
        if now_ms < state.0 + EVERY_MS {
            return;
        }
        state.0 = now_ms;
        let mut known = std::mem::take(&mut state.1);
        drop(state);
        let mut found = HashMap::new();
        for database in node.databases() {
            let info = Link::open(&database, Role::Viewer, 0).and_then(|mut link| link.call(&[b"INFO", b"keyspace"]));
            let counts = info.map(|info| counts(&link::text(info))).ok().or_else(|| known.remove(database.name()));
            found.insert(database.name().to_owned(), counts.unwrap_or_default());
        }
        self.0.lock().1 = found;
    }
}

/// `db0:keys=3,expires=1,avg_ttl=0`
fn counts(info: &str) -> Counts {
    let line = |line: &str| {
        let (db, fields) = line.strip_prefix("db")?.split_once(':')?;
        let field =
            |name: &str| fields.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        Some((db.parse().ok()?, [field("keys")?, field("expires")?]))
    };
    info.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_for_each_logical_database() {
        let info = "# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0,cached_keys=2\r\ndb12:keys=9,expires=0,avg_ttl=0\r\nnonsense\r\n";
        assert_eq!(super::counts(info), [(0, [3, 1]), (12, [9, 0])]);
        assert_eq!(super::counts(""), []);
    }
}
