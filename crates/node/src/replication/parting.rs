//! Owns the wait at the end of a node: replicas get what they lack before their primary goes. Never knows how the node ends.

use crate::database::Database;
use crate::ending::Ending;
use commands::host::{Pause, Unblock};
use engine::replication::{Link, Phase};
use engine::wall_ms;
use std::sync::Arc;
use std::time::Duration;

/// How often what the replicas have is compared.
pub const STEP: Duration = Duration::from_millis(10);
/// Writers wait until somebody ends it.
const FOR_EVER_MS: u64 = i64::MAX as u64;

/// The databases whose replicas lack something, and how much of the stream they must have.
pub struct Parting(Vec<(Arc<Database>, u64)>);

pub enum Step {
    GoesOn,
    /// The node may end.
    Over,
    Aborted,
}

impl Parting {
    /// Makes writers wait. `None`: no replica lacks anything.
    pub fn begin(databases: Vec<Arc<Database>>, ending: &Ending) -> Option<Parting> {
        let lacks = |database: &Arc<Database>| {
            let offset = database.hub.journaling.stream.offset();
            online(database).any(|link| link.acked() < offset)
        };
        let databases: Vec<_> = databases.into_iter().filter(lacks).collect();
        let timeouts = databases.iter().map(|database| database.hub.config.snapshot().primary.shutdown_timeout_s);
        let timeout_s = timeouts.max().unwrap_or(0);
        if timeout_s == 0 {
            return None;
        }
        ending.wait_until(wall_ms().saturating_add(timeout_s.saturating_mul(1000)));
        let ends = databases.into_iter().map(|database| {
            database.hub.clients.pause(FOR_EVER_MS, Pause::Write, wall_ms());
            database.hub.store.keep_expired_until(FOR_EVER_MS);
            let end = database.hub.journaling.stream.offset();
            // A replica's stream is another server's, which asks. Its replicas say by themselves what they have, once a second.
            database.hub.journaling.keep_for_replicas(&[b"REPLCONF", b"GETACK", b"*"], wall_ms());
            database.hub.links.hurry(end);
            (database, end)
        });
        let parting = Parting(ends.collect());
        tracing::info!("the node ends when replicas have every write, in {timeout_s} s at the latest");
        Some(parting)
    }

    pub fn step(&self, ending: &Ending) -> Step {
        let has_all = |(database, end): &(Arc<Database>, u64)| online(database).all(|link| link.acked() >= *end);
        match ending.left_ms(wall_ms()) {
            _ if ending.is_aborted() => Step::Aborted,
            Some(1..) if !self.0.iter().all(has_all) => Step::GoesOn,
            _ => Step::Over,
        }
    }

    /// Tells what replicas lack at the end.
    pub fn tell(&self) {
        for (database, end) in &self.0 {
            let (mut all, mut in_sync) = (0, 0);
            for link in online(database) {
                let (Link { ip, port, .. }, lacks) = (&*link, end.saturating_sub(link.acked()));
                all += 1;
                in_sync += u32::from(lacks == 0);
                if lacks > 0 {
                    tracing::warn!("Lagging replica {ip}:{port} lacks {lacks} bytes of the stream");
                }
            }
            tracing::info!("database '{}': {in_sync} of {all} replicas are in sync", database.name());
        }
    }
}

/// The node goes on: writers too, and whoever waits in SHUTDOWN gets an error.
pub fn go_on(databases: &[Arc<Database>], ending: &Ending) {
    let clients = ending.give_up();
    for database in databases {
        database.let_write();
        for client in clients.iter().filter(|_| database.is_default()) {
            let blocked = database.hub.clients.card(*client).and_then(|card| card.blocked.lock().clone());
            // It may have hung up.
            blocked.inspect(|blocked| _ = blocked.unblock(Unblock::NoShutdown));
        }
    }
}

fn online(database: &Database) -> impl Iterator<Item = Arc<Link>> {
    database.hub.links.all().into_iter().filter(|link| link.phase() == Phase::Online)
}
