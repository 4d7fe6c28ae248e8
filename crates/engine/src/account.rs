//! Owns what is recorded of a command that has run: counts and times, the slow log, MONITOR's lines. Never knows what
//! the command did.

use crate::clients::ClientInfo;
use crate::config_snapshot::ConfigSnapshot;
use crate::directory::{Command, bit};
use crate::hub::is_secret;
use crate::stats::{bucket, shortened};
use crate::worker::Worker;
use commands::Args;
use commands::host::SlowCommand;
use commands::session::{Multi, Session};

/// The cost of one command.
#[derive(Clone, Copy)]
pub struct Spent {
    pub nanos: u64,
    pub failed: bool,
    /// Whether the command waited for flash. `None` inside a transaction, where this is not known.
    pub met_flash: Option<bool>,
    /// Inside a script. The slow log records the whole script, not its commands.
    pub in_script: bool,
}

/// Counts a finished command, and records it if it took long.
#[inline]
pub fn account<'a>(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    client_info: &ClientInfo,
    command: &Command,
    args: impl FnOnce() -> Args<'a>,
    Spent { nanos, failed, met_flash, in_script }: Spent,
    now_ms: u64,
) {
    let stats = worker.stats();
    let counts = &stats.by_command[command.id];
    counts.calls.add(1);
    counts.nanos.add(nanos);
    if failed {
        counts.failed.add(1);
    }
    let bucket = bucket(nanos);
    if snapshot.latency_tracking {
        counts.latency().record_in(bucket);
    }
    if command.is(bit::READS)
        && let Some(met_flash) = met_flash
    {
        if met_flash { &stats.flash_latency } else { &stats.ram_latency }.record_in(bucket);
    }
    if nanos >= snapshot.slow_nanos && !in_script {
        slow(worker, snapshot, client_info, command, args(), nanos, now_ms);
    }
}

/// Counts a finished command of a proxy at the owner of its key. The rest is recorded at the proxy.
#[inline]
pub fn count(worker: &Worker, command: &Command, nanos: u64, failed: bool) {
    let stats = worker.stats();
    let counts = &stats.by_command[command.id];
    stats.commands.add(1);
    counts.calls.add(1);
    counts.nanos.add(nanos);
    if failed {
        counts.failed.add(1);
    }
}

/// Records a long command in the slow log and the latency monitor.
#[cold]
fn slow(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    client_info: &ClientInfo,
    command: &Command,
    args: Args<'_>,
    nanos: u64,
    now_ms: u64,
) {
    let (hub, config) = (&worker.hub, &snapshot.config);
    let at_s = now_ms / 1000;
    if config.latency_monitor_threshold_ms > 0 && nanos / 1_000_000 >= config.latency_monitor_threshold_ms {
        let event = if command.is(bit::FAST) { "fast-command" } else { "command" };
        hub.latency_events.add(event, at_s, nanos / 1_000_000);
    }
    if !command.is(bit::SKIP_SLOWLOG) {
        log(worker, snapshot, client_info, nanos, now_ms, || {
            let mut words = shortened(args.from(0));
            for (_, word) in words.iter_mut().enumerate().filter(|(at, _)| is_secret(command.row, args, *at)) {
                *word = b"(redacted)".to_vec();
            }
            words
        });
    }
}

/// Puts what took long into the slow log.
fn log(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    client_info: &ClientInfo,
    nanos: u64,
    now_ms: u64,
    words: impl FnOnce() -> Vec<Vec<u8>>,
) {
    let config = &snapshot.config;
    let threshold_us = config.slowlog_log_slower_than_us;
    if threshold_us < 0 || nanos / 1000 < threshold_us as u64 || config.slowlog_max_len == 0 {
        return;
    }
    let entry = SlowCommand {
        id: 0,
        at_s: now_ms / 1000,
        duration_us: nanos / 1000,
        args: words(),
        addr: client_info.peer.addr(),
        name: client_info.labels.lock().name.to_string(),
    };
    worker.hub.slow_log.push(entry, config.slowlog_max_len);
}

/// Puts a transaction that an owner has run into the proxy's slow log, if it took long: EXEC with the words of all its commands. How long
/// each of them took, only the owner knows.
#[cold]
pub fn account_transaction(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    client_info: &ClientInfo,
    multi: &Multi,
    nanos: u64,
) {
    log(worker, snapshot, client_info, nanos, worker.now_ms(), || {
        let mut words = vec![&b"EXEC"[..]];
        words.extend(multi.commands.iter().flat_map(|queued| queued.args().from(0)));
        shortened(words.into_iter())
    });
}

/// Shows a command that has run to the monitors. `client_info` is the client's, or `None` inside a script.
#[cold]
pub fn show(worker: &Worker, session: &Session, client_info: Option<&ClientInfo>, command: &Command, args: Args<'_>) {
    // A script shows itself where it runs.
    let is_forwarded_script = command.is(bit::SCRIPT) && worker.hub.routes.get().is_some();
    if !command.is(bit::UNSEEN) || is_forwarded_script {
        let from = client_info.map(|client_info| &client_info.peer);
        worker.hub.monitors.show(&worker.hub, worker.time_us(), session.db, from, args);
    }
}
