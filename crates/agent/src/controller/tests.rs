use super::*;
use crate::scene::{node, spec};
use base::random::SplitMix64;
use cluster::ids::{CopyNumber, Incarnation};
use cluster::records::{Assignment, LiveRecord, encode};
use coord::twin::Rates;
use std::ops::Deref;

const DATABASE: DatabaseId = DatabaseId([7; 10]);
const SHARD: Shard = (DATABASE, ShardNumber(0));

fn incarnation(number: u8) -> Incarnation {
    Incarnation([number; 8])
}

/// A cluster of `n1` to `n3`, which keep copies 1 to 3 of a shard, and their records at etcd's twin.
struct Scene(crate::scene::Scene);

impl Deref for Scene {
    type Target = crate::scene::Scene;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Scene {
    fn new(replication: &str, persistence: &str) -> Scene {
        let scene = Scene(crate::scene::Scene::new(3, |_| "a".to_owned()));
        let spec = spec(|definition| {
            definition.replicas = 2;
            definition.replication = replication.to_owned();
            definition.persistence = persistence.to_owned();
        });
        scene.put(Key::Spec(DATABASE), &spec);
        let copies = (1..=3).map(|number| Assignment::new(CopyNumber(number.into()), node(number)));
        let mut shard = ShardRecord::new(CopyNumber(1), copies.collect());
        shard.in_sync = (1..=2).map(member).collect();
        scene.put(Key::Shard(DATABASE, ShardNumber(0)), &shard);
        scene.put(Key::Leader, &LeaderRecord { node: node(3), process: ProcessId([3; 8]), unknown: Unknown::new() });
        scene
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
        stream: Some(Epoch::FIRST),
        began: None,
        ended: None,
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
fn a_failover_says_when_the_new_primary_was_heard() {
    let scene = Scene::new("sync", "none");
    let (mut controller, mut said) = begun(&scene);
    scene.ends(1);
    let [named] = &scene.look(&mut controller, 2_000, &said)[..] else { panic!("one is named") };
    let id = OperationId([1; 8]);
    scene.put(Key::Shard(DATABASE, ShardNumber(0)), &named.next);
    scene.put(Key::Failover(id), &named.failover);
    assert_eq!(scene.look(&mut controller, 2_100, &said), []);
    assert_eq!(controller.served(&scene.view(), 7), [], "it is being promoted");
    said.get_mut(&node(2)).unwrap()[0].serving = Some(named.next.epoch);
    assert_eq!(scene.look(&mut controller, 2_200, &said), []);
    let [(noted, record)] = &controller.served(&scene.view(), 8)[..] else { panic!("it is noted") };
    assert_eq!((*noted, record.served_ms), (id, Some(8)));
    assert_eq!(controller.served(&scene.view(), 9), [], "it is noted once");
}

#[test]
fn nobody_is_named_while_most_nodes_are_away() {
    let scene = Scene::new("sync", "none");
    let (mut controller, said) = begun(&scene);
    scene.ends(1);
    scene.ends(3);
    assert_eq!(scene.look(&mut controller, 2_000, &said), []);
    assert!(controller.waits.iter().any(|why| why.contains("2 of 3 nodes")));
    scene.runs(3, 33);
    assert_eq!(scene.look(&mut controller, 2_100, &said).len(), 1);
    assert!(controller.waits.is_empty());
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

/// The new process of its node says so. If the earlier one was only named, an older primary may still serve, and must be waited for.
#[test]
fn a_primary_whose_process_has_ended_leaves_a_vacant_epoch() {
    for (ended, is_named) in [(Some(epoch(2)), true), (Some(Epoch::FIRST), false), (None, false)] {
        let scene = Scene::new("sync", "none");
        let mut record = scene.shard();
        record.epoch = epoch(2);
        scene.put(Key::Shard(DATABASE, ShardNumber(0)), &record);
        let mut controller = Controller::default();
        let mut said = answers(&[answer(1, 0), answer(2, 9), answer(3, 9)]);
        said.values_mut().for_each(|said| said[0].report.hears_a_lease = true);
        let first = &mut said.get_mut(&node(1)).unwrap()[0].report;
        (first.incarnation, first.ended) = (incarnation(99), ended);
        let named = scene.look(&mut controller, 0, &said);
        assert_eq!(named.len(), usize::from(is_named), "a copy hears the primary, which ended in {ended:?}");
        said.values_mut().for_each(|said| said[0].report.hears_a_lease = false);
        let [named] = &scene.look(&mut controller, 100, &said)[..] else { panic!("one is named") };
        assert_eq!((named.next.was_vacant(), named.next.epoch), (is_named, epoch(3)));
    }
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
        assert_eq!(scene.look(&mut controller, 50, &said), [], "copy 9 is not assigned, and copy 3 has not answered");
        said.insert(node(3), third);
        let named = scene.look(&mut controller, 100, &said);
        if persistence == "everysec" {
            assert_eq!(named, []);
            continue;
        }
        let next = &named[0].next;
        assert_eq!((next.primary, next.epoch, next.in_sync[0].incarnation), (CopyNumber(1), epoch(2), incarnation(99)));
    }
}

/// Each copy's machine has lost power, and the database is synced once a second.
#[test]
fn a_shard_that_waits_for_an_operator_says_so_until_it_is_served() {
    let scene = Scene::new("sync", "everysec");
    let (mut controller, mut said) = begun(&scene);
    (1..=3).for_each(|number| scene.runs(number, number + 10));
    for said in said.values_mut() {
        (said[0].report.incarnation, said[0].serving) = (incarnation(99), None);
    }
    let shown =
        |scene: &Scene| (scene.view().is_served(&scene.shard()), advice(&scene.view(), "orders", &scene.shard()));
    let write = |scene: &Scene, controller: &Controller| {
        let changed = controller.undecided(&scene.view());
        changed.iter().for_each(|(_, now)| scene.put(Key::Shard(SHARD.0, SHARD.1), &*now.record));
        changed.len()
    };

    // A copy that runs and does not answer may have everything, for instance while it loads its dataset.
    let third = said.remove(&node(3)).unwrap();
    assert_eq!(scene.look(&mut controller, 0, &said), []);
    assert_eq!(scene.look(&mut controller, PATIENCE_MS, &said), []);
    assert_eq!((write(&scene, &controller), controller.waits.len()), (0, 0));
    // One whose node does not run may have everything too, and an operator should know that.
    scene.ends(3);
    assert_eq!(scene.look(&mut controller, PATIENCE_MS + 100, &said), []);
    assert_eq!((write(&scene, &controller), controller.waits.len()), (1, 1));
    let (is_served, told) = shown(&scene);
    assert!(!is_served && told.as_ref().is_some_and(|told| told.contains("start n3")), "{told:?}");
    assert_eq!(scene.view().in_sync(&scene.shard()), 0);
    scene.runs(3, 33);
    said.insert(node(3), third);
    assert_eq!(scene.look(&mut controller, PATIENCE_MS + 200, &said), []);
    assert_eq!(write(&scene, &controller), 0, "it is said once");
    let told = shown(&scene).1.unwrap();
    assert!(told.contains("flintkv database recover orders shows"), "{told}");
    assert!(controller.waits.contains(&told), "{:?}", controller.waits);

    // The recorded primary comes back as what it was.
    said.get_mut(&node(1)).unwrap()[0].report.incarnation = incarnation(1);
    said.get_mut(&node(1)).unwrap()[0].serving = Some(Epoch::FIRST);
    assert_eq!(scene.look(&mut controller, PATIENCE_MS + 300, &said), []);
    assert!(!controller.questions(&scene.view(), PATIENCE_MS + 400).is_empty(), "the record is still to be changed");
    assert_eq!(write(&scene, &controller), 1);
    assert_eq!(shown(&scene), (true, None));
    assert!(controller.questions(&scene.view(), PATIENCE_MS + 500).is_empty());
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
