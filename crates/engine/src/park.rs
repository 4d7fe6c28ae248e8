//! Owns how a batch waits, for each reason that `halt` has. Never runs a command.

use crate::blocked;
use crate::clients::ClientInfo;
use crate::exchange;
use crate::forward;
use crate::halt::{End, Wait};
use crate::job;
use crate::nested_poll;
use crate::session::Connection;
use crate::work::Failed;
use crate::worker::Worker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

/// How often a held command checks whether the pause is over.
const PAUSE_STEP: Duration = Duration::from_millis(5);
/// So many reads do not wait for those of other connections: the device should have work.
const READS_AT_ONCE: usize = 8;
/// Objects have made room for a larger claim, but the allocator keeps their pages for a second. New buffers do not fit into these, so that
/// both would be resident.
const PURGED_BYTES: usize = 8 << 20;
/// How often a command retries while a script holds its stripes.
const STRIPES_STEP: Duration = Duration::from_millis(1);

/// Waits for what the current command needs. The connection holds no lock; other connections run. An error means that
/// the connection is over.
pub async fn park(connection: &mut Connection, wait: Wait) -> Result<(), End> {
    if !matches!(wait, Wait::Turn | Wait::Key | Wait::Replies)
        && let Some(work) = &mut connection.work
    {
        connection.worker.make_small(work);
    }
    // A proxy's job, such as CONFIG SET, may be what ends the script that blocks this thread.
    let is_job_of_proxy = matches!(wait, Wait::Exchange) && connection.worker.hub.routes.get().is_some();
    connection.task_slot.set_open(matches!(wait, Wait::Turn | Wait::Drain | Wait::Replies) || is_job_of_proxy);
    match wait {
        Wait::Flash => {
            if connection.is_in_slices() {
                listen(connection).await?;
            }
            flash(connection).await;
        }
        Wait::Demotion => {
            connection.worker.stats().room_waits.add(1);
            let worker = Rc::clone(&connection.worker);
            worker.pressed.notify_one();
            poll_fn(|cx| worker.lane().poll_room(cx.waker())).await;
            if let Some(work) = &mut connection.work {
                work.current.has_room = true;
            }
        }
        Wait::Journal => {
            let worker = Rc::clone(&connection.worker);
            poll_fn(|cx| worker.commit_waiter.poll_writable(cx)).await;
        }
        Wait::Pause { writes } => {
            sit_out(connection, writes).await?;
            connection.withdraw();
        }
        Wait::Stripes => tokio::time::sleep(STRIPES_STEP).await,
        Wait::Exchange => {
            // The command has left an exchange or a job, never both.
            let (worker, session) = (&connection.worker, &mut connection.session);
            exchange::run(&worker.targets, &worker.hub, session).await;
            job::run_job(&worker.hub, session).await;
        }
        // In the next pass of `nested_poll`.
        Wait::Turn if nested_poll::is_on() => tokio::task::yield_now().await,
        Wait::Turn => {
            listen(connection).await?;
            if connection.is_in_slices() {
                connection.end_turn();
            }
            poll_fn(|cx| connection.poll_turn(cx)).await;
        }
        Wait::Drain => {
            connection.update_charge();
            poll_fn(|cx| connection.poll_drain(cx)).await?;
            connection.withdraw();
            connection.update_charge();
        }
        Wait::Replies => forward::settle(connection).await?,
        Wait::Memory => claim(connection).await?,
        Wait::Key => {
            blocked::sit(connection).await?;
            connection.withdraw();
        }
    }
    connection.task_slot.set_open(true);
    Ok(())
}

/// Before the next slice of a long command: receives what is there. If the client is gone, nobody wants the rest.
async fn listen(connection: &mut Connection) -> Result<(), End> {
    if !connection.has_ended && connection.work.as_ref().is_some_and(|work| work.current.again) {
        poll_fn(|cx| Poll::Ready(connection.poll_listen(cx))).await?;
        // The running command may claim memory, and comes first.
        connection.withdraw();
    }
    Ok(())
}

/// Waits for the end of a pause. The connection keeps receiving: its end ends the wait.
async fn sit_out(connection: &mut Connection, writes: bool) -> Result<(), End> {
    // The earlier replies must not wait with the held command.
    connection.send()?;
    let held = Held::new(connection);
    let worker = Rc::clone(&connection.worker);
    while worker.hub.clients.is_paused(writes, worker.refresh_now_ms()) && !held.client_info.killed.load(Relaxed) {
        let mut step = pin!(tokio::time::sleep(PAUSE_STEP));
        poll_fn(|cx| {
            connection.poll_listen(cx)?;
            step.as_mut().poll(cx).map(Ok)
        })
        .await?;
    }
    Ok(())
}

/// Counts a client whose command a pause holds, for as long as it lives.
struct Held {
    client_info: Arc<ClientInfo>,
    worker: Rc<Worker>,
}

impl Held {
    fn new(connection: &Connection) -> Held {
        let held = Held { client_info: Arc::clone(&connection.client_info), worker: Rc::clone(&connection.worker) };
        held.client_info.is_held.store(true, Relaxed);
        held.worker.hub.clients.blocked.fetch_add(1, Relaxed);
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.client_info.is_held.store(false, Relaxed);
        self.worker.hub.clients.blocked.fetch_sub(1, Relaxed);
    }
}

/// Waits for the memory that the current command claims. If it cannot be had, only this command fails.
async fn claim(connection: &mut Connection) -> Result<(), End> {
    connection.update_charge();
    let claimed = poll_fn(|cx| connection.poll_claim(cx)).await?;
    poll_fn(|cx| connection.poll_turn(cx)).await;
    let Some(work) = &mut connection.work else { return Ok(()) };
    match claimed {
        Ok(()) => {
            let claim = &mut connection.session.claim;
            let granted = claim.wanted - claim.granted + claim.room - claim.room_granted;
            (claim.granted, claim.room_granted) = (claim.wanted, claim.room);
            if granted > PURGED_BYTES
                && let Some(control) = connection.worker.hub.control()
            {
                control.purge_memory();
            }
        }
        Err(too_much) => work.current.failed = Some(Failed::Memory(too_much.text().into())),
    }
    Ok(())
}

/// Starts the reads and waits for them. A failed read fails only the command that needs it.
async fn flash(connection: &mut Connection) {
    let worker = &connection.worker;
    // One system call starts the reads of the connections that are ready now: it costs as much as a read.
    if worker.lane().queued_reads() < READS_AT_ONCE && !nested_poll::is_on() {
        worker.reply_coalescer.turn(&connection.task_slot).await;
    }
    worker.lane().submit();
    let Some(work) = connection.work.as_deref_mut() else { return };
    let current = &mut work.current;
    while let Some(ticket) = current.awaited.last() {
        let read = poll_fn(|cx| worker.lane().poll(ticket, cx.waker(), &mut current.resume)).await;
        if let Err(error) = read {
            current.failed = Some(Failed::Read(error));
        }
        // Keep a ticket that holds a value until the batch is done: a value that was loaded for this command only
        // must still be in RAM when the command runs. Release the other tickets at once; otherwise a command that
        // walks all keys would collect one for each read.
        work.prefetched.extend(current.awaited.pop().filter(|ticket| ticket.holds_value()));
    }
}
