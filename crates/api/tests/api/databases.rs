//! Databases come, change and go.

use crate::common::*;
use serde_json::Value;

const MB: u64 = 1 << 20;
const ALL: &str = "/api/v1/databases";

fn tiered(node: &mut Vec<(String, String)>, flash: &std::path::Path) {
    for (name, value) in [("memory-limit", "200mb"), ("ram-limit", "60mb"), ("flash-path", flash.to_str().unwrap())] {
        node.push((name.to_owned(), value.to_owned()));
    }
}

/// A node with flash in its own folder.
fn with_flash() -> Node {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let flash = folder.path().join("flash");
    std::fs::create_dir(&flash).unwrap();
    let mut directives = Vec::new();
    tiered(&mut directives, &flash);
    let directives: Vec<(&str, &str)> =
        directives.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Node::start_in(folder, &directives)
}

fn names(client: &Client) -> Vec<String> {
    let list = client.get(ALL).ok();
    list["databases"].as_array().unwrap().iter().map(|db| db["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_database_from_its_form_to_its_end() {
    let node = with_flash();
    let operator = node.token("operator");
    let wanted = |name: &str| json!({"name": name, "memory_limit_bytes": 100 * MB});
    // The form asks whether it would work. Nothing is created or recorded.
    assert_eq!(operator.post(&format!("{ALL}?dry_run=true"), wanted("sessions")).status, 204);
    let small = json!({"name": "sessions", "memory_limit_bytes": 100 * MB, "ram_limit_bytes": 20 * MB});
    assert_eq!(operator.post(&format!("{ALL}?dry_run=true"), small).error(), error(400, "invalid", "ram_limit_bytes"));
    for (field, value) in [
        ("flash_limit_bytes", json!(10 * MB)),
        ("backup_schedule", json!("often")),
        ("backup_keep", json!(0)),
        ("policy", json!("none")),
        ("memory_limit_bytes", json!(31 * MB)),
    ] {
        let mut body = wanted("sessions");
        body["ram_limit_bytes"] = json!(30 * MB);
        body[field] = value;
        assert_eq!(operator.post(&format!("{ALL}?dry_run=true"), body).error(), error(400, "invalid", field));
    }
    assert_eq!(names(&operator), ["default"]);
    let made = operator.post(ALL, wanted("sessions"));
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.ok();
    let definition = &made["definition"];
    assert_eq!(definition["ram_limit_bytes"], json!(100 * MB * 30 / 100));
    assert_eq!((&definition["compression"], &definition["policy"]), (&json!("lz4"), &json!("noeviction")));
    assert_eq!((&made["state"], &made["is_default"]), (&json!("active"), &json!(false)));
    let port = definition["port"].as_u64().unwrap() as u16;
    assert!(made["endpoints"].as_array().unwrap().iter().any(|endpoint| {
        endpoint["kind"] == "tcp" && endpoint["command"] == json!(format!("redis-cli -h 127.0.0.1 -p {port}"))
    }));
    node.command(port, &["SET", "k", "v"]);
    assert_eq!(node.command(node.port(), &["EXISTS", "k"]), resp::client::Value::Int(0), "datasets are apart");
    assert_eq!(names(&operator), ["default", "sessions"]);

    assert_eq!(operator.post(ALL, wanted("sessions")).error(), error(409, "exists", ""));
    let one = format!("{ALL}/sessions");
    let wanted = json!({"ram_limit_bytes": 40 * MB, "policy": "allkeys-lru", "password": "word"});
    let changed = operator.patch(&one, wanted).ok();
    assert_eq!(changed["definition"]["ram_limit_bytes"], json!(40 * MB));
    assert_eq!(changed["definition"]["policy"], "allkeys-lru");
    assert_eq!(changed["definition"]["has_password"], true);
    assert!(!changed.to_string().contains("\"word\""));
    assert!(
        matches!(node.command(port, &["GET", "k"]), resp::client::Value::Error(text) if text.starts_with(b"NOAUTH"))
    );
    // A form that is being filled in: the same answers, and nothing changes.
    let dry = |change: serde_json::Value| operator.patch(&format!("{one}?dry_run=true"), change);
    assert_eq!(dry(json!({"ram_limit_bytes": 20 * MB})).error(), error(400, "invalid", "ram_limit_bytes"));
    assert_eq!(dry(json!({"memory_limit_bytes": 1u64 << 60, "ram_limit_bytes": 1u64 << 50})).error().1, "no_room");
    assert_eq!(dry(json!({"ram_limit_bytes": 50 * MB})).ok()["definition"]["ram_limit_bytes"], json!(40 * MB));
    let too_little = operator.patch(&one, json!({"ram_limit_bytes": 20 * MB}));
    assert_eq!(too_little.error(), error(400, "invalid", "ram_limit_bytes"));
    assert!(too_little.text().contains("8mb for the journal"), "{}", too_little.text());
    let changed = operator.patch(&one, json!({"compression": "zstd"})).ok();
    assert_eq!(changed["definition"]["compression"], "zstd", "while it serves");
    let console = format!("{one}/command");
    let info = operator.post(&console, json!({"line": "INFO tiering"})).ok()["reply"]["value"].to_string();
    assert!(info.contains("flash_compression:zstd"), "the store takes it: {info}");
    let set = node.command(port, &["CONFIG", "SET", "flash-compression", "none"]);
    assert!(matches!(set, resp::client::Value::Error(text) if text.starts_with(b"NOAUTH")));
    assert_eq!(operator.patch(&one, json!({"compression": "gzip"})).error(), error(400, "invalid", "compression"));
    operator.patch(&one, json!({"password": null})).ok();
    assert_eq!(node.command(port, &["GET", "k"]), resp::client::Value::Bulk(b"v".to_vec()));
    assert_eq!(operator.patch(&one, json!({})).error(), error(400, "invalid", ""));

    assert_eq!(operator.send("POST", &format!("{one}/pause"), None).ok()["state"], "paused");
    let refused = node.command(port, &["GET", "k"]);
    assert!(matches!(&refused, resp::client::Value::Error(text) if text.starts_with(b"PAUSED")), "{refused:?}");
    let shown = operator.get(&format!("{one}/key?key=k")).ok();
    assert_eq!(shown["value"], "v", "the console still sees it");
    assert_eq!(operator.send("POST", &format!("{one}/resume"), None).ok()["state"], "active");

    assert_eq!(
        operator.post(&format!("{one}/flush"), json!({"confirm": "default"})).error(),
        error(400, "invalid", "confirm")
    );
    operator.post(&format!("{one}/flush"), json!({"confirm": "sessions"})).ok();
    assert_eq!(node.command(port, &["DBSIZE"]), resp::client::Value::Int(0));

    let unconfirmed = operator.delete(&one);
    assert_eq!(unconfirmed.error(), error(400, "invalid", "confirm"));
    assert!(
        unconfirmed.text().contains("cannot be undone") && unconfirmed.text().contains("/databases/sessions/backups")
    );
    assert_eq!(operator.delete(&format!("{ALL}/default?confirm=default")).error(), error(422, "unsupported", ""));
    assert_eq!(operator.delete(&format!("{one}?confirm=sessions")).status, 204);
    assert_eq!(names(&operator), ["default"]);
    assert_eq!(operator.get(&one).error(), error(404, "not_found", ""));
    until("the end of its history", || {
        (!files(&node.state_dir().join("history")).contains(&"sessions".to_owned())).then_some(())
    });
    let events = operator.get("/api/v1/events?kind=database").ok();
    let told: Vec<&str> = events.as_array().unwrap().iter().map(|event| event["message"].as_str().unwrap()).collect();
    assert!(told.contains(&"the database was created") && told.contains(&"the database was deleted"), "{told:?}");
    let audit = node.token("admin").get("/api/v1/audit").ok().to_string();
    assert!(!audit.contains("dry run"), "a try is no change");
}

#[test]
fn what_cannot_be_is_refused_with_its_field() {
    let node = with_flash();
    let operator = node.token("operator");
    let good = json!({"name": "a", "memory_limit_bytes": 100 * MB});
    let with = |changes: Value| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    for (changes, status, field) in [
        (json!({"name": ""}), 400, "name"),
        (json!({"name": "Big"}), 400, "name"),
        (json!({"name": "node"}), 400, "name"),
        (json!({"name": "../x"}), 400, "name"),
        (json!({"name": "a".repeat(41)}), 400, "name"),
        (json!({"ram_limit_bytes": 110 * MB}), 400, "ram_limit_bytes"),
        (json!({"policy": "nosuch"}), 400, "policy"),
        (json!({"compression": "nosuch"}), 400, "compression"),
        (json!({"shards": 2}), 422, "shards"),
        (json!({"replicas": 1}), 422, "replicas"),
        (json!({"persistence": "aof"}), 400, "persistence"),
        (json!({"zones": ["a"]}), 422, "zones"),
    ] {
        for path in [ALL.to_owned(), format!("{ALL}?dry_run=true")] {
            let reply = operator.post(&path, with(changes.clone()));
            let (found, _, blamed) = reply.error();
            assert_eq!((found, blamed.as_str()), (status, field), "{changes}: {}", reply.text());
            if ["shards", "replicas", "zones"].contains(&field) {
                assert!(
                    reply.text().contains("needs a cluster, and this node is a member of none"),
                    "{}",
                    reply.text()
                );
            }
        }
    }
    let reply = operator.post(ALL, with(json!({"memory_limit_bytes": 1u64 << 60, "ram_limit_bytes": 1u64 << 50})));
    assert_eq!(reply.error().0, 422, "{}", reply.text());
    assert_eq!(reply.error().1, "no_room");
    assert!(
        reply.json()["error"]["message"].as_str().unwrap().chars().any(|c| c.is_ascii_digit()),
        "with the arithmetic"
    );
    assert_eq!(names(&operator), ["default"]);
    let dry = operator.post(&format!("{ALL}?dry_run=perhaps"), good);
    assert_eq!(dry.error(), error(400, "invalid", "dry_run"));
}

/// Twenty databases: each has its own data, is in the list and in the metrics, and exists again after a restart.
#[test]
fn a_node_with_twenty_databases() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let mut ports = Vec::new();
    for number in 1..20 {
        // Another process may take a free port first.
        let reply = loop {
            let body = json!({"name": format!("db-{number:02}"), "memory_limit_bytes": 20 * MB, "ram_limit_bytes": 20 * MB, "port": free_port()});
            let reply = operator.post(ALL, body);
            if !reply.text().contains("Address already in use") {
                break reply;
            }
        };
        assert_eq!(reply.status, 201, "{}", reply.text());
        ports.push(reply.json()["definition"]["port"].as_u64().unwrap() as u16);
    }
    for (number, port) in ports.iter().enumerate() {
        for key in 0..=number {
            node.command(*port, &["SET", &format!("key {key}"), "v"]);
        }
    }
    let list = operator.get(ALL).ok();
    assert_eq!(list["databases"].as_array().unwrap().len(), 20);
    assert_eq!(list["room"]["by_database"].as_array().unwrap().len(), 20);
    until("every count", || {
        let list = operator.get(ALL).ok();
        let mut counted = list["databases"].as_array().unwrap().iter().skip(1).enumerate();
        counted.all(|(number, db)| db["now"]["keys"] == json!(number as f64 + 1.0)).then_some(())
    });
    let page = node.client().get("/metrics").text();
    for number in 1..20 {
        assert!(page.contains(&format!("redis_up{{database=\"db-{number:02}\"}} 1\n")), "{number}");
        assert!(page.contains(&format!("flintkv_tier_keys{{database=\"db-{number:02}\"}} {number}\n")), "{number}");
    }
    let folder = node.folder();
    node.stop();
    let node = Node::start_in(folder, &[]);
    assert_eq!(names(&node.admin()).len(), 20);
}

/// A database without persistence begins empty after a restart: an event says what is gone. One with persistence has lost nothing.
#[test]
fn an_event_says_what_a_restart_has_lost_and_the_run_id_is_one() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let wanted = |name: &str, persistence: &str| json!({"name": name, "memory_limit_bytes": 40 * MB, "ram_limit_bytes": 40 * MB, "port": free_port(), "persistence": persistence});
    let port = |name: &str, persistence: &str| {
        operator.post(ALL, wanted(name, persistence)).ok()["definition"]["port"].as_u64().unwrap() as u16
    };
    let (kept, lost, empty) = (port("kept", "everysec"), port("lost", "none"), port("empty", "none"));
    for port in [kept, lost] {
        node.command(port, &["MSET", "a", "1", "b", "2", "c", "3"]);
    }
    let run_id = operator.get("/api/v1/node").ok()["run_id"].as_str().unwrap().to_owned();
    for port in [node.port(), kept, lost, empty] {
        let resp::client::Value::Bulk(info) = node.command(port, &["INFO", "server"]) else { panic!("a text") };
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains(&format!("run_id:{run_id}\r\n")), "{info}");
    }
    until("the history has the keys", || {
        let list = operator.get(ALL).ok();
        let keys = |name: &str| {
            let all = list["databases"].as_array().unwrap();
            all.iter().find(|db| db["name"] == name).map(|db| db["now"]["keys"].clone())
        };
        (keys("lost") == Some(json!(3.0)) && keys("kept") == Some(json!(3.0))).then_some(())
    });
    let folder = node.folder();
    node.stop();
    let node = Node::start_in(folder, &[]);
    let operator = node.token("operator");
    let told = until("the events", || {
        let events = operator.get("/api/v1/events?kind=database").ok();
        let found = |event: &&Value| event["message"].as_str().unwrap().starts_with("restarted");
        let mut told: Vec<(String, String)> = events
            .as_array()
            .unwrap()
            .iter()
            .filter(found)
            .map(|event| {
                (event["database"].as_str().unwrap().to_owned(), event["message"].as_str().unwrap().to_owned())
            })
            .collect();
        told.sort();
        (told.len() >= 2).then_some(told)
    });
    assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["kept", "lost"], "{told:?}");
    assert_eq!(told[1].1, "restarted empty: 3 keys gone, because its persistence is none");
    assert_ne!(operator.get("/api/v1/node").ok()["run_id"], json!(run_id));
}

/// A member that did not work for its cluster made a database of its own, of which the cluster knew nothing.
#[test]
fn a_member_that_does_not_work_for_its_cluster_creates_no_database_of_its_own() {
    let node = Node::start(&[]);
    let folder = node.state_dir().join("cluster");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("member.json"), "{").unwrap();
    let admin = node.admin();
    until("the agent sees the file", || (admin.get("/api/v1/cluster").status == 409).then_some(()));
    let ads = json!({"name": "ads", "memory_limit_bytes": 40 * MB});
    for path in [ALL, "/api/v1/databases?dry_run=true"] {
        let refused = admin.post(path, ads.clone());
        assert_eq!(refused.error(), error(409, "busy", ""), "{path}");
        assert!(refused.text().contains("this node does not work for its cluster: "), "{}", refused.text());
    }
    assert_eq!(names(&admin), ["default"]);
    std::fs::remove_file(folder.join("member.json")).unwrap();
    until("the node is alone", || (admin.get("/api/v1/cluster").status == 422).then_some(()));
    assert_eq!(admin.post(ALL, ads).status, 201);
}
