//! Owns `flintkv journal`, which shows, checks and exports the checkpoint and the journal of a database, and `flintkv
//! repair`. Never changes the directory, and never knows what a command does.

mod export;
mod repair;
mod show;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::journal::index::Index;
use ::journal::manifest::{self, Found, Manifest};
use ::journal::{Record, View};
use rdb::{Item, Reader};
use resp::client::{Value, parse_value};

use crate::args::{Journal, JournalAction, Repair};
use crate::failure::Failure;
use crate::{Flash, Missing, Names, Unreadable};

const ADVICE: &str = "restore the directory from a copy, or move it away to start without it";
const IN_USE: &str = "in use by a running node: the newest records may be missing";
/// The most keys that are listed by name.
const NAMES_MAX: usize = 1000;
/// A running node may replace its checkpoint, and use a file again, between two reads.
const ATTEMPTS: u32 = 5;

pub fn repair(args: &Repair, flash: &Flash) -> Result<String, Failure> {
    repair::repair(args, flash)
}

pub fn run(args: &Journal, flash: &Flash) -> Result<String, Failure> {
    match &args.action {
        JournalAction::Show { dir, from, limit } => show::show(dir, *from, *limit),
        JournalAction::Check { dir, flash_path } => show::check(dir, (flash, flash_path)),
        JournalAction::Export { dir, to, with_field_expiry, flash_path } => {
            export::export(dir, to, *with_field_expiry, (flash, flash_path))
        }
    }
}

/// A directory, and what was read of it.
struct Opened {
    manifest: Manifest,
    view: View,
    /// The checkpoint, opened before a running node could delete it.
    checkpoint: Option<File>,
}

fn open(dir: &Path) -> Result<Opened, Failure> {
    let mut attempt = 1;
    loop {
        match open_once(dir) {
            // Try again only if a node is running: otherwise the files cannot have changed.
            Err(_) if attempt < ATTEMPTS && ::journal::is_in_use(dir) => attempt += 1,
            opened => return opened,
        }
    }
}

fn open_once(dir: &Path) -> Result<Opened, Failure> {
    let broken = |what: String| Failure::failed(what).hint(ADVICE);
    let manifest = match manifest::read(dir).map_err(broken)? {
        Found::Dataset(manifest) => manifest,
        Found::Void => {
            return Err(Failure::failed(format!("{}: its manifest says that there is no dataset", dir.display())));
        }
        Found::Nothing => {
            let hint = "give the directory flintkv.journal itself, which is in the node's dir";
            return Err(Failure::failed(format!("{} has no manifest", dir.display())).hint(hint));
        }
    };
    let checkpoint = match &manifest.checkpoint {
        Some(checkpoint) => {
            let path = dir.join(&checkpoint.name);
            let file = File::open(&path).map_err(|error| broken(format!("{}: {error}", path.display())))?;
            let bytes = file.metadata().map_err(|error| broken(format!("{}: {error}", path.display())))?.len();
            if bytes != checkpoint.bytes {
                let what =
                    format!("{}: it has {bytes} bytes, but the manifest says {}", path.display(), checkpoint.bytes);
                return Err(broken(what));
            }
            Some(file)
        }
        None => None,
    };
    let view = View::of(dir, &manifest).map_err(|error| broken(error.to_string()))?;
    Ok(Opened { manifest, view, checkpoint })
}

/// The index of the checkpoint, if there is one.
fn open_index(dir: &Path, opened: &Opened) -> Result<Option<Index>, Failure> {
    let Some(file) = &opened.manifest.index else { return Ok(None) };
    let path = dir.join(&file.name);
    let broken = |error| Failure::failed(format!("{}: {error}", path.display())).hint(ADVICE);
    Index::open(&path).map(Some).map_err(broken)
}

/// The values on flash that cannot be read, and the keys that are lost because of them after the journal is applied.
fn check_values(
    dir: &Path,
    (manifest, view): (&Manifest, &View),
    (flash, flash_paths): (&Flash, &[PathBuf]),
) -> Result<(Unreadable, Names), Failure> {
    let nothing = Unreadable { entries: HashSet::new(), files: Vec::new() };
    let Some(index) = manifest.index.as_ref().map(|index| dir.join(&index.name)) else {
        return Ok((nothing, Vec::new()));
    };
    let unreadable = (flash.check_values)(&index, flash_paths).map_err(Failure::failed)?;
    if unreadable.entries.is_empty() {
        return Ok((unreadable, Vec::new()));
    }
    let lost = (flash.follow)(&Missing::Of(&index, &unreadable.entries), &|each| {
        each_record(view, &mut |record| each(record.db, record.resp).map(drop))
    });
    lost.map(|lost| (unreadable, lost)).map_err(Failure::failed)
}

/// Calls `each` with the records of a journal, until there is an error.
fn each_record(view: &View, each: &mut dyn FnMut(&Record<'_>) -> Result<(), String>) -> Result<(), String> {
    let mut ended = Ok(());
    let read = view.records(&mut |_, record| {
        ended = each(record);
        if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(|error| error.to_string()).and(ended)
}

/// A text that describes what cannot be read.
fn describe(unreadable: &Unreadable, lost: &[(u64, Vec<u8>)]) -> String {
    let mut text: String = unreadable.files.iter().map(|file| format!("{file}\n")).collect();
    text.push_str(&format!("{} values on flash cannot be read", unreadable.entries.len()));
    if !lost.is_empty() {
        let names = lost.iter().take(NAMES_MAX).map(|(db, name)| format!("{db}:{}", name.escape_ascii()));
        let more = if lost.len() > NAMES_MAX { " …" } else { "" };
        text.push_str(&format!(
            "; {} keys are lost, because the journal changes them and their earlier values are not known: {}{more}",
            lost.len(),
            names.collect::<Vec<_>>().join(" ")
        ));
    }
    text
}

/// Calls `each` with every item of the checkpoint, and checks its checksum.
fn read_checkpoint(
    dir: &Path,
    opened: &Opened,
    mut each: impl FnMut(Item) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (Some(file), Some(checkpoint)) = (&opened.checkpoint, &opened.manifest.checkpoint) else { return Ok(()) };
    read_items(&dir.join(&checkpoint.name), file, &mut each)
}

/// Calls `each` with every item of a dump.
fn read_items(path: &Path, dump: impl Read, each: &mut dyn FnMut(Item) -> Result<(), Failure>) -> Result<(), Failure> {
    let broken = |error: rdb::Error| Failure::failed(format!("{}: {error}", path.display())).hint(ADVICE);
    let mut reader = Reader::new(BufReader::with_capacity(256 << 10, dump), true).map_err(broken)?;
    loop {
        match reader.next_item().map_err(broken)? {
            Item::End => return Ok(()),
            item => each(item)?,
        }
    }
}

/// A command of a record: its arguments and its bytes.
type Command<'a> = (Vec<Vec<u8>>, &'a [u8]);

/// The commands of a record. `None`: the record is not a list of commands.
fn commands(mut resp: &[u8]) -> Option<Vec<Command<'_>>> {
    let mut commands = Vec::new();
    while !resp.is_empty() {
        let (Value::Array(values), bytes) = parse_value(resp).ok()?? else { return None };
        let arg = |value| if let Value::Bulk(arg) = value { Some(arg) } else { None };
        let args: Vec<Vec<u8>> = values.into_iter().map(arg).collect::<Option<_>>()?;
        if args.is_empty() {
            return None;
        }
        let (command, rest) = resp.split_at(bytes);
        commands.push((args, command));
        resp = rest;
    }
    Some(commands)
}
