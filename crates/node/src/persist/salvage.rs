//! Owns reading the flash files of a dataset that no node serves: for `flintkv repair`, which finds keys whose places a damaged index does
//! not tell any more, and for `flintkv journal export`. Never changes a file. Of the dataset's files, knows only of the index whether it is
//! damaged.

use super::index;
use crate::files::{Dump, FIELDS_VERSION, FLASH, LARGE, LargeKeys, about};
use crate::shard::Values;
use base::clock::wall_ms;
use base::{Codec, Policy};
use engine::random;
use flash::DATA_OFFSET;
use flash::io::{Blocking, PAGE_BYTES, PageBuf, Reader as Pages};
use flash::superblock::Superblock;
use journal::index::{Index, IndexWriter, Rows, Torn, pairs_in, sum_of, torn};
use rdb::{Item, Options, Reader, Writer};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::log::page::Corrupt;
use store::salvage::Entries;
use store::{
    CheckpointIndex, DumpError, Hasher, LimitOf, ReadError, Salvage, Salvaged, Store, StoreConfig, Value, Visited,
    key_in_parts,
};

/// Damaged parts of an index whose headers are damaged too are read byte by byte, up to this size.
const GUESSED_BYTES_MAX: usize = 2 << 20;
/// So many names of keys are told.
const NAMES_MAX: usize = 1000;
/// Reads as zeroes.
const NOTHING: &str = "/dev/zero";
const OPTIONS: Options = Options { version: FIELDS_VERSION, compresses: false, has_checksum: false };

/// Calls a function with the logical database and the name of each key that the journal changes depending on the key's old value.
pub type Changed<'c> = dyn Fn(&mut dyn FnMut(u64, &[u8])) -> Result<(), String> + 'c;

/// What was found for the damaged parts of an index.
pub struct FoundAgain {
    /// As the index has them. None for an index that is lost.
    pub entries: Entries,
    /// Keys that the journal changes, and whose old values are not certain, with their logical databases.
    pub left_out: Vec<(u64, Vec<u8>)>,
    /// The findings, for people.
    pub said: String,
}

/// Finds the keys that damaged parts of an index named. `dump` is the dump beside the index, and is not damaged.
pub fn find_keys(
    index: &Path,
    dump: &Path,
    flash_paths: &[PathBuf],
    changed: &Changed<'_>,
) -> Result<FoundAgain, String> {
    let (mut opened, checkpoint, logs) = open(index, flash_paths)?;
    let about_index = |error| about(index, error);
    let damage = opened.read_sound(&mut |_, _, _| Ok(())).map_err(about_index)?;
    let places: Vec<Vec<u8>> =
        damage.places.iter().map(|place| opened.read_place(place)).collect::<Result<_, _>>().map_err(about_index)?;
    let left = Left::of(&places);
    let missing = damage.missing - left.rows.min(damage.missing);
    let mut wanted = left.homes.clone();
    loop {
        let about_table = |what| about(index, what);
        let mut salvage = Salvage::new(&checkpoint, wanted.clone()).map_err(about_table)?;
        let known = opened.read_sound(&mut |stripe, table_id, rows| {
            match rows {
                Rows::Pairs(pairs) => pairs.iter().for_each(|&(high, _)| salvage.know_entry(stripe, table_id, high)),
                Rows::Row(row) => salvage.know_parts(stripe, table_id, &row),
            }
            Ok(())
        });
        known.map_err(about_index)?;
        let noted = know_dump(dump, &mut salvage)?;
        if noted.flash.is_none() {
            salvage.know_no_large();
        }
        Left::name(&places, &mut salvage);
        logs.read_all(&mut salvage, &mut |salvage, number, bytes| {
            salvage.read(number, bytes);
            Ok(())
        })?;
        // A header that does not fit its entries is damaged. Then the entries may be of any stripe.
        let suits = places.iter().filter_map(|place| torn(place)).flatten().all(|part| confirm(&part, &mut salvage));
        if wanted.is_some() && !suits {
            wanted = None;
            continue;
        }
        let salvaged = salvage.finish(missing, wall_ms());
        let left_out = leave_out(&mut salvage, changed)?;
        let said = describe(&salvaged, Some(missing), &left_out);
        return Ok(FoundAgain { entries: salvage.entries(), left_out, said });
    }
}

/// Writes the dump of a checkpoint whose index is gone, together with the values that are found on flash.
pub fn save_values(
    dump: &Path,
    to: &Path,
    flash_paths: &[PathBuf],
    changed: &Changed<'_>,
) -> Result<FoundAgain, String> {
    let logs = Logs::open(flash_paths, None)?;
    let about_dump = |what: &str| about(dump, what);
    let noted = note_of(dump)?;
    let essentials = noted.ok_or_else(|| {
        about_dump(
            "it does not have what is needed to read the values on flash without the index: an earlier release has written it",
        )
    })?;
    let size = (logs.files.len(), logs.data_bytes);
    let secret = [random::number(), random::number()];
    let mut salvage = Salvage::without_table(&essentials, size, secret).map_err(about_dump)?;
    let noted = know_dump(dump, &mut salvage)?;
    logs.read_all(&mut salvage, &mut |salvage, number, bytes| {
        salvage.read(number, bytes);
        Ok(())
    })?;
    let salvaged = salvage.finish(u64::MAX, wall_ms());
    let left_out = leave_out(&mut salvage, changed)?;
    let about_new = |error: &dyn std::fmt::Display| about(to, error);
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(to).map_err(|error| about_new(&error))?;
    let source = File::open(dump).map_err(|error| about(dump, error))?;
    io::copy(&mut source.take(noted.end), &mut file).map_err(|error| about_new(&error))?;
    let mut keys = Dump::of(Writer::after(file, OPTIONS));
    let shown = logs.read_all(&mut salvage, &mut |salvage, number, bytes| {
        salvage
            .show::<Shown>(number, bytes, &mut |db, name, expiry, value| {
                let kind = match &value {
                    Value::Inline(kind, _) => *kind,
                    Value::Boxed(value) => value.kind(),
                };
                let key = Visited { db: db as usize, stripe: 0, name, kind, expiry };
                keys.put(&key, value, None).map_err(Shown)
            })
            .map_err(|Shown(error)| about_new(&describe_error(&error)))
    });
    shown?;
    let file = keys.file.finish().map_err(|error| about_new(&error))?;
    file.sync_all().map_err(|error| about_new(&error))?;
    let said = describe(&salvaged, None, &left_out);
    Ok(FoundAgain { entries: Vec::new(), left_out, said })
}

/// Entries of an index by their stripes, table ids and hashes.
pub type Unread = HashSet<(u16, u16, u64)>;

/// Writes the values that an index names as a dump of version 12, but for `unread`.
pub fn write_values(
    index: &Path,
    flash_paths: &[PathBuf],
    unread: &Unread,
    to: Box<dyn Write + Send>,
) -> Result<(), String> {
    let (mut opened, checkpoint, logs) = open(index, flash_paths)?;
    let writer = Writer::new(to, Options { has_checksum: true, ..OPTIONS });
    put_values((index, &mut opened), &checkpoint, logs, unread, writer)?.flush().map_err(|error| error.to_string())
}

/// Puts all values that an index names into a dump, but for `unread`.
fn put_values<W: Write + Send + 'static>(
    (path, index): (&Path, &mut Index),
    checkpoint: &CheckpointIndex,
    logs: Logs,
    unread: &Unread,
    to: Writer<W>,
) -> Result<W, String> {
    let (store, restoring) = store_of(path, checkpoint, logs)?;
    let unsuitable =
        |store::Unsuitable(what)| io::Error::other(format!("the index does not belong to this dataset: {what}"));
    let mut entries = restoring.adding();
    let hasher = Hasher::new(checkpoint.secret());
    let added = index.read::<io::Error>(&mut |stripe, table_id, rows| match rows {
        Rows::Pairs(pairs) if unread.is_empty() => entries.add(stripe, table_id, &pairs).map_err(unsuitable),
        Rows::Pairs(mut pairs) => {
            pairs.retain(|&(high, _)| !unread.contains(&(stripe, table_id, high)));
            entries.add(stripe, table_id, &pairs).map_err(unsuitable)
        }
        Rows::Row(row) => {
            let high = key_in_parts(&row).map(|key| hasher.hash(key).high);
            match high.is_some_and(|high| unread.contains(&(stripe, table_id, high))) {
                true => Ok(()),
                false => restoring.add_parts(stripe, table_id, &row, 0).map_err(unsuitable),
            }
        }
    });
    added.map_err(|error| about(path, error))?;
    drop(entries);
    restoring.finish();
    // No lane runs, so nothing is ever written to flash. Nothing counts as expired: the journal has what has.
    let snapshot = store.cut(0, || Ok(Dump::of(to))).expect("nobody else uses the store");
    let written = snapshot.and_then(|snapshot| snapshot.run(&mut Cursor::new(Vec::new()), &mut || Ok(())));
    let dump = written.map_err(|error| describe_error(&error))?;
    dump.file.finish().map_err(|error| error.to_string())
}

/// A store over flash files that are only read, which waits for the entries of an index.
pub(super) fn store_of(
    index: &Path,
    checkpoint: &CheckpointIndex,
    logs: Logs,
) -> Result<(Arc<Store>, store::Restoring), String> {
    let mut config = StoreConfig {
        databases: checkpoint.databases(),
        flash: Some(checkpoint.layout(Codec::None)),
        limit_of: LimitOf::Process,
        policy: Policy::NoEviction,
        ..StoreConfig::in_ram(1)
    };
    checkpoint.configure(&mut config)?;
    let store = Store::new(&config);
    store.set_blocking(Arc::new(logs));
    let unsuitable = |store::Unsuitable(what)| format!("the index does not belong to this dataset: {what}");
    let restoring = store.restore(checkpoint, 0, 0).map_err(|error| about(index, unsuitable(error)))?;
    Ok((store, restoring))
}

/// Writes what can be read of a checkpoint into one dump that names no flash. This is the undamaged part of the checkpoint's own dump, if
/// there is one, up to `sound_bytes`, and the values that its index names, without `unread`. Flash files may be missing.
pub fn save_readable(
    index: &Path,
    dump: Option<(&Path, u64)>,
    flash_paths: &[PathBuf],
    unread: &Unread,
    to: &Path,
) -> Result<(), String> {
    let about_new = |error: &dyn std::fmt::Display| about(to, error);
    let (mut opened, checkpoint, logs, _) = open_left(index, flash_paths)?;
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(to).map_err(|error| about_new(&error))?;
    let writer = match dump {
        Some((dump, bytes)) => {
            let source = File::open(dump).map_err(|error| about(dump, error))?;
            io::copy(&mut source.take(bytes), &mut file).map_err(|error| about_new(&error))?;
            Writer::after(file, OPTIONS)
        }
        None => Writer::new(file, OPTIONS),
    };
    let file = put_values((index, &mut opened), &checkpoint, logs, unread, writer)?;
    file.sync_all().map_err(|error| about_new(&error))
}

/// Writes an index without `unread`. Returns its size.
pub fn write_index(index: &Path, unread: &Unread, to: &Path) -> Result<u64, String> {
    let about_new = |error: io::Error| about(to, error);
    let mut opened = Index::open(index).map_err(|error| about(index, error))?;
    let Values { checkpoint, .. } =
        index::decode(&opened.table).ok_or_else(|| about(index, "the index is damaged: its table is invalid"))?;
    let hasher = Hasher::new(checkpoint.secret());
    let file = File::options().write(true).read(true).create_new(true).mode(0o600).open(to).map_err(about_new)?;
    let mut writer = IndexWriter::new(file, Box::new(|_| {}));
    let table = opened.table.clone();
    let written = opened.read::<io::Error>(&mut |stripe, table_id, rows| match rows {
        Rows::Pairs(mut pairs) => {
            pairs.retain(|&(high, _)| !unread.contains(&(stripe, table_id, high)));
            if pairs.is_empty() { Ok(()) } else { writer.put(stripe, table_id, &pairs) }
        }
        Rows::Row(row) => {
            let high = key_in_parts(&row).map(|key| hasher.hash(key).high);
            match high.is_some_and(|high| unread.contains(&(stripe, table_id, high))) {
                true => Ok(()),
                false => writer.put_row(stripe, table_id, &row),
            }
        }
    });
    written.and_then(|()| writer.finish(&table)).map_err(about_new)
}

/// Reads the table of an index, and opens the flash files that it is of.
fn open(index: &Path, flash_paths: &[PathBuf]) -> Result<(Index, CheckpointIndex, Logs), String> {
    let opened = Index::open(index).map_err(|error| about(index, error))?;
    let values = index::decode(&opened.table);
    let Values { log_name, log_id, mut checkpoint } =
        values.ok_or_else(|| about(index, "the index is damaged: its table is invalid"))?;
    let logs = Logs::open(flash_paths, Some((&log_name, log_id)))?;
    checkpoint.fit(logs.data_bytes);
    Ok((opened, checkpoint, logs))
}

/// As [`open`], if files may be missing, cut or without their superblock. What is not there reads as zeroes. Also tells what is wrong with which
/// file.
pub(super) fn open_left(
    index: &Path,
    flash_paths: &[PathBuf],
) -> Result<(Index, CheckpointIndex, Logs, Vec<String>), String> {
    let opened = Index::open(index).map_err(|error| about(index, error))?;
    let values = index::decode(&opened.table);
    let Values { log_name, log_id, mut checkpoint } =
        values.ok_or_else(|| about(index, "the index is damaged: its table is invalid"))?;
    let (logs, damage) = Logs::open_left(flash_paths, &log_name, log_id)?;
    checkpoint.fit(logs.data_bytes);
    Ok((opened, checkpoint, logs, damage))
}

/// Whether some entry of a damaged part was found where the part's header says. If exactly one entry was not found there, it is searched
/// for: it is the one with which the part's checksum is right.
fn confirm(part: &Torn<'_>, salvage: &mut Salvage) -> bool {
    let Torn::Pairs { stripe, table_id, pairs, crc } = part else { return true };
    let mut lost = (0..pairs.len()).filter(|&at| !salvage.is_named(*table_id, pairs[at].0));
    let (first, second) = (lost.next(), lost.next());
    if let (Some(at), None) = (first, second) {
        let mut whole = pairs.clone();
        for (high, words) in salvage.unnamed_in(*stripe, *table_id) {
            let mut is_it = |word| {
                whole[at] = (high, word);
                sum_of(*stripe, *table_id, &whole) == *crc
            };
            if words.into_iter().any(&mut is_it) {
                salvage.confirm(*table_id, high);
                return true;
            }
        }
    }
    pairs.iter().any(|&(high, _)| salvage.is_named(*table_id, high))
}

/// What is left of the damaged parts of an index.
struct Left {
    /// The stripes and table ids that their headers name. `None`: a header is damaged.
    homes: Option<HashSet<(u16, u16)>>,
    /// How many of them are large collections.
    rows: u64,
}

impl Left {
    fn of(places: &[Vec<u8>]) -> Left {
        let parts: Vec<Option<Vec<Torn<'_>>>> = places.iter().map(|place| torn(place)).collect();
        let all = || parts.iter().flatten().flatten();
        let home = |part: &Torn<'_>| match part {
            Torn::Pairs { stripe, table_id, .. } => Some((*stripe, *table_id)),
            Torn::Row { .. } => None,
        };
        let is_told = parts.iter().all(Option::is_some);
        Left {
            homes: is_told.then(|| all().filter_map(home).collect()),
            rows: all().filter(|part| matches!(part, Torn::Row { .. })).count() as u64,
        }
    }

    /// Tells of all that may be entries.
    fn name(places: &[Vec<u8>], salvage: &mut Salvage) {
        let mut guessed = 0;
        for place in places {
            match torn(place) {
                Some(parts) => parts.iter().for_each(|part| {
                    if let Torn::Pairs { table_id, pairs, .. } = part {
                        pairs.iter().for_each(|&(high, word)| salvage.name(high, word, Some(*table_id)));
                    }
                }),
                None if guessed < GUESSED_BYTES_MAX => {
                    guessed += place.len();
                    pairs_in(place).for_each(|(high, word)| salvage.name(high, word, None));
                }
                None => {}
            }
        }
    }
}

fn leave_out(salvage: &mut Salvage, changed: &Changed<'_>) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut left_out = BTreeSet::new();
    changed(&mut |db, key| {
        if salvage.leave_out(db, key) {
            left_out.insert((db, key.to_vec()));
        }
    })?;
    Ok(left_out.into_iter().collect())
}

/// What a dump tells besides its keys.
#[derive(Default)]
struct Noted {
    flash: Option<Vec<u8>>,
    /// Where its last record ends.
    end: u64,
}

/// What the dump notes of the flash.
fn note_of(dump: &Path) -> Result<Option<Vec<u8>>, String> {
    Ok(read_dump(dump, &mut |_| Ok(()))?.flash)
}

/// Tells of the keys that the dump has, and of the large collections that it notes.
fn know_dump(dump: &Path, salvage: &mut Salvage) -> Result<Noted, String> {
    read_dump(dump, &mut |item| {
        match item {
            Item::Key(key) => salvage.know_key(key.db, &key.name),
            Item::Aux(name, keys) if name == LARGE.as_bytes() => {
                let keys =
                    LargeKeys::read(keys).ok_or_else(|| about(dump, "its list of large collections is invalid"))?;
                keys.into_iter().for_each(|(table_id, key)| salvage.know_large(table_id, key));
            }
            _ => {}
        }
        Ok(())
    })
}

fn read_dump(dump: &Path, each: &mut dyn FnMut(&Item) -> Result<(), String>) -> Result<Noted, String> {
    let damaged = |error: rdb::Error| about(dump, error);
    let file = File::open(dump).map_err(|error| about(dump, error))?;
    let mut reader = Reader::new(BufReader::with_capacity(256 << 10, file), true).map_err(damaged)?;
    let mut noted = Noted { flash: None, end: reader.offset() };
    loop {
        let item = reader.next_item().map_err(damaged)?;
        each(&item)?;
        match item {
            Item::End => return Ok(noted),
            Item::Aux(name, value) if name == FLASH.as_bytes() => noted.flash = Some(value),
            _ => {}
        }
        noted.end = reader.offset();
    }
}

/// The findings. `missing`: how many entries the index lacks, if that is known.
fn describe(salvaged: &Salvaged, missing: Option<u64>, left_out: &[(u64, Vec<u8>)]) -> String {
    let Salvaged { named, unnamed, doubtful, damaged_pages, large } = salvaged;
    let mut text = match missing {
        Some(missing) => format!("{named} of {missing} missing keys are found again: the index still names them\n"),
        None => String::new(),
    };
    if *unnamed > 0 || missing.is_none() {
        text.push_str(&format!(
            "{unnamed} keys are found by the numbers of their records: each has its last value, but may have been deleted before the checkpoint\n"
        ));
    }
    if *doubtful > 0 {
        let why = match damaged_pages {
            0 => "an earlier release has written them, and their records do not say which one is the newest".to_owned(),
            pages => format!("{pages} pages of the flash cannot be read, and may have their last values"),
        };
        text.push_str(&format!("{doubtful} keys are left out: {why}\n"));
    }
    if !large.is_empty() {
        let why = "large collections are lost, because their parts do not name their key";
        text.push_str(&format!("{} {why}: {}\n", large.len(), names(large)));
    }
    if !left_out.is_empty() {
        let why = "keys are removed, because the journal changes them, and it is not certain what they were before";
        text.push_str(&format!("{} {why}: {}\n", left_out.len(), names(left_out)));
    }
    text
}

/// Keys for people, each behind its logical database.
pub(super) fn names(keys: &[(u64, Vec<u8>)]) -> String {
    let mut names: Vec<String> =
        keys.iter().take(NAMES_MAX).map(|(db, name)| format!("{db}:{}", name.escape_ascii())).collect();
    names.extend((keys.len() > NAMES_MAX).then(|| "…".to_owned()));
    names.join(" ")
}

fn describe_error(error: &DumpError) -> String {
    match error {
        DumpError::Read(error) => format!("a value cannot be read: {error}"),
        DumpError::Write(error) => error.to_string(),
        DumpError::NoRoom | DumpError::GivenUp => unreachable!("nobody else uses the store"),
    }
}

/// Why a value was not written.
struct Shown(DumpError);

impl From<Corrupt> for Shown {
    fn from(corrupt: Corrupt) -> Shown {
        Shown(DumpError::Read(ReadError::Corrupt(corrupt)))
    }
}

/// Gets a segment's number and its bytes.
type Each<'e> = dyn FnMut(&mut Salvage, u32, &[u8]) -> Result<(), String> + 'e;

/// Flash files that are only read.
pub(super) struct Logs {
    files: Vec<(PathBuf, File)>,
    data_bytes: u64,
}

fn lock_to_read(file: &File, path: &Path) -> Result<(), String> {
    flash::lock::shared(file, path).map_err(|refused| match refused {
        flash::lock::Refused::InUse(holder) => about(path, format!("a node uses it ({holder}): stop the node")),
        flash::lock::Refused::Io { source, .. } => about(path, source),
    })
}

impl Logs {
    /// Each path is a directory, or the log file itself. `log`: the files' name, and the log's id; `None`: a directory has one log file only.
    fn open(paths: &[PathBuf], log: Option<(&str, [u8; 16])>) -> Result<Logs, String> {
        if paths.is_empty() {
            return Err("the values are on flash: give the flash paths, in the order that they had".to_owned());
        }
        let mut logs = Logs { files: Vec::new(), data_bytes: u64::MAX };
        let mut log_id = log.map(|(_, id)| id);
        for (number, path) in paths.iter().enumerate() {
            let path = match (path.is_dir(), log) {
                (false, _) => path.clone(),
                (true, Some((name, _))) => path.join(name),
                (true, None) => only_log(path)?,
            };
            let file = File::open(&path).map_err(|error| about(&path, error))?;
            lock_to_read(&file, &path)?;
            let mut start = vec![0; 2 * PAGE_BYTES];
            file.read_exact_at(&mut start, 0).map_err(|error| about(&path, error))?;
            let found = Superblock::newest(&start).map_err(|error| about(&path, error))?;
            if *log_id.get_or_insert(found.log_id) != found.log_id {
                return Err(about(&path, "it belongs to another dataset"));
            }
            if (usize::from(found.path_index), usize::from(found.path_count)) != (number, paths.len()) {
                let (at, of) = (found.path_index + 1, found.path_count);
                return Err(about(&path, format!("it was flash path {at} of {of}: give the paths in their old order")));
            }
            logs.data_bytes = logs.data_bytes.min(found.data_bytes);
            logs.files.push((path, file));
        }
        Ok(logs)
    }

    /// As [`Logs::open`], if files may be missing, cut or without their superblock: what is wrong with which file. Files of another dataset are
    /// refused.
    fn open_left(paths: &[PathBuf], name: &str, log_id: [u8; 16]) -> Result<(Logs, Vec<String>), String> {
        let mut logs = Logs { files: Vec::new(), data_bytes: u64::MAX };
        let mut damage = Vec::new();
        for path in paths {
            let path = if path.is_dir() { path.join(name) } else { path.clone() };
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    damage.push(about(&path, error));
                    logs.files.push((path, File::open(NOTHING).map_err(|error| about(Path::new(NOTHING), error))?));
                    continue;
                }
                file => file.map_err(|error| about(&path, error))?,
            };
            lock_to_read(&file, &path)?;
            let mut start = vec![0; 2 * PAGE_BYTES];
            let read = file.read_exact_at(&mut start, 0);
            match read.and_then(|()| Superblock::newest(&start)) {
                Ok(found) if found.log_id != log_id => return Err(about(&path, "it belongs to another dataset")),
                Ok(found) if usize::from(found.path_count) != paths.len() => {
                    let what =
                        format!("it was one of {} flash paths: give them all, in their old order", found.path_count);
                    return Err(about(&path, what));
                }
                Ok(found) if usize::from(found.path_index) != logs.files.len() => {
                    let what = format!("it was flash path {}: give the paths in their old order", found.path_index + 1);
                    return Err(about(&path, what));
                }
                Ok(found) => {
                    logs.data_bytes = logs.data_bytes.min(found.data_bytes);
                    let bytes = file.metadata().map_err(|error| about(&path, error))?.len();
                    let wanted = DATA_OFFSET + found.data_bytes;
                    if bytes < wanted {
                        damage.push(about(&path, format!("it is cut off: it has {bytes} of {wanted} bytes")));
                    }
                }
                Err(error) => damage.push(about(&path, error)),
            }
            logs.files.push((path, file));
        }
        Ok((logs, damage))
    }

    /// Reads all segments that may have something.
    fn read_all(&self, salvage: &mut Salvage, each: &mut Each<'_>) -> Result<(), String> {
        let mut buf = Vec::new();
        for at in salvage.segments() {
            let (path, file) = &self.files[usize::from(at.path)];
            buf.resize(at.bytes as usize, 0);
            let end = DATA_OFFSET + self.data_bytes;
            let wanted = end.saturating_sub(at.offset).min(at.bytes) as usize;
            file.read_exact_at(&mut buf[..wanted], at.offset).map_err(|error| about(path, error))?;
            each(salvage, at.number, &buf[..wanted])?;
        }
        Ok(())
    }
}

impl Pages for Logs {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        self.files[usize::from(path)].1.read_exact_at(buf, offset)
    }
}

impl Blocking for Logs {
    fn write(&self, _path: u16, _offset: u64, _buf: &PageBuf) -> io::Result<()> {
        Err(io::Error::other("these files are only read"))
    }
}

/// The log file of a directory that has one.
fn only_log(folder: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| about(folder, error))?;
    let mut found = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    match (found.next(), found.next()) {
        (Some(log), None) => Ok(log),
        (None, _) => Err(about(folder, "there is no flash file")),
        (Some(_), Some(_)) => Err(about(folder, "there are several flash files: give the file itself")),
    }
}
