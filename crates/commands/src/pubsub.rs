//! Owns the commands of pub/sub. Never knows the other subscribers: the server does.

use crate::connection::{help, unknown_subcommand};
use crate::cx::Cx;
use crate::host::Space;
use crate::row::{Channels, Flag, Group, Handling, Keys, Row, Values, is, starts};
use crate::stop::{Run, Stop};

const BASE: Row = Row {
    keys: Keys::NONE,
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    values: Values::Untouched,
    group: Group::Pubsub,
    since: "2.0.0",
    syntax: "",
    ..Row::BASE
};

/// Shard channels belong to slots as keys do, but they are not keys.
const SHARD_CHANNELS: Keys = Keys::NotKeys { first: 1, last: -1, step: 1 };

pub const ROWS: &[Row] = &[
    Row {
        name: "psubscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -2,
        complexity: "O(N) where N is the number of patterns.",
        summary: "Subscribes to every channel whose name fits one of the patterns.",
        syntax: "pattern [pattern ...]",
        examples: &[
            is("PSUBSCRIBE news.*", "1) \"psubscribe\"\n2) \"news.*\"\n3) (integer) 1"),
            is("PUNSUBSCRIBE news.*", "1) \"punsubscribe\"\n2) \"news.*\"\n3) (integer) 0"),
        ],
        channels: Channels::Patterns,
        run: |cx| subscribe(cx, Space::Pattern, "psubscribe"),
        ..BASE
    },
    Row {
        name: "publish",
        handling: &[Handling::Publishes, Handling::MayReplicate],
        arity: 3,
        flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        complexity: "O(N+M) where N is the number of the channel's subscribers and M the number of patterns in use.",
        summary: "Sends a message to all subscribers of a channel, and returns how many received it.",
        syntax: "channel message",
        examples: &[is("PUBLISH news hello", "(integer) 0")],
        channels: Channels::First,
        run: |cx| publish(cx, Space::Channel),
        ..BASE
    },
    Row {
        name: "pubsub",
        arity: -2,
        flags: &[],
        since: "2.8.0",
        complexity: "Depends on subcommand.",
        summary: "A container for commands that describe pub/sub.",
        examples: &[is("PUBSUB NOSUCH", "(error) ERR unknown subcommand 'NOSUCH'. Try PUBSUB HELP.")],
        subcommands: PUBSUB_ROWS,
        run: |cx| unknown_subcommand(cx.args, "PUBSUB"),
        ..BASE
    },
    Row {
        name: "punsubscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -1,
        complexity: "O(N) where N is the number of patterns.",
        summary: "Unsubscribes from the patterns, or from all.",
        syntax: "[pattern [pattern ...]]",
        examples: &[is("PUNSUBSCRIBE", "1) \"punsubscribe\"\n2) (nil)\n3) (integer) 0")],
        run: |cx| unsubscribe(cx, Space::Pattern, "punsubscribe"),
        ..BASE
    },
    Row {
        name: "spublish",
        handling: &[Handling::Publishes, Handling::MayReplicate],
        arity: 3,
        keys: Keys::NotKeys { first: 1, last: 1, step: 1 },
        flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        since: "7.0.0",
        complexity: "O(N) where N is the number of the channel's subscribers.",
        summary: "Sends a message to all subscribers of a shard channel, and returns how many received it.",
        syntax: "shardchannel message",
        examples: &[is("SPUBLISH orders hello", "(integer) 0")],
        channels: Channels::First,
        run: |cx| publish(cx, Space::Shard),
        ..BASE
    },
    Row {
        name: "ssubscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -2,
        keys: SHARD_CHANNELS,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels.",
        summary: "Subscribes to shard channels.",
        syntax: "shardchannel [shardchannel ...]",
        examples: &[
            is("SSUBSCRIBE orders", "1) \"ssubscribe\"\n2) \"orders\"\n3) (integer) 1"),
            is("SUNSUBSCRIBE orders", "1) \"sunsubscribe\"\n2) \"orders\"\n3) (integer) 0"),
        ],
        channels: Channels::All,
        run: |cx| subscribe(cx, Space::Shard, "ssubscribe"),
        ..BASE
    },
    Row {
        name: "subscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -2,
        complexity: "O(N) where N is the number of channels.",
        summary: "Subscribes to channels.",
        syntax: "channel [channel ...]",
        examples: &[
            is("SUBSCRIBE news", "1) \"subscribe\"\n2) \"news\"\n3) (integer) 1"),
            is("PING", "1) \"pong\"\n2) \"\""),
            is(
                "GET k",
                "(error) ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context",
            ),
            is("UNSUBSCRIBE", "1) \"unsubscribe\"\n2) \"news\"\n3) (integer) 0"),
        ],
        channels: Channels::All,
        run: |cx| subscribe(cx, Space::Channel, "subscribe"),
        ..BASE
    },
    Row {
        name: "sunsubscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -1,
        keys: SHARD_CHANNELS,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels.",
        summary: "Unsubscribes from the shard channels, or from all.",
        syntax: "[shardchannel [shardchannel ...]]",
        examples: &[is("SUNSUBSCRIBE", "1) \"sunsubscribe\"\n2) (nil)\n3) (integer) 0")],
        run: |cx| unsubscribe(cx, Space::Shard, "sunsubscribe"),
        ..BASE
    },
    Row {
        name: "unsubscribe",
        handling: &[Handling::Listening, Handling::AnswersByPush, Handling::Streams],
        arity: -1,
        complexity: "O(N) where N is the number of channels.",
        summary: "Unsubscribes from the channels, or from all.",
        syntax: "[channel [channel ...]]",
        examples: &[is("UNSUBSCRIBE nosuch", "1) \"unsubscribe\"\n2) \"nosuch\"\n3) (integer) 0")],
        run: |cx| unsubscribe(cx, Space::Channel, "unsubscribe"),
        ..BASE
    },
];

const LOOK: Row = Row { flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale], since: "2.8.0", ..BASE };

const PUBSUB_ROWS: &[Row] = &[
    Row {
        name: "channels",
        arity: -2,
        complexity: "O(N) where N is the number of channels somebody listens to.",
        summary: "Lists the channels with subscribers.",
        syntax: "[pattern]",
        examples: &[
            is("PUBSUB CHANNELS nosuch*", "(empty array)"),
            is(
                "PUBSUB CHANNELS a b",
                "(error) ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
            ),
        ],
        run: |cx| names(cx, Space::Channel),
        ..LOOK
    },
    Row {
        name: "help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        since: "6.2.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("PUBSUB HELP", " 1) PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "PUBSUB", PUBSUB_ROWS),
        ..LOOK
    },
    Row {
        name: "numpat",
        arity: 2,
        summary: "Counts the patterns with subscribers.",
        examples: &[is("PUBSUB NUMPAT", "(integer) 0")],
        run: |cx| {
            cx.out.int(cx.server.topics(Space::Pattern) as i64);
            Ok(())
        },
        ..LOOK
    },
    Row {
        name: "numsub",
        arity: -2,
        complexity: "O(N) where N is the number of channels named.",
        summary: "Counts the subscribers of each of the channels.",
        syntax: "[channel [channel ...]]",
        examples: &[is("PUBSUB NUMSUB a", "1) \"a\"\n2) (integer) 0"), is("PUBSUB NUMSUB", "(empty array)")],
        run: |cx| counts(cx, Space::Channel),
        ..LOOK
    },
    Row {
        name: "shardchannels",
        arity: -2,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels somebody listens to.",
        summary: "Lists the shard channels with subscribers.",
        syntax: "[pattern]",
        examples: &[is("PUBSUB SHARDCHANNELS", "(empty array)")],
        run: |cx| names(cx, Space::Shard),
        ..LOOK
    },
    Row {
        name: "shardnumsub",
        arity: -2,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels named.",
        summary: "Counts the subscribers of each of the shard channels.",
        syntax: "[shardchannel [shardchannel ...]]",
        examples: &[is("PUBSUB SHARDNUMSUB a", "1) \"a\"\n2) (integer) 0")],
        run: |cx| counts(cx, Space::Shard),
        ..LOOK
    },
];

/// The confirmation for one name: a push message in RESP3.
fn confirm(cx: &mut Cx<'_>, space: Space, word: &str, name: Option<&[u8]>) {
    cx.out.push(3);
    cx.out.bulk(word.as_bytes());
    cx.out.bulk_or_null(name);
    cx.out.int(cx.session.listens_to(space) as i64);
}

fn subscribe(cx: &mut Cx<'_>, space: Space, word: &str) -> Run {
    for name in cx.args.from(1) {
        if cx.session.subscribe(space, name) {
            cx.server.subscribe(cx.session, space, name);
        }
        confirm(cx, space, word, Some(name));
    }
    Ok(())
}

fn unsubscribe(cx: &mut Cx<'_>, space: Space, word: &str) -> Run {
    let args = cx.args;
    if args.len() > 1 {
        for name in args.from(1) {
            leave(cx, space, name);
            confirm(cx, space, word, Some(name));
        }
        return Ok(());
    }
    let names = cx.session.listened(space);
    if names.is_empty() {
        confirm(cx, space, word, None);
    }
    for name in names {
        leave(cx, space, &name);
        confirm(cx, space, word, Some(&name));
    }
    Ok(())
}

fn leave(cx: &mut Cx<'_>, space: Space, name: &[u8]) {
    if cx.session.unsubscribe(space, name) {
        cx.server.unsubscribe(cx.session, space, name);
    }
}

/// For RESET: unsubscribes from everything without replies.
pub fn leave_all(cx: &mut Cx<'_>) {
    for space in Space::ALL {
        for name in cx.session.listened(space) {
            leave(cx, space, &name);
        }
    }
}

const NO_ROOM_TO_WAIT: &str =
    "OOM the messages of a transaction or script wait for its end, and the RAM limit has no room for more of them";

fn publish(cx: &mut Cx<'_>, space: Space) -> Run {
    let (channel, text) = (&cx.args[1], &cx.args[2]);
    let bytes_max = cx.server.message_bytes_max();
    if channel.len() + text.len() > bytes_max {
        let why = format!(
            "ERR channel and message have more than the {bytes_max} bytes that go to the cluster's other nodes"
        );
        return Err(Stop::Error(why.into()));
    }
    if !cx.ks.must_publish_later() {
        cx.out.int(cx.server.publish(space, channel, text) as i64);
        return Ok(());
    }
    let count = cx.server.receivers(space, channel);
    let is_wanted = count > 0 || cx.server.sends_messages_on();
    if is_wanted && !cx.ks.publish(space == Space::Shard, channel, text) {
        return Err(Stop::Error(NO_ROOM_TO_WAIT.into()));
    }
    cx.out.int(count as i64);
    Ok(())
}

fn names(cx: &mut Cx<'_>, space: Space) -> Run {
    if cx.args.len() > 3 {
        let name = String::from_utf8_lossy(&cx.args[1][..cx.args[1].len().min(128)]);
        let text = format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP.");
        return Err(Stop::Error(text.into()));
    }
    let names = cx.server.topic_names(space, cx.args.get(2));
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name));
    Ok(())
}

fn counts(cx: &mut Cx<'_>, space: Space) -> Run {
    cx.out.array(2 * (cx.args.len() - 2));
    for name in cx.args.from(2) {
        cx.out.bulk(name);
        cx.out.int(cx.server.subscribers(space, name) as i64);
    }
    Ok(())
}
