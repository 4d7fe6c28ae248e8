//! Owns the commands on hashes, and when a packed hash becomes a table. Never knows other types, except to refuse them.

mod expiry;

pub use expiry::ROWS as EXPIRY_ROWS;

use crate::counters::{NOT_FINITE, OVERFLOW};
use crate::cx::{
    BULK_FRAME_BYTES, Cx, REPLY_BYTES_MAX, Settings, bulk_bytes, claim, claim_reply, drawn_bytes, share_of,
};
use crate::number::{self, Digits, int_or_error};
use crate::random::{self, Draws, SAMPLE_MAX, Selection};
use crate::row::{Access, Effect, Flag, Group, KeyUse, Row, is, only_here};
use crate::scan::{INVALID_CURSOR, SCAN_COUNT, ScanOf, ScanOptions};
use crate::stop::{NOT_FLOAT, OUT_OF_RANGE, Run, SYNTAX, Stop, WRONG_TYPE, wrong_arity};
use resp::LongDouble;
use resp::reply::{Out, Proto};
use std::collections::HashSet;
use std::iter::once;
use store::{Class, Kind, NOTHING, Value, ValueMut};
use value::hash::{Step, Table, packed};
use value::{Absent, Boxed, Buffer};

const READ: &[Flag] = &[Flag::Readonly];
const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Denyoom, Flag::Fast];

const BASE: Row = Row { group: Group::Hash, since: "2.0.0", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "hdel",
        arity: -3,
        access: Access::All(KeyUse::DELETE),
        flags: &[Flag::Write, Flag::Fast],
        complexity: "O(N) where N is the number of fields to remove.",
        summary: "Removes fields of a hash; the last one takes the key with it.",
        syntax: "key field [field ...]",
        examples: &[
            is("HSET h a 1 b 2", "(integer) 2"),
            is("HDEL h a nosuch", "(integer) 1"),
            is("HDEL h b", "(integer) 1"),
            is("EXISTS h", "(integer) 0"),
            is("SET s x", "OK"),
            is("HDEL s a", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: hdel,
        ..BASE
    },
    Row {
        name: "hexists",
        arity: 3,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        summary: "Tells whether a hash has a field.",
        syntax: "key field",
        examples: &[
            is("HSET h a 1", "(integer) 1"),
            is("HEXISTS h a", "(integer) 1"),
            is("HEXISTS h b", "(integer) 0"),
            is("HEXISTS h", "(error) ERR wrong number of arguments for 'hexists' command"),
        ],
        run: |cx| {
            let found = field_of(cx, 2)?.is_some();
            cx.out.int(found.into());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hget",
        arity: 3,
        flags: READ_FAST,
        summary: "Gives the value of a field.",
        syntax: "key field",
        examples: &[
            is("HSET h name Ada", "(integer) 1"),
            is("HGET h name", "\"Ada\""),
            is("HGET h born", "(nil)"),
            is("SET s x", "OK"),
            is("HGET s name", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: hget,
        ..BASE
    },
    Row {
        name: "hgetall",
        arity: 2,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of fields.",
        summary: "Gives all fields of a hash with their values.",
        examples: &[
            is("HSET h name Ada born 1815", "(integer) 2"),
            is("HGETALL h", "1) \"name\"\n2) \"Ada\"\n3) \"born\"\n4) \"1815\""),
            is("HGETALL nosuch", "(empty array)"),
            is("HGETALL h x", "(error) ERR wrong number of arguments for 'hgetall' command"),
        ],
        run: |cx| all(cx, Part::Both),
        ..BASE
    },
    Row {
        name: "hincrby",
        arity: 4,
        flags: WRITE_FAST,
        summary: "Adds a number to the integer in a field; no field counts as 0.",
        syntax: "key field increment",
        examples: &[
            is("HINCRBY h visits 2", "(integer) 2"),
            is("HINCRBY h visits -3", "(integer) -1"),
            is("HSET h name Ada", "(integer) 1"),
            is("HINCRBY h name 1", "(error) ERR hash value is not an integer"),
        ],
        run: hincrby,
        ..BASE
    },
    Row {
        name: "hincrbyfloat",
        arity: 4,
        flags: WRITE_FAST,
        effect: Effect::Stated,
        since: "2.6.0",
        summary: "Adds a number with a fraction to the number in a field; no field counts as 0.",
        syntax: "key field increment",
        examples: &[
            is("HSET h f 10.50", "(integer) 1"),
            is("HINCRBYFLOAT h f 0.1", "\"10.6\""),
            is("HINCRBYFLOAT h new -5", "\"-5\""),
            is("HINCRBYFLOAT h f inf", "(error) ERR value is NaN or Infinity"),
            is("HINCRBYFLOAT h f x", "(error) ERR value is not a valid float"),
        ],
        run: hincrbyfloat,
        ..BASE
    },
    Row {
        name: "hkeys",
        arity: 2,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of fields.",
        summary: "Gives the names of all fields of a hash.",
        examples: &[
            is("HSET h name Ada born 1815", "(integer) 2"),
            is("HKEYS h", "1) \"name\"\n2) \"born\""),
            is("HKEYS nosuch", "(empty array)"),
            is("SET s x", "OK"),
            is("HKEYS s", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: |cx| all(cx, Part::Field),
        ..BASE
    },
    Row {
        name: "hlen",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        summary: "Gives the number of fields of a hash.",
        examples: &[
            is("HSET h a 1 b 2", "(integer) 2"),
            is("HLEN h", "(integer) 2"),
            is("HLEN nosuch", "(integer) 0"),
            is("SET s x", "OK"),
            is("HLEN s", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: |cx| {
            let hides_at = cx.ks.hides_fields_at();
            let len = seen(cx.ks.get_for(&cx.keys[0], NOTHING)?, hides_at)?.map_or(0, |hash| hash.len());
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hmget",
        arity: -3,
        flags: READ_FAST,
        complexity: "O(N) where N is the number of fields asked for.",
        summary: "Gives the values of several fields, null for those that are not there.",
        syntax: "key field [field ...]",
        examples: &[
            is("HSET h a 1 b 2", "(integer) 2"),
            is("HMGET h b nosuch a", "1) \"2\"\n2) (nil)\n3) \"1\""),
            is("HMGET nosuch a", "1) (nil)"),
            is("HMGET h", "(error) ERR wrong number of arguments for 'hmget' command"),
        ],
        run: hmget,
        ..BASE
    },
    Row {
        name: "hmset",
        arity: -4,
        access: Access::All(KeyUse::UPDATE),
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of fields to set.",
        summary: "Sets fields of a hash; HSET does the same and tells how many are new.",
        syntax: "key field value [field value ...]",
        examples: &[
            is("HMSET h a 1 b 2", "OK"),
            is("HMSET h b 3", "OK"),
            is("HGET h b", "\"3\""),
            is("HMSET h a 1 b", "(error) ERR wrong number of arguments for 'hmset' command"),
        ],
        run: |cx| {
            set_pairs(cx, "hmset")?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hrandfield",
        arity: -2,
        flags: READ,
        tips: &["nondeterministic_output"],
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Gives random fields of a hash: distinct ones for a positive count, any for a negative one.",
        syntax: "key [count [WITHVALUES]]",
        examples: &[
            is("HSET h only 1", "(integer) 1"),
            is("HRANDFIELD h", "\"only\""),
            is("HRANDFIELD h -2", "1) \"only\"\n2) \"only\""),
            is("HRANDFIELD h 5 WITHVALUES", "1) \"only\"\n2) \"1\""),
            is("HRANDFIELD nosuch 2", "(empty array)"),
            is("HRANDFIELD h x", "(error) ERR value is not an integer or out of range"),
            is("HRANDFIELD h 1 WITHVALUE", "(error) ERR syntax error"),
        ],
        run: hrandfield,
        ..BASE
    },
    Row {
        name: "hscan",
        arity: -3,
        flags: READ,
        tips: &["nondeterministic_output"],
        since: "2.8.0",
        complexity: "O(1) for a call, O(N) for all of a hash of N fields.",
        summary: "Walks the fields of a hash, some at each call.",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        examples: &[
            is("HSET h name Ada born 1815", "(integer) 2"),
            is("HSCAN h 0", "1) \"0\"\n2) 1) \"name\"\n   2) \"Ada\"\n   3) \"born\"\n   4) \"1815\""),
            is("HSCAN h 0 MATCH b*", "1) \"0\"\n2) 1) \"born\"\n   2) \"1815\""),
            only_here("HSCAN h 0 NOVALUES", "1) \"0\"\n2) 1) \"name\"\n   2) \"born\""),
            is("HSCAN nosuch 0", "1) \"0\"\n2) (empty array)"),
            is("HSCAN h x", "(error) ERR invalid cursor"),
            is("HSCAN h 0 COUNT 0", "(error) ERR syntax error"),
        ],
        run: hscan,
        ..BASE
    },
    Row {
        name: "hset",
        arity: -4,
        access: Access::All(KeyUse::UPDATE),
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of fields to set.",
        summary: "Sets fields of a hash, which is created when the key does not exist.",
        syntax: "key field value [field value ...]",
        examples: &[
            is("HSET h name Ada", "(integer) 1"),
            is("HSET h name 'Ada Lovelace' born 1815", "(integer) 1"),
            is("HGET h name", "\"Ada Lovelace\""),
            is("HSET h name", "(error) ERR wrong number of arguments for 'hset' command"),
            is("SET s x", "OK"),
            is("HSET s a 1", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: |cx| {
            let added = set_pairs(cx, "hset")?;
            cx.out.int(added as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hsetnx",
        arity: 4,
        access: Access::All(KeyUse::INSERT),
        flags: WRITE_FAST,
        summary: "Sets a field if the hash does not have it.",
        syntax: "key field value",
        examples: &[
            is("HSETNX h a 1", "(integer) 1"),
            is("HSETNX h a 2", "(integer) 0"),
            is("HGET h a", "\"1\""),
            is("HSETNX h a", "(error) ERR wrong number of arguments for 'hsetnx' command"),
        ],
        run: hsetnx,
        ..BASE
    },
    Row {
        name: "hstrlen",
        arity: 3,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        since: "3.2.0",
        summary: "Gives the length of a field's value in bytes.",
        syntax: "key field",
        examples: &[
            is("HSET h name Ada", "(integer) 1"),
            is("HSTRLEN h name", "(integer) 3"),
            is("HSTRLEN h nosuch", "(integer) 0"),
            is("SET s x", "OK"),
            is("HSTRLEN s name", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: |cx| {
            let len = field_of(cx, 2)?.map_or(0, <[u8]>::len);
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "hvals",
        arity: 2,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of fields.",
        summary: "Gives the values of all fields of a hash.",
        examples: &[
            is("HSET h name Ada born 1815", "(integer) 2"),
            is("HVALS h", "1) \"Ada\"\n2) \"1815\""),
            is("HVALS nosuch", "(empty array)"),
            is("HVALS", "(error) ERR wrong number of arguments for 'hvals' command"),
        ],
        run: |cx| all(cx, Part::Value),
        ..BASE
    },
];

/// A hash for reading, in either form.
#[derive(Clone, Copy)]
pub(crate) enum Hash<'a> {
    Packed(&'a [u8]),
    Table(&'a Table),
    /// Some of its fields have expired by this time but must not be removed yet: see
    /// [`store::Keyspace::hides_fields_at`]. Reads leave these fields out.
    Fading(&'a Table, u64),
}

type Pair<'a> = (&'a [u8], &'a [u8]);

pub(crate) fn hash(value: Option<Value<'_>>) -> Result<Option<Hash<'_>>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Inline(Kind::Hash, bytes)) => Ok(Some(Hash::Packed(bytes))),
        Some(Value::Boxed(Boxed::Hash(table))) => Ok(Some(Hash::Table(table))),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// A hash for a command that only reads. `hides_at`: see [`store::Keyspace::hides_fields_at`].
pub(crate) fn seen(value: Option<Value<'_>>, hides_at: Option<u64>) -> Result<Option<Hash<'_>>, Stop> {
    Ok(hash(value)?.map(|hash| match (hash, hides_at) {
        (Hash::Table(table), Some(now_ms)) if is_fading(table, Some(now_ms)) => Hash::Fading(table, now_ms),
        _ => hash,
    }))
}

fn is_fading(table: &Table, hides_at: Option<u64>) -> bool {
    table.next_deadline().zip(hides_at).is_some_and(|(at_ms, now_ms)| at_ms <= now_ms)
}

fn is_gone(table: &Table, field: &[u8], now_ms: u64) -> bool {
    table.deadline(field).is_some_and(|at_ms| at_ms <= now_ms)
}

impl<'a> Hash<'a> {
    pub fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        match self {
            Hash::Packed(bytes) => packed::get(bytes, field),
            Hash::Table(table) => table.get(field),
            Hash::Fading(table, now_ms) => table.get(field).filter(|_| !is_gone(table, field, now_ms)),
        }
    }

    /// Estimated maximum size of a reply with all fields. A packed hash is small, so it counts as 0.
    fn reply_bytes(self) -> usize {
        match self {
            Hash::Packed(_) => 0,
            Hash::Table(table) | Hash::Fading(table, _) => table.mem_bytes() + table.len() * 2 * BULK_FRAME_BYTES,
        }
    }

    /// Estimated bytes of the fields, with their values if wanted. A table does not store the length of its fields, so
    /// they count as half.
    fn element_bytes(self, with_values: bool) -> usize {
        let (bytes, frames) = match self {
            Hash::Packed(bytes) => (bytes.len(), packed::len(bytes) * BULK_FRAME_BYTES),
            Hash::Table(table) | Hash::Fading(table, _) => (table.mem_bytes(), table.len() * BULK_FRAME_BYTES),
        };
        if with_values { bytes + frames } else { bytes / 2 }
    }

    fn len(self) -> usize {
        match self {
            Hash::Packed(bytes) => packed::len(bytes),
            Hash::Table(table) => table.len(),
            Hash::Fading(table, now_ms) => table.len() - table.due_count(now_ms),
        }
    }

    fn each(self, visit: &mut dyn FnMut(Pair<'a>)) {
        match self {
            Hash::Packed(bytes) => packed::iter(bytes).for_each(visit),
            Hash::Table(table) => table.iter().for_each(visit),
            Hash::Fading(table, now_ms) => {
                table.iter().filter(|(field, _)| !is_gone(table, field, now_ms)).for_each(visit);
            }
        }
    }
}

/// The parts of a hash that these fields are in.
pub(crate) fn of_fields<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| {
        if let Boxed::Hash(table) = value {
            fields.clone().for_each(|field| table.want(field, out));
        }
    }
}

/// The value of the field that argument `at` names.
fn field_of<'k>(cx: &'k mut Cx<'_>, at: usize) -> Result<Option<&'k [u8]>, Stop> {
    let (field, hides_at) = (&cx.args[at], cx.ks.hides_fields_at());
    Ok(seen(cx.ks.get_for(&cx.keys[0], &of_fields(once(field)))?, hides_at)?.and_then(|hash| hash.get(field)))
}

/// Like [`field_of`], for a command that writes: the look-up is not counted as a hit or miss.
fn field_viewed<'k>(cx: &'k mut Cx<'_>, at: usize) -> Result<Option<&'k [u8]>, Stop> {
    let field = &cx.args[at];
    Ok(hash(cx.ks.view_for(&cx.keys[0], &of_fields(once(field)))?)?.and_then(|hash| hash.get(field)))
}

fn hget(cx: &mut Cx<'_>) -> Run {
    let (field, hides_at) = (&cx.args[2], cx.ks.hides_fields_at());
    let value = seen(cx.ks.get_for(&cx.keys[0], &of_fields(once(field)))?, hides_at)?.and_then(|hash| hash.get(field));
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(value))?;
    cx.out.bulk_or_null(value);
    Ok(())
}

fn hmget(cx: &mut Cx<'_>) -> Run {
    let (fields, hides_at) = (cx.args.from(2), cx.ks.hides_fields_at());
    let hash = seen(cx.ks.get_for(&cx.keys[0], &of_fields(fields.clone()))?, hides_at)?;
    let free_bytes = cx.settings.claim_free_bytes.max(cx.session.claim.granted);
    let mut reply_bytes = 0;
    cx.out.array(fields.len());
    for value in fields.map(|field| hash.and_then(|hash| hash.get(field))) {
        reply_bytes += bulk_bytes(value);
        if reply_bytes <= free_bytes {
            cx.out.bulk_or_null(value);
        }
    }
    claim(cx.settings, cx.session, reply_bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Field,
    Value,
    Both,
}

fn all(cx: &mut Cx<'_>, part: Part) -> Run {
    let hides_at = cx.ks.hides_fields_at();
    let hash = seen(cx.ks.get(&cx.keys[0])?, hides_at)?.unwrap_or(Hash::Packed(&[]));
    let out = &mut cx.out;
    claim_reply(cx.settings, cx.session, out, hash.reply_bytes())?;
    match part {
        Part::Both => out.map(hash.len()),
        Part::Field | Part::Value => out.array(hash.len()),
    }
    hash.each(&mut |(field, value)| {
        if part != Part::Value {
            out.bulk(field);
        }
        if part != Part::Field {
            out.bulk(value);
        }
    });
    Ok(())
}

/// The limits up to which a hash stays packed.
#[derive(Clone, Copy)]
pub(crate) struct PackedLimits {
    entries: usize,
    bytes: usize,
}

impl PackedLimits {
    pub(crate) fn of(settings: &Settings) -> PackedLimits {
        PackedLimits { entries: settings.hash_max_listpack_entries, bytes: settings.hash_max_listpack_value }
    }

    fn allow(self, (field, value): Pair<'_>) -> bool {
        field.len() <= self.bytes && value.len() <= self.bytes
    }
}

/// HSET and HMSET. Returns how many fields are new.
fn set_pairs(cx: &mut Cx<'_>, command: &str) -> Result<usize, Stop> {
    if cx.args.len() % 2 == 1 {
        return Err(wrong_arity(command));
    }
    let args = cx.args;
    let pairs = args.from(2).step_by(2).zip(args.from(3).step_by(2));
    let added = put(cx, pairs)?;
    cx.ks.event(Class::HASH, "hset", &cx.keys[0]);
    Ok(added)
}

/// Sets fields of the hash at the command's key. Creates the hash if the key does not exist.
fn put<'a>(cx: &mut Cx<'_>, pairs: impl Iterator<Item = Pair<'a>> + Clone) -> Result<usize, Stop> {
    let key = &cx.keys[0];
    let limits = PackedLimits::of(cx.settings);
    if let Some(mut value) = cx.ks.get_mut_for(key, &of_fields(pairs.clone().map(|(field, _)| field)))? {
        return put_into(&mut value, pairs, limits);
    }
    let mut bytes = Vec::new();
    match put_packed(&mut bytes, pairs, limits) {
        (added, None) => {
            cx.ks.set_packed(key, Kind::Hash, &bytes, None);
            Ok(added)
        }
        (added, Some(table)) => {
            cx.ks.set_boxed(key, Boxed::Hash(table), None);
            Ok(added)
        }
    }
}

fn put_into<'a>(
    hash: &mut ValueMut<'_>,
    pairs: impl Iterator<Item = Pair<'a>> + Clone,
    limits: PackedLimits,
) -> Result<usize, Stop> {
    if hash.kind() != Kind::Hash {
        return Err(WRONG_TYPE);
    }
    if let Some(Boxed::Hash(table)) = hash.boxed() {
        return Ok(put_table(table, pairs));
    }
    let (added, table) = put_packed(hash, pairs, limits);
    if let Some(table) = table {
        hash.replace_boxed(Boxed::Hash(table));
    }
    Ok(added)
}

fn put_table<'a>(table: &mut Table, pairs: impl Iterator<Item = Pair<'a>>) -> usize {
    pairs.filter(|(field, value)| table.set(field, value)).count()
}

/// Sets fields of a packed hash. If it grows too large for that form, returns the table that replaces it.
pub(crate) fn put_packed<'a, B: Buffer>(
    buffer: &mut B,
    mut pairs: impl Iterator<Item = Pair<'a>> + Clone,
    limits: PackedLimits,
) -> (usize, Option<Table>) {
    if !pairs.clone().all(|pair| limits.allow(pair)) {
        let mut table = unpacked(buffer.bytes());
        return (put_table(&mut table, pairs), Some(table));
    }
    let (mut added, mut fields) = (0, packed::len(buffer.bytes()));
    while let Some((field, value)) = pairs.next() {
        if !packed::set(buffer, field, value) {
            continue;
        }
        added += 1;
        fields += 1;
        if fields > limits.entries {
            let mut table = unpacked(buffer.bytes());
            added += put_table(&mut table, pairs);
            return (added, Some(table));
        }
    }
    (added, None)
}

fn unpacked(bytes: &[u8]) -> Table {
    let mut table = Table::new();
    put_table(&mut table, packed::iter(bytes));
    table
}

fn hsetnx(cx: &mut Cx<'_>) -> Run {
    let absent = field_viewed(cx, 2)?.is_none();
    if absent {
        let args = cx.args;
        put(cx, args.from(2).zip(args.from(3)))?;
        cx.ks.event(Class::HASH, "hset", &cx.keys[0]);
    }
    cx.out.int(absent.into());
    Ok(())
}

fn hdel(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let hash = hash(cx.ks.view_for(key, &of_fields(cx.args.from(2)))?)?;
    // Removing a field that is not there must not make the value dirty.
    let Some(_) = hash.filter(|hash| cx.args.from(2).any(|field| hash.get(field).is_some())) else {
        cx.out.int(0);
        return Ok(());
    };
    let (mut removed, mut is_empty) = (0, false);
    if let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? {
        let fields = cx.args.from(2);
        (removed, is_empty) = match value.boxed() {
            Some(Boxed::Hash(table)) => (fields.filter(|field| table.remove(field)).count(), table.is_empty()),
            _ => (fields.filter(|field| packed::remove(&mut value, field)).count(), value.bytes().is_empty()),
        };
    }
    cx.ks.event(Class::HASH, "hdel", key);
    if is_empty {
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
    }
    cx.out.int(removed as i64);
    Ok(())
}

fn hincrby(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let delta = int_or_error(&args[3])?;
    let old = match field_viewed(cx, 2)? {
        Some(text) => number::int(text).ok_or(Stop::error("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = old.checked_add(delta).ok_or(OVERFLOW)?;
    put_one(cx, Digits::new(sum).as_bytes())?;
    cx.ks.event(Class::HASH, "hincrby", &cx.keys[0]);
    cx.out.int(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let delta = LongDouble::parse(&args[3]).ok_or(NOT_FLOAT)?;
    if !delta.is_finite() {
        return Err(Stop::error("ERR value is NaN or Infinity"));
    }
    let old = field_viewed(cx, 2)?.unwrap_or(b"0");
    let old = LongDouble::parse(old).ok_or(Stop::error("ERR hash value is not a float"))?;
    let mut sum = Vec::with_capacity(32);
    old.checked_add(delta).ok_or(NOT_FINITE)?.format(&mut sum);
    put_one(cx, &sum)?;
    cx.ks.event(Class::HASH, "hincrbyfloat", &cx.keys[0]);
    if cx.ks.records_effects() {
        let (key, field) = (&cx.keys[0], &args[2]);
        // HSET removes a field's expiry. Here the field keeps its expiry.
        let value = cx.ks.view_for(key, NOTHING)?;
        let deadline = hash(value)?.and_then(|hash| expiry::deadline(hash, field)).flatten();
        cx.effect(&[b"HSET", key.name, field, &sum]);
        if let Some(at_ms) = deadline {
            let at_ms = Digits::new(at_ms as i64);
            cx.effect(&[b"HPEXPIREAT", key.name, at_ms.as_bytes(), b"FIELDS", b"1", field]);
        }
    }
    cx.out.bulk(&sum);
    Ok(())
}

/// Sets the field that argument 2 names. The field keeps its expiry.
fn put_one(cx: &mut Cx<'_>, value: &[u8]) -> Run {
    let args = cx.args;
    let pair = (args.get(2).unwrap_or_default(), value);
    let limits = PackedLimits::of(cx.settings);
    match cx.ks.get_mut_for(&cx.keys[0], &of_fields(once(pair.0)))? {
        Some(mut hash) => match hash.boxed() {
            Some(Boxed::Hash(table)) => _ = table.change(pair.0, pair.1),
            _ => _ = put_into(&mut hash, once(pair), limits)?,
        },
        None => _ = put(cx, once(pair))?,
    }
    Ok(())
}

fn hrandfield(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let (draws, hides_at) = (Draws::of(&mut cx.ks), cx.ks.hides_fields_at());
    let Some(count) = args.get(2) else {
        let hash = seen(cx.ks.get_for(&cx.keys[0], &of_sample(1, false, draws, hides_at))?, hides_at)?;
        cx.out.bulk_or_null(hash.and_then(|hash| random_pair(hash, draws)).map(|(field, _)| field));
        return Ok(());
    };
    let count = int_or_error(count)?;
    if count == i64::MIN {
        return Err(Stop::error(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_values = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"withvalues") => true,
        Some(_) => return Err(SYNTAX),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let distinct = count > 0;
    let of_wanted = of_sample(wanted, distinct, draws, hides_at);
    let hash = seen(cx.ks.get_for(&cx.keys[0], &of_wanted)?, hides_at)?;
    let Some(hash) = hash.filter(|hash| hash.len() > 0) else {
        cx.out.array(0);
        return Ok(());
    };
    let bytes = match distinct {
        true => share_of(hash.reply_bytes(), wanted, hash.len()),
        false => drawn_bytes(hash.element_bytes(with_values), wanted, hash.len()),
    };
    claim_reply(cx.settings, cx.session, &mut cx.out, bytes)?;
    let mut reply = Sample { out: &mut cx.out, with_values, draws };
    match hash {
        Hash::Table(table) if is_sample(table, wanted, distinct) => {
            reply.drawn(table, wanted, distinct);
            Ok(())
        }
        _ if count < 0 => reply.with_repetition(hash, wanted),
        _ => {
            reply.distinct(hash, wanted);
            Ok(())
        }
    }
}

fn random_pair<'a>(hash: Hash<'a>, mut draws: Draws) -> Option<Pair<'a>> {
    match hash {
        Hash::Packed(bytes) => packed::iter(bytes).nth(draws.below(packed::len(bytes).max(1))),
        Hash::Table(table) => table.random(|n| draws.below(n)),
        Hash::Fading(..) => {
            let (mut left, mut found) = (draws.below(hash.len().max(1)), None);
            hash.each(&mut |pair| {
                if left == 0 && found.is_none() {
                    found = Some(pair);
                }
                left = left.saturating_sub(1);
            });
            found
        }
    }
}

/// Whether to draw this many fields one by one. If so, only the parts of those fields are read. Distinct fields must be
/// few compared with the length, so that each takes less than 1.5 draws on average.
fn is_sample(table: &Table, count: usize, distinct: bool) -> bool {
    count <= SAMPLE_MAX && (!distinct || count < table.len() / 3)
}

/// The parts of a hash that hold this many random fields.
fn of_sample(count: usize, distinct: bool, draws: Draws, hides_at: Option<u64>) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| match value {
        Boxed::Hash(table) if is_sample(table, count, distinct) && !is_fading(table, hides_at) => {
            let mut draws = draws;
            let sample = table.sample(count, distinct, |n| draws.below(n));
            sample.into_iter().for_each(|drawn| table.want_drawn(drawn, out));
        }
        _ => value.absent(out),
    }
}

/// A reply of random fields.
struct Sample<'o, 'b> {
    out: &'o mut Out<'b>,
    with_values: bool,
    draws: Draws,
}

impl Sample<'_, '_> {
    /// RESP3 gives a field and its value as an array of their own.
    fn header(&mut self, pairs: usize) {
        let flat = self.with_values && self.out.proto() == Proto::Resp2;
        self.out.array(if flat { 2 * pairs } else { pairs });
    }

    fn pair(&mut self, (field, value): Pair<'_>) {
        if self.with_values && self.out.proto() == Proto::Resp3 {
            self.out.array(2);
        }
        self.out.bulk(field);
        if self.with_values {
            self.out.bulk(value);
        }
    }

    fn drawn(&mut self, table: &Table, count: usize, distinct: bool) {
        let sample = table.sample(count, distinct, |n| self.draws.below(n));
        self.header(sample.len());
        sample.into_iter().for_each(|drawn| self.pair(table.drawn(drawn)));
    }

    fn with_repetition(&mut self, hash: Hash<'_>, draws: usize) -> Run {
        // An element takes at least 6 bytes of reply. This check refuses early what the loop below would refuse late.
        if draws > REPLY_BYTES_MAX / 6 {
            return Err(OUT_OF_RANGE);
        }
        let before = self.out.len();
        // Walk the hash once, not once per draw, unless it can return random fields directly.
        let mut pairs = Vec::new();
        if !matches!(hash, Hash::Table(_)) {
            hash.each(&mut |pair| pairs.push(pair));
        }
        self.header(draws);
        for _ in 0..draws {
            let pair = match hash {
                Hash::Packed(_) | Hash::Fading(..) => pairs.get(random::below(pairs.len().max(1))).copied(),
                Hash::Table(table) => table.random(random::below),
            };
            self.pair(pair.unwrap_or_default());
            if self.out.len() - before > REPLY_BYTES_MAX {
                return Err(OUT_OF_RANGE);
            }
        }
        Ok(())
    }

    fn distinct(&mut self, hash: Hash<'_>, draws: usize) {
        let len = hash.len();
        let draws = draws.min(len);
        self.header(draws);
        match hash {
            // Few of many: draw until there are enough, with less than 1.5 draws for each.
            Hash::Table(table) if draws < len / 3 => {
                let mut drawn = HashSet::with_capacity(draws);
                while drawn.len() < draws {
                    let Some(pair) = table.random(random::below) else { break };
                    // The address of a field identifies it.
                    if drawn.insert(pair.0.as_ptr()) {
                        self.pair(pair);
                    }
                }
            }
            // Most of the fields: one walk.
            _ => {
                let mut selection = Selection::new(draws, len);
                hash.each(&mut |pair| {
                    if selection.takes() {
                        self.pair(pair);
                    }
                });
            }
        }
    }
}

fn hscan(cx: &mut Cx<'_>) -> Run {
    let cursor = number::cursor(&cx.args[2]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(cx.args, 3, ScanOf::Hash);
    let count = options.as_ref().map_or(1, |options| options.count.unwrap_or(SCAN_COUNT));
    let of_step = |value: &Boxed, out: &mut Absent| {
        if let Boxed::Hash(table) = value {
            table.want_scan(cursor, count, out);
        }
    };
    let hides_at = cx.ks.hides_fields_at();
    let hash = seen(cx.ks.get_for(&cx.keys[0], &of_step)?, hides_at)?;
    // Redis looks up the key before it checks the options.
    let Some(hash) = hash else {
        cx.out.array(2);
        cx.out.bulk(b"0");
        cx.out.array(0);
        return Ok(());
    };
    let options = options?;
    let mut pairs = Vec::new();
    let mut take = |field, value| {
        if options.fits(field) {
            pairs.push((field, value));
        }
    };
    let next = match hash {
        Hash::Packed(bytes) => {
            packed::iter(bytes).for_each(|(field, value)| take(field, value));
            Step::End
        }
        Hash::Table(table) => table.scan(cursor, count, &mut take),
        Hash::Fading(table, now_ms) => table.scan(cursor, count, &mut |field, value| {
            if !is_gone(table, field, now_ms) {
                take(field, value);
            }
        }),
    };
    cx.out.array(2);
    cx.out.bulk_int(match next {
        // A cursor is smaller than 2^32.
        Step::Next(cursor) => cursor as i64,
        Step::End => 0,
    });
    cx.out.array(if options.no_values { pairs.len() } else { 2 * pairs.len() });
    for (field, value) in pairs {
        cx.out.bulk(field);
        if !options.no_values {
            cx.out.bulk(value);
        }
    }
    Ok(())
}
