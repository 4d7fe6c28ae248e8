//! Measures what flash costs a load that fits mostly in RAM: the published one, at 200 bytes of RAM for each key of 500 bytes, against the same
//! server with all in RAM, redis-server, and the device alone. Never knows the server's code.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::figure::{Figure, Target, median};
use super::lab::{FIRST_KEY, Lab, Rounds, Shot, Subject, fill, ranged, rof_load};
use bench::report::percent;
use bench::scenario::node::Program;
use bench::scenario::phase::Until;
use bench::scenario::spec::Load;

/// The fastest first, because the content of RAM then follows the load sooner.
const PIPELINES: [u32; 3] = [24, 11, 1];
/// The published standard deviation, and the part of the keys that the published pass of GETs reads.
const STDDEV_SHARE: f64 = 10.25 / 150.0;
const CENTRE: (f64, f64) = (0.365, 0.635);
const WARM_UP_MAX: Duration = Duration::from_secs(60);
/// As many reads at once as fio has.
const DEPTH: u32 = 64;
const NO_COMPRESSION: &str = "--data-compressibility=0";

/// Indices into the subjects.
const REDIS: usize = 0;
const RAM: usize = 1;
const FLASH: usize = 2;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(8_000_000, 1_000_000);
    let stddev = keys as f64 * STDDEV_SHARE;
    let device = Device::new(lab)?;
    let mut subjects = vec![
        lab.start("redis-server", &Program::redis())?,
        lab.start("all in RAM", &lab.flintkv().directive("io-threads", 2))?,
        lab.start_tiered("with flash", keys)?,
    ];
    for subject in &mut subjects {
        lab.populate(subject, &[fill(FIRST_KEY, keys)])?;
    }
    let mut figures = vec![centralised(lab, &mut subjects[FLASH], keys)?];
    for pipeline in PIPELINES {
        let load = rof_load(keys, pipeline, stddev);
        lab.run(&mut subjects[FLASH], &load, Until::Stable(WARM_UP_MAX))?;
        let (rounds, reads) = rounds(lab, &mut subjects, &load, &device)?;
        figures.extend(of_pipeline(pipeline, &rounds, &reads));
    }

    // The same keys with values that do not compress. redis-server does not compress, so it is not measured again.
    subjects.remove(REDIS);
    for subject in &mut subjects {
        lab.populate(subject, &[fill(FIRST_KEY, keys).with(String::from(NO_COMPRESSION))])?;
    }
    let load = rof_load(keys, 24, stddev).with(String::from(NO_COMPRESSION));
    lab.run(&mut subjects[1], &load, Until::Stable(WARM_UP_MAX))?;
    let (rounds, reads) = rounds(lab, &mut subjects, &load, &device)?;
    figures.extend(incompressible(&rounds, &reads));
    lab.note_fill_of(&subjects[1]);
    subjects.remove(0);
    figures.push(cold_reads(lab, &mut subjects[0], keys, &device)?);
    Ok(figures)
}

/// After the published pass of GETs over the middle keys, all of them fit into RAM. A second pass tells how many are there.
fn centralised(lab: &mut Lab, subject: &mut Subject, keys: u64) -> Result<Figure> {
    let [first, last] = [CENTRE.0, CENTRE.1].map(|share| FIRST_KEY + (keys as f64 * share) as u64);
    let options = ["--requests=allkeys", "--key-pattern=P:P", "--ratio=0:1", "--pipeline=24"];
    let pass = Load::new("GETs of the middle keys", 1, 20, options)
        .with(format!("--key-minimum={first}"))
        .with(format!("--key-maximum={last}"));
    lab.run(subject, &pass, Until::Done)?;
    let (again, _) = lab.shoot_until(subject, &pass, Until::Done)?;
    Ok(Figure::new(
        "values that a pass of GETs leaves in RAM",
        "RAM hits of a second pass over the middle 27 % of the keys, right after populating and a first pass",
        again.hit_ratio,
        Target::AtLeast(0.95),
        format!("{} keys read", last - first + 1),
    ))
}

/// Rounds of shots of all subjects, and what fio reads before each.
fn rounds(lab: &mut Lab, subjects: &mut [Subject], load: &Load, device: &Device) -> Result<(Rounds, Vec<Reads>)> {
    let (mut rounds, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..lab.repetitions {
        reads.push(device.reads(lab.shot)?);
        rounds.extend(lab.rounds_of(subjects, load, lab.shot, rounds.len()..rounds.len() + 1)?.0);
    }
    Ok((Rounds(rounds), reads))
}

/// The throughput that is left if a command costs what it costs with all in RAM, and each read of flash what it costs fio. `processors`
/// share the work.
fn bound(all_in_ram: &Shot, with_flash: &Shot, reads: &Reads, processors: f64) -> f64 {
    let read_s = with_flash.reads_per_command * reads.processor_us / 1e6;
    1.0 / (1.0 / all_in_ram.ops_per_s + read_s / processors)
}

fn of_bound(rounds: &Rounds, reads: &[Reads], ram: usize, flash: usize) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let near = rounds
        .0
        .iter()
        .zip(reads)
        .map(|(round, reads)| round[flash].ops_per_s / bound(&round[ram], &round[flash], reads, processors));
    median(&near.collect::<Vec<_>>())
}

fn rate(shot: &Shot) -> f64 {
    shot.ops_per_s
}

/// What the share of commands that read flash, and fio's reads, are.
fn with_reads(rounds: &Rounds, reads: &[Reads], flash: usize) -> String {
    format!(
        "{} RAM hits, {:.1} reads per 100 commands; fio: {:.0} reads/s at {:.1} µs of processor",
        percent(rounds.of(flash, |shot| shot.hit_ratio)),
        rounds.of(flash, |shot| shot.reads_per_command) * 100.0,
        median(&reads.iter().map(|reads| reads.per_s).collect::<Vec<_>>()),
        median(&reads.iter().map(|reads| reads.processor_us).collect::<Vec<_>>()),
    )
}

fn of_pipeline(pipeline: u32, rounds: &Rounds, reads: &[Reads]) -> Vec<Figure> {
    // At pipelines of 1, of 11, and of 24.
    let limit = |targets: [f64; 3]| Target::AtLeast(targets[usize::from(pipeline > 1) + usize::from(pipeline > 11)]);
    let against = |other| format!("{:.0} against {:.0} ops/s", rounds.of(FLASH, rate), rounds.of(other, rate));
    vec![
        Figure::new(
            &format!("the published load with flash, pipeline {pipeline}"),
            "÷ the same server with all in RAM; 200 bytes of RAM a key",
            rounds.ratio(FLASH, RAM, rate),
            limit([0.95, 0.85, 0.85]),
            format!("{}, {}", against(RAM), percent(rounds.of(FLASH, |shot| shot.hit_ratio)) + " RAM hits"),
        ),
        Figure::new(
            &format!("the published load with flash against redis-server, pipeline {pipeline}"),
            "÷ redis-server with all in RAM",
            rounds.ratio(FLASH, REDIS, rate),
            limit([0.92, 1.65, 1.4]),
            against(REDIS),
        ),
        Figure::new(
            &format!("the published load with flash against its bound, pipeline {pipeline}"),
            "÷ what is left if a command costs as in RAM, and each read as fio's",
            of_bound(rounds, reads, RAM, FLASH),
            Target::AtLeast(0.85),
            with_reads(rounds, reads, FLASH),
        ),
    ]
}

/// Here the first subject has all in RAM, the second flash.
fn incompressible(rounds: &Rounds, reads: &[Reads]) -> Vec<Figure> {
    vec![
        Figure::new(
            "values that do not compress, pipeline 24",
            "÷ the same server with all in RAM",
            rounds.ratio(1, 0, rate),
            Target::AtLeast(0.75),
            format!("{:.0} against {:.0} ops/s", rounds.of(1, rate), rounds.of(0, rate)),
        ),
        Figure::new(
            "values that do not compress against their bound, pipeline 24",
            "÷ what is left if a command costs as in RAM, and each read as fio's",
            of_bound(rounds, reads, 0, 1),
            Target::AtLeast(0.85),
            with_reads(rounds, reads, 1),
        ),
        Figure::new(
            "flash written per byte that clients write",
            "the published load, values that do not compress, pipeline 24",
            rounds.of(1, |shot| shot.written_per_user_byte),
            Target::AtMost(0.5),
            String::from("as the server counts them"),
        ),
    ]
}

fn cold_reads(lab: &mut Lab, subject: &mut Subject, keys: u64, device: &Device) -> Result<Figure> {
    let left = subject.force_demote()?;
    let load = ranged(Load::new("uniform GETs", 1, DEPTH, ["--key-pattern=R:R", "--ratio=0:1"]), keys)
        .with(String::from("--distinct-client-seed"))
        .with(String::from("--randomize"));
    let (mut ratios, mut gets, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lab.repetitions {
        let fio = device.reads(lab.shot)?;
        let (shot, _) = lab.shoot(subject, &load)?;
        ratios.push(shot.ops_per_s / fio.per_s);
        gets.push(shot.ops_per_s);
        reads.push(fio.per_s);
    }
    let left = format!("{:.1} % of the values in RAM", left * 100.0);
    Ok(Figure::new(
        "uniform cold GETs against fio",
        "÷ fio's random 4 KiB reads: io_uring, fixed buffers, depth 64; 64 connections, values that do not compress",
        median(&ratios),
        Target::AtLeast(0.85),
        format!("{:.0} GETs/s against {:.0} reads/s, {left}", median(&gets), median(&reads)),
    ))
}

/// The device under the scratch directory, read by fio.
struct Device {
    bytes: u64,
    scratch: tempfile::TempDir,
}

/// What fio has measured.
#[derive(Clone, Copy, Debug)]
struct Reads {
    per_s: f64,
    /// Of fio and the kernel for it, for each read.
    processor_us: f64,
}

impl Device {
    fn new(lab: &Lab) -> Result<Device> {
        let scratch = tempfile::Builder::new().prefix("flintkv-fio-").tempdir_in(lab.base())?;
        let device = Device { bytes: lab.scaled(4 << 30, 1 << 30), scratch };
        // Reads of a file that was never written do not reach the device.
        device.fio(&["--rw=write", "--bs=1m", "--iodepth=4"])?;
        Ok(device)
    }

    fn reads(&self, time: Duration) -> Result<Reads> {
        let time = format!("--runtime={}", time.as_secs().max(1));
        let report = self.fio(&[
            "--rw=randread",
            "--bs=4k",
            &format!("--iodepth={DEPTH}"),
            "--fixedbufs",
            "--time_based",
            "--norandommap",
            &time,
        ])?;
        let reads = Reads::of(&report)?;
        eprintln!("   fio: {:.0} random 4 KiB reads/s, {:.1} µs of processor each", reads.per_s, reads.processor_us);
        Ok(reads)
    }

    fn fio(&self, options: &[&str]) -> Result<serde_json::Value> {
        let mut fio = Command::new("fio");
        fio.args(["--name=probe", "--direct=1", "--ioengine=io_uring", "--output-format=json"]);
        fio.arg(format!("--filename={}", self.scratch.path().join("probe").display()));
        fio.arg(format!("--size={}", self.bytes)).args(options);
        let output = fio.output().context("cannot run fio: apt-get install fio")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fio ended with {}: {}", output.status, error.trim());
        serde_json::from_slice(&output.stdout).context("fio's report is not JSON")
    }
}

impl Reads {
    fn of(report: &serde_json::Value) -> Result<Reads> {
        let job = &report["jobs"][0];
        let number =
            |value: &serde_json::Value, what| value.as_f64().with_context(|| format!("fio does not say {what}"));
        let per_s = number(&job["read"]["iops"], "jobs[0].read.iops")?;
        ensure!(per_s > 0.0, "fio read nothing");
        let percent = number(&job["usr_cpu"], "jobs[0].usr_cpu")? + number(&job["sys_cpu"], "jobs[0].sys_cpu")?;
        Ok(Reads { per_s, processor_us: percent / 100.0 * 1e6 / per_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fio_is_understood() {
        let report = json!({ "jobs": [{ "read": { "iops": 80_000.0 }, "usr_cpu": 20.0, "sys_cpu": 60.0 }] });
        let reads = Reads::of(&report).unwrap();
        assert_eq!((reads.per_s, reads.processor_us.round()), (80_000.0, 10.0));
        let error = Reads::of(&json!({ "jobs": [] })).unwrap_err().to_string();
        assert_eq!(error, "fio does not say jobs[0].read.iops");
    }

    #[test]
    fn the_bound_adds_the_reads_of_the_device() {
        let shot = |ops_per_s, reads_per_command| Shot { ops_per_s, reads_per_command, ..Shot::default() };
        let reads = Reads { per_s: 100_000.0, processor_us: 10.0 };
        // 5 µs a command in RAM; a read in ten commands, of 10 µs, on two processors: 0.5 µs.
        let bound = bound(&shot(200_000.0, f64::NAN), &shot(100_000.0, 0.1), &reads, 2.0);
        assert!((bound - 1e6 / 5.5).abs() < 1.0, "{bound}");
    }
}
