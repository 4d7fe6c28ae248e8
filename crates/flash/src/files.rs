//! Owns the log files: one per flash path, created, locked, sized and marked at start.
//! Never knows what the store writes behind [`DATA_OFFSET`].
//!
//! Flash holds no data across restarts, so a start empties every log. The file itself stays when the
//! process ends: it keeps its place on the disk visible, and deleting it under a lock would let a
//! second process lock a new file of the same name.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use store::io::{Op, OpKind, PAGE_BYTES, PageBuf};

/// Where the store's bytes begin in every log file. The first page is the superblock; the rest up to
/// 1 MiB is reserved, so that the store's large writes begin on a boundary that RAID stripes and
/// flash translation layers like.
pub const DATA_OFFSET: u64 = 1 << 20;
const _: () = assert!(DATA_OFFSET.is_multiple_of(PAGE_BYTES as u64));

/// The open logs of one database, shared by all workers' drivers.
#[derive(Debug)]
pub struct FlashFiles {
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    /// Holds the exclusive lock for as long as it is open.
    file: File,
    info: PathInfo,
}

/// What a flash path turned out to be able to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    pub file: PathBuf,
    /// Bytes the store may use, from [`DATA_OFFSET`] on.
    pub data_bytes: u64,
    /// Reads and writes bypass the page cache.
    pub o_direct: bool,
    /// Every byte has its place on the disk already.
    pub preallocated: bool,
    /// Discarded bytes are given back to the file system.
    pub discard: bool,
}

#[derive(Debug)]
pub enum OpenError {
    /// No flash path was given, or more than 65,535.
    PathCount {
        count: usize,
    },
    /// Not a multiple of [`PAGE_BYTES`], or nothing.
    Bytes {
        bytes: u64,
    },
    /// Another process (or this one, if a path is given twice) holds the log.
    InUse {
        file: PathBuf,
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
    /// Opens `name` in every one of `paths`, empties it and gives it room for `bytes_per_path` bytes
    /// behind [`DATA_OFFSET`]. A directory that is missing is created.
    pub fn open(paths: &[PathBuf], name: &str, bytes_per_path: u64) -> Result<FlashFiles, OpenError> {
        let count = u16::try_from(paths.len())
            .ok()
            .filter(|&count| count > 0)
            .ok_or(OpenError::PathCount { count: paths.len() })?;
        if bytes_per_path == 0 || !bytes_per_path.is_multiple_of(PAGE_BYTES as u64) {
            return Err(OpenError::Bytes { bytes: bytes_per_path });
        }
        // Every lock is taken before any log is emptied: a start that is refused changes nothing.
        let locked = paths.iter().map(|path| lock(path, name)).collect::<Result<Vec<_>, _>>()?;
        let log_id = random_id();
        let mut logs = Vec::with_capacity(locked.len());
        for (path_index, (file, path)) in (0..).zip(locked) {
            let superblock = Superblock { path_index, path_count: count, log_id, data_bytes: bytes_per_path };
            logs.push(prepare(file, path, &superblock)?);
        }
        Ok(FlashFiles { logs })
    }

    /// Number of flash paths; an operation's `path` is below it.
    pub fn count(&self) -> usize {
        self.logs.len()
    }

    /// One row per flash path, in their order.
    pub fn describe(&self) -> impl Iterator<Item = &PathInfo> {
        self.logs.iter().map(|log| &log.info)
    }

    pub fn data_bytes(&self, path: u16) -> u64 {
        self.logs[path as usize].info.data_bytes
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

    /// A driver's check of what it is handed: a write outside its log would be a bug that destroys
    /// the superblock or grows the file.
    pub(crate) fn assert_inside(&self, op: &Op) {
        assert!((op.path as usize) < self.logs.len(), "no such flash path: {op:?}");
        assert!(op.offset.is_multiple_of(PAGE_BYTES as u64), "not at a page: {op:?}");
        let bytes = match &op.kind {
            OpKind::Read(_) => return,
            OpKind::Write(buf) => buf.len() as u64,
            OpKind::Discard { bytes } => *bytes,
        };
        assert!(op.offset >= DATA_OFFSET, "before the data: {op:?}");
        assert!(op.offset + bytes <= DATA_OFFSET + self.data_bytes(op.path), "past the end: {op:?}");
    }
}

/// A process that was killed holds its lock until the kernel has finished its last operations and
/// taken its rings down, which is some time after the process is gone. Whoever starts the next one at
/// once is not to be refused for that.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Opens and locks without changing a byte.
fn lock(dir: &Path, name: &str) -> Result<(File, PathBuf), OpenError> {
    fs::create_dir_all(dir).map_err(|source| OpenError::Io {
        action: "create the directory",
        file: dir.to_owned(),
        source,
    })?;
    let path = dir.join(name);
    let failed = |action, source| OpenError::Io { action, file: path.clone(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| failed("open", error))?;
    let patience_ends = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((file, path)),
            Err(Errno::WOULDBLOCK) if Instant::now() < patience_ends => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { file: path }),
            Err(errno) => return Err(failed("lock", errno.into())),
        }
    }
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

/// What this log may take: the file system's free space and what the log holds already.
fn free_bytes(file: &File) -> io::Result<u64> {
    let fs = rustix::fs::fstatvfs(file)?;
    if fs.f_blocks == 0 {
        // A file system that does not count its blocks; fallocate or the writes will tell.
        return Ok(u64::MAX);
    }
    Ok(fs.f_bavail * fs.f_frsize + file.metadata()?.blocks() * 512)
}

/// Gives the file its size; true if every byte has its place on the disk.
fn allocate(file: &File, path: &Path, data_bytes: u64, free_bytes: u64) -> Result<bool, OpenError> {
    let needed_bytes = DATA_OFFSET + data_bytes;
    let no_space = || OpenError::NoSpace { file: path.to_owned(), needed_bytes, free_bytes };
    // Asked first: fallocate would fill the disk to find out.
    if needed_bytes > free_bytes {
        return Err(no_space());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, needed_bytes) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            tracing::warn!(
                "{}: the file system cannot preallocate; space is taken as the log fills, and \
                 writes fail if others take it first",
                path.display()
            );
            file.set_len(needed_bytes).map_err(|source| OpenError::Io {
                action: "set the size of",
                file: path.to_owned(),
                source,
            })?;
            Ok(false)
        }
        Err(errno) => {
            // Gives back what was taken; the error to report is the first one.
            let _ = file.set_len(0);
            match errno {
                Errno::NOSPC | Errno::DQUOT => Err(no_space()),
                errno => Err(OpenError::Io { action: "preallocate", file: path.to_owned(), source: errno.into() }),
            }
        }
    }
}

/// Writes the superblock with O_DIRECT and reads it back; without, where that is refused. Some file
/// systems take the flag and fail the first read or write, so both belong to the question.
fn mark(file: &File, path: &Path, superblock: &Superblock) -> Result<bool, OpenError> {
    let mut page = PageBuf::new(1);
    superblock.encode(&mut page);
    let write = || {
        file.write_all_at(&page, 0)?;
        let mut back = PageBuf::new(1);
        file.read_exact_at(&mut back, 0)?;
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
        "{}: O_DIRECT is refused ({refused}); flash goes through the page cache, which takes RAM \
         outside of FlintKV's limit",
        path.display()
    );
    let read_back =
        write().map_err(|source| OpenError::Io { action: "write the superblock of", file: path.to_owned(), source })?;
    assert_eq!(&read_back, superblock);
    Ok(false)
}

fn set_flags(file: &File, flags: OFlags) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Punches a hole into the reserved area once, to know whether the store's discards would do anything.
fn probe_discard(file: &File, path: &Path) -> bool {
    let page = PAGE_BYTES as u64;
    match punch(file, DATA_OFFSET - page, page) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!("{}: the file system does not punch holes ({error}); discards do nothing", path.display());
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
    assert_eq!(filled.ok(), Some(id.len()), "16 random bytes come whole, or the kernel is not Linux");
    id
}

/// The first page of every log. Integers are little-endian.
///
/// ```text
///    0       8         12       14       16         32            40           48          4092    4096
///    +-------+---------+--------+--------+----------+-------------+------------+-----------+--------+
///    | magic | version | path   | path   | log id   | data offset | data bytes | zero      | CRC-32C|
///    |       | u32     | index  | count  | 16 bytes | u64         | u64        |           | of all |
///    |       |         | u16    | u16    |          |             |            |           | before |
///    +-------+---------+--------+--------+----------+-------------+------------+-----------+--------+
/// ```
/// The log id is random and the same on all paths of one start, so that logs of different starts
/// cannot be mixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    pub path_index: u16,
    pub path_count: u16,
    pub log_id: [u8; 16],
    pub data_bytes: u64,
}

mod at {
    use std::ops::Range;
    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    pub const PATH_INDEX: Range<usize> = 12..14;
    pub const PATH_COUNT: Range<usize> = 14..16;
    pub const LOG_ID: Range<usize> = 16..32;
    pub const DATA_OFFSET: Range<usize> = 32..40;
    pub const DATA_BYTES: Range<usize> = 40..48;
    pub const ZERO: Range<usize> = 48..4092;
    pub const CRC: Range<usize> = 4092..4096;
}

const MAGIC: [u8; 8] = *b"FLINTKV\0";
const VERSION: u32 = 1;

const _: () = {
    assert!(at::MAGIC.end - at::MAGIC.start == MAGIC.len());
    assert!(at::MAGIC.end == at::VERSION.start && at::VERSION.end == at::PATH_INDEX.start);
    assert!(at::PATH_INDEX.end == at::PATH_COUNT.start && at::PATH_COUNT.end == at::LOG_ID.start);
    assert!(at::LOG_ID.end == at::DATA_OFFSET.start && at::DATA_OFFSET.end == at::DATA_BYTES.start);
    assert!(at::DATA_BYTES.end == at::ZERO.start && at::ZERO.end == at::CRC.start);
    assert!(at::CRC.end == PAGE_BYTES);
};

impl Superblock {
    fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        page[at::MAGIC].copy_from_slice(&MAGIC);
        page[at::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        page[at::PATH_INDEX].copy_from_slice(&self.path_index.to_le_bytes());
        page[at::PATH_COUNT].copy_from_slice(&self.path_count.to_le_bytes());
        page[at::LOG_ID].copy_from_slice(&self.log_id);
        page[at::DATA_OFFSET].copy_from_slice(&DATA_OFFSET.to_le_bytes());
        page[at::DATA_BYTES].copy_from_slice(&self.data_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&page[..at::CRC.start]);
        page[at::CRC].copy_from_slice(&crc.to_le_bytes());
    }

    /// `page` is the first page of a log.
    pub fn decode(page: &[u8]) -> io::Result<Superblock> {
        let refuse = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if page.len() != PAGE_BYTES || page[at::MAGIC] != MAGIC {
            return refuse("not a FlintKV log");
        }
        if u32_at(page, at::CRC) != crc32c::crc32c(&page[..at::CRC.start]) {
            return refuse("the superblock's checksum is wrong");
        }
        if u32_at(page, at::VERSION) != VERSION {
            return refuse("a log format this version does not know");
        }
        if u64_at(page, at::DATA_OFFSET) != DATA_OFFSET {
            return refuse("a log whose data begins elsewhere");
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&page[at::LOG_ID]);
        Ok(Superblock {
            path_index: u16_at(page, at::PATH_INDEX),
            path_count: u16_at(page, at::PATH_COUNT),
            log_id,
            data_bytes: u64_at(page, at::DATA_BYTES),
        })
    }
}

fn u16_at(page: &[u8], at: std::ops::Range<usize>) -> u16 {
    u16::from_le_bytes(page[at].try_into().expect("a range of two bytes"))
}

fn u32_at(page: &[u8], at: std::ops::Range<usize>) -> u32 {
    u32::from_le_bytes(page[at].try_into().expect("a range of four bytes"))
}

fn u64_at(page: &[u8], at: std::ops::Range<usize>) -> u64 {
    u64::from_le_bytes(page[at].try_into().expect("a range of eight bytes"))
}

impl fmt::Display for PathInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is| if is { "yes" } else { "no" };
        write!(
            f,
            "{}: {} bytes, o_direct {}, preallocated {}, discard {}",
            self.file.display(),
            self.data_bytes,
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
            OpenError::InUse { file } => write!(
                f,
                "{} is in use by another FlintKV process, or its flash-path is given twice; stop \
                 the other process or set another flash-path",
                file.display()
            ),
            OpenError::NoSpace { file, needed_bytes, free_bytes } => write!(
                f,
                "{} needs {needed_bytes} bytes, but only {free_bytes} are free on its file system; \
                 free some, lower the memory limit or set another flash-path",
                file.display()
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
    fn open_creates_the_directory_and_empties_the_log() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("a/b");
        let files = open(&dir, 8 * MIB).unwrap();
        let log = dir.join("flintkv-1.log");
        assert_eq!(fs::metadata(&log).unwrap().len(), DATA_OFFSET + 8 * MIB);
        assert_eq!(files.count(), 1);
        assert_eq!(files.data_bytes(0), 8 * MIB);
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
        assert!(matches!(&error, OpenError::InUse { file } if *file == log));
        let text = error.to_string();
        assert!(text.contains(log.to_str().unwrap()));
        assert!(text.contains("stop the other process or set another flash-path"));
        assert_eq!(fs::read(&log).unwrap()[DATA_OFFSET as usize], 5);

        // Another process asks for the same lock.
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
        assert!(text.contains(&needed_bytes.to_string()));
        assert!(text.contains(&free_bytes.to_string()));
        let log = fs::metadata(scratch.path().join("flintkv-1.log")).unwrap();
        assert_eq!(log.blocks(), 0);
    }

    /// What the log holds already is its own to use: a restart on a disk that the log fills works.
    #[test]
    fn the_log_s_own_blocks_count_as_free() {
        let scratch = tempfile::tempdir().unwrap();
        drop(open(scratch.path(), 32 * MIB).unwrap());
        let file = File::open(scratch.path().join("flintkv-1.log")).unwrap();
        let fs = rustix::fs::fstatvfs(&file).unwrap();
        let held = file.metadata().unwrap().blocks() * 512;
        assert!(held >= 32 * MIB);
        // Others may take or free some of the disk between the two looks.
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

    #[test]
    fn a_path_that_is_a_file_is_named_in_the_error() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("occupied");
        fs::write(&path, "").unwrap();
        let text = open(&path, MIB).unwrap_err().to_string();
        assert!(text.contains("create the directory"));
        assert!(text.contains(path.to_str().unwrap()));
    }

    /// The layout of release 0.1: these bytes must stay readable.
    #[test]
    fn the_superblock_s_layout_is_frozen() {
        let superblock =
            Superblock { path_index: 1, path_count: 2, log_id: *b"0123456789abcdef", data_bytes: 0x1234_5000 };
        let mut page = PageBuf::new(1).filled(0xFF);
        superblock.encode(&mut page);
        assert_eq!(&page[..16], b"FLINTKV\0\x01\0\0\0\x01\0\x02\0");
        assert_eq!(&page[16..32], b"0123456789abcdef");
        assert_eq!(&page[32..48], b"\0\0\x10\0\0\0\0\0\0\x50\x34\x12\0\0\0\0");
        assert!(page[48..4092].iter().all(|&byte| byte == 0));
        assert_eq!(crc32c::crc32c(&page[..4092]), u32_at(&page, at::CRC));
        assert_eq!(Superblock::decode(&page).unwrap(), superblock);
        for byte in 0..PAGE_BYTES {
            page[byte] ^= 0x10;
            assert!(Superblock::decode(&page).is_err(), "byte {byte} may change unseen");
            page[byte] ^= 0x10;
        }
    }
}
