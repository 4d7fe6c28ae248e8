//! Owns the state of one session at this end. Never knows the link's other sessions, and sends nothing.

use std::collections::VecDeque;
use std::task::Waker;

use crate::frame::WINDOW_BYTES;

/// The smallest buffer that is allocated. Buffers are reused by other sessions, so it fits a usual batch.
const BUFFER_BYTES_MIN: usize = 1 << 10;

/// What the peer has said about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Open,
    /// It sends no more data.
    Ended,
    Closed,
    Refused,
}

impl Peer {
    pub fn is_gone(self) -> bool {
        matches!(self, Peer::Closed | Peer::Refused)
    }
}

/// A session's number stays used until both ends have closed it.
pub struct Slot {
    /// Received and not yet read. It has no allocation while it is empty.
    pub received: VecDeque<u8>,
    /// Read by the caller, and not yet given back to the peer as credit.
    pub consumed: u32,
    /// What `received`, `consumed` and `allowance` are together.
    pub window: u32,
    /// How many bytes the peer may still send.
    pub allowance: u32,
    /// How many bytes this end may still send.
    pub credit: u32,
    /// The round of turns that this session has a turn in. See `Outgoing`.
    pub turn: u64,
    /// It waits for a turn.
    pub is_queued: bool,
    /// A `Session` or the queue of accepted sessions has it.
    pub is_held: bool,
    /// END was sent.
    pub has_ended: bool,
    /// CLOSE or REFUSE was sent.
    pub has_closed: bool,
    /// The caller has read or sent something. Such a session cannot be refused.
    pub is_used: bool,
    pub peer: Peer,
    /// The peer has sent DATA.
    pub has_received: bool,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

// What an idle session takes, but for its `Session` and the allocator's rounding.
const _: () = assert!(size_of::<Slot>() <= 192);

impl Slot {
    pub fn new(window: u32) -> Slot {
        Slot {
            received: VecDeque::new(),
            consumed: 0,
            window,
            allowance: window,
            credit: window,
            turn: 0,
            is_queued: false,
            is_held: true,
            has_ended: false,
            has_closed: false,
            is_used: false,
            peer: Peer::Open,
            has_received: false,
            reader: None,
            writer: None,
        }
    }

    /// Appends bytes that the window has room for. The buffer grows to the window at most.
    pub fn append(&mut self, bytes: &[u8], spare: &mut Spare) {
        if self.received.capacity() == 0 {
            self.received = spare.buffers.pop().unwrap_or_default();
        }
        let (length, capacity) = (self.received.len(), self.received.capacity());
        let needed = length + bytes.len();
        assert!(needed <= WINDOW_BYTES as usize);
        if needed > capacity {
            let wanted = needed.max((2 * capacity).clamp(BUFFER_BYTES_MIN, WINDOW_BYTES as usize));
            self.received.reserve_exact(wanted - length);
        }
        self.received.extend(bytes);
    }

    /// Moves as many bytes as fit.
    pub fn read(&mut self, to: &mut tokio::io::ReadBuf<'_>, spare: &mut Spare) {
        let (front, back) = self.received.as_slices();
        let from_front = front.len().min(to.remaining());
        to.put_slice(&front[..from_front]);
        let from_back = back.len().min(to.remaining());
        to.put_slice(&back[..from_back]);
        let bytes = from_front + from_back;
        if bytes == self.received.len() {
            spare.give(std::mem::take(&mut self.received));
        } else {
            self.received.drain(..bytes);
        }
        // At most what was received, and so at most a window.
        self.consumed += bytes as u32;
    }

    /// Gives back what was read, with a window that grows while it is used and `room` allows it, and shrinks while there is no room.
    /// Returns the credit for the peer: at least a byte.
    pub fn give_credit(&mut self, first_window: u32, room: usize) -> u32 {
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let window = match room < first_window {
            true => self.window - ((self.window - first_window) / 2).min(self.consumed - 1),
            // Half of the room is left to others.
            false => self.window + (room / 2).min(self.window).min(WINDOW_BYTES - self.window),
        };
        let credit = self.consumed + window - self.window;
        (self.consumed, self.window) = (0, window);
        self.allowance += credit;
        credit
    }

    pub fn mem_bytes(&self) -> usize {
        size_of::<Slot>() + self.received.capacity()
    }
}

/// Buffers of sessions that have read everything, for the next session that receives something. So an idle session has no buffer,
/// and a busy one allocates none.
#[derive(Default)]
pub struct Spare {
    pub buffers: Vec<VecDeque<u8>>,
}

impl Spare {
    const COUNT_MAX: usize = 16;
    const BYTES_MAX: usize = 64 << 10;

    /// The contents do not matter.
    pub fn give(&mut self, mut buffer: VecDeque<u8>) {
        let capacity = buffer.capacity();
        if 0 < capacity && capacity <= Spare::BYTES_MAX && self.buffers.len() < Spare::COUNT_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    pub fn mem_bytes(&self) -> usize {
        self.buffers.iter().map(VecDeque::capacity).sum()
    }
}
