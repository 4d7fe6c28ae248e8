//! Owns the commands on sets. Never knows other types, except to refuse them.

mod algebra;
pub(crate) mod form;
mod sample;

pub(crate) use algebra::limit_of;
pub(crate) use sample::count_of;

use crate::cx::{Cx, claim_reply};
use crate::number;
use crate::row::{Access, Effect, Flag, Group, KeyUse, Keys, Row, is, only_here};
use crate::scan::{INVALID_CURSOR, SCAN_COUNT, ScanOf, ScanOptions};
use crate::stop::{Run, Stop};
use algebra::Operation;
use form::{Draft, Limits, Member, Set, of_members, set};
use std::iter::once;
use store::{Class, Cold, Key, NOTHING};
use value::set::Step;
use value::{Absent, Boxed};

const READ: &[Flag] = &[Flag::Readonly];
const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

const BASE: Row = Row { group: Group::Set, since: "1.0.0", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "sadd",
        arity: -3,
        access: Access::All(KeyUse::INSERT),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        complexity: "O(N) where N is the number of members to add.",
        summary: "Adds members to a set, which is created when the key does not exist.",
        syntax: "key member [member ...]",
        examples: &[
            is("SADD s one two", "(integer) 2"),
            is("SADD s two three", "(integer) 1"),
            is("SCARD s", "(integer) 3"),
            is("SADD s", "(error) ERR wrong number of arguments for 'sadd' command"),
            is("SET k x", "OK"),
            is("SADD k one", WRONG),
        ],
        run: sadd,
        ..BASE
    },
    Row {
        name: "scard",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        complexity: "O(1); a compact set is walked.",
        summary: "Gives the number of members of a set.",
        examples: &[
            is("SADD s a b c", "(integer) 3"),
            is("SCARD s", "(integer) 3"),
            is("SCARD nosuch", "(integer) 0"),
            is("SET k x", "OK"),
            is("SCARD k", WRONG),
        ],
        run: |cx| {
            let len = set(cx.ks.get_for(&cx.keys[0], NOTHING)?)?.map_or(0, |set| set.len());
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "sdiff",
        arity: -2,
        keys: Keys::ALL,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of members of all sets.",
        summary: "Gives the members of the first set that are in none of the others.",
        syntax: "key [key ...]",
        examples: &[
            is("SADD a 1 2 3", "(integer) 3"),
            is("SADD b 2 3", "(integer) 2"),
            is("SDIFF a b nosuch", "1) \"1\""),
            is("SDIFF nosuch a", "(empty array)"),
            is("SET k x", "OK"),
            is("SDIFF nosuch k", WRONG),
        ],
        run: |cx| algebra::reply(cx, Operation::Diff),
        ..BASE
    },
    Row {
        name: "sdiffstore",
        arity: -3,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: Keys::ALL,
        flags: &[Flag::Write, Flag::Denyoom],
        complexity: "O(N) where N is the number of members of all sets.",
        summary: "Stores what SDIFF gives in a key and tells how many members that are.",
        syntax: "destination-key key [key ...]",
        examples: &[
            is("SADD a 1 2 3", "(integer) 3"),
            is("SADD b 2", "(integer) 1"),
            is("SDIFFSTORE d a b", "(integer) 2"),
            is("SMEMBERS d", "1) \"1\"\n2) \"3\""),
            is("SDIFFSTORE d b a", "(integer) 0"),
            is("EXISTS d", "(integer) 0"),
            is("SDIFFSTORE d", "(error) ERR wrong number of arguments for 'sdiffstore' command"),
        ],
        run: |cx| algebra::store(cx, Operation::Diff, "sdiffstore"),
        ..BASE
    },
    Row {
        name: "sinter",
        arity: -2,
        keys: Keys::ALL,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N*M) worst case where N is the size of the smallest set and M the number of sets.",
        summary: "Gives the members that all of the sets have.",
        syntax: "key [key ...]",
        examples: &[
            is("SADD a 1 2 3", "(integer) 3"),
            is("SADD b 2 3 4", "(integer) 3"),
            is("SINTER a b", "1) \"2\"\n2) \"3\""),
            is("SINTER a nosuch", "(empty array)"),
            is("SET k x", "OK"),
            is("SINTER a k", WRONG),
        ],
        run: |cx| algebra::reply(cx, Operation::Inter),
        ..BASE
    },
    Row {
        name: "sintercard",
        arity: -3,
        keys: Keys::Counted { at: 1 },
        flags: &[Flag::Readonly, Flag::MovableKeys],
        since: "7.0.0",
        complexity: "O(N*M) worst case where N is the size of the smallest set and M the number of sets.",
        summary: "Counts the members that all of the sets have, up to a limit.",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        examples: &[
            is("SADD a 1 2 3", "(integer) 3"),
            is("SADD b 1 2 3 4", "(integer) 4"),
            is("SINTERCARD 2 a b", "(integer) 3"),
            is("SINTERCARD 2 a b LIMIT 2", "(integer) 2"),
            is("SINTERCARD 0 a", "(error) ERR numkeys should be greater than 0"),
            is("SINTERCARD 3 a b", "(error) ERR Number of keys can't be greater than number of args"),
            is("SINTERCARD 1 a LIMIT -1", "(error) ERR LIMIT can't be negative"),
        ],
        run: algebra::inter_card,
        ..BASE
    },
    Row {
        name: "sinterstore",
        arity: -3,
        access: Access::First(KeyUse::UPDATE, KeyUse::READ),
        keys: Keys::ALL,
        flags: &[Flag::Write, Flag::Denyoom],
        complexity: "O(N*M) worst case where N is the size of the smallest set and M the number of sets.",
        summary: "Stores what SINTER gives in a key and tells how many members that are.",
        syntax: "destination-key key [key ...]",
        examples: &[
            is("SADD a 1 2 3", "(integer) 3"),
            is("SADD b 2 3 4", "(integer) 3"),
            is("SINTERSTORE d a b", "(integer) 2"),
            is("OBJECT ENCODING d", "\"intset\""),
            is("SINTERSTORE d", "(error) ERR wrong number of arguments for 'sinterstore' command"),
        ],
        run: |cx| algebra::store(cx, Operation::Inter, "sinterstore"),
        ..BASE
    },
    Row {
        name: "sismember",
        arity: 3,
        access: Access::All(KeyUse::LOOK),
        flags: READ_FAST,
        summary: "Tells whether a set has a member.",
        syntax: "key member",
        examples: &[
            is("SADD s a", "(integer) 1"),
            is("SISMEMBER s a", "(integer) 1"),
            is("SISMEMBER s b", "(integer) 0"),
            is("SISMEMBER nosuch b", "(integer) 0"),
            is("SET k x", "OK"),
            is("SISMEMBER k b", WRONG),
        ],
        run: |cx| {
            let member = &cx.args[2];
            let set = set(cx.ks.get_for(&cx.keys[0], &of_members(once(member)))?)?;
            let found = set.is_some_and(|set| set.contains(member));
            cx.out.int(found.into());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "smembers",
        arity: 2,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of members.",
        summary: "Gives all members of a set.",
        examples: &[
            is("SADD s 3 1 2", "(integer) 3"),
            is("SMEMBERS s", "1) \"1\"\n2) \"2\"\n3) \"3\""),
            is("SMEMBERS nosuch", "(empty array)"),
            is("SMEMBERS", "(error) ERR wrong number of arguments for 'smembers' command"),
        ],
        run: smembers,
        ..BASE
    },
    Row {
        name: "smismember",
        arity: -3,
        flags: READ_FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members asked for.",
        summary: "Tells for each of several members whether a set has it.",
        syntax: "key member [member ...]",
        examples: &[
            is("SADD s a b", "(integer) 2"),
            is("SMISMEMBER s a nosuch b", "1) (integer) 1\n2) (integer) 0\n3) (integer) 1"),
            is("SMISMEMBER nosuch a", "1) (integer) 0"),
            is("SMISMEMBER s", "(error) ERR wrong number of arguments for 'smismember' command"),
        ],
        run: smismember,
        ..BASE
    },
    Row {
        name: "smove",
        arity: 4,
        access: Access::First(KeyUse::TAKE, KeyUse::INSERT),
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        flags: &[Flag::Write, Flag::Fast],
        summary: "Moves a member from one set to another.",
        syntax: "source destination member",
        examples: &[
            is("SADD a 1 2", "(integer) 2"),
            is("SMOVE a b 1", "(integer) 1"),
            is("SMOVE a b 1", "(integer) 0"),
            is("SMEMBERS b", "1) \"1\""),
            is("SET k x", "OK"),
            is("SMOVE a k 2", WRONG),
        ],
        run: algebra::move_member,
        ..BASE
    },
    Row {
        name: "spop",
        arity: -2,
        access: Access::All(KeyUse::TAKE),
        flags: &[Flag::Write, Flag::Fast],
        tips: &["nondeterministic_output"],
        effect: Effect::Stated,
        complexity: "O(N) where N is the number of members taken.",
        summary: "Takes random members out of a set.",
        syntax: "key [count]",
        examples: &[
            is("SADD s only", "(integer) 1"),
            is("SPOP s", "\"only\""),
            is("SPOP s", "(nil)"),
            is("SADD s 1 2", "(integer) 2"),
            is("SPOP s 5", "1) \"1\"\n2) \"2\""),
            is("EXISTS s", "(integer) 0"),
            is("SPOP s 5", "(empty array)"),
            is("SPOP s -1", "(error) ERR value is out of range, must be positive"),
        ],
        run: sample::spop,
        ..BASE
    },
    Row {
        name: "srandmember",
        arity: -2,
        flags: READ,
        tips: &["nondeterministic_output"],
        complexity: "O(N) where N is the number of members given.",
        summary: "Gives random members of a set: distinct ones for a positive count, any for a negative one.",
        syntax: "key [count]",
        examples: &[
            is("SADD s only", "(integer) 1"),
            is("SRANDMEMBER s", "\"only\""),
            is("SRANDMEMBER s 5", "1) \"only\""),
            is("SRANDMEMBER s -2", "1) \"only\"\n2) \"only\""),
            is("SRANDMEMBER nosuch", "(nil)"),
            is("SRANDMEMBER nosuch 1", "(empty array)"),
            is("SRANDMEMBER s x", "(error) ERR value is not an integer or out of range"),
        ],
        run: sample::srandmember,
        ..BASE
    },
    Row {
        name: "srem",
        arity: -3,
        access: Access::All(KeyUse::DELETE),
        flags: &[Flag::Write, Flag::Fast],
        complexity: "O(N) where N is the number of members to remove.",
        summary: "Removes members of a set; the last one takes the key with it.",
        syntax: "key member [member ...]",
        examples: &[
            is("SADD s a b c", "(integer) 3"),
            is("SREM s a nosuch", "(integer) 1"),
            is("SREM s b c", "(integer) 2"),
            is("EXISTS s", "(integer) 0"),
            is("SET k x", "OK"),
            is("SREM k a", WRONG),
        ],
        run: srem,
        ..BASE
    },
    Row {
        name: "sscan",
        arity: -3,
        flags: READ,
        tips: &["nondeterministic_output"],
        since: "2.8.0",
        complexity: "O(1) for a call, O(N) for all of a set of N members.",
        summary: "Walks the members of a set, some at each call.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        examples: &[
            is("SADD s 1 2 13", "(integer) 3"),
            is("SSCAN s 0", "1) \"0\"\n2) 1) \"1\"\n   2) \"2\"\n   3) \"13\""),
            is("SSCAN s 0 MATCH 1*", "1) \"0\"\n2) 1) \"1\"\n   2) \"13\""),
            is("SSCAN nosuch 0", "1) \"0\"\n2) (empty array)"),
            is("SSCAN s x", "(error) ERR invalid cursor"),
            is("SSCAN s 0 COUNT 0", "(error) ERR syntax error"),
        ],
        run: sscan,
        ..BASE
    },
    Row {
        name: "sunion",
        arity: -2,
        keys: Keys::ALL,
        flags: READ,
        tips: &["nondeterministic_output_order"],
        complexity: "O(N) where N is the number of members of all sets.",
        summary: "Gives the members that any of the sets has.",
        syntax: "key [key ...]",
        examples: &[
            is("SADD a 1 2", "(integer) 2"),
            is("SADD b 2 3", "(integer) 2"),
            is("SUNION a nosuch b", "1) \"1\"\n2) \"2\"\n3) \"3\""),
            is("SUNION nosuch", "(empty array)"),
            is("SET k x", "OK"),
            is("SUNION a k", WRONG),
        ],
        run: |cx| algebra::reply(cx, Operation::Union),
        ..BASE
    },
    Row {
        name: "sunionstore",
        arity: -3,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: Keys::ALL,
        flags: &[Flag::Write, Flag::Denyoom],
        complexity: "O(N) where N is the number of members of all sets.",
        summary: "Stores what SUNION gives in a key and tells how many members that are.",
        syntax: "destination-key key [key ...]",
        examples: &[
            is("SADD a 1 2", "(integer) 2"),
            is("SADD b x", "(integer) 1"),
            is("SUNIONSTORE d a b", "(integer) 3"),
            only_here("OBJECT ENCODING d", "\"listpack\""),
            is("SUNIONSTORE d", "(error) ERR wrong number of arguments for 'sunionstore' command"),
        ],
        run: |cx| algebra::store(cx, Operation::Union, "sunionstore"),
        ..BASE
    },
];

fn sadd(cx: &mut Cx<'_>) -> Run {
    let (key, limits, members) = (&cx.keys[0], Limits::of(cx.settings), cx.args.from(2));
    let Some(old) = set(cx.ks.view_for(key, &of_members(members.clone()))?)? else {
        let mut draft = Draft::new(&cx.args[2], members.len(), limits);
        let added = members.filter(|member| draft.add(member, limits)).count();
        draft.store(cx, key, None);
        cx.ks.event(Class::SET, "sadd", key);
        cx.out.int(added as i64);
        return Ok(());
    };
    let outgrows = form::outgrows(old, members.len(), limits);
    // Adding a member that is there must not make the value dirty.
    let known = members.clone().take_while(|member| old.contains(member)).count();
    let mut added = 0;
    if (known < members.len() || outgrows)
        && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)?
    {
        if outgrows {
            form::make_table(&mut value);
        }
        added = members.skip(known).filter(|member| form::add(&mut value, member, limits)).count();
    }
    if added > 0 {
        cx.ks.event(Class::SET, "sadd", key);
    }
    cx.out.int(added as i64);
    Ok(())
}

fn srem(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let old = set(cx.ks.view_for(key, &of_members(cx.args.from(2)))?)?;
    // Removing a member that is not there must not make the value dirty.
    let found = old.is_some_and(|set| cx.args.from(2).any(|member| set.contains(member)));
    let removed = if found { remove_members(cx, key, &mut cx.args.from(2), "srem")? } else { 0 };
    cx.out.int(removed as i64);
    Ok(())
}

/// Removes members, at least one of which exists, and removes the key together with its last member.
fn remove_members(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    members: &mut dyn Iterator<Item = &[u8]>,
    event: &'static str,
) -> Result<usize, Cold> {
    let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? else { return Ok(0) };
    let removed = members.filter(|member| form::remove(&mut value, member)).count();
    let is_empty = form::is_empty(&mut value);
    cx.ks.event(Class::SET, event, key);
    if is_empty {
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
    }
    Ok(removed)
}

fn smembers(cx: &mut Cx<'_>) -> Run {
    let set = set(cx.ks.get(&cx.keys[0])?)?;
    claim_reply(cx.settings, cx.session, &mut cx.out, set.map_or(0, Set::reply_bytes))?;
    cx.out.set(set.map_or(0, |set| set.len()));
    for member in set.iter().flat_map(|set| set.iter()) {
        member.write(&mut cx.out);
    }
    Ok(())
}

fn smismember(cx: &mut Cx<'_>) -> Run {
    let members = cx.args.from(2);
    let set = set(cx.ks.get_for(&cx.keys[0], &of_members(members.clone()))?)?;
    cx.out.array(members.len());
    for member in members {
        cx.out.int(set.is_some_and(|set| set.contains(member)).into());
    }
    Ok(())
}

fn sscan(cx: &mut Cx<'_>) -> Run {
    let cursor = number::cursor(&cx.args[2]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(cx.args, 3, ScanOf::Set);
    let count = options.as_ref().map_or(1, |options| options.count.unwrap_or(SCAN_COUNT));
    let of_step = |value: &Boxed, out: &mut Absent| {
        if let Boxed::Set(table) = value {
            table.want_scan(cursor, count, out);
        }
    };
    // Redis looks up the key before it checks the options.
    let Some(set) = set(cx.ks.get_for(&cx.keys[0], &of_step)?)? else {
        cx.out.array(2);
        cx.out.bulk(b"0");
        cx.out.array(0);
        return Ok(());
    };
    let options = options?;
    let mut found = Vec::new();
    let take = |member: Member<'_>| member.with(|text| options.fits(text));
    let next = match set {
        Set::Table(table) => table.scan(cursor, count, &mut |text| {
            if take(Member::Text(text)) {
                found.push(Member::Text(text));
            }
        }),
        packed => {
            found.extend(packed.iter().filter(|&member| take(member)));
            Step::End
        }
    };
    cx.out.array(2);
    cx.out.bulk_int(match next {
        // A cursor is smaller than 2^32.
        Step::Next(cursor) => cursor as i64,
        Step::End => 0,
    });
    cx.out.array(found.len());
    found.into_iter().for_each(|member| member.write(&mut cx.out));
    Ok(())
}

/// A count that must not be negative.
pub(crate) fn positive(text: &[u8]) -> Result<usize, Stop> {
    let count = number::int(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Stop::error("ERR value is out of range, must be positive"))
}
