//! Replication through the API: two databases of one node follow each other.

use crate::common::*;
use resp::client::Value;

const MB: u64 = 1 << 20;
const ALL: &str = "/api/v1/databases";

#[test]
fn a_definition_says_whom_a_database_follows() {
    let node = Node::start(&[]);
    let admin = node.token("admin");
    node.command(node.port(), &["SET", "a", "1"]);
    let primary = format!("127.0.0.1:{}", node.port());
    let new = |replica_of: &str| json!({"name": "copy", "memory_limit_bytes": 100 * MB, "replica_of": replica_of});
    assert_eq!(admin.post(ALL, new("nowhere")).error(), error(400, "invalid", "replica_of"));
    let made = admin.post(ALL, new(&primary)).ok();
    assert_eq!(made["definition"]["replica_of"], json!(primary));
    let copy = format!("{ALL}/copy");
    let is_up = || admin.get(&format!("{copy}/replication")).ok()["primary"]["is_up"] == true;
    until("the dataset", || is_up().then_some(()));
    let port = made["definition"]["port"].as_u64().unwrap() as u16;
    assert_eq!(node.command(port, &["GET", "a"]), Value::Bulk(b"1".to_vec()));

    let file = node.state_dir().join("databases/copy.conf");
    let kept = || std::fs::read_to_string(&file).unwrap();
    assert!(kept().contains(&format!("replicaof 127.0.0.1 {}", node.port())), "{}", kept());
    let both = admin.patch(&copy, json!({"replica_of": "", "backup_keep": 3}));
    assert_eq!(both.error(), error(400, "invalid", "replica_of"));
    // As POST …/promote and …/replicate, this is for administrators.
    let operator = node.token("operator");
    for (path, replica_of) in [(&copy, ""), (&format!("{copy}?dry_run=true"), ""), (&copy, "127.0.0.1:1")] {
        let refused = operator.patch(path, json!({"replica_of": replica_of}));
        assert_eq!(refused.error(), error(403, "forbidden", ""), "{path}");
    }
    assert_eq!(operator.get(&copy).ok()["definition"]["replica_of"], json!(primary));
    let audit = admin.get("/api/v1/audit").ok();
    assert_eq!((&audit[0]["action"], &audit[0]["ok"]), (&json!("database.update"), &json!(false)), "{audit}");
    operator.patch(&copy, json!({"backup_keep": 3})).ok();
    let promoted = admin.patch(&copy, json!({"replica_of": ""})).ok();
    assert_eq!(promoted["definition"]["replica_of"], "");
    assert!(!kept().contains("replicaof 127"), "{}", kept());
    assert_eq!(node.command(port, &["SET", "b", "2"]), Value::Simple(b"OK".to_vec()));
    // A client's command is kept too: what the definition shows is what a restart does.
    assert_eq!(admin.patch(&copy, json!({"replica_of": primary})).ok()["definition"]["replica_of"], json!(primary));
    until("it follows again", || is_up().then_some(()));
    assert_eq!(node.command(port, &["REPLICAOF", "NO", "ONE"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(admin.get(&copy).ok()["definition"]["replica_of"], "");
    assert!(!kept().contains("replicaof 127"), "{}", kept());
}

#[test]
fn a_database_follows_another_and_takes_over() {
    let node = Node::start(&[]);
    let admin = node.token("admin");
    node.command(node.port(), &["SET", "a", "1"]);
    let made = admin.post(ALL, json!({"name": "copy", "memory_limit_bytes": 100 * MB})).ok();
    let port = made["definition"]["port"].as_u64().unwrap() as u16;
    let of = |name: &str| admin.get(&format!("{ALL}/{name}/replication")).ok();
    let alone = of("copy");
    assert_eq!((&alone["role"], &alone["primary"], &alone["replicas"]), (&json!("primary"), &json!(null), &json!([])));

    let follow = json!({"host": "127.0.0.1", "port": node.port()});
    assert_eq!(node.token("operator").post(&format!("{ALL}/copy/replicate"), follow.clone()).status, 403);
    let began = admin.post(&format!("{ALL}/copy/replicate"), follow).ok();
    assert_eq!((&began["role"], &began["primary"]["port"]), (&json!("replica"), &json!(node.port())));
    until("the dataset", || (of("copy")["primary"]["is_up"] == true).then_some(()));
    assert_eq!(node.command(port, &["GET", "a"]), Value::Bulk(b"1".to_vec()));
    node.command(node.port(), &["SET", "b", "2"]);
    until("the replica's word", || {
        let replicas = of("default")["replicas"].clone();
        (replicas[0]["state"] == "online" && replicas[0]["lag_bytes"] == 0).then_some(())
    });
    assert_eq!(node.command(port, &["GET", "b"]), Value::Bulk(b"2".to_vec()));
    assert_eq!(of("default")["offset"], of("copy")["offset"]);

    // The primary hands over, and follows.
    let handed = admin.post(&format!("{ALL}/default/switchover"), json!({}));
    assert_eq!(handed.status, 200, "{}", handed.text());
    assert_eq!(handed.json()["primary"]["port"], json!(port));
    assert_eq!(of("copy")["role"], "primary");
    assert_eq!(node.command(port, &["SET", "c", "3"]), Value::Simple(b"OK".to_vec()));
    until("the old primary follows", || {
        (node.command(node.port(), &["GET", "c"]) == Value::Bulk(b"3".to_vec())).then_some(())
    });

    let promoted = admin.send("POST", &format!("{ALL}/default/promote"), None).ok();
    assert_eq!(promoted["role"], "primary");
    assert_eq!(node.command(node.port(), &["SET", "d", "4"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(admin.send("POST", &format!("{ALL}/default/promote"), None).status, 409);
    assert_eq!(
        admin.post(&format!("{ALL}/default/switchover"), json!({"to": "x"})).error(),
        error(400, "invalid", "to")
    );
    let nobody = admin.post(&format!("{ALL}/default/switchover"), json!({"timeout_ms": 100}));
    assert!(nobody.status >= 400, "{}", nobody.text());
}
