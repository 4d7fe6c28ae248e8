//! Owns reading keys and values, one page at a time, whatever their size. Never changes one. A list of keys reads no
//! value.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{self, Link, bytes, items, number as int};
use crate::route::{Answer, Param, Route, number, one, text};
use crate::scan::{Filter, SCAN_STEP, SCAN_TIME, Slice, slice};
use crate::text::{Bytes, lossy};
use resp::client::Value;
use serde::Serialize;
use std::time::Instant;
use utoipa::ToSchema;

/// At most this much of a string is shown, from the offset on.
const STRING_BYTES_MAX: u64 = 64 << 10;

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
            text("match", "glob: only these fields of a hash, members of a set or sorted set"),
        ],
        reply: Answer::Json(one::<KeyView>),
        run: |cx| view(cx, &cx.key()?).and_then(|view| Reply::json(&view)),
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct KeyPage {
    cursor: String,
    keys: Vec<KeyCard>,
    /// Entries looked at, about.
    scanned: u64,
}

#[derive(Serialize, ToSchema)]
struct KeyCard {
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
    /// The offset of the next page; null after the last.
    next: Option<String>,
}

/// By type: string: Bytes; list, set: list of Bytes; hash: [field, value]; zset: [member, score]; stream: [id, [[field, value]]].
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum ValueView {
    String(Bytes),
    Members(Vec<Bytes>),
    Fields(Vec<(Bytes, Bytes)>),
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

/// The facts about each key. A key that was removed in the meantime is left out.
fn cards(link: &mut Link, keys: Vec<Vec<u8>>) -> Result<Vec<KeyCard>, ApiError> {
    let mut cards = Vec::with_capacity(keys.len());
    for keys in keys.chunks(100) {
        let commands: Vec<Vec<&[u8]>> = keys
            .iter()
            .flat_map(|key| [vec![&b"OBJECT"[..], b"TIER", key], vec![&b"TYPE"[..], key], vec![&b"PTTL"[..], key]])
            .collect();
        let replies = link.pipeline(&commands)?;
        let tiers: Vec<String> = replies.iter().step_by(3).map(|tier| link::text(tier.clone())).collect();
        // Only for values in RAM: finding the size of others would read them from flash.
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
            cards.push(KeyCard { key: Bytes(key.clone()), kind, ttl_ms: ttl(&replies[2]), bytes, encoding, tier });
        }
    }
    Ok(cards)
}

fn ttl(reply: &Value) -> Option<i64> {
    int(reply).filter(|&ms| ms >= 0)
}

pub fn view(cx: &Cx, key: &[u8]) -> Result<KeyView, ApiError> {
    let count = cx.number("count", 100u64, (1, 1000))?;
    let offset = cx.query("offset").unwrap_or("");
    let wanted = cx.query("match").filter(|wanted| !wanted.is_empty());
    page_of(&mut cx.link()?, key, offset, count, wanted)
}

pub fn view_of(link: &mut Link, key: &[u8], offset: &str, count: u64) -> Result<KeyView, ApiError> {
    page_of(link, key, offset, count, None)
}

/// `wanted`: a pattern of members.
fn page_of(link: &mut Link, key: &[u8], offset: &str, count: u64, wanted: Option<&str>) -> Result<KeyView, ApiError> {
    let tier = link::text(link.call(&[b"OBJECT", b"TIER", key])?);
    let kind = link::text(link.call(&[b"TYPE", key])?);
    let (length, value, next) = match kind.as_str() {
        "hash" | "set" | "zset" if wanted.is_some() => {
            found(link, key, place(offset)?, count, &kind, wanted.unwrap_or("*"))?
        }
        "string" | "list" | "stream" if wanted.is_some() => {
            return Err(ApiError::field("match", format!("a {kind} has no names to search in")));
        }
        "string" => string(link, key, place(offset)?)?,
        "list" => list(link, key, place(offset)?, count)?,
        "zset" => scores(link, key, place(offset)?, count)?,
        "set" | "hash" => members(link, key, place(offset)?, count, kind == "hash")?,
        "stream" => entries(link, key, offset, count)?,
        _ => return Err(ApiError::not_found(format!("there is no key '{}'", lossy(key)))),
    };
    let encoding = link::text(link.call(&[b"OBJECT", b"ENCODING", key])?);
    let bytes = int(&link.call(&[b"MEMORY", b"USAGE", key])?);
    let ttl_ms = ttl(&link.call(&[b"PTTL", key])?);
    Ok(KeyView { key: Bytes(key.to_vec()), kind, encoding, ttl_ms, bytes, tier, length, value, next })
}

type Part = (i64, ValueView, Option<String>);

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
    Ok((length, ValueView::String(Bytes(bytes(value))), next))
}

fn list(link: &mut Link, key: &[u8], offset: u64, count: u64) -> Result<Part, ApiError> {
    let length = length(link, b"LLEN", key)?;
    let ([from, to], next) = range(offset, count, length);
    let found = items(link.call(&[b"LRANGE", key, from.as_bytes(), to.as_bytes()])?);
    Ok((length, ValueView::Members(found.into_iter().map(|member| Bytes(bytes(member))).collect()), next))
}

fn scores(link: &mut Link, key: &[u8], offset: u64, count: u64) -> Result<Part, ApiError> {
    let length = length(link, b"ZCARD", key)?;
    let ([from, to], next) = range(offset, count, length);
    let found = items(link.call(&[b"ZRANGE", key, from.as_bytes(), to.as_bytes(), b"WITHSCORES"])?);
    let pair = |pair: Value| {
        let [member, score] = <[Value; 2]>::try_from(items(pair)).ok()?;
        Some((Bytes(bytes(member)), self::score(score)))
    };
    Ok((length, ValueView::Scores(found.into_iter().filter_map(pair).collect()), next))
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
    let value = if is_hash { ValueView::Fields(pairs(found)) } else { ValueView::Members(found) };
    Ok((length, value, next))
}

/// The members of a hash, set or sorted set that match, until there are enough of them or the time is over.
fn found(link: &mut Link, key: &[u8], cursor: u64, count: u64, kind: &str, wanted: &str) -> Result<Part, ApiError> {
    let (scan, size): (&[u8], &[u8]) = match kind {
        "hash" => (b"HSCAN", b"HLEN"),
        "set" => (b"SSCAN", b"SCARD"),
        _ => (b"ZSCAN", b"ZCARD"),
    };
    let length = length(link, size, key)?;
    let until = Instant::now() + SCAN_TIME;
    let step = SCAN_STEP.to_string();
    let (mut cursor, mut flat) = (cursor.to_string(), Vec::new());
    let each = if kind == "set" { 1 } else { 2 };
    loop {
        let args = [scan, key, cursor.as_bytes(), b"MATCH", wanted.as_bytes(), b"COUNT", step.as_bytes()];
        let reply = items(link.call(&args)?);
        let [next, more] =
            <[Value; 2]>::try_from(reply).map_err(|_| ApiError::failed("the scan's reply is malformed"))?;
        flat.extend(items(more));
        cursor = link::text(next);
        if cursor == "0" || (flat.len() / each) as u64 >= count || Instant::now() >= until {
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
    Ok((length, value, next))
}

fn score(reply: Value) -> Score {
    match reply {
        Value::Double(score) if score.is_finite() => Score::Number(score),
        // ZSCAN tells scores as texts.
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

/// The offset is the id of the last entry.
fn entries(link: &mut Link, key: &[u8], after: &str, count: u64) -> Result<Part, ApiError> {
    let length = length(link, b"XLEN", key)?;
    let from = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
    if !after.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Err(ApiError::field("offset", "the value of next from an earlier page is expected"));
    }
    let found = items(link.call(&[b"XRANGE", key, from.as_bytes(), b"+", b"COUNT", count.to_string().as_bytes()])?);
    let entry = |entry: Value| {
        let [id, fields] = <[Value; 2]>::try_from(items(entry)).ok()?;
        Some((link::text(id), pairs(items(fields).into_iter().map(|part| Bytes(bytes(part))).collect())))
    };
    let found: Vec<_> = found.into_iter().filter_map(entry).collect();
    let next = found.last().map(|(id, _)| id.clone()).filter(|_| found.len() as u64 == count);
    Ok((length, ValueView::Entries(found), next))
}
