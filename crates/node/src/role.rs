//! Owns what a database has for its replicas and its primary: whom it follows, how far it is, what went wrong, and who waits for a dump.
//! Plain data. Never knows what comes over a connection.

use crate::progress::UNTOLD_MAX;
use crate::promises::Promises;
use cluster::ids::{CopyNumber, Epoch};
use commands::host::{ClientFilter, ClientKind};
use engine::replication::{Contents, Order};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How far the connection to the primary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkState {
    /// There is none; the next attempt comes.
    Connect,
    Connecting,
    Handshake,
    /// The dataset is being received.
    Sync,
    /// The dataset is being loaded.
    Load,
    /// The database follows.
    Connected,
}

impl LinkState {
    const ALL: [LinkState; 6] = [
        LinkState::Connect,
        LinkState::Connecting,
        LinkState::Handshake,
        LinkState::Sync,
        LinkState::Load,
        LinkState::Connected,
    ];

    /// As ROLE shows it.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Connect => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Handshake => "handshake",
            LinkState::Sync | LinkState::Load => "sync",
            LinkState::Connected => "connected",
        }
    }
}

/// What the thread that follows is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FollowerCommand {
    GoOn,
    /// End.
    Stop,
    /// Apply what has arrived, and end.
    Promote,
}

/// The socket of a connection to a primary.
pub enum LinkSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl LinkSocket {
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            LinkSocket::Tcp(socket) => socket.shutdown(how),
            LinkSocket::Unix(socket) => socket.shutdown(how),
        }
    }
}

/// The shard whose primary a copy follows.
pub struct FollowedShard {
    pub primary: Arc<PrimaryAddress>,
    /// The copy's.
    pub promises: Arc<Promises>,
}

/// A primary as its replicas reach it.
pub struct PrimaryAddress {
    pub copy: CopyNumber,
    /// Of the record that names it. A primary of another epoch refuses the connection.
    pub epoch: Epoch,
    /// For operators: INFO and the log show it.
    pub name: String,
    /// Connects to it, for each attempt. May wait for some seconds. At the other end of the stream, [`Database::serve_replica`] is called.
    ///
    /// [`Database::serve_replica`]: crate::Database::serve_replica
    pub open: Box<dyn Fn() -> io::Result<UnixStream> + Send + Sync>,
}

/// A primary that the database follows.
pub struct Following {
    pub host: String,
    pub port: u16,
    state: AtomicU8,
    command: AtomicU8,
    /// When the last byte came from the primary, in milliseconds since 1970; 0: none has come.
    pub last_io_ms: AtomicU64,
    /// Since when there is no working connection, in milliseconds since 1970; 0: there is one.
    pub down_since_ms: AtomicU64,
    /// The size of the dataset that is being received. 0: the primary has not told it.
    pub sync_total_bytes: AtomicU64,
    pub sync_bytes: AtomicU64,
    /// Why the last attempt to follow the primary failed. Cleared when the link is up.
    pub error: Mutex<Option<String>>,
    /// This database hands its role over (FAILOVER): the server that it follows is still a replica, and this database's PSYNC asks it to take over.
    pub hands_over: AtomicBool,
    /// The last attempt ended because the dataset or a command has no room here. The thread then waits for room.
    pub meets_full: AtomicBool,
    /// The pages of the primary's flash could not be imported: the next full synchronisation asks for a dataset without pages.
    pub refuses_pages: AtomicBool,
    /// What the primary does not have could not be given up alone: the next attempt asks for a full synchronisation.
    pub cannot_truncate: AtomicBool,
    pub is_full: AtomicBool,
    /// Why the replica refuses to take over.
    pub refusal: Mutex<Option<String>>,
    /// Ends a wait for the primary.
    pub socket: Mutex<Option<LinkSocket>>,
    /// `Some`: the primary is that of a shard, of which the database is a copy.
    pub shard: Option<FollowedShard>,
    pub thread: Mutex<Option<JoinHandle<()>>>,
    rest: Mutex<()>,
    woken: Condvar,
}

impl Following {
    pub fn new(host: &str, port: u16, hands_over: bool, now_ms: u64) -> Arc<Following> {
        Arc::new(Following::of(host, port, hands_over, None, now_ms))
    }

    pub fn in_shard(shard: FollowedShard, now_ms: u64) -> Arc<Following> {
        let name = shard.primary.name.clone();
        Arc::new(Following::of(&name, 0, false, Some(shard), now_ms))
    }

    fn of(host: &str, port: u16, hands_over: bool, shard: Option<FollowedShard>, now_ms: u64) -> Following {
        Following {
            host: host.to_owned(),
            port,
            state: AtomicU8::new(LinkState::Connect as u8),
            command: AtomicU8::new(FollowerCommand::GoOn as u8),
            last_io_ms: AtomicU64::new(0),
            down_since_ms: AtomicU64::new(now_ms),
            sync_total_bytes: AtomicU64::new(0),
            sync_bytes: AtomicU64::new(0),
            error: Mutex::default(),
            hands_over: AtomicBool::new(hands_over),
            meets_full: AtomicBool::new(false),
            refuses_pages: AtomicBool::new(false),
            cannot_truncate: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            refusal: Mutex::default(),
            socket: Mutex::default(),
            thread: Mutex::default(),
            rest: Mutex::default(),
            woken: Condvar::new(),
            shard,
        }
    }

    pub fn state(&self) -> LinkState {
        LinkState::ALL[usize::from(self.state.load(SeqCst))]
    }

    pub fn set_state(&self, state: LinkState) {
        self.state.store(state as u8, SeqCst);
    }

    pub fn command(&self) -> FollowerCommand {
        [FollowerCommand::GoOn, FollowerCommand::Stop, FollowerCommand::Promote][usize::from(self.command.load(SeqCst))]
    }

    /// Sends the command to the thread and joins it. A thread that is still connecting is not joined: it has received nothing, and ends by itself.
    pub fn end(&self, command: FollowerCommand) {
        self.send(command);
        let thread = self.thread.lock().take();
        if self.state() != LinkState::Connecting
            && let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("a bug: the thread that follows a primary panicked");
        }
    }

    pub fn send(&self, command: FollowerCommand) {
        // SeqCst, like the state: either the thread sees the command before its handshake, or [`Following::end`] sees the state and joins the thread.
        self.command.store(command as u8, SeqCst);
        if let Some(socket) = &*self.socket.lock() {
            // A promotion shuts down only the reading side: the thread still reads the bytes that have arrived, and then finds the end of the
            // input. A copy of a shard has acknowledged only what it has read.
            let is_drained = command == FollowerCommand::Promote && self.shard.is_none();
            let how = if is_drained { Shutdown::Read } else { Shutdown::Both };
            // It may be disconnected already.
            let _ = socket.shutdown(how);
        }
        drop(self.rest.lock());
        self.woken.notify_all();
    }

    /// Ends the connection if it fits, as if it were a client's. It is made again.
    pub fn hang_up(&self, filter: &ClientFilter) -> bool {
        let ClientFilter { ids, addr, laddr, kind, user, skip_me: _, age_s_min } = filter;
        if !ids.is_empty()
            || user.is_some()
            || age_s_min.is_some()
            || kind.is_some_and(|kind| kind != ClientKind::Master)
        {
            return false;
        }
        let socket = self.socket.lock();
        let Some(LinkSocket::Tcp(socket)) = &*socket else { return false };
        let is = |wanted: &Option<String>, address: io::Result<SocketAddr>| {
            wanted.as_ref().is_none_or(|wanted| address.is_ok_and(|address| address.to_string() == *wanted))
        };
        let is_named = kind.is_some() || addr.is_some() || laddr.is_some();
        is_named
            && is(addr, socket.peer_addr())
            && is(laddr, socket.local_addr())
            && socket.shutdown(Shutdown::Both).is_ok()
    }

    /// Sleeps for this time, or until a command comes.
    pub fn rest(&self, duration: Duration) {
        let mut rest = self.rest.lock();
        if self.command() == FollowerCommand::GoOn {
            self.woken.wait_for(&mut rest, duration);
        }
    }
}

/// Commands of the primary's stream that have failed here.
#[derive(Default)]
pub struct Failures {
    pub count: AtomicU64,
    pub last: Mutex<Option<String>>,
}

impl Failures {
    /// Counts the failure. Returns whether it goes into the log: the first ten do, and then each one that doubles the count.
    pub fn note(&self, error: &str) -> bool {
        *self.last.lock() = Some(error.to_owned());
        let before = self.count.fetch_add(1, Relaxed);
        before < 10 || before.is_power_of_two()
    }
}

/// What a database is to be. Each assignment is newer than those before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    pub epoch: u64,
    pub role: AssignedRole,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AssignedRole {
    #[default]
    Primary,
    /// `hands_over`: the primary is still a replica of this database, and takes over (FAILOVER).
    Replica { host: String, port: u16, hands_over: bool },
}

impl AssignedRole {
    /// `None`: a primary.
    pub fn of(primary: Option<(&str, u16)>) -> AssignedRole {
        match primary {
            None => AssignedRole::Primary,
            Some((host, port)) => AssignedRole::Replica { host: host.to_owned(), port, hands_over: false },
        }
    }

    pub fn primary(&self) -> Option<(&str, u16)> {
        match self {
            AssignedRole::Primary => None,
            AssignedRole::Replica { host, port, .. } => Some((host, *port)),
        }
    }
}

/// Whether the database is a replica, and of whom.
#[derive(Default)]
pub struct RoleState {
    /// What it is to be.
    assigned: Mutex<Assignment>,
    /// The epoch of the assignment that it has reached. It begins as a primary.
    reached: AtomicU64,
    /// Held by the thread that moves it there.
    pub changing: Mutex<()>,
    now: Mutex<Option<Arc<Following>>>,
    pub failures: Arc<Failures>,
    pub received_bytes: AtomicU64,
    /// The primary hands over: see FAILOVER.
    pub takes_over: AtomicBool,
    /// Whom the database followed before it was promoted.
    pub left: Mutex<Option<Left>>,
    /// The end of this database's stream that was lost when it took its last primary's dataset: that primary did not have it.
    pub given_up: Mutex<Option<GivenUp>>,
}

/// A primary that the database has followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub host: String,
    pub port: u16,
    /// It still sent when the database was promoted, so both may take writes.
    pub was_up: bool,
}

/// The end of a stream that the new primary does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    /// The offset from which the two streams differ.
    pub from: u64,
    pub bytes: u64,
    /// The commands in it that write. `None`: the backlog does not have them any more.
    pub writes: Option<u64>,
}

impl RoleState {
    pub fn assign(&self, role: AssignedRole) -> Assignment {
        let mut assigned = self.assigned.lock();
        *assigned = Assignment { epoch: assigned.epoch + 1, role };
        assigned.clone()
    }

    /// The newest.
    pub fn assignment(&self) -> Assignment {
        self.assigned.lock().clone()
    }

    /// Called under the lock of `changing`.
    pub fn reach(&self, assignment: &Assignment) {
        self.reached.store(assignment.epoch, Relaxed);
    }

    /// Whether the database has the role that was assigned last.
    pub fn is_reached(&self) -> bool {
        self.assigned.lock().epoch == self.reached.load(Relaxed)
    }

    /// `None`: the database is a primary.
    pub fn following(&self) -> Option<Arc<Following>> {
        self.now.lock().clone()
    }

    pub fn set(&self, following: Option<Arc<Following>>) {
        *self.now.lock() = following;
    }
}

/// Nothing is being applied: the dataset has all of the stream.
pub const NOTHING_APPLIES: u64 = u64::MAX;

/// What a database has for its replicas and its primary.
pub struct Replication {
    /// Held while commands of the primary are in the stream and not yet applied. Any other holder sees a dataset that agrees with the
    /// stream, if nobody else writes.
    pub apply: Mutex<()>,
    /// While commands of a primary are being applied: the stream's offset up to which the dataset has everything. Otherwise [`NOTHING_APPLIES`].
    pub applies_from: AtomicU64,
    /// Replicas that wait for a dump.
    pub orders: Orders,
    /// When replicas were last told that their primary lives.
    pub told_ms: AtomicU64,
    pub role: RoleState,
    /// A FAILOVER that is under way.
    pub failover: Mutex<Option<Arc<Attempt>>>,
    pub checks: Checks,
    /// `Some`: the database is a copy in a shard with replicas.
    pub promises: OnceLock<Arc<Promises>>,
    /// The offset of the stream before which every copy that can be named primary has everything, as far as is known.
    pub shared: AtomicU64,
    /// News for operators that were not fetched yet, at most [`UNTOLD_MAX`].
    pub untold: Mutex<VecDeque<String>>,
}

impl Default for Replication {
    fn default() -> Replication {
        Replication {
            apply: Mutex::default(),
            applies_from: AtomicU64::new(NOTHING_APPLIES),
            orders: Orders::default(),
            told_ms: AtomicU64::new(0),
            role: RoleState::default(),
            failover: Mutex::default(),
            checks: Checks::default(),
            promises: OnceLock::new(),
            shared: AtomicU64::new(0),
            untold: Mutex::default(),
        }
    }
}

impl Replication {
    pub fn report(&self, news: String) {
        let mut untold = self.untold.lock();
        if untold.len() == UNTOLD_MAX {
            untold.pop_front();
        }
        untold.push_back(news);
    }
}

/// The comparisons of this dataset with that of the primary, or of the replicas. The counts are of this run of the node.
#[derive(Default)]
pub struct Checks(pub Mutex<CheckState>);

pub struct CheckState {
    /// When a primary begins the next, in milliseconds since 1970; 0: no replica has been there.
    pub due_ms: u64,
    pub is_running: bool,
    /// As a primary: digests were sent. As a replica: they were compared.
    pub done: u64,
    pub given_up: u64,
    /// How many have found that the dataset is not the primary's.
    pub differences: u64,
    /// When the last one ended; 0: there was none.
    pub ended_ms: u64,
    /// Of the last one: how many stripes differ, or why it was given up.
    pub last: Result<usize, String>,
}

impl Default for CheckState {
    fn default() -> CheckState {
        let (done, given_up, differences) = (0, 0, 0);
        CheckState { due_ms: 0, is_running: false, done, given_up, differences, ended_ms: 0, last: Ok(0) }
    }
}

/// A FAILOVER.
#[derive(Default)]
pub struct Attempt {
    pub is_aborted: AtomicBool,
    /// A replica has everything, and takes over.
    pub hands_over: AtomicBool,
    /// Whether it was given up, once it is over.
    pub given_up: Mutex<Option<bool>>,
    pub over: Condvar,
}

/// The links that wait for a dump.
#[derive(Default)]
pub struct Orders(pub Mutex<Waiting>);

#[derive(Default)]
pub struct Waiting {
    pub orders: Vec<Arc<Order>>,
    /// A thread makes dumps.
    pub is_served: bool,
    /// The last failure: for whom, when, and why.
    failed: Option<(Contents, Instant, String)>,
}

impl Orders {
    /// Whether some link waits.
    pub fn is_served(&self) -> bool {
        self.0.lock().is_served
    }

    pub fn are_waiting(&self) -> bool {
        !self.0.lock().orders.is_empty()
    }

    /// Why the last dump of this kind has failed, if that was not long ago.
    pub fn failure(&self, contents: Contents, within: Duration) -> Option<String> {
        let waiting = self.0.lock();
        let (of, at, why) = waiting.failed.as_ref()?;
        (*of == contents && at.elapsed() < within).then(|| why.clone())
    }

    pub fn has_failed(&self, contents: Contents, why: &str) {
        self.0.lock().failed = Some((contents, Instant::now(), why.to_owned()));
    }

    /// Those that one dump serves. None: the thread ends.
    pub fn take(&self) -> Vec<Arc<Order>> {
        let mut waiting = self.0.lock();
        // Who has hung up needs no dump.
        waiting.orders.retain(|order| Arc::strong_count(order) > 1);
        let Some(contents) = waiting.orders.first().map(|order| order.contents) else {
            waiting.is_served = false;
            return Vec::new();
        };
        waiting.orders.extract_if(.., |order| order.contents == contents).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_assignment_counts() {
        let role = RoleState::default();
        assert!(role.is_reached(), "it begins as a primary");
        let first = role.assign(AssignedRole::of(Some(("a", 1))));
        let second = role.assign(AssignedRole::of(None));
        assert!(first.epoch < second.epoch);
        role.reach(&first);
        assert!(!role.is_reached());
        assert_eq!(role.assignment(), second);
        role.reach(&second);
        assert!(role.is_reached());
        // The same role once more is to be reached anew.
        role.assign(AssignedRole::Primary);
        assert!(!role.is_reached());
    }
}
