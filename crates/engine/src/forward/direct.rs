//! Owns the short way of a usual command to an owner on the same thread: it runs here and now, without a session. Never waits: what does
//! not run at once goes through a session, where the owner waits for it.

use crate::account::count;
use crate::batch::{ArgumentSpan, Prepared};
use crate::blocked::follow_up;
use crate::directory::{Command, bit};
use crate::execute::{Call, Stripes, execute};
use crate::forwarding::{Elsewhere, Forwarding};
use crate::halt::Halt;
use crate::owners::owner;
use crate::replication::Seen;
use crate::route::{is_calm, is_open};
use crate::routes::Routes;
use crate::work::Work;
use crate::worker::Worker;
use commands::Stop;
use commands::session::{Claim, Session};
use store::Key;

/// Runs a plain command at the owner of its key. As `route::shortcut`, it is allowed while nothing about the proxy and the connection
/// needs to be asked. `None`: it has not run, and has changed nothing. Not inlined: beside it, the loop of a database that is no proxy
/// would take 2 % more instructions.
#[inline(never)]
pub fn direct<'w>(
    worker: &'w Worker,
    routes: &Routes,
    session: &mut Session,
    work: &mut Work,
    forwarding: &mut Option<Box<Forwarding>>,
    place: ArgumentSpan,
    begun: u64,
) -> Option<(&'w Command, Result<(), Box<Halt>>)> {
    let hub = &*worker.hub;
    let Work { batch, output, current, .. } = work;
    // What was sent before comes first.
    if current.again || forwarding.as_ref().is_some_and(|forwarding| forwarding.waits()) {
        return None;
    }
    let args = batch.args(place);
    let (command, found, is_of_owner) = match batch.known() {
        Some(&Prepared { command, hash, is_of_owner }) => (hub.directory.at(command?), hash, is_of_owner),
        None => (hub.directory.find(&args[0])?, None, false),
    };
    if !command.is(bit::PLAIN) || command.is(bit::BLOCKS | bit::MAY_REPLICATE) || !command.takes(args.len()) {
        return None;
    }
    let name = args.get(command.only_key?.get())?;
    let found = found.unwrap_or_else(|| hub.dataset.store.hasher().hash(name));
    let shard = routes.owner(found);
    let owner = owner(worker, routes, shard)?;
    let dataset = &owner.hub.dataset;
    let before = dataset.journaling.seen();
    if !is_calm(&owner.hub) || !is_open(&owner, command) || dataset.journaling.holds_replies(before) {
        return None;
    }
    let hash =
        if is_of_owner { found } else { dataset.store.hasher().hash_known(name, hub.dataset.store.hasher(), found) };
    let key = Key { name, hash };
    let (snapshot, reply_from) = (owner.config_snapshot(), output.len());
    let call = Call { is_barrier: false, ..command.call(args, std::slice::from_ref(&key)) };
    let engine = owner.engine(&snapshot, owner.now_ms_at(begun));
    let stripes = Stripes::InTime(&mut current.resume);
    let outcome = match execute(&engine, session, call, stripes, output, |locked| locked.run()) {
        Ok(()) => Ok(()),
        Err(Stop::Error(text)) => Err(Box::new(Halt::Error(text))),
        Err(_) => {
            output.truncate(reply_from);
            current.resume.clear();
            session.claim = Claim::default();
            return None;
        }
    };
    follow_up(&owner, &snapshot, &mut current.resume);
    count(&owner, command, worker.nanos(begun, worker.ticks()), outcome.is_err());
    if command.is(bit::WRITE) {
        let forwarding = forwarding.get_or_insert_default();
        match dataset.journaling.serving.is_on() {
            true => forwarding.has_written_at_primary(routes, shard),
            false => forwarding.has_written(shard, Elsewhere::Directly),
        }
    }
    // If the copy has been closed meanwhile, the reply may tell of what another one does not have.
    let mut seen = Seen::default();
    seen.add(before, dataset.journaling.seen());
    if !dataset.journaling.is_safe(seen) || dataset.journaling.has_lost(seen, command.is(bit::WRITE)) {
        forwarding.get_or_insert_default().hold(&owner, seen);
    }
    Some((command, outcome))
}
