//! Owns the process's start and end: the setup before the first database opens, the duties of the clock, and the
//! shutdown. Never serves a connection.

use crate::database::Database;
use crate::ending::{Ending, Step, Wanted};
use crate::huge_pages;
use crate::log;
use crate::memory;
use crate::node::Node;
use crate::open;
use crate::open_files::raise_open_files;
use crate::persist::last_checkpoint::LastCheckpoints;
use crate::replication::shutdown_drain::{self, ShutdownDrain};
use crate::supervise::Supervisor;
use base::clock::wall_ms;
use base::size;
use config::{Config, ConfigStore};
use engine::{ClientInfo, PersistenceControl};
use std::any::Any;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The clock samples rates ten times a second, and ends idle and slow clients once a second.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;
/// How often the node asks whether what it waits for at its end is there.
const WAIT_STEP: Duration = Duration::from_millis(10);

/// What the process does when its node has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Exit,
    /// It executes its program again ([`Node::begins_anew`]).
    BeginAnew,
}

/// Runs a node until it is told to stop. Returns an error only if the node could not start. `attach` is called when
/// the node serves clients. Its result is dropped before the databases end.
pub fn run(
    config_store: Arc<ConfigStore>,
    attach: impl FnOnce(&Arc<Node>) -> io::Result<Box<dyn Any>>,
) -> io::Result<Then> {
    let config = config_store.snapshot();
    let log = log::start(&config)?;
    config_store.subscribe(move |draft| {
        if draft.before.loglevel != draft.now.loglevel {
            log.set_level(draft.now.loglevel);
        }
    });
    for notice in config_store.take_notices() {
        tracing::warn!("{notice}");
    }
    memory::release_large_at_once();
    let clients_cap = raise_open_files(config.maxclients, config_store.is_named("maxclients"));
    let huge_pages = huge_pages::set_up(&config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let node = Node::new(runtime.handle().clone(), config.io_threads.max(1), &config)?;
    let default = node.open_default(Arc::clone(&config_store), clients_cap, huge_pages)?;
    let attached = write_pidfile(&config).and_then(|()| {
        announce(&default, &config);
        node.open_others();
        attach(&node)
    });
    let mut supervisor = Supervisor::find(config.supervised);
    let ended = match &attached {
        Ok(_) => runtime.block_on(attend(&node, &mut supervisor)),
        Err(_) => Ok(()),
    };
    let then = match node.begins_anew().load(Relaxed) {
        true => Then::BeginAnew,
        false => Then::Exit,
    };
    match then {
        Then::BeginAnew => supervisor.beginning_anew(),
        Then::Exit => supervisor.stopping(),
    }
    node.stopping();
    let attached = attached.map(drop);
    // This also closes the listening sockets.
    drop(runtime);
    node.close();
    if attached.is_err() || ended.is_err() {
        open::unmake(&default);
    }
    if let Some(pidfile) = &config.pidfile {
        // Best effort: an operator may have removed the file.
        let _ = fs::remove_file(pidfile);
    }
    tracing::info!("FlintKV is now ready to exit, bye bye...");
    attached.and(ended).map(|()| then)
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
        database.hub.worker_handles.len(),
        config.databases
    );
    tracing::info!(
        "RAM limit {}, memory limit {}, policy {}",
        limit(config.ram_limit_bytes),
        limit(config.memory_limit_bytes),
        config.maxmemory_policy.as_str()
    );
    if let Some(layout) = database.shard.flash_layout() {
        tracing::info!(
            "flash: {} in {} segments of {}, compression {}, I/O by {}",
            human(u64::from(layout.segments) * layout.segment_bytes),
            layout.segments,
            human(layout.segment_bytes),
            config.flash_compression.as_str(),
            database.shard.driver().unwrap_or("nothing")
        );
    } else {
        tracing::info!("no flash: everything stays in RAM");
    }
    for address in database.addresses() {
        let how = if address.kind == "tls" { " (TLS)" } else { "" };
        tracing::info!("listening on {}{how}", address.address);
    }
}

/// What the node waits for before it ends.
enum Waits {
    Replicas(ShutdownDrain),
    Checkpoints(LastCheckpoints),
}

impl Waits {
    fn step(&self, ending: &Ending) -> Step {
        match self {
            Waits::Replicas(shutdown_drain) => shutdown_drain.step(ending),
            Waits::Checkpoints(checkpoints) => checkpoints.step(ending),
        }
    }

    fn report(&self) {
        match self {
            Waits::Replicas(shutdown_drain) => shutdown_drain.report(),
            Waits::Checkpoints(checkpoints) => checkpoints.report(),
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Waits::Replicas(_) => "replicas receive the last writes",
            Waits::Checkpoints(_) => "checkpoints are written",
        }
    }

    /// Whether a second request to end the node ends this wait at once.
    fn is_ended_by(&self, wanted: Wanted) -> bool {
        wanted.now || (matches!(self, Waits::Checkpoints(_)) && wanted.saves == Some(false))
    }
}

/// Runs the clock, and returns when the node must stop.
async fn attend(node: &Node, supervisor: &mut Supervisor) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Ignore SIGHUP: the terminal that started the process may close.
    let _hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut clock = Clock::default();
    let mut is_ready = false;
    // Which end, and what it waits for.
    let mut ends: Option<(Wanted, Waits)> = None;
    loop {
        // The second signal is of somebody who does not want to wait.
        let by_signal = Wanted { saves: None, now: ends.is_some(), force: false };
        let (wanted, has_waited) = tokio::select! {
            _ = poll_fn(|cx| terminate.poll_recv(cx)) => {
                tracing::info!("SIGTERM: the server stops");
                (by_signal, false)
            }
            _ = poll_fn(|cx| interrupt.poll_recv(cx)) => {
                tracing::info!("SIGINT: the server stops");
                (by_signal, false)
            }
            () = node.shutdown_asked() => {
                if let Some(why) = node.failure() {
                    return Err(io::Error::other(why.to_owned()));
                }
                // Two clients may have asked before the first request was handled.
                let Some(wanted) = node.ending().take_wanted() else { continue };
                tracing::info!("SHUTDOWN: the server stops");
                (wanted, false)
            }
            () = tokio::time::sleep(WAIT_STEP), if ends.is_some() => match ends.as_ref().map(|(wanted, waits)| (*wanted, waits.step(node.ending()))) {
                Some((wanted, Step::Over)) => (wanted, true),
                Some((_, Step::Aborted)) => {
                    tracing::info!("SHUTDOWN ABORT: the server continues");
                    ends = None;
                    shutdown_drain::go_on(&node.datasets(), node.ending());
                    continue;
                }
                _ => continue,
            },
            _ = ticks.tick() => {
                clock.tick(node);
                if !is_ready {
                    is_ready = report_start(node, supervisor);
                }
                if let Some((_, waits)) = &ends {
                    supervisor.ending(waits.what(), Instant::now());
                }
                supervisor.alive(Instant::now());
                continue;
            }
        };
        if let Some((ends, waits)) = &mut ends
            && !has_waited
            && !waits.is_ended_by(wanted)
        {
            *ends = wanted;
            continue;
        }
        // A request that has ended one wait does not begin the next one.
        let is_at_once = wanted.now || !has_waited && ends.is_some();
        match ends.take() {
            Some((_, waits @ Waits::Replicas(_))) => waits.report(),
            // What is saved at the end was saved before the checkpoints.
            Some((_, waits @ Waits::Checkpoints(_))) => {
                waits.report();
                return Ok(());
            }
            None if is_at_once => {}
            None => {
                if let Some(shutdown_drain) = ShutdownDrain::begin(node.datasets(), node.ending()) {
                    ends = Some((wanted, Waits::Replicas(shutdown_drain)));
                    continue;
                }
            }
        }
        let wants_checkpoints = !is_at_once && wanted.saves != Some(false);
        let checkpoints = wants_checkpoints.then(|| LastCheckpoints::plan(&node.datasets())).flatten();
        // A command that did not wait has saved its own database, so it has no changes.
        let saves = |database: &Database| wanted.saves != Some(false) || !database.is_default();
        if !tell_while(supervisor, &mut ticks, "datasets are saved", save_at_end(node, saves)).await && !wanted.force {
            shutdown_drain::go_on(&node.datasets(), node.ending());
            continue;
        }
        let Some(mut checkpoints) = checkpoints else { return Ok(()) };
        checkpoints.begin(node.ending());
        ends = Some((wanted, Waits::Checkpoints(checkpoints)));
    }
}

/// Tells the service manager how far the start is. True: the node is ready.
fn report_start(node: &Node, supervisor: &mut Supervisor) -> bool {
    match node.still_loading() {
        Some(loading) => supervisor.loading(&loading, Instant::now()),
        None => {
            // The words that Redis's tools wait for.
            tracing::info!("Ready to accept connections");
            supervisor.ready();
        }
    }
    node.is_ready()
}

/// Tells the service manager, until `work` is done, that the end of the node waits for it: a dump of a large dataset takes minutes.
async fn tell_while<T>(
    supervisor: &mut Supervisor,
    ticks: &mut tokio::time::Interval,
    waits: &str,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                supervisor.ending(waits, Instant::now());
                supervisor.alive(Instant::now());
            }
        }
    }
}

/// Saves the databases that have `save` points and unsaved changes. False: one of them could not be saved, and the node must go on.
async fn save_at_end(node: &Node, which: impl Fn(&Database) -> bool) -> bool {
    let mut saved = true;
    for database in node.datasets().into_iter().filter(|database| which(database)) {
        if database.changes_since_save() == 0 || !PersistenceControl::saves_at_end(&*database) {
            continue;
        }
        let name = database.name().to_owned();
        let done = tokio::task::spawn_blocking(move || database.save_last_dump()).await;
        let done = done.unwrap_or_else(|panic| Err(format!("a bug: {panic}")));
        if let Err(why) = done {
            tracing::error!(
                "the node does not stop, because database '{name}' could not be saved ({why}); kill -9 stops it without saving"
            );
            saved = false;
        }
    }
    saved
}

/// The clock.
#[derive(Default)]
struct Clock {
    ticks: u32,
}

impl Clock {
    fn tick(&mut self, node: &Node) {
        let now_ms = wall_ms();
        self.ticks += 1;
        let is_second = self.ticks.is_multiple_of(TICKS_PER_SECOND);
        if is_second {
            log::report_repeated();
        }
        let gaps = is_second.then(|| memory::Allocator::now().gaps());
        for database in node.datasets() {
            database.sample_rates(now_ms);
            relieve(&database);
            gaps.inspect(|&bytes| database.shard.store.tell_gaps(bytes));
            database.shard.store.compact_index();
            database.save_if_due(now_ms);
            database.tick_segments();
            database.tick_room();
            database.tick_replicas(now_ms);
            if is_second {
                database.weigh();
                database.memory_peak_bytes.fetch_max(memory::allocated_bytes(), Relaxed);
                end_idle_and_slow(&database, now_ms);
                database.shard.finish_resize();
                database.tick_journal();
                database.tick_role();
                database.tick_scrub(now_ms);
                database.back_up_if_due(now_ms);
                database.tick_archive(now_ms);
            }
        }
    }
}

/// Ends the client that holds most, if others have waited too long for memory.
fn relieve(database: &Database) {
    let waits = database.hub.dataset.memory.waiting() > 0;
    let unused = if waits { database.allocated_of(memory::Allocator::now().unused()) } else { 0 };
    database.shard.store.set_unused_bytes(unused);
    if let Some(ended) = database.hub.dataset.memory.relieve(&database.hub.clients, Instant::now()) {
        tracing::warn!(
            client = ended.id,
            "closed: {} held {} of the memory for clients while others waited for memory",
            ended.peer.addr(),
            size::human(ended.charged_bytes() as u64)
        );
    }
}

/// Ends clients by `timeout` and by the soft limit of `client-output-buffer-limit`.
fn end_idle_and_slow(database: &Database, now_ms: u64) {
    let config = database.hub.config.snapshot();
    let timeout_ms = u64::from(config.timeout_s) * 1000;
    let limits = [config.output_limit_normal, config.output_limit_pubsub];
    let watches_output = limits.iter().any(|limit| limit.soft_bytes > 0);
    if timeout_ms == 0 && !watches_output {
        return;
    }
    let is_idle = |card: &ClientInfo| {
        let idle_ms = now_ms.saturating_sub(card.active_ms.load(Relaxed));
        let is_busy = card.listens() || card.is_blocked() || card.is_replica.load(Relaxed) || card.is_loader();
        timeout_ms > 0 && idle_ms > timeout_ms && !is_busy
    };
    let is_slow = |card: &ClientInfo| {
        let since_ms = [card.soft_since_ms.load(Relaxed), card.outbox.soft_since_ms()];
        since_ms.iter().zip(limits).any(|(&since_ms, limit)| {
            limit.soft_bytes > 0 && since_ms != 0 && now_ms.saturating_sub(since_ms) > limit.soft_s.saturating_mul(1000)
        })
    };
    let mut slow = 0;
    let ended = database.hub.clients.end_where(|card| {
        let too_slow = is_slow(card);
        slow += usize::from(too_slow);
        too_slow || is_idle(card)
    });
    if slow > 0 {
        tracing::warn!("closed {slow} clients that stayed above the soft limit of client-output-buffer-limit");
    }
    if ended > slow {
        tracing::debug!("closed {} idle clients", ended - slow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// The work ends when the manager has been told twice, so it never does if nobody tells it.
    #[test]
    fn the_manager_hears_of_an_end_that_takes_long() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_nonblocking(true).expect("does not wait");
        let mut supervisor =
            Supervisor::connect(path.as_os_str(), Some(Duration::from_secs(1))).expect("the manager listens");
        let told = async {
            let (mut more_time, mut alive, mut bytes) = (0, 0, [0; 256]);
            while more_time < 2 || alive < 2 {
                while let Ok(length) = manager.recv(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                    more_time +=
                        u32::from(text.starts_with("EXTEND_TIMEOUT_USEC=") && text.ends_with("Stopping: work is done"));
                    alive += u32::from(text == "WATCHDOG=1");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            "done"
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let done = runtime.block_on(async {
            let mut ticks = tokio::time::interval(TICK);
            let telling = tell_while(&mut supervisor, &mut ticks, "work is done", told);
            tokio::time::timeout(Duration::from_secs(60), telling).await
        });
        assert_eq!(done, Ok("done"));
    }
}
