//! Measures reads when nothing is in RAM, against the device itself, and the RAM of a cold key. Never knows the
//! server's code.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use flash::probe::{random_read_rate, sequential_write_rate};
use flash::{FlashFiles, FlashIo};

use super::figure::{Figure, Target, median};
use super::lab::{FIRST_KEY, KEY_BYTES, Lab, VALUE_BYTES, fill, ranged};
use bench::scenario::spec::Load;

const CONNECTIONS: u32 = 50;
/// The second half of the keys is 100 bytes long, to show that the length costs nothing.
const LONG_PREFIX_BYTES: usize = 92;
const LONG_VALUE_BYTES: u64 = 32;
const PROBE_WRITE_BYTES: usize = 1 << 20;
const PROBE_DEPTH: usize = 4;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let half = lab.scaled(5_000_000, 500_000);
    let raw = half * (KEY_BYTES + VALUE_BYTES) + half * (LONG_PREFIX_BYTES as u64 + 8 + LONG_VALUE_BYTES);
    // RAM for populating; the limit is lowered afterwards.
    let (memory, ram) = (raw * 2, raw / 5);
    let mut subject = lab.start("cold", &lab.flintkv().tiered(memory, ram).directive("io-threads", 2))?;
    let empty = subject.resident_settled()?;
    // Values that do not compress: each GET reads one page.
    let short_keys = fill(FIRST_KEY, half).with(String::from("--data-compressibility=0"));
    lab.populate(&mut subject, &[short_keys, long_keys(half)])?;
    lab.note_fill_of(&subject);
    let left = subject.force_demote()?;
    let resident = subject.resident_settled()?;
    let per_key = resident.saturating_sub(empty) as f64 / (2 * half) as f64;

    let device = Device::new(lab)?;
    let load = ranged(Load::new("uniform GETs", 1, CONNECTIONS, ["--key-pattern=R:R", "--ratio=0:1"]), half)
        .with(String::from("--distinct-client-seed"))
        .with(String::from("--randomize"));
    let (mut ratios, mut gets, mut reads, mut per_get) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lab.repetitions {
        let rate = device.reads_per_s(lab.shot)?;
        eprintln!("   device: {rate:.0} random 4 KiB reads/s at a depth of {CONNECTIONS}");
        let (shot, measured) = lab.shoot(&mut subject, &load)?;
        ratios.push(shot.ops_per_s / rate);
        gets.push(shot.ops_per_s);
        reads.push(rate);
        per_get.extend(measured.flash.and_then(|flash| flash.reads_per_value));
    }
    let left = format!("{:.1} % of the values in RAM", left * 100.0);
    Ok(vec![
        Figure::new(
            "uniform cold GETs",
            "÷ the device's random 4 KiB reads at the same depth, 50 connections, nothing in RAM",
            median(&ratios),
            Target::AtLeast(0.6),
            format!("{:.0} GETs/s against {:.0} reads/s, {left}", median(&gets), median(&reads)),
        ),
        Figure::new(
            "flash reads per cold GET",
            "reads ÷ values that came from flash",
            median(&per_get),
            Target::Exactly(1.0),
            String::from("as the server counts them"),
        ),
        Figure::new(
            "RAM per cold key",
            "growth of the resident size ÷ keys, half of them 16 and half 100 bytes long",
            per_key,
            Target::AtMost(28.0),
            format!("{} keys, {left}", 2 * half),
        )
        .unit(" B"),
    ])
}

fn long_keys(keys: u64) -> Load {
    let options =
        ["--requests=allkeys", "--key-pattern=P:P", "--ratio=1:0", "--pipeline=24", "--data-compressibility=0"];
    Load::new("populate long keys", 1, 20, options)
        .with(format!("--key-prefix={}", "k".repeat(LONG_PREFIX_BYTES)))
        .with(format!("--key-minimum={FIRST_KEY}"))
        .with(format!("--key-maximum={}", FIRST_KEY + keys - 1))
        .with(format!("--data-size={LONG_VALUE_BYTES}"))
}

/// The device under the scratch directory, without a server.
struct Device {
    files: Arc<FlashFiles>,
    bytes: u64,
    /// Dropping it deletes the file.
    _scratch: tempfile::TempDir,
}

impl Device {
    fn new(lab: &Lab) -> Result<Device> {
        let scratch = tempfile::Builder::new().prefix("flintkv-probe-").tempdir_in(lab.base())?;
        let bytes = lab.scaled(3 << 30, 1 << 30);
        fs::create_dir_all(scratch.path())?;
        let files = FlashFiles::open(&[scratch.path().to_owned()], "probe.log", bytes);
        let files = Arc::new(files.context("the device cannot be probed")?);
        sequential_write_rate(&files, FlashIo::Auto, bytes, PROBE_WRITE_BYTES, PROBE_DEPTH)?;
        Ok(Device { files, bytes, _scratch: scratch })
    }

    fn reads_per_s(&self, duration: Duration) -> Result<f64> {
        let rate = random_read_rate(&self.files, FlashIo::Auto, self.bytes, CONNECTIONS as usize, duration)?;
        Ok(rate.reads_per_second)
    }
}
