//! Owns how a proxy's connection waits for the replies of owners, and puts them in the order of the commands. Never knows how a command
//! was sent.

use super::transmit::Transmitter;
use crate::account::{Spent, account, account_transaction};
use crate::batch::Batch;
use crate::clients::ClientInfo;
use crate::error_replies::REJECTION;
use crate::forwarding::{
    Awaited, Forwarding, Kind, Part, PartReply, PartState, Sent, Taken, merge, texts, with_cursor,
};
use crate::halt::End;
use crate::memory::{FREE_BYTES, PAUSE_BYTES_MAX};
use crate::random;
use crate::routes::{Merge, Routes};
use crate::session::Connection;
use crate::worker::Worker;
use resp::{Out, Proto};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use store::{cursor_of_stripe, stripe_of_cursor};

/// What the proxy cannot know. Clients must not take it for a reason to repeat the command by themselves.
const UNCERTAIN: &str =
    "UNCERTAIN the connection to the key's shard was lost before the reply: the command has run, or it has not";

enum Settled {
    All,
    /// The client must read before more replies are taken.
    Full,
}

/// Waits for the replies of all that was sent, and appends them to the output in the order of the commands.
pub async fn settle(connection: &mut Connection) -> Result<(), End> {
    let pause_bytes = match connection.worker.config_snapshot().output_bytes_max {
        ..=PAUSE_BYTES_MAX => usize::MAX,
        _ => connection.worker.hub.dataset.memory.pause_bytes(),
    };
    let _blocked = Blocks::begin(connection);
    loop {
        match poll_fn(|cx| poll_replies(connection, pause_bytes, cx)).await? {
            Settled::All => break,
            Settled::Full => {
                set_stalled(connection, true);
                connection.update_charge();
                poll_fn(|cx| connection.poll_drain(cx)).await?;
                set_stalled(connection, false);
                connection.withdraw();
            }
        }
    }
    connection.worker.refresh_now_ms();
    if connection.worker.is_crowded()
        && let Some(forwarding) = &mut connection.forwarding
    {
        forwarding.sessions().for_each(|(_, session)| session.shrink());
    }
    Ok(())
}

fn set_stalled(connection: &mut Connection, is_stalled: bool) {
    if let Some(forwarding) = &mut connection.forwarding {
        forwarding.is_stalled = is_stalled;
    }
}

/// While a command that may block waits: others see that the client is blocked, and can end the wait.
struct Blocks {
    client_info: Arc<ClientInfo>,
    count: Arc<AtomicUsize>,
}

impl Blocks {
    fn begin(connection: &Connection) -> Option<Blocks> {
        connection.forwarding.as_ref().filter(|forwarding| forwarding.blocks)?;
        let count = Arc::clone(&connection.worker.hub.clients.blocked);
        count.fetch_add(1, Relaxed);
        Some(Blocks { client_info: Arc::clone(&connection.client_info), count })
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        *self.client_info.blocked_at.lock() = None;
        self.count.fetch_sub(1, Relaxed);
    }
}

fn poll_replies(connection: &mut Connection, pause_bytes: usize, cx: &mut Context<'_>) -> Poll<Result<Settled, End>> {
    let Connection { worker, session, client_info, work, forwarding, .. } = connection;
    let (Some(forwarding), Some(routes)) = (forwarding.as_deref_mut(), worker.hub.routes.get()) else {
        return Poll::Ready(Ok(Settled::All));
    };
    let work = work.get_or_insert_with(|| worker.take_work());
    let (batch, output) = (&work.batch, &mut work.output);
    let snapshot = worker.config_snapshot();
    let send = Transmitter { worker, batch };
    forwarding.try_again(routes, |sent, part, places, to| send.transmit(session, sent, part, places, to));
    match forwarding.poll_held(cx) {
        Poll::Ready(true) => {}
        Poll::Ready(false) => return Poll::Ready(Err(End::Lost)),
        Poll::Pending => return Poll::Pending,
    }
    let mut lost = Vec::new();
    for (shard, session) in forwarding.sessions() {
        if session.has_unsent()
            && let Poll::Ready(Err(error)) = session.poll_send(cx)
        {
            lost.push((shard, error));
        }
    }
    for (shard, error) in lost {
        if forwarding.is_cut(shard) {
            return Poll::Ready(Err(End::Io(error.to_string())));
        }
        forwarding.lose(shard, &error);
    }
    let replies = Replies { worker, routes, batch, client_info, proto: session.proto, pause_bytes };
    while let Some(mut awaited) = forwarding.awaited.pop_front() {
        let from = output.len();
        match replies.poll_reply(&mut awaited, forwarding, output, cx) {
            Poll::Ready(Ok(failed)) => {
                if std::mem::take(&mut forwarding.is_amid_reply) {
                    client_info.outbox.answered();
                }
                if failed {
                    note_error(worker, &output[from..]);
                }
                let nanos = worker.nanos(awaited.begun, worker.ticks());
                let spent = Spent { nanos, failed, met_flash: None, in_script: false };
                let args = || batch.args(batch.commands[awaited.sent.at]);
                let command = worker.hub.directory.by_id(awaited.sent.command);
                account(worker, &snapshot, client_info, command, args, spent, worker.now_ms());
                if let Some(multi) = &awaited.sent.transaction {
                    account_transaction(worker, &snapshot, client_info, multi, nanos);
                }
                if awaited.is_silent {
                    output.truncate(from);
                }
            }
            Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
            Poll::Pending => {
                if awaited.is_silent {
                    output.truncate(from);
                } else if output.len() > from && !std::mem::replace(&mut forwarding.is_amid_reply, true) {
                    // Published messages must not stand in the middle of it.
                    client_info.outbox.owe_reply();
                }
                forwarding.awaited.push_front(awaited);
                if output.len() > pause_bytes {
                    return Poll::Ready(Ok(Settled::Full));
                }
                break;
            }
        }
        if output.len() > snapshot.output_bytes_max {
            worker.stats().output_limit_closed.add(1);
            return Poll::Ready(Err(End::OutputLimit));
        }
        if output.len() > pause_bytes && forwarding.waits() {
            return Poll::Ready(Ok(Settled::Full));
        }
    }
    if !forwarding.waits() {
        return Poll::Ready(Ok(Settled::All));
    }
    forwarding.wake_to_try(cx);
    if forwarding.blocks {
        note_wait(forwarding, routes, client_info);
    }
    if client_info.killed.load(Relaxed) {
        return Poll::Ready(Err(End::Killed));
    }
    let is_blocked = forwarding.blocks;
    if !connection.has_ended && connection.stream.poll_read_ready(cx).is_ready() {
        match connection.poll_listen(cx) {
            // The replies to what it has sent are still its due, unless they may never come.
            Err(End::Eof) if !is_blocked => connection.has_ended = true,
            listened => listened?,
        }
    }
    Poll::Pending
}

/// CLIENT UNBLOCK must find who waits for this client.
fn note_wait(forwarding: &mut Forwarding, routes: &Routes, client_info: &ClientInfo) {
    let shard = forwarding.awaited.front_mut().and_then(|awaited| awaited.kind.first_awaited());
    let client = shard.and_then(|shard| forwarding.session(shard)?.client);
    // Until the owner has told the session's number there, nobody can be found: an earlier number is another client's by now.
    *client_info.blocked_at.lock() =
        shard.zip(client).map(|(shard, client)| (Arc::clone(&routes.shards[usize::from(shard)]), client));
}

#[cold]
fn note_error(worker: &Worker, reply: &[u8]) {
    let line = reply.iter().position(|&byte| byte == b'\r').map_or(reply, |end| &reply[..end]);
    worker.stats().error(&String::from_utf8_lossy(line.get(1..).unwrap_or_default()));
}

/// Where replies come from, and for whom they are.
struct Replies<'a> {
    worker: &'a Worker,
    routes: &'a Routes,
    batch: &'a Batch,
    client_info: &'a ClientInfo,
    proto: Proto,
    pause_bytes: usize,
}

/// Why there is no reply, and never will be one.
enum Missing {
    /// The proxy says why.
    Text(String),
    /// A part of it was passed on already.
    Cut(String),
    /// A transaction was not run, as if what it has watched had changed.
    Unwatched,
}

impl Replies<'_> {
    /// Takes what has arrived of a command's reply. Ready: it is complete; true if it is an error.
    fn poll_reply(
        &self,
        awaited: &mut Awaited,
        forwarding: &mut Forwarding,
        output: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, End>> {
        let from = output.len();
        match &mut awaited.kind {
            Kind::Pass(part) => {
                let was_new = part.extent.is_new();
                match ready!(self.poll_part(part, awaited.is_write, forwarding, output, cx)) {
                    Ok(()) => {}
                    Err(Missing::Text(text)) => Out::new(output, self.proto).error(&text),
                    Err(Missing::Unwatched) => Out::new(output, self.proto).null_array(),
                    Err(Missing::Cut(error)) => return Poll::Ready(Err(End::Io(error))),
                }
                return Poll::Ready(Ok(was_new && output.get(from) == Some(&b'-')));
            }
            Kind::Merge { how, parts } => {
                for (part, reply) in parts.iter_mut() {
                    ready!(self.poll_whole(part, awaited.is_write, forwarding, &mut reply.bytes, cx));
                }
                let replies: Vec<PartReply> = std::mem::take(parts).into_iter().map(|(_, reply)| reply).collect();
                match how {
                    Merge::Info => self.info(&awaited.sent, &replies, output),
                    how => merge(*how, &replies, random::number, self.proto, output),
                }
            }
            Kind::Page { stripe, part, bytes } => {
                ready!(self.poll_whole(part, false, forwarding, bytes, cx));
                let end = self.routes.end_of_run(*stripe);
                // Behind the run of stripes, the next owner goes on.
                let next = |cursor| match stripe_of_cursor(cursor) {
                    at if cursor != 0 && at < end => cursor,
                    _ => cursor_of_stripe(end),
                };
                if with_cursor(bytes, next, self.proto, output).is_none() {
                    output.extend_from_slice(bytes);
                }
            }
        }
        Poll::Ready(Ok(output.get(from) == Some(&b'-')))
    }

    /// INFO of all shards. Those that are not served are missing in it.
    #[cold]
    fn info(&self, sent: &Sent, replies: &[PartReply], output: &mut Vec<u8>) {
        let args = self.batch.args(self.batch.commands[sent.at]);
        let sections: Vec<&[u8]> = args.from(1).collect();
        let control = self.worker.hub.control();
        let text = control.map(|control| control.whole_info(&sections, &texts(replies), replies.len()));
        Out::new(output, self.proto).verbatim("txt", text.unwrap_or_default().as_bytes());
    }

    /// A reply that is not passed on before it is complete. What is missing is an error in its place.
    fn poll_whole(
        &self,
        part: &mut Part,
        is_write: bool,
        forwarding: &mut Forwarding,
        bytes: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let why = match ready!(self.poll_part(part, is_write, forwarding, bytes, cx)) {
            Ok(()) => part.too_large.map(|bytes| self.worker.hub.dataset.memory.too_much(bytes).text()),
            Err(Missing::Text(text) | Missing::Cut(text)) => Some(text),
            Err(Missing::Unwatched) => unreachable!("the reply to a transaction is passed on"),
        };
        if let Some(why) = why {
            bytes.clear();
            Out::new(bytes, self.proto).error(&why);
            (part.state, part.too_large) = (PartState::Done, None);
        }
        Poll::Ready(())
    }

    /// Takes what has arrived of a shard's reply. Pending without being woken: the output is full.
    fn poll_part(
        &self,
        part: &mut Part,
        is_write: bool,
        forwarding: &mut Forwarding,
        output: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Missing>> {
        let passes = part.granted == usize::MAX;
        loop {
            match part.state {
                PartState::Done => return Poll::Ready(Ok(())),
                PartState::Unsent => return Poll::Pending,
                PartState::Down => {
                    let name = self.routes.shards[usize::from(part.shard)].name();
                    let done = match passes || !is_write {
                        true => "nothing was changed",
                        false => "other shards have done their part of the command",
                    };
                    let text = format!("CLUSTERDOWN shard '{name}' is not served; {done}");
                    self.worker.stats().forwards_down.add(1);
                    return Poll::Ready(Err(Missing::Text(text)));
                }
                PartState::Uncertain => {
                    self.worker.stats().forwards_uncertain.add(1);
                    return Poll::Ready(Err(Missing::Text(UNCERTAIN.to_owned())));
                }
                PartState::Unwatched => return Poll::Ready(Err(Missing::Unwatched)),
                PartState::Sent => {}
            }
            // A lost session has changed the state of all its parts.
            let Some(session) = forwarding.session(part.shard) else { return Poll::Pending };
            let (is_owed, was_new, from) = (part.owed > 0, part.extent.is_new(), output.len());
            let mut dropped = Vec::new();
            let each = |bytes: &[u8]| match is_owed {
                true => dropped.extend_from_slice(bytes),
                false if part.too_large.is_some() => {}
                false => output.extend_from_slice(bytes),
            };
            match ready!(session.poll_take(&mut part.extent, cx, each)) {
                Ok(Taken::All) if is_owed => {
                    part.owed -= 1;
                    session.was_told(&dropped);
                }
                Ok(Taken::All) if was_new && output[from..] == *REJECTION => {
                    output.truncate(from);
                    self.worker.stats().forwards_rejected.add(1);
                    forwarding.reject(part.shard);
                    part.reject();
                }
                Ok(Taken::All) => {
                    session.has_writes |= is_write;
                    part.state = PartState::Done;
                    forwarding.replied(part.shard);
                }
                Ok(Taken::Part) if passes && output.len() > self.pause_bytes => return Poll::Pending,
                Ok(Taken::Part) => {}
                Err(error) => {
                    let sent = forwarding.lose(part.shard, &error);
                    if passes && !part.extent.is_new() && part.owed == 0 {
                        return Poll::Ready(Err(Missing::Cut(error.to_string())));
                    }
                    output.truncate(if passes { output.len() } else { 0 });
                    part.lose(is_write, sent);
                }
            }
            self.claim(part, output);
        }
    }

    /// A reply that waits for others takes memory until then.
    #[inline]
    fn claim(&self, part: &mut Part, output: &mut Vec<u8>) {
        if output.len() <= part.granted || part.too_large.is_some() {
            return;
        }
        let more = FREE_BYTES.max(output.len() / 2);
        if self.worker.hub.dataset.memory.ask_now(self.client_info, more) {
            part.granted = output.len() + more;
        } else {
            part.too_large = Some(output.len());
            *output = Vec::new();
        }
    }
}
