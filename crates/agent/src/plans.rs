//! Owns which steps an operator's wish has that moves copies or primaries, and why a wish cannot be carried out. Never writes a record
//! (`desk`), and never carries a step out (`executor`).

use crate::change_error::{ChangeError, find};
use cluster::ids::{DatabaseId, NodeId, ShardNumber, ShardUid, shard_uid};
use cluster::placement::{Change as PlacementChange, Condition, Layout, Plan, PlanError, Request, plan};
use cluster::records::{
    Assignment, DatabaseState, NodeRecord, OperationKind, OperationRecord, Role, ShardRecord, Step, StepKind,
};
use cluster::view::{Revised, View};
use std::collections::BTreeSet;

/// What an operator asks for. Nodes are named as operators name them.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Other copies become the primaries: of one shard or all of them, on this node or wherever a copy is ready.
    SwitchOver { database: String, shard: Option<u16>, to: Option<String> },
    /// The primaries leave a node.
    Drain { node: String },
    /// The node takes primaries again.
    Undrain { node: String },
    /// The copy of a shard, such as `orders.1`, goes to another node. `from`: of which of its nodes, if it has several replicas.
    Move { shard: String, to: String, from: Option<String> },
    /// The copies of a node that does not run come anew on other nodes.
    Replace { node: String },
    /// The shards of a database get the copies that they lack, because nodes were forgotten.
    AddMissing { database: DatabaseId },
    /// The processes of these nodes start anew one after the other; without names, of all.
    Restart { nodes: Vec<String> },
}

/// The steps of a wish.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub kind: OperationKind,
    pub target: String,
    pub database: Option<DatabaseId>,
    pub node: Option<NodeId>,
    pub steps: Vec<Step>,
    /// What is left out, and why; for operators.
    pub notes: Vec<String>,
}

impl Planned {
    fn new(kind: OperationKind, target: &str) -> Planned {
        let target = target.to_owned();
        Planned { kind, target, database: None, node: None, steps: Vec::new(), notes: Vec::new() }
    }

    /// Whether its node is drained from now on.
    pub fn drains(&self) -> Option<bool> {
        match self.kind {
            OperationKind::Drain => Some(true),
            OperationKind::Undrain => Some(false),
            _ => None,
        }
    }

    /// Copies come to nodes.
    pub fn takes_room(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, StepKind::Add | StepKind::Move))
    }
}

/// The steps of a wish as the records are now. `workers`: how many a node has.
pub fn planned(view: &View, workers: u64, wish: &Wish) -> Result<Planned, ChangeError> {
    let planned = match wish {
        Wish::SwitchOver { database, shard, to } => switch_over(view, database, *shard, to.as_deref())?,
        Wish::Drain { node } => drain(view, node)?,
        Wish::Undrain { node } => undrain(view, workers, node)?,
        Wish::Move { shard, to, from } => move_copy(view, workers, shard, to, from.as_deref())?,
        Wish::Replace { node } => replace(view, workers, node)?,
        Wish::AddMissing { database } => add_missing(view, workers, *database)?,
        Wish::Restart { nodes } => restart(view, nodes)?,
    };
    if let Some(why) = in_the_way(view, &planned) {
        return Err(ChangeError::Busy(why));
    }
    Ok(planned)
}

/// Why another operation must end first.
fn in_the_way(view: &View, planned: &Planned) -> Option<String> {
    let shards = |steps: &[Step]| steps.iter().filter_map(|step| step.shard).collect::<BTreeSet<ShardUid>>();
    let wanted = shards(&planned.steps);
    let running = view.operations.iter().filter(|(_, operation)| operation.ended_ms.is_none() && operation.has_steps());
    running.into_iter().find_map(|(id, operation)| {
        // To undrain a node ends that it is drained.
        if planned.kind == OperationKind::Undrain && is_drain_of(operation, planned.node) {
            return None;
        }
        if planned.kind == OperationKind::AddReplicas && !hinders_new_copies(operation) {
            return None;
        }
        let both_restart = operation.kind == OperationKind::Restart && planned.kind == OperationKind::Restart;
        let turns = matches!(planned.kind, OperationKind::Drain | OperationKind::Undrain);
        let is_restarted = operation.steps[operation.done..]
            .iter()
            .any(|step| turns && step.kind == StepKind::Restart && step.to == planned.node);
        // Whoever restarts a node drains it meanwhile.
        let is_same_node = planned.node.is_some() && operation.node == planned.node || is_restarted;
        let rest = shards(&operation.steps[operation.done..]);
        let what = match rest.intersection(&wanted).next() {
            Some(shard) => format!("is about {} too", view.shard_name(*shard)),
            None if both_restart || is_same_node => format!("is about {} too", operation.target),
            None => return None,
        };
        let abort = format!("wait for it, or end it with flintkv cluster abort {id}");
        Some(format!("operation {id}, which {} has begun, {what}: {abort}", operation.by))
    })
}

pub fn is_drain_of(operation: &OperationRecord, node: Option<NodeId>) -> bool {
    operation.kind == OperationKind::Drain && operation.node == node && operation.ended_ms.is_none()
}

fn invalid(field: &'static str, why: String) -> ChangeError {
    ChangeError::Invalid { field, why }
}

fn node<'a>(view: &'a View, name: &str) -> Result<(NodeId, &'a Revised<NodeRecord>), ChangeError> {
    view.node_named(name).ok_or_else(|| ChangeError::NotFound(format!("node '{name}'")))
}

/// A node that may have copies.
fn data_node<'a>(view: &'a View, name: &str) -> Result<(NodeId, &'a Revised<NodeRecord>), ChangeError> {
    let (id, record) = node(view, name)?;
    match record.role {
        Role::Data => Ok((id, record)),
        Role::Quorum => Err(invalid("node", format!("node '{name}' only votes: it has no copies of shards"))),
    }
}

/// The nodes of a shard's copies, for operators.
fn copies_of(view: &View, record: &ShardRecord) -> String {
    let names: Vec<String> = record.assignments.iter().map(|assigned| view.node_name(assigned.node)).collect();
    names.join(", ")
}

/// The shard with this name, of a database with replicas.
fn shard<'a>(view: &'a View, name: &str) -> Result<(ShardUid, &'a Revised<ShardRecord>), ChangeError> {
    let parts = name.rsplit_once('.').and_then(|(database, number)| Some((database, number.parse::<u16>().ok()?)));
    let (database, number) = parts
        .ok_or_else(|| invalid("shard", format!("'{name}' names no shard: write DATABASE.NUMBER, as in orders.1")))?;
    let (id, _) = replicated(view, database)?;
    let record = view.databases[&id].shards.get(&ShardNumber(number));
    let record = record.ok_or_else(|| ChangeError::NotFound(format!("shard '{name}'")))?;
    Ok((shard_uid(id, ShardNumber(number)), record))
}

fn replicated(view: &View, name: &str) -> Result<(DatabaseId, u32), ChangeError> {
    let (id, spec) = find(view, name)?;
    match spec.definition.known.replicas {
        0 => Err(invalid(
            "replicas",
            format!("'{name}' has no replicas: each of its shards has one copy, which stays where it is"),
        )),
        replicas => Ok((id, replicas)),
    }
}

fn switch_over(view: &View, name: &str, only: Option<u16>, to: Option<&str>) -> Result<Planned, ChangeError> {
    let (id, _) = replicated(view, name)?;
    let to = to.map(|to| data_node(view, to)).transpose()?;
    let mut planned = Planned { database: Some(id), ..Planned::new(OperationKind::SwitchOver, name) };
    if let Some(number) = only {
        planned.target = format!("{name}.{number}");
        if !view.databases[&id].shards.contains_key(&ShardNumber(number)) {
            return Err(ChangeError::NotFound(format!("shard '{name}.{number}'")));
        }
    }
    for (&number, record) in &view.databases[&id].shards {
        if only.is_some_and(|only| only != number.0) {
            continue;
        }
        let shard = format!("{name}.{number}");
        let target = match to {
            None => successor(view, record)
                .ok_or_else(|| format!("no other copy of {shard} is in sync on a node that runs")),
            Some((to, known)) => match record.on(to) {
                _ if record.primary_node() == Some(to) => {
                    Err(format!("the primary of {shard} is on node {} already", known.name))
                }
                None => Err(format!(
                    "{shard} has no copy on node {}: its copies are on {}",
                    known.name,
                    copies_of(view, record)
                )),
                Some(_) if !view.live.contains_key(&to) => Err(format!("node {} does not run", known.name)),
                Some(copy) if !record.is_in_sync(copy.copy) => {
                    Err(format!("the copy of {shard} on node {} is not in sync", known.name))
                }
                Some(_) => Ok(to),
            },
        };
        match target {
            Ok(to) => planned.steps.push(Step::switch_over(shard_uid(id, number), to)),
            Err(why) => planned.notes.push(why),
        }
    }
    match planned.steps.is_empty() {
        true => Err(ChangeError::Busy(planned.notes.join("; "))),
        false => Ok(planned),
    }
}

fn drain(view: &View, name: &str) -> Result<Planned, ChangeError> {
    let (id, record) = data_node(view, name)?;
    let mut planned = Planned { node: Some(id), ..Planned::new(OperationKind::Drain, record.name.as_str()) };
    for (uid, record) in view.shards_on(id).filter(|(_, record)| record.primary_node() == Some(id)) {
        let shard = view.shard_name(uid);
        let other = record.assignments.iter().find(|assigned| assigned.node != id && !assigned.is_leaving);
        match (successor(view, record), other) {
            (Some(to), _) => planned.steps.push(Step::switch_over(uid, to)),
            (None, Some(other)) => {
                planned.notes.push(format!(
                    "no other copy of {shard} is in sync on a node that takes primaries: its primary waits for one"
                ));
                planned.steps.push(Step::switch_over(uid, other.node));
            }
            (None, None) => planned.notes.push(format!("{shard} has no other copy: it stays")),
        }
    }
    let takes = |(other, record): (&NodeId, &Revised<NodeRecord>)| {
        *other != id && record.role == Role::Data && !record.is_draining && view.live.contains_key(other)
    };
    if !planned.steps.is_empty() && !view.nodes.iter().any(takes) {
        return Err(ChangeError::Busy(format!("no other node runs that could take the primaries of node '{name}'")));
    }
    Ok(planned)
}

fn undrain(view: &View, workers: u64, name: &str) -> Result<Planned, ChangeError> {
    let (id, record) = data_node(view, name)?;
    if !record.is_draining {
        return Err(ChangeError::Busy(format!("node '{name}' is not drained")));
    }
    let mut planned = Planned { node: Some(id), ..Planned::new(OperationKind::Undrain, record.name.as_str()) };
    let mut layout = without_lost(view, workers);
    for room in layout.nodes.iter_mut().filter(|room| room.id == id && view.live.contains_key(&id)) {
        room.condition = Condition::Open;
    }
    planned.steps = evened(view, &try_plan(view, &layout, &Request::EvenPrimaries)?);
    Ok(planned)
}

/// The changes of primaries that a plan has, of shards that can hand over.
fn evened(view: &View, plan: &Plan) -> Vec<Step> {
    let step = |change: &PlacementChange| match *change {
        PlacementChange::SwitchOver { shard, to } => {
            view.shard(shard)?.on(to)?;
            Some(Step::switch_over(shard, to))
        }
        _ => None,
    };
    plan.changes.iter().filter_map(step).collect()
}

fn move_copy(view: &View, workers: u64, name: &str, to: &str, from: Option<&str>) -> Result<Planned, ChangeError> {
    let (uid, record) = shard(view, name)?;
    let (to, target) = data_node(view, to)?;
    let busy = |why: String| Err(ChangeError::Busy(why));
    if record.on(to).is_some() {
        return busy(format!("{name} has a copy on node {} already", target.name));
    }
    if !view.live.contains_key(&to) {
        return busy(format!("node {} does not run", target.name));
    }
    if target.is_draining {
        return busy(format!("node {} is drained: flintkv cluster undrain {} first", target.name, target.name));
    }
    let from = match from {
        Some(from) => {
            let (from, known) = node(view, from)?;
            if record.on(from).is_none() {
                return busy(format!(
                    "{name} has no copy on node {}: its copies are on {}",
                    known.name,
                    copies_of(view, record)
                ));
            }
            from
        }
        None => {
            let replicas: Vec<NodeId> =
                record.assignments.iter().filter(|one| one.copy != record.primary).map(|one| one.node).collect();
            match replicas[..] {
                [only] => only,
                _ => {
                    let why = format!(
                        "say which copy of {name} is to move (--from): its copies are on {}",
                        copies_of(view, record)
                    );
                    return Err(invalid("from", why));
                }
            }
        }
    };
    let layout = without_lost(view, workers);
    let database = layout.databases.iter().find(|database| database.id == uid.database());
    let Some(database) = database else {
        return busy(format!("the records of the database of {name} are not complete"));
    };
    if !database.zones.is_empty() && !database.zones.contains(&target.zone) {
        return Err(invalid("to", format!("the database of {name} has no copies in zone {}", target.zone)));
    }
    let loads = layout.loads().map_err(|error| in_words(view, &error))?;
    let load = loads.iter().find(|load| load.node == to).expect("the layout has each node");
    if !(load.placed + database.needs).fits_in(load.capacity) {
        let why = format!(
            "node {} has no room: {} of {} are placed there, and a copy needs {}",
            target.name, load.placed, load.capacity, database.needs
        );
        return Err(ChangeError::NoRoom(why));
    }
    let mut planned = Planned { database: Some(uid.database()), ..Planned::new(OperationKind::Move, name) };
    let stays = record.assignments.iter().filter(|assigned| assigned.node != from);
    let in_zone = |node: NodeId| view.nodes.get(&node).is_some_and(|node| node.zone == target.zone);
    if stays.into_iter().any(|assigned| in_zone(assigned.node)) {
        planned.notes.push(format!("{name} will have two copies in zone {}", target.zone));
    }
    planned.steps = vec![Step::moving(uid, from, to)];
    Ok(planned)
}

fn replace(view: &View, workers: u64, name: &str) -> Result<Planned, ChangeError> {
    let (id, record) = data_node(view, name)?;
    if view.live.contains_key(&id) {
        let why = format!(
            "node '{name}' runs, so its copies need no replacement: flintkv cluster move takes one of them away"
        );
        return Err(ChangeError::Busy(why));
    }
    let mut planned = Planned { node: Some(id), ..Planned::new(OperationKind::Replace, record.name.as_str()) };
    let plan = try_plan(view, &without_lost(view, workers), &Request::Replace { node: id })?;
    for change in &plan.changes {
        if let PlacementChange::Add { shard, to } = *change {
            planned.steps.push(Step::moving(shard, id, to));
        }
    }
    let switches = switches_of_new(view, &plan, &planned.steps);
    for shard in &plan.without_primary {
        let shown = view.shard_name(*shard);
        planned.notes.push(match view.shard(*shard).is_some_and(|record| record.assignments.len() > 1) {
            true => format!("{shown}: the cluster has not named another primary yet"),
            false => {
                format!("{shown} has no other copy: flintkv cluster forget {name} --lose-data would open it empty")
            }
        });
    }
    planned.notes.extend(plan.missing.iter().map(|missing| in_words_of(view, missing.to_string(), missing.shard)));
    match planned.steps.is_empty() {
        true if planned.notes.is_empty() => Err(ChangeError::Busy(format!("node '{name}' has no copies"))),
        true => Err(ChangeError::NoRoom(planned.notes.join("; "))),
        false => {
            planned.steps.extend(switches);
            Ok(planned)
        }
    }
}

/// The new copies of these steps take their part of the primaries when they are there.
fn switches_of_new(view: &View, plan: &Plan, steps: &[Step]) -> Vec<Step> {
    let has_new = |shard: ShardUid| steps.iter().any(|step| step.shard == Some(shard));
    let switches = plan.changes.iter().filter_map(|change| match *change {
        PlacementChange::SwitchOver { shard, to } if has_new(shard) || view.shard(shard)?.on(to).is_some() => {
            Some(Step::switch_over(shard, to))
        }
        _ => None,
    });
    switches.collect()
}

/// A drain may wait for just these copies.
fn hinders_new_copies(operation: &OperationRecord) -> bool {
    operation.ended_ms.is_none() && operation.has_steps() && operation.kind != OperationKind::Drain
}

/// The shards of a database that have fewer copies than it wants, and can give their datasets to others now.
pub fn lacking(view: &View, id: DatabaseId) -> BTreeSet<ShardUid> {
    let Some(database) = view.databases.get(&id) else { return BTreeSet::new() };
    let Some(spec) = &database.spec else { return BTreeSet::new() };
    if !matches!(spec.state, DatabaseState::Serving | DatabaseState::Paused) {
        return BTreeSet::new();
    }
    let copies = spec.definition.known.replicas as usize + 1;
    let hindering = view.operations.values().filter(|operation| hinders_new_copies(operation));
    let busy: BTreeSet<ShardUid> =
        hindering.flat_map(|operation| &operation.steps[operation.done..]).filter_map(|step| step.shard).collect();
    let lacks = |(number, record): (&ShardNumber, &Revised<ShardRecord>)| {
        let uid = shard_uid(id, *number);
        let lacks = record.assignments.len() < copies && view.is_served(record) && !busy.contains(&uid);
        lacks.then_some(uid)
    };
    database.shards.iter().filter_map(lacks).collect()
}

fn add_missing(view: &View, workers: u64, id: DatabaseId) -> Result<Planned, ChangeError> {
    let found = view.databases.get(&id).and_then(|database| database.spec.as_ref());
    let spec = found.ok_or_else(|| ChangeError::NotFound(format!("database {id}")))?;
    let mut planned = Planned { database: Some(id), ..Planned::new(OperationKind::AddReplicas, spec.name.as_str()) };
    let plan = try_plan(view, &without_lost(view, workers), &Request::AddMissing { database: id })?;
    let lacking = lacking(view, id);
    for change in &plan.changes {
        if let PlacementChange::Add { shard, to } = *change
            && lacking.contains(&shard)
        {
            planned.steps.push(Step::adding(shard, to));
        }
    }
    let mut switches = switches_of_new(view, &plan, &planned.steps);
    // Another operation may be about the others.
    switches.retain(|step| step.shard.is_some_and(|shard| lacking.contains(&shard)));
    planned.notes.extend(plan.missing.iter().map(|missing| in_words_of(view, missing.to_string(), missing.shard)));
    match planned.steps.is_empty() {
        true if planned.notes.is_empty() => {
            Err(ChangeError::Busy(format!("no shard of '{}' lacks a copy that could be made now", spec.name)))
        }
        true => Err(ChangeError::NoRoom(planned.notes.join("; "))),
        false => {
            planned.steps.extend(switches);
            Ok(planned)
        }
    }
}

fn restart(view: &View, names: &[String]) -> Result<Planned, ChangeError> {
    let mut nodes: Vec<(NodeId, &Revised<NodeRecord>)> = match names {
        [] => {
            view.nodes.iter().filter(|(id, _)| view.live.contains_key(id)).map(|(id, record)| (*id, record)).collect()
        }
        names => names.iter().map(|name| node(view, name)).collect::<Result<_, _>>()?,
    };
    let leader = view.leader.as_ref().map(|leader| leader.node);
    // The one that leads comes last: until then nobody else has to.
    nodes.sort_by_key(|(id, record)| (Some(*id) == leader, record.name.clone()));
    nodes.dedup_by_key(|(id, _)| *id);
    let names: Vec<String> = nodes.iter().map(|(_, record)| record.name.to_string()).collect();
    let mut planned = Planned::new(OperationKind::Restart, &names.join(", "));
    for (id, record) in nodes {
        if !view.live.contains_key(&id) {
            return Err(ChangeError::Busy(format!("node {} does not run", record.name)));
        }
        let mut unserved = Vec::new();
        for (uid, shard) in view.shards_on(id) {
            let spec = view.databases[&uid.database()].spec.as_ref().expect("it is a shard of a database that is kept");
            let known = &spec.definition.known;
            if shard.assignments.len() > 1 && known.min_in_sync > known.replicas {
                let why = format!(
                    "'{}' wants {} copies in sync and has no more: it would take no writes while a node starts",
                    spec.name, known.min_in_sync
                );
                return Err(ChangeError::Busy(why));
            }
            if shard.assignments.len() < 2 {
                unserved.push(view.shard_name(uid));
            }
        }
        if !unserved.is_empty() {
            let shards = unserved.join(", ");
            planned.notes.push(format!("without replicas, and not served while node {} starts: {shards}", record.name));
        }
        planned.steps.push(Step::restart(id));
    }
    Ok(planned)
}

/// The node whose copy takes a shard over from its primary: it has everything, and the fewest primaries. `None`: there is none now.
pub fn successor(view: &View, record: &ShardRecord) -> Option<NodeId> {
    let may_be = |assigned: &&Assignment| {
        let is_open = view.nodes.get(&assigned.node).is_some_and(|node| !node.is_draining);
        let is_live = view.live.contains_key(&assigned.node);
        assigned.copy != record.primary
            && !assigned.is_leaving
            && record.is_in_sync(assigned.copy)
            && is_open
            && is_live
    };
    let primaries =
        |node: NodeId| view.shards_on(node).filter(|(_, record)| record.primary_node() == Some(node)).count();
    let candidates = record.assignments.iter().filter(may_be).map(|assigned| assigned.node);
    candidates.min_by_key(|node| (primaries(*node), *node))
}

/// The layout, in which nodes that do not run take nothing.
fn without_lost(view: &View, workers: u64) -> Layout {
    let mut layout = view.layout(workers);
    for room in layout.nodes.iter_mut().filter(|room| !view.live.contains_key(&room.id)) {
        room.condition = Condition::Draining;
    }
    layout
}

fn try_plan(view: &View, layout: &Layout, request: &Request) -> Result<Plan, ChangeError> {
    plan(layout, request).map_err(|error| in_words(view, &error))
}

fn in_words(view: &View, error: &PlanError) -> ChangeError {
    ChangeError::NoRoom(match error {
        PlanError::Refused(refusal) => in_words_of(view, error.to_string(), refusal.shard),
        _ => error.to_string(),
    })
}

/// Operators know databases by their names.
fn in_words_of(view: &View, text: String, shard: ShardUid) -> String {
    let database = view.databases.get(&shard.database()).and_then(|database| database.spec.as_ref());
    match database {
        Some(spec) => text.replace(&shard.database().to_string(), spec.name.as_str()),
        None => text,
    }
}
