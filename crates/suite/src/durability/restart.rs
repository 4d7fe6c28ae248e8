//! Measures the time until a killed or stopped node serves its dataset again. Never knows the server's code.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::kept::{Before, journalled, program, sets, write_checkpoint};
use crate::endurance::real;
use crate::figure::{Figure, Target};
use crate::lab::{FIRST_KEY, KEY_BYTES, Lab, Subject, VALUE_BYTES, fill, ranged};
use bench::report::grouped;
use bench::scenario::node::Program;
use bench::scenario::phase::Until;
use bench::scenario::spec::Load;

const HOW: &str = "from the start of the process to the first PING that is not LOADING; flash, 500-byte values";
const CONNECTIONS: u64 = 20;
const PIPELINE: u32 = 24;
/// The default of `recovery-time-target`, and the factor by which a restart may exceed it.
const TARGET_S: f64 = 10.0;
const LATE: f64 = 2.0;

/// A dataset that is restarted, and the goals of the restart.
struct Case {
    keys: u64,
    /// The number of blind SETs after the checkpoint.
    tail: u64,
    killed: Target,
    stopped: Target,
}

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    // The goal holds only for the full number of keys.
    let goal = |lab: &Lab, seconds| if lab.quick { Target::None } else { Target::AtMost(seconds) };
    let keys = lab.scaled(10_000_000, 500_000);
    let case = Case { keys, tail: keys / 5, killed: goal(lab, 3.0), stopped: goal(lab, 1.0) };
    let program = program(lab, keys);
    let mut subject = lab.start("restarted", &program)?;
    lab.populate(&mut subject, &[real(fill(FIRST_KEY, keys))])?;
    let mut figures = blind(lab, &mut subject, &program, &case)?;
    figures.push(cold_changes(lab, &mut subject, &program, keys)?);
    lab.note_fill_of(&subject);
    drop(subject);
    if lab.big {
        figures.extend(big(lab)?);
    }
    Ok(figures)
}

/// A journal tail of SETs, which do not need the old value: after kill -9, and after a clean stop with the same tail.
fn blind(lab: &mut Lab, subject: &mut Subject, program: &Program, case: &Case) -> Result<Vec<Figure>> {
    write_checkpoint(subject)?;
    let load = real(sets(case.keys, PIPELINE)).with(format!("--requests={}", case.tail / CONNECTIONS));
    lab.run(subject, &load, Until::Done)?;
    let tail = |before: &Before, took| {
        format!("{} SETs, {}, {} keys/s", grouped(case.tail as f64), before.shown(), rate(case.keys, took))
    };
    let name = |how_ended: &str| {
        format!("restart after {how_ended}, {} keys, blind SETs in the tail", grouped(case.keys as f64))
    };
    let before = Before::of(subject, case.keys)?;
    subject.node.kill()?;
    let took = subject.restart(program)?;
    before.compare(subject, case.keys)?;
    let killed = figure(&name("kill -9"), took, case.killed, tail(&before, took));

    let before = Before::of(subject, case.keys)?;
    let begun = Instant::now();
    subject.node.stop()?;
    let stop_s = begun.elapsed().as_secs_f64();
    let took = subject.restart(program)?;
    before.compare(subject, case.keys)?;
    let detail = format!("{}; the stop took {stop_s:.1} s", tail(&before, took));
    Ok(vec![killed, figure(&name("a clean stop"), took, case.stopped, detail)])
}

/// A journal tail of commands that need the old value, which is on flash. The node decides itself when a checkpoint is
/// due, so this tests `recovery-time-target`.
fn cold_changes(lab: &mut Lab, subject: &mut Subject, program: &Program, keys: u64) -> Result<Figure> {
    write_checkpoint(subject)?;
    let options = ["--command=SETRANGE __key__ 100 changed", "--command-key-pattern=R", "--distinct-client-seed"];
    let load = Load::new("SETRANGE", 1, CONNECTIONS as u32, options).with(String::from("--randomize"));
    let load = ranged(load, keys).with(format!("--pipeline={PIPELINE}"));
    let run = lab.run(subject, &load, Until::Time(Duration::from_secs(lab.scaled(40, 5))))?;
    let changes = run.stats[0].totals.count;
    let before = Before::of(subject, keys)?;
    subject.node.kill()?;
    let took = subject.restart(program)?;
    before.compare(subject, keys)?;
    Ok(figure(
        "restart after kill -9, changes of cold values in the tail",
        took,
        Target::AtMost(TARGET_S * LATE),
        format!(
            "{} uniform SETRANGEs, {}; the node's estimate was {:.1} s",
            grouped(changes as f64),
            before.shown(),
            before.estimated_s
        ),
    ))
}

/// A hundred million keys, whose values compress: their bytes would not fit the disk of most machines, and a restart does not read
/// them.
fn big(lab: &mut Lab) -> Result<Vec<Figure>> {
    const KEYS: u64 = 100_000_000;
    const RAM: u64 = 8 << 30;
    const FLASH: u64 = 12 << 30;
    const FILES: u64 = 32 << 30;
    /// The number of SETs whose records fill the journal until a checkpoint is due: 64 bytes for each key.
    const TAIL: u64 = 64 * KEYS / (KEY_BYTES + VALUE_BYTES);
    let case = Case { keys: KEYS, tail: TAIL, killed: Target::AtMost(12.0), stopped: Target::AtMost(5.0) };
    let program = journalled(lab.flintkv().tiered(RAM + FLASH, RAM)).directive("flash-limit", FILES);
    let mut subject = lab.start("a hundred million keys", &program)?;
    lab.populate(&mut subject, &[fill(FIRST_KEY, KEYS)])?;
    let figures = blind(lab, &mut subject, &program, &case)?;
    lab.note_fill_of(&subject);
    Ok(figures)
}

fn figure(name: &str, took: Duration, target: Target, detail: String) -> Figure {
    Figure::new(name, HOW, took.as_secs_f64(), target, detail).unit(" s")
}

fn rate(keys: u64, took: Duration) -> String {
    grouped(keys as f64 / took.as_secs_f64().max(1e-3))
}
