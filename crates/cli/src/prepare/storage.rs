//! Owns the facts about a directory's storage: the mount, its file system, and the disk below. It reads /proc and /sys,
//! whose roots are arguments, so that tests can make their own. Never changes anything.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A line of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `8:1`. Major 0: no block device, or several.
    pub device: String,
    pub point: PathBuf,
    pub filesystem: String,
    pub source: PathBuf,
}

/// A whole disk; for a partition, the disk that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    pub model: String,
    pub bytes: u64,
    pub rotational: bool,
    /// The device accepts discards.
    pub discard: bool,
}

/// A directory that may become a flash path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageInfo {
    pub dir: PathBuf,
    pub filesystem: String,
    pub source: PathBuf,
    /// `None`: the file system is not on a disk of this machine.
    pub disk: Option<Disk>,
    pub free_bytes: u64,
}

pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mounts(&fs::read_to_string("/proc/self/mountinfo")?))
}

pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let mut after = after.split(' ');
        Some(Mount {
            device: before.next()?.to_owned(),
            point: unescape(before.nth(1)?),
            filesystem: after.next()?.to_owned(),
            source: unescape(after.next()?),
        })
    };
    text.lines().filter_map(line).collect()
}

/// The kernel writes spaces, tabs, line ends and backslashes in octal.
fn unescape(word: &str) -> PathBuf {
    let bytes = word.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(path).into()
}

/// The mount of a path, which must be absolute and without links: the longest match, and of equal matches the last,
/// which hides the others.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

/// `dir` must exist.
pub fn place(dir: &Path, mounts: &[Mount], sys: &Path) -> io::Result<StorageInfo> {
    let dir = dir.canonicalize()?;
    let fs = rustix::fs::statvfs(&dir)?;
    let mount = mount_of(mounts, &dir);
    let disk = mount.and_then(|mount| disk_of(sys, &device_of(mount)));
    Ok(StorageInfo {
        filesystem: mount.map_or_else(|| "unknown".to_owned(), |mount| mount.filesystem.clone()),
        source: mount.map(|mount| mount.source.clone()).unwrap_or_default(),
        disk,
        free_bytes: fs.f_bavail * fs.f_frsize,
        dir,
    })
}

/// Some file systems (btrfs) number their mounts themselves; the source still names a device.
fn device_of(mount: &Mount) -> String {
    if !mount.device.starts_with("0:") || !mount.source.starts_with("/dev/") {
        return mount.device.clone();
    }
    fs::metadata(&mount.source).map_or_else(|_| mount.device.clone(), |metadata| numbers(metadata.rdev()))
}

pub fn numbers(rdev: u64) -> String {
    format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// The device's folder in /sys. A partition's folder is inside its disk's.
pub fn sys_dir(sys: &Path, device: &str) -> Option<PathBuf> {
    sys.join("dev/block").join(device).canonicalize().ok()
}

fn disk_of(sys: &Path, device: &str) -> Option<Disk> {
    let mut dir = sys_dir(sys, device)?;
    if dir.join("partition").exists() {
        dir.pop();
    }
    disk(&dir)
}

/// `dir` is a disk's folder in /sys.
pub fn disk(dir: &Path) -> Option<Disk> {
    Some(Disk {
        name: dir.file_name()?.to_string_lossy().into_owned(),
        model: model(dir),
        bytes: number(&dir.join("size")) * 512,
        rotational: number(&dir.join("queue/rotational")) == 1,
        discard: number(&dir.join("queue/discard_max_bytes")) > 0,
    })
}

fn model(dir: &Path) -> String {
    let text = |name: &str| fs::read_to_string(dir.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default();
    let backing = text("loop/backing_file");
    let (vendor, model, mapped) = (text("device/vendor"), text("device/model"), text("dm/name"));
    match () {
        () if !backing.is_empty() => format!("loop device over {backing}"),
        () if !mapped.is_empty() => format!("device mapper's {mapped}"),
        // Virtual disks have a number instead of a vendor, and no model.
        () if !model.is_empty() && !vendor.starts_with("0x") => format!("{vendor} {model}").trim().to_owned(),
        () => model,
    }
}

pub fn number(file: &Path) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard
30 27 259:0 / /mnt/flash\\0401 rw,noatime shared:2 master:3 - xfs /dev/nvme0n1 rw
31 27 0:50 / /mnt rw - tmpfs tmpfs rw
32 27 0:51 / /mnt rw - btrfs /dev/no-such-device rw
broken line
";

    #[test]
    fn the_longest_and_last_mount_holds_a_path() {
        let mounts = parse_mounts(MOUNTS);
        assert_eq!(mounts.len(), 5);
        let kind = |path: &str| mount_of(&mounts, Path::new(path)).expect("/ holds all").filesystem.as_str();
        assert_eq!(kind("/mnt/flash 1/data"), "xfs");
        assert_eq!(kind("/mnt/flash 10"), "btrfs", "a name is not a prefix of another");
        assert_eq!(kind("/home"), "ext4");
    }

    #[test]
    fn a_partition_is_on_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("devices/nvme0n1");
        for (file, text) in [
            ("size", "2048000\n"),
            ("queue/rotational", "0\n"),
            ("queue/discard_max_bytes", "2199023255040\n"),
            ("device/model", "Fast SSD 960   \n"),
            ("nvme0n1p1/partition", "1\n"),
            ("nvme0n1p1/size", "1024\n"),
        ] {
            fs::create_dir_all(disk.join(file).parent().unwrap()).unwrap();
            fs::write(disk.join(file), text).unwrap();
        }
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        std::os::unix::fs::symlink(disk.join("nvme0n1p1"), sys.path().join("dev/block/259:1")).unwrap();
        let expected = Disk {
            name: "nvme0n1".to_owned(),
            model: "Fast SSD 960".to_owned(),
            bytes: 2_048_000 * 512,
            rotational: false,
            discard: true,
        };
        assert_eq!(disk_of(sys.path(), "259:1"), Some(expected));
        assert_eq!(disk_of(sys.path(), "0:51"), None);
    }

    #[test]
    fn this_directory_has_a_place() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path(), &mounts().unwrap(), Path::new("/sys")).unwrap();
        assert_ne!(place.filesystem, "unknown");
        assert!(place.free_bytes > 0);
    }
}
