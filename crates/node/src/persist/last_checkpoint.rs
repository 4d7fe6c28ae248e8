//! Owns the checkpoints that are written before the node ends, so that its next start has no journal to run. Never knows why the node ends.

use crate::database::Database;
use crate::ending::{Ending, Step};
use crate::estimate::Estimate;
use crate::progress::DurableState;
use base::clock::wall_ms;
use base::size::human;
use engine::{Hold, PersistenceControl};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How often a thread asks whether another one still writes a checkpoint.
const BUSY_STEP: Duration = Duration::from_millis(5);

/// The databases whose next start would run the journal for long.
pub struct LastCheckpoints {
    begun: Instant,
    checkpoints: Vec<LastCheckpoint>,
    /// Nobody waits for them any more.
    is_over: Arc<AtomicBool>,
}

struct LastCheckpoint {
    database: Arc<Database>,
    estimate: Estimate,
    /// Whether the next start has little to run.
    ended: Arc<OnceLock<bool>>,
}

impl LastCheckpoints {
    /// Makes the writers of these databases wait. `None`: no checkpoint makes the next start much shorter.
    pub fn plan(databases: &[Arc<Database>]) -> Option<LastCheckpoints> {
        let due = databases.iter().filter_map(|database| {
            let estimate = estimate(database).filter(Estimate::asks_for_last_checkpoint)?;
            Some(LastCheckpoint { database: Arc::clone(database), estimate, ended: Arc::default() })
        });
        let checkpoints: Vec<LastCheckpoint> = due.collect();
        if checkpoints.is_empty() {
            return None;
        }
        for database in databases {
            let is_due = checkpoints.iter().any(|checkpoint| Arc::ptr_eq(&checkpoint.database, database));
            // Writes behind the dump of the end would be lost.
            if is_due || database.saves_at_end() {
                database.hub.change_pauses(|clients| clients.hold_writers(Hold::End));
            }
        }
        Some(LastCheckpoints { begun: Instant::now(), checkpoints, is_over: Arc::default() })
    }

    /// Begins to write them, all at once.
    pub fn begin(&mut self, ending: &Ending) {
        self.begun = Instant::now();
        let ms_max =
            self.checkpoints.iter().map(|checkpoint| checkpoint.estimate.last_checkpoint_ms_max()).max().unwrap_or(0);
        ending.wait_until(wall_ms().saturating_add(ms_max));
        for LastCheckpoint { database, estimate, ended } in &self.checkpoints {
            tracing::info!(
                "database '{}': the node writes a checkpoint before it stops, because a replay of the journal would take the next start about {:.1} s; it waits at most {:.0} s",
                database.name(),
                estimate.replay_ms as f64 / 1000.0,
                ms_max as f64 / 1000.0
            );
            let of_thread = (Arc::clone(database), Arc::clone(ended), Arc::clone(&self.is_over));
            let started = thread::Builder::new().name("checkpoint-end".into()).spawn(move || {
                let (database, ended, is_over) = of_thread;
                ended.get_or_init(|| write(&database, &is_over));
            });
            if let Err(error) = started {
                tracing::error!("database '{}': no thread for its checkpoint: {error}", database.name());
                ended.get_or_init(|| false);
            }
        }
    }

    pub fn step(&self, ending: &Ending) -> Step {
        match ending.left_ms(wall_ms()) {
            _ if ending.is_aborted() => Step::Aborted,
            Some(1..) if self.checkpoints.iter().any(|checkpoint| checkpoint.ended.get().is_none()) => Step::GoesOn,
            _ => Step::Over,
        }
    }

    /// Tells what the next start has to do.
    pub fn report(&self) {
        let took_s = self.begun.elapsed().as_secs_f64();
        for LastCheckpoint { database, estimate, ended } in &self.checkpoints {
            let tail_bytes = database.files.journal.kept.lock().as_ref().map_or(0, DurableState::tail_bytes);
            let next =
                format!("database '{}': the next start replays {} of the journal", database.name(), human(tail_bytes));
            match ended.get() {
                Some(true) => tracing::info!("{next}; the shutdown has waited {took_s:.3} s for its checkpoint"),
                Some(false) => tracing::warn!("{next}: no checkpoint could be written"),
                None => tracing::warn!(
                    "{next}, which takes about {:.1} s, because the checkpoint was not ready after {took_s:.3} s",
                    estimate.replay_ms as f64 / 1000.0
                ),
            }
        }
    }
}

impl Drop for LastCheckpoints {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// `None`: nothing is kept, or it is still being loaded.
fn estimate(database: &Database) -> Option<Estimate> {
    let kept = database.files.journal.kept.lock().clone()?;
    Some(database.restart_estimate(&kept))
}

/// Writes a checkpoint that has all changes, except those that a primary sends meanwhile.
fn write(database: &Database, is_over: &AtomicBool) -> bool {
    // Commands may still run that were admitted before writers began to wait.
    if let Err(why) = database.wait_for_commands() {
        tracing::warn!("database '{}': {why}", database.name());
    }
    while !database.begin_rewrite() {
        if is_over.load(Relaxed) || database.hub.is_closing.load(Relaxed) {
            return false;
        }
        thread::sleep(BUSY_STEP);
    }
    // The checkpoint that another thread has just written may be enough.
    let is_done = !estimate(database).is_some_and(|estimate| estimate.asks_for_last_checkpoint());
    let is_short = is_done || (!is_over.load(Relaxed) && database.rewrite());
    database.end_rewrite();
    is_short
}
