//! What the copies tell each other: the stream and heartbeats, and their acknowledgements.

use super::{Down, Mutant, Sim, Up, member};
use cluster::failover::Acknowledgement;

impl Sim {
    pub(super) fn deliver(&mut self, copy: usize) {
        let Some(upstream) = self.nodes[copy].process.as_ref().and_then(|process| process.upstream.as_ref()) else {
            return;
        };
        let primary = upstream.primary;
        if self.random.below(2) == 0 {
            if self.blocked[copy][primary] || !self.runs(primary) {
                return;
            }
            let process = self.nodes[copy].process.as_mut().expect("it is connected");
            let upstream = process.upstream.as_mut().expect("it is connected");
            let Some(message) = upstream.to_primary.pop_front() else { return };
            self.hear_replica(primary, copy, message);
        } else {
            if self.blocked[primary][copy] || !self.runs(copy) {
                return;
            }
            let process = self.nodes[copy].process.as_mut().expect("it is connected");
            let upstream = process.upstream.as_mut().expect("it is connected");
            let Some(message) = upstream.to_replica.pop_front() else { return };
            self.hear_primary(copy, message);
        }
    }

    fn hear_replica(&mut self, primary: usize, replica: usize, message: Up) {
        self.tell(|| format!("{primary} hears {replica}: {message:?}"));
        let local = self.local(primary);
        let refills_early = self.is(Mutant::RefilledAsItWas);
        let late_lease = self.is(Mutant::LeaseCountedFromTheAnswer);
        let log = self.nodes[primary].disk.log.clone();
        let upstream_epoch = self.nodes[replica]
            .process
            .as_ref()
            .and_then(|process| process.upstream.as_ref())
            .expect("it is connected")
            .epoch;
        let machine = self.nodes[primary].process.as_mut().expect("it runs").primary.as_mut();
        let machine = machine.filter(|machine| machine.epoch() == upstream_epoch);
        let answer = match (machine, message) {
            (None, Up::Hello { .. }) => Some((Down::Refused, None)),
            (Some(machine), Up::Hello { incarnation, log: theirs, acknowledged }) => {
                let who = member(replica, incarnation);
                if log.starts_with(&theirs) {
                    machine.follows(&who, acknowledged as u64, local);
                    Some((Down::Accepted, Some(theirs.len())))
                } else if machine.may_be_refilled(who.copy) || refills_early {
                    self.totals.refills += 1;
                    let sent = Some(log.len());
                    Some((Down::Whole(log), sent))
                } else {
                    Some((Down::Refused, None))
                }
            }
            (None, Up::Acknowledged { .. }) => None,
            (Some(machine), Up::Acknowledged { incarnation, message }) => {
                if late_lease {
                    // As if the heartbeat had been sent when its answer arrived.
                    if let Some(heartbeat) = machine.heartbeat(local) {
                        let message = Acknowledgement { heartbeat: Some(heartbeat.number), ..message };
                        machine.hear(&member(replica, incarnation), &message, local);
                    }
                }
                machine.hear(&member(replica, incarnation), &message, local);
                None
            }
        };
        let Some((answer, sent)) = answer else { return };
        let process = self.nodes[replica].process.as_mut().expect("it is connected");
        let upstream = process.upstream.as_mut().expect("it is connected");
        upstream.sent = sent;
        upstream.to_replica.push_back(answer);
    }

    fn hear_primary(&mut self, copy: usize, message: Down) {
        self.tell(|| format!("{copy} hears its primary: {message:?}"));
        let local = self.local(copy);
        let fresh = self.next_incarnation;
        let keeps_incarnation = self.is(Mutant::RefilledAsItWas);
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let upstream = process.upstream.as_mut().expect("it is connected");
        if !process.replica.accepts(upstream.epoch) {
            process.upstream = None;
            return;
        }
        match message {
            Down::Refused => process.upstream = None,
            Down::Accepted => {
                upstream.is_accepted = true;
                node.disk.take_stream(upstream.epoch);
            }
            Down::Whole(log) => {
                // First it is another dataset, then it empties itself.
                if !keeps_incarnation {
                    node.disk.incarnation = fresh;
                    self.next_incarnation += 1;
                }
                node.disk.is_whole = false;
                node.disk.log.clear();
                node.disk.synced = 0;
                node.disk.acknowledged = 0;
                (node.disk.stream, node.disk.earlier) = (None, None);
                process.received.clear();
                process.arriving = Some((upstream.epoch, log));
                // It says hello with its new dataset.
                process.upstream = None;
            }
            Down::Portion { from, entries } => {
                let has = node.disk.log.len() + process.received.len();
                assert_eq!(from, has, "copy {copy} got a portion that does not follow what it has");
                process.received.extend(entries);
            }
            Down::Heartbeat(heartbeat) => {
                if process.replica.hear(&heartbeat, local) {
                    upstream.heartbeat = Some(heartbeat.number);
                }
            }
        }
    }

    // etcd, and the controller
}
