//! Owns what a connection carries from one command to the next: plain data. Never knows its socket,
//! its buffers or the worker that serves it.

use crate::cx::{Args, OwnedArgs};
use crate::exchange::Exchange;
use crate::host::{Rights, Space};
use crate::job::Job;
use resp::reply::Proto;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Watches;

/// A connection's own state. Handlers change it; the server reads it between commands.
#[derive(Debug)]
pub struct Session {
    pub id: u64,
    /// The logical database SELECT chose.
    pub db: usize,
    pub proto: Proto,
    pub authenticated: bool,
    /// Whose connection it is.
    pub user: Cow<'static, str>,
    /// What it may do; None: everything.
    pub rights: Option<Arc<dyn Rights>>,
    /// The version of the users that `rights` are of.
    pub user_version: u64,
    pub reply: Reply,
    /// Close once the replies so far are sent (QUIT, CLIENT KILL of itself).
    pub close: bool,
    pub no_evict: bool,
    /// Reads do not count as use of the key.
    pub no_touch: bool,
    /// Loopback or the unix socket: what `local` in the configuration's guards means.
    pub local: bool,
    /// Set whenever something that CLIENT LIST shows of it has changed, so that the server publishes it.
    pub changed: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    pub watches: Watches,
    /// What the running command says to another server.
    pub exchange: Option<Box<Exchange>>,
    /// What the running command leaves to another thread.
    pub job: Option<Box<Job>>,
    pub labels: Labels,
    /// CLIENT TRACKING is on.
    pub tracking: Option<Box<Tracking>>,
    /// It sees all commands (MONITOR), and works on no keys.
    pub monitors: bool,
    /// It listens and speaks RESP2: only the commands that belong to listening may run.
    pub listens_only: bool,
    /// What it listens to; most connections never listen.
    subscriptions: Option<Box<Subscriptions>>,
}

/// What CLIENT TRACKING was asked for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tracking {
    /// Changes of all keys with these prefixes are told, read or not.
    pub bcast: bool,
    pub prefixes: Vec<Box<[u8]>>,
    /// Keys are remembered only, or except, where CLIENT CACHING says so.
    pub optin: bool,
    pub optout: bool,
    /// Not of what the connection changes itself.
    pub noloop: bool,
    /// The id of the connection that is told instead; 0: this one is.
    pub redirect: u64,
    /// CLIENT CACHING was given for the next command.
    pub caching: bool,
}

impl Tracking {
    /// Whether the keys that a command reads now are to be remembered.
    pub fn remembers(&self) -> bool {
        match (self.optin, self.optout) {
            _ if self.bcast => false,
            (true, _) => self.caching,
            (_, true) => !self.caching,
            _ => true,
        }
    }
}

#[derive(Debug, Default)]
struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    shard: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    fn names(&self, space: Space) -> &BTreeSet<Box<[u8]>> {
        match space {
            Space::Channel => &self.channels,
            Space::Pattern => &self.patterns,
            Space::Shard => &self.shard,
        }
    }

    fn names_mut(&mut self, space: Space) -> &mut BTreeSet<Box<[u8]>> {
        match space {
            Space::Channel => &mut self.channels,
            Space::Pattern => &mut self.patterns,
            Space::Shard => &mut self.shard,
        }
    }
}

/// A transaction being put together.
#[derive(Debug, Default)]
pub struct Multi {
    pub commands: Vec<OwnedArgs>,
    /// Of what is queued.
    pub bytes: usize,
    /// A command was refused: EXEC will refuse all.
    pub failed: bool,
}

impl Multi {
    pub fn push(&mut self, args: Args<'_>) {
        let args = OwnedArgs::new(args);
        self.bytes += args.mem_bytes() + size_of::<OwnedArgs>();
        self.commands.push(args);
    }
}

/// What a client says about itself. Printable ASCII without spaces, or empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Labels {
    pub name: Box<str>,
    pub lib_name: Box<str>,
    pub lib_version: Box<str>,
}

/// CLIENT REPLY's modes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    #[default]
    On,
    Off,
    /// SKIP was just given: neither it nor the next command answers.
    SkipNext,
    /// This command does not answer, the one after it does.
    Skip,
}

impl Session {
    pub fn new(id: u64, authenticated: bool, local: bool) -> Session {
        Session {
            id,
            db: 0,
            proto: Proto::Resp2,
            authenticated,
            user: "default".into(),
            user_version: 0,
            rights: None,
            reply: Reply::On,
            close: false,
            no_evict: false,
            no_touch: false,
            local,
            changed: false,
            multi: None,
            watches: Watches::default(),
            exchange: None,
            job: None,
            labels: Labels::default(),
            tracking: None,
            monitors: false,
            listens_only: false,
            subscriptions: None,
        }
    }

    /// Whether there is anything that it may not do: the one question before a command of most connections.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.rights.is_some() | !self.authenticated | self.listens_only | self.monitors
    }

    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.subscriptions_changed();
    }

    /// Notes that it listens; false if it did already.
    pub fn subscribe(&mut self, space: Space, name: &[u8]) -> bool {
        let names = self.subscriptions.get_or_insert_default().names_mut(space);
        let is_new = !names.contains(name) && names.insert(name.into());
        if is_new {
            self.subscriptions_changed();
        }
        is_new
    }

    /// Notes that it listens no longer; false if it did not.
    pub fn unsubscribe(&mut self, space: Space, name: &[u8]) -> bool {
        let known = self.subscriptions.as_mut().is_some_and(|all| all.names_mut(space).remove(name));
        if known {
            self.subscriptions_changed();
        }
        known
    }

    fn subscriptions_changed(&mut self) {
        let listens = Space::ALL.iter().any(|&space| self.subscriptions(space) > 0);
        self.listens_only = listens && self.proto == Proto::Resp2;
        self.changed = true;
    }

    /// To how many names of one kind it listens.
    pub fn subscriptions(&self, space: Space) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.names(space).len())
    }

    /// What an answer to SUBSCRIBE and its kin counts: channels and patterns together, shard channels apart.
    pub fn listens_to(&self, space: Space) -> usize {
        match space {
            Space::Channel | Space::Pattern => self.subscriptions(Space::Channel) + self.subscriptions(Space::Pattern),
            Space::Shard => self.subscriptions(Space::Shard),
        }
    }

    /// The names of one kind it listens to.
    pub fn listened(&self, space: Space) -> Vec<Box<[u8]>> {
        self.subscriptions.as_ref().map_or(Vec::new(), |all| all.names(space).iter().cloned().collect())
    }

    /// RESET: as after connecting, but for the id and the library that speaks.
    pub fn reset(&mut self) {
        self.db = 0;
        self.set_proto(Proto::Resp2);
        self.reply = Reply::On;
        self.no_evict = false;
        self.no_touch = false;
        self.multi = None;
        self.watches.clear();
        self.labels.name = Box::default();
        self.changed = true;
    }
}
