//! On the simulated device: random records, syncs and checkpoints, a crash after every operation, and recoveries that crash too.
//! What is recovered is what was appended, without its end, and never less than what was durable.

use base::random::SplitMix64;
use flash::io::{Done, Driver, Op};
use flash::sim::SimDriver;
use flash::{DATA_OFFSET, Sim};
use journal::{Config, Error, Record, Refused, Writer, recover};

const FILES: u16 = 8;
/// When the files are not enough, there are more.
const FILES_MAX: u16 = 40;
const CONFIG: Config = Config {
    log_id: *b"the journal's id",
    file_bytes: 64 << 10,
    frame_bytes: 20 << 10,
    buffer_bytes: 100 << 10,
    packed_from: 6 << 10,
};
/// Steps of a run until it crashes for the first time.
const STEPS: u64 = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Survivor {
    end: u64,
    db: u32,
    time_ms: u64,
    resp: Vec<u8>,
}

/// A journal on a device, and what must be in it.
struct World {
    random: SplitMix64,
    sim: Sim,
    driver: SimDriver,
    writer: Writer,
    /// Every record that counts, in order.
    appended: Vec<Survivor>,
    /// The highest position that the writer has called durable.
    durable: u64,
    checkpoint: u64,
    /// So many writes or syncs may still fail.
    failures: u32,
    failed: bool,
    files: u16,
}

impl World {
    fn new(seed: u64, files: u16, failures: u32) -> World {
        let sim = Sim::new(seed, FILES_MAX, CONFIG.file_bytes).with_cache();
        World {
            random: SplitMix64(seed),
            driver: sim.driver(),
            sim,
            writer: Writer::new(CONFIG, files),
            appended: Vec::new(),
            durable: 0,
            checkpoint: 0,
            failures,
            failed: false,
            files,
        }
    }

    fn append(&mut self) {
        let length = match self.random.below(20) {
            0 => 0,
            1 => self.random.below(60_000),
            2..6 => self.random.below(8_000),
            _ => self.random.below(300),
        };
        // Some frames are packed, and some are not.
        let resp = match self.random.below(3) {
            0 => self.random.bytes(length as usize),
            _ => vec![self.random.draw() as u8; length as usize],
        };
        self.append_bytes(resp);
    }

    fn append_bytes(&mut self, resp: Vec<u8>) {
        let (db, time_ms) = (self.random.below(16) as u32, self.random.draw());
        let record = Record { db, time_ms, resp: &resp };
        match self.writer.append(&record, 7 * self.appended.len() as u64) {
            Ok(end) => self.appended.push(Survivor { end, db, time_ms, resp }),
            Err(Refused::Full) => self.writer.sync(),
            Err(Refused::Failed) => assert!(self.failed),
        }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..5 => self.append(),
            5 => self.writer.write(),
            6 => self.writer.sync(),
            7 => {
                let known = self.writer.durable();
                let durable: Vec<u64> = self.appended.iter().map(|kept| kept.end).filter(|&end| end <= known).collect();
                if !durable.is_empty() {
                    let at = self.random.index(2 * durable.len()).min(durable.len() - 1);
                    self.checkpoint = self.checkpoint.max(durable[at]);
                    self.writer.needed_from(self.checkpoint);
                }
            }
            8 if self.failures > 0 => {
                self.failures -= 1;
                match self.random.below(2) {
                    0 => self.sim.fail_next_write(),
                    _ => self.sim.fail_next_sync(),
                }
            }
            _ => self.drive(),
        }
    }

    /// Some of the I/O that there is to do.
    fn drive(&mut self) {
        let mut ops: Vec<Op> = Vec::new();
        self.writer.ops(&mut ops);
        ops.into_iter().for_each(|op| self.driver.push(op));
        self.driver.submit();
        let mut done: Vec<Done> = Vec::new();
        self.driver.reap(&mut done);
        for done in done {
            self.failed |= self.writer.done(done).is_err();
        }
        if self.writer.needs_file() && self.files < FILES_MAX && self.random.below(20) == 0 {
            self.files += 1;
            self.writer.add_file();
        }
        // After a recovery the writer knows less until its copy is durable.
        self.durable = self.durable.max(self.writer.durable());
    }

    fn drive_all(&mut self) {
        self.drive();
        while self.driver.in_flight() > 0 {
            self.drive();
        }
    }

    /// The power fails. One time in three only the process is killed: what was submitted is done, and nothing is lost, but what
    /// the next process reads may not be durable.
    fn crash(&mut self) {
        let mut driver = std::mem::replace(&mut self.driver, self.sim.driver());
        match self.random.below(3) {
            0 => {
                while driver.in_flight() > 0 {
                    driver.wait();
                    driver.reap(&mut Vec::new());
                }
            }
            _ => self.sim.crash([driver]),
        }
    }

    fn recovered(&self) -> Result<Vec<Survivor>, Error> {
        let recovered = recover(&self.sim, CONFIG, self.files, self.checkpoint)?;
        let mut found = Vec::new();
        recovered.records(&self.sim, |end, record| {
            let &Record { db, time_ms, resp } = record;
            found.push(Survivor { end, db, time_ms, resp: resp.to_owned() });
        })?;
        Ok(found)
    }

    /// The records after the checkpoint.
    fn expected(&self) -> &[Survivor] {
        &self.appended[self.appended.partition_point(|kept| kept.end <= self.checkpoint)..]
    }

    /// Reads the journal back after a crash, checks it, and goes on with it.
    fn recover(&mut self) {
        let found = self.recovered().expect("a crash alone damages nothing");
        let expected = self.expected();
        assert!(found.len() <= expected.len());
        assert!(found == expected[..found.len()], "the records are not those that were appended");
        let lost = &expected[found.len()..];
        let durable = self.durable;
        assert!(
            lost.first().is_none_or(|kept| kept.end > durable),
            "durable until {durable}, and lost: {:?}",
            lost[0].end
        );
        self.appended.truncate(self.appended.len() - lost.len());
        let recovered = recover(&self.sim, CONFIG, self.files, self.checkpoint).unwrap();
        if let Some(last) = found.last() {
            assert!(recovered.end() >= last.end);
            let count = self.appended.len() as u64;
            assert!(recovered.replication_offset().unwrap() >= 7 * (count - 1) || recovered.end() > last.end);
        }
        self.writer = recovered.writer(&self.sim).unwrap();
        self.failed = false;
    }

    /// Until everything is durable, or, `None`, nothing can become durable.
    fn make_durable(&mut self) -> Option<()> {
        self.writer.sync();
        for _ in 0..1000 {
            if self.writer.is_idle() {
                return Some(());
            }
            self.drive();
        }
        assert!(self.failed || self.files == FILES_MAX, "the writer is stuck");
        None
    }
}

/// One history, crashed after `steps` steps and recovered, and again with the writers after it.
fn run(seed: u64, steps: u64, failures: u32) -> u64 {
    // Few files at first: a writer that may use one again does so.
    let mut world = World::new(seed, 1 + (seed % 3) as u16, failures);
    (0..steps).for_each(|_| world.step());
    let mut crashes = 0;
    for later in 0..3 {
        world.crash();
        world.recover();
        crashes += 1;
        // The copy and what follows it, from nothing at all to much.
        let steps = world.random.below(if later == 0 { 6 } else { 30 });
        (0..steps).for_each(|_| world.step());
    }
    if world.make_durable().is_some() {
        assert_eq!(world.durable, world.writer.position());
        world.crash();
        world.recover();
        assert!(world.appended.last().is_none_or(|kept| kept.end <= world.durable));
        crashes += 1;
    }
    crashes
}

#[test]
fn a_crash_after_any_operation_loses_nothing_durable() {
    let crashes = seeds::each_crash(1, 40, |seed| (0..STEPS).map(|steps| run(seed, steps, 0)).sum());
    assert!(crashes > 5000, "{crashes}");
}

#[test]
fn crashes_after_failed_writes_and_syncs_lose_nothing_durable() {
    let crashes = seeds::each_crash(1000, 40, |seed| (0..STEPS).map(|steps| run(seed, steps, 3)).sum());
    assert!(crashes > 4000, "{crashes}");
}

/// A crash left the first sector of a frame, the next writer wrote over it, and its crash left the other sectors: the frame was
/// whole again, with records that the recovery in between had not found.
#[test]
fn what_a_recovery_has_not_found_does_not_come_back() {
    let header = |sim: &Sim, file| sim.page(file, DATA_OFFSET)[..flash::sim::SECTOR_BYTES].to_vec();
    for seed in 0..20 {
        let mut world = World::new(seed, 1, 0);
        world.append_bytes(vec![1; 500]);
        world.writer.write();
        world.drive_all();
        // Only the frame's first sector reaches the device.
        let mut torn = [0; 4096];
        torn[..512].copy_from_slice(&header(&world.sim, 0));
        world.sim.set_page(0, DATA_OFFSET, &torn);
        world.driver = world.sim.driver();
        world.recover();
        assert!(world.appended.is_empty());
        world.append_bytes(vec![1; 500]);
        world.writer.write();
        if world.writer.needs_file() {
            world.files += 1;
            world.writer.add_file();
        }
        world.drive_all();
        world.crash();
        world.recover();
    }
}

/// Everything is in a checkpoint. The file with the last durable frame is kept all the same: without it, nothing would tell a torn
/// frame behind it from a missing file.
#[test]
fn the_last_durable_frame_is_kept_until_a_later_one_is_durable() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, 0);
        world.append_bytes(vec![1; 500]);
        world.make_durable();
        world.checkpoint = world.durable;
        world.writer.needed_from(world.checkpoint);
        world.crash();
        world.recover();
        world.append_bytes(vec![1; 500]);
        world.writer.write();
        assert!(world.writer.needs_file());
        world.drive_all();
        world.crash();
        world.recover();
    }
}

/// Long enough that every file is used many times.
#[test]
fn files_are_used_again_and_crashes_lose_nothing_durable() {
    seeds::each(2000, 12, |seed| {
        let mut world = World::new(seed, 3, 0);
        for _ in 0..8 {
            (0..400).for_each(|_| world.step());
            world.crash();
            world.recover();
        }
        assert!(world.writer.position() > u64::from(FILES) * CONFIG.file_bytes, "{}", world.writer.position());
    });
}

/// A flipped bit costs records at the end or the whole journal, and never changes a record.
#[test]
fn flipped_bits_never_give_a_wrong_record() {
    let (mut refused, mut shorter, mut same) = (0, 0, 0);
    seeds::each(3000, 10, |seed| {
        let mut world = World::new(seed, FILES, 0);
        (0..300).for_each(|_| world.step());
        for _ in 0..20 {
            world.append();
            world.make_durable();
        }
        world.crash();
        let whole = world.recovered().unwrap();
        for _ in 0..60 {
            let (file, offset) = (world.random.below(FILES.into()) as u16, world.random.below(CONFIG.file_bytes));
            let bit = world.random.below(8) as u8;
            world.sim.flip_bit_at(file, DATA_OFFSET + offset, bit);
            match world.recovered() {
                Err(_) => refused += 1,
                Ok(found) => {
                    assert!(found.len() <= whole.len());
                    assert!(found == whole[..found.len()], "a wrong record");
                    if found.len() < whole.len() { shorter += 1 } else { same += 1 }
                }
            }
            world.sim.flip_bit_at(file, DATA_OFFSET + offset, bit);
        }
    });
    println!("{refused} refused, {shorter} cut, {same} not touched");
    assert!(refused > 30, "{refused}");
    assert!(same > 30, "{same}");
}
