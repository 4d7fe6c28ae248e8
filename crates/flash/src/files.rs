//! Owns the log files, one per flash path. It creates, locks, sizes and marks them at start, resizes them while the
//! process runs, and deletes them with their database. Never knows what the store writes after [`DATA_OFFSET`], or
//! which bytes may be cut off.
//!
//! A start empties every log ([`FlashFiles::open`]), unless a dataset that survives restarts has values there: such logs are kept,
//! and opened as they are ([`FlashFiles::reopen`]). The file itself stays when the process ends, so that the space it needs stays
//! visible.

use base::size::human;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::io::{Op, OpKind, PAGE_BYTES, PageBuf};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::lock::{self, Holder};
use crate::superblock::{DATA_OFFSET, Superblock};

/// The open logs of one database. The drivers of all workers share them.
#[derive(Debug)]
pub struct FlashFiles {
    logs: Vec<Log>,
    /// The size of every log's data, from [`DATA_OFFSET`] on.
    data_bytes: AtomicU64,
    mark: Mutex<Mark>,
    /// Whether a sync has failed.
    is_in_doubt: AtomicBool,
    made: Made,
}

/// What the superblocks say besides the size.
#[derive(Debug)]
struct Mark {
    log_id: [u8; 16],
    sequence: u64,
    is_kept: bool,
}

/// The exclusive right to change the files' size. Decisions made while it is held stay valid.
pub struct Sizing<'a> {
    files: &'a FlashFiles,
    mark: MutexGuard<'a, Mark>,
}

#[derive(Debug)]
struct Log {
    /// Holds the exclusive lock while it is open.
    file: File,
    info: PathInfo,
}

/// What a flash path supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    pub file: PathBuf,
    /// Bytes the store may use, from [`DATA_OFFSET`] on.
    pub data_bytes: u64,
    /// Reads and writes bypass the page cache.
    pub o_direct: bool,
    /// The disk has already reserved space for every byte.
    pub preallocated: bool,
    /// The file system frees discarded bytes.
    pub discard: bool,
}

#[derive(Debug)]
pub enum OpenError {
    /// No flash path was given, or more than 65,535.
    PathCount {
        count: usize,
    },
    /// The size is zero or not a multiple of [`PAGE_BYTES`].
    Bytes {
        bytes: u64,
    },
    /// Another process holds the log (or this process, if a path was given twice).
    InUse {
        file: PathBuf,
        holder: Holder,
    },
    /// The directory in which the flash path would be made is missing.
    NoParent {
        dir: PathBuf,
    },
    /// A dataset that survives restarts has values in the log that was to be emptied.
    Kept {
        file: PathBuf,
    },
    /// The log that was to be opened as it is belongs to another dataset.
    Foreign {
        file: PathBuf,
        why: String,
    },
    NoSpace {
        file: PathBuf,
        needed_bytes: u64,
        free_bytes: u64,
    },
    Io {
        action: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

impl FlashFiles {
    /// Opens `name` in every one of `paths`, empties it, and gives it `bytes_per_path` bytes after [`DATA_OFFSET`].
    /// Creates missing directories, but not their parents. An error leaves nothing behind that was not there before.
    pub fn open(paths: &[PathBuf], name: &str, bytes_per_path: u64) -> Result<FlashFiles, OpenError> {
        let mut made = Made::new();
        match FlashFiles::make(paths, name, bytes_per_path, &mut made) {
            Ok(files) => Ok(FlashFiles { made, ..files }),
            Err(refused) => {
                unmake(&made);
                Err(refused)
            }
        }
    }

    fn make(paths: &[PathBuf], name: &str, bytes_per_path: u64, made: &mut Made) -> Result<FlashFiles, OpenError> {
        let count = u16::try_from(paths.len())
            .ok()
            .filter(|&count| count > 0)
            .ok_or(OpenError::PathCount { count: paths.len() })?;
        if bytes_per_path == 0 || !bytes_per_path.is_multiple_of(PAGE_BYTES as u64) {
            return Err(OpenError::Bytes { bytes: bytes_per_path });
        }
        // Take every lock before any log is emptied: a refused start changes nothing.
        let locked = paths.iter().map(|path| lock(path, name, made)).collect::<Result<Vec<_>, _>>()?;
        for (file, path) in &locked {
            if superblock_of(file).is_ok_and(|found| found.is_kept) {
                return Err(OpenError::Kept { file: path.clone() });
            }
        }
        let log_id = random_id();
        let mut logs = Vec::with_capacity(locked.len());
        for (path_index, (file, path)) in (0..).zip(locked) {
            let superblock = Superblock {
                path_index,
                path_count: count,
                log_id,
                data_bytes: bytes_per_path,
                sequence: 0,
                is_kept: false,
            };
            logs.push(prepare(file, path, &superblock)?);
        }
        Ok(FlashFiles::of(logs, bytes_per_path, Mark { log_id, sequence: 0, is_kept: false }))
    }

    /// Opens the logs of `log_id` as they are. Creates nothing, and changes no byte that the store may use.
    pub fn reopen(paths: &[PathBuf], name: &str, log_id: [u8; 16]) -> Result<FlashFiles, OpenError> {
        let mut locked = Vec::with_capacity(paths.len());
        for (index, path) in paths.iter().enumerate() {
            let file = path.join(name);
            let foreign = |why: String| OpenError::Foreign { file: file.clone(), why };
            if !file.exists() {
                return Err(foreign("there is no such file".to_owned()));
            }
            let (opened, file) = lock_file(&file, &mut Made::new())?;
            let found = superblock_of(&opened).map_err(|error| foreign(error.to_string()))?;
            let here = (usize::from(found.path_index), usize::from(found.path_count));
            if found.log_id != log_id {
                return Err(foreign("it belongs to another dataset".to_owned()));
            }
            if here != (index, paths.len()) {
                let (at, of) = (here.0 + 1, here.1);
                return Err(foreign(format!(
                    "it was flash path {at} of {of}: give the flash paths in their old order"
                )));
            }
            locked.push((opened, file, found));
        }
        // After a crash in the middle of a change of size, the logs may differ in size.
        let sequence =
            locked.iter().map(|(.., found)| found.sequence).max().ok_or(OpenError::PathCount { count: 0 })?;
        let data_bytes = locked.iter().map(|(.., found)| found.data_bytes).min().unwrap_or(0);
        let is_kept = locked.iter().all(|(.., found)| found.is_kept);
        let logs =
            locked.into_iter().map(|(file, path, _)| reopened(file, path, data_bytes)).collect::<Result<_, _>>()?;
        Ok(FlashFiles::of(logs, data_bytes, Mark { log_id, sequence, is_kept }))
    }

    fn of(logs: Vec<Log>, data_bytes: u64, mark: Mark) -> FlashFiles {
        FlashFiles {
            logs,
            data_bytes: AtomicU64::new(data_bytes),
            mark: Mutex::new(mark),
            is_in_doubt: AtomicBool::new(false),
            made: Made::new(),
        }
    }

    /// Removes what [`FlashFiles::open`] has made, because the start is refused after all. What existed before stays.
    pub fn unmake(&self) {
        unmake(&self.made);
    }

    /// The log id, which is the same on all paths.
    pub fn log_id(&self) -> [u8; 16] {
        self.mark.lock().log_id
    }

    /// Sets whether a dataset that survives restarts has values in these logs.
    pub fn set_kept(&self, is_kept: bool) -> Result<(), OpenError> {
        let mut sizing = self.sizing();
        if sizing.mark.is_kept == is_kept {
            return Ok(());
        }
        let bytes = self.data_bytes();
        sizing.mark.is_kept = is_kept;
        // After a failure the next call writes it again.
        sizing.write_superblocks(bytes).inspect_err(|_| sizing.mark.is_kept = !is_kept)
    }

    /// Makes every completed write durable. After a sync has failed, a later successful one proves nothing, because the
    /// system may have dropped what it could not write. So all later syncs fail.
    pub fn sync(&self) -> Result<(), OpenError> {
        let in_doubt =
            || io::Error::other("an earlier sync failed, and it is not known which writes it lost: restart the node");
        for log in &self.logs {
            if self.is_in_doubt.load(Relaxed) {
                return Err(log.failed("sync", in_doubt()));
            }
            log.file.sync_data().map_err(|error| {
                self.is_in_doubt.store(true, Relaxed);
                log.failed("sync", error)
            })?;
        }
        Ok(())
    }

    /// The right to change the size. Waits while another caller holds it.
    pub fn sizing(&self) -> Sizing<'_> {
        Sizing { files: self, mark: self.mark.lock() }
    }

    /// Removes the logs. Their space is freed when the last reader or writer closes them.
    pub fn delete(&self) -> Result<(), OpenError> {
        for log in &self.logs {
            match fs::remove_file(&log.info.file) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(log.failed("delete", source)),
                _ => tracing::info!("flash path deleted: {}", log.info.file.display()),
            }
        }
        Ok(())
    }

    /// The number of flash paths. An operation's `path` is smaller than this.
    pub fn count(&self) -> usize {
        self.logs.len()
    }

    /// The current state of each flash path, in order.
    pub fn describe(&self) -> impl Iterator<Item = PathInfo> {
        self.logs.iter().map(|log| PathInfo { data_bytes: self.data_bytes(), ..log.info.clone() })
    }

    /// The bytes that the store may use on every path.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Relaxed)
    }

    pub(crate) fn file(&self, path: u16) -> &File {
        &self.logs[path as usize].file
    }

    pub(crate) fn discards(&self, path: u16) -> bool {
        self.logs[path as usize].info.discard
    }

    pub(crate) fn raw_fds(&self) -> Vec<RawFd> {
        self.logs.iter().map(|log| log.file.as_raw_fd()).collect()
    }

    /// Checks an operation before a driver runs it. A write outside its log would be a bug that destroys the superblock
    /// or grows the file.
    pub(crate) fn assert_inside(&self, op: &Op) {
        assert!((op.path as usize) < self.logs.len(), "no such flash path: {op:?}");
        assert!(op.offset.is_multiple_of(PAGE_BYTES as u64), "not at a page: {op:?}");
        let bytes = match &op.kind {
            OpKind::Read(_) | OpKind::Sync => return,
            OpKind::Write(buf) => buf.len() as u64,
            OpKind::Discard { bytes } => *bytes,
        };
        assert!(op.offset >= DATA_OFFSET, "before the data: {op:?}");
        assert!(op.offset + bytes <= DATA_OFFSET + self.data_bytes(), "past the end: {op:?}");
    }
}

impl Sizing<'_> {
    /// Gives every path `bytes_per_path` bytes after [`DATA_OFFSET`]. Growing is all or nothing: an error leaves the
    /// files as they were. Before shrinking, the bytes behind the smaller size must not be in use. A failed shrink can
    /// be repeated.
    pub fn set(&mut self, bytes_per_path: u64) -> Result<(), OpenError> {
        if bytes_per_path == 0 || !bytes_per_path.is_multiple_of(PAGE_BYTES as u64) {
            return Err(OpenError::Bytes { bytes: bytes_per_path });
        }
        match bytes_per_path > self.files.data_bytes() {
            true => self.grow(bytes_per_path),
            false => self.shrink(bytes_per_path),
        }
    }

    /// The file grows before its superblock, so that a superblock never claims more than the file has.
    fn grow(&mut self, bytes: u64) -> Result<(), OpenError> {
        let extended = self.files.logs.iter().try_for_each(|log| log.extend(bytes));
        let grown = extended.and_then(|()| self.write_superblocks(bytes));
        if grown.is_err() {
            let before = self.files.data_bytes();
            // Space that cannot be freed stays with the log, unused. Report the first error.
            let _ = self.files.logs.iter().try_for_each(|log| log.cut(before));
            let _ = self.write_superblocks(before);
        } else {
            self.files.data_bytes.store(bytes, Relaxed);
        }
        grown
    }

    fn shrink(&mut self, bytes: u64) -> Result<(), OpenError> {
        if bytes < self.files.data_bytes() {
            self.write_superblocks(bytes)?;
            self.files.data_bytes.store(bytes, Relaxed);
        }
        self.files.logs.iter().try_for_each(|log| log.cut(bytes))
    }

    /// Writes every log's superblock over the older of its two copies.
    fn write_superblocks(&mut self, data_bytes: u64) -> Result<(), OpenError> {
        // After a failure the same pages are written again, and not those of the last sure mark.
        let sequence = self.mark.sequence + 1;
        let Mark { log_id, is_kept, .. } = *self.mark;
        let path_count = self.files.logs.len() as u16;
        for (path_index, log) in (0..).zip(&self.files.logs) {
            let (offset, page) = Superblock { path_index, path_count, log_id, data_bytes, sequence, is_kept }.page();
            let bufs = [io::IoSlice::new(&page)];
            // The write must reach the device before it counts (the log may be in the page cache), and nothing else has
            // to.
            let written = rustix::io::pwritev2(&log.file, &bufs, offset, ReadWriteFlags::DSYNC);
            let result = match written {
                Ok(PAGE_BYTES) => Ok(()),
                Ok(_) => Err(io::ErrorKind::WriteZero.into()),
                Err(errno) => Err(errno.into()),
            };
            result.map_err(|error| log.failed("write the superblock of", error))?;
        }
        self.mark.sequence = sequence;
        Ok(())
    }
}

impl Log {
    fn extend(&self, data_bytes: u64) -> Result<(), OpenError> {
        let free_bytes = free_bytes(&self.file).map_err(|error| self.failed("ask for the free space of", error))?;
        allocate(&self.file, &self.info.file, data_bytes, free_bytes).map(|_| ())
    }

    fn cut(&self, data_bytes: u64) -> Result<(), OpenError> {
        let wanted = DATA_OFFSET + data_bytes;
        let cut = self.file.metadata().and_then(|now| match now.len() > wanted {
            true => self.file.set_len(wanted),
            false => Ok(()),
        });
        cut.map_err(|error| self.failed("shorten", error))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { action, file: self.info.file.clone(), source }
    }
}

/// The directories and files that a start has made. They are removed again if the start is refused.
type Made = Vec<PathBuf>;

/// Removes them, the last made first. Best effort: a directory that is not empty any more stays.
fn unmake(made: &[PathBuf]) {
    for path in made.iter().rev() {
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    }
}

/// Opens and locks without changing a byte. A missing directory is made, but not its parent, because a missing parent
/// probably means that a device is not mounted.
fn lock(dir: &Path, name: &str, made: &mut Made) -> Result<(File, PathBuf), OpenError> {
    match fs::create_dir(dir) {
        Ok(()) => {
            tracing::info!("flash path {}: the directory was missing and has been created", dir.display());
            made.push(dir.to_owned());
        }
        Err(_) if dir.is_dir() => {}
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::NoParent { dir: dir.to_owned() });
        }
        Err(source) => return Err(OpenError::Io { action: "create the directory", file: dir.to_owned(), source }),
    }
    lock_file(&dir.join(name), made)
}

fn lock_file(path: &Path, made: &mut Made) -> Result<(File, PathBuf), OpenError> {
    let locked = lock::exclusive(path).map_err(|refused| match refused {
        lock::Refused::InUse(holder) => OpenError::InUse { file: path.to_owned(), holder },
        lock::Refused::Io { action, source } => OpenError::Io { action, file: path.to_owned(), source },
    })?;
    if locked.is_new {
        made.push(path.to_owned());
    }
    Ok((locked.file, path.to_owned()))
}

fn prepare(file: File, path: PathBuf, superblock: &Superblock) -> Result<Log, OpenError> {
    let failed = |action, source| OpenError::Io { action, file: path.clone(), source };
    let free_bytes = free_bytes(&file).map_err(|error| failed("ask for the free space of", error))?;
    file.set_len(0).map_err(|error| failed("empty", error))?;
    let preallocated = allocate(&file, &path, superblock.data_bytes, free_bytes)?;
    let o_direct = mark(&file, &path, superblock)?;
    let discard = probe_discard(&file, &path);
    let data_bytes = superblock.data_bytes;
    let info = PathInfo { file: path, data_bytes, o_direct, preallocated, discard };
    tracing::info!("flash path opened: {info}");
    Ok(Log { file, info })
}

fn superblock_of(file: &File) -> io::Result<Superblock> {
    let mut pages = [0; 2 * PAGE_BYTES];
    file.read_exact_at(&mut pages, 0)?;
    Superblock::newest(&pages)
}

fn reopened(file: File, path: PathBuf, data_bytes: u64) -> Result<Log, OpenError> {
    let failed = |action, source| OpenError::Io { action, file: path.clone(), source };
    let size = file.metadata().map_err(|error| failed("ask for the size of", error))?;
    if size.len() < DATA_OFFSET + data_bytes {
        let why = format!("it has {} bytes, but its superblock says {}", size.len(), DATA_OFFSET + data_bytes);
        return Err(OpenError::Foreign { file: path, why });
    }
    let read = || file.read_exact_at(&mut PageBuf::new(1), 0);
    let o_direct = set_flags(&file, OFlags::DIRECT).is_ok() && read().is_ok();
    if !o_direct {
        set_flags(&file, OFlags::empty()).map_err(|error| failed("leave O_DIRECT for", error))?;
        tracing::warn!("{}: O_DIRECT is refused; reads and writes go through the page cache", path.display());
    }
    let preallocated = size.blocks() * 512 >= DATA_OFFSET + data_bytes;
    let discard = probe_discard(&file, &path);
    let info = PathInfo { file: path, data_bytes, o_direct, preallocated, discard };
    tracing::info!("flash path opened with its values: {info}");
    Ok(Log { file, info })
}

/// The space that this log may take: the file system's free space, plus what the log holds already.
fn free_bytes(file: &File) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(file)?;
    if fs.f_blocks == 0 {
        // The file system does not count its blocks. fallocate or a write will report missing space.
        return Ok(u64::MAX);
    }
    Ok(fs.f_bavail * fs.f_frsize + file.metadata()?.blocks() * 512)
}

/// Sets the file's size, which must not shrink. True: the disk has reserved space for every new byte. An error leaves
/// the size unchanged.
fn allocate(file: &File, path: &Path, data_bytes: u64, free_bytes: u64) -> Result<bool, OpenError> {
    let needed_bytes = DATA_OFFSET + data_bytes;
    let no_space = || OpenError::NoSpace { file: path.to_owned(), needed_bytes, free_bytes };
    // Check first, because fallocate would fill the disk to find out.
    if needed_bytes > free_bytes {
        return Err(no_space());
    }
    let failed = |action, source| OpenError::Io { action, file: path.to_owned(), source };
    let bytes_before = file.metadata().map_err(|error| failed("ask for the size of", error))?.len();
    let added = needed_bytes.saturating_sub(bytes_before);
    if added == 0 {
        return Ok(true);
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), bytes_before, added) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            tracing::warn!(
                "{}: the file system cannot preallocate; the log takes space as it fills, and \
                 writes fail if others take it first",
                path.display()
            );
            file.set_len(needed_bytes).map_err(|error| failed("set the size of", error))?;
            Ok(false)
        }
        Err(errno) => {
            // Free what was allocated. Report the first error.
            let _ = file.set_len(bytes_before);
            match errno {
                Errno::NOSPC | Errno::DQUOT => Err(no_space()),
                errno => Err(failed("preallocate", errno.into())),
            }
        }
    }
}

/// Writes the superblock with O_DIRECT and reads it back, or without O_DIRECT where that is refused. Some file systems
/// accept the flag and fail the first read or write, so both are tried.
fn mark(file: &File, path: &Path, superblock: &Superblock) -> Result<bool, OpenError> {
    let (offset, page) = superblock.page();
    let write = || {
        file.write_all_at(&page, offset)?;
        let mut back = PageBuf::new(1);
        file.read_exact_at(&mut back, offset)?;
        Superblock::decode(&back)
    };
    let refused = match set_flags(file, OFlags::DIRECT) {
        Err(refused) => refused,
        Ok(()) => match write() {
            Ok(read_back) => {
                assert_eq!(&read_back, superblock);
                return Ok(true);
            }
            Err(refused) => {
                set_flags(file, OFlags::empty()).map_err(|source| OpenError::Io {
                    action: "leave O_DIRECT for",
                    file: path.to_owned(),
                    source,
                })?;
                refused
            }
        },
    };
    tracing::warn!(
        "{}: O_DIRECT is refused ({refused}); reads and writes go through the page cache, which takes RAM \
         outside of FlintKV's limit",
        path.display()
    );
    let read_back =
        write().map_err(|source| OpenError::Io { action: "write the superblock of", file: path.to_owned(), source })?;
    assert_eq!(&read_back, superblock);
    Ok(false)
}

pub(crate) fn set_flags(file: &File, flags: OFlags) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Punches a hole into the reserved area once, to learn whether discards have any effect.
fn probe_discard(file: &File, path: &Path) -> bool {
    let page = PAGE_BYTES as u64;
    match punch(file, DATA_OFFSET - page, page) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(
                "{}: the file system does not punch holes ({error}); discards have no effect",
                path.display()
            );
            false
        }
    }
}

pub(crate) fn punch(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, mode, offset, bytes)?)
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    let filled = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled.ok(), Some(id.len()), "the kernel gives all 16 random bytes");
    id
}

impl fmt::Display for PathInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is| if is { "yes" } else { "no" };
        write!(
            f,
            "{}: {}, o_direct {}, preallocated {}, discard {}",
            self.file.display(),
            human(self.data_bytes),
            yes(self.o_direct),
            yes(self.preallocated),
            yes(self.discard),
        )
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PathCount { count } => {
                write!(f, "{count} flash paths; from 1 to {} are possible", u16::MAX)
            }
            OpenError::Bytes { bytes } => {
                write!(f, "{bytes} bytes of flash per path; a multiple of {PAGE_BYTES} is needed")
            }
            OpenError::InUse { file, holder: Holder::Own } => {
                write!(f, "{} is in use by this process already: its flash-path is given twice", file.display())
            }
            OpenError::InUse { file, holder } => write!(
                f,
                "{} is in use by another FlintKV process ({holder}); stop the other process or set another flash-path",
                file.display()
            ),
            OpenError::NoParent { dir } => write!(
                f,
                "flash-path {}: the directory {} does not exist; mount the device there, or create it",
                dir.display(),
                dir.parent().unwrap_or(dir).display()
            ),
            OpenError::Kept { file } => write!(
                f,
                "{} has values of a dataset that survives restarts: start with that dataset's dir, or set another flash-path; if \
                 the dataset is not wanted any more, delete the file",
                file.display()
            ),
            OpenError::Foreign { file, why } => write!(f, "{}: {why}", file.display()),
            OpenError::NoSpace { file, needed_bytes, free_bytes } => write!(
                f,
                "{} needs {}, but only {} are free on its file system: {} are missing; free some space, lower the memory limit or set \
                 another flash-path",
                file.display(),
                human(*needed_bytes),
                human(*free_bytes),
                human(needed_bytes.saturating_sub(*free_bytes))
            ),
            OpenError::Io { action, file, source } => {
                write!(f, "cannot {action} {}: {source}", file.display())
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MIB: u64 = 1 << 20;

    fn open(dir: &Path, bytes: u64) -> Result<FlashFiles, OpenError> {
        FlashFiles::open(&[dir.to_owned()], "flintkv-1.log", bytes)
    }

    #[test]
    fn after_a_failed_sync_no_later_one_is_believed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut files = open(scratch.path(), 8 * MIB).unwrap();
        files.sync().unwrap();
        // A pipe cannot be synced.
        let pipe = io::pipe().unwrap().1;
        let good = std::mem::replace(&mut files.logs[0].file, std::os::fd::OwnedFd::from(pipe).into());
        assert!(files.sync().unwrap_err().to_string().contains("Invalid argument"));
        files.logs[0].file = good;
        assert!(files.sync().unwrap_err().to_string().contains("restart the node"));
    }

    #[test]
    fn open_creates_the_directory_and_empties_the_log() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("b");
        let files = open(&dir, 8 * MIB).unwrap();
        let log = dir.join("flintkv-1.log");
        assert_eq!(fs::metadata(&log).unwrap().len(), DATA_OFFSET + 8 * MIB);
        assert_eq!(files.count(), 1);
        assert_eq!(files.data_bytes(), 8 * MIB);
        let first = Superblock::decode(&fs::read(&log).unwrap()[..PAGE_BYTES]).unwrap();
        assert_eq!((first.path_index, first.path_count, first.data_bytes), (0, 1, 8 * MIB));

        files.file(0).write_all_at(&PageBuf::new(1).filled(1), DATA_OFFSET).unwrap();
        assert_eq!(fs::read(&log).unwrap()[DATA_OFFSET as usize], 1);
        drop(files);
        let files = open(&dir, 4 * MIB).unwrap();
        let content = fs::read(&log).unwrap();
        assert_eq!(content.len() as u64, DATA_OFFSET + 4 * MIB);
        assert!(content[DATA_OFFSET as usize..].iter().all(|&byte| byte == 0));
        assert_ne!(Superblock::decode(&content[..PAGE_BYTES]).unwrap().log_id, first.log_id);
        drop(files);
        assert!(log.exists());
    }

    trait Filled {
        fn filled(self, byte: u8) -> Self;
    }

    impl Filled for PageBuf {
        fn filled(mut self, byte: u8) -> PageBuf {
            self.fill(byte);
            self
        }
    }

    #[test]
    fn several_paths_share_a_log_id() {
        let scratch = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..3).map(|path| scratch.path().join(path.to_string())).collect();
        let files = FlashFiles::open(&paths, "log", MIB).unwrap();
        assert_eq!(files.describe().count(), 3);
        let blocks: Vec<_> = paths
            .iter()
            .map(|path| fs::read(path.join("log")).unwrap())
            .map(|log| Superblock::decode(&log[..PAGE_BYTES]).unwrap())
            .collect();
        assert!(blocks.iter().all(|block| block.log_id == blocks[0].log_id));
        assert!((0..).zip(&blocks).all(|(index, block)| block.path_index == index));
    }

    #[test]
    fn a_second_open_is_refused_and_changes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let files = open(scratch.path(), MIB).unwrap();
        files.file(0).write_all_at(&PageBuf::new(1).filled(5), DATA_OFFSET).unwrap();

        let log = scratch.path().join("flintkv-1.log");
        let error = open(scratch.path(), 2 * MIB).unwrap_err();
        assert!(matches!(&error, OpenError::InUse { file, .. } if *file == log));
        let text = error.to_string();
        assert!(text.contains(log.to_str().unwrap()));
        assert!(text.contains("in use by this process already: its flash-path is given twice"), "{text}");
        assert_eq!(fs::read(&log).unwrap()[DATA_OFFSET as usize], 5);

        // Another process tries to take the same lock.
        let flock = || Command::new("flock").arg("-n").arg(&log).arg("true").status().unwrap();
        assert!(!flock().success());
        drop(files);
        assert!(flock().success());
        open(scratch.path(), 2 * MIB).unwrap();
    }

    #[test]
    fn the_same_path_twice_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let twice = [scratch.path().to_owned(), scratch.path().join(".")];
        let error = FlashFiles::open(&twice, "log", MIB).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }));
    }

    #[test]
    fn more_than_the_disk_has_is_refused_with_both_sizes() {
        let scratch = tempfile::tempdir().unwrap();
        let error = open(scratch.path(), 1 << 50).unwrap_err();
        let OpenError::NoSpace { needed_bytes, free_bytes, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(needed_bytes, DATA_OFFSET + (1 << 50));
        assert!(free_bytes < needed_bytes);
        let text = error.to_string();
        assert!(
            text.contains(&format!("needs {}, but only {} are free", human(needed_bytes), human(free_bytes))),
            "{text}"
        );
        assert!(text.contains(&format!("{} are missing", human(needed_bytes - free_bytes))), "{text}");
        assert!(names(scratch.path()).is_empty());
    }

    /// The log may use what it holds already: a restart works on a disk that the log fills.
    #[test]
    fn the_log_s_own_blocks_count_as_free() {
        let scratch = tempfile::tempdir().unwrap();
        drop(open(scratch.path(), 32 * MIB).unwrap());
        let file = File::open(scratch.path().join("flintkv-1.log")).unwrap();
        let fs = rustix::fs::fstatvfs(&file).unwrap();
        let held = file.metadata().unwrap().blocks() * 512;
        assert!(held >= 32 * MIB);
        // Other processes may take or free space between the two looks.
        assert!(free_bytes(&file).unwrap() + 16 * MIB > fs.f_bavail * fs.f_frsize + held);
    }

    #[test]
    fn sizes_that_are_not_pages_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(matches!(open(scratch.path(), 0), Err(OpenError::Bytes { bytes: 0 })));
        assert!(matches!(open(scratch.path(), 4097), Err(OpenError::Bytes { bytes: 4097 })));
        let none = FlashFiles::open(&[], "log", MIB);
        assert!(matches!(none, Err(OpenError::PathCount { count: 0 })));
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_refused_open_leaves_nothing_behind() {
        let scratch = tempfile::tempdir().unwrap();
        let in_scratch = |name: &str| scratch.path().join(name);
        // The mount point is missing.
        let text = open(&in_scratch("mnt/flint"), MIB).unwrap_err().to_string();
        let mount = in_scratch("mnt").display().to_string();
        assert!(text.contains(&format!("the directory {mount} does not exist; mount the device there")), "{text}");
        assert!(names(scratch.path()).is_empty());
        // The second path is refused when the first has its directory and its file.
        let paths = [in_scratch("0"), in_scratch("1"), in_scratch("mnt/2")];
        fs::create_dir(&paths[1]).unwrap();
        assert!(matches!(FlashFiles::open(&paths, "log", MIB), Err(OpenError::NoParent { .. })));
        assert!(matches!(FlashFiles::open(&paths[..2], "log", 1 << 50), Err(OpenError::NoSpace { .. })));
        assert!(matches!(FlashFiles::open(&paths[..1], "a/log", MIB), Err(OpenError::Io { .. })));
        assert_eq!(names(scratch.path()), ["1"]);
        assert!(names(&paths[1]).is_empty());
        // A start is refused later, for another reason.
        fs::write(paths[1].join("log"), "another's").unwrap();
        FlashFiles::open(&paths[..2], "log", MIB).unwrap().unmake();
        assert_eq!(names(scratch.path()), ["1"]);
        assert_eq!(names(&paths[1]), ["log"], "what was there before stays");
    }

    #[test]
    fn a_path_that_is_a_file_is_named_in_the_error() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("occupied");
        fs::write(&path, "").unwrap();
        let text = open(&path, MIB).unwrap_err().to_string();
        assert!(text.contains("create the directory"));
        assert!(text.contains(path.to_str().unwrap()));
    }

    fn sizes(files: &FlashFiles) -> Vec<(u64, u64, u64)> {
        let of = |info: PathInfo| {
            let log = fs::read(&info.file).unwrap();
            let superblock = Superblock::newest(&log).unwrap();
            assert_eq!(info.data_bytes, files.data_bytes());
            (log.len() as u64 - DATA_OFFSET, superblock.data_bytes, superblock.sequence)
        };
        files.describe().map(of).collect()
    }

    #[test]
    fn files_grow_and_shrink_and_keep_what_they_hold() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [scratch.path().join("0"), scratch.path().join("1")];
        let files = FlashFiles::open(&paths, "log", 2 * MIB).unwrap();
        files.file(1).write_all_at(&PageBuf::new(1).filled(7), DATA_OFFSET + MIB).unwrap();
        assert_eq!(sizes(&files), [(2 * MIB, 2 * MIB, 0); 2]);
        files.sizing().set(8 * MIB).unwrap();
        assert_eq!(sizes(&files), [(8 * MIB, 8 * MIB, 1); 2]);
        let blocks = files.file(0).metadata().unwrap().blocks();
        assert!(blocks * 512 >= 8 * MIB, "what was added has its place on the disk");
        files.file(1).write_all_at(&PageBuf::new(1).filled(8), DATA_OFFSET + 7 * MIB).unwrap();
        files.sizing().set(3 * MIB).unwrap();
        assert_eq!(sizes(&files), [(3 * MIB, 3 * MIB, 2); 2]);
        assert!(files.file(0).metadata().unwrap().blocks() < blocks, "the disk has its space back");
        // A range that was cut off and grown again is empty.
        files.sizing().set(8 * MIB).unwrap();
        let mut page = PageBuf::new(1);
        for (at, byte) in [(MIB, 7), (7 * MIB, 0)] {
            files.file(1).read_exact_at(&mut page, DATA_OFFSET + at).unwrap();
            assert!(page.iter().all(|&found| found == byte), "at {at}");
        }
        assert!(matches!(files.sizing().set(0), Err(OpenError::Bytes { .. })));
        assert!(matches!(files.sizing().set(4097), Err(OpenError::Bytes { .. })));
        files.sizing().set(8 * MIB).unwrap();
        assert_eq!(sizes(&files), [(8 * MIB, 8 * MIB, 3); 2]);
    }

    #[test]
    fn a_growth_that_finds_no_space_changes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let files = open(scratch.path(), 2 * MIB).unwrap();
        let error = files.sizing().set(1 << 50).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, OpenError::NoSpace { .. }), "{text}");
        assert!(text.contains("needs 1 PB"), "{text}");
        assert_eq!((sizes(&files)[0].0, sizes(&files)[0].1), (2 * MIB, 2 * MIB));
        files.sizing().set(4 * MIB).unwrap();
        assert_eq!((sizes(&files)[0].0, sizes(&files)[0].1), (4 * MIB, 4 * MIB));
    }

    #[test]
    fn kept_logs_are_reopened_as_they_are_and_never_emptied() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [scratch.path().join("0"), scratch.path().join("1")];
        let swapped = [paths[1].clone(), paths[0].clone()];
        let files = FlashFiles::open(&paths, "log", 2 * MIB).unwrap();
        let id = files.log_id();
        files.file(1).write_all_at(&PageBuf::new(1).filled(7), DATA_OFFSET + MIB).unwrap();
        files.set_kept(true).unwrap();
        files.sizing().set(3 * MIB).unwrap();
        files.sync().unwrap();
        assert!(matches!(FlashFiles::reopen(&paths, "log", id), Err(OpenError::InUse { .. })));
        drop(files);

        let text = FlashFiles::open(&paths, "log", 2 * MIB).unwrap_err().to_string();
        assert!(text.contains("has values of a dataset that survives restarts"), "{text}");
        let refused = |paths: &[PathBuf], name: &str, id, why: &str| {
            let text = FlashFiles::reopen(paths, name, id).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        };
        refused(&swapped, "log", id, "it was flash path 2 of 2: give the flash paths in their old order");
        refused(&paths[..1], "log", id, "it was flash path 1 of 2");
        refused(&paths, "log", [0; 16], "it belongs to another dataset");
        refused(&paths, "other", id, "there is no such file");
        assert!(!paths[0].join("other").exists());

        let files = FlashFiles::reopen(&paths, "log", id).unwrap();
        assert_eq!((files.data_bytes(), files.log_id()), (3 * MIB, id));
        let mut page = PageBuf::new(1);
        files.file(1).read_exact_at(&mut page, DATA_OFFSET + MIB).unwrap();
        assert!(page.iter().all(|&byte| byte == 7));
        files.set_kept(true).unwrap();
        assert_eq!(sizes(&files), [(3 * MIB, 3 * MIB, 2); 2], "it is kept already");
        files.set_kept(false).unwrap();
        drop(files);
        File::options().write(true).open(paths[1].join("log")).unwrap().set_len(2 * MIB).unwrap();
        refused(&paths, "log", id, "bytes, but its superblock says");
        FlashFiles::open(&paths, "log", 2 * MIB).unwrap();
    }

    #[test]
    fn a_deleted_log_is_gone_and_its_name_is_free() {
        let scratch = tempfile::tempdir().unwrap();
        let files = open(scratch.path(), MIB).unwrap();
        let log = scratch.path().join("flintkv-1.log");
        files.delete().unwrap();
        assert!(!log.exists());
        // A process that has the old file open can still use it, and no other process can.
        files.file(0).write_all_at(&PageBuf::new(1).filled(1), DATA_OFFSET).unwrap();
        files.delete().unwrap();
        let next = open(scratch.path(), 2 * MIB).unwrap();
        assert!(log.exists());
        drop(files);
        assert!(matches!(open(scratch.path(), MIB), Err(OpenError::InUse { .. })));
        drop(next);
    }
}
