//! Owns the file of one connection (`--client-stats`): its seconds and its latencies, comma separated.

use std::fmt::Write;

use crate::stats::{ClientStats, Second};

pub fn client_csv(client: &ClientStats) -> String {
    let mut text = String::from("Per-Second Benchmark Data\nSecond");
    for row in &client.rows {
        let name = &row.name;
        let _ = write!(text, ",{name} Requests,{name} Average Latency,{name} Total Bytes");
        if row.hits + row.misses > 0 {
            let _ = write!(text, ",{name} Misses,{name} Hits");
        }
    }
    text.push('\n');
    let seconds = client.rows.iter().flat_map(|row| &row.seconds).map(|second| second.index + 1).max().unwrap_or(0);
    let nothing = Second::default();
    for index in 0..seconds {
        let _ = write!(text, "{index}");
        for row in &client.rows {
            let found = row.seconds.binary_search_by_key(&index, |second| second.index);
            let second = found.map_or(&nothing, |place| &row.seconds[place]);
            let bytes = second.bytes_rx + second.bytes_tx;
            let _ = write!(text, ",{},{:.5},{bytes}", second.count, second.latency_ms_avg);
            if row.hits + row.misses > 0 {
                let _ = write!(text, ",{},{}", second.misses, second.hits);
            }
        }
        text.push('\n');
    }
    for row in client.rows.iter().filter(|row| row.count > 0) {
        let _ = write!(text, "\nFull-Test {} Latency\nLatency (<= msec),Percent\n", row.name);
        for step in row.latency.iter_quantiles(5) {
            let ms = step.value_iterated_to() as f64 / 1e3;
            let _ = writeln!(text, "{ms:.3},{:.3}", step.quantile_iterated_to() * 100.0);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::tests::run;

    #[test]
    fn seconds_then_latencies() {
        let client = ClientStats { thread: 0, client: 1, rows: run().rows };
        let text = client_csv(&client);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "Second,SET Requests,SET Average Latency,SET Total Bytes,GET Requests,GET Average Latency,GET Total Bytes,\
             GET Misses,GET Hits,WAIT Requests,WAIT Average Latency,WAIT Total Bytes"
        );
        assert_eq!(lines[2], "0,20,0.00000,0,200,0.00000,0,0,0,0,0.00000,0");
        assert_eq!(&lines[4..6], ["Full-Test SET Latency", "Latency (<= msec),Percent"]);
        assert_eq!(lines.last(), Some(&"1.000,100.000"));
    }
}
