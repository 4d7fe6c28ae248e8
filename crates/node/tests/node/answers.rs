//! Answers that once were not Redis's.

use crate::common::{Client, Node, eventually, free_port};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

fn blocked(client: &mut Client, count: &str) {
    eventually("as many clients are blocked", || client.info("clients", "blocked_clients") == count);
}

/// How many clients CLIENT LIST shows with a field.
fn listed(client: &mut Client, field: &str) -> usize {
    client.run("CLIENT LIST").split("\\n").filter(|line| line.split(' ').any(|found| found == field)).count()
}

/// The fields of a command's statistics.
fn commandstat(client: &mut Client, command: &str) -> String {
    client.info("commandstats", &format!("cmdstat_{command}"))
}

#[test]
fn a_pause_counts_and_shows_the_clients_that_it_holds() {
    let node = Node::start(&[]);
    let (mut writer, mut publisher, mut a) = (node.connect(), node.connect(), node.connect());
    assert_eq!(a.run("CLIENT PAUSE 600000 WRITE"), "OK");
    writer.send(b"PING\r\nSET k v\r\n");
    assert_eq!(writer.read(), "PONG", "the replies before a held command do not wait");
    publisher.send(b"PUBLISH channel message\r\n");
    blocked(&mut a, "2");
    assert_eq!(listed(&mut a, "flags=b"), 2);
    let mut gone = node.connect();
    gone.send(b"SET k w\r\n");
    blocked(&mut a, "3");
    drop(gone);
    blocked(&mut a, "2");
    assert_eq!(a.run("CLIENT UNPAUSE"), "OK");
    assert_eq!((writer.read(), publisher.read()), ("OK".to_owned(), "(integer) 0".to_owned()));
    blocked(&mut a, "0");
    assert_eq!(a.run("GET k"), "\"v\"");
}

/// CLIENT itself once passed, and the pause could be ended from outside.
#[test]
fn a_pause_of_everything_holds_client_too() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    b.run("PING");
    let started = std::time::Instant::now();
    assert_eq!(a.run("CLIENT PAUSE 300"), "OK");
    assert_eq!(b.run("CLIENT UNPAUSE"), "OK");
    assert!(started.elapsed().as_millis() >= 290, "it did not wait");
}

#[test]
fn a_pause_of_writes_lets_transactions_through_that_only_read() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    for line in ["MULTI", "EVAL \"#!lua flags=no-writes\\n return 1\" 0", "EVAL_RO 'return 2' 0"] {
        b.run(line);
    }
    assert_eq!(a.run("CLIENT PAUSE 600000 WRITE"), "OK");
    assert_eq!(b.run("EXEC"), "1) (integer) 1\n2) (integer) 2");
    for line in ["MULTI", "EVAL \"#!lua\\n return 1\" 0"] {
        b.run(line);
    }
    b.send(b"EXEC\r\n");
    blocked(&mut a, "1");
    a.run("CLIENT UNPAUSE");
    assert_eq!(b.read(), "1) (integer) 1");
}

#[test]
fn nothing_expires_during_a_pause() {
    let node = Node::start(&[("notify-keyspace-events", "Ex")]);
    let (mut a, mut listener) = (node.connect(), node.connect());
    listener.run("SUBSCRIBE __keyevent@0__:expired");
    for line in ["MULTI", "SET k v PX 1", "SET l v PX 1", "SET m v", "CLIENT PAUSE 600000 WRITE"] {
        a.run(line);
    }
    a.run("EXEC");
    eventually("the keys are gone", || a.run("MGET k l m") == "1) (nil)\n2) (nil)\n3) \"v\"");
    assert_eq!(a.run("EXISTS k l m"), "(integer) 1");
    assert_eq!(a.run("RANDOMKEY"), "\"m\"");
    assert_eq!((a.info("stats", "expired_keys"), a.run("DBSIZE")), ("0".to_owned(), "(integer) 3".to_owned()));
    a.run("CLIENT UNPAUSE");
    a.run("GET k");
    a.run("GET l");
    assert_eq!(a.info("stats", "expired_keys"), "2");
    assert!(listener.read().contains("expired"));
}

#[test]
fn scripts_that_may_only_read_cannot_publish() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for call in ["'PUBLISH','c','m'", "'SPUBLISH','c','m'", "'PFCOUNT','k'"] {
        let reply = client.run(&format!("EVAL_RO \"return redis.call({call})\" 1 k"));
        assert!(reply.starts_with("(error) ERR Write commands are not allowed from read-only scripts."), "{reply}");
    }
    assert_eq!(client.run("EVAL \"return redis.call('WAIT', 1, 0)\" 0"), "(integer) 0");
    let reply = client.run("EVAL \"return redis.pcall('XREAD','BLOCK',0,'STREAMS',KEYS[1],'$')\" 1 s");
    assert_eq!(reply, "(error) ERR XREAD command is not allowed with BLOCK option from scripts");
    client.run("SADD s c a b 10 2");
    let sorted = client.run("EVAL \"return redis.call('SORT',KEYS[1],'BY','nosort')\" 1 s");
    assert_eq!(sorted, "1) \"10\"\n2) \"2\"\n3) \"a\"\n4) \"b\"\n5) \"c\"");
}

#[test]
fn functions_are_found_in_any_case_and_names_may_be_quoted() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let library = b"#!lua name=\"quoted\"\nredis.register_function('Fine', function() return 7 end)";
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", library]), "\"quoted\"");
    assert_eq!((client.run("FCALL fine 0"), client.run("FCALL FINE 0")), ("(integer) 7".into(), "(integer) 7".into()));
    let twice = b"#!lua name=other\nredis.register_function('fINE', function() return 8 end)";
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", twice]), "(error) ERR Function fINE already exists");
    let unpacked =
        |count: usize| format!("EVAL \"local t = {{}} for i=1,{count} do t[i]=i end return select('#', unpack(t))\" 0");
    assert_eq!(client.run(&unpacked(7_999)), "(integer) 7999");
    assert!(client.run(&unpacked(8_000)).contains("too many results to unpack"));
    let reply = client.run("FUNCTION FLUSH ASYNC SYNC");
    assert_eq!(reply, "(error) ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.");
}

#[test]
fn errors_of_scripts_are_counted_once() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for script in ["return redis.error_reply('MINE one')", "return {err='MINE two'}", "return {1, {err='MINE three'}}"]
    {
        client.words(&[b"EVAL", script.as_bytes(), b"0"]);
    }
    assert_eq!(client.info("errorstats", "errorstat_MINE"), "count=3");
    assert!(commandstat(&mut client, "eval").contains("failed_calls=3"), "{}", commandstat(&mut client, "eval"));
    client.run("CONFIG RESETSTAT");
    // The command has counted the error. The script has failed too.
    client.run("SET text v");
    for script in ["return redis.call('LPUSH','text',1)", "return redis.pcall('LPUSH','text',1)"] {
        client.words(&[b"EVAL", script.as_bytes(), b"1", b"text"]);
    }
    assert_eq!(client.info("errorstats", "errorstat_WRONGTYPE"), "count=2");
    assert!(commandstat(&mut client, "eval").contains("failed_calls=2"));
    assert!(commandstat(&mut client, "lpush").contains("failed_calls=2"));
    client.run("EVAL \"return redis.call('NOSUCH')\" 0");
    client.run("EVAL \"return redis.call('GET')\" 0");
    assert_eq!(client.info("errorstats", "errorstat_ERR"), "count=2");
    assert!(commandstat(&mut client, "get").contains("rejected_calls=1"));
}

#[test]
fn an_unknown_subcommand_is_said_before_what_the_user_may_do() {
    let node = Node::start(&[]);
    let (mut admin, mut client) = (node.connect(), node.connect());
    admin.run("ACL SETUSER none on nopass -@all");
    client.run("AUTH none x");
    assert_eq!(client.run("CONFIG NOSUCH"), "(error) ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.");
    assert!(client.run("CONFIG GET x").starts_with("(error) NOPERM"));
    assert_eq!(admin.run("CONFIG SET requirepass secret"), "OK");
    let mut stranger = node.connect();
    assert_eq!(stranger.run("CONFIG NOSUCH"), "(error) ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.");
    assert_eq!(
        stranger.run("EXEC"),
        "(error) EXECABORT Transaction discarded because of: NOAUTH Authentication required."
    );
}

#[test]
fn monitors_see_scripts_that_do_not_run() {
    let node = Node::start(&[]);
    let (mut monitor, mut client) = (node.connect(), node.connect());
    monitor.run("MONITOR");
    let unknown = "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0";
    for line in [unknown, "EVAL 'x y' 0", "FCALL nosuch 0"] {
        assert!(client.run(line).starts_with("(error)"));
        let (seen, name) = (monitor.read(), line.split(' ').next().unwrap());
        assert!(seen.contains(&format!("\"{name}\"")), "{seen}");
    }
}

#[test]
fn failed_logins_are_in_the_slow_log_without_their_secrets() {
    let node = Node::start(&[("slowlog-log-slower-than", "0")]);
    let mut client = node.connect();
    client.run("AUTH someone secret");
    let slow = client.run("SLOWLOG GET 1");
    assert!(slow.contains("AUTH") && slow.contains("(redacted)") && !slow.contains("secret"), "{slow}");
}

#[test]
fn news_of_what_a_served_command_changes_comes_behind_its_reply() {
    let node = Node::start(&[("io-threads", "2")]);
    let (mut waiter, mut pusher) = (node.connect(), node.connect());
    waiter.run("HELLO 3");
    waiter.run("CLIENT TRACKING ON");
    for _ in 0..20 {
        waiter.run("LRANGE to 0 -1");
        waiter.send(b"BLMOVE from to LEFT LEFT 0\r\n");
        blocked(&mut pusher, "1");
        pusher.run("RPUSH from x");
        assert_eq!(waiter.read(), "\"x\"");
        assert!(waiter.read().contains("invalidate"));
    }
}

#[test]
fn lowering_the_tracking_limit_forgets_keys_at_once() {
    let node = Node::start(&[]);
    let (mut reader, mut admin) = (node.connect(), node.connect());
    reader.run("HELLO 3");
    reader.run("CLIENT TRACKING ON");
    (0..500).for_each(|at| _ = reader.run(&format!("GET key:{at}")));
    assert_eq!(admin.info("stats", "tracking_total_keys"), "500");
    admin.run("CONFIG SET tracking-table-max-keys 10");
    eventually("the table shrinks", || admin.info("stats", "tracking_total_keys") == "10");
    assert!(reader.read().contains("invalidate"));
}

#[test]
fn client_list_has_the_fields_of_redis() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let line = client.run("CLIENT LIST");
    assert!(!line.contains(" watch="), "{line}");
    assert!(line.contains(" multi=-1 qbuf=26 qbuf-free="), "{line}");
}

#[test]
fn memory_stats_has_the_fields_of_redis() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.run("SET k v");
    let stats = client.run("MEMORY STATS");
    for name in [
        "db.0",
        "overhead.hashtable.main",
        "allocator-fragmentation.bytes",
        "allocator-rss.ratio",
        "allocator-rss.bytes",
        "rss-overhead.ratio",
        "rss-overhead.bytes",
        "fragmentation.bytes",
    ] {
        assert!(stats.contains(&format!("\"{name}\"")), "{name}: {stats}");
    }
}

#[test]
fn the_frequency_of_a_new_or_restored_key_is_that_of_redis() {
    let node = Node::start(&[("maxmemory-policy", "allkeys-lfu")]);
    let mut client = node.connect();
    client.run("SET k v");
    assert_eq!(client.run("OBJECT FREQ k"), "(integer) 5");
    let dump = client.call(&[b"DUMP", b"k"]);
    let resp::client::Value::Bulk(dump) = dump else { panic!("{dump:?}") };
    assert_eq!(client.words(&[b"RESTORE", b"l", b"0", &dump, b"FREQ", b"100"]), "OK");
    assert_eq!(client.run("OBJECT FREQ l"), "(integer) 100");
    // Redis counts one access in a thousand of a key that was used so often.
    (0..3).for_each(|_| _ = client.run("GET l"));
    assert_eq!(client.run("OBJECT FREQ l"), "(integer) 100");
    // Neither policy takes what it does not look at.
    assert_eq!(client.words(&[b"RESTORE", b"m", b"0", &dump, b"IDLETIME", b"1000"]), "OK");
    assert_eq!(client.run("OBJECT FREQ m"), "(integer) 5");
    client.run("CONFIG SET maxmemory-policy allkeys-lru");
    let idle = client.run("OBJECT IDLETIME m");
    assert!(idle.trim_start_matches("(integer) ").parse::<u64>().unwrap() < 900, "{idle}");
    assert_eq!(client.words(&[b"RESTORE", b"n", b"0", &dump, b"FREQ", b"100"]), "OK");
    client.run("CONFIG SET maxmemory-policy allkeys-lfu");
    assert_eq!(client.run("OBJECT FREQ n"), "(integer) 5");
}

#[test]
fn maxmemory_answers_as_in_redis() {
    let node = Node::start(&[("memory-limit", "100mb")]);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG SET maxmemory 1"), "OK");
    assert_eq!(client.run("SET k v"), "(error) OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.run("CONFIG SET maxmemory 0"), "OK");
    assert_eq!(client.run("CONFIG GET maxmemory"), "1) \"maxmemory\"\n2) \"0\"");
    assert_eq!(client.run("SET k v"), "OK");
}

#[test]
fn writes_are_refused_while_replicas_are_missing() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    // Of a database without replicas.
    assert_eq!(client.run("CONFIG SET min-replicas-to-write 1"), "OK");
    let refusal = "(error) NOREPLICAS Not enough good replicas to write.";
    assert_eq!(client.run("SET k v"), refusal);
    assert_eq!(
        client.run("EVAL \"return redis.call('SET', KEYS[1], 'v')\" 1 k").split(" script").next(),
        Some(refusal)
    );
    assert_eq!(client.run("GET k"), "(nil)");
    assert_eq!(client.run("CONFIG SET min-replicas-max-lag 0"), "OK");
    assert_eq!(client.run("SET k v"), "OK");
    assert_eq!(client.run("CONFIG SET min-replicas-to-write 0"), "OK");
}

#[test]
fn what_is_freed_in_the_background_is_counted() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let members: Vec<String> = (0..200).map(|at| format!("member:{at}")).collect();
    client.run(&format!("SADD s {}", members.join(" ")));
    client.run("SET k v");
    client.run("UNLINK s k");
    eventually("one large value", || client.info("memory", "lazyfreed_objects") == "1");
    client.run("MSET a 1 b 2");
    client.run("FLUSHALL ASYNC");
    eventually("all keys of a flush", || client.info("memory", "lazyfreed_objects") == "3");
    client.run("CONFIG RESETSTAT");
    assert_eq!(client.info("memory", "lazyfreed_objects"), "0");
}

#[test]
fn expiry_that_takes_long_is_a_latency_event() {
    let node = Node::start(&[("latency-monitor-threshold", "1")]);
    let mut client = node.connect();
    let commands: String = (0..30_000).map(|at| format!("SET key:{at} v PX 200\r\n")).collect();
    client.send(commands.as_bytes());
    (0..30_000).for_each(|_| assert_eq!(client.read(), "OK"));
    eventually("they expire, which takes a while", || client.run("LATENCY LATEST").contains("expire-cycle"));
}

/// It once stopped one worker, and the clients of the others went on.
#[test]
fn debug_sleep_stops_everybody() {
    let node = Node::start(&[("io-threads", "2"), ("enable-debug-command", "yes")]);
    let mut clients: Vec<Client> = (0..4).map(|_| node.connect()).collect();
    clients.iter_mut().for_each(|client| _ = client.run("PING"));
    let mut sleeper = node.connect();
    for client in &mut clients {
        // A busy machine may let this thread run only when the sleep is over.
        eventually("an answer waits for the end of a sleep", || {
            sleeper.send(b"DEBUG SLEEP 0.3\r\n");
            let (begun, mut has_waited) = (Instant::now(), false);
            // Until the sleep begins for the client's worker, its answers come at once.
            while !has_waited && begun.elapsed().as_millis() < 300 {
                let asked = Instant::now();
                assert_eq!(client.run("PING"), "PONG");
                has_waited = asked.elapsed().as_millis() > 100;
            }
            assert_eq!(sleeper.read(), "OK");
            has_waited
        });
    }
}

#[test]
fn ports_and_addresses_change_while_clients_are_served() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let port = free_port();
    assert_eq!(client.run(&format!("CONFIG SET port {port}")), "OK");
    assert_eq!(Client::connect(port).run("PING"), "PONG");
    assert!(TcpStream::connect(("127.0.0.1", node.port)).is_err(), "the old port is closed");
    assert_eq!(client.info("server", "tcp_port"), port.to_string());
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let refused = client.run(&format!("CONFIG SET port {}", taken.local_addr().unwrap().port()));
    let text = "(error) ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. \
                Check server logs.";
    assert_eq!(refused, text);
    assert_eq!(Client::connect(port).run("PING"), "PONG");
    assert_eq!(client.run("CONFIG SET bind \"127.0.0.1 127.0.0.2\""), "OK");
    let mut other = Client::new(TcpStream::connect(("127.0.0.2", port)).unwrap());
    assert_eq!((other.run("PING"), Client::connect(port).run("PING")), ("PONG".into(), "PONG".into()));
    let refused = client.run("CONFIG SET bind \"127.0.0.1 203.0.113.1\"");
    assert!(refused.ends_with("argument 'bind') - Failed to bind to specified addresses."), "{refused}");
    assert_eq!(Client::connect(port).run("PING"), "PONG");
    assert!(TcpStream::connect(("127.0.0.2", port)).is_ok(), "as before the refused change");
    assert_eq!(client.run("CONFIG GET bind"), "1) \"bind\"\n2) \"127.0.0.1 127.0.0.2\"");
    let refused = client.run("CONFIG SET tls-port 1");
    assert!(refused.contains("Unable to update TLS configuration"), "{refused}");
}

/// Redis lowers `maxclients` to what the system's limit of open files allows, and shows that.
#[test]
fn maxclients_shows_what_the_system_allows() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG GET maxclients"), "1) \"maxclients\"\n2) \"10000\"");
    // More than any Linux allows a process to open.
    assert_eq!(client.run("CONFIG SET maxclients 2000000000"), "OK");
    let shown = client.info("clients", "maxclients");
    assert_ne!(shown, "2000000000");
    assert_eq!(client.run("CONFIG GET maxclients"), format!("1) \"maxclients\"\n2) \"{shown}\""));
}

/// The passwords of a database are for those who may read its settings, as in Redis. The console's is not its.
#[test]
fn config_get_does_not_tell_the_password_of_the_console() {
    let node = Node::start(&[("console-password", "of-the-console"), ("masterauth", "of-the-primary")]);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG GET console-password"), "(empty array)");
    assert_eq!(client.run("CONFIG GET Console-Password masterauth"), "1) \"masterauth\"\n2) \"of-the-primary\"");
    let all = client.run("CONFIG GET *");
    assert!(all.contains("of-the-primary") && !all.contains("of-the-console"), "{all}");
    assert!(
        !client.run("EVAL \"return redis.call('CONFIG', 'GET', 'console-password')\" 0").contains("of-the-console")
    );
}

#[test]
fn client_caching_says_which_mode_it_needs() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let neither = "(error) ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
    let optin = "(error) ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
    let optout = "(error) ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
    assert_eq!(client.run("CLIENT CACHING YES"), neither);
    client.run("CLIENT TRACKING ON");
    assert_eq!((client.run("CLIENT CACHING YES"), client.run("CLIENT CACHING NO")), (optin.into(), optout.into()));
    assert_eq!(client.run("CLIENT CACHING x"), "(error) ERR syntax error");
}

/// Redis names those behind the first of each word, although the command takes the last of all.
#[test]
fn command_getkeys_of_repeated_words() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for (line, keys) in [
        ("GEORADIUS s 1 1 1 m STORE a STORE b", "s a"),
        ("GEORADIUS s 1 1 1 m STORE a STOREDIST b", "s a b"),
        ("GEORADIUSBYMEMBER s m 1 m STOREDIST a STORE b STORE c", "s b a"),
        ("GEORADIUS s 1 1 1 m COUNT 1 STORE", "s"),
        ("SORT s STORE a STORE b", "s b"),
    ] {
        let keys: Vec<String> = keys.split(' ').enumerate().map(|(at, key)| format!("{}) \"{key}\"", at + 1)).collect();
        assert_eq!(client.run(&format!("COMMAND GETKEYS {line}")), keys.join("\n"), "{line}");
    }
    client.run("GEOADD s 1 1 m");
    assert_eq!(client.run("GEORADIUS s 1 1 1 m STORE a STORE b"), "(integer) 1");
    assert_eq!(client.run("EXISTS a"), "(integer) 0");
    // A user needs the right to write the key that is written.
    client.run("ACL SETUSER bob on nopass +@all ~a %R~s");
    assert_eq!(client.run("AUTH bob x"), "OK");
    assert!(client.run("GEORADIUS s 1 1 1 m STORE a STORE b").starts_with("(error) NOPERM"));
}

/// In Redis, LSET counts the new element beside the old one.
#[test]
fn lset_leaves_the_packed_form_where_redis_does() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.run("CONFIG SET list-max-listpack-size 3");
    for (line, encoding) in [
        ("RPUSH l a b", "listpack"),
        ("LSET l 0 c", "listpack"),
        ("RPUSH l c", "listpack"),
        ("LSET l 0 a", "quicklist"),
        ("LPOP l", "quicklist"),
        ("LPOP l", "listpack"),
    ] {
        client.run(line);
        assert_eq!(client.run("OBJECT ENCODING l"), format!("\"{encoding}\""), "{line}");
    }
}

#[test]
fn percentiles_of_latencies_read_as_in_redis() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let directive = "latency-tracking-info-percentiles";
    for (set, got) in [("0 50 100", "0 50 100"), ("99.90 .5 1e1", "99.9 0.5 10"), ("", "")] {
        assert_eq!(client.run(&format!("CONFIG SET {directive} \"{set}\"")), "OK");
        assert_eq!(client.run(&format!("CONFIG GET {directive}")), format!("1) \"{directive}\"\n2) \"{got}\""));
    }
    for wrong in ["nan", "x"] {
        let reply = client.run(&format!("CONFIG SET {directive} {wrong}"));
        assert!(reply.ends_with(" - Invalid latency-tracking-info-percentiles parameters"), "{reply}");
    }
    client.run(&format!("CONFIG SET {directive} \"0 100\""));
    client.run("CONFIG RESETSTAT");
    // Of a single call, the lowest is what none falls below: its bucket's lower bound.
    client.run("DBSIZE");
    let shown = client.info("latencystats", "latency_percentiles_usec_dbsize");
    let figures: Vec<f64> = shown.split(',').map(|part| part.split_once('=').unwrap().1.parse().unwrap()).collect();
    let call = commandstat(&mut client, "dbsize");
    let usec: f64 = call.split(',').find_map(|part| part.strip_prefix("usec_per_call=")).unwrap().parse().unwrap();
    // It has two digits behind the point, the figures have three.
    let rounding = 0.005;
    assert!(figures[0] - rounding <= usec && usec <= figures[1] + rounding, "{shown} {call}");
    assert!(figures[0] < figures[1], "{shown}");
}

#[test]
fn modules_are_refused_in_the_words_of_redis() {
    let texts = |allowed: &str| {
        let node = Node::start(&[("enable-module-command", allowed)]);
        let mut client = node.connect();
        ["LOADEX x.so CONFIG a b", "LOAD x.so", "UNLOAD x"].map(|line| client.run(&format!("MODULE {line}")))
    };
    let refused = "(error) ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it \
                   from a local connection, otherwise you need to set this option in the configuration file, and then restart the \
                   server.";
    assert_eq!(texts("no"), [refused; 3]);
    let load = "(error) ERR Error loading the extension: modules are not supported";
    let allowed = [load, load, "(error) ERR Error unloading module: no such module with that name"];
    assert_eq!(texts("yes"), allowed);
    assert_eq!(texts("local"), allowed);
}

/// They were 0. The figures come from the runtime, which counts when it sleeps.
#[test]
fn the_event_loop_counts_its_rounds() {
    let node = Node::start(&[("io-threads", "1")]);
    let mut client = node.connect();
    let figures = |client: &mut Client| {
        ["cycles", "duration_sum", "duration_cmd_sum"]
            .map(|field| client.info("stats", &format!("eventloop_{field}")).parse::<u64>().unwrap())
    };
    assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
    let before = figures(&mut client);
    for _ in 0..50 {
        assert_eq!(client.run("EVAL \"for i = 1, 100 do redis.call('SET', KEYS[1], i) end\" 1 k"), "(nil)");
    }
    let after = figures(&mut client);
    // The client waits for each reply, and the loop for the next command.
    assert!(after[0] >= before[0] + 50, "{before:?} {after:?}");
    assert!(after[1] > before[1] && after[2] > before[2], "{before:?} {after:?}");
    assert!(after[2] <= after[1], "commands run in the loop, and those of a script count once: {after:?}");
    eventually("the rates are there", || {
        client.run("PING");
        client.info("stats", "instantaneous_eventloop_cycles_per_sec") != "0"
    });
    assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
    assert!(figures(&mut client)[2] < after[2]);
}
