//! Subscribing and publishing over sockets. The same transcripts run on Debian's redis-server where it is installed.

use crate::common::{Client, Node, Redis, eventually, shown};
use resp::client::Value;

/// Runs a transcript on a node and on a redis-server.
fn on_both(transcript: fn(&dyn Fn() -> Client)) {
    let node = Node::start(&[]);
    transcript(&|| node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        transcript(&|| redis.connect());
    }
}

#[test]
fn a_message_reaches_all_subscribers_and_no_other_client() {
    on_both(|connect| {
        let (mut a, mut b, mut c) = (connect(), connect(), connect());
        a.send(b"SUBSCRIBE one two one\r\n");
        assert_eq!(a.read(), "1) \"subscribe\"\n2) \"one\"\n3) (integer) 1");
        assert_eq!(a.read(), "1) \"subscribe\"\n2) \"two\"\n3) (integer) 2");
        assert_eq!(a.read(), "1) \"subscribe\"\n2) \"one\"\n3) (integer) 2");
        assert_eq!(b.run("PSUBSCRIBE o*"), "1) \"psubscribe\"\n2) \"o*\"\n3) (integer) 1");
        assert_eq!(b.run("PSUBSCRIBE *e"), "1) \"psubscribe\"\n2) \"*e\"\n3) (integer) 2");
        assert_eq!(b.run("SUBSCRIBE one"), "1) \"subscribe\"\n2) \"one\"\n3) (integer) 3");
        assert_eq!(c.run("PUBLISH one hello"), "(integer) 4");
        assert_eq!(a.read(), "1) \"message\"\n2) \"one\"\n3) \"hello\"");
        assert_eq!(b.read(), "1) \"message\"\n2) \"one\"\n3) \"hello\"");
        let mut two = [b.read(), b.read()];
        two.sort();
        assert_eq!(two[0], "1) \"pmessage\"\n2) \"*e\"\n3) \"one\"\n4) \"hello\"");
        assert_eq!(two[1], "1) \"pmessage\"\n2) \"o*\"\n3) \"one\"\n4) \"hello\"");
        assert_eq!(c.run("PUBLISH two ''"), "(integer) 1");
        assert_eq!(a.read(), "1) \"message\"\n2) \"two\"\n3) \"\"");
        assert_eq!(c.run("PUBLISH three x"), "(integer) 1", "its end fits a pattern");
        assert_eq!(c.run("PUBLISH four x"), "(integer) 0");
        assert_eq!(c.run("PUBSUB NUMPAT"), "(integer) 2");
        assert_eq!(c.run("PUBSUB NUMSUB one two x"), {
            "1) \"one\"\n2) (integer) 2\n3) \"two\"\n4) (integer) 1\n5) \"x\"\n6) (integer) 0"
        });
        assert_eq!(c.run("PUBSUB CHANNELS t*"), "1) \"two\"");
        a.send(b"UNSUBSCRIBE one nosuch\r\n");
        assert_eq!(a.read(), "1) \"unsubscribe\"\n2) \"one\"\n3) (integer) 1");
        assert_eq!(a.read(), "1) \"unsubscribe\"\n2) \"nosuch\"\n3) (integer) 1");
        drop(b);
        eventually("who has gone listens no more", || c.run("PUBLISH one again") == "(integer) 0");
    });
}

/// A publisher that got its reply may tell the subscriber of the message. The subscriber must have the message by
/// then.
#[test]
fn a_message_arrives_before_the_reply_to_a_later_command() {
    on_both(|connect| {
        let mut subscribers: Vec<Client> = (0..4).map(|_| connect()).collect();
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.run("SUBSCRIBE c"), "1) \"subscribe\"\n2) \"c\"\n3) (integer) 1");
        }
        let mut publisher = connect();
        for _ in 0..500 {
            assert_eq!(publisher.run("PUBLISH c x"), "(integer) 4");
            for subscriber in &mut subscribers {
                subscriber.send(b"PING\r\n");
            }
            for subscriber in &mut subscribers {
                assert_eq!(subscriber.read(), "1) \"message\"\n2) \"c\"\n3) \"x\"");
                assert_eq!(subscriber.read(), "1) \"pong\"\n2) \"\"");
            }
        }
    });
}

#[test]
fn a_killed_subscriber_gets_nothing() {
    on_both(|connect| {
        let mut b = connect();
        for _ in 0..20 {
            let mut a = connect();
            assert_eq!(a.run("SUBSCRIBE c"), "1) \"subscribe\"\n2) \"c\"\n3) (integer) 1");
            b.send(b"CLIENT KILL TYPE pubsub\r\nPUBLISH c x\r\nPUBSUB NUMSUB c\r\n");
            assert_eq!(b.read(), "(integer) 1");
            assert_eq!(b.read(), "(integer) 0");
            assert_eq!(b.read(), "1) \"c\"\n2) (integer) 0");
        }
    });
}

#[test]
fn shard_channels_are_apart() {
    on_both(|connect| {
        let (mut a, mut b) = (connect(), connect());
        assert_eq!(a.run("SSUBSCRIBE orders"), "1) \"ssubscribe\"\n2) \"orders\"\n3) (integer) 1");
        assert_eq!(a.run("SUBSCRIBE orders"), "1) \"subscribe\"\n2) \"orders\"\n3) (integer) 1");
        assert_eq!(b.run("SPUBLISH orders one"), "(integer) 1");
        assert_eq!(b.run("PUBLISH orders two"), "(integer) 1");
        assert_eq!(a.read(), "1) \"smessage\"\n2) \"orders\"\n3) \"one\"");
        assert_eq!(a.read(), "1) \"message\"\n2) \"orders\"\n3) \"two\"");
        assert_eq!(b.run("PUBSUB SHARDCHANNELS"), "1) \"orders\"");
        assert_eq!(b.run("PUBSUB SHARDNUMSUB orders x"), "1) \"orders\"\n2) (integer) 1\n3) \"x\"\n4) (integer) 0");
        assert_eq!(a.run("SUNSUBSCRIBE"), "1) \"sunsubscribe\"\n2) \"orders\"\n3) (integer) 0");
        assert_eq!(b.run("SPUBLISH orders x"), "(integer) 0");
    });
}

#[test]
fn a_resp2_subscriber_can_run_few_commands() {
    on_both(|connect| {
        let mut a = connect();
        a.run("SUBSCRIBE c");
        let refusal = "(P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
        assert_eq!(a.run("GET k"), format!("(error) ERR Can't execute 'get': only {refusal}"));
        assert_eq!(a.run("CONFIG GET port"), format!("(error) ERR Can't execute 'config|get': only {refusal}"));
        assert_eq!(a.run("PING"), "1) \"pong\"\n2) \"\"");
        assert_eq!(a.run("PING hello"), "1) \"pong\"\n2) \"hello\"");
        assert_eq!(a.run("UNSUBSCRIBE"), "1) \"unsubscribe\"\n2) \"c\"\n3) (integer) 0");
        assert_eq!(a.run("PING"), "PONG");
        a.run("SSUBSCRIBE c");
        assert_eq!(a.run("GET k"), format!("(error) ERR Can't execute 'get': only {refusal}"));
        assert_eq!(a.run("RESET"), "RESET");
        assert_eq!(a.run("GET k"), "(nil)");
        assert_eq!(a.run("PUBSUB SHARDCHANNELS"), "(empty array)");
        a.run("PSUBSCRIBE *");
        assert_eq!(a.run("QUIT"), "OK");
        assert_eq!(a.read(), "(closed)");
    });
}

#[test]
fn a_resp3_subscriber_can_run_every_command() {
    on_both(|connect| {
        let (mut a, mut b) = (connect(), connect());
        a.run("HELLO 3");
        assert!(matches!(a.value(&[b"SUBSCRIBE", b"c"]), Some(Value::Push(items)) if items.len() == 3));
        assert_eq!(a.run("SET k v"), "OK");
        assert_eq!(a.run("PING"), "PONG");
        assert_eq!(b.run("PUBLISH c m"), "(integer) 1");
        let Some(Value::Push(items)) = a.reply() else { panic!("a push") };
        assert_eq!(items.iter().map(shown).collect::<Vec<_>>(), ["\"message\"", "\"c\"", "\"m\""]);
        let flags = |client: &mut Client| {
            let list = client.run("CLIENT LIST TYPE pubsub");
            let line = list.split("flags=").nth(1).unwrap().to_owned();
            line.split(' ').take(5).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(flags(&mut b), "P db=0 sub=1 psub=0 ssub=0");
        assert_eq!(b.run("CLIENT LIST TYPE normal").matches("flags=N").count(), 1);
        // Messages arrive although replies are off, and so do replies that are push messages.
        a.send(b"CLIENT REPLY OFF\r\nGET k\r\nSUBSCRIBE d\r\n");
        assert_eq!(a.read(), "1) \"subscribe\"\n2) \"d\"\n3) (integer) 2");
        assert_eq!(b.run("PUBLISH d m"), "(integer) 1");
        assert_eq!(a.read(), "1) \"message\"\n2) \"d\"\n3) \"m\"");
    });
}

/// The order of Redis 7.2. Redis 7.0 sends the message first.
#[test]
fn a_publisher_gets_its_own_message_after_the_reply() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    a.run("HELLO 3");
    a.run("SUBSCRIBE c");
    a.send(b"PUBLISH c 1\r\nPUBLISH c 2\r\nPING\r\n");
    for expected in ["(integer) 1", "1) \"message\"\n2) \"c\"\n3) \"1\"", "(integer) 1"] {
        assert_eq!(a.read(), expected);
    }
    assert_eq!(a.read(), "1) \"message\"\n2) \"c\"\n3) \"2\"");
    assert_eq!(a.read(), "PONG");
}

#[test]
fn nothing_is_lost_and_the_order_is_kept_when_many_publish_to_many() {
    const EACH: usize = 2000;
    const PUBLISHERS: usize = 4;
    let node = Node::start(&[("client-output-buffer-limit", "pubsub 0 0 0")]);
    let mut listeners: Vec<Client> = (0..8).map(|_| node.connect()).collect();
    let first = listeners[0].run("CLIENT ID").replace("(integer) ", "");
    for client in &mut listeners {
        client.run("SUBSCRIBE c");
    }
    std::thread::scope(|scope| {
        let (node, first) = (&node, &first);
        for publisher in 0..PUBLISHERS {
            let mut client = node.connect();
            scope.spawn(move || {
                for batch in 0..EACH / 100 {
                    let pad = "x".repeat(batch * 20);
                    let text: String =
                        (0..100).map(|at| format!("PUBLISH c {publisher}:{}:{pad}\r\n", batch * 100 + at)).collect();
                    client.send(text.as_bytes());
                    for _ in 0..100 {
                        assert_eq!(client.read(), "(integer) 8");
                    }
                }
            });
        }
        for (index, mut listener) in listeners.into_iter().enumerate() {
            scope.spawn(move || {
                let mut next = [0; PUBLISHERS];
                for count in 0..EACH * PUBLISHERS {
                    if index == 0 && count == 100 {
                        // This client does not read until messages wait in its outbox.
                        let mut watcher = node.connect();
                        let list = format!("CLIENT LIST ID {first}");
                        eventually("messages wait", || !watcher.run(&list).contains(" oll=0 "));
                    }
                    let message = listener.read();
                    let text = message.split('"').nth(5).unwrap();
                    let mut parts = text.split(':').map(|part| part.parse::<usize>());
                    let (publisher, number) = (parts.next().unwrap().unwrap(), parts.next().unwrap().unwrap());
                    assert_eq!(number, next[publisher], "of publisher {publisher}");
                    next[publisher] += 1;
                }
            });
        }
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_takes_no_memory() {
    let node = Node::start(&[("client-output-buffer-limit", "pubsub 1mb 0 0")]);
    let (mut slow, mut other, mut publisher) = (node.connect(), node.connect(), node.connect());
    slow.run("SUBSCRIBE c");
    other.run("PSUBSCRIBE *");
    let message = "m".repeat(10_000);
    let before = node.resident_bytes();
    let mut sent = 0;
    while publisher.run(&format!("PUBLISH c {message}")) == "(integer) 2" {
        assert!(other.read().contains(&message));
        sent += message.len();
        assert!(sent < 200 << 20, "it is never closed");
    }
    assert!(other.read().contains(&message));
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
    assert!(slow.rest().len() < sent, "it was cut off");
    assert_eq!(publisher.info("stats", "client_output_buffer_limit_disconnections"), "1");
    eventually("one listens", || publisher.run("PUBLISH c x") == "(integer) 1");
}

#[test]
fn a_subscriber_that_stays_above_the_soft_limit_is_closed() {
    let node = Node::start(&[("client-output-buffer-limit", "pubsub 0 256kb 1")]);
    let (mut slow, mut publisher) = (node.connect(), node.connect());
    slow.run("SUBSCRIBE c");
    // More than the sockets' buffers hold.
    let message = vec![b'm'; 1 << 20];
    for _ in 0..16 {
        assert_eq!(publisher.value(&[b"PUBLISH", b"c", &message]), Some(Value::Int(1)));
    }
    assert!(publisher.run("CLIENT LIST TYPE pubsub").contains(" sub=1 "));
    eventually("it is closed", || publisher.run("PUBLISH c x") == "(integer) 0");
}
