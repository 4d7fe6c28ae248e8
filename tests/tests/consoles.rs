//! The consoles of a cluster, asked as browsers ask them: processes with a real etcd.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flintkv_tests::cluster::{Cluster, Member, Role};
use flintkv_tests::eventually;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const PASSWORD: &str = "a-password-of-tests";

/// The status, the cookie that is set, and the body.
fn ask(member: &Member, method: &str, path: &str, headers: &str, body: Option<&Value>) -> (u16, String, Value) {
    let mut stream = TcpStream::connect((member.host.as_str(), 8379)).expect("the console listens");
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let head = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{kind}{headers}\r\n",
        member.host,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("the request is sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("text");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a whole reply");
    let status = head[9..12].parse().expect("a status");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_default();
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    (status, cookie, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// The headers of a session.
fn log_in(member: &Member, user: &str, password: &str) -> Result<String, u16> {
    let (status, cookie, session) =
        ask(member, "POST", "/session", "", Some(&json!({"user": user, "password": password})));
    let csrf = session["csrf"].as_str().unwrap_or_default().to_owned();
    if status == 200 { Ok(format!("Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n")) } else { Err(status) }
}

fn user_of(member: &Member, session: &str) -> Option<String> {
    let (status, _, card) = ask(member, "GET", "/session", session, None);
    (status == 200).then(|| card["user"].as_str().expect("a user").to_owned())
}

#[test]
fn one_sign_on_counts_at_every_node() {
    let mut cluster = Cluster::begin(&[]);
    let mut other = cluster.candidate(Role::Data, &[]);
    other.start();
    eventually("the node that is to join has a console", || TcpStream::connect((other.host.as_str(), 8379)).is_ok());
    let own = log_in(&other, "admin", PASSWORD).expect("its own user");
    let made =
        ask(&other, "POST", "/users", &own, Some(&json!({"name": "own", "role": "viewer", "password": PASSWORD})));
    assert_eq!(made.0, 201, "{}", made.2);
    let token = cluster.token();
    cluster.join_with(&other, &token).unwrap();
    cluster.members.push(other);
    cluster.is_complete();
    assert_eq!(user_of(&cluster.members[1], &own), None, "a session of before it was a member");
    assert_eq!(log_in(&cluster.members[1], "own", PASSWORD), Err(401));
    assert!(cluster.members[1].log().contains("stay in users.json: admin, own"), "{}", cluster.members[1].log());

    // A session of one node counts at the other, for changes too, and so does what is changed there.
    let (first, second) = (&cluster.members[0], &cluster.members[1]);
    let admin = log_in(first, "admin", PASSWORD).unwrap();
    assert_eq!(user_of(second, &admin).as_deref(), Some("admin"));
    let ann = json!({"name": "ann", "role": "operator", "password": "first word"});
    assert_eq!(ask(second, "POST", "/users", &admin, Some(&ann)).0, 201);
    eventually("the other node knows the user", || log_in(first, "ann", "first word").is_ok());
    let session = log_in(first, "ann", "first word").unwrap();
    assert_eq!(user_of(second, &session).as_deref(), Some("ann"));
    let (status, _, made) = ask(first, "POST", "/tokens", &admin, Some(&json!({"name": "ci", "role": "viewer"})));
    assert_eq!(status, 201);
    let bearer = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    eventually("the token counts at the other node", || user_of(second, &bearer).as_deref() == Some("ci"));

    // Logging out, another password and removal hold at both.
    let gone = log_in(first, "ann", "first word").unwrap();
    assert_eq!(ask(first, "DELETE", "/session", &gone, None).0, 204);
    assert_eq!(user_of(first, &gone), None);
    eventually("the other node knows that it has ended", || user_of(second, &gone).is_none());
    assert_eq!(user_of(second, &session).as_deref(), Some("ann"), "another session of the same user");
    let words = json!({"old": "first word", "new": "second word"});
    let (status, kept, _) = ask(second, "PUT", "/session/password", &session, Some(&words));
    assert_eq!(status, 204);
    eventually("the old password's session ends at the other node", || user_of(first, &session).is_none());
    assert_eq!(user_of(first, &format!("Cookie: {kept}\r\n")).as_deref(), Some("ann"), "the one that changed it");

    // etcd away: those who are known log in, and changes say why they are refused.
    cluster.members.iter_mut().for_each(|member| member.stop_coordinator());
    let (first, second) = (&cluster.members[0], &cluster.members[1]);
    eventually("etcd is away", || first.status().is_some_and(|status| status["etcd_trouble"].is_string()));
    let admin = log_in(second, "admin", PASSWORD).unwrap();
    assert_eq!(user_of(first, &admin).as_deref(), Some("admin"));
    let (status, _, refused) = ask(first, "DELETE", "/users/ann", &admin, None);
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 500 && text.contains("the cluster's users could not be changed: etcd"), "{status} {refused}");
    cluster.members[1].kill_node();
    cluster.members[1].start_node();
    eventually("a node that starts meanwhile knows the users", || {
        TcpStream::connect((cluster.members[1].host.as_str(), 8379)).is_ok()
            && log_in(&cluster.members[1], "ann", "second word").is_ok()
    });
    cluster.members.iter_mut().for_each(|member| member.start_coordinator());
    let (first, second) = (&cluster.members[0], &cluster.members[1]);
    let ann = log_in(second, "ann", "second word").unwrap();
    eventually("the user is removed", || [204, 404].contains(&ask(first, "DELETE", "/users/ann", &admin, None).0));
    eventually("it holds at both", || user_of(first, &ann).is_none() && user_of(second, &ann).is_none());
}

#[test]
fn the_figures_of_a_database_are_those_of_its_shards() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    let limits = ["--memory-limit", "400mb", "--ram-limit", "60%", "--persistence", "none"];
    let port = cluster.create("orders", 4, &limits);
    let mut client = cluster.members[0].connect(port);
    for number in 0..100 {
        assert_eq!(client.run(&format!("SET k{number} v{number}")), "OK");
    }
    // Each node shows the whole, wherever the shards are and the clients come in.
    let admin = log_in(&cluster.members[1], "admin", PASSWORD).unwrap();
    let shown_by = |member: &Member| ask(member, "GET", "/databases/orders", &admin, None).2;
    let shown = |at: usize| shown_by(&cluster.members[at]);
    for at in [0, 1] {
        eventually("the keys of all shards are counted", || shown(at)["now"]["keys"] == 100.0);
        eventually("commands and hits of all shards are", || {
            (0..100).for_each(|number| drop(client.run(&format!("GET k{number}"))));
            let now = shown(at)["now"].clone();
            now["ops"].as_f64().is_some_and(|ops| ops > 50.0) && now["hit_ratio"] == 1.0
        });
        let database = shown(at);
        assert_eq!(database["ram"]["limit_bytes"], 240 << 20, "of the whole database: {}", database["ram"]);
        assert_eq!(database["flash"]["limit_bytes"], 160 << 20, "{}", database["flash"]);
        assert_eq!(database["now"]["ram_limit_bytes"].as_f64(), Some(f64::from(240 << 20)), "the shards' together");
        let used = database["ram"]["used_bytes"].as_u64().unwrap();
        let (_, _, shards) = ask(&cluster.members[at], "GET", "/databases/orders/shards", &admin, None);
        let largest = shards.as_array().unwrap().iter().filter_map(|shard| shard["used_ram_bytes"].as_u64()).max();
        assert!(largest.is_some_and(|largest| used > largest), "{used} in all: {shards}");
    }
    // Clients of all endpoints, and the latencies of all of them: here those of the first node alone have clients that ask something.
    let mut others: Vec<_> = (0..3).map(|_| cluster.members[1].connect(port)).collect();
    for at in [0, 1] {
        eventually("the clients of both endpoints are counted", || shown(at)["now"]["clients"] == 4.0);
        eventually("latencies are those of all commands, of reads by tier too", || {
            (0..100).for_each(|number| drop(client.run(&format!("GET k{number}"))));
            let now = shown(at)["now"].clone();
            let known = |name: &str| now[name].as_f64().is_some_and(|value| value > 0.0);
            known("latency_p50_us") && known("latency_p999_us") && known("ram_latency_p99_us") && known("ops_read")
        });
    }
    others.clear();

    // One full shard makes the database full, wherever one looks.
    let small = cluster.create("small", 2, &["--memory-limit", "64mb", "--ram-limit", "64mb", "--persistence", "none"]);
    let mut writer = cluster.members[0].connect(small);
    let value = vec![b'x'; 8 << 10];
    let mut number = 0;
    for at in [0, 1] {
        eventually("the condition is that of the whole", || {
            (0..200).for_each(|_| {
                number += 1;
                drop(writer.words(&[b"SET", format!("k{number}").as_bytes(), &value]));
            });
            let (_, _, database) = ask(&cluster.members[at], "GET", "/databases/small", &admin, None);
            let conditions = database["conditions"].as_array().unwrap();
            conditions.iter().any(|condition| condition["name"] == "full" && condition["level"] == "critical")
        });
    }
    // The past is drawn from the same figures.
    eventually("the history has the keys of all shards", || {
        let (_, _, past) = ask(&cluster.members[0], "GET", "/databases/orders/metrics?names=keys", &admin, None);
        past["series"]["keys"].as_array().is_some_and(|keys| keys.contains(&json!(100.0)))
    });
    // Without an answer of each shard, the whole is unknown.
    cluster.members[1].kill_node();
    eventually("nothing is made up", || shown_by(&cluster.members[0])["now"]["keys"].is_null());
}

/// The message of a refusal.
fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}

#[test]
fn the_pages_of_a_node_are_fetched_through_another_one() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let (first, second) = (&cluster.members[0], &cluster.members[1]);
    let admin = log_in(first, "admin", PASSWORD).unwrap();
    let run_id = |member: &Member, path: &str| ask(member, "GET", path, &admin, None).2["run_id"].clone();
    let (of_first, of_second) = (run_id(first, "/node"), run_id(second, "/node"));
    assert!(of_first.is_string() && of_second.is_string() && of_first != of_second);
    assert_eq!(run_id(first, "/nodes/n2/node"), of_second);
    assert_eq!(run_id(first, "/nodes/n1/node"), of_first, "this node is one of them");
    let status = first.status().unwrap();
    let id = status["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "n2").unwrap()["id"].clone();
    assert_eq!(run_id(first, &format!("/nodes/{}/node", id.as_str().unwrap())), of_second, "by its id");
    // Queries, bodies and refusals pass as they are.
    let (status, _, past) = ask(first, "GET", "/nodes/n2/databases/default/metrics?names=ops", &admin, None);
    assert!(status == 200 && past["series"]["ops"].is_array(), "{past}");
    let (status, _, refused) = ask(first, "GET", "/nodes/n2/node?nothing=1", &admin, None);
    assert!(status == 400 && message(&refused).contains("unknown parameter"), "{refused}");
    let (status, _, refused) = ask(first, "DELETE", "/nodes/n2/events", &admin, None);
    assert!(status == 405 && message(&refused).contains("this path allows GET"), "{refused}");

    // Who changes something there is in that node's audit log, with the node that was asked.
    for (name, role) in [("ann", "operator"), ("vera", "viewer")] {
        let user = json!({"name": name, "role": role, "password": "a first word"});
        assert_eq!(ask(first, "POST", "/users", &admin, Some(&user)).0, 201);
    }
    // Whose password somebody else has chosen gets no further here either.
    let invited = log_in(first, "ann", "a first word").unwrap();
    let (status, _, refused) = ask(first, "GET", "/nodes/n2/node", &invited, None);
    assert!(status == 403 && refused["error"]["code"] == "password", "{refused}");
    let chosen = |name: &str| {
        let words = json!({"old": "a first word", "new": "another word"});
        let session = log_in(first, name, "a first word").unwrap();
        assert_eq!(ask(first, "PUT", "/session/password", &session, Some(&words)).0, 204);
        log_in(first, name, "another word").unwrap()
    };
    let (ann, vera) = (chosen("ann"), chosen("vera"));
    let forever = json!({"until_ms": 4_102_444_800_000_u64});
    let soon = json!({"until_ms": now_ms() + 3_600_000, "reason": "a test"});
    let path = "/nodes/n2/alerts/silences";
    assert_eq!(ask(first, "POST", path, &ann, Some(&soon)).0, 201);
    assert_eq!(ask(first, "POST", path, &ann, Some(&forever)).0, 400, "it judges the body");
    let (status, _, refused) = ask(first, "POST", path, &vera, Some(&soon));
    assert!(status == 403 && message(&refused).contains("vera is viewer"), "{refused}");
    let (_, _, audit) = ask(second, "GET", "/audit", &admin, None);
    let line = |user: &str, ok: bool| {
        let lines = audit.as_array().unwrap().iter();
        lines.filter(|line| line["user"] == user && line["ok"] == ok && line["action"] == "alert.silence").count()
    };
    assert_eq!((line("ann", true), line("ann", false), line("vera", false)), (1, 1, 1), "{audit}");
    let of_ann = audit.as_array().unwrap().iter().find(|line| line["user"] == "ann").unwrap();
    assert_eq!((of_ann["through"].as_str(), of_ann["role"].as_str()), (Some("n1"), Some("operator")));
    assert!(of_ann["address"].as_str().is_some_and(|address| address.starts_with("127.")), "{of_ann}");
    let (_, _, own) = ask(first, "GET", "/audit", &admin, None);
    assert!(own.as_array().unwrap().iter().all(|line| line["action"] != "alert.silence"), "{own}");
    // A token of the cluster is as good.
    let made = ask(first, "POST", "/tokens", &admin, Some(&json!({"name": "ci", "role": "operator"}))).2;
    let bearer = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert_eq!(ask(first, "POST", path, &bearer, Some(&soon)).0, 201);

    // Nobody but a member can say who asks.
    let json_of = json!({"user": "admin", "role": "admin", "token": null, "address": "127.0.0.1"}).to_string();
    let forged = format!("X-FlintKV-Voucher: {}\r\n", URL_SAFE_NO_PAD.encode(json_of));
    for (member, path) in
        [(second, "/users"), (first, "/users"), (first, "/nodes/n2/users"), (first, "/nodes/n1/users")]
    {
        assert_eq!(ask(member, "GET", path, &forged, None).0, 401, "{path}");
        let as_vera = format!("{vera}{forged}");
        assert_eq!(ask(member, "GET", path, &as_vera, None).0, 403, "{path}");
    }
    // The node that is asked first checks that a page of its own console asks.
    let without_csrf = ann.lines().next().unwrap().to_owned() + "\r\n";
    let (status, _, refused) = ask(first, "POST", path, &without_csrf, Some(&soon));
    assert!(status == 403 && message(&refused).contains("X-CSRF-Token"), "{refused}");
    let other_site = format!("{ann}Origin: http://evil.example\r\n");
    assert_eq!(ask(first, "POST", path, &other_site, Some(&soon)).0, 403);

    // What cannot be answered says why.
    let refused = |path: &str| {
        let (status, _, refused) = ask(first, "GET", path, &admin, None);
        (status, message(&refused).to_owned())
    };
    for (path, status, text) in [
        ("/nodes/nobody/node", 404, "no node 'nobody'"),
        ("/nodes/n3/node", 422, "only votes"),
        ("/nodes/n2/session", 422, "sessions are asked of the node that is asked first"),
        ("/nodes/n2/nodes/n1/node", 400, "is not sent to a third one"),
        ("/nodes/n2/nothing", 404, "no such route"),
    ] {
        let (found, why) = refused(path);
        assert!(found == status && why.contains(text), "{path}: {found} {why}");
    }
    let large = json!({"reason": "x".repeat(9 << 20), "until_ms": 0});
    assert_eq!(ask(first, "POST", path, &ann, Some(&large)).0, 413);
    let pid = rustix::process::Pid::from_raw(second.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let (status, why) = refused("/nodes/n2/node");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(status == 504 && why.contains("has not answered within 3 s"), "{status} {why}");
    cluster.members[1].kill_node();
    let (status, _, body) = ask(&cluster.members[0], "GET", "/nodes/n2/node", &admin, None);
    assert!(status == 502 && message(&body).contains("node 'n2' cannot be asked: it cannot be reached"), "{body}");
    // A node without a console has nothing to ask.
    let conf = std::fs::read_to_string(cluster.members[1].conf()).unwrap();
    std::fs::write(cluster.members[1].conf(), conf + "console-port 0\n").unwrap();
    cluster.members[1].start_node();
    eventually("a node without a console says so", || {
        let (status, _, body) = ask(&cluster.members[0], "GET", "/nodes/n2/node", &admin, None);
        status == 502 && message(&body).contains("it has no console and no API")
    });
}

#[test]
fn events_and_alerts_of_all_nodes_are_shown_together() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let admin = log_in(&cluster.members[0], "admin", PASSWORD).unwrap();
    let rule = json!({"name": "always", "metric": "clients", "scope": "databases", "op": ">", "threshold": -1.0, "for_s": 0, "keep_s": 0, "severity": "info", "enabled": true});
    for node in ["n1", "n2"] {
        let (status, _, made) =
            ask(&cluster.members[0], "POST", &format!("/nodes/{node}/alerts/rules"), &admin, Some(&rule));
        assert_eq!(status, 201, "{made}");
    }
    let get = |cluster: &Cluster, at: usize, path: &str| ask(&cluster.members[at], "GET", path, &admin, None).2;
    for at in [0, 1] {
        eventually("the alerts of both nodes fire", || {
            let all = get(&cluster, at, "/cluster/alerts");
            let fires = |node: &Value| {
                let states = node["alerts"]["states"].as_array().unwrap().iter();
                states.filter(|state| state["state"] == "firing" && state["scope"] == "database:default").count() > 0
            };
            all["nodes"].as_array().unwrap().iter().filter(|node| fires(node)).count() == 2
        });
        let own = format!("n{}", at + 1);
        assert_eq!(get(&cluster, at, "/cluster/alerts")["nodes"][0]["node"], own.as_str(), "this node first");
        let events = get(&cluster, at, "/cluster/events?kind=alert&count=50");
        let events_of =
            |node: &str| events["events"].as_array().unwrap().iter().filter(|one| one["node"] == node).count();
        assert!(events_of("n1") > 0 && events_of("n2") > 0 && events["missing"] == json!([]), "{events}");
        let times: Vec<u64> =
            events["events"].as_array().unwrap().iter().map(|one| one["event"]["at_ms"].as_u64().unwrap()).collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
        assert!(events["events"].as_array().unwrap().iter().all(|one| one["event"]["kind"] == "alert"), "{events}");
        assert_eq!(get(&cluster, at, "/cluster/events?count=3")["events"].as_array().unwrap().len(), 3);
    }
    // An alert is acknowledged at the node that has it.
    let alerts = get(&cluster, 0, "/cluster/alerts");
    let rule_id =
        alerts["nodes"][1]["alerts"]["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "always").unwrap()
            ["id"]
            .clone();
    let acknowledged = json!({"rule_id": rule_id, "scope": "database:default"});
    assert_eq!(ask(&cluster.members[0], "POST", "/nodes/n2/alerts/acknowledge", &admin, Some(&acknowledged)).0, 204);
    let of_n2 = get(&cluster, 1, "/alerts");
    let by = of_n2["states"].as_array().unwrap().iter().find_map(|state| state["acknowledged"]["by"].as_str());
    assert_eq!(by, Some("admin"), "{of_n2}");

    // A node that does not answer is named.
    cluster.members[1].kill_node();
    for path in ["/cluster/events", "/cluster/alerts"] {
        let all = get(&cluster, 0, path);
        assert_eq!(all["missing"][0]["node"], "n2", "{all}");
        assert!(all["missing"][0]["why"].as_str().unwrap().contains("cannot be reached"), "{}", all["missing"]);
    }
    assert!(!get(&cluster, 0, "/cluster/events")["events"].as_array().unwrap().is_empty());
}

/// What an operator is told, first when all is well, then without a node, then without a majority of etcd.
#[test]
fn alerts_tell_of_replicas_nodes_and_etcd() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let limits = [
        "--memory-limit",
        "200mb",
        "--ram-limit",
        "200mb",
        "--replicas",
        "1",
        "--replication",
        "sync",
        "--persistence",
    ];
    cluster.create("orders", 2, &[&limits[..], &["none"]].concat());
    let admin = log_in(&cluster.members[0], "admin", PASSWORD).unwrap();
    let get = |cluster: &Cluster, path: &str| ask(&cluster.members[0], "GET", path, &admin, None).2;
    // The value that the rule of a metric has judged last; null: it is unknown.
    let judged = |cluster: &Cluster, scope: &str, rule: &str| {
        let alerts = get(cluster, "/alerts");
        let is_it = |state: &&Value| state["rule_id"] == rule && state["scope"] == scope;
        alerts["states"].as_array().and_then(|states| states.iter().find(is_it)).map(|state| state["value"].clone())
    };
    let has = |cluster: &Cluster, scope: &str, wanted: &[(&str, Option<f64>)]| {
        eventually(&format!("{wanted:?}"), || {
            wanted.iter().all(|(rule, value)| judged(cluster, scope, rule) == Some(json!(value)))
        });
    };
    let orders = "database:orders";
    has(
        &cluster,
        orders,
        &[("shards-down", Some(0.0)), ("shards-alone", Some(0.0)), ("copies-out-of-sync", Some(0.0))],
    );
    let well = [("nodes-down", 0.0), ("no-controller", 0.0), ("etcd-away", 0.0), ("etcd-no-leader", 0.0)];
    has(&cluster, "node", &well.map(|(rule, value)| (rule, Some(value))));
    for rule in ["etcd-slowest-us", "clocks-apart-us"] {
        eventually(rule, || judged(&cluster, "node", rule).is_some_and(|value| value.is_number()));
    }
    // Another node that has come to lead leaves the lead to it.
    eventually("the node that only votes leads", || get(&cluster, "/cluster")["leader"] == "n3");
    let shown = get(&cluster, "/cluster");
    let of_nodes = |field: &str| -> Vec<u64> {
        shown["nodes"].as_array().unwrap().iter().map(|node| node[field].as_u64().unwrap()).collect()
    };
    let (mut copies, mut primaries) = (of_nodes("shards"), of_nodes("primaries"));
    copies.sort_unstable();
    primaries.sort_unstable();
    assert_eq!((copies, primaries), (vec![0, 2, 2], vec![0, 1, 1]));
    assert_eq!(get(&cluster, "/cluster/etcd")["members"][0]["has_leader"], true);

    cluster.members[1].kill_node();
    has(
        &cluster,
        orders,
        &[("shards-down", Some(0.0)), ("shards-alone", Some(2.0)), ("copies-out-of-sync", Some(2.0))],
    );
    has(&cluster, "node", &[("nodes-down", Some(1.0))]);
    // It is in the history when its new primary serves, which may be after the alerts.
    let failover = || {
        let operations = get(&cluster, "/operations");
        operations.as_array().unwrap().iter().find(|one| one["kind"] == "failover").cloned()
    };
    eventually("the failover is in the history", || failover().is_some());
    let failover = failover().expect("it is in the history");
    let (from, to) = (&failover["failover"]["from"], &failover["failover"]["to"]);
    assert_eq!((from, to), (&json!("n2"), &json!("n1")), "{failover}");

    // The last member says that it knows no leader; what the records say may be old.
    cluster.members[1].stop_coordinator();
    cluster.members[2].stop_node();
    has(&cluster, "node", &[("etcd-away", Some(1.0)), ("etcd-no-leader", Some(1.0)), ("nodes-down", None)]);
    has(&cluster, orders, &[("shards-alone", None)]);
    let etcd = get(&cluster, "/cluster/etcd");
    let answers = etcd["members"].as_array().unwrap().iter().filter(|member| member["trouble"].is_null());
    assert_eq!(answers.map(|member| member["has_leader"].clone()).collect::<Vec<_>>(), [json!(false)], "{etcd}");
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_millis() as u64
}
