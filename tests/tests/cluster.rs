//! Clusters of several processes with a real etcd, used by clients that know nothing of a cluster.

use flintkv_tests::cluster::{Cluster, Member, Role};
use flintkv_tests::generator::SETTINGS;
use flintkv_tests::sharded::compare_commands;
use flintkv_tests::{Client, Node, Random, eventually, number, seed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LIMITS: &[&str] = &["--memory-limit", "400mb", "--ram-limit", "60%"];

fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [LIMITS, options].concat()
}

/// Sets `k0` to `k99`, through this connection.
fn fill(client: &mut Client) {
    for number in 0..100 {
        assert_eq!(client.run(&format!("SET k{number} v{number}")), "OK");
    }
}

#[test]
fn three_nodes_are_one_database() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "everysec", "--password=hush"]));
    let connect = |cluster: &Cluster, at: usize| {
        let mut client = cluster.members[at].connect(port);
        assert_eq!(client.run("AUTH hush"), "OK");
        client
    };
    let (mut first, mut second) = (connect(&cluster, 0), connect(&cluster, 1));
    assert!(cluster.members[1].connect(port).run("GET k1").starts_with("(error) NOAUTH"));

    // Every key, through either node; commands over several shards; SCAN.
    fill(&mut first);
    assert_eq!(second.run("DBSIZE"), "(integer) 100");
    assert_eq!(second.run("MGET k1 k2 k3 k4"), "1) \"v1\"\n2) \"v2\"\n3) \"v3\"\n4) \"v4\"");
    assert_eq!(second.run("EXISTS k1 k2 k3 k4 nothing"), "(integer) 4");
    assert_eq!(first.scan(&[b"SCAN"], &[b"COUNT", b"7"]).unwrap().len(), 100);
    assert!(second.run("RENAME k1 k2").starts_with("(error) CROSSSLOT"));
    for client in [&mut first, &mut second] {
        let before = if client.run("EXISTS {a}n") == "(integer) 1" { 2 } else { 0 };
        assert_eq!(client.run("INCRBY {a}n 2"), format!("(integer) {}", before + 2));
        for tag in ["b", "c", "d", "e"] {
            assert_eq!(client.run("MULTI"), "OK");
            client.run(&format!("INCR {{{tag}}}n"));
            client.run(&format!("LPUSH {{{tag}}}l x"));
            assert!(client.run("EXEC").starts_with("1) "), "a transaction in one slot, wherever it is");
            let script = format!("EVAL \"return redis.call('GET', KEYS[1])\" 1 {{{tag}}}n");
            assert!(["\"1\"", "\"2\""].contains(&client.run(&script).as_str()));
        }
    }

    // A blocked client of one node is served by a push at the other.
    for tag in ["b", "c", "d", "e"] {
        first.send(format!("BLPOP {{{tag}}}q 0\r\n").as_bytes());
        assert_eq!(second.run(&format!("LPUSH {{{tag}}}q {tag}")), "(integer) 1");
        assert_eq!(first.read(), format!("1) \"{{{tag}}}q\"\n2) \"{tag}\""));
    }

    // Messages go to all nodes, of scripts too.
    let mut listener = connect(&cluster, 1);
    assert!(listener.run("SUBSCRIBE news").starts_with("1) \"subscribe\""));
    first.run("PUBLISH news hello");
    first.run("EVAL \"return redis.call('PUBLISH', 'news', 'script')\" 1 {b}n");
    let heard = [listener.read(), listener.read()];
    // The script runs at its key's owner. If that is the listener's node, its message may be the first one.
    let is_heard = |message: &str| heard.iter().any(|read| read.ends_with(&format!("\"{message}\"")));
    assert!(is_heard("hello") && is_heard("script"), "{heard:?}");

    let long = vec![b'x'; 2 << 20];
    let refused = first.words(&[b"PUBLISH", b"news", &long]);
    assert!(refused.contains("bytes that go to the cluster's other nodes"), "{refused}");

    // What is changed at one node holds at all.
    assert_eq!(first.run("ACL SETUSER ann on >pw ~* +@all"), "OK");
    assert_eq!(second.run("CONFIG SET hash-max-listpack-entries 7"), "OK");
    eventually("the other node has the user", || cluster.members[1].connect(port).run("AUTH ann pw") == "OK");
    eventually("the other node has the setting", || {
        first.run("CONFIG GET hash-max-listpack-entries").ends_with("\"7\"")
    });
    assert!(first.run("CONFIG SET maxmemory 1gb").contains("cannot be set for a database of a cluster"));
    assert!(first.run("SELECT 1").contains("SELECT is not allowed"));
    assert_eq!(first.run("ACL DELUSER ann"), "(integer) 1");
    eventually("the user is gone", || {
        cluster.members[1].connect(port).run("AUTH ann pw").starts_with("(error) WRONGPASS")
    });

    // A node that stops without a word: its keys are not served, everything else goes on, nothing is lost.
    cluster.members[1].kill_node();
    let begun = Instant::now();
    let pipeline: String = (0..100).map(|number| format!("GET k{number}\r\n")).collect();
    first.send(pipeline.as_bytes());
    let replies: Vec<String> = (0..100).map(|_| first.read()).collect();
    let (served, down): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.starts_with("\"v"));
    assert!(down.iter().all(|reply| reply.starts_with("(error) CLUSTERDOWN shard 'orders.")), "{down:?}");
    assert!(served.len() > 20 && down.len() > 20, "{} served, {} down", served.len(), down.len());
    assert!(begun.elapsed() > Duration::from_secs(4), "each waits for its shard first");
    cluster.members[1].start();
    cluster.serves(0, "orders", 4);
    let mut second = connect(&cluster, 1);
    for client in [&mut first, &mut second] {
        for number in 0..100 {
            assert_eq!(client.run(&format!("GET k{number}")), format!("\"v{number}\""));
        }
    }
}

/// A library with one function, which returns this number.
fn library(name: &str, returns: u32) -> Vec<u8> {
    format!("#!lua name={name}\nredis.register_function('{name}', function() return {returns} end)").into_bytes()
}

#[test]
fn functions_are_those_of_the_whole_database() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "none"]));
    let (mut first, mut second) = (cluster.members[0].connect(port), cluster.members[1].connect(port));
    let everywhere = |client: &mut Client, name: &str| -> Vec<String> {
        (0..20).map(|number| client.run(&format!("FCALL {name} 1 k{number}"))).collect()
    };

    // Right after the reply, through the other node, at every shard.
    for (number, at) in (1..=6).zip([0, 1].into_iter().cycle()) {
        let (here, there) = if at == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        assert_eq!(here.words(&[b"FUNCTION", b"LOAD", b"REPLACE", &library("f", number)]), "\"f\"");
        assert_eq!(everywhere(there, "f"), vec![format!("(integer) {number}"); 20]);
        assert!(here.run("FUNCTION LIST").contains("\"f\""));
    }
    let twice = second.words(&[b"FUNCTION", b"LOAD", &library("f", 9)]);
    assert!(twice.contains("Library 'f' already exists"), "{twice}");
    let wrong = second.words(&[b"FUNCTION", b"LOAD", b"#!lua name=w\nthis is no Lua"]);
    assert!(wrong.starts_with("(error) ERR"), "{wrong}");

    // Two nodes at once lose nothing of each other.
    let load = |client: &mut Client, prefix: char| {
        for number in 0..8 {
            let name = format!("{prefix}{number}");
            assert_eq!(client.words(&[b"FUNCTION", b"LOAD", &library(&name, number)]), format!("\"{name}\""));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| load(&mut first, 'a'));
        scope.spawn(|| load(&mut second, 'b'));
    });
    for (client, prefix) in [(&mut first, 'b'), (&mut second, 'a')] {
        for number in 0..8 {
            assert_eq!(client.run(&format!("FCALL {prefix}{number} 0")), format!("(integer) {number}"));
        }
    }

    // More than a record takes changes nothing.
    let large = [library("large", 1), b"\n--".to_vec(), vec![b'x'; 1 << 20]].concat();
    let refused = first.words(&[b"FUNCTION", b"LOAD", &large]);
    assert!(refused.contains("do not fit into one record") && refused.contains("1048576"), "{refused}");
    assert!(first.run("FCALL large 0").starts_with("(error) ERR Function not found"));

    // A node that was away, whose shards have no persistence, has what was changed meanwhile before it serves.
    let payload = first.words(&[b"FUNCTION", b"DUMP"]);
    assert!(payload.len() > 100);
    cluster.members[1].kill_node();
    assert_eq!(first.run("FUNCTION DELETE a1"), "OK");
    assert_eq!(first.words(&[b"FUNCTION", b"LOAD", b"REPLACE", &library("f", 77)]), "\"f\"");
    cluster.members[1].start();
    // From the first reply that is not about the shard being away.
    let mut second = cluster.members[1].connect(port);
    for client in [&mut first, &mut second] {
        for number in 0..20 {
            let mut said = String::new();
            eventually("the shard is served", || {
                said = client.run(&format!("FCALL f 1 k{number}"));
                !said.starts_with("(error) CLUSTERDOWN")
            });
            assert_eq!(said, "(integer) 77");
        }
        assert!(client.run("FCALL a1 1 k1").starts_with("(error) ERR Function not found"));
    }
    assert_eq!(second.run("FUNCTION FLUSH"), "OK");
    assert_eq!(first.run("FUNCTION LIST"), "(empty array)");
    assert!(first.run("FCALL f 1 k1").starts_with("(error) ERR Function not found"));
}

/// Right after the reply, at every shard and at the other node's proxy.
#[test]
fn a_setting_is_in_force_at_every_shard_when_its_reply_has_come() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "none"]));
    let (mut first, mut second) = (cluster.members[0].connect(port), cluster.members[1].connect(port));
    let limits_hashes_to = |client: &mut Client, limit: usize| {
        for number in 0..20 {
            let fields: String = (0..limit).map(|field| format!(" f{field} v")).collect();
            client.run(&format!("DEL h{number}"));
            client.run(&format!("HSET h{number}{fields}"));
            assert_eq!(client.run(&format!("OBJECT ENCODING h{number}")), "\"listpack\"", "{limit}");
            client.run(&format!("HSET h{number} more v"));
            assert_eq!(client.run(&format!("OBJECT ENCODING h{number}")), "\"hashtable\"", "{limit}");
        }
        assert!(client.run("CONFIG GET hash-max-listpack-entries").ends_with(&format!("\"{limit}\"")));
    };
    for (limit, at) in (1..=8).zip([0, 1].into_iter().cycle()) {
        let (here, there) = if at == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        assert_eq!(here.run(&format!("CONFIG SET hash-max-listpack-entries {limit}")), "OK");
        limits_hashes_to(there, limit);
    }
    assert_eq!(first.run("CONFIG REWRITE"), "OK", "CONFIG SET has kept it already");
    first.run("MULTI");
    first.run("CONFIG REWRITE");
    assert!(first.run("EXEC").contains("kept in etcd, where CONFIG SET puts them"));
    assert!(first.run("CONFIG SET hash-max-listpack-entries x").contains("argument couldn't be parsed"));

    // Without etcd it holds here, which is said; and everywhere as soon as etcd is back.
    cluster.members.iter_mut().for_each(|member| member.stop_coordinator());
    let kept_here = "hold at this node only, because etcd does not have them yet";
    let refused = first.run("CONFIG SET hash-max-listpack-entries 9");
    assert!(refused.contains(kept_here), "{refused}");
    assert!(first.run("CONFIG GET hash-max-listpack-entries").ends_with("\"9\""));
    assert!(first.run("CONFIG REWRITE").contains(kept_here));
    cluster.members.iter_mut().for_each(|member| member.start_coordinator());
    eventually("etcd has the setting", || first.run("CONFIG REWRITE") == "OK");
    limits_hashes_to(&mut second, 9);

    // A node that does not run takes it when it is back.
    cluster.members[1].kill_node();
    assert_eq!(first.run("CONFIG SET hash-max-listpack-entries 10"), "OK");
    cluster.members[1].start();
    cluster.serves(0, "orders", 4);
    limits_hashes_to(&mut cluster.members[1].connect(port), 10);
}

/// An endless script, sent through the node that does not run it.
struct Endless {
    client: Client,
}

impl Endless {
    /// When this returns, it runs.
    fn begin(cluster: &Cluster, port: u16, key: &str) -> Endless {
        let [mut client, mut listener] = [(); 2].map(|()| cluster.members[0].connect(port));
        assert!(listener.run("SUBSCRIBE began").starts_with("1) \"subscribe\""));
        let script = b"redis.call('PUBLISH', 'began', '') while true do end";
        client.send(&resp_command(&[b"EVAL", script, b"1", key.as_bytes()]));
        assert!(listener.read().starts_with("1) \"message\""));
        Endless { client }
    }

    fn was_killed(mut self) {
        let reply = self.client.read();
        assert!(reply.contains("Script killed by user"), "{reply}");
    }
}

fn resp_command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    resp::client::encode_command(words, &mut bytes);
    bytes
}

/// With one worker at each node, the script blocks the thread that serves the other node's link.
#[test]
fn a_long_script_at_another_node_is_like_one_here() {
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[("io-threads", "1")]);
    let port = cluster.create("orders", 2, &with(&["--persistence", "none"]));
    let [mut here, mut there] = [0, 1].map(|at| cluster.members[at].connect(port));
    let key_of = |node: usize, nth: usize| {
        let keys = (0..).map(|number| format!("k{number}"));
        keys.filter(|key| cluster.owner("orders", key) == node).nth(nth).unwrap()
    };
    // The stripe of the last one is not the script's.
    let (mine, theirs, other) = (key_of(0, 0), key_of(1, 0), key_of(1, 1));
    for key in [&mine, &theirs, &other] {
        assert_eq!(here.run(&format!("SET {key} value")), "OK");
    }
    let is_busy = |reply: &str| reply.starts_with("(error) BUSY");

    // Longer than a link may be silent: clients of both nodes get BUSY, the shards of the other node go on, and the script can be ended.
    assert_eq!(here.run("CONFIG SET busy-reply-threshold 100"), "OK");
    let script = Endless::begin(&cluster, port, &theirs);
    eventually("the script is busy", || is_busy(&here.run(&format!("GET {theirs}"))));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        for client in [&mut here, &mut there, &mut cluster.members[0].connect(port)] {
            assert!(is_busy(&client.run(&format!("SET {other} v"))));
            assert_eq!(client.run(&format!("GET {mine}")), "\"value\"");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(here.run("SCRIPT KILL"), "OK");
    script.was_killed();
    assert_eq!(here.run(&format!("GET {theirs}")), "\"value\"");
    assert!(here.run("SCRIPT KILL").starts_with("(error) NOTBUSY"));

    // While no script counts as busy, what reads one free key runs beside it; and a running script sees the new threshold.
    assert_eq!(here.run("CONFIG SET busy-reply-threshold 0"), "OK");
    let script = Endless::begin(&cluster, port, &theirs);
    for _ in 0..20 {
        assert_eq!(here.run(&format!("GET {other}")), "\"value\"");
    }
    assert_eq!(there.run("CONFIG SET busy-reply-threshold 100"), "OK");
    eventually("the script is busy", || is_busy(&here.run(&format!("GET {theirs}"))));
    assert_eq!(here.run("SCRIPT KILL"), "OK");
    script.was_killed();
    for member in &cluster.members {
        assert!(!member.log().contains("sent nothing for"), "{}", member.log());
    }
}

/// What a session says about its client is obeyed while a script is busy: its later commands would run in another database.
#[test]
fn a_session_that_begins_during_a_script_is_in_the_database_of_its_client() {
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[("io-threads", "1")]);
    let port = cluster.create("orders", 1, &with(&["--persistence", "none"]));
    let mut here = cluster.members[1 - cluster.owner("orders", "k")].connect(port);
    here.run("SET k zero");
    here.run("SELECT 3");
    here.run("SET k three");
    assert_eq!(here.run("CONFIG SET busy-reply-threshold 100"), "OK");
    let at = 1 - cluster.owner("orders", "k");
    let mut runs = cluster.members[at].connect(port);
    runs.send(&resp_command(&[b"EVAL", b"while true do end", b"0"]));
    eventually("the script is busy", || here.run("GET k").starts_with("(error) BUSY"));
    let mut late = cluster.members[at].connect(port);
    assert_eq!(late.run("SELECT 3"), "OK");
    let sha = late.run("SCRIPT LOAD \"return redis.call('GET', 'k')\"");
    assert!(late.run("GET k").starts_with("(error) BUSY"));
    assert!(late.run(&format!("EVALSHA {sha} 0")).starts_with("(error) BUSY"));
    assert_eq!(here.run("SCRIPT KILL"), "OK");
    assert!(runs.read().contains("Script killed by user"));
    assert_eq!(late.run("GET k"), "\"three\"");
    assert_eq!(late.run(&format!("EVALSHA {sha} 0")), "\"three\"");
}

/// The operations of the cluster, the newest first.
fn operations(cluster: &Cluster) -> Vec<serde_json::Value> {
    let shown = cluster.members[0].operator(&["cluster", "operations", "--json"]).unwrap();
    serde_json::from_str::<serde_json::Value>(&shown).unwrap().as_array().unwrap().clone()
}

fn is_away(cluster: &Cluster, name: &str) -> bool {
    let nodes = cluster.members[0].status().unwrap()["nodes"].clone();
    nodes.as_array().unwrap().iter().any(|node| node["name"] == name && node["is_live"] == false)
}

#[test]
fn operators_change_whole_databases_from_any_node() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "everysec"]));
    let mut client = cluster.members[0].connect(port);
    fill(&mut client);

    // Two operators at once: one wins, and the other is told why.
    let both = |of_each: &(dyn Fn(usize) -> Vec<String> + Sync)| -> Vec<Result<String, String>> {
        let ask = |at: usize| {
            let words = of_each(at);
            cluster.members[at].operator(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        std::thread::scope(|scope| {
            let asked = [0, 1].map(|at| scope.spawn(move || ask(at)));
            asked.map(|asked| asked.join().unwrap()).into()
        })
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let created =
        both(&|_| words("database create twice --shards 2 --memory-limit 200mb --ram-limit 60% --persistence none"));
    let (won, lost): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1, "{lost:?}");
    assert!(lost[0].as_ref().unwrap_err().contains("exists already"), "{lost:?}");
    let resized =
        both(&|at| words(["database resize orders --ram-limit 250mb", "database resize orders --ram-limit 260mb"][at]));
    assert!(resized.iter().any(Result::is_ok), "{resized:?}");
    for refused in resized.iter().filter_map(|resized| resized.as_ref().err()) {
        assert!(refused.contains("somebody else has changed 'orders'"), "{refused}");
    }
    let limit = |cluster: &Cluster, at: usize| {
        let shown = cluster.members[at].operator(&["database", "show", "orders", "--json"]).unwrap();
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["definition"]["ram_limit_bytes"].clone()
    };
    eventually("both nodes say the same limit", || limit(&cluster, 0) == limit(&cluster, 1));
    let deleted = both(&|_| words("database delete twice --yes twice"));
    assert!(deleted.iter().any(Result::is_ok), "{deleted:?}");

    // A flush while a node is away: it does so before it serves, and once.
    cluster.members[1].kill_node();
    eventually("the node is seen to be away", || is_away(&cluster, "n2"));
    let shown = cluster.members[0].operator(&["database", "show", "orders"]).unwrap();
    assert!(shown.contains("node n2 does not run"), "{shown}");
    cluster.members[0].operator(&["database", "flush", "orders", "--yes", "orders"]).unwrap();
    let newest = &operations(&cluster)[0];
    assert_eq!(
        (&newest["kind"], &newest["state"], &newest["by"]),
        (&"flush".into(), &"running".into(), &"admin".into())
    );
    let shown = cluster.members[0].operator(&["cluster", "operations"]).unwrap();
    assert!(shown.contains("n2 (does not run)"), "{shown}");
    cluster.members[1].start();
    cluster.serves(0, "orders", 4);
    assert_eq!(client.run("DBSIZE"), "(integer) 0");
    eventually("each operation has ended", || {
        operations(&cluster).iter().all(|operation| operation["state"] == "done")
    });
    fill(&mut client);
    cluster.members[1].kill_node();
    cluster.members[1].start();
    cluster.serves(0, "orders", 4);
    assert_eq!(client.run("DBSIZE"), "(integer) 100");
    // Of a database that is served, with what is written behind it.
    cluster.members[1].operator(&["database", "flush", "orders", "--yes", "orders"]).unwrap();
    assert_eq!(client.run("DBSIZE"), "(integer) 0");
    fill(&mut client);

    // A node that is gone for good gives its shards up.
    cluster.members[1].kill_node();
    cluster.members[1].stop_coordinator();
    eventually("the node is seen to be away", || is_away(&cluster, "n2"));
    let refused = cluster.members[0].operator(&["cluster", "forget", "n2", "--yes", "n2"]).unwrap_err();
    assert!(refused.contains("node 'n2' has the shards orders.") && refused.contains("--lose-data"), "{refused}");
    let plan = cluster.members[0].operator(&["cluster", "forget", "n2", "--lose-data", "--dry-run"]).unwrap();
    assert!(plan.contains("orders.") && plan.contains("n1") && plan.contains("nothing was changed"), "{plan}");
    assert!(is_away(&cluster, "n2"), "it is still a member");
    eventually("it is removed", || {
        let forgotten = cluster.members[0].operator(&["cluster", "forget", "n2", "--lose-data", "--yes", "n2"]);
        forgotten.is_ok() || cluster.members[0].status().unwrap()["nodes"].as_array().unwrap().len() == 2
    });
    cluster.serves(0, "orders", 4);
    let left: usize = client.run("DBSIZE").trim_start_matches("(integer) ").parse().unwrap();
    assert!((20..80).contains(&left), "the shards of one node of two began empty: {left}");
    fill(&mut client);
    // What comes back claims nothing, and serves nobody.
    let before = cluster.members[1].log().matches("is served here, epoch").count();
    cluster.members[1].start();
    eventually("it finds that it was removed", || {
        cluster.members[1].log().contains("this node was removed from the cluster at 20")
    });
    assert_eq!(client.run("DBSIZE"), "(integer) 100");
    assert_eq!(cluster.members[1].log().matches("is served here, epoch").count(), before);
    assert!(std::net::TcpStream::connect((cluster.members[1].host.as_str(), port)).is_err());
}

#[test]
fn a_database_is_deleted_while_a_node_is_away_and_without_persistence_a_shard_begins_empty() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let port = cluster.create("cache", 2, &with(&["--persistence", "none"]));
    let mut client = cluster.members[0].connect(port);
    fill(&mut client);
    cluster.members[1].kill_node();
    cluster.members[1].start();
    cluster.serves(0, "cache", 2);
    let left: usize = client.run("DBSIZE").trim_start_matches("(integer) ").parse().unwrap();
    assert!((20..80).contains(&left), "one shard of two began empty: {left}");
    assert!(cluster.members[1].log().contains("begins empty: its database has no persistence"));

    // A database that is as large as its RAM has no flash.
    let small = cluster.create("small", 2, &["--memory-limit", "64mb", "--ram-limit", "64mb", "--persistence", "none"]);
    assert_eq!(cluster.members[1].connect(small).run("SET k v"), "OK");
    cluster.members[0].operator(&["database", "delete", "small", "--yes", "small"]).unwrap();

    // Pausing holds at every node, and a new limit at every copy.
    cluster.members[0].operator(&["database", "pause", "cache"]).unwrap();
    eventually("the other node refuses", || cluster.members[1].connect(port).run("GET k1").contains("paused"));
    cluster.members[0].operator(&["database", "resume", "cache"]).unwrap();
    cluster.members[0]
        .operator(&["database", "resize", "cache", "--memory-limit", "600mb", "--ram-limit", "60%"])
        .unwrap();

    cluster.members[1].stop_node();
    eventually("the node is seen to be away", || {
        let nodes = cluster.members[0].status().unwrap()["nodes"].clone();
        nodes.as_array().unwrap().iter().any(|node| node["name"] == "n2" && node["is_live"] == false)
    });
    cluster.members[0].operator(&["database", "delete", "cache", "--yes", "cache", "--no-wait"]).unwrap();
    eventually("it is gone here", || cluster.members[0].operator(&["database", "show", "cache"]).is_err());
    // Its name can be used again at once, and the node removes the old shard before it makes the new one.
    cluster.members[1].start();
    eventually("the old database is gone everywhere", || {
        let databases = cluster.members[0].status().unwrap()["databases"].clone();
        databases.as_array().unwrap().is_empty()
    });
    let files = std::fs::read_dir(cluster.members[1].dir.path().join("state/copies")).unwrap();
    assert_eq!(files.count(), 0);
    let port = cluster.create("cache", 2, &with(&["--persistence", "none"]));
    assert_eq!(cluster.members[1].connect(port).run("DBSIZE"), "(integer) 0");
}

#[test]
fn serving_goes_on_without_etcd_and_changes_say_so() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 2, &with(&["--persistence", "none"]));
    let mut client = cluster.members[0].connect(port);
    fill(&mut client);
    let large = ["database", "create", "large", "--shards", "2", "--memory-limit", "3tb", "--ram-limit", "2tb"];
    let refused = cluster.members[0].operator(&large).unwrap_err();
    assert!(refused.contains("shard 0 of database large") && refused.contains("node n1: RAM"), "{refused}");
    cluster.members.iter_mut().for_each(|member| member.stop_coordinator());
    eventually("it is shown", || {
        let status = cluster.members[0].status().unwrap();
        status["etcd_trouble"].is_string()
    });
    for number in 0..100 {
        assert_eq!(client.run(&format!("GET k{number}")), format!("\"v{number}\""));
    }
    let refused = cluster.members[0].operator(&[&["database", "create", "more"][..], &with(&[])].concat()).unwrap_err();
    assert!(refused.contains("etcd"), "{refused}");
    cluster.members.iter_mut().for_each(|member| member.start_coordinator());
    eventually("etcd is followed again", || cluster.members[0].status().unwrap()["etcd_trouble"].is_null());
    cluster.create("more", 2, &with(&["--persistence", "none"]));
    assert_eq!(client.run("DBSIZE"), "(integer) 100");
}

#[test]
fn nodes_leave_tls_together_or_are_told_that_they_differ() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[("peer-tls", "no")]);
    let port = cluster.create("orders", 2, &with(&["--persistence", "everysec"]));
    let values_are_there = |cluster: &Cluster| {
        for member in &cluster.members {
            let mut client = member.connect(port);
            (0..100).for_each(|number| assert_eq!(client.run(&format!("GET k{number}")), format!("\"v{number}\"")));
        }
    };
    fill(&mut cluster.members[0].connect(port));
    values_are_there(&cluster);

    let set = |cluster: &mut Cluster, word: &str| {
        let member = &mut cluster.members[1];
        member.stop_node();
        let conf = std::fs::read_to_string(member.conf()).unwrap();
        let lines = conf.lines().filter(|line| !line.starts_with("peer-tls"));
        let conf: String = lines.chain([&*format!("peer-tls {word}")]).map(|line| format!("{line}\n")).collect();
        std::fs::write(member.conf(), conf).unwrap();
        member.start_node();
    };
    set(&mut cluster, "yes");
    let troubles = |member: &Member| member.status().map(|status| status["troubles"].to_string()).unwrap_or_default();
    for (at, here, there) in [(0, "no", "yes"), (1, "yes", "no")] {
        let told = format!("peer-tls is {here} at this node and {there} at the other one");
        let (member, other) = (&cluster.members[at], &cluster.members[1 - at].name);
        let shown = format!("no links to node '{other}': {told}");
        eventually("both nodes say that they differ", || troubles(member).contains(&shown));
        assert_eq!(member.log().matches(&told).count(), 1, "it is logged once");
    }
    set(&mut cluster, "no");
    cluster.serves(0, "orders", 2);
    cluster.serves(1, "orders", 2);
    values_are_there(&cluster);
    eventually("nothing is said any more", || cluster.members.iter().all(|member| troubles(member) == "[]"));
}

#[test]
fn who_must_not_join_is_told_why() {
    let mut cluster = Cluster::begin(&[]);
    let refused = |cluster: &Cluster, token: &str| {
        let candidate = cluster.candidate(Role::Data, &[]);
        cluster.join_with(&candidate, token).unwrap_err()
    };
    assert!(refused(&cluster, "fkj1").contains("the join token is not complete, or was mistyped"));
    let token = cluster.token();
    let damaged = token.replace(&token[100..104], if &token[100..104] == "0000" { "1111" } else { "0000" });
    assert!(refused(&cluster, &damaged).contains("not complete, or was mistyped"));

    // A token of another cluster: nothing of it is sent.
    let other = Cluster::begin(&[]);
    assert!(refused(&cluster, &other.token()).contains("is not of the cluster that the token names"));

    // A name that is taken does not use the token up; a token serves once.
    let mut twin = cluster.candidate(Role::Data, &[]);
    twin.name = "n1".to_owned();
    let taken = cluster.join_with(&twin, &token).unwrap_err();
    assert!(taken.contains("has the name n1"), "{taken}");
    let mut second = cluster.candidate(Role::Data, &[]);
    second.start();
    cluster.join_with(&second, &token).unwrap();
    cluster.members.push(second);
    // With two members of etcd, the loss of one would leave no majority to remove it.
    cluster.join(Role::Quorum, &[]).unwrap();
    cluster.is_complete();
    let used = refused(&cluster, &token);
    assert!(used.contains("another node has used this token"), "{used}");
    let again = cluster.join_with(&cluster.members[1], &cluster.token()).unwrap_err();
    assert!(again.contains("is a member of the cluster 'test' already"), "{again}");

    // A node that runs is not forgotten; one that is away is, and its certificate does not count any more.
    let runs = cluster.members[0].operator(&["cluster", "forget", "n2", "--yes", "n2"]).unwrap_err();
    assert!(runs.contains("runs"), "{runs}");
    cluster.members[1].stop_node();
    cluster.members[1].stop_coordinator();
    eventually("it is removed", || cluster.members[0].operator(&["cluster", "forget", "n2", "--yes", "n2"]).is_ok());
    eventually("etcd goes on with one member", || {
        cluster.members[0].operator(&["cluster", "nodes"]).is_ok_and(|shown| !shown.contains("n2"))
    });
    cluster.members[1].start();
    eventually("it finds that it was removed", || {
        cluster.members[1].log().contains("this node was removed from the cluster at 20")
    });
}

#[test]
fn a_copy_of_a_directory_serves_nothing() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 2, &with(&["--persistence", "everysec"]));
    let mut client = cluster.members[0].connect(port);
    fill(&mut client);
    let mut copy = cluster.members[1].copied();
    copy.start_node();
    eventually("it finds that the node runs elsewhere", || copy.log().contains("runs elsewhere"));
    // It neither serves nor says where the node is.
    for number in 0..100 {
        assert_eq!(client.run(&format!("GET k{number}")), format!("\"v{number}\""));
    }
    let nodes = cluster.members[0].operator(&["cluster", "nodes"]).unwrap();
    assert!(nodes.contains(&format!("{}:8380", copy.host)) && !nodes.contains(":8390"), "{nodes}");
    assert!(!copy.log().contains("is served here, epoch"), "{}", copy.log());

    // When the node ends, the copy takes its place; the node that comes back finds that, and serves nothing.
    cluster.members[1].kill_node();
    eventually("the copy is the node now", || copy.log().contains("is served here, epoch"));
    cluster.members[1].start_node();
    eventually("the node finds that another is in its place", || {
        let log = cluster.members[1].log();
        log.matches("runs elsewhere").count() > 0
    });
}

#[test]
fn random_commands_get_the_replies_of_one_node() {
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "none"]));
    let model = Node::start(&[]);
    // In turns through both nodes: each half of the shards is here once, and elsewhere once.
    for at in [0, 1] {
        let (mut ours, mut theirs) = (cluster.members[at].connect(port), model.connect());
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.run(SETTINGS), "OK");
            assert_eq!(client.run("FLUSHALL"), "OK");
        }
        compare_commands(&mut ours, &mut theirs, number("FLINTKV_COMMANDS", 3_000));
    }
}

/// A user's rights hold at once for keys of every node, though other nodes learn of a change a moment later.
#[test]
fn a_user_who_was_just_changed_has_the_rights_at_every_shard() {
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "none"]));
    let mut admin = cluster.members[0].connect(port);
    let incr = |client: &mut Client, key: u32| {
        client.run(&format!("EVAL \"return redis.pcall('INCR',KEYS[1])\" 1 counter{key}"))
    };
    for round in 0..3 {
        assert_eq!(admin.run(&format!("ACL SETUSER user{round} on >pw ~* +@all -incr")), "OK");
        let mut client = cluster.members[0].connect(port);
        assert_eq!(client.run(&format!("AUTH user{round} pw")), "OK");
        for key in 0..20 {
            assert_eq!(client.run(&format!("SET counter{key} 0")), "OK");
            assert!(incr(&mut client, key).contains("permission"), "counter{key}");
        }
        assert_eq!(admin.run(&format!("ACL SETUSER user{round} +incr")), "OK");
        for key in 0..20 {
            assert_eq!(incr(&mut client, key), "(integer) 1", "counter{key}");
        }
        assert_eq!(admin.run(&format!("ACL SETUSER user{round} -incr")), "OK");
        for key in 0..20 {
            assert!(incr(&mut client, key).contains("permission"), "counter{key}");
        }
    }
}

/// Values that do not compress, in a database that has little RAM: most are on flash when a command comes.
#[test]
fn cold_values_are_those_of_one_node() {
    const KEYS: usize = 160;
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("cold", 4, &["--memory-limit", "400mb", "--ram-limit", "80mb", "--persistence", "none"]);
    let model = Node::start(&[]);
    let mut theirs = model.connect();
    let mut both = [0, 1].map(|at| cluster.members[at].connect(port));
    let mut random = Random::new(seed());
    let key = |number: usize| format!("noise{number}").into_bytes();
    for number in 0..KEYS {
        let value = random.noise(1_000 + number * 3_000);
        for client in [&mut both[number % 2], &mut theirs] {
            assert_eq!(client.words(&[b"SET", &key(number), &value]), "OK");
        }
    }
    let before = both[0].info_number("tiering", "flash_kv_reads");
    for round in 0..number("FLINTKV_COMMANDS", 400) {
        let (name, other) = (key(random.below(KEYS)), key(random.below(KEYS)));
        let (from, noise) = (random.below(300_000), random.noise(200));
        let (from, to) = (from.to_string(), (from + 5_000).to_string());
        let words: Vec<&[u8]> = match random.below(8) {
            0 | 1 => vec![b"GET", &name],
            2 => vec![b"STRLEN", &name],
            3 => vec![b"GETRANGE", &name, from.as_bytes(), to.as_bytes()],
            4 => vec![b"SETRANGE", &name, from.as_bytes(), &noise],
            5 => vec![b"APPEND", &name, &noise],
            6 => vec![b"MGET", &name, &other, b"nothing"],
            _ => vec![b"EVAL", b"return redis.call('GETRANGE', KEYS[1], 0, 9)", b"1", &name],
        };
        let (ours, expected) = (both[round as usize % 2].raw_call(&words), theirs.raw_call(&words));
        assert!(
            ours == expected,
            "seed {}, command {round}: {} of {}",
            seed(),
            words[0].escape_ascii(),
            name.escape_ascii()
        );
    }
    let read = both[0].info_number("tiering", "flash_kv_reads") - before;
    println!("{read} values were read from flash");
    assert!(read > 100, "only {read} values were read from flash");
}

/// SCAN through any node returns each key that is there all the time, while clients of all nodes write others.
#[test]
fn scan_keeps_its_promise_while_others_write() {
    const STABLE: usize = 2_000;
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("orders", 4, &with(&["--persistence", "none"]));
    cluster.members[0].connect(port).set_all((0..STABLE).map(|number| (format!("stable{number}"), "v")));
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        let (cluster, is_over, written) = (&cluster, &is_over, &written);
        let write = move |at: usize| {
            let (mut client, mut round) = (cluster.members[at].connect(port), 0_u64);
            while !is_over.load(Relaxed) {
                // Tables of the index grow and shrink.
                let from = round % 20 * 200;
                if round / 20 % 2 == 0 {
                    client.set_all((from..from + 200).map(|number| (format!("other{at}:{number}"), "v")));
                } else {
                    let keys: Vec<String> = (from..from + 200).map(|number| format!("other{at}:{number}")).collect();
                    client.run(&format!("DEL {}", keys.join(" ")));
                }
                round += 1;
                written.fetch_add(200, Relaxed);
            }
        };
        let writers = [0, 1].map(|at| scope.spawn(move || write(at)));
        for round in 0..6 {
            eventually("others write", || {
                written.load(Relaxed) > round * 2_000 || writers.iter().any(|writer| writer.is_finished())
            });
            let mut client = cluster.members[round as usize % 2].connect(port);
            let count = [&b"3"[..], b"10", b"100"][round as usize % 3];
            let found = client.scan(&[b"SCAN"], &[b"COUNT", count]).expect("a page");
            let stable: BTreeSet<Vec<u8>> = found.into_iter().filter(|key| key.starts_with(b"stable")).collect();
            assert_eq!(stable.len(), STABLE, "round {round}: keys that are there all the time are missing");
        }
    });
    println!("{} writes of others", written.load(Relaxed));
}

/// Ends the clients of a test that fails too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A counter for each slot: no increment that was acknowledged is lost, and none is made twice.
#[test]
fn increments_while_nodes_are_killed() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("counters", 4, &with(&["--persistence", "everysec"]));
    let (is_over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let host = cluster.members[0].host.clone();
    let count = |number: usize| {
        let mut client = Client::new(std::net::TcpStream::connect((host.as_str(), port)).unwrap());
        let key = format!("counter{number}");
        let (mut acknowledged, mut uncertain, mut refused) = (0_u64, 0_u64, 0_u64);
        let mut last = 0_u64;
        while !is_over.load(Relaxed) {
            for _ in 0..8 {
                client.send(format!("INCR {key}\r\n").as_bytes());
            }
            for _ in 0..8 {
                let reply = client.read();
                match reply.trim_start_matches("(integer) ").parse::<u64>() {
                    Ok(value) => {
                        assert!(value > last, "{key} went from {last} to {value}");
                        last = value;
                        acknowledged += 1;
                        made.fetch_add(1, Relaxed);
                    }
                    Err(_) if reply.starts_with("(error) UNCERTAIN") => uncertain += 1,
                    Err(_) if reply.starts_with("(error) CLUSTERDOWN") => refused += 1,
                    Err(_) => panic!("{reply}"),
                }
            }
        }
        (key, acknowledged, uncertain, refused)
    };
    let counted: Vec<_> = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        let count = &count;
        let clients: Vec<_> = (0..6).map(|number| scope.spawn(move || count(number))).collect();
        for round in 1..=3 {
            eventually("increments were made", || made.load(Relaxed) > round * 500);
            cluster.members[1].kill_node();
            cluster.members[1].start();
            cluster.serves(0, "counters", 4);
        }
        is_over.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let mut client = cluster.members[1].connect(port);
    let mut totals = BTreeMap::from([("acknowledged", 0), ("uncertain", 0), ("refused", 0)]);
    for (key, acknowledged, uncertain, refused) in counted {
        let value: u64 = client.run(&format!("GET {key}")).trim_matches('"').parse().unwrap();
        assert!(
            (acknowledged..=acknowledged + uncertain).contains(&value),
            "{key} is {value}: {acknowledged} acknowledged, {uncertain} uncertain, {refused} refused"
        );
        *totals.get_mut("acknowledged").unwrap() += acknowledged;
        *totals.get_mut("uncertain").unwrap() += uncertain;
        *totals.get_mut("refused").unwrap() += refused;
    }
    println!("{totals:?}");
}

#[test]
fn the_certificates_of_a_node_and_of_its_etcd_are_renewed_in_time() {
    const DAY_MS: u64 = 24 * 3600 * 1000;
    let mut cluster = Cluster::start(&[Role::Data], &[]);
    let folder = cluster.members[0].dir.path().join("state/cluster");
    let read = |name: &str| pki::read_secret(&folder.join(name)).unwrap();
    let now_ms = base::clock::wall_ms();
    let identity = |name: &str| *pki::Credential::from_pem(&read(name), now_ms).unwrap().identity();
    let authority = pki::Authority::from_pem(&read("authority.pem")).unwrap();
    cluster.members[0].kill_node();
    cluster.members[0].stop_coordinator();
    // As they are ten months later: less than a third of their year is left.
    for (name, purpose) in [("node.pem", pki::Purpose::Node), ("etcd.pem", pki::Purpose::Etcd)] {
        let key = pki::NodeKey::generate();
        let request = pki::CheckedRequest::from_pem(&key.request()).unwrap();
        let (node, addresses) = (identity(name).node, [cluster.members[0].host.clone()]);
        let issued = authority.issue(&request, node, purpose, &addresses, now_ms - 300 * DAY_MS).unwrap();
        let old = pki::Credential::new(&key, &issued.certificate, authority.certificate(), now_ms).unwrap();
        pki::write_secret(&folder.join(name), &old.to_pem()).unwrap();
    }
    cluster.members[0].start();
    for name in ["node.pem", "etcd.pem"] {
        eventually(&format!("{name} is renewed"), || identity(name).expires_ms > now_ms + 360 * DAY_MS);
    }
    // Both are used.
    let port = cluster.create("orders", 1, &with(&["--persistence", "none"]));
    assert_eq!(cluster.members[0].connect(port).run("SET a 1"), "OK");
}

/// The file with the key of the authority of a node's cluster.
fn key(member: &Member) -> String {
    std::fs::read_to_string(member.dir.path().join("state/cluster/authority.pem")).unwrap_or_default()
}

#[test]
fn with_an_etcd_of_the_operators_own_a_cluster_outlives_its_first_node() {
    // The etcd is that of another cluster, which knows nothing of it.
    let mut cluster = Cluster::begin(&[]);
    let etcd = format!("https://{}:8381", cluster.members[0].host);
    let file = |name: &str| cluster.members[0].dir.path().join("state/cluster").join(name).display().to_string();
    let (ca, client) = (file("ca.pem"), file("node.pem"));
    let token = |member: &Member| {
        let shown = member.operator(&["cluster", "token", "--json"])?;
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        Ok::<_, String>(shown["token"].as_str().expect("a token").to_owned())
    };
    let join = |cluster: &mut Cluster, by: usize| {
        let mut member = cluster.candidate(Role::Data, &[]);
        member.start_node();
        let (conf, by) = (member.conf(), &cluster.members[by]);
        let mut said = Err(String::new());
        eventually("a node that has joined signs", || {
            said = token(by);
            said.is_ok()
        });
        let words = ["--token", &said.unwrap(), "--conf", &conf, "--address", &member.host, "--name", &member.name];
        member.operator(&[&["cluster", "join", &by.host], &words[..]].concat()).expect("it joins");
        cluster.members.push(member);
    };

    let mut first = cluster.candidate(Role::Data, &[]);
    first.start_node();
    let conf = first.conf();
    let with_etcd = ["--etcd", &etcd, "--etcd-ca", &ca, "--etcd-cert", &client, "--etcd-key", &client];
    let words = ["cluster", "init", "own", "--conf", &conf, "--address", &first.host, "--name", "n2"];
    first.operator(&[&words, &with_etcd[..]].concat()).expect("it begins");
    cluster.members.push(first);
    join(&mut cluster, 1);
    eventually("the second node has the key", || key(&cluster.members[2]) == key(&cluster.members[1]));

    // The first node is lost with its disk.
    cluster.members[1].kill_node();
    eventually("it is removed", || cluster.members[2].operator(&["cluster", "forget", "n2", "--yes", "n2"]).is_ok());
    join(&mut cluster, 2);
    let old = key(&cluster.members[2]);
    eventually("the third node has the key", || key(&cluster.members[3]) == old);
    // Another authority's key goes to all of them too.
    cluster.members[2].operator(&["cluster", "authority", "replace", "--yes", "own"]).expect("it begins");
    eventually("both have the new key", || {
        let new = key(&cluster.members[2]);
        !new.is_empty() && new != old && key(&cluster.members[3]) == new
    });
    eventually("a token is of the new authority", || token(&cluster.members[3]).is_ok());
}
