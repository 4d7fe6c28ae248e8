//! Owns the writing of checkpoints, and the decision when a new one is due. Never knows how a dump is made.

use super::{FILE_BYTES, RING_BYTES_MAX, index};
use crate::database::Database;
use crate::estimate::Estimate;
use crate::files::{AtCut, CutInfo, FIELDS_VERSION, OnFlash, about, write_dump};
use crate::progress::DurableState;
use base::clock::wall_ms;
use base::size::human;
use config::Config;
use engine::LoadState;
use engine::replication::Mark;
use flash::sequential::Rest;
use journal::Log;
use journal::index::IndexWriter;
use journal::manifest::{self, CheckpointFile, Found, Manifest, Truncation};
use rdb::Options;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const DRAFT: &str = "base.new";
const INDEX_DRAFT: &str = "base-index.new";
/// A checkpoint that only gains room on flash waits, after the last one, this many times as long as that one took.
const RESTS: u64 = 4;
/// A cleaning ends at the latest after this time, and after the time for the values in RAM at `CLEAN_BYTES_A_SECOND`.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(10);
const CLEAN_BYTES_A_SECOND: u64 = 20 << 20;
/// While a restart would take too long, a cleaning may make it longer by this much.
const CLEAN_LATER_MS: u64 = 1000;
/// After each portion of the index, the writer pauses for this many times what the portion took, so that the device serves reads.
const INDEX_RESTS: u32 = 2;
const INDEX_REST_MAX: Duration = Duration::from_millis(50);
/// How long to wait for a script that keeps stripes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time between a checkpoint that could not be written and the next attempt that nobody asks for.
const RETRY_MS: u64 = 60_000;
/// The same while writers wait for the checkpoint.
const SHORT_RETRY_MS: u64 = 2_000;
/// What the journal's files take beside the records behind the checkpoint.
const JOURNAL_BYTES: u64 = 160 << 20;
const TAIL_BYTES_MIN: u64 = 64 << 20;
/// A checkpoint that is nearly empty.
const CHECKPOINT_BYTES_MIN: u64 = 16 << 20;
const JOURNAL_FILES_MIN: u32 = 2;

/// The moment of a checkpoint: where the journal is, and where the stream is, if there is one.
#[derive(Clone, Copy)]
struct At {
    position: u64,
    /// The store's count of values that were changed on flash.
    changed: u64,
    stream: Option<Mark>,
}

impl CutInfo for At {}

/// A checkpoint that is on the device, and that no manifest names yet.
pub struct Written {
    at: At,
    dump: CheckpointFile,
    /// With flash.
    index: Option<CheckpointFile>,
    /// The number of the checkpoint's cut, if the checkpoint has an index.
    cut: Option<u64>,
}

/// Writes a checkpoint. `at_cut` is called at the moment of the checkpoint, while every stripe is locked, and returns the journal's
/// position. The caller holds the lock of files.
pub fn write(database: &Database, folder: &Path, log: &Log, at_cut: &dyn Fn() -> u64) -> Result<Written, String> {
    clean(database);
    let applied = AtCut::new(database);
    let changed = || database.shard.store.changed_on_flash();
    let at = || {
        let (position, mark) = database.hub.dataset.journaling.stream.with_mark(|mark| (at_cut(), mark));
        // Where there is a stream, the primary's goes on from here.
        At { position, changed: changed(), stream: applied.mark().and(mark) }
    };
    let written = write_files(database, folder, &at)?;
    // The next start replays the journal from this position, so the journal must be durable up to it.
    match log.make_durable(written.at.position) {
        Ok(()) => Ok(written),
        Err(why) => {
            remove(folder, [&written.dump].into_iter().chain(&written.index));
            Err(why)
        }
    }
}

/// Makes the manifest name this checkpoint, and removes the others but `older`. Returns the manifest, and the checkpoint's cut if it has an
/// index. The caller holds the lock of the manifest. `truncations`: those that the manifest has had, of the journal `log_id`.
pub fn publish(
    database: &Database,
    folder: &Path,
    (log_id, truncations): ([u8; 16], &[Truncation]),
    written: Written,
    older: Option<&Manifest>,
) -> Result<(Manifest, Option<u64>), String> {
    let Written { at: At { position, changed, stream }, dump, index, cut } = written;
    let stream = super::named_now(database, stream);
    let truncations = truncations.iter().filter(|truncation| truncation.position > position).copied().collect();
    let manifest = Manifest { log_id, position, checkpoint: Some(dump), index, stream, truncations };
    // Before what only an older checkpoint names is used again.
    let published = older
        .map_or_else(|| super::older::remove(folder), |older| manifest::write_older(folder, older))
        .and_then(|()| manifest::write(folder, Some(&manifest)));
    if let Err(why) = published {
        remove_unpublished(folder, &manifest);
        return Err(why);
    }
    database.files.journal.changed_at_checkpoint.store(changed, Relaxed);
    if let Some(cut) = cut {
        if older.is_none() {
            database.shard.store.checkpoint_durable(cut);
        }
        if let Err(why) = database.shard.set_kept(true) {
            tracing::warn!("the flash files could not be marked as a part of the dataset: {why}");
        }
    }
    if let Err(error) = remove_others(folder, [&manifest].into_iter().chain(older)) {
        tracing::warn!("cannot delete an old checkpoint: {}", about(folder, error));
    }
    Ok((manifest, cut))
}

/// Replaces the checkpoint while the journal is replayed, up to this position, which is durable. Returns the new manifest, and the
/// checkpoint's cut if it has an index.
pub fn replace_in_recovery(
    database: &Database,
    folder: &Path,
    manifest: &Manifest,
    position: u64,
) -> Result<(Manifest, Option<u64>), String> {
    let (store, stream) = (&database.shard.store, &database.hub.dataset.journaling.stream);
    let at_cut = || At { position, changed: store.changed_on_flash(), stream: stream.mark() };
    let written = write_files(database, folder, &at_cut)?;
    publish(database, folder, (manifest.log_id, &manifest.truncations), written, None)
}

/// Writes values that are in RAM only to flash too. Then the checkpoint's index names their places, and its dump need not have them. This
/// is not done while writers wait for the checkpoint, nor if a restart that is late would become later and later.
fn clean(database: &Database) {
    let store = &database.shard.store;
    if store.is_short_of_segments() {
        return;
    }
    let mut first_late_ms = None;
    let mut is_urgent = || {
        let gets_later = |ms: u64| ms > *first_late_ms.get_or_insert(ms) + CLEAN_LATER_MS;
        store.is_short_of_segments()
            || database.is_journal_pressed()
            || database.late_restart_ms().is_some_and(gets_later)
    };
    let timeout = CLEAN_TIMEOUT + Duration::from_secs(store.held_bytes() / CLEAN_BYTES_A_SECOND);
    let begun = Instant::now();
    store.clean();
    while !store.is_cleaned() && !is_urgent() && !database.hub.is_closing.load(Relaxed) && begun.elapsed() < timeout {
        std::thread::sleep(Duration::from_millis(1));
    }
    store.stop_cleaning();
}

struct Drafts {
    dump: PathBuf,
    index: PathBuf,
}

fn write_files(database: &Database, folder: &Path, at_cut: &dyn Fn() -> At) -> Result<Written, String> {
    let drafts = Drafts { dump: folder.join(DRAFT), index: folder.join(INDEX_DRAFT) };
    write_drafts(database, folder, &drafts, at_cut).inspect_err(|_| {
        // Best effort: they may not be there.
        let _ = fs::remove_file(&drafts.dump);
        let _ = fs::remove_file(&drafts.index);
    })
}

fn write_drafts(
    database: &Database,
    folder: &Path,
    drafts: &Drafts,
    at_cut: &dyn Fn() -> At,
) -> Result<Written, String> {
    let shard = &database.shard;
    // A checkpoint is written often, and read once. Compressing would take most of its time.
    let options = Options { version: FIELDS_VERSION, compresses: false, has_checksum: true };
    database.files.saved_keys.store(0, Relaxed);
    let name = |draft: &Path, position: u64, kind: &str| {
        // Two checkpoints may be of one position. A file that the manifest names is never replaced.
        let names = (1..).map(|nth| match nth {
            1 => format!("base-{position}.{kind}"),
            nth => format!("base-{position}-{nth}.{kind}"),
        });
        let name = names.into_iter().find(|name| !folder.join(name).exists()).expect("some name is not taken");
        let path = folder.join(&name);
        let bytes = bytes_of(draft)?;
        fs::rename(draft, &path).map_err(|error| about(&path, error))?;
        Ok::<_, String>(CheckpointFile { name, bytes })
    };
    let dump = |on_flash| write_dump(database, &drafts.dump, options, on_flash, TIMEOUT, at_cut);
    let (at, index, cut) = match shard.log() {
        // Nothing has expired for a checkpoint: the journal says what has.
        None => {
            let (at, _) = dump(OnFlash::Written { now_ms: 0 })?;
            fits(database, bytes_of(&drafts.dump)?)?;
            (at, None, None)
        }
        Some(_) => {
            let about_index = |error| about(&drafts.index, error);
            let file = create(&drafts.index).map_err(about_index)?;
            let mut writer = IndexWriter::new(file, rest_of(database));
            let (at, stayed) = dump(OnFlash::Stay(&mut writer))?;
            let (checkpoint, cut) = stayed.expect("a checkpoint was asked for");
            let index_bytes = index::finish(writer, shard, &checkpoint).map_err(about_index)?;
            fits(database, index_bytes + bytes_of(&drafts.dump)?)?;
            // What the index names is on the device before the index counts.
            shard.sync()?;
            (at, Some(name(&drafts.index, at.position, "index")?), Some(cut))
        }
    };
    let dump = name(&drafts.dump, at.position, "rdb")?;
    manifest::sync(folder).map_err(|error| about(folder, error))?;
    Ok(Written { at, dump, index, cut })
}

/// Between two portions of the index, reads of values have the device for themselves, unless somebody waits for the checkpoint.
fn rest_of(database: &Database) -> Rest {
    let database = database.me.clone();
    Box::new(move |took| {
        if database.upgrade().is_some_and(|database| database.is_at_leisure()) {
            std::thread::sleep((took * INDEX_RESTS).min(INDEX_REST_MAX));
        }
    })
}

fn bytes_of(path: &Path) -> Result<u64, String> {
    fs::metadata(path).map(|file| file.len()).map_err(|error| about(path, error))
}

/// A new file that only the owner reads: the index has the secret of the keys' hashes.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Removes the files of checkpoints that no manifest names.
pub fn remove_others<'m>(folder: &Path, manifests: impl IntoIterator<Item = &'m Manifest>) -> io::Result<()> {
    let named: Vec<&CheckpointFile> = manifests.into_iter().flat_map(Manifest::files).collect();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let is_named = |name: &str| named.iter().any(|file| file.name == name);
        if name.to_str().is_some_and(|name| name.starts_with("base") && !is_named(name)) {
            fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

/// Removes the files of a checkpoint whose manifest could not be written, unless that manifest is in force all the same. Otherwise each
/// further attempt would leave a whole checkpoint there.
fn remove_unpublished(folder: &Path, manifest: &Manifest) {
    let is_its_own = |file: &CheckpointFile| manifest.files().any(|own| own.name == file.name);
    match manifest::read(folder) {
        Ok(Found::Dataset(found)) if found.files().any(is_its_own) => {}
        Ok(_) => remove(folder, manifest.files()),
        // Which manifest is in force is not known.
        Err(_) => {}
    }
}

/// Best effort: the next checkpoint removes what stays.
fn remove<'f>(folder: &Path, files: impl IntoIterator<Item = &'f CheckpointFile>) {
    for file in files {
        let _ = fs::remove_file(folder.join(&file.name));
    }
}

/// What flash-limit leaves for the journal and the checkpoints. `None`: there is no limit.
fn kept_room(config: &Config) -> Option<u64> {
    let (memory, ram, given) = (config.memory_limit_bytes, config.ram_limit_bytes, config.flash_limit_given_bytes);
    // While persistence is being switched on, the configuration does not say so yet.
    let log = match config.flash_paths.is_empty() {
        true if given == 0 => return None,
        true => 0,
        false => base::sizing::log_bytes(memory, ram, true, given),
    };
    let limit = if given == 0 { base::sizing::files_bytes(memory, ram, true) } else { given };
    Some(limit.saturating_sub(log))
}

/// How many files the journal may have: there must be room for the checkpoint, for the next one, for the ring, and for the file that the
/// journal needs to end before a checkpoint.
fn journal_files(config: &Config, checkpoint_bytes: u64) -> Option<u32> {
    let others = checkpoint_bytes + checkpoint_bytes.max(CHECKPOINT_BYTES_MIN) + RING_BYTES_MAX;
    let files = kept_room(config)?.saturating_sub(others) / FILE_BYTES;
    Some((files.saturating_sub(1) as u32).max(JOURNAL_FILES_MIN))
}

/// Limits the journal's files. Called before the first record, and whenever the configuration or the size of the checkpoint may have changed.
pub fn limit_journal(config: &Config, log: &Log, checkpoint_bytes: u64) {
    log.limit_files(journal_files(config, checkpoint_bytes).unwrap_or(u32::MAX));
}

/// Refuses a checkpoint that leaves no room for a journal and the checkpoint before it. The journal's present files do not count, because
/// the checkpoint makes them free.
fn fits(database: &Database, bytes: u64) -> Result<(), String> {
    let sizes = |kept: &DurableState| (kept.checkpoint_bytes(), kept.older_bytes());
    let (before, older) = database.files.journal.kept.lock().as_ref().map_or((0, 0), sizes);
    let others = before + u64::from(JOURNAL_FILES_MIN + 1) * FILE_BYTES;
    match kept_room(&database.hub.config.snapshot()) {
        Some(room) if others + bytes <= room && others + bytes + older > room => {
            database.release_older(Some("the new checkpoint needs its room"));
            Ok(())
        }
        Some(room) if others + bytes > room => Err(format!(
            "it needs {}, but flash-limit leaves {} for the journal and two checkpoints, and the journal and the old checkpoint take {} of that: raise flash-limit by {}",
            human(bytes),
            human(room),
            human(others),
            human(others + bytes - room)
        )),
        _ => Ok(()),
    }
}

/// What the file system lacks for the next checkpoint and for a journal as long as the checkpoint.
fn missing_bytes(kept: &DurableState) -> u64 {
    let checkpoint_bytes = kept.checkpoint_bytes();
    let journal_bytes = checkpoint_bytes.max(TAIL_BYTES_MIN) + JOURNAL_BYTES;
    let needed = checkpoint_bytes + journal_bytes.saturating_sub(kept.log.figures().file_bytes);
    // If the file system tells no figure, nothing is missing here: an error is reported when a write fails.
    let free = rustix::fs::statvfs(&kept.folder).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    free.map_or(0, |free| needed.saturating_sub(free))
}

impl Database {
    /// BGREWRITEAOF: starts to write a new checkpoint. The error is the whole reply.
    pub(crate) fn start_rewrite(&self) -> Result<(), String> {
        if !super::is_on(self) {
            return Err("ERR BGREWRITEAOF needs a journal: switch it on with CONFIG SET appendonly yes".to_owned());
        }
        let Some(database) = self.me.upgrade() else { return Err("ERR the database is being closed".to_owned()) };
        if !self.begin_rewrite() {
            return Err("ERR Background append only file rewriting already in progress".to_owned());
        }
        let started = std::thread::Builder::new().name("checkpoint".into()).spawn(move || {
            database.rewrite();
            database.end_rewrite();
        });
        started.map(drop).map_err(|error| {
            self.end_rewrite();
            format!("ERR cannot start a thread: {error}")
        })
    }

    /// The right to write the next checkpoint, until [`Database::end_rewrite`]. False: another thread has it.
    pub(super) fn begin_rewrite(&self) -> bool {
        let since = &self.files.journal.rewriting_since_ms;
        since.compare_exchange(0, wall_ms().max(1), Relaxed, Relaxed).is_ok()
    }

    pub(super) fn end_rewrite(&self) {
        self.files.journal.rewriting_since_ms.store(0, Relaxed);
    }

    /// Called once a second: starts to write a new checkpoint if the journal has grown as much as the settings say, if it has used half of
    /// its room, or if a restart would take too long.
    pub(crate) fn tick_journal(&self) {
        let Some(kept) = self.files.journal.kept.lock().clone() else { return self.reservation.note_restart(0) };
        let config = self.hub.config.snapshot();
        let settings = &config.redis_files;
        let failed_ms = self.files.journal.last_rewrite_failed_ms.load(Relaxed);
        // Values on flash count as a part of the checkpoint, although its files do not have them.
        let (tail, dataset) = (kept.tail_file_bytes(), kept.checkpoint_bytes() + self.shard.store.flash_live_bytes());
        let growth = u128::from(tail) * 100 / u128::from(dataset.max(1));
        let has_grown = settings.aof_rewrite_percentage > 0
            && dataset + tail > settings.aof_rewrite_min_bytes
            && growth >= u128::from(settings.aof_rewrite_percentage);
        limit_journal(&config, &kept.log, kept.checkpoint_bytes());
        let files = journal_files(&config, kept.checkpoint_bytes());
        let is_half_full = files.is_some_and(|files| tail >= u64::from(files) * FILE_BYTES / 2);
        let is_due = has_grown || is_half_full;
        self.tick_older(&kept, is_half_full);
        let state = &self.files.journal;
        let (target_ms, took_ms) = (settings.recovery_target_s * 1000, state.last_rewrite_took_ms.load(Relaxed));
        let since_ms = wall_ms().saturating_sub(state.last_rewrite_ms.load(Relaxed));
        let estimate = self.restart_estimate(&kept);
        self.reservation.note_restart(estimate.load_ms + estimate.replay_ms);
        let is_late = estimate.asks_for_checkpoint(target_ms, took_ms, since_ms);
        if state.rewriting_since_ms.load(Relaxed) == 0 {
            state.missing_bytes.store(missing_bytes(&kept), Relaxed);
        }
        if (is_due || is_late) && wall_ms() > failed_ms + RETRY_MS {
            // If one is being written already, there is nothing to do.
            let _ = self.start_rewrite();
        }
    }

    /// How long a restart of the node would take now until this database is loaded.
    pub(crate) fn restart_estimate(&self, kept: &DurableState) -> Estimate {
        let store = &self.shard.store;
        let alone = self.files.journal.estimate(kept, store.changed_on_flash(), store.read_cost_ns());
        Estimate { others_ms: self.ledger.others_restart_ms(&self.reservation, alone.total_ms()), ..alone }
    }

    /// How long a restart would take, if that is much longer than the target and writers can make it longer still.
    fn late_restart_ms(&self) -> Option<u64> {
        if self.hub.clients.is_paused(true, wall_ms()) {
            return None;
        }
        let kept = self.files.journal.kept.lock().clone()?;
        let target_s = self.hub.config.snapshot().redis_files.recovery_target_s;
        let estimate = self.restart_estimate(&kept);
        estimate.is_urgent(target_s * 1000).then(|| estimate.total_ms())
    }

    /// Whether a checkpoint may be written slowly: the node serves, nobody waits for the checkpoint now or soon, and a restart is not much
    /// longer than its target.
    pub(crate) fn is_at_leisure(&self) -> bool {
        let hub = &self.hub;
        let serves = hub.clients.load_state() == LoadState::Open && !hub.is_closing.load(Relaxed);
        let waits = hub.clients.is_paused(true, wall_ms())
            || self.shard.store.is_short_of_segments()
            || self.replication.orders.is_served();
        serves && !waits && !self.is_journal_pressed() && self.late_restart_ms().is_none()
    }

    /// Whether the journal has used three quarters of its room, so that writers will soon wait.
    fn is_journal_pressed(&self) -> bool {
        let Some(kept) = self.files.journal.kept.lock().clone() else { return false };
        let files = journal_files(&self.hub.config.snapshot(), kept.checkpoint_bytes());
        let is_full = |files: u32| kept.tail_file_bytes() >= u64::from(files) * FILE_BYTES / 4 * 3;
        files.is_some_and(is_full)
    }

    /// Called many times a second: starts to write a new checkpoint if emptied segments of flash wait for it.
    pub(crate) fn tick_segments(&self) {
        let state = &self.files.journal;
        if self.free_segments()
            && self.needs_segments()
            && wall_ms() > state.last_rewrite_failed_ms.load(Relaxed) + SHORT_RETRY_MS
        {
            // As above.
            let _ = self.start_rewrite();
        }
    }

    /// If emptied segments of flash wait for a checkpoint, removes the older one, which may hold them. Returns whether they still wait.
    fn free_segments(&self) -> bool {
        let wants = || self.shard.store.wants_checkpoint();
        wants() && (!self.release_older(Some("flash needs its segments")) || wants())
    }

    /// Writes a checkpoint if emptied segments of flash wait for it. No checkpoint begins while a dump is made, and without free segments a dump
    /// ends early.
    pub(crate) fn free_segments_for_dump(&self) {
        if self.free_segments() && self.begin_rewrite() {
            self.rewrite();
            self.end_rewrite();
        }
    }

    /// Called many times a second: writers that find no room in the journal wait for a checkpoint. They get an error if it cannot be written.
    pub(crate) fn tick_room(&self) {
        let Some(log) = self.files.journal.kept.lock().as_ref().map(|kept| Arc::clone(&kept.log)) else { return };
        let state = &self.files.journal;
        let trouble = log.is_behind().then(|| log.figures().trouble).flatten();
        if trouble.is_some() && self.release_older(Some("the journal needs its room")) {
            return;
        }
        if trouble.is_some() && wall_ms() > state.last_rewrite_failed_ms.load(Relaxed) + SHORT_RETRY_MS {
            // As above.
            let _ = self.start_rewrite();
        }
        let has_failed = state.rewrite_failures.load(Relaxed) > 0;
        let refusal =
            |why| format!("{why}, and no new checkpoint can be written to make room: see the log for the reason");
        self.hub.dataset.journaling.refuse(trouble.filter(|_| has_failed).map(refusal));
    }

    /// Whether a checkpoint may be written to free segments: some time after the last one, or at once if writers wait for segments.
    fn needs_segments(&self) -> bool {
        let (store, state) = (&self.shard.store, &self.files.journal);
        let rest_ms = RESTS * state.last_rewrite_took_ms.load(Relaxed);
        let has_rested = wall_ms() > state.last_rewrite_ms.load(Relaxed) + rest_ms;
        has_rested || store.is_short_of_segments()
    }

    /// Writes a new checkpoint. False: the old one stays.
    pub(super) fn rewrite(&self) -> bool {
        let begun = Instant::now();
        let _busy = self.files.busy.lock();
        // It may have been switched off meanwhile.
        let Some(kept) = self.files.journal.kept.lock().clone() else { return false };
        let state = &self.files.journal;
        let written = rewrite(self, &kept);
        let is_new = written.is_ok();
        match written {
            Ok(manifest) => {
                let position = manifest.position;
                let bytes: u64 = manifest.files().map(|file| file.bytes).sum();
                tracing::info!(
                    "database '{}': a new checkpoint of {} is written in {:.3} s, the journal begins at {position}",
                    self.hub.name,
                    human(bytes),
                    begun.elapsed().as_secs_f64()
                );
                state.rewrites.fetch_add(1, Relaxed);
                state.rewrite_failures.store(0, Relaxed);
                state.last_rewrite_failed_ms.store(0, Relaxed);
            }
            Err(_) if self.hub.is_closing.load(Relaxed) => {}
            Err(why) => {
                tracing::error!("database '{}': no new checkpoint could be written: {why}", self.hub.name);
                state.rewrite_failures.fetch_add(1, Relaxed);
                state.last_rewrite_failed_ms.store(wall_ms(), Relaxed);
            }
        }
        state.last_rewrite_ms.store(wall_ms(), Relaxed);
        state.last_rewrite_took_ms.store((begun.elapsed().as_millis() as u64).max(1), Relaxed);
        is_new
    }
}

/// Replaces the checkpoint. An error leaves the old one.
fn rewrite(database: &Database, kept: &DurableState) -> Result<Manifest, String> {
    let (folder, log) = (&kept.folder, &kept.log);
    // It could not become durable up to the checkpoint.
    if let Some(why) = log.failed() {
        return Err(why);
    }
    let written = write(database, folder, log, &|| log.position())?;
    // Once the new checkpoint is published, no start needs the records before it, and their files are used again. So they are archived first.
    database.archive_before_checkpoint(kept);
    let _naming = database.files.journal.naming.lock();
    // The older checkpoint may have been removed, and the stream may have got another id, since this began.
    let Some(kept) = database.files.journal.kept.lock().clone() else { return Err("it is being closed".to_owned()) };
    let older = database.older_beside(&kept, written.at.stream.map(|mark| mark.offset));
    let named = (kept.manifest.log_id, &*kept.manifest.truncations);
    let (manifest, cut) = publish(database, folder, named, written, older.as_ref())?;
    let now = DurableState { manifest: manifest.clone(), older, cut, ..kept.clone() };
    log.needed_from(now.needed_from());
    *database.files.journal.kept.lock() = Some(now);
    Ok(manifest)
}
