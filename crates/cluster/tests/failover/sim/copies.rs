//! What a copy does by itself: it runs commands and replies, applies what it has received, takes the role that the record gives it, and
//! changes the record.

use super::{COPIES, Down, Fate, InFlight, Mutant, Settled, Sim, Up, Upstream, Waiting, member};
use cluster::failover::duty::{handed_over, resumed};
use cluster::failover::{Acknowledgement, Duty, Handover, Primary, Standing, duty};
use cluster::ids::{CopyNumber, Epoch};
use cluster::records::{Member, ShardRecord};
use std::collections::VecDeque;

impl Sim {
    pub(super) fn command(&mut self, copy: usize) {
        if !self.runs(copy) {
            return;
        }
        let local = self.local(copy);
        let no_lease = self.is(Mutant::NoLease);
        let is_read = self.random.below(2) == 0;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(primary) = &process.primary else { return };
        if primary.hands_over() || !no_lease && !primary.has_lease(local) {
            return;
        }
        if !is_read {
            node.disk.log.push(self.next_write);
            self.next_write += 1;
        }
        let position = node.disk.log.len();
        process.waiting.push(Waiting { position, is_read, acknowledged: self.acknowledged.len() });
    }

    /// The replies that may leave do.
    fn reply(&mut self, copy: usize) {
        let local = self.local(copy);
        let no_lease = self.is(Mutant::NoLease);
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(primary) = &process.primary else { return };
        if !no_lease && !primary.has_lease(local) {
            return;
        }
        let safe = primary.acknowledged().map_or(usize::MAX, |offset| offset as usize);
        let safe = if syncs_always { safe.min(node.disk.synced) } else { safe };
        let (leave, stay) =
            std::mem::take(&mut process.waiting).into_iter().partition(|waiting| waiting.position <= safe);
        process.waiting = stay;
        let leave: Vec<Waiting> = leave;
        for waiting in leave {
            let log = self.nodes[copy].disk.log[..waiting.position].to_vec();
            self.nodes[copy].disk.acknowledged = self.nodes[copy].disk.acknowledged.max(waiting.position);
            self.answer(copy, &waiting, &log);
        }
    }

    /// A client gets a reply, which shows this log.
    fn answer(&mut self, copy: usize, waiting: &Waiting, log: &[u64]) {
        let knows = |acknowledged: &[u64]| log.starts_with(acknowledged);
        if waiting.is_read {
            assert!(
                knows(&self.acknowledged[..waiting.acknowledged]),
                "copy {copy} answered a read with {log:?}, but {:?} was acknowledged before it was asked",
                &self.acknowledged[..waiting.acknowledged]
            );
            self.totals.reads += 1;
        } else {
            self.totals.acknowledged += 1;
        }
        assert!(
            knows(&self.acknowledged) || self.acknowledged.starts_with(log),
            "copy {copy} acknowledges {log:?}, beside {:?}",
            self.acknowledged
        );
        if log.len() > self.acknowledged.len() {
            self.tell(|| format!("{copy} acknowledges {log:?}"));
            self.acknowledged = log.to_vec();
        }
    }

    /// A late reply of a copy that has handed over.
    fn reply_late(&mut self, copy: usize) {
        if !self.chance(3) {
            return;
        }
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        if let Some(Settled { waiting, log }) = process.settled.pop() {
            self.answer(copy, &waiting, &log);
            self.totals.late += 1;
        }
    }

    // Handovers

    pub(super) fn ask_to_hand_over(&mut self, copy: usize) {
        let (local, to) = (self.local(copy), CopyNumber(((copy + 1 + self.random.index(2)) % COPIES) as u32));
        if !self.runs(copy) {
            return;
        }
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        let Some(primary) = &mut process.primary else { return };
        if primary.hand_over(to, local).is_ok() {
            self.tell(|| format!("{copy} is to hand over to {to}"));
        }
    }

    /// The next step of a handover. Returns the copy that is to be recorded as the primary.
    fn go_on_handing_over(&mut self, copy: usize) -> Option<CopyNumber> {
        let local = self.local(copy);
        let is_early = self.is(Mutant::HandsOverTooEarly);
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let primary = process.primary.as_mut()?;
        let was_asked = primary.hands_over();
        let end = if is_early { 0 } else { node.disk.log.len() as u64 };
        // Replies wait for the journal too, which is not of this machine.
        let is_durable = !self.syncs_always || node.disk.synced == node.disk.log.len();
        match primary.handover(end, local) {
            Handover::Ready(to) => {
                if is_durable {
                    for waiting in process.waiting.drain(..) {
                        let log = node.disk.log[..waiting.position].to_vec();
                        node.disk.acknowledged = node.disk.acknowledged.max(waiting.position);
                        process.settled.push(Settled { waiting, log });
                    }
                }
                Some(to)
            }
            Handover::GivenUp(why) => {
                self.totals.handovers_given_up += 1;
                self.tell(|| format!("{copy} does not hand over: {why}"));
                None
            }
            Handover::None if was_asked => unreachable!("it says that it was given up"),
            Handover::None | Handover::Waits => None,
        }
    }

    // What a process does by itself

    pub(super) fn tick(&mut self, copy: usize) {
        if !self.runs(copy) {
            return;
        }
        self.answer_of_etcd(copy);
        self.apply(copy);
        if self.chance(2) {
            let disk = &mut self.nodes[copy].disk;
            disk.synced = disk.log.len();
        }
        self.acknowledge(copy);
        self.obey(copy);
        self.feed(copy);
        self.change_record(copy);
        self.reply(copy);
        self.reply_late(copy);
    }

    fn apply(&mut self, copy: usize) {
        let (count, arrives) = (self.random.below(3) as usize, self.chance(3));
        if !self.chance(4) {
            return;
        }
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        if let Some((epoch, log)) = process.arriving.take_if(|_| arrives) {
            node.disk.log = log;
            node.disk.is_whole = true;
            node.disk.stream = Some(epoch);
        }
        let count = count.min(process.received.len());
        node.disk.log.extend(process.received.drain(..count));
    }

    fn acknowledge(&mut self, copy: usize) {
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(upstream) = process.upstream.as_mut().filter(|upstream| upstream.is_accepted) else { return };
        if !process.replica.accepts(upstream.epoch) {
            return;
        }
        let received = if syncs_always { node.disk.synced } else { node.disk.log.len() + process.received.len() };
        node.disk.acknowledged = node.disk.acknowledged.max(received);
        let message =
            Acknowledgement { epoch: upstream.epoch, received: received as u64, heartbeat: upstream.heartbeat };
        upstream.to_primary.push_back(Up::Acknowledged { incarnation: node.disk.incarnation, message });
    }

    fn seen(&self, copy: usize) -> &ShardRecord {
        &self.etcd[self.nodes[copy].seen]
    }

    fn me(&self, copy: usize) -> Member {
        let record = self.seen(copy);
        let named = record.in_sync.iter().find(|member| member.copy.0 as usize == copy);
        match named {
            Some(named) if self.is(Mutant::IncarnationIgnored) => named.clone(),
            _ => member(copy, self.nodes[copy].disk.incarnation),
        }
    }

    /// Moves the copy to what the record that the node has seen says.
    fn obey(&mut self, copy: usize) {
        let (local, me, record) = (self.local(copy), self.me(copy), self.seen(copy).clone());
        let seen = self.nodes[copy].seen;
        let restarts = self.is(Mutant::RestartsInItsEpoch);
        let ignores_received = self.is(Mutant::ReceivedIsNotApplied);
        let (never_waits, forgets_old) = (self.is(Mutant::NeverWaits), self.is(Mutant::OldPrimaryNotRequired));
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let serves = process.primary.is_some();
        let standing =
            Standing { me: me.clone(), promised: process.replica.promised(), served: node.disk.served, serves };
        let mut duty = duty(&record, &standing);
        if let (true, Duty::Resume(_), false) = (restarts, duty, record.in_sync.is_empty()) {
            duty = Duty::Promote { epoch: record.epoch, is_vacant: false };
        }
        match duty {
            Duty::Serve => {
                process.primary.as_mut().expect("it serves").recorded(&record.in_sync);
            }
            Duty::Follow { primary, epoch } => {
                if process.primary.take().is_some() {
                    process.waiting.clear();
                    self.cut_from(copy);
                }
                let node = &mut self.nodes[copy];
                let process = node.process.as_mut().expect("it runs");
                process.promoting = None;
                let primary = primary.0 as usize;
                let is_right = process
                    .upstream
                    .as_ref()
                    .is_some_and(|upstream| upstream.primary == primary && upstream.epoch == epoch);
                if !is_right && process.arriving.is_none() && process.replica.accepts(epoch) {
                    // What was received is kept: it is applied before anything else arrives.
                    node.disk.log.append(&mut process.received);
                    let acknowledged = if syncs_always { node.disk.synced } else { node.disk.log.len() };
                    node.disk.acknowledged = node.disk.acknowledged.max(acknowledged);
                    let (incarnation, log) = (node.disk.incarnation, node.disk.log.clone());
                    let hello = Up::Hello { incarnation, log, acknowledged };
                    process.upstream = Some(Upstream {
                        primary,
                        epoch,
                        heartbeat: None,
                        to_primary: VecDeque::from([hello]),
                        to_replica: VecDeque::new(),
                        sent: None,
                        is_accepted: false,
                    });
                }
            }
            Duty::ReadAgain => {}
            Duty::NotTheRecorded => {
                process.primary = None;
                process.upstream = None;
            }
            Duty::Promote { epoch, is_vacant } => {
                if process.promoting != Some(epoch) {
                    process.replica.promise(epoch);
                    node.disk.promised = epoch;
                    process.upstream = None;
                    process.promoting = Some(epoch);
                }
                if ignores_received {
                    process.received.clear();
                }
                node.disk.log.append(&mut process.received);
                if is_vacant || never_waits || process.replica.grants_have_ended(local) {
                    let mut in_sync = record.in_sync.clone();
                    if let Some(old) = self.etcd[seen - 1..seen].iter().find(|_| record.is_handed_over() && forgets_old)
                    {
                        in_sync.retain(|member| member.copy != old.primary);
                    }
                    self.serve(copy, epoch, me, &in_sync);
                    self.totals.handovers += u64::from(record.is_handed_over());
                    self.totals.ended += u64::from(is_vacant && !record.is_handed_over());
                    self.totals.promotions += 1;
                }
            }
            Duty::Resume(epoch) => {
                if process.transaction.is_none() {
                    process.transaction =
                        Some(InFlight { expected: seen, record: resumed(&record, &me, epoch), fate: Fate::Pending });
                }
            }
        }
    }

    pub(super) fn serve(&mut self, copy: usize, epoch: Epoch, me: Member, in_sync: &[Member]) {
        let local = self.local(copy);
        self.tell(|| format!("{copy} serves in epoch {epoch}"));
        let before = self.served.insert(epoch, copy);
        assert!(before.is_none(), "epoch {epoch} has been served by copy {before:?}, and now by {copy}");
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        node.disk.served = Some(epoch);
        node.disk.take_stream(epoch);
        process.promoting = None;
        process.upstream = None;
        process.primary = Some(Primary::begin(epoch, me, in_sync, local));
        self.cut_from(copy);
    }

    /// Sends replicas what they do not have, and heartbeats.
    fn feed(&mut self, copy: usize) {
        let local = self.local(copy);
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        let Some(primary) = &mut process.primary else { return };
        let (epoch, heartbeat) = (primary.epoch(), primary.heartbeat(local));
        let log = self.nodes[copy].disk.log.clone();
        for node in &mut self.nodes {
            let Some(upstream) = node.process.as_mut().and_then(|process| process.upstream.as_mut()) else { continue };
            if upstream.primary != copy || upstream.epoch != epoch {
                continue;
            }
            let Some(sent) = upstream.sent else { continue };
            if sent < log.len() {
                upstream.to_replica.push_back(Down::Portion { from: sent, entries: log[sent..].to_vec() });
                upstream.sent = Some(log.len());
            }
            upstream.to_replica.extend(heartbeat.map(Down::Heartbeat));
        }
    }

    fn change_record(&mut self, copy: usize) {
        let hands_over_to = self.go_on_handing_over(copy);
        let local = self.local(copy);
        let (removed_early, added_early) =
            (self.is(Mutant::RemovedBeforeRecorded), self.is(Mutant::AddedBeforeRequired));
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        if process.transaction.is_some() {
            return;
        }
        let Some(primary) = &mut process.primary else { return };
        let mut record = self.etcd[node.seen].clone();
        if record.epoch != primary.epoch() {
            return;
        }
        if let Some(to) = hands_over_to {
            let record = handed_over(&record, to);
            process.transaction = Some(InFlight { expected: node.seen, record, fate: Fate::Pending });
            return;
        }
        let before = primary.clone();
        if self.options.leaves {
            primary.assigned(record.staying());
        }
        let Some(set) = primary.wanted(node.disk.log.len() as u64, local) else { return };
        if set == record.in_sync {
            return;
        }
        if removed_early && set.len() < record.in_sync.len() {
            primary.recorded(&set);
        }
        if added_early && set.len() > record.in_sync.len() {
            // The state before the copy was required; it is required when the record is seen.
            *primary = before;
        }
        record.in_sync = set;
        process.transaction = Some(InFlight { expected: node.seen, record, fate: Fate::Pending });
    }

    // Messages
}
