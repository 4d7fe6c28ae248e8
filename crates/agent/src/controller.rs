//! Owns the controller: one member of the cluster leads, watches whether each shard with replicas has a primary that serves, and names
//! another one when it has not. Never serves anything itself, and never names a copy that may lack an acknowledged write
//! (`cluster::failover::choose`). A name at the wrong time costs a pause.

use crate::candidate::{Candidate, is_to_restart, majority_is_away};
use crate::executor::carry_out;
use base::clock::wall_ms;
use cluster::failover::{Choice, CopyAnswer, Report, choose};
use cluster::ids::{DatabaseId, Epoch, NodeId, OperationId, ProcessId, ShardNumber, ShardUid, shard_uid};
use cluster::keys::Key;
use cluster::records::{
    self, DatabaseState, FailoverRecord, LeaderRecord, Member, Role, ShardRecord, SpecRecord, Unknown,
};
use cluster::view::{Revised, View};
use coord::{Coord, Keeper};
use membership::call::Call;
use membership::issuer::Issuer;
use membership::join::Peer;
use membership::records::{Change, RecordsError};
use rand::RngCore;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Of the leader's record.
const LEADER_TTL: Duration = Duration::from_secs(2);
/// Between two looks at the records.
const TICK: Duration = Duration::from_millis(100);
/// The same, when it has been so for long that nobody can be named.
const LONG_TICK: Duration = Duration::from_secs(1);
/// A node with data leaves the lead to the quorum node for so long.
const COURTESY: Duration = Duration::from_secs(1);
/// How long a node may take to say what its copies know.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// A primary that runs, and does not serve yet, is given so long: a restart reads its dataset first, and a promotion waits for the end of
/// leases.
const PATIENCE_MS: u64 = 5_000;
/// Failovers are kept for operators to see.
const FAILOVERS_KEPT: usize = 50;
/// How many older ones are removed with a new one.
const TRIMMED_AT_ONCE: usize = 10;

type Shard = (DatabaseId, ShardNumber);

// --- who leads ---

/// Leads whenever nobody else does.
pub async fn lead(me: &Candidate) -> Infallible {
    let mut vacant_since: Option<Instant> = None;
    // A quorum node that does not take the lead that was left to it is of an older version.
    let mut left_to: BTreeSet<ProcessId> = BTreeSet::new();
    let mut told = String::new();
    loop {
        sleep(TICK).await;
        let view = me.view();
        if view.leader.is_some() || !me.runs(&view) {
            vacant_since = None;
            continue;
        }
        if is_to_restart(&view, me.me, me.process) && view.live.len() > 1 {
            continue;
        }
        let since = *vacant_since.get_or_insert_with(Instant::now);
        if me.role == Role::Data && quorum_process(&view).is_some() && since.elapsed() < COURTESY {
            continue;
        }
        match lead_once(me, &mut left_to).await {
            Ok(()) => told.clear(),
            Err(why) if why == told => {}
            Err(why) => {
                tracing::debug!("this node does not lead: {why}");
                told = why;
            }
        }
        vacant_since = None;
    }
}

/// A quorum node that runs, and goes on.
fn quorum_process(view: &View) -> Option<ProcessId> {
    let quorum = view.nodes.iter().filter(|(_, node)| node.role == Role::Quorum);
    let mut running = quorum.filter_map(|(id, _)| Some((*id, view.live.get(id)?.process)));
    running.find(|(id, process)| !is_to_restart(view, *id, *process)).map(|(_, process)| process)
}

async fn lead_once(me: &Candidate, left_to: &mut BTreeSet<ProcessId>) -> Result<(), String> {
    let issuer = (me.issuer)();
    let lease = issuer.etcd.grant(LEADER_TTL).await.map_err(|error| error.to_string())?;
    let record = LeaderRecord { node: me.me, process: me.process, unknown: Unknown::new() };
    let bytes = records::encode(Key::Leader, &record).map_err(|error| error.to_string())?;
    let name = Key::Leader.to_string();
    let change = Change::default().given(&name, 0).put_leased(&name, bytes, lease.id);
    let revision = issuer.records.change(change).await.map_err(|error| error.to_string())?;
    let keeper = Keeper::start(Arc::new(issuer.etcd.apart()), lease, || true).map_err(|error| error.to_string())?;
    tracing::info!("this node leads the cluster: it names primaries");
    let steps_down = async {
        loop {
            sleep(COURTESY).await;
            if me.role == Role::Data
                && let Some(process) = quorum_process(&me.view())
                && left_to.insert(process)
            {
                return;
            }
        }
    };
    tokio::select! {
        why = keeper.lost() => tracing::info!("this node does not lead any more: {why:?}"),
        never = control(me, revision) => match never {},
        () = steps_down => tracing::info!("this node leaves the lead to the node that only votes"),
        () = carry_out(me, revision) => tracing::info!("this node is to start anew, and leaves the lead to another one"),
    }
    drop(keeper);
    // If this fails, the lease ends by itself.
    let _ = issuer.etcd.revoke(lease.id).await;
    Ok(())
}

async fn control(me: &Candidate, leader: i64) -> std::convert::Infallible {
    let mut controller = Controller::default();
    let begun = Instant::now();
    let mut tick = TICK;
    loop {
        sleep(tick).await;
        let view = me.view();
        let now_ms = begun.elapsed().as_millis() as u64;
        tick = if controller.waits_for_long(now_ms) { LONG_TICK } else { TICK };
        let asked = controller.questions(&view, now_ms);
        if asked.is_empty() {
            continue;
        }
        let answers = ask(&(me.issuer)(), &view, asked).await;
        let named = controller.decide(&view, &answers, begun.elapsed().as_millis() as u64, wall_ms());
        controller.tell();
        for named in named {
            name(&(me.issuer)(), &view, leader, &named).await;
        }
    }
}

/// Asks all of these nodes at once. A node that does not answer is missing.
pub async fn ask(issuer: &Issuer, view: &View, asked: BTreeMap<NodeId, Vec<ShardUid>>) -> Answers {
    let mut calls = JoinSet::new();
    for (id, shards) in asked {
        let Some(node) = view.nodes.get(&id) else { continue };
        let peer = Peer {
            at: node.addresses.peer.as_str().to_owned(),
            current: Arc::clone(&issuer.current),
            trust: Arc::clone(&issuer.trust),
        };
        calls.spawn(async move {
            let answer = timeout(ASK_TIMEOUT, peer.ask::<Vec<CopyAnswer>>(&Call::Copies(shards))).await;
            Some((id, answer.ok()?.ok()?))
        });
    }
    calls.join_all().await.into_iter().flatten().collect()
}

async fn name(issuer: &Issuer, view: &View, leader: i64, named: &Named) {
    match issuer.records.change(named.change(view, leader)).await {
        Ok(_) => {
            let FailoverRecord { target, from, to, epoch, cause, .. } = &named.failover;
            tracing::warn!("shard {target} goes from node {from} to node {to}, epoch {epoch}: {cause}");
        }
        // The records that come say what holds.
        Err(RecordsError::Conflict | RecordsError::Unknown(_)) => {}
        Err(error) => tracing::warn!("shard {} has no new primary: {error}", named.failover.target),
    }
}

// --- whom it misses, and whom it names ---

/// What nodes say of their copies.
pub type Answers = BTreeMap<NodeId, Vec<CopyAnswer>>;

/// What a leader remembers. It begins with nothing: then it asks all primaries.
#[derive(Default)]
pub struct Controller {
    /// The primaries that were heard to serve, in which epoch and process.
    heard: BTreeMap<Shard, (Epoch, ProcessId)>,
    /// The shards whose primary is not known to serve, since when, and in which epoch.
    missed: BTreeMap<Shard, (u64, Epoch)>,
    /// Why nobody is named, and what was said of it.
    waits: Option<String>,
    said: Option<String>,
}

/// A shard's next record, and what is noted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub shard: Shard,
    /// The record that was read.
    pub revision: i64,
    pub next: ShardRecord,
    pub failover: FailoverRecord,
}

impl Named {
    fn change(&self, view: &View, leader: i64) -> Change {
        let (database, number) = self.shard;
        let key = Key::Shard(database, number);
        let mut id = [0; 8];
        rand::rng().fill_bytes(&mut id);
        let note = Key::Failover(OperationId(id));
        let mut change =
            Change::default().given(&key.to_string(), self.revision).given(&Key::Leader.to_string(), leader);
        let mut old: Vec<(u64, OperationId)> = view.failovers.iter().map(|(id, old)| (old.named_ms, *id)).collect();
        old.sort_unstable();
        let surplus = old.len().saturating_sub(FAILOVERS_KEPT).min(TRIMMED_AT_ONCE);
        for (_, old) in &old[..surplus] {
            change = change.delete(&Key::Failover(*old).to_string());
        }
        let encoded = "the record was read, and the change keeps what was checked";
        change
            .put_bytes(&key.to_string(), records::encode(key, &self.next).expect(encoded))
            .put_bytes(&note.to_string(), records::encode(note, &self.failover).expect(encoded))
    }
}

/// A shard that may need a controller: it has replicas, and has served.
fn replicated(view: &View) -> impl Iterator<Item = (Shard, &SpecRecord, &Revised<ShardRecord>)> {
    view.databases.iter().flat_map(|(&id, database)| {
        let spec = database.spec.as_ref().filter(|spec| spec.state != DatabaseState::Deleting);
        spec.into_iter().flat_map(move |spec| {
            let shards = database.shards.iter();
            let kept = shards.filter(|(_, record)| record.assignments.len() > 1 && !record.in_sync.is_empty());
            kept.map(move |(&number, record)| ((id, number), &*spec.record, record))
        })
    })
}

impl Controller {
    /// Whom to ask for which shards. Empty: each shard is known to be served.
    pub fn questions(&mut self, view: &View, now_ms: u64) -> BTreeMap<NodeId, Vec<ShardUid>> {
        let mut asked: BTreeMap<NodeId, Vec<ShardUid>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (shard, _, record) in replicated(view) {
            seen.insert(shard);
            let live = record.primary_node().and_then(|node| view.live.get(&node));
            if live.is_some_and(|live| self.heard.get(&shard) == Some(&(record.epoch, live.process))) {
                self.missed.remove(&shard);
                continue;
            }
            let missed = self.missed.entry(shard).or_insert((now_ms, record.epoch));
            if missed.1 != record.epoch {
                *missed = (now_ms, record.epoch);
            }
            for assigned in record.assignments.iter().filter(|assigned| view.live.contains_key(&assigned.node)) {
                asked.entry(assigned.node).or_default().push(shard_uid(shard.0, shard.1));
            }
        }
        self.heard.retain(|shard, _| seen.contains(shard));
        self.missed.retain(|shard, _| seen.contains(shard));
        asked
    }

    /// Whether everything that it misses has been missed for long.
    fn waits_for_long(&self, now_ms: u64) -> bool {
        !self.missed.is_empty() && self.missed.values().all(|(since_ms, _)| now_ms > since_ms + 4 * PATIENCE_MS)
    }

    /// Notes who serves, and names primaries for the shards that nobody serves. `view`: the one that the questions came from. `wall_ms`:
    /// milliseconds since 1970.
    pub fn decide(&mut self, view: &View, answers: &Answers, now_ms: u64, wall_ms: u64) -> Vec<Named> {
        let mut named = Vec::new();
        self.waits = None;
        for (shard, spec, record) in replicated(view) {
            let Some(&(since_ms, _)) = self.missed.get(&shard) else { continue };
            let missed_ms = now_ms.saturating_sub(since_ms);
            let Some(cause) = self.cause(view, shard, spec, record, answers, missed_ms) else { continue };
            if let Some(why) = majority_is_away(view) {
                self.waits = Some(why);
                continue;
            }
            let Some((next, cause)) = next_record(view, shard, spec, record, answers, cause) else { continue };
            let node = |node: Option<NodeId>| node.and_then(|node| Some(view.nodes.get(&node)?.name.clone()));
            let (Some(from), Some(to)) = (node(record.primary_node()), node(next.primary_node())) else { continue };
            let failover = FailoverRecord {
                database: shard.0,
                shard: shard.1,
                target: format!("{}.{}", spec.name, shard.1),
                cause,
                from,
                to,
                epoch: next.epoch,
                missed_ms: wall_ms.saturating_sub(missed_ms),
                named_ms: wall_ms,
                unknown: Unknown::new(),
            };
            named.push(Named { shard, revision: record.revision, next, failover });
        }
        named
    }

    /// Why the shard needs another primary. `None`: it does not, or not yet.
    fn cause(
        &mut self,
        view: &View,
        shard: Shard,
        spec: &SpecRecord,
        record: &ShardRecord,
        answers: &Answers,
        missed_ms: u64,
    ) -> Option<String> {
        let node = record.primary_node()?;
        let Some(live) = view.live.get(&node) else { return Some("its node does not run".to_owned()) };
        let primary = said(answers, node, shard).filter(|said| said.report.copy == record.primary);
        if primary.is_some_and(|said| said.serving == Some(record.epoch)) {
            self.heard.insert(shard, (record.epoch, live.process));
            self.missed.remove(&shard);
            return None;
        }
        if let Some(said) = primary.filter(|said| !is_recorded(record, &said.report)) {
            return Some(format!("the dataset of copy {} is not the one that was acknowledged", said.report.copy));
        }
        let has_ended =
            self.heard.get(&shard).is_some_and(|(epoch, process)| *epoch == record.epoch && *process != live.process);
        // A primary of `async` comes back with writes that its replicas may lack.
        if has_ended && spec.definition().replication == "sync" {
            return Some("its process has ended".to_owned());
        }
        (missed_ms >= PATIENCE_MS).then(|| match primary {
            Some(_) => "its node runs and does not serve it".to_owned(),
            None => "its node does not answer".to_owned(),
        })
    }

    /// Logs why nobody is named, once.
    fn tell(&mut self) {
        if self.waits != self.said {
            if let Some(why) = &self.waits {
                tracing::error!("no primary is named, an operator must decide: {why}");
            }
            self.said.clone_from(&self.waits);
        }
    }
}

fn said(answers: &Answers, node: NodeId, (database, number): Shard) -> Option<&CopyAnswer> {
    answers.get(&node)?.iter().find(|said| said.shard == shard_uid(database, number))
}

fn is_recorded(record: &ShardRecord, report: &Report) -> bool {
    let mut members = record.in_sync.iter();
    members.any(|member| (member.copy, member.incarnation) == (report.copy, report.incarnation))
}

fn next_record(
    view: &View,
    shard: Shard,
    spec: &SpecRecord,
    record: &ShardRecord,
    answers: &Answers,
    cause: String,
) -> Option<(ShardRecord, String)> {
    let of = |assigned: &records::Assignment| {
        let said = said(answers, assigned.node, shard)?;
        // Another copy's files are of an assignment that was given up.
        (said.report.copy == assigned.copy).then_some(said.report)
    };
    let reports: Vec<Report> = record.assignments.iter().filter_map(of).collect();
    let is_avoided = |copy| {
        let mut assigned = record.assignments.iter().filter(|assigned| assigned.copy == copy);
        let is_draining = |node: &NodeId| view.nodes.get(node).is_some_and(|node| node.is_draining);
        assigned.any(|assigned| assigned.is_leaving || is_draining(&assigned.node))
    };
    match choose(record, &reports, is_avoided) {
        Choice::Name(next) => Some((next, cause)),
        Choice::IsServed(_) => None,
        Choice::NobodyKnown => begun_empty(view, spec, record, &reports),
    }
}

/// A cache whose copies have all begun anew has nothing that could still come back: it begins empty.
fn begun_empty(
    view: &View,
    spec: &SpecRecord,
    record: &ShardRecord,
    reports: &[Report],
) -> Option<(ShardRecord, String)> {
    let all_run = record.assignments.iter().all(|assigned| view.live.contains_key(&assigned.node));
    let all_have_said = reports.len() == record.assignments.len();
    let nobody_serves = reports.iter().all(|report| !is_recorded(record, report) && report.promised <= record.epoch);
    if spec.definition().persistence != "none" || !all_run || !all_have_said || !nobody_serves {
        return None;
    }
    let primary = reports.iter().find(|report| report.copy == record.primary)?;
    let mut next = record.clone();
    next.epoch = record.epoch.next();
    next.in_sync = vec![Member { copy: primary.copy, incarnation: primary.incarnation, unknown: Unknown::new() }];
    Some((next, "all copies have begun anew, and the database has no persistence: it begins empty".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::SplitMix64;
    use cluster::ids::{CopyNumber, HashSecret, Incarnation};
    use cluster::records::{
        Addresses, Assignment, Capacity, LiveRecord, NodeRecord, StoredDefinition, Versions, encode,
    };
    use coord::Twin;
    use coord::twin::Rates;
    use membership::records::Records;

    const DATABASE: DatabaseId = DatabaseId([7; 10]);
    const SHARD: Shard = (DATABASE, ShardNumber(0));

    fn node(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    fn incarnation(number: u8) -> Incarnation {
        Incarnation([number; 8])
    }

    /// A cluster of `n1` to `n3`, which keep copies 1 to 3 of a shard, and their records at etcd's twin.
    struct Scene {
        twin: Twin,
        records: Records,
    }

    impl Scene {
        fn new(replication: &str, persistence: &str) -> Scene {
            let twin = Twin::new(1);
            let records = Records::new(Arc::new(twin.clone()), pki::ClusterId::random());
            let scene = Scene { twin, records };
            for number in 1..=3 {
                let record = NodeRecord {
                    name: format!("n{number}").parse().unwrap(),
                    zone: "a".parse().unwrap(),
                    role: Role::Data,
                    is_draining: false,
                    addresses: Addresses {
                        peer: "127.0.0.1:8380".parse().unwrap(),
                        client_host: String::new(),
                        unknown: Unknown::new(),
                    },
                    versions: Versions { flintkv: String::new(), unknown: Unknown::new() },
                    capacity: Capacity { ram_bytes: 1, flash_bytes: 1, unknown: Unknown::new() },
                    feature_level: 1,
                    unknown: Unknown::new(),
                };
                scene.put(Key::Node(node(number)), &record);
                scene.runs(number, number);
            }
            let mut definition = StoredDefinition::default();
            definition.known.port = 7000;
            definition.known.replicas = 2;
            definition.known.replication = replication.to_owned();
            definition.known.persistence = persistence.to_owned();
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
            let copies = (1..=3).map(|number| Assignment::new(CopyNumber(number.into()), node(number)));
            let mut shard = ShardRecord::new(CopyNumber(1), copies.collect());
            shard.in_sync = (1..=2).map(member).collect();
            scene.put(Key::Shard(DATABASE, ShardNumber(0)), &shard);
            scene
                .put(Key::Leader, &LeaderRecord { node: node(3), process: ProcessId([3; 8]), unknown: Unknown::new() });
            scene
        }

        fn change(&self, change: Change) -> Result<i64, RecordsError> {
            run(self.records.change(change))
        }

        fn put<R: records::Record>(&self, key: Key, record: &R) {
            let bytes = encode(key, record).unwrap();
            self.change(Change::default().put_bytes(&key.to_string(), bytes)).unwrap();
        }

        /// This process is the node from now on.
        fn runs(&self, number: u8, process: u8) {
            let process = ProcessId([process; 8]);
            self.put(Key::Live(node(number)), &LiveRecord { process, place: String::new(), unknown: Unknown::new() });
        }

        fn ends(&self, number: u8) {
            self.change(Change::default().delete(&Key::Live(node(number)).to_string())).unwrap();
        }

        fn view(&self) -> View {
            let mut view = View::default();
            for (key, entry) in self.twin.entries() {
                view.apply(key.strip_prefix(self.records.prefix()).unwrap(), Some(&entry.value), entry.mod_revision);
            }
            view
        }

        fn shard(&self) -> ShardRecord {
            ShardRecord::clone(&self.view().databases[&DATABASE].shards[&ShardNumber(0)])
        }

        /// One look of a controller at time `now_ms`, with these answers. What it names is not written.
        fn look(&self, controller: &mut Controller, now_ms: u64, answers: &Answers) -> Vec<Named> {
            let view = self.view();
            let asked = controller.questions(&view, now_ms);
            let answers = answers.iter().filter(|(node, _)| asked.contains_key(node));
            let answers = answers.map(|(node, said)| (*node, said.clone())).collect();
            controller.decide(&view, &answers, now_ms, 1_000_000)
        }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    fn member(number: u8) -> Member {
        Member { copy: CopyNumber(number.into()), incarnation: incarnation(number), unknown: Unknown::new() }
    }

    fn epoch(number: u64) -> Epoch {
        Epoch(number.try_into().unwrap())
    }

    fn answer(number: u8, received: u64) -> CopyAnswer {
        let report = Report {
            copy: CopyNumber(number.into()),
            incarnation: incarnation(number),
            promised: Epoch::FIRST,
            received,
            hears_a_lease: false,
        };
        CopyAnswer { shard: shard_uid(SHARD.0, SHARD.1), report, serving: None, state: String::new() }
    }

    fn answers(said: &[CopyAnswer]) -> Answers {
        said.iter().map(|said| (node(said.report.copy.0 as u8), vec![said.clone()])).collect()
    }

    /// A controller that has heard the primary, whose answers these are, of copy 1 and of two replicas.
    fn begun(scene: &Scene) -> (Controller, Answers) {
        let mut controller = Controller::default();
        let mut said = answers(&[answer(1, 9), answer(2, 9), answer(3, 9)]);
        said.get_mut(&node(1)).unwrap()[0].serving = Some(Epoch::FIRST);
        assert_eq!(scene.look(&mut controller, 0, &said), []);
        assert!(controller.questions(&scene.view(), 0).is_empty(), "a primary that serves is not asked again");
        (controller, said)
    }

    #[test]
    fn a_recorded_copy_is_named_when_the_primarys_node_is_gone_and_nobody_hears_it() {
        let scene = Scene::new("sync", "none");
        let (mut controller, mut said) = begun(&scene);
        scene.ends(1);
        said.get_mut(&node(3)).unwrap()[0].report.hears_a_lease = true;
        assert_eq!(scene.look(&mut controller, 2_000, &said), [], "copy 3 hears the primary");
        said.get_mut(&node(3)).unwrap()[0].report.hears_a_lease = false;
        // Copy 3 has more, and is not recorded.
        said.get_mut(&node(3)).unwrap()[0].report.received = 100;
        let [named] = &scene.look(&mut controller, 2_300, &said)[..] else { panic!("one is named") };
        assert_eq!((named.next.primary, named.next.epoch), (CopyNumber(2), epoch(2)));
        assert_eq!(named.next.in_sync, [member(2)]);
        let FailoverRecord { target, from, to, missed_ms, .. } = &named.failover;
        assert_eq!((target.as_str(), from.as_str(), to.as_str(), *missed_ms), ("orders.0", "n1", "n2", 999_700));
    }

    #[test]
    fn nobody_is_named_while_most_nodes_are_away() {
        let scene = Scene::new("sync", "none");
        let (mut controller, said) = begun(&scene);
        scene.ends(1);
        scene.ends(3);
        assert_eq!(scene.look(&mut controller, 2_000, &said), []);
        assert!(controller.waits.as_ref().is_some_and(|why| why.contains("2 of 3 nodes")));
        scene.runs(3, 33);
        assert_eq!(scene.look(&mut controller, 2_100, &said).len(), 1);
        assert_eq!(controller.waits, None);
    }

    #[test]
    fn a_primary_that_comes_back_is_waited_for_if_it_may_have_what_replicas_lack() {
        for (replication, at_once) in [("sync", true), ("async", false)] {
            let scene = Scene::new(replication, "always");
            let (mut controller, mut said) = begun(&scene);
            scene.runs(1, 11);
            said.get_mut(&node(1)).unwrap()[0].serving = None;
            assert_eq!(scene.look(&mut controller, 500, &said).len(), usize::from(at_once), "{replication}");
            assert_eq!(scene.look(&mut controller, 500 + PATIENCE_MS, &said).len(), 1);
            // It serves again, in the epoch that it took.
            let mut record = scene.shard();
            record.epoch = record.epoch.next();
            scene.put(Key::Shard(DATABASE, ShardNumber(0)), &record);
            assert_eq!(scene.look(&mut controller, 600 + PATIENCE_MS, &said), []);
            said.get_mut(&node(1)).unwrap()[0].serving = Some(record.epoch);
            assert_eq!(scene.look(&mut controller, 700 + PATIENCE_MS, &said), []);
            assert!(controller.questions(&scene.view(), 800 + PATIENCE_MS).is_empty());
        }
    }

    #[test]
    fn a_primary_with_another_dataset_is_replaced_at_once() {
        let scene = Scene::new("async", "none");
        let (mut controller, mut said) = begun(&scene);
        scene.runs(1, 11);
        let first = &mut said.get_mut(&node(1)).unwrap()[0];
        (first.serving, first.report.incarnation) = (None, incarnation(99));
        assert_eq!(scene.look(&mut controller, 500, &said)[0].next.primary, CopyNumber(2));
    }

    #[test]
    fn only_a_cache_whose_copies_have_all_begun_anew_begins_empty() {
        for persistence in ["none", "everysec"] {
            let scene = Scene::new("sync", persistence);
            let mut controller = Controller::default();
            let mut said = answers(&[answer(1, 0), answer(2, 0), answer(3, 0)]);
            said.values_mut().for_each(|said| said[0].report.incarnation = incarnation(99));
            let third = said.remove(&node(3)).unwrap();
            assert_eq!(scene.look(&mut controller, 0, &said), [], "copy 3 may have everything");
            let mut given_up = third.clone();
            given_up[0].report.copy = CopyNumber(9);
            said.insert(node(3), given_up);
            assert_eq!(
                scene.look(&mut controller, 50, &said),
                [],
                "copy 9 is not assigned, and copy 3 has not answered"
            );
            said.insert(node(3), third);
            let named = scene.look(&mut controller, 100, &said);
            if persistence == "everysec" {
                assert_eq!(named, []);
                continue;
            }
            let next = &named[0].next;
            assert_eq!(
                (next.primary, next.epoch, next.in_sync[0].incarnation),
                (CopyNumber(1), epoch(2), incarnation(99))
            );
        }
    }

    #[test]
    fn who_does_not_lead_any_more_names_nobody() {
        let scene = Scene::new("sync", "none");
        let (mut controller, said) = begun(&scene);
        scene.ends(1);
        let named = scene.look(&mut controller, 2_000, &said).remove(0);
        let view = scene.view();
        let leader = view.leader.as_ref().unwrap().revision;
        scene.put(Key::Leader, &LeaderRecord { node: node(2), process: ProcessId([2; 8]), unknown: Unknown::new() });
        assert_eq!(scene.change(named.change(&view, leader)), Err(RecordsError::Conflict));
        let now = scene.view().leader.as_ref().unwrap().revision;
        scene.change(named.change(&view, now)).unwrap();
        assert_eq!((scene.shard().primary, scene.view().failovers.len()), (CopyNumber(2), 1));
        assert_eq!(scene.change(named.change(&view, now)), Err(RecordsError::Conflict), "once");
    }

    /// Two controllers that both believe to lead, on views of any age, with transactions whose outcome they do not know: each epoch has one
    /// primary, which was recorded before it was named.
    #[test]
    fn whatever_controllers_know_each_epoch_has_one_primary_of_the_set() {
        for seed in 0..50 {
            let scene = Scene::new("sync", "none");
            let mut random = SplitMix64(seed);
            let mut below = |limit: u64| random.below(limit);
            scene.twin.set_rates(Rates { lose_answer: 100_000, lose_request: 100_000, ..Rates::default() });
            let mut views = vec![scene.view()];
            let mut controllers = [Controller::default(), Controller::default()];
            let mut primaries: BTreeMap<Epoch, CopyNumber> = BTreeMap::new();
            let mut before = scene.shard();
            for step in 0..60 {
                let now_ms = step * 1_000;
                let number = 1 + below(3) as u8;
                let is_live = scene.view().live.contains_key(&node(number));
                let live = Key::Live(node(number));
                let change = match is_live && below(2) == 0 {
                    true => Change::default().delete(&live.to_string()),
                    false => {
                        let process = ProcessId([below(200) as u8; 8]);
                        let record = LiveRecord { process, place: String::new(), unknown: Unknown::new() };
                        Change::default().put_bytes(&live.to_string(), encode(live, &record).unwrap())
                    }
                };
                // Whether it was made, the next view shows.
                let _ = scene.change(change);
                // The primary takes a copy into its set.
                let mut shard = scene.shard();
                let joins = member(1 + below(3) as u8);
                if shard.in_sync.iter().all(|known| known.copy != joins.copy) && below(3) == 0 {
                    shard.in_sync.push(joins);
                    shard.in_sync.sort_by_key(|member| member.copy);
                    let key = Key::Shard(DATABASE, ShardNumber(0));
                    let change = Change::default().put_bytes(&key.to_string(), encode(key, &shard).unwrap());
                    let _ = scene.change(change);
                }
                before.clone_from(&scene.shard());
                views.push(scene.view());
                let controller = &mut controllers[below(2) as usize];
                let view = &views[views.len() - 1 - below(3.min(views.len() as u64)) as usize];
                let said = answers(&[answer(1, below(9)), answer(2, below(9)), answer(3, below(9))]);
                let asked = controller.questions(view, now_ms);
                let said = said.into_iter().filter(|(node, _)| asked.contains_key(node) && below(4) > 0).collect();
                for named in controller.decide(view, &said, now_ms, now_ms) {
                    let leader = view.leader.as_ref().unwrap().revision;
                    let _ = scene.change(named.change(view, leader));
                }
                let now = scene.shard();
                if now.epoch != before.epoch {
                    assert_eq!(now.epoch, before.epoch.next(), "seed {seed}");
                    assert!(before.in_sync.iter().any(|member| member.copy == now.primary), "seed {seed}: {before:?}");
                    assert!(now.in_sync.iter().all(|member| before.in_sync.contains(member)), "seed {seed}");
                    assert!(now.in_sync.iter().all(|member| member.copy != before.primary), "seed {seed}");
                }
                let known = primaries.entry(now.epoch).or_insert(now.primary);
                assert_eq!(*known, now.primary, "seed {seed}: two primaries in epoch {}", now.epoch);
            }
            assert!(primaries.len() > 1, "seed {seed}: nobody was ever named");
        }
    }
}
