//! Owns what a node sees of its cluster, for charts, alerts and /metrics: nodes, shards and their copies, who leads, etcd, links, clocks and
//! certificates. Never asks another node or etcd: the agent has done that.

use super::prometheus::{GAUGE, Page};
use agent::{Agent, AlarmKind, Connected, EtcdMember, Seen, Status};
use cluster::records::{DatabaseState, Role, ShardRecord, SpecRecord};
use cluster::view::View;
use node::metrics::{ClusterFigures, ShardFigures};
use std::collections::BTreeMap;

/// What a member sees at a moment; off a cluster, nothing.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    pub node: Option<ClusterFigures>,
    /// By the names of the cluster's databases. What cannot be known at the moment is missing.
    pub shards: BTreeMap<String, ShardFigures>,
}

impl Sight {
    pub fn of(agent: Option<&Agent>) -> Sight {
        let known = agent.and_then(|agent| Some((agent.status().ok()?, agent.seen().ok()?)));
        known.map_or_else(Sight::default, |(status, seen)| seen_in(&status.view, status.etcd_trouble.is_some(), &seen))
    }
}

/// `etcd_is_away`: then the records may be old, and nothing is said that depends on them.
fn seen_in(view: &View, etcd_is_away: bool, seen: &Seen) -> Sight {
    let answers = seen.etcd.iter().flat_map(|etcd| &etcd.members).filter_map(|member| member.status.as_ref().ok());
    let has_leader: Vec<bool> = answers.map(|status| status.has_leader).collect();
    let gaps = seen.connected.values().filter_map(|connected| connected.clock);
    let node = ClusterFigures {
        etcd_is_away,
        etcd_has_no_leader: (!has_leader.is_empty()).then(|| !has_leader.contains(&true)),
        etcd_slowest_us: seen.etcd_slowest.map(|slowest| slowest.as_micros() as u64),
        nodes_down: (!etcd_is_away).then(|| view.nodes.keys().filter(|id| !view.live.contains_key(id)).count() as u64),
        has_no_controller: (!etcd_is_away).then(|| view.leader.is_none()),
        clocks_apart_us: gaps.map(|gap| gap.certain_us()).max(),
    };
    let databases = view.databases.values().filter(|_| !etcd_is_away).filter_map(|database| {
        let spec = database.spec.as_ref()?;
        // Before it is made and while it is deleted, shards come and go.
        if !matches!(spec.state, DatabaseState::Serving | DatabaseState::Paused) {
            return None;
        }
        let wanted = spec.definition().replicas as usize + 1;
        let mut figures = ShardFigures::default();
        for shard in database.shards.values() {
            let in_sync = view.in_sync(shard);
            figures.down += u64::from(!view.is_served(shard));
            figures.alone += u64::from(wanted > 1 && in_sync < 2);
            figures.copies_out_of_sync += wanted.saturating_sub(in_sync) as u64;
        }
        Some((spec.name.to_string(), figures))
    });
    Sight { node: Some(node), shards: databases.collect() }
}

/// `etcd_quota_bytes`: of this node's configuration, which all members should share.
pub(super) fn cluster(page: &mut Page, status: &Status, seen: &Seen, etcd_quota_bytes: u64) {
    nodes(page, status);
    served(page, status);
    links(page, status, seen);
    etcd(page, status, seen, etcd_quota_bytes);
    let name = "flintkv_cluster_certificate_expiry_timestamp_seconds";
    page.family(name, GAUGE, "When a certificate of this node ends: its own, its etcd's, and the authority's.");
    for (certificate, expires_ms) in &seen.certificates {
        page.sample(name, &[("certificate", certificate)], expires_ms / 1000);
    }
}

fn nodes(page: &mut Page, status: &Status) {
    let info = [("cluster", &*status.member.cluster_name), ("node", status.member.name.as_str())];
    page.family("flintkv_cluster_info", GAUGE, "The cluster that this node is a member of.");
    page.sample("flintkv_cluster_info", &info, 1);
    page.family("flintkv_cluster_node_up", GAUGE, "1 if a node of the cluster runs.");
    for (id, node) in &status.view.nodes {
        let labels = [("node", node.name.as_str()), ("role", node.role.word()), ("zone", node.zone.as_str())];
        page.sample("flintkv_cluster_node_up", &labels, u8::from(status.view.live.contains_key(id)));
    }
    page.family("flintkv_cluster_controller", GAUGE, "1 for the node that leads the cluster: it names primaries.");
    for (id, node) in &status.view.nodes {
        let leads = status.view.leader.as_ref().is_some_and(|leader| leader.node == *id);
        page.sample("flintkv_cluster_controller", &[("node", node.name.as_str())], u8::from(leads));
    }
}

fn served(page: &mut Page, status: &Status) {
    page.family("flintkv_cluster_shard_served", GAUGE, "1 if a shard has an owner that serves it.");
    for database in status.view.databases.values() {
        let Some(spec) = &database.spec else { continue };
        for (number, shard) in &database.shards {
            let node = shard.primary_node().map_or_else(String::new, |node| status.view.node_name(node));
            let labels = [("database", spec.name.as_str()), ("shard", &*number.0.to_string()), ("node", &*node)];
            page.sample("flintkv_cluster_shard_served", &labels, u8::from(status.view.is_served(shard)));
        }
    }
    copies(page, &status.view);
    page.family("flintkv_cluster_troubles", GAUGE, "What on this node is not as the cluster's records want it.");
    page.sample("flintkv_cluster_troubles", &[], status.troubles.len() + status.view.unreadable.len());
}

fn copies(page: &mut Page, view: &View) {
    type Figure = fn(&View, &SpecRecord, &ShardRecord) -> usize;
    let figures: [(&str, &str, Figure); 2] = [
        ("flintkv_cluster_shard_copies", "Copies that a shard should have.", |_, spec, _| {
            spec.definition().replicas as usize + 1
        }),
        (
            "flintkv_cluster_shard_copies_in_sync",
            "Copies of a shard that are in sync, on nodes that run.",
            |view, _, shard| view.in_sync(shard),
        ),
    ];
    for (name, help, of) in figures {
        page.family(name, GAUGE, help);
        for database in view.databases.values() {
            let Some(spec) = database.spec.as_ref().filter(|spec| spec.state != DatabaseState::Deleting) else {
                continue;
            };
            for (number, shard) in &database.shards {
                let labels = [("database", spec.name.as_str()), ("shard", &*number.0.to_string())];
                page.sample(name, &labels, of(view, spec, shard));
            }
        }
    }
}

/// From this node to the other nodes with data.
fn links(page: &mut Page, status: &Status, seen: &Seen) {
    let others =
        status.view.nodes.iter().filter(|(_, node)| node.name != status.member.name && node.role == Role::Data);
    let others: Vec<(&str, Connected)> =
        others.map(|(id, node)| (node.name.as_str(), seen.connected.get(id).copied().unwrap_or_default())).collect();
    page.family("flintkv_cluster_links", GAUGE, "Links from this node to another one: one for each worker.");
    for (peer, connected) in &others {
        page.sample("flintkv_cluster_links", &[("peer", peer)], connected.links);
    }
    let name = "flintkv_cluster_link_round_trip_seconds";
    page.family(name, GAUGE, "How long a message took over a link and back. Missing: none came back.");
    for (peer, connected) in &others {
        if let Some(round_trip) = connected.round_trip {
            page.sample(name, &[("peer", peer)], round_trip.as_secs_f64());
        }
    }
    let name = "flintkv_cluster_clock_ahead_seconds";
    page.family(name, GAUGE, "How far another node's clock is ahead of this one's; below 0: behind it.");
    let clocks = || others.iter().filter_map(|(peer, connected)| Some((peer, connected.clock?)));
    for (peer, clock) in clocks() {
        page.sample(name, &[("peer", peer)], clock.ahead_us as f64 / 1e6);
    }
    let name = "flintkv_cluster_clock_error_seconds";
    page.family(name, GAUGE, "By how much the figure of another node's clock may be wrong.");
    for (peer, clock) in clocks() {
        page.sample(name, &[("peer", peer)], clock.error_us as f64 / 1e6);
    }
}

fn etcd(page: &mut Page, status: &Status, seen: &Seen, quota_bytes: u64) {
    page.family("flintkv_cluster_etcd_up", GAUGE, "1 if this node follows the cluster's records in etcd.");
    page.sample("flintkv_cluster_etcd_up", &[], u8::from(status.etcd_trouble.is_none()));
    if let Some(slowest) = seen.etcd_slowest {
        let name = "flintkv_cluster_etcd_slowest_request_seconds";
        page.family(name, GAUGE, "How long the slowest request to etcd of the last 10 to 20 seconds took.");
        page.sample(name, &[], slowest.as_secs_f64());
    }
    page.family("flintkv_cluster_etcd_quota_bytes", GAUGE, "The size at which etcd refuses changes (etcd-quota).");
    page.sample("flintkv_cluster_etcd_quota_bytes", &[], quota_bytes);
    let Some(etcd) = &seen.etcd else { return };
    let node_name = |name: &str| name.parse().map_or_else(|_| name.to_owned(), |id| status.view.node_name(id));
    type Figure = fn(&EtcdMember) -> Option<u64>;
    let figures: [(&str, &str, Figure); 4] = [
        ("flintkv_cluster_etcd_member_up", "1 if a member of etcd answers.", |member| {
            Some(member.status.is_ok().into())
        }),
        ("flintkv_cluster_etcd_member_leader", "1 for the member of etcd that is the leader.", |member| {
            Some(member.status.as_ref().is_ok_and(|status| status.is_leader).into())
        }),
        ("flintkv_cluster_etcd_member_learner", "1 for a member of etcd that does not vote yet.", |member| {
            Some(member.is_learner.into())
        }),
        ("flintkv_cluster_etcd_db_bytes", "Size of a member's file, which the quota limits.", |member| {
            Some(member.status.as_ref().ok()?.db_bytes)
        }),
    ];
    for (name, help, of) in figures {
        page.family(name, GAUGE, help);
        for member in &etcd.members {
            if let Some(value) = of(member) {
                page.sample(name, &[("member", &node_name(&member.name))], value);
            }
        }
    }
    page.family("flintkv_cluster_etcd_alarms", GAUGE, "Alarms that etcd has raised.");
    for (kind, word) in [(AlarmKind::NoSpace, "no space"), (AlarmKind::Corrupt, "corrupt")] {
        let count = etcd.alarms.iter().filter(|alarm| alarm.kind == kind).count();
        page.sample("flintkv_cluster_etcd_alarms", &[("alarm", word)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::{ClockGap, EtcdError, EtcdMemberStatus, EtcdStatus};
    use cluster::ids::{CopyNumber, DatabaseId, HashSecret, Incarnation, NodeId, ProcessId, ShardNumber};
    use cluster::keys::Key;
    use cluster::records::{
        Assignment, LeaderRecord, LiveRecord, Member, Record, SpecRecord, StoredDefinition, Unknown, encode,
    };
    use std::time::Duration;

    const NODES: [NodeId; 2] = [NodeId([1; 20]), NodeId([2; 20])];
    const ORDERS: DatabaseId = DatabaseId([7; 10]);

    fn put<R: Record>(view: &mut View, key: Key, record: &R) {
        view.apply(&key.to_string(), Some(&encode(key, record).unwrap()), 1);
    }

    fn live(view: &mut View, node: NodeId) {
        let record = LiveRecord { process: ProcessId([5; 8]), place: String::new(), unknown: Unknown::new() };
        put(view, Key::Live(node), &record);
    }

    /// A database whose shard has a copy on each node, of which so many are in sync.
    fn shard(view: &mut View, in_sync: u32) {
        put_shard(view, in_sync, false);
    }

    fn put_shard(view: &mut View, in_sync: u32, is_undecided: bool) {
        let assignments = [0, 1].map(|copy| Assignment::new(CopyNumber(copy), NODES[copy as usize]));
        let mut shard = ShardRecord::new(CopyNumber(0), assignments.to_vec());
        let member =
            |copy| Member { copy: CopyNumber(copy), incarnation: Incarnation([1; 8]), unknown: Unknown::new() };
        shard.in_sync = (0..in_sync).map(member).collect();
        shard.undecided = is_undecided.then_some(shard.epoch);
        put(view, Key::Shard(ORDERS, ShardNumber(0)), &shard);
    }

    fn view() -> View {
        let mut view = View::default();
        for (node, name) in NODES.into_iter().zip(["a", "b"]) {
            let record = membership::issuer::node_record(
                name.parse().unwrap(),
                "default".parse().unwrap(),
                Role::Data,
                "127.0.0.1",
                8380,
            );
            put(&mut view, Key::Node(node), &record.unwrap());
            live(&mut view, node);
        }
        let mut definition = StoredDefinition::default();
        (definition.known.port, definition.known.replicas) = (7000, 1);
        let spec = SpecRecord {
            name: "orders".parse().unwrap(),
            state: DatabaseState::Serving,
            hash_secret: HashSecret([7; 16]),
            config: BTreeMap::new(),
            flushes: 0,
            definition,
            unknown: Unknown::new(),
        };
        put(&mut view, Key::Spec(ORDERS), &spec);
        let leader = LeaderRecord { node: NODES[0], process: ProcessId([5; 8]), unknown: Unknown::new() };
        put(&mut view, Key::Leader, &leader);
        shard(&mut view, 2);
        view
    }

    fn seen() -> Seen {
        Seen { etcd: None, etcd_slowest: None, connected: Default::default(), certificates: Vec::new() }
    }

    fn of_orders(sight: &Sight) -> (u64, u64, u64) {
        let ShardFigures { down, alone, copies_out_of_sync } = sight.shards["orders"];
        (down, alone, copies_out_of_sync)
    }

    #[test]
    fn what_copies_lack_is_what_the_records_say() {
        let mut view = view();
        let now = |view: &View| of_orders(&seen_in(view, false, &seen()));
        assert_eq!(now(&view), (0, 0, 0));
        shard(&mut view, 1);
        assert_eq!(now(&view), (0, 1, 1), "the replica is not in sync");
        shard(&mut view, 2);
        view.live.remove(&NODES[1]);
        assert_eq!(now(&view), (0, 1, 1), "the replica's node does not run");
        let live = std::mem::take(&mut view.live);
        assert_eq!(now(&view), (1, 1, 2), "nobody serves it");
        view.live = live;
        put_shard(&mut view, 2, true);
        assert_eq!(now(&view), (1, 1, 2), "its node runs, and an operator must decide");
    }

    #[test]
    fn nodes_and_controller_are_missed_as_long_as_the_records_are_known() {
        let mut view = view();
        let node = |view: &View, is_away| seen_in(view, is_away, &seen()).node.unwrap();
        let well = ClusterFigures { nodes_down: Some(0), has_no_controller: Some(false), ..ClusterFigures::default() };
        assert_eq!(node(&view, false), well);
        view.live.remove(&NODES[1]);
        view.leader = None;
        let wrong = ClusterFigures { nodes_down: Some(1), has_no_controller: Some(true), ..well };
        assert_eq!(node(&view, false), wrong);
        // Then the records may be old.
        assert_eq!(node(&view, true), ClusterFigures { etcd_is_away: true, ..ClusterFigures::default() });
        assert!(seen_in(&view, true, &seen()).shards.is_empty());
    }

    #[test]
    fn etcd_and_clocks() {
        let of = |seen: &Seen| seen_in(&view(), false, seen).node.unwrap();
        let member = |has_leader: Option<bool>| {
            let said = |has_leader| EtcdMemberStatus {
                version: "3.4".to_owned(),
                is_leader: false,
                has_leader,
                db_bytes: 1,
                db_bytes_in_use: 1,
            };
            let status = has_leader.map(said).ok_or_else(|| EtcdError::Unreachable("refused".to_owned()));
            let (name, urls) = (String::new(), Vec::new());
            EtcdMember { id: 1, name, peer_urls: urls.clone(), client_urls: urls, is_learner: false, status }
        };
        let etcd = |members: &[Option<bool>]| {
            let members = members.iter().map(|has_leader| member(*has_leader)).collect();
            of(&Seen { etcd: Some(EtcdStatus { members, alarms: Vec::new() }), ..seen() }).etcd_has_no_leader
        };
        assert_eq!(etcd(&[Some(true), None, Some(false)]), Some(false));
        assert_eq!(etcd(&[Some(false), None, None]), Some(true));
        assert_eq!(etcd(&[None, None]), None, "nobody answers: that is another alert");
        let gap = |ahead_us, error_us| Connected { clock: Some(ClockGap { ahead_us, error_us }), ..Default::default() };
        let connected = [(NODES[0], gap(-5_000_000, 1_000)), (NODES[1], gap(9_000_000, 8_000_000))].into();
        let found = of(&Seen { connected, etcd_slowest: Some(Duration::from_millis(7)), ..seen() });
        assert_eq!((found.clocks_apart_us, found.etcd_slowest_us), (Some(4_999_000), Some(7_000)));
    }
}
