//! Owns a copy of the entries below a prefix that follows the store. Never knows what the entries mean.
//!
//! The copy begins with a list and goes on with a watch from the next revision. After a cut, a new watch resumes after the last
//! revision that the copy has. If the changes since then are compacted, a new list is compared with the copy.
//!
//! A watch can be silent without an error: a member that is cut off, a connection through which nothing comes. So the store is read
//! each second. If a read shows what the copy lacks, and the watch has brought nothing a second later, then the watch is cut and
//! resumed; if that does not help either, the entries are listed again. A read does not show what was undone meanwhile, an entry that was
//! made and deleted: the entries are right then, and these changes are told when the watch is resumed for a later one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_stream::StreamExt;

use crate::types::{Entry, Event, Listing, Probe, Revision, WatchEnd};
use crate::{Answer, Coord, Error, Watch};

/// Between the answer of a read that proves that the copy is up to date and the next read.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Before a watch that was cut is resumed, and before a list that failed is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Mirror {
    coord: Arc<dyn Coord>,
    prefix: String,
    entries: BTreeMap<String, Entry>,
    /// The entries have all changes of the prefix up to here.
    revision: Revision,
    step: Step,
    /// No list and no watch is begun before.
    not_before: Duration,
    next_probe: Duration,
    probe: Option<Asked>,
    doubt: Option<Doubt>,
    proven_at: Option<Duration>,
    trouble: Option<String>,
}

enum Step {
    /// The next thing to do is to list.
    List,
    Listing(Answer<Listing>),
    /// The next thing to do is to watch.
    Resume,
    Watching(Watch),
}

/// A probe under way.
struct Asked {
    answer: Answer<Probe>,
    at: Duration,
    /// What the copy had then. A linearizable read sees at least as much.
    revision: Revision,
}

/// A read has shown something that the copy lacks.
#[derive(Clone, Copy)]
struct Doubt {
    /// Of the copy when the doubt arose. A copy with a later one is only slow.
    revision: Revision,
    /// The watch was already cut and resumed for it.
    has_resumed: bool,
}

enum Progress {
    Listed(Result<Listing, Error>),
    Changed(Option<Result<Vec<Event>, WatchEnd>>),
    Probed(Result<Probe, Error>),
    Time,
}

impl Mirror {
    pub fn new(coord: Arc<dyn Coord>, prefix: &str) -> Mirror {
        Mirror {
            coord,
            prefix: prefix.to_owned(),
            entries: BTreeMap::new(),
            revision: 0,
            step: Step::List,
            not_before: Duration::ZERO,
            next_probe: Duration::ZERO,
            probe: None,
            doubt: None,
            proven_at: None,
            trouble: None,
        }
    }

    /// Waits for the next changes and applies them. The first batch is the list; it may be empty, and no other batch is. Each change
    /// comes once, in the order of revisions, and whole revisions at a time. After a compaction, a batch is the difference: what was put
    /// and deleted meanwhile is not told, and deletions come last, with the revision of the list.
    ///
    /// Never fails: it goes on trying, and [`Mirror::trouble`] says why. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Vec<Event> {
        loop {
            match self.progress().await {
                Progress::Listed(Ok(listing)) => {
                    let is_first = self.revision == 0;
                    let changes = self.take_list(listing);
                    if is_first || !changes.is_empty() {
                        return changes;
                    }
                }
                Progress::Listed(Err(error)) => {
                    self.pause(error.to_string());
                    self.step = Step::List;
                }
                Progress::Changed(Some(Ok(events))) => {
                    let changes = self.take_events(events);
                    if !changes.is_empty() {
                        return changes;
                    }
                }
                Progress::Changed(Some(Err(WatchEnd::Compacted { .. }))) => self.step = Step::List,
                Progress::Changed(Some(Err(WatchEnd::Cut(why)))) => {
                    self.pause(why);
                    self.step = Step::Resume;
                }
                Progress::Changed(None) => {
                    self.pause("the watch ended".to_owned());
                    self.step = Step::Resume;
                }
                Progress::Probed(answer) => self.judge(answer),
                Progress::Time => {}
            }
        }
    }

    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// The entries have all changes of the prefix up to this revision; 0 before the first list.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// By `Coord::now`: at this time the store had nothing that the entries lack now.
    pub fn proven_at(&self) -> Option<Duration> {
        self.proven_at
    }

    /// What failed last, until something succeeds again.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Begins what is due, and waits for the first thing that happens. All that is under way stays in `self`.
    async fn progress(&mut self) -> Progress {
        let now = self.coord.now();
        let may_begin = now >= self.not_before;
        match self.step {
            Step::List if may_begin => self.step = Step::Listing(self.coord.list(&self.prefix)),
            Step::Resume if may_begin => self.step = Step::Watching(self.coord.watch(&self.prefix, self.revision + 1)),
            _ => {}
        }
        let follows = matches!(self.step, Step::Resume | Step::Watching(_));
        if follows && self.probe.is_none() && now >= self.next_probe {
            self.probe = Some(Asked { answer: self.coord.probe(&self.prefix), at: now, revision: self.revision });
        }
        let timer = match self.step {
            Step::List | Step::Resume => Some(self.not_before),
            _ => None,
        };
        let timer = timer.into_iter().chain((follows && self.probe.is_none()).then_some(self.next_probe)).min();
        let sleep = self.coord.sleep_until(timer.unwrap_or_default());
        // The order is fixed, so that a seed replays a failure. A busy watch comes last, because it must not keep probes from being judged.
        tokio::select! {
            biased;
            answer = ready(&mut self.probe) => Progress::Probed(answer),
            () = sleep, if timer.is_some() => Progress::Time,
            progress = advance(&mut self.step) => progress,
        }
    }

    fn pause(&mut self, why: String) {
        self.not_before = self.coord.now() + PAUSE;
        self.trouble = Some(why);
    }

    fn take_list(&mut self, listing: Listing) -> Vec<Event> {
        let entries: BTreeMap<_, _> = listing.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let is_new = |entry: &&Entry| self.entries.get(&entry.key) != Some(entry);
        let mut put: Vec<_> = entries.values().filter(is_new).cloned().collect();
        put.sort_by_key(|entry| entry.mod_revision);
        let gone = self.entries.keys().filter(|key| !entries.contains_key(*key));
        let deleted = gone.map(|key| Event::Deleted { key: key.clone(), revision: listing.revision });
        let changes = put.into_iter().map(Event::Put).chain(deleted).collect();
        self.entries = entries;
        self.revision = listing.revision;
        self.step = Step::Resume;
        // What was asked before the list says nothing about it.
        self.probe = None;
        self.doubt = None;
        self.trouble = None;
        changes
    }

    fn take_events(&mut self, events: Vec<Event>) -> Vec<Event> {
        // A resumed watch may begin with what the copy has already.
        let changes: Vec<_> = events.into_iter().filter(|event| event.revision() > self.revision).collect();
        for event in &changes {
            match event {
                Event::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry.clone())),
                Event::Deleted { key, .. } => drop(self.entries.remove(key)),
            }
            self.revision = event.revision();
        }
        self.trouble = None;
        changes
    }

    fn judge(&mut self, answer: Result<Probe, Error>) {
        let Asked { at, revision: had, .. } = self.probe.take().expect("it was just answered");
        // Counted from the answer, so that a watch that is doubted or resumed has the time however slow the reads are.
        self.next_probe = self.coord.now() + PROBE_INTERVAL;
        let probe = match answer {
            Ok(probe) => probe,
            Err(error) => return self.trouble = Some(error.to_string()),
        };
        if probe.revision < had {
            // The store has forgotten changes: it was restored from a snapshot.
            self.step = Step::List;
            return;
        }
        // If the copy is ahead of the read, then its watch lives, and the count may differ.
        let is_ahead = self.revision > probe.revision;
        if self.revision >= probe.newest && (is_ahead || self.entries.len() == probe.count) {
            self.proven_at = Some(at);
            self.doubt = None;
            self.trouble = None;
            return;
        }
        let mut doubt = Doubt { revision: self.revision, has_resumed: false };
        match self.doubt.filter(|doubt| doubt.revision == self.revision) {
            None => {}
            Some(Doubt { has_resumed: false, .. }) => {
                self.step = Step::Resume;
                doubt.has_resumed = true;
            }
            Some(_) => self.step = Step::List,
        }
        self.doubt = Some(doubt);
    }
}

async fn ready(probe: &mut Option<Asked>) -> Result<Probe, Error> {
    match probe {
        Some(asked) => asked.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn advance(step: &mut Step) -> Progress {
    match step {
        Step::Listing(answer) => Progress::Listed(answer.await),
        Step::Watching(watch) => Progress::Changed(watch.next().await),
        Step::List | Step::Resume => std::future::pending().await,
    }
}
