//! Measures a dump (BGSAVE) of a dataset ten times as large as RAM, compared with the read rate of the device and the
//! encoding rate of one processor. Never knows the server's code.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flash::io::{PAGE_BYTES, PageBuf};

use super::kept::{journalled, persistence, wait_for_checkpoint};
use crate::endurance::real;
use crate::figure::{Figure, Target};
use crate::lab::{FIRST_KEY, KEY_BYTES, Lab, Subject, fill};
use bench::report::bytes;
use bench::scenario::node::Process;
use bench::scenario::spec::Load;
use bench::scenario::watch::Watch;

/// Four records fill a page.
const VALUE_BYTES: u64 = 960;
const FLASH_BYTES_PER_KEY: u64 = 1024;
const TIMES_RAM: u64 = 10;
const SAVED_WITHIN: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);
/// The kernel counts processor time in ticks.
const TICK: Duration = Duration::from_millis(30);
const READ_BYTES: usize = 1 << 20;
const READERS: usize = 4;
const READ_MAX: u64 = 2 << 30;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let encoding = encoding_rate(lab)?;
    let ram = lab.scaled(300 << 20, 64 << 20);
    let keys = TIMES_RAM * ram / (KEY_BYTES + VALUE_BYTES);
    let memory = ram + keys * FLASH_BYTES_PER_KEY * 10 / 8;
    // No automatic dumps: while one is written, the measured dump would be refused.
    let program = journalled(lab.flintkv().tiered(memory, ram)).directive("save", "");
    let mut subject = lab.start("saved", &program)?;
    lab.populate(&mut subject, &[values(keys)])?;
    lab.note_fill_of(&subject);
    subject.watch = Watch::start(&subject.node);
    let (took, saved) = save(&mut subject)?;
    let fill = subject.watch.fill_max().unwrap_or(f64::NAN);
    lab.note_fill_of(&subject);
    let used = subject.snapshot()?.tiering.context("no flash")?.flash_used;
    let reading = sequential_read_rate(&subject.node.flash_file()?, used.min(READ_MAX))?;
    let rate = saved as f64 / took.as_secs_f64();
    let data = format!("{keys} keys, {} in {:.1} s", bytes(saved), took.as_secs_f64());
    Ok(vec![
        Figure::new(
            "BGSAVE of a dataset ten times RAM",
            "bytes a second ÷ the lesser of the device's sequential reads and what one processor encodes; incompressible values",
            rate / reading.min(encoding),
            Target::AtLeast(0.5),
            format!(
                "{data} ({}/s); the device reads {}/s, a processor encodes {}/s",
                bytes(rate as u64),
                bytes(reading as u64),
                bytes(encoding as u64)
            ),
        ),
        Figure::new(
            "resident size during this BGSAVE",
            "÷ RAM limit",
            fill,
            Target::AtMost(1.10),
            format!("{data}, {} of RAM", bytes(ram)),
        ),
    ])
}

fn values(keys: u64) -> Load {
    let mut load = real(fill(FIRST_KEY, keys));
    load.options.retain(|option| !option.starts_with("--data-size="));
    load.with(format!("--data-size={VALUE_BYTES}"))
}

/// Bytes of a dump for each second of processor time that it takes, all values in RAM.
fn encoding_rate(lab: &mut Lab) -> Result<f64> {
    let mut subject = lab.start("saved from RAM", &lab.flintkv().directive("io-threads", 1))?;
    lab.populate(&mut subject, &[values(lab.scaled(500_000, 200_000))])?;
    let process = subject.node.process.context("the server's process is not of this machine")?;
    let spent = |process: Process| {
        std::thread::sleep(TICK);
        process.processor_seconds().context("no processor time in /proc")
    };
    let before = spent(process)?;
    let (_, saved) = save(&mut subject)?;
    Ok(saved as f64 / (spent(process)? - before))
}

/// How long a dump takes, and its bytes.
fn save(subject: &mut Subject) -> Result<(Duration, u64)> {
    let tried = Instant::now();
    let begun = loop {
        // A dump cannot begin while a checkpoint is being written.
        wait_for_checkpoint(subject)?;
        let begun = Instant::now();
        match subject.node.client().call(&["BGSAVE"]) {
            Ok(_) => break begun,
            Err(error) if tried.elapsed() > SAVED_WITHIN => return Err(error),
            Err(_) => {}
        }
    };
    loop {
        let info = persistence(subject.node.client())?;
        if info.text("rdb_bgsave_in_progress") == Some("0") {
            ensure!(info.text("rdb_last_bgsave_status") == Some("ok"), "{}: the dump failed", subject.name);
            break;
        }
        ensure!(begun.elapsed() < SAVED_WITHIN, "{}: the dump takes longer than {SAVED_WITHIN:?}", subject.name);
        std::thread::sleep(POLL);
    }
    let took = begun.elapsed();
    Ok((took, fs::metadata(subject.node.directory()?.join("dump.rdb")).context("no dump")?.len()))
}

/// Reads the first `bytes` of a file past the page cache, several chunks at a time.
fn sequential_read_rate(path: &Path, bytes: u64) -> Result<f64> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.with_context(|| format!("{} cannot be read directly", path.display()))?;
    let chunks = bytes.min(file.metadata()?.len()) / READ_BYTES as u64;
    ensure!(chunks > 0, "{} is too small", path.display());
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let read = || -> Result<()> {
            let mut buf = PageBuf::new(READ_BYTES / PAGE_BYTES);
            loop {
                let chunk = next.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    return Ok(());
                }
                file.read_exact_at(&mut buf, chunk * READ_BYTES as u64)?;
            }
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader has not panicked"))
    })?;
    Ok((chunks * READ_BYTES as u64) as f64 / begun.elapsed().as_secs_f64())
}
