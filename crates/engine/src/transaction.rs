//! Owns the execution of a transaction: the queued commands run as one, with the stripes of all their keys and of the
//! watched keys locked. Never knows what a command does.

use crate::access::{self, Context};
use crate::acl;
use crate::admit::{DATASET, is_closed, is_stale, may_write};
use crate::clients::ClientInfo;
use crate::config_snapshot::ConfigSnapshot;
use crate::directory::{Command, bit};
use crate::error_replies::{STALE, read_failed};
use crate::execute::{Around, inside, inside_by, keys, rehearse};
use crate::halt::{End, Halt, Wait};
use crate::journaling::effects_bytes_max;
use crate::memory::{FREE_BYTES, Need, TooMuch};
use crate::prefetch::prefetch;
use crate::script;
use crate::work::{Current, Failed, Work};
use crate::worker::Worker;
use commands::Args;
use commands::host::Denial;
use commands::session::{Claim, Multi, Rerun, Session};
use resp::Out;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use store::{Admission, Key, Keyspace, Watches};

/// What an object and its entry take beside the arguments of the command that makes it.
const OBJECT_BYTES: usize = 64;
/// The queued bytes that are charged at once.
const QUEUE_STEP_BYTES: usize = 64 << 10;

/// Queues a command until EXEC.
#[cold]
pub fn queue(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    current: &mut Current,
    (command, args): (&Command, Args<'_>),
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let mut out = Out::new(output, session.proto);
    let Some(multi) = &mut session.multi else { return Ok(()) };
    if command.is(bit::NO_MULTI) {
        multi.failed = true;
        return Err(Halt::Error("ERR Command not allowed inside a transaction".into()));
    }
    if multi.failed {
        // EXEC will refuse it, so nothing needs to be kept.
        out.simple("QUEUED");
        return Ok(());
    }
    let bytes = Multi::bytes_of(args);
    // Charged in steps, so that most commands touch no shared counter.
    let step = |bytes: usize| bytes / QUEUE_STEP_BYTES;
    // Of a journal that is replayed nothing is refused.
    let has_room = session.rerun.is_some_and(Rerun::has_room);
    if !has_room && step(multi.bytes + bytes) > step(multi.bytes) {
        let charged =
            charge(worker, client_info, &mut session.claim, current, multi.bytes, QUEUE_STEP_BYTES.max(bytes));
        if let Err(Halt::Error(_)) = charged {
            multi.fail();
            session.changed = true;
        }
        charged?;
    }
    multi.push(args);
    session.changed = true;
    // Queued commands count towards the client's query buffer limit.
    if !session.repeats && multi.bytes > snapshot.query_bytes_max {
        return Err(Halt::End(End::QueryLimit));
    }
    out.simple("QUEUED");
    Ok(())
}

/// Charges the connection for `bytes` more of its queue, which has `queued` bytes. Nothing is locked, so it can wait until objects have
/// made room.
fn charge(
    worker: &Worker,
    client_info: &ClientInfo,
    claim: &mut Claim,
    current: &mut Current,
    queued: usize,
    bytes: usize,
) -> Result<(), Halt> {
    let (store, memory) = (&worker.hub.dataset.store, &worker.hub.dataset.memory);
    if let Some(Failed::Memory(text)) = current.failed.take() {
        return Err(Halt::Error(text));
    }
    if claim.granted >= bytes || memory.ask_now(client_info, bytes) {
        return Ok(());
    }
    if !store.can_make_room() || memory.check(queued + bytes).is_err() {
        return Err(Halt::Error(memory.too_much(queued + bytes).text().into()));
    }
    claim.wanted = bytes;
    Err(Halt::Wait(Wait::Memory))
}

/// Handles a command that is not admitted. A transaction that is being queued is marked, so that EXEC refuses it. If the
/// command is EXEC itself, the transaction ends now.
#[cold]
pub fn refused(worker: &Worker, session: &mut Session, args: Args<'_>, text: Cow<'static, str>) -> Cow<'static, str> {
    if worker.hub.directory.find(&args[0]).is_some_and(|command| command.is(bit::EXEC)) {
        session.multi = None;
        session.watches.clear();
        session.changed = true;
        return format!("EXECABORT Transaction discarded because of: {text}").into();
    }
    if let Some(multi) = &mut session.multi {
        multi.failed = true;
    }
    text
}

/// EXEC inside MULTI. A transaction that must wait stays queued.
#[cold]
pub fn exec(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    now_ms: u64,
) -> Result<(), Halt> {
    let Some(multi) = session.multi.take() else { return Ok(()) };
    let watches = std::mem::take(&mut session.watches);
    let result = run_queued(worker, snapshot, session, client_info, work, (&multi, &watches), now_ms);
    if matches!(result, Err(Halt::Wait(_))) {
        session.multi = Some(multi);
        session.watches = watches;
    } else {
        session.changed = true;
    }
    if matches!(result, Err(Halt::Wait(Wait::Flash))) {
        prefetch(worker, session, work);
    }
    result
}

/// A command of the transaction, and the positions of its keys among all keys.
struct Step<'a> {
    command: &'a Command,
    args: Args<'a>,
    keys: Range<usize>,
}

fn run_queued(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    (multi, watches): (&Multi, &Watches),
    now_ms: u64,
) -> Result<(), Halt> {
    if multi.failed {
        return Err(Halt::Error("EXECABORT Transaction discarded because of previous errors.".into()));
    }
    if watches.changed() {
        Out::new(&mut work.output, session.proto).null_array();
        return Ok(());
    }
    let hub = &*worker.hub;
    let mut all: SmallVec<[Key<'_>; 16]> = SmallVec::new();
    let mut steps: SmallVec<[Step<'_>; 8]> = SmallVec::new();
    let mut bits = 0;
    for queued in &multi.commands {
        let args = queued.args();
        let found = hub.directory.find(&args[0]).or_else(|| hub.directory.original(&args[0]));
        let mut command = found.expect("it was found when it was queued");
        if let Some(subcommand) = command.subcommand(&args) {
            command = subcommand;
        }
        let from = all.len();
        all.extend(keys(hub.dataset.store.hasher(), command.row.keys, args, &mut work.positions));
        bits |= command.bits;
        steps.push(Step { command, args, keys: from..all.len() });
    }
    if hub.clients.may_be_paused() && !acl::is_loader(&session.user) {
        let may_write =
            |step: &Step<'_>| step.command.is(bit::SCRIPT) && script::may_write(hub, step.command, step.args);
        let writes = bits & (bit::WRITE | bit::MAY_REPLICATE) != 0 || steps.iter().any(may_write);
        if hub.clients.is_paused(writes, now_ms) {
            return Err(Halt::Wait(Wait::Pause { writes }));
        }
    }
    // The commands of a script are checked when the script runs.
    if is_stale(worker, session) && !steps.iter().all(|step| step.command.is(bit::STALE)) {
        return Err(Halt::Error(format!("EXECABORT Transaction discarded because of: {STALE}").into()));
    }
    if is_closed(worker, session) && bits & DATASET != 0 {
        return Err(Halt::NotOwned);
    }
    if multi.bytes > snapshot.settings.claim_free_bytes && bits & bit::WRITE != 0 {
        keep_room(worker, session, client_info, &mut work.current, multi, &steps)?;
    }
    may_run(worker, session, &work.current, bits)?;
    let Work { output, current, .. } = &mut *work;
    let has_failed = std::mem::take(&mut current.failed).is_some();
    let rounds = current.misses;
    let (db, touch) = (session.db, !session.no_touch);
    // A script may touch keys that it does not declare. Another script that holds such a key might wait for one of
    // ours. A transaction that has started can neither give its stripes back nor fail halfway. So EXEC locks every
    // stripe first.
    let locked = if bits & (bit::WHOLE | bit::SCRIPT) != 0 {
        hub.dataset.store.try_lock_all(db, now_ms, touch, session.reach(), &mut current.resume)
    } else {
        let mut locked = all.clone();
        locked.extend(watches.keys());
        hub.dataset.store.try_lock(&locked, db, now_ms, touch, session.reach(), &mut current.resume)
    };
    let mut ks = locked.map_err(Halt::from)?;
    if let Err(why) = ks.reach(&all, session.reach()) {
        ks.finish();
        return Err(why.into());
    }
    let ready = match rounds {
        ..PREPARE_MAX if !has_failed => prepare(worker, session, &mut ks, watches, &steps, &all),
        // Values that are still cold are read when a command needs them.
        _ => unchanged_at_once(&mut ks, session, watches),
    };
    let result = match ready {
        Ok(true) => {
            if session.claim.room_granted > 0 {
                ks.expect_effects(multi.bytes);
            }
            let around = Around { worker, snapshot, client_info, is_script: false };
            run_steps(&around, session, &mut ks, &steps, &all, output)
        }
        Ok(false) => {
            Out::new(output, session.proto).null_array();
            Ok(())
        }
        Err(store::Cold) => Err(match ks.resume.failed.take() {
            Some(error) => Halt::Error(read_failed(&error)),
            None => Halt::Wait(Wait::Flash),
        }),
    };
    ks.finish();
    result
}

/// Keeps room for what a large transaction makes, before its first change: objects as large as its arguments, and their way into the
/// journal. Once it has begun it cannot wait, and others cannot make room for it.
#[cold]
fn keep_room(
    worker: &Worker,
    session: &mut Session,
    client_info: &ClientInfo,
    current: &mut Current,
    multi: &Multi,
    steps: &[Step<'_>],
) -> Result<(), Halt> {
    let (store, memory) = (&worker.hub.dataset.store, &worker.hub.dataset.memory);
    // What was accepted elsewhere is not refused.
    if session.claim.room_granted > 0 || session.rerun.is_some_and(Rerun::has_room) || acl::is_loader(&session.user) {
        return Ok(());
    }
    let (mut count, mut words, mut bytes) = (0, 0, 0);
    for step in steps.iter().filter(|step| step.command.is(bit::WRITE)) {
        count += 1;
        words += step.args.len();
        bytes += step.args.from(0).map(<[u8]>::len).sum::<usize>();
    }
    let effects = if store.records_effects() { effects_bytes_max(count, words, bytes) } else { 0 };
    let room = bytes + count * OBJECT_BYTES + effects;
    let refused = |too_much: TooMuch| {
        let text = format!("EXECABORT Transaction discarded because of: {}", too_much.text());
        Err(Halt::Error(text.into()))
    };
    if session.claim.room > 0 && current.failed.take().is_some() {
        return refused(memory.too_much(multi.bytes + room));
    }
    if let Err(too_much) = memory.check(Need { bytes: multi.bytes, room }) {
        return refused(too_much);
    }
    session.claim.room = room;
    let need = Need { bytes: 0, room };
    if memory.ask_at_once(client_info, need) {
        session.claim.room_granted = room;
        return Ok(());
    }
    if !store.can_make_room() {
        return refused(memory.too_much(multi.bytes + room));
    }
    Err(Halt::Wait(Wait::Memory))
}

fn unchanged_at_once(ks: &mut Keyspace<'_>, session: &Session, watches: &Watches) -> Result<bool, store::Cold> {
    let mut inner = ks.inner(session.db, !session.no_touch);
    let unchanged = inner.unchanged(watches);
    inner.finish();
    unchanged
}

/// Runs the commands of a transaction that has run elsewhere, or earlier. Its reply has the errors only: nobody reads more of it, no limit
/// of clients may end it, and it may have more commands than there is memory for their replies.
fn repeat_steps(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    steps: &[Step<'_>],
    all: &[Key<'_>],
    output: &mut Vec<u8>,
) {
    let (mut errors, mut count) = (Vec::new(), 0);
    for step in steps {
        let reply_from = errors.len();
        run_step(around, session, ks, step, &all[step.keys.clone()], &mut errors);
        match errors.get(reply_from) {
            Some(b'-') => count += 1,
            _ => errors.truncate(reply_from),
        }
    }
    Out::new(output, session.proto).array(count);
    output.extend_from_slice(&errors);
}

/// Nothing stops a transaction that has started. If a command fails, its error is its reply, and the other commands
/// still run.
fn run_steps(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    steps: &[Step<'_>],
    all: &[Key<'_>],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if session.repeats {
        repeat_steps(around, session, ks, steps, all, output);
        return Ok(());
    }
    let &Around { worker, snapshot, client_info, .. } = around;
    let (reply_from, held) = (output.len(), client_info.held_bytes.load(Relaxed));
    let mut full_bytes = output.len() + FREE_BYTES;
    let mut has_room = true;
    Out::new(output, session.proto).array(steps.len());
    for step in steps {
        if let Err(denial) = access::check(worker, session, step.command, step.args, Context::Multi) {
            let text = format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                 command is no longer allowed for the following reason: {}",
                match denial {
                    Denial::Command => "no permission to execute the command or subcommand",
                    Denial::Key(_) => "no permission to touch the specified keys",
                    Denial::Channel(_) => {
                        "no permission to access one of the channels used as arguments to the command"
                    }
                }
            );
            Out::new(output, session.proto).error(&text);
            worker.stats().error(&text);
            continue;
        }
        run_step(around, session, ks, step, &all[step.keys.clone()], output);
        // The output already exceeds its limit, so the connection will close. Run the remaining commands without
        // keeping their replies.
        output.truncate(snapshot.output_bytes_max.saturating_add(1));
        if output.len() > full_bytes {
            // The replies of a transaction are one unit: they cannot wait for each other.
            let charged = client_info.held_bytes.load(Relaxed) - held;
            let more = (output.len() - reply_from).saturating_sub(charged) + (output.len() / 2).max(FREE_BYTES);
            let is_charged = output.len() - reply_from <= charged;
            has_room = has_room && (is_charged || worker.hub.dataset.memory.ask_now(client_info, more));
            if has_room {
                full_bytes = reply_from + client_info.held_bytes.load(Relaxed) - held;
                output.reserve_exact(full_bytes.saturating_sub(output.len()));
            } else {
                // As above, for the memory that all clients share.
                output.clear();
                output.shrink_to_fit();
                full_bytes = 0;
            }
        }
    }
    if has_room {
        return Ok(());
    }
    worker.stats().output_limit_closed.add(1);
    Err(Halt::End(End::OutputLimit))
}

fn run_step(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    &Step { command, args, .. }: &Step<'_>,
    keys: &[Key<'_>],
    output: &mut Vec<u8>,
) {
    if command.is(bit::SCRIPT) {
        inside_by(around, session, ks, command, args, keys, output, |around, session, ks, output| {
            script::inside(around, session, ks, command, args, output)
        });
    } else {
        inside(around, session, ks, command, args, keys, output);
    }
}

/// A condition that applies to one of the commands applies to the whole transaction.
fn may_run(worker: &Worker, session: &Session, current: &Current, bits: u32) -> Result<(), Halt> {
    let hub = &*worker.hub;
    if bits & bit::WRITE != 0 {
        may_write(worker, session).map_err(|halt| match halt {
            Halt::Error(text) => Halt::Error(format!("EXECABORT Transaction discarded because of: {text}").into()),
            halt => halt,
        })?;
    }
    if bits & bit::DENYOOM == 0 {
        return Ok(());
    }
    match hub.dataset.store.admission() {
        Admission::Open => Ok(()),
        Admission::Slow if current.has_room => Ok(()),
        Admission::Slow => Err(Halt::Wait(Wait::Demotion)),
        Admission::Full if session.rerun.is_some_and(Rerun::has_room) => Ok(()),
        Admission::Full => Err(Halt::Error(
            format!("EXECABORT Transaction discarded because of: {}", hub.dataset.store.refusal()).into(),
        )),
    }
}

/// How often a transaction may wait for flash before it starts. One part of a value may name the next part, so one
/// wait may not be enough.
const PREPARE_MAX: u32 = 4;

/// Whether the transaction may run now: all values that its commands will read are in RAM.
fn prepare(
    worker: &Worker,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    watches: &Watches,
    steps: &[Step<'_>],
    all: &[Key<'_>],
) -> Result<bool, store::Cold> {
    let unchanged = ks.unchanged(watches);
    if unchanged == Ok(false) {
        return Ok(false);
    }
    let snapshot = worker.config_snapshot();
    let engine = worker.engine(&snapshot, ks.now_ms());
    for step in steps.iter().filter(|step| step.command.is(bit::READS)) {
        let keys = &all[step.keys.clone()];
        let are_hot = ks.want(keys).is_ok();
        if keys.len() == 1 && are_hot && step.command.can_rehearse() {
            rehearse(&engine, session, ks, step.command.call(step.args, keys));
        }
    }
    if ks.resume.cold.is_empty() { unchanged } else { Err(store::Cold) }
}
