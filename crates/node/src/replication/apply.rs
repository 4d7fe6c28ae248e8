//! Owns how a primary's stream becomes the database's own: whole commands, and transactions as one, go into the database's stream as they
//! came and then through the connections that replay a journal. Never knows where the bytes come from.

use super::check::{self, Check};
use crate::database::Database;
use crate::files::{Broken, Expect, Finder, Pipes, changes};
use crate::role::NOTHING_APPLIES;
use engine::replication::Stream;
use parking_lot::MutexGuard;
use resp::{Args, Limits, Parsed, Progress, ProtocolError, Source, Span, parse};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use store::Admission;

/// The primary has accepted its commands.
const LIMITS: Limits =
    Limits { bulk_bytes_max: u32::MAX as usize, args_count_max: u32::MAX as usize, ..Limits::DEFAULT };
/// After so many bytes of commands, the applier waits until the dataset agrees with the stream.
const PORTION_BYTES: usize = 256 << 10;
/// Why a command has no room that the store would take.
pub const NO_ROOM: &str = "its journal has no room, or only a checkpoint can make some";

pub struct Applier<'d> {
    database: &'d Database,
    pipes: Pipes,
    finder: Finder<'d>,
    scanner: Scanner,
    /// The logical database of the next command.
    db: u32,
    /// The comparison of the dataset with the primary's that is under way.
    check: Option<Check>,
}

/// What a portion has brought.
#[derive(Default)]
pub struct Applied {
    /// So many bytes are used.
    pub bytes: usize,
    /// The primary asks how far the replica is.
    pub asks: bool,
    /// The primary has begun a comparison of the datasets, and it could not be made here.
    pub missed_check: bool,
    /// Why the next command has no room. It is not used.
    pub full: Option<&'static str>,
}

/// Held while commands of a primary are in the stream and not yet applied.
struct Applying<'d> {
    database: &'d Database,
    _lock: MutexGuard<'d, ()>,
}

impl<'d> Applying<'d> {
    fn begin(database: &'d Database) -> Applying<'d> {
        let _lock = database.replication.apply.lock();
        database.replication.applies_from.store(database.hub.dataset.journaling.stream.offset(), SeqCst);
        Applying { database, _lock }
    }
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.database.replication.applies_from.store(NOTHING_APPLIES, SeqCst);
    }
}

impl Database {
    /// The stream's offset up to which the dataset has everything: a read that comes later sees it.
    pub(crate) fn applied_offset(&self) -> u64 {
        // Read the offset first: if nothing is being applied afterwards, everything up to this offset is applied.
        let offset = self.hub.dataset.journaling.stream.offset();
        offset.min(self.replication.applies_from.load(SeqCst))
    }
}

impl<'d> Applier<'d> {
    /// `db`: the logical database in which the stream goes on.
    pub fn new(database: &'d Database, db: u32) -> Result<Applier<'d>, String> {
        let finder = Finder::new(&database.hub.directory, database.shard.store.hasher());
        let pipes = Pipes::apply(database)?;
        Ok(Applier { database, pipes, finder, scanner: Scanner::default(), db, check: None })
    }

    /// Applies the whole commands at the beginning of the input, as far as there is room, and waits until they have run. The next call must
    /// get the unused rest again, at the beginning, with more behind it. After an error, the dataset does not agree with the stream.
    ///
    /// `may_wait`: whether it goes on waiting for the journal's device, or for a checkpoint, for which it has waited so long.
    pub fn apply(&mut self, input: &[u8], may_wait: &dyn Fn(Duration) -> bool) -> Result<Applied, String> {
        let mut applied = Applied::default();
        while let Some(first) = self.scanner.unit(&input[applied.bytes..])? {
            if !self.wait_for_room(may_wait)? {
                applied.full = Some(NO_ROOM);
                self.scanner = Scanner::default();
                return Ok(applied);
            }
            let database = self.database;
            let _applying = Applying::begin(database);
            let portion_end = applied.bytes + PORTION_BYTES;
            let mut next = Some(first);
            while let Some(bytes) = next {
                self.run(&input[applied.bytes..][..bytes], &mut applied).map_err(|why| self.broken(why))?;
                if applied.full.is_some() {
                    break;
                }
                applied.bytes += bytes;
                let goes_on = applied.bytes < portion_end;
                next = if goes_on { self.scanner.unit(&input[applied.bytes..])? } else { None };
            }
            self.pipes.drain().map_err(|Broken| self.broken(None))?;
            if applied.full.is_some() {
                // The command that had no room is not used, so the next call must find its end again.
                self.scanner = Scanner::default();
                return Ok(applied);
            }
        }
        let checked = check::finish_check(self.database, &mut self.check)?;
        applied.missed_check |= checked == Some(false);
        Ok(applied)
    }

    pub fn finish(self) -> Result<(), String> {
        self.pipes.finish().map(drop)
    }

    fn broken(&self, why: Option<String>) -> String {
        why.unwrap_or_else(|| {
            "the database has refused a command of its primary: see the log for the reason".to_owned()
        })
    }

    /// Applies a unit. An error without a text is that of a connection.
    fn run(&mut self, unit: &[u8], applied: &mut Applied) -> Result<(), Option<String>> {
        let touched =
            self.finder.find(unit).map_err(|why| Some(format!("the primary's stream is malformed: {why}")))?;
        let store = &self.database.shard.store;
        // Room is checked here, because the connections do not refuse what is replayed: it had room once. At most a portion is under way in them.
        if touched.needs_room && store.admission() == Admission::Full {
            applied.full = Some(store.refusal());
            return Ok(());
        }
        let db = self.db;
        if let Some(selected) = touched.selected {
            let databases = self.database.hub.config.snapshot().databases;
            if selected as usize >= databases {
                return Err(Some(format!(
                    "the primary uses logical database {selected}, and there are {databases} here: raise 'databases'"
                )));
            }
            self.db = selected;
        }
        self.database.hub.dataset.journaling.keep_verbatim(db, self.db, unit);
        if touched.is_message {
            let (name, word) = first_words(unit);
            if name.eq_ignore_ascii_case(b"replconf") {
                applied.asks = true;
            } else if !name.eq_ignore_ascii_case(b"ping") {
                // A message needs no order among the changes.
                self.pipes.first().encoded(unit, Expect::Applied, 1).map_err(|Broken| None)?;
            } else if !word.is_empty() {
                self.pipes.drain().map_err(|Broken| None)?;
                if let Err(why) = check::hear(self.database, &mut self.check, &word) {
                    check::has_missed(self.database, why);
                    applied.missed_check = true;
                }
            }
            return Ok(());
        }
        if touched.commands == 1 && touched.selects {
            return Ok(());
        }
        let pipe = self.pipes.next(touched.stripe).map_err(|Broken| None)?;
        let sent = pipe.select(db.into()).and_then(|()| {
            if touched.selects {
                pipe.forget_selected();
            }
            pipe.encoded(unit, Expect::Applied, touched.commands)
        });
        sent.map_err(|Broken| None)
    }

    /// Waits while the journal's device is behind, and while only a checkpoint can make room: what holds back a checkpoint must not wait for
    /// it, and nothing is under way here. False: it may not wait longer.
    fn wait_for_room(&self, may_wait: &dyn Fn(Duration) -> bool) -> Result<bool, String> {
        let begun = Instant::now();
        loop {
            let log = self.database.files.journal.kept.lock().as_ref().map(|kept| std::sync::Arc::clone(&kept.log));
            let Some(log) = log else { return Ok(true) };
            if let Some(why) = log.failed() {
                return Err(format!("the journal cannot be written: {why}"));
            }
            if !log.is_behind() && !self.database.shard.store.waits_for_checkpoint() {
                return Ok(true);
            }
            if !may_wait(begun.elapsed()) {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The commands between two offsets of a stream that change something. `None`: the stream does not have them any more, or they do not end
/// there.
pub fn count_writes(stream: &Stream, from: u64, to: u64) -> Option<u64> {
    let (mut at, mut used, mut count) = (from, 0, 0);
    let (mut input, mut spans, mut progress) = (Vec::new(), Vec::new(), Progress::default());
    while at < to || used < input.len() {
        spans.clear();
        match parse(&input[used..], &mut progress, &LIMITS, &mut spans) {
            Ok(Parsed::Complete { consumed, .. }) => {
                count += u64::from(!spans.is_empty() && changes(&Args::new(&input[used..], &spans)[0]));
                used += consumed;
            }
            Ok(Parsed::Incomplete { .. }) if at < to => {
                input.drain(..std::mem::take(&mut used));
                let before = input.len();
                stream.copy(at, PORTION_BYTES.min((to - at) as usize), &mut input).ok()?;
                at += (input.len() - before) as u64;
            }
            _ => return None,
        }
    }
    Some(count)
}

/// The first two words of a command; empty if they are not there.
fn first_words(unit: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut spans = Vec::new();
    match parse(unit, &mut Progress::default(), &LIMITS, &mut spans) {
        Ok(Parsed::Complete { .. }) => {
            let args = Args::new(unit, &spans);
            let word = |at| args.get(at).map_or_else(Vec::new, <[u8]>::to_vec);
            (word(0), word(1))
        }
        _ => Default::default(),
    }
}

/// Finds where units end: a command, or MULTI up to its EXEC.
#[derive(Default)]
struct Scanner {
    progress: Progress,
    spans: Vec<Span>,
    /// Whole commands of a transaction that is not whole.
    seen: usize,
    in_transaction: bool,
}

impl Scanner {
    /// The bytes of the unit at the beginning of the input. `None`: it is not whole.
    fn unit(&mut self, input: &[u8]) -> Result<Option<usize>, String> {
        loop {
            let rest = &input[self.seen..];
            if rest.is_empty() {
                return Ok(None);
            }
            if rest[0] != b'*' {
                return Err(
                    "a command must begin here in the primary's stream, but something else was found".to_owned()
                );
            }
            self.spans.clear();
            let consumed = match parse(rest, &mut self.progress, &LIMITS, &mut self.spans) {
                Ok(Parsed::Complete { consumed, source: Source::Input }) if !self.spans.is_empty() => consumed,
                Ok(Parsed::Incomplete { .. }) => return Ok(None),
                Ok(Parsed::Complete { .. }) => return Err("the stream has a command without a name".to_owned()),
                Err(error) => return Err(format!("the stream is broken: {}", ProtocolError::text(error))),
            };
            let args = Args::new(rest, &self.spans);
            if args[0].eq_ignore_ascii_case(b"multi") {
                self.in_transaction = true;
            } else if args[0].eq_ignore_ascii_case(b"exec") {
                self.in_transaction = false;
            }
            self.seen += consumed;
            if !self.in_transaction {
                return Ok(Some(std::mem::take(&mut self.seen)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::client::encode_command;

    #[test]
    fn a_transaction_is_one_unit_wherever_the_input_is_cut() {
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for (line, ends_unit) in [
            ("SELECT 3", true),
            ("MULTI", false),
            ("SET a 1", false),
            ("SET b 2", false),
            ("EXEC", true),
            ("DEL a", true),
            ("PING", true),
        ] {
            encode_command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &mut stream);
            if ends_unit {
                ends.push(stream.len());
            }
        }
        for cut in 0..=stream.len() {
            let (mut scanner, mut found, mut at) = (Scanner::default(), Vec::new(), 0);
            for arrived in [cut, stream.len()] {
                while let Some(bytes) = scanner.unit(&stream[at..arrived]).unwrap() {
                    at += bytes;
                    found.push(at);
                }
            }
            assert_eq!(found, ends, "cut at {cut}");
        }
        assert!(Scanner::default().unit(b"+OK\r\n").is_err());
    }
}
