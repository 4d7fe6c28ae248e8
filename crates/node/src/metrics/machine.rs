//! Owns one look at the machine: its processors, and the disks that the node uses. It reads /proc and /sys, whose roots are arguments, so
//! that tests can make their own. Never knows a database's figures.

use super::reading::quotient;
use crate::node::Node;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that the node uses, and for what.
pub type UsedDirectory = (&'static str, PathBuf);

/// The counters of a moment.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub cpu: Cpu,
    /// By the number of the device.
    pub disks: BTreeMap<String, Disk>,
}

/// Time of all processors together, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    busy: u64,
    waits: u64,
    all: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// As in /dev; the file system's number if no disk of this machine is below it.
    pub name: String,
    /// flash, journal, state, backups.
    pub uses: Vec<&'static str>,
    pub bytes: u64,
    /// That the node may still take.
    pub free_bytes: u64,
    /// `None`: the kernel does not count, as for tmpfs.
    io: Option<Io>,
}

/// Counters of a disk or a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    operations: u64,
    /// That all operations together took, with their wait.
    took_ms: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    busy_ms: u64,
    /// When it was read, on any clock that never goes back.
    at_ms: u64,
}

/// The directories that a node uses: those of flash, the journals, its state and its backups.
pub fn places(node: &Node) -> Vec<UsedDirectory> {
    let mut places = Vec::new();
    for database in node.databases() {
        let config = database.config().snapshot();
        places.extend(config.flash_paths.iter().map(|path| ("flash", path.clone())));
        places.push(("journal", config.dir.clone()));
        places.push(("backups", config.backup_path.clone()));
    }
    places.push(("state", node.config().snapshot().state_dir.clone()));
    places
}

impl Machine {
    pub fn look(places: &[UsedDirectory]) -> Machine {
        Machine::look_in(Path::new("/proc"), Path::new("/sys"), places)
    }

    fn look_in(proc: &Path, sys: &Path, places: &[UsedDirectory]) -> Machine {
        let cpu = fs::read_to_string(proc.join("stat")).ok().and_then(|text| Cpu::parse(&text)).unwrap_or_default();
        let at_ms = uptime_ms(proc);
        let mut disks: BTreeMap<String, Disk> = BTreeMap::new();
        for (use_, path) in places {
            // What is not there yet will be in the nearest directory that is.
            let Some((there, number)) = path.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?.dev())))
            else {
                continue;
            };
            let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            let disk = disks.entry(number.clone()).or_insert_with(|| Disk::look(sys, &number, there, at_ms));
            if !disk.uses.contains(use_) {
                disk.uses.push(use_);
            }
        }
        Machine { cpu, disks }
    }

    /// The disks as they are now, and what each has done since then. `None`: nothing is known of it.
    pub fn since(&self, before: Option<&Machine>) -> impl Iterator<Item = (&Disk, Option<Io>)> {
        let spent = move |number, disk: &Disk| disk.io?.since(before?.disks.get(number)?.io?);
        self.disks.iter().map(move |(number, disk)| (disk, spent(number, disk)))
    }

    /// Of the fullest disk. Unknown (NaN) without a disk.
    pub fn least_free_percent(&self) -> f64 {
        let free = self.disks.values().map(|disk| 100.0 * quotient(disk.free_bytes, disk.bytes));
        free.filter(|percent| !percent.is_nan()).reduce(f64::min).unwrap_or(f64::NAN)
    }

    pub fn slowest_us(&self, before: &Machine) -> f64 {
        self.most(before, Io::latency_us)
    }

    pub fn busiest_percent(&self, before: &Machine) -> f64 {
        self.most(before, |spent| Some(spent.busy_percent()))
    }

    fn most(&self, before: &Machine, of: impl Fn(&Io) -> Option<f64>) -> f64 {
        let spent = self.since(Some(before)).filter_map(|(_, spent)| of(&spent?));
        spent.reduce(f64::max).unwrap_or(f64::NAN)
    }

    /// Name, size, free bytes, operations, and seconds that they took: for /metrics.
    pub fn counters(&self) -> impl Iterator<Item = (&str, u64, u64, Option<(u64, u64)>)> {
        let of = |disk: &Disk| disk.io.map(|io| (io.operations, io.took_ms));
        self.disks.values().map(move |disk| (disk.name.as_str(), disk.bytes, disk.free_bytes, of(disk)))
    }
}

impl Cpu {
    /// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. What follows is in user already.
    fn parse(stat: &str) -> Option<Cpu> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
        let (idle, waits) = (*times.get(3)?, *times.get(4)?);
        let all = times.iter().sum::<u64>();
        Some(Cpu { busy: all - idle - waits, waits, all })
    }

    pub fn busy_percent(&self, before: &Cpu) -> f64 {
        100.0 * quotient(self.busy.saturating_sub(before.busy), self.all.saturating_sub(before.all))
    }

    pub fn wait_percent(&self, before: &Cpu) -> f64 {
        100.0 * quotient(self.waits.saturating_sub(before.waits), self.all.saturating_sub(before.all))
    }

    /// Seconds of all processors: busy, and in all states.
    pub fn seconds(&self) -> (f64, f64) {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        (self.busy as f64 / ticks, self.all as f64 / ticks)
    }
}

impl Disk {
    fn look(sys: &Path, number: &str, path: &Path, at_ms: u64) -> Disk {
        let folder = sys.join("dev/block").join(number);
        let name =
            folder.canonicalize().ok().and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        let (bytes, free_bytes) = rustix::fs::statvfs(path)
            .map_or((0, 0), |room| (room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize));
        let io = fs::read_to_string(folder.join("stat")).ok().and_then(|text| Io::parse(&text, at_ms));
        Disk { name: name.unwrap_or_else(|| number.to_owned()), uses: Vec::new(), bytes, free_bytes, io }
    }
}

impl Io {
    /// Of reads and then of writes: operations, merged ones, sectors of 512 bytes, milliseconds; then operations under way, and
    /// milliseconds in which there were any.
    fn parse(stat: &str, at_ms: u64) -> Option<Io> {
        let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms, _, busy_ms, ..] = &fields[..]
        else {
            return None;
        };
        Some(Io {
            operations: reads + writes,
            took_ms: read_ms + write_ms,
            read_bytes: read_sectors * 512,
            written_bytes: written_sectors * 512,
            busy_ms,
            at_ms,
        })
    }

    /// `None`: no time has passed, or the disk is another one.
    fn since(self, before: Io) -> Option<Io> {
        Some(Io {
            operations: self.operations.checked_sub(before.operations)?,
            took_ms: self.took_ms.checked_sub(before.took_ms)?,
            read_bytes: self.read_bytes.checked_sub(before.read_bytes)?,
            written_bytes: self.written_bytes.checked_sub(before.written_bytes)?,
            busy_ms: self.busy_ms.checked_sub(before.busy_ms)?,
            at_ms: self.at_ms.checked_sub(before.at_ms).filter(|&ms| ms > 0)?,
        })
    }

    /// So many of these in a second, if this is what a disk has done.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.at_ms as f64
    }

    pub fn latency_us(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.took_ms as f64 * 1000.0 / self.operations as f64)
    }

    pub fn busy_percent(&self) -> f64 {
        (100.0 * self.busy_ms as f64 / self.at_ms as f64).min(100.0)
    }
}

/// Since the machine was started.
fn uptime_ms(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("uptime")).unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    seconds.map_or(0, |seconds| (seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A /proc and a /sys whose one disk has the number of `place`.
    fn look(folder: &Path, uptime: &str, cpu: &str, disk: &str) -> Machine {
        let number = fs::metadata(folder).unwrap().dev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let (proc, sys) = (folder.join("proc"), folder.join("sys"));
        let device = sys.join("devices/nvme0n1");
        fs::create_dir_all(&proc).unwrap();
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let link = sys.join("dev/block").join(number);
        if !link.exists() {
            std::os::unix::fs::symlink(&device, link).unwrap();
        }
        fs::write(proc.join("uptime"), uptime).unwrap();
        fs::write(proc.join("stat"), format!("cpu  {cpu} 0 0 0 0 0\ncpu0 1 2 3\n")).unwrap();
        fs::write(device.join("stat"), disk).unwrap();
        let places =
            [("flash", folder.join("flash/not/there")), ("journal", folder.to_owned()), ("flash", folder.to_owned())];
        Machine::look_in(&proc, &sys, &places)
    }

    #[test]
    fn a_machine_between_two_looks() {
        let folder = tempfile::tempdir().unwrap();
        let before = look(folder.path(), "100.00 5", "100 0 50 800 50", "10 0 80 5 10 0 80 15 0 100 20");
        let now = look(folder.path(), "102.00 5", "160 0 90 880 70", "50 0 8272 105 60 0 80 115 3 1100 220");
        assert_eq!((now.cpu.busy_percent(&before.cpu), now.cpu.wait_percent(&before.cpu)), (50.0, 10.0));
        let disks: Vec<_> = now.since(Some(&before)).collect();
        let [(disk, Some(spent))] = &disks[..] else { panic!("{disks:?}") };
        assert_eq!((disk.name.as_str(), &disk.uses[..]), ("nvme0n1", &["flash", "journal"][..]));
        assert!(disk.bytes > 0 && disk.free_bytes <= disk.bytes);
        // 90 operations took 200 ms in 2 s, in one of which the disk was busy.
        assert_eq!(spent.latency_us().map(f64::round), Some(2222.0));
        assert_eq!((spent.busy_percent(), spent.per_second(spent.read_bytes)), (50.0, 4096.0 * 512.0));
        assert_eq!(spent.written_bytes, 0);
        assert_eq!((now.slowest_us(&before).round(), now.busiest_percent(&before)), (2222.0, 50.0));
    }

    #[test]
    fn what_is_not_known_is_no_zero() {
        let folder = tempfile::tempdir().unwrap();
        let first = look(folder.path(), "100.00 5", "100 0 50 800 50", "10 0 80 5 10 0 80 15 0 100 20");
        assert!(first.slowest_us(&first).is_nan(), "no operation");
        assert!(first.cpu.busy_percent(&first.cpu).is_nan(), "no time");
        assert!(first.since(None).all(|(_, spent)| spent.is_none()));
        let silent = look(folder.path(), "101.00 5", "what", "a kernel of its own");
        assert!(silent.since(Some(&first)).all(|(_, spent)| spent.is_none()));
        assert_eq!(silent.cpu, Cpu::default());
        assert!(Machine::default().least_free_percent().is_nan());
    }
}
