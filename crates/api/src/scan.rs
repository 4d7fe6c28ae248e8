//! Owns a scan of a database's keys, a slice at a time. Never reads a value.

use crate::error::ApiError;
use crate::link::{self, Link, bytes, items};
use resp::client::Value;
use std::time::{Duration, Instant};

/// A scan for a rare pattern ends after this time, with the keys found so far.
pub const SCAN_TIME: Duration = Duration::from_millis(500);
/// Entries per step of the scan, which bounds how long it occupies a worker.
pub const SCAN_STEP: u64 = 500;

/// The types of values.
const TYPES: [&str; 6] = ["string", "list", "set", "hash", "zset", "stream"];

/// Which keys are wanted. Empty texts are no filters.
pub struct Filter {
    pattern: Option<String>,
    kind: Option<String>,
}

impl Filter {
    pub fn new(pattern: Option<&str>, kind: Option<&str>) -> Result<Filter, ApiError> {
        let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let (pattern, kind) = (given(pattern), given(kind));
        if kind.as_ref().is_some_and(|kind| !TYPES.contains(&kind.as_str())) {
            return Err(ApiError::field("type", "string, list, set, hash, zset or stream is expected"));
        }
        Ok(Filter { pattern, kind })
    }
}

/// Keys that a scan has found, until there are enough of them or the time is over.
pub struct Slice {
    /// 0: the scan is complete.
    pub cursor: String,
    pub keys: Vec<Vec<u8>>,
    /// Entries looked at, about.
    pub scanned: u64,
    /// It has taken all the time that a request should take.
    pub is_late: bool,
}

pub fn slice(link: &mut Link, cursor: &str, filter: &Filter, wanted: usize) -> Result<Slice, ApiError> {
    let cursor: u64 =
        cursor.parse().map_err(|_| ApiError::field("cursor", "0 or the cursor of a reply is expected"))?;
    let mut cursor = cursor.to_string();
    let until = Instant::now() + SCAN_TIME;
    let (mut keys, mut scanned) = (Vec::new(), 0);
    loop {
        // Without a filter, every scanned entry is a wanted key.
        let is_open = filter.pattern.is_none() && filter.kind.is_none();
        let step = if is_open { (wanted - keys.len()) as u64 } else { SCAN_STEP };
        let count = step.to_string();
        let mut args: Vec<&[u8]> = vec![b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()];
        if let Some(pattern) = &filter.pattern {
            args.extend([&b"MATCH"[..], pattern.as_bytes()]);
        }
        if let Some(kind) = &filter.kind {
            args.extend([&b"TYPE"[..], kind.as_bytes()]);
        }
        let reply = link.call(&args)?;
        let [next, found] =
            <[Value; 2]>::try_from(items(reply)).map_err(|_| ApiError::failed("SCAN's reply is malformed"))?;
        keys.extend(items(found).into_iter().map(bytes));
        scanned += step;
        cursor = link::text(next);
        let is_late = Instant::now() >= until;
        if cursor == "0" || keys.len() >= wanted || is_late {
            return Ok(Slice { cursor, keys, scanned, is_late });
        }
    }
}
