//! Owns every reason for which a batch waits, and how. Never runs a command.

use crate::exchange;
use crate::execute::read_failed;
use crate::job;
use crate::session::Connection;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

/// Why a command cannot go on now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Its values are on their way from flash.
    Flash,
    /// Writers wait for demotion to make room.
    Room,
    /// CLIENT PAUSE.
    Pause,
    /// Others have their turn.
    Turn,
    /// A script keeps a stripe for long.
    Stripes,
    /// Another server is asked something, or another thread works for it.
    Exchange,
}

/// How often a paused connection looks whether the pause is over.
const PAUSE_STEP: Duration = Duration::from_millis(5);
/// How often a command whose stripes a script keeps tries again.
const STRIPES_STEP: Duration = Duration::from_millis(1);

/// Waits for what the current command needs. No lock is held, other connections go on.
pub async fn park(connection: &mut Connection, wait: Wait) {
    if wait != Wait::Turn
        && let Some(work) = &mut connection.work
    {
        connection.worker.make_small(work);
    }
    connection.open.set(wait == Wait::Turn);
    match wait {
        Wait::Flash => flash(connection).await,
        Wait::Room => {
            connection.worker.stats().room_waits.add(1);
            let worker = Rc::clone(&connection.worker);
            worker.pressed.notify_one();
            poll_fn(|cx| worker.lane().poll_room(cx.waker())).await;
            if let Some(work) = &mut connection.work {
                work.current.has_room = true;
            }
        }
        Wait::Pause => tokio::time::sleep(PAUSE_STEP).await,
        Wait::Stripes => tokio::time::sleep(STRIPES_STEP).await,
        Wait::Exchange => {
            // It has left the one or the other.
            let (worker, session) = (&connection.worker, &mut connection.session);
            exchange::carry_out(&worker.targets, &worker.hub, session).await;
            job::carry_out(&worker.hub, session).await;
        }
        Wait::Turn => tokio::task::yield_now().await,
    }
    connection.open.set(true);
}

/// A failed read fails the command that needs it, and that one alone.
async fn flash(connection: &mut Connection) {
    let worker = &connection.worker;
    let Some(work) = connection.work.as_deref_mut() else { return };
    let current = &mut work.current;
    while let Some(ticket) = current.awaited.last() {
        let read = poll_fn(|cx| worker.lane().poll(ticket, cx.waker(), &mut current.resume)).await;
        if let Err(error) = read {
            current.failed = Some(read_failed(&error));
        }
        // Held until the batch is done: a value that was let in for this command alone must still be there when it runs. Other
        // tickets go, or a command that goes over all keys would collect one for each.
        work.prefetched.extend(current.awaited.pop().filter(|ticket| ticket.holds_value()));
    }
}
