//! Owns the comparison of replies and of datasets: which ones count as the same. Never knows where replies come from.

use crate::{Client, one_line};
use resp::client::{Value, encode_command, parse_value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Asserts that two servers have the same keys, with the same values, expiries and consumer groups, and the same functions.
pub fn assert_same_dataset(ours: &mut Client, theirs: &mut Client) {
    let [our_keys, their_keys] = [&mut *ours, &mut *theirs].map(dataset);
    assert_same(&our_keys, &their_keys, "two servers");
    assert_eq!(ours.run("FUNCTION LIST"), theirs.run("FUNCTION LIST"));
}

/// How much of each of two values is shown.
const SHOWN_CHARS: usize = 3000;

/// Asserts that two datasets are equal, in whatever form their keys and values are. Shows every key that differs.
pub fn assert_same<K: Ord + Debug, V: PartialEq + Debug>(ours: &BTreeMap<K, V>, theirs: &BTreeMap<K, V>, what: &str) {
    let differs = |key: &&K| ours.get(*key) != theirs.get(*key);
    let keys: BTreeSet<&K> = ours.keys().chain(theirs.keys()).filter(differs).collect();
    let shown = |value: Option<&V>| format!("{value:?}").chars().take(SHOWN_CHARS).collect::<String>();
    let shown = keys.iter().map(|key| format!("{key:?}\n  {}\n  {}\n", shown(ours.get(*key)), shown(theirs.get(*key))));
    assert!(keys.is_empty(), "{what}: {} keys differ\n{}", keys.len(), shown.collect::<String>());
}

/// All keys with their logical databases, and for each its value in some form, its type, its expiry and its consumer groups.
pub fn dataset(client: &mut Client) -> BTreeMap<(u32, String), [String; 4]> {
    let mut all = BTreeMap::new();
    for db in 0..16 {
        client.run(&format!("SELECT {db}"));
        for key in client.scan(&[b"SCAN"], &[b"COUNT", b"1000"]).unwrap() {
            let kind = client.words(&[b"TYPE", &key]);
            let value = match kind.as_str() {
                // Redis 7.0 has another form of scores, also in a digest.
                "zset" => numbers(&client.words(&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"])),
                _ => client.words(&[b"DEBUG", b"DIGEST-VALUE", &key]),
            };
            let groups = client.words(&[b"XINFO", b"GROUPS", &key]);
            let expiry = client.words(&[b"PEXPIRETIME", &key]);
            all.insert((db, key.escape_ascii().to_string()), [value, kind, expiry, groups]);
        }
    }
    client.run("SELECT 0");
    all
}

/// No key expires from now on: two datasets that are compared must not change by the clock.
pub fn keep_keys(client: &mut Client) {
    for db in 0..16 {
        client.run(&format!("SELECT {db}"));
        for key in client.scan(&[b"SCAN"], &[b"COUNT", b"1000"]).unwrap() {
            if !client.words(&[b"PTTL", &key]).starts_with("(integer) -") {
                client.call(&[b"PEXPIREAT", &key, b"4000000000000"]);
            }
        }
    }
    client.run("SELECT 0");
}

/// A reply with its numbers in one form.
fn numbers(reply: &str) -> String {
    let parts = reply.split('"').map(|part| part.parse().map_or(part.to_owned(), |number: f64| format!("{number:?}")));
    parts.collect::<Vec<_>>().join("\"")
}

/// Whether the "redis-server" that was found is Valkey: see `scripts/valkey.sh`.
pub fn is_valkey(client: &mut Client) -> bool {
    client.run("INFO server").contains("server_name:valkey")
}

/// Whether a server's digests have scores in another form: those of Redis before 7.2. Those of Valkey were never compared.
pub fn has_other_digests(client: &mut Client) -> bool {
    let version = client.info("server", "redis_version");
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (7, 2) || is_valkey(client)
}

/// The tolerated difference of times, because of two clocks and of a busy machine.
const CLOCKS_MS_MAX: i64 = 10_000;

/// An intended difference between the servers.
struct Known {
    /// The replies of both servers, as patterns with one `*`.
    ours: &'static str,
    theirs: &'static str,
    /// The reason, for the reader.
    #[allow(dead_code, reason = "for the reader")]
    because: &'static str,
}

/// FlintKV follows Redis 7.2; Debian's redis-server is 7.0.
const KNOWN: &[Known] = &[
    Known {
        ours: "(error) ERR Invalid *",
        theirs: "(error) ERR wrong number of arguments for 'command|getkeys' command",
        because: "7.2 takes COMMAND GETKEYS of a command without arguments and judges that command's own arity",
    },
    Known {
        ours: "(error) ERR Unbalanced 'xread*",
        theirs: "(error) ERR Unbalanced XREAD list of streams: *",
        because: "7.2 names the command",
    },
    Known {
        ours: "\"int\"",
        theirs: "\"embstr\"",
        because: "Redis leaves the result of INCRBYFLOAT as text, here every number that fits is one",
    },
    Known {
        ours: "\"listpack\"",
        theirs: "\"hashtable\"",
        because: "small sets that are not integers are packed since 7.2",
    },
    Known {
        ours: "(error) ERR timeout is out of range",
        theirs: "(error) ERR timeout is negative",
        because: "a timeout beyond 2^63 ms does not overflow since 7.2",
    },
    Known {
        ours: "(error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        theirs: "*",
        because: "7.2 refuses a rank for LPOS whose sign cannot be turned",
    },
    Known {
        ours: "*",
        theirs: "(error) ERR One or more scores can't be converted into double",
        because: "Redis takes an earlier command's range error for one of SORT's numbers (errno is not reset)",
    },
    Known {
        ours: "\"listpack\"",
        theirs: "\"skiplist\"",
        because: "Redis unpacks a sorted set for good when SORT reads it; here reading changes nothing",
    },
    Known { ours: "\"listpack\"", theirs: "\"quicklist\"", because: "small lists are one listpack since 7.2" },
    Known {
        ours: "*",
        theirs: "(error) ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        because: "LCS takes less memory here",
    },
];

fn parsed(bytes: &[u8]) -> Value {
    parse_value(bytes).expect("well formed").expect("whole").0
}

/// `None`: the replies are the same, as far as this command's replies can be.
pub fn difference(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    value_difference(words, &parsed(ours), &parsed(theirs))
}

/// Like [`difference`], for EXEC's reply and the commands that were queued.
pub fn exec_difference(queued: &[Vec<Vec<u8>>], ours: &[u8], theirs: &[u8]) -> Option<String> {
    let (ours, theirs) = (parsed(ours), parsed(theirs));
    let (Value::Array(ours), Value::Array(theirs)) = (&ours, &theirs) else {
        return value_difference(&[b"EXEC".to_vec()], &ours, &theirs);
    };
    if ours.len() != queued.len() || theirs.len() != queued.len() {
        return Some(format!("{} queued, {} replies of FlintKV, {} of Redis", queued.len(), ours.len(), theirs.len()));
    }
    let mut each = queued.iter().zip(ours.iter().zip(theirs));
    each.find_map(|(words, (ours, theirs))| {
        let difference = value_difference(words, ours, theirs)?;
        Some(format!("{}: {difference}", words.join(&b' ').escape_ascii()))
    })
}

/// The outcome of a command that both servers got.
pub struct Compared {
    /// The second server answered with an error.
    pub is_error: bool,
    pub difference: Option<String>,
}

/// Sends the same pipeline to both servers, and compares the replies. Shorter than the pipeline: the first server has closed the
/// connection. If replies differ by design, both are emptied behind it, so that they are equal again.
pub fn compare_pipeline(ours: &mut Client, theirs: &mut Client, pipeline: &[Vec<Vec<u8>>]) -> Vec<Compared> {
    let mut bytes = Vec::new();
    for words in pipeline {
        encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
    }
    ours.send(&bytes);
    theirs.send(&bytes);
    let (mut compared, mut queued, mut apart) = (Vec::new(), Vec::new(), false);
    for words in pipeline {
        let reply = theirs.raw().expect("the second server keeps the connection");
        let Some(our_reply) = ours.raw() else { return compared };
        apart |= differs_by_design(words, &our_reply, &reply);
        let difference = match &words[0][..] {
            b"EXEC" => exec_difference(&queued, &our_reply, &reply),
            _ => difference(words, &our_reply, &reply),
        };
        match &words[0][..] {
            b"MULTI" => queued.clear(),
            _ if reply == b"+QUEUED\r\n" => queued.push(words.clone()),
            _ => {}
        }
        compared.push(Compared { is_error: reply[0] == b'-', difference: difference.filter(|_| !apart) });
    }
    if apart {
        // DISCARD, because the differing command may have been in a transaction.
        for words in [&[&b"DISCARD"[..]][..], &[b"FLUSHALL"]] {
            ours.call(words);
            theirs.call(words);
        }
    }
    compared
}

/// The beginning of Redis's error for an invalid HyperLogLog.
const CORRUPT: &[u8] = b"INVALIDOBJ ";

/// After such a command the datasets differ. PFADD of several elements to a corrupt HyperLogLog: Redis keeps those that
/// came before the error, and FlintKV, where a command that ends in an error has changed nothing, keeps none.
pub fn differs_by_design(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let may_change = [&b"PFADD"[..], b"EXEC", b"EVAL"].iter().any(|name| words[0].eq_ignore_ascii_case(name));
    let is_corrupt = |reply: &[u8]| reply.windows(CORRUPT.len()).any(|window| window == CORRUPT);
    may_change && is_corrupt(ours) && is_corrupt(theirs)
}

fn value_difference(words: &[Vec<u8>], ours: &Value, theirs: &Value) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let name = |at: usize| words.get(at).map_or(String::new(), |word| String::from_utf8_lossy(word).to_uppercase());
    let both_ints = matches!((ours, theirs), (Value::Int(_), Value::Int(_)));
    let both_errors = matches!((ours, theirs), (Value::Error(_), Value::Error(_)));
    let same = match (name(0).as_str(), name(1).as_str()) {
        // Redis 7.2 checks the arguments before it looks up the key.
        ("BITCOUNT" | "BITPOS", _) => {
            let (wrong_type, none) = (one_line(theirs).contains("WRONGTYPE"), [Value::Int(0), Value::Int(-1)]);
            matches!(ours, Value::Error(_)) && (wrong_type || none.contains(theirs))
        }
        // Errors are text here. Redis quotes the client's bytes up to the first NUL; FlintKV escapes bytes that are not
        // text. Redis also reads a cursor only up to a NUL.
        _ if !words.iter().flatten().all(|byte| matches!(byte, b' '..=b'~'))
            && (both_errors || name(0).ends_with("SCAN")) =>
        {
            code(ours) == code(theirs) || name(0).ends_with("SCAN")
        }
        // Whole scans, of one call each, in any order.
        ("HSCAN" | "SSCAN" | "ZSCAN", _)
            if words.get(2).is_some_and(|cursor| cursor == b"0") && is_whole_scan(ours) && is_whole_scan(theirs) =>
        {
            scanned(&name(0), ours) == scanned(&name(0), theirs)
        }
        // A cursor that no SCAN returned guarantees nothing. Random replies are checked elsewhere.
        ("SCAN" | "HSCAN" | "SSCAN" | "ZSCAN" | "HRANDFIELD", _) => {
            !matches!(ours, Value::Error(_)) && !matches!(theirs, Value::Error(_))
        }
        ("COMMAND", "") => true,
        // Redis makes a string raw before it finds that the string is not a valid HyperLogLog.
        ("OBJECT", "ENCODING") => {
            [ours, theirs].iter().all(|name| ["\"embstr\"", "\"raw\""].contains(&one_line(name).as_str()))
        }
        ("XINFO", _) => same_description(ours, theirs),
        ("XPENDING", _) => without_times(ours) == without_times(theirs),
        // For truncated runs, Redis shows one more, made of the bytes after the string.
        ("ZRANDMEMBER", _) => {
            sorted_scores(ours) == sorted_scores(theirs) || sorted(ours.clone()) == sorted(theirs.clone())
        }
        ("PFDEBUG", _) => one_line(theirs).starts_with(one_line(ours).trim_end_matches('"')),
        // Redis shares small integers and reports an endless reference count for them.
        ("OBJECT", "REFCOUNT") => both_ints,
        // Redis measures an expired key until it has noticed the expiry.
        ("MEMORY", "USAGE") => both_ints || [ours, theirs].contains(&&Value::Null),
        // Each server counts expired keys until it has noticed them.
        ("DBSIZE", _) => both_ints,
        ("HGETALL" | "CONFIG", _) => sorted_pairs(ours.clone()) == sorted_pairs(theirs.clone()),
        ("HKEYS" | "HVALS" | "KEYS" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "SPOP" | "SRANDMEMBER", _) => {
            sorted(ours.clone()) == sorted(theirs.clone())
        }
        // A set's own order is arbitrary.
        ("SORT", _) if words.iter().any(|word| ["nosort", "#", ""].iter().any(|by| word == by.as_bytes())) => {
            sorted(ours.clone()) == sorted(theirs.clone())
        }
        ("TTL" | "EXPIRETIME", _) => near(ours, theirs, CLOCKS_MS_MAX / 1000),
        ("PTTL" | "PEXPIRETIME", _) => near(ours, theirs, CLOCKS_MS_MAX),
        ("CLIENT", "ID") | ("SLOWLOG", "LEN") | ("COMMAND", "COUNT") | ("OBJECT", "IDLETIME") => both_ints,
        ("TIME", _) | ("HELLO", _) => shape(ours) == shape(theirs),
        // Scores are printed differently.
        (name, _) if name.starts_with('Z') || name.starts_with("BZ") => {
            one_line(&with_short_scores(ours)) == one_line(&with_short_scores(theirs))
        }
        _ => false,
    };
    let (ours, theirs) = (one_line(ours), one_line(theirs));
    let known = KNOWN.iter().any(|known| fits(known.ours, &ours) && fits(known.theirs, &theirs));
    (!same && !known).then(|| format!("FlintKV: {ours}\nRedis:   {theirs}"))
}

/// `ERR unknown command`: the first words of an error, before anything that it quotes.
fn code(error: &Value) -> String {
    one_line(error).split(['\'', ':']).next().unwrap_or_default().to_owned()
}

fn near(ours: &Value, theirs: &Value, tolerance: i64) -> bool {
    match (ours, theirs) {
        // -1 and -2 are not times.
        (&Value::Int(ours), &Value::Int(theirs)) => ours >= 0 && theirs >= 0 && (ours - theirs).abs() <= tolerance,
        _ => false,
    }
}

/// The number of elements of an aggregate, and whether the reply is an error.
fn shape(value: &Value) -> (&'static str, usize) {
    match value {
        Value::Error(_) => ("error", 0),
        // HELLO lists the modules, TIME has two numbers.
        Value::Array(values) => ("array", values.len()),
        Value::Map(pairs) => ("map", pairs.len()),
        _ => ("other", 0),
    }
}

pub fn sorted(value: Value) -> Vec<String> {
    let mut all: Vec<String> = match &value {
        Value::Array(values) | Value::Set(values) => values.iter().map(one_line).collect(),
        other => vec![one_line(other)],
    };
    all.sort_unstable();
    all
}

pub fn sorted_pairs(value: Value) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = match &value {
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (one_line(field), one_line(value))).collect(),
        Value::Array(values) if values.len().is_multiple_of(2) => {
            values.chunks(2).map(|pair| (one_line(&pair[0]), one_line(&pair[1]))).collect()
        }
        other => vec![(one_line(other), String::new())],
    };
    pairs.sort_unstable();
    pairs
}

fn is_whole_scan(reply: &Value) -> bool {
    matches!(reply, Value::Array(parts) if parts[0] == Value::Bulk(b"0".to_vec()))
}

/// The elements that a scan found, sorted, each once: a scan may repeat some.
fn scanned(command: &str, reply: &Value) -> Vec<String> {
    let Value::Array(parts) = reply else { return vec![one_line(reply)] };
    let mut elements = match command {
        "ZSCAN" => sorted_scores(&parts[1]),
        "HSCAN" => {
            sorted_pairs(parts[1].clone()).into_iter().map(|(field, value)| format!("{field}: {value}")).collect()
        }
        _ => sorted(parts[1].clone()),
    };
    elements.dedup();
    elements
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
        None => pattern == text,
    }
}

/// The reply, with its scores as numbers: 7.0 prints them with 17 digits, 7.2 with the shortest text. Only Redis's
/// unpacked form has a minus zero, and SORT unpacks in Redis but not here.
fn with_short_scores(value: &Value) -> Value {
    let all = |values: &[Value]| values.iter().map(with_short_scores).collect();
    match value {
        Value::Bulk(text) => match std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()) {
            Some(number) => Value::Double(number + 0.0),
            None => value.clone(),
        },
        Value::Array(values) => Value::Array(all(values)),
        Value::Double(number) => Value::Double(number + 0.0),
        other => other.clone(),
    }
}

/// Members with their scores, sorted. In RESP3 each pair is an array of its own.
pub fn sorted_scores(value: &Value) -> Vec<String> {
    let Value::Array(items) = with_short_scores(value) else { return vec![one_line(value)] };
    let mut pairs: Vec<String> = match items.first() {
        Some(Value::Array(_)) => items.iter().map(one_line).collect(),
        _ => items
            .chunks(2)
            .map(|pair| format!("[{}]", pair.iter().map(one_line).collect::<Vec<_>>().join(", ")))
            .collect(),
    };
    pairs.sort_unstable();
    pairs
}

/// Fields that 7.2 added to descriptions, and fields that always differ: times and the shape of a radix tree.
const LEFT_OUT: [&str; 6] =
    ["\"inactive\"", "\"active-time\"", "\"idle\"", "\"seen-time\"", "\"radix-tree-nodes\"", "\"radix-tree-keys\""];

/// Whether the replies of XINFO agree. Before 7.4, Redis may report a negative lag: it overlooks a deleted entry before
/// the first remaining one but after the group's last id (redis/redis#13338).
fn same_description(ours: &Value, theirs: &Value) -> bool {
    let (ours, theirs) = (described(ours), described(theirs));
    let is_lag = |at: usize| at > 0 && theirs[at - 1] == "\"lag\"" && theirs[at].starts_with("(integer) -");
    ours.len() == theirs.len() && (0..ours.len()).all(|at| ours[at] == theirs[at] || is_lag(at))
}

/// XINFO's replies without those fields.
fn described(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    describe(value, &mut lines);
    lines
}

fn describe(value: &Value, lines: &mut Vec<String>) {
    let mut pairs = |pairs: &[(&Value, &Value)]| {
        for (name, value) in pairs {
            let name = one_line(name);
            if name == "\"pending\"" && matches!(value, Value::Array(_)) {
                lines.push(format!("pending {}", without_times(value)));
            } else if !LEFT_OUT.contains(&name.as_str()) {
                lines.push(name);
                describe(value, lines);
            }
        }
    };
    match value {
        Value::Map(map) => pairs(&map.iter().map(|(name, value)| (name, value)).collect::<Vec<_>>()),
        Value::Array(items) => match items.first() {
            Some(Value::Bulk(name)) if [&b"name"[..], b"length"].contains(&&name[..]) => {
                pairs(&items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect::<Vec<_>>());
            }
            _ => {
                lines.push(format!("{} items", items.len()));
                items.iter().for_each(|item| describe(item, lines));
            }
        },
        other => lines.push(one_line(other)),
    }
}

/// Pending entries without the times of delivery or idleness: the last but one of four fields, the second of three.
fn without_times(value: &Value) -> String {
    let Value::Array(entries) = value else { return one_line(value) };
    let entries = entries.iter().map(|entry| match entry {
        Value::Array(parts) if matches!(parts.len(), 3 | 4) => {
            let time = parts.len() - 2;
            let rest = parts.iter().enumerate().filter(|(at, _)| *at != time).map(|(_, part)| one_line(part));
            rest.collect::<Vec<_>>().join(" ")
        }
        other => one_line(other),
    });
    entries.collect::<Vec<_>>().join("; ")
}
