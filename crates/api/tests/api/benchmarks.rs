//! Benchmarks: one at a time, with progress and a report.

use crate::common::*;

#[test]
fn a_benchmark_from_start_to_report_and_one_that_is_stopped() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let scenarios = operator.get("/api/v1/scenarios").ok();
    let names: Vec<&str> = scenarios.as_array().unwrap().iter().map(|card| card["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["rof", "rof-replicated", "keydb-flash", "gemini-rta"]);
    let path = "/api/v1/benchmarks";
    let wanted = |scale: &str, seconds: u64| json!({"database": "default", "scenario": "rof", "scale": scale, "seconds": seconds});
    for (change, status, field) in [
        (json!({"scenario": "nosuch"}), 400, "scenario"),
        (json!({"scale": "0"}), 400, "scale"),
        (json!({"scale": "--help"}), 400, "scale"),
        (json!({"scale": "1/100000000"}), 400, "scale"),
        (json!({"seconds": 0}), 400, "seconds"),
        (json!({"database": "nosuch"}), 404, ""),
    ] {
        let mut body = wanted("1/100000", 1);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (found, _, blamed) = operator.post(path, body).error();
        assert_eq!((found, blamed.as_str()), (status, field), "{change}");
    }
    assert_eq!(node.token("viewer").post(path, wanted("1/100000", 1)).status, 403);

    let made = operator.post(path, wanted("1/100000", 1)).ok();
    let one = format!("{path}/{}", made["id"].as_str().unwrap());
    assert_eq!(operator.post(path, wanted("1/100000", 1)).error(), error(409, "busy", ""));
    let done = until("the report", || {
        let now = operator.get(&one).ok();
        (now["state"] != "running").then_some(now)
    });
    assert_eq!(done["state"], "done", "{done:#}");
    let rows = done["report"]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "throughput, ops/s" && row["published"] == "160,000"), "{rows:?}");
    assert!(
        done["lines"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().starts_with("populate")),
        "{done:#}"
    );

    let made = operator.post(path, wanted("1/100000", 600)).ok();
    let two = format!("{path}/{}", made["id"].as_str().unwrap());
    until("its progress", || (operator.get(&two).ok()["phase"] != "starting").then_some(()));
    assert_eq!(operator.delete(&two).status, 204);
    until("its end", || (operator.get(&two).ok()["state"] == "cancelled").then_some(()));
    until("the event", || {
        let events = operator.get("/api/v1/events?kind=benchmark").ok();
        events
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["message"].as_str().unwrap().ends_with("was stopped"))
            .then_some(())
    });
    assert_eq!(operator.delete(&two).status, 204, "now it is forgotten");
    assert_eq!(operator.get(&two).error(), error(404, "not_found", ""));
    assert_eq!(operator.get(path).ok().as_array().unwrap().len(), 1);
}
