//! Owns how a leader asks other nodes: where a node answers calls, and what several nodes say of their copies. Never decides anything.

use cluster::failover::CopyAnswer;
use cluster::ids::{NodeId, ShardUid};
use cluster::records::{Member, NodeRecord};
use cluster::view::View;
use membership::call::Call;
use membership::issuer::Issuer;
use membership::join::Peer;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a node may take to say what its copies are.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// What nodes say of their copies.
pub type Answers = BTreeMap<NodeId, Vec<CopyAnswer>>;
/// The answers that are on their way.
pub type Asking = Pin<Box<dyn Future<Output = Answers> + Send>>;
/// What asks nodes about their copies of shards.
pub type Asks<'a> = dyn Fn(&View, BTreeMap<NodeId, Vec<ShardUid>>) -> Asking + 'a;

/// Where the node answers calls.
pub fn peer(issuer: &Issuer, node: &NodeRecord) -> Peer {
    Peer {
        at: node.addresses.peer.as_str().to_owned(),
        current: Arc::clone(&issuer.current),
        trust: Arc::clone(&issuer.trust),
    }
}

/// Asks all of these nodes at once. A node that does not answer is missing.
pub fn ask(issuer: &Issuer, view: &View, asked: BTreeMap<NodeId, Vec<ShardUid>>) -> Asking {
    let mut calls = JoinSet::new();
    for (id, shards) in asked {
        let Some(node) = view.nodes.get(&id) else { continue };
        let peer = peer(issuer, node);
        calls.spawn(async move {
            let answer = timeout(ASK_TIMEOUT, peer.ask::<Vec<CopyAnswer>>(&Call::Copies(shards))).await;
            Some((id, answer.ok()?.ok()?))
        });
    }
    Box::pin(async { calls.join_all().await.into_iter().flatten().collect() })
}

/// What the nodes of these shards' in-sync sets say of their copies.
pub async fn ask_sets(issuer: &Issuer, view: &View, shards: impl Iterator<Item = ShardUid>) -> Answers {
    let mut asked = BTreeMap::<NodeId, Vec<ShardUid>>::new();
    for uid in shards {
        let Some(record) = view.shard(uid) else { continue };
        for node in record.in_sync.iter().filter_map(|member| record.node_of(member.copy)) {
            asked.entry(node).or_default().push(uid);
        }
    }
    ask(issuer, view, asked).await
}

/// Whether the node has the dataset that the record names. For a moment, a record may name what a copy had before its process began anew.
pub fn is_as_recorded(answers: &Answers, shard: ShardUid, member: &Member, node: NodeId) -> bool {
    let is_it = |answer: &CopyAnswer| {
        answer.shard == shard && (answer.report.copy, answer.report.incarnation) == (member.copy, member.incarnation)
    };
    answers.get(&node).is_some_and(|answers| answers.iter().any(is_it))
}
