//! Owns many sessions over one connection between two nodes: frames, windows, one-way messages and keep-alive. Never knows what the
//! bytes mean, and has no socket and no TLS: a link runs over any `AsyncRead + AsyncWrite`.
//!
//! Goals: a batch of commands costs one copy at each end, no allocation and a share of one write; a slow reader holds up its own
//! session only; memory is bounded whatever the peer sends. Non-goals: priorities, compression, opening a connection again.
//!
//! [`Link::start`] returns a [`Link`], the handle that sessions are opened or accepted with, and a [`Driver`], the future that moves
//! the bytes. Both ends send and receive data and messages; only the end that connected opens sessions ([`Role`]).
//!
//! ```text
//! Session::poll_write ──copy──▶ outgoing buffer ──Driver: one write──▶ stream
//! stream ──Driver: one read──▶ read buffer ──copy──▶ session's buffer ──▶ Session::poll_read
//! ```
//!
//! Reading order: `frame` (the bytes of the protocol), [`Options`], `slot` (one session's state), `state` (what happens at each call
//! and each frame), `session`, `incoming`, `outgoing`, `driver`.

#![forbid(unsafe_code)]

mod driver;
mod end;
pub mod frame;
mod incoming;
mod messages;
mod options;
mod outgoing;
mod session;
mod slot;
mod state;
mod wake;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

pub use driver::Driver;
pub use end::{End, Violation};
pub use options::{Options, Role};
pub use session::Session;
use state::Multiplexer;

/// What a link's handles, sessions and driver share. The lock is held for a copy of at most some 64 KiB, never while waiting.
type Shared = Arc<Mutex<Multiplexer>>;

/// A handle of a link. Clones are cheap and mean the same link. When no handle and no session is left, the link closes.
pub struct Link {
    shared: Shared,
}

impl Link {
    /// Nothing is sent before the driver is polled. The link has ended when the driver has, or was dropped.
    pub fn start<S>(stream: S, options: Options, role: Role) -> (Link, Driver<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shared = Arc::new(Mutex::new(Multiplexer::new(role, options)));
        let driver = Driver::new(shared.clone(), stream, options);
        (Link { shared }, driver)
    }

    /// Opens a session without waiting: bytes can be written at once. The peer's `accept` returns the target, at most
    /// [`frame::TARGET_BYTES_MAX`] of any bytes.
    ///
    /// Errors: `NotConnected` when the link has ended, `QuotaExceeded` with [`Options::sessions_max`] sessions, `InvalidInput` for a
    /// target that is too long, `Unsupported` at the end that accepts.
    pub fn open(&self, target: &[u8]) -> io::Result<Session> {
        let (number, driver) = {
            let mut state = self.shared.lock();
            (state.open(target)?, state.take_driver())
        };
        wake::wake(driver);
        Ok(Session::new(self.shared.clone(), number))
    }

    /// The next session that the peer opened, and its target. `None`: the link has ended, or this end is the one that opens.
    pub async fn accept(&self) -> Option<(Vec<u8>, Session)> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Option<(Vec<u8>, Session)>> {
        let accepted = self.shared.lock().poll_accept(context);
        accepted.map(|accepted| accepted.map(|(target, number)| (target, Session::new(self.shared.clone(), number))))
    }

    /// Sends a message in order with the other messages, at most [`frame::MESSAGE_BYTES_MAX`] long. `false`: it is not sent, because
    /// it is too long, the queue is full or the link has ended. `true` does not mean that it arrives.
    pub fn send_message(&self, message: &[u8]) -> bool {
        let (is_queued, driver) = {
            let mut state = self.shared.lock();
            let is_queued = state.send_message(message);
            (is_queued, if is_queued { state.take_driver() } else { None })
        };
        wake::wake(driver);
        is_queued
    }

    /// The peer's next message. `None`: the link has ended, and all messages that came were taken.
    pub async fn message(&self) -> Option<Vec<u8>> {
        std::future::poll_fn(|context| self.poll_message(context)).await
    }

    pub fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.shared.lock().poll_message(context)
    }

    /// How many of the peer's messages were dropped because nobody took them.
    pub fn messages_lost(&self) -> u64 {
        self.shared.lock().messages.lost
    }

    /// Ends the link. What was written before is still sent, for at most [`Options::silence_max`].
    pub fn close(&self) {
        let mut wakers = Vec::new();
        self.shared.lock().end(End::Closed, &mut wakers);
        wake::wake_all(&mut wakers);
    }

    /// Why the link has ended. `None` while it has not.
    pub fn end(&self) -> Option<End> {
        self.shared.lock().ended.clone()
    }

    /// The sessions that count against [`Options::sessions_max`]: a session that was dropped here counts until the peer has closed
    /// it too.
    pub fn sessions(&self) -> usize {
        self.shared.lock().live
    }

    /// The bytes that the link's buffers and sessions take. Walks over the sessions.
    pub fn mem_bytes(&self) -> usize {
        self.shared.lock().mem_bytes()
    }
}

impl Clone for Link {
    fn clone(&self) -> Link {
        self.shared.lock().handles += 1;
        Link { shared: self.shared.clone() }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.shared.lock().drop_handle(&mut wakers);
        wake::wake_all(&mut wakers);
    }
}
