//! Owns the short way of a usual command to an owner on the same thread: it runs here and now, without a session. Never waits: what does
//! not run at once goes through a session, where the owner waits for it.

use crate::account::{Spent, account};
use crate::batch::Prepared;
use crate::blocked::follow_up;
use crate::clients::ClientInfo;
use crate::directory::{Command, bit};
use crate::execute::{Call, Stripes, execute};
use crate::forwarding::Forwarding;
use crate::owners::owner;
use crate::route::{is_calm, is_open};
use crate::routes::Routes;
use crate::work::Work;
use crate::worker::Worker;
use commands::Stop;
use commands::session::{Reply, Session};
use resp::Out;
use store::Key;

/// Runs a command on one key. False: it has not run, and has changed nothing.
#[inline]
#[expect(clippy::too_many_arguments)]
pub fn run(
    worker: &Worker,
    routes: &Routes,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    forwarding: &mut Forwarding,
    command: &Command,
    begun: u64,
) -> bool {
    const OTHERWISE: u32 = bit::BLOCKS | bit::MAY_REPLICATE;
    // What was sent before comes first.
    if forwarding.waits() || session.reply != Reply::On || !command.is(bit::PLAIN) || command.is(OTHERWISE) {
        return false;
    }
    let Work { batch, output, current, .. } = work;
    let args = batch.args(batch.commands[batch.next]);
    let Some(name) = command.only_key.and_then(|at| args.get(at.get())) else { return false };
    let (found, is_of_owner) = match batch.known() {
        Some(&Prepared { hash: Some(hash), is_of_owner, .. }) => (hash, is_of_owner),
        _ => (worker.hub.dataset.store.hasher().hash(name), false),
    };
    let shard = routes.owner(found);
    let Some(owner) = owner(worker, routes, shard) else { return false };
    let dataset = &owner.hub.dataset;
    if !is_calm(&owner.hub) || !is_open(&owner, command) || dataset.journaling.holds_replies() {
        return false;
    }
    let hash = if is_of_owner { found } else { dataset.store.hasher().hash(name) };
    let key = Key { name, hash };
    let now_ms = owner.now_ms_at(begun);
    let (snapshot, reply_from) = (owner.config_snapshot(), output.len());
    let call = Call { is_barrier: false, ..command.call(args, std::slice::from_ref(&key)) };
    let engine = owner.engine(&snapshot, now_ms);
    let stripes = Stripes::InTime(&mut current.resume);
    let failed = match execute(&engine, session, call, stripes, output, |locked| locked.run()) {
        Ok(()) => false,
        Err(Stop::Error(text)) => {
            output.truncate(reply_from);
            Out::new(output, session.proto).error(&text);
            owner.stats().error(&text);
            worker.stats().error(&text);
            true
        }
        Err(_) => {
            output.truncate(reply_from);
            current.resume.clear();
            session.claim = Default::default();
            return false;
        }
    };
    follow_up(&owner, &snapshot, &mut current.resume);
    let nanos = worker.nanos(begun, worker.ticks());
    let spent = Spent { nanos, failed, met_flash: Some(false), in_script: false };
    // Its slow log is the proxy's.
    account(&owner, &snapshot, client_info, command, || args, Spent { in_script: true, ..spent }, now_ms);
    account(worker, &worker.config_snapshot(), client_info, command, || args, spent, now_ms);
    owner.stats().commands.add(1);
    let position = dataset.journaling.position();
    if command.is(bit::WRITE) {
        forwarding.has_written(shard);
    }
    if !dataset.journaling.is_safe(position) {
        forwarding.hold(&owner, position);
    }
    owner.maintain_if_wanted();
    true
}
