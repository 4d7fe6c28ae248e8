//! Measures processor time and throughput all in RAM and with flash, and resident bytes per hot key, always alternating
//! with redis-server in the same run. Never knows the server's code.

use anyhow::Result;

use super::figure::{Figure, Target, median};
use super::lab::{KEY_BYTES, Lab, Rounds, Shot, Subject, VALUE_BYTES, populate_loads, rof_load};
use bench::report::percent;
use bench::scenario::node::Program;

/// The fastest first, because the content of RAM then follows the load sooner.
const PIPELINES: [u32; 3] = [24, 11, 1];
const HIT_RATIO: f64 = 0.85;

/// Indices into the subjects.
const REDIS: usize = 0;
const ONE: usize = 1;
const TWO: usize = 2;
const FLASH: usize = 3;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(1_000_000, 500_000);
    let mut subjects = vec![
        lab.start("redis-server", &Program::redis())?,
        lab.start("one worker", &lab.flintkv().directive("io-threads", 1))?,
        lab.start("two workers", &lab.flintkv().directive("io-threads", 2))?,
        lab.start_tiered("rof, 30 % RAM", keys)?,
    ];
    let mut figures = Vec::new();
    let per_key = populate(lab, &mut subjects, keys)?;
    figures.push(Figure::new(
        "resident bytes per hot key",
        "÷ redis-server's; 16-byte key, 500-byte value",
        per_key[TWO] / per_key[REDIS],
        Target::AtMost(0.92),
        format!("{:.0} against {:.0} bytes, {keys} keys", per_key[TWO], per_key[REDIS]),
    ));
    let mut found = None;
    for pipeline in PIPELINES {
        let stddev = lab.calibrate(&mut subjects[FLASH], keys, pipeline, found, HIT_RATIO)?;
        found = Some(stddev);
        let rounds = lab.rounds(&mut subjects, &rof_load(keys, pipeline, stddev), lab.shot)?;
        figures.extend(of_pipeline(pipeline, &rounds));
    }
    subjects.iter().for_each(|subject| lab.note_fill_of(subject));
    figures.reverse();
    figures.sort_by_key(|figure| order(&figure.name));
    Ok(figures)
}

/// For each subject, the growth of the resident size per key.
fn populate(lab: &mut Lab, subjects: &mut [Subject], keys: u64) -> Result<Vec<f64>> {
    let mut per_key = Vec::new();
    for subject in subjects {
        let before = subject.resident_settled()?;
        lab.populate(subject, &populate_loads(keys))?;
        per_key.push(subject.resident_settled()?.saturating_sub(before) as f64 / keys as f64);
        let (name, raw) = (&subject.name, KEY_BYTES + VALUE_BYTES);
        eprintln!("   {name}: {:.0} resident bytes per key of {raw} bytes", per_key[per_key.len() - 1]);
    }
    Ok(per_key)
}

fn of_pipeline(pipeline: u32, rounds: &Rounds) -> Vec<Figure> {
    let of = |subject: usize, value: fn(&Shot) -> f64| rounds.of(subject, value);
    let ratio = |above: usize, below: usize, value: fn(&Shot) -> f64| rounds.ratio(above, below, value);
    let (cpu, rate, latency) =
        (|shot: &Shot| shot.processor_us, |shot: &Shot| shot.ops_per_s, |shot: &Shot| shot.latency_ms_avg);
    let against_cpu = |subject| format!("{:.2} against {:.2} µs", of(subject, cpu), of(REDIS, cpu));
    let against_rate = |above, below| format!("{:.0} against {:.0} ops/s", of(above, rate), of(below, rate));
    let hits = percent(of(FLASH, |shot| shot.hit_ratio));
    let single = pipeline == 1;
    // At pipelines of 1, of 11, and of 24.
    let limit = |targets: [f64; 3]| targets[usize::from(pipeline > 1) + usize::from(pipeline > 11)];
    let mut figures = vec![
        Figure::new(
            &format!("processor time per command, one worker, pipeline {pipeline}"),
            "÷ redis-server's, all in RAM, 1:1, 20 connections",
            ratio(ONE, REDIS, cpu),
            Target::AtMost(limit([0.90, 0.45, 0.45])),
            against_cpu(ONE),
        ),
        Figure::new(
            &format!("processor time per command, two workers, pipeline {pipeline}"),
            "÷ redis-server's, all in RAM, 1:1, 20 connections",
            ratio(TWO, REDIS, cpu),
            Target::AtMost(limit([1.10, 0.60, 0.60])),
            against_cpu(TWO),
        ),
        Figure::new(
            &format!("throughput all in RAM, pipeline {pipeline}"),
            "÷ redis-server's, two workers",
            ratio(TWO, REDIS, rate),
            Target::AtLeast(limit([1.1, 1.8, 1.8])),
            against_rate(TWO, REDIS),
        ),
        Figure::new(
            &format!("throughput with flash, pipeline {pipeline}"),
            "÷ the same server with all in RAM; 30 % RAM, rof",
            ratio(FLASH, TWO, rate),
            Target::AtLeast(limit([0.95, 0.80, 0.75])),
            format!("{}, {hits} RAM hits", against_rate(FLASH, TWO)),
        ),
    ];
    if single {
        let added =
            median(&rounds.0.iter().map(|round| latency(&round[FLASH]) - latency(&round[TWO])).collect::<Vec<_>>());
        figures.push(
            Figure::new(
                "added latency with flash, pipeline 1",
                "average − that of the same server with all in RAM",
                added,
                Target::AtMost(0.2),
                format!("{:.3} against {:.3} ms, {hits} RAM hits", of(FLASH, latency), of(TWO, latency)),
            )
            .unit(" ms"),
        );
    }
    figures.push(Figure::new(
        &format!("throughput with flash against redis-server, pipeline {pipeline}"),
        "÷ redis-server's with all in RAM",
        ratio(FLASH, REDIS, rate),
        Target::AtLeast(limit([1.0, 1.6, 1.8])),
        format!("{}, {hits} RAM hits", against_rate(FLASH, REDIS)),
    ));
    figures
}

/// Figures of one kind are listed together, whatever the pipeline.
fn order(name: &str) -> usize {
    let kinds = [
        "processor time per command, one",
        "processor time per command, two",
        "throughput all in RAM",
        "throughput with flash, ",
        "added latency",
        "throughput with flash against",
        "resident bytes",
    ];
    kinds.iter().position(|kind| name.starts_with(kind)).unwrap_or(kinds.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    fn shot(ops_per_s: f64, processor_us: f64, latency_ms_avg: f64) -> Shot {
        Shot { ops_per_s, processor_us, latency_ms_avg, hit_ratio: 0.85, ..Shot::default() }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine is half as fast in the second round. No ratio changes.
        let round = |slow: f64| {
            [(100.0, 8.0, 0.2), (120.0, 6.0, 0.18), (110.0, 8.0, 0.19), (99.0, 9.0, 0.22)]
                .map(|(rate, cpu, latency)| shot(rate / slow, cpu * slow, latency))
                .to_vec()
        };
        let figures = of_pipeline(1, &Rounds(vec![round(1.0), round(2.0)]));
        let shown: Vec<String> =
            figures.iter().map(|figure| format!("{:.3} {:?}", figure.measured, figure.verdict)).collect();
        assert_eq!(shown, ["0.750 Pass", "1.000 Pass", "1.100 Pass", "0.900 Missed", "0.030 Pass", "0.990 Missed"]);
        let batched = of_pipeline(24, &Rounds(vec![round(1.0)]));
        assert_eq!(batched[0].verdict, Verdict::Missed);
        assert_eq!(batched.last().map(|figure| figure.measured), Some(0.99));
    }
}
