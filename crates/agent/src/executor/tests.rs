use super::*;
use crate::plans::Planned;
use crate::scene::{node, spec};
use base::random::SplitMix64;
use cluster::failover::{CopyAnswer, Report};
use cluster::ids::{DatabaseId, Incarnation, ShardNumber, shard_uid};
use cluster::records::{DatabaseState, LeaderRecord, SettingsRecord, SpecRecord};
use std::ops::Deref;

const DATABASE: DatabaseId = DatabaseId([7; 10]);
const SHARDS: u16 = 2;

fn uid(number: u16) -> ShardUid {
    shard_uid(DATABASE, ShardNumber(number))
}

fn member(copy: CopyNumber) -> Member {
    Member { copy, incarnation: Incarnation([copy.0 as u8; 8]), unknown: Unknown::new() }
}

/// A cluster of `n1` to `n4` with the database `orders`, whose shards have their primaries on `n1` and replicas on `n2`, and its records at
/// etcd's twin. `n4` leads.
struct Scene {
    records: crate::scene::Scene,
    operation: OperationId,
}

impl Deref for Scene {
    type Target = crate::scene::Scene;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl Scene {
    fn new(min_in_sync: u32) -> Scene {
        let records = crate::scene::Scene::new(4, |number| format!("z{number}"));
        let scene = Scene { records, operation: OperationId([9; 8]) };
        let spec = spec(|definition| {
            definition.shards = SHARDS.into();
            definition.replicas = 1;
            definition.replication = "sync".to_owned();
            definition.persistence = "none".to_owned();
            definition.min_in_sync = min_in_sync;
            definition.memory_limit_bytes = 200 << 20;
            definition.ram_limit_bytes = 200 << 20;
        });
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

    fn lead(&self, number: u8) {
        let record = LeaderRecord { node: node(number), process: ProcessId([number; 8]), unknown: Unknown::new() };
        self.put(Key::Leader, &record);
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
                let others = [1, 2, 3, 4].map(node).into_iter().filter(|other| self.view().live.contains_key(other));
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
    let step = Step { kind: StepKind::Drop, to: None, from: Some(node(2)), ..Step::moving(uid(0), node(2), node(3)) };
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
    let after = |lost: &mut Lost, ms| lost.due(&scene.view(), ms, ms);
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
    // An operator who has ended it is left alone for as long.
    let replace = Wish::Replace { node: "n2".to_owned() };
    scene.put(Key::Settings, &SettingsRecord { replace_after_s: Some(600), unknown: Unknown::new() });
    scene.settle();
    scene.begin(&replace);
    scene.step(&scene.view());
    scene.abort();
    assert!(scene.carry_out().error.unwrap().starts_with("aborted by bob"));
    let ended_ms = scene.operation().ended_ms.unwrap();
    let mut lost = Lost::default();
    assert_eq!(lost.due(&scene.view(), 0, ended_ms), []);
    assert_eq!(lost.due(&scene.view(), 600_000, ended_ms + 599_999), []);
    assert_eq!(lost.due(&scene.view(), 600_000, ended_ms + 600_000), [node(2)]);
    scene.change(Change::default().delete(&Key::Operation(scene.operation).to_string())).unwrap();
    // A node without copies of shards needs none.
    scene.runs(2, 2);
    scene.ends(4);
    let mut lost = Lost::default();
    assert_eq!(after(&mut lost, 0), []);
    assert_eq!(after(&mut lost, 10_000), []);
}

#[test]
fn shards_get_the_copies_back_that_were_forgotten_with_their_node() {
    let scene = Scene::new(1);
    let due = |lacking: &mut Lacking, ms| lacking.due(&scene.view(), ms, ms);
    let mut lacking = Lacking::default();
    assert_eq!(due(&mut lacking, 0), None);
    scene.ends(2);
    scene.settle();
    for number in 0..SHARDS {
        scene.put(Key::Shard(DATABASE, ShardNumber(number)), &scene.shard(number).without(node(2)));
    }
    scene.change(Change::default().delete(&Key::Node(node(2)).to_string())).unwrap();
    // No data move by themselves where that is switched off, and while most nodes are away.
    scene.put(Key::Settings, &SettingsRecord { replace_after_s: Some(0), unknown: Unknown::new() });
    assert_eq!(due(&mut lacking, 0), None);
    scene.put(Key::Settings, &SettingsRecord { replace_after_s: Some(600), unknown: Unknown::new() });
    (3..=4).for_each(|number| scene.ends(number));
    assert_eq!(due(&mut lacking, 0), None);
    let add = Wish::AddMissing { database: DATABASE };
    let refused = scene.plan(&add).unwrap_err();
    assert!(refused.contains("no node takes a copy of shard 0 of database orders"), "{refused}");
    (3..=4).for_each(|number| scene.runs(number, number));

    assert_eq!(due(&mut lacking, 1_000), Some(DATABASE));
    assert_eq!(due(&mut lacking, 1_100), None, "it is tried again later");
    let planned = scene.begin(&add);
    let adds = planned.steps.iter().filter(|step| step.kind == StepKind::Add);
    assert_eq!((planned.kind, adds.count()), (OperationKind::AddReplicas, 2));
    assert_eq!(due(&mut lacking, 1_000_000), None, "it is under way");
    assert!(scene.plan(&add).unwrap_err().contains("no shard of 'orders' lacks a copy"));
    scene.step(&scene.view());
    scene.abort();
    assert!(scene.carry_out().error.unwrap().starts_with("aborted by bob"));
    assert!((0..SHARDS).any(|number| scene.shard(number).assignments.len() == 1));
    let ended_ms = scene.operation().ended_ms.unwrap();
    assert_eq!(lacking.due(&scene.view(), 2_000_000, ended_ms + 599_999), None, "an operator has ended it");
    assert_eq!(lacking.due(&scene.view(), 2_000_000, ended_ms + 600_000), Some(DATABASE));

    // A drain that waits for a copy does not keep it away.
    scene.change(Change::default().delete(&Key::Operation(scene.operation).to_string())).unwrap();
    scene.put(Key::Node(node(1)), &NodeRecord { is_draining: true, ..(*scene.view().nodes[&node(1)].record).clone() });
    scene.begin(&add);
    assert_eq!(scene.carry_out().error, None);
    for number in 0..SHARDS {
        let (primary, others) = scene.nodes(number);
        assert!(others.len() == 1 && primary != others[0], "{:?}", scene.shard(number));
    }
    assert_eq!(due(&mut lacking, 9_000_000), None);

    // Nothing is copied from a primary that does not run, and nothing for a database that goes.
    let scene = Scene::new(1);
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &scene.shard(0).without(node(2)));
    let due = || Lacking::default().due(&scene.view(), 0, 0);
    assert_eq!(due(), Some(DATABASE));
    scene.ends(1);
    assert_eq!(due(), None);
    scene.runs(1, 1);
    let mut spec = SpecRecord::clone(scene.view().databases[&DATABASE].spec.as_ref().unwrap());
    spec.state = DatabaseState::Deleting;
    scene.put(Key::Spec(DATABASE), &spec);
    assert_eq!(due(), None);
}

/// The node of the new copy is lost too: neither its own replacement nor another try may wait for that.
#[test]
fn a_new_copy_on_a_node_that_is_lost_too_is_made_elsewhere() {
    let scene = Scene::new(1);
    let replace = |node: &str| Wish::Replace { node: node.to_owned() };
    scene.ends(2);
    scene.settle();
    let planned = scene.begin(&replace("n2"));
    scene.step(&scene.view());
    let (Some(uid), Some(to)) = (planned.steps[0].shard, planned.steps[0].to) else { panic!("a move") };
    let number = to.0[0];
    scene.ends(number);
    let why = scene.carry_out().error.unwrap();
    assert!(why.starts_with(&format!("aborted by the cluster, because node n{number} does not run either")), "{why}");
    assert!(scene.view().shard(uid).unwrap().on(to).is_none());
    // It is no operator's abort.
    scene.put(Key::Settings, &SettingsRecord { replace_after_s: Some(5), unknown: Unknown::new() });
    let mut lost = Lost::default();
    assert_eq!(lost.due(&scene.view(), 0, 5), []);
    assert_eq!(lost.due(&scene.view(), 5_000, 5_005)[0], node(2));

    let scene = Scene::new(1);
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &scene.shard(0).without(node(2)));
    let planned = scene.begin(&Wish::AddMissing { database: DATABASE });
    scene.step(&scene.view());
    let to = planned.steps[0].to.unwrap();
    scene.ends(to.0[0]);
    assert_eq!(scene.carry_out().error, Some(format!("node n{} does not run", to.0[0])));
    scene.change(Change::default().delete(&Key::Operation(scene.operation).to_string())).unwrap();
    scene.begin(&replace(&format!("n{}", to.0[0])));
    assert_eq!(scene.carry_out().error, None);
    assert_eq!(scene.nodes(0).1.len(), 1);
}

/// A copy that is not in sync counts for nothing, so that writes lack nothing without it.
#[test]
fn an_aborted_copy_goes_whatever_the_database_wants_in_sync() {
    let scene = Scene::new(2);
    let mut shard = scene.shard(0).without(node(2));
    shard.in_sync.retain(|member| member.copy == shard.primary);
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &shard);
    let add = Wish::AddMissing { database: DATABASE };
    scene.begin(&add);
    scene.step(&scene.view());
    assert_eq!(scene.shard(0).assignments.len(), 2);
    scene.abort();
    assert!(scene.carry_out().error.unwrap().starts_with("aborted by bob"));
    assert_eq!(scene.shard(0).assignments.len(), 1);

    // One that is in sync stays if writes would be refused without it.
    scene.change(Change::default().delete(&Key::Operation(scene.operation).to_string())).unwrap();
    scene.begin(&add);
    scene.step(&scene.view());
    scene.settle();
    scene.abort();
    assert!(scene.carry_out().error.unwrap().starts_with("aborted by bob"));
    assert_eq!((scene.shard(0).assignments.len(), scene.nodes(0).1.len()), (2, 1));
}

/// The primary is lost before it has taken the copy out of the set.
#[test]
fn a_copy_that_is_named_before_it_can_leave_stays() {
    for wish in [Wish::AddMissing { database: DATABASE }, moving("orders.0", "n3", Some("n1"))] {
        let scene = Scene::new(1);
        if matches!(wish, Wish::AddMissing { .. }) {
            scene.put(Key::Shard(DATABASE, ShardNumber(0)), &scene.shard(0).without(node(2)));
        }
        let to = scene.begin(&wish).steps[0].to.unwrap();
        scene.step(&scene.view());
        scene.settle();
        scene.abort();
        while scene.shard(0).on(to).is_some_and(|copy| !copy.is_leaving) {
            scene.step(&scene.view());
        }
        let mut shard = scene.shard(0);
        let named = shard.on(to).unwrap().copy;
        let before = std::mem::replace(&mut shard.primary, named);
        shard.in_sync.retain(|member| member.copy != before);
        shard.epoch = shard.epoch.next();
        scene.put(Key::Shard(DATABASE, ShardNumber(0)), &shard);
        scene.ends(1);
        assert!(scene.carry_out().error.unwrap().starts_with("aborted by bob"));
        let copy = scene.shard(0).on(to).cloned().unwrap();
        assert!(!copy.is_leaving, "{:?}", scene.shard(0));
    }
}

/// Once the node removed its copy and the leader assigned it again, over and over.
#[test]
fn a_database_that_is_being_deleted_gets_no_copies() {
    let scene = Scene::new(1);
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &scene.shard(0).without(node(2)));
    let planned = scene.begin(&Wish::AddMissing { database: DATABASE });
    scene.step(&scene.view());
    let mut spec = SpecRecord::clone(scene.view().databases[&DATABASE].spec.as_ref().unwrap());
    spec.state = DatabaseState::Deleting;
    scene.put(Key::Spec(DATABASE), &spec);
    let gone = scene.shard(0).without(planned.steps[0].to.unwrap());
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &gone);
    assert_eq!(scene.carry_out().error.as_deref(), Some("its database was deleted"));
    assert_eq!(scene.shard(0), gone);
}

#[test]
fn a_drained_node_stays_without_primaries_whatever_else_goes_on() {
    // Primaries are evened out over nodes that take them.
    let scene = Scene::new(1);
    scene.ends(2);
    scene.settle();
    let planned = scene.begin(&Wish::Replace { node: "n2".to_owned() });
    let drained = planned.steps.iter().find(|step| step.kind == StepKind::SwitchOver).and_then(|step| step.to).unwrap();
    while scene.operation().steps.get(scene.operation().done).is_some_and(|step| step.kind != StepKind::SwitchOver) {
        if !scene.step(&scene.view()) {
            scene.settle();
        }
    }
    let record = (*scene.view().nodes[&drained].record).clone();
    scene.put(Key::Node(drained), &NodeRecord { is_draining: true, ..record });
    assert_eq!(scene.carry_out().error, None);
    assert!((0..SHARDS).all(|number| scene.nodes(number).0 != drained));

    // A restart would let it have primaries again.
    let scene = Scene::new(1);
    scene.begin(&Wish::Restart { nodes: vec!["n1".to_owned()] });
    scene.step(&scene.view());
    let refused = scene.plan(&drain("n1")).unwrap_err();
    assert!(refused.contains("is about n1 too"), "{refused}");
    assert!(scene.plan(&drain("n3")).is_ok());
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

/// Once, a shard lost its last dataset: the replica's process had begun anew a moment before, and the record still named what it had had.
#[test]
fn a_process_does_not_end_before_the_others_have_what_the_record_names() {
    let scene = Scene::new(1);
    scene.begin(&Wish::Restart { nodes: vec!["n1".to_owned()] });
    let (view, operation) = (scene.view(), scene.operation());
    let look = Look { view: &view, me: node(4), operation: &operation, now_ms: 0 };
    let answers = |incarnation: u8| {
        let copy = CopyNumber(1);
        let incarnation = Incarnation([incarnation; 8]);
        let report = Report {
            copy,
            incarnation,
            promised: Epoch::FIRST,
            received: 0,
            stream: None,
            began: None,
            ended: None,
            hears_a_lease: true,
        };
        let answer = |number| CopyAnswer { shard: uid(number), report, serving: None, state: String::new() };
        Answers::from([(node(2), (0..SHARDS).map(answer).collect())])
    };
    assert_eq!(look.would_lack(node(1), Some(&answers(1))), None);
    for answers in [answers(9), Answers::new()] {
        let why = look.would_lack(node(1), Some(&answers)).expect("the only other copy has not what is recorded");
        assert!(why.contains("would have 0 copies in sync"), "{why}");
    }
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
