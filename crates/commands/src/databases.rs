//! Owns the commands on a whole logical database: walking, counting, emptying and swapping it. Never holds a stripe for
//! longer than one step of the store.

use crate::cx::{Cx, claim};
use crate::keys::DB_OUT_OF_RANGE;
use crate::number::{self, int32};
use crate::row::{Acl, Flag, Group, Keys, Row, Values, is, starts};
use crate::scan::{INVALID_CURSOR, SCAN_COUNT, ScanOf, ScanOptions};
use crate::stop::{Run, SYNTAX, Stop};
use resp::reply::{Out, Proto};
use store::{Kind, Show};

const READ: &[Flag] = &[Flag::Readonly, Flag::Keyspace];

const BASE: Row = Row { keys: Keys::NONE, values: Values::Untouched, since: "1.0.0", syntax: "", ..Row::BASE };

pub const ROWS: &[Row] = &[
    Row {
        name: "dbsize",
        acl: &[Acl::Keyspace],
        arity: 1,
        flags: &[Flag::Readonly, Flag::Fast, Flag::Keyspace],
        group: Group::Server,
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        summary: "Gives the number of keys in the selected database, in RAM and on flash.",
        examples: &[
            is("MSET a 1 b 2", "OK"),
            is("DBSIZE", "(integer) 2"),
            is("DBSIZE x", "(error) ERR wrong number of arguments for 'dbsize' command"),
        ],
        run: |cx| {
            let keys = cx.ks.len();
            cx.out.int(keys as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "flushall",
        acl: &[Acl::Keyspace, Acl::Dangerous],
        arity: -1,
        flags: &[Flag::Write, Flag::Barrier],
        group: Group::Server,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of keys in RAM.",
        summary: "Deletes the keys of all databases; with ASYNC their memory is freed in the background. With points of save it \
                  writes the dump, so that the keys do not come back.",
        syntax: "[ASYNC | SYNC]",
        examples: &[
            is("SET k v", "OK"),
            is("FLUSHALL ASYNC", "OK"),
            is("DBSIZE", "(integer) 0"),
            is("FLUSHALL NOW", "(error) ERR syntax error"),
        ],
        run: |cx| {
            // Only in the first run: the handler runs again after its job.
            if cx.session.job.is_none() {
                let lazy = lazy(cx)?;
                cx.ks.flush(None, lazy);
            }
            let may_wait = !cx.ks.runs_once() && !cx.session.repeats;
            cx.server.save_flushed(cx.session, may_wait)?;
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "flushdb",
        acl: &[Acl::Keyspace, Acl::Dangerous],
        arity: -1,
        flags: &[Flag::Write, Flag::Barrier],
        group: Group::Server,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of keys in RAM.",
        summary: "Deletes the keys of the selected database; with ASYNC their memory is freed in the background.",
        syntax: "[ASYNC | SYNC]",
        examples: &[
            is("SET k v", "OK"),
            is("FLUSHDB", "OK"),
            is("EXISTS k", "(integer) 0"),
            is("FLUSHDB SYNC ASYNC", "(error) ERR syntax error"),
        ],
        run: |cx| {
            let (lazy, db) = (lazy(cx)?, cx.ks.db());
            cx.ks.flush(Some(db), lazy);
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "keys",
        acl: &[Acl::Dangerous],
        arity: 2,
        flags: READ,
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        complexity: "O(N) where N is the number of keys in the database. Of cold keys, the pages with their names are read, each once.",
        summary: "Gives the names of all keys that fit a pattern. Other clients are served in the meantime.",
        syntax: "pattern",
        examples: &[
            is("MSET one 1 two 2 three 3", "OK"),
            is("KEYS t?o", "1) \"two\""),
            is("KEYS [^ot]*", "(empty array)"),
            is("KEYS", "(error) ERR wrong number of arguments for 'keys' command"),
        ],
        run: keys,
        ..BASE
    },
    Row {
        name: "randomkey",
        arity: 1,
        flags: READ,
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        summary: "Gives the name of a random key.",
        examples: &[
            is("RANDOMKEY", "(nil)"),
            is("SET only 1", "OK"),
            is("RANDOMKEY", "\"only\""),
            is("RANDOMKEY x", "(error) ERR wrong number of arguments for 'randomkey' command"),
        ],
        run: |cx| {
            let name = cx.ks.random()?;
            cx.out.bulk_or_null(name.as_deref());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "scan",
        arity: -2,
        flags: READ,
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        since: "2.8.0",
        complexity: "O(1) for a call, O(N) for all of a database of N keys. Of cold keys, the pages with their names are read: the fewer for each, the larger COUNT is.",
        summary: "Walks the keys of the selected database, some at each call.",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        examples: &[
            is("SET k v", "OK"),
            is("SCAN 0", "1) \"0\"\n2) 1) \"k\""),
            is("SCAN 0 MATCH x* COUNT 100", "1) \"0\"\n2) (empty array)"),
            is("SCAN 0 TYPE hash", "1) \"0\"\n2) (empty array)"),
            starts("SCAN x", "(error) ERR invalid cursor"),
            is("SCAN 0 COUNT 0", "(error) ERR syntax error"),
        ],
        run: scan,
        ..BASE
    },
    Row {
        name: "swapdb",
        acl: &[Acl::Keyspace, Acl::Dangerous],
        arity: 3,
        flags: &[Flag::Write, Flag::Fast, Flag::Barrier],
        group: Group::Server,
        since: "4.0.0",
        summary: "Exchanges two databases, for all connections at once.",
        syntax: "index1 index2",
        examples: &[
            is("SET k v", "OK"),
            is("SWAPDB 0 1", "OK"),
            is("EXISTS k", "(integer) 0"),
            is("SWAPDB 0 1", "OK"),
            is("GET k", "\"v\""),
            is("SWAPDB a 1", "(error) ERR invalid first DB index"),
            is("SWAPDB 0 99", "(error) ERR DB index is out of range"),
        ],
        run: swapdb,
        ..BASE
    },
];

/// Maximum number of keys that one SCAN looks at, whatever COUNT says, so that its reply is bounded. With a filter the
/// maximum is larger, because few of the keys are in the reply: the more cold keys are looked at together, the fewer
/// reads each takes.
const SCAN_KEYS_MAX: usize = 10_000;
const SCAN_KEYS_MAX_FILTERED: usize = 100_000;

/// The only option of FLUSHALL and FLUSHDB.
fn lazy(cx: &Cx<'_>) -> Result<bool, Stop> {
    match cx.args.get(1) {
        None => Ok(false),
        Some(word) if cx.args.len() == 2 && word.eq_ignore_ascii_case(b"sync") => Ok(false),
        Some(word) if cx.args.len() == 2 && word.eq_ignore_ascii_case(b"async") => Ok(true),
        Some(_) => Err(SYNTAX),
    }
}

fn swapdb(cx: &mut Cx<'_>) -> Run {
    let (args, databases) = (cx.args, cx.settings.databases);
    let first = int32(&args[1]).ok_or(Stop::error("ERR invalid first DB index"))?;
    let second = int32(&args[2]).ok_or(Stop::error("ERR invalid second DB index"))?;
    let index = |number: i32| usize::try_from(number).ok().filter(|&number| number < databases).ok_or(DB_OUT_OF_RANGE);
    let (first, second) = (index(first)?, index(second)?);
    if first != second {
        cx.ks.swap(first, second);
    }
    cx.out.ok();
    Ok(())
}

fn scan(cx: &mut Cx<'_>) -> Run {
    let cursor = number::cursor(&cx.args[1]).ok_or(INVALID_CURSOR)?;
    let options = ScanOptions::parse(cx.args, 2, ScanOf::Keys)?;
    let is_filtered = options.kind.is_some() || options.has_pattern();
    let most = if is_filtered { SCAN_KEYS_MAX_FILTERED } else { SCAN_KEYS_MAX };
    let count = options.count.unwrap_or(SCAN_COUNT).min(most);
    // The reply has the cursor before the names, but the cursor is known only after the names.
    let (next, names, found) = list(cx, &options, cursor, Some(count))?;
    cx.out.array(2);
    cx.out.bulk(next.to_string().as_bytes());
    cx.out.array(found);
    cx.out.raw(&names);
    Ok(())
}

fn keys(cx: &mut Cx<'_>) -> Run {
    let options = ScanOptions::of_pattern(cx.args.get(1).unwrap_or_default());
    let (_, names, found) = list(cx, &options, 0, None)?;
    cx.out.array(found);
    cx.out.raw(&names);
    Ok(())
}

/// Each run does one slice. `resume` holds the names found so far and the position. Returns the cursor behind the list,
/// the names as the reply contains them, and their number.
fn list(
    cx: &mut Cx<'_>,
    options: &ScanOptions<'_>,
    cursor: u64,
    count: Option<usize>,
) -> Result<(u64, Vec<u8>, usize), Stop> {
    let bytes = cx.ks.begin_list(cursor, count);
    // The names found so far, and as much again for the reply. Rounded up by at most a half, so that the handler seldom
    // has to ask.
    let names_bytes = 2 * cx.ks.resume.bytes.len();
    let asked_bytes = names_bytes.next_multiple_of((names_bytes / 4).next_power_of_two());
    claim(cx.settings, cx.session, bytes + asked_bytes)?;
    let (mut names, mut found) = (std::mem::take(&mut cx.ks.resume.bytes), 0);
    let mut listed = Out::new(&mut names, Proto::Resp2);
    let of_type = |kind: Kind| options.kind.is_none_or(|wanted| kind.name().as_bytes().eq_ignore_ascii_case(wanted));
    let slice = cx.ks.list(&mut Show {
        kinds: &of_type,
        name: &mut |name| {
            if options.fits(name) {
                listed.bulk(name);
                found += 1;
            }
        },
    });
    cx.ks.resume.count += found;
    let stop = match slice {
        Ok(Some(next)) => return Ok((next, names, cx.ks.resume.count as usize)),
        Ok(None) => Stop::Yield,
        Err(cold) => cold.into(),
    };
    cx.ks.resume.bytes = names;
    Err(stop)
}
