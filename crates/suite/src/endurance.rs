//! Measures how many bytes reach flash for each byte that clients write when four fifths of flash hold live data. Never
//! knows the server's code.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::figure::{Figure, Target};
use super::lab::{FIRST_KEY, KEY_BYTES, Lab, Subject, VALUE_BYTES, fill, rof_load};
use bench::report::{bytes, percent};
use bench::scenario::info::Tiering;
use bench::scenario::node::Process;
use bench::scenario::phase::Until;
use bench::scenario::spec::Load;

pub const UTILISATION: f64 = 0.80;
/// The flash space of a record of 516 incompressible bytes, with its share of the page's overhead.
pub const FLASH_BYTES_PER_KEY: u64 = 4096 / 7;
/// Filler keys come in steps of this share of the keys.
const STEP_SHARE: u64 = 40;
const PIPELINE: u32 = 24;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(800_000, 400_000);
    let flash = (keys * FLASH_BYTES_PER_KEY) as f64 / 0.85;
    let ram = flash * 0.3 / 0.7;
    let program = lab.flintkv().tiered((flash + ram) as u64, ram as u64).directive("io-threads", 2);
    // The data must not compress, because the figure is about bytes that reach the device.
    let mut subject = lab.start("80 % of flash", &program.directive("flash-compression", "none"))?;
    lab.populate(&mut subject, &[real(fill(FIRST_KEY, keys))])?;
    let load = real(rof_load(keys, PIPELINE, keys as f64 * 10.25 / 150.0));
    warm_up(lab, &mut subject, &load, keys)?;
    let before = tiering(&mut subject)?;
    let device_before = subject.node.process.and_then(Process::device_write_bytes);
    let run = lab.run(&mut subject, &load, Until::Time(Duration::from_secs(lab.scaled(40, 12))))?;
    let after = tiering(&mut subject)?;
    let device_after = subject.node.process.and_then(Process::device_write_bytes);
    let sets = run.stats[0].rows.iter().find(|row| row.name == "SET").map_or(0, |row| row.count);
    let user = (sets * (KEY_BYTES + VALUE_BYTES)) as f64;
    let written = (after.write_bytes - before.write_bytes) as f64;
    let kernel = device_after.zip(device_before).map(|(after, before)| (after - before) as f64);
    let errors = run.stats[0].totals.errors;
    lab.note_fill_of(&subject);
    Ok(vec![Figure::new(
        "flash bytes written per user byte",
        "rof load, 80 % of flash holds live data, values that do not compress",
        written / user,
        Target::AtMost(2.0),
        format!(
            "{} against {} in SETs{}, {} of flash live, {errors} errors",
            bytes(written as u64),
            bytes(user as u64),
            kernel.map_or(String::new(), |kernel| format!(" ({} by the kernel's count)", bytes(kernel as u64))),
            percent(utilisation(&after)),
        ),
    )])
}

/// Runs the load, and adds keys that it never touches, until [`UTILISATION`] of flash is live and all of flash has been
/// written once. Before that, collection costs nothing.
pub fn warm_up(lab: &mut Lab, subject: &mut Subject, load: &Load, keys: u64) -> Result<()> {
    let warm_up = Instant::now() + Duration::from_secs(lab.scaled(60, 20));
    let mut next_key = FIRST_KEY + keys;
    loop {
        lab.run(subject, load, Until::Time(Duration::from_secs(4)))?;
        let tiering = tiering(subject)?;
        let used = utilisation(&tiering);
        let written_over = tiering.write_bytes as f64 >= 2.0 * tiering.flash_limit as f64;
        eprintln!(
            "   {} of flash live, {} written to {}",
            percent(used),
            bytes(tiering.write_bytes),
            bytes(tiering.flash_limit)
        );
        if used >= UTILISATION && (written_over || Instant::now() > warm_up) {
            return Ok(());
        }
        if Instant::now() > warm_up + Duration::from_secs(60) {
            return Ok(());
        }
        if used < UTILISATION {
            let missing = ((UTILISATION - used) * tiering.flash_live_limit as f64) as u64 / FLASH_BYTES_PER_KEY;
            let step = missing.clamp(100, keys / STEP_SHARE * 4);
            lab.populate(subject, &[real(fill(next_key, step))])?;
            next_key += step;
        }
    }
}

/// The same load with incompressible values.
pub fn real(load: Load) -> Load {
    load.with(String::from("--data-compressibility=0"))
}

pub fn tiering(subject: &mut Subject) -> Result<Tiering> {
    subject.snapshot()?.tiering.context("no flash")
}

pub fn utilisation(tiering: &Tiering) -> f64 {
    tiering.flash_live as f64 / tiering.flash_live_limit.max(1) as f64
}
