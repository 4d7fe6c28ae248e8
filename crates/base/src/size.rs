//! Owns numbers of bytes as text, in three forms: of redis.conf, for human readers, and of Redis's INFO. 1kb is 1024 bytes,
//! 1k is 1000.

/// Units in steps of 1024, the smallest first.
const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];

/// The bytes of a unit of redis.conf. Letters may be of any case. An empty unit is one byte.
pub fn unit_bytes(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    })
}

/// Reads `512`, `1k` = 1000, `1kb` = 1024, `1m`, `1mb`, `1g`, `1gb`. Letters may be of any case.
pub fn parse(word: &str) -> Option<u64> {
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = word.split_at(digits);
    number.parse::<u64>().ok()?.checked_mul(unit_bytes(unit)?)
}

/// The text that [`parse`] reads back as the same number: in the largest unit that divides the number, otherwise in bytes.
pub fn exact(bytes: u64) -> String {
    for (shift, unit) in [(30, "gb"), (20, "mb"), (10, "kb")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// The text for human readers: three figures and a unit, `1.5 GB`, `512 MB`, `0 B`.
pub fn human(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // Without the margin, 999.6 would be printed as four figures.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{} {}", three_figures(value), UNITS[unit]) }
}

/// The form of INFO's `used_memory_human` and similar fields: `1.50G`, `1023B`.
pub fn info(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let unit = (bytes.max(1).ilog2() / 10).min(4) as usize;
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

/// Three figures, without trailing zeros after the point.
pub fn three_figures(value: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_in_any_case() {
        for (word, bytes) in [
            ("0", 0),
            ("512", 512),
            ("5b", 5),
            ("1k", 1000),
            ("1kb", 1024),
            ("2M", 2_000_000),
            ("2mB", 2 << 20),
            ("3g", 3_000_000_000),
            ("3GB", 3 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(word), Some(bytes), "{word}");
        }
        for word in
            ["", "kb", "-1", "+1", "1.5gb", "1 gb", "1tb", "1kk", "0x10", "18446744073709551616", "17179869184gb"]
        {
            assert_eq!(parse(word), None, "{word}");
        }
    }

    #[test]
    fn an_exact_size_reads_back() {
        for (bytes, text) in [(0, "0"), (1000, "1000"), (1 << 20, "1mb"), (1536 << 20, "1536mb"), (5 << 40, "5120gb")] {
            assert_eq!(exact(bytes), text);
            assert_eq!(parse(text), Some(bytes));
        }
    }

    #[test]
    fn human_shows_three_figures() {
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
    fn info_has_two_places() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1536 * 1024, "1.50M"),
            (3 << 30, "3.00G"),
            (5 << 40, "5.00T"),
            (1 << 60, "1048576.00T"),
        ] {
            assert_eq!(info(bytes), text);
        }
    }
}
