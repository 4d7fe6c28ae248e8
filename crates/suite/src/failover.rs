//! Measures for how long clients of a shard with a replica get no write acknowledged when its primary is lost, and how long a primary that is cut
//! off goes on to answer. The cluster and its client are of tests/failover-runs, in network namespaces on this machine.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::figure::{Figure, Target, median};
use super::lab::Lab;
use bench::report::bytes;

/// What the program says when it has no right to make namespaces.
const SKIPPED: i32 = 3;
/// In the database, so that a process has less than 1 GB.
const FILLED_MB: u64 = 300;

#[derive(Deserialize)]
struct Measured {
    process_killed: Vec<f64>,
    node_lost: Vec<f64>,
    node_lost_with_etcd_leader: Vec<f64>,
    isolated_primary_answers: Vec<f64>,
    resident_bytes: u64,
}

/// `FAILOVER_RUNS` is the program, `FAILOVERS` how often each fault is repeated.
pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let program =
        std::env::var_os("FAILOVER_RUNS").context("FAILOVER_RUNS names no program: scripts/bench.sh builds it")?;
    let count = match std::env::var("FAILOVERS") {
        Ok(count) => count.parse().context("FAILOVERS is no number")?,
        Err(_) => lab.scaled(50, 3),
    };
    let run = Command::new(program)
        .args(["-figures", &count.to_string(), "-fill", &FILLED_MB.to_string(), "-flintkv"])
        .arg(lab.binary())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("the program of tests/failover-runs does not start")?;
    match run.status.code() {
        Some(0) => {}
        Some(SKIPPED) => bail!("namespaces cannot be made here: {}", String::from_utf8_lossy(&run.stdout).trim()),
        _ => bail!("it has failed: {}", run.status),
    }
    let measured: Measured = serde_json::from_slice(&run.stdout).context("what it has measured")?;
    let resident = format!("a process with {}", bytes(measured.resident_bytes));
    let mut figures = Vec::new();
    for (name, how, values, goals) in [
        ("primary's process killed and started again", resident.as_str(), &measured.process_killed, Some((0.6, 1.0))),
        ("node of the primary lost", "nothing of it is heard any more", &measured.node_lost, Some((2.5, 4.0))),
        ("the same with etcd's leader", "etcd's usual times", &measured.node_lost_with_etcd_leader, Some((5.5, 8.0))),
        (
            "primary cut off from all other nodes",
            "from the cut to its last reply",
            &measured.isolated_primary_answers,
            None,
        ),
    ] {
        ensure!(!values.is_empty(), "{name} was not measured");
        let worst = values.iter().copied().fold(f64::MIN, f64::max);
        let detail = format!("{} times", values.len());
        let figure = |which: &str, value: f64, goal: f64| {
            let how = if goals.is_some() {
                format!("from the last acknowledged write to the next, at the other node; {how}")
            } else {
                how.to_owned()
            };
            Figure::new(&format!("{name}, {which}"), &how, value, Target::AtMost(goal), detail.clone()).unit(" s")
        };
        if let Some((p50, _)) = goals {
            figures.push(figure("p50", median(values), p50));
        }
        figures.push(figure("worst", worst, goals.map_or(1.3, |(_, worst)| worst)));
    }
    Ok(figures)
}
