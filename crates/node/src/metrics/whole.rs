//! Owns INFO of a database whose data are in shards: one text of the endpoint's own and of those of the shards. Never knows how a shard is
//! asked.
//!
//! What is about clients is that of the endpoint on this node; what is about data is of all shards together: sums, the largest or the
//! smallest, as the table of figures says. A share is computed anew where its parts are in the text, and otherwise it is that of the
//! shard with the largest.

use super::Merge;
use super::info::{info, two_digits};
use super::reading::{percent, quotient};
use super::table::SECTIONS;
use crate::database::Database;
use base::size;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The sections of which the endpoint knows everything.
const OF_ENDPOINT: &[&str] =
    &["Server", "Clients", "Replication", "CPU", "Modules", "Commandstats", "Errorstats", "Latencystats"];
/// What the shards know of the section Stats.
const STATS_OF_SHARDS: &[&str] =
    &["expired_keys", "evicted_keys", "keyspace_hits", "keyspace_misses", "refused_writes"];

type Lines<'t> = Vec<(&'t str, &'t str)>;

/// The sections of a text, with their lines.
fn sections(text: &str) -> Vec<(&str, Lines<'_>)> {
    let mut sections: Vec<(&str, Lines<'_>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("# "), line.split_once(':'), sections.last_mut()) {
            (Some(name), ..) => sections.push((name, Vec::new())),
            (None, Some(line), Some((_, lines))) => lines.push(line),
            _ => {}
        }
    }
    sections
}

fn merge_of(name: &str) -> Option<Merge> {
    let rows = SECTIONS.iter().flat_map(|section| section.rows);
    rows.into_iter().find(|row| row.name == name).map(|row| row.merge)
}

/// INFO with these sections. `shards`: the texts of the shards that have answered; `count`: of how many.
pub fn whole_info(database: &Database, wanted: &[&[u8]], shards: &[String], count: usize) -> String {
    let own = info(database, wanted);
    let texts: Vec<_> = shards.iter().map(|text| sections(text)).collect();
    let mut whole = String::new();
    for (name, own_lines) in sections(&own) {
        if !whole.is_empty() {
            whole.push_str("\r\n");
        }
        let _ = write!(whole, "# {name}\r\n");
        let of_shards: Vec<&Lines<'_>> = texts
            .iter()
            .filter_map(|text| text.iter().find(|(known, _)| *known == name))
            .map(|(_, lines)| lines)
            .collect();
        let lines = match name {
            "Cluster" => {
                let served = shards.len().to_string();
                vec![
                    ("cluster_enabled".to_owned(), "0".to_owned()),
                    ("shards".to_owned(), count.to_string()),
                    ("shards_answering".to_owned(), served),
                ]
            }
            "Keyspace" => keyspace(&of_shards),
            _ if OF_ENDPOINT.contains(&name) || of_shards.is_empty() => owned(&own_lines),
            "Stats" => {
                let merged: BTreeMap<String, String> = merged(&of_shards).into_iter().collect();
                let line = |(name, value): &(&str, &str)| match merged.get(*name) {
                    Some(of_shards) if STATS_OF_SHARDS.contains(name) => ((*name).to_owned(), of_shards.clone()),
                    _ => ((*name).to_owned(), (*value).to_owned()),
                };
                own_lines.iter().map(line).collect()
            }
            _ => merged(&of_shards),
        };
        for (name, value) in lines {
            let _ = write!(whole, "{name}:{value}\r\n");
        }
    }
    whole
}

fn owned(lines: &Lines<'_>) -> Vec<(String, String)> {
    lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The lines of the shard that has most of them, with the values of all.
fn merged(shards: &[&Lines<'_>]) -> Vec<(String, String)> {
    let Some(template) = shards.iter().max_by_key(|lines| lines.len()) else { return Vec::new() };
    let values = |name: &str| -> Vec<&str> {
        shards
            .iter()
            .filter_map(|lines| lines.iter().find(|(known, _)| *known == name))
            .map(|(_, value)| *value)
            .collect()
    };
    let number = |name: &str| -> f64 { values(name).iter().filter_map(|value| value.parse::<f64>().ok()).sum() };
    let line = |(name, first): &(&str, &str)| {
        let value = match (*name, name.strip_suffix("_human")) {
            ("values_in_ram_perc", _) => {
                let (ram, flash) = (number("values_in_ram") as u64, number("values_in_flash") as u64);
                two_digits(percent(ram, ram + flash), 100.0)
            }
            ("ram_hit_ratio", _) => {
                let (ram, flash) = (number("ram_hits") as u64, number("flash_hits") as u64);
                two_digits(percent(ram, ram + flash), 100.0)
            }
            ("ram_flash_access_ratio", _) => {
                two_digits(quotient(number("ram_hits") as u64, number("flash_hits") as u64), 0.0)
            }
            (_, Some(bytes)) if !values(bytes).is_empty() => size::info(number(bytes) as u64),
            (name, _) => {
                let how = merge_of(name).unwrap_or(if name.ends_with("_count") { Merge::Sum } else { Merge::Derived });
                one(how, &values(name)).unwrap_or_else(|| (*first).to_owned())
            }
        };
        ((*name).to_owned(), value)
    };
    template.iter().map(line).collect()
}

/// `None`: they are no numbers, so the first one will do.
fn one(how: Merge, values: &[&str]) -> Option<String> {
    let wholes: Option<Vec<i128>> = values.iter().map(|value| value.parse().ok()).collect();
    if let Some(wholes) = wholes {
        let one = match how {
            Merge::Sum => wholes.iter().sum(),
            Merge::Min => *wholes.iter().min()?,
            Merge::Max | Merge::Derived => *wholes.iter().max()?,
            Merge::Same => *wholes.first()?,
        };
        return Some(one.to_string());
    }
    // A share, perhaps with its sign: the text of the largest.
    let share = |value: &&&str| value.trim_end_matches('%').parse::<f64>().ok();
    let shares: Option<Vec<f64>> = values.iter().map(|value| share(&value)).collect();
    let largest = values.iter().zip(shares?).max_by(|(_, a), (_, b)| a.total_cmp(b));
    if how == Merge::Same { None } else { largest.map(|(value, _)| (*value).to_owned()) }
}

/// `db0:keys=1,expires=0,avg_ttl=0,cached_keys=1`
fn keyspace(shards: &[&Lines<'_>]) -> Vec<(String, String)> {
    let mut databases: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for (name, value) in shards.iter().flat_map(|lines| lines.iter()) {
        let read = |field: &str| -> u64 {
            let pair = value.split(',').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='));
            pair.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let [keys, expires, ttl, cached] = databases.entry(name).or_default();
        *keys += read("keys");
        *expires += read("expires");
        // A mean of all keys that expire.
        *ttl += read("avg_ttl") * read("expires");
        *cached += read("cached_keys");
    }
    let line = |(name, [keys, expires, ttl, cached]): (&str, [u64; 4])| {
        let ttl = ttl / expires.max(1);
        (name.to_owned(), format!("keys={keys},expires={expires},avg_ttl={ttl},cached_keys={cached}"))
    };
    databases.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_shards_become_one() {
        let one = "# Tiering\r\nvalues_in_flash:5\r\nvalues_in_ram:5\r\nvalues_in_ram_perc:50.00\r\nram_hits:1\r\nflash_hits:0\r\nram_hit_ratio:100.00\r\nused_ram:2048\r\nused_ram_human:2.00K\r\nflash_driver:io_uring\r\n";
        let two = "# Tiering\r\nvalues_in_flash:0\r\nvalues_in_ram:30\r\nvalues_in_ram_perc:100.00\r\nram_hits:2\r\nflash_hits:1\r\nram_hit_ratio:66.67\r\nused_ram:1024\r\nused_ram_human:1.00K\r\nflash_driver:io_uring\r\n";
        let (one, two) = (sections(one), sections(two));
        let lines: BTreeMap<_, _> = merged(&[&one[0].1, &two[0].1]).into_iter().collect();
        let value = |name: &str| lines[name].as_str();
        assert_eq!(
            (value("values_in_flash"), value("values_in_ram_perc"), value("ram_hit_ratio")),
            ("5", "87.50", "75.00")
        );
        assert_eq!((value("used_ram"), value("used_ram_human"), value("flash_driver")), ("3072", "3.00K", "io_uring"));
    }

    #[test]
    fn keys_of_shards_are_counted_together() {
        let texts = [
            "# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=100,cached_keys=2\r\n",
            "# Keyspace\r\ndb0:keys=4,expires=3,avg_ttl=300,cached_keys=0\r\n",
        ];
        let parsed = texts.map(|text| sections(text));
        let lines: Vec<&Lines<'_>> = parsed.iter().map(|text| &text[0].1).collect();
        assert_eq!(keyspace(&lines), [("db0".to_owned(), "keys=7,expires=4,avg_ttl=250,cached_keys=2".to_owned())]);
    }
}
