//! CONFIG SET and CONFIG REWRITE while clients are served: when a change takes effect, who waits, and what remains
//! after a failure.

use crate::common::{Client, Node, eventually, shown};
use resp::client::encode_command;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// CONFIG SET takes effect with the next command, whichever connection sends it.
#[test]
fn config_set_applies_to_what_follows_in_the_same_pipeline() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    // All in one batch.
    a.send(b"CONFIG SET set-max-intset-entries 2\r\nSADD s 1 2 3\r\nOBJECT ENCODING s\r\n");
    assert_eq!([a.read(), a.read(), a.read()], ["OK", "(integer) 3", "\"listpack\""]);
    // Inside a transaction too.
    a.send(b"MULTI\r\nCONFIG SET set-max-intset-entries 512\r\nSADD t 1 2 3\r\nEXEC\r\nOBJECT ENCODING t\r\n");
    assert_eq!([a.read(), a.read(), a.read()], ["OK", "QUEUED", "QUEUED"]);
    assert_eq!([a.read(), a.read()], ["1) OK\n2) (integer) 3", "\"intset\""]);
}

/// As in Redis, the command that sets the threshold to 0 is in the slow log, and the command that sets it back is
/// not.
#[test]
fn config_set_obeys_its_own_slow_log_threshold() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    a.send(b"CONFIG SET slowlog-log-slower-than 0\r\nPING\r\nCONFIG SET slowlog-log-slower-than -1\r\nPING\r\n");
    assert_eq!([a.read(), a.read(), a.read(), a.read()], ["OK", "PONG", "OK", "PONG"]);
    let logged = a.run("SLOWLOG GET");
    assert!(logged.contains("\"slowlog-log-slower-than\"") && logged.contains("\"PING\""), "{logged}");
    assert_eq!(a.run("SLOWLOG LEN"), "(integer) 2", "{logged}");
    assert_eq!(a.run("SLOWLOG RESET"), "OK");
    a.send(
        b"MULTI\r\nCONFIG SET slowlog-log-slower-than 0\r\nPING\r\nCONFIG SET slowlog-log-slower-than -1\r\nEXEC\r\n",
    );
    let replies: Vec<String> = (0..5).map(|_| a.read()).collect();
    assert_eq!(replies[4], "1) OK\n2) PONG\n3) OK");
    assert_eq!(a.run("SLOWLOG LEN"), "(integer) 2");
}

/// Makes a pipe in place of a file. Opening it for reading blocks until a writer opens it, like a slow disk.
fn make_slow(path: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Waits until the node opens a slow file for reading. The node then waits for the pipe's contents, or its end.
fn reader_of(path: &Path) -> fs::File {
    let mut file = None;
    eventually("the file is read", || {
        let opened = fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        file = opened.ok();
        file.is_some()
    });
    file.expect("it was opened")
}

/// The only worker serves other clients while one client's command waits for a file.
#[test]
fn config_rewrite_blocks_no_other_client() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.conf");
    fs::write(&file, "# mine\ntimeout 5\n").unwrap();
    let node = Node::start_with_file(&file, &[("io-threads", "1")]);
    let (mut rewriter, mut setter, mut other) = (node.connect(), node.connect(), node.connect());
    assert_eq!(other.run("PING"), "PONG");
    make_slow(&file);
    rewriter.send(b"SET before 1\r\nCONFIG REWRITE\r\nGET before\r\n");
    assert_eq!(rewriter.read(), "OK");
    let mut reader = reader_of(&file);
    assert_eq!(other.run("PING"), "PONG");
    assert_eq!(other.run("CONFIG GET timeout"), "1) \"timeout\"\n2) \"5\"");
    // Only one change of the configuration runs at a time. The second one waits, and no other command does.
    setter.send(b"CONFIG SET timeout 6\r\n");
    assert_eq!(other.run("SET k v"), "OK");
    assert_eq!(other.run("CONFIG GET timeout"), "1) \"timeout\"\n2) \"5\"");
    reader.write_all(b"# mine\ntimeout 5\n").unwrap();
    drop(reader);
    assert_eq!(setter.read(), "OK");
    assert_eq!(rewriter.read(), "OK");
    assert_eq!(rewriter.read(), "\"1\"");
    assert_eq!(other.run("CONFIG GET timeout"), "1) \"timeout\"\n2) \"6\"");
    assert_eq!(other.run("CONFIG REWRITE"), "OK");
    assert!(fs::read_to_string(&file).unwrap().contains("timeout 6"));
}

/// A transaction cannot park in the middle, so the change is carried out at once.
#[test]
fn limits_are_set_inside_a_transaction_too() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node = Node::start(&[("flash-path", path), ("memory-limit", "100mb"), ("ram-limit", "40mb")]);
    let mut a = node.connect();
    a.send(b"MULTI\r\nSET k v\r\nCONFIG SET memory-limit 200mb\r\nCONFIG SET memory-limit 10mb\r\nGET k\r\nEXEC\r\n");
    let replies: Vec<String> = (0..6).map(|_| a.read()).collect();
    let told: Vec<&str> = replies[5].lines().collect();
    assert_eq!([told[0], told[1], told[3]], ["1) OK", "2) OK", "4) \"v\""], "{replies:?}");
    assert!(told[2].starts_with("3) (error) ERR CONFIG SET failed (possibly related to argument 'memory-limit')"));
    assert_eq!(a.info("tiering", "flash_limit"), (160 << 20).to_string());
    // Outside the transaction a change works again.
    assert_eq!(a.run("CONFIG SET memory-limit 240mb"), "OK");
    assert_eq!(a.info("tiering", "flash_limit"), (200 << 20).to_string());
}

/// Secrets are found by the command's row, not by its name.
#[test]
fn secrets_stay_secret_under_other_names() {
    let node = Node::start(&[
        ("rename-command", "AUTH\nletmein"),
        ("rename-command", "CONFIG\nsettings"),
        ("rename-command", "HELLO\nhi"),
        ("rename-command", "ACL\npeople"),
        ("rename-command", "MIGRATE\nmove-out"),
        ("slowlog-log-slower-than", "0"),
    ]);
    let (mut a, mut monitor) = (node.connect(), node.connect());
    assert_eq!(monitor.run("MONITOR"), "OK");
    a.run("letmein hidden1");
    a.run("letmein default hidden2");
    a.run("hi 2 AUTH default hidden3 SETNAME shown");
    a.run("settings SET masterauth hidden4 timeout 77");
    a.run("people SETUSER hidden5 on >hidden6 ~*");
    a.run("people GETUSER hidden5");
    a.run("people DELUSER hidden5");
    a.run("move-out 127.0.0.1 1 hiddenkey 0 10 AUTH hidden7");
    a.run("move-out 127.0.0.1 1 nokey 0 10 AUTH2 hidden8 hidden9");
    // The word AUTH in other commands hides nothing.
    a.run("SET AUTH visible1");
    a.run("ECHO visible2");
    let logged = a.run("SLOWLOG GET -1");
    let mut seen = String::new();
    while !seen.contains("visible2") {
        seen.push_str(&monitor.read());
        seen.push('\n');
    }
    for secret in 1..=9 {
        let secret = format!("hidden{secret}");
        assert!(!logged.contains(&secret), "{logged}");
        assert!(!seen.contains(&secret), "{seen}");
    }
    for shown in ["\"77\"", "\"masterauth\"", "\"shown\"", "visible1", "nokey", "SETUSER"] {
        assert!(logged.contains(shown), "{shown}: {logged}");
    }
    for shown in ["visible1", "nokey", "\"shown\""] {
        assert!(seen.contains(shown), "{shown}: {seen}");
    }
}

/// Commands that read a cold value without counting a hit once made the number of RAM hits shrink.
#[test]
fn ram_hits_never_decrease() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node = Node::start(&[
        ("flash-path", path),
        ("memory-limit", "100mb"),
        ("ram-limit", "40mb"),
        ("maxmemory-policy", "allkeys-lfu"),
        ("debug-tier-mode", "cold"),
    ]);
    let mut a = node.connect();
    for key in 0..50 {
        assert_eq!(a.run(&format!("SET key:{key} {key}")), "OK");
    }
    let hits = |a: &mut Client| {
        let number = |a: &mut Client, field: &str| a.info("tiering", field).parse::<u64>().unwrap();
        (number(a, "storage_provider_read_hits"), number(a, "storage_provider_read_misses"))
    };
    assert_eq!(hits(&mut a), (0, 0));
    for key in 0..50 {
        assert_eq!(a.run(&format!("GET key:{key}")), format!("\"{key}\""));
    }
    // Each value came from flash.
    assert_eq!(hits(&mut a), (0, 50));
    assert_eq!(a.run("CONFIG SET debug-tier-mode off"), "OK");
    for key in 0..20 {
        assert_eq!(a.run(&format!("GET key:{key}")), format!("\"{key}\""));
        assert_eq!(a.run(&format!("GET key:{key}")), format!("\"{key}\""));
    }
    // The first read of each value came from flash, the second from RAM.
    let mut before = hits(&mut a);
    assert_eq!(before, (20, 70));
    for key in 20..50 {
        for line in [
            format!("OBJECT FREQ key:{key}"),
            format!("OBJECT ENCODING key:{key}"),
            format!("MEMORY USAGE key:{key}"),
            format!("INCR key:{key}"),
            format!("EXISTS key:{key}"),
        ] {
            a.run(&line);
            let now = hits(&mut a);
            assert!(now.0 >= before.0 && now.1 >= before.1, "{line}: {before:?} and then {now:?}");
            before = now;
        }
    }
}

/// Tasks that needed every stripe once ran on the thread that accepts connections, and a worker's maintenance once
/// waited for a stripe too.
#[test]
fn a_long_script_delays_only_its_own_worker() {
    // One of the two workers sweeps for expired keys. So the script runs first on one worker, then on the other.
    for on in [0, 1] {
        let node = Node::start(&[("io-threads", "2"), ("busy-reply-threshold", "3600000")]);
        // Each new connection goes to the worker with the fewest connections, so connections alternate between the
        // two workers.
        let all: Vec<Client> = (0..8).map(|_| node.connect()).collect();
        let mut own: Vec<Client> = Vec::new();
        for (at, mut client) in all.into_iter().enumerate() {
            assert_eq!(client.run("PING"), "PONG");
            // Give the script's worker more connections than the other, so that new connections go to the other.
            if at % 2 == on {
                own.push(client);
            }
        }
        eventually("half of them have gone", || own[0].info("clients", "connected_clients") == "4");
        // Keys with expiry times, so that sweeps have work in every stripe.
        for key in 0..2_000 {
            assert_eq!(own[0].run(&format!("SET key:{key} v PX 600000")), "OK");
        }
        let script = "redis.call('SET', KEYS[1], 1) \
                      local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
                      local from = ms() repeat until ms() > from + 8000 return 'done'";
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (runner, is_over) = (&mut own[0], &is_over);
            let running = scope.spawn(move || {
                let reply = runner.value(&[b"EVAL", script.as_bytes(), b"1", b"key:1"]);
                is_over.store(true, Relaxed);
                shown(&reply.unwrap())
            });
            let mut longest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                let begun = Instant::now();
                assert_eq!(node.connect().run("PING"), "PONG");
                longest = longest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(running.join().unwrap(), "\"done\"");
            // After the first second, whoever waited for the script would wait for nearly seven seconds.
            assert!(longest < Duration::from_secs(6), "a connection waited for {longest:?}");
        });
    }
}

/// The thread that handles signals once waited for the script's stripe.
#[test]
fn a_signal_is_handled_while_a_script_runs() {
    let node = Node::start(&[]);
    let script = "redis.call('SET', KEYS[1], 1) \
                  local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
                  local from = ms() repeat until ms() > from + 8000 return 'done'";
    let mut runner = node.connect();
    assert_eq!(runner.run("SET k v"), "OK");
    let mut words = Vec::new();
    encode_command(&[b"EVAL", script.as_bytes(), b"1", b"k"], &mut words);
    runner.send(&words);
    // The clock counts the index's bytes once a second, so it does so once while the script runs. While it waited for the script, nothing
    // showed that it had begun.
    std::thread::sleep(Duration::from_millis(1_200));
    runner.stream.set_nonblocking(true).unwrap();
    node.signal(libc::SIGTERM);
    // Its connection may end with the node's, without a reply, or with the error that the node is stopping. A script that has run
    // to its end is answered with a string.
    let is_over = |runner: &mut Client| {
        let mut first = [0];
        matches!(runner.stream.read(&mut first), Ok(1)) && first == *b"$"
    };
    eventually("the sockets are closed", || TcpStream::connect(("127.0.0.1", node.port)).is_err());
    assert!(!is_over(&mut runner), "the script has ended before the signal was heard");
}

/// It was refused while a dump was written.
#[test]
fn appendonly_is_switched_behind_a_save() {
    let node = Node::start(&[("rdbcompression", "no")]);
    let (mut a, mut other) = (node.connect(), node.connect());
    // More than a pipe holds: the save waits until somebody reads.
    a.words(&[b"SET", b"k", &[b'x'; 300_000]]);
    let draft = node.dir.path().join(format!("temp-{}.rdb", node.pid()));
    make_slow(&draft);
    assert_eq!(a.run("BGSAVE"), "Background saving started");
    // Waits until the save has opened the pipe: before that, the switch might come first.
    let mut pipe = fs::File::open(&draft).unwrap();
    a.send(b"CONFIG SET appendonly yes\r\n");
    // Nothing else waits, and a mistake is told at once.
    for _ in 0..50 {
        assert_eq!(other.run("CONFIG SET timeout 0"), "OK");
    }
    assert!(other.run("CONFIG SET appendonly yes timeout 0").contains("appendonly must be set alone"));
    let state =
        |other: &mut Client| ["rdb_bgsave_in_progress", "aof_enabled"].map(|field| other.info("persistence", field));
    assert_eq!(state(&mut other), ["1", "0"]);
    // A pipe is no dump: the save ends with an error.
    std::io::copy(&mut pipe, &mut std::io::sink()).unwrap();
    assert_eq!(a.read(), "OK");
    assert_eq!(state(&mut other), ["0", "1"]);
}
