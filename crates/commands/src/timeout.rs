//! Owns how the timeout of a blocking command is read. Never knows how the wait is done.

use crate::number::int;
use crate::stop::Stop;
use resp::LongDouble;

const NEGATIVE: Stop = Stop::error("ERR timeout is negative");
const OUT_OF_RANGE: Stop = Stop::error("ERR timeout is out of range");

/// Reads a timeout in seconds, with a fraction, and returns its moment. 0: no timeout.
pub fn until_seconds(text: &[u8], now_ms: u64) -> Result<Option<u64>, Stop> {
    let seconds = LongDouble::parse(text).ok_or(Stop::error("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds.to_f64() * 1000.0).ceil();
    // 2^63 is the smallest float that does not fit into an i64.
    if milliseconds >= 9_223_372_036_854_775_808.0 {
        return Err(OUT_OF_RANGE);
    }
    until(milliseconds as i64, now_ms)
}

/// Reads a timeout in milliseconds and returns its moment. 0: no timeout.
pub fn until_milliseconds(text: &[u8], now_ms: u64) -> Result<Option<u64>, Stop> {
    let milliseconds = int(text);
    until(milliseconds.ok_or(Stop::error("ERR timeout is not an integer or out of range"))?, now_ms)
}

fn until(milliseconds: i64, now_ms: u64) -> Result<Option<u64>, Stop> {
    match u64::try_from(milliseconds) {
        Err(_) => Err(NEGATIVE),
        Ok(0) => Ok(None),
        Ok(milliseconds) if milliseconds > i64::MAX as u64 - now_ms => Err(OUT_OF_RANGE),
        Ok(milliseconds) => Ok(Some(now_ms + milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_redis_reads_them() {
        let text = |result: Result<Option<u64>, Stop>| match result {
            Ok(until) => format!("{until:?}"),
            Err(Stop::Error(text)) => text.into_owned(),
            Err(other) => panic!("{other:?}"),
        };
        for (timeout, meaning) in [
            ("0", "None"),
            ("-0", "None"),
            ("1", "Some(2000)"),
            ("0.001", "Some(1001)"),
            ("0.0001", "Some(1001)"),
            ("-0.0001", "None"),
            ("-1", "ERR timeout is negative"),
            ("-0.01", "ERR timeout is negative"),
            ("9223372036854775", "ERR timeout is out of range"),
            ("9223372036854776", "ERR timeout is out of range"),
            ("1e300", "ERR timeout is out of range"),
            ("inf", "ERR timeout is out of range"),
            ("-inf", "ERR timeout is negative"),
            ("x", "ERR timeout is not a float or out of range"),
            ("", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
        ] {
            assert_eq!(text(until_seconds(timeout.as_bytes(), 1000)), meaning, "{timeout}");
        }
        for (timeout, meaning) in [
            ("0", "None"),
            ("7", "Some(1007)"),
            ("-1", "ERR timeout is negative"),
            ("1.5", "ERR timeout is not an integer or out of range"),
            ("9223372036854775807", "ERR timeout is out of range"),
        ] {
            assert_eq!(text(until_milliseconds(timeout.as_bytes(), 1000)), meaning, "{timeout}");
        }
    }
}
