//! The planner: what it answers, and what it refuses.

use crate::common::*;
use serde_json::Value;

#[test]
fn a_plan_says_what_data_take() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    let checkpoint = "/api/v1/plan?keys=75000000&value_bytes=500&skew=0&workers=2";
    let answer =
        viewer.get(&format!("{checkpoint}&ram_share=0.5&reads_per_second=1000&ram_price=8&flash_price=1")).ok();
    assert!(answer["node_ram_left_bytes"].is_u64(), "{answer}");
    let plan = &answer["plan"];
    let chosen = &plan["chosen"];
    assert_eq!(
        (chosen["index_bytes"].as_u64(), chosen["hot_values"].as_u64()),
        (Some(1_875_000_000), Some(37_500_000))
    );
    // All keys alike: half of the values answer half of the reads.
    assert!((chosen["hit_ratio"].as_f64().unwrap() - 0.5).abs() < 1e-6, "{chosen}");
    assert!((chosen["flash_reads_per_second"].as_f64().unwrap() - 500.0).abs() < 1e-3, "{chosen}");
    let gigabytes = |name: &str| chosen[name].as_u64().unwrap() as f64 / (1u64 << 30) as f64;
    let price = 8.0 * gigabytes("ram_limit_bytes") + gigabytes("flash_bytes");
    assert!((chosen["price"].as_f64().unwrap() - price).abs() < 1e-6, "{chosen}");
    assert!(plan["all_in_ram_price"].as_f64().unwrap() > price);
    assert!(chosen["directives"][0].as_str().unwrap().starts_with("memory-limit "), "{chosen}");
    let shares: Vec<f64> =
        plan["choices"].as_array().unwrap().iter().map(|one| one["ram_share"].as_f64().unwrap()).collect();
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    // Without a share, the usual hit ratio is aimed at.
    let aimed = &viewer.get(checkpoint).ok()["plan"];
    // Without prices there is none, without a device no latency.
    assert!(aimed["chosen"]["price"].is_null() && aimed["chosen"]["expected"].is_null(), "{aimed}");
    assert!((aimed["chosen"]["ram_share"].as_f64().unwrap() - 0.85).abs() < 1e-6, "{}", aimed["chosen"]);

    for (query, field) in [
        ("value_bytes=500", "keys"),
        ("keys=5", "value_bytes"),
        ("keys=0&value_bytes=500", "keys"),
        ("keys=x&value_bytes=500", "keys"),
        ("keys=5&value_bytes=500&skew=NaN", "skew"),
        ("keys=5&value_bytes=500&compression=2", "compression"),
        ("keys=5&value_bytes=500&hit_ratio=85", "hit_ratio"),
        ("keys=5&value_bytes=500&ram_share=-1", "ram_share"),
        ("keys=5&value_bytes=500&ram_price=-1&flash_price=1", "ram_price"),
        ("keys=5&value_bytes=500&ram_price=1", "flash_price"),
        ("keys=5&value_bytes=500&flash_price=1", "ram_price"),
        ("keys=5&value_bytes=500&flash=x", "flash"),
        ("keys=5&value_bytes=500&flash=%7B%22directories%22%3A%5B%5D%7D", "flash"),
        ("keys=5&value_bytes=500&no_journal=perhaps", "no_journal"),
    ] {
        assert_eq!(viewer.get(&format!("/api/v1/plan?{query}")).error(), error(400, "invalid", field), "{query}");
    }
}

/// With the figures of `prepare-flash` a plan has latency and throughput.
#[test]
fn a_plan_knows_a_device() {
    let node = Node::start(&[]);
    let point = |rate: u32, us: u32| json!({ "reads_per_second": rate, "latency_us": us, "latency_p99_us": 2 * us, "cpu_us_per_read": 5 });
    let device = json!({ "directories": [{ "reads": [point(10_000, 100), point(100_000, 640)], "write_bytes_per_second": 1_000_000_000 }] });
    let numbers = "keys=1000000&value_bytes=500&skew=0&ram_share=0.5&reads_per_second=10000&writes_per_second=1000";
    let coded: String = device.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = node.token("viewer").get(&format!("/api/v1/plan?{numbers}&flash={coded}")).ok();
    let expected = &answer["plan"]["chosen"]["expected"];
    let rounded = |field: &str| expected[field].as_f64().map(f64::round);
    assert_eq!(
        (rounded("flash_read_us"), rounded("added_us"), rounded("reads_per_second_max")),
        (Some(100.0), Some(50.0), Some(120_000.0)),
        "{expected}"
    );
    assert!(answer["plan"]["choices"][0]["expected"]["added_us"].as_f64() > rounded("added_us"), "{answer}");
}

const SURVEY: &str = "/api/v1/survey";
const SECRET: &str = "s3cret-of-the-measured";

#[test]
fn a_running_server_is_measured_by_an_administrator() {
    let node = Node::start(&[]);
    let measured = Node::start(&[("requirepass", SECRET)]);
    let (admin, viewer) = (node.admin(), node.token("viewer"));
    assert_eq!(admin.get(SURVEY).ok(), Value::Null);
    let url = format!("redis://127.0.0.1:{}", measured.port());
    let order = |password: &str| json!({ "url": url, "password": password, "monitor_seconds": 1 });
    let ended = || {
        until("the end of the measurement", || {
            let survey = admin.get(SURVEY).ok();
            (survey["state"] != "running").then_some(survey)
        })
    };
    assert_eq!(admin.post(SURVEY, order(SECRET)).status, 201);
    let empty = ended();
    assert_eq!(empty["state"], "failed");
    assert!(empty["failure"].as_str().unwrap().contains("no keys"), "{empty}");
    assert!(!empty["hint"].as_str().unwrap().is_empty(), "{empty}");
    assert_eq!(admin.get("/api/v1/plan?measured=true").error(), error(400, "invalid", "measured"));

    let mut client = flintkv_tests::Client::connect(measured.port());
    assert_eq!(client.run(&format!("AUTH {SECRET}")), "OK");
    client.set_all((0..300).map(|number| (format!("key:{number:012}"), "abcdefgh".repeat(50))));
    assert_eq!(admin.post(SURVEY, order(SECRET)).status, 201);
    let done = ended();
    assert_eq!(done["state"], "done", "{done}");
    let sample = &done["sample"];
    assert_eq!(
        (&sample["keys"], &sample["sampled"], &sample["key_bytes"], &sample["value_bytes"]),
        (&json!(300), &json!(300), &json!(16), &json!(400)),
        "{done}"
    );
    assert!(sample["compression"].as_f64() < Some(0.2) && done["monitor"]["seconds"].as_f64() >= Some(1.0), "{done}");

    // What was measured is planned; what is said counts before it.
    let plan = &admin.get("/api/v1/plan?measured=true&ram_share=0.3").ok()["plan"];
    assert_eq!((&plan["workload"]["keys"], &plan["workload"]["value_bytes"]), (&json!(300), &json!(400)), "{plan}");
    assert!(plan["sources"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{plan}");
    // Nobody used its keys meanwhile: the hit ratio is a range.
    assert_eq!(plan["workload"]["is_skew_guessed"], true, "{plan}");
    let plan = &admin.get("/api/v1/plan?measured=true&keys=75000000&skew=0&ram_share=0.3").ok()["plan"];
    assert_eq!((&plan["workload"]["keys"], &plan["workload"]["is_skew_guessed"]), (&json!(75_000_000), &json!(false)));

    // Others neither measure nor see what was measured.
    let operator = node.token("operator");
    for client in [&viewer, &operator] {
        assert_eq!(client.get(SURVEY).status, 403);
        assert_eq!(client.post(SURVEY, order(SECRET)).status, 403);
        assert_eq!(client.delete(SURVEY).status, 403);
        assert_eq!(client.get("/api/v1/plan?measured=true").status, 403);
    }

    assert_eq!(admin.post(SURVEY, order("wrong")).status, 201);
    let refused = ended();
    assert!(refused["failure"].as_str().unwrap().contains("WRONGPASS"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("password"), "{refused}");
    // The password is nowhere.
    let audit = std::fs::read_to_string(node.state_dir().join("audit.jsonl")).unwrap();
    assert!(audit.contains(&format!("127.0.0.1:{}", measured.port())) && audit.contains("survey"), "{audit}");
    for text in [audit, node.log(), admin.get(SURVEY).text(), done.to_string()] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn a_measurement_is_refused_or_stopped_with_the_reason() {
    let node = Node::start(&[]);
    let admin = node.admin();
    assert_eq!(admin.delete(SURVEY).status, 404);
    for (order, field) in [
        (json!({ "url": "127.0.0.1:6379" }), "url"),
        (json!({ "url": "http://127.0.0.1" }), "url"),
        (json!({ "url": "redis://:pass@127.0.0.1" }), "url"),
        (json!({ "url": "redis://a\r\nb" }), "url"),
        (json!({ "url": format!("redis://{}", "h".repeat(3000)) }), "url"),
        (json!({ "url": "redis://127.0.0.1", "password": "a\r\nGET / HTTP/1.1" }), "password"),
        (json!({ "url": "redis://127.0.0.1", "user": "somebody" }), "password"),
        (json!({ "url": "redis://127.0.0.1", "monitor_seconds": 301 }), "monitor_seconds"),
        (json!({ "url": "redis://127.0.0.1", "cacert": "/etc/shadow" }), "cacert"),
    ] {
        assert_eq!(admin.post(SURVEY, order.clone()).error(), error(400, "invalid", field), "{order}");
    }
    let ended = |order: Value| {
        assert_eq!(admin.post(SURVEY, order).status, 201);
        until("the end of the measurement", || {
            let survey = admin.get(SURVEY).ok();
            (survey["state"] != "running").then_some(survey)
        })
    };
    // Addresses where clouds tell a machine its secrets, however they are written.
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]", "224.0.0.1"] {
        let survey = ended(json!({ "url": format!("redis://{host}:80") }));
        assert!(survey["failure"].as_str().unwrap().contains("cannot be the address of a server"), "{survey}");
        assert!(!survey["hint"].as_str().unwrap().is_empty(), "{survey}");
    }
    // A server of another kind: what it says is not shown.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"220 the secret greeting\r\n").unwrap();
        other
    });
    let survey = ended(json!({ "url": url }));
    let failure = survey["failure"].as_str().unwrap();
    assert!(failure.contains("not a Redis server") && !failure.contains("secret"), "{survey}");
    // One that answers nothing: it is stopped, and its thread hinders nobody.
    let silent = answering.join().unwrap();
    assert_eq!(admin.post(SURVEY, json!({ "url": url })).status, 201);
    assert_eq!(admin.post(SURVEY, json!({ "url": url })).error(), error(409, "busy", ""));
    assert_eq!(admin.delete(SURVEY).status, 204);
    assert_eq!(admin.get(SURVEY).ok()["state"], "stopped");
    let survey = ended(json!({ "url": "redis://[fe80::1]" }));
    assert_eq!(survey["state"], "failed");
    drop(silent);
}
