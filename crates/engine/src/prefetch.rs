//! Owns the look-ahead in a batch: cache misses and flash reads of later commands overlap with those of the running
//! command. Never runs a command.

use crate::batch::{Batch, Prepared};
use crate::directory::bit;
use crate::execute::{keys, rehearse};
use crate::owners::owner;
use crate::routes::Routes;
use crate::work::{Failed, Work};
use crate::worker::Worker;
use commands::session::Session;
use smallvec::SmallVec;
use std::rc::Rc;
use store::Resume;

/// After this many misses, the worker reads the command's values synchronously, without a lock but without yielding
/// to other connections. Otherwise a key that is demoted as fast as it is read would keep its command waiting
/// forever.
pub const MISSES_MAX: u32 = 16;
/// The most reads that one miss starts for later commands.
const PREFETCH_READS_MAX: usize = 256;
/// How often the commands after a cold command are rehearsed for the parts of values that they need.
const REHEARSALS_MAX: u32 = 4;

/// The most commands whose look-ups are prefetched together: what they touch fits the first-level cache.
const PREPARED_MAX: usize = 32;
/// For fewer commands, prefetching costs more than the cache misses that it saves.
const PREPARED_MIN: usize = 4;
/// More owners of a batch's keys take an allocation.
const OWNERS_USUAL: usize = 8;

/// Looks up the batch's next commands, hashes their keys, and lets the cache misses of the look-ups overlap.
pub fn prepare(worker: &Worker, session: &Session, batch: &mut Batch) {
    let hub = &*worker.hub;
    let (directory, store) = (&hub.directory, &hub.dataset.store);
    let end = batch.commands.len().min(batch.next + PREPARED_MAX);
    (batch.prepared_from, batch.prepared) = (batch.next, end);
    batch.prepared_commands.clear();
    if end - batch.next < PREPARED_MIN {
        return;
    }
    if let Some(routes) = hub.routes.get() {
        return prepare_at_owners(worker, routes, session, batch, end);
    }
    let mut prepared = std::mem::take(&mut batch.prepared_commands);
    for &place in &batch.commands[batch.next..end] {
        let args = batch.args(place);
        let command = directory.place(&args[0]);
        let key = command.and_then(|command| args.get(directory.at(command).only_key?.get()));
        let hash = key.map(|name| {
            let hash = store.hasher().hash(name);
            store.prefetch_stripe(hash);
            hash
        });
        prepared.push(Prepared { command, hash, is_of_owner: false });
    }
    store.prefetch(prepared.iter().filter_map(|prepared| prepared.hash), session.db);
    batch.prepared_commands = prepared;
}

/// The same at a proxy, in the stores of the keys' owners, as far as these are on this thread. Each owner is looked for once.
#[inline(never)]
fn prepare_at_owners(worker: &Worker, routes: &Routes, session: &Session, batch: &mut Batch, end: usize) {
    let (directory, hasher) = (&worker.hub.directory, worker.hub.dataset.store.hasher());
    let mut prepared = std::mem::take(&mut batch.prepared_commands);
    let mut owners = SmallVec::<[(u16, Option<Rc<Worker>>); OWNERS_USUAL]>::new();
    for &place in &batch.commands[batch.next..end] {
        let args = batch.args(place);
        let command = directory.place(&args[0]);
        let name = command.and_then(|command| args.get(directory.at(command).only_key?.get()));
        let Some(name) = name else {
            prepared.push(Prepared { command, hash: None, is_of_owner: false });
            continue;
        };
        let hash = hasher.hash(name);
        let shard = routes.owner(hash);
        let known = owners.iter().position(|&(known, _)| known == shard).unwrap_or_else(|| {
            owners.push((shard, owner(worker, routes, shard)));
            owners.len() - 1
        });
        let Some(owner) = &owners[known].1 else {
            prepared.push(Prepared { command, hash: Some(hash), is_of_owner: false });
            continue;
        };
        let store = &owner.hub.dataset.store;
        let hash = store.hasher().hash_known(name, hasher, hash);
        store.prefetch_stripe(hash);
        prepared.push(Prepared { command, hash: Some(hash), is_of_owner: true });
    }
    for (shard, owner) in &owners {
        let Some(owner) = owner else { continue };
        // The slot, and so the shard, is the same in every store.
        let hashes = prepared.iter().filter_map(|prepared| prepared.hash).filter(|&hash| routes.owner(hash) == *shard);
        owner.hub.dataset.store.prefetch(hashes, session.db);
    }
    batch.prepared_commands = prepared;
}

/// The running command met a cold value: asks for its reads together with those of the later commands of the batch. They start when
/// the connection parks.
#[cold]
pub fn prefetch(worker: &Worker, session: &mut Session, work: &mut Work) {
    let Work { batch, current, prefetched, positions, .. } = work;
    let hub = &*worker.hub;
    // Look through the later commands once, up to the limit of reads, and again from where the reads end. Commands on
    // values in parts are rehearsed several times, because one part of a value may name the next part.
    let mut ahead = Vec::new();
    let snapshot = worker.config_snapshot();
    let engine = worker.engine(&snapshot, worker.now_ms());
    let is_first = batch.next >= batch.probed;
    if is_first {
        batch.rehearsals = if hub.dataset.store.has_parts() && session.multi.is_none() { REHEARSALS_MAX } else { 0 };
    }
    if is_first || batch.rehearsals > 0 {
        let end = if is_first { batch.commands.len() } else { batch.probed };
        let mut probed = batch.next + 1;
        let mut parts = 0;
        while probed < end && ahead.len() < PREFETCH_READS_MAX {
            let args = batch.args(batch.commands[probed]);
            probed += 1;
            let Some(command) = hub.directory.find(&args[0]).filter(|command| command.is(bit::READS)) else {
                continue;
            };
            let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
            if is_first {
                ahead.extend(keys.iter().filter_map(|key| hub.dataset.store.probe(key, session.db)));
            }
            if batch.rehearsals > 0
                && let [key] = keys[..]
                && command.can_rehearse()
                && command.takes(args.len())
                && hub.dataset.store.is_in_parts(&key, session.db)
            {
                let mut resume = Resume::default();
                let (db, now_ms) = (session.db, worker.now_ms());
                if let Ok(mut ks) = hub.dataset.store.try_lock(&keys, db, now_ms, false, session.reach(), &mut resume) {
                    rehearse(&engine, session, &mut ks, command.call(args, &keys));
                    ks.finish();
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
            current.failed = Some(Failed::Read(error));
        }
    }
    prefetched.extend(ahead.into_iter().map(|cold| lane.read(cold)));
}
