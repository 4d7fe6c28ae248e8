//! Owns the state that a connection keeps from one command to the next: plain data. Never knows its socket, its buffers
//! or the worker that serves it.

use crate::cx::{Args, OwnedArgs};
use crate::exchange::Exchange;
use crate::host::{Rights, Space};
use crate::job::Job;
use resp::reply::Proto;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Watches;

/// What a connection's commands repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rerun {
    /// A journal: the commands see this time, in milliseconds since 1970.
    Journal(u64),
    /// What a primary does now: nothing has expired for the commands until the primary says so.
    Primary,
    /// An append-only file of Redis: nothing has expired for its commands either. But they may not fit here.
    File,
}

impl Rerun {
    /// The time that the commands see. `None`: the present.
    pub fn time_ms(self) -> Option<u64> {
        match self {
            Rerun::Journal(time_ms) => Some(time_ms),
            Rerun::Primary | Rerun::File => None,
        }
    }

    #[inline]
    pub fn expires_nothing(self) -> bool {
        matches!(self, Rerun::Primary | Rerun::File)
    }

    /// Whether it goes on behind a command that cannot run, because a value on flash is damaged: what the command writes is lost then.
    pub fn goes_on(self) -> bool {
        matches!(self, Rerun::Journal(_) | Rerun::Primary)
    }

    /// Whether there was room here when the commands ran first, or a replica looks after that.
    pub fn has_room(self) -> bool {
        matches!(self, Rerun::Journal(_) | Rerun::Primary)
    }
}

/// The name under which the node loads the dataset. No client can have it.
pub const LOADER: &str = "(console:loader)";

/// A connection's own state. Handlers change it; the server reads it between commands.
#[derive(Debug)]
pub struct Session {
    pub id: u64,
    /// The logical database that SELECT chose.
    pub db: usize,
    pub proto: Proto,
    pub authenticated: bool,
    /// The user of the connection.
    pub user: Cow<'static, str>,
    /// The user's rights. `None`: everything is allowed.
    pub rights: Option<Arc<dyn Rights>>,
    /// The version of the user list that `rights` come from.
    pub user_version: u64,
    pub reply: Reply,
    /// Close after the replies so far are sent (QUIT, CLIENT KILL of itself).
    pub close: bool,
    pub no_evict: bool,
    /// Reads do not count as use of a key.
    pub no_touch: bool,
    /// The client is on loopback or the unix socket: `local` in the configuration means this.
    pub local: bool,
    /// Set whenever something changes that CLIENT LIST shows, so that the server publishes it.
    pub changed: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    pub watches: Watches,
    /// What the running command has to say to another server.
    pub exchange: Option<Box<Exchange>>,
    /// The work that the running command leaves to another thread.
    pub job: Option<Box<Job>>,
    /// The memory that the running command asks for.
    pub claim: Claim,
    pub rerun: Option<Rerun>,
    /// What comes was accepted by another server, or in another run: a file's, a journal's or a primary's commands.
    pub repeats: bool,
    /// Where the journal was before and after the connection's last commands that may have written.
    pub written: Written,
    /// The same of the stream of effects.
    pub replicated: Written,
    /// What the client has said of itself as a replica.
    pub replica: Option<Box<Replica>>,
    pub labels: Labels,
    /// CLIENT TRACKING is on.
    pub tracking: Option<Box<Tracking>>,
    /// The connection receives all commands (MONITOR) and may not use keys.
    pub monitors: bool,
    /// The connection is subscribed and speaks RESP2: only the commands about subscriptions may run.
    pub listens_only: bool,
    /// The connection's subscriptions; most connections never have any.
    subscriptions: Option<Box<Subscriptions>>,
}

/// Positions of the journal, or offsets of the stream.
#[derive(Debug, Default, Clone, Copy)]
pub struct Written {
    /// When the commands began that run now.
    pub from: u64,
    /// When the last ones ended while which the journal went on.
    pub to: u64,
}

/// A replica, as REPLCONF describes it.
#[derive(Debug, Default, Clone)]
pub struct Replica {
    /// The address that it announces; empty: the one that the connection comes from.
    pub ip: Box<str>,
    pub port: u16,
    /// It understands that the stream goes on under another id.
    pub psync2: bool,
    /// It is a FlintKV: it can load what Redis cannot.
    pub flint: bool,
    /// It understands up to where its own stream is the primary's, behind +FULLRESYNC.
    pub tail: bool,
    /// It takes a dump in pieces while the dump is written: `$bytes expected` before each, the bytes of the piece and about those of the
    /// dump, and `$0` behind the last.
    pub pieces: bool,
    /// It takes pages of flash as they are.
    pub pages: bool,
    pub version: Box<str>,
    /// It wants a dump and nothing after it.
    pub only_dump: bool,
    /// The connection is to become the replica's: see PSYNC.
    pub asks: Option<Ask>,
}

/// What a replica has.
#[derive(Debug, Default, Clone)]
pub struct Ask {
    pub id: Box<str>,
    /// The offset of the first byte that it has not, from 1 on.
    pub offset: i64,
    /// SYNC: it knows neither ids nor offsets.
    pub is_old: bool,
}

/// What a handler makes at once beyond the usual, in bytes: see [`crate::cx::claim`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Claim {
    pub wanted: usize,
    pub granted: usize,
    /// What a transaction makes beside that: objects, and what the journal gets.
    pub room: usize,
    pub room_granted: usize,
}

/// The options of CLIENT TRACKING.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tracking {
    /// Report changes of all keys with these prefixes, whether the client read them or not.
    pub bcast: bool,
    pub prefixes: Vec<Box<[u8]>>,
    /// Remember keys only, or except, where CLIENT CACHING says so.
    pub optin: bool,
    pub optout: bool,
    /// Do not report the connection's own changes.
    pub noloop: bool,
    /// The id of the connection that receives the invalidations instead. 0: this connection.
    pub redirect: u64,
    /// CLIENT CACHING was given for the next command.
    pub caching: bool,
}

impl Tracking {
    /// Whether to remember the keys that the current command reads.
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
    /// What they take, here and in the register of channels.
    bytes: usize,
}

/// What a subscription takes beside its name: its places in the session's set and in the register, with the channel's own set.
const SUBSCRIPTION_BYTES: usize = 256;

fn subscription_bytes(name: &[u8]) -> usize {
    SUBSCRIPTION_BYTES + 2 * name.len()
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

/// A transaction between MULTI and EXEC.
#[derive(Debug, Default)]
pub struct Multi {
    pub commands: Vec<OwnedArgs>,
    /// Bytes of the queued commands.
    pub bytes: usize,
    /// A queued command was refused, so EXEC refuses all.
    pub failed: bool,
}

impl Multi {
    pub fn push(&mut self, args: Args<'_>) {
        self.bytes += Multi::bytes_of(args);
        self.commands.push(OwnedArgs::new(args));
    }

    /// What a queued command takes.
    pub fn bytes_of(args: Args<'_>) -> usize {
        OwnedArgs::mem_bytes_of(args) + size_of::<OwnedArgs>()
    }

    /// A command was refused: EXEC will refuse all, so nothing is kept.
    pub fn fail(&mut self) {
        *self = Multi { failed: true, ..Multi::default() };
    }
}

/// A client's own description of itself. Printable ASCII without spaces, or empty.
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
    /// SKIP was just given: neither SKIP nor the next command replies.
    SkipNext,
    /// This command does not reply; the next one does.
    Skip,
    /// Only errors are replies: the connection runs the records of a journal.
    Errors,
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
            claim: Claim::default(),
            rerun: None,
            repeats: false,
            written: Written::default(),
            replicated: Written::default(),
            replica: None,
            labels: Labels::default(),
            tracking: None,
            monitors: false,
            listens_only: false,
            subscriptions: None,
        }
    }

    /// Whether anything is forbidden to this connection. For most connections, this is the only check before a command.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.rights.is_some() | !self.authenticated | self.listens_only | self.monitors
    }

    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.subscriptions_changed();
    }

    /// Records a subscription. False: it existed already.
    pub fn subscribe(&mut self, space: Space, name: &[u8]) -> bool {
        let all = self.subscriptions.get_or_insert_default();
        let names = all.names_mut(space);
        let is_new = !names.contains(name) && names.insert(name.into());
        if is_new {
            all.bytes += subscription_bytes(name);
            self.subscriptions_changed();
        }
        is_new
    }

    /// Removes a subscription. False: there was none.
    pub fn unsubscribe(&mut self, space: Space, name: &[u8]) -> bool {
        let all = self.subscriptions.as_mut();
        let all = all.and_then(|all| all.names_mut(space).remove(name).then_some(all));
        let known = all.is_some();
        if let Some(all) = all {
            all.bytes -= subscription_bytes(name);
            self.subscriptions_changed();
        }
        known
    }

    fn subscriptions_changed(&mut self) {
        let listens = Space::ALL.iter().any(|&space| self.subscriptions(space) > 0);
        self.listens_only = listens && self.proto == Proto::Resp2;
        self.changed = true;
    }

    /// The number of subscriptions of one kind.
    pub fn subscriptions(&self, space: Space) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.names(space).len())
    }

    /// What all subscriptions take.
    pub fn subscription_bytes(&self) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.bytes)
    }

    /// What the connection keeps from one command to the next: the queue of a transaction, and its subscriptions.
    pub fn kept_bytes(&self) -> usize {
        self.multi.as_ref().map_or(0, |multi| multi.bytes) + self.subscription_bytes()
    }

    /// The count in the reply to SUBSCRIBE and the like: channels and patterns together, shard channels separately.
    pub fn listens_to(&self, space: Space) -> usize {
        match space {
            Space::Channel | Space::Pattern => self.subscriptions(Space::Channel) + self.subscriptions(Space::Pattern),
            Space::Shard => self.subscriptions(Space::Shard),
        }
    }

    /// The names of one kind that the connection is subscribed to.
    pub fn listened(&self, space: Space) -> Vec<Box<[u8]>> {
        self.subscriptions.as_ref().map_or(Vec::new(), |all| all.names(space).iter().cloned().collect())
    }

    /// For RESET: the state after connecting, except for the id and the client library's name.
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
