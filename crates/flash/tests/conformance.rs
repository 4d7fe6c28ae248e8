//! What all drivers must do alike: one suite for io_uring, threads and the simulated device.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use flash::io::{Done, Driver, Op, OpKind, PAGE_BYTES, PageBuf};
use flash::{DATA_OFFSET, FlashFiles, FlashIo, Sim, ThreadPool, Uring, open_driver};

const MIB: u64 = 1 << 20;
const DATA_BYTES: u64 = 48 * MIB;
const END: u64 = DATA_OFFSET + DATA_BYTES;

fn files(dir: &Path) -> Arc<FlashFiles> {
    let paths = [dir.join("0"), dir.join("1")];
    Arc::new(FlashFiles::open(&paths, "flintkv-test.log", DATA_BYTES).unwrap())
}

fn driver(files: &Arc<FlashFiles>, which: FlashIo) -> Box<dyn Driver> {
    open_driver(files, which, &ThreadPool::new(3)).unwrap()
}

fn conforms(mut open: impl FnMut() -> Box<dyn Driver>) {
    write_and_read_back(&mut *open());
    large_writes(&mut *open());
    many_in_flight(&mut *open());
    past_the_end(&mut *open());
    discard_then_read(&mut *open());
    sync(&mut *open());
    nothing_to_wait_for(&mut *open());
}

#[test]
fn uring_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    conforms(|| driver(&files, FlashIo::Uring));
}

#[test]
fn a_uring_of_depth_two_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    conforms(|| Box::new(Uring::new(files.clone(), 2).unwrap()));
}

#[test]
fn threads_conform() {
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    conforms(|| driver(&files, FlashIo::Threads));
}

#[test]
fn the_simulated_device_conforms() {
    for seed in 0..10 {
        let sim = Sim::new(seed, 2, DATA_BYTES);
        conforms(|| Box::new(sim.driver()));
    }
}

/// tmpfs has no device. Whatever tmpfs does with O_DIRECT, the bytes must come back.
#[test]
fn tmpfs_conforms() {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let files = files(scratch.path());
    for which in [FlashIo::Uring, FlashIo::Threads] {
        conforms(|| driver(&files, which));
    }
}

/// The files grow and shrink under open drivers, which keep their descriptors.
#[test]
fn drivers_follow_their_files_size() {
    let follows = |driver: &mut dyn Driver, resize: &dyn Fn(u64)| {
        let (first, last) = (DATA_OFFSET, DATA_OFFSET + 2 * DATA_BYTES - PAGE_BYTES as u64);
        write(driver, 1, first, 1, 1);
        resize(2 * DATA_BYTES);
        write(driver, 1, last, 1, 2);
        assert_eq!(read(driver, 1, last, 1).unwrap()[..], pages_of(1, last, 1, 2)[..]);
        resize(DATA_BYTES / 2);
        let cut_off = read(driver, 1, last, 1).unwrap_err();
        assert_eq!(cut_off.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(driver, 1, first, 1).unwrap()[..], pages_of(1, first, 1, 1)[..]);
        resize(2 * DATA_BYTES);
        assert!(read(driver, 1, last, 1).unwrap().iter().all(|&byte| byte == 0));
        resize(DATA_BYTES);
    };
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    for which in [FlashIo::Uring, FlashIo::Threads] {
        follows(&mut *driver(&files, which), &|bytes| files.sizing().set(bytes).unwrap());
    }
    let sim = Sim::new(1, 2, DATA_BYTES);
    follows(&mut sim.driver(), &|bytes| sim.resize(bytes));
}

fn op(token: u64, path: u16, offset: u64, kind: OpKind) -> Op {
    Op { token, path, offset, kind }
}

/// Every page starts with its own position, so that a wrong page is detected.
fn pages_of(path: u16, offset: u64, pages: usize, version: u64) -> PageBuf {
    let mut buf = PageBuf::new(pages);
    for (page, bytes) in (0..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
        bytes[..8].copy_from_slice(&(offset + page * PAGE_BYTES as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        bytes[16] = path as u8;
        bytes[PAGE_BYTES - 8..].copy_from_slice(&version.to_le_bytes());
    }
    buf
}

/// Waits until everything is done. Returns the completions by token.
fn drain(driver: &mut dyn Driver) -> HashMap<u64, Done> {
    let mut done = Vec::new();
    while driver.in_flight() > 0 {
        driver.wait();
        driver.reap(&mut done);
    }
    let count = done.len();
    let by_token: HashMap<_, _> = done.into_iter().map(|done| (done.token, done)).collect();
    assert_eq!(by_token.len(), count, "every operation completes once");
    by_token
}

fn run_one(driver: &mut dyn Driver, op: Op) -> Done {
    let token = op.token;
    driver.push(op);
    driver.submit();
    drain(driver).remove(&token).expect("completes under its token")
}

fn write(driver: &mut dyn Driver, path: u16, offset: u64, pages: usize, version: u64) {
    let buf = pages_of(path, offset, pages, version);
    let done = run_one(driver, op(7, path, offset, OpKind::Write(buf)));
    done.result.unwrap();
    assert_eq!(done.buf.expect("a write gives its buffer back").pages(), pages);
}

fn read(driver: &mut dyn Driver, path: u16, offset: u64, pages: usize) -> io::Result<PageBuf> {
    let mut buf = PageBuf::new(pages);
    buf.fill(0xEE);
    let done = run_one(driver, op(8, path, offset, OpKind::Read(buf)));
    let buf = done.buf.expect("a read gives its buffer back, even if it failed");
    done.result.map(|()| buf)
}

fn write_and_read_back(driver: &mut dyn Driver) {
    let unwritten = read(driver, 0, END - 8 * MIB, 2).unwrap();
    assert!(unwritten.iter().all(|&byte| byte == 0));
    for path in [0, 1] {
        write(driver, path, DATA_OFFSET, 4, 1);
        write(driver, path, DATA_OFFSET + 4096, 1, 2);
        let expect = |offset, version| pages_of(path, offset, 1, version).to_vec();
        let back = read(driver, path, DATA_OFFSET, 3).unwrap();
        assert_eq!(back[..4096], expect(DATA_OFFSET, 1));
        assert_eq!(back[4096..8192], expect(DATA_OFFSET + 4096, 2));
        assert_eq!(back[8192..], expect(DATA_OFFSET + 8192, 1));
    }
}

fn large_writes(driver: &mut dyn Driver) {
    for (version, bytes) in [256 << 10, MIB, 16 * MIB].into_iter().enumerate() {
        let pages = bytes as usize / PAGE_BYTES;
        let offset = END - bytes;
        write(driver, 1, offset, pages, version as u64);
        let back = read(driver, 1, offset, pages).unwrap();
        assert!(*back == *pages_of(1, offset, pages, version as u64));
    }
}

/// Pushes more operations at once than any driver's depth. Each completes once, with its own page.
fn many_in_flight(driver: &mut dyn Driver) {
    const COUNT: u64 = 2000;
    let place = |token: u64| {
        let slot = token.wrapping_mul(7919) % COUNT;
        ((slot % 2) as u16, DATA_OFFSET + 4 * MIB + slot / 2 * 4096)
    };
    let mut push_all = |kind: &dyn Fn(u16, u64) -> OpKind| {
        for token in 0..COUNT {
            let (path, offset) = place(token);
            driver.push(op(token, path, offset, kind(path, offset)));
            if token % 100 == 0 {
                driver.submit();
            }
        }
        assert_eq!(driver.in_flight() as u64, COUNT);
        driver.submit();
        drain(driver)
    };
    let written = push_all(&|path, offset| OpKind::Write(pages_of(path, offset, 1, 3)));
    assert!(written.into_values().all(|done| done.result.is_ok()));
    let mut tokens = HashSet::new();
    for done in push_all(&|_, _| OpKind::Read(PageBuf::new(1))).into_values() {
        done.result.unwrap();
        let (path, offset) = place(done.token);
        assert!(*done.buf.unwrap() == *pages_of(path, offset, 1, 3));
        assert!(done.nanos > 0);
        assert!(tokens.insert(done.token));
    }
    assert_eq!(tokens.len() as u64, COUNT);
}

fn past_the_end(driver: &mut dyn Driver) {
    read(driver, 0, END - 4096, 1).unwrap();
    for (offset, pages) in [(END, 1), (END - 4096, 2), (END + 100 * MIB, 16)] {
        let error = read(driver, 0, offset, pages).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

/// Discarded pages read as zeros or as before; their neighbours do not change.
fn discard_then_read(driver: &mut dyn Driver) {
    let at = DATA_OFFSET + 8 * MIB;
    write(driver, 0, at, 768, 4);
    let done = run_one(driver, op(1, 0, at + MIB, OpKind::Discard { bytes: MIB }));
    done.result.unwrap();
    assert!(done.buf.is_none());
    let back = read(driver, 0, at, 768).unwrap();
    let expect = pages_of(0, at, 768, 4);
    let (from, to) = (MIB as usize, 2 * MIB as usize);
    assert!(back[..from] == expect[..from]);
    assert!(back[to..] == expect[to..]);
    for (page, old) in back[from..to].chunks(PAGE_BYTES).zip(expect[from..to].chunks(PAGE_BYTES)) {
        assert!(page == old || page.iter().all(|&byte| byte == 0));
    }
    write(driver, 0, at + MIB, 256, 5);
    assert!(*read(driver, 0, at + MIB, 256).unwrap() == *pages_of(0, at + MIB, 256, 5));
}

/// What a sync makes durable is shown by the crashes of the simulated device; that the kernel is asked for it, by refused.rs and
/// in uring.rs.
fn sync(driver: &mut dyn Driver) {
    write(driver, 1, DATA_OFFSET, 2, 6);
    let done = run_one(driver, op(1, 1, 0, OpKind::Sync));
    done.result.unwrap();
    assert!(done.buf.is_none());
    assert!(*read(driver, 1, DATA_OFFSET, 2).unwrap() == *pages_of(1, DATA_OFFSET, 2, 6));
}

fn nothing_to_wait_for(driver: &mut dyn Driver) {
    driver.submit();
    driver.wait();
    let mut done = Vec::new();
    driver.reap(&mut done);
    assert!(done.is_empty());
    assert_eq!(driver.in_flight(), 0);
    // A wait submits the pushed operations; otherwise it would wait for ever.
    driver.push(op(1, 0, DATA_OFFSET, OpKind::Read(PageBuf::new(1))));
    assert_eq!(driver.in_flight(), 1);
    while done.is_empty() {
        driver.wait();
        driver.reap(&mut done);
    }
    assert_eq!(done[0].token, 1);
    assert_eq!(driver.in_flight(), 0);
}

/// The kernel uses the buffers of operations in flight, so a dropped driver waits for them. Afterwards the submitted
/// writes are completely on the device.
#[test]
fn a_driver_dropped_with_operations_in_flight_finishes_them() {
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    let pages = 4 * MIB as usize / PAGE_BYTES;
    let at = |write: u64| DATA_OFFSET + write * 4 * MIB;
    // The pool outlives the drivers, as other workers' drivers would keep it. Its drop waits too.
    let pool = ThreadPool::new(3);
    for which in [FlashIo::Uring, FlashIo::Threads] {
        for version in 0..3 {
            let mut dropped = open_driver(&files, which, &pool).unwrap();
            for token in 0..10 {
                let buf = pages_of(0, at(token), pages, version);
                dropped.push(op(token, 0, at(token), OpKind::Write(buf)));
            }
            dropped.submit();
            // Pushed and not submitted: these may or may not have started, and nobody waits for them.
            for token in 10..1000 {
                dropped.push(op(token, 1, DATA_OFFSET, OpKind::Read(PageBuf::new(1))));
            }
            drop(dropped);
            for write in 0..10 {
                let mut back = vec![0; 4 * MIB as usize];
                let log = File::open(scratch.path().join("0/flintkv-test.log")).unwrap();
                log.read_exact_at(&mut back, at(write)).unwrap();
                assert!(back == *pages_of(0, at(write), pages, version));
            }
        }
    }
}

/// Each thread has a driver of its own; all drivers use the same files.
#[test]
fn drivers_of_several_threads_do_not_mix_their_completions() {
    let scratch = tempfile::tempdir().unwrap();
    let files = files(scratch.path());
    for which in [FlashIo::Uring, FlashIo::Threads] {
        let pool = ThreadPool::new(2);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (files, pool) = (&files, &pool);
                scope.spawn(move || {
                    let mut driver = open_driver(files, which, pool).unwrap();
                    let at = DATA_OFFSET + thread * 8 * MIB;
                    for round in 0..50 {
                        write(&mut *driver, 0, at, 16, round);
                        let back = read(&mut *driver, 0, at, 16).unwrap();
                        assert!(*back == *pages_of(0, at, 16, round));
                    }
                });
            }
        });
    }
}
