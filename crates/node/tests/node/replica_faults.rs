//! What goes wrong between a primary and its replicas: promotions that leave two primaries, crashes, damaged streams, rude peers, replicas
//! that stop, and the end of a primary.

use crate::common::{Client, Node, eventually};
use crate::persist;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// No PING comes between two looks at an offset.
const QUIET: &[(&str, &str)] = &[("enable-debug-command", "yes"), ("repl-ping-replica-period", "3600")];
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

fn node(more: &[(&str, &str)]) -> Node {
    Node::start(&[QUIET, more].concat())
}

fn follow(client: &mut Client, port: u16) {
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    is_up(client);
}

fn is_up(client: &mut Client) {
    eventually("the link is up", || client.info("replication", "master_link_status") == "up");
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info_number("replication", field)
}

/// Waits until both have the same stream, and compares.
fn are_same(primary: &mut Client, replica: &mut Client) {
    eventually("the replica has everything", || {
        number(replica, "master_repl_offset") == number(primary, "master_repl_offset")
            && replica.run("DEBUG FLINT-DIGEST") == primary.run("DEBUG FLINT-DIGEST")
    });
}

fn is_ending(client: &mut Client) -> bool {
    client.run("INFO server").contains("shutdown_in_milliseconds:")
}

fn log_has(node: &Node, words: &str) {
    eventually(words, || node.log().contains(words));
}

// --- two primaries ---

#[test]
fn a_promotion_while_the_primary_lives_is_seen_and_exactly_the_unshared_tail_is_given_up() {
    for persistence in ["no", "yes"] {
        let (old, new) = (node(&[("appendonly", persistence)]), node(&[("appendonly", persistence)]));
        let (mut of_old, mut of_new) = (old.connect(), new.connect());
        of_old.run("SET shared 1");
        follow(&mut of_new, old.port);
        of_old.run("SET shared 2");
        are_same(&mut of_old, &mut of_new);
        let shared = number(&mut of_old, "master_repl_offset");
        assert_eq!(of_new.run("REPLICAOF NO ONE"), "OK");
        assert_eq!(of_new.info("replication", "promoted_while_primary_up"), "1");
        assert_eq!(of_new.info("replication", "promoted_from"), format!("127.0.0.1:{}", old.port));
        log_has(&new, "was promoted while the primary");
        assert_eq!(of_new.run("SET new 1"), "OK");

        // A message and SELECT are no writes; a transaction has two.
        for line in [
            "SET old 1",
            "PUBLISH news x",
            "SELECT 2",
            "MULTI",
            "SET old 2",
            "RPUSH list 1",
            "EXEC",
            "SELECT 0",
            "INCR n",
        ] {
            assert!(!of_old.run(line).starts_with("(error)"), "{line}");
        }
        let end = number(&mut of_old, "master_repl_offset");
        follow(&mut of_old, new.port);
        assert_eq!(number(&mut of_old, "given_up_from_offset"), shared);
        assert_eq!(number(&mut of_old, "given_up_bytes"), end - shared);
        assert_eq!(number(&mut of_old, "given_up_writes"), 4);
        log_has(&old, &format!("discards {} of its stream with 4 writes", base::size::human(end - shared)));
        are_same(&mut of_new, &mut of_old);
        assert_eq!(of_old.run("EXISTS old list n"), "(integer) 0");
        assert_eq!(of_old.run("GET new"), "\"1\"");
        // Following is no promotion, and a switchover leaves nobody behind.
        assert_eq!(of_new.run("FAILOVER"), "OK");
        eventually("the roles have changed", || of_old.info("replication", "role") == "master");
        assert_eq!(of_old.info("replication", "promoted_while_primary_up"), "0");
    }
}

#[test]
fn a_failover_is_over_when_its_end_is_answered() {
    let node = node(&[]);
    let (mut client, mut writer) = (node.connect(), node.connect());
    client.run("SET k 1");
    // It never says what it has.
    let mut silent = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
    silent.write_all(b"PSYNC ? -1\r\n").unwrap();
    eventually("it has a dump", || client.run("INFO replication").contains("state=online"));
    for round in 0..50 {
        assert_eq!(writer.run("SET k 2"), "OK");
        // The one before is over: another can begin.
        assert_eq!(client.run("FAILOVER"), "OK", "{round}");
        assert_eq!(client.run("FAILOVER ABORT"), "OK", "{round}");
        assert_eq!(client.info("replication", "master_failover_state"), "no-failover", "{round}");
    }
    assert_eq!(client.run("FAILOVER ABORT"), "(error) ERR No failover in progress.");
    for (line, reply) in [("FAILOVER", "OK"), ("MULTI", "OK"), ("FAILOVER ABORT", "QUEUED"), ("EXEC", "1) OK")] {
        assert_eq!(client.run(line), reply, "{line}");
    }
    eventually("it is over soon", || client.info("replication", "master_failover_state") == "no-failover");
}

#[test]
fn two_databases_that_follow_each_other_take_no_writes_and_one_command_resolves_it() {
    let (one, two) = (node(&[]), node(&[]));
    let (mut of_one, mut of_two) = (one.connect(), two.connect());
    of_one.run("SET k 1");
    for (client, port) in [(&mut of_one, two.port), (&mut of_two, one.port)] {
        assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    }
    for client in [&mut of_one, &mut of_two] {
        assert_eq!(client.info("replication", "role"), "slave");
        // One of them may be loading the other's dataset.
        eventually("it takes no writes", || client.run("SET k 2").starts_with("(error) READONLY"));
    }
    eventually("it is promoted", || of_one.run("REPLICAOF NO ONE") == "OK");
    assert_eq!(of_one.run("SET k 3"), "OK");
    eventually("the other one follows", || of_two.run("GET k") == "\"3\"");
    are_same(&mut of_one, &mut of_two);
}

#[test]
fn a_crash_behind_a_promotion_comes_back_with_the_new_id() {
    let (primary, replica) = (node(&[]), node(&[("appendonly", "yes")]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("SET k 1");
    follow(&mut of_replica, primary.port);
    are_same(&mut of_primary, &mut of_replica);
    // A chain: this one knows the old id only when the promoted one is gone.
    let (old, offset) =
        (of_primary.info("replication", "master_replid"), number(&mut of_primary, "master_repl_offset"));
    assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
    let new = of_replica.info("replication", "master_replid");
    assert_ne!(new, old);
    drop(of_replica);
    let replica = persist::kill(replica, &[QUIET, &[("appendonly", "yes")]].concat());
    let mut again = persist::loaded(&replica);
    assert_eq!(again.info("replication", "master_replid"), new);
    assert_eq!(again.info("replication", "master_replid2"), old);
    assert_eq!(number(&mut again, "second_repl_offset"), offset + 1);
    // What the old primary writes now is not in the stream of the new id.
    of_primary.run("SET k 2");
    again.run("SET k 3");
    follow(&mut of_primary, replica.port);
    are_same(&mut again, &mut of_primary);
    assert_eq!(of_primary.run("GET k"), "\"3\"");
}

#[test]
fn a_promotion_applies_what_has_arrived() {
    // With one thread, what the primary has sent and what it has counted are the same whenever INFO is answered.
    let (primary, replica) = (node(&[("io-threads", "1")]), node(&[("io-threads", "1")]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    are_same(&mut of_primary, &mut of_replica);
    // What is sent beside the stream: the synchronisation.
    let beside = |client: &mut Client| {
        let sent = client.info_number("stats", "total_net_repl_output_bytes");
        sent as i64 - number(client, "master_repl_offset") as i64
    };
    let synchronisation = beside(&mut of_primary);
    // While the worker sleeps nothing is applied, and the stream waits in the connection. A machine that stalls for longer than the
    // sleep makes the test easier, and no failure.
    eventually("it sleeps", || {
        of_replica.send(b"DEBUG SLEEP 1\r\n");
        of_primary.run("SET k 0");
        let sleeps = of_primary.run("WAIT 1 20") == "(integer) 0";
        if !sleeps {
            assert_eq!(of_replica.read(), "OK");
        }
        sleeps
    });
    for n in 1..=2000 {
        of_primary.run(&format!("SET k {n}"));
    }
    eventually("everything is sent", || beside(&mut of_primary) == synchronisation);
    drop(of_primary);
    primary.signal(SIGKILL);
    assert_eq!(of_replica.read(), "OK");
    assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(of_replica.run("GET k"), "\"2000\"");
}

// --- what replicas show ---

#[test]
fn expired_fields_are_hidden_until_the_primary_removes_them() {
    let (primary, replica) = (node(&[]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("DEBUG SET-ACTIVE-EXPIRE 0");
    follow(&mut of_replica, primary.port);
    of_primary.run("HSET h soon 1 stays 2 later 3");
    of_primary.run("HPEXPIRE h 100000000 FIELDS 1 later");
    of_primary.run("HPEXPIRE h 30 FIELDS 1 soon");
    eventually("it is hidden", || {
        of_replica.run("HEXISTS h soon") == "(integer) 0" && of_replica.run("HLEN h") == "(integer) 2"
    });
    for (line, reply) in [
        ("HGET h soon", "(nil)"),
        ("HGET h later", "\"3\""),
        ("HMGET h soon stays", "1) (nil)\n2) \"2\""),
        ("HSTRLEN h soon", "(integer) 0"),
        ("HPTTL h FIELDS 2 soon stays", "1) (integer) -2\n2) (integer) -1"),
        ("EVAL \"return redis.call('HGET', 'h', 'soon')\" 0", "(nil)"),
    ] {
        assert_eq!(of_replica.run(line), reply, "{line}");
    }
    for line in ["HGETALL h", "HKEYS h", "HSCAN h 0", "HRANDFIELD h 10", "HRANDFIELD h -20", "HRANDFIELD h"] {
        let reply = of_replica.run(line);
        assert!(!reply.contains("soon"), "{line}: {reply}");
    }
    for line in ["HGETALL h", "HKEYS h", "HSCAN h 0", "HRANDFIELD h 10"] {
        let reply = of_replica.run(line);
        assert!(reply.contains("stays") && reply.contains("later"), "{line}: {reply}");
    }
    of_replica.run("SELECT 0");
    // Hidden, and still there: the datasets are equal when the primary has removed it.
    of_primary.run("HGET h soon");
    are_same(&mut of_primary, &mut of_replica);
    of_primary.run("HPEXPIRE h 1 FIELDS 2 stays later");
    eventually("all are hidden", || of_replica.run("HLEN h") == "(integer) 0");
    for (line, reply) in
        [("HGETALL h", "(empty array)"), ("HRANDFIELD h 5", "(empty array)"), ("HRANDFIELD h", "(nil)")]
    {
        assert_eq!(of_replica.run(line), reply, "{line}");
    }
    // A promoted replica removes them by itself.
    assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
    eventually("they are gone", || of_replica.run("EXISTS h") == "(integer) 0");
}

#[test]
fn without_a_journal_a_saved_dataset_goes_on_where_it_was() {
    let folders = [0; 2].map(|_| Arc::new(tempfile::tempdir().unwrap()));
    let start = |at: usize, more: &[(&str, &str)]| Node::start_in(&folders[at], None, &[QUIET, more].concat());
    let (mut primary, mut replica) = (start(0, &[("save", "3600 1")]), start(1, &[("save", "3600 1")]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    of_primary.run("SELECT 3");
    of_primary.run("SET k 1");
    are_same(&mut of_primary, &mut of_replica);
    let id = of_primary.info("replication", "master_replid");
    // The replica first: it asks for what it has missed.
    replica.terminate();
    assert!(replica.ended().success());
    of_primary.run("SET k 2");
    let followed = format!("127.0.0.1 {}", primary.port);
    let replica = start(1, &[("save", "3600 1"), ("replicaof", &followed)]);
    let mut of_replica = persist::loaded(&replica);
    is_up(&mut of_replica);
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "1");
    // Then the primary: its stream goes on under another id, behind what both have.
    drop(of_primary);
    primary.terminate();
    assert!(primary.ended().success());
    let primary = start(0, &[("save", "3600 1")]);
    let mut of_primary = persist::loaded(&primary);
    assert_eq!(of_primary.info("replication", "master_replid2"), id);
    follow(&mut of_replica, primary.port);
    of_primary.run("SET k 3");
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "0");
}

// --- damage and rudeness ---

/// Passes on what goes between a replica and its primary, and puts garbage into the primary's stream when it is told to.
fn damager(primary: u16, damages: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for replica in listener.incoming() {
            let (mut replica, Ok(mut primary)) = (replica.unwrap(), TcpStream::connect(("127.0.0.1", primary))) else {
                return;
            };
            let (mut from_replica, mut to_primary) = (replica.try_clone().unwrap(), primary.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_replica, &mut to_primary));
            let damages = Arc::clone(&damages);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(1..) = primary.read(&mut bytes[..1]) {
                    if damages.swap(false, Relaxed) {
                        bytes[0] ^= 0xff;
                    }
                    if replica.write_all(&bytes[..1]).is_err() {
                        break;
                    }
                }
                // Either side may have ended it.
                let _ = (replica.shutdown(Shutdown::Both), primary.shutdown(Shutdown::Both));
            });
        }
    });
    port
}

#[test]
fn a_damaged_stream_ends_in_a_full_synchronisation() {
    let (primary, replica) = (node(&[]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("SET k 1");
    let damages = Arc::<AtomicBool>::default();
    follow(&mut of_replica, damager(primary.port, Arc::clone(&damages)));
    of_primary.run("SET k 2");
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "1");
    damages.store(true, Relaxed);
    of_primary.run("SET k 3");
    eventually("it is synchronised anew", || of_primary.info("stats", "sync_full") == "2");
    assert_eq!(
        of_replica.info("replication", "replica_last_failure"),
        "a command must begin here in the primary's stream, but something else was found"
    );
    is_up(&mut of_replica);
    of_primary.run("SET k 4");
    are_same(&mut of_primary, &mut of_replica);
}

#[test]
fn garbage_at_any_step_of_a_handshake_harms_nobody() {
    let primary = node(&[("repl-timeout", "5")]);
    let mut client = primary.connect();
    client.run("SET k 1");
    let steps: &[&[u8]] = &[
        b"",
        b"PING\r\n",
        b"REPLCONF listening-port 7000\r\n",
        b"REPLCONF capa eof capa psync2 capa flint\r\n",
        b"PSYNC ? -1\r\n",
        b"SYNC\r\n",
        b"PSYNC ? -1\r\nREPLCONF ACK 0\r\n",
    ];
    let garbage: &[&[u8]] = &[
        b"\x00\xff\xfe\x16\x03\x01",
        b"*-5\r\n",
        b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$20\r\n99999999999999999999\r\n",
        b"*3\r\n$99999999999\r\n",
        b"*2\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n",
        b"GET k\r\nFLUSHALL\r\n",
    ];
    for step in steps {
        for garbage in garbage {
            // FLUSHALL of a client is a client's right.
            if !step.windows(4).any(|word| word == b"SYNC") && garbage.ends_with(b"FLUSHALL\r\n") {
                continue;
            }
            let mut rude = primary.connect();
            rude.send(step).send(garbage);
            assert_eq!(client.run("GET k"), "\"1\"");
            drop(rude);
        }
    }
    eventually("they are gone", || client.info("replication", "connected_slaves") == "0");
    let replica = node(&[]);
    let mut of_replica = replica.connect();
    follow(&mut of_replica, primary.port);
    are_same(&mut client, &mut of_replica);
}

#[test]
fn a_rude_primary_costs_a_replica_nothing_but_the_link() {
    let id = "0123456789012345678901234567890123456789";
    let answers = [
        vec![b"\x00\xff\xfe\r\n".to_vec()],
        vec![b"-ERR no\r\n".to_vec()],
        vec![vec![b'x'; 100_000]],
        vec![b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC what 1\r\n".to_vec()],
        vec![format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} -7\r\n").into_bytes()],
        vec![format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+CONTINUE {id}\r\n").into_bytes()],
        vec![format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n$-3\r\n").into_bytes()],
        vec![format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n$9\r\nno dump!!").into_bytes()],
        vec![format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n-ERR no dump\r\n").into_bytes()],
    ];
    let replica = node(&[]);
    let mut client = replica.connect();
    client.run("SET own 1");
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let words = String::from_utf8_lossy(&answer.concat()).chars().take(90).collect::<String>();
        thread::spawn(move || {
            for replica in listener.incoming() {
                let mut replica = replica.unwrap();
                thread::spawn({
                    let answer = answer.concat();
                    move || {
                        // The replica may end it at any time.
                        let _ = replica.write_all(&answer);
                        let _ = replica.shutdown(Shutdown::Write);
                        let _ = std::io::copy(&mut replica, &mut std::io::sink());
                    }
                });
            }
        });
        assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK", "{words}");
        eventually("it says why there is no link", || !client.info("replication", "master_link_error").is_empty());
        assert_eq!(client.info("replication", "master_link_status"), "down", "{words}");
        assert_eq!(client.run("GET own"), "\"1\"", "{words}");
    }
    assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(client.run("SET own 2"), "OK");
}

#[test]
fn a_peer_that_announces_less_gets_less() {
    let primary = node(&[]);
    let mut client = primary.connect();
    client.run("SET k 1");
    let real = node(&[]);
    follow(&mut real.connect(), primary.port);
    let (id, offset) = (client.info("replication", "master_replid"), number(&mut client, "master_repl_offset"));
    // The primary's last line, of as many as there are words.
    let said = |words: &[&str]| {
        let mut peer = TcpStream::connect(("127.0.0.1", primary.port)).unwrap();
        peer.write_all(words.iter().map(|line| format!("{line}\r\n")).collect::<String>().as_bytes()).unwrap();
        let lines = BufReader::new(peer).lines().map(Result::unwrap).filter(|line| !line.is_empty());
        lines.take(words.len()).last().unwrap()
    };
    let ask = format!("PSYNC {id} {}", offset + 1);
    assert_eq!(said(&[&ask]), "+CONTINUE");
    assert_eq!(said(&["REPLCONF capa psync2", &ask]), format!("+CONTINUE {id}"));
    // Up to where the stream is shared: only for who understands it.
    let beyond = format!("PSYNC {id} {}", offset + 1000);
    assert_eq!(said(&[&beyond]), format!("+FULLRESYNC {id} {offset}"));
    let newer = "REPLCONF capa psync2 capa tail capa something-newer";
    assert_eq!(said(&[newer, &beyond]), format!("+FULLRESYNC {id} {offset} {offset}"));
    assert_eq!(said(&["PSYNC ? -1"]), format!("+FULLRESYNC {id} {offset}"));
    assert!(said(&["SYNC"]).starts_with('$'));
    // The dump while it is written, and its length beforehand.
    assert_eq!(said(&["REPLCONF capa pieces", "PSYNC ? -1", "PING"]), "$PIECES");
    let whole = said(&["REPLCONF capa flint", "PSYNC ? -1", "PING"]);
    assert!(whole[1..].parse().is_ok_and(|bytes: u64| bytes > 0), "{whole}");
}

/// A primary that answers PSYNC with a dataset in pieces: it sends what it is told to, and ends the link behind that.
fn in_pieces() -> (u16, std::sync::mpsc::Sender<&'static [u8]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, pieces) = std::sync::mpsc::channel::<&[u8]>();
    thread::spawn(move || {
        let (mut replica, _) = listener.accept().unwrap();
        let id = "0123456789012345678901234567890123456789";
        let answers = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n$PIECES\r\n");
        replica.write_all(answers.as_bytes()).unwrap();
        pieces.iter().for_each(|piece| replica.write_all(piece).unwrap());
        replica.shutdown(Shutdown::Write).unwrap();
        // The replica has something to say, and must not be reset for it.
        let _ = std::io::copy(&mut replica, &mut std::io::sink());
    });
    (port, sender)
}

/// Version 12, without a key and without a checksum; the stream follows.
const EMPTY_DUMP: &[u8] = b"$18\r\nREDIS0012\xff\0\0\0\0\0\0\0\0$0\r\n";

/// The journal has the primary's commands as they came. Once, one that a newer Redis has kept the dataset from being loaded again.
#[test]
fn a_command_that_has_failed_here_does_not_keep_the_dataset_from_coming_back() {
    let directives = [QUIET, &[("appendonly", "yes")]].concat();
    let replica = node(&directives);
    let mut client = replica.connect();
    let (port, sender) = in_pieces();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    let transaction = b"*1\r\n$5\r\nMULTI\r\n*2\r\n$6\r\nNOSUCH\r\n$1\r\n2\r\n*3\r\n$3\r\nSET\r\n$4\r\nlost\r\n$1\r\n1\r\n*1\r\n$4\r\nEXEC\r\n";
    for piece in [EMPTY_DUMP, b"*1\r\n$6\r\nNOSUCH\r\n", transaction, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n"] {
        sender.send(piece).unwrap();
    }
    eventually("it has everything", || client.run("GET k") == "\"1\"");
    // Both commands, and the transaction.
    eventually("its errors are counted", || number(&mut client, "replica_failed_commands") == 3);
    assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(client.run("SET own 1"), "OK");
    let replica = persist::kill(replica, &directives);
    let mut client = persist::loaded(&replica);
    assert_eq!(client.run("MGET k own lost"), "1) \"1\"\n2) \"1\"\n3) (nil)");
    let said = "a command that the primary has run fails here, so the datasets may differ: ";
    assert_eq!(replica.log().matches(said).count(), 6, "in both runs: {}", replica.log());
}

/// Once, it became a primary without a journal, and what it acknowledged was gone after a restart.
#[test]
fn a_replica_whose_journal_cannot_begin_is_not_promoted() {
    let directives = [QUIET, &[("appendonly", "yes")]].concat();
    let (primary, replica) = (node(&[]), node(&directives));
    let mut client = replica.connect();
    // No checkpoint can be written while this is there.
    let obstacle = persist::folder(&replica).join("base.new");
    std::fs::create_dir_all(obstacle.join("x")).unwrap();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
    eventually("its journal has ended, and none begins", || client.info("persistence", "aof_enabled") == "0");
    eventually("the link is down", || client.info("replication", "master_link_status") == "down");
    let refused = client.run("REPLICAOF NO ONE");
    assert!(refused.contains("its journal cannot begin: "), "{refused}");
    assert_eq!(client.info("replication", "role"), "slave");
    assert_eq!(client.run("SET k 1"), "(error) READONLY You can't write against a read only replica.");
    std::fs::remove_dir_all(obstacle).unwrap();
    assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(client.run("SET k 1"), "OK");
    let replica = persist::kill(replica, &directives);
    assert_eq!(persist::loaded(&replica).run("GET k"), "\"1\"");
}

#[test]
fn a_dataset_that_comes_in_pieces_counts_when_it_is_whole() {
    // Two keys of database 0 and the end, without a checksum.
    let dump = [
        &b"$9\r\nREDIS0012"[..],
        b"\n\n$11\r\n\xfe\0\0\x01a\x011\0\x01b\x01",
        b"$2\r\n2\xff",
        b"$8\r\n\0\0\0\0\0\0\0\0",
        b"$0\r\n",
    ];
    let replica = node(&[]);
    let mut client = replica.connect();
    // As much as a reader takes at once, and more: whoever may load it while it comes has begun to.
    let long: &[u8] = Vec::leak([&b"$400000\r\n"[..], &[b'x'; 400_000]].concat());
    let begun = [&b"$19\r\nREDIS0012\xfe\0\0\x01a\x80\0\x06\x1a\x80"[..], long];
    for own in ["", "SET own 1"] {
        if !own.is_empty() {
            assert_eq!(client.run(own), "OK");
        }
        // The primary gives up, or is gone: what was here stays. Or what it sends is whole, and no dump.
        for (last, why) in [
            (&b"-ERR no room\r\n"[..], "it cannot send the rest of its dataset: -ERR no room"),
            (b"", "the connection is lost"),
            (b"$9\r\nno dump!!$0\r\n", "byte "),
        ] {
            let (port, sender) = in_pieces();
            assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
            begun.iter().chain([&last]).for_each(|piece| sender.send(piece).unwrap());
            drop(sender);
            eventually(why, || client.info("replication", "master_link_error").contains(why));
            eventually("it is not loading", || !client.run("DBSIZE").starts_with("(error)"));
            let stays = !own.is_empty() && why != "byte ";
            assert_eq!(client.run("DBSIZE"), format!("(integer) {}", u8::from(stays)), "{why}");
        }
        let (port, sender) = in_pieces();
        assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
        dump.iter().for_each(|piece| sender.send(piece).unwrap());
        is_up(&mut client);
        assert_eq!(client.run("MGET a b own"), "1) \"1\"\n2) \"2\"\n3) (nil)");
        drop(sender);
        assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
        assert_eq!(client.run("FLUSHALL"), "OK");
    }
}

/// A replica without a dataset loads what comes while it comes. It may be told to follow nobody meanwhile.
#[test]
fn a_dataset_that_still_comes_can_be_given_up() {
    let replica = node(&[]);
    let mut client = replica.connect();
    let (port, sender) = in_pieces();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    // The window of the reader has 256 KB.
    sender.send(b"$19\r\nREDIS0012\xfe\0\0\x01a\x80\0\x06\x1a\x80").unwrap();
    let long: &[u8] = Vec::leak([&b"$400000 500000\r\n"[..], &[b'x'; 400_000]].concat());
    sender.send(long).unwrap();
    eventually("it is loading", || client.run("GET a").starts_with("(error) LOADING"));
    assert_eq!(client.info("replication", "master_sync_total_bytes"), "500000");
    assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
    eventually("it is not loading", || client.run("DBSIZE") == "(integer) 0");
    assert_eq!(client.run("SET own 1"), "OK");
    drop(sender);
}

// --- replicas that stop, and the end of a primary ---

#[test]
fn a_stopped_replica_is_dropped_and_writers_never_wait() {
    let primary = node(&[("repl-timeout", "2"), ("repl-backlog-size", "1mb"), ("ram-limit", "200mb")]);
    let replica = node(&[]);
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    of_primary.run("SET k 1");
    are_same(&mut of_primary, &mut of_replica);
    replica.signal(SIGSTOP);
    // More than the backlog and the sockets hold.
    let value = "x".repeat(1 << 20);
    for n in 0..40 {
        let key = format!("k{}", n % 4);
        assert_eq!(of_primary.words(&[b"SET", key.as_bytes(), value.as_bytes()]), "OK");
    }
    eventually("it is dropped", || of_primary.info("replication", "connected_slaves") == "0");
    assert_eq!(of_primary.run("SET k 2"), "OK");
    replica.signal(SIGCONT);
    eventually("it has come again", || of_replica.run("GET k") == "\"2\"");
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "2");

    // One that is silent, although there is nothing to send.
    replica.signal(SIGSTOP);
    log_has(&primary, "has sent nothing for repl-timeout");
    eventually("it is dropped", || of_primary.info("replication", "connected_slaves") == "0");
    replica.signal(SIGCONT);
    is_up(&mut of_replica);
    are_same(&mut of_primary, &mut of_replica);
}

#[test]
fn the_end_of_a_primary_waits_for_its_replicas_unless_it_is_aborted() {
    let (mut primary, replica) = (node(&[("shutdown-timeout", "1000")]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    of_primary.run("SET k 1");
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.run("SHUTDOWN ABORT"), "(error) ERR No shutdown in progress.");
    replica.signal(SIGSTOP);
    // Its threads do not stop at the same moment.
    eventually("it is stopped", || {
        of_primary.run("SET k 2");
        of_primary.run("WAIT 1 20") == "(integer) 0"
    });
    let mut ending = primary.connect();
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || is_ending(&mut of_primary));
    assert_eq!(of_primary.info("clients", "blocked_clients"), "1");
    let mut writer = primary.connect();
    writer.send(b"SET k 3\r\n");
    assert_eq!(of_primary.run("SHUTDOWN ABORT"), "OK");
    assert_eq!(ending.read(), "(error) ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(writer.read(), "OK");
    eventually("it goes on", || !is_ending(&mut of_primary));

    primary.signal(SIGTERM);
    eventually("it waits", || is_ending(&mut of_primary));
    replica.signal(SIGCONT);
    assert!(primary.ended().success());
    assert!(primary.log().contains("1 of 1 replicas are in sync"));
    eventually("the replica has all", || of_replica.run("GET k") == "\"3\"");

    // Not with NOW.
    let mut primary = node(&[("shutdown-timeout", "1000")]);
    let mut of_primary = primary.connect();
    follow(&mut of_replica, primary.port);
    replica.signal(SIGSTOP);
    of_primary.run("SET k 4");
    assert_eq!(of_primary.send(b"SHUTDOWN NOW\r\n").rest(), b"");
    assert!(primary.ended().success());
    replica.signal(SIGCONT);
}

/// A script that has begun before the end writes behind it, and is answered. The replica had everything when the end began.
#[test]
fn the_end_of_a_primary_waits_for_a_write_that_runs() {
    let (mut primary, replica) = (node(&[("shutdown-timeout", "1000"), ("io-threads", "2")]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    of_primary.run("SET k 1");
    are_same(&mut of_primary, &mut of_replica);
    let script = "local function ends() return redis.call('INFO', 'server'):find('shutdown_in_milliseconds:') end \
                  while not ends() do end \
                  for n = 1, 300 do ends() end \
                  redis.call('SET', KEYS[1], '2') return 'written'";
    let mut writer = primary.connect();
    writer.send(format!("EVAL \"{script}\" 1 k\r\n").as_bytes());
    eventually("the script runs", || of_primary.run("PING").starts_with("(error) BUSY"));
    primary.signal(SIGTERM);
    assert_eq!(writer.read(), "\"written\"");
    assert!(primary.ended().success());
    eventually("the replica has it", || of_replica.run("GET k") == "\"2\"");
}

/// SHUTDOWN ABORT ends the pause that SHUTDOWN has made, and no other.
#[test]
fn a_clients_pause_outlives_an_end_that_is_given_up() {
    let (primary, replica) = (node(&[("shutdown-timeout", "1000")]), node(&[]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    replica.signal(SIGSTOP);
    eventually("it is stopped", || {
        of_primary.run("SET k 1");
        of_primary.run("WAIT 1 20") == "(integer) 0"
    });
    assert_eq!(of_primary.run("CLIENT PAUSE 1000000 WRITE"), "OK");
    let mut ending = primary.connect();
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || is_ending(&mut of_primary));
    assert_eq!(of_primary.run("SHUTDOWN ABORT"), "OK");
    assert_eq!(ending.read(), "(error) ERR Errors trying to SHUTDOWN. Check logs.");
    let mut writer = primary.connect();
    writer.send(b"SET k 2\r\n");
    eventually("it is held", || of_primary.info("clients", "blocked_clients") == "1");
    assert_eq!(of_primary.run("GET k"), "\"1\"");

    // And the other way round: a client does not end the pause of SHUTDOWN.
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || is_ending(&mut of_primary));
    assert_eq!(of_primary.run("CLIENT UNPAUSE"), "OK");
    let mut other = primary.connect();
    other.send(b"SET other 1\r\n");
    eventually("three wait", || of_primary.info("clients", "blocked_clients") == "3");
    assert_eq!(of_primary.run("SHUTDOWN ABORT"), "OK");
    assert_eq!(writer.read(), "OK");
    assert_eq!(other.read(), "OK");
    replica.signal(SIGCONT);
}
