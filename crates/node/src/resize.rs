//! Owns the change of a database's flash while it runs: in which order its files and its store get their size.
//! Never moves a value: the store's maintenance does, in the workers.

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

/// Gives flash so many bytes, all paths together. More is there when this returns. Less binds new data at once; what lies
/// beyond it is moved in the background ([`Store::resizing`]), then [`settle`] gives the space back. An error changes nothing.
pub fn set_flash_size(store: &Store, files: &FlashFiles, bytes: u64) -> Result<(), FlashSizeError> {
    // Whoever cuts off waits until the store has grown into what it finds.
    let mut sizing = files.sizing();
    let needed = store.flash_bytes_for(bytes).map_err(FlashSizeError::Store)?;
    if needed > files.data_bytes() {
        sizing.set(needed).map_err(FlashSizeError::Files)?;
    }
    store.resize_flash(bytes).map_err(FlashSizeError::Store)
}

/// The part of a changed configuration that is flash's size.
pub fn apply(store: &Store, files: Option<&FlashFiles>, before: &Config, now: &Config) -> Result<(), String> {
    match files.filter(|_| before.flash_limit_bytes != now.flash_limit_bytes) {
        Some(files) => set_flash_size(store, files, now.flash_limit_bytes).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// Cuts off what a store that has shrunk does not use any more, in a thread of its own: a file system may take its time.
/// To be called every now and then.
pub fn settle(store: &Arc<Store>, files: &Arc<FlashFiles>) {
    if store.flash_bytes_needed() >= files.data_bytes() {
        return;
    }
    let (store, files) = (Arc::clone(store), Arc::clone(files));
    let cut_off = move || {
        let mut sizing = files.sizing();
        let (needed, before) = (store.flash_bytes_needed(), files.data_bytes());
        // It may have grown again meanwhile.
        if needed < before {
            match sizing.set(needed) {
                Ok(()) => tracing::info!("flash files are {} bytes shorter", before - needed),
                Err(error) => tracing::error!("the end of the flash files keeps its space until a restart: {error}"),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("flash-size".into()).spawn(cut_off) {
        tracing::warn!("no thread to shorten the flash files with, later again: {error}");
    }
}
