//! Owns `flintkv journal`: showing, checking and exporting what keeps a database over restarts, and `flintkv repair`. Never changes the directory, and
//! never knows what a command does.

mod export;
mod repair;
mod show;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use ::journal::View;
use ::journal::index::Index;
use ::journal::manifest::{self, Found, Manifest};
use rdb::{Item, Reader};
use resp::client::{Value, parse_value};

use crate::Flash;
use crate::args::{Journal, JournalAction, Repair};
use crate::failure::Failure;

const ADVICE: &str = "restore the directory from a copy, or move it away to start without it";
const IN_USE: &str = "in use by a running node: the end may be missing";
/// A running node may replace its base, and use a file again, between two reads.
const ATTEMPTS: u32 = 5;

pub fn repair(args: &Repair, flash: &Flash) -> Result<String, Failure> {
    repair::repair(args, flash)
}

pub fn run(args: &Journal, flash: &Flash) -> Result<String, Failure> {
    match &args.action {
        JournalAction::Show { dir, from, limit } => show::show(dir, *from, *limit),
        JournalAction::Check { dir } => show::check(dir),
        JournalAction::Export { dir, to, with_field_expiry, flash_path } => {
            export::export(dir, to, *with_field_expiry, (flash, flash_path))
        }
    }
}

/// A directory as it was read.
struct Opened {
    manifest: Manifest,
    view: View,
    /// The base, opened before a running node could delete it.
    base: Option<File>,
}

fn open(dir: &Path) -> Result<Opened, Failure> {
    let mut attempt = 1;
    loop {
        match open_once(dir) {
            // Only a running node changes files.
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
    let base = match &manifest.base {
        Some(base) => {
            let path = dir.join(&base.name);
            let file = File::open(&path).map_err(|error| broken(format!("{}: {error}", path.display())))?;
            let bytes = file.metadata().map_err(|error| broken(format!("{}: {error}", path.display())))?.len();
            if bytes != base.bytes {
                let what = format!("{}: it has {bytes} bytes, and the manifest says {}", path.display(), base.bytes);
                return Err(broken(what));
            }
            Some(file)
        }
        None => None,
    };
    let view = View::open(dir, manifest.log_id, manifest.position).map_err(|error| broken(error.to_string()))?;
    Ok(Opened { manifest, view, base })
}

/// The index of the base, if there is one.
fn open_index(dir: &Path, opened: &Opened) -> Result<Option<Index>, Failure> {
    let Some(file) = &opened.manifest.index else { return Ok(None) };
    let path = dir.join(&file.name);
    let broken = |error| Failure::failed(format!("{}: {error}", path.display())).hint(ADVICE);
    Index::open(&path).map(Some).map_err(broken)
}

/// Gives `each` every item of the base, with its checksum compared.
fn read_base(dir: &Path, opened: &Opened, mut each: impl FnMut(Item) -> Result<(), Failure>) -> Result<(), Failure> {
    let (Some(file), Some(base)) = (&opened.base, &opened.manifest.base) else { return Ok(()) };
    read_items(&dir.join(&base.name), file, &mut each)
}

/// Gives `each` every item of a dump.
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

/// The commands of a record. `None`: it is no list of commands.
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
