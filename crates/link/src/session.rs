//! Owns the caller's end of a session. Never knows frames or the stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Shared, wake};

/// Bytes both ways, with a window of [`crate::frame::WINDOW_BYTES`] each. Dropping it closes the session at both ends.
///
/// | what happened | reads, after the bytes that came | writes |
/// | --- | --- | --- |
/// | the peer has shut down its direction | end of file | go on |
/// | the peer has dropped its session | end of file | `BrokenPipe` |
/// | the peer has refused the session | `ConnectionRefused` | `ConnectionRefused` |
/// | the link has ended | `ConnectionReset` | `ConnectionReset` |
///
/// A write takes at most one frame. It waits while the window is used up or the link's outgoing buffer is full. A flush does not wait:
/// the driver sends what was written as soon as it runs.
pub struct Session {
    shared: Shared,
    number: u32,
    is_refusal: bool,
}

impl Session {
    pub(crate) fn new(shared: Shared, number: u32) -> Session {
        Session { shared, number, is_refusal: false }
    }

    /// Tells the peer that nothing of the session was carried out. Only the end that accepted can say so, and only before it has read
    /// or written a byte: otherwise the session is closed.
    pub fn refuse(mut self) {
        self.is_refusal = true;
    }

    /// The bytes that its state and its buffer take.
    pub fn mem_bytes(&self) -> usize {
        size_of::<Session>() + self.shared.lock().session_mem_bytes(self.number)
    }
}

impl AsyncRead for Session {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (read, driver) = {
            let mut state = self.shared.lock();
            let read = state.poll_read(self.number, context, to);
            (read, driver_if_needed(&mut state))
        };
        wake::wake(driver);
        read
    }
}

impl AsyncWrite for Session {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let (written, driver) = {
            let mut state = self.shared.lock();
            let written = state.poll_write(self.number, context, data);
            (written, driver_if_needed(&mut state))
        };
        wake::wake(driver);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The peer's reads end. Reading goes on.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (done, driver) = {
            let mut state = self.shared.lock();
            let done = state.shut_down(self.number);
            (done, driver_if_needed(&mut state))
        };
        wake::wake(driver);
        Poll::Ready(done)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.shared.lock().drop_session(self.number, self.is_refusal, &mut wakers);
        wake::wake_all(&mut wakers);
    }
}

/// The driver's waker, if there is something to send, or turns to watch.
fn driver_if_needed(state: &mut crate::state::Multiplexer) -> Option<Waker> {
    if state.needs_driver() { state.take_driver() } else { None }
}
