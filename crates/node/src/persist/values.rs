//! Owns the question which values of a stopped dataset cannot be read on flash, and which keys are therefore lost when the journal has run.
//! This is what a start would find, for `flintkv repair` and `flintkv journal`. Never changes a file.

use super::salvage::{Unread, open_left, store_of};
use crate::files::about;
use commands::Args;
use engine::{Directory, Step, Words, instead};
use journal::index::{Index, Rows};
use resp::client::encode_command;
use resp::{Limits, Parsed, Progress, Source, Span, parse};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use store::{Hasher, Key, Restoring};

/// So many entries are sorted by their places on flash, and read in this order.
const ENTRIES_AT_ONCE: usize = 4 << 20;
/// Logical databases that a journal may name.
const DATABASES_MAX: u32 = 64;
/// The limits of a file: who wrote it has accepted its commands.
const LIMITS: Limits =
    Limits { bulk_bytes_max: u32::MAX as usize, args_count_max: u32::MAX as usize, ..Limits::DEFAULT };

/// Calls a function with the logical database and the commands of each record of the journal. For a record that needs a value that cannot
/// be read, the function returns the record that replaces it. `None`: the record stays.
pub type Records<'r> = dyn Fn(&mut dyn FnMut(u32, &[u8]) -> Result<Option<Vec<u8>>, String>) -> Result<(), String> + 'r;

/// What cannot be read.
#[derive(Default)]
pub struct Unreadable {
    /// Entries of the index, by their stripes, table ids and hashes.
    pub entries: Unread,
    /// Flash files that are missing, cut, or have no superblock any more. A node does not start with them.
    pub files: Vec<String>,
}

/// Reads all values that an index names.
pub fn check_values(index: &Path, flash_paths: &[PathBuf]) -> Result<Unreadable, String> {
    let (mut opened, checkpoint, logs, files) = open_left(index, flash_paths)?;
    let (_store, restoring) = store_of(index, &checkpoint, logs)?;
    let hasher = Hasher::new(checkpoint.secret());
    let entries = unread(&mut opened, &restoring, &hasher).map_err(|error| about(index, error))?;
    Ok(Unreadable { entries, files })
}

/// What the journal starts from.
pub enum Missing<'m> {
    /// These entries of an index, because their values cannot be read.
    Of(&'m Path, &'m Unread),
    /// These keys, with their logical databases.
    Keys(&'m [(u64, Vec<u8>)]),
}

/// Follows what the journal's records do to keys whose values are not there. Returns the keys that are lost at the journal's end, as far as
/// it names them, with their logical databases. The record that replaces another one removes the keys that are lost by it.
pub fn follow(missing: &Missing<'_>, records: &Records<'_>) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let (secret, table_ids, keys, unread) = match missing {
        Missing::Keys(keys) => ([0; 2], (0..DATABASES_MAX).collect(), keys.iter().cloned().collect(), &Unread::new()),
        Missing::Of(index, unread) => {
            let opened = Index::open(index).map_err(|error| about(index, error))?;
            let values = super::index::decode(&opened.table);
            let values = values.ok_or_else(|| about(index, "the index is damaged: its table is invalid"))?;
            (values.checkpoint.secret(), values.checkpoint.table_ids().to_vec(), BTreeSet::new(), *unread)
        }
    };
    let mut follow = Follow {
        directory: Directory::new(commands::table::all(), &[]).expect("no command has another name"),
        hasher: Hasher::new(secret),
        table_ids,
        unread,
        known: keys.iter().map(|(db, name)| (*db, Some(name.clone()))).collect(),
        lost: keys,
    };
    records(&mut |db, resp| follow.record(db.into(), resp))?;
    Ok(follow.lost.into_iter().collect())
}

fn unread(index: &mut Index, restoring: &Restoring, hasher: &Hasher) -> io::Result<Unread> {
    let mut unread = Unread::new();
    let mut some: Vec<(u16, u16, (u64, u64))> = Vec::new();
    let read_some = |some: &mut Vec<(u16, u16, (u64, u64))>, unread: &mut Unread| {
        // The hash is in the upper bits of the word, the place below it.
        some.sort_unstable_by_key(|&(_, _, (_, word))| word & ((1 << 40) - 1));
        for (stripe, table_id, entry) in some.drain(..) {
            if restoring.try_entry(stripe, table_id, entry).is_err() {
                unread.insert((stripe, table_id, entry.0));
            }
        }
    };
    index.read::<io::Error>(&mut |stripe, table_id, rows| {
        match rows {
            Rows::Pairs(pairs) => {
                some.extend(pairs.into_iter().map(|entry| (stripe, table_id, entry)));
                if some.len() >= ENTRIES_AT_ONCE {
                    read_some(&mut some, &mut unread);
                }
            }
            Rows::Row(row) => {
                if let Some((name, Err(_))) = restoring.try_parts(&row) {
                    unread.insert((stripe, table_id, hasher.hash(name).high));
                }
            }
        }
        Ok(())
    })?;
    read_some(&mut some, &mut unread);
    Ok(unread)
}

/// Follows what the journal makes of values that cannot be read, by the rows of its commands.
struct Follow<'c> {
    directory: Directory,
    hasher: Hasher,
    table_ids: Vec<u32>,
    unread: &'c Unread,
    /// Keys that were set, removed or lost since the checkpoint: `lost` has those of them that are lost. `None`: all keys of the logical database.
    known: HashSet<(u64, Option<Vec<u8>>)>,
    lost: BTreeSet<(u64, Vec<u8>)>,
}

impl Follow<'_> {
    fn record(&mut self, mut db: u64, resp: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (mut progress, mut spans): (Progress, Vec<Span>) = Default::default();
        let (mut rest, mut out, mut is_changed) = (resp, Vec::new(), false);
        while !rest.is_empty() {
            spans.clear();
            let consumed = match parse(rest, &mut progress, &LIMITS, &mut spans) {
                Ok(Parsed::Complete { consumed, source: Source::Input }) if !spans.is_empty() => consumed,
                _ => return Err("a record of the journal is not a valid command".to_owned()),
            };
            let args = Args::new(rest, &spans);
            if args[0].eq_ignore_ascii_case(b"select") {
                db = args.get(1).and_then(number).unwrap_or(db);
            }
            if self.command(db, args, &mut out)? {
                out.extend_from_slice(&rest[..consumed]);
            } else {
                is_changed = true;
            }
            rest = &rest[consumed..];
        }
        Ok(is_changed.then_some(out))
    }

    /// Whether the command can run. If not, `out` gets what is done instead.
    fn command(&mut self, db: u64, args: Args<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let Some(row) = self.directory.original(&args[0]).map(|command| command.row) else { return Ok(true) };
        match row.name {
            "swapdb" => {
                return Err("the journal exchanges logical databases, so its changes cannot be attributed to keys: --cut discards the journal"
                    .to_owned());
            }
            "flushdb" => self.empty(db),
            "flushall" => (0..self.table_ids.len() as u64).for_each(|db| self.empty(db)),
            _ => {}
        }
        let mut positions = Vec::new();
        row.keys.positions(&args, &mut positions);
        let keys: Vec<Key<'_>> =
            positions.iter().filter_map(|&at| args.get(at)).map(|name| self.hasher.key(name)).collect();
        let word = |nth: usize| row.key_use(nth, &args).words[0];
        let needs_lost = |(nth, key): (usize, &Key<'_>)| matches!(word(nth), "RO" | "RW") && self.is_lost(db, key);
        // KEEPTTL keeps the key's expiry, which is not known.
        let keeps = row.name == "set" && args.from(3).any(|word| word.eq_ignore_ascii_case(b"keepttl"));
        let fails = keys.iter().enumerate().any(needs_lost) || keeps && keys.iter().any(|key| self.is_lost(db, key));
        if !fails {
            let target = if let "move" | "copy" = row.name { target(&args) } else { None };
            for (nth, key) in keys.iter().enumerate() {
                if matches!(word(nth), "OW" | "RM") || row.name == "move" {
                    self.heal(target.unwrap_or(db), key.name);
                }
            }
            return Ok(true);
        }
        let command = self.directory.original(&args[0]).expect("it was found");
        for step in instead(command, args, &keys) {
            match step {
                Step::Run(words) => {
                    if self.command(db, Words::of(&words).args(), out)? {
                        encode_command(&words, out);
                    }
                }
                Step::Lose { db: other, key } => {
                    let lost_in = other.and_then(number).unwrap_or(db);
                    self.known.insert((lost_in, Some(key.to_vec())));
                    self.lost.insert((lost_in, key.to_vec()));
                    let select = |db: u64, out: &mut Vec<u8>| {
                        encode_command(&[b"SELECT", db.to_string().as_bytes()], out);
                    };
                    if lost_in != db {
                        select(lost_in, out);
                    }
                    encode_command(&[b"DEL", key], out);
                    if lost_in != db {
                        select(db, out);
                    }
                }
            }
        }
        Ok(false)
    }

    fn is_lost(&self, db: u64, key: &Key<'_>) -> bool {
        let name = key.name.to_vec();
        if self.known.contains(&(db, Some(name.clone()))) {
            return self.lost.contains(&(db, name));
        }
        let Some(&table_id) = usize::try_from(db).ok().and_then(|db| self.table_ids.get(db)) else { return false };
        !self.known.contains(&(db, None))
            && self.unread.contains(&(key.hash.stripe() as u16, table_id as u16, key.hash.high))
    }

    fn heal(&mut self, db: u64, name: &[u8]) {
        self.lost.remove(&(db, name.to_vec()));
        // Only such a key is looked for again.
        let key = self.hasher.key(name);
        let table_id = usize::try_from(db).ok().and_then(|db| self.table_ids.get(db)).copied();
        let is_unread = table_id
            .is_some_and(|table_id| self.unread.contains(&(key.hash.stripe() as u16, table_id as u16, key.hash.high)));
        if is_unread {
            self.known.insert((db, Some(name.to_vec())));
        }
    }

    fn empty(&mut self, db: u64) {
        self.lost.retain(|&(of, _)| of != db);
        self.known.retain(|&(of, _)| of != db);
        self.known.insert((db, None));
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The logical database that MOVE and COPY write to.
fn target(args: &Args<'_>) -> Option<u64> {
    let at = match args.len() {
        3 if args[0].eq_ignore_ascii_case(b"move") => 2,
        len => (3..len).find(|&at| args[at].eq_ignore_ascii_case(b"db"))? + 1,
    };
    number(args.get(at)?)
}
