//! Owns the dumps for replicas that need the whole dataset: one for all that wait when it begins. They are sent while they are written. Never knows a connection.

use crate::database::Database;
use crate::files::{FIELDS_VERSION, about, directory};
use base::clock::wall_ms;
use engine::replication::{Contents, Dump, Order};
use rdb::Options;
use std::cell::OnceCell;
use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A replica that gets no dump asks again each second. It gets the same answer for so long, because each attempt reads the whole dataset.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The newest version that every Redis loads since 7.0.
const REDIS_VERSION: u32 = 10;

impl Database {
    /// Makes a dump for a replica on another thread.
    pub(crate) fn order_dump(&self, order: Arc<Order>) {
        let Some(database) = self.me.upgrade() else {
            return order.finish(Err("the database is being closed".to_owned()));
        };
        {
            let mut waiting = self.replication.orders.0.lock();
            waiting.orders.push(order);
            if std::mem::replace(&mut waiting.is_served, true) {
                return;
            }
        }
        let serve = move || serve(&database);
        if let Err(error) = std::thread::Builder::new().name("sync".into()).spawn(serve) {
            let orders = std::mem::take(&mut *self.replication.orders.0.lock()).orders;
            orders.iter().for_each(|order| order.finish(Err(format!("no thread can be started: {error}"))));
        }
    }
}

fn serve(database: &Database) {
    loop {
        if database.replication.orders.are_waiting() {
            database.free_segments_for_dump();
        }
        // One dataset is saved or loaded at a time. Replicas that come meanwhile share the dump.
        let _busy = database.files.busy.lock();
        let orders = database.replication.orders.take();
        let Some(first) = orders.first() else { return };
        let (all, contents) = (&database.replication.orders, first.contents);
        let made = match all.failure(contents, RETRY_AFTER) {
            Some(why) => Err(why),
            None => make(database, contents, &orders).inspect_err(|why| all.has_failed(contents, why)),
        };
        // An order that has got a dump already learns of the failure from the dump.
        if let Err(why) = made {
            orders.iter().for_each(|order| order.finish(Err(why.clone())));
        }
    }
}

/// Gives the orders a dump as soon as it has its first bytes.
fn make(database: &Database, contents: Contents, orders: &[Arc<Order>]) -> Result<(), String> {
    let settings = &database.hub.config.snapshot().redis_files;
    let folder = directory(database.name(), settings);
    fs::create_dir_all(&folder).map_err(|error| about(&folder, error))?;
    let is_flint = contents != Contents::Redis;
    let path = folder.join(format!("replica-{}-{}.tmp", std::process::id(), wall_ms()));
    let options = Options {
        version: if is_flint { FIELDS_VERSION } else { REDIS_VERSION },
        // LZF would be half of a dump's time, and a FlintKV compresses by itself what it puts on flash.
        compresses: settings.rdbcompression && !is_flint,
        has_checksum: settings.rdbchecksum,
    };
    let begun: OnceCell<Arc<Dump>> = OnceCell::new();
    let (store, written_keys) = (&database.shard.store, &database.files.saved_keys);
    let keys: u64 = (0..store.databases()).map(|db| store.len(db)).sum();
    written_keys.store(0, Relaxed);
    let has = |mark, bytes: u64| {
        // An estimate: the keys to come are taken to be as large as those before.
        let expected = u128::from(bytes) * u128::from(keys) / u128::from(written_keys.load(Relaxed).max(1));
        if begun.get().is_none() {
            let dump = Arc::new(Dump::new(File::open(&path)?, mark));
            orders.iter().for_each(|order| order.finish(Ok(Arc::clone(&dump))));
            begun.get_or_init(|| dump);
        }
        begun.get().inspect(|dump| dump.has(bytes, u64::try_from(expected).unwrap_or(bytes)));
        Ok(())
    };
    let written = database.dump_for_replica(&path, options, contents, &has);
    let made = written.and_then(|mark| {
        let whole = fs::metadata(&path).and_then(|file| has(mark, file.len()));
        whole.map_err(|error| about(&path, error))
    });
    // It stays as long as it is open.
    let removed = fs::remove_file(&path).map_err(|error| about(&path, error));
    let made = made.and(removed);
    begun.get().inspect(|dump| dump.end(made.clone()));
    made
}
