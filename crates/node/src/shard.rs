//! Owns a dataset's copy: the store, and the files and drivers of its flash. Never knows a client, a user or a limit of others.

use crate::resize;
use config::{Compression, Config, ConfigStore, FlashIo, Policy, TierMode};
use engine::random;
use flash::{DATA_OFFSET, FlashFiles, ThreadPool};
use std::io;
use std::sync::{Arc, OnceLock};
use store::{Codec, FlashConfig, Lane, LimitOf, Store, StoreConfig};

/// One copy of a dataset. A database has one.
pub struct Shard {
    pub store: Arc<Store>,
    /// None: everything stays in RAM.
    flash: Option<Flash>,
    /// How the workers reach flash, once the first of them does: `io_uring` or `threads`.
    driver: OnceLock<&'static str>,
}

/// The log files and how the store divides them.
struct Flash {
    files: Arc<FlashFiles>,
    layout: FlashConfig,
    io: flash::FlashIo,
}

impl Shard {
    /// Makes an empty store, and its log files, which have `log_name` in each flash path.
    pub fn open(log_name: &str, config: &Config, workers: usize, huge_pages: bool) -> io::Result<Shard> {
        let flash = open_flash(log_name, config)?;
        let store = Store::new(&StoreConfig {
            workers,
            databases: config.databases,
            ram_limit: config.ram_limit_bytes,
            limit_of: LimitOf::Process,
            policy: policy(config.maxmemory_policy),
            huge_pages,
            flash: flash.as_ref().map(|flash| flash.layout.clone()),
            // Cold keys are told apart by a hash whose secret nobody may know.
            secret: [random::number(), random::number()],
        });
        store.set_split_bytes(config.flash_split_bytes as usize);
        if let Some(flash) = &flash {
            store.set_all_cold(config.debug_tier_mode == TierMode::Cold);
            store.set_reader(Arc::clone(&flash.files) as Arc<dyn flash::io::Reader>);
        }
        Ok(Shard { store, flash, driver: OnceLock::new() })
    }

    /// Threads that read and write where io_uring is refused; they cost nothing until a lane is opened on them.
    pub fn thread_pool(&self, workers: usize) -> Option<Arc<ThreadPool>> {
        self.flash.as_ref().map(|_| ThreadPool::new((workers * 4).clamp(4, 32)))
    }

    /// A worker's side of the store. To be called on the worker's thread: a ring belongs to the thread that made it.
    pub fn open_lane(&self, worker: usize, pool: Option<&Arc<ThreadPool>>) -> io::Result<Lane> {
        let driver = match self.flash.as_ref().zip(pool) {
            Some((flash, pool)) => Some(self.open_driver(flash, pool)?),
            None => None,
        };
        Ok(Lane::new(Arc::clone(&self.store), driver, worker))
    }

    /// A worker's driver, and a note of which kind it became.
    fn open_driver(&self, flash: &Flash, pool: &Arc<ThreadPool>) -> io::Result<Box<dyn flash::io::Driver>> {
        let noted = |which, name| {
            let driver = flash::open_driver(&flash.files, which, pool)?;
            // The first worker's choice is every worker's.
            let _ = self.driver.set(name);
            Ok(driver)
        };
        flash::choose_driver(
            flash.io,
            || noted(flash::FlashIo::Uring, "io_uring"),
            || noted(flash::FlashIo::Threads, "threads"),
        )
    }

    /// `io_uring` or `threads`; None without flash.
    pub fn driver(&self) -> Option<&'static str> {
        self.driver.get().copied()
    }

    pub fn flash_layout(&self) -> Option<&FlashConfig> {
        self.flash.as_ref().map(|flash| &flash.layout)
    }

    /// What it takes on the devices.
    pub fn device_bytes(&self) -> u64 {
        let files = self.flash.iter().flat_map(|flash| flash.files.describe());
        files.map(|info| DATA_OFFSET + info.data_bytes).sum()
    }

    /// The settings that the store keeps obey changes of the configuration from now on.
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
        if before.maxmemory_policy != now.maxmemory_policy {
            store.set_policy(policy(now.maxmemory_policy));
        }
        if before.flash_split_bytes != now.flash_split_bytes {
            store.set_split_bytes(now.flash_split_bytes as usize);
        }
        if before.flash_compression != now.flash_compression {
            store.set_codec(codec(now.flash_compression));
        }
        if before.debug_tier_mode != now.debug_tier_mode {
            store.set_all_cold(now.debug_tier_mode == TierMode::Cold);
        }
    }

    /// Flash gets the size of a changed configuration. An error changes nothing.
    pub fn resize(&self, before: &Config, now: &Config) -> Result<(), String> {
        resize::apply(&self.store, self.flash.as_ref().map(|flash| &*flash.files), before, now)
    }

    /// Gives back the space of flash that the store does not use any more. To be called every now and then.
    pub fn settle(&self) {
        if let Some(flash) = &self.flash {
            resize::settle(&self.store, &flash.files);
        }
    }

    /// Deletes the log files: the database is deleted.
    pub fn delete_files(&self) -> Result<(), String> {
        match &self.flash {
            Some(flash) => flash.files.delete().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

fn open_flash(log_name: &str, config: &Config) -> io::Result<Option<Flash>> {
    if config.flash_paths.is_empty() {
        return Ok(None);
    }
    let layout = FlashConfig::divide(
        config.flash_limit_bytes,
        config.flash_segment_bytes,
        config.flash_paths.len() as u32,
        DATA_OFFSET,
        codec(config.flash_compression),
    );
    let files = FlashFiles::open(&config.flash_paths, log_name, layout.bytes_per_path())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let io = match config.flash_io {
        FlashIo::Auto => flash::FlashIo::Auto,
        FlashIo::Uring => flash::FlashIo::Uring,
        FlashIo::Threads => flash::FlashIo::Threads,
    };
    Ok(Some(Flash { files: Arc::new(files), layout, io }))
}

fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::None,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    }
}

fn policy(policy: Policy) -> store::Policy {
    match policy {
        Policy::NoEviction => store::Policy::NoEviction,
        Policy::AllkeysLru => store::Policy::AllKeysLru,
        Policy::AllkeysLfu => store::Policy::AllKeysLfu,
        Policy::AllkeysRandom => store::Policy::AllKeysRandom,
        Policy::VolatileLru => store::Policy::VolatileLru,
        Policy::VolatileLfu => store::Policy::VolatileLfu,
        Policy::VolatileRandom => store::Policy::VolatileRandom,
        Policy::VolatileTtl => store::Policy::VolatileTtl,
    }
}
