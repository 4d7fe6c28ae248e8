//! Owns tables and the format of numbers. Never knows their meaning.

use std::fmt::Write;

use serde::Serialize;

const GAP: &str = "  ";

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// For a terminal.
    pub fn text(&self) -> String {
        let columns = self.head.len();
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for (index, line) in lines().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
            if index == 0 {
                let whole = widths.iter().sum::<usize>() + GAP.len() * columns.saturating_sub(1);
                let _ = writeln!(text, "{}", "-".repeat(whole));
            }
        }
        text
    }

    /// For a README.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&self.head);
        text.push_str(&format!("|{}\n", " --- |".repeat(self.head.len())));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// `1,234,567`
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    if number < 0.0 && digits != "0" {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Decimal units, as for disks, with three digits: 100 GB is 10^11 bytes.
pub fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

pub fn milliseconds(ms: f64) -> String {
    match ms {
        // With three decimals of a millisecond, a fraction of a microsecond would be shown as 0.000.
        ms if ms > 0.0 && ms < 0.1 => format!("{:.2} µs", ms * 1000.0),
        ms if ms < 10.0 => format!("{ms:.3} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A share from 0 to 1 as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        let shown = [0.0, 7.4, 999.0, 1000.0, 123_456.5, 1_600_000.0, -4500.0].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "123,456", "1,600,000", "-4,500"]);
    }

    #[test]
    fn bytes_have_three_digits() {
        let shown = [0, 999, 1000, 9_999, 123_456, 200_000_000, 999_600_000, 100_000_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "10.0 kB", "123 kB", "200 MB", "1.00 GB", "100 GB"]);
    }

    #[test]
    fn columns_line_up_and_markdown_is_a_table() {
        let cells = |words: [&str; 2]| words.map(String::from).to_vec();
        let table = Table {
            title: String::from("Figures"),
            head: cells(["what", "how much"]),
            rows: vec![cells(["µs per command", "1|2"]), cells(["–", "3"])],
        };
        let text =
            "Figures\nwhat            how much\n------------------------\nµs per command  1|2\n–               3\n";
        assert_eq!(table.text(), text);
        let markdown = "| what | how much |\n| --- | --- |\n| µs per command | 1\\|2 |\n| – | 3 |\n";
        assert_eq!(table.markdown(), markdown);
    }
}
