//! Owns the commands on the expiry of keys. Never knows what the keys hold.

use crate::cx::{Args, Cx};
use crate::number::{Digits, int_or_error};
use crate::row::{Access, Effect, Flag, KeyUse, Row, Values, is, starts};
use crate::stop::{Run, Stop, invalid_expire};
use crate::strings::Unit;
use store::Class;

const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Fast];

/// Setting an expiry needs the value in RAM, because the record on flash holds both.
const WRITE: Row = Row { flags: WRITE_FAST, values: Values::Read, ..Row::BASE };
/// The expiry of a key is in its record: a cold key that has an expiry must be read, one without is not.
const READ: Row = Row { flags: READ_FAST, values: Values::Untouched, ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "expire",
        arity: -3,
        access: Access::All(KeyUse::UPDATE),
        effect: Effect::Stated,
        since: "1.0.0",
        summary: "Makes a key expire after a number of seconds, at once if that is not positive.",
        syntax: "key seconds [NX | XX | GT | LT]",
        examples: &[
            is("SET k v", "OK"),
            is("EXPIRE k 100", "(integer) 1"),
            is("TTL k", "(integer) 100"),
            is("EXPIRE k 50 GT", "(integer) 0"),
            is("EXPIRE k 200 XX GT", "(integer) 1"),
            is("EXPIRE nosuch 100", "(integer) 0"),
            is("EXPIRE k 100 NX XX", "(error) ERR NX and XX, GT or LT options at the same time are not compatible"),
            is("EXPIRE k 9223372036854775807", "(error) ERR invalid expire time in 'expire' command"),
        ],
        run: |cx| expire(cx, Unit::Seconds, true, "expire"),
        ..WRITE
    },
    Row {
        name: "expireat",
        arity: -3,
        access: Access::All(KeyUse::UPDATE),
        effect: Effect::Stated,
        since: "1.2.0",
        summary: "Makes a key expire at a time, in seconds since 1970; at once if that is past.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]",
        examples: &[
            is("SET k v", "OK"),
            is("EXPIREAT k 33177117420", "(integer) 1"),
            is("EXPIRETIME k", "(integer) 33177117420"),
            is("EXPIREAT k 33177117420 GT LT", "(error) ERR GT and LT options at the same time are not compatible"),
            is("EXPIREAT k 1", "(integer) 1"),
            is("EXISTS k", "(integer) 0"),
        ],
        run: |cx| expire(cx, Unit::Seconds, false, "expireat"),
        ..WRITE
    },
    Row {
        name: "expiretime",
        arity: 2,
        since: "7.0.0",
        summary: "Gives the time a key expires at, in seconds since 1970; -1 if it does not, -2 if there is no key.",
        examples: &[
            is("SET k v EXAT 33177117420", "OK"),
            is("EXPIRETIME k", "(integer) 33177117420"),
            is("EXPIRETIME nosuch", "(integer) -2"),
            is("EXPIRETIME", "(error) ERR wrong number of arguments for 'expiretime' command"),
        ],
        run: |cx| left(cx, Unit::Seconds, false),
        ..READ
    },
    Row {
        name: "persist",
        arity: 2,
        access: Access::All(KeyUse::UPDATE),
        since: "2.2.0",
        summary: "Removes a key's expiry.",
        examples: &[
            is("SET k v EX 100", "OK"),
            is("PERSIST k", "(integer) 1"),
            is("TTL k", "(integer) -1"),
            is("PERSIST k", "(integer) 0"),
            is("PERSIST", "(error) ERR wrong number of arguments for 'persist' command"),
        ],
        run: persist,
        ..WRITE
    },
    Row {
        name: "pexpire",
        arity: -3,
        access: Access::All(KeyUse::UPDATE),
        effect: Effect::Stated,
        since: "2.6.0",
        summary: "Makes a key expire after a number of milliseconds, at once if that is not positive.",
        syntax: "key milliseconds [NX | XX | GT | LT]",
        examples: &[
            is("SET k v", "OK"),
            is("PEXPIRE k 100000", "(integer) 1"),
            is("TTL k", "(integer) 100"),
            is("PEXPIRE k soon", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| expire(cx, Unit::Milliseconds, true, "pexpire"),
        ..WRITE
    },
    Row {
        name: "pexpireat",
        arity: -3,
        access: Access::All(KeyUse::UPDATE),
        effect: Effect::Stated,
        since: "2.6.0",
        summary: "Makes a key expire at a time, in milliseconds since 1970; at once if that is past.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
        examples: &[
            is("SET k v", "OK"),
            is("PEXPIREAT k 33177117420000 NX", "(integer) 1"),
            is("PEXPIRETIME k", "(integer) 33177117420000"),
            is("PEXPIREAT k 33177117420000 never", "(error) ERR Unsupported option never"),
        ],
        run: |cx| expire(cx, Unit::Milliseconds, false, "pexpireat"),
        ..WRITE
    },
    Row {
        name: "pexpiretime",
        arity: 2,
        since: "7.0.0",
        summary: "Gives the time a key expires at, in milliseconds since 1970; -1 if it does not, -2 if there is no key.",
        examples: &[
            is("SET k v PXAT 33177117420000", "OK"),
            is("PEXPIRETIME k", "(integer) 33177117420000"),
            is("PEXPIRETIME nosuch", "(integer) -2"),
            is("PEXPIRETIME", "(error) ERR wrong number of arguments for 'pexpiretime' command"),
        ],
        run: |cx| left(cx, Unit::Milliseconds, false),
        ..READ
    },
    Row {
        name: "pttl",
        arity: 2,
        tips: &["nondeterministic_output"],
        since: "2.6.0",
        summary: "Gives the milliseconds a key has left; -1 if it does not expire, -2 if there is no key.",
        examples: &[
            is("SET k v", "OK"),
            is("PTTL k", "(integer) -1"),
            is("PEXPIRE k 100000", "(integer) 1"),
            starts("PTTL k", "(integer) "),
            is("PTTL nosuch", "(integer) -2"),
            is("PTTL", "(error) ERR wrong number of arguments for 'pttl' command"),
        ],
        run: |cx| left(cx, Unit::Milliseconds, true),
        ..READ
    },
    Row {
        name: "ttl",
        arity: 2,
        tips: &["nondeterministic_output"],
        since: "1.0.0",
        summary: "Gives the seconds a key has left; -1 if it does not expire, -2 if there is no key.",
        examples: &[
            is("SET k v EX 100", "OK"),
            is("TTL k", "(integer) 100"),
            is("TTL nosuch", "(integer) -2"),
            is("TTL", "(error) ERR wrong number of arguments for 'ttl' command"),
        ],
        run: |cx| left(cx, Unit::Seconds, true),
        ..READ
    },
];

/// Under which conditions a new expiry replaces the current one.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Conditions, Stop> {
        let mut conditions = Conditions::default();
        for word in args.from(3) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let condition = match () {
                () if says("nx") => &mut conditions.nx,
                () if says("xx") => &mut conditions.xx,
                () if says("gt") => &mut conditions.gt,
                () if says("lt") => &mut conditions.lt,
                () => {
                    let text = format!("ERR Unsupported option {}", String::from_utf8_lossy(word));
                    return Err(Stop::Error(text.into()));
                }
            };
            *condition = true;
        }
        let Conditions { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(Stop::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if gt && lt {
            return Err(Stop::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// A key without expiry counts as one that never expires.
    fn allow(&self, current: Option<u64>, new: i64) -> bool {
        let current = current.map(|at| at as i64);
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|at| new <= at)
            || self.lt && current.is_some_and(|at| new >= at))
    }
}

fn expire(cx: &mut Cx<'_>, unit: Unit, relative: bool, command: &str) -> Run {
    let key = &cx.keys[0];
    let conditions = Conditions::parse(cx.args)?;
    let now_ms = cx.ks.now_ms() as i64;
    let time = int_or_error(&cx.args[2])?;
    // Times before now, and before 1970, are allowed. A time that does not fit into the type is not.
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    let base = if relative { cx.ks.clock_ms() as i64 } else { 0 };
    let at = time.checked_mul(factor).and_then(|time| time.checked_add(base));
    let at = at.ok_or_else(|| invalid_expire(command))?;
    let Some(current) = cx.ks.expiry(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    if !conditions.allow(current, at) {
        cx.out.int(0);
        return Ok(());
    }
    if at <= now_ms {
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
        cx.effect(&[b"DEL", key.name]);
    } else {
        cx.ks.set_expiry(key, Some(at as u64))?;
        cx.ks.event(Class::GENERIC, "expire", key);
        cx.effect(&[b"PEXPIREAT", key.name, Digits::new(at).as_bytes()]);
    }
    cx.out.int(1);
    Ok(())
}

fn persist(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let expires = cx.ks.expiry(key)?.flatten().is_some();
    if expires {
        cx.ks.set_expiry(key, None)?;
        cx.ks.event(Class::GENERIC, "persist", key);
    }
    cx.out.int(expires.into());
    Ok(())
}

/// The reply of TTL and the like. Seconds are rounded to nearest.
fn left(cx: &mut Cx<'_>, unit: Unit, relative: bool) -> Run {
    let expiry = cx.ks.expiry(&cx.keys[0])?;
    cx.ks.looked_up(&cx.keys[0], expiry.is_some());
    cx.out.int(match expiry {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let base = if relative { cx.ks.now_ms() } else { 0 };
            let time = at.saturating_sub(base) as i64;
            if unit == Unit::Seconds { time.saturating_add(500) / 1000 } else { time }
        }
    });
    Ok(())
}
