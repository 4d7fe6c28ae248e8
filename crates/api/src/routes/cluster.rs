//! Owns the cluster as a resource: its nodes, its databases' shards, tokens for joining, and leaving. Never decides anything: `agent` does.

use crate::auth::Role;
use crate::condition::{self, Condition};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::route::{Answer, Method, Route, flag, one};
use agent::{Agent, ChangeError, Forgetting, Left, Placement, Status};
use cluster::names::NodeName;
use cluster::placement::NodeLoad;
use cluster::view::{DatabaseView, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/cluster",
        tag: "Cluster",
        summary: "The cluster that this node is a member of: its nodes, and the shards of its databases.",
        reply: Answer::Json(one::<ClusterInfo>),
        run: show,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/cluster/etcd",
        tag: "Cluster",
        summary: "The members of the cluster's etcd, as they are now. Waits for those that do not answer.",
        reply: Answer::Json(one::<ClusterEtcd>),
        run: etcd,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/cluster/tokens",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Makes a token with which one node can join within an hour. It is shown once.",
        body: Some(one::<JoinTokenRequest>),
        reply: Answer::Created(one::<JoinToken>),
        action: "cluster.token",
        run: token,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/cluster/nodes/{node}",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Removes a node that does not run from the cluster. Its certificate does not count any more.",
        query: &[
            flag(
                "lose_data",
                "true: also if the node has primaries; their shards go on with the best copies that other nodes have, or empty",
            ),
            flag("dry_run", "true: only says what would be lost, and where the shards would go on"),
        ],
        dry_run_reply: Some(one::<ForgetPlan>),
        action: "cluster.forget",
        run: forget,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/cluster/leave",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "This node leaves the cluster. It must have no shards.",
        action: "cluster.leave",
        run: leave,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/cluster/authority",
        tag: "Cluster",
        summary: "The authority of the cluster's certificates, and how far its replacement is.",
        reply: Answer::Json(one::<ClusterAuthority>),
        run: authority,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/cluster/authority/replace",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Makes a new authority, and begins to give every node certificates of it. All nodes must run.",
        action: "cluster.authority.replace",
        run: replace_authority,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/cluster/authority/abandon",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Has the nodes go back to the authority that is being replaced.",
        action: "cluster.authority.abandon",
        run: abandon_authority,
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct ClusterInfo {
    name: String,
    id: String,
    /// The name of the node that answers.
    node: String,
    /// The node that leads: it names primaries, and carries operations out. null: none does, or it is not known.
    leader: Option<String>,
    nodes: Vec<ClusterNode>,
    databases: Vec<ClusterDatabase>,
    /// The node that answers was removed from the cluster, and when if that is known. It serves nothing for it, and knows no more of it.
    removed: Option<String>,
    /// Why etcd cannot be followed at the moment. What is served goes on.
    etcd_trouble: Option<String>,
    /// What on this node is not as it should be.
    troubles: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct ClusterNode {
    id: String,
    name: String,
    zone: String,
    /// data or quorum.
    role: &'static str,
    address: String,
    is_live: bool,
    /// Primaries leave it, and none is named there while another copy can be.
    is_draining: bool,
    version: String,
    ram_bytes: u64,
    flash_bytes: u64,
    ram_placed_bytes: u64,
    flash_placed_bytes: u64,
    /// The copies of shards on it.
    shards: usize,
    /// How many of them are primaries.
    primaries: usize,
    /// How far its clock is ahead of that of the node that answers; below 0: behind it. null: unknown.
    clock_ahead_ms: Option<f64>,
    /// By how much that may be wrong.
    clock_error_ms: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct ClusterDatabase {
    id: String,
    name: String,
    /// creating, serving, paused or deleting.
    state: &'static str,
    port: u16,
    tls_port: u16,
    memory_limit_bytes: u64,
    ram_limit_bytes: u64,
    /// Of each shard.
    replicas: u32,
    shards: Vec<ShardInfo>,
}

/// A shard of a database, and the node that serves it.
#[derive(Serialize, ToSchema)]
pub struct ShardInfo {
    pub number: u16,
    pub node: String,
    pub epoch: u64,
    /// The node has said that it serves the shard, and it runs.
    pub is_served: bool,
    /// How many copies are in sync, on nodes that run.
    pub in_sync: usize,
    /// How many that should be.
    pub copies: usize,
    /// What an operator has to do, because no copy has every acknowledged write and so none becomes the primary by itself. null: nothing.
    pub advice: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ClusterEtcd {
    members: Vec<ClusterEtcdMember>,
    alarms: Vec<String>,
    /// How long the slowest request of the node that answers took in the last 10 to 20 seconds. null: there was none.
    slowest_request_ms: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct ClusterEtcdMember {
    /// The node's name, or etcd's own.
    name: String,
    client_url: String,
    is_leader: bool,
    /// It knows a leader, itself or another one: a majority is there.
    has_leader: bool,
    is_learner: bool,
    version: Option<String>,
    db_bytes: Option<u64>,
    /// Why it does not answer.
    trouble: Option<String>,
}

/// The authority that signs the certificates of nodes.
#[derive(Serialize, ToSchema)]
struct ClusterAuthority {
    /// The SHA-256 of the certificate of the one that has signed this node's certificate.
    fingerprint: String,
    expires_ms: u64,
    /// `null`: it was never replaced.
    replacement: Option<ClusterReplacement>,
}

/// The last replacement of the authority, or the one that is under way.
#[derive(Serialize, ToSchema)]
struct ClusterReplacement {
    /// The fingerprint of the authority that stays.
    to: String,
    by: String,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// The nodes go back to the authority that was to be replaced.
    is_abandoned: bool,
    /// trust: every node trusts both. renew: it gets certificates of the one that stays. drop: it trusts that one alone. null: it has ended.
    step: Option<&'static str>,
    /// What the step still waits for, a sentence for each node.
    waits_for: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct JoinTokenRequest {
    /// The node that joins runs no member of etcd, and does not get the authority's key.
    #[serde(default)]
    no_coordinator: bool,
}

#[derive(Serialize, ToSchema)]
struct JoinToken {
    token: String,
    expires_ms: u64,
    /// A line for a shell on the node that is to join.
    command: String,
}

/// Where the shards of a database would be, and what the nodes would have.
#[derive(Serialize, ToSchema)]
pub struct PlacementInfo {
    port: u16,
    /// What each copy of a shard takes.
    copy_ram_bytes: u64,
    copy_flash_bytes: u64,
    shards: Vec<PlacedShard>,
    nodes: Vec<PlacedNode>,
}

#[derive(Serialize, ToSchema)]
struct PlacedShard {
    number: u16,
    /// The primary's node first.
    nodes: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct PlacedNode {
    name: String,
    /// The copies of the database's shards that the node would have.
    primaries: usize,
    replicas: usize,
    ram_bytes: u64,
    ram_placed_bytes: u64,
    flash_bytes: u64,
    flash_placed_bytes: u64,
}

/// What a node that is gone for good takes with it.
#[derive(Serialize, ToSchema)]
struct ForgetPlan {
    node: String,
    /// The shards of which it has the primary.
    lost: Vec<LostShard>,
    /// What the others would have then.
    nodes: Vec<PlacedNode>,
}

#[derive(Serialize, ToSchema)]
struct LostShard {
    database: String,
    number: u16,
    /// The node that would have the primary then.
    to: String,
    /// What would be left of the shard: `nothing` (it begins empty), `older_copy` (a copy that lacks what was written since it was in sync), or
    /// `copy_in_sync`.
    left: &'static str,
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> ApiError {
        let text = error.to_string();
        match error {
            ChangeError::NoCluster(_) => ApiError::unsupported(text),
            ChangeError::Invalid { field, why } => ApiError::field(field, why),
            ChangeError::Exists(_) => ApiError::exists(text),
            ChangeError::NotFound(_) => ApiError::not_found(text),
            ChangeError::NoRoom(_) => ApiError::no_room(text),
            ChangeError::Busy(_) => ApiError::busy(text),
            ChangeError::Records(_) => ApiError::failed(text),
            ChangeError::Slow(_) => ApiError::timeout(text),
        }
    }
}

/// The agent of a node that is a member.
pub fn agent(cx: &Cx) -> Result<&Agent, ApiError> {
    let agent = cx.app.agent.as_deref().filter(|agent| agent.status().is_ok());
    agent.ok_or_else(|| {
        let why = cx.app.agent.as_ref().and_then(|agent| agent.failure());
        match why {
            Some(why) => ApiError::busy(format!("this node does not work for its cluster: {why}")),
            None => ApiError::unsupported("this node is a member of no cluster")
                .hint("flintkv cluster init NAME begins one, flintkv cluster join joins one"),
        }
    })
}

/// The agent of a node that is a member; `None`: the node is in no cluster. An error if the node is in a cluster and does not work for it, as
/// when it has just started.
pub fn agent_of_member(cx: &Cx) -> Result<Option<&Agent>, ApiError> {
    let Some(known) = cx.app.agent.as_deref() else { return Ok(None) };
    match (agent(cx), known.cluster(), known.failure()) {
        (Ok(agent), ..) => Ok(Some(agent)),
        (Err(_), None, None) => Ok(None),
        (Err(error), _, Some(_)) => Err(error),
        (Err(_), Some(_), None) => {
            Err(ApiError::busy("this node does not work for its cluster yet").hint("try again in a moment"))
        }
    }
}

fn status(cx: &Cx) -> Result<Status, ApiError> {
    agent(cx)?.status().map_err(|error| ApiError::unsupported(error.to_string()))
}

fn show(cx: &Cx) -> Result<Reply, ApiError> {
    if let Some((member, removal)) = cx.app.agent.as_ref().and_then(|agent| agent.removal()) {
        return Reply::json(&ClusterInfo {
            name: member.cluster_name,
            id: member.cluster.to_string(),
            node: member.name.to_string(),
            leader: None,
            nodes: Vec::new(),
            databases: Vec::new(),
            removed: Some(removal.to_string()),
            etcd_trouble: None,
            troubles: vec![format!("{removal}: it serves nothing for it")],
        });
    }
    let status = status(cx)?;
    let view = &*status.view;
    let loads = view.layout(cx.app.node.workers() as u64).loads().unwrap_or_default();
    let connected = agent(cx)?.seen().map(|seen| seen.connected).unwrap_or_default();
    let nodes = view.nodes.iter().map(|(id, node)| {
        let load = loads.iter().find(|load| load.node == *id);
        let clock = connected.get(id).and_then(|connected| connected.clock);
        ClusterNode {
            id: id.to_string(),
            name: node.name.to_string(),
            zone: node.zone.to_string(),
            role: node.role.word(),
            address: node.addresses.peer.to_string(),
            is_live: view.live.contains_key(id),
            is_draining: node.is_draining,
            version: node.versions.flintkv.clone(),
            ram_bytes: node.capacity.ram_bytes,
            flash_bytes: node.capacity.flash_bytes,
            ram_placed_bytes: load.map_or(0, |load| load.placed.ram_bytes),
            flash_placed_bytes: load.map_or(0, |load| load.placed.flash_bytes),
            shards: load.map_or(0, |load| load.copies),
            primaries: load.map_or(0, |load| load.primaries),
            clock_ahead_ms: clock.map(|clock| clock.ahead_us as f64 / 1000.0),
            clock_error_ms: clock.map(|clock| clock.error_us as f64 / 1000.0),
        }
    });
    let databases = view.databases.iter().filter_map(|(id, database)| {
        let spec = database.spec.as_ref()?;
        let known = &spec.definition.known;
        Some(ClusterDatabase {
            id: id.to_string(),
            name: spec.name.to_string(),
            state: state_word(spec.state),
            port: known.port,
            tls_port: known.tls_port,
            memory_limit_bytes: known.memory_limit_bytes,
            ram_limit_bytes: known.ram_limit_bytes,
            replicas: spec.definition().replicas,
            shards: shards(view, database),
        })
    });
    let name_of = |id: &cluster::ids::DatabaseId| {
        let spec = view.databases.get(id).and_then(|database| database.spec.as_ref());
        spec.map_or_else(|| id.to_string(), |spec| spec.name.to_string())
    };
    let troubles = status.troubles.iter().map(|((id, shard), why)| match shard {
        Some(number) => format!("shard {}.{number}: {why}", name_of(id)),
        None => format!("the proxy of '{}': {why}", name_of(id)),
    });
    let node_name =
        |id: &cluster::ids::NodeId| view.nodes.get(id).map_or_else(|| id.to_string(), |node| node.name.to_string());
    let refused = status.refused.iter().map(|(id, why)| format!("no links to node '{}': {why}", node_name(id)));
    let unreadable = view.unreadable.values().map(ToString::to_string);
    Reply::json(&ClusterInfo {
        name: status.member.cluster_name.clone(),
        id: status.member.cluster.to_string(),
        node: status.member.name.to_string(),
        leader: view.leader.as_ref().map(|leader| view.node_name(leader.node)),
        nodes: nodes.collect(),
        databases: databases.collect(),
        removed: None,
        etcd_trouble: status.etcd_trouble.clone(),
        troubles: troubles.chain(refused).chain(unreadable).collect(),
    })
}

fn state_word(state: cluster::records::DatabaseState) -> &'static str {
    use cluster::records::DatabaseState;
    match state {
        DatabaseState::Creating => "creating",
        DatabaseState::Serving => "serving",
        DatabaseState::Paused => "paused",
        DatabaseState::Deleting => "deleting",
    }
}

/// The shards of a database.
pub fn shards(view: &View, database: &DatabaseView) -> Vec<ShardInfo> {
    let copies = database.spec.as_ref().map_or(1, |spec| spec.definition().replicas as usize + 1);
    let name = database.spec.as_ref().map_or("", |spec| spec.name.as_str());
    let shard =
        |(number, shard): (&cluster::ids::ShardNumber, &cluster::view::Revised<cluster::records::ShardRecord>)| {
            ShardInfo {
                number: number.0,
                node: shard.primary_node().map_or_else(String::new, |node| view.node_name(node)),
                epoch: shard.epoch.0.get(),
                is_served: view.is_served(shard),
                in_sync: view.in_sync(shard),
                copies,
                advice: agent::advice(view, name, shard),
            }
        };
    database.shards.iter().map(shard).collect()
}

/// Why clients do not reach some shards of a database.
pub fn unserved(view: &View, shards: &[ShardInfo]) -> Vec<Condition> {
    let mut alike: BTreeMap<(&str, Option<&str>), Vec<u16>> = BTreeMap::new();
    for shard in shards.iter().filter(|shard| !shard.is_served) {
        alike.entry((&shard.node, shard.advice.as_deref())).or_default().push(shard.number);
    }
    let is_live = |name: &str| view.node_named(name).is_some_and(|(id, _)| view.live.contains_key(&id));
    let condition = |((node, advice), numbers): ((&str, Option<&str>), Vec<u16>)| {
        condition::unserved_shards(&numbers, node, is_live(node), advice)
    };
    alike.into_iter().map(condition).collect()
}

fn etcd(cx: &Cx) -> Result<Reply, ApiError> {
    let status = status(cx)?;
    let agent = agent(cx)?;
    let etcd = agent.etcd_status().map_err(ApiError::failed)?;
    let slowest = agent.seen().ok().and_then(|seen| seen.etcd_slowest);
    let node_name = |name: &str| name.parse().map_or_else(|_| name.to_owned(), |id| status.view.node_name(id));
    let members = etcd.members.iter().map(|member| {
        let state = member.status.as_ref();
        ClusterEtcdMember {
            name: node_name(&member.name),
            client_url: member.client_urls.first().cloned().unwrap_or_default(),
            is_leader: state.is_ok_and(|state| state.is_leader),
            has_leader: member.has_leader(),
            is_learner: member.is_learner,
            version: state.ok().map(|state| state.version.clone()),
            db_bytes: state.ok().map(|state| state.db_bytes),
            trouble: state.err().map(ToString::to_string),
        }
    });
    let alarms = etcd.alarms.iter().map(|alarm| format!("{:?} at member {:x}", alarm.kind, alarm.member));
    let slowest_request_ms = slowest.map(|slowest| slowest.as_secs_f64() * 1000.0);
    Reply::json(&ClusterEtcd { members: members.collect(), alarms: alarms.collect(), slowest_request_ms })
}

fn token(cx: &Cx) -> Result<Reply, ApiError> {
    let JoinTokenRequest { no_coordinator } = cx.body()?;
    let token = agent(cx)?.new_token(!no_coordinator)?;
    let status = status(cx)?;
    let port = membership::folder::announced_port(&cx.app.node.config().snapshot());
    let at = membership::folder::host_and_port(&status.member.host, port);
    Reply::created(&JoinToken {
        command: format!("flintkv cluster join {at} --token {}", token.token),
        token: token.token,
        expires_ms: token.expires_ms,
    })
}

fn forget(cx: &Cx) -> Result<Reply, ApiError> {
    let name = cx.param("node").to_owned();
    cx.note(name.clone(), "");
    let (agent, loses_data) = (agent(cx)?, cx.flag("lose_data")?);
    if cx.flag("dry_run")? {
        cx.unaudited();
        return Reply::json(&forget_plan(&agent.plan_forget(&name, loses_data)?));
    }
    let lost = agent.forget(&name, loses_data, &cx.user())?.lost;
    let mut text = format!("node {name} was removed from the cluster");
    for (left, what) in [
        (Left::Nothing, "these shards begin empty"),
        (Left::OlderCopy, "these shards go on with copies that were not in sync"),
        (Left::CopyInSync, "these shards go on with copies in sync"),
    ] {
        let shards = lost.iter().filter(|lost| lost.left == left);
        let shards: Vec<String> = shards.map(|lost| format!("{}.{}", lost.database, lost.number)).collect();
        if !shards.is_empty() {
            text += &format!("; {what}: {}", shards.join(", "));
        }
    }
    cx.note_more(&text);
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

fn leave(cx: &Cx) -> Result<Reply, ApiError> {
    let removed = cx.app.agent.as_deref().and_then(|agent| Some((agent, agent.removal()?.0)));
    let (agent, member) = match removed {
        Some(removed) => removed,
        None => (agent(cx)?, status(cx)?.member),
    };
    cx.note(member.name.to_string(), "");
    agent.leave(&cx.user())?;
    let text = format!("this node has left the cluster '{}'", member.cluster_name);
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

fn authority(cx: &Cx) -> Result<Reply, ApiError> {
    let status = agent(cx)?.authority().map_err(|error| ApiError::unsupported(error.to_string()))?;
    let replacement = status.record.map(|record| ClusterReplacement {
        to: record.target.to_string(),
        by: record.by.clone(),
        started_ms: record.started_ms,
        ended_ms: record.ended_ms,
        is_abandoned: record.is_abandoned,
        step: record.step().map(|step| step.word()),
        waits_for: status.waits_for.iter().map(ToString::to_string).collect(),
    });
    Reply::json(&ClusterAuthority {
        fingerprint: status.now.fingerprint().to_string(),
        expires_ms: status.now.expires_ms,
        replacement,
    })
}

fn replace_authority(cx: &Cx) -> Result<Reply, ApiError> {
    let (agent, name) = (agent(cx)?, status(cx)?.member.cluster_name);
    cx.note(name.clone(), "");
    agent.replace_authority(&cx.user())?;
    let text = format!("the authority of the cluster '{name}' is being replaced");
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

fn abandon_authority(cx: &Cx) -> Result<Reply, ApiError> {
    let (agent, name) = (agent(cx)?, status(cx)?.member.cluster_name);
    cx.note(name.clone(), "");
    agent.abandon_replacement()?;
    let text = format!("the replacement of the authority of the cluster '{name}' is abandoned");
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

/// `shards`: of the database that is placed, with the primary's node first.
fn placed_nodes(loads: &[(NodeName, NodeLoad)], shards: &[PlacedShard]) -> Vec<PlacedNode> {
    let count = |node: &NodeName, is_primary: bool| {
        let position = |shard: &PlacedShard| shard.nodes.iter().position(|name| name == node.as_str());
        shards.iter().filter_map(position).filter(|position| (*position == 0) == is_primary).count()
    };
    let node = |(name, load): &(NodeName, NodeLoad)| PlacedNode {
        name: name.to_string(),
        primaries: count(name, true),
        replicas: count(name, false),
        ram_bytes: load.capacity.ram_bytes,
        ram_placed_bytes: load.placed.ram_bytes,
        flash_bytes: load.capacity.flash_bytes,
        flash_placed_bytes: load.placed.flash_bytes,
    };
    loads.iter().map(node).collect()
}

fn forget_plan(forgetting: &Forgetting) -> ForgetPlan {
    let lost = forgetting.lost.iter().map(|lost| LostShard {
        database: lost.database.to_string(),
        number: lost.number.0,
        to: lost.to.to_string(),
        left: match lost.left {
            Left::Nothing => "nothing",
            Left::OlderCopy => "older_copy",
            Left::CopyInSync => "copy_in_sync",
        },
    });
    ForgetPlan { node: forgetting.node.to_string(), lost: lost.collect(), nodes: placed_nodes(&forgetting.loads, &[]) }
}

pub fn placement(placement: &Placement) -> PlacementInfo {
    let shards = placement.shards.iter().map(|(number, nodes)| PlacedShard {
        number: number.0,
        nodes: nodes.iter().map(|(_, name)| name.to_string()).collect(),
    });
    let shards: Vec<PlacedShard> = shards.collect();
    PlacementInfo {
        port: placement.definition.port,
        copy_ram_bytes: placement.copy.ram_bytes,
        copy_flash_bytes: placement.copy.flash_bytes,
        nodes: placed_nodes(&placement.loads, &shards),
        shards,
    }
}
