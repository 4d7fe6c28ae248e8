//! Owns sizes as people write and read them, in redis.conf's units: 1kb is 1024 and 1k is 1000. Never knows what a size
//! is of.

/// Units of 1024, the smallest first.
const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];

/// `10gb`, `512mb`, `1.5tb`, `1000k`, `4096`.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        "t" => 1_000_000_000_000,
        "tb" | "tib" => 1 << 40,
        _ => return Err(format!("{unit:?} is not a unit; write 512mb, 10gb or 2tb")),
    };
    let wrong = || format!("{text:?} is not a size; write 512mb, 10gb or 2tb");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is more than a computer can count"));
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if unit.is_empty() || bytes >= u64::MAX as f64 { Err(wrong()) } else { Ok(bytes as u64) }
}

/// For people: three digits and a unit, `1.50 GB`, `512 MB`, `0 B`.
pub fn human(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // Without this, 1023.6 would be printed as 1024.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{} {}", figures(value), UNITS[unit]) }
}

/// A count for people: `950`, `12.3k`, `4.56M`.
pub fn count(value: f64) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            let whole = unit.is_empty() && (value.fract() == 0.0 || value >= 99.5);
            return if whole { format!("{value:.0}") } else { format!("{}{unit}", figures(value)) };
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

/// Three digits, without useless zeros.
fn figures(value: f64) -> String {
    let text = match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A size for flintkv.conf, rounded down to a simple number.
pub fn directive(bytes: u64) -> String {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    if bytes >= 10 * GB {
        format!("{}gb", bytes / GB)
    } else if bytes >= MB {
        format!("{}mb", bytes / MB)
    } else {
        bytes.to_string()
    }
}

/// Microseconds for people: `85 µs`, `1.2 ms`, `3 s`.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", figures(us)),
        us if us < 999_500.0 => format!("{} ms", figures(us / 1e3)),
        us => format!("{} s", figures(us / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_conf_has_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1k", 1000),
            ("1kb", 1024),
            ("512mb", 512 << 20),
            ("10GB", 10 << 30),
            ("1.5gb", 3 << 29),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "gb", "1.5", "-1", "10 gb", "1e9", "10pb", "99999999999tb", "1.2.3gb", "ten"] {
            assert!(parse(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn sizes_are_printed_with_three_figures() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KB"),
            (1 << 20, "1 MB"),
            (1536 << 20, "1.5 GB"),
            ((1 << 30) - 1, "1 GB"),
            (123_456_789_012, "115 GB"),
            (u64::MAX, "16384 PB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn a_size_in_a_directive_reads_back_as_no_more_than_it_was() {
        for bytes in [0, 1, 4095, (5 << 20) + 17, (3 << 30) + 5, (12 << 30) + 99, 7 << 40] {
            let text = directive(bytes);
            let back = parse(&text).expect("a size");
            assert!(back <= bytes && bytes - back <= bytes / 8 + (1 << 20), "{bytes} became {text}");
        }
    }

    #[test]
    fn counts_and_times_have_units() {
        assert_eq!(
            [count(0.0), count(7.25), count(950.0), count(12_345.0), count(4.56e6)].join(" "),
            "0 7.25 950 12.3k 4.56M"
        );
        assert_eq!([micros(85.4), micros(1234.0), micros(3e6)].join(", "), "85.4 µs, 1.23 ms, 3 s");
    }
}
