//! Owns the exchanges with other servers that commands ask for: one exchange at a time over one connection, and the
//! connections kept for the next exchange. Never knows what the exchanged commands mean.

use crate::hub::Hub;
use commands::exchange::{Exchange, Failure, Outcome, Target};
use commands::session::Session;
use resp::client::encode_command;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Redis keeps MIGRATE's connections for the same time.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The largest number of connections that a worker keeps.
const KEPT_MAX: usize = 16;
/// The bytes of one write. Each write has the exchange's full timeout.
const WRITTEN_BYTES: usize = 64 * 1024;
/// The longest reply line. Replies are `+OK` and errors.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// Carries out the exchange that the running command left in its session, and puts the outcome there.
pub async fn run(targets: &Targets, hub: &Hub, session: &mut Session) {
    let Some(mut exchange) = session.exchange.take() else { return };
    exchange.outcome = Some(targets.ask(hub, &exchange).await);
    exchange.commands = Vec::new();
    session.exchange = Some(exchange);
}

/// The connections to other servers that a worker keeps for a while.
#[derive(Default)]
pub struct Targets(RefCell<Vec<IdleConnection>>);

struct IdleConnection {
    /// Includes user and password: a connection is never reused for another user.
    target: Target,
    line: Line,
    since: Instant,
}

impl Targets {
    async fn ask(&self, hub: &Hub, exchange: &Exchange) -> Outcome {
        if let Some(line) = self.take(hub, &exchange.target) {
            let (outcome, fell_silent) = self.over(hub, line, exchange).await;
            // A failure on a kept connection may only mean that the other end closed it, so open a new connection. Do
            // not retry after a timeout: the other server may still carry out what it received.
            if outcome.failed.is_none() || fell_silent || outcome.refused.is_some() || !outcome.replies.is_empty() {
                return outcome;
            }
        }
        match Line::open(exchange).await {
            Ok(line) => self.over(hub, line, exchange).await.0,
            Err(failure) => Outcome { failed: Some(failure), ..Outcome::default() },
        }
    }

    /// Runs the exchange over `line`. The flag says whether the exchange ended in a timeout.
    async fn over(&self, hub: &Hub, mut line: Line, exchange: &Exchange) -> (Outcome, bool) {
        let mut outcome = Outcome::default();
        let ended = line.say(exchange, &mut outcome).await;
        let fell_silent = match ended {
            Ok(()) => {
                self.keep(hub, exchange.target.clone(), line);
                false
            }
            Err((failure, error)) => {
                outcome.failed = Some(failure);
                error.kind() == io::ErrorKind::TimedOut
            }
        };
        (outcome, fell_silent)
    }

    fn take(&self, hub: &Hub, target: &Target) -> Option<Line> {
        let mut kept = self.0.borrow_mut();
        while let Some(at) = kept.iter().position(|kept| kept.target == *target) {
            let line = kept.swap_remove(at).line;
            hub.targets_kept.fetch_sub(1, Relaxed);
            if line.is_quiet() {
                return Some(line);
            }
        }
        None
    }

    fn keep(&self, hub: &Hub, target: Target, line: Line) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(IdleConnection { target, line, since: Instant::now() });
            hub.targets_kept.fetch_add(1, Relaxed);
        }
    }

    /// Closes the connections that were kept for too long.
    pub fn forget_old(&self, hub: &Hub) {
        let mut kept = self.0.borrow_mut();
        if !kept.is_empty() {
            let before = kept.len();
            kept.retain(|kept| kept.since.elapsed() < KEPT_FOR);
            hub.targets_kept.fetch_sub(before - kept.len(), Relaxed);
        }
    }
}

/// A connection to another server.
struct Line {
    stream: BufReader<TcpStream>,
    /// The logical database that was selected.
    db: i64,
}

type Failed = (Failure, io::Error);

impl Line {
    async fn open(exchange: &Exchange) -> Result<Line, Failure> {
        let Target { host, port, .. } = &exchange.target;
        let connecting = async {
            let mut failure = Failure::Connecting;
            for address in lookup_host((host.as_str(), *port)).await.map_err(|_| failure)? {
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    // Redis reports a refused connection as a failed write.
                    Err(_) => failure = Failure::Writing,
                }
            }
            Err(failure)
        };
        let stream = timeout(exchange.timeout, connecting).await.map_err(|_| Failure::Connecting)??;
        stream.set_nodelay(true).map_err(|_| Failure::Connecting)?;
        Ok(Line { stream: BufReader::new(stream), db: 0 })
    }

    /// Whether the other server has sent nothing unasked, and has not closed the connection.
    fn is_quiet(&self) -> bool {
        let read = self.stream.get_ref().try_read(&mut [0]);
        self.stream.buffer().is_empty() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// AUTH and SELECT are answered before any value is sent. As in Redis, AUTH is sent over a kept connection too: the password may have been
    /// changed or the user removed, and the target must say so.
    async fn say(&mut self, exchange: &Exchange, outcome: &mut Outcome) -> Result<(), Failed> {
        let Exchange { target, timeout, db, commands, count, .. } = exchange;
        let (mut first, mut wanted) = (Vec::new(), 0);
        if let Some(password) = &target.password {
            match &target.user {
                Some(user) => encode_command(&[b"AUTH", user, password], &mut first),
                None => encode_command(&[b"AUTH", password], &mut first),
            }
            wanted += 1;
        }
        if self.db != *db {
            encode_command(&[b"SELECT", db.to_string().as_bytes()], &mut first);
            wanted += 1;
        }
        self.write(&first, *timeout).await?;
        for _ in 0..wanted {
            if let Err(text) = self.read(*timeout).await? {
                outcome.refused.get_or_insert(text);
            }
        }
        if outcome.refused.is_some() {
            // The connection's user and database are not certain, so do not keep the connection.
            return Err((Failure::Reading, io::ErrorKind::PermissionDenied.into()));
        }
        self.db = *db;
        self.write(commands, *timeout).await?;
        for _ in 0..*count {
            outcome.replies.push(self.read(*timeout).await?);
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), Failed> {
        for piece in bytes.chunks(WRITTEN_BYTES) {
            let written = tokio::time::timeout(timeout, self.stream.write_all(piece)).await.unwrap_or_else(late);
            written.map_err(|error| (Failure::Writing, error))?;
        }
        Ok(())
    }

    async fn read(&mut self, timeout: Duration) -> Result<Result<(), String>, Failed> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        let read = tokio::time::timeout(timeout, limited.read_until(b'\n', &mut line)).await.unwrap_or_else(late);
        read.map_err(|error| (Failure::Reading, error))?;
        match line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) {
            Some((b'+', _)) => Ok(Ok(())),
            Some((b'-', text)) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            _ => Err((Failure::Reading, io::ErrorKind::InvalidData.into())),
        }
    }
}

fn late<T>(_: tokio::time::error::Elapsed) -> io::Result<T> {
    Err(io::ErrorKind::TimedOut.into())
}
