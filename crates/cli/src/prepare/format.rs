//! Owns the changes to a device: wiping, formatting, mounting, and the line in fstab. Everything that can be refused is
//! refused before the first byte changes. Never asks the user: the caller has done so.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::storage::Mount;

const MOUNTS_DIR: &str = "/var/lib/flintkv";
/// Only data is stored there, and access times are useless.
const MOUNT_OPTIONS: &str = "noatime,nodev,nosuid,noexec";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub name: String,
    pub table_id: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formatted {
    pub device: PathBuf,
    pub filesystem: String,
    pub uuid: String,
    pub mount_point: PathBuf,
    pub fstab_line: String,
}

/// xfs stays fast while large files are written and punched; ext4 is available everywhere.
pub fn filesystem(asked: Option<&str>) -> Result<String, String> {
    let has = |name: &str| installed(&format!("mkfs.{name}"));
    match asked {
        Some(name) if has(name) => Ok(name.to_owned()),
        Some("xfs") => Err("mkfs.xfs is not installed: apt-get install xfsprogs".to_owned()),
        Some(name) => Err(format!("mkfs.{name} is not installed: apt-get install e2fsprogs")),
        None => ["xfs", "ext4"]
            .into_iter()
            .find(|name| has(name))
            .map(str::to_owned)
            .ok_or_else(|| "neither mkfs.xfs nor mkfs.ext4 is installed: apt-get install xfsprogs".to_owned()),
    }
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A user's PATH lacks the directories of root's tools.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    dirs.map(|dir| dir.join(program)).any(|file| file.is_file())
}

/// A mount point for each of `count` devices: the given ones, or the next free /var/lib/flintkv/flash-N.
pub fn mount_points(asked: &[PathBuf], count: usize, mounts: &[Mount], fstab: &str) -> Result<Vec<PathBuf>, String> {
    mount_points_below(Path::new(MOUNTS_DIR), asked, count, mounts, fstab)
}

fn mount_points_below(
    base: &Path,
    asked: &[PathBuf],
    count: usize,
    mounts: &[Mount],
    fstab: &str,
) -> Result<Vec<PathBuf>, String> {
    let why_not = |dir: &Path| {
        if !dir.is_absolute() {
            Some("it is not absolute".to_owned())
        } else if mounts.iter().any(|mount| mount.point == dir) {
            Some("something is mounted there".to_owned())
        } else if in_fstab(fstab, dir) {
            Some("fstab mounts something else there".to_owned())
        } else if dir.exists() && fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_some()) {
            Some("it is not an empty directory".to_owned())
        } else {
            None
        }
    };
    if asked.is_empty() {
        let free = (0..).map(|number| base.join(format!("flash-{number}"))).filter(|dir| why_not(dir).is_none());
        return Ok(free.take(count).collect());
    }
    if asked.len() != count {
        return Err(format!("{} mount points for {count} devices: give --mount once for every device", asked.len()));
    }
    for (at, dir) in asked.iter().enumerate() {
        let twice = asked[..at].contains(dir).then(|| "it is given twice".to_owned());
        if let Some(why) = twice.or_else(|| why_not(dir)) {
            return Err(format!("nothing can be mounted at {}: {why}", dir.display()));
        }
    }
    Ok(asked.to_vec())
}

fn in_fstab(fstab: &str, dir: &Path) -> bool {
    let point = |line: &str| line.split_whitespace().nth(1).map(PathBuf::from);
    fstab.lines().filter(|line| !line.trim_start().starts_with('#')).any(|line| point(line).as_deref() == Some(dir))
}

/// The given user, who must exist, or else flintkv if that user exists. `passwd` is the text of /etc/passwd.
pub fn owner(asked: Option<&str>, passwd: &str) -> Result<Option<Owner>, String> {
    let name = asked.unwrap_or("flintkv");
    let found = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [user, _, table_id, gid, ..] = fields[..] else { return None };
        Some(Owner { name: user.to_owned(), table_id: table_id.parse().ok()?, gid: gid.parse().ok()? })
            .filter(|owner| owner.name == name)
    });
    match (found, asked) {
        (None, Some(name)) => Err(format!("there is no user {name}")),
        (found, _) => Ok(found),
    }
}

/// Formats and mounts one device. Calls `say` before each step.
pub fn format(
    device: &Path,
    filesystem: &str,
    mount_point: &Path,
    owner: Option<&Owner>,
    say: &dyn Fn(&str),
) -> Result<Formatted, String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|error| failed("a UUID", error))?;
    let uuid = uuid.trim();
    say("wiping old signatures");
    run(Command::new("wipefs").args(["--all", "--quiet"]).arg(device))?;
    say(&format!("making {filesystem}"));
    run(&mut mkfs(filesystem, uuid, device))?;
    say(&format!("mounting at {}", mount_point.display()));
    fs::create_dir_all(mount_point).map_err(|error| failed(&format!("create {}", mount_point.display()), error))?;
    // While nothing is mounted there, the user flintkv must not fill the disk below.
    fs::set_permissions(mount_point, Permissions::from_mode(0o700)).map_err(|error| failed("permissions", error))?;
    run(Command::new("mount").args(["-t", filesystem, "-o", MOUNT_OPTIONS]).arg(device).arg(mount_point))?;
    // From here on, this is the root of the new file system.
    if let Some(owner) = owner {
        std::os::unix::fs::chown(mount_point, Some(owner.table_id), Some(owner.gid))
            .map_err(|error| failed(&format!("give {} to {}", mount_point.display(), owner.name), error))?;
    }
    fs::set_permissions(mount_point, Permissions::from_mode(0o750)).map_err(|error| failed("permissions", error))?;
    Ok(Formatted {
        device: device.to_owned(),
        filesystem: filesystem.to_owned(),
        uuid: uuid.to_owned(),
        fstab_line: fstab_line(uuid, mount_point, filesystem),
        mount_point: mount_point.to_owned(),
    })
}

/// For one large file: no copy on write, few inodes, no blocks reserved for root, and no initialisation left for the
/// background while the node runs.
fn mkfs(filesystem: &str, uuid: &str, device: &Path) -> Command {
    let mut command = Command::new(format!("mkfs.{filesystem}"));
    match filesystem {
        "xfs" => command.args(["-f", "-q", "-L", "flintkv", "-m", &format!("reflink=0,uuid={uuid}")]),
        _ => {
            command.args(["-F", "-q", "-L", "flintkv", "-U", uuid, "-m", "0", "-T", "largefile"]);
            command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"])
        }
    };
    command.arg(device);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let path = std::env::join_paths(dirs).map_err(|error| error.to_string())?;
    let output =
        command.env("PATH", path).stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} failed ({}): {said}", output.status))
}

/// `nofail`: a missing disk must not stop the machine from booting.
fn fstab_line(uuid: &str, mount_point: &Path, filesystem: &str) -> String {
    let point = mount_point.display().to_string().replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011");
    let check = if filesystem == "xfs" { 0 } else { 2 };
    format!("UUID={uuid} {point} {filesystem} {MOUNT_OPTIONS},nofail 0 {check}")
}

/// Appends `lines` and keeps a copy of the old file, whose path is returned. The file is replaced in one step.
pub fn append_fstab(fstab: &Path, lines: &[String]) -> io::Result<PathBuf> {
    let fstab = fstab.canonicalize()?;
    let mut text = fs::read_to_string(&fstab)?;
    let backup = backup(&fstab, &text)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let new = with_suffix(&fstab, ".flintkv-new");
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::metadata(&fstab)?.permissions())?;
    file.sync_all()?;
    fs::rename(&new, &fstab)?;
    Ok(backup)
}

/// Never replaces an older copy.
fn backup(fstab: &Path, text: &str) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = with_suffix(fstab, &format!(".before-flintkv-{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                file.set_permissions(fs::metadata(fstab)?.permissions())?;
                file.sync_all()?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_free_mount_point_is_taken() {
        let base = tempfile::tempdir().unwrap();
        let dir = |number: u32| base.path().join(format!("flash-{number}"));
        // 0 is mounted, 1 is not empty, 2 is in fstab, 3 is empty, 4 does not exist.
        let mounted =
            Mount { device: "8:1".into(), point: dir(0), filesystem: "xfs".into(), source: "/dev/sda1".into() };
        fs::create_dir_all(dir(1).join("data")).unwrap();
        fs::create_dir(dir(3)).unwrap();
        let fstab = format!("# UUID=0 {} xfs\nUUID=1 {} xfs noatime 0 0\n", dir(3).display(), dir(2).display());
        let choose = |asked: &[PathBuf], count| {
            mount_points_below(base.path(), asked, count, std::slice::from_ref(&mounted), &fstab)
        };
        assert_eq!(choose(&[], 2), Ok(vec![dir(3), dir(4)]));
        assert_eq!(choose(&[dir(7)], 1), Ok(vec![dir(7)]));
        for (asked, count, why) in [
            (vec![dir(0)], 1, "something is mounted"),
            (vec![dir(1)], 1, "not an empty directory"),
            (vec![dir(2)], 1, "fstab"),
            (vec![dir(3), dir(3)], 2, "twice"),
            (vec![dir(3)], 2, "1 mount points for 2 devices"),
            (vec!["flash".into()], 1, "not absolute"),
        ] {
            let refused = choose(&asked, count).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn fstab_grows_and_a_copy_stays() {
        let dir = tempfile::tempdir().unwrap();
        let fstab = dir.path().join("fstab");
        fs::write(&fstab, "UUID=1 / ext4 defaults 0 1").unwrap();
        fs::set_permissions(&fstab, Permissions::from_mode(0o640)).unwrap();
        let line = fstab_line("2-3", Path::new("/mnt/a b"), "xfs");
        assert_eq!(line, "UUID=2-3 /mnt/a\\040b xfs noatime,nodev,nosuid,noexec,nofail 0 0");
        let first = append_fstab(&fstab, std::slice::from_ref(&line)).unwrap();
        let text = fs::read_to_string(&fstab).unwrap();
        assert_eq!(text, format!("UUID=1 / ext4 defaults 0 1\n{line}\n"));
        assert_eq!(fs::read_to_string(&first).unwrap(), "UUID=1 / ext4 defaults 0 1");
        assert_eq!(fs::metadata(&fstab).unwrap().permissions().mode() & 0o777, 0o640);
        let second = append_fstab(&fstab, &["# more".to_owned()]).unwrap();
        assert_ne!(first, second, "the older copy was replaced");
        assert_eq!(fs::read_to_string(&second).unwrap(), text);
        assert!(append_fstab(&dir.path().join("none"), &[]).is_err());
    }

    #[test]
    fn the_owner_is_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nflintkv:x:105:112::/var/lib/flintkv:/usr/sbin/nologin\n";
        let user = |asked| owner(asked, passwd).map(|owner| owner.map(|owner| (owner.table_id, owner.gid)));
        assert_eq!(user(None), Ok(Some((105, 112))));
        assert_eq!(user(Some("root")), Ok(Some((0, 0))));
        assert_eq!(user(Some("flint")), Err("there is no user flint".to_owned()));
        assert_eq!(owner(None, "root:x:0:0::/root:/bin/sh"), Ok(None));
    }
}
