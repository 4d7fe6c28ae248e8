use super::*;
use crate::calls::{Answers, Asking};
use cluster::failover::{CopyAnswer, Report};
use cluster::ids::{Epoch, Incarnation, ProcessId, ShardUid, shard_uid};
use cluster::records::{Addresses, Capacity, LiveRecord, Member, Versions};
use coord::Twin;
use coord::twin::Fault;
use parking_lot::Mutex;

const GB: u64 = 1 << 30;

/// etcd's twin, and two operators at different nodes, each with what its node has heard.
struct Scene {
    twin: Twin,
    records: Records,
    heard: [watch::Sender<Arc<View>>; 2],
    /// What the nodes say of their copies, if they run.
    said: Arc<Mutex<Answers>>,
    asks: Box<Asks<'static>>,
}

fn node_id(number: u8) -> NodeId {
    NodeId([number; 20])
}

impl Scene {
    fn new() -> Scene {
        let twin = Twin::new(1);
        let records = Records::new(Arc::new(twin.clone()), pki::ClusterId::random());
        let (heard, said) = ([(); 2].map(|()| watch::Sender::new(Arc::default())), Arc::<Mutex<Answers>>::default());
        let known = Arc::clone(&said);
        let asks = Box::new(move |_: &View, asked: BTreeMap<NodeId, Vec<ShardUid>>| -> Asking {
            let known = known.lock();
            let answer = |(node, shards): (NodeId, Vec<ShardUid>)| {
                let said = known.get(&node)?.iter().filter(|said| shards.contains(&said.shard)).cloned().collect();
                Some((node, said))
            };
            Box::pin(std::future::ready(asked.into_iter().filter_map(answer).collect()))
        });
        let scene = Scene { twin, records, heard, said, asks };
        for number in 1..=2 {
            let record = NodeRecord {
                name: format!("n{number}").parse().expect("a name"),
                zone: "a".parse().expect("a zone"),
                role: Role::Data,
                is_draining: false,
                addresses: Addresses {
                    peer: format!("127.0.0.{number}:8380").parse().expect("an address"),
                    client_host: String::new(),
                    unknown: Unknown::new(),
                },
                versions: Versions { flintkv: String::new(), unknown: Unknown::new() },
                capacity: Capacity { ram_bytes: 10 * GB, flash_bytes: 100 * GB, unknown: Unknown::new() },
                feature_level: 1,
                unknown: Unknown::new(),
            };
            scene.write(Key::Node(node_id(number)), &record);
            scene.set_live(number);
        }
        scene.hear();
        scene
    }

    fn write<R: records::Record>(&self, key: Key, record: &R) {
        run(self.records.change(put(Change::default(), key, record).expect("it fits"))).expect("it is written");
    }

    fn set_live(&self, number: u8) {
        let record = LiveRecord { process: ProcessId([number; 8]), place: String::new(), unknown: Unknown::new() };
        self.write(Key::Live(node_id(number)), &record);
    }

    fn end(&self, number: u8) {
        run(self.records.change(Change::default().delete(&Key::Live(node_id(number)).to_string()))).expect("deleted");
    }

    fn view(&self) -> View {
        let mut view = View::default();
        for (key, entry) in self.twin.entries() {
            let key = key.strip_prefix(self.records.prefix()).expect("it is the cluster's");
            view.apply(key, Some(&entry.value), entry.mod_revision);
        }
        view
    }

    /// Both nodes hear what was written.
    fn hear(&self) {
        self.heard.iter().for_each(|heard| drop(heard.send_replace(Arc::new(self.view()))));
    }

    fn desk(&self, at: usize) -> Desk<'_> {
        Desk {
            records: self.records.clone(),
            view: self.heard[at].subscribe(),
            workers: 2,
            has_own: &|_| false,
            is_free: &|_| true,
            asks: &*self.asks,
            by: "admin",
        }
    }

    /// Both ask on what they knew before; then they hear of each other.
    fn race<A, B>(&self, first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
        let (first, second, ()) = run(async { tokio::join!(first, second, async { self.hear() }) });
        self.hear();
        (first, second)
    }

    /// The node says that its copy of the shard is this dataset, with so much of the stream of this epoch.
    fn says(&self, (number, copy): (u8, CopyNumber), uid: ShardUid, incarnation: u8, (epoch, received): (u64, u64)) {
        let report = Report {
            copy,
            incarnation: Incarnation([incarnation; 8]),
            promised: Epoch::FIRST,
            received,
            stream: Some(Epoch(epoch.try_into().unwrap())),
            began: None,
            ended: None,
            hears_a_lease: false,
        };
        let answer = CopyAnswer { shard: uid, report, serving: None, state: String::new() };
        let mut said = self.said.lock();
        let known = said.entry(node_id(number)).or_default();
        known.retain(|said| said.shard != uid);
        known.push(answer);
    }

    fn spec(&self, name: &str) -> SpecRecord {
        SpecRecord::clone(&find(&self.view(), name).expect("it is there").1)
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(work)
}

fn definition(name: &str, ram_bytes: u64) -> Definition {
    Definition {
        name: name.to_owned(),
        shards: 2,
        memory_limit_bytes: 4 * ram_bytes,
        ram_limit_bytes: ram_bytes,
        persistence: "none".to_owned(),
        ..Definition::default()
    }
}

fn to_ram(ram_bytes: u64) -> DefinitionChange {
    DefinitionChange { ram_limit_bytes: Some(ram_bytes), ..DefinitionChange::default() }
}

#[test]
fn of_two_creations_with_one_name_one_wins() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    let wanted = definition("orders", GB);
    let (first, second) = scene.race(a.create(&wanted), b.create(&wanted));
    first.unwrap();
    assert_eq!(second.unwrap_err(), ChangeError::Exists("orders".to_owned()));
    let view = scene.view();
    assert_eq!((view.databases.len(), view.operations.len()), (1, 1));
    assert_eq!(view.named("orders").unwrap().1.shards.len(), 2);
}

/// Interrupted before and after each of its transactions, on whose outcome nobody can tell.
#[test]
fn a_creation_in_several_transactions_is_whole_or_nothing() {
    let many = Definition { shards: 200, ..definition("many", 8 * GB) };
    let shards = |scene: &Scene| -> Vec<usize> {
        scene.view().databases.values().map(|database| database.shards.len()).collect()
    };
    for (fault, last) in [(Fault::LoseRequest, 5), (Fault::LoseAnswer, 4)] {
        for transactions in 0.. {
            let scene = Scene::new();
            scene.twin.order_after(transactions, fault);
            let created = run(scene.desk(0).create(&many));
            scene.hear();
            assert_eq!(created.is_ok(), transactions == 4, "{created:?}");
            let is_there = transactions + 1 >= last;
            assert_eq!(scene.view().named("many").is_some(), is_there);
            if is_there {
                assert_eq!(shards(&scene), [200]);
                break;
            }
            assert_eq!(scene.view().operations.len(), 0);
            // The next creation finds the room, the name and the port free, and leaves nothing of the first.
            let next = run(scene.desk(1).create(&many));
            assert!(next.is_ok(), "{next:?}");
            assert_eq!(shards(&scene), [200]);
        }
    }
}

#[test]
fn of_two_long_creations_at_once_neither_takes_the_others_shards() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    let names = ["one", "two"];
    let [one, two] = names.map(|name| Definition { shards: 150, ..definition(name, 4 * GB) });
    // One transaction of each in turns.
    (0..100).for_each(|_| scene.twin.order(Fault::Stall(Duration::from_millis(1))));
    let hears = async {
        loop {
            scene.twin.advance(Duration::from_millis(1));
            scene.hear();
            tokio::task::yield_now().await;
        }
    };
    // The second one begins when it sees shards of the first without a database.
    let second = async {
        scene.heard[1].subscribe().wait_for(|view| !view.databases.is_empty()).await.unwrap();
        assert!(b.view().named("one").is_none());
        b.create(&two).await
    };
    let both = async { tokio::join!(a.create(&one), second) };
    let (first, second) = run(async {
        tokio::select! {
            both = both => both,
            () = hears => unreachable!("it goes on for ever"),
        }
    });
    first.unwrap();
    second.unwrap();
    let view = scene.view();
    assert_eq!(view.databases.len(), 2);
    assert!(names.iter().all(|name| view.named(name).unwrap().1.shards.len() == 150));
}

#[test]
fn two_changes_do_not_take_the_same_room_or_port() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    let (large, other) = (definition("large", 12 * GB), definition("other", 12 * GB));
    let (first, second) = scene.race(a.create(&large), b.create(&other));
    first.unwrap();
    assert!(matches!(second, Err(ChangeError::NoRoom(_))), "{second:?}");
    let (small, less) = (definition("small", GB / 4), definition("less", GB / 4));
    let (first, second) = scene.race(a.create(&small), b.create(&less));
    let ports = [first.unwrap().1.definition.port, second.unwrap().1.definition.port];
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn of_two_resizes_one_wins_and_a_deletion_wins_over_a_resize() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    run(a.create(&definition("orders", GB))).unwrap();
    scene.hear();
    let (one, two) = (to_ram(2 * GB), to_ram(3 * GB));
    let (first, second) = scene.race(a.resize("orders", &one), b.resize("orders", &two));
    first.unwrap();
    let why = second.unwrap_err();
    assert!(matches!(&why, ChangeError::Busy(why) if why.contains("somebody else has changed 'orders'")), "{why}");
    assert_eq!(scene.spec("orders").definition.known.ram_limit_bytes, 2 * GB);

    // A moment later it is no race: the second one knows of the first.
    run(b.resize("orders", &two)).unwrap();
    scene.hear();
    assert_eq!(scene.spec("orders").definition.known.ram_limit_bytes, 3 * GB);
    let (first, second) = scene.race(a.resize("orders", &one), b.delete("orders"));
    first.unwrap();
    second.unwrap();
    assert_eq!(scene.view().databases.values().next().unwrap().spec.as_ref().unwrap().state, DatabaseState::Deleting);

    run(a.create(&definition("orders", GB))).unwrap();
    scene.hear();
    let (first, second) = scene.race(a.delete("orders"), b.resize("orders", &one));
    first.unwrap();
    assert!(matches!(second, Err(ChangeError::NotFound(_))), "{second:?}");
}

#[test]
fn a_password_changes_with_the_limits_or_not_at_all() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    run(a.create(&definition("orders", GB))).unwrap();
    scene.hear();
    let acl = |scene: &Scene| scene.view().databases.values().next().unwrap().users.as_ref().unwrap().acl.clone();
    let before = acl(&scene);
    let change = DefinitionChange { password: Some(Some("hush".to_owned())), ..to_ram(2 * GB) };
    let limits = to_ram(3 * GB);
    let (first, second) = scene.race(a.resize("orders", &limits), b.resize("orders", &change));
    first.unwrap();
    second.unwrap_err();
    assert_eq!(acl(&scene), before);
    run(b.resize("orders", &change)).unwrap();
    assert_ne!(acl(&scene), before);
}

#[test]
fn two_flushes_are_two_and_old_operations_are_trimmed() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    run(a.create(&definition("orders", GB))).unwrap();
    scene.hear();
    let (first, second) = scene.race(a.flush("orders"), b.flush("orders"));
    assert_ne!(first.unwrap().operation, second.unwrap().operation);
    assert_eq!(scene.spec("orders").flushes, 2);
    for _ in 0..OPERATIONS_KEPT + 5 {
        run(a.flush("orders")).unwrap();
        let mut view = scene.view();
        for (id, operation) in std::mem::take(&mut view.operations) {
            let ended = OperationRecord { ended_ms: Some(1), ..OperationRecord::clone(&operation) };
            scene.write(Key::Operation(id), &ended);
        }
        scene.hear();
    }
    assert_eq!(scene.view().operations.len(), OPERATIONS_KEPT + 1);
}

#[test]
fn a_lost_node_is_forgotten_with_its_shards_unless_it_comes_back() {
    let scene = Scene::new();
    let (a, b) = (scene.desk(0), scene.desk(1));
    run(a.create(&definition("orders", GB))).unwrap();
    scene.hear();
    let runs = run(a.plan_forget("n2", node_id(1), true)).unwrap_err();
    assert!(runs.to_string().contains("runs"), "{runs}");
    scene.end(2);
    scene.hear();
    let refused = run(a.plan_forget("n2", node_id(1), false)).unwrap_err().to_string();
    assert!(refused.contains("has the shards orders.") && refused.contains("--lose-data"), "{refused}");
    let plan = run(a.plan_forget("n2", node_id(1), true)).unwrap();
    assert_eq!((plan.lost.len(), plan.lost[0].to.as_str(), plan.lost[0].left), (1, "n1", Left::Nothing));

    // It comes back at this moment.
    scene.set_live(2);
    let (refused, ()) = scene.race(a.forget("n2", node_id(1), true), async {});
    assert!(matches!(refused, Err(ChangeError::Busy(_))), "{refused:?}");
    assert_eq!(scene.view().nodes.len(), 2);

    scene.end(2);
    scene.hear();
    let (number, before) = {
        let view = scene.view();
        let shards = &view.named("orders").unwrap().1.shards;
        let lost = shards.iter().find(|(_, shard)| shard.primary_node() == Some(node_id(2))).unwrap();
        (*lost.0, lost.1.clone())
    };
    let (first, second) = scene.race(a.forget("n2", node_id(1), true), b.forget("n2", node_id(1), true));
    assert_eq!(first.unwrap().1.lost.len(), 1);
    assert!(matches!(second, Err(ChangeError::NotFound(_))), "{second:?}");
    let view = scene.view();
    let now = &view.named("orders").unwrap().1.shards[&number];
    assert_eq!((now.primary_node(), now.epoch), (Some(node_id(1)), before.epoch.next()));
    assert!(now.primary != before.primary && now.in_sync.is_empty());
    assert_eq!(view.nodes.len(), 1);
}

#[test]
fn replicas_are_on_other_nodes_and_go_with_theirs() {
    let scene = Scene::new();
    let wanted = Definition { replicas: 1, replication: "sync".to_owned(), ..definition("orders", GB) };
    let more = Definition { replicas: 2, ..wanted.clone() };
    let refused = scene.desk(0).plan(&more).unwrap_err();
    assert!(matches!(refused, ChangeError::NoRoom(_)), "{refused:?}");
    assert!(refused.to_string().contains("node n2: has a copy of the shard"), "{refused}");
    let large = Definition { ram_limit_bytes: 22 * GB, memory_limit_bytes: 22 * GB, ..wanted.clone() };
    let refused = scene.desk(0).plan(&large).unwrap_err().to_string();
    assert!(refused.contains("needs RAM 5.5 GB") && refused.contains("placed"), "{refused}");
    let wrong = Definition { min_in_sync: 3, ..wanted.clone() };
    let refused = scene.desk(0).plan(&wrong).unwrap_err();
    assert!(matches!(refused, ChangeError::Invalid { field: "min_in_sync", .. }), "{refused:?}");

    // What a copy takes is the database's limit by shards and copies; the primaries are spread.
    let plan = scene.desk(0).plan(&wanted).unwrap();
    assert_eq!(plan.copy.ram_bytes, GB / 4);
    run(scene.desk(0).create(&wanted)).unwrap();
    scene.hear();
    let view = scene.view();
    let shards = &view.named("orders").unwrap().1.shards;
    let primaries: BTreeSet<_> = shards.values().filter_map(|shard| shard.primary_node()).collect();
    assert_eq!((shards.len(), primaries.len()), (2, 2));
    assert!(shards.values().all(|shard| shard.assignments.len() == 2 && shard.in_sync.is_empty()));

    // A node that is gone takes its replicas with it, and its primaries only if an operator gives up what nobody else has.
    scene.end(2);
    scene.hear();
    let a = scene.desk(0);
    let refused = run(a.forget("n2", node_id(1), false)).unwrap_err().to_string();
    assert!(refused.contains("has the shards orders.") && refused.contains("--lose-data"), "{refused}");
    let (id, database) = view.named("orders").unwrap();
    let (&number, of_n2) = database.shards.iter().find(|(_, shard)| shard.primary_node() == Some(node_id(2))).unwrap();
    let uid = shard_uid(id, number);
    let copy_at = |node| of_n2.on(node_id(node)).unwrap().copy;
    let member = |node| Member { copy: copy_at(node), incarnation: Incarnation([node; 8]), unknown: Unknown::new() };
    let mut members = vec![member(1), member(2)];
    members.sort_by_key(|member| member.copy);
    let in_sync = |members: Vec<Member>| ShardRecord { in_sync: members, ..ShardRecord::clone(&of_n2.record) };
    scene.write(Key::Shard(id, number), &in_sync(members.clone()));
    scene.hear();
    let waits = run(scene.desk(0).plan_forget("n2", node_id(1), true)).unwrap_err().to_string();
    assert!(waits.contains("n1 runs, and its copy does not answer"), "{waits}");
    let survives = |members: Vec<Member>, incarnation, expected| {
        scene.write(Key::Shard(id, number), &in_sync(members));
        scene.hear();
        scene.says((1, copy_at(1)), uid, incarnation, (1, 9));
        let (view, a) = (scene.view(), scene.desk(0));
        let (forgetting, .., changes) = a.forgotten(&view, &scene.said.lock(), "n2", node_id(1), true).unwrap();
        let lost: Vec<_> = forgetting.lost.iter().map(|lost| (lost.to.as_str(), lost.left)).collect();
        assert_eq!((&lost[..], changes.len()), (&[("n1", expected)][..], 2));
    };
    survives(members.clone(), 1, Left::CopyInSync);
    survives(vec![member(2)], 1, Left::OlderCopy);
    survives(Vec::new(), 1, Left::OlderCopy);
    // The recorded copy is not what it was: its machine has lost power.
    survives(members, 99, Left::OlderCopy);
    for (number, shard) in &database.shards {
        let mut named = ShardRecord::clone(&shard.record);
        named.primary = named.assignments.iter().find(|assigned| assigned.node == node_id(1)).unwrap().copy;
        scene.write(Key::Shard(id, *number), &named);
    }
    scene.hear();
    let (_, forgetting) = run(a.forget("n2", node_id(1), false)).unwrap();
    assert!(forgetting.lost.is_empty());
    let view = scene.view();
    let mut shards = view.named("orders").unwrap().1.shards.values();
    assert!(shards.all(|shard| shard.assignments.len() == 1 && shard.primary_node() == Some(node_id(1))));
}

/// A database of one shard, with the primary at n1 and a replica at n2, whose machines have both lost power.
fn after_a_loss_of_power() -> (Scene, Key, ShardRecord) {
    let scene = Scene::new();
    let kept = Definition { shards: 1, replicas: 1, persistence: "everysec".to_owned(), ..definition("orders", GB) };
    run(scene.desk(0).create(&kept)).unwrap();
    let view = scene.view();
    let (id, database) = view.named("orders").unwrap();
    let mut shard = ShardRecord::clone(&database.shards[&ShardNumber(0)].record);
    shard.primary = shard.on(node_id(1)).unwrap().copy;
    let member = |assigned: &Assignment| Member {
        copy: assigned.copy,
        incarnation: Incarnation(assigned.node.0[..8].try_into().unwrap()),
        unknown: Unknown::new(),
    };
    shard.in_sync = shard.assignments.iter().map(member).collect();
    let key = Key::Shard(id, ShardNumber(0));
    scene.write(key, &shard);
    scene.hear();
    let uid = shard_uid(id, ShardNumber(0));
    scene.says((1, shard.on(node_id(1)).unwrap().copy), uid, 101, (1, 90));
    scene.says((2, shard.on(node_id(2)).unwrap().copy), uid, 102, (1, 95));
    (scene, key, shard)
}

#[test]
fn of_two_recoveries_at_once_one_wins_and_the_copy_with_most_goes_on() {
    let (scene, _, before) = after_a_loss_of_power();
    let (a, b) = (scene.desk(0), scene.desk(1));
    let plan = run(a.plan_recover("orders", None, false)).unwrap();
    let found = |recovery: &Recovery| -> Vec<_> {
        let copies = recovery.shards[0].copies.iter();
        let mut found: Vec<_> =
            copies.map(|copy| (copy.node.clone(), copy.is_taken, copy.report.map(|report| report.received))).collect();
        found.sort();
        found
    };
    assert_eq!(found(&plan), [("n1".to_owned(), false, Some(90)), ("n2".to_owned(), true, Some(95))]);
    assert_eq!(scene.view().named("orders").unwrap().1.shards[&ShardNumber(0)].epoch, before.epoch, "it is a plan");

    let (first, second) =
        scene.race(a.recover("orders", None, false), b.recover("orders", Some(ShardNumber(0)), false));
    assert_eq!(first.unwrap().1, plan);
    let second = second.unwrap_err().to_string();
    assert!(
        second.contains("nothing is to be decided") && second.contains("the copy on n2 has every write"),
        "{second}"
    );
    let view = scene.view();
    let now = &view.named("orders").unwrap().1.shards[&ShardNumber(0)];
    assert_eq!((now.primary_node(), now.epoch), (Some(node_id(2)), before.epoch.next()));
    assert_eq!((now.in_sync.len(), now.in_sync[0].incarnation), (1, Incarnation([102; 8])));
    assert_eq!(now.assignments, before.assignments);
    let operation = view.operations.values().find(|operation| operation.kind == OperationKind::Recover).unwrap();
    assert_eq!((operation.target.as_str(), operation.nodes.len(), operation.nodes[0].node), ("orders", 1, node_id(2)));
}

#[test]
fn a_recovery_waits_for_copies_that_may_have_everything_unless_they_are_given_up() {
    let (scene, key, before) = after_a_loss_of_power();
    let recover = |loses_data| run(scene.desk(0).recover("orders", None, loses_data));
    for (name, shard) in [("others", None), ("orders", Some(ShardNumber(7)))] {
        let unknown = run(scene.desk(0).plan_recover(name, shard, false)).unwrap_err();
        assert!(matches!(unknown, ChangeError::NotFound(_)), "{unknown:?}");
    }
    // A copy that runs and loads its dataset, and one whose node does not run.
    let second = scene.said.lock().remove(&node_id(2)).unwrap();
    let silent = recover(false).unwrap_err().to_string();
    assert!(silent.contains("n2 runs, and its copy does not answer") && silent.contains("--lose-data"), "{silent}");
    scene.end(2);
    scene.hear();
    let away = recover(false).unwrap_err().to_string();
    assert!(away.contains("n2 does not run") && away.contains("--lose-data"), "{away}");
    let plan = run(scene.desk(0).plan_recover("orders", None, true)).unwrap();
    let silent: Vec<_> = plan.shards[0].copies.iter().filter(|copy| copy.report.is_none()).collect();
    assert_eq!((silent.len(), silent[0].node.as_str(), silent[0].is_taken), (1, "n2", false));

    // It runs again, and has everything: that is not lost, whatever the operator says.
    scene.set_live(2);
    let answers = scene.said.lock().insert(node_id(2), second);
    assert!(answers.is_none());
    let uid = shard_uid(scene.view().named("orders").unwrap().0, ShardNumber(0));
    scene.says((2, before.on(node_id(2)).unwrap().copy), uid, 2, (1, 80));
    scene.hear();
    for loses_data in [false, true] {
        let refused = recover(loses_data).unwrap_err().to_string();
        assert!(refused.contains("the copy on n2 has every write that was acknowledged"), "{refused}");
    }
    scene.write(key, &ShardRecord { in_sync: Vec::new(), ..before });
    scene.hear();
    let never = recover(true).unwrap_err().to_string();
    assert!(never.contains("has never been served"), "{never}");
}

#[test]
fn without_etcds_answer_a_database_is_there_whole_or_not_at_all() {
    for (fault, count) in [(Fault::LoseAnswer, 1), (Fault::LoseRequest, 0)] {
        let scene = Scene::new();
        scene.twin.order(fault);
        let created = run(scene.desk(0).create(&definition("orders", GB)));
        assert!(matches!(created, Err(ChangeError::Records(RecordsError::Unknown(_)))), "{created:?}");
        let view = scene.view();
        assert_eq!((view.databases.len(), view.operations.len()), (count, count));
        assert!(view.databases.values().all(|database| database.shards.len() == 2 && database.map.is_some()));
    }
}
