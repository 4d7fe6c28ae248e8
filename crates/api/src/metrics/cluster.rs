//! Owns the part of /metrics that is about the cluster, as this node sees it: nodes, shards, etcd, links and certificates. Never asks
//! another node or etcd: the agent has done that.

use super::prometheus::{GAUGE, Page};
use agent::{AlarmKind, Connected, EtcdMember, Seen, Status};
use cluster::records::Role;

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
    page.family("flintkv_cluster_troubles", GAUGE, "What on this node is not as the cluster's records want it.");
    page.sample("flintkv_cluster_troubles", &[], status.troubles.len() + status.view.unreadable.len());
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
}

fn etcd(page: &mut Page, status: &Status, seen: &Seen, quota_bytes: u64) {
    page.family("flintkv_cluster_etcd_up", GAUGE, "1 if this node follows the cluster's records in etcd.");
    page.sample("flintkv_cluster_etcd_up", &[], u8::from(status.etcd_trouble.is_none()));
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
