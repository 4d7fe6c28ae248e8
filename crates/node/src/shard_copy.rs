//! Owns a copy of a shard that has replicas: whether it serves as the shard's primary, follows it, or rests. It moves the state machines of
//! `cluster::failover`. Never decides which of these it is to be (the cluster's records say that), never sends a transaction, and never
//! knows how a node is reached.
//!
//! ```text
//!             follow                        promote, when it was named
//!  rests ───────────────► follows ──────────────────────────────────────► serves
//!    ▲  └──────────────────── serve, when it resumes ────────────────────►  │
//!    └────────────────────────────── rest, follow ──────────────────────────┘
//! ```
//!
//! No call waits. [`ShardCopy::follow`], [`ShardCopy::promote`] and [`ShardCopy::serve`] assign a role, and a thread of the copy reaches it:
//! [`ShardCopy::standing`] says how far it is, and [`CopyHost::changed`] that it is worth asking again. The same assignment once more changes
//! nothing, so a caller may repeat what the records say. What fails is tried again, until another role is assigned.

use crate::database::Database;
use crate::promises::{CopyHost, CopyMemory, Promises};
use crate::role::{FollowedShard, FollowerCommand, Following, LinkState, PrimaryAddress};
use base::clock::wall_ms;
use cluster::failover::{Began, Handover, Hindrance, Report, Standing};
use cluster::ids::{CopyNumber, Epoch, ReplicationId, ShardUid, replication_id};
use cluster::records::Member;
use engine::replication::{BootClock, Id, Mark, Serving};
use engine::{Entry, SessionStream};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How often the copy's thread looks at its lease and at its replicas.
const PAUSE: Duration = Duration::from_millis(25);
/// Before a step that has failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// What a shard promises its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// A reply waits until every copy of the in-sync set has what it depends on. Otherwise only the lease of the primary holds, and a
    /// failover may lose the newest writes.
    pub is_sync: bool,
    /// With fewer copies in the in-sync set, the primary among them, writes are refused: `NOREPLICAS`.
    pub in_sync_min: usize,
}

/// What a primary serves.
#[derive(Clone)]
pub struct Term {
    /// Of the record, which names this copy, or which this copy has written ([`cluster::failover::Duty::Resume`]).
    pub epoch: Epoch,
    /// As it is recorded for this epoch, with this copy in it.
    pub in_sync: Vec<Member>,
    /// This copy was named when the last primary served no more, so no lease is waited for.
    pub is_vacant: bool,
    /// The stripes of the shard.
    pub owns: Arc<dyn Fn(usize) -> bool + Send + Sync>,
}

/// For operators, and for who decides what comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyStatus {
    pub role: CopyRole,
    /// The bytes of its stream that its dataset has.
    pub offset: u64,
    /// Why it does not reach the role that was assigned last, or does not follow.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CopyRole {
    Rests,
    Follows {
        primary: CopyNumber,
        epoch: Epoch,
        /// The stream comes.
        is_connected: bool,
        /// The primary's dataset is being received or loaded: how many bytes have come, and of how many; 0: that is not known.
        synchronises: Option<(u64, u64)>,
    },
    /// It was named, and does not serve yet.
    Promotes(Epoch),
    Serves {
        epoch: Epoch,
        /// Clients are served. Not while its serving lease has ended.
        is_open: bool,
    },
}

/// A copy in a shard with replicas.
pub struct ShardCopy {
    database: Arc<Database>,
    uid: ShardUid,
    promises: Arc<Promises>,
    shared: Mutex<Shared>,
    /// Wakes the copy's thread.
    woken: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What callers and the copy's thread share.
struct Shared {
    assigned: Assigned,
    /// Each assignment has a number.
    number: u64,
    /// The last one that was reached.
    reached: u64,
    requirements: Requirements,
    /// See [`ShardCopy::assigned`]. `None`: it was not told yet.
    staying: Option<BTreeSet<CopyNumber>>,
    /// What the thread has found last.
    wanted: Option<(Epoch, Vec<Member>)>,
    handover: Option<HandingOver>,
    trouble: Option<String>,
    /// The thread has something to do before its pause is over.
    is_woken: bool,
}

/// The copy was asked to make another one primary.
struct HandingOver {
    to: CopyNumber,
    /// Commands are rejected.
    is_begun: bool,
    /// The record is to be written that names the other copy.
    is_ready: bool,
    /// For those who have asked.
    outcome: watch::Sender<Option<Result<(), String>>>,
}

#[derive(Clone)]
enum Assigned {
    Rest,
    Follow(Arc<PrimaryAddress>),
    Promote(Term),
    Serve(Term),
    /// The thread ends.
    End,
}

impl Shared {
    /// The epoch in which it serves, or is about to.
    fn term(&self) -> Option<Epoch> {
        match &self.assigned {
            Assigned::Promote(term) | Assigned::Serve(term) => Some(term.epoch),
            _ => None,
        }
    }
}

impl Assigned {
    fn is_same(&self, other: &Assigned) -> bool {
        match (self, other) {
            (Assigned::Rest, Assigned::Rest) | (Assigned::End, _) => true,
            (Assigned::Follow(primary), Assigned::Follow(other)) => {
                (primary.copy, primary.epoch) == (other.copy, other.epoch)
            }
            (Assigned::Promote(term), Assigned::Promote(other)) | (Assigned::Serve(term), Assigned::Serve(other)) => {
                term.epoch == other.epoch
            }
            _ => false,
        }
    }
}

impl ShardCopy {
    /// Begins with a copy whose dataset is loaded and which owns no stripe, and rests. `memory`: what was kept last. It is replaced by a new
    /// incarnation, durably, if it says that the process which kept it acknowledged what may be missing now.
    pub fn begin(
        database: &Arc<Database>,
        uid: ShardUid,
        number: CopyNumber,
        memory: CopyMemory,
        host: Arc<dyn CopyHost>,
        clock: BootClock,
    ) -> Result<Arc<ShardCopy>, String> {
        let promises = Arc::new(Promises::begin(number, memory, host, clock.clone())?);
        if database.replication.promises.set(Arc::clone(&promises)).is_err() {
            return Err(format!("{} is a copy of a shard with replicas already", database.name()));
        }
        let shared = Shared {
            assigned: Assigned::Rest,
            number: 0,
            reached: 0,
            requirements: Requirements::default(),
            staying: None,
            wanted: None,
            handover: None,
            trouble: None,
            is_woken: false,
        };
        let copy = Arc::new(ShardCopy {
            database: Arc::clone(database),
            uid,
            promises,
            shared: Mutex::new(shared),
            woken: Condvar::new(),
            thread: Mutex::default(),
        });
        let woken = Arc::downgrade(&copy);
        let on_change = move || {
            if let Some(copy) = woken.upgrade() {
                copy.wake();
            }
        };
        database.journaling().begin_serving(clock, Box::new(on_change));
        let of_thread = Arc::clone(&copy);
        let thread = std::thread::Builder::new().name("copy".into()).spawn(move || of_thread.run());
        *copy.thread.lock() = Some(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        Ok(copy)
    }

    // --- what a caller assigns ---

    /// Follows this primary. No reply leaves any more that this copy has made as a primary, when this returns.
    pub fn follow(&self, primary: PrimaryAddress) {
        self.assign(Assigned::Follow(Arc::new(primary)));
    }

    /// Serves as the primary of an epoch for which this copy was named by somebody else: promises the epoch, leaves its primary, applies all
    /// that it has received, waits until what it has granted has ended, notes that it serves, and serves.
    pub fn promote(&self, term: Term) {
        self.assign(Assigned::Promote(term));
    }

    /// Serves in the epoch that this copy has written into the record itself, because it has everything: promises, notes that it serves,
    /// and serves.
    pub fn serve(&self, term: Term) {
        self.assign(Assigned::Serve(term));
    }

    /// Has this copy, the primary of this epoch, make another one of the in-sync set primary: its commands are rejected, and when the other
    /// one has everything, [`ShardCopy::wanted_handover`] says that the record is to be written. Ends when the copy follows the other one,
    /// or says what hinders.
    pub async fn hand_over(&self, epoch: Epoch, to: CopyNumber) -> Result<(), String> {
        let mut outcome = self.begin_hand_over(epoch, to)?;
        let ended = outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        ended.ok().flatten().unwrap_or_else(|| Err("the copy has another role now".to_owned()))
    }

    fn begin_hand_over(
        &self,
        epoch: Epoch,
        to: CopyNumber,
    ) -> Result<watch::Receiver<Option<Result<(), String>>>, String> {
        let mut shared = self.shared.lock();
        if self.serving().epoch() != Some(epoch) {
            return Err(format!("{} is not the primary of epoch {epoch}", self.database.name()));
        }
        let handover = match &mut shared.handover {
            Some(other) if other.to != to => return Err(Hindrance::Busy(other.to).to_string()),
            Some(same) => same,
            none => {
                none.insert(HandingOver { to, is_begun: false, is_ready: false, outcome: watch::Sender::new(None) })
            }
        };
        let outcome = handover.outcome.subscribe();
        drop(shared);
        self.wake();
        Ok(outcome)
    }

    /// Serves nobody and follows nobody. No reply leaves any more that this copy has made as a primary, when this returns.
    pub fn rest(&self) {
        self.assign(Assigned::Rest);
    }

    /// Ends the copy's thread, before its database is closed. Waits for what it is doing.
    pub fn end(&self) {
        self.assign(Assigned::End);
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a bug: the thread of a copy panicked");
        }
    }

    fn assign(&self, assigned: Assigned) {
        let mut shared = self.shared.lock();
        if shared.assigned.is_same(&assigned) {
            return;
        }
        // Before anything else may serve.
        self.serving().end();
        if let Some(handover) = shared.handover.take() {
            let follows = matches!(&assigned, Assigned::Follow(primary) if primary.copy == handover.to && shared.term() < Some(primary.epoch));
            let changed = || Err("the shard's record has changed meanwhile".to_owned());
            handover.outcome.send_replace(Some(if follows { Ok(()) } else { changed() }));
        }
        // A promotion waits for room for what was received, for ever if there is none. Whoever is not to be the primary any more gives that up.
        if matches!(assigned, Assigned::Follow(_) | Assigned::Rest | Assigned::End)
            && let Some(following) = self.database.replication.role.following()
            && following.command() == FollowerCommand::Promote
        {
            following.send(FollowerCommand::Stop);
        }
        (shared.assigned, shared.wanted, shared.trouble) = (assigned, None, None);
        shared.number += 1;
        drop(shared);
        self.journaling().wake_replies();
        self.wake();
    }

    pub fn set_requirements(&self, requirements: Requirements) {
        let mut shared = self.shared.lock();
        shared.requirements = requirements;
        self.serving().set_requirements(requirements.is_sync, requirements.in_sync_min);
        drop(shared);
        self.journaling().wake_replies();
    }

    /// The copies of the shard that are assigned to nodes and are not to go. As a primary, this copy takes the others out of the in-sync set.
    pub fn assigned(&self, staying: &BTreeSet<CopyNumber>) {
        let mut shared = self.shared.lock();
        if shared.staying.as_ref() == Some(staying) {
            return;
        }
        shared.staying = Some(staying.clone());
        self.serving().assigned(staying.clone());
        drop(shared);
        self.wake();
    }

    /// The set that is recorded for this epoch: it was read or written, and is not older than what was said before. Of another epoch than
    /// the one that is served, it is ignored.
    pub fn recorded(&self, epoch: Epoch, in_sync: &[Member]) {
        let mut shared = self.shared.lock();
        self.serving().recorded(epoch, in_sync);
        shared.wanted = None;
        drop(shared);
        self.journaling().wake_replies();
        self.wake();
    }

    // --- what a caller asks ---

    pub fn standing(&self) -> Standing {
        // Under the lock, so that a role that is reached meanwhile is not taken for one of an earlier process.
        let shared = self.shared.lock();
        let CopyMemory { promised, served, .. } = self.promises.memory();
        let serves = match &shared.assigned {
            Assigned::Promote(term) | Assigned::Serve(term) => served == Some(term.epoch),
            _ => false,
        };
        Standing { me: self.promises.me(), promised, served, serves }
    }

    /// For a controller that asks.
    pub fn report(&self) -> Report {
        let CopyMemory { incarnation, promised, .. } = self.promises.memory();
        let stream = &self.journaling().stream;
        let received = self.promises.received().max(stream.offset());
        let (ended, hears_a_lease) = (self.promises.ended(), self.promises.hears_a_lease());
        let mark = stream.mark();
        let stream = mark.and_then(|mark| self.epoch_of(&mark, received));
        let began = mark.and_then(|mark| {
            let (_, at) = mark.second?;
            Some(Began { epoch: self.epoch_of(&mark, at + 1)?, at, before: self.epoch_of(&mark, at)? })
        });
        Report { copy: self.promises.me().copy, incarnation, promised, received, stream, began, ended, hears_a_lease }
    }

    /// The epoch in whose stream the bytes end at this offset.
    fn epoch_of(&self, mark: &Mark, offset: u64) -> Option<Epoch> {
        let id = mark.second.filter(|(_, until)| offset <= *until).map_or(mark.id, |(id, _)| id);
        let named: Option<ReplicationId> = id.to_string().parse().ok();
        named.filter(|named| named.uid == self.uid).map(|named| named.epoch)
    }

    pub fn status(&self) -> CopyStatus {
        let shared = self.shared.lock();
        let following = self.database.replication.role.following();
        let role = match (&shared.assigned, self.serving().epoch()) {
            (Assigned::Rest | Assigned::End, _) => CopyRole::Rests,
            (Assigned::Follow(primary), _) => {
                let state = following.as_ref().map(|following| following.state());
                let syncing = following.as_ref().filter(|_| matches!(state, Some(LinkState::Sync | LinkState::Load)));
                let bytes = |of: &AtomicU64| of.load(Relaxed);
                CopyRole::Follows {
                    primary: primary.copy,
                    epoch: primary.epoch,
                    is_connected: state == Some(LinkState::Connected),
                    synchronises: syncing.map(|link| (bytes(&link.sync_bytes), bytes(&link.sync_total_bytes))),
                }
            }
            (Assigned::Promote(_) | Assigned::Serve(_), Some(epoch)) => {
                CopyRole::Serves { epoch, is_open: self.serving().is_open() }
            }
            (Assigned::Promote(term) | Assigned::Serve(term), None) => CopyRole::Promotes(term.epoch),
        };
        let follower_error = || following.and_then(|following| following.error.lock().clone());
        let trouble = shared.trouble.clone().or_else(follower_error);
        CopyStatus { role, offset: self.database.applied_offset(), trouble }
    }

    /// The epoch in which it has served, and the copy to which it hands over: the record that says so is to be written
    /// ([`cluster::failover::duty::handed_over`]) in place of the last one of this epoch, until the record is another one.
    pub fn wanted_handover(&self) -> Option<(Epoch, CopyNumber)> {
        let shared = self.shared.lock();
        let handover = shared.handover.as_ref().filter(|handover| handover.is_ready)?;
        Some((shared.term()?, handover.to))
    }

    /// The epoch in which it serves, and the in-sync set to record for it, if that is to be changed: in a transaction that compares the
    /// record with the last one of this epoch. Whatever becomes of the transaction, [`ShardCopy::recorded`] says what is certain.
    pub fn wanted_in_sync(&self) -> Option<(Epoch, Vec<Member>)> {
        self.shared.lock().wanted.clone()
    }

    // --- the copy's thread ---

    fn journaling(&self) -> &engine::Journaling {
        self.database.journaling()
    }

    fn serving(&self) -> &Serving {
        &self.journaling().serving
    }

    fn wake(&self) {
        self.shared.lock().is_woken = true;
        self.woken.notify_all();
    }

    fn run(&self) {
        loop {
            let (assigned, number, is_reached) = {
                let mut shared = self.shared.lock();
                if !shared.is_woken {
                    self.woken.wait_for(&mut shared, PAUSE);
                }
                shared.is_woken = false;
                (shared.assigned.clone(), shared.number, shared.number == shared.reached)
            };
            if is_reached {
                self.watch();
                continue;
            }
            if matches!(assigned, Assigned::End) {
                return self.close();
            }
            let reached = self.reach(assigned, number);
            let mut shared = self.shared.lock();
            match reached {
                Ok(()) => shared.reached = number,
                Err(why) if shared.number == number => {
                    if shared.trouble.as_ref() != Some(&why) {
                        tracing::warn!("copy {} does not take its role: {why}", self.database.name());
                    }
                    shared.trouble = Some(why);
                    self.woken.wait_for(&mut shared, RETRY_PAUSE);
                }
                // It was told otherwise meanwhile.
                Err(_) => {}
            }
            drop(shared);
            self.promises.changed();
        }
    }

    fn reach(&self, assigned: Assigned, number: u64) -> Result<(), String> {
        // Of an earlier role.
        self.close();
        if self.database.must_reopen() {
            return Err("it has given up a part of its dataset, and is to be opened again".to_owned());
        }
        match assigned {
            Assigned::Rest => self.stop_following(FollowerCommand::Stop),
            Assigned::Follow(primary) => {
                let shard = FollowedShard { primary, promises: Arc::clone(&self.promises) };
                self.database.become_replica(Following::in_shard(shard, wall_ms()))?;
            }
            Assigned::Promote(term) => {
                // Who serves no more asks for nothing. Then the promise is made with the note that this copy serves: nobody serves
                // meanwhile, so one durable write less counts.
                if !term.is_vacant {
                    self.promises.promise(term.epoch)?;
                }
                self.stop_following(FollowerCommand::Promote);
                if !term.is_vacant {
                    self.wait_for_grants(number)?;
                }
                self.take_term(&term, number)?;
            }
            Assigned::Serve(term) => {
                self.promises.promise(term.epoch)?;
                self.stop_following(FollowerCommand::Stop);
                self.take_term(&term, number)?;
            }
            Assigned::End => {}
        }
        Ok(())
    }

    /// Owns no stripe any more. What has run before and waits to be told never is.
    fn close(&self) {
        if self.serving().is_open() {
            self.database.set_owned(|_| false);
            self.serving().close();
            self.journaling().wake_replies();
        }
    }

    fn stop_following(&self, command: FollowerCommand) {
        if let Some(following) = self.database.replication.role.following() {
            following.end(command);
        }
    }

    fn is_assigned(&self, number: u64) -> Result<(), String> {
        match self.shared.lock().number == number {
            true => Ok(()),
            false => Err("another role was assigned meanwhile".to_owned()),
        }
    }

    fn wait_for_grants(&self, number: u64) -> Result<(), String> {
        while !self.promises.grants_have_ended() {
            self.is_assigned(number)?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Everything is applied, and nobody else serves because of what this copy has granted.
    fn take_term(&self, term: &Term, number: u64) -> Result<(), String> {
        let me = self.promises.me();
        if !term.in_sync.iter().any(|member| (member.copy, member.incarnation) == (me.copy, me.incarnation)) {
            return Err("the record names a dataset that this copy does not have".to_owned());
        }
        let id: Id = replication_id(self.uid, term.epoch).to_string().parse().expect("both have 40 digits");
        let stream = &self.journaling().stream;
        if !stream.is_on() {
            self.database.prepare_stream(Some(Mark { id, second: None, offset: 0, db: None }));
            self.database.keep_effects_in_stream();
            stream.turn_on();
            // A new checkpoint records the stream for a restart. If it cannot begin now, the next one does.
            let _ = self.database.start_rewrite();
        }
        self.database.take_lead(id)?;
        self.promises.serve(term.epoch)?;
        let shared = self.shared.lock();
        if shared.number != number {
            return Err("another role was assigned meanwhile".to_owned());
        }
        let Requirements { is_sync, in_sync_min } = shared.requirements;
        self.serving().begin(term.epoch, me, &term.in_sync, is_sync, in_sync_min);
        if let Some(staying) = &shared.staying {
            self.serving().assigned(staying.clone());
        }
        drop(shared);
        self.journaling().wake_replies();
        tracing::info!("copy {} is the primary of epoch {}", self.database.name(), term.epoch);
        Ok(())
    }

    /// The next step of a handover, if the copy was asked for one. True: it is under way.
    fn go_on_handing_over(&self, term: &Term, number: u64) -> bool {
        let serving = self.serving();
        let (to, is_begun) = {
            let shared = self.shared.lock();
            let Some(handover) = shared.handover.as_ref().filter(|_| shared.number == number) else { return false };
            (handover.to, handover.is_begun)
        };
        if !is_begun {
            let begun = if serving.is_open() { serving.hand_over(to) } else { Err(Hindrance::NoLease) };
            if let Err(why) = begun {
                self.end_handover(number, why);
                return false;
            }
            tracing::info!("copy {} hands over to copy {to}", self.database.name());
            self.database.set_owned(|_| false);
            self.change_handover(number, |handover| handover.is_begun = true);
        }
        let was_open = serving.is_open();
        let why = match serving.handover(&self.journaling().stream) {
            Handover::Waits => return true,
            Handover::Ready(_) => {
                if was_open {
                    self.journaling().wake_replies();
                    self.change_handover(number, |handover| handover.is_ready = true);
                    self.promises.changed();
                }
                return true;
            }
            Handover::GivenUp(why) => why,
            Handover::None => Hindrance::NotInSync(to),
        };
        tracing::warn!("copy {} does not hand over: {why}", self.database.name());
        if serving.is_open() && serving.has_lease() {
            self.database.set_owned(|stripe| (term.owns)(stripe));
        }
        self.end_handover(number, why);
        false
    }

    fn change_handover(&self, number: u64, change: impl FnOnce(&mut HandingOver)) {
        let mut shared = self.shared.lock();
        if shared.number == number
            && let Some(handover) = &mut shared.handover
        {
            change(handover);
        }
    }

    fn end_handover(&self, number: u64, why: Hindrance) {
        let mut shared = self.shared.lock();
        if shared.number == number
            && let Some(handover) = shared.handover.take()
        {
            handover.outcome.send_replace(Some(Err(why.to_string())));
        }
    }

    /// Opens the copy when it has a serving lease, closes it when it has none, and finds which in-sync set is to be recorded.
    fn watch(&self) {
        let (term, number) = {
            let shared = self.shared.lock();
            let (Assigned::Promote(term) | Assigned::Serve(term)) = &shared.assigned else { return };
            (term.clone(), shared.number)
        };
        let (serving, stream) = (self.serving(), &self.journaling().stream);
        let end = || stream.mark().map_or(0, |mark| mark.offset);
        let hands_over = self.go_on_handing_over(&term, number);
        let (has_lease, is_open) = (serving.has_lease(), serving.is_open());
        if has_lease && !is_open {
            if hands_over {
                return;
            }
            serving.open();
            self.database.set_owned(|stripe| (term.owns)(stripe));
        } else if !has_lease && is_open {
            tracing::warn!("copy {} has no serving lease any more: its commands are rejected", self.database.name());
            self.close();
        }
        let (wanted, holds_up) = serving.wanted(end);
        if holds_up {
            self.journaling().wake_replies();
        }
        let mut shared = self.shared.lock();
        let is_new = shared.number == number && shared.wanted != wanted;
        if is_new {
            shared.wanted = wanted;
        }
        drop(shared);
        if is_new || has_lease != is_open {
            self.promises.changed();
        }
    }
}

impl Database {
    /// Serves the connection of a replica of this copy, which comes from another node of the cluster. It may do nothing but follow. Call
    /// this on a worker's thread.
    pub fn serve_replica(&self, stream: SessionStream, name: &str) -> io::Result<()> {
        engine::attend_session(&self.hub, stream, Entry::Replica, name)
    }
}
