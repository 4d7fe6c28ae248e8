//! COMMAND's description of the commands against a real Redis's: key specifications, tips, arguments. What clients and
//! proxies are built on must be the same. The grouping and the names of arguments are not compared.

use crate::harness::Harness;
use commands::table;
use flintkv_tests::Redis;
use resp::client::{Value, parse_value};
use std::collections::BTreeMap;

fn names() -> Vec<String> {
    let subcommands =
        table::all().flat_map(|row| row.subcommands.iter().map(|sub| format!("{}|{}", row.name, sub.name)));
    table::all().map(|row| row.name.to_owned()).chain(subcommands).collect()
}

fn here(words: &[&[u8]]) -> Value {
    parse_value(&Harness::new().reply(words)).unwrap().unwrap().0
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        other => panic!("an array: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(number) => number.to_string(),
        other => panic!("a text: {other:?}"),
    }
}

fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    items(map).chunks(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
}

fn sorted(value: &Value) -> String {
    let mut words: Vec<String> = items(value).iter().map(text).collect();
    words.sort();
    words.join(" ")
}

/// `flags @ where to look for them → how many`.
fn specs(value: &Value) -> Vec<String> {
    let way = |map: &Value| {
        let spec = field(map, "spec").unwrap();
        let pairs: BTreeMap<String, String> =
            items(spec).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        format!("{} {pairs:?}", text(field(map, "type").unwrap()))
    };
    let spec = |spec| {
        let part = |name| field(spec, name).unwrap();
        format!("{} @ {} → {}", sorted(part("flags")), way(part("begin_search")), way(part("find_keys")))
    };
    items(value).iter().map(spec).collect()
}

/// Tokens and the types of values, in order, and which may be left out or repeated.
fn arguments(value: &Value, found: &mut Vec<String>) {
    for arg in items(value) {
        let kind = text(field(arg, "type").unwrap());
        let token = field(arg, "token").map(text).filter(|token| !token.is_empty());
        match field(arg, "arguments") {
            Some(parts) => {
                found.extend(token);
                arguments(parts, found);
            }
            None if kind == "pure-token" => found.extend(token),
            None => {
                found.extend(token);
                let key_spec = field(arg, "key_spec_index").map_or(String::new(), |spec| format!("#{}", text(spec)));
                found.push(format!("{kind}{key_spec}"));
            }
        }
    }
}

/// The descriptions of commands on which the two servers differ.
fn differing(of: impl Fn(&str, &mut dyn FnMut(&[&[u8]]) -> Value) -> Option<String>) -> Vec<String> {
    let Some((mut redis, _server)) = Redis::connected(&[]) else { return Vec::new() };
    let mut differing = Vec::new();
    for name in names() {
        // `None`: newer than that server.
        let Some(theirs) = of(&name, &mut |words| redis.call(words)) else { continue };
        let ours = of(&name, &mut here).expect("it is there");
        if ours != theirs {
            differing.push(format!("{name}: {ours}\n    there {theirs}"));
        }
    }
    differing
}

#[test]
fn key_specifications_equal_redis_s() {
    let differing = differing(|name, ask| {
        let infos = ask(&[b"COMMAND", b"INFO", name.as_bytes()]);
        let Value::Array(info) = items(&infos).first()? else { return None };
        Some(specs(&info[8]).join("; "))
    });
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn tips_equal_redis_s() {
    let differing = differing(|name, ask| {
        let infos = ask(&[b"COMMAND", b"INFO", name.as_bytes()]);
        let Value::Array(info) = items(&infos).first()? else { return None };
        if name.starts_with("cluster|") {
            // This command's replies are always the same here.
            return None;
        }
        if name == "msetnx" {
            // Redis 7.2 has none: parts of it on several shards would not be one command.
            return None;
        }
        // Redis 7.2 has one more.
        let more = if matches!(name, "scan" | "randomkey") { "response_policy:special" } else { "" };
        Some(sorted(&info[7]).replace(more, "").split_whitespace().collect::<Vec<_>>().join(" "))
    });
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Commands whose arguments are described differently, and why.
const TOLD_OTHERWISE: [(&str, &str); 16] = [
    ("bitop", "all four operations are named"),
    ("pfdebug", "its subcommands are named"),
    ("hscan", "NOVALUES is of 7.4"),
    ("zrank", "WITHSCORE is of 7.2"),
    ("zrevrank", "WITHSCORE is of 7.2"),
    ("sort", "patterns have no key specification: they are not keys"),
    ("sort_ro", "as SORT"),
    ("migrate", "the empty key is named"),
    ("debug", "there is nothing"),
    ("psync", "more is taken, and refused"),
    ("replconf", "there is nothing"),
    ("replicaof", "NO ONE is a host and a port to the notation"),
    ("slaveof", "as REPLICAOF"),
    ("client|kill", "SLAVE is not told of, MAXAGE is, SKIPME's two words are named"),
    ("command|getkeys", "there is nothing"),
    ("command|getkeysandflags", "there is nothing"),
];

#[test]
fn arguments_have_redis_s_tokens_and_types() {
    let known = |name: &str| TOLD_OTHERWISE.iter().any(|(known, _)| name == *known);
    let (known, differing): (Vec<String>, Vec<String>) = differing(|name, ask| {
        let docs = ask(&[b"COMMAND", b"DOCS", name.as_bytes()]);
        let mut found = Vec::new();
        if let Some(args) = field(items(&docs).get(1)?, "arguments") {
            arguments(args, &mut found);
        }
        Some(found.join(" "))
    })
    .into_iter()
    .partition(|text| known(text.split_once(": ").map_or("", |(name, _)| name)));
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    // `None`: there is no server to compare with.
    assert!(known.is_empty() || known.len() == TOLD_OTHERWISE.len(), "some are told as in Redis: {known:?}");
}
