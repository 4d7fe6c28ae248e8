//! Properties of the whole table, one test each.

use commands::row::acl_of;
use commands::{Access, Acl, Args, Flag, Keys, Row, Use, Values, table};
use flintkv_tests::Redis;
use resp::Span;
use resp::client::Value;
use std::collections::HashSet;

/// Every row with its full name; subcommands as `container|name`.
fn all() -> Vec<(String, &'static Row)> {
    let mut rows = Vec::new();
    for row in table::all() {
        rows.push((row.name.to_owned(), row));
        rows.extend(row.subcommands.iter().map(|sub| (format!("{}|{}", row.name, sub.name), sub)));
    }
    rows
}

#[test]
fn names_are_lower_case_and_unique() {
    let mut seen = HashSet::new();
    for (name, row) in all() {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        assert!(!row.name.is_empty() && row.name.bytes().all(plain), "{name}");
        assert!(seen.insert(name.clone()), "{name} stands twice");
    }
}

#[test]
fn every_name_is_found_in_any_case() {
    for row in table::all() {
        let mixed: String =
            row.name.chars().enumerate().map(|(at, c)| if at % 2 == 0 { c.to_ascii_uppercase() } else { c }).collect();
        let found = table::find(mixed.as_bytes()).unwrap_or_else(|| panic!("{mixed}"));
        assert!(std::ptr::eq(found, row));
        for sub in row.subcommands {
            let upper = sub.name.to_ascii_uppercase();
            assert!(table::find_subcommand(row, upper.as_bytes()).is_some_and(|found| std::ptr::eq(found, sub)));
        }
        assert!(table::find_subcommand(row, b"nosuch").is_none());
    }
    for name in [&b""[..], b"nosuch", b"get\0", b"ge", b"gett", b"g\xefet"] {
        assert!(table::find(name).is_none());
    }
}

#[test]
fn every_row_tells_what_it_must() {
    for (name, row) in all() {
        assert!(row.summary.len() > 10 && row.summary.ends_with('.'), "{name}: a sentence");
        assert!(row.complexity.starts_with("O(") || row.complexity.starts_with("Depends on "), "{name}");
        let version: Vec<&str> = row.since.split('.').collect();
        assert!(version.len() == 3 && version.iter().all(|n| n.parse::<u8>().is_ok()), "{name} since {}", row.since);
        assert!(row.arity != 0, "{name}");
        assert!(!row.examples.is_empty(), "{name}: examples");
    }
}

#[test]
fn every_data_command_shows_an_error_too() {
    for (name, row) in all() {
        let data = acl_of(row)
            .iter()
            .any(|acl| matches!(acl, Acl::Keyspace | Acl::String | Acl::Hash | Acl::Set | Acl::SortedSet));
        if !data {
            continue;
        }
        assert!(row.examples.len() >= 2, "{name}");
        let shows_error = row.examples.iter().any(|example| match example.reply {
            commands::Expect::Is(text) | commands::Expect::Starts(text) | commands::Expect::OnlyHere(text) => {
                text.starts_with("(error) ")
            }
        });
        assert!(shows_error, "{name}");
    }
}

#[test]
fn examples_of_a_row_call_it() {
    for (name, row) in all() {
        let words: Vec<&str> = name.split('|').collect();
        let called = row.examples.iter().any(|example| {
            let mut line = example.command.split_whitespace();
            words.iter().all(|word| line.next().is_some_and(|other| other.eq_ignore_ascii_case(word)))
        });
        // A container's own examples call an unknown subcommand.
        assert!(called, "{name}");
    }
}

#[test]
fn syntax_and_arity_agree() {
    let mut failures = Vec::new();
    for (name, row) in all() {
        if !row.subcommands.is_empty() {
            continue;
        }
        // Words outside brackets are required. The name counts, and so does a container's name.
        let mut depth = 0;
        let mut required = name.split('|').count() as i16;
        let mut optional = false;
        for word in row.syntax.split_whitespace() {
            let opens = word.matches(['[', '<']).count();
            depth += opens;
            if depth == 0 {
                required += 1;
            } else {
                optional = true;
            }
            depth -= word.matches([']', '>']).count();
        }
        let expected = if optional { -required } else { required };
        // QUIT takes arguments and ignores them.
        let agrees = row.arity == expected || row.syntax.contains('<') || row.name == "quit";
        if depth != 0 || !agrees {
            failures.push(format!("{name} {}: {}", row.syntax, row.arity));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn keys_stand_within_the_arity() {
    for (name, row) in all() {
        let Keys::Range { first, last, step } = row.keys else { continue };
        let least = row.arity.unsigned_abs() as i16;
        assert!(first >= 1 && step >= 1 && first < least, "{name}: the first key is required");
        assert!(last < 0 || (first <= last && last < least), "{name}: the last key is required");
        assert!(row.syntax.contains("key") || row.syntax.starts_with("source destination"), "{name}");
        // The shortest call has all required keys.
        let words = vec![Span { start: 0, len: 1 }; least as usize];
        let mut positions = Vec::new();
        row.keys.positions(&Args::new(b"x", &words), &mut positions);
        assert!(!positions.is_empty() && positions.iter().all(|&at| at < least as usize), "{name}");
        // A call that is too short has fewer keys, and does not panic.
        for count in 0..least as usize {
            positions.clear();
            row.keys.positions(&Args::new(b"x", &words[..count]), &mut positions);
            assert!(positions.iter().all(|&at| at < count), "{name}");
        }
    }
}

#[test]
fn flags_do_not_contradict_each_other() {
    for (name, row) in all() {
        let has = |flag: Flag| row.flags.contains(&flag);
        assert!(!(has(Flag::Write) && has(Flag::Readonly)), "{name}");
        assert!(!has(Flag::Denyoom) || has(Flag::Write), "{name}: only writers are refused when memory is full");
        let alone = Row { acl: &[], ..*row };
        let implied = |category: &&Acl| acl_of(&alone).contains(category);
        // A row that names its subject names it instead of the group's.
        assert_eq!(row.acl.iter().find(implied), None, "{name}: its flags and its group say that already");
        let distinct: HashSet<String> = row.flags.iter().map(|flag| format!("{flag:?}")).collect();
        assert_eq!(distinct.len(), row.flags.len(), "{name}: a flag stands twice");
        if let Keys::None = row.keys {
            assert!(row.values == Values::Untouched, "{name}: no key, no value");
        } else {
            assert!(!has(Flag::Keyspace) && !has(Flag::Barrier), "{name}: a command on the whole dataset locks no key");
        }
    }
}

/// What Redis's key specifications say, in order: reading and writing. A row may require more rights of a user, never
/// fewer.
#[test]
fn no_key_is_used_more_than_a_user_was_asked_for() {
    let Some((mut redis, _server)) = Redis::connected(&[]) else { return };
    let mut failures = Vec::new();
    for (name, row) in all() {
        if matches!(row.keys, Keys::None | Keys::NotKeys { .. }) {
            continue;
        }
        let Value::Array(infos) = redis.call(&[b"COMMAND", b"INFO", name.as_bytes()]) else { panic!("an array") };
        let Some(Value::Array(info)) = infos.first() else { continue };
        let Value::Array(specs) = &info[8] else { panic!("key specifications") };
        for (nth, spec) in specs.iter().enumerate() {
            let Value::Array(fields) = spec else { panic!("a specification") };
            let at = fields.iter().position(|field| matches!(field, Value::Bulk(name) if name == b"flags"));
            let Some(Value::Array(flags)) = at.and_then(|at| fields.get(at + 1)) else {
                panic!("its flags: {fields:?}")
            };
            let says =
                |word: &str| flags.iter().any(|flag| matches!(flag, Value::Simple(text) if text == word.as_bytes()));
            // The arguments decide what such a command does. SORT checks the rights for its patterns in its own way.
            if says("variable_flags") || nth > 0 && row.flags.contains(&Flag::UnnamedKeys) {
                continue;
            }
            let theirs = Use { read: says("access"), write: says("insert") || says("update") || says("delete") };
            let ours = row.access(nth, &Args::new(b"", &[]));
            let exact = !matches!(row.access, Access::ByFlags);
            if !ours.covers(theirs) || exact && ours != theirs {
                failures.push(format!("{name}: key {nth} {ours:?}, there {theirs:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
