//! The comparison of a replica's dataset with its primary's while both go on, and the bound of the rate of full synchronisations.

use crate::common::{Client, eventually};
use crate::replica::{are_same, follow, is_up, node, write};
use flintkv_tests::Random;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const OFTEN: (&str, &str) = ("repl-check-interval", "1");

#[test]
fn datasets_that_are_the_same_are_found_to_be_so_while_they_change() {
    let flash = [("memory-limit", "400mb"), ("ram-limit", "64mb"), ("flash-path", "flash")];
    let primary = node(&[OFTEN]);
    let replica = node(&[&flash[..], &[("flash-segment-size", "256kb")]].concat());
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("DEBUG POPULATE 5000 key 1000");
    replica.limit_objects(2 << 20);
    follow(&mut of_replica, primary.port);
    let (port, is_over) = (primary.port, Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&is_over);
    let writing = thread::spawn(move || {
        let mut client = Client::connect(port);
        for seed in 900.. {
            // Keys and fields that expire are among them.
            write(&mut client, seed, 100);
            if over.load(Relaxed) {
                return;
            }
        }
    });
    eventually("datasets were compared", || of_replica.info_number("replication", "repl_checks") >= 2);
    is_over.store(true, Relaxed);
    writing.join().unwrap();
    assert_eq!(of_replica.info("replication", "repl_check_differences"), "0");
    assert!(of_replica.info_number("tiering", "demotions_written") > 1000);
    assert_eq!(of_primary.info("stats", "sync_full"), "1");
    assert_eq!(primary.connect().run("CONFIG SET repl-check-interval 0"), "OK");
    are_same(&mut of_primary, &mut of_replica);
}

/// Passes on what goes between the replica and its primary, and changes one word of the primary's, once.
fn falsifier(primary: u16, word: &'static [u8], other: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut is_done = false;
        for replica in listener.incoming() {
            let (mut replica, Ok(mut primary)) = (replica.unwrap(), TcpStream::connect(("127.0.0.1", primary))) else {
                return;
            };
            let (mut from_replica, mut to_primary) = (replica.try_clone().unwrap(), primary.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_replica, &mut to_primary));
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = primary.read(&mut bytes) {
                let found = bytes[..count].windows(word.len()).position(|window| window == word);
                if let Some(at) = found.filter(|_| !is_done) {
                    bytes[at..at + word.len()].copy_from_slice(other);
                    is_done = true;
                }
                if replica.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
        }
    });
    port
}

#[test]
fn a_value_that_differs_is_found_and_the_dataset_comes_anew() {
    let (primary, replica) = (node(&[]), node(&[("appendonly", "yes")]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("DEBUG POPULATE 1000");
    follow(&mut of_replica, falsifier(primary.port, b"needle", b"noodle"));
    // One of them does not lie across two portions of the link.
    let of_all = "EVAL \"local found = 0 for n = 0, 99 do if redis.call('GET', 'k:' .. n) == 'noodle' then found = found + 1 end end \
                  return found\" 0";
    eventually("a value differs", || {
        for n in 0..100 {
            of_primary.run(&format!("SET k:{n} needle"));
        }
        assert_eq!(of_primary.run("WAIT 1 0"), "(integer) 1");
        of_replica.run(of_all) == "(integer) 1"
    });
    assert_eq!(of_replica.info("replication", "repl_check_differences"), "0");
    assert_eq!(of_primary.run(&format!("CONFIG SET {} {}", OFTEN.0, OFTEN.1)), "OK");
    eventually("it is found", || of_replica.info("replication", "repl_check_differences") == "1");
    // The link ends with this reason a moment after the count.
    eventually("the reason is told", || {
        of_replica.info("replication", "replica_last_failure").contains("1 of 1024 stripes differ (")
    });
    assert!(replica.log().contains("the dataset differs from the primary's at byte"));
    eventually("the dataset comes anew", || of_primary.info("stats", "sync_full") == "2");
    is_up(&mut of_replica);
    assert_eq!(of_primary.run("WAIT 1 0"), "(integer) 1");
    assert_eq!(of_primary.run("DEBUG FLINT-DIGEST"), of_replica.run("DEBUG FLINT-DIGEST"));
    // It stays so.
    let before = of_replica.info_number("replication", "repl_checks");
    eventually("datasets are compared again", || of_replica.info_number("replication", "repl_checks") > before);
    assert_eq!(of_replica.info("replication", "repl_check_differences"), "1");
    assert_eq!(of_primary.info("stats", "sync_full"), "2");
}

/// A page that has changed on its way is not taken in.
#[test]
fn a_damaged_page_of_a_primary_is_refused() {
    let flash =
        [("memory-limit", "400mb"), ("ram-limit", "64mb"), ("flash-path", "flash"), ("flash-segment-size", "256kb")];
    let (primary, replica) = (node(&[&flash[..], &[("flash-compression", "none")]].concat()), node(&flash));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    // The values that were set last stay in RAM.
    for (word, count) in [("needle", 1000), ("other", 4000)] {
        for n in 0..count {
            of_primary.run(&format!("SET {word}:{n} {}", word.repeat(100)));
        }
    }
    primary.limit_objects(1 << 20);
    eventually("values are on flash", || of_primary.info_number("tiering", "values_in_flash") > 2_000);
    assert_eq!(of_replica.run(&format!("REPLICAOF 127.0.0.1 {}", falsifier(primary.port, b"needle", b"noodle"))), "OK");
    is_up(&mut of_replica);
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "2");
    let log = replica.log();
    // Whoever reads it first: the page's own, or that of the dataset.
    assert!(log.contains("checksum"), "{log}");
    assert!(of_replica.info_number("tiering", "values_in_flash") > 500);
}

#[test]
fn a_full_synchronisation_is_slow_until_it_may_be_fast() {
    let primary = node(&[("repl-transfer-rate", "1"), ("rdbcompression", "no")]);
    let replica = node(&[]);
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("DEBUG POPULATE 1000 key 1000");
    assert_eq!(of_replica.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
    eventually("it begins", || {
        let section = of_replica.run("INFO replication");
        section.contains("master_sync_read_bytes:") && !section.contains("master_sync_read_bytes:0")
    });
    // A megabyte would take eleven days.
    assert_eq!(of_replica.info("replication", "master_sync_in_progress"), "1");
    assert_eq!(of_primary.run("CONFIG SET repl-transfer-rate 0"), "OK");
    is_up(&mut of_replica);
    are_same(&mut of_primary, &mut of_replica);
}

/// Values that nothing makes smaller.
fn fill(client: &mut Client, name: &str, count: usize) {
    let mut random = Random::new(count as u64);
    client.set_all((0..count).map(|n| (format!("{name}:{n}"), random.noise(1000))));
}

/// All of it in one round: while the replica tries again to load, INFO says less.
fn is_full(client: &mut Client) {
    eventually("there is no room, and it says so", || {
        let mut info = |field| client.info("replication", field);
        let (state, link, told) = (info("replica_state"), info("master_link_status"), info("master_link_error"));
        let says_so = told.starts_with("there is no room for the primary's dataset") && told.contains("CONFIG SET");
        state == "full" && link == "down" && says_so
    });
}

fn goes_on(of_primary: &mut Client, of_replica: &mut Client) {
    is_up(of_replica);
    are_same(of_primary, of_replica);
    eventually("it says so", || of_replica.info("replication", "replica_state") == "connected");
}

#[test]
fn a_replica_without_room_stops_and_goes_on_when_it_has_some() {
    let flash =
        [("memory-limit", "200mb"), ("ram-limit", "64mb"), ("flash-path", "flash"), ("flash-segment-size", "256kb")];
    for limits in [&[][..], &flash] {
        let (primary, replica) = (node(&[]), node(limits));
        let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
        follow(&mut of_replica, primary.port);
        replica.limit_objects(2 << 20);
        let ram: u64 = of_replica.run("CONFIG GET ram-limit").split('"').nth(3).unwrap().parse().unwrap();
        if !limits.is_empty() {
            assert_eq!(of_replica.run(&format!("CONFIG SET memory-limit {}", ram + (16 << 20))), "OK");
        }
        fill(&mut of_primary, "key", 25_000);
        is_full(&mut of_replica);
        let keys: u64 = of_replica.run("DBSIZE").strip_prefix("(integer) ").unwrap().parse().unwrap();
        assert!(keys > 100 && keys < if limits.is_empty() { 8_000 } else { 22_000 }, "{keys}");
        assert_eq!(of_replica.run("STRLEN key:1"), "(integer) 1000");
        let raised = if limits.is_empty() { "CONFIG SET ram-limit 0" } else { "CONFIG SET memory-limit 400mb" };
        assert_eq!(of_replica.run(raised), "OK");
        goes_on(&mut of_primary, &mut of_replica);
        // From where it was.
        assert_eq!(of_primary.info("stats", "sync_full"), "1");
        assert!(replica.log().contains("there is room again"));
    }
}

#[test]
fn a_dataset_without_room_is_asked_for_again_and_has_room_when_it_is_smaller() {
    let (primary, replica) = (node(&[]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    fill(&mut of_primary, "key", 15_000);
    replica.limit_objects(2 << 20);
    assert_eq!(of_replica.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
    is_full(&mut of_replica);
    eventually("nothing is kept of it", || of_replica.run("DBSIZE") == "(integer) 0");
    of_primary.run("FLUSHALL");
    of_primary.run("SET k v");
    goes_on(&mut of_primary, &mut of_replica);
    // Not one a second.
    assert!(of_primary.info_number("stats", "sync_full") <= 4);
}

#[test]
fn a_primary_that_may_have_lost_its_newest_writes_with_the_power_takes_a_new_id() {
    let directives: &[(&str, &str)] = &[("enable-debug-command", "yes"), ("appendonly", "yes")];
    let (mut primary, replica) = (node(directives), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    for (loses_power, key) in [(false, "killed"), (true, "lost")] {
        of_primary.run(&format!("SET {key} 1"));
        assert_eq!(of_primary.run("WAIT 1 0"), "(integer) 1");
        let id = of_primary.info("replication", "master_replid");
        let boot = primary.dir.path().join("flintkv.journal/manifest.boot");
        primary.signal(9);
        primary.ended();
        if loses_power {
            std::fs::write(&boot, "another").unwrap();
        }
        drop(of_primary);
        primary = crate::persist::again(primary, directives);
        of_primary = crate::persist::loaded(&primary);
        let now = of_primary.info("replication", "master_replid");
        assert_eq!(now != id, loses_power);
        follow(&mut of_replica, primary.port);
        are_same(&mut of_primary, &mut of_replica);
        assert_eq!(of_replica.info("replication", "master_replid"), now);
        // What both have is not sent again.
        assert_eq!(of_primary.info("stats", "sync_full"), "0");
        if loses_power {
            assert_eq!(of_primary.info("replication", "master_replid2"), id);
            assert_eq!(of_replica.info("replication", "master_replid2"), id);
        }
    }
}
