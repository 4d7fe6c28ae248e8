//! Owns the thread that writes and syncs: when it takes records from the ring, when it syncs, and what it does when a
//! device or a file system refuses. Never knows which clients wait.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flash::io::{Done, Op, OpKind};

use crate::files::{Files, OpenError};
use crate::head::Head;
use crate::state::{End, LogState, Policy, Shared};
use crate::writer::{Failed, Writer};

/// Number of free files that are kept, so that no new one need be made.
pub(crate) const SPARE_FILES: usize = 2;

/// The thread's interface to the journal's files.
pub(crate) trait Disk: Send + 'static {
    /// Carries out one sync, or several writes that are contiguous in one file, and waits for their completion.
    /// `is_last`: these are writes, and a sync follows them.
    fn run_operations(&mut self, run: Vec<Op>, is_last: bool, done: &mut Vec<Done>);
    fn add(&mut self, zeroed: bool) -> Result<(), OpenError>;
    fn remove_last(&mut self) -> Result<(), OpenError>;
    fn make_ring(&self, head: &Head) -> Result<File, OpenError>;
    fn count(&self) -> u16;
    fn file_bytes(&self) -> u64;
}

impl Disk for Files {
    fn run_operations(&mut self, run: Vec<Op>, is_last: bool, done: &mut Vec<Done>) {
        Files::run_operations(self, run, is_last, done);
    }

    fn add(&mut self, zeroed: bool) -> Result<(), OpenError> {
        Files::add(self, zeroed)
    }

    fn remove_last(&mut self) -> Result<(), OpenError> {
        Files::remove_last(self)
    }

    fn make_ring(&self, head: &Head) -> Result<File, OpenError> {
        Files::make_ring(self, head)
    }

    fn count(&self) -> u16 {
        Files::count(self)
    }

    fn file_bytes(&self) -> u64 {
        Files::file_bytes(self)
    }
}

/// The thread's own state.
pub(crate) struct JournalWriterThread<D> {
    pub shared: Arc<Shared>,
    pub disk: D,
    pub writer: Writer,
    /// A second, except in tests: the time between two syncs of [`Policy::EverySecond`], and between two attempts to
    /// make a file.
    pub every: Duration,
    /// When the next of these syncs is due.
    due: Option<Instant>,
    /// When making a file is tried again.
    retry_at: Option<Instant>,
    /// The position up to which a checkpoint demanded durability when a file was last tried. If a later one is
    /// demanded, it is tried again at once.
    tried_for: u64,
    /// Why the file could not be made.
    trouble: Option<String>,
    /// Whether the listeners know that writers wait for a file.
    told_stuck: bool,
    syncs: u64,
    last_sync: Duration,
}

/// What the thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Sync,
    End(End),
}

/// Takes from the front the operations that [`Disk::run_operations`] carries out together. So the device has enough to
/// do, and the thread seldom has to wait for a processor, which it must after each wait for the device.
pub(crate) fn next_run(ops: &mut Vec<Op>) -> Vec<Op> {
    /// The kernel takes at most this many buffers at once.
    const BUFFERS_MAX: usize = 1024;
    let goes_on = |pair: &&[Op]| match &pair[0].kind {
        OpKind::Write(buf) => {
            let is_write = matches!(pair[1].kind, OpKind::Write(_));
            is_write && (pair[1].path, pair[1].offset) == (pair[0].path, pair[0].offset + buf.len() as u64)
        }
        _ => false,
    };
    let count = 1 + ops.windows(2).take(BUFFERS_MAX - 1).take_while(goes_on).count();
    ops.drain(..count).collect()
}

fn no_more(files_max: u32) -> String {
    format!("flash-limit allows it only {files_max} files")
}

impl<D: Disk> JournalWriterThread<D> {
    pub fn new(shared: Arc<Shared>, disk: D, writer: Writer, every: Duration) -> JournalWriterThread<D> {
        JournalWriterThread {
            shared,
            disk,
            writer,
            every,
            due: None,
            retry_at: None,
            tried_for: 0,
            trouble: None,
            told_stuck: false,
            syncs: 0,
            last_sync: Duration::ZERO,
        }
    }

    /// Runs until the journal is closed or dropped. A panic ends the journal, not only its thread, because otherwise it
    /// would stay unnoticed.
    pub fn run_to_end(self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        catch_unwind(AssertUnwindSafe(|| self.run())).unwrap_or_else(|_| {
            let text = "a bug: the thread of the journal has panicked";
            shared.change(|state| state.failed = Some(text.into()));
            Err(io::Error::other(text))
        })
    }

    fn run(mut self) -> io::Result<()> {
        // Spare files are made after the start, because the start must not fail for files that are not needed yet.
        while self.writer.free_files() < SPARE_FILES && self.add_file() {}
        self.show(None);
        loop {
            let step = self.wait();
            match step {
                Step::End(End::Dropped) => return Ok(()),
                Step::End(End::Closed) => return self.close(),
                Step::Write | Step::Sync => {}
            }
            self.free_files();
            self.take();
            if step == Step::Sync {
                self.due = None;
                self.writer.sync();
            }
            let written = self.write(step == Step::Sync);
            self.free_files();
            self.keep_spare_files();
            self.show(written.err());
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        loop {
            if let Some(end) = state.end {
                return Step::End(end);
            }
            let sleeps_until = match self.next(&mut state, Instant::now()) {
                Ok(step) => return step,
                Err(until) => until,
            };
            state.is_awake = false;
            match sleeps_until {
                Some(at) => drop(shared.wake.wait_until(&mut state, at)),
                None => shared.wake.wait(&mut state),
            }
            state.is_awake = true;
        }
    }

    /// What must be done now. An error: nothing, until this time or until the thread is woken.
    fn next(&mut self, state: &mut LogState, now: Instant) -> Result<Step, Option<Instant>> {
        if state.failed.is_some() || state.is_paused {
            state.wake_at = u64::MAX;
            return Err(None);
        }
        let frees_files = state.needed_from > self.writer.needed() && state.needed_from <= state.durable;
        let is_demanded_anew = state.demanded > self.tried_for.max(state.durable);
        let waits = self.writer.needs_file() && !frees_files && !is_demanded_anew;
        if let Some(at) = self.retry_at.filter(|&at| now < at && waits) {
            state.wake_at = u64::MAX;
            return Err(Some(at));
        }
        let is_dirty = state.tail > state.durable;
        // With Always, this syncs records for which no client waits.
        let second = match state.policy {
            Policy::No => None,
            Policy::EverySecond if !is_dirty => None,
            Policy::EverySecond | Policy::Always => Some(*self.due.get_or_insert(now + self.every)),
        };
        let is_late = second.is_some_and(|due| due <= now);
        let is_wanted =
            state.policy == Policy::Always && state.wanted > state.durable || state.demanded > state.durable;
        if is_dirty && (is_wanted || is_late || state.is_pressed()) {
            return Ok(Step::Sync);
        }
        if state.untaken() >= state.write_bytes() || frees_files || self.writer.needs_file() {
            return Ok(Step::Write);
        }
        state.wake_at = match state.policy {
            Policy::EverySecond if !is_dirty => state.tail + 1,
            _ => state.taken + state.write_bytes(),
        };
        if is_late {
            self.due = Some(now + self.every);
        }
        Err(second.and(self.due))
    }

    /// Gives the writer everything that was appended until now.
    fn take(&mut self) {
        let JournalWriterThread { shared, writer, .. } = self;
        writer.make_ready();
        let mut state = shared.state.lock();
        let end = state.tail;
        while state.taken < end {
            if !state.take(|piece| writer.append_piece(piece)) {
                let overflow = state.take_overflow();
                drop(state);
                return writer.append_pieces(&overflow);
            }
            drop(state);
            writer.make_ready();
            state = shared.state.lock();
        }
    }

    /// Carries out the writer's operations. Frames that wait for a file that cannot be made stay in the writer.
    fn write(&mut self, syncs: bool) -> Result<(), Failed> {
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        let mut durable_write = Duration::ZERO;
        loop {
            self.writer.ops(&mut ops);
            if ops.is_empty() && !(self.writer.needs_file() && self.add_file()) {
                return Ok(());
            }
            while !ops.is_empty() {
                let (run, begun) = (next_run(&mut ops), Instant::now());
                let is_sync = matches!(run[0].kind, OpKind::Sync);
                let is_last = syncs && !is_sync && ops.is_empty();
                self.disk.run_operations(run, is_last, &mut done);
                if is_sync {
                    self.syncs += 1;
                    self.last_sync = durable_write + begun.elapsed();
                }
                durable_write = if is_last { begun.elapsed() } else { Duration::ZERO };
            }
            done.drain(..).try_for_each(|done| self.writer.done(done))?;
        }
    }

    fn add_file(&mut self) -> bool {
        let state = self.shared.state.lock();
        let (policy, files_max) = (state.policy, state.files_max);
        // A checkpoint can make room only when the journal is durable up to the checkpoint's position. So it gets a
        // file even if that exceeds the limit, which may have become lower since the files were made.
        let is_demanded = state.demanded > state.durable;
        self.tried_for = state.demanded;
        drop(state);
        let added = match u32::from(self.disk.count()) < files_max || is_demanded {
            true => self.disk.add(policy == Policy::Always).map_err(|error| error.to_string()),
            false => Err(no_more(files_max)),
        };
        match added {
            Ok(()) => {
                self.writer.add_file();
                (self.retry_at, self.trouble) = (None, None);
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + self.every);
                self.trouble = Some(error);
            }
        }
        self.trouble.is_none()
    }

    /// Keeps one file free, so that a failed write can be repeated there, and deletes free files if there are too many.
    fn keep_spare_files(&mut self) {
        let files_max = self.shared.state.lock().files_max;
        let may_add = u32::from(self.disk.count()) < files_max && self.retry_at.is_none_or(|at| at <= Instant::now());
        if self.writer.free_files() == 0 && may_add {
            self.add_file();
        }
        let is_too_much = |thread: &Self| {
            let free = thread.writer.free_files();
            free > SPARE_FILES || free > 0 && u32::from(thread.disk.count()) > files_max
        };
        while is_too_much(self) && self.writer.forget_last_file() {
            if let Err(error) = self.disk.remove_last() {
                self.trouble = Some(error.to_string());
            }
        }
    }

    /// Tells the writer which records are needed, so that files without any become free.
    fn free_files(&mut self) {
        let needed_from = self.shared.state.lock().needed_from;
        if needed_from <= self.writer.durable() {
            self.writer.needed_from(needed_from);
        }
    }

    /// Publishes the journal's progress to the workers.
    fn show(&mut self, failed: Option<Failed>) {
        if self.writer.free_files() > 0 {
            self.trouble = None;
        }
        let mut state = self.shared.state.lock();
        state.failed = state.failed.take().or(failed.map(|failed| failed.to_string()));
        // An additional file that was made for a checkpoint does not end the writers' wait: the next checkpoint may
        // need it again.
        let is_over = self.writer.free_files() == 0 && u32::from(self.disk.count()) > state.files_max;
        if is_over {
            self.trouble.get_or_insert_with(|| no_more(state.files_max));
        }
        let is_stuck = self.writer.needs_file() || is_over;
        state.is_stuck = is_stuck;
        state.set_durable(self.writer.durable());
        state.figures.written_bytes = self.writer.placed_bytes();
        state.figures.needed_bytes = self.writer.needed_bytes();
        state.figures.files = self.disk.count().into();
        state.figures.file_bytes = u64::from(self.disk.count()) * self.disk.file_bytes();
        state.figures.syncs = self.syncs;
        state.figures.last_sync = self.last_sync;
        state.figures.trouble.clone_from(&self.trouble);
        let is_news = self.shared.publish(&mut state);
        drop(state);
        if is_news {
            self.shared.notify_listeners();
        }
        self.tell_room(is_stuck);
    }

    fn tell_room(&mut self, is_stuck: bool) {
        let why = self.trouble.as_deref().filter(|_| is_stuck);
        if std::mem::replace(&mut self.told_stuck, why.is_some()) != why.is_some() {
            self.shared.room_listeners.lock().iter().for_each(|listener| listener(why));
        }
    }

    /// Makes everything durable, and writes the closing frame, which says so.
    fn close(&mut self) -> io::Result<()> {
        self.shared.state.lock().files_max = u32::MAX;
        let closed = self.write_all();
        self.show(None);
        self.shared.change(|state| state.is_over = true);
        closed
    }

    fn write_all(&mut self) -> io::Result<()> {
        if let Some(failed) = self.shared.state.lock().failed.clone() {
            return Err(io::Error::other(failed));
        }
        self.take();
        self.writer.sync();
        self.write(true).map_err(io::Error::other)?;
        self.writer.is_idle().then_some(()).ok_or_else(|| self.stuck())?;
        self.writer.close();
        self.write(true).map_err(io::Error::other)?;
        self.writer.is_idle().then_some(()).ok_or_else(|| self.stuck())
    }

    fn stuck(&self) -> io::Error {
        io::Error::new(io::ErrorKind::StorageFull, self.trouble.clone().unwrap_or_default())
    }
}
