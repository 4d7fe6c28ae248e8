//! Owns the process's beginning and end: what is set up before the first database opens, the clock's duties, and the way
//! down. Never serves a connection.

use crate::clients::Card;
use crate::config::{Config, ConfigStore};
use crate::database::Database;
use crate::huge_pages;
use crate::log::{self, Log};
use crate::memory;
use crate::node::Node;
use crate::resize;
use crate::supervise::Supervisor;
use crate::thread::wall_ms;
use base::size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The clock's duties: rates ten times a second, idle and slow clients once.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;
/// Descriptors besides clients' sockets: listeners, rings, logs, polls.
const OTHER_FILES: usize = 64;

/// Runs a node until it is told to stop. Returns an error only if it could not start. `attach` is called when the node
/// serves clients; what it returns is dropped before the databases end.
pub fn run(
    config_store: Arc<ConfigStore>,
    attach: impl FnOnce(&Arc<Node>) -> io::Result<Box<dyn Any>>,
) -> io::Result<()> {
    let config = config_store.snapshot();
    let log = log::start(&config)?;
    for notice in config_store.take_notices() {
        tracing::warn!("{notice}");
    }
    let clients_cap = raise_open_files(config.maxclients);
    let huge_pages = huge_pages::set_up(&config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let node = Node::new(runtime.handle().clone(), config.io_threads.max(1), &config)?;
    let default = node.open_default(Arc::clone(&config_store), clients_cap, huge_pages)?;
    write_pidfile(&config)?;
    announce(&default, &config);
    node.open_others();
    let attached = attach(&node);
    let mut supervisor = Supervisor::find(config.supervised);
    let ended = match &attached {
        Ok(_) => runtime.block_on(attend(&node, &log, &mut supervisor)),
        Err(_) => Ok(()),
    };
    supervisor.stopping();
    node.stopping();
    let attached = attached.map(drop);
    // The listening sockets with it.
    drop(runtime);
    node.close();
    if let Some(pidfile) = &config.pidfile {
        // Best effort: it may have been removed by hand.
        let _ = fs::remove_file(pidfile);
    }
    tracing::info!("FlintKV is now ready to exit, bye bye...");
    attached.and(ended)
}

/// Raises the limit of open files to what `maxclients` needs, as far as the system allows. Returns the number of
/// clients there is room for.
pub fn raise_open_files(maxclients: usize) -> usize {
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

fn write_pidfile(config: &Config) -> io::Result<()> {
    let Some(path) = &config.pidfile else { return Ok(()) };
    fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write pidfile {}: {error}", path.display())))
}

fn announce(database: &Database, config: &Config) {
    let human = size::human;
    let limit = |bytes| if bytes == 0 { "none".to_owned() } else { human(bytes) };
    tracing::info!(
        "FlintKV {} starts: process {}, {} workers, {} databases",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        database.posts.len(),
        config.databases
    );
    tracing::info!(
        "RAM limit {}, memory limit {}, policy {}",
        limit(config.ram_limit_bytes),
        limit(config.memory_limit_bytes),
        config.maxmemory_policy.as_str()
    );
    if let Some(flash) = &database.flash {
        tracing::info!(
            "flash: {} in {} segments of {}, compression {}, I/O by {}",
            human(u64::from(flash.layout.segments) * flash.layout.segment_bytes),
            flash.layout.segments,
            human(flash.layout.segment_bytes),
            config.flash_compression.as_str(),
            database.flash_driver.get().unwrap_or(&"nothing")
        );
    } else {
        tracing::info!("no flash: everything stays in RAM");
    }
    for endpoint in &database.endpoints {
        let how = if endpoint.kind == "tls" { " (TLS)" } else { "" };
        tracing::info!("ready to accept connections on {}{how}", endpoint.address);
    }
}

/// Watches the clock, and returns when the node is to stop.
async fn attend(node: &Node, log: &Log, supervisor: &mut Supervisor) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Taken, and ignored: the terminal it was started from may close.
    let _hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut applied = Applied { version: 0, ticks: 0 };
    supervisor.ready();
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
            _ = ticks.tick() => {
                applied.tick(node, log);
                supervisor.alive(Instant::now());
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
        self.ticks += 1;
        let is_second = self.ticks.is_multiple_of(TICKS_PER_SECOND);
        let version = node.config().version();
        if version != self.version {
            self.version = version;
            log.set_level(node.config().snapshot().loglevel);
        }
        for database in node.databases() {
            database.sample_rates(now_ms);
            let version = database.config.version();
            if database.config_applied.swap(version, Relaxed) != version {
                node.make_room_for_clients(&database);
            }
            if is_second {
                database.weigh();
                database.memory_peak_bytes.fetch_max(memory::allocated_bytes(), Relaxed);
                end_idle_and_slow(&database, now_ms);
                if let Some(flash) = &database.flash {
                    resize::settle(&database.store, &flash.files);
                }
            }
        }
    }
}

/// `timeout`, and the soft limit of `client-output-buffer-limit`.
fn end_idle_and_slow(database: &Database, now_ms: u64) {
    let config = database.config.snapshot();
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
    let ended = database.clients.end_where(|card| {
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
