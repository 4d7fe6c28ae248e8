//! Hostile clients and broken flash: the affected client or key gets a clear error, and no other is affected.

use flintkv_tests::{Client, Node, Random, Redis, eventually, free_port, one_line, seed};
use resp::client::{Value, encode_command, parse_value};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;

// --- the protocol ---

/// Everything that a server replies to these bytes until it or the client closes the connection.
fn answer(port: u16, bytes: &[u8]) -> String {
    let mut client = Client::connect(port);
    client.send(bytes);
    // The server may have closed the connection already.
    let _ = client.stream.shutdown(Shutdown::Write);
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn malformed_requests_get_redis_s_error_and_close_only_their_connection() {
    let (node, redis) = (Node::start(&[]), Redis::start(&[]));
    let mut other = node.connect();
    let long = |byte: u8, count: usize| vec![byte; count];
    let mut requests: Vec<Vec<u8>> = [
        &b"*x\r\n"[..],
        b"*\r\n",
        b"*2147483648\r\n",
        b"*99999999999999999999\r\n",
        b"*-1\r\nPING\r\n",
        b"*0\r\nPING\r\n",
        b"*1\r\n+PING\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*2\r\n$4\r\nPING\r\n*1\r\n",
        b"*1\r\n$4\r\nPI",
        b"*1 \r\n",
        b"*+1\r\n$4\r\nPING\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*1\n$4\nPING\n",
        b"SET a 'b\r\n",
        b"SET a \"b\"c\r\n",
        b"SET a \"\\x4g\"\r\nGET a\r\n",
        b"\r\n\r\nPING\r\n",
        b"PING\nPING\n",
        b"  PING  \r\n",
        b"PING",
        b"GET \"\"\r\n",
        b"set k \"\\x41\\n\"\r\nget k\r\n",
        b"$4\r\nPING\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n",
        b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
        b"*-5\r\n*-99999999999999999999\r\n",
        b"-ERR\r\n",
        b"\r",
        b"*",
        b"*1",
        b"*1\r",
    ]
    .iter()
    .map(|bytes| bytes.to_vec())
    .collect();
    requests.extend([
        long(b'x', 70_000),
        [b"*", &long(b'1', 70_000)[..]].concat(),
        [b"*1\r\n$", &long(b'1', 70_000)[..]].concat(),
        [&b"*2\r\n$4\r\nECHO\r\n$70000\r\n"[..], &long(b'v', 70_000), b"\r\n*1\r\n!"].concat(),
    ]);
    for request in &requests {
        let (ours, theirs) = (answer(node.port, request), answer(redis.port, request));
        assert_eq!(ours, theirs, "to {}", request[..request.len().min(100)].escape_ascii());
        assert_eq!(other.run("PING"), "PONG");
    }
}

/// The replies one by one; errors without the text that they quote.
fn kinds(mut bytes: &[u8]) -> Vec<String> {
    let mut kinds = Vec::new();
    while let Ok(Some((value, consumed))) = parse_value(bytes) {
        bytes = &bytes[consumed..];
        kinds.push(match &value {
            Value::Error(text) => {
                text.split(|&byte| byte == b'\'').next().unwrap_or_default().escape_ascii().to_string()
            }
            value => one_line(value),
        });
    }
    kinds
}

#[test]
fn corrupted_streams_are_understood_as_redis_does() {
    let (node, redis) = (Node::start(&[]), Redis::start(&[]));
    let mut random = Random::new(seed());
    for round in 0..1500 {
        let mut bytes = Vec::new();
        for i in 0..1 + random.below(6) {
            let value = random.text(20);
            match random.below(4) {
                0 => encode_command(&[b"SET", b"key", &value], &mut bytes),
                1 => encode_command(&[b"GET", b"key"], &mut bytes),
                2 => bytes.extend_from_slice(format!("ECHO \"inline {i}\"\r\n").as_bytes()),
                _ => encode_command(&[b"HSET", b"hash", b"field", &value], &mut bytes),
            }
        }
        for _ in 0..1 + random.below(3) {
            if bytes.len() < 2 {
                break;
            }
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[at]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        // In an inline command, Redis searches for the end of the line only up to a NUL, and waits for ever.
        bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'0');
        let mut replies = Vec::new();
        for port in [node.port, redis.port] {
            let mut client = Client::connect(port);
            client.send(&bytes);
            // The server may have closed the connection already.
            let _ = client.stream.shutdown(Shutdown::Write);
            replies.push(kinds(&client.rest()));
        }
        assert_eq!(replies[0], replies[1], "seed {}, round {round}: {}", seed(), bytes.escape_ascii());
    }
}

#[test]
fn unauthenticated_clients_may_send_only_little() {
    let (node, redis) = (Node::start(&[("requirepass", "secret")]), Redis::start(&["--requirepass", "secret"]));
    for request in [
        &b"*11\r\n"[..],
        b"*10\r\n$16385\r\n",
        b"GET a\r\nAUTH wrong\r\nAUTH secret\r\nGET a\r\n*11\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*11\r\n$4\r\nMGET\r\n",
        b"HELLO 2 AUTH default wrong\r\nPING\r\n",
    ] {
        assert_eq!(answer(node.port, request), answer(redis.port, request), "{}", request.escape_ascii());
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_costs_nobody_else() {
    // With a limit above 1 MB, the commands would pause instead.
    let node = Node::start(&[("client-output-buffer-limit", "normal 512kb 0 0")]);
    let mut client = node.connect();
    assert_eq!(one_line(&client.call(&[b"SET", b"big", &vec![b'v'; 100_000]])), "OK");
    let before = node.resident_bytes();
    let mut sleeper = node.connect();
    assert_eq!(sleeper.run("PING"), "PONG");
    let mut bytes = Vec::new();
    for _ in 0..5000 {
        encode_command(&[b"GET", b"big"], &mut bytes);
    }
    // Half a gigabyte of replies that the client does not read.
    sleeper.send(&bytes);
    eventually("the connection is closed", || client.info("clients", "connected_clients") == "1");
    let growth = node.resident_bytes().saturating_sub(before);
    assert!(growth < 64 << 20, "{growth} bytes for one slow reader");
    assert!(node.log().contains("client-output-buffer-limit"), "{}", node.log());
    assert_eq!(client.run("STRLEN big"), "(integer) 100000");
}

#[test]
fn clients_that_vanish_inside_a_command_leave_nothing_behind() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let command = b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$5\r\nvalue\r\n";
    for cut in 0..command.len() {
        let mut vanishing = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
        vanishing.write_all(&command[..cut]).unwrap();
    }
    eventually("they are gone", || client.info("clients", "connected_clients") == "1");
    assert_eq!(client.run("EXISTS half"), "(integer) 0");
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = 10_000.min(files.saturating_sub(200)) as usize;
    let node = Node::start(&[("maxclients", "20000")]);
    let mut client = node.connect();
    let allowed: usize = client.info("clients", "maxclients").parse().unwrap();
    let count = count.min(allowed - 10);
    let before = node.resident_bytes();
    let mut idle = Vec::with_capacity(count);
    for i in 0..count {
        let mut stream = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
        // Each connection has been used once.
        stream.write_all(b"PING\r\n").unwrap();
        if i % 100 == 0 {
            assert_eq!(client.run("PING"), "PONG");
        }
        idle.push(stream);
    }
    for stream in &mut idle {
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
    }
    let each = node.resident_bytes().saturating_sub(before) / count as u64;
    println!("{count} idle connections: {each} bytes of RAM each");
    assert_eq!(client.info("clients", "connected_clients"), (count + 1).to_string());
    assert!(each < 4096, "{each} bytes for each idle connection");
    drop(idle);
    eventually("they are gone", || client.info("clients", "connected_clients") == "1");
}

// --- flash ---

const KEYS: usize = 1500;

/// A value that fills most of a page, does not compress, and contains its key.
fn page_value(i: usize) -> Vec<u8> {
    let mut random = Random::new(i as u64);
    let mut value = format!("<value of key {i:06}>").into_bytes();
    value.extend((0..3000).map(|_| random.draw() as u8));
    value
}

/// A node whose values are all on flash, each in a page of its own.
fn cold_node(directives: &[(&str, &str)]) -> (Node, Client) {
    let mut all = vec![
        ("memory-limit", "192mb"),
        ("ram-limit", "96mb"),
        ("flash-segment-size", "1mb"),
        ("flash-compression", "none"),
    ];
    all.extend(directives);
    let node = Node::start(&all);
    let mut client = node.connect();
    for i in 0..KEYS {
        assert_eq!(one_line(&client.call(&[b"SET", format!("key:{i}").as_bytes(), &page_value(i)])), "OK");
    }
    force_demote(&mut client);
    (node, client)
}

/// Lowers the RAM limit until no value is left in RAM, then restores it.
fn force_demote(client: &mut Client) {
    assert_eq!(client.run("CONFIG SET ram-limit 1mb"), "OK");
    eventually("values leave RAM", || client.info_number("tiering", "values_in_ram") < 5);
    assert_eq!(client.run("CONFIG SET ram-limit 96mb"), "OK");
}

fn get(client: &mut Client, i: usize) -> Value {
    client.call(&[b"GET", format!("key:{i}").as_bytes()])
}

/// The offsets of these bytes in the log.
fn places(file: &File, wanted: &[u8]) -> Vec<u64> {
    const CHUNK: usize = 4 << 20;
    let mut places = Vec::new();
    let mut buf = vec![0; CHUNK + wanted.len() - 1];
    for start in (0..file.metadata().unwrap().len()).step_by(CHUNK) {
        let mut filled = 0;
        while filled < buf.len() {
            match file.read_at(&mut buf[filled..], start + filled as u64).unwrap() {
                0 => break,
                count => filled += count,
            }
        }
        places.extend(
            buf[..filled]
                .windows(wanted.len())
                .enumerate()
                .filter(|(_, bytes)| *bytes == wanted)
                .map(|(at, _)| start + at as u64),
        );
    }
    places
}

#[test]
fn a_flipped_bit_on_flash_is_an_error_for_its_key_only() {
    let (node, mut client) = cold_node(&[]);
    const DAMAGED: usize = 777;
    let file = OpenOptions::new().read(true).write(true).open(node.flash_file()).unwrap();
    let name = format!("<value of key {DAMAGED:06}>");
    let places = places(&file, name.as_bytes());
    assert!(!places.is_empty(), "the value is in the log");
    for place in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, place + 1000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], place + 1000).unwrap();
    }
    file.sync_all().unwrap();

    let reply = get(&mut client, DAMAGED);
    assert!(matches!(&reply, Value::Error(text) if text.starts_with(b"ERR ")), "{}", one_line(&reply));
    println!("a flipped bit: {}", one_line(&reply));
    assert!(client.info_number("tiering", "flash_checksum_errors") > 0);
    assert!(node.log().contains("ERROR"), "the log tells: {}", node.log());
    let wrong: Vec<usize> = (0..KEYS).filter(|&i| get(&mut client, i) != Value::Bulk(page_value(i))).collect();
    assert_eq!(wrong, [DAMAGED], "all others are as they were");

    // Commands that need no value work, and so does setting the key again.
    assert_eq!(client.run(&format!("EXISTS key:{DAMAGED}")), "(integer) 1");
    assert_eq!(client.run(&format!("TYPE key:{DAMAGED}")), "string");
    assert!(client.run(&format!("APPEND key:{DAMAGED} x")).starts_with("(error) ERR "));
    assert_eq!(client.run(&format!("SET key:{DAMAGED} repaired")), "OK");
    assert_eq!(client.run(&format!("GET key:{DAMAGED}")), "\"repaired\"");
}

#[test]
fn a_truncated_log_loses_only_what_was_in_the_lost_part() {
    let (node, mut client) = cold_node(&[]);
    assert_eq!(client.run("SET hot value"), "OK");
    OpenOptions::new().write(true).open(node.flash_file()).unwrap().set_len(0).unwrap();
    for i in 0..KEYS {
        let reply = get(&mut client, i);
        let is_right =
            matches!(&reply, Value::Error(text) if text.starts_with(b"ERR ")) || reply == Value::Bulk(page_value(i));
        assert!(is_right, "key {i}: neither its value nor an error: {}", one_line(&reply));
    }
    assert_eq!(client.run("GET hot"), "\"value\"");
    // After setting all keys again, everything is intact, on flash too.
    for i in 0..KEYS {
        assert_eq!(one_line(&client.call(&[b"SET", format!("key:{i}").as_bytes(), &page_value(i)])), "OK");
    }
    force_demote(&mut client);
    for i in 0..KEYS {
        assert_eq!(get(&mut client, i), Value::Bulk(page_value(i)), "key {i}");
    }
}

#[test]
fn a_node_with_a_deleted_log_keeps_serving() {
    let (node, mut client) = cold_node(&[]);
    std::fs::remove_file(node.flash_file()).unwrap();
    for i in 0..KEYS {
        assert_eq!(get(&mut client, i), Value::Bulk(page_value(i)), "key {i}");
    }
}

#[test]
fn threads_read_and_write_flash() {
    let (_node, mut client) = cold_node(&[("flash-io", "threads")]);
    assert_eq!(client.info("tiering", "flash_driver"), "threads");
    for i in 0..KEYS {
        assert_eq!(get(&mut client, i), Value::Bulk(page_value(i)), "key {i}");
    }
    assert!(client.info_number("tiering", "flash_kv_reads") >= KEYS as u64 - 10);
}

#[test]
fn a_memory_limit_beyond_the_device_is_refused_with_figures() {
    let fs = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    let twice = fs.f_blocks * fs.f_frsize * 2;
    let refused = Node::try_start(free_port(), &[("memory-limit", &twice.to_string()), ("ram-limit", "64mb")]);
    let said = refused.err().expect("no start");
    println!("too little space: {said}");
    assert!(said.contains("flintkv server: "), "{said}");
    assert!(said.contains("free"), "{said}");
}

#[test]
fn a_second_process_on_the_same_flash_is_refused_and_disturbs_nobody() {
    let (node, mut client) = cold_node(&[]);
    let flash = node.dir.path().join("flash");
    let second = [("flash-path", flash.to_str().unwrap()), ("bind", "127.0.0.2")];
    // The second process would wait for its port at the first one's address, but it must not get that far.
    let said = match Node::try_start_alone(node.port, &second) {
        Ok(status) => panic!("it ended with {status}"),
        Err(said) => said,
    };
    println!("a second process: {said}");
    assert!(said.contains("in use") || said.contains("another process"), "{said}");
    assert!(said.contains(flash.to_str().unwrap()), "{said}");
    for i in (0..KEYS).step_by(7) {
        assert_eq!(get(&mut client, i), Value::Bulk(page_value(i)), "key {i}");
    }
}

#[test]
fn a_node_stops_under_load_when_told_to() {
    let (mut node, mut client) = cold_node(&[]);
    let mut bytes = Vec::new();
    for i in 0..KEYS {
        encode_command(&[b"GET", format!("key:{i}").as_bytes()], &mut bytes);
        encode_command(&[b"SET", format!("more:{i}").as_bytes(), &page_value(i)], &mut bytes);
    }
    let mut writer = client.stream.try_clone().unwrap();
    // The node may close the connection while this writes.
    let load = std::thread::spawn(move || drop(writer.write_all(&bytes)));
    let mut other = node.connect();
    eventually("the load has begun", || other.run("EXISTS more:0") == "(integer) 1");
    node.terminate();
    let status = node.ended();
    assert!(status.success(), "{status}");
    assert!(node.log().contains("bye bye"), "{}", node.log());
    let mut replies = 0;
    while client.reply().is_some_and(|reply| !matches!(reply, Value::Error(_))) {
        replies += 1;
    }
    println!("{replies} replies before the end");
    load.join().unwrap();
}
