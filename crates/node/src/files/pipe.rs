//! Owns the connection through which a dataset comes in: commands go out without waiting for their replies, and a
//! thread compares each reply with what is expected. Never knows where the commands come from.

use crate::database::Database;
use crate::role::Failures;
use engine::{ERRORS_ONLY, REPLAY_AT, Role};
use rdb::show_key;
use resp::client::{Kind, SkipState, encode_command, skip};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Commands are sent in portions of this size.
const SEND_BYTES: usize = 128 << 10;
/// What the socket is asked to take. With less, sender and worker wake each other more often.
const SOCKET_BYTES: usize = 1 << 20;
const RECEIVE_BYTES: usize = 64 << 10;
const CLOSED: &str = "the database has closed the connection";
/// Errors of commands that stop a load whoever sent the command. Redis ignores other errors of an append-only file.
fn is_grave(error: &[u8]) -> bool {
    harms_others(error) || error.starts_with(b"ERR unknown command")
}

/// Whether other commands fail too, or do something else.
fn harms_others(error: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [
        b"OOM ",
        b"EXECABORT Transaction discarded because of: ",
        b"NOPERM",
        b"LOADING",
        b"PAUSED",
        // What follows would go into another logical database.
        b"ERR DB index is out of range",
    ];
    BEGINNINGS.iter().any(|beginning| error.starts_with(beginning))
}

/// What must be true of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It is no error.
    Success,
    /// It is this number.
    Count(u64),
    /// It is no grave error, and has none in it.
    Any,
    /// It is no error, and so are the replies in it. An error is counted as [`Failures`]: the primary has run the command.
    Applied,
}

/// What the thread that compares replies must read next.
enum Expected {
    /// So many replies.
    Replies(Expect, u32),
    /// All replies before this were read: the receiver of this channel is told.
    Barrier(Sender<()>),
}

/// Which replies a connection gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    All,
    /// Only errors, and one reply at each barrier and at the end. Every command must succeed.
    Errors,
}

/// Where commands stand in their file.
struct CommandSpan {
    /// The number of the first of them among all that were sent.
    first: u64,
    at: u64,
    /// The key that these commands make.
    key: Option<Box<[u8]>>,
}

pub struct Pipe {
    stream: UnixStream,
    unsent: Vec<u8>,
    wanted: Replies,
    expected: Sender<Expected>,
    /// For the last commands in `unsent`: what their replies must be, and how many there are.
    unsent_expected: (Expect, u32),
    /// Returns how many errors were not grave.
    comparing: JoinHandle<Result<u64, String>>,
    /// How many commands were sent; `judged`: how many replies were as expected.
    count: u64,
    judged: Arc<AtomicU64>,
    /// See [`Pipe::may_fail`].
    may_fail: Arc<AtomicBool>,
    /// Of the commands whose replies are expected, as far as they have one.
    places: VecDeque<CommandSpan>,
    /// The time that the commands see. `None`: the present.
    replay_ms: Option<u64>,
    /// The connection's logical database, if it is known.
    db: Option<u64>,
}

/// The connection is over. [`Pipe::finish`] tells why.
#[derive(Debug)]
pub struct Broken;

impl Pipe {
    pub fn open(database: &Database, worker: usize) -> Result<Pipe, String> {
        Pipe::with(database, worker, Replies::All)
    }

    fn with(database: &Database, worker: usize, wanted: Replies) -> Result<Pipe, String> {
        let failed = |error| format!("the database takes no connection: {error}");
        let stream = database.connect_to(worker, Role::Loader).map_err(failed)?;
        // As much as the system allows.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SOCKET_BYTES);
        let other = stream.try_clone().map_err(failed)?;
        let (expected, expectations) = channel();
        let builder = std::thread::Builder::new().name("load-replies".into());
        let failures = Arc::clone(&database.replication.role.failures);
        let judged = Arc::new(AtomicU64::new(0));
        let judging = Arc::clone(&judged);
        let may_fail = Arc::<AtomicBool>::default();
        let tolerates = Arc::clone(&may_fail);
        let compare = move || compare(other, wanted, &expectations, &failures, &judging, &tolerates);
        let comparing = builder.spawn(compare).map_err(failed)?;
        Ok(Pipe {
            stream,
            unsent: Vec::new(),
            wanted,
            expected,
            unsent_expected: (Expect::Success, 0),
            comparing,
            count: 0,
            judged,
            may_fail,
            places: VecDeque::new(),
            replay_ms: None,
            db: Some(0),
        })
    }

    /// Opens a connection whose commands see a time of the past: at first one before all times, at which nothing has expired.
    pub fn replay(database: &Database, worker: usize) -> Result<Pipe, String> {
        let mut pipe = Pipe::open(database, worker)?;
        pipe.at(0).map_err(|Broken| CLOSED.to_owned())?;
        Ok(pipe)
    }

    /// As [`Pipe::replay`], for commands that must all succeed: their replies are not sent.
    pub fn repeat(database: &Database, worker: usize) -> Result<Pipe, String> {
        let mut pipe = Pipe::with(database, worker, Replies::Errors)?;
        let begun = pipe.errors_only().and_then(|()| pipe.at(0));
        begun.map(|()| pipe).map_err(|Broken| CLOSED.to_owned())
    }

    /// Of a connection whose commands must all succeed: whether those from now on may fail all the same, because they are a primary's. Their
    /// errors are counted as [`Failures`], but for those that would also harm other commands. All before must have run.
    pub fn may_fail(&self, may_fail: bool) {
        self.may_fail.store(may_fail, Relaxed);
    }

    fn errors_only(&mut self) -> Result<(), Broken> {
        self.command(&[ERRORS_ONLY.as_bytes()], Expect::Success)
    }

    /// A reply that says that all commands before it have succeeded, although only errors are replies.
    fn mark(&mut self) -> Result<(), Broken> {
        self.command(&[b"CLIENT", b"REPLY", b"ON"], Expect::Success)
    }

    /// Opens a connection whose commands repeat what a primary does: nothing has expired for them.
    pub fn apply(database: &Database, worker: usize) -> Result<Pipe, String> {
        let mut pipe = Pipe::open(database, worker)?;
        let sent = pipe.command(&[REPLAY_AT.as_bytes(), b"PRESENT"], Expect::Success);
        sent.map(|()| pipe).map_err(|Broken| CLOSED.to_owned())
    }

    /// Opens a connection for the commands of an append-only file: nothing has expired for them, and none waits for a key.
    pub fn file(database: &Database, worker: usize) -> Result<Pipe, String> {
        let mut pipe = Pipe::open(database, worker)?;
        let sent = pipe.command(&[REPLAY_AT.as_bytes(), b"FILE"], Expect::Success);
        sent.map(|()| pipe).map_err(|Broken| CLOSED.to_owned())
    }

    /// The following commands stand at this byte of a file, and make this key. An error names both.
    pub fn place(&mut self, at: u64, key: Option<&[u8]>) {
        if self.places.back().is_none_or(|last| last.at != at) {
            self.places.push_back(CommandSpan { first: self.count, at, key: key.map(Box::from) });
        }
    }

    /// Sets the time that the following commands see, in milliseconds since 1970.
    pub fn at(&mut self, time_ms: u64) -> Result<(), Broken> {
        if self.replay_ms.replace(time_ms) == Some(time_ms) {
            return Ok(());
        }
        self.command(&[REPLAY_AT.as_bytes(), time_ms.to_string().as_bytes()], Expect::Success)
    }

    /// Sets the logical database of the following commands.
    pub fn select(&mut self, db: u64) -> Result<(), Broken> {
        if self.db.replace(db) == Some(db) {
            return Ok(());
        }
        self.command(&[b"SELECT", db.to_string().as_bytes()], Expect::Success)
    }

    /// One of the last commands was SELECT.
    pub fn forget_selected(&mut self) {
        self.db = None;
    }

    pub fn command(&mut self, args: &[&[u8]], expect: Expect) -> Result<(), Broken> {
        encode_command(args, &mut self.unsent);
        self.sent(expect, 1)
    }

    /// So many commands in the form that clients send.
    pub fn encoded(&mut self, commands: &[u8], expect: Expect, count: u32) -> Result<(), Broken> {
        self.unsent.extend_from_slice(commands);
        self.sent(expect, count)
    }

    fn sent(&mut self, expect: Expect, count: u32) -> Result<(), Broken> {
        if self.unsent_expected.0 != expect {
            self.send_expected()?;
        }
        self.unsent_expected = (expect, self.unsent_expected.1 + count);
        self.count += u64::from(count);
        if self.unsent.len() >= SEND_BYTES { self.flush() } else { Ok(()) }
    }

    fn send_expected(&mut self) -> Result<(), Broken> {
        match std::mem::replace(&mut self.unsent_expected.1, 0) {
            0 => Ok(()),
            _ if self.wanted == Replies::Errors => Ok(()),
            count => self.expected.send(Expected::Replies(self.unsent_expected.0, count)).map_err(|_| Broken),
        }
    }

    /// Sends what is not sent yet.
    pub fn flush(&mut self) -> Result<(), Broken> {
        self.send_expected()?;
        let sent = self.stream.write_all(&self.unsent);
        self.unsent.clear();
        // A long string must not stay allocated.
        self.unsent.shrink_to(2 * SEND_BYTES);
        let judged = self.judged.load(Relaxed);
        while self.places.get(1).is_some_and(|next| next.first <= judged) {
            self.places.pop_front();
        }
        sent.map_err(|_| Broken)
    }

    /// Waits until all commands have run.
    pub fn drain(&mut self) -> Result<(), Broken> {
        if self.wanted == Replies::Errors {
            self.mark()?;
            self.errors_only()?;
        }
        self.flush()?;
        let (reached, is_reached) = channel();
        self.expected.send(Expected::Barrier(reached)).map_err(|_| Broken)?;
        is_reached.recv().map_err(|_| Broken)
    }

    /// Waits for the replies to all commands. Returns how many errors were not grave.
    pub fn finish(mut self) -> Result<u64, String> {
        // If this fails, the replies tell more.
        let marked = if self.wanted == Replies::Errors { self.mark() } else { Ok(()) };
        let _ = marked.and_then(|()| self.flush());
        drop(self.expected);
        let compared = self.comparing.join();
        compared.unwrap_or_else(|_| Err("a bug: the thread that reads replies panicked".to_owned())).map_err(|why| {
            let judged = self.judged.load(Relaxed);
            match self.places.iter().rev().find(|place| place.first <= judged) {
                Some(CommandSpan { at, key: Some(key), .. }) => format!("{}: byte {at}: {why}", show_key(key)),
                Some(CommandSpan { at, key: None, .. }) => format!("byte {at}: {why}"),
                None => why,
            }
        })
    }
}

/// Reads a reply for each expectation.
fn compare(
    stream: UnixStream,
    wanted: Replies,
    expectations: &Receiver<Expected>,
    failures: &Failures,
    judged: &AtomicU64,
    may_fail: &AtomicBool,
) -> Result<u64, String> {
    let mut replies = Reading { stream, input: Vec::new(), at: 0, failures };
    let mut errors = 0;
    let why = loop {
        // Errors are read as they come. Any other reply is that of a barrier, or of the end.
        if wanted == Replies::Errors {
            match replies.error(may_fail) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(why) => break why,
            }
        }
        let (expect, count) = match expectations.recv() {
            Ok(Expected::Replies(expect, count)) => (expect, count),
            Ok(Expected::Barrier(reached)) => {
                // Who waits for it may have given up.
                let _ = reached.send(());
                continue;
            }
            Err(_) => return Ok(errors),
        };
        let mut good = 0;
        let compared = (0..count).try_for_each(|_| {
            errors += replies.next(expect)?;
            good += 1;
            Ok(())
        });
        judged.fetch_add(good, Relaxed);
        if let Err(why) = compared {
            break why;
        }
    };
    // Nothing more may be sent. If the connection is closed already, that is so.
    let _ = replies.stream.shutdown(Shutdown::Both);
    Err(why)
}

struct Reading<'f> {
    failures: &'f Failures,
    stream: UnixStream,
    input: Vec<u8>,
    /// Replies before this place were compared.
    at: usize,
}

impl Reading<'_> {
    /// Reads one reply. Returns how many errors it has that are not grave.
    fn next(&mut self, expect: Expect) -> Result<u64, String> {
        self.judged(|bytes, reply, failures| {
            let (mut errors, mut grave) = (0, None);
            match expect {
                Expect::Applied => each_error(bytes, reply, &mut |text| note(text, failures)),
                Expect::Any => each_error(bytes, reply, &mut |text| match weigh(text) {
                    Ok(()) => errors += 1,
                    Err(why) => grave = Some(why),
                }),
                Expect::Success | Expect::Count(_) => judge(reply, expect)?,
            }
            grave.map_or(Ok(errors), Err)
        })
    }

    /// Reads one reply of a connection that gets only errors. False: it is none.
    fn error(&mut self, may_fail: &AtomicBool) -> Result<bool, String> {
        self.judged(|_, reply, failures| match reply {
            Kind::Error(text) if may_fail.load(Relaxed) && !harms_others(text) => {
                note(text, failures);
                Ok(true)
            }
            reply => judge(reply, Expect::Success).map(|()| false),
        })
    }

    fn judged<T>(&mut self, judge: impl FnOnce(&[u8], &Kind<'_>, &Failures) -> Result<T, String>) -> Result<T, String> {
        let mut state = SkipState::default();
        loop {
            let reply =
                state.skip(&self.input[self.at..]).map_err(|error| format!("a reply is malformed: {error:?}"))?;
            if let Some(reply) = reply {
                let bytes = &self.input[self.at..][..reply.consumed];
                self.at += reply.consumed;
                return judge(bytes, &reply.kind, self.failures);
            }
            self.input.drain(..self.at);
            self.at = 0;
            let from = self.input.len();
            self.input.resize(from + RECEIVE_BYTES, 0);
            let received = self.stream.read(&mut self.input[from..]);
            let count = received.map_err(|error| format!("the connection has failed: {error}"))?;
            self.input.truncate(from + count);
            if count == 0 {
                return Err(CLOSED.to_owned());
            }
        }
    }
}

/// Counts what of a primary's commands has failed.
fn note(text: &[u8], failures: &Failures) {
    let text = String::from_utf8_lossy(text);
    if failures.note(&text) {
        tracing::error!("a command that the primary has run fails here, so the datasets may differ: {text}");
    }
}

/// Whether a command of an append-only file may fail like this.
fn weigh(text: &[u8]) -> Result<(), String> {
    let is_grave = is_grave(text);
    let text = String::from_utf8_lossy(text);
    if is_grave {
        return Err(answered(&text));
    }
    tracing::warn!("a command of the append-only file has failed, as it would in Redis: {text}");
    Ok(())
}

fn answered(text: &str) -> String {
    format!("the database answers: {text}")
}

/// Shows the reply if it is an error, or the errors of a transaction's replies.
fn each_error(bytes: &[u8], reply: &Kind<'_>, show: &mut dyn FnMut(&[u8])) {
    match reply {
        Kind::Error(text) => show(text),
        Kind::Array { count: 1.. } => {
            let mut rest = bytes.iter().position(|&byte| byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]);
            while let Ok(Some(part)) = skip(rest) {
                if let Kind::Error(text) = part.kind {
                    show(text);
                }
                rest = &rest[part.consumed..];
            }
        }
        _ => {}
    }
}

fn judge(reply: &Kind<'_>, expect: Expect) -> Result<(), String> {
    match (reply, expect) {
        (Kind::Error(text), _) => Err(answered(&String::from_utf8_lossy(text))),
        (Kind::Int(count), Expect::Count(expected)) if *count != expected as i64 => {
            Err(format!("a collection has a member twice: {count} of {expected} members are new"))
        }
        _ => Ok(()),
    }
}
