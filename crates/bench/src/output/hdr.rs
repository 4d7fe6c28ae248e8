//! Owns the two kinds of HDR files: the percentile distribution that plotters read (.hgrm) and the compressed interval
//! log (.txt).

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::compressed;

const STEPS_PER_HALF: u32 = 5;
const US_PER_MS: f64 = 1000.0;

/// Percentiles in milliseconds, in the classic layout.
pub fn hgrm(latency: &Histogram<u64>) -> String {
    let ms = |us: f64| us / US_PER_MS;
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in latency.iter_quantiles(STEPS_PER_HALF) {
        let (value, quantile) = (ms(step.value_iterated_to() as f64), step.quantile_iterated_to());
        count += step.count_since_last_iteration();
        if quantile < 1.0 {
            let _ = writeln!(text, "{value:>12.3} {quantile:>2.12} {count:>10} {:>14.2}", 1.0 / (1.0 - quantile));
        } else {
            let _ = writeln!(text, "{value:>12.3} {quantile:>2.12} {count:>10} {:>14}", "inf");
        }
    }
    let (mean, deviation) = (ms(latency.mean()), ms(latency.stdev()));
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    let _ = writeln!(text, "#[Max     = {:>12.3}, Total count    = {:>12}]", ms(latency.max() as f64), latency.len());
    let _ = writeln!(text, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", latency.buckets(), 2048);
    text
}

/// One interval that holds the whole run; values in microseconds.
pub fn hdr_log(latency: &Histogram<u64>, started: SystemTime, duration: Duration) -> String {
    let epoch_s = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut text = String::from("#[Histogram log format version 1.3]\n");
    let _ = writeln!(text, "#[StartTime: {epoch_s:.3} (seconds since epoch)]");
    text.push_str("\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n");
    let max_ms = latency.max() as f64 / US_PER_MS;
    let _ = writeln!(text, "0.000,{:.3},{max_ms:.3},{}", duration.as_secs_f64(), compressed(latency));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::tests::run;

    #[test]
    fn the_distribution_is_in_milliseconds_and_ends_at_the_maximum() {
        let text = hgrm(&run().totals.latency);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[2], "       0.100 0.000000000000        150           1.00");
        let last = lines.iter().rev().nth(3).expect("a last step");
        assert_eq!(*last, "       1.000 1.000000000000        220            inf");
        assert!(text.contains("Total count    =          220]"), "{text}");
    }

    #[test]
    fn the_log_holds_a_readable_histogram() {
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let latency = run().totals.latency;
        let text = hdr_log(&latency, SystemTime::UNIX_EPOCH, Duration::from_secs(2));
        let entries: Vec<_> = IntervalLogIterator::new(text.as_bytes()).collect();
        let interval = entries.iter().find_map(|entry| match entry {
            Ok(LogEntry::Interval(interval)) => Some(interval),
            _ => None,
        });
        let interval = interval.expect("an interval");
        assert_eq!(interval.duration(), Duration::from_secs(2));
        let coded = interval.encoded_histogram();
        assert!(coded.starts_with("HISTFAAAA"), "{coded}");
        assert_eq!(coded, compressed(&latency));
    }
}
