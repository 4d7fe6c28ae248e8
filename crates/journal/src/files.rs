//! Owns the journal's directory: it makes, opens and deletes the lock, the files of frames and the ring's file. Never
//! knows what the files contain behind their heads.
//!
//! The files of frames are `journal-0000` and so on, without a gap; the ring's file is `journal-ring`; `journal-lock`
//! is locked by the process that uses the journal. A file is made under another name first, and renamed when it is
//! complete and durable. So a file with its final name is complete.

use base::size::human;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flash::DATA_OFFSET;
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf, Reader};
use flash::lock::{self, Holder, Refused};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::head::{Head, Kind};
use crate::recover;
use crate::ring::{ENTRIES_AT, Ring};

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has opened the journal, or this one.
    InUse {
        directory: PathBuf,
        holder: Holder,
    },
    /// The file belongs to another journal, or is not a journal file.
    Foreign {
        file: PathBuf,
        what: String,
    },
    /// A file that must be there is not.
    Missing {
        file: PathBuf,
    },
    /// The records cannot be read.
    Records {
        directory: PathBuf,
        source: recover::Error,
    },
    NoSpace {
        file: PathBuf,
        needed_bytes: u64,
    },
    Io {
        action: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

/// The open files of one journal. An operation's path is a file's number.
pub(crate) struct Files {
    directory: PathBuf,
    log_id: [u8; 16],
    /// Bytes of each file behind [`DATA_OFFSET`].
    file_bytes: u64,
    files: Vec<File>,
    /// For each file: whether it may have bytes that are not durable.
    is_dirty: Vec<bool>,
    /// Whether the file systems accept writes that are durable when they return.
    writes_durably: bool,
    /// Holds the lock while it is open. `None`: the files are only read.
    lock: Option<File>,
    /// Whether missing bytes behind the end of a file are read as zeroes.
    is_patched: bool,
}

/// The file of a ring, if the journal has one.
pub(crate) type RingFile = Option<(File, Head)>;

/// The existing files of a damaged journal, and what is wrong with them. Missing bytes are read as zeroes.
pub(crate) struct Remains {
    pub files: Files,
    pub ring: RingFile,
    pub damage: Vec<String>,
}

const RING: &str = "journal-ring";
const LOCK: &str = "journal-lock";
/// Stands in for a missing file: it reads as zeroes.
const NOTHING: &str = "/dev/zero";
/// The end of the name of a file that is being made.
const UNFINISHED: &str = ".new";

impl Files {
    /// Locks the directory and opens the journal's files. Creates only the directory and the lock.
    pub fn open(directory: &Path, log_id: [u8; 16], file_bytes: u64) -> Result<(Files, RingFile), OpenError> {
        fs::create_dir_all(directory).map_err(failed("create the directory", directory))?;
        let lock = lock(directory)?;
        Files::all(directory, log_id, file_bytes, Some(lock))
    }

    /// Opens the journal's files for reading, even while another process uses them.
    pub fn look(directory: &Path, log_id: [u8; 16]) -> Result<(Files, RingFile), OpenError> {
        Files::all(directory, log_id, PAGE_BYTES as u64, None)
    }

    fn all(
        directory: &Path,
        log_id: [u8; 16],
        file_bytes: u64,
        lock: Option<File>,
    ) -> Result<(Files, RingFile), OpenError> {
        let changes = lock.is_some();
        let mut files = Files {
            directory: directory.to_owned(),
            log_id,
            file_bytes,
            files: Vec::new(),
            is_dirty: Vec::new(),
            writes_durably: true,
            lock,
            is_patched: false,
        };
        let names = names_in(directory)?;
        let last = names.iter().filter_map(|name| number_of(name)).max();
        for number in 0..last.map_or(0, |last| last + 1) {
            files.open_records(number)?;
        }
        let ring = open_file(&directory.join(RING), changes)?;
        let ring = ring.map(|file| files.check(Kind::Ring, 0, RING, &file).map(|head| (file, head))).transpose()?;
        if ring.is_none() && !files.files.is_empty() {
            return Err(OpenError::Missing { file: directory.join(RING) });
        }
        Ok((files, ring))
    }

    /// Opens the files of a damaged journal for reading. Only the file system can cause an error.
    pub fn remains(directory: &Path, log_id: [u8; 16]) -> Result<Remains, OpenError> {
        let mut files = Files {
            directory: directory.to_owned(),
            log_id,
            file_bytes: 0,
            files: Vec::new(),
            is_dirty: Vec::new(),
            writes_durably: false,
            lock: None,
            is_patched: true,
        };
        let mut damage = Vec::new();
        let names = names_in(directory)?;
        let last = names.iter().filter_map(|name| number_of(name)).max();
        let mut longest = 0;
        for number in 0..last.map_or(0, |last| last + 1) {
            let name = name_of(number);
            let path = directory.join(&name);
            let Some(file) = open_file(&path, false)? else {
                damage.push(OpenError::Missing { file: path }.to_string());
                files.files.push(File::open(NOTHING).map_err(failed("open", Path::new(NOTHING)))?);
                continue;
            };
            let bytes = file.metadata().map_err(failed("ask for the size of", &path))?.len();
            longest = longest.max(bytes.saturating_sub(DATA_OFFSET));
            match files.check(Kind::Records, number.into(), &name, &file) {
                Ok(head) => files.file_bytes = head.data_bytes,
                Err(error) => damage.push(error.to_string()),
            }
            files.files.push(file);
        }
        if files.file_bytes == 0 {
            files.file_bytes = longest.next_multiple_of(PAGE_BYTES as u64).max(PAGE_BYTES as u64);
        }
        let path = directory.join(RING);
        let ring = match open_file(&path, false)? {
            Some(file) => match files.check(Kind::Ring, 0, RING, &file) {
                Ok(head) => Some((file, head)),
                Err(error) => {
                    damage.push(error.to_string());
                    None
                }
            },
            None if files.files.is_empty() => None,
            None => {
                damage.push(OpenError::Missing { file: path }.to_string());
                None
            }
        };
        Ok(Remains { files, ring, damage })
    }

    fn open_records(&mut self, number: u16) -> Result<(), OpenError> {
        let name = name_of(number);
        let path = self.directory.join(&name);
        let file = open_file(&path, self.lock.is_some())?.ok_or_else(|| OpenError::Missing { file: path.clone() })?;
        let head = self.check(Kind::Records, number.into(), &name, &file)?;
        if number == 0 {
            self.file_bytes = head.data_bytes;
        } else if head.data_bytes != self.file_bytes {
            let what = format!("the file has {} bytes, the others have {}", head.data_bytes, self.file_bytes);
            return Err(OpenError::Foreign { file: path, what });
        }
        go_direct(&file, &path)?;
        self.files.push(file);
        // The process that wrote the file may have been killed before its last sync.
        self.is_dirty.push(true);
        Ok(())
    }

    /// Checks that the file belongs to this journal, and is as long as its head says.
    fn check(&self, kind: Kind, number: u32, name: &str, file: &File) -> Result<Head, OpenError> {
        let path = self.directory.join(name);
        let mut page = PageBuf::new(1);
        let foreign = |what: String| OpenError::Foreign { file: path.clone(), what };
        match file.read_exact_at(&mut page, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(foreign("this is not a journal file".into()));
            }
            read => read.map_err(failed("read", &path))?,
        }
        let head = Head::read(kind, &page).map_err(foreign)?;
        if head.log_id != self.log_id {
            let id = u128::from_be_bytes(head.log_id);
            return Err(foreign(format!("the file belongs to another journal, {id:032x}")));
        }
        if head.number != number {
            return Err(foreign(format!("this is file {} of the journal, under another name", head.number)));
        }
        let wanted = match kind {
            Kind::Records => DATA_OFFSET + head.data_bytes,
            Kind::Ring => Ring::file_bytes(head.data_bytes),
        };
        let bytes = file.metadata().map_err(failed("ask for the size of", &path))?.len();
        if bytes < wanted {
            return Err(foreign(format!("the file is cut off: it has {bytes} of {wanted} bytes")));
        }
        Ok(head)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub fn count(&self) -> u16 {
        self.files.len() as u16
    }

    /// Makes the contents of the files durable.
    pub fn sync(&self) -> Result<(), OpenError> {
        self.files.iter().try_for_each(|file| file.sync_data().map_err(failed("sync a file in", &self.directory)))
    }

    /// Makes the next file, filled with zeroes or only allocated. The blocks of an allocated file count as not written,
    /// so a sync after the first write to a block must also write metadata of the file system. That matters if each
    /// record has its own sync. Otherwise the zeroes cost more, because they are as many bytes as the records.
    pub fn add(&mut self, zeroed: bool) -> Result<(), OpenError> {
        let number = self.count();
        let head = Head {
            kind: Kind::Records,
            number: number.into(),
            log_id: self.log_id,
            data_bytes: self.file_bytes,
            epoch: 0,
        };
        let range = (DATA_OFFSET, DATA_OFFSET + self.file_bytes);
        let file = self.make(&name_of(number), &head, range, zeroed)?;
        go_direct(&file, &self.directory.join(name_of(number)))?;
        self.files.push(file);
        self.is_dirty.push(false);
        Ok(())
    }

    /// Makes the file of a ring. It replaces an existing one.
    pub fn make_ring(&self, head: &Head) -> Result<File, OpenError> {
        self.make(RING, head, (ENTRIES_AT as u64, Ring::file_bytes(head.data_bytes)), true)
    }

    fn make(&self, name: &str, head: &Head, range: (u64, u64), zeroed: bool) -> Result<File, OpenError> {
        let (path, unfinished) = (self.directory.join(name), self.directory.join(format!("{name}{UNFINISHED}")));
        let made = fill(&unfinished, head, range, zeroed).and_then(|file| {
            fs::rename(&unfinished, &path).map_err(failed("name", &path))?;
            sync_directory(&self.directory)?;
            Ok(file)
        });
        if made.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    /// Deletes the last file.
    pub fn remove_last(&mut self) -> Result<(), OpenError> {
        self.files.pop().expect("there is a file");
        self.is_dirty.pop();
        let path = self.directory.join(name_of(self.count()));
        fs::remove_file(&path).map_err(failed("delete", &path))?;
        sync_directory(&self.directory)
    }

    /// See [`crate::thread::Disk::run_operations`].
    pub fn run_operations(&mut self, run: Vec<Op>, is_last: bool, done: &mut Vec<Done>) {
        let at = usize::from(run[0].path);
        let (file, is_dirty) = (&self.files[at], &mut self.is_dirty[at]);
        let writes = run.iter().filter_map(|op| if let OpKind::Write(buf) = &op.kind { Some(&**buf) } else { None });
        let mut slices: Vec<IoSlice<'_>> = writes.map(IoSlice::new).collect();
        let error = match run[0].kind {
            // A write that is durable when it returns saves a sync, that is, a second wait for the device and for a
            // processor.
            OpKind::Write(_) => {
                let durably = is_last && self.writes_durably && !*is_dirty;
                let flags = if durably { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let mut written = write_all(file, &mut slices, run[0].offset, flags);
                if durably && matches!(written, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
                    self.writes_durably = false;
                    written = write_all(file, &mut slices, run[0].offset, ReadWriteFlags::empty());
                }
                *is_dirty |= !(durably && self.writes_durably);
                written
            }
            OpKind::Sync if !*is_dirty => Ok(()),
            OpKind::Sync => rustix::fs::fdatasync(file).inspect(|()| *is_dirty = false),
            OpKind::Read(_) | OpKind::Discard { .. } => unreachable!("a writer writes and syncs"),
        };
        done.extend(run.into_iter().map(|op| {
            let buf = if let OpKind::Write(buf) = op.kind { Some(buf) } else { None };
            Done { token: op.token, result: error.map_err(io::Error::from), buf, nanos: 0 }
        }));
    }
}

fn write_all(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64, flags: ReadWriteFlags) -> Result<(), Errno> {
    while !slices.is_empty() {
        let written = match flags.is_empty() {
            true => rustix::io::pwritev(file, slices, offset),
            false => rustix::io::pwritev2(file, slices, offset, flags),
        };
        match written {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Reader for Files {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        let file = &self.files[usize::from(path)];
        if !self.is_patched {
            return file.read_exact_at(buf, offset);
        }
        let mut read = 0;
        while read < buf.len() {
            match file.read_at(&mut buf[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A bad sector is damage too.
                Err(_) => break,
            }
        }
        buf[read..].fill(0);
        Ok(())
    }
}

/// The id of the journal whose files are in `directory`, if one of the files can be read.
pub fn log_id_in(directory: &Path) -> Option<[u8; 16]> {
    names_in(directory).ok()?.iter().find_map(|name| {
        let kind = if name == RING { Kind::Ring } else { number_of(name).map(|_| Kind::Records)? };
        let mut page = PageBuf::new(1);
        File::open(directory.join(name)).ok()?.read_exact_at(&mut page, 0).ok()?;
        Head::read(kind, &page).ok().map(|head| head.log_id)
    })
}

/// Removes the journal's files from `directory`. Refused while the journal is open.
pub fn delete(directory: &Path) -> Result<(), OpenError> {
    if !directory.exists() {
        return Ok(());
    }
    let _lock = lock(directory)?;
    let mut names = names_in(directory)?;
    // Delete the last file first, so that an interrupted deletion leaves no gap.
    names.sort_by_key(|name| std::cmp::Reverse(number_of(name)));
    for name in names {
        let path = directory.join(&name);
        fs::remove_file(&path).map_err(failed("delete", &path))?;
    }
    sync_directory(directory)
}

fn name_of(number: u16) -> String {
    format!("journal-{number:04}")
}

fn number_of(name: &str) -> Option<u16> {
    let number = name.strip_prefix("journal-")?.parse().ok()?;
    (name == name_of(number)).then_some(number)
}

/// All files of a journal in the directory, unfinished ones and the lock included.
fn names_in(directory: &Path) -> Result<Vec<String>, OpenError> {
    let entries = fs::read_dir(directory).map_err(failed("list", directory))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("list", directory))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let finished = name.strip_suffix(UNFINISHED).unwrap_or(name);
        if number_of(finished).is_some() || finished == RING || name == LOCK {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    match lock::exclusive(&path) {
        Ok(locked) => Ok(locked.file),
        Err(Refused::InUse(holder)) => Err(OpenError::InUse { directory: directory.to_owned(), holder }),
        Err(Refused::Io { action, source }) => Err(OpenError::Io { action, file: path, source }),
    }
}

/// Whether a process has the journal open and is not ending.
pub fn is_in_use(directory: &Path) -> bool {
    let path = directory.join(LOCK);
    let Ok(file) = File::open(&path) else { return false };
    matches!(lock::shared(&file, &path), Err(Refused::InUse(_)))
}

fn open_file(path: &Path, changes: bool) -> Result<Option<File>, OpenError> {
    match OpenOptions::new().read(true).write(changes).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(failed("open", path)),
    }
}

/// Makes a durable file with this head, zeroes in the range up to the end of the file, and a hole between the two.
/// Without `zeroed`, the range is only allocated if the file system can do that; it reads as zeroes all the same.
fn fill(path: &Path, head: &Head, (from, bytes): (u64, u64), zeroed: bool) -> Result<File, OpenError> {
    const STEP_BYTES: u64 = 1 << 20;
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).clone();
    let file = options.open(path).map_err(failed("create", path))?;
    let no_space = |error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            OpenError::NoSpace { file: path.with_extension(""), needed_bytes: bytes }
        }
        _ => failed("write", path)(error),
    };
    // Reports missing space before anything is written.
    let is_allocated = match rustix::fs::fallocate(&file, FallocateFlags::empty(), from, bytes - from) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => false,
        Err(errno) => return Err(no_space(errno.into())),
    };
    if zeroed || !is_allocated {
        let zeroes = PageBuf::new((STEP_BYTES as usize) / PAGE_BYTES);
        for at in (from..bytes).step_by(STEP_BYTES as usize) {
            let step = STEP_BYTES.min(bytes - at) as usize;
            file.write_all_at(&zeroes[..step], at).map_err(no_space)?;
        }
    }
    let mut page = PageBuf::new(1);
    head.write(&mut page);
    file.write_all_at(&page, 0).map_err(no_space)?;
    file.sync_all().map_err(failed("sync", path))?;
    Ok(file)
}

/// Writes past the page cache where the file system allows it. Some file systems accept the flag and refuse the first read.
fn go_direct(file: &File, path: &Path) -> Result<(), OpenError> {
    let set = |flags| rustix::fs::fcntl_setfl(file, flags).map_err(io::Error::from);
    let tried = set(OFlags::DIRECT).and_then(|()| file.read_exact_at(&mut PageBuf::new(1), 0));
    if tried.is_err() {
        set(OFlags::empty()).map_err(failed("leave O_DIRECT for", path))?;
    }
    Ok(())
}

fn sync_directory(directory: &Path) -> Result<(), OpenError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("sync the directory", directory))
}

pub(crate) fn failed(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let file = file.to_owned();
    move |source| OpenError::Io { action, file, source }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse { directory, holder } => write!(
                f,
                "the journal in {} is in use by another FlintKV process ({holder}); stop it, or use another directory",
                directory.display()
            ),
            OpenError::Foreign { file, what } => write!(f, "{}: {what}", file.display()),
            OpenError::Missing { file } => {
                write!(f, "{} is missing, but other files of the journal are there", file.display())
            }
            OpenError::Records { directory, source } => write!(f, "the journal in {}: {source}", directory.display()),
            OpenError::NoSpace { file, needed_bytes } => {
                write!(
                    f,
                    "{} needs {}, but its file system does not have so much free space",
                    file.display(),
                    human(*needed_bytes)
                )
            }
            OpenError::Io { action, file, source } => write!(f, "cannot {action} {}: {source}", file.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Records { source, .. } => Some(source),
            OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64) -> Vec<Op> {
        vec![Op { token: at, path: 0, offset: DATA_OFFSET + at, kind: OpKind::Write(PageBuf::new(1)) }]
    }

    #[test]
    fn a_sync_is_done_with_the_write_before_it_unless_other_bytes_wait_for_it_too() {
        let scratch = tempfile::tempdir().unwrap();
        let (mut files, _) = Files::open(scratch.path(), [3; 16], 64 << 10).unwrap();
        files.add(true).unwrap();
        assert_eq!(files.is_dirty, [false]);
        let mut done = Vec::new();
        let page = PAGE_BYTES as u64;
        files.run_operations(write(0), true, &mut done);
        assert_eq!(files.is_dirty, [!files.writes_durably]);
        files.run_operations(write(page), false, &mut done);
        assert_eq!(files.is_dirty, [true]);
        files.run_operations(write(2 * page), true, &mut done);
        assert_eq!(files.is_dirty, [true], "the write before it is not durable");
        files.run_operations(vec![Op { token: 9, path: 0, offset: 0, kind: OpKind::Sync }], false, &mut done);
        assert_eq!(files.is_dirty, [false]);
        assert!(done.iter().all(|done| done.result.is_ok()));
    }
}
