//! Owns what a client's connection to a proxy keeps: its sessions with the owners of shards, and the replies that are still to come, in
//! the order of the commands. Never knows how a command is chosen to be sent, or how its bytes are made (`forward`).
//!
//! ```text
//! Unsent ── sent ──► Sent ── reply ──────────────────────────► Done
//!   ▲  │               ├──── rejected: it has not run ───► Unsent
//!   │  └ not served ─► Down    ├── session lost, a read ─────► Unsent
//!   └── again, in order        └── session lost, a write ────► Uncertain
//! ```

mod merge;
mod session;

pub use merge::{PartReply, merge, texts, with_cursor};
pub use session::{Elsewhere, ForwardingSession, Taken};

use crate::memory::FREE_BYTES;
use crate::replication::Seen;
use crate::routes::{Merge, Routes};
use crate::session_stream::SESSION_WINDOW_BYTES;
use crate::worker::Worker;
use commands::session::Multi;
use resp::extent::Extent;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// What a shard that does not serve now is sent again and again waits at most this long.
const AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before it is sent again.
const AGAIN: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct Forwarding {
    /// By shard. A session is opened for the first command.
    sessions: Vec<Option<Box<ForwardingSession>>>,
    /// The commands without a complete reply, oldest first.
    pub awaited: VecDeque<Awaited>,
    /// The shards that have rejected commands or could not be reached, until one of their replies has come.
    away: Vec<Away>,
    /// Ends when one of them is tried again.
    timer: Option<Pin<Box<Sleep>>>,
    /// A part of the oldest command's reply was passed on.
    pub is_amid_reply: bool,
    /// The client does not read, so what its sessions can send until then will wait in memory.
    pub is_stalled: bool,
    /// The last command may wait: what is behind it is not sent before its reply is there.
    pub blocks: bool,
    /// The shard and the slot of the watched keys.
    pub watched: Option<(u16, u16)>,
    /// The session that watched keys was lost, so that nobody knows whether they have changed.
    pub watch_lost: bool,
    /// The shards to which commands have written without the session that they have now, as long as it was not told.
    written: Vec<(u16, Elsewhere)>,
    /// The owners that replies wait for, and what the replies show of them.
    held: Vec<(Rc<Worker>, Seen)>,
}

struct Away {
    shard: u16,
    since: Instant,
    next: Instant,
    /// All was sent again, and it has not replied yet.
    is_sent: bool,
}

/// A command that was sent to one or several owners.
pub struct Awaited {
    pub sent: Sent,
    pub begun: u64,
    /// CLIENT REPLY is off for it.
    pub is_silent: bool,
    pub is_write: bool,
    pub kind: Kind,
}

/// What is needed to send a command once more.
pub struct Sent {
    /// Its position in the batch.
    pub at: usize,
    /// Its number in the directory.
    pub command: usize,
    /// If it is EXEC.
    pub transaction: Option<Box<Multi>>,
}

pub enum Kind {
    /// The reply is passed on as it is.
    Pass(Part),
    Merge {
        how: Merge,
        parts: Vec<(Part, PartReply)>,
    },
    /// The reply to SCAN that began in this stripe.
    Page {
        stripe: usize,
        part: Part,
        bytes: Vec<u8>,
    },
}

/// What one shard is sent, and replies.
#[derive(Debug)]
pub struct Part {
    pub shard: u16,
    pub state: PartState,
    /// Where it begins among the bytes to its session.
    pub begins_at: u64,
    /// The replies before it that nobody gets.
    pub owed: u32,
    pub extent: Extent,
    /// It may take this many bytes without asking; `usize::MAX`: it is passed on, and the output's limits hold.
    pub granted: usize,
    /// It has asked in vain, and the rest of it is dropped. Its length then.
    pub too_large: Option<usize>,
    /// A transaction for which its session has watched keys: another session must not run it.
    pub has_watched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartState {
    Unsent,
    Sent,
    Done,
    /// Nobody serves the shard, so it was not sent.
    Down,
    /// The session was lost before the reply to a write.
    Uncertain,
    /// It has not run, and the session that has watched keys for it is gone: nobody knows whether they have changed.
    Unwatched,
}

impl Part {
    /// For a reply that is passed on.
    pub fn passed(shard: u16) -> Part {
        Part { granted: usize::MAX, ..Part::kept(shard) }
    }

    /// For a reply that is kept until it is complete.
    pub fn kept(shard: u16) -> Part {
        let extent = Extent::default();
        let (state, has_watched) = (PartState::Unsent, false);
        Part { shard, state, begins_at: 0, owed: 0, extent, granted: FREE_BYTES, too_large: None, has_watched }
    }

    /// Its session was lost after so many bytes. What has not left cannot have run, and a read may run again.
    pub fn lose(&mut self, is_write: bool, sent: u64) {
        if self.state == PartState::Sent {
            let is_uncertain = is_write && sent > self.begins_at;
            self.state = if is_uncertain { PartState::Uncertain } else { self.not_run() };
            self.extent = Extent::default();
        }
    }

    /// It has not run.
    pub fn reject(&mut self) {
        if self.state == PartState::Sent {
            (self.state, self.extent) = (self.not_run(), Extent::default());
        }
    }

    fn not_run(&self) -> PartState {
        if self.has_watched { PartState::Unwatched } else { PartState::Unsent }
    }
}

fn is_lost(part: &Part, shard: u16) -> bool {
    part.shard == shard && part.state != PartState::Done
}

impl Kind {
    /// The first shard whose reply is not there.
    pub fn first_awaited(&mut self) -> Option<u16> {
        self.parts().find(|(part, _)| part.state != PartState::Done).map(|(part, _)| part.shard)
    }

    /// The parts, with the keys of each by their positions among all keys.
    fn parts(&mut self) -> impl Iterator<Item = (&mut Part, &[u32])> {
        let (one, several) = match self {
            Kind::Pass(part) | Kind::Page { part, .. } => (Some((part, &[][..])), None),
            Kind::Merge { parts, .. } => (None, Some(parts.iter_mut().map(|(part, reply)| (part, &*reply.places)))),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl Forwarding {
    pub fn session(&mut self, shard: u16) -> Option<&mut ForwardingSession> {
        self.sessions.get_mut(usize::from(shard))?.as_deref_mut()
    }

    pub fn sessions(&mut self) -> impl Iterator<Item = (u16, &mut ForwardingSession)> {
        self.sessions.iter_mut().enumerate().filter_map(|(at, session)| Some((at as u16, session.as_deref_mut()?)))
    }

    #[inline]
    pub fn waits(&self) -> bool {
        !self.awaited.is_empty() || !self.held.is_empty()
    }

    /// A command has written to this shard without the session, which WAIT asks.
    #[inline]
    pub fn has_written(&mut self, shard: u16, how: Elsewhere) {
        match self.written.iter_mut().find(|(written, _)| *written == shard) {
            Some((_, before)) => *before = how.max(*before),
            None => self.written.push((shard, how)),
        }
    }

    /// The same at the primary of a shard with replicas. Its session ends when another copy serves, and WAIT learns from that end that the write
    /// may be lost. So there must be a session.
    pub fn has_written_at_primary(&mut self, routes: &Routes, shard: u16) {
        match open(&mut self.sessions, routes, shard) {
            Ok(session) => {
                tell_written(&mut self.written, shard, session);
                session.has_written(Elsewhere::Directly);
            }
            Err(_) => self.has_written(shard, Elsewhere::Earlier),
        }
    }

    /// The replies so far may leave when this is safe at the owner.
    #[cold]
    pub fn hold(&mut self, owner: &Rc<Worker>, seen: Seen) {
        self.held.push((Rc::clone(owner), seen));
    }

    /// Waits until the owners' journals let the replies leave. False: a journal has failed, and may have lost what they tell.
    #[inline]
    pub fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while let Some((owner, seen)) = self.held.last() {
            ready!(owner.commit_waiter.poll_safe(*seen, cx));
            if owner.hub.dataset.journaling.has_lost(*seen, true) {
                return Poll::Ready(false);
            }
            self.held.pop();
        }
        Poll::Ready(true)
    }

    /// Takes a command, and sends it to those of its owners that serve. `send` makes the bytes.
    #[inline]
    pub fn enter(
        &mut self,
        mut awaited: Awaited,
        routes: &Routes,
        mut send: impl FnMut(&Sent, &mut Part, &[u32], &mut ForwardingSession),
    ) {
        for (part, places) in awaited.kind.parts() {
            let shard = part.shard;
            if part.state != PartState::Unsent || self.away.iter().any(|away| away.shard == shard && !away.is_sent) {
                continue;
            }
            match open(&mut self.sessions, routes, shard) {
                Ok(session) => {
                    tell_written(&mut self.written, shard, session);
                    send(&awaited.sent, part, places, session);
                }
                Err(_) => self.away(shard),
            }
        }
        self.awaited.push_back(awaited);
    }

    /// The shard does not serve now: what it has not run is sent again soon, until it replies or has been away for too long.
    #[cold]
    fn away(&mut self, shard: u16) {
        let now = Instant::now();
        match self.away.iter_mut().find(|away| away.shard == shard) {
            Some(away) => (away.next, away.is_sent) = (now + AGAIN, false),
            None => self.away.push(Away { shard, since: now, next: now + AGAIN, is_sent: false }),
        }
    }

    /// The owner has rejected a command, and will reject what is behind it in the session.
    #[cold]
    pub fn reject(&mut self, shard: u16) {
        self.end(shard);
        self.of(shard).for_each(|(part, _)| part.reject());
        self.away(shard);
    }

    /// The session has ended. Returns how many bytes of it the owner may have run: none, if it has refused the session.
    #[cold]
    pub fn lose(&mut self, shard: u16, error: &io::Error) -> u64 {
        let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
        let sent = self.session(shard).filter(|_| !is_refused).map_or(0, |session| session.sent());
        self.end(shard);
        self.of(shard).for_each(|(part, is_write)| part.lose(is_write, sent));
        // Of a reply that is kept until it is whole, a part may have come.
        for awaited in &mut self.awaited {
            match &mut awaited.kind {
                Kind::Pass(_) => {}
                Kind::Page { part, bytes, .. } if is_lost(part, shard) => bytes.clear(),
                Kind::Page { .. } => {}
                Kind::Merge { parts, .. } => {
                    let lost = parts.iter_mut().filter(|(part, _)| is_lost(part, shard));
                    lost.for_each(|(_, reply)| reply.bytes.clear());
                }
            }
        }
        self.away(shard);
        sent
    }

    /// Whether a part of a reply from this shard has been passed on, so that nobody can send the rest of it.
    pub fn is_cut(&self, shard: u16) -> bool {
        let Some(Awaited { kind: Kind::Pass(part), .. }) = self.awaited.front() else { return false };
        part.shard == shard && part.state == PartState::Sent && part.owed == 0 && !part.extent.is_new()
    }

    /// UNWATCH, or what does the same.
    pub fn unwatch(&mut self) {
        self.watch_lost = false;
        if let Some((shard, _)) = self.watched.take()
            && let Some(session) = self.session(shard)
        {
            session.say(&[b"UNWATCH"]);
        }
    }

    /// What the session has watched is not watched any more.
    fn end(&mut self, shard: u16) {
        let ended = self.sessions[usize::from(shard)].take();
        if ended.is_some_and(|session| session.has_writes) {
            self.has_written(shard, Elsewhere::Earlier);
        }
        self.watch_lost |= self.watched.is_some_and(|(watched, _)| watched == shard);
    }

    fn of(&mut self, shard: u16) -> impl Iterator<Item = (&mut Part, bool)> {
        let all = self.awaited.iter_mut();
        let parts = all.flat_map(|Awaited { is_write, kind, .. }| kind.parts().map(|(part, _)| (part, *is_write)));
        parts.filter(move |(part, _)| part.shard == shard)
    }

    /// The shard has replied.
    #[inline]
    pub fn replied(&mut self, shard: u16) {
        if !self.away.is_empty() {
            self.away.retain(|away| away.shard != shard);
        }
    }

    /// Tries the shards again whose time it is, in the order of the commands. Gives up those that were away for too long.
    #[inline]
    pub fn try_again(&mut self, routes: &Routes, send: impl FnMut(&Sent, &mut Part, &[u32], &mut ForwardingSession)) {
        if self.away.iter().any(|away| !away.is_sent) {
            self.try_those_away(routes, Instant::now(), send);
        }
    }

    #[cold]
    fn try_those_away(
        &mut self,
        routes: &Routes,
        now: Instant,
        mut send: impl FnMut(&Sent, &mut Part, &[u32], &mut ForwardingSession),
    ) {
        for at in (0..self.away.len()).rev() {
            let Away { shard, since, next, is_sent } = self.away[at];
            if is_sent || now < next {
                continue;
            }
            if now.duration_since(since) >= AWAY_TIMEOUT {
                self.away.swap_remove(at);
                let unsent = self.of(shard).filter(|(part, _)| part.state == PartState::Unsent);
                unsent.for_each(|(part, _)| part.state = PartState::Down);
                continue;
            }
            let Ok(session) = open(&mut self.sessions, routes, shard) else {
                self.away[at].next = now + AGAIN;
                continue;
            };
            self.away[at].is_sent = true;
            tell_written(&mut self.written, shard, session);
            for Awaited { sent, kind, .. } in &mut self.awaited {
                let unsent = kind.parts().filter(|(part, _)| part.shard == shard && part.state == PartState::Unsent);
                unsent.for_each(|(part, places)| send(sent, part, places, session));
            }
        }
    }

    /// Wakes the connection when a shard is to be tried again.
    #[inline]
    pub fn wake_to_try(&mut self, cx: &mut Context<'_>) {
        if let Some(next) = self.away.iter().filter(|away| !away.is_sent).map(|away| away.next).min() {
            self.wake_at(next, cx);
        }
    }

    #[cold]
    fn wake_at(&mut self, moment: Instant, cx: &mut Context<'_>) {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(moment.into())));
        timer.as_mut().reset(moment.into());
        if timer.as_mut().poll(cx) == Poll::Ready(()) {
            cx.waker().wake_by_ref();
        }
    }

    /// Memory that its buffers take, and the transactions that were sent. While the client does not read: with the windows of its sessions.
    pub fn mem_bytes(&self) -> usize {
        let transactions = self.awaited.iter().filter_map(|awaited| awaited.sent.transaction.as_ref());
        let window = if self.is_stalled { SESSION_WINDOW_BYTES } else { 0 };
        let sessions = self.sessions.iter().flatten().map(|session| session.mem_bytes() + window);
        sessions.chain(transactions.map(|multi| multi.bytes)).sum()
    }
}

#[inline]
fn tell_written(written: &mut Vec<(u16, Elsewhere)>, shard: u16, session: &mut ForwardingSession) {
    if let Some(at) = written.iter().position(|&(written, _)| written == shard) {
        session.has_written(written.swap_remove(at).1);
    }
}

/// The session with a shard's owner, opened if there is none.
#[inline]
fn open<'s>(
    sessions: &'s mut Vec<Option<Box<ForwardingSession>>>,
    routes: &Routes,
    shard: u16,
) -> io::Result<&'s mut ForwardingSession> {
    let at = usize::from(shard);
    if sessions.len() <= at {
        sessions.resize_with(routes.shards.len(), || None);
    }
    let session = &mut sessions[at];
    if session.is_none() {
        *session = Some(Box::new(ForwardingSession::new(routes.shards[at].connect()?)));
    }
    Ok(session.as_deref_mut().expect("it was just opened"))
}
