//! Owns how a leader asks other nodes: where a node answers calls, and what several nodes say of their copies. Never decides anything.

use cluster::failover::CopyAnswer;
use cluster::ids::{NodeId, ShardUid};
use cluster::records::{Member, NodeRecord};
use cluster::view::View;
use membership::call::Call;
use membership::issuer::Issuer;
use membership::join::Peer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a node may take to say what its copies are.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// A call is about so many shards, because its answer must have room in a message: 1 KiB for each, of which a quarter is numbers and ids, and
/// the rest is for what a copy says of itself ([`crate::links::STATE_CHARS_MAX`]).
const SHARDS_OF_A_CALL: usize = pki::limits::MESSAGE_BYTES_MAX >> 10;
/// Between two lines of the log about a node that does not answer: a leader asks ten times a second.
const SAY_INTERVAL: Duration = Duration::from_secs(60);
/// When the log was told last of each node.
static SAID: Mutex<BTreeMap<NodeId, Instant>> = Mutex::new(BTreeMap::new());

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

/// Asks all of these nodes at once. What a node does not answer is missing.
pub fn ask(issuer: &Issuer, view: &View, asked: BTreeMap<NodeId, Vec<ShardUid>>) -> Asking {
    let mut calls = JoinSet::new();
    for (id, shards) in asked {
        let Some(node) = view.nodes.get(&id) else { continue };
        for shards in shards.chunks(SHARDS_OF_A_CALL) {
            let (peer, name, call) = (peer(issuer, node), view.node_name(id), Call::Copies(shards.to_vec()));
            calls.spawn(async move {
                let answer = timeout(ASK_TIMEOUT, peer.ask::<Vec<CopyAnswer>>(&call)).await;
                let answer = answer.unwrap_or_else(|_| Err("it does not answer in time".to_owned()));
                Some((id, answer.inspect_err(|why| tell(id, &name, why)).ok()?))
            });
        }
    }
    Box::pin(async {
        let mut answers = Answers::new();
        for (id, said) in calls.join_all().await.into_iter().flatten() {
            answers.entry(id).or_default().extend(said);
        }
        answers
    })
}

/// Without the answer, nobody can be named for a shard whose copies are there.
fn tell(id: NodeId, name: &str, why: &str) {
    let now = Instant::now();
    let mut said = SAID.lock();
    said.retain(|_, at| now.duration_since(*at) < SAY_INTERVAL);
    if let Entry::Vacant(entry) = said.entry(id) {
        entry.insert(now);
        tracing::warn!("node {name} does not say what its copies have: {why}");
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::STATE_CHARS_MAX;
    use crate::scene::Scene;
    use cluster::failover::{Began, Report};
    use cluster::ids::{CopyNumber, DatabaseId, Epoch, Incarnation, ProcessId, ShardNumber, shard_uid};
    use cluster::stripes::SHARDS_MAX;
    use coord::Twin;
    use membership::call::{HandingOver, NodeCalls, Reply};
    use membership::folder::EtcdAccess;
    use membership::peer::{self, PeerHello, PeerTls};
    use membership::records::Records;
    use membership::{Folder, Member, etcd_client};
    use pki::{Authority, CheckedRequest, ClusterId, Credential, CurrentCredential, NodeKey, Purpose, Trust};

    /// As large as an answer can be.
    fn answer(shard: ShardUid) -> CopyAnswer {
        let epoch = Epoch(u64::MAX.try_into().unwrap());
        let report = Report {
            copy: CopyNumber(u32::MAX),
            incarnation: Incarnation([0xff; 8]),
            promised: epoch,
            received: u64::MAX,
            stream: Some(epoch),
            began: Some(Began { epoch, at: u64::MAX, before: epoch }),
            ended: Some(epoch),
            hears_a_lease: false,
        };
        // Two bytes each, in JSON.
        CopyAnswer { shard, report, serving: Some(epoch), state: "\"".repeat(STATE_CHARS_MAX) }
    }

    fn shards() -> Vec<ShardUid> {
        (0..SHARDS_MAX).map(|number| shard_uid(DatabaseId([0xff; 10]), ShardNumber(number))).collect()
    }

    fn issuer(authority: &Authority, node: pki::NodeId) -> Issuer {
        let (key, now_ms) = (NodeKey::generate(), base::clock::wall_ms());
        let request = CheckedRequest::from_pem(&key.request()).unwrap();
        let issued = authority.issue(&request, node, Purpose::Node, &["127.0.0.1".to_owned()], now_ms).unwrap();
        let credential = Credential::new(&key, &issued.certificate, authority.certificate(), now_ms).unwrap();
        let etcd = EtcdAccess { endpoints: vec!["https://127.0.0.1:1".to_owned()], external: None };
        let member = Member::new(
            ClusterId::random(),
            "test".to_owned(),
            node,
            "n1".parse().unwrap(),
            "a".parse().unwrap(),
            cluster::records::Role::Data,
            "127.0.0.1".to_owned(),
            vec![authority.certificate().pem()],
            etcd,
        );
        Issuer {
            folder: Folder::of(&config::ConfigStore::from_directives(&[]).unwrap().snapshot()),
            records: Records::new(Arc::new(Twin::new(1)), member.cluster),
            etcd: etcd_client(&member, &credential, &member.etcd.endpoints).unwrap(),
            current: CurrentCredential::new(credential),
            trust: Trust::new(vec![authority.certificate().clone()]).unwrap(),
            member,
        }
    }

    /// A node that has a copy of every shard.
    struct Answering(Arc<Issuer>);

    impl NodeCalls for Answering {
        fn copies(&self, shards: &[ShardUid]) -> Vec<CopyAnswer> {
            shards.iter().copied().map(answer).collect()
        }

        fn hand_over(&self, _: ShardUid, _: Epoch, _: CopyNumber) -> HandingOver {
            unreachable!("it is only asked about its copies")
        }

        fn restart(&self, _: ProcessId) -> Reply<()> {
            unreachable!("it is only asked about its copies")
        }
    }

    impl peer::Answers for Answering {
        fn issuer(&self) -> Arc<Issuer> {
            Arc::clone(&self.0)
        }

        fn link(&self, _: PeerHello) {}

        fn api(&self, _: PeerHello) {}
    }

    #[test]
    fn an_answer_about_the_shards_of_a_call_has_room_in_a_message() {
        let said: Vec<CopyAnswer> = shards()[..SHARDS_OF_A_CALL].iter().copied().map(answer).collect();
        let bytes = pki::encode::<Reply<Vec<CopyAnswer>>>(&Ok(said.clone()));
        assert_eq!(pki::decode::<Reply<Vec<CopyAnswer>>>(&bytes).unwrap().unwrap(), said);
        assert!(pki::encode(&Call::Copies(shards())).len() < pki::limits::MESSAGE_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_node_answers_about_as_many_shards_as_a_database_can_have() {
        let authority = Authority::create("test", base::clock::wall_ms()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let asked = Arc::new(issuer(&authority, pki::NodeId::random()));
        let tls = PeerTls::new(&asked.current, &asked.trust, true);
        tokio::spawn(peer::serve(listener, tls, Arc::new(Answering(asked))));

        let scene = std::thread::spawn(|| Scene::new(1, |_| "a".to_owned()).view());
        let (mut view, id) = (scene.join().unwrap(), crate::scene::node(1));
        let node = view.nodes.get_mut(&id).unwrap();
        let mut record = (*node.record).clone();
        record.addresses.peer = at.to_string().parse().unwrap();
        node.record = Arc::new(record);
        let asking = issuer(&authority, pki::NodeId::random());
        let mut said = ask(&asking, &view, BTreeMap::from([(id, shards())])).await;
        let mut said = said.remove(&id).expect("the node has answered");
        said.sort_by_key(|said| said.shard);
        assert_eq!(said, shards().into_iter().map(answer).collect::<Vec<_>>());
    }
}
