//! Owns the connection of a replica after PSYNC: a task that sends a dump if the replica needs one, and then the stream, and that hears what
//! the replica has. Never knows how a dump is made, or what the stream means. It never holds a writer up: it reads the stream by offset, and
//! ends when the backlog does not have the offset any more.

use crate::batch::BATCH_COMMANDS_MAX;
use crate::halt::End;
use crate::hub::Hub;
use crate::replication::{Contents, Dump, Gone, Id, Link, Mark, Order, Pace, Phase, Serving, Stream};
use crate::session::Connection;
use crate::worker::Worker;
use base::size::human;
use bytes::{Buf, Bytes};
use cluster::failover::Acknowledgement;
use cluster::ids::{CopyNumber, Epoch};
use cluster::records::{Member, Unknown};
use commands::Args;
use commands::session::{Ask, Replica};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

/// A piece of the dump, and the most bytes of the stream that are sent at once.
const PIECE_BYTES: usize = 256 << 10;
const SEND_BYTES_MAX: usize = 128 << 10;
/// Sends of one turn.
const SENDS_MAX: usize = 8;
/// After a send, the link waits this long for more, unless there is much or somebody waits for the replica.
const PACE: Duration = Duration::from_millis(1);
const MUCH_BYTES: u64 = 64 << 10;
/// While the dump is made, an empty line tells the replica this often that the link is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How often a link asks whether a heartbeat is due. So it is late by this at most.
const HEARTBEAT_PAUSE: Duration = Duration::from_millis(25);
/// Pieces that are sent at once.
const PARTS_MAX: usize = 16;

/// What a link sends next.
enum Step {
    /// Empty lines, until the dump is there.
    Waits(Arc<Order>),
    /// Empty lines, until the dump is whole: the replica must know its length first.
    Made(Arc<Dump>),
    /// The dump, from this byte on.
    Dump { dump: Arc<Dump>, at: u64, reading: Option<JoinHandle<io::Result<Vec<u8>>>> },
    /// The stream from this offset on.
    Stream,
    /// Nothing: the replica has the dump that it wanted.
    Nothing,
    /// The reason why the replica gets nothing now.
    Declines(&'static str),
    /// The offset up to which the replica's stream is this one: it gives up what it has behind it, and comes back.
    Ahead(u64),
}

/// What a link has for a replica of the same shard. Behind the dump, its stream comes in frames, and heartbeats come between them: no bytes
/// of the stream, because they are for this connection only, and an idle shard's journal must not grow with each.
///
/// ```text
/// $0000000042\r\n and 42 bytes of the stream
/// +EPOCH NUMBER LEASE SHARED\r\n   a heartbeat; LEASE is 1 if the primary had a valid lease when it sent this; before the offset
///                                SHARED, every copy that can be named primary has everything
/// ```
///
/// The replica says `REPLCONF HAS received applied epoch [heartbeat]`, and behind a dump `REPLCONF COPY number INCARNATION digits` first:
/// with another dataset it is another incarnation. `REPLCONF FACK offset`: its journal is durable up to there.
struct ShardFeed {
    /// `None`: it takes a dump, and has not said yet what it is with that.
    member: Option<Member>,
    /// The primary's state knows that it follows.
    is_known: bool,
    /// The number of the last heartbeat that was sent.
    sent: Option<u64>,
    applied: u64,
    timer: Pin<Box<Sleep>>,
    is_first: bool,
}

impl ShardFeed {
    fn new(member: Option<Member>, applied: u64) -> ShardFeed {
        let timer = Box::pin(tokio::time::sleep(HEARTBEAT_PAUSE));
        ShardFeed { member, is_known: false, sent: None, applied, timer, is_first: true }
    }

    /// A heartbeat, if it is time for one.
    fn heartbeat(&mut self, (serving, stream): (&Serving, &Stream), cx: &mut Context<'_>) -> Option<String> {
        let mut is_time = std::mem::take(&mut self.is_first);
        while self.timer.as_mut().poll(cx).is_ready() {
            is_time = true;
            self.timer.as_mut().reset(Instant::now() + HEARTBEAT_PAUSE);
        }
        let heartbeat = is_time.then(|| serving.heartbeat(self.sent)).flatten()?;
        self.sent = Some(heartbeat.number);
        let lease = u8::from(heartbeat.has_lease);
        let shared = serving.shared(stream.offset()).unwrap_or(0);
        Some(format!("+{} {} {lease} {shared}\r\n", heartbeat.epoch, heartbeat.number))
    }
}

fn member(copy: u32, incarnation: &str) -> Option<Member> {
    let incarnation = incarnation.parse().ok()?;
    Some(Member { copy: CopyNumber(copy), incarnation, unknown: Unknown::new() })
}

/// The sending side of a link.
struct Feed {
    replica: Box<Replica>,
    /// It knows neither ids nor offsets.
    is_old: bool,
    link: Arc<Link>,
    step: Step,
    /// What is to be sent next.
    out: VecDeque<Bytes>,
    /// The offset up to which the replica's stream is the same as this one.
    shared: Option<u64>,
    /// The first offset of the stream that is not in `out` yet.
    next: u64,
    last_sent: Option<Instant>,
    /// The journal's position that is to be safe before the stream up to this offset is sent.
    awaited: Option<(u64, u64)>,
    timer: Pin<Box<Sleep>>,
    /// `Some`: it is a copy of the same shard.
    shard: Option<ShardFeed>,
}

/// The link is in the register.
struct Registered {
    hub: Arc<Hub>,
    link: Arc<Link>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.hub.dataset.links.remove(&self.link);
        self.hub.dataset.journaling.stream.forget(self.link.client);
    }
}

/// Serves a connection that has become a replica's, until it ends.
pub async fn feed(connection: &mut Connection) -> End {
    let worker = std::rc::Rc::clone(&connection.worker);
    let Some(mut replica) = connection.session.replica.take() else { return End::Asked };
    let Some(ask) = replica.asks.take() else { return End::Asked };
    // A script that keeps the thread does not serve links.
    connection.task_slot.set_open(false);
    // The replies to what came before PSYNC.
    if let Err(end) = poll_fn(|cx| connection.poll_send(cx)).await {
        return end;
    }
    connection.client_info.is_replica.store(true, Relaxed);
    let from = connection.client_info.peer.ip();
    let link = Arc::new(Link::new(connection.client_info.id, from, &replica, worker.refresh_now_ms()));
    let (ip, port) = (link.ip.clone(), link.port);
    let hub = Arc::clone(&worker.hub);
    hub.dataset.links.add(Arc::clone(&link));
    let registered = Registered { hub, link: Arc::clone(&link) };
    let mut feed = Feed::begin(&worker, replica, &ask, link);
    let end = poll_fn(|cx| feed.poll(connection, cx)).await;
    match &end {
        Ended::Gone => tracing::warn!(
            "replica {ip}:{port} is too slow: the backlog no longer has the changes that it needs. Raise repl-backlog-size"
        ),
        Ended::Refused(why) => {
            tracing::error!("cannot make a dump for replica {ip}:{port}: {why}");
            let output = &mut connection.work.get_or_insert_with(|| worker.take_work()).output;
            output.extend_from_slice(format!("-ERR {why}\r\n").as_bytes());
        }
        Ended::Declined(why) => {
            tracing::info!("replica {ip}:{port} gets nothing now: {why}");
            let output = &mut connection.work.get_or_insert_with(|| worker.take_work()).output;
            output.extend_from_slice(format!("-NOTNOW {why}\r\n").as_bytes());
        }
        Ended::Ahead(shared) => {
            tracing::info!("replica {ip}:{port} has a stream of its own behind byte {shared}, which it is to give up");
            let output = &mut connection.work.get_or_insert_with(|| worker.take_work()).output;
            output.extend_from_slice(format!("-AHEAD {shared}\r\n").as_bytes());
        }
        Ended::File(error) => tracing::error!("replica {ip}:{port}: its dump cannot be read: {error}"),
        Ended::Connection(end) => tracing::info!("the link to replica {ip}:{port} has ended: {end}"),
    }
    drop(registered);
    match end {
        Ended::Refused(_) | Ended::Declined(_) | Ended::Ahead(_) => End::Asked,
        Ended::Connection(end) => end,
        Ended::Gone | Ended::File(_) => End::Killed,
    }
}

/// Why a link has ended.
enum Ended {
    Connection(End),
    /// The backlog does not have any more what the replica lacks.
    Gone,
    /// There is no dump for it.
    Refused(String),
    /// It asks again later.
    Declined(&'static str),
    /// It gives up what it has behind this offset, and asks again.
    Ahead(u64),
    File(io::Error),
}

impl From<End> for Ended {
    fn from(end: End) -> Ended {
        Ended::Connection(end)
    }
}

impl Feed {
    /// Decides what the replica gets, and orders it.
    fn begin(worker: &Worker, replica: Box<Replica>, ask: &Ask, link: Arc<Link>) -> Feed {
        let (stream, links) = (&worker.hub.dataset.journaling.stream, &worker.hub.dataset.links);
        let who = format!("{}:{}", link.ip, link.port);
        let mut feed = Feed {
            replica,
            is_old: ask.is_old,
            link,
            step: Step::Nothing,
            out: VecDeque::new(),
            shared: None,
            next: 0,
            last_sent: None,
            awaited: None,
            timer: Box::pin(tokio::time::sleep(SIGN_OF_LIFE)),
            shard: None,
        };
        let serving = &worker.hub.dataset.journaling.serving;
        let mut of_shard = None;
        if feed.replica.is_of_shard {
            of_shard = member(feed.replica.copy, &feed.replica.incarnation);
            let epoch = serving.epoch().map(|Epoch(number)| number.get());
            if of_shard.is_none() || epoch != Some(feed.replica.epoch) {
                feed.step = Step::Declines("this copy is not the primary of the epoch that it has said");
                return feed;
            }
        }
        let has = u64::try_from(ask.offset).ok().and_then(|offset| offset.checked_sub(1));
        let known = ask.id.parse::<Id>().ok().zip(has);
        if let Some((id, offset)) = known.filter(|(id, offset)| stream.can_continue(id, *offset))
            && let Some(Mark { id: now, .. }) = stream.mark()
        {
            let lacks = stream.offset().saturating_sub(offset);
            tracing::info!("replica {who} continues at offset {offset} of {id}, {} behind", human(lacks));
            links.partial_syncs.fetch_add(1, Relaxed);
            let line = if feed.replica.psync2 { format!("+CONTINUE {now}\r\n") } else { "+CONTINUE\r\n".to_owned() };
            feed.say(line);
            feed.next = offset;
            feed.step = Step::Stream;
            feed.shard = of_shard.map(|member| ShardFeed::new(Some(member), offset));
            feed.link.set_phase(Phase::Online);
            return feed;
        }
        feed.shared = known.and_then(|(id, _)| stream.shared(&id)).filter(|_| feed.replica.tail);
        if known.is_some() {
            links.refused_partial_syncs.fetch_add(1, Relaxed);
        }
        if let Some(member) = of_shard {
            if !serving.may_be_refilled(member.copy) {
                feed.step = Step::Declines("it needs a whole dataset, so it leaves the in-sync set first");
                return feed;
            }
            // Where the streams part, it can go on, if the backlog still begins there.
            let ahead = feed.shared.zip(known).filter(|(shared, (_, has))| shared < has);
            let ahead = ahead.map(|(shared, _)| shared).filter(|shared| stream.backlog().start <= *shared);
            if let Some(shared) = ahead.filter(|_| feed.replica.truncates) {
                feed.step = Step::Ahead(shared);
                return feed;
            }
            feed.shard = Some(ShardFeed::new(None, 0));
        }
        links.full_syncs.fetch_add(1, Relaxed);
        tracing::info!("replica {who} needs a full synchronisation");
        let order = Arc::new(Order::new(Contents::of(&feed.replica)));
        match worker.hub.control() {
            Some(control) => control.make_dump(Arc::clone(&order)),
            None => order.finish(Err("the database is being closed".to_owned())),
        }
        feed.step = Step::Waits(order);
        feed
    }

    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Ended> {
        match self.try_poll(connection, cx) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(never)) => match never {},
            Err(end) => Poll::Ready(end),
        }
    }

    /// Hears what the replica says, and sends as much as the socket takes.
    fn try_poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Result<Poll<Infallible>, Ended> {
        self.link.listen(cx.waker());
        self.hear(connection, cx)?;
        let mut sends = 0;
        loop {
            while !self.out.is_empty() {
                if sends == SENDS_MAX {
                    // Other connections have their turn.
                    cx.waker().wake_by_ref();
                    return Ok(Poll::Pending);
                }
                sends += 1;
                let mut parts = [IoSlice::new(&[]); PARTS_MAX];
                let filled = parts.iter_mut().zip(&self.out).map(|(part, bytes)| *part = IoSlice::new(bytes)).count();
                let Poll::Ready(sent) = connection.stream.poll_write_vectored(cx, &parts[..filled]) else {
                    return Ok(Poll::Pending);
                };
                let sent = sent.map_err(io_end)?;
                self.has_sent(sent);
                connection.worker.stats().net_out_bytes.add(sent as u64);
                connection.worker.hub.dataset.links.sent_bytes.fetch_add(sent as u64, Relaxed);
            }
            match connection.stream.poll_flush(cx) {
                Poll::Ready(flushed) => flushed.map_err(io_end)?,
                Poll::Pending => return Ok(Poll::Pending),
            }
            if self.fill(connection, cx)?.is_pending() {
                return Ok(Poll::Pending);
            }
        }
    }

    fn say(&mut self, text: impl Into<Bytes>) {
        self.out.push_back(text.into());
    }

    fn has_sent(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let Some(first) = self.out.front_mut() else { return };
            let of_first = bytes.min(first.len());
            first.advance(of_first);
            bytes -= of_first;
            if first.is_empty() {
                self.out.pop_front();
            }
        }
    }

    /// Puts what is to be sent next into `out`.
    fn fill(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        match &mut self.step {
            Step::Waits(order) => match order.poll(cx) {
                Poll::Ready(Ok(dump)) if self.replica.pieces => self.begin_dump(dump, 0),
                Poll::Ready(Ok(dump)) => self.step = Step::Made(dump),
                Poll::Ready(Err(why)) => return Err(refused(&why)),
                Poll::Pending => return Ok(self.live(connection, cx)),
            },
            Step::Made(dump) => match dump.poll(u64::MAX, cx) {
                Poll::Ready(Ok(bytes)) => {
                    let dump = Arc::clone(dump);
                    self.begin_dump(dump, bytes);
                }
                Poll::Ready(Err(why)) => return Err(refused(&why)),
                Poll::Pending => return Ok(self.live(connection, cx)),
            },
            Step::Dump { .. } => return self.fill_from_dump(connection, cx),
            Step::Stream => return self.fill_from_stream(connection, cx),
            Step::Nothing => return Ok(Poll::Pending),
            Step::Declines(why) => return Err(Ended::Declined(why)),
            Step::Ahead(shared) => return Err(Ended::Ahead(*shared)),
        }
        Ok(Poll::Ready(()))
    }

    /// An empty line, if it is time for one.
    fn live(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.timer.as_mut().reset(Instant::now() + SIGN_OF_LIFE);
        self.link.is_alive(connection.worker.refresh_now_ms());
        self.say(&b"\n"[..]);
        Poll::Ready(())
    }

    /// `bytes`: how many there are, for a replica that does not take the dump in pieces.
    fn begin_dump(&mut self, dump: Arc<Dump>, bytes: u64) {
        let Mark { id, offset, .. } = dump.mark;
        if !self.is_old {
            let shared = self.shared.map_or_else(String::new, |shared| format!(" {shared}"));
            self.say(format!("+FULLRESYNC {id} {offset}{shared}\r\n"));
        }
        let form = if self.replica.pieces { "$PIECES\r\n".to_owned() } else { format!("${bytes}\r\n") };
        self.say(form);
        self.next = offset;
        if let Some(shard) = &mut self.shard {
            shard.applied = offset;
        }
        self.link.set_phase(Phase::SendsDump);
        self.step = Step::Dump { dump, at: 0, reading: None };
    }

    fn fill_from_dump(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        let Step::Dump { dump, at, reading } = &mut self.step else { return Ok(Poll::Ready(())) };
        if reading.is_none() {
            let there = match dump.poll(*at, cx) {
                Poll::Ready(there) => there.map_err(|why| refused(&why))?,
                Poll::Pending => return Ok(self.live(connection, cx)),
            };
            self.link.dump_bytes.store(dump.expected(), Relaxed);
            if *at == there {
                let phase = if self.replica.only_dump { Phase::HasDump } else { Phase::Online };
                tracing::info!("replica {}:{} has received its dump: {}", self.link.ip, self.link.port, human(*at));
                self.link.set_phase(phase);
                self.step = if self.replica.only_dump { Step::Nothing } else { Step::Stream };
                if self.replica.pieces {
                    self.say(&b"$0\r\n"[..]);
                }
                return Ok(Poll::Ready(()));
            }
            let hub = &connection.worker.hub;
            let rate = hub.config.snapshot().primary.transfer_bytes_per_s;
            let bytes = Pace::piece_bytes(rate, PIECE_BYTES).min((there - *at) as usize);
            let taken = hub.dataset.links.pace.lock().take(bytes, rate, Instant::now().into_std());
            if let Err(again) = taken {
                self.timer.as_mut().reset(again.into());
                if self.timer.as_mut().poll(cx).is_pending() {
                    return Ok(Poll::Pending);
                }
                return Ok(Poll::Ready(()));
            }
            let (dump, from) = (Arc::clone(dump), *at);
            *reading = Some(tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; bytes];
                dump.file.read_exact_at(&mut piece, from)?;
                Ok(piece)
            }));
        }
        let Some(task) = reading else { return Ok(Poll::Pending) };
        let Poll::Ready(read) = Pin::new(task).poll(cx) else { return Ok(Poll::Pending) };
        *reading = None;
        let piece = read.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(Ended::File)?;
        *at += piece.len() as u64;
        self.link.dump_sent_bytes.store(*at, Relaxed);
        self.link.is_alive(connection.worker.refresh_now_ms());
        if self.replica.pieces {
            let head = format!("${} {}\r\n", piece.len(), dump.expected());
            self.say(head);
        }
        self.say(piece);
        Ok(Poll::Ready(()))
    }

    fn fill_from_stream(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        let (worker, client) = (&connection.worker, connection.client_info.id);
        let (journaling, links) = (&worker.hub.dataset.journaling, &worker.hub.dataset.links);
        let mut is_waited_for = links.hurries(self.next);
        if let Some(shard) = &mut self.shard {
            if let Some(heartbeat) = shard.heartbeat((&journaling.serving, &journaling.stream), cx) {
                self.say(heartbeat);
                return Ok(Poll::Ready(()));
            }
            // A replica of the same shard holds in its memory what it has not applied, so that it can acknowledge it, and heartbeats do not
            // wait behind it. It has the same limits, so it has memory for as much as the window is.
            if self.next >= journaling.stream.sent_ahead(shard.applied) {
                // What the replica says wakes the link.
                return Ok(Poll::Pending);
            }
            is_waited_for |= journaling.serving.is_sync();
        }
        let end = journaling.stream.offset();
        let is_urgent = is_waited_for || end.saturating_sub(self.next) >= MUCH_BYTES;
        if let Some(until) = self.last_sent.map(|at| at + PACE).filter(|_| !is_urgent)
            && Instant::now() < until
        {
            if self.timer.deadline() != until {
                self.timer.as_mut().reset(until);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(Poll::Pending);
            }
        }
        if end <= self.next && journaling.stream.poll_news(self.next, client, cx).is_pending() {
            return Ok(Poll::Pending);
        }
        // A replica must not get what this node could still lose: see `appendfsync always`. A command is in the journal before it is in the
        // stream. The position that is waited for stays: while others write, the journal's end is seldom safe.
        let (position, end) = *self.awaited.get_or_insert_with(|| {
            let end = journaling.stream.offset();
            (journaling.position(), end)
        });
        if worker.commit_waiter.poll_journal_safe(position, cx).is_pending() {
            return Ok(Poll::Pending);
        }
        self.awaited = None;
        let max = SEND_BYTES_MAX.min(end.saturating_sub(self.next) as usize);
        let pieces = journaling.stream.read(self.next, max).map_err(|Gone| Ended::Gone)?;
        // If the stream was replaced by another, the links were ended before.
        if connection.client_info.killed.load(Relaxed) {
            return Err(Ended::Connection(End::Killed));
        }
        let read: usize = pieces.iter().map(Bytes::len).sum();
        self.next += read as u64;
        if self.shard.is_some() {
            self.say(format!("${read:010}\r\n"));
        }
        self.out.extend(pieces);
        self.last_sent = Some(Instant::now());
        Ok(Poll::Ready(()))
    }

    /// Takes in what the replica says.
    fn hear(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            self.note_all(connection)?;
            match connection.poll_receive(cx) {
                Poll::Ready(received) => received?,
                Poll::Pending => return Ok(()),
            }
            // As in Redis, an empty line is a sign of life too: a replica that loads its dataset sends nothing else.
            self.link.is_alive(connection.worker.refresh_now_ms());
        }
    }

    fn note_all(&mut self, connection: &mut Connection) -> Result<(), End> {
        let Connection { worker, work: Some(work), client_info, .. } = connection else { return Ok(()) };
        let now_ms = worker.refresh_now_ms();
        let (batch, limits) = (&mut work.batch, &worker.config_snapshot().limits);
        let journaling = &worker.hub.dataset.journaling;
        let mut may_leave = false;
        loop {
            while let Some(&place) = batch.commands.get(batch.next) {
                batch.next += 1;
                may_leave |= self.note(&journaling.serving, batch.args(place), now_ms);
            }
            if !batch.has_input() {
                break;
            }
            batch.parse(limits, BATCH_COMMANDS_MAX);
            if batch.commands.is_empty() {
                break;
            }
        }
        client_info.active_ms.store(now_ms, Relaxed);
        if may_leave {
            journaling.wake_replies();
        }
        worker.hub.dataset.links.has_progress();
        if batch.broken.is_some() { Err(End::Asked) } else { Ok(()) }
    }

    /// `REPLCONF ACK offset [FACK offset]`, and `REPLCONF MISSED-CHECK` of a replica that could not compare its dataset; what a copy of the
    /// same shard says: see [`ShardFeed`]. Nothing else is expected, and nothing is answered. Returns whether replies may leave that
    /// waited.
    fn note(&mut self, serving: &Serving, args: Args<'_>, now_ms: u64) -> bool {
        let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        let offset = |at: usize| args.get(at).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        if is(0, "replconf") && is(1, "missed-check") {
            self.link.missed_check.store(true, Relaxed);
        }
        if !is(0, "replconf") {
            return false;
        }
        if let Some(shard) = &mut self.shard {
            if is(1, "copy") && is(3, "incarnation") {
                let said = args.get(4).and_then(|text| std::str::from_utf8(text).ok());
                let copy = offset(2).and_then(|number: u64| u32::try_from(number).ok());
                let now = copy.zip(said).and_then(|(copy, incarnation)| member(copy, incarnation));
                shard.is_known &= shard.member == now;
                shard.member = now;
            }
            if is(1, "fack") {
                self.link.has_said(self.link.acked(), offset(2), now_ms);
                return false;
            }
            let (Some(received), Some(applied), Some(epoch)) = (offset(2), offset(3), offset(4)) else { return false };
            let (Some(member), Some(epoch), true) = (&shard.member, std::num::NonZeroU64::new(epoch), is(1, "has"))
            else {
                return false;
            };
            shard.applied = shard.applied.max(applied);
            self.link.has_said(received, None, now_ms);
            let follows = !std::mem::replace(&mut shard.is_known, true);
            let may_leave = follows && serving.follows(member, received);
            return serving.hear(member, &Acknowledgement { epoch: Epoch(epoch), received, heartbeat: offset(5) })
                || may_leave;
        }
        if let Some(acked) = offset(2).filter(|_| is(1, "ack")) {
            let durable = if is(3, "fack") { offset(4) } else { None };
            self.link.has_said(acked, durable, now_ms);
        }
        false
    }
}

/// The reason goes to the replica in one line.
fn refused(why: &str) -> Ended {
    Ended::Refused(why.replace(['\r', '\n'], " "))
}

fn io_end(error: io::Error) -> Ended {
    Ended::Connection(End::Io(error.to_string()))
}
