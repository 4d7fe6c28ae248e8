//! The consoles of a cluster, asked as browsers ask them: processes with a real etcd.

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
    // The past is drawn from the same figures.
    eventually("the history has the keys of all shards", || {
        let (_, _, past) = ask(&cluster.members[0], "GET", "/databases/orders/metrics?names=keys", &admin, None);
        past["series"]["keys"].as_array().is_some_and(|keys| keys.contains(&json!(100.0)))
    });
    // Without an answer of each shard, the whole is unknown.
    cluster.members[1].kill_node();
    eventually("nothing is made up", || shown_by(&cluster.members[0])["now"]["keys"].is_null());
}
