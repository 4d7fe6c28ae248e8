//! Owns turning files into commands: a key of a dump becomes SET, RPUSH, SADD, HSET, ZADD or RESTORE, a piece of a large
//! collection at a time; commands of an append-only file stay as they are. So a dataset is loaded by the same code that
//! serves clients, waits for room as they do, and may be larger than RAM. Only pages of a primary's flash go into the store as they
//! are. Never knows how a value is kept.
//!
//! Commands of an append-only file that change no data are left out: QUIT or CLIENT REPLY OFF would concern the connection that loads.

use super::about;
use super::aof::{self, Commands};
use super::find::Plan;
use super::page_import::{FileImport, Own};
use super::pipe::{Broken, Expect, Pipe};
use super::pipes::Pipes;
use super::touched::Finder;
use crate::database::Database;
use base::clock::wall_ms;
use rdb::{Error, Item, Key, Piece, Reader, show_key};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::{Admission, Store};
use value::rdb::stream::Miscount;
use value::rdb::{Decoded, Parts, Type, dump, is_minus_zero, put_scored_listpack};

const READ_BYTES: usize = 256 << 10;

/// What a load has brought.
#[derive(Default)]
pub struct Loaded {
    pub keys: u64,
    /// Keys that were left out, because they have expired.
    pub expired: u64,
}

/// Why a primary's dataset could not be loaded.
pub enum Unloaded {
    /// There is no room for it.
    Full(String),
    /// Its pages do not suit: it may come without them.
    Pages(String),
    Other(String),
}

impl Unloaded {
    pub fn into_text(self) -> String {
        let (Unloaded::Full(why) | Unloaded::Pages(why) | Unloaded::Other(why)) = self;
        why
    }
}

impl From<String> for Unloaded {
    fn from(why: String) -> Unloaded {
        Unloaded::Other(why)
    }
}

/// Empties the database.
pub fn empty(database: &Database) -> Result<(), String> {
    let mut pipe = Pipe::open(database, 0)?;
    let sent = pipe.command(&[b"FLUSHALL"], Expect::Success);
    let sent = sent.and_then(|()| pipe.command(&[b"FUNCTION", b"FLUSH"], Expect::Success));
    let finished = pipe.finish().map(drop);
    finished.and(sent.map_err(|Broken| "the connection is broken".to_owned()))
}

/// Loads the files into the database, without keys that have expired. While an append-only file is read, nothing expires, as in Redis: the
/// file itself says what has expired.
pub fn load(database: &Database, plan: &Plan) -> Result<Loaded, String> {
    let checks = database.hub.config.snapshot().redis_files.rdbchecksum;
    if !plan.is_aof {
        return bring(database, plan, Load::new(database, Pipes::open(database)?, checks, wall_ms()));
    }
    let store = &database.shard.store;
    store.set_loads_commands(true);
    let loaded = Pipes::file(database).and_then(|pipes| bring(database, plan, Load::new(database, pipes, checks, 0)));
    store.set_loads_commands(false);
    loaded.map(|loaded| Loaded { keys: store.stats().keys, ..loaded })
}

/// Loads the checkpoint of a journal into the database, with all that is in it: the journal says what has expired.
pub fn load_base(database: &Database, plan: &Plan) -> Result<Loaded, String> {
    bring(database, plan, Load::new(database, Pipes::replay(database)?, true, 0))
}

/// As [`load_base`], for a primary's dataset, which is in a file of this name: it must have room, which one that was here before has had.
pub fn load_primarys(database: &Database, path: &Path, source: impl Read) -> Result<Loaded, Unloaded> {
    let load = Load::new(database, Pipes::replay(database)?, true, 0);
    let mut load = Load { primarys: Some(database), ..load };
    let ended = load.file(path, counted(database, source), Behind::Nothing);
    finish(load, ended, path)
}

fn bring(database: &Database, plan: &Plan, mut load: Load<'_>) -> Result<Loaded, String> {
    let config = database.hub.config.snapshot();
    let (mut ended, mut at) = (Ok(()), Path::new(""));
    for (nth, path) in plan.files.iter().enumerate() {
        let may_be_cut = nth + 1 == plan.files.len() && config.redis_files.aof_load_truncated;
        let behind = if plan.is_aof { Behind::Commands { may_be_cut } } else { Behind::Nothing };
        let source = File::open(path).map_err(|error| about(path, error))?;
        at = path;
        ended = load.file(path, counted(database, source), behind);
        if ended.is_err() {
            break;
        }
    }
    finish(load, ended, at).map_err(Unloaded::into_text)
}

fn counted<R: Read>(database: &Database, source: R) -> BufReader<Counted<R>> {
    BufReader::with_capacity(READ_BYTES, Counted { source, count: Arc::clone(&database.files.loaded_bytes) })
}

/// `path`: the file that was read last.
fn finish(load: Load<'_>, ended: Result<(), Ended>, path: &Path) -> Result<Loaded, Unloaded> {
    let Load { pipes, mut loaded, pages, skipped, .. } = load;
    let finished = pipes.finish().map_err(|why| about(path, why));
    if skipped > 0 {
        tracing::info!("{}: {skipped} commands change no data and were left out", path.display());
    }
    let taken = match (pages, &ended) {
        (Some(pages), Ok(()) | Err(Ended::Pages)) => pages.end(),
        // What has come is not wanted any more.
        _ => Ok(0),
    };
    loaded.keys += match taken {
        Ok(keys) => keys,
        // Also if flash is too small for pages: the values may have room in RAM.
        Err(refusal) => return Err(Unloaded::Pages(refusal.to_string())),
    };
    // If the database has refused something, the connection is broken for that reason.
    match (finished, ended) {
        (_, Err(Ended::Full(why))) => Err(Unloaded::Full(why)),
        (Err(why), Ok(()) | Err(Ended::Broken)) | (_, Err(Ended::File(why))) => Err(why.into()),
        (Ok(_), Err(Ended::Broken)) => Err("the connection to the database is broken".to_owned().into()),
        (_, Err(Ended::Pages)) => Err("pages were not imported".to_owned().into()),
        (Ok(0), Ok(())) => Ok(loaded),
        (Ok(errors), Ok(())) => {
            tracing::warn!("{errors} commands of the append-only file have failed");
            Ok(loaded)
        }
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    source: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        self.count.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// What comes in a file behind its dump.
#[derive(Clone, Copy)]
enum Behind {
    /// It is a dump. What follows its end is ignored, as Redis does, and never run.
    Nothing,
    /// It is an append-only file, which may also have no dump. `may_be_cut`: it may end in the middle of a command.
    Commands { may_be_cut: bool },
}

/// Why a load stopped.
enum Ended {
    Broken,
    File(String),
    /// There is no room.
    Full(String),
    /// Who takes in pages knows why.
    Pages,
}

impl From<Broken> for Ended {
    fn from(_: Broken) -> Ended {
        Ended::Broken
    }
}

struct Load<'d> {
    store: &'d Store,
    finder: Finder<'d>,
    pipes: Pipes,
    /// The dataset is a primary's, for this database: it ends when there is no room, and may have pages.
    primarys: Option<&'d Database>,
    pages: Option<FileImport>,
    /// Checksums are compared.
    checks: bool,
    now_ms: u64,
    loaded: Loaded,
    /// Commands that change no data.
    skipped: u64,
}

impl<'d> Load<'d> {
    fn new(database: &'d Database, pipes: Pipes, checks: bool, now_ms: u64) -> Load<'d> {
        let store = &database.shard.store;
        let finder = Finder::new(&database.hub.directory, store.hasher());
        let loaded = Loaded::default();
        Load { store, finder, pipes, primarys: None, pages: None, checks, now_ms, loaded, skipped: 0 }
    }

    /// The connection for commands on this key, in its logical database. `at`: where its record begins.
    fn pipe_of(&mut self, key: &Key, at: u64) -> Result<&mut Pipe, Broken> {
        let pipe = self.pipes.next(Some(self.store.hasher().hash(&key.name).stripe()))?;
        pipe.place(at, Some(&key.name));
        pipe.select(key.db)?;
        Ok(pipe)
    }

    /// Loads a dump, or an append-only file with or without a dump at its beginning. When it returns, all has run.
    fn file<R: Read>(&mut self, path: &Path, mut source: BufReader<Counted<R>>, behind: Behind) -> Result<(), Ended> {
        let fail = |what: String| Ended::File(about(path, what));
        let first = source.fill_buf().map_err(|error| fail(error.to_string()))?;
        if let Behind::Commands { may_be_cut } = behind
            && !first.starts_with(b"REDIS")
            && !first.starts_with(b"VALKEY")
        {
            self.commands(path, source, 0, may_be_cut)?;
            return Ok(self.pipes.drain()?);
        }
        let reader = Reader::new(source, self.checks).map_err(|error| fail(error.to_string()))?;
        let mut reader = reader.with_parts_of_streams();
        if self.primarys.is_some() {
            reader = reader.with_pages();
        }
        self.dump(path, &mut reader)?;
        let offset = reader.offset();
        let (rest, source) = reader.into_rest();
        let mut rest = Cursor::new(rest).chain(source);
        match behind {
            Behind::Commands { may_be_cut } => self.commands(path, rest, offset, may_be_cut)?,
            Behind::Nothing if rest.fill_buf().map_err(|error| fail(error.to_string()))?.is_empty() => {}
            Behind::Nothing => {
                tracing::warn!("{}: the dump ends at byte {offset}; what follows is ignored", path.display());
            }
        }
        Ok(self.pipes.drain()?)
    }

    fn dump<R: Read>(&mut self, path: &Path, reader: &mut Reader<R>) -> Result<(), Ended> {
        let fail = |error: Error| Ended::File(about(path, error));
        // And where its record begins. `None`: the key is left out.
        let mut key: Option<(Key, u64)> = None;
        loop {
            let at = reader.offset();
            match reader.next_item().map_err(fail)? {
                Item::Aux(..) => {}
                Item::Function(code) => {
                    let pipe = self.pipes.next(None)?;
                    pipe.place(at, None);
                    pipe.command(&[b"FUNCTION", b"LOAD", &code], Expect::Success)?;
                }
                Item::Skipped { module, key } => {
                    let what = key.map_or_else(|| "data that belongs to no key".to_owned(), |key| show_key(&key));
                    tracing::warn!("{}: data of the module {module} is left out: {what}", path.display());
                }
                Item::Key(next) if next.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= self.now_ms) => {
                    self.loaded.expired += 1;
                    key = None;
                }
                Item::Key(next) => {
                    self.loaded.keys += 1;
                    key = Some((next, at));
                }
                Item::Piece(piece) if piece.is_empty() => {
                    if let Some((Key { name, .. }, _)) = key.take() {
                        let whose = show_key(&name);
                        tracing::warn!("{}: {whose} has no members and is left out, as by Redis", path.display());
                        self.loaded.keys -= 1;
                    }
                }
                Item::Piece(_) if self.primarys.is_some() && self.store.admission() == Admission::Full => {
                    return Err(Ended::Full(self.store.refusal().to_owned()));
                }
                Item::Piece(piece) => {
                    if let Some((key, at)) = &key {
                        self.piece(path, key, *at, &piece)?;
                    }
                }
                Item::EndOfKey => {
                    if let Some((key, at)) = key.take()
                        && let Some(at_ms) = key.expiry_ms
                    {
                        let at_ms = at_ms.to_string();
                        let args: [&[u8]; 3] = [b"PEXPIREAT", &key.name, at_ms.as_bytes()];
                        self.pipe_of(&key, at)?.command(&args, Expect::Success)?;
                    }
                }
                Item::Pages(bytes) => self.take(Own::Pages(bytes))?,
                Item::Dictionary(bytes) => self.take(Own::Dictionary(bytes))?,
                Item::End => return Ok(()),
            }
        }
    }

    /// Gives pages to the thread that takes them in.
    fn take(&mut self, own: Own) -> Result<(), Ended> {
        let pages = match (&mut self.pages, self.primarys) {
            (Some(pages), _) => pages,
            (none, Some(database)) => none.insert(FileImport::begin(database).map_err(Ended::File)?),
            (None, None) => unreachable!("only a primary's dataset is read with pages"),
        };
        if pages.add(own) { Ok(()) } else { Err(Ended::Pages) }
    }

    fn piece(&mut self, path: &Path, key: &Key, at: u64, piece: &Piece) -> Result<(), Broken> {
        let (name, now_ms) = (&*key.name, self.now_ms);
        let pipe = self.pipe_of(key, at)?;
        let tell = |miscount: &Option<Miscount>| {
            if let Some(miscount) = miscount {
                tracing::warn!("{}: {}: {miscount}", path.display(), show_key(name));
            }
        };
        match piece {
            Piece::Value(Decoded::String(text)) => pipe.command(&[b"SET", name, text], Expect::Success),
            Piece::Value(Decoded::List(parts)) => members(pipe, b"RPUSH", name, parts, Expect::Success),
            Piece::Value(Decoded::Set(parts)) => members(pipe, b"SADD", name, parts, Expect::Count(parts.len() as u64)),
            Piece::Value(Decoded::Hash(parts)) => {
                members(pipe, b"HSET", name, parts, Expect::Count(parts.len() as u64 / 2))
            }
            // ZADD would make it zero, as a new score is in the packed form. Redis takes this form as it is.
            Piece::Value(Decoded::ZSet(parts, scores))
                if Type::from_u8(key.kind).is_some_and(Type::has_text_scores)
                    && scores.iter().any(|&score| is_minus_zero(score)) =>
            {
                let members = parts.iter().zip(scores.iter().copied());
                let payload = dump(Type::ZSetListpack, |out| put_scored_listpack(out, members));
                pipe.command(&[b"RESTORE", name, b"0", &payload], Expect::Success)
            }
            Piece::Value(Decoded::ZSet(parts, scores)) => {
                let scores: Vec<String> = scores.iter().map(|score| format!("{score:?}")).collect();
                let mut args: Vec<&[u8]> = vec![b"ZADD", name];
                parts.iter().zip(&scores).for_each(|(member, score)| args.extend([score.as_bytes(), member]));
                pipe.command(&args, Expect::Count(parts.len() as u64))
            }
            Piece::Value(Decoded::Stream(stream, miscount)) => {
                tell(miscount);
                let payload = dump(Type::Stream3, |out| stream.encode(out));
                pipe.command(&[b"RESTORE", name, b"0", &payload], Expect::Success)
            }
            Piece::Stream(part, miscount) => {
                tell(miscount);
                let payload = dump(Type::Stream3, |out| part.encode(out));
                pipe.command(&[b"RESTORE", name, b"0", &payload, b"PART"], Expect::Success)
            }
            Piece::Fields(pairs, expiries) => fields(pipe, now_ms, name, pairs, expiries),
        }
    }

    /// The commands of an append-only file.
    fn commands(&mut self, path: &Path, source: impl BufRead, offset: u64, may_be_cut: bool) -> Result<(), Ended> {
        let mut commands = Commands::new(source, offset);
        let mut command = aof::Command::default();
        // One after the other: the file says of no command which keys it touches.
        let pipe = self.pipes.next(None)?;
        // As in Redis, each file begins in database 0.
        pipe.select(0)?;
        // A transaction counts only with its EXEC.
        let mut in_transaction = false;
        loop {
            let cut_at = match commands.read(&mut command) {
                Ok(true) if self.finder.changes_nothing(&command.name, &command.bytes) => {
                    self.skipped += 1;
                    continue;
                }
                Ok(true) => {
                    match &*command.name {
                        b"multi" => in_transaction = true,
                        b"exec" => in_transaction = false,
                        // The connection's database is known no longer.
                        b"select" => pipe.forget_selected(),
                        _ => {}
                    }
                    pipe.place(commands.offset() - command.bytes.len() as u64, None);
                    pipe.encoded(&command.bytes, Expect::Any, 1)?;
                    continue;
                }
                Ok(false) if !in_transaction => return Ok(()),
                Ok(false) => commands.offset(),
                Err(Error::Truncated { offset }) => offset,
                Err(Error::Bad { offset, what }) => {
                    let what =
                        format!("byte {offset}: {what}. Keep a copy of the file, and repair it with redis-check-aof");
                    return Err(Ended::File(about(path, what)));
                }
                Err(error) => return Err(Ended::File(about(path, error))),
            };
            if !may_be_cut {
                let what = format!(
                    "it ends in the middle of a command or transaction after byte {cut_at}. With aof-load-truncated yes, the last file is loaded without this part"
                );
                return Err(Ended::File(about(path, what)));
            }
            tracing::warn!(
                "{}: the command or transaction after byte {cut_at} is cut off and left out",
                path.display()
            );
            if in_transaction {
                pipe.command(&[b"DISCARD"], Expect::Any)?;
            }
            return Ok(());
        }
    }
}

fn members(pipe: &mut Pipe, command: &[u8], name: &[u8], parts: &Parts, expect: Expect) -> Result<(), Broken> {
    let mut args = Vec::with_capacity(parts.len() + 2);
    args.extend([command, name]);
    args.extend(parts.iter());
    pipe.command(&args, expect)
}

/// Fields with their expiries. Fields that have expired are left out.
fn fields(pipe: &mut Pipe, now_ms: u64, name: &[u8], pairs: &Parts, expiries: &[u64]) -> Result<(), Broken> {
    let pairs = pairs.pairs().zip(expiries).map(|((field, value), &at_ms)| (field, value, at_ms));
    let there: Vec<_> = pairs.filter(|&(_, _, at_ms)| at_ms == 0 || at_ms > now_ms).collect();
    if there.is_empty() {
        return Ok(());
    }
    let mut args: Vec<&[u8]> = vec![b"HSET", name];
    there.iter().for_each(|&(field, value, _)| args.extend([field, value]));
    pipe.command(&args, Expect::Count(there.len() as u64))?;
    for (field, _, at_ms) in there.into_iter().filter(|&(_, _, at_ms)| at_ms > 0) {
        let at_ms = at_ms.to_string();
        pipe.command(&[b"HPEXPIREAT", name, at_ms.as_bytes(), b"FIELDS", b"1", field], Expect::Success)?;
    }
    Ok(())
}
