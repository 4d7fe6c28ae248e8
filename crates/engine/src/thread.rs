//! Owns the tasks of a worker's thread: it takes in connections and starts them, delivers messages, collects completions of flash, and
//! keeps the tiers in balance, until it is stopped. Never knows a command.

use crate::access;
use crate::clients::Peer;
use crate::command_loop::serve;
use crate::held_messages::HeldMessage;
use crate::hub::Hub;
use crate::journaling::WriteAdmission;
use crate::local;
use crate::session::Connection;
use crate::session_stream::{SESSION_WINDOW_BYTES, SessionStream};
use crate::stream::{MemoryStream, PolledSocket, Stream};
use crate::task_slot::OwnTaskSlot;
use crate::worker::Worker;
use crate::worker_handle::{Arrival, Entry, Message, Socket};
use base::clock::wall_ms;
use commands::session::Session;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use store::{Lane, Maintain};
use tokio::io::unix::AsyncFd;
use tokio::io::{DuplexStream, Interest, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;

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
    local::register(&worker);
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
    let mut held_messages = tokio::task::spawn_local(deliver_held(Rc::clone(&worker)));
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
        ended = &mut held_messages => fatal("messages that wait for replicas", ended),
    }
    for task in [upkeep, completions, delivery_task, fair_queue, reply_coalescer, commit_waiter, held_messages] {
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

/// Connects a client in this process, by a stream without a descriptor. `name`: its address in CLIENT LIST. On a
/// worker's thread, the database's worker of the same thread serves it; elsewhere, the worker with the fewest connections.
pub fn connect(hub: &Arc<Hub>, entry: Entry, name: &str) -> io::Result<DuplexStream> {
    let (ours, theirs) = duplex(SESSION_WINDOW_BYTES);
    attend_session(hub, SessionStream::Memory(theirs), entry, name)?;
    Ok(ours)
}

/// Serves a stream as [`connect`] does the one that it makes.
pub fn attend_session(hub: &Arc<Hub>, stream: SessionStream, entry: Entry, name: &str) -> io::Result<()> {
    let (socket, peer) = (Socket::Memory(stream, entry), Peer::Unix(name.into()));
    match local::worker_of(hub) {
        Some(worker) => {
            hub.worker_handles[worker.index].connections.fetch_add(1, Relaxed);
            attend(&worker, Arrival { socket, peer });
            Ok(())
        }
        None => hub.hand_over(socket, peer),
    }
}

/// Serves a connection in a task of its own. What TLS needs first is another task: each layer around a task costs some
/// 70 instructions a command.
fn attend(worker: &Rc<Worker>, Arrival { socket, peer }: Arrival) {
    let entry = match socket {
        Socket::Console(_, role) => Entry::Console(role),
        Socket::Memory(_, entry) => entry,
        _ => Entry::Client,
    };
    match socket {
        Socket::Tcp(socket) => start(worker, TcpStream::from_std(socket).map(Stream::Tcp), peer, entry),
        Socket::Unix(socket) | Socket::Console(socket, _) => {
            start(worker, UnixStream::from_std(socket).map(Stream::Unix), peer, entry);
        }
        Socket::Memory(stream, _) => {
            let stream = MemoryStream { stream, is_shut: Arc::default() };
            start(worker, Ok(Stream::Memory(stream)), peer, entry);
        }
        Socket::Tls(socket, settings) => {
            let worker_of_task = Rc::clone(worker);
            let seated = worker.task_slots.take(|_| async move {
                start(&worker_of_task, greet(socket, settings).await, peer, entry);
            });
            drop(tokio::task::spawn_local(seated));
        }
    }
}

fn start(worker: &Rc<Worker>, stream: io::Result<Stream>, peer: Peer, entry: Entry) {
    match stream {
        Ok(stream) => {
            let connection = |task_slot| begin(Rc::clone(worker), stream, peer, entry, task_slot);
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
        async { tokio_rustls::TlsAcceptor::from(settings).accept(PolledSocket(TcpStream::from_std(socket)?)).await };
    let greeted = tokio::time::timeout(HANDSHAKE, handshake).await;
    Ok(Stream::Tls(Box::new(greeted.map_err(|_| io::ErrorKind::TimedOut)??)))
}

fn begin(worker: Rc<Worker>, stream: Stream, peer: Peer, entry: Entry, task_slot: OwnTaskSlot) -> Connection {
    worker.stats().connections.add(1);
    let is_local = peer.is_local();
    let client_info = worker.hub.clients.add(stream.transport(), peer, worker.index, wall_ms());
    let mut session = Session::new(client_info.id, false, is_local);
    match entry {
        Entry::Client => access::begin(&worker.hub, &mut session),
        Entry::Console(role) => access::begin_as(&worker.hub, &mut session, role),
        Entry::Proxy { is_divided } => access::begin_for(&worker.hub, &mut session, is_divided),
        Entry::Replica => access::begin_for_replica(&worker.hub, &mut session),
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

/// Sends on what a copy's commands have published, in its order, when replicas have what was written before. One worker does that for all.
async fn deliver_held(worker: Rc<Worker>) {
    if worker.index > 0 {
        return std::future::pending().await;
    }
    let (hub, journaling) = (&worker.hub, &worker.hub.dataset.journaling);
    loop {
        let HeldMessage { seen, space, channel, message } = hub.held_messages.take().await;
        poll_fn(|cx| worker.commit_waiter.poll_safe(seen, cx)).await;
        if !journaling.has_lost(seen, true) {
            hub.publish_now(space, &channel, &message, worker.refresh_now_ms());
        }
    }
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
            let is_clear = || worker.hub.dataset.journaling.is_clear();
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
        worker.hub.dataset.memory.serve();
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
            lane.hold_deletions(worker.hub.dataset.journaling.write_admission() == WriteAdmission::Behind);
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
        worker.hub.dataset.memory.serve();
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
            Maintain::After { .. } if worker.hub.dataset.memory.waiting() > 0 => 1,
            Maintain::After { ms } if is_idle => ms.max(IDLE_MS),
            Maintain::After { ms } => ms,
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
            () = worker.pressed.notified() => {}
        }
    }
}
