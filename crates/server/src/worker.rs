//! Owns the way of one command: receive → parse → admit → prefetch → run → park → reply.
//! Never knows how bytes reach the socket (`session`), how a wait is waited (`park`), or what a command does.

use crate::acl::{self, Context};
use crate::blocked::{self, Blocked};
use crate::clients::Card;
use crate::directory::{Command, bit};
use crate::monitors::is_secret;
use crate::park::{Wait, park};
use crate::session::{BATCH_COMMANDS_MAX, Batch, Connection, Current, End, Place, Prepared, Work};
use crate::stand_in;
use crate::stats::{WorkerStats, shortened};
use crate::thread::{Live, Worker};
use crate::{script, transaction};
use commands::host::SlowCommand;
use commands::session::{Reply, Session};
use commands::{Args, Cx, Keys, Stop};
use resp::{Limits, Out};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;
use store::{Admission, Hasher, Key, KeyHash, Keyspace, ReadError, Resume};

/// A command that is cold again and again (a key being demoted as fast as it is read) is read under no lock but
/// without giving others their turn from then on.
pub const MISSES_MAX: u32 = 16;
/// Reads that one miss starts ahead of their commands.
const PREFETCH_READS_MAX: usize = 256;
/// So often the commands behind one that is cold are asked what they need of values in parts.
const REHEARSALS_MAX: u32 = 4;
/// What is left to send when a client hangs up is offered to it this long.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves one connection until it ends.
pub async fn serve(mut connection: Connection) {
    let mut is_attached = false;
    let end = loop {
        let received = poll_fn(|cx| {
            // By the waker of its own task, which a stand-in may be ahead of.
            if !is_attached && !stand_in::is_on() {
                connection.card.outbox.attach(cx.waker(), connection.stream.is_sent_by_task());
                is_attached = true;
            }
            connection.poll_receive(cx)
        });
        if let Err(end) = received.await {
            break end;
        }
        if let Err(end) = carry_out(&mut connection).await {
            break end;
        }
        if connection.work.as_ref().is_some_and(|work| work.batch.was_full) {
            // It sends faster than it is served: the others first.
            park(&mut connection, Wait::Turn).await;
        }
    };
    close(connection, end).await;
}

/// Carries out every complete command that was received, then replies.
async fn carry_out(connection: &mut Connection) -> Result<(), End> {
    while parse(connection) {
        loop {
            // A handler that panics holds no lock afterwards: the stripes' locks are released by unwinding and are
            // not poisoned. What it may leave is a value half changed, as any error in a handler's logic might; the
            // keyspace's own structures are only changed inside calls that do not run a handler's code.
            let ran = catch_unwind(AssertUnwindSafe(|| run(connection)));
            match ran {
                Ok(Ran::All) => break,
                Ok(Ran::Ends(end)) => return Err(end),
                Ok(Ran::Waits(wait)) => {
                    if wait == Wait::Exchange {
                        // What was answered before does not wait with it: it may take seconds.
                        connection.send()?;
                    }
                    park(connection, wait).await;
                }
                Ok(Ran::Blocks(blocked)) => {
                    connection.open.set(false);
                    blocked::sit(connection, blocked).await?;
                    connection.open.set(true);
                }
                Err(_) => return Err(End::Panic),
            }
            if connection.card.killed.load(Relaxed) {
                return Err(End::Killed);
            }
        }
    }
    finish(connection)?;
    others_first(connection).await;
    if stand_in::is_on() {
        // The store is somebody's who waits for it, or the script's.
        return connection.send();
    }
    let database = &connection.worker.database;
    if database.tracking.has_pending() {
        database.tracking.tell_followers(database);
    }
    connection.send()?;
    let worker = &connection.worker;
    worker.maintain_if_wanted();
    Ok(())
}

/// Connections whose replies wait at the same time, and the most that one of them may hold: memory that nobody counted on.
const LATER_MAX: usize = 32;
const LATER_BYTES_MAX: usize = 64 << 10;

/// Those that are ready now are served before this one's replies are sent. Replies then leave in a burst: their clients,
/// which often are one process, wake up once and find all of them, where one reply at a time would wake it for each.
async fn others_first(connection: &Connection) {
    let later = &connection.worker.later;
    let bytes = connection.work.as_ref().map_or(0, |work| work.output.len());
    if stand_in::is_on() || later.get() >= LATER_MAX || bytes > LATER_BYTES_MAX {
        return;
    }
    later.set(later.get() + 1);
    let mut is_later = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_later, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    later.set(later.get() - 1);
}

/// Takes the next batch from the input. False: there is none.
fn parse(connection: &mut Connection) -> bool {
    let Some(work) = connection.work.as_deref_mut() else { return false };
    if connection.session.authenticated {
        work.batch.parse(&connection.worker.live().limits, BATCH_COMMANDS_MAX);
    } else {
        // One at a time: the command after a successful AUTH deserves the full limits.
        work.batch.parse(&Limits::UNAUTHENTICATED, 1);
    }
    !work.batch.commands.is_empty()
}

/// After the last batch of the input: a protocol error is answered behind the replies of what came before it.
fn finish(connection: &mut Connection) -> Result<(), End> {
    let Some(work) = connection.work.as_deref_mut() else { return Ok(()) };
    let Some(error) = work.batch.broken else { return Ok(()) };
    let text = format!("ERR {error}");
    Out::new(&mut work.output, connection.session.proto).error(&text);
    let stats = connection.worker.stats();
    stats.protocol_errors.add(1);
    stats.error(&text);
    tracing::debug!(client = connection.card.id, "{text}");
    Err(End::Asked)
}

enum Ran {
    /// The batch is done.
    All,
    Waits(Wait),
    /// The command waits for a key.
    Blocks(Arc<Blocked>),
    Ends(End),
}

/// Runs the batch's commands in order: a plain loop that stops only for what it has to wait for.
fn run(connection: &mut Connection) -> Ran {
    let Connection { worker, session, card, work, .. } = connection;
    let Some(work) = work.as_deref_mut() else { return Ran::All };
    let worker = &**worker;
    let live = worker.live();
    let stats = worker.stats();
    let now_ms = worker.refresh_now_ms();
    let started = worker.ticks();
    let mut ticks = started;
    let mut last = None;
    acl::refresh(&worker.database, session);
    // What others sent before these commands came goes before their replies.
    card.outbox.drain_into(&mut work.output);
    let ran = loop {
        let Some(&place) = work.batch.commands.get(work.batch.next) else { break Ran::All };
        if work.batch.next >= work.batch.prepared {
            prepare(worker, session, &mut work.batch);
        }
        let begun = *work.current.begun.get_or_insert(ticks);
        let reply_from = work.output.len();
        let (command, outcome) = one(worker, &live, session, card, work, place, now_ms);
        let failed = outcome.is_err();
        if worker.database.monitors.any()
            && let Some(command) = command
            && !matches!(outcome, Err(Halt::Wait(_) | Halt::End(_)))
        {
            show(worker, session, Some(card), command, work.batch.args(place));
        }
        match outcome {
            Ok(()) => {}
            Err(Halt::Error(text)) => {
                work.output.truncate(reply_from);
                Out::new(&mut work.output, session.proto).error(&text);
                stats.error(&text);
            }
            Err(Halt::Wait(wait)) => {
                work.output.truncate(reply_from);
                work.current.again = true;
                break Ran::Waits(wait);
            }
            Err(Halt::Block(blocked)) => {
                work.output.truncate(reply_from);
                follow_up(worker, &live, &mut work.current.resume);
                break Ran::Blocks(blocked);
            }
            Err(Halt::End(end)) => break Ran::Ends(end),
        }
        follow_up(worker, &live, &mut work.current.resume);
        ticks = worker.ticks();
        if let Some(command) = command {
            last = Some(command.id);
            let met_flash = Some(work.current.misses > 0);
            let spent = Spent { nanos: worker.nanos(begun, ticks), failed, met_flash, in_script: false };
            account(worker, &live, card, command, work.batch.args(place), spent, now_ms);
        }
        if work.current.again || command.is_none_or(|command| command.is(bit::KEYLESS)) {
            work.current.end(stats);
            session.exchange = None;
        }
        work.current.begun = None;
        work.batch.next += 1;
        stats.commands.add(1);
        if session.reply != Reply::On {
            let is_push = command.is_some_and(|command| command.is(bit::ANSWERS_BY_PUSH)) && !failed;
            let keep = if is_push { work.output.len() } else { reply_from };
            withhold(session, &mut work.output, keep);
        }
        card.outbox.drain_into(&mut work.output);
        if session.changed {
            session.changed = false;
            acl::refresh(&worker.database, session);
            card.publish(session);
        }
        if session.close {
            break Ran::Ends(End::Asked);
        }
        if work.output.len() > live.output_bytes_max {
            stats.output_limit_closed.add(1);
            break Ran::Ends(End::OutputLimit);
        }
        if ticks.saturating_sub(started) > worker.turn_ticks && work.batch.next < work.batch.commands.len() {
            break Ran::Waits(Wait::Turn);
        }
    };
    card.active_ms.store(now_ms, Relaxed);
    if let Some(id) = last {
        card.command.store(id, Relaxed);
    }
    if matches!(ran, Ran::All) {
        stats.batches.add(1);
        if !work.prefetched.is_empty() {
            let mut lane = worker.lane();
            work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
        }
    }
    ran
}

/// What a command leaves to be done before this client's next one: who waits for keys that it has changed has its turn,
/// and in the all-cold mode what it has touched leaves RAM. No stripe is locked.
#[inline]
pub fn follow_up(worker: &Worker, live: &Live, resume: &mut Resume) {
    if !resume.ready.is_empty() {
        blocked::serve(worker, live, resume);
    }
    if !resume.touched.is_empty() {
        worker.lane().chill(worker.now_ms(), &mut resume.touched);
    }
}

/// What a command has taken.
#[derive(Clone, Copy)]
pub struct Spent {
    pub nanos: u64,
    pub failed: bool,
    /// None: it is not known of what runs inside a transaction.
    pub met_flash: Option<bool>,
    /// The slow log tells of the script as a whole.
    pub in_script: bool,
}

/// A command is done: counted, and noted if it took long.
#[inline]
pub fn account(
    worker: &Worker,
    live: &Live,
    card: &Card,
    command: &Command,
    args: Args<'_>,
    Spent { nanos, failed, met_flash, in_script }: Spent,
    now_ms: u64,
) {
    let stats = worker.stats();
    let counts = &stats.by_command[command.id];
    counts.calls.add(1);
    counts.nanos.add(nanos);
    if failed {
        counts.failed.add(1);
    }
    if live.latency_tracking {
        counts.latency().record(nanos);
    }
    if command.is(bit::READS)
        && let Some(met_flash) = met_flash
    {
        if met_flash { &stats.flash_latency } else { &stats.ram_latency }.record(nanos);
    }
    if nanos >= live.slow_nanos && !in_script {
        slow(worker, live, card, command, args, nanos, now_ms);
    }
}

impl Current {
    /// Between two commands, when the first was not of the simple kind.
    pub fn end(&mut self, stats: &WorkerStats) {
        if self.misses > 0 {
            stats.flash_waits.add(1);
        }
        self.resume.clear();
        self.again = false;
        self.misses = 0;
        self.has_room = false;
        self.whole = false;
        self.failed = None;
    }
}

/// Commands whose look-ups are prefetched together: what they touch fits the first-level cache.
const PREPARED_MAX: usize = 32;
/// For fewer the misses saved cost more than they take.
const PREPARED_MIN: usize = 4;

/// Looks up the batch's next commands, hashes their keys, and lets the cache misses of those overlap.
#[inline]
fn prepare(worker: &Worker, session: &Session, batch: &mut Batch) {
    let database = &*worker.database;
    let mut prepared = std::mem::take(&mut batch.prepared_commands);
    prepared.clear();
    let end = batch.commands.len().min(batch.next + PREPARED_MAX);
    if end - batch.next >= PREPARED_MIN {
        let mut hashes: SmallVec<[KeyHash; PREPARED_MAX]> = SmallVec::new();
        for &place in &batch.commands[batch.next..end] {
            let args = batch.args(place);
            let command = database.directory.place(&args[0]);
            let hash = command.and_then(|command| match database.directory.at(command).row.keys {
                Keys::Range { first, last, .. } if first == last && first > 0 => {
                    args.get(first as usize).map(|name| database.store.hasher().hash(name))
                }
                _ => None,
            });
            hashes.extend(hash);
            prepared.push(Prepared { command, hash });
        }
        database.store.prefetch(&hashes, session.db);
    }
    batch.prepared_commands = prepared;
    batch.prepared = end;
}

/// Why a command has no reply of its own, or none yet.
pub enum Halt {
    Wait(Wait),
    Block(Arc<Blocked>),
    Error(Cow<'static, str>),
    End(End),
}

/// One command: admitted, its keys hashed, its stripes locked, its handler run.
#[inline]
fn one<'w>(
    worker: &'w Worker,
    live: &Live,
    session: &mut Session,
    card: &Card,
    work: &mut Work,
    place: Place,
    now_ms: u64,
) -> (Option<&'w Command>, Result<(), Halt>) {
    let Work { batch, output, current, positions, .. } = &mut *work;
    let args = batch.args(place);
    let known = batch.known();
    let command = match admit(worker, session, current, args, known, now_ms) {
        Ok(command) => command,
        Err(Halt::Error(text)) if session.multi.is_some() => {
            return (None, Err(Halt::Error(transaction::refused(worker, session, args, text))));
        }
        Err(halt) => return (None, Err(halt)),
    };
    if session.multi.is_some() {
        if !command.is(bit::UNQUEUED) {
            let queued = transaction::queue(live, session, command, args, &mut Out::new(output, session.proto));
            return (None, queued);
        }
        if command.is(bit::EXEC) {
            let result = transaction::exec(worker, live, session, card, work, now_ms);
            if !matches!(result, Err(Halt::Wait(_))) {
                forget_caching(session);
            }
            return (Some(command), result);
        }
    }
    if command.is(bit::SCRIPT) {
        let result = script::run(worker, live, session, card, work, command, now_ms);
        if !matches!(result, Err(Halt::Wait(_))) {
            forget_caching(session);
        }
        return (Some(command), result);
    }
    if let Some(text) = current.failed.take() {
        return (Some(command), Err(Halt::Error(text)));
    }
    if command.is(bit::KEYLESS) {
        // CLIENT LIST shows the caller with the command it is in.
        card.command.store(command.id, Relaxed);
    }
    let store = &worker.database.store;
    let keys = keys(store.hasher(), command.row.keys, args, known.and_then(|known| known.hash), positions);
    let Some(ks) = store.try_lock(&keys, session.db, now_ms, !session.no_touch, &mut current.resume) else {
        return (Some(command), Err(Halt::Wait(Wait::Stripes)));
    };
    let mut cx = Cx {
        args,
        keys: &keys,
        ks,
        out: Out::new(output, session.proto),
        session,
        settings: &live.settings,
        server: worker,
    };
    let result = (command.row.run)(&mut cx);
    if cx.session.tracking.is_some() {
        // While the stripes are locked.
        follow(worker, cx.session, command, &keys, &result);
        if cx.session.multi.is_none() && !command.is(bit::UNPAUSABLE) && completed(&result) {
            forget_caching(cx.session);
        }
    }
    if let Err(Stop::Block(block)) = &result {
        card.command.store(command.id, Relaxed);
        return (Some(command), Err(Halt::Block(Blocked::begin(&mut cx, command.row, card, block))));
    }
    drop(cx);
    drop(keys);
    let halt = match result {
        Ok(()) => return (Some(command), Ok(())),
        Err(Stop::Error(text)) => Halt::Error(text),
        Err(Stop::Yield) => Halt::Wait(Wait::Turn),
        Err(Stop::Exchange) => Halt::Wait(Wait::Exchange),
        Err(Stop::Block(_)) => unreachable!("it has taken its place"),
        Err(Stop::Cold) => match work.current.resume.failed.take() {
            Some(error) => Halt::Error(read_failed(&error)),
            None => {
                prefetch(worker, session, work);
                Halt::Wait(Wait::Flash)
            }
        },
    };
    (Some(command), Err(halt))
}

/// What the commands inside a transaction or script have around them.
pub struct Around<'a> {
    pub worker: &'a Worker,
    pub live: &'a Live,
    pub card: &'a Card,
    /// Commands inside a script are not told of by themselves.
    pub is_script: bool,
}

/// Runs a command inside a transaction or script, whose stripes are locked. Nothing stops it: its reply is complete.
/// Returns whether it succeeded.
pub fn inside(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    keys: &[Key<'_>],
    output: &mut Vec<u8>,
) -> bool {
    let &Around { worker, live, card, is_script } = around;
    let (begun, reply_from) = (worker.ticks(), output.len());
    card.command.store(command.id, Relaxed);
    let result = match command.is(bit::SCRIPT) {
        true => script::inside(around, session, ks, command, args, output),
        false => attend(around, session, ks, command, args, keys, output),
    };
    if session.tracking.is_some() {
        follow(worker, session, command, keys, &result);
    }
    if worker.database.monitors.any() {
        show(worker, session, (!is_script).then_some(card), command, args);
    }
    let stats = worker.stats();
    let error = match result {
        Ok(()) => None,
        Err(Stop::Error(text)) => Some(text),
        Err(Stop::Cold | Stop::Yield | Stop::Block(_) | Stop::Exchange) => Some(match ks.resume.failed.take() {
            Some(error) => read_failed(&error),
            None => unreachable!("a cold value inside a transaction is read at once, or fails"),
        }),
    };
    if let Some(text) = &error {
        output.truncate(reply_from);
        Out::new(output, session.proto).error(text);
        stats.error(text);
    }
    ks.resume.clear();
    let nanos = worker.nanos(begun, worker.ticks());
    let spent = Spent { nanos, failed: error.is_some(), met_flash: None, in_script: is_script };
    account(worker, live, card, command, args, spent, ks.now_ms());
    stats.commands.add(1);
    error.is_none()
}

/// Runs a handler to its end, where nobody else may come between and nobody is waited for.
fn attend(
    &Around { worker, live, .. }: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    keys: &[Key<'_>],
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let reply_from = output.len();
    loop {
        let result = (command.row.run)(&mut Cx {
            args,
            keys,
            ks: ks.inner(session.db, !session.no_touch),
            out: Out::new(output, session.proto),
            session,
            settings: &live.settings,
            server: worker,
        });
        match result {
            Err(Stop::Yield) => output.truncate(reply_from),
            Err(Stop::Block(block)) => {
                (block.at_once)(&mut Out::new(output, session.proto));
                return Ok(());
            }
            result => return result,
        }
    }
}

/// Whether a handler is done, well or not.
fn completed(result: &Result<(), Stop>) -> bool {
    !matches!(result, Err(Stop::Cold | Stop::Yield | Stop::Exchange))
}

/// Remembers what a connection with tracking has read, so that it is told of changes.
#[cold]
fn follow(worker: &Worker, session: &Session, command: &Command, keys: &[Key<'_>], result: &Result<(), Stop>) {
    let remembers = session.tracking.as_ref().is_some_and(|tracking| tracking.remembers());
    if remembers && command.is(bit::READONLY) && completed(result) {
        keys.iter().for_each(|key| worker.database.tracking.remember(&worker.database, key.name, session.id));
    }
}

/// CLIENT CACHING is of the next command, or of the next transaction as a whole.
#[cold]
fn forget_caching(session: &mut Session) {
    if let Some(tracking) = &mut session.tracking {
        tracking.caching = false;
    }
}

/// Shows a command that has run to those who monitor. `card`: of the client, None inside a script.
#[cold]
fn show(worker: &Worker, session: &Session, card: Option<&Card>, command: &Command, args: Args<'_>) {
    if !command.is(bit::UNSEEN) {
        let from = card.map(|card| &card.peer);
        worker.database.monitors.show(&worker.database, worker.time_us(), session.db, from, args);
    }
}

/// Why a connection that is not everybody's and its own may not run this command: one that has not said whose it is,
/// whose user may not, one that listens or monitors.
#[cold]
fn confined(worker: &Worker, session: &Session, command: &Command, args: Args<'_>) -> Option<Cow<'static, str>> {
    if !session.authenticated && !command.is(bit::NO_AUTH) && !worker.database.users.default_is_open() {
        return Some("NOAUTH Authentication required.".into());
    }
    let context = if session.multi.is_some() { Context::Multi } else { Context::TopLevel };
    if let Err(denial) = acl::check(worker, session, command, args, context) {
        return Some(acl::refusal(session, command, denial).into());
    }
    if session.listens_only && !command.is(bit::LISTENER) {
        let text = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            command.name
        );
        return Some(text.into());
    }
    if session.monitors && command.is(bit::READONLY | bit::WRITE) {
        return Some("ERR Replica can't interact with the keyspace".into());
    }
    None
}

/// Whether a command may run now.
#[inline]
fn admit<'w>(
    worker: &'w Worker,
    session: &Session,
    current: &Current,
    args: Args<'_>,
    known: Option<Prepared>,
    now_ms: u64,
) -> Result<&'w Command, Halt> {
    let database = &*worker.database;
    let found = match known {
        Some(known) => known.command.map(|place| database.directory.at(place)),
        None => database.directory.find(&args[0]),
    };
    let Some(mut command) = found else { return Err(unknown(worker, args)) };
    if command.is(bit::CONTAINER)
        && let Some(subcommand) = command.subcommand(&args)
    {
        command = subcommand;
    }
    if !command.takes(args.len()) {
        let text = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(refused(worker, command, text.into()));
    }
    if session.is_confined()
        && let Some(text) = confined(worker, session, command, args)
    {
        return Err(refused(worker, command, text));
    }
    if let Some(text) = database.scripts.busy() {
        if stand_in::is_on() && uses_watches(session, command) {
            return Err(Halt::Wait(Wait::Stripes));
        }
        if !command.is(bit::ALLOW_BUSY) {
            return Err(refused(worker, command, text.into()));
        }
    }
    if database.clients.may_be_paused() {
        if database.clients.suspended.load(Relaxed) && !acl::is_console(&session.user) {
            let text = format!("PAUSED Database '{}' is paused by its operator", database.name);
            return Err(refused(worker, command, text.into()));
        }
        if !command.is(bit::UNPAUSABLE) && database.clients.is_paused(command.is(bit::WRITE), now_ms) {
            return Err(Halt::Wait(Wait::Pause));
        }
    }
    if command.is(bit::DENYOOM) {
        match database.store.admission() {
            Admission::Open => {}
            Admission::Slow if current.has_room => {}
            Admission::Slow => return Err(Halt::Wait(Wait::Room)),
            Admission::Full => {
                let text = "OOM command not allowed when used memory > 'maxmemory'.";
                return Err(refused(worker, command, text.into()));
            }
        }
    }
    Ok(command)
}

/// Of the commands that are carried out while a script is busy those need stripes that watch keys, or forget them.
#[cold]
fn uses_watches(session: &Session, command: &Command) -> bool {
    command.is(bit::WATCHES) || (command.is(bit::UNWATCHES) && !session.watches.is_empty())
}

#[cold]
fn refused(worker: &Worker, command: &Command, text: Cow<'static, str>) -> Halt {
    worker.stats().by_command[command.id].rejected.add(1);
    Halt::Error(text)
}

/// As much of an unknown command as its error quotes, in bytes.
const QUOTED_BYTES_MAX: usize = 128;

#[cold]
fn unknown(worker: &Worker, args: Args<'_>) -> Halt {
    let name = &args[0];
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        // A browser made to send HTTP here: it must not get as far as the commands in the request's body.
        tracing::warn!(worker = worker.index, "a client speaks HTTP, perhaps to attack: its connection is closed");
        return Halt::End(End::Asked);
    }
    let name = String::from_utf8_lossy(&name[..name.len().min(QUOTED_BYTES_MAX)]);
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let quoted_from = text.len();
    for arg in args.from(1) {
        let Some(room) = QUOTED_BYTES_MAX.checked_sub(text.len() - quoted_from).filter(|&room| room > 0) else { break };
        text.push_str(&format!("'{}' ", String::from_utf8_lossy(&arg[..arg.len().min(room)])));
    }
    Halt::Error(text.into())
}

/// A command's keys with their hashes, in the order of their positions.
#[inline]
pub fn keys<'a>(
    hasher: &Hasher,
    places: Keys,
    args: Args<'a>,
    known: Option<KeyHash>,
    positions: &mut Vec<usize>,
) -> SmallVec<[Key<'a>; 4]> {
    let mut keys = SmallVec::new();
    match places {
        Keys::None | Keys::NotKeys { .. } => {}
        // The usual case, without the list of positions.
        Keys::Range { first, last, .. } if first == last && first > 0 => {
            if let Some(name) = args.get(first as usize) {
                let hash = known.unwrap_or_else(|| hasher.hash(name));
                keys.push(Key { name, hash });
            }
        }
        places => {
            positions.clear();
            places.positions(&args, positions);
            keys.extend(positions.iter().filter_map(|&at| args.get(at)).map(|name| hasher.key(name)));
        }
    }
    keys
}

/// The running command found something cold: its reads, and those of the batch's commands behind it, start together.
#[cold]
pub fn prefetch(worker: &Worker, session: &mut Session, work: &mut Work) {
    let Work { batch, current, prefetched, positions, .. } = work;
    let database = &*worker.database;
    // The commands behind it are looked through once: so many reads ahead, and again where those end. What one part of a
    // value says may name the next: for those a few times.
    let mut ahead = Vec::new();
    let is_first = batch.next >= batch.probed;
    if is_first {
        batch.rehearsals = if database.store.has_parts() && session.multi.is_none() { REHEARSALS_MAX } else { 0 };
    }
    if is_first || batch.rehearsals > 0 {
        let end = if is_first { batch.commands.len() } else { batch.probed };
        let mut probed = batch.next + 1;
        let mut parts = 0;
        while probed < end && ahead.len() < PREFETCH_READS_MAX {
            let args = batch.args(batch.commands[probed]);
            probed += 1;
            let Some(command) = database.directory.find(&args[0]).filter(|command| command.is(bit::READS)) else {
                continue;
            };
            let keys = keys(database.store.hasher(), command.row.keys, args, None, positions);
            if is_first {
                ahead.extend(keys.iter().filter_map(|key| database.store.probe(key, session.db)));
            }
            if batch.rehearsals > 0
                && let [key] = keys[..]
                && command.can_rehearse()
                && command.takes(args.len())
                && database.store.is_in_parts(&key, session.db)
            {
                let mut resume = Resume::default();
                if let Some(mut ks) = database.store.try_lock(&keys, session.db, worker.now_ms(), false, &mut resume) {
                    rehearse(worker, session, &mut ks, command, args, &key);
                }
                parts += resume.cold.len();
                ahead.append(&mut resume.cold);
            }
        }
        if is_first {
            batch.probed = probed;
        }
        batch.rehearsals = if parts > 0 { batch.rehearsals - 1 } else { 0 };
    }
    let mut lane = worker.lane();
    if current.resume.has_advanced() {
        current.misses = 0;
    }
    current.misses += 1;
    for cold in std::mem::take(&mut current.resume.cold) {
        if current.misses <= MISSES_MAX {
            current.awaited.push(lane.read(cold));
        } else if let Err(error) = lane.read_now(cold, &mut current.resume) {
            current.failed = Some(read_failed(&error));
        }
    }
    prefetched.extend(ahead.into_iter().map(|cold| lane.read(cold)));
    lane.submit();
}

/// Notes what a command whose turn has not come will have to read of its key's value, if that is one in parts: its
/// handler says so, run to no other effect. The stripe is locked.
#[cold]
pub fn rehearse(
    worker: &Worker,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    key: &Key<'_>,
) {
    let live = worker.live();
    let mut nothing = Vec::new();
    if let Some(ks) = ks.rehearsal(key, session.db) {
        let out = Out::new(&mut nothing, session.proto);
        let keys = std::slice::from_ref(key);
        let _ = (command.row.run)(&mut Cx { args, keys, ks, out, session, settings: &live.settings, server: worker });
    }
}

/// The reply of a command whose value could not be read.
pub fn read_failed(error: &ReadError) -> Cow<'static, str> {
    format!("ERR {error}").into()
}

/// CLIENT REPLY OFF and SKIP.
#[cold]
pub fn withhold(session: &mut Session, output: &mut Vec<u8>, reply_from: usize) {
    output.truncate(reply_from);
    match session.reply {
        Reply::SkipNext => session.reply = Reply::Skip,
        Reply::Skip => session.reply = Reply::On,
        Reply::On | Reply::Off => {}
    }
}

/// A command took long: the slow log and the latency monitor hear of it.
#[cold]
fn slow(worker: &Worker, live: &Live, card: &Card, command: &Command, args: Args<'_>, nanos: u64, now_ms: u64) {
    let (database, config) = (&worker.database, &live.config);
    let at_s = now_ms / 1000;
    if config.latency_monitor_threshold_ms > 0 && nanos / 1_000_000 >= config.latency_monitor_threshold_ms {
        let event = if command.is(bit::FAST) { "fast-command" } else { "command" };
        database.latency_events.add(event, at_s, nanos / 1_000_000);
    }
    let threshold_us = config.slowlog_log_slower_than_us;
    // Commands that carry passwords are left out.
    if threshold_us >= 0
        && nanos / 1000 >= threshold_us as u64
        && config.slowlog_max_len > 0
        && !command.is(bit::SKIP_SLOWLOG | bit::NO_AUTH)
    {
        let mut words = shortened(args.from(0));
        for (_, word) in words.iter_mut().enumerate().filter(|(at, _)| is_secret(args, *at)) {
            *word = b"(redacted)".to_vec();
        }
        let entry = SlowCommand {
            id: 0,
            at_s,
            duration_us: nanos / 1000,
            args: words,
            addr: card.peer.addr(),
            name: card.labels.lock().name.to_string(),
        };
        database.slow_log.push(entry, config.slowlog_max_len);
    }
}

/// Sends what is still owed where the end allows it, and says in the log what the owner should know.
async fn close(mut connection: Connection, end: End) {
    connection.open.set(false);
    let client = connection.card.id;
    let addr = || connection.card.peer.addr();
    match &end {
        End::Eof | End::Asked | End::Killed => {}
        End::Io(error) => tracing::debug!(client, "the connection to {} failed: {error}", addr()),
        End::QueryLimit => {
            tracing::warn!(client, "closed: {} has sent more than client-query-buffer-limit at once", addr());
        }
        End::OutputLimit => {
            tracing::warn!(client, "closed: {} owes more replies than client-output-buffer-limit allows", addr());
        }
        End::Panic => {
            let work = connection.work.as_deref();
            let place = work.and_then(|work| work.batch.commands.get(work.batch.next).copied());
            let name = work.zip(place).map(|(work, place)| work.batch.args(place)[0].to_vec()).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).into_owned();
            tracing::error!(client, "a bug: command '{name}' panicked; the connection to {} is closed", addr());
        }
    }
    if matches!(end, End::Eof | End::Asked) {
        // Within bounds: it may never read them.
        let _ = tokio::time::timeout(FAREWELL, async {
            poll_fn(|cx| connection.poll_send(cx)).await.ok()?;
            poll_fn(|cx| connection.stream.poll_end(cx)).await.ok()
        })
        .await;
    }
    if stand_in::is_on() {
        // What its end takes, the store perhaps, is for when the thread goes on. The client learns of it now.
        connection.card.hang_up();
        tokio::task::yield_now().await;
    }
}
