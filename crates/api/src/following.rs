//! Owns the events about replication: lost and restored links, full synchronisations, promotions. It finds them by comparing
//! the state now with the state a moment ago. Never changes a role.

use crate::events::{Event, Events, Severity};
use base::size::human;
use node::{Node, ReplicationFigures};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};

/// The last seen state of each database, by name.
#[derive(Default)]
pub struct Following(Mutex<BTreeMap<String, Seen>>);

/// The state of a database at the last call.
struct Seen {
    upstream: Option<Upstream>,
    /// The replicas, by their addresses.
    replicas: BTreeMap<String, Downstream>,
    full_syncs: u64,
}

struct Upstream {
    place: String,
    is_up: bool,
    /// The event about the loss of the link was written.
    is_lost: bool,
    sync: Option<Sync>,
}

struct Downstream {
    sync: Option<Sync>,
}

/// A full synchronisation in progress.
struct Sync {
    since_ms: u64,
    bytes: u64,
}

impl Sync {
    fn outcome(&self, now_ms: u64) -> String {
        format!("{} in {:.1} s", human(self.bytes), now_ms.saturating_sub(self.since_ms) as f64 / 1000.0)
    }
}

/// An event: its severity, the word that graphs show, and the text.
type Tale = (Severity, &'static str, String);

impl Following {
    /// Called several times a second, so that it also sees short synchronisations.
    pub fn look(&self, node: &Node, events: &Events, now_ms: u64) {
        let mut seen = self.0.lock();
        let databases = node.databases();
        let names: HashSet<&str> = databases.iter().map(|database| database.name()).collect();
        seen.retain(|name, _| names.contains(name.as_str()));
        for database in &databases {
            let figures = database.replication_figures();
            let Some(before) = seen.get_mut(database.name()) else {
                // The state at the first call is not reported as a change.
                let mut first = Seen { upstream: None, replicas: BTreeMap::new(), full_syncs: 0 };
                first.saw(&figures, now_ms);
                seen.insert(database.name().to_owned(), first);
                continue;
            };
            for (severity, mark, text) in before.saw(&figures, now_ms) {
                events.push(Event::info("replication", database.name(), text).severity(severity).mark(mark));
            }
        }
    }
}

impl Seen {
    fn saw(&mut self, figures: &ReplicationFigures, now_ms: u64) -> Vec<Tale> {
        let mut tales = Vec::new();
        self.saw_upstream(figures, now_ms, &mut tales);
        self.saw_replicas(figures, now_ms, &mut tales);
        self.full_syncs = figures.full_syncs;
        tales
    }

    fn saw_upstream(&mut self, figures: &ReplicationFigures, now_ms: u64, tales: &mut Vec<Tale>) {
        let Some(primary) = &figures.primary else {
            if let Some(before) = self.upstream.take() {
                let text = format!("was promoted: it no longer follows {}, and is a primary", before.place);
                tales.push((Severity::Warning, "promoted", text));
            }
            return;
        };
        let place = format!("{}:{}", primary.host, primary.port);
        let before = self.upstream.take().filter(|before| before.place == place).unwrap_or_else(|| {
            tales.push((Severity::Warning, "follows", format!("follows {place}")));
            Upstream { place: place.clone(), is_up: false, is_lost: false, sync: None }
        });
        let mut sync = before.sync;
        let mut is_lost = before.is_lost;
        let why = primary.error.as_ref().map_or(String::new(), |why| format!(": {why}"));
        if primary.is_synchronising {
            let bytes = primary.sync_total_bytes.max(primary.sync_bytes);
            let known = sync.get_or_insert_with(|| {
                tales.push((Severity::Info, "", format!("a full synchronisation from {place} has begun")));
                Sync { since_ms: now_ms, bytes: 0 }
            });
            known.bytes = known.bytes.max(bytes);
        } else if let Some(sync) = sync.take() {
            tales.push(match primary.is_up {
                true => {
                    let text = format!("the full synchronisation from {place} has ended: {}", sync.outcome(now_ms));
                    (Severity::Info, "synchronised", text)
                }
                false => {
                    let text = format!("the full synchronisation from {place} was interrupted{why}");
                    (Severity::Warning, "", text)
                }
            });
            is_lost = !primary.is_up;
        } else if before.is_up && !primary.is_up {
            tales.push((Severity::Warning, "link lost", format!("the link to the primary {place} is lost{why}")));
            is_lost = true;
        } else if !before.is_up && primary.is_up {
            let what = if is_lost { "restored" } else { "up" };
            tales.push((Severity::Info, "link up", format!("the link to the primary {place} is {what}")));
        }
        is_lost &= !primary.is_up;
        self.upstream = Some(Upstream { place, is_up: primary.is_up, is_lost, sync });
    }

    fn saw_replicas(&mut self, figures: &ReplicationFigures, now_ms: u64, tales: &mut Vec<Tale>) {
        let mut before = std::mem::take(&mut self.replicas);
        // A synchronisation may be over before the first call that could see it.
        let had_full_sync = figures.full_syncs > self.full_syncs;
        for replica in &figures.replicas {
            let address = format!("{}:{}", replica.ip, replica.port);
            let is_new = !before.contains_key(&address);
            let mut now = before.remove(&address).unwrap_or(Downstream { sync: None });
            let bytes = replica.sync_total_bytes.max(replica.sync_bytes);
            if replica.state == "online" {
                let short = (is_new && had_full_sync).then_some(Sync { since_ms: now_ms, bytes });
                match now.sync.take().or(short) {
                    Some(mut sync) => {
                        // The last known size is the largest.
                        sync.bytes = sync.bytes.max(bytes);
                        let text = format!(
                            "the full synchronisation of the replica {address} has ended: {}",
                            sync.outcome(now_ms)
                        );
                        tales.push((Severity::Info, "synchronised", text));
                    }
                    None if is_new => {
                        let text = format!("the replica {address} continues with a partial synchronisation");
                        tales.push((Severity::Info, "replica", text));
                    }
                    None => {}
                }
            } else {
                let sync = now.sync.get_or_insert_with(|| {
                    let text = format!("a full synchronisation of the replica {address} has begun");
                    tales.push((Severity::Info, "", text));
                    Sync { since_ms: now_ms, bytes: 0 }
                });
                sync.bytes = sync.bytes.max(bytes);
            }
            self.replicas.insert(address, now);
        }
        for (address, _) in before {
            let text = format!("the link to the replica {address} is lost");
            tales.push((Severity::Warning, "replica lost", text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::{PrimaryFigures, ReplicaFigures};

    fn nothing() -> ReplicationFigures {
        ReplicationFigures::default()
    }

    fn follows(is_up: bool, is_synchronising: bool, sync_bytes: u64) -> ReplicationFigures {
        let primary = PrimaryFigures {
            host: "a".into(),
            port: 1,
            state: "",
            is_up,
            is_synchronising,
            silent_ms: None,
            down_ms: None,
            sync_total_bytes: 0,
            sync_bytes,
            error: None,
        };
        ReplicationFigures { primary: Some(primary), ..nothing() }
    }

    fn has_replica(state: &'static str, full_syncs: u64) -> ReplicationFigures {
        let replica = ReplicaFigures {
            ip: "b".into(),
            port: 2,
            version: String::new(),
            state,
            offset: 0,
            lag_bytes: 0,
            silent_ms: 0,
            sync_total_bytes: 2 << 20,
            sync_bytes: 0,
        };
        ReplicationFigures { replicas: vec![replica], full_syncs, ..nothing() }
    }

    /// The events of each call after the first, with one call a second.
    fn messages(looks: &[ReplicationFigures]) -> Vec<String> {
        let mut seen = Seen { upstream: None, replicas: BTreeMap::new(), full_syncs: 0 };
        let tales = looks.iter().enumerate().map(|(second, figures)| seen.saw(figures, second as u64 * 1000));
        tales.skip(1).flatten().map(|(_, _, text)| text).collect()
    }

    #[test]
    fn a_replicas_life_is_told_step_by_step() {
        let looks = [
            nothing(),
            follows(false, false, 0),
            follows(false, true, 10),
            follows(false, true, 3 << 20),
            follows(true, false, 0),
            follows(false, false, 0),
            follows(false, false, 0),
            follows(true, false, 0),
            follows(true, false, 0),
            nothing(),
        ];
        assert_eq!(
            messages(&looks),
            [
                "follows a:1",
                "a full synchronisation from a:1 has begun",
                "the full synchronisation from a:1 has ended: 3 MB in 2.0 s",
                "the link to the primary a:1 is lost",
                "the link to the primary a:1 is restored",
                "was promoted: it no longer follows a:1, and is a primary",
            ]
        );
    }

    #[test]
    fn a_synchronisation_that_breaks_off_is_not_one_that_ended() {
        assert_eq!(
            messages(&[
                follows(true, false, 0),
                follows(false, true, 1),
                follows(false, false, 0),
                follows(true, false, 0)
            ]),
            [
                "a full synchronisation from a:1 has begun",
                "the full synchronisation from a:1 was interrupted",
                "the link to the primary a:1 is restored",
            ]
        );
    }

    #[test]
    fn a_primary_tells_of_its_replicas() {
        let looks = [
            nothing(),
            has_replica("wait_bgsave", 1),
            has_replica("send_bulk", 1),
            has_replica("online", 1),
            nothing(),
        ];
        assert_eq!(
            messages(&looks),
            [
                "a full synchronisation of the replica b:2 has begun",
                "the full synchronisation of the replica b:2 has ended: 2 MB in 2.0 s",
                "the link to the replica b:2 is lost",
            ]
        );
        let short = "the full synchronisation of the replica b:2 has ended: 2 MB in 0.0 s";
        assert_eq!(messages(&[nothing(), has_replica("online", 1)]), [short]);
        let cut = ReplicationFigures { full_syncs: 1, ..nothing() };
        let again = messages(&[has_replica("online", 1), cut, has_replica("online", 1)]);
        assert_eq!(again[1..], ["the replica b:2 continues with a partial synchronisation"]);
    }
}
