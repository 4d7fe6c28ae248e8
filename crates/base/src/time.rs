//! Owns parsing and printing of times: dates in UTC, and time spans. Never reads the clock.

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

/// How often something happens, and at which time of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub every_ms: u64,
    /// In milliseconds since midnight, UTC. `None`: at no fixed time, only after the interval.
    pub at_ms: Option<u64>,
}

const DAY_MS: u64 = 86_400_000;

impl Schedule {
    /// `6h`, `1d at 03:00`, or `at 03:00`, which is every day.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let wrong =
            || format!("{text:?} is not a schedule; write 30m, 6h, 1d, or with a time of the day (UTC) 1d at 03:00");
        let (every, at) = match text.trim().split_once("at ") {
            Some((every, at)) => (every.trim(), Some(at.trim())),
            None => (text.trim(), None),
        };
        let every_ms = if every.is_empty() && at.is_some() { DAY_MS } else { parse_ms(every).map_err(|_| wrong())? };
        let at_ms = match at {
            Some(at) => Some(time_of_day(at).ok_or_else(wrong)?),
            None => None,
        };
        if at_ms.is_some() && !every_ms.is_multiple_of(DAY_MS) && !DAY_MS.is_multiple_of(every_ms) {
            return Err(format!("{every} does not divide a day, so a time of the day cannot be given with it"));
        }
        Ok(Schedule { every_ms, at_ms })
    }

    /// The last occurrence of the time of the day, at or before `now_ms`. `None`: the schedule has no time of the day.
    pub fn last_moment_ms(&self, now_ms: u64) -> Option<u64> {
        let at_ms = self.at_ms?;
        let since = now_ms.checked_sub(at_ms)?;
        Some(now_ms - since % self.every_ms)
    }
}

/// `03:00` in milliseconds since midnight.
fn time_of_day(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, below: u64| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|&number| is_plain && number < below)
    };
    Some((number(hour, 24)? * 60 + number(minute, 60)?) * 60_000)
}

/// Reads `2026-11-23T04:05:06Z`, also with a fraction of a second: milliseconds since 1970.
pub fn parse_instant(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time; write it in UTC, as 2026-11-23T04:05:06Z");
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<u64>().ok())
    };
    let is_at = |at: usize, byte: u8| text.as_bytes().get(at) == Some(&byte);
    if ![(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')].iter().all(|&(at, byte)| is_at(at, byte)) {
        return Err(wrong());
    }
    let parts = [number(0..4), number(5..7), number(8..10), number(11..13), number(14..16), number(17..19)];
    let [Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)] = parts else {
        return Err(wrong());
    };
    let fraction_ms = match text.get(19..) {
        Some("Z") => 0,
        Some(rest) => {
            let digits = rest.strip_prefix('.').and_then(|rest| rest.strip_suffix('Z')).ok_or_else(wrong)?;
            let is_right = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            let padded = format!("{digits:0<3}");
            padded[..3].parse::<u64>().ok().filter(|_| is_right).ok_or_else(wrong)?
        }
        None => return Err(wrong()),
    };
    // Searches the day that has this date, starting with a guess.
    let guess = year.checked_sub(1970).ok_or_else(wrong)? * 365;
    let days = (guess..guess + 2_500).find(|&days| civil(days) == (year, month, day)).ok_or_else(wrong)?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(wrong());
    }
    Ok(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + fraction_ms)
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
    fn moments_are_read_as_they_are_written() {
        for ms in [0, 951_868_799_999, 1_795_284_245_678, 4_102_444_799_001] {
            assert_eq!(parse_instant(&instant(ms)), Ok(ms), "{}", instant(ms));
        }
        assert_eq!(parse_instant("2026-11-21T18:04:05Z"), Ok(1_795_284_245_000));
        for text in [
            "",
            "2026",
            "2026-11-21",
            "2026-11-21T18:04:05",
            "2026-02-30T00:00:00Z",
            "2026-11-21 18:04:05Z",
            "1969-12-31T23:59:59Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T18:60:00Z",
            "2026-11-21T18:04:05.Z",
            "2026-11-21T18:04:05+01:00",
            "2026-11-2éT18:04:05Z",
        ] {
            assert!(parse_instant(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_schedule_may_have_a_time_of_the_day() {
        const HOUR: u64 = 3_600_000;
        let schedule = |every_ms, at_ms| Ok(Schedule { every_ms, at_ms });
        assert_eq!(Schedule::parse("6h"), schedule(6 * HOUR, None));
        assert_eq!(Schedule::parse("at 03:30"), schedule(24 * HOUR, Some(7 * HOUR / 2)));
        assert_eq!(Schedule::parse("12h at 03:00"), schedule(12 * HOUR, Some(3 * HOUR)));
        assert_eq!(Schedule::parse("7d at 00:00"), schedule(7 * 24 * HOUR, Some(0)));
        for text in ["", "at", "at 3:00", "at 24:00", "at 03:60", "5h at 03:00", "1d at", "at 03:00 1d", "1d at +3:00"]
        {
            assert!(Schedule::parse(text).is_err(), "{text} was taken");
        }
        let daily = Schedule::parse("12h at 03:00").unwrap();
        let day = 20_000 * 24 * HOUR;
        assert_eq!(daily.last_moment_ms(day + 2 * HOUR), Some(day - 9 * HOUR));
        assert_eq!(daily.last_moment_ms(day + 3 * HOUR), Some(day + 3 * HOUR));
        assert_eq!(daily.last_moment_ms(day + 16 * HOUR), Some(day + 15 * HOUR));
        assert_eq!(Schedule::parse("6h").unwrap().last_moment_ms(day), None);
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
