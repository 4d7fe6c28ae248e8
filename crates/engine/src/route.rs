//! Owns where an admitted command goes: into the queue of a transaction, to EXEC, to a script, or to its handler.
//! Also owns what the connection must do if the command does not return a reply. Today every dataset is on this node;
//! later, a key's slot will lead from here to another shard. Never knows what a command does.

use crate::blocked::Blocked;
use crate::clients::Card;
use crate::directory::{Command, bit};
use crate::execute::{Stripes, completed, execute, follow, keys, only_key, read_failed};
use crate::park::Wait;
use crate::prefetch::prefetch;
use crate::session::{End, Place, Work};
use crate::thread::{Live, Worker};
use crate::{script, transaction};
use commands::session::Session;
use commands::{Args, Stop};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Why a command has no reply of its own, or no reply yet.
pub enum Halt {
    Wait(Wait),
    Block(Arc<Blocked>),
    Error(Cow<'static, str>),
    End(End),
}

/// Routes an admitted command. Returns the command if it has run, and `None` if it was only queued.
#[inline]
pub fn route<'w>(
    worker: &'w Worker,
    live: &Live,
    session: &mut Session,
    card: &Card,
    work: &mut Work,
    (command, place): (&'w Command, Place),
    now_ms: u64,
) -> (Option<&'w Command>, Result<(), Halt>) {
    if session.multi.is_some() && !command.is(bit::UNQUEUED) {
        let args = work.batch.args(place);
        let queued = transaction::queue(worker, live, session, card, command, args, &mut work.output);
        return (None, queued);
    }
    let is_exec = session.multi.is_some() && command.is(bit::EXEC);
    if !is_exec && !command.is(bit::SCRIPT) {
        return (Some(command), handle(worker, live, session, card, work, (command, place), now_ms));
    }
    let result = match is_exec {
        true => transaction::exec(worker, live, session, card, work, now_ms),
        false => script::run(worker, live, session, card, work, command, now_ms),
    };
    if !matches!(result, Err(Halt::Wait(_))) {
        forget_caching(session);
    }
    (Some(command), result)
}

/// Handles a command that was not admitted: a transaction fails with it.
pub fn refused(worker: &Worker, session: &mut Session, args: Args<'_>, halt: Halt) -> Halt {
    match halt {
        Halt::Error(text) => Halt::Error(transaction::refused(worker, session, args, text)),
        halt => halt,
    }
}

/// Runs a command's own handler, or says what the command must wait for.
#[inline]
fn handle(
    worker: &Worker,
    live: &Live,
    session: &mut Session,
    card: &Card,
    work: &mut Work,
    (command, place): (&Command, Place),
    now_ms: u64,
) -> Result<(), Halt> {
    if let Some(text) = work.current.failed.take() {
        return Err(Halt::Error(text));
    }
    if command.is(bit::KEYLESS) {
        // CLIENT LIST shows the caller with the command that is running.
        card.note_command(command.id);
        if command.is(bit::KEEPS_CACHING) {
            // CLIENT itself is still in the query buffer.
            card.query_bytes.store(work.batch.bytes_from(place), Relaxed);
        }
    }
    let Some(result) = call(worker, live, session, card, work, (command, place), now_ms) else {
        return Err(Halt::Wait(Wait::Stripes));
    };
    result.map_err(|halted| match halted {
        Halted::Halt(halt) => halt,
        Halted::Cold => match work.current.resume.failed.take() {
            Some(error) => Halt::Error(read_failed(&error)),
            None => {
                prefetch(worker, session, work);
                Halt::Wait(Wait::Flash)
            }
        },
    })
}

/// Runs the handler with the stripes of its keys locked. `None`: a script holds one of the stripes for a long time.
#[inline(always)]
fn call(
    worker: &Worker,
    live: &Live,
    session: &mut Session,
    card: &Card,
    Work { batch, output, current, positions, .. }: &mut Work,
    (command, place): (&Command, Place),
    now_ms: u64,
) -> Option<Result<(), Halted>> {
    let (args, known) = (batch.args(place), batch.known().and_then(|known| known.hash));
    let hasher = worker.hub.store.hasher();
    let only = only_key(hasher, command.row.keys, args, known);
    let several;
    let keys = match &only {
        Some(key) => std::slice::from_ref(key),
        None => {
            several = keys(hasher, command.row.keys, args, positions);
            &*several
        }
    };
    let engine = worker.engine(live, now_ms);
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
        result.map_err(|stop| match stop {
            Stop::Block(block) => {
                card.note_command(command.id);
                Halted::Halt(Halt::Block(Blocked::begin(cx, command.row, card, &block)))
            }
            Stop::Error(text) => Halted::Halt(Halt::Error(text)),
            Stop::Yield => Halted::Halt(Halt::Wait(Wait::Turn)),
            Stop::Exchange => Halted::Halt(Halt::Wait(Wait::Exchange)),
            Stop::Memory => Halted::Halt(Halt::Wait(Wait::Memory)),
            Stop::Cold => Halted::Cold,
        })
    })
}

/// What a handler's `Stop` means for its connection, as far as this is known while the stripes are locked.
enum Halted {
    Halt(Halt),
    Cold,
}

/// CLIENT CACHING applies to the next command, or to the whole next transaction.
#[cold]
fn forget_caching(session: &mut Session) {
    if let Some(tracking) = &mut session.tracking {
        tracking.caching = false;
    }
}
