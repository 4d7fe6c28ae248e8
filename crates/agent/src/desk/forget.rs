//! Owns how a node that does not run is removed, and what becomes of its shards. Never knows how other changes are planned.

use super::recover::in_words;
use super::{Begun, Desk, Made, SHARDS_AT_ONCE, begin, loads, new_operation, no_room, put, with_layout};
use crate::calls::Answers;
use crate::change_error::ChangeError;
use crate::choice::{Asked, is_avoided, reports};
use base::clock::wall_ms;
use cluster::failover::{Survivor, survive};
use cluster::ids::{CopyNumber, DatabaseId, NodeId, ShardNumber, shard_uid};
use cluster::keys::Key;
use cluster::names::{DatabaseName, NodeName};
use cluster::placement::{Change as PlacementChange, NodeLoad, Request, plan};
use cluster::records::{Assignment, DatabaseState, NodeRecord, OperationKind, ShardRecord};
use cluster::view::{Revised, View};
use membership::authority::{certificates_key, etcd_trusts_key};
use membership::issuer::coordinator_key;
use membership::records::{Change, name_key, shut_out_key};

/// What a node that is gone for good takes with it, and where that comes anew.
#[derive(Clone, Debug)]
pub struct Forgetting {
    pub node: NodeName,
    /// The shards of which it has the primary.
    pub lost: Vec<LostShard>,
    pub loads: Vec<(NodeName, NodeLoad)>,
}

/// A shard that loses its primary with a node.
#[derive(Clone, Debug)]
pub struct LostShard {
    pub database: DatabaseName,
    pub number: ShardNumber,
    /// The node that has the primary then.
    pub to: NodeName,
    pub left: Left,
}

/// What is left of a shard without its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No other node has a copy: the shard begins empty.
    Nothing,
    /// A copy that was not in sync, and lacks what was written since then.
    OlderCopy,
    /// A copy in sync. With asynchronous replication it may lack the newest writes.
    CopyInSync,
}

type Forgotten = (Forgetting, NodeId, Revised<NodeRecord>, Vec<Change>);

impl Desk<'_> {
    /// What the cluster loses with a node that does not run, and where its shards come anew. `me`: the node of this desk, which may only
    /// leave without shards.
    pub async fn plan_forget(&self, name: &str, me: NodeId, loses_data: bool) -> Result<Forgetting, ChangeError> {
        let view = self.view();
        let answers = self.ask_others(&view, name, loses_data).await;
        self.forgotten(&view, &answers, name, me, loses_data).map(|(forgetting, ..)| forgetting)
    }

    /// What the other copies have of the shards whose primaries would be given up.
    async fn ask_others(&self, view: &View, name: &str, loses_data: bool) -> Answers {
        let mut asked = Asked::default();
        if let Some((id, _)) = view.node_named(name).filter(|_| loses_data) {
            for (uid, shard) in view.shards_on(id).filter(|(_, shard)| shard.primary_node() == Some(id)) {
                asked.add(view, uid, shard);
            }
        }
        (self.asks)(view, asked.0).await
    }

    /// Also returns the node and the new records of its shards.
    pub(super) fn forgotten(
        &self,
        view: &View,
        answers: &Answers,
        name: &str,
        me: NodeId,
        loses_data: bool,
    ) -> Result<Forgotten, ChangeError> {
        let (id, record) = view.node_named(name).ok_or_else(|| ChangeError::NotFound(format!("node '{name}'")))?;
        if view.live.contains_key(&id) && id != me {
            let why = format!(
                "node '{name}' runs: let it leave itself (flintkv cluster leave on that node), or stop it first"
            );
            return Err(ChangeError::Busy(why));
        }
        let mut on_it = Vec::new();
        for (database, found) in &view.databases {
            for (number, shard) in &found.shards {
                if shard.assignments.iter().any(|assigned| assigned.node == id) {
                    on_it.push((*database, *number, shard));
                }
            }
        }
        let spec = |database: &DatabaseId| view.databases[database].spec.as_ref();
        // A replica goes with its node, and the shard stays.
        let is_replica = |shard: &ShardRecord| shard.assignments.len() > 1 && shard.primary_node() != Some(id);
        let needed: Vec<_> = on_it.iter().filter(|(.., shard)| !is_replica(shard)).collect();
        if !needed.is_empty() && (id == me || !loses_data) {
            let name_of = |database| spec(database).map_or_else(|| database.to_string(), |spec| spec.name.to_string());
            let names: Vec<_> = needed.iter().map(|(id, number, _)| format!("{}.{number}", name_of(id))).collect();
            let way = match id == me {
                true => "delete their databases first",
                false => "delete their databases first, or give up the data that were only there (--lose-data)",
            };
            return Err(ChangeError::Busy(format!("node '{name}' has the shards {}: {way}", names.join(", "))));
        }
        let planned =
            plan(&view.layout(self.workers), &Request::GiveUp { node: id }).map_err(|error| no_room(&error))?;
        let mut forgetting = Forgetting { node: record.name.clone(), lost: Vec::new(), loads: loads(view, &planned)? };
        forgetting.loads.retain(|(node, _)| *node != record.name);
        let mut shards = Vec::new();
        for (database, number, shard) in on_it {
            let is_deleted = spec(&database).is_none_or(|spec| spec.state == DatabaseState::Deleting);
            let key = Key::Shard(database, number).to_string();
            if is_deleted {
                // What the node would do if it came back.
                shards.push(Change::default().given(&key, shard.revision).delete(&key));
                continue;
            }
            let to = planned.changes.iter().find_map(|change| match *change {
                PlacementChange::Add { shard, to } if (shard.database(), shard.number()) == (database, number) => {
                    Some(to)
                }
                _ => None,
            });
            if is_replica(shard) {
                let change = Change::default().given(&key, shard.revision);
                shards.push(put(change, Key::Shard(database, number), &shard.without(id))?);
                continue;
            }
            let name = spec(&database).expect("it is served").name.clone();
            let lost =
                |to: NodeId, left| LostShard { database: name.clone(), number, to: view.nodes[&to].name.clone(), left };
            // Another epoch and another copy: whoever comes back with the old ones claims nothing.
            let Some(to) = to else {
                let uid = shard_uid(database, number);
                let is_away = |node| !view.live.contains_key(&node);
                let is_avoided = |copy| is_avoided(view, shard, copy);
                let survivor = survive(shard, id, &reports(shard, uid, answers), is_away, is_avoided);
                let Survivor { next, is_in_sync } = survivor.map_err(|undecided| {
                    let why = in_words(view, shard, &undecided);
                    ChangeError::Busy(format!(
                        "node '{}' has the primary of shard {name}.{number}, which {why}",
                        record.name
                    ))
                })?;
                let to = next.primary_node().expect("the copy that goes on is assigned");
                forgetting.lost.push(lost(to, if is_in_sync { Left::CopyInSync } else { Left::OlderCopy }));
                let change = Change::default().given(&key, shard.revision);
                shards.push(put(change, Key::Shard(database, number), &next)?);
                continue;
            };
            forgetting.lost.push(lost(to, Left::Nothing));
            let renewed = ShardRecord {
                epoch: shard.epoch.next(),
                primary: shard.next_copy,
                in_sync: Vec::new(),
                assignments: vec![Assignment::new(shard.next_copy, to)],
                next_copy: CopyNumber(shard.next_copy.0 + 1),
                flushes: shard.flushes,
                handed_over: None,
                ended: None,
                undecided: None,
                unknown: shard.unknown.clone(),
            };
            let change = Change::default().given(&key, shard.revision);
            shards.push(put(change, Key::Shard(database, number), &renewed)?);
        }
        Ok((forgetting, id, record.clone(), shards))
    }

    /// Removes a node, and opens the shards that only it had empty elsewhere.
    pub async fn forget(&self, name: &str, me: NodeId, loses_data: bool) -> Result<(Made, Forgetting), ChangeError> {
        let operation = new_operation();
        loop {
            let planned = self.attempt(async |view| {
                let answers = self.ask_others(view, name, loses_data).await;
                let (forgetting, id, record, mut shards) = self.forgotten(view, &answers, name, me, loses_data)?;
                let is_last = shards.len() <= SHARDS_AT_ONCE;
                shards.truncate(SHARDS_AT_ONCE);
                // The node comes back at this moment, or not before it is forgotten.
                let mut change = with_layout(view, Change::default())?;
                if id != me {
                    change = change.given(&Key::Live(id).to_string(), 0);
                }
                for shard in shards {
                    change = change.and(shard);
                }
                if is_last {
                    let node_key = Key::Node(id).to_string();
                    let pki_id: pki::NodeId = id.to_string().parse().map_err(ChangeError::Busy)?;
                    change = change
                        .given(&node_key, record.revision)
                        .delete(&node_key)
                        .delete(&name_key(record.name.as_str()))
                        .delete(&coordinator_key(pki_id))
                        .delete(&certificates_key(pki_id))
                        .delete(&etcd_trusts_key(pki_id))
                        // The node knows it, and could sign sessions of any user: another one is drawn, and all users sign in anew.
                        .delete(&Key::ConsoleKey.to_string())
                        .put(&shut_out_key(pki_id), &pki::ShutOut::until_it_joins_again(pki_id, wall_ms()));
                    let to = |name: &NodeName| view.node_named(name.as_str()).map(|(id, _)| id);
                    let begun = Begun {
                        id: operation,
                        kind: OperationKind::Forget,
                        target: record.name.as_str(),
                        database: None,
                        node: Some(id),
                        nodes: forgetting.lost.iter().filter_map(|lost| to(&lost.to)).collect(),
                        steps: Vec::new(),
                    };
                    change = begin(view, change, self.by, begun)?;
                }
                Ok((self.records.change(change).await?, (forgetting, is_last)))
            });
            let (revision, (forgetting, is_last)) = planned.await?;
            if is_last {
                return Ok((Made { operation, revision }, forgetting));
            }
        }
    }
}
