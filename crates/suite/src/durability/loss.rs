//! Measures how many acknowledged writes are lost when a node is killed under load, while it writes a checkpoint. Never
//! knows the server's code.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::kept::{BATCH, differing, persistence, program, values, without_checkpoints};
use crate::endurance::real;
use crate::figure::{Figure, Target};
use crate::lab::{FIRST_KEY, Lab, VALUE_BYTES, fill};
use bench::report::grouped;
use bench::scenario::wire::{Client, Endpoint};

const WRITERS: u64 = 8;
/// The time from the beginning of a checkpoint to the kill.
const INTO_THE_CHECKPOINT: Duration = Duration::from_millis(50);

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(500_000, 200_000);
    let program = without_checkpoints(program(lab, keys));
    let mut subject = lab.start("killed under load", &program)?;
    lab.populate(&mut subject, &[real(fill(FIRST_KEY, keys))])?;
    let (mut acknowledged, mut lost, mut in_checkpoints) = (0, 0, 0);
    for round in 0..lab.repetitions {
        let endpoint = &subject.node.endpoint.clone();
        let counts = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let begin = |writer| scope.spawn(move || write(endpoint, round, writer));
            let writers: Vec<_> = (0..WRITERS).map(begin).collect();
            std::thread::sleep(lab.shot);
            let begun = subject.node.client().call(&["BGREWRITEAOF"]);
            std::thread::sleep(INTO_THE_CHECKPOINT);
            let info = persistence(subject.node.client());
            // Also after an error: the writers end only when the server is gone.
            subject.node.kill()?;
            begun?;
            in_checkpoints += usize::from(info?.text("aof_rewrite_in_progress") == Some("1"));
            Ok(writers.into_iter().map(|writer| writer.join().expect("a writer has not panicked")).collect())
        })?;
        subject.restart(&program)?;
        let losses = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let begin = |(writer, count)| scope.spawn(move || lost_of(endpoint, round, writer, count));
            let checks: Vec<_> = (0..WRITERS).zip(counts.iter().copied()).map(begin).collect();
            checks.into_iter().map(|check| check.join().expect("a check has not panicked")).collect()
        })?;
        acknowledged += counts.iter().sum::<u64>();
        lost += losses.iter().sum::<u64>();
    }
    ensure!(acknowledged > 0, "no write was acknowledged");
    lab.note_fill_of(&subject);
    Ok(vec![Figure::new(
        "acknowledged writes that are lost by kill -9",
        "8 connections, each value compared after the restart; 30 % RAM, appendfsync everysec",
        lost as f64,
        Target::AtMost(0.0),
        format!(
            "of {} in {} kills, {in_checkpoints} of them while a checkpoint was written",
            grouped(acknowledged as f64),
            lab.repetitions
        ),
    )])
}

fn key(round: usize, writer: u64, n: u64) -> String {
    format!("acknowledged:{round}:{writer}:{n}")
}

fn value(round: usize, writer: u64, n: u64) -> String {
    let name = key(round, writer, n);
    name.repeat(VALUE_BYTES as usize / name.len() + 1)
}

/// Writes until the server is gone. Returns how many writes it has acknowledged.
fn write(endpoint: &Endpoint, round: usize, writer: u64) -> u64 {
    let Ok(mut client) = Client::connect(endpoint) else { return 0 };
    let is_written = |n: &u64| client.call(&["SET", &key(round, writer, *n), &value(round, writer, *n)]).is_ok();
    (0..).take_while(is_written).count() as u64
}

/// The number of a writer's acknowledged writes that are missing.
fn lost_of(endpoint: &Endpoint, round: usize, writer: u64, count: u64) -> Result<u64> {
    let mut client = Client::connect(endpoint)?;
    let mut lost = 0;
    for from in (0..count).step_by(BATCH) {
        let numbers = from..count.min(from + BATCH as u64);
        let keys: Vec<String> = numbers.clone().map(|n| key(round, writer, n)).collect();
        let wanted: Vec<_> = numbers.map(|n| Some(value(round, writer, n).into_bytes())).collect();
        lost += differing(&wanted, &values(&mut client, &keys)?) as u64;
    }
    Ok(lost)
}
