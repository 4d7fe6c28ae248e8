//! Owns reading keys and values, one page at a time, whatever their size. Never changes a key. Listing keys reads no
//! values.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{self, Link, bytes, items, number as int};
use crate::route::{Answer, Param, Route, number, one, text};
use crate::scan::{Filter, SCAN_STEP, SCAN_TIME, Slice, slice};
use crate::text::{Bytes, shown};
use base::glob;
use resp::client::Value;
use serde::Serialize;
use std::time::Instant;
use utoipa::ToSchema;

/// At most this much of a string is shown, from the offset on.
const STRING_BYTES_MAX: u64 = 64 << 10;
/// How many bytes a step of a search reads from a list or a stream, estimated with the mean size of a member.
const STEP_BYTES: u64 = 1 << 20;
/// A page of a search is full when it has so many bytes, even if it has few members.
const FOUND_BYTES_MAX: usize = 2 << 20;
/// If the reply of a step was too large, the step is tried again with so many times fewer members: 500, 22, 1.
const SMALLER_STEP: u64 = 22;

pub const KEY: &[Param] = &[
    text("key", "the key, if it is UTF-8"),
    text("key64", "otherwise the key in base64url"),
    number("db", "logical database; default 0"),
];

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/databases/{name}/keys",
        tag: "Keys",
        summary: "A page of keys. Continue with the cursor until it is 0; an empty page need not be the last one.",
        query: &[
            text("cursor", "0 to begin"),
            text("pattern", "glob, as in SCAN MATCH"),
            text("type", "string, list, set, hash, zset or stream"),
            number("count", "number of keys, 1 to 1000; default 100"),
            number("db", "logical database; default 0"),
        ],
        reply: Answer::Json(one::<KeyPage>),
        run: scan,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/key",
        tag: "Keys",
        summary: "One key and a page of its value. For the next page, use next as the offset.",
        query: &[
            text("key", "the key, if it is UTF-8"),
            text("key64", "otherwise the key in base64url"),
            number("db", "logical database; default 0"),
            text("offset", "next of the previous page"),
            number("count", "number of members, 1 to 1000; default 100"),
            text(
                "match",
                "glob: only these fields of a hash, members of a set or sorted set, elements of a list, fields or values of a stream",
            ),
            text("from", "of a stream: only entries with this id or a later one"),
            text("to", "of a stream: only entries with this id or an earlier one"),
        ],
        reply: Answer::Json(one::<KeyView>),
        run: |cx| view(cx, &cx.key()?).and_then(|view| Reply::json(&view)),
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct KeyPage {
    cursor: String,
    keys: Vec<KeyInfo>,
    /// Entries looked at, about.
    scanned: u64,
}

#[derive(Serialize, ToSchema)]
struct KeyInfo {
    key: Bytes,
    #[serde(rename = "type")]
    kind: String,
    /// null: it does not expire.
    ttl_ms: Option<i64>,
    /// In RAM; null while the value is on flash, which is not read for its size.
    bytes: Option<i64>,
    /// As OBJECT ENCODING says; empty while the value is on flash.
    encoding: String,
    /// ram or flash.
    tier: String,
}

#[derive(Serialize, ToSchema)]
pub struct KeyView {
    key: Bytes,
    #[serde(rename = "type")]
    kind: String,
    encoding: String,
    /// null: it does not expire.
    ttl_ms: Option<i64>,
    bytes: Option<i64>,
    /// Where the value was before it was looked at.
    tier: String,
    /// Bytes of a string, members of everything else.
    length: i64,
    value: ValueView,
    /// Members that were looked at for this page, about.
    looked_at: u64,
    /// The offset of the next page; null after the last.
    next: Option<String>,
}

/// By type: string: Bytes; list, set: list of Bytes; hash: [field, value]; zset: [member, score]; stream: [id, [[field, value]]]. A search in a
/// list: [index, element].
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum ValueView {
    String(Bytes),
    Members(Vec<Bytes>),
    Fields(Vec<(Bytes, Bytes)>),
    Places(Vec<(u64, Bytes)>),
    Scores(Vec<(Bytes, Score)>),
    Entries(Vec<(String, Vec<(Bytes, Bytes)>)>),
}

/// A number, or a string for what JSON has no number for: inf, -inf.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Score {
    Number(f64),
    Word(String),
}

fn scan(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted = cx.number("count", 100usize, (1, 1000))?;
    let filter = Filter::new(cx.query("pattern"), cx.query("type"))?;
    let mut link = cx.link()?;
    let Slice { cursor, keys, scanned, .. } = slice(&mut link, cx.query("cursor").unwrap_or("0"), &filter, wanted)?;
    let cards = cards(&mut link, keys)?;
    Reply::json(&KeyPage { cursor, keys: cards, scanned })
}

/// The properties of each key. A key that was removed in the meantime is left out.
fn cards(link: &mut Link, keys: Vec<Vec<u8>>) -> Result<Vec<KeyInfo>, ApiError> {
    let mut cards = Vec::with_capacity(keys.len());
    for keys in keys.chunks(100) {
        let commands: Vec<Vec<&[u8]>> = keys
            .iter()
            .flat_map(|key| [vec![&b"OBJECT"[..], b"TIER", key], vec![&b"TYPE"[..], key], vec![&b"PTTL"[..], key]])
            .collect();
        let replies = link.pipeline(&commands)?;
        let tiers: Vec<String> = replies.iter().step_by(3).map(|tier| link::text(tier.clone())).collect();
        // Only for values in RAM: the size of other values is known only after reading them from flash.
        let hot: Vec<&Vec<u8>> =
            keys.iter().zip(&tiers).filter(|(_, tier)| *tier == "ram").map(|(key, _)| key).collect();
        let asked: Vec<Vec<&[u8]>> = hot
            .iter()
            .flat_map(|key| [vec![&b"MEMORY"[..], b"USAGE", key], vec![&b"OBJECT"[..], b"ENCODING", key]])
            .collect();
        let mut found = link.pipeline(&asked)?.into_iter();
        for ((key, tier), replies) in keys.iter().zip(tiers).zip(replies.chunks(3)) {
            let [usage, encoding] = if tier == "ram" { [found.next(), found.next()] } else { [None, None] };
            let bytes = usage.as_ref().and_then(int);
            let encoding = encoding.map(link::text).unwrap_or_default();
            let kind = link::text(replies[1].clone());
            if tier.is_empty() || kind == "none" {
                continue;
            }
            cards.push(KeyInfo { key: Bytes(key.clone()), kind, ttl_ms: ttl(&replies[2]), bytes, encoding, tier });
        }
    }
    Ok(cards)
}

fn ttl(reply: &Value) -> Option<i64> {
    int(reply).filter(|&ms| ms >= 0)
}

/// Which members of a value are wanted.
struct Wanted {
    /// A glob.
    pattern: Option<String>,
    /// For a stream: the first and the last id, as in XRANGE.
    from: Option<String>,
    to: Option<String>,
    /// A search reads at most so many members at a time.
    step_max: u64,
}

impl Wanted {
    /// All members.
    const ALL: Wanted = Wanted { pattern: None, from: None, to: None, step_max: SCAN_STEP };
}

pub fn view(cx: &Cx, key: &[u8]) -> Result<KeyView, ApiError> {
    let count = cx.number("count", 100u64, (1, 1000))?;
    let given = |name: &str| cx.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut wanted = Wanted { pattern: given("match"), from: given("from"), to: given("to"), step_max: SCAN_STEP };
    for (name, id) in [("from", &wanted.from), ("to", &wanted.to)] {
        if id.as_ref().is_some_and(|id| !is_id(id)) {
            return Err(ApiError::field(name, "an id such as 1700000000000 or 1700000000000-0 is expected"));
        }
    }
    loop {
        match page_of(&mut cx.link()?, key, cx.query("offset").unwrap_or(""), count, &wanted) {
            // These members are much larger than the average. The reply was not read to its end, so the link cannot be used
            // any more.
            Err(error) if error.body.code == "too_large" && wanted.pattern.is_some() && wanted.step_max > 1 => {
                wanted.step_max /= SMALLER_STEP;
            }
            outcome => return outcome,
        }
    }
}

pub fn view_of(link: &mut Link, key: &[u8], offset: &str, count: u64) -> Result<KeyView, ApiError> {
    page_of(link, key, offset, count, &Wanted::ALL)
}

fn page_of(link: &mut Link, key: &[u8], offset: &str, count: u64, wanted: &Wanted) -> Result<KeyView, ApiError> {
    let tier = link::text(link.call(&[b"OBJECT", b"TIER", key])?);
    let kind = link::text(link.call(&[b"TYPE", key])?);
    if kind != "stream" && (wanted.from.is_some() || wanted.to.is_some()) {
        return Err(ApiError::field("from", format!("a {kind} has no ids")));
    }
    let pattern = wanted.pattern.as_deref();
    let (length, value, looked_at, next) = match (kind.as_str(), pattern) {
        ("hash" | "set" | "zset", Some(pattern)) => {
            found(link, key, place(offset)?, count, &kind, pattern, wanted.step_max)?
        }
        ("list", Some(pattern)) => elements(link, key, place(offset)?, count, pattern, wanted.step_max)?,
        ("stream", _) => entries(link, key, offset, count, wanted)?,
        ("string", Some(_)) => return Err(ApiError::field("match", "a string has no members to search in")),
        ("string", None) => string(link, key, place(offset)?)?,
        ("list", None) => list(link, key, place(offset)?, count)?,
        ("zset", None) => scores(link, key, place(offset)?, count)?,
        ("set" | "hash", None) => members(link, key, place(offset)?, count, kind == "hash")?,
        _ => return Err(ApiError::not_found(format!("there is no key '{}'", shown(key)))),
    };
    let encoding = link::text(link.call(&[b"OBJECT", b"ENCODING", key])?);
    let bytes = int(&link.call(&[b"MEMORY", b"USAGE", key])?);
    let ttl_ms = ttl(&link.call(&[b"PTTL", key])?);
    Ok(KeyView { key: Bytes(key.to_vec()), kind, encoding, ttl_ms, bytes, tier, length, value, looked_at, next })
}

/// The length, the members that were found, how many members were inspected, and the offset of the next page.
type Part = (i64, ValueView, u64, Option<String>);

fn place(offset: &str) -> Result<u64, ApiError> {
    if offset.is_empty() {
        return Ok(0);
    }
    offset.parse().map_err(|_| ApiError::field("offset", "the value of next from an earlier page is expected"))
}

fn length(link: &mut Link, command: &[u8], key: &[u8]) -> Result<i64, ApiError> {
    Ok(int(&link.call(&[command, key])?).unwrap_or(0))
}

/// From the offset to the end of the page, both included, and the offset of the next page.
fn range(offset: u64, count: u64, length: i64) -> ([String; 2], Option<String>) {
    let end = offset.saturating_add(count);
    let next = (end < length.unsigned_abs()).then(|| end.to_string());
    ([offset.min(i64::MAX as u64).to_string(), (end - 1).min(i64::MAX as u64).to_string()], next)
}

fn string(link: &mut Link, key: &[u8], offset: u64) -> Result<Part, ApiError> {
    let length = length(link, b"STRLEN", key)?;
    let ([from, to], next) = range(offset, STRING_BYTES_MAX, length);
    let value = link.call(&[b"GETRANGE", key, from.as_bytes(), to.as_bytes()])?;
    Ok((length, ValueView::String(Bytes(bytes(value))), 0, next))
}

fn list(link: &mut Link, key: &[u8], offset: u64, count: u64) -> Result<Part, ApiError> {
    let length = length(link, b"LLEN", key)?;
    let ([from, to], next) = range(offset, count, length);
    let found = items(link.call(&[b"LRANGE", key, from.as_bytes(), to.as_bytes()])?);
    let found: Vec<Bytes> = found.into_iter().map(|member| Bytes(bytes(member))).collect();
    let looked_at = found.len() as u64;
    Ok((length, ValueView::Members(found), looked_at, next))
}

fn scores(link: &mut Link, key: &[u8], offset: u64, count: u64) -> Result<Part, ApiError> {
    let length = length(link, b"ZCARD", key)?;
    let ([from, to], next) = range(offset, count, length);
    let found = items(link.call(&[b"ZRANGE", key, from.as_bytes(), to.as_bytes(), b"WITHSCORES"])?);
    let pair = |pair: Value| {
        let [member, score] = <[Value; 2]>::try_from(items(pair)).ok()?;
        Some((Bytes(bytes(member)), self::score(score)))
    };
    let looked_at = found.len() as u64;
    Ok((length, ValueView::Scores(found.into_iter().filter_map(pair).collect()), looked_at, next))
}

fn members(link: &mut Link, key: &[u8], cursor: u64, count: u64, is_hash: bool) -> Result<Part, ApiError> {
    let (count_command, scan_command): (&[u8], &[u8]) =
        if is_hash { (b"HLEN", b"HSCAN") } else { (b"SCARD", b"SSCAN") };
    let length = length(link, count_command, key)?;
    let (cursor, count) = (cursor.to_string(), count.to_string());
    let reply = items(link.call(&[scan_command, key, cursor.as_bytes(), b"COUNT", count.as_bytes()])?);
    let [next, found] = <[Value; 2]>::try_from(reply).map_err(|_| ApiError::failed("the scan's reply is malformed"))?;
    let found: Vec<Bytes> = items(found).into_iter().map(|member| Bytes(bytes(member))).collect();
    let next = Some(link::text(next)).filter(|next| next != "0");
    let looked_at = if is_hash { found.len() as u64 / 2 } else { found.len() as u64 };
    let value = if is_hash { ValueView::Fields(pairs(found)) } else { ValueView::Members(found) };
    Ok((length, value, looked_at, next))
}

/// The members of a hash, set or sorted set that match, until there are enough of them or the time is over.
fn found(
    link: &mut Link,
    key: &[u8],
    cursor: u64,
    count: u64,
    kind: &str,
    wanted: &str,
    step: u64,
) -> Result<Part, ApiError> {
    let (scan, size): (&[u8], &[u8]) = match kind {
        "hash" => (b"HSCAN", b"HLEN"),
        "set" => (b"SSCAN", b"SCARD"),
        _ => (b"ZSCAN", b"ZCARD"),
    };
    let length = length(link, size, key)?;
    let mut pace = Pace::begin(count);
    let step_text = step.to_string();
    let (mut cursor, mut flat, mut found_bytes, mut looked_at) = (cursor.to_string(), Vec::new(), 0, 0);
    let each = if kind == "set" { 1 } else { 2 };
    loop {
        let args = [scan, key, cursor.as_bytes(), b"MATCH", wanted.as_bytes(), b"COUNT", step_text.as_bytes()];
        let reply = items(link.call(&args)?);
        let [next, more] =
            <[Value; 2]>::try_from(reply).map_err(|_| ApiError::failed("the scan's reply is malformed"))?;
        for member in items(more) {
            found_bytes += if let Value::Bulk(text) = &member { text.len() } else { 0 };
            flat.push(member);
        }
        looked_at += step;
        cursor = link::text(next);
        if cursor == "0" || !pace.goes_on(flat.len() / each, found_bytes) {
            break;
        }
    }
    let next = Some(cursor).filter(|next| next != "0");
    let value = match kind {
        "zset" => {
            let mut flat = flat.into_iter();
            ValueView::Scores(std::iter::from_fn(|| Some((Bytes(bytes(flat.next()?)), score(flat.next()?)))).collect())
        }
        kind => {
            let flat: Vec<Bytes> = flat.into_iter().map(|member| Bytes(bytes(member))).collect();
            if kind == "hash" { ValueView::Fields(pairs(flat)) } else { ValueView::Members(flat) }
        }
    };
    Ok((length, value, looked_at.min(length.unsigned_abs()), next))
}

/// How far a search goes in one request. After each step it pauses as long as the step took, so that other clients can use
/// the worker and the flash.
struct Pace {
    wanted: u64,
    until: Instant,
    began: Instant,
}

impl Pace {
    fn begin(wanted: u64) -> Pace {
        let began = Instant::now();
        Pace { wanted, until: began + SCAN_TIME, began }
    }

    /// Called after a step, with what was found so far. Returns whether the search continues.
    fn goes_on(&mut self, count: usize, bytes: usize) -> bool {
        let now = Instant::now();
        if count as u64 >= self.wanted || bytes >= FOUND_BYTES_MAX || now >= self.until {
            return false;
        }
        std::thread::sleep(now - self.began);
        self.began = Instant::now();
        true
    }
}

/// How many members a step reads: about [`STEP_BYTES`] of data.
fn step_of(link: &mut Link, key: &[u8], length: i64, step_max: u64) -> Result<u64, ApiError> {
    let bytes = int(&link.call(&[b"MEMORY", b"USAGE", key])?).unwrap_or(0).max(1).unsigned_abs();
    Ok((STEP_BYTES * length.unsigned_abs() / bytes).clamp(1, step_max))
}

/// The elements of a list that match, with their indexes.
fn elements(
    link: &mut Link,
    key: &[u8],
    offset: u64,
    count: u64,
    pattern: &str,
    step_max: u64,
) -> Result<Part, ApiError> {
    let length = length(link, b"LLEN", key)?;
    let step = step_of(link, key, length, step_max)?;
    let mut pace = Pace::begin(count);
    let (mut at, mut found, mut found_bytes) = (offset, Vec::new(), 0);
    let next = loop {
        let ([from, to], next) = range(at, step, length);
        let read = items(link.call(&[b"LRANGE", key, from.as_bytes(), to.as_bytes()])?);
        for (place, element) in (at..).zip(read) {
            let element = bytes(element);
            if glob::matches(pattern.as_bytes(), &element, false) {
                found_bytes += element.len();
                found.push((place, Bytes(element)));
            }
        }
        at = (at + step).min(length.unsigned_abs());
        if next.is_none() || !pace.goes_on(found.len(), found_bytes) {
            break next;
        }
    };
    Ok((length, ValueView::Places(found), at.saturating_sub(offset), next))
}

fn score(reply: Value) -> Score {
    match reply {
        Value::Double(score) if score.is_finite() => Score::Number(score),
        // ZSCAN returns scores as strings.
        other => {
            let text = link::text(other);
            match text.parse::<f64>() {
                Ok(score) if score.is_finite() => Score::Number(score),
                _ => Score::Word(text),
            }
        }
    }
}

fn pairs(flat: Vec<Bytes>) -> Vec<(Bytes, Bytes)> {
    let mut flat = flat.into_iter();
    std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
}

fn is_id(text: &str) -> bool {
    let (ms, number) = text.split_once('-').unwrap_or((text, "0"));
    ms.parse::<u64>().is_ok() && number.parse::<u64>().is_ok()
}

/// The entries of a stream, or those that have a field or a value that matches. The offset is the id of the last entry that
/// was inspected.
fn entries(link: &mut Link, key: &[u8], after: &str, count: u64, wanted: &Wanted) -> Result<Part, ApiError> {
    if !after.is_empty() && !is_id(after) {
        return Err(ApiError::field("offset", "the value of next from an earlier page is expected"));
    }
    let length = length(link, b"XLEN", key)?;
    let step = if wanted.pattern.is_some() { step_of(link, key, length, wanted.step_max)? } else { count };
    let to = wanted.to.as_deref().unwrap_or("+");
    let mut pace = Pace::begin(count);
    let (mut after, mut found, mut found_bytes, mut looked_at) = (after.to_owned(), Vec::new(), 0, 0);
    let next = loop {
        let from = match (&wanted.from, after.is_empty()) {
            (_, false) => format!("({after}"),
            (Some(from), true) => from.clone(),
            (None, true) => "-".to_owned(),
        };
        let step_text = step.to_string();
        let args = [&b"XRANGE"[..], key, from.as_bytes(), to.as_bytes(), b"COUNT", step_text.as_bytes()];
        let read = items(link.call(&args)?);
        let is_last = (read.len() as u64) < step;
        looked_at += read.len() as u64;
        for entry in read {
            let Ok([id, fields]) = <[Value; 2]>::try_from(items(entry)) else { continue };
            after = link::text(id);
            let fields: Vec<Bytes> = items(fields).into_iter().map(|part| Bytes(bytes(part))).collect();
            let fits = |pattern: &String| fields.iter().any(|part| glob::matches(pattern.as_bytes(), &part.0, false));
            if wanted.pattern.as_ref().is_none_or(fits) {
                found_bytes += fields.iter().map(|part| part.0.len()).sum::<usize>();
                found.push((after.clone(), pairs(fields)));
            }
        }
        if is_last {
            break None;
        }
        if !pace.goes_on(found.len(), found_bytes) {
            break Some(after);
        }
    };
    Ok((length, ValueView::Entries(found), looked_at, next))
}
