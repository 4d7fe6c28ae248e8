//! Owns what is kept of a command that has run: its counts and times, the slow log, what MONITOR shows.
//! Never knows what the command did.

use crate::clients::Card;
use crate::directory::{Command, bit};
use crate::hub::is_secret;
use crate::stats::{bucket, shortened};
use crate::thread::{Live, Worker};
use commands::Args;
use commands::host::SlowCommand;
use commands::session::Session;

/// What a command has taken.
#[derive(Clone, Copy)]
pub struct Spent {
    pub nanos: u64,
    pub failed: bool,
    /// None: it is not known of what runs inside a transaction.
    pub met_flash: Option<bool>,
    /// The slow log tells of the script as a whole.
    pub in_script: bool,
}

/// A command is done: counted, and noted if it took long.
#[inline]
pub fn account<'a>(
    worker: &Worker,
    live: &Live,
    card: &Card,
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
    if live.latency_tracking {
        counts.latency().record_in(bucket);
    }
    if command.is(bit::READS)
        && let Some(met_flash) = met_flash
    {
        if met_flash { &stats.flash_latency } else { &stats.ram_latency }.record_in(bucket);
    }
    if nanos >= live.slow_nanos && !in_script {
        slow(worker, live, card, command, args(), nanos, now_ms);
    }
}

/// A command took long: the slow log and the latency monitor hear of it.
#[cold]
fn slow(worker: &Worker, live: &Live, card: &Card, command: &Command, args: Args<'_>, nanos: u64, now_ms: u64) {
    let (database, config) = (&worker.hub, &live.config);
    let at_s = now_ms / 1000;
    if config.latency_monitor_threshold_ms > 0 && nanos / 1_000_000 >= config.latency_monitor_threshold_ms {
        let event = if command.is(bit::FAST) { "fast-command" } else { "command" };
        database.latency_events.add(event, at_s, nanos / 1_000_000);
    }
    let threshold_us = config.slowlog_log_slower_than_us;
    // Commands that carry passwords are left out.
    if threshold_us >= 0
        && nanos / 1000 >= threshold_us as u64
        && config.slowlog_max_len > 0
        && !command.is(bit::SKIP_SLOWLOG | bit::NO_AUTH)
    {
        let mut words = shortened(args.from(0));
        for (_, word) in words.iter_mut().enumerate().filter(|(at, _)| is_secret(command.row, args, *at)) {
            *word = b"(redacted)".to_vec();
        }
        let entry = SlowCommand {
            id: 0,
            at_s,
            duration_us: nanos / 1000,
            args: words,
            addr: card.peer.addr(),
            name: card.labels.lock().name.to_string(),
        };
        database.slow_log.push(entry, config.slowlog_max_len);
    }
}

/// Shows a command that has run to those who monitor. `card`: of the client, None inside a script.
#[cold]
pub fn show(worker: &Worker, session: &Session, card: Option<&Card>, command: &Command, args: Args<'_>) {
    if !command.is(bit::UNSEEN) {
        let from = card.map(|card| &card.peer);
        worker.hub.monitors.show(&worker.hub, worker.time_us(), session.db, from, args);
    }
}
