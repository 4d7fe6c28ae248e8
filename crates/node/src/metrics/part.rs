//! Owns the figures of a part of a cluster's database, a shard or an endpoint, as text for the node that merges them. INFO answers the text
//! to `INFO figures`. Never merges anything.
//!
//! A line for each figure that is a number and is known: `name:value`. And one for each histogram of latencies:
//! `name:nanoseconds=count,…`, with the largest value of each bucket that is not empty. What a reader does not know is of another version.

use super::{Latencies, Read, Row, Scope};
use crate::database::Database;
use engine::Summary;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The name of the section.
pub const SECTION: &str = "figures";

type OfLatencies = fn(&mut Latencies) -> &mut Summary;
const HISTOGRAMS: [(&str, OfLatencies); 3] = [
    ("histogram_all", |latencies| &mut latencies.all),
    ("histogram_read_ram", |latencies| &mut latencies.read_ram),
    ("histogram_read_flash", |latencies| &mut latencies.read_flash),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    Scope::Database.rows().filter(|row| !row.name.is_empty())
}

/// What a part has said.
#[derive(Clone, Debug, Default)]
pub struct Part {
    values: BTreeMap<&'static str, f64>,
    pub latencies: Latencies,
}

impl Part {
    /// What `text` says, as far as this version knows it.
    pub fn read(text: &str) -> Part {
        let mut part = Part::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if let Some((_, of)) = HISTOGRAMS.iter().find(|(known, _)| *known == name) {
                *of(&mut part.latencies) = Summary::of_buckets(value.split(',').filter_map(|bucket| {
                    let (nanos, count) = bucket.split_once('=')?;
                    Some((nanos.parse().ok()?, count.parse().ok()?))
                }));
            } else if let Some(row) = rows().find(|row| row.name == name) {
                part.values.extend(value.parse().ok().map(|value| (row.name, value)));
            }
        }
        part
    }

    /// By the row's name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
}

/// The figures of this database.
pub fn text(database: &Database) -> String {
    let figures = database.figures();
    let mut text = String::from("# Figures\r\n");
    // Writing to a String cannot fail.
    for row in rows() {
        let value = match row.read {
            Read::Number(read) => read(&figures) as f64,
            Read::State(read) => f64::from(u8::from(read(&figures))),
            Read::Real(read) => read(&figures),
            _ => f64::NAN,
        };
        if value.is_finite() {
            let _ = write!(text, "{}:{value}\r\n", row.name);
        }
    }
    let mut latencies = database.latencies();
    for (name, of) in HISTOGRAMS {
        let buckets: Vec<String> =
            of(&mut latencies).buckets().map(|(nanos, count)| format!("{nanos}={count}")).collect();
        let _ = write!(text, "{name}:{}\r\n", buckets.join(","));
    }
    text
}
