//! Logging in and out, users and tokens.

use crate::common::*;

#[test]
fn a_session_from_login_to_logout() {
    let node = Node::start(&[]);
    let anybody = node.client();
    let wrong = anybody.post("/api/v1/session", json!({"user": "admin", "password": "wrong"}));
    assert_eq!(wrong.error(), error(401, "unauthenticated", ""));
    let right = anybody.post("/api/v1/session", json!({"user": "admin", "password": PASSWORD}));
    let cookie = right.header("set-cookie").unwrap().to_owned();
    for part in ["flintkv_session=", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "there is no TLS here");
    let card = right.ok();
    assert_eq!(
        (&card["user"], &card["role"], &card["must_change_password"]),
        (&json!("admin"), &json!("admin"), &json!(false))
    );

    let admin = node.admin();
    assert_eq!(admin.get("/api/v1/session").ok()["user"], "admin");
    assert_eq!(admin.delete("/api/v1/session").status, 204);
    assert_eq!(admin.get("/api/v1/session").status, 401);

    // The session ends twelve hours after the last request. A restart of the node ends nothing, and the CSRF token stays.
    let admin = node.admin();
    let ended = node.admin();
    assert_eq!(ended.delete("/api/v1/session").status, 204);
    let folder = node.folder();
    node.stop();
    let mut node = Node::start_in(folder, &[]);
    let at_new_port = |client: Client| Client { port: node.console, ..client };
    let (admin, ended) = (at_new_port(admin), at_new_port(ended));
    assert_eq!(ended.get("/api/v1/session").status, 401);
    assert_eq!(admin.post("/api/v1/databases/default/pause", json!({})).status, 400, "no body is expected");
    assert_eq!(admin.send("POST", "/api/v1/databases/default/pause", None).status, 200);
    let hour_ms = 3_600_000;
    node.set_clock_ahead(11 * hour_ms);
    assert_eq!(admin.get("/api/v1/session").status, 200);
    node.set_clock_ahead(22 * hour_ms);
    assert_eq!(admin.get("/api/v1/session").status, 200);
    node.set_clock_ahead(35 * hour_ms);
    assert_eq!(admin.get("/api/v1/session").status, 401);
}

#[test]
fn guessing_is_limited() {
    let mut node = Node::start(&[]);
    let guess = |password: &str| node.client().post("/api/v1/session", json!({"user": "admin", "password": password}));
    for _ in 0..5 {
        assert_eq!(guess("wrong").status, 401);
    }
    let refused = guess(PASSWORD);
    assert_eq!(refused.error(), error(429, "rate_limited", ""));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    node.set_clock_ahead(61_000);
    until("the end of the brake", || {
        let reply = node.client().post("/api/v1/session", json!({"user": "admin", "password": PASSWORD}));
        (reply.status == 200).then_some(())
    });
}

#[test]
fn users_come_change_and_go() {
    let node = Node::start(&[]);
    let admin = node.admin();
    let card = admin.post("/api/v1/users", json!({"name": "ann", "role": "viewer", "password": "first word"})).ok();
    assert_eq!((&card["role"], &card["last_login_ms"]), (&json!("viewer"), &json!(null)));
    let ann = node.login("ann", "first word");
    let session = ann.get("/api/v1/session").ok();
    assert_eq!((&session["must_change_password"], &session["password_by"]), (&json!(true), &json!("admin")));
    let change = |old: &str, new: &str| ann.put("/api/v1/session/password", json!({"old": old, "new": new}));
    assert_eq!(change("wrong", "second word").error(), error(400, "invalid", "old"));
    assert_eq!(change("first word", "short").error(), error(400, "invalid", "new"));
    assert_eq!(change("first word", "first word").error(), error(400, "invalid", "new"));
    let elsewhere = node.login("ann", "first word");
    assert_eq!(change("first word", "second word").status, 204);
    assert_eq!(ann.get("/api/v1/session").ok()["must_change_password"], false);
    assert_eq!(elsewhere.get("/api/v1/session").status, 401, "the other sessions ended");

    // Both are changed, or neither.
    let both = |password: &str| admin.patch("/api/v1/users/ann", json!({"role": "admin", "password": password}));
    assert_eq!(both("short").error(), error(400, "invalid", "password"));
    let users = admin.get("/api/v1/users").ok();
    assert_eq!((&users[1]["name"], &users[1]["role"]), (&json!("ann"), &json!("viewer")));
    let refused = &admin.get("/api/v1/audit").ok()[0];
    assert_eq!((&refused["target"], &refused["ok"]), (&json!("ann"), &json!(false)));
    assert!(refused["detail"].as_str().unwrap().starts_with("role admin, password: "), "{refused}");
    assert_eq!(ann.get("/api/v1/session").status, 200, "the session goes on");

    // A new role is valid from the next request on, because the sessions end.
    admin.patch("/api/v1/users/ann", json!({"role": "operator"})).ok();
    assert_eq!(ann.get("/api/v1/session").status, 401);
    assert_eq!(node.login("ann", "second word").get("/api/v1/session").ok()["role"], "operator");
    assert_eq!(admin.patch("/api/v1/users/ann", json!({})).error(), error(400, "invalid", ""));
    assert_eq!(admin.patch("/api/v1/users/ann", json!({"role": "king"})).error().0, 400);
    assert_eq!(admin.patch("/api/v1/users/nobody", json!({"role": "viewer"})).error().0, 404);
    assert_eq!(admin.delete("/api/v1/users/admin").error(), error(400, "invalid", ""));
    assert_eq!(admin.delete("/api/v1/users/ann").status, 204);
    assert_eq!(admin.get("/api/v1/users").ok().as_array().unwrap().len(), 1);

    // Users survive a restart. A password in the configuration counts only at the first start.
    admin.post("/api/v1/users", json!({"name": "bob", "role": "viewer", "password": "first word"})).ok();
    let folder = node.folder();
    node.stop();
    let node = Node::start_in(folder, &[("console-password", "another word")]);
    node.login("bob", "first word");
    node.admin();
    assert_eq!(files(&node.state_dir().join("history")).iter().filter(|name| *name == "node").count(), 1);
}

/// A password that somebody else has chosen opens nothing but the change of the password, in every role.
#[test]
fn a_temporary_password_only_lets_its_user_choose_another() {
    let node = Node::start(&[]);
    let admin = node.admin();
    admin.post("/api/v1/users", json!({"name": "ann", "role": "admin", "password": "first word"})).ok();
    let ann = node.login("ann", "first word");
    let refused = |client: &Client| {
        assert_eq!(client.get("/api/v1/databases").error(), error(403, "password", ""));
        assert_eq!(client.get("/api/v1/databases/default/keys").error(), error(403, "password", ""));
        let flush = client.post("/api/v1/databases/default/flush", json!({"confirm": "default"}));
        assert_eq!(flush.error(), error(403, "password", ""));
        assert!(flush.text().contains("ann must choose a new password first"), "{}", flush.text());
    };
    refused(&ann);
    ann.put("/api/v1/session/password", json!({"old": "first word", "new": "second word"})).ok();
    ann.get("/api/v1/databases").ok();
    // An administrator who sets a password knows it, so it is temporary again.
    admin.patch("/api/v1/users/ann", json!({"password": "third word"})).ok();
    let ann = node.login("ann", "third word");
    refused(&ann);
    assert_eq!(ann.get("/api/v1/session").ok()["password_by"], "admin");
    assert_eq!(ann.delete("/api/v1/session").status, 204);
    let audit = admin.get("/api/v1/audit").ok();
    let flush = audit.as_array().unwrap().iter().find(|line| line["action"] == "database.flush").unwrap();
    assert_eq!((&flush["user"], &flush["ok"]), (&json!("ann"), &json!(false)), "{flush}");
}

#[test]
fn tokens_need_no_cookie_and_expire() {
    let node = Node::start(&[]);
    let admin = node.admin();
    let soon = wall_ms() + 600_000;
    let made = admin.post("/api/v1/tokens", json!({"name": "ci", "role": "operator", "expires_ms": soon})).ok();
    let token = made["token"].as_str().unwrap();
    let program = node.client().with("Authorization", &format!("Bearer {token}"));
    let card = program.get("/api/v1/session").ok();
    assert_eq!((&card["user"], &card["role"], &card["csrf"]), (&json!("ci"), &json!("operator"), &json!("")));
    let rule = json!({"name": "r", "metric": "ops", "scope": "node", "op": ">", "threshold": 1, "severity": "info"});
    assert_eq!(program.post("/api/v1/alerts/rules", rule).status, 201);
    assert_eq!(program.delete("/api/v1/session").status, 400);
    let listed = admin.get("/api/v1/tokens").ok();
    assert_eq!((&listed[0]["name"], &listed[0]["created_by"]), (&json!("ci"), &json!("admin")));
    assert!(!listed.to_string().contains(token));
    let stored = std::fs::read_to_string(node.state_dir().join("users.json")).unwrap();
    assert!(!stored.contains(token) && stored.contains("$argon2id$"));
    assert_eq!(admin.delete(&format!("/api/v1/tokens/{}", made["id"].as_str().unwrap())).status, 204);
    assert_eq!(program.get("/api/v1/session").error(), error(401, "unauthenticated", ""));
    for wrong in ["Bearer", "Bearer fkv_x", "Basic YTpi", "Bearer x"] {
        assert_eq!(node.client().with("Authorization", wrong).get("/api/v1/session").status, 401, "{wrong}");
    }
    let past = admin.post("/api/v1/tokens", json!({"name": "ci", "role": "viewer", "expires_ms": 5}));
    assert_eq!(past.error(), error(400, "invalid", "expires_ms"));
}
