//! Copies of shards: datasets that no socket reaches. The tests reach them by a bridge, which runs on a worker's thread as the proxy of a
//! cluster will: it accepts connections and carries their bytes over streams in memory.

use crate::common::{Client, allocated};
use crate::databases::{Operator, start};
use flintkv_tests::compare::compare_pipeline;
use flintkv_tests::generator::{Commands, SETTINGS};
use flintkv_tests::seed;
use node::Role;
use node::{DatabaseState, Definition, NodeError};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::copy_bidirectional;

/// What the node's own process does for a test.
pub fn run_command(node: &Arc<node::Node>, words: &[&str]) -> Result<String, NodeError> {
    let done = |done: Result<(), NodeError>| done.map(|()| "done".to_owned());
    match *words {
        [how @ ("open" | "open-behind"), name, shard, memory_mb, ram_mb, persistence] => {
            let definition = Definition {
                name: name.to_owned(),
                memory_limit_bytes: memory_mb.parse::<u64>().unwrap() << 20,
                ram_limit_bytes: ram_mb.parse::<u64>().unwrap() << 20,
                persistence: persistence.to_owned(),
                ..Definition::default()
            };
            let proxy = &node.databases()[0];
            let proxy = (how == "open-behind").then_some(&**proxy);
            node.open_copy(&definition, shard.parse().unwrap(), proxy, None).map(|copy| copy.name().to_owned())
        }
        ["bridge", name, worker] => {
            let copy = node.copy(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            listener.set_nonblocking(true).unwrap();
            let copy = Arc::downgrade(&copy);
            let bridge = move || async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((mut outside, _)) = listener.accept().await {
                    let Some(copy) = copy.upgrade() else { return };
                    let mut inside = copy.connect_in_memory().unwrap();
                    drop(tokio::task::spawn_local(async move {
                        let _ = copy_bidirectional(&mut outside, &mut inside).await;
                    }));
                }
            };
            node.run_on_worker(worker.parse().unwrap(), Box::new(move || Box::pin(bridge())));
            Ok(port.to_string())
        }
        ["proxy", ref copies @ ..] => {
            let copies: Vec<_> = copies.iter().map(|name| node.copy(name).expect("it is open")).collect();
            node.databases()[0].serve_from(&copies).map_err(NodeError::Io)?;
            Ok("done".to_owned())
        }
        ["cycle", times, folder] => cycle(node, times.parse().unwrap(), folder),
        ["own", name, which] => {
            let copy = node.copy(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
            match which {
                "all" => copy.set_owned(|_| true),
                "none" => copy.set_owned(|_| false),
                _ => copy.set_owned(|stripe| stripe % 2 == 0),
            }
            Ok("done".to_owned())
        }
        ["close", name] => done(node.close_copy(name)),
        ["delete", name] => done(node.delete_copy(name)),
        ["discard", name] => done(node.discard_copy(name)),
        ["names"] => Ok(node.copies().iter().map(|copy| copy.name().to_owned()).collect::<Vec<_>>().join(" ")),
        _ => panic!("{words:?}"),
    }
}

/// What the process has: threads, descriptors, allocated bytes.
fn holds() -> [i64; 3] {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count() as i64;
    [count("/proc/self/task"), count("/proc/self/fd"), allocated::bytes()]
}

/// Opens a copy, fills it, lets it follow somebody, promotes it, empties it and closes it, again and again; deletes it now and then.
/// Returns what the process has more after the second half of the rounds than after the first.
fn cycle(node: &Arc<node::Node>, times: usize, folder: &str) -> Result<String, NodeError> {
    let definition = Definition {
        name: "cycle".to_owned(),
        memory_limit_bytes: 36 << 20,
        ram_limit_bytes: 32 << 20,
        persistence: "no".to_owned(),
        ..Definition::default()
    };
    let mut halfway = [0; 3];
    for round in 0..times {
        let copy = node.open_copy(&definition, 7, None, None)?;
        let name = copy.name().to_owned();
        while matches!(copy.state(), DatabaseState::Loading { .. }) {
            std::thread::sleep(Duration::from_millis(1));
        }
        copy.set_owned(|_| true);
        let mut client = copy.connect(Role::Admin).unwrap();
        let mut call = |command: &str, reply: &str| {
            client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).unwrap();
            assert_eq!(line.trim_end(), reply, "{command} in round {round} of {folder}");
        };
        call(&format!("SET key {round}"), "+OK");
        call("REPLICAOF 127.0.0.1 1", "+OK");
        call("SET key x", "-READONLY You can't write against a read only replica.");
        call("REPLICAOF NO ONE", "+OK");
        call("SET key y", "+OK");
        call("FLUSHALL", "+OK");
        drop(copy);
        match round % 4 {
            3 => node.delete_copy(&name)?,
            _ => node.close_copy(&name)?,
        }
        if round == times / 2 {
            halfway = holds();
        }
    }
    // The kernel lists a thread that was joined for a moment longer, and a pool lets an idle thread go after some seconds. What leaks stays.
    let mut now = holds();
    let given_up = Instant::now() + Duration::from_secs(30);
    while (now[0] > halfway[0] || now[1] > halfway[1]) && Instant::now() < given_up {
        std::thread::sleep(Duration::from_millis(20));
        now = holds();
    }
    Ok((0..3).map(|at| (now[at] - halfway[at]).to_string()).collect::<Vec<_>>().join(" "))
}

pub fn bridge(operator: &mut Operator, copy: &str, worker: usize) -> u16 {
    operator.run(&format!("copy bridge {copy} {worker}")).parse().expect("a port")
}

/// Sends the same pipelines to both, and compares each reply.
fn same_replies(seed: u64, wanted: usize, ours: &mut Client, theirs: &mut Client) {
    let mut commands = Commands::new(seed, 60);
    let mut done = 0;
    while done < wanted {
        let batch: Vec<_> = (0..1 + commands.random.below(24)).flat_map(|_| commands.next_batch()).collect();
        let compared = compare_pipeline(ours, theirs, &batch);
        assert_eq!(compared.len(), batch.len(), "the copy keeps the connection");
        for (words, compared) in batch.iter().zip(compared) {
            if let Some(difference) = compared.difference {
                let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                panic!("seed {seed}, command {done}: {words:?}\n{difference}");
            }
            done += 1;
        }
    }
}

/// Ten thousand random commands get the same replies from a copy, through memory, as from a database, through its socket.
#[test]
fn a_copy_answers_in_memory_as_a_database_does_over_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), &[("io-threads", "2")]);
    assert_eq!(operator.run("copy open orders 0 100 40 none"), "orders.0");
    assert_eq!(operator.run("copy own orders.0 all"), "done");
    for worker in 0..2 {
        let mut tcp = node.connect();
        let mut memory = Client::connect(bridge(&mut operator, "orders.0", worker));
        for client in [&mut memory, &mut tcp] {
            client.run(SETTINGS);
            client.run("FLUSHALL");
        }
        same_replies(seed() + worker as u64, 5_000, &mut memory, &mut tcp);
        let line = memory.run("CLIENT INFO");
        assert!(line.contains("addr=memory:0") && line.contains("fd=-1"), "{line}");
        // A killed client sees the end, whatever it waits for.
        let mut waits = Client::connect(bridge(&mut operator, "orders.0", worker));
        let id = waits.run("CLIENT ID");
        let id = id.trim_start_matches(|c: char| !c.is_ascii_digit());
        waits.send(b"BLPOP nothing 0\r\n");
        flintkv_tests::eventually("it waits", || memory.info_number("clients", "blocked_clients") == 1);
        assert_eq!(memory.run(&format!("CLIENT KILL ID {id}")), "(integer) 1");
        assert!(waits.raw().is_none(), "it is ended");
    }
    // Nobody sees it among the databases.
    assert_eq!(operator.run("names"), "default");
    assert_eq!(operator.run("copy names"), "orders.0");
}

/// Rounds of a copy's life leave no thread, no descriptor and no memory behind. `FLINTKV_CYCLES`: how many; `make soak` runs a thousand.
#[test]
fn a_copy_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut operator) = start(directory.path(), &[("io-threads", "2")]);
    let times = flintkv_tests::number("FLINTKV_CYCLES", 200);
    let more = operator.run(&format!("copy cycle {times} {}", directory.path().display()));
    let more: Vec<i64> = more.split(' ').map(|count| count.parse().unwrap_or_else(|_| panic!("{more}"))).collect();
    println!("{times} rounds: threads, descriptors and bytes more than halfway: {more:?}");
    assert!(more[0] <= 0 && more[1] <= 0, "threads and descriptors: {more:?}");
    assert!(more[2] < 16 << 10, "{} bytes more after {} rounds", more[2], times / 2);
}

/// The files of this name below the directory.
fn files_of(directory: &Path, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.iter().map(|file| file.display().to_string()).filter(|file| file.contains(name));
    files.chain(folders.iter().flat_map(|folder| files_of(folder, name))).collect()
}

/// Once, the thread that loads a copy went on in the directory that was being removed. What stayed there kept the next copy of that name from
/// being opened.
#[test]
fn the_files_of_a_copy_go_even_while_it_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut operator) = start(directory.path(), &[("io-threads", "2")]);
    for ends in [&["delete"][..], &["close", "discard"], &["close", "discard", "discard"]] {
        for round in 0..2 {
            assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0", "{ends:?}, round {round}");
            assert_eq!(operator.run("copy own orders.0 all"), "done");
            let mut client = Client::connect(bridge(&mut operator, "orders.0", 0));
            client.set_all((0..20_000).map(|key| (format!("key:{key}"), "value")));
            assert_eq!(operator.run("copy close orders.0"), "done");
            assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
            for end in ends {
                assert_eq!(operator.run(&format!("copy {end} orders.0")), "done", "{ends:?}, round {round}");
            }
            assert_eq!(files_of(directory.path(), "orders.0"), [""; 0], "{ends:?}, round {round}");
        }
    }
    // Of a copy that is open, only who closes it removes the files.
    assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
    let refused = operator.run("copy discard orders.0");
    assert!(refused.contains("the copy 'orders.0' is open"), "{refused}");
}

/// Unmounts it, whatever the test comes to. What is open there then ends first.
struct Mounted<'p>(&'p Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Once, a copy that was open before was refused for good when other files had taken the rest of its disk, its own among them. Needs the
/// right to mount; without it, the test says that it is skipped.
#[test]
fn a_copy_is_opened_again_on_a_disk_that_others_have_filled() {
    let directory = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", "size=1100m", "tmpfs"]).arg(directory.path());
    if !mount.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: no right to mount a file system");
        return;
    }
    let _mounted = Mounted(directory.path());
    let (_node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
    assert_eq!(operator.run("copy close orders.0"), "done");
    let others = std::fs::File::create(directory.path().join("others")).unwrap();
    rustix::fs::fallocate(&others, rustix::fs::FallocateFlags::empty(), 0, 400 << 20).unwrap();
    assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
    // A new copy needs room.
    let refused = operator.run("copy open more 0 100 40 no");
    assert!(refused.contains("this machine has only"), "{refused}");
}

const V: &str = "\"v\"";
const NOT_OWNED: &str = "(error) NOTOWNED this copy does not serve the key's shard now";

/// A copy whose stripes are not owned answers nothing and changes nothing, and serves again when they are owned.
#[test]
fn a_copy_serves_what_it_owns() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut operator) = start(directory.path(), &[("io-threads", "2")]);
    assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
    let mut client = Client::connect(bridge(&mut operator, "orders.0", 0));
    // Nobody has said yet what it owns.
    assert_eq!(client.run("GET k"), NOT_OWNED);
    assert_eq!(operator.run("copy own orders.0 all"), "done");
    let keys: Vec<String> = (0..200).map(|key| format!("key:{key}")).collect();
    client.set_all(keys.iter().map(|key| (key, "v")));
    assert_eq!(client.run("RPUSH list a"), "(integer) 1");
    let mut waits = Client::connect(bridge(&mut operator, "orders.0", 1));
    waits.send(b"BLPOP queue 0\r\n");
    flintkv_tests::eventually("it waits", || client.info_number("clients", "blocked_clients") == 1);
    assert_eq!(client.run("WATCH key:1"), "OK");
    assert_eq!(client.run("MULTI"), "OK");
    assert_eq!(client.run("SET key:1 x"), "QUEUED");

    assert_eq!(operator.run("copy own orders.0 none"), "done");
    assert_eq!(flintkv_tests::shown(&waits.reply().expect("the wait is over")), NOT_OWNED);
    assert_eq!(client.run("EXEC"), NOT_OWNED);
    for command in [
        "GET key:1",
        "SET key:1 x",
        "MGET key:1 key:2",
        "DEL key:1",
        "LPOP list",
        "BLPOP list 0",
        "EVAL return(1) 0",
        "EVAL \"return redis.call('GET',KEYS[1])\" 1 key:1",
        "SCAN 0",
        "KEYS *",
        "DBSIZE",
        "RANDOMKEY",
        "FLUSHALL",
        "WATCH key:1",
        "SORT list",
        "RENAME key:1 key:2",
        "OBJECT ENCODING key:1",
    ] {
        assert_eq!(client.run(command), NOT_OWNED, "{command}");
    }
    assert_eq!(client.run("PING"), "PONG");
    assert_eq!(client.run("PUBLISH c m"), "(integer) 0");

    assert_eq!(operator.run("copy own orders.0 even"), "done");
    let (owned, others): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| client.run(&format!("GET {key}")) == V);
    assert!(owned.len() > 50 && others.len() > 50, "about a half: {}", owned.len());
    let (mine, theirs) = (owned[0], others[0]);
    for command in [
        format!("GET {theirs}"),
        format!("MSET {mine} x {theirs} x"),
        format!("DEL {mine} {theirs}"),
        format!("EVAL \"return redis.call('SET',KEYS[1],'x')\" 2 {mine} {theirs}"),
        format!("COPY {mine} {theirs}"),
    ] {
        assert_eq!(client.run(&command), NOT_OWNED, "{command}");
    }
    // A key that a script does not declare; alone, and in a transaction, which holds every stripe.
    let undeclared = format!("EVAL \"return redis.call('GET','{theirs}')\" 1 {mine}");
    assert!(client.run(&undeclared).contains("access a non local key"), "{}", client.run(&undeclared));
    for (command, reply) in [("MULTI", "OK"), (&*undeclared, "QUEUED")] {
        assert_eq!(client.run(command), reply);
    }
    let reply = client.run("EXEC");
    assert!(reply.contains("access a non local key"), "{reply}");
    for (command, reply) in [
        ("MULTI", "OK"),
        (&*format!("SET {mine} x"), "QUEUED"),
        (&*format!("SET {theirs} x"), "QUEUED"),
        ("EXEC", NOT_OWNED),
        (&*format!("GET {mine}"), V),
    ] {
        assert_eq!(client.run(command), reply, "{command}");
    }
    let mut shown: Vec<String> = client
        .scan(&[b"SCAN"], &[b"MATCH", b"key:*"])
        .expect("it has keys")
        .into_iter()
        .map(|name| String::from_utf8(name).unwrap())
        .collect();
    shown.sort();
    let mut wanted: Vec<String> = owned.iter().map(|key| (*key).clone()).collect();
    wanted.sort();
    assert_eq!(shown, wanted);
    for _ in 0..50 {
        let key = client.run("RANDOMKEY").replace('"', "");
        assert!(!others.contains(&&key), "{key} is not owned");
    }

    // SORT's patterns name keys of all stripes.
    client.run(&format!("DEL {mine}"));
    client.run(&format!("RPUSH {mine} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"));
    let reply = client.run(&format!("SORT {mine} BY weight:*"));
    assert_eq!(reply, "(error) ERR the patterns of BY and GET in SORT name keys of another slot");
    client.run(&format!("SET {mine} v"));

    // Its files have all keys, and a new start owns nothing.
    assert_eq!(operator.run("copy close orders.0"), "done");
    assert_eq!(operator.run("copy open orders 0 100 40 no"), "orders.0");
    let mut client = Client::connect(bridge(&mut operator, "orders.0", 0));
    flintkv_tests::eventually("it is loaded", || !client.run("GET key:1").contains("LOADING"));
    assert_eq!(client.run("GET key:1"), NOT_OWNED);
    assert_eq!(operator.run("copy own orders.0 all"), "done");
    for key in &keys {
        assert_eq!(client.run(&format!("GET {key}")), V);
    }
    assert_eq!(client.run("LPOP list"), "\"a\"");
}
