//! Owns comparing the copy with the source. Never changes either.

use std::time::Duration;

use resp::client::Value;
use survey::{Server, bytes};

use super::Ends;
use crate::failure::Failure;

/// A longer collection is compared by its length and its first elements only.
const ELEMENTS_MAX: &str = "999";
/// The source goes on changing: a key that differs is looked at again.
const TRIES: usize = 5;
const REST: Duration = Duration::from_millis(200);
/// Two clocks, and the way between them.
const EXPIRY_MS: i64 = 2_000;
const NAMED: usize = 5;

/// Brings the target nearer to the source.
type Approach<'a> = &'a mut dyn FnMut(&mut Ends) -> Result<(), Failure>;

/// What came of comparing one key.
enum Outcome {
    Same,
    Different,
    /// The source changes it again and again.
    Changing,
}

/// Compares the values of this many random keys.
pub fn compare(ends: &mut Ends, wanted: usize, approach: Approach<'_>) -> Result<String, Failure> {
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
            match outcome(ends, db, name, approach)? {
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
        return Ok(format!("{compared} random keys compared: all are the same{but}\n"));
    }
    let named = different.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let what = format!("{} of {compared} compared keys differ: {named}", different.len());
    Err(Failure::failed(what).hint("the copy is wrong, and nothing was switched: please report it"))
}

fn outcome(ends: &mut Ends, db: u32, name: &[u8], approach: Approach<'_>) -> Result<Outcome, Failure> {
    let mut is_changing = false;
    for _ in 0..TRIES {
        ends.source.select(db)?;
        ends.target.select(db)?;
        let before = look(&mut ends.source, name)?;
        let ours = look(&mut ends.target, name)?;
        if ours.is_near(&before) {
            return Ok(Outcome::Same);
        }
        std::thread::sleep(REST);
        is_changing = !look(&mut ends.source, name)?.is_near(&before);
        approach(ends)?;
    }
    Ok(if is_changing { Outcome::Changing } else { Outcome::Different })
}

/// What is compared of a key.
struct Seen {
    kind: Vec<u8>,
    ttl_ms: i64,
    length: Value,
    elements: Value,
}

impl Seen {
    fn is_near(&self, other: &Seen) -> bool {
        let is_near = match (self.ttl_ms, other.ttl_ms) {
            (one, another) if one < 0 || another < 0 => one == another,
            (one, another) => (one - another).abs() <= EXPIRY_MS,
        };
        is_near && self.kind == other.kind && self.length == other.length && self.elements == other.elements
    }
}

fn look(server: &mut Server, name: &[u8]) -> Result<Seen, Failure> {
    let kind = server.call(&[b"TYPE", name])?;
    let kind = bytes(&kind).unwrap_or_default().to_vec();
    let Value::Int(ttl_ms) = server.call(&[b"PTTL", name])? else {
        return Err(Failure::failed("PTTL answers no number"));
    };
    let last = ELEMENTS_MAX.as_bytes();
    let (length, elements): (&[u8], Vec<&[u8]>) = match &*kind {
        b"string" => (b"STRLEN", vec![b"GET", name]),
        b"list" => (b"LLEN", vec![b"LRANGE", name, b"0", last]),
        b"hash" => (b"HLEN", vec![b"HGETALL", name]),
        b"set" => (b"SCARD", vec![b"SMEMBERS", name]),
        b"zset" => (b"ZCARD", vec![b"ZRANGE", name, b"0", last, b"WITHSCORES"]),
        b"stream" => (b"XLEN", vec![b"XRANGE", name, b"-", b"+", b"COUNT", last]),
        _ => return Ok(Seen { kind, ttl_ms, length: Value::Null, elements: Value::Null }),
    };
    let length = server.call(&[length, name])?;
    let is_whole = matches!(length, Value::Int(count) if count.to_string().len() <= ELEMENTS_MAX.len());
    // The order of these differs from server to server.
    let is_unordered = matches!(&*kind, b"hash" | b"set");
    let elements = match is_whole || !is_unordered {
        true => sorted(server.call(&elements)?, &kind),
        false => Value::Null,
    };
    Ok(Seen { kind, ttl_ms, length, elements })
}

fn sorted(value: Value, kind: &[u8]) -> Value {
    let Value::Array(values) = value else { return value };
    let step = match kind {
        b"hash" => 2,
        b"set" => 1,
        _ => return Value::Array(values),
    };
    let mut rows: Vec<Vec<Value>> = values.chunks(step).map(<[Value]>::to_vec).collect();
    rows.sort_by(|one, other| bytes(&one[0]).cmp(&bytes(&other[0])));
    Value::Array(rows.concat())
}

/// Compares how many keys both have.
pub fn counts(ends: &mut Ends) -> Result<String, Failure> {
    let (theirs, ours) = (ends.source.keys()?, ends.target.keys()?);
    let only = ends.from.db;
    let sum = |keys: &std::collections::BTreeMap<u32, u64>| {
        keys.iter().filter(|(db, _)| only.is_none_or(|only| only == **db)).map(|(_, count)| count).sum::<u64>()
    };
    let (theirs, ours) = (sum(&theirs), sum(&ours));
    Ok(match theirs == ours {
        true => format!("{ours} keys, as many as the source has\n"),
        // Keys that have expired are counted until they are removed, and each server removes them in its own time.
        false => {
            format!("{ours} keys; the source has {theirs} (each server counts expired keys until it removes them)\n")
        }
    })
}
