//! Owns the export of a journal to an append-only file that Redis 7.0 loads: first the values on flash and the checkpoint as
//! commands, then the records. Never knows what a command does, except for the few that Redis 7.0 lacks, that carry bytes in
//! a newer format, or that choose the logical database.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rdb::{Item, Key, Piece};
use resp::client::encode_command;
use value::rdb::stream::{Version, write};
use value::rdb::{Decoded, Parts, Type, dump_for, put_len, put_string, reseal, restore};
use value::stream::Stream;

use super::{
    ADVICE, IN_USE, check_values, commands, describe, each_record, open, open_index, read_checkpoint, read_items,
};
use crate::failure::Failure;
use crate::{Flash, Missing, Unread};

/// The logical database that the file has selected is not known.
const UNKNOWN: u64 = u64::MAX;
/// The version of Redis 7.0, for DUMP and RDB files.
const RDB_VERSION: u16 = 10;

pub fn export(
    dir: &Path,
    to: &Path,
    with_field_expiry: bool,
    (flash, flash_paths): (&Flash, &[PathBuf]),
) -> Result<String, Failure> {
    let opened = open(dir)?;
    let on_flash = open_index(dir, &opened)?.map_or(0, |index| index.entries);
    if on_flash > 0 && flash_paths.is_empty() {
        let what = format!("{}: {on_flash} values are on flash", dir.display());
        let hint = "stop the node, and give its flash-path with --flash-path; or flintkv database backup NAME --rdb-version 10 \
                    makes a dump of the running database that Redis loads";
        return Err(Failure::failed(what).hint(hint));
    }
    let about = |error: io::Error| Failure::failed(format!("{}: {error}", to.display()));
    let unreadable = match on_flash {
        0 => None,
        _ => Some(check_values(dir, (&opened.manifest, &opened.view), (flash, flash_paths))?),
    };
    if let Some((unreadable, _)) = unreadable.as_ref().filter(|(unreadable, _)| !unreadable.files.is_empty()) {
        let hint = "restore the flash files; flintkv repair --lose-keys saves what can be read";
        return Err(Failure::failed(unreadable.files.join("\n")).hint(hint));
    }
    let file = File::create_new(to).map_err(about)?;
    let mut out = Export {
        file: BufWriter::with_capacity(256 << 10, file),
        command: Vec::new(),
        db: 0,
        commands: 0,
        with_field_expiry,
        left_out: 0,
    };
    let index = opened.manifest.index.as_ref().filter(|_| on_flash > 0).map(|index| dir.join(&index.name));
    let unread = unreadable.as_ref().map_or_else(Unread::new, |(unreadable, _)| unreadable.entries.clone());
    let followed = index.as_deref().filter(|_| !unread.is_empty());
    let written = out
        .on_flash(index.as_deref(), (flash, flash_paths), &unread, to)
        .and_then(|()| out.all(dir, &opened, to, followed.map(|index| (index, flash, &unread))))
        .and_then(|()| out.file.flush().and_then(|()| out.file.get_ref().sync_all()).map_err(about));
    if let Err(failure) = written {
        // Best effort: an incomplete file must not be mistaken for the whole dataset.
        let _ = fs::remove_file(to);
        return Err(failure);
    }
    if opened.view.is_in_use() {
        eprintln!("{}: {IN_USE}", dir.display());
    }
    if let Some((unreadable, lost)) = unreadable.filter(|(unreadable, _)| !unreadable.entries.is_empty()) {
        eprintln!(
            "{}. They are left out, because after a start these keys would answer with errors",
            describe(&unreadable, &lost)
        );
    }
    if out.left_out > 0 {
        eprintln!(
            "{} commands about expiries of fields are left out, because Redis 7.0 does not know them: --with-field-expiry writes them",
            out.left_out
        );
    }
    Ok(format!("{}: {} commands, up to position {}\n", to.display(), out.commands, opened.view.end()))
}

struct Export {
    file: BufWriter<File>,
    command: Vec<u8>,
    db: u64,
    commands: u64,
    with_field_expiry: bool,
    /// The number of commands that set the expiry time of fields.
    left_out: u64,
}

impl Export {
    /// Writes the values on flash that an index names. They arrive as a dump through a pipe, so that only the bytes in the
    /// pipe are in memory.
    fn on_flash(
        &mut self,
        index: Option<&Path>,
        (flash, flash_paths): (&Flash, &[PathBuf]),
        unread: &Unread,
        to: &Path,
    ) -> Result<(), Failure> {
        let Some(index) = index else { return Ok(()) };
        let about = |error: io::Error| Failure::failed(format!("{}: {error}", to.display()));
        let (sender, receiver) = UnixStream::pair().map_err(about)?;
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || (flash.write_values)(index, flash_paths, unread, Box::new(sender)));
            let mut key: Option<Key> = None;
            let mut is_full = false;
            let read = read_items(index, receiver, &mut |item| {
                self.item(item, &mut key).map_err(about).inspect_err(|_| is_full = true)
            });
            let written = writing.join().expect("reading flash does not panic");
            // If the dump ended too early, the writer's error has the reason, unless the reader had stopped first.
            if is_full { read } else { written.map_err(Failure::failed).and(read) }
        })
    }

    /// `followed`: the index, and its entries whose values cannot be read; records that need one of these values are
    /// replaced. `None`: all records are exported unchanged.
    fn all(
        &mut self,
        dir: &Path,
        opened: &super::Opened,
        to: &Path,
        followed: Option<(&Path, &Flash, &Unread)>,
    ) -> Result<(), Failure> {
        let about = |error: io::Error| Failure::failed(format!("{}: {error}", to.display()));
        let mut key: Option<Key> = None;
        read_checkpoint(dir, opened, |item| self.item(item, &mut key).map_err(about))?;
        let mut put = |db: u32, resp: &[u8]| match commands(resp) {
            Some(commands) => self.record(db.into(), &commands).map_err(|error| format!("{}: {error}", to.display())),
            None => Err("a record of the journal is not a valid command".to_owned()),
        };
        let written = match followed {
            None => each_record(&opened.view, &mut |record| put(record.db, record.resp)),
            Some((index, flash, unread)) => {
                // In a cell because the records are passed as an `Fn`, although it is called only once.
                let put = RefCell::new(put);
                let records: &crate::Records<'_> = &|each| {
                    each_record(&opened.view, &mut |record| {
                        let instead = each(record.db, record.resp)?;
                        (put.borrow_mut())(record.db, instead.as_deref().unwrap_or(record.resp))
                    })
                };
                (flash.follow)(&Missing::Of(index, unread), records).map(drop)
            }
        };
        written.map_err(|what| Failure::failed(what).hint(ADVICE))
    }

    fn record(&mut self, db: u64, commands: &[super::Command]) -> io::Result<()> {
        self.select(db)?;
        for (args, bytes) in commands {
            match (args[0].to_ascii_lowercase().as_slice(), args.as_slice()) {
                (b"hpexpireat" | b"hpersist", _) if !self.with_field_expiry => {
                    self.left_out += 1;
                    continue;
                }
                (b"select", _) => self.db = UNKNOWN,
                (b"restore", [_, key, at_ms, payload, options @ ..]) => {
                    let payload = older(payload);
                    let mut args: Vec<&[u8]> = vec![b"RESTORE", key, at_ms, &payload];
                    args.extend(options.iter().map(Vec::as_slice));
                    self.write(&args)?;
                    continue;
                }
                (b"function", [_, what, payload, options @ ..]) if what.eq_ignore_ascii_case(b"restore") => {
                    // Function libraries have the same format in both versions.
                    let mut payload = payload.clone();
                    reseal(&mut payload, RDB_VERSION);
                    let mut args: Vec<&[u8]> = vec![b"FUNCTION", b"RESTORE", &payload];
                    args.extend(options.iter().map(Vec::as_slice));
                    self.write(&args)?;
                    continue;
                }
                _ => {}
            }
            self.commands += 1;
            self.file.write_all(bytes)?;
        }
        Ok(())
    }

    fn item(&mut self, item: Item, key: &mut Option<Key>) -> io::Result<()> {
        match item {
            Item::Function(code) => self.write(&[b"FUNCTION", b"LOAD", &code]),
            Item::Key(next) => {
                self.select(next.db)?;
                *key = Some(next);
                Ok(())
            }
            Item::Piece(piece) => self.piece(&key.as_ref().expect("a piece follows its key").name, &piece),
            Item::EndOfKey => match key.take() {
                Some(Key { name, expiry_ms: Some(at_ms), .. }) => {
                    self.write(&[b"PEXPIREAT", &name, at_ms.to_string().as_bytes()])
                }
                _ => Ok(()),
            },
            // Checkpoints of FlintKV contain no data of modules.
            Item::Aux(..) | Item::Skipped { .. } | Item::End => Ok(()),
            Item::Pages(_) | Item::Dictionary(_) => unreachable!("only a replica asks for them"),
        }
    }

    fn piece(&mut self, name: &[u8], piece: &Piece) -> io::Result<()> {
        match piece {
            Piece::Value(Decoded::String(text)) => self.write(&[b"SET", name, text]),
            Piece::Value(Decoded::List(parts)) => self.members(b"RPUSH", name, parts),
            Piece::Value(Decoded::Set(parts)) => self.members(b"SADD", name, parts),
            Piece::Value(Decoded::Hash(parts)) => self.members(b"HSET", name, parts),
            Piece::Value(Decoded::ZSet(parts, scores)) => {
                let scores: Vec<String> = scores.iter().map(|score| format!("{score:?}")).collect();
                let mut args: Vec<&[u8]> = vec![b"ZADD", name];
                parts.iter().zip(&scores).for_each(|(member, score)| args.extend([score.as_bytes(), member]));
                self.write(&args)
            }
            Piece::Value(Decoded::Stream(stream, _)) => self.write(&[b"RESTORE", name, b"0", &of_stream(stream)]),
            Piece::Stream(..) => unreachable!("streams are not wanted in parts"),
            Piece::Fields(pairs, expiries) => {
                self.members(b"HSET", name, pairs)?;
                for ((field, _), at_ms) in pairs.pairs().zip(expiries).filter(|&(_, &at_ms)| at_ms > 0) {
                    if self.with_field_expiry {
                        let at_ms = at_ms.to_string();
                        self.write(&[b"HPEXPIREAT", name, at_ms.as_bytes(), b"FIELDS", b"1", field])?;
                    } else {
                        self.left_out += 1;
                    }
                }
                Ok(())
            }
        }
    }

    fn members(&mut self, command: &[u8], name: &[u8], parts: &Parts) -> io::Result<()> {
        let mut args = Vec::with_capacity(parts.len() + 2);
        args.extend([command, name]);
        args.extend(parts.iter());
        self.write(&args)
    }

    fn select(&mut self, db: u64) -> io::Result<()> {
        if std::mem::replace(&mut self.db, db) == db {
            return Ok(());
        }
        self.write(&[b"SELECT", db.to_string().as_bytes()])
    }

    fn write(&mut self, args: &[&[u8]]) -> io::Result<()> {
        self.command.clear();
        encode_command(args, &mut self.command);
        self.commands += 1;
        self.file.write_all(&self.command)
    }
}

/// The payload of a stream in the newest form that Redis 7.0 reads.
fn of_stream(stream: &Stream) -> Vec<u8> {
    dump_for(Type::Stream2, RDB_VERSION, |out| write(stream, Version::V2, out))
}

/// A payload of DUMP in a form that Redis 7.0 reads.
fn older(payload: &[u8]) -> Vec<u8> {
    match (payload.first().copied().and_then(Type::from_u8), restore(payload)) {
        (Some(Type::Stream3), Ok(Decoded::Stream(stream, _))) => of_stream(&stream),
        (Some(Type::SetListpack), Ok(Decoded::Set(members))) => dump_for(Type::Set, RDB_VERSION, |out| {
            put_len(out, members.len() as u64);
            members.iter().for_each(|member| put_string(out, member));
        }),
        _ => {
            let mut payload = payload.to_owned();
            reseal(&mut payload, RDB_VERSION);
            payload
        }
    }
}
