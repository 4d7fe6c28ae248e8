//! Owns the state that a connection keeps from one command to the next: plain data. Never knows its socket, its buffers
//! or the worker that serves it.

use crate::cx::Args;
use crate::exchange::Exchange;
use crate::host::{Rights, Space};
use crate::job::Job;
use crate::owned_args::OwnedArgs;
use resp::reply::Proto;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Reach, Watches};

/// The source of the commands on a connection whose commands are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rerun {
    /// A journal: the commands see this time, in milliseconds since 1970.
    Journal(u64),
    /// A primary's stream. No key expires for its commands: the primary decides what has expired.
    Primary,
    /// An append-only file of Redis. No key expires for its commands either. But there may be no room for their data
    /// here.
    File,
}

impl Rerun {
    /// The time at which the commands run. `None`: now.
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

    /// Whether later commands run although one command could not, because a value on flash is damaged. The keys that
    /// this command would have written are then lost.
    pub fn goes_on(self) -> bool {
        matches!(self, Rerun::Journal(_) | Rerun::Primary)
    }

    /// Whether room for the commands' data is known: a journal's commands had room when they first ran here, and a
    /// replica checks for room itself.
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
    /// The request of the running command to another server.
    pub exchange: Option<Box<Exchange>>,
    /// The work that the running command leaves to another thread.
    pub job: Option<Box<Job>>,
    /// The memory that the running command asks for.
    pub claim: Claim,
    pub rerun: Option<Rerun>,
    /// Whether the commands come from a file, a journal or a primary. They were accepted before, by another server or
    /// in an earlier run.
    pub repeats: bool,
    /// The journal's positions before and after the connection's last commands that may have written.
    pub written: Written,
    /// The commands come through a proxy.
    pub forwarded: Option<Forwarded>,
    /// The offsets of the replication stream before and after these commands.
    pub replicated: Written,
    /// What the client has announced as a replica, with REPLCONF.
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

/// A proxy's session on behalf of a client.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded {
    /// The database has several shards: what a command finds beside the keys that it names must be in their slot, whichever shard has it.
    pub is_divided: bool,
    /// A command was rejected, because its key is not served here now: what is behind it is rejected too, so that it does not run before it.
    pub rejects: bool,
    /// The client has written to an earlier primary of the shard, and this one may lack such writes.
    pub may_lack_writes: bool,
}

/// Positions of the journal, or offsets of the replication stream.
#[derive(Debug, Default, Clone, Copy)]
pub struct Written {
    /// The position when the commands that run now began.
    pub from: u64,
    /// The position after the last commands during which it advanced.
    pub to: u64,
}

/// A replica, as REPLCONF has described it.
#[derive(Debug, Default, Clone)]
pub struct Replica {
    /// The address that the replica announces. Empty: the address that the connection comes from.
    pub ip: Box<str>,
    pub port: u16,
    /// Whether it understands that the stream continues under another id.
    pub psync2: bool,
    /// Whether it is a FlintKV, which can load data that Redis cannot.
    pub flint: bool,
    /// Whether it understands the offset behind +FULLRESYNC up to which its own stream is equal to the primary's.
    pub tail: bool,
    /// Whether it can give up the end of its stream, if it is told with `-AHEAD offset` where that parts from the primary's.
    pub truncates: bool,
    /// Whether it accepts a dump in pieces, while the dump is being written. Before each piece comes a line `$bytes
    /// expected`: the bytes of the piece, and about the bytes of the whole dump. The line `$0` comes behind the last
    /// piece.
    pub pieces: bool,
    /// Whether it accepts pages of flash as they are.
    pub pages: bool,
    pub version: Box<str>,
    /// Whether it wants only a dump, and no stream after it.
    pub only_dump: bool,
    /// It is a copy of the same shard, at a node of the cluster: what it says of itself is believed.
    pub is_of_shard: bool,
    /// Which copy it is, with which dataset, and the epoch of the primary that it follows.
    pub copy: u32,
    pub incarnation: Box<str>,
    pub epoch: u64,
    /// Set by PSYNC and SYNC: the connection is to become a replica's.
    pub asks: Option<Ask>,
}

/// The part of the stream that a replica has, as it says in PSYNC.
#[derive(Debug, Default, Clone)]
pub struct Ask {
    pub id: Box<str>,
    /// The offset of the first byte that the replica lacks. Offsets begin with 1.
    pub offset: i64,
    /// Whether this is SYNC: such a replica knows neither ids nor offsets.
    pub is_old: bool,
}

/// Memory in bytes that a handler needs at once beyond the usual: see [`crate::cx::claim`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Claim {
    pub wanted: usize,
    pub granted: usize,
    /// Memory that a transaction needs besides that, for objects and for the journal's records.
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
    /// Memory of the names, here and in the register of channels.
    bytes: usize,
}

/// Memory of a subscription besides its name: its places in the session's set and in the register, with the channel's
/// own set.
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

    /// Memory that a queued command takes.
    pub fn bytes_of(args: Args<'_>) -> usize {
        OwnedArgs::mem_bytes_of(args) + size_of::<OwnedArgs>()
    }

    /// Must be called when a command was refused: EXEC will refuse the whole transaction, so its commands are dropped.
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
    /// Which stripes its commands may lock.
    #[inline]
    pub fn reach(&self) -> Reach {
        if self.repeats { Reach::All } else { Reach::Owned }
    }

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
            forwarded: None,
            replicated: Written::default(),
            replica: None,
            labels: Labels::default(),
            tracking: None,
            monitors: false,
            listens_only: false,
            subscriptions: None,
        }
    }

    /// Whether the keys of scripts and patterns must have one slot, and there is only database 0.
    pub fn is_divided(&self) -> bool {
        self.forwarded.is_some_and(|forwarded| forwarded.is_divided)
    }

    /// Of a proxy's session: all that follows is rejected.
    pub fn begin_rejecting(&mut self) {
        if let Some(forwarded) = &mut self.forwarded {
            forwarded.rejects = true;
        }
    }

    /// Whether all commands of this session are rejected.
    #[inline]
    pub fn rejects(&self) -> bool {
        self.forwarded.is_some_and(|forwarded| forwarded.rejects)
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

    /// Memory that all subscriptions take.
    pub fn subscription_bytes(&self) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.bytes)
    }

    /// Memory that the connection keeps from one command to the next: for the queue of a transaction, and for its
    /// subscriptions.
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
