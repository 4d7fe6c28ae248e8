//! Owns a session with the owner of a shard: the bytes to it and from it, and the state of the connection that it was told. Never knows
//! the client's connection.

use crate::admit::{RUN_AS, WROTE, WROTE_EARLIER};
use crate::session_stream::SessionStream;
use commands::session::Session;
use resp::client::encode_command;
use resp::extent::Extent;
use resp::{Args, Proto};
use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// The most scripts of which a session remembers that its shard has them.
const SCRIPTS_MAX: usize = 1000;

/// A client of the copy that owns a shard, on behalf of one client of the proxy.
pub struct ForwardingSession {
    stream: SessionStream,
    /// Commands, of which the first `sent` bytes were sent.
    commands: Vec<u8>,
    sent: usize,
    /// The bytes sent before these.
    sent_before: u64,
    /// Initialised over its whole length. The bytes from `taken` to `filled` are replies that were not taken yet.
    replies: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The replies to what the proxy itself has said, which come before the next command's.
    pub owed: u32,
    proto: Proto,
    no_touch: bool,
    db: usize,
    user: Cow<'static, str>,
    /// The version of the users when the owner was told the user's rights. `None`: all of them.
    rights: Option<u64>,
    /// The session's client id at the owner, once it was asked for.
    pub client: Option<u64>,
    asked_client: bool,
    /// One of the client's writes was answered by the owner, or was noted by [`ForwardingSession::has_written`].
    pub has_writes: bool,
    /// What WAIT must know besides the writes through this session.
    elsewhere: Option<Elsewhere>,
    /// The shard has the scripts with these digests.
    scripts: HashSet<[u8; 40]>,
    flushes: u64,
}

/// How a client has written to a shard, besides its session with the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elsewhere {
    /// To the same owner, which runs on the same thread.
    Directly,
    /// Through a session that has ended. The owner may be another one since.
    Earlier,
}

/// A reply, or the rest of it.
pub enum Taken {
    /// It is complete.
    All,
    /// More must arrive.
    Part,
}

impl ForwardingSession {
    pub fn new(stream: SessionStream) -> ForwardingSession {
        ForwardingSession {
            stream,
            commands: Vec::new(),
            sent: 0,
            sent_before: 0,
            replies: Vec::new(),
            taken: 0,
            filled: 0,
            owed: 0,
            proto: Proto::Resp2,
            no_touch: false,
            db: 0,
            user: Cow::Borrowed("default"),
            rights: None,
            client: None,
            asked_client: false,
            has_writes: false,
            elsewhere: None,
            scripts: HashSet::new(),
            flushes: 0,
        }
    }

    /// Says what has changed at the client's connection since the last command.
    #[inline]
    pub fn follow(&mut self, session: &Session) {
        if self.proto != session.proto {
            self.proto = session.proto;
            let version: &[u8] = if session.proto == Proto::Resp3 { b"3" } else { b"2" };
            self.say(&[b"HELLO", version]);
        }
        if self.no_touch != session.no_touch {
            self.no_touch = session.no_touch;
            self.say(&[b"CLIENT", b"NO-TOUCH", if session.no_touch { b"ON" } else { b"OFF" }]);
        }
        let rights = session.rights.is_some().then_some(session.user_version);
        if self.rights != rights || self.user != session.user {
            self.rights = rights;
            self.user = session.user.clone();
            self.say_user(session);
        }
        if self.db != session.db {
            self.db = session.db;
            self.say(&[b"SELECT", session.db.to_string().as_bytes()]);
        }
    }

    #[cold]
    fn say_user(&mut self, session: &Session) {
        let rules = session.rights.as_ref().map(|rights| rights.rules()).unwrap_or_default();
        let words = [RUN_AS.as_bytes(), session.user.as_bytes()];
        self.say(&words.into_iter().chain(rules.iter().map(String::as_bytes)).collect::<Vec<_>>());
    }

    /// A command of the proxy's own, whose reply nobody gets.
    pub fn say(&mut self, words: &[&[u8]]) {
        encode_command(words, &mut self.commands);
        self.owed += 1;
    }

    /// The client has written to the shard by another way.
    pub fn has_written(&mut self, how: Elsewhere) {
        self.has_writes = true;
        self.elsewhere = self.elsewhere.max(Some(how));
    }

    /// Before WAIT.
    pub fn say_written(&mut self) {
        match self.elsewhere.take() {
            None => {}
            Some(Elsewhere::Directly) => self.say(&[WROTE.as_bytes()]),
            Some(Elsewhere::Earlier) => self.say(&[WROTE.as_bytes(), WROTE_EARLIER.as_bytes()]),
        }
    }

    /// Before a command that may wait: CLIENT UNBLOCK needs the session's id at the owner.
    pub fn ask_client(&mut self) {
        if !std::mem::replace(&mut self.asked_client, true) {
            self.say(&[b"CLIENT", b"ID"]);
        }
    }

    /// A reply to what the proxy has said. Only that to CLIENT ID is an integer, and only SCRIPT LOAD is refused, while a script is busy.
    pub fn was_told(&mut self, reply: &[u8]) {
        match reply {
            [b':', id @ .., b'\r', b'\n'] => {
                self.client = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            }
            [b'-', ..] => self.scripts.clear(),
            _ => {}
        }
    }

    /// Before a script that is called by its digest: the shard may not have it.
    pub fn load_script(&mut self, sha: &[u8; 40], flushes: u64, body: impl FnOnce() -> Option<std::sync::Arc<[u8]>>) {
        if self.flushes != flushes || self.scripts.len() >= SCRIPTS_MAX {
            self.scripts.clear();
            self.flushes = flushes;
        }
        if !self.scripts.contains(sha)
            && let Some(body) = body()
        {
            self.say(&[b"SCRIPT", b"LOAD", &body]);
            self.scripts.insert(*sha);
        }
    }

    /// The client's command, under the name that it has everywhere.
    #[inline]
    pub fn add(&mut self, name: &str, args: Args<'_>) {
        match (args.is_called(name), args.sent()) {
            (true, Some(sent)) => self.commands.extend_from_slice(sent),
            (true, None) => self.add_words(args.len(), args.from(0)),
            (false, _) => self.add_words(args.len(), std::iter::once(name.as_bytes()).chain(args.from(1))),
        }
    }

    pub fn add_words<'a>(&mut self, count: usize, words: impl Iterator<Item = &'a [u8]>) {
        resp::client::begin_command(count, &mut self.commands);
        words.for_each(|word| resp::client::encode_argument(word, &mut self.commands));
    }

    /// Sends what the owner takes.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.commands.len() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.commands[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.sent_before += self.sent as u64;
        self.sent = 0;
        if self.commands.capacity() > READ_BYTES {
            self.commands = Vec::new();
        }
        self.commands.clear();
        Poll::Ready(Ok(()))
    }

    /// The bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent_before + self.sent as u64
    }

    /// Where what is added now begins among all bytes.
    #[inline]
    pub fn end(&self) -> u64 {
        self.sent_before + self.commands.len() as u64
    }

    pub fn has_unsent(&self) -> bool {
        self.sent < self.commands.len()
    }

    /// Takes what has arrived of a reply, and reads when nothing has.
    pub fn poll_take(
        &mut self,
        extent: &mut Extent,
        cx: &mut Context<'_>,
        mut each: impl FnMut(&[u8]),
    ) -> Poll<io::Result<Taken>> {
        loop {
            let (bytes, is_complete) = extent
                .advance(&self.replies[self.taken..self.filled])
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
            if bytes > 0 {
                each(&self.replies[self.taken..self.taken + bytes]);
                self.taken += bytes;
            }
            if is_complete {
                *extent = Extent::default();
                return Poll::Ready(Ok(Taken::All));
            }
            if bytes >= READ_BYTES {
                return Poll::Ready(Ok(Taken::Part));
            }
            ready!(self.poll_read(cx))?;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.replies.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.replies.len() - self.filled < READ_BYTES / 2 {
            self.replies.resize(self.filled + READ_BYTES, 0);
        }
        let mut buf = ReadBuf::new(&mut self.replies[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        let received = buf.filled().len();
        if received == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.filled += received;
        Poll::Ready(Ok(()))
    }

    /// Gives up the memory of buffers that hold nothing.
    pub fn shrink(&mut self) {
        if self.taken == self.filled {
            self.replies = Vec::new();
            (self.taken, self.filled) = (0, 0);
        }
        if !self.has_unsent() {
            self.commands = Vec::new();
            self.sent = 0;
        }
    }

    /// Memory that its buffers take.
    pub fn mem_bytes(&self) -> usize {
        self.commands.capacity() + self.replies.capacity()
    }
}
