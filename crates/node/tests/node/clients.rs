//! Connections and their limits: the register, pauses, slow readers, idle clients, the maximum number.

use crate::common::{Client, Node, eventually};
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
fn the_client_list_shows_every_client_and_its_attributes() {
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
    let node = Node::start(&[("io-threads", "1")]);
    let (mut a, mut b) = (node.connect(), node.connect());
    let a_id = id(&mut a);
    assert_eq!(b.run("PING"), "PONG");
    // While the node is stopped, first the kill arrives, then a command of the killed client.
    node.signal(libc::SIGSTOP);
    b.send(format!("CLIENT KILL ID {a_id}\r\n").as_bytes());
    a.send(b"SET k late\r\n");
    node.signal(libc::SIGCONT);
    assert_eq!(b.read(), "(integer) 1");
    assert_eq!(a.read(), "(closed)");
    assert_eq!(b.run("GET k"), "(nil)");
}

#[test]
fn a_pause_of_writes_delays_only_writers() {
    let node = Node::start(&[("io-threads", "1")]);
    let (mut writer, mut reader) = (node.connect(), node.connect());
    assert_eq!(writer.run("PING"), "PONG");
    assert_eq!(reader.run("CLIENT PAUSE 60000 WRITE"), "OK");
    writer.send(b"SET k v\r\n");
    // The only worker looks at the write before it looks at these, which came later.
    assert_eq!(reader.run("PING"), "PONG");
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
fn a_client_beyond_maxclients_gets_an_error() {
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
    let node = Node::start(&[("timeout", "2")]);
    let (mut idle, mut busy) = (node.connect(), node.connect());
    assert_eq!(idle.run("PING"), "PONG");
    let idle = std::thread::spawn(move || idle.read());
    let mut last = Instant::now();
    while !idle.is_finished() {
        // If the whole machine stood still for two seconds, this client was idle too.
        if busy.run("PING") != "PONG" {
            assert!(last.elapsed() >= Duration::from_secs(2), "closed although it was busy");
            busy = node.connect();
        }
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(idle.join().unwrap(), "(closed)");
}

#[test]
fn a_slow_reader_does_not_delay_others() {
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
fn a_client_with_output_above_the_hard_limit_is_closed() {
    let node = Node::start(&[("client-output-buffer-limit", "normal 8mb 0 0")]);
    let mut client = node.connect();
    let value = vec![b'v'; 1_000_000];
    client.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    for _ in 0..100 {
        encode_command(&[b"GET", b"k"], &mut bytes);
    }
    // The replies of a pipeline wait for the client, so they do not reach the limit.
    client.send(&bytes);
    (0..100).for_each(|_| assert_eq!(client.raw().map(|reply| reply.len()), Some(1_000_012)));
    // The reply to one command does not wait for itself.
    let keys = [&b"MGET"[..]].into_iter().chain(std::iter::repeat_n(&b"k"[..], 100));
    bytes.clear();
    encode_command(&keys.collect::<Vec<_>>(), &mut bytes);
    client.send(&bytes);
    let mut other = node.connect();
    eventually("it is closed", || other.info("stats", "client_output_buffer_limit_disconnections") == "1");
    assert!(client.rest().len() < 100_000_000);
    assert_eq!(other.run("PING"), "PONG");
}

/// The batch of a client that does not read pauses, and goes on although the client sends nothing more.
#[test]
fn a_client_that_has_sent_everything_gets_all_replies() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.value(&[b"SET", b"k", &vec![b'v'; 1_000_000]]);
    let mut bytes = Vec::new();
    (0..50).for_each(|_| encode_command(&[b"GET", b"k"], &mut bytes));
    encode_command(&[b"SET", b"last", b"1"], &mut bytes);
    client.send(&bytes).stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut other = node.connect();
    eventually("the replies wait", || {
        other.run("CLIENT LIST").contains(" cmd=get ") && other.run("GET last") == "(nil)"
    });
    assert_eq!(client.rest().len(), 50 * 1_000_012 + "+OK\r\n".len());
    assert_eq!(other.run("GET last"), "\"1\"");
}

#[test]
fn a_client_with_output_above_the_soft_limit_is_closed() {
    let node = Node::start(&[("client-output-buffer-limit", "normal 0 1mb 1")]);
    let mut client = node.connect();
    // More than the sockets of any machine take. One reply: commands behind a large reply wait until it is sent.
    let value = vec![b'v'; 64 << 20];
    client.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    encode_command(&[b"GET", b"k"], &mut bytes);
    client.send(&bytes);
    let mut other = node.connect();
    eventually("it is closed", || other.info("clients", "connected_clients") == "1");
}

#[test]
fn a_query_larger_than_its_limit_is_closed() {
    let node = Node::start(&[("client-query-buffer-limit", "1mb")]);
    let mut client = node.connect();
    // The node refuses in the middle of the command, so the rest cannot be written.
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
        // Each connection has used its buffers once.
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

/// Invalid commands get the same errors as from a real Redis. Errors that differ between 7.0 and 7.2 are left out.
#[test]
fn errors_are_those_of_a_real_redis() {
    let Some(redis) = crate::common::Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    let (mut ours, mut theirs) = (node.connect(), redis.connect());
    let mut failures = Vec::new();
    for line in [
        "CLIENT KILL ID x",
        "CLIENT KILL ID -1",
        "CLIENT KILL TYPE x",
        "CLIENT KILL SKIPME maybe",
        "CLIENT KILL ADDR",
        "CLIENT KILL NOSUCH x",
        "CLIENT KILL ID 1 ADDR",
        "CLIENT KILL USER nosuch",
        "CLIENT KILL ADDR 1.1.1.1:1 TYPE pubsub SKIPME no",
        "CLIENT KILL LADDR 1.1.1.1:1",
        "CLIENT KILL USER default SKIPME yes ID 100000",
        "CLIENT KILL TYPE slave",
        "CLIENT KILL TYPE replica",
        "CLIENT KILL 1.1.1.1:1",
        "CLIENT LIST TYPE",
        "CLIENT LIST TYPE x",
        "CLIENT LIST TYPE master",
        "CLIENT LIST ID",
        "CLIENT LIST ID x",
        "CLIENT LIST ID 100000 200000",
        "CLIENT LIST foo",
        "CLIENT LIST ID 1 TYPE normal",
        "CLIENT NO-EVICT x",
        "CLIENT NO-EVICT",
        "CLIENT REPLY",
        "CLIENT REPLY x",
        "CLIENT TRACKINGINFO",
        "CLIENT GETREDIR",
        "CLIENT UNPAUSE x",
        "CLIENT PAUSE x y",
        "CLIENT PAUSE -1",
        "CLIENT PAUSE 1 y",
        "CLIENT PAUSE 1 WRITE x",
        "CLIENT TRACKING ON BCAST OPTIN",
        "CLIENT TRACKING ON OPTIN OPTOUT",
        "CLIENT TRACKING ON PREFIX a",
        "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
        "CLIENT TRACKING ON REDIRECT x",
        "CLIENT TRACKING ON REDIRECT 100000",
        "CLIENT TRACKING ON NOSUCH",
        "CLIENT TRACKING maybe",
        "CLIENT CACHING YES",
        "CLIENT CACHING maybe",
        "CLIENT SETNAME",
        "CLIENT SETNAME 'a b'",
        "CLIENT ID x",
        "CLIENT UNBLOCK x",
        "CLIENT UNBLOCK 1 x",
        "CLIENT UNBLOCK 100000 ERROR",
        "CLIENT INFO x",
        "CLIENT NOSUCH",
        "LATENCY GRAPH command",
        "LATENCY GRAPH",
        "LATENCY HISTORY",
        "LATENCY HISTORY nosuch",
        "LATENCY DOCTOR x",
        "LATENCY RESET nosuch other",
        "LATENCY LATEST x",
        "LATENCY HISTOGRAM nosuch",
        "LATENCY NOSUCH",
        "SLOWLOG GET x",
        "SLOWLOG GET -2",
        "SLOWLOG LEN x",
        "SLOWLOG NOSUCH",
        "MONITOR x",
        "ACL SETUSER",
        "ACL SETUSER 'a b' on",
        "ACL GETUSER",
        "ACL DELUSER",
        "ACL CAT a b",
        "ACL CAT nosuch",
        "ACL GENPASS 0",
        "ACL GENPASS 5000",
        "ACL GENPASS x",
        "ACL GENPASS 1 2",
        "ACL LOG x",
        "ACL LOG -1",
        "ACL LOG 1 2",
        "ACL LOAD",
        "ACL SAVE",
        "ACL WHOAMI x",
        "ACL DRYRUN nobody get k",
        "ACL DRYRUN default nosuch",
        "ACL DRYRUN default get",
        "ACL DRYRUN default get k",
        "ACL NOSUCH",
        "ACL SETUSER bob ~* ~x",
        "ACL SETUSER bob resetkeys &* &x",
        "ACL SETUSER bob <nosuch",
        "ACL SETUSER bob #123",
        "ACL SETUSER bob !123",
        "ACL SETUSER bob +get|",
        "ACL SETUSER bob +config|get|x",
        "ACL SETUSER bob -config|nosuch",
        "ACL SETUSER bob (+get",
        "ACL SETUSER bob (+get))",
        "ACL SETUSER bob %~x",
        "ACL SETUSER bob %X~x",
        "ACL SETUSER bob '(>pw)'",
        "ACL SETUSER bob ''",
        "ACL SETUSER bob '~a b'",
        "ACL SETUSER bob on >pw +@all -@dangerous +keys ~a* %R~b %W~c resetchannels &x (+get ~d)",
        "ACL DRYRUN bob get a",
        "ACL DELUSER bob",
    ] {
        let (ours, theirs) = (ours.run(line), theirs.run(line));
        if ours != theirs {
            failures.push(format!("{line}\n  here:  {ours}\n  there: {theirs}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Once, ten thousand subscriptions weighed nothing.
#[test]
fn subscriptions_count_in_a_client_s_memory() {
    const CHANNELS: usize = 10_000;
    let node = Node::start(&[]);
    let (mut listener, mut admin) = (node.connect(), node.connect());
    listener.run("CLIENT SETNAME listener");
    let memory = |admin: &mut Client| -> usize {
        let list = admin.run("CLIENT LIST");
        let line = list.split("name=listener").nth(1).expect("it is connected");
        let number = line.split("tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
        number.expect("a number").parse().expect("a number")
    };
    let without = memory(&mut admin);
    for kind in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let names: Vec<String> = (0..CHANNELS).map(|number| format!("channel:{number}")).collect();
        let words: Vec<&[u8]> =
            std::iter::once(kind).chain(names.iter().map(|name| &**name)).map(str::as_bytes).collect();
        assert!(listener.words(&words).contains("channel:0"));
        (1..CHANNELS).for_each(|_| drop(listener.read()));
        eventually("they are counted", || memory(&mut admin) > without + CHANNELS * 100);
        eventually("they are charged", || admin.info_number("memory", "mem_clients_charged") > (CHANNELS * 100) as u64);
        let (name, from) = kind.split_at(kind.len() - "SUBSCRIBE".len());
        listener.send(format!("{name}UN{from}\r\n").as_bytes());
        (0..CHANNELS).for_each(|_| drop(listener.read()));
        eventually("they are gone", || memory(&mut admin) < without + CHANNELS);
    }
}
