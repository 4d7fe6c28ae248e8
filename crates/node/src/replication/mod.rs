//! Owns what makes a database a primary or a replica: the stream of its changes, from where it begins, and the store's part. Never knows
//! how a command becomes a part of the stream.

mod apply;
mod arrival;
mod check;
mod failover;
mod figures;
mod follow;
mod full;
mod reconcile;
mod shard_stream;
pub(crate) mod shutdown_drain;
mod sync;
mod tick;
mod wire;

pub use figures::{CheckFigures, PrimaryFigures, ReplicaFigures, ReplicationFigures};

use crate::database::Database;
use crate::files::{AtCut, CutInfo, OnFlash, about, write_dump};
use base::clock::wall_ms;
use config::Policy;
use engine::replication::{Contents, Mark, new_id};
use rdb::Options;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long to wait for a script that keeps stripes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The stream's window in RAM takes this share of the RAM limit.
const WINDOW_SHARE: u64 = 32;
const WINDOW_BYTES_MIN: u64 = 1 << 20;
const WINDOW_BYTES_MAX: u64 = 16 << 20;

impl Database {
    /// Writes a dump of the dataset for a replica. Returns the stream's mark at the cut: from the cut on, the stream takes all effects.
    /// `written` is called repeatedly with the size of the file so far.
    pub(crate) fn dump_for_replica(
        &self,
        path: &Path,
        options: Options,
        contents: Contents,
        written: &Written<'_>,
    ) -> Result<Mark, String> {
        self.prepare_stream(None);
        let journaling = &self.hub.dataset.journaling;
        let was_on = journaling.stream.is_on();
        let at_cut = AtCut::new(self);
        let cut = || {
            self.keep_effects_in_stream();
            journaling.stream.turn_on();
            journaling.stream.select_again();
            ForReplica { mark: at_cut.mark().expect("there is a stream"), written }
        };
        // Nothing has expired for a replica: the stream says what has.
        let on_flash = match contents {
            Contents::Pages => OnFlash::Sent,
            Contents::Flint | Contents::Redis => OnFlash::Written { now_ms: 0 },
        };
        let (moment, _) = write_dump(self, path, options, on_flash, TIMEOUT, &cut)?;
        if !was_on && crate::persist::is_on(self) {
            // A new checkpoint records the stream for a restart. If it cannot begin now, the next one does.
            let _ = self.start_rewrite();
        }
        Ok(moment.mark)
    }

    /// Makes a stream, if there is none. It goes on at the mark, or begins with an id of its own. `Some` replaces a stream that is there.
    pub(crate) fn prepare_stream(&self, mark: Option<Mark>) {
        let stream = &self.hub.dataset.journaling.stream;
        if mark.is_none() && stream.is_prepared() {
            return;
        }
        // A replica that reads the old stream must not get bytes of the new one. So links are ended before the change, and again behind it,
        // for those that began meanwhile.
        let replaces = stream.is_prepared();
        if replaces {
            self.end_links();
        }
        let config = self.hub.config.snapshot();
        let window_bytes = match config.ram_limit_bytes {
            0 => WINDOW_BYTES_MAX,
            limit => (limit / WINDOW_SHARE).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX),
        };
        let folder = crate::files::directory(self.name(), &config.redis_files);
        let file = nameless_file(&folder, "backlog").map_err(|why| {
            tracing::warn!("the backlog for replicas has no file, so it is in RAM only: {why}");
        });
        let first = stream.window_bytes() == 0;
        let mark = mark.unwrap_or_else(|| Mark { id: new_id(), second: None, offset: 0, db: None });
        stream.prepare(mark, window_bytes as usize, file.ok().map(|file| (file, config.redis_files.backlog_bytes)));
        if replaces {
            self.end_links();
        }
        if first {
            // In use from now on, as long as the database is open.
            self.shard.store.lend(stream.window_bytes());
            self.start_spiller();
        }
    }

    fn start_spiller(&self) {
        let journaling = std::sync::Arc::clone(&self.hub.dataset.journaling);
        let spill = move || {
            journaling.stream.spill(&|error| {
                tracing::warn!("the backlog for replicas is in RAM only from now on: {error}");
            });
        };
        if let Err(error) = std::thread::Builder::new().name("backlog".into()).spawn(spill) {
            tracing::warn!("the backlog for replicas is in RAM only: {error}");
        }
    }

    /// The store gives its effects to the journal and the stream. Every stripe is locked, or there is no client.
    pub(crate) fn keep_effects_in_stream(&self) {
        let store = &self.shard.store;
        if !store.records_effects() {
            store.set_change_log(self.hub.dataset.journaling.clone());
        }
    }

    /// Whether the dataset is a copy of a primary's: effects are not kept, expired keys are hidden and stay, and nothing is evicted.
    pub(crate) fn follow_in_store(&self, follows: bool) {
        let store = &self.shard.store;
        self.hub.dataset.journaling.stream.set_follows(follows);
        store.set_follows(follows);
        store.set_policy(if follows { Policy::NoEviction } else { self.hub.config.snapshot().maxmemory_policy });
    }
}

/// Called with the mark of a dump and the number of bytes that are in its file.
type Written<'w> = dyn Fn(Mark, u64) -> io::Result<()> + 'w;

/// The moment of a dump for replicas.
struct ForReplica<'w> {
    mark: Mark,
    written: &'w Written<'w>,
}

impl CutInfo for ForReplica<'_> {
    fn stream_mark(&self) -> Option<Mark> {
        Some(self.mark)
    }

    fn is_kept(&self) -> bool {
        false
    }

    fn written(&self, bytes: u64) -> io::Result<()> {
        (self.written)(self.mark, bytes)
    }
}

/// A file without a name: it is gone with the process.
fn nameless_file(folder: &Path, what: &str) -> Result<File, String> {
    fs::create_dir_all(folder).map_err(|error| about(folder, error))?;
    let path = folder.join(format!("{what}-{}-{}.tmp", std::process::id(), wall_ms()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|error| about(&path, error))?;
    fs::remove_file(&path).map_err(|error| about(&path, error))?;
    Ok(file)
}
