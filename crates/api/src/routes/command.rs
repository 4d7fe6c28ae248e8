//! Owns running one command: its arguments, its typed reply, its line in the audit log, and the documentation of commands.
//! Never decides what a user may do: the database's ACL does.

use crate::cx::{Cx, Reply as Answered};
use crate::error::ApiError;
use crate::link::refused;
use crate::route::{Answer, Method, Route, list, one};
use crate::terminals::{Line, Transaction};
use crate::text::{Bytes, lossy, shown};
use commands::row::{Flag, Handling, Row, categories};
use commands::table;
use resp::client::Value;
use resp::{Args, Limits, Parsed, Progress, Source, Span};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use utoipa::ToSchema;

/// Commands, and subcommands of any container, that only query something although they do not have the flag of a read.
const TELL: &[&str] = &["info", "ping", "echo", "time", "command"];
const SUBCOMMANDS_TELL: &[&str] = &[
    "cat",
    "channels",
    "count",
    "docs",
    "doctor",
    "dryrun",
    "exists",
    "get",
    "getkeys",
    "getname",
    "getuser",
    "help",
    "histogram",
    "history",
    "id",
    "info",
    "latest",
    "len",
    "list",
    "numpat",
    "numsub",
    "shardchannels",
    "shardnumsub",
    "stats",
    "usage",
    "users",
    "whoami",
];
/// The most keys of one command in the audit log.
const AUDITED_KEYS_MAX: usize = 8;

pub const ROUTES: &[Route] = &[
    Route {
        method: Method::Post,
        path: "/api/v1/databases/{name}/command",
        tag: "Command line",
        summary: "Runs one command with the rights of the role, on a new connection: only the database number is kept between commands. A terminal keeps the whole state of its connection.",
        body: Some(one::<CommandLine>),
        reply: Answer::Json(one::<CommandOutcome>),
        action: "command",
        run,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/commands",
        tag: "Command line",
        summary: "All commands and subcommands with their documentation.",
        reply: Answer::Json(list::<CommandInfo>),
        run: |_| Answered::json(&cards()),
        ..Route::BASE
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CommandLine {
    /// Either these …
    args: Option<Vec<Bytes>>,
    /// … or a line, quoted as for redis-cli.
    line: Option<String>,
    #[serde(default)]
    db: u32,
}

#[derive(Serialize, ToSchema)]
pub struct CommandOutcome {
    pub reply: Reply,
    pub elapsed_us: u64,
    /// The logical database for the next command: SELECT changes it.
    pub db: u32,
    /// Of a terminal: MULTI has begun it, and EXEC or DISCARD will end it.
    pub transaction: Option<Transaction>,
    /// Of a terminal: WATCH is in effect.
    pub is_watching: bool,
    /// Of a terminal: there is a stream to be read.
    pub is_listening: bool,
}

/// A RESP3 reply: `{type, value}`. A map's value is a list of pairs.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub enum Reply {
    Status(Bytes),
    String(Bytes),
    Error(Bytes),
    Integer(i64),
    /// A string for what JSON has no number for: inf, -inf, nan.
    #[schema(value_type = Object)]
    Double(serde_json::Value),
    Boolean(bool),
    Null,
    Big(Bytes),
    #[schema(no_recursion, value_type = Vec<Object>)]
    Array(Vec<Reply>),
    #[schema(no_recursion, value_type = Vec<Object>)]
    Set(Vec<Reply>),
    #[schema(no_recursion, value_type = Vec<Object>)]
    Map(Vec<(Reply, Reply)>),
    #[schema(no_recursion, value_type = Vec<Object>)]
    Push(Vec<Reply>),
    Verbatim(Bytes),
}

pub fn typed(value: Value) -> Reply {
    let all = |values: Vec<Value>| values.into_iter().map(typed).collect();
    match value {
        Value::Simple(text) => Reply::Status(Bytes(text)),
        Value::Error(text) => Reply::Error(Bytes(text)),
        Value::Int(number) => Reply::Integer(number),
        Value::Bulk(bytes) => Reply::String(Bytes(bytes)),
        Value::Null | Value::NullArray => Reply::Null,
        Value::Boolean(value) => Reply::Boolean(value),
        Value::Double(number) => Reply::Double(match serde_json::Number::from_f64(number) {
            Some(number) => number.into(),
            None => number.to_string().into(),
        }),
        Value::BigNumber(digits) => Reply::Big(Bytes(digits)),
        Value::Verbatim { text, .. } => Reply::Verbatim(Bytes(text)),
        Value::Array(values) => Reply::Array(all(values)),
        Value::Set(values) => Reply::Set(all(values)),
        Value::Push(values) => Reply::Push(all(values)),
        Value::Map(pairs) => Reply::Map(pairs.into_iter().map(|(key, value)| (typed(key), typed(value))).collect()),
    }
}

/// A line in redis-cli's syntax.
fn split(line: &str) -> Result<Vec<Vec<u8>>, ApiError> {
    let wrong = |why: String| ApiError::field("line", why);
    if line.contains(['\r', '\n']) {
        return Err(wrong("one line is expected; use args for values with line ends".to_owned()));
    }
    // Without the space, a leading `*` would be taken for the beginning of a RESP array.
    let line = format!(" {line}\r\n");
    let (mut spans, mut progress) = (Vec::<Span>::new(), Progress::default());
    let limits = Limits { inline_bytes_max: 1 << 20, ..Limits::DEFAULT };
    match resp::parse(line.as_bytes(), &mut progress, &limits, &mut spans) {
        Ok(Parsed::Complete { source, .. }) => {
            let bytes = if source == Source::Input { line.as_bytes() } else { progress.unquoted() };
            Ok(spans.iter().map(|span| span.of(bytes).to_vec()).collect())
        }
        Ok(Parsed::Incomplete { .. }) => Err(wrong("the line ends inside a quoted word".to_owned())),
        Err(_) => Err(wrong("a quote is not closed, or text follows a closing quote".to_owned())),
    }
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandContext {
    /// On a separate connection, which is closed after the command.
    Alone,
    Terminal,
    /// In a terminal, after MULTI: there no command blocks.
    Transaction,
}

/// Refuses commands that cannot work in this context because they need more than one reply, a connection that stays
/// open, or time to wait.
pub fn unsuited(args: &[Vec<u8>], place: CommandContext) -> Result<(), ApiError> {
    let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let Some(row) = args.first().and_then(|name| table::find(name)) else { return Ok(()) };
    let no = |why: &str| {
        let name = row.name.to_uppercase();
        Err(ApiError::unsupported(format!("{name} {why}")).hint("use redis-cli with the database's address"))
    };
    // XREAD and XREADGROUP wait only with BLOCK.
    let may_wait = row.flags.contains(&Flag::Blocking);
    let waits =
        may_wait && (!row.syntax.contains("[BLOCK") || args.iter().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK")));
    let is_shown = row.handling.contains(&Handling::AnswersByPush) || row.name == "monitor";
    match () {
        () if waits && place != CommandContext::Transaction => no("would block, and the command line does not wait"),
        () if row.handling.contains(&Handling::Streams) && place == CommandContext::Transaction => {
            no("is not possible in a transaction: EXEC or DISCARD comes first")
        }
        () if row.handling.contains(&Handling::Streams) && (place == CommandContext::Alone || !is_shown) => {
            no("replies with a stream, which cannot be shown here")
        }
        () if row.handling.contains(&Handling::OfTransaction) && place == CommandContext::Alone => {
            no("needs a connection that stays open; here each command has its own")
        }
        () if row.handling.contains(&Handling::OfConnection) => {
            no("changes the protocol or the user of the connection, which the command line needs unchanged")
        }
        () if row.name == "client" && is(1, "reply") => no("REPLY would leave the command without a reply"),
        () => Ok(()),
    }
}

/// The text of a command in the audit log: its name, and its keys or the directives or user that it changes, never a
/// value.
fn audited(row: Option<&'static Row>, args: &[Vec<u8>], db: u32) -> String {
    let word = |word: &[u8]| shown(word).chars().take(64).collect::<String>();
    let mut text = word(&args[0]).to_uppercase();
    let mut row = row;
    if let Some(container) = row.filter(|row| !row.subcommands.is_empty())
        && let Some(name) = args.get(1)
    {
        text = format!("{text} {}", word(name).to_uppercase());
        row = container.subcommands.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name));
    }
    let (mut bytes, mut spans) = (Vec::new(), Vec::with_capacity(args.len()));
    for arg in args {
        spans.push(Span { start: bytes.len() as u32, len: arg.len() as u32 });
        bytes.extend_from_slice(arg);
    }
    let mut places = Vec::new();
    if let Some(row) = row {
        row.keys.positions(&Args::new(&bytes, &spans), &mut places);
    }
    // Commands that change something other than keys: directives, or a user.
    match row.map(|row| (&*text, row.name)) {
        Some(("CONFIG SET", _)) => places.extend((2..args.len()).step_by(2)),
        Some(("ACL SETUSER" | "ACL DELUSER", name)) => places.extend(2..if name == "deluser" { args.len() } else { 3 }),
        _ => {}
    }
    places.retain(|&place| place < args.len());
    places.sort_unstable();
    places.dedup();
    for &place in places.iter().take(AUDITED_KEYS_MAX) {
        text.push_str(&format!(" {:?}", word(&args[place])));
    }
    if places.len() > AUDITED_KEYS_MAX {
        text.push_str(&format!(" and {} more keys", places.len() - AUDITED_KEYS_MAX));
    }
    if db != 0 {
        text.push_str(&format!(" in db {db}"));
    }
    text
}

/// The words of a body: either the arguments or the line.
pub fn words(args: Option<Vec<Bytes>>, line: Option<String>) -> Result<Vec<Vec<u8>>, ApiError> {
    let words: Vec<Vec<u8>> = match (args, line) {
        (Some(args), None) => args.into_iter().map(|arg| arg.0).collect(),
        (None, Some(line)) => split(&line)?,
        _ => return Err(ApiError::field("args", "either args or line is expected")),
    };
    if words.is_empty() {
        return Err(ApiError::field("args", "a command is expected"));
    }
    Ok(words)
}

/// Whether the command only queries something: it is a read, or a query about the server.
fn tells(row: Option<&'static Row>, args: &[Vec<u8>]) -> bool {
    let Some(row) = row else { return false };
    let is = |words: &[&str], word: &[u8]| words.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(word));
    row.flags.contains(&Flag::Readonly)
        || is(TELL, row.name.as_bytes())
        || !row.subcommands.is_empty() && args.get(1).is_some_and(|name| is(SUBCOMMANDS_TELL, name))
}

/// Notes the command for the audit log before it runs.
pub fn note(cx: &Cx, row: Option<&'static Row>, args: &[Vec<u8>], db: u32) {
    cx.note(cx.param("name"), audited(row, args, db));
}

/// Notes the reply for the audit log. A query that succeeded is not recorded, because it changes nothing; one that failed
/// is recorded. If the role lacks a right, this is an error of the API too.
pub fn note_reply(cx: &Cx, row: Option<&'static Row>, args: &[Vec<u8>], reply: &Value) -> Result<(), ApiError> {
    let is_exec = row.is_some_and(|row| row.name == "exec");
    match reply {
        Value::Error(text) => {
            cx.note_failure(code(text));
            if text.starts_with(b"NOPERM") {
                refused(reply.clone())?;
            }
        }
        _ if tells(row, args) => cx.unaudited(),
        Value::Simple(text) if text == b"QUEUED" => cx.note_more(" (queued)"),
        Value::Null | Value::NullArray if is_exec => cx.note_failure("a watched key was changed"),
        Value::Array(replies) if is_exec => {
            cx.note_more(&format!(" of {} commands", replies.len()));
            let errors: Vec<&Vec<u8>> =
                replies.iter().filter_map(|one| if let Value::Error(text) = one { Some(text) } else { None }).collect();
            if let Some(first) = errors.first() {
                cx.note_failure(format!("{} of them failed: {}", errors.len(), code(first)));
            }
        }
        _ => {}
    }
    Ok(())
}

/// An error's first word: its text may repeat a value.
fn code(text: &[u8]) -> String {
    lossy(text).split(' ').next().unwrap_or_default().to_owned()
}

fn run(cx: &Cx) -> Result<Answered, ApiError> {
    let CommandLine { args, line, db } = cx.body()?;
    let args = words(args, line)?;
    let row = table::find(&args[0]);
    note(cx, row, &args, db);
    unsuited(&args, CommandContext::Alone)?;
    let mut line = Line::open(&*cx.database()?, cx.role(), db)?;
    let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let started = Instant::now();
    let value = line.ask(row, &words)?;
    let elapsed_us = started.elapsed().as_micros() as u64;
    note_reply(cx, row, &args, &value)?;
    let Line { db, transaction, is_watching, .. } = line;
    Answered::json(&CommandOutcome {
        reply: typed(value),
        elapsed_us,
        db,
        transaction,
        is_watching,
        is_listening: false,
    })
}

#[derive(Serialize, ToSchema)]
struct CommandInfo {
    /// In capitals; a subcommand behind its container.
    name: String,
    summary: &'static str,
    /// With the name in front.
    syntax: String,
    group: &'static str,
    since: &'static str,
    complexity: &'static str,
    flags: Vec<String>,
    /// Categories.
    acl: Vec<&'static str>,
}

fn cards() -> Vec<CommandInfo> {
    let card = |row: &'static Row, container: &str| {
        let name = format!("{container} {}", row.name).trim_start().to_uppercase();
        CommandInfo {
            syntax: format!("{name} {}", row.syntax).trim_end().to_owned(),
            name,
            summary: row.summary,
            group: row.group.title(),
            since: row.since,
            complexity: row.complexity,
            flags: row.flags.iter().map(|flag| format!("{flag:?}").to_lowercase()).collect(),
            acl: categories(row),
        }
    };
    let mut cards: Vec<CommandInfo> = table::all()
        .flat_map(|row| {
            let subcommands = row.subcommands.iter().map(move |subcommand| card(subcommand, row.name));
            std::iter::once(card(row, "")).chain(subcommands)
        })
        .collect();
    cards.sort_by(|a, b| a.name.cmp(&b.name));
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_redis_cli_does() {
        let words = |line| split(line).unwrap();
        assert_eq!(words("SET a b"), [&b"SET"[..], b"a", b"b"]);
        assert_eq!(words("set 'a b' \"\\xff\\n\""), [&b"set"[..], b"a b", b"\xff\n"]);
        assert_eq!(words("*1"), [b"*1"]);
        assert!(words("").is_empty());
        for wrong in ["set \"a", "set 'a'b", "a\nb"] {
            assert_eq!(split(wrong).unwrap_err().body.fields[0].field, "line", "{wrong}");
        }
    }

    #[test]
    fn what_a_place_lacks_is_refused() {
        use CommandContext::{Alone, Terminal, Transaction};
        // Where each can run.
        for (line, places) in [
            ("BLPOP a 0", &[Transaction][..]),
            ("XREAD block 0 STREAMS s $", &[Transaction]),
            ("subscribe c", &[Terminal]),
            ("UNSUBSCRIBE", &[Terminal]),
            ("MONITOR", &[Terminal]),
            ("PSYNC ? -1", &[]),
            ("multi", &[Terminal, Transaction]),
            ("WATCH a", &[Terminal, Transaction]),
            ("client reply off", &[]),
            ("HELLO 3", &[]),
            ("AUTH a b", &[]),
            ("GET a", &[Alone, Terminal, Transaction]),
            ("XREAD STREAMS s 0", &[Alone, Terminal, Transaction]),
            ("publish c m", &[Alone, Terminal, Transaction]),
            ("nosuch", &[Alone, Terminal, Transaction]),
            ("SELECT 3", &[Alone, Terminal, Transaction]),
        ] {
            for place in [Alone, Terminal, Transaction] {
                let fits = unsuited(&split(line).unwrap(), place).is_ok();
                assert_eq!(fits, places.contains(&place), "{line}, {place:?}");
            }
        }
    }

    #[test]
    fn replies_are_typed() {
        let value = Value::Map(vec![(
            Value::Bulk(b"a".to_vec()),
            Value::Array(vec![Value::Double(f64::INFINITY), Value::Null]),
        )]);
        let json = serde_json::to_string(&typed(value)).unwrap();
        assert_eq!(
            json,
            r#"{"type":"map","value":[[{"type":"string","value":"a"},{"type":"array","value":[{"type":"double","value":"inf"},{"type":"null"}]}]]}"#
        );
    }

    #[test]
    fn every_command_is_described() {
        let cards = cards();
        assert!(cards.iter().any(|card| card.name == "CONFIG GET" && card.syntax.starts_with("CONFIG GET parameter")));
        assert!(cards.iter().all(|card| !card.summary.is_empty() && !card.acl.is_empty()));
    }
}
