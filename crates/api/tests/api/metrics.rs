//! Metrics: now, their past, Prometheus, alerts and the webhook.

use crate::common::*;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn what_is_measured_is_told_now_and_later() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    let catalog = viewer.get("/api/v1/metrics-catalog").ok();
    let names = |scope: &str| -> Vec<String> {
        let cards = catalog.as_array().unwrap().iter().filter(|card| card["scope"] == scope);
        cards.map(|card| card["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names("database").len() > 35 && names("node").contains(&"cpu_percent".to_owned()));

    let load = || {
        for number in 0..50 {
            node.command(node.port(), &["SET", &format!("k{number}"), "v"]);
            node.command(node.port(), &["GET", &format!("k{number}")]);
        }
    };
    // A rate needs two looks, with load in between.
    let now = until("a rate", || {
        load();
        let now = viewer.get("/api/v1/databases/default").ok()["now"].clone();
        // The first look may have been in the middle of the first load.
        let is_whole = now["keys"].as_f64() == Some(50.0);
        (is_whole && now["ops_read"].as_f64() > Some(0.0) && now["latency_us"].as_f64() > Some(0.0)).then_some(now)
    });
    assert_eq!(now.as_object().unwrap().len(), names("database").len());
    assert!(now["ops_write"].as_f64() > Some(0.0));
    assert_eq!((&now["hit_ratio"], &now["keys"]), (&json!(1.0), &json!(50.0)));
    assert!(now["latency_p99_us"].as_f64() >= now["latency_p50_us"].as_f64());

    let path = "/api/v1/databases/default/metrics";
    let series = until("three points", || {
        load();
        let series = viewer.get(&format!("{path}?names=ops,keys,latency_p99_us&points=1000")).ok();
        let known = series["series"]["ops"].as_array().unwrap().iter().filter(|value| !value.is_null()).count();
        (known >= 3).then_some(series)
    });
    let count = series["times_ms"].as_array().unwrap().len();
    assert_eq!(series["step_ms"], 4000);
    assert!((899..=901).contains(&count), "{count}");
    for values in series["series"].as_object().unwrap().values() {
        assert_eq!(values.as_array().unwrap().len(), count);
        assert!(values[0].is_null(), "the node did not run an hour ago");
    }
    assert!(series["series"]["keys"].as_array().unwrap().contains(&json!(50.0)));
    assert_eq!(viewer.get("/api/v1/node/metrics?names=cpu_percent,ops").ok()["series"].as_object().unwrap().len(), 2);
    assert_eq!(viewer.get(path).ok()["series"].as_object().unwrap().len(), names("database").len());
    for (query, field) in [
        ("names=nosuch", "names"),
        ("points=0", "points"),
        ("points=1001", "points"),
        ("from_ms=9&to_ms=8", "from_ms"),
        ("from_ms=x", "from_ms"),
    ] {
        assert_eq!(viewer.get(&format!("{path}?{query}")).error(), error(400, "invalid", field), "{query}");
    }
    let card = viewer.get("/api/v1/node").ok();
    assert!(card["room"]["ram_bytes"].as_u64() > Some(0) && card["figures"]["resident_bytes"].as_u64() > Some(0));
    assert_eq!(card["flash_driver"], "none");
    // The machine, not only the process: a second look knows its processors.
    let now = until("two looks", || {
        let now = viewer.get("/api/v1/node").ok()["now"].clone();
        now["machine_cpu_percent"].is_number().then_some(now)
    });
    assert!((0.0..=100.0).contains(&now["machine_cpu_percent"].as_f64().unwrap()), "{now}");
    assert!(now["machine_ram_free_percent"].as_f64() > Some(0.0) && now["disk_free_percent"].is_number(), "{now}");
    let disks = card["disks"].as_array().unwrap();
    assert!(
        disks.iter().any(|disk| disk["uses"].to_string().contains("state") && disk["bytes"].as_u64() > Some(0)),
        "{card}"
    );

    // The past values survive a restart, with a gap.
    let folder = node.folder();
    node.stop();
    let node = Node::start_in(folder, &[]);
    let series = node.token("viewer").get(&format!("{path}?names=keys")).ok();
    // The keys are gone by now, and a point is the mean of some seconds.
    assert!(series["series"]["keys"].as_array().unwrap().iter().any(|keys| keys.as_f64() > Some(0.0)));
}

/// Every line of the text format must be a comment with a known type, or a sample of the family above it.
#[test]
fn prometheus_reads_every_line() {
    let node = Node::start(&[]);
    node.command(node.port(), &["SET", "k", "v"]);
    node.command(node.port(), &["GET", "k"]);
    let reply = node.client().get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = reply.text();
    assert!(page.contains("redis_db_keys{database=\"default\",db=\"db0\"} 1\n"), "{page}");
    let (mut family, mut kind) = (String::new(), String::new());
    let mut families = std::collections::HashSet::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} twice");
            assert!(!help.is_empty());
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, found) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            kind = found.to_owned();
            assert!(["gauge", "counter", "histogram"].contains(&found), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let checkpoint = if kind == "histogram" {
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap()
            } else {
                name
            };
            assert_eq!(checkpoint, family, "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let value = |series: &str| -> f64 {
        let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("{series} is missing")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("redis_commands_processed_total{database=\"default\"}") >= 2.0);
    let count = value("flintkv_command_duration_seconds_count{database=\"default\"}");
    assert!(count >= 2.0);
    assert_eq!(value("flintkv_command_duration_seconds_bucket{database=\"default\",le=\"+Inf\"}"), count);
    assert!(value("flintkv_tier_read_duration_seconds_count{database=\"default\",tier=\"ram\"}") >= 1.0);

    // Behind a proxy, no client counts as local.
    let far = node.client().with("X-Forwarded-For", "10.0.0.1");
    assert_eq!(far.get("/metrics").error(), error(401, "unauthenticated", ""));
    assert_eq!(node.token("viewer").with("X-Forwarded-For", "10.0.0.1").get("/metrics").status, 200);
}

/// The next message to the webhook, with its headers in small letters. It is answered with the status.
fn hear(hook: &TcpListener, status: &str) -> (String, Value) {
    let (mut stream, _) = hook.accept().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut request = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).unwrap();
        request.extend(&chunk[..read]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(value) = serde_json::from_str::<Value>(body) {
            stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).unwrap();
            return (head.to_ascii_lowercase(), value);
        }
    }
}

#[test]
fn an_alert_fires_is_sent_and_ends() {
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = hook.local_addr().unwrap();
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let wanted = |threshold: f64| {
        json!({"name": "too many keys", "metric": "keys", "scope": "databases", "op": ">", "threshold": threshold,
               "for_s": 1, "severity": "critical"})
    };
    for (change, field) in [
        (json!({"metric": "nosuch"}), "metric"),
        (json!({"metric": "cpu_percent"}), "metric"),
        (json!({"scope": "everywhere"}), "scope"),
        (json!({"name": " "}), "name"),
        (json!({"for_s": 9_999_999}), "for_s"),
    ] {
        let mut body = wanted(5.0);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(operator.post("/api/v1/alerts/rules", body).error(), error(400, "invalid", field));
    }
    let webhook = "/api/v1/alerts/webhook";
    assert_eq!(operator.put(webhook, json!({"url": "ftp://x", "enabled": true})).error(), error(400, "invalid", "url"));
    assert_eq!(operator.put(webhook, json!({"url": "", "enabled": true})).error(), error(400, "invalid", "url"));
    assert_eq!(operator.send("POST", &format!("{webhook}/test"), None).error().0, 400);
    let empty = json!({"url": format!("http://{address}/hook"), "enabled": true, "secret": ""});
    assert_eq!(operator.put(webhook, empty).error(), error(400, "invalid", "secret"));
    let signed = json!({"url": format!("http://{address}/hook"), "enabled": true, "secret": "of both"});
    let set = operator.put(webhook, signed).ok();
    assert_eq!((&set["is_signed"], &set["secret"]), (&json!(true), &json!(null)));

    let hear = |status: &str| hear(&hook, status);
    let tried = std::thread::scope(|scope| {
        let tried = scope.spawn(|| operator.send("POST", &format!("{webhook}/test"), None).ok());
        let (head, body) = hear("200 OK");
        assert_eq!(body["kind"], "test");
        assert!(head.contains("\r\nflintkv-signature: v1=") && head.contains("\r\nflintkv-timestamp: "), "{head}");
        tried.join().unwrap()
    });
    assert_eq!(tried["ok"], true);

    let rule = operator.post("/api/v1/alerts/rules", wanted(5.0)).ok();
    let id = rule["id"].as_str().unwrap();
    // Beside the rules that a node begins with.
    let one = |operator: &Client, of: &str, name: &str| {
        let all = operator.get("/api/v1/alerts").ok()[of].as_array().unwrap().clone();
        all.into_iter().find(|one| one[name] == json!(id)).unwrap_or_default()
    };
    let state = || one(&operator, "states", "rule_id")["state"].as_str().map(str::to_owned);
    until("ok", || (state().as_deref() == Some("ok")).then_some(()));
    (0..10).for_each(|number| drop(node.command(node.port(), &["SET", &format!("k{number}"), "v"])));
    let (first, message) = hear("503 Busy");
    assert_eq!(
        (&message["status"], &message["scope"], &message["rule"]["id"]),
        (&json!("firing"), &json!("database:default"), &json!(id))
    );
    // It is tried again, as the same delivery.
    let (second, again) = hear("200 OK");
    let delivery = |head: &str| head.lines().find(|line| line.starts_with("flintkv-delivery: ")).unwrap().to_owned();
    assert_eq!((again, delivery(&first)), (message.clone(), delivery(&second)));
    assert_eq!(message["value"], 10.0);
    assert_eq!(state().as_deref(), Some("firing"));
    assert!(node.client().get("/metrics").text().contains("flintkv_node_alerts_firing 1\n"));
    let of_rule = json!({"rule_id": id, "scope": "database:default", "note": "I look"});
    assert_eq!(operator.post("/api/v1/alerts/acknowledge", of_rule.clone()).status, 204);
    assert_eq!(one(&operator, "states", "rule_id")["acknowledged"]["note"], "I look");
    let nowhere = json!({"rule_id": id, "scope": "node"});
    assert_eq!(operator.post("/api/v1/alerts/acknowledge", nowhere).error(), error(404, "not_found", ""));
    node.command(node.port(), &["FLUSHALL"]);
    let (_, resolved) = hear("200 OK");
    assert_eq!((&resolved["status"], &resolved["id"]), (&json!("resolved"), &message["id"]));

    // While it is silent, the alert fires and the webhook hears nothing: the next message is of another alert.
    let silences = "/api/v1/alerts/silences";
    let until_ms = wall_ms() + 3_600_000;
    assert_eq!(operator.post(silences, json!({"until_ms": 1})).error(), error(400, "invalid", "until_ms"));
    let silence = operator.post(silences, json!({"rule_id": id, "until_ms": until_ms, "reason": "tests"})).ok();
    (0..10).for_each(|number| drop(node.command(node.port(), &["SET", &format!("k{number}"), "v"])));
    until("it fires", || (state().as_deref() == Some("firing")).then_some(()));
    assert_eq!(one(&operator, "states", "rule_id")["silenced_until_ms"], until_ms);
    assert_eq!(operator.send("DELETE", &format!("{silences}/{}", silence["id"].as_str().unwrap()), None).status, 204);
    let (_, late) = hear("200 OK");
    assert_eq!((&late["status"], &late["rule"]["id"]), (&json!("firing"), &json!(id)));
    node.command(node.port(), &["FLUSHALL"]);
    assert_eq!(hear("200 OK").1["status"], "resolved");
    until("the delivery", || (operator.get(webhook).ok()["last"]["ok"] == json!(true)).then_some(()));
    let history = operator.get("/api/v1/alerts").ok()["history"].clone();
    assert_eq!(history.as_array().unwrap().len(), 4);
    let events = operator.get("/api/v1/events?kind=alert").ok();
    assert_eq!(events[1]["severity"], "critical");

    let path = format!("/api/v1/alerts/rules/{id}");
    assert_eq!(operator.put(&path, wanted(100.0)).ok()["threshold"], 100.0);
    let folder = node.folder();
    node.stop();
    let node = Node::start_in(folder, &[]);
    let operator = node.token("operator");
    assert_eq!(one(&operator, "rules", "id")["threshold"], 100.0);
    assert_eq!(operator.delete(&path).status, 204);
    assert_eq!(operator.delete(&path).error(), error(404, "not_found", ""));
    let viewer = node.token("viewer");
    assert_eq!(viewer.get("/api/v1/alerts").status, 200);
    assert_eq!(viewer.get(webhook).status, 403, "its URL may hold a secret");
}

/// A changed rule began anew beside its alert, which then fired twice, or for ever.
#[test]
fn an_alert_that_fires_goes_on_or_ends_under_a_changed_rule() {
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let url = format!("http://{}/hook", hook.local_addr().unwrap());
    operator.put("/api/v1/alerts/webhook", json!({"url": url, "enabled": true})).ok();
    (0..10).for_each(|number| drop(node.command(node.port(), &["SET", &format!("k{number}"), "v"])));
    let rule = |threshold: f64| {
        json!({"name": "too many keys", "metric": "keys", "scope": "database:default", "op": ">", "threshold": threshold,
               "severity": "critical"})
    };
    let made = operator.post("/api/v1/alerts/rules", rule(5.0)).ok();
    let path = format!("/api/v1/alerts/rules/{}", made["id"].as_str().unwrap());
    let (_, message) = hear(&hook, "200 OK");
    assert_eq!((&message["status"], &message["rule"]["id"]), (&json!("firing"), &made["id"]));
    let state = || {
        let all = operator.get("/api/v1/alerts").ok();
        all["states"].as_array().unwrap().iter().find(|state| state["rule_id"] == made["id"]).cloned()
    };
    let firing = |count: u64| {
        let line = format!("flintkv_node_alerts_firing {count}\n");
        node.client().get("/metrics").text().contains(&line)
    };
    let before = state().unwrap();

    operator.put(&path, rule(6.0)).ok();
    node.command(node.port(), &["SET", "k10", "v"]);
    let after = until("the new rule is compared", || state().filter(|state| state["value"] == 11.0));
    assert_eq!((&after["state"], &after["since_ms"]), (&json!("firing"), &before["since_ms"]));
    assert!(firing(1), "not twice");

    operator.put(&path, rule(100.0)).ok();
    until("the alert ends", || firing(0).then_some(()));
    let (_, resolved) = hear(&hook, "200 OK");
    assert_eq!((&resolved["status"], &resolved["id"]), (&json!("resolved"), &message["id"]));
    assert_eq!(operator.get("/api/v1/alerts").ok()["history"].as_array().unwrap().len(), 2);
}

/// A script keeps the stripe of its key. Whoever counted keys waited for the script.
#[test]
fn metrics_are_answered_while_a_script_runs() {
    let node = Node::start(&[]);
    node.command(node.port(), &["SET", "k", "v"]);
    let script = "redis.call('INCR', KEYS[1]) \
                  local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
                  local from = ms() repeat until ms() > from + 3000 return 'done'";
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (node, is_over) = (&node, &is_over);
        scope.spawn(move || {
            node.command(node.port(), &["EVAL", script, "1", "n"]);
            is_over.store(true, Relaxed);
        });
        let mut served = 0;
        while !is_over.load(Relaxed) {
            let page = node.client().get("/metrics").text();
            // The script's own key is counted as before the script, or after it.
            assert!(page.contains("redis_db_keys{database=\"default\",db=\"db0\"} "), "{page}");
            served += usize::from(!is_over.load(Relaxed));
        }
        // Whoever waited for the script would be served once, before it began.
        assert!(served > 3, "only {served} answers in 3 s");
    });
    let page = node.client().get("/metrics").text();
    assert!(page.contains("redis_db_keys{database=\"default\",db=\"db0\"} 2\n"), "{page}");
}

#[test]
fn replicas_and_their_primary_are_measured() {
    let (node, replica) = (Node::start(&[]), Node::start(&[]));
    node.command(node.port(), &["SET", "k", "v"]);
    let (own, port) = (replica.port(), node.port().to_string());
    replica.command(own, &["REPLICAOF", "127.0.0.1", &port]);
    let of_primary = format!("{{database=\"default\",master_host=\"127.0.0.1\",master_port=\"{port}\"}}");
    until("the replica follows", || {
        let page = replica.client().get("/metrics").text();
        page.contains(&format!("redis_master_link_up{of_primary} 1\n")).then_some(())
    });
    let of_replica =
        format!("{{database=\"default\",slave_ip=\"127.0.0.1\",slave_port=\"{own}\",slave_state=\"online\"}}");
    node.command(node.port(), &["SET", "k", "w"]);
    let page = until("the replica has everything", || {
        let page = node.client().get("/metrics").text();
        page.contains(&format!("flintkv_replica_lag_bytes{of_replica} 0\n")).then_some(page)
    });
    for line in [
        "redis_connected_slaves{database=\"default\"} 1\n",
        "redis_replica_resyncs_full{database=\"default\"} 1\n",
        "redis_repl_backlog_is_active{database=\"default\"} 1\n",
        "redis_repl_backlog_first_byte_offset{database=\"default\"} 1\n",
        &format!("redis_connected_slave_lag_seconds{of_replica} "),
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!page.contains("redis_master_link_up{"), "{page}");
}

#[test]
fn what_keeps_the_dataset_is_measured_and_a_restart_is_told() {
    let node = Node::start(&[("appendonly", "yes")]);
    node.command(node.port(), &["MSET", "a", "1", "b", "2"]);
    let page = node.client().get("/metrics").text();
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{database=\"default\"}}")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(["redis_aof_enabled", "redis_aof_last_write_status", "flintkv_backup_last_status"].map(value), [1.0; 3]);
    assert_eq!(["redis_aof_delayed_fsync", "redis_loading_dump_file", "flintkv_load_failed"].map(value), [0.0; 3]);
    assert_eq!(["flintkv_recovery_late", "flintkv_recovery_estimated_seconds"].map(value), [0.0; 2]);
    assert!(value("flintkv_journal_missing_bytes") >= 0.0);
    assert_eq!(value("flintkv_journal_records_total"), 1.0);
    assert!(value("flintkv_journal_bytes_total") >= value("flintkv_journal_tail_bytes"));
    assert!(value("flintkv_journal_tail_bytes") > 0.0 && value("redis_aof_base_size_bytes") > 0.0);
    let rules = node.token("viewer").get("/api/v1/alerts").ok();
    let rules: Vec<&str> =
        rules["rules"].as_array().unwrap().iter().map(|rule| rule["metric"].as_str().unwrap()).collect();
    for metric in ["journal_failed", "backup_failed", "recovery_late", "journal_missing_bytes"] {
        assert!(rules.contains(&metric), "{rules:?}");
    }

    let folder = node.folder();
    let told = |node: &Node, beginning: &str| {
        until("the event", || {
            let events = node.token("viewer").get("/api/v1/events?kind=database&count=1").ok();
            let message = events[0]["message"].as_str().filter(|text| text.starts_with(beginning))?;
            Some((message.to_owned(), events[0]["severity"].clone()))
        })
    };
    // As kill -9 does.
    drop(node);
    let node = Node::start_in(folder.clone(), &[("appendonly", "yes")]);
    let (message, severity) = told(&node, "restarted after a crash: 2 keys in ");
    assert!(message.contains("journal replayed from 0 to ") && message.ends_with(", 1 records"), "{message}");
    assert_eq!(severity, "warning");
    node.stop();
    let node = Node::start_in(folder, &[("appendonly", "yes")]);
    assert_eq!(told(&node, "restarted: 2 keys in ").1, "info");
}
