//! Owns the locks by which only one process at a time uses a file, and the wait for a lock. Never knows what is in the
//! file.
//!
//! After a process was killed, the kernel keeps its locks until it has freed the process's memory, finished its last
//! operations and destroyed its rings. This can take seconds, even after the process has disappeared. So a start waits
//! for the lock of a process that is ending or gone, and is refused by the lock of a living process.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

const PAUSE: Duration = Duration::from_millis(10);
/// A longer wait is logged.
const UNTOLD: Duration = Duration::from_secs(1);

/// The process that has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    Own,
    Living(u32),
    /// A process that was killed, or that is gone.
    Ending(u32),
    /// The kernel does not name the process: it is in another container, or the file system uses other numbers in
    /// `/proc/locks`.
    Unknown,
}

impl Holder {
    /// How long to wait for this process.
    fn timeout(self) -> Duration {
        match self {
            // For a moment, a process that is ending cannot be told from a living one: it has taken the signal, but is
            // not marked yet.
            Holder::Living(_) => Duration::from_millis(200),
            // This process may have closed the file a moment ago, and its ring may not be destroyed yet.
            Holder::Own => Duration::from_secs(2),
            Holder::Unknown => Duration::from_secs(30),
            // Freeing the memory of the largest machines takes less.
            Holder::Ending(_) => Duration::from_secs(300),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Own => write!(f, "this process"),
            Holder::Living(process) => write!(f, "process {process}"),
            Holder::Ending(process) => write!(f, "process {process}, which does not end"),
            Holder::Unknown => write!(f, "an unknown process"),
        }
    }
}

#[derive(Debug)]
pub enum Refused {
    InUse(Holder),
    Io { action: &'static str, source: io::Error },
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> Refused {
    move |source| Refused::Io { action, source }
}

pub struct Locked {
    /// The file, which has the lock while it is open.
    pub file: File,
    /// Whether the file was created by this call.
    pub is_new: bool,
}

/// Opens a file for reading and writing, and locks it. Creates it if it is missing, and changes no byte of it.
pub fn exclusive(path: &Path) -> Result<Locked, Refused> {
    let mut is_new = false;
    loop {
        let mut options = OpenOptions::new();
        let file = match options.read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match options.create_new(true).mode(0o600).open(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    created => {
                        is_new = created.is_ok();
                        created
                    }
                }
            }
            opened => opened,
        };
        let file = file.map_err(failed("open"))?;
        // The owner may have deleted the file between the two calls. Then another process may lock a new file with this name.
        if wait(&file, path, FlockOperation::NonBlockingLockExclusive)? && is_named(&file, path) {
            return Ok(Locked { file, is_new });
        }
    }
}

/// Takes a shared lock, which excludes processes that lock the file exclusively to change it.
pub fn shared(file: &File, path: &Path) -> Result<(), Refused> {
    while !wait(file, path, FlockOperation::NonBlockingLockShared)? {}
    Ok(())
}

/// Waits for the lock. False: the file has lost its name meanwhile, and another process has the lock of the nameless
/// file.
fn wait(file: &File, path: &Path, operation: FlockOperation) -> Result<bool, Refused> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(failed("lock")(errno.into())),
        }
        let (holder, waited) = (holder_of(file), began.elapsed());
        if waited > holder.timeout() {
            return Err(Refused::InUse(holder));
        }
        if waited > UNTOLD && !is_told {
            tracing::info!("{}: waiting for the lock, which {holder} has", path.display());
            is_told = true;
        }
        thread::sleep(PAUSE);
        if !is_named(file, path) {
            return Ok(false);
        }
    }
}

fn is_named(file: &File, path: &Path) -> bool {
    let named = fs::metadata(path).and_then(|named| Ok((named, file.metadata()?)));
    named.is_ok_and(|(named, opened)| (named.dev(), named.ino()) == (opened.dev(), opened.ino()))
}

fn holder_of(file: &File) -> Holder {
    let (Ok(found), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else { return Holder::Unknown };
    let device = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    match process_in(&locks, device, found.ino()) {
        None => Holder::Unknown,
        Some(process) if process == std::process::id() => Holder::Own,
        Some(process) if is_ending(process) => Holder::Ending(process),
        Some(process) => Holder::Living(process),
    }
}

/// The process that has a lock of this file. A line of `/proc/locks`:
///
/// ```text
/// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:6160594 0 EOF
///    kind             mode  process  device:inode
/// ```
/// In the line of a process that waits for a lock, an arrow follows the first number. A process that this container
/// does not see has no line, or the number 0.
fn process_in(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    let process = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next() != Some("FLOCK") {
            return None;
        }
        let process = words.nth(2)?.parse().ok().filter(|&process| process > 0);
        process.filter(|_| words.next() == Some(&file))
    };
    locks.lines().find_map(process)
}

/// Whether the process is gone, or does nothing any more but end.
fn is_ending(process: u32) -> bool {
    let exists = Pid::from_raw(process as i32).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
    match (read("stat"), read("status")) {
        _ if !exists => true,
        (Ok(stat), Ok(status)) => ends_by(&stat, &status),
        // The processes of other users may be hidden.
        _ => false,
    }
}

/// Whether the process is ending, by what `/proc/PID/stat` and `status` say of its first thread, which ends with the
/// process.
fn ends_by(stat: &str, status: &str) -> bool {
    /// The kernel's flag PF_EXITING.
    const EXITING: u64 = 4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    // The name in brackets may contain anything.
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let state = words.next().unwrap_or_default();
    let flags = words.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0u64);
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let pending = |name| u64::from_str_radix(value(name), 16).unwrap_or(0);
    matches!(state, "Z" | "X")
        || flags & EXITING != 0
        || (pending("SigPnd:") | pending("ShdPnd:")) & KILLED != 0
        || value("CoreDumping:") == "1"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LOCKS: &str = "1: POSIX  ADVISORY  WRITE 7 fe:00:100 0 EOF\n\
                         2: FLOCK  ADVISORY  WRITE 4711 fe:00:1001 0 EOF\n\
                         3: FLOCK  ADVISORY  READ  12 fe:00:100 0 EOF\n\
                         3: -> FLOCK  ADVISORY  WRITE 13 fe:00:100 0 EOF\n\
                         4: FLOCK  ADVISORY  WRITE 0 fe:00:200 0 EOF\n";

    #[test]
    fn the_kernel_tells_who_has_a_lock() {
        assert_eq!(process_in(LOCKS, (0xfe, 0), 1001), Some(4711));
        assert_eq!(process_in(LOCKS, (0xfe, 0), 100), Some(12));
        assert_eq!(process_in(LOCKS, (0xfe, 1), 100), None, "another device");
        assert_eq!(process_in(LOCKS, (0xfe, 0), 200), None, "a process of another container");
        assert_eq!(process_in("", (0xfe, 0), 100), None);
    }

    #[test]
    fn a_process_that_is_ending_is_told_from_one_that_lives() {
        let stat = |state: &str, flags: u64| format!("12 (a) S 1) {state} 1 12 12 0 -1 {flags} 99 0 0");
        let status = |pending: &str, dumps: u8| {
            format!("Name:\ta\nCoreDumping:\t{dumps}\nSigPnd:\t{pending}\nShdPnd:\t0000000000000000\nSigBlk:\tffff\n")
        };
        let none = "0000000000000000";
        assert!(!ends_by(&stat("S", 0x40_0140), &status(none, 0)));
        assert!(!ends_by(&stat("T", 0x40_0140), &status("0000000000004000", 0)), "SIGTERM may be ignored");
        assert!(ends_by(&stat("S", 0x40_0140), &status("0000000000000100", 0)), "SIGKILL");
        assert!(ends_by(&stat("R", 0x40_0144), &status(none, 0)), "its memory is freed");
        assert!(ends_by(&stat("Z", 0x40_0140), &status(none, 0)));
        assert!(ends_by(&stat("S", 0x40_0140), &status(none, 1)));
        assert!(!ends_by("", ""));
    }

    #[test]
    fn only_those_that_live_are_refused_soon() {
        let second = Duration::from_secs(1);
        assert!(Holder::Living(1).timeout() < second);
        assert!(Holder::Ending(1).timeout() > 60 * second, "longer than a large memory is freed");
        assert!(Holder::Unknown.timeout() > 10 * second, "the container of a killed process has another successor");
    }

    /// Runs `f` beside a living process, and then kills that process. The process becomes a zombie, because nothing
    /// waits for it before it has been checked.
    fn beside(f: impl FnOnce(u32)) -> u32 {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        f(child.id());
        child.kill().unwrap();
        let is_ending_at_once = is_ending(child.id());
        let process = child.id();
        child.wait().unwrap();
        assert!(is_ending_at_once, "whoever was sent SIGKILL is ending");
        process
    }

    #[test]
    fn a_killed_process_is_ending_at_once_and_then_gone() {
        let process = beside(|process| assert!(!is_ending(process)));
        assert!(is_ending(process));
    }

    #[test]
    fn a_lock_is_waited_for_while_its_holder_is_gone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lock");
        // The flock command locks the file through a descriptor that it has inherited from this test. When it has
        // ended, the lock's process is gone, as after a kill, but the lock stays until the test closes its descriptor.
        let held = File::create(&path).unwrap();
        let gone = lock_by_another(&held);
        assert_eq!(holder_of(&held), Holder::Ending(gone));
        let waiting = thread::scope(|scope| {
            let waiting = scope.spawn(|| exclusive(&path));
            // Sleep longer than a wait for a living process takes.
            thread::sleep(3 * Holder::Living(1).timeout());
            assert!(!waiting.is_finished());
            drop(held);
            waiting.join().unwrap()
        });
        assert!(!waiting.unwrap().is_new);
    }

    /// Lets another process lock the open file. Returns the process's number when it is gone.
    fn lock_by_another(file: &File) -> u32 {
        let stdin = file.try_clone().unwrap();
        let mut child = Command::new("flock").args(["-n", "0"]).stdin(stdin).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        child.id()
    }

    #[test]
    fn who_lives_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lock");
        let mut child = Command::new("flock")
            .arg("-n")
            .arg(&path)
            .args(["sh", "-c", "echo has; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 4];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        match exclusive(&path).map(|_| ()) {
            Err(Refused::InUse(Holder::Living(process))) => assert_eq!(process, child.id()),
            other => panic!("{other:?}"),
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        let locked = exclusive(&path).unwrap();
        assert!(!locked.is_new);
        assert!(matches!(exclusive(&path).map(|_| ()), Err(Refused::InUse(Holder::Own))));
        fs::remove_file(&path).unwrap();
        assert!(exclusive(&path).unwrap().is_new);
    }
}
