//! Owns the commands that set, get and edit strings. Counting is in `counters`, LCS in `lcs`. Never knows other types,
//! except to refuse them.

use crate::cx::{Args, BULK_FRAME_BYTES, Cx, Settings, bulk_bytes, claim, claim_reply};
use crate::number::{Digits, int_or_error};
use crate::row::{Access, Effect, Flag, Group, KeyUse, Keys, Row, Values, is};
use crate::session::Session;
use crate::stop::{Run, SYNTAX, Stop, WRONG_TYPE, invalid_expire, wrong_arity};
use smallvec::SmallVec;
use store::{Class, Cold, Kind, Value};

const READ: &[Flag] = &[Flag::Readonly];
const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const WRITE: &[Flag] = &[Flag::Write, Flag::Denyoom];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Denyoom, Flag::Fast];
const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };

const BASE: Row = Row { group: Group::String, since: "1.0.0", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "append",
        arity: 3,
        access: Access::All(KeyUse::INSERT),
        flags: WRITE_FAST,
        since: "2.0.0",
        complexity: "O(1), amortised, while what is appended is short.",
        summary: "Adds bytes to the end of a string, which is created when the key does not exist.",
        syntax: "key value",
        examples: &[
            is("APPEND greeting Hello", "(integer) 5"),
            is("APPEND greeting ' World'", "(integer) 11"),
            is("GET greeting", "\"Hello World\""),
            is("HSET h f v", "(integer) 1"),
            is("APPEND h x", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: append,
        ..BASE
    },
    Row {
        name: "get",
        arity: 2,
        flags: READ_FAST,
        summary: "Gives the string at a key.",
        examples: &[
            is("GET name", "(nil)"),
            is("SET name Ada", "OK"),
            is("GET name", "\"Ada\""),
            is("HSET h f v", "(integer) 1"),
            is("GET h", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: get,
        ..BASE
    },
    Row {
        name: "getdel",
        arity: 2,
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::Fast],
        effect: Effect::Stated,
        since: "6.2.0",
        summary: "Gives the string at a key and deletes the key.",
        examples: &[
            is("SET token 4711", "OK"),
            is("GETDEL token", "\"4711\""),
            is("GETDEL token", "(nil)"),
            is("HSET h f v", "(integer) 1"),
            is("GETDEL h", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: getdel,
        ..BASE
    },
    Row {
        name: "getex",
        arity: -2,
        flags: &[Flag::Write, Flag::Fast],
        effect: Effect::Stated,
        since: "6.2.0",
        summary: "Gives the string at a key and sets or takes away the key's expiry.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        examples: &[
            is("SET session abc", "OK"),
            is("GETEX session EX 60", "\"abc\""),
            is("TTL session", "(integer) 60"),
            is("GETEX session PERSIST", "\"abc\""),
            is("TTL session", "(integer) -1"),
            is("GETEX session EX 0", "(error) ERR invalid expire time in 'getex' command"),
            is("GETEX session PERSIST EX 60", "(error) ERR syntax error"),
        ],
        run: getex,
        ..BASE
    },
    Row {
        name: "getrange",
        arity: 4,
        flags: READ,
        since: "2.4.0",
        complexity: "O(N) where N is the number of bytes returned.",
        summary: "Gives a part of a string, between two positions that may count from its end.",
        syntax: "key start end",
        examples: &[
            is("SET title 'This is a string'", "OK"),
            is("GETRANGE title 0 3", "\"This\""),
            is("GETRANGE title -6 -1", "\"string\""),
            is("GETRANGE title 10 5", "\"\""),
            is("GETRANGE title 0 end", "(error) ERR value is not an integer or out of range"),
        ],
        run: getrange,
        ..BASE
    },
    Row {
        name: "getset",
        arity: 3,
        flags: WRITE_FAST,
        summary: "Sets a string and returns the old one. SET with GET does the same.",
        syntax: "key value",
        examples: &[
            is("GETSET light red", "(nil)"),
            is("GETSET light green", "\"red\""),
            is("HSET h f v", "(integer) 1"),
            is("GETSET h x", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: getset,
        ..BASE
    },
    Row {
        name: "mget",
        arity: -2,
        keys: Keys::ALL,
        flags: READ_FAST,
        tips: &["request_policy:multi_shard"],
        complexity: "O(N) where N is the number of keys.",
        summary: "Gives the strings at several keys; null for a key that does not exist or holds another type.",
        syntax: "key [key ...]",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("HSET h f v", "(integer) 1"),
            is("MGET a b nosuch h", "1) \"1\"\n2) \"2\"\n3) (nil)\n4) (nil)"),
            is("MGET", "(error) ERR wrong number of arguments for 'mget' command"),
        ],
        run: mget,
        ..BASE
    },
    Row {
        name: "mset",
        arity: -3,
        access: Access::All(KeyUse::OVERWRITE),
        keys: PAIRS,
        flags: WRITE,
        values: Values::Untouched,
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys.",
        summary: "Sets several keys to strings, all at once.",
        syntax: "key value [key value ...]",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("GET b", "\"2\""),
            is("MSET a 1 b", "(error) ERR wrong number of arguments for 'mset' command"),
        ],
        run: mset,
        ..BASE
    },
    Row {
        name: "msetnx",
        arity: -3,
        access: Access::All(KeyUse::CREATE),
        keys: PAIRS,
        flags: WRITE,
        values: Values::Untouched,
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys.",
        summary: "Sets several keys to strings, all at once, if none of them exists.",
        syntax: "key value [key value ...]",
        examples: &[
            is("MSETNX a 1 b 2", "(integer) 1"),
            is("MSETNX b 3 c 4", "(integer) 0"),
            is("EXISTS c", "(integer) 0"),
            is("MSETNX a 1 b", "(error) ERR wrong number of arguments for 'msetnx' command"),
        ],
        run: msetnx,
        ..BASE
    },
    Row {
        name: "psetex",
        arity: 4,
        access: Access::All(KeyUse::OVERWRITE),
        flags: WRITE,
        values: Values::Untouched,
        effect: Effect::Stated,
        since: "2.6.0",
        summary: "Sets a string that expires after a number of milliseconds.",
        syntax: "key milliseconds value",
        examples: &[
            is("PSETEX k 100000 v", "OK"),
            is("TTL k", "(integer) 100"),
            is("PSETEX k 0 v", "(error) ERR invalid expire time in 'psetex' command"),
        ],
        run: |cx| setex(cx, Unit::Milliseconds, "psetex"),
        ..BASE
    },
    Row {
        name: "set",
        arity: -3,
        access: Access::Rule(|args| {
            let reads = args.from(3).any(|word| word.eq_ignore_ascii_case(b"get"));
            if reads { KeyUse::CHANGE } else { KeyUse::OVERWRITE }
        }),
        flags: WRITE,
        values: Values::Untouched,
        effect: Effect::Stated,
        summary: "Sets a key to a string, whatever it held, and removes or sets its expiry.",
        syntax: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                 PXAT unix-time-milliseconds | KEEPTTL]",
        examples: &[
            is("SET lock owner1 NX EX 30", "OK"),
            is("SET lock owner2 NX EX 30", "(nil)"),
            is("SET lock owner3 XX GET KEEPTTL", "\"owner1\""),
            is("TTL lock", "(integer) 30"),
            is("SET lock owner4", "OK"),
            is("TTL lock", "(integer) -1"),
            is("SET lock x EX 0", "(error) ERR invalid expire time in 'set' command"),
            is("SET lock x EX 10 KEEPTTL", "(error) ERR syntax error"),
        ],
        run: set,
        ..BASE
    },
    Row {
        name: "setex",
        arity: 4,
        access: Access::All(KeyUse::OVERWRITE),
        flags: WRITE,
        values: Values::Untouched,
        effect: Effect::Stated,
        since: "2.0.0",
        summary: "Sets a string that expires after a number of seconds.",
        syntax: "key seconds value",
        examples: &[
            is("SETEX k 60 v", "OK"),
            is("TTL k", "(integer) 60"),
            is("SETEX k -1 v", "(error) ERR invalid expire time in 'setex' command"),
            is("SETEX k soon v", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| setex(cx, Unit::Seconds, "setex"),
        ..BASE
    },
    Row {
        name: "setnx",
        arity: 3,
        access: Access::All(KeyUse::CREATE),
        flags: WRITE_FAST,
        values: Values::Untouched,
        summary: "Sets a key to a string if the key does not exist.",
        syntax: "key value",
        examples: &[
            is("SETNX k first", "(integer) 1"),
            is("SETNX k second", "(integer) 0"),
            is("GET k", "\"first\""),
            is("SETNX k", "(error) ERR wrong number of arguments for 'setnx' command"),
        ],
        run: setnx,
        ..BASE
    },
    Row {
        name: "setrange",
        arity: 4,
        access: Access::All(KeyUse::UPDATE),
        flags: WRITE,
        since: "2.2.0",
        complexity: "O(1) while the value is short, otherwise O(M) where M is its length.",
        summary: "Overwrites a part of a string from a position on, with zeros before it where the string is shorter.",
        syntax: "key offset value",
        examples: &[
            is("SET k 'Hello World'", "OK"),
            is("SETRANGE k 6 Redis", "(integer) 11"),
            is("GET k", "\"Hello Redis\""),
            is("SETRANGE new 2 x", "(integer) 3"),
            is("GET new", "\"\\x00\\x00x\""),
            is("SETRANGE k -1 x", "(error) ERR offset is out of range"),
            is("SETRANGE k 536870911 xx", "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ],
        run: setrange,
        ..BASE
    },
    Row {
        name: "strlen",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        since: "2.2.0",
        summary: "Gives the length of a string in bytes.",
        examples: &[
            is("SET k 'Hello World'", "OK"),
            is("STRLEN k", "(integer) 11"),
            is("STRLEN nosuch", "(integer) 0"),
            is("HSET h f v", "(integer) 1"),
            is("STRLEN h", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
        run: strlen,
        ..BASE
    },
    Row {
        name: "substr",
        arity: 4,
        flags: READ,
        complexity: "O(N) where N is the number of bytes returned.",
        summary: "GETRANGE under its older name.",
        syntax: "key start end",
        examples: &[
            is("SET title 'This is a string'", "OK"),
            is("SUBSTR title 0 3", "\"This\""),
            is("SUBSTR title a b", "(error) ERR value is not an integer or out of range"),
        ],
        run: getrange,
        ..BASE
    },
];

/// Redis's limit for a string, even if `proto-max-bulk-len` is larger.
pub const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;
const TOO_LONG: Stop = Stop::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

/// The bytes of a string. `None`: no such key.
#[inline]
pub fn string(value: Option<Value<'_>>) -> Result<Option<&[u8]>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Inline(Kind::String, bytes)) => Ok(Some(bytes)),
        Some(_) => Err(WRONG_TYPE),
    }
}

fn get(cx: &mut Cx<'_>) -> Run {
    let value = string(cx.ks.get(&cx.keys[0])?)?;
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(value))?;
    cx.out.bulk_or_null(value);
    Ok(())
}

fn set(cx: &mut Cx<'_>) -> Run {
    if cx.args.len() == 3 {
        let (key, value) = (&cx.keys[0], cx.args.get(2).unwrap_or_default());
        cx.ks.set_string(key, value, None);
        cx.ks.event(Class::STRING, "set", key);
        if cx.ks.records_effects() {
            cx.repeat("SET");
        }
        cx.out.ok();
        return Ok(());
    }
    set_with_options(cx)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Absent,
    Present,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// EX, PX, EXAT or PXAT.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    unit: Unit,
    relative: bool,
}

/// The options of SET and GETEX.
#[derive(Default)]
struct Options<'a> {
    condition: Option<Condition>,
    get: bool,
    keep: bool,
    persist: bool,
    expire: Option<(Form, &'a [u8])>,
}

/// Which options a command takes.
#[derive(PartialEq, Eq)]
enum Takes {
    Set,
    Getex,
}

impl<'a> Options<'a> {
    /// An option may be repeated, as in Redis, but may not be combined with one that contradicts it.
    fn parse(args: Args<'a>, from: usize, takes: Takes) -> Result<Options<'a>, Stop> {
        let set = takes == Takes::Set;
        let mut options = Options::default();
        let mut at = from;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let forever = options.keep || options.persist;
            if set && says("nx") && options.condition != Some(Condition::Present) {
                options.condition = Some(Condition::Absent);
            } else if set && says("xx") && options.condition != Some(Condition::Absent) {
                options.condition = Some(Condition::Present);
            } else if set && says("get") {
                options.get = true;
            } else if set && says("keepttl") && options.expire.is_none() {
                options.keep = true;
            } else if !set && says("persist") && options.expire.is_none() {
                options.persist = true;
            } else if let (Some(form), Some(time), false) = (form(word), args.get(at + 1), forever)
                && options.expire.is_none_or(|(other, _)| other == form)
            {
                options.expire = Some((form, time));
                at += 1;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The expiry asked for, as milliseconds since 1970.
    fn expiry(&self, now_ms: u64, command: &str) -> Result<Option<u64>, Stop> {
        self.expire.map(|(form, text)| expiry(text, form, now_ms, command)).transpose()
    }
}

fn form(word: &[u8]) -> Option<Form> {
    let forms: [(&[u8], Unit, bool); 4] = [
        (b"ex", Unit::Seconds, true),
        (b"px", Unit::Milliseconds, true),
        (b"exat", Unit::Seconds, false),
        (b"pxat", Unit::Milliseconds, false),
    ];
    let (_, unit, relative) = forms.into_iter().find(|(name, ..)| word.eq_ignore_ascii_case(name))?;
    Some(Form { unit, relative })
}

/// A time after 1970 and below 2^63 milliseconds. It may be in the past.
fn expiry(text: &[u8], form: Form, now_ms: u64, command: &str) -> Result<u64, Stop> {
    let time = int_or_error(text)?;
    let factor = if form.unit == Unit::Seconds { 1000 } else { 1 };
    let base = if form.relative { now_ms as i64 } else { 0 };
    Some(time)
        .filter(|&time| time > 0)
        .and_then(|time| time.checked_mul(factor)?.checked_add(base))
        .map(|time| time as u64)
        .ok_or_else(|| invalid_expire(command))
}

fn set_with_options(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let options = Options::parse(args, 3, Takes::Set)?;
    let mut expiry = options.expiry(cx.ks.clock_ms(), "set")?;
    let mut exists = false;
    if options.get {
        let old = string(cx.ks.get(key)?)?;
        exists = old.is_some();
        cx.out.bulk_or_null(old);
    } else if options.condition.is_some() {
        exists = cx.ks.peek(key)?.is_some();
    }
    let allowed = match options.condition {
        None => true,
        Some(Condition::Absent) => !exists,
        Some(Condition::Present) => exists,
    };
    if !allowed {
        if !options.get {
            cx.out.null();
        }
        return Ok(());
    }
    if options.keep {
        expiry = cx.ks.expiry(key)?.flatten();
    }
    cx.ks.set_string(key, &args[2], expiry);
    cx.ks.event(Class::STRING, "set", key);
    if options.expire.is_some() {
        cx.ks.event(Class::GENERIC, "expire", key);
    }
    match expiry {
        _ if options.keep => cx.effect(&[b"SET", key.name, &args[2], b"KEEPTTL"]),
        Some(at_ms) => cx.effect(&[b"SET", key.name, &args[2], b"PXAT", Digits::new(at_ms as i64).as_bytes()]),
        None => cx.effect(&[b"SET", key.name, &args[2]]),
    }
    if !options.get {
        cx.out.ok();
    }
    Ok(())
}

fn setnx(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let absent = cx.ks.peek(key)?.is_none();
    if absent {
        cx.ks.set_string(key, &cx.args[2], None);
        cx.ks.event(Class::STRING, "set", key);
    }
    cx.out.int(absent.into());
    Ok(())
}

fn setex(cx: &mut Cx<'_>, unit: Unit, command: &str) -> Run {
    let form = Form { unit, relative: true };
    let (key, value) = (&cx.keys[0], cx.args.get(3).unwrap_or_default());
    let expiry = expiry(&cx.args[2], form, cx.ks.clock_ms(), command)?;
    cx.ks.set_string(key, value, Some(expiry));
    cx.ks.event(Class::STRING, "set", key);
    cx.ks.event(Class::GENERIC, "expire", key);
    cx.effect(&[b"SET", key.name, value, b"PXAT", Digits::new(expiry as i64).as_bytes()]);
    cx.out.ok();
    Ok(())
}

fn getset(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let old = string(cx.ks.get(key)?)?;
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(old))?;
    cx.out.bulk_or_null(old);
    cx.ks.set_string(key, &cx.args[2], None);
    cx.ks.event(Class::STRING, "set", key);
    Ok(())
}

fn getdel(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let Some(old) = string(cx.ks.get(key)?)? else {
        cx.out.null();
        return Ok(());
    };
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(Some(old)))?;
    cx.out.bulk(old);
    cx.ks.remove(key)?;
    cx.ks.event(Class::GENERIC, "del", key);
    cx.effect(&[b"DEL", key.name]);
    Ok(())
}

fn getex(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let options = Options::parse(cx.args, 2, Takes::Getex)?;
    let (now_ms, clock_ms) = (cx.ks.now_ms(), cx.ks.clock_ms());
    let Some(value) = string(cx.ks.get(key)?)? else {
        cx.out.null();
        return Ok(());
    };
    let expiry = options.expiry(clock_ms, "getex")?;
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(Some(value)))?;
    cx.out.bulk(value);
    match expiry {
        Some(at) if at <= now_ms => {
            cx.ks.remove(key)?;
            cx.ks.event(Class::GENERIC, "del", key);
            cx.effect(&[b"DEL", key.name]);
        }
        Some(at) => {
            cx.ks.set_expiry(key, expiry)?;
            cx.ks.event(Class::GENERIC, "expire", key);
            cx.effect(&[b"PEXPIREAT", key.name, Digits::new(at as i64).as_bytes()]);
        }
        None if options.persist && cx.ks.expiry(key)?.flatten().is_some() => {
            cx.ks.set_expiry(key, None)?;
            cx.ks.event(Class::GENERIC, "persist", key);
            cx.effect(&[b"PERSIST", key.name]);
        }
        None => {}
    }
    Ok(())
}

fn mget(cx: &mut Cx<'_>) -> Run {
    cx.out.array(cx.keys.len());
    // Do not stop at the first cold key: all cold keys are then read together.
    let mut cold = false;
    let free_bytes = cx.settings.claim_free_bytes.max(cx.session.claim.granted);
    let mut reply_bytes = 0;
    for key in cx.keys {
        match cx.ks.get(key) {
            Ok(Some(Value::Inline(Kind::String, bytes))) => {
                reply_bytes += bytes.len() + BULK_FRAME_BYTES;
                if reply_bytes <= free_bytes {
                    cx.out.bulk(bytes);
                }
            }
            Ok(_) => cx.out.null(),
            Err(Cold) => cold = true,
        }
    }
    if cold {
        return Err(Stop::Cold);
    }
    claim(cx.settings, cx.session, reply_bytes)
}

/// Pairs of key and value. An odd number of arguments is an error.
fn pairs<'a>(
    cx: &Cx<'a>,
    command: &str,
) -> Result<impl Iterator<Item = (&'a store::Key<'a>, &'a [u8])> + use<'a>, Stop> {
    if cx.args.len().is_multiple_of(2) {
        return Err(wrong_arity(command));
    }
    Ok(cx.keys.iter().zip(cx.args.from(2).step_by(2)))
}

fn mset(cx: &mut Cx<'_>) -> Run {
    for (key, value) in pairs(cx, "mset")? {
        cx.ks.set_string(key, value, None);
        cx.ks.event(Class::STRING, "set", key);
    }
    cx.out.ok();
    Ok(())
}

fn msetnx(cx: &mut Cx<'_>) -> Run {
    let pairs = pairs(cx, "msetnx")?;
    for key in cx.keys {
        if cx.ks.peek(key)?.is_some() {
            cx.out.int(0);
            return Ok(());
        }
    }
    for (key, value) in pairs {
        cx.ks.set_string(key, value, None);
        cx.ks.event(Class::STRING, "set", key);
    }
    cx.out.int(1);
    Ok(())
}

/// The sum of the lengths, if a string of that length is allowed.
fn checked_len(cx: &Cx<'_>, have: usize, more: usize) -> Result<usize, Stop> {
    let max = cx.settings.proto_max_bulk_len.min(STRING_BYTES_MAX);
    have.checked_add(more).filter(|&len| len <= max).ok_or(TOO_LONG)
}

/// Asks for the memory of a string that becomes longer. It is copied if it cannot grow in place.
pub fn claim_longer(settings: &Settings, session: &mut Session, have: usize, end: usize) -> Run {
    claim(settings, session, if end > have { end } else { 0 })
}

fn append(cx: &mut Cx<'_>) -> Run {
    let (key, more) = (&cx.keys[0], cx.args.get(2).unwrap_or_default());
    let Some(have) = string(cx.ks.view(key)?)?.map(<[u8]>::len) else {
        cx.ks.set_string(key, more, None);
        cx.ks.event(Class::STRING, "append", key);
        cx.out.int(more.len() as i64);
        return Ok(());
    };
    let len = checked_len(cx, have, more.len())?;
    claim_longer(cx.settings, cx.session, have, len)?;
    if let Some(mut value) = cx.ks.get_mut(key)? {
        value.splice(have..have, &[more]);
        value.mark_raw();
    }
    cx.ks.event(Class::STRING, "append", key);
    cx.out.int(len as i64);
    Ok(())
}

fn strlen(cx: &mut Cx<'_>) -> Run {
    let value = string(cx.ks.get(&cx.keys[0])?)?;
    cx.out.int(value.map_or(0, <[u8]>::len) as i64);
    Ok(())
}

fn setrange(cx: &mut Cx<'_>) -> Run {
    let (key, with) = (&cx.keys[0], cx.args.get(3).unwrap_or_default());
    let offset = int_or_error(&cx.args[2])?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Stop::error("ERR offset is out of range"));
    };
    let have = string(cx.ks.view(key)?)?.map(<[u8]>::len);
    if with.is_empty() {
        cx.out.int(have.unwrap_or(0) as i64);
        return Ok(());
    }
    let end = checked_len(cx, offset, with.len())?;
    claim_longer(cx.settings, cx.session, have.unwrap_or(0), end)?;
    let Some(have) = have else {
        const ZEROS: &[u8] = &[0; 16 * 1024];
        let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::from_elem(ZEROS, offset / ZEROS.len());
        parts.extend([&ZEROS[..offset % ZEROS.len()], with]);
        cx.ks.set_string_parts(key, &parts, None);
        mark_raw(cx, key)?;
        cx.ks.event(Class::STRING, "setrange", key);
        cx.out.int(end as i64);
        return Ok(());
    };
    if let Some(mut value) = cx.ks.get_mut(key)? {
        value.extend_zero(end);
        if let Some(bytes) = value.inline_mut() {
            bytes[offset..end].copy_from_slice(with);
        }
        value.mark_raw();
    }
    cx.ks.event(Class::STRING, "setrange", key);
    cx.out.int(have.max(end) as i64);
    Ok(())
}

/// OBJECT ENCODING distinguishes edited strings from strings that were set. The key was just written, so it is in RAM.
pub fn mark_raw(cx: &mut Cx<'_>, key: &store::Key<'_>) -> Run {
    if let Some(mut value) = cx.ks.get_mut(key)? {
        value.mark_raw();
    }
    Ok(())
}

fn getrange(cx: &mut Cx<'_>) -> Run {
    let (start, end) = (int_or_error(&cx.args[2])?, int_or_error(&cx.args[3])?);
    let bytes = string(cx.ks.get(&cx.keys[0])?)?.unwrap_or_default();
    let part = part(bytes, start, end);
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(Some(part)))?;
    cx.out.bulk(part);
    Ok(())
}

/// The bytes from `start` to `end`, both included. Negative positions count from the end.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    // Redis compares start and end before it counts from the end: `-1 -5` is empty, even in a string of one byte.
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let len = bytes.len() as i64;
    let place = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    if start > end { &[] } else { &bytes[start as usize..=end as usize] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_follows_redis() {
        for (start, end, expected) in [
            (0, 3, "This"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (16, 20, ""),
            (-1, -3, ""),
            (-100, 3, "This"),
            (-100, -100, "T"),
            (i64::MIN, i64::MAX, "This is a string"),
            (5, 4, ""),
            (i64::MAX, i64::MAX, ""),
            (i64::MIN, i64::MIN, "T"),
        ] {
            assert_eq!(part(b"This is a string", start, end), expected.as_bytes(), "{start} {end}");
        }
        assert_eq!(part(b"", 0, -1), b"");
        assert_eq!(part(b"x", -1, -5), b"");
    }

    #[test]
    fn expiry_times_overflow_into_errors() {
        let ex = Form { unit: Unit::Seconds, relative: true };
        let pxat = Form { unit: Unit::Milliseconds, relative: false };
        assert_eq!(expiry(b"10", ex, 5, "set").ok(), Some(10_005));
        assert_eq!(expiry(b"10", pxat, 5, "set").ok(), Some(10));
        assert_eq!(expiry(b"9223372036854775807", pxat, 5, "set").ok(), Some(i64::MAX as u64));
        for (text, form) in [("0", ex), ("-1", pxat), ("9223372036854776", ex), ("9223372036854775", ex)] {
            let error = expiry(text.as_bytes(), form, 808, "set");
            assert!(matches!(error, Err(Stop::Error(text)) if text == "ERR invalid expire time in 'set' command"));
        }
    }
}
