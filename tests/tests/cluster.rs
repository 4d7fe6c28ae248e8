//! Clusters of several processes with a real etcd, used by clients that know nothing of a cluster.

use flintkv_tests::cluster::{Cluster, Role};
use flintkv_tests::generator::SETTINGS;
use flintkv_tests::sharded::compare_commands;
use flintkv_tests::{Client, Node, eventually, number};
use std::collections::BTreeMap;
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
    let mut heard = Vec::new();
    eventually("a message comes from the other node", || {
        first.run("PUBLISH news hello");
        first.run("EVAL \"return redis.call('PUBLISH', 'news', 'script')\" 1 {b}n");
        heard = vec![listener.read(), listener.read()];
        true
    });
    assert!(heard[0].ends_with("\"hello\"") && heard[1].ends_with("\"script\""), "{heard:?}");

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
        let log = cluster.members[1].log();
        log.contains("it was removed") || log.contains("was shut out") || log.contains("shut out")
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
