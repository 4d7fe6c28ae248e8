//! Owns the agent's thread: it waits until the node is a member of a cluster, follows the cluster's records, keeps the node's own records
//! up to date, and has the reconciler called whenever something changed. Never knows what a record asks for.

use crate::controller::{self, Candidate};
use crate::links::{Links, Served};
use crate::lives;
use crate::peers::{Connected, Peers};
use crate::reconcile::Reconciler;
use crate::shard::infos;
use base::clock::wall_ms;
use cluster::failover::CopyAnswer;
use cluster::ids::{DatabaseId, NodeId, ProcessId, ShardNumber, ShardUid, shard_uid};
use cluster::keys::Key;
use cluster::records::{self, Capacity, LiveRecord, NodeRecord, Role, Unknown, Versions};
use cluster::view::View;
use config::Config;
use coord::{Coord, Event, Keeper, Mirror};
use membership::call::{Call, RenewReply};
use membership::folder::{announced_port, host_and_port};
use membership::issuer::{FEATURE_LEVEL, Issuer};
use membership::join::Peer;
use membership::peer::{Answers, LinkHello, PeerTls, serve};
use membership::records::{Change, Records, RecordsError};
use membership::{Folder, Member, etcd_client};
use node::Node;
use parking_lot::{Condvar, Mutex, RwLock};
use pki::{ClusterId, CurrentCredential, Purpose, ShutOut, Trust};
use rand::RngCore;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::{interval, sleep};

/// How often the agent looks whether the node has become a member, or is one no more.
const LOOK: Duration = Duration::from_millis(500);
/// Of the node's record under `live/`.
const LIVE_TTL: Duration = Duration::from_secs(2);
/// Before something is looked at again that is about to be there.
const SOON: Duration = Duration::from_millis(100);
/// Before something is tried again that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How often etcd's members are asked for.
const ENDPOINTS_INTERVAL: Duration = Duration::from_secs(10);
/// How often the node asks itself whether its certificate is to be renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The same, after it was not.
const RENEWAL_AGAIN: Duration = Duration::from_secs(10);
/// How long the reconciler waits at most before it looks at something unfinished again.
const UNFINISHED_PAUSE: Duration = Duration::from_millis(50);

const REMOVED: &str = "the cluster has no record of this node: it was removed";

/// The node is a member of no cluster, or its agent has just started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCluster;

impl std::fmt::Display for NoCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this node is a member of no cluster: see flintkv cluster init and flintkv cluster join")
    }
}

impl std::error::Error for NoCluster {}

/// What a node knows of its cluster.
#[derive(Clone, Debug)]
pub struct Status {
    pub member: Member,
    pub view: Arc<View>,
    /// Why etcd cannot be followed at the moment.
    pub etcd_trouble: Option<String>,
    /// Why something on this node is not as it should be.
    pub troubles: BTreeMap<(DatabaseId, Option<ShardNumber>), String>,
    /// Why no links can be made to some nodes.
    pub refused: BTreeMap<NodeId, String>,
}

/// etcd's members as they are now.
#[derive(Clone, Debug)]
pub struct EtcdStatus {
    pub members: Vec<coord::etcd::maintenance::Member>,
    pub alarms: Vec<coord::etcd::maintenance::Alarm>,
}

/// What the agent has last seen of the cluster beside its records: for figures, which wait for nothing.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `None`: etcd did not answer, or has not been asked yet.
    pub etcd: Option<EtcdStatus>,
    pub connected: HashMap<NodeId, Connected>,
    /// This node's certificates, and when each ends.
    pub certificates: Vec<(&'static str, u64)>,
}

/// What the thread and its askers share.
struct Shared {
    /// `None`: the node only votes.
    node: Option<Arc<Node>>,
    peer_port: u16,
    announced_port: u16,
    /// What links carry is TLS.
    peer_tls: bool,
    folder: Folder,
    /// `None`: the node is no member.
    membership: RwLock<Option<Arc<Membership>>>,
    /// True: the agent ends.
    stop: watch::Sender<bool>,
    /// Why the node is a member and does not do its work.
    failure: Mutex<Option<String>>,
    /// Of which cluster the node is a member, by its files, whether it works for it or not.
    cluster: RwLock<Option<ClusterId>>,
}

/// The node's directory of its membership, locked. Nobody else works with it.
struct StateDirectory {
    /// The machine's boot, and the directory.
    name: String,
    _lock: File,
}

impl StateDirectory {
    fn take(folder: &Folder) -> Result<StateDirectory, String> {
        let about = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.path().display());
        let lock = File::open(folder.path()).map_err(|error| about(&error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => about(&"another process of this node uses it"),
            TryLockError::Error(error) => about(&error),
        })?;
        let found = lock.metadata().map_err(|error| about(&error))?;
        // Without it, a process that was killed is waited for as one elsewhere.
        Ok(StateDirectory { name: format!("{} {} {}", lives::boot(), found.dev(), found.ino()), _lock: lock })
    }
}

/// As long as the node is a member.
pub(crate) struct Membership {
    /// Changes with etcd's endpoints.
    issuer: RwLock<Arc<Issuer>>,
    peers: Arc<Peers>,
    served: Arc<Served>,
    /// `None`: there is nothing here that a link could reach.
    links: Option<Links>,
    pub(crate) me: NodeId,
    /// This run of the node.
    process: ProcessId,
    place: StateDirectory,
    view: watch::Sender<Arc<View>>,
    etcd_trouble: Mutex<Option<String>>,
    etcd_status: Mutex<Option<EtcdStatus>>,
    troubles: Mutex<BTreeMap<(DatabaseId, Option<ShardNumber>), String>>,
    /// Wakes the reconciler.
    changed: Condvar,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    is_changed: bool,
    is_over: bool,
}

/// A node's agent. Dropping it ends what the node does for the cluster, not its membership.
pub struct Agent {
    shared: Arc<Shared>,
    runtime: Handle,
    thread: Option<JoinHandle<()>>,
    /// Sessions of the console whose end the other nodes do not know yet.
    pub(crate) ending: Arc<AtomicUsize>,
}

impl Agent {
    /// Of a node that keeps data.
    pub fn start(node: &Arc<Node>) -> io::Result<Agent> {
        Agent::start_with(&node.config().snapshot(), Some(Arc::clone(node)))
    }

    /// Of a node that only votes: it admits others, and shows that it runs.
    pub fn start_quorum(config: &Config) -> io::Result<Agent> {
        Agent::start_with(config, None)
    }

    fn start_with(config: &Config, node: Option<Arc<Node>>) -> io::Result<Agent> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let folder = Folder::of(config);
        // Damage is told by the thread.
        let cluster = folder.member().ok().flatten().map(|member| member.cluster);
        let shared = Arc::new(Shared {
            node,
            peer_port: config.peer_port,
            announced_port: announced_port(config),
            peer_tls: config.peer_tls,
            folder,
            cluster: RwLock::new(cluster),
            membership: RwLock::default(),
            stop: watch::Sender::new(false),
            failure: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let run = move || {
            runtime.block_on(run(&of_thread));
            // Its tasks keep nothing that somebody waits for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("agent".to_owned()).spawn(run)?;
        Ok(Agent { shared, runtime: handle, thread: Some(thread), ending: Arc::default() })
    }

    /// What the node knows of its cluster.
    pub fn status(&self) -> Result<Status, NoCluster> {
        let membership = self.membership()?;
        let etcd_trouble = membership.etcd_trouble.lock().clone();
        let troubles = membership.troubles.lock().clone();
        let view = membership.view.borrow().clone();
        let (member, refused) = (membership.issuer.read().member.clone(), membership.peers.refused());
        Ok(Status { member, view, etcd_trouble, troubles, refused })
    }

    /// Of which cluster the node is a member, by its files: it may not know the cluster's records yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        *self.shared.cluster.read()
    }

    /// The cluster's records. `None`: they are not known yet.
    pub fn view(&self) -> Option<Arc<View>> {
        // Before the first list nothing is known, which is not the same as nothing being there.
        self.membership().ok().map(|membership| membership.view()).filter(|view| !view.nodes.is_empty())
    }

    /// Why the node is a member and does not do its work.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().clone()
    }

    /// Operators ask nodes that keep data: only these have an API.
    pub(crate) fn node(&self) -> &Arc<Node> {
        self.shared.node.as_ref().expect("the node keeps data")
    }

    pub(crate) fn membership(&self) -> Result<Arc<Membership>, NoCluster> {
        self.shared.membership.read().clone().ok_or(NoCluster)
    }

    /// Waits for work of the agent's runtime, from a thread that may wait.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Work that nobody waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(work));
    }

    /// INFO of each shard of a database, by number. An error: why the shard has not answered.
    pub fn shard_infos(&self, id: DatabaseId, section: &str) -> Result<Vec<Result<String, String>>, NoCluster> {
        let shards = self.membership()?.served.shards(id);
        Ok(infos(self.node(), &self.runtime, shards, section))
    }

    /// What the nodes of a database's shards say of their copies. Waits; a node that does not answer is missing.
    pub fn shard_copies(&self, id: DatabaseId) -> Result<BTreeMap<NodeId, Vec<CopyAnswer>>, NoCluster> {
        let membership = self.membership()?;
        let view = membership.view();
        let mut asked: BTreeMap<NodeId, Vec<ShardUid>> = BTreeMap::new();
        let shards = view.databases.get(&id).into_iter().flat_map(|database| &database.shards);
        for (&number, record) in shards.filter(|(_, record)| record.assignments.len() > 1) {
            for assigned in record.assignments.iter().filter(|assigned| view.live.contains_key(&assigned.node)) {
                asked.entry(assigned.node).or_default().push(shard_uid(id, number));
            }
        }
        Ok(self.wait(controller::ask(&membership.issuer(), &view, asked)))
    }

    /// Asks etcd. Waits.
    pub fn etcd_status(&self) -> Result<EtcdStatus, String> {
        let issuer = self.membership().map_err(|error| error.to_string())?.issuer();
        self.wait(async { ask_etcd(&issuer).await.map_err(|error| format!("etcd: {error}")) })
    }

    /// What the agent has last seen. Does not wait.
    pub fn seen(&self) -> Result<Seen, NoCluster> {
        let membership = self.membership()?;
        let issuer = membership.issuer();
        let credential = issuer.current.get();
        let mut certificates =
            vec![("node", credential.identity().expires_ms), ("authority", credential.authority().expires_ms)];
        // What cannot be read is told by those who need it.
        certificates.extend(issuer.folder.etcd_identity().ok().flatten().map(|etcd| ("etcd", etcd.expires_ms)));
        let etcd = membership.etcd_status.lock().clone();
        Ok(Seen { etcd, connected: membership.peers.connected(), certificates })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the agent's thread panicked");
        }
    }
}

impl Membership {
    pub(crate) fn issuer(&self) -> Arc<Issuer> {
        Arc::clone(&self.issuer.read())
    }

    pub(crate) fn records(&self) -> Records {
        self.issuer.read().records.clone()
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    fn candidate(self: &Arc<Self>, role: Role) -> Candidate {
        let membership = Arc::clone(self);
        Candidate {
            role,
            me: self.me,
            process: self.process,
            view: self.view.subscribe(),
            issuer: Box::new(move || membership.issuer()),
        }
    }

    pub(crate) fn view_receiver(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// Waits until the view is as wanted.
    pub(crate) async fn view_when(&self, is_wanted: impl Fn(&View) -> bool) -> Arc<View> {
        let mut view = self.view.subscribe();
        view.wait_for(|view| is_wanted(view)).await.expect("the membership has the sender").clone()
    }

    fn wake_reconciler(&self) {
        self.pending.lock().is_changed = true;
        self.changed.notify_one();
    }
}

impl Answers for Membership {
    fn issuer(&self) -> Arc<Issuer> {
        Membership::issuer(self)
    }

    fn copies(&self, shards: &[ShardUid]) -> Vec<CopyAnswer> {
        shards.iter().filter_map(|shard| self.served.ask_copy(*shard)).collect()
    }

    fn link(&self, hello: LinkHello) {
        match (hello.detach(), &self.links) {
            (Ok(hello), Some(links)) => links.attend(hello),
            (Ok(_), None) => tracing::info!("another node asks for a link, and this node keeps no data"),
            (Err(error), _) => tracing::warn!("a link of another node was not accepted: {error}"),
        }
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits, but not longer than until the agent is to end.
    async fn pause(&self, duration: Duration) {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            () = sleep(duration) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

async fn run(shared: &Arc<Shared>) {
    while !shared.is_stopping() {
        match shared.folder.member() {
            Ok(None) => {
                *shared.failure.lock() = None;
                *shared.cluster.write() = None;
            }
            Ok(Some(member)) => {
                *shared.cluster.write() = Some(member.cluster);
                let ended = be_member(shared, member).await;
                *shared.membership.write() = None;
                note(shared, ended);
            }
            Err(error) => note(shared, Err(error.to_string())),
        }
        shared.pause(LOOK).await;
    }
}

fn note(shared: &Shared, outcome: Result<(), String>) {
    let mut failure = shared.failure.lock();
    let now = outcome.err();
    if let Some(why) = now.as_ref().filter(|why| failure.as_ref() != Some(why)) {
        tracing::error!("this node does not work for its cluster: {why}");
    }
    *failure = now;
}

/// Until the agent ends, or the node is a member no more.
async fn be_member(shared: &Arc<Shared>, member: Member) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let place = StateDirectory::take(&shared.folder)?;
    let credential = shared.folder.credential(wall_ms()).map_err(|error| text(&error))?;
    let authorities = member.authorities.iter().map(|pem| pki::AuthorityCertificate::from_pem(pem));
    let authorities = authorities.collect::<Result<_, _>>().map_err(|error| text(&error))?;
    let trust = Trust::new(authorities).map_err(|error| text(&error))?;
    let etcd = etcd_client(&member, &credential, &member.etcd.endpoints).map_err(|error| text(&error))?;
    let current = CurrentCredential::new(credential);
    let me: NodeId = member.node.to_string().parse().map_err(|error| text(&error))?;
    let peers = Peers::new(Arc::clone(&current), Arc::clone(&trust), shared.peer_tls);
    let served = Arc::new(Served::default());
    let records = Records::new(Arc::new(etcd.clone()), member.cluster);
    let issuer = Issuer {
        folder: shared.folder.clone(),
        records,
        etcd,
        current: Arc::clone(&current),
        trust: Arc::clone(&trust),
        member: member.clone(),
    };
    let membership = Arc::new(Membership {
        issuer: RwLock::new(Arc::new(issuer)),
        peers,
        links: shared.node.as_ref().map(|node| Links {
            node: Arc::downgrade(node),
            served: Arc::clone(&served),
            trust: Arc::clone(&trust),
            next: AtomicUsize::new(0),
        }),
        served,
        me,
        process: random_process(),
        place,
        view: watch::Sender::new(Arc::default()),
        etcd_trouble: Mutex::default(),
        etcd_status: Mutex::default(),
        troubles: Mutex::default(),
        changed: Condvar::new(),
        pending: Mutex::default(),
    });
    let listener = listen(shared, &member).await?;
    *shared.failure.lock() = None;
    *shared.membership.write() = Some(Arc::clone(&membership));
    tracing::info!("this node is '{}' of the cluster '{}'", member.name, member.cluster_name);
    let tls = PeerTls::new(&current, &trust, shared.peer_tls);
    let port = tokio::spawn(serve(listener, tls, Arc::clone(&membership) as Arc<dyn Answers>));
    let reconciler = match &shared.node {
        Some(node) => Some(start_reconciler(shared, node, &membership).map_err(|error| text(&error))?),
        None => None,
    };
    let candidate = membership.candidate(member.role);
    tokio::select! {
        () = is_over(shared, &member) => {}
        () = follow(&membership) => {}
        () = keep_alive(&membership) => {}
        () = keep_node_record(shared, &membership) => {}
        () = keep_endpoints(&membership) => {}
        () = keep_certificates(&membership) => {}
        () = controller::lead(&candidate) => {}
    }
    port.abort();
    membership.pending.lock().is_over = true;
    membership.changed.notify_one();
    let Some(reconciler) = reconciler else { return Ok(()) };
    // It may be waiting for etcd, which needs this runtime's thread.
    while !reconciler.is_finished() {
        sleep(UNFINISHED_PAUSE).await;
    }
    reconciler.join().map_err(|_| "a bug: the reconciler panicked".to_owned())
}

/// The port for other nodes. Another process may still have it, so this is tried until the agent ends.
async fn listen(shared: &Shared, member: &Member) -> Result<TcpListener, String> {
    let port = shared.peer_port;
    let ip = match member.host.parse::<IpAddr>() {
        Ok(ip) => ip,
        // A name stands for whatever addresses the machine has.
        Err(_) if TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await.is_ok() => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let listener = TcpListener::bind((ip, port)).await;
    listener.map_err(|error| format!("the peer-port {}: {error}", host_and_port(&ip.to_string(), port)))
}

async fn is_over(shared: &Shared, member: &Member) {
    loop {
        shared.pause(LOOK).await;
        let is_member = match shared.folder.member() {
            Ok(found) => found.is_some_and(|found| found.node == member.node),
            // It is being written, or is damaged now: what was known before holds.
            Err(_) => true,
        };
        if shared.is_stopping() || !is_member {
            return;
        }
    }
}

/// Keeps the view up to date.
async fn follow(membership: &Arc<Membership>) {
    loop {
        let issuer = membership.issuer();
        let mut mirror = Mirror::new(Arc::clone(&issuer.records.coord), issuer.records.prefix());
        // A new mirror begins with a list, and so with an empty view.
        let mut view = View::default();
        let mut shut_out: BTreeMap<String, ShutOut> = BTreeMap::new();
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                events = mirror.next() => {
                    for event in events {
                        apply(&event, issuer.records.prefix(), &mut view, &mut shut_out);
                    }
                    let list: Vec<ShutOut> = shut_out.values().copied().collect();
                    issuer.trust.set_shut_out(&list);
                    let addresses = view.nodes.iter().map(|(id, node)| (*id, node.addresses.peer.as_str().to_owned()));
                    membership.peers.set_addresses(addresses.collect::<HashMap<_, _>>());
                    membership.view.send_replace(Arc::new(view.clone()));
                    membership.wake_reconciler();
                }
                _ = look.tick() => {}
            }
            *membership.etcd_trouble.lock() = mirror.trouble().map(str::to_owned);
            if !Arc::ptr_eq(&issuer, &membership.issuer.read()) {
                break;
            }
        }
    }
}

fn apply(event: &Event, prefix: &str, view: &mut View, shut_out: &mut BTreeMap<String, ShutOut>) {
    let (key, bytes) = match event {
        Event::Put(entry) => (&entry.key, Some(&*entry.value)),
        Event::Deleted { key, .. } => (key, None),
    };
    let Some(key) = key.strip_prefix(prefix) else { return };
    view.apply(key, bytes, event.revision());
    if key.starts_with("shut_out/") {
        match bytes.map(serde_json::from_slice) {
            Some(Ok(record)) => drop(shut_out.insert(key.to_owned(), record)),
            Some(Err(error)) => tracing::error!("the record {key} cannot be read: {error}"),
            None => drop(shut_out.remove(key)),
        }
    }
}

fn random_process() -> ProcessId {
    let mut bytes = [0; 8];
    rand::rng().fill_bytes(&mut bytes);
    ProcessId(bytes)
}

/// Keeps the record that says that this process runs. A second process with the node's id finds it and does nothing.
async fn keep_alive(membership: &Arc<Membership>) {
    let mut told = String::new();
    loop {
        match keep_alive_once(membership).await {
            Ok(why) => tracing::debug!("the lease of this node has ended: {why}"),
            Err(why) if why == told => {}
            Err(why) => {
                tracing::warn!("this node is not shown as alive: {why}");
                told = why;
            }
        }
        sleep(AGAIN).await;
    }
}

async fn keep_alive_once(membership: &Membership) -> Result<String, String> {
    let issuer = membership.issuer();
    let key = Key::Live(membership.me);
    let name = key.to_string();
    let (process, place) = (membership.process, membership.place.name.clone());
    let record = LiveRecord { process, place, unknown: Unknown::new() };
    let bytes = records::encode(key, &record).map_err(|error| error.to_string())?;
    let view = membership.view();
    if !view.nodes.is_empty() && !view.nodes.contains_key(&membership.me) {
        return Err(REMOVED.to_owned());
    }
    let found: Option<(LiveRecord, _)> = issuer.records.get(&name).await.map_err(|error| error.to_string())?;
    let revision = match found {
        // Of the same place: this process has the lock, so the other one has ended.
        Some((other, _)) if other.process != process && other.place != record.place => {
            return Err(format!(
                "node {} runs elsewhere, or has just ended there. Nothing is served here meanwhile. If it does not go away, this \
                 state-dir is a copy: begin with an empty one",
                membership.me
            ));
        }
        Some((_, revision)) => revision,
        None => 0,
    };
    let lease = issuer.etcd.grant(LIVE_TTL).await.map_err(|error| error.to_string())?;
    let change = Change::default().given(&name, revision).put_leased(&name, bytes, lease.id);
    match issuer.records.change(change).await {
        Ok(_) => {}
        Err(error) => return Err(error.to_string()),
    }
    let keeper = Keeper::start(Arc::new(issuer.etcd.apart()), lease, || true).map_err(|error| error.to_string())?;
    Ok(format!("{:?}", keeper.lost().await))
}

/// Says what this node has, and again when that has changed.
async fn keep_node_record(shared: &Shared, membership: &Membership) {
    let mut told = String::new();
    loop {
        match write_node_record(shared, membership).await {
            Ok(is_written) => {
                told.clear();
                sleep(if is_written { ENDPOINTS_INTERVAL } else { SOON }).await;
                continue;
            }
            Err(why) if why == told => {}
            Err(why) => {
                tracing::warn!("the record of this node is not up to date: {why}");
                told = why;
            }
        }
        sleep(AGAIN).await;
    }
}

/// False: there is no record yet.
async fn write_node_record(shared: &Shared, membership: &Membership) -> Result<bool, String> {
    let issuer = membership.issuer();
    // A copy of the node must not say where the node is.
    if membership.view().live.get(&membership.me).is_none_or(|live| live.process != membership.process) {
        return Ok(false);
    }
    let key = Key::Node(membership.me);
    let name = key.to_string();
    let found: Option<(NodeRecord, _)> = issuer.records.get(&name).await.map_err(|error| error.to_string())?;
    let Some((before, revision)) = found else {
        // Before init has written the first records, there is no record at all.
        let is_removed = !membership.view().nodes.is_empty();
        return if is_removed { Err(REMOVED.to_owned()) } else { Ok(false) };
    };
    let mut now = before.clone();
    let (ram_bytes, flash_bytes) = shared.node.as_deref().map_or((0, 0), room_for_copies);
    now.capacity = Capacity { ram_bytes, flash_bytes, unknown: before.capacity.unknown.clone() };
    now.versions = Versions { flintkv: env!("CARGO_PKG_VERSION").to_owned(), unknown: before.versions.unknown.clone() };
    now.feature_level = FEATURE_LEVEL;
    now.addresses.peer =
        host_and_port(&issuer.member.host, shared.announced_port).parse().map_err(|error| format!("{error}"))?;
    if now == before {
        return Ok(true);
    }
    let bytes = records::encode(key, &now).map_err(|error| error.to_string())?;
    match issuer.records.change(Change::default().given(&name, revision).put_bytes(&name, bytes)).await {
        Ok(_) => Ok(true),
        Err(RecordsError::Conflict | RecordsError::Unknown(_)) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// RAM and flash of the node without what its own databases have.
fn room_for_copies(node: &Node) -> (u64, u64) {
    let room = node.capacity();
    let is_own = |name: &str| node.database(name).is_some_and(|database| !database.is_of_cluster());
    let own = room.by_database.iter().filter(|(name, ..)| is_own(name));
    let (ram, flash) = own.fold((0, 0), |(ram, flash), (_, of_ram, of_flash)| (ram + of_ram, flash + of_flash));
    let has_flash = !node.config().snapshot().flash_paths.is_empty();
    // Free space changes all the time, and each change of a record goes to all nodes.
    let round = |bytes: u64| bytes >> 28 << 28;
    (
        round(room.ram_bytes.saturating_sub(ram)),
        if has_flash { round(room.flash_bytes.saturating_sub(flash)) } else { 0 },
    )
}

async fn ask_etcd(issuer: &Issuer) -> Result<EtcdStatus, coord::Error> {
    Ok(EtcdStatus { members: issuer.etcd.members().await?, alarms: issuer.etcd.alarms().await? })
}

/// Follows etcd's members, and keeps their addresses for the next start.
async fn keep_endpoints(membership: &Membership) {
    loop {
        sleep(ENDPOINTS_INTERVAL).await;
        let issuer = membership.issuer();
        let status = ask_etcd(&issuer).await.ok();
        let endpoints = status.as_ref().and_then(|status| issuer.changed_endpoints(&status.members));
        *membership.etcd_status.lock() = status;
        let Some(endpoints) = endpoints else { continue };
        match issuer.reconnected(endpoints) {
            Ok(reconnected) => {
                if let Err(error) = reconnected.folder.write_member(&reconnected.member) {
                    tracing::warn!("{error}");
                }
                *membership.issuer.write() = Arc::new(reconnected);
            }
            Err(error) => tracing::warn!("etcd's endpoints have changed, and cannot be used: {error}"),
        }
    }
}

/// Renews the certificates of the node and of its etcd in time.
async fn keep_certificates(membership: &Membership) {
    // Before the first list it is not known whom to ask.
    membership.view_when(|view| !view.nodes.is_empty()).await;
    let mut told = String::new();
    loop {
        let mut pause = RENEWAL_INTERVAL;
        for purpose in [Purpose::Node, Purpose::Etcd] {
            if let Err(why) = renew(membership, purpose).await {
                pause = RENEWAL_AGAIN;
                if why != told {
                    tracing::warn!("the certificate of this node ({purpose:?}) was not renewed: {why}");
                    told = why;
                }
            }
        }
        sleep(pause).await;
    }
}

async fn renew(membership: &Membership, purpose: Purpose) -> Result<(), String> {
    let issuer = membership.issuer();
    let now = match purpose {
        Purpose::Node => Some(*issuer.current.get().identity()),
        Purpose::Etcd => issuer.folder.etcd_identity().map_err(|error| error.to_string())?,
    };
    if !now.is_some_and(|identity| identity.needs_renewal(wall_ms())) {
        return Ok(());
    }
    let key = pki::NodeKey::generate();
    let question = || {
        Call::Renew(pki::IssueRequest {
            purpose,
            addresses: membership::init::certificate_addresses(&issuer.member.host),
            request: key.request(),
            clock_ms: wall_ms(),
        })
    };
    let mut why = "no node has the authority's key".to_owned();
    let view = membership.view();
    for node in view.nodes.values() {
        let peer = Peer {
            at: node.addresses.peer.as_str().to_owned(),
            current: Arc::clone(&issuer.current),
            trust: Arc::clone(&issuer.trust),
        };
        match peer.ask_raw::<Call, RenewReply>(&question()).await {
            Ok(Ok(answer)) => {
                let authority = answer.authorities.first().map(|pem| pki::AuthorityCertificate::from_pem(pem));
                let Some(Ok(authority)) = authority else { continue };
                let renewed = pki::Credential::new(&key, &answer.certificate, &authority, wall_ms());
                let renewed = renewed.map_err(|error| error.to_string())?;
                match purpose {
                    Purpose::Node => {
                        issuer.folder.write_credential(&renewed).map_err(|error| error.to_string())?;
                        issuer.current.replace(renewed).map_err(|error| error.to_string())?;
                    }
                    // etcd reads the file at each handshake.
                    Purpose::Etcd => {
                        issuer.folder.write_etcd_credential(&renewed).map_err(|error| error.to_string())?;
                    }
                }
                tracing::info!("the certificate of this node ({purpose:?}) was renewed");
                return Ok(());
            }
            Ok(Err(error)) => why = format!("{}: {error}", peer.at),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn start_reconciler(
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    membership: &Arc<Membership>,
) -> io::Result<JoinHandle<()>> {
    let mut reconciler = Reconciler {
        node: Arc::clone(node),
        me: membership.me,
        process: membership.process,
        was_live: false,
        was_member: false,
        records: Arc::new(RwLock::new(membership.records())),
        view: membership.view.subscribe(),
        runtime: Handle::current(),
        peers: Arc::clone(&membership.peers),
        served: Arc::clone(&membership.served),
        proxy_ram_bytes: node.config().snapshot().proxy_ram_bytes,
        wake: {
            let membership = Arc::downgrade(membership);
            Arc::new(move || {
                if let Some(membership) = membership.upgrade() {
                    membership.wake_reconciler();
                }
            })
        },
        others: Arc::default(),
        local: BTreeMap::new(),
        troubles: BTreeMap::new(),
    };
    let (shared, membership) = (Arc::clone(shared), Arc::clone(membership));
    let run = move || {
        let mut is_unfinished = false;
        loop {
            {
                let mut pending = membership.pending.lock();
                let begun = Instant::now();
                while !pending.is_changed && !pending.is_over && !is_unfinished && begun.elapsed() < AGAIN {
                    // Clients change users and settings at a proxy without a word to this thread.
                    if reconciler.has_changes() {
                        break;
                    }
                    membership.changed.wait_for(&mut pending, UNFINISHED_PAUSE);
                }
                if is_unfinished && !pending.is_changed {
                    membership.changed.wait_for(&mut pending, UNFINISHED_PAUSE);
                }
                if pending.is_over {
                    break;
                }
                pending.is_changed = false;
            }
            let view = membership.view();
            // Before the first list nothing is known, which is not the same as nothing being there.
            if view.nodes.is_empty() {
                continue;
            }
            *reconciler.records.write() = membership.records();
            is_unfinished = reconciler.step(&view);
            *membership.troubles.lock() = reconciler.troubles.clone();
        }
        // At the node's end the node closes them itself.
        match shared.is_stopping() {
            true => reconciler.end_roles(),
            false => reconciler.close_all(),
        }
    };
    std::thread::Builder::new().name("reconciler".to_owned()).spawn(run)
}
