//! Measures the latency that clients see while a checkpoint is written: of commands under a steady load, and of a PING each
//! millisecond. Never knows the server's code.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::kept::{checkpoints, program, wait_for_checkpoint, without_checkpoints, write_checkpoint};
use crate::endurance::real;
use crate::figure::{Figure, Target, median};
use crate::lab::{Lab, Subject, populate_loads, rof_load};
use bench::scenario::phase::Until;
use bench::scenario::spec::Load;
use bench::scenario::wire::{Client, Endpoint};

const PROBE_EVERY: Duration = Duration::from_millis(1);
/// The pause between two attempts to begin a checkpoint.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(5);
/// The load, as a share of the highest unpipelined rate. Some processor time must be left for the checkpoint.
const SHARE: f64 = 0.5;

/// The standard deviation of rof's keys around the middle, as a share of all keys.
const STDDEV_SHARE: f64 = 10.25 / 150.0;
const WARM_UP: Duration = Duration::from_secs(12);

struct Look {
    p999_ms: f64,
    longest_ping_ms: f64,
    checkpoints: u64,
}

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(1_000_000, 300_000);
    let mut subject = lab.start("checkpoints under load", &without_checkpoints(program(lab, keys)))?;
    let populate: Vec<Load> = populate_loads(keys).into_iter().map(real).collect();
    lab.populate(&mut subject, &populate)?;
    let load = |pipeline| real(rof_load(keys, pipeline, keys as f64 * STDDEV_SHARE));
    // Run the load until RAM has the values that it reads. With a pipeline this takes less time.
    lab.run(&mut subject, &load(24), Until::Stable(WARM_UP))?;
    let load = load(1);
    let rate = lab.shoot(&mut subject, &load)?.0.ops_per_s * SHARE;
    let load = load.with(format!("--rate={rate:.0}"));
    let mut rounds: Vec<[Look; 2]> = Vec::new();
    for round in 0..lab.repetitions {
        // The order is reversed in every other round, so that a drift of the machine's speed affects both sides
        // equally.
        let mut of = |writes_checkpoints| look(lab, &mut subject, &load, writes_checkpoints);
        rounds.push(match round % 2 {
            0 => [of(false)?, of(true)?],
            _ => {
                let busy = of(true)?;
                [of(false)?, busy]
            }
        });
    }
    lab.note_fill_of(&subject);
    let each = |value: &dyn Fn(&[Look; 2]) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
    let written: u64 = rounds.iter().map(|[_, busy]| busy.checkpoints).sum();
    // Checkpoints that the node wrote by itself.
    let without: u64 = rounds.iter().map(|[calm, _]| calm.checkpoints).sum();
    let seconds = lab.shot.as_secs() * lab.repetitions as u64;
    let how = format!(
        "{keys} keys, 30 % RAM, {rate:.0} ops/s 1:1 around the middle, {written} against {without} checkpoints in {seconds} s"
    );
    Ok(vec![
        Figure::new(
            "p99.9 of commands while checkpoints are written",
            "÷ without; half of the highest unpipelined rate, one checkpoint after the other",
            each(&|[calm, busy]| busy.p999_ms / calm.p999_ms),
            Target::AtMost(1.5),
            format!("{:.2} against {:.2} ms, {how}", each(&|[_, busy]| busy.p999_ms), each(&|[calm, _]| calm.p999_ms)),
        ),
        Figure::new(
            "longest PING while checkpoints are written",
            "− the paired run's without; one each millisecond beside the same load",
            each(&|[calm, busy]| busy.longest_ping_ms - calm.longest_ping_ms),
            Target::AtMost(10.0),
            format!(
                "{:.1} against {:.1} ms, {written} against {without} checkpoints",
                each(&|[_, busy]| busy.longest_ping_ms),
                each(&|[calm, _]| calm.longest_ping_ms)
            ),
        )
        .unit(" ms"),
    ])
}

fn look(lab: &mut Lab, subject: &mut Subject, load: &Load, writes_checkpoints: bool) -> Result<Look> {
    // Otherwise emptied segments of flash would soon cause a checkpoint, even in a run without checkpoints.
    write_checkpoint(subject)?;
    let endpoint = subject.node.endpoint.clone();
    let before = checkpoints(subject)?;
    let is_over = AtomicBool::new(false);
    let (shot, longest_ping_ms) = std::thread::scope(|scope| -> Result<_> {
        let prober = scope.spawn(|| longest_ping_ms(&endpoint, &is_over));
        let writer = writes_checkpoints.then(|| scope.spawn(|| write_checkpoints(&endpoint, &is_over)));
        let shot = lab.shoot(subject, load);
        is_over.store(true, Ordering::Relaxed);
        let longest = prober.join().expect("the prober has not panicked")?;
        writer.map_or(Ok(()), |writer| writer.join().expect("the writer has not panicked"))?;
        Ok((shot?.0, longest))
    })?;
    wait_for_checkpoint(subject)?;
    let checkpoints = checkpoints(subject)? - before;
    ensure!(checkpoints > 0 || !writes_checkpoints, "no checkpoint was written");
    Ok(Look { p999_ms: shot.latency_ms_p999, longest_ping_ms, checkpoints })
}

/// One checkpoint after the other.
fn write_checkpoints(endpoint: &Endpoint, is_over: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    while !is_over.load(Ordering::Relaxed) {
        // The command is refused while a checkpoint is being written.
        let _ = client.call(&["BGREWRITEAOF"]);
        std::thread::sleep(CHECKPOINT_EVERY);
    }
    Ok(())
}

fn longest_ping_ms(endpoint: &Endpoint, is_over: &AtomicBool) -> Result<f64> {
    let mut client = Client::connect(endpoint)?;
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.call(&["PING"])?;
        longest = longest.max(begun.elapsed());
        std::thread::sleep(PROBE_EVERY);
    }
    Ok(longest.as_secs_f64() * 1000.0)
}
