//! Owns the opening and closing of a database: what is opened and ended in which order. Never knows other databases.

use crate::backup::Restore;
use crate::capacity::{self, CapacityLedger, DEFAULT_NAME, Reservation};
use crate::database::Database;
use crate::ending::Ending;
use crate::endpoint::Endpoint;
use crate::endpoint::listen::{self, Listeners};
use crate::files;
use crate::memory;
use crate::persist::{self, Start};
use crate::progress::{Failure, Progress};
use crate::role::Replication;
use crate::shard::{HashSecret, Shard};
use crate::tls::Tls;
use crate::worker_pool::WorkerPool;
use config::{Config, ConfigStore, Secret};
use engine::{
    Control, Directory, Hub, Message, Rates, Routes, Users, WorkerHandle, pass_while_waiting, random, thread,
};
use flash::lock;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

/// How long connections may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long workers may take to end. No worker waits longer than this for anything; after this time its thread is
/// stuck.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What a node gives to each of its databases.
pub struct Common {
    /// Of the process, and so of each of its databases.
    pub run_id: String,
    pub worker_pool: WorkerPool,
    /// The runtime of the thread that accepts connections and watches the clock.
    pub runtime: Handle,
    pub ledger: Arc<CapacityLedger>,
    /// Wakes the starter's thread when a client asks for SHUTDOWN.
    pub shutdown: Arc<Notify>,
    /// How it is to end, and who waits for that.
    pub ending: Arc<Ending>,
    /// Why the node must end.
    pub failure: Failure,
}

/// What of a database is opened.
pub enum Part {
    /// Endpoint and dataset, with a secret of its own.
    Whole,
    /// An endpoint, whose dataset stays empty.
    Proxy { secret: HashSecret, routes: Routes },
    /// A dataset, which only streams in memory reach. With its proxy, whose users are its users.
    Copy { proxy: Option<Arc<Hub>>, secret: Option<HashSecret>, has_flash: bool },
}

impl Part {
    /// Whether it has files on flash, if the node has flash.
    pub fn has_flash(&self) -> bool {
        match self {
            Part::Whole => true,
            Part::Proxy { .. } => false,
            Part::Copy { has_flash, .. } => *has_flash,
        }
    }

    fn secret(&self) -> Option<HashSecret> {
        match self {
            Part::Whole => None,
            Part::Proxy { secret, .. } => Some(*secret),
            Part::Copy { secret, .. } => *secret,
        }
    }
}

/// Opens a database. It accepts clients when this returns. `clients_cap`: the number of clients for which the system
/// has open files. `restore`: the backup that it begins with.
pub fn open(
    common: &Common,
    name: &str,
    config_store: Arc<ConfigStore>,
    clients_cap: usize,
    huge_pages: bool,
    restore: Option<Restore>,
    part: Part,
) -> io::Result<Arc<Database>> {
    let config = config_store.snapshot();
    config::leaves_ram_for_values(&config, name == DEFAULT_NAME).map_err(io::Error::other)?;
    capacity::check_container(config.ram_limit_bytes).map_err(io::Error::other)?;
    let directory = Directory::new(commands::table::all(), &config.rename_commands).map_err(io::Error::other)?;
    let tls = Tls::default();
    tls.set(&config.tls).map_err(io::Error::other)?;
    let users = match &part {
        Part::Copy { proxy: Some(proxy), .. } => Arc::clone(&proxy.users),
        _ => Arc::new(users(&config).map_err(io::Error::other)?),
    };
    let start = match (persist::plan(name, &config.redis_files).map_err(io::Error::other)?, restore) {
        // The backup was loaded, and the node crashed before it removed the mark.
        (start @ Start::Recover(..), Some(restore)) => restore.end().map(|()| start).map_err(io::Error::other)?,
        (_, Some(restore)) => Start::Restore(Box::new(restore)),
        (start, None) => start,
    };
    // Listen first: early clients wait in the backlog. A database that then fails to start closes the sockets again.
    let has_endpoint = !matches!(part, Part::Copy { .. });
    let listeners = if has_endpoint { listen::open(&config)? } else { Listeners::default() };
    let workers = common.worker_pool.count();
    let shard =
        Arc::new(Shard::open(&log_name(name, &config), &config, workers, huge_pages, start.values(), part.secret())?);
    let (worker_handles, inboxes) = (0..workers).map(|_| WorkerHandle::open()).unzip();
    let begins = matches!(start, Start::Begin);
    let database = Arc::new_cyclic(|database: &Weak<Database>| {
        let control = database.clone() as Weak<dyn Control>;
        let store = Arc::clone(&shard.store);
        let hub = Hub::new(name, Arc::clone(&config_store), store, directory, users, worker_handles, control);
        let endpoint = has_endpoint.then(|| {
            let (addresses, runtime) = (listeners.addresses(), common.runtime.clone());
            Endpoint::new(Arc::clone(&hub), tls, clients_cap, addresses, runtime)
        });
        Database {
            hub,
            reservation: Reservation::new(name, Arc::clone(&config_store), Arc::clone(&shard)),
            begins,
            ledger: Arc::clone(&common.ledger),
            shutdown: Arc::clone(&common.shutdown),
            ending: Arc::clone(&common.ending),
            failure: Arc::clone(&common.failure),
            files: Progress::default(),
            replication: Replication::default(),
            endpoint,
            started: Instant::now(),
            run_id: common.run_id.clone(),
            lone_id: random_id(),
            shard,
            rates: Mutex::new(Rates::default()),
            loops: common.worker_pool.loops(),
            rounds_before: Mutex::default(),
            memory_peak_bytes: AtomicU64::new(0),
            memory_startup_bytes: AtomicU64::new(0),
            is_deleting: AtomicBool::new(false),
            workers_end: Mutex::default(),
            me: database.clone(),
        }
    });
    match part {
        Part::Whole => {}
        // Before the first client.
        Part::Proxy { routes, .. } => {
            database.hub.routes.set(routes).map_err(|_| io::Error::other("a new database has no routes"))?;
            database.hub.dataset.memory.set_of_proxy();
        }
        Part::Copy { proxy, .. } => {
            // It has no role yet.
            database.hub.set_owned(|_| false);
            if let Some(proxy) = proxy {
                database.hub.set_proxy(&proxy);
            }
        }
    }
    files::remove_leftovers(&files::directory(name, &config.redis_files));
    if let Err(refused) = begin(common, &config, &database, inboxes, start, listeners) {
        // Who accepts, and the workers that have started, would keep the database alive.
        database.endpoint.iter().for_each(|endpoint| endpoint.close());
        stop_workers(&database);
        database.shard.unmake();
        return Err(refused);
    }
    Ok(database)
}

/// Gives a new database its workers, its dataset and its connections.
fn begin(
    common: &Common,
    config: &Config,
    database: &Arc<Database>,
    inboxes: Vec<UnboundedReceiver<Message>>,
    start: Start,
    listeners: Listeners,
) -> io::Result<()> {
    database.shard.store.set_waiting(pass_while_waiting);
    let of_share = Arc::downgrade(database);
    database.shard.store.set_resident(Box::new(move |process| share(&of_share, process)));
    database.hub.connect();
    database.shard.subscribe(&database.hub.config);
    let workers_end = start_workers(&common.worker_pool, database, inboxes)?;
    database.memory_startup_bytes.store(memory::allocated_bytes(), Relaxed);
    let primary = config.replica.primary.clone();
    if primary.is_some() {
        database.start_as_replica();
    }
    persist::start(database, start)?;
    if let Some((host, port)) = primary {
        database.start_following(&host, port).map_err(io::Error::other)?;
    }
    if let Some(endpoint) = &database.endpoint {
        endpoint.accept(listeners)?;
    }
    *database.workers_end.lock() = Some(workers_end);
    Ok(())
}

/// Removes what the start of a closed database has made, because the node is refused. What clients have changed in the meantime stays.
pub fn unmake(database: &Database) {
    let store = &database.shard.store;
    let databases = database.hub.config.snapshot().databases;
    let is_empty = database.changes_since_save() == 0 && (0..databases).all(|number| store.len(number) == 0);
    // Half a dataset was never served.
    if !is_empty && database.files.load_failure.lock().is_none() {
        return;
    }
    if database.begins
        && let Err(why) = persist::delete(database)
    {
        tracing::error!("{why}");
    }
    database.shard.unmake();
}

/// Removes the files of a database that is deleted. It is closed. If this fails, it can be called again.
pub fn delete_files(database: &Database) -> Result<(), String> {
    // Before the values go, nothing names them any more.
    persist::delete(database)?;
    database.shard.delete_files()?;
    files::retire_dump(&database.hub.name, &database.hub.config.snapshot().redis_files);
    Ok(())
}

/// As [`delete_files`], of a database that is not open. Nothing is read, because its files may be damaged.
pub fn remove_files(name: &str, config: &Config) -> Result<(), String> {
    let logs = config.flash_paths.iter().map(|path| path.join(log_name(name, config)));
    let logs: Vec<PathBuf> = logs.filter(|log| log.exists()).collect();
    // A thread may still be loading it, or saving it, and has the log meanwhile. It must not go on in a directory that is removed.
    let _locked = logs.iter().map(|log| lock_log(log)).collect::<Result<Vec<_>, String>>()?;
    persist::remove(name, &config.redis_files)?;
    for log in &logs {
        std::fs::remove_file(log).map_err(|error| files::about(log, error))?;
    }
    files::retire_dump(name, &config.redis_files);
    Ok(())
}

/// Waits for the process that uses a file of the log on flash, if it is ending.
fn lock_log(file: &Path) -> Result<lock::Locked, String> {
    lock::exclusive(file).map_err(|refused| match refused {
        lock::Refused::InUse(holder) => files::about(file, format!("it is in use by {holder}")),
        lock::Refused::Io { source, .. } => files::about(file, source),
    })
}

/// This database's share of the process's resident bytes.
fn share(database: &Weak<Database>, process: u64) -> u64 {
    database.upgrade().map_or(process, |database| database.resident_of(process))
}

fn stop_workers(database: &Database) {
    for worker_handle in &database.hub.worker_handles {
        // If the worker has already ended, nothing needs to be sent.
        let _ = worker_handle.sender.send(Message::Stop);
    }
}

/// Closes a database: every connection finishes the commands that it was sent, then the workers finish their flash
/// operations.
pub fn close(database: &Database) {
    let Some(workers_end) = database.workers_end.lock().take() else { return };
    if let Some(endpoint) = &database.endpoint {
        endpoint.close();
    }
    // What it has received is applied while the workers are there.
    database.stop_following();
    database.hub.is_closing.store(true, Relaxed);
    database.hub.clients.unpause();
    database.hub.clients.hang_up_all();
    let deadline = Instant::now() + STOP_TIMEOUT;
    while database.hub.clients.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    stop_workers(database);
    // The channel carries no message. It is closed when the last worker has ended.
    if workers_end.recv_timeout(END_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
        tracing::error!("database '{}': its workers did not end in time", database.hub.name);
    }
    persist::close(database);
}

/// The name of the log file in each flash path. The default database's log is named by its port, because nodes may
/// share a path.
fn log_name(name: &str, config: &Config) -> String {
    match if config.port == 0 { config.tls.port } else { config.port } {
        _ if name != DEFAULT_NAME => format!("flintkv-{name}.log"),
        0 => "flintkv.log".to_owned(),
        port => format!("flintkv-{port}.log"),
    }
}

/// The users at the start.
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

/// Forty random hexadecimal digits.
pub fn random_id() -> String {
    (0..3).map(|_| format!("{:016x}", random::number())).collect::<String>()[..40].to_owned()
}

/// Starts a worker on each thread of the worker pool. The returned channel closes when all workers have ended.
fn start_workers(
    worker_pool: &WorkerPool,
    database: &Arc<Database>,
    inboxes: Vec<UnboundedReceiver<Message>>,
) -> io::Result<mpsc::Receiver<()>> {
    let pool = database.shard.thread_pool(worker_pool.count());
    let (started, answers) = mpsc::channel();
    let (ended, ends) = mpsc::channel::<()>();
    for (index, inbox) in inboxes.into_iter().enumerate() {
        let (hub, started, ended) = (Arc::clone(&database.hub), started.clone(), ended.clone());
        let (of_lane, pool) = (Arc::clone(database), pool.clone());
        let open_lane = move || of_lane.shard.open_lane(index, pool.as_ref());
        worker_pool.begin(
            index,
            Box::new(move || {
                Box::pin(async move {
                    thread::run(hub, index, inbox, open_lane, started).await;
                    drop(ended);
                })
            }),
        );
    }
    drop(started);
    for _ in 0..worker_pool.count() {
        // A thread that gives no answer has panicked.
        answers.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
    }
    Ok(ends)
}
