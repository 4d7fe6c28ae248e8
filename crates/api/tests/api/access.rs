//! Who may do what, and how every route handles malformed requests.

use crate::common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

const ROLES: [(Option<api::Role>, &str); 4] = [
    (None, ""),
    (Some(api::Role::Viewer), "viewer"),
    (Some(api::Role::Operator), "operator"),
    (Some(api::Role::Admin), "admin"),
];

fn filled(path: &str) -> String {
    path.replace("{name}", "nosuch").replace("{id}", "nosuch")
}

/// The document lists every route, and every route replies as its row says: not without a login, not for a lower role,
/// and with different errors for malformed input and for a missing object. All errors have the same format.
#[test]
fn every_route_with_every_role_and_bad_input() {
    let node = Node::start(&[]);
    let document = node.client().get("/api/v1/openapi.json").ok();
    let clients: BTreeMap<&str, Client> = [
        ("", node.client()),
        ("viewer", node.token("viewer")),
        ("operator", node.token("operator")),
        ("admin", node.token("admin")),
    ]
    .into();
    let mut documented = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        documented += item.as_object().unwrap().len();
        assert!(
            item.as_object().unwrap().values().all(|operation| operation["responses"]["default"].is_object()),
            "{path}"
        );
    }
    assert_eq!(documented, api::routes().count());

    for (method, path, needed) in api::routes() {
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(operation["summary"].is_string(), "{method} {path} is not documented");
        let takes_body = operation["requestBody"].is_object();
        let asked = filled(path);
        for (role, name) in ROLES {
            // Routes that end the test's own sessions and tokens are tested elsewhere.
            let client = &clients[name];
            // No route accepts an array as its body.
            let reply = client.try_send(method, &asked, takes_body.then_some(b"[7]")).unwrap();
            let place = format!("{method} {path} as '{name}': {} {}", reply.status, reply.text());
            match (needed, role) {
                (Some(_), None) => assert_eq!(reply.error().0, 401, "{place}"),
                (Some(needed), Some(role)) if role < needed => assert_eq!(reply.error().0, 403, "{place}"),
                _ if takes_body => assert_eq!(reply.error(), error(400, "invalid", ""), "{place}"),
                _ => {
                    // This node is a member of no cluster.
                    let is_of_cluster =
                        path.contains("/cluster") || path.ends_with("/shards") || path.ends_with("/operations");
                    let is_expected = matches!(reply.status, 200 | 204 | 400 | 404);
                    assert!(is_expected || is_of_cluster && reply.status == 422, "{place}");
                    if reply.status >= 400 {
                        reply.error();
                    }
                }
            }
            for (name, value) in
                [("x-content-type-options", "nosniff"), ("cache-control", "no-store"), ("x-frame-options", "DENY")]
            {
                assert_eq!(reply.header(name), Some(value), "{place}");
            }
        }
        let admin = &clients["admin"];
        let reply = admin.try_send(method, &format!("{asked}?nosuch=1"), None).unwrap();
        assert_eq!(reply.error(), error(400, "invalid", "nosuch"), "{method} {path}");
        if takes_body {
            for body in [&b"{"[..], b"", b"{\"nosuch\":1}", b"\xff"] {
                let reply = admin.try_send(method, &asked, Some(body)).unwrap();
                let (status, code, _) = reply.error();
                // A configuration accepts any name, and looks up the database first.
                let fits = (status, code.as_str()) == (400, "invalid");
                assert!(fits, "{method} {path} {body:?}: {}", reply.text());
            }
            let reply = admin.with("Content-Type", "text/plain").try_send(method, &asked, Some(b"{}")).unwrap();
            assert_eq!(reply.error(), error(400, "invalid", ""), "{method} {path}");
        } else {
            let reply = admin.try_send(method, &asked, Some(b"{}")).unwrap();
            assert_eq!(reply.error(), error(400, "invalid", ""), "{method} {path}");
        }
    }
}

#[test]
fn unknown_routes_are_reported() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    assert_eq!(viewer.get("/api/v1/nosuch").error(), error(404, "not_found", ""));
    assert_eq!(viewer.get("/api/").error(), error(404, "not_found", ""));
    let reply = viewer.put("/api/v1/databases", json!({}));
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, POST")));
    assert_eq!(viewer.get("/api/v1/databases?x=%ff").error(), error(400, "invalid", ""));
    assert_eq!(viewer.get("/api/v1/databases/%ff").error(), error(400, "invalid", ""));
    assert_eq!(viewer.get("/api/v1/databases/default/keys?count=1&count=2").error(), error(400, "invalid", "count"));
    for count in ["0", "1001", "x", "-1", ""] {
        let reply = viewer.get(&format!("/api/v1/databases/default/keys?count={count}"));
        assert_eq!(reply.error(), error(400, "invalid", "count"), "{count}");
    }
}

#[test]
fn a_large_body_is_refused_and_pages_of_others_change_nothing() {
    let node = Node::start(&[]);
    let admin = node.admin();
    let large = vec![b' '; 9 << 20];
    let reply = admin.try_send("POST", "/api/v1/databases", Some(&large)).unwrap();
    assert_eq!(reply.error(), error(413, "too_large", ""));

    let rule = || json!({"name": "r", "metric": "ops", "scope": "node", "op": ">", "threshold": 1, "severity": "info"});
    let change = |client: &Client| client.post("/api/v1/alerts/rules", rule()).status;
    assert_eq!(change(&admin), 201);
    assert_eq!(change(&admin.without("X-CSRF-Token")), 403);
    assert_eq!(change(&admin.with("X-CSRF-Token", "guessed")), 403);
    assert_eq!(change(&admin.with("Origin", "http://evil.example")), 403);
    assert_eq!(change(&admin.with("Origin", "null")), 403);
    assert_eq!(change(&admin.with("Origin", &format!("http://127.0.0.1:{}", node.console))), 201);
    assert_eq!(change(&admin.without("Cookie")), 401);
    let audit = admin.get("/api/v1/audit").ok();
    let refused = |why: &str| {
        let lines = audit.as_array().unwrap().iter();
        lines.filter(|line| line["ok"] == false && line["detail"].as_str().unwrap().contains(why)).count()
    };
    assert_eq!((refused("CSRF"), refused("another origin")), (2, 2), "{audit}");
    // Reading needs no CSRF token, but the host must be a name of this machine.
    assert_eq!(admin.without("X-CSRF-Token").get("/api/v1/databases").status, 200);
    for path in ["/", "/metrics", "/api/v1/openapi.json", "/health/live"] {
        assert_eq!(admin.with("Host", "rebound.example").get(path).error(), error(400, "invalid", ""), "{path}");
        assert_eq!(admin.with("Host", "localhost").get(path).status, 200, "{path}");
    }
    let policy = node.client().get("/");
    let policy = policy.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
}

/// Each of the 512 connections could have the node keep 8 MiB for it, without a login.
#[test]
fn a_large_body_needs_a_login_and_a_route_that_takes_one() {
    let node = Node::start(&[]);
    let (nobody, admin) = (node.client().with("Content-Type", "application/json"), node.admin());
    // No body follows: who waits for it answers 504.
    let announced = |client: &Client, method: &str, path: &str| {
        client.with("Content-Length", "1000000").try_send(method, path, None).unwrap().error()
    };
    for path in ["/api/v1/openapi.json", "/metrics", "/health/live"] {
        assert_eq!(announced(&nobody, "GET", path), error(413, "too_large", ""), "{path}");
    }
    assert_eq!(announced(&nobody, "POST", "/api/v1/session"), error(413, "too_large", ""));
    assert_eq!(announced(&nobody, "POST", "/api/v1/databases"), error(401, "unauthenticated", ""));
    assert_eq!(announced(&admin, "POST", "/api/v1/databases/default/pause"), error(413, "too_large", ""));

    // Without a length, it is refused when it has come so far.
    let mut stream = TcpStream::connect(("127.0.0.1", node.console)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("5000\r\n{}\r\n", " ".repeat(0x5000));
    stream.write_all(&[head.as_bytes(), chunk.as_bytes()].concat()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");

    let large = json!({"key": "k", "type": "string", "value": "v".repeat(1 << 20)});
    assert!(admin.put("/api/v1/databases/default/key", large).status < 300);
}

#[test]
fn changes_are_audited_and_secrets_are_not() {
    let node = Node::start(&[]);
    let admin = node.admin();
    admin.post("/api/v1/users", json!({"name": "ann", "role": "viewer", "password": "secret word"})).ok();
    node.client().post("/api/v1/session", json!({"user": "ann", "password": "wrong word"}));
    admin.patch("/api/v1/databases/default/config", json!({"requirepass": "hidden word"})).ok();
    admin.put("/api/v1/databases/default/key", json!({"key": "k", "type": "string", "value": "private text"})).ok();
    admin.delete("/api/v1/users/nobody");
    let audit = admin.get("/api/v1/audit").ok();
    let lines: Vec<(String, String, bool)> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            assert_eq!(text("address"), "127.0.0.1");
            assert!(!text("user").is_empty(), "{line}");
            // The role of whoever did not log in is not known.
            assert_eq!(text("role").is_empty(), text("action") == "session.login" && line["ok"] == false, "{line}");
            (text("action"), text("target"), line["ok"].as_bool().unwrap())
        })
        .collect();
    let expected = [
        ("user.delete", "nobody", false),
        ("key.set", "default", true),
        ("config.set", "default", true),
        ("session.login", "ann", false),
        ("user.create", "ann", true),
        ("session.login", "admin", true),
    ];
    assert_eq!(lines, expected.map(|(action, target, ok)| (action.to_owned(), target.to_owned(), ok)));
    let file = std::fs::read_to_string(node.state_dir().join("audit.jsonl")).unwrap();
    assert_eq!(file.lines().filter(|line| !line.is_empty()).count(), expected.len());
    for secret in ["secret word", "wrong word", "hidden word", "private text"] {
        assert!(!file.contains(secret) && !audit.to_string().contains(secret), "{secret}");
    }
    assert!(file.contains("requirepass (secret)"));
    assert_eq!(node.token("operator").get("/api/v1/audit").status, 403);
}

/// `flintkv database list --user ann` logs in, reads and logs out: nothing was changed. A login that is refused is there, and so is a change.
#[test]
fn a_brief_session_is_audited_for_what_it_changes() {
    let node = Node::start(&[]);
    let admin = node.admin();
    let log_in = |password: &str| {
        node.client().post("/api/v1/session", json!({"user": "admin", "password": password, "brief": true}))
    };
    let commands = |changes: bool| {
        let reply = log_in(crate::common::PASSWORD);
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        assert!(reply.header("set-cookie").unwrap().contains("Max-Age=600"));
        let csrf = reply.json()["csrf"].as_str().unwrap().to_owned();
        let client = node.client().with("Cookie", &cookie).with("X-CSRF-Token", &csrf);
        assert_eq!(client.get("/api/v1/databases").status, 200);
        if changes {
            assert_eq!(client.try_send("POST", "/api/v1/databases/default/pause", None).unwrap().status, 200);
        }
        assert_eq!(client.delete("/api/v1/session").status, 204);
        assert_eq!(client.get("/api/v1/databases").status, 401, "it has ended");
    };
    let actions = || -> Vec<String> {
        let audit = admin.get("/api/v1/audit").ok();
        audit.as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(actions(), ["session.login"]);
    commands(false);
    assert_eq!(actions(), ["session.login"]);
    commands(true);
    assert_eq!(actions(), ["database.pause", "session.login"]);
    assert_eq!(log_in("wrong word").status, 401);
    assert_eq!(actions(), ["session.login", "database.pause", "session.login"]);
}

/// A command that got an error was not done, and one that was refused neither: the audit log says so, with the keys and without values.
#[test]
fn commands_that_fail_are_audited_as_failed_with_their_keys() {
    let node = Node::start(&[]);
    let (operator, viewer, admin) = (node.token("operator"), node.token("viewer"), node.token("admin"));
    let path = "/api/v1/databases/default/command";
    let run = |client: &Client, args: Value| client.post(path, json!({ "args": args, "db": 2 })).status;
    assert_eq!(run(&operator, json!(["SET", "cart:1", "hidden value"])), 200);
    assert_eq!(run(&operator, json!(["lpush", "cart:1", "hidden value"])), 200);
    assert_eq!(run(&viewer, json!(["MSET", "a", "hidden value", "b", "hidden value"])), 403);
    assert_eq!(run(&operator, json!(["SUBSCRIBE", "news"])), 422);
    assert_eq!(run(&viewer, json!(["GET", "cart:1"])), 200);
    assert_eq!(run(&operator, json!(["INFO", "commandstats"])), 200);
    assert_eq!(run(&admin, json!(["ACL", "LIST"])), 200);
    // What is changed has no keys here; its values may be secrets.
    assert_eq!(run(&admin, json!(["CONFIG", "SET", "timeout", "77", "requirepass", "hidden value"])), 200);
    assert_eq!(run(&admin, json!(["CONFIG", "SET", "requirepass", ""])), 200);
    assert_eq!(run(&admin, json!(["ACL", "SETUSER", "ann", ">hidden value"])), 200);
    // What only reads or tells is recorded when it fails.
    assert_eq!(run(&operator, json!(["LPUSH", "list", "hidden value"])), 200);
    assert_eq!(run(&viewer, json!(["GET", "list"])), 200);
    assert_eq!(run(&viewer, json!(["GET"])), 200);
    assert_eq!(run(&viewer, json!(["ACL", "LIST"])), 403);
    assert_eq!(viewer.delete("/api/v1/databases/default?confirm=default").status, 403);
    let audit = admin.get("/api/v1/audit").ok();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines: Vec<(String, String, String, bool)> = audit
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| ["command", "database.delete"].contains(&line["action"].as_str().unwrap()))
        .map(|line| (text(line, "user"), text(line, "target"), text(line, "detail"), line["ok"].as_bool().unwrap()))
        .collect();
    let of = |user: &str, detail: &str, ok| (format!("test {user}"), "default".to_owned(), detail.to_owned(), ok);
    let of_admin = |line: &(String, String, String, bool)| line.0 == "test admin";
    let (told, lines): (Vec<_>, Vec<_>) = lines.into_iter().partition(of_admin);
    let told: Vec<&str> = told.iter().map(|line| line.2.as_str()).collect();
    let expected = [
        "ACL SETUSER \"ann\" in db 2",
        "CONFIG SET \"requirepass\" in db 2",
        "CONFIG SET \"timeout\" \"requirepass\" in db 2",
    ];
    assert_eq!(told, expected);
    assert_eq!(lines.len(), 9, "{lines:?}");
    assert_eq!(lines[0].1, "databases/default");
    assert!(lines[0].2.contains("needs the role operator") && !lines[0].3, "{:?}", lines[0]);
    assert!(lines[1].2.starts_with("ACL LIST in db 2: NOPERM") && !lines[1].3, "{:?}", lines[1]);
    assert_eq!(lines[2], of("viewer", "GET in db 2: ERR", false));
    assert_eq!(lines[3], of("viewer", "GET \"list\" in db 2: WRONGTYPE", false));
    assert_eq!(lines[4], of("operator", "LPUSH \"list\" in db 2", true));
    assert!(lines[5].2.starts_with("SUBSCRIBE in db 2: ") && !lines[5].3, "{:?}", lines[5]);
    assert!(lines[6].2.starts_with("MSET \"a\" \"b\" in db 2: NOPERM") && !lines[6].3, "{:?}", lines[6]);
    assert_eq!(lines[7], of("operator", "LPUSH \"cart:1\" in db 2: WRONGTYPE", false));
    assert_eq!(lines[8], of("operator", "SET \"cart:1\" in db 2", true));
    assert!(!audit.to_string().contains("hidden value"));
}
