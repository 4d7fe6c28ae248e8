//! Random runs of the twin: a mirror under every fault that the seed draws, against the store's history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use base::random::SplitMix64;
use coord::twin::Rates;
use coord::{Answer, Coord, Entry, Event, LeaseId, Mirror, Operation, Outcome, Revision, Transaction, Twin};

use crate::twin::poll;

/// Enough that each run of some hundred calls meets most faults.
const RATES: Rates = Rates {
    stall: 30_000,
    lose_request: 30_000,
    lose_answer: 30_000,
    revoke: 5_000,
    compact: 10_000,
    cut: 20_000,
    silence: 10_000,
};

/// What a client of the store remembers.
#[derive(Default)]
struct Client {
    calls: Vec<(Transaction, Answer<Outcome>)>,
    committed: Vec<(Revision, Transaction)>,
    refused: Vec<Transaction>,
    unknown: Vec<Transaction>,
    number: u64,
}

impl Client {
    /// A transaction whose values are like no others', so that the history shows whether it was committed.
    fn begin(&mut self, twin: &Twin, random: &mut SplitMix64, leases: &[LeaseId]) {
        let mut transaction = Transaction::default();
        let entries = twin.entries();
        for _ in 0..1 + random.below(3) {
            let key = format!("{}/{}", ["p", "q"][random.index(2)], random.below(6));
            let used = transaction.operations.iter().any(|operation| match operation {
                Operation::Put { key: used, .. } | Operation::Delete { key: used } => *used == key,
            });
            if used {
                continue;
            }
            if random.below(2) == 0 {
                let revision = entries.get(&key).map_or(0, |entry| entry.mod_revision);
                // Sometimes a wrong one.
                transaction.compare.push((key.clone(), revision + (random.below(8) == 0) as Revision));
            }
            if random.below(3) == 0 {
                transaction.operations.push(Operation::Delete { key });
            } else {
                self.number += 1;
                let lease = (random.below(3) == 0 && !leases.is_empty()).then(|| leases[random.index(leases.len())]);
                let value = self.number.to_be_bytes().to_vec();
                transaction.operations.push(Operation::Put { key, value, lease });
            }
        }
        let answer = twin.transact(transaction.clone());
        self.calls.push((transaction, answer));
    }

    fn poll(&mut self) {
        let mut index = 0;
        while index < self.calls.len() {
            let Poll::Ready(answer) = poll(&mut self.calls[index].1) else {
                index += 1;
                continue;
            };
            let (transaction, _) = self.calls.remove(index);
            match answer {
                Ok(Outcome::Committed(revision)) => self.committed.push((revision, transaction)),
                Ok(Outcome::Unknown(_)) => self.unknown.push(transaction),
                Ok(Outcome::Conflict) | Err(_) => self.refused.push(transaction),
            }
        }
    }
}

fn puts(transaction: &Transaction) -> impl Iterator<Item = &Vec<u8>> {
    transaction.operations.iter().filter_map(|operation| match operation {
        Operation::Put { value, .. } => Some(value),
        Operation::Delete { .. } => None,
    })
}

fn below(entries: BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    entries.into_iter().filter(|(key, _)| key.starts_with("p/")).collect()
}

fn apply(entries: &mut BTreeMap<String, Entry>, event: &Event) {
    match event {
        Event::Put(entry) => drop(entries.insert(entry.key.clone(), entry.clone())),
        Event::Deleted { key, .. } => drop(entries.remove(key)),
    }
}

/// `compacts`: otherwise each event must come, with it only what is left of them.
fn one_run(seed: u64, compacts: bool) {
    let mut random = SplitMix64(seed);
    let twin = Twin::new(random.draw());
    let mut mirror = Mirror::new(Arc::new(twin.clone()), "p/");
    let mut client = Client::default();
    let (mut leases, mut told) = (Vec::new(), Vec::<Event>::new());
    // Of the first list.
    let mut listed = None;
    // All that ever changed, because compaction forgets it.
    let mut history: BTreeMap<Revision, Vec<Event>> = BTreeMap::new();
    let mut copy = BTreeMap::new();
    let note = |history: &mut BTreeMap<Revision, Vec<Event>>| {
        let from = history.last_key_value().map_or(0, |(revision, _)| revision + 1);
        history.extend(twin.history(from));
    };
    let mut step = |mirror: &mut Mirror, history: &mut BTreeMap<_, _>, copy: &mut BTreeMap<_, _>| {
        note(history);
        while let Poll::Ready(changes) = poll(mirror.next()) {
            changes.iter().for_each(|event| apply(copy, event));
            assert_eq!(copy, mirror.entries(), "the changes lead to the entries");
            match listed {
                None => listed = Some(mirror.revision()),
                Some(_) => told.extend(changes),
            }
            note(history);
        }
    };
    twin.set_rates(if compacts { RATES } else { Rates { compact: 0, ..RATES } });
    for _ in 0..300 {
        match random.below(10) {
            0..6 => client.begin(&twin, &mut random, &leases),
            6 => {
                if let Poll::Ready(Ok(lease)) = poll(twin.grant(Duration::from_secs(random.below(20)))) {
                    leases.push(lease.id);
                }
            }
            7 if !leases.is_empty() => {
                drop(poll(twin.keep_alive(leases[random.index(leases.len())], Duration::from_secs(1))))
            }
            _ => twin.advance(Duration::from_millis(random.below(1500))),
        }
        note(&mut history);
        client.poll();
        if random.below(4) > 0 {
            step(&mut mirror, &mut history, &mut copy);
        }
    }

    // The faults end; what they began goes on for a while.
    twin.set_rates(Rates::default());
    // A read does not show an entry that was made and deleted behind a silent watch. It shows this one, and so the watch is resumed.
    let last = Operation::Put { key: "p/last".to_owned(), value: b"last".to_vec(), lease: None };
    client
        .calls
        .push((Transaction::default(), twin.transact(Transaction { compare: Vec::new(), operations: vec![last] })));
    for _ in 0..200 {
        twin.advance(Duration::from_millis(100));
        client.poll();
        step(&mut mirror, &mut history, &mut copy);
    }
    assert!(client.calls.is_empty());
    assert_eq!(*mirror.entries(), below(twin.entries()));
    assert!(
        mirror.trouble().is_none() && mirror.proven_at().is_some_and(|at| at + Duration::from_secs(3) > twin.now())
    );

    // The mirror: in order, and nothing twice.
    assert!(told.is_sorted_by_key(Event::revision));
    let mut seen = std::collections::HashSet::new();
    assert!(told.iter().all(|event| seen.insert((event.key().to_owned(), event.revision()))), "a change came twice");
    let happened = history.values().flatten().filter(|event| event.key().starts_with("p/"));
    if compacts {
        // A put that is told has happened exactly so.
        let happened: Vec<&Event> = happened.collect();
        assert!(told.iter().all(|event| matches!(event, Event::Deleted { .. }) || happened.contains(&event)));
    } else {
        let happened = happened.filter(|event| Some(event.revision()) > listed);
        assert!(told.iter().eq(happened));
    }

    // The client: what was committed is in the history at its revision, what was refused is not, and of the rest nothing is there twice.
    let values = |events: &[Event]| -> Vec<Vec<u8>> {
        events
            .iter()
            .filter_map(|event| if let Event::Put(entry) = event { Some(entry.value.clone()) } else { None })
            .collect()
    };
    for (revision, transaction) in &client.committed {
        let there = history.get(revision).map(|events| values(events)).unwrap_or_default();
        assert!(puts(transaction).all(|value| there.contains(value)), "committed at {revision}, and not there");
    }
    let all: Vec<_> = history.values().flat_map(|events| values(events)).collect();
    let times = |value: &Vec<u8>| all.iter().filter(|other| *other == value).count();
    assert!(client.refused.iter().flat_map(puts).all(|value| times(value) == 0), "refused, and yet there");
    for transaction in &client.unknown {
        let counts: Vec<_> = puts(transaction).map(times).collect();
        assert!(counts.iter().all(|count| *count <= 1 && *count == counts[0]), "whole or not at all: {counts:?}");
    }
}

#[test]
fn a_mirror_has_every_event_once_and_in_order() {
    seeds::each(1, 200, |seed| one_run(seed, false));
}

#[test]
fn a_mirror_equals_the_store_after_compactions_too() {
    seeds::each(1, 200, |seed| one_run(seed, true));
}

/// A seed replays a run exactly.
#[test]
fn the_same_seed_gives_the_same_run() {
    let history = |seed| {
        let (twin, mut random, mut client) = (Twin::new(seed), SplitMix64(seed), Client::default());
        twin.set_rates(Rates { compact: 0, ..RATES });
        for _ in 0..200 {
            client.begin(&twin, &mut random, &[]);
            twin.advance(Duration::from_millis(random.below(1500)));
            client.poll();
        }
        assert!(!client.unknown.is_empty());
        (twin.history(0), client.committed, client.unknown)
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}
