//! Owns the commands on keys of any type: existence, types, names and copies. Never knows what is in a value, except
//! how to copy it.

use crate::cx::Cx;
use crate::number::int;
use crate::row::{Access, Flag, KeyUse, Keys, Row, Values, is};
use crate::stop::{NO_SUCH_KEY, NOT_INTEGER, Run, SYNTAX, Stop};
use crate::strings::mark_raw;
use store::{Class, Cold, Key, Keyspace, Kind, NOTHING, Value};
use value::Boxed;

const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const FROM_TO: Keys = Keys::Range { first: 1, last: 2, step: 1 };

const BASE: Row = Row { since: "1.0.0", values: Values::Untouched, ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "copy",
        arity: -3,
        access: Access::First(KeyUse::READ, KeyUse::OVERWRITE),
        keys: FROM_TO,
        flags: &[Flag::Write, Flag::Denyoom],
        values: Values::Read,
        since: "6.2.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Copies a key with its value and expiry, also to another database.",
        syntax: "source destination [DB destination-db] [REPLACE]",
        examples: &[
            is("SET sheep Dolly", "OK"),
            is("COPY sheep clone", "(integer) 1"),
            is("GET clone", "\"Dolly\""),
            is("COPY sheep clone", "(integer) 0"),
            is("COPY sheep clone REPLACE", "(integer) 1"),
            is("COPY sheep sheep", "(error) ERR source and destination objects are the same"),
            is("COPY sheep clone DB 99", "(error) ERR DB index is out of range"),
        ],
        run: copy,
        ..BASE
    },
    Row {
        name: "del",
        arity: -2,
        access: Access::All(KeyUse::REMOVE),
        keys: Keys::ALL,
        flags: &[Flag::Write],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys; a large value is freed in the background.",
        summary: "Deletes keys and returns how many existed.",
        syntax: "key [key ...]",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("DEL a b nosuch a", "(integer) 2"),
            is("EXISTS a b", "(integer) 0"),
            is("DEL", "(error) ERR wrong number of arguments for 'del' command"),
        ],
        run: del,
        ..BASE
    },
    Row {
        name: "exists",
        arity: -2,
        access: Access::All(KeyUse::LOOK),
        keys: Keys::ALL,
        flags: READ_FAST,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys.",
        summary: "Tells how many of the keys exist; one that is named twice counts twice.",
        syntax: "key [key ...]",
        examples: &[
            is("SET a 1", "OK"),
            is("EXISTS a nosuch a", "(integer) 2"),
            is("EXISTS nosuch", "(integer) 0"),
            is("EXISTS", "(error) ERR wrong number of arguments for 'exists' command"),
        ],
        run: exists,
        ..BASE
    },
    Row {
        name: "move",
        arity: 3,
        flags: &[Flag::Write, Flag::Fast],
        values: Values::Read,
        summary: "Moves a key to another database, unless it exists there.",
        syntax: "key db",
        examples: &[
            is("SET k v", "OK"),
            is("MOVE k 1", "(integer) 1"),
            is("EXISTS k", "(integer) 0"),
            is("MOVE k 1", "(integer) 0"),
            is("MOVE k 0", "(error) ERR source and destination objects are the same"),
            is("MOVE k 99", "(error) ERR DB index is out of range"),
        ],
        run: move_,
        ..BASE
    },
    Row {
        name: "rename",
        arity: 3,
        access: Access::First(KeyUse::TAKE, KeyUse::OVERWRITE),
        keys: FROM_TO,
        flags: &[Flag::Write],
        values: Values::Read,
        complexity: "O(N) where N is the length of a string or packed value, O(1) for a large collection.",
        summary: "Gives a key another name, in place of any key that has it.",
        syntax: "key newkey",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("RENAME a b", "OK"),
            is("GET b", "\"1\""),
            is("RENAME a b", "(error) ERR no such key"),
        ],
        run: |cx| {
            rename(cx, false)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "renamenx",
        arity: 3,
        access: Access::First(KeyUse::TAKE, KeyUse::CREATE),
        keys: FROM_TO,
        flags: &[Flag::Write, Flag::Fast],
        values: Values::Read,
        complexity: "O(N) where N is the length of a string or packed value, O(1) for a large collection.",
        summary: "Gives a key another name if no key has it.",
        syntax: "key newkey",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("RENAMENX a b", "(integer) 0"),
            is("RENAMENX a c", "(integer) 1"),
            is("RENAMENX a c", "(error) ERR no such key"),
        ],
        run: |cx| {
            let renamed = rename(cx, true)?;
            cx.out.int(renamed.into());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "touch",
        arity: -2,
        access: Access::All(KeyUse::LOOK),
        keys: Keys::ALL,
        flags: READ_FAST,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        since: "3.2.1",
        complexity: "O(N) where N is the number of keys.",
        summary: "Marks keys as just used, and returns how many exist.",
        syntax: "key [key ...]",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("TOUCH a b nosuch", "(integer) 2"),
            is("TOUCH", "(error) ERR wrong number of arguments for 'touch' command"),
        ],
        run: touch,
        ..BASE
    },
    Row {
        name: "type",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        summary: "Names the type of the value at a key.",
        examples: &[
            is("SET s x", "OK"),
            is("TYPE s", "string"),
            is("HSET h f v", "(integer) 1"),
            is("TYPE h", "hash"),
            is("TYPE nosuch", "none"),
            is("TYPE", "(error) ERR wrong number of arguments for 'type' command"),
        ],
        run: |cx| {
            let found = cx.ks.peek(&cx.keys[0])?;
            cx.ks.looked_up(&cx.keys[0], found.is_some());
            cx.out.simple(found.map_or("none", |found| found.kind.name()));
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "unlink",
        arity: -2,
        access: Access::All(KeyUse::REMOVE),
        keys: Keys::ALL,
        flags: &[Flag::Write, Flag::Fast],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        since: "4.0.0",
        complexity: "O(1) for each key; a large value is freed in the background.",
        summary: "Deletes keys as DEL does, which frees large values in the background as well.",
        syntax: "key [key ...]",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("UNLINK a b nosuch", "(integer) 2"),
            is("UNLINK", "(error) ERR wrong number of arguments for 'unlink' command"),
        ],
        run: |cx| remove(cx, |ks, key| ks.unlink(key)),
        ..BASE
    },
];

/// How many of the keys `is_there`. The walk does not stop at the first cold key, so that all cold keys are read
/// together.
fn count(cx: &mut Cx<'_>, is_there: fn(&mut Cx<'_>, &Key<'_>) -> Result<bool, Cold>) -> Result<i64, Stop> {
    let (mut count, mut cold) = (0, false);
    for key in cx.keys {
        match is_there(cx, key) {
            Ok(found) => count += i64::from(found),
            Err(Cold) => cold = true,
        }
    }
    if cold { Err(Stop::Cold) } else { Ok(count) }
}

fn exists(cx: &mut Cx<'_>) -> Run {
    let found = count(cx, |cx, key| {
        let found = cx.ks.peek(key)?.is_some();
        cx.ks.looked_up(key, found);
        Ok(found)
    })?;
    cx.out.int(found);
    Ok(())
}

fn touch(cx: &mut Cx<'_>) -> Run {
    let found = count(cx, |cx, key| {
        let found = cx.ks.touch(key)?;
        cx.ks.looked_up(key, found);
        Ok(found)
    })?;
    cx.out.int(found);
    Ok(())
}

fn del(cx: &mut Cx<'_>) -> Run {
    remove(cx, |ks, key| ks.remove(key))
}

fn remove(cx: &mut Cx<'_>, one: impl Fn(&mut Keyspace<'_>, &Key<'_>) -> Result<bool, Cold>) -> Run {
    if cx.keys.len() > 1 {
        // All reads of all keys must come before the first removal.
        count(cx, |cx, key| Ok(cx.ks.peek(key)?.is_some()))?;
    }
    let mut removed = 0;
    for key in cx.keys {
        if one(&mut cx.ks, key)? {
            cx.ks.event(Class::GENERIC, "del", key);
            removed += 1;
        }
    }
    cx.out.int(removed);
    Ok(())
}

/// A value on its way to another key.
struct Parcel {
    content: Content,
    expiry: Option<u64>,
}

enum Content {
    String { bytes: Vec<u8>, raw: bool },
    Packed(Kind, Vec<u8>),
    Boxed(Boxed),
}

impl Parcel {
    /// A copy of the key's value. `None`: no such key.
    fn copied(cx: &mut Cx<'_>, key: &Key<'_>) -> Result<Option<Parcel>, Cold> {
        let Some(expiry) = cx.ks.expiry(key)? else { return Ok(None) };
        let raw = cx.ks.is_raw(key)?;
        let content = match cx.ks.get_to_edit(key)? {
            None => return Ok(None),
            Some(Value::Inline(Kind::String, bytes)) => Content::String { bytes: bytes.to_vec(), raw },
            Some(Value::Inline(kind, bytes)) => Content::Packed(kind, bytes.to_vec()),
            Some(Value::Boxed(boxed)) => Content::Boxed(boxed.clone()),
        };
        Ok(Some(Parcel { content, expiry }))
    }

    /// Like [`Parcel::copied`], for a key that is removed next: a large collection is taken out, not copied. All reads
    /// must be done before, because this may write.
    fn taken(cx: &mut Cx<'_>, key: &Key<'_>) -> Result<Option<Parcel>, Cold> {
        if !matches!(cx.ks.get_to_edit_for(key, NOTHING)?, Some(Value::Boxed(_))) {
            return Parcel::copied(cx, key);
        }
        let expiry = cx.ks.expiry(key)?.flatten();
        let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? else { return Ok(None) };
        Ok(value.boxed().map(|boxed| Parcel { content: Content::Boxed(boxed.take()), expiry }))
    }

    fn delivered(self, cx: &mut Cx<'_>, key: &Key<'_>) -> Run {
        match self.content {
            Content::String { bytes, raw } => {
                cx.ks.set_string(key, &bytes, self.expiry);
                if raw {
                    mark_raw(cx, key)?;
                }
            }
            Content::Packed(kind, bytes) => cx.ks.set_packed(key, kind, &bytes, self.expiry),
            Content::Boxed(boxed) => cx.ks.set_boxed(key, boxed, self.expiry),
        }
        Ok(())
    }
}

/// False only if `if_absent` is set and the new name is taken, even by the same key.
fn rename(cx: &mut Cx<'_>, if_absent: bool) -> Result<bool, Stop> {
    let (from, to) = (&cx.keys[0], &cx.keys[1]);
    if from.name == to.name {
        return if cx.ks.peek(from)?.is_some() { Ok(!if_absent) } else { Err(NO_SUCH_KEY) };
    }
    if cx.ks.get_to_edit_for(from, NOTHING)?.is_none() {
        return Err(NO_SUCH_KEY);
    }
    if if_absent && cx.ks.peek(to)?.is_some() {
        return Ok(false);
    }
    let parcel = Parcel::taken(cx, from)?.ok_or(NO_SUCH_KEY)?;
    cx.ks.remove(from)?;
    cx.ks.clear_for_new(to)?;
    parcel.delivered(cx, to)?;
    cx.ks.event(Class::GENERIC, "rename_from", from);
    cx.ks.event(Class::GENERIC, "rename_to", to);
    Ok(true)
}

pub const DB_OUT_OF_RANGE: Stop = Stop::error("ERR DB index is out of range");
const SAME_OBJECT: Stop = Stop::error("ERR source and destination objects are the same");

/// The number of a logical database.
pub fn database(cx: &Cx<'_>, text: &[u8]) -> Result<usize, Stop> {
    let number = int(text).ok_or(NOT_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(Stop::error("ERR value is out of range, value must between -2147483648 and 2147483647"));
    }
    usize::try_from(number).ok().filter(|&number| number < cx.settings.databases).ok_or(DB_OUT_OF_RANGE)
}

fn copy(cx: &mut Cx<'_>) -> Run {
    let (args, from, to) = (cx.args, &cx.keys[0], &cx.keys[1]);
    let source_db = cx.ks.db();
    let (mut db, mut replace) = (source_db, false);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            _ if word.eq_ignore_ascii_case(b"replace") => replace = true,
            Some(number) if word.eq_ignore_ascii_case(b"db") => {
                db = database(cx, number)?;
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if db == source_db && from.name == to.name {
        return Err(SAME_OBJECT);
    }
    if db != source_db && cx.session.is_divided() {
        return Err(Stop::error("ERR Copying to another database is not allowed in cluster mode"));
    }
    let parcel = match cx.ks.get(from)? {
        Some(_) => Parcel::copied(cx, from)?,
        None => None,
    };
    let Some(parcel) = parcel else {
        cx.out.int(0);
        return Ok(());
    };
    cx.ks.select(db);
    let copied = deliver_if(cx, parcel, to, replace);
    if matches!(copied, Ok(true)) {
        cx.ks.event(Class::GENERIC, "copy_to", to);
    }
    cx.ks.select(source_db);
    cx.out.int(copied?.into());
    Ok(())
}

/// Whether the parcel was delivered. An existing key is not overwritten without `replace`.
fn deliver_if(cx: &mut Cx<'_>, parcel: Parcel, to: &Key<'_>, replace: bool) -> Result<bool, Stop> {
    if !replace && cx.ks.peek(to)?.is_some() {
        return Ok(false);
    }
    cx.ks.clear_for_new(to)?;
    parcel.delivered(cx, to)?;
    Ok(true)
}

fn move_(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let (source_db, db) = (cx.ks.db(), database(cx, &args[2])?);
    if db == source_db {
        return Err(SAME_OBJECT);
    }
    if cx.session.is_divided() {
        return Err(Stop::error("ERR MOVE is not allowed in cluster mode"));
    }
    let found = cx.ks.get_to_edit_for(key, NOTHING)?.is_some();
    cx.ks.select(db);
    let taken = cx.ks.peek(key);
    cx.ks.select(source_db);
    if !found || taken?.is_some() {
        cx.out.int(0);
        return Ok(());
    }
    if let Some(parcel) = Parcel::taken(cx, key)? {
        cx.ks.remove(key)?;
        cx.ks.select(db);
        let delivered = parcel.delivered(cx, key);
        cx.ks.select(source_db);
        cx.ks.event(Class::GENERIC, "move_from", key);
        cx.ks.select(db);
        cx.ks.event(Class::GENERIC, "move_to", key);
        cx.ks.select(source_db);
        delivered?;
    }
    cx.out.int(1);
    Ok(())
}
