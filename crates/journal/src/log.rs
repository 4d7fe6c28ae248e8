//! Owns a journal that is in use: opening it, what the workers append to, and closing it. Never knows what an effect means, or who
//! waits for it.

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
    /// The records of one file, a multiple of a page. A journal that exists keeps the size that it has.
    pub file_bytes: u64,
    /// The most that is appended and not durable before writers must wait; a multiple of a page.
    pub ring_bytes: u64,
    pub policy: Policy,
}

/// A journal in its directory, as a stop or a crash has left it. Its records are not changed yet.
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

/// Shared by all workers. When it is dropped without [`Log::close`], what is not written stays in the ring, for the next start.
pub struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Opened {
    /// Opens the journal in `directory`, or begins one there if the directory has none and `from` is 0. Records before `from` are not
    /// needed. `from` is 0 or the position after a record, which was durable once.
    pub fn open(directory: &Path, settings: &Settings, from: u64) -> Result<Opened, OpenError> {
        assert!(settings.ring_bytes >= RING_BYTES_MIN);
        let (files, ring) = Files::open(directory, settings.log_id, settings.file_bytes)?;
        Opened::of(directory, settings, from, files, ring, false)
    }

    /// `reads_all`: all damage is to be found before the records are read.
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
        // What the ring has released was durable.
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

    /// The pieces that only the ring has.
    fn pieces_of_ring(&self, each: impl FnMut(u64, &[u8]) -> ControlFlow<()>) {
        if let Some(Left { ring, start: Some(start), .. }) = &self.ring {
            left_behind(ring, *start, self.frames.end(), each);
        }
    }

    /// Gives `each` every record from `from` on, in order, with the position after it, until it breaks.
    pub fn records(&self, each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>) -> Result<(), OpenError> {
        let no_records = |source| OpenError::Records { directory: self.files.directory().to_owned(), source };
        let mut joiner = Joiner::default();
        if self.frames.join(&self.files, &mut joiner, each).map_err(no_records)?.is_break() {
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

    /// Where the next record goes: behind the last one, and behind what is left of one that a crash has cut off.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Makes durable what the files hold. Returns the position after it: what the ring has beyond that may be lost with the power.
    pub fn sync_files(&self) -> Result<u64, OpenError> {
        self.files.sync().map(|()| self.frames.end())
    }

    /// Makes durable what is not, and starts the thread `journal`.
    pub fn start(self) -> Result<Arc<Log>, OpenError> {
        self.start_on(SECOND, |files| files)
    }

    /// With other files than those of the directory, for tests.
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
        // Before any record is in a file, so that a file of records is never without a ring.
        let ring_file = match ring {
            Some(Left { file, head, .. }) => (file, head),
            None => make_ring(&disk)?,
        };
        writer.append_pieces(&left);
        writer.sync();
        write_all(&mut writer, &mut disk, settings.policy, &directory)?;
        assert_eq!(writer.durable(), end, "what was left is durable");
        // Only now the old ring is not needed any more. Without room for another, it serves as it is.
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

/// Until everything is durable. A file is made only if one is needed for this, since the file system may be full.
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
    assert_eq!(filled.ok(), Some(bytes.len()), "8 random bytes come whole, or the kernel is not Linux");
    u64::from_le_bytes(bytes)
}

impl Log {
    /// Called with the stripes of the change locked: never waits for a device. Returns the position after the record.
    pub fn append(&self, record: &Record) -> u64 {
        self.shared.append(record)
    }

    /// As [`Log::append`]. `resp` writes the record's RESP bytes where the journal keeps them, and says how many there are.
    pub fn append_draft(&self, draft: &Draft, resp: impl Fn(&mut [u8]) -> usize) -> u64 {
        if let Some(bytes_max) = draft.piece_bytes_max() {
            return self.shared.append_piece(draft, bytes_max, resp);
        }
        let Draft { stripe, db, time_ms, resp_bytes_max } = *draft;
        let mut bytes = vec![0; resp_bytes_max];
        let count = resp(&mut bytes);
        self.append(&Record { stripe, db, time_ms, resp: &bytes[..count] })
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

    /// The replies of commands up to this position may leave. With `Always` their effects are durable. With the other policies a
    /// crash of the process cannot take them back. After a failure it is the tail: see [`Log::failed`].
    #[inline]
    pub fn safe(&self) -> u64 {
        self.shared.safe()
    }

    /// Somebody waits until `position` is safe. With `Always`, what nobody waits for becomes durable within a second.
    #[inline]
    pub fn want(&self, position: u64) {
        self.shared.want(position);
    }

    /// Makes everything before `position` durable at once, whatever the policy. A checkpoint waits for it.
    pub fn demand(&self, position: u64) {
        self.shared.change(|state| state.demanded = state.demanded.max(position));
    }

    /// As [`Log::demand`], and waits for it.
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

    /// The journal takes this many files at most, and one more than there are while a checkpoint waits for it. When they are full, writers wait.
    pub fn limit_files(&self, count: u32) {
        if self.shared.state.lock().files_max != count {
            self.shared.change(|state| state.files_max = count);
        }
    }

    /// Writers must wait before they lock: the ring is nearly full, or no file can be made.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.shared.is_behind()
    }

    /// See [`Log::failed`].
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Why the journal cannot be written any more. What was appended since the last sync may be lost, so a reply that waited for it
    /// must not leave, and no write may follow.
    #[inline]
    pub fn failed(&self) -> Option<String> {
        if self.shared.has_failed() { self.shared.state.lock().failed.clone() } else { None }
    }

    /// `f` is called by the thread after [`Log::safe`], [`Log::durable`], [`Log::is_behind`] or [`Log::failed`] may have changed. It must not wait.
    pub fn on_progress(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.shared.listen(f);
    }

    /// `f` is called by the thread when commands that write begin to wait because no file can be made, with the reason, and with
    /// `None` when they go on. It must not wait.
    pub fn on_room(&self, f: RoomListener) {
        self.shared.room_listeners.lock().push(f);
    }

    pub fn set_policy(&self, policy: Policy) {
        self.shared.change(|state| state.policy = policy);
    }

    /// No record before `position` is needed any more: a durable checkpoint has their effects. Files with only such records are used
    /// again as soon as `position` is durable.
    pub fn needed_from(&self, position: u64) {
        self.shared.change(|state| state.needed_from = state.needed_from.max(position));
    }

    /// For tests: writes nothing until it is called with false, as if the device did not answer.
    #[doc(hidden)]
    pub fn pause(&self, is_paused: bool) {
        self.shared.change(|state| state.is_paused = is_paused);
    }

    /// For tests: as if the device had failed twice.
    #[doc(hidden)]
    pub fn fail(&self, why: &str) {
        self.shared.change(|state| state.failed = Some(why.into()));
    }

    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Makes everything durable, writes the closing frame and ends the thread. A later call does nothing. What is appended afterwards
    /// stays in the ring.
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
        // The thread does nothing that can fail.
        let _ = self.end(End::Dropped);
    }
}
