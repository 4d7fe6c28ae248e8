//! Owns a journal that is in use: opening it, appending to it, and closing it. Never knows what an effect means, nor
//! which clients wait for it.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::files::{Files, OpenError, RingFile, failed};
use crate::head::{Head, Kind};
use crate::record::{Joiner, Piece};
use crate::recover::{Held, recover_checked};
use crate::ring::{RING_BYTES_MIN, Ring, Start};
use crate::state::{End, Figures, Policy, RoomListener, Shared, left_behind};
use crate::thread::{Disk, JournalWriterThread, next_run};
use crate::{Config, Draft, Error, Record, Recovered, Writer, recover};

const SECOND: Duration = Duration::from_secs(1);
/// How long [`Log::make_durable`] waits for the device.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Random, the same for the life of the journal.
    pub log_id: [u8; 16],
    /// Bytes of the records of one file, a multiple of a page. An existing journal keeps its size.
    pub file_bytes: u64,
    /// Maximum of appended bytes that are not durable. Beyond it, writers must wait. A multiple of a page.
    pub ring_bytes: u64,
    pub policy: Policy,
}

/// A journal in its directory, as a stop or a crash has left it. Its records have not been changed yet.
pub struct Opened {
    settings: Settings,
    from: u64,
    files: Files,
    frames: Recovered,
    ring: Option<Left>,
    end: u64,
}

/// The ring that the last process has left.
struct Left {
    file: File,
    head: Head,
    ring: Ring,
    start: Option<Start>,
}

/// Shared by all workers. If it is dropped without [`Log::close`], what was not written stays in the ring for the next
/// start.
pub struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Opened {
    /// Opens the journal in `directory`. If the directory has none and `from` is 0, begins one. Records before `from`
    /// are not needed. `from` is 0, or the position after a record that was durable once.
    pub fn open(directory: &Path, settings: &Settings, from: u64) -> Result<Opened, OpenError> {
        assert!(settings.ring_bytes >= RING_BYTES_MIN);
        let (files, ring) = Files::open(directory, settings.log_id, settings.file_bytes)?;
        Opened::of(directory, settings, from, files, ring, false)
    }

    /// `reads_all`: finds all damage before the records are read.
    pub(crate) fn of(
        directory: &Path,
        settings: &Settings,
        from: u64,
        files: Files,
        ring: RingFile,
        reads_all: bool,
    ) -> Result<Opened, OpenError> {
        let recover = if reads_all { recover_checked } else { recover };
        let config = Config { file_bytes: files.file_bytes(), buffer_bytes: u64::MAX, ..Config::new(settings.log_id) };
        let no_records = |source| OpenError::Records { directory: directory.to_owned(), source };
        let frames = recover(&files, config, files.count(), from).map_err(no_records)?;
        let ring = ring.map(|(file, head)| {
            let (ring, start) = Ring::left_in(&file, &head).map_err(failed("map", directory))?;
            Ok(Left { file, head, ring, start })
        });
        let ring = ring.transpose()?;
        let end = frames.end();
        // What the ring has released was durable, so the frames must reach the ring's start.
        if let Some(start) = ring.as_ref().and_then(|left| left.start).filter(|start| start.position > end) {
            return Err(no_records(Error::Missing { position: start.position }));
        }
        let mut opened = Opened { settings: *settings, from, files, frames, ring, end };
        let mut end = opened.end;
        opened.pieces_of_ring(|position, piece| {
            end = position + piece.len() as u64;
            ControlFlow::Continue(())
        });
        opened.end = end;
        Ok(opened)
    }

    /// Visits the pieces that only the ring has.
    fn pieces_of_ring(&self, each: impl FnMut(u64, &[u8]) -> ControlFlow<()>) {
        if let Some(Left { ring, start: Some(start), .. }) = &self.ring {
            left_behind(ring, *start, self.frames.end(), each);
        }
    }

    /// Calls `each` with every record from `from` on, in order, and the position after it, until `each` breaks.
    pub fn records(&self, each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>) -> Result<(), OpenError> {
        self.records_from(self.from, each)
    }

    /// Like [`Opened::records`], from a later position on: that after a record that was durable once.
    pub fn records_from(
        &self,
        from: u64,
        each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        assert!(from >= self.from);
        let no_records = |source| OpenError::Records { directory: self.files.directory().to_owned(), source };
        let mut joiner = Joiner::default();
        if self.frames.join(&self.files, from, &mut joiner, each).map_err(no_records)?.is_break() {
            return Ok(());
        }
        let mut is_damaged = false;
        self.pieces_of_ring(|position, bytes| {
            let piece = Piece::read(bytes).expect("the ring gives whole pieces");
            let joined = joiner.join(position + bytes.len() as u64, &piece, each);
            is_damaged = joined.is_none();
            joined.unwrap_or(ControlFlow::Break(()))
        });
        if is_damaged {
            return Err(no_records(Error::NoRecord { position: self.frames.end() }));
        }
        Ok(())
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        self.frames.held()
    }

    /// The position of the next record: behind the last one, and behind the rest of a record that a crash has cut off.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Makes the contents of the files durable. Returns the position after them. A power failure may still lose what
    /// only the ring has.
    pub fn sync_files(&self) -> Result<u64, OpenError> {
        self.files.sync().map(|()| self.frames.end())
    }

    /// Makes everything durable, and starts the thread `journal`.
    pub fn start(self) -> Result<Arc<Log>, OpenError> {
        self.start_on(SECOND, |files| files)
    }

    /// Starts the journal with other files than those of the directory, for tests.
    pub(crate) fn start_on<D: Disk>(
        self,
        every: Duration,
        disk: impl FnOnce(Files) -> D,
    ) -> Result<Arc<Log>, OpenError> {
        let directory = self.files.directory().to_owned();
        let no_records = |source| OpenError::Records { directory: directory.clone(), source };
        let log_id = self.settings.log_id;
        let mut left = Vec::new();
        self.pieces_of_ring(|_, piece| {
            left.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        let Opened { settings, from, files, frames, ring, end } = self;
        let mut writer = frames.writer(&files).map_err(no_records)?;
        let mut disk = disk(files);
        let make_ring = |disk: &D| {
            let head = Head { kind: Kind::Ring, number: 0, log_id, data_bytes: settings.ring_bytes, epoch: random() };
            disk.make_ring(&head).map(|file| (file, head))
        };
        // Make the ring before a file contains any record, so that a file of records never exists without a ring.
        let ring_file = match ring {
            Some(Left { file, head, .. }) => (file, head),
            None => make_ring(&disk)?,
        };
        writer.append_pieces(&left);
        writer.sync();
        write_all(&mut writer, &mut disk, settings.policy, &directory)?;
        assert_eq!(writer.durable(), end, "what was left is durable");
        // Only now is the old ring not needed any more. If there is no space for a ring of another size, the old one is
        // used as it is.
        let (file, head) = match ring_file {
            (file, head) if head.data_bytes == settings.ring_bytes => (file, head),
            old => match make_ring(&disk) {
                Err(OpenError::NoSpace { .. }) => old,
                made => made?,
            },
        };
        let head = Head { epoch: random(), ..head };
        let ring = Ring::empty(&file, &head, end).map_err(failed("begin the ring in", &directory))?;
        let shared = Arc::new(Shared::new(ring, settings.policy, end, from));
        let writer_thread = JournalWriterThread::new(Arc::clone(&shared), disk, writer, every);
        let thread = thread::Builder::new().name("journal".into()).spawn(move || writer_thread.run_to_end());
        let thread = thread.map_err(failed("start a thread for", &directory))?;
        Ok(Arc::new(Log { shared, thread: Mutex::new(Some(thread)) }))
    }
}

/// Writes until everything is durable. Makes a file only if one is needed for this, because the file system may be
/// full.
fn write_all<D: Disk>(writer: &mut Writer, disk: &mut D, policy: Policy, directory: &Path) -> Result<(), OpenError> {
    let (mut ops, mut done) = (Vec::new(), Vec::new());
    loop {
        writer.ops(&mut ops);
        if ops.is_empty() && !writer.needs_file() {
            return Ok(());
        }
        while !ops.is_empty() {
            let run = next_run(&mut ops);
            disk.run_operations(run, false, &mut done);
        }
        let written = done.drain(..).try_for_each(|done| writer.done(done));
        written.map_err(|error| failed("write the journal in", directory)(io::Error::other(error)))?;
        if writer.needs_file() {
            disk.add(policy == Policy::Always)?;
            writer.add_file();
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled.ok(), Some(bytes.len()), "the kernel gives all 8 random bytes");
    u64::from_le_bytes(bytes)
}

impl Log {
    /// Appends a record. It is called while the stripes of the change are locked, so it never waits for a device.
    /// Returns the position after the record.
    pub fn append(&self, record: &Record) -> u64 {
        self.shared.append(record)
    }

    /// Like [`Log::append`]. `resp` writes the record's RESP bytes directly into the journal's memory, and returns
    /// their number.
    pub fn append_draft(&self, draft: &Draft, resp: impl Fn(&mut [u8]) -> usize) -> u64 {
        if let Some(bytes_max) = draft.piece_bytes_max() {
            return self.shared.append_piece(draft, bytes_max, resp);
        }
        let Draft { db, time_ms, resp_bytes_max } = *draft;
        let mut bytes = vec![0; resp_bytes_max];
        let count = resp(&mut bytes);
        self.append(&Record { db, time_ms, resp: &bytes[..count] })
    }

    /// The position after the last record.
    #[inline]
    pub fn position(&self) -> u64 {
        self.shared.tail()
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> u64 {
        self.shared.durable()
    }

    /// Replies of commands up to this position may be sent. With `Always` their effects are durable. With the other
    /// policies a crash of the process cannot undo them. After a failure this is the tail: see [`Log::failed`].
    #[inline]
    pub fn safe(&self) -> u64 {
        self.shared.safe()
    }

    /// Whether replies wait for the device at the moment, as with `Always`.
    #[inline]
    pub fn holds_replies(&self) -> bool {
        self.shared.holds_replies()
    }

    /// Announces that a client waits until `position` is safe. With `Always`, records for which no client waits become
    /// durable within a second.
    #[inline]
    pub fn want(&self, position: u64) {
        self.shared.want(position);
    }

    /// Makes everything before `position` durable at once, whatever the policy. Used for a checkpoint, which waits for
    /// it.
    pub fn demand(&self, position: u64) {
        self.shared.change(|state| state.demanded = state.demanded.max(position));
    }

    /// Like [`Log::demand`], and waits until it is done.
    pub fn make_durable(&self, position: u64) -> Result<(), String> {
        self.demand(position);
        let deadline = Instant::now() + SYNC_TIMEOUT;
        loop {
            match self.failed() {
                _ if self.durable() >= position => return Ok(()),
                Some(why) => return Err(why),
                None if Instant::now() > deadline => return Err("the journal's device takes too long".to_owned()),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sets the maximum number of files. While a checkpoint waits for the journal, there may be one more. When the
    /// files are full, writers wait.
    pub fn limit_files(&self, count: u32) {
        if self.shared.state.lock().files_max != count {
            self.shared.change(|state| state.files_max = count);
        }
    }

    /// Whether writers must wait before they lock stripes: the ring is nearly full, or no file can be made.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.shared.is_behind()
    }

    /// See [`Log::failed`].
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Why the journal cannot be written any more. What was appended since the last sync may be lost, so a reply that
    /// waited for it must not be sent, and no write may be accepted.
    #[inline]
    pub fn failed(&self) -> Option<String> {
        if self.shared.has_failed() { self.shared.state.lock().failed.clone() } else { None }
    }

    /// Sets a function that the thread calls after [`Log::safe`], [`Log::durable`], [`Log::is_behind`] or
    /// [`Log::failed`] may have changed. The function must not wait.
    pub fn on_progress(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.shared.listen(f);
    }

    /// Sets a function that the thread calls when writing commands begin to wait because no file can be made, with the
    /// reason, and with `None` when they continue. The function must not wait.
    pub fn on_room(&self, f: RoomListener) {
        self.shared.room_listeners.lock().push(f);
    }

    pub fn set_policy(&self, policy: Policy) {
        self.shared.change(|state| state.policy = policy);
    }

    /// No record before `position` is needed any more, because a durable checkpoint contains their effects. Files with
    /// only such records are used again as soon as `position` is durable.
    pub fn needed_from(&self, position: u64) {
        self.shared.change(|state| state.needed_from = state.needed_from.max(position));
    }

    /// For tests: while it is paused, the thread writes nothing, as if the device did not answer.
    #[doc(hidden)]
    pub fn pause(&self, is_paused: bool) {
        self.shared.change(|state| state.is_paused = is_paused);
    }

    /// For tests: sets the journal's state to that after a second failure of the device.
    #[doc(hidden)]
    pub fn fail(&self, why: &str) {
        self.shared.change(|state| state.failed = Some(why.into()));
    }

    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Makes everything durable, writes the closing frame and ends the thread. A second call does nothing. Records
    /// appended afterwards stay in the ring.
    pub fn close(&self) -> io::Result<()> {
        self.end(End::Closed)
    }

    fn end(&self, end: End) -> io::Result<()> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        self.shared.change(|state| state.end = Some(end));
        thread.join().map_err(|_| io::Error::other("the thread of the journal has panicked"))?
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Ending the thread in this way cannot fail.
        let _ = self.end(End::Dropped);
    }
}
