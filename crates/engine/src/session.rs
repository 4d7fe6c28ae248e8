//! Owns a connection: what it receives, sends, waits for and is charged for. Never knows what a command is; `command_loop` runs commands.

use crate::ahead::Ahead;
use crate::batch::{INPUT_BYTES, INPUT_KEPT_BYTES};
use crate::clients::ClientInfo;
use crate::fair_queue::Turn;
use crate::forwarding::Forwarding;
use crate::halt::End;
use crate::memory::{FREE_BYTES, Need, Request, TooMuch};
use crate::nested_poll;
use crate::stream::Stream;
use crate::task_slot::OwnTaskSlot;
use crate::work::Work;
use crate::worker::Worker;
use commands::host::Space;
use commands::session::{Reply, Session};
use resp::Out;
use resp::client::skip;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

pub struct Connection {
    pub worker: Rc<Worker>,
    pub stream: Stream,
    pub session: Session,
    pub client_info: Arc<ClientInfo>,
    /// None while the connection is idle: ten thousand idle connections hold no buffers.
    pub work: Option<Box<Work>>,
    /// At a proxy: what it has to do with the owners of shards.
    pub forwarding: Option<Box<Forwarding>>,
    /// The memory that the connection waits for.
    pub request: Request,
    /// The connection's place among those that have much to do.
    turn: Turn,
    /// When its last turn came, in clock ticks.
    turn_since: u64,
    /// The memory that was granted for the command that is being received.
    query_granted: usize,
    /// The client has sent all that it will send, and still gets replies.
    pub has_ended: bool,
    /// Open while the connection waits for its client and for nothing else.
    pub task_slot: OwnTaskSlot,
}

/// Sends of one turn. The rest is sent after other connections had their turn.
const SENDS_MAX: usize = 4;

impl Connection {
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        session: Session,
        client_info: Arc<ClientInfo>,
        task_slot: OwnTaskSlot,
    ) -> Connection {
        Connection {
            worker,
            stream,
            session,
            client_info,
            work: None,
            forwarding: None,
            request: Request::default(),
            turn: Turn::default(),
            turn_since: 0,
            query_granted: 0,
            has_ended: false,
            task_slot,
        }
    }

    /// Waits for bytes. Meanwhile sends the output that the client has not taken.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.work.is_none() && self.client_info.outbox.wants_task() {
            self.work = Some(self.worker.take_work());
        }
        if let Some(work) = &self.work {
            if work.has_output() || self.client_info.outbox.is_held() || !self.stream.is_flushed() {
                // Read input even while the socket is full: a client may write a whole pipeline before it reads.
                let _ = self.poll_send(cx)?;
            }
            self.tidy();
        }
        if self.work.is_none() {
            ready!(self.stream.poll_read_ready(cx)).map_err(io_end)?;
        }
        if self.has_ended && self.work.as_ref().is_none_or(|work| work.batch.ahead.is_empty()) {
            return Poll::Ready(Err(End::Eof));
        }
        let work = self.work.get_or_insert_with(|| self.worker.take_work());
        work.current.resume.client = self.session.id;
        if self.request.is_open() && work.batch.grows_to().is_none() {
            self.withdraw();
        }
        let Some(work) = &mut self.work else { return Poll::Pending };
        if let Some(bytes) = work.batch.grows_to() {
            match ready!(self.poll_query_room(bytes, cx))? {
                Ok(bytes) => {
                    if bytes > INPUT_KEPT_BYTES {
                        // Making a larger buffer takes long, so it is done in the connection's turn.
                        ready!(self.poll_turn(cx));
                    }
                    let Some(work) = &mut self.work else { return Poll::Pending };
                    work.batch.grow(bytes);
                }
                Err(too_much) => {
                    self.refuse_query(too_much)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let Some(work) = &mut self.work else { return Poll::Pending };
        let batch = &mut work.batch;
        batch.make_room();
        batch.was_full = false;
        if batch.take_ahead() {
            // These commands count as if they arrived now: after the client was killed they do not run.
            if self.client_info.killed.load(Relaxed) {
                return Poll::Ready(Err(End::Killed));
            }
        } else {
            let received = match self.stream.poll_read(cx, batch.room()) {
                Poll::Ready(received) => received.map_err(io_end)?,
                Poll::Pending => {
                    self.tidy();
                    return Poll::Pending;
                }
            };
            let Some(Work { batch, .. }) = self.work.as_deref_mut() else { return Poll::Pending };
            batch.received(received);
            self.received(received)?;
        }
        self.client_info.outbox.hold();
        Poll::Ready(Ok(()))
    }

    /// Waits for the memory of a larger input buffer, and returns its size. Asks for the whole command at once: connections that each
    /// hold a part of a command would wait for each other.
    #[cold]
    fn poll_query_room(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<Result<usize, TooMuch>, End>> {
        let (announced, ahead) =
            self.work.as_ref().map_or((0, 0), |work| (work.batch.announced(), work.batch.ahead.mem_bytes()));
        let (memory, repeats) = (&self.worker.hub.dataset.memory, self.session.repeats);
        if !repeats && let Err(too_much) = memory.check_query(announced) {
            return Poll::Ready(Ok(Err(too_much)));
        }
        // If memory is limited, the size that the client claims is charged to it, so its buffer may be as large as that.
        let bytes = if memory.bytes_max().is_some() { bytes.max(announced) } else { bytes };
        if bytes <= self.query_granted {
            return Poll::Ready(Ok(Ok(bytes)));
        }
        if repeats {
            memory.take(&self.client_info, (bytes - self.query_granted).saturating_sub(ahead));
            self.query_granted = bytes;
            return Poll::Ready(Ok(Ok(bytes)));
        }
        // Most of a long command becomes an object while the command is still held. What has arrived already is charged.
        let room = if announced > FREE_BYTES { announced } else { 0 };
        let need = Need {
            bytes: (bytes - self.query_granted).saturating_sub(ahead),
            room: room.saturating_sub(self.client_info.room_bytes.load(Relaxed)),
        };
        let polled = memory.poll_ask(&self.client_info, need, &mut self.request, cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.query_granted = bytes;
        }
        // Commands that arrive after a client was killed do not run.
        if polled.is_ready() && self.client_info.killed.load(Relaxed) {
            return Poll::Ready(Err(End::Killed));
        }
        polled.map(|granted| Ok(granted.map(|()| bytes)))
    }

    /// The client's command needs more memory than there is. The reply is an error, and the rest of the command is dropped as it arrives.
    #[cold]
    pub fn refuse_query(&mut self, too_much: TooMuch) -> Result<(), End> {
        let Connection { worker, session, client_info, work, .. } = self;
        let Some(work) = work else { return Ok(()) };
        // A command of a primary is never dropped.
        if session.repeats || !work.batch.skip() {
            return Err(End::Memory(too_much));
        }
        work.batch.skip_more(&worker.config_snapshot().limits);
        self.query_granted = 0;
        if let Some(multi) = &mut session.multi {
            multi.fail();
            client_info.publish(session);
        }
        let (reply_from, text) = (work.output.len(), too_much.text());
        Out::new(&mut work.output, session.proto).error(&text);
        worker.stats().error(&text);
        if session.reply != Reply::On {
            withhold(session, &mut work.output, reply_from);
        }
        Ok(())
    }

    /// Asks for memory no more: see [`crate::memory::Memory::withdraw`].
    pub fn withdraw(&mut self) {
        self.worker.hub.dataset.memory.withdraw(&mut self.request);
    }

    /// The commands received so far have run: what was granted for them is free, unless one is incomplete.
    #[inline]
    pub fn query_done(&mut self) {
        if self.query_granted > 0 && self.work.as_ref().is_none_or(|work| work.batch.announced() == 0) {
            self.query_granted = 0;
        }
    }

    /// Accounts for `received` new bytes.
    fn received(&mut self, received: usize) -> Result<(), End> {
        // Commands that arrive after a client was killed do not run.
        if self.client_info.killed.load(Relaxed) {
            return Err(End::Killed);
        }
        if received == 0 {
            return Err(End::Eof);
        }
        let Some(Work { batch, .. }) = self.work.as_deref_mut() else { return Ok(()) };
        self.worker.stats().net_in_bytes.add(received as u64);
        let waiting = batch.received_bytes();
        // The limit is at least a megabyte. What a primary has accepted, or a journal has, is not refused here.
        if waiting > INPUT_BYTES && waiting > self.worker.config_snapshot().query_bytes_max && !self.session.repeats {
            self.worker.stats().query_limit_closed.add(1);
            return Err(End::QueryLimit);
        }
        Ok(())
    }

    /// Another part will answer the running command. The batch continues with the next command, and releases the
    /// tickets that it holds for the current one.
    pub fn hand_over(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.current.end(self.worker.stats());
        work.current.begun = None;
        work.batch.next += 1;
        let mut lane = self.worker.lane();
        work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
    }

    /// Receives while a command waits: appends new bytes to the input, and sends the output that the client has not
    /// taken. An error means that the connection is over.
    pub fn poll_listen(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if self.work.is_none() && self.client_info.outbox.wants_task() {
            self.work = Some(self.worker.take_work());
        }
        loop {
            if let Poll::Ready(Err(end)) = self.poll_send(cx) {
                return Err(end);
            }
            self.tidy();
            if self.work.is_none() && self.stream.poll_read_ready(cx).map_err(io_end)?.is_pending() {
                return Ok(());
            }
            let work = self.work.get_or_insert_with(|| self.worker.take_work());
            if work.batch.lacks_room_ahead() {
                // Without memory the connection is not read from: the client waits until it is its turn.
                if self
                    .worker
                    .hub
                    .dataset
                    .memory
                    .poll_ahead(&self.client_info, Ahead::PIECE_BYTES, &mut self.request, cx)
                    .is_pending()
                {
                    return Ok(());
                }
                work.batch.ahead.grow();
            }
            let received = match self.stream.poll_read(cx, work.batch.room_ahead()) {
                Poll::Ready(received) => received.map_err(io_end)?,
                Poll::Pending => {
                    work.batch.ahead.trim();
                    self.tidy();
                    return Ok(());
                }
            };
            work.batch.received_ahead(received);
            self.received(received)?;
        }
    }

    /// Waits for the connection's turn among those that have much to do. A turn lasts for a bounded time.
    /// While a thread is blocked, its connections take no turns.
    pub fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if nested_poll::is_on() {
            return Poll::Ready(());
        }
        let now = self.worker.ticks();
        if now.saturating_sub(self.turn_since) > self.worker.turn_ticks {
            ready!(self.worker.fair_queue.poll(&mut self.turn, cx));
            self.turn_since = now;
        }
        Poll::Ready(())
    }

    /// Whether its command runs in slices.
    pub fn is_in_slices(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.current.resume.is_in_slices())
    }

    /// The connection's turn is over, however short it was. A command in slices runs one slice a turn: others wait for it at most.
    pub fn end_turn(&mut self) {
        self.turn_since = 0;
    }

    /// Waits until all output is sent. Meanwhile receives: a client may write a whole pipeline before it reads. Each
    /// attempt is a turn.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        ready!(self.poll_turn(cx));
        if self.client_info.killed.load(Relaxed) {
            return Poll::Ready(Err(End::Killed));
        }
        if self.has_ended {
            return self.poll_send(cx);
        }
        match self.poll_listen(cx) {
            Err(End::Eof) => self.has_ended = true,
            listened => listened?,
        }
        match &self.work {
            Some(work) if work.has_output() => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Waits for the memory that the running command claims. Meanwhile sends the earlier replies.
    pub fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<(), TooMuch>, End>> {
        if let Poll::Ready(Err(end)) = self.poll_send(cx) {
            return Poll::Ready(Err(end));
        }
        let (memory, claim) = (&self.worker.hub.dataset.memory, self.session.claim);
        if self.session.repeats {
            memory.take(&self.client_info, claim.wanted - claim.granted);
            return Poll::Ready(Ok(Ok(())));
        }
        if let Err(too_much) = memory.check(Need { bytes: claim.wanted, room: claim.room }) {
            return Poll::Ready(Ok(Err(too_much)));
        }
        let need = Need { bytes: claim.wanted - claim.granted, room: claim.room - claim.room_granted };
        memory.poll_ask(&self.client_info, need, &mut self.request, cx).map(Ok)
    }

    /// Sends until all output is sent (Ready), or the socket is full (Pending; the task is woken when the socket has
    /// room).
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut sends = 0;
        loop {
            let Some(work) = &mut self.work else { return Poll::Ready(Ok(())) };
            while work.has_output() {
                if sends == SENDS_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                sends += 1;
                let journaling = &self.worker.hub.dataset.journaling;
                if journaling.may_hold_replies() {
                    ready!(self.worker.commit_waiter.poll_safe(work.seen, cx));
                    if journaling.has_lost(work.seen, work.may_have_written) {
                        return Poll::Ready(Err(End::Lost));
                    }
                }
                let sent = ready!(self.stream.poll_write(cx, work.next_to_send())).map_err(io_end)?;
                work.was_sent(sent);
                // A client that reads, however slowly, is not idle.
                self.client_info.active_ms.store(self.worker.now_ms(), Relaxed);
                self.worker.stats().net_out_bytes.add(sent as u64);
            }
            ready!(self.stream.poll_flush(cx)).map_err(io_end)?;
            if !self.sent_all() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The one send of a batch. What the socket does not take is sent while the connection waits for more input.
    pub fn send(&mut self) -> Result<(), End> {
        for _ in 0..SENDS_MAX {
            let Some(work) = &mut self.work else { return Ok(()) };
            if !work.has_output() && !self.stream.is_flushed() {
                break;
            }
            if !work.has_output() && !self.sent_all() {
                return Ok(());
            }
            let Some(work) = &mut self.work else { return Ok(()) };
            let journaling = &self.worker.hub.dataset.journaling;
            if journaling.may_hold_replies() {
                if journaling.has_lost(work.seen, work.may_have_written) {
                    return Err(End::Lost);
                }
                if !journaling.is_safe(work.seen) {
                    break;
                }
                // A journal that has just failed lets everything leave.
                if journaling.has_lost(work.seen, work.may_have_written) {
                    return Err(End::Lost);
                }
            }
            match self.stream.try_write(work.next_to_send()) {
                Ok(sent) => {
                    work.was_sent(sent);
                    self.worker.stats().net_out_bytes.add(sent as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(io_end(error)),
            }
        }
        self.held_back()
    }

    /// Called when all output is sent. Returns true if the outbox had messages, which are now the output.
    fn sent_all(&mut self) -> bool {
        let Some(work) = &mut self.work else { return false };
        work.clear_output();
        if self.client_info.output_bytes.load(Relaxed) != 0 {
            self.client_info.output_bytes.store(0, Relaxed);
            self.client_info.soft_since_ms.store(0, Relaxed);
        }
        let is_filled = self.client_info.outbox.refill(&mut work.output);
        if is_filled {
            work.seen = self.worker.hub.dataset.journaling.seen();
        }
        is_filled
    }

    /// Waits until the journal lets the output leave.
    pub async fn clear(&self) {
        if let Some(work) = self.work.as_ref().filter(|work| work.has_output())
            && !self.worker.hub.dataset.journaling.is_safe(work.seen)
        {
            poll_fn(|cx| self.worker.commit_waiter.poll_safe(work.seen, cx)).await;
        }
    }

    /// The client does not read its replies as fast as it sends commands: limits the unsent output.
    #[cold]
    fn held_back(&mut self) -> Result<(), End> {
        let Some(work) = &mut self.work else { return Ok(()) };
        work.drop_sent();
        let unsent = work.unsent().len();
        self.client_info.output_bytes.store(unsent, Relaxed);
        if self.session.repeats {
            // The limits are for clients. The node reads these replies itself, and must not lose the connection through them.
            self.update_charge();
            return Ok(());
        }
        let limit = &self.worker.config_snapshot().config.output_limit_normal;
        if limit.soft_bytes == 0 || (unsent as u64) < limit.soft_bytes {
            self.client_info.soft_since_ms.store(0, Relaxed);
        } else if self.client_info.soft_since_ms.load(Relaxed) == 0 {
            // The node ends connections that stay above the soft limit for too long.
            self.client_info.soft_since_ms.store(self.worker.now_ms(), Relaxed);
        }
        if limit.hard_bytes != 0 && unsent as u64 > limit.hard_bytes {
            self.worker.stats().output_limit_closed.add(1);
            return Err(End::OutputLimit);
        }
        self.update_charge();
        Ok(())
    }

    /// Charges the connection for what it holds.
    pub fn update_charge(&self) {
        if self.request.is_open() {
            return;
        }
        let (memory, client_info) = (&self.worker.hub.dataset.memory, &*self.client_info);
        let forwarding = self.forwarding.as_ref().map_or(0, |forwarding| forwarding.mem_bytes());
        match &self.work {
            Some(work) => work.update_charge(memory, client_info, &self.session, self.query_granted, forwarding),
            None => {
                let bytes = self.session.kept_bytes() + forwarding;
                if client_info.room_bytes.load(Relaxed) > 0 {
                    memory.keep_room(client_info, 0);
                }
                if bytes != client_info.held_bytes.load(Relaxed) {
                    memory.hold(client_info, bytes);
                }
            }
        }
    }

    /// Gives the buffers back to the pool if they hold nothing of this connection.
    fn tidy(&mut self) {
        let is_idle = self.work.as_ref().is_some_and(|work| work.is_idle());
        if is_idle && self.stream.is_flushed() && self.forwarding.as_ref().is_none_or(|forwarding| !forwarding.waits())
        {
            let work = self.work.take().expect("it is there");
            self.worker.give_work(work);
            self.show_buffers();
            self.update_charge();
        } else if self.work.is_some() {
            self.show_buffers();
            self.update_charge();
        }
    }

    /// Publishes the sizes of the buffers for CLIENT LIST.
    fn show_buffers(&self) {
        let (held, free) = match self.work.as_deref() {
            Some(Work { batch, .. }) => (batch.received_bytes(), batch.free_bytes()),
            None => (0, 0),
        };
        self.client_info.query_bytes.store(held, Relaxed);
        self.client_info.query_free_bytes.store(free, Relaxed);
    }
}

/// Drops the reply for CLIENT REPLY OFF and SKIP. For who wants errors only, an error is left of it, if it is one or has one in it.
#[cold]
pub fn withhold(session: &mut Session, output: &mut Vec<u8>, reply_from: usize) {
    if session.reply == Reply::Errors
        && let Some(error) = first_error(&output[reply_from..])
    {
        output.truncate(reply_from + error.end);
        output.drain(reply_from..reply_from + error.start);
        return;
    }
    output.truncate(reply_from);
    match session.reply {
        Reply::SkipNext => session.reply = Reply::Skip,
        Reply::Skip => session.reply = Reply::On,
        Reply::On | Reply::Off | Reply::Errors => {}
    }
}

/// Where the reply has an error: it is one itself, or it is EXEC's, and a command of the transaction has failed.
fn first_error(reply: &[u8]) -> Option<Range<usize>> {
    match reply.first() {
        Some(b'-') => return Some(0..reply.len()),
        Some(b'*') => {}
        _ => return None,
    }
    let mut at = reply.iter().position(|&byte| byte == b'\n')? + 1;
    while let Ok(Some(part)) = skip(&reply[at..]) {
        if reply[at] == b'-' {
            return Some(at..at + part.consumed);
        }
        at += part.consumed;
    }
    None
}

fn io_end(error: io::Error) -> End {
    End::Io(error.to_string())
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(work) = &mut self.work {
            let mut lane = self.worker.lane();
            work.current.awaited.drain(..).for_each(|ticket| lane.release(ticket));
            work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
        }
        self.client_info.outbox.close();
        self.worker.hub.dataset.memory.leave(&self.client_info, &mut self.request);
        let hub = &self.worker.hub;
        for space in Space::ALL {
            for name in self.session.listened(space) {
                hub.pubsub.unsubscribe(space, &name, self.client_info.id);
            }
        }
        if self.session.tracking.is_some() {
            hub.tracking.stop(&hub.dataset.store, &self.client_info);
        }
        if self.session.monitors {
            hub.monitors.remove(self.client_info.id);
        }
        // Before the socket closes: every descriptor in the register is open.
        self.worker.hub.clients.remove(&self.client_info);
        self.worker.connection_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What had failed within a transaction of a journal was left out without a word.
    #[test]
    fn who_wants_errors_only_gets_those_of_a_transaction_too() {
        let mut session = Session::new(1, true, true);
        session.reply = Reply::Errors;
        for (reply, left) in [
            ("+OK\r\n", ""),
            ("-ERR a\r\n", "-ERR a\r\n"),
            ("*0\r\n", ""),
            ("*2\r\n:1\r\n+OK\r\n", ""),
            ("*3\r\n$1\r\n-\r\n-ERR b\r\n-ERR c\r\n", "-ERR b\r\n"),
            ("$4\r\n-ERR\r\n", ""),
        ] {
            let mut output = format!("+before\r\n{reply}").into_bytes();
            withhold(&mut session, &mut output, 9);
            assert_eq!(String::from_utf8(output).unwrap(), format!("+before\r\n{left}"));
        }
    }
}
