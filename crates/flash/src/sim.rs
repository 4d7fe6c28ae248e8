//! Owns the simulated device: pages in memory, completions in any order, and faults at random or on demand. Never knows
//! a clock, a file or a thread.
//!
//! With a volatile cache ([`Sim::with_cache`]), writes are durable only after a sync, and [`Sim::crash`] loses a random
//! part of the other writes.
//!
//! The seed decides everything: the same operations pushed, submitted and reaped in the
//! same order give the same completions and the same faults.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::io::{Blocking, Done, Driver, Op, OpKind, PAGE_BYTES, PageBuf, Reader};
use base::random::{GAMMA, SplitMix64};
use parking_lot::Mutex;

use crate::superblock::DATA_OFFSET;

/// After a random write error, a region of this size (aligned) accepts no more writes.
pub const BAD_REGION_BYTES: u64 = 1 << 20;

/// The unit that a device writes completely or not at all. A crash may tear a page between two sectors.
pub const SECTOR_BYTES: usize = 512;

/// The probability of each random fault, in a million operations. All zero: a perfect device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The read fails. The next one may succeed.
    pub read_error: u32,
    /// The write fails after a part of its pages, and so does every later write to that region.
    pub write_error: u32,
    /// The write reports success, but only its first pages reached the device.
    pub torn_write: u32,
    /// One bit of the data has changed on the device, permanently.
    pub bit_flip: u32,
    /// The write fails as on a full file system. Nothing is written.
    pub no_space: u32,
}

/// What the device has done so far. A failed operation counts as an operation and as a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub read_pages: u64,
    pub writes: u64,
    pub written_pages: u64,
    pub discards: u64,
    pub syncs: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub torn_writes: u64,
    pub bit_flips: u64,
    pub no_spaces: u64,
    pub sync_errors: u64,
}

/// The handle: it makes drivers, causes faults, and gives access to the pages.
#[derive(Clone)]
pub struct Sim {
    device: Arc<Mutex<Device>>,
}

struct Device {
    seed: u64,
    paths: u16,
    data_bytes: u64,
    /// Pages that were never written are zero.
    pages: HashMap<(u16, u64), Page>,
    /// The pages that a crash may change. `None`: every write is durable at once.
    cache: Option<BTreeMap<(u16, u64), Unsynced>>,
    faults: Faults,
    counts: Counts,
    chance: Chance,
    drivers: u64,
    held: bool,
    full: bool,
    failing_reads: usize,
    failing_writes: usize,
    failing_syncs: usize,
    tearing_writes: VecDeque<usize>,
    bad_reads: Vec<(u16, Range<u64>)>,
    bad_writes: Vec<(u16, Range<u64>)>,
}

/// A page that was written after the last sync.
struct Unsynced {
    /// The states that each of its sectors may have after a crash, besides the page's present state: first the durable
    /// one, then those written since.
    before: Vec<Page>,
    /// Whether a sync has failed: no later sync makes these bytes durable.
    in_doubt: bool,
}

type Page = Box<[u8; PAGE_BYTES]>;

impl Sim {
    /// `paths` logs with `data_bytes` after [`DATA_OFFSET`] each, as `FlashFiles` would open them.
    pub fn new(seed: u64, paths: u16, data_bytes: u64) -> Sim {
        assert!(paths > 0);
        assert!(data_bytes.is_multiple_of(PAGE_BYTES as u64));
        let device = Device {
            seed,
            paths,
            data_bytes,
            pages: HashMap::new(),
            cache: None,
            faults: Faults::default(),
            counts: Counts::default(),
            chance: Chance(SplitMix64(seed)),
            drivers: 0,
            held: false,
            full: false,
            failing_reads: 0,
            failing_writes: 0,
            failing_syncs: 0,
            tearing_writes: VecDeque::new(),
            bad_reads: Vec::new(),
            bad_writes: Vec::new(),
        };
        Sim { device: Arc::new(Mutex::new(device)) }
    }

    /// Gives the device a volatile cache: writes stay in it until a sync, and [`Sim::crash`] can be called.
    #[must_use]
    pub fn with_cache(self) -> Sim {
        self.device.lock().cache = Some(BTreeMap::new());
        self
    }

    /// Simulates a power failure. `drivers` are those with operations in flight; the others are idle. Of what was not
    /// synced, the device keeps a random part, by sectors: one time in four nothing, one time in four everything.
    pub fn crash(&self, drivers: impl IntoIterator<Item = SimDriver>) {
        let mut device = self.device.lock();
        for driver in drivers {
            for op in driver.started {
                if let OpKind::Write(buf) = op.kind {
                    device.put(op.path, op.offset, &buf);
                }
            }
        }
        device.settle();
    }

    /// The bytes of each path after [`DATA_OFFSET`].
    pub fn data_bytes(&self) -> u64 {
        self.device.lock().data_bytes
    }

    /// Acts like a resize of `FlashFiles`: the bytes that are cut off are lost.
    pub fn resize(&self, data_bytes: u64) {
        assert!(data_bytes.is_multiple_of(PAGE_BYTES as u64));
        let mut device = self.device.lock();
        device.data_bytes = data_bytes;
        let end = (DATA_OFFSET + data_bytes) / PAGE_BYTES as u64;
        device.pages.retain(|&(_, page), _| page < end);
        if let Some(cache) = &mut device.cache {
            cache.retain(|&(_, page), _| page < end);
        }
    }

    pub fn driver(&self) -> SimDriver {
        let mut device = self.device.lock();
        device.drivers += 1;
        // Every driver has its own order of completions, which the others' operations do not change.
        let mut order = SplitMix64(device.seed ^ device.drivers.wrapping_mul(GAMMA));
        order.draw();
        SimDriver {
            sim: self.clone(),
            order: Chance(order),
            pushed: Vec::new(),
            started: Vec::new(),
            ready: Vec::new(),
            tokens: HashSet::new(),
        }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.device.lock().faults = faults;
    }

    pub fn counts(&self) -> Counts {
        self.device.lock().counts
    }

    /// The next read fails. Each call makes one more read fail.
    pub fn fail_next_read(&self) {
        self.device.lock().failing_reads += 1;
    }

    /// The next write fails without writing. Each call makes one more write fail.
    pub fn fail_next_write(&self) {
        self.device.lock().failing_writes += 1;
    }

    /// The next sync fails, and no later one makes durable what was written before it. Each call makes one more sync fail.
    pub fn fail_next_sync(&self) {
        self.device.lock().failing_syncs += 1;
    }

    /// Only the first `pages` of the next write reach the device, and the write reports success.
    pub fn tear_next_write(&self, pages: usize) {
        self.device.lock().tearing_writes.push_back(pages);
    }

    /// Every read that touches these bytes fails until [`Sim::heal`].
    pub fn fail_reads_in(&self, path: u16, bytes: Range<u64>) {
        self.device.lock().bad_reads.push((path, bytes));
    }

    /// Every write that touches these bytes fails until [`Sim::heal`].
    pub fn fail_writes_in(&self, path: u16, bytes: Range<u64>) {
        self.device.lock().bad_writes.push((path, bytes));
    }

    /// While full, every write fails with `StorageFull`.
    pub fn set_full(&self, full: bool) {
        self.device.lock().full = full;
    }

    /// No more faults, on demand or at random. The content of the pages stays as it is.
    pub fn heal(&self) {
        let mut device = self.device.lock();
        device.faults = Faults::default();
        device.full = false;
        device.failing_reads = 0;
        device.failing_writes = 0;
        device.failing_syncs = 0;
        device.tearing_writes.clear();
        device.bad_reads.clear();
        device.bad_writes.clear();
    }

    /// Operations stay in flight until [`Sim::release`], so that a test can look at the state in between.
    pub fn hold(&self) {
        self.device.lock().held = true;
    }

    pub fn release(&self) {
        self.device.lock().held = false;
    }

    /// Flips a bit on the device. `offset` counts bytes in the log file.
    pub fn flip_bit_at(&self, path: u16, offset: u64, bit: u8) {
        let page = offset / PAGE_BYTES as u64;
        let within = (offset % PAGE_BYTES as u64) as usize;
        self.device.lock().page_mut(path, page)[within] ^= 1 << bit;
    }

    /// The page on the device at `offset`, a multiple of [`PAGE_BYTES`].
    pub fn page(&self, path: u16, offset: u64) -> Box<[u8; PAGE_BYTES]> {
        assert!(offset.is_multiple_of(PAGE_BYTES as u64));
        self.device.lock().page_mut(path, offset / PAGE_BYTES as u64).clone()
    }

    /// Writes a page to the device without a driver. It is durable.
    pub fn set_page(&self, path: u16, offset: u64, page: &[u8; PAGE_BYTES]) {
        assert!(offset.is_multiple_of(PAGE_BYTES as u64));
        let mut device = self.device.lock();
        if let Some(cache) = &mut device.cache {
            cache.remove(&(path, offset / PAGE_BYTES as u64));
        }
        **device.page_mut(path, offset / PAGE_BYTES as u64) = *page;
    }
}

impl Device {
    fn page_mut(&mut self, path: u16, page: u64) -> &mut Page {
        self.pages.entry((path, page)).or_insert_with(|| Box::new([0; PAGE_BYTES]))
    }

    fn assert_inside(&self, op: &Op) {
        assert!(op.path < self.paths, "no such flash path: {op:?}");
        assert!(op.offset.is_multiple_of(PAGE_BYTES as u64), "not at a page: {op:?}");
        let bytes = match &op.kind {
            OpKind::Read(_) | OpKind::Sync => return,
            OpKind::Write(buf) => buf.len() as u64,
            OpKind::Discard { bytes } => *bytes,
        };
        assert!(op.offset >= DATA_OFFSET, "before the data: {op:?}");
        assert!(op.offset + bytes <= DATA_OFFSET + self.data_bytes, "past the end: {op:?}");
    }

    fn run_operation(&mut self, op: &mut Op) -> io::Result<()> {
        let (path, offset) = (op.path, op.offset);
        match &mut op.kind {
            OpKind::Read(buf) => self.read(path, offset, buf),
            OpKind::Write(buf) => self.write(path, offset, buf),
            OpKind::Discard { bytes } => {
                self.discard(path, offset, *bytes);
                Ok(())
            }
            OpKind::Sync => self.sync(path),
        }
    }

    fn read(&mut self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        self.counts.reads += 1;
        self.counts.read_pages += buf.pages() as u64;
        if end > DATA_OFFSET + self.data_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let ordered = take_one(&mut self.failing_reads) || touches(&self.bad_reads, path, offset..end);
        if self.chance.hits(self.faults.read_error) || ordered {
            self.counts.read_errors += 1;
            return Err(device_error());
        }
        let first = offset / PAGE_BYTES as u64;
        if self.chance.hits(self.faults.bit_flip) {
            self.counts.bit_flips += 1;
            let page = first + self.chance.below(buf.pages() as u64);
            let bit = self.chance.below(8 * PAGE_BYTES as u64);
            self.page_mut(path, page)[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        for (page, bytes) in (first..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            match self.pages.get(&(path, page)) {
                Some(page) => bytes.copy_from_slice(&page[..]),
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, path: u16, offset: u64, buf: &PageBuf) -> io::Result<()> {
        self.counts.writes += 1;
        if self.chance.hits(self.faults.no_space) || self.full {
            self.counts.no_spaces += 1;
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if take_one(&mut self.failing_writes) {
            self.counts.write_errors += 1;
            return Err(device_error());
        }
        let end = offset + buf.len() as u64;
        if self.chance.hits(self.faults.write_error) {
            let at = offset + self.chance.below(buf.len() as u64);
            let region = at / BAD_REGION_BYTES * BAD_REGION_BYTES;
            self.bad_writes.push((path, region..region + BAD_REGION_BYTES));
        }
        if touches(&self.bad_writes, path, offset..end) {
            self.counts.write_errors += 1;
            let pages = self.chance.below(buf.pages() as u64) as usize;
            self.put(path, offset, &buf[..pages * PAGE_BYTES]);
            return Err(device_error());
        }
        let torn_by_chance = self.chance.hits(self.faults.torn_write);
        let pages = match self.tearing_writes.pop_front() {
            Some(pages) => pages.min(buf.pages()),
            None if torn_by_chance => self.chance.below(buf.pages() as u64) as usize,
            None => buf.pages(),
        };
        self.counts.torn_writes += u64::from(pages < buf.pages());
        self.put(path, offset, &buf[..pages * PAGE_BYTES]);
        Ok(())
    }

    fn put(&mut self, path: u16, offset: u64, bytes: &[u8]) {
        for (page, bytes) in (offset / PAGE_BYTES as u64..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            self.remember(path, page);
            self.page_mut(path, page).copy_from_slice(bytes);
            self.counts.written_pages += 1;
        }
    }

    /// A device may or may not forget discarded pages. This one decides page by page.
    fn discard(&mut self, path: u16, offset: u64, bytes: u64) {
        self.counts.discards += 1;
        let first = offset / PAGE_BYTES as u64;
        for page in first..first + bytes / PAGE_BYTES as u64 {
            if self.chance.below(2) == 0 {
                self.remember(path, page);
                self.pages.remove(&(path, page));
            }
        }
    }
}

/// The volatile cache. These functions do nothing without one.
impl Device {
    /// Called before the page changes: a crash may bring back its present state.
    fn remember(&mut self, path: u16, page: u64) {
        let Some(cache) = &mut self.cache else { return };
        let now = self.pages.get(&(path, page)).cloned().unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
        let unsynced = cache.entry((path, page)).or_insert(Unsynced { before: Vec::new(), in_doubt: false });
        unsynced.before.push(now);
        unsynced.in_doubt = false;
    }

    fn sync(&mut self, path: u16) -> io::Result<()> {
        self.counts.syncs += 1;
        let fails = take_one(&mut self.failing_syncs);
        self.counts.sync_errors += u64::from(fails);
        if let Some(cache) = &mut self.cache {
            match fails {
                true => cache.iter_mut().filter(|(at, _)| at.0 == path).for_each(|(_, page)| page.in_doubt = true),
                false => cache.retain(|at, page| at.0 != path || page.in_doubt),
            }
        }
        if fails { Err(device_error()) } else { Ok(()) }
    }

    fn settle(&mut self) {
        let cache = self.cache.replace(BTreeMap::new()).expect("only a device with a cache forgets");
        let kept = self.chance.below(4);
        for ((path, page), unsynced) in cache {
            for sector in 0..PAGE_BYTES / SECTOR_BYTES {
                let version = match kept {
                    0 => 0,
                    1 => unsynced.before.len(),
                    _ => self.chance.below(unsynced.before.len() as u64 + 1) as usize,
                };
                if let Some(version) = unsynced.before.get(version) {
                    let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                    self.page_mut(path, page)[bytes.clone()].copy_from_slice(&version[bytes]);
                }
            }
        }
    }
}

fn device_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn take_one(count: &mut usize) -> bool {
    let any = *count > 0;
    *count -= usize::from(any);
    any
}

fn touches(regions: &[(u16, Range<u64>)], path: u16, bytes: Range<u64>) -> bool {
    regions.iter().any(|(bad_path, bad)| *bad_path == path && bad.start < bytes.end && bytes.start < bad.end)
}

/// A driver of a [`Sim`]. It cannot wake its owner: the owner polls.
pub struct SimDriver {
    sim: Sim,
    order: Chance,
    pushed: Vec<Op>,
    started: Vec<Op>,
    /// Completed by `wait` and not reaped yet.
    ready: Vec<Done>,
    tokens: HashSet<u64>,
}

impl SimDriver {
    /// Completes `count` operations, chosen at random. They change the device now.
    fn complete(&mut self, count: u64) {
        let mut device = self.sim.device.lock();
        for _ in 0..count {
            let index = self.order.below(self.started.len() as u64) as usize;
            let mut op = self.started.swap_remove(index);
            let result = device.run_operation(&mut op);
            let buf = match op.kind {
                OpKind::Read(buf) | OpKind::Write(buf) => Some(buf),
                OpKind::Discard { .. } | OpKind::Sync => None,
            };
            // Between 20 and 200 µs, so that histograms have different values.
            let nanos = 20_000 + self.order.below(180_000);
            self.ready.push(Done { token: op.token, result, buf, nanos });
        }
    }
}

impl Reader for Sim {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        self.device.lock().read(path, offset, buf)
    }
}

impl Blocking for Sim {
    fn write(&self, path: u16, offset: u64, buf: &PageBuf) -> io::Result<()> {
        self.device.lock().write(path, offset, buf)
    }
}

impl Driver for SimDriver {
    fn push(&mut self, op: Op) {
        self.sim.device.lock().assert_inside(&op);
        assert!(self.tokens.insert(op.token), "token in use: {op:?}");
        self.pushed.push(op);
    }

    fn submit(&mut self) {
        self.started.append(&mut self.pushed);
    }

    /// Completes a random number of the operations in flight, none to all.
    fn reap(&mut self, done: &mut Vec<Done>) {
        let held = self.sim.device.lock().held;
        if !held {
            let count = self.order.below(self.started.len() as u64 + 1);
            self.complete(count);
        }
        for completion in &self.ready {
            self.tokens.remove(&completion.token);
        }
        done.append(&mut self.ready);
    }

    fn wait(&mut self) {
        self.submit();
        if !self.ready.is_empty() || self.started.is_empty() {
            return;
        }
        assert!(!self.sim.device.lock().held, "waits for a device that is held: would be for ever");
        let count = 1 + self.order.below(self.started.len() as u64);
        self.complete(count);
    }

    fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    fn in_flight(&self) -> usize {
        self.tokens.len()
    }
}

struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn hits(&mut self, in_a_million: u32) -> bool {
        self.below(1_000_000) < u64::from(in_a_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn filled(pages: usize, byte: u8) -> PageBuf {
        let mut buf = PageBuf::new(pages);
        buf.fill(byte);
        buf
    }

    fn one(driver: &mut SimDriver, offset: u64, kind: OpKind) -> Done {
        driver.push(Op { token: 1, path: 0, offset, kind });
        driver.wait();
        let mut done = Vec::new();
        driver.reap(&mut done);
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    fn write(driver: &mut SimDriver, offset: u64, pages: usize, byte: u8) -> io::Result<()> {
        one(driver, offset, OpKind::Write(filled(pages, byte))).result
    }

    fn read(driver: &mut SimDriver, offset: u64, pages: usize) -> io::Result<PageBuf> {
        let done = one(driver, offset, OpKind::Read(filled(pages, 0xEE)));
        done.result.map(|()| done.buf.unwrap())
    }

    #[test]
    fn faults_on_demand() {
        let sim = Sim::new(1, 1, MIB);
        let driver = &mut sim.driver();
        write(driver, DATA_OFFSET, 2, 7).unwrap();
        assert!(read(driver, DATA_OFFSET, 2).unwrap().iter().all(|&byte| byte == 7));

        sim.fail_next_read();
        assert_eq!(read(driver, DATA_OFFSET, 1).unwrap_err().raw_os_error(), Some(libc::EIO));
        read(driver, DATA_OFFSET, 1).unwrap();

        sim.fail_next_write();
        write(driver, DATA_OFFSET, 2, 8).unwrap_err();
        assert_eq!(sim.page(0, DATA_OFFSET)[0], 7);

        sim.tear_next_write(1);
        write(driver, DATA_OFFSET, 2, 9).unwrap();
        let back = read(driver, DATA_OFFSET, 2).unwrap();
        assert_eq!(back[PAGE_BYTES - 1], 9);
        assert_eq!(back[PAGE_BYTES], 7);

        sim.flip_bit_at(0, DATA_OFFSET + 5, 1);
        assert_eq!(read(driver, DATA_OFFSET, 1).unwrap()[5], 9 ^ 2);

        sim.set_full(true);
        let error = write(driver, DATA_OFFSET, 1, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        sim.set_full(false);

        sim.fail_writes_in(0, DATA_OFFSET + 4096..DATA_OFFSET + 8192);
        write(driver, DATA_OFFSET, 1, 1).unwrap();
        write(driver, DATA_OFFSET, 2, 1).unwrap_err();
        write(driver, DATA_OFFSET + 8192, 1, 1).unwrap();
        sim.fail_reads_in(0, DATA_OFFSET..DATA_OFFSET + 1);
        read(driver, DATA_OFFSET, 1).unwrap_err();
        read(driver, DATA_OFFSET + 4096, 1).unwrap();
        sim.heal();
        write(driver, DATA_OFFSET, 2, 1).unwrap();
        read(driver, DATA_OFFSET, 2).unwrap();
    }

    /// The results of one run with every kind of fault, in order.
    fn history(seed: u64) -> (String, Counts) {
        let sim = Sim::new(seed, 2, 4 * MIB);
        sim.set_faults(Faults {
            read_error: 50_000,
            write_error: 5_000,
            torn_write: 50_000,
            bit_flip: 50_000,
            no_space: 50_000,
        });
        let mut drivers = [sim.driver(), sim.driver()];
        let mut history = String::new();
        let mut done = Vec::new();
        for token in 0..2000 {
            let driver = &mut drivers[token as usize % 2];
            let offset = DATA_OFFSET + token * 7 % 512 * 4096;
            let kind = match token % 3 {
                0 => OpKind::Write(filled(3, token as u8)),
                1 => OpKind::Read(filled(2, 0)),
                _ => OpKind::Discard { bytes: 4096 },
            };
            driver.push(Op { token, path: token as u16 % 2, offset, kind });
            driver.submit();
            driver.reap(&mut done);
            for completion in done.drain(..) {
                let sum = completion.buf.map(|buf| base::crc::crc32c(&buf));
                history += &format!("{} {:?} {sum:?}\n", completion.token, completion.result);
            }
        }
        (history, sim.counts())
    }

    #[test]
    fn a_seed_replays_its_run_and_another_one_does_not() {
        let (history_1, counts) = history(1);
        assert_eq!((&history_1, counts), (&history(1).0, history(1).1));
        assert_ne!(history_1, history(2).0);
        assert!(counts.read_errors > 0);
        assert!(counts.write_errors > 0);
        assert!(counts.torn_writes > 0);
        assert!(counts.bit_flips > 0);
        assert!(counts.no_spaces > 0);
    }

    #[test]
    fn a_region_that_failed_a_write_fails_the_next_ones() {
        let sim = Sim::new(3, 1, 8 * MIB);
        let driver = &mut sim.driver();
        sim.set_faults(Faults { write_error: 1_000_000, ..Faults::default() });
        write(driver, DATA_OFFSET, 4, 1).unwrap_err();
        sim.set_faults(Faults::default());
        write(driver, DATA_OFFSET, 4, 1).unwrap_err();
        write(driver, DATA_OFFSET + BAD_REGION_BYTES, 4, 1).unwrap();
    }

    #[test]
    fn completions_come_in_any_order() {
        let order = |seed| {
            let mut driver = Sim::new(seed, 1, MIB).driver();
            for token in 0..50 {
                let kind = OpKind::Read(PageBuf::new(1));
                driver.push(Op { token, path: 0, offset: DATA_OFFSET, kind });
            }
            let mut done = Vec::new();
            while driver.in_flight() > 0 {
                driver.wait();
                driver.reap(&mut done);
            }
            done.iter().map(|done| done.token).collect::<Vec<_>>()
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let inversions = order(5).windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((10..40).contains(&inversions), "{inversions} of 49 neighbours out of order");
    }

    #[test]
    fn some_discarded_pages_are_forgotten_and_some_are_not() {
        let sim = Sim::new(7, 1, MIB);
        let driver = &mut sim.driver();
        write(driver, DATA_OFFSET, 100, 1).unwrap();
        one(driver, DATA_OFFSET, OpKind::Discard { bytes: 99 * 4096 }).result.unwrap();
        let back = read(driver, DATA_OFFSET, 100).unwrap();
        let kept = back.chunks(4096).filter(|page| page[0] == 1).count();
        assert!((30..70).contains(&kept), "{kept} of 100 pages kept");
        assert_eq!(back[99 * 4096], 1);
    }

    fn sync(driver: &mut SimDriver) -> io::Result<()> {
        one(driver, 0, OpKind::Sync).result
    }

    /// What the sectors of the first `pages` pages hold after a crash.
    fn sectors(sim: &Sim, pages: u64) -> Vec<u8> {
        let page = |at| sim.page(0, DATA_OFFSET + at * PAGE_BYTES as u64);
        let sector = |bytes: &[u8]| {
            assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a sector is written whole or not at all");
            bytes[0]
        };
        (0..pages).flat_map(|at| page(at).chunks(SECTOR_BYTES).map(sector).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_sectors_of_the_rest() {
        let (mut all, mut none, mut torn, mut skipped) = (0, 0, 0, 0);
        for seed in 0..200 {
            let sim = Sim::new(seed, 2, MIB).with_cache();
            let driver = &mut sim.driver();
            write(driver, DATA_OFFSET, 4, 1).unwrap();
            sync(driver).unwrap();
            write(driver, DATA_OFFSET + 4096, 2, 2).unwrap();
            write(driver, DATA_OFFSET + 4096, 2, 3).unwrap();
            // A sync of another path has no effect here.
            driver.push(Op { token: 1, path: 1, offset: 0, kind: OpKind::Sync });
            driver.wait();
            driver.reap(&mut Vec::new());
            sim.crash([]);
            let found = sectors(&sim, 4);
            assert!(found[..8].iter().chain(&found[24..]).all(|&byte| byte == 1), "synced and lost: {found:?}");
            let unsynced = &found[8..24];
            all += usize::from(unsynced.iter().all(|&byte| byte == 3));
            none += usize::from(unsynced.iter().all(|&byte| byte == 1));
            torn += usize::from(unsynced.contains(&1) && unsynced.contains(&3));
            skipped += usize::from(unsynced.contains(&2));
            // After the crash, the remaining bytes are durable.
            sim.crash([]);
            assert_eq!(sectors(&sim, 4), found);
        }
        assert!(all > 20, "{all}");
        assert!(none > 20, "{none}");
        assert!(torn > 50, "{torn}");
        assert!(skipped > 50, "{skipped}");
    }

    #[test]
    fn a_write_in_flight_may_have_reached_the_device_when_it_crashes() {
        let mut kept = [0; 2];
        for seed in 0..100 {
            let sim = Sim::new(seed, 1, MIB).with_cache();
            let mut driver = sim.driver();
            driver.push(Op { token: 1, path: 0, offset: DATA_OFFSET, kind: OpKind::Write(filled(1, 1)) });
            driver.submit();
            driver.push(Op { token: 2, path: 0, offset: DATA_OFFSET + 4096, kind: OpKind::Write(filled(1, 1)) });
            sim.crash([driver]);
            let found = sectors(&sim, 2);
            kept[0] += usize::from(found[..8].contains(&1));
            kept[1] += usize::from(found[8..].contains(&1));
        }
        assert!((30..90).contains(&kept[0]), "{kept:?}");
        assert_eq!(kept[1], 0, "it was never submitted");
    }

    #[test]
    fn a_sync_after_a_failed_one_saves_only_what_was_written_in_between() {
        let mut lost = 0;
        for seed in 0..50 {
            let sim = Sim::new(seed, 1, MIB).with_cache();
            let driver = &mut sim.driver();
            write(driver, DATA_OFFSET, 2, 1).unwrap();
            sim.fail_next_sync();
            assert_eq!(sync(driver).unwrap_err().raw_os_error(), Some(libc::EIO));
            write(driver, DATA_OFFSET + 4096, 1, 2).unwrap();
            sync(driver).unwrap();
            assert_eq!((sim.counts().syncs, sim.counts().sync_errors), (2, 1));
            sim.crash([]);
            let found = sectors(&sim, 2);
            lost += usize::from(found[..8].contains(&0));
            assert!(found[8..].iter().all(|&byte| byte == 2), "{found:?}");
        }
        assert!(lost > 20, "{lost}");
    }

    #[test]
    fn a_held_device_completes_nothing() {
        let sim = Sim::new(4, 1, MIB);
        let mut driver = sim.driver();
        sim.hold();
        driver.push(Op { token: 9, path: 0, offset: DATA_OFFSET, kind: OpKind::Read(PageBuf::new(1)) });
        driver.submit();
        let mut done = Vec::new();
        for _ in 0..100 {
            driver.reap(&mut done);
        }
        assert!(done.is_empty());
        assert_eq!(driver.in_flight(), 1);
        sim.release();
        driver.wait();
        driver.reap(&mut done);
        assert_eq!(done[0].token, 9);
        assert_eq!(driver.in_flight(), 0);
    }
}
