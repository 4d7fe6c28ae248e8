//! Whole runs against a small server in the same process.

mod server;

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench::{
    Auth, CommandSpec, Commands, Config, Fill, KeyPattern, KeySpace, Length, Observer, Pace, Progress, Protocol, Ramp,
    Reconnect, Row, RunStats, ScanFollow, SetGet, SizeSpec, Target, Wait, Work,
};
use server::{Faults, Server, closed_port};

fn config(port: u16) -> Config {
    Config {
        target: Target::tcp("127.0.0.1", port),
        threads: 2,
        clients: 3,
        length: Length::Requests(100),
        keys: KeySpace { min: 1, max: 1000, ..KeySpace::default() },
        ..Config::default()
    }
}

fn set_get(sets: u32, gets: u32, pattern: KeyPattern) -> Work {
    Work::SetGet(SetGet { sets, gets, set_pattern: pattern, get_pattern: pattern, ..SetGet::default() })
}

fn commands(lines: &[&str], pattern: KeyPattern) -> Work {
    let specs = lines.iter().map(|line| CommandSpec { line: (*line).to_owned(), ratio: 1, pattern });
    Work::Commands(Commands { specs: specs.collect(), ..Commands::default() })
}

fn run(config: &Config) -> RunStats {
    bench::run(config, &()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn row<'a>(stats: &'a RunStats, label: &str) -> &'a Row {
    stats.rows.iter().find(|row| row.label == label).unwrap_or_else(|| panic!("no row {label}"))
}

#[test]
fn every_request_is_sent_once_and_counted_once() {
    let server = Server::start();
    for pipeline in [1, 7, 1000] {
        let stats = run(&Config { pipeline, work: set_get(1, 1, KeyPattern::Random), ..config(server.port) });
        assert_eq!(stats.totals.count, 600);
        assert_eq!((row(&stats, "Sets").count, row(&stats, "Gets").count), (300, 300));
        assert_eq!(row(&stats, "Gets").hits + row(&stats, "Gets").misses, 300);
        assert_eq!((row(&stats, "Sets").hits, row(&stats, "Sets").misses), (0, 0));
        assert_eq!(stats.totals.latency.len(), 600);
        assert_eq!(stats.totals.seconds.iter().map(|second| second.count).sum::<u64>(), 600);
        assert_eq!((stats.totals.errors, stats.connection_errors, stats.unsent), (0, 0, 0));
        assert!(!stats.interrupted);
    }
}

#[test]
fn allkeys_in_parallel_fills_the_range_exactly() {
    let server = Server::start();
    let work = set_get(1, 0, KeyPattern::Parallel);
    let populate = Config { length: Length::AllKeys, work, pipeline: 16, ..config(server.port) };
    let stats = run(&populate);
    assert_eq!((stats.totals.count, server.keys()), (1000, 1000));
    // Reading the middle finds all keys.
    let keys = KeySpace { min: 300, max: 600, ..KeySpace::default() };
    let centralise = Config { keys, work: set_get(0, 1, KeyPattern::Parallel), ..populate };
    let stats = run(&centralise);
    assert_eq!((stats.totals.count, row(&stats, "Gets").hits, row(&stats, "Gets").misses), (301, 301, 0));
    assert_eq!(stats.totals.hit_ratio(), Some(1.0));
}

#[test]
fn bytes_are_counted_in_both_directions() {
    let server = Server::start();
    let keys = KeySpace { prefix: b"k".to_vec(), min: 1, max: 9, ..KeySpace::default() };
    let work = set_get(1, 1, KeyPattern::Sequential);
    let one = Config { threads: 1, clients: 1, length: Length::Requests(18), keys, work, ..config(server.port) };
    let stats = run(&one);
    let value = format!("$32\r\n{}\r\n", "x".repeat(32));
    let set = "*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n".len() + value.len();
    let get = "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n".len();
    let (sets, gets) = (row(&stats, "Sets"), row(&stats, "Gets"));
    assert_eq!((sets.bytes_tx, sets.bytes_rx), (9 * set as u64, 9 * 5));
    assert_eq!((gets.bytes_tx, gets.bytes_rx), (9 * get as u64, 9 * value.len() as u64));
}

#[test]
fn values_larger_than_every_buffer_pass_in_both_directions() {
    let server = Server::start();
    let keys = KeySpace { min: 1, max: 2, ..KeySpace::default() };
    let mut large = Config { threads: 1, clients: 2, length: Length::Requests(8), keys, ..config(server.port) };
    large.data.size = SizeSpec::Fixed(3_000_000);
    large.pipeline = 4;
    large.work = set_get(1, 1, KeyPattern::Sequential);
    let stats = run(&large);
    assert_eq!((row(&stats, "Gets").hits, row(&stats, "Gets").misses), (8, 0));
    assert!(row(&stats, "Gets").bytes_rx > 24_000_000);
}

#[test]
fn mget_counts_hits_and_misses_per_key() {
    let server = Server::start();
    let keys = KeySpace { min: 1, max: 50, ..KeySpace::default() };
    let base = Config { threads: 1, clients: 1, keys, ..config(server.port) };
    run(&Config { length: Length::AllKeys, work: set_get(1, 0, KeyPattern::Parallel), ..base.clone() });
    let keys = KeySpace { min: 1, max: 100, ..KeySpace::default() };
    let gets =
        SetGet { sets: 0, gets: 10, multi_key_get: 10, get_pattern: KeyPattern::Sequential, ..SetGet::default() };
    let stats = run(&Config { length: Length::Requests(10), keys, work: Work::SetGet(gets), ..base });
    let gets = row(&stats, "Gets");
    assert_eq!((gets.count, gets.hits, gets.misses), (10, 50, 50));
}

#[test]
fn an_empty_hash_is_a_miss() {
    let server = Server::start();
    server.state.values.lock().expect("lock").insert(b"memtier-1".to_vec(), Vec::new());
    let keys = KeySpace { min: 1, max: 4, ..KeySpace::default() };
    let work = commands(&["hgetall __key__", "hset __key__ f __data__"], KeyPattern::Sequential);
    let stats = run(&Config { threads: 1, clients: 1, length: Length::Requests(8), keys, work, ..config(server.port) });
    let read = row(&stats, "Hgetalls");
    assert_eq!((read.count, read.hits, read.misses), (4, 1, 3));
    assert_eq!((row(&stats, "Hsets").count, row(&stats, "Hsets").hits), (4, 0));
}

#[test]
fn connections_authenticate_say_hello_and_select() {
    let server = Server::with(Faults { password: Some("s3cret"), ..Faults::default() });
    let auth = Some(Auth { user: None, password: String::from("s3cret") });
    let good = Config { auth, protocol: Protocol::Resp3, select_db: 2, threads: 1, clients: 1, ..config(server.port) };
    assert_eq!(run(&good).totals.count, 100);
    let log = server.state.log.lock().expect("lock").clone();
    assert_eq!(log, [vec!["AUTH", "s3cret"], vec!["HELLO", "3"], vec!["SELECT", "2"]]);
    let auth = Some(Auth { user: None, password: String::from("wrong") });
    let error = bench::run(&Config { auth, ..config(server.port) }, &()).expect_err("a wrong password");
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    let stats = run(&config(server.port));
    assert_eq!((stats.totals.errors, stats.totals.count), (600, 600), "without a password every reply is an error");
    assert_eq!(stats.error_texts[0], (String::from("NOAUTH Authentication required."), 600));
}

#[test]
fn error_replies_are_counted_with_their_text() {
    let server = Server::with(Faults { refuse_sets: Some("OOM command not allowed"), ..Faults::default() });
    let stats = run(&Config { work: set_get(1, 1, KeyPattern::Random), ..config(server.port) });
    assert_eq!((row(&stats, "Sets").errors, row(&stats, "Gets").errors), (300, 0));
    assert_eq!(stats.error_texts, [(String::from("OOM command not allowed"), 300)]);
}

#[test]
fn nobody_listening_is_an_error() {
    let error = bench::run(&config(closed_port()), &()).expect_err("nothing listens");
    assert!(format!("{error:#}").contains("refused"), "{error:#}");
}

#[test]
fn a_run_survives_dropped_connections() {
    let faults = Faults { close_after: Some(40), ..Faults::default() };
    let server = Server::with(faults);
    let stats = run(&Config { pipeline: 4, ..config(server.port) });
    assert_eq!(stats.connection_errors, 6, "without reconnecting every connection ends once");
    assert!(stats.totals.count <= 240, "{}", stats.totals.count);
    assert!(!stats.error_texts.is_empty());
    let server = Server::with(faults);
    let reconnect = Reconnect { on_error: true, ..Reconnect::default() };
    let stats = run(&Config { reconnect, pipeline: 4, ..config(server.port) });
    assert_eq!(stats.totals.count, 600, "lost requests are sent again");
    assert!(stats.connection_errors >= 12, "{}", stats.connection_errors);
}

#[test]
fn attempts_to_reconnect_are_bounded() {
    let server = Server::with(Faults { close_after: Some(0), ..Faults::default() });
    let reconnect = Reconnect { on_error: true, attempts_max: 3, ..Reconnect::default() };
    let stats = run(&Config { reconnect, threads: 1, clients: 1, ..config(server.port) });
    assert_eq!((stats.totals.count, stats.connection_errors), (0, 4));
}

#[test]
fn connections_are_renewed_after_so_many_requests() {
    let server = Server::start();
    let reconnect = Reconnect { every: 25, ..Reconnect::default() };
    let stats = run(&Config { reconnect, pipeline: 10, ..config(server.port) });
    assert_eq!((stats.totals.count, stats.connection_errors), (600, 0));
    // 6 connections, each 4 times, and a first one that checks whether anybody listens.
    assert_eq!(server.state.connections.load(Ordering::Relaxed), 25);
}

#[test]
fn a_unix_socket_serves_as_well() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("server.sock");
    let state = server::Server::on_socket(&path);
    let stats = run(&Config { target: Target::Unix(path), ..config(0) });
    assert_eq!(stats.totals.count, 600);
    assert!(!state.values.lock().expect("lock").is_empty());
}

#[test]
fn scan_follows_the_cursor_of_the_reply() {
    let server = Server::start();
    let specs = vec![CommandSpec { line: String::from("SCAN 0 COUNT 5"), ratio: 1, pattern: KeyPattern::Random }];
    let scan = Some(ScanFollow { continuations_max: 0 });
    let work = Work::Commands(Commands { specs, scan, ..Commands::default() });
    let stats = run(&Config { work, threads: 1, clients: 1, length: Length::Requests(7), ..config(server.port) });
    assert_eq!((row(&stats, "Scan 0s").count, row(&stats, "Scan <cursor>s").count), (3, 4));
    let cursors: Vec<String> = server.state.log.lock().expect("lock").iter().map(|words| words[1].clone()).collect();
    assert_eq!(cursors, ["0", "7", "9", "0", "7", "9", "0"]);
}

#[test]
fn waits_have_a_row_of_their_own() {
    let server = Server::start();
    let wait = Some(Wait { sets: 5, waits: 1, replicas: 0..=0, timeout_ms: 10..=20 });
    let work = Work::SetGet(SetGet { sets: 1, gets: 0, wait, ..SetGet::default() });
    let stats = run(&Config { work, threads: 1, clients: 1, length: Length::Requests(61), ..config(server.port) });
    assert_eq!((row(&stats, "Sets").count, row(&stats, "Waits").count), (51, 10));
}

#[test]
fn several_workloads_run_at_once_and_report_apart() {
    let server = Server::start();
    let sets = Config { name: String::from("sets"), work: set_get(1, 0, KeyPattern::Random), ..config(server.port) };
    let gets = Config {
        name: String::from("gets"),
        length: Length::Requests(50),
        work: set_get(0, 1, KeyPattern::Random),
        ..sets.clone()
    };
    let all = bench::run_all(&[sets, gets], &()).expect("both run");
    let told: Vec<(&str, u64)> = all.iter().map(|stats| (stats.name.as_str(), stats.totals.count)).collect();
    assert_eq!(told, [("sets", 600), ("gets", 300)]);
    assert_eq!(all[0].started, all[1].started);
}

/// Stops a run once it has seen some requests.
struct StopAfter(u64, Cell<u64>);

impl Observer for StopAfter {
    fn progress(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        let seen = &progress.workloads[0];
        self.1.set(seen.ops);
        if seen.ops > self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn an_observer_sees_progress_and_can_stop_the_run() {
    let server = Server::start();
    let observer = StopAfter(10, Cell::new(0));
    let endless = Config { length: Length::Time(Duration::from_secs(3600)), ..config(server.port) };
    let stats = bench::run(&endless, &observer).expect("a result so far");
    assert!(stats.interrupted);
    assert!(stats.totals.count >= observer.1.get().min(11), "what was seen was measured");
    assert!(stats.duration < Duration::from_secs(3600));
}

#[test]
fn a_run_ends_by_time_with_every_second_in_the_series() {
    let server = Server::start();
    let timed = Config { length: Length::Time(Duration::from_millis(1200)), ..config(server.port) };
    let stats = run(&timed);
    assert!(stats.duration >= Duration::from_millis(1200));
    assert!(!stats.interrupted);
    let indexes: Vec<u64> = stats.totals.seconds.iter().map(|second| second.index).collect();
    assert_eq!(&indexes[..2], [0, 1]);
    assert!(stats.totals.seconds.iter().all(|second| second.latency_ms_quantiles.len() == timed.quantiles.len()));
}

/// A server that stalls once for 300 ms. With fixed times, every request due in that time is late. A closed loop would
/// have noticed one per connection.
#[test]
fn an_open_loop_sees_a_stall_in_every_request_that_it_delays() {
    let stall = Some((200, Duration::from_millis(300)));
    let server = Server::with(Faults { stall, ..Faults::default() });
    let open = Config {
        pace: Pace::OpenLoop(1000.0),
        threads: 1,
        clients: 2,
        length: Length::Requests(500),
        ..config(server.port)
    };
    let stats = run(&open);
    assert_eq!(stats.totals.count, 1000);
    let late = stats.totals.latency.count_between(100_000, u64::MAX);
    assert!(late >= 150, "{late} requests late by 100 ms or more");
    assert!(stats.duration >= Duration::from_millis(990), "a thousand appointments a millisecond apart");
}

#[test]
fn requests_that_an_open_loop_could_not_send_are_counted() {
    let stall = Some((0, Duration::from_millis(700)));
    let server = Server::with(Faults { stall, ..Faults::default() });
    let length = Length::Time(Duration::from_millis(500));
    let stats = run(&Config { pace: Pace::OpenLoop(1000.0), threads: 1, clients: 2, length, ..config(server.port) });
    assert!(stats.unsent >= 490, "{} of 500 were due and not sent", stats.unsent);
}

#[test]
fn a_rate_limit_is_never_exceeded() {
    let server = Server::start();
    let length = Length::Time(Duration::from_millis(500));
    let limited = Config { pace: Pace::PerConnection(120), length, pipeline: 50, ..config(server.port) };
    let stats = run(&limited);
    // Three per tick, forty ticks a second, one of them at the start.
    assert!(stats.totals.count <= 6 * 3 * 21, "{}", stats.totals.count);
    assert!(stats.totals.count >= 6 * 3);
}

#[test]
fn a_ramp_adds_connections_step_by_step() {
    let server = Server::start();
    let ramp = Some(Ramp { start: 1, step: 1, every: Duration::from_millis(100) });
    let length = Length::Time(Duration::from_secs(3));
    let stats = run(&Config { ramp, length, per_client: true, ..config(server.port) });
    assert_eq!(server.state.connections.load(Ordering::Relaxed), 7);
    let counts: Vec<u64> =
        stats.per_client.iter().map(|client| client.rows.iter().map(|row| row.count).sum()).collect();
    assert_eq!(counts.len(), 6);
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), stats.totals.count);
}

#[test]
fn compressible_values_arrive_as_they_were_made() {
    let server = Server::start();
    let mut random =
        Config { work: set_get(1, 0, KeyPattern::Parallel), length: Length::AllKeys, ..config(server.port) };
    random.data.size = SizeSpec::Fixed(500);
    random.data.fill = Fill::Compressible(0.5);
    run(&random);
    let values = server.state.values.lock().expect("lock");
    let different: std::collections::HashSet<&Vec<u8>> = values.values().collect();
    assert_eq!((values.len(), different.len()), (1000, 1000));
    let all: Vec<u8> = values.values().flatten().copied().collect();
    let left = zstd::bulk::compress(&all, 3).expect("zstd").len() as f64 / all.len() as f64;
    assert!((left - 0.5).abs() < 0.03, "{left:.3} left");
}

fn cli(line: &str) -> ExitCode {
    bench::cli::main(line.split(' ').map(OsString::from))
}

#[test]
fn the_program_writes_every_file_it_is_asked_for() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let line = format!(
        "-h 127.0.0.1 -p {} -t 1 -c 2 -n 50 --key-maximum 100 -x 2 --print-all-runs --print-percentiles 50,99.99 \
         -o {} --json-out-file {} --hdr-file-prefix {} --client-stats {}",
        server.port,
        at("out"),
        at("json"),
        at("hdr"),
        at("client")
    );
    assert_eq!(cli(&line), ExitCode::SUCCESS);
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let out = read("out");
    assert!(out.starts_with("1         Threads\n2         Connections per thread\n50        Requests per client\n"));
    for title in ["RUN #1 RESULTS", "RUN #2 RESULTS", "BEST RUN", "WORST RUN", "AGGREGATED AVERAGE RESULTS (2 runs)"] {
        assert!(out.contains(title), "{title}");
    }
    assert!(out.contains("p99.99 Latency"));
    let json: serde_json::Value = serde_json::from_str(&read("json")).expect("good JSON");
    assert_eq!(json["AGGREGATED AVERAGE RESULTS (2 runs)"]["Totals"]["Count"], 200);
    assert_eq!(json["RUN #1 RESULTS"]["Totals"]["Count"], 100);
    assert_eq!(json["configuration"]["run_count"], 2);
    for name in ["hdr_FULL_RUN_1.txt", "hdr_FULL_RUN_2.hgrm", "hdr_SET_command_run_1.txt", "hdr_GET_command_run_2.hgrm"]
    {
        assert!(read(name).contains("#["), "{name}");
    }
    assert!(read("client-1-0-0.csv").starts_with("Per-Second Benchmark Data\n"));
    assert!(read("client-2-0-1.csv").contains("Full-Test GET Latency"));
}

#[test]
fn the_program_ends_with_1_when_it_cannot_work() {
    assert_eq!(cli("--cluster-mode"), ExitCode::FAILURE);
    assert_eq!(cli("--no-such-option"), ExitCode::FAILURE);
    assert_eq!(cli(&format!("-h 127.0.0.1 -p {}", closed_port())), ExitCode::FAILURE);
    assert_eq!(cli("--version"), ExitCode::SUCCESS);
}
