//! Replies, messages and writers wait for the journal, whose device a test stops.

use crate::common::{Client, Node, eventually};
use crate::databases::Operator;
use journal::{Log, Opened, Policy, Settings};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// Of the node that runs in this process.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// Runs in the node's process: what a test tells it.
pub fn control(node: &Arc<node::Node>, words: &[&str]) -> String {
    let database = node.database(node::DEFAULT_NAME).expect("the default database");
    match *words {
        ["open", policy] => {
            let policy = match policy {
                "always" => Policy::Always,
                "no" => Policy::No,
                _ => Policy::EverySecond,
            };
            let settings = Settings { log_id: [1; 16], file_bytes: 512 << 10, ring_bytes: 128 << 10, policy };
            let folder = node.state_dir().join("journal");
            let log = Opened::open(&folder, &settings, 0).unwrap().start().unwrap();
            database.set_change_log(database.journaling().clone());
            database.journaling().attach(Arc::clone(&log));
            assert!(LOG.set(log).is_ok());
            String::new()
        }
        ["detach"] => {
            database.journaling().detach();
            String::new()
        }
        ["pause"] => LOG.get().map(|log| log.pause(true)).map(|()| String::new()).unwrap(),
        ["go"] => LOG.get().map(|log| log.pause(false)).map(|()| String::new()).unwrap(),
        ["fail"] => LOG.get().map(|log| log.fail("the device is gone")).map(|()| String::new()).unwrap(),
        ["close"] => LOG.get().map(|log| format!("{:?}", log.close())).unwrap(),
        ["records"] => LOG.get().map(|log| log.figures().records.to_string()).unwrap(),
        ["durable"] => LOG.get().map(|log| (log.durable() == log.position()).to_string()).unwrap(),
        ["behind"] => LOG.get().map(|log| log.is_behind().to_string()).unwrap(),
        _ => panic!("{words:?}"),
    }
}

/// A node whose default database has a journal.
pub fn start(policy: &str, directives: &[(&str, &str)]) -> (Node, Operator, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let node =
        Node::start(&[directives, &[("state-dir", folder.path().to_str().unwrap()), ("io-threads", "2")]].concat());
    let mut operator = Operator::of(folder.path());
    assert_eq!(operator.run(&format!("journal open {policy}")), "");
    (node, operator, folder)
}

/// Both workers have sent what they may send. A PING that comes after a command is answered after what the command may send at once. Replies
/// of a database wait for its journal, so the PINGs go to another database, which has the same threads. A connection goes to the worker
/// with the fewest, so two of them reach both. The second round is for messages to the other worker, which the first round has posted.
pub fn have_sent(operator: &mut Operator) {
    let port = operator.create("marker", 32, 32);
    let mut clients = [(); 2].map(|()| Client::connect(port));
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(client.run("PING"), "PONG");
        }
    }
    assert_eq!(operator.run("delete marker"), "done");
}

/// Nothing has arrived. [`have_sent`] must have been called before.
pub fn is_silent(socket: &TcpStream) {
    socket.set_nonblocking(true).unwrap();
    let read = socket.peek(&mut [0; 100]);
    assert!(read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "what came: {read:?}");
    socket.set_nonblocking(false).unwrap();
}

/// A connection, and its socket once more.
pub fn connect(node: &Node) -> (Client, TcpStream) {
    let socket = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
    (Client::new(socket.try_clone().unwrap()), socket)
}

#[test]
fn with_always_nothing_leaves_before_it_is_durable() {
    let (node, mut operator, _folder) = start("always", &[]);
    let (mut writer, writer_socket) = connect(&node);
    let (mut reader, reader_socket) = connect(&node);
    let (mut subscriber, subscriber_socket) = connect(&node);
    let (mut monitor, monitor_socket) = connect(&node);
    let (mut waiter, waiter_socket) = connect(&node);
    let (mut tracker, tracker_socket) = connect(&node);
    let (mut script, script_socket) = connect(&node);
    assert_eq!(writer.run("SET k 1"), "OK");
    assert_eq!(writer.run("CONFIG SET notify-keyspace-events KEA"), "OK");
    subscriber.run("SUBSCRIBE __keyspace@0__:k");
    assert_eq!(monitor.run("MONITOR"), "OK");
    tracker.run("HELLO 3");
    tracker.run("CLIENT TRACKING ON BCAST PREFIX k");
    waiter.send(b"BLPOP list 0\r\n");
    eventually("the client is blocked", || node.connect().info("clients", "blocked_clients") == "1");
    // Its lines up to here are read.
    assert_eq!(reader.run("ECHO marker"), "\"marker\"");
    while !monitor.read().contains("marker") {}

    operator.run("journal pause");
    writer.send(b"SET k 2\r\nRPUSH list a\r\n");
    eventually("the commands have run", || operator.run("journal records").parse::<u32>().unwrap() >= 4);
    reader.send(b"GET k\r\n");
    script.send(b"MULTI\r\nINCR k\r\nEXEC\r\nEVAL \"return redis.call('incr','k')\" 0\r\n");
    eventually("they have run", || operator.run("journal records").parse::<u32>().unwrap() >= 6);
    let sockets =
        [writer_socket, reader_socket, subscriber_socket, monitor_socket, waiter_socket, tracker_socket, script_socket];
    have_sent(&mut operator);
    sockets.iter().for_each(is_silent);

    operator.run("journal go");
    assert_eq!((writer.read().as_str(), writer.read().as_str()), ("OK", "(integer) 1"));
    assert!(["\"2\"", "\"3\"", "\"4\""].contains(&reader.read().as_str()));
    assert!(subscriber.read().contains("set"));
    assert!(tracker.read().contains("invalidate"));
    assert_eq!(waiter.read(), "1) \"list\"\n2) \"a\"");
    let replies: Vec<String> = (0..4).map(|_| script.read()).collect();
    assert_eq!(replies.join(" "), "OK QUEUED 1) (integer) 3 (integer) 4");
    assert_eq!(operator.run("journal durable"), "true");
    assert_eq!(writer.run("GET k"), "\"4\"");
}

#[test]
fn a_message_of_a_transaction_or_script_waits_for_the_writes_before_it() {
    let (node, mut operator, _folder) = start("always", &[]);
    let (mut subscriber, subscriber_socket) = connect(&node);
    subscriber.run("SUBSCRIBE news");
    let mut writer = node.connect();
    let transaction = ("MULTI\r\nSET k 1\r\nPUBLISH news written\r\nEXEC\r\n", 4, "1) OK\n2) (integer) 1");
    let script =
        ("EVAL \"redis.call('set','k','2') return redis.call('publish','news','written')\" 1 k\r\n", 1, "(integer) 1");
    for (commands, replies, last) in [transaction, script] {
        let before: u32 = operator.run("journal records").parse().unwrap();
        operator.run("journal pause");
        writer.send(commands.as_bytes());
        eventually("they have run", || operator.run("journal records").parse::<u32>().unwrap() > before);
        have_sent(&mut operator);
        is_silent(&subscriber_socket);
        operator.run("journal go");
        assert_eq!(subscriber.read(), "1) \"message\"\n2) \"news\"\n3) \"written\"");
        let replies: Vec<String> = (0..replies).map(|_| writer.read()).collect();
        assert_eq!(replies.last().unwrap(), last);
    }
}

#[test]
fn with_everysec_replies_leave_at_once_and_writers_wait_only_for_room() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    operator.run("journal pause");
    let (mut writer, writer_socket) = connect(&node);
    let mut reader = node.connect();
    let value = "v".repeat(1000);
    let mut written = 0;
    while operator.run("journal behind") == "false" {
        assert_eq!(writer.run(&format!("SET k {value}")), "OK");
        written += 1;
        assert!(written < 200, "the ring is larger than it was said");
    }
    assert!(written > 80, "{written}");
    writer.send(b"SET k 2\r\nSET k 3\r\n");
    let (mut script, script_socket) = connect(&node);
    script.send(b"EVAL \"return redis.call('incr','n')\" 0\r\n");
    let (mut exec, exec_socket) = connect(&node);
    exec.send(b"MULTI\r\nPING\r\nEXEC\r\n");
    assert_eq!((exec.read(), exec.read(), exec.read()), ("OK".into(), "QUEUED".into(), "1) PONG".into()));
    exec.send(b"MULTI\r\nINCR n\r\nEXEC\r\n");
    assert_eq!(exec.read(), "OK");
    have_sent(&mut operator);
    [&writer_socket, &script_socket, &exec_socket].into_iter().for_each(is_silent);
    assert_eq!(reader.run("STRLEN k"), "(integer) 1000");
    operator.run("journal go");
    assert_eq!((writer.read(), writer.read()), ("OK".into(), "OK".into()));
    let mut counts = [script.read(), {
        exec.read();
        exec.read()
    }];
    counts.sort();
    // Either may be first.
    assert!(counts == ["(integer) 1", "1) (integer) 2"] || counts == ["(integer) 2", "1) (integer) 1"], "{counts:?}");
}

#[test]
fn expiry_rests_while_the_journal_is_behind() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    let mut client = node.connect();
    operator.run("journal pause");
    let value = "v".repeat(1000);
    while operator.run("journal behind") == "false" {
        // It expires soon after the journal is behind, or at once.
        assert_eq!(client.run(&format!("SET k:{} {value} PX 1000", operator.run("journal records"))), "OK");
    }
    let records = operator.run("journal records");
    let keys = client.run("DBSIZE");
    // The time in which they would expire: their 1000 ms, and some rounds of the background expiry. Nothing shows that a round has rested.
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(operator.run("journal records"), records);
    assert_eq!(client.run("DBSIZE"), keys);
    operator.run("journal go");
    eventually("they expire", || client.run("DBSIZE") == "(integer) 0");
}

#[test]
fn after_a_failure_writes_are_refused_reads_go_on_and_who_waited_is_closed() {
    let (node, mut operator, _folder) = start("always", &[]);
    let mut client = node.connect();
    assert_eq!(client.run("SET k 1"), "OK");
    operator.run("journal pause");
    let mut waits = node.connect();
    waits.send(b"SET k 2\r\n");
    eventually("it has run", || operator.run("journal records").parse::<u32>().unwrap() >= 2);
    operator.run("journal fail");
    assert_eq!(waits.reply(), None);
    let refusal = "(error) MISCONF Errors writing to the AOF file: the device is gone";
    assert_eq!(client.run("SET k 3"), refusal);
    assert_eq!(client.run("GET k"), "\"2\"");
    assert_eq!(client.run("EVAL \"return redis.call('get','k')\" 0"), "\"2\"");
    assert!(client.run("EVAL \"return redis.call('incr','k')\" 0").contains("MISCONF"));
    assert_eq!(client.run("MULTI"), "OK");
    assert_eq!(client.run("INCR k"), refusal);
    assert!(client.run("EXEC").starts_with("(error) EXECABORT"));
    assert!(operator.run("journal close").contains("the device is gone"));
    operator.run("journal detach");
    assert_eq!(client.run("SET k 3"), "OK");
}

#[test]
fn a_journal_that_is_closed_holds_nobody() {
    let (node, mut operator, _folder) = start("always", &[]);
    let mut client = node.connect();
    operator.run("journal pause");
    client.send(b"SET k 1\r\n");
    eventually("it has run", || operator.run("journal records") == "1");
    assert_eq!(operator.run("journal close"), "Ok(())");
    assert_eq!(client.read(), "OK");
    assert_eq!(client.run("SET k 2"), "OK");
}
