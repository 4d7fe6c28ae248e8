//! Owns a database's life as a replica: the thread that connects to the primary, receives its dataset and applies its stream. Never knows
//! how the role changes (`reconcile`), how a command is applied (`apply`), nor who follows this database.

use super::apply::{Applied, Applier, count_writes};
use super::arrival::{Arrival, Spool};
use super::full::Fullness;
use super::shard_stream::{Frame, Frames, Inbox};
use super::wire::Wire;
use crate::database::Database;
use crate::files::{StreamAtDump, Unloaded, about, directory, empty, load_primarys};
use crate::promises::Promises;
use crate::role::{FollowedShard, FollowerCommand, Following, GivenUp, LinkSocket, LinkState};
use crate::{persist, tls};
use base::clock::wall_ms;
use base::size::human;
use cluster::records::Member;
use commands::host::REDIS_VERSION;
use config::{Config, Secret};
use engine::replication::{Id, Mark, new_id};
use engine::{LoadState, Role};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use store::page_import::PAGES_CAPA;
use store::{Admission, Reach};

/// Between two attempts to reach the primary. It doubles with each attempt that brings nothing.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);
/// The same in a shard: a new primary serves when its copies have come, and they come while it is being promoted. A copy that is not back
/// within 0.8 s leaves the in-sync set.
const SHARD_REST_MIN: Duration = Duration::from_millis(5);
const SHARD_REST_MAX: Duration = Duration::from_millis(200);
/// The same behind a dataset that could not be loaded.
const LONG_REST: Duration = Duration::from_secs(10);
/// Between two reports of what the replica has.
const ACK_INTERVAL: Duration = Duration::from_secs(1);
/// A promotion applies what still arrives within this time. `DRAIN_TIMEOUT`: the limit for bytes that had arrived before it.
const DRAIN: Duration = Duration::from_millis(20);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// A primary of a shard sends heartbeats, or lines while it makes a dump.
const SHARD_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read from a file of pending bytes at once.
const PENDING_BYTES: usize = 1 << 20;

// --- what the change of the role needs ---

impl Database {
    /// Ends the thread that follows, because the database is being closed.
    pub(crate) fn stop_following(&self) {
        let Some(following) = self.replication.role.following() else { return };
        following.send(FollowerCommand::Stop);
        if following.state() == LinkState::Load || self.hub.clients.load_state() == LoadState::Arriving {
            // Loading ends with its connections, and a restart asks for the dataset again.
            self.hub.is_closing.store(true, Relaxed);
            self.hub.clients.hang_up_all();
        }
        following.end(FollowerCommand::Stop);
    }

    /// Waits until no command runs that was admitted before: before the database became a replica, or before writers began to wait.
    pub(crate) fn wait_for_commands(&self) -> Result<(), String> {
        for worker in 0..self.hub.worker_handles.len() {
            let asked = self.connect_to(worker, Role::Loader).and_then(|mut connection| {
                connection.write_all(b"PING\r\n")?;
                connection.read(&mut [0; 16])
            });
            asked.map_err(|error| format!("the database takes no connection: {error}"))?;
        }
        self.lock_all();
        Ok(())
    }

    /// Waits until every stripe was free at one moment.
    fn lock_all(&self) {
        while self.shard.store.try_hold_all(Reach::All).is_none() {
            if self.hub.is_closing.load(Relaxed) {
                return;
            }
        }
    }
}

// --- the thread ---

pub(super) struct Link {
    database: Arc<Database>,
    following: Arc<Following>,
    /// The primary does not know the id that this stream had before its last one.
    knows_not_before: AtomicBool,
}

/// The primary's answer to PSYNC.
enum Answer {
    /// `shared`: up to where this database's stream is the primary's, if the primary says it.
    Full {
        id: Id,
        offset: u64,
        shared: Option<u64>,
    },
    Continue {
        id: Option<Id>,
    },
    /// This database's stream is the primary's up to this offset, and has more.
    Ahead {
        shared: u64,
    },
}

/// How the dataset comes.
enum Form {
    Bytes(u64),
    /// Until these bytes come.
    Until(Vec<u8>),
    /// The number of bytes is before each piece.
    Pieces,
}

impl Link {
    /// Starts the thread that follows.
    pub(super) fn start(database: Arc<Database>, following: &Arc<Following>) -> Result<(), String> {
        let link = Link { database, following: Arc::clone(following), knows_not_before: AtomicBool::new(false) };
        let thread = std::thread::Builder::new().name("follow".into()).spawn(move || link.run());
        *following.thread.lock() = Some(thread.map_err(|error| format!("ERR cannot start a thread: {error}"))?);
        Ok(())
    }

    fn run(&self) {
        while self.database.hub.clients.load_state() != LoadState::Open {
            if self.is_over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Err(why) = self.finish_commands() {
            tracing::error!("{why}");
            return;
        }
        let (rest_min, rest_max) = match self.following.shard {
            Some(_) => (SHARD_REST_MIN, SHARD_REST_MAX),
            None => (REST_MIN, REST_MAX),
        };
        let (mut rest, mut fullness) = (rest_min, Fullness::default());
        while !self.is_over() {
            let attempted = self.attempt();
            rest = match self.following.state() {
                LinkState::Connected => rest_min,
                LinkState::Load => LONG_REST,
                _ => rest,
            };
            let meets_full = self.following.meets_full.swap(false, Relaxed);
            if let Err(why) = &attempted
                && meets_full
            {
                fullness.note(&self.database, &self.following, why);
            } else if let Err(why) = attempted
                && !self.is_over()
            {
                let Following { host, port, .. } = &*self.following;
                let mut error = self.following.error.lock();
                // A primary that is away for hours is logged once.
                if error.as_ref() != Some(&why) {
                    tracing::warn!(
                        "database '{}': replication from {host}:{port} failed: {why}",
                        self.database.hub.name
                    );
                }
                *error = Some(why);
            }
            self.set_state(LinkState::Connect);
            *self.following.socket.lock() = None;
            if meets_full {
                fullness.rest(&self.database, &self.following, &|| self.is_over());
                continue;
            }
            self.following.rest(rest);
            rest = (2 * rest).min(rest_max);
        }
    }

    fn finish_commands(&self) -> Result<(), String> {
        let database = &self.database;
        database.wait_for_commands()?;
        database.shard.store.set_follows(true);
        // Afterwards, what lanes were removing is removed, and its effects were passed on.
        database.lock_all();
        database.follow_in_store(true);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.following.command() != FollowerCommand::GoOn
            || self.database.hub.is_closing.load(Relaxed)
            || self.database.must_reopen()
    }

    fn config(&self) -> Arc<Config> {
        self.database.hub.config.snapshot()
    }

    fn set_state(&self, state: LinkState) {
        let following = &self.following;
        following.set_state(state);
        let is_up = state == LinkState::Connected;
        if is_up {
            following.down_since_ms.store(0, Relaxed);
            *following.error.lock() = None;
        } else if following.down_since_ms.load(Relaxed) == 0 {
            following.down_since_ms.store(wall_ms(), Relaxed);
        }
        self.publish_stale();
    }

    /// Clients must not get old data if the configuration says so.
    fn publish_stale(&self) {
        // Who ends a thread that connects does not wait for it, so it may come here afterwards.
        if self.following.command() != FollowerCommand::GoOn {
            return;
        }
        let (is_up, stale) = (self.following.state() == LinkState::Connected, &self.database.hub.clients.stale);
        stale.store(!is_up && !self.config().replica.serves_stale, SeqCst);
        // The command may have come meanwhile, and what a primary has is not old.
        if self.following.command() == FollowerCommand::Promote {
            stale.store(false, SeqCst);
        }
    }

    fn attempt(&self) -> Result<(), String> {
        if let Some(shard) = &self.following.shard {
            return self.attempt_in_shard(shard);
        }
        self.set_state(LinkState::Connecting);
        let config = self.config();
        let timeout = Duration::from_secs(config.replica.timeout_s.into());
        let tls = config.replica.with_tls.then(|| tls::connector(&config.tls)).transpose()?;
        let Following { host, port, socket, .. } = &*self.following;
        let wire = Wire::open(host, *port, tls, timeout, |opened| *socket.lock() = Some(LinkSocket::Tcp(opened)));
        let mut wire = wire.map_err(|error| format!("it cannot be reached: {error}"))?;
        self.set_state(LinkState::Handshake);
        if self.is_over() {
            return Ok(());
        }
        self.handshake(&mut wire, &config)?;
        match self.psync(&mut wire)? {
            Answer::Ahead { .. } => Err("it takes this database for a copy of its shard".to_owned()),
            Answer::Full { id, offset, shared } => {
                self.report_given_up(shared);
                self.synchronise(wire, id, offset)
            }
            Answer::Continue { id } => {
                if let Some(id) = id {
                    self.take_id(id);
                }
                let mark = self.database.hub.dataset.journaling.stream.mark().expect("the primary goes on with it");
                tracing::info!(
                    "database '{}' continues replication at byte {} of its primary's stream",
                    self.database.hub.name,
                    mark.offset
                );
                let applier = Applier::new(&self.database, mark.db.unwrap_or(0))?;
                self.stream(wire, applier, None)
            }
        }
    }

    fn take_id(&self, id: Id) {
        let stream = &self.database.hub.dataset.journaling.stream;
        if stream.mark().is_some_and(|mark| mark.id != id) {
            stream.change_id(id);
            self.database.end_links();
            self.database.note_stream();
        }
    }

    // --- the handshake ---

    fn ask(&self, wire: &mut Wire, words: &[&[u8]]) -> Result<String, String> {
        wire.ask(words, &|| !self.is_over()).map_err(|error| lost(&error))
    }

    fn handshake(&self, wire: &mut Wire, config: &Config) -> Result<(), String> {
        let answer = self.ask(wire, &[b"PING"])?;
        let is_closed = ["-NOAUTH", "-NOPERM", "-ERR operation not permitted"].iter().any(|no| answer.starts_with(no));
        if answer.starts_with('-') && !is_closed {
            return Err(format!("it answers PING with {answer}"));
        }
        let replica = &config.replica;
        if let Some(password) = &replica.password {
            let mut words = vec![&b"AUTH"[..]];
            words.extend(replica.user.as_ref().map(Secret::expose));
            words.push(password.expose());
            let answer = self.ask(wire, &words)?;
            if answer.starts_with('-') {
                return Err(format!("it refuses masteruser and masterauth: {answer}"));
            }
        }
        let port = match replica.announced_port {
            0 if replica.with_tls && config.tls.port > 0 => config.tls.port,
            0 => config.port,
            port => port,
        };
        self.report(wire, &[b"listening-port", port.to_string().as_bytes()])?;
        if let Some(ip) = &replica.announced_ip {
            self.report(wire, &[b"ip-address", ip.as_bytes()])?;
        }
        self.report(wire, &self.capabilities())?;
        self.report(wire, &[b"version", REDIS_VERSION.as_bytes()])
    }

    /// As words of REPLCONF.
    fn capabilities(&self) -> Vec<&'static [u8]> {
        let mut capabilities = vec![&b"eof"[..], b"psync2", b"flint", b"tail", b"pieces"];
        if self.database.shard.store.exchanges_pages() && !self.following.refuses_pages.load(Relaxed) {
            capabilities.push(PAGES_CAPA.as_bytes());
        }
        capabilities.into_iter().flat_map(|capability| [&b"capa"[..], capability]).collect()
    }

    /// Sends REPLCONF with these words. An older primary may not know them: such an error is ignored.
    fn report(&self, wire: &mut Wire, words: &[&[u8]]) -> Result<(), String> {
        let words: Vec<&[u8]> = [&b"REPLCONF"[..]].iter().chain(words).copied().collect();
        let answer = self.ask(wire, &words)?;
        match ["-NOAUTH", "-NOPERM"].iter().any(|no| answer.starts_with(no)) {
            true => Err(format!("it requires authentication: {answer}. Set masteruser and masterauth")),
            false => Ok(()),
        }
    }

    fn psync(&self, wire: &mut Wire) -> Result<Answer, String> {
        let stream = &self.database.hub.dataset.journaling.stream;
        let mark = stream.mark().filter(|_| stream.is_on());
        // A copy that took an epoch and added nothing in it has the stream of the epoch before it. A later primary may know only that.
        let before = mark.as_ref().and_then(|mark| mark.second.filter(|(_, to)| *to >= mark.offset));
        let before = before.filter(|_| self.following.shard.is_some() && !self.knows_not_before.load(Relaxed));
        let (id, next) = match &mark {
            Some(mark) => (before.map_or(mark.id, |(id, _)| id).to_string(), (mark.offset + 1).to_string()),
            None => ("?".to_owned(), "-1".to_owned()),
        };
        let mut words = vec![&b"PSYNC"[..], id.as_bytes(), next.as_bytes()];
        let hands_over = self.following.hands_over.load(Relaxed);
        if hands_over {
            words.push(b"FAILOVER");
        }
        let answer = self.ask(wire, &words)?;
        let bad = || format!("it answers PSYNC with {answer}");
        if hands_over && answer.starts_with('-') {
            *self.following.refusal.lock() = Some(bad());
        }
        self.following.hands_over.fetch_and(!answer.starts_with('+'), Relaxed);
        let words: Vec<&str> = answer.split_ascii_whitespace().collect();
        if before.is_some() && matches!(words[..], ["+FULLRESYNC", ..]) {
            // It may know the newest id: it has followed this copy in that epoch, and has forgotten older ones.
            self.knows_not_before.store(true, Relaxed);
            return Err(bad());
        }
        match words[..] {
            ["+FULLRESYNC", id, offset] | ["+FULLRESYNC", id, offset, _] => {
                let id = id.parse().map_err(|_| bad())?;
                let shared = words.get(3).map(|shared| shared.parse().map_err(|_| bad())).transpose()?;
                Ok(Answer::Full { id, offset: offset.parse().map_err(|_| bad())?, shared })
            }
            ["-AHEAD", shared] if mark.is_some() => Ok(Answer::Ahead { shared: shared.parse().map_err(|_| bad())? }),
            ["+CONTINUE"] if mark.is_some() => Ok(Answer::Continue { id: None }),
            ["+CONTINUE", id] if mark.is_some() => Ok(Answer::Continue { id: Some(id.parse().map_err(|_| bad())?) }),
            _ => Err(bad()),
        }
    }

    // --- as a copy of a shard ---

    fn attempt_in_shard(&self, shard: &FollowedShard) -> Result<(), String> {
        let FollowedShard { primary, promises } = shard;
        if !promises.accepts(primary.epoch) {
            return Err(format!("a newer epoch than {} was promised", primary.epoch));
        }
        promises.acknowledge()?;
        // From here on, nobody waits for the end of this thread: see [`Following::end`].
        self.set_state(LinkState::Connecting);
        let socket = (primary.open)().map_err(|error| format!("it cannot be reached: {error}"))?;
        let known = |opened| *self.following.socket.lock() = Some(LinkSocket::Unix(opened));
        let mut wire = Wire::pair(socket, SHARD_TIMEOUT, known).map_err(|error| lost(&error))?;
        self.set_state(LinkState::Handshake);
        if self.is_over() {
            return Ok(());
        }
        let (epoch, me) = (primary.epoch.to_string(), IdentityWords::of(promises));
        let mut capabilities = self.capabilities();
        if persist::is_on(&self.database) && !self.following.cannot_truncate.load(Relaxed) {
            capabilities.extend([&b"capa"[..], b"truncate"]);
        }
        for mut words in [capabilities, vec![&b"epoch"[..], epoch.as_bytes()], me.words().to_vec()] {
            words.insert(0, b"REPLCONF");
            let answer = self.ask(&mut wire, &words)?;
            if !answer.starts_with('+') {
                return Err(format!("it answers REPLCONF with {answer}"));
            }
        }
        match self.psync(&mut wire)? {
            Answer::Continue { id } => {
                id.inspect(|id| self.take_id(*id));
                let mark = self.database.hub.dataset.journaling.stream.mark().expect("the primary goes on with it");
                self.stream_in_shard(&mut wire, shard, mark.db.unwrap_or(0), None)
            }
            Answer::Ahead { shared } => self.truncate(shared, promises),
            Answer::Full { id, offset, shared } => {
                if !persist::is_on(&self.database) {
                    self.report_no_truncation(shared, "it has no journal");
                }
                self.report_given_up(shared);
                let (db, pending) = self.receive_dataset(&mut wire, id, offset)?;
                self.stream_in_shard(&mut wire, shard, db, Some(pending))
            }
        }
    }

    /// Receives the stream, acknowledges it, and has it applied by another thread. When this returns, everything that was acknowledged is
    /// applied, or the copy has another incarnation.
    fn stream_in_shard(
        &self,
        wire: &mut Wire,
        shard: &FollowedShard,
        db: u32,
        pending: Option<Pending>,
    ) -> Result<(), String> {
        let (database, inbox) = (&*self.database, Inbox::default());
        // With a dataset that was loaded, it is somebody else.
        wire.send(&[&[&b"REPLCONF"[..]], &IdentityWords::of(&shard.promises).words()[..]].concat())
            .map_err(|error| lost(&error))?;
        self.set_state(LinkState::Connected);
        shard.promises.changed();
        let may_wait = || self.following.command() != FollowerCommand::Stop && !database.hub.is_closing.load(Relaxed);
        // What is not applied is in the inbox, and in the buffer from which it is applied.
        let lent = 2 * database.hub.dataset.journaling.stream.window_bytes();
        database.shard.store.lend(lent);
        let (received, applied) = std::thread::scope(|scope| {
            let applying = scope.spawn(|| inbox.apply(database, db, &may_wait));
            let received = self.receive_in_shard(wire, shard, &inbox, pending);
            inbox.close();
            self.set_state(LinkState::Connect);
            let applied = applying.join();
            (received, applied.unwrap_or_else(|_| Err("a bug: the thread that applies panicked".to_owned())))
        });
        database.shard.store.take_back(lent);
        shard.promises.set_received(database.hub.dataset.journaling.stream.offset());
        if let Err(why) = applied {
            // What was acknowledged is not in the dataset, so nobody may take this copy for one that has it. If that cannot be made durable,
            // the next start finds that the copy acknowledges, and does it then.
            let renewed = shard.promises.renew();
            if !database.hub.is_closing.load(Relaxed) {
                tracing::error!("database '{}' cannot follow: {why}", database.hub.name);
            }
            database.replication.role.failures.note(&why);
            database.prepare_stream(Some(nowhere()));
            database.note_stream();
            return renewed.and(Err(why));
        }
        received
    }

    fn receive_in_shard(
        &self,
        wire: &mut Wire,
        shard: &FollowedShard,
        inbox: &Inbox,
        pending: Option<Pending>,
    ) -> Result<(), String> {
        let FollowedShard { primary, promises } = shard;
        let (stream, mut frames) = (&self.database.hub.dataset.journaling.stream, Frames::default());
        let (mut received, mut heartbeat, mut told) = (stream.offset(), None, None);
        let (mut reports, mut told_durable) = (Reports::default(), None);
        if let Some(mut pending) = pending {
            let mut input = Vec::new();
            while pending.read(&mut input)? {
                let mut used = 0;
                // Heartbeats that came while the dataset was loaded are too old to be acknowledged.
                while let Some((frame, bytes)) = frames.next(&input[used..])? {
                    if let Frame::Bytes(bytes) = frame {
                        inbox.put(bytes);
                        received += bytes.len() as u64;
                    }
                    used += bytes;
                }
                input.drain(..used);
                inbox.wake();
            }
            wire.put_back(input);
        }
        loop {
            if self.is_over() || inbox.has_failed.load(Relaxed) {
                return Ok(());
            }
            if inbox.is_full.load(Relaxed) {
                // A copy that is silent leaves the set. One that acknowledges nothing and is not silent would hold up every write.
                return Err("there is no room for the stream's next command".to_owned());
            }
            let mut used = 0;
            while let Some((frame, bytes)) = frames.next(&wire.input()[used..])? {
                match frame {
                    Frame::Bytes(bytes) => {
                        inbox.put(bytes);
                        received += bytes.len() as u64;
                    }
                    Frame::Heartbeat { heartbeat: newest, shared }
                        if newest.epoch == primary.epoch && promises.hear(&newest) =>
                    {
                        heartbeat = Some(newest.number);
                        self.database.replication.shared.fetch_max(shared, Relaxed);
                    }
                    Frame::Heartbeat { .. } => return Err("it is not the primary of a promised epoch".to_owned()),
                    Frame::Nothing => {}
                }
                used += bytes;
            }
            wire.used(used);
            promises.set_received(received);
            if inbox.missed_check.swap(false, Relaxed) {
                wire.send(&[b"REPLCONF", b"MISSED-CHECK"]).map_err(|error| lost(&error))?;
            }
            let report = (received, self.database.applied_offset(), heartbeat);
            if told != Some(report) && promises.accepts(primary.epoch) {
                let (received, applied, epoch) =
                    (report.0.to_string(), report.1.to_string(), primary.epoch.to_string());
                let number = heartbeat.map(|number| number.to_string());
                let mut words =
                    vec![&b"REPLCONF"[..], b"HAS", received.as_bytes(), applied.as_bytes(), epoch.as_bytes()];
                words.extend(number.as_ref().map(|number| number.as_bytes()));
                wire.send(&words).map_err(|error| lost(&error))?;
                told = Some(report);
            }
            // A client may wait for the acknowledgement, and nobody for this, so it comes later.
            inbox.wake();
            reports.note_durable(&self.database);
            if let Some(durable) = reports.durable.filter(|_| reports.durable != told_durable) {
                let offset = durable.to_string();
                wire.send(&[b"REPLCONF", b"FACK", offset.as_bytes()]).map_err(|error| lost(&error))?;
                told_durable = reports.durable;
            }
            self.fill(wire)?;
        }
    }

    /// Gives up what this copy has behind the offset where its stream parts from the primary's. If that succeeds, the thread ends, and
    /// the database is opened again. If not, the next attempt asks for the primary's whole dataset.
    fn truncate(&self, shared: u64, promises: &Promises) -> Result<(), String> {
        let begun = Instant::now();
        match self.database.truncate(shared, &|| promises.renew(), &|| self.is_over()) {
            Ok(truncation) => {
                tracing::warn!(
                    "database '{}' gives up {} of its stream behind byte {shared}, with {} writes, which its primary does not have ({:.3} s). It is opened again",
                    self.database.name(),
                    human(truncation.bytes),
                    truncation.writes,
                    begun.elapsed().as_secs_f64()
                );
                promises.changed();
                Ok(())
            }
            Err(why) => {
                self.following.cannot_truncate.store(true, Relaxed);
                self.report_no_truncation(Some(shared), &why);
                Err(format!("the end of its stream cannot be given up alone: {why}"))
            }
        }
    }

    fn report_no_truncation(&self, shared: Option<u64>, why: &str) {
        let stream = &self.database.hub.dataset.journaling.stream;
        let Some(shared) = shared.filter(|&shared| stream.is_on() && shared < stream.offset()) else { return };
        let text = format!(
            "needs its primary's whole dataset and cannot only go back to byte {shared} of its stream, because {why}"
        );
        tracing::warn!("database '{}' {text}", self.database.name());
        self.database.replication.report(text);
    }

    // --- a full synchronisation ---

    /// Called before the primary's dataset replaces this one. Reports the writes that only this database has, because they are lost.
    fn report_given_up(&self, shared: Option<u64>) {
        let stream = &self.database.hub.dataset.journaling.stream;
        let end = stream.offset();
        let Some(from) = shared.filter(|&shared| stream.is_on() && shared < end) else { return };
        let given_up = GivenUp { from, bytes: end - from, writes: count_writes(stream, from, end) };
        let writes = given_up.writes.map_or_else(|| "an unknown number of".to_owned(), |writes| writes.to_string());
        let before = self.database.replication.role.given_up.lock().replace(given_up);
        if before != Some(given_up) {
            let (name, bytes) = (&self.database.hub.name, human(given_up.bytes));
            let text = format!(
                "discards {bytes} of its stream with {writes} writes, which the primary does not have: the two streams are the same only up to byte {from}"
            );
            tracing::warn!("database '{name}' {text}");
            self.database.replication.report(text);
        }
    }

    fn synchronise(&self, mut wire: Wire, id: Id, offset: u64) -> Result<(), String> {
        let (db, pending) = self.receive_dataset(&mut wire, id, offset)?;
        let applier = Applier::new(&self.database, db)?;
        self.stream(wire, applier, Some(pending))
    }

    /// Takes the primary's dataset in place of this one. Returns the logical database in which the stream goes on, and what came of the
    /// stream meanwhile.
    fn receive_dataset(&self, wire: &mut Wire, id: Id, offset: u64) -> Result<(u32, Pending), String> {
        self.set_state(LinkState::Sync);
        let folder = directory(self.database.name(), &self.config().redis_files);
        fs::create_dir_all(&folder).map_err(|error| about(&folder, error))?;
        let (arrival, mut pending) = (Arrival::new(&folder)?, Pending::new(&folder)?);
        let db = self.take_in(wire, &arrival, (id, offset), &mut pending)?;
        Ok((db, pending))
    }

    fn receive(&self, wire: &mut Wire, arrival: &Arrival) -> Result<(), String> {
        let line = wire.line(&|| !self.is_over()).map_err(|error| lost(&error))?;
        let form = match line.strip_prefix('$') {
            Some("PIECES") => Form::Pieces,
            Some(rest) => match rest.strip_prefix("EOF:") {
                Some(mark) => Form::Until(mark.as_bytes().to_vec()),
                None => {
                    Form::Bytes(rest.parse().map_err(|_| format!("the header of its dataset is malformed: {line}"))?)
                }
            },
            None => return Err(format!("it cannot send its dataset: {line}")),
        };
        let begun = Instant::now();
        let total = if let Form::Bytes(total) = form { total } else { 0 };
        let (received, following) = (&self.following.sync_bytes, &self.following);
        following.sync_total_bytes.store(total, Relaxed);
        received.store(0, Relaxed);
        let put = |bytes: &[u8]| {
            arrival.put(bytes)?;
            let count = received.fetch_add(bytes.len() as u64, Relaxed) + bytes.len() as u64;
            let total = following.sync_total_bytes.load(Relaxed).max(count);
            self.database.files.loading_total_bytes.store(total, Relaxed);
            Ok::<_, String>(())
        };
        let mut left = total;
        loop {
            if let (Form::Pieces, 0) = (&form, left) {
                left = self.piece_bytes(wire)?;
                if left == 0 {
                    break;
                }
            }
            let input = wire.input();
            let (put_bytes, used, is_whole) = match &form {
                Form::Bytes(_) | Form::Pieces => {
                    let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    left -= bytes as u64;
                    (bytes, bytes, left == 0)
                }
                // The primary sends nothing behind the mark until it is asked to. The last bytes may be the beginning of the mark, so they
                // stay in the input.
                Form::Until(mark) if input.ends_with(mark) => (input.len() - mark.len(), input.len(), true),
                Form::Until(mark) => {
                    let bytes = input.len().saturating_sub(mark.len());
                    (bytes, bytes, false)
                }
            };
            put(&input[..put_bytes])?;
            wire.used(used);
            match (&form, is_whole) {
                (Form::Pieces, true) => {}
                (_, true) => break,
                (_, false) => _ = self.fill(wire)?,
            }
        }
        tracing::info!(
            "database '{}' has received its primary's dataset: {} in {:.3} s",
            self.database.hub.name,
            human(received.load(Relaxed)),
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// The size of the dataset's next piece. 0: there is none. Notes the size of the whole dataset, if the primary tells it.
    fn piece_bytes(&self, wire: &mut Wire) -> Result<u64, String> {
        loop {
            if let Some(line) = wire.received_line().map_err(|error| lost(&error))? {
                let mut numbers = line.strip_prefix('$').unwrap_or_default().split(' ').map(str::parse);
                let Some(Ok(bytes)) = numbers.next() else {
                    return Err(format!("it cannot send the rest of its dataset: {line}"));
                };
                if let Some(Ok(expected)) = numbers.next() {
                    self.following.sync_total_bytes.store(expected, Relaxed);
                }
                return Ok(bytes);
            }
            self.fill(wire)?;
        }
    }

    /// Receives the bytes that have arrived. It also fails if the thread is to end.
    fn fill(&self, wire: &mut Wire) -> Result<bool, String> {
        if self.is_over() && self.following.command() != FollowerCommand::Promote {
            return Err("the database no longer follows it".to_owned());
        }
        if self.is_over() && self.following.state() == LinkState::Sync {
            return Err("the database was promoted before it had received the primary's whole dataset".to_owned());
        }
        let before = wire.input().len();
        let has_come = wire.fill().map_err(|error| lost(&error))?;
        if has_come {
            self.following.last_io_ms.store(wall_ms(), Relaxed);
            let received = &self.database.replication.role.received_bytes;
            received.fetch_add((wire.input().len() - before) as u64, Relaxed);
        }
        self.publish_stale();
        Ok(has_come)
    }

    /// Receives the dataset, and loads it on a thread of its own. Meanwhile the stream that the primary sends behind the dataset is kept in
    /// a file. Returns the logical database in which the stream goes on.
    fn take_in(
        &self,
        wire: &mut Wire,
        arrival: &Arrival,
        (id, offset): (Id, u64),
        pending: &mut Pending,
    ) -> Result<u32, String> {
        std::thread::scope(|scope| {
            let (database, following) = (&*self.database, &*self.following);
            let load = move || load(database, following, arrival, id, offset);
            let join = |loading: ScopedJoinHandle<'_, Result<u32, String>>| {
                loading.join().unwrap_or_else(|_| Err("a bug: the thread that loads panicked".to_owned()))
            };
            // A dataset that is here is served until the primary's is whole.
            let loading = (!self.has_dataset()).then(|| scope.spawn(load));
            let received = self.receive(wire, arrival);
            arrival.end(received.is_ok());
            if let Err(why) = received {
                let loaded = loading.map(join);
                // If the load has failed, the dataset is not asked for again at once.
                let is_unfit = arrival.is_given_up();
                if is_unfit {
                    self.set_state(LinkState::Load);
                }
                return Err(loaded.and_then(Result::err).filter(|_| is_unfit).unwrap_or(why));
            }
            self.set_state(LinkState::Load);
            let loading = loading.unwrap_or_else(|| scope.spawn(load));
            let (mut told, mut broken) = (Instant::now(), None);
            while !loading.is_finished() {
                if broken.is_some() {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                let mut step = || {
                    if told.elapsed() >= ACK_INTERVAL {
                        // As in Redis, an empty line tells the primary only that the replica is alive.
                        wire.send_bytes(b"\n").map_err(|error| lost(&error))?;
                        told = Instant::now();
                    }
                    self.fill(wire)?;
                    pending.add(wire.input())?;
                    wire.used(wire.input().len());
                    Ok::<_, String>(())
                };
                // A broken connection does not end the load: the rest of the stream can be asked for again.
                broken = step().err().filter(|_| self.following.command() != FollowerCommand::Promote);
            }
            let db = join(loading)?;
            // A connection that is lost now is made again at once.
            self.set_state(LinkState::Sync);
            broken.map_or(Ok(db), Err)
        })
    }

    fn has_dataset(&self) -> bool {
        let Database { shard, hub, .. } = &*self.database;
        let has_keys = (0..shard.store.databases()).any(|db| shard.store.len(db) > 0);
        has_keys || hub.scripts.libraries.read().all().next().is_some()
    }

    // --- the stream ---

    fn stream(&self, mut wire: Wire, mut applier: Applier<'_>, pending: Option<Pending>) -> Result<(), String> {
        self.set_state(LinkState::Connected);
        let followed = self.follow_stream(&mut wire, &mut applier, pending);
        // Why the connections are broken, if they are.
        let finished = applier.finish();
        if let (Err(Ended::Apply(_)), Err(why)) | (Err(Ended::Apply(why)), Ok(())) = (&followed, &finished)
            && !self.database.hub.is_closing.load(Relaxed)
        {
            tracing::error!("database '{}' cannot follow: {why}", self.database.hub.name);
            self.database.replication.role.failures.note(why);
            // The dataset does not agree with the stream, so the next attempt must get all of it.
            self.database.prepare_stream(Some(nowhere()));
            self.database.note_stream();
        }
        match followed {
            Ok(()) => Ok(()),
            Err(Ended::Link(why)) => Err(why),
            Err(Ended::Full(why)) => {
                self.following.meets_full.store(true, Relaxed);
                Err(why.to_owned())
            }
            Err(Ended::Apply(why)) => Err(finished.err().unwrap_or(why)),
        }
    }

    fn follow_stream(&self, wire: &mut Wire, applier: &mut Applier<'_>, pending: Option<Pending>) -> Result<(), Ended> {
        let (mut reports, is_new) = (Reports::default(), pending.is_some());
        let may_wait = |waited| self.may_wait(waited);
        if let Some(mut pending) = pending {
            let mut input = Vec::new();
            // The primary waits for this before it sends its stream.
            if self.following.command() != FollowerCommand::Promote {
                self.acknowledge(wire, &mut reports)?;
            }
            while pending.read(&mut input)? {
                let applied = applier.apply(&input, &may_wait).map_err(Ended::Apply)?;
                input.drain(..applied.bytes);
                reports.note(&applied);
                if let Some(why) = applied.full {
                    return self.is_full(why);
                }
                if self.following.command() != FollowerCommand::Promote {
                    self.acknowledge_if_due(wire, &mut reports)?;
                }
                if self.is_over() && self.following.command() != FollowerCommand::Promote {
                    return Ok(());
                }
            }
            wire.put_back(input);
        }
        loop {
            let applied = applier.apply(wire.input(), &may_wait).map_err(Ended::Apply)?;
            wire.used(applied.bytes);
            reports.note(&applied);
            if let Some(why) = applied.full {
                return self.is_full(why);
            }
            if wire.input().is_empty() && (applied.bytes > 0 || is_new) {
                super::full::goes_on(&self.database, &self.following);
            }
            match self.following.command() {
                FollowerCommand::Stop => return Ok(()),
                FollowerCommand::Promote => return self.drain(wire, applier),
                FollowerCommand::GoOn if self.is_over() => return Ok(()),
                FollowerCommand::GoOn => {}
            }
            self.acknowledge_if_due(wire, &mut reports)?;
            match self.fill(wire) {
                Err(_) if self.following.command() == FollowerCommand::Promote => {}
                filled => _ = filled?,
            }
        }
    }

    /// Whether what has arrived may wait so long for room in the journal. A promotion does not wait for a device that is full.
    fn may_wait(&self, waited: Duration) -> bool {
        match self.following.command() {
            FollowerCommand::GoOn => !self.is_over(),
            FollowerCommand::Stop => false,
            FollowerCommand::Promote => waited < DRAIN_TIMEOUT && !self.database.hub.is_closing.load(Relaxed),
        }
    }

    /// There is no room for the stream's next command. Whoever ends the thread did not wait for room.
    fn is_full(&self, why: &'static str) -> Result<(), Ended> {
        if self.is_over() { Ok(()) } else { Err(Ended::Full(why)) }
    }

    /// Applies what has arrived, also if the primary is gone. A primary that is alive goes on sending: later bytes are not applied.
    fn drain(&self, wire: &mut Wire, applier: &mut Applier<'_>) -> Result<(), Ended> {
        let (begun, waiting, before) = (Instant::now(), wire.waiting_bytes(), wire.input().len());
        loop {
            let has_all = wire.input().len() - before >= waiting;
            let timeout = if has_all { DRAIN } else { DRAIN_TIMEOUT };
            if begun.elapsed() >= timeout || !wire.fill().unwrap_or(false) {
                break;
            }
        }
        applier.apply(wire.input(), &|waited| self.may_wait(waited)).map(drop).map_err(Ended::Apply)
    }

    fn acknowledge_if_due(&self, wire: &mut Wire, reports: &mut Reports) -> Result<(), Ended> {
        if std::mem::take(&mut reports.missed_check) {
            wire.send(&[b"REPLCONF", b"MISSED-CHECK"]).map_err(|error| Ended::Link(lost(&error)))?;
        }
        reports.note_durable(&self.database);
        let is_due = reports.are_due || reports.told.is_none_or(|told| told.elapsed() >= ACK_INTERVAL);
        if is_due { self.acknowledge(wire, reports) } else { Ok(()) }
    }

    fn acknowledge(&self, wire: &mut Wire, reports: &mut Reports) -> Result<(), Ended> {
        let offset = self.database.hub.dataset.journaling.stream.offset().to_string();
        let durable = reports.durable.map(|offset| offset.to_string());
        let mut words = vec![&b"REPLCONF"[..], b"ACK", offset.as_bytes()];
        if let Some(durable) = &durable {
            words.extend([&b"FACK"[..], durable.as_bytes()]);
        }
        wire.send(&words).map_err(|error| Ended::Link(lost(&error)))?;
        (reports.told, reports.are_due) = (Some(Instant::now()), false);
        Ok(())
    }
}

/// How a copy says who it is.
struct IdentityWords {
    copy: String,
    incarnation: String,
}

impl IdentityWords {
    fn of(promises: &Promises) -> IdentityWords {
        let Member { copy, incarnation, .. } = promises.me();
        IdentityWords { copy: copy.to_string(), incarnation: incarnation.to_string() }
    }

    fn words(&self) -> [&[u8]; 4] {
        [b"COPY", self.copy.as_bytes(), b"INCARNATION", self.incarnation.as_bytes()]
    }
}

/// Why the stream has ended.
enum Ended {
    /// It can go on over another connection.
    Link(String),
    /// A command could not be applied: the dataset does not agree with the stream.
    Apply(String),
    /// There is no room for the stream's next command.
    Full(&'static str),
}

impl From<String> for Ended {
    fn from(why: String) -> Ended {
        Ended::Link(why)
    }
}

/// What the primary is told, and when.
#[derive(Default)]
struct Reports {
    told: Option<Instant>,
    are_due: bool,
    /// The primary has begun a comparison of the datasets, and it could not be made here.
    missed_check: bool,
    /// The stream's offset up to which the journal here is durable. `None`: there is no journal.
    durable: Option<u64>,
    /// The journal's position and the stream's offset at one moment. When the journal is durable up to the position, `durable` becomes the offset.
    awaited: Option<(u64, u64)>,
}

impl Reports {
    fn note(&mut self, applied: &Applied) {
        self.are_due |= applied.asks;
        self.missed_check |= applied.missed_check;
    }

    fn note_durable(&mut self, database: &Database) {
        let journaling = &database.hub.dataset.journaling;
        if !journaling.is_on() {
            (self.durable, self.awaited) = (None, None);
            return;
        }
        if let Some((position, offset)) = self.awaited
            && journaling.is_durable(position) == Some(true)
        {
            self.durable = Some(offset);
            self.awaited = None;
        }
        if self.awaited.is_none() {
            // The offset comes first: a command is in the journal before it is in the stream.
            let offset = journaling.stream.offset();
            self.awaited = Some((journaling.position(), offset));
        }
    }
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Interrupted => "the database no longer follows it".to_owned(),
        _ => format!("the connection is lost: {error}"),
    }
}

/// A mark with a new id, so that no other stream can go on from it.
fn nowhere() -> Mark {
    Mark { id: new_id(), second: None, offset: 0, db: None }
}

/// The part of the stream that arrives while the dataset is loaded, in a file without a name.
struct Pending {
    file: File,
    read_bytes: u64,
    bytes: u64,
}

impl Pending {
    fn new(folder: &Path) -> Result<Pending, String> {
        let spool = Spool::new(folder, "pending")?;
        let file = File::options().read(true).write(true).open(&spool.0).map_err(|error| about(&spool.0, error))?;
        Ok(Pending { file, read_bytes: 0, bytes: 0 })
    }

    fn failed(error: io::Error) -> String {
        format!("the file for the changes that arrive while the dataset is loaded: {error}")
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Pending::failed)
    }

    /// Adds the next bytes. False: there are none.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, String> {
        let bytes = (self.bytes - self.read_bytes).min(PENDING_BYTES as u64);
        let from = out.len();
        out.resize(from + bytes as usize, 0);
        let read =
            self.file.seek(SeekFrom::Start(self.read_bytes)).and_then(|_| self.file.read_exact(&mut out[from..]));
        read.map_err(Pending::failed)?;
        self.read_bytes += bytes;
        Ok(bytes > 0)
    }
}

/// Replaces the dataset by the one that arrives. Behind it, the stream goes on at `offset`. Returns the logical database in which the
/// stream goes on. After an error the dataset is empty, or it is unchanged.
fn load(database: &Database, following: &Following, arrival: &Arrival, id: Id, offset: u64) -> Result<u32, String> {
    let head = arrival.reader().and_then(StreamAtDump::of).map_err(|why| about(arrival.path(), why));
    let loaded = head.and_then(|head| {
        let mark = Mark { id, second: None, offset, db: Some(head.db) };
        let _busy = database.files.busy.lock();
        database.files.loading_since_ms.store(wall_ms(), Relaxed);
        database.hub.clients.set_load_state(LoadState::Arriving);
        let replaced = replace(database, following, arrival, mark);
        if let Err(why) = &replaced {
            let is_full = matches!(why, Unloaded::Full(_)) || database.shard.store.admission() == Admission::Full;
            following.meets_full.store(is_full, Relaxed);
            following.refuses_pages.fetch_or(matches!(why, Unloaded::Pages(_)), Relaxed);
            database.prepare_stream(Some(nowhere()));
            // The first error counts.
            let _ = empty(database);
        }
        database.hub.clients.set_load_state(LoadState::Open);
        replaced.map(|()| head.db).map_err(Unloaded::into_text)
    });
    if loaded.is_err() {
        arrival.give_up();
    }
    loaded
}

fn replace(database: &Database, following: &Following, arrival: &Arrival, mark: Mark) -> Result<(), Unloaded> {
    let (begun, files) = (Instant::now(), &database.files);
    // Before the first byte is thrown away: what was acknowledged as the old one is not here any more.
    if let Some(promises) = database.replication.promises.get() {
        promises.renew()?;
    }
    // Until the load is complete, the dataset belongs to no stream: a restart must ask for everything.
    persist::end(database)?;
    database.prepare_stream(Some(nowhere()));
    database.end_links();
    empty(database)?;
    files.loaded_bytes.store(0, Relaxed);
    let total = following.sync_total_bytes.load(Relaxed).max(arrival.bytes());
    files.loading_total_bytes.store(total, Relaxed);
    let loaded = load_primarys(database, arrival.path(), arrival.reader()?)?;
    files.keys_loaded.store(loaded.keys, Relaxed);
    // Nobody writes: clients are refused, and the loading has ended.
    database.prepare_stream(Some(mark));
    database.keep_effects_in_stream();
    database.hub.dataset.journaling.stream.turn_on();
    if database.hub.config.snapshot().redis_files.appendonly {
        persist::begin(database)?;
    }
    tracing::info!(
        "database '{}' has loaded its primary's dataset: {} keys in {:.3} s",
        database.hub.name,
        loaded.keys,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}
