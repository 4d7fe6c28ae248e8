//! The memory for clients' requests stays within the RAM limit: unread replies, long pipelines, transactions, scripts,
//! large strings and large collections. In each case, the memory was once a multiple of the limit. Each prints the
//! largest resident size ÷ the limit, and the longest PING of another client meanwhile (docs/figures.md).

use flintkv_tests::{Client, Node, Watch, eventually};
use resp::client::{Value, encode_command};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The bound: hundredths of the limit. The goal is 110, and what each case reaches is printed. The test allows more, because
/// on a busy machine the kernel releases memory late. Without the memory budget, the cases reach 127 to 1,296.
const PERCENT_MAX: u64 = 125;
/// A client that does not read stays connected for this time, if the node does not end it.
const UNREAD: Duration = Duration::from_secs(5);

/// Runs a case on a node of its own with this RAM limit, and checks the resident size.
fn within_the_limit(case: &str, limit_mib: u64, load: impl FnOnce(&Node)) {
    within_the_limit_of(case, limit_mib, &[], load);
}

/// The same, with more directives.
fn within_the_limit_of(case: &str, limit_mib: u64, more: &[(&str, &str)], load: impl FnOnce(&Node)) {
    let ram = format!("{limit_mib}mb");
    let node = Node::start(&[&[("memory-limit", "2gb"), ("ram-limit", &ram)], more].concat());
    fill(&node, limit_mib * MIB);
    Watch::during(&node, |watch| {
        watch.take();
        let ran = catch_unwind(AssertUnwindSafe(|| load(&node)));
        let (largest, longest_ms) = watch.take();
        let percent = largest * 100 / (limit_mib * MIB);
        println!("{case}: {percent} % of {limit_mib} MiB, longest PING {longest_ms:.1} ms");
        ran.unwrap_or_else(|panic| resume_unwind(panic));
        assert!(percent <= PERCENT_MAX, "{case}: {largest} bytes resident");
    });
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

/// Fills the RAM with objects, up to their limit, before the clients start.
fn fill(node: &Node, bytes: u64) {
    node.connect().set_all((0..bytes / 4000).map(|n| (format!("fill:{}:{}", n / 100, n % 100), [b'f'; 4000])));
}

fn set(node: &Node, key: &str, bytes: usize) {
    assert_eq!(node.connect().words(&[b"SET", key.as_bytes(), &vec![b'v'; bytes]]), "OK");
}

fn pipeline(words: &[&[u8]], count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|_| encode_command(words, &mut bytes));
    bytes
}

/// Runs the same on many connections at once.
fn on_many(node: &Node, clients: usize, run: impl Fn(&mut Client) + Sync) {
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| run(&mut node.connect()));
        }
    });
}

#[test]
fn fifty_clients_that_do_not_read() {
    within_the_limit("50 clients ask for 50 × 1 MB and do not read", 100, |node| {
        set(node, "k", 1 << 20);
        let gets = pipeline(&[b"GET", b"k"], 50);
        let mut sleepers: Vec<Client> = (0..50).map(|_| node.connect()).collect();
        for client in &mut sleepers {
            client.send(&gets);
        }
        // Meanwhile another client still gets its replies.
        let (begun, mut other) = (Instant::now(), node.connect());
        while begun.elapsed() < UNREAD {
            assert!(matches!(other.call(&[b"GET", b"fill:0:0"]), Value::Bulk(value) if value.len() == 4000));
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn eight_clients_that_read_much() {
    within_the_limit("8 clients ask for 60 × 1 MB and read", 100, |node| {
        set(node, "k", 1 << 20);
        let gets = pipeline(&[b"GET", b"k"], 60);
        on_many(node, 8, |client| {
            client.send(&gets);
            (0..60).for_each(|_| assert_eq!(client.raw().expect("a reply").len(), (1 << 20) + 12));
        });
    });
}

#[test]
fn two_hundred_long_pipelines() {
    const GETS: usize = 20_000;
    within_the_limit("200 clients send 20,000 GETs of 1 KB, then read", 100, |node| {
        set(node, "k", 1000);
        let gets = pipeline(&[b"GET", b"k"], GETS);
        on_many(node, 200, |client| {
            client.send(&gets);
            let mut left = GETS * (1000 + 9);
            let mut chunk = vec![0; 64 << 10];
            while left > 0 {
                left -= client.stream.read(&mut chunk).expect("replies");
            }
        });
    });
}

#[test]
fn a_transaction_of_a_hundred_thousand_commands() {
    within_the_limit("MULTI of 100,000 SETs of 1 KB", 100, |node| {
        let mut client = node.connect();
        assert_eq!(client.run("MULTI"), "OK");
        let set = pipeline(&[b"SET", b"k", &[b'v'; 1000]], 1000);
        let mut refused = 0;
        for _ in 0..100 {
            client.send(&set);
            refused += (0..1000).filter(|_| client.read().starts_with("(error) OOM")).count();
        }
        assert_eq!(refused, 1, "the command that does not fit is refused, and nothing is kept after it");
        assert_eq!(client.run("EXEC"), "(error) EXECABORT Transaction discarded because of previous errors.");
        assert_eq!(client.run("GET k"), "(nil)");
    });
}

#[test]
fn the_replies_of_a_transaction() {
    within_the_limit("EXEC of 100 GETs of 1 MB, and of 50,000 of 4 KB", 100, |node| {
        set(node, "k", 1 << 20);
        let mut client = node.connect();
        // A transaction cannot wait for memory, so all replies are refused until objects have made room for some.
        eventually("some replies fit", || {
            client.send(&pipeline(&[b"MULTI"], 1)).send(&pipeline(&[b"GET", b"k"], 100)).send(&pipeline(&[b"EXEC"], 1));
            (0..101).for_each(|_| drop(client.read()));
            let Some(Value::Array(replies)) = client.reply() else { panic!("not a transaction's reply") };
            let is_refused = |reply: &&Value| matches!(reply, Value::Error(text) if text.starts_with(b"OOM"));
            let refused = replies.iter().filter(is_refused).count();
            assert!(refused > 0, "all replies fit");
            refused < 100
        });
        // These replies cannot be refused by a command: the connection is closed, as at the limit of its output buffer.
        let mut client = node.connect();
        client.send(&pipeline(&[b"MULTI"], 1)).send(&pipeline(&[b"GET", b"fill:0:0"], 50_000));
        (0..50_001).for_each(|_| drop(client.read()));
        client.send(&pipeline(&[b"EXEC"], 1));
        assert_eq!(client.rest(), b"");
    });
}

#[test]
fn a_script_that_fills_a_table() {
    within_the_limit("a Lua table without end, on two workers", 100, |node| {
        let script = "redis.call('SET', KEYS[1], 1) local t = {} for i = 1, 1e8 do t[i] = 'x' .. i end return #t";
        on_many(node, 4, |client| {
            let reply = client.words(&[b"EVAL", script.as_bytes(), b"1", b"written"]);
            assert!(reply.contains("not enough memory: the scripts of one worker may use "), "{reply}");
        });
        assert_eq!(node.connect().run("GET written"), "\"1\"", "what the script did before stands");
    });
}

#[test]
fn strings_longer_than_the_limit() {
    within_the_limit("SETRANGE, SETBIT, APPEND and a value of up to 512 MB", 256, |node| {
        let mut client = node.connect();
        for command in ["SETRANGE k 536870900 x", "SETBIT k 4294967295 1", "BITFIELD k SET u8 4294967280 1"] {
            let reply = client.run(command);
            assert!(reply.starts_with("(error) OOM the command needs 512 MB at once"), "{command}: {reply}");
        }
        assert_eq!(client.run("EXISTS k"), "(integer) 0");
        // The value is refused as soon as its length is known. Its bytes are read and dropped, and the connection stays
        // open.
        const BYTES: usize = 200_000_000;
        client.send(format!("*5\r\n$4\r\nMSET\r\n$1\r\nk\r\n${BYTES}\r\n").as_bytes());
        let reply = client.read();
        assert!(reply.starts_with("(error) OOM the command needs 191 MB at once"), "{reply}");
        assert!(reply.ends_with(", or do the work in parts"), "{reply}");
        client.send(&vec![b'v'; BYTES]).send(b"\r\n$1\r\nl\r\n$1\r\nv\r\n");
        assert_eq!(client.run("EXISTS k l"), "(integer) 0");
        // A transaction fails with it.
        assert_eq!(client.run("MULTI"), "OK");
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${BYTES}\r\n").as_bytes());
        assert!(client.read().starts_with("(error) OOM"));
        client.send(&vec![b'v'; BYTES]).send(b"\r\n");
        assert_eq!(client.run("EXEC"), "(error) EXECABORT Transaction discarded because of previous errors.");
        let reply = (0..512).map(|_| client.words(&[b"APPEND", b"long", &vec![b'a'; 1 << 20]]));
        assert!(reply.into_iter().any(|reply| reply.starts_with("(error) OOM")), "it cannot grow for ever");
    });
}

/// Once, a command was charged twice to half of the memory, so a value of a quarter of it was reset after five seconds.
#[test]
fn a_value_of_a_third_of_the_limit() {
    within_the_limit("SET, GET and SET of 80 MB", 256, |node| {
        let value = vec![b'v'; 80_000_000];
        let mut client = node.connect();
        assert_eq!(client.words(&[b"SET", b"k", &value]), "OK");
        // On a busy machine, objects may not have made room within five seconds: then the client gets an error and tries
        // again.
        let reply = (0..10).map(|_| client.raw_call(&[b"GET", b"k"])).find(|reply| !reply.starts_with(b"-OOM"));
        assert_eq!(reply.map(|reply| reply.len()), Some(value.len() + "$80000000\r\n\r\n".len()));
        assert_eq!(client.run("DEL k"), "(integer) 1");
        assert_eq!(client.words(&[b"SET", b"k", &value]), "OK");
    });
}

/// Once, the receive buffer of a client that sent before it read was doubled, and the client was reset when the buffer
/// reached half of the memory for clients.
#[test]
fn a_client_that_sends_before_it_reads() {
    const PAIRS: usize = 300;
    within_the_limit("300 × (SET, GET) of 300 KB, then the replies", 256, |node| {
        let mut client = node.connect();
        let value = vec![b'v'; 300_000];
        for _ in 0..PAIRS {
            client.send(&pipeline(&[b"SET", b"k", &value], 1)).send(&pipeline(&[b"GET", b"k"], 1));
        }
        for _ in 0..PAIRS {
            assert_eq!(client.read(), "OK");
            assert_eq!(client.raw().expect("a reply").len(), value.len() + "$300000\r\n\r\n".len());
        }
    });
}

/// Commands for which the node has no room stay in the client, because TCP flow control stops it. A client is disconnected
/// only if others wait for memory.
#[test]
fn a_client_that_sends_more_than_there_is_room_for() {
    const PAIRS: usize = 300;
    within_the_limit("300 × (SET, GET) of 200 KB, and the replies are read when nothing more is taken", 64, |node| {
        let mut client = node.connect();
        let value = vec![b'v'; 200_000];
        let mut sender = client.stream.try_clone().expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..PAIRS {
                    sender.write_all(&pipeline(&[b"SET", b"k", &value], 1)).expect("it is not reset");
                    sender.write_all(&pipeline(&[b"GET", b"k"], 1)).expect("it is not reset");
                }
            });
            let mut other = node.connect();
            let mut charged = |name| other.info_number("memory", name);
            eventually("it has what may be had", || {
                charged("mem_clients_charged") > charged("mem_clients_charged_max") / 16 * 14
            });
            // Meanwhile other clients are served.
            assert_eq!(other.words(&[b"SET", b"other", &[b'v'; 100_000]]), "OK");
            for _ in 0..PAIRS {
                assert_eq!(client.read(), "OK");
                assert_eq!(client.raw().expect("a reply").len(), value.len() + "$200000\r\n\r\n".len());
            }
            assert_eq!(other.info_number("stats", "evicted_clients"), 0);
        });
    });
}

/// Once, the memory that a transaction allocated exceeded the limit: its objects, and with a journal three times their
/// effects.
#[test]
fn a_transaction_that_writes_much() {
    const MULTI: &str = "MULTI of 400 and of 1,000 × SET of 10 KB";
    for (journal, may_be_refused) in [("no", false), ("yes", true)] {
        within_the_limit_of(&format!("{MULTI}, appendonly {journal}"), 80, &[("appendonly", journal)], |node| {
            let mut client = node.connect();
            // With a journal it needs 19 MB at once. Half of what the process itself leaves may be lent; of 64 MB that is hardly more, because the
            // code of an unoptimised build takes tens of them. On a busy machine, the node may not have given the memory of the
            // demoted objects back within five seconds: then the client gets an error and tries again.
            let mut tries = (0..10).map(|_| transact(&mut client, "a", 400));
            assert_eq!(tries.find(|tried| !tried.as_ref().is_err_and(|error| is_out_of_memory(error))), Some(Ok(400)));
            match transact(&mut client, "b", 1000) {
                Ok(replies) => assert_eq!(replies, 1000),
                Err(error) => {
                    assert!(may_be_refused && is_out_of_memory(&error), "{error}");
                    assert_eq!(client.run("EXISTS b:0"), "(integer) 0", "nothing was changed");
                }
            }
            assert_eq!(client.run("STRLEN a:399"), "(integer) 10000");
        });
    }
}

/// Without flash nothing makes room, so a transaction that does not fit is refused at once, and changes nothing.
#[test]
fn a_transaction_that_does_not_fit_into_ram_alone() {
    let node = Node::start(&[("memory-limit", "64mb"), ("ram-limit", "64mb"), ("flash-path", "")]);
    let mut client = node.connect();
    let mut taken = 0;
    let refused = loop {
        match transact(&mut client, &taken.to_string(), 700) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10, "70 MB do not fit");
    };
    assert!(taken > 0);
    assert!(is_out_of_memory(&refused), "{refused}");
    assert_eq!(client.run("DBSIZE"), format!("(integer) {}", taken * 700));
    eventually("there is room for others", || client.run("SET small 1") == "OK");
    assert!(node.resident_bytes() <= 64 * MIB * PERCENT_MAX / 100);
}

/// MULTI, SETs of 10,000 bytes and EXEC. Returns the number of replies, or the error.
fn transact(client: &mut Client, name: &str, count: usize) -> Result<usize, String> {
    assert_eq!(client.run("MULTI"), "OK");
    for number in 0..count {
        let reply = client.words(&[b"SET", format!("{name}:{number}").as_bytes(), &[b'v'; 10_000]]);
        assert!(reply == "QUEUED" || reply.starts_with("(error) OOM"), "{number}: {reply}");
    }
    match client.call(&[b"EXEC"]) {
        Value::Array(replies) => Ok(replies.iter().filter(|reply| matches!(reply, Value::Simple(_))).count()),
        Value::Error(error) => Err(String::from_utf8_lossy(&error).into_owned()),
        other => panic!("{other:?}"),
    }
}

/// Whether this is how a transaction is refused that does not fit: by EXEC, or already when its commands are queued, if
/// buffers of the previous one are still resident.
fn is_out_of_memory(error: &str) -> bool {
    let reason = error.strip_prefix("EXECABORT Transaction discarded because of");
    reason.is_some_and(|reason| reason.starts_with(": OOM ") || reason.starts_with(" previous errors"))
}

#[test]
fn six_clients_with_long_strings() {
    within_the_limit("6 clients set and get 10 MB each", 128, |node| {
        let value = vec![b'v'; 10_000_000];
        on_many(node, 6, |client| {
            let key = format!("{:?}", thread::current().id()).into_bytes();
            for _ in 0..10 {
                assert_eq!(client.words(&[b"SET", &key, &value]), "OK");
                assert_eq!(client.raw_call(&[b"GET", &key]).len(), 10_000_000 + 13);
            }
        });
    });
}

#[test]
fn replies_of_a_million_members() {
    within_the_limit("SMEMBERS and HGETALL of 1 M members in one pipeline", 150, |node| {
        let mut client = node.connect();
        for batch in 0..1000 {
            let names: Vec<Vec<u8>> =
                (0..1000).map(|i| format!("member:{:08}", batch * 1000 + i).into_bytes()).collect();
            let mut set: Vec<&[u8]> = vec![b"SADD", b"set"];
            let mut hash: Vec<&[u8]> = vec![b"HSET", b"hash"];
            for name in &names {
                set.push(name);
                hash.extend([&name[..], &name[7..]]);
            }
            client.raw_call(&set);
            client.raw_call(&hash);
        }
        let mut pipeline = Vec::new();
        (0..2).for_each(|_| {
            encode_command(&[b"SMEMBERS", b"set"], &mut pipeline);
            encode_command(&[b"HGETALL", b"hash"], &mut pipeline);
        });
        client.send(&pipeline);
        // Counted by their known length: reading 36 MB as values takes long.
        let (name, number) = ("$15\r\nmember:00000000\r\n".len(), "$8\r\n00000000\r\n".len());
        let header = "*1000000\r\n".len();
        let mut left = 2 * (2 * header + 2 * 1_000_000 * name + 1_000_000 * number);
        let mut chunk = vec![0; 64 << 10];
        while left > 0 {
            let received = client.stream.read(&mut chunk).expect("replies");
            assert!(received > 0 && chunk[0] != b'-', "the connection stays open");
            left -= received;
        }
    });
}

/// Each subscriber has its own pattern, so a separate message is built for each of them.
#[test]
fn subscribers_that_do_not_read() {
    within_the_limit("20 subscribers do not read 30 × 1 MB", 100, |node| {
        let mut sleepers: Vec<Client> = (0..20).map(|_| node.connect()).collect();
        for (number, client) in sleepers.iter_mut().enumerate() {
            client.run(&format!("PSUBSCRIBE news{}", "*".repeat(number + 1)));
        }
        let (mut publisher, message) = (node.connect(), vec![b'm'; 1 << 20]);
        for _ in 0..30 {
            let received = publisher.words(&[b"PUBLISH", b"news", &message]);
            assert!(received.starts_with("(integer)"), "{received}");
        }
        let charged = |name: &str| node.connect().info_number("memory", name);
        assert!(charged("mem_clients_charged") <= charged("mem_clients_charged_max") + (20 << 20));
        drop(sleepers);
        eventually("nothing is charged for those who are gone", || charged("mem_clients_charged") < 1 << 20);
    });
}

/// With a journal, the messages of a script wait for its end, because their receivers may act on the changes of the script.
#[test]
fn a_script_that_publishes_much() {
    const PUBLISH: &str = "local n, text = 0, string.rep('m', 1048576) \
                           for _ = 1, 200 do \
                               local reply = redis.pcall('PUBLISH', 'news', text) \
                               if type(reply) == 'table' then return {n, reply.err} end \
                               n = n + 1 \
                           end \
                           return {n, ''}";
    within_the_limit_of("a script publishes 200 × 1 MB", 100, &[("appendonly", "yes")], |node| {
        let (mut publisher, mut listener) = (node.connect(), node.connect());
        assert_eq!(
            publisher.words(&[b"EVAL", PUBLISH.as_bytes(), b"0"]),
            "1) (integer) 200\n2) \"\"",
            "nobody listens"
        );
        listener.run("SUBSCRIBE news");
        let Value::Array(reply) = publisher.call(&[b"EVAL", PUBLISH.as_bytes(), b"0"]) else { panic!("not an array") };
        let [Value::Int(published), Value::Bulk(error)] = &reply[..] else { panic!("{reply:?}") };
        let no_room = "OOM the messages of a transaction or script wait for its end, and the RAM limit has no room for more of them";
        assert_eq!(String::from_utf8_lossy(error), no_room);
        assert!((1..100).contains(published), "{published} messages of 1 MB have waited");
        // The listener does not read, so the published messages stay charged until it disconnects.
        drop(listener);
        let charged = || node.connect().info_number("memory", "mem_clients_charged");
        eventually("nothing is charged for what was published", || charged() < 1 << 20);
    });
}

/// A journal gets all changes of a script together at its end. Until then they are kept in memory, even those that
/// later changes replace.
#[test]
fn a_script_that_changes_much() {
    const SET: &str = "local n, text = 0, string.rep('v', 1048576) \
                       for _ = 1, 200 do \
                           local reply = redis.pcall('SET', KEYS[1], text) \
                           if reply.err then return {n, reply.err} end \
                           n = n + 1 \
                       end \
                       return {n, ''}";
    within_the_limit_of("a script sets 200 × 1 MB", 100, &[("appendonly", "yes")], |node| {
        let mut client = node.connect();
        let Value::Array(reply) = client.call(&[b"EVAL", SET.as_bytes(), b"1", b"k"]) else { panic!("not an array") };
        let [Value::Int(set), Value::Bulk(error)] = &reply[..] else { panic!("{reply:?}") };
        let waiting = format!(
            "OOM the changes of a script are kept in RAM until it ends, and the RAM limit has no room for more than the {} bytes that it has: raise ram-limit, or split the script",
            set * ((1 << 20) + "SETk".len() as i64)
        );
        assert_eq!(String::from_utf8_lossy(error), waiting, "{set}");
        assert!((1..100).contains(set), "{set} changes of 1 MB have waited");
        assert_eq!(client.run("STRLEN k"), "(integer) 1048576");
        assert_eq!(client.words(&[b"EVAL", b"return redis.call('SET', KEYS[1], 'v')", b"1", b"k"]), "OK");
    });
}

/// When all large connections wait, the one that holds most is closed, and a small one is always served.
#[test]
fn the_largest_holder_is_ended_when_others_wait() {
    let node = Node::start(&[("memory-limit", "1gb"), ("ram-limit", "64mb")]);
    set(&node, "k", 1 << 20);
    let gets = pipeline(&[b"GET", b"k"], 50);
    let mut protected = node.connect();
    assert_eq!(protected.run("CLIENT NO-EVICT on"), "OK");
    let mut sleepers: Vec<Client> = (0..60).map(|_| node.connect()).collect();
    for client in &mut sleepers {
        client.send(&gets);
    }
    let mut admin = node.connect();
    eventually("a holder is ended", || admin.info_number("stats", "evicted_clients") > 0);
    assert!(admin.info_number("memory", "mem_clients_normal") > 0);
    assert_eq!(protected.run("PING"), "PONG");
    // The memory of the others is free again when they are disconnected.
    drop(sleepers);
    eventually("nothing is held", || admin.info_number("clients", "clients_waiting_for_memory") == 0);
    assert!(matches!(admin.call(&[b"GET", b"k"]), Value::Bulk(value) if value.len() == 1 << 20));
}
