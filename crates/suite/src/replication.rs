//! Measures the cost of a replica for its primary, the speed of a full synchronisation between FlintKVs and from
//! redis-server, the lag of a replica, and the writes that are lost with a primary. Primary, replica and load share
//! this machine. Never knows the server's code.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use resp::client::Value;

use super::figure::{Figure, Target, median};
use super::lab::{FIRST_KEY, KEY_BYTES, Lab, Shot, Subject, VALUE_BYTES, fill, ranged, rof_load};
use bench::report::bytes;
use bench::scenario::info::Info;
use bench::scenario::node::{Process, Program};
use bench::scenario::spec::Load;
use bench::scenario::wire::{Client, Endpoint};

/// The time limit for a copy of some gigabytes under a load.
const SYNCHRONISED_WITHIN: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(10);
/// How many writes wait for the replica, one after the other.
const WAITED_WRITES: usize = 5000;
/// The timeout of WAIT, longer than any write takes.
const WAIT_MS: &str = "10000";
const COPY_BYTES: usize = 1 << 20;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let mut figures = cost(lab)?;
    figures.extend(copy(lab)?);
    figures.extend(moving_in(lab)?);
    figures.extend(loss(lab)?);
    Ok(figures)
}

/// Makes `replica` follow `primary`, and waits until it is synchronised. Returns how long that took.
fn follow(replica: &mut Subject, primary: &Subject) -> Result<Duration> {
    let begun = Instant::now();
    begin_to_follow(replica, primary)?;
    wait_for_link(replica)?;
    Ok(begun.elapsed())
}

fn begin_to_follow(replica: &mut Subject, primary: &Subject) -> Result<()> {
    let Endpoint { host, port, .. } = &primary.node.endpoint;
    replica.node.client().call(&["REPLICAOF", host, &port.to_string()])?;
    Ok(())
}

fn wait_for_link(replica: &mut Subject) -> Result<()> {
    let deadline = Instant::now() + SYNCHRONISED_WITHIN;
    loop {
        // While it loads, a replica may answer INFO and nothing else.
        let info = Info::parse(&replica.node.client().text(&["INFO", "replication"])?);
        if info.text("master_link_status") == Some("up") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{} does not reach its primary: see INFO replication", replica.name);
        std::thread::sleep(POLL);
    }
}

/// How long `write` takes from its sending until the replica has acknowledged it, in milliseconds.
fn waited_ms(client: &mut Client, key: &str) -> Result<f64> {
    let begun = Instant::now();
    client.call(&["SET", key, "value"])?;
    match client.call(&["WAIT", "1", WAIT_MS])? {
        Value::Int(1) => Ok(begun.elapsed().as_secs_f64() * 1000.0),
        other => bail!("WAIT 1 answered {other:?}"),
    }
}

/// The value below which `share` of the values are. NaN if there is none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Resident bytes that belong to no file, after the allocator has returned its free pages.
fn private_settled(subject: &mut Subject) -> Result<u64> {
    subject.resident_settled()?;
    subject.node.process.and_then(Process::private).context("the server's process is not of this machine")
}

// --- what a replica costs ---

const ALONE: usize = 0;
const FOLLOWED: usize = 1;

/// Processor time and throughput with and without a replica, memory of a link, and the lag at half of the load.
fn cost(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(500_000, 200_000);
    let program = lab.flintkv().directive("io-threads", 1);
    let mut subjects = vec![lab.start("no replica", &program)?, lab.start("one replica", &program)?];
    for subject in &mut subjects {
        lab.populate(subject, &[fill(FIRST_KEY, keys)])?;
    }
    let before = private_settled(&mut subjects[FOLLOWED])?;
    let mut replica = lab.start("the replica", &program)?;
    follow(&mut replica, &subjects[FOLLOWED])?;
    let mut figures = Vec::new();
    let mut half_rate = 0.0;
    for (pipeline, most) in [(24, 1.15), (1, 1.05)] {
        let load = rof_load(keys, pipeline, keys as f64 / 10.0);
        let rounds = lab.rounds(&mut subjects, &load, lab.shot)?;
        let (cpu, rate) = (|shot: &Shot| shot.processor_us, |shot: &Shot| shot.ops_per_s);
        figures.push(Figure::new(
            &format!("processor time of a primary per command, pipeline {pipeline}"),
            "with one replica ÷ without, one worker, all in RAM, 1:1, 20 connections",
            rounds.ratio(FOLLOWED, ALONE, cpu),
            Target::AtMost(most),
            format!("{:.2} against {:.2} µs", rounds.of(FOLLOWED, cpu), rounds.of(ALONE, cpu)),
        ));
        figures.push(Figure::new(
            &format!("throughput of a primary, pipeline {pipeline}"),
            "with one replica ÷ without, on the same machine as the replica and the load",
            rounds.ratio(FOLLOWED, ALONE, rate),
            Target::None,
            format!("{:.0} against {:.0} ops/s", rounds.of(FOLLOWED, rate), rounds.of(ALONE, rate)),
        ));
        half_rate = rounds.of(FOLLOWED, rate) / 2.0;
    }
    wait_for_link(&mut replica)?;
    let synchronised = Info::parse(&subjects[FOLLOWED].node.client().text(&["INFO", "stats"])?);
    ensure!(
        synchronised.number("sync_full") == Some(1),
        "the replica has lost its link under the load, so the figures are of less than a replica"
    );
    let link = private_settled(&mut subjects[FOLLOWED])?.saturating_sub(before);
    figures.push(
        Figure::new(
            "memory of a link",
            "growth of what is the primary's alone of its resident size, by a replica and the loads above; the backlog is a file",
            link as f64 / (1 << 20) as f64,
            Target::AtMost(4.0),
            format!("{keys} keys"),
        )
        .unit(" MiB"),
    );
    figures.push(lag(lab, &mut subjects[FOLLOWED], keys, half_rate)?);
    Ok(figures)
}

/// The lag of a replica under half of the highest unpipelined rate, measured by a client that waits for the replica
/// after each of its writes.
fn lag(lab: &mut Lab, primary: &mut Subject, keys: u64, rate: f64) -> Result<Figure> {
    let endpoint = primary.node.endpoint.clone();
    let load = rof_load(keys, 1, keys as f64 / 10.0).with(format!("--rate-limiting={}", (rate / 20.0).max(1.0) as u64));
    let is_over = AtomicBool::new(false);
    let lags = std::thread::scope(|scope| -> Result<Vec<f64>> {
        let prober = scope.spawn(|| -> Result<Vec<f64>> {
            let mut client = Client::connect(&endpoint)?;
            let mut lags = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                lags.push(waited_ms(&mut client, "lag")?);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(lags)
        });
        let shot = lab.shoot(primary, &load);
        is_over.store(true, Ordering::Relaxed);
        let lags = prober.join().expect("the prober has not panicked");
        shot?;
        lags
    })?;
    let detail =
        format!("{} writes, median {:.2} ms, longest {:.1} ms", lags.len(), quantile(&lags, 0.5), quantile(&lags, 1.0));
    let how = "99 % of SET and WAIT 1 while a load runs at half of the highest unpipelined rate";
    Ok(Figure::new("lag of a replica", how, quantile(&lags, 0.99), Target::AtMost(10.0), detail).unit(" ms"))
}

// --- how fast a dataset is copied ---

/// A full synchronisation of a dataset of which 30 % fits into RAM, compared with `cp` of the same bytes, without and
/// under a load.
fn copy(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(5_000_000, 500_000);
    let raw = keys * (KEY_BYTES + VALUE_BYTES);
    let mut primary = lab.start_tiered("primary of the copy", keys)?;
    let load = fill(FIRST_KEY, keys).with(String::from("--data-compressibility=0"));
    lab.populate(&mut primary, &[load])?;
    let mut replica = lab.start_tiered("replica of the copy", keys)?;
    let took = follow(&mut replica, &primary)?;
    let copied = replica.node.client().call(&["DBSIZE"])?;
    ensure!(copied == Value::Int(keys as i64), "the replica has {copied:?} of {keys} keys");
    needs_one_dump(&mut primary)?;
    let file = copy_of_a_file(lab.base(), raw)?;
    let rate = |time: Duration| raw as f64 / time.as_secs_f64();
    lab.note_fill_of(&replica);
    drop(replica);

    let load = ranged(
        Load::new("GETs beside a copy", 1, 20, ["--key-pattern=R:R", "--ratio=0:1", "--rate-limiting=200"]),
        keys,
    )
    .with(String::from("--distinct-client-seed"))
    .with(String::from("--randomize"));
    let calm = lab.shoot(&mut primary, &load)?.1;
    let mut replica = lab.start_tiered("replica of the copy", keys)?;
    begin_to_follow(&mut replica, &primary)?;
    let busy = lab.shoot(&mut primary, &load)?.1;
    wait_for_link(&mut replica)?;
    lab.note_fill_of(&primary);
    lab.note_fill_of(&replica);
    Ok(vec![
        Figure::new(
            "full synchronisation",
            "bytes of keys and values a second ÷ cp of as many bytes, written to the device; 30 % RAM, incompressible values",
            rate(took) / rate(file),
            Target::AtLeast(0.8),
            format!(
                "{} in {:.1} s ({}/s) against {:.1} s ({}/s)",
                bytes(raw),
                took.as_secs_f64(),
                bytes(rate(took) as u64),
                file.as_secs_f64(),
                bytes(rate(file) as u64),
            ),
        ),
        Figure::new(
            "latency of clients during a full synchronisation",
            "p99 ÷ p99 without, 4,000 uniform GETs a second",
            busy.latency_ms_p99 / calm.latency_ms_p99,
            Target::AtMost(2.0),
            format!("{:.2} against {:.2} ms", busy.latency_ms_p99, calm.latency_ms_p99),
        ),
    ])
}

/// A dump that was given up costs ten seconds, and is no measure of a copy.
fn needs_one_dump(primary: &mut Subject) -> Result<()> {
    let dumps = Info::parse(&primary.node.client().text(&["INFO", "stats"])?).number("sync_full");
    ensure!(dumps == Some(1), "the replica needed {dumps:?} dumps: see the primary's log");
    Ok(())
}

/// How long a copy of a file of so many bytes takes, including the sync.
fn copy_of_a_file(base: &Path, raw: u64) -> Result<Duration> {
    let scratch = tempfile::Builder::new().prefix("flintkv-copy-").tempdir_in(base)?;
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let mut file = File::create(&from)?;
    let block = vec![0x5a; COPY_BYTES];
    for _ in 0..raw / COPY_BYTES as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    // Drop the file from the page cache, so that it is read from the device, like the dataset.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let begun = Instant::now();
    fs::copy(&from, &to).context("a file cannot be copied")?;
    File::open(&to)?.sync_all()?;
    Ok(begun.elapsed())
}

// --- how fast a dataset moves in ---

/// A dataset of redis-server is copied by replication: to a FlintKV, and to another redis-server.
fn moving_in(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(2_000_000, 300_000);
    // Without redis-server's usual delay before a copy, which is not part of the copy.
    let redis = Program::redis().directive("repl-diskless-sync-delay", 0);
    let mut source = lab.start("redis-server", &redis)?;
    lab.populate(&mut source, &[fill(FIRST_KEY, keys)])?;
    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..lab.repetitions {
        let mut another = lab.start("redis-server that follows", &redis)?;
        let took_redis = follow(&mut another, &source)?;
        drop(another);
        let mut flintkv = lab.start("FlintKV that follows", &lab.flintkv().directive("io-threads", 2))?;
        let took = follow(&mut flintkv, &source)?;
        ratios.push(took_redis.as_secs_f64() / took.as_secs_f64());
        rates.push(keys as f64 / took.as_secs_f64());
    }
    Ok(vec![Figure::new(
        "moving in from redis-server",
        "keys a second ÷ those of a redis-server that follows it",
        median(&ratios),
        Target::AtLeast(1.0),
        format!("{keys} keys, {:.0} keys/s", median(&rates)),
    )])
}

// --- what is lost with a primary ---

/// A client waits for the replica after each write; the primary is killed meanwhile, and the replica is promoted.
fn loss(lab: &mut Lab) -> Result<Vec<Figure>> {
    let program = lab.flintkv().directive("io-threads", 2);
    let mut primary = lab.start("a primary that is lost", &program)?;
    let mut replica = lab.start("its replica", &program)?;
    follow(&mut replica, &primary)?;
    let mut lags = Vec::with_capacity(WAITED_WRITES);
    for n in 0..WAITED_WRITES {
        lags.push(waited_ms(primary.node.client(), &format!("waited:{n}"))?);
    }
    let endpoint = primary.node.endpoint.clone();
    let acknowledged = std::thread::scope(|scope| -> Result<usize> {
        let writer = scope.spawn(|| -> Result<usize> {
            let mut client = Client::connect(&endpoint)?;
            let written = (WAITED_WRITES..).take_while(|n| waited_ms(&mut client, &format!("waited:{n}")).is_ok());
            Ok(WAITED_WRITES + written.count())
        });
        std::thread::sleep(lab.shot);
        primary.node.kill()?;
        writer.join().expect("the writer has not panicked")
    })?;
    let begun = Instant::now();
    replica.node.client().call(&["REPLICAOF", "NO", "ONE"])?;
    while replica.node.client().call(&["SET", "promoted", "yes"]).is_err() {
        ensure!(begun.elapsed() < SYNCHRONISED_WITHIN, "the replica takes no write after its promotion");
    }
    let promoted_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let mut lost = 0;
    for n in 0..acknowledged {
        lost += u64::from(replica.node.client().call(&["EXISTS", &format!("waited:{n}")])? != Value::Int(1));
    }
    Ok(vec![
        Figure::new(
            "acknowledged writes that are lost",
            "under WAIT 1, after kill -9 of the primary and promotion of the replica",
            lost as f64,
            Target::AtMost(0.0),
            format!("{acknowledged} writes"),
        ),
        Figure::new(
            "promotion",
            "from the command to the first write that is taken, the primary killed before",
            promoted_ms,
            Target::AtMost(50.0),
            String::new(),
        )
        .unit(" ms"),
        Figure::new(
            "SET and WAIT 1",
            "99 % of them, nothing else runs",
            quantile(&lags, 0.99),
            Target::None,
            format!("{WAITED_WRITES} writes, median {:.3} ms", quantile(&lags, 0.5)),
        )
        .unit(" ms"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
