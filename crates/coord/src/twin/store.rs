//! Owns the twin's data: entries, their history by revision, and leases. Never knows a fault, a watch or who calls.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::random::SplitMix64;

use crate::Error;
use crate::types::{Entry, Event, LeaseId, Operation, Outcome, Revision, Transaction};

/// As etcd with its usual election timeout.
const TTL_MIN: Duration = Duration::from_secs(2);
/// etcd looks for ended leases twice a second.
const EXPIRY_DELAY_MS: u64 = 500;

pub struct Store {
    /// As in etcd, the empty store has revision 1.
    pub revision: Revision,
    /// Changes before this revision are forgotten.
    pub compacted: Revision,
    pub entries: BTreeMap<String, Entry>,
    pub history: VecDeque<(Revision, Vec<Event>)>,
    leases: BTreeMap<LeaseId, Standing>,
    last_lease: i64,
    pub is_full: bool,
}

struct Standing {
    ttl: Duration,
    ends_at: Duration,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            revision: 1,
            compacted: 0,
            entries: BTreeMap::new(),
            history: VecDeque::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            is_full: false,
        }
    }
}

impl Store {
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = &Entry> {
        let begins = prefix.to_owned();
        self.entries
            .range(prefix.to_owned()..)
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(&begins))
    }

    pub fn transact(&mut self, transaction: Transaction) -> Result<Outcome, Error> {
        let found = |key: &str| self.entries.get(key).map_or(0, |entry| entry.mod_revision);
        if transaction.compare.iter().any(|(key, revision)| found(key) != *revision) {
            return Ok(Outcome::Conflict);
        }
        for operation in &transaction.operations {
            if let Operation::Put { lease, .. } = operation {
                if self.is_full {
                    return Err(Error::NoSpace);
                }
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(Error::LeaseGone);
                }
            }
        }
        self.change(transaction.operations);
        Ok(Outcome::Committed(self.revision))
    }

    /// All in one revision, or in none if nothing changes.
    fn change(&mut self, operations: Vec<Operation>) {
        let revision = self.revision + 1;
        let mut events = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => {
                    let entry = Entry { key: key.clone(), value, mod_revision: revision, lease };
                    self.entries.insert(key, entry.clone());
                    events.push(Event::Put(entry));
                }
                Operation::Delete { key } => {
                    if self.entries.remove(&key).is_some() {
                        events.push(Event::Deleted { key, revision });
                    }
                }
            }
        }
        if !events.is_empty() {
            self.revision = revision;
            self.history.push_back((revision, events));
        }
    }

    pub fn history_from(&self, from: Revision) -> impl Iterator<Item = &(Revision, Vec<Event>)> {
        self.history.range(self.history.partition_point(|(revision, _)| *revision < from)..)
    }

    /// The events of the prefix in the next `most` revisions that have any, and the first revision after them.
    pub fn changes(&self, prefix: &str, from: Revision, most: usize) -> (Vec<Event>, Revision) {
        let (mut events, mut revisions) = (Vec::new(), 0);
        for (revision, changed) in self.history_from(from) {
            let before = events.len();
            events.extend(changed.iter().filter(|event| event.key().starts_with(prefix)).cloned());
            revisions += usize::from(events.len() > before);
            if revisions == most {
                return (events, revision + 1);
            }
        }
        (events, from.max(self.revision + 1))
    }

    pub fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Refused("mvcc: required revision has been compacted".to_owned()));
        }
        if revision > self.revision {
            return Err(Error::Refused("mvcc: required revision is a future revision".to_owned()));
        }
        self.compacted = revision;
        self.history.retain(|(changed, _)| *changed >= revision);
        Ok(())
    }

    pub fn restore(&mut self, revision: Revision) {
        assert!(self.compacted <= 1, "the whole history is there");
        let kept: Vec<_> = self.history.drain(..).take_while(|(changed, _)| *changed <= revision).collect();
        self.entries.clear();
        for event in kept.iter().flat_map(|(_, events)| events) {
            match event {
                Event::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry.clone())),
                Event::Deleted { key, .. } => drop(self.entries.remove(key)),
            }
        }
        self.history = kept.into();
        self.revision = revision;
    }

    pub fn grant(
        &mut self,
        ttl: Duration,
        now: Duration,
        random: &mut SplitMix64,
    ) -> Result<(LeaseId, Duration), Error> {
        if self.is_full {
            return Err(Error::NoSpace);
        }
        let ttl = Duration::from_secs(ttl.as_secs_f64().ceil() as u64).max(TTL_MIN);
        self.last_lease += 1;
        let id = LeaseId(self.last_lease);
        self.leases.insert(id, Standing { ttl, ends_at: end(ttl, now, random) });
        Ok((id, ttl))
    }

    pub fn keep_alive(&mut self, id: LeaseId, now: Duration, random: &mut SplitMix64) -> Result<Duration, Error> {
        let standing = self.leases.get_mut(&id).ok_or(Error::LeaseGone)?;
        standing.ends_at = end(standing.ttl, now, random);
        Ok(standing.ttl)
    }

    pub fn revoke(&mut self, id: LeaseId) -> Result<(), Error> {
        self.leases.remove(&id).ok_or(Error::LeaseGone)?;
        let of_lease = |entry: &&Entry| entry.lease == Some(id);
        let delete = |entry: &Entry| Operation::Delete { key: entry.key.clone() };
        let operations = self.entries.values().filter(of_lease).map(delete).collect();
        self.change(operations);
        Ok(())
    }

    pub fn first_end(&self) -> Option<Duration> {
        self.leases.values().map(|standing| standing.ends_at).min()
    }

    pub fn end_leases(&mut self, now: Duration) {
        let ended: Vec<_> =
            self.leases.iter().filter(|(_, standing)| standing.ends_at <= now).map(|(id, _)| *id).collect();
        for id in ended {
            self.revoke(id).expect("it was just seen");
        }
    }

    pub fn any_lease(&self, random: &mut SplitMix64) -> Option<LeaseId> {
        let count = self.leases.len();
        (count > 0).then(|| *self.leases.keys().nth(random.index(count)).expect("below the count"))
    }
}

/// Never before the time to live has passed, and a little later, as etcd does it.
fn end(ttl: Duration, now: Duration, random: &mut SplitMix64) -> Duration {
    now + ttl + Duration::from_millis(random.below(EXPIRY_DELAY_MS))
}
