//! Tests of the journal in use, with real files, and with a device that a test can stop or let fail.

use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Deref};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flash::io::{Done, Op, OpKind};
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use crate::files::Files;
use crate::head::Head;
use crate::thread::Disk;
use crate::{Draft, Log, OpenError, Opened, Policy, Record, Settings, delete, stored_bytes};

const RING_BYTES: u64 = 128 << 10;

fn settings(policy: Policy) -> Settings {
    Settings { log_id: *b"0123456789abcdef", file_bytes: 512 << 10, ring_bytes: RING_BYTES, policy }
}

/// The state of the device, which the test changes.
#[derive(Default)]
struct Device {
    state: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    /// Whether syncs wait.
    holds_syncs: bool,
    /// Whether a sync is waiting now.
    is_held: bool,
    /// This many of the next writes and syncs fail.
    failures: u32,
    is_full: bool,
    /// Number of files that could not be made because the device was full.
    refused_files: u32,
    /// Whether each file was made with zeroes.
    made: Vec<bool>,
    syncs: u64,
}

impl Device {
    fn with_state(&self, with: impl FnOnce(&mut Told)) {
        with(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn wait_until_held(&self) {
        let mut state = self.state.lock();
        while !state.is_held {
            assert!(!self.changed.wait_for(&mut state, Duration::from_secs(20)).timed_out(), "no sync came");
        }
    }
}

struct Fake {
    files: Files,
    device: Arc<Device>,
}

impl Disk for Fake {
    fn run_operations(&mut self, run: Vec<Op>, is_last: bool, done: &mut Vec<Done>) {
        let mut state = self.device.state.lock();
        if matches!(run[0].kind, OpKind::Sync) {
            while state.holds_syncs {
                state.is_held = true;
                self.device.changed.notify_all();
                self.device.changed.wait(&mut state);
            }
            (state.is_held, state.syncs) = (false, state.syncs + 1);
        }
        if state.failures > 0 {
            state.failures -= 1;
            done.extend(run.into_iter().map(|op| {
                let buf = if let OpKind::Write(buf) = op.kind { Some(buf) } else { None };
                Done { token: op.token, result: Err(io::Error::other("the device says no")), buf, nanos: 0 }
            }));
            return;
        }
        // The lock is held until the operation is complete: see `killed`.
        self.files.run_operations(run, is_last, done);
    }

    fn add(&mut self, zeroed: bool) -> Result<(), OpenError> {
        let mut state = self.device.state.lock();
        if state.is_full {
            state.refused_files += 1;
            return Err(OpenError::NoSpace { file: "journal-x".into(), needed_bytes: 1 });
        }
        state.made.push(zeroed);
        self.files.add(zeroed)
    }

    fn remove_last(&mut self) -> Result<(), OpenError> {
        let _state = self.device.state.lock();
        self.files.remove_last()
    }

    fn make_ring(&self, head: &Head) -> Result<File, OpenError> {
        let state = self.device.state.lock();
        if state.is_full {
            return Err(OpenError::NoSpace { file: "journal-ring".into(), needed_bytes: head.data_bytes });
        }
        self.files.make_ring(head)
    }

    fn count(&self) -> u16 {
        self.files.count()
    }

    fn file_bytes(&self) -> u64 {
        self.files.file_bytes()
    }
}

/// The length of the journal's second in these tests.
const SECOND: Duration = Duration::from_millis(20);

/// Releases the device when a test fails, so that the journal can be dropped.
struct Hold(Arc<Device>);

impl Deref for Hold {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.with_state(|told| told.holds_syncs = false);
    }
}

fn start(directory: &Path, policy: Policy, from: u64) -> (Arc<Log>, Hold) {
    let device = Arc::<Device>::default();
    let log = start_with(directory, &settings(policy), from, &device).unwrap();
    (log, Hold(device))
}

fn start_with(directory: &Path, settings: &Settings, from: u64, device: &Arc<Device>) -> Result<Arc<Log>, OpenError> {
    let opened = Opened::open(directory, settings, from).unwrap();
    opened.start_on(SECOND, |files| Fake { files, device: Arc::clone(device) })
}

fn append(log: &Log, resp: &[u8]) -> u64 {
    let draft = Draft { db: 0, time_ms: 7, resp_bytes_max: resp.len() + 100 };
    log.append_draft(&draft, |out| {
        out[..resp.len()].copy_from_slice(resp);
        resp.len()
    })
}

/// Waits like a client whose reply has seen this position.
fn wait_until_durable(log: &Log, position: u64) {
    log.want(position);
    wait_until("the sync", || log.durable() == position);
}

/// Appends numbered records, so that their order can be checked.
fn append_all(log: &Log, numbers: std::ops::Range<u32>, bytes: usize) -> u64 {
    numbers.map(|number| append(log, &numbered(number, bytes))).last().unwrap()
}

fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut resp = vec![number as u8; bytes.max(4)];
    resp[..4].copy_from_slice(&number.to_le_bytes());
    resp
}

/// The numbers of the records that a start finds.
fn found(directory: &Path, from: u64) -> Vec<u32> {
    let opened = Opened::open(directory, &settings(Policy::No), from).unwrap();
    let (mut numbers, mut last) = (Vec::new(), from);
    let each = &mut |end, record: &Record| {
        let number = u32::from_le_bytes(*record.resp.first_chunk().unwrap());
        assert_eq!(record.resp, numbered(number, record.resp.len()));
        numbers.push(number);
        last = end;
        ControlFlow::Continue(())
    };
    opened.records(each).unwrap();
    // A record that was cut off may be behind the last one.
    assert!(last <= opened.end());
    numbers
}

/// A copy of the directory as it would be if the process was killed now, between two operations of the device.
fn killed(directory: &Path, device: &Device) -> TempDir {
    let _between = device.state.lock();
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

const POLICIES: [Policy; 3] = [Policy::No, Policy::EverySecond, Policy::Always];

#[test]
fn a_killed_process_loses_nothing_and_a_closed_journal_has_everything() {
    for policy in POLICIES {
        let scratch = tempfile::tempdir().unwrap();
        let (log, device) = start(scratch.path(), policy, 0);
        device.with_state(|told| told.holds_syncs = true);
        let end = append_all(&log, 0..100, 500);
        assert_eq!(end, 100 * stored_bytes(500));
        assert_eq!((log.position(), log.durable()), (end, 0));
        assert_eq!(found(killed(scratch.path(), &device).path(), 0), Vec::from_iter(0..100));
        device.with_state(|told| told.holds_syncs = false);
        log.close().unwrap();
        assert_eq!((log.durable(), log.safe()), (end, end));
        log.close().unwrap();
        assert_eq!(found(scratch.path(), 0), Vec::from_iter(0..100));
        // The ring is not needed for this.
        assert_eq!(found(scratch.path(), stored_bytes(500) * 60), Vec::from_iter(60..100));
    }
}

/// Many starts, most of them after a kill. Each finds all that was appended before it, once and in order.
#[test]
fn each_start_goes_on_where_the_last_one_was_killed() {
    let mut scratch = tempfile::tempdir().unwrap();
    let mut count = 0;
    for round in 0..12_u32 {
        let (log, device) = start(scratch.path(), POLICIES[round as usize % 3], 0);
        device.with_state(|told| told.holds_syncs = round % 4 == 1);
        // Records of more than one piece, and of less than an entry's header.
        let bytes = [20, 700, 40_000][round as usize % 3];
        let appended = if bytes > 10_000 { 2 } else { 30 };
        append_all(&log, count..count + appended, bytes);
        count += appended;
        if round % 4 == 3 {
            log.close().unwrap();
        }
        let copy = killed(scratch.path(), &device);
        device.with_state(|told| told.holds_syncs = false);
        drop(log);
        scratch = copy;
        assert_eq!(found(scratch.path(), 0), Vec::from_iter(0..count), "round {round}");
    }
}

#[test]
fn what_a_checkpoint_demands_becomes_durable_without_a_policy() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _device) = start(scratch.path(), Policy::No, 0);
    let end = append_all(&log, 0..10, 100);
    log.demand(end);
    wait_until("the sync", || log.durable() == end);
}

/// While a checkpoint waits for the journal, one more file is allowed.
#[test]
fn no_more_files_are_made_than_are_allowed() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _device) = start(scratch.path(), Policy::No, 0);
    log.limit_files(2);
    let mut end = 0;
    wait_until("the files are full", || {
        if !log.is_behind() {
            end = append_all(&log, 0..20, 500);
        }
        log.is_behind() && log.figures().trouble.is_some_and(|why| why.contains("only 2 files"))
    });
    assert_eq!(log.figures().files, 2);
    // The additional file is never filled, so each checkpoint can have it.
    for _ in 0..5 {
        log.demand(end);
        wait_until("the sync", || log.durable() == end);
        assert_eq!(log.figures().files, 3);
        assert!(log.is_behind());
        log.needed_from(end);
        wait_until("there is room", || !log.is_behind());
        wait_until("the files are full", || {
            if !log.is_behind() {
                end = append_all(&log, 0..20, 500);
            }
            log.is_behind() && log.figures().trouble.is_some()
        });
    }
}

/// A checkpoint that is larger than the last one leaves less room for the journal. The checkpoint could never end if
/// the journal could not become durable.
#[test]
fn files_that_are_full_when_fewer_are_allowed_do_not_keep_a_checkpoint_from_ending() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _device) = start(scratch.path(), Policy::No, 0);
    log.limit_files(3);
    let mut end = 0;
    wait_until("the files are full", || {
        if !log.is_behind() {
            end = append_all(&log, 0..20, 500);
        }
        log.is_behind() && log.figures().trouble.is_some()
    });
    log.limit_files(2);
    log.make_durable(end).unwrap();
    assert!(log.is_behind());
    assert_eq!(log.figures().files, 4);
    log.needed_from(end);
    wait_until("there is room", || !log.is_behind());
}

#[test]
fn always_waits_for_the_sync_and_the_other_policies_do_not() {
    for policy in POLICIES {
        let scratch = tempfile::tempdir().unwrap();
        let (log, device) = start(scratch.path(), policy, 0);
        device.with_state(|told| told.holds_syncs = true);
        let end = append_all(&log, 0..10, 100);
        if policy != Policy::No {
            device.wait_until_held();
        }
        assert_eq!(log.safe(), if policy == Policy::Always { 0 } else { end });
        assert_eq!(log.durable(), 0);
        device.with_state(|told| told.holds_syncs = false);
        if policy == Policy::No {
            log.set_policy(Policy::EverySecond);
        }
        wait_until_durable(&log, end);
        assert_eq!(log.safe(), end);
        assert!(log.figures().syncs > 0);
    }
}

#[test]
fn what_comes_during_a_sync_shares_the_next_one_and_listeners_learn_of_both() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::Always, 0);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (ear, weak) = (Arc::clone(&heard), Arc::downgrade(&log));
    log.on_progress(Box::new(move || ear.lock().extend(weak.upgrade().map(|log| log.safe()))));
    device.with_state(|told| told.holds_syncs = true);
    let first = append(&log, b"first");
    device.wait_until_held();
    let last = append_all(&log, 0..500, 50);
    device.with_state(|told| told.holds_syncs = false);
    wait_until("the last record", || log.safe() == last);
    wait_until("its news", || heard.lock().contains(&last));
    assert_eq!(*heard.lock(), [first, last]);
    assert_eq!(device.state.lock().syncs, 2);
    drop(log);
}

/// A worker runs the commands of many connections before the first reply waits: they share one sync.
#[test]
fn with_always_the_first_who_waits_begins_the_sync() {
    let scratch = tempfile::tempdir().unwrap();
    let device = Arc::<Device>::default();
    let opened = Opened::open(scratch.path(), &settings(Policy::Always), 0).unwrap();
    let files = |files| Fake { files, device: Arc::clone(&device) };
    // The journal's second does not pass in this test.
    let log = opened.start_on(Duration::from_secs(3600), files).unwrap();
    append(&log, b"first");
    wait_until("files to spare", || log.figures().files == 2);
    let last = append_all(&log, 0..20, 50);
    wait_until_durable(&log, last);
    assert_eq!(log.figures().syncs, 1);
    drop(log);
}

#[test]
fn a_switch_to_always_holds_replies_from_then_on_and_a_switch_back_frees_them() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::No, 0);
    device.with_state(|told| told.holds_syncs = true);
    let end = append(&log, b"some");
    assert_eq!(log.safe(), end);
    log.set_policy(Policy::Always);
    assert_eq!(log.safe(), 0);
    device.wait_until_held();
    log.set_policy(Policy::EverySecond);
    assert_eq!(log.safe(), end);
    device.with_state(|told| told.holds_syncs = false);
}

#[test]
fn what_does_not_fit_into_the_ring_is_not_safe_before_it_is_durable() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::No, 0);
    device.with_state(|told| told.holds_syncs = true);
    let (mut number, mut fitted) = (0, 0);
    while log.safe() == log.position() {
        assert_eq!(log.is_behind(), fitted > RING_BYTES / 4 * 3, "at {fitted}");
        assert!(fitted <= RING_BYTES, "the ring takes more than it has");
        fitted += 1040;
        append(&log, &numbered(number, 1000));
        number += 1;
    }
    let in_ring = number - 1;
    assert_eq!(log.safe(), u64::from(in_ring) * stored_bytes(1000));
    assert!(log.is_behind());
    let waited = log.figures();
    assert!(waited.behind.is_some() && waited.behind_total >= waited.behind.unwrap());
    // A later record that would fit into the ring goes behind the record in the overflow.
    append_all(&log, number..number + 300, 10);
    let end = append_all(&log, number + 300..number + 310, 100_000);
    number += 310;
    assert_eq!(log.safe(), u64::from(in_ring) * stored_bytes(1000));
    device.wait_until_held();
    let copy = killed(scratch.path(), &device);
    let after_kill = found(copy.path(), 0);
    assert!(after_kill.len() as u32 >= in_ring && after_kill == Vec::from_iter(0..after_kill.len() as u32));

    device.with_state(|told| told.holds_syncs = false);
    wait_until("the overflow to be durable", || log.durable() == end && !log.is_behind());
    assert_eq!(log.safe(), end);
    let after = log.figures();
    assert!(after.behind.is_none() && after.behind_total > waited.behind_total, "the time before counts");
    // The ring is used again.
    device.with_state(|told| told.holds_syncs = true);
    append_all(&log, number..number + 20, 1000);
    assert_eq!(log.safe(), log.position());
    assert_eq!(found(killed(scratch.path(), &device).path(), 0), Vec::from_iter(0..number + 20));
    device.with_state(|told| told.holds_syncs = false);
    drop(log);
    assert_eq!(found(scratch.path(), 0), Vec::from_iter(0..number + 20));
}

/// Room in the ring becomes free only when its records are durable, not already when they are written.
#[test]
fn the_ring_keeps_what_is_written_and_not_durable() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::EverySecond, 0);
    device.with_state(|told| told.holds_syncs = true);
    append_all(&log, 0..60, 1000);
    device.wait_until_held();
    // The records are written, but a device that loses its cache has none of them.
    append_all(&log, 60..100, 1000);
    let copy = killed(scratch.path(), &device);
    for entry in fs::read_dir(copy.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("journal-0") {
            let mut bytes = fs::read(&path).unwrap();
            bytes[flash::DATA_OFFSET as usize..].fill(0);
            fs::write(&path, bytes).unwrap();
        }
    }
    assert_eq!(found(copy.path(), 0), Vec::from_iter(0..100));
    device.with_state(|told| told.holds_syncs = false);
    log.close().unwrap();
}

/// Random loads with all policies and several threads.
#[test]
fn threads_append_and_each_finds_its_records_in_order() {
    const THREADS: u32 = 3;
    const EACH: u32 = 3000;
    for policy in POLICIES {
        let scratch = tempfile::tempdir().unwrap();
        let (log, _) = start(scratch.path(), policy, 0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..EACH {
                        wait_until("room", || !log.is_behind());
                        let end = append(log, &numbered(thread * EACH + number, 100 + number as usize % 900));
                        if policy == Policy::Always && number % 500 == 0 {
                            wait_until("a sync", || log.safe() >= end);
                            assert!(log.durable() >= end);
                        }
                    }
                });
            }
        });
        drop(log);
        let numbers = found(scratch.path(), 0);
        assert_eq!(numbers.len() as u32, THREADS * EACH);
        for thread in 0..THREADS {
            let of_thread = numbers.iter().filter(|&&number| number / EACH == thread);
            assert!(of_thread.copied().eq(thread * EACH..(thread + 1) * EACH));
        }
    }
}

#[test]
fn files_that_nobody_needs_are_used_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _) = start(scratch.path(), Policy::Always, 0);
    let mut end = 0;
    for number in 0..300 {
        end = append(&log, &numbered(number, 15_000));
        wait_until_durable(&log, end);
    }
    let many = log.figures().files;
    assert!(many > 8, "{many}");
    for number in 300..600 {
        end = append(&log, &numbered(number, 15_000));
        wait_until_durable(&log, end);
        log.needed_from(end);
    }
    let files = log.figures().files;
    assert!(files <= 4, "{files}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count() as u64, files + 2);
    append(&log, &numbered(9, 5));
    log.close().unwrap();
    assert_eq!(found(scratch.path(), end), [9]);
}

/// Zeroes are as many bytes as the records, but make each sync cheaper.
#[test]
fn files_are_written_ahead_if_each_record_has_its_sync() {
    for policy in POLICIES {
        let scratch = tempfile::tempdir().unwrap();
        let (log, device) = start(scratch.path(), policy, 0);
        wait_until("files to spare", || device.state.lock().made.len() == 2);
        assert_eq!(device.state.lock().made, [policy == Policy::Always; 2]);
        append_all(&log, 0..10, 500);
        drop(log);
        assert_eq!(found(scratch.path(), 0), Vec::from_iter(0..10));
    }
}

#[test]
fn without_space_for_a_file_writers_wait_and_nothing_is_lost() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::Always, 0);
    device.with_state(|told| told.is_full = true);
    let mut number = 0;
    let end = loop {
        let end = append(&log, &numbered(number, 15_000));
        number += 1;
        wait_until("a sync or trouble", || log.durable() == end || log.is_behind());
        if log.is_behind() {
            break end;
        }
    };
    assert!(log.figures().trouble.unwrap().contains("journal-x needs 1 B"));
    assert_eq!(log.failed(), None);
    assert!(log.safe() < end);
    assert_eq!(found(killed(scratch.path(), &device).path(), 0), Vec::from_iter(0..number));
    device.with_state(|told| told.is_full = false);
    wait_until("the file that is tried again", || log.safe() == end && !log.is_behind());
    assert_eq!(log.figures().trouble, None);
    log.close().unwrap();
    assert_eq!(found(scratch.path(), 0), Vec::from_iter(0..number));
}

/// The operator is notified once that writers wait for a file, and once that they continue.
#[test]
fn each_spell_without_space_is_told_once_with_its_end() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::Always, 0);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    log.on_room(Box::new(move |why| ear.lock().push(why.map(str::to_owned))));
    for spell in 0..2 {
        device.with_state(|told| told.is_full = true);
        let mut end = 0;
        while heard.lock().len() == 2 * spell {
            end = append(&log, &numbered(1, 15_000));
            wait_until("a sync or trouble", || log.durable() == end || heard.lock().len() > 2 * spell);
        }
        let refused = device.state.lock().refused_files;
        wait_until("more attempts", || device.state.lock().refused_files > refused + 2);
        device.with_state(|told| told.is_full = false);
        wait_until("room", || log.durable() == end && heard.lock().len() == 2 * spell + 2);
    }
    let why = Some("journal-x needs 1 B, but its file system does not have so much free space".to_owned());
    assert_eq!(*heard.lock(), [why.clone(), None, why, None]);
}

#[test]
fn a_start_on_a_full_file_system_needs_no_more_than_what_is_left_to_be_written() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, running) = start(scratch.path(), Policy::Always, 0);
    let end = append_all(&log, 0..10, 500);
    wait_until_durable(&log, end);
    running.with_state(|told| told.holds_syncs = true);
    append_all(&log, 10..20, 500);
    let copy = killed(scratch.path(), &running);
    running.with_state(|told| told.holds_syncs = false);
    drop(log);
    // The killed process had kept a spare file: the records of the ring go there.
    let device = Arc::<Device>::default();
    device.with_state(|told| told.is_full = true);
    let larger = Settings { ring_bytes: 2 * RING_BYTES, ..settings(Policy::No) };
    let log = start_with(copy.path(), &larger, 0, &device).unwrap();
    assert_eq!(log.durable(), 20 * stored_bytes(500));
    append_all(&log, 20..25, 500);
    assert_eq!(log.safe(), log.position());
    drop(log);
    assert_eq!(found(copy.path(), 0), Vec::from_iter(0..25));
    // No file is free now, and the ring has records that are not in a file.
    let refused = start_with(copy.path(), &larger, 0, &device).err().unwrap();
    assert!(matches!(refused, OpenError::NoSpace { .. }), "{refused}");
    assert_eq!(found(copy.path(), 0), Vec::from_iter(0..25));
}

#[test]
fn one_failure_is_survived_and_two_end_the_journal() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, device) = start(scratch.path(), Policy::Always, 0);
    let first = append(&log, &numbered(0, 100));
    wait_until_durable(&log, first);
    device.with_state(|told| told.failures = 1);
    let second = append(&log, &numbered(1, 100));
    wait_until_durable(&log, second);
    assert_eq!(log.failed(), None);
    device.with_state(|told| told.failures = 2);
    let third = append(&log, &numbered(2, 100));
    wait_until("the failure", || log.failed().is_some());
    assert!(log.failed().unwrap().contains("the device says no"));
    // Reads continue.
    assert_eq!((log.durable(), log.safe(), log.is_behind()), (second, third, false));
    // Records appended after the failure do not fill the memory.
    append_all(&log, 3..200, 10_000);
    assert!(log.close().unwrap_err().to_string().contains("the device says no"));
    drop(log);
    // The ring has as many records as fitted.
    let numbers = found(scratch.path(), 0);
    assert!(numbers.len() > 10 && numbers.iter().copied().eq(0..numbers.len() as u32), "{numbers:?}");
}

#[test]
fn a_second_open_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _) = start(scratch.path(), Policy::No, 0);
    let error = Opened::open(scratch.path(), &settings(Policy::No), 0).err().unwrap();
    assert!(error.to_string().contains("is in use by another FlintKV process"), "{error}");
    assert!(matches!(delete(scratch.path()), Err(OpenError::InUse { .. })));
    log.close().unwrap();
    delete(scratch.path()).unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    delete(&scratch.path().join("absent")).unwrap();
    assert_eq!(found(scratch.path(), 0), []);
}

#[test]
fn what_is_not_this_journal_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (log, _) = start(scratch.path(), Policy::No, 0);
    append_all(&log, 0..3, 10);
    log.close().unwrap();
    drop(log);
    let refusal = |settings: &Settings, from| Opened::open(scratch.path(), settings, from).err().unwrap().to_string();
    let own = settings(Policy::No);
    let other = refusal(&Settings { log_id: [1; 16], ..own }, 0);
    assert!(
        other.contains("journal-0000: the file belongs to another journal, 30313233343536373839616263646566"),
        "{other}"
    );
    assert!(refusal(&own, 1000).contains("no journal file has position 1000"));
    let inside = Opened::open(scratch.path(), &own, 1).unwrap();
    let error = inside.records(&mut |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("no record of the journal begins at position 1"), "{error}");
    drop(inside);
    // The settings may have other sizes than the files.
    let larger = Settings { file_bytes: 1 << 20, ring_bytes: 2 * RING_BYTES, ..own };
    let log = Opened::open(scratch.path(), &larger, 0).unwrap().start().unwrap();
    append_all(&log, 3..4, 10);
    drop(log);
    assert_eq!(found(scratch.path(), 0), [0, 1, 2, 3]);

    let hidden = scratch.path().join("hidden");
    for name in ["journal-ring", "journal-0000"] {
        fs::rename(scratch.path().join(name), &hidden).unwrap();
        let text = refusal(&own, 0);
        assert!(text.contains(&format!("{name} is missing, but other files of the journal are there")), "{text}");
        fs::rename(&hidden, scratch.path().join(name)).unwrap();
    }
    // All files of records are gone.
    let mut number = 0;
    while fs::remove_file(scratch.path().join(format!("journal-{number:04}"))).is_ok() {
        number += 1;
    }
    assert!(refusal(&own, 0).contains("although it was durable"), "{}", refusal(&own, 0));
    fs::write(scratch.path().join("journal-ring"), "some text").unwrap();
    assert!(refusal(&own, 0).contains("not a journal file"));
}
