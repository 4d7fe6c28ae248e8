//! The examples of every row, as a client sends them: to a node, and to Debian's redis-server where it is installed.

use crate::common::{Node, Redis, eventually, shown};
use commands::{Expect, Row, table};
use resp::client::Value;

fn rows() -> Vec<(String, &'static Row)> {
    let mut rows = Vec::new();
    for row in table::all() {
        rows.push((row.name.to_owned(), row));
        rows.extend(row.subcommands.iter().map(|sub| (format!("{} {}", row.name, sub.name), sub)));
    }
    rows
}

#[test]
fn a_node_answers_as_the_examples_say() {
    let node = Node::start(&[]);
    let mut failures = Vec::new();
    for (name, row) in rows() {
        let mut client = node.connect();
        client.run("FLUSHALL");
        // CLIENT KILL counts clients, so the clients of the previous row must be gone.
        eventually("the last client is gone", || client.info("clients", "connected_clients") == "1");
        for example in row.examples {
            let reply = client.run(example.command);
            let fits = match example.reply {
                Expect::Is(text) | Expect::OnlyHere(text) => reply == text,
                Expect::Starts(text) => reply.starts_with(text),
            };
            if !fits {
                failures.push(format!("{name}: {} answers\n{reply}", example.command));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_real_redis_answers_the_same() {
    let Some((mut control, _server)) = Redis::connected(&[]) else { return };
    let mut failures = Vec::new();
    for (name, row) in rows() {
        // QUIT ends the connection, and RESET drops the harness's settings. So each row gets a new connection.
        if name == "quit" {
            continue;
        }
        control.run("FLUSHALL");
        control.run("RESET");
        for example in row.examples {
            // Commands that are refused here (SYNC, REPLICAOF, MODULE LOAD) might change the role of the other
            // server.
            if matches!(example.reply, Expect::OnlyHere(text) if text.starts_with("(error)")) {
                continue;
            }
            let reply = control.run(example.command);
            let fits = match example.reply {
                Expect::Is(text) => reply == text,
                Expect::Starts(text) => reply.starts_with(text),
                Expect::OnlyHere(_) => true,
            };
            if !fits {
                failures.push(format!("{name}: {} answers\n{reply}", example.command));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The fields of COMMAND INFO for a command, from arity to categories. Sets are sorted.
fn facts(info: &Value) -> Vec<String> {
    let Value::Array(fields) = info else { panic!("{info:?} is not a command's description") };
    let sorted = |field: &Value| {
        let (Value::Array(items) | Value::Set(items)) = field else { return shown(field) };
        let mut words: Vec<String> = items.iter().map(shown).collect();
        words.sort_unstable();
        words.join(" ")
    };
    fields[1..7].iter().map(sorted).collect()
}

#[test]
fn a_real_redis_describes_its_commands_as_ours() {
    let Some((mut redis, _server)) = Redis::connected(&[]) else { return };
    let node = Node::start(&[]);
    let mut client = node.connect();
    let mut failures = Vec::new();
    for (name, _) in rows() {
        let name = name.replace(' ', "|");
        let Value::Array(theirs) = redis.call(&[b"COMMAND", b"INFO", name.as_bytes()]) else { panic!("an array") };
        let Some(Value::Array(ours)) = client.value(&[b"COMMAND", b"INFO", name.as_bytes()]) else {
            panic!("an array")
        };
        // The command is newer than the installed Redis.
        if matches!(theirs[0], Value::Null | Value::NullArray) {
            continue;
        }
        let (mut ours, theirs) = (facts(&ours[0]), facts(&theirs[0]));
        // In Redis 7.0 these commands have another arity than in 7.2.
        if name.starts_with("command|getkeys") || ["zrank", "zrevrank"].contains(&name.as_str()) {
            ours[0].clone_from(&theirs[0]);
        }
        // Redis blocks while MIGRATE sends a value. Here only a transaction or a script would have to block, so the
        // flags differ.
        if name == "migrate" {
            ours[1] = ours[1].replace("no_multi noscript ", "");
        }
        // In Redis 7.2, WAIT is a blocking command that scripts may call.
        if name == "wait" {
            (ours[1], ours[5]) = ("noscript".to_owned(), ours[5].replace("@blocking ", ""));
        }
        // Redis 7.2 lets scripts call blocking commands, which do not block there.
        let script_flag = |fact: &String| {
            if fact.contains("blocking") {
                fact.replace("noscript ", "").replace(" noscript", "")
            } else {
                fact.clone()
            }
        };
        let theirs: Vec<String> = theirs.iter().map(script_flag).collect();
        if ours != theirs {
            failures.push(format!("{name}: {ours:?}, Redis {theirs:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
