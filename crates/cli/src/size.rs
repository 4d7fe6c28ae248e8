//! Owns parsing and printing of sizes, counts and times for the operator's commands: sizes as in redis.conf, and in addition
//! fractions and terabytes.

use base::size::{exact, three_figures, unit_bytes};

/// `10gb`, `512mb`, `1.5tb`, `1000k`, `4096`.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "t" => 1_000_000_000_000,
        "tb" | "tib" => 1 << 40,
        _ => unit_bytes(unit).ok_or_else(|| format!("{unit:?} is not a unit; write 512mb, 10gb or 2tb"))?,
    };
    let wrong = || format!("{text:?} is not a size; write 512mb, 10gb or 2tb");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is too large"));
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if unit.is_empty() || bytes >= u64::MAX as f64 { Err(wrong()) } else { Ok(bytes as u64) }
}

/// A count: `75000000`, `75m`, `1.5g`. Units are powers of 1000, like those of redis.conf without a `b`.
pub fn number(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number; write 75000000, 75m or 1.5g");
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        Some((at, 't' | 'T')) => (&text[..at], 1e12),
        _ => return text.parse().map_err(|_| wrong()),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let number = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    if number < 1e18 { Ok(number.round() as u64) } else { Err(format!("{text} is too large")) }
}

/// A part of a whole: `85%` or `0.85`.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("{text:?} is not a share; write 85% or 0.85"))
}

/// A count as text: `950`, `12.3k`, `4.56M`.
pub fn count(value: f64) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            let whole = unit.is_empty() && (value.fract() == 0.0 || value >= 99.5);
            return if whole { format!("{value:.0}") } else { format!("{}{unit}", three_figures(value)) };
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

/// A size for flintkv.conf, rounded down to a short number.
pub fn directive(bytes: u64) -> String {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    let unit = match bytes {
        bytes if bytes >= 10 * GB => GB,
        bytes if bytes >= MB => MB,
        _ => 1,
    };
    exact(bytes / unit * unit)
}

/// Microseconds as text: `85 µs`, `1.2 ms`, `3 s`.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", three_figures(us)),
        us if us < 999_500.0 => format!("{} ms", three_figures(us / 1e3)),
        us => format!("{} s", three_figures(us / 1e6)),
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
    fn a_share_is_a_percentage_or_a_fraction() {
        for (text, part) in [("85%", 0.85), ("0.85", 0.85), ("0", 0.0), ("100%", 1.0), ("1", 1.0), ("12.5 %", 0.125)] {
            assert_eq!(share(text), Ok(part), "{text}");
        }
        for text in ["", "%", "85", "101%", "-1%", "NaN", "half"] {
            assert!(share(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn numbers_have_units_of_a_thousand_and_no_bytes() {
        for (text, count) in
            [("0", 0), ("75000000", 75_000_000), ("75m", 75_000_000), ("1.5G", 1_500_000_000), ("4k", 4000)]
        {
            assert_eq!(number(text), Ok(count), "{text}");
        }
        for text in ["many", "", "m", "75mb", "-1", "1.5", "1e3m", "inf", "infm", "9999999t"] {
            assert!(number(text).is_err(), "{text} was taken");
        }
        assert_eq!(number("many"), Err("\"many\" is not a number; write 75000000, 75m or 1.5g".to_owned()));
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
