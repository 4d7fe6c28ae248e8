//! Owns work on many keys, a slice at a time: deletion by pattern, export, import. The client continues with the cursor in
//! its next request, so no request takes long. Never works with more rights than the requester's role has on the database.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{self, Link, bytes, number as int};
use crate::route::{Answer, Method, Param, Route, number, one, text};
use crate::scan::{Filter, Slice, slice};
use crate::text::{Bytes, lossy, shown};
use resp::client::Value;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// The most keys of one export request.
const SLICE_KEYS: usize = 1000;
/// The number of keys that a deletion searches for at a time, and the most keys of one command.
const STEP_KEYS: usize = 500;
const BATCH_KEYS: usize = 100;
/// A deletion, or its preview, answers after this time. It shows progress, and can be stopped in between.
const DELETE_TIME: Duration = Duration::from_millis(250);
/// The number of keys that a preview names.
const SAMPLE_KEYS: usize = 20;
/// A slice of an export ends after so many bytes, and larger values are left out, because a reply must not be larger.
const EXPORT_BYTES: usize = 4 << 20;
const EXPORT_BATCH_KEYS: usize = 10;
const EXPORT_TIME: Duration = Duration::from_secs(2);

const FILTER: &[Param] = &[
    text("cursor", "0 to begin"),
    text("pattern", "glob, as in SCAN MATCH"),
    text("type", "string, list, set, hash, zset or stream"),
    number("db", "logical database; default 0"),
];

pub const ROUTES: &[Route] = &[
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/keys/delete",
        role: Some(Role::Operator),
        tag: "Keys",
        summary: "Deletes the keys of a slice that match, or only counts them (preview). Continue with the cursor until it is 0.",
        body: Some(one::<Deletion>),
        reply: Answer::Json(one::<Deleted>),
        action: "keys.delete",
        run: delete,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/keys/export",
        tag: "Keys",
        summary: "A slice of keys with their values as DUMP gives them, for an import here or RESTORE in Redis. Continue with the cursor until it is 0.",
        query: FILTER,
        reply: Answer::Json(one::<Exported>),
        run: export,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/keys/import",
        role: Some(Role::Operator),
        tag: "Keys",
        summary: "Restores keys of an export. A key that exists is kept, unless replace is true.",
        body: Some(one::<Import>),
        reply: Answer::Json(one::<Imported>),
        action: "keys.import",
        run: import,
        ..Route::BASE
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Deletion {
    /// Glob, as in SCAN MATCH; * is every key.
    pattern: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    db: u32,
    /// 0 to begin.
    cursor: String,
    /// Nothing is deleted, only counted.
    #[serde(default)]
    preview: bool,
}

#[derive(Serialize, ToSchema)]
struct Deleted {
    cursor: String,
    /// Entries looked at, about.
    scanned: u64,
    /// Keys of this slice that match.
    matched: u64,
    /// A key that is gone already is not counted.
    deleted: u64,
    /// Some of the keys.
    sample: Vec<Bytes>,
}

#[derive(Serialize, ToSchema)]
struct Exported {
    cursor: String,
    scanned: u64,
    keys: Vec<Dumped>,
    /// Keys whose values are too large for the console.
    left_out: Vec<Bytes>,
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Dumped {
    key: Bytes,
    /// null: it does not expire.
    ttl_ms: Option<u64>,
    /// What DUMP gives.
    dump: Bytes,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    #[serde(default)]
    db: u32,
    #[serde(default)]
    replace: bool,
    keys: Vec<Dumped>,
}

#[derive(Serialize, ToSchema)]
struct Imported {
    restored: u64,
    /// They exist already.
    kept: u64,
    failed: Vec<NotImported>,
}

#[derive(Serialize, ToSchema)]
struct NotImported {
    key: Bytes,
    message: String,
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let Deletion { pattern, kind, db, cursor, preview } = cx.body()?;
    if pattern.is_empty() {
        return Err(ApiError::field("pattern", "a pattern is expected; * is every key"));
    }
    let of_kind = if kind.is_empty() { String::new() } else { format!(" of type {kind}") };
    let what = format!("db {db}, pattern \"{}\"{of_kind}", shown(pattern.as_bytes()));
    cx.note(cx.param("name"), what.clone());
    let filter = Filter::new(Some(&pattern), Some(&kind))?;
    let mut link = Link::open(&*cx.database()?, cx.role().on_database(), db)?;
    let until = Instant::now() + DELETE_TIME;
    let mut done = Deleted { cursor, scanned: 0, matched: 0, deleted: 0, sample: Vec::new() };
    loop {
        let begun = Instant::now();
        let Slice { cursor, keys, scanned, .. } = slice(&mut link, &done.cursor, &filter, STEP_KEYS)?;
        if !preview {
            for batch in keys.chunks(BATCH_KEYS) {
                let mut args: Vec<&[u8]> = vec![b"UNLINK"];
                args.extend(batch.iter().map(Vec::as_slice));
                done.deleted += int(&link.call(&args)?).unwrap_or(0).unsigned_abs();
            }
        }
        (done.cursor, done.scanned, done.matched) = (cursor, done.scanned + scanned, done.matched + keys.len() as u64);
        let wanted = SAMPLE_KEYS - done.sample.len();
        done.sample.extend(keys.into_iter().take(wanted).map(Bytes));
        if done.cursor == "0" || Instant::now() >= until {
            break;
        }
        // Pauses as long as the step took, so that the database has as much time for its clients.
        std::thread::sleep(begun.elapsed());
    }
    if !preview {
        cx.note(cx.param("name"), format!("{what}: {} keys deleted", done.deleted));
    }
    if done.deleted == 0 {
        cx.unaudited();
    }
    Reply::json(&done)
}

fn export(cx: &Cx) -> Result<Reply, ApiError> {
    let filter = Filter::new(cx.query("pattern"), cx.query("type"))?;
    let mut cursor = cx.query("cursor").unwrap_or("0").to_owned();
    let mut link = cx.link()?;
    let until = Instant::now() + EXPORT_TIME;
    let (mut dumped, mut left_out, mut size, mut scanned) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        let slice = slice(&mut link, &cursor, &filter, EXPORT_BATCH_KEYS)?;
        let is_late = slice.is_late;
        (cursor, scanned) = (slice.cursor, scanned + slice.scanned);
        for key in slice.keys {
            let ttl_ms = int(&link.call(&[b"PTTL", &key])?).filter(|&ms| ms >= 0).map(i64::unsigned_abs);
            // A reply that is too large would end this link, so the size of the value is asked for first. MEMORY USAGE is
            // not the size of DUMP's reply, but that is never much larger.
            let usage = int(&link.call(&[b"MEMORY", b"USAGE", &key])?).unwrap_or(0).unsigned_abs();
            if usage > EXPORT_BYTES as u64 {
                left_out.push(Bytes(key));
                continue;
            }
            match link.call(&[b"DUMP", &key])? {
                // The key is gone.
                Value::Null | Value::NullArray => {}
                dump => {
                    let dump = bytes(dump);
                    size += dump.len();
                    dumped.push(Dumped { key: Bytes(key), ttl_ms, dump: Bytes(dump) });
                }
            }
        }
        if cursor == "0" || size >= EXPORT_BYTES || dumped.len() >= SLICE_KEYS || is_late || Instant::now() >= until {
            return Reply::json(&Exported { cursor, scanned, keys: dumped, left_out });
        }
    }
}

fn import(cx: &Cx) -> Result<Reply, ApiError> {
    let Import { db, replace, keys } = cx.body()?;
    let what = format!("db {db}, {} keys of an export{}", keys.len(), if replace { ", replacing" } else { "" });
    cx.note(cx.param("name"), what.clone());
    let mut link = Link::open(&*cx.database()?, cx.role().on_database(), db)?;
    let mut done = Imported { restored: 0, kept: 0, failed: Vec::new() };
    for Dumped { key: Bytes(key), ttl_ms, dump: Bytes(dump) } in keys {
        let ttl = ttl_ms.unwrap_or(0).to_string();
        let mut args: Vec<&[u8]> = vec![b"RESTORE", &key, ttl.as_bytes(), &dump];
        if replace {
            args.push(b"REPLACE");
        }
        match link.ask(&args)? {
            Value::Error(why) if why.starts_with(b"BUSYKEY") => done.kept += 1,
            // The same error would refuse all other keys too.
            error @ Value::Error(_) if is_for_all(&error) => {
                link::refused(error)?;
            }
            Value::Error(why) => done.failed.push(NotImported { key: Bytes(key), message: lossy(&why) }),
            _ => done.restored += 1,
        }
    }
    let Imported { restored, kept, failed } = &done;
    cx.note(cx.param("name"), format!("{what}: {restored} restored, {kept} existed, {} failed", failed.len()));
    Reply::json(&done)
}

/// Whether the error is about the database or the user, not about one value.
fn is_for_all(error: &Value) -> bool {
    let Value::Error(text) = error else { return false };
    [&b"NOPERM"[..], b"OOM", b"MISCONF", b"READONLY", b"LOADING", b"NOREPLICAS"]
        .iter()
        .any(|code| text.starts_with(code))
}
