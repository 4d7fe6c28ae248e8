//! Owns a dataset's copy: the store, and the files and drivers of its flash. Never knows a client, a user or a limit of others.

use crate::database::{DEFAULT_NAME, Database};
use crate::notify;
use config::{Compression, Config, FlashIo, Policy, TierMode};
use flash::{DATA_OFFSET, FlashFiles, ThreadPool};
use std::io;
use std::sync::Arc;
use store::{Codec, FlashConfig, Store};

/// The log files and how the store divides them.
pub struct Flash {
    pub files: Arc<FlashFiles>,
    pub layout: FlashConfig,
    pub io: flash::FlashIo,
}

impl Flash {
    /// What it takes on the devices.
    pub fn bytes(&self) -> u64 {
        self.files.describe().map(|info| DATA_OFFSET + info.data_bytes).sum()
    }
}

/// The name of the log in each flash path. The default database's says its port: nodes may share a path.
fn log_name(name: &str, config: &Config) -> String {
    match if config.port == 0 { config.tls.port } else { config.port } {
        _ if name != DEFAULT_NAME => format!("flintkv-{name}.log"),
        0 => "flintkv.log".to_owned(),
        port => format!("flintkv-{port}.log"),
    }
}

pub fn open_flash(name: &str, config: &Config) -> io::Result<Option<Flash>> {
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
    let files = FlashFiles::open(&config.flash_paths, &log_name(name, config), layout.bytes_per_path())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let io = match config.flash_io {
        FlashIo::Auto => flash::FlashIo::Auto,
        FlashIo::Uring => flash::FlashIo::Uring,
        FlashIo::Threads => flash::FlashIo::Threads,
    };
    Ok(Some(Flash { files: Arc::new(files), layout, io }))
}

pub fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::None,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    }
}

pub fn policy(policy: Policy) -> store::Policy {
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

/// A worker's driver, and a note of which kind it became.
pub fn open_driver(
    database: &Database,
    files: &Arc<FlashFiles>,
    io: flash::FlashIo,
    pool: &Arc<ThreadPool>,
) -> io::Result<Box<dyn store::io::Driver>> {
    let noted = |which, name| {
        let driver = flash::open_driver(files, which, pool)?;
        // The first worker's choice is every worker's.
        let _ = database.flash_driver.set(name);
        Ok(driver)
    };
    flash::choose_driver(io, || noted(flash::FlashIo::Uring, "io_uring"), || noted(flash::FlashIo::Threads, "threads"))
}

/// CONFIG SET of what the store keeps itself takes effect at once.
pub fn apply_to_store(store: &Store, before: &Config, now: &Config) {
    if before.ram_limit_bytes != now.ram_limit_bytes {
        store.set_ram_limit(now.ram_limit_bytes);
    }
    if before.maxmemory_policy != now.maxmemory_policy {
        store.set_policy(policy(now.maxmemory_policy));
    }
    if before.events != now.events {
        store.tell_events(notify::classes(&now.events));
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
