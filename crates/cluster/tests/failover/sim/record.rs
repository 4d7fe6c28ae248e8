//! etcd with the shard's record, the controller that names primaries, and the operator who decides if it cannot.

use super::{COPIES, Fate, Mutant, Poll, Sim, incarnation_of, member};
use cluster::failover::{Began, Choice, Primary, Report, choose, recover};
use cluster::ids::CopyNumber;
use cluster::records::ShardRecord;

impl Sim {
    pub(super) fn commit(&mut self, expected: usize, record: &ShardRecord) -> bool {
        if expected != self.etcd.len() - 1 {
            return false;
        }
        let (before, after) = (self.etcd.last().expect("a first one").in_sync.len(), record.in_sync.len());
        self.totals.joined += u64::from(after > before);
        self.totals.left += u64::from(after < before);
        let last = self.etcd.last().expect("a first one");
        let joins = record.in_sync.iter().find(|member| !last.is_in_sync(member.copy));
        assert!(
            joins.is_none_or(|member| last.staying().contains(&member.copy)),
            "a copy that is to go joins: {record:?}"
        );
        assert!(
            record.in_sync.iter().any(|member| member.copy == record.primary),
            "a set without its primary: {record:?}"
        );
        self.tell(|| {
            let set = Vec::from_iter(record.in_sync.iter().map(|member| (member.copy.0, member.incarnation)));
            format!("record {}: epoch {}, primary {}, in sync {set:?}", self.etcd.len(), record.epoch, record.primary)
        });
        self.etcd.push(record.clone());
        true
    }

    pub(super) fn etcd_step(&mut self, copy: usize) {
        if !self.orphans.is_empty() && self.chance(3) {
            let at = self.random.index(self.orphans.len());
            let (expected, record) = self.orphans.swap_remove(at);
            self.commit(expected, &record);
        }
        if !self.nodes[copy].hears_etcd {
            return;
        }
        // The watch.
        let last = self.etcd.len() - 1;
        if self.runs(copy) && self.nodes[copy].seen < last {
            self.nodes[copy].seen += 1;
        }
        let Some(sent) = self.nodes[copy].process.as_ref().and_then(|process| process.transaction.as_ref()) else {
            return;
        };
        if sent.fate != Fate::Pending {
            return;
        }
        let (expected, record) = (sent.expected, sent.record.clone());
        let fate = if self.commit(expected, &record) { Fate::Committed } else { Fate::Conflict };
        let process = self.nodes[copy].process.as_mut().expect("it has a transaction");
        process.transaction.as_mut().expect("it has a transaction").fate = fate;
    }

    pub(super) fn answer_of_etcd(&mut self, copy: usize) {
        let gives_up = !self.is_calm && self.chance(4);
        let unknown_is_failure = self.is(Mutant::UnknownIsFailure);
        let reopens = self.is(Mutant::ServesAfterUnknown);
        let last = self.etcd.len() - 1;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(sent) = process.transaction.take() else { return };
        if gives_up {
            // The answer does not arrive in time. What was sent may be committed later.
            self.totals.unknown += 1;
            let is_handover = sent.record.is_handed_over();
            if let (true, Some(primary)) = (unknown_is_failure || reopens && is_handover, &mut process.primary) {
                let recorded = self.etcd[node.seen].in_sync.clone();
                let (epoch, me) = (primary.epoch(), member(copy, node.disk.incarnation));
                let now = self.now_ms * node.rate / 1000;
                *primary = Primary::begin(epoch, me, &recorded, now);
            }
            if sent.fate == Fate::Pending {
                self.orphans.push((sent.expected, sent.record));
            }
            return;
        }
        match sent.fate {
            Fate::Pending => process.transaction = Some(sent),
            // A linearizable read.
            Fate::Conflict => node.seen = last,
            Fate::Committed => {
                node.seen = node.seen.max(sent.expected + 1);
                let me = member(copy, node.disk.incarnation);
                let is_mine = process.primary.as_ref().is_some_and(|primary| primary.epoch() == sent.record.epoch);
                if is_mine {
                    process.primary.as_mut().expect("it is").recorded(&sent.record.in_sync);
                } else if process.primary.is_none()
                    && sent.record.primary == me.copy
                    && sent.record.epoch > process.replica.promised()
                {
                    let epoch = sent.record.epoch;
                    process.replica.promise(epoch);
                    node.disk.promised = epoch;
                    self.serve(copy, epoch, me, &sent.record.in_sync);
                    self.totals.resumptions += 1;
                }
            }
        }
    }

    /// The controller says that a copy is to go, or that it is not.
    fn control_leaving(&mut self) {
        let copy = CopyNumber(self.random.index(COPIES) as u32);
        let mut next = self.etcd.last().expect("a first one").clone();
        // A shard that has not served yet has no set.
        if copy != next.primary && !next.in_sync.is_empty() {
            next.assignments.iter_mut().filter(|one| one.copy == copy).for_each(|one| one.is_leaving = !one.is_leaving);
            self.commit(self.etcd.len() - 1, &next);
        }
    }

    pub(super) fn control(&mut self) {
        if self.options.leaves && self.chance(10) {
            return self.control_leaving();
        }
        let copy = self.random.index(COPIES);
        match self.random.below(6) {
            0 => {
                self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
            }
            1..4 => {
                if self.runs(copy) {
                    let mut report = self.report(copy);
                    // A promotion at the wrong time must cost no more than a pause.
                    report.hears_a_lease &= self.random.below(2) == 0;
                    self.controller.reports.retain(|known| known.copy != report.copy);
                    self.controller.reports.push(report);
                }
            }
            _ => {
                let record = self.etcd[self.controller.seen].clone();
                // A promotion is asked for at any time, not only when the primary is missed.
                match choose(&record, &self.controller.reports, |_| false) {
                    Choice::Name(next) => drop(self.commit(self.controller.seen, &next)),
                    Choice::NobodyKnown if self.options.recovers => self.decide(&record),
                    _ => {}
                }
                self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
            }
        }
    }

    /// The controller asks all copies that run.
    pub(super) fn ask_all(&mut self) {
        self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
        let running = (0..COPIES).filter(|copy| self.runs(*copy));
        self.controller.reports = running.map(|copy| self.report(copy)).collect();
    }

    /// An operator has the shard go on with what is left, if every copy has said what it has.
    pub(super) fn decide(&mut self, record: &ShardRecord) {
        let mut reports = self.controller.reports.clone();
        if self.is(Mutant::AnyIsTaken) {
            reports.iter_mut().for_each(|report| (report.stream, report.received) = (None, 0));
        }
        let Ok(next) = recover(record, &reports, |_| false, |_| false) else { return };
        // The leases of before have ended until an operator has looked.
        self.now_ms += 2_000;
        if !self.commit(self.controller.seen, &next) {
            return;
        }
        self.totals.recoveries += 1;
        // A reply of before that leaves now tells of what may be lost.
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            process.waiting.clear();
            process.settled.clear();
        }
        let taken = next.primary.0 as usize;
        if !next.names(next.primary, incarnation_of(self.nodes[taken].disk.incarnation)) {
            return;
        }
        let known = |copy: usize| {
            let node = &self.nodes[copy];
            let mut has = node.disk.log.clone();
            has.extend(node.process.iter().flat_map(|process| &process.received));
            has.iter().zip(&self.acknowledged).take_while(|(has, acknowledged)| has == acknowledged).count()
        };
        let kept = known(taken);
        for other in (0..COPIES).filter(|other| *other != taken) {
            assert!(
                known(other) <= kept,
                "copy {other} has more of what was acknowledged than {taken}, which is taken"
            );
        }
        self.totals.lost += (self.acknowledged.len() - kept) as u64;
        self.acknowledged.truncate(kept);
    }

    fn report(&self, copy: usize) -> Report {
        let node = &self.nodes[copy];
        let process = node.process.as_ref().expect("it runs");
        let record = &self.etcd[self.controller.seen];
        let named = record.in_sync.iter().find(|member| member.copy.0 as usize == copy);
        let incarnation = match named {
            Some(named) if self.is(Mutant::IncarnationIgnored) => named.incarnation,
            _ => incarnation_of(node.disk.incarnation),
        };
        let received = node.disk.log.len() + process.received.len();
        Report {
            copy: CopyNumber(copy as u32),
            incarnation,
            promised: process.replica.promised(),
            received: received as u64,
            stream: node.disk.stream_at(received),
            began: node.disk.stream.zip(node.disk.earlier).map(|(epoch, (before, at))| Began {
                epoch,
                at: at as u64,
                before,
            }),
            ended: match self.is(Mutant::NamedIsServed) {
                true => Some(process.replica.promised()),
                false => process.ended,
            },
            hears_a_lease: process.replica.hears_a_lease(self.local(copy)),
        }
    }

    // What must always hold
}
