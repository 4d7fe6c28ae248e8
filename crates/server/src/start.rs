//! Owns a server's beginning and end: what is opened in which order, the clock's duties, and the way down.
//! Never serves a connection.

use crate::acl::Users;
use crate::clients::{Card, Clients};
use crate::config::{self, Compression, Config, ConfigStore, FlashIo, Policy, Secret, TierMode};
use crate::directory::Directory;
use crate::huge_pages;
use crate::listen::{self, Listeners};
use crate::log::{self, Log};
use crate::memory;
use crate::monitors::Monitors;
use crate::node::Node;
use crate::notify;
use crate::pubsub::{Mail, PubSub};
use crate::script::Scripts;
use crate::stand_in;
use crate::stats::{LatencyEvents, Rates, SlowLog, Stats};
use crate::thread::{self, Post, Socket, wall_ms};
use crate::tls::Tls;
use crate::tracking::Tracking;
use flash::{DATA_OFFSET, FlashFiles, ThreadPool};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Codec, FlashConfig, Lane, LimitOf, Store, StoreConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long connections may take to end when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// The clock's duties: rates ten times a second, idle and slow clients once.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;
/// Descriptors besides clients' sockets: listeners, rings, logs, polls.
const OTHER_FILES: usize = 64;

/// Of a worker's thread: scripts return and decode nested data. What is not touched takes no memory.
const STACK_BYTES: usize = 8 << 20;

/// Runs a server until it is told to stop. Returns an error only if it could not start.
pub fn run(config_store: Arc<ConfigStore>) -> io::Result<()> {
    let config = config_store.snapshot();
    let log = log::start(&config)?;
    for notice in config_store.take_notices() {
        tracing::warn!("{notice}");
    }
    let clients_cap = raise_open_files(config.maxclients);
    let huge_pages = huge_pages::set_up(&config);
    config::leaves_ram_for_values(&config).map_err(io::Error::other)?;
    let directory = Directory::new(commands::table::all(), &config.rename_commands).map_err(io::Error::other)?;
    let workers = config.io_threads.max(1);
    let tls = Tls::default();
    tls.set(&config.tls).map_err(io::Error::other)?;
    let users = users(&config).map_err(io::Error::other)?;
    // Clients that come too early wait; but not for one that will not start.
    let listeners = listen::open(&config)?;
    let flash = open_flash(&config)?;
    let store = Store::new(&StoreConfig {
        workers,
        databases: config.databases,
        ram_limit: config.ram_limit_bytes,
        limit_of: LimitOf::Process,
        policy: policy(config.maxmemory_policy),
        huge_pages,
        flash: flash.as_ref().map(|flash| flash.layout.clone()),
        secret: [random(), random()],
    });
    store.set_split_bytes(config.flash_split_bytes as usize);
    if let Some(flash) = &flash {
        store.set_all_cold(config.debug_tier_mode == TierMode::Cold);
        store.set_reader(Arc::clone(&flash.files) as Arc<dyn store::io::Reader>);
    }
    let (posts, inboxes): (Vec<_>, Vec<_>) = (0..workers)
        .map(|_| {
            let (sender, inbox) = tokio::sync::mpsc::unbounded_channel();
            (Post { sender, connections: AtomicUsize::new(0), mail: Mail::default() }, inbox)
        })
        .unzip();
    let node = Arc::new(Node {
        stats: Stats::new(workers, directory.count),
        directory,
        store,
        clients: Clients::default(),
        pubsub: PubSub::default(),
        users,
        tls,
        tracking: Tracking::default(),
        monitors: Monitors::default(),
        scripts: Scripts::new(workers),
        slow_log: SlowLog::default(),
        latency_events: LatencyEvents::default(),
        posts,
        started: Instant::now(),
        started_s: wall_ms() / 1000,
        run_id: (0..3).map(|_| format!("{:016x}", random())).collect::<String>()[..40].to_owned(),
        flash_driver: OnceLock::new(),
        clients_cap: AtomicUsize::new(clients_cap),
        rejected_connections: AtomicU64::new(0),
        targets_kept: AtomicUsize::new(0),
        rates: Mutex::new(Rates::default()),
        memory_peak_bytes: AtomicU64::new(0),
        memory_startup_bytes: AtomicU64::new(0),
        shutdown: Notify::new(),
        stopping: AtomicBool::new(false),
        config: config_store,
    });
    node.store.set_waiting(stand_in::pass_while_waiting);
    notify::connect(&node);
    node.store.tell_events(config.events.classes());
    write_pidfile(&config)?;
    let threads = start_workers(&node, inboxes, flash.as_ref(), &config)?;
    node.memory_startup_bytes.store(memory::allocated_bytes(), Relaxed);
    announce(&node, &config, flash.as_ref(), &listeners);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(attend(&node, listeners, &log));
    stop(&node, threads);
    if let Some(pidfile) = &config.pidfile {
        // Best effort: it may have been removed by hand.
        let _ = fs::remove_file(pidfile);
    }
    tracing::info!("FlintKV is now ready to exit, bye bye...");
    ended
}

/// The log files and how the store divides them.
struct Flash {
    files: Arc<FlashFiles>,
    layout: FlashConfig,
    io: flash::FlashIo,
}

/// The name of the log in each flash path: one database per port.
fn log_name(config: &Config) -> String {
    match if config.port == 0 { config.tls.port } else { config.port } {
        0 => "flintkv.log".to_owned(),
        port => format!("flintkv-{port}.log"),
    }
}

fn open_flash(config: &Config) -> io::Result<Option<Flash>> {
    if config.flash_paths.is_empty() {
        return Ok(None);
    }
    let layout = FlashConfig::divide(
        config.flash_limit_bytes,
        config.flash_segment_bytes,
        config.flash_paths.len() as u32,
        DATA_OFFSET,
        codec(config.flash_compression),
    );
    let files = FlashFiles::open(&config.flash_paths, &log_name(config), layout.bytes_per_path())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let io = match config.flash_io {
        FlashIo::Auto => flash::FlashIo::Auto,
        FlashIo::Uring => flash::FlashIo::Uring,
        FlashIo::Threads => flash::FlashIo::Threads,
    };
    Ok(Some(Flash { files: Arc::new(files), layout, io }))
}

fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::None,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    }
}

fn policy(policy: Policy) -> store::Policy {
    match policy {
        Policy::NoEviction => store::Policy::NoEviction,
        Policy::AllkeysLru => store::Policy::AllKeysLru,
        Policy::AllkeysLfu => store::Policy::AllKeysLfu,
        Policy::AllkeysRandom => store::Policy::AllKeysRandom,
        Policy::VolatileLru => store::Policy::VolatileLru,
        Policy::VolatileLfu => store::Policy::VolatileLfu,
        Policy::VolatileRandom => store::Policy::VolatileRandom,
        Policy::VolatileTtl => store::Policy::VolatileTtl,
    }
}

/// The users there are at the start.
fn users(config: &Config) -> Result<Users, String> {
    let users = Users::default();
    users.require_password(config.requirepass.as_ref().map(Secret::expose));
    let Some(path) = &config.aclfile else {
        users.take_directives(&config.users, config.acl_pubsub_all)?;
        return Ok(users);
    };
    if !config.users.is_empty() {
        return Err(
            "users are defined by `user` directives and there is an aclfile too: only one of them may be".into()
        );
    }
    users.replace(Users::read_file(path, config.acl_pubsub_all)?);
    Ok(users)
}

/// From the system's generator: cold keys are told apart by a hash whose secret nobody may know.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// From the system's generator.
pub fn fill_random(bytes: &mut [u8]) {
    for portion in bytes.chunks_mut(256) {
        // So few bytes are given whole.
        let got = rustix::rand::getrandom(&mut *portion, rustix::rand::GetRandomFlags::empty());
        assert_eq!(got, Ok(portion.len()), "the system gives random bytes");
    }
}

/// Raises the limit of open files to what `maxclients` needs, as far as the system allows. Returns the number of
/// clients there is room for.
fn raise_open_files(maxclients: usize) -> usize {
    let wanted = (maxclients + OTHER_FILES) as u64;
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return maxclients;
    }
    let maximum = now.maximum.unwrap_or(u64::MAX);
    // A privileged process may raise the hard limit too.
    let raised = [maximum.max(wanted), maximum].into_iter().find_map(|maximum| {
        let limit = Rlimit { current: Some(wanted.min(maximum)), maximum: Some(maximum) };
        setrlimit(Resource::Nofile, limit).is_ok().then_some(wanted.min(maximum))
    });
    let files = raised.unwrap_or(current);
    if files >= wanted {
        return maxclients;
    }
    let cap = (files as usize).saturating_sub(OTHER_FILES).max(1);
    tracing::warn!("only {files} files may be open: at most {cap} clients are served, not maxclients' {maxclients}");
    cap
}

fn start_workers(
    node: &Arc<Node>,
    inboxes: Vec<tokio::sync::mpsc::UnboundedReceiver<thread::Message>>,
    flash: Option<&Flash>,
    config: &Config,
) -> io::Result<Vec<JoinHandle<()>>> {
    // Threads that read and write where io_uring is refused; they cost nothing until a driver is opened on them.
    let pool = flash.map(|_| ThreadPool::new((config.io_threads * 4).clamp(4, 32)));
    let (started, answers) = mpsc::channel();
    let mut threads = Vec::new();
    for (index, inbox) in inboxes.into_iter().enumerate() {
        let (worker_node, started) = (Arc::clone(node), started.clone());
        let flash =
            flash.zip(pool.as_ref()).map(|(flash, pool)| (Arc::clone(&flash.files), flash.io, Arc::clone(pool)));
        let open_node = Arc::clone(node);
        let open_lane = move || {
            let driver = match flash {
                Some((files, io, pool)) => Some(open_driver(&open_node, &files, io, &pool)?),
                None => None,
            };
            Ok(Lane::new(Arc::clone(&open_node.store), driver, index))
        };
        let name = format!("worker-{index}");
        let body = move || thread::run(worker_node, index, inbox, open_lane, started);
        threads.push(std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body)?);
    }
    drop(started);
    for answer in answers.iter().take(threads.len()) {
        answer?;
    }
    Ok(threads)
}

/// A worker's driver, and a note of which kind it became.
fn open_driver(
    node: &Node,
    files: &Arc<FlashFiles>,
    io: flash::FlashIo,
    pool: &Arc<ThreadPool>,
) -> io::Result<Box<dyn store::io::Driver>> {
    let noted = |which, name| {
        let driver = flash::open_driver(files, which, pool)?;
        // The first worker's choice is every worker's.
        let _ = node.flash_driver.set(name);
        Ok(driver)
    };
    flash::choose_driver(io, || noted(flash::FlashIo::Uring, "io_uring"), || noted(flash::FlashIo::Threads, "threads"))
}

fn write_pidfile(config: &Config) -> io::Result<()> {
    let Some(path) = &config.pidfile else { return Ok(()) };
    fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write pidfile {}: {error}", path.display())))
}

fn announce(node: &Node, config: &Config, flash: Option<&Flash>, listeners: &Listeners) {
    let human = crate::info::human_bytes;
    let limit = |bytes| if bytes == 0 { "none".to_owned() } else { human(bytes) };
    tracing::info!(
        "FlintKV {} starts: process {}, {} workers, {} databases",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        node.posts.len(),
        config.databases
    );
    tracing::info!(
        "RAM limit {}, memory limit {}, policy {}",
        limit(config.ram_limit_bytes),
        limit(config.memory_limit_bytes),
        config.maxmemory_policy.as_str()
    );
    if let Some(flash) = flash {
        tracing::info!(
            "flash: {} in {} segments of {}, compression {}, I/O by {}",
            human(u64::from(flash.layout.segments) * flash.layout.segment_bytes),
            flash.layout.segments,
            human(flash.layout.segment_bytes),
            config.flash_compression.as_str(),
            node.flash_driver.get().unwrap_or(&"nothing")
        );
    } else {
        tracing::info!("no flash: everything stays in RAM");
    }
    for (listeners, how) in [(&listeners.tcp, ""), (&listeners.tls, " (TLS)")] {
        for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
            tracing::info!("ready to accept connections on {address}{how}");
        }
    }
    if let Some(path) = config.unixsocket.as_deref().filter(|_| listeners.unix.is_some()) {
        tracing::info!("ready to accept connections on {}", Path::display(path));
    }
}

/// Accepts, watches the clock, and returns when the server is to stop.
async fn attend(node: &Arc<Node>, listeners: Listeners, log: &Log) -> io::Result<()> {
    let mut acceptors = JoinSet::new();
    for listener in listeners.tcp {
        acceptors.spawn(listen::accept_tcp(Arc::clone(node), listener, Socket::Tcp));
    }
    for listener in listeners.tls {
        acceptors.spawn(listen::accept_tcp(Arc::clone(node), listener, Socket::Tls));
    }
    if let Some(unix) = listeners.unix {
        acceptors.spawn(listen::accept_unix(Arc::clone(node), unix));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Taken, and ignored: the terminal it was started from may close.
    let _hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut applied = Applied { version: node.config.version(), ticks: 0 };
    loop {
        tokio::select! {
            _ = poll_fn(|cx| terminate.poll_recv(cx)) => {
                tracing::info!("SIGTERM: the server stops");
                return Ok(());
            }
            _ = poll_fn(|cx| interrupt.poll_recv(cx)) => {
                tracing::info!("SIGINT: the server stops");
                return Ok(());
            }
            () = node.shutdown.notified() => {
                tracing::info!("SHUTDOWN: the server stops");
                return Ok(());
            }
            _ = ticks.tick() => applied.tick(node, log),
            Some(ended) = acceptors.join_next() => {
                let error = ended.map_or_else(io::Error::other, |result| result.err().unwrap_or(io::ErrorKind::Other.into()));
                tracing::error!("a listening socket failed: {error}");
            }
        }
    }
}

/// What the clock has applied of the configuration.
struct Applied {
    version: u64,
    ticks: u32,
}

impl Applied {
    fn tick(&mut self, node: &Node, log: &Log) {
        let now_ms = wall_ms();
        node.sample_rates(now_ms);
        let version = node.config.version();
        if version != self.version {
            self.version = version;
            let config = node.config.snapshot();
            log.set_level(config.loglevel);
            if config.maxclients > node.clients_cap.load(Relaxed) {
                node.clients_cap.store(raise_open_files(config.maxclients), Relaxed);
            }
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_SECOND) {
            node.memory_peak_bytes.fetch_max(memory::allocated_bytes(), Relaxed);
            end_idle_and_slow(node, now_ms);
        }
    }
}

/// `timeout`, and the soft limit of `client-output-buffer-limit`.
fn end_idle_and_slow(node: &Node, now_ms: u64) {
    let config = node.config.snapshot();
    let timeout_ms = u64::from(config.timeout_s) * 1000;
    let limits = [config.output_limit_normal, config.output_limit_pubsub];
    let watches_output = limits.iter().any(|limit| limit.soft_bytes > 0);
    if timeout_ms == 0 && !watches_output {
        return;
    }
    let is_idle = |card: &Card| {
        let idle_ms = now_ms.saturating_sub(card.active_ms.load(Relaxed));
        timeout_ms > 0 && idle_ms > timeout_ms && !card.listens() && !card.is_blocked()
    };
    let is_slow = |card: &Card| {
        let since_ms = [card.soft_since_ms.load(Relaxed), card.outbox.soft_since_ms()];
        since_ms.iter().zip(limits).any(|(&since_ms, limit)| {
            limit.soft_bytes > 0 && since_ms != 0 && now_ms.saturating_sub(since_ms) > limit.soft_s.saturating_mul(1000)
        })
    };
    let mut slow = 0;
    let ended = node.clients.end_where(|card| {
        let too_slow = is_slow(card);
        slow += usize::from(too_slow);
        too_slow || is_idle(card)
    });
    if slow > 0 {
        tracing::warn!("closed {slow} clients that stayed above client-output-buffer-limit's soft limit");
    }
    if ended > slow {
        tracing::debug!("closed {} idle clients", ended - slow);
    }
}

/// CONFIG SET of what the store keeps itself takes effect at once.
pub fn apply_to_store(store: &Store, before: &Config, now: &Config) {
    if before.ram_limit_bytes != now.ram_limit_bytes {
        store.set_ram_limit(now.ram_limit_bytes);
    }
    if before.maxmemory_policy != now.maxmemory_policy {
        store.set_policy(policy(now.maxmemory_policy));
    }
    if before.events != now.events {
        store.tell_events(now.events.classes());
    }
    if before.flash_split_bytes != now.flash_split_bytes {
        store.set_split_bytes(now.flash_split_bytes as usize);
    }
    if before.flash_compression != now.flash_compression {
        store.set_codec(codec(now.flash_compression));
    }
    if before.debug_tier_mode != now.debug_tier_mode {
        store.set_all_cold(now.debug_tier_mode == TierMode::Cold);
    }
}

/// Every connection finishes what it was sent, then the workers finish their flash operations.
fn stop(node: &Node, threads: Vec<JoinHandle<()>>) {
    node.stopping.store(true, Relaxed);
    node.clients.unpause();
    node.clients.hang_up_all();
    let deadline = Instant::now() + STOP_PATIENCE;
    while node.clients.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    for post in &node.posts {
        // A worker that is gone already needs no word.
        let _ = post.sender.send(thread::Message::Stop);
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a worker ended by a panic");
        }
    }
}
