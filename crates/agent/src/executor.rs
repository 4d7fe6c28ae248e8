//! Owns how the leader carries out the steps of operations: one after the other, each until the records show that it is done. It remembers
//! nothing: what comes next follows from the records, so another leader goes on wherever one has stopped, and a step that was done twice is
//! done once. Never decides which steps an operation has (`plans`), and never names a primary by itself: the primary hands over.

use crate::calls::{Answers, ask_sets, is_as_recorded, peer};
use crate::candidate::{Candidate, majority_is_away};
use crate::desk::{begin_steps, new_operation};
use crate::handover::hand_over;
use crate::plans::{Wish, lacking, planned, successor};
use base::clock::wall_ms;
use cluster::ids::{CopyNumber, DatabaseId, Epoch, NodeId, OperationId, ProcessId, ShardUid};
use cluster::keys::Key;
use cluster::records::{
    self, Assignment, DatabaseState, Member, NodeRecord, OperationKind, OperationRecord, REPLACE_AFTER_S, Restarted,
    Role, ShardRecord, Step, StepKind, Unknown,
};
use cluster::view::{Revised, View};
use membership::call::{Call, Reply};
use membership::issuer::Issuer;
use membership::records::{Change, RecordsError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Who begins and ends operations that nobody has asked for.
const BY_CLUSTER: &str = "the cluster";
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
    let taken = match (&operation.aborted_by, look.is_vain()) {
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
        let Some((uid, record)) = step.shard.and_then(|uid| Some((uid, self.kept_shard(uid)?))) else {
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
        // The next operation takes another node, or replaces the copy if it is there already.
        if self.operation.kind == OperationKind::AddReplicas && !self.runs(to) {
            return Taken::End(Some(does_not_run(&node)));
        }
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
            return match rest >= least || !record.is_in_sync(assigned.copy) {
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
        // Only an operator's own switchover insists. Others even primaries out, as far as copies are there on nodes that take primaries.
        let is_open = self.view.nodes.get(&to).is_some_and(|node| !node.is_draining) && self.runs(to);
        if self.operation.kind != OperationKind::SwitchOver && (record.on(to).is_none() || !is_open) {
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
            if let Some(why) = self.would_lack(id, None) {
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
                    if let Some(why) = self.would_lack(id, None) {
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

    /// Why the node's process may not end: a shard with replicas would have too few copies in sync. With `answers`, only those count that
    /// their nodes have as they are recorded.
    fn would_lack(&self, node: NodeId, answers: Option<&Answers>) -> Option<String> {
        let is_there = |uid, member: &Member, node| match answers {
            None => self.runs(node),
            Some(answers) => is_as_recorded(answers, uid, member, node),
        };
        self.view.shards_on(node).find_map(|(uid, record)| {
            let copy = record.on(node).expect("it is on the node").copy;
            let rest = record.in_sync.iter().filter(|member| member.copy != copy);
            let is_there =
                |member: &&Member| record.node_of(member.copy).is_some_and(|node| is_there(uid, member, node));
            let rest = rest.filter(is_there).count();
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

    /// Why a replacement ends before its last step: copies of a node that runs again come back by themselves, and if the node of a new copy is
    /// lost too, another one is chosen.
    fn is_vain(&self) -> Option<String> {
        let node = self.operation.node.filter(|_| self.operation.kind == OperationKind::Replace)?;
        if self.runs(node) {
            return Some(format!("{BY_CLUSTER}, because node {} runs again", self.view.node_name(node)));
        }
        let to = self.operation.steps.get(self.operation.done)?.to.filter(|to| !self.runs(*to))?;
        Some(format!("{BY_CLUSTER}, because node {} does not run either", self.view.node_name(to)))
    }

    /// Takes back what is half done, or completes it if that is shorter, and ends the operation.
    fn back(&self, by: &str) -> Taken {
        let done =
            format!("aborted by {by}, with {} of {} steps done", self.operation.done, self.operation.steps.len());
        let ended = |stays: &str| Taken::End(Some(format!("{done}: {stays}")));
        let step = self.operation.steps.get(self.operation.done);
        let of_shard = step.and_then(|step| Some((step, step.shard?, self.kept_shard(step.shard?)?)));
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
                // Named before it could leave.
                Some((Step { to: Some(to), .. }, uid, record)) if leaves_as_primary(record, *to) => {
                    self.drop_copy(uid, record, *to)
                }
                Some((Step { kind: StepKind::Add, to: Some(to), .. }, uid, record)) => self.take_back(uid, record, *to),
                Some((Step { kind: StepKind::Move, from: Some(from), to: Some(to), .. }, uid, record)) => {
                    let old = record.on(*from).filter(|old| !old.is_leaving && record.primary_node() != Some(*to));
                    match old {
                        Some(_) if !self.is_needed(uid, record, *to) => self.take_back(uid, record, *to),
                        // The new copy has the old one's place already.
                        _ => self.move_copy(uid, record, *from, *to),
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

    /// A new copy goes again, unless it is the primary meanwhile, or writes would be refused without it.
    fn take_back(&self, uid: ShardUid, record: &Revised<ShardRecord>, to: NodeId) -> Taken {
        match record.primary_node() == Some(to) || self.is_needed(uid, record, to) {
            true => Taken::Done,
            false => self.drop_copy(uid, record, to),
        }
    }

    /// Whether fewer copies than the database wants would be in sync without the one on this node.
    fn is_needed(&self, uid: ShardUid, record: &ShardRecord, node: NodeId) -> bool {
        let stays = |one: &&Assignment| !one.is_leaving && record.is_in_sync(one.copy);
        record.on(node).filter(stays).is_some() && record.in_sync.len() <= self.in_sync_min(uid)
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

    /// Unless its database is being deleted: its copies go by themselves.
    fn kept_shard(&self, uid: ShardUid) -> Option<&Revised<ShardRecord>> {
        let database = self.view.databases.get(&uid.database())?;
        let is_kept = database.spec.as_ref().is_some_and(|spec| spec.state != DatabaseState::Deleting);
        database.shards.get(&uid.number()).filter(|_| is_kept)
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

fn leaves_as_primary(record: &ShardRecord, node: NodeId) -> bool {
    record.primary_node() == Some(node) && record.on(node).is_some_and(|assigned| assigned.is_leaving)
}

fn does_not_run(node: &str) -> String {
    format!("node {node} does not run")
}

// --- copies that are gone for long ---

/// Begins an operation that nobody has asked for. False: the records were not as in the view. The error says why there is nothing to begin.
async fn begin(me: &Candidate, view: &View, leader: i64, wish: &Wish) -> Result<bool, String> {
    let begun =
        planned(view, me.workers, wish).and_then(|planned| begin_steps(view, new_operation(), &planned, BY_CLUSTER));
    let change = begun.map_err(|why| why.to_string())?.given(&Key::Leader.to_string(), leader);
    match (me.issuer)().records.change(change).await {
        Ok(_) => Ok(true),
        Err(RecordsError::Conflict | RecordsError::Unknown(_)) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// For how long a node must not have run until its copies come anew. `None`: the cluster makes no copies by itself.
fn replace_after_ms(view: &View) -> Option<u64> {
    let set = view.settings.as_ref().and_then(|settings| settings.replace_after_s).unwrap_or(REPLACE_AFTER_S);
    (set > 0 && majority_is_away(view).is_none()).then(|| set.saturating_mul(1_000))
}

/// Whether an operator has ended such an operation: for as long as the cluster waits for a lost node, it is not begun again by itself.
fn was_aborted(view: &View, is_it: impl Fn(&OperationRecord) -> bool, wall_ms: u64, after_ms: u64) -> bool {
    view.operations.values().any(|operation| {
        let by_operator = operation.aborted_by.as_ref().is_some_and(|by| !by.starts_with(BY_CLUSTER));
        let ended_ms = operation.ended_ms.filter(|_| by_operator && is_it(operation));
        ended_ms.is_some_and(|ended_ms| wall_ms < ended_ms.saturating_add(after_ms))
    })
}

/// Which nodes have not run for so long that their copies come anew on others.
#[derive(Default)]
struct Lost {
    /// Since when a node has not run, as this leader has seen it, and when its copies are to be replaced, or that is to be tried again.
    nodes: BTreeMap<NodeId, (u64, u64)>,
    /// Why that was not possible.
    said: BTreeMap<NodeId, String>,
}

impl Lost {
    fn due(&mut self, view: &View, now_ms: u64, wall_ms: u64) -> Vec<NodeId> {
        self.nodes.retain(|node, _| view.nodes.contains_key(node) && !view.live.contains_key(node));
        self.said.retain(|node, _| self.nodes.contains_key(node));
        for (&id, _) in view.nodes.iter().filter(|(id, node)| node.role == Role::Data && !view.live.contains_key(id)) {
            self.nodes.entry(id).or_insert((now_ms, 0));
        }
        let Some(after_ms) = replace_after_ms(view) else { return Vec::new() };
        let is_due =
            |(since_ms, again_ms): (u64, u64)| now_ms >= since_ms.saturating_add(after_ms) && now_ms >= again_ms;
        let was_aborted = |node: NodeId| {
            let is_its =
                |operation: &OperationRecord| operation.kind == OperationKind::Replace && operation.node == Some(node);
            was_aborted(view, is_its, wall_ms, after_ms)
        };
        let has_copies = |node: NodeId| view.shards_on(node).any(|(_, record)| record.assignments.len() > 1);
        let due = self.nodes.iter().filter(|(id, times)| is_due(**times) && has_copies(**id) && !was_aborted(**id));
        let due: Vec<NodeId> = due.map(|(id, _)| *id).collect();
        for id in &due {
            self.nodes.get_mut(id).expect("it is due").1 = now_ms + AGAIN_MS;
        }
        due
    }

    async fn replace(&mut self, me: &Candidate, view: &View, leader: i64, now_ms: u64) {
        for id in self.due(view, now_ms, wall_ms()) {
            let node = view.node_name(id);
            match begin(me, view, leader, &Wish::Replace { node: id.to_string() }).await {
                Ok(true) => tracing::warn!("node {node} has not run for long: its copies come anew on other nodes"),
                Ok(false) => {}
                Err(why) if self.said.get(&id) == Some(&why) => {}
                Err(why) => {
                    tracing::warn!("node {node} has not run for long, and its copies do not come anew: {why}");
                    self.said.insert(id, why);
                }
            }
        }
    }
}

/// Databases whose shards have fewer copies than they should, because nodes were forgotten.
#[derive(Default)]
struct Lacking {
    /// When it is tried again.
    again_ms: BTreeMap<DatabaseId, u64>,
    /// Why that was not possible.
    said: BTreeMap<DatabaseId, String>,
}

impl Lacking {
    /// One at a time: the copies of one take the room that another one would plan with.
    fn due(&mut self, view: &View, now_ms: u64, wall_ms: u64) -> Option<DatabaseId> {
        let lacking: BTreeSet<DatabaseId> =
            view.databases.keys().filter(|id| !lacking(view, **id).is_empty()).copied().collect();
        self.again_ms.retain(|id, _| lacking.contains(id));
        self.said.retain(|id, _| lacking.contains(id));
        let after_ms = replace_after_ms(view)?;
        let was_aborted = |id: DatabaseId| {
            let is_its = |operation: &OperationRecord| {
                operation.kind == OperationKind::AddReplicas && operation.database == Some(id)
            };
            was_aborted(view, is_its, wall_ms, after_ms)
        };
        let is_due =
            |id: &DatabaseId| self.again_ms.get(id).is_none_or(|again_ms| now_ms >= *again_ms) && !was_aborted(*id);
        let due = lacking.into_iter().find(is_due)?;
        self.again_ms.insert(due, now_ms + AGAIN_MS);
        Some(due)
    }

    async fn add(&mut self, me: &Candidate, view: &View, leader: i64, now_ms: u64) {
        let Some(id) = self.due(view, now_ms, wall_ms()) else { return };
        let spec = view.databases[&id].spec.as_ref();
        let name = spec.map_or_else(|| id.to_string(), |spec| spec.name.to_string());
        match begin(me, view, leader, &Wish::AddMissing { database: id }).await {
            Ok(true) => tracing::warn!("shards of database '{name}' lack copies, which come anew"),
            Ok(false) => {}
            Err(why) if self.said.get(&id) == Some(&why) => {}
            Err(why) => {
                tracing::warn!("shards of database '{name}' lack copies, which do not come anew: {why}");
                self.said.insert(id, why);
            }
        }
    }
}

// --- the leader ---

/// Carries out what operators have asked for, for as long as this node leads. Returns when another node is to lead.
pub async fn carry_out(me: &Candidate, leader: i64) {
    let mut view = me.view.clone();
    let (begun, mut lost, mut lacking) = (Instant::now(), Lost::default(), Lacking::default());
    loop {
        let seen = view.borrow_and_update().clone();
        lost.replace(me, &seen, leader, begun.elapsed().as_millis() as u64).await;
        lacking.add(me, &seen, leader, begun.elapsed().as_millis() as u64).await;
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
            let answers = ask_sets(&issuer, view, std::iter::once(shard)).await;
            let is_there = view.shard(shard).is_some_and(|record| {
                let member = record.in_sync.iter().find(|member| member.copy == to);
                let member = member.zip(record.node_of(to));
                member.is_some_and(|(member, node)| is_as_recorded(&answers, shard, member, node))
            });
            let asked = match is_there {
                true => hand_over(&issuer, view, (shard.database(), shard.number()), to).await,
                false => Err("the next primary does not have the dataset that is recorded".to_owned()),
            };
            if asked.is_ok() {
                let is_newer = |view: &Arc<View>| view.shard(shard).is_none_or(|record| record.epoch > epoch);
                let _ = timeout(NEWER_TIMEOUT, me.view.clone().wait_for(is_newer)).await;
            }
            (format!("{} is not handed over by node {}", view.shard_name(shard), view.node_name(node)), asked)
        }
        Next::Restart { node, process } => {
            let answers = ask_sets(&issuer, view, view.shards_on(node).map(|(uid, _)| uid)).await;
            let look = Look { view, me: me.me, operation, now_ms: wall_ms() };
            let asked = match look.would_lack(node, Some(&answers)) {
                Some(why) => Err(why),
                None => restart(&issuer, view, node, process).await,
            };
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
    let asked = timeout(RESTART_TIMEOUT, peer(issuer, record).ask::<()>(&Call::Restart { process })).await;
    asked.unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

#[cfg(test)]
mod tests;
