//! A real file system that is full: the journal is on a separate small ext4 file system, mounted from a file. Needs root;
//! without the right to mount, the test says that it is skipped.

use flintkv_tests::{Client, Node, Random, eventually};
use resp::client::Value;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DISK_BYTES: u64 = 400 << 20;
const VALUE_BYTES: usize = 256 << 10;
const DIRECTIVES: &[(&str, &str)] = &[
    ("appendonly", "yes"),
    ("auto-aof-rewrite-percentage", "0"),
    ("flash-path", ""),
    ("memory-limit", "1gb"),
    ("ram-limit", "1gb"),
];

/// A file system in a file, mounted until this is dropped.
struct Disk(Arc<TempDir>);

impl Drop for Disk {
    fn drop(&mut self) {
        // The files of a node that has just ended may stay open for a moment.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).args(args).output();
    done.is_ok_and(|done| done.status.success())
}

fn mount(image: &Path) -> Option<Disk> {
    File::create(image).unwrap().set_len(DISK_BYTES).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (image, target) = (image.to_str().unwrap(), folder.path().to_str().unwrap());
    let is_mounted =
        succeeds("mkfs.ext4", &["-q", "-F", "-m", "0", image]) && succeeds("mount", &["-o", "loop", image, target]);
    is_mounted.then(|| Disk(Arc::new(folder)))
}

/// Writes until the file system is full.
fn fill(file: &Path) {
    let mut file = File::create(file).unwrap();
    let block = vec![7; 1 << 20];
    loop {
        match file.write_all(&block).and_then(|()| file.sync_data()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Random bytes, which the journal cannot compress. Otherwise the disk would never be full.
fn value(key: u64) -> Vec<u8> {
    Random::new(key).noise(VALUE_BYTES)
}

fn holds(client: &mut Client, key: u64) -> bool {
    client.call(&[b"GET", format!("key:{key}").as_bytes()]) == Value::Bulk(value(key))
}

/// Sets one key after the other until `stop` is set. `acknowledged` counts the replies `OK`; a SET that got an error is
/// repeated.
fn write(port: u16, acknowledged: &AtomicU64, refused: &AtomicU64, stop: &AtomicBool) {
    let mut client = Client::connect(port);
    let mut key = 0_u64;
    while !stop.load(Relaxed) {
        let reply = client.call(&[b"SET", format!("key:{key}").as_bytes(), &value(key)]);
        if reply == Value::Simple(b"OK".to_vec()) {
            key += 1;
            acknowledged.store(key, Relaxed);
        } else {
            refused.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_full_file_system_stops_writes_and_loses_none() {
    let elsewhere = tempfile::tempdir().unwrap();
    let Some(disk) = mount(&elsewhere.path().join("image")) else {
        eprintln!("skipped: this user may not mount a file system, or there is no mkfs.ext4");
        return;
    };
    let node = Node::start_in(&disk.0, None, DIRECTIVES);
    let ballast = disk.0.path().join("ballast");
    fill(&ballast);
    let (acknowledged, refused, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let got = || acknowledged.load(Relaxed);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(node.port, &acknowledged, &refused, &stop));
        // First the preallocated files of the journal are filled; then writes wait or get errors.
        let (mut last, mut since) = (0, Instant::now());
        eventually("writes stop", || {
            if std::mem::replace(&mut last, got()) != got() {
                since = Instant::now();
            }
            since.elapsed() > Duration::from_secs(1)
        });
        let stopped_at = got();
        assert!(stopped_at > 0);
        let mut reader = node.connect();
        for key in (0..stopped_at).step_by(5) {
            assert!(holds(&mut reader, key), "key:{key}");
        }
        fs::remove_file(&ballast).unwrap();
        eventually("writes go on", || got() > stopped_at + 3);
        stop.store(true, Relaxed);
        writer.join().unwrap();
    });
    let written = got();
    node.signal(9);
    let mut node = node;
    node.ended();
    drop(node);
    let node = Node::start_in(&disk.0, None, DIRECTIVES);
    let mut client = node.connect();
    eventually("the dataset is back", || client.info("persistence", "loading") == "0");
    for key in 0..written {
        assert!(holds(&mut client, key), "key:{key} of {written}");
    }
    drop(node);
}

/// In a full synchronisation, both sides write the dataset to a file in `dir`.
#[test]
fn a_full_file_system_on_either_side_delays_a_synchronisation() {
    let elsewhere = tempfile::tempdir().unwrap();
    let Some(disk) = mount(&elsewhere.path().join("image")) else {
        eprintln!("skipped: this user may not mount a file system, or there is no mkfs.ext4");
        return;
    };
    let directives = [("appendonly", "no"), ("flash-path", ""), ("enable-debug-command", "yes")];
    for is_primary in [false, true] {
        let full = Node::start_in(&disk.0, None, &directives);
        let other = Node::start(&directives);
        let (primary, replica) = if is_primary { (&full, &other) } else { (&other, &full) };
        let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
        for key in 0..100 {
            of_primary.call(&[b"SET", format!("key:{key}").as_bytes(), &value(key)]);
        }
        of_replica.run("SET own 1");
        let ballast = disk.0.path().join("ballast");
        fill(&ballast);
        assert_eq!(of_replica.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
        eventually("it is told", || of_replica.info("replication", "master_link_error").contains("No space left"));
        // Both still serve their data.
        assert_eq!(of_replica.run("GET own"), "\"1\"");
        assert!(holds(&mut of_primary, 7));
        assert_eq!(of_primary.run("SET later 1"), "OK");
        fs::remove_file(&ballast).unwrap();
        eventually("the link is up", || of_replica.info("replication", "master_link_status") == "up");
        assert_eq!(of_primary.run("WAIT 1 0"), "(integer) 1");
        assert_eq!(of_replica.run("DEBUG FLINT-DIGEST"), of_primary.run("DEBUG FLINT-DIGEST"));
        // The files of the failed attempts were removed.
        drop((of_primary, of_replica));
        let left = fs::read_dir(disk.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left
            .filter(|name| name.to_string_lossy().contains(".tmp") || name.to_string_lossy().starts_with("temp-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
