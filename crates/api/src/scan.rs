//! Owns a scan of a database's keys, a slice at a time. Never reads a value.

use crate::error::ApiError;
use crate::link::{self, Link, bytes, items};
use resp::client::Value;
use std::time::{Duration, Instant};

/// A scan for a rare pattern ends after this time, with the keys found so far.
pub const SCAN_TIME: Duration = Duration::from_millis(500);
/// The number of entries in the first step of a scan of keys, or of the elements of a key.
pub const SCAN_STEP: u64 = 500;
/// A step for a rare pattern has more entries, because the names of many cold keys together take few reads: at most
/// `STEP_GROWTH` times as many as the step before, and at most this many. The workers process them in slices.
const STEP_GROWTH: u64 = 8;
const SCAN_STEP_MAX: u64 = 100_000;

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

/// The keys that one slice of a scan has found. It ends when there are enough keys or the time is over.
pub struct Slice {
    /// 0: the scan is complete.
    pub cursor: String,
    pub keys: Vec<Vec<u8>>,
    /// About how many entries were inspected.
    pub scanned: u64,
    /// The slice has used up the time of a request.
    pub is_late: bool,
}

pub fn slice(link: &mut Link, cursor: &str, filter: &Filter, wanted: usize) -> Result<Slice, ApiError> {
    let cursor: u64 =
        cursor.parse().map_err(|_| ApiError::field("cursor", "0 or the cursor of a reply is expected"))?;
    let mut cursor = cursor.to_string();
    let until = Instant::now() + SCAN_TIME;
    let (mut keys, mut scanned) = (Vec::new(), 0);
    let mut step = SCAN_STEP;
    loop {
        // Without a filter, every scanned entry is a wanted key.
        let is_open = filter.pattern.is_none() && filter.kind.is_none();
        step = match is_open {
            true => (wanted - keys.len()) as u64,
            false => next_step(step, scanned, keys.len() as u64, wanted as u64),
        };
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

/// The number of entries of the next step: about as many as should contain the keys that are still wanted, at the rate of
/// the entries before.
fn next_step(last: u64, scanned: u64, found: u64, wanted: u64) -> u64 {
    if scanned == 0 {
        return last;
    }
    let expected = scanned.saturating_mul(wanted - found) / found.max(1);
    expected.clamp(SCAN_STEP, (last * STEP_GROWTH).min(SCAN_STEP_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (entries of the last step, entries scanned, keys found, keys wanted, entries of the next step)
    #[test]
    fn a_scan_for_rare_keys_takes_larger_steps() {
        for (last, scanned, found, wanted, next) in [
            (500, 0, 0, 100, 500),
            (500, 500, 0, 100, 4_000),
            (4_000, 4_500, 0, 100, 32_000),
            (32_000, 36_500, 1, 100, 100_000),
            (500, 500, 50, 100, 500),
            (500, 500, 5, 100, 4_000),
            (500, 500, 20, 100, 2_000),
            (4_000, 4_500, 99, 100, 500),
        ] {
            assert_eq!(next_step(last, scanned, found, wanted), next, "{scanned} entries, {found} of {wanted} keys");
        }
    }
}
