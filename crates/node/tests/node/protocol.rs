//! The bytes on the wire: well formed, malformed, hostile, and split in any way.

use crate::common::{Client, Node};
use resp::client::{Value, encode_command};
use std::io::Write;
use std::net::Shutdown;

/// Sends bytes on a new connection. Returns everything that comes back until the node closes.
fn until_closed(node: &Node, bytes: &[u8]) -> String {
    let mut client = node.connect();
    client.send(bytes);
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn a_protocol_error_is_answered_and_closes_that_connection_alone() {
    let node = Node::start(&[]);
    let mut other = node.connect();
    for (bytes, reply) in [
        (&b"*x\r\n"[..], "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1048577\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"SET a 'b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ] {
        assert_eq!(until_closed(&node, bytes), reply, "{}", String::from_utf8_lossy(bytes));
        assert_eq!(other.run("PING"), "PONG");
    }
    assert_eq!(until_closed(&node, &[b'x'; 70_000]), "-ERR Protocol error: too big inline request\r\n");
    let mut endless_count = vec![b'*'];
    endless_count.resize(70_000, b'1');
    assert_eq!(until_closed(&node, &endless_count), "-ERR Protocol error: too big mbulk count string\r\n");
}

#[test]
fn commands_before_a_protocol_error_are_carried_out() {
    let node = Node::start(&[]);
    let reply = until_closed(&node, b"SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n!\r\nSET a 2\r\n");
    assert_eq!(reply, "+OK\r\n$1\r\n1\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    assert_eq!(node.connect().run("GET a"), "\"1\"");
}

#[test]
fn empty_commands_get_no_reply() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.send(b"\r\n\r\n*0\r\n*-1\r\n   \r\nPING\r\n");
    assert_eq!(client.read(), "PONG");
}

#[test]
fn inline_commands_with_quotes() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.send(b"set 'a key' \"x\\x41\\n\"\r\nGET \"a key\"\nget nosuch\r\n");
    assert_eq!(client.read(), "OK");
    assert_eq!(client.reply(), Some(Value::Bulk(b"xA\n".to_vec())));
    assert_eq!(client.read(), "(nil)");
}

#[test]
fn a_command_that_arrives_byte_by_byte_runs() {
    let node = Node::start(&[("io-threads", "1")]);
    let (mut client, mut other) = (node.connect(), node.connect());
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n" {
        client.send(&[*byte]);
        // The only worker reads the byte before this command, which came later.
        assert_eq!(other.run("PING"), "PONG");
    }
    assert_eq!(client.read(), "OK");
    assert_eq!(client.run("GET k"), "\"value\"");
}

#[test]
fn a_pipeline_of_a_hundred_thousand_is_answered_in_order() {
    const COUNT: usize = 100_000;
    let node = Node::start(&[]);
    let mut client = node.connect();
    let mut bytes = Vec::new();
    for i in 0..COUNT {
        let text = i.to_string();
        encode_command(&[b"ECHO", text.as_bytes()], &mut bytes);
    }
    let mut writer = client.stream.try_clone().unwrap();
    // Write everything before reading anything, as many clients do. The node must keep receiving.
    writer.write_all(&bytes).unwrap();
    for i in 0..COUNT {
        assert_eq!(client.reply(), Some(Value::Bulk(i.to_string().into_bytes())));
    }
}

#[test]
fn a_client_may_write_everything_before_it_reads_anything() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let value = vec![b'v'; 100_000];
    client.value(&[b"SET", b"k", &value]);
    let mut bytes = Vec::new();
    // 200 MB of replies to 60 KB of commands, then as many commands again.
    for _ in 0..2_000 {
        encode_command(&[b"GET", b"k"], &mut bytes);
    }
    for _ in 0..200 {
        encode_command(&[b"SET", b"other", &value], &mut bytes);
    }
    client.send(&bytes);
    for _ in 0..2_000 {
        let Some(Value::Bulk(bytes)) = client.reply() else { panic!("a value") };
        assert_eq!(bytes.len(), value.len());
    }
    for _ in 0..200 {
        assert_eq!(client.read(), "OK");
    }
}

#[test]
fn a_value_larger_than_every_buffer() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let value: Vec<u8> = (0..40_000_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(client.value(&[b"SET", b"big", &value]), Some(Value::Simple(b"OK".to_vec())));
    assert_eq!(client.value(&[b"GET", b"big"]), Some(Value::Bulk(value)));
}

#[test]
fn a_command_of_many_arguments() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let keys: Vec<String> = (0..50_000).map(|i| format!("k{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for key in &keys {
        words.push(key.as_bytes());
        words.push(b"v");
    }
    assert_eq!(client.value(&words), Some(Value::Simple(b"OK".to_vec())));
    let mut words: Vec<&[u8]> = vec![b"DEL"];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    assert_eq!(client.value(&words), Some(Value::Int(50_000)));
}

#[test]
fn before_authentication_the_limits_are_small() {
    let node = Node::start(&[("requirepass", "secret")]);
    let mut client = node.connect();
    assert_eq!(client.run("GET a"), "(error) NOAUTH Authentication required.");
    assert_eq!(client.run("AUTH wrong"), "(error) WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(
        until_closed(&node, b"*11\r\n$4\r\nAUTH\r\n"),
        "-ERR Protocol error: unauthenticated multibulk length\r\n"
    );
    assert_eq!(
        until_closed(&node, b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"),
        "-ERR Protocol error: unauthenticated bulk length\r\n"
    );
    assert_eq!(client.run("AUTH default secret"), "OK");
    assert_eq!(client.run("SET a 1"), "OK");
    assert_eq!(client.run("RESET"), "RESET");
    assert_eq!(client.run("GET a"), "(error) NOAUTH Authentication required.");
}

#[test]
fn the_command_after_a_successful_auth_has_the_full_limits() {
    let node = Node::start(&[("requirepass", "secret")]);
    let mut client = node.connect();
    let value = vec![b'v'; 100_000];
    let mut bytes = Vec::new();
    encode_command(&[b"AUTH", b"secret"], &mut bytes);
    encode_command(&[b"SET", b"k", &value], &mut bytes);
    encode_command(&[b"MGET", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"k"], &mut bytes);
    client.send(&bytes);
    assert_eq!((client.read(), client.read()), ("OK".to_owned(), "OK".to_owned()));
    let Some(Value::Array(values)) = client.reply() else { panic!("an array") };
    assert_eq!(values[9], Value::Bulk(value));
}

#[test]
fn a_password_set_later_applies_to_new_connections() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG SET requirepass secret"), "OK");
    assert_eq!(client.run("PING"), "PONG");
    let mut other = node.connect();
    assert_eq!(other.run("PING"), "(error) NOAUTH Authentication required.");
    assert_eq!(other.run("HELLO 3 AUTH default secret").lines().next(), Some("1# \"server\" => \"redis\""));
}

#[test]
fn hello_changes_the_shapes_of_replies() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.run("HSET h f 1");
    assert!(matches!(client.value(&[b"HGETALL", b"h"]), Some(Value::Array(_))));
    assert!(matches!(client.value(&[b"CONFIG", b"GET", b"port"]), Some(Value::Array(_))));
    let Some(Value::Map(hello)) = client.value(&[b"HELLO", b"3", b"SETNAME", b"me"]) else { panic!("a map") };
    let fields: Vec<String> = hello.iter().map(|(name, _)| crate::common::shown(name)).collect();
    assert_eq!(fields, ["\"server\"", "\"version\"", "\"proto\"", "\"id\"", "\"mode\"", "\"role\"", "\"modules\""]);
    assert_eq!(hello[2].1, Value::Int(3));
    assert!(matches!(client.value(&[b"HGETALL", b"h"]), Some(Value::Map(_))));
    assert!(matches!(client.value(&[b"CONFIG", b"GET", b"port"]), Some(Value::Map(_))));
    assert_eq!(client.value(&[b"GET", b"nosuch"]), Some(Value::Null));
    assert_eq!(client.run("CLIENT GETNAME"), "\"me\"");
    client.send(b"*1\r\n$5\r\nRESET\r\n");
    assert_eq!(client.read(), "RESET");
    assert!(matches!(client.value(&[b"HGETALL", b"h"]), Some(Value::Array(_))));
}

#[test]
fn every_type_of_resp3() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    client.run("HELLO 3");
    for (name, wire) in [
        ("integer", &b":12345\r\n"[..]),
        ("double", b",3.25\r\n"),
        ("null", b"_\r\n"),
        ("set", b"~3\r\n:0\r\n:1\r\n:2\r\n"),
        ("map", b"%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n"),
        ("bignum", b"(1234567999999999999999999999999999999\r\n"),
        ("verbatim", b"=29\r\ntxt:This is a verbatim\nstring\r\n"),
        ("push", b">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n+OK\r\n"),
        ("true", b"#t\r\n"),
    ] {
        client.send(format!("DEBUG PROTOCOL {name}\r\n").as_bytes());
        let mut got = vec![0; wire.len()];
        std::io::Read::read_exact(&mut client.stream, &mut got).unwrap();
        assert_eq!(got, wire, "{name}: {}", String::from_utf8_lossy(&got));
    }
}

#[test]
fn an_http_request_closes_the_connection() {
    let node = Node::start(&[]);
    assert_eq!(until_closed(&node, b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 1\r\n"), "");
    assert_eq!(node.connect().run("GET a"), "(nil)");
}

#[test]
fn a_client_that_disconnects_in_the_middle_of_a_command_leaves_nothing() {
    let node = Node::start(&[]);
    let mut watcher = node.connect();
    for cut in [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhalf"[..], b"*3\r\n$3", b"SET k v"] {
        let mut client = node.connect();
        client.send(cut);
        drop(client);
    }
    crate::common::eventually("the connections are gone", || watcher.info("clients", "connected_clients") == "1");
    assert_eq!(watcher.run("GET k"), "(nil)");
}

#[test]
fn half_closed_clients_get_their_replies() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.send(b"SET a 1\r\nGET a\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"+OK\r\n$1\r\n1\r\n");
}

#[test]
fn errors_name_the_command_as_redis_does() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for (line, reply) in [
        ("FOO bar 'b c'", "(error) ERR unknown command 'FOO', with args beginning with: 'bar' 'b c' "),
        ("GET", "(error) ERR wrong number of arguments for 'get' command"),
        ("GeT a b", "(error) ERR wrong number of arguments for 'get' command"),
        ("CLIENT SETNAME", "(error) ERR wrong number of arguments for 'client|setname' command"),
        ("CLIENT", "(error) ERR wrong number of arguments for 'client' command"),
        ("CLIENT NOSUCH on", "(error) ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    ] {
        assert_eq!(client.run(line), reply);
    }
    let long = format!("{} {}", "x".repeat(200), "y".repeat(200));
    assert_eq!(
        client.run(&long),
        format!("(error) ERR unknown command '{}', with args beginning with: '{}' ", "x".repeat(128), "y".repeat(128))
    );
}

/// A connection that gets arbitrary bytes.
#[test]
fn random_bytes_never_stop_the_node() {
    let node = Node::start(&[]);
    let mut state = 88172645463325252u64;
    for _ in 0..200 {
        let mut bytes = b"*2\r\n$3\r\nGET\r\n".to_vec();
        for _ in 0..200 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(b"*$+-:\r\n0123456789abc\"'\\\x00\xff"[state as usize % 25]);
        }
        let mut client = Client::new(std::net::TcpStream::connect(("127.0.0.1", node.port)).unwrap());
        // The node may have closed the connection already.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(Shutdown::Write);
        client.rest();
    }
    assert_eq!(node.connect().run("PING"), "PONG");
}

#[test]
fn debug_helps_tests() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    for (line, reply) in [
        ("DEBUG ERROR 'MYERR of mine'", "(error) MYERR of mine"),
        ("DEBUG ERROR \"a\\r\\n+b\"", "(error) a  +b"),
        ("DEBUG LOG hello", "OK"),
        ("DEBUG STRINGMATCH-LEN 100000 a*a*a*a*a*a*a*a*a*b", "(integer) 0"),
        ("DEBUG STRINGMATCH-LEN 5 a*", "(integer) 1"),
        ("DEBUG STRINGMATCH-LEN -1 a*", "(error) ERR value is not an integer or out of range"),
        (
            "DEBUG JMAP",
            "(error) ERR DEBUG JMAP is not supported: it is about internals of Redis that FlintKV does not have",
        ),
        (
            "DEBUG SEGFAULT",
            "(error) ERR DEBUG SEGFAULT is not supported: it is about internals of Redis that FlintKV does not have",
        ),
        ("DEBUG NOSUCH", "(error) ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP."),
    ] {
        assert_eq!(client.run(line), reply);
    }
}
