//! Connections among each other: the register, pauses, slow readers, idle ones, and how many there may be.

mod common;

use common::{Client, Node, eventually};
use resp::client::{Value, encode_command};
use std::io::Write;
use std::time::{Duration, Instant};

fn id(client: &mut Client) -> i64 {
    match client.value(&[b"CLIENT", b"ID"]) {
        Some(Value::Int(id)) => id,
        other => panic!("CLIENT ID answered {other:?}"),
    }
}

#[test]
fn the_list_shows_every_client_and_what_it_said_of_itself() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    assert_eq!(a.run("CLIENT SETNAME alpha"), "OK");
    assert_eq!(a.run("CLIENT SETINFO lib-name redis-test"), "OK");
    assert_eq!(a.run("CLIENT SETINFO lib-ver 1.2"), "OK");
    assert_eq!(a.run("SELECT 3"), "OK");
    let (a_id, b_id) = (id(&mut a), id(&mut b));
    let list = b.run("CLIENT LIST");
    assert_eq!(list.matches("id=").count(), 2, "{list}");
    assert!(list.contains(&format!("id={a_id} addr=127.0.0.1:")), "{list}");
    assert!(list.contains(" name=alpha age="), "{list}");
    assert!(list.contains(" db=3 ") && list.contains(" lib-name=redis-test lib-ver=1.2"), "{list}");
    assert_eq!(b.run(&format!("CLIENT LIST ID {a_id} {b_id}")).matches("id=").count(), 2);
    assert!(b.run("CLIENT INFO").starts_with(&format!("\"id={b_id} ")));
    assert_eq!(b.run("CLIENT LIST TYPE pubsub"), "\"\"");
    assert_eq!(b.run("CLIENT LIST TYPE nosuch"), "(error) ERR Unknown client type 'nosuch'");
}

#[test]
fn kill_ends_the_ones_it_names() {
    let node = Node::start(&[]);
    let (mut a, mut b, mut c) = (node.connect(), node.connect(), node.connect());
    let a_id = id(&mut a);
    assert_eq!(c.run(&format!("CLIENT KILL ID {a_id}")), "(integer) 1");
    assert_eq!(a.read(), "(closed)");
    assert_eq!(c.run(&format!("CLIENT KILL ID {a_id}")), "(integer) 0");
    b.run("PING");
    let address = b.stream.local_addr().unwrap();
    assert_eq!(c.run(&format!("CLIENT KILL {address}")), "OK");
    assert_eq!(b.read(), "(closed)");
    let (mut d, mut e) = (node.connect(), node.connect());
    for client in [&mut d, &mut e] {
        client.run("PING");
    }
    assert_eq!(c.run("CLIENT KILL TYPE normal"), "(integer) 2", "without itself");
    assert_eq!(d.read(), "(closed)");
    assert_eq!(c.run("CLIENT KILL TYPE normal SKIPME no"), "(integer) 1", "and now itself");
    assert_eq!(c.read(), "(closed)");
}

#[test]
fn a_killed_client_runs_nothing_of_what_it_has_sent() {
    let node = Node::start(&[("enable-debug-command", "yes"), ("io-threads", "1")]);
    let (mut a, mut b, mut sleeper) = (node.connect(), node.connect(), node.connect());
    let a_id = id(&mut a);
    for client in [&mut b, &mut sleeper] {
        client.run("PING");
    }
    // While the worker sleeps, the kill arrives and then a command of the killed.
    sleeper.send(b"DEBUG SLEEP 0.5\r\n");
    std::thread::sleep(Duration::from_millis(100));
    b.send(format!("CLIENT KILL ID {a_id}\r\n").as_bytes());
    std::thread::sleep(Duration::from_millis(100));
    a.send(b"SET k late\r\n");
    assert_eq!(b.read(), "(integer) 1");
    assert_eq!(a.read(), "(closed)");
    assert_eq!(b.run("GET k"), "(nil)");
}

#[test]
fn a_pause_of_writes_holds_writers_and_nobody_else() {
    let node = Node::start(&[]);
    let (mut writer, mut reader) = (node.connect(), node.connect());
    assert_eq!(reader.run("CLIENT PAUSE 60000 WRITE"), "OK");
    writer.send(b"SET k v\r\n");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(reader.run("GET k"), "(nil)");
    assert_eq!(reader.run("CLIENT UNPAUSE"), "OK");
    assert_eq!(writer.read(), "OK");
    assert_eq!(reader.run("GET k"), "\"v\"");
}

#[test]
fn a_pause_of_everything_ends_by_itself() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    assert_eq!(a.run("CLIENT PAUSE 200"), "OK");
    let started = Instant::now();
    assert_eq!(b.run("PING"), "PONG");
    assert!(started.elapsed() >= Duration::from_millis(150), "it did not wait");
}

#[test]
fn replies_can_be_switched_off_and_skipped() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.send(b"CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n");
    assert_eq!(client.read(), "\"1\"");
    client.send(b"CLIENT REPLY OFF\r\nSET a 2\r\nNOSUCH\r\nGET a\r\nCLIENT REPLY ON\r\nGET a\r\n");
    assert_eq!(client.read(), "OK");
    assert_eq!(client.read(), "\"2\"");
}

#[test]
fn one_too_many_is_told_so() {
    let node = Node::start(&[("maxclients", "3")]);
    let mut clients: Vec<Client> = (0..3).map(|_| node.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.run("PING"), "PONG");
    }
    let mut refused = node.connect();
    assert_eq!(refused.read(), "(error) ERR max number of clients reached");
    assert_eq!(refused.read(), "(closed)");
    assert_eq!(clients[0].info("stats", "rejected_connections"), "1");
    clients.pop();
    eventually("there is room again", || node.connect().run("PING") == "PONG");
}

#[test]
fn idle_clients_are_closed_after_timeout() {
    let node = Node::start(&[("timeout", "1")]);
    let mut idle = node.connect();
    let mut busy = node.connect();
    let started = Instant::now();
    idle.run("PING");
    while started.elapsed() < Duration::from_millis(3500) {
        assert_eq!(busy.run("PING"), "PONG");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(idle.read(), "(closed)");
}

#[test]
fn a_slow_reader_does_not_hold_up_others() {
    let node = Node::start(&[("io-threads", "1")]);
    let mut slow = node.connect();
    let value = vec![b'v'; 1_000_000];
    slow.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    for _ in 0..50 {
        encode_command(&[b"GET", b"k"], &mut bytes);
    }
    slow.send(&bytes);
    let mut other = node.connect();
    for _ in 0..100 {
        assert_eq!(other.run("PING"), "PONG");
    }
    let list = other.run("CLIENT LIST");
    assert!(list.contains(" events=rw "), "what it has not read is shown: {list}");
    for _ in 0..50 {
        assert_eq!(slow.reply(), Some(Value::Bulk(value.clone())));
    }
}

#[test]
fn who_owes_more_than_the_hard_limit_is_closed() {
    let node = Node::start(&[("client-output-buffer-limit", "normal 8mb 0 0")]);
    let mut client = node.connect();
    let value = vec![b'v'; 1_000_000];
    client.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    for _ in 0..100 {
        encode_command(&[b"GET", b"k"], &mut bytes);
    }
    client.send(&bytes);
    let mut other = node.connect();
    eventually("it is closed", || other.info("stats", "client_output_buffer_limit_disconnections") == "1");
    assert!(client.rest().len() < 100_000_000);
    assert_eq!(other.run("PING"), "PONG");
}

#[test]
fn who_stays_above_the_soft_limit_is_closed() {
    let node = Node::start(&[("client-output-buffer-limit", "normal 0 1mb 1")]);
    let mut client = node.connect();
    let value = vec![b'v'; 1_000_000];
    client.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    for _ in 0..50 {
        encode_command(&[b"GET", b"k"], &mut bytes);
    }
    client.send(&bytes);
    let mut other = node.connect();
    eventually("it is closed", || other.info("clients", "connected_clients") == "1");
}

#[test]
fn a_query_larger_than_its_limit_is_closed() {
    let node = Node::start(&[("client-query-buffer-limit", "1mb")]);
    let mut client = node.connect();
    // Refused in the middle of it: the rest cannot be written.
    let _ = client.stream.write_all(b"*2\r\n$4\r\nECHO\r\n$3000000\r\n");
    let _ = client.stream.write_all(&vec![b'x'; 3_000_000]);
    assert_eq!(client.rest(), b"");
    assert_eq!(node.connect().info("stats", "client_query_buffer_limit_disconnections"), "1");
}

#[test]
fn ten_thousand_idle_clients_cost_little_each() {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let maximum = files.maximum.unwrap_or(u64::MAX);
    let raised = rustix::process::Rlimit { current: files.maximum, maximum: files.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let count = 10_000.min(maximum.saturating_sub(200)) as usize;
    if count < 10_000 {
        eprintln!("only {count} connections: the limit of open files is {maximum}");
    }
    let node = Node::start(&[("maxclients", "10010")]);
    let mut watcher = node.connect();
    watcher.run("PING");
    let before = node.resident_bytes();
    let mut clients: Vec<Client> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = node.connect();
        // Each has used its buffers once.
        assert_eq!(client.run("PING"), "PONG");
        clients.push(client);
    }
    assert_eq!(watcher.info("clients", "connected_clients"), (count + 1).to_string());
    let each = (node.resident_bytes() - before) / count as u64;
    eprintln!("{each} bytes of RAM for an idle connection");
    assert!(each < 4096, "{each} bytes of RAM for an idle connection");
    for client in clients.iter_mut().step_by(97) {
        assert_eq!(client.run("PING"), "PONG");
    }
}

#[test]
fn connections_are_spread_over_the_workers() {
    let node = Node::start(&[("io-threads", "2")]);
    let mut clients: Vec<Client> = (0..8).map(|_| node.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.run("PING"), "PONG");
    }
    let tasks = |node: &Node| {
        let mut ticks = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap() {
            let path = task.unwrap().path();
            if std::fs::read_to_string(path.join("comm")).unwrap().starts_with("worker-") {
                ticks.push(path);
            }
        }
        ticks.len()
    };
    assert_eq!(tasks(&node), 2);
    assert_eq!(clients[0].info("server", "io_threads"), "2");
}
