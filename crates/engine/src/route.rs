//! Owns where an admitted command goes: into the queue of a transaction, to EXEC, to a script, or to its handler. And the usual
//! command's shortcut to its handler, without being asked whether it may run.
//! Also owns what the connection must do if the command does not return a reply. Today every dataset is on this node;
//! later, a key's slot will lead from here to another shard. Never knows what a command does.

use crate::batch::{ArgumentSpan, Prepared};
use crate::blocked::Blocked;
use crate::clients::{ClientInfo, NO_COMMAND};
use crate::config_snapshot::ConfigSnapshot;
use crate::directory::{Command, bit};
use crate::error_replies::read_failed;
use crate::execute::{Around, Call, Stripes, completed, execute, follow, keys, lose, only_key};
use crate::halt::{Halt, Wait};
use crate::hub::Hub;
use crate::journaling::WriteAdmission;
use crate::prefetch::prefetch;
use crate::work::{Current, Failed, Work};
use crate::worker::Worker;
use crate::{lost, nested_poll, script, transaction};
use commands::session::{Reply, Rerun, Session};
use commands::{Args, Cx, Run, Stop};
use resp::Out;
use std::sync::atomic::Ordering::Relaxed;
use store::{Admission, Key};

/// Routes an admitted command. Returns the command if it has run, and `None` if it was only queued.
#[inline(never)]
pub fn route<'w>(
    worker: &'w Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    (command, place): (&'w Command, ArgumentSpan),
    now_ms: u64,
) -> (Option<&'w Command>, Result<(), Box<Halt>>) {
    if session.multi.is_some() && !command.is(bit::UNQUEUED) {
        let args = work.batch.args(place);
        let queued = transaction::queue(
            worker,
            snapshot,
            session,
            client_info,
            &mut work.current,
            (command, args),
            &mut work.output,
        );
        return (None, queued.map_err(Box::new));
    }
    let is_exec = session.multi.is_some() && command.is(bit::EXEC);
    if !is_exec && !command.is(bit::SCRIPT) {
        return (Some(command), handle(worker, snapshot, session, client_info, work, (command, place), now_ms));
    }
    // CLIENT LIST shows what the client has given, and not the commands inside.
    client_info.note_command(command.id);
    let result = match is_exec {
        true => transaction::exec(worker, snapshot, session, client_info, work, now_ms),
        false => script::run(worker, snapshot, session, client_info, work, command, now_ms),
    };
    if !matches!(result, Err(Halt::Wait(_))) {
        forget_caching(session);
    }
    (Some(command), result.map_err(Box::new))
}

/// Whether nothing about the database and the connection needs [`admit`](crate::admit::admit) or the checks of [`route`]. This is checked
/// only once in a while: what another worker begins meanwhile takes effect after the commands of this turn.
#[inline]
pub fn may_take_fast_path(worker: &Worker, session: &Session) -> bool {
    let is_special = session.is_confined()
        | session.multi.is_some()
        | session.tracking.is_some()
        | (session.reply != Reply::On)
        | session.rerun.is_some()
        | session.rejects();
    !is_special && is_calm(&worker.hub)
}

/// The same for the database alone.
#[inline]
pub fn is_calm(hub: &Hub) -> bool {
    !nested_poll::is_on() && !hub.monitors.any() && hub.scripts.busy().is_none() && !hub.clients.may_be_paused()
}

/// The usual command's shortcut, allowed while [`may_take_fast_path`] is true: the command's row says that it needs nothing but its
/// handler. The long way takes half as many instructions again. `None`: it is another command, or may not run now.
#[inline(always)]
pub fn shortcut<'w>(
    worker: &'w Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    place: ArgumentSpan,
    now_ms: u64,
) -> Option<(&'w Command, Result<(), Box<Halt>>)> {
    let hub = &*worker.hub;
    let Work { batch, output, current, .. } = work;
    if current.again {
        return None;
    }
    let args = batch.args(place);
    let (command, hash) = match batch.known() {
        Some(&Prepared { command, hash, .. }) => (hub.directory.at(command?), hash),
        None => (hub.directory.find(&args[0])?, None),
    };
    if !command.is(bit::PLAIN) || !command.takes(args.len()) || !is_open(worker, command) {
        return None;
    }
    let name = args.get(command.only_key?.get())?;
    let key = Key { name, hash: hash.unwrap_or_else(|| hub.dataset.store.hasher().hash(name)) };
    let call = Call { is_barrier: false, ..command.call(args, std::slice::from_ref(&key)) };
    let engine = worker.engine(snapshot, now_ms);
    let stripes = Stripes::InTime(&mut current.resume);
    let outcome = execute(&engine, session, call, stripes, output, |locked| {
        locked.run().or_else(|stop| enter_queues(&mut locked.cx, command, client_info, stop))
    });
    Some((command, halt_of(worker, session, work, outcome)))
}

/// Whether nothing about the dataset keeps a plain command from running now.
#[inline(always)]
pub fn is_open(worker: &Worker, command: &Command) -> bool {
    let hub = &*worker.hub;
    if command.is(bit::DENYOOM) && hub.dataset.store.admission() != Admission::Open {
        return false;
    }
    // Writes are checked each time: a thread that pauses writers relies on it.
    !command.is(bit::WRITE)
        || (!hub.clients.may_be_paused() && hub.dataset.journaling.write_admission() == WriteAdmission::Open)
}

/// The command that CLIENT LIST shows for one that was not admitted.
#[cold]
pub fn shown(worker: &Worker, args: Args<'_>) -> usize {
    let found = worker.hub.directory.find(&args[0]);
    found.map_or(NO_COMMAND, |command| command.subcommand(&args).unwrap_or(command).id)
}

/// Handles a command that was not admitted: a transaction fails with it.
pub fn refused(worker: &Worker, session: &mut Session, args: Args<'_>, halt: Halt) -> Halt {
    match halt {
        Halt::Error(text) => Halt::Error(transaction::refused(worker, session, args, text)),
        halt => halt,
    }
}

/// Runs a command's own handler, or says what the command must wait for.
#[inline(always)]
fn handle(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    (command, place): (&Command, ArgumentSpan),
    now_ms: u64,
) -> Result<(), Box<Halt>> {
    if let Some(failed) = work.current.failed.take()
        && let Some(ended) =
            cannot_go_on(worker, snapshot, session, client_info, work, (command, place), now_ms, failed)
    {
        return ended;
    }
    if command.is(bit::KEYLESS) {
        // CLIENT LIST shows the caller with the command that is running.
        client_info.note_command(command.id);
        if command.is(bit::KEEPS_CACHING) {
            // CLIENT itself is still in the query buffer.
            client_info.query_bytes.store(work.batch.bytes_from(place), Relaxed);
        }
    }
    let outcome = call(worker, snapshot, session, client_info, work, (command, place), now_ms);
    halt_of(worker, session, work, outcome)
}

/// What the outcome of a run means for the connection.
#[inline(always)]
fn halt_of(worker: &Worker, session: &mut Session, work: &mut Work, outcome: Run) -> Result<(), Box<Halt>> {
    outcome.map_err(|stop| halt(worker, session, work, stop))
}

#[cold]
fn halt(worker: &Worker, session: &mut Session, work: &mut Work, stop: Stop) -> Box<Halt> {
    Box::new(match stop {
        Stop::Cold => cold(worker, session, work),
        Stop::Yield => yields(worker, work),
        Stop::Block(_) => Halt::Wait(Wait::Key),
        Stop::Exchange => Halt::Wait(Wait::Exchange),
        Stop::Memory => Halt::Wait(Wait::Memory),
        Stop::NotHeld(why) => why.into(),
        Stop::Error(text) => Halt::Error(text),
    })
}

/// The command has met a cold value: starts the reads, unless one has failed.
#[cold]
fn cold(worker: &Worker, session: &mut Session, work: &mut Work) -> Halt {
    match work.current.resume.failed.take() {
        Some(error) => Halt::Error(read_failed(&error)),
        None => {
            prefetch(worker, session, work);
            Halt::Wait(Wait::Flash)
        }
    }
}

/// A long command lets others run. Starts the reads that it will wait for later.
#[cold]
fn yields(worker: &Worker, work: &mut Work) -> Halt {
    let Current { resume, awaited, .. } = &mut work.current;
    if !resume.cold.is_empty() {
        let mut lane = worker.lane();
        awaited.extend(resume.cold.drain(..).map(|cold| lane.read(cold)));
        lane.submit();
    }
    Halt::Wait(Wait::Turn)
}

/// Decides how a command ends that cannot go on. `None`: it runs all the same.
#[cold]
#[expect(clippy::too_many_arguments)]
fn cannot_go_on(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    Work { batch, output, current, positions, .. }: &mut Work,
    (command, place): (&Command, ArgumentSpan),
    now_ms: u64,
    failed: Failed,
) -> Option<Result<(), Box<Halt>>> {
    let error = match failed {
        Failed::Read(error) => error,
        Failed::Memory(text) => return Some(Err(Box::new(Halt::Error(text)))),
    };
    if error.is_damage() && lost::removes(command) && !current.resume.removes_unread {
        current.resume.removes_unread = true;
        return None;
    }
    if !session.rerun.is_some_and(Rerun::goes_on) || !error.is_damage() {
        return Some(Err(Box::new(Halt::Error(read_failed(&error)))));
    }
    let args = batch.args(place);
    let hub = &*worker.hub;
    let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
    current.resume.clear();
    let mut ks =
        match hub.dataset.store.try_lock(&keys, session.db, now_ms, false, session.reach(), &mut current.resume) {
            Ok(ks) => ks,
            Err(why) => {
                current.failed = Some(Failed::Read(error));
                return Some(Err(Box::new(why.into())));
            }
        };
    let around = Around { worker, snapshot, client_info, is_script: false };
    lose(&around, session, &mut ks, command, args, &keys, &error, output);
    ks.finish();
    // The thread that applies the primary's stream counts this error as a failed command.
    if session.rerun == Some(Rerun::Primary) {
        return Some(Err(Box::new(Halt::Error(read_failed(&error)))));
    }
    Out::new(output, session.proto).ok();
    Some(Ok(()))
}

/// Runs the handler with the stripes of its keys locked.
#[inline(always)]
fn call(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    Work { batch, output, current, positions, .. }: &mut Work,
    (command, place): (&Command, ArgumentSpan),
    now_ms: u64,
) -> Run {
    let args = batch.args(place);
    let hasher = worker.hub.dataset.store.hasher();
    let only = only_key(hasher, command, args, || batch.known().and_then(|known| known.hash));
    let several;
    let keys = match &only {
        Some(key) => std::slice::from_ref(key),
        None => {
            several = keys(hasher, command.row.keys, args, positions);
            &*several
        }
    };
    let engine = worker.engine(snapshot, now_ms);
    let stripes = Stripes::InTime(&mut current.resume);
    execute(&engine, session, command.call(args, keys), stripes, output, |locked| {
        let result = locked.run();
        let cx = &mut locked.cx;
        if cx.session.tracking.is_some() {
            follow(worker, cx.session, command, keys, &result);
            if cx.session.multi.is_none() && !command.is(bit::KEEPS_CACHING) && completed(&result) {
                forget_caching(cx.session);
            }
        }
        result.or_else(|stop| enter_queues(cx, command, client_info, stop))
    })
}

/// A command that waits for a key enters the queues of its keys while their stripes are locked.
#[cold]
fn enter_queues(cx: &mut Cx<'_>, command: &Command, client_info: &ClientInfo, stop: Stop) -> Run {
    let Stop::Block(block) = stop else { return Err(stop) };
    // Nobody else would end the wait: what repeats commands waits for each of them.
    if cx.session.repeats {
        (block.at_once)(&mut cx.out);
        return Ok(());
    }
    client_info.note_command(command.id);
    Blocked::begin(cx, command.row, client_info, &block);
    Err(Stop::Block(block))
}

/// CLIENT CACHING applies to the next command, or to the whole next transaction.
#[cold]
fn forget_caching(session: &mut Session) {
    if let Some(tracking) = &mut session.tracking {
        tracking.caching = false;
    }
}
