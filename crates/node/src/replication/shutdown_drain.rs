//! Owns the wait at the end of a node: replicas get what they lack before their primary goes. Never knows how the node ends.

use crate::database::Database;
use crate::ending::{Ending, Step};
use base::clock::wall_ms;
use base::size::human;
use commands::host::Unblock;
use engine::Hold;
use engine::replication::{Link, Phase};
use std::sync::{Arc, OnceLock};

/// The databases with replicas.
pub struct ShutdownDrain(Vec<Last>);

struct Last {
    database: Arc<Database>,
    /// The stream's offset that the replicas must reach. Not set while a command runs that was admitted before writers began to wait.
    end: Arc<OnceLock<u64>>,
}

impl ShutdownDrain {
    /// Makes writers wait. `None`: there is no replica to wait for.
    pub fn begin(databases: Vec<Arc<Database>>, ending: &Ending) -> Option<ShutdownDrain> {
        let databases: Vec<_> = databases.into_iter().filter(|database| online(database).next().is_some()).collect();
        let timeouts = databases.iter().map(|database| database.hub.config.snapshot().primary.shutdown_timeout_s);
        let timeout_s = timeouts.max().unwrap_or(0);
        if timeout_s == 0 {
            return None;
        }
        ending.wait_until(wall_ms().saturating_add(timeout_s.saturating_mul(1000)));
        tracing::info!("the node stops when its replicas have every write, at the latest in {timeout_s} s");
        Some(ShutdownDrain(databases.into_iter().map(Last::of).collect()))
    }

    pub fn step(&self, ending: &Ending) -> Step {
        let has_all =
            |last: &Last| last.end.get().is_some_and(|&end| online(&last.database).all(|link| link.acked() >= end));
        match ending.left_ms(wall_ms()) {
            _ if ending.is_aborted() => Step::Aborted,
            Some(1..) if !self.0.iter().all(has_all) => Step::GoesOn,
            _ => Step::Over,
        }
    }

    /// Tells what replicas lack at the end.
    pub fn report(&self) {
        for Last { database, end } in &self.0 {
            let end = end.get().copied().unwrap_or_else(|| {
                tracing::warn!(
                    "database '{}': a command still runs, and replicas may lack what it writes",
                    database.name()
                );
                database.hub.dataset.journaling.stream.offset()
            });
            let (mut all, mut in_sync) = (0, 0);
            for link in online(database) {
                let (Link { ip, port, .. }, lacks) = (&*link, end.saturating_sub(link.acked()));
                all += 1;
                in_sync += u32::from(lacks == 0);
                if lacks > 0 {
                    tracing::warn!("Lagging replica {ip}:{port} lacks {} of the stream", human(lacks));
                }
            }
            tracing::info!("database '{}': {in_sync} of {all} replicas are in sync", database.name());
        }
    }
}

impl Last {
    /// Makes writers wait, even if the replicas have everything: later writes would not reach them.
    fn of(database: Arc<Database>) -> Last {
        database.hub.change_pauses(|clients| clients.hold_writers(Hold::End));
        let end = Arc::<OnceLock<u64>>::default();
        // A script may run for long, and the node's clock goes on meanwhile.
        let wait_for_replicas = {
            let (database, end) = (Arc::clone(&database), Arc::clone(&end));
            move || wait_for_replicas(&database, &end)
        };
        if let Err(error) = std::thread::Builder::new().name("shutdown_drain".into()).spawn(wait_for_replicas) {
            tracing::warn!(
                "cannot start a thread that waits for running commands, so the shutdown waits for them itself: {error}"
            );
            self::wait_for_replicas(&database, &end);
        }
        Last { database, end }
    }
}

/// Waits for the commands that were admitted before writers began to wait. Their clients get replies, so replicas must have these writes.
fn wait_for_replicas(database: &Database, end: &OnceLock<u64>) {
    if let Err(why) = database.wait_for_commands() {
        tracing::warn!("database '{}': {why}", database.name());
    }
    let last = database.hub.dataset.journaling.stream.offset();
    end.get_or_init(|| last);
    if online(database).any(|link| link.acked() < last) {
        // If this database is a replica, its stream is its primary's, and only the primary adds GETACK to it. Then the replicas here still
        // report their offsets once a second.
        database.hub.dataset.journaling.keep_for_replicas(&[b"REPLCONF", b"GETACK", b"*"], wall_ms());
        database.hub.dataset.links.hurry(last);
    }
}

/// The node goes on: writers too, and whoever waits in SHUTDOWN gets an error.
pub fn go_on(databases: &[Arc<Database>], ending: &Ending) {
    let clients = ending.give_up();
    for database in databases {
        database.hub.change_pauses(|clients| clients.let_writers(Hold::End));
        for client in clients.iter().filter(|_| database.is_default()) {
            let blocked =
                database.hub.clients.client_info(*client).and_then(|client_info| client_info.blocked.lock().clone());
            // It may have hung up.
            blocked.inspect(|blocked| _ = blocked.unblock(Unblock::NoShutdown));
        }
    }
}

fn online(database: &Database) -> impl Iterator<Item = Arc<Link>> {
    database.hub.dataset.links.all().into_iter().filter(|link| link.phase() == Phase::Online)
}
