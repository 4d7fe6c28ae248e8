//! Owns a database's beginning and end: what is opened in which order, and what is ended. Never knows other databases.

use crate::acl::Users;
use crate::clients::Clients;
use crate::config::{self, Config, ConfigStore, FlashIo, Secret, TierMode};
use crate::crew::Crew;
use crate::database::{DEFAULT_NAME, Database};
use crate::directory::Directory;
use crate::listen::{self, Listeners};
use crate::memory;
use crate::monitors::Monitors;
use crate::node::Node;
use crate::notify;
use crate::pubsub::{Mail, PubSub};
use crate::script::Scripts;
use crate::stand_in;
use crate::stats::{LatencyEvents, Rates, SlowLog, Stats};
use crate::thread::{self, Message, Post, Socket, wall_ms};
use crate::tls::Tls;
use crate::tracking::Tracking;
use flash::{DATA_OFFSET, FlashFiles, ThreadPool};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};
use store::{FlashConfig, Lane, LimitOf, Store, StoreConfig};
use tokio::sync::mpsc::UnboundedReceiver;

/// How long connections may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// A worker waits longer than this for nothing: then its thread is held up for good.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Opens a database: it accepts clients when this returns. `clients_cap`: as many as the system has open files for.
pub fn open(
    node: &Arc<Node>,
    name: &str,
    config_store: Arc<ConfigStore>,
    clients_cap: usize,
    huge_pages: bool,
) -> io::Result<Arc<Database>> {
    let config = config_store.snapshot();
    config::leaves_ram_for_values(&config, name == DEFAULT_NAME).map_err(io::Error::other)?;
    let directory = Directory::new(commands::table::all(), &config.rename_commands).map_err(io::Error::other)?;
    let tls = Tls::default();
    tls.set(&config.tls).map_err(io::Error::other)?;
    let users = users(&config).map_err(io::Error::other)?;
    // Clients that come too early wait; but not for one that will not start.
    let listeners = listen::open(&config)?;
    let flash = open_flash(name, &config)?;
    let workers = node.crew.count();
    let store = Store::new(&StoreConfig {
        workers,
        databases: config.databases,
        ram_limit: config.ram_limit_bytes,
        limit_of: LimitOf::Process,
        policy: config.maxmemory_policy,
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
    let database = Arc::new(Database {
        name: name.into(),
        node: Arc::downgrade(node),
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
        run_id: run_id(),
        flash_driver: OnceLock::new(),
        flash,
        clients_cap: AtomicUsize::new(clients_cap),
        rejected_connections: AtomicU64::new(0),
        targets_kept: AtomicUsize::new(0),
        rates: Mutex::new(Rates::default()),
        memory_peak_bytes: AtomicU64::new(0),
        memory_startup_bytes: AtomicU64::new(0),
        beside_bytes: AtomicU64::new(0),
        config_applied: AtomicU64::new(config_store.version()),
        is_deleting: AtomicBool::new(false),
        is_closing: AtomicBool::new(false),
        running: Mutex::default(),
        endpoints: listeners.endpoints(),
        config: config_store,
    });
    database.store.set_waiting(stand_in::pass_while_waiting);
    let of_share = Arc::downgrade(&database);
    database.store.set_resident(Box::new(move |process| share(&of_share, process)));
    notify::connect(&database);
    database.store.tell_events(config.events.classes());
    // Those that have begun would hold on to a database that is none.
    let ends = start_workers(&node.crew, &database, inboxes, database.flash.as_ref())
        .inspect_err(|_| stop_workers(&database))?;
    database.memory_startup_bytes.store(memory::allocated_bytes(), Relaxed);
    let acceptors = accept(node, &database, listeners);
    *database.running.lock() = Some(Running { acceptors, ends });
    Ok(database)
}

/// What ends with a database.
pub struct Running {
    acceptors: Vec<tokio::task::JoinHandle<()>>,
    ends: mpsc::Receiver<()>,
}

/// Of the process's resident bytes, those that are this database's.
fn share(database: &Weak<Database>, process: u64) -> u64 {
    database.upgrade().map_or(process, |database| database.resident_of(process))
}

fn accept(node: &Node, database: &Arc<Database>, listeners: Listeners) -> Vec<tokio::task::JoinHandle<()>> {
    let mut acceptors = Vec::new();
    let failed = |error: io::Error| tracing::error!("a listening socket failed: {error}");
    let plain = listeners.tcp.into_iter().map(|listener| (listener, Socket::Tcp as fn(_) -> _));
    let encrypted = listeners.tls.into_iter().map(|listener| (listener, Socket::Tls as fn(_) -> _));
    for (listener, kind) in plain.chain(encrypted) {
        let database = Arc::clone(database);
        acceptors.push(node.runtime.spawn(async move {
            listen::accept_tcp(database, listener, kind).await.unwrap_or_else(failed);
        }));
    }
    if let Some(unix) = listeners.unix {
        let database = Arc::clone(database);
        acceptors.push(node.runtime.spawn(async move {
            listen::accept_unix(database, unix).await.unwrap_or_else(failed);
        }));
    }
    acceptors
}

fn stop_workers(database: &Database) {
    for post in &database.posts {
        // A worker that is gone already needs no word.
        let _ = post.sender.send(Message::Stop);
    }
}

/// Every connection finishes what it was sent, then the workers finish their flash operations.
pub fn close(database: &Database) {
    let Some(running) = database.running.lock().take() else { return };
    for acceptor in &running.acceptors {
        acceptor.abort();
    }
    database.is_closing.store(true, Relaxed);
    database.clients.unpause();
    database.clients.hang_up_all();
    let deadline = Instant::now() + STOP_PATIENCE;
    while database.clients.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    stop_workers(database);
    // It says nothing: it is closed when the last worker has ended.
    if running.ends.recv_timeout(END_PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        tracing::error!("database '{}': its workers do not end", database.name);
    }
}

/// The log files and how the store divides them.
pub struct Flash {
    pub files: Arc<FlashFiles>,
    pub layout: FlashConfig,
    io: FlashIo,
}

impl Flash {
    /// What it takes on the devices.
    pub fn bytes(&self) -> u64 {
        self.files.describe().map(|info| DATA_OFFSET + info.data_bytes).sum()
    }
}

/// The name of the log in each flash path. The default database's says its port: nodes may share a path.
fn log_name(name: &str, config: &Config) -> String {
    match if config.port == 0 { config.tls.port } else { config.port } {
        _ if name != DEFAULT_NAME => format!("flintkv-{name}.log"),
        0 => "flintkv.log".to_owned(),
        port => format!("flintkv-{port}.log"),
    }
}

fn open_flash(name: &str, config: &Config) -> io::Result<Option<Flash>> {
    if config.flash_paths.is_empty() {
        return Ok(None);
    }
    let layout = FlashConfig::divide(
        config.flash_limit_bytes,
        config.flash_segment_bytes,
        config.flash_paths.len() as u32,
        DATA_OFFSET,
        config.flash_compression,
    );
    let files = FlashFiles::open(&config.flash_paths, &log_name(name, config), layout.bytes_per_path())
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Some(Flash { files: Arc::new(files), layout, io: config.flash_io }))
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

/// Forty hexadecimal digits.
pub fn run_id() -> String {
    (0..3).map(|_| format!("{:016x}", random())).collect::<String>()[..40].to_owned()
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

/// Begins a worker on each thread of the crew. What is returned ends when all of them have.
fn start_workers(
    crew: &Crew,
    database: &Arc<Database>,
    inboxes: Vec<UnboundedReceiver<Message>>,
    flash: Option<&Flash>,
) -> io::Result<mpsc::Receiver<()>> {
    // Threads that read and write where io_uring is refused; they cost nothing until a driver is opened on them.
    let pool = flash.map(|_| ThreadPool::new((crew.count() * 4).clamp(4, 32)));
    let (started, answers) = mpsc::channel();
    let (ended, ends) = mpsc::channel::<()>();
    for (index, inbox) in inboxes.into_iter().enumerate() {
        let (database, started, ended) = (Arc::clone(database), started.clone(), ended.clone());
        let flash =
            flash.zip(pool.as_ref()).map(|(flash, pool)| (Arc::clone(&flash.files), flash.io, Arc::clone(pool)));
        let of_lane = Arc::clone(&database);
        let open_lane = move || {
            let driver = match flash {
                Some((files, io, pool)) => Some(open_driver(&of_lane, &files, io, &pool)?),
                None => None,
            };
            Ok(Lane::new(Arc::clone(&of_lane.store), driver, index))
        };
        crew.begin(
            index,
            Box::new(move || {
                Box::pin(async move {
                    thread::run(database, index, inbox, open_lane, started).await;
                    drop(ended);
                })
            }),
        );
    }
    drop(started);
    for _ in 0..crew.count() {
        // A thread that gives no answer has panicked.
        answers.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
    }
    Ok(ends)
}

/// A worker's driver, and a note of which kind it became.
fn open_driver(
    database: &Database,
    files: &Arc<FlashFiles>,
    io: FlashIo,
    pool: &Arc<ThreadPool>,
) -> io::Result<Box<dyn store::io::Driver>> {
    let noted = |which, name| {
        let driver = flash::open_driver(files, which, pool)?;
        // The first worker's choice is every worker's.
        let _ = database.flash_driver.set(name);
        Ok(driver)
    };
    flash::choose_driver(io, || noted(FlashIo::Uring, "io_uring"), || noted(FlashIo::Threads, "threads"))
}

/// CONFIG SET of what the store keeps itself takes effect at once.
pub fn apply_to_store(store: &Store, before: &Config, now: &Config) {
    if before.ram_limit_bytes != now.ram_limit_bytes {
        store.set_ram_limit(now.ram_limit_bytes);
    }
    if before.maxmemory_policy != now.maxmemory_policy {
        store.set_policy(now.maxmemory_policy);
    }
    if before.events != now.events {
        store.tell_events(now.events.classes());
    }
    if before.flash_split_bytes != now.flash_split_bytes {
        store.set_split_bytes(now.flash_split_bytes as usize);
    }
    if before.flash_compression != now.flash_compression {
        store.set_codec(now.flash_compression);
    }
    if before.debug_tier_mode != now.debug_tier_mode {
        store.set_all_cold(now.debug_tier_mode == TierMode::Cold);
    }
}
