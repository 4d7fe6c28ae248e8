//! Owns the commands that wait for a key (BLPOP and its like): how they wait, who runs them again, and what ends the
//! wait. Never knows which values they wait for.
//!
//! A blocked client keeps an owned copy of its command in a [`Blocked`]. The ticket of the command is in the queues
//! of its keys (`store::keyspace`). The worker that makes a key ready runs the commands blocked on that key, in order
//! and before the next command of its own client ([`follow_up`]). It hands each reply to the waiting connection. If a
//! blocked command meets a cold value, its own connection runs it, because that connection can wait for flash. The
//! commands behind it in the queue wait for it.
//!
//! Every run of a blocked command holds the stripes of all its keys and, inside them, the lock of its `State`. A
//! thread that holds only the lock of the `State` (a timeout, CLIENT UNBLOCK) finds the client waiting or done, never
//! in between.

use crate::access;
use crate::account::{Spent, account};
use crate::clients::ClientInfo;
use crate::config_snapshot::ConfigSnapshot;
use crate::error_replies::{NOT_OWNED, READ_ONLY, read_failed, reject};
use crate::execute::{Call, Stripes, execute, keys};
use crate::halt::End;
use crate::journaling::WriteAdmission;
use crate::prefetch::MISSES_MAX;
use crate::replication::Seen;
use crate::session::{Connection, withhold};
pub use crate::waiter::Blocked;
use crate::waiter::{Phase, Served, WaiterState};
use crate::worker::Worker;
use commands::host::{Replication, Unblock};
use commands::session::{Reply, Session};
use commands::{Block, Cx, Flag, Row, Stop, UntilReached};
use parking_lot::Mutex;
use resp::{Out, Span};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use store::{NotHeld, ReadError, Ready, Resume, Ticket};
use tokio::time::Sleep;

const NOW_REPLICA: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Blocked {
    /// The handler found nothing: the client enters the queues of its keys while the stripes of `cx` are still
    /// locked.
    #[cold]
    pub fn begin(cx: &mut Cx<'_>, row: &'static Row, client_info: &ClientInfo, block: &Block) {
        let keys = cx.keys;
        let ticket = cx.ks.wait(&keys[..block.keys], client_info.id, block.wants);
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for (at, arg) in cx.args.from(0).enumerate() {
            let rewritten = block.rewritten.iter().find(|(position, _)| *position == at);
            let arg = rewritten.map_or(arg, |(_, arg)| arg);
            spans.push(Span { start: bytes.len() as u32, len: arg.len() as u32 });
            bytes.extend_from_slice(arg);
        }
        let blocked = Arc::new(Blocked {
            row,
            bytes: bytes.into(),
            spans: spans.into(),
            client: client_info.id,
            user: cx.session.user.clone(),
            db: cx.ks.db(),
            proto: cx.out.proto(),
            touch: !cx.session.no_touch,
            follows: row.flags.contains(&Flag::Readonly)
                && cx.session.tracking.as_ref().is_some_and(|tracking| tracking.remembers()),
            keys: block.keys,
            ticket,
            until_ms: block.until_ms,
            until_reached: block.until_reached,
            at_timeout: block.at_timeout,
            state: Mutex::new(WaiterState {
                phase: Phase::Waiting,
                served: None,
                waker: None,
                count: None,
                counted: false,
            }),
        });
        *client_info.blocked.lock() = Some(blocked);
    }

    /// The error if the command's user may not run it any more.
    fn denied(&self, worker: &Worker, session: &Session) -> Option<String> {
        session.rights.as_ref()?;
        let command = worker.hub.directory.find(&self.args()[0])?;
        let denial = access::check(worker, session, command, self.args(), access::Context::TopLevel).err()?;
        Some(access::refusal(session, command, denial))
    }
}

// --- running it again ---

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Served,
    /// The command still waits, or its wait is already over.
    Nothing,
    /// The command's own connection must run it.
    Called,
}

/// Runs a blocked command once. `own`: the caller is the command's own connection. Only that connection may run a
/// command in phase `Called`.
fn attempt(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    blocked: &Blocked,
    client_info: &ClientInfo,
    own: bool,
    resume: &mut Resume,
) -> Attempt {
    let hub = &*worker.hub;
    let keys = keys(hub.dataset.store.hasher(), blocked.row.keys, blocked.args(), &mut Vec::new());
    let awaited = &keys[..blocked.keys];
    resume.client = blocked.client;
    let mut session = Session::new(blocked.client, true, false);
    (session.db, session.proto, session.no_touch) = (blocked.db, blocked.proto, !blocked.touch);
    session.user = blocked.user.clone();
    // Its reply is made in the turn of another client, which does not wait.
    session.claim.granted = usize::MAX;
    access::refresh(hub, &mut session);
    // The user's rights may have changed since the command was blocked.
    let is_write = blocked.row.flags.contains(&Flag::Write);
    let may_not_write = is_write && worker.hub.dataset.journaling.write_admission() == WriteAdmission::ReadOnly;
    let denied = match may_not_write {
        true => Some(READ_ONLY.to_owned()),
        false => blocked.denied(worker, &session),
    };
    let (mut reply, mut ended, mut runs) = (Vec::new(), None, false);
    // Hold the lock until the reply is stored: a timeout must not come between the run and its reply.
    let mut held = None;
    let call = Call { row: blocked.row, name: blocked.row.name, is_barrier: false, args: blocked.args(), keys: &keys };
    let engine = worker.engine(snapshot, worker.now_ms());
    let stripes = Stripes::Patiently(resume);
    let outcome = execute(&engine, &mut session, call, stripes, &mut reply, |locked| {
        let state = held.insert(blocked.state.lock());
        match state.phase {
            Phase::Waiting => {}
            Phase::Called if own => state.phase = Phase::Waiting,
            Phase::Called => return Ok(Attempt::Called),
            Phase::Served | Phase::Failed | Phase::Ended(_) => return Ok(Attempt::Nothing),
        }
        // What the command changes is told to its own client after the reply.
        client_info.outbox.owe_reply();
        runs = true;
        let begun = worker.ticks();
        let is_denied = denied.is_some();
        let result = match denied {
            Some(text) => Err(Stop::Error(text.into())),
            None => locked.run(),
        };
        let nanos = (!is_denied).then(|| worker.nanos(begun, worker.ticks()));
        let ks = &mut locked.cx.ks;
        let error = match result {
            Ok(()) => {
                if blocked.follows {
                    keys.iter().for_each(|key| hub.tracking.remember(hub, key.name, blocked.client));
                }
                None
            }
            Err(Stop::Error(text)) => Some(text.into_owned()),
            Err(Stop::Cold | Stop::Yield) => {
                state.turn(Phase::Called);
                return Ok(Attempt::Called);
            }
            Err(Stop::Exchange | Stop::Memory | Stop::NotHeld(_)) => {
                unreachable!("what waits for a key asks for nothing else")
            }
            Err(Stop::Block(_)) => {
                state.recount();
                if own {
                    ks.pass_on(awaited, blocked.ticket);
                }
                return Ok(Attempt::Nothing);
            }
        };
        ks.leave(awaited, blocked.ticket);
        if own {
            ks.pass_on(awaited, blocked.ticket);
        }
        ended = Some((error, nanos));
        Ok(Attempt::Served)
    });
    match (ended, held) {
        (Some((error, nanos)), Some(mut state)) => state.answer(Phase::Served, blocked, reply, error, nanos),
        // It has found nothing again, or its own connection must run it.
        _ if runs => client_info.outbox.answered(),
        _ => {}
    }
    match outcome {
        Err(Stop::NotHeld(NotHeld::NotOwned)) => {
            blocked.unblock(Unblock::NotOwned);
            Attempt::Nothing
        }
        outcome => outcome.expect("waited for as long as it takes"),
    }
}

/// Runs the commands blocked on the keys that a command has made ready, in order. These commands may make further
/// keys ready, whose commands run too. No stripe is locked.
#[cold]
fn serve(worker: &Worker, snapshot: &ConfigSnapshot, by: &mut Resume) {
    let hub = &worker.hub;
    let mut keys: VecDeque<Ready> = by.ready.drain(..).collect();
    while let Some(mut key) = keys.pop_front() {
        while let Some((ticket, client)) = hub.dataset.store.waiter(&key) {
            key.behind(ticket);
            let Some(client_info) =
                hub.clients.client_info(client).filter(|client_info| !client_info.killed.load(Relaxed))
            else {
                continue;
            };
            let blocked = client_info.blocked.lock().clone().filter(|blocked| blocked.ticket == ticket);
            let Some(blocked) = blocked else { continue };
            let mut resume = Resume::default();
            let outcome = attempt(worker, snapshot, &blocked, &client_info, false, &mut resume);
            keys.extend(resume.ready.drain(..));
            by.touched.append(&mut resume.touched);
            if outcome == Attempt::Called {
                // The commands behind it wait until its own connection has run it.
                break;
            }
        }
    }
}

/// What is left to do before this client's next command: run the commands blocked on keys that this command made
/// ready, and, in the force-demote mode, move the touched values out of RAM. No stripe is locked.
#[inline]
pub fn follow_up(worker: &Worker, snapshot: &ConfigSnapshot, resume: &mut Resume) {
    if !resume.ready.is_empty() {
        serve(worker, snapshot, resume);
    }
    if !resume.touched.is_empty() {
        worker.lane().force_demote(worker.now_ms(), &mut resume.touched);
    }
}

/// The connection runs its own blocked command: it reads the cold values first.
async fn run_own(worker: &Rc<Worker>, blocked: &Blocked, client_info: &ClientInfo) {
    let mut resume = Resume::default();
    let mut read = Vec::new();
    let mut misses = 0;
    while attempt(worker, &worker.config_snapshot(), blocked, client_info, true, &mut resume) == Attempt::Called {
        misses += 1;
        if let Err(error) = fetch(worker, &mut resume, misses > MISSES_MAX, &mut read).await {
            let text = Some(read_failed(&error).into_owned());
            let mut state = blocked.state.lock();
            if state.phase == Phase::Called {
                state.answer(Phase::Failed, blocked, Vec::new(), text, Some(0));
            }
            break;
        }
    }
    let mut lane = worker.lane();
    read.drain(..).for_each(|ticket| lane.release(ticket));
    drop(lane);
    follow_up(worker, &worker.config_snapshot(), &mut resume);
}

/// Reads the values that a run found cold. They stay in RAM until the tickets in `read` are released.
async fn fetch(worker: &Worker, resume: &mut Resume, at_once: bool, read: &mut Vec<Ticket>) -> Result<(), ReadError> {
    if let Some(error) = resume.failed.take() {
        return Err(error);
    }
    let cold = std::mem::take(&mut resume.cold);
    if cold.is_empty() {
        tokio::task::yield_now().await;
        return Ok(());
    }
    if at_once {
        return cold.into_iter().try_for_each(|cold| worker.lane().read_now(cold, resume));
    }
    let first = read.len();
    read.extend(cold.into_iter().map(|cold| worker.lane().read(cold)));
    worker.lane().submit();
    for ticket in &read[first..] {
        poll_fn(|cx| worker.lane().poll(ticket, cx.waker(), resume)).await?;
    }
    Ok(())
}

// --- waiting ---

/// A client's place in the queues of its keys. Dropping it leaves the queues, whatever ends the wait.
struct QueuedWait {
    worker: Rc<Worker>,
    client_info: Arc<ClientInfo>,
    blocked: Arc<Blocked>,
}

impl QueuedWait {
    fn take(connection: &Connection) -> QueuedWait {
        let blocked = connection.client_info.blocked.lock().clone().expect("its command has entered the queues");
        {
            // Another worker may already have served the command.
            let mut state = blocked.state.lock();
            state.count = Some(Arc::clone(&connection.worker.hub.clients.blocked));
            state.recount();
        }
        QueuedWait { worker: Rc::clone(&connection.worker), client_info: Arc::clone(&connection.client_info), blocked }
    }
}

impl Drop for QueuedWait {
    fn drop(&mut self) {
        let QueuedWait { worker, client_info, blocked } = self;
        *client_info.blocked.lock() = None;
        if blocked.until_reached.is_some() {
            worker.commit_waiter.forget(blocked.client);
            worker.hub.dataset.links.forget(blocked.client);
        }
        let phase = {
            let mut state = blocked.state.lock();
            if state.counted {
                worker.hub.clients.blocked.fetch_sub(1, Relaxed);
                state.counted = false;
            }
            state.count = None;
            state.phase
        };
        if blocked.keys == 0 || phase == Phase::Served {
            return;
        }
        let store = &worker.hub.dataset.store;
        let mut resume = Resume::default();
        {
            let keys = keys(store.hasher(), blocked.row.keys, blocked.args(), &mut Vec::new());
            let awaited = &keys[..blocked.keys];
            let mut ks = store.lock(awaited, blocked.db, worker.now_ms(), false, &mut resume);
            ks.leave(awaited, blocked.ticket);
            // Commands behind it may have waited for this one.
            ks.pass_on(awaited, blocked.ticket);
            ks.finish();
        }
        follow_up(worker, &worker.config_snapshot(), &mut resume);
    }
}

/// Waits until a blocked command has its reply, and copies the reply into the output. The connection keeps receiving:
/// new commands run after this one, and the end of the connection ends the wait.
pub async fn sit(connection: &mut Connection) -> Result<(), End> {
    let place = QueuedWait::take(connection);
    let blocked = &*place.blocked;
    let begun = connection.worker.hub.dataset.journaling.seen();
    connection.hand_over();
    // Send the earlier replies now; they must not wait with the blocked command.
    connection.send()?;
    let mut sleep = blocked.until_ms.map(|until_ms| {
        let left_ms = until_ms.saturating_sub(connection.worker.now_ms());
        Box::pin(tokio::time::sleep(Duration::from_millis(left_ms)))
    });
    while !poll_fn(|cx| poll_wait(connection, blocked, sleep.as_mut(), cx)).await? {
        connection.worker.refresh_now_ms();
        run_own(&connection.worker, blocked, &connection.client_info).await;
    }
    connection.withdraw();
    answer(connection, blocked, begun)
}

/// Ready(true): the wait is over. Ready(false): this connection must run the command.
fn poll_wait(
    connection: &mut Connection,
    blocked: &Blocked,
    sleep: Option<&mut Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<Result<bool, End>> {
    {
        let mut state = blocked.state.lock();
        match state.phase {
            Phase::Waiting => state.waker = Some(cx.waker().clone()),
            Phase::Called => return Poll::Ready(Ok(false)),
            Phase::Served | Phase::Failed | Phase::Ended(_) => return Poll::Ready(Ok(true)),
        }
    }
    if let Some(until) = &blocked.until_reached
        && poll_reached(&connection.worker, blocked, until, cx)
    {
        return Poll::Ready(Ok(true));
    }
    if let Some(sleep) = sleep
        && sleep.as_mut().poll(cx).is_ready()
    {
        // If the command was served at this moment instead, its wait is over too.
        blocked.unblock(Unblock::Timeout);
        return Poll::Ready(Ok(true));
    }
    connection.poll_listen(cx)?;
    Poll::Pending
}

/// Whether the wait is over because the writes are where the command wants them, or because there is no journal any more.
fn poll_reached(worker: &Worker, blocked: &Blocked, until: &UntilReached, cx: &Context<'_>) -> bool {
    let here = match until.waits_here {
        true => worker.commit_waiter.poll_durable(until.position, blocked.client, cx),
        false => Poll::Ready(true),
    };
    let has_journal = here != Poll::Ready(false);
    let sent = (until.offset, until.durably);
    let there = worker.hub.dataset.links.poll_count(blocked.client, sent, until.replicas, cx);
    if has_journal && (here.is_pending() || there.is_pending()) {
        return false;
    }
    let (mut reply, error) = (Vec::new(), (!has_journal).then(|| until.without.to_owned()));
    (until.reply)(&mut Out::new(&mut reply, blocked.proto), worker.reached(until));
    let mut state = blocked.state.lock();
    // The wait may have been ended in between.
    if state.waits() {
        state.answer(Phase::Served, blocked, reply, error, Some(0));
    }
    true
}

/// `begun`: what was to be seen when the wait began.
fn answer(connection: &mut Connection, blocked: &Blocked, begun: Seen) -> Result<(), End> {
    let Connection { worker, session, client_info, work, .. } = connection;
    worker.refresh_now_ms();
    let (snapshot, stats) = (worker.config_snapshot(), worker.stats());
    let work = work.get_or_insert_with(|| worker.take_work());
    work.begin_output();
    let output = &mut work.output;
    let (phase, served) = {
        let mut state = blocked.state.lock();
        (state.phase, state.served.take())
    };
    let Served { reply, error, nanos } = served.unwrap_or_else(|| {
        let (mut reply, mut error) = (Vec::new(), None);
        if phase == Phase::Ended(Unblock::NotOwned) {
            reject(session, &mut reply);
            return Served { reply, error: Some(NOT_OWNED.to_owned()), nanos: Some(0) };
        }
        let mut out = Out::new(&mut reply, session.proto);
        let text = match phase {
            Phase::Ended(Unblock::Error) => Some("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            Phase::Ended(Unblock::Replica) => Some(NOW_REPLICA),
            Phase::Ended(Unblock::NoShutdown) => Some("ERR Errors trying to SHUTDOWN. Check logs."),
            _ => None,
        };
        if let Some(text) = text {
            out.error(text);
            error = Some(text.to_owned());
        } else if let Some(until) = &blocked.until_reached {
            (until.reply)(&mut out, worker.reached(until));
        } else {
            (blocked.at_timeout)(&mut out);
        }
        Served { reply, error, nanos: Some(0) }
    });
    client_info.outbox.hold();
    client_info.outbox.drain_before_reply(output);
    let reply_from = output.len();
    output.extend_from_slice(&reply);
    client_info.outbox.answered();
    if let Some(error) = &error {
        stats.error(error);
    }
    let args = blocked.args();
    if let Some(command) = worker.hub.directory.find(&args[0]) {
        match nanos {
            Some(nanos) => {
                let spent = Spent { nanos, failed: error.is_some(), met_flash: None, in_script: false };
                account(worker, &snapshot, client_info, command, || args, spent, worker.now_ms());
            }
            None => stats.by_command[command.id].rejected.add(1),
        }
    }
    stats.commands.add(1);
    if session.reply != Reply::On {
        withhold(session, output, reply_from);
    }
    client_info.outbox.drain_into(output);
    // Another worker may have written for it.
    let seen = worker.hub.dataset.journaling.seen();
    // A command that was not served has seen nothing. Its rejection must not wait: the copy is being closed.
    let term = if phase == Phase::Served { begun.term } else { seen.term };
    if phase != Phase::Ended(Unblock::NotOwned) {
        work.has_seen(Seen { journal: 0, term, ..seen }, seen);
    }
    session.written.to = seen.journal;
    if blocked.until_reached.is_none() {
        session.replicated.to = worker.hub.dataset.journaling.stream.offset();
    }
    let output_bytes = work.output.len();
    if phase == Phase::Ended(Unblock::Replica) {
        return Err(End::Asked);
    }
    if output_bytes > snapshot.output_bytes_max {
        stats.output_limit_closed.add(1);
        return Err(End::OutputLimit);
    }
    Ok(())
}
