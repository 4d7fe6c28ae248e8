//! Owns the execution of EVAL and its like: which script, under which locks, what its commands may do, and the reply.
//! Never knows Lua's stack (crate `lua`) or what a command does.
//!
//! Before the script starts, the stripes of the declared keys are locked and their cold values are read. When the
//! script touches an undeclared key, the stripe of that key is locked too. This fails if another script holds that
//! stripe and wants one of ours. Then the script starts again with every stripe locked, unless it has changed
//! something.

use crate::access::{self, Context};
use crate::acl;
use crate::admit::is_stale;
use crate::clients::ClientInfo;
use crate::config_snapshot::ConfigSnapshot;
use crate::directory::{Command, bit};
use crate::error_replies::{READ_ONLY, STALE, TOO_FEW_REPLICAS};
use crate::execute::{Around, inside as run_inside, keys};
use crate::halt::{Halt, Wait};
use crate::hub::Hub;
use crate::interpreter::{Interpreter, Scratch};
use crate::journaling::WriteAdmission;
use crate::nested_poll;
use crate::prefetch::prefetch;
use crate::routes::Policy;
use crate::scripts::{About, Scripts, What, as_sha};
use crate::work::Work;
use crate::worker::Worker;
use commands::host::REDIS_VERSION;
use commands::session::Session;
use commands::{Args, Stop, number};
use lua::{Callable, Called, Calls, Compiled, Engine, Flags, KEPT_BYTES, Passed, Words, plain};
use resp::{Out, Proto};
use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use store::{Admission, Key, Keyspace, NotHeld, Why};

impl Worker {
    /// Runs `f` on this worker's interpreter, which is made at the first call.
    pub fn with_interpreter<T>(&self, f: impl FnOnce(&mut Interpreter) -> T) -> Result<T, String> {
        let mut slot = self.interpreter.borrow_mut();
        let interpreter = match &mut *slot {
            Some(interpreter) => interpreter,
            None => {
                let engine =
                    Engine::new(REDIS_VERSION).map_err(|error| format!("ERR Lua does not start: {}", plain(&error)))?;
                slot.insert(Interpreter { engine, scratch: Scratch::default() })
            }
        };
        self.forget_flushed(&mut interpreter.engine);
        interpreter.engine.limit_memory(match self.config_snapshot().config.script_memory_bytes {
            0 => self.hub.dataset.memory.script_bytes_max(self.hub.worker_handles.len()),
            bytes => bytes,
        });
        let result = f(interpreter);
        interpreter.engine.tidy(nested_poll::pass);
        // Another worker may have flushed them meanwhile.
        self.forget_flushed(&mut interpreter.engine);
        self.note_memory(&interpreter.engine);
        Ok(result)
    }

    /// Gives back the memory of scripts and libraries that are there no more. A worker that runs a script does it afterwards.
    pub fn forget_scripts(&self) {
        if let Ok(mut slot) = self.interpreter.try_borrow_mut()
            && let Some(Interpreter { engine, .. }) = &mut *slot
        {
            self.forget_flushed(engine);
            let libraries = self.hub.scripts.libraries.read();
            engine.forget_libraries(|name| libraries.has(name));
            self.note_memory(engine);
        }
    }

    fn forget_flushed(&self, engine: &mut Engine) {
        let flushes = self.hub.scripts.flushes.load(Relaxed);
        if engine.flushes != flushes {
            engine.forget(flushes);
        }
    }

    fn note_memory(&self, engine: &Engine) {
        self.hub.scripts.running[self.index].note_memory(engine.lua.used_memory());
    }
}

/// The script to run.
struct Script {
    name: Name,
    function: Rc<Callable>,
    what: What,
    flags: Flags,
    /// EVAL_RO and its like.
    is_ro: bool,
    key_count: usize,
    /// The number of EVAL or the like, for its statistics.
    command: usize,
}

/// The script's name in errors.
enum Name {
    Script(Rc<Compiled>),
    Function(String),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Script(compiled) => f.write_str(&String::from_utf8_lossy(&compiled.sha)),
            Name::Function(name) => f.write_str(name),
        }
    }
}

impl Script {
    fn may_write(&self) -> bool {
        !self.is_ro && !self.flags.no_writes
    }
}

/// EVAL and its like, outside of a transaction.
#[cold]
pub fn run(
    worker: &Worker,
    snapshot: &ConfigSnapshot,
    session: &mut Session,
    client_info: &ClientInfo,
    work: &mut Work,
    command: &Command,
    now_ms: u64,
) -> Result<(), Halt> {
    let result = worker
        .with_interpreter(|interpreter| {
            let around = Around { worker, snapshot, client_info, is_script: true };
            outside(&around, session, work, interpreter, command, now_ms)
        })
        .unwrap_or_else(|text| Err(Halt::Error(text.into())));
    match result {
        Err(Halt::Wait(Wait::Flash)) => prefetch(worker, session, work),
        Err(Halt::Wait(_)) => {}
        _ => work.current.whole = false,
    }
    result
}

fn outside(
    around: &Around<'_>,
    session: &mut Session,
    work: &mut Work,
    interpreter: &mut Interpreter,
    command: &Command,
    now_ms: u64,
) -> Result<(), Halt> {
    let hub = &*around.worker.hub;
    let Work { batch, output, current, positions, .. } = work;
    let args = batch.args(batch.commands[batch.next]);
    let script = match find(&hub.scripts, &mut interpreter.engine, command, args) {
        Ok(script) => script,
        Err(halt) => {
            if hub.monitors.any() {
                show(around, session.db, args);
            }
            return Err(halt);
        }
    };
    if script.may_write() {
        let is_loader = acl::is_loader(&session.user);
        if hub.clients.may_be_paused() && !is_loader && hub.clients.is_paused(true, now_ms) {
            return Err(Halt::Wait(Wait::Pause { writes: true }));
        }
        if hub.dataset.store.admission() == Admission::Slow && !current.has_room {
            return Err(Halt::Wait(Wait::Demotion));
        }
        if hub.dataset.journaling.write_admission() == WriteAdmission::Behind && !is_loader {
            return Err(Halt::Wait(Wait::Journal));
        }
    }
    let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
    // Run the script even if a read failed: the script may not need that value.
    let again = current.failed.take().is_some() || current.misses > 0;
    loop {
        let (db, touch) = (session.db, !session.no_touch);
        let locked = if current.whole {
            hub.dataset.store.try_lock_all(db, now_ms, touch, session.reach(), &mut current.resume)
        } else {
            hub.dataset.store.try_lock(&keys, db, now_ms, touch, session.reach(), &mut current.resume)
        };
        let mut ks = locked.map_err(Halt::from)?;
        if !again && ks.want(&keys).is_err() {
            ks.finish();
            return Err(Halt::Wait(Wait::Flash));
        }
        if hub.monitors.any() && !current.whole {
            show(around, db, args);
        }
        let reply_from = output.len();
        let result = execute(around, session, &mut ks, interpreter, &script, args, output, !current.whole);
        ks.finish();
        match result {
            Ok(()) => return Ok(()),
            Err(Ended::Error(text)) => return Err(Halt::Error(text)),
            Err(Ended::WantsAll) => {
                output.truncate(reply_from);
                current.whole = true;
            }
        }
    }
}

/// Monitors see the script before the commands that it calls.
#[cold]
fn show(around: &Around<'_>, db: usize, args: Args<'_>) {
    let worker = around.worker;
    worker.hub.monitors.show(&worker.hub, worker.time_us(), db, Some(&around.client_info.peer), args);
}

/// EVAL and its like inside a transaction.
pub fn inside(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    command: &Command,
    args: Args<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let around = &Around { is_script: true, ..*around };
    let result = around.worker.with_interpreter(|interpreter| {
        if around.worker.hub.monitors.any() {
            show(around, session.db, args);
        }
        let script = find(&around.worker.hub.scripts, &mut interpreter.engine, command, args)?;
        match execute(around, session, ks, interpreter, &script, args, output, false) {
            Ok(()) => Ok(()),
            Err(Ended::Error(text)) => Err(Halt::Error(text)),
            Err(Ended::WantsAll) => {
                unreachable!("execute() was called with the rule that it must not ask for all stripes")
            }
        }
    });
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Halt::Error(text))) => Err(Stop::Error(text)),
        Ok(Err(_)) => unreachable!("nothing is waited for inside a transaction"),
        Err(text) => Err(Stop::Error(text.into())),
    }
}

/// Whether the script that the command's arguments name may write, or that is not known.
#[cold]
pub fn may_write(hub: &Hub, command: &Command, args: Args<'_>) -> bool {
    if command.is(bit::READONLY) {
        return false;
    }
    let name = args.get(1).unwrap_or_default();
    let flags = match command.row.name {
        "fcall" => {
            let libraries = hub.scripts.libraries.read();
            let found = std::str::from_utf8(name).ok().and_then(|name| libraries.find(name));
            found.map(|(library, at)| library.functions[at].flags)
        }
        "evalsha" => as_sha(name).and_then(|sha| hub.scripts.body(&sha)).and_then(|body| lua::flags_of(&body)),
        _ => lua::flags_of(name),
    };
    flags.is_none_or(|flags| !flags.no_writes)
}

/// Finds the script that the command's arguments name.
fn find(scripts: &Scripts, engine: &mut Engine, command: &Command, args: Args<'_>) -> Result<Script, Halt> {
    let is_ro = command.is(bit::READONLY);
    let whole = |text: String| Halt::Error(text.into());
    if command.row.name.starts_with("fcall") {
        let known = std::str::from_utf8(&args[1]).ok().and_then(|name| scripts.libraries.read().find(name));
        let Some((library, at)) = known else { return Err(Halt::Error("ERR Function not found".into())) };
        let key_count = key_count(args, "ERR Bad number of keys provided")?;
        let registered = &library.functions[at];
        let (name, flags) = (registered.name.clone(), registered.flags);
        let is_there = |name: &str| scripts.libraries.read().has(name);
        let function = engine.function(&library, &name, is_there).map_err(whole)?;
        return Ok(Script {
            function,
            name: Name::Function(name),
            what: What::Function,
            flags: Flags { given: true, ..flags },
            is_ro,
            key_count,
            command: command.id,
        });
    }
    let by_sha = command.row.name.starts_with("evalsha");
    // As in Redis: a text that is not a SHA-1 is refused before the number of keys is checked, an unknown SHA-1 after
    // it.
    if by_sha && args[1].len() != 40 {
        return Err(Halt::Error("NOSCRIPT No matching script. Please use EVAL.".into()));
    }
    let key_count = key_count(args, "ERR value is not an integer or out of range")?;
    let compiled = if by_sha {
        let unknown = || Halt::Error("NOSCRIPT No matching script. Please use EVAL.".into());
        let sha = as_sha(&args[1]).ok_or_else(unknown)?;
        match engine.by_sha(&sha) {
            Some(compiled) => compiled,
            None => engine.compile(&scripts.body(&sha).ok_or_else(unknown)?).map_err(whole)?,
        }
    } else {
        match engine.by_body(&args[1]) {
            Some(compiled) => compiled,
            None => {
                let compiled = engine.compile(&args[1]).map_err(whole)?;
                scripts.add(&args[1], false);
                compiled
            }
        }
    };
    let function = Rc::clone(&compiled.function);
    Ok(Script {
        function,
        what: What::Script,
        flags: compiled.flags,
        name: Name::Script(compiled),
        is_ro,
        key_count,
        command: command.id,
    })
}

fn key_count(args: Args<'_>, not_a_number: &'static str) -> Result<usize, Halt> {
    let text = match number::int(&args[2]) {
        None => not_a_number,
        Some(count) if count > args.len() as i64 - 3 => "ERR Number of keys can't be greater than number of args",
        Some(..0) => "ERR Number of keys can't be negative",
        Some(count) => return Ok(count as usize),
    };
    Err(Halt::Error(text.into()))
}

enum Ended {
    /// The whole error, starting with its code.
    Error(Cow<'static, str>),
    /// The script touched a key whose stripe could not be locked. It may start again with every stripe locked.
    WantsAll,
}

const STALE_SCRIPT: &str = "MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set \
                            on the script.";

#[expect(clippy::too_many_arguments, reason = "as many as a script has around it")]
fn execute(
    around: &Around<'_>,
    session: &mut Session,
    ks: &mut Keyspace<'_>,
    interpreter: &mut Interpreter,
    script: &Script,
    args: Args<'_>,
    output: &mut Vec<u8>,
    may_restart: bool,
) -> Result<(), Ended> {
    let error = |text: &'static str| Err(Ended::Error(text.into()));
    let hub = &*around.worker.hub;
    let is_full = hub.dataset.store.admission() == Admission::Full;
    if is_stale(around.worker, session) && !script.flags.allow_stale {
        return error(if script.flags.given { STALE_SCRIPT } else { STALE });
    }
    if script.flags.given {
        if script.is_ro && !script.flags.no_writes {
            return error("ERR Can not execute a script with write flag using *_ro command.");
        }
        if !script.flags.no_writes && !acl::is_loader(&session.user) {
            match hub.dataset.journaling.write_admission() {
                WriteAdmission::ReadOnly => return error(READ_ONLY),
                WriteAdmission::TooFewReplicas => return error(TOO_FEW_REPLICAS),
                WriteAdmission::Open | WriteAdmission::Behind | WriteAdmission::Failed => {}
            }
        }
        if is_full && !script.flags.allow_oom && !script.flags.no_writes {
            return error("OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'");
        }
    }
    let Interpreter { engine, scratch } = interpreter;
    let (before, reply_from) = ((session.db, session.proto), output.len());
    let why = std::mem::replace(&mut ks.resume.why, Why::Script);
    let mut out = Out::new(output, session.proto);
    session.proto = Proto::Resp2;
    let hasher = hub.dataset.store.hasher();
    let slot = args.get(3).filter(|_| script.key_count > 0).map(|name| hasher.hash(name).slot);
    let mut running = Running {
        around,
        ks,
        session,
        scratch: std::mem::take(scratch),
        may_write: script.may_write(),
        is_full: is_full && !script.flags.allow_oom,
        may_restart,
        has_effects: false,
        wants_all: false,
        has_failed: false,
        panicked: None,
        started: Instant::now(),
        is_busy: false,
        script,
        args,
        slot,
    };
    hub.scripts.running[around.worker.index].begin(script.what);
    let how = if script.what == What::Function { Passed::AsArguments } else { Passed::AsGlobals };
    let outcome = engine.run(&mut running, &script.function, args.tail(3), script.key_count, how, &mut out);
    let (wants_all, has_failed, panicked) = (running.wants_all, running.has_failed, running.panicked.take());
    *scratch = std::mem::take(&mut running.scratch);
    running.ks.resume.why = why;
    drop(running);
    (session.db, session.proto) = before;
    scratch.words.shrink();
    if scratch.reply.capacity() > KEPT_BYTES {
        scratch.reply = Vec::new();
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
    if wants_all {
        return Err(Ended::WantsAll);
    }
    if has_failed || outcome.as_ref().is_err_and(|raised| raised.counted) {
        around.worker.stats().by_command[script.command].failed.add(1);
    }
    let Err(raised) = outcome else { return Ok(()) };
    let mut text = String::from_utf8_lossy(&raised.text).into_owned();
    if let Some(place) = raised.place {
        text = format!("{text} script: {}, on {place}.", script.name);
    }
    if raised.counted {
        // The command that failed has already counted this error.
        output.truncate(reply_from);
        Out::new(output, session.proto).error(&text);
        return Ok(());
    }
    Err(Ended::Error(text.into()))
}

/// After a script has run this long, commands that can run beside it do.
const STAND_IN_AFTER: Duration = Duration::from_millis(10);

/// A running script. Its commands come here.
struct Running<'a, 'k> {
    around: &'a Around<'a>,
    ks: &'a mut Keyspace<'k>,
    session: &'a mut Session,
    scratch: Scratch,
    may_write: bool,
    /// RAM is full: commands that need memory are refused.
    is_full: bool,
    may_restart: bool,
    /// The script has done something that others see, or may have done so.
    has_effects: bool,
    wants_all: bool,
    /// The script's reply contains an error.
    has_failed: bool,
    /// The panic of one of its commands. It resumes after Lua has returned.
    panicked: Option<Box<dyn Any + Send>>,
    started: Instant,
    is_busy: bool,
    script: &'a Script,
    args: Args<'a>,
    /// The slot of its keys, for a database that is divided into shards, once it is known.
    slot: Option<u16>,
}

/// Runs however the script ends.
impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        let scripts = &self.around.worker.hub.scripts;
        scripts.running[self.around.worker.index].end();
        if self.is_busy {
            scripts.busy.fetch_sub(1, Relaxed);
        }
    }
}

/// The error of a script that cannot lock a key's stripe and cannot start again: it has changed something, or runs in
/// a transaction.
const UNDECLARED: &str = "ERR Script attempted to access a key that it did not declare, while another script that has locked this key waits for a key of this script: pass all keys of a script as its KEYS";

/// Redis's words for a key of another node, if it is none of the script's KEYS.
const NOT_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";

/// Redis's words for keys of several slots.
const CROSS_SLOT: &str = "ERR Script attempted to access keys that do not hash to the same slot";

const ALL_SHARDS: &str =
    "ERR Script attempted to call a command about all shards, of which it sees one: call it outside of the script";

impl<'a> Running<'a, '_> {
    /// The command that the words name.
    fn find(&self, args: Args<'_>) -> Option<&'a Command> {
        let command = self.around.worker.hub.directory.find(&args[0])?;
        if command.is(bit::CONTAINER) && args.len() > 1 { command.subcommand(&args) } else { Some(command) }
    }

    /// The command that the words name, if a script may run it now.
    fn admit(&self, args: Args<'_>) -> Result<&'a Command, Cow<'static, str>> {
        let command = self.find(args).ok_or("ERR Unknown Redis command called from script")?;
        if !command.takes(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if command.is(bit::NO_SCRIPT) {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if let Err(denial) = access::check(self.around.worker, self.session, command, args, Context::Script) {
            return Err(access::refusal_in_script(self.session, command, denial).into());
        }
        if is_stale(self.around.worker, self.session) && !command.is(bit::STALE) {
            return Err("ERR Can not execute the command on a stale replica".into());
        }
        if command.is(bit::WRITE | bit::MAY_REPLICATE) && !self.may_write {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        let journaling = &self.around.worker.hub.dataset.journaling;
        if command.is(bit::WRITE) && !acl::is_loader(&self.session.user) {
            match journaling.write_admission() {
                WriteAdmission::Failed => return Err(journaling.refusal().into()),
                WriteAdmission::TooFewReplicas => return Err(TOO_FEW_REPLICAS.into()),
                WriteAdmission::ReadOnly => return Err(READ_ONLY.into()),
                WriteAdmission::Open | WriteAdmission::Behind => {}
            }
        }
        if self.is_full && command.is(bit::DENYOOM) && !self.has_effects {
            return Err(self.around.worker.hub.dataset.store.refusal().into());
        }
        if command.is(bit::DENYOOM) && !self.ks.may_keep_more() {
            // A journal or a replica gets all changes of a script at once.
            let text = format!(
                "OOM the changes of a script are kept in RAM until it ends, and the RAM limit has no room for more than the {} bytes that it has: raise ram-limit, or split the script",
                self.ks.kept_bytes()
            );
            return Err(text.into());
        }
        Ok(command)
    }

    fn run_command(&mut self, Scratch { words, reply, positions }: &mut Scratch) -> Called {
        let args = words.args();
        let refuse = |reply: &mut Vec<u8>, text: &str| {
            Out::new(reply, Proto::Resp2).error(text);
            Called::Reply
        };
        let command = match self.admit(args) {
            Ok(command) => command,
            Err(text) => {
                let stats = self.around.worker.stats();
                stats.error(&text);
                if let Some(command) = self.find(args) {
                    stats.by_command[command.id].rejected.add(1);
                }
                return refuse(reply, &text);
            }
        };
        let hub = &*self.around.worker.hub;
        let keys = keys(hub.dataset.store.hasher(), command.row.keys, args, positions);
        if self.session.is_divided()
            && let Some(text) = self.leaves_slot(command, &keys)
        {
            self.around.worker.stats().error(text);
            return refuse(reply, text);
        }
        let reached = match command.is(bit::WHOLE) {
            true if !self.ks.add_all() => Err(NotHeld::Busy),
            true => Ok(()),
            false => self.ks.reach(&keys, self.session.reach()),
        };
        if reached == Err(NotHeld::NotOwned) {
            self.around.worker.stats().error(NOT_LOCAL);
            return refuse(reply, NOT_LOCAL);
        }
        if reached.is_err() {
            if self.may_restart && !self.has_effects {
                self.wants_all = true;
                return Called::Ends;
            }
            self.around.worker.stats().error(UNDECLARED);
            return refuse(reply, UNDECLARED);
        }
        self.has_effects |= command.is(bit::WRITE | bit::PUBLISHES);
        if command.is(bit::WRITE) {
            hub.scripts.running[self.around.worker.index].wrote.store(true, Relaxed);
        }
        run_inside(self.around, self.session, self.ks, command, args, &keys, reply);
        Called::Reply
    }

    /// In a database that is divided into shards: why the command may not run. It depends on slots, and not on where they lie.
    fn leaves_slot(&mut self, command: &Command, keys: &[Key<'_>]) -> Option<&'static str> {
        if matches!(command.policy, Policy::All(_) | Policy::Scan | Policy::Debug | Policy::Refused) {
            return Some(ALL_SHARDS);
        }
        let slot = *self.slot.get_or_insert(keys.first()?.hash.slot);
        keys.iter().any(|key| key.hash.slot != slot).then_some(CROSS_SLOT)
    }

    /// From now on other clients get BUSY, and may end the script.
    #[cold]
    fn becomes_busy(&mut self) {
        self.is_busy = true;
        let scripts = &self.around.worker.hub.scripts;
        let about = About {
            name: self.script.name.to_string(),
            command: self.args.from(0).map(<[u8]>::to_vec).collect(),
            since: self.started,
        };
        tracing::warn!("slow script: {} has run for {} ms", about.name, self.started.elapsed().as_millis());
        scripts.running[self.around.worker.index].becomes_busy(about);
        scripts.busy.fetch_add(1, Relaxed);
    }
}

impl Calls for Running<'_, '_> {
    fn words(&mut self) -> &mut Words {
        &mut self.scratch.words
    }

    fn call(&mut self) -> Called {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.reply.clear();
        // A panic must not unwind through Lua: it would leave Lua's stack behind.
        let called = catch_unwind(AssertUnwindSafe(|| self.run_command(&mut scratch)));
        self.scratch = scratch;
        called.unwrap_or_else(|panic| {
            self.panicked = Some(panic);
            Called::Ends
        })
    }

    fn reply(&self) -> &[u8] {
        &self.scratch.reply
    }

    fn proto(&self) -> Proto {
        self.session.proto
    }

    fn set_proto(&mut self, proto: Proto) {
        self.session.proto = proto;
    }

    fn may_call(&mut self) -> Option<bool> {
        let words = self.scratch.words.args();
        let command = self.find(words)?;
        let Some(rights) = &self.session.rights else { return Some(true) };
        let mut positions = Vec::new();
        command.row.keys.positions(&words, &mut positions);
        Some(rights.check(command.id, command.row, words, &positions).is_ok())
    }

    fn log(&mut self, level: i64, text: &str) {
        lua::log(level, text);
    }

    fn note_error(&mut self, text: &[u8], counted: bool) {
        self.has_failed = true;
        if !counted {
            self.around.worker.stats().error(&String::from_utf8_lossy(text));
        }
    }

    fn tick(&mut self) -> Result<(), &'static str> {
        let hub = &*self.around.worker.hub;
        if hub.is_closing.load(Relaxed) {
            return Err("The server shuts down.");
        }
        if self.is_busy {
            // The client that ends the script may be connected to this worker.
            nested_poll::pass();
            if !hub.scripts.running[self.around.worker.index].killed.load(Relaxed) {
                return Ok(());
            }
            return Err(match self.script.what {
                What::Function => "Script killed by user with FUNCTION KILL.",
                _ => "Script killed by user with SCRIPT KILL.",
            });
        }
        let elapsed = self.started.elapsed();
        // It may have been changed since the script began.
        let threshold_ms = self.around.worker.config_snapshot().config.busy_reply_threshold_ms;
        if threshold_ms > 0 && elapsed > Duration::from_millis(threshold_ms) {
            self.becomes_busy();
        } else if elapsed > STAND_IN_AFTER {
            nested_poll::pass();
        }
        Ok(())
    }
}
