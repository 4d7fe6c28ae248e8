//! Owns times as people write and read them. Never asks for the current time, except in [`now_ms`].

use std::time::{SystemTime, UNIX_EPOCH};

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// `30d`, `12h`, `15m`, `90s`, in milliseconds.
pub fn parse_span(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time span; write 30d, 12h, 15m or 90s");
    let unit = text.chars().last().filter(char::is_ascii_alphabetic).ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds * 1000).filter(|&ms| ms > 0 && ms < 1 << 52).ok_or_else(wrong)
}

/// `2026-11-21 18:04 UTC`.
pub fn date(ms: u64) -> String {
    let (days, minutes) = (ms / 86_400_000, ms / 60_000 % 1440);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// `2026-11-21T18:04:05.678Z`, as RFC 3339 writes it.
pub fn instant(ms: u64) -> String {
    let (year, month, day) = civil(ms / 86_400_000);
    let (hour, minute) = (ms / 3_600_000 % 24, ms / 60_000 % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", ms / 1000 % 60, ms % 1000)
}

/// The date of a number of days since 1970 (Hinnant, chrono-compatible low-level date algorithms).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * month_from_march + 2) / 5 + 1)
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
        assert_eq!(instant(1_795_284_245_678), "2026-11-21T18:04:05.678Z");
    }

    #[test]
    fn spans_read_and_print() {
        assert_eq!(parse_span("30d"), Ok(30 * 86_400_000));
        assert_eq!(parse_span("90s"), Ok(90_000));
        for text in ["", "d", "30", "0d", "-1d", "1.5h", "1w", "30é", "99999999999999d"] {
            assert!(parse_span(text).is_err(), "{text} was taken");
        }
        assert_eq!([span(9), span(312), span(3660), span(90_000)].join(", "), "9s, 5m 12s, 1h 1m, 1d 1h");
    }
}
