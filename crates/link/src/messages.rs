//! Owns the two queues of one-way messages. Never knows sessions, and never waits.

use std::collections::VecDeque;

use crate::frame::{FRAME_BYTES_MAX, Kind, MESSAGE_BYTES_MAX};
use crate::options::Options;
use crate::outgoing;

/// What a message in a queue counts beside its bytes, so that empty messages are bounded too.
const OVERHEAD_BYTES: usize = 64;
/// Message bytes that the driver adds to one write. Messages and sessions share the connection, and neither waits for the other.
const WRITE_BYTES: usize = 64 << 10;

#[derive(Default)]
pub struct Messages {
    outgoing: VecDeque<Vec<u8>>,
    /// With overhead, as `incoming_bytes`.
    outgoing_bytes: usize,
    /// How much of the first outgoing message was sent.
    sent: usize,
    incoming: VecDeque<Vec<u8>>,
    incoming_bytes: usize,
    /// What has come of the next incoming message.
    partial: Vec<u8>,
    pub lost: u64,
}

impl Messages {
    pub fn send(&mut self, message: &[u8], options: &Options) -> bool {
        let bytes = message.len() + OVERHEAD_BYTES;
        if message.len() > MESSAGE_BYTES_MAX || self.outgoing_bytes + bytes > options.messages_out_bytes_max {
            return false;
        }
        self.outgoing_bytes += bytes;
        self.outgoing.push_back(message.to_vec());
        true
    }

    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Moves frames of messages to the end of a write.
    pub fn append_to(&mut self, to: &mut Vec<u8>) {
        let mut appended = 0;
        while appended < WRITE_BYTES
            && let Some(message) = self.outgoing.front()
        {
            let part = &message[self.sent..];
            let (kind, bytes) =
                if part.len() > FRAME_BYTES_MAX { (Kind::More, FRAME_BYTES_MAX) } else { (Kind::Message, part.len()) };
            outgoing::push(to, kind, 0, &part[..bytes]);
            appended += bytes + OVERHEAD_BYTES;
            self.sent += bytes;
            if kind == Kind::Message {
                self.outgoing_bytes -= message.len() + OVERHEAD_BYTES;
                self.outgoing.pop_front();
                self.sent = 0;
            }
        }
    }

    pub fn drop_outgoing(&mut self) {
        (self.outgoing, self.outgoing_bytes, self.sent) = (VecDeque::new(), 0, 0);
    }

    /// The header of a part has come. `false`: the message is too large.
    pub fn begin(&mut self, length: usize) -> bool {
        if self.partial.len() + length > MESSAGE_BYTES_MAX {
            return false;
        }
        if self.partial.is_empty() {
            self.partial.reserve_exact(length);
        }
        true
    }

    pub fn append(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// The message is complete.
    pub fn finish(&mut self, options: &Options) {
        let mut message = std::mem::take(&mut self.partial);
        message.shrink_to_fit();
        self.incoming_bytes += message.len() + OVERHEAD_BYTES;
        self.incoming.push_back(message);
        while self.incoming_bytes > options.messages_in_bytes_max && self.take().is_some() {
            self.lost += 1;
        }
    }

    pub fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.incoming.pop_front()?;
        self.incoming_bytes -= message.len() + OVERHEAD_BYTES;
        Some(message)
    }

    pub fn mem_bytes(&self) -> usize {
        self.outgoing_bytes + self.incoming_bytes + self.partial.capacity()
    }
}
