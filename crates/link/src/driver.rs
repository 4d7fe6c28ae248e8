//! Owns the stream: reads, writes, keep-alive and the end of a link. Never knows what the frames mean.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::end::End;
use crate::incoming::Incoming;
use crate::options::Options;
use crate::options::READ_BYTES;
use crate::outgoing::TURN_MAX;
use crate::{Shared, wake};

// What one poll does at most. Then the tasks of the sessions have their turn.
const PASSES_MAX: usize = 4;
/// In one pass.
const READS_MAX: usize = 4;
/// In one pass.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// The future that moves a link's bytes, inside a tokio runtime with time. It returns why the link has ended. Dropping it ends the link.
#[must_use = "a link does nothing without its driver"]
pub struct Driver<S> {
    shared: Shared,
    stream: S,
    options: Options,
    writing: Vec<u8>,
    written: usize,
    needs_flush: bool,
    incoming: Incoming,
    read_buffer: Box<[u8]>,
    times: Option<Times>,
    /// The stream takes no more bytes. What has come is still read.
    write_error: Option<End>,
    is_shut_down: bool,
    wakers: Vec<Waker>,
}

struct Times {
    /// Set late on purpose: it fires and is set again, instead of being set at each read and write.
    timer: Pin<Box<Sleep>>,
    sent: Instant,
    received: Instant,
    /// When the turns that nobody uses end.
    turns_end: Option<Instant>,
    /// When a close stops waiting for the peer.
    close_ends: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = End;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        let this = self.get_mut();
        let polled = this.run(context);
        if let Poll::Ready(end) = &polled {
            this.shared.lock().end(end.clone(), &mut this.wakers);
        }
        wake::wake_all(&mut this.wakers);
        polled
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        self.shared.lock().end(End::Dropped, &mut self.wakers);
        wake::wake_all(&mut self.wakers);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(crate) fn new(shared: Shared, stream: S, options: Options) -> Driver<S> {
        let ping_after = options.ping_after.max(Duration::from_millis(1));
        Driver {
            shared,
            stream,
            options: Options { ping_after, ..options },
            writing: Vec::new(),
            written: 0,
            needs_flush: false,
            incoming: Incoming::new(),
            read_buffer: vec![0; READ_BYTES].into_boxed_slice(),
            times: None,
            write_error: None,
            is_shut_down: false,
            wakers: Vec::new(),
        }
    }

    fn run(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let now = Instant::now();
        let options = self.options;
        self.times.get_or_insert_with(|| Times {
            timer: Box::pin(tokio::time::sleep(options.ping_after.min(options.silence_max))),
            sent: now,
            received: now,
            turns_end: None,
            close_ends: None,
        });
        for pass in 1..=PASSES_MAX {
            let ended = self.shared.lock().ended.clone();
            if let Some(end) = ended {
                return self.close(context, now).map(|()| end);
            }
            // Writing comes first: when the peer's greeting is wrong, the peer still gets ours, and can tell why the link ends.
            let is_written = self.write(context, now);
            let is_dry = match self.read(context, now) {
                Ok(is_dry) => is_dry,
                Err(end) => return Poll::Ready(end),
            };
            if is_dry && let Some(error) = self.write_error.take() {
                return Poll::Ready(error);
            }
            if let Err(end) = self.watch(context, now) {
                return Poll::Ready(end);
            }
            let mut state = self.shared.lock();
            let has_work = !is_dry || (is_written && state.has_outgoing()) || state.ended.is_some();
            if !has_work || pass == PASSES_MAX {
                wake::register(&mut state.driver, context);
                drop(state);
                if has_work {
                    context.waker().wake_by_ref();
                }
                break;
            }
        }
        Poll::Pending
    }

    /// Writes until everything is sent (true), or the stream takes nothing more now (false).
    fn write(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let mut bytes_left = WRITE_BYTES_MAX;
        while self.write_error.is_none() {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                if !self.shared.lock().take_outgoing(&mut self.writing) {
                    break;
                }
            }
            match Pin::new(&mut self.stream).poll_write(context, &self.writing[self.written..]) {
                Poll::Ready(Ok(0)) => self.write_error = Some(io::Error::from(io::ErrorKind::WriteZero).into()),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    self.needs_flush = true;
                    self.times().sent = now;
                    bytes_left = bytes_left.saturating_sub(bytes);
                }
                Poll::Ready(Err(error)) => self.write_error = Some(error.into()),
                Poll::Pending => break,
            }
            if bytes_left == 0 {
                context.waker().wake_by_ref();
                break;
            }
        }
        let left = self.writing.len() - self.written;
        self.shared.lock().out.in_flight = left;
        if left == 0 && self.needs_flush && self.write_error.is_none() {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(Ok(())) => self.needs_flush = false,
                Poll::Ready(Err(error)) => self.write_error = Some(error.into()),
                Poll::Pending => {}
            }
        }
        left == 0 && self.write_error.is_none()
    }

    /// Reads until nothing is there (true), or enough for now (false).
    fn read(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        for _ in 0..READS_MAX {
            let mut buffer = ReadBuf::new(&mut self.read_buffer);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(End::ClosedByPeer),
                Poll::Ready(Ok(())) => {}
            }
            let mut state = self.shared.lock();
            self.incoming.take(buffer.filled(), &mut state, &mut self.wakers)?;
            if state.is_overrun() {
                return Err(End::Backlog);
            }
            drop(state);
            self.times().received = now;
        }
        Ok(false)
    }

    /// Gives turns, sends a PING when it is time, and sets the timer.
    fn watch(&mut self, context: &mut Context<'_>, now: Instant) -> Result<(), End> {
        let times = self.times.as_mut().expect("run() has set them");
        let silence_ends = times.received + self.options.silence_max;
        if now >= silence_ends {
            return Err(End::Silence(self.options.silence_max));
        }
        let mut state = self.shared.lock();
        if now >= times.sent + self.options.ping_after {
            times.sent = now;
            // Otherwise the peer does not read, or there is no need.
            if state.out.in_flight == 0 && !state.has_outgoing() {
                self.writing = Vec::new();
                state.ping();
            }
        }
        if state.out.unused_turns == 0 {
            times.turns_end = None;
        } else if times.turns_end.is_some_and(|end| now >= end) {
            times.turns_end = None;
            state.end_round();
        }
        state.give_turns(&mut self.wakers);
        if state.out.watches_turns() {
            times.turns_end.get_or_insert(now + TURN_MAX);
        }
        drop(state);
        let mut next = silence_ends.min(times.sent + self.options.ping_after);
        if let Some(end) = times.turns_end {
            next = next.min(end);
        }
        times.wait_until(next, context);
        Ok(())
    }

    /// Sends what is left, then waits until the peer has read it and closed its end: a socket that is closed with unread bytes can
    /// drop bytes on their way to the peer.
    fn close(&mut self, context: &mut Context<'_>, now: Instant) -> Poll<()> {
        let limit = now + self.options.silence_max;
        let ends = *self.times().close_ends.get_or_insert(limit);
        if now >= ends {
            return Poll::Ready(());
        }
        self.times().wait_until(ends, context);
        for reads in 1.. {
            let mut buffer = ReadBuf::new(&mut self.read_buffer);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
            if reads == READS_MAX {
                context.waker().wake_by_ref();
                break;
            }
        }
        let is_written = self.write(context, now);
        if self.write_error.is_some() {
            return Poll::Ready(());
        }
        if is_written && !self.needs_flush && !self.is_shut_down {
            match ready!(Pin::new(&mut self.stream).poll_shutdown(context)) {
                Ok(()) => self.is_shut_down = true,
                Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    fn times(&mut self) -> &mut Times {
        self.times.as_mut().expect("run() has set them")
    }
}

impl Times {
    /// The driver is polled at this time at the latest.
    fn wait_until(&mut self, next: Instant, context: &mut Context<'_>) {
        if self.timer.is_elapsed() || self.timer.deadline() > next {
            self.timer.as_mut().reset(next);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}
