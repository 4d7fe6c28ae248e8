//! The examples of the rows on data, run as they stand: here, and against a real Redis.

mod harness;

use commands::{Expect, Flag, Group, Row, table};
use harness::{Harness, RealRedis};

/// The rows whose handlers ask nothing of a server; the others' examples run against one.
fn on_data() -> impl Iterator<Item = (String, &'static Row)> {
    table::all()
        .filter(|row| {
            matches!(row.group, Group::String | Group::Hash | Group::Generic) || row.flags.contains(&Flag::Keyspace)
        })
        .flat_map(|row| {
            let subcommands = row.subcommands.iter().map(move |sub| (format!("{} {}", row.name, sub.name), sub));
            std::iter::once((row.name.to_owned(), row)).chain(subcommands)
        })
}

#[test]
fn examples_answer_as_they_say() {
    let mut failures = Vec::new();
    for (name, row) in on_data() {
        let mut harness = Harness::new();
        for example in row.examples {
            let reply = harness.run(example.command);
            let fits = match example.reply {
                Expect::Is(text) | Expect::OnlyHere(text) => reply == text,
                Expect::Starts(text) => reply.starts_with(text),
            };
            if !fits {
                failures.push(format!("{name}: {}\n{reply}", example.command));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_real_redis_answers_the_same() {
    let Some(mut redis) = RealRedis::start() else { return };
    let mut failures = Vec::new();
    for (name, row) in on_data() {
        redis.run("FLUSHALL");
        for example in row.examples {
            let reply = redis.run(example.command);
            let fits = match example.reply {
                Expect::Is(text) => reply == text,
                Expect::Starts(text) => reply.starts_with(text),
                Expect::OnlyHere(_) => true,
            };
            if !fits {
                failures.push(format!("{name}: {}\n{reply}", example.command));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
