//! Owns terminals: command lines whose connection stays open between requests, so that MULTI, WATCH, SELECT, subscriptions and MONITOR
//! work. The node buffers messages that arrive without a request, and the page reads them in slices, like all other live
//! data of the console. Never decides what a user may do: the database's ACL does.

use super::command::{self, CommandContext, CommandOutcome, typed, unsuited};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Method, Route, number, one};
use crate::stream::{LiveStream, SUBSCRIPTIONS_MAX, Space, StreamPage};
use crate::terminals::{Line, Listening, Terminal};
use crate::text::Bytes;
use base::clock::wall_ms;
use commands::row::Handling;
use commands::table;
use parking_lot::MutexGuard;
use resp::client::Value;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/terminals",
        tag: "Command line",
        summary: "Opens a connection for a command line, with the rights of the role. It closes after 10 minutes without a request.",
        body: Some(one::<NewTerminal>),
        reply: Answer::Created(one::<TerminalInfo>),
        action: "terminal.open",
        run: open,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}/terminals/{id}",
        tag: "Command line",
        summary: "Closes a terminal; an open transaction is discarded.",
        action: "terminal.close",
        run: close,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/terminals/{id}/command",
        tag: "Command line",
        summary: "Runs one command in a terminal. SUBSCRIBE and MONITOR open its stream. Commands that block are refused outside MULTI.",
        body: Some(one::<TerminalLine>),
        reply: Answer::Json(one::<CommandOutcome>),
        action: "command",
        run,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/terminals/{id}/stream",
        tag: "Command line",
        summary: "The messages of subscriptions and the lines of MONITOR. The node keeps the newest 1000, at most 1 MiB, and ends a stream that is not read for two minutes.",
        query: &[number("after", "`last` of the previous answer; default 0: all messages that are kept")],
        reply: Answer::Json(one::<StreamPage>),
        run: read,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/databases/{name}/terminals/{id}/stream",
        tag: "Command line",
        summary: "Ends the stream: all subscriptions, and MONITOR.",
        action: "terminal.stream.close",
        run: |cx| {
            cx.unaudited();
            terminal(cx)?.listening.lock().close();
            Ok(Reply::none())
        },
        ..Route::BASE
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTerminal {
    /// The logical database that it begins in.
    db: u32,
}

#[derive(Serialize, ToSchema)]
struct TerminalInfo {
    id: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TerminalLine {
    /// Either these …
    args: Option<Vec<Bytes>>,
    /// … or a line, quoted as for redis-cli.
    line: Option<String>,
}

fn terminal(cx: &Cx) -> Result<Arc<Terminal>, ApiError> {
    let who = cx.who.as_ref().ok_or_else(|| ApiError::unauthenticated("log in first"))?;
    cx.app.terminals.find(who, cx.param("name"), cx.param("id"), cx.now_ms())
}

fn open(cx: &Cx) -> Result<Reply, ApiError> {
    // Opening a terminal is not recorded; the commands that are run in it are.
    cx.unaudited();
    let NewTerminal { db } = cx.body()?;
    let who = cx.who.as_ref().ok_or_else(|| ApiError::unauthenticated("log in first"))?;
    let terminal = cx.app.terminals.open(who, &*cx.database()?, db, cx.now_ms())?;
    Reply::created(&TerminalInfo { id: terminal.id.clone() })
}

fn close(cx: &Cx) -> Result<Reply, ApiError> {
    cx.unaudited();
    cx.app.terminals.close(&terminal(cx)?.id);
    Ok(Reply::none())
}

fn run(cx: &Cx) -> Result<Reply, ApiError> {
    let TerminalLine { args, line } = cx.body()?;
    let args = command::words(args, line)?;
    let row = table::find(&args[0]);
    command::note(cx, row, &args, 0);
    let terminal = terminal(cx)?;
    let mut line = terminal
        .line
        .try_lock()
        .ok_or_else(|| ApiError::busy("the previous command is still running in this command line"))?;
    let db = line.db;
    command::note(cx, row, &args, db);
    unsuited(&args, if line.transaction.is_some() { CommandContext::Transaction } else { CommandContext::Terminal })?;
    let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let started = Instant::now();
    let value = match row.filter(|row| row.handling.contains(&Handling::Streams)) {
        Some(row) => listen(cx, terminal.listening.lock(), row.name, &words)?,
        // A reply that did not arrive in time would be taken for the reply of the next command.
        None => line.ask(row, &words).inspect_err(|_| cx.app.terminals.close(&terminal.id))?,
    };
    let elapsed_us = started.elapsed().as_micros() as u64;
    command::note_reply(cx, row, &args, &value)?;
    let Line { db, transaction, is_watching, .. } = *line;
    let is_listening = terminal.listening.lock().stream.is_some();
    Reply::json(&CommandOutcome { reply: typed(value), elapsed_us, db, transaction, is_watching, is_listening })
}

/// Runs a command of the stream, which has a connection of its own: the lines of MONITOR look like replies, and a subscriber
/// that does not read is disconnected.
fn listen(cx: &Cx, mut listening: MutexGuard<'_, Listening>, name: &str, words: &[&[u8]]) -> Result<Value, ApiError> {
    let (space, begins) = match name {
        "subscribe" => (Space::Channel, true),
        "psubscribe" => (Space::Pattern, true),
        "ssubscribe" => (Space::Shard, true),
        "unsubscribe" => (Space::Channel, false),
        "punsubscribe" => (Space::Pattern, false),
        "sunsubscribe" => (Space::Shard, false),
        _ => (Space::Channel, true),
    };
    let is_of_channels = name != "monitor";
    // The database has closed the old stream, so a new subscription needs a new one.
    if begins && listening.stream.as_ref().is_some_and(|stream| !stream.is_open()) {
        listening.close();
    }
    let known = listening.stream.as_ref().map_or(0, LiveStream::count);
    if begins && is_of_channels && known + words.len() - 1 > SUBSCRIPTIONS_MAX {
        return Err(ApiError::unsupported(format!("more than {SUBSCRIPTIONS_MAX} subscriptions are not shown here"))
            .hint("subscribe to a pattern, or use redis-cli with the database's address"));
    }
    let stream = match &mut listening.stream {
        Some(stream) => stream,
        None if begins => {
            let stream = LiveStream::open(&*cx.database()?, cx.role().on_database(), listening.after, wall_ms)?;
            listening.read_ms = cx.now_ms();
            listening.stream.insert(stream)
        }
        None => return Err(ApiError::invalid("this command line has no subscription")),
    };
    let count = match (begins, words.len() - 1) {
        (false, 0) => stream.count_of(space),
        (_, count) => count,
    };
    let answers = stream.ask(words, count.max(1));
    if answers.is_err() || stream.is_silent() {
        listening.close();
    }
    let mut answers = answers?;
    match answers.len() {
        1 => Ok(answers.remove(0)),
        _ if matches!(answers.last(), Some(Value::Error(_))) => Ok(answers.remove(answers.len() - 1)),
        _ => Ok(Value::Array(answers)),
    }
}

fn read(cx: &Cx) -> Result<Reply, ApiError> {
    let after = cx.number("after", 0u64, (0, u64::MAX))?;
    let terminal = terminal(cx)?;
    let mut listening = terminal.listening.lock();
    listening.read_ms = cx.now_ms();
    let page = match &listening.stream {
        Some(stream) => stream.page(after),
        None => StreamPage::closed(listening.after),
    };
    drop(listening);
    Reply::json(&page)
}
