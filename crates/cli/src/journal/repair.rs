//! Owns `flintkv repair`, which writes the recoverable part of a damaged directory into a new one. Never changes the damaged
//! directory, and never reads flash files itself: [`Flash`] does.

use base::size::human;
use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::journal::index::{Index, IndexWriter, Rows};
use ::journal::manifest::{self, CheckpointFile, Found, Manifest};
use ::journal::{Log, Opened, Policy, Record, Salvage, Settings, View};
use rdb::{Item, Reader};

use super::{commands, describe, each_record};
use crate::args::Repair;
use crate::failure::Failure;
use crate::timestamp;
use crate::{Flash, FoundAgain, Missing, Unreadable};

/// The size of a journal file, as a node creates it.
const FILE_BYTES: u64 = 64 << 20;
const RING_BYTES: u64 = 8 << 20;
/// The end of a dump, with the checksum 0, which means that there is no checksum.
const END: [u8; 9] = [0xff, 0, 0, 0, 0, 0, 0, 0, 0];
const DUMP: &str = "dump.rdb";
/// The most logical databases that a journal may name.
const DATABASES_MAX: u64 = 64;

/// The readable part of a dump.
struct Dump {
    keys: u64,
    /// The bytes up to the end of the last complete key.
    sound_bytes: u64,
    damage: Option<String>,
}

pub fn repair(args: &Repair, flash: &Flash) -> Result<String, Failure> {
    let (manifest, guessed) = dataset(&args.dir)?;
    let Some(guessed) = guessed else { return repair_files(args, &manifest, flash, false) };
    let said = |text: &str| format!("{guessed}\n{text}");
    match repair_files(args, &manifest, flash, true) {
        Ok(text) => Ok(said(&text)),
        Err(failure) => Err(Failure { message: said(&failure.message), ..failure }),
    }
}

/// `is_guessed`: the manifest was lost and must be written.
fn repair_files(args: &Repair, manifest: &Manifest, flash: &Flash, is_guessed: bool) -> Result<String, Failure> {
    let dir = &*args.dir;
    let checkpoint = manifest.checkpoint.as_ref().map(|checkpoint| read_dump(dir, checkpoint)).transpose()?;
    let sound = checkpoint.as_ref().is_none_or(|dump| dump.damage.is_none());
    let on_flash = match manifest.index.as_ref().map(|index| read_index(dir, index, None)).transpose() {
        Err(failure) if args.from_segments => return without_index(args, manifest, sound, flash, &failure),
        Err(failure) if sound => return Err(failure),
        // Both are damaged: only the values in the dump can be recovered.
        Err(_) => None,
        Ok(on_flash) => on_flash,
    };
    if let (Some(OnFlash { places: 1.., lost, keys }), Some(index)) = (&on_flash, &manifest.index) {
        return repair_index(args, manifest, (index, *keys, *lost), sound, flash);
    }
    let on_flash = on_flash.map_or(0, |on_flash| on_flash.keys);
    if let Some(dump) = checkpoint.filter(|dump| dump.damage.is_some()) {
        return repair_dump(args, manifest, &dump, on_flash, flash);
    }
    if on_flash > 0
        && !args.flash_path.is_empty()
        && let Some(index) = &manifest.index
    {
        let found = (flash.check_values)(&dir.join(&index.name), &args.flash_path).map_err(Failure::failed)?;
        if !found.entries.is_empty() || !found.files.is_empty() {
            return repair_values(args, manifest, index, &found, flash);
        }
    }
    let broken = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let salvage = Salvage::open(dir, manifest).map_err(|error| broken(&error))?;
    let unread = match on_flash {
        1.. if args.flash_path.is_empty() => {
            format!(
                ". Its {on_flash} values on flash were not read: give every --flash-path, in the old order, to read them"
            )
        }
        _ => String::new(),
    };
    let Some(salvage) = salvage else {
        // A start reads the journal in another way than the scan above, so try that too.
        View::of(dir, manifest).map_err(|error| broken(&error))?;
        return match (is_guessed, args.to.as_deref()) {
            (false, _) => {
                Ok(format!("{}: nothing is damaged{unread}: flintkv journal check shows more\n", dir.display()))
            }
            (true, None) => {
                let what = format!("Everything else is undamaged{unread}.");
                Err(Failure::failed(what).hint("--to NEW writes the dataset with a new manifest"))
            }
            (true, Some(to)) => {
                make(to)?;
                copy_others(args, to, None, true)?;
                copy_checkpoint(dir, to, manifest)?;
                manifest::write(to, Some(manifest)).map_err(|error| broken(&error))?;
                Ok(format!(
                    "{}: the dataset, with a new manifest. Move it to the place of the damaged directory.\n",
                    to.display()
                ))
            }
        };
    };
    let (mut records, mut kept_ms) = (0_u64, 0);
    salvage
        .records(&mut |_, record| {
            records += 1;
            kept_ms = record.time_ms;
        })
        .map_err(|error| broken(&error))?;
    let said = loss(&salvage, records, kept_ms);
    let (Some(to), true) = (args.to.as_deref(), args.cut) else {
        return Err(Failure::failed(said).hint("--cut --to NEW writes the dataset as it was before the damage"));
    };
    make(to)?;
    copy_checkpoint(dir, to, manifest)?;
    let log_id = write_journal(to, Some(&salvage))?;
    manifest::write(
        to,
        Some(&Manifest { log_id, position: 0, stream: None, truncations: Vec::new(), ..manifest.clone() }),
    )
    .map_err(|error| broken(&error))?;
    Ok(format!(
        "{said}{}: the dataset as it was before the damage. Move it to the place of the damaged directory.\n",
        to.display()
    ))
}

/// Writes the keys of a damaged dump, and the values on flash too, if the flash paths are given.
fn repair_dump(
    args: &Repair,
    manifest: &Manifest,
    dump: &Dump,
    on_flash: u64,
    flash: &Flash,
) -> Result<String, Failure> {
    let dir = &*args.dir;
    let checkpoint = manifest.checkpoint.as_ref().expect("it was read");
    let damage = dump.damage.as_deref().unwrap_or_default();
    let mut said = format!("{}: {damage}\n{} keys before the damage can be read\n", checkpoint.name, dump.keys);
    let index = manifest.index.as_ref().filter(|_| on_flash > 0 && !args.flash_path.is_empty());
    let unread = index.map(|index| (flash.check_values)(&dir.join(&index.name), &args.flash_path)).transpose();
    let unread = unread.map_err(Failure::failed)?;
    let left = match &unread {
        Some(unread) => {
            unread.files.iter().for_each(|file| said.push_str(&format!("{file}\n")));
            let readable = on_flash - (unread.entries.len() as u64).min(on_flash);
            said.push_str(&format!("{readable} of {on_flash} keys whose values are on flash can be read\n"));
            String::new()
        }
        None if on_flash > 0 => {
            format!(", and {on_flash} keys whose values are on flash (--flash-path PATH saves these)")
        }
        None => String::new(),
    };
    let what = format!(
        "The keys after the damage are lost{left}; the journal is not applied, because it changes keys that are lost."
    );
    let Some(to) = args.to.as_deref() else {
        return Err(Failure::failed(format!("{said}{what}")).hint("--to NEW writes the keys that can be read"));
    };
    if dump.keys == 0 && unread.is_none() {
        return Err(Failure::failed(format!("{said}{what} There is nothing left to write.")));
    }
    make(to)?;
    let new = to.join(DUMP);
    let old = dir.join(&checkpoint.name);
    match (index, unread) {
        (Some(index), Some(unread)) => {
            let sound = (dump.sound_bytes > 0).then_some((&*old, dump.sound_bytes));
            (flash.save_readable)(&dir.join(&index.name), sound, &args.flash_path, &unread.entries, &new)
                .map_err(Failure::failed)?;
        }
        _ => copy(&old, &new, Some(dump.sound_bytes)).map_err(about(&new))?,
    }
    Ok(format!(
        "{said}{}: written. A node loads it as the dump in its dir. {what} The checksum of the dump could not be checked, so a value before the damage may be wrong too.\n",
        new.display()
    ))
}

/// Writes the dataset without the keys whose values cannot be read on flash. If a flash file is broken, no node can start
/// with it: then all readable values are written into the checkpoint's dump.
fn repair_values(
    args: &Repair,
    manifest: &Manifest,
    index: &CheckpointFile,
    found: &Unreadable,
    flash: &Flash,
) -> Result<String, Failure> {
    let dir = &*args.dir;
    let view = View::of(dir, manifest);
    let lost = match &view {
        Ok(view) if !args.cut => {
            let records: &crate::Records<'_> =
                &|each| each_record(view, &mut |record| each(record.db, record.resp).map(drop));
            (flash.follow)(&Missing::Of(&dir.join(&index.name), &found.entries), records).map_err(Failure::failed)?
        }
        _ => Vec::new(),
    };
    let said = describe(found, &lost);
    let Some(to) = args.to.as_deref().filter(|_| args.lose_keys) else {
        let hint = match found.files.is_empty() {
            true => {
                "a start serves everything else, and these keys answer with errors until they are set again; --lose-keys --to NEW writes the \
                     dataset without them"
            }
            false => {
                "restore the flash files, and try again; --lose-keys --to NEW writes all that can be read into a directory that needs no flash file"
            }
        };
        return Err(Failure::failed(said).hint(hint));
    };
    check_journal(args, manifest, &said)?;
    make(to)?;
    let old = dir.join(&index.name);
    let mut manifest = manifest.clone();
    let flash_files = match (found.files.is_empty(), &manifest.checkpoint) {
        (false, Some(checkpoint)) => {
            let (from, new) = (dir.join(&checkpoint.name), to.join(&checkpoint.name));
            let sound = read_dump(dir, checkpoint)?.sound_bytes;
            (flash.save_readable)(&old, Some((&from, sound)), &args.flash_path, &found.entries, &new)
                .map_err(Failure::failed)?;
            let bytes = std::fs::metadata(&new).map_err(about(&new))?.len();
            (manifest.checkpoint, manifest.index) = (Some(CheckpointFile { bytes, ..checkpoint.clone() }), None);
            "move the flash files away: the node makes new ones"
        }
        _ => {
            let bytes = (flash.write_index)(&old, &found.entries, &to.join(&index.name)).map_err(Failure::failed)?;
            manifest.index = Some(CheckpointFile { bytes, ..index.clone() });
            if let Some(checkpoint) = &manifest.checkpoint {
                copy(&dir.join(&checkpoint.name), &to.join(&checkpoint.name), None)
                    .map_err(about(&to.join(&checkpoint.name)))?;
            }
            "the flash files stay"
        }
    };
    manifest.log_id = match &view {
        Ok(view) if !args.cut => follow_journal(to, view, &Missing::Of(&old, &found.entries), flash)?,
        _ => write_journal(to, None)?,
    };
    begin_anew(&mut manifest);
    manifest::write(to, Some(&manifest)).map_err(Failure::failed)?;
    let journal = if args.cut { "The changes in the journal are lost. " } else { "" };
    Ok(format!(
        "{said}\n{}: the dataset without these keys. {journal}Move this directory to the place of the damaged one; {flash_files}.\n",
        to.display()
    ))
}

/// Writes a new journal with the records of another one; where a record loses keys, the new journal removes them.
/// Returns the new journal's id.
fn follow_journal(to: &Path, view: &View, missing: &Missing<'_>, flash: &Flash) -> Result<[u8; 16], Failure> {
    let (log, log_id) = new_journal(to)?;
    let records: &crate::Records<'_> = &|each| {
        each_record(view, &mut |record| {
            match each(record.db, record.resp)? {
                None => append(&log, record),
                Some(instead) if instead.is_empty() => {}
                Some(instead) => append(&log, &Record { resp: &instead, ..*record }),
            }
            Ok(())
        })
    };
    (flash.follow)(missing, records).map_err(Failure::failed)?;
    log.close().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(log_id)
}

/// The manifest. If it cannot be read: a manifest reconstructed from the other files, and the reason.
fn dataset(dir: &Path) -> Result<(Manifest, Option<String>), Failure> {
    if ::journal::is_in_use(dir) {
        return Err(Failure::refused(format!("{}: a node uses it: stop the node, or repair a copy", dir.display())));
    }
    let why = match manifest::read(dir) {
        Ok(Found::Dataset(manifest)) => return Ok((manifest, None)),
        Ok(Found::Void) => {
            return Err(Failure::failed(format!("{}: its manifest says that there is no dataset", dir.display())));
        }
        Ok(Found::Nothing) => format!("{}: there is no manifest", dir.display()),
        Err(why) => why,
    };
    let Some(manifest) = guess(dir) else {
        let hint = "give the directory flintkv.journal itself, or a copy of it";
        return Err(
            Failure::failed(format!("{why}; and its contents cannot be restored from the other files")).hint(hint)
        );
    };
    let checkpoint = manifest.checkpoint.as_ref().map_or("no checkpoint", |checkpoint| &checkpoint.name);
    let said = format!("{why}. By the other files, its contents were: {checkpoint}, position {}", manifest.position);
    Ok((manifest, Some(said)))
}

/// Reconstructs a manifest from the names of the checkpoint's files and the heads of the journal's files.
fn guess(dir: &Path) -> Option<Manifest> {
    let log_id = ::journal::log_id_in(dir)?;
    let names = std::fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let position = |name: &str| name.strip_prefix("base-")?.strip_suffix(".rdb")?.parse::<u64>().ok();
    let position = names.filter_map(|name| position(&name)).max();
    let file = |end: &str| {
        let name = format!("base-{}.{end}", position?);
        let bytes = std::fs::metadata(dir.join(&name)).ok()?.len();
        Some(CheckpointFile { name, bytes })
    };
    let (checkpoint, index) = (file("rdb"), file("index"));
    Some(Manifest { log_id, position: position.unwrap_or(0), checkpoint, index, stream: None, truncations: Vec::new() })
}

/// A text that says what the cut loses.
fn loss(salvage: &Salvage, records: u64, kept_ms: u64) -> String {
    let ((at, durable), (lost, until_ms)) = (salvage.lost(), salvage.lost_records());
    let mut text = format!("{}\n", salvage.damage());
    text.push_str(&format!("{records} records before it can be read, up to position {at}\n"));
    text.push_str(&format!(
        "A cut there loses {} of the journal, with at least {lost} undamaged records",
        human(durable.saturating_sub(at))
    ));
    if durable <= at && lost == 0 {
        text.push_str(", and the records that were only in the ring, if the ring is damaged");
    }
    if lost > 0 && kept_ms > 0 {
        let seconds = until_ms.saturating_sub(kept_ms).div_ceil(1000);
        text.push_str(&format!(", of the {seconds} seconds up to {}", timestamp::date(until_ms)));
    }
    text.push('\n');
    text
}

fn read_dump(dir: &Path, checkpoint: &CheckpointFile) -> Result<Dump, Failure> {
    let path = dir.join(&checkpoint.name);
    let nothing = |error: &dyn std::fmt::Display| Dump {
        keys: 0,
        sound_bytes: 0,
        damage: Some(format!("{error}: no key can be read")),
    };
    let mut dump = Dump { keys: 0, sound_bytes: 0, damage: None };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing(&error)),
        file => file.map_err(about(&path))?,
    };
    let mut reader = match Reader::new(BufReader::with_capacity(256 << 10, file), true) {
        Ok(reader) => reader,
        Err(error) => return Ok(nothing(&error)),
    };
    dump.sound_bytes = reader.offset();
    loop {
        match reader.next_item() {
            Ok(Item::End) => return Ok(dump),
            Ok(Item::EndOfKey) => {
                dump.keys += 1;
                dump.sound_bytes = reader.offset();
            }
            Ok(Item::Aux(..) | Item::Function(..)) => dump.sound_bytes = reader.offset(),
            Ok(_) => {}
            Err(error) => {
                dump.damage = Some(error.to_string());
                return Ok(dump);
            }
        }
    }
}

/// The keys whose values are on flash, as far as the index can be read.
struct OnFlash {
    keys: u64,
    /// The number of damaged places of the index, and of the keys in them.
    places: usize,
    lost: u64,
}

/// Reads an index, and writes its intact part as a new index.
fn read_index(dir: &Path, file: &CheckpointFile, mut sound: Option<&mut IndexWriter>) -> Result<OnFlash, Failure> {
    let path = dir.join(&file.name);
    let read = Index::open(&path).and_then(|mut index| {
        let damage = index.read_sound(&mut |stripe, table_id, rows| match (&mut sound, &rows) {
            (None, _) => Ok(()),
            (Some(sound), Rows::Pairs(pairs)) => sound.put(stripe, table_id, pairs),
            (Some(sound), Rows::Row(row)) => sound.put_row(stripe, table_id, row),
        })?;
        let lost = damage.missing;
        Ok(OnFlash { keys: index.entries.saturating_sub(lost), places: damage.places.len(), lost })
    });
    read.map_err(|error| {
        Failure::failed(format!("{}: {error}", path.display())).hint(
            "without it, --from-segments --to NEW finds what it can in the flash files. A backup has everything (flintkv database create \
             --from), or restore a copy of the directory and of the flash files, made at the same time",
        )
    })
}

/// Writes the dataset without the keys that were in damaged parts of its index, or with those of them that are found on
/// flash. `checkpoint_is_sound`: the dump is intact.
fn repair_index(
    args: &Repair,
    manifest: &Manifest,
    (index, keys, lost): (&CheckpointFile, u64, u64),
    checkpoint_is_sound: bool,
    flash: &Flash,
) -> Result<String, Failure> {
    let dir = &*args.dir;
    let said = format!("{}: the index is damaged: {keys} keys on flash can be read, and {lost} are lost", index.name);
    if !checkpoint_is_sound {
        return Err(Failure::failed(format!("{said}. The dump of the checkpoint is damaged too.")));
    }
    let Some(to) = args.to.as_deref().filter(|_| args.lose_keys || args.from_segments) else {
        let hint = "--from-segments --flash-path PATH --to NEW finds them in the flash files; --lose-keys --to NEW writes the dataset without \
                    them; a backup has them (flintkv database create --from)";
        return Err(Failure::failed(said).hint(hint));
    };
    check_journal(args, manifest, &said)?;
    let old = dir.join(&index.name);
    let changed = |each: &mut dyn FnMut(u64, &[u8])| changed_keys(args, manifest, each);
    let found = match (args.from_segments, dump_name(manifest)) {
        (true, Some(dump)) => {
            (flash.find_keys)(&old, &dir.join(dump), &args.flash_path, &changed).map_err(Failure::failed)?
        }
        _ => FoundAgain { entries: Vec::new(), left_out: Vec::new(), said: String::new() },
    };
    make(to)?;
    let new = to.join(&index.name);
    let file = File::options().write(true).read(true).create_new(true).mode(0o600).open(&new).map_err(about(&new))?;
    let mut writer = IndexWriter::new(file, Box::new(|_| {}));
    read_index(dir, index, Some(&mut writer))?;
    for (stripe, table_id, pairs) in &found.entries {
        writer.put(*stripe, *table_id, pairs).map_err(about(&new))?;
    }
    let table = Index::open(&old).map_err(about(&new))?.table;
    let bytes = writer.finish(&table).map_err(about(&new))?;
    copy_others(args, to, dump_name(manifest), !args.cut && found.left_out.is_empty())?;
    let mut manifest = Manifest { index: Some(CheckpointFile { bytes, ..index.clone() }), ..manifest.clone() };
    let journal = end_journal(args, to, &mut manifest, (&found.left_out, flash))?;
    manifest::write(to, Some(&manifest)).map_err(Failure::failed)?;
    let what = if args.from_segments { "with the keys that were found" } else { "without these keys" };
    Ok(format!(
        "{said}\n{}{}: the dataset {what}. {journal} Move this directory to the place of the damaged one; the flash files \
         stay, and the values of lost keys are overwritten in time: copy the flash files first if you may need them.\n",
        found.said,
        to.display()
    ))
}

/// Writes the dataset of a directory whose index is lost: the new dump also contains the values that are found on
/// flash.
fn without_index(
    args: &Repair,
    manifest: &Manifest,
    checkpoint_is_sound: bool,
    flash: &Flash,
    failure: &Failure,
) -> Result<String, Failure> {
    let said = format!("{}, so the keys on flash are searched for without it", failure.message);
    let (Some(checkpoint), Some(to), true) = (&manifest.checkpoint, args.to.as_deref(), checkpoint_is_sound) else {
        return Err(Failure::failed(format!("{said}. The dump of the checkpoint is damaged too.")));
    };
    check_journal(args, manifest, &said)?;
    make(to)?;
    let new = to.join(&checkpoint.name);
    let changed = |each: &mut dyn FnMut(u64, &[u8])| changed_keys(args, manifest, each);
    let found = (flash.save_values)(&args.dir.join(&checkpoint.name), &new, &args.flash_path, &changed)
        .map_err(Failure::failed)?;
    copy_others(args, to, None, !args.cut && found.left_out.is_empty())?;
    let bytes = std::fs::metadata(&new).map_err(about(&new))?.len();
    let mut manifest =
        Manifest { checkpoint: Some(CheckpointFile { bytes, ..checkpoint.clone() }), index: None, ..manifest.clone() };
    let journal = end_journal(args, to, &mut manifest, (&found.left_out, flash))?;
    manifest::write(to, Some(&manifest)).map_err(Failure::failed)?;
    Ok(format!(
        "{said}\n{}{}: the dataset, with the values that were found in its dump. {journal} Move this directory to the place of the damaged \
         one, and the flash files away: the node makes new ones.\n",
        found.said,
        to.display()
    ))
}

/// Checks that the journal can be read, unless it is to be discarded.
fn check_journal(args: &Repair, manifest: &Manifest, said: &str) -> Result<(), Failure> {
    match View::of(&args.dir, manifest) {
        Err(error) if !args.cut => {
            let hint = "--cut repairs without the journal";
            Err(Failure::failed(format!("{said} The journal cannot be read either: {error}")).hint(hint))
        }
        _ => Ok(()),
    }
}

/// Copies the journal, if it is kept unchanged, and a dump.
fn copy_others(args: &Repair, to: &Path, dump: Option<&str>, with_journal: bool) -> Result<(), Failure> {
    let dir = &*args.dir;
    let is_journal = |name: &str| name.starts_with("journal-") && !name.ends_with("lock") && !name.ends_with(".new");
    let is_needed = |name: &str| Some(name) == dump || with_journal && is_journal(name);
    for entry in std::fs::read_dir(dir).map_err(about(dir))? {
        let name = entry.map_err(about(dir))?.file_name();
        if name.to_str().is_some_and(is_needed) {
            copy(&dir.join(&name), &to.join(&name), None).map_err(about(&to.join(&name)))?;
        }
    }
    Ok(())
}

/// Calls `each` with the keys whose first change in the journal depends on their earlier value. Some of the names may not be
/// keys, because only a command's row tells which of its arguments are keys.
fn changed_keys(args: &Repair, manifest: &Manifest, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
    if args.cut {
        return Ok(());
    }
    let view = View::of(&args.dir, manifest).map_err(|error| error.to_string())?;
    let (mut seen, mut emptied, mut ended) = (HashSet::new(), HashSet::new(), Ok(()));
    let mut is_first = |db: u64, key: &[u8]| {
        let mut hasher = DefaultHasher::new();
        (db, key).hash(&mut hasher);
        seen.insert(hasher.finish())
    };
    let read = view.records(&mut |end, record| {
        let db = u64::from(record.db);
        let Some(commands) = commands(record.resp) else {
            ended = Err(format!("the record before position {end} is not a valid command"));
            return ControlFlow::Break(());
        };
        for (args, _) in &commands {
            let name = args[0].to_ascii_lowercase();
            let has = |option: &[u8]| args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(option));
            match name.as_slice() {
                b"set" if !has(b"keepttl") && !has(b"get") => _ = args.get(1).map(|key| is_first(db, key)),
                b"restore" if has(b"replace") => _ = args.get(1).map(|key| is_first(db, key)),
                b"del" | b"unlink" => args[1..].iter().for_each(|key| _ = is_first(db, key)),
                b"flushdb" => _ = emptied.insert(db),
                b"flushall" => emptied.extend(0..DATABASES_MAX),
                b"swapdb" => {
                    ended = Err("the journal exchanges logical databases, so its changes cannot be attributed to keys: --cut discards the journal"
                        .to_owned());
                    return ControlFlow::Break(());
                }
                b"move" | b"copy" => (0..DATABASES_MAX).for_each(|db| {
                    let new = args[1..].iter().filter(|key| is_first(db, key) && !emptied.contains(&db));
                    new.for_each(|key| each(db, key));
                }),
                _ => {
                    let new = args[1..].iter().filter(|key| is_first(db, key) && !emptied.contains(&db));
                    new.for_each(|key| each(db, key));
                }
            }
        }
        ControlFlow::Continue(())
    });
    read.map_err(|error| error.to_string())?;
    ended
}

/// Writes a new journal if the old one is discarded, or if some keys are left out: then the new journal removes what the
/// records would make of these keys. Returns a text for the user.
fn end_journal(
    args: &Repair,
    to: &Path,
    manifest: &mut Manifest,
    (removed, flash): (&[(u64, Vec<u8>)], &Flash),
) -> Result<&'static str, Failure> {
    if args.cut {
        let log_id = write_journal(to, None)?;
        manifest.log_id = log_id;
        begin_anew(manifest);
        return Ok("The changes in the journal are lost: these keys are as the checkpoint has them.");
    }
    if !removed.is_empty() {
        let view = View::of(&args.dir, manifest);
        let view = view.map_err(|error| Failure::failed(error.to_string()))?;
        manifest.log_id = follow_journal(to, &view, &Missing::Keys(removed), flash)?;
        begin_anew(manifest);
    }
    if args.from_segments {
        return Ok(
            "The journal is applied to it. If the node refuses the journal, repair again with --cut, which discards it.",
        );
    }
    Ok(
        "The journal is applied to it as if the lost keys had never existed, so a lost key that was changed after the checkpoint may come back with only this change. If the node refuses the journal for that reason, repair again with --cut, which discards it.",
    )
}

/// The journal is a new one, without a stream.
fn begin_anew(manifest: &mut Manifest) {
    (manifest.position, manifest.stream) = (0, None);
    manifest.truncations.clear();
}

fn append(log: &Log, record: &Record<'_>) {
    while log.is_behind() && !log.has_failed() {
        std::thread::sleep(Duration::from_millis(1));
    }
    log.append(record);
}

fn dump_name(manifest: &Manifest) -> Option<&str> {
    manifest.checkpoint.as_ref().map(|checkpoint| &*checkpoint.name)
}

fn make(to: &Path) -> Result<(), Failure> {
    // The directory must not exist yet, because nothing is ever changed in place.
    DirBuilder::new().mode(0o700).create(to).map_err(about(to))
}

/// Copies a file, or the intact part of a dump.
fn copy(from: &Path, to: &Path, sound_bytes: Option<u64>) -> io::Result<()> {
    let mut source = File::open(from)?.take(sound_bytes.unwrap_or(u64::MAX));
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut target)?;
    if sound_bytes.is_some() {
        target.write_all(&END)?;
    }
    target.sync_all()
}

/// Copies the files of the checkpoint.
fn copy_checkpoint(dir: &Path, to: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let copied = |file: &CheckpointFile| {
        copy(&dir.join(&file.name), &to.join(&file.name), None).map_err(about(&to.join(&file.name)))
    };
    manifest.files().try_for_each(copied)
}

/// Writes a new journal with the records before the damage. `None`: without records. Returns its id.
fn write_journal(to: &Path, salvage: Option<&Salvage>) -> Result<[u8; 16], Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let (log, log_id) = new_journal(to)?;
    let mut put = |_, record: &Record<'_>| append(&log, record);
    salvage.map_or(Ok(()), |salvage| salvage.records(&mut put)).map_err(|error| broken(&error))?;
    log.close().map_err(|error| broken(&error))?;
    Ok(log_id)
}

/// Begins a new journal, and returns it and its id.
fn new_journal(to: &Path) -> Result<(Arc<Log>, [u8; 16]), Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let mut log_id = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut log_id)).map_err(|error| broken(&error))?;
    let settings = Settings { log_id, file_bytes: FILE_BYTES, ring_bytes: RING_BYTES, policy: Policy::No };
    let log = Opened::open(to, &settings, 0).and_then(Opened::start).map_err(|error| broken(&error))?;
    Ok((log, log_id))
}

fn about(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::failed(format!("{path}: {error}"))
}
