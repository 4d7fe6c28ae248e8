//! Owns a disk that loses its power: a real file system on a device that keeps an arbitrary part of the unsynced
//! writes.
//!
//! The file system is in a file, which a loop device presents as a disk. That file is the only one in a FUSE file system,
//! which this process implements, so that it sees each write and each flush of the disk's cache. Needs root, FUSE and loop
//! devices.

use crate::Random;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;

const DISK_BYTES: u64 = 4 << 30;
const BLOCK_BYTES: usize = 4096;
/// The smallest unit that a device writes atomically.
const SECTOR_BYTES: usize = 512;
const NAME: &str = "device";

/// The content of the device, and the writes that a power failure could lose.
struct Cache {
    file: File,
    /// The old content, at the last flush, of the blocks that were written since.
    synced: HashMap<u64, [u8; BLOCK_BYTES]>,
    /// How many writes the device accepts until its power is cut.
    writes_left: u64,
    /// The time of the power failure, if there was one.
    cut: Option<Instant>,
}

impl Cache {
    fn powered(&mut self) -> Result<&mut Self, Errno> {
        if self.cut.is_none() { Ok(self) } else { Err(Errno::EIO) }
    }

    fn cut_power(&mut self) {
        self.cut.get_or_insert_with(Instant::now);
    }

    fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        let block = BLOCK_BYTES as u64;
        for number in at / block..(at + data.len() as u64).div_ceil(block) {
            if let std::collections::hash_map::Entry::Vacant(before) = self.synced.entry(number) {
                let mut bytes = [0; BLOCK_BYTES];
                self.file.read_exact_at(&mut bytes, number * block)?;
                before.insert(bytes);
            }
        }
        self.file.write_all_at(data, at)?;
        self.writes_left -= 1;
        if self.writes_left == 0 {
            self.cut_power();
        }
        Ok(())
    }

    /// Loses all, none, or some of the unsynced sectors. Returns the number of unsynced blocks.
    fn forget(&mut self, random: &mut Random) -> io::Result<usize> {
        let kept_percent = [0, 10, 50, 90, 99][random.below(5)];
        let unsynced = self.synced.len();
        for (number, before) in self.synced.drain() {
            // Most devices write whole blocks.
            let whole = (!random.one_in(4)).then(|| random.below(100) < kept_percent);
            for (nth, sector) in before.chunks(SECTOR_BYTES).enumerate() {
                if !whole.unwrap_or_else(|| random.below(100) < kept_percent) {
                    self.file.write_all_at(sector, number * BLOCK_BYTES as u64 + (nth * SECTOR_BYTES) as u64)?;
                }
            }
        }
        Ok(unsynced)
    }
}

#[derive(Clone)]
struct Device(Arc<Mutex<Cache>>);

impl Device {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().expect("no request panics")
    }

    fn attributes(number: INodeNo) -> Option<FileAttr> {
        let (kind, size) = match number.0 {
            1 => (FileType::Directory, 0),
            2 => (FileType::RegularFile, DISK_BYTES),
            _ => return None,
        };
        Some(FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }
}

const FOR_EVER: Duration = Duration::from_secs(1 << 20);

impl Filesystem for Device {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match Self::attributes(INodeNo(2)).filter(|_| name == NAME) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match Self::attributes(number) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; u64::from(size).min(DISK_BYTES.saturating_sub(at)) as usize];
        let mut cache = self.cache();
        match cache.powered().and_then(|cache| cache.file.read_exact_at(&mut bytes, at).map_err(Errno::from)) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut cache = self.cache();
        match cache.powered().and_then(|cache| cache.write(at, data).map_err(Errno::from)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    /// A flush of the device's cache.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.cache().powered() {
            Ok(cache) => {
                cache.synced.clear();
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    /// A file is closed, which syncs nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A disk with a file system, which is mounted at `dir` while the disk has power.
pub struct Disk {
    pub dir: Arc<TempDir>,
    options: &'static str,
    device: Device,
    /// The mount point of the FUSE file system with the device's file.
    shown: TempDir,
    session: Option<BackgroundSession>,
}

fn succeeds(program: &str, args: &[&OsStr]) -> bool {
    let done = Command::new(program).args(args).output();
    done.is_ok_and(|done| done.status.success())
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("flintkv-power-").tempdir().expect("a folder")
}

impl Disk {
    /// Formats a disk with a program like `mkfs.ext4`, which is given `args`, and turns it on. `options` are those of mount. `None`:
    /// the user lacks the rights, or the machine does not support it.
    pub fn format(program: &str, args: &[&str], options: &'static str) -> Option<Disk> {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(DISK_BYTES).expect("a sparse file");
        let words: Vec<_> = args.iter().map(OsStr::new).chain([image.path().as_os_str()]).collect();
        if !succeeds(program, &words) {
            return None;
        }
        let cache = Cache { file: image.into_file(), synced: HashMap::new(), writes_left: u64::MAX, cut: None };
        let device = Device(Arc::new(Mutex::new(cache)));
        let mut disk = Disk { dir: Arc::new(folder()), options, device, shown: folder(), session: None };
        disk.power_on().then_some(disk)
    }

    /// Mounts the file system again, as a machine does when it boots. Returns whether it could be mounted.
    pub fn power_on(&mut self) -> bool {
        (self.device.cache().writes_left, self.device.cache().cut) = (u64::MAX, None);
        self.session = fuser::spawn_mount(self.device.clone(), self.shown.path(), &Config::default()).ok();
        let file = self.shown.path().join(NAME);
        let options = format!("loop,{}", self.options);
        let words = [OsStr::new("-o"), OsStr::new(&options), file.as_os_str(), self.dir.path().as_os_str()];
        // Another process may take the free loop device first, so try several times.
        self.session.is_some() && (0..5).any(|_| succeeds("mount", &words))
    }

    /// The device accepts `writes` more writes, at least one, and then none.
    pub fn cut_power_after(&self, writes: u64) {
        self.device.cache().writes_left = writes;
    }

    /// From now on each request of the device fails.
    pub fn cut_power(&self) {
        self.device.cache().cut_power();
    }

    /// The time at which the power was cut, if it was.
    pub fn cut_at(&self) -> Option<Instant> {
        self.device.cache().cut
    }

    /// Unmounts the file system, and loses some of the unsynced writes. Returns the number of unsynced blocks.
    pub fn lose(&mut self, random: &mut Random) -> usize {
        self.cut_power();
        self.unmount();
        self.device.cache().forget(random).expect("the image can be written")
    }

    fn unmount(&mut self) {
        let unmounted = |path: &Path| succeeds("umount", &[path.as_os_str()]);
        // A process that has just ended may hold it for a moment.
        crate::eventually("the file system is unmounted", || unmounted(self.dir.path()));
        if let Some(session) = self.session.take() {
            // The loop device closes its file a moment later.
            crate::eventually("the device is unmounted", || unmounted(self.shown.path()));
            session.join().expect("the device answers to its end");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.cut_power();
            for path in [self.dir.path(), self.shown.path()] {
                succeeds("umount", &["--lazy".as_ref(), path.as_os_str()]);
            }
        }
    }
}
