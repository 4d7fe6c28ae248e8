//! Owns a stream of messages: a connection that subscribes or monitors, the thread that reads it, and the newest messages. Never knows
//! who reads them.
//!
//! The thread always reads, so that a slow or vanished reader costs the database no memory: the oldest messages are dropped
//! instead, and counted.

use crate::error::ApiError;
use crate::link::{TIMEOUT, bytes};
use crate::text::Bytes;
use node::{Database, Role};
use parking_lot::Mutex;
use resp::client::{SkipState, Value, encode_command, parse_value};
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;
use utoipa::ToSchema;

/// The newest rows are kept, up to both bounds.
const ROWS_MAX: usize = 1000;
const ROWS_BYTES_MAX: usize = 1 << 20;
/// About how many bytes a row takes besides its texts.
const ROW_BYTES: usize = 64;
/// How much of a payload, and of a channel's name, is shown.
const TEXT_BYTES_MAX: usize = 4096;
/// A longer message ends the stream.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
pub const SUBSCRIPTIONS_MAX: usize = 100;
const READ_BYTES: usize = 64 << 10;

pub struct LiveStream {
    socket: UnixStream,
    kept: Arc<Mutex<StreamBuffer>>,
    /// The database's replies to SUBSCRIBE and similar commands.
    answers: Receiver<Value>,
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        // This ends the thread's read, and so the thread.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

struct StreamBuffer {
    rows: VecDeque<StreamRow>,
    bytes: usize,
    /// The number of the newest row.
    last: u64,
    subscriptions: BTreeSet<(Space, Vec<u8>)>,
    monitors: bool,
    /// Why the stream has ended; empty: it has not.
    ended: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    Channel,
    Pattern,
    Shard,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct StreamRow {
    /// One more than that of the row before.
    number: u64,
    at_ms: u64,
    /// null: a line of MONITOR.
    channel: Option<Bytes>,
    /// The pattern that the channel fits, if a pattern was subscribed.
    pattern: Option<Bytes>,
    /// At most the first 4 KiB.
    payload: Bytes,
    payload_bytes: u64,
}

#[derive(Serialize, ToSchema)]
struct Subscription {
    space: Space,
    name: Bytes,
}

#[derive(Serialize, ToSchema)]
pub struct StreamPage {
    rows: Vec<StreamRow>,
    /// The number of the newest row: the `after` of the next request.
    last: u64,
    /// How many rows after `after` were dropped before this request, because only the newest rows are kept.
    left_out: u64,
    subscriptions: Vec<Subscription>,
    monitors: bool,
    is_open: bool,
    /// Why the database ended the stream; may be empty.
    ended: String,
}

impl StreamPage {
    /// The page of a terminal without a stream.
    pub fn closed(last: u64) -> StreamPage {
        let (rows, subscriptions) = (Vec::new(), Vec::new());
        StreamPage { rows, last, left_out: 0, subscriptions, monitors: false, is_open: false, ended: String::new() }
    }
}

impl LiveStream {
    /// The rows are numbered from `after` on; their times come from `now_ms`.
    pub fn open(database: &Database, role: Role, after: u64, now_ms: fn() -> u64) -> Result<LiveStream, ApiError> {
        let failed = |error| ApiError::failed(format!("cannot connect to '{}': {error}", database.name()));
        let socket = database.connect(role).map_err(failed)?;
        LiveStream::over(socket, after, now_ms).map_err(failed)
    }

    fn over(socket: UnixStream, after: u64, now_ms: fn() -> u64) -> std::io::Result<LiveStream> {
        let kept = Arc::new(Mutex::new(StreamBuffer::new(after)));
        let (answer, answers) = channel();
        let (from, keeping) = (socket.try_clone()?, Arc::clone(&kept));
        thread::Builder::new().name("flintkv-stream".to_owned()).spawn(move || {
            let why = listen(&from, &keeping, &answer, now_ms);
            // Nothing reads this end any more. Without the shutdown the database would buffer messages until the stream
            // is closed.
            let _ = from.shutdown(Shutdown::Both);
            keeping.lock().ended = why;
        })?;
        Ok(LiveStream { socket, kept, answers })
    }

    /// Sends a command that gets `count` replies; an error is the last reply.
    pub fn ask(&mut self, words: &[&[u8]], count: usize) -> Result<Vec<Value>, ApiError> {
        let mut command = Vec::new();
        encode_command(words, &mut command);
        self.socket
            .set_write_timeout(Some(TIMEOUT))
            .and_then(|()| self.socket.write_all(&command))
            .map_err(|error| ApiError::failed(format!("the connection to the database failed: {error}")))?;
        let until = Instant::now() + TIMEOUT;
        let mut answers = Vec::new();
        while answers.len() < count && !matches!(answers.last(), Some(Value::Error(_))) {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.answers.recv_timeout(left);
            answers.push(answer.map_err(|_| ApiError::timeout("the database has not answered"))?);
        }
        Ok(answers)
    }

    pub fn last(&self) -> u64 {
        self.kept.lock().last
    }

    /// The number of subscriptions.
    pub fn count(&self) -> usize {
        self.kept.lock().subscriptions.len()
    }

    /// The number of subscriptions of a kind: UNSUBSCRIBE without a name gets so many replies.
    pub fn count_of(&self, space: Space) -> usize {
        self.kept.lock().subscriptions.iter().filter(|(of, _)| *of == space).count()
    }

    /// Whether the database has not closed the connection.
    pub fn is_open(&self) -> bool {
        self.kept.lock().ended.is_empty()
    }

    /// Whether no message can arrive any more.
    pub fn is_silent(&self) -> bool {
        let kept = self.kept.lock();
        kept.subscriptions.is_empty() && !kept.monitors
    }

    pub fn page(&self, after: u64) -> StreamPage {
        let kept = self.kept.lock();
        let first = kept.last + 1 - kept.rows.len() as u64;
        // A number above the newest row is a mistake of the reader: return all rows.
        let after = if after > kept.last { first - 1 } else { after };
        let known = (after + 1).saturating_sub(first) as usize;
        StreamPage {
            rows: kept.rows.iter().skip(known).cloned().collect(),
            last: kept.last,
            left_out: first.saturating_sub(after + 1),
            subscriptions: kept
                .subscriptions
                .iter()
                .map(|(space, name)| Subscription { space: *space, name: part(name) })
                .collect(),
            monitors: kept.monitors,
            is_open: kept.ended.is_empty(),
            ended: kept.ended.clone(),
        }
    }
}

impl StreamBuffer {
    fn new(last: u64) -> StreamBuffer {
        StreamBuffer {
            rows: VecDeque::new(),
            bytes: 0,
            last,
            subscriptions: BTreeSet::new(),
            monitors: false,
            ended: String::new(),
        }
    }

    fn push(&mut self, at_ms: u64, channel: Option<&[u8]>, pattern: Option<&[u8]>, payload: &[u8]) {
        self.last += 1;
        let row = StreamRow {
            number: self.last,
            at_ms,
            channel: channel.map(part),
            pattern: pattern.map(part),
            payload: part(payload),
            payload_bytes: payload.len() as u64,
        };
        self.bytes += row.size();
        self.rows.push_back(row);
        while self.rows.len() > ROWS_MAX || self.bytes > ROWS_BYTES_MAX {
            let Some(oldest) = self.rows.pop_front() else { break };
            self.bytes -= oldest.size();
        }
    }

    /// Stores a message or a line of MONITOR. Returns the value if it is a reply.
    fn take(&mut self, value: Value, at_ms: u64) -> Option<Value> {
        if let Value::Simple(line) = &value
            && let Some((at_ms, rest)) = monitored(line)
        {
            self.push(at_ms, None, None, rest);
            return None;
        }
        if matches!(&value, Value::Simple(text) if text == b"OK") {
            self.monitors = true;
        }
        let Value::Push(words) = &value else { return Some(value) };
        let word = |at: usize| words.get(at).cloned().map(bytes).unwrap_or_default();
        match word(0).as_slice() {
            b"message" | b"smessage" => self.push(at_ms, Some(&word(1)), None, &word(2)),
            b"pmessage" => self.push(at_ms, Some(&word(2)), Some(&word(1)), &word(3)),
            verb => {
                let (is_new, space) = match verb {
                    b"subscribe" => (true, Space::Channel),
                    b"psubscribe" => (true, Space::Pattern),
                    b"ssubscribe" => (true, Space::Shard),
                    b"unsubscribe" => (false, Space::Channel),
                    b"punsubscribe" => (false, Space::Pattern),
                    b"sunsubscribe" => (false, Space::Shard),
                    _ => return None,
                };
                let _ = match is_new {
                    true => self.subscriptions.insert((space, word(1))),
                    false => self.subscriptions.remove(&(space, word(1))),
                };
                return Some(value);
            }
        }
        None
    }
}

impl StreamRow {
    fn size(&self) -> usize {
        let length = |text: &Option<Bytes>| text.as_ref().map_or(0, |text| text.0.len());
        ROW_BYTES + length(&self.channel) + length(&self.pattern) + self.payload.0.len()
    }
}

/// The beginning of a text, without an incomplete character at the end.
fn part(text: &[u8]) -> Bytes {
    let cut = &text[..text.len().min(TEXT_BYTES_MAX)];
    match std::str::from_utf8(cut) {
        Err(error) if cut.len() < text.len() && error.error_len().is_none() => {
            Bytes(cut[..error.valid_up_to()].to_vec())
        }
        _ => Bytes(cut.to_vec()),
    }
}

/// `1700000000.123456 [0 127.0.0.1:50000] "GET" "k"`: the moment, and what follows.
fn monitored(line: &[u8]) -> Option<(u64, &[u8])> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let seconds: f64 = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    Some(((seconds * 1000.0) as u64, &line[space + 1..]))
}

/// Reads until the connection ends. Returns why it did.
fn listen(mut socket: &UnixStream, kept: &Mutex<StreamBuffer>, answers: &Sender<Value>, now_ms: fn() -> u64) -> String {
    let (mut received, mut skipped) = (Vec::new(), SkipState::default());
    loop {
        let start = received.len();
        received.resize(start + READ_BYTES, 0);
        let read = socket.read(&mut received[start..]);
        received.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return "The database closed the connection.".to_owned(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return format!("The connection to the database failed: {error}."),
        }
        let (mut done, at_ms) = (0, now_ms());
        loop {
            let whole = match skipped.skip(&received[done..]) {
                Ok(Some(reply)) => reply.consumed,
                Ok(None) => break,
                Err(error) => return format!("The database sent an invalid message: {error}."),
            };
            let value = parse_value(&received[done..done + whole]);
            done += whole;
            let Ok(Some((value, _))) = value else {
                return "The database sent an invalid message.".to_owned();
            };
            if let Some(answer) = kept.lock().take(value, at_ms) {
                // If the receiver is gone, the stream is being closed.
                let _ = answers.send(answer);
            }
        }
        received.drain(..done);
        if received.len() > MESSAGE_BYTES_MAX {
            return format!("A message is longer than {}.", base::size::human(MESSAGE_BYTES_MAX as u64));
        }
        // A long message has made the buffer large: release it.
        if received.is_empty() {
            received.shrink_to(4 * READ_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(words: &[&[u8]]) -> Value {
        Value::Push(words.iter().map(|word| Value::Bulk(word.to_vec())).collect())
    }

    fn page(kept: StreamBuffer, after: u64) -> StreamPage {
        let (socket, _) = UnixStream::pair().unwrap();
        LiveStream { socket, kept: Arc::new(Mutex::new(kept)), answers: channel().1 }.page(after)
    }

    #[test]
    fn the_oldest_rows_leave_and_are_counted() {
        let mut kept = StreamBuffer::new(7);
        for number in 0..ROWS_MAX as u64 + 5 {
            assert!(kept.take(message(&[b"message", b"c", b"text"]), number).is_none());
        }
        let read = page(kept, 7);
        assert_eq!((read.rows.len(), read.left_out, read.last), (ROWS_MAX, 5, 7 + ROWS_MAX as u64 + 5));
        assert_eq!((read.rows[0].number, read.rows[0].at_ms), (13, 5));

        let mut kept = StreamBuffer::new(0);
        let long = vec![b'x'; 3 * TEXT_BYTES_MAX];
        (0..ROWS_MAX).for_each(|_| drop(kept.take(message(&[b"pmessage", b"p*", b"pc", &long]), 1)));
        assert!(kept.bytes <= ROWS_BYTES_MAX && kept.bytes + 2 * TEXT_BYTES_MAX > ROWS_BYTES_MAX);
        let row = kept.rows.back().unwrap();
        assert_eq!((row.payload.0.len(), row.payload_bytes), (TEXT_BYTES_MAX, long.len() as u64));
        assert_eq!((&row.channel, &row.pattern), (&Some(Bytes(b"pc".to_vec())), &Some(Bytes(b"p*".to_vec()))));
    }

    #[test]
    fn a_reader_gets_what_it_has_not_seen() {
        let some = || {
            let mut kept = StreamBuffer::new(10);
            (0..3).for_each(|_| drop(kept.take(message(&[b"message", b"c", b"m"]), 1)));
            kept
        };
        for (after, rows, left_out) in [(10, 3, 0), (12, 1, 0), (13, 0, 0), (4, 3, 6), (99, 3, 0)] {
            let read = page(some(), after);
            assert_eq!((read.rows.len(), read.left_out, read.last), (rows, left_out, 13), "after {after}");
        }
    }

    #[test]
    fn lines_of_monitor_have_their_own_time_and_answers_are_told_apart() {
        let mut kept = StreamBuffer::new(0);
        assert!(matches!(kept.take(Value::Simple(b"OK".to_vec()), 1), Some(Value::Simple(_))));
        assert!(kept.monitors);
        let line = Value::Simple(b"1700000000.123456 [0 127.0.0.1:5] \"GET\" \"k\"".to_vec());
        assert!(kept.take(line, 1).is_none());
        assert_eq!(
            (kept.rows[0].at_ms, &kept.rows[0].payload.0[..]),
            (1_700_000_000_123, &b"[0 127.0.0.1:5] \"GET\" \"k\""[..])
        );
        assert!(kept.take(message(&[b"subscribe", b"c", b"1"]), 1).is_some());
        assert!(kept.take(message(&[b"invalidate", b"k"]), 1).is_none(), "neither a message nor an answer");
        assert_eq!(kept.subscriptions.len(), 1);
        assert!(kept.take(message(&[b"unsubscribe", b"c", b"0"]), 1).is_some());
        assert!(kept.subscriptions.is_empty());
        assert!(matches!(kept.take(Value::Error(b"NOPERM".to_vec()), 1), Some(Value::Error(_))));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        assert_eq!(part(&long.as_bytes()[1..]).0.len(), TEXT_BYTES_MAX, "no text anyway");
        let odd = format!("x{long}");
        assert_eq!(part(odd.as_bytes()).0.len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn a_message_in_pieces_arrives_whole_and_a_closed_stream_ends_its_thread() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = LiveStream::over(ours, 0, || 7).unwrap();
        for piece in
            [&b">3\r\n$7\r\nmes"[..], b"sage\r\n$1\r\nc\r\n$2\r\nhi\r\n>3\r\n$9\r\nsubscribe\r\n$1\r", b"\nc\r\n:1\r\n"]
        {
            theirs.write_all(piece).unwrap();
        }
        assert_eq!(stream.ask(&[b"SUBSCRIBE", b"c"], 1).unwrap().len(), 1);
        let row = stream.page(0).rows.remove(0);
        assert_eq!((row.payload, row.at_ms), (Bytes(b"hi".to_vec()), 7));
        assert!(stream.page(0).is_open && stream.count_of(Space::Channel) == 1 && !stream.is_silent());
        let kept = Arc::clone(&stream.kept);
        drop(stream);
        let mut rest = Vec::new();
        // The other side sees the end only when both the stream and its thread have dropped the socket.
        theirs.read_to_end(&mut rest).unwrap();
        let until = Instant::now() + std::time::Duration::from_secs(60);
        while kept.lock().ended.is_empty() {
            assert!(Instant::now() < until, "the thread never ended");
            thread::yield_now();
        }
    }
}
