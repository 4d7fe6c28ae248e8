//! Owns the pauses of a replica that has no room for its primary's dataset: what is reported, and when the replica tries again. Never knows
//! what there was no room for.
//!
//! A replica evicts nothing, and takes nothing beyond its limits. So it stops in front of the first command that has no room. It goes on
//! serving what it has, and a higher limit lets it apply that command. If the whole dataset has no room, nothing of it is kept. Each new
//! attempt costs the primary a dump, so the pauses between attempts become long.

use crate::database::Database;
use crate::role::{FollowerCommand, Following};
use config::Config;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use store::Admission;

const REST_MIN: Duration = Duration::from_secs(2);
/// The longest pause before a command is tried again; `DATASET_REST_MAX`: before a whole dataset is.
const REST_MAX: Duration = Duration::from_secs(60);
const DATASET_REST_MAX: Duration = Duration::from_secs(600);
/// A replica that was not full for this long begins with short pauses again.
const FORGOTTEN: Duration = Duration::from_secs(1200);
/// How often the limits are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// When a replica that is full tries again.
#[derive(Default)]
pub struct Fullness {
    /// The last rest, and when it ended.
    last: Option<(Duration, Instant)>,
}

impl Fullness {
    /// Notes the reason. Logs and reports it once, until the replica goes on.
    pub fn note(&self, database: &Database, following: &Following, why: &str) {
        let text = format!(
            "there is no room for the primary's dataset, so replication has stopped: {}. Raise memory-limit or ram-limit here (CONFIG SET), or \
             remove keys at the primary",
            why.trim_end_matches('.')
        );
        if !following.is_full.swap(true, Relaxed) {
            tracing::error!("database '{}': {text}", database.hub.name);
            database.replication.report(text.clone());
        }
        *following.error.lock() = Some(text);
    }

    /// Waits until there may be room: the limits have changed, something has become free, or some time has passed.
    pub fn rest(&mut self, database: &Database, following: &Following, is_over: &dyn Fn() -> bool) {
        let (store, begun) = (&database.shard.store, Instant::now());
        // After a failed load the dataset is empty. So a full store means that the dataset is loaded, and that a command has no room.
        let is_loaded = store.admission() == Admission::Full;
        let max = if is_loaded { REST_MAX } else { DATASET_REST_MAX };
        let rest = next_rest(self.last, begun, max);
        let limits = limits(&database.hub.config.snapshot());
        let has_other_limits = || self::limits(&database.hub.config.snapshot()) != limits;
        let has_room = || is_loaded && begun.elapsed() >= REST_MIN && store.admission() == Admission::Open;
        while begun.elapsed() < rest && !is_over() && following.command() == FollowerCommand::GoOn {
            if has_other_limits() {
                self.last = None;
                return;
            }
            if has_room() {
                break;
            }
            following.rest(LOOK);
        }
        self.last = Some((rest, Instant::now()));
    }
}

fn next_rest(last: Option<(Duration, Instant)>, now: Instant, max: Duration) -> Duration {
    match last {
        Some((rest, ended)) if now.duration_since(ended) < FORGOTTEN => (2 * rest).min(max),
        _ => REST_MIN,
    }
}

/// Called when commands are applied again: a replica that was full logs that it has room.
pub fn goes_on(database: &Database, following: &Following) {
    if following.is_full.load(Relaxed) && database.shard.store.admission() == Admission::Open {
        following.is_full.store(false, Relaxed);
        tracing::info!("database '{}': there is room again, and replication continues", database.hub.name);
    }
}

fn limits(config: &Config) -> (u64, u64) {
    (config.ram_limit_bytes, config.flash_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rests_of_a_replica_that_stays_full_become_long() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(next_rest(None, now, REST_MAX), 2 * second);
        assert_eq!(next_rest(Some((2 * second, now)), now + 30 * second, REST_MAX), 4 * second);
        assert_eq!(next_rest(Some((40 * second, now)), now + 30 * second, REST_MAX), 60 * second);
        assert_eq!(next_rest(Some((400 * second, now)), now + 30 * second, DATASET_REST_MAX), 600 * second);
        assert_eq!(next_rest(Some((400 * second, now)), now + 1200 * second, DATASET_REST_MAX), 2 * second);
    }
}
