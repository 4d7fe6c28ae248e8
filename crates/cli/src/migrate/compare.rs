//! Owns the comparison of the copy with the source. Never changes either.

use std::ops::Range;
use std::time::{Duration, Instant};

use resp::client::Value;
use survey::{Server, bytes};

use super::{Ends, beside};
use crate::failure::Failure;

/// A longer collection is compared by its length and its first elements only.
const ELEMENTS_MAX: &str = "999";
/// How often a key that differs is read again, because the source keeps changing.
const TRIES: usize = 5;
const REST: Duration = Duration::from_millis(200);
/// The tolerated difference of expiry times, because the two servers have different clocks.
const EXPIRY: Duration = Duration::from_secs(2);
const NAMED: usize = 5;
/// The first bytes of a HyperLogLog, and the position of its cached count: PFCOUNT changes the cached count without a
/// change of the value.
const HYPERLOGLOG: &[u8] = b"HYLL";
const COUNT_CACHE: Range<usize> = 8..16;

/// Waits until the target has everything that the source has now.
type Reach<'a> = &'a mut dyn FnMut(&mut Ends) -> Result<(), Failure>;

/// The result of the comparison of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Same,
    Different,
    /// The source changed the key between all attempts.
    Changing,
}

/// Compares the functions, and the values of this many random keys.
pub fn compare(ends: &mut Ends, wanted: usize, reach: Reach<'_>) -> Result<String, Failure> {
    let functions = functions(ends, reach)?;
    let (mut compared, mut changing, mut different) = (0, 0, Vec::new());
    let databases = ends.source.keys()?;
    let all: u64 = databases.values().sum();
    for (&db, &of_it) in &databases {
        if ends.from.db.is_some_and(|only| only != db) {
            continue;
        }
        let share = (wanted as u64 * of_it).div_ceil(all.max(1)).min(of_it);
        for _ in 0..share {
            ends.check()?;
            ends.source.select(db)?;
            let name = ends.source.call(&[b"RANDOMKEY"])?;
            let Some(name) = bytes(&name) else { break };
            compared += 1;
            match outcome(ends, db, name, reach)? {
                Outcome::Same => {}
                Outcome::Different => different.push(String::from_utf8_lossy(name).into_owned()),
                Outcome::Changing => changing += 1,
            }
        }
    }
    if different.is_empty() {
        let but = match changing {
            0 => String::new(),
            _ => format!(", but {changing} that the source was changing"),
        };
        return Ok(format!("{compared} random keys compared: all are the same{but}\n{functions}"));
    }
    let named = different.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let what = format!("{} of {compared} compared keys differ: {named}", different.len());
    Err(Failure::failed(what).hint("the copy is wrong, and nothing was switched: please report this"))
}

fn functions(ends: &mut Ends, reach: Reach<'_>) -> Result<String, Failure> {
    for _ in 0..TRIES {
        match beside::are_same(ends)? {
            None => return Ok(String::new()),
            Some((true, count)) => return Ok(format!("{count} libraries of functions: the same\n")),
            Some((false, _)) => reach(ends)?,
        }
    }
    Err(Failure::failed("the target has other functions than the source, and nothing was switched")
        .hint("compare FUNCTION LIST of both"))
}

fn outcome(ends: &mut Ends, db: u32, name: &[u8], reach: Reach<'_>) -> Result<Outcome, Failure> {
    ends.source.select(db)?;
    ends.target.select(db)?;
    let (source, target) = (look(&mut ends.source, name)?, look(&mut ends.target, name)?);
    if target.is_near(&source) {
        return Ok(Outcome::Same);
    }
    // Changes of the source may still be in transit. So the target is brought up to date between two reads of the
    // source.
    let mut is_changing = false;
    for _ in 0..TRIES {
        ends.source.select(db)?;
        let before = look(&mut ends.source, name)?;
        reach(ends)?;
        ends.source.select(db)?;
        ends.target.select(db)?;
        let target = look(&mut ends.target, name)?;
        let after = look(&mut ends.source, name)?;
        match judge(&before, &target, &after) {
            Outcome::Same => return Ok(Outcome::Same),
            Outcome::Changing => is_changing = true,
            // The key may have changed and changed back, so a difference counts only if all attempts show it.
            Outcome::Different => {}
        }
        std::thread::sleep(REST);
    }
    Ok(if is_changing { Outcome::Changing } else { Outcome::Different })
}

/// Judges one attempt: `target` was read after `before` and before `after`, and had applied everything that the source
/// had at `before`.
fn judge(before: &Seen, target: &Seen, after: &Seen) -> Outcome {
    if target.is_near(before) || target.is_near(after) {
        Outcome::Same
    } else if before.is_near(after) {
        Outcome::Different
    } else {
        Outcome::Changing
    }
}

/// The properties of a key that are compared.
struct Seen {
    kind: Vec<u8>,
    /// The expiry time by this process's clock, so that the answers of both servers can be compared.
    expires: Option<Instant>,
    /// The uncertainty of that time, which is the duration of the query.
    about: Duration,
    at: Instant,
    length: Value,
    elements: Value,
}

impl Seen {
    fn is_near(&self, other: &Seen) -> bool {
        let may_be_apart = EXPIRY + self.about + other.about;
        match (self.is_there(), other.is_there()) {
            (false, false) => return true,
            // One of the servers may have expired the key a moment before the other.
            (true, false) => return self.expires.is_some_and(|expires| expires <= other.at + may_be_apart),
            (false, true) => return other.is_near(self),
            (true, true) => {}
        }
        let is_near = match (self.expires, other.expires) {
            (Some(one), Some(another)) => one.max(another) - one.min(another) <= may_be_apart,
            (one, another) => one == another,
        };
        is_near && self.kind == other.kind && self.length == other.length && self.elements == other.elements
    }

    fn is_there(&self) -> bool {
        self.kind != b"none"
    }
}

fn look(server: &mut Server, name: &[u8]) -> Result<Seen, Failure> {
    let begun = Instant::now();
    let replies = server.pipeline([vec![&b"TYPE"[..], name], vec![&b"PTTL"[..], name]])?;
    let at = Instant::now();
    let (Some(kind), Some(Value::Int(ttl_ms))) = (bytes(&replies[0]), replies.get(1)) else {
        let error = replies.iter().find_map(|reply| if let Value::Error(text) = reply { Some(&**text) } else { None });
        return Err(server.refused("TYPE or PTTL", error.unwrap_or(b"the answer has an unexpected form")).into());
    };
    let kind = if *ttl_ms == -2 { b"none".to_vec() } else { kind.to_vec() };
    let expires = u64::try_from(*ttl_ms).ok().and_then(|ttl_ms| at.checked_add(Duration::from_millis(ttl_ms)));
    let last = ELEMENTS_MAX.as_bytes();
    let (length, elements): (&[u8], Vec<&[u8]>) = match &*kind {
        b"string" => (b"STRLEN", vec![b"GET", name]),
        b"list" => (b"LLEN", vec![b"LRANGE", name, b"0", last]),
        b"hash" => (b"HLEN", vec![b"HGETALL", name]),
        b"set" => (b"SCARD", vec![b"SMEMBERS", name]),
        b"zset" => (b"ZCARD", vec![b"ZRANGE", name, b"0", last, b"WITHSCORES"]),
        b"stream" => (b"XLEN", vec![b"XRANGE", name, b"-", b"+", b"COUNT", last]),
        _ => return Ok(Seen { kind, expires, about: at - begun, at, length: Value::Null, elements: Value::Null }),
    };
    let length = server.call(&[length, name])?;
    let is_whole = matches!(length, Value::Int(count) if count.to_string().len() <= ELEMENTS_MAX.len());
    // The order of the members of these types differs between servers.
    let is_unordered = matches!(&*kind, b"hash" | b"set");
    let elements = match is_whole || !is_unordered {
        true => comparable(server.call(&elements)?, &kind),
        false => Value::Null,
    };
    Ok(Seen { kind, expires, about: at - begun, at, length, elements })
}

/// Removes the parts of a reply that may differ between two servers that have the same value.
fn comparable(value: Value, kind: &[u8]) -> Value {
    match (value, kind) {
        (Value::Bulk(mut text), b"string") if text.starts_with(HYPERLOGLOG) && text.len() >= COUNT_CACHE.end => {
            text[COUNT_CACHE].fill(0);
            Value::Bulk(text)
        }
        (Value::Array(values), b"hash") => sorted(&values, 2),
        (Value::Array(values), b"set") => sorted(&values, 1),
        (Value::Array(mut values), b"zset") => {
            // Redis before 7.2 shows 0.1 with seventeen digits.
            values.iter_mut().skip(1).step_by(2).for_each(|score| {
                let number = bytes(score).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                if let Some(number) = number {
                    *score = Value::Double(number);
                }
            });
            Value::Array(values)
        }
        (value, _) => value,
    }
}

fn sorted(values: &[Value], step: usize) -> Value {
    let mut rows: Vec<Vec<Value>> = values.chunks(step).map(<[Value]>::to_vec).collect();
    rows.sort_by(|one, other| bytes(&one[0]).cmp(&bytes(&other[0])));
    Value::Array(rows.concat())
}

/// Compares the number of keys of both.
pub fn counts(ends: &mut Ends) -> Result<String, Failure> {
    let (theirs, ours) = (ends.source.keys()?, ends.target.keys()?);
    let only = ends.from.db;
    let sum = |keys: &std::collections::BTreeMap<u32, u64>| {
        keys.iter().filter(|(db, _)| only.is_none_or(|only| only == **db)).map(|(_, count)| count).sum::<u64>()
    };
    let (theirs, ours) = (sum(&theirs), sum(&ours));
    Ok(match theirs == ours {
        true => format!("{ours} keys, as many as the source has\n"),
        // Expired keys are counted until they are removed, and the servers remove them at different times.
        false => {
            format!("{ours} keys; the source has {theirs} (each server counts expired keys until it removes them)\n")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: &str, expires: Option<Instant>, at: Instant, elements: Value) -> Seen {
        Seen { kind: kind.into(), expires, about: Duration::ZERO, at, length: Value::Null, elements }
    }

    fn text(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn only_a_key_that_the_source_leaves_alone_differs() {
        let now = Instant::now();
        let one = |value: &str| seen("string", None, now, text(value));
        // The target had not received the change yet.
        assert_eq!(judge(&one("1"), &one("1"), &one("2")), Outcome::Same);
        // The target had already received the change.
        assert_eq!(judge(&one("1"), &one("2"), &one("2")), Outcome::Same);
        // It was changed twice.
        assert_eq!(judge(&one("1"), &one("2"), &one("3")), Outcome::Changing);
        assert_eq!(judge(&one("1"), &one("2"), &one("1")), Outcome::Different);
    }

    #[test]
    fn an_expiry_may_be_a_little_off_and_a_key_be_gone_a_little_earlier() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let key = |ends: u32| seen("string", Some(now + ends * second), now, text("v"));
        let (gone, lasting) = (seen("none", None, now, Value::Null), seen("string", None, now, text("v")));
        assert!(key(10).is_near(&key(11)) && key(11).is_near(&key(10)) && gone.is_near(&gone));
        assert!(!key(10).is_near(&key(13)) && !key(10).is_near(&lasting) && !lasting.is_near(&key(10)));
        assert!(key(1).is_near(&gone) && gone.is_near(&key(1)));
        assert!(!key(10).is_near(&gone) && !gone.is_near(&key(10)) && !lasting.is_near(&gone));
        // An answer that took long has a larger uncertainty.
        let vague = Seen { about: 3 * second, ..key(10) };
        assert!(vague.is_near(&key(14)) && key(14).is_near(&vague));
    }

    #[test]
    fn the_same_value_looks_the_same_on_any_server() {
        let list = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
        let same = |kind: &str, one: Value, other: Value| {
            comparable(one, kind.as_bytes()) == comparable(other, kind.as_bytes())
        };
        assert!(same("hash", list(&["a", "1", "b", "2"]), list(&["b", "2", "a", "1"])));
        assert!(!same("hash", list(&["a", "1", "b", "2"]), list(&["b", "1", "a", "2"])));
        assert!(same("set", list(&["a", "b"]), list(&["b", "a"])));
        assert!(!same("list", list(&["a", "b"]), list(&["b", "a"])));
        assert!(same("zset", list(&["m", "0.10000000000000001"]), list(&["m", "0.1"])));
        assert!(same("zset", list(&["m", "-inf", "n", "1e+20"]), list(&["m", "-inf", "n", "100000000000000000000"])));
        assert!(!same("zset", list(&["m", "0.1"]), list(&["m", "0.2"])));
        // PFCOUNT has stored its count in one of them.
        let (counted, stale) = ("HYLL\x01\0\0\0\x07\0\0\0\0\0\0\0reg", "HYLL\x01\0\0\0\x05\0\0\0\0\0\0\x7freg");
        assert!(same("string", text(counted), text(stale)));
        assert!(!same("string", text(counted), text(&stale.replace("reg", "gre"))));
    }
}
