//! Owns the table of a trace: a row for each policy. Never knows what the figures mean.

use bench::report::{Table, percent};

use crate::policies::{Ideal, POLICIES};
use crate::traces::Trace;

/// What the policies did with a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    pub title: String,
    pub columns: Vec<String>,
    /// The name of a policy, and its shares, 0 to 1, by column.
    pub rows: Vec<(&'static str, Vec<f64>)>,
}

/// Runs a trace on every policy, and on the ideal one if the trace has one.
pub fn simulate(trace: &dyn Trace) -> Results {
    let ideal = trace.ranking().map(|ranking| ("ideal", trace.measure(&|setup| Box::new(Ideal::new(setup, &ranking)))));
    let rows = ideal.into_iter().chain(POLICIES.iter().map(|(name, make)| (*name, trace.measure(make)))).collect();
    Results { title: trace.title(), columns: trace.columns(), rows }
}

impl Results {
    /// In Markdown, with its title.
    pub fn markdown(&self) -> String {
        let head = std::iter::once(String::from("policy")).chain(self.columns.iter().cloned()).collect();
        let row = |(name, shares): &(&str, Vec<f64>)| {
            std::iter::once(String::from(*name)).chain(shares.iter().map(|share| percent(*share))).collect()
        };
        let table = Table { title: self.title.clone(), head, rows: self.rows.iter().map(row).collect() };
        format!("**{}**\n\n{}", table.title, table.markdown())
    }
}
