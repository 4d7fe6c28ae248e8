//! Owns the path of one command: receive → parse → admit → route → execute → park | reply. Never knows how bytes
//! reach the socket (`session`), who may run what (`admit`), where a command runs (`route`), how its handler runs
//! (`execute`), or how a command waits (`park`).

use crate::access;
use crate::account::{Spent, account, show};
use crate::admit::{admit, is_own_word, own_word};
use crate::batch::BATCH_COMMANDS_MAX;
use crate::blocked::follow_up;
use crate::directory::bit;
use crate::error_replies::{NOT_OWNED, reject};
use crate::feed::feed;
use crate::forward::{direct, forward};
use crate::forwarding::Forwarding;
use crate::halt::{End, Halt, Wait};
use crate::memory::PAUSE_BYTES_MAX;
use crate::nested_poll;
use crate::park::park;
use crate::prefetch::prepare;
use crate::reply_coalescer;
use crate::route::{self, route, shortcut};
use crate::session::{Connection, withhold};
use crate::worker::Worker;
use commands::session::{Claim, Reply, Rerun};
use resp::{Limits, Out};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

/// When a client hangs up, the unsent output is offered to it for this long.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves one connection until it ends.
pub async fn serve(mut connection: Connection) {
    let mut is_attached = false;
    let end = loop {
        let received = poll_fn(|cx| {
            // Attach with the waker of the connection's own task. A stand-in may poll the task first, with another
            // waker.
            if !is_attached && !nested_poll::is_on() {
                connection.client_info.outbox.attach(cx.waker(), connection.stream.is_sent_by_task());
                is_attached = true;
            }
            connection.poll_receive(cx)
        });
        if let Err(end) = received.await {
            break end;
        }
        if let Err(end) = run_batches(&mut connection).await {
            break end;
        }
        if connection.work.as_ref().is_some_and(|work| work.batch.was_full) {
            // The client sends faster than it is served: other connections run first.
            if let Err(end) = park(&mut connection, Wait::Turn).await {
                break end;
            }
        }
    };
    let end = match end {
        End::Follows => feed(&mut connection).await,
        end => end,
    };
    close(connection, end).await;
}

/// Runs every complete command that was received, then replies.
async fn run_batches(connection: &mut Connection) -> Result<(), End> {
    while parse(connection) {
        if connection.work.as_ref().is_some_and(|work| work.batch.is_large()) {
            park(connection, Wait::Turn).await?;
        }
        loop {
            // If a handler panics before it has changed anything, only its connection closes: unwinding releases the
            // locks of its stripes. If a handler panics in the middle of a change, the process stops (`Keyspace`).
            let ran = catch_unwind(AssertUnwindSafe(|| match connection.worker.hub.routes.get() {
                None => run::<false>(connection),
                Some(_) => run::<true>(connection),
            }));
            match ran {
                Ok(Ok(None)) => break,
                Ok(Err(end)) => return Err(end),
                Ok(Ok(Some(wait))) => {
                    if matches!(wait, Wait::Exchange | Wait::Drain | Wait::Journal) {
                        // Send the earlier replies now: the exchange, or the journal's device, may take seconds.
                        connection.send()?;
                    }
                    park(connection, wait).await?;
                }
                Err(_) => return Err(End::Panic),
            }
            if connection.client_info.killed.load(Relaxed) {
                return Err(End::Killed);
            }
        }
    }
    connection.query_done();
    finish(connection)?;
    others_first(connection).await;
    connection.clear().await;
    if nested_poll::is_on() {
        // The store may be locked by the script, or by the task that waits for it. So do not use the store here.
        return connection.send();
    }
    let hub = &connection.worker.hub;
    if hub.tracking.has_pending() {
        hub.tracking.invalidate_all(hub);
    }
    connection.send()?;
    let worker = &connection.worker;
    worker.maintain_if_wanted();
    if worker.hub.routes.get().is_some() {
        maintain_owners(worker);
    }
    Ok(())
}

/// The owners whose commands have run at a proxy's connection.
#[cold]
fn maintain_owners(worker: &Worker) {
    worker.owners.borrow().iter().filter_map(Weak::upgrade).for_each(|owner| owner.maintain_if_wanted());
}

/// Lets the other ready connections be served before this one's replies are sent.
async fn others_first(connection: &Connection) {
    let bytes = connection.work.as_ref().map_or(0, |work| work.output.len());
    if !nested_poll::is_on() && bytes <= reply_coalescer::BYTES_MAX {
        connection.worker.reply_coalescer.turn(&connection.task_slot).await;
    }
}

/// A primary has accepted these commands, or a journal has them.
const REPEATED: Limits =
    Limits { bulk_bytes_max: u32::MAX as usize, args_count_max: u32::MAX as usize, ..Limits::DEFAULT };

/// Parses the next batch of the input. Returns false if there is none.
fn parse(connection: &mut Connection) -> bool {
    let Some(work) = connection.work.as_deref_mut().filter(|work| work.batch.has_input()) else { return false };
    if connection.session.repeats {
        work.batch.parse(&REPEATED, BATCH_COMMANDS_MAX);
    } else if connection.session.authenticated {
        work.batch.parse(&connection.worker.config_snapshot().limits, BATCH_COMMANDS_MAX);
    } else {
        // One command at a time: a command after a successful AUTH gets the full limits.
        work.batch.parse(&Limits::UNAUTHENTICATED, 1);
    }
    !work.batch.commands.is_empty()
}

/// After the last batch of the input: the reply to a protocol error comes after the replies to the commands before
/// it.
fn finish(connection: &mut Connection) -> Result<(), End> {
    let announced = connection.work.as_ref().map_or(0, |work| work.batch.announced());
    // Before its bytes are received.
    if announced > 0
        && !connection.session.repeats
        && let Err(too_much) = connection.worker.hub.dataset.memory.check_query(announced)
    {
        connection.refuse_query(too_much)?;
    }
    let Some(work) = connection.work.as_deref_mut() else { return Ok(()) };
    let Some(error) = work.batch.broken else { return Ok(()) };
    let text = format!("ERR {error}");
    Out::new(&mut work.output, connection.session.proto).error(&text);
    let stats = connection.worker.stats();
    stats.protocol_errors.add(1);
    stats.error(&text);
    tracing::debug!(client = connection.client_info.id, "{text}");
    Err(End::Asked)
}

/// Runs the batch's commands in order: a plain loop that stops only when a command must wait, and returns for what. `None`: the
/// batch is done.
///
/// `PROXY`: its commands go to the owners of their keys. A loop of its own, because each branch in it costs every command of the others.
fn run<const PROXY: bool>(connection: &mut Connection) -> Result<Option<Wait>, End> {
    let Connection { worker, session, client_info, work, forwarding, .. } = connection;
    let Some(work) = work.as_deref_mut() else { return Ok(None) };
    let worker = &**worker;
    let mut snapshot = worker.config_snapshot();
    let stats = worker.stats();
    let started = worker.ticks();
    let mut ticks = started;
    let wall_ms = worker.now_ms_at(started);
    let mut now_ms = session.rerun.and_then(Rerun::time_ms).unwrap_or(wall_ms);
    let mut last = None;
    let mut claimed = false;
    // A connection with a smaller limit of its output ends there, as in Redis.
    let pause_bytes = match snapshot.output_bytes_max {
        ..=PAUSE_BYTES_MAX => usize::MAX,
        _ => worker.hub.dataset.memory.pause_bytes(),
    };
    if work.unsent().len() > pause_bytes {
        return Ok(Some(drain(forwarding)));
    }
    let full_bytes = pause_bytes.min(snapshot.output_bytes_max);
    access::refresh(&worker.hub, session);
    work.begin_output();
    let output_from = work.output.len();
    // Messages that arrived before these commands are sent before their replies.
    client_info.outbox.drain_into(&mut work.output);
    let seen_from = worker.hub.dataset.journaling.seen();
    session.written.from = seen_from.journal;
    session.replicated.from = worker.hub.dataset.journaling.stream.offset();
    let mut may_take_fast_path = route::may_take_fast_path(worker, session);
    let routes = if PROXY { worker.hub.routes.get() } else { None };
    // From here on, the output has rejections only.
    let mut rejected_from = if session.rejects() { work.output.len() } else { usize::MAX };
    // Commands that took the shortcut and are not counted yet.
    let mut quick = 0;
    let ran = loop {
        let Some(&place) = work.batch.commands.get(work.batch.next) else {
            let waits = PROXY && forwarding.as_ref().is_some_and(|forwarding| forwarding.waits());
            break Ok(waits.then_some(Wait::Replies));
        };
        if work.batch.next >= work.batch.prepared {
            prepare(worker, session, &mut work.batch);
        }
        let reply_from = work.output.len();
        let short = match routes {
            _ if !may_take_fast_path => None,
            None => shortcut(worker, &snapshot, session, client_info, work, place, now_ms),
            Some(routes) => direct(worker, routes, session, work, forwarding, place, ticks),
        };
        if let Some((command, Ok(()))) = short {
            follow_up(worker, &snapshot, &mut work.current.resume);
            let begun = std::mem::replace(&mut ticks, worker.ticks());
            last = Some(command.id);
            let nanos = worker.nanos(begun, ticks);
            let spent = Spent { nanos, failed: false, met_flash: Some(false), in_script: false };
            account(worker, &snapshot, client_info, command, || work.batch.args(place), spent, now_ms);
            work.batch.next += 1;
            quick += 1;
        } else {
            // The command may be INFO.
            stats.commands.add(std::mem::take(&mut quick));
            let begun = *work.current.begun.get_or_insert(ticks);
            let args = work.batch.args(place);
            let (command, outcome) = match short {
                Some((command, outcome)) => (Some(command), outcome),
                None if session.rejects() => (None, Err(Box::new(Halt::NotOwned))),
                None if (session.repeats | session.forwarded.is_some()) && is_own_word(session, &args[0]) => {
                    let obeyed = own_word(&worker.hub, session, args, &mut work.output);
                    now_ms = session.rerun.and_then(Rerun::time_ms).unwrap_or(wall_ms);
                    (None, obeyed.map_err(|halt| Box::new(route::refused(worker, session, args, halt))))
                }
                None => {
                    let admitted = admit(worker, session, &work.current, args, work.batch.known(), now_ms);
                    let routed = match routes {
                        None => admitted.map(|command| (command, false)),
                        Some(routes) => {
                            let forwarding = forwarding.get_or_insert_default();
                            forward(worker, routes, session, client_info, work, forwarding, admitted, begun)
                        }
                    };
                    match routed {
                        Ok((command, false)) => {
                            route(worker, &snapshot, session, client_info, work, (command, place), now_ms)
                        }
                        Ok((command, true)) => {
                            // Its reply comes later, in its turn.
                            if work.current.again {
                                work.current.end(stats);
                            }
                            if session.reply != Reply::On {
                                withhold(session, &mut work.output, reply_from);
                            }
                            work.current.begun = None;
                            work.batch.next += 1;
                            stats.commands.add(1);
                            last = Some(command.id);
                            ticks = worker.ticks();
                            let goes_on = work.batch.next < work.batch.commands.len();
                            if work.output.len() > full_bytes {
                                if work.output.len() > snapshot.output_bytes_max {
                                    stats.output_limit_closed.add(1);
                                    break Err(End::OutputLimit);
                                }
                                if goes_on {
                                    break Ok(Some(drain(forwarding)));
                                }
                            }
                            if ticks.saturating_sub(started) > worker.turn_ticks && goes_on {
                                break Ok(Some(Wait::Turn));
                            }
                            continue;
                        }
                        Err(halt) => {
                            let args = work.batch.args(place);
                            if matches!(halt, Halt::Error(_)) {
                                last = Some(route::shown(worker, args));
                                // A refused EXEC ends the transaction.
                                if let Some(forwarding) = forwarding.as_mut()
                                    && worker.hub.directory.find(&args[0]).is_some_and(|command| command.is(bit::EXEC))
                                {
                                    forwarding.unwatch();
                                }
                            }
                            (None, Err(Box::new(route::refused(worker, session, args, halt))))
                        }
                    }
                }
            };
            let failed = outcome.is_err();
            if worker.hub.monitors.any()
                && let Some(command) = command
                && !outcome.as_ref().is_err_and(|halt| will_run_again(halt) || matches!(**halt, Halt::End(_)))
            {
                show(worker, session, Some(client_info), command, work.batch.args(place));
            }
            if let Err(halt) = outcome {
                if !matches!(*halt, Halt::End(_)) {
                    work.output.truncate(reply_from);
                }
                match *halt {
                    Halt::Error(text) => {
                        Out::new(&mut work.output, session.proto).error(&text);
                        stats.error(&text);
                    }
                    Halt::NotOwned => {
                        rejected_from = rejected_from.min(reply_from);
                        reject(session, &mut work.output);
                        stats.error(NOT_OWNED);
                    }
                    Halt::Wait(wait) => {
                        if matches!(wait, Wait::Exchange | Wait::Key) {
                            // It may have changed something already: others do not wait for what it waits for.
                            follow_up(worker, &snapshot, &mut work.current.resume);
                        }
                        // Who makes the key ready runs a command that waits for one.
                        work.current.again = wait != Wait::Key;
                        break Ok(Some(wait));
                    }
                    Halt::End(end) => break Err(end),
                }
            }
            follow_up(worker, &snapshot, &mut work.current.resume);
            let is_keyless = command.is_none_or(|command| command.is(bit::KEYLESS));
            if is_keyless {
                // The command may have been CONFIG SET. Its own slow log entry and the commands after it must use the
                // new settings.
                worker.refresh_snapshot(&mut snapshot);
            }
            ticks = worker.ticks();
            if let Some(command) = command {
                last = Some(command.id);
                let met_flash = Some(work.current.misses > 0);
                let spent = Spent { nanos: worker.nanos(begun, ticks), failed, met_flash, in_script: false };
                account(worker, &snapshot, client_info, command, || work.batch.args(place), spent, now_ms);
            }
            if work.current.again || is_keyless {
                work.current.end(stats);
                session.exchange = None;
                session.job = None;
                if session.claim.wanted > 0 || session.claim.room > 0 {
                    // What was claimed is charged as what was made, before another command runs.
                    session.claim = Claim::default();
                    claimed = true;
                }
            }
            work.current.begun = None;
            work.batch.next += 1;
            stats.commands.add(1);
            if session.reply != Reply::On {
                let is_push = command.is_some_and(|command| command.is(bit::ANSWERS_BY_PUSH)) && !failed;
                let keep = if is_push { work.output.len() } else { reply_from };
                withhold(session, &mut work.output, keep);
            }
            client_info.outbox.drain_into(&mut work.output);
            if session.changed {
                session.changed = false;
                access::refresh(&worker.hub, session);
                client_info.publish(session);
                if session.replica.as_ref().is_some_and(|replica| replica.asks.is_some()) {
                    break Err(End::Follows);
                }
            }
            if session.close {
                break Err(End::Asked);
            }
            may_take_fast_path = route::may_take_fast_path(worker, session);
        }
        if work.output.len() > full_bytes {
            // The limit is for clients. What repeats commands reads their replies.
            if work.output.len() > snapshot.output_bytes_max && !session.repeats {
                stats.output_limit_closed.add(1);
                break Err(End::OutputLimit);
            }
            claimed |= work.unsent().len() > pause_bytes;
        }
        if claimed && work.batch.next < work.batch.commands.len() {
            break Ok(Some(drain(forwarding)));
        }
        if ticks.saturating_sub(started) > worker.turn_ticks && work.batch.next < work.batch.commands.len() {
            break Ok(Some(Wait::Turn));
        }
    };
    stats.commands.add(quick);
    if worker.hub.dataset.journaling.may_hold_replies() {
        let seen_to = worker.hub.dataset.journaling.seen();
        // A proxy's session that was rejected has only rejections behind the first: they show nothing, and the proxy waits for them.
        let is_only_rejected = rejected_from <= output_from && session.rejects();
        // What the node does itself waits for the journal only; and the handshake of a replica must not wait for what this replica is to
        // acknowledge.
        let is_of_node = session.repeats || session.replica.as_ref().is_some_and(|replica| replica.is_of_shard);
        match is_of_node {
            true => work.has_seen(seen_from.of_journal(), seen_to.of_journal()),
            false if is_only_rejected => {}
            false => work.has_seen(seen_from, seen_to),
        }
        if seen_from.journal < seen_to.journal {
            session.written.to = seen_to.journal;
        }
    }
    let streamed_to = worker.hub.dataset.journaling.stream.offset();
    if session.replicated.from < streamed_to {
        session.replicated.to = streamed_to;
    }
    client_info.active_ms.store(now_ms, Relaxed);
    if let Some(id) = last {
        client_info.note_command(id);
    }
    if matches!(ran, Ok(None)) {
        stats.batches.add(1);
        if !work.prefetched.is_empty() {
            let mut lane = worker.lane();
            work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
        }
    }
    ran
}

/// The client must read. What it reads must not be lost: at a proxy, the owners' journals come first.
#[cold]
fn drain(forwarding: &Option<Box<Forwarding>>) -> Wait {
    let waits = forwarding.as_ref().is_some_and(|forwarding| forwarding.waits());
    if waits { Wait::Replies } else { Wait::Drain }
}

/// Whether the handler runs once more, from its start.
fn will_run_again(halt: &Halt) -> bool {
    matches!(halt, Halt::Wait(wait) if *wait != Wait::Key)
}

/// Sends the remaining output if the kind of end allows it, and logs what the operator should know.
async fn close(mut connection: Connection, end: End) {
    connection.task_slot.set_open(false);
    let client = connection.client_info.id;
    let addr = || connection.client_info.peer.addr();
    match &end {
        End::Eof | End::Asked | End::Killed | End::Follows => {}
        End::Io(error) => tracing::debug!(client, "the connection to {} failed: {error}", addr()),
        End::QueryLimit => {
            tracing::warn!(client, "closed: {} sent more than client-query-buffer-limit at once", addr());
        }
        End::OutputLimit => {
            tracing::warn!(client, "closed: {} has more unread replies than client-output-buffer-limit allows", addr());
        }
        End::Memory(too_much) => {
            tracing::warn!(client, "closed: {}: {}", addr(), too_much.text());
            let output = &mut connection.work.get_or_insert_with(|| connection.worker.take_work()).output;
            Out::new(output, connection.session.proto).error(&too_much.text());
        }
        End::Lost => tracing::warn!(
            client,
            "closed: {} waited for replies that must not leave: the journal has failed, or the copy does not serve any more",
            addr()
        ),
        End::Panic => {
            let work = connection.work.as_deref();
            let place = work.and_then(|work| work.batch.commands.get(work.batch.next).copied());
            let name = work.zip(place).map(|(work, place)| work.batch.args(place)[0].to_vec()).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).into_owned();
            tracing::error!(client, "a bug: command '{name}' panicked; the connection to {} is closed", addr());
        }
    }
    if matches!(end, End::Eof | End::Asked | End::Memory(_)) {
        // Bounded in time: the client may never read the output.
        let _ = tokio::time::timeout(FAREWELL, async {
            poll_fn(|cx| connection.poll_send(cx)).await.ok()?;
            poll_fn(|cx| connection.stream.poll_end(cx)).await.ok()
        })
        .await;
    } else if !matches!(end, End::Io(_)) {
        // A client that is ended is told so by TLS, if the socket has room. Nothing waits for it.
        let _ = poll_fn(|cx| Poll::Ready(connection.stream.poll_end(cx))).await;
    }
    if nested_poll::is_on() {
        // Closing may need the store, so it waits until the thread continues. The client sees the end now.
        connection.client_info.hang_up();
        tokio::task::yield_now().await;
    }
}
