//! Owns how a proxy's connection sends commands to the owners of their keys, and puts the replies in order. Never knows what a command
//! does: an owner runs it for the proxy as for any client.
//!
//! The commands of a batch for one owner go through one session, in order, without waiting for each other's replies. What the proxy runs
//! itself waits until all earlier replies are there ([`settle`]), and so does what stands behind a command that may block.

use crate::access::{self, Context};
use crate::account::{Spent, account, show};
use crate::clients::ClientInfo;
use crate::directory::{Command, bit};
use crate::execute::{keys, only_key};
use crate::forwarding::{Awaited, Forwarding, ForwardingSession, Kind, Part, PartReply, Taken, merge, with_cursor};
use crate::halt::{End, Halt, Wait};
use crate::memory::{FREE_BYTES, PAUSE_BYTES_MAX};
use crate::routes::{Merge, Policy, Routes};
use crate::scripts::as_sha;
use crate::session::Connection;
use crate::work::Work;
use crate::worker::Worker;
use commands::session::{Multi, Reply, Session};
use commands::{Args, Stop};
use resp::{Out, Proto};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context as Waking, Poll, ready};
use store::{Key, STRIPES, cursor_of_stripe, stripe_of_cursor};

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const SELECT_NOT_ALLOWED: &str = "ERR SELECT is not allowed in cluster mode";
/// What the proxy cannot know: clients must not take it for a reason to repeat the command by themselves.
const UNCERTAIN: &str =
    "UNCERTAIN the connection to the key's shard was lost before the reply: the command has run, or it has not";

/// Sends an admitted command to the owners of its keys. False: the proxy runs it itself. An error, of whoever has not admitted it too,
/// waits for the earlier replies like all that the proxy answers itself.
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
        Err(Halt::Error(_)) if forwarding.waits() => Err(Halt::Wait(Wait::Replies)),
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
    let mut to = Sender { worker, routes, session, forwarding, command, at: batch.next, begun };
    if to.session.multi.is_some() {
        return to.in_transaction(args, positions);
    }
    let forwarded = match command.policy {
        Policy::Here => return to.here(args, true),
        Policy::Refused if is_switched_off(command, args) => return to.here(args, true),
        Policy::Refused => Err(refusal(command)),
        Policy::Owner => {
            let hasher = worker.hub.dataset.store.hasher();
            let known = batch.known().and_then(|known| known.hash);
            match only_key(hasher, command, args, || known) {
                Some(key) => to.send(routes.owner(key.hash), args),
                None => to.to_owner(args, positions),
            }
        }
        Policy::Split(step, how) => to.split(args, positions, step, how),
        Policy::All(how) => to.to_all(args, how),
        Policy::Scan => to.scan(args),
    };
    forwarded?;
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

#[cold]
fn refusal(command: &Command) -> Halt {
    let name = command.name.to_uppercase().replace('|', " ");
    Halt::Error(format!("ERR {name} is not supported by a database that is divided into shards").into())
}

fn cross_slot() -> Halt {
    Halt::Error(CROSS_SLOT.into())
}

/// What sends one command.
struct Sender<'a> {
    worker: &'a Worker,
    routes: &'a Routes,
    session: &'a mut Session,
    forwarding: &'a mut Forwarding,
    command: &'a Command,
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
        // EXEC and DISCARD without MULTI are errors.
        let is_error = session.multi.is_none() && matches!(command.name, "exec" | "discard");
        if runs && command.is(bit::UNWATCHES) && !is_error {
            self.unwatch();
        }
        Ok(false)
    }

    fn unwatch(&mut self) {
        self.forwarding.watch_lost = false;
        if let Some((shard, _)) = self.forwarding.watched.take()
            && let Some(session) = self.forwarding.session(shard)
        {
            session.say(&[b"UNWATCH"]);
        }
    }

    /// To this shard.
    #[inline]
    fn send(&mut self, shard: u16, args: Args<'_>) -> Result<(), Halt> {
        let Sender { routes, forwarding, command, .. } = self;
        let session = open(routes, forwarding, shard, self.session)?;
        if command.is(bit::SCRIPT | bit::WATCHES | bit::BLOCKS) {
            prepare(self.worker, session, command, args);
        }
        session.add(command.name, args);
        let part = Part::behind(shard, session);
        if command.is(bit::BLOCKS) {
            self.forwarding.blocks = true;
        }
        self.awaits(Kind::Pass(part));
        Ok(())
    }

    #[inline]
    fn awaits(&mut self, kind: Kind) {
        self.forwarding.awaited.push_back(Awaited {
            at: self.at,
            command: self.command.id,
            begun: self.begun,
            is_silent: self.session.reply != Reply::On,
            is_write: self.command.is(bit::WRITE | bit::MAY_REPLICATE),
            kind,
        });
    }

    fn keys<'k>(&self, args: Args<'k>, positions: &mut Vec<usize>) -> smallvec::SmallVec<[Key<'k>; 4]> {
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

    fn to_owner(&mut self, args: Args<'_>, positions: &mut Vec<usize>) -> Result<(), Halt> {
        let keys = self.keys(args, positions);
        if keys.is_empty() && self.command.name == "debug" {
            return Err(refusal(self.command));
        }
        let (shard, slot) = self.owner_of(&keys)?;
        if self.command.is(bit::WATCHES)
            && let Some(slot) = slot
        {
            if self.routes.are_several() && self.forwarding.watched.is_some_and(|(_, watched)| watched != slot) {
                return Err(cross_slot());
            }
            self.send(shard, args)?;
            self.forwarding.watched = Some((shard, slot));
            return Ok(());
        }
        self.send(shard, args)
    }

    /// Each shard gets the keys that it owns.
    fn split(&mut self, args: Args<'_>, positions: &mut Vec<usize>, step: usize, how: Merge) -> Result<(), Halt> {
        let keys = self.keys(args, positions);
        if !(args.len() - 1).is_multiple_of(step) {
            return Err(match commands::wrong_arity(self.command.name) {
                Stop::Error(text) => Halt::Error(text),
                _ => unreachable!("it is an error"),
            });
        }
        let shards: smallvec::SmallVec<[u16; 16]> = keys.iter().map(|key| self.routes.owner(key.hash)).collect();
        if shards.windows(2).all(|two| two[0] == two[1]) {
            return self.send(shards.first().copied().unwrap_or(0), args);
        }
        for &shard in &shards {
            open(self.routes, self.forwarding, shard, self.session)?;
        }
        let mut parts = Vec::new();
        for shard in 0..self.routes.shards.len() as u16 {
            let mine = || shards.iter().enumerate().filter(move |&(_, &owner)| owner == shard).map(|(nth, _)| nth);
            let count = mine().count();
            if count == 0 {
                continue;
            }
            let session = open(self.routes, self.forwarding, shard, self.session)?;
            let words = mine().flat_map(|nth| (0..step).map(move |more| 1 + nth * step + more)).map(|at| &args[at]);
            session.add_words(1 + count * step, std::iter::once(self.command.name.as_bytes()).chain(words));
            let places = if how == Merge::InOrder { mine().map(|nth| nth as u32).collect() } else { Vec::new() };
            parts.push((Part::kept_behind(shard, session), PartReply { bytes: Vec::new(), places }));
        }
        self.awaits(Kind::Merge { how, parts });
        Ok(())
    }

    fn to_all(&mut self, args: Args<'_>, how: Merge) -> Result<(), Halt> {
        for shard in 0..self.routes.shards.len() as u16 {
            open(self.routes, self.forwarding, shard, self.session)?;
        }
        let mut parts = Vec::new();
        for shard in 0..self.routes.shards.len() as u16 {
            let session = open(self.routes, self.forwarding, shard, self.session)?;
            session.add(self.command.name, args);
            parts.push((Part::kept_behind(shard, session), PartReply { bytes: Vec::new(), places: Vec::new() }));
        }
        if self.command.name == "script|flush" {
            self.worker.hub.scripts.flush();
        }
        self.forwarding.blocks |= self.command.is(bit::BLOCKS);
        self.awaits(Kind::Merge { how, parts });
        Ok(())
    }

    /// A page of SCAN, from the owner of the stripe where it goes on.
    fn scan(&mut self, args: Args<'_>) -> Result<(), Halt> {
        // What is no cursor is an error of any shard.
        let cursor = commands::number::cursor(&args[1]).unwrap_or(0);
        let stripe = stripe_of_cursor(cursor);
        let shard = self.routes.owner_of_stripe(stripe);
        let session = open(self.routes, self.forwarding, shard, self.session)?;
        session.add(self.command.name, args);
        let part = Part::kept_behind(shard, session);
        self.awaits(Kind::Page { stripe, part, bytes: Vec::new() });
        Ok(())
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
        if self.command.is(bit::UNQUEUED) || !self.routes.are_several() && self.command.policy != Policy::Refused {
            return self.here(args, self.command.is(bit::UNQUEUED));
        }
        match self.command.policy {
            Policy::Refused => return Err(refusal(self.command)),
            Policy::All(_) | Policy::Scan => {
                let name = self.command.name.to_uppercase().replace('|', " ");
                let text =
                    format!("ERR {name} is not supported in a transaction on a database that is divided into shards");
                return Err(Halt::Error(text.into()));
            }
            Policy::Owner | Policy::Split(..) => {
                let keys = self.keys(args, positions);
                self.owner_of(&keys)?;
            }
            Policy::Here => {}
        }
        self.here(args, false)
    }

    /// The transaction goes to the owner of its keys in one piece. If it names none and watches none, the proxy runs it.
    fn exec(&mut self, positions: &mut Vec<usize>) -> Result<bool, Halt> {
        let Some(multi) = self.session.multi.take() else { return Ok(false) };
        let sent = self.send_transaction(&multi, positions);
        match sent {
            Ok(true) => {
                self.session.changed = true;
                self.forwarding.watched = None;
            }
            Ok(false) => {
                // The handler of EXEC answers.
                self.session.multi = Some(multi);
                return self.here(Args::new(&[], &[]), true);
            }
            Err(Halt::Error(text)) => {
                self.session.changed = true;
                self.unwatch();
                return self.answer(|out| out.error(&text));
            }
            Err(_) => self.session.multi = Some(multi),
        }
        sent
    }

    fn send_transaction(&mut self, multi: &Multi, positions: &mut Vec<usize>) -> Result<bool, Halt> {
        if multi.failed {
            return Ok(false);
        }
        let hub = &*self.worker.hub;
        let (mut steps, mut slots, mut here) = (Vec::new(), Vec::new(), None);
        let mut writes = false;
        for queued in &multi.commands {
            let args = queued.args();
            let found = hub.directory.find(&args[0]).or_else(|| hub.directory.original(&args[0]));
            let mut command = found.expect("it was found when it was queued");
            if let Some(subcommand) = command.subcommand(&args) {
                command = subcommand;
            }
            let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
            slots.extend(keys.iter().map(|key| (self.routes.owner(key.hash), key.hash.slot)));
            if command.policy == Policy::Here
                && !matches!(command.name, "ping" | "echo" | "time" | "publish" | "spublish" | "unwatch")
            {
                here = here.or(Some(command.name));
            }
            writes |= command.is(bit::WRITE | bit::MAY_REPLICATE | bit::SCRIPT);
            steps.push((command, args));
        }
        let is_scripted = steps.iter().any(|(command, _)| command.is(bit::SCRIPT));
        if slots.is_empty() && self.forwarding.watched.is_none() && !is_scripted {
            return Ok(false);
        }
        if let Some(name) = here {
            let name = name.to_uppercase().replace('|', " ");
            let text = format!(
                "EXECABORT Transaction discarded because of: {name} and commands with keys run in different places of \
                 a database that is divided into shards"
            );
            return Err(Halt::Error(text.into()));
        }
        let several = self.routes.are_several();
        slots.extend(self.forwarding.watched);
        if several && slots.windows(2).any(|two| two[0].1 != two[1].1) {
            return Err(cross_slot());
        }
        if hub.clients.may_be_paused() && hub.clients.is_paused(writes, self.worker.now_ms()) {
            return Err(Halt::Wait(Wait::Pause { writes }));
        }
        for (command, args) in &steps {
            if access::check(self.worker, self.session, command, *args, Context::Multi).is_err() {
                let text = "EXECABORT Transaction discarded because of: the user's rights have changed since MULTI";
                return Err(Halt::Error(text.into()));
            }
        }
        if std::mem::take(&mut self.forwarding.watch_lost) {
            // Nobody knows whether the watched keys have changed.
            self.forwarding.watched = None;
            return self.answer(|out| out.null_array());
        }
        let shard = slots.first().map_or(0, |&(shard, _)| shard);
        let session = open(self.routes, self.forwarding, shard, self.session)?;
        for (command, args) in &steps {
            if command.is(bit::SCRIPT) {
                prepare(self.worker, session, command, *args);
            }
        }
        session.say(&[b"MULTI"]);
        for (command, args) in &steps {
            session.add(command.name, *args);
            session.owed += 1;
        }
        session.add_words(1, std::iter::once(&b"EXEC"[..]));
        let part = Part::behind(shard, session);
        self.awaits(Kind::Pass(part));
        Ok(true)
    }

    /// The proxy's own reply to EXEC.
    fn answer(&mut self, reply: impl FnOnce(&mut Out<'_>)) -> Result<bool, Halt> {
        let mut bytes = Vec::new();
        reply(&mut Out::new(&mut bytes, self.session.proto));
        let part = Part { is_done: true, ..Part::whole(0, 0) };
        self.awaits(Kind::Merge { how: Merge::First, parts: vec![(part, PartReply { bytes, places: Vec::new() })] });
        Ok(true)
    }
}

#[inline]
fn open<'f>(
    routes: &Routes,
    forwarding: &'f mut Forwarding,
    shard: u16,
    session: &Session,
) -> Result<&'f mut ForwardingSession, Halt> {
    forwarding.open(routes, shard, session).map_err(|error| down(routes, shard, &error))
}

#[cold]
fn down(routes: &Routes, shard: u16, error: &std::io::Error) -> Halt {
    Halt::Error(
        format!("CLUSTERDOWN shard '{}' is not served: {error}", routes.shards[usize::from(shard)].name()).into(),
    )
}

/// What the owner must have or say before this command.
#[cold]
fn prepare(worker: &Worker, session: &mut ForwardingSession, command: &Command, args: Args<'_>) {
    if command.is(bit::BLOCKS) {
        session.ask_client();
    }
    let scripts = &worker.hub.scripts;
    let Some(text) = args.get(1) else { return };
    match command.name {
        // Later calls by the digest may go to other shards.
        "eval" | "eval_ro" => drop(scripts.add(text, false)),
        "evalsha" | "evalsha_ro" => {
            if let Some(sha) = as_sha(text) {
                session.load_script(&sha, scripts.flushes(), || scripts.body(&sha));
            }
        }
        _ => {}
    }
}

// --- replies ---

enum Settled {
    All,
    /// The client must read before more replies are taken.
    Full,
}

/// Waits for the replies of all that was sent, and appends them to the output in the order of the commands.
pub async fn settle(connection: &mut Connection) -> Result<(), End> {
    let pause_bytes = match connection.worker.config_snapshot().output_bytes_max {
        ..=PAUSE_BYTES_MAX => usize::MAX,
        _ => connection.worker.hub.dataset.memory.pause_bytes(),
    };
    let _blocked = Blocks::begin(connection);
    loop {
        match poll_fn(|cx| poll_replies(connection, pause_bytes, cx)).await? {
            Settled::All => break,
            Settled::Full => {
                connection.update_charge();
                poll_fn(|cx| connection.poll_drain(cx)).await?;
                connection.withdraw();
            }
        }
    }
    connection.worker.refresh_now_ms();
    if connection.worker.is_crowded()
        && let Some(forwarding) = &mut connection.forwarding
    {
        forwarding.sessions().for_each(|(_, session)| session.shrink());
    }
    Ok(())
}

/// While a command that may block waits: others see that the client is blocked, and can end the wait.
struct Blocks {
    client_info: Arc<ClientInfo>,
    count: Arc<std::sync::atomic::AtomicUsize>,
}

impl Blocks {
    fn begin(connection: &Connection) -> Option<Blocks> {
        connection.forwarding.as_ref().filter(|forwarding| forwarding.blocks)?;
        let count = Arc::clone(&connection.worker.hub.clients.blocked);
        count.fetch_add(1, Relaxed);
        Some(Blocks { client_info: Arc::clone(&connection.client_info), count })
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        *self.client_info.blocked_at.lock() = None;
        self.count.fetch_sub(1, Relaxed);
    }
}

fn poll_replies(connection: &mut Connection, pause_bytes: usize, cx: &mut Waking<'_>) -> Poll<Result<Settled, End>> {
    let Connection { worker, session, client_info, work, forwarding, .. } = connection;
    let (Some(forwarding), Some(routes)) = (forwarding.as_deref_mut(), worker.hub.routes.get()) else {
        return Poll::Ready(Ok(Settled::All));
    };
    let work = work.get_or_insert_with(|| worker.take_work());
    let snapshot = worker.config_snapshot();
    let mut lost = Vec::new();
    for (shard, session) in forwarding.sessions() {
        if session.has_unsent() && matches!(session.poll_send(cx), Poll::Ready(Err(_))) {
            lost.push(shard);
        }
    }
    lost.into_iter().for_each(|shard| forwarding.lose(shard));
    while let Some(mut awaited) = forwarding.awaited.pop_front() {
        let from = work.output.len();
        let around = Replies { worker, client_info, proto: session.proto, pause_bytes };
        let polled = around.poll_reply(&mut awaited, forwarding, &mut work.output, cx);
        match polled {
            Poll::Ready(Ok(failed)) => {
                if failed {
                    note_error(worker, &work.output[from..]);
                }
                let nanos = worker.nanos(awaited.begun, worker.ticks());
                let spent = Spent { nanos, failed, met_flash: None, in_script: false };
                let args = || work.batch.args(work.batch.commands[awaited.at]);
                let command = worker.hub.directory.by_id(awaited.command);
                account(worker, &snapshot, client_info, command, args, spent, worker.now_ms());
                if awaited.is_silent {
                    work.output.truncate(from);
                }
            }
            Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
            Poll::Pending => {
                if awaited.is_silent {
                    work.output.truncate(from);
                }
                forwarding.awaited.push_front(awaited);
                if work.output.len() > pause_bytes {
                    return Poll::Ready(Ok(Settled::Full));
                }
                break;
            }
        }
        if work.output.len() > snapshot.output_bytes_max {
            worker.stats().output_limit_closed.add(1);
            return Poll::Ready(Err(End::OutputLimit));
        }
        if work.output.len() > pause_bytes && forwarding.waits() {
            return Poll::Ready(Ok(Settled::Full));
        }
    }
    if !forwarding.waits() {
        return Poll::Ready(Ok(Settled::All));
    }
    if forwarding.blocks {
        note_wait(forwarding, routes, client_info);
    }
    if client_info.killed.load(Relaxed) {
        return Poll::Ready(Err(End::Killed));
    }
    let is_blocked = forwarding.blocks;
    if !connection.has_ended && connection.stream.poll_read_ready(cx).is_ready() {
        match connection.poll_listen(cx) {
            // The replies to what it has sent are still its due, unless they may never come.
            Err(End::Eof) if !is_blocked => connection.has_ended = true,
            listened => listened?,
        }
    }
    Poll::Pending
}

/// CLIENT UNBLOCK must find who waits for this client.
fn note_wait(forwarding: &mut Forwarding, routes: &Routes, client_info: &ClientInfo) {
    let Some(awaited) = forwarding.awaited.front() else { return };
    let shard = match &awaited.kind {
        Kind::Pass(part) | Kind::Page { part, .. } => part.shard,
        Kind::Merge { parts, .. } => match parts.iter().find(|(part, _)| !part.is_done) {
            Some((part, _)) => part.shard,
            None => return,
        },
    };
    let Some(client) = forwarding.session(shard).and_then(|session| session.client) else { return };
    *client_info.blocked_at.lock() = Some((Arc::clone(&routes.shards[usize::from(shard)]), client));
}

#[cold]
fn note_error(worker: &Worker, reply: &[u8]) {
    let line = reply.iter().position(|&byte| byte == b'\r').map_or(reply, |end| &reply[..end]);
    worker.stats().error(&String::from_utf8_lossy(line.get(1..).unwrap_or_default()));
}

/// What replies are taken for.
struct Replies<'a> {
    worker: &'a Worker,
    client_info: &'a ClientInfo,
    proto: Proto,
    pause_bytes: usize,
}

impl Replies<'_> {
    /// Takes what has arrived of a command's reply. Ready: it is complete; true if it is an error.
    fn poll_reply(
        &self,
        awaited: &mut Awaited,
        forwarding: &mut Forwarding,
        output: &mut Vec<u8>,
        cx: &mut Waking<'_>,
    ) -> Poll<Result<bool, End>> {
        let from = output.len();
        match &mut awaited.kind {
            Kind::Pass(part) => {
                let was_new = part.extent.is_new();
                match ready!(self.poll_part(part, forwarding, output, cx)) {
                    Ok(()) => {}
                    Err(_) if was_new && output.len() == from => self.lost(awaited.is_write, output),
                    // The client has a part of the reply already.
                    Err(error) => return Poll::Ready(Err(End::Io(error))),
                }
                Poll::Ready(Ok(was_new && output.get(from) == Some(&b'-')))
            }
            Kind::Merge { how, parts } => {
                for (part, reply) in parts.iter_mut() {
                    ready!(self.poll_whole(part, awaited.is_write, forwarding, &mut reply.bytes, cx));
                }
                let replies: Vec<PartReply> = std::mem::take(parts).into_iter().map(|(_, reply)| reply).collect();
                merge(*how, &replies, self.worker.ticks(), self.proto, output);
                Poll::Ready(Ok(output.get(from) == Some(&b'-')))
            }
            Kind::Page { stripe, part, bytes } => {
                ready!(self.poll_whole(part, false, forwarding, bytes, cx));
                let end = self.worker.hub.routes.get().map_or(STRIPES, |routes| routes.end_of_run(*stripe));
                // Behind the run of stripes, the next owner goes on.
                let next = |cursor| match stripe_of_cursor(cursor) {
                    at if cursor != 0 && at < end => cursor,
                    _ => cursor_of_stripe(end),
                };
                if with_cursor(bytes, next, self.proto, output).is_none() {
                    output.extend_from_slice(bytes);
                }
                Poll::Ready(Ok(output.get(from) == Some(&b'-')))
            }
        }
    }

    fn lost(&self, is_write: bool, output: &mut Vec<u8>) {
        let read = "CLUSTERDOWN the connection to the key's shard was lost; the command has changed nothing";
        Out::new(output, self.proto).error(if is_write { UNCERTAIN } else { read });
    }

    /// A reply that is not passed on before it is complete. What was lost is an error in its place.
    fn poll_whole(
        &self,
        part: &mut Part,
        is_write: bool,
        forwarding: &mut Forwarding,
        bytes: &mut Vec<u8>,
        cx: &mut Waking<'_>,
    ) -> Poll<()> {
        let polled = self.poll_part(part, forwarding, bytes, cx);
        match polled {
            Poll::Ready(Err(_)) => {
                bytes.clear();
                self.lost(is_write, bytes);
                part.is_done = true;
            }
            Poll::Ready(Ok(())) if part.is_too_large => {
                bytes.clear();
                let text = self.worker.hub.dataset.memory.too_much(part.bytes).text();
                Out::new(bytes, self.proto).error(&text);
            }
            _ => {}
        }
        polled.map(drop)
    }

    /// Takes what has arrived of a shard's reply. An error: the session is lost. Pending without being woken: the output is full.
    fn poll_part(
        &self,
        part: &mut Part,
        forwarding: &mut Forwarding,
        output: &mut Vec<u8>,
        cx: &mut Waking<'_>,
    ) -> Poll<Result<(), String>> {
        while !part.is_done {
            let Some(session) = forwarding.session(part.shard) else {
                return Poll::Ready(Err("the connection to a shard was lost".to_owned()));
            };
            let is_owed = part.owed > 0;
            let mut dropped = Vec::new();
            let each = |bytes: &[u8]| match is_owed {
                true => dropped.extend_from_slice(bytes),
                false if part.is_too_large => {}
                false => output.extend_from_slice(bytes),
            };
            match ready!(session.poll_take(&mut part.extent, cx, each)) {
                Ok(Taken::All) if is_owed => {
                    part.owed -= 1;
                    session.was_told(&dropped);
                }
                Ok(Taken::All) => part.is_done = true,
                Ok(Taken::Part) if part.granted == usize::MAX && output.len() > self.pause_bytes => {
                    return Poll::Pending;
                }
                Ok(Taken::Part) => {}
                Err(error) => {
                    forwarding.lose(part.shard);
                    return Poll::Ready(Err(error.to_string()));
                }
            }
            self.claim(part, output);
        }
        Poll::Ready(Ok(()))
    }

    /// A reply that waits for others takes memory until then.
    #[inline]
    fn claim(&self, part: &mut Part, output: &mut Vec<u8>) {
        if output.len() <= part.granted || part.is_too_large {
            return;
        }
        let more = FREE_BYTES.max(output.len() / 2);
        if self.worker.hub.dataset.memory.ask_now(self.client_info, more) {
            part.granted = output.len() + more;
        } else {
            (part.is_too_large, part.bytes) = (true, output.len());
            *output = Vec::new();
        }
    }
}
