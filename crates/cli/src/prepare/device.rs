//! Owns the inspection of a block device: its type, its contents and its users. Never changes anything.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::storage::{self, Disk, Mount};

/// Devices with these signatures are members of an array or volume, even if it is not assembled now.
const MEMBERS: [&str; 5] = ["LVM2_member", "zfs_member", "bcache", "ceph_bluestore", "drbd"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The path as given.
    pub path: PathBuf,
    pub disk: Disk,
    /// File systems, partition tables and similar contents, as text. Empty: nothing was recognised.
    pub holds: Vec<String>,
    /// Why the device must not be formatted. Empty: it may be.
    pub in_use: Vec<String>,
}

pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

pub fn inspect(path: &Path) -> io::Result<Device> {
    let numbers = storage::numbers(fs::metadata(path)?.rdev());
    let sys_dir = storage::sys_dir(Path::new("/sys"), &numbers)
        .ok_or_else(|| io::Error::other("the kernel does not describe it in /sys"))?;
    let disk = storage::disk(&sys_dir).ok_or_else(|| io::Error::other("it has no name in /sys"))?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut in_use = users(&sys_dir, &storage::mounts()?, &swaps);
    let signatures = signatures(path);
    in_use.extend(signatures.iter().filter(|kind| is_member(kind)).map(|kind| {
        format!("it is part of something larger ({kind}); if you no longer need that: wipefs --all {}", path.display())
    }));
    if let Some(holder) = exclusive(path, &in_use) {
        in_use.push(holder);
    }
    let mut holds = signatures;
    holds.extend(partitions(&sys_dir).iter().map(|name| {
        let inside = self::signatures(&Path::new("/dev").join(name)).join(", ");
        if inside.is_empty() { format!("partition {name}") } else { format!("partition {name} ({inside})") }
    }));
    Ok(Device { path: path.to_owned(), disk, holds, in_use })
}

/// Why the device with this folder in /sys must not be touched.
fn users(sys_dir: &Path, mounts: &[Mount], swaps: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if storage::number(&sys_dir.join("size")) == 0 {
        reasons.push("its size is 0, so it has no medium".to_owned());
    }
    if storage::number(&sys_dir.join("ro")) == 1 {
        reasons.push("it is read-only".to_owned());
    }
    let own = sys_dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let whole = std::iter::once((own.clone(), sys_dir.to_owned()));
    for (name, dir) in whole.chain(partitions(sys_dir).into_iter().map(|name| (name.clone(), sys_dir.join(name)))) {
        let it = if name == own { "it".to_owned() } else { format!("its partition {name}") };
        let node = Path::new("/dev").join(&name);
        let numbers = fs::read_to_string(dir.join("dev")).map(|text| text.trim().to_owned()).unwrap_or_default();
        for mount in mounts.iter().filter(|mount| mount.device == numbers || mount.source == node) {
            reasons.push(format!("{it} is mounted at {}", mount.point.display()));
        }
        if swaps.lines().skip(1).any(|line| line.split_whitespace().next() == node.to_str()) {
            reasons.push(format!("{it} is swap"));
        }
        for holder in names(&dir.join("holders")) {
            reasons.push(format!("{it} is held by {holder} (RAID, LVM, encryption)"));
        }
    }
    reasons
}

/// The names of a disk's partitions.
fn partitions(sys_dir: &Path) -> Vec<String> {
    names(sys_dir).into_iter().filter(|name| sys_dir.join(name).join("partition").exists()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Asks the kernel by an exclusive open, for users that /sys and /proc do not show: every user of a device, or of a
/// part of it, has claimed it. Skipped if there are reasons already.
fn exclusive(path: &Path, known: &[String]) -> Option<String> {
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => None,
        Err(_) if !known.is_empty() => None,
        Err(Errno::BUSY) => Some("the kernel says that it is in use".to_owned()),
        Err(errno) => Some(format!("it cannot be opened: {}", io::Error::from(errno))),
    }
}

/// What blkid recognises at the start and the end of the device.
fn signatures(path: &Path) -> Vec<String> {
    let output = Command::new("blkid").args(["--probe", "--output", "export"]).arg(path).stdin(Stdio::null()).output();
    match output {
        Ok(output) => parse_signatures(&String::from_utf8_lossy(&output.stdout)),
        Err(error) => vec![format!("unknown content (blkid: {error})")],
    }
}

fn parse_signatures(text: &str) -> Vec<String> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let label = value("LABEL").map(|label| format!(" labelled {label}")).unwrap_or_default();
    let kind = value("TYPE").map(|kind| format!("{kind}{label}"));
    kind.into_iter().chain(value("PTTYPE").map(|kind| format!("{kind} partition table"))).collect()
}

fn is_member(signature: &str) -> bool {
    let kind = signature.split(' ').next().unwrap_or_default();
    kind.ends_with("_raid_member") || MEMBERS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk sda with partitions sda1 and sda2, as in /sys.
    fn disk(changes: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("size", "1000"),
            ("ro", "0"),
            ("dev", "8:0"),
            ("sda1/partition", "1"),
            ("sda1/dev", "8:1"),
            ("sda2/partition", "2"),
            ("sda2/dev", "8:2"),
        ];
        for (file, text) in files.iter().chain(changes) {
            let path = dir.path().join("sda").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        dir
    }

    fn users_of(dir: &tempfile::TempDir, mounts: &str, swaps: &str) -> Vec<String> {
        users(
            &dir.path().join("sda"),
            &storage::parse_mounts(mounts),
            &format!("Filename Type Size Used Priority\n{swaps}"),
        )
    }

    #[test]
    fn users_of_a_disk_or_of_a_part_of_it_are_named() {
        let other = "27 1 254:1 / / rw - ext4 /dev/vda1 rw";
        assert_eq!(users_of(&disk(&[]), other, "/dev/vda2 partition 100 0 -2"), Vec::<String>::new());

        let mounted = "27 1 8:0 / /a rw - ext4 /dev/root rw\n28 1 8:2 / /b rw - ext4 /dev/sda2 rw";
        assert_eq!(users_of(&disk(&[]), mounted, ""), ["it is mounted at /a", "its partition sda2 is mounted at /b"]);

        let btrfs = "27 1 0:44 / /c rw - btrfs /dev/sda1 rw";
        assert_eq!(users_of(&disk(&[]), btrfs, ""), ["its partition sda1 is mounted at /c"]);

        assert_eq!(users_of(&disk(&[]), "", "/dev/sda1 partition 100 0 -2"), ["its partition sda1 is swap"]);

        let held = disk(&[("holders/md0", ""), ("sda2/holders/dm-0", "")]);
        assert_eq!(
            users_of(&held, "", ""),
            ["it is held by md0 (RAID, LVM, encryption)", "its partition sda2 is held by dm-0 (RAID, LVM, encryption)"]
        );

        let empty = disk(&[("size", "0"), ("ro", "1")]);
        assert_eq!(users_of(&empty, "", ""), ["its size is 0, so it has no medium", "it is read-only"]);
    }

    #[test]
    fn signatures_are_shown_and_members_known() {
        let filesystem = parse_signatures("DEVNAME=/dev/sda\nLABEL=photos\nUUID=1\nTYPE=ext4\nUSAGE=filesystem\n");
        assert_eq!(filesystem, ["ext4 labelled photos"]);
        assert_eq!(parse_signatures("DEVNAME=/dev/sda\nPTUUID=1\nPTTYPE=gpt\n"), ["gpt partition table"]);
        assert_eq!(parse_signatures(""), Vec::<String>::new());
        let member = |text: &str| parse_signatures(text).iter().any(|kind| is_member(kind));
        assert!(member("TYPE=linux_raid_member\nLABEL=host:0\n"));
        assert!(member("TYPE=LVM2_member\n"));
        assert!(!member("TYPE=ext4\nLABEL=LVM2_member\n"));
    }

    #[test]
    fn a_file_is_not_a_device() {
        assert!(!is_block_device(Path::new("/dev/null")));
        assert!(!is_block_device(Path::new("/etc/passwd")));
        assert!(!is_block_device(Path::new("/no/such")));
    }
}
