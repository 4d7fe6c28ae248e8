//! Owns one thread of a workload: its connections, its epoll loop, its counters. Never knows other threads.
//!
//! The loop: wait → read → count replies → write the requests that may be sent → publish. All connections share one
//! input and one output buffer, so a connection costs only its queue of send times.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use anyhow::Result;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::pace::{Schedule, Ticks};
use super::socket::Socket;
use super::{Body, Messenger, StartBarrier, ThreadCounters, ThreadEnd, Workload};
use crate::config::{Config, Length, Pace};
use crate::mix::{Hits, Kind, KindIndex, Plan, Requests};
use crate::replies::{Class, Replies, Reply};
use crate::rng::Rng;
use crate::stats::{Cell, Cells, ClientStats, Gather};

const SECOND_NS: u64 = 1_000_000_000;
const INPUT_BYTES: usize = 256 << 10;
/// The most output that is prepared before the socket takes it.
const OUTPUT_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 256;
/// How often to check for stop, deadlines and pauses if nothing else happens.
const IDLE_NS: u64 = 50_000_000;
/// How long to wait for outstanding replies after the end.
const DRAIN_NS: u64 = 5 * SECOND_NS;
/// The pause between an error and the next attempt, unless a longer one is asked for.
const RETRY_NS: u64 = 10_000_000;
const RETRY_NS_MAX: u64 = 60 * SECOND_NS;
const TIMER_TOKEN: u64 = u64::MAX;

/// Runs the thread to its end.
pub(super) fn drive(workload: &Workload<'_>, thread: u32, barrier: &StartBarrier, messenger: &Messenger) {
    let result = Driver::new(workload, thread, barrier, messenger);
    let end = match result {
        Ok(mut driver) => {
            driver.connect_all();
            messenger.send(Body::Connected);
            driver.start(barrier.wait());
            driver.work();
            driver.finish()
        }
        Err(error) => {
            messenger.send(Body::Connected);
            barrier.wait();
            ThreadEnd { fatal: Some(format!("cannot set up a thread: {error}")), ..ThreadEnd::default() }
        }
    };
    // This message says that the thread sends no more seconds.
    messenger.send(Body::Second { second: 0, cells: Cells::new(), next: u64::MAX });
    messenger.send(Body::Done(Box::new(end)));
}

struct Driver<'a> {
    config: &'a Config,
    plan: &'a Plan,
    workload: &'a Workload<'a>,
    barrier: &'a StartBarrier,
    messenger: &'a Messenger,
    live: &'a ThreadCounters,
    thread: u32,

    epoll: OwnedFd,
    timer: OwnedFd,
    timer_armed_ns: u64,
    input: Box<[u8]>,
    output: Vec<u8>,
    clients: Vec<Client>,
    /// Clients that have not finished.
    running: usize,
    /// The number of clients that are connecting or pausing: they must be checked even without events.
    unsettled: usize,

    ticks: Option<Ticks>,
    schedule: Option<Schedule>,
    started: bool,
    start_ns: u64,
    deadline_ns: u64,
    /// When sending stopped before everything was sent.
    stopped_ns: Option<u64>,
    last_reply_ns: u64,

    cells: Vec<Cell>,
    second: u64,
    sums: Sums,
    end: ThreadEnd,
}

/// The thread's sums so far, for the progress display.
#[derive(Default)]
struct Sums {
    ops: u64,
    bytes: u64,
    latency_ns: u64,
}

struct Client {
    requests: Requests,
    replies: Replies,
    socket: Option<Socket>,
    state: ConnectionState,
    sent: VecDeque<Sent>,
    /// The bytes that the socket did not take yet start at `unsent_at`. Empty if it took all.
    unsent: Vec<u8>,
    unsent_at: usize,
    limit: u64,
    issued: u64,
    completed: u64,
    on_connection: u64,
    /// Requests that may be sent before the next tick.
    allowance: u64,
    /// Requests that are due.
    released: u64,
    attempts: u32,
    own: Option<Box<Own>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// Connects again at this time.
    Pause {
        until_ns: u64,
    },
    Connecting {
        since_ns: u64,
    },
    /// Replies to the opening commands still to come.
    Opening {
        left: u32,
    },
    Ready,
    Done,
}

#[derive(Clone, Copy)]
struct Sent {
    at_ns: u64,
    kind: KindIndex,
}

/// Statistics of one connection.
struct Own {
    gather: Gather,
    cells: Vec<Cell>,
    second: u64,
}

impl<'a> Driver<'a> {
    fn new(
        workload: &'a Workload<'a>,
        thread: u32,
        barrier: &'a StartBarrier,
        messenger: &'a Messenger,
    ) -> Result<Driver<'a>> {
        let (config, plan) = (workload.config, &workload.plan);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER_TOKEN), EventFlags::IN)?;
        let first = u64::from(thread) * u64::from(config.clients);
        let clients = (0..config.clients).map(|client| Client::new(plan, config, first + u64::from(client)));
        let mut driver = Driver {
            config,
            plan,
            workload,
            barrier,
            messenger,
            live: &workload.live[thread as usize],
            thread,
            epoll,
            timer,
            timer_armed_ns: 0,
            input: vec![0; INPUT_BYTES].into(),
            output: Vec::with_capacity(OUTPUT_BYTES),
            clients: clients.collect(),
            running: config.clients as usize,
            unsettled: config.clients as usize,
            ticks: None,
            schedule: None,
            started: false,
            start_ns: 0,
            deadline_ns: u64::MAX,
            stopped_ns: None,
            last_reply_ns: 0,
            cells: vec![Cell::default(); plan.kinds.len()],
            second: 0,
            sums: Sums::default(),
            end: ThreadEnd::default(),
        };
        driver.plan_connections();
        Ok(driver)
    }

    /// When each connection is made: at once, spread by the jitter, or at its step of the ramp.
    fn plan_connections(&mut self) {
        let now_ns = self.barrier.now_ns();
        let (low, high) = self.config.reconnect.start_jitter_us;
        let mut rng = Rng::new(u64::from(self.thread));
        let mut jitter_ns = 0;
        let first_step = self.config.ramp.map_or(self.clients.len(), |ramp| ramp.start as usize);
        for (index, client) in self.clients.iter_mut().enumerate() {
            let until_ns = if index < first_step { now_ns + jitter_ns } else { u64::MAX };
            client.state = ConnectionState::Pause { until_ns };
            jitter_ns += rng.range(low, high) * 1000;
        }
    }

    /// Makes the first connections. Later steps of a ramp are not waited for.
    fn connect_all(&mut self) {
        while !self.barrier.stopped() && self.end.fatal.is_none() {
            let settling = |client: &Client| match client.state {
                ConnectionState::Pause { until_ns } => until_ns != u64::MAX && client.attempts == 0,
                ConnectionState::Connecting { .. } | ConnectionState::Opening { .. } => client.attempts == 0,
                ConnectionState::Ready | ConnectionState::Done => false,
            };
            if !self.clients.iter().any(settling) {
                return;
            }
            self.look_after_unsettled(self.barrier.now_ns());
            self.wait_and_handle(RETRY_NS);
        }
    }

    fn start(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.last_reply_ns = start_ns;
        self.started = true;
        if let Length::Time(time) = self.config.length {
            self.deadline_ns = start_ns.saturating_add(time.as_nanos() as u64);
        }
        if let Some(ramp) = self.config.ramp {
            for (index, client) in self.clients.iter_mut().enumerate().skip(ramp.start as usize) {
                let step = (index as u64 - u64::from(ramp.start)) / u64::from(ramp.step) + 1;
                client.state = ConnectionState::Pause { until_ns: start_ns + step * ramp.every.as_nanos() as u64 };
            }
        }
        match self.config.pace {
            Pace::Unlimited => {}
            Pace::PerConnection(rate) => self.ticks = Some(Ticks::new(rate, start_ns)),
            Pace::OpenLoop(rate) => {
                let first = u64::from(self.thread) * u64::from(self.config.clients);
                let clients = u64::from(self.config.clients);
                self.schedule = Some(Schedule::new(rate, start_ns, first, clients, self.config.connections()));
            }
        }
        let now_ns = self.barrier.now_ns();
        self.pace(now_ns);
        for index in 0..self.clients.len() {
            self.fill(index, now_ns);
        }
    }

    fn work(&mut self) {
        let mut looked_ns = 0;
        while self.running > 0 && self.end.fatal.is_none() {
            let now_ns = self.barrier.now_ns();
            self.roll(now_ns);
            if self.stopped_ns.is_none() && (now_ns >= self.deadline_ns || self.barrier.stopped()) {
                self.stop(now_ns);
                continue;
            }
            if self.stopped_ns.is_some_and(|stopped_ns| now_ns > stopped_ns + DRAIN_NS) {
                let missing: usize = self.clients.iter().map(|client| client.sent.len()).sum();
                self.end.error_texts.count(&format!("{missing} replies had not come 5 s after the end"));
                return;
            }
            if self.unsettled > 0 && now_ns >= looked_ns + RETRY_NS {
                looked_ns = now_ns;
                self.look_after_unsettled(now_ns);
            }
            let wake_ns = self.pace(now_ns);
            let idle_ns = if self.unsettled > 0 { RETRY_NS } else { IDLE_NS };
            let end_ns = if self.stopped_ns.is_some() { u64::MAX } else { self.deadline_ns };
            let wait_ns = idle_ns.min(wake_ns.min(end_ns).saturating_sub(now_ns));
            self.wait_and_handle(wait_ns);
            self.live.ops.store(self.sums.ops, Ordering::Relaxed);
            self.live.bytes.store(self.sums.bytes, Ordering::Relaxed);
            self.live.latency_ns.store(self.sums.latency_ns, Ordering::Relaxed);
        }
    }

    /// Stops sending. Connections without outstanding requests are done.
    fn stop(&mut self, now_ns: u64) {
        self.stopped_ns = Some(now_ns);
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if let Some(schedule) = &self.schedule {
                // Due by the clock, even if the loop has not released them yet.
                let due = schedule.due_count(index as u64, now_ns).min(client.limit);
                self.end.unsent += due.saturating_sub(client.issued);
            }
            if client.sent.is_empty() || client.state != ConnectionState::Ready {
                self.set_state(index, ConnectionState::Done);
            }
        }
    }

    /// Releases the requests that are due. Returns the time of the next release.
    fn pace(&mut self, now_ns: u64) -> u64 {
        if self.stopped_ns.is_some() {
            return u64::MAX;
        }
        if let Some(ticks) = &mut self.ticks {
            if ticks.tick(now_ns) {
                let per_tick = ticks.per_tick;
                for index in 0..self.clients.len() {
                    self.clients[index].allowance = per_tick;
                    self.fill(index, now_ns);
                }
            }
            return self.ticks.as_ref().map_or(u64::MAX, Ticks::next_ns);
        }
        let Some(schedule) = &mut self.schedule else {
            return u64::MAX;
        };
        let mut first = None;
        let mut count = 0;
        while let Some(index) = schedule.release(now_ns) {
            let client = &mut self.clients[index];
            client.released += u64::from(client.released < client.limit);
            first.get_or_insert(index);
            count += 1;
        }
        let next_ns = schedule.next_ns();
        if let Some(first) = first {
            // Connections take turns, with one write each, however many of their requests are due.
            let clients = self.clients.len();
            for step in 0..count.min(clients) {
                self.fill((first + step) % clients, now_ns);
            }
        }
        next_ns
    }

    fn wait_and_handle(&mut self, wait_ns: u64) {
        // epoll counts milliseconds, so a timer handles shorter waits.
        let fine = !wait_ns.is_multiple_of(1_000_000);
        if fine {
            self.arm_timer(wait_ns);
        }
        let whole_ms = wait_ns.div_ceil(1_000_000) as i64;
        let timeout = Timespec { tv_sec: whole_ms / 1000, tv_nsec: (whole_ms % 1000) * 1_000_000 };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let ready = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return,
            Err(error) => {
                self.end.fatal = Some(format!("epoll: {error}"));
                return;
            }
        };
        for event in ready {
            let (data, flags) = (event.data, event.flags);
            let token = data.u64();
            if token == TIMER_TOKEN {
                let _ = rustix::io::read(&self.timer, &mut [0; 8]);
            } else {
                self.handle(token as usize, flags);
            }
        }
    }

    fn arm_timer(&mut self, wait_ns: u64) {
        let wake_ns = self.barrier.now_ns() + wait_ns;
        // An earlier timer that is about to fire costs only one turn of the loop.
        if self.timer_armed_ns.abs_diff(wake_ns) < 1000 {
            return;
        }
        self.timer_armed_ns = wake_ns;
        let wait_ns = wait_ns.max(1);
        let value = Timespec { tv_sec: (wait_ns / SECOND_NS) as i64, tv_nsec: (wait_ns % SECOND_NS) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // If this fails, epoll's own timeout wakes the loop at most a millisecond late.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    fn handle(&mut self, index: usize, flags: EventFlags) {
        match self.clients[index].state {
            ConnectionState::Pause { .. } | ConnectionState::Done => {}
            ConnectionState::Connecting { .. } => self.connected(index),
            ConnectionState::Opening { .. } | ConnectionState::Ready => {
                if flags.contains(EventFlags::OUT) && !self.flush(index) {
                    return;
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.receive(index);
                } else if flags.contains(EventFlags::OUT) {
                    self.fill(index, self.barrier.now_ns());
                }
            }
        }
    }

    /// Handles connections that are due to connect, or whose connecting takes too long.
    fn look_after_unsettled(&mut self, now_ns: u64) {
        let timeout_ns = self.config.reconnect.timeout.as_nanos() as u64;
        for index in 0..self.clients.len() {
            match self.clients[index].state {
                ConnectionState::Pause { until_ns } if until_ns <= now_ns => self.connect(index, now_ns),
                ConnectionState::Connecting { since_ns } if timeout_ns > 0 && now_ns - since_ns > timeout_ns => {
                    self.fail(index, "connection timeout");
                }
                _ => {}
            }
        }
    }

    fn connect(&mut self, index: usize, now_ns: u64) {
        self.set_state(index, ConnectionState::Connecting { since_ns: now_ns });
        let connected = self.workload.endpoint.connect().and_then(|socket| {
            epoll::add(&self.epoll, socket.fd(), EventData::new_u64(index as u64), EventFlags::OUT)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => self.clients[index].socket = Some(socket),
            Err(error) => self.fail(index, &error.to_string()),
        }
    }

    fn connected(&mut self, index: usize) {
        let Some(socket) = &mut self.clients[index].socket else {
            return;
        };
        if let Ok(Err(error)) | Err(error) = sockopt::socket_error(socket.fd()) {
            let text = std::io::Error::from(error).to_string();
            return self.fail(index, &text);
        }
        match socket.shake_hands() {
            Ok(true) => {}
            Ok(false) => {
                let interest = if socket.is_behind() { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
                return self.listen(index, interest);
            }
            Err(error) => return self.fail(index, &error.to_string()),
        }
        self.end.connected_ever = true;
        let (opening, replies) = &self.workload.opening;
        let client = &mut self.clients[index];
        client.on_connection = 0;
        client.unsent.extend_from_slice(opening);
        let state = if *replies > 0 { ConnectionState::Opening { left: *replies } } else { ConnectionState::Ready };
        self.set_state(index, state);
        if self.flush(index) && state == ConnectionState::Ready {
            self.fill(index, self.barrier.now_ns());
        }
    }

    fn receive(&mut self, index: usize) {
        let Some(socket) = &mut self.clients[index].socket else {
            return;
        };
        let mut input = std::mem::take(&mut self.input);
        match socket.read(&mut input[..]) {
            Ok(0) => self.fail(index, "connection closed by the server"),
            Ok(bytes) => {
                let now_ns = self.barrier.now_ns();
                self.roll(now_ns);
                match self.count(index, &input[..bytes], now_ns) {
                    Ok(()) => self.fill(index, now_ns),
                    Err(error) => self.fail(index, &format!("protocol error: {error}")),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.fail(index, &error.to_string()),
        }
        self.input = input;
    }

    /// Counts the replies in `input`.
    fn count(&mut self, index: usize, input: &[u8], now_ns: u64) -> Result<()> {
        let client = &mut self.clients[index];
        let opening = matches!(client.state, ConnectionState::Opening { .. });
        let Client { replies, sent, state, completed, own, .. } = client;
        let (cells, kinds, sums) = (&mut self.cells, &self.plan.kinds, &mut self.sums);
        let (texts, fatal, debug) = (&mut self.end.error_texts, &mut self.end.fatal, self.config.debug);
        let own_second = (now_ns - self.start_ns) / SECOND_NS;
        let mut surplus = false;
        let before = *completed;
        let fed = replies.feed(input, |reply, text| {
            if let ConnectionState::Opening { left } = state {
                if reply.class == Class::Error {
                    fatal.get_or_insert_with(|| format!("the server refused: {}", String::from_utf8_lossy(text)));
                }
                *left -= 1;
                if *left == 0 {
                    *state = ConnectionState::Ready;
                }
                return;
            }
            let Some(request) = sent.pop_front() else {
                surplus = true;
                return;
            };
            let latency_ns = now_ns.saturating_sub(request.at_ns);
            let kind = usize::from(request.kind);
            count_reply(&mut cells[kind], &kinds[kind], reply, latency_ns);
            *completed += 1;
            sums.bytes += reply.bytes;
            sums.latency_ns += latency_ns;
            if reply.class == Class::Error {
                let text = String::from_utf8_lossy(text);
                if debug {
                    eprintln!("error reply to {}: {text}", kinds[kind].name);
                }
                texts.count(&text);
            }
            if let Some(own) = own {
                count_reply(own.cell(own_second, kind), &kinds[kind], reply, latency_ns);
            }
        });
        let done = *completed - before;
        if opening && *state == ConnectionState::Ready {
            self.unsettled -= 1;
        }
        if done > 0 {
            self.sums.ops += done;
            self.last_reply_ns = now_ns;
            client.attempts = 0;
            if Requests::follows_cursor(self.plan) {
                client.requests.set_cursor(client.replies.cursor());
            }
        }
        fed?;
        anyhow::ensure!(!surplus, "a reply without a request");
        Ok(())
    }

    /// Writes all requests that may be sent now. Notices when a connection is done or due for a reconnect.
    fn fill(&mut self, index: usize, now_ns: u64) {
        let client = &mut self.clients[index];
        let behind = !client.unsent.is_empty() || client.socket.as_ref().is_some_and(Socket::is_behind);
        if !self.started || client.state != ConnectionState::Ready || behind {
            return;
        }
        let reconnect_every = self.config.reconnect.every;
        if client.sent.is_empty() {
            if client.issued >= client.limit || self.stopped_ns.is_some() {
                return self.set_state(index, ConnectionState::Done);
            }
            if reconnect_every > 0 && client.on_connection >= reconnect_every {
                self.disconnect(index);
                return self.connect(index, now_ns);
            }
        }
        if self.stopped_ns.is_some() {
            return;
        }
        let room = (self.config.pipeline as usize).saturating_sub(client.sent.len()) as u64;
        let mut count = room.min(client.limit - client.issued);
        if reconnect_every > 0 {
            count = count.min(reconnect_every.saturating_sub(client.on_connection));
        }
        if self.ticks.is_some() {
            count = count.min(client.allowance);
            client.allowance -= count;
        } else if self.schedule.is_some() {
            count = count.min(client.released - client.issued);
        }
        while count > 0 {
            self.output.clear();
            let client = &mut self.clients[index];
            while count > 0 && self.output.len() < OUTPUT_BYTES {
                let before = self.output.len();
                let kind = client.requests.write_next(self.plan, &mut self.output);
                let bytes = (self.output.len() - before) as u64;
                let due = |schedule: &Schedule| schedule.due_ns(index as u64, client.issued);
                let at_ns = self.schedule.as_ref().map_or(now_ns, due);
                client.sent.push_back(Sent { at_ns, kind });
                client.issued += 1;
                client.on_connection += 1;
                self.cells[usize::from(kind)].bytes_tx += bytes;
                self.sums.bytes += bytes;
                if let Some(own) = &mut client.own {
                    own.cell((now_ns - self.start_ns) / SECOND_NS, usize::from(kind)).bytes_tx += bytes;
                }
                count -= 1;
            }
            if !self.send(index) {
                // The rest can be sent when the socket has taken this. The allowance for it is kept.
                let client = &mut self.clients[index];
                client.allowance += if self.ticks.is_some() { count } else { 0 };
                return;
            }
        }
    }

    /// Sends the output buffer. The connection keeps what the socket does not take. True: the socket took all.
    fn send(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        let Some(socket) = &mut client.socket else {
            return false;
        };
        let mut at = 0;
        while at < self.output.len() {
            match socket.write(&self.output[at..]) {
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.fail(index, &error.to_string());
                    return false;
                }
            }
        }
        let all = at == self.output.len() && !socket.is_behind();
        if !all {
            client.unsent.extend_from_slice(&self.output[at..]);
            self.listen(index, EventFlags::IN | EventFlags::OUT);
        }
        all
    }

    /// Sends the remaining bytes. True: the connection still exists, and all bytes were sent.
    fn flush(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        let Some(socket) = &mut client.socket else {
            return false;
        };
        let mut sent = socket.push();
        while sent.is_ok() && client.unsent_at < client.unsent.len() {
            match socket.write(&client.unsent[client.unsent_at..]) {
                Ok(bytes) => client.unsent_at += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => sent = Err(error),
            }
        }
        let failed = sent.err().filter(|error| error.kind() != ErrorKind::WouldBlock);
        let all = client.unsent_at == client.unsent.len() && !socket.is_behind();
        if all {
            client.unsent.clear();
            client.unsent.shrink_to(OUTPUT_BYTES);
            client.unsent_at = 0;
        }
        if let Some(error) = failed {
            self.fail(index, &error.to_string());
            return false;
        }
        let interest = if all { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        self.listen(index, interest);
        all
    }

    fn listen(&mut self, index: usize, interest: EventFlags) {
        let Some(socket) = &self.clients[index].socket else {
            return;
        };
        let modified = epoll::modify(&self.epoll, socket.fd(), EventData::new_u64(index as u64), interest);
        if let Err(error) = modified {
            self.end.fatal = Some(format!("epoll: {error}"));
        }
    }

    /// Drops the connection. Its outstanding requests count as not sent.
    fn disconnect(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.socket = None;
        client.unsent.clear();
        client.unsent_at = 0;
        client.issued -= client.sent.len() as u64;
        client.sent.clear();
        client.replies = Replies::new(Requests::follows_cursor(self.plan));
        client.requests.set_cursor(b"0");
    }

    fn fail(&mut self, index: usize, text: &str) {
        self.disconnect(index);
        self.end.connection_errors += 1;
        self.end.error_texts.count(text);
        if self.config.debug {
            eprintln!("thread {} connection {index}: {text}", self.thread);
        }
        let reconnect = &self.config.reconnect;
        let client = &mut self.clients[index];
        client.attempts += 1;
        let given_up = reconnect.attempts_max > 0 && client.attempts > reconnect.attempts_max;
        if !reconnect.on_error || given_up || self.stopped_ns.is_some() {
            return self.set_state(index, ConnectionState::Done);
        }
        let pause_ns = if reconnect.backoff_factor == 0.0 {
            RETRY_NS
        } else {
            let seconds = reconnect.backoff_factor.powf(f64::from(client.attempts - 1));
            ((seconds * SECOND_NS as f64) as u64).min(RETRY_NS_MAX)
        };
        self.set_state(index, ConnectionState::Pause { until_ns: self.barrier.now_ns() + pause_ns });
    }

    fn set_state(&mut self, index: usize, state: ConnectionState) {
        let unsettled = |state| {
            matches!(
                state,
                ConnectionState::Pause { .. } | ConnectionState::Connecting { .. } | ConnectionState::Opening { .. }
            )
        };
        let client = &mut self.clients[index];
        let before = std::mem::replace(&mut client.state, state);
        self.unsettled -= usize::from(unsettled(before));
        self.unsettled += usize::from(unsettled(state));
        if state == ConnectionState::Done && before != ConnectionState::Done {
            client.socket = None;
            self.running -= 1;
        }
    }

    /// Sends the statistics of the past second.
    #[inline]
    fn roll(&mut self, now_ns: u64) {
        let second = (now_ns - self.start_ns) / SECOND_NS;
        if second != self.second && self.started {
            self.hand_in(second);
        }
    }

    fn hand_in(&mut self, next: u64) {
        let cells = take_cells(&mut self.cells);
        self.messenger.send(Body::Second { second: self.second, cells, next });
        self.second = next;
    }

    fn finish(mut self) -> ThreadEnd {
        self.hand_in(u64::MAX);
        let stopped_ns = self.stopped_ns.unwrap_or(self.start_ns);
        self.end.end_ns = self.last_reply_ns.max(stopped_ns);
        for (index, client) in self.clients.into_iter().enumerate() {
            let Some(own) = client.own else { continue };
            let rows = own.finish();
            self.end.clients.push(ClientStats { thread: self.thread, client: index as u32, rows });
        }
        self.end
    }
}

impl Client {
    fn new(plan: &Plan, config: &Config, index: u64) -> Client {
        let own = || Own { gather: Gather::new(&plan.kinds, 1, &[]), cells: Vec::new(), second: 0 };
        Client {
            requests: Requests::new(plan, config, index),
            replies: Replies::new(Requests::follows_cursor(plan)),
            socket: None,
            state: ConnectionState::Pause { until_ns: 0 },
            sent: VecDeque::with_capacity(config.pipeline.min(1024) as usize),
            unsent: Vec::new(),
            unsent_at: 0,
            limit: config.requests_of(index).unwrap_or(u64::MAX),
            issued: 0,
            completed: 0,
            on_connection: 0,
            allowance: 0,
            released: 0,
            attempts: 0,
            own: config.per_client.then(|| {
                let mut own = own();
                own.cells = vec![Cell::default(); plan.kinds.len()];
                Box::new(own)
            }),
        }
    }
}

impl Own {
    fn cell(&mut self, second: u64, kind: usize) -> &mut Cell {
        if second != self.second {
            let cells = take_cells(&mut self.cells);
            self.gather.hand_in(0, self.second, cells, second);
            self.second = second;
        }
        &mut self.cells[kind]
    }

    fn finish(mut self) -> Vec<crate::stats::Row> {
        let cells = take_cells(&mut self.cells);
        self.gather.hand_in(0, self.second, cells, u64::MAX);
        self.gather.finish().0
    }
}

fn take_cells(cells: &mut [Cell]) -> Cells {
    let used = cells.iter_mut().enumerate().filter(|(_, cell)| cell.count > 0 || cell.bytes_tx > 0);
    used.map(|(kind, cell)| (kind as KindIndex, std::mem::take(cell))).collect()
}

#[inline]
fn count_reply(cell: &mut Cell, kind: &Kind, reply: Reply, latency_ns: u64) {
    cell.record(latency_ns);
    cell.bytes_rx += reply.bytes;
    match (reply.class, kind.hits) {
        (Class::Error, _) => cell.errors += 1,
        (_, Hits::None) => {}
        (Class::Nil | Class::Aggregate(0), _) => cell.misses += 1,
        (Class::Aggregate(count), Hits::Elements) => {
            let misses = reply.nils.min(count);
            cell.misses += misses;
            cell.hits += count - misses;
        }
        (Class::Value | Class::Simple | Class::Aggregate(_), _) => cell.hits += 1,
    }
}
