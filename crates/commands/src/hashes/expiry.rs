//! Owns when fields of hashes expire: HEXPIRE and the like, which Redis has since 7.4. Never knows how an expired field
//! is removed: every command already sees it as absent.

use super::{BASE, Hash, READ_FAST, WRITE_FAST, hash, of_fields, seen, unpacked};
use crate::cx::{Args, Cx};
use crate::number::{Digits, int, int_or_error};
use crate::row::{Access, Effect, Flag, KeyUse, Row, only_here};
use crate::stop::{Run, Stop, invalid_expire};
use smallvec::SmallVec;
use store::{Class, NOTHING};
use value::Boxed;

/// Redis keeps deadlines in 46 bits.
const UNTIL_MAX_MS: i64 = (1 << 46) - 1;
const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
const GET_SYNTAX: &str = "key FIELDS numfields field [field ...]";

const SET: Row = Row {
    arity: -6,
    access: Access::All(KeyUse::UPDATE),
    flags: WRITE_FAST,
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields named.",
    ..BASE
};
const GET: Row = Row {
    arity: -5,
    flags: READ_FAST,
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields named.",
    syntax: GET_SYNTAX,
    ..BASE
};

pub const ROWS: &[Row] = &[
    Row {
        name: "hexpire",
        effect: Effect::Stated,
        summary: "Makes fields of a hash expire after a number of seconds.",
        syntax: "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        examples: &[
            only_here("HSET h a 1 b 2", "(integer) 2"),
            only_here("HEXPIRE h 100 FIELDS 2 a nosuch", "1) (integer) 1\n2) (integer) -2"),
            only_here("HEXPIRE h 50 GT FIELDS 2 a b", "1) (integer) 0\n2) (integer) 0"),
            only_here("HTTL h FIELDS 2 a b", "1) (integer) 100\n2) (integer) -1"),
            only_here("HEXPIRE h 0 FIELDS 1 a", "1) (integer) 2"),
            only_here("HLEN h", "(integer) 1"),
            only_here("HEXPIRE h -1 FIELDS 1 a", "(error) ERR invalid expire time, must be >= 0"),
            only_here(
                "HEXPIRE h 1 FIELDS 2 a",
                "(error) ERR The `numfields` parameter must match the number of arguments",
            ),
        ],
        run: |cx| expire(cx, 1000, true, "hexpire"),
        ..SET
    },
    Row {
        name: "hexpireat",
        effect: Effect::Stated,
        summary: "Makes fields of a hash expire at a time, in seconds since 1970.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        examples: &[
            only_here("HSET h a 1", "(integer) 1"),
            only_here("HEXPIREAT h 9999999999 FIELDS 1 a", "1) (integer) 1"),
            only_here("HEXPIRETIME h FIELDS 1 a", "1) (integer) 9999999999"),
            only_here("HEXPIREAT h 9999999999999 FIELDS 1 a", "(error) ERR invalid expire time in 'hexpireat' command"),
        ],
        run: |cx| expire(cx, 1000, false, "hexpireat"),
        ..SET
    },
    Row {
        name: "hexpiretime",
        summary: "Gives the second, counted from 1970, at which fields expire; -1 for those that do not, -2 for those that are not there.",
        examples: &[
            only_here("HSET h a 1 b 2", "(integer) 2"),
            only_here("HEXPIREAT h 9999999999 FIELDS 1 a", "1) (integer) 1"),
            only_here("HEXPIRETIME h FIELDS 3 a b c", "1) (integer) 9999999999\n2) (integer) -1\n3) (integer) -2"),
            only_here("HEXPIRETIME h FIELD 1 a", NO_FIELDS_REPLY),
        ],
        run: |cx| left(cx, 1000, false),
        ..GET
    },
    Row {
        name: "hpersist",
        arity: -5,
        flags: &[Flag::Write, Flag::Fast],
        summary: "Removes the expiry of fields of a hash.",
        syntax: GET_SYNTAX,
        examples: &[
            only_here("HSET h a 1 b 2", "(integer) 2"),
            only_here("HEXPIRE h 100 FIELDS 1 a", "1) (integer) 1"),
            only_here("HPERSIST h FIELDS 3 a b c", "1) (integer) 1\n2) (integer) -1\n3) (integer) -2"),
            only_here("HTTL h FIELDS 1 a", "1) (integer) -1"),
            only_here("SET k x", "OK"),
            only_here("HPERSIST k FIELDS 1 a", WRONG),
        ],
        run: persist,
        ..SET
    },
    Row {
        name: "hpexpire",
        effect: Effect::Stated,
        summary: "Makes fields of a hash expire after a number of milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        examples: &[
            only_here("HSET h a 1", "(integer) 1"),
            only_here("HPEXPIRE h 100000 NX FIELDS 1 a", "1) (integer) 1"),
            only_here("HPEXPIRE h 200000 NX FIELDS 1 a", "1) (integer) 0"),
            only_here("HPEXPIRE nosuch 1 FIELDS 1 a", "1) (integer) -2"),
            only_here("HPEXPIRE h x FIELDS 1 a", "(error) ERR value is not an integer or out of range"),
        ],
        run: |cx| expire(cx, 1, true, "hpexpire"),
        ..SET
    },
    Row {
        name: "hpexpireat",
        effect: Effect::Stated,
        summary: "Makes fields of a hash expire at a time, in milliseconds since 1970.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        examples: &[
            only_here("HSET h a 1", "(integer) 1"),
            only_here("HPEXPIREAT h 9999999999999 FIELDS 1 a", "1) (integer) 1"),
            only_here("HPEXPIREAT h 1 XX FIELDS 1 a", "1) (integer) 2"),
            only_here("EXISTS h", "(integer) 0"),
            only_here("HPEXPIREAT h 1 FIELDS 0 a", "(error) ERR Parameter `numFields` should be greater than 0"),
        ],
        run: |cx| expire(cx, 1, false, "hpexpireat"),
        ..SET
    },
    Row {
        name: "hpexpiretime",
        summary: "Gives the millisecond, counted from 1970, at which fields expire; -1 for those that do not, -2 for those that are not there.",
        examples: &[
            only_here("HSET h a 1", "(integer) 1"),
            only_here("HPEXPIREAT h 9999999999999 FIELDS 1 a", "1) (integer) 1"),
            only_here("HPEXPIRETIME h FIELDS 1 a", "1) (integer) 9999999999999"),
            only_here("HPEXPIRETIME h FIELD 1 a", NO_FIELDS_REPLY),
        ],
        run: |cx| left(cx, 1, false),
        ..GET
    },
    Row {
        name: "hpttl",
        summary: "Gives the milliseconds that fields have left; -1 for those that do not expire, -2 for those that are not there.",
        examples: &[
            only_here("HSET h a 1", "(integer) 1"),
            only_here("HPTTL h FIELDS 2 a b", "1) (integer) -1\n2) (integer) -2"),
            only_here("HPTTL nosuch FIELDS 1 a", "1) (integer) -2"),
            only_here("HPTTL h FIELD 1 a", NO_FIELDS_REPLY),
        ],
        run: |cx| left(cx, 1, true),
        ..GET
    },
    Row {
        name: "httl",
        summary: "Gives the seconds that fields have left; -1 for those that do not expire, -2 for those that are not there.",
        examples: &[
            only_here("HSET h a 1 b 2", "(integer) 2"),
            only_here("HEXPIRE h 100 FIELDS 1 a", "1) (integer) 1"),
            only_here("HTTL h FIELDS 3 a b c", "1) (integer) 100\n2) (integer) -1\n3) (integer) -2"),
            only_here("SET k x", "OK"),
            only_here("HTTL k FIELDS 1 a", WRONG),
        ],
        run: |cx| left(cx, 1000, true),
        ..GET
    },
];

const NO_FIELDS_REPLY: &str = "(error) ERR Mandatory keyword FIELDS is missing or not at the right position";
const NO_FIELDS: Stop = Stop::error("ERR Mandatory keyword FIELDS is missing or not at the right position");

const ABSENT: i64 = -2;
const ENDLESS: i64 = -1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Nx,
    Xx,
    Gt,
    Lt,
}

impl Condition {
    fn parse(word: &[u8]) -> Condition {
        match word {
            _ if word.eq_ignore_ascii_case(b"nx") => Condition::Nx,
            _ if word.eq_ignore_ascii_case(b"xx") => Condition::Xx,
            _ if word.eq_ignore_ascii_case(b"gt") => Condition::Gt,
            _ if word.eq_ignore_ascii_case(b"lt") => Condition::Lt,
            _ => Condition::None,
        }
    }

    /// A field without deadline counts as one that never expires.
    fn allows(self, old: Option<u64>, new: u64) -> bool {
        match self {
            Condition::None => true,
            Condition::Nx => old.is_none(),
            Condition::Xx => old.is_some(),
            Condition::Gt => old.is_some_and(|old| new > old),
            Condition::Lt => old.is_none_or(|old| new < old),
        }
    }
}

/// The fields after `FIELDS count`, which starts at `at`.
fn fields<'a>(args: Args<'a>, at: usize) -> Result<impl ExactSizeIterator<Item = &'a [u8]> + Clone, Stop> {
    let word = args.get(at).filter(|word| word.eq_ignore_ascii_case(b"fields"));
    let count = args.get(at + 1).filter(|_| word.is_some()).ok_or(NO_FIELDS)?;
    let count = int(count).filter(|&count| count > 0);
    let count = count.ok_or(Stop::error("ERR Parameter `numFields` should be greater than 0"))?;
    let fields = args.from(at + 2);
    if usize::try_from(count) != Ok(fields.len()) {
        return Err(Stop::error("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(fields)
}

/// When a field expires. `None`: no such field.
pub(super) fn deadline(hash: Hash<'_>, field: &[u8]) -> Option<Option<u64>> {
    hash.get(field)?;
    Some(match hash {
        Hash::Packed(_) => None,
        Hash::Table(table) | Hash::Fading(table, _) => table.deadline(field),
    })
}

fn answer(cx: &mut Cx<'_>, replies: impl ExactSizeIterator<Item = i64>) -> Run {
    cx.out.array(replies.len());
    replies.for_each(|reply| cx.out.int(reply));
    Ok(())
}

fn expire(cx: &mut Cx<'_>, unit_ms: i64, relative: bool, command: &'static str) -> Run {
    let (args, key, now_ms, clock_ms) = (cx.args, &cx.keys[0], cx.ks.now_ms(), cx.ks.clock_ms());
    // Redis looks at the key before it checks the options.
    let found = hash(cx.ks.view_for(key, &of_fields(args.from(5)))?)?;
    let time = int_or_error(&args[2])?;
    if time < 0 {
        return Err(Stop::error("ERR invalid expire time, must be >= 0"));
    }
    let base = if relative { clock_ms as i64 } else { 0 };
    let at_ms = time.checked_mul(unit_ms).and_then(|time| time.checked_add(base)).filter(|&at| at <= UNTIL_MAX_MS);
    let at_ms = at_ms.ok_or_else(|| invalid_expire(command))? as u64;
    let condition = Condition::parse(&args[3]);
    let fields = fields(args, if condition == Condition::None { 3 } else { 4 })?;
    let Some(found) = found else { return answer(cx, fields.map(|_| ABSENT)) };
    // A command that changes nothing must not make the value dirty.
    let changes = |field| deadline(found, field).is_some_and(|old| condition.allows(old, at_ms));
    if !fields.clone().any(changes) {
        let replies: SmallVec<[i64; 8]> =
            fields.map(|field| if found.get(field).is_some() { 0 } else { ABSENT }).collect();
        return answer(cx, replies.into_iter());
    }
    let is_past = at_ms <= now_ms;
    let records_effects = cx.ks.records_effects();
    let mut changed: SmallVec<[&[u8]; 8]> = SmallVec::new();
    let (mut replies, mut is_empty): (SmallVec<[i64; 8]>, bool) = (SmallVec::new(), false);
    if let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? {
        if !value.is_boxed() {
            let table = unpacked(value.inline().unwrap_or_default());
            value.replace_boxed(Boxed::Hash(table));
        }
        let Some(Boxed::Hash(table)) = value.boxed() else { unreachable!("it is a table now") };
        for field in fields {
            let reply = match table.get(field) {
                None => ABSENT,
                Some(_) if !condition.allows(table.deadline(field), at_ms) => 0,
                Some(_) if is_past => {
                    table.remove(field);
                    2
                }
                Some(_) => {
                    table.set_deadline(field, Some(at_ms));
                    1
                }
            };
            if records_effects && reply > 0 {
                changed.push(field);
            }
            replies.push(reply);
        }
        is_empty = table.is_empty();
    }
    cx.ks.event(Class::HASH, if is_past { "hdel" } else { "hexpire" }, key);
    cx.ks.note_deadlines(key);
    if is_empty {
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
    }
    if is_past {
        cx.ks.effect([b"HDEL", key.name].into_iter().chain(changed));
    } else {
        let (at_ms, count) = (Digits::new(at_ms as i64), Digits::new(changed.len() as i64));
        let words = [b"HPEXPIREAT", key.name, at_ms.as_bytes(), b"FIELDS", count.as_bytes()];
        cx.ks.effect(words.into_iter().chain(changed));
    }
    answer(cx, replies.into_iter())
}

fn persist(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let found = hash(cx.ks.view_for(key, &of_fields(args.from(4)))?)?;
    let fields = fields(args, 2)?;
    let Some(found) = found else { return answer(cx, fields.map(|_| ABSENT)) };
    let reply = |field| match deadline(found, field) {
        None => ABSENT,
        Some(None) => ENDLESS,
        Some(Some(_)) => 1,
    };
    let mut replies: SmallVec<[i64; 8]> = fields.clone().map(reply).collect();
    if replies.contains(&1)
        && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)?
        && let Some(Boxed::Hash(table)) = value.boxed()
    {
        for (field, reply) in fields.zip(&mut replies).filter(|(_, reply)| **reply == 1) {
            // A field may be named twice.
            if table.deadline(field).is_none() {
                *reply = ENDLESS;
            }
            table.set_deadline(field, None);
        }
        cx.ks.event(Class::HASH, "hpersist", key);
    }
    answer(cx, replies.into_iter())
}

/// HTTL and the like. Seconds are rounded up: a field that still exists has time left.
fn left(cx: &mut Cx<'_>, unit_ms: u64, relative: bool) -> Run {
    let (args, now_ms) = (cx.args, cx.ks.now_ms());
    let hides_at = cx.ks.hides_fields_at();
    let found = seen(cx.ks.get_for(&cx.keys[0], &of_fields(args.from(4)))?, hides_at)?;
    let fields = fields(args, 2)?;
    cx.out.array(fields.len());
    for field in fields {
        cx.out.int(match found.and_then(|found| deadline(found, field)) {
            None => ABSENT,
            Some(None) => ENDLESS,
            Some(Some(at_ms)) => (if relative { at_ms.saturating_sub(now_ms) } else { at_ms }).div_ceil(unit_ms) as i64,
        });
    }
    Ok(())
}
