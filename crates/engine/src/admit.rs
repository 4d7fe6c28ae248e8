//! Owns the decision whether a command may run now: its name, arity, user, busy scripts, pauses, room. Never knows
//! what the command does.

use crate::access;
use crate::acl;
use crate::batch::Prepared;
use crate::clients::LoadState;
use crate::directory::{Command, bit};
use crate::error_replies::{READ_ONLY, STALE, TOO_FEW_REPLICAS};
use crate::halt::{End, Halt, Wait};
use crate::hub::Hub;
use crate::journaling::WriteAdmission;
use crate::nested_poll;
use crate::work::Current;
use crate::worker::Worker;
use commands::session::{Reply, Rerun, Session};
use commands::{Args, Stop, unknown_subcommand};
use resp::Out;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use store::Admission;

/// Clients know the first word from Redis.
const UNSAVED: &str = "MISCONF The last dump could not be written, and stop-writes-on-bgsave-error is yes: see the log for the reason. Writes are accepted again after a successful SAVE or BGSAVE";

/// A word of the node's own, and no command: `REPLAY-AT milliseconds`. While the node replays a journal, the commands that
/// follow on the connection see this time, and memory is not refused to them. Nobody else knows the word. `REPLAY-AT PRESENT`: they repeat
/// what a primary does, so nothing has expired for them until the primary says so. `REPLAY-AT FILE`: they are those of an append-only file.
pub const REPLAY_AT: &str = "REPLAY-AT";
/// From this command on, itself included, the connection gets no reply but errors, until `CLIENT REPLY ON`.
pub const ERRORS_ONLY: &str = "ERRORS-ONLY";

/// Why this connection may not run this command: it has not authenticated, its user lacks the right, or it is in
/// subscriber or monitor mode. Only connections that are restricted in one of these ways come here.
#[cold]
fn confined(worker: &Worker, session: &Session, command: &Command, args: Args<'_>) -> Option<Cow<'static, str>> {
    if !session.authenticated && !command.is(bit::NO_AUTH) && !worker.hub.users.default_is_open() {
        return Some("NOAUTH Authentication required.".into());
    }
    if let Err(denial) = access::check(worker, session, command, args, access::context(session)) {
        return Some(access::refusal(session, command, denial).into());
    }
    if session.listens_only && !command.is(bit::LISTENER) {
        let text = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            command.name
        );
        return Some(text.into());
    }
    if session.monitors && command.is(bit::READONLY | bit::WRITE) {
        return Some("ERR Replica can't interact with the keyspace".into());
    }
    None
}

/// A proxy's word: `RUN-AS user [rule ...]`. The commands that follow have this user's rights, which are all rights without a rule.
pub const RUN_AS: &str = "RUN-AS";

/// A proxy's word: the client has written to this dataset, by another way than this session, up to now. WAIT waits for that too.
/// `WROTE EARLIER`: through a session that has ended, so maybe to a copy that was lost.
pub const WROTE: &str = "WROTE";
pub const WROTE_EARLIER: &str = "EARLIER";

/// A proxy's word: `REVISIONS`. The reply has the revisions of the records that the copy has taken, a line for each: `functions:12`. It runs
/// while a script is busy, because the new settings may be what makes an end of the script possible.
pub const REVISIONS: &str = "REVISIONS";

/// The proxy's words.
const OF_PROXIES: [&str; 3] = [RUN_AS, WROTE, REVISIONS];

/// Whether it is a word of the node's own, which this connection may say.
pub fn is_own_word(session: &Session, name: &[u8]) -> bool {
    (session.repeats && (name == REPLAY_AT.as_bytes() || name == ERRORS_ONLY.as_bytes()))
        || (session.forwarded.is_some() && OF_PROXIES.iter().any(|word| name == word.as_bytes()))
}

/// Obeys [`REPLAY_AT`], [`ERRORS_ONLY`], [`RUN_AS`], [`WROTE`] or [`REVISIONS`].
#[cold]
pub fn own_word(hub: &Hub, session: &mut Session, args: Args<'_>, output: &mut Vec<u8>) -> Result<(), Halt> {
    if &args[0] == REVISIONS.as_bytes() {
        let (functions, settings) = (hub.scripts.agreed.load(Relaxed), hub.settings_revision.load(Relaxed));
        let text = format!("functions:{functions}\r\nsettings:{settings}\r\n");
        Out::new(output, session.proto).bulk(text.as_bytes());
        return Ok(());
    }
    if &args[0] == WROTE.as_bytes() {
        session.written.to = hub.dataset.journaling.position();
        session.replicated.to = hub.dataset.journaling.stream.offset();
        // Only with synchronous replication does each primary have all that was acknowledged by the one before it.
        let may_lack_writes = args.get(1).is_some() && !hub.dataset.journaling.serving.is_sync();
        if let Some(forwarded) = session.forwarded.as_mut().filter(|_| may_lack_writes) {
            forwarded.may_lack_writes = true;
        }
        Out::new(output, session.proto).ok();
        return Ok(());
    }
    if &args[0] == RUN_AS.as_bytes() {
        let user = args.get(1).and_then(|user| std::str::from_utf8(user).ok());
        let user = user.ok_or(Halt::Error("ERR expected the name of a user".into()))?;
        let rules: Vec<Vec<u8>> = args.from(2).map(<[u8]>::to_vec).collect();
        access::run_as(session, user, &rules);
        Out::new(output, session.proto).ok();
        return Ok(());
    }
    if &args[0] == ERRORS_ONLY.as_bytes() {
        session.reply = Reply::Errors;
        return Ok(());
    }
    let rerun = match args.get(1) {
        Some(b"PRESENT") => Some(Rerun::Primary),
        Some(b"FILE") => Some(Rerun::File),
        time => time.and_then(|time| std::str::from_utf8(time).ok()?.parse().ok()).map(Rerun::Journal),
    };
    if rerun.is_none() {
        return Err(Halt::Error("ERR expected PRESENT, FILE or a time in milliseconds".into()));
    }
    session.rerun = rerun;
    Out::new(output, session.proto).ok();
    Ok(())
}

/// Decides whether a command may run now.
#[inline]
pub fn admit<'w>(
    worker: &'w Worker,
    session: &Session,
    current: &Current,
    args: Args<'_>,
    known: Option<&Prepared>,
    now_ms: u64,
) -> Result<&'w Command, Halt> {
    let hub = &*worker.hub;
    let found = match known {
        Some(known) => known.command.map(|place| hub.directory.at(place)),
        None => hub.directory.find(&args[0]),
    };
    let mut command = match found {
        Some(command) => command,
        None => unknown(worker, session, args)?,
    };
    if command.is(bit::CONTAINER) && args.len() > 1 {
        match command.subcommand(&args) {
            Some(subcommand) => command = subcommand,
            None => return Err(unknown_sub(command, args)),
        }
    }
    if !command.takes(args.len()) {
        let text = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(refused(worker, command, text.into()));
    }
    if session.is_confined()
        && let Some(text) = confined(worker, session, command, args)
    {
        return Err(refused(worker, command, text));
    }
    if let Some(text) = hub.scripts.busy() {
        if nested_poll::is_on() && uses_watches(session, command) {
            return Err(Halt::Wait(Wait::Stripes));
        }
        // What a primary sends waits for the script.
        if acl::is_loader(&session.user) {
            return Err(Halt::Wait(Wait::Stripes));
        }
        if !command.is(bit::ALLOW_BUSY) && !follows_client(session, command) {
            return Err(refused(worker, command, text.into()));
        }
    } else if nested_poll::is_on() && worker.runs_script() && !runs_beside(worker, session, command, args) {
        // Asked again in each pass: later the script may be busy.
        return Err(Halt::Wait(Wait::Turn));
    }
    if hub.clients.may_be_paused() && !acl::is_loader(&session.user) {
        if let Some(halt) = refused_while_loading(worker, command) {
            return Err(halt);
        }
        if hub.clients.suspended.load(Relaxed) && !acl::is_console(&session.user) {
            let text = format!("PAUSED Database '{}' is paused by its operator", hub.name);
            return Err(refused(worker, command, text.into()));
        }
        if is_stale(worker, session) && !command.is(bit::STALE) {
            return Err(refused(worker, command, STALE.into()));
        }
        if is_closed(worker, session) && command.is(DATASET) {
            worker.stats().by_command[command.id].rejected.add(1);
            return Err(Halt::NotOwned);
        }
        let writes = command.is(bit::WRITE | bit::MAY_REPLICATE);
        if writes && hub.clients.unsaved.load(Relaxed) {
            return Err(refused(worker, command, UNSAVED.into()));
        }
        if !command.is(bit::UNPAUSABLE) && hub.clients.is_paused(writes, now_ms) {
            // The operator can look at everything, and end the pause.
            if writes || !acl::is_console(&session.user) {
                return Err(Halt::Wait(Wait::Pause { writes }));
            }
        }
    }
    if command.is(bit::DENYOOM) {
        match hub.dataset.store.admission() {
            Admission::Open => {}
            Admission::Slow if current.has_room => {}
            Admission::Slow => return Err(Halt::Wait(Wait::Demotion)),
            // There was room when the journal was written.
            Admission::Full if session.rerun.is_some_and(Rerun::has_room) => {}
            Admission::Full => return Err(refused(worker, command, hub.dataset.store.refusal().into())),
        }
    }
    if command.is(bit::WRITE) {
        may_write(worker, session).map_err(|halt| match halt {
            Halt::Error(text) => refused(worker, command, text),
            halt => halt,
        })?;
    }
    Ok(command)
}

/// Whether this client gets nothing of the dataset, because the primary is away.
#[inline]
pub fn is_stale(worker: &Worker, session: &Session) -> bool {
    worker.hub.clients.stale.load(Relaxed) && !acl::is_loader(&session.user)
}

/// Commands that read or change keys, with or without naming them, or wait for what was changed.
pub const DATASET: u32 = bit::READONLY | bit::WRITE | bit::SCRIPT | bit::BARRIER | bit::BLOCKS;

/// Whether the database owns no stripe, so that its clients get nothing of the dataset.
#[inline]
pub fn is_closed(worker: &Worker, session: &Session) -> bool {
    worker.hub.clients.owns_nothing.load(Relaxed) && !acl::is_loader(&session.user)
}

/// Whether the journal takes what a command would write. The node's own loader may always write: its commands are in the journal already,
/// or need not survive a crash.
#[inline]
pub fn may_write(worker: &Worker, session: &Session) -> Result<(), Halt> {
    let journaling = &worker.hub.dataset.journaling;
    match journaling.write_admission() {
        WriteAdmission::Open => Ok(()),
        _ if acl::is_loader(&session.user) => Ok(()),
        WriteAdmission::ReadOnly => Err(Halt::Error(READ_ONLY.into())),
        WriteAdmission::Behind => Err(Halt::Wait(Wait::Journal)),
        WriteAdmission::Failed => Err(Halt::Error(journaling.refusal().into())),
        WriteAdmission::TooFewReplicas => Err(Halt::Error(TOO_FEW_REPLICAS.into())),
    }
}

/// Keeps a command from a dataset that is being loaded.
#[cold]
fn refused_while_loading(worker: &Worker, command: &Command) -> Option<Halt> {
    let clients = &worker.hub.clients;
    match clients.load_state() {
        LoadState::Open => None,
        LoadState::Loading | LoadState::Arriving if command.is(bit::LOADING) => None,
        LoadState::Arriving if command.is(bit::WHILE_ARRIVING) => None,
        LoadState::Loading | LoadState::Arriving => {
            let text = "LOADING Redis is loading the dataset in memory";
            Some(refused(worker, command, text.into()))
        }
    }
}

/// What a proxy's session says about its client (`ForwardingSession::follow`), and never a client itself. If it were refused, the session's
/// next commands would run in another logical database, or count as accesses.
#[cold]
fn follows_client(session: &Session, command: &Command) -> bool {
    session.forwarded.is_some() && matches!(command.name, "select" | "client|no-touch" | "client|id")
}

/// Commands that watch keys, or forget watched keys, lock stripes. So they cannot run while a script is busy,
/// although the other ALLOW_BUSY commands can.
#[cold]
fn uses_watches(session: &Session, command: &Command) -> bool {
    command.is(bit::WATCHES) || (command.is(bit::UNWATCHES) && !session.watches.is_empty())
}

/// Whether a command can run in the middle of a script of its own worker: it reads one key, whose stripe nobody holds, or it is a
/// small one without keys.
#[cold]
fn runs_beside(worker: &Worker, session: &Session, command: &Command, args: Args<'_>) -> bool {
    const OTHERWISE: u32 = bit::SPECIAL & !(bit::KEYLESS | bit::LISTENER) | bit::WRITE | bit::MAY_REPLICATE;
    if session.multi.is_some() || acl::is_loader(&session.user) || command.is(OTHERWISE) {
        return false;
    }
    match command.only_key.and_then(|at| args.get(at.get())) {
        Some(name) => {
            command.is(bit::READONLY) && worker.hub.dataset.store.is_free(&worker.hub.dataset.store.hasher().key(name))
        }
        None => command.is(bit::KEYLESS) && command.is(bit::FAST),
    }
}

#[cold]
fn unknown_sub(command: &Command, args: Args<'_>) -> Halt {
    match unknown_subcommand(args, &command.name.to_uppercase()) {
        Err(Stop::Error(text)) => Halt::Error(text),
        _ => unreachable!("it is unknown"),
    }
}

#[cold]
fn refused(worker: &Worker, command: &Command, text: Cow<'static, str>) -> Halt {
    worker.stats().by_command[command.id].rejected.add(1);
    Halt::Error(text)
}

/// The error quotes at most this many bytes of an unknown command.
const QUOTED_BYTES_MAX: usize = 128;

/// A name that no command has here: one of the node's own, which its loader uses, or an error.
#[cold]
fn unknown<'w>(worker: &'w Worker, session: &Session, args: Args<'_>) -> Result<&'w Command, Halt> {
    let name = &args[0];
    let original = if acl::is_loader(&session.user) { worker.hub.directory.original(name) } else { None };
    original.ok_or_else(|| nobody_knows(worker, args))
}

fn nobody_knows(worker: &Worker, args: Args<'_>) -> Halt {
    let name = &args[0];
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        // A web page may have made a browser send HTTP here. Close the connection before the commands in the
        // request's body are reached.
        tracing::warn!(worker = worker.index, "a client sent HTTP, which may be an attack; its connection is closed");
        return Halt::End(End::Asked);
    }
    let name = String::from_utf8_lossy(&name[..name.len().min(QUOTED_BYTES_MAX)]);
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let quoted_from = text.len();
    for arg in args.from(1) {
        let Some(room) = QUOTED_BYTES_MAX.checked_sub(text.len() - quoted_from).filter(|&room| room > 0) else { break };
        text.push_str(&format!("'{}' ", String::from_utf8_lossy(&arg[..arg.len().min(room)])));
    }
    Halt::Error(text.into())
}
