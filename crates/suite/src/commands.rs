//! Measures redis-benchmark's whole list, a script and a publish, against redis-server in the same run; the list again
//! with every key on flash at its start; and the memory of small collections. Never knows the server's code.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use resp::client::{Value, encode_command};

use super::figure::{Figure, Target, median};
use super::lab::{Lab, Subject};
use bench::scenario::node::{Process, Program};
use bench::scenario::spec::Load;

const PIPELINES: [u32; 2] = [1, 16];
const CONNECTIONS: u32 = 50;
/// Keys, members and fields come from a range of this size.
const RANGE: u64 = 100_000;
const LIST_LENGTH: usize = 1000;
const SUBSCRIBERS: usize = 1000;
const SCRIPT: &[&str] = &["eval", "return redis.call('GET', KEYS[1])", "1", "key:000000000001"];

/// A line of redis-benchmark's list.
struct Line {
    name: &'static str,
    /// The test's name for `-t`, or the command itself.
    test: Test,
    /// The share of the usual number of requests: long replies take longer.
    share: f64,
}

enum Test {
    Named(&'static str),
    Words(&'static [&'static str]),
}

const fn named(name: &'static str) -> Line {
    Line { name, test: Test::Named(name), share: 1.0 }
}

/// redis-benchmark fills the list before each of these tests. Here the list is filled before the measurement, so its
/// cost is not included.
const fn range(name: &'static str, words: &'static [&'static str], share: f64) -> Line {
    Line { name, test: Test::Words(words), share }
}

/// In redis-benchmark's order, because some lines pop elements that an earlier line has pushed.
const LINES: [Line; 20] = [
    named("ping_inline"),
    named("ping_mbulk"),
    named("set"),
    named("get"),
    named("incr"),
    named("lpush"),
    named("rpush"),
    named("lpop"),
    named("rpop"),
    named("sadd"),
    named("hset"),
    named("spop"),
    named("zadd"),
    named("zpopmin"),
    range("lrange_100", &["lrange", "list", "0", "99"], 0.5),
    range("lrange_300", &["lrange", "list", "0", "299"], 0.2),
    range("lrange_500", &["lrange", "list", "0", "499"], 0.15),
    range("lrange_600", &["lrange", "list", "0", "599"], 0.15),
    named("mset"),
    Line { name: "eval", test: Test::Words(SCRIPT), share: 0.5 },
];
const EVAL: usize = LINES.len() - 1;

/// The cost of one run of a line; `None` if the server answered with an error.
#[derive(Clone, Copy)]
struct Cost {
    processor_us: f64,
    elapsed_us: f64,
}

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let mut figures = list(lab)?;
    figures.push(cold(lab)?);
    figures.push(publish(lab)?);
    figures.extend(collections(lab)?);
    Ok(figures)
}

/// Runs every line on both servers in turn. Each ratio is taken within one round.
fn list(lab: &mut Lab) -> Result<Vec<Figure>> {
    let requests = lab.scaled(200_000, 100_000);
    let mut subjects = [
        lab.start("redis-server", &Program::redis())?,
        lab.start("one worker", &lab.flintkv().directive("io-threads", 1))?,
    ];
    let mut figures = Vec::new();
    for pipeline in PIPELINES {
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); LINES.len()];
        for round in 0..lab.repetitions {
            subjects.iter_mut().try_for_each(prepare)?;
            for (index, line) in LINES.iter().enumerate() {
                let mut costs = [f64::NAN; 2];
                for turn in 0..2 {
                    let which = (turn + round) % 2;
                    costs[which] = run(&mut subjects[which], line, requests, pipeline)?.processor_us;
                }
                eprintln!("   P{pipeline} {:<12} {:>6.2} against {:>6.2} µs", line.name, costs[1], costs[0]);
                ratios[index].push(costs[1] / costs[0]);
            }
        }
        let medians: Vec<f64> = ratios.iter().map(|ratios| median(ratios)).collect();
        let (script, of_list) = medians.split_last().context("no lines")?;
        let detail: Vec<String> =
            LINES[..EVAL].iter().zip(of_list).map(|(line, ratio)| format!("{} {ratio:.2}", line.name)).collect();
        // A failed line is NaN, and must count as the worst.
        let worst = of_list
            .iter()
            .copied()
            .fold(0.0, |worst: f64, ratio| if ratio > worst || ratio.is_nan() { ratio } else { worst });
        let how = "processor time per command ÷ redis-server's, one worker";
        let name = |what: &str| format!("redis-benchmark's list, pipeline {pipeline}, {what}");
        figures.push(Figure::new(&name("worst line"), how, worst, Target::AtMost(1.0), detail.join(", ")));
        figures.push(Figure::new(&name("median line"), how, median(of_list), Target::AtMost(0.7), String::new()));
        let name = format!("EVAL of a script with one GET, pipeline {pipeline}");
        figures.push(Figure::new(&name, how, *script, Target::AtMost(1.2), String::new()));
    }
    Ok(figures)
}

/// Runs every line with its data in RAM, and again with all of its data on flash at the start.
fn cold(lab: &mut Lab) -> Result<Figure> {
    let requests = lab.scaled(100_000, 50_000);
    let program = lab.flintkv().tiered(1 << 30, 256 << 20).directive("io-threads", 2);
    let mut subject = lab.start("cold list", &program)?;
    prepare(&mut subject)?;
    let mut added = Vec::new();
    let mut detail = Vec::new();
    for line in &LINES[..EVAL] {
        // The first run creates the keys, the second one measures them in RAM.
        run(&mut subject, line, requests, 1)?;
        let hot = run(&mut subject, line, requests, 1)?;
        force_demote(&mut subject)?;
        let cold = run(&mut subject, line, requests, 1)?;
        let more = cold.elapsed_us - hot.elapsed_us;
        added.push(more);
        detail.push(format!("{} {more:+.1}", line.name));
    }
    let failed = added.iter().filter(|more| more.is_nan()).count();
    Ok(Figure::new(
        "redis-benchmark's list, every key cold at start",
        "median of the time added per command, 50 connections; lines that failed make it not a number",
        if failed > 0 { f64::NAN } else { median(&added) },
        Target::AtMost(15.0),
        detail.join(", "),
    )
    .unit(" µs"))
}

/// The number of large collections of redis-benchmark, which have a skeleton in RAM even when their parts are on flash.
const LARGE_VALUES: u64 = 4;

/// Moves every value to flash. CONFIG SET of the mode replies only when the values are there.
fn force_demote(subject: &mut Subject) -> Result<()> {
    for mode in ["cold", "off"] {
        subject.node.client().call(&["CONFIG", "SET", "debug-tier-mode", mode])?;
        let in_ram = subject.snapshot()?.tiering.context("no flash")?.values_in_ram;
        if in_ram > LARGE_VALUES {
            bail!("{in_ram} values stay in RAM");
        }
    }
    Ok(())
}

/// A server that holds only the list that LRANGE reads.
fn prepare(subject: &mut Subject) -> Result<()> {
    let client = subject.node.client();
    client.call(&["FLUSHALL"])?;
    client.call(&["SET", "key:000000000001", "xxx"])?;
    let mut push = vec!["RPUSH", "list"];
    push.extend(std::iter::repeat_n("xxx", LIST_LENGTH));
    client.call(&push)?;
    Ok(())
}

fn run(subject: &mut Subject, line: &Line, requests: u64, pipeline: u32) -> Result<Cost> {
    let requests = (requests as f64 * line.share * if pipeline > 1 { 2.0 } else { 1.0 }) as u64;
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &subject.node.endpoint.port.to_string(), "--csv"]);
    command.args(["-c", &CONNECTIONS.to_string(), "-n", &requests.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-r", &RANGE.to_string()]);
    match line.test {
        Test::Named(name) => command.args(["-t", name]),
        Test::Words(words) => command.args(words),
    };
    let process = subject.node.process.context("the server's process is not of this machine")?;
    let before = settled(process);
    let output = command.stdin(Stdio::null()).output().context("redis-benchmark (package redis-tools) is needed")?;
    let spent = settled(process) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let per_second =
        text.lines().rev().find_map(|line| line.split("\",\"").nth(1)?.trim_matches('"').parse::<f64>().ok());
    Ok(match per_second.filter(|_| output.status.success() && !text.contains("Error")) {
        Some(per_second) => Cost { processor_us: spent * 1e6 / requests as f64, elapsed_us: 1e6 / per_second },
        None => {
            let said = String::from_utf8_lossy(&output.stderr);
            eprintln!("   {} {}: {} {}", subject.name, line.name, text.trim(), said.trim());
            Cost { processor_us: f64::NAN, elapsed_us: f64::NAN }
        }
    })
}

/// The kernel counts processor time in ticks, so wait until the next one.
fn settled(process: Process) -> f64 {
    std::thread::sleep(Duration::from_millis(30));
    process.processor_seconds().unwrap_or(f64::NAN)
}

/// One publisher, many subscribers.
fn publish(lab: &mut Lab) -> Result<Figure> {
    let messages = lab.scaled(2000, 1000);
    let mut subjects = [
        lab.start("redis-server", &Program::redis())?,
        lab.start("one worker", &lab.flintkv().directive("io-threads", 1))?,
    ];
    let mut ratios = Vec::new();
    let mut shown = String::new();
    for _ in 0..lab.repetitions {
        let mut costs = [0.0; 2];
        for (cost, subject) in costs.iter_mut().zip(&mut subjects) {
            let audience = Audience::subscribe(subject.node.endpoint.port)?;
            let process = subject.node.process.context("the server's process is not of this machine")?;
            let before = settled(process);
            for _ in 0..messages {
                let heard = subject.node.client().call(&["PUBLISH", "news", "0123456789"])?;
                if !matches!(heard, Value::Int(count) if count == SUBSCRIBERS as i64) {
                    bail!("PUBLISH reached {heard:?} of {SUBSCRIBERS} subscribers");
                }
            }
            audience.wait_for(messages)?;
            *cost = (settled(process) - before) * 1e6 / messages as f64;
        }
        ratios.push(costs[1] / costs[0]);
        shown = format!("{:.0} against {:.0} µs", costs[1], costs[0]);
    }
    Ok(Figure::new(
        "publish to 1,000 subscribers",
        "processor time per PUBLISH ÷ redis-server's, one worker",
        median(&ratios),
        Target::AtMost(0.8),
        shown,
    ))
}

/// Subscribers that read and count on a thread of their own.
struct Audience {
    received: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

const MESSAGE: &str = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$10\r\n0123456789\r\n";

impl Audience {
    fn subscribe(port: u16) -> Result<Audience> {
        let mut request = Vec::new();
        encode_command(&[b"SUBSCRIBE", b"news"], &mut request);
        let mut streams = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.write_all(&request)?;
            let mut confirmation = [0u8; "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n".len()];
            stream.read_exact(&mut confirmation)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let (received, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let reader = std::thread::spawn({
            let (received, done) = (received.clone(), done.clone());
            move || drain(streams, &received, &done)
        });
        Ok(Audience { received, done, reader: Some(reader) })
    }

    fn wait_for(&self, messages: u64) -> Result<()> {
        let expected = messages * (SUBSCRIBERS * MESSAGE.len()) as u64;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.received.load(Relaxed) < expected {
            if Instant::now() > deadline {
                bail!("{} of {expected} bytes reached the subscribers", self.received.load(Relaxed));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn drain(mut streams: Vec<TcpStream>, received: &AtomicU64, done: &AtomicBool) {
    let mut buffer = vec![0u8; 64 << 10];
    while !done.load(Relaxed) {
        let mut quiet = true;
        for stream in &mut streams {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    received.fetch_add(count as u64, Relaxed);
                    quiet = false;
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
        if quiet {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Resident bytes of many small collections. Each type has servers of its own.
fn collections(lab: &mut Lab) -> Result<Vec<Figure>> {
    let keys = lab.scaled(1_000_000, 200_000);
    let kinds =
        [("hashes", "HSET", true), ("sets", "SADD", false), ("sorted sets", "ZADD", true), ("lists", "RPUSH", false)];
    let mut figures = Vec::new();
    for (kind, command, pairs) in kinds {
        let members: Vec<String> = (0..10)
            .map(|i| match (pairs, command) {
                (true, "ZADD") => format!("{i} member:{i}"),
                (true, _) => format!("field:{i} value:{i}"),
                _ => format!("member:{i}"),
            })
            .collect();
        let load = Load::new(kind, 1, 20, ["--requests=allkeys", "--pipeline=24"])
            .with(format!("--command={command} __key__ {}", members.join(" ")))
            .with(String::from("--command-key-pattern=P"))
            .with(String::from("--key-minimum=10000001"))
            .with(format!("--key-maximum={}", 10_000_000 + keys));
        let mut per_key = Vec::new();
        for program in [Program::redis(), lab.flintkv().directive("io-threads", 2)] {
            let mut subject = lab.start(kind, &program)?;
            let before = subject.resident_settled()?;
            lab.populate(&mut subject, std::slice::from_ref(&load))?;
            per_key.push(subject.resident_settled()?.saturating_sub(before) as f64 / keys as f64);
        }
        figures.push(Figure::new(
            &format!("resident bytes per small key: {kind}"),
            "÷ redis-server's; 10 members",
            per_key[1] / per_key[0],
            Target::AtMost(0.9),
            format!("{:.0} against {:.0} bytes, {keys} keys", per_key[1], per_key[0]),
        ));
    }
    Ok(figures)
}
