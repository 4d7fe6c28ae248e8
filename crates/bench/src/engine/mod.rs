//! Owns a run from start to end: threads, the common start, progress, stop, and collecting results. Never knows what is
//! printed. `driver` is one thread, `socket` its connections, `pace` its timing.

mod driver;
mod pace;
mod socket;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::config::{Config, Length};
use crate::mix::Plan;
use crate::stats::{Cells, ClientStats, ErrorTexts, Gather, RunStats};

const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// The progress display shows rates over the last second, which is this many updates.
const RATE_TICKS: usize = 4;

/// Receives the progress of a run about four times a second, on the thread that called [`run`].
pub trait Observer {
    /// `Break` ends the run: nothing more is sent, outstanding replies are awaited for a moment, and the result so far
    /// is returned with [`RunStats::interrupted`] set.
    fn progress(&self, progress: &Progress<'_>) -> ControlFlow<()>;
}

/// Ignores the progress.
impl Observer for () {
    fn progress(&self, _: &Progress<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[derive(Debug)]
pub struct Progress<'a> {
    /// The time since the first request; zero while connections are made.
    pub elapsed: Duration,
    pub workloads: &'a [WorkloadProgress],
}

#[derive(Clone, Debug, Default)]
pub struct WorkloadProgress {
    pub name: String,
    pub threads_running: u32,
    /// Connections per thread.
    pub clients: u32,
    pub ops: u64,
    /// `None` if the run ends by time instead of a number of requests.
    pub ops_total: Option<u64>,
    /// 0–1, by requests or by time.
    pub fraction: f64,
    pub ops_per_s: f64,
    pub ops_per_s_avg: f64,
    pub bytes_per_s: f64,
    pub bytes_per_s_avg: f64,
    pub latency_ms: f64,
    pub latency_ms_avg: f64,
}

/// Runs one workload.
pub fn run(config: &Config, observer: &dyn Observer) -> Result<RunStats> {
    let mut all = run_all(std::slice::from_ref(config), observer)?;
    Ok(all.remove(0))
}

/// Runs several workloads at the same time, from one common start. Each ends by its own length. Results are in the
/// order of `configs`.
pub fn run_all(configs: &[Config], observer: &dyn Observer) -> Result<Vec<RunStats>> {
    ensure!(!configs.is_empty(), "no workload");
    socket::raise_file_limit();
    let base = Instant::now();
    let mut workloads = Vec::with_capacity(configs.len());
    for config in configs {
        config.validate()?;
        let plan = Plan::new(config)?;
        let endpoint = socket::Endpoint::find(&config.target, config.tls.as_ref(), config.reconnect.timeout)?;
        let opening = socket::opening(config);
        let live = (0..config.threads).map(|_| ThreadCounters::default()).collect();
        workloads.push(Workload { config, plan, endpoint, opening, live });
    }
    let barrier =
        StartBarrier { start_ns: Mutex::new(None), opened: Condvar::new(), stop: AtomicBool::new(false), base };
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let mut spawned = Ok(());
        'spawn: for (index, workload) in workloads.iter().enumerate() {
            for thread in 0..workload.config.threads {
                let messenger = Messenger { workload: index, thread: thread as usize, sender: sender.clone() };
                let barrier = &barrier;
                let name = format!("bench-{index}-{thread}");
                let body = move || driver::drive(workload, thread, barrier, &messenger);
                if let Err(error) = std::thread::Builder::new().name(name).spawn_scoped(scope, body) {
                    spawned = Err(error).context("cannot start a thread");
                    break 'spawn;
                }
            }
        }
        drop(sender);
        let mut director = Director::new(&workloads, &barrier);
        if let Err(error) = spawned {
            director.stop();
            barrier.open();
            return Err(error);
        }
        loop {
            let wait = director.next_progress.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(wait) {
                Ok(message) => director.take(message),
                Err(RecvTimeoutError::Timeout) => director.look(observer),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= director.next_progress {
                director.look(observer);
            }
        }
        director.look(observer);
        director.finish()
    })
}

/// One workload, shared by its threads.
struct Workload<'a> {
    config: &'a Config,
    plan: Plan,
    endpoint: socket::Endpoint,
    opening: (Vec<u8>, u32),
    live: Vec<ThreadCounters>,
}

/// What a thread publishes while it runs. Padded, because each thread writes its own at every turn of its loop.
#[derive(Default)]
#[repr(align(128))]
struct ThreadCounters {
    ops: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
}

/// Where threads wait until all are connected.
struct StartBarrier {
    /// Since `base`.
    start_ns: Mutex<Option<u64>>,
    opened: Condvar,
    stop: AtomicBool,
    base: Instant,
}

impl StartBarrier {
    fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    fn open(&self) {
        let mut start = self.start_ns.lock().unwrap_or_else(PoisonError::into_inner);
        start.get_or_insert(self.now_ns());
        self.opened.notify_all();
    }

    fn wait(&self) -> u64 {
        let mut start = self.start_ns.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(start_ns) = *start {
                return start_ns;
            }
            start = self.opened.wait(start).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The channel from a thread to the director.
struct Messenger {
    workload: usize,
    thread: usize,
    sender: Sender<Message>,
}

impl Messenger {
    fn send(&self, body: Body) {
        // The director listens until the last thread has ended.
        let _ = self.sender.send(Message { workload: self.workload, thread: self.thread, body });
    }
}

struct Message {
    workload: usize,
    thread: usize,
    body: Body,
}

enum Body {
    Connected,
    /// The cells of a second, and the first second still to come.
    Second {
        second: u64,
        cells: Cells,
        next: u64,
    },
    Done(Box<ThreadEnd>),
}

/// The final message of a thread.
#[derive(Default)]
struct ThreadEnd {
    end_ns: u64,
    connected_ever: bool,
    /// An error that makes the whole run pointless, such as a wrong password.
    fatal: Option<String>,
    connection_errors: u64,
    error_texts: ErrorTexts,
    unsent: u64,
    clients: Vec<ClientStats>,
}

/// Starts the threads, watches them and adds up their results, on the caller's thread.
struct Director<'a> {
    workloads: &'a [Workload<'a>],
    barrier: &'a StartBarrier,
    gathers: Vec<Gather>,
    ends: Vec<Vec<ThreadEnd>>,
    waiting: usize,
    started: SystemTime,
    start_ns: u64,
    next_progress: Instant,
    /// For each workload: time, operations, bytes and latency at the last few updates.
    history: Vec<VecDeque<[u64; 4]>>,
    interrupted: bool,
}

impl<'a> Director<'a> {
    fn new(workloads: &'a [Workload<'a>], barrier: &'a StartBarrier) -> Director<'a> {
        let gathers = workloads.iter().map(|workload| {
            let config = workload.config;
            Gather::new(&workload.plan.kinds, config.threads as usize, &config.quantiles)
        });
        Director {
            workloads,
            barrier,
            gathers: gathers.collect(),
            ends: workloads.iter().map(|_| Vec::new()).collect(),
            waiting: workloads.iter().map(|workload| workload.config.threads as usize).sum(),
            started: SystemTime::now(),
            start_ns: 0,
            next_progress: Instant::now() + PROGRESS_EVERY,
            history: workloads.iter().map(|_| VecDeque::new()).collect(),
            interrupted: false,
        }
    }

    fn stop(&mut self) {
        self.barrier.stop.store(true, Ordering::Relaxed);
    }

    fn take(&mut self, message: Message) {
        let Message { workload, thread, body } = message;
        match body {
            Body::Connected => {
                self.waiting -= 1;
                if self.waiting == 0 {
                    self.started = SystemTime::now();
                    self.barrier.open();
                    self.start_ns = self.barrier.wait();
                }
            }
            Body::Second { second, cells, next } => self.gathers[workload].hand_in(thread, second, cells, next),
            Body::Done(end) => {
                if end.fatal.is_some() {
                    self.stop();
                }
                self.ends[workload].push(*end);
            }
        }
    }

    fn look(&mut self, observer: &dyn Observer) {
        self.next_progress = Instant::now() + PROGRESS_EVERY;
        let running = self.waiting == 0;
        let now_ns = self.barrier.now_ns();
        let elapsed = Duration::from_nanos(if running { now_ns - self.start_ns } else { 0 });
        let states: Vec<WorkloadProgress> =
            (0..self.workloads.len()).map(|index| self.state(index, now_ns, elapsed)).collect();
        if observer.progress(&Progress { elapsed, workloads: &states }).is_break() {
            let unfinished = self.ends.iter().zip(self.workloads).any(|(ends, w)| ends.len() < w.live.len());
            self.interrupted |= unfinished;
            self.stop();
        }
    }

    fn state(&mut self, index: usize, now_ns: u64, elapsed: Duration) -> WorkloadProgress {
        let Workload { config, live, .. } = &self.workloads[index];
        let sum =
            |field: fn(&ThreadCounters) -> &AtomicU64| live.iter().map(|one| field(one).load(Ordering::Relaxed)).sum();
        let seen: [u64; 4] = [now_ns, sum(|l| &l.ops), sum(|l| &l.bytes), sum(|l| &l.latency_ns)];
        let [_, ops, bytes, latency_ns] = seen;
        let history = &mut self.history[index];
        let past = *history.front().unwrap_or(&[self.start_ns, 0, 0, 0]);
        history.push_back(seen);
        if history.len() > RATE_TICKS {
            history.pop_front();
        }
        let delta = |field: usize| (seen[field] - past[field].min(seen[field])) as f64;
        let (window_s, elapsed_s) = (delta(0) / 1e9, elapsed.as_secs_f64());
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let ops_total = config.requests_total();
        let fraction = match config.length {
            Length::Time(time) => ratio(elapsed_s, time.as_secs_f64()),
            _ => ratio(ops as f64, ops_total.unwrap_or(0) as f64),
        };
        WorkloadProgress {
            name: config.name.clone(),
            threads_running: (live.len() - self.ends[index].len()) as u32,
            clients: config.clients,
            ops,
            ops_total,
            fraction: fraction.min(1.0),
            ops_per_s: ratio(delta(1), window_s),
            ops_per_s_avg: ratio(ops as f64, elapsed_s),
            bytes_per_s: ratio(delta(2), window_s),
            bytes_per_s_avg: ratio(bytes as f64, elapsed_s),
            latency_ms: ratio(delta(3) / 1e6, delta(1)),
            latency_ms_avg: ratio(latency_ns as f64 / 1e6, ops as f64),
        }
    }

    fn finish(self) -> Result<Vec<RunStats>> {
        let (mut stats, start_ns) = (Vec::new(), self.start_ns);
        for ((workload, gather), ends) in self.workloads.iter().zip(self.gathers).zip(self.ends) {
            let config = workload.config;
            let mut texts = ErrorTexts::default();
            let (mut connection_errors, mut unsent, mut end_ns, mut connected) = (0, 0, start_ns, false);
            let mut per_client = Vec::new();
            ensure!(ends.len() == workload.live.len(), "a thread of the load generator failed");
            for end in ends {
                if let Some(fatal) = end.fatal {
                    bail!(fatal);
                }
                connected |= end.connected_ever;
                connection_errors += end.connection_errors;
                unsent += end.unsent;
                end_ns = end_ns.max(end.end_ns);
                texts.add(end.error_texts);
                per_client.extend(end.clients);
            }
            let error_texts = texts.into_sorted();
            if !connected && !self.interrupted {
                let reason = error_texts.first().map_or("no connection", |(text, _)| text);
                bail!("no connection could be made: {reason}");
            }
            per_client.sort_by_key(|client| (client.thread, client.client));
            let (rows, totals) = gather.finish();
            stats.push(RunStats {
                name: config.name.clone(),
                started: self.started,
                duration: Duration::from_nanos(end_ns - start_ns),
                threads: config.threads,
                clients: config.clients,
                requests_per_client: config.requests_per_client(),
                rows,
                totals,
                quantiles: config.quantiles.clone(),
                connection_errors,
                error_texts,
                unsent,
                interrupted: self.interrupted,
                per_client,
            });
        }
        Ok(stats)
    }
}
