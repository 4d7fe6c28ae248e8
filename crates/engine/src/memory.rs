//! Owns the memory that connections hold beside the objects: who holds how much, who waits for more, and who is ended.
//! Replies, queries, queued commands of transactions and messages (`outbox`) are charged to one budget ([`Store::lend`]), which objects make
//! room for. Never knows a buffer, and never runs a command.
//!
//! ```text
//! hold (in use already) ─────────────────────────────► held ──► give back
//! ask ── fits ──► granted ───────────────────────────►
//!   ├─── never fits ──► an error before the command is tried
//!   └─── does not fit now ──► waits, first come first served ──► granted, or refused when nothing can make room
//! ```
//! A connection that asks gets the memory, gets an error, or waits. **A connection is ended only because *another* one waits.** The
//! connection that holds most is ended in two cases. Either nobody in the queue got memory, and nobody who holds much gave any back, for
//! [`TIMEOUT`]. Or the first in the queue has waited for [`TIMEOUT_WITH_READERS`], although others read slowly. If the one that waits holds
//! most itself, it gets an error.
//! A connection that holds little never waits ([`FREE_BYTES`]), so a client that looks at the node and ends others
//! always works.
//!
//! A client may send much before it reads its replies. What it sends ahead of its turn is received as long as there is memory that
//! nobody else needs ([`Memory::poll_ahead`]). Then its connection is not read from, so TCP slows the client. Nobody is ended for that.

use crate::clients::{ClientInfo, Clients};
use base::size::human;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use store::{Admission, Store, lent_and_room_max};

/// Up to this sum, a connection never waits for memory: it is the receive buffer of a usual pipeline and its replies. While memory is
/// scarce, the sum is [`PAUSE_BYTES_MIN`].
pub const FREE_BYTES: usize = 128 << 10;
/// The largest holder is ended when the first in the queue has waited this long, and nobody got memory or gave any back in this time.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The same, even if others give memory back in this time.
const TIMEOUT_WITH_READERS: Duration = Duration::from_secs(30);
/// The unsent replies at which a batch pauses: the most while memory is free, and the least while it is scarce.
pub const PAUSE_BYTES_MAX: usize = 1 << 20;
const PAUSE_BYTES_MIN: usize = 32 << 10;
const SCRIPT_STEP_BYTES: usize = 1 << 20;
const SCRIPT_BYTES_MAX: usize = 256 << 20;
/// A batch pauses at this part of the free memory.
const PAUSE_SHARE: usize = 32;

pub struct Memory {
    store: Arc<Store>,
    queue: Mutex<VecDeque<Arc<Waiting>>>,
    /// Those who would receive more commands ahead of their turn. They are served when nobody is in the queue.
    ahead: Mutex<VecDeque<Arc<Waiting>>>,
    /// The length of `ahead`.
    waiting_ahead: AtomicUsize,
    /// When a connection of the queue last got its memory, or one that holds much gave some back.
    moved_at: Mutex<Instant>,
    /// The length of the queue.
    waiting: AtomicUsize,
    pause_bytes: AtomicUsize,
    /// It is that of a proxy in a cluster.
    is_of_proxy: AtomicBool,
    /// Connections that were ended because they held most.
    pub evicted: AtomicU64,
    /// How often a connection had to wait for memory.
    pub waits: AtomicU64,
}

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Memory for the connection itself, which is lent.
    pub bytes: usize,
    /// What the command will make of it, for which objects leave room: objects, and their way into the journal.
    pub room: usize,
}

impl From<usize> for Need {
    fn from(bytes: usize) -> Need {
        Need { bytes, room: 0 }
    }
}

/// A place in the queue.
#[derive(Debug)]
struct Waiting {
    client_info: Arc<ClientInfo>,
    need: Need,
    /// Nobody is ended for it, and it is never refused.
    is_ahead: bool,
    since: Instant,
    state: AtomicU8,
    waker: Mutex<Waker>,
}

/// The states of a [`Waiting`], changed only under the lock of its queue.
const IN_QUEUE: u8 = 0;
const GRANTED: u8 = 1;
const REFUSED: u8 = 2;
/// The connection has ended.
const LEFT: u8 = 3;

/// A connection's request for memory, until it is answered.
#[derive(Default, Debug)]
pub struct Request(Option<Arc<Waiting>>);

impl Request {
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// The memory is more than can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    pub bytes: usize,
    pub max: usize,
    /// How many times the bytes are in memory at once.
    pub times: u64,
    /// At a proxy in a cluster: the RAM that it has, by `proxy-ram`.
    pub proxy_ram_bytes: Option<u64>,
}

impl TooMuch {
    pub fn text(self) -> String {
        // Half of what a higher limit brings may be lent, and a sixteenth is its margin.
        let more = (self.bytes.saturating_sub(self.max) as u64).saturating_mul(self.times).saturating_mul(2);
        let more = more.saturating_add(more / 16).saturating_add(1 << 20);
        let (limit, way) = match self.proxy_ram_bytes {
            None => ("the RAM limit", format!("raise ram-limit (or maxmemory-clients) by {}", human(more))),
            Some(now) => (
                "the RAM of this node's proxy",
                format!("set proxy-ram to {} at least", human(now.saturating_add(more))),
            ),
        };
        format!(
            "OOM the command needs {} at once, but {limit} leaves only {} for clients' requests: {way}, or do the work in parts",
            human(self.bytes as u64),
            human(self.max as u64),
        )
    }
}

impl Memory {
    pub fn new(store: Arc<Store>) -> Memory {
        let memory = Memory {
            store,
            queue: Mutex::default(),
            ahead: Mutex::default(),
            waiting_ahead: AtomicUsize::new(0),
            moved_at: Mutex::new(Instant::now()),
            waiting: AtomicUsize::new(0),
            pause_bytes: AtomicUsize::new(0),
            is_of_proxy: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        };
        memory.renew_pause();
        memory
    }

    /// It is that of a proxy in a cluster, which `proxy-ram` limits.
    pub fn set_of_proxy(&self) {
        self.is_of_proxy.store(true, Relaxed);
    }

    /// A batch pauses when this many bytes of its replies wait unsent.
    #[inline]
    pub fn pause_bytes(&self) -> usize {
        self.pause_bytes.load(Relaxed)
    }

    fn renew_pause(&self) {
        let pause = self.store.lendable_bytes() / PAUSE_SHARE;
        self.pause_bytes.store(pause.clamp(PAUSE_BYTES_MIN, PAUSE_BYTES_MAX), Relaxed);
    }

    /// A connection never waits for memory up to this sum: less when memory is scarce.
    fn free_bytes(&self) -> usize {
        self.pause_bytes().min(FREE_BYTES)
    }

    /// Whether buffers should be small.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.pause_bytes() < FREE_BYTES
    }

    /// What the interpreter of one worker may have, unless `script-memory-limit` says it: half of what may be lent is for scripts. It is
    /// not charged, because a script that has started cannot wait.
    pub fn script_bytes_max(&self, workers: usize) -> usize {
        // In steps, so that the limit seldom changes.
        (self.store.lent_bytes_max() / 2 / workers / SCRIPT_STEP_BYTES * SCRIPT_STEP_BYTES).min(SCRIPT_BYTES_MAX)
    }

    /// Sets what a connection holds. The memory is in use already. Not while the connection has an open request.
    pub fn hold(&self, client_info: &ClientInfo, bytes: usize) {
        let before = client_info.held_bytes.swap(bytes, Relaxed);
        if bytes > before {
            self.store.lend(bytes - before);
            self.renew_pause();
        } else if bytes < before {
            self.store.take_back(before - bytes);
            self.renew_pause();
            if before > FREE_BYTES && self.waiting.load(Relaxed) > 0 {
                *self.moved_at.lock() = Instant::now();
            }
            self.serve();
        }
    }

    /// Sets the room that is kept for what the connection's command will make.
    pub fn keep_room(&self, client_info: &ClientInfo, room: usize) {
        let before = client_info.room_bytes.swap(room, Relaxed);
        if before > room {
            self.store.give_up_room(before - room);
            self.serve();
        }
    }

    /// The connection does not need what it asked for. What was granted already stays with it until it settles.
    #[cold]
    pub fn withdraw(&self, request: &mut Request) {
        if let Some(waiting) = request.0.take() {
            // Under the queue's lock: no grant comes after this.
            let queue = if waiting.is_ahead { self.ahead.lock() } else { self.queue.lock() };
            waiting.state.store(LEFT, Relaxed);
            drop(queue);
            self.serve();
        }
    }

    /// The connection ends: it gives everything back.
    pub fn leave(&self, client_info: &ClientInfo, request: &mut Request) {
        self.withdraw(request);
        self.keep_room(client_info, 0);
        if client_info.held_bytes.load(Relaxed) > 0 {
            self.hold(client_info, 0);
        }
    }

    /// Whether the limits can ever grant `need`, which is all that the connection needs together.
    pub fn check(&self, need: impl Into<Need>) -> Result<(), TooMuch> {
        let Need { bytes, room } = need.into();
        let max = self.store.lent_bytes_ever_max();
        if bytes > max {
            return Err(self.refusal(bytes, max, 1));
        }
        if room == 0 {
            return Ok(());
        }
        let (both, max) = (bytes.saturating_add(room), lent_and_room_max(max));
        if both > max { Err(self.refusal(both, max, 1)) } else { Ok(()) }
    }

    /// Whether a command of so many bytes can be received at all. Most of its bytes are in memory twice: in the command and in the object
    /// that it makes.
    pub fn check_query(&self, bytes: usize) -> Result<(), TooMuch> {
        let max = lent_and_room_max(self.store.lent_bytes_ever_max()) / 2;
        if bytes > max { Err(self.refusal(bytes, max, 2)) } else { Ok(()) }
    }

    /// The error for what cannot be had now.
    pub fn too_much(&self, bytes: usize) -> TooMuch {
        let max = self.store.lent_bytes_max().saturating_sub(self.store.lent_bytes());
        self.refusal(bytes, max, 1)
    }

    fn refusal(&self, bytes: usize, max: usize, times: u64) -> TooMuch {
        let proxy_ram_bytes = self.is_of_proxy.load(Relaxed).then(|| self.store.ram_limit());
        TooMuch { bytes, max, times, proxy_ram_bytes }
    }

    /// Adds `need` to what the connection holds if it can be had at once.
    pub fn ask_at_once(&self, client_info: &ClientInfo, need: impl Into<Need>) -> bool {
        let need = need.into();
        (need.room == 0 && self.is_free(client_info, need.bytes))
            || self.waiting.load(Relaxed) == 0 && self.try_grant(client_info, need)
    }

    /// Lends it to the connection.
    fn try_grant(&self, client_info: &ClientInfo, need: Need) -> bool {
        let is_lent = self.store.try_lend_with_room(need.bytes, need.room);
        if is_lent {
            client_info.room_bytes.fetch_add(need.room, Relaxed);
        }
        self.add_if(client_info, need.bytes, is_lent)
    }

    /// As [`Memory::ask_at_once`], for a command inside a transaction or a script. It holds stripes, so it can wait neither for other
    /// connections nor until objects have left RAM.
    pub fn ask_now(&self, client_info: &ClientInfo, bytes: usize) -> bool {
        self.is_free(client_info, bytes) || self.add_if(client_info, bytes, self.store.try_lend_now(bytes))
    }

    /// Lends it to a connection that applies what was accepted elsewhere, even if clients would not get it: a command that is refused now
    /// would be missing in the dataset.
    pub fn take(&self, client_info: &ClientInfo, bytes: usize) {
        self.hold(client_info, client_info.held_bytes.load(Relaxed) + bytes);
    }

    /// Gives the connection bytes that it never waits for: see `free_bytes`. False: with these bytes, it would hold more than that.
    fn is_free(&self, client_info: &ClientInfo, bytes: usize) -> bool {
        let held = client_info.held_bytes.load(Relaxed);
        let is_free = held + bytes <= self.free_bytes();
        if is_free {
            self.hold(client_info, held + bytes);
        }
        is_free
    }

    fn add_if(&self, client_info: &ClientInfo, bytes: usize, is_lent: bool) -> bool {
        if is_lent {
            client_info.held_bytes.fetch_add(bytes, Relaxed);
            self.renew_pause();
        }
        is_lent
    }

    /// The connection holds so much less.
    pub fn give_back(&self, client_info: &ClientInfo, bytes: usize) {
        let held = client_info.held_bytes.load(Relaxed);
        self.hold(client_info, held.saturating_sub(bytes));
    }

    /// Adds `need` to what the connection holds, as soon as there is room. Poll it until it is ready.
    pub fn poll_ask(
        &self,
        client_info: &Arc<ClientInfo>,
        need: impl Into<Need>,
        request: &mut Request,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TooMuch>> {
        if request.0.as_ref().is_some_and(|waiting| waiting.is_ahead) {
            self.withdraw(request);
        }
        if request.0.is_none() {
            let need = need.into();
            self.check(need)?;
            if self.ask_at_once(client_info, need) {
                return Poll::Ready(Ok(()));
            }
            self.waits.fetch_add(1, Relaxed);
            self.enqueue(client_info, need, false, request, cx);
        }
        self.poll_answer(request, cx)
    }

    /// As [`Memory::poll_ask`], for commands that are received ahead of their turn. The connection could also leave them in the socket, so
    /// it gets memory only while nobody waits for any, and something is left for others.
    pub fn poll_ahead(
        &self,
        client_info: &Arc<ClientInfo>,
        bytes: usize,
        request: &mut Request,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if request.0.is_none() {
            let waits = || self.waiting.load(Relaxed) + self.waiting_ahead.load(Relaxed) > 0;
            if self.is_free(client_info, bytes)
                || !waits() && self.add_if(client_info, bytes, self.store.try_lend_spare(bytes))
            {
                return Poll::Ready(());
            }
            self.enqueue(client_info, bytes.into(), true, request, cx);
        }
        self.poll_answer(request, cx).map(|_| ())
    }

    fn enqueue(
        &self,
        client_info: &Arc<ClientInfo>,
        need: Need,
        is_ahead: bool,
        request: &mut Request,
        cx: &Context<'_>,
    ) {
        let waiting = Arc::new(Waiting {
            client_info: Arc::clone(client_info),
            need,
            is_ahead,
            since: Instant::now(),
            state: AtomicU8::new(IN_QUEUE),
            waker: Mutex::new(cx.waker().clone()),
        });
        let (queue, length) = if is_ahead { (&self.ahead, &self.waiting_ahead) } else { (&self.queue, &self.waiting) };
        queue.lock().push_back(Arc::clone(&waiting));
        length.fetch_add(1, Relaxed);
        request.0 = Some(waiting);
        // Memory may have become free in between.
        self.serve();
    }

    fn poll_answer(&self, request: &mut Request, cx: &Context<'_>) -> Poll<Result<(), TooMuch>> {
        let Some(waiting) = &request.0 else { return Poll::Ready(Ok(())) };
        // Under the queue's lock, as all changes of the state: else an answer could miss the waker.
        let _queue = if waiting.is_ahead { self.ahead.lock() } else { self.queue.lock() };
        let answer = match waiting.state.load(Relaxed) {
            GRANTED => Ok(()),
            REFUSED => {
                let Need { bytes, room } = waiting.need;
                let bytes = waiting.client_info.held_bytes.load(Relaxed) + bytes + room;
                let max = self.store.lent_bytes_max();
                Err(self.refusal(bytes, if room > 0 { lent_and_room_max(max) } else { max }, 1))
            }
            _ => {
                waiting.waker.lock().clone_from(cx.waker());
                return Poll::Pending;
            }
        };
        request.0 = None;
        Poll::Ready(answer)
    }

    /// Grants what the first connections of the queue wait for, as far as there is room. Call this when memory was given
    /// back or objects have left RAM. Costs two loads if nobody waits.
    #[inline]
    pub fn serve(&self) {
        self.renew_pause();
        if self.waiting.load(Relaxed) > 0 {
            self.serve_queue();
        }
        if self.waiting_ahead.load(Relaxed) > 0 && self.waiting.load(Relaxed) == 0 {
            self.serve_ahead();
        }
    }

    #[cold]
    fn serve_queue(&self) {
        let mut queue = self.queue.lock();
        while let Some(first) = queue.front() {
            if first.state.load(Relaxed) != LEFT {
                self.store.want_to_lend(first.need.bytes + first.need.room);
                if !self.try_grant(&first.client_info, first.need) {
                    break;
                }
                self.answer(first, GRANTED);
                *self.moved_at.lock() = Instant::now();
            }
            queue.pop_front();
        }
        self.renew_queue(&queue);
    }

    #[cold]
    fn serve_ahead(&self) {
        let mut ahead = self.ahead.lock();
        while let Some(first) = ahead.front() {
            if first.state.load(Relaxed) != LEFT {
                let bytes = first.need.bytes;
                if !self.add_if(&first.client_info, bytes, self.store.try_lend_spare(bytes)) {
                    break;
                }
                self.answer(first, GRANTED);
            }
            ahead.pop_front();
        }
        self.waiting_ahead.store(ahead.len(), Relaxed);
    }

    fn answer(&self, waiting: &Waiting, answer: u8) {
        waiting.state.store(answer, Relaxed);
        waiting.waker.lock().wake_by_ref();
    }

    fn renew_queue(&self, queue: &VecDeque<Arc<Waiting>>) {
        self.waiting.store(queue.len(), Relaxed);
        if queue.is_empty() {
            self.store.want_to_lend(0);
        }
        self.renew_pause();
    }

    /// What connections hold, with what others have sent them.
    pub fn bytes(&self) -> usize {
        self.store.lent_bytes()
    }

    /// The most that connections may hold now. `None`: there is no limit.
    pub fn bytes_max(&self) -> Option<usize> {
        Some(self.store.lent_bytes_max()).filter(|&bytes| bytes != usize::MAX)
    }

    /// The number of connections that wait for memory.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Refuses what cannot be granted, and ends the connection that holds most if others have waited for too long. Call
    /// this some times a second. Returns the connection that was ended.
    pub fn relieve(&self, clients: &Clients, now: Instant) -> Option<Arc<ClientInfo>> {
        self.renew_pause();
        self.serve();
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock();
        // A connection that was ended while it waits must notice.
        queue.retain(|waiting| {
            let is_killed = waiting.client_info.killed.load(Relaxed);
            if is_killed && waiting.state.load(Relaxed) == IN_QUEUE {
                self.answer(waiting, REFUSED);
            }
            !is_killed
        });
        self.renew_queue(&queue);
        let moved_at = *self.moved_at.lock();
        let has_waited = |first: &Waiting| {
            now.duration_since(first.since.max(moved_at)) >= TIMEOUT
                || now.duration_since(first.since) >= TIMEOUT_WITH_READERS
        };
        let first = Arc::clone(queue.front().filter(|first| has_waited(first))?);
        let max = self.store.lent_bytes_max();
        let Need { bytes, room } = first.need;
        let missing = self.store.missing_to_lend(bytes, room);
        if missing > 0 && clients.ending_bytes() >= missing {
            // Connections that were ended give it back in a moment.
            return None;
        }
        // Includes what the connection that waits holds already.
        let own = first.client_info.held_bytes.load(Relaxed) + bytes;
        let fits_alone = own <= max && (room == 0 || own + room <= lent_and_room_max(max));
        let others_hold_it = missing > 0 && fits_alone;
        if others_hold_it && let Some(largest) = clients.end_largest(PAUSE_BYTES_MIN, first.client_info.id) {
            self.evicted.fetch_add(1, Relaxed);
            return Some(largest);
        }
        // While objects still leave RAM, it goes on waiting.
        if !fits_alone || others_hold_it || self.store.admission() == Admission::Full {
            self.answer(&first, REFUSED);
            queue.pop_front();
            self.renew_queue(&queue);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Peer, Transport};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use store::{LimitOf, StoreConfig};

    const MB: usize = 1 << 20;
    /// A quarter of the RAM limit, until the process is measured.
    const MAX: usize = 16 * MB;

    /// The memory of a database, and its clients.
    struct Node {
        memory: Memory,
        clients: Clients,
        sockets: Vec<(UnixStream, UnixStream)>,
    }

    struct Client {
        client_info: Arc<ClientInfo>,
        request: Request,
    }

    impl Node {
        fn new() -> Node {
            let config =
                StoreConfig { ram_limit: 4 * MAX as u64, limit_of: LimitOf::Objects, ..StoreConfig::in_ram(1) };
            Node { memory: Memory::new(Store::new(&config)), clients: Clients::default(), sockets: Vec::new() }
        }

        fn client(&mut self) -> Client {
            let pair = UnixStream::pair().unwrap();
            let client_info = self.clients.add(Transport::Socket(pair.0.as_raw_fd()), Peer::Unix("test".into()), 0, 0);
            self.sockets.push(pair);
            Client { client_info, request: Request::default() }
        }

        fn ask(&self, client: &mut Client, need: impl Into<Need>) -> Poll<Result<(), TooMuch>> {
            let cx = &mut Context::from_waker(Waker::noop());
            self.memory.poll_ask(&client.client_info, need, &mut client.request, cx)
        }

        fn relieve_after(&self, timeout: Duration) -> Option<u64> {
            self.memory.relieve(&self.clients, Instant::now() + timeout).map(|client_info| client_info.id)
        }
    }

    #[test]
    fn who_waits_is_served_in_order_when_memory_is_given_back() {
        let mut node = Node::new();
        let [mut first, mut second, mut third] = [(); 3].map(|()| node.client());
        assert_eq!(node.ask(&mut first, 12 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut second, 8 * MB), Poll::Pending);
        assert_eq!(node.ask(&mut third, MB), Poll::Pending, "it would fit, but does not overtake");
        assert_eq!(node.memory.waiting(), 2);
        node.memory.hold(&first.client_info, 6 * MB);
        assert_eq!(node.ask(&mut second, 8 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut third, MB), Poll::Ready(Ok(())));
        assert_eq!(node.memory.store.lent_bytes(), 15 * MB);
        for client in [&mut first, &mut second, &mut third] {
            node.memory.leave(&client.client_info, &mut client.request);
        }
        assert_eq!((node.memory.store.lent_bytes(), node.memory.waiting()), (0, 0));
    }

    #[test]
    fn what_never_fits_is_refused_before_it_waits() {
        let mut node = Node::new();
        let mut client = node.client();
        let too_much = TooMuch { bytes: MAX + 1, max: MAX, times: 1, proxy_ram_bytes: None };
        assert_eq!(node.ask(&mut client, MAX + 1), Poll::Ready(Err(too_much)));
        assert_eq!(node.memory.check_query(MAX / 12 * 11), Ok(()));
        assert!(
            node.memory.check_query(MAX).is_err(),
            "most of it will be there twice, and other objects keep a little"
        );
        let with_room = |room| node.memory.check(Need { bytes: MB, room });
        assert_eq!(with_room(28 * MB), Ok(()));
        assert!(with_room(29 * MB).is_err());
    }

    #[test]
    fn a_refusal_names_the_directive_that_helps() {
        let node = Node::new();
        let text = |memory: &Memory| memory.check_query(MAX).unwrap_err().text();
        assert!(text(&node.memory).contains(": raise ram-limit (or maxmemory-clients) by "));
        node.memory.set_of_proxy();
        let refused = text(&node.memory);
        assert!(!refused.contains("ram-limit") && refused.contains(": set proxy-ram to "), "{refused}");
        // What it says is enough.
        let words = refused.split_once("set proxy-ram to ").unwrap().1;
        let mb: f64 = words.split_once(" MB at least").unwrap().0.parse().unwrap();
        let ram_limit = (mb * (1 << 20) as f64) as u64;
        let config = StoreConfig { ram_limit, limit_of: LimitOf::Objects, ..StoreConfig::in_ram(1) };
        assert_eq!(Memory::new(Store::new(&config)).check_query(MAX), Ok(()));
    }

    /// Once, a value was charged twice to what may be lent, which is half of the memory: so no value of a quarter of it was taken.
    #[test]
    fn room_for_objects_is_kept_beside_what_is_lent() {
        let mut node = Node::new();
        let [mut first, second, mut third] = [(); 3].map(|()| node.client());
        let need = |bytes: usize, room: usize| Need { bytes: bytes * MB, room: room * MB };
        assert_eq!(node.ask(&mut first, need(8, 8)), Poll::Ready(Ok(())));
        assert_eq!(node.memory.store.lent_bytes(), 8 * MB);
        assert!(node.memory.ask_at_once(&second.client_info, need(0, 8)));
        assert_eq!(node.ask(&mut third, need(0, 8)), Poll::Pending, "the room of the others is kept");
        node.memory.keep_room(&first.client_info, 0);
        assert_eq!(node.ask(&mut third, need(0, 8)), Poll::Ready(Ok(())));
        for client in [&mut first, &mut third] {
            node.memory.leave(&client.client_info, &mut client.request);
        }
        assert!(node.memory.ask_at_once(&first.client_info, need(0, 21)), "who ends gives it back");
    }

    /// Once, a client that sent much before it read was reset after five seconds, although nobody else needed its memory.
    #[test]
    fn nobody_is_ended_for_what_is_received_ahead() {
        let mut node = Node::new();
        let [mut ahead, mut other, mut next] = [(); 3].map(|()| node.client());
        let receive = |node: &Node, client: &mut Client| {
            let cx = &mut Context::from_waker(Waker::noop());
            node.memory.poll_ahead(&client.client_info, MB, &mut client.request, cx)
        };
        while receive(&node, &mut ahead).is_ready() {}
        assert_eq!(node.memory.store.lent_bytes(), 15 * MB, "a little is left for others");
        assert_eq!(receive(&node, &mut next), Poll::Pending);
        assert_eq!((node.memory.waiting(), node.relieve_after(10 * TIMEOUT_WITH_READERS)), (0, None));
        assert_eq!(receive(&node, &mut ahead), Poll::Pending);
        // Others come first, and for them a holder may be ended.
        assert_eq!(node.ask(&mut other, MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut other, MB), Poll::Pending);
        assert_eq!(node.relieve_after(TIMEOUT), Some(ahead.client_info.id));
        node.memory.leave(&ahead.client_info, &mut ahead.request);
        assert_eq!(node.ask(&mut other, MB), Poll::Ready(Ok(())));
        assert_eq!(receive(&node, &mut next), Poll::Ready(()));
        // A command that must have memory does not wait behind what it could do without.
        while receive(&node, &mut next).is_ready() {}
        assert_eq!(node.ask(&mut next, MB), Poll::Ready(Ok(())));
    }

    /// Once, a client was ended because it waited itself.
    #[test]
    fn the_largest_holder_is_refused_and_not_ended_for_itself() {
        let mut node = Node::new();
        let [mut large, mut small] = [(); 2].map(|()| node.client());
        assert_eq!(node.ask(&mut large, 8 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut small, 6 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut large, 4 * MB), Poll::Pending);
        assert_eq!(node.relieve_after(TIMEOUT), None);
        assert!(matches!(node.ask(&mut large, 4 * MB), Poll::Ready(Err(_))));
    }

    #[test]
    fn a_connection_that_holds_little_does_not_wait() {
        let mut node = Node::new();
        let [mut large, mut waiting, mut small] = [(); 3].map(|()| node.client());
        assert_eq!(node.ask(&mut large, MAX), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut waiting, MB), Poll::Pending);
        assert_eq!(node.ask(&mut small, PAUSE_BYTES_MIN), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut small, 1), Poll::Pending, "now it holds as much as is free for all");
        assert!(!node.memory.ask_at_once(&small.client_info, 1));
    }

    /// Once, a connection that had asked for memory and no longer needed it kept its place, and all others waited.
    #[test]
    fn who_withdraws_makes_way() {
        let mut node = Node::new();
        let [mut large, mut second, mut third] = [(); 3].map(|()| node.client());
        assert_eq!(node.ask(&mut large, 10 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut second, 8 * MB), Poll::Pending);
        assert_eq!(node.ask(&mut third, 4 * MB), Poll::Pending);
        node.memory.withdraw(&mut second.request);
        assert_eq!(node.ask(&mut third, 4 * MB), Poll::Ready(Ok(())));
        assert_eq!(second.client_info.held_bytes.load(Relaxed), 0);
    }

    #[test]
    fn the_largest_holder_is_ended_when_nobody_gets_memory() {
        let mut node = Node::new();
        let [mut large, mut larger, mut protected, mut waiting] = [(); 4].map(|()| node.client());
        protected.client_info.no_evict.store(true, Relaxed);
        for (client, bytes) in [(&mut large, 3 * MB), (&mut larger, 4 * MB), (&mut protected, 8 * MB)] {
            assert_eq!(node.ask(client, bytes), Poll::Ready(Ok(())));
        }
        assert_eq!(node.ask(&mut waiting, 5 * MB), Poll::Pending);
        assert_eq!(node.relieve_after(TIMEOUT / 2), None);
        assert_eq!(node.relieve_after(TIMEOUT), Some(larger.client_info.id));
        assert!(larger.client_info.killed.load(Relaxed) && !large.client_info.killed.load(Relaxed));
        assert_eq!(node.relieve_after(TIMEOUT), None, "what it holds is enough, and is about to be free");
        node.memory.leave(&larger.client_info, &mut larger.request);
        assert_eq!(node.ask(&mut waiting, 5 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.relieve_after(10 * TIMEOUT), None);
    }

    #[test]
    fn who_reads_slowly_is_ended_later_than_who_does_not_read() {
        let mut node = Node::new();
        let [mut reader, mut waiting] = [(); 2].map(|()| node.client());
        assert_eq!(node.ask(&mut reader, MAX), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut waiting, 8 * MB), Poll::Pending);
        let before = Instant::now();
        node.memory.hold(&reader.client_info, MAX - MB);
        assert!(*node.memory.moved_at.lock() >= before, "it has given some back");
        // It goes on.
        *node.memory.moved_at.lock() = Instant::now() + 2 * TIMEOUT;
        assert_eq!(node.relieve_after(2 * TIMEOUT + TIMEOUT / 2), None);
        *node.memory.moved_at.lock() = Instant::now() + TIMEOUT_WITH_READERS;
        assert_eq!(
            node.relieve_after(TIMEOUT_WITH_READERS),
            Some(reader.client_info.id),
            "others have waited for long"
        );
    }

    #[test]
    fn who_waits_for_protected_holders_is_refused() {
        let mut node = Node::new();
        let [mut protected, mut waiting] = [(); 2].map(|()| node.client());
        protected.client_info.no_evict.store(true, Relaxed);
        waiting.client_info.no_evict.store(true, Relaxed);
        assert_eq!(node.ask(&mut protected, MAX), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut waiting, MB), Poll::Pending);
        assert_eq!(node.relieve_after(TIMEOUT), None);
        assert_eq!(node.ask(&mut waiting, MB), Poll::Ready(Err(node.memory.refusal(MB, MAX, 1))));
    }

    /// Once, a client that appended to a long string was ended: nobody else held anything, so it was the largest holder itself.
    #[test]
    fn who_holds_itself_what_is_missing_is_refused() {
        let mut node = Node::new();
        let mut client = node.client();
        assert_eq!(node.ask(&mut client, 2 * MB), Poll::Ready(Ok(())));
        assert_eq!(node.ask(&mut client, MAX - MB), Poll::Pending);
        assert_eq!(node.relieve_after(TIMEOUT), None);
        assert!(!client.client_info.killed.load(Relaxed));
        assert!(matches!(node.ask(&mut client, MAX - MB), Poll::Ready(Err(_))));
    }
}
