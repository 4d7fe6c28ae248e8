//! Owns the index of a checkpoint: what its table says of the flash files, and bringing its entries back. Never knows what an entry means.
//!
//! ```text
//! | the flash files' log id, 16 | bytes u16 | their name | the store's checkpoint, see `store::checkpoint` |
//! ```

use super::find_file;
use crate::database::Database;
use crate::files::about;
use crate::shard::{Shard, Values};
use base::clock::wall_ms;
use journal::index::{Index, IndexWriter, Rows};
use journal::manifest::Manifest;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use store::{CheckpointIndex, Restoring};

/// A thread gets so many bytes of entries at once. A checkpoint that was written beside many writers has chunks of single entries.
const PORTION_BYTES: u64 = 64 << 10;
/// Portions that wait for a thread.
const PORTIONS_AHEAD: usize = 4;
const THREADS_MAX: usize = 8;

/// An index whose table was read.
pub struct Found {
    path: PathBuf,
    index: Index,
    pub values: Values,
}

/// Reads the table of the checkpoint's index. `None`: the checkpoint has no index, because the database had no flash.
pub fn open(folder: &Path, manifest: &Manifest) -> Result<Option<Found>, String> {
    let Some(file) = &manifest.index else { return Ok(None) };
    let path = find_file(folder, file)?;
    let index = Index::open(&path).map_err(|error| about(&path, error))?;
    let values = decode(&index.table).ok_or_else(|| about(&path, "the index is damaged: its table is invalid"))?;
    Ok(Some(Found { path, index, values }))
}

/// Writes the table. Returns the file's size.
pub fn finish(writer: IndexWriter, shard: &Shard, checkpoint: &CheckpointIndex) -> io::Result<u64> {
    let (name, log_id) = shard.log().expect("only a database with flash has an index");
    let mut table = log_id.to_vec();
    table.extend_from_slice(&(name.len() as u16).to_le_bytes());
    table.extend_from_slice(name.as_bytes());
    table.extend_from_slice(&checkpoint.encode());
    writer.finish(&table)
}

pub fn decode(table: &[u8]) -> Option<Values> {
    let (log_id, rest) = table.split_first_chunk::<16>()?;
    let (bytes, rest) = rest.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*bytes).into())?;
    let log_name = String::from_utf8(name.to_vec()).ok()?;
    Some(Values { log_name, log_id: *log_id, checkpoint: CheckpointIndex::decode(rest)? })
}

/// Adds all entries to the index in RAM. `holds`: an older checkpoint still names segments in which no entry is any more. Returns how many
/// entries there were, and the cut up to which segments are freed when the older checkpoint goes.
pub fn load(database: &Database, found: Found, holds: bool) -> Result<(u64, Option<u64>), String> {
    let Found { path, mut index, .. } = found;
    let restoring = database.shard.take_restoring().expect("the shard was opened with the index's values");
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    add_all(database, &mut index, &restoring, threads).map_err(|error| about(&path, error))?;
    let entries = restoring.entries();
    let cut = match holds {
        true => Some(restoring.finish_holding()),
        false => {
            restoring.finish();
            None
        }
    };
    Ok((entries, cut))
}

/// Entries for one thread.
#[derive(Default)]
struct Portion {
    parts: Vec<(u16, u16, Rows)>,
    bytes: u64,
}

/// Each thread has its own stripes, so that they do not wait for each other.
fn add_all(database: &Database, index: &mut Index, restoring: &Restoring, threads: usize) -> io::Result<()> {
    let (loaded, now_ms) = (&database.files.loaded_bytes, wall_ms());
    std::thread::scope(|scope| {
        let (mut senders, mut adding) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (sender, portions) = sync_channel::<Portion>(PORTIONS_AHEAD);
            senders.push(sender);
            adding.push(scope.spawn(move || {
                let mut entries = restoring.adding();
                portions.iter().flat_map(|portion| portion.parts).try_for_each(|(stripe, table_id, rows)| {
                    let keys = match &rows {
                        Rows::Pairs(pairs) => entries.add(stripe, table_id, pairs).map(|()| pairs.len() as u64)?,
                        Rows::Row(row) => restoring.add_parts(stripe, table_id, row, now_ms).map(|()| 1)?,
                    };
                    loaded.fetch_add(rows.bytes(), Relaxed);
                    database.files.keys_loaded.fetch_add(keys, Relaxed);
                    Ok::<(), store::Unsuitable>(())
                })
            }));
        }
        let mut portions: Vec<Portion> = (0..threads).map(|_| Portion::default()).collect();
        // A thread that has ended tells why below.
        let send = |thread: usize, portion: &mut Portion| _ = senders[thread].send(std::mem::take(portion));
        let read = index.read::<io::Error>(&mut |stripe, table_id, rows| {
            if database.hub.is_closing.load(Relaxed) {
                return Err(io::Error::other("the database is being closed"));
            }
            let thread = usize::from(stripe) % threads;
            let portion = &mut portions[thread];
            portion.bytes += rows.bytes();
            portion.parts.push((stripe, table_id, rows));
            if portion.bytes >= PORTION_BYTES {
                send(thread, portion);
            }
            Ok(())
        });
        portions.iter_mut().enumerate().for_each(|(thread, portion)| send(thread, portion));
        drop(senders);
        let added = adding.into_iter().try_for_each(|thread| thread.join().expect("adding does not panic"));
        read?;
        added.map_err(|store::Unsuitable(what)| {
            io::Error::other(format!("the index does not belong to this dataset: {what}"))
        })
    })
}
