//! Owns times as people write them: dates in UTC, and time spans. Never asks for the current time.

/// `2026-11-21T18:04:05.678Z`, as RFC 3339 writes it.
pub fn instant(ms: u64) -> String {
    let (year, month, day) = civil(ms / 86_400_000);
    let (hour, minute) = (ms / 3_600_000 % 24, ms / 60_000 % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", ms / 1000 % 60, ms % 1000)
}

/// The date of a number of days since 1970 (Hinnant, chrono-compatible low-level date algorithms).
pub fn civil(days: u64) -> (u64, u64, u64) {
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

/// `30d`, `12h`, `15m`, `90s`, in milliseconds.
pub fn parse_ms(text: &str) -> Result<u64, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_follow_the_calendar() {
        assert_eq!(instant(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(instant(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(instant(1_795_284_245_678), "2026-11-21T18:04:05.678Z");
    }

    #[test]
    fn spans_are_read() {
        assert_eq!(parse_ms("30d"), Ok(30 * 86_400_000));
        assert_eq!(parse_ms("90s"), Ok(90_000));
        for text in ["", "d", "30", "0d", "-1d", "1.5h", "1w", "30é", "99999999999999d"] {
            assert!(parse_ms(text).is_err(), "{text} was taken");
        }
    }
}
