//! Owns DUMP and RESTORE: values in the format of Redis's RDB files. Never knows the format itself: `value::rdb` does.

use crate::cx::{Cx, claim_reply};
use crate::hashes::{self, PackedLimits};
use crate::lists::{self, End, elements};
use crate::number::{Digits, int_or_error};
use crate::row::{Access, Acl, Effect, Flag, Group, KeyUse, Row, Values, is, only_here, starts};
use crate::session::LOADER;
use crate::sets::form::{self as set_form, Set};
use crate::stop::{Run, SYNTAX, Stop};
use crate::zsets::form as zset_form;
use smallvec::SmallVec;
use store::{Class, Key, Kind, NOTHING, Value};
use value::hash::packed;
use value::rdb::{self, Decoded, Parts, Refused, Type};
use value::zset::View;
use value::{Boxed, Corrupt};

pub const ROWS: &[Row] = &[
    Row {
        name: "dump",
        arity: 2,
        flags: &[Flag::Readonly],
        tips: &["nondeterministic_output"],
        since: "2.6.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Serialises a value for RESTORE, on this server or on Redis 7.2 and newer.",
        examples: &[
            is("SET k value", "OK"),
            starts("DUMP k", "\"\\x00\\x05value"),
            only_here("DUMP k", r#""\x00\x05value\x0b\x00\xe8)|K<5r\xe7""#),
            is("DUMP nosuch", "(nil)"),
            is("DUMP", "(error) ERR wrong number of arguments for 'dump' command"),
        ],
        run: dump,
        ..Row::BASE
    },
    Row {
        name: "restore",
        acl: &[Acl::Dangerous],
        arity: -4,
        access: Access::All(KeyUse::OVERWRITE),
        flags: &[Flag::Write, Flag::Denyoom],
        values: Values::Untouched,
        effect: Effect::Stated,
        since: "2.6.0",
        complexity: "O(N log(N)) for a sorted set of N members, otherwise O(N) where N is the size of the value.",
        summary: "Creates a key from the output of DUMP, with a time to live in milliseconds (0: it does not expire).",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        examples: &[
            is("RESTORE k 0 \"\\x00\\x05value\\x0a\\x00\\x81\\xf6\\xc1\\x38\\xc1\\xaa\\x9b\\x6e\"", "OK"),
            is("GET k", "\"value\""),
            is(
                "RESTORE k 0 \"\\x00\\x05value\\x0a\\x00\\x81\\xf6\\xc1\\x38\\xc1\\xaa\\x9b\\x6e\"",
                "(error) BUSYKEY Target key name already exists.",
            ),
            is("RESTORE k 60000 \"\\x00\\x05value\\x0a\\x00\\x81\\xf6\\xc1\\x38\\xc1\\xaa\\x9b\\x6e\" REPLACE", "OK"),
            is("TTL k", "(integer) 60"),
            is("RESTORE n 0 junk", "(error) ERR DUMP payload version or checksum are wrong"),
            is("RESTORE n -1 junk", "(error) ERR Invalid TTL value, must be >= 0"),
        ],
        run: restore,
        ..Row::BASE
    },
    Row {
        name: "restore-asking",
        acl: &[Acl::Keyspace, Acl::Dangerous],
        arity: -4,
        access: Access::All(KeyUse::OVERWRITE),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Asking],
        values: Values::Untouched,
        effect: Effect::Stated,
        group: Group::Server,
        since: "3.0.0",
        complexity: "O(N log(N)) for a sorted set of N members, otherwise O(N) where N is the size of the value.",
        summary: "RESTORE as nodes of a cluster send it to the node that a slot is moving to.",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        examples: &[
            is("RESTORE-ASKING k 0 \"\\x00\\x05value\\x0a\\x00\\x81\\xf6\\xc1\\x38\\xc1\\xaa\\x9b\\x6e\"", "OK"),
            is("GET k", "\"value\""),
            is("RESTORE-ASKING n 0 junk", "(error) ERR DUMP payload version or checksum are wrong"),
        ],
        run: restore,
        ..Row::BASE
    },
];

fn dump(cx: &mut Cx<'_>) -> Run {
    let Some(value) = cx.ks.get(&cx.keys[0])? else {
        cx.out.null();
        return Ok(());
    };
    // Payload and reply are in memory at the same time.
    let payload_bytes = match &value {
        Value::Inline(_, bytes) => bytes.len(),
        Value::Boxed(boxed) => boxed.mem_bytes(),
    };
    claim_reply(cx.settings, cx.session, &mut cx.out, 2 * payload_bytes)?;
    let payload = payload(value)?;
    cx.out.bulk(&payload);
    Ok(())
}

/// A value in DUMP's format.
pub(crate) fn payload(value: Value<'_>) -> Result<Vec<u8>, Stop> {
    Ok(match value {
        Value::Inline(Kind::String, bytes) => rdb::dump(Type::String, |out| rdb::put_string(out, bytes)),
        Value::Inline(Kind::Hash, bytes) => {
            let parts = packed::iter(bytes).flat_map(|(field, value)| [field, value]);
            rdb::dump(Type::HashListpack, |out| rdb::put_listpack(out, parts))
        }
        Value::Boxed(Boxed::Hash(table)) => {
            let parts = table.iter().flat_map(|(field, value)| [field, value]);
            rdb::dump(Type::Hash, |out| rdb::put_strings(out, table.len(), parts))
        }
        Value::Boxed(Boxed::Stream(stream)) => rdb::dump(Type::Stream3, |out| stream.encode(out)),
        value @ (Value::Inline(Kind::List, _) | Value::Boxed(Boxed::List(_))) => {
            let all = all_elements(value)?;
            rdb::dump(Type::ListQuicklist2, |out| rdb::put_list(out, all.into_iter()))
        }
        value @ (Value::Inline(Kind::Set, _) | Value::Boxed(Boxed::Set(_))) => match set_form::set(Some(value))? {
            Some(Set::Ints(bytes)) => {
                let numbers: Vec<i64> = value::set::ints::iter(bytes).collect();
                rdb::dump(Type::SetIntset, |out| rdb::put_intset(out, &numbers))
            }
            Some(Set::List(bytes)) => {
                rdb::dump(Type::SetListpack, |out| rdb::put_listpack(out, value::set::list::iter(bytes)))
            }
            Some(Set::Table(table)) => rdb::dump(Type::Set, |out| rdb::put_strings(out, table.len(), table.iter())),
            None => unreachable!("there is a value"),
        },
        value => match zset_form::zset(Some(value))? {
            Some(View::Tree(tree)) => rdb::dump(Type::ZSet, |out| {
                let members = View::Tree(tree).iter().map(|(score, member)| (member, score));
                rdb::put_scored(out, tree.len(), members);
            }),
            Some(view) => rdb::dump(Type::ZSetListpack, |out| {
                rdb::put_scored_listpack(out, view.iter().map(|(score, member)| (member, score)));
            }),
            None => unreachable!("there is a value"),
        },
    })
}

fn all_elements(list: Value<'_>) -> Result<Vec<&[u8]>, Stop> {
    let mut all = Vec::new();
    if let Some(list) = elements(Some(list))? {
        list.each_from(0, |element| {
            all.push(element);
            true
        });
    }
    Ok(all)
}

/// A value in the oldest form that holds all of it, so that old servers accept it.
pub(crate) fn portable_payload(value: Value<'_>) -> Result<Vec<u8>, Stop> {
    let plain = |kind: Type, write: &mut dyn FnMut(&mut Vec<u8>)| Ok(rdb::dump_for(kind, kind.version(), write));
    match value {
        Value::Inline(Kind::String, bytes) => plain(Type::String, &mut |out| rdb::put_string(out, bytes)),
        Value::Inline(Kind::Hash, bytes) => {
            let parts = || packed::iter(bytes).flat_map(|(field, value)| [field, value]);
            plain(Type::Hash, &mut |out| rdb::put_strings(out, packed::len(bytes), parts()))
        }
        Value::Boxed(Boxed::Hash(table)) if table.next_deadline().is_some() => {
            Err(Stop::error("ERR A hash with fields that expire cannot be moved: their times would be lost"))
        }
        Value::Boxed(Boxed::Hash(table)) => {
            let parts = || table.iter().flat_map(|(field, value)| [field, value]);
            plain(Type::Hash, &mut |out| rdb::put_strings(out, table.len(), parts()))
        }
        Value::Boxed(Boxed::Stream(stream)) => {
            // The third form adds only data about consumers.
            let has_consumers = stream.groups().any(|(_, group)| group.consumers().len() > 0);
            let kind = if has_consumers { Type::Stream3 } else { Type::Stream2 };
            plain(kind, &mut |out| stream.encode(out))
        }
        value @ (Value::Inline(Kind::List, _) | Value::Boxed(Boxed::List(_))) => {
            let all = all_elements(value)?;
            plain(Type::List, &mut |out| rdb::put_strings(out, all.len(), all.iter().copied()))
        }
        value @ (Value::Inline(Kind::Set, _) | Value::Boxed(Boxed::Set(_))) => match set_form::set(Some(value))? {
            Some(Set::Ints(bytes)) => {
                let texts: Vec<String> = value::set::ints::iter(bytes).map(|number| number.to_string()).collect();
                plain(Type::Set, &mut |out| rdb::put_strings(out, texts.len(), texts.iter().map(String::as_bytes)))
            }
            Some(Set::List(bytes)) => plain(Type::Set, &mut |out| {
                rdb::put_strings(out, value::set::list::len(bytes), value::set::list::iter(bytes));
            }),
            Some(Set::Table(table)) => plain(Type::Set, &mut |out| rdb::put_strings(out, table.len(), table.iter())),
            None => unreachable!("there is a value"),
        },
        value => match zset_form::zset(Some(value))? {
            Some(view) => plain(Type::ZSet, &mut |out| {
                rdb::put_scored(out, view.len(), view.iter().map(|(score, member)| (member, score)));
            }),
            None => unreachable!("there is a value"),
        },
    }
}

struct Options {
    /// The value is the next part of a stream that is loaded.
    is_part: bool,
    replace: bool,
    absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

fn options(cx: &Cx<'_>) -> Result<Options, Stop> {
    let mut options = Options { is_part: false, replace: false, absolute: false, idle_seconds: None, frequency: None };
    let mut at = 4;
    while let Some(word) = cx.args.get(at) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match cx.args.get(at + 1) {
            _ if says("replace") => options.replace = true,
            _ if says("absttl") => options.absolute = true,
            // Only the node's loader may use this word, no client.
            _ if says("part") && cx.session.user == LOADER => options.is_part = true,
            Some(number) if says("idletime") && options.frequency.is_none() => {
                let seconds = u64::try_from(int_or_error(number)?);
                let error = Stop::error("ERR Invalid IDLETIME value, must be >= 0");
                options.idle_seconds = Some(seconds.map_err(|_| error)?);
                at += 1;
            }
            Some(number) if says("freq") && options.idle_seconds.is_none() => {
                let frequency = u8::try_from(int_or_error(number)?);
                let error = Stop::error("ERR Invalid FREQ value, must be >= 0 and <= 255");
                options.frequency = Some(frequency.map_err(|_| error)?);
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

const BAD_FORMAT: Stop = Stop::error("ERR Bad data format");

fn restore(cx: &mut Cx<'_>) -> Run {
    let (args, key, now_ms) = (cx.args, &cx.keys[0], cx.ks.now_ms());
    let options = options(cx)?;
    // With REPLACE, Redis does not ask whether the old value has expired.
    let exists = (!options.replace || options.is_part) && cx.ks.peek(key)?.is_some();
    if exists && options.is_part {
        return restore_part(cx);
    }
    if exists && !options.replace {
        return Err(Stop::error("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(int_or_error(&args[2])?);
    let ttl = ttl.map_err(|_| Stop::error("ERR Invalid TTL value, must be >= 0"))?;
    let decoded = rdb::restore(&args[3]).map_err(|refused| match refused {
        Refused::Envelope => Stop::error("ERR DUMP payload version or checksum are wrong"),
        Refused::Corrupt => BAD_FORMAT,
    })?;
    // The effect must contain the corrected value, as it is stored here.
    let corrected = match &decoded {
        Decoded::Stream(stream, Some(miscount)) => {
            Some((*miscount, rdb::dump(Type::Stream3, |out| stream.encode(out))))
        }
        _ => None,
    };
    let expiry = match ttl {
        0 => None,
        ttl if options.absolute => Some(ttl),
        // As an absolute time, it must be one that RESTORE accepts.
        ttl => Some(cx.ks.clock_ms().saturating_add(ttl).min(i64::MAX as u64)),
    };
    let is_packed = args[3].first().and_then(|&kind| Type::from_u8(kind)).is_some_and(Type::has_text_scores);
    let value = Built::new(cx, decoded, is_packed).map_err(|Corrupt| BAD_FORMAT)?;
    if expiry.is_some_and(|expiry| expiry <= now_ms) {
        if cx.ks.clear(key)? {
            cx.ks.event(Class::GENERIC, "del", key);
            cx.effect(&[b"DEL", key.name]);
        }
        cx.out.ok();
        return Ok(());
    }
    cx.ks.clear(key)?;
    value.store(cx, key, expiry)?;
    // As in Redis, only what the eviction policy uses is set: the frequency for an LFU policy, otherwise the idle time.
    let (idle, frequency) = match cx.settings.lfu {
        true => (None, options.frequency),
        false => (options.idle_seconds, None),
    };
    cx.ks.set_use(key, idle, frequency)?;
    cx.ks.event(Class::GENERIC, "restore", key);
    match &corrected {
        None => state(cx, &options, expiry, &args[3]),
        Some((miscount, payload)) => {
            cx.server.log(&format!("RESTORE of key {}: {miscount}", String::from_utf8_lossy(key.name)));
            state(cx, &options, expiry, payload);
        }
    }
    cx.out.ok();
    Ok(())
}

/// Adds the next part to a stream that is being loaded: see `Stream::merge`.
fn restore_part(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let Ok(Decoded::Stream(part, None)) = rdb::restore(&args[3]) else { return Err(BAD_FORMAT) };
    match cx.ks.get_for(key, NOTHING)? {
        Some(Value::Boxed(Boxed::Stream(stream))) if stream.takes(&part) => {}
        _ => return Err(BAD_FORMAT),
    }
    if let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)?
        && let Some(Boxed::Stream(stream)) = value.boxed()
    {
        stream.merge(*part);
    }
    cx.effect(&[b"RESTORE", key.name, b"0", &args[3], b"PART"]);
    cx.out.ok();
    Ok(())
}

/// States the effect: the same value, with its expiry as an absolute time.
fn state(cx: &mut Cx<'_>, options: &Options, expiry: Option<u64>, payload: &[u8]) {
    let key = &cx.keys[0];
    let number = |number: u64| Digits::new(number as i64);
    let (at_ms, idle) = (number(expiry.unwrap_or(0)), options.idle_seconds.map(number));
    let frequency = options.frequency.map(|frequency| number(frequency.into()));
    let mut words: SmallVec<[&[u8]; 8]> = SmallVec::new();
    words.extend([b"RESTORE", key.name, at_ms.as_bytes(), payload]);
    if expiry.is_some() {
        words.push(b"ABSTTL");
    }
    if options.replace {
        words.push(b"REPLACE");
    }
    if let Some(seconds) = &idle {
        words.extend([b"IDLETIME", seconds.as_bytes()]);
    }
    if let Some(frequency) = &frequency {
        words.extend([b"FREQ", frequency.as_bytes()]);
    }
    cx.effect(&words);
}

/// A restored value, in the encoding that the settings ask for.
enum Built {
    String(Vec<u8>),
    List(Parts),
    Set(set_form::Draft),
    PackedHash(Vec<u8>),
    Boxed(Boxed),
    ZSet(zset_form::Draft),
}

impl Built {
    /// `is_packed`: the payload has a sorted set as one string.
    fn new(cx: &Cx<'_>, decoded: Decoded, is_packed: bool) -> Result<Built, Corrupt> {
        Ok(match decoded {
            Decoded::String(bytes) => Built::String(bytes),
            Decoded::List(parts) => Built::List(parts),
            Decoded::Stream(stream, _) => Built::Boxed(Boxed::Stream(stream)),
            Decoded::Hash(parts) => {
                let mut bytes = Vec::new();
                let (fields, table) = hashes::put_packed(&mut bytes, parts.pairs(), PackedLimits::of(cx.settings));
                if fields * 2 != parts.len() {
                    return Err(Corrupt);
                }
                table.map_or(Built::PackedHash(bytes), |table| Built::Boxed(Boxed::Hash(table)))
            }
            Decoded::Set(parts) => {
                let limits = set_form::Limits::of(cx.settings);
                let first = parts.iter().next().ok_or(Corrupt)?;
                let mut draft = set_form::Draft::new(first, parts.len(), limits);
                if !parts.iter().all(|member| draft.add(member, limits)) {
                    return Err(Corrupt);
                }
                Built::Set(draft)
            }
            Decoded::ZSet(members, scores) => {
                let limits = zset_form::Limits::of(cx.settings);
                let first = members.iter().next().ok_or(Corrupt)?;
                let mut draft = zset_form::Draft::new(first, members.len(), limits);
                let set = match is_packed {
                    true => zset_form::Draft::set_packed,
                    false => zset_form::Draft::set,
                };
                members.iter().zip(scores).for_each(|(member, score)| set(&mut draft, member, score, limits));
                if draft.view().len() != members.len() {
                    return Err(Corrupt);
                }
                Built::ZSet(draft)
            }
        })
    }

    fn store(self, cx: &mut Cx<'_>, key: &Key<'_>, expiry: Option<u64>) -> Run {
        match self {
            Built::String(bytes) => cx.ks.set_string(key, &bytes, expiry),
            Built::List(parts) => {
                let limit = cx.settings.list_limit;
                lists::create(&mut cx.ks, key, parts.iter(), End::Back, limit, expiry);
            }
            Built::Set(draft) => draft.store(cx, key, expiry),
            Built::PackedHash(bytes) => cx.ks.set_packed(key, Kind::Hash, &bytes, expiry),
            Built::Boxed(boxed) => cx.ks.set_boxed(key, boxed, expiry),
            Built::ZSet(draft) => {
                draft.put(cx, key);
                cx.ks.set_expiry(key, expiry)?;
            }
        }
        Ok(())
    }
}
