//! Owns running commands: the one function in which every handler runs, for every caller: a client, EXEC, a script, or
//! a blocked client whose key is ready. Never knows what a command does, who may run it, nor how a command waits.
//!
//! [`execute`] locks the stripes of the keys and builds the handler's context. Its caller then runs the handler, and
//! does what must be done before others see the change. [`Locked::run`] settles the outcome: if the handler succeeds,
//! its changes are committed (`store::keyspace`); otherwise it has changed nothing. Blocked clients run afterwards,
//! when no stripe is locked (`blocked::follow_up`).

use crate::account::{Spent, account, show};
use crate::clients::ClientInfo;
use crate::config_snapshot::ConfigSnapshot;
use crate::directory::{Command, bit};
use crate::error_replies::read_failed;
use crate::lost::{self, LostKey, Step, Words};
use crate::worker::Worker;
use commands::host::Host;
use commands::session::{Rerun, Session};
use commands::{Args, Cx, Effect, Keys, Row, Run, Settings, Stop};
use resp::Out;
use smallvec::SmallVec;
use store::{Hasher, Key, KeyHash, Keyspace, NotHeld, ReadError, Resume, Store};

/// What every handler gets.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    pub store: &'a Store,
    pub settings: &'a Settings,
    pub server: &'a dyn Host,
    /// The wall clock that the command sees, milliseconds since 1970.
    pub now_ms: u64,
}

impl Worker {
    /// What this worker gives to a command's handler.
    #[inline]
    pub fn engine<'a>(&'a self, snapshot: &'a ConfigSnapshot, now_ms: u64) -> Engine<'a> {
        Engine { store: &self.hub.dataset.store, settings: &snapshot.settings, server: self, now_ms }
    }
}

/// A command with its arguments.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub row: &'static Row,
    /// `get`, `xgroup|create`: the original name, even if the command was renamed.
    pub name: &'a str,
    /// The command changes state that no key names, so it runs with every stripe locked.
    pub is_barrier: bool,
    pub args: Args<'a>,
    pub keys: &'a [Key<'a>],
}

/// Who locks the stripes of a command's keys.
pub enum Stripes<'a, 'k> {
    /// `execute` locks them, unless a script holds one for a long time.
    InTime(&'a mut Resume),
    /// `execute` locks them, and waits as long as necessary.
    Patiently(&'a mut Resume),
    /// The transaction or script around the command has locked them.
    Of(&'a mut Keyspace<'k>),
}

/// A command whose stripes are locked.
pub struct Locked<'a> {
    pub cx: Cx<'a>,
    row: &'static Row,
    name: &'a str,
}

/// Runs `with` with the stripes of the call's keys locked, unless they cannot be: [`Stop::NotHeld`].
// Always inline, like the functions it calls: a context has some 400 bytes, and each move of it costs as much as
// finding a key.
#[inline(always)]
pub fn execute<'a, T>(
    engine: &Engine<'a>,
    session: &'a mut Session,
    call: Call<'a>,
    stripes: Stripes<'a, '_>,
    output: &'a mut Vec<u8>,
    with: impl FnOnce(&mut Locked<'a>) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let &Engine { store, settings, server, now_ms } = engine;
    let (held, resume) = match stripes {
        Stripes::InTime(resume) if call.is_barrier => match store.try_hold_all(session.reach()) {
            Some(held) => (held, resume),
            None => return Err(store.why_not_all_held(session.reach()).into()),
        },
        Stripes::InTime(resume) => match store.try_hold(call.keys, session.reach()) {
            Some(held) => (held, resume),
            None => return Err(store.why_not_held(call.keys, session.reach()).into()),
        },
        Stripes::Patiently(resume) => match store.hold(call.keys, session.reach()) {
            Some(held) => (held, resume),
            None => return Err(NotHeld::NotOwned.into()),
        },
        Stripes::Of(outer) => outer.lend(),
    };
    let Call { row, name, args, keys, .. } = call;
    let mut ks = Keyspace::new(held, session.db, now_ms, !session.no_touch, resume);
    if let Some(rerun) = session.rerun {
        if rerun.expires_nothing() {
            ks.expire_nothing();
        }
        if rerun.has_room() {
            ks.take_whole();
        }
    }
    let out = Out::new(output, session.proto);
    let mut locked = Locked { cx: Cx { args, keys, ks, out, session, settings, server }, row, name };
    let result = with(&mut locked);
    locked.cx.ks.finish_in_place();
    result
}

impl Locked<'_> {
    /// Runs the handler and settles its changes.
    #[inline(always)]
    pub fn run(&mut self) -> Run {
        let Locked { cx, row, .. } = self;
        let result = (row.run)(cx);
        match &result {
            Ok(()) => self.commit(),
            // Commit the step of a long command, the changes before a wait, and the changes of a command that failed
            // in part.
            Err(Stop::Yield | Stop::Block(_) | Stop::Exchange) if cx.ks.wrote() => self.commit(),
            Err(_) if cx.ks.stands() => self.commit(),
            Err(_) => cx.ks.give_up(),
        }
        result
    }

    #[inline]
    fn commit(&mut self) {
        if self.cx.ks.owes_effect() {
            self.state_arguments();
        }
        self.cx.ks.commit();
    }

    /// States the command's own arguments as its effect.
    #[inline(never)]
    fn state_arguments(&mut self) {
        let Locked { cx, row, name } = self;
        assert!(
            row.effect == Effect::Arguments,
            "'{}' has changed the dataset without a command for the journal and replicas that repeats the change",
            name
        );
        let name = name.split_once('|').map_or(*name, |(container, _)| container);
        cx.repeat(name);
    }
}

/// Rehearses a later command: records which parts of its key's value it will read, if the value is in parts. The
/// handler runs and declares the parts, but changes nothing. `ks` holds the key's stripe.
#[cold]
pub fn rehearse(engine: &Engine<'_>, session: &mut Session, ks: &mut Keyspace<'_>, call: Call<'_>) {
    let [key] = call.keys else { return };
    let mut nothing = Vec::new();
    if let Some(ks) = ks.rehearsal(key, session.db) {
        let &Engine { settings, server, .. } = engine;
        let out = Out::new(&mut nothing, session.proto);
        let mut cx = Cx { args: call.args, keys: call.keys, ks, out, session, settings, server };
        let _ = (call.row.run)(&mut cx);
        cx.ks.give_up();
        cx.ks.finish();
    }
}

impl Command {
    #[inline]
    pub fn call<'a>(&'a self, args: Args<'a>, keys: &'a [Key<'a>]) -> Call<'a> {
        Call { row: self.row, name: self.name, is_barrier: self.is(bit::BARRIER), args, keys }
    }
}

/// The key of a command that has one key at a fixed position. This is the usual case, and it needs no list.
#[inline(always)]
pub fn only_key<'a>(
    hasher: &Hasher,
    command: &Command,
    args: Args<'a>,
    known: impl FnOnce() -> Option<KeyHash>,
) -> Option<Key<'a>> {
    let name = args.get(command.only_key?.get())?;
    Some(Key { name, hash: known().unwrap_or_else(|| hasher.hash(name)) })
}

/// A command's keys with their hashes, in the order of their positions.
pub fn keys<'a>(hasher: &Hasher, places: Keys, args: Args<'a>, positions: &mut Vec<usize>) -> SmallVec<[Key<'a>; 4]> {
    let mut keys = SmallVec::new();
    match places {
        Keys::None | Keys::NotKeys { .. } => {}
        places => {
            positions.clear();
            places.positions(&args, positions);
            keys.extend(positions.iter().filter_map(|&at| args.get(at)).map(|name| hasher.key(name)));
        }
    }
    keys
}

/// Whether a handler is done, with success or with an error.
pub fn completed(result: &Run) -> bool {
    !matches!(result, Err(Stop::Cold | Stop::Yield | Stop::Exchange | Stop::Memory | Stop::NotHeld(_)))
}

/// Registers the keys that a connection with tracking has read, so that the connection is told of changes. The
/// stripes are locked.
#[cold]
pub fn follow(worker: &Worker, session: &Session, command: &Command, keys: &[Key<'_>], result: &Run) {
    let remembers = session.tracking.as_ref().is_some_and(|tracking| tracking.remembers());
    if remembers && command.is(bit::READONLY) && completed(result) {
        keys.iter().for_each(|key| worker.hub.tracking.remember(&worker.hub, key.name, session.id));
    }
}

// --- inside a transaction or script ---

/// What the commands inside a transaction or script get.
pub struct Around<'a> {
    pub worker: &'a Worker,
    pub snapshot: &'a ConfigSnapshot,
    pub client_info: &'a ClientInfo,
    /// The command is inside a script: MONITOR shows it as the script's, and the slow log leaves it out.
    pub is_script: bool,
}

/// Runs a command inside a transaction or script, whose stripes are locked. The command runs to its end, so its reply
/// is complete. Returns whether it succeeded.
pub fn inside(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    keys: &[Key<'_>],
    output: &mut Vec<u8>,
) -> bool {
    debug_assert!(!command.is(bit::SCRIPT), "a script cannot call a script: only `script` runs one");
    inside_by(around, session, ks, command, args, keys, output, |around, session, ks, output| {
        attend(around, session, ks, command.call(args, keys), output)
    })
}

/// Like [`inside`], for a command that is not run by its handler: `run` runs it, as EVAL within a transaction is run by `script`.
#[expect(clippy::too_many_arguments)]
pub fn inside_by(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    keys: &[Key<'_>],
    output: &mut Vec<u8>,
    run: impl FnOnce(&Around<'_>, &mut Session, &mut Keyspace<'_>, &mut Vec<u8>) -> Run,
) -> bool {
    let &Around { worker, client_info, is_script, .. } = around;
    // An earlier command of the same transaction may have been CONFIG SET.
    let mut newer = None;
    let around = &Around { snapshot: worker.newest(around.snapshot, &mut newer), ..*around };
    let (begun, reply_from) = (worker.ticks(), output.len());
    let mut result = run(around, session, ks, output);
    let is_damaged = ks.resume.failed.as_ref().is_some_and(ReadError::is_damage);
    if is_damaged && lost::removes(command) {
        output.truncate(reply_from);
        ks.resume.failed = None;
        ks.resume.removes_unread = true;
        result = attend(around, session, ks, command.call(args, keys), output);
    } else if is_damaged && session.rerun.is_some_and(Rerun::goes_on) {
        let error = ks.resume.failed.clone().expect("it was looked at");
        ks.resume.clear();
        lose(around, session, ks, command, args, keys, &error, output);
        // The thread that applies the primary's stream counts this error as a failed command. A recovery goes on.
        if session.rerun == Some(Rerun::Primary) {
            ks.resume.failed = Some(error);
        } else {
            Out::new(output, session.proto).ok();
            result = Ok(());
        }
    }
    if session.tracking.is_some() {
        follow(worker, session, command, keys, &result);
    }
    if worker.hub.monitors.any() {
        show(worker, session, (!is_script).then_some(client_info), command, args);
    }
    let stats = worker.stats();
    let error = match result {
        Ok(()) => None,
        Err(Stop::Error(text)) => Some(text),
        Err(Stop::Cold | Stop::Yield | Stop::Block(_) | Stop::Exchange | Stop::Memory | Stop::NotHeld(_)) => {
            Some(match ks.resume.failed.take() {
                Some(error) => read_failed(&error),
                None => unreachable!("a cold value inside a transaction is read at once, or fails"),
            })
        }
    };
    if let Some(text) = &error {
        output.truncate(reply_from);
        Out::new(output, session.proto).error(text);
        stats.error(text);
    }
    ks.resume.clear();
    let nanos = worker.nanos(begun, worker.ticks());
    stats.nested_nanos.add(nanos);
    let spent = Spent { nanos, failed: error.is_some(), met_flash: None, in_script: is_script };
    // This command may have been CONFIG SET.
    let mut newest = None;
    account(worker, worker.newest(around.snapshot, &mut newest), client_info, command, || args, spent, ks.now_ms());
    stats.commands.add(1);
    error.is_none()
}

/// Does what [`lost::instead`] says of a repeated command that cannot read a value that it needs. `ks` holds the stripes of its keys.
#[cold]
#[expect(clippy::too_many_arguments)]
pub fn lose(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    keys: &[Key<'_>],
    error: &ReadError,
    output: &mut Vec<u8>,
) {
    let (hub, reply_from) = (&*around.worker.hub, output.len());
    let hasher = hub.dataset.store.hasher();
    let place = keys.iter().find_map(|key| {
        let mut inner = ks.inner(session.db, false);
        let place = inner.place_of(key);
        inner.finish();
        place
    });
    let why: Box<str> = match place {
        Some((path, offset)) => format!("{error}; flash path {path}, offset {offset}").into(),
        None => error.to_string().into(),
    };
    let at_ms = session.rerun.and_then(Rerun::time_ms).unwrap_or_else(|| around.worker.now_ms());
    let mut gone = Vec::new();
    for step in lost::instead(command, args, keys) {
        match step {
            Step::Run(words) => {
                let words = Words::of(&words);
                let args = words.args();
                let found = hub.directory.original(&args[0]).expect("it is in the table");
                let keys = self::keys(hasher, found.row.keys, args, &mut Vec::new());
                inside(around, session, ks, found, args, &keys, output);
            }
            Step::Lose { db, key } => {
                let number = db.and_then(|db| std::str::from_utf8(db).ok()?.parse().ok());
                let db = number.filter(|&db| db < hub.dataset.store.databases()).unwrap_or(session.db);
                let mut inner = ks.inner(db, false);
                inner.lose(&hasher.key(key));
                inner.close();
                gone.push(LostKey { db, name: key.into(), command: command.name.into(), at_ms, why: why.clone() });
            }
        }
    }
    output.truncate(reply_from);
    hub.dataset.lost.note(gone);
}

/// Runs a handler to its end, without unlocking and without parking.
fn attend(
    &Around { worker, snapshot, client_info, is_script }: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    call: Call<'_>,
    output: &mut Vec<u8>,
) -> Run {
    let reply_from = output.len();
    let engine = worker.engine(snapshot, ks.now_ms());
    loop {
        match execute(&engine, session, call, Stripes::Of(ks), output, Locked::run) {
            Err(Stop::Yield) => output.truncate(reply_from),
            Err(Stop::Memory) => {
                // Nothing can be waited for: the memory is there, or the command fails.
                output.truncate(reply_from);
                let bytes = session.claim.wanted;
                let (memory, missing) = (&worker.hub.dataset.memory, bytes - session.claim.granted);
                if session.repeats {
                    memory.take(client_info, missing);
                } else if !memory.ask_now(client_info, missing) {
                    return Err(Stop::Error(memory.too_much(bytes).text().into()));
                }
                session.claim.granted = bytes;
            }
            Err(Stop::Block(block)) => {
                (block.at_once)(&mut Out::new(output, session.proto));
                return Ok(());
            }
            result => {
                // Many commands may follow. What stays is the reply, until EXEC sends it; a script has its own copy.
                let granted = std::mem::take(&mut session.claim.granted);
                let stays = if is_script { 0 } else { output.len() - reply_from };
                if granted > stays {
                    worker.hub.dataset.memory.give_back(client_info, granted - stays);
                }
                return result;
            }
        }
    }
}
