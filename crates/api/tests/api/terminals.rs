//! Terminals: what a connection remembers between requests, streams of messages, and who may use which.

use super::common::*;
use serde_json::Value;

const PATH: &str = "/api/v1/databases/default/terminals";

/// A command line in a terminal.
struct Terminal {
    client: Client,
    id: String,
}

impl Terminal {
    fn open(client: &Client) -> Terminal {
        let made = client.post(PATH, json!({"db": 0}));
        assert_eq!(made.status, 201, "{}", made.text());
        Terminal { client: client.clone(), id: made.json()["id"].as_str().unwrap().to_owned() }
    }

    fn send(&self, line: &str) -> Reply {
        self.client.post(&format!("{PATH}/{}/command", self.id), json!({ "line": line }))
    }

    fn run(&self, line: &str) -> Value {
        self.send(line).ok()
    }

    /// The value of the reply, with its type.
    fn reply(&self, line: &str) -> Value {
        self.run(line)["reply"].clone()
    }

    fn stream(&self, after: u64) -> Value {
        self.client.get(&format!("{PATH}/{}/stream?after={after}", self.id)).ok()
    }

    fn stop(&self) {
        assert_eq!(self.client.delete(&format!("{PATH}/{}/stream", self.id)).status, 204);
    }
}

fn status(text: &str) -> Value {
    json!({"type": "status", "value": text})
}

/// The rows of a stream, once there are so many.
fn rows(terminal: &Terminal, after: u64, count: usize) -> Vec<Value> {
    until("the messages arrive", || {
        let rows = terminal.stream(after)["rows"].as_array().unwrap().clone();
        (rows.len() >= count).then_some(rows)
    })
}

/// The clients of the database whose line in CLIENT LIST has this.
fn clients(node: &Node, with: &str) -> usize {
    let resp::client::Value::Bulk(list) = node.command(node.port(), &["CLIENT", "LIST"]) else { panic!("a text") };
    String::from_utf8(list).unwrap().lines().filter(|line| line.contains(with)).count()
}

#[test]
fn a_transaction_goes_over_several_lines() {
    let node = Node::start(&[]);
    let terminal = Terminal::open(&node.token("admin"));
    let open = |queued: u32, is_broken: bool| json!({"queued": queued, "is_broken": is_broken});
    assert_eq!(terminal.run("WATCH k")["is_watching"], true);
    let begun = terminal.run("MULTI");
    assert_eq!((&begun["reply"], &begun["transaction"]), (&status("OK"), &open(0, false)));
    let queued = terminal.run("SET k \"a\\x00b\"");
    assert_eq!((&queued["reply"], &queued["transaction"]), (&status("QUEUED"), &open(1, false)));
    assert_eq!(terminal.run("SELECT 3")["db"], 0, "nothing has run yet");
    assert_eq!(terminal.run("BLPOP nosuch 0")["transaction"], open(3, false), "in a transaction nothing blocks");
    assert_eq!(terminal.send("SUBSCRIBE c").error(), error(422, "unsupported", ""));
    let done = terminal.run("EXEC");
    assert_eq!(done["reply"]["value"], json!([status("OK"), status("OK"), {"type": "null"}]));
    assert_eq!((&done["transaction"], &done["is_watching"], &done["db"]), (&Value::Null, &json!(false), &json!(3)));
    assert_eq!(terminal.reply("DBSIZE")["value"], 0, "SELECT stays in effect");
    assert_eq!(terminal.run("SELECT 0")["db"], 0);
    assert_eq!(terminal.reply("GET k")["value"], "a\0b");

    // Somebody else changes a watched key.
    terminal.run("WATCH k");
    terminal.run("MULTI");
    terminal.run("SET k mine");
    node.command(node.port(), &["SET", "k", "theirs"]);
    assert_eq!(terminal.reply("EXEC"), json!({"type": "null"}));
    // A command that is refused breaks the transaction, and one that MULTI does not queue does not.
    terminal.run("MULTI");
    assert_eq!(terminal.run("MULTI")["transaction"], open(0, false));
    assert_eq!(terminal.run("NOSUCH")["transaction"], open(0, true));
    assert!(terminal.reply("EXEC")["value"].as_str().unwrap().starts_with("EXECABORT"));
    terminal.run("MULTI");
    terminal.run("SET k mine");
    assert_eq!(terminal.run("DISCARD")["transaction"], Value::Null);
    assert_eq!(terminal.reply("GET k")["value"], "theirs");
    terminal.run("MULTI");
    terminal.run("LPUSH k mine");
    terminal.run("SET k theirs");
    assert_eq!(terminal.reply("EXEC")["value"][1], status("OK"));
    for line in ["BLPOP k 0", "AUTH a b", "HELLO 2", "QUIT", "RESET", "CLIENT REPLY OFF"] {
        assert_eq!(terminal.send(line).error(), error(422, "unsupported", ""), "{line}");
    }

    // Each line is audited as a single command is.
    let audit = node.admin().get("/api/v1/audit").ok();
    let told = |detail: &str, ok: bool| {
        audit.as_array().unwrap().iter().any(|line| line["detail"] == detail && line["ok"] == ok)
    };
    for detail in ["MULTI", "SET \"k\" (queued)", "BLPOP \"nosuch\" (queued)", "EXEC of 3 commands", "DISCARD"] {
        assert!(told(detail, true), "{detail}: {audit}");
    }
    for detail in
        ["EXEC: a watched key was changed", "EXEC: EXECABORT", "EXEC of 2 commands: 1 of them failed: WRONGTYPE"]
    {
        assert!(told(detail, false), "{detail}: {audit}");
    }
    let audit = audit.to_string();
    assert!(!audit.contains("mine") && !audit.contains("GET \\\"k\\\"") && !audit.contains("terminal"), "{audit}");
}

#[test]
fn messages_come_as_a_stream_while_commands_go_on() {
    let node = Node::start(&[]);
    let terminal = Terminal::open(&node.token("operator"));
    assert_eq!(terminal.stream(0)["is_open"], false);
    assert_eq!(terminal.send("UNSUBSCRIBE").error(), error(400, "invalid", ""));
    let subscribed = terminal.run("SUBSCRIBE a b");
    assert_eq!(subscribed["reply"]["value"].as_array().unwrap().len(), 2);
    assert_eq!(subscribed["is_listening"], true);
    terminal.run("PSUBSCRIBE n*");
    terminal.run("SSUBSCRIBE s");
    let named = |space: &str, name: &str| json!({"space": space, "name": name});
    let all = json!([named("channel", "a"), named("channel", "b"), named("pattern", "n*"), named("shard", "s")]);
    assert_eq!(terminal.stream(0)["subscriptions"], all);

    assert_eq!(terminal.reply("PUBLISH a hello")["value"], 1, "from the same command line");
    node.command(node.port(), &["PUBLISH", "news", "text"]);
    node.command(node.port(), &["SPUBLISH", "s", "sharded"]);
    terminal.run("PUBLISH b \"\\xff\"");
    let rows_read = rows(&terminal, 0, 4);
    let told: Vec<Value> =
        rows_read.iter().map(|row| json!([row["number"], row["channel"], row["pattern"], row["payload"]])).collect();
    let of = |number: u64, channel: &str, pattern: Value, payload: Value| json!([number, channel, pattern, payload]);
    // Messages of different senders have no order among each other.
    let mut payloads: Vec<String> = told.iter().map(|row| json!([row[1], row[2], row[3]]).to_string()).collect();
    payloads.sort();
    let wanted = [
        of(0, "a", Value::Null, json!("hello")),
        of(0, "b", Value::Null, json!({"base64": "/w=="})),
        of(0, "news", json!("n*"), json!("text")),
        of(0, "s", Value::Null, json!("sharded")),
    ]
    .map(|row| json!([row[1], row[2], row[3]]).to_string());
    assert_eq!(payloads, wanted);
    assert_eq!(told.iter().map(|row| row[0].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(rows_read[0]["at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(terminal.stream(4)["rows"], json!([]));

    // More than is kept: the oldest are left out, and counted.
    for _ in 0..11 {
        let lines: Vec<String> = (0..100).map(|_| "redis.call('PUBLISH','a','x')".to_owned()).collect();
        node.command(node.port(), &["EVAL", &lines.join(" "), "0"]);
    }
    let late = until("all have come", || Some(terminal.stream(4)).filter(|page| page["last"] == 1104));
    assert_eq!((late["rows"].as_array().unwrap().len(), &late["left_out"]), (1000, &json!(100)));

    assert_eq!(terminal.run("UNSUBSCRIBE")["reply"]["value"].as_array().unwrap().len(), 2);
    terminal.run("PUNSUBSCRIBE n*");
    assert_eq!(terminal.run("SUNSUBSCRIBE")["is_listening"], false, "the last one closes the stream");
    let closed = terminal.stream(0);
    assert_eq!((&closed["is_open"], &closed["last"]), (&json!(false), &json!(1104)));
    terminal.run("SUBSCRIBE a");
    terminal.run("PUBLISH a again");
    assert_eq!(rows(&terminal, 1104, 1)[0]["number"], 1105, "a new stream goes on counting");
    let names: Vec<String> = (0..101).map(|number| format!("c{number}")).collect();
    assert_eq!(terminal.send(&format!("SUBSCRIBE {}", names.join(" "))).error(), error(422, "unsupported", ""));
    terminal.stop();
    // The socket is shut down, and its worker notices that a moment later.
    until("the database sends it nothing more", || (terminal.reply("PUBLISH a nobody")["value"] == 0).then_some(()));
}

/// The stream ends and says why; the command line, and a new stream, go on.
#[test]
fn a_message_too_long_for_the_console_ends_the_stream() {
    let node = Node::start(&[]);
    let terminal = Terminal::open(&node.token("operator"));
    terminal.run("SUBSCRIBE a");
    terminal.run("PUBLISH a short");
    rows(&terminal, 0, 1);
    node.command(node.port(), &["EVAL", "redis.call('PUBLISH', 'a', string.rep('x', 17 * 1024 * 1024))", "0"]);
    let ended = until("the end", || Some(terminal.stream(0)).filter(|page| page["is_open"] == false));
    assert_eq!(ended["ended"], "A message is longer than 16 MB.", "{ended}");
    assert_eq!(ended["rows"].as_array().unwrap().len(), 1, "what came before is kept");
    until("the database sends it nothing more", || (terminal.reply("PUBLISH a nobody")["value"] == 0).then_some(()));
    terminal.run("SUBSCRIBE a");
    terminal.run("PUBLISH a again");
    assert_eq!(rows(&terminal, 1, 1)[0]["payload"], "again");
}

#[test]
fn monitor_needs_its_right_and_ends_when_nobody_reads() {
    let mut node = Node::start(&[]);
    let (operator, admin) = (Terminal::open(&node.token("operator")), Terminal::open(&node.token("admin")));
    assert_eq!(operator.send("MONITOR").error(), error(403, "forbidden", ""));
    assert_eq!(operator.stream(0)["is_open"], false);
    assert_eq!(operator.reply("PING"), status("PONG"));
    let viewer = Terminal::open(&node.token("viewer"));
    assert_eq!(viewer.send("SUBSCRIBE c").error(), error(403, "forbidden", ""));
    assert_eq!(admin.reply("MONITOR"), status("OK"));
    node.command(node.port(), &["SET", "seen", "x"]);
    let line = until("the line arrives", || {
        let rows = admin.stream(0)["rows"].as_array().unwrap().clone();
        rows.into_iter()
            .find(|row| row["payload"].as_str().is_some_and(|line| line.ends_with("\"SET\" \"seen\" \"x\"")))
    });
    assert_eq!((&line["channel"], &admin.stream(0)["monitors"]), (&Value::Null, &json!(true)));
    assert_eq!(admin.reply("GET seen")["value"], "x", "commands go on beside it");

    assert_eq!(clients(&node, "flags=O"), 1);
    admin.stop();
    until("nobody monitors", || (clients(&node, "flags=O") == 0).then_some(()));
    // The page has gone without a word.
    admin.run("MONITOR");
    node.set_clock_ahead(121_000);
    until("the stream ends by itself", || (clients(&node, "flags=O") == 0).then_some(()));
    assert_eq!(admin.reply("GET seen")["value"], "x", "the terminal goes on");
    assert_eq!(clients(&node, "user=(console:operator)"), 1);
    node.set_clock_ahead(12 * 60_000);
    until("the terminal ends by itself", || (clients(&node, "user=(console:operator)") == 0).then_some(()));
    assert_eq!(operator.send("PING").error(), error(404, "not_found", ""));
}

#[test]
fn a_terminal_belongs_to_one_user_and_their_number_is_bounded() {
    let node = Node::start(&[]);
    let (operator, admin) = (node.token("operator"), node.token("admin"));
    let mine = Terminal::open(&operator);
    // Another operator, whose token even has the same name, and an administrator.
    for other in [node.token("operator"), admin.clone()] {
        let stolen = Terminal { client: other.clone(), id: mine.id.clone() };
        assert_eq!(stolen.send("PING").error(), error(404, "not_found", ""));
        assert_eq!(other.get(&format!("{PATH}/{}/stream", mine.id)).status, 404);
        assert_eq!(other.delete(&format!("{PATH}/{}", mine.id)).status, 404);
    }
    assert_eq!(mine.reply("PING"), status("PONG"));
    let other =
        operator.post(&format!("/api/v1/databases/other/terminals/{}/command", mine.id), json!({"line": "PING"}));
    assert_eq!(other.error(), error(404, "not_found", ""));
    let of_other_db = operator.post(PATH, json!({"db": 2})).ok()["id"].as_str().unwrap().to_owned();
    assert_eq!(Terminal { client: operator.clone(), id: of_other_db }.run("PING")["db"], 2);
    assert_eq!(operator.post(PATH, json!({"db": 99})).error(), error(400, "invalid", "db"));

    // The ninth takes the place of the first.
    let more: Vec<Terminal> = (0..7).map(|_| Terminal::open(&operator)).collect();
    assert_eq!(mine.send("PING").status, 404);
    assert_eq!(more[0].reply("PING"), status("PONG"));
    assert_eq!(operator.delete(&format!("{PATH}/{}", more[0].id)).status, 204);
    assert_eq!(more[0].send("PING").status, 404);

    // All together have 32: here 7 are left of the first user.
    let others: Vec<Client> = (0..4).map(|_| node.token("operator")).collect();
    let kept: Vec<Terminal> = (0..25).map(|at| Terminal::open(&others[at % 4])).collect();
    let refused = others[3].post(PATH, json!({"db": 0}));
    assert_eq!(refused.error(), error(429, "rate_limited", ""));
    assert_eq!(kept[0].reply("PING"), status("PONG"));
    assert_eq!(operator.delete(&format!("{PATH}/{}", more[1].id)).status, 204);
    Terminal::open(&others[3]);
    assert_eq!(others[0].delete(&format!("{PATH}/{}", kept[0].id)).status, 204);

    // A role that has changed has other rights, which the connection does not know.
    admin.post("/api/v1/users", json!({"name": "ann", "password": "a long word of ann", "role": "admin"})).ok();
    let ann = node.login("ann", "a long word of ann");
    ann.put("/api/v1/session/password", json!({"old": "a long word of ann", "new": "another word of ann"})).ok();
    let ann = node.login("ann", "another word of ann");
    let hers = Terminal::open(&ann);
    assert_eq!(hers.reply("CONFIG SET maxclients 100"), status("OK"));
    assert_eq!(admin.patch("/api/v1/users/ann", json!({"role": "viewer"})).status, 200);
    let ann = node.login("ann", "another word of ann");
    assert_eq!(Terminal { client: ann, id: hers.id }.send("PING").status, 404);
}
