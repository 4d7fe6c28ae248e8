//! Keys and values, edits, the command line, the slow log and clients.

use crate::common::*;
use serde_json::Value;

const KEY: &str = "/api/v1/databases/default/key";

#[test]
fn values_of_every_type_are_set_shown_and_changed() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let put =
        |key: &str, kind: &str, value: Value| operator.put(KEY, json!({"key": key, "type": kind, "value": value})).ok();
    let shown = put("s", "string", json!("text"));
    assert_eq!(
        (&shown["type"], &shown["value"], &shown["length"], &shown["ttl_ms"]),
        (&json!("string"), &json!("text"), &json!(4), &json!(null))
    );
    assert_eq!((&shown["encoding"], &shown["tier"]), (&json!("embstr"), &json!("ram")));
    assert!(shown["bytes"].as_i64().unwrap() > 4);
    assert_eq!(put("l", "list", json!(["a", "b", "c"]))["value"], json!(["a", "b", "c"]));
    assert_eq!(put("h", "hash", json!([["f", "1"], ["g", "2"]]))["value"], json!([["f", "1"], ["g", "2"]]));
    assert_eq!(put("z", "zset", json!([["m", 1.5], ["n", "-inf"]]))["value"], json!([["n", "-inf"], ["m", 1.5]]));
    assert_eq!(put("t", "set", json!(["x"]))["value"], json!(["x"]));
    assert_eq!(put("x", "stream", json!([["1-1", [["f", "v"]]]]))["value"], json!([["1-1", [["f", "v"]]]]));
    // The new value replaces any type, and bytes that are not UTF-8 travel as base64.
    let binary = json!({"base64": "/wA="});
    let shown = operator
        .put(KEY, json!({"key": binary, "type": "hash", "value": [[binary, binary]], "ttl_ms": 60_000, "db": 3}))
        .ok();
    assert_eq!((&shown["key"], &shown["value"]), (&binary, &json!([[binary, binary]])));
    assert!((1..=60_000).contains(&shown["ttl_ms"].as_i64().unwrap()));
    assert_eq!(operator.get(&format!("{KEY}?key64=_wA&db=3")).ok()["type"], "hash");
    assert_eq!(put("h", "string", json!("now"))["type"], "string");
    put("h", "hash", json!([["f", "1"]]));

    let patch = |key: &str, set: Value| operator.patch(KEY, json!({"key": key, "set": set}));
    assert_eq!(patch("h", json!({"put": [["f", "9"], ["i", "3"]]})).ok()["value"], json!([["f", "9"], ["i", "3"]]));
    assert_eq!(patch("h", json!({"remove": ["f"]})).ok()["value"], json!([["i", "3"]]));
    assert_eq!(patch("l", json!({"put": [[0, "A"], [3, "d"]], "remove": [1]})).ok()["value"], json!(["A", "c", "d"]));
    assert_eq!(patch("z", json!({"put": [["m", 7]], "remove": ["n"]})).ok()["value"], json!([["m", 7.0]]));
    assert_eq!(patch("t", json!({"put": ["y"], "remove": ["x"]})).ok()["value"], json!(["y"]));
    assert_eq!(
        patch("x", json!({"put": [["2-0", [["a", "b"]]]], "remove": ["1-1"]})).ok()["value"],
        json!([["2-0", [["a", "b"]]]])
    );
    assert!(operator.patch(KEY, json!({"key": "s", "ttl_ms": 5000})).ok()["ttl_ms"].is_i64());
    assert!(operator.patch(KEY, json!({"key": "s", "ttl_ms": null})).ok()["ttl_ms"].is_null());

    // A malformed request changes nothing.
    for (set, field) in [
        (json!({"put": [[9, "x"]]}), "set.put"),
        (json!({"put": ["x"]}), "set.put"),
        (json!({"remove": [5]}), "set.remove"),
        (json!({"remove": ["x"]}), "set.remove"),
    ] {
        assert_eq!(patch("l", set.clone()).error(), error(400, "invalid", field), "{set}");
    }
    assert_eq!(patch("s", json!({"put": ["x"]})).error(), error(422, "unsupported", ""));
    assert_eq!(patch("nosuch", json!({"put": ["x"]})).error(), error(404, "not_found", ""));
    assert_eq!(operator.patch(KEY, json!({"key": "s"})).error(), error(400, "invalid", ""));
    let set = |kind: &str, value: Value| operator.put(KEY, json!({"key": "l", "type": kind, "value": value})).error();
    assert_eq!(set("list", json!([])), error(400, "invalid", "value"));
    assert_eq!(set("list", json!("x")), error(400, "invalid", "value"));
    assert_eq!(set("zset", json!([["m", "nan"]])), error(400, "invalid", "value"));
    assert_eq!(set("module", json!("x")), error(400, "invalid", "type"));
    assert_eq!(
        operator.put(KEY, json!({"key": "l", "type": "string", "value": "x", "db": 99})).error(),
        error(400, "invalid", "db")
    );
    assert_eq!(
        operator.put(KEY, json!({"key": "l", "type": "string", "value": "x", "ttl_ms": 0})).error(),
        error(400, "invalid", "ttl_ms")
    );
    assert_eq!(operator.get(&format!("{KEY}?key=l")).ok()["value"], json!(["A", "c", "d"]));

    assert_eq!(operator.delete(&format!("{KEY}?key=l")).status, 204);
    assert_eq!(operator.delete(&format!("{KEY}?key=l")).error(), error(404, "not_found", ""));
    assert_eq!(operator.get(KEY).error(), error(400, "invalid", "key"));
    assert_eq!(operator.get(&format!("{KEY}?key64=*")).error(), error(400, "invalid", "key64"));
    let viewer = node.token("viewer");
    assert_eq!(viewer.get(&format!("{KEY}?key=s")).status, 200);
    assert_eq!(viewer.delete(&format!("{KEY}?key=s")).status, 403);
}

#[test]
fn large_values_and_many_keys_come_in_pages() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let members: Vec<String> = (0..2500).map(|number| format!("member {number:05}")).collect();
    for (key, kind) in [("l", "list"), ("t", "set")] {
        operator.put(KEY, json!({"key": key, "type": kind, "value": members})).ok();
    }
    let scored: Vec<Value> = members.iter().enumerate().map(|(at, member)| json!([member, at])).collect();
    operator.put(KEY, json!({"key": "z", "type": "zset", "value": scored})).ok();
    let entries: Vec<Value> = (1..=250).map(|number| json!([format!("{number}-0"), [["f", "v"]]])).collect();
    operator.put(KEY, json!({"key": "x", "type": "stream", "value": entries})).ok();
    operator.put(KEY, json!({"key": "s", "type": "string", "value": "y".repeat(150_000)})).ok();
    for (key, length) in [("l", 2500), ("t", 2500), ("z", 2500), ("x", 250), ("s", 3)] {
        let (mut offset, mut found) = (String::new(), Vec::new());
        loop {
            let page = operator.get(&format!("{KEY}?key={key}&count=1000&offset={offset}")).ok();
            match &page["value"] {
                Value::Array(values) => found.extend(values.iter().map(ToString::to_string)),
                value => found.push(value.as_str().unwrap().len().to_string()),
            }
            match page["next"].as_str() {
                Some(next) => offset = next.to_owned(),
                None => break,
            }
        }
        if key == "s" {
            assert_eq!(found, ["65536", "65536", "18928"]);
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), if key == "s" { 2 } else { length }, "{key}");
    }
    for offset in ["x", "-1", "1-1;"] {
        for key in ["l", "x"] {
            if (key, offset) != ("x", "-1") {
                let reply = operator.get(&format!("{KEY}?key={key}&offset={offset}"));
                assert_eq!(reply.error(), error(400, "invalid", "offset"), "{key} {offset}");
            }
        }
    }

    for number in 0..30 {
        operator.put(KEY, json!({"key": format!("user:{number}"), "type": "string", "value": "v"})).ok();
    }
    let keys = |query: &str| {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let page = operator.get(&format!("/api/v1/databases/default/keys?cursor={cursor}&{query}")).ok();
            found.extend(page["keys"].as_array().unwrap().iter().cloned());
            cursor = page["cursor"].as_str().unwrap().to_owned();
            if cursor == "0" {
                return found;
            }
        }
    };
    assert_eq!(keys("count=7").len(), 35);
    assert_eq!(keys("pattern=user:*&count=10").len(), 30);
    let streams = keys("type=stream");
    assert_eq!((streams.len(), &streams[0]["key"], &streams[0]["tier"]), (1, &json!("x"), &json!("ram")));
    assert!(streams[0]["bytes"].as_i64().unwrap() > 100);
    assert_eq!(operator.get("/api/v1/databases/default/keys?type=module").error(), error(400, "invalid", "type"));
    assert_eq!(operator.get("/api/v1/databases/default/keys?cursor=x").error(), error(400, "invalid", "cursor"));
}

#[test]
fn the_command_line_answers_in_types_with_the_roles_rights() {
    let node = Node::start(&[("slowlog-log-slower-than", "0")]);
    let (viewer, operator, admin) = (node.token("viewer"), node.token("operator"), node.token("admin"));
    let run = |client: &Client, line: &str| client.post("/api/v1/databases/default/command", json!({"line": line}));
    assert_eq!(run(&operator, "SET k 'a b'").ok()["reply"], json!({"type": "status", "value": "OK"}));
    assert_eq!(run(&viewer, "GET k").ok()["reply"], json!({"type": "string", "value": "a b"}));
    assert_eq!(run(&viewer, "GET nosuch").ok()["reply"], json!({"type": "null"}));
    assert_eq!(run(&operator, "HSET h f v").ok()["reply"], json!({"type": "integer", "value": 1}));
    let map = json!({"type": "map", "value": [[{"type": "string", "value": "f"}, {"type": "string", "value": "v"}]]});
    assert_eq!(run(&viewer, "HGETALL h").ok()["reply"], map);
    assert_eq!(run(&viewer, "GET h").ok()["reply"]["type"], "error");
    let args = json!({"args": ["SET", "b", {"base64": "/w=="}], "db": 2});
    assert_eq!(operator.post("/api/v1/databases/default/command", args).ok()["db"], 2);
    assert_eq!(run(&operator, "select 5").ok()["db"], 5);
    assert_eq!(run(&operator, "select 99").ok()["db"], 0);

    assert_eq!(run(&viewer, "SET k v").error(), error(403, "forbidden", ""));
    assert_eq!(run(&operator, "CONFIG SET maxclients 100").error(), error(403, "forbidden", ""));
    assert_eq!(run(&operator, "SHUTDOWN").error(), error(403, "forbidden", ""));
    assert_eq!(run(&admin, "CONFIG SET maxclients 100").ok()["reply"]["value"], "OK");
    for line in ["BLPOP k 0", "SUBSCRIBE c", "MONITOR", "MULTI", "CLIENT REPLY OFF"] {
        assert_eq!(run(&admin, line).error(), error(422, "unsupported", ""), "{line}");
    }
    assert_eq!(run(&viewer, "GET 'k").error(), error(400, "invalid", "line"));
    assert_eq!(run(&viewer, "").error(), error(400, "invalid", "args"));
    let both = json!({"line": "PING", "args": ["PING"]});
    assert_eq!(viewer.post("/api/v1/databases/default/command", both).error(), error(400, "invalid", "args"));
    assert_eq!(
        viewer.post("/api/v1/databases/nosuch/command", json!({"line": "PING"})).error(),
        error(404, "not_found", "")
    );
    let commands = viewer.get("/api/v1/commands").ok();
    assert!(commands.as_array().unwrap().iter().any(|command| command["name"] == "CONFIG GET"));

    let slow = viewer.get("/api/v1/databases/default/slowlog?count=1000").ok();
    let entry = slow.as_array().unwrap().iter().find(|entry| entry["args"] == json!(["SET", "k", "a b"])).unwrap();
    assert!(entry["at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(viewer.delete("/api/v1/databases/default/slowlog").status, 403);
    assert_eq!(operator.delete("/api/v1/databases/default/slowlog").status, 204);
}

#[test]
fn clients_are_listed_and_killed() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let stream = std::net::TcpStream::connect(("127.0.0.1", node.port())).unwrap();
    let address = stream.local_addr().unwrap().to_string();
    let find = || {
        let clients = operator.get("/api/v1/databases/default/clients").ok();
        clients.as_array().unwrap().iter().find(|client| client["addr"] == json!(address)).cloned()
    };
    let client = until("the client", find);
    assert_eq!((&client["db"], &client["resp"], &client["user"]), (&json!(0), &json!(2), &json!("default")));
    let path = format!("/api/v1/databases/default/clients/{}", client["id"]);
    assert_eq!(node.token("viewer").delete(&path).status, 403);
    assert_eq!(operator.delete(&path).status, 204);
    until("the client's end", || find().is_none().then_some(()));
    assert_eq!(operator.delete(&path).error(), error(404, "not_found", ""));
    assert_eq!(operator.delete("/api/v1/databases/default/clients/x").error(), error(400, "invalid", "id"));
}

#[test]
fn the_configuration_is_a_table_that_administrators_change() {
    let node = Node::start(&[]);
    let (viewer, admin) = (node.token("viewer"), node.token("admin"));
    let path = "/api/v1/databases/default/config";
    let row =
        |table: &Value, name: &str| table.as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap();
    let table = viewer.get(path).ok();
    let (maxclients, secret, inert) =
        (row(&table, "maxclients"), row(&table, "requirepass"), row(&table, "aof-timestamp-enabled"));
    assert_eq!(
        (&maxclients["value"], &maxclients["changed"], &maxclients["change"]),
        (&json!("10000"), &json!(false), &json!("live"))
    );
    assert_eq!((&secret["value"], &secret["secret"]), (&json!(null), &json!(true)));
    assert!(inert["effect"].is_string());
    assert_eq!(row(&table, "databases")["change"], "start");
    let table = admin.patch(path, json!({"maxclients": "1000", "timeout": "60"})).ok();
    assert_eq!(
        (&row(&table, "maxclients")["value"], &row(&table, "maxclients")["changed"]),
        (&json!("1000"), &json!(true))
    );
    assert_eq!(
        admin.patch(path, json!({"maxclients": "2000", "timeout": "x"})).error(),
        error(400, "invalid", "timeout")
    );
    assert_eq!(admin.patch(path, json!({"databases": "1"})).error(), error(400, "invalid", "databases"));
    assert_eq!(admin.patch(path, json!({"nosuch": "1"})).error(), error(400, "invalid", "nosuch"));
    assert_eq!(admin.patch(path, json!({})).error(), error(400, "invalid", ""));
    assert_eq!(row(&viewer.get(path).ok(), "maxclients")["value"], "1000");
    assert_eq!(node.token("operator").patch(path, json!({"maxclients": "1"})).status, 403);
    assert_eq!(admin.send("POST", &format!("{path}/rewrite"), None).error().0, 400, "there is no file");
}

/// Work on many keys: a preview changes nothing, a deletion takes what it named, an export brings back what it had.
#[test]
fn keys_are_deleted_exported_and_imported_by_pattern() {
    let node = Node::start(&[]);
    let operator = node.token("operator");
    let all = "/api/v1/databases/default/keys";
    for number in 0..250 {
        node.command(node.port(), &["SET", &format!("cart:{number}"), "v", "EX", "5000"]);
    }
    node.command(node.port(), &["HSET", "user:1", "name", "Ada", "mail", "ada@example.org"]);
    node.command(node.port(), &["ZADD", "board", "1.5", "ada", "-inf", "grace"]);
    // All slices of a route.
    let slices = |one: &dyn Fn(&str) -> Value| {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let slice = one(&cursor);
            cursor = slice["cursor"].as_str().unwrap().to_owned();
            found.push(slice);
            if cursor == "0" {
                return found;
            }
        }
    };
    let delete = |pattern: &str, preview: bool| {
        let body = |cursor: &str| json!({"pattern": pattern, "cursor": cursor, "preview": preview});
        let all = slices(&|cursor| operator.post(&format!("{all}/delete"), body(cursor)).ok());
        let sum = |name: &str| all.iter().map(|slice| slice[name].as_u64().unwrap()).sum::<u64>();
        (sum("matched"), sum("deleted"))
    };
    let exported = slices(&|cursor| operator.get(&format!("{all}/export?cursor={cursor}")).ok());
    let keys: Vec<Value> = exported.iter().flat_map(|slice| slice["keys"].as_array().unwrap().clone()).collect();
    assert_eq!(keys.len(), 252);
    assert_eq!(delete("cart:*", true), (250, 0));
    assert_eq!(node.command(node.port(), &["DBSIZE"]), resp::client::Value::Int(252), "a preview");
    assert_eq!(delete("cart:*", false), (250, 250));
    assert_eq!(node.command(node.port(), &["DBSIZE"]), resp::client::Value::Int(2));
    let import =
        |replace: bool| operator.post(&format!("{all}/import"), json!({"keys": keys, "replace": replace})).ok();
    let done = import(false);
    assert_eq!((&done["restored"], &done["kept"], &done["failed"]), (&json!(250), &json!(2), &json!([])));
    let ttl = operator.get("/api/v1/databases/default/key?key=cart:7").ok()["ttl_ms"].as_u64().unwrap();
    assert!((1..=5_000_000).contains(&ttl), "{ttl}");
    assert_eq!(import(true)["restored"], json!(252));
    assert_eq!(
        operator.get("/api/v1/databases/default/key?key=board").ok()["value"],
        json!([["grace", "-inf"], ["ada", 1.5]])
    );
    let broken = json!({"keys": [{"key": "x", "ttl_ms": null, "dump": "no dump"}]});
    let done = operator.post(&format!("{all}/import"), broken).ok();
    assert_eq!((&done["restored"], &done["failed"][0]["key"]), (&json!(0), &json!("x")));

    // Under the ACL of the role, and in the audit log.
    let viewer = node.token("viewer");
    let wanted = json!({"pattern": "*", "cursor": "0"});
    assert_eq!(viewer.post(&format!("{all}/delete"), wanted).status, 403);
    assert_eq!(operator.post(&format!("{all}/delete"), json!({"pattern": "", "cursor": "0"})).error().2, "pattern");
    let audit = node.token("admin").get("/api/v1/audit?count=1000").ok();
    let of = |action: &str| {
        let lines = audit.as_array().unwrap().iter().filter(|line| line["action"] == action);
        lines.map(|line| (line["detail"].as_str().unwrap().to_owned(), line["ok"] == true)).collect::<Vec<_>>()
    };
    let deleted = of("keys.delete");
    assert!(deleted.iter().any(|(detail, ok)| detail.starts_with("db 0, pattern \"cart:*\": ") && *ok), "{deleted:?}");
    assert!(deleted.iter().filter(|(_, ok)| *ok).all(|(detail, _)| !detail.contains(": 0 keys")), "{deleted:?}");
    assert_eq!(deleted.iter().filter(|(_, ok)| !ok).count(), 2, "the viewer's and the empty pattern");
    assert_eq!(of("keys.import").len(), 3);
}

#[test]
fn members_are_searched() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    for number in 0..3000 {
        let member = format!("m{number}");
        node.command(node.port(), &["HSET", "h", &member, "v"]);
        node.command(node.port(), &["SADD", "s", &member]);
        node.command(node.port(), &["ZADD", "z", &number.to_string(), &member]);
    }
    node.command(node.port(), &["RPUSH", "l", "a"]);
    let find = |key: &str, pattern: &str| {
        let (mut offset, mut found) = (String::new(), Vec::new());
        loop {
            let page = viewer.get(&format!("{KEY}?key={key}&match={pattern}&offset={offset}")).ok();
            assert_eq!(page["length"], json!(3000));
            found.extend(page["value"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => offset = next.to_owned(),
                None => return found,
            }
        }
    };
    assert_eq!(find("h", "m2999"), [json!(["m2999", "v"])]);
    assert_eq!(find("s", "m2999"), [json!("m2999")]);
    assert_eq!(find("z", "m2999"), [json!(["m2999", 2999.0])]);
    assert_eq!(find("h", "m29??").len(), 100);
    assert!(find("z", "nothing*").is_empty());
    node.command(node.port(), &["SET", "text", "a"]);
    assert_eq!(viewer.get(&format!("{KEY}?key=text&match=a")).error(), error(400, "invalid", "match"));
}

/// Lists by their elements and streams by fields, values and ids, however long: each request does a bounded part.
#[test]
fn elements_and_entries_are_searched() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    let fill = |script: &str| node.command(node.port(), &["EVAL", script, "0"]);
    fill("for at = 0, 4999 do redis.call('RPUSH', 'l', 'element ' .. at) end");
    fill("for at = 1, 3000 do redis.call('XADD', 'x', at .. '-1', 'number', 'n' .. at, 'even' .. at % 2, 'v') end");
    // Elements so long that a step has one of them.
    fill("for at = 0, 5 do redis.call('RPUSH', 'long', string.rep('x', 1000000) .. at) end");
    let find = |key: &str, query: &str| {
        let (mut offset, mut found, mut looked_at, mut pages) = (String::new(), Vec::new(), 0, 0);
        loop {
            let page = viewer.get(&format!("{KEY}?key={key}&{query}&offset={offset}")).ok();
            found.extend(page["value"].as_array().unwrap().clone());
            looked_at += page["looked_at"].as_u64().unwrap();
            pages += 1;
            match page["next"].as_str() {
                Some(next) => offset = next.to_owned(),
                None => return (found, looked_at, pages),
            }
        }
    };
    let (found, looked_at, _) = find("l", "match=*4321");
    assert_eq!((found, looked_at), (vec![json!([4321, "element 4321"])], 5000));
    let (found, looked_at, pages) = find("l", "match=element%20*&count=600");
    assert_eq!((found.len(), &found[4999], looked_at), (5000, &json!([4999, "element 4999"]), 5000));
    assert!(pages >= 5, "a page ends when it has enough");
    assert_eq!(find("l", "match=nothing").1, 5000);
    let (found, looked_at, pages) = find("long", "match=x*");
    assert_eq!((found.len(), looked_at), (6, 6));
    assert!(pages >= 2, "a page ends when it has many bytes");
    // Members of very different sizes: a step of the average number of them would be a reply of 18 MB, more than the console takes.
    fill("for at = 1, 10000 do redis.call('RPUSH', 'mixed', at) end redis.call('HSET', 'fields', 'small', 1)");
    let large = "local text = string.rep('x', 1000000) for at = 0, 17 do redis.call('RPUSH', 'mixed', text .. at) \
                 redis.call('HSET', 'fields', 'large' .. at, text) end";
    fill(large);
    let (found, looked_at, _) = find("mixed", "match=x*9");
    assert_eq!((found.len(), looked_at), (1, 10_018));
    assert_eq!(find("fields", "match=large*").0.len(), 18);

    let ids =
        |query: &str| find("x", query).0.iter().map(|entry| entry[0].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids("match=n2999"), ["2999-1"]);
    assert_eq!(ids("match=even0").len(), 1500, "fields too");
    assert_eq!(ids("match=even0&from=2990"), ["2990-1", "2992-1", "2994-1", "2996-1", "2998-1", "3000-1"]);
    assert_eq!(ids("match=even1&from=11-1&to=15-1"), ["11-1", "13-1", "15-1"]);
    assert_eq!(ids("from=2998-1"), ["2998-1", "2999-1", "3000-1"]);
    assert_eq!(ids("to=2&count=1"), ["1-1", "2-1"]);
    assert_eq!(find("x", "match=nothing").1, 3000);
    for (query, field) in
        [("key=x&from=a", "from"), ("key=x&to=1-", "to"), ("key=l&from=1", "from"), ("key=x&offset=-", "offset")]
    {
        assert_eq!(viewer.get(&format!("{KEY}?{query}")).error(), error(400, "invalid", field), "{query}");
    }
}

/// An analysis tells patterns, types, sizes and times to live, and moves nothing between the tiers.
#[test]
fn an_analysis_finds_patterns_and_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let flash = folder.path().to_str().unwrap().to_owned();
    let node = Node::start(&[
        ("flash-path", &flash),
        ("memory-limit", "200mb"),
        ("ram-limit", "60mb"),
        ("debug-tier-mode", "cold"),
    ]);
    let operator = node.token("operator");
    let path = "/api/v1/databases/default/analysis";
    assert_eq!(operator.get(path).ok(), Value::Null);
    for number in 0..300 {
        node.command(node.port(), &["SET", &format!("session:{number}"), &"v".repeat(300)]);
    }
    node.command(node.port(), &["CONFIG", "SET", "debug-tier-mode", "off"]);
    for number in 0..100 {
        node.command(node.port(), &["SET", &format!("user:{number}:cart"), "v", "EX", "500"]);
    }
    node.command(node.port(), &["SET", "large", &"v".repeat(100_000)]);
    until("values on flash", || {
        let now = operator.get("/api/v1/databases/default").ok()["now"].clone();
        (now["values_in_flash"].as_f64()? >= 300.0 && now["keys"].as_f64()? >= 401.0).then_some(())
    });
    let reads = || {
        let resp::client::Value::Bulk(info) = node.command(node.port(), &["INFO", "tiering"]) else { panic!("a text") };
        let info = String::from_utf8(info).unwrap();
        let line = |name: &str| info.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        (line("flash_kv_reads:"), line("values_in_flash:"))
    };
    let before = reads();
    operator.send("POST", path, None).ok();
    let done = until("the end", || {
        let analysis = operator.get(path).ok();
        assert_ne!(analysis["state"], "failed", "{analysis}");
        (analysis["state"] == "done").then_some(analysis)
    });
    assert_eq!(reads(), before, "no value was read or moved");
    assert_eq!((&done["keys_done"], &done["keys_total"]), (&json!(401), &json!(401)));
    let group = |list: &str, name: &str| {
        let found = done[list].as_array().unwrap().iter().find(|group| group["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {list}: {}", done[list])).clone()
    };
    let sessions = group("patterns", "session:*");
    assert_eq!((&sessions["keys"], &sessions["keys_on_flash"]), (&json!(300), &json!(300)));
    assert!(sessions["flash_bytes"].as_u64().unwrap() > 0);
    assert_eq!(group("patterns", "user:*:cart")["keys_in_ram"], json!(100));
    assert_eq!(group("prefixes", "user:*")["keys"], json!(100));
    assert_eq!(group("types", "string")["keys"], json!(401));
    assert_eq!(group("ttls", "below an hour")["keys"], json!(100));
    assert_eq!(group("ttls", "no expiry")["keys"], json!(1));
    assert_eq!(done["largest"][0]["key"], "large");
    assert_eq!(node.token("viewer").send("POST", path, None).status, 403);
    assert_eq!(operator.delete(path).status, 204);
}

#[test]
fn the_latency_monitor_is_read_switched_on_and_reset() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let (viewer, operator, admin) = (node.token("viewer"), node.token("operator"), node.token("admin"));
    let path = "/api/v1/databases/default/latency";
    assert_eq!(viewer.get(path).ok(), json!({"threshold_ms": 0, "events": [], "report": ""}));
    assert!(operator.get(path).ok()["report"].as_str().unwrap().contains("CONFIG SET latency-monitor-threshold"));
    let threshold = json!({"latency-monitor-threshold": "20"});
    assert_eq!(operator.patch("/api/v1/databases/default/config", threshold.clone()).status, 403);
    admin.patch("/api/v1/databases/default/config", threshold).ok();
    node.command(node.port(), &["DEBUG", "SLEEP", "0.03"]);
    let history = operator.get(path).ok();
    assert_eq!(history["threshold_ms"], 20);
    let events = history["events"].as_array().unwrap();
    let event = events.iter().find(|event| event["name"] == "command").unwrap();
    let last = event["samples"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["at_ms"], &last["took_ms"]), (&event["at_ms"], &event["last_ms"]));
    assert!(event["worst_ms"].as_i64().unwrap() >= 30 && event["at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert!(history["report"].as_str().unwrap().contains("command"));

    assert_eq!(viewer.delete(path).status, 403);
    let command = |history: &serde_json::Value| {
        history["events"].as_array().unwrap().iter().filter(|event| event["name"] == "command").count()
    };
    assert_eq!(operator.delete(&format!("{path}?event=nosuch")).status, 204);
    assert_eq!(command(&viewer.get(path).ok()), 1);
    assert_eq!(operator.delete(&format!("{path}?event=command")).status, 204);
    assert_eq!(command(&viewer.get(path).ok()), 0);
}
