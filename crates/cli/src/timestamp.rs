//! Owns parsing and printing of times. Reads the clock only to tell how long ago something was.

pub use base::time::{instant, parse_ms as parse_span};

use base::clock::wall_ms;
use base::time::{civil, parse_instant};

/// A moment of the past: `2026-11-21T18:04:05Z`, or a time span before now, `10m`.
pub fn parse(text: &str) -> Result<u64, String> {
    let before = |span_ms: u64| wall_ms().checked_sub(span_ms);
    match (parse_instant(text), parse_span(text).ok().and_then(before)) {
        (Ok(ms), _) | (_, Some(ms)) => Ok(ms),
        (Err(why), None) => Err(format!("{why}, or as a time span before now, such as 10m")),
    }
}

/// `2026-11-21 18:04 UTC`.
pub fn date(ms: u64) -> String {
    let (days, minutes) = (ms / 86_400_000, ms / 60_000 % 1440);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// `3d 4h`, `5m 12s`: the two largest units.
pub fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00 UTC"),
            (951_868_799_999, "2000-02-29 23:59 UTC"),
            (951_868_800_000, "2000-03-01 00:00 UTC"),
            (1_795_284_240_000, "2026-11-21 18:04 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(ms), text);
        }
    }

    #[test]
    fn a_moment_is_given_as_a_date_or_as_a_span_before_now() {
        assert_eq!(parse("2026-11-21T18:04:05.678Z"), Ok(1_795_284_245_678));
        let (early, late) = (wall_ms(), parse("1h").unwrap() + 3_600_000);
        assert!(early <= late && late <= wall_ms());
        let why = "\"yesterday\" is not a time; write it in UTC, as 2026-11-23T04:05:06Z, or as a time span before now, such as 10m";
        assert_eq!(parse("yesterday"), Err(why.to_owned()));
    }

    #[test]
    fn spans_print() {
        assert_eq!([span(9), span(312), span(3660), span(90_000)].join(", "), "9s, 5m 12s, 1h 1m, 1d 1h");
    }
}
