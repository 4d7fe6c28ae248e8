//! Owns what the workers and the journal's thread share: the ring, the records that did not fit into it, and the
//! position up to which replies may be sent. Never does I/O.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::record::{Draft, Record, stored_bytes};
use crate::ring::{Ring, Start};

/// When appended records become durable. A killed process loses nothing, whatever the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// When a quarter of the ring is full.
    No,
    EverySecond,
    /// Before [`crate::Log::safe`] passes it: at once when a client waits, see [`crate::Log::want`].
    Always,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Since the start.
    pub records: u64,
    pub bytes: u64,
    /// Bytes that the frames with these records take on the device.
    pub written_bytes: u64,
    /// Bytes that those of these frames take whose records are needed: see [`crate::Log::needed_from`].
    pub needed_bytes: u64,
    /// Number of files, including those that are made ahead.
    pub files: u64,
    pub file_bytes: u64,
    pub syncs: u64,
    pub last_sync: Duration,
    /// For how long [`crate::Log::is_behind`] has now been true.
    pub behind: Option<Duration>,
    /// For how long it has been true since the start, in total.
    pub behind_total: Duration,
    /// Why no file can be made. It is tried again each second.
    pub trouble: Option<String>,
}

/// Appended records that the writer does not have yet are written when they are this share of the ring, within bounds.
/// It is not done earlier, because each wake-up of the thread costs a worker a system call.
const WRITE_SHARE: u64 = 32;
const WRITE_BYTES_MIN: u64 = 256 << 10;
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// Maximum bytes that are copied out of the ring under the lock, for which the workers wait: some microseconds.
pub(crate) const TAKE_BYTES: u64 = 32 << 10;

pub(crate) struct Shared {
    pub state: Mutex<LogState>,
    /// Wakes the thread.
    pub wake: Condvar,
    /// The position after the last record.
    tail: AtomicU64,
    /// Replies up to this position may be sent, but not up to a later one. `MAX`: there is no limit but the tail.
    limit: AtomicU64,
    durable: AtomicU64,
    is_behind: AtomicBool,
    has_failed: AtomicBool,
    listeners: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    pub room_listeners: Mutex<Vec<RoomListener>>,
}

/// See [`crate::Log::on_room`].
pub type RoomListener = Box<dyn Fn(Option<&str>) + Send + Sync>;

pub(crate) struct LogState {
    ring: Ring,
    /// Pieces of the first record that did not fit into the ring, and of all later records.
    overflow: Vec<u8>,
    /// The position from which records have gone to the overflow. All later records go there too, until all are
    /// durable.
    overflow_from: Option<u64>,
    pub tail: u64,
    pub durable: u64,
    /// Everything before this position was given to the writer.
    pub taken: u64,
    /// For each portion taken from the ring, in order: when the position is durable, so are the entries before the
    /// offset.
    marks: Vec<Start>,
    pub policy: Policy,
    /// A client waits until this position is safe.
    pub wanted: u64,
    /// A checkpoint waits until this position is durable: see [`crate::Log::demand`].
    pub demanded: u64,
    /// See [`crate::Log::limit_files`].
    pub files_max: u32,
    /// The thread sleeps until the tail reaches this position.
    pub wake_at: u64,
    /// Whether the thread is running, not sleeping.
    pub is_awake: bool,
    pub needed_from: u64,
    /// For tests.
    pub is_paused: bool,
    pub end: Option<End>,
    /// The thread has ended: nothing is written any more.
    pub is_over: bool,
    /// Whether a file is needed now and cannot be made.
    pub is_stuck: bool,
    pub failed: Option<String>,
    pub figures: Figures,
    behind_since: Option<Instant>,
}

/// How the thread is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After making everything durable.
    Closed,
    /// At once, without writing anything.
    Dropped,
}

impl Shared {
    pub fn new(ring: Ring, policy: Policy, position: u64, needed_from: u64) -> Shared {
        let state = LogState {
            ring,
            overflow: Vec::new(),
            overflow_from: None,
            tail: position,
            durable: position,
            taken: position,
            marks: Vec::new(),
            policy,
            wanted: 0,
            demanded: 0,
            files_max: u32::MAX,
            wake_at: 0,
            is_awake: true,
            needed_from,
            is_paused: false,
            end: None,
            is_over: false,
            is_stuck: false,
            failed: None,
            figures: Figures::default(),
            behind_since: None,
        };
        let shared = Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            tail: AtomicU64::new(position),
            limit: AtomicU64::new(0),
            durable: AtomicU64::new(position),
            is_behind: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            listeners: Mutex::new(Vec::new()),
            room_listeners: Mutex::new(Vec::new()),
        };
        shared.publish(&mut shared.state.lock());
        shared
    }

    pub fn append(&self, record: &Record) -> u64 {
        if let Some(piece) = record.only_piece() {
            // Compute the CRC before taking the lock, from the caller's bytes: the copies in the ring may not be in the
            // cache yet.
            let (header, bytes) = (piece.header(), piece.bytes());
            return self.add(
                |ring, position| {
                    let write = |out: &mut [u8]| {
                        piece.write_after(&header, out);
                        bytes
                    };
                    ring.append_piece(position, bytes, write).map(|bytes| bytes as u64)
                },
                |overflow| piece.push_to(overflow),
            );
        }
        let bytes = stored_bytes(record.resp.len());
        self.add(
            |ring, position| ring.append(position, record).then_some(bytes),
            |overflow| {
                // Reserve exactly for a large record, so that it takes no more memory than it needs. For many small
                // records that would copy the buffer for each of them.
                if bytes as usize > overflow.len() {
                    overflow.reserve_exact(bytes as usize);
                }
                record.pieces().for_each(|piece| piece.push_to(overflow));
            },
        )
    }

    /// Appends a record of one piece of at most `bytes_max` bytes. `resp` writes its RESP bytes.
    #[inline]
    pub fn append_piece(&self, draft: &Draft, bytes_max: usize, resp: impl Fn(&mut [u8]) -> usize) -> u64 {
        self.add(
            |ring, position| {
                let bytes = ring.append_piece(position, bytes_max, |out| draft.write(out, &resp));
                bytes.map(|bytes| bytes as u64)
            },
            |overflow| {
                let from = overflow.len();
                overflow.resize(from + bytes_max, 0);
                let bytes = draft.write(&mut overflow[from..], &resp);
                overflow.truncate(from + bytes);
            },
        )
    }

    /// Appends a record. `to_ring` returns the number of bytes that it has added, or `None` if the ring has no room.
    #[inline]
    fn add(&self, to_ring: impl FnOnce(&mut Ring, u64) -> Option<u64>, to_overflow: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let position = state.tail;
        let in_ring = if state.overflow_from.is_none() { to_ring(&mut state.ring, position) } else { None };
        let bytes = in_ring.unwrap_or_else(|| state.overflow(to_overflow));
        state.tail += bytes;
        state.figures.records += 1;
        state.figures.bytes += bytes;
        if in_ring.is_none() {
            self.publish(state);
        }
        let used = state.ring.used_bytes();
        if used > state.ring.bytes() / 4 * 3 && state.behind_since.is_none() {
            self.publish(state);
        }
        // A thread that sees the new tail also sees the limit that was set before it.
        self.tail.store(state.tail, Ordering::Release);
        let tail = state.tail;
        if (tail >= state.wake_at || used > state.ring.bytes() / 4) && !state.is_awake {
            state.is_awake = true;
            self.wake.notify_one();
        }
        tail
    }

    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub fn safe(&self) -> u64 {
        let tail = self.tail.load(Ordering::Acquire);
        self.limit.load(Ordering::Acquire).min(tail)
    }

    pub fn holds_replies(&self) -> bool {
        self.limit.load(Ordering::Acquire) != u64::MAX
    }

    pub fn want(&self, position: u64) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(position);
        if state.policy == Policy::Always && state.wanted > state.durable && !state.is_awake {
            state.is_awake = true;
            self.wake.notify_one();
        }
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.listeners.lock().push(listener);
    }

    pub fn notify_listeners(&self) {
        self.listeners.lock().iter().for_each(|listener| listener());
    }

    /// Changes the state, publishes it, and wakes the thread.
    pub fn change(&self, change: impl FnOnce(&mut LogState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.publish(&mut state);
        state.is_awake = true;
        self.wake.notify_one();
        drop(state);
        self.notify_listeners();
    }

    /// Publishes to the workers what follows from the state. True: something changed for which a worker or a client may
    /// wait.
    pub fn publish(&self, state: &mut LogState) -> bool {
        let limit = state.limit();
        // First: a failure lets everybody go on who waits for the limit, and who goes on must see that it was one.
        let has_failed = self.has_failed.swap(state.failed.is_some(), Ordering::AcqRel);
        let before = self.limit.swap(limit, Ordering::AcqRel);
        let durable = self.durable.swap(state.durable, Ordering::AcqRel);
        let was_behind = state.behind_since.is_some();
        let is_behind = state.is_behind(was_behind);
        if is_behind != was_behind {
            let since = std::mem::replace(&mut state.behind_since, is_behind.then(Instant::now));
            state.figures.behind_total += since.map_or(Duration::ZERO, |since| since.elapsed());
            self.is_behind.store(is_behind, Ordering::Release);
        }
        limit != before || durable != state.durable || is_behind != was_behind || has_failed != state.failed.is_some()
    }

    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        let behind = state.behind_since.map(|since| since.elapsed());
        let behind_total = state.figures.behind_total + behind.unwrap_or_default();
        Figures { behind, behind_total, ..state.figures.clone() }
    }
}

impl LogState {
    /// Adds a record that does not go into the ring. Returns its bytes.
    #[cold]
    fn overflow(&mut self, to_overflow: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.overflow_from.get_or_insert(self.tail);
        // Wake the thread: the overflow is taken as a whole.
        self.wake_at = 0;
        let from = self.overflow.len();
        to_overflow(&mut self.overflow);
        let bytes = self.overflow.len() - from;
        // A journal that cannot be written would let the overflow grow for ever. Dropping it loses nothing that counts:
        // the journal ends before the first lost record.
        if self.failed.is_some() || self.is_over {
            self.overflow = Vec::new();
        }
        bytes as u64
    }

    fn limit(&self) -> u64 {
        // After a failure the journal holds no reply back: writes are refused, and reads continue.
        match (self.policy, self.overflow_from) {
            _ if self.failed.is_some() || self.is_over => u64::MAX,
            (Policy::Always, _) => self.durable,
            (_, Some(from)) => self.durable.max(from),
            (_, None) => u64::MAX,
        }
    }

    fn is_behind(&self, was_behind: bool) -> bool {
        let limit = if was_behind { self.ring.bytes() / 2 } else { self.ring.bytes() / 4 * 3 };
        let is_full = self.ring.used_bytes() > limit;
        self.failed.is_none() && !self.is_over && (is_full || self.overflow_from.is_some() || self.is_stuck)
    }

    /// Whether so much is not durable that a sync is due. While the sync runs, twice as much can be appended before
    /// writers must wait.
    pub fn is_pressed(&self) -> bool {
        self.overflow_from.is_some() || self.ring.used_bytes() > self.ring.bytes() / 4
    }

    /// The thread is woken when there are this many bytes to write.
    pub fn write_bytes(&self) -> u64 {
        (self.ring.bytes() / WRITE_SHARE).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX)
    }

    pub fn untaken(&self) -> u64 {
        self.tail - self.taken
    }

    /// Calls `each` with the next pieces of the ring. False: there are none.
    pub fn take(&mut self, each: impl FnMut(&[u8])) -> bool {
        if self.ring.is_taken() {
            return false;
        }
        let position = self.ring.take(TAKE_BYTES, each);
        self.marks.push(Start { offset: self.ring.taken(), position });
        self.taken = position;
        true
    }

    /// Takes the pieces that did not fit into the ring. All pieces in the ring must have been taken before.
    pub fn take_overflow(&mut self) -> Vec<u8> {
        let overflow = std::mem::take(&mut self.overflow);
        self.taken += overflow.len() as u64;
        overflow
    }

    /// Everything before `durable` is durable, so its room in the ring becomes free.
    pub fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
        let count = self.marks.partition_point(|mark| mark.position <= durable);
        if let Some(mark) = self.marks.drain(..count).next_back() {
            self.ring.release(mark);
        }
        if self.overflow_from.is_some() && durable == self.tail {
            self.overflow_from = None;
            self.ring.restart(durable);
        }
    }
}

/// Visits the pieces of the ring from `end` on, the end of the frames, with their positions.
pub(crate) fn left_behind(ring: &Ring, start: Start, end: u64, mut each: impl FnMut(u64, &[u8]) -> ControlFlow<()>) {
    let _ = ring.pieces(
        start,
        |position, piece| {
            if position < end { ControlFlow::Continue(()) } else { each(position, piece) }
        },
    );
}
