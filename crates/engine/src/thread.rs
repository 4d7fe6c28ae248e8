//! Owns a worker: its thread, its runtime, its side of the store, and what its connections share. Never knows a
//! command.

use crate::access;
use crate::acl::Role;
use crate::clients::Peer;
use crate::exchange::Targets;
use crate::execute::Engine;
use crate::fair_queue::FairQueue;
use crate::hub::Hub;
use crate::journaling::{CommitWaiter, WriteAdmission};
use crate::nested_poll;
use crate::reply_coalescer::ReplyCoalescer;
use crate::script::Interpreter;
use crate::session::{Buffers, Connection, Stream, TlsSocket, Work};
use crate::stats::WorkerStats;
use crate::task_slot::{OwnTaskSlot, TaskSlots};
use crate::worker::serve;
use crate::worker_handle::{Arrival, Message, Socket};
use base::clock::{wall_ms, wall_nanos};
use commands::Settings;
use commands::session::Session;
use config::{Config, Policy};
use resp::Limits;
use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{Lane, Maintain};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use value::list::Limit;

/// A copy of the configuration that a worker reads for each command without a lock.
pub struct ConfigSnapshot {
    version: u64,
    pub config: Arc<Config>,
    pub settings: Settings,
    pub limits: Limits,
    pub query_bytes_max: usize,
    /// The largest number of reply bytes that one batch may leave unsent.
    pub output_bytes_max: usize,
    /// Commands that take longer than this may concern the slow log or the latency monitor.
    pub slow_nanos: u64,
    pub latency_tracking: bool,
}

impl ConfigSnapshot {
    pub fn new(config: Arc<Config>, version: u64) -> ConfigSnapshot {
        let slow_log = u64::try_from(config.slowlog_log_slower_than_us).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let monitor = match config.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        ConfigSnapshot {
            version,
            settings: Settings {
                hash_max_listpack_entries: config.hash_max_listpack_entries,
                hash_max_listpack_value: config.hash_max_listpack_value,
                list_limit: Limit::of(config.list_max_listpack_size),
                set_max_intset_entries: config.set_max_intset_entries,
                set_max_listpack_entries: config.set_max_listpack_entries,
                set_max_listpack_value: config.set_max_listpack_value,
                zset_max_listpack_entries: config.zset_max_listpack_entries,
                zset_max_listpack_value: config.zset_max_listpack_value,
                hll_sparse_max_bytes: config.hll_sparse_max_bytes,
                stream_node_max_bytes: config.stream_node_max_bytes,
                stream_node_max_entries: config.stream_node_max_entries,
                proto_max_bulk_len: config.proto_max_bulk_len_bytes,
                databases: config.databases,
                claim_free_bytes: match config.ram_limit_bytes.max(config.maxmemory_clients_bytes) {
                    0 => usize::MAX,
                    _ => CLAIM_FREE_BYTES,
                },
                lfu: matches!(config.maxmemory_policy, Policy::AllKeysLfu | Policy::VolatileLfu),
            },
            limits: Limits { bulk_bytes_max: config.proto_max_bulk_len_bytes, ..Limits::DEFAULT },
            query_bytes_max: config.client_query_buffer_limit_bytes,
            output_bytes_max: match config.output_limit_normal.hard_bytes {
                0 => usize::MAX,
                bytes => bytes as usize,
            },
            slow_nanos: slow_log.min(monitor),
            latency_tracking: config.latency_tracking,
            config,
        }
    }
}

/// What a command may make at once without asking for memory.
const CLAIM_FREE_BYTES: usize = 256 << 10;

pub struct Worker {
    pub hub: Arc<Hub>,
    pub index: usize,
    lane: RefCell<Lane>,
    snapshot: RefCell<Rc<ConfigSnapshot>>,
    #[expect(clippy::vec_box, reason = "a connection takes the box as it is, without moving what is in it")]
    pool: RefCell<Vec<Box<Work>>>,
    /// Buffers that waiting connections have given back.
    spare: RefCell<Vec<Buffers>>,
    /// Connections to other servers, kept for the next exchange.
    pub targets: Targets,
    /// The Lua interpreter, made for the first script.
    pub interpreter: RefCell<Option<Interpreter>>,
    /// The tasks that may continue while a script blocks the thread.
    pub task_slots: TaskSlots,
    clock: quanta::Clock,
    /// Wakes the maintenance task at once: flash has completed what was awaited, or a command waits for room.
    pub pressed: Notify,
    /// The order of the connections that have much to do.
    pub fair_queue: FairQueue,
    /// The connections whose replies wait until other connections have been served.
    pub reply_coalescer: ReplyCoalescer,
    /// The connections that wait for the journal.
    pub commit_waiter: CommitWaiter,
    /// [`TURN_NANOS`] in clock ticks.
    pub turn_ticks: u64,
    now_ms: Cell<u64>,
    /// A moment in clock ticks, and in nanoseconds since 1970.
    moment: Cell<(u64, u64)>,
}

/// Buffers kept for reuse. Each connection that waits for flash needs one.
const POOL_MAX: usize = 64;

impl Worker {
    pub fn new(hub: Arc<Hub>, index: usize, lane: Lane) -> Worker {
        let snapshot = ConfigSnapshot::new(hub.config.snapshot(), hub.config.version());
        let clock = quanta::Clock::new();
        Worker {
            commit_waiter: CommitWaiter::new(Arc::clone(&hub.journaling), index),
            hub,
            index,
            lane: RefCell::new(lane),
            snapshot: RefCell::new(Rc::new(snapshot)),
            pool: RefCell::default(),
            spare: RefCell::default(),
            targets: Targets::default(),
            interpreter: RefCell::default(),
            task_slots: TaskSlots::default(),
            pressed: Notify::new(),
            fair_queue: FairQueue::default(),
            reply_coalescer: ReplyCoalescer::default(),
            turn_ticks: turn_ticks(&clock),
            moment: Cell::new((clock.raw(), wall_nanos())),
            clock,
            now_ms: Cell::new(wall_ms()),
        }
    }

    #[inline]
    pub fn stats(&self) -> &WorkerStats {
        &self.hub.stats.workers[self.index]
    }

    pub fn lane(&self) -> RefMut<'_, Lane> {
        self.lane.borrow_mut()
    }

    /// Reloads the configuration if it has changed. Costs one load if it has not.
    #[inline]
    pub fn refresh_snapshot(&self, snapshot: &mut Rc<ConfigSnapshot>) {
        if snapshot.version != self.hub.config.version() {
            *snapshot = self.config_snapshot();
        }
    }

    /// Returns `snapshot` if it is still current. Otherwise puts the newest configuration into `newer` and returns that.
    #[inline]
    pub fn newest<'l>(
        &self,
        snapshot: &'l ConfigSnapshot,
        newer: &'l mut Option<Rc<ConfigSnapshot>>,
    ) -> &'l ConfigSnapshot {
        match snapshot.version == self.hub.config.version() {
            true => snapshot,
            false => newer.insert(self.config_snapshot()),
        }
    }

    /// The current configuration. Call this once per batch.
    #[inline]
    pub fn config_snapshot(&self) -> Rc<ConfigSnapshot> {
        let version = self.hub.config.version();
        let snapshot = self.snapshot.borrow();
        if snapshot.version == version {
            return Rc::clone(&snapshot);
        }
        drop(snapshot);
        self.renew(version)
    }

    #[cold]
    fn renew(&self, version: u64) -> Rc<ConfigSnapshot> {
        let snapshot = Rc::new(ConfigSnapshot::new(self.hub.config.snapshot(), version));
        *self.snapshot.borrow_mut() = Rc::clone(&snapshot);
        snapshot
    }

    /// The wall clock, in milliseconds since 1970. Call this once per batch.
    pub fn refresh_now_ms(&self) -> u64 {
        self.now_ms_at(self.ticks())
    }

    /// Like [`Worker::refresh_now_ms`], if the ticks were read just now. For a turn's time the wall clock is computed from the ticks:
    /// to read it takes ten times as long.
    #[inline]
    pub fn now_ms_at(&self, ticks: u64) -> u64 {
        let (from, mut nanos) = self.moment.get();
        if ticks.wrapping_sub(from) < self.turn_ticks {
            nanos += self.nanos(from, ticks);
        } else {
            nanos = wall_nanos();
            self.moment.set((ticks, nanos));
        }
        self.now_ms.set(nanos / 1_000_000);
        self.now_ms.get()
    }

    /// Wall clock, microseconds since 1970.
    pub fn time_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
    }

    /// The wall clock at the start of the last batch, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// A monotonic counter of unknown unit. Reading it takes a few nanoseconds.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock.raw()
    }

    #[inline]
    pub fn nanos(&self, from: u64, to: u64) -> u64 {
        self.clock.delta_as_nanos(from, to)
    }

    /// What this worker gives to a command's handler.
    #[inline]
    pub fn engine<'a>(&'a self, snapshot: &'a ConfigSnapshot, now_ms: u64) -> Engine<'a> {
        Engine { store: &self.hub.store, settings: &snapshot.settings, server: self, now_ms }
    }

    pub fn take_work(&self) -> Box<Work> {
        if let Some(work) = self.pool.borrow_mut().pop() {
            return work;
        }
        let spare = self.spare.borrow_mut().pop();
        Box::new(Work::new(spare.unwrap_or_else(|| match self.hub.memory.is_scarce() {
            true => Buffers::small(),
            false => Buffers::default(),
        })))
    }

    pub fn give_work(&self, mut work: Box<Work>) {
        let mut pool = self.pool.borrow_mut();
        if pool.len() < POOL_MAX {
            work.clear();
            if work.has_grown() && self.hub.memory.is_scarce() {
                return;
            }
            if work.lacks_buffers() {
                let Some(buffers) = self.spare.borrow_mut().pop() else { return };
                work.equip(buffers);
            }
            pool.push(work);
        }
    }

    /// If there are many connections, a waiting one gives up its large buffers. It then needs only one or two
    /// kilobytes.
    pub fn make_small(&self, work: &mut Work) {
        if self.hub.worker_handles[self.index].connections.load(Relaxed) <= POOL_MAX {
            return;
        }
        if let Some(buffers) = work.lend() {
            let mut spare = self.spare.borrow_mut();
            if spare.len() < POOL_MAX {
                spare.push(buffers);
            }
        }
    }

    /// For sending to other connections.
    pub fn connection_ended(&self) {
        self.hub.worker_handles[self.index].connections.fetch_sub(1, Relaxed);
    }

    /// Runs a slice of demotion if the last batch made one necessary.
    #[inline]
    pub fn maintain_if_wanted(&self) {
        let mut lane = self.lane.borrow_mut();
        if lane.wants_maintenance() {
            lane.hold_deletions(self.hub.journaling.write_admission() == WriteAdmission::Behind);
            lane.maintain(self.now_ms.get());
        }
    }

    fn has_connections(&self) -> bool {
        self.hub.worker_handles[self.index].connections.load(Relaxed) > 0
    }
}

/// A batch that has run this long yields to other connections.
const TURN_NANOS: u64 = 1_000_000;

fn turn_ticks(clock: &quanta::Clock) -> u64 {
    const TICKS: u64 = 1 << 30;
    TURN_NANOS * TICKS / clock.delta_as_nanos(0, TICKS).max(1)
}

/// When the server stops, connections that have not ended after this time are given up.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs a worker from start to end, on its thread. `open_lane` runs on that thread because an io_uring belongs to the
/// thread that made it.
pub async fn run(
    hub: Arc<Hub>,
    index: usize,
    messages: UnboundedReceiver<Message>,
    open_lane: impl FnOnce() -> io::Result<Lane>,
    started: std::sync::mpsc::Sender<io::Result<()>>,
) {
    // The starter waits for this answer. If the starter is gone, nobody needs the answer.
    let lane = match open_lane() {
        Ok(lane) => lane,
        Err(error) => return drop(started.send(Err(error))),
    };
    let worker = Rc::new(Worker::new(hub, index, lane));
    nested_poll::begin(&worker);
    let wake_fd = worker.lane().wake_fd();
    let completions = match wake_fd {
        // SAFETY: the descriptor belongs to the driver. The driver lives in the worker's lane at least as long as
        // this task.
        Some(fd) => match unsafe { AsyncFd::register_with_interest(Fd(fd), Interest::READABLE) } {
            Ok(fd) => Some(tokio::task::spawn_local(take_completions(Rc::clone(&worker), fd))),
            Err(error) => return drop(started.send(Err(error.into()))),
        },
        None => None,
    };
    let mut upkeep = tokio::task::spawn_local(keep_up(Rc::clone(&worker)));
    let mut delivery_task = tokio::task::spawn_local(deliver(Rc::clone(&worker)));
    let mut fair_queue = tokio::task::spawn_local(hand_out_turns(Rc::clone(&worker)));
    let mut reply_coalescer = tokio::task::spawn_local(serve_reply_coalescer(Rc::clone(&worker)));
    let mut commit_waiter = tokio::task::spawn_local(serve_commit_waiter(Rc::clone(&worker)));
    let _ = started.send(Ok(()));
    let mut completions = completions.unwrap_or_else(|| tokio::task::spawn_local(std::future::pending()));
    tokio::select! {
        () = stopped(&worker, messages) => {}
        ended = &mut upkeep => fatal("demotion and expiry", ended),
        ended = &mut completions => fatal("flash completions", ended),
        ended = &mut delivery_task => fatal("messages", ended),
        ended = &mut fair_queue => fatal("fair_queue", ended),
        ended = &mut reply_coalescer => fatal("replies", ended),
        ended = &mut commit_waiter => fatal("the journal's commit_waiter", ended),
    }
    for task in [upkeep, completions, delivery_task, fair_queue, reply_coalescer, commit_waiter] {
        task.abort();
        // Wait until the task has dropped its reference to the worker.
        let _ = task.await;
    }
    worker.lane().drain();
}

/// Serves until a Stop message arrives, and then until the connections have ended.
async fn stopped(worker: &Rc<Worker>, messages: UnboundedReceiver<Message>) {
    worker.task_slots.take(|_| receive(Rc::clone(worker), messages)).await;
    let deadline = tokio::time::Instant::now() + STOP_TIMEOUT;
    while worker.has_connections() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A worker without its maintenance tasks would hang its clients one by one. So the process stops at once and can be
/// restarted.
fn fatal(what: &str, ended: Result<(), tokio::task::JoinError>) -> ! {
    let how = ended.map_or_else(|error| error.to_string(), |()| "without an error".to_owned());
    tracing::error!("a bug: the worker's task for {what} has ended, {how}; the process stops");
    std::process::abort();
}

async fn receive(worker: Rc<Worker>, mut messages: UnboundedReceiver<Message>) {
    while let Some(message) = messages.recv().await {
        let arrival = match message {
            Message::Serve(arrival) => arrival,
            Message::Sleep(until) => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                continue;
            }
            Message::ForgetScripts => {
                worker.forget_scripts();
                continue;
            }
            Message::Stop => return,
        };
        attend(&worker, arrival);
    }
}

/// Serves a connection in a task of its own. What TLS needs first is another task: each layer around a task costs some
/// 70 instructions a command.
fn attend(worker: &Rc<Worker>, Arrival { socket, peer }: Arrival) {
    let role = match socket {
        Socket::Console(_, role) => Some(role),
        _ => None,
    };
    match socket {
        Socket::Tcp(socket) => start(worker, TcpStream::from_std(socket).map(Stream::Tcp), peer, role),
        Socket::Unix(socket) | Socket::Console(socket, _) => {
            start(worker, UnixStream::from_std(socket).map(Stream::Unix), peer, role);
        }
        Socket::Tls(socket, settings) => {
            let worker_of_task = Rc::clone(worker);
            let seated = worker.task_slots.take(|_| async move {
                start(&worker_of_task, greet(socket, settings).await, peer, role);
            });
            drop(tokio::task::spawn_local(seated));
        }
    }
}

fn start(worker: &Rc<Worker>, stream: io::Result<Stream>, peer: Peer, role: Option<Role>) {
    match stream {
        Ok(stream) => {
            let connection = |task_slot| begin(Rc::clone(worker), stream, peer, role, task_slot);
            drop(tokio::task::spawn_local(worker.task_slots.take(|task_slot| serve(connection(task_slot)))));
        }
        Err(error) => {
            worker.connection_ended();
            tracing::debug!("the connection from {} could not be served: {error}", peer.addr());
        }
    }
}

/// A client that does not finish its TLS handshake within this time is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The handshake of a TLS connection.
async fn greet(socket: std::net::TcpStream, settings: Arc<rustls::ServerConfig>) -> io::Result<Stream> {
    let handshake =
        async { tokio_rustls::TlsAcceptor::from(settings).accept(TlsSocket(TcpStream::from_std(socket)?)).await };
    let greeted = tokio::time::timeout(HANDSHAKE, handshake).await;
    Ok(Stream::Tls(Box::new(greeted.map_err(|_| io::ErrorKind::TimedOut)??)))
}

fn begin(worker: Rc<Worker>, stream: Stream, peer: Peer, role: Option<Role>, task_slot: OwnTaskSlot) -> Connection {
    worker.stats().connections.add(1);
    let fd = match &stream {
        Stream::Tcp(stream) => stream.as_raw_fd(),
        Stream::Tls(stream) => stream.get_ref().0.0.as_raw_fd(),
        Stream::Unix(stream) => stream.as_raw_fd(),
    };
    let is_local = peer.is_local();
    let client_info = worker.hub.clients.add(fd, peer, worker.index, wall_ms());
    let mut session = Session::new(client_info.id, false, is_local);
    match role {
        Some(role) => access::begin_as(&worker.hub, &mut session, role),
        None => access::begin(&worker.hub, &mut session),
    }
    Connection::new(worker, stream, session, client_info, task_slot)
}

async fn hand_out_turns(worker: Rc<Worker>) {
    worker.fair_queue.hand_out().await;
}

/// The number of outboxes sent before other tasks run.
const DELIVERIES_MAX: usize = 64;

async fn serve_commit_waiter(worker: Rc<Worker>) {
    worker.commit_waiter.serve().await;
}

async fn serve_reply_coalescer(worker: Rc<Worker>) {
    worker.reply_coalescer.serve().await;
}

/// Sends what others have put into the outboxes of this worker's connections. This task runs after the tasks that
/// were ready when it was woken. So the messages that several tasks publish at the same time leave in one send.
async fn deliver(worker: Rc<Worker>) {
    let ready_clients = &worker.hub.worker_handles[worker.index].ready_clients;
    let (mut client_infos, mut scratch) = (Vec::new(), Vec::new());
    loop {
        ready_clients.take(&mut client_infos).await;
        for (at, client_info) in client_infos.drain(..).enumerate() {
            if at % DELIVERIES_MAX == DELIVERIES_MAX - 1 {
                tokio::task::yield_now().await;
            }
            let is_clear = || worker.hub.journaling.is_clear();
            let sent = client_info.outbox.flush(&mut scratch, is_clear, |bytes| client_info.send_now(bytes));
            worker.stats().net_out_bytes.add(sent as u64);
        }
    }
}

/// The driver's descriptor. The driver closes it.
struct Fd(RawFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Collects flash completions whenever the driver's descriptor is ready.
async fn take_completions(worker: Rc<Worker>, fd: AsyncFd<Fd>) {
    loop {
        match fd.readable().await {
            // Clear first: a completion that arrives in the meantime makes the descriptor ready again.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::error!("cannot wait for flash completions: {error}");
                return;
            }
        }
        let mut lane = worker.lane();
        lane.complete(worker.refresh_now_ms());
        if lane.is_pressed() {
            worker.pressed.notify_one();
        }
        drop(lane);
        worker.hub.memory.serve();
    }
}

/// How often an idle worker runs maintenance.
const IDLE_MS: u64 = 100;
/// After so much maintenance that nobody waits for, a worker with commands sleeps for a millisecond, or until a write completes. Without
/// this sleep, its clients would get little of a processor that they share.
const LEISURE_NANOS: u64 = 200_000;

/// Records a long expiry in the latency monitor.
fn note_expiry(worker: &Worker, nanos: u64) {
    let (threshold_ms, ms) = (worker.config_snapshot().config.latency_monitor_threshold_ms, nanos / 1_000_000);
    if threshold_ms > 0 && ms >= threshold_ms {
        worker.hub.latency_events.add("expire-cycle", worker.now_ms() / 1000, ms);
    }
}

/// Runs demotion, collection and expiry in slices, between the batches of commands.
async fn keep_up(worker: Rc<Worker>) {
    let mut commands_before = 0;
    // How long the slices of maintenance took in which keys have expired, until a slice in which none has.
    let mut expiring_nanos = 0;
    // How long maintenance that nobody waits for took since the last sleep.
    let mut busy_nanos = 0;
    loop {
        let begun = worker.ticks();
        let (next, is_pressed, expired) = {
            let mut lane = worker.lane();
            let now_ms = worker.refresh_now_ms();
            if lane.in_flight() > 0 {
                // Needed for a driver without a descriptor to wait on. For other drivers this rarely finds anything.
                lane.complete(now_ms);
            }
            lane.hold_deletions(worker.hub.journaling.write_admission() == WriteAdmission::Behind);
            let next = lane.maintain(now_ms);
            let polls = lane.in_flight() > 0 && lane.wake_fd().is_none();
            (if polls { Maintain::After { ms: 1 } } else { next }, lane.is_pressed(), lane.take_expired())
        };
        if expired > 0 {
            expiring_nanos += worker.nanos(begun, worker.ticks());
        } else if expiring_nanos > 0 {
            note_expiry(&worker, std::mem::take(&mut expiring_nanos));
        }
        if worker.hub.tracking.has_pending() {
            // Keys that have expired are pending too.
            worker.hub.tracking.invalidate_all(&worker.hub);
        }
        let tracks_more = worker.index == 0 && worker.hub.tracking.shrink(&worker.hub);
        // Objects may have made room.
        worker.hub.memory.serve();
        worker.targets.forget_old(&worker.hub);
        let commands = worker.stats().commands.get();
        let has_commands = std::mem::replace(&mut commands_before, commands) != commands;
        let is_idle = !has_commands && !is_pressed;
        let ms = match next {
            _ if tracks_more => {
                tokio::task::yield_now().await;
                continue;
            }
            Maintain::Now => {
                tokio::task::yield_now().await;
                continue;
            }
            Maintain::AtLeisure => {
                busy_nanos += worker.nanos(begun, worker.ticks());
                if !has_commands || busy_nanos < LEISURE_NANOS {
                    tokio::task::yield_now().await;
                    continue;
                }
                busy_nanos = 0;
                1
            }
            // Objects make room for a client that waits.
            Maintain::After { .. } if worker.hub.memory.waiting() > 0 => 1,
            Maintain::After { ms } if is_idle => ms.max(IDLE_MS),
            Maintain::After { ms } => ms,
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
            () = worker.pressed.notified() => {}
        }
    }
}
