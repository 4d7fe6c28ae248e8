//! Owns one copy of a dataset: the store, and the files and drivers of its flash. Never knows a client, a user or the
//! limits of other databases.

use crate::resize::{self, FlashSizeError};
use base::FlashIo;
use base::clock::wall_ms;
use base::size::human;
use config::{Config, ConfigStore, TierMode};
use engine::random;
use flash::{DATA_OFFSET, FlashFiles, OpenError, ThreadPool};
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, OnceLock};
use store::{CheckpointIndex, FlashConfig, Lane, LimitOf, Restoring, Store, StoreConfig};

/// One copy of a dataset. A database has one.
pub struct Shard {
    pub store: Arc<Store>,
    /// `None`: everything stays in RAM.
    flash: Option<Flash>,
    /// How the workers reach flash: `io_uring` or `threads`. Set by the first worker.
    driver: OnceLock<&'static str>,
    /// The store waits for the entries of a checkpoint.
    restoring: Mutex<Option<Restoring>>,
}

/// Values on flash that have survived a restart.
pub struct Values {
    pub log_name: String,
    pub log_id: [u8; 16],
    pub checkpoint: CheckpointIndex,
}

/// The log files, and how the store divides them.
struct Flash {
    files: Arc<FlashFiles>,
    name: String,
    layout: FlashConfig,
    io: FlashIo,
}

/// The secret of the hash of keys. All copies of a cluster's database have the same, and so has each of its proxies.
pub type HashSecret = [u64; 2];

impl Shard {
    /// Makes a store and its log files, named `log_name` in each flash path. Both are empty, unless there are `values` on flash: then
    /// the store waits for their entries ([`Shard::take_restoring`]), and their secret counts. Without `secret`, one is drawn.
    pub fn open(
        log_name: &str,
        config: &Config,
        workers: usize,
        huge_pages: bool,
        values: Option<&Values>,
        secret: Option<HashSecret>,
    ) -> io::Result<Shard> {
        let mut checkpoint = values.map(|values| values.checkpoint.clone());
        let flash = match (values, &mut checkpoint) {
            (Some(values), Some(checkpoint)) => Some(reopen_flash(values, checkpoint, config)?),
            _ => open_flash(log_name, config)?,
        };
        let mut store_config = StoreConfig {
            workers,
            databases: config.databases,
            ram_limit: config.ram_limit_bytes,
            limit_of: LimitOf::Process,
            policy: config.maxmemory_policy,
            huge_pages,
            flash: flash.as_ref().map(|flash| flash.layout.clone()),
            // Cold keys are distinguished by a keyed hash, so its key must be secret.
            secret: secret.unwrap_or_else(|| [random::number(), random::number()]),
            seed: random::number(),
        };
        if let Some(checkpoint) = &checkpoint {
            checkpoint.configure(&mut store_config).map_err(io::Error::other)?;
        }
        let store = Store::new(&store_config);
        let begin = |checkpoint: CheckpointIndex| store.restore(&checkpoint, random::number() as u32, wall_ms());
        let restoring = checkpoint.map(begin).transpose();
        let restoring = restoring.map_err(|store::Unsuitable(what)| io::Error::other(what))?;
        store.set_split_bytes(config.flash_split_bytes as usize);
        store.set_expired_key_lag(config.expired_key_lag_ms);
        store.set_scrub_interval(config.scrub_interval_ms);
        cap_clients(&store, config);
        store.limit_flash_data(flash_data(config));
        if let Some(flash) = &flash {
            store.set_force_demote(config.debug_tier_mode == TierMode::Cold);
            store.set_blocking(Arc::clone(&flash.files) as Arc<dyn flash::io::Blocking>);
        }
        Ok(Shard { store, flash, driver: OnceLock::new(), restoring: Mutex::new(restoring) })
    }

    /// What the entries of the checkpoint are added to.
    pub fn take_restoring(&self) -> Option<Restoring> {
        self.restoring.lock().take()
    }

    /// The name of the log files, and their id. `None` without flash.
    pub fn log(&self) -> Option<(&str, [u8; 16])> {
        self.flash.as_ref().map(|flash| (&*flash.name, flash.files.log_id()))
    }

    /// Makes durable what is on flash.
    pub fn sync(&self) -> Result<(), String> {
        self.flash.as_ref().map_or(Ok(()), |flash| flash.files.sync().map_err(|error| error.to_string()))
    }

    /// Sets whether the values on flash survive a restart, so that nobody empties the log files.
    pub fn set_kept(&self, is_kept: bool) -> Result<(), String> {
        self.flash.as_ref().map_or(Ok(()), |flash| flash.files.set_kept(is_kept).map_err(|error| error.to_string()))
    }

    /// Gives flash the size that the configuration says, which may have changed since the files were made. If that cannot be, the files stay as
    /// they are: what is in them is served.
    pub fn fit_flash(&self, config: &Config) {
        let Some(flash) = &self.flash else { return };
        let kept = resize::kept_size(config, self.store.flash_bytes());
        if let Some(bytes) = kept {
            tracing::warn!(
                "the flash log keeps {}, more than the usual {}: a flash-limit makes it smaller",
                human(bytes),
                human(config.flash_bytes)
            );
        }
        match resize::set_flash_size(&self.store, &flash.files, kept.unwrap_or(config.flash_bytes)) {
            Ok(()) => {}
            Err(FlashSizeError::Files(error)) => {
                tracing::warn!(
                    "the flash files keep their old size until the node is started with more room on their file system: {error}"
                );
            }
            Err(FlashSizeError::Store(error)) => {
                tracing::warn!("the flash log keeps its size until a limit is set that its values fit in: {error}");
            }
        }
    }

    /// The threads that read and write flash if io_uring is not allowed. They start only when a lane is opened on
    /// them.
    pub fn thread_pool(&self, workers: usize) -> Option<Arc<ThreadPool>> {
        self.flash.as_ref().map(|_| ThreadPool::new((workers * 4).clamp(4, 32)))
    }

    /// Opens a worker's side of the store. Call this on the worker's thread: an io_uring belongs to the thread that
    /// made it.
    pub fn open_lane(&self, worker: usize, pool: Option<&Arc<ThreadPool>>) -> io::Result<Lane> {
        let driver = match self.flash.as_ref().zip(pool) {
            Some((flash, pool)) => Some(self.open_driver(flash, pool)?),
            None => None,
        };
        Ok(Lane::new(Arc::clone(&self.store), driver, worker))
    }

    /// Opens a worker's driver, and records its kind.
    fn open_driver(&self, flash: &Flash, pool: &Arc<ThreadPool>) -> io::Result<Box<dyn flash::io::Driver>> {
        let noted = |which, name| {
            let driver = flash::open_driver(&flash.files, which, pool)?;
            // The first worker's kind holds for all workers.
            let _ = self.driver.set(name);
            Ok(driver)
        };
        flash::choose_driver(flash.io, || noted(FlashIo::Uring, "io_uring"), || noted(FlashIo::Threads, "threads"))
    }

    /// `io_uring` or `threads`; `None` without flash.
    pub fn driver(&self) -> Option<&'static str> {
        self.driver.get().copied()
    }

    pub fn flash_layout(&self) -> Option<&FlashConfig> {
        self.flash.as_ref().map(|flash| &flash.layout)
    }

    /// The bytes that the shard takes on its devices.
    pub fn device_bytes(&self) -> u64 {
        let files = self.flash.iter().flat_map(|flash| flash.files.describe());
        files.map(|info| DATA_OFFSET + info.data_bytes).sum()
    }

    /// Subscribes to changes of the configuration, for the settings that the store keeps.
    pub fn subscribe(self: &Arc<Self>, config: &ConfigStore) {
        let shard = Arc::downgrade(self);
        config.subscribe(move |draft| {
            if let Some(shard) = shard.upgrade() {
                shard.obey(&draft.before, &draft.now);
            }
        });
    }

    fn obey(&self, before: &Config, now: &Config) {
        let store = &self.store;
        if before.ram_limit_bytes != now.ram_limit_bytes {
            store.set_ram_limit(now.ram_limit_bytes);
        }
        cap_clients(store, now);
        store.limit_flash_data(flash_data(now));
        if before.maxmemory_policy != now.maxmemory_policy && !store.follows() {
            store.set_policy(now.maxmemory_policy);
        }
        if before.expired_key_lag_ms != now.expired_key_lag_ms {
            store.set_expired_key_lag(now.expired_key_lag_ms);
        }
        if before.scrub_interval_ms != now.scrub_interval_ms {
            store.set_scrub_interval(now.scrub_interval_ms);
        }
        if before.flash_split_bytes != now.flash_split_bytes {
            store.set_split_bytes(now.flash_split_bytes as usize);
        }
        if before.flash_compression != now.flash_compression {
            store.set_codec(now.flash_compression);
        }
        if before.debug_tier_mode != now.debug_tier_mode {
            store.set_force_demote(now.debug_tier_mode == TierMode::Cold);
        }
    }

    /// Applies the flash size of a changed configuration. An error changes nothing.
    pub fn resize(&self, before: &Config, now: &Config) -> Result<(), String> {
        resize::apply(&self.store, self.flash.as_ref().map(|flash| &*flash.files), before, now)
    }

    /// Gives back flash space that the store no longer uses. Call this regularly.
    pub fn finish_resize(&self) {
        if let Some(flash) = &self.flash {
            resize::finish_resize(&self.store, &flash.files);
        }
    }

    /// Removes the files and directories that its opening has made, because the start is refused.
    pub fn unmake(&self) {
        if let Some(flash) = &self.flash {
            flash.files.unmake();
        }
    }

    /// Deletes the log files, because the database is deleted.
    pub fn delete_files(&self) -> Result<(), String> {
        match &self.flash {
            Some(flash) => flash.files.delete().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

/// What live values may take of flash.
fn flash_data(config: &Config) -> u64 {
    if config.memory_limit_bytes == 0 { u64::MAX } else { config.memory_limit_bytes }
}

fn cap_clients(store: &Store, config: &Config) {
    store.cap_lent(match config.maxmemory_clients_bytes {
        0 => usize::MAX,
        bytes => bytes as usize,
    });
}

fn files_sum(config: &Config) -> String {
    let (memory, ram) = (config.memory_limit_bytes, config.ram_limit_bytes);
    base::sizing::files_sum(memory, ram, config.redis_files.appendonly, config.flash_limit_given_bytes)
}

fn open_flash(log_name: &str, config: &Config) -> io::Result<Option<Flash>> {
    if config.flash_paths.is_empty() {
        return Ok(None);
    }
    let layout = FlashConfig::divide(
        config.flash_bytes,
        config.flash_segment_bytes,
        config.flash_paths.len() as u32,
        DATA_OFFSET,
        config.flash_compression,
    );
    let opened = FlashFiles::open(&config.flash_paths, log_name, layout.bytes_per_path());
    let files = opened.map_err(|error| match error {
        OpenError::NoSpace { .. } => io::Error::other(format!("{error} (all files: {})", files_sum(config))),
        error => io::Error::other(error.to_string()),
    })?;
    Ok(Some(Flash { files: Arc::new(files), name: log_name.to_owned(), layout, io: config.flash_io }))
}

/// Opens log files as they are.
fn reopen_flash(values: &Values, checkpoint: &mut CheckpointIndex, config: &Config) -> io::Result<Flash> {
    if config.flash_paths.is_empty() {
        return Err(io::Error::other("the dataset has values on flash: set the flash-path that it had"));
    }
    let opened = FlashFiles::reopen(&config.flash_paths, &values.log_name, values.log_id);
    let files = opened.map_err(|error| match error {
        OpenError::InUse { .. } => io::Error::other(error.to_string()),
        error => io::Error::other(format!("the dataset's values on flash are missing: {error}")),
    })?;
    checkpoint.fit(files.data_bytes());
    let layout = checkpoint.layout(config.flash_compression);
    Ok(Flash { files: Arc::new(files), name: values.log_name.clone(), layout, io: config.flash_io })
}
