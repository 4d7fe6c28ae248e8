//! Whole scenarios at a tiny scale, against a server in the same process that reports a flash tier it does not have.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use serde_json::Value;

#[derive(Default)]
struct FakeServerState {
    values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    reads: AtomicU64,
    resets: AtomicU64,
    password: Option<&'static str>,
    /// Further lines of INFO.
    info: &'static str,
}

/// Reports that every eighth read came from flash, and that it uses 900 kB of 1 MB RAM.
fn serve(state: &FakeServerState, stream: &TcpStream) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut authenticated = state.password.is_none();
    loop {
        let words = (0..number(&mut reader, b'*')?)
            .map(|_| {
                let mut word = vec![0; number(&mut reader, b'$')? + 2];
                reader.read_exact(&mut word).ok()?;
                word.truncate(word.len() - 2);
                Some(word)
            })
            .collect::<Option<Vec<_>>>()?;
        let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let mut values = state.values.lock().expect("lock");
        let reply = match words[0].to_ascii_uppercase().as_slice() {
            b"AUTH" => {
                authenticated = state.password.map(str::as_bytes) == words.last().map(Vec::as_slice);
                if authenticated { b"+OK\r\n".to_vec() } else { b"-WRONGPASS no\r\n".to_vec() }
            }
            _ if !authenticated => b"-NOAUTH no\r\n".to_vec(),
            b"SET" | b"HSET" => {
                values.insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            b"GET" => {
                state.reads.fetch_add(1, Relaxed);
                values.get(&words[1]).map_or(b"$-1\r\n".to_vec(), |value| bulk(value))
            }
            b"HGETALL" => {
                state.reads.fetch_add(1, Relaxed);
                b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n".to_vec()
            }
            b"INFO" => {
                let reads = state.reads.load(Relaxed);
                let text = format!(
                    "# Stats\r\nflintkv_version:0.0.0\r\nredis_version:7.2.0\r\nkeyspace_hits:{reads}\r\n\
                     used_memory_rss:900000\r\ntiering_enabled:1\r\nram_limit:1000000\r\nmemory_limit:3000000\r\n\
                     flash_kv_reads:{}\r\nflash_reads:{}\r\nflash_compression_ratio:4.00\r\n{}",
                    reads / 8,
                    reads / 8,
                    state.info
                );
                bulk(text.as_bytes())
            }
            b"CONFIG" => {
                state.resets.fetch_add(1, Relaxed);
                b"+OK\r\n".to_vec()
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        };
        drop(values);
        writer.write_all(&reply).ok()?;
    }
}

fn number(reader: &mut impl BufRead, kind: u8) -> Option<usize> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    std::str::from_utf8(line.strip_prefix(&[kind])?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
}

fn start(password: Option<&'static str>) -> (u16, Arc<FakeServerState>) {
    start_as(FakeServerState { password, ..FakeServerState::default() })
}

fn start_as(state: FakeServerState) -> (u16, Arc<FakeServerState>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let state = Arc::new(state);
    let shared = Arc::clone(&state);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let state = Arc::clone(&shared);
            std::thread::spawn(move || serve(&state, &stream));
        }
    });
    (port, state)
}

/// Runs a scenario, and returns the JSON and the page that it wrote.
fn scenario(line: &str) -> (Value, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let (json, page) = (directory.path().join("out.json"), directory.path().join("out.html"));
    let outputs = [String::from("--json"), json.display().to_string(), "--report".into(), page.display().to_string()];
    // A window of the hit ratio is two seconds long.
    let times = ["--dry-time", "3", "--test-time", "1"].map(String::from);
    let words = line.split(' ').map(String::from).chain(times).chain(outputs);
    let code = bench::scenario::main(words.map(OsString::from));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "{line}");
    let json = std::fs::read_to_string(&json).expect("JSON");
    (serde_json::from_str(&json).expect("JSON"), std::fs::read_to_string(&page).expect("a page"))
}

fn names(value: &Value) -> Vec<&str> {
    let phases = value["report"]["phases"].as_array().expect("phases");
    phases.iter().map(|phase| phase["name"].as_str().expect("a name")).collect()
}

#[test]
fn rof_goes_from_populate_to_result() {
    let (port, state) = start(None);
    let (json, page) = scenario(&format!("rof --scale 1/100000 --port {port}"));
    assert_eq!(names(&json), ["populate", "centralise", "dry run", "measured run"]);
    assert_eq!(state.values.lock().expect("lock").len(), 1501, "keys 0 to 1500");
    assert_eq!(state.resets.load(Relaxed), 1, "statistics begin anew before the measured run");
    let measured = &json["measured"][0];
    assert!(measured["ops_per_s"].as_f64() > Some(0.0));
    assert_eq!(measured["misses"], 0);
    let ratio = measured["ram_hit_ratio"].as_f64().expect("a ratio");
    assert!((ratio - 0.875).abs() < 0.01, "{ratio}");
    let commands = &json["report"]["phases"][3]["commands"][0];
    let command = commands.as_str().expect("text");
    assert!(command.contains("--key-stddev=102 ") || command.contains("--key-stddev=103 "), "{command}");
    assert!(command.ends_with("--test-time=1"), "{command}");
    let notes = json["report"]["notes"].to_string();
    assert!(notes.contains("limits are its own: memory 3.00 MB, RAM 1.00 MB"), "{notes}");
    assert!(page.starts_with("<!doctype html>") && page.contains("Redis on Flash"));
}

#[test]
fn an_unreachable_hit_ratio_is_reported() {
    let (port, _) = start(None);
    let (json, _) = scenario(&format!("rof-replicated --scale 1/100000 --port {port} --hit-ratio 0.5"));
    let notes = json["report"]["notes"].to_string();
    assert!(notes.contains("for a RAM hit ratio of 50.0 % (not reached); the dry runs had 87."), "{notes}");
    assert!(notes.contains("one node without replicas"), "{notes}");
}

#[test]
fn the_database_of_a_cluster_is_not_taken_for_one_node() {
    let info = "# Cluster\r\ncluster_enabled:0\r\nshards:2\r\nshards_answering:2\r\n";
    let (port, _) = start_as(FakeServerState { info, ..FakeServerState::default() });
    let (json, _) = scenario(&format!("rof-replicated --scale 1/100000 --port {port}"));
    let notes = json["report"]["notes"].to_string();
    assert!(notes.contains("here a cluster's database with 2 shards, with the load generator on the same machine"));
    assert!(!notes.contains("one node"), "{notes}");
}

#[test]
fn gemini_reads_three_kinds_at_once_with_a_password() {
    let (port, state) = start(Some("secret"));
    let line = format!("gemini-rta --scale 1/10000000 --port {port} --password secret --threads 1");
    let (json, page) = scenario(&line);
    assert_eq!(
        names(&json),
        ["populate hashes", "populate short strings", "populate long strings", "dry run", "measured run"]
    );
    assert_eq!(state.values.lock().expect("lock").len(), 80 + 280 + 21);
    let loads = json["report"]["phases"][4]["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), 3);
    assert_eq!(json["measured"][0]["error_replies"], 0);
    assert!(!page.contains("secret"), "the password is in the report");
}

#[test]
fn keydb_compares_every_working_set() {
    let ((port, _), (other, _)) = (start(None), start(None));
    let line = format!("keydb-flash --scale 1/100000 --port {port} --compare 127.0.0.1:{other} --threads 2");
    let (json, _) = scenario(&line);
    assert_eq!(json["report"]["sweep"]["percent"].as_array().map(Vec::len), Some(6));
    assert_eq!(json["report"]["sweep"]["lines"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["measured"].as_array().map(Vec::len), Some(12));
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let words = ["rof", "--scale", "1/1000", "--port", &port.to_string()].map(OsString::from);
    let code = bench::scenario::main(words.into_iter());
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
}
