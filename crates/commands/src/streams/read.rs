//! Owns XREAD and XREADGROUP: reading new entries of several streams, or waiting for them. Never knows how they wait.

use super::state::Who;
use super::{BASE, Count, WRONG, ids, no_group_to_read, reply_entry, reply_id, stream, stream_mut};
use crate::block::Block;
use crate::cx::{Args, BULK_FRAME_BYTES, Cx, claim_reply};
use crate::number::int_or_error;
use crate::row::{Access, Effect, Flag, HowMany, KeyLocation, KeyUse, Keys, Row, is};
use crate::stop::{Run, SYNTAX, Stop};
use crate::timeout::until_milliseconds;
use resp::Proto;
use resp::reply::Out;
use smallvec::SmallVec;
use store::{Class, Keyspace, Kind, NOTHING, Wants};
use value::listpack::Element;
use value::stream::{Entry, Group, Id, Order, Stream};
use value::{Absent, Boxed};

pub const ROWS: &[Row] = &[
    Row {
        name: "xread",
        arity: -4,
        keys: Keys::Rule(streams, &[KeyLocation::Behind { word: "STREAMS", from: 1, how_many: HowMany::Half }]),
        flags: &[Flag::Readonly, Flag::Blocking, Flag::MovableKeys],
        complexity: "O(N) where N is the number of entries given.",
        summary: "Gives the entries of streams above an id for each stream, or waits for one.",
        syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XADD t 2-1 b 2", "\"2-1\""),
            is(
                "XREAD COUNT 5 STREAMS s t 0 2-1",
                "1) 1) \"s\"\n   2) 1) 1) \"1-1\"\n         2) 1) \"a\"\n            2) \"1\"",
            ),
            is("XREAD STREAMS s $", "(nil)"),
            is("XREAD BLOCK 1 STREAMS s $", "(nil)"),
            is(
                "XREAD STREAMS s >",
                "(error) ERR The > ID can be specified only when calling XREADGROUP using the \
                 GROUP <group> <consumer> option.",
            ),
            is("XREAD COUNT 1 s 0", "(error) ERR syntax error"),
        ],
        run: xread,
        ..BASE
    },
    Row {
        name: "xreadgroup",
        arity: -7,
        access: Access::All(KeyUse::READ),
        keys: Keys::Rule(streams, &[KeyLocation::Behind { word: "STREAMS", from: 4, how_many: HowMany::Half }]),
        flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
        effect: Effect::Stated,
        complexity: "O(N log(M)) where N is the number of entries given and M that of entries not yet acknowledged.",
        summary: "Delivers new entries to a consumer of a group, or its unacknowledged entries again.",
        syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
        examples: &[
            is("XADD s 1-1 a 1", "\"1-1\""),
            is("XGROUP CREATE s g 0", "OK"),
            is(
                "XREADGROUP GROUP g ann STREAMS s >",
                "1) 1) \"s\"\n   2) 1) 1) \"1-1\"\n         2) 1) \"a\"\n            2) \"1\"",
            ),
            is("XREADGROUP GROUP g bob STREAMS s >", "(nil)"),
            is(
                "XREADGROUP GROUP g ann STREAMS s 0",
                "1) 1) \"s\"\n   2) 1) 1) \"1-1\"\n         2) 1) \"a\"\n            2) \"1\"",
            ),
            is("XREADGROUP GROUP g bob STREAMS s 0", "1) 1) \"s\"\n   2) (empty array)"),
            is(
                "XREADGROUP GROUP h ann STREAMS s >",
                "(error) NOGROUP No such key 's' or consumer group 'h' in XREADGROUP with GROUP option",
            ),
            is("SET k x", "OK"),
            is("XREADGROUP GROUP g ann STREAMS k >", WRONG),
        ],
        run: xreadgroup,
        ..BASE
    },
];

/// The positions of the keys. A malformed command has none.
fn streams(args: &Args<'_>, at: &mut Vec<usize>) {
    let mut word_at = 1;
    while let Some(word) = args.get(word_at) {
        let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        word_at += 1;
        if says("streams") {
            let rest = args.len() - word_at;
            if rest.is_multiple_of(2) {
                at.extend(word_at..word_at + rest / 2);
            }
            return;
        }
        word_at += match () {
            () if says("block") || says("count") => 1,
            () if says("group") => 2,
            () if says("noack") => 0,
            () => return,
        };
    }
}

/// A parsed command, except for the ids.
struct Request<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    no_ack: bool,
    count: Count,
    /// The end of the wait; `Some(None)` waits for ever.
    until_ms: Option<Option<u64>>,
    ids_at: usize,
}

impl<'a> Request<'a> {
    /// `ks`: to know the time, and whether a script reads.
    fn parse(args: Args<'a>, is_group: bool, ks: &Keyspace<'_>) -> Result<Request<'a>, Stop> {
        let mut group = None;
        let (mut no_ack, mut count, mut until_ms) = (false, Count(0), None);
        let mut at = 1;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let only_group = |option: &str| {
                let text =
                    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.");
                if is_group { Ok(()) } else { Err(Stop::Error(text.into())) }
            };
            match (args.get(at + 1), args.get(at + 2)) {
                (Some(_), _) if says("block") && ks.is_in_script() => {
                    let name = String::from_utf8_lossy(&args[0]);
                    let text = format!("ERR {name} command is not allowed with BLOCK option from scripts");
                    return Err(Stop::Error(text.into()));
                }
                (Some(timeout), _) if says("block") => until_ms = Some(until_milliseconds(timeout, ks.now_ms())?),
                (Some(number), _) if says("count") => count = Count(int_or_error(number)?.max(0) as u64),
                (Some(_), _) if says("streams") => {
                    let rest = args.len() - at - 1;
                    if rest % 2 == 1 {
                        let (name, symbol) = if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
                        return Err(Stop::Error(
                            format!(
                                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must \
                                 be specified."
                            )
                            .into(),
                        ));
                    }
                    if is_group && group.is_none() {
                        return Err(Stop::error("ERR Missing GROUP option for XREADGROUP"));
                    }
                    let (group, consumer) = group.unwrap_or_default();
                    return Ok(Request { group, consumer, no_ack, count, until_ms, ids_at: at + 1 + rest / 2 });
                }
                (Some(name), Some(consumer)) if says("group") => {
                    only_group("GROUP")?;
                    group = Some((name, consumer));
                    at += 1;
                }
                _ if says("noack") => {
                    only_group("NOACK")?;
                    no_ack = true;
                    at -= 1;
                }
                _ => return Err(SYNTAX),
            }
            at += 2;
        }
        Err(SYNTAX)
    }
}

/// The reply so far: the keys of streams with entries, and the entries.
struct Reply {
    mark: resp::reply::Mark,
    streams: usize,
}

impl Reply {
    fn begin(out: &mut Out<'_>) -> Reply {
        let mark = if out.proto() == Proto::Resp3 { out.map_deferred() } else { out.array_deferred() };
        Reply { mark, streams: 0 }
    }

    fn stream(&mut self, out: &mut Out<'_>, key: &[u8]) {
        self.streams += 1;
        if out.proto() != Proto::Resp3 {
            out.array(2);
        }
        out.bulk(key);
    }
}

fn xread(cx: &mut Cx<'_>) -> Run {
    let (args, keys) = (cx.args, cx.keys);
    let request = Request::parse(args, false, &cx.ks)?;
    let mut after: SmallVec<[Id; 8]> = SmallVec::new();
    let mut rewritten = Vec::new();
    let touched = |at: usize, value: &Boxed, out: &mut Absent| {
        let after = ids::strict(&args[request.ids_at + at], 0);
        if let (Boxed::Stream(stream), Some(start)) = (value, after.ok().and_then(Id::next)) {
            stream.want(start, Id::MAX, Order::Ascending, request.count.0, out);
        }
    };
    for (at, value) in cx.ks.get_all_for(keys, &touched)?.into_iter().enumerate() {
        let found = stream(value)?;
        let id_at = request.ids_at + at;
        after.push(match &args[id_at] {
            b"$" => {
                let last = found.map_or(Id::MIN, |stream| stream.last_id);
                rewritten.push((id_at, last.to_string().into_bytes()));
                last
            }
            b">" => {
                return Err(Stop::error(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> \
                     option.",
                ));
            }
            id => ids::strict(id, 0)?,
        });
    }
    let mut bytes = 0;
    for (key, after) in keys.iter().zip(&after) {
        if let (Some(stream), Some(start)) = (stream(cx.ks.get_for(key, NOTHING)?)?, after.next()) {
            bytes += new_bytes(stream, start, request.count);
        }
    }
    claim_reply(cx.settings, cx.session, &mut cx.out, bytes)?;
    let out = &mut cx.out;
    let before = out.len();
    let mut reply = Reply::begin(out);
    for (key, after) in keys.iter().zip(after) {
        let Some(stream) = stream(cx.ks.get_for(key, NOTHING)?)? else { continue };
        let Some(start) = after.next().filter(|_| stream.last_id > after) else { continue };
        let (mut mark, mut given) = (None, 0);
        stream.each(start, Id::MAX, Order::Ascending, |entry| {
            if mark.is_none() {
                reply.stream(out, key.name);
                mark = Some(out.array_deferred());
            }
            reply_entry(out, entry);
            given += 1;
            !request.count.is_reached(given)
        });
        if let Some(mark) = mark {
            out.finish(mark, given);
        }
    }
    if reply.streams > 0 {
        out.finish(reply.mark, reply.streams);
        return Ok(());
    }
    out.truncate(before);
    match request.until_ms {
        None => {
            out.null_array();
            Ok(())
        }
        Some(until_ms) => Err(Block { rewritten, ..Block::new(keys.len(), Kind::Stream, until_ms) }.into()),
    }
}

/// Replies for smaller streams are not estimated, because that walks the stream twice. Many such streams in one command
/// are rare.
const WALKED_BYTES_MIN: usize = 16 << 10;

/// Bytes that the entries from this id on take in a reply. 0 for a small stream.
fn new_bytes(stream: &Stream, start: Id, count: Count) -> usize {
    if stream.mem_bytes() < WALKED_BYTES_MIN || stream.last_id < start {
        return 0;
    }
    let (mut bytes, mut given) = (0, 0);
    stream.each(start, Id::MAX, Order::Ascending, |entry| {
        bytes += entry_bytes(entry);
        given += 1;
        !count.is_reached(given)
    });
    bytes
}

/// Like [`new_bytes`], for the entries that a consumer has not acknowledged.
fn own_bytes(stream: &Stream, group: &Group, consumer: &[u8], start: Id, count: Count) -> usize {
    let Some(consumer) = group.consumer(consumer).filter(|_| stream.mem_bytes() >= WALKED_BYTES_MIN) else { return 0 };
    let pending = consumer.pending().range(start..).take(count.most());
    pending.map(|&id| stream.get(id).map_or(ENTRY_BYTES, |entry| entry_bytes(&entry))).sum()
}

/// What a reply needs for an entry besides its fields and values: the id and the lengths.
const ENTRY_BYTES: usize = 40;

fn entry_bytes(entry: &Entry<'_>) -> usize {
    let bytes = |element: Element<'_>| match element {
        Element::Bytes(bytes) => bytes.len() + BULK_FRAME_BYTES,
        Element::Int(_) => 2 * BULK_FRAME_BYTES,
    };
    ENTRY_BYTES + entry.pairs().map(|(field, value)| bytes(field) + bytes(value)).sum::<usize>()
}

/// What a consumer asks of one stream.
#[derive(Clone, Copy)]
enum Asks {
    /// Entries that no consumer of the group has received.
    New,
    /// Entries that this consumer received and has not acknowledged, from this id on.
    Own(Id),
}

fn asks(id: &[u8]) -> Result<Asks, Stop> {
    match id {
        b"$" => Err(Stop::error(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
             specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result \
             set.",
        )),
        b">" => Ok(Asks::New),
        // The largest id means the same as `>`.
        id => Ok(ids::strict(id, 0)?.next().map_or(Asks::New, Asks::Own)),
    }
}

fn xreadgroup(cx: &mut Cx<'_>) -> Run {
    let (args, keys) = (cx.args, cx.keys);
    let now_ms = cx.ks.clock_ms();
    let request = Request::parse(args, true, &cx.ks)?;
    let (mut asked, mut bytes) = (SmallVec::<[Asks; 8]>::new(), 0);
    let touched = |at: usize, value: &Boxed, out: &mut Absent| {
        let Boxed::Stream(stream) = value else { return };
        let Some(group) = stream.group(request.group) else { return };
        match asks(&args[request.ids_at + at]) {
            Ok(Asks::New) => {
                // A stream that is named several times gives the next entries each time.
                let times = keys[..=at].iter().filter(|key| key.name == keys[at].name).count() as u64;
                if let Some(start) = group.last_id.next() {
                    stream.want(start, Id::MAX, Order::Ascending, request.count.0.saturating_mul(times), out);
                }
            }
            Ok(Asks::Own(start)) => {
                if let Some(consumer) = group.consumer(request.consumer) {
                    let pending = consumer.pending().range(start..);
                    pending.take(request.count.most()).for_each(|&id| stream.want_id(id, out));
                }
            }
            Err(_) => {}
        }
    };
    for (at, (key, value)) in keys.iter().zip(cx.ks.get_all_for(keys, &touched)?).enumerate() {
        let found = stream(value)?;
        let group = found.and_then(|stream| Some((stream, stream.group(request.group)?)));
        let Some((stream, group)) = group else { return Err(no_group_to_read(key.name, request.group)) };
        let asks = asks(&args[request.ids_at + at])?;
        bytes += match asks {
            Asks::New => group.last_id.next().map_or(0, |start| new_bytes(stream, start, request.count)),
            Asks::Own(start) => own_bytes(stream, group, request.consumer, start, request.count),
        };
        asked.push(asks);
    }
    claim_reply(cx.settings, cx.session, &mut cx.out, bytes)?;
    let out = &mut cx.out;
    let before = out.len();
    let mut reply = Reply::begin(out);
    let records_effects = cx.ks.records_effects();
    for (key, asks) in keys.iter().zip(asked) {
        let (mut is_new_consumer, mut change, mut again) = (false, Change::default(), Vec::new());
        if let Some(mut value) = cx.ks.get_mut_aside(key, NOTHING)? {
            stream_mut(&mut value).with_group(request.group, |stream, group| {
                is_new_consumer = group.see_consumer(request.consumer, now_ms as i64);
                match asks {
                    Asks::New => {
                        let before = group.last_id;
                        give_new(&request, stream, group, now_ms, key.name, &mut reply, out);
                        if records_effects {
                            change = Change::of(stream, group, before);
                        }
                    }
                    Asks::Own(start) => {
                        reply.stream(out, key.name);
                        again = give_own(&request, stream, group, now_ms, start, out);
                    }
                }
            });
        }
        if is_new_consumer {
            cx.ks.event(Class::STREAM, "xgroup-createconsumer", key);
        }
        if records_effects {
            let who = Who { key, group: request.group, consumer: request.consumer };
            if is_new_consumer {
                who.created(&mut cx.ks);
            }
            match asks {
                Asks::New => change.state(who, &mut cx.ks, &request, is_new_consumer, now_ms as i64),
                // A new consumer has no entries of its own.
                Asks::Own(_) if is_new_consumer => {}
                Asks::Own(_) if again.is_empty() => who.seen(&mut cx.ks, None),
                // Not the command itself: a repetition would take the time of its own clock.
                Asks::Own(_) => who.given_each(&mut cx.ks, &again, now_ms as i64),
            }
        }
    }
    if reply.streams > 0 {
        out.finish(reply.mark, reply.streams);
        return Ok(());
    }
    out.truncate(before);
    match request.until_ms {
        None => {
            out.null_array();
            Ok(())
        }
        Some(until_ms) => {
            // The wait also ends when the key or the group is removed.
            let wants = Wants { kind: Kind::Stream, any_change: true };
            Err(Block { wants, ..Block::new(keys.len(), Kind::Stream, until_ms) }.into())
        }
    }
}

/// The entries that a group delivered for the first time.
#[derive(Default)]
struct Change {
    ids: Vec<Id>,
    last_id: Id,
    entries_read: Option<u64>,
}

impl Change {
    /// The entries delivered after `before`.
    fn of(stream: &Stream, group: &Group, before: Id) -> Change {
        let mut ids = Vec::new();
        if let Some(start) = before.next().filter(|_| group.last_id > before) {
            stream.each(start, group.last_id, Order::Ascending, |entry| {
                ids.push(entry.id);
                true
            });
        }
        Change { ids, last_id: group.last_id, entries_read: group.entries_read }
    }

    fn state(self, who: Who<'_>, ks: &mut Keyspace<'_>, request: &Request<'_>, is_new_consumer: bool, now_ms: i64) {
        let is_assigned = !self.ids.is_empty() && !request.no_ack;
        if is_assigned {
            who.given(ks, &self.ids, now_ms, 1, Some(self.last_id));
        } else if !is_new_consumer {
            who.seen(ks, None);
        }
        if !self.ids.is_empty() {
            who.read_until(ks, self.last_id, self.entries_read);
        }
    }
}

/// Delivers new entries to the consumer. A stream without new entries is left out of the reply.
fn give_new(
    request: &Request<'_>,
    stream: &Stream,
    group: &mut Group,
    now_ms: u64,
    key: &[u8],
    reply: &mut Reply,
    out: &mut Out<'_>,
) {
    let Some(start) = group.last_id.next().filter(|_| stream.last_id > group.last_id) else { return };
    let (mut mark, mut given) = (None, 0);
    stream.each(start, Id::MAX, Order::Ascending, |entry| {
        if mark.is_none() {
            reply.stream(out, key);
            mark = Some(out.array_deferred());
        }
        stream.read_by(group, entry.id);
        reply_entry(out, entry);
        if !request.no_ack {
            group.assign(entry.id, request.consumer, now_ms as i64, 1);
        }
        given += 1;
        !request.count.is_reached(given)
    });
    // At most the largest number that XGROUP SETID accepts.
    group.entries_read = group.entries_read.map(|read| read.min(i64::MAX as u64));
    if let Some(mark) = mark {
        out.finish(mark, given);
        if !request.no_ack {
            group.activate_consumer(request.consumer, now_ms as i64);
        }
    }
}

/// Delivers the consumer's unacknowledged entries again. For a deleted entry only the id is left.
fn give_own(
    request: &Request<'_>,
    stream: &Stream,
    group: &mut Group,
    now_ms: u64,
    start: Id,
    out: &mut Out<'_>,
) -> Vec<(Id, u64)> {
    let mut ids: Vec<Id> = Vec::new();
    let (mark, mut given) = (out.array_deferred(), 0);
    if let Some(consumer) = group.consumer(request.consumer) {
        for &id in consumer.pending().range(start..) {
            match stream.get(id) {
                Some(entry) => {
                    reply_entry(out, &entry);
                    ids.push(id);
                }
                None => {
                    out.array(2);
                    reply_id(out, id);
                    out.null_array();
                }
            }
            given += 1;
            if request.count.is_reached(given) {
                break;
            }
        }
    }
    out.finish(mark, given);
    ids.iter().for_each(|&id| group.deliver_again(id, now_ms as i64));
    ids.into_iter().filter_map(|id| Some((id, group.pending_at(id)?.deliveries))).collect()
}
