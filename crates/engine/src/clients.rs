//! Owns the register of connections: what CLIENT LIST shows of each connection, and how other connections end one.
//! Never knows a connection's buffers or what it is doing.

use crate::acl;
use crate::outbox::Outbox;
use crate::routes::Shard;
use crate::waiter::Blocked;
use commands::host::{ClientFilter, ClientKind, Killed, Pause, Space, Unblock};
use commands::session::{Labels, Session};
use parking_lot::Mutex;
use rustix::net::{SendFlags, Shutdown};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The address that a connection came from, and the address where it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Tcp {
        from: SocketAddr,
        to: SocketAddr,
    },
    /// The path of the socket.
    Unix(Arc<str>),
}

impl Peer {
    pub fn is_local(&self) -> bool {
        match self {
            // An IPv4 client of an IPv6 socket has an address like ::ffff:127.0.0.1.
            Peer::Tcp { from, .. } => from.ip().to_canonical().is_loopback(),
            Peer::Unix(_) => true,
        }
    }

    /// The address without its port.
    pub fn ip(&self) -> String {
        match self {
            Peer::Tcp { from, .. } => from.ip().to_canonical().to_string(),
            Peer::Unix(path) => path.to_string(),
        }
    }

    pub fn addr(&self) -> String {
        match self {
            Peer::Tcp { from, .. } => from.to_string(),
            Peer::Unix(path) => format!("{path}:0"),
        }
    }

    pub fn laddr(&self) -> String {
        match self {
            Peer::Tcp { to, .. } => to.to_string(),
            Peer::Unix(path) => format!("{path}:0"),
        }
    }
}

/// How other threads reach a connection's stream.
#[derive(Debug, Clone)]
pub enum Transport {
    Socket(RawFd),
    /// A stream in memory. True: nothing more is read from it.
    Memory(Arc<AtomicBool>),
}

/// What others may see of a connection. Its worker writes, every thread may read. All values may be slightly out of
/// date.
#[derive(Debug)]
pub struct ClientInfo {
    pub id: u64,
    pub peer: Peer,
    transport: Transport,
    created_ms: u64,
    pub active_ms: AtomicU64,
    pub db: AtomicU32,
    /// Id of the last command; [`NO_COMMAND`] before the first command.
    pub command: AtomicUsize,
    pub query_bytes: AtomicUsize,
    pub query_free_bytes: AtomicUsize,
    /// Bytes of replies that the client has not taken yet.
    pub output_bytes: AtomicUsize,
    /// What the connection is charged for: see [`crate::memory`].
    pub held_bytes: AtomicUsize,
    /// The room among the objects that is kept for its command.
    pub room_bytes: AtomicUsize,
    /// When `output_bytes` exceeded the soft limit, in milliseconds; 0: it is below the limit.
    pub soft_since_ms: AtomicU64,
    pub resp3: AtomicBool,
    pub no_evict: AtomicBool,
    pub no_touch: AtomicBool,
    /// The number of queued commands ([`NO_MULTI`] outside a transaction), and their bytes.
    multi: AtomicUsize,
    multi_bytes: AtomicUsize,
    /// Another client or the server has ended this connection: no further command runs.
    pub killed: AtomicBool,
    /// The index of the worker that serves this connection.
    pub worker: usize,
    pub outbox: Outbox,
    /// The state of CLIENT TRACKING, in the bits of [`following`].
    pub following: AtomicU32,
    /// The id of the client that gets the invalidations of this client (REDIRECT); 0: none.
    pub redirect: AtomicU64,
    pub monitors: AtomicBool,
    /// It is a replica's.
    pub is_replica: AtomicBool,
    /// CLIENT PAUSE holds its command.
    pub is_held: AtomicBool,
    /// The number of subscriptions, by [`Space`].
    listens_to: [AtomicU32; 3],
    subscription_bytes: AtomicUsize,
    /// The command that waits for a key.
    pub blocked: Mutex<Option<Arc<Blocked>>>,
    /// Where a command waits that a proxy has sent on: the shard, and the client's id there.
    pub blocked_at: Mutex<Option<(Arc<dyn Shard>, u64)>>,
    user: Mutex<Cow<'static, str>>,
    pub labels: Mutex<Labels>,
}

/// Bits of [`ClientInfo::following`].
pub mod following {
    pub const ON: u32 = 1;
    pub const BCAST: u32 = 1 << 1;
    pub const NOLOOP: u32 = 1 << 2;
    /// The connection that REDIRECT names is gone.
    pub const BROKEN: u32 = 1 << 3;
}

pub const NO_COMMAND: usize = usize::MAX;
const NO_MULTI: usize = usize::MAX;

impl ClientInfo {
    /// Sets the command that CLIENT LIST shows: the running or the last one.
    #[inline]
    pub fn note_command(&self, id: usize) {
        self.command.store(id, Relaxed);
    }

    /// Publishes the session's fields that handlers may have changed.
    pub fn publish(&self, session: &Session) {
        self.db.store(session.db as u32, Relaxed);
        self.resp3.store(session.proto == resp::Proto::Resp3, Relaxed);
        for space in Space::ALL {
            self.listens_to[space as usize].store(session.subscriptions(space) as u32, Relaxed);
        }
        self.subscription_bytes.store(session.subscription_bytes(), Relaxed);
        self.no_evict.store(session.no_evict, Relaxed);
        self.no_touch.store(session.no_touch, Relaxed);
        let multi = session.multi.as_ref();
        self.multi.store(multi.map_or(NO_MULTI, |multi| multi.commands.len()), Relaxed);
        self.multi_bytes.store(multi.map_or(0, |multi| multi.bytes), Relaxed);
        {
            let mut user = self.user.lock();
            if *user != session.user {
                user.clone_from(&session.user);
            }
        }
        let mut labels = self.labels.lock();
        if *labels != session.labels {
            labels.clone_from(&session.labels);
        }
    }

    pub fn user(&self) -> Cow<'static, str> {
        self.user.lock().clone()
    }

    pub fn is_of(&self, user: &str) -> bool {
        *self.user.lock() == user
    }

    /// Sends as much as the socket takes now. `None`: the socket took nothing, or it failed; the connection's task
    /// will find a failure.
    /// Call this on the connection's worker while the outbox is open: then the socket is open too.
    pub fn send_now(&self, bytes: &[u8]) -> Option<usize> {
        let Transport::Socket(fd) = self.transport else { return None };
        // SAFETY: the descriptor is open, because the outbox is closed before the descriptor, on this thread.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()
    }

    /// Shuts the socket down, so that the client sees the end. Call this on the connection's worker while the
    /// connection lives.
    pub fn hang_up(&self) {
        shut(self, Shutdown::Both);
    }

    /// Whether the connection is in Redis's class `pubsub`.
    pub fn listens(&self) -> bool {
        self.listens_to.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// The node's own, through which a dataset or a primary's stream comes. No client may end it.
    pub fn is_loader(&self) -> bool {
        acl::is_loader(&self.user.lock())
    }

    fn kind(&self) -> ClientKind {
        match () {
            () if self.is_replica.load(Relaxed) => ClientKind::Replica,
            () if self.listens() => ClientKind::Pubsub,
            () => ClientKind::Normal,
        }
    }

    /// A connection that was ended does not fit any filter, although its worker may not have closed it yet.
    fn fits(&self, filter: &ClientFilter, now_ms: u64) -> bool {
        !self.killed.load(Relaxed)
            && (filter.ids.is_empty() || filter.ids.contains(&self.id))
            && filter.addr.as_ref().is_none_or(|addr| *addr == self.peer.addr())
            && filter.laddr.as_ref().is_none_or(|addr| *addr == self.peer.laddr())
            && filter.kind.is_none_or(|kind| kind == self.kind())
            && filter.user.as_ref().is_none_or(|user| self.is_of(user))
            && filter.age_s_min.is_none_or(|age| now_ms.saturating_sub(self.created_ms) / 1000 >= age)
    }

    /// CLIENT LIST's line.
    fn line(&self, now_ms: u64, command_name: &dyn Fn(usize) -> &'static str, line: &mut String) {
        let labels = self.labels.lock().clone();
        let (query, query_free) = (self.query_bytes.load(Relaxed), self.query_free_bytes.load(Relaxed));
        let output = self.output_bytes.load(Relaxed);
        let (outbox, outbox_count) = (self.outbox.bytes(), self.outbox.count());
        let [channels, patterns, shard] = &self.listens_to;
        let followed = self.following.load(Relaxed);
        let is = |bit| followed & bit != 0;
        let mut flags = String::new();
        for (flag, on) in [
            ('S', self.is_replica.load(Relaxed)),
            ('O', self.monitors.load(Relaxed)),
            ('P', self.listens()),
            ('b', self.is_blocked()),
            ('x', self.multi.load(Relaxed) != NO_MULTI),
            ('U', matches!(self.peer, Peer::Unix(_))),
            ('e', self.no_evict.load(Relaxed)),
            ('t', is(following::ON)),
            ('R', is(following::BROKEN)),
            ('B', is(following::BCAST)),
            ('T', self.no_touch.load(Relaxed)),
        ] {
            if on {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let command = self.command.load(Relaxed);
        let command = if command == NO_COMMAND { "NULL" } else { command_name(command) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} \
             qbuf={query} qbuf-free={query_free} argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={output} oll={outbox_count} \
             omem={} \
             tot-mem={} events={} cmd={command} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer.addr(),
            self.peer.laddr(),
            // As in Redis, a client without a socket has -1.
            if let Transport::Socket(fd) = self.transport { fd } else { -1 },
            labels.name,
            now_ms.saturating_sub(self.created_ms) / 1000,
            now_ms.saturating_sub(self.active_ms.load(Relaxed)) / 1000,
            self.db.load(Relaxed),
            channels.load(Relaxed),
            patterns.load(Relaxed),
            shard.load(Relaxed),
            // -1 outside a transaction.
            self.multi.load(Relaxed) as i64,
            self.multi_bytes.load(Relaxed),
            output + outbox,
            self.memory_bytes(),
            if output + outbox > 0 { "rw" } else { "r" },
            self.user(),
            if is(following::ON) { self.redirect.load(Relaxed) as i64 } else { -1 },
            if self.resp3.load(Relaxed) { 3 } else { 2 },
            labels.lib_name,
            labels.lib_version,
        );
    }

    pub fn is_blocked(&self) -> bool {
        self.is_held.load(Relaxed) || self.blocked.lock().is_some() || self.blocked_at.lock().is_some()
    }

    /// What the budget for clients counts of this connection: what it holds, and the messages that wait for it.
    pub fn charged_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed) + self.outbox.bytes()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<ClientInfo>()
            + size_of::<Session>()
            + self.query_bytes.load(Relaxed)
            + self.query_free_bytes.load(Relaxed)
            + self.output_bytes.load(Relaxed)
            + self.outbox.bytes()
            + self.multi_bytes.load(Relaxed)
            + self.subscription_bytes.load(Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Clients {
    client_infos: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    count: AtomicUsize,
    last_id: AtomicU64,
    /// The number of clients whose command waits for a key or for the end of a pause.
    pub blocked: Arc<AtomicUsize>,
    /// The number of connections ended because the client did not read what others sent.
    pub too_slow: AtomicU64,
    /// The end of CLIENT PAUSE, in milliseconds since 1970; 0: no pause.
    paused_until_ms: AtomicU64,
    paused_all: AtomicBool,
    /// Why the node makes writers wait, a bit for each [`Hold`]. CLIENT PAUSE and CLIENT UNPAUSE do not touch it.
    held: AtomicU8,
    /// The operator has paused the whole database: commands are refused.
    pub suspended: AtomicBool,
    /// The database is a replica that has lost its primary, and must not answer then.
    pub stale: AtomicBool,
    /// The database owns no stripe: commands come back unexecuted.
    pub owns_nothing: AtomicBool,
    /// The last dump has failed, and writes are refused for that.
    pub unsaved: AtomicBool,
    /// A [`LoadState`].
    load_state: AtomicU8,
}

/// What keeps clients from the dataset as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LoadState {
    Open,
    /// The dataset is being loaded. Commands are refused.
    Loading,
    /// The same for a primary's dataset: the database may also be told to follow somebody else, or nobody.
    Arriving,
}

/// Why the node makes writers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// A replica takes over.
    Failover = 1,
    /// The node ends: replicas get what they lack, and the last checkpoint has every write.
    End = 2,
}

/// Sums for INFO.
#[derive(Debug, Default, Clone, Copy)]
pub struct ClientTotals {
    pub count: usize,
    pub query_bytes_max: usize,
    pub output_bytes_max: usize,
    pub memory_bytes: usize,
    /// Connections of class `pubsub`.
    pub listening: usize,
}

impl Clients {
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub fn add(&self, transport: Transport, peer: Peer, worker: usize, now_ms: u64) -> Arc<ClientInfo> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let client_info = Arc::new(ClientInfo {
            id,
            peer,
            transport,
            created_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicU32::new(0),
            command: AtomicUsize::new(NO_COMMAND),
            query_bytes: AtomicUsize::new(0),
            query_free_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            room_bytes: AtomicUsize::new(0),
            soft_since_ms: AtomicU64::new(0),
            resp3: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            multi: AtomicUsize::new(NO_MULTI),
            multi_bytes: AtomicUsize::new(0),
            killed: AtomicBool::new(false),
            worker,
            outbox: Outbox::default(),
            following: AtomicU32::new(0),
            redirect: AtomicU64::new(0),
            monitors: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            listens_to: Default::default(),
            subscription_bytes: AtomicUsize::new(0),
            blocked: Mutex::default(),
            blocked_at: Mutex::default(),
            user: Mutex::new("default".into()),
            labels: Mutex::default(),
        });
        self.count.fetch_add(1, Relaxed);
        self.client_infos.lock().insert(id, Arc::clone(&client_info));
        client_info
    }

    /// Call this before the connection's socket is closed: afterwards no thread uses its descriptor.
    pub fn remove(&self, client_info: &ClientInfo) {
        if self.client_infos.lock().remove(&client_info.id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// Ends a connection whose client does not read what others send, if the connection still exists.
    pub fn end_too_slow(&self, client_info: &ClientInfo) {
        self.too_slow.fetch_add(1, Relaxed);
        if self.client_infos.lock().contains_key(&client_info.id) {
            end(client_info);
        }
    }

    pub fn client_info(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.client_infos.lock().get(&id).cloned()
    }

    pub fn cards_where(&self, fits: impl Fn(&ClientInfo) -> bool) -> Vec<Arc<ClientInfo>> {
        self.client_infos.lock().values().filter(|client_info| fits(client_info)).cloned().collect()
    }

    pub fn list(&self, filter: &ClientFilter, now_ms: u64, command_name: &dyn Fn(usize) -> &'static str) -> String {
        let client_infos: Vec<Arc<ClientInfo>> = self.client_infos.lock().values().cloned().collect();
        let mut lines = String::new();
        for client_info in client_infos.iter().filter(|client_info| client_info.fits(filter, now_ms)) {
            client_info.line(now_ms, command_name, &mut lines);
        }
        lines
    }

    /// Ends the wait of all clients that are blocked.
    /// Ends the wait of a client whose command waits. False: it does not.
    pub fn unblock(&self, id: u64, how: Unblock) -> bool {
        let Some(client_info) = self.client_info(id) else { return false };
        if let Some((shard, client)) = client_info.blocked_at.lock().clone() {
            return shard.unblock(client, how);
        }
        let blocked = client_info.blocked.lock().clone();
        blocked.is_some_and(|blocked| blocked.unblock(how))
    }

    pub fn unblock_all(&self, how: Unblock) {
        let client_infos: Vec<Arc<ClientInfo>> = self.client_infos.lock().values().cloned().collect();
        for client_info in client_infos {
            let blocked = client_info.blocked.lock().clone();
            if let Some(blocked) = blocked {
                blocked.unblock(how);
            }
        }
    }

    /// The caller is counted but not ended: its connection ends after the reply.
    pub fn kill(&self, me: u64, filter: &ClientFilter, now_ms: u64) -> Killed {
        let client_infos = self.client_infos.lock();
        let mut killed = Killed { count: 0, me: false };
        for client_info in
            client_infos.values().filter(|client_info| client_info.fits(filter, now_ms) && !client_info.is_loader())
        {
            match client_info.id == me {
                true if filter.skip_me => continue,
                true => killed.me = true,
                false => end(client_info),
            }
            killed.count += 1;
        }
        killed
    }

    /// Ends every connection for which `why` returns true.
    pub fn end_where(&self, mut why: impl FnMut(&ClientInfo) -> bool) -> usize {
        let client_infos = self.client_infos.lock();
        client_infos.values().filter(|client_info| why(client_info)).map(|client_info| end(client_info)).count()
    }

    /// What connections still hold that were ended.
    pub fn ending_bytes(&self) -> usize {
        let client_infos = self.client_infos.lock();
        client_infos
            .values()
            .filter(|client_info| client_info.killed.load(Relaxed))
            .map(|client_info| client_info.charged_bytes())
            .sum()
    }

    /// Ends the connection that holds most memory, if that is more than `bytes_min`, except those with CLIENT NO-EVICT
    /// and the node's own.
    /// Messages from others count too. `None`: nobody may be ended, or it is the connection `waits`, for which this would be done.
    pub fn end_largest(&self, bytes_min: usize, waits: u64) -> Option<Arc<ClientInfo>> {
        let client_infos = self.client_infos.lock();
        let may_end = |client_info: &&Arc<ClientInfo>| {
            let is_kept = client_info.killed.load(Relaxed) || client_info.no_evict.load(Relaxed);
            // Without the node's own connections, the dataset would miss what they apply.
            !is_kept && !client_info.is_loader()
        };
        let largest = client_infos.values().filter(may_end).max_by_key(|client_info| client_info.charged_bytes())?;
        if largest.charged_bytes() <= bytes_min || largest.id == waits {
            return None;
        }
        end(largest);
        Some(Arc::clone(largest))
    }

    /// Stops reading from all clients. Commands that were already read still run and are answered.
    pub fn hang_up_all(&self) {
        for client_info in self.client_infos.lock().values() {
            shut(client_info, Shutdown::Read);
        }
    }

    pub fn totals(&self) -> ClientTotals {
        let client_infos = self.client_infos.lock();
        let mut totals = ClientTotals { count: client_infos.len(), ..ClientTotals::default() };
        for client_info in client_infos.values() {
            totals.query_bytes_max = totals.query_bytes_max.max(client_info.query_bytes.load(Relaxed));
            totals.output_bytes_max =
                totals.output_bytes_max.max(client_info.output_bytes.load(Relaxed) + client_info.outbox.bytes());
            totals.listening += usize::from(client_info.listens());
            totals.memory_bytes += client_info.memory_bytes();
        }
        totals
    }

    /// CLIENT PAUSE. As in Redis, a pause never shortens or weakens the current one.
    pub fn pause(&self, until_ms: u64, what: Pause, now_ms: u64) {
        let running = self.paused_until_ms.load(Relaxed) > now_ms;
        let all = what == Pause::All || (running && self.paused_all.load(Relaxed));
        self.paused_all.store(all, Relaxed);
        if running {
            self.paused_until_ms.fetch_max(until_ms, Relaxed);
        } else {
            self.paused_until_ms.store(until_ms, Relaxed);
        }
    }

    /// CLIENT UNPAUSE.
    pub fn unpause(&self) {
        self.paused_until_ms.store(0, Relaxed);
    }

    /// Makes writers wait, until every reason is gone.
    pub fn hold_writers(&self, why: Hold) {
        self.held.fetch_or(why as u8, Relaxed);
    }

    pub fn let_writers(&self, why: Hold) {
        self.held.fetch_and(!(why as u8), Relaxed);
    }

    /// Until when writers wait, in milliseconds since 1970.
    pub fn writers_wait_until_ms(&self) -> u64 {
        match self.held.load(Relaxed) {
            0 => self.paused_until_ms.load(Relaxed),
            _ => u64::MAX,
        }
    }

    /// A few relaxed loads, done for every command.
    #[inline(always)]
    pub fn may_be_paused(&self) -> bool {
        self.paused_until_ms.load(Relaxed) != 0
            || self.held.load(Relaxed) != 0
            || self.suspended.load(Relaxed)
            || self.load_state.load(Relaxed) != LoadState::Open as u8
            || self.unsaved.load(Relaxed)
            || self.stale.load(Relaxed)
            || self.owns_nothing.load(Relaxed)
    }

    pub fn set_load_state(&self, load_state: LoadState) {
        self.load_state.store(load_state as u8, Relaxed);
    }

    pub fn load_state(&self) -> LoadState {
        [LoadState::Open, LoadState::Loading, LoadState::Arriving][usize::from(self.load_state.load(Relaxed))]
    }

    /// Whether a command must wait now. Clears a pause that is over.
    pub fn is_paused(&self, is_write: bool, now_ms: u64) -> bool {
        if is_write && self.held.load(Relaxed) != 0 {
            return true;
        }
        let until_ms = self.paused_until_ms.load(Relaxed);
        if until_ms != 0 && until_ms <= now_ms {
            // The exchange fails if another thread has set a new pause in the meantime.
            let _ = self.paused_until_ms.compare_exchange(until_ms, 0, Relaxed, Relaxed);
            return false;
        }
        until_ms != 0 && (is_write || self.paused_all.load(Relaxed))
    }
}

fn end(client_info: &ClientInfo) {
    client_info.killed.store(true, Relaxed);
    if client_info.outbox.is_sent_by_task() {
        // TLS ends with a message, which only the connection's task can send. If the client has already ended its side, the shutdown does
        // not wake the task, so the outbox does.
        shut(client_info, Shutdown::Read);
        client_info.outbox.wake();
    } else {
        shut(client_info, Shutdown::Both);
    }
}

/// The shutdown of the stream wakes the connection's task on its worker, as if the client had hung up.
fn shut(client_info: &ClientInfo, how: Shutdown) {
    let fd = match &client_info.transport {
        Transport::Socket(fd) => *fd,
        Transport::Memory(is_shut) => {
            is_shut.store(true, Relaxed);
            client_info.outbox.wake();
            return;
        }
    };
    // SAFETY: the descriptor is open: a connection leaves the register before its socket is closed, and the
    // register's lock is held here.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // The socket may already be disconnected (ENOTCONN); then nothing is left to do.
    let _ = rustix::net::shutdown(fd, how);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn peer(port: u16) -> Peer {
        Peer::Tcp { from: ([127, 0, 0, 1], port).into(), to: ([127, 0, 0, 1], 6379).into() }
    }

    #[test]
    fn only_the_killed_client_sees_the_end() {
        let clients = Clients::default();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (other, _keep) = UnixStream::pair().unwrap();
        let client_info = clients.add(Transport::Socket(ours.as_raw_fd()), peer(1000), 0, 5_000);
        let other_card = clients.add(Transport::Socket(other.as_raw_fd()), peer(1001), 0, 5_000);
        let filter = ClientFilter { addr: Some("127.0.0.1:1000".to_owned()), ..ClientFilter::default() };
        let killed = clients.kill(other_card.id, &filter, 6_000);
        assert_eq!(killed, Killed { count: 1, me: false });
        assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
        assert!(client_info.killed.load(Relaxed));
        assert!(!other_card.killed.load(Relaxed));
        clients.remove(&client_info);
        assert_eq!(clients.count(), 1);
    }

    #[test]
    fn kill_skips_the_caller_or_leaves_it_to_end_itself() {
        let clients = Clients::default();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let client_info = clients.add(Transport::Socket(ours.as_raw_fd()), peer(1), 0, 0);
        let skip = ClientFilter { skip_me: true, ..ClientFilter::default() };
        assert_eq!(clients.kill(client_info.id, &skip, 1), Killed { count: 0, me: false });
        assert_eq!(clients.kill(client_info.id, &ClientFilter::default(), 1), Killed { count: 1, me: true });
        assert!(!client_info.killed.load(Relaxed));
    }

    #[test]
    fn a_pause_expires_and_a_shorter_one_does_not_shorten_it() {
        let clients = Clients::default();
        assert!(!clients.may_be_paused());
        clients.pause(1_000, Pause::Write, 0);
        clients.pause(500, Pause::Write, 0);
        assert!(clients.is_paused(true, 900));
        assert!(!clients.is_paused(false, 900));
        clients.pause(1_000, Pause::All, 900);
        assert!(clients.is_paused(false, 950));
        assert!(!clients.is_paused(false, 1_000));
        assert!(!clients.may_be_paused());
    }

    #[test]
    fn a_hold_and_a_pause_end_each_for_itself() {
        let clients = Clients::default();
        clients.pause(1_000, Pause::All, 0);
        clients.hold_writers(Hold::End);
        clients.hold_writers(Hold::Failover);
        assert_eq!(clients.writers_wait_until_ms(), u64::MAX);
        clients.let_writers(Hold::End);
        clients.unpause();
        assert!(clients.is_paused(true, 2_000));
        assert!(!clients.is_paused(false, 500));
        clients.pause(3_000, Pause::All, 2_000);
        clients.let_writers(Hold::Failover);
        assert_eq!(clients.writers_wait_until_ms(), 3_000);
        assert!(clients.is_paused(false, 2_500));
        assert!(!clients.is_paused(true, 3_000));
        assert!(!clients.may_be_paused());
    }

    #[test]
    fn a_line_shows_what_the_session_published() {
        let clients = Clients::default();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let client_info = clients.add(Transport::Socket(ours.as_raw_fd()), peer(7), 0, 1_000);
        let mut session = Session::new(client_info.id, true, true);
        session.db = 3;
        session.labels.name = "worker".into();
        client_info.publish(&session);
        let list = clients.list(&ClientFilter::default(), 4_000, &|_| "get");
        assert!(list.starts_with("id=1 addr=127.0.0.1:7 laddr=127.0.0.1:6379 fd="), "{list}");
        assert!(list.contains(" name=worker age=3 idle=3 flags=N db=3 "), "{list}");
        assert!(list.contains(" cmd=NULL user=default "), "{list}");
        assert!(list.ends_with('\n'));
    }
}
