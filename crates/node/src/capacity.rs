//! Owns the machine's resources for databases: what their limits take together, and how the process's memory is
//! divided. Never opens a database and never serves one.

use crate::estimate::{SharedRecoveryClock, others_ms};
use crate::memory;
use crate::shard::Shard;
use base::size;
use config::{Config, ConfigStore};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The database that the configuration file describes.
pub const DEFAULT_NAME: &str = "default";
/// The system keeps 1/SYSTEM_SHARE of the machine's RAM.
const SYSTEM_SHARE: u64 = 16;

/// What the machine has for databases, and what their limits take of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The machine's (or the container's) RAM minus a reserve for the system.
    pub ram_bytes: u64,
    pub ram_taken_bytes: u64,
    /// The free bytes of the flash paths plus the bytes that databases hold.
    pub flash_bytes: u64,
    pub flash_taken_bytes: u64,
    /// Name, RAM, flash.
    pub by_database: Vec<(String, u64, u64)>,
}

/// What one database holds of the machine.
pub struct Reservation {
    name: Box<str>,
    config: Arc<ConfigStore>,
    shard: Arc<Shard>,
    /// The database's own bytes without objects (index, clients), measured once a second: see [`Reservation::weigh`].
    beside_bytes: AtomicU64,
    /// The journal and the checkpoints, measured then too.
    kept_bytes: AtomicU64,
    /// What a restart of the database alone would take, estimated then too.
    restart_ms: AtomicU64,
}

impl Reservation {
    pub fn new(name: &str, config: Arc<ConfigStore>, shard: Arc<Shard>) -> Arc<Reservation> {
        Arc::new(Reservation {
            name: name.into(),
            config,
            shard,
            beside_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            restart_ms: AtomicU64::new(0),
        })
    }

    pub fn note_restart(&self, ms: u64) {
        self.restart_ms.store(ms, Relaxed);
    }

    /// Measures the database's own memory without objects. Call this once a second: it visits every stripe that no
    /// script holds.
    pub fn weigh(&self, clients_bytes: u64, kept_bytes: u64) {
        self.kept_bytes.store(kept_bytes, Relaxed);
        self.beside_bytes.store(self.shard.store.census().index_bytes + clients_bytes, Relaxed);
    }

    /// The bytes of its files.
    pub fn files_bytes(&self) -> u64 {
        self.shard.device_bytes() + self.kept_bytes.load(Relaxed)
    }

    /// Bytes that certainly belong to the database: objects, index, clients.
    fn own_bytes(&self) -> u64 {
        self.shard.store.held_bytes() + self.beside_bytes.load(Relaxed)
    }
}

/// What all databases hold.
#[derive(Default)]
pub struct CapacityLedger {
    /// The default database first, then by name.
    reservations: RwLock<Vec<Arc<Reservation>>>,
    /// Only one change of the set of databases or of their limits at a time.
    changes: Mutex<()>,
    is_stopping: AtomicBool,
    /// The clock of the recoveries that are under way.
    pub recoveries: Mutex<SharedRecoveryClock>,
}

impl CapacityLedger {
    pub fn add(&self, reservation: &Arc<Reservation>) {
        let mut reservations = self.reservations.write();
        reservations.push(Arc::clone(reservation));
        reservations[1..].sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// How much longer a restart of this database takes because the others are loaded too. `own_ms`: its time alone.
    pub fn others_restart_ms(&self, mine: &Reservation, own_ms: u64) -> u64 {
        let reservations = self.reservations.read();
        let others = reservations.iter().filter(|other| other.name != mine.name);
        others_ms(own_ms, others.map(|other| other.restart_ms.load(Relaxed)))
    }

    pub fn remove(&self, name: &str) {
        self.reservations.write().retain(|reservation| *reservation.name != *name);
    }

    pub fn clear(&self) {
        self.reservations.write().clear();
    }

    /// The right to change databases and their limits, held until it is dropped. The error says why the right was not
    /// given.
    pub fn begin_change(&self, timeout: Duration) -> Result<MutexGuard<'_, ()>, &'static str> {
        let changes = self.changes.try_lock_for(timeout);
        let changes = changes.ok_or("another change of the node's databases is under way: try again")?;
        if self.is_stopping() { Err("the node is stopping") } else { Ok(changes) }
    }

    /// When this returns, no database can be changed any more.
    pub fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        drop(self.changes.lock());
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    pub fn capacity(&self) -> Capacity {
        let reservations = self.reservations.read().clone();
        let by_database: Vec<(String, u64, u64)> =
            reservations.iter().map(|reservation| self.takes(reservation)).collect();
        let free = reservations.first().map_or(0, |default| free_bytes(&default.config.snapshot().flash_paths));
        let held: u64 = reservations.iter().map(|reservation| reservation.files_bytes()).sum();
        let ram = memory::system_bytes("MemTotal").min(container_bytes().unwrap_or(u64::MAX));
        Capacity {
            ram_bytes: ram - ram / SYSTEM_SHARE,
            ram_taken_bytes: by_database.iter().map(|(_, ram, _)| ram).sum(),
            flash_bytes: free + held,
            flash_taken_bytes: by_database.iter().map(|(.., flash)| flash).sum(),
            by_database,
        }
    }

    /// Checks whether a database may have these limits (RAM, flash) beside the others. The error contains the
    /// calculation. The caller holds [`CapacityLedger::begin_change`]. Otherwise two databases that grow at the same time
    /// could both find room that is enough for only one.
    pub fn check(&self, name: &str, (ram, flash): (u64, u64)) -> Result<(), String> {
        let room = self.capacity();
        let own_before = room.by_database.iter().find(|(known, ..)| known == name).map_or(0, |&(_, ram, _)| ram);
        if ram > own_before {
            check_container(ram)?;
        }
        // A default database that is alone is not limited by the machine, as in Redis.
        if name == DEFAULT_NAME && room.by_database.len() == 1 {
            return Ok(());
        }
        let before =
            room.by_database.iter().find(|(known, ..)| known == name).map_or((0, 0), |&(_, ram, flash)| (ram, flash));
        let parts = |of: fn(&(String, u64, u64)) -> u64| {
            let others = room.by_database.iter().filter(|(known, ..)| known != name);
            let parts: Vec<String> = others.map(|taken| format!("{} {}", taken.0, size::human(of(taken)))).collect();
            if parts.is_empty() { String::new() } else { format!("{} + ", parts.join(" + ")) }
        };
        let refuse = |what: &str, others: String, wanted: u64, taken: u64, has: u64| {
            let human = size::human;
            Err(format!(
                "{what} of all databases together would be {others}{name} {} = {}, but this machine has only {} for them: {} are left for '{name}'",
                human(wanted),
                human(taken + wanted),
                human(has),
                human(has.saturating_sub(taken))
            ))
        };
        // A shrink is never refused.
        if ram > before.0 && room.ram_taken_bytes - before.0 + ram > room.ram_bytes {
            return refuse("RAM limits", parts(|t| t.1), ram, room.ram_taken_bytes - before.0, room.ram_bytes);
        }
        if flash > before.1 && room.flash_taken_bytes - before.1 + flash > room.flash_bytes {
            return refuse("flash", parts(|t| t.2), flash, room.flash_taken_bytes - before.1, room.flash_bytes);
        }
        Ok(())
    }

    /// The part of the process's resident bytes that counts as one database's. It is the database's own memory plus a
    /// share of the common memory (code, the allocator's slack) in the same proportion.
    pub fn share(&self, mine: &Reservation, process: u64) -> u64 {
        let reservations = self.reservations.read();
        if reservations.len() < 2 {
            return process;
        }
        let own: u64 = reservations.iter().map(|reservation| reservation.own_bytes()).sum();
        let mine = mine.own_bytes();
        mine + portion(process.saturating_sub(own), mine, own, reservations.len())
    }

    /// The same for allocated bytes without objects.
    pub fn share_beside(&self, mine: &Reservation, process: u64) -> u64 {
        let reservations = self.reservations.read();
        if reservations.len() < 2 {
            return process;
        }
        let own: u64 = reservations.iter().map(|reservation| reservation.own_bytes()).sum();
        let beside: u64 = reservations.iter().map(|reservation| reservation.beside_bytes.load(Relaxed)).sum();
        let rest = process.saturating_sub(beside);
        mine.beside_bytes.load(Relaxed) + portion(rest, mine.own_bytes(), own, reservations.len())
    }

    /// Name, RAM and flash that a database may take. Without a RAM limit: the RAM that it takes now. If the limit was lowered, it takes
    /// more for a while, or, if nothing can leave, for good.
    fn takes(&self, reservation: &Reservation) -> (String, u64, u64) {
        let config = reservation.config.snapshot();
        let ram = match config.ram_limit_bytes {
            0 => self.share(reservation, memory::resident_bytes()),
            limit => limit.max(reservation.own_bytes()),
        };
        (reservation.name.to_string(), ram, files_limit(&config))
    }
}

/// What the files of a database may take of the machine's flash.
pub fn files_limit(config: &Config) -> u64 {
    if config.flash_paths.is_empty() { 0 } else { config.flash_limit_bytes }
}

/// Divides `whole` in the proportion of `mine` to `all`; in equal parts if `all` is zero.
fn portion(whole: u64, mine: u64, all: u64, count: usize) -> u64 {
    match all {
        0 => whole / count as u64,
        _ => (u128::from(whole) * u128::from(mine) / u128::from(all)) as u64,
    }
}

/// The memory limit of the process's control group, for example of a container or of a systemd unit.
fn container_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(Path::new("/sys/fs/cgroup"), &groups)
}

/// The least limit of the groups in `groups` (the text of `/proc/self/cgroup`) and of the groups around them. A container
/// sees its own group at the root.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let around = Path::new(path).ancestors().map(|group| root.join(group).join(file));
        around.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()).min()
    });
    limits.min()
}

/// Checks at the start that the system will let the process use its RAM limit. The error contains the calculation.
pub fn check_container(ram_limit: u64) -> Result<(), String> {
    fits_container(ram_limit, container_bytes().unwrap_or(u64::MAX))
}

fn fits_container(ram_limit: u64, container: u64) -> Result<(), String> {
    if ram_limit <= container {
        return Ok(());
    }
    let usable = container - container / SYSTEM_SHARE;
    Err(format!(
        "ram-limit {} is more than the {} that the control group (container) of this process may use: the kernel would \
         end the process. Set ram-limit to at most {} − {} for the system = {}, or raise the container's limit",
        size::human(ram_limit),
        size::human(container),
        size::human(container),
        size::human(container - usable),
        size::human(usable),
    ))
}

/// Free bytes of the file systems of the paths. Each file system counts once.
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

    /// A node once started with more RAM than its container had, and was killed when it used it.
    #[test]
    fn a_ram_limit_above_the_container_s_is_refused() {
        assert_eq!(fits_container(2 << 30, 2 << 30), Ok(()));
        let why = fits_container(4 << 30, 2 << 30).unwrap_err();
        assert!(why.contains("ram-limit 4 GB is more than the 2 GB"), "{why}");
        assert!(why.contains("at most 2 GB − 128 MB for the system = 1.88 GB"), "{why}");
    }

    #[test]
    fn the_least_limit_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(group_limit(root.path(), "0::/system.slice/flintkv.service\n"), None);
        put("system.slice/memory.max", "max\n");
        assert_eq!(group_limit(root.path(), "0::/system.slice/flintkv.service\n"), None);
        put("system.slice/flintkv.service/memory.max", "3000\n");
        put("memory.max", "9000\n");
        assert_eq!(group_limit(root.path(), "0::/system.slice/flintkv.service\n"), Some(3000));
        // In a container, the path is often one of the host's.
        assert_eq!(group_limit(root.path(), "0::/host/abc\n"), Some(9000));
        put("memory/docker/memory.limit_in_bytes", "5000\n");
        assert_eq!(group_limit(root.path(), "8:pids:/\n4:cpu,memory:/docker\n"), Some(5000));
    }

    #[test]
    fn common_memory_is_shared_in_proportion() {
        assert_eq!(portion(100, 30, 120, 2), 25);
        assert_eq!(portion(100, 0, 0, 4), 25);
        assert_eq!(portion(u64::MAX, 1 << 40, 1 << 41, 2), u64::MAX / 2);
    }
}
