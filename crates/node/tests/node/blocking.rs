//! Blocking commands as several clients see them. Every story runs on a node, and on Debian's redis-server where it
//! is installed.

use crate::common::{Client, Node, Redis, eventually};
use resp::client::Value;
use std::time::Duration;

/// The server on which a story runs.
struct Server {
    port: u16,
    control: Client,
    is_ours: bool,
}

impl Server {
    fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    fn run(&mut self, line: &str) -> String {
        self.control.run(line)
    }

    /// A client that runs a blocking command. Returns when the server counts it as blocked.
    fn waiting(&mut self, line: &str) -> Client {
        let mut client = self.connect();
        self.wait_with(&mut client, line);
        client
    }

    fn wait_with(&mut self, client: &mut Client, line: &str) {
        let before = self.blocked();
        say(client, line);
        eventually(&format!("{line} waits"), || self.blocked() == before + 1);
    }

    fn blocked(&mut self) -> usize {
        self.control.info("clients", "blocked_clients").parse().unwrap()
    }
}

/// Sends a command without waiting for its reply.
fn say(client: &mut Client, line: &str) {
    let words = crate::common::words(line);
    let mut bytes = Vec::new();
    resp::client::encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
    client.send(&bytes);
}

fn id(client: &mut Client) -> i64 {
    match client.value(&[b"CLIENT", b"ID"]) {
        Some(Value::Int(id)) => id,
        other => panic!("CLIENT ID answered {other:?}"),
    }
}

/// Tells the story on both servers.
fn both(story: impl Fn(&mut Server)) {
    let node = Node::start(&[]);
    story(&mut Server { port: node.port, control: node.connect(), is_ours: true });
    if let Some(redis) = Redis::if_installed(&[]) {
        story(&mut Server { port: redis.port, control: redis.connect(), is_ours: false });
    }
}

#[test]
fn a_push_serves_blocked_clients() {
    both(|server| {
        for (command, reply) in [
            ("BLPOP k 0", "1) \"k\"\n2) \"a\""),
            ("BRPOP other k 0", "1) \"k\"\n2) \"c\""),
            ("BLMPOP 0 2 other k LEFT COUNT 2", "1) \"k\"\n2) 1) \"a\"\n   2) \"b\""),
            ("BLMOVE k to RIGHT LEFT 0", "\"c\""),
            ("BRPOPLPUSH k to 0", "\"c\""),
        ] {
            server.run("DEL k to");
            let mut client = server.waiting(command);
            assert_eq!(server.run("RPUSH k a b c"), "(integer) 3", "the push does not see it");
            assert_eq!(client.read(), reply, "{command}");
            let left = if command.starts_with("BLMPOP") { 1 } else { 2 };
            assert_eq!(server.run("LLEN k"), format!("(integer) {left}"));
            assert_eq!(server.blocked(), 0);
        }
    });
}

#[test]
fn the_client_that_blocked_first_is_served_first() {
    both(|server| {
        let mut clients: Vec<Client> = (0..5).map(|_| server.waiting("BLPOP k 0")).collect();
        assert_eq!(server.run("RPUSH k 0 1 2"), "(integer) 3");
        for (n, client) in clients.iter_mut().take(3).enumerate() {
            assert_eq!(client.read(), format!("1) \"k\"\n2) \"{n}\""));
        }
        assert_eq!(server.blocked(), 2);
        assert_eq!(server.run("LPUSH k 4 3"), "(integer) 2");
        for (n, client) in clients.iter_mut().enumerate().skip(3) {
            assert_eq!(client.read(), format!("1) \"k\"\n2) \"{n}\""));
        }
        assert_eq!(server.run("EXISTS k"), "(integer) 0");
    });
}

#[test]
fn of_several_keys_the_first_nonempty_one_serves() {
    both(|server| {
        let mut client = server.waiting("BLPOP a b a 0");
        assert_eq!(server.run("RPUSH b 1"), "(integer) 1");
        assert_eq!(client.read(), "1) \"b\"\n2) \"1\"");
        server.run("RPUSH b 2");
        server.run("RPUSH a 3");
        assert_eq!(client.run("BLPOP a b 0"), "1) \"a\"\n2) \"3\"");
        assert_eq!(client.run("BLPOP a b 0"), "1) \"b\"\n2) \"2\"");
        // The client has left both queues.
        assert_eq!(server.run("RPUSH a 4"), "(integer) 1");
        assert_eq!(server.run("LLEN a"), "(integer) 1");
    });
}

#[test]
fn blocked_commands_time_out() {
    both(|server| {
        let mut client = server.connect();
        for (command, reply) in [
            ("BLPOP k 0.01", "*-1\r\n"),
            ("BRPOP k j 0.01", "*-1\r\n"),
            ("BLMPOP 0.01 1 k LEFT", "*-1\r\n"),
            ("BLMOVE k j LEFT LEFT 0.01", "*-1\r\n"),
            ("BRPOPLPUSH k j 0.01", "*-1\r\n"),
        ] {
            say(&mut client, command);
            let mut bytes = vec![0; reply.len()];
            std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), reply, "{command}");
        }
        assert_eq!(server.blocked(), 0);
        // No client is left in the queues.
        assert_eq!(server.run("RPUSH k a"), "(integer) 1");
        assert_eq!(server.run("LLEN k"), "(integer) 1");
        client.run("HELLO 3");
        say(&mut client, "BLPOP nosuch 0.01");
        let mut bytes = [0; 3];
        std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
        assert_eq!(&bytes, b"_\r\n");
    });
}

#[test]
fn a_key_of_another_type_serves_no_blocked_client() {
    both(|server| {
        server.run("SET s x");
        let mut client = server.connect();
        let wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(client.run("BLPOP s 0"), wrong);
        assert_eq!(client.run("BLMOVE s to LEFT LEFT 0"), wrong);
        server.wait_with(&mut client, "BLPOP k 0");
        server.run("SET k x");
        server.run("DEL k");
        server.run("HSET k f v");
        assert_eq!(server.blocked(), 1);
        server.run("DEL k");
        server.run("SET k x PX 1");
        eventually("it expires", || server.run("EXISTS k") == "(integer) 0");
        server.run("RPUSH k a");
        assert_eq!(client.read(), "1) \"k\"\n2) \"a\"");
    });
}

#[test]
fn blocked_moves_serve_each_other_in_a_chain() {
    both(|server| {
        let mut last = server.waiting("BLPOP c 0");
        let mut second = server.waiting("BLMOVE b c LEFT RIGHT 0");
        let mut first = server.waiting("BLMOVE a b LEFT RIGHT 0");
        assert_eq!(server.run("RPUSH a x"), "(integer) 1");
        assert_eq!(first.read(), "\"x\"");
        assert_eq!(second.read(), "\"x\"");
        assert_eq!(last.read(), "1) \"c\"\n2) \"x\"");
        assert_eq!(server.run("EXISTS a b c"), "(integer) 0");
        // In a circle too.
        let mut there = server.waiting("BRPOPLPUSH a b 0");
        let mut back = server.waiting("BRPOPLPUSH b a 0");
        server.run("RPUSH a y");
        assert_eq!((there.read(), back.read()), ("\"y\"".to_owned(), "\"y\"".to_owned()));
        assert_eq!(server.run("LRANGE a 0 -1"), "1) \"y\"");
    });
}

#[test]
fn a_move_to_a_wrong_type_fails_and_the_next_one_is_served() {
    both(|server| {
        server.run("SET s x");
        let mut mover = server.waiting("BLMOVE k s LEFT LEFT 0");
        let mut popper = server.waiting("BLPOP k 0");
        server.run("RPUSH k a");
        assert_eq!(mover.read(), "(error) WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(popper.read(), "1) \"k\"\n2) \"a\"");
    });
}

#[test]
fn every_command_that_makes_a_list_serves_blocked_clients() {
    both(|server| {
        for (prepare, command) in [
            ("RPUSH other a", "RENAME other k"),
            ("RPUSH other a", "RENAMENX other k"),
            ("RPUSH other a", "COPY other k"),
            ("RPUSH other a", "LMOVE other k LEFT LEFT"),
            ("RPUSH other a", "RPOPLPUSH other k"),
        ] {
            server.run("FLUSHALL");
            server.run(prepare);
            let mut client = server.waiting("BLPOP k 0");
            server.run(command);
            assert_eq!(client.read(), "1) \"k\"\n2) \"a\"", "{command}");
        }
        server.run("FLUSHALL");
        // SWAPDB brings a key into this database, and serves the clients blocked here.
        let mut here = server.waiting("BLPOP k 0");
        let mut other = server.connect();
        other.run("SELECT 5");
        server.wait_with(&mut other, "BLPOP k 0");
        let mut filler = server.connect();
        filler.run("SELECT 7");
        filler.run("RPUSH k a");
        assert_eq!(server.run("SWAPDB 7 0"), "OK");
        assert_eq!(here.read(), "1) \"k\"\n2) \"a\"");
        filler.run("RPUSH k b");
        assert_eq!(filler.run("MOVE k 5"), "(integer) 1");
        assert_eq!(other.read(), "1) \"k\"\n2) \"b\"");
        // A deleted key serves no client.
        let mut client = server.waiting("BLPOP k 0");
        server.run("FLUSHALL");
        server.run("FLUSHDB");
        assert_eq!(server.blocked(), 1);
        server.run("RPUSH k c");
        assert_eq!(client.read(), "1) \"k\"\n2) \"c\"");
    });
}

#[test]
fn sorted_sets_serve_blocked_clients() {
    both(|server| {
        for (command, reply) in [
            ("BZPOPMIN k 0", "1) \"k\"\n2) \"a\"\n3) \"1\""),
            ("BZPOPMAX other k k 0", "1) \"k\"\n2) \"c\"\n3) \"2.5\""),
            (
                "BZMPOP 0 2 other k MAX COUNT 2",
                "1) \"k\"\n2) 1) 1) \"c\"\n      2) \"2.5\"\n   2) 1) \"b\"\n      2) \"1\"",
            ),
        ] {
            for serve in ["ZADD k 1 a 1 b 2.5 c", "ZUNIONSTORE k 1 from", "ZRANGESTORE k from 0 -1", "RENAME from k"] {
                server.run("DEL k");
                server.run("ZADD from 1 a 1 b 2.5 c");
                let mut client = server.waiting(command);
                assert!(!server.run(serve).starts_with("(error)"));
                assert_eq!(client.read(), reply, "{command}, {serve}");
                let left = if command.starts_with("BZMPOP") { 1 } else { 2 };
                assert_eq!(server.run("ZCARD k"), format!("(integer) {left}"));
            }
        }
        // A list and a sorted set with the same name: each serves its own clients.
        server.run("DEL k");
        let mut popper = server.waiting("BZPOPMIN k 0");
        let mut other = server.waiting("BLPOP k 0");
        server.run("RPUSH k x");
        assert_eq!(other.read(), "1) \"k\"\n2) \"x\"");
        server.run("ZINCRBY k 3 m");
        assert_eq!(popper.read(), "1) \"k\"\n2) \"m\"\n3) \"3\"");
        assert_eq!(server.run("EXISTS k"), "(integer) 0");
        let mut client = server.connect();
        client.run("HELLO 3");
        server.wait_with(&mut client, "BZPOPMIN k 0");
        server.run("ZADD k 2.5 m");
        let mut bytes = [0; 24];
        std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
        assert_eq!(&bytes, b"*3\r\n$1\r\nk\r\n$1\r\nm\r\n,2.5\r\n");
        say(&mut client, "BZMPOP 0.01 1 k MIN");
        let mut bytes = [0; 3];
        std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
        assert_eq!(&bytes, b"_\r\n");
    });
}

#[test]
fn streams_serve_blocked_clients() {
    both(|server| {
        let entry = |key: &str, id: &str| {
            format!("1) 1) \"{key}\"\n   2) 1) 1) \"{id}\"\n         2) 1) \"a\"\n            2) \"1\"")
        };
        server.run("XADD s 1-1 a 1");
        // Entries after the stream's end at the time of blocking, in any of several streams.
        let mut all = server.waiting("XREAD COUNT 10 BLOCK 0 STREAMS s t $ $");
        let mut one = server.waiting("XREAD BLOCK 0 STREAMS t s 0-0 5-5");
        server.run("XADD other 1-1 a 1");
        server.run("XSETID s 3-3");
        assert_eq!(server.blocked(), 2);
        server.run("XADD s 4-1 a 1");
        assert_eq!(all.read(), entry("s", "4-1"));
        assert_eq!(server.blocked(), 1, "it waits for what is above 5-5");
        server.run("XADD s 5-6 a 1");
        assert_eq!(one.read(), entry("s", "5-6"));
        // A transaction serves blocked clients after it has ended, with all the entries that it added.
        server.wait_with(&mut one, "XREAD BLOCK 0 STREAMS s $");
        for line in ["MULTI", "XADD s 6-1 a 1", "XADD s 7-1 a 1", "EXEC"] {
            server.run(line);
        }
        let two = format!("{}\n      2) 1) \"7-1\"\n         2) 1) \"a\"\n            2) \"1\"", entry("s", "6-1"));
        assert_eq!(one.read(), two);
        // The last entry, asked for by +, exists since 7.4.
        let invalid = "(error) ERR Invalid stream ID specified as stream command argument";
        assert_eq!(one.run("XREAD BLOCK 0 STREAMS s +"), invalid);
        // In RESP3 the reply is a map, and nothing is null.
        one.run("HELLO 3");
        server.wait_with(&mut one, "XREAD BLOCK 0 STREAMS s $");
        server.run("XADD s 8-1 a 1");
        assert_eq!(one.read(), "1# \"s\" => 1) 1) \"8-1\"\n      2) 1) \"a\"\n         2) \"1\"");
        assert_eq!(one.run("XREAD BLOCK 1 STREAMS s $"), "(nil)");
        // Inside a transaction no command blocks.
        for line in ["MULTI", "XREAD BLOCK 0 STREAMS s $"] {
            all.run(line);
        }
        assert_eq!(all.run("EXEC"), "1) (nil)");
    });
}

#[test]
fn a_stream_that_is_deleted_or_replaced_serves_no_reader() {
    both(|server| {
        for (goes, comes) in [
            (&["DEL s"][..], "6-1"),
            (&["DEL s", "RPUSH s x", "DEL s"], "6-1"),
            (&["SET s x", "DEL s"], "6-1"),
            (&["RENAME s other"], "6-1"),
            (&["FLUSHALL"], "6-1"),
        ] {
            server.run("FLUSHALL");
            server.run("XADD s 5-1 a 1");
            let mut client = server.waiting("XREAD BLOCK 0 STREAMS s $");
            for line in goes {
                server.run(line);
            }
            // The new entry is below the reader's position.
            server.run("XADD s 1-1 a 1");
            assert_eq!(server.blocked(), 1, "{goes:?}");
            server.run(&format!("XADD s {comes} a 1"));
            let reply = client.read();
            assert!(
                reply.contains("6-1") && !reply.contains("1-1\"\n         2) 1) \"a\"\n            2) \"1\"\n"),
                "{reply}"
            );
        }
    });
}

#[test]
fn consumers_of_a_group_wait() {
    both(|server| {
        let entry = |id: &str| format!("1) 1) \"s\"\n   2) 1) 1) \"{id}\"\n         2) 1) \"a\"\n            2) \"1\"");
        server.run("XGROUP CREATE s g $ MKSTREAM");
        let mut ann = server.waiting("XREADGROUP GROUP g ann BLOCK 0 STREAMS s >");
        let mut bob = server.waiting("XREADGROUP GROUP g bob COUNT 5 BLOCK 0 NOACK STREAMS s >");
        let mut reader = server.waiting("XREAD BLOCK 0 STREAMS s $");
        // Each entry goes to one consumer of the group, the first that blocked, and to every reader without a group.
        server.run("XADD s 1-1 a 1");
        assert_eq!(ann.read(), entry("1-1"));
        assert_eq!(reader.read(), entry("1-1"));
        assert_eq!(server.blocked(), 1);
        server.run("XADD s 2-1 a 1");
        assert_eq!(bob.read(), entry("2-1"));
        assert_eq!(
            server.run("XPENDING s g"),
            "1) (integer) 1\n2) \"1-1\"\n3) \"1-1\"\n4) 1) 1) \"ann\"\n      2) \"1\""
        );
        // A consumer's old entries never block.
        assert_eq!(bob.run("XREADGROUP GROUP g bob BLOCK 0 STREAMS s 0"), "1) 1) \"s\"\n   2) (empty array)");
        assert_eq!(bob.run("XREADGROUP GROUP g bob BLOCK 10 STREAMS s >"), "(nil)");
        // The end of another group does not matter to these consumers.
        server.run("XGROUP CREATE s h $");
        server.wait_with(&mut ann, "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >");
        server.run("XGROUP DESTROY s h");
        assert_eq!(server.blocked(), 1);
        // The consumers are told that the stream or the group is gone. Redis 7.0 uses other words.
        let no_group = "(error) NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
        let wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        for (change, told) in [
            (&["XGROUP DESTROY s g"][..], no_group),
            (&["DEL s"], no_group),
            (&["RENAME s other"], no_group),
            (&["FLUSHALL"], no_group),
            (&["SET s x"], wrong),
            (&["MULTI", "DEL s", "XADD s 9-9 a 1", "EXEC"], no_group),
        ] {
            if change[0] != "XGROUP DESTROY s g" {
                server.run("DEL s");
                server.run("XGROUP CREATE s g $ MKSTREAM");
                server.wait_with(&mut ann, "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >");
            }
            for line in change {
                server.run(line);
            }
            let reply = ann.read();
            assert!(if server.is_ours { reply == told } else { reply.starts_with("(error) ") }, "{change:?}: {reply}");
            assert_eq!(server.blocked(), 0);
        }
    });
}

#[test]
fn waiting_for_a_stream_ends_by_timeout_unblock_kill_and_disconnect() {
    both(|server| {
        server.run("XGROUP CREATE s g $ MKSTREAM");
        let mut client = server.connect();
        let number = id(&mut client);
        for command in ["XREAD BLOCK {} STREAMS s t $ $", "XREADGROUP GROUP g ann BLOCK {} STREAMS s >"] {
            assert_eq!(client.run(&command.replace("{}", "10")), "(nil)");
            assert_eq!(client.run(&command.replace("{}", "-1")), "(error) ERR timeout is negative");
            let forever = command.replace("{}", "0");
            server.wait_with(&mut client, &forever);
            assert_eq!(server.run(&format!("CLIENT UNBLOCK {number}")), "(integer) 1");
            assert_eq!(client.read(), "(nil)");
            server.wait_with(&mut client, &forever);
            assert_eq!(server.run(&format!("CLIENT UNBLOCK {number} ERROR")), "(integer) 1");
            assert_eq!(client.read(), "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK");
            drop(server.waiting(&forever));
            eventually("it is gone", || server.blocked() == 0);
        }
        // No client that left has taken an entry.
        server.run("XADD s 1-1 a 1");
        assert_eq!(server.run("XPENDING s g"), "1) (integer) 0\n2) (nil)\n3) (nil)\n4) (nil)");
        assert!(client.run("XREADGROUP GROUP g ann STREAMS s >").contains("1-1"));
    });
}

#[test]
fn a_blocked_client_that_disconnects_takes_nothing() {
    both(|server| {
        let gone = server.waiting("BLPOP k 0");
        let mut next = server.waiting("BLPOP k 0");
        drop(gone);
        eventually("it is gone", || server.blocked() == 1);
        server.run("RPUSH k a");
        assert_eq!(next.read(), "1) \"k\"\n2) \"a\"");
        drop(server.waiting("BLPOP k 0"));
        eventually("it is gone", || server.blocked() == 0);
        assert_eq!(server.run("RPUSH k b"), "(integer) 1");
        assert_eq!(server.run("LLEN k"), "(integer) 1");
    });
}

#[test]
fn clients_are_unblocked_and_killed_by_others() {
    both(|server| {
        let mut client = server.connect();
        let number = id(&mut client);
        assert_eq!(server.run(&format!("CLIENT UNBLOCK {number}")), "(integer) 0", "it does not wait");
        server.wait_with(&mut client, "BLPOP k 0");
        assert_eq!(server.run(&format!("CLIENT UNBLOCK {number}")), "(integer) 1");
        assert_eq!(client.read(), "(nil)");
        server.wait_with(&mut client, "BLMOVE k j LEFT LEFT 100");
        assert_eq!(server.run(&format!("CLIENT UNBLOCK {number} ERROR")), "(integer) 1");
        assert_eq!(client.read(), "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK");
        assert_eq!(server.run(&format!("CLIENT UNBLOCK {number} TIMEOUT")), "(integer) 0");
        server.wait_with(&mut client, "BLPOP k 0");
        assert_eq!(server.run(&format!("CLIENT KILL ID {number}")), "(integer) 1");
        assert_eq!(client.read(), "(closed)");
        eventually("nobody waits", || server.blocked() == 0);
        assert_eq!(server.run("RPUSH k a"), "(integer) 1");
        assert_eq!(server.run("LLEN k"), "(integer) 1");
    });
}

#[test]
fn the_client_list_shows_blocked_clients() {
    both(|server| {
        let mut client = server.connect();
        let number = id(&mut client);
        let line = |server: &mut Server| server.run(&format!("CLIENT LIST ID {number}"));
        assert!(line(server).contains(" flags=N "));
        server.wait_with(&mut client, "BLPOP k j 0");
        let shown = line(server);
        assert!(shown.contains(" flags=b ") && shown.contains(" cmd=blpop "), "{shown}");
        if server.is_ours {
            assert_eq!(server.control.info("clients", "total_blocking_keys"), "2");
            assert_eq!(server.control.info("clients", "total_blocking_keys_on_nokey"), "0");
        }
        server.run("RPUSH j a");
        client.read();
        assert!(line(server).contains(" flags=N "));
        assert!(server.control.info("commandstats", "cmdstat_blpop").starts_with("calls=1,"));
    });
}

#[test]
fn a_pause_delays_the_pushes_that_would_serve_blocked_clients() {
    both(|server| {
        let mut client = server.waiting("BLPOP k 0");
        assert_eq!(server.run("CLIENT PAUSE 100000 WRITE"), "OK");
        let mut pusher = server.connect();
        say(&mut pusher, "RPUSH k a");
        assert_eq!(server.run("LLEN k"), "(integer) 0");
        assert_eq!(server.run("CLIENT UNPAUSE"), "OK");
        assert_eq!(pusher.read(), "(integer) 1");
        assert_eq!(client.read(), "1) \"k\"\n2) \"a\"");
        if !server.is_ours {
            // Redis 7.0 crashes if CLIENT UNBLOCK names a paused client.
            return;
        }
        // A command that arrived during the pause first waits for the pause to end, and only then for its key. It
        // cannot be unblocked before.
        let number = id(&mut client);
        server.run("CLIENT PAUSE 100000 WRITE");
        say(&mut client, "BLPOP k 0");
        assert_eq!(server.run(&format!("CLIENT UNBLOCK {number}")), "(integer) 0");
        server.run("CLIENT UNPAUSE");
        eventually("it waits", || server.run(&format!("CLIENT UNBLOCK {number}")) == "(integer) 1");
        assert_eq!(client.read(), "(nil)");
    });
}

#[test]
fn a_pipeline_stops_at_a_blocked_command() {
    both(|server| {
        let mut client = server.connect();
        for line in ["SET a 1", "BLPOP k 0", "GET a", "BLPOP j 0", "PING"] {
            say(&mut client, line);
        }
        assert_eq!(client.read(), "OK", "what came before is answered");
        eventually("it waits", || server.blocked() == 1);
        // What arrives in the meantime is received, even if it is larger than a buffer, and runs in its turn.
        let mut long = Vec::new();
        resp::client::encode_command(&[b"SET", b"long", &[b'x'; 300_000]], &mut long);
        client.send(&long);
        say(&mut client, "STRLEN long");
        server.run("RPUSH k x");
        assert_eq!(client.read(), "1) \"k\"\n2) \"x\"");
        assert_eq!(client.read(), "\"1\"");
        eventually("it waits again", || server.blocked() == 1);
        server.run("RPUSH j y");
        assert_eq!(client.read(), "1) \"j\"\n2) \"y\"");
        assert_eq!(client.read(), "PONG");
        assert_eq!(client.read(), "OK");
        assert_eq!(client.read(), "(integer) 300000");
    });
}

#[test]
fn a_client_that_wants_no_replies_gets_none() {
    both(|server| {
        let mut client = server.connect();
        say(&mut client, "CLIENT REPLY OFF");
        server.wait_with(&mut client, "BLPOP k 0");
        server.run("RPUSH k a b");
        eventually("it was served", || server.blocked() == 0);
        say(&mut client, "CLIENT REPLY ON");
        assert_eq!(client.read(), "OK");
        assert_eq!(server.run("LRANGE k 0 -1"), "1) \"b\"");
    });
}

#[test]
fn many_pushers_and_many_blocked_poppers_move_each_element_once() {
    both(|server| {
        const EACH: usize = 300;
        let port = server.port;
        let connect = || Client::connect(port);
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..6)
                .map(|taker| {
                    scope.spawn(move || {
                        let mut client = connect();
                        let mut taken = Vec::new();
                        loop {
                            let command = ["BLPOP k j 0", "BRPOP j k 0", "BLMPOP 0 2 k j LEFT COUNT 2"][taker % 3];
                            let Some(Value::Array(reply)) =
                                client.value(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
                            else {
                                panic!("no reply to {command}")
                            };
                            match &reply[1] {
                                Value::Array(elements) => taken.extend(elements.iter().map(crate::common::shown)),
                                element => taken.push(crate::common::shown(element)),
                            }
                            if taken.iter().any(|element| element == "\"stop\"") {
                                return taken;
                            }
                        }
                    })
                })
                .collect();
            let pushers: Vec<_> = (0..3)
                .map(|pusher| {
                    scope.spawn(move || {
                        let mut client = connect();
                        for n in 0..EACH {
                            let key = if n % 2 == 0 { "k" } else { "j" };
                            client.run(&format!("RPUSH {key} {pusher}:{n} {pusher}:{n}b"));
                        }
                    })
                })
                .collect();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            let mut stopper = connect();
            // Each taker ends at the first "stop" that it gets.
            while takers.iter().any(|taker| !taker.is_finished()) {
                stopper.run("RPUSH k stop");
                std::thread::sleep(Duration::from_millis(2));
            }
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
        });
        let mut taken: Vec<String> = taken.into_iter().filter(|element| element != "\"stop\"").collect();
        taken.sort();
        let mut pushed: Vec<String> = (0..3)
            .flat_map(|pusher| (0..EACH).flat_map(move |n| [format!("\"{pusher}:{n}\""), format!("\"{pusher}:{n}b\"")]))
            .collect();
        pushed.sort();
        assert_eq!(taken, pushed);
    });
}

#[test]
fn inside_a_transaction_nothing_blocks_and_exec_serves_blocked_clients() {
    both(|server| {
        let mut client = server.connect();
        for line in ["MULTI", "BLPOP k 0", "BLMOVE k j LEFT LEFT 0", "BLMPOP 0 1 k LEFT", "BRPOPLPUSH k j 0"] {
            client.run(line);
        }
        assert_eq!(client.run("EXEC"), "1) (nil)\n2) (nil)\n3) (nil)\n4) (nil)");
        client.run("RPUSH k a b");
        for line in ["MULTI", "BLPOP k 0", "BLMOVE k j LEFT LEFT 0", "BLPOP x 0 0"] {
            client.run(line);
        }
        assert_eq!(client.run("EXEC"), "1) 1) \"k\"\n   2) \"a\"\n2) \"b\"\n3) (nil)");
        server.run("FLUSHALL");
        // A blocked client sees only the result of the whole transaction.
        let mut waiting = server.waiting("BLPOP k 0");
        let mut behind = server.waiting("BRPOP k j 0");
        for line in ["MULTI", "RPUSH k a", "DEL k", "RPUSH k b c d", "LPOP k", "RPUSH j x"] {
            client.run(line);
        }
        client.run("EXEC");
        assert_eq!(waiting.read(), "1) \"k\"\n2) \"c\"");
        assert_eq!(behind.read(), "1) \"k\"\n2) \"d\"");
        assert_eq!(server.run("EXISTS k j"), "(integer) 1");
        // An element that the transaction removes again is never visible.
        let mut waiting = server.waiting("BLPOP k 0");
        for line in ["MULTI", "RPUSH k a", "DEL k", "EXEC"] {
            client.run(line);
        }
        assert_eq!(server.blocked(), 1);
        // A served client changes the watched key.
        client.run("WATCH k");
        server.run("RPUSH k a");
        assert_eq!(waiting.read(), "1) \"k\"\n2) \"a\"");
        client.run("MULTI");
        assert_eq!(client.run("EXEC"), "(nil)");
    });
}

/// Redis 7.0 looks only at the key that became ready. Redis 7.2 runs the command again, from its first key.
#[test]
fn a_command_that_is_served_runs_from_its_start() {
    let node = Node::start(&[]);
    let mut server = Server { port: node.port, control: node.connect(), is_ours: true };
    let mut client = server.waiting("BLPOP a b 0");
    server.run("SET a x");
    server.run("RPUSH b 1");
    assert_eq!(client.read(), "(error) WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(server.run("LLEN b"), "(integer) 1");
}

#[test]
fn a_node_stops_while_clients_are_blocked() {
    let mut node = Node::start(&[]);
    let mut server = Server { port: node.port, control: node.connect(), is_ours: true };
    let mut client = server.waiting("BLPOP k 0");
    node.signal(15);
    assert!(node.ended().success());
    assert_eq!(client.read(), "(closed)");
}

#[test]
fn a_blocked_client_is_not_idle() {
    let node = Node::start(&[("timeout", "1")]);
    let mut server = Server { port: node.port, control: node.connect(), is_ours: true };
    let mut idle = server.connect();
    let mut client = server.waiting("BLPOP k 0");
    assert_eq!(idle.read(), "(closed)");
    let mut control = node.connect();
    assert_eq!(control.run("RPUSH k a"), "(integer) 1");
    assert_eq!(client.read(), "1) \"k\"\n2) \"a\"");
}
