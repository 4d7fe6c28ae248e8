//! Transactions as clients see them: what is queued, what is refused, and the effect of changes to watched keys.

use crate::common::{Client, Node, Redis, eventually};

fn lines(client: &mut Client, transcript: &[(&str, &str)]) {
    for (command, reply) in transcript {
        assert_eq!(client.run(command), *reply, "{command}");
    }
}

#[test]
fn commands_are_queued_and_run_as_one() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    lines(&mut a, &[("MULTI", "OK"), ("SET x 1", "QUEUED"), ("HSET x f v", "QUEUED"), ("INCR x", "QUEUED")]);
    assert_eq!(b.run("GET x"), "(nil)", "nothing has run yet");
    assert_eq!(
        a.run("EXEC"),
        "1) OK\n2) (error) WRONGTYPE Operation against a key holding the wrong kind of value\n3) (integer) 2",
        "a failed command stops nothing"
    );
    lines(&mut a, &[("MULTI", "OK"), ("EXEC", "(empty array)"), ("EXEC", "(error) ERR EXEC without MULTI")]);
    // SELECT applies to the commands after it, and stays after EXEC.
    lines(&mut a, &[("MULTI", "OK"), ("SELECT 3", "QUEUED"), ("SET y 3", "QUEUED"), ("SELECT 4", "QUEUED")]);
    assert_eq!(a.run("EXEC"), "1) OK\n2) OK\n3) OK");
    lines(&mut a, &[("EXISTS y", "(integer) 0"), ("SELECT 3", "OK"), ("GET y", "\"3\"")]);
}

/// Once, what the first commands of a transaction had claimed was theirs until EXEC ended. So a long transaction of commands that each
/// make a string longer got OOM, with memory to spare.
#[test]
fn what_a_command_of_a_transaction_claims_is_given_back_at_its_end() {
    const COMMANDS: usize = 300;
    let node = Node::start(&[("memory-limit", "80mb"), ("maxmemory", "80mb")]);
    let mut client = node.connect();
    assert_eq!(client.run("SETRANGE long 299999 x"), "(integer) 300000");
    client.run("MULTI");
    for _ in 0..COMMANDS {
        assert_eq!(client.run("APPEND long y"), "QUEUED");
    }
    let replies = client.run("EXEC");
    assert!(!replies.contains("OOM"), "{}", &replies[replies.len() - 200..]);
    assert_eq!(client.run("STRLEN long"), format!("(integer) {}", 300_000 + COMMANDS));
    let script = "EVAL \"for i = 1, 300 do redis.call('GETRANGE', KEYS[1], 0, -1) end return 1\" 1 long";
    assert_eq!(client.run(script), "(integer) 1");
    eventually("nothing is held", || client.info("memory", "mem_clients_charged") == "0");
}

#[test]
fn a_refused_command_fails_the_whole_transaction() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    const ABORTED: &str = "(error) EXECABORT Transaction discarded because of previous errors.";
    lines(
        &mut a,
        &[
            ("MULTI", "OK"),
            ("SET x 1", "QUEUED"),
            ("NOSUCH", "(error) ERR unknown command 'NOSUCH', with args beginning with: "),
            ("EXEC", ABORTED),
            ("EXISTS x", "(integer) 0"),
            ("MULTI", "OK"),
            ("GET", "(error) ERR wrong number of arguments for 'get' command"),
            ("OBJECT NOSUCH x", "(error) ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP."),
            ("PING", "QUEUED"),
            ("EXEC", ABORTED),
            ("PING", "PONG"),
            // These do not make the transaction fail.
            ("MULTI", "OK"),
            ("MULTI", "(error) ERR MULTI calls can not be nested"),
            ("WATCH x", "(error) ERR WATCH inside MULTI is not allowed"),
            ("UNWATCH", "QUEUED"),
            ("EXEC", "1) OK"),
        ],
    );
}

#[test]
fn sorts_by_other_keys_run_inside_transactions_and_concurrently() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    lines(
        &mut a,
        &[
            ("RPUSH l 1 2 3", "(integer) 3"),
            ("MULTI", "OK"),
            ("MSET w1 30 w2 20 w3 10", "QUEUED"),
            ("SORT l BY w* GET w* STORE sorted", "QUEUED"),
            ("SET w1 0", "QUEUED"),
            ("SORT_RO l BY w*", "QUEUED"),
        ],
    );
    let sorted = "3) OK\n4) 1) \"1\"\n   2) \"3\"\n   3) \"2\"";
    assert_eq!(a.run("EXEC"), format!("1) OK\n2) (integer) 3\n{sorted}"));
    assert_eq!(a.run("LRANGE sorted 0 -1"), "1) \"10\"\n2) \"20\"\n3) \"30\"");
    // Each client's transaction needs keys that the others lock.
    std::thread::scope(|scope| {
        for client in 0..4 {
            let mut client_of = node.connect();
            scope.spawn(move || {
                for n in 0..200 {
                    let key = format!("l{}", (client + n) % 4);
                    client_of.run(&format!("RPUSH {key} {client} {n}"));
                    client_of.run(&format!("SORT {key} BY l*->x GET w* LIMIT 0 5 STORE l{client}"));
                    client_of.run("MSET l0->x 1 w0 2 w1 3");
                }
            });
        }
    });
    assert_eq!(a.run("PING"), "PONG");
}

#[test]
fn commands_on_the_whole_dataset_run_inside() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    lines(
        &mut a,
        &[
            ("MSET a 1 b 2", "OK"),
            ("MULTI", "OK"),
            ("DBSIZE", "QUEUED"),
            ("SET c 3", "QUEUED"),
            ("KEYS [ac]", "QUEUED"),
            ("SWAPDB 0 1", "QUEUED"),
            ("DBSIZE", "QUEUED"),
            ("SELECT 1", "QUEUED"),
            ("DBSIZE", "QUEUED"),
            ("FLUSHDB", "QUEUED"),
            ("RANDOMKEY", "QUEUED"),
            ("SET d 4", "QUEUED"),
            ("SCAN 0", "QUEUED"),
            ("CONFIG SET slowlog-max-len 77", "QUEUED"),
        ],
    );
    let reply = a.run("EXEC");
    // KEYS has no order.
    let expected = |first, second| {
        format!(
            " 1) (integer) 2\n 2) OK\n 3) 1) \"{first}\"\n    2) \"{second}\"\n 4) OK\n 5) (integer) 0\n 6) OK\n \
             7) (integer) 3\n 8) OK\n 9) (nil)\n10) OK\n11) 1) \"0\"\n    2) 1) \"d\"\n12) OK"
        )
    };
    assert!(reply == expected("a", "c") || reply == expected("c", "a"), "{reply}");
}

#[test]
fn a_change_of_a_watched_key_is_noticed() {
    let node = Node::start(&[]);
    changes_are_noticed(node.connect(), node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        changes_are_noticed(redis.connect(), redis.connect());
    }
}

fn changes_are_noticed(mut a: Client, mut b: Client) {
    let mut watched = |before: &[&str], change: &[&str], runs: bool| {
        b.run("FLUSHALL");
        before.iter().for_each(|line| drop(b.run(line)));
        lines(&mut a, &[("WATCH k l", "OK")]);
        for line in change {
            let reply = b.run(line);
            assert!(!reply.starts_with("(error)"), "{line}: {reply}");
        }
        lines(&mut a, &[("MULTI", "OK"), ("PING", "QUEUED")]);
        assert_eq!(a.run("EXEC"), if runs { "1) PONG" } else { "(nil)" }, "{before:?} then {change:?}");
        lines(&mut a, &[("MULTI", "OK"), ("PING", "QUEUED"), ("EXEC", "1) PONG")]);
    };
    for change in ["SET k 2", "SET k 1", "DEL k", "EXPIRE k 100", "APPEND k x", "RENAME k m", "FLUSHALL", "FLUSHDB"] {
        watched(&["SET k 1"], &[change], false);
    }
    watched(&["SET k 1"], &["SET l 1"], false);
    watched(&["SET k 1"], &["DEL k", "SET k 1"], false);
    watched(&["SET k 1"], &["FLUSHALL", "SET k 1"], false);
    watched(&["HSET k f v"], &["HDEL k f"], false);
    // Commands that do not change the key.
    for change in ["GET k", "SET other 1", "HSET other f v", "DEL nosuch", "PERSIST k", "TOUCH k"] {
        watched(&["SET k 1"], &[change], true);
    }
    // Readers of a stream and their positions do not belong to its entries. Bits that keep their value are no change.
    let stream: &[&str] = &["XADD k 1-1 a 1", "XGROUP CREATE k g 0"];
    for change in [
        "XGROUP CREATE k h 0",
        "XGROUP CREATECONSUMER k g ann",
        "XGROUP SETID k g $",
        "XREADGROUP GROUP g ann STREAMS k >",
        "XACK k g 1-1",
        "XGROUP DESTROY k g",
        "XSETID k 9-9",
        "XTRIM k MAXLEN 10",
        "XDEL k 5-5",
    ] {
        watched(stream, &[change], true);
    }
    watched(stream, &["XDEL k 1-1"], false);
    watched(stream, &["XADD k 2-1 a 1"], false);
    for (change, runs) in [
        ("BITFIELD k SET u8 0 97", true),
        ("BITFIELD k GET u8 0 INCRBY u8 0 0", true),
        ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 255", true),
        ("BITFIELD k SET u8 0 98", false),
        ("BITFIELD k SET u8 8 0", false),
        ("SETBIT k 1 1", true),
        ("SETBIT k 1 0", false),
    ] {
        watched(&["SET k a", "SETBIT k 7 0", "SETBIT k 7 1"], &[change], runs);
    }
    watched(&[], &["FLUSHALL"], true);
    watched(&["SET k 1"], &["SELECT 1", "SET k 2", "SELECT 0"], true);
    watched(&["SET k 1"], &["SELECT 1", "FLUSHDB", "SELECT 0"], true);
    // SWAPDB changes the keys of both databases.
    watched(&["SET k 1"], &["SWAPDB 0 1"], false);
    watched(&["SELECT 1", "SET k 1", "SELECT 0"], &["SWAPDB 0 1"], false);
    watched(&[], &["SWAPDB 0 1"], true);
    watched(&["SET k 1"], &["SWAPDB 2 1"], true);
}

#[test]
fn an_expired_key_has_changed_unless_it_had_expired_before() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    assert!(!b.run("DEBUG SET-ACTIVE-EXPIRE 0").is_empty());
    // On a busy machine the key may be gone before it is watched; then it lives longer.
    let is_watched_in_time = |ttl_ms: &u32| {
        b.run(&format!("SET k 1 PX {ttl_ms}"));
        lines(&mut a, &[("UNWATCH", "OK"), ("WATCH k", "OK")]);
        b.run("EXISTS k") == "(integer) 1"
    };
    assert!([30, 300, 3_000, 30_000].iter().any(is_watched_in_time));
    eventually("it expires", || b.run("EXISTS k") == "(integer) 0");
    lines(&mut a, &[("MULTI", "OK"), ("PING", "QUEUED"), ("EXEC", "(nil)")]);
    lines(&mut a, &[("WATCH k", "OK"), ("MULTI", "OK"), ("PING", "QUEUED"), ("EXEC", "1) PONG")]);
}

#[test]
fn watches_end_with_exec_discard_unwatch_reset_and_the_connection() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    for end in [&["UNWATCH"][..], &["MULTI", "DISCARD"], &["MULTI", "EXEC"], &["RESET"]] {
        lines(&mut a, &[("WATCH k", "OK")]);
        end.iter().for_each(|line| drop(a.run(line)));
        b.run("SET k changed");
        lines(&mut a, &[("MULTI", "OK"), ("PING", "QUEUED"), ("EXEC", "1) PONG")]);
    }
    lines(&mut a, &[("MULTI", "OK"), ("SET k reset", "QUEUED"), ("RESET", "RESET"), ("GET k", "\"changed\"")]);
    let mut c = node.connect();
    lines(&mut c, &[("WATCH k", "OK"), ("MULTI", "OK"), ("SET k c", "QUEUED"), ("QUIT", "OK")]);
    drop(c);
    lines(&mut b, &[("SET k b", "OK"), ("GET k", "\"b\"")]);
}

#[test]
fn the_client_list_shows_transactions() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    lines(&mut a, &[("CLIENT SETNAME tx", "OK"), ("WATCH k l", "OK"), ("MULTI", "OK"), ("GET k", "QUEUED")]);
    let list = b.run("CLIENT LIST");
    let line = list.split("\\n").find(|line| line.contains(" name=tx ")).unwrap();
    assert!(line.contains(" flags=x ") && line.contains(" multi=1 qbuf=0 "), "{line}");
    a.run("DISCARD");
    let list = b.run("CLIENT LIST");
    let line = list.split("\\n").find(|line| line.contains(" name=tx ")).unwrap();
    assert!(line.contains(" flags=N ") && line.contains(" multi=-1 qbuf=0 "), "{line}");
}

#[test]
fn a_queue_has_the_limit_of_the_query_buffer() {
    let node = Node::start(&[("client-query-buffer-limit", "1mb")]);
    let mut a = node.connect();
    lines(&mut a, &[("MULTI", "OK")]);
    let set = format!("SET k {}", "x".repeat(60_000));
    let closed = (0..100).find(|_| a.run(&set) == "(closed)");
    assert!(closed.is_some_and(|at| (10..30).contains(&at)), "{closed:?}");
}

#[test]
fn transactions_on_the_same_keys_do_not_mix() {
    let node = Node::start(&[]);
    const ROUNDS: usize = 300;
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let node = &node;
            scope.spawn(move || {
                let mut client = node.connect();
                for round in 0..ROUNDS {
                    // Opposite orders of the keys, and from time to time all keys.
                    let (first, second) = if worker % 2 == 0 { ("p", "q") } else { ("q", "p") };
                    client.run("MULTI");
                    client.run(&format!("INCR {first}"));
                    if round % 50 == 0 {
                        client.run("DBSIZE");
                    }
                    client.run(&format!("INCR {second}"));
                    client.run("MGET p q");
                    let reply = client.run("EXEC");
                    let pair: Vec<&str> =
                        reply.lines().rev().take(2).map(|line| line.split('"').nth(1).unwrap()).collect();
                    assert_eq!(pair[0], pair[1], "{reply}");
                }
            });
        }
    });
    assert_eq!(node.connect().run("GET p"), format!("\"{}\"", 4 * ROUNDS));
}
