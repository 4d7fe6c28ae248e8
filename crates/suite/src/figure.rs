//! Owns one figure: its name, how it was measured, its value, and its target. Never measures.

use serde::Serialize;

use bench::report::Table;

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: String,
    pub how: String,
    pub measured: f64,
    pub unit: &'static str,
    pub target: Target,
    pub verdict: Verdict,
    /// The numbers from which the value was computed.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Within one per cent.
    Exactly(f64),
    /// Shown without a verdict.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    Pass,
    Missed,
    Shown,
}

impl Target {
    /// The verdict applies to the displayed value, with three digits after the point.
    fn verdict(self, measured: f64) -> Verdict {
        let shown = (measured * 1000.0).round() / 1000.0;
        let good = match self {
            Target::None => return Verdict::Shown,
            _ if !measured.is_finite() => false,
            Target::AtMost(limit) => shown <= limit,
            Target::AtLeast(limit) => shown >= limit,
            Target::Exactly(wanted) => (shown - wanted).abs() <= wanted / 100.0,
        };
        if good { Verdict::Pass } else { Verdict::Missed }
    }

    fn shown(self, unit: &str) -> String {
        match self {
            Target::AtMost(limit) => format!("≤ {limit}{unit}"),
            Target::AtLeast(limit) => format!("≥ {limit}{unit}"),
            Target::Exactly(wanted) => format!("{wanted}{unit}"),
            Target::None => String::from("–"),
        }
    }
}

impl Figure {
    pub fn new(name: &str, how: &str, measured: f64, target: Target, detail: String) -> Figure {
        let verdict = target.verdict(measured);
        Figure { name: name.to_owned(), how: how.to_owned(), measured, unit: "", target, verdict, detail }
    }

    pub fn unit(mut self, unit: &'static str) -> Figure {
        self.unit = unit;
        self
    }
}

pub fn table(title: &str, figures: &[Figure]) -> Table {
    let rows = figures.iter().map(|figure| {
        let verdict = match figure.verdict {
            Verdict::Pass => "PASS",
            Verdict::Missed => "MISSED",
            Verdict::Shown => "shown",
        };
        let measured = match figure.measured {
            measured if !measured.is_finite() => String::from("–"),
            measured if measured.abs() >= 100.0 => format!("{measured:.0}{}", figure.unit),
            measured if measured.abs() >= 10.0 => format!("{measured:.1}{}", figure.unit),
            measured => format!("{measured:.3}{}", figure.unit),
        };
        let target = figure.target.shown(figure.unit);
        let cells = [figure.name.as_str(), figure.how.as_str(), &measured, &target, verdict, &figure.detail];
        cells.map(String::from).to_vec()
    });
    let head = ["figure", "how", "measured", "target", "verdict", "from"];
    Table { title: title.to_owned(), head: head.map(String::from).to_vec(), rows: rows.collect() }
}

/// The middle value; of an even number of values, the mean of the two in the middle. NaN if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_displayed_value() {
        assert_eq!(Target::AtMost(0.88).verdict(0.8804), Verdict::Pass);
        assert_eq!(Target::AtMost(0.88).verdict(0.881), Verdict::Missed);
        assert_eq!(Target::AtLeast(1.0).verdict(0.9994), Verdict::Missed);
        assert_eq!(Target::Exactly(1.0).verdict(1.009), Verdict::Pass);
        assert_eq!(Target::Exactly(1.0).verdict(1.02), Verdict::Missed);
        assert_eq!(Target::AtMost(1.0).verdict(f64::NAN), Verdict::Missed);
        assert_eq!(Target::None.verdict(f64::NAN), Verdict::Shown);
    }

    #[test]
    fn the_median_is_of_what_was_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[3.0, f64::NAN, 1.0]), 2.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_table_says_missed() {
        let figures = [
            Figure::new("speed", "÷ redis-server's", 1.25, Target::AtLeast(1.3), String::from("10 against 8")),
            Figure::new("cold key", "RSS", 21.44, Target::AtMost(28.0), String::new()).unit(" B"),
            Figure::new("also", "", f64::NAN, Target::None, String::new()),
        ];
        let expected = "\
| figure | how | measured | target | verdict | from |
| --- | --- | --- | --- | --- | --- |
| speed | ÷ redis-server's | 1.250 | ≥ 1.3 | MISSED | 10 against 8 |
| cold key | RSS | 21.4 B | ≤ 28 B | PASS |  |
| also |  | – | – | shown |  |
";
        assert_eq!(table("t", &figures).markdown(), expected);
    }
}
