//! Owns how the leader carries out the steps of operations: one after the other, each until the records show that it is done. It remembers
//! nothing: what comes next follows from the records, so another leader goes on wherever one has stopped, and a step that was done twice is
//! done once. Never decides which steps an operation has (`plans`), and never names a primary by itself: the primary hands over.

use crate::candidate::{Candidate, majority_is_away};
use crate::desk::{begin_steps, new_operation};
use crate::handover::hand_over;
use crate::plans::{Wish, planned, successor};
use base::clock::wall_ms;
use cluster::ids::{CopyNumber, Epoch, NodeId, OperationId, ProcessId, ShardUid};
use cluster::keys::Key;
use cluster::records::{
    self, Assignment, NodeRecord, OperationKind, OperationRecord, REPLACE_AFTER_S, Restarted, Role, ShardRecord, Step,
    StepKind, Unknown,
};
use cluster::view::{Revised, View};
use membership::call::{Call, Reply};
use membership::issuer::Issuer;
use membership::join::Peer;
use membership::records::{Change, RecordsError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Before it is tried again to replace the copies of a node.
const AGAIN_MS: u64 = 10_000;
/// Between two looks at operations that wait for something.
const TICK: Duration = Duration::from_millis(100);
/// How long a node may take to say that it is going to start anew.
const RESTART_TIMEOUT: Duration = Duration::from_secs(2);
/// How long records may take to get here.
const NEWER_TIMEOUT: Duration = Duration::from_secs(1);

// --- what comes next ---

/// What the leader does next for an operation.
#[derive(Debug, PartialEq)]
pub enum Next {
    Write(Box<Write>),
    /// The primary's node is asked to hand the shard over.
    HandOver {
        node: NodeId,
        shard: ShardUid,
        epoch: Epoch,
        to: CopyNumber,
    },
    /// The node is asked to start anew.
    Restart {
        node: NodeId,
        process: ProcessId,
    },
    /// This node is to start anew, and another one leads meanwhile.
    LeaveLead,
}

/// Records to write in one transaction, each with the revision that was read.
#[derive(Debug, Default, PartialEq)]
pub struct Write {
    pub shard: Option<(ShardUid, i64, ShardRecord)>,
    pub node: Option<(NodeId, i64, NodeRecord)>,
    pub operation: Option<OperationRecord>,
}

impl Write {
    fn of_shard(uid: ShardUid, before: &Revised<ShardRecord>, now: ShardRecord) -> Taken {
        Taken::Do(Next::Write(Box::new(Write { shard: Some((uid, before.revision, now)), ..Write::default() })))
    }

    /// The transaction, if this node still leads and the operation is as it was read.
    fn change(&self, leader: i64, id: OperationId, revision: i64) -> Change {
        let encoded = "the record was read, and the change keeps what was checked";
        let operation = Key::Operation(id).to_string();
        let mut change = Change::default().given(&Key::Leader.to_string(), leader).given(&operation, revision);
        if let Some((uid, revision, record)) = &self.shard {
            let key = Key::Shard(uid.database(), uid.number());
            let bytes = records::encode(key, record).expect(encoded);
            change = change.given(&key.to_string(), *revision).put_bytes(&key.to_string(), bytes);
        }
        if let Some((node, revision, record)) = &self.node {
            let key = Key::Node(*node);
            let bytes = records::encode(key, record).expect(encoded);
            change = change.given(&key.to_string(), *revision).put_bytes(&key.to_string(), bytes);
        }
        if let Some(record) = &self.operation {
            change = change.put_bytes(&operation, records::encode(Key::Operation(id), record).expect(encoded));
        }
        change
    }
}

/// How far a step is.
enum Taken {
    Done,
    /// Nothing can be done now, and why.
    Wait(String),
    Do(Next),
    /// The operation ends here: why before its last step.
    End(Option<String>),
}

/// What `me`, the leader, does next for an operation that has not ended. `None`: it waits.
pub fn next(view: &View, me: NodeId, operation: &OperationRecord, now_ms: u64) -> Option<Next> {
    let look = Look { view, me, operation, now_ms };
    let mut now = operation.clone();
    let taken = match (&operation.aborted_by, look.returned_node()) {
        (None, Some(why)) => {
            now.aborted_by = Some(why);
            return write(now);
        }
        (None, None) => look.forward(),
        (Some(by), _) => look.back(by),
    };
    match taken {
        Taken::Do(next) => return Some(next),
        Taken::Done => (now.done, now.waits_for) = (operation.done + 1, None),
        Taken::Wait(why) => now.waits_for = Some(why),
        Taken::End(error) => (now.error, now.ended_ms, now.waits_for) = (error, Some(now_ms), None),
    }
    if now == *operation { None } else { write(now) }
}

fn write(operation: OperationRecord) -> Option<Next> {
    Some(Next::Write(Box::new(Write { operation: Some(operation), ..Write::default() })))
}

struct Look<'a> {
    view: &'a View,
    me: NodeId,
    operation: &'a OperationRecord,
    now_ms: u64,
}

impl Look<'_> {
    fn forward(&self) -> Taken {
        let Some(step) = self.operation.steps.get(self.operation.done) else { return self.finish() };
        match (self.operation.kind, step.kind) {
            // A step of its own for each primary shows how far it is. Whichever can leave leaves first.
            (OperationKind::Drain, _) => match (self.operation.node, step.shard) {
                (Some(node), Some(shard)) if self.primary_node(shard) == Some(node) => match self.leave(node) {
                    Taken::Done => Taken::Wait(self.has_no_other(shard)),
                    taken => taken,
                },
                _ => Taken::Done,
            },
            (_, StepKind::Restart) => self.restart(step),
            _ => self.of_shard(step),
        }
    }

    fn finish(&self) -> Taken {
        match (self.operation.kind, self.operation.node) {
            // Others may have become primaries there meanwhile.
            (OperationKind::Drain, Some(node)) => match self.leave(node) {
                Taken::Done => Taken::End(None),
                taken => taken,
            },
            _ => Taken::End(None),
        }
    }

    fn of_shard(&self, step: &Step) -> Taken {
        let Some((uid, record)) = step.shard.and_then(|uid| Some((uid, self.view.shard(uid)?))) else {
            return match self.operation.database {
                Some(_) => Taken::End(Some("its database was deleted".to_owned())),
                None => Taken::Done,
            };
        };
        match (step.kind, step.from, step.to) {
            (StepKind::Add, _, Some(to)) => self.add(uid, record, to),
            (StepKind::Move, Some(from), Some(to)) => self.move_copy(uid, record, from, to),
            (StepKind::Drop, Some(from), _) => self.drop_copy(uid, record, from),
            (StepKind::SwitchOver, _, Some(to)) => self.switch_over(uid, record, to),
            _ => Taken::End(Some(format!("this version cannot carry out a step of kind {:?}", step.kind))),
        }
    }

    // --- steps ---

    /// Done when the new copy has everything that was acknowledged.
    fn add(&self, uid: ShardUid, record: &Revised<ShardRecord>, to: NodeId) -> Taken {
        let (shard, node) = (self.view.shard_name(uid), self.view.node_name(to));
        let Some(known) = self.view.nodes.get(&to) else {
            return Taken::End(Some(format!("node {node} is no member of the cluster any more")));
        };
        if let Some(assigned) = record.on(to) {
            return match (assigned.is_leaving, record.is_in_sync(assigned.copy), self.runs(to)) {
                (true, ..) => Taken::Wait(format!("an earlier copy of {shard} leaves node {node}")),
                (false, true, _) => Taken::Done,
                (false, false, true) => {
                    Taken::Wait(format!("the new copy of {shard} on node {node} is not in sync yet"))
                }
                (false, false, false) => Taken::Wait(does_not_run(&node)),
            };
        }
        if !self.runs(to) {
            return Taken::Wait(does_not_run(&node));
        }
        if known.is_draining {
            return Taken::End(Some(format!("node {node} is drained, so it gets no copy of {shard}")));
        }
        let mut next = (*record.record).clone();
        next.assignments.push(Assignment::new(next.next_copy, to));
        next.next_copy = CopyNumber(next.next_copy.0 + 1);
        Write::of_shard(uid, record, next)
    }

    /// The new copy joins, becomes the primary if the old one is, and the old one goes.
    fn move_copy(&self, uid: ShardUid, record: &Revised<ShardRecord>, from: NodeId, to: NodeId) -> Taken {
        if record.on(from).is_none() && record.on(to).is_none() {
            let (shard, from) = (self.view.shard_name(uid), self.view.node_name(from));
            return Taken::End(Some(format!("{shard} has no copy on node {from} any more")));
        }
        match self.add(uid, record, to) {
            Taken::Done if record.primary_node() == Some(from) => self.hand_over(uid, record, to),
            Taken::Done => self.drop_copy(uid, record, from),
            taken => taken,
        }
    }

    /// The primary takes the copy out of the in-sync set first: a copy that could be named has every acknowledged write.
    fn drop_copy(&self, uid: ShardUid, record: &Revised<ShardRecord>, from: NodeId) -> Taken {
        let Some(assigned) = record.on(from) else { return Taken::Done };
        let (shard, node) = (self.view.shard_name(uid), self.view.node_name(from));
        let set_leaving = |is_leaving| {
            let mut next = (*record.record).clone();
            next.assignments.iter_mut().filter(|one| one.node == from).for_each(|one| one.is_leaving = is_leaving);
            Write::of_shard(uid, record, next)
        };
        if record.primary == assigned.copy {
            return match assigned.is_leaving {
                true => set_leaving(false),
                false => Taken::Wait(format!("the copy of {shard} on node {node} is its primary")),
            };
        }
        if !assigned.is_leaving {
            let rest = record.in_sync.iter().filter(|member| member.copy != assigned.copy).count();
            let least = self.in_sync_min(uid);
            return match rest >= least {
                true => set_leaving(true),
                false => Taken::Wait(format!(
                    "without its copy on node {node}, {shard} would have {rest} copies in sync, and its database wants {least}"
                )),
            };
        }
        if record.is_in_sync(assigned.copy) {
            return Taken::Wait(format!("the primary of {shard} takes the copy on node {node} out of the in-sync set"));
        }
        Write::of_shard(uid, record, record.without(from))
    }

    fn switch_over(&self, uid: ShardUid, record: &Revised<ShardRecord>, to: NodeId) -> Taken {
        if record.primary_node() == Some(to) {
            return Taken::Done;
        }
        // It was asked to bring primaries back, as far as copies are still there.
        if record.on(to).is_none() && self.operation.kind == OperationKind::Undrain {
            return Taken::Done;
        }
        self.hand_over(uid, record, to)
    }

    fn hand_over(&self, uid: ShardUid, record: &Revised<ShardRecord>, to: NodeId) -> Taken {
        let (shard, node) = (self.view.shard_name(uid), self.view.node_name(to));
        let Some(assigned) = record.on(to) else {
            return Taken::End(Some(format!("{shard} has no copy on node {node} any more")));
        };
        if !self.runs(to) {
            return Taken::Wait(does_not_run(&node));
        }
        if !record.is_in_sync(assigned.copy) {
            return Taken::Wait(format!("the copy of {shard} on node {node} is not in sync"));
        }
        match record.primary_node().filter(|primary| self.runs(*primary)) {
            Some(node) => Taken::Do(Next::HandOver { node, shard: uid, epoch: record.epoch, to: assigned.copy }),
            None => {
                Taken::Wait(format!("the node of the primary of {shard} does not run: another copy is named first"))
            }
        }
    }

    /// The primaries leave the node, as far as others can take them.
    fn leave(&self, node: NodeId) -> Taken {
        let mut waits = None;
        for (uid, record) in self.view.shards_on(node) {
            // A shard without another copy stays.
            if record.primary_node() != Some(node) || record.assignments.len() < 2 || record.in_sync.is_empty() {
                continue;
            }
            let Some(to) = successor(self.view, record) else {
                waits.get_or_insert_with(|| self.has_no_other(uid));
                continue;
            };
            match self.hand_over(uid, record, to) {
                Taken::Wait(why) => drop(waits.get_or_insert(why)),
                taken => return taken,
            }
        }
        waits.map_or(Taken::Done, Taken::Wait)
    }

    fn has_no_other(&self, uid: ShardUid) -> String {
        format!("no other copy of {} is in sync on a node that runs", self.view.shard_name(uid))
    }

    /// The node is drained, starts anew, has all its copies in sync, and takes primaries again.
    fn restart(&self, step: &Step) -> Taken {
        let Some((id, node)) = step.to.and_then(|id| Some((id, self.view.nodes.get(&id)?))) else { return Taken::Done };
        let live = self.view.live.get(&id);
        let name = &node.name;
        let Some(restarted) = &step.restarted else {
            let Some(live) = live else { return Taken::Wait(does_not_run(name.as_str())) };
            if let Some(why) = self.would_lack(id) {
                return Taken::Wait(why);
            }
            let mut operation = self.operation.clone();
            operation.waits_for = None;
            operation.steps[operation.done].restarted =
                Some(Restarted { process: live.process, stays_drained: node.is_draining, unknown: Unknown::new() });
            return self.set_draining(id, node, true, operation);
        };
        match live {
            Some(live) if live.process == restarted.process => match self.leave(id) {
                Taken::Done => {
                    if let Some(why) = self.would_lack(id) {
                        return Taken::Wait(why);
                    }
                    match (id == self.me, self.view.live.len() > 1) {
                        (true, true) => Taken::Do(Next::LeaveLead),
                        _ => Taken::Do(Next::Restart { node: id, process: live.process }),
                    }
                }
                taken => taken,
            },
            None => Taken::Wait(format!("node {name} has not started again yet")),
            Some(_) => {
                let mut on_it = self.view.shards_on(id);
                let is_behind = |record: &ShardRecord| {
                    let copy = record.on(id).expect("it is on the node");
                    !record.is_in_sync(copy.copy) && !copy.is_leaving
                };
                if let Some((uid, _)) = on_it.find(|(_, record)| is_behind(record)) {
                    let shard = self.view.shard_name(uid);
                    return Taken::Wait(format!("the copy of {shard} on node {name} is not in sync yet"));
                }
                let mut operation = self.operation.clone();
                (operation.done, operation.waits_for) = (operation.done + 1, None);
                self.set_draining(id, node, restarted.stays_drained, operation)
            }
        }
    }

    /// Why the node's process may not end: a shard with replicas would have too few copies in sync.
    fn would_lack(&self, node: NodeId) -> Option<String> {
        self.view.shards_on(node).find_map(|(uid, record)| {
            let copy = record.on(node).expect("it is on the node").copy;
            let rest = record.in_sync.iter().filter(|member| member.copy != copy);
            let rest = rest.filter(|member| record.node_of(member.copy).is_some_and(|node| self.runs(node))).count();
            let least = self.in_sync_min(uid);
            (record.assignments.len() > 1 && rest < least).then(|| {
                let (shard, node) = (self.view.shard_name(uid), self.view.node_name(node));
                format!("without node {node}, {shard} would have {rest} copies in sync, and its database wants {least}")
            })
        })
    }

    fn set_draining(
        &self,
        id: NodeId,
        node: &Revised<NodeRecord>,
        is_draining: bool,
        operation: OperationRecord,
    ) -> Taken {
        let record = NodeRecord { is_draining, ..(*node.record).clone() };
        let write = Write { shard: None, node: Some((id, node.revision, record)), operation: Some(operation) };
        Taken::Do(Next::Write(Box::new(write)))
    }

    // --- the way back ---

    /// Copies of a node that runs again come back by themselves.
    fn returned_node(&self) -> Option<String> {
        let node =
            self.operation.node.filter(|node| self.operation.kind == OperationKind::Replace && self.runs(*node))?;
        Some(format!("the cluster, because node {} runs again", self.view.node_name(node)))
    }

    /// Takes back what is half done, or completes it if that is shorter, and ends the operation.
    fn back(&self, by: &str) -> Taken {
        let done =
            format!("aborted by {by}, with {} of {} steps done", self.operation.done, self.operation.steps.len());
        let ended = |stays: &str| Taken::End(Some(format!("{done}: {stays}")));
        let step = self.operation.steps.get(self.operation.done);
        let of_shard = step.and_then(|step| Some((step, step.shard?, self.view.shard(step.shard?)?)));
        let taken = match (self.operation.kind, step) {
            (OperationKind::Drain, _) => {
                let why =
                    format!("{done}: the node takes primaries again, and those that have left stay where they are");
                return self.undrain(self.operation.node, why);
            }
            (OperationKind::Restart, step) => {
                let stays = format!("{done}: nodes that have started anew stay as they are");
                let begun = step.filter(|step| step.restarted.as_ref().is_some_and(|begun| !begun.stays_drained));
                return self.undrain(begun.and_then(|step| step.to), stays);
            }
            _ => match of_shard {
                Some((Step { kind: StepKind::Add, to: Some(to), .. }, uid, record)) => self.take_back(uid, record, *to),
                Some((Step { kind: StepKind::Move, from: Some(from), to: Some(to), .. }, uid, record)) => {
                    let old = record.on(*from).filter(|old| !old.is_leaving && record.primary_node() != Some(*to));
                    match old {
                        Some(_) => self.take_back(uid, record, *to),
                        // The new copy has the old one's place already.
                        None => self.move_copy(uid, record, *from, *to),
                    }
                }
                _ => Taken::Done,
            },
        };
        match taken {
            Taken::Done => ended(match self.operation.kind {
                OperationKind::SwitchOver | OperationKind::Undrain => {
                    "primaries that were handed over stay where they are"
                }
                _ => "copies that have moved stay where they are, and none is half there",
            }),
            taken => taken,
        }
    }

    /// A new copy goes again, unless it is the primary meanwhile.
    fn take_back(&self, uid: ShardUid, record: &Revised<ShardRecord>, to: NodeId) -> Taken {
        match record.primary_node() == Some(to) {
            true => Taken::Done,
            false => self.drop_copy(uid, record, to),
        }
    }

    fn undrain(&self, node: Option<NodeId>, why: String) -> Taken {
        let Some((id, node)) = node.and_then(|id| Some((id, self.view.nodes.get(&id)?))) else {
            return Taken::End(Some(why));
        };
        let operation = OperationRecord {
            error: Some(why),
            ended_ms: Some(self.now_ms),
            waits_for: None,
            ..self.operation.clone()
        };
        self.set_draining(id, node, false, operation)
    }

    fn runs(&self, node: NodeId) -> bool {
        self.view.live.contains_key(&node)
    }

    fn primary_node(&self, uid: ShardUid) -> Option<NodeId> {
        self.view.shard(uid)?.primary_node()
    }

    /// The least number of copies in sync with which the shard's database takes writes.
    fn in_sync_min(&self, uid: ShardUid) -> usize {
        let database = self.view.databases.get(&uid.database());
        let spec = database.and_then(|database| database.spec.as_ref());
        spec.map_or(1, |spec| (spec.definition.known.min_in_sync as usize).max(1))
    }
}

fn does_not_run(node: &str) -> String {
    format!("node {node} does not run")
}

// --- nodes that do not come back ---

/// Which nodes have not run for so long that their copies come anew on others.
#[derive(Default)]
struct Lost {
    /// Since when a node has not run, as this leader has seen it, and when its copies are to be replaced, or that is to be tried again.
    nodes: BTreeMap<NodeId, (u64, u64)>,
    /// Why that was not possible.
    said: BTreeMap<NodeId, String>,
}

impl Lost {
    fn due(&mut self, view: &View, now_ms: u64) -> Vec<NodeId> {
        let set = view.settings.as_ref().and_then(|settings| settings.replace_after_s);
        let after_ms = set.unwrap_or(REPLACE_AFTER_S).saturating_mul(1_000);
        self.nodes.retain(|node, _| view.nodes.contains_key(node) && !view.live.contains_key(node));
        self.said.retain(|node, _| self.nodes.contains_key(node));
        for (&id, _) in view.nodes.iter().filter(|(id, node)| node.role == Role::Data && !view.live.contains_key(id)) {
            self.nodes.entry(id).or_insert((now_ms, 0));
        }
        if after_ms == 0 || majority_is_away(view).is_some() {
            return Vec::new();
        }
        let is_due =
            |(since_ms, again_ms): (u64, u64)| now_ms >= since_ms.saturating_add(after_ms) && now_ms >= again_ms;
        let has_copies = |node: NodeId| view.shards_on(node).any(|(_, record)| record.assignments.len() > 1);
        let due = self.nodes.iter().filter(|(id, times)| is_due(**times) && has_copies(**id));
        let due: Vec<NodeId> = due.map(|(id, _)| *id).collect();
        for id in &due {
            self.nodes.get_mut(id).expect("it is due").1 = now_ms + AGAIN_MS;
        }
        due
    }

    async fn replace(&mut self, me: &Candidate, view: &View, leader: i64, now_ms: u64) {
        for id in self.due(view, now_ms) {
            let node = view.node_name(id);
            let wish = Wish::Replace { node: id.to_string() };
            let begun = planned(view, me.workers, &wish)
                .and_then(|planned| begin_steps(view, new_operation(), &planned, "the cluster"));
            let why = match begun {
                Ok(change) => {
                    let change = change.given(&Key::Leader.to_string(), leader);
                    match (me.issuer)().records.change(change).await {
                        Ok(_) => {
                            tracing::warn!("node {node} has not run for long: its copies come anew on other nodes");
                            continue;
                        }
                        Err(RecordsError::Conflict | RecordsError::Unknown(_)) => continue,
                        Err(error) => error.to_string(),
                    }
                }
                Err(why) => why.to_string(),
            };
            if self.said.get(&id) != Some(&why) {
                tracing::warn!("node {node} has not run for long, and its copies do not come anew: {why}");
                self.said.insert(id, why);
            }
        }
    }
}

// --- the leader ---

/// Carries out what operators have asked for, for as long as this node leads. Returns when another node is to lead.
pub async fn carry_out(me: &Candidate, leader: i64) {
    let mut view = me.view.clone();
    let (begun, mut lost) = (Instant::now(), Lost::default());
    loop {
        let seen = view.borrow_and_update().clone();
        lost.replace(me, &seen, leader, begun.elapsed().as_millis() as u64).await;
        let mut running: Vec<(&OperationId, &Revised<OperationRecord>)> = seen
            .operations
            .iter()
            .filter(|(_, operation)| operation.ended_ms.is_none() && operation.has_steps())
            .collect();
        running.sort_by_key(|(_, operation)| operation.started_ms);
        for (&id, operation) in running {
            match next(&seen, me.me, operation, wall_ms()) {
                None => {}
                Some(Next::LeaveLead) => return,
                Some(next) => act(me, &seen, leader, (id, operation), next).await,
            }
        }
        // What was written comes back as a newer view.
        let _ = timeout(TICK, view.changed()).await;
    }
}

async fn act(
    me: &Candidate,
    view: &View,
    leader: i64,
    (id, operation): (OperationId, &Revised<OperationRecord>),
    next: Next,
) {
    let issuer = (me.issuer)();
    let (what, asked) = match next {
        Next::Write(write) => {
            let ended = write.operation.as_ref().filter(|operation| operation.ended_ms.is_some());
            let kind = operation.kind;
            match issuer.records.change(write.change(leader, id, operation.revision)).await {
                Ok(_) => {
                    if let Some(OperationRecord { target, error, .. }) = ended {
                        let how = error.clone().unwrap_or_else(|| "done".to_owned());
                        tracing::info!("operation {id}, {kind:?} of {target}, has ended: {how}");
                    }
                }
                // The records that come say what holds.
                Err(RecordsError::Conflict | RecordsError::Unknown(_)) => {}
                Err(error) => tracing::warn!("operation {id} does not go on: {error}"),
            }
            return;
        }
        Next::HandOver { node, shard, epoch, to } => {
            let asked = hand_over(&issuer, view, (shard.database(), shard.number()), to).await;
            if asked.is_ok() {
                let is_newer = |view: &Arc<View>| view.shard(shard).is_none_or(|record| record.epoch > epoch);
                let _ = timeout(NEWER_TIMEOUT, me.view.clone().wait_for(is_newer)).await;
            }
            (format!("{} is not handed over by node {}", view.shard_name(shard), view.node_name(node)), asked)
        }
        Next::Restart { node, process } => {
            let asked = restart(&issuer, view, node, process).await;
            if asked.is_ok() {
                let has_ended = |view: &Arc<View>| view.live.get(&node).is_none_or(|live| live.process != process);
                let _ = timeout(NEWER_TIMEOUT, me.view.clone().wait_for(has_ended)).await;
            }
            (format!("node {} does not start anew", view.node_name(node)), asked)
        }
        Next::LeaveLead => return,
    };
    let Err(why) = asked else { return };
    let waits_for = Some(format!("{what}: {why}"));
    if operation.waits_for != waits_for {
        let now = OperationRecord { waits_for, ..(*operation.record).clone() };
        let write = Write { operation: Some(now), ..Write::default() };
        // For operators to read: what it says is tried again anyway.
        let _ = issuer.records.change(write.change(leader, id, operation.revision)).await;
    }
}

async fn restart(issuer: &Issuer, view: &View, node: NodeId, process: ProcessId) -> Reply<()> {
    let record = view.nodes.get(&node).ok_or("it is no member any more")?;
    let peer = Peer {
        at: record.addresses.peer.as_str().to_owned(),
        current: Arc::clone(&issuer.current),
        trust: Arc::clone(&issuer.trust),
    };
    let asked = timeout(RESTART_TIMEOUT, peer.ask::<()>(&Call::Restart { process })).await;
    asked.unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans::Planned;
    use base::random::SplitMix64;
    use cluster::ids::{DatabaseId, HashSecret, Incarnation, ShardNumber, shard_uid};
    use cluster::records::{
        Addresses, Capacity, DatabaseState, LeaderRecord, LiveRecord, Member, SettingsRecord, SpecRecord,
        StoredDefinition, Versions, encode,
    };
    use coord::Twin;
    use membership::records::Records;

    const DATABASE: DatabaseId = DatabaseId([7; 10]);
    const SHARDS: u16 = 2;

    fn node(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    fn uid(number: u16) -> ShardUid {
        shard_uid(DATABASE, ShardNumber(number))
    }

    fn member(copy: CopyNumber) -> Member {
        Member { copy, incarnation: Incarnation([copy.0 as u8; 8]), unknown: Unknown::new() }
    }

    /// A cluster of `n1` to `n4` with the database `orders`, whose shards have their primaries on `n1` and replicas on `n2`, and its records at
    /// etcd's twin. `n4` leads.
    struct Scene {
        twin: Twin,
        records: Records,
        operation: OperationId,
    }

    impl Scene {
        fn new(min_in_sync: u32) -> Scene {
            let twin = Twin::new(1);
            let records = Records::new(Arc::new(twin.clone()), pki::ClusterId::random());
            let scene = Scene { twin, records, operation: OperationId([9; 8]) };
            for number in 1..=4 {
                let record = NodeRecord {
                    name: format!("n{number}").parse().unwrap(),
                    zone: format!("z{number}").parse().unwrap(),
                    role: Role::Data,
                    is_draining: false,
                    addresses: Addresses {
                        peer: "127.0.0.1:8380".parse().unwrap(),
                        client_host: String::new(),
                        unknown: Unknown::new(),
                    },
                    versions: Versions { flintkv: String::new(), unknown: Unknown::new() },
                    capacity: Capacity { ram_bytes: 1 << 30, flash_bytes: 0, unknown: Unknown::new() },
                    feature_level: 1,
                    unknown: Unknown::new(),
                };
                scene.put(Key::Node(node(number)), &record);
                scene.runs(number, number);
            }
            let mut definition = StoredDefinition::default();
            definition.known.port = 7000;
            definition.known.shards = SHARDS.into();
            definition.known.replicas = 1;
            definition.known.replication = "sync".to_owned();
            definition.known.persistence = "none".to_owned();
            definition.known.min_in_sync = min_in_sync;
            definition.known.memory_limit_bytes = 200 << 20;
            definition.known.ram_limit_bytes = 200 << 20;
            let spec = SpecRecord {
                name: "orders".parse().unwrap(),
                state: DatabaseState::Serving,
                hash_secret: HashSecret([7; 16]),
                config: BTreeMap::new(),
                flushes: 0,
                definition,
                unknown: Unknown::new(),
            };
            scene.put(Key::Spec(DATABASE), &spec);
            for number in 0..SHARDS {
                let copies = vec![Assignment::new(CopyNumber(0), node(1)), Assignment::new(CopyNumber(1), node(2))];
                let mut shard = ShardRecord::new(CopyNumber(0), copies);
                shard.in_sync = vec![member(CopyNumber(0)), member(CopyNumber(1))];
                scene.put(Key::Shard(DATABASE, ShardNumber(number)), &shard);
            }
            scene.lead(4);
            scene
        }

        fn change(&self, change: Change) -> Result<i64, RecordsError> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(self.records.change(change))
        }

        fn put<R: records::Record>(&self, key: Key, record: &R) {
            let bytes = encode(key, record).unwrap();
            self.change(Change::default().put_bytes(&key.to_string(), bytes)).unwrap();
        }

        fn runs(&self, number: u8, process: u8) {
            let process = ProcessId([process; 8]);
            self.put(Key::Live(node(number)), &LiveRecord { process, place: String::new(), unknown: Unknown::new() });
        }

        fn ends(&self, number: u8) {
            self.change(Change::default().delete(&Key::Live(node(number)).to_string())).unwrap();
        }

        fn lead(&self, number: u8) {
            let record = LeaderRecord { node: node(number), process: ProcessId([number; 8]), unknown: Unknown::new() };
            self.put(Key::Leader, &record);
        }

        fn view(&self) -> View {
            let mut view = View::default();
            for (key, entry) in self.twin.entries() {
                view.apply(key.strip_prefix(self.records.prefix()).unwrap(), Some(&entry.value), entry.mod_revision);
            }
            assert!(view.unreadable.is_empty(), "{:?}", view.unreadable);
            view
        }

        fn shard(&self, number: u16) -> ShardRecord {
            ShardRecord::clone(self.view().shard(uid(number)).unwrap())
        }

        /// The nodes of a shard: its primary, and the others of the in-sync set.
        fn nodes(&self, number: u16) -> (NodeId, Vec<NodeId>) {
            let shard = self.shard(number);
            let others = shard.in_sync.iter().filter(|member| member.copy != shard.primary);
            (shard.primary_node().unwrap(), others.map(|member| shard.node_of(member.copy).unwrap()).collect())
        }

        fn plan(&self, wish: &Wish) -> Result<Planned, String> {
            planned(&self.view(), 2, wish).map_err(|error| error.to_string())
        }

        fn begin(&self, wish: &Wish) -> Planned {
            let planned = self.plan(wish).unwrap();
            self.change(begin_steps(&self.view(), self.operation, &planned, "ann").unwrap()).unwrap();
            planned
        }

        fn abort(&self) {
            let mut operation = self.operation();
            operation.aborted_by = Some("bob".to_owned());
            self.put(Key::Operation(self.operation), &operation);
        }

        fn operation(&self) -> OperationRecord {
            OperationRecord::clone(&self.view().operations[&self.operation])
        }

        /// What the leader does next, as it knows the cluster from `view`.
        fn next(&self, view: &View) -> Option<Next> {
            let leader = view.leader.as_ref().unwrap().node;
            next(view, leader, &view.operations[&self.operation], 5)
        }

        /// The leader's next step is taken. False: it waits, or leaves the lead to another one.
        fn step(&self, view: &View) -> bool {
            match self.next(view) {
                None => return false,
                Some(Next::Write(write)) => {
                    let (leader, operation) = (view.leader.as_ref().unwrap(), &view.operations[&self.operation]);
                    // Of an old view, it is refused.
                    let _ = self.change(write.change(leader.revision, self.operation, operation.revision));
                }
                Some(Next::HandOver { node, shard, epoch, to }) => {
                    let mut record = ShardRecord::clone(self.view().shard(shard).unwrap());
                    // The primary refuses otherwise.
                    if record.epoch == epoch && record.primary_node() == Some(node) && record.is_in_sync(to) {
                        (record.primary, record.epoch) = (to, epoch.next());
                        self.put(Key::Shard(shard.database(), shard.number()), &record);
                    }
                }
                Some(Next::Restart { node, process }) => {
                    if self.view().live.get(&node).is_some_and(|live| live.process == process) {
                        self.runs(node.0[0], process.0[0] + 100);
                    }
                }
                Some(Next::LeaveLead) => {
                    let others =
                        [1, 2, 3, 4].map(node).into_iter().filter(|other| self.view().live.contains_key(other));
                    let other = others.into_iter().find(|other| *other != view.leader.as_ref().unwrap().node);
                    self.lead(other.expect("another node runs").0[0]);
                }
            }
            true
        }

        /// The primaries do what they do: copies that follow join the set, and those that are to go leave it.
        fn settle(&self) {
            for number in 0..SHARDS {
                let (view, mut shard) = (self.view(), self.shard(number));
                let before = shard.clone();
                if !view.live.contains_key(&shard.primary_node().unwrap()) {
                    continue;
                }
                let follows = |assigned: &Assignment| !assigned.is_leaving && view.live.contains_key(&assigned.node);
                shard.in_sync = shard
                    .assignments
                    .iter()
                    .filter(|assigned| follows(assigned) || assigned.copy == shard.primary)
                    .map(|assigned| member(assigned.copy))
                    .collect();
                if shard != before {
                    self.put(Key::Shard(DATABASE, ShardNumber(number)), &shard);
                }
            }
        }

        /// Until the operation has ended.
        fn carry_out(&self) -> OperationRecord {
            for _ in 0..100 {
                if self.operation().ended_ms.is_some() {
                    return self.operation();
                }
                if !self.step(&self.view()) {
                    self.settle();
                }
            }
            panic!("it does not end: {:?}", self.operation());
        }

        /// What it waits for, when it goes no further by itself.
        fn waits_for(&self) -> String {
            while self.step(&self.view()) {}
            self.operation().waits_for.unwrap_or_default()
        }
    }

    fn moving(shard: &str, to: &str, from: Option<&str>) -> Wish {
        Wish::Move { shard: shard.to_owned(), to: to.to_owned(), from: from.map(str::to_owned) }
    }

    fn drain(node: &str) -> Wish {
        Wish::Drain { node: node.to_owned() }
    }

    #[test]
    fn a_switchover_asks_the_primary_until_the_record_names_the_new_one() {
        let scene = Scene::new(1);
        let wish = Wish::SwitchOver { database: "orders".to_owned(), shard: Some(1), to: None };
        assert_eq!(scene.begin(&wish).target, "orders.1");
        let view = scene.view();
        let asked = scene.next(&view);
        let epoch = Epoch::FIRST;
        assert_eq!(asked, Some(Next::HandOver { node: node(1), shard: uid(1), epoch, to: CopyNumber(1) }));
        assert_eq!(scene.next(&view), asked, "it is asked again until the record shows it");
        assert_eq!(scene.carry_out().error, None);
        assert_eq!((scene.nodes(1), scene.nodes(0)), ((node(2), vec![node(1)]), (node(1), vec![node(2)])));

        let refused = |database: &str, shard, to: Option<&str>| {
            let to = to.map(str::to_owned);
            scene.plan(&Wish::SwitchOver { database: database.to_owned(), shard, to }).unwrap_err()
        };
        assert_eq!(refused("none", None, None), "the cluster has no database 'none'");
        assert_eq!(refused("orders", Some(7), None), "the cluster has no shard 'orders.7'");
        assert_eq!(refused("orders", None, Some("n9")), "the cluster has no node 'n9'");
        assert_eq!(refused("orders", Some(0), Some("n3")), "orders.0 has no copy on node n3: its copies are on n1, n2");
        assert_eq!(refused("orders", Some(0), Some("n1")), "the primary of orders.0 is on node n1 already");
        scene.ends(2);
        assert_eq!(refused("orders", Some(0), Some("n2")), "node n2 does not run");
        assert_eq!(refused("orders", Some(0), None), "no other copy of orders.0 is in sync on a node that runs");
    }

    #[test]
    fn primaries_leave_a_drained_node_and_come_back_when_it_is_undrained() {
        let scene = Scene::new(1);
        assert_eq!(scene.begin(&drain("n1")).steps.len(), 2);
        assert!(scene.view().nodes[&node(1)].is_draining, "from its begin on");
        assert_eq!(scene.carry_out().error, None);
        assert!((0..SHARDS).all(|number| scene.nodes(number) == (node(2), vec![node(1)])));
        assert!(scene.plan(&moving("orders.0", "n1", None)).unwrap_err().contains("already"));
        assert!(scene.plan(&drain("n2")).is_ok_and(|planned| planned.notes.len() == 2), "n1 takes no primaries");

        let scene = Scene { operation: OperationId([8; 8]), ..scene };
        let undrain = Wish::Undrain { node: "n1".to_owned() };
        assert_eq!(scene.begin(&undrain).steps.len(), 1, "the primaries are spread again");
        assert_eq!(scene.carry_out().error, None);
        let primaries: Vec<NodeId> = (0..SHARDS).map(|number| scene.nodes(number).0).collect();
        assert!(primaries.contains(&node(1)) && primaries.contains(&node(2)));
        assert_eq!(scene.plan(&undrain).unwrap_err(), "node 'n1' is not drained");
    }

    #[test]
    fn a_drain_waits_for_a_copy_in_sync_and_leaves_no_shard_without_a_primary() {
        let scene = Scene::new(1);
        let mut shard = scene.shard(0);
        shard.in_sync.pop();
        scene.put(Key::Shard(DATABASE, ShardNumber(0)), &shard);
        scene.begin(&drain("n1"));
        assert_eq!(scene.waits_for(), "no other copy of orders.0 is in sync on a node that runs");
        assert_eq!((scene.nodes(0).0, scene.nodes(1).0), (node(1), node(2)), "the other shard has left");
        // A primary that comes back to the node meanwhile leaves too.
        let mut back = scene.shard(1);
        (back.primary, back.epoch) = (CopyNumber(0), back.epoch.next());
        scene.put(Key::Shard(DATABASE, ShardNumber(1)), &back);
        assert_eq!(scene.carry_out().error, None);
        assert!((0..SHARDS).all(|number| scene.nodes(number).0 == node(2)));
    }

    #[test]
    fn a_primary_moves_by_a_new_copy_a_switchover_and_the_end_of_the_old_copy() {
        let scene = Scene::new(2);
        scene.begin(&moving("orders.0", "n3", Some("n1")));
        assert_eq!(scene.waits_for(), "the new copy of orders.0 on node n3 is not in sync yet");
        assert_eq!((scene.shard(0).assignments.len(), scene.shard(0).next_copy), (3, CopyNumber(3)));
        assert!(scene.plan(&moving("orders.0", "n4", Some("n2"))).unwrap_err().contains("flintkv cluster abort 0909"));
        scene.settle();
        assert_eq!(scene.waits_for(), "the primary of orders.0 takes the copy on node n1 out of the in-sync set");
        assert!(scene.shard(0).is_in_sync(CopyNumber(0)), "it is the primary that takes it out");
        assert_eq!(scene.carry_out().error, None);
        let (primary, others) = scene.nodes(0);
        assert!(primary != node(1) && others.len() == 1 && others[0] != node(1));
        assert_eq!(scene.shard(0).assignments.len(), 2);

        assert!(scene.plan(&moving("orders.0", "n2", None)).unwrap_err().contains("has a copy on node n2 already"));
        assert!(scene.plan(&moving("orders", "n4", None)).unwrap_err().contains("DATABASE.NUMBER"));
        assert_eq!(scene.plan(&moving("orders.9", "n4", None)).unwrap_err(), "the cluster has no shard 'orders.9'");
        scene.ends(4);
        assert_eq!(scene.plan(&moving("orders.0", "n4", None)).unwrap_err(), "node n4 does not run");
        let mut full = NodeRecord::clone(&scene.view().nodes[&node(4)]);
        full.capacity.ram_bytes = 1 << 20;
        scene.put(Key::Node(node(4)), &full);
        scene.runs(4, 4);
        let refused = scene.plan(&moving("orders.0", "n4", None)).unwrap_err();
        assert!(refused.contains("node n4 has no room"), "{refused}");
    }

    #[test]
    fn no_copy_goes_while_too_few_would_be_in_sync() {
        let scene = Scene::new(2);
        let operation = OperationRecord { kind: OperationKind::Rebalance, ..began(&scene) };
        let step =
            Step { kind: StepKind::Drop, to: None, from: Some(node(2)), ..Step::moving(uid(0), node(2), node(3)) };
        scene.put(Key::Operation(scene.operation), &OperationRecord { steps: vec![step], done: 0, ..operation });
        let why = scene.waits_for();
        assert_eq!(why, "without its copy on node n2, orders.0 would have 1 copies in sync, and its database wants 2");
        assert_eq!(scene.shard(0).assignments.len(), 2);
    }

    fn began(scene: &Scene) -> OperationRecord {
        scene.begin(&moving("orders.0", "n3", None));
        scene.operation()
    }

    #[test]
    fn an_aborted_move_goes_back_until_the_new_copy_has_the_olds_place() {
        for steps in 0..20 {
            let scene = Scene::new(1);
            scene.begin(&moving("orders.0", "n3", Some("n1")));
            for _ in 0..steps {
                if scene.operation().ended_ms.is_none() && !scene.step(&scene.view()) {
                    scene.settle();
                }
            }
            if scene.operation().ended_ms.is_some() {
                assert!(steps > 5, "{steps}");
                return;
            }
            let has_moved = scene.nodes(0).0 == node(3);
            scene.abort();
            let ended = scene.carry_out();
            let why = ended.error.unwrap();
            assert!(why.starts_with("aborted by bob, with 0 of 1 steps done") || why.contains("with 1 of 1"), "{why}");
            let shard = scene.shard(0);
            let nodes: Vec<NodeId> = shard.assignments.iter().map(|assigned| assigned.node).collect();
            let expected = if has_moved { [node(2), node(3)] } else { [node(1), node(2)] };
            assert_eq!((nodes, shard.in_sync.len()), (expected.to_vec(), 2), "after {steps} steps");
            assert!(shard.assignments.iter().all(|assigned| !assigned.is_leaving));
        }
        panic!("it did not end");
    }

    #[test]
    fn an_aborted_drain_lets_the_node_have_primaries() {
        let scene = Scene::new(1);
        scene.begin(&drain("n1"));
        scene.step(&scene.view());
        scene.abort();
        let why = scene.carry_out().error.unwrap();
        assert!(why.contains("takes primaries again"), "{why}");
        assert!(!scene.view().nodes[&node(1)].is_draining);
        assert_eq!((scene.nodes(0).0, scene.nodes(1).0), (node(2), node(1)), "what has left stays");
    }

    #[test]
    fn the_copies_of_a_lost_node_come_anew_elsewhere_unless_it_runs_again() {
        let replace = Wish::Replace { node: "n2".to_owned() };
        let scene = Scene::new(1);
        assert!(scene.plan(&replace).unwrap_err().contains("node 'n2' runs"));
        scene.ends(2);
        scene.settle();
        assert_eq!(scene.begin(&replace).steps.iter().filter(|step| step.kind == StepKind::Move).count(), 2);
        assert_eq!(scene.carry_out().error, None);
        for number in 0..SHARDS {
            let (primary, others) = scene.nodes(number);
            let on: Vec<NodeId> = scene.shard(number).assignments.iter().map(|assigned| assigned.node).collect();
            assert!(others.len() == 1 && !on.contains(&node(2)) && on.contains(&primary), "{on:?}");
        }

        let scene = Scene::new(1);
        scene.ends(2);
        scene.settle();
        scene.begin(&replace);
        scene.step(&scene.view());
        assert_eq!(scene.shard(0).assignments.len() + scene.shard(1).assignments.len(), 5);
        scene.runs(2, 22);
        let why = scene.carry_out().error.unwrap();
        assert!(why.starts_with("aborted by the cluster, because node n2 runs again"), "{why}");
        scene.settle();
        assert!((0..SHARDS).all(|number| scene.nodes(number) == (node(1), vec![node(2)])));

        // Its primaries first.
        let scene = Scene::new(1);
        scene.ends(1);
        let refused = scene.plan(&Wish::Replace { node: "n1".to_owned() }).unwrap_err();
        assert!(refused.contains("orders.0: the cluster has not named another primary yet"), "{refused}");
        // Nobody has room.
        let scene = Scene::new(1);
        (2..=4).for_each(|number| scene.ends(number));
        let refused = scene.plan(&replace).unwrap_err();
        assert!(refused.contains("no node takes a copy of shard 0 of database orders"), "{refused}");
    }

    #[test]
    fn the_copies_of_a_lost_node_are_replaced_after_the_time_that_is_set() {
        let scene = Scene::new(1);
        let after = |lost: &mut Lost, ms| lost.due(&scene.view(), ms);
        let mut lost = Lost::default();
        assert_eq!(after(&mut lost, 0), []);
        scene.ends(2);
        assert_eq!(after(&mut lost, 1_000), []);
        assert_eq!(after(&mut lost, 600_999), []);
        assert_eq!(after(&mut lost, 601_000), [node(2)]);
        assert_eq!(after(&mut lost, 601_100), [], "it is tried again later");
        assert_eq!(after(&mut lost, 601_000 + AGAIN_MS), [node(2)]);
        scene.ends(1);
        scene.ends(3);
        assert_eq!(after(&mut lost, 2_000_000), [], "most nodes are away");
        (1..=3).for_each(|number| scene.runs(number, number));
        assert_eq!(after(&mut lost, 3_000_000), []);
        for (set, due) in [(0, vec![]), (5, vec![node(2)])] {
            scene.put(Key::Settings, &SettingsRecord { replace_after_s: Some(set), unknown: Unknown::new() });
            scene.ends(2);
            let mut lost = Lost::default();
            assert_eq!(after(&mut lost, 0), []);
            assert_eq!(after(&mut lost, 10_000), due);
        }
        // A node without copies of shards needs none.
        scene.runs(2, 2);
        scene.ends(4);
        let mut lost = Lost::default();
        assert_eq!(after(&mut lost, 0), []);
        assert_eq!(after(&mut lost, 10_000), []);
    }

    #[test]
    fn nodes_start_anew_one_after_the_other_without_primaries_and_the_leader_last() {
        let scene = Scene::new(1);
        let planned = scene.begin(&Wish::Restart { nodes: Vec::new() });
        let order: Vec<NodeId> = planned.steps.iter().filter_map(|step| step.to).collect();
        assert_eq!(order, [1, 2, 3, 4].map(node), "n4 leads");
        let mut restarted = Vec::new();
        for _ in 0..200 {
            let view = scene.view();
            if scene.operation().ended_ms.is_some() {
                break;
            }
            if let Some(Next::Restart { node, .. }) = scene.next(&view) {
                let leads = view.leader.as_ref().unwrap().node;
                assert!(view.nodes[&node].is_draining && leads != node);
                assert!((0..SHARDS).all(|number| scene.nodes(number).0 != node));
                restarted.push(node);
                // A restarted replica is another one, which joins again.
                for number in 0..SHARDS {
                    let mut shard = scene.shard(number);
                    let copy = shard.on(node).map(|assigned| assigned.copy);
                    shard.in_sync.retain(|member| Some(member.copy) != copy);
                    scene.put(Key::Shard(DATABASE, ShardNumber(number)), &shard);
                }
            }
            if !scene.step(&scene.view()) {
                scene.settle();
            }
        }
        assert_eq!(scene.operation().error, None);
        assert_eq!(restarted, order);
        assert!(scene.view().nodes.values().all(|node| !node.is_draining));
        assert!((0..SHARDS).all(|number| scene.shard(number).in_sync.len() == 2));

        let refused = Scene::new(2).plan(&Wish::Restart { nodes: vec!["n1".to_owned()] }).unwrap_err();
        assert!(refused.contains("'orders' wants 2 copies in sync and has no more"), "{refused}");
        let refused = Scene::new(1).plan(&Wish::Restart { nodes: vec!["n9".to_owned()] }).unwrap_err();
        assert_eq!(refused, "the cluster has no node 'n9'");
    }

    #[test]
    fn an_aborted_restart_leaves_no_node_drained() {
        let scene = Scene::new(1);
        scene.begin(&Wish::Restart { nodes: vec!["n1".to_owned()] });
        scene.step(&scene.view());
        assert!(scene.view().nodes[&node(1)].is_draining);
        scene.abort();
        assert!(scene.carry_out().error.is_some_and(|why| why.starts_with("aborted by bob")));
        assert!(!scene.view().nodes[&node(1)].is_draining);
    }

    #[test]
    fn a_deleted_database_ends_what_was_asked_of_it() {
        let scene = Scene::new(1);
        scene.begin(&moving("orders.0", "n3", None));
        scene.change(Change::default().delete(&Key::Shard(DATABASE, ShardNumber(0)).to_string())).unwrap();
        assert_eq!(scene.carry_out().error.as_deref(), Some("its database was deleted"));
    }

    /// Leaders that follow each other, with views of any age, what they do done twice or not at all, nodes that end and start, failovers,
    /// and aborts: at each moment a shard has a primary with a full set behind it, and in the end everything is whole.
    #[test]
    fn whatever_interrupts_them_operations_leave_shards_whole() {
        let mut ended_well = 0;
        for seed in 0..100 {
            let scene = Scene::new(1);
            let mut random = SplitMix64(seed);
            let mut below = |limit: u64| random.below(limit);
            let wish = match below(5) {
                0 => drain("n1"),
                1 => moving("orders.0", "n3", Some("n1")),
                2 => moving("orders.1", "n4", Some("n2")),
                3 => Wish::Restart { nodes: Vec::new() },
                _ => {
                    scene.ends(2);
                    scene.settle();
                    Wish::Replace { node: "n2".to_owned() }
                }
            };
            let is_replacement = matches!(wish, Wish::Replace { .. });
            scene.begin(&wish);
            let mut views = vec![scene.view()];
            for _ in 0..80 {
                match below(20) {
                    0 => scene.lead(1 + below(4) as u8),
                    1 if below(4) == 0 && scene.operation().ended_ms.is_none() => scene.abort(),
                    2..5 => scene.settle(),
                    5 => {
                        let number = 3 + below(2) as u8;
                        match scene.view().live.contains_key(&node(number)) {
                            true => scene.ends(number),
                            false => scene.runs(number, number + 50),
                        }
                    }
                    6 => {
                        let number = below(SHARDS.into()) as u16;
                        let mut shard = scene.shard(number);
                        if let Some(other) = shard.in_sync.iter().find(|member| member.copy != shard.primary) {
                            let before = std::mem::replace(&mut shard.primary, other.copy);
                            shard.in_sync.retain(|member| member.copy != before);
                            shard.epoch = shard.epoch.next();
                            scene.put(Key::Shard(DATABASE, ShardNumber(number)), &shard);
                        }
                    }
                    _ => {
                        let view = &views[views.len() - 1 - below(3.min(views.len() as u64)) as usize];
                        if view.operations[&scene.operation].ended_ms.is_none() {
                            scene.step(view);
                        }
                    }
                }
                views.push(scene.view());
                for number in 0..SHARDS {
                    let shard = scene.shard(number);
                    assert!(shard.is_in_sync(shard.primary), "seed {seed}");
                    let staying = shard.assignments.iter().filter(|assigned| !assigned.is_leaving).count();
                    assert!(staying >= 2, "seed {seed}: {shard:?}");
                }
            }
            let live = |number: u8| scene.view().live.contains_key(&node(number));
            for number in [1, 3, 4] {
                if !live(number) {
                    scene.runs(number, number + 60);
                }
            }
            scene.settle();
            let ended = scene.carry_out();
            for number in 0..SHARDS {
                scene.settle();
                let shard = scene.shard(number);
                assert_eq!(shard.assignments.len(), 2, "seed {seed}: {shard:?}, {ended:?}");
                assert!(shard.assignments.iter().all(|assigned| !assigned.is_leaving), "seed {seed}: {shard:?}");
                assert!(shard.in_sync.len() == 2 || is_replacement, "seed {seed}: {shard:?}, {ended:?}");
            }
            ended_well += u32::from(ended.error.is_none());
        }
        assert!(ended_well > 20, "{ended_well}");
    }
}
