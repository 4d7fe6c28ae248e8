//! Owns what a database's journal is to its workers: the effects that go into it, the replies that wait for it, and the writers that
//! wait for room in it. Replies of a shard's primary wait here for its replicas too ([`Serving`]). Never knows a file, or when the journal
//! syncs.
//!
//! Without a journal, each question here costs one relaxed load.

use crate::replication::{BootClock, Seen, Serving, Stream};
use journal::{Draft, Log, Record};
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use store::{ChangeLog, Effects, Sent};

/// The journal of a database, if it has one, and the stream for its replicas, if it may have some.
#[derive(Default)]
pub struct Journaling {
    pub stream: Stream,
    pub serving: Serving,
    /// Replies may have to wait: for the journal, or for replicas.
    holds: AtomicBool,
    is_on: AtomicBool,
    log: PerThreadRwLock,
    /// Writers must ask the log whether it has room.
    is_tight: AtomicBool,
    /// Fewer replicas keep up than writes need: see `min-replicas-to-write`.
    has_too_few_replicas: AtomicBool,
    /// The database is a replica.
    is_read_only: AtomicBool,
    /// Why writers get an error instead of waiting for room.
    refusing: Mutex<Option<String>>,
    /// What wakes each worker's commit waiter.
    tasks: Mutex<Vec<WaiterTask>>,
}

struct WaiterTask {
    /// The worker's number.
    index: usize,
    /// How many of its connections wait for replicas too.
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

/// The connections of a worker that wait for the journal. Each wake-up from another thread is a system call, so the journal's thread wakes
/// one task of the worker, and this task wakes the connections. The task asks the journal once for all connections that were ready when the
/// first one had to wait, so that they share a sync.
pub struct CommitWaiter {
    journaling: Arc<Journaling>,
    /// The worker's number.
    index: usize,
    waiting: RefCell<Vec<(WaitFor, Waker)>>,
    /// How many of them wait for replies.
    replies: Arc<AtomicUsize>,
    /// The waker of the worker's task that runs [`CommitWaiter::serve`].
    task: RefCell<Option<Waker>>,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    /// Replies that have seen this may leave, or never leave.
    Reply(Seen),
    /// What the journal has before this position may be sent to replicas.
    Journal(u64),
    /// The journal is durable up to this position. One connection waits for one position at a time.
    Durable { position: u64, client: u64 },
    /// Commands may write.
    Writable,
}

/// Whether commands may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAdmission {
    Open,
    /// The database is a replica: only what its primary sends may write.
    ReadOnly,
    /// The device is behind.
    Behind,
    Failed,
    /// Fewer replicas keep up than writes need.
    TooFewReplicas,
}

impl Journaling {
    /// From now on, effects go to `log`, and replies wait for it. The caller has every stripe, or there is no client.
    pub fn attach(self: &Arc<Self>, log: Arc<Log>) {
        let journaling = Arc::downgrade(self);
        log.on_progress(Box::new(move || {
            if let Some(journaling) = journaling.upgrade() {
                journaling.wake();
            }
        }));
        self.log.put(Some(log));
        self.is_on.store(true, Relaxed);
        self.holds.store(true, Relaxed);
        self.wake();
    }

    /// From now on, replies wait for what `serving` says too. No client's command has run.
    pub fn begin_serving(&self, clock: BootClock, on_change: Box<dyn Fn() + Send + Sync>) {
        self.serving.turn_on(clock, on_change);
        self.holds.store(true, Relaxed);
    }

    /// From now on, effects are not kept, and nobody waits.
    pub fn detach(&self) {
        self.is_on.store(false, Relaxed);
        self.holds.store(self.serving.is_on(), Relaxed);
        self.log.put(None);
        self.wake();
    }

    /// Whether there is a journal.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    #[inline]
    fn with<T>(&self, ask: impl FnOnce(&Log) -> T) -> Option<T> {
        if !self.is_on() {
            return None;
        }
        self.log.with(ask)
    }

    /// The position of the journal now. 0: there is no journal.
    #[inline]
    pub fn position(&self) -> u64 {
        self.with(Log::position).unwrap_or(0)
    }

    /// Whether replies may have to wait. If not, nothing else need be asked.
    #[inline]
    pub fn may_hold_replies(&self) -> bool {
        self.holds.load(Relaxed)
    }

    /// What a reply that is made now may show.
    #[inline]
    pub fn seen(&self) -> Seen {
        match self.holds.load(Relaxed) {
            true => self.seen_by_waiting(),
            false => Seen::default(),
        }
    }

    fn seen_by_waiting(&self) -> Seen {
        match self.serving.is_on() {
            // The term comes first: what was appended before it was read is behind the offset.
            true => Seen { term: self.serving.term(), offset: self.stream.offset(), journal: self.position() },
            false => Seen { journal: self.position(), ..Seen::default() },
        }
    }

    /// Whether a reply that has seen this may be sent now.
    #[inline]
    pub fn is_safe(&self, seen: Seen) -> bool {
        !self.holds.load(Relaxed) || self.is_journal_safe(seen.journal) && self.serving.allows(seen)
    }

    /// Whether the journal lets replies leave that show the dataset at this position.
    #[inline]
    pub fn is_journal_safe(&self, position: u64) -> bool {
        self.with(|log| log.safe() >= position).unwrap_or(true)
    }

    /// Whether replies wait for the journal's device, for replicas, or for a lease. `now`: what a reply of this moment shows.
    #[inline]
    pub fn holds_replies(&self, now: Seen) -> bool {
        self.holds.load(Relaxed) && (self.serving.holds_replies(now) || self.with(Log::holds_replies).unwrap_or(false))
    }

    /// Whether a message that shows the dataset of this moment may be sent. A copy that is closed sends none.
    #[inline]
    pub fn is_clear(&self) -> bool {
        !self.holds.load(Relaxed) || {
            let seen = self.seen();
            (!self.serving.is_on() || self.serving.is_open()) && self.is_safe(seen)
        }
    }

    /// Whether a reply that has seen this must not be sent, because what it tells may be lost. `may_have_written`: its commands.
    pub fn has_lost(&self, seen: Seen, may_have_written: bool) -> bool {
        let has_failed = |log: &Log| log.has_failed() && log.durable() < seen.journal;
        may_have_written && self.with(has_failed).unwrap_or(false) || self.serving.has_ended(seen)
    }

    /// Whether commands may write. The records of commands that run now on other workers are not known here, so the journal keeps room for some.
    #[inline]
    pub fn write_admission(&self) -> WriteAdmission {
        if self.is_tight.load(Relaxed) { self.ask_write_admission() } else { WriteAdmission::Open }
    }

    /// Sets whether writes get an error because too few replicas keep up.
    pub fn set_too_few_replicas(&self, on: bool) {
        if self.has_too_few_replicas.swap(on, Relaxed) != on {
            self.wake();
        }
    }

    /// Sets whether only what a primary sends may write.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Relaxed);
        self.wake();
    }

    fn ask_write_admission(&self) -> WriteAdmission {
        if self.is_read_only.load(Relaxed) {
            return WriteAdmission::ReadOnly;
        }
        let room = self.with(|log| match log.is_behind() {
            _ if log.has_failed() => WriteAdmission::Failed,
            true if self.refusing.lock().is_some() => WriteAdmission::Failed,
            true => WriteAdmission::Behind,
            false => WriteAdmission::Open,
        });
        match room.unwrap_or(WriteAdmission::Open) {
            WriteAdmission::Open if self.has_too_few_replicas.load(Relaxed) || self.serving.lacks_members() => {
                WriteAdmission::TooFewReplicas
            }
            room => room,
        }
    }

    /// The error of a write that cannot be journalled.
    #[cold]
    pub fn refusal(&self) -> String {
        let why = self.with(Log::failed).flatten().or_else(|| self.refusing.lock().clone()).unwrap_or_default();
        format!("MISCONF Errors writing to the AOF file: {why}")
    }

    /// From now on, commands that write and find no room get an error with this reason. `None`: they wait.
    pub fn refuse(&self, why: Option<String>) {
        let before = std::mem::replace(&mut *self.refusing.lock(), why.clone());
        if before != why {
            self.wake();
        }
    }

    /// Whether what the journal has up to this position is durable. `None`: there is no journal.
    pub fn is_durable(&self, position: u64) -> Option<bool> {
        self.with(|log| log.durable() >= position)
    }

    fn is_there(&self, awaited: WaitFor) -> bool {
        match awaited {
            // What will never be safe ends its connection.
            WaitFor::Reply(seen) => self.is_safe(seen) || self.serving.has_ended(seen),
            WaitFor::Journal(position) => self.is_journal_safe(position),
            WaitFor::Durable { position, .. } => self.is_durable(position).unwrap_or(true),
            WaitFor::Writable => self.write_admission() != WriteAdmission::Behind,
        }
    }

    /// The state of the journal has changed: wakes the workers' commit waiters.
    fn wake(&self) {
        let tasks = self.tasks.lock();
        // Under the lock, so that the newest state remains when two threads do this.
        self.is_tight.store(self.ask_write_admission() != WriteAdmission::Open, Relaxed);
        tasks.iter().for_each(|task| task.waker.wake_by_ref());
    }

    /// The state of [`Serving`] has changed: wakes those whose replies wait.
    pub fn wake_replies(&self) {
        let is_tight = self.ask_write_admission() != WriteAdmission::Open;
        if self.is_tight.load(Relaxed) != is_tight {
            return self.wake();
        }
        let tasks = self.tasks.lock();
        // After what has changed was published: who begins to wait now sees it.
        tasks.iter().filter(|task| task.waiting.load(SeqCst) > 0).for_each(|task| task.waker.wake_by_ref());
    }

    /// Something was appended. The log may have noticed that it is behind, and tells nobody.
    #[inline]
    fn notice(&self, log: &Log) {
        if log.is_behind() {
            self.is_tight.store(true, Relaxed);
        }
    }

    /// Appends commands to the stream for replicas and to the journal. Both have one order: the stream is locked meanwhile.
    fn append_to_both(&self, db: u32, time_ms: u64, commands: &[u8]) {
        let Some(mut addition) = self.stream.addition() else { return };
        if let Some(select) = addition.select(db) {
            self.append_to_log(db, time_ms, &select);
        }
        self.append_to_log(db, time_ms, commands);
        addition.push(db, commands);
    }

    #[cold]
    fn append_effects_to_both(&self, effects: &Effects) {
        let (Some(first), Some(mut addition)) = (effects.iter().next(), self.stream.addition()) else { return };
        let (db, time_ms) = (first.db as u32, first.now_ms);
        if let Some(select) = addition.select(db) {
            self.append_to_log(db, time_ms, &select);
        }
        let mut commands = addition.take_scratch();
        commands.resize(encoded_bytes_max(effects), 0);
        let bytes = encode(effects, &mut commands);
        self.append_to_log(db, time_ms, &commands[..bytes]);
        addition.push(db, &commands[..bytes]);
        addition.give_back(commands);
    }

    /// Appends a record to the journal, if there is one.
    fn append_to_log(&self, db: u32, time_ms: u64, resp: &[u8]) {
        self.with(|log| {
            append(log, db, time_ms, resp);
            self.notice(log);
        });
    }

    /// Whether the stream gets what [`Journaling::keep_for_replicas`] keeps.
    pub fn has_replicas_to_tell(&self) -> bool {
        self.stream.is_on() && !self.stream.follows()
    }

    /// PING, REPLCONF GETACK and messages: bytes of the stream that change nothing. A copy that is closed adds none, because the next
    /// primary would not have them.
    pub fn keep_for_replicas(&self, words: &[&[u8]], now_ms: u64) {
        if self.has_replicas_to_tell() {
            let mut message = Vec::new();
            resp::client::encode_command(words, &mut message);
            let Some(mut addition) = self.stream.addition() else { return };
            // Asked under the stream's lock: see [`Serving::handover`].
            if self.serving.is_on() && !self.serving.is_open() {
                return;
            }
            self.append_to_log(addition.db(), now_ms, &message);
            addition.push_message(&message);
        }
    }

    /// What a primary has sent: whole commands, which begin in logical database `db` and end in `db_after`. Nothing has expired for them:
    /// the primary says what has.
    pub fn keep_verbatim(&self, db: u32, db_after: u32, resp: &[u8]) {
        let Some(mut addition) = self.stream.addition() else { return };
        self.append_to_log(db, 0, resp);
        addition.push(db_after, resp);
    }
}

/// Without a journal and without a stream nothing is kept, so that what is replayed is not journalled. A replica keeps the primary's stream
/// instead: see [`Journaling::keep_verbatim`].
impl ChangeLog for Journaling {
    fn append(&self, effects: &Effects) {
        if self.stream.follows() {
            return;
        }
        if self.stream.is_on() {
            return self.append_effects_to_both(effects);
        }
        self.with(|log| {
            append_effects(log, effects);
            self.notice(log);
        });
    }

    fn append_sent(&self, sent: &Sent<'_>) -> bool {
        let &Sent { db, now_ms, bytes } = sent;
        if self.stream.follows() {
            return true;
        }
        match self.stream.is_on() {
            true => self.append_to_both(db as u32, now_ms, bytes),
            false => self.append_to_log(db as u32, now_ms, bytes),
        }
        true
    }
}

impl CommitWaiter {
    pub fn new(journaling: Arc<Journaling>, index: usize) -> CommitWaiter {
        let (waiting, replies, task) = (RefCell::default(), Arc::default(), RefCell::default());
        CommitWaiter { journaling, index, waiting, replies, task }
    }

    /// Waits until replies that have seen this may leave, or never will: [`Journaling::has_lost`].
    #[inline]
    pub fn poll_safe(&self, seen: Seen, cx: &Context<'_>) -> Poll<()> {
        self.poll(WaitFor::Reply(seen), cx)
    }

    /// Waits until the journal lets leave what it has before this position.
    pub fn poll_journal_safe(&self, position: u64, cx: &Context<'_>) -> Poll<()> {
        self.poll(WaitFor::Journal(position), cx)
    }

    /// Waits while the journal is behind. Then a command may write, or gets an error.
    pub fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(WaitFor::Writable, cx)
    }

    /// Waits until the journal is durable up to this position: true. False: there is no journal.
    pub fn poll_durable(&self, position: u64, client: u64, cx: &Context<'_>) -> Poll<bool> {
        self.forget(client);
        self.poll(WaitFor::Durable { position, client }, cx).map(|()| self.journaling.is_on())
    }

    /// The client does not wait for a position to be durable any more. Without this call, with `appendfsync no`, its entry might stay for hours.
    pub fn forget(&self, waiter: u64) {
        let is_its = |awaited: &WaitFor| matches!(awaited, WaitFor::Durable { client, .. } if *client == waiter);
        self.waiting.borrow_mut().retain(|(awaited, _)| !is_its(awaited));
    }

    fn poll(&self, awaited: WaitFor, cx: &Context<'_>) -> Poll<()> {
        if self.journaling.is_there(awaited) {
            return Poll::Ready(());
        }
        self.waiting.borrow_mut().push((awaited, cx.waker().clone()));
        self.count();
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
        Poll::Pending
    }

    /// Who changes what replies wait for must know that some do.
    fn count(&self) {
        let is_reply = |(awaited, _): &&(WaitFor, Waker)| matches!(awaited, WaitFor::Reply(_));
        self.replies.store(self.waiting.borrow().iter().filter(is_reply).count(), SeqCst);
    }

    /// Wakes the connections whose wait is over. The task that runs this never ends.
    pub async fn serve(&self) {
        let _listening = Listening(self);
        poll_fn(|cx| {
            self.pass(cx);
            Poll::Pending
        })
        .await
    }

    fn pass(&self, cx: &Context<'_>) {
        // Register the waker before asking the journal, so that no progress of the journal is missed.
        if !self.task.borrow().as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *self.task.borrow_mut() = Some(cx.waker().clone());
            let mut tasks = self.journaling.tasks.lock();
            tasks.retain(|task| task.index != self.index);
            let waiting = Arc::clone(&self.replies);
            tasks.push(WaiterTask { index: self.index, waiting, waker: cx.waker().clone() });
        }
        let mut waiting = self.waiting.borrow_mut();
        let go_on: Vec<_> = waiting.extract_if(.., |(awaited, _)| self.journaling.is_there(*awaited)).collect();
        let positions = waiting.iter().filter_map(|(awaited, _)| match *awaited {
            WaitFor::Reply(seen) => Some(seen.journal),
            WaitFor::Journal(position) | WaitFor::Durable { position, .. } => Some(position),
            WaitFor::Writable => None,
        });
        if let Some(wanted) = positions.max() {
            self.journaling.with(|log| log.want(wanted));
        }
        drop(waiting);
        self.count();
        go_on.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Exists while the commit waiter's task runs.
struct Listening<'g>(&'g CommitWaiter);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        *self.0.task.borrow_mut() = None;
        self.0.journaling.tasks.lock().retain(|task| task.index != self.0.index);
    }
}

/// Copies of the log's handle, each with its own lock. Each thread uses its own copy: the counter of one lock would move between the
/// processors with each command.
#[derive(Default)]
struct PerThreadRwLock([LockShard; LOCK_SHARDS]);

/// With more threads, some share a copy.
const LOCK_SHARDS: usize = 16;

/// On cache lines of its own: a processor may fetch two at once.
#[derive(Default)]
#[repr(align(128))]
struct LockShard(RwLock<Option<Arc<Log>>>);

impl PerThreadRwLock {
    /// When this returns, nobody uses the log that was there.
    fn put(&self, log: Option<Arc<Log>>) {
        self.0.iter().for_each(|shard| *shard.0.write() = log.clone());
    }

    #[inline]
    fn with<T>(&self, ask: impl FnOnce(&Log) -> T) -> Option<T> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static SHARD: usize = NEXT.fetch_add(1, Relaxed) % LOCK_SHARDS);
        self.0[SHARD.with(|&shard| shard)].0.read().as_deref().map(ask)
    }
}

#[inline]
fn append(log: &Log, db: u32, time_ms: u64, resp: &[u8]) {
    log.append(&Record { db, time_ms, resp });
}

/// As one record.
fn append_effects(log: &Log, effects: &Effects) {
    let Some(first) = effects.iter().next() else { return };
    let draft = Draft { db: first.db as u32, time_ms: first.now_ms, resp_bytes_max: encoded_bytes_max(effects) };
    log.append_draft(&draft, |out| encode(effects, out));
}

/// `$`, a length and the end of its line.
const LENGTH_BYTES_MAX: usize = 1 + 20 + 2;

fn encoded_bytes_max(effects: &Effects) -> usize {
    resp_bytes_max(effects.len(), effects.word_count(), effects.bytes())
}

fn resp_bytes_max(count: usize, words: usize, bytes: usize) -> usize {
    // SELECT before each command, and MULTI and EXEC around them.
    let (commands, words) = (2 * count + 2, 2 * count + 2 + words);
    commands * LENGTH_BYTES_MAX + words * (LENGTH_BYTES_MAX + 2) + bytes + count * (6 + 20) + 5 + 4
}

/// The most memory that so many effects of a transaction take until the journal has them: the effects, their record, and what does not
/// fit into the ring.
pub fn effects_bytes_max(count: usize, words: usize, bytes: usize) -> usize {
    Effects::mem_bytes(count, words, bytes) + 2 * resp_bytes_max(count, words, bytes)
}

/// Writes the effects as RESP: one command, or MULTI … EXEC. They begin and end in the first one's logical database. Returns the
/// number of bytes.
#[inline]
fn encode(effects: &Effects, out: &mut [u8]) -> usize {
    let all = out.len();
    let mut out = Rest(out);
    let is_group = effects.len() > 1;
    if is_group {
        out.command([&b"MULTI"[..]]);
    }
    let mut db = None;
    for effect in effects.iter() {
        if db.replace(effect.db).is_some_and(|before| before != effect.db) {
            out.command([&b"SELECT"[..], effect.db.to_string().as_bytes()]);
        }
        out.command(effect.words());
    }
    if is_group {
        let first = effects.iter().next().map(|effect| effect.db);
        if let Some(first) = first.filter(|_| db != first) {
            out.command([&b"SELECT"[..], first.to_string().as_bytes()]);
        }
        out.command([&b"EXEC"[..]]);
    }
    all - out.0.len()
}

/// The room for the bytes that are still to be written.
struct Rest<'o>(&'o mut [u8]);

impl<'o> Rest<'o> {
    #[inline]
    fn command<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8], IntoIter: ExactSizeIterator>) {
        let words = words.into_iter();
        self.length(b'*', words.len());
        for word in words {
            self.length(b'$', word.len());
            self.take(word.len()).copy_from_slice(word);
            self.put(*b"\r\n");
        }
    }

    /// `*3` or `$500`, and the end of the line. The formatting of the standard library takes ten times as long.
    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        let digit = |unit| b'0' + (length / unit % 10) as u8;
        match length {
            0..10 => self.put([kind, digit(1), b'\r', b'\n']),
            10..100 => self.put([kind, digit(10), digit(1), b'\r', b'\n']),
            100..1000 => self.put([kind, digit(100), digit(10), digit(1), b'\r', b'\n']),
            _ => self.long_length(kind, length),
        }
    }

    #[cold]
    fn long_length(&mut self, kind: u8, length: usize) {
        let line = format!("{}{length}\r\n", kind as char);
        self.take(line.len()).copy_from_slice(line.as_bytes());
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (to, rest) = std::mem::take(&mut self.0).split_first_chunk_mut().expect("there is room for all");
        *to = bytes;
        self.0 = rest;
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> &'o mut [u8] {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(bytes);
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::{Opened, Policy, Settings};
    use std::future::Future;
    use std::ops::ControlFlow;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use store::Why;

    fn text(effects: &Effects) -> String {
        let mut out = vec![0; encoded_bytes_max(effects)];
        let bytes = encode(effects, &mut out);
        out.truncate(bytes);
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn one_effect_is_a_command_and_several_are_a_transaction_that_selects() {
        let mut effects = Effects::default();
        effects.push(Why::Command, 3, 17, [&b"SET"[..], b"k", b"a value of 21 bytes.."]);
        assert_eq!(text(&effects), "*3 $3 SET $1 k $21 a value of 21 bytes.. ");
        effects.push(Why::Expired, 3, 17, [&b"DEL"[..], b"a"]);
        effects.push(Why::Expired, 12, 17, [&b"DEL"[..], b"b"]);
        let set = "*3 $3 SET $1 k $21 a value of 21 bytes.. ";
        let dels = "*2 $3 DEL $1 a *2 $6 SELECT $2 12 *2 $3 DEL $1 b ";
        assert_eq!(text(&effects), format!("*1 $5 MULTI {set}{dels}*2 $6 SELECT $1 3 *1 $4 EXEC "));
    }

    #[test]
    fn a_length_is_a_line() {
        for length in (0..2000).chain([9_999, 10_000, 99_999, 512 << 20, usize::MAX]) {
            let mut out = [0; LENGTH_BYTES_MAX];
            let mut rest = Rest(&mut out);
            rest.length(b'$', length);
            let bytes = LENGTH_BYTES_MAX - rest.0.len();
            assert_eq!(out[..bytes], *format!("${length}\r\n").as_bytes());
        }
    }

    /// Each effect in another logical database, with as many words as it can have.
    #[test]
    fn the_room_for_effects_is_enough() {
        for count in 1..20 {
            let mut effects = Effects::default();
            for at in 0..count {
                let word = vec![b'w'; 99 * at];
                effects.push(Why::Command, usize::MAX - at, 17, vec![&word[..]; at + 1]);
            }
            assert!(text(&effects).len() <= encoded_bytes_max(&effects));
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn effects_go_to_the_log_once_it_is_there_and_waiters_are_woken_when_they_are_durable() {
        let scratch = tempfile::tempdir().unwrap();
        let settings = Settings { log_id: [1; 16], file_bytes: 512 << 10, ring_bytes: 1 << 20, policy: Policy::Always };
        let log = Opened::open(scratch.path(), &settings, 0).unwrap().start().unwrap();
        let journaling = Arc::<Journaling>::default();
        let mut effects = Effects::default();
        effects.push(Why::Command, 2, 17, [&b"DEL"[..], b"k"]);
        journaling.append(&effects);
        assert!(journaling.is_clear() && journaling.write_admission() == WriteAdmission::Open);

        journaling.attach(Arc::clone(&log));
        journaling.append(&effects);
        let (position, seen) = (journaling.position(), journaling.seen());
        assert!(position > 0 && seen == Seen { journal: position, offset: 0, term: 0 });
        let commit_waiter = CommitWaiter::new(Arc::clone(&journaling), 0);
        let mut task = pin!(commit_waiter.serve());
        let woken = Arc::<Woken>::default();
        let waker = Arc::clone(&woken).into();
        let cx = Context::from_waker(&waker);
        let task_woken = Arc::<Woken>::default();
        let task_waker = Arc::clone(&task_woken).into();
        let task_cx = &mut Context::from_waker(&task_waker);
        if commit_waiter.poll_safe(seen, &cx).is_pending() {
            for passes in 1.. {
                assert!(task.as_mut().poll(task_cx).is_pending());
                if woken.0.load(Relaxed) == 1 {
                    break;
                }
                while task_woken.0.load(Relaxed) < passes {
                    std::thread::yield_now();
                }
            }
        }
        assert!(commit_waiter.poll_safe(seen, &cx).is_ready() && log.durable() == position);
        assert!(commit_waiter.poll_writable(&cx).is_ready());
        assert!(commit_waiter.poll_durable(position + 1, 7, &cx).is_pending());
        commit_waiter.forget(7);
        assert!(commit_waiter.waiting.borrow().is_empty());
        log.close().unwrap();
        drop((journaling, log));

        let opened = Opened::open(scratch.path(), &settings, 0).unwrap();
        let mut found = Vec::new();
        let each = &mut |_, record: &Record| {
            found.push((record.db, record.time_ms, record.resp.to_vec()));
            ControlFlow::Continue(())
        };
        opened.records(each).unwrap();
        assert_eq!(found, [(2, 17, b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n".to_vec())]);
    }
}
