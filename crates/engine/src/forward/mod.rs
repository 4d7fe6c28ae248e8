//! Owns how a proxy's connection sends commands to the owners of their keys, and puts the replies in order. Never knows what a command
//! does: an owner runs it for the proxy as for any client.
//!
//! The commands of a batch for one owner go through one session, in order, without waiting for each other's replies. What the proxy runs
//! itself waits until all earlier replies are there (`settle`), and so does what stands behind a command that may block.
//!
//! An owner *rejects* a command if it does not serve the key now: the command, and all that is behind it in the session, has not run. The
//! proxy then opens another session and sends all of it again, in order, for at most five seconds.

mod direct;
mod settle;
mod transmit;

pub use direct::direct;
pub use settle::settle;

use transmit::{Transmitter, queued_command};

use crate::access::{self, Context};
use crate::account::show;
use crate::clients::ClientInfo;
use crate::directory::{Command, bit};
use crate::execute::{keys, only_key};
use crate::forwarding::{Awaited, Forwarding, Kind, Part, PartReply, PartState, Sent};
use crate::halt::{Halt, Wait};
use crate::owners::owner;
use crate::routes::{Merge, Policy, Routes};
use crate::script;
use crate::work::Work;
use crate::worker::Worker;
use commands::host::Host;
use commands::session::{Multi, Reply, Session};
use commands::{Args, Stop, wrong_arity};
use resp::Out;
use smallvec::SmallVec;
use store::{Key, stripe_of_cursor};

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const SELECT_NOT_ALLOWED: &str = "ERR SELECT is not allowed in cluster mode";
/// Sends an admitted command to the owners of its keys. False: the proxy runs it itself. An error, of whoever has not admitted it too,
/// waits for the earlier replies like all that the proxy answers itself.
#[inline(never)]
#[expect(clippy::too_many_arguments)]
pub fn forward<'w>(
    worker: &'w Worker,
    routes: &Routes,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    forwarding: &mut Forwarding,
    admitted: Result<&'w Command, Halt>,
    begun: u64,
) -> Result<(&'w Command, bool), Halt> {
    let sent = admitted.and_then(|command| {
        let sent = try_forward(worker, routes, session, client_info, work, forwarding, command, begun)?;
        Ok((command, sent))
    });
    match sent {
        // A pause must not hold back what was sent before.
        Err(Halt::Error(_) | Halt::Wait(Wait::Pause { .. })) if forwarding.waits() => Err(Halt::Wait(Wait::Replies)),
        sent => sent,
    }
}

#[inline]
#[expect(clippy::too_many_arguments)]
fn try_forward(
    worker: &Worker,
    routes: &Routes,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    forwarding: &mut Forwarding,
    command: &Command,
    begun: u64,
) -> Result<bool, Halt> {
    if forwarding.blocks {
        if forwarding.waits() {
            return Err(Halt::Wait(Wait::Replies));
        }
        forwarding.blocks = false;
    }
    let Work { batch, positions, .. } = work;
    let args = batch.args(batch.commands[batch.next]);
    let send = Transmitter { worker, batch };
    let mut to = Sender { worker, routes, session, client_info, forwarding, command, send, at: batch.next, begun };
    if to.session.multi.is_some() {
        return to.in_transaction(args, positions);
    }
    let clients = &worker.hub.clients;
    if command.is(bit::SCRIPT)
        && clients.may_be_paused()
        && may_write(worker, routes, command, args)
        && clients.is_paused(true, worker.now_ms())
    {
        return Err(Halt::Wait(Wait::Pause { writes: true }));
    }
    match command.policy {
        Policy::Here => return to.here(args, true),
        Policy::Refused if is_switched_off(command, args) => return to.here(args, true),
        Policy::Refused => return Err(refusal(command)),
        Policy::Owner => {
            let hasher = worker.hub.dataset.store.hasher();
            let known = batch.known().and_then(|known| known.hash);
            match only_key(hasher, command, args, || known) {
                Some(key) => to.send(routes.owner(key.hash)),
                None => to.send_to_owner(args, positions)?,
            }
        }
        Policy::Split(step, how) => to.split(args, positions, step, how)?,
        Policy::All(how) => to.send_to_all(how),
        Policy::ChangeFunctions | Policy::ShowFunctions if routes.functions.is_some() => return to.here(args, true),
        Policy::ChangeFunctions => to.send_to_all(Merge::First),
        Policy::ShowFunctions => to.send(0),
        Policy::Scan => to.scan(args),
        Policy::Info => to.send_to_all(Merge::Info),
        Policy::Debug if !worker.config_snapshot().config.enable_debug_command.allows(to.session.local) => {
            return to.here(args, true);
        }
        Policy::Debug => match debug_policy(args) {
            Policy::All(how) => to.send_to_all(how),
            Policy::Owner => to.send_to_owner(args, positions)?,
            Policy::Here => return to.here(args, true),
            _ => return Err(refusal(command)),
        },
    }
    if worker.hub.monitors.any() {
        show(worker, session, Some(client_info), command, args);
    }
    Ok(true)
}

/// A command that only ends what was never begun here is not refused.
fn is_switched_off(command: &Command, args: Args<'_>) -> bool {
    let says = |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    command.name == "client|tracking" && says(2, "off")
        || matches!(command.name, "replicaof" | "slaveof") && says(1, "no") && says(2, "one")
}

/// Whether CONFIG SET would have events published. They would be those of one node only.
#[cold]
fn sets_events(args: Args<'_>) -> bool {
    (2..args.len().saturating_sub(1)).step_by(2).any(|at| {
        args[at].eq_ignore_ascii_case(b"notify-keyspace-events")
            && args.get(at + 1).is_some_and(|value| !value.is_empty())
    })
}

/// DEBUG about a key, about the dataset, or about the connection.
#[cold]
fn debug_policy(args: Args<'_>) -> Policy {
    let asked = args.get(1).unwrap_or_default().to_ascii_lowercase();
    match &asked[..] {
        b"object" | b"sdslen" | b"listpack" | b"htstats-key" | b"digest-value" => Policy::Owner,
        b"digest" => Policy::All(Merge::Xor),
        b"reload" | b"set-active-expire" => Policy::All(Merge::First),
        b"flint-digest" | b"populate" => Policy::Refused,
        _ => Policy::Here,
    }
}

#[cold]
fn refusal(command: &Command) -> Halt {
    let name = command.name.to_uppercase().replace('|', " ");
    Halt::Error(format!("ERR {name} is not supported by a database that is divided into shards").into())
}

/// Whether it must not run twice: the reply to it is uncertain if its session is lost.
#[inline]
fn may_change(command: &Command) -> bool {
    command.is(bit::WRITE | bit::MAY_REPLICATE) || command.is(bit::SCRIPT) && !command.is(bit::READONLY)
}

/// Whether it waits while writes are paused. A script says by its flags whether it writes. The functions of libraries are known to the shards:
/// without one on this thread, a function is taken for a writer.
fn may_write(worker: &Worker, routes: &Routes, command: &Command, args: Args<'_>) -> bool {
    if command.row.name == "fcall" {
        let shard = (0..routes.shards.len() as u16).find_map(|shard| owner(worker, routes, shard));
        return shard.is_none_or(|shard| script::may_write(&shard.hub, command, args));
    }
    command.is(bit::WRITE | bit::MAY_REPLICATE)
        || command.is(bit::SCRIPT) && script::may_write(&worker.hub, command, args)
}

fn cross_slot() -> Halt {
    Halt::Error(CROSS_SLOT.into())
}

/// What sends one command.
struct Sender<'a> {
    worker: &'a Worker,
    routes: &'a Routes,
    session: &'a mut Session,
    client_info: &'a ClientInfo,
    forwarding: &'a mut Forwarding,
    command: &'a Command,
    send: Transmitter<'a>,
    /// Its position in the batch.
    at: usize,
    begun: u64,
}

impl Sender<'_> {
    /// The proxy runs the command, behind all that was sent before, or only queues it.
    fn here(&mut self, args: Args<'_>, runs: bool) -> Result<bool, Halt> {
        let Sender { session, forwarding, command, .. } = self;
        if forwarding.waits() {
            return Err(Halt::Wait(Wait::Replies));
        }
        if command.name == "select" && args.get(1) != Some(b"0") && self.routes.are_several() {
            return Err(Halt::Error(SELECT_NOT_ALLOWED.into()));
        }
        if command.name == "config|set" && sets_events(args) {
            let text = "ERR notify-keyspace-events is not supported by a database that is divided into shards";
            return Err(Halt::Error(text.into()));
        }
        // EXEC and DISCARD without MULTI are errors.
        let is_error = session.multi.is_none() && matches!(command.name, "exec" | "discard");
        if runs && command.is(bit::UNWATCHES) && !is_error {
            self.forwarding.unwatch();
        }
        Ok(false)
    }

    /// To this shard, as it is.
    #[inline]
    fn send(&mut self, shard: u16) {
        self.forwarding.blocks |= self.command.is(bit::BLOCKS);
        self.enter(Kind::Pass(Part::passed(shard)));
    }

    #[inline]
    fn enter(&mut self, kind: Kind) {
        self.enter_as(kind, None, may_change(self.command));
    }

    #[inline]
    fn enter_as(&mut self, kind: Kind, transaction: Option<Box<Multi>>, is_write: bool) {
        let Sender { routes, session, forwarding, send, .. } = self;
        let awaited = Awaited {
            sent: Sent { at: self.at, command: self.command.id, transaction },
            begun: self.begun,
            is_silent: session.reply != Reply::On,
            is_write,
            kind,
        };
        forwarding.enter(awaited, routes, |sent, part, places, to| send.transmit(session, sent, part, places, to));
    }

    fn keys<'k>(&self, args: Args<'k>, positions: &mut Vec<usize>) -> SmallVec<[Key<'k>; 4]> {
        keys(self.worker.hub.dataset.store.hasher(), self.command.row.keys, args, positions)
    }

    /// The shard of the keys, which must have one slot. A command without keys goes to any.
    fn owner_of(&self, keys: &[Key<'_>]) -> Result<(u16, Option<u16>), Halt> {
        let Some(first) = keys.first() else { return Ok((0, None)) };
        if self.routes.are_several() && keys.iter().any(|key| key.hash.slot != first.hash.slot) {
            return Err(cross_slot());
        }
        Ok((self.routes.owner(first.hash), Some(first.hash.slot)))
    }

    fn send_to_owner(&mut self, args: Args<'_>, positions: &mut Vec<usize>) -> Result<(), Halt> {
        let keys = self.keys(args, positions);
        let (shard, slot) = self.owner_of(&keys)?;
        if self.command.is(bit::WATCHES)
            && let Some(slot) = slot
        {
            if self.routes.are_several() && self.forwarding.watched.is_some_and(|(_, watched)| watched != slot) {
                return Err(cross_slot());
            }
            self.forwarding.watched = Some((shard, slot));
        }
        self.send(shard);
        Ok(())
    }

    /// Each shard gets the keys that it owns.
    fn split(&mut self, args: Args<'_>, positions: &mut Vec<usize>, step: usize, how: Merge) -> Result<(), Halt> {
        if !(args.len() - 1).is_multiple_of(step) {
            return Err(match wrong_arity(self.command.name) {
                Stop::Error(text) => Halt::Error(text),
                _ => unreachable!("it is an error"),
            });
        }
        let keys = self.keys(args, positions);
        let owners: SmallVec<[u16; 16]> = keys.iter().map(|key| self.routes.owner(key.hash)).collect();
        if owners.windows(2).all(|two| two[0] == two[1]) {
            self.send(owners.first().copied().unwrap_or(0));
            return Ok(());
        }
        let mut shards: SmallVec<[u16; 16]> = owners.clone();
        shards.sort_unstable();
        shards.dedup();
        let part = |&shard: &u16| {
            let mine = owners.iter().enumerate().filter(|&(_, &owner)| owner == shard);
            let places = mine.map(|(nth, _)| nth as u32).collect();
            (Part::kept(shard), PartReply { bytes: Vec::new(), places })
        };
        self.enter(Kind::Merge { how, parts: shards.iter().map(part).collect() });
        Ok(())
    }

    fn send_to_all(&mut self, how: Merge) {
        match self.command.name {
            "script|flush" => self.worker.hub.scripts.flush(),
            "config|resetstat" => self.worker.reset_stats(),
            _ => {}
        }
        self.forwarding.blocks |= self.command.is(bit::BLOCKS);
        let shards = 0..self.routes.shards.len() as u16;
        let parts = shards.map(|shard| (Part::kept(shard), PartReply::default())).collect();
        self.enter(Kind::Merge { how, parts });
    }

    /// A page of SCAN, from the owner of the stripe where it goes on.
    fn scan(&mut self, args: Args<'_>) {
        // What is no cursor is an error of any shard.
        let stripe = stripe_of_cursor(commands::number::cursor(&args[1]).unwrap_or(0));
        let part = Part::kept(self.routes.owner_of_stripe(stripe));
        self.enter(Kind::Page { stripe, part, bytes: Vec::new() });
    }

    // --- transactions ---

    /// Between MULTI and EXEC. What is queued is looked at now, because clients are told of a wrong command at once.
    fn in_transaction(&mut self, args: Args<'_>, positions: &mut Vec<usize>) -> Result<bool, Halt> {
        if self.forwarding.waits() {
            return Err(Halt::Wait(Wait::Replies));
        }
        if self.command.is(bit::EXEC) {
            return self.exec(positions);
        }
        if self.command.is(bit::UNQUEUED) {
            return self.here(args, true);
        }
        match self.command.policy {
            Policy::Refused | Policy::Debug => return Err(refusal(self.command)),
            Policy::All(_) | Policy::Scan | Policy::ChangeFunctions
                if self.routes.are_several()
                    || self.command.policy == Policy::ChangeFunctions && self.routes.functions.is_some() =>
            {
                let name = self.command.name.to_uppercase().replace('|', " ");
                let text =
                    format!("ERR {name} is not supported in a transaction on a database that is divided into shards");
                return Err(Halt::Error(text.into()));
            }
            Policy::Owner | Policy::Split(..) => {
                let keys = self.keys(args, positions);
                self.owner_of(&keys)?;
            }
            Policy::Here
            | Policy::All(_)
            | Policy::Scan
            | Policy::Info
            | Policy::ChangeFunctions
            | Policy::ShowFunctions => {}
        }
        self.here(args, false)
    }

    /// The transaction goes to the owner of its keys in one piece. If it names none and watches none, the proxy runs it.
    fn exec(&mut self, positions: &mut Vec<usize>) -> Result<bool, Halt> {
        let Some(multi) = self.session.multi.take() else { return Ok(false) };
        let owner = match self.owner_of_transaction(&multi, positions) {
            Ok(owner) => owner,
            Err(Halt::Error(text)) => {
                self.session.changed = true;
                self.forwarding.unwatch();
                self.answer(|out| out.error(&text));
                return Ok(true);
            }
            Err(halt) => {
                self.session.multi = Some(multi);
                return Err(halt);
            }
        };
        let Some((shard, is_write)) = owner else {
            // EXEC's own handler answers.
            self.session.multi = Some(multi);
            return self.here(Args::new(&[], &[]), true);
        };
        self.session.changed = true;
        let has_watched = self.forwarding.watched.take().is_some();
        match std::mem::take(&mut self.forwarding.watch_lost) {
            // Nobody knows whether the watched keys have changed.
            true => self.answer(|out| out.null_array()),
            false => {
                if self.worker.hub.monitors.any() {
                    self.show_transaction(&multi);
                }
                let part = Part { has_watched, ..Part::passed(shard) };
                self.enter_as(Kind::Pass(part), Some(multi), is_write);
            }
        }
        Ok(true)
    }

    /// Monitors see the commands of a transaction when it runs, and EXEC behind them.
    #[cold]
    fn show_transaction(&self, multi: &Multi) {
        let Sender { worker, session, client_info, command, .. } = self;
        for queued in &multi.commands {
            let args = queued.args();
            show(worker, session, Some(client_info), queued_command(&worker.hub, args), args);
        }
        show(worker, session, Some(client_info), command, self.send.batch.args(self.send.batch.commands[self.at]));
    }

    /// The shard that runs a transaction, and whether it may write. `None`: the proxy.
    fn owner_of_transaction(&self, multi: &Multi, positions: &mut Vec<usize>) -> Result<Option<(u16, bool)>, Halt> {
        if multi.failed {
            return Ok(None);
        }
        let hub = &*self.worker.hub;
        let aborted = |why: &str| Err(Halt::Error(format!("EXECABORT Transaction discarded because of: {why}").into()));
        let mut owners: SmallVec<[(u16, u16); 8]> = self.forwarding.watched.into_iter().collect();
        let (mut only_here, mut goes, mut writes, mut is_denied) = (None, false, false, false);
        let mut pauses = false;
        for queued in &multi.commands {
            let (command, args) = (queued_command(hub, queued.args()), queued.args());
            let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
            owners.extend(keys.iter().map(|key| (self.routes.owner(key.hash), key.hash.slot)));
            goes |= !matches!(command.policy, Policy::Here | Policy::Info);
            // These do the same at the owner.
            let anywhere = ["ping", "echo", "time", "publish", "spublish", "unwatch"];
            if matches!(command.policy, Policy::Here | Policy::Info) && !anywhere.contains(&command.name) {
                only_here = only_here.or(Some(command.name));
            }
            writes |= may_change(command);
            pauses |= may_write(self.worker, self.routes, command, args);
            is_denied |= access::check(self.worker, self.session, command, args, Context::Multi).is_err();
        }
        if owners.is_empty() && !goes {
            return Ok(None);
        }
        if let Some(name) = only_here {
            let name = name.to_uppercase().replace('|', " ");
            return aborted(&format!(
                "{name} and commands with keys run in different places of a database that is divided into shards"
            ));
        }
        if self.routes.are_several() && owners.windows(2).any(|two| two[0].1 != two[1].1) {
            return Err(cross_slot());
        }
        if hub.clients.may_be_paused() && hub.clients.is_paused(pauses, self.worker.now_ms()) {
            return Err(Halt::Wait(Wait::Pause { writes: pauses }));
        }
        if is_denied {
            return aborted("the user's rights have changed since MULTI");
        }
        Ok(Some((owners.first().map_or(0, |&(shard, _)| shard), writes)))
    }

    /// The proxy's own reply to EXEC.
    fn answer(&mut self, reply: impl FnOnce(&mut Out<'_>)) {
        let mut bytes = Vec::new();
        reply(&mut Out::new(&mut bytes, self.session.proto));
        let part = Part { state: PartState::Done, ..Part::kept(0) };
        self.enter(Kind::Merge { how: Merge::First, parts: vec![(part, PartReply { bytes, ..PartReply::default() })] });
    }
}

#[cfg(test)]
mod tests {
    use super::may_change;
    use crate::directory::Directory;

    /// What is not marked as a reader is never sent twice.
    #[test]
    fn only_readers_run_again() {
        let directory = Directory::new(commands::table::all(), &[]).unwrap();
        for name in ["eval", "evalsha", "fcall", "set", "blpop", "pfcount", "xreadgroup", "getex"] {
            assert!(may_change(directory.find(name.as_bytes()).unwrap()), "{name}");
        }
        for name in ["eval_ro", "evalsha_ro", "fcall_ro", "get", "mget", "scan", "dbsize"] {
            assert!(!may_change(directory.find(name.as_bytes()).unwrap()), "{name}");
        }
    }
}
