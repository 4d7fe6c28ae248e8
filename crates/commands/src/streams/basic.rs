//! Owns the commands on a stream's entries: adding, trimming, deleting, ranges. Never knows groups.

use super::ids::{self, IdText, NewId};
use super::{BASE, Count, READ, WRITE_FAST, WRONG, reply_entry, reply_id};
use super::{of_ids, of_stream, stream, stream_mut};
use crate::cx::{Args, Cx, Settings, claim};
use crate::number::{Digits, int_or_error};
use crate::row::{Access, Effect, Flag, KeyUse, Row, is, only_here, starts};
use crate::stop::{NO_SUCH_KEY, Run, SYNTAX, Stop, wrong_arity};
use store::{Class, NOTHING};
use value::Boxed;
use value::stream::{CHUNK_BYTES_MAX, ChunkLimits, Id, Keep, Order, Stream, Trim};

pub const ROWS: &[Row] = &[
    Row {
        name: "xadd",
        arity: -5,
        access: Access::All(KeyUse::UPDATE),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        tips: &["nondeterministic_output"],
        effect: Effect::Stated,
        complexity: "O(1) for the entry, O(N) where N is the number of entries trimmed.",
        summary: "Appends an entry to a stream, which is created when the key does not exist, and may trim it.",
        syntax: "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value \
                 [field value ...]",
        examples: &[
            is("XADD s 1-1 name Ada born 1815", "\"1-1\""),
            is("XADD s 1-* name Grace", "\"1-2\""),
            starts("XADD s * name Edsger", "\"1"),
            is(
                "XADD s 1-1 name Alan",
                "(error) ERR The ID specified in XADD is equal or smaller than the target \
                 stream top item",
            ),
            is("XADD s 0-0 name Alan", "(error) ERR The ID specified in XADD must be greater than 0-0"),
            is("XADD s MAXLEN = 1 99999999999999-0 name Tony", "\"99999999999999-0\""),
            is("XLEN s", "(integer) 1"),
            is("XADD nosuch NOMKSTREAM * a 1", "(nil)"),
            is("XADD s * a", "(error) ERR wrong number of arguments for 'xadd' command"),
            is("SET k x", "OK"),
            is("XADD k * a 1", WRONG),
        ],
        run: xadd,
        ..BASE
    },
    Row {
        name: "xdel",
        arity: -3,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE_FAST,
        complexity: "O(1) for each entry, given chunks of bounded length.",
        summary: "Deletes entries of a stream; returns how many existed.",
        syntax: "key id [id ...]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD s 2-1 b 2", "\"2-1\""),
            is("XDEL s 1-1 3-1", "(integer) 1"),
            is("XLEN s", "(integer) 1"),
            is("XDEL s x", "(error) ERR Invalid stream ID specified as stream command argument"),
            is("XDEL nosuch 1-1", "(integer) 0"),
        ],
        run: xdel,
        ..BASE
    },
    Row {
        name: "xlen",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: &[Flag::Readonly, Flag::Fast],
        summary: "Gives the number of entries of a stream.",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XLEN s", "(integer) 1"),
            is("XLEN nosuch", "(integer) 0"),
            is("SET k x", "OK"),
            is("XLEN k", WRONG),
        ],
        run: |cx| {
            let len = stream(cx.ks.get_for(&cx.keys[0], NOTHING)?)?.map_or(0, Stream::len);
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "xrange",
        arity: -4,
        flags: READ,
        complexity: "O(N) where N is the number of entries given.",
        summary: "Gives the entries of a stream whose ids lie between two, both included.",
        syntax: "key start end [COUNT count]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD s 2-1 b 2", "\"2-1\""),
            is(
                "XRANGE s - +",
                "1) 1) \"1-1\"\n   2) 1) \"a\"\n      2) \"1\"\n2) 1) \"2-1\"\n   2) 1) \"b\"\n      2) \"2\"",
            ),
            is("XRANGE s (1-1 2", "1) 1) \"2-1\"\n   2) 1) \"b\"\n      2) \"2\""),
            is("XRANGE s - + COUNT 1", "1) 1) \"1-1\"\n   2) 1) \"a\"\n      2) \"1\""),
            is("XRANGE s - + COUNT 0", "(nil)"),
            is("XRANGE nosuch - +", "(empty array)"),
            is("XRANGE s - + LIMIT 1", "(error) ERR syntax error"),
        ],
        run: |cx| range(cx, Order::Ascending),
        ..BASE
    },
    Row {
        name: "xrevrange",
        arity: -4,
        flags: READ,
        complexity: "O(N) where N is the number of entries given.",
        summary: "Gives the entries of a stream whose ids lie between two, the last one first.",
        syntax: "key end start [COUNT count]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD s 2-1 b 2", "\"2-1\""),
            is("XREVRANGE s + - COUNT 1", "1) 1) \"2-1\"\n   2) 1) \"b\"\n      2) \"2\""),
            is("XREVRANGE s - +", "(empty array)"),
            is("XREVRANGE s + x", "(error) ERR Invalid stream ID specified as stream command argument"),
        ],
        run: |cx| range(cx, Order::Descending),
        ..BASE
    },
    Row {
        name: "xsetid",
        arity: -3,
        access: Access::All(KeyUse::UPDATE),
        flags: &[Flag::Write, Flag::Denyoom, Flag::Fast],
        summary: "Sets a stream's history: its last id, entries added, largest deleted id.",
        syntax: "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XSETID s 9-0 ENTRIESADDED 5 MAXDELETEDID 3-0", "OK"),
            is(
                "XADD s 8-0 a 1",
                "(error) ERR The ID specified in XADD is equal or smaller than the target stream top \
                 item",
            ),
            only_here(
                "XSETID s 2-0",
                "(error) ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            ),
            is("XSETID nosuch 1-1", "(error) ERR no such key"),
        ],
        run: xsetid,
        ..BASE
    },
    Row {
        name: "xtrim",
        arity: -4,
        access: Access::All(KeyUse::DELETE),
        flags: &[Flag::Write],
        tips: &["nondeterministic_output"],
        effect: Effect::Stated,
        complexity: "O(N) where N is the number of entries trimmed.",
        summary: "Removes the oldest entries of a stream: all but a number, or those below an id; with ~ only what goes \
                  in one piece.",
        syntax: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD s 2-1 b 2", "\"2-1\""),
            is("XTRIM s MAXLEN ~ 1", "(integer) 0"),
            is("XTRIM s MINID 2", "(integer) 1"),
            is("XTRIM s MAXLEN 0", "(integer) 1"),
            is(
                "XTRIM s MAXLEN 0 LIMIT 5",
                "(error) ERR syntax error, LIMIT cannot be used without the special ~ option",
            ),
            is("XTRIM s MAXLEN -1", "(error) ERR The MAXLEN argument must be >= 0."),
            is("XTRIM nosuch MAXLEN 1", "(integer) 0"),
        ],
        run: xtrim,
        ..BASE
    },
];

/// Without LIMIT, `~` removes the entries of at most this many chunks at once.
const APPROXIMATE_CHUNKS: u64 = 100;
const APPROXIMATE_ENTRIES_DEFAULT: u64 = 10_000;
const APPROXIMATE_ENTRIES_MAX: u64 = 1_000_000;

/// The options of XADD and XTRIM, before the fields.
struct Options {
    trim: Option<Trim>,
    no_mkstream: bool,
    id: NewId,
    /// The position of the id. If there is no id: the position after the last argument.
    id_at: usize,
}

impl Options {
    fn parse(args: Args<'_>, is_xadd: bool, repeats: bool, settings: &Settings) -> Result<Options, Stop> {
        let (mut keep, mut is_approximate, mut limit) = (None, false, None);
        let mut options = Options { trim: None, no_mkstream: false, id: NewId::Auto, id_at: args.len() };
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let next = args.get(at + 1);
            if is_xadd && word == b"*" {
                options.id_at = at;
                break;
            } else if let (true, Some(next)) = (says("maxlen") || says("minid"), next) {
                if keep.is_some() {
                    return Err(Stop::error(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                is_approximate = next == b"~";
                let (threshold, taken) = match args.get(at + 2) {
                    Some(threshold) if matches!(next, b"~" | b"=") => (threshold, 2),
                    _ => (next, 1),
                };
                is_approximate &= taken == 2;
                keep = Some(if says("minid") {
                    Keep::From(ids::strict(threshold, 0)?)
                } else {
                    let len = u64::try_from(int_or_error(threshold)?);
                    Keep::Len(len.map_err(|_| Stop::error("ERR The MAXLEN argument must be >= 0."))?)
                });
                at += taken;
            } else if let (true, Some(next)) = (says("limit"), next) {
                let entries = u64::try_from(int_or_error(next)?);
                limit = Some(entries.map_err(|_| Stop::error("ERR The LIMIT argument must be >= 0."))?);
                at += 1;
            } else if is_xadd && says("nomkstream") {
                options.no_mkstream = true;
            } else if is_xadd {
                options.id = NewId::parse(word)?;
                options.id_at = at;
                break;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        if keep.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(Stop::error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if keep.is_none() && !is_xadd {
            return Err(Stop::error("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if repeats && !is_approximate {
            // Redis states to replicas and in its file the exact length after trimming, but leaves LIMIT in the
            // command. So ignore it.
            limit = None;
        }
        if limit.is_some() && !is_approximate {
            return Err(Stop::error("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let limit = limit.unwrap_or_else(|| if is_approximate { approximate_limit(settings) } else { 0 });
        options.trim = keep.map(|keep| Trim { keep, whole_chunks: is_approximate, limit });
        Ok(options)
    }
}

fn approximate_limit(settings: &Settings) -> u64 {
    match (settings.stream_node_max_entries as u64).saturating_mul(APPROXIMATE_CHUNKS) {
        0 => APPROXIMATE_ENTRIES_DEFAULT,
        entries => entries.min(APPROXIMATE_ENTRIES_MAX),
    }
}

fn xadd(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let options = Options::parse(args, true, cx.session.repeats, cx.settings)?;
    let fields_at = options.id_at + 1;
    let parts = args.len().saturating_sub(fields_at);
    if parts < 2 || parts % 2 == 1 {
        return Err(wrong_arity("xadd"));
    }
    if options.id == NewId::Exact(Id::MIN) {
        return Err(Stop::error("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now_ms = cx.ks.clock_ms();
    let bytes = args.from(fields_at).map(<[u8]>::len).sum::<usize>();
    let limits = ChunkLimits { bytes: cx.settings.stream_node_max_bytes, entries: cx.settings.stream_node_max_entries };
    let touched = of_stream(|stream, out| stream.want_append(bytes, limits, options.trim.as_ref(), out));
    let found = stream(cx.ks.get_to_edit_for(key, &touched)?)?.map(|stream| stream.last_id);
    if found.is_none() && options.no_mkstream {
        cx.out.null();
        return Ok(());
    }
    if found == Some(Id::MAX) {
        return Err(Stop::error("ERR The stream has exhausted the last possible ID, unable to add more items"));
    }
    let id = options
        .id
        .after(found.unwrap_or(Id::MIN), now_ms)
        .ok_or(Stop::error("ERR The ID specified in XADD is equal or smaller than the target stream top item"))?;
    if bytes > CHUNK_BYTES_MAX {
        return Err(Stop::error("ERR Elements are too large to be stored"));
    }
    let change = |stream: &mut Stream| {
        let pairs = args.from(fields_at).step_by(2).zip(args.from(fields_at + 1).step_by(2));
        stream.append(id, pairs, limits);
        let trimmed = options.trim.as_ref().map_or(0, |trim| stream.trim(trim));
        (trimmed, stream.len())
    };
    let (trimmed, len) = match found {
        None => {
            let mut stream = Box::new(Stream::new());
            let result = change(&mut stream);
            cx.ks.set_boxed(key, Boxed::Stream(stream), None);
            result
        }
        Some(_) => cx.ks.get_mut_for(key, NOTHING)?.map_or((0, 0), |mut value| change(stream_mut(&mut value))),
    };
    cx.ks.event(Class::STREAM, "xadd", key);
    if trimmed > 0 {
        cx.ks.event(Class::STREAM, "xtrim", key);
    }
    let len = Digits::new(len as i64);
    let trim: &[&[u8]] = if trimmed > 0 { &[b"MAXLEN", b"=", len.as_bytes()] } else { &[] };
    let words = [b"XADD", key.name].into_iter().chain(trim.iter().copied());
    cx.ks.effect(words.chain([IdText::new(id).as_bytes()]).chain(args.from(fields_at)));
    reply_id(&mut cx.out, id);
    Ok(())
}

fn xtrim(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let options = Options::parse(cx.args, false, cx.session.repeats, cx.settings)?;
    let touched = of_stream(|stream, out| {
        if let Some(trim) = &options.trim {
            stream.want_trim(trim, out);
        }
    });
    let (mut trimmed, mut len) = (0, 0);
    if let (Some(found), Some(trim)) = (stream(cx.ks.get_to_edit_for(key, &touched)?)?, options.trim) {
        // A stream with nothing to trim must not become dirty.
        if found.has_surplus(&trim)
            && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)?
        {
            let stream = stream_mut(&mut value);
            trimmed = stream.trim(&trim);
            len = stream.len();
        }
    }
    if trimmed > 0 {
        cx.ks.event(Class::STREAM, "xtrim", key);
        // Trimming always removes the oldest entries, so the effect states a length. How much `~` leaves depends on
        // chunks.
        cx.effect(&[b"XTRIM", key.name, b"MAXLEN", b"=", Digits::new(len as i64).as_bytes()]);
    }
    cx.out.int(trimmed as i64);
    Ok(())
}

fn xdel(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let ids = || args.from(2).map(|id| ids::strict(id, 0));
    let mut deleted = 0;
    if let Some(found) = stream(cx.ks.get_to_edit_for(key, &of_ids(ids().flatten()))?)? {
        let mut any = false;
        for id in ids() {
            let id = id?;
            any = any || found.get(id).is_some();
        }
        if any && let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? {
            let stream = stream_mut(&mut value);
            deleted = ids().flatten().filter(|&id| stream.remove(id)).count();
        }
    }
    if deleted > 0 {
        cx.ks.event(Class::STREAM, "xdel", key);
    }
    cx.out.int(deleted as i64);
    Ok(())
}

fn range(cx: &mut Cx<'_>, order: Order) -> Run {
    let args = cx.args;
    let (first, last) = if order == Order::Ascending { (2, 3) } else { (3, 2) };
    let (start, end) = (ids::start(&args[first])?, ids::end(&args[last])?);
    let mut count = None;
    let mut at = 4;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if word.eq_ignore_ascii_case(b"count") => count = Some(int_or_error(number)?.max(0) as u64),
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    let touched = of_stream(|stream, out| {
        if count != Some(0) {
            stream.want(start, end, order, count.unwrap_or(0), out);
        }
    });
    let Some(stream) = stream(cx.ks.get_for(&cx.keys[0], &touched)?)? else {
        cx.out.array(0);
        return Ok(());
    };
    if count == Some(0) {
        cx.out.null_array();
        return Ok(());
    }
    let count = Count(count.unwrap_or(0));
    let out = &mut cx.out;
    let free_bytes = cx.settings.claim_free_bytes.max(cx.session.claim.granted);
    let (mark, mut given, mut unclaimed_bytes) = (out.array_deferred(), 0, 0);
    let from = out.len();
    stream.each(start, end, order, |entry| {
        reply_entry(out, entry);
        if out.len() - from > free_bytes {
            // From here on only the length is needed: the command runs again when the memory for the reply is granted.
            unclaimed_bytes += out.len() - from;
            out.truncate(from);
        }
        given += 1;
        !count.is_reached(given)
    });
    if unclaimed_bytes > 0 {
        return claim(cx.settings, cx.session, unclaimed_bytes + out.len() - from);
    }
    cx.out.finish(mark, given);
    Ok(())
}

fn xsetid(cx: &mut Cx<'_>) -> Run {
    let (args, key) = (cx.args, &cx.keys[0]);
    let id = ids::strict(&args[2], 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, Id::MIN);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match args.get(at + 1) {
            Some(number) if says("entriesadded") => {
                let number = u64::try_from(int_or_error(number)?);
                entries_added = Some(number.map_err(|_| Stop::error("ERR entries_added must be positive"))?);
            }
            Some(text) if says("maxdeletedid") => {
                max_deleted_id = ids::strict(text, 0)?;
                if id < max_deleted_id {
                    return Err(Stop::error(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    let last_entry = of_stream(|stream, out| stream.want(Id::MIN, Id::MAX, Order::Descending, 1, out));
    let found = stream(cx.ks.get_to_edit_for(key, &last_entry)?)?.ok_or(NO_SUCH_KEY)?;
    if id < found.max_deleted_id {
        return Err(Stop::error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if found.last_entry_id().is_some_and(|last| id < last) {
        return Err(Stop::error("ERR The ID specified in XSETID is smaller than the target stream top item"));
    }
    if !found.is_empty() && entries_added.is_some_and(|added| added < found.len()) {
        return Err(Stop::error("ERR The entries_added specified in XSETID is smaller than the target stream length"));
    }
    if let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
        let stream = stream_mut(&mut value);
        stream.last_id = id;
        stream.entries_added = entries_added.unwrap_or(stream.entries_added);
        if max_deleted_id != Id::MIN {
            stream.max_deleted_id = max_deleted_id;
        }
    }
    cx.ks.event(Class::STREAM, "xsetid", key);
    cx.out.ok();
    Ok(())
}
