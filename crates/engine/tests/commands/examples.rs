//! The examples of the rows on data, run over a store: as they are, and with all values on flash. The server's tests
//! run the examples of all rows through a socket, and against a real Redis.

use crate::harness::Harness;
use commands::{Expect, Flag, Group, Row, Values, table};

/// The rows whose handlers ask nothing of a server. The examples of the other rows need a server.
pub fn on_data() -> impl Iterator<Item = (String, &'static Row)> {
    table::all()
        .filter(|row| {
            use Group::{Bitmap, Generic, Geo, Hash, HyperLogLog, List, Set, SortedSet, Stream, String};
            matches!(row.group, String | Hash | List | Set | SortedSet | Stream | Geo | Generic | Bitmap | HyperLogLog)
                || row.flags.contains(&Flag::Keyspace)
                || row.flags.contains(&Flag::Barrier)
        })
        .flat_map(|row| {
            let subcommands = row.subcommands.iter().map(move |sub| (format!("{} {}", row.name, sub.name), sub));
            std::iter::once((row.name.to_owned(), row)).chain(subcommands)
        })
}

/// Runs every row's examples, each row on a new store; `before` runs before each example.
fn run_all(new: fn() -> Harness, before: fn(&mut Harness), mut after: impl FnMut(&str, &Row, &Harness)) {
    let mut failures = Vec::new();
    for (name, row) in on_data() {
        let mut harness = new();
        for example in row.examples {
            before(&mut harness);
            let reply = harness.run(example.command);
            let fits = match example.reply {
                Expect::Is(text) | Expect::OnlyHere(text) => reply == text,
                Expect::Starts(text) => reply.starts_with(text),
            };
            if !fits {
                failures.push(format!("{name}: {}\n{reply}", example.command));
            }
        }
        after(&name, row, &harness);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn examples_reply_as_they_say() {
    run_all(Harness::new, |_| {}, |_, _, _| {});
}

#[test]
fn examples_reply_the_same_when_every_value_is_on_flash() {
    let mut unmet = Vec::new();
    run_all(
        || Harness::with_flash(11),
        Harness::freeze,
        |name, row, harness| {
            let waited = harness.colds.contains_key(&name.replace(' ', "|"));
            if !waited && row.values == Values::Read {
                unmet.push(name.to_owned());
            }
        },
    );
    assert!(unmet.is_empty(), "these never met a cold value: {unmet:?}");
}
