//! Owns how shards go on that nobody can serve because no copy has everything that was acknowledged: an operator decides that, at this desk.
//! Never chooses the copy itself (`cluster::failover::recovery`).

use super::{Begun, Desk, Made, SHARDS_AT_ONCE, begin, new_operation, put};
use crate::calls::Answers;
use crate::candidate::majority_is_away;
use crate::change_error::{ChangeError, find};
use crate::choice::{Asked, is_avoided, reports};
use cluster::failover::{Report, Undecided, recover};
use cluster::ids::{CopyNumber, DatabaseId, Epoch, NodeId, ShardNumber, shard_uid};
use cluster::keys::Key;
use cluster::names::DatabaseName;
use cluster::records::{OperationKind, ShardRecord};
use cluster::view::{Revised, View};
use membership::records::Change;
use std::collections::BTreeSet;

/// How the shards of a database go on that nobody can serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    pub database: DatabaseName,
    /// Of the database: it says what a copy may lack.
    pub persistence: String,
    pub shards: Vec<RecoveredShard>,
    /// The shards that need no decision, a sentence for each.
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredShard {
    pub number: ShardNumber,
    /// Which the copy that goes on begins.
    pub epoch: Epoch,
    pub copies: Vec<FoundCopy>,
}

/// A copy of a shard that nobody can serve.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundCopy {
    /// The name of its node.
    pub node: String,
    /// The shard goes on with it.
    pub is_taken: bool,
    /// `None`: it does not answer.
    pub report: Option<Report>,
}

/// A shard's next record.
struct Decided {
    shard: RecoveredShard,
    to: NodeId,
    change: Change,
}

impl Desk<'_> {
    /// What [`Desk::recover`] would do.
    pub async fn plan_recover(
        &self,
        name: &str,
        shard: Option<ShardNumber>,
        loses_data: bool,
    ) -> Result<Recovery, ChangeError> {
        let view = self.view();
        let answers = self.ask_copies(&view, name, shard).await?;
        Ok(self.recovery(&view, &answers, name, shard, loses_data)?.0)
    }

    /// Has each shard that nobody can serve, or this one, go on with the copy that has most. `loses_data`: without the copies that do not
    /// answer.
    pub async fn recover(
        &self,
        name: &str,
        shard: Option<ShardNumber>,
        loses_data: bool,
    ) -> Result<(Made, Recovery), ChangeError> {
        let operation = new_operation();
        self.attempt(async |view| {
            // Each time anew: another record may be about other datasets.
            let answers = self.ask_copies(view, name, shard).await?;
            let (recovery, id, mut decided) = self.recovery(view, &answers, name, shard, loses_data)?;
            let nodes = decided.iter().map(|decided| decided.to).collect();
            while decided.len() > SHARDS_AT_ONCE {
                self.records.change(together(decided.drain(..SHARDS_AT_ONCE))).await?;
            }
            let begun = Begun {
                id: operation,
                kind: OperationKind::Recover,
                target: name,
                database: Some(id),
                node: None,
                nodes,
                steps: Vec::new(),
            };
            let revision = self.records.change(begin(view, together(decided), self.by, begun)?).await?;
            Ok((Made { operation, revision }, recovery))
        })
        .await
    }

    async fn ask_copies(&self, view: &View, name: &str, only: Option<ShardNumber>) -> Result<Answers, ChangeError> {
        let (id, _) = find(view, name)?;
        let mut asked = Asked::default();
        for (number, record) in &view.databases[&id].shards {
            if only.is_none_or(|only| only == *number) {
                asked.add(view, shard_uid(id, *number), record);
            }
        }
        Ok((self.asks)(view, asked.0).await)
    }

    /// At least one shard is decided about.
    fn recovery(
        &self,
        view: &View,
        answers: &Answers,
        name: &str,
        only: Option<ShardNumber>,
        loses_data: bool,
    ) -> Result<(Recovery, DatabaseId, Vec<Decided>), ChangeError> {
        let (id, spec) = find(view, name)?;
        let definition = spec.definition();
        if definition.replicas == 0 {
            let why =
                format!("'{name}' has no replicas: a shard of it is served again when its node runs with its files");
            return Err(ChangeError::Busy(why));
        }
        let shards = &view.databases[&id].shards;
        if let Some(only) = only.filter(|only| !shards.contains_key(only)) {
            return Err(ChangeError::NotFound(format!("shard {name}.{only}")));
        }
        let (mut decided, mut left_out) = (Vec::new(), Vec::new());
        for (number, record) in shards.iter().filter(|(number, _)| only.is_none_or(|only| only == **number)) {
            let found = reports(record, shard_uid(id, *number), answers);
            match recover(record, &found, |_| loses_data, |copy| is_avoided(view, record, copy)) {
                Ok(next) => decided.push(decide(view, id, *number, record, &next, &found)?),
                Err(undecided) => {
                    let why = format!("shard {name}.{number} {}", in_words(view, record, &undecided));
                    match undecided {
                        Undecided::Silent(_) => {
                            let way = "or go on without it and give up what only it has (--lose-data)";
                            return Err(ChangeError::Busy(format!("{why}, {way}")));
                        }
                        Undecided::NobodyAnswers | Undecided::KnowsMore(_) => return Err(ChangeError::Busy(why)),
                        Undecided::NotBegun | Undecided::IsServed(_) | Undecided::HasEverything(_) => {
                            left_out.push(why)
                        }
                    }
                }
            }
        }
        if decided.is_empty() {
            return Err(ChangeError::Busy(format!("nothing is to be decided: {}", left_out.join("; "))));
        }
        let shards = decided.iter().map(|decided| decided.shard.clone()).collect();
        let (database, persistence) = (spec.name.clone(), definition.persistence.clone());
        Ok((Recovery { database, persistence, shards, left_out }, id, decided))
    }
}

fn together(decided: impl IntoIterator<Item = Decided>) -> Change {
    decided.into_iter().fold(Change::default(), |change, decided| change.and(decided.change))
}

fn decide(
    view: &View,
    id: DatabaseId,
    number: ShardNumber,
    record: &Revised<ShardRecord>,
    next: &ShardRecord,
    reports: &[Report],
) -> Result<Decided, ChangeError> {
    let key = Key::Shard(id, number);
    let change = put(Change::default().given(&key.to_string(), record.revision), key, next)?;
    let copies = record.assignments.iter().map(|assigned| FoundCopy {
        node: view.node_name(assigned.node),
        is_taken: assigned.copy == next.primary,
        report: reports.iter().find(|report| report.copy == assigned.copy).copied(),
    });
    let shard = RecoveredShard { number, epoch: next.epoch, copies: copies.collect() };
    let to = next.primary_node().expect("the copy that goes on is assigned");
    Ok(Decided { shard, to, change })
}

/// Why nobody is named, behind the shard's name.
pub(super) fn in_words(view: &View, record: &ShardRecord, undecided: &Undecided) -> String {
    let at = |copy: &CopyNumber| {
        let node = record.node_of(*copy);
        (node.map_or_else(|| copy.to_string(), |node| view.node_name(node)), node)
    };
    match undecided {
        Undecided::NotBegun => "has never been served: its primary begins by itself when its node runs".to_owned(),
        Undecided::IsServed(copy) => format!("is served: the copy on {} hears its primary", at(copy).0),
        Undecided::HasEverything(copy) => {
            let has = format!("needs no decision: the copy on {} has every write that was acknowledged", at(copy).0);
            match majority_is_away(view) {
                Some(why) => format!("{has}, and goes on by itself when most nodes run ({why})"),
                None => format!("{has}, and serves or is named by itself"),
            }
        }
        Undecided::KnowsMore(copy) => {
            format!("has a newer record than this node knows, as the copy on {} says: try again", at(copy).0)
        }
        Undecided::Silent(copies) => {
            let state = |node: Option<NodeId>| match node.is_some_and(|node| view.live.contains_key(&node)) {
                true => "runs, and its copy does not answer, perhaps because it loads its dataset",
                false => "does not run",
            };
            let silent: BTreeSet<String> =
                copies.iter().map(at).map(|(name, node)| format!("{name} {}", state(node))).collect();
            let silent = Vec::from_iter(silent).join(", ");
            format!(
                "may have everything in a copy that has not said what it has ({silent}): wait for it, or start its node"
            )
        }
        Undecided::NobodyAnswers => "has no copy that answers: start a node that has one".to_owned(),
    }
}
