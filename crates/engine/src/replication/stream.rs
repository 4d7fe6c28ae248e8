//! Owns the stream of a database: the effects in their order, as the commands that replicas get. Never knows who they are.
//!
//! The stream's bytes are those that Redis sends to its replicas: commands, with SELECT where the logical database changes, and
//! MULTI … EXEC around those that belong together. Its *offset* counts the bytes. Each command is a record of the database's journal too, if
//! there is one, and both are written under one lock. So a restart that replays the journal finds the stream as it was.

use super::backlog::{Backlog, Found, Gone, PORTION_BYTES};
use crate::random;
use bytes::Bytes;
use journal::{Id, Mark};
use parking_lot::{Condvar, Mutex, MutexGuard};
use resp::client::encode_command;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// So many earlier ids are known.
const EARLIER_MAX: usize = 16;
/// A command that is longer does not leave its buffer allocated.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

/// While it is off, nothing is kept, and each effect costs one relaxed load.
#[derive(Default)]
pub struct Stream {
    is_on: AtomicBool,
    follows: AtomicBool,
    offset: AtomicU64,
    state: Mutex<Option<StreamState>>,
    /// Wakes the thread that writes the backlog's file.
    due: Condvar,
}

struct StreamState {
    mark: Mark,
    /// Ids before the second one, as that is in the mark. Several promotions may come within the time in which a peer is away.
    earlier: VecDeque<(Id, u64)>,
    backlog: Backlog,
    readers: Vec<(u64, Waker)>,
    /// The next command says its logical database even if the stream is in it.
    selects_again: bool,
    scratch: Vec<u8>,
    /// The thread that writes the backlog's file waits.
    is_spiller_idle: bool,
    is_closed: bool,
}

pub fn new_id() -> Id {
    let mut bytes = [0; Id::DIGITS / 2];
    random::fill(&mut bytes);
    Id::new(bytes)
}

impl Stream {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Sets whether the dataset is a copy of a primary's. Then the stream is the primary's too, and has the effects of the commands here already.
    pub fn set_follows(&self, on: bool) {
        self.follows.store(on, Relaxed);
    }

    pub fn follows(&self) -> bool {
        self.follows.load(Relaxed)
    }

    /// The bytes of the stream so far. 0 while it is off.
    pub fn offset(&self) -> u64 {
        self.offset.load(Relaxed)
    }

    /// Makes a stream that goes on at the mark. It takes nothing until [`Stream::turn_on`], but what is replayed.
    /// `file`: for older bytes, at most so many; it is empty.
    pub fn prepare(&self, mark: Mark, window_bytes: usize, file: Option<(File, u64)>) {
        let backlog = Backlog::new(window_bytes.max(2 * PORTION_BYTES as usize), file, mark.offset);
        self.offset.store(mark.offset, Relaxed);
        let (earlier, readers, scratch) = (VecDeque::new(), Vec::new(), Vec::new());
        let (selects_again, is_spiller_idle, is_closed) = (false, false, false);
        let state = StreamState { mark, earlier, backlog, readers, selects_again, scratch, is_spiller_idle, is_closed };
        *self.state.lock() = Some(state);
        // The thread that writes the file may wait since the stream before this one.
        self.due.notify_all();
    }

    /// From now on it takes all effects. Every stripe is locked, or there is no client.
    pub fn turn_on(&self) {
        assert!(self.state.lock().is_some(), "it is prepared");
        self.is_on.store(true, Relaxed);
    }

    /// There is a stream, although it may not take effects yet.
    pub fn is_prepared(&self) -> bool {
        self.state.lock().is_some()
    }

    /// Ends the thread that writes the file.
    pub fn close(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.is_closed = true;
        }
        self.due.notify_all();
    }

    fn with<T>(&self, ask: impl FnOnce(&mut StreamState) -> T) -> Option<T> {
        self.state.lock().as_mut().map(ask)
    }

    /// `None`: there is no stream.
    pub fn mark(&self) -> Option<Mark> {
        self.with(|state| state.mark)
    }

    /// Calls with the mark, and returns the answer. Nothing is added meanwhile, not even a message, for which no stripe is locked.
    pub fn with_mark<T>(&self, ask: impl FnOnce(Option<Mark>) -> T) -> T {
        let state = self.state.lock();
        ask(state.as_ref().map(|state| state.mark))
    }

    /// The offsets whose bytes can be read.
    pub fn backlog(&self) -> Range<u64> {
        self.with(|state| state.backlog.range()).unwrap_or(0..0)
    }

    /// What the backlog takes in RAM.
    pub fn window_bytes(&self) -> usize {
        self.with(|state| state.backlog.window_bytes()).unwrap_or(0)
    }

    /// Up to where a copy is sent the stream that has applied it up to this offset. It holds in its memory what it has not applied, as much as the
    /// window; and a command that is larger comes whole, because it cannot apply a part.
    pub fn sent_ahead(&self, applied: u64) -> u64 {
        self.with(|state| state.backlog.sent_ahead(applied)).unwrap_or(applied)
    }

    /// Whether a peer that has `offset` bytes of the stream `id` can go on from there.
    pub fn can_continue(&self, id: &Id, offset: u64) -> bool {
        self.with(|state| {
            let range = state.backlog.range();
            let is_same = state.shared(id).is_some_and(|shared| offset <= shared);
            is_same && range.start <= offset && offset <= range.end
        })
        .unwrap_or(false)
    }

    /// The offset up to which the stream `id` is the same as this one. `None`: it is another stream.
    pub fn shared(&self, id: &Id) -> Option<u64> {
        self.with(|state| state.shared(id))?
    }

    /// At most `max` bytes from offset `from` on, in pieces; none if the stream ends there. What the window has is not copied.
    pub fn read(&self, from: u64, max: usize) -> Result<Vec<Bytes>, Gone> {
        let in_file = match self.with(|state| state.backlog.read(from, max)).ok_or(Gone)?? {
            Found::InWindow(pieces) => return Ok(pieces),
            Found::InFile(in_file) => in_file,
        };
        let read = in_file.read();
        // Newer bytes may have been written over this part of the file during the read.
        let is_there = self.with(|state| state.backlog.range().start <= from).unwrap_or(false);
        read.ok().filter(|_| is_there).map(|bytes| vec![bytes.into()]).ok_or(Gone)
    }

    /// As [`Stream::read`], but adds the bytes to `out`.
    pub fn copy(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Result<(), Gone> {
        self.read(from, max)?.iter().for_each(|piece| out.extend_from_slice(piece));
        Ok(())
    }

    /// Ready when there are bytes behind `from`. `reader`: each has a number.
    pub fn poll_news(&self, from: u64, reader: u64, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(state) = &mut *state else { return Poll::Pending };
        if state.mark.offset > from {
            return Poll::Ready(());
        }
        state.readers.retain(|(other, _)| *other != reader);
        state.readers.push((reader, cx.waker().clone()));
        Poll::Pending
    }

    /// The reader has ended.
    pub fn forget(&self, reader: u64) {
        self.with(|state| state.readers.retain(|(other, _)| *other != reader));
    }

    /// From here on the stream has this id, because the primary has changed it, or this database is promoted and its bytes are not the
    /// primary's any more. The bytes so far are those of both ids.
    pub fn change_id(&self, id: Id) {
        self.with(|state| {
            if state.mark.id != id {
                // After a crash that has lost the end of the stream, the second id may say more than is there.
                let offset = state.mark.offset;
                state.earlier.extend(state.mark.second.map(|(id, to)| (id, to.min(offset))));
                if state.earlier.len() > EARLIER_MAX {
                    state.earlier.pop_front();
                }
                state.mark.second = Some((state.mark.id, state.mark.offset));
                state.mark.id = id;
            }
        });
    }

    /// The promotion has failed, and nothing was written since: gives back the ids of the mark.
    pub fn restore_id(&self, before: Mark) {
        self.with(|state| (state.mark.id, state.mark.second) = (before.id, before.second));
    }

    /// The next command says its logical database again: as in Redis, who reads the stream from here on needs no field of the dump.
    pub fn select_again(&self) {
        self.with(|state| state.selects_again = true);
    }

    /// Begins to add bytes. `None`: there is no stream. As long as the addition lives, nobody else adds or reads.
    #[inline]
    pub fn addition(&self) -> Option<Addition<'_>> {
        let state = self.state.lock();
        state.is_some().then_some(Addition { stream: self, state: Some(state) })
    }

    /// Adds what the journal has, which ends in logical database `db`.
    pub fn replay(&self, db: u32, bytes: &[u8]) {
        if let Some(mut addition) = self.addition() {
            addition.push(db, bytes);
        }
    }

    /// Writes the backlog's file until the stream is closed. If a write fails, `failed` is called, and only the window in RAM is left.
    pub fn spill(&self, failed: &dyn Fn(io::Error)) {
        let mut guard = self.state.lock();
        loop {
            let Some(state) = guard.as_mut().filter(|state| !state.is_closed) else { return };
            let Some(portion) = state.backlog.portion() else {
                state.is_spiller_idle = true;
                self.due.wait(&mut guard);
                continue;
            };
            drop(guard);
            let written = portion.write();
            guard = self.state.lock();
            if let Some(state) = &mut *guard {
                state.backlog.spilled(&portion, &written);
            }
            if let Err(error) = written {
                failed(error);
            }
        }
    }
}

/// Bytes that are being added. When it is dropped, readers get them.
pub struct Addition<'s> {
    stream: &'s Stream,
    /// `None` while it is being dropped.
    state: Option<MutexGuard<'s, Option<StreamState>>>,
}

impl Addition<'_> {
    #[inline]
    fn state(&mut self) -> &mut StreamState {
        self.state.as_deref_mut().and_then(Option::as_mut).expect("there is a stream, until it is dropped")
    }

    /// The logical database of the last command.
    pub fn db(&mut self) -> u32 {
        self.state().mark.db.unwrap_or(0)
    }

    /// Adds a SELECT if a command of this logical database needs one, and returns it.
    #[inline]
    pub fn select(&mut self, db: u32) -> Option<Vec<u8>> {
        let state = self.state();
        if state.mark.db == Some(db) && !state.selects_again {
            return None;
        }
        state.selects_again = false;
        let mut select = Vec::new();
        encode_command(&[b"SELECT", db.to_string().as_bytes()], &mut select);
        self.push(db, &select);
        Some(select)
    }

    /// Adds whole commands, which end in logical database `db`.
    pub fn push(&mut self, db: u32, commands: &[u8]) {
        self.state().mark.db = Some(db);
        self.push_message(commands);
    }

    /// Adds what changes no logical database.
    pub fn push_message(&mut self, message: &[u8]) {
        self.state().push_bytes(message);
    }

    /// A buffer for commands that are encoded before they are added. [`Addition::give_back`] keeps it for the next addition.
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state().scratch)
    }

    pub fn give_back(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        scratch.shrink_to(SCRATCH_KEPT_BYTES);
        self.state().scratch = scratch;
    }
}

impl Drop for Addition<'_> {
    fn drop(&mut self) {
        let stream = self.stream;
        let state = self.state();
        stream.offset.store(state.mark.offset, Relaxed);
        if state.is_spiller_idle && state.backlog.is_due() {
            state.is_spiller_idle = false;
            stream.due.notify_one();
        }
        if !state.readers.is_empty() {
            let readers = std::mem::take(&mut state.readers);
            // Not under the lock, which they take.
            self.state = None;
            readers.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }
}

impl StreamState {
    fn shared(&self, id: &Id) -> Option<u64> {
        let Mark { id: own, second, offset, .. } = self.mark;
        match second {
            _ if own == *id => Some(offset),
            Some((second, to)) if second == *id => Some(to),
            _ => self.earlier.iter().rev().find(|(earlier, _)| earlier == id).map(|&(_, to)| to),
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.backlog.push(bytes);
        self.mark.offset = self.backlog.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn begin(offset: u64) -> Mark {
        Mark { id: new_id(), second: None, offset, db: None }
    }

    fn text(stream: &Stream, from: u64) -> String {
        let mut out = Vec::new();
        stream.copy(from, usize::MAX >> 1, &mut out).unwrap();
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    fn set(stream: &Stream, db: u32, log: &mut Vec<(u32, usize)>) {
        let mut addition = stream.addition().unwrap();
        log.extend(addition.select(db).map(|select| (db, select.len())));
        let set = b"*1\r\n$3\r\nSET\r\n";
        addition.push(db, set);
        log.push((db, set.len()));
    }

    /// The first dataset of a replica belongs to no stream, and the thread found nothing to write. Then it never woke again.
    #[test]
    fn the_file_is_written_after_a_stream_has_begun_anew() {
        let stream = Arc::new(Stream::default());
        let file = || Some((tempfile::tempfile().unwrap(), 64 * PORTION_BYTES));
        stream.prepare(begin(0), 0, file());
        let writer = Arc::clone(&stream);
        let writer = std::thread::spawn(move || writer.spill(&|error| panic!("{error}")));
        let until = |holds: &dyn Fn(&mut StreamState) -> bool| {
            let begun = std::time::Instant::now();
            while !stream.with(holds).unwrap() {
                assert!(begun.elapsed().as_secs() < 30);
                std::thread::yield_now();
            }
        };
        until(&|state| state.is_spiller_idle);
        stream.prepare(begin(0), 0, file());
        for _ in 0..10 {
            stream.addition().unwrap().push(0, &vec![b'x'; PORTION_BYTES as usize]);
            until(&|state| !state.backlog.is_due());
        }
        assert_eq!(stream.backlog().start, 0);
        stream.close();
        writer.join().unwrap();
    }

    /// A message between a checkpoint's position of the journal and its place in the stream was in one of both only.
    #[test]
    fn nothing_is_added_while_somebody_asks_with_the_mark() {
        let stream = Arc::new(Stream::default());
        stream.prepare(begin(0), 0, None);
        stream.turn_on();
        let adds = Arc::clone(&stream);
        let adding = std::thread::spawn(move || {
            (0..200_000).for_each(|_| adds.addition().unwrap().push_message(b"*1\r\n$4\r\nPING\r\n"));
        });
        while !adding.is_finished() {
            let (mark, offset) = stream.with_mark(|mark| (mark.unwrap(), stream.offset()));
            assert_eq!(mark.offset, offset);
        }
        adding.join().unwrap();
    }

    #[test]
    fn a_command_of_another_logical_database_is_preceded_by_select() {
        let stream = Stream::default();
        stream.prepare(begin(100), 0, None);
        stream.turn_on();
        let mut log = Vec::new();
        for db in [0, 0, 12] {
            set(&stream, db, &mut log);
        }
        let mut addition = stream.addition().unwrap();
        assert_eq!(addition.db(), 12);
        addition.push_message(b"*1\r\n$4\r\nPING\r\n");
        drop(addition);
        set(&stream, 12, &mut log);
        let (set, ping) = ("*1 $3 SET ", "*1 $4 PING ");
        let selected = |db: u32| format!("*2 $6 SELECT ${} {db} ", db.to_string().len());
        assert_eq!(text(&stream, 100), format!("{}{set}{set}{}{set}{ping}{set}", selected(0), selected(12)));
        assert_eq!(log, [(0, 23), (0, 13), (0, 13), (12, 24), (12, 13), (12, 13)]);
        let mark = stream.mark().unwrap();
        assert_eq!((mark.offset, mark.db), (100 + 113, Some(12)));
        assert_eq!(stream.backlog(), 100..213);
    }

    /// A program that reads the stream as a replica does, and leaves out the dump, once did not learn the logical database.
    #[test]
    fn behind_a_dump_the_logical_database_is_said_again() {
        let stream = Stream::default();
        stream.prepare(begin(0), 0, None);
        stream.turn_on();
        set(&stream, 9, &mut Vec::new());
        let cut = stream.offset();
        stream.select_again();
        set(&stream, 9, &mut Vec::new());
        set(&stream, 9, &mut Vec::new());
        assert_eq!(text(&stream, cut), "*2 $6 SELECT $1 9 *1 $3 SET *1 $3 SET ");
    }

    #[test]
    fn a_peer_continues_with_both_ids_up_to_the_change() {
        let stream = Stream::default();
        stream.prepare(begin(0), 0, None);
        stream.turn_on();
        set(&stream, 0, &mut Vec::new());
        let first = stream.mark().unwrap();
        stream.change_id(new_id());
        set(&stream, 0, &mut Vec::new());
        let now = stream.mark().unwrap();
        assert_eq!(now.second, Some((first.id, first.offset)));
        for (id, offset, goes_on) in [
            (first.id, 0, true),
            (first.id, first.offset, true),
            (first.id, first.offset + 1, false),
            (now.id, now.offset, true),
            (now.id, now.offset + 1, false),
            (new_id(), 0, false),
        ] {
            assert_eq!(stream.can_continue(&id, offset), goes_on, "{offset}");
        }
    }

    #[test]
    fn a_peer_that_was_away_for_several_changes_learns_where_its_stream_parts() {
        let stream = Stream::default();
        stream.prepare(begin(0), 0, None);
        stream.turn_on();
        let mut marks = Vec::new();
        for _ in 0..EARLIER_MAX + 3 {
            set(&stream, 0, &mut Vec::new());
            marks.push(stream.mark().unwrap());
            stream.change_id(new_id());
        }
        let known = marks.iter().filter(|mark| stream.shared(&mark.id) == Some(mark.offset)).count();
        assert_eq!(known, EARLIER_MAX + 1);
        assert!(stream.shared(&marks[0].id).is_none());
    }

    #[test]
    fn what_a_crash_has_lost_is_shared_with_nobody() {
        let (stream, [second, third]) = (Stream::default(), [new_id(), new_id()]);
        // The second id was given up at a place that is not there any more.
        stream.prepare(Mark { second: Some((second, 150)), ..begin(100) }, 0, None);
        let own = stream.mark().unwrap().id;
        stream.change_id(third);
        assert_eq!([own, second].map(|id| stream.shared(&id)), [Some(100); 2]);
    }

    #[test]
    fn a_reader_reads_everything_while_commands_come_and_the_file_is_written() {
        let stream = Arc::<Stream>::default();
        let file = tempfile::tempfile().unwrap();
        stream.prepare(begin(0), 1 << 20, Some((file, 64 << 20)));
        stream.turn_on();
        let spiller = Arc::clone(&stream);
        let spiller = std::thread::spawn(move || spiller.spill(&|error| panic!("{error}")));
        let adder = Arc::clone(&stream);
        let adder = std::thread::spawn(move || {
            for number in 0..20_000_u32 {
                let mut addition = adder.addition().unwrap();
                addition.select(0);
                addition.push(0, format!("{number:0>1000}").as_bytes());
                drop(addition);
                // Not faster than the file is written, however busy the machine is.
                while adder.with(|state| state.backlog.end() - state.backlog.range().start > 30 << 20).unwrap() {
                    std::thread::yield_now();
                }
                while number % 256 == 0 && adder.with(|state| state.backlog.is_due()).unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        while stream.offset() < 23 {
            std::thread::yield_now();
        }
        let (mut found, mut from) = (Vec::new(), 23);
        while from < 23 + 20_000_000 {
            stream.copy(from, 100_000, &mut found).unwrap();
            from = 23 + found.len() as u64;
        }
        adder.join().unwrap();
        let numbers = found.chunks(1000).map(|line| std::str::from_utf8(line).unwrap().parse::<u32>().unwrap());
        assert!(numbers.eq(0..20_000));
        stream.close();
        spiller.join().unwrap();
    }
}
