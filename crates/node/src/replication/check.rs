//! Owns the comparison of a replica's dataset with its primary's at one offset of their stream. Never knows how a digest is computed, nor
//! how a replica gets its dataset anew.
//!
//! The primary cuts a snapshot, and at that moment puts a PING into the stream that says so. Whoever comes to this PING has exactly the
//! dataset of the cut, so a replica cuts a snapshot there too. Both compute the digest of each stripe while commands go on, and the primary's
//! digests follow in another PING. Redis lets PING have a word, so nobody else is disturbed, and the messages are bytes of the stream like
//! all others: a replica of a replica compares itself too.
//!
//! The moment of expiry is the same for both: it is in the message. So it does not matter which of the expired keys are removed already.
//!
//! ```text
//! PING "flint-check ID MILLISECONDS"
//! PING "flint-digests ID " and 8 bytes for each stripe, and for the functions
//! ```

use super::nameless_file;
use crate::database::Database;
use crate::files::directory;
use base::clock::wall_ms;
use engine::replication::{Id, Link, Phase, new_id};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::digest::{Digester, Sum};
use store::{DumpError, Snapshot};

const BEGIN: &[u8] = b"flint-check ";
const DIGESTS: &[u8] = b"flint-digests ";
/// A check is the least urgent work of a node: it rests this many times as long as it works.
const RESTS: u32 = 3;
const WORK_MIN: Duration = Duration::from_millis(2);
/// The first check is not later than this after the first replica.
const FIRST_MS: u64 = 600_000;
/// A check that was given up is tried again after this share of the interval, and a second at least.
const RETRY_SHARE: u64 = 24;
const RETRY_MS_MIN: u64 = 1000;
/// So many stripes that differ are named.
const NAMED_MAX: usize = 8;

/// The digest of each stripe, and behind them that of the functions.
type Digests = Box<[u64]>;

/// What a primary tells.
enum Message {
    Begin { id: Id, now_ms: u64 },
    Digests { id: Id, digests: Digests },
}

impl Message {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Message::Begin { id, now_ms } => [BEGIN, format!("{id} {now_ms}").as_bytes()].concat(),
            Message::Digests { id, digests } => {
                let mut bytes = [DIGESTS, format!("{id} ").as_bytes()].concat();
                digests.iter().for_each(|digest| bytes.extend_from_slice(&digest.to_le_bytes()));
                bytes
            }
        }
    }

    /// `None`: it is nothing of this, or of another release.
    fn of(word: &[u8]) -> Option<Message> {
        let id_of = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
        if let Some(rest) = word.strip_prefix(BEGIN) {
            let (id, rest) = rest.split_at_checked(Id::DIGITS)?;
            let now_ms = std::str::from_utf8(rest.strip_prefix(b" ")?).ok()?.parse().ok()?;
            return Some(Message::Begin { id: id_of(id)?, now_ms });
        }
        let (id, rest) = word.strip_prefix(DIGESTS)?.split_at_checked(Id::DIGITS)?;
        let (digests, []) = rest.strip_prefix(b" ")?.as_chunks::<8>() else { return None };
        let digests = digests.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Some(Message::Digests { id: id_of(id)?, digests })
    }
}

// --- a primary ---

impl Database {
    /// Called several times a second: begins a check if one is due.
    pub(super) fn check_replicas_if_due(&self, now_ms: u64, links: &[Arc<Link>]) {
        let interval_ms = self.hub.config.snapshot().primary.check_interval_ms;
        let checks = &self.replication.checks;
        let online: Vec<_> = links.iter().filter(|link| link.is_flint && link.phase() == Phase::Online).collect();
        if interval_ms == 0 || online.is_empty() || self.replication.failover.lock().is_some() {
            return;
        }
        let mut state = checks.0.lock();
        if state.due_ms == 0 {
            state.due_ms = now_ms + interval_ms.min(FIRST_MS);
        }
        // The interval may have become shorter, and the clock may have been set back.
        state.due_ms = state.due_ms.min(now_ms + interval_ms);
        let missed = online.iter().filter(|link| link.missed_check.swap(false, Relaxed)).count();
        if missed > 0 {
            state.due_ms = state.due_ms.min(now_ms + retry_ms(interval_ms));
        }
        if now_ms < state.due_ms || state.is_running {
            return;
        }
        let Some(database) = self.me.upgrade() else { return };
        (state.is_running, state.due_ms) = (true, now_ms + interval_ms);
        drop(state);
        let check = move || {
            let checked = check(&database);
            let mut state = database.replication.checks.0.lock();
            state.is_running = false;
            state.ended_ms = wall_ms();
            match checked {
                Ok(()) => (state.done, state.last) = (state.done + 1, Ok(0)),
                Err(why) => {
                    tracing::info!(
                        "database '{}': the comparison with its replicas could not be made: {why}",
                        database.hub.name
                    );
                    state.due_ms = wall_ms() + retry_ms(interval_ms);
                    (state.given_up, state.last) = (state.given_up + 1, Err(why));
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("check".into()).spawn(check) {
            checks.0.lock().is_running = false;
            tracing::warn!("cannot start a thread to check replicas: {error}");
        }
    }
}

fn retry_ms(interval_ms: u64) -> u64 {
    (interval_ms / RETRY_SHARE).max(RETRY_MS_MIN)
}

/// Tells the replicas the digests of a moment, and before them the moment.
fn check(database: &Database) -> Result<(), String> {
    let journaling = &database.hub.dataset.journaling;
    let id = new_id();
    let tell = |message: &Message| journaling.keep_for_replicas(&[b"PING", &message.to_bytes()], wall_ms());
    let cut = Cut::new(database, || {
        // Read the time at the cut. With an earlier time, a key that has expired in between would still count, although it may be removed already.
        let now_ms = wall_ms();
        tell(&Message::Begin { id, now_ms });
        now_ms
    })?;
    let digests = cut.digests(database, &|| database.replication.role.following().is_some())?;
    if database.replication.failover.lock().is_some() {
        return Err("a failover is in progress".to_owned());
    }
    if journaling.serving.is_on() && !journaling.serving.is_open() {
        return Err("the copy does not serve any more".to_owned());
    }
    tell(&Message::Digests { id, digests });
    Ok(())
}

// --- both ---

/// The dataset of a moment.
struct Cut {
    snapshot: Snapshot<Digester>,
    functions: Sum,
}

impl Cut {
    /// `at_cut` is called at the cut, while every stripe is locked. It returns the time up to which expired keys do not count. A save or
    /// load goes first: while one is under way, this fails instead of waiting.
    fn new(database: &Database, at_cut: impl FnOnce() -> u64) -> Result<Cut, String> {
        if database.files.busy.is_locked() {
            return Err("the dataset is being saved or loaded".to_owned());
        }
        let mut functions = Sum::default();
        let begin = || {
            let now_ms = at_cut();
            for library in database.hub.scripts.libraries.read().all() {
                functions.add(Sum::of("library", &[library.name.as_bytes(), &library.code]));
            }
            Ok(Digester::new(now_ms))
        };
        match database.shard.store.cut(0, begin) {
            Some(Ok(snapshot)) => Ok(Cut { snapshot, functions }),
            Some(Err(error)) => Err(format!("{error:?}")),
            None => Err("a script is holding the dataset, or it is being saved".to_owned()),
        }
    }

    fn digests(self, database: &Database, is_over: &dyn Fn() -> bool) -> Result<Digests, String> {
        let folder = directory(database.name(), &database.hub.config.snapshot().redis_files);
        let mut notes = nameless_file(&folder, "check")?;
        let (mut begun, stopped) = (Instant::now(), RefCell::new(None));
        let mut pause = || {
            let stop = if is_over() || database.hub.is_closing.load(Relaxed) {
                Some("the comparison is no longer needed")
            } else if database.files.busy.is_locked() {
                Some("the dataset is being saved or loaded")
            } else {
                None
            };
            if stop.is_some() {
                *stopped.borrow_mut() = stop;
                return Err(DumpError::GivenUp);
            }
            let worked = begun.elapsed();
            if worked >= WORK_MIN {
                std::thread::sleep(worked * RESTS);
                begun = Instant::now();
            }
            Ok(())
        };
        let digester = self.snapshot.run(&mut notes, &mut pause).map_err(|error| match error {
            DumpError::Read(error) => format!("a value cannot be read: {error}"),
            DumpError::Write(error) => format!("the temporary file for the positions of values: {error}"),
            DumpError::NoRoom => "flash has no room for new values and for what the check needs".to_owned(),
            DumpError::GivenUp => stopped.borrow().unwrap_or_default().to_owned(),
        })?;
        let stripes = digester.finish().stripes;
        Ok(stripes.iter().map(|sum| sum.short()).chain([self.functions.short()]).collect())
    }
}

// --- a replica ---

/// A check that a replica has begun.
pub struct Check {
    id: Id,
    /// The offset behind the primary's message.
    offset: u64,
    theirs: Option<Digests>,
    ours: Arc<Mutex<Option<Result<Digests, String>>>>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Handles the word of a PING from the primary. Everything before this PING in the stream is applied.
pub fn hear(database: &Database, check: &mut Option<Check>, word: &[u8]) -> Result<(), String> {
    match Message::of(word) {
        Some(Message::Begin { id, now_ms }) => {
            *check = None;
            *check = Some(Check::begin(database, id, now_ms)?);
        }
        Some(Message::Digests { id, digests }) => {
            if let Some(check) = check.as_mut().filter(|check| check.id == id) {
                check.theirs = Some(digests);
            }
        }
        None => {}
    }
    Ok(())
}

impl Check {
    fn begin(database: &Database, id: Id, now_ms: u64) -> Result<Check, String> {
        let offset = database.hub.dataset.journaling.stream.offset();
        let (ours, is_over) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let cut = Cut::new(database, || now_ms)?;
        let database = database.me.upgrade().ok_or("the database is being closed")?;
        let (digests, over) = (Arc::clone(&ours), Arc::clone(&is_over));
        let compute = move || *digests.lock() = Some(cut.digests(&database, &|| over.load(Relaxed)));
        let thread = std::thread::Builder::new().name("check".into()).spawn(compute);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Check { id, offset, theirs: None, ours, is_over })
    }

    /// The numbers of the stripes that differ. `None`: the digests of one side are not there yet.
    fn differing(&self) -> Option<Result<Vec<usize>, String>> {
        let ours = self.ours.lock();
        match (&*ours, &self.theirs) {
            (Some(Err(why)), _) => Some(Err(why.clone())),
            (Some(Ok(ours)), Some(theirs)) if ours.len() == theirs.len() => {
                Some(Ok((0..ours.len()).filter(|&at| ours[at] != theirs[at]).collect()))
            }
            (Some(Ok(_)), Some(_)) => {
                Some(Err("the primary divides its dataset into another number of parts".to_owned()))
            }
            _ => None,
        }
    }
}

/// Ends a check whose digests are there. `None`: there is none. False: the check was given up. An error says how the dataset differs.
pub fn finish_check(database: &Database, check: &mut Option<Check>) -> Result<Option<bool>, String> {
    let Some((outcome, offset)) = check.as_ref().and_then(|check| Some((check.differing()?, check.offset))) else {
        return Ok(None);
    };
    *check = None;
    let differing = match outcome {
        Ok(differing) => differing,
        Err(why) => {
            has_missed(database, why);
            return Ok(Some(false));
        }
    };
    let name = &database.hub.name;
    let mut state = database.replication.checks.0.lock();
    (state.done, state.last, state.ended_ms) = (state.done + 1, Ok(differing.len()), wall_ms());
    if differing.is_empty() {
        tracing::info!(
            "database '{name}' has the same dataset as its primary, compared at byte {offset} of the stream"
        );
        return Ok(Some(true));
    }
    state.differences += 1;
    drop(state);
    let text = format!(
        "the dataset differs from the primary's at byte {offset} of the stream: {}; the whole dataset is requested again",
        named(&differing)
    );
    database.replication.report(text.clone());
    Err(text)
}

/// A replica could not check its dataset.
pub fn has_missed(database: &Database, why: String) {
    tracing::info!(
        "database '{}': the comparison of its dataset with the primary's could not be made: {why}",
        database.hub.name
    );
    let mut state = database.replication.checks.0.lock();
    (state.given_up, state.last, state.ended_ms) = (state.given_up + 1, Err(why), wall_ms());
}

/// The stripes that differ, for people.
fn named(differing: &[usize]) -> String {
    let has_functions = differing.last() == Some(&STRIPES);
    let stripes = &differing[..differing.len() - usize::from(has_functions)];
    let mut parts = Vec::new();
    if !stripes.is_empty() {
        let mut names: Vec<String> = stripes.iter().take(NAMED_MAX).map(usize::to_string).collect();
        if stripes.len() > NAMED_MAX {
            names.push("…".to_owned());
        }
        parts.push(format!("{} of {STRIPES} stripes differ ({})", stripes.len(), names.join(", ")));
    }
    if has_functions {
        parts.push("the functions differ".to_owned());
    }
    parts.join(", and ")
}

const STRIPES: usize = store::mem::hash::STRIPES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_other_words_are_no_message() {
        let id = new_id();
        let Some(Message::Begin { id: found, now_ms: 17 }) = Message::of(&Message::Begin { id, now_ms: 17 }.to_bytes())
        else {
            panic!()
        };
        assert!(found == id);
        let digests: Digests = (0..=STRIPES as u64).map(|n| n << 40 | 0x0d0a).collect();
        let bytes = Message::Digests { id, digests: digests.clone() }.to_bytes();
        let Some(Message::Digests { id: found, digests: read }) = Message::of(&bytes) else { panic!() };
        assert!(found == id);
        assert_eq!(read, digests);
        for other in
            [&b""[..], b"hello", b"flint-check ", b"flint-check 12", b"flint-digests ", &bytes[..bytes.len() - 1]]
        {
            assert!(Message::of(other).is_none(), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn what_differs_is_named() {
        assert_eq!(named(&[3, 17]), "2 of 1024 stripes differ (3, 17)");
        assert_eq!(named(&[STRIPES]), "the functions differ");
        let many: Vec<usize> = (0..10).chain([STRIPES]).collect();
        assert_eq!(named(&many), "10 of 1024 stripes differ (0, 1, 2, 3, 4, 5, 6, 7, …), and the functions differ");
    }
}
