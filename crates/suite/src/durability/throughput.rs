//! Measures throughput with a journal compared with the same node without one, also over whole cycles with checkpoints; the
//! RAM of journal and checkpoints; and `appendfsync always` compared with redis-server. All values are in RAM, so that flash
//! reads do not hide the cost of the journal. Never knows the server's code.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::kept::{checkpoints, journalled, persistence, sets, without_checkpoints, write_checkpoint};
use crate::endurance::real;
use crate::figure::{Figure, Target};
use crate::lab::{FIRST_KEY, Lab, Rounds, Shot, Subject, fill, rof_load};
use bench::report::bytes;
use bench::scenario::node::Program;
use bench::scenario::spec::Load;
use bench::scenario::watch::Watch;

/// The limit of both nodes; the size of the journal's ring is a share of it.
const RAM_LIMIT: u64 = 1 << 30;
const ALWAYS_CONNECTIONS: u32 = 200;
const ALWAYS_KEYS: u64 = 100_000;

/// Indices into the subjects.
const NONE: usize = 0;
const KEPT: usize = 1;

const HOW: &str = "appendfsync everysec ÷ appendonly no, all in RAM, two workers, 20 connections";

pub fn between_checkpoints_and_with_them(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(500_000, 200_000);
    let program = lab.flintkv().directive("io-threads", 2).directive("memory-limit", RAM_LIMIT);
    let kept = without_checkpoints(journalled(program.clone()));
    let mut subjects =
        vec![lab.start("no journal", &program.directive("appendonly", "no"))?, lab.start("everysec", &kept)?];
    for subject in &mut subjects {
        lab.populate(subject, &[fill(FIRST_KEY, keys)])?;
    }
    let mixed = |pipeline| rof_load(keys, pipeline, keys as f64 / 10.0);
    let cases = [
        ("SET only, pipeline 24, between checkpoints", sets(keys, 24), 0.85),
        ("SET only, pipeline 24, values that nothing packs, between checkpoints", real(sets(keys, 24)), 0.85),
        ("1:1, pipeline 24, between checkpoints", mixed(24), 0.90),
        ("SET only, unpipelined, between checkpoints", sets(keys, 1), 0.95),
        ("1:1, unpipelined, between checkpoints", mixed(1), 0.95),
    ];
    let mut figures = Vec::new();
    for (name, load, least) in cases {
        let before = checkpoints(&mut subjects[KEPT])?;
        let rounds = lab.rounds(&mut subjects, &load, lab.shot)?;
        ensure!(checkpoints(&mut subjects[KEPT])? == before, "a checkpoint was written although none was asked for");
        figures.push(figure(name, &rounds, least, keys, ""));
        // Otherwise the journal of all loads would stay on the disk.
        write_checkpoint(&mut subjects[KEPT])?;
    }
    figures.extend(cycles(lab, &mut subjects, keys)?);
    Ok(figures)
}

/// The journal grows to the size of the checkpoint, then a new checkpoint is written, and so on.
fn cycles(lab: &mut Lab, subjects: &mut [Subject], keys: u64) -> Result<Vec<Figure>> {
    subjects[KEPT].node.client().call(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "100"])?;
    for subject in subjects.iter_mut() {
        subject.watch = Watch::start(&subject.node);
    }
    let before = checkpoints(&mut subjects[KEPT])?;
    let rounds = lab.rounds(subjects, &sets(keys, 24), Duration::from_secs(lab.scaled(20, 8)))?;
    let written = checkpoints(&mut subjects[KEPT])? - before;
    let checkpoint_bytes: u64 = persistence(subjects[KEPT].node.client())?.number("aof_base_size").unwrap_or(0);
    let of_checkpoints = format!(", {written} checkpoints of {} in {} shots", bytes(checkpoint_bytes), lab.repetitions);
    let resident = [NONE, KEPT].map(|which| subjects[which].watch.resident_max());
    let added = resident[KEPT].saturating_sub(resident[NONE]);
    let ratio =
        figure("SET only, pipeline 24, over whole cycles with checkpoints", &rounds, 0.65, keys, &of_checkpoints);
    Ok(vec![
        // Without enough checkpoints this would be the figure between checkpoints.
        if written >= lab.repetitions as u64 { ratio } else { of_too_few_checkpoints(ratio) },
        Figure::new(
            "RAM of journal and checkpoints",
            "÷ ram-limit: highest resident size − that of the node without a journal, in these cycles",
            added as f64 / RAM_LIMIT as f64,
            Target::AtMost(1.0 / 16.0),
            format!("{} of {}{of_checkpoints}", bytes(added), bytes(RAM_LIMIT)),
        ),
    ])
}

fn of_too_few_checkpoints(figure: Figure) -> Figure {
    Figure::new(&figure.name, &figure.how, f64::NAN, figure.target, format!("{}: too few", figure.detail))
}

fn figure(name: &str, rounds: &Rounds, least: f64, keys: u64, more: &str) -> Figure {
    let rate = |shot: &Shot| shot.ops_per_s;
    let detail = format!(
        "{:.0} against {:.0} ops/s, {keys} keys of 500 bytes{more}",
        rounds.of(KEPT, rate),
        rounds.of(NONE, rate)
    );
    let name = format!("throughput with a journal: {name}");
    Figure::new(&name, HOW, rounds.ratio(KEPT, NONE, rate), Target::AtLeast(least), detail)
}

pub fn always(lab: &mut Lab) -> Result<Vec<Figure>> {
    let redis = Program::redis().directive("appendonly", "yes").directive("appendfsync", "always");
    let kept = without_checkpoints(journalled(lab.flintkv())).directive("appendfsync", "always");
    let mut subjects = vec![
        lab.start("redis-server, always", &redis.directive("auto-aof-rewrite-percentage", 0))?,
        lab.start("always", &kept)?,
    ];
    let load = Load { clients: ALWAYS_CONNECTIONS, ..sets(ALWAYS_KEYS, 1) };
    let rounds = lab.rounds(&mut subjects, &load, lab.shot)?;
    let rate = |shot: &Shot| shot.ops_per_s;
    Ok(vec![Figure::new(
        "throughput with appendfsync always",
        "÷ redis-server's with the same setting; 200 connections, unpipelined SETs of 500 bytes, two workers",
        rounds.ratio(KEPT, NONE, rate),
        Target::AtLeast(1.2),
        format!("{:.0} against {:.0} ops/s", rounds.of(KEPT, rate), rounds.of(NONE, rate)),
    )])
}
