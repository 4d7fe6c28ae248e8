//! Owns changing the size of a database's flash at run time: in which order its files and its store are resized.
//! Never moves a value: the store's maintenance does this in the workers.

use base::size::human;
use config::Config;
use flash::{FlashFiles, OpenError};
use std::fmt;
use std::sync::Arc;
use store::{ResizeError, Store};

#[derive(Debug)]
pub enum FlashSizeError {
    Store(ResizeError),
    Files(OpenError),
}

impl fmt::Display for FlashSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashSizeError::Store(error) => error.fmt(f),
            FlashSizeError::Files(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FlashSizeError {}

/// Sets the size of flash to `bytes`, the sum over all paths. When growing, the space is usable when this returns.
/// When shrinking, new data goes below the new end at once. The data behind it is moved in the background
/// ([`Store::resizing`]), and then [`finish_resize`] gives the space back. An error changes nothing.
pub fn set_flash_size(store: &Store, files: &FlashFiles, bytes: u64) -> Result<(), FlashSizeError> {
    // Hold this lock while the store grows, so that `settle` cannot cut the files in between.
    let mut sizing = files.sizing();
    let needed = store.flash_bytes_for(bytes).map_err(FlashSizeError::Store)?;
    if needed > files.data_bytes() {
        sizing.set(needed).map_err(FlashSizeError::Files)?;
    }
    store.resize_flash(bytes).map_err(FlashSizeError::Store)
}

/// The size for a log that is larger than usual. The usual size has been larger: what was stored then must not be refused or evicted because a
/// default has changed, so the log becomes smaller only if a limit is given. `None`: it is not larger.
pub fn kept_size(config: &Config, log_bytes: u64) -> Option<u64> {
    let has_usual_size = config.redis_files.appendonly && config.flash_limit_given_bytes == 0;
    let largest = base::sizing::log_bytes_max(config.memory_limit_bytes, config.ram_limit_bytes);
    (has_usual_size && log_bytes > config.flash_bytes).then(|| log_bytes.min(largest))
}

/// Applies the flash size of a changed configuration. A limit that is given counts even if it is the usual one.
pub fn apply(store: &Store, files: Option<&FlashFiles>, before: &Config, now: &Config) -> Result<(), String> {
    let sizes = |config: &Config| (config.flash_bytes, config.flash_limit_given_bytes);
    let kept = kept_size(before, store.flash_bytes()).and_then(|bytes| kept_size(now, bytes));
    match files.filter(|_| sizes(before) != sizes(now) || kept.is_some()) {
        Some(files) => set_flash_size(store, files, kept.unwrap_or(now.flash_bytes)).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// Cuts off the space that a smaller store no longer uses. Runs in its own thread, because a file system may be slow.
/// Call this regularly.
pub fn finish_resize(store: &Arc<Store>, files: &Arc<FlashFiles>) {
    if store.flash_bytes_needed() >= files.data_bytes() {
        return;
    }
    let (store, files) = (Arc::clone(store), Arc::clone(files));
    let cut_off = move || {
        let mut sizing = files.sizing();
        let (needed, before) = (store.flash_bytes_needed(), files.data_bytes());
        // The store may have grown again in the meantime.
        if needed < before {
            match sizing.set(needed) {
                Ok(()) => tracing::info!("shortened the flash files by {}", human(before - needed)),
                Err(error) => tracing::error!(
                    "cannot shorten the flash files; the unused end keeps its space until a restart: {error}"
                ),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("flash-size".into()).spawn(cut_off) {
        tracing::warn!("cannot start a thread that shortens the flash files, will retry: {error}");
    }
}
