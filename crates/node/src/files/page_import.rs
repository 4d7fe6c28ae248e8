//! Owns the thread that takes in the pages of a primary's flash while the rest of the dataset is read. Never knows what pages contain.

use crate::database::Database;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use store::Refusal;

/// The most pieces that wait for the thread, each of at most 256 KiB.
const WAITING_MAX: usize = 4;

/// What a dataset has besides keys.
pub enum Own {
    Pages(Vec<u8>),
    Dictionary(Vec<u8>),
}

pub struct FileImport {
    /// `None`: it ends.
    waiting: Option<SyncSender<Own>>,
    /// Returns how many keys it has taken.
    thread: Option<JoinHandle<Result<u64, Refusal>>>,
    is_given_up: Arc<AtomicBool>,
}

impl FileImport {
    pub fn begin(database: &Database) -> Result<FileImport, String> {
        let store = &database.shard.store;
        if !store.exchanges_pages() {
            return Err("the dataset has pages of the primary's flash, which this database cannot import".to_owned());
        }
        let (mut page_import, database) = (store.page_import(), database.me.clone());
        let (waiting, shipments) = sync_channel(WAITING_MAX);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let gives_up = Arc::clone(&is_given_up);
        let take = move || {
            let is_closing = || database.upgrade().is_none_or(|database| database.hub.is_closing.load(Relaxed));
            let mut goes_on = || !gives_up.load(Relaxed) && !is_closing();
            let mut keys = 0;
            for own in shipments {
                match own {
                    Own::Pages(bytes) => keys += page_import.take(&bytes, &mut goes_on)?,
                    Own::Dictionary(bytes) => page_import.dictionary(&bytes)?,
                }
            }
            page_import.finish(&mut goes_on)?;
            Ok(keys)
        };
        let thread = std::thread::Builder::new().name("load-pages".into()).spawn(take);
        let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        Ok(FileImport { waiting: Some(waiting), thread: Some(thread), is_given_up })
    }

    /// Gives a piece to the thread. False: the thread has ended, and [`FileImport::end`] says why.
    pub fn add(&self, own: Own) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.send(own).is_ok())
    }

    /// Waits until all is in the store. Returns the number of keys.
    pub fn end(mut self) -> Result<u64, Refusal> {
        self.join().unwrap_or(Ok(0))
    }

    fn join(&mut self) -> Option<Result<u64, Refusal>> {
        self.waiting = None;
        let bug = || Refusal::Unfit("a bug: the thread that imports them panicked".to_owned());
        self.thread.take().map(|thread| thread.join().unwrap_or_else(|_| Err(bug())))
    }
}

/// Stops the thread and waits for its end, so that nothing is written after the import was given up.
impl Drop for FileImport {
    fn drop(&mut self) {
        self.is_given_up.store(true, Relaxed);
        self.join();
    }
}
