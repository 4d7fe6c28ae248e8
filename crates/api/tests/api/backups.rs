//! Backups through the API, databases that begin with one, and changes of what survives a restart.

use crate::common::*;
use resp::client::Value;

const MB: u64 = 1 << 20;
const ALL: &str = "/api/v1/databases";
const OF_DEFAULT: &str = "/api/v1/databases/default/backups";

fn ended(client: &Client, path: &str) -> serde_json::Value {
    until("the backup to end", || {
        let state = client.get(path).ok();
        (state["running"].is_null() && state["last"].is_object()).then_some(state)
    })
}

#[test]
fn a_backup_from_its_beginning_to_a_new_database() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    node.command(node.port(), &["MSET", "a", "1", "b", "2"]);
    let none = operator.get(OF_DEFAULT).ok();
    assert_eq!((&none["running"], &none["last"], &none["backups"]), (&json!(null), &json!(null), &json!([])));
    assert_eq!(node.token("viewer").post(OF_DEFAULT, json!({})).status, 403);
    for (body, field) in [
        (json!({"to": "../away"}), "to"),
        (json!({"to": "/etc"}), "to"),
        (json!({"rdb_version": 13}), "rdb_version"),
        (json!({"into": "x"}), "into"),
    ] {
        assert_eq!(operator.post(OF_DEFAULT, body).error(), error(400, "invalid", field));
    }
    let begun = operator.post(OF_DEFAULT, json!({"to": "nightly/one"}));
    assert_eq!(begun.status, 201, "{}", begun.text());
    assert_eq!(begun.json()["path"], "nightly/one");
    let state = ended(&operator, OF_DEFAULT);
    assert_eq!((&state["last"]["path"], &state["last"]["error"]), (&json!("nightly/one"), &json!(null)));
    let made = &state["backups"][0];
    assert_eq!((&made["keys"], &made["database"], &made["rdb_version"]), (&json!(2), &json!("default"), &json!(12)));
    assert_eq!(operator.post(OF_DEFAULT, json!({"to": "nightly/one"})).error(), error(400, "invalid", "to"));
    let plain = operator.post(OF_DEFAULT, json!({"rdb_version": 10})).ok();
    assert!(plain["path"].as_str().unwrap().starts_with("default/"), "{plain}");
    ended(&operator, OF_DEFAULT);
    let all = operator.get("/api/v1/backups").ok();
    assert_eq!(all["backups"].as_array().unwrap().len(), 2);
    assert_eq!(all["directory"], json!(node.state_dir().join("backups").canonicalize().unwrap()));

    let copy = json!({"name": "copy", "memory_limit_bytes": 100 * MB, "from": "nightly/none"});
    assert_eq!(operator.post(ALL, copy).error(), error(400, "invalid", "from"));
    let copy = json!({"name": "copy", "memory_limit_bytes": 100 * MB, "from": "nightly/one",
        "backup_schedule": "6h", "backup_keep": 3, "recovery_time_target_s": 0});
    assert_eq!(operator.post(&format!("{ALL}?dry_run=true"), copy.clone()).status, 204);
    let made = operator.post(ALL, copy).ok();
    assert_eq!((&made["definition"]["backup_schedule"], &made["definition"]["backup_keep"]), (&json!("6h"), &json!(3)));
    assert_eq!(made["definition"]["recovery_time_target_s"], 0);
    let port = made["definition"]["port"].as_u64().unwrap() as u16;
    until("the dataset", || (operator.get(&format!("{ALL}/copy")).ok()["state"] == "active").then_some(()));
    assert_eq!(node.command(port, &["GET", "b"]), Value::Bulk(b"2".to_vec()));
    until("its first scheduled backup", || {
        let state = operator.get(&format!("{ALL}/copy/backups")).ok();
        (state["backups"][0]["scheduled"] == true).then_some(())
    });

    // A directory that nobody can make.
    std::fs::write(node.state_dir().join("backups/file"), "").unwrap();
    let failed = operator.post(OF_DEFAULT, json!({"to": "file/x"}));
    assert_eq!(failed.error(), error(400, "invalid", "to"), "{}", failed.text());
    let events = until("the events", || {
        let events = operator.get("/api/v1/events?kind=backup").ok().to_string();
        events.contains("a backup is made and verified: nightly/one, 2 keys").then_some(events)
    });
    assert!(events.contains("a backup was started: nightly/one"), "{events}");
}

#[test]
fn a_database_whose_backup_is_damaged_has_failed_and_says_why() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    node.command(node.port(), &["SET", "a", "12345678901234567890x"]);
    operator.post(OF_DEFAULT, json!({"to": "one"})).ok();
    ended(&operator, OF_DEFAULT);
    let dump = node.state_dir().join("backups/one/dump.rdb");
    let mut bytes = std::fs::read(&dump).unwrap();
    let at = bytes.len() - 12;
    bytes[at] ^= 1;
    std::fs::write(&dump, bytes).unwrap();
    let copy = json!({"name": "copy", "memory_limit_bytes": 100 * MB, "from": "one"});
    operator.post(ALL, copy).ok();
    let failed = until("the failure", || {
        let copy = operator.get(&format!("{ALL}/copy")).ok();
        (copy["state"] == "failed").then_some(copy)
    });
    assert!(failed["failure"].as_str().unwrap().contains("dump.rdb"), "{failed}");
    assert_eq!(operator.delete(&format!("{ALL}/copy?confirm=copy")).status, 204);
}

#[test]
fn a_backup_is_verified_anew_and_deleted() {
    let node = Node::start(&[]);
    let (operator, viewer) = (node.token("operator"), node.token("viewer"));
    node.command(node.port(), &["SET", "a", "12345678901234567890x"]);
    for name in ["one", "two"] {
        operator.post(OF_DEFAULT, json!({"to": name})).ok();
        ended(&operator, OF_DEFAULT);
    }
    let verify = |path: &str| operator.post("/api/v1/backups/verify", json!({"path": path}));
    let delete = |path: &str, confirm: &str| operator.delete(&format!("/api/v1/backups?path={path}&confirm={confirm}"));
    assert_eq!(verify("one").status, 204);
    assert_eq!(viewer.post("/api/v1/backups/verify", json!({"path": "one"})).status, 403);
    assert_eq!(viewer.delete("/api/v1/backups?path=one&confirm=one").status, 403);
    for path in ["none", "../one", "/etc", ""] {
        assert_eq!(verify(path).error(), error(400, "invalid", "path"), "{path}");
        assert_eq!(delete(path, path).error(), error(400, "invalid", "path"), "{path}");
    }
    assert_eq!(delete("one", "two").error(), error(400, "invalid", "confirm"));

    let dump = node.state_dir().join("backups/one/dump.rdb");
    let mut bytes = std::fs::read(&dump).unwrap();
    let at = bytes.len() - 12;
    bytes[at] ^= 1;
    std::fs::write(&dump, bytes).unwrap();
    let damaged = verify("one");
    assert_eq!(damaged.error(), error(400, "invalid", "path"));
    assert!(damaged.text().contains("dump.rdb"), "{}", damaged.text());
    assert_eq!(delete("one", "one").status, 204);
    let left = operator.get(OF_DEFAULT).ok()["backups"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["path"]), (1, &json!("two")));
    assert!(!node.state_dir().join("backups/one").exists());
    assert_eq!(verify("two").status, 204);
    let events = operator.get("/api/v1/events?count=20").ok().to_string();
    for text in ["a backup was verified: one, 1 keys", "a backup is damaged", "a backup was deleted: one"] {
        assert!(events.contains(text), "{text}: {events}");
    }
}

#[test]
fn a_failed_backup_of_the_schedule_is_a_critical_event() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let backups = node.state_dir().join("backups");
    std::fs::create_dir_all(&backups).unwrap();
    std::fs::write(backups.join("default"), "").unwrap();
    operator.patch(&format!("{ALL}/default"), json!({"backup_schedule": "1h"})).ok();
    let event = until("the event", || operator.get("/api/v1/events?kind=backup").ok().get(0).cloned());
    assert_eq!((&event["severity"], &event["database"]), (&json!("critical"), &json!("default")));
    assert!(event["message"].as_str().unwrap().starts_with("a backup failed: the backup cannot begin: "), "{event}");
}

#[test]
fn what_survives_a_restart_changes_while_the_database_serves() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let one = format!("{ALL}/default");
    node.command(node.port(), &["SET", "a", "1"]);
    let persistence = |wanted: &str| operator.patch(&one, json!({"persistence": wanted}));
    assert_eq!(persistence("sometimes").error(), error(400, "invalid", "persistence"));
    let mixed = json!({"persistence": "everysec", "backup_keep": 2});
    assert_eq!(operator.patch(&one, mixed).error(), error(400, "invalid", "persistence"));
    for (wanted, enabled, fsync) in
        [("everysec", "yes", "everysec"), ("always", "yes", "always"), ("none", "no", "always"), ("no", "yes", "no")]
    {
        let changed = persistence(wanted).ok();
        assert_eq!(changed["definition"]["persistence"], wanted);
        for (directive, value) in [("appendonly", enabled), ("appendfsync", fsync)] {
            let told = node.command(node.port(), &["CONFIG", "GET", directive]);
            let both = [directive, value].map(|word| Value::Bulk(word.into()));
            assert_eq!(told, Value::Array(both.into()), "{wanted}");
        }
    }
    assert!(node.folder().path().join("flintkv.journal/manifest").exists());
    let target = |seconds: u64| operator.patch(&one, json!({ "recovery_time_target_s": seconds }));
    assert_eq!(target(30).ok()["definition"]["recovery_time_target_s"], 30);
    let told = node.command(node.port(), &["CONFIG", "GET", "recovery-time-target"]);
    assert_eq!(told, Value::Array(["recovery-time-target", "30"].map(|word| Value::Bulk(word.into())).into()));
    assert_eq!(target(1 << 31).error(), error(400, "invalid", "recovery_time_target_s"));
}

#[test]
fn a_database_of_a_moment_between_backups() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let archived = json!({"backup_journal_keep": "7d"});
    let one = format!("{ALL}/default");
    assert_eq!(operator.patch(&one, archived.clone()).error(), error(400, "invalid", "backup_journal_keep"));
    let without =
        json!({"name": "a", "memory_limit_bytes": 100 * MB, "backup_journal_keep": "7d", "persistence": "none"});
    assert_eq!(operator.post(ALL, without).error(), error(400, "invalid", "backup_journal_keep"));
    operator.patch(&one, json!({"persistence": "everysec"})).ok();
    assert_eq!(
        operator.patch(&one, json!({"backup_journal_keep": "soon"})).error(),
        error(400, "invalid", "backup_journal_keep")
    );
    assert_eq!(operator.patch(&one, archived).ok()["definition"]["backup_journal_keep"], "7d");
    node.command(node.port(), &["SET", "a", "1"]);
    operator.post(OF_DEFAULT, json!({"to": "default/one"})).ok();
    let made = ended(&operator, OF_DEFAULT)["backups"][0].clone();
    let from_ms = made["moment_ms"].as_u64().unwrap();
    assert_eq!(made["reaches_ms"], json!(null), "nothing is archived behind it");
    node.command(node.port(), &["SET", "a", "2"]);

    let of = |at_ms: u64| json!({"name": "copy", "memory_limit_bytes": 100 * MB, "from": "default", "at_ms": at_ms});
    let alone = json!({"name": "copy", "memory_limit_bytes": 100 * MB, "at_ms": from_ms});
    assert_eq!(operator.post(ALL, alone).error(), error(400, "invalid", "at_ms"));
    for at_ms in [from_ms - 1, from_ms + 1_000_000_000] {
        assert_eq!(operator.post(ALL, of(at_ms)).error(), error(400, "invalid", "at_ms"));
    }
    let now_ms = until("a later second", || {
        let now_ms = base::clock::wall_ms();
        (now_ms > from_ms + 10).then_some(now_ms)
    });
    assert_eq!(operator.post(&format!("{ALL}?dry_run=true"), of(now_ms)).status, 204);
    let copy = operator.post(ALL, of(now_ms)).ok();
    let port = copy["definition"]["port"].as_u64().unwrap() as u16;
    until("the dataset", || (operator.get(&format!("{ALL}/copy")).ok()["state"] == "active").then_some(()));
    assert_eq!(node.command(port, &["GET", "a"]), Value::Bulk(b"2".to_vec()));
    let reaches_ms = operator.get(OF_DEFAULT).ok()["backups"][0]["reaches_ms"].as_u64().unwrap();
    assert!(reaches_ms >= now_ms, "{reaches_ms}");
    let events = operator.get("/api/v1/events?kind=database").ok().to_string();
    assert!(events.contains("the database was created from the backup default, as it was at 20"), "{events}");
}

#[test]
fn an_archive_that_cannot_be_written_is_a_critical_event() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let backups = node.state_dir().join("backups");
    std::fs::create_dir_all(backups.join("default")).unwrap();
    std::fs::write(backups.join("default/journal"), "").unwrap();
    operator.patch(&format!("{ALL}/default"), json!({"persistence": "everysec"})).ok();
    operator.patch(&format!("{ALL}/default"), json!({"backup_journal_keep": "1d"})).ok();
    let event = until("the event", || operator.get("/api/v1/events?kind=backup").ok().get(0).cloned());
    assert_eq!((&event["severity"], &event["database"]), (&json!("critical"), &json!("default")));
    assert!(event["message"].as_str().unwrap().starts_with("the journal is not archived: "), "{event}");
    until("the metric", || {
        let metrics = node.token("viewer").get("/metrics").text();
        metrics.lines().any(|line| line.starts_with("flintkv_archive_failed{") && line.ends_with(" 1")).then_some(())
    });
    let late = json!({"name": "copy", "memory_limit_bytes": 100 * MB, "from": "default", "at_ms": 1});
    assert_eq!(operator.post(ALL, late).error(), error(400, "invalid", "at_ms"));
}
