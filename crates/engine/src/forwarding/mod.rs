//! Owns what a client's connection to a proxy keeps: its sessions with the owners of shards, and the replies that are still to come, in
//! the order of the commands. Never knows how a command is chosen to be sent (`forward`), or how a connection waits.

mod merge;
mod session;

pub use merge::{PartReply, merge, with_cursor};
pub use session::{ForwardingSession, Taken};

use crate::memory::FREE_BYTES;
use crate::routes::{Merge, Routes};
use commands::session::Session;
use resp::extent::Extent;
use std::collections::VecDeque;
use std::io;

#[derive(Default)]
pub struct Forwarding {
    /// By shard. A session is opened for the first command.
    sessions: Vec<Option<Box<ForwardingSession>>>,
    /// The commands without a complete reply, oldest first.
    pub awaited: VecDeque<Awaited>,
    /// The last command may wait: what is behind it is not sent before its reply is there.
    pub blocks: bool,
    /// The shard and the slot of the watched keys.
    pub watched: Option<(u16, u16)>,
    /// The session that watched keys was lost, so that nobody knows whether they have changed.
    pub watch_lost: bool,
}

/// A command that was sent to one or several owners.
pub struct Awaited {
    /// Its position in the batch.
    pub at: usize,
    /// The id of the command.
    pub command: usize,
    pub begun: u64,
    /// CLIENT REPLY is off for it.
    pub is_silent: bool,
    pub is_write: bool,
    pub kind: Kind,
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

/// What one shard replies.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub shard: u16,
    /// The replies before it that nobody gets.
    pub owed: u16,
    pub extent: Extent,
    pub is_done: bool,
    /// It may take this many bytes without asking; `usize::MAX`: it is passed on, and the output's limits hold.
    pub granted: usize,
    /// It has asked in vain, and the rest of it is dropped.
    pub is_too_large: bool,
    /// Its length then.
    pub bytes: usize,
}

impl Forwarding {
    pub fn session(&mut self, shard: u16) -> Option<&mut ForwardingSession> {
        self.sessions.get_mut(usize::from(shard))?.as_deref_mut()
    }

    /// The session with a shard's owner, opened if there is none, which knows of the client's connection what it must.
    #[inline]
    pub fn open(&mut self, routes: &Routes, shard: u16, session: &Session) -> io::Result<&mut ForwardingSession> {
        let at = usize::from(shard);
        if self.sessions.len() <= at {
            self.sessions.resize_with(routes.shards.len(), || None);
        }
        let slot = &mut self.sessions[at];
        if slot.is_none() {
            *slot = Some(Box::new(ForwardingSession::new(routes.shards[at].connect()?)));
        }
        let forwarding = slot.as_deref_mut().expect("it was just opened");
        forwarding.follow(session);
        Ok(forwarding)
    }

    /// The session has ended. What it has watched is not watched any more.
    pub fn lose(&mut self, shard: u16) {
        if let Some(session) = self.sessions.get_mut(usize::from(shard)) {
            *session = None;
        }
        if self.watched.is_some_and(|(watched, _)| watched == shard) {
            self.watch_lost = true;
        }
    }

    pub fn sessions(&mut self) -> impl Iterator<Item = (u16, &mut ForwardingSession)> {
        self.sessions.iter_mut().enumerate().filter_map(|(at, session)| Some((at as u16, session.as_deref_mut()?)))
    }

    pub fn waits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Memory that its buffers take.
    pub fn mem_bytes(&self) -> usize {
        self.sessions.iter().flatten().map(|session| session.mem_bytes()).sum()
    }
}

impl Part {
    /// The reply to what was added to a session last.
    pub fn behind(shard: u16, session: &mut ForwardingSession) -> Part {
        Part { granted: usize::MAX, ..Part::kept_behind(shard, session) }
    }

    /// The same, for a reply that is kept until others are there.
    pub fn kept_behind(shard: u16, session: &mut ForwardingSession) -> Part {
        Part::whole(shard, std::mem::take(&mut session.owed))
    }

    pub fn whole(shard: u16, owed: u16) -> Part {
        let extent = Extent::default();
        Part { shard, owed, extent, is_done: false, granted: FREE_BYTES, is_too_large: false, bytes: 0 }
    }
}
