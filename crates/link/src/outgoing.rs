//! Owns the bytes that wait to be sent, and whose turn it is to add some. Never knows why a frame is sent.
//!
//! Data waits when the buffer is full. The sessions that wait stand in a queue. When the driver has sent something, it gives the first
//! of them a turn each: room for one share, reserved until it is used. A session that has had its turn goes to the end of the queue, so
//! that none starves. A turn that nobody uses ends after [`TURN_MAX`], so that a session that no longer wants to write holds up nobody.
//!
//! Frames without data never wait. Their bytes are bounded by the number of sessions: a session has at most two generations of OPEN,
//! END and CLOSE and a few CREDITs in the buffer, since the peer must read before there can be more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::{FRAME_BYTES_MAX, HEADER_BYTES, Header, Kind, greeting};

/// How long a turn is reserved.
pub const TURN_MAX: Duration = Duration::from_millis(10);
/// A session's frames without data, see above.
const CONTROL_BYTES_MAX: usize = 512;

pub struct Outgoing {
    pub bytes: Vec<u8>,
    /// The last frame, if it is DATA: its session, and where it begins. More data of the session is added to it.
    last: Option<(u32, usize)>,
    /// What the driver has taken and not yet sent.
    pub in_flight: usize,
    /// Of the driver's buffer.
    pub in_flight_capacity: usize,
    /// Sessions that wait for a turn.
    pub waiting: VecDeque<u32>,
    /// Turns of this round that were given and not used.
    pub unused_turns: usize,
    /// Counts from 1. A turn of an earlier round is void.
    pub round: u64,
    bytes_max: usize,
    /// What one turn, or one write, may add.
    pub share: usize,
}

impl Outgoing {
    pub fn new(bytes_max: usize) -> Outgoing {
        Outgoing {
            bytes: greeting().to_vec(),
            last: None,
            in_flight: 0,
            in_flight_capacity: 0,
            waiting: VecDeque::new(),
            unused_turns: 0,
            round: 1,
            bytes_max: bytes_max.max(1),
            share: (bytes_max / 4).clamp(1, FRAME_BYTES_MAX),
        }
    }

    /// Whether one more share may be added, or reserved for a turn.
    pub fn has_room(&self) -> bool {
        self.bytes.len() + self.in_flight + self.unused_turns * self.share < self.bytes_max
    }

    /// Sessions wait for turns that others have not used yet.
    pub fn watches_turns(&self) -> bool {
        self.unused_turns > 0 && !self.waiting.is_empty()
    }

    /// More frames without data than a peer that keeps to the protocol can bring about.
    pub fn is_overrun(&self, sessions: usize) -> bool {
        self.bytes.len() > self.bytes_max + self.share + HEADER_BYTES + sessions * CONTROL_BYTES_MAX
    }

    pub fn push(&mut self, kind: Kind, session: u32, payload: &[u8]) {
        self.last = None;
        push(&mut self.bytes, kind, session, payload);
    }

    pub fn push_data(&mut self, session: u32, data: &[u8]) {
        if let Some((last, at)) = self.last {
            let length = self.bytes.len() - at - HEADER_BYTES + data.len();
            if last == session && length <= FRAME_BYTES_MAX {
                let header = Header { kind: Kind::Data, length, session };
                self.bytes[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
                self.bytes.extend_from_slice(data);
                return;
            }
        }
        let at = self.bytes.len();
        self.push(Kind::Data, session, data);
        self.last = Some((session, at));
    }

    /// Exchanges the bytes for an empty buffer.
    pub fn take(&mut self, empty: &mut Vec<u8>) {
        debug_assert!(empty.is_empty());
        self.last = None;
        std::mem::swap(&mut self.bytes, empty);
    }
}

pub fn push(to: &mut Vec<u8>, kind: Kind, session: u32, payload: &[u8]) {
    to.reserve(HEADER_BYTES + payload.len());
    to.extend_from_slice(&Header { kind, length: payload.len(), session }.encode());
    to.extend_from_slice(payload);
}
