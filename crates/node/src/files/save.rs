//! Owns writing the dataset to a dump: to a file beside the one of its name, which replaces that when it is complete and
//! on the device. Never knows where values are.

use super::about;
use super::cut::AtCut;
use super::find::OURS;
use crate::database::Database;
use crate::worker_pool::Computing;
use base::clock::wall_ms;
use engine::replication::Mark;
use journal::index::IndexWriter;
use rdb::{Options, Writer};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use store::{CheckpointIndex, CheckpointPart, DumpError, Dumper, Kind, PartReader, Value, Visited};
use value::Boxed;
use value::rdb::{Type, is_minus_zero, scored_listpack};
use value::walk::{Cursor, Element, walk_inline};
use value::zset::run;

/// The first version of the format in which fields of hashes expire.
pub const FIELDS_VERSION: u32 = 12;

/// A remark in the dump of a checkpoint: what reads the values on flash again if the index is lost.
pub const FLASH: &str = "flintkv-flash";
/// Another: the keys of large collections whose parts are on flash, see [`LargeKeys`].
pub const LARGE: &str = "flintkv-large";

const NO_ROOM: &str =
    "flash has no room for both new values and the snapshot: raise the memory limit, or save when fewer writes come";
/// A dump is given to the device in portions of this size, so that the kernel never has much to write at once.
const SYNCED_BYTES: u64 = 32 << 20;
/// A thread that is busy for longer keeps others from its processor for some milliseconds. So a checkpoint that nobody waits for rests after so long,
/// for as long as it was busy.
const BURST: Duration = Duration::from_micros(200);
const REST_MAX: Duration = Duration::from_millis(1);

/// Writes the dump. Returns its path.
pub fn save(database: &Database, timeout: Duration) -> Result<PathBuf, String> {
    let path = database.dump_file();
    let folder = path.parent().expect("a file is in a directory");
    fs::create_dir_all(folder).map_err(|error| about(folder, error))?;
    let settings = database.hub.config.snapshot().redis_files.clone();
    let options = Options {
        version: settings.rdb_version,
        compresses: settings.rdbcompression,
        has_checksum: settings.rdbchecksum,
    };
    let draft = folder.join(format!("temp-{}.rdb", std::process::id()));
    // With the place of the stream, so that a restart goes on with it. Then nothing has expired: the stream says what has.
    let has_stream = database.hub.dataset.journaling.stream.is_on();
    let on_flash = OnFlash::Written { now_ms: if has_stream { 0 } else { wall_ms() } };
    let applied = AtCut::new(database);
    let at_cut = || applied.mark().filter(|_| has_stream);
    let saved = write(database, &draft, options, on_flash, timeout, &at_cut).and_then(|_| {
        fs::rename(&draft, &path).map_err(|error| about(&path, error))?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| about(folder, error))
    });
    if saved.is_err() {
        // Best effort: it may not be there.
        let _ = fs::remove_file(&draft);
    }
    saved.map(|()| path)
}

/// What a dump does with the values on flash.
pub enum OnFlash<'w> {
    /// They are written too. What had expired by then is left out.
    Written { now_ms: u64 },
    /// Their pages are written as they are, for a replica that takes them. Nothing counts as expired.
    Sent,
    /// They stay where they are, and so do copies of values in RAM and parts of large collections. This gets what names their places.
    /// Nothing counts as expired.
    Stay(&'w mut IndexWriter),
}

/// What is to be known of values that stay on flash, and the number of the cut.
pub type Stayed = Option<(CheckpointIndex, u64)>;

/// What is known of the moment of a dump.
pub trait CutInfo {
    /// Where the stream for replicas is, if the dump must say so: a Redis that follows it begins in the stream's logical database.
    fn stream_mark(&self) -> Option<Mark> {
        None
    }

    /// Whether the file is to survive a crash.
    fn is_kept(&self) -> bool {
        true
    }

    /// So many bytes of the dump are in its file.
    fn written(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

impl CutInfo for Option<Mark> {
    fn stream_mark(&self) -> Option<Mark> {
        *self
    }
}

impl CutInfo for Mark {
    fn stream_mark(&self) -> Option<Mark> {
        Some(*self)
    }
}

/// Writes a snapshot of the dataset to a new file, and syncs it if it is kept. `at_cut` is called at the snapshot's cut, while every stripe is
/// locked.
pub fn write<C: CutInfo>(
    database: &Database,
    draft: &Path,
    options: Options,
    mut on_flash: OnFlash<'_>,
    timeout: Duration,
    at_cut: &dyn Fn() -> C,
) -> Result<(C, Stayed), String> {
    let _computing = Computing::begins();
    let create = |path: &Path| {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
        file.map_err(|error| about(path, error))
    };
    let (file, spill_path) = (create(draft)?, draft.with_extension("notes"));
    let synced = file.try_clone().map_err(|error| about(draft, error))?;
    let mut spill = create(&spill_path)?;
    // The file stays as long as it is open.
    fs::remove_file(&spill_path).map_err(|error| about(&spill_path, error))?;
    let written = Arc::new(AtomicU64::new(0));
    let told = |error| match error {
        DumpError::Read(error) => format!("a value cannot be read: {error}"),
        DumpError::Write(error) => about(draft, error),
        DumpError::NoRoom => NO_ROOM.to_owned(),
        DumpError::GivenUp => "the database is being closed".to_owned(),
    };
    let (deadline, is_closing) = (Instant::now() + timeout, &database.hub.is_closing);
    let (mut file, mut at) = (Some(file), None);
    let snapshot = loop {
        let begin = || {
            let cut = at.insert(at_cut());
            let file = Counted { file: file.take().expect("one cut succeeds"), written: Arc::clone(&written) };
            Dump::begin(database, Writer::new(file, options), cut.stream_mark()).map_err(DumpError::Write)
        };
        let store = &database.shard.store;
        let cut = match &on_flash {
            OnFlash::Written { now_ms } => store.cut(*now_ms, begin),
            OnFlash::Sent => store.cut_with_pages(begin),
            OnFlash::Stay(_) => store.cut_for_checkpoint(begin),
        };
        match cut {
            Some(snapshot) => break snapshot.map_err(told)?,
            None if is_closing.load(Relaxed) => return Err(told(DumpError::GivenUp)),
            None if Instant::now() > deadline => return Err("a script has held the dataset for too long".to_owned()),
            None => {}
        }
    };
    let synced = &synced;
    let mut large = LargeKeys::default();
    let (mut dump, stayed) = std::thread::scope(|scope| {
        let cut = at.as_ref().expect("the cut succeeded");
        let mut synced_bytes = 0;
        // The next portion is written while the device gets this one.
        let mut syncing: Option<ScopedJoinHandle<'_, io::Result<()>>> = None;
        let (is_checkpoint, mut rested) = (matches!(on_flash, OnFlash::Stay(_)), Instant::now());
        let mut pause = || {
            if is_closing.load(Relaxed) {
                return Err(DumpError::GivenUp);
            }
            let busy = rested.elapsed();
            if is_checkpoint && busy >= BURST && database.is_at_leisure() {
                std::thread::sleep(busy.min(REST_MAX));
                rested = Instant::now();
            }
            cut.written(written.load(Relaxed))?;
            if cut.is_kept() && written.load(Relaxed) - synced_bytes >= SYNCED_BYTES {
                synced_bytes = written.load(Relaxed);
                wait_for(syncing.take())?;
                let sync = std::thread::Builder::new().name("dump-sync".into());
                syncing = Some(sync.spawn_scoped(scope, move || synced.sync_data())?);
            }
            Ok(())
        };
        let gathered = match &mut on_flash {
            OnFlash::Written { .. } | OnFlash::Sent => snapshot.run(&mut spill, &mut pause).map(|dump| (dump, None)),
            OnFlash::Stay(index) => {
                let mut put = |stripe, table_id, kept: CheckpointPart<'_>| match kept {
                    CheckpointPart::Entries(pairs) => index.put(stripe, table_id, pairs),
                    CheckpointPart::Parts(saved) => {
                        large.add(table_id, store::key_in_parts(saved).expect("it was just saved"));
                        index.put_row(stripe, table_id, saved)
                    }
                };
                let ran = snapshot.run_places(&mut put, &mut pause);
                ran.map(|(dump, checkpoint, cut)| (dump, Some((checkpoint, cut))))
            }
        };
        // The device tells of an error once.
        let last = wait_for(syncing).map_err(DumpError::Write);
        gathered.and_then(|gathered| last.map(|()| gathered))
    })
    .map_err(told)?;
    if dump.lossy > 0 {
        return Err(format!(
            "{} hashes have fields that expire, which version {} of the format cannot hold: set rdb-version 12",
            dump.lossy, options.version
        ));
    }
    if let Some((checkpoint, _)) = &stayed {
        let noted = dump.file.aux(FLASH, &checkpoint.essentials()).and_then(|()| dump.file.aux(LARGE, &large.0));
        noted.map_err(|error| about(draft, error))?;
    }
    let file = dump.file.finish().map_err(|error| about(draft, error))?.file;
    let cut = at.expect("the cut succeeded");
    if cut.is_kept() {
        file.sync_all().map_err(|error| about(draft, error))?;
    }
    Ok((cut, stayed))
}

/// Names of keys, each after the number of its database in the index.
///
/// ```text
/// each: | table_id u16 | bytes u32 | key |
/// ```
#[derive(Default)]
pub struct LargeKeys(pub Vec<u8>);

impl LargeKeys {
    fn add(&mut self, table_id: u16, key: &[u8]) {
        self.0.extend_from_slice(&table_id.to_le_bytes());
        self.0.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.0.extend_from_slice(key);
    }

    /// All keys. `None`: the bytes make no sense.
    pub fn read(mut bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
        let mut keys = Vec::new();
        while !bytes.is_empty() {
            let (table_id, rest) = bytes.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            keys.push((u16::from_le_bytes(*table_id), key));
            bytes = rest;
        }
        Some(keys)
    }
}

fn wait_for(syncing: Option<ScopedJoinHandle<'_, io::Result<()>>>) -> io::Result<()> {
    syncing.map_or(Ok(()), |syncing| syncing.join().expect("a sync does not panic"))
}

/// Counts the bytes that are written.
struct Counted {
    file: File,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written.fetch_add(count as u64, Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Keys on their way to a dump.
pub struct Dump<W> {
    pub file: Writer<W>,
    /// The logical database of the last key.
    db: Option<usize>,
    /// Hashes whose expiries the format cannot hold. From the first on nothing is written, and they are only counted.
    lossy: u64,
    keys: Arc<AtomicU64>,
}

impl Dump<Counted> {
    fn begin(database: &Database, mut file: Writer<Counted>, mark: Option<Mark>) -> io::Result<Self> {
        file.aux("redis-ver", commands::host::REDIS_VERSION.as_bytes())?;
        file.aux(OURS, env!("CARGO_PKG_VERSION").as_bytes())?;
        file.aux("redis-bits", usize::BITS.to_string().as_bytes())?;
        file.aux("ctime", (wall_ms() / 1000).to_string().as_bytes())?;
        if let Some(Mark { id, offset, db, .. }) = mark {
            file.aux("repl-stream-db", db.unwrap_or(0).to_string().as_bytes())?;
            file.aux("repl-id", id.to_string().as_bytes())?;
            file.aux("repl-offset", offset.to_string().as_bytes())?;
        }
        file.aux("aof-base", b"0")?;
        for library in database.hub.scripts.libraries.read().all() {
            file.function(&library.code)?;
        }
        Ok(Dump { keys: Arc::clone(&database.files.saved_keys), ..Dump::of(file) })
    }
}

impl<W: Write> Dump<W> {
    pub fn of(file: Writer<W>) -> Dump<W> {
        Dump { file, db: None, lossy: 0, keys: Arc::default() }
    }

    /// Writes a key. `parts` reads the parts of its value that are on flash only.
    pub fn put(
        &mut self,
        key: &Visited<'_>,
        value: Value<'_>,
        parts: Option<&mut PartReader<'_>>,
    ) -> Result<(), DumpError> {
        let first_ms = match value {
            Value::Boxed(Boxed::Hash(table)) => table.next_deadline(),
            _ => None,
        };
        self.lossy += u64::from(first_ms.is_some() && self.file.options().version < FIELDS_VERSION);
        if self.lossy > 0 {
            return Ok(());
        }
        if self.db != Some(key.db) {
            self.db = Some(key.db);
            self.file.select(key.db as u64);
        }
        self.keys.fetch_add(1, Relaxed);
        match value {
            Value::Inline(kind, bytes) => self.inline(key, kind, bytes).map_err(DumpError::Write),
            Value::Boxed(value) => self.boxed(key, value, first_ms, parts),
        }
    }
}

impl<W: Write + Send + 'static> Dumper for Dump<W> {
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        self.put(key, value, Some(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn dictionary(&mut self, dictionary: &[u8]) -> io::Result<()> {
        self.file.dictionary(dictionary)
    }

    fn pages(&mut self, shipment: &[u8], keys: u64) -> io::Result<()> {
        self.keys.fetch_add(keys, Relaxed);
        self.file.pages(shipment)
    }
}

impl<W: Write> Dump<W> {
    fn inline(&mut self, key: &Visited<'_>, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        // Any other type would lose it.
        if kind == Kind::ZSet && run::iter(bytes).any(|(score, _)| is_minus_zero(score)) {
            self.file.key(key.name, key.expiry, Type::ZSetListpack)?;
            return self.file.string(&scored_listpack(run::iter(bytes).map(|(score, member)| (member, score))));
        }
        self.file.key(key.name, key.expiry, type_of(kind))?;
        if kind != Kind::String {
            let mut count = 0;
            walk_inline(kind, bytes, &mut |_| count += 1);
            self.file.len(count);
        }
        let mut written = Ok(());
        walk_inline(kind, bytes, &mut |element| {
            if written.is_ok() {
                written = put(&mut self.file, element, None);
            }
        });
        written
    }

    /// Writes a value a part at a time.
    fn boxed(
        &mut self,
        key: &Visited<'_>,
        value: &Boxed,
        first_ms: Option<u64>,
        mut parts: Option<&mut PartReader<'_>>,
    ) -> Result<(), DumpError> {
        let count = match value {
            Boxed::Hash(table) => table.len(),
            Boxed::List(list) => list.len(),
            Boxed::Set(table) => table.len(),
            Boxed::ZSet(tree) => tree.len(),
            Boxed::Stream(stream) => stream.chunks(),
        };
        let file = &mut self.file;
        match (value, first_ms) {
            (Boxed::Stream(_), _) => {
                let kind = file.stream_type();
                file.key(key.name, key.expiry, kind)?;
                file.len(count as u64);
            }
            (_, Some(first_ms)) => file.hash_with_expiries(key.name, key.expiry, first_ms, count as u64)?,
            (_, None) => {
                file.key(key.name, key.expiry, type_of(value.kind()))?;
                file.len(count as u64);
            }
        }
        let (mut cursor, mut left) = (Cursor::default(), count);
        while let Some(stretch) = value.stretch(cursor) {
            let read = |part| parts.as_mut().ok_or_else(damaged)?.read(value, part);
            let bytes = stretch.absent.map(read).transpose()?;
            if let Boxed::Stream(stream) = value {
                let Cursor::Elements(number) = cursor else { break };
                let chunk = stream.raw_chunk(number, bytes.as_deref()).map_err(|_| damaged())?;
                if let Some((checkpoint, list)) = chunk {
                    left = left.checked_sub(1).ok_or_else(damaged)?;
                    file.stream_chunk(checkpoint, list)?;
                }
            } else {
                let mut written = Ok(());
                let walked = value.walk(cursor, bytes.as_deref(), &mut |element| {
                    left = left.wrapping_sub(1);
                    if written.is_ok() {
                        written = put(file, element, first_ms);
                    }
                });
                walked.map_err(|_| damaged())?;
                written?;
            }
            cursor = stretch.next;
        }
        if left != 0 {
            return Err(damaged());
        }
        if let Boxed::Stream(stream) = value {
            file.stream_end(stream)?;
        }
        Ok(())
    }
}

/// The parts of a value do not make up the value.
fn damaged() -> DumpError {
    DumpError::Read(store::ReadError::Missing)
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::String => Type::String,
        Kind::List => Type::List,
        Kind::Set => Type::Set,
        Kind::Hash => Type::Hash,
        Kind::ZSet => Type::ZSet,
        Kind::Stream => unreachable!("a stream's type depends on the version"),
    }
}

/// Writes an element. `first_ms`: it belongs to a hash with expiries, and this is the first of them.
fn put<W: Write>(file: &mut Writer<W>, element: Element<'_>, first_ms: Option<u64>) -> io::Result<()> {
    match element {
        Element::Text(bytes) | Element::Item(_, bytes) | Element::Member(bytes) => file.string(bytes),
        Element::Scored(member, score) => {
            file.string(member)?;
            file.score(score);
            Ok(())
        }
        Element::Field(field, value, at_ms) => match first_ms {
            Some(first_ms) => file.field(field, value, at_ms.map(|at_ms| at_ms.saturating_sub(first_ms))),
            None => {
                file.string(field)?;
                file.string(value)
            }
        },
        Element::Entry(_) | Element::Stream(_) | Element::Group(..) | Element::Pending(..) => {
            unreachable!("streams are written by chunks")
        }
    }
}
