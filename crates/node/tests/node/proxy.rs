//! A proxy over four copies in one process: clients that know nothing of shards get the replies of one node, but for the listed refusals.

use crate::common::{Client, Node};
use crate::copies::bridge;
use crate::databases::{Operator, start};
use flintkv_tests::eventually;
use flintkv_tests::generator::SETTINGS;
use flintkv_tests::sharded::compare_commands;
use resp::client::{Value, encode_command};
use std::path::Path;

const SHARDS: usize = 4;

/// A node whose database is a proxy over four copies, which have low limits of encodings.
fn start_proxy(directory: &Path, memory_mb: u64, ram_mb: u64) -> (Node, Operator) {
    start_proxy_with(directory, memory_mb, ram_mb, &[("io-threads", "2")])
}

fn start_proxy_with(directory: &Path, memory_mb: u64, ram_mb: u64, words: &[(&str, &str)]) -> (Node, Operator) {
    let (node, mut operator) = start(directory, words);
    let names: Vec<String> = (0..SHARDS)
        .map(|shard| operator.run(&format!("copy open-behind orders {shard} {memory_mb} {ram_mb} no")))
        .collect();
    for name in &names {
        assert_eq!(operator.run(&format!("copy own {name} all")), "done");
    }
    assert_eq!(operator.run(&format!("copy proxy {}", names.join(" "))), "done");
    assert_eq!(node.connect().run(SETTINGS), "OK");
    (node, operator)
}

#[test]
fn random_commands_get_the_replies_of_one_node() {
    compare_random_commands(false);
}

#[test]
fn random_commands_get_the_replies_of_one_node_while_all_is_on_flash() {
    compare_random_commands(true);
}

fn compare_random_commands(on_flash: bool) {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, mut operator) = start_proxy(directory.path(), 100, 40);
    if on_flash {
        assert_eq!(proxy.connect().run("CONFIG SET debug-tier-mode cold"), "OK");
        let mut copy = Client::connect(bridge(&mut operator, "orders.2", 0));
        assert_eq!(copy.run("CONFIG GET debug-tier-mode"), "1) \"debug-tier-mode\"\n2) \"cold\"");
    }
    let model = Node::start(&[]);
    let (mut ours, mut theirs) = (proxy.connect(), model.connect());
    theirs.run(SETTINGS);
    compare_commands(&mut ours, &mut theirs, flintkv_tests::number("FLINTKV_COMMANDS", 6_000));
}

/// A command's reply on one line.
fn run(client: &mut Client, line: &str) -> String {
    let words = flintkv_tests::words(line);
    flintkv_tests::one_line(&client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// The next reply, or message, on one line.
fn read(client: &mut Client) -> String {
    flintkv_tests::one_line(&client.reply().expect("the connection is kept"))
}

fn call(client: &mut Client, line: &str, reply: &str) {
    assert_eq!(run(client, line), reply, "{line}");
}

fn all(client: &mut Client, lines: &[(&str, &str)]) {
    lines.iter().for_each(|(line, reply)| call(client, line, reply));
}

/// Keys that all shards own some of.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key:{number}")).collect()
}

#[test]
fn commands_with_several_keys_are_split_and_others_are_sent_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, mut operator) = start_proxy(directory.path(), 100, 40);
    let mut client = proxy.connect();
    let keys = keys(200);
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} v-{key}")).collect();
    call(&mut client, &format!("MSET {}", pairs.join(" ")), "OK");
    call(&mut client, "DBSIZE", "(integer) 200");
    // Each shard has its part.
    for shard in 0..SHARDS {
        let mut copy = Client::connect(bridge(&mut operator, &format!("orders.{shard}"), 1));
        let count = copy.run("DBSIZE");
        let count: usize = count.trim_start_matches("(integer) ").parse().unwrap();
        assert!((20..90).contains(&count), "shard {shard} has {count} of 200");
    }
    let values: Vec<String> = keys.iter().map(|key| format!("\"v-{key}\"")).collect();
    call(&mut client, &format!("MGET {} nosuch", keys.join(" ")), &format!("[{}, (nil)]", values.join(", ")));
    call(&mut client, &format!("EXISTS {} {} nosuch", keys[0], keys.join(" ")), "(integer) 201");
    call(&mut client, &format!("TOUCH {} nosuch", keys.join(" ")), "(integer) 200");
    let named = |client: &mut Client, line: &str| {
        let reply = run(client, line);
        let mut names: Vec<String> = reply.trim_matches(['[', ']']).split(", ").map(str::to_owned).collect();
        names.sort();
        names
    };
    let mut all: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    all.sort();
    assert_eq!(named(&mut client, "KEYS *"), all);
    assert!(all.contains(&run(&mut client, "RANDOMKEY")));
    call(&mut client, "MSET a 1 b", "(error) ERR wrong number of arguments for 'mset' command");
    // One shard has a list where a number is wanted: the others have done their part, as in any cluster.
    call(&mut client, "RPUSH list x", "(integer) 1");
    call(&mut client, &format!("DEL list {}", keys[..100].join(" ")), "(integer) 101");
    call(&mut client, &format!("UNLINK {}", keys[50..150].join(" ")), "(integer) 50");
    call(&mut client, "DBSIZE", "(integer) 50");
    for refused in ["MSETNX a 1 b 2", "RENAME a b", "SUNION a b c", "BLPOP a b 0", "WATCH a b"] {
        call(&mut client, refused, "(error) CROSSSLOT Keys in request don't hash to the same slot");
    }
    call(&mut client, "MSETNX a{t} 1 b{t} 2", "(integer) 1");
    call(&mut client, "SELECT 1", "(error) ERR SELECT is not allowed in cluster mode");
    call(&mut client, "SELECT 0", "OK");
    for refused in ["SWAPDB 0 1", "MIGRATE h 1 k 0 1", "REPLICAOF h 1", "FAILOVER", "CLIENT TRACKING ON", "SAVE"] {
        let reply = run(&mut client, refused);
        assert!(reply.ends_with(" is not supported by a database that is divided into shards"), "{refused}: {reply}");
    }
    let reply = run(&mut client, "CONFIG SET maxclients 100 notify-keyspace-events KEA");
    assert!(reply.ends_with("is not supported by a database that is divided into shards"), "{reply}");
    call(&mut client, "CLIENT TRACKING OFF", "OK");
    // Nobody could reach what lies in another database of a shard.
    for key in 0..20 {
        call(&mut client, &format!("SET {{{key}}}a v"), "OK");
        let not_allowed = |what: &str| format!("(error) ERR {what} is not allowed in cluster mode");
        call(&mut client, &format!("MOVE {{{key}}}a 1"), &not_allowed("MOVE"));
        let reply = not_allowed("Copying to another database");
        call(&mut client, &format!("COPY {{{key}}}a {{{key}}}b DB 1"), &reply);
        call(&mut client, &format!("COPY {{{key}}}a {{{key}}}b DB 0"), "(integer) 1");
        let script = "redis.call('SELECT', 1) return redis.call('SET', KEYS[1], 'v')";
        let reply = run(&mut client, &format!("EVAL \"{script}\" 1 {{{key}}}c"));
        assert!(reply.starts_with(&not_allowed("SELECT")), "{reply}");
        call(&mut client, "MULTI", "OK");
        call(&mut client, &format!("MOVE {{{key}}}a 1"), "QUEUED");
        call(&mut client, "EXEC", &format!("[{}]", not_allowed("MOVE")));
        call(&mut client, &format!("EXISTS {{{key}}}a {{{key}}}b {{{key}}}c"), "(integer) 2");
    }
    call(&mut client, "FLUSHALL", "OK");
    call(&mut client, "DBSIZE", "(integer) 0");
    call(&mut client, "RANDOMKEY", "(nil)");
    call(&mut client, "WAIT 0 10", "(integer) 0");
}

/// SCAN names every key that is there all the time, while others come and go.
#[test]
fn scan_goes_through_all_shards() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let keys = keys(3_000);
    client.set_all(keys.iter().map(|key| (key, "v")));
    for count in ["1", "10", "100", "100000"] {
        let (mut found, mut cursor, mut pages) = (std::collections::BTreeSet::new(), "0".to_owned(), 0);
        loop {
            let reply = client.call(&[b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()]);
            let resp::client::Value::Array(parts) = &reply else { panic!("{reply:?}") };
            let [resp::client::Value::Bulk(next), resp::client::Value::Array(names)] = &parts[..] else {
                panic!("{reply:?}")
            };
            found.extend(names.iter().map(flintkv_tests::one_line));
            cursor = String::from_utf8(next.clone()).unwrap();
            pages += 1;
            run(&mut other, &format!("SET other:{pages} v"));
            run(&mut other, &format!("DEL other:{}", pages - 1));
            if cursor == "0" {
                break;
            }
        }
        assert!(keys.iter().all(|key| found.contains(&format!("\"{key}\""))), "with COUNT {count}");
        assert!(pages >= SHARDS, "a page is of one shard: {pages}");
    }
    assert!(run(&mut client, "SCAN x").starts_with("(error) ERR invalid cursor"));
}

#[test]
fn transactions_go_to_one_shard_in_one_piece() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    const CROSS_SLOT: &str = "(error) CROSSSLOT Keys in request don't hash to the same slot";
    all(&mut client, &[("MULTI", "OK"), ("SET a{1} x", "QUEUED"), ("PING", "QUEUED"), ("GET a{1}", "QUEUED")]);
    call(&mut other, "GET a{1}", "(nil)");
    call(&mut client, "EXEC", "[OK, PONG, \"x\"]");
    // Nothing but what the proxy itself answers.
    all(&mut client, &[("MULTI", "OK"), ("PING", "QUEUED"), ("CLIENT GETNAME", "QUEUED"), ("EXEC", "[PONG, (nil)]")]);
    all(&mut client, &[("MULTI", "OK"), ("EXEC", "[]"), ("EXEC", "(error) ERR EXEC without MULTI")]);
    // Several slots, although one shard may own both.
    all(
        &mut client,
        &[
            ("MULTI", "OK"),
            ("SET a{1} y", "QUEUED"),
            ("SET b{2} y", "QUEUED"),
            ("EXEC", CROSS_SLOT),
            ("GET a{1}", "\"x\""),
        ],
    );
    all(&mut client, &[("MULTI", "OK"), ("MGET a{1} b{2}", CROSS_SLOT)]);
    assert!(run(&mut client, "EXEC").starts_with("(error) EXECABORT"));
    all(&mut client, &[("MULTI", "OK"), ("GET a{1}", "QUEUED"), ("CLIENT ID", "QUEUED")]);
    assert!(run(&mut client, "EXEC").contains("run in different places"));
    all(&mut client, &[("MULTI", "OK")]);
    assert!(run(&mut client, "DBSIZE").contains("not supported in a transaction"));
    assert!(run(&mut client, "EXEC").starts_with("(error) EXECABORT"));
    // WATCH: unchanged, changed, forgotten.
    all(&mut client, &[("WATCH a{1}", "OK"), ("MULTI", "OK"), ("SET a{1} 1", "QUEUED"), ("EXEC", "[OK]")]);
    all(&mut client, &[("WATCH a{1}", "OK"), ("MULTI", "OK"), ("SET a{1} 2", "QUEUED")]);
    call(&mut other, "SET a{1} theirs", "OK");
    all(&mut client, &[("EXEC", "(nil)"), ("GET a{1}", "\"theirs\"")]);
    all(&mut client, &[("WATCH a{1}", "OK"), ("UNWATCH", "OK"), ("MULTI", "OK"), ("SET a{1} 3", "QUEUED")]);
    call(&mut other, "SET a{1} theirs", "OK");
    call(&mut client, "EXEC", "[OK]");
    all(
        &mut client,
        &[("WATCH a{1}", "OK"), ("MULTI", "OK"), ("DISCARD", "OK"), ("MULTI", "OK"), ("SET a{1} 4", "QUEUED")],
    );
    call(&mut other, "SET a{1} theirs", "OK");
    call(&mut client, "EXEC", "[OK]");
    // EXEC without commands still fails when what it watched has changed.
    all(&mut client, &[("WATCH a{1}", "OK"), ("MULTI", "OK")]);
    call(&mut other, "SET a{1} theirs", "OK");
    call(&mut client, "EXEC", "(nil)");
    all(&mut client, &[("WATCH a{1}", "OK"), ("MULTI", "OK"), ("SET b{2} 1", "QUEUED"), ("EXEC", CROSS_SLOT)]);
    all(&mut client, &[("WATCH a{1}", "OK"), ("WATCH b{2}", CROSS_SLOT), ("WATCH b{1}", "OK"), ("RESET", "RESET")]);
    all(
        &mut client,
        &[("MULTI", "OK"), ("WATCH a{1}", "(error) ERR WATCH inside MULTI is not allowed"), ("DISCARD", "OK")],
    );
}

/// However many commands a transaction has, its replies do not shift.
#[test]
fn a_long_transaction_keeps_its_replies() {
    const COMMANDS: usize = 70_000;
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 200, 120);
    let mut client = proxy.connect();
    let mut pipeline = b"MULTI\r\n".to_vec();
    pipeline.extend(b"INCR n\r\n".repeat(COMMANDS));
    pipeline.extend(b"EXEC\r\nGET n\r\n");
    client.send(&pipeline);
    assert_eq!(read(&mut client), "OK");
    for _ in 0..COMMANDS {
        assert_eq!(client.raw().as_deref(), Some(&b"+QUEUED\r\n"[..]));
    }
    let Some(resp::client::Value::Array(replies)) = client.reply() else { panic!("EXEC answers an array") };
    assert_eq!(replies.len(), COMMANDS);
    assert_eq!(replies.last(), Some(&resp::client::Value::Int(COMMANDS as i64)));
    assert_eq!(read(&mut client), format!("\"{COMMANDS}\""));
}

#[test]
fn scripts_run_at_the_owner_of_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let script = "return redis.call('INCR',KEYS[1])";
    let sha = run(&mut client, &format!("SCRIPT LOAD \"{script}\""));
    let sha = sha.trim_matches('"').to_owned();
    // The shards have never seen the script.
    for key in 0..20 {
        call(&mut client, &format!("EVALSHA {sha} 1 counter:{key}"), "(integer) 1");
        call(&mut other, &format!("EVALSHA {sha} 1 counter:{key}"), "(integer) 2");
    }
    call(&mut client, &format!("SCRIPT EXISTS {sha}"), "[(integer) 1]");
    // What EVAL has brought is known by its digest, whichever shard has run it.
    call(&mut client, "EVAL \"return {KEYS[1],ARGV[1]}\" 1 k v", "[\"k\", \"v\"]");
    let sha_of_eval = run(&mut client, "SCRIPT LOAD \"return {KEYS[1],ARGV[1]}\"");
    call(&mut other, "SCRIPT FLUSH", "OK");
    assert!(run(&mut client, &format!("EVALSHA {sha} 1 counter:1")).starts_with("(error) NOSCRIPT"));
    call(&mut client, "EVAL \"return {KEYS[1],ARGV[1]}\" 1 k v", "[\"k\", \"v\"]");
    for key in 0..20 {
        call(
            &mut other,
            &format!("EVALSHA {} 1 k{key} v", sha_of_eval.trim_matches('"')),
            &format!("[\"k{key}\", \"v\"]"),
        );
    }
    let load = format!("SCRIPT LOAD \"{script}\"");
    call(&mut client, &load, &format!("\"{sha}\""));
    for line in ["MULTI", "EVALSHA", "GET counter:1", "EXEC"] {
        match line {
            "MULTI" => call(&mut client, line, "OK"),
            "EVALSHA" => call(&mut client, &format!("EVALSHA {sha} 1 counter:1"), "QUEUED"),
            "EXEC" => call(&mut client, line, "[(integer) 3, \"3\"]"),
            line => call(&mut client, line, "QUEUED"),
        }
    }
    let library = "#!lua name=lib\nredis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)";
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "\"lib\"");
    for key in 0..20 {
        call(&mut other, &format!("FCALL add 1 sum:{key} 5"), "(integer) 5");
    }
    assert!(run(&mut client, "FUNCTION LIST").contains("lib"));
    call(&mut client, "FUNCTION DELETE lib", "OK");
    assert!(run(&mut other, "FCALL add 1 sum:1 5").starts_with("(error) ERR Function not found"));
    assert!(run(&mut client, "EVAL \"return redis.call('GET','a')\" 1 b").contains("do not hash to the same slot"));
    call(&mut client, "SCRIPT KILL", "(error) NOTBUSY No scripts in execution right now.");
    // No script can make the reply by which an owner rejects a command: it would run again and again.
    for reply in ["{err=[[NOTOWNED this copy does not serve the key's shard now]]}", "redis.error_reply('NOTOWNED x')"]
    {
        for script in [format!("return {reply}"), format!("error({reply})")] {
            let script = format!("redis.call('INCR',KEYS[1]) {script}");
            let reply = run(&mut client, &format!("EVAL \"{script}\" 1 rejected"));
            assert!(reply.starts_with("(error) NOTOWNED"), "{script}: {reply}");
        }
    }
    call(&mut client, "GET rejected", "\"4\"");
    // What a script publishes reaches the proxy's clients.
    call(&mut other, "SUBSCRIBE news", "[\"subscribe\", \"news\", (integer) 1]");
    call(&mut client, "EVAL \"return redis.call('PUBLISH','news','from '..KEYS[1])\" 1 k", "(integer) 1");
    assert_eq!(read(&mut other), "[\"message\", \"news\", \"from k\"]");
    call(&mut client, "PUBLISH news plain", "(integer) 1");
    assert_eq!(read(&mut other), "[\"message\", \"news\", \"plain\"]");
    for (line, reply) in
        [("MULTI", "OK"), ("SET k v", "QUEUED"), ("PUBLISH news queued", "QUEUED"), ("EXEC", "[OK, (integer) 1]")]
    {
        call(&mut client, line, reply);
    }
    assert_eq!(read(&mut other), "[\"message\", \"news\", \"queued\"]");
}

#[test]
fn a_blocked_command_holds_the_commands_behind_it_and_can_be_unblocked() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut waits, mut other) = (proxy.connect(), proxy.connect());
    let id = run(&mut waits, "CLIENT ID").trim_start_matches("(integer) ").to_owned();
    let blocked = |other: &mut Client, count: u64| {
        eventually("it waits", || other.info_number("clients", "blocked_clients") == count);
    };
    // What stands behind it in the pipeline is not run before it, whichever shard it is for.
    waits.send(b"BLPOP queue 0\r\nINCR a\r\nINCR b\r\nINCR c\r\n");
    blocked(&mut other, 1);
    for key in ["a", "b", "c"] {
        call(&mut other, &format!("GET {key}"), "(nil)");
    }
    assert!(
        run(&mut other, "CLIENT LIST")
            .lines()
            .any(|line| line.contains(&format!("id={id} ")) && line.contains("flags=b"))
    );
    call(&mut other, "RPUSH queue x", "(integer) 1");
    assert_eq!(read(&mut waits), "[\"queue\", \"x\"]");
    for _ in 0..3 {
        assert_eq!(read(&mut waits), "(integer) 1");
    }
    blocked(&mut other, 0);
    // A time-out, CLIENT UNBLOCK in both ways, CLIENT KILL, and a client that goes away.
    call(&mut waits, "BLPOP queue 0.01", "(nil)");
    for (how, reply) in [("TIMEOUT", "(nil)"), ("ERROR", "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        waits.send(b"BLPOP queue 0\r\n");
        eventually("it is unblocked", || run(&mut other, &format!("CLIENT UNBLOCK {id} {how}")) == "(integer) 1");
        assert_eq!(read(&mut waits), reply);
        call(&mut other, &format!("CLIENT UNBLOCK {id}"), "(integer) 0");
    }
    waits.send(b"BLPOP queue 0\r\n");
    blocked(&mut other, 1);
    call(&mut other, &format!("CLIENT KILL ID {id}"), "(integer) 1");
    assert!(waits.raw().is_none(), "it is ended");
    blocked(&mut other, 0);
    let mut gone = proxy.connect();
    gone.send(b"BLPOP queue 0\r\n");
    blocked(&mut other, 1);
    drop(gone);
    blocked(&mut other, 0);
    // Neither of them takes the element.
    call(&mut other, "RPUSH queue y", "(integer) 1");
    call(&mut other, "LRANGE queue 0 -1", "[\"y\"]");
}

#[test]
fn a_pipeline_keeps_its_order_and_its_modes() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let mut pipeline = Vec::new();
    for number in 0..3_000 {
        let key = format!("k{}", number % 50);
        encode_command(&[b"SET", key.as_bytes(), number.to_string().as_bytes()], &mut pipeline);
        encode_command(&[b"GET", key.as_bytes()], &mut pipeline);
        match number % 100 {
            7 => encode_command(&[b"PING"], &mut pipeline),
            8 => encode_command(&[b"NOSUCH"], &mut pipeline),
            9 => encode_command(&[b"MGET", b"nosuch", key.as_bytes()], &mut pipeline),
            _ => {}
        }
    }
    client.send(&pipeline);
    for number in 0..3_000 {
        assert_eq!(read(&mut client), "OK");
        assert_eq!(read(&mut client), format!("\"{number}\""));
        match number % 100 {
            7 => assert_eq!(read(&mut client), "PONG"),
            8 => assert!(read(&mut client).starts_with("(error) ERR unknown command 'NOSUCH'")),
            9 => assert_eq!(read(&mut client), format!("[(nil), \"{number}\"]")),
            _ => {}
        }
    }
    // RESP3 and back, in one pipeline.
    run(&mut client, "HSET h f v");
    client.send(b"HGETALL h\r\nHELLO 3\r\nHGETALL h\r\nGET nosuch\r\nHELLO 2\r\nHGETALL h\r\n");
    let replies: Vec<Vec<u8>> = (0..6).map(|_| client.raw().unwrap()).collect();
    assert_eq!(replies[0], b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    assert_eq!(replies[2], b"%1\r\n$1\r\nf\r\n$1\r\nv\r\n");
    assert_eq!(replies[3], b"_\r\n");
    assert_eq!(replies[5], replies[0]);
    // CLIENT REPLY.
    client.send(b"CLIENT REPLY OFF\r\nSET k1 a\r\nGET k1\r\nMGET k1 k2\r\nCLIENT REPLY ON\r\nGET k1\r\nCLIENT REPLY SKIP\r\nGET k2\r\nGET k1\r\n");
    assert_eq!([read(&mut client), read(&mut client), read(&mut client)], ["OK", "\"a\"", "\"a\""]);
    // NO-TOUCH is followed.
    call(&mut client, "CLIENT NO-TOUCH ON", "OK");
    call(&mut client, "GET k1", "\"a\"");
    // A large value through the proxy, both ways, and beside a client that does not read.
    let large = vec![b'x'; 1 << 20];
    for at in 0..4 {
        assert_eq!(client.words(&[b"SET", format!("large{at}").as_bytes(), &large]), "OK");
    }
    let mut slow = proxy.connect();
    for _ in 0..4 {
        slow.send(b"GET large0\r\nGET large1\r\nGET large2\r\nGET large3\r\n");
    }
    for _ in 0..100 {
        call(&mut other, "GET k1", "\"a\"");
    }
    for at in 0..4 {
        assert_eq!(
            client.value(&[b"GET", format!("large{at}").as_bytes()]),
            Some(resp::client::Value::Bulk(large.clone()))
        );
    }
    for _ in 0..16 {
        assert_eq!(slow.reply(), Some(resp::client::Value::Bulk(large.clone())));
    }
    // Statistics are the client's at the proxy.
    let stats = run(&mut other, "INFO commandstats");
    assert!(stats.contains("cmdstat_get:calls=") && stats.contains("cmdstat_mget:calls="), "{stats}");
    run(&mut other, "CONFIG SET slowlog-log-slower-than 0");
    run(&mut other, "GET k1");
    assert!(run(&mut other, "SLOWLOG GET 3").contains("[\"GET\", \"k1\"]"));
    // A transaction, whose commands run at the owner, is logged as a whole.
    all(&mut other, &[("MULTI", "OK"), ("SET k1 b", "QUEUED"), ("GET k1", "QUEUED"), ("EXEC", "[OK, \"b\"]")]);
    assert!(run(&mut other, "SLOWLOG GET 1").contains("[\"EXEC\", \"SET\", \"k1\", \"b\", \"GET\", \"k1\"]"));
    // RESETSTAT is of the shards too.
    assert_ne!(other.info_number("stats", "keyspace_hits"), 0);
    call(&mut other, "CONFIG RESETSTAT", "OK");
    assert_eq!(other.info_number("stats", "keyspace_hits"), 0);
    // A script that may write waits while writes are paused, and one that cannot does not.
    call(&mut other, "CLIENT PAUSE 100000 WRITE", "OK");
    call(&mut client, "EVAL \"#!lua flags=no-writes\\nreturn 1\" 1 k1", "(integer) 1");
    all(&mut client, &[("MULTI", "OK"), ("EVAL \"#!lua flags=no-writes\\nreturn 1\" 1 k1", "QUEUED")]);
    call(&mut client, "EXEC", "[(integer) 1]");
    client.send(b"EVAL \"return redis.call('SET',KEYS[1],'paused')\" 1 k8\r\n");
    eventually("it waits", || other.info_number("clients", "blocked_clients") == 1);
    call(&mut other, "GET k8", "\"2958\"");
    call(&mut other, "CLIENT UNPAUSE", "OK");
    assert_eq!(read(&mut client), "OK");
    let mut monitor = proxy.connect();
    run(&mut monitor, "MONITOR");
    run(&mut other, "SET k1 seen");
    all(
        &mut other,
        &[("MULTI", "OK"), ("SET other c", "QUEUED"), ("EXEC", "[OK]"), ("EVAL \"return 1\" 1 k1", "(integer) 1")],
    );
    for seen in [
        "\"SET\" \"k1\" \"seen\"",
        "\"MULTI\"",
        "\"SET\" \"other\" \"c\"",
        "\"EXEC\"",
        "\"EVAL\" \"return 1\" \"1\" \"k1\"",
    ] {
        let shown = read(&mut monitor);
        assert!(shown.contains(seen), "{shown}");
    }
    // The end of what a client sends is not the end of its replies.
    let mut once = std::net::TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    std::io::Write::write_all(&mut once, b"GET k1\r\nGET k2\r\n").unwrap();
    once.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = String::new();
    std::io::Read::read_to_string(&mut once, &mut all).unwrap();
    assert!(all.starts_with("$4\r\nseen\r\n$"), "{all}");
}

#[test]
fn a_refused_exec_forgets_what_was_watched() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let keys = keys(20);
    for key in &keys {
        call(&mut client, &format!("WATCH {key}"), "OK");
        call(&mut client, "MULTI", "OK");
        assert!(run(&mut client, "EXEC now").starts_with("(error) EXECABORT"));
        call(&mut other, &format!("SET {key} 1"), "OK");
        // It may be of any other shard, or of this one.
        call(&mut client, "MULTI", "OK");
        call(&mut client, &format!("GET {key}"), "QUEUED");
        call(&mut client, "EXEC", "[\"1\"]");
    }
}

/// Once the commands before the held one were sent to their owners only when the pause was over.
#[test]
fn a_pause_holds_nothing_that_was_sent_before() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let keys = keys(20);
    keys.iter().for_each(|key| call(&mut client, &format!("SET {key} 1"), "OK"));
    call(&mut other, "CLIENT PAUSE 600000 WRITE", "OK");
    let mut pipeline: Vec<u8> = keys.iter().flat_map(|key| format!("GET {key}\r\n").into_bytes()).collect();
    pipeline.extend_from_slice(b"SET held 2\r\nGET held\r\n");
    client.send(&pipeline);
    keys.iter().for_each(|key| assert_eq!(read(&mut client), "\"1\"", "{key}"));
    call(&mut other, "EXISTS held", "(integer) 0");
    call(&mut other, "CLIENT UNPAUSE", "OK");
    assert_eq!([read(&mut client), read(&mut client)], ["OK", "\"2\""]);
}

/// A large reply is passed on in parts, and published messages stand before it or behind it.
#[test]
fn messages_do_not_cut_a_reply_that_arrives_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 200, 120);
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    let large = vec![b'x'; 4 << 20];
    assert_eq!(other.words(&[b"SET", b"large", &large]), "OK");
    client.send(b"HELLO 3\r\nSUBSCRIBE news\r\n");
    client.reply().expect("HELLO's reply");
    client.reply().expect("the subscription");
    for _ in 0..20 {
        client.send(b"GET large\r\n");
        // The reply fills the sockets, because nobody reads it yet.
        for _ in 0..20 {
            call(&mut other, "PUBLISH news message", "(integer) 1");
        }
        let replies: Vec<Value> = (0..21).map(|_| client.reply().expect("a reply or a message")).collect();
        let (values, messages): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| matches!(reply, Value::Bulk(_)));
        assert!(values == [&Value::Bulk(large.clone())], "{} values", values.len());
        assert!(messages.iter().all(|message| flintkv_tests::one_line(message).contains("\"message\"")));
    }
}

/// A shard that is gone answers for its keys only, after a time in which it may come back.
#[test]
fn a_closed_copy_is_told_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, mut operator) = start_proxy(directory.path(), 100, 40);
    let (mut client, mut waits, mut other) = (proxy.connect(), proxy.connect(), proxy.connect());
    let keys = keys(40);
    client.set_all(keys.iter().map(|key| (key, "v")));
    let mut copy = Client::connect(bridge(&mut operator, "orders.1", 0));
    let (lost, kept): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| copy.run(&format!("GET {key}")) == "\"v\"");
    assert!(!lost.is_empty() && !kept.is_empty());
    waits.send(format!("BLPOP list{{{}}} 0\r\n", lost[0]).as_bytes());
    eventually("it waits", || client.info_number("clients", "blocked_clients") == 1);
    assert_eq!(operator.run("copy close orders.1"), "done");
    // Nobody knows whether it has taken an element.
    let reply = read(&mut waits);
    assert!(reply.starts_with("(error) UNCERTAIN"), "{reply}");
    const DOWN: &str = "(error) CLUSTERDOWN shard 'orders.1' is not served; nothing was changed";
    let began = std::time::Instant::now();
    client.send(format!("GET {}\r\nSET {} x\r\nGET {}\r\nDBSIZE\r\n", lost[0], lost[0], kept[0]).as_bytes());
    // Nobody else waits for it.
    for key in &kept {
        call(&mut other, &format!("GET {key}"), "\"v\"");
    }
    for reply in [DOWN, DOWN, "\"v\"", DOWN] {
        assert_eq!(read(&mut client), reply);
    }
    let waited = began.elapsed().as_millis();
    assert!(waited >= 4_900, "it might have come back: {waited} ms");
    call(&mut client, "PING", "PONG");
    // Of a command that was divided, the others have done their part.
    const PARTLY: &str =
        "(error) CLUSTERDOWN shard 'orders.1' is not served; other shards have done their part of the command";
    call(&mut client, &format!("DEL {} {}", lost[0], kept[0]), PARTLY);
    call(&mut other, &format!("EXISTS {}", kept[0]), "(integer) 0");
}

/// While a shard is handed over, its commands are rejected. They run when it is served again: each once, and in their order.
#[test]
fn what_was_rejected_runs_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, mut operator) = start_proxy(directory.path(), 100, 40);
    let port = proxy.port;
    let clients: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(port);
                let mut counted = 0;
                for round in 0..60 {
                    let mut pipeline = Vec::new();
                    let key = format!("k{}-{number}", round % 10);
                    let both = [format!("a{number}"), format!("b{number}"), format!("c{number}"), format!("d{number}")];
                    for step in 0..20 {
                        let value = (round * 20 + step).to_string();
                        encode_command(&[b"SET", key.as_bytes(), value.as_bytes()], &mut pipeline);
                        encode_command(&[b"INCR", format!("counter{}", step % 8).as_bytes()], &mut pipeline);
                        encode_command(&[b"GET", key.as_bytes()], &mut pipeline);
                        let mut words: Vec<&[u8]> = vec![b"MSET"];
                        both.iter().for_each(|key| words.extend([key.as_bytes(), value.as_bytes()]));
                        encode_command(&words, &mut pipeline);
                        for words in [&[&b"MULTI"[..]][..], &[b"INCR", b"counter0"], &[b"GET", b"counter0"], &[b"EXEC"]]
                        {
                            encode_command(words, &mut pipeline);
                        }
                        let words: Vec<&[u8]> =
                            std::iter::once(&b"MGET"[..]).chain(both.iter().map(|key| key.as_bytes())).collect();
                        encode_command(&words, &mut pipeline);
                    }
                    client.send(&pipeline);
                    for step in 0..20 {
                        let value = round * 20 + step;
                        assert_eq!(read(&mut client), "OK");
                        assert!(read(&mut client).starts_with("(integer) "));
                        assert_eq!(read(&mut client), format!("\"{value}\""));
                        assert_eq!(read(&mut client), "OK");
                        for reply in ["OK", "QUEUED", "QUEUED"] {
                            assert_eq!(read(&mut client), reply);
                        }
                        let pair = read(&mut client);
                        let pair: Vec<&str> = pair.trim_matches(['[', ']']).split(", ").collect();
                        assert_eq!(pair[0].trim_start_matches("(integer) "), pair[1].trim_matches('"'));
                        assert_eq!(read(&mut client), format!("[{}]", vec![format!("\"{value}\""); 4].join(", ")));
                        counted += 2;
                    }
                }
                counted
            })
        })
        .collect();
    let mut handovers = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        let copy = format!("orders.{}", handovers % SHARDS);
        assert_eq!(operator.run(&format!("copy own {copy} none")), "done");
        assert_eq!(operator.run(&format!("copy own {copy} all")), "done");
        handovers += 1;
    }
    let counted: usize = clients.into_iter().map(|client| client.join().expect("every reply was right")).sum();
    let mut client = proxy.connect();
    let total: usize = (0..8)
        .map(|at| run(&mut client, &format!("GET counter{at}")).trim_matches('"').parse::<usize>().unwrap())
        .sum();
    println!("{counted} increments through {handovers} handovers");
    assert_eq!(total, counted, "each ran once");
    // One that is blocked goes on waiting at the owner that comes.
    let mut waits = proxy.connect();
    waits.send(b"BLPOP queue 0\r\n");
    eventually("it waits", || client.info_number("clients", "blocked_clients") == 1);
    for shard in 0..SHARDS {
        assert_eq!(operator.run(&format!("copy own orders.{shard} none")), "done");
    }
    for shard in 0..SHARDS {
        assert_eq!(operator.run(&format!("copy own orders.{shard} all")), "done");
    }
    call(&mut client, "RPUSH queue x", "(integer) 1");
    assert_eq!(read(&mut waits), "[\"queue\", \"x\"]");
    // What was watched at an owner that is gone may have changed.
    all(&mut client, &[("SET w 1", "OK"), ("WATCH w", "OK")]);
    for shard in 0..SHARDS {
        assert_eq!(operator.run(&format!("copy own orders.{shard} none")), "done");
        assert_eq!(operator.run(&format!("copy own orders.{shard} all")), "done");
    }
    all(&mut client, &[("MULTI", "OK"), ("SET w 2", "QUEUED")]);
    let reply = run(&mut client, "EXEC");
    assert!(reply == "(nil)" || reply == "[OK]", "{reply}");
    // A transaction that its owner rejects is not run later, by a session that has not watched for it.
    all(&mut client, &[("SET w 1", "OK"), ("WATCH w", "OK"), ("MULTI", "OK"), ("SET w 2", "QUEUED")]);
    for shard in 0..SHARDS {
        assert_eq!(operator.run(&format!("copy own orders.{shard} none")), "done");
    }
    call(&mut client, "EXEC", "(nil)");
    for shard in 0..SHARDS {
        assert_eq!(operator.run(&format!("copy own orders.{shard} all")), "done");
    }
    call(&mut client, "GET w", "\"1\"");
}

/// Who may do what is decided at the proxy, and for a script's commands at the owner of its keys.
#[test]
fn users_rights_hold_in_scripts_too() {
    let directory = tempfile::tempdir().unwrap();
    let (proxy, _operator) = start_proxy(directory.path(), 100, 40);
    let (mut admin, mut client) = (proxy.connect(), proxy.connect());
    call(&mut admin, "ACL SETUSER ann on >pw ~a* +@all -flushall -incr", "OK");
    call(&mut client, "AUTH ann pw", "OK");
    for key in 0..20 {
        call(&mut client, &format!("SET a{key} 1"), "OK");
        assert!(run(&mut client, &format!("SET b{key} 1")).starts_with("(error) NOPERM"));
        let script = |name: &str| format!("EVAL \"return redis.call('{name}',KEYS[1])\" 1 a{key}");
        call(&mut client, &script("GET"), "\"1\"");
        let reply = run(&mut client, &script("INCR"));
        assert!(reply.contains("ACL failure in script"), "{reply}");
        call(&mut admin, &script("INCR"), "(integer) 2");
    }
    assert!(run(&mut client, "FLUSHALL").starts_with("(error) NOPERM"));
    // A right that is taken away is gone at the owners at once.
    call(&mut admin, "ACL SETUSER ann -get", "OK");
    let reply = run(&mut client, "EVAL \"return redis.call('GET',KEYS[1])\" 1 a1");
    assert!(reply.contains("ACL failure in script"), "{reply}");
    call(&mut client, "AUTH default x", "OK");
    call(&mut client, "EVAL \"return redis.call('GET',KEYS[1])\" 1 a1", "\"2\"");
    // What is queued is looked at again when it runs.
    call(&mut client, "AUTH ann pw", "OK");
    all(&mut client, &[("MULTI", "OK"), ("SET a1 x", "QUEUED")]);
    call(&mut admin, "ACL SETUSER ann -set", "OK");
    assert!(run(&mut client, "EXEC").starts_with("(error) EXECABORT"));
    call(&mut admin, "GET a1", "\"2\"");
    // No client can say the proxy's word.
    assert!(run(&mut client, "RUN-AS default").starts_with("(error) ERR unknown command"));
    call(&mut admin, "ACL DELUSER ann", "(integer) 1");
    assert!(client.raw().is_none(), "it is ended");
}

/// A script that does not end blocks its shard. Through the proxy on the same thread, clients learn of it and can end it.
#[test]
fn a_busy_script_of_a_shard_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let words = [("io-threads", "1"), ("busy-reply-threshold", "50")];
    let (proxy, _operator) = start_proxy_with(directory.path(), 100, 40, &words);
    let (mut runs, mut other) = (proxy.connect(), proxy.connect());
    call(&mut other, "SET k v", "OK");
    runs.send(b"EVAL \"while true do end\" 1 k\r\n");
    // A client that comes meanwhile is served too.
    let mut late = proxy.connect();
    call(&mut late, "PING", "PONG");
    eventually("the shard is busy", || run(&mut other, "GET k").starts_with("(error) BUSY"));
    eventually("it is ended", || run(&mut late, "SCRIPT KILL") == "OK");
    let reply = read(&mut runs);
    assert!(reply.contains("killed by user"), "{reply}");
    call(&mut other, "GET k", "\"v\"");
    call(&mut late, "SCRIPT KILL", "(error) NOTBUSY No scripts in execution right now.");
}
