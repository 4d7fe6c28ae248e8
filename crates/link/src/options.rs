//! Owns what a caller decides about a link: its limits, its times and which end it is. Never knows what the peer decided.

use crate::frame::WINDOW_BYTES;
use std::time::Duration;

/// What one read takes at most.
pub const READ_BYTES: usize = 64 << 10;

/// Which end opens sessions. Everything else is the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connected.
    Opener,
    /// The end that was connected to.
    Acceptor,
}

/// The two ends may have different options, but for `first_window_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A PING is sent when nothing else was for so long. It must be well below the peer's `silence_max`.
    pub ping_after: Duration,
    /// The link ends when nothing was received for so long.
    pub silence_max: Duration,
    /// Sessions at a time, at most [`crate::frame::SESSIONS_MAX`]. Above, an opener's `open` fails and an acceptor refuses.
    pub sessions_max: usize,
    /// From so many bytes on in the outgoing buffer, writes to sessions wait. The last of them can exceed it by one frame.
    pub outgoing_bytes_max: usize,
    /// With so many bytes each direction of a session begins, at most [`WINDOW_BYTES`]. Of all options, this one must be the same at
    /// both ends.
    pub first_window_bytes: u32,
    /// What the windows of this end's sessions may have together beyond their first size. So many sessions whose data nobody reads take
    /// little memory, and a few that are read have large windows.
    pub grown_bytes_max: usize,
    /// Messages that wait to be sent. More are refused.
    pub messages_out_bytes_max: usize,
    /// Received messages that nobody has taken. More push out the oldest.
    pub messages_in_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ping_after: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            sessions_max: 16 << 10,
            outgoing_bytes_max: 256 << 10,
            first_window_bytes: WINDOW_BYTES,
            grown_bytes_max: 0,
            messages_out_bytes_max: 4 << 20,
            messages_in_bytes_max: 4 << 20,
        }
    }
}
