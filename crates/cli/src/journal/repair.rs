//! Owns `flintkv repair`: what can be saved of a damaged directory, written into a new one. Never changes the damaged one, and never
//! reads values on flash.

use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use ::journal::index::{Index, IndexWriter, Rows};
use ::journal::manifest::{self, Base, Found, Manifest};
use ::journal::{Opened, Policy, Record, Salvage, Settings, View};
use rdb::{Item, Reader};

use crate::failure::Failure;
use crate::moment;

/// As a node makes them.
const FILE_BYTES: u64 = 64 << 20;
const RING_BYTES: u64 = 8 << 20;
/// The end of a dump, with the checksum that says that there is none.
const END: [u8; 9] = [0xff, 0, 0, 0, 0, 0, 0, 0, 0];
const DUMP: &str = "dump.rdb";

/// A dump as far as it can be read.
struct Dump {
    keys: u64,
    /// Up to the end of the last whole key.
    sound_bytes: u64,
    damage: Option<String>,
}

pub fn repair(dir: &Path, to: Option<&Path>, cuts: bool, loses_keys: bool) -> Result<String, Failure> {
    let manifest = dataset(dir)?;
    let mut said = String::new();
    let base = manifest.base.as_ref().map(|base| read_dump(dir, base)).transpose()?;
    let on_flash = manifest.index.as_ref().map(|index| read_index(dir, index, None)).transpose()?;
    if let (Some(OnFlash { places: 1.., lost, keys }), Some(index)) = (&on_flash, &manifest.index) {
        let sound = base.as_ref().is_none_or(|dump| dump.damage.is_none());
        return repair_index(dir, &manifest, (index, *keys, *lost), sound, (to.filter(|_| loses_keys), cuts));
    }
    let on_flash = on_flash.map(|on_flash| on_flash.keys);
    if let Some(Dump { damage: Some(damage), keys, sound_bytes }) = base {
        let base = manifest.base.as_ref().expect("it was read");
        said.push_str(&format!("{}: {damage}\n{keys} keys before the damage can be read\n", base.name));
        let left = on_flash.map_or(String::new(), |keys| format!(", and {keys} keys whose values are on flash"));
        let what = format!(
            "The keys behind the damage are lost{left}; the journal is not applied, because it changes keys that are lost."
        );
        let Some(to) = to else {
            return Err(Failure::failed(format!("{said}{what}")).hint("--to NEW writes the keys that can be read"));
        };
        make(to)?;
        let dump = to.join(DUMP);
        copy(&dir.join(&base.name), &dump, Some(sound_bytes)).map_err(about(&dump))?;
        return Ok(format!(
            "{said}{}: written. A node loads it as the dump in its dir. {what} The dump's checksum was not to be checked, so a value \
             before the damage may be wrong too.\n",
            dump.display()
        ));
    }
    let view = View::open(dir, manifest.log_id, manifest.position);
    let Err(error) = view else {
        return Ok(format!("{}: nothing is damaged: flintkv journal check tells more\n", dir.display()));
    };
    let broken = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let salvage = Salvage::open(dir, manifest.log_id, manifest.position).map_err(|error| broken(&error))?;
    let Some(salvage) = salvage else { return Err(broken(&error)) };
    let (mut records, mut kept_ms) = (0_u64, 0);
    salvage
        .records(&mut |_, record| {
            records += 1;
            kept_ms = record.time_ms;
        })
        .map_err(|error| broken(&error))?;
    said.push_str(&loss(&salvage, records, kept_ms));
    let (Some(to), true) = (to, cuts) else {
        return Err(Failure::failed(said).hint("--cut --to NEW writes the dataset as it was before the damage"));
    };
    make(to)?;
    for file in manifest.files() {
        copy(&dir.join(&file.name), &to.join(&file.name), None).map_err(about(&to.join(&file.name)))?;
    }
    let log_id = write_journal(to, Some(&salvage))?;
    manifest::write(to, Some(&Manifest { log_id, position: 0, stream: None, ..manifest }))
        .map_err(|error| broken(&error))?;
    Ok(format!(
        "{said}{}: the dataset as it was before the damage. Move it to the place of the damaged directory.\n",
        to.display()
    ))
}

fn dataset(dir: &Path) -> Result<Manifest, Failure> {
    if ::journal::is_in_use(dir) {
        return Err(Failure::refused(format!("{}: a node uses it: stop the node, or repair a copy", dir.display())));
    }
    match manifest::read(dir).map_err(Failure::failed)? {
        Found::Dataset(manifest) => Ok(manifest),
        Found::Void | Found::Nothing => {
            let hint = "give the directory flintkv.journal itself, or a copy of it";
            Err(Failure::failed(format!("{}: its manifest names no dataset", dir.display())).hint(hint))
        }
    }
}

/// What the cut costs.
fn loss(salvage: &Salvage, records: u64, kept_ms: u64) -> String {
    let ((at, durable), (lost, until_ms)) = (salvage.lost(), salvage.lost_records());
    let mut text = format!("{}\n", salvage.damage());
    text.push_str(&format!("{records} records before it can be read, up to position {at}\n"));
    text.push_str(&format!(
        "A cut there loses {} bytes of the journal, with at least {lost} records that are whole",
        durable.saturating_sub(at)
    ));
    if lost > 0 && kept_ms > 0 {
        let seconds = until_ms.saturating_sub(kept_ms).div_ceil(1000);
        text.push_str(&format!(", of the {seconds} seconds up to {}", moment::date(until_ms)));
    }
    text.push('\n');
    text
}

fn read_dump(dir: &Path, base: &Base) -> Result<Dump, Failure> {
    let path = dir.join(&base.name);
    let file = File::open(&path).map_err(about(&path))?;
    let mut dump = Dump { keys: 0, sound_bytes: 0, damage: None };
    let mut reader = match Reader::new(BufReader::with_capacity(256 << 10, file), true) {
        Ok(reader) => reader,
        Err(error) => return Err(Failure::failed(format!("{}: {error}: no key can be read", path.display()))),
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
    /// How many places of the index are damaged, and the keys that were named there.
    places: u64,
    lost: u64,
}

/// Reads an index, and writes what is sound of it as another one.
fn read_index(dir: &Path, file: &Base, mut sound: Option<&mut IndexWriter>) -> Result<OnFlash, Failure> {
    let path = dir.join(&file.name);
    let read = Index::open(&path).and_then(|mut index| {
        let (places, lost) = index.read_sound(&mut |stripe, uid, rows| match (&mut sound, &rows) {
            (None, _) => Ok(()),
            (Some(sound), Rows::Pairs(pairs)) => sound.put(stripe, uid, pairs),
            (Some(sound), Rows::Row(row)) => sound.put_row(stripe, uid, row),
        })?;
        Ok(OnFlash { keys: index.entries.saturating_sub(lost), places, lost })
    });
    read.map_err(|error| {
        Failure::failed(format!("{}: {error}", path.display())).hint(
            "its end has what reads the values on flash: the secret of the keys' hashes, the generations of the segments, and the \
             dictionaries. Restore a backup (flintkv database create --from), or the directory and the flash files from a copy of \
             the same moment",
        )
    })
}

/// Writes the dataset without the keys that damaged parts of its index named. `base_is_sound`: the dump is.
///
/// The records on flash do not have what it takes to find these keys again. The number of a record's unit begins anew at each start,
/// so nobody can tell which of two versions of a key is the later one, nor whether a version is later than the base, in which
/// case the journal would repeat commands on it that it has already. Deleted keys are there as well, and the parts of a
/// large collection do not name their key.
fn repair_index(
    dir: &Path,
    manifest: &Manifest,
    (index, keys, lost): (&Base, u64, u64),
    base_is_sound: bool,
    (to, cuts): (Option<&Path>, bool),
) -> Result<String, Failure> {
    let said = format!(
        "{}: the index is damaged: {keys} keys on flash can be read, and {lost} are lost\nThe records on flash do not tell which \
         version of a lost key was the last one, so none is guessed. A backup has them (flintkv database create --from).",
        index.name
    );
    if !base_is_sound {
        return Err(Failure::failed(format!("{said} The dump of the base is damaged too.")));
    }
    let Some(to) = to else {
        let hint = "--lose-keys --to NEW writes the dataset without these keys";
        return Err(Failure::failed(said).hint(hint));
    };
    if let (false, Err(error)) = (cuts, View::open(dir, manifest.log_id, manifest.position)) {
        let hint = "--cut gives the journal up";
        return Err(Failure::failed(format!("{said} The journal cannot be read either: {error}")).hint(hint));
    }
    make(to)?;
    let new = to.join(&index.name);
    let file = File::options().write(true).read(true).create_new(true).mode(0o600).open(&new).map_err(about(&new))?;
    let mut writer = IndexWriter::new(file);
    read_index(dir, index, Some(&mut writer))?;
    let table = Index::open(&dir.join(&index.name)).map_err(about(&new))?.table;
    let bytes = writer.finish(&table).map_err(about(&new))?;
    let is_journal = |name: &str| name.starts_with("journal-") && !name.ends_with("lock") && !name.ends_with(".new");
    let is_needed = |name: &str| Some(name) == dump_name(manifest) || !cuts && is_journal(name);
    for entry in std::fs::read_dir(dir).map_err(about(dir))? {
        let name = entry.map_err(about(dir))?.file_name();
        if name.to_str().is_some_and(is_needed) {
            copy(&dir.join(&name), &to.join(&name), None).map_err(about(&to.join(&name)))?;
        }
    }
    let mut manifest = Manifest { index: Some(Base { bytes, ..index.clone() }), ..manifest.clone() };
    let journal = match cuts {
        true => {
            let log_id = write_journal(to, None)?;
            (manifest.log_id, manifest.position, manifest.stream) = (log_id, 0, None);
            "The changes in the journal are lost: these keys are as the base has them."
        }
        false => {
            "The journal runs on it as if the lost keys had not been there, so one of them that was changed since the base may come back \
             with that change only. If the node refuses the journal for that reason, repair again with --cut, which gives it up."
        }
    };
    manifest::write(to, Some(&manifest)).map_err(Failure::failed)?;
    Ok(format!(
        "{said}\n{}: the dataset without these keys. {journal} Move this directory to the place of the damaged one; the flash files \
         stay, and the values of the lost keys are overwritten in time: copy the flash files first if you may need them.\n",
        to.display()
    ))
}

fn dump_name(manifest: &Manifest) -> Option<&str> {
    manifest.base.as_ref().map(|base| &*base.name)
}

fn make(to: &Path) -> Result<(), Failure> {
    // It must not be there: nothing is ever changed in place.
    DirBuilder::new().mode(0o700).create(to).map_err(about(to))
}

/// Copies a file, or the sound part of a dump.
fn copy(from: &Path, to: &Path, sound_bytes: Option<u64>) -> io::Result<()> {
    let mut source = File::open(from)?.take(sound_bytes.unwrap_or(u64::MAX));
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut target)?;
    if sound_bytes.is_some() {
        target.write_all(&END)?;
    }
    target.sync_all()
}

/// Writes a new journal with the records before the damage. `None`: without records. Returns its id.
fn write_journal(to: &Path, salvage: Option<&Salvage>) -> Result<[u8; 16], Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let mut log_id = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut log_id)).map_err(|error| broken(&error))?;
    let settings = Settings { log_id, file_bytes: FILE_BYTES, ring_bytes: RING_BYTES, policy: Policy::No };
    let log = Opened::open(to, &settings, 0).and_then(Opened::start).map_err(|error| broken(&error))?;
    let mut put = |_, record: &Record<'_>| {
        while log.is_behind() && !log.has_failed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        log.append(record);
    };
    salvage.map_or(Ok(()), |salvage| salvage.records(&mut put)).map_err(|error| broken(&error))?;
    log.close().map_err(|error| broken(&error))?;
    Ok(log_id)
}

fn about(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::failed(format!("{path}: {error}"))
}
