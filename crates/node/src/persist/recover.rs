//! Owns the way back to a dataset: the checkpoint is loaded, and then every record of the journal runs. Never knows how.

use super::{attach, boot, checkpoint, find_file, index, keep, older, rates, settings_of};
use crate::database::Database;
use crate::estimate::{Took, Work};
use crate::files::{Broken, Pipes, Plan, Replay, load_base};
use crate::progress::{DurableState, Recovered};
use crate::role::GivenUp;
use base::size::human;
use config::Policy;
use journal::manifest::{CheckpointFile, Manifest, Truncation, Untruncated};
use journal::{OpenError, Opened};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// Brings the dataset back, and goes on with its journal. The gate is closed.
pub fn recover(
    database: &Database,
    folder: &Path,
    manifest: Manifest,
    index: Option<index::Found>,
) -> Result<(), String> {
    let begun = Instant::now();
    let turn = RecoveryUnderWay::begin(database);
    let config = database.hub.config.snapshot();
    let plan =
        manifest.checkpoint.as_ref().map(|checkpoint| Plan::dump(&find_file(folder, checkpoint)?)).transpose()?;
    let settings = settings_of(manifest.log_id, &config);
    let advised = |error: &dyn Display| advised(error, folder);
    let refused = |error: OpenError| refused(&error, folder);
    let mut took = Took::default();
    let mut phase = turn.alone();
    let mut ended = || {
        let now = turn.alone();
        now - std::mem::replace(&mut phase, now)
    };
    let (store, progress) = (&database.shard.store, &database.files);
    let checkpoint_bytes: u64 = manifest.files().map(|file| file.bytes).sum();
    progress.loaded_bytes.store(0, Relaxed);
    progress.loading_total_bytes.store(checkpoint_bytes, Relaxed);
    // Nothing is evicted here: the journal says which keys were evicted.
    store.set_policy(Policy::NoEviction);
    store.set_replaying(true);
    // Values that have their place on flash are named by the last checkpoint until a later one is written.
    store.set_quarantine(store.has_flash());
    let older = older::find(folder, &manifest);
    let holds = older.is_some();
    if !holds && let Err(why) = older::remove(folder) {
        tracing::warn!("{why}");
    }
    let open = || {
        let opened = older.as_ref().map(|older| Opened::open(folder, &settings, older.position));
        let (opened, older) = match opened {
            Some(Ok(opened)) => (opened, older.clone()),
            // What only the older checkpoint needs may be damaged.
            Some(Err(OpenError::Records { .. })) | None => {
                (Opened::open(folder, &settings, manifest.position).map_err(refused)?, None)
            }
            Some(Err(error)) => return Err(refused(error)),
        };
        progress.loading_total_bytes.fetch_add(opened.end() - manifest.position, Relaxed);
        Ok::<_, String>((opened, older))
    };
    // The journal is looked through while the checkpoint is loaded.
    let (keys, cut, (opened, older)) = thread::scope(|scope| {
        let opening = thread::Builder::new().name("load-journal".into()).spawn_scoped(scope, open);
        let opening = opening.map_err(|error| format!("cannot start a thread to read the journal: {error}"))?;
        let (mut keys, mut cut) = (0, None);
        if let Some(found) = index {
            (keys, cut) = index::load(database, found, holds).map_err(|why| advised(&why))?;
            tracing::info!("database '{}': the index of {keys} keys on flash is loaded", database.hub.name);
            database.shard.fit_flash(&config);
        }
        took.index = ended();
        if let Some(plan) = &plan {
            keys += load_base(database, plan).map_err(|why| advised(&why))?.keys;
        }
        took.dump = ended();
        let opened =
            opening.join().map_err(|_| "a bug: the thread that reads the journal has panicked".to_owned())??;
        Ok::<_, String>((keys, cut, opened))
    })?;
    progress.keys_loaded.store(keys, Relaxed);
    if let Some(mark) = manifest.stream {
        database.prepare_stream(Some(mark));
    }
    let from = manifest.position;
    let bytes = |file: &Option<CheckpointFile>| file.as_ref().map_or(0, |file| file.bytes);
    let (index_bytes, dump_bytes) = (bytes(&manifest.index), bytes(&manifest.checkpoint));
    let (records, now) = replay(database, folder, &opened, Checkpoints { manifest, older, cut })?;
    took.replay = ended();
    let end = opened.end();
    let work = Work { index_bytes, dump_bytes, records, journal_bytes: end - from, reads: store.changed_on_flash() };
    let learnt = rates::read(folder).measured(&work, &took);
    *progress.journal.rates.lock() = learnt;
    rates::keep(folder, learnt);
    progress.journal.replayed_record_bytes.store((end - from).checked_div(records).unwrap_or(0), Relaxed);
    let log = opened.start().map_err(refused)?;
    let Checkpoints { manifest, older, cut } = now;
    let kept = DurableState { log: Arc::clone(&log), folder: folder.to_owned(), manifest, older, cut };
    if kept.manifest.position > from {
        database.archive_before_checkpoint(&kept);
    }
    if holds && kept.older.is_none() {
        older::remove(folder)?;
        kept.cut.iter().for_each(|cut| store.checkpoint_durable(*cut));
    }
    log.needed_from(kept.needed_from());
    checkpoint::limit_journal(&config, &log, kept.checkpoint_bytes());
    attach(database, &log);
    if kept.manifest.stream.is_some() {
        let stream = &database.hub.dataset.journaling.stream;
        if boot::is_another(folder) && !store.follows() && database.endpoint.is_some() {
            // After a loss of power, replicas may have a part of the stream that the journal has lost. The new id keeps that part from
            // being taken for what is written now. A copy of a shard begins each epoch with a new id.
            stream.change_id(engine::replication::new_id());
        }
        stream.turn_on();
    }
    store.set_replaying(false);
    store.warm();
    database.follow_in_store(store.follows());
    let keys = store.stats().keys;
    let [index_s, values_s, replay_s] = [took.index, took.dump, took.replay].map(|took| took.as_secs_f64());
    drop(turn);
    let took = begun.elapsed();
    tracing::info!(
        "database '{}' is recovered: {keys} keys in {:.3} s (by part: index {index_s:.2}, values in the checkpoint {values_s:.2}, journal {replay_s:.2}), \
         the journal was replayed from {from} to {end}, {records} records",
        database.hub.name,
        took.as_secs_f64()
    );
    report_lost(database);
    if kept.manifest.index.is_some() {
        database.shard.set_kept(true)?;
    }
    let took_ms = took.as_millis() as u64;
    progress.journal.recovery_took_ms.store(took_ms.max(1), Relaxed);
    *progress.recovered.lock() = Some(Recovered { keys, took_ms, from, to: end, records });
    let truncation = kept.manifest.truncations.last().copied();
    keep(database, kept);
    if let Some(truncation) = truncation {
        report_given_up(database, truncation);
        // Until there is a new checkpoint, each start reads again what was given up.
        let _ = database.start_rewrite();
    }
    // Only now: if the node crashes before this, or cannot say under which id it goes on, the next start must find out again whether the
    // machine was restarted.
    if database.note_stream() {
        boot::note(folder);
    }
    Ok(())
}

/// The checkpoint that a recovery began with or has written, and the older one beside it.
struct Checkpoints {
    manifest: Manifest,
    older: Option<Manifest>,
    /// See [`DurableState::cut`].
    cut: Option<u64>,
}

fn report_given_up(database: &Database, truncation: Truncation) {
    let Truncation { offset, bytes, writes, .. } = truncation;
    *database.replication.role.given_up.lock() = Some(GivenUp { from: offset, bytes, writes: Some(writes) });
    let text = format!(
        "has gone back to byte {offset} of its stream: the {} behind it, with {writes} writes, were not in the stream of its new primary",
        human(bytes)
    );
    tracing::warn!("database '{}' {text}", database.name());
    database.replication.report(text);
}

/// Logs which keys are lost, because records of the journal needed damaged values on flash, in this start or before the checkpoint.
fn report_lost(database: &Database) {
    let (store, lost) = (&database.shard.store, &database.hub.dataset.lost);
    let (records, keys) = (lost.commands.load(Relaxed), store.lost_keys());
    let name = &database.hub.name;
    if keys > 0 {
        let named: Vec<String> =
            lost.keys().iter().filter(|key| store.is_lost(key.db, &key.name)).map(ToString::to_string).collect();
        let more = if (named.len() as u64) < keys { ", and others" } else { "" };
        tracing::error!(
            "database '{name}': {keys} keys are lost, because {records} records of the journal could not read the values on flash that they need; a lost key answers with an error until it is set again or deleted: {}{more}",
            named.join(", ")
        );
    } else if records > 0 {
        tracing::warn!(
            "database '{name}': {records} records of the journal could not read the values on flash that they need; later records have set or deleted all of their keys, so nothing is lost"
        );
    }
}

/// The recovery counts among those that are under way.
struct RecoveryUnderWay<'d>(&'d Database);

impl RecoveryUnderWay<'_> {
    fn begin(database: &Database) -> RecoveryUnderWay<'_> {
        database.ledger.recoveries.lock().begin(Instant::now());
        RecoveryUnderWay(database)
    }

    /// A clock of what the recovery would take alone.
    fn alone(&self) -> Duration {
        self.0.ledger.recoveries.lock().alone(Instant::now())
    }
}

impl Drop for RecoveryUnderWay<'_> {
    fn drop(&mut self) {
        self.0.ledger.recoveries.lock().end(Instant::now());
    }
}

fn advised(error: &dyn Display, folder: &Path) -> String {
    format!("{error}. Restore {} from a copy, or move it away to start without it", folder.display())
}

fn refused(error: &OpenError, folder: &Path) -> String {
    match error {
        OpenError::InUse { .. } => error.to_string(),
        OpenError::NoSpace { .. } => format!("{error}. Nothing is lost: make room there, and start again"),
        error => advised(error, folder),
    }
}

/// Runs the records behind the checkpoint. Returns how many there were, and a later checkpoint if flash was short of room meanwhile.
fn replay(
    database: &Database,
    folder: &Path,
    opened: &Opened,
    mut now: Checkpoints,
) -> Result<(u64, Checkpoints), String> {
    let mut untruncated = Untruncated::of(&now.manifest);
    let mut replay = Replay::begin(database)?;
    let (store, done) = (&database.shard.store, &database.files.loaded_bytes);
    let (before, from) = (done.load(Relaxed), now.manifest.position);
    // The position up to which records have run, and the position up to which the journal is durable.
    let (mut at, mut durable) = (from, None);
    let mut no_checkpoint = None;
    let read = opened.records_from(from, &mut |position, record| {
        if store.is_short_of_segments() && durable.is_none_or(|durable| at <= durable) {
            match make_room(database, folder, opened, replay.pipes(), &now.manifest, at) {
                Ok((newer, end)) => {
                    durable = Some(end);
                    if let Some(newer) = newer {
                        now = newer;
                    }
                }
                Err(why) => {
                    no_checkpoint = why;
                    return ControlFlow::Break(());
                }
            }
        }
        at = position;
        done.store(before + position - from, Relaxed);
        match if untruncated.counts(position, record) { replay.run(record) } else { Ok(()) } {
            Ok(()) => ControlFlow::Continue(()),
            Err(Broken) => ControlFlow::Break(()),
        }
    });
    let records = replay.records();
    let finished = replay.finish();
    if let Some(why) = no_checkpoint {
        return Err(format!(
            "flash has no room for the values that the replay of the journal writes, and no checkpoint can be written to make room: {why}"
        ));
    }
    read.map_err(|error| advised(&error, folder))?;
    finished.map(|()| (records, now)).map_err(|why| advised(&why, folder))
}

/// Writes a checkpoint at this position, so that emptied segments are free. If only the ring has the last records, nothing is done: these
/// are few. Returns the new checkpoint, if there is one, and the position up to which the journal is durable. An error without a text is that
/// of a connection.
fn make_room(
    database: &Database,
    folder: &Path,
    opened: &Opened,
    pipes: &mut Pipes,
    manifest: &Manifest,
    at: u64,
) -> Result<(Option<Checkpoints>, u64), Option<String>> {
    let durable = opened.sync_files().map_err(|error| Some(error.to_string()))?;
    if at > durable {
        return Ok((None, durable));
    }
    pipes.drain().map_err(|Broken| None)?;
    let (manifest, cut) = checkpoint::replace_in_recovery(database, folder, manifest, at).map_err(Some)?;
    tracing::info!(
        "database '{}': a new checkpoint is written at position {at} of the journal, because flash is short of room",
        database.hub.name
    );
    Ok((Some(Checkpoints { manifest, older: None, cut }), durable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_system_is_no_reason_to_restore_the_directory() {
        let folder = Path::new("/d");
        let full = refused(&OpenError::NoSpace { file: "/d/journal-0003".into(), needed_bytes: 7 }, folder);
        let text = "/d/journal-0003 needs 7 B, but its file system does not have so much free space. Nothing is lost: make room there, and start again";
        assert_eq!(full, text);
        let missing = refused(&OpenError::Missing { file: "/d/journal-0003".into() }, folder);
        assert!(missing.ends_with("Restore /d from a copy, or move it away to start without it"), "{missing}");
    }
}
