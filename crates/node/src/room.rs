//! Owns what the machine has for databases: what their limits take of it together, and whose the process's memory is. Never
//! opens a database and never serves one.

use crate::memory;
use crate::shard::Shard;
use config::ConfigStore;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The database that the configuration file describes.
pub const DEFAULT_NAME: &str = "default";
/// Of the machine's RAM, the system keeps one part in so many.
const SYSTEM_SHARE: u64 = 16;

/// What the machine has for databases and what their limits take of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The machine's (or the container's) RAM less a reserve for the system.
    pub ram_bytes: u64,
    pub ram_taken_bytes: u64,
    /// Of the flash paths: what is free, and what databases hold.
    pub flash_bytes: u64,
    pub flash_taken_bytes: u64,
    /// Name, RAM, flash.
    pub by_database: Vec<(String, u64, u64)>,
}

/// What one database holds of the machine.
pub struct Holding {
    name: Box<str>,
    config: Arc<ConfigStore>,
    shard: Arc<Shard>,
    /// Bytes of its own beside objects (index, clients), as of the last second: see [`Holding::weigh`].
    beside_bytes: AtomicU64,
}

impl Holding {
    pub fn new(name: &str, config: Arc<ConfigStore>, shard: Arc<Shard>) -> Arc<Holding> {
        Arc::new(Holding { name: name.into(), config, shard, beside_bytes: AtomicU64::new(0) })
    }

    /// Measures what is its own beside objects. Once a second: it visits every stripe that no script keeps.
    pub fn weigh(&self, clients_bytes: u64) {
        self.beside_bytes.store(self.shard.store.census().index_bytes + clients_bytes, Relaxed);
    }

    /// Bytes that are certainly its own: objects, index, clients.
    fn own_bytes(&self) -> u64 {
        self.shard.store.held_bytes() + self.beside_bytes.load(Relaxed)
    }
}

/// What all databases hold.
#[derive(Default)]
pub struct Ledger {
    /// The default database's first, then by name.
    holdings: RwLock<Vec<Arc<Holding>>>,
    /// One change of what databases there are, or of their limits, at a time.
    changes: Mutex<()>,
    is_stopping: AtomicBool,
}

impl Ledger {
    pub fn add(&self, holding: &Arc<Holding>) {
        let mut holdings = self.holdings.write();
        holdings.push(Arc::clone(holding));
        holdings[1..].sort_by(|a, b| a.name.cmp(&b.name));
    }

    pub fn remove(&self, name: &str) {
        self.holdings.write().retain(|holding| *holding.name != *name);
    }

    pub fn clear(&self) {
        self.holdings.write().clear();
    }

    /// The right to change databases and their limits, until it is dropped. The error says why it is not to be had.
    pub fn begin_change(&self, patience: Duration) -> Result<MutexGuard<'_, ()>, &'static str> {
        let changes = self.changes.try_lock_for(patience);
        let changes = changes.ok_or("another change of the node's databases is under way: try again")?;
        if self.is_stopping() { Err("the node is stopping") } else { Ok(changes) }
    }

    /// No database is changed any more when this returns.
    pub fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        drop(self.changes.lock());
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    pub fn room(&self) -> Room {
        let holdings = self.holdings.read().clone();
        let by_database: Vec<(String, u64, u64)> = holdings.iter().map(|holding| self.takes(holding)).collect();
        let free = holdings.first().map_or(0, |default| free_bytes(&default.config.snapshot().flash_paths));
        let held: u64 = holdings.iter().map(|holding| holding.shard.device_bytes()).sum();
        let ram = memory::system_bytes("MemTotal").min(container_bytes().unwrap_or(u64::MAX));
        Room {
            ram_bytes: ram - ram / SYSTEM_SHARE,
            ram_taken_bytes: by_database.iter().map(|(_, ram, _)| ram).sum(),
            flash_bytes: free + held,
            flash_taken_bytes: by_database.iter().map(|(.., flash)| flash).sum(),
            by_database,
        }
    }

    /// Whether a database may have these limits (RAM, flash) beside the others. The error has the arithmetic. The caller holds
    /// [`Ledger::begin_change`]: of two databases that grow at a time, each would find the room that only one of them can have.
    pub fn check(&self, name: &str, (ram, flash): (u64, u64)) -> Result<(), String> {
        let room = self.room();
        // Alone it is its owner's own affair, as it is with Redis.
        if name == DEFAULT_NAME && room.by_database.len() == 1 {
            return Ok(());
        }
        let before =
            room.by_database.iter().find(|(known, ..)| known == name).map_or((0, 0), |&(_, ram, flash)| (ram, flash));
        let parts = |of: fn(&(String, u64, u64)) -> u64| {
            let others = room.by_database.iter().filter(|(known, ..)| known != name);
            let parts: Vec<String> =
                others.map(|taken| format!("{} {}", taken.0, memory::human_bytes(of(taken)))).collect();
            if parts.is_empty() { String::new() } else { format!("{} + ", parts.join(" + ")) }
        };
        let refuse = |what: &str, others: String, wanted: u64, taken: u64, has: u64| {
            let human = memory::human_bytes;
            Err(format!(
                "{what} of all databases together would be {others}{name} {} = {}, and this machine has {} for them: {} \
                 are left for '{name}'",
                human(wanted),
                human(taken + wanted),
                human(has),
                human(has.saturating_sub(taken))
            ))
        };
        // What becomes smaller is never refused.
        if ram > before.0 && room.ram_taken_bytes - before.0 + ram > room.ram_bytes {
            return refuse("RAM limits", parts(|t| t.1), ram, room.ram_taken_bytes - before.0, room.ram_bytes);
        }
        if flash > before.1 && room.flash_taken_bytes - before.1 + flash > room.flash_bytes {
            return refuse("flash", parts(|t| t.2), flash, room.flash_taken_bytes - before.1, room.flash_bytes);
        }
        Ok(())
    }

    /// Of the process's resident bytes those that count as one database's: what is its own, and of what is nobody's (code,
    /// the allocator's slack) a share as large as its share of what is somebody's.
    pub fn share(&self, mine: &Holding, process: u64) -> u64 {
        let holdings = self.holdings.read();
        if holdings.len() < 2 {
            return process;
        }
        let own: u64 = holdings.iter().map(|holding| holding.own_bytes()).sum();
        let mine = mine.own_bytes();
        mine + portion(process.saturating_sub(own), mine, own, holdings.len())
    }

    /// The same of what is allocated beside objects.
    pub fn share_beside(&self, mine: &Holding, process: u64) -> u64 {
        let holdings = self.holdings.read();
        if holdings.len() < 2 {
            return process;
        }
        let own: u64 = holdings.iter().map(|holding| holding.own_bytes()).sum();
        let beside: u64 = holdings.iter().map(|holding| holding.beside_bytes.load(Relaxed)).sum();
        let rest = process.saturating_sub(beside);
        mine.beside_bytes.load(Relaxed) + portion(rest, mine.own_bytes(), own, holdings.len())
    }

    /// Name, RAM and flash that a database may take. Without a RAM limit: what it takes now.
    fn takes(&self, holding: &Holding) -> (String, u64, u64) {
        let config = holding.config.snapshot();
        let ram = match config.ram_limit_bytes {
            0 => self.share(holding, memory::resident_bytes()),
            limit => limit,
        };
        (holding.name.to_string(), ram, config.flash_limit_bytes)
    }
}

/// `whole` in proportion of `mine` to `all`; in equal parts where there is nothing yet.
fn portion(whole: u64, mine: u64, all: u64, count: usize) -> u64 {
    match all {
        0 => whole / count as u64,
        _ => (u128::from(whole) * u128::from(mine) / u128::from(all)) as u64,
    }
}

/// The limit of the control group, in a container.
fn container_bytes() -> Option<u64> {
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

/// Free bytes of the file systems that the paths are on, each counted once.
fn free_bytes(paths: &[PathBuf]) -> u64 {
    let mut devices = BTreeMap::new();
    for path in paths {
        let Ok(found) = fs::metadata(path) else { continue };
        if let Ok(space) = rustix::fs::statvfs(path) {
            devices.insert(found.dev(), space.f_bavail * space.f_frsize);
        }
    }
    devices.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nobodys_is_shared_in_proportion() {
        assert_eq!(portion(100, 30, 120, 2), 25);
        assert_eq!(portion(100, 0, 0, 4), 25);
        assert_eq!(portion(u64::MAX, 1 << 40, 1 << 41, 2), u64::MAX / 2);
    }
}
