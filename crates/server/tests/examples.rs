//! Every row's examples, as a client sends them: to a node, and to Debian's redis-server where it is installed.

mod common;

use commands::{Expect, Row, table};
use common::Node;
use common::harness::RealRedis;

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
        node.connect().run("FLUSHALL");
        let mut client = node.connect();
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
    let Some(mut control) = RealRedis::start() else { return };
    let mut failures = Vec::new();
    for (name, row) in rows() {
        // QUIT ends a connection and RESET forgets what the harness chose: a new one for every row.
        if name == "quit" {
            continue;
        }
        control.run("FLUSHALL");
        control.run("RESET");
        for example in row.examples {
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
