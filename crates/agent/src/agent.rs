//! Owns the agent's thread: it waits until the node is a member of a cluster, follows the cluster's records, keeps the node's own records
//! up to date, and has the reconciler called whenever something changed. Never knows what a record asks for.

use crate::api_port::{ApiHello, ApiPort};
use crate::authority::{CertificatesView, Part};
use crate::calls;
use crate::candidate::Candidate;
use crate::controller;
use crate::endpoints;
use crate::links::{Links, Served};
use crate::lives;
use crate::peers::{Connected, Peers};
use crate::reconcile::Reconciler;
use crate::shard::ask_all;
use base::clock::wall_ms;
use cluster::failover::CopyAnswer;
use cluster::ids::{CopyNumber, DatabaseId, Epoch, NodeId, ProcessId, ShardNumber, ShardUid, shard_uid};
use cluster::keys::Key;
use cluster::records::{self, Capacity, LiveRecord, NodeRecord, Role, Unknown, Versions};
use cluster::view::{Revised, View};
use config::Config;
use coord::{Coord, Event, Keeper, Mirror};
use membership::api_stream::{ApiStream, ApiUnreachable};
use membership::call::{Call, HandingOver, NodeCalls, RenewReply, Reply};
use membership::folder::{announced_port, host_and_port};
use membership::issuer::{FEATURE_LEVEL, Issuer};
use membership::join::Peer;
use membership::peer::{Answers, PeerHello, PeerTls, serve};
use membership::records::{Change, Records, RecordsError};
use membership::standing::ask_neighbours;
use membership::{Folder, Member, Neighbours, Removal, etcd_client};
use node::Node;
use parking_lot::{Condvar, Mutex, RwLock};
use pki::{ClusterId, CurrentCredential, Fingerprint, Purpose, ShutOut};
use rand::RngCore;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::{File, TryLockError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};
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

/// How long etcd may be away before other nodes are asked whether it only refuses this node. Twice as long each time that none says so.
const STANDING_PAUSE: Duration = Duration::from_secs(3);
const STANDING_PAUSE_MAX: Duration = Duration::from_secs(48);
/// How often a node that was removed looks whether etcd knows it again, as after a restored backup.
const RETURN_INTERVAL: Duration = Duration::from_secs(300);
/// Nodes that are kept to be asked when etcd does not answer: one that runs is enough.
const NEIGHBOURS_MAX: usize = 32;
/// Nodes that are kept as shut out, the last ones. Older certificates end by themselves.
const SHUT_OUT_MAX: usize = 256;

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
    /// How long the slowest request to etcd took lately. `None`: nothing was asked.
    pub etcd_slowest: Option<Duration>,
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
    api_port: Arc<ApiPort>,
    /// `None`: the node is no member.
    membership: RwLock<Option<Arc<Membership>>>,
    /// See [`Agent::restarts`].
    restarts: Arc<AtomicBool>,
    /// True: the agent ends.
    stop: watch::Sender<bool>,
    /// Why the node is a member and does not do its work.
    failure: Mutex<Option<String>>,
    /// The node's files say that it is a member, and its cluster says that it is not.
    removal: Mutex<Option<(Member, Removal)>>,
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
    api_port: Arc<ApiPort>,
    /// `None`: there is nothing here that a link could reach.
    links: Option<Links>,
    pub(crate) me: NodeId,
    /// This run of the node.
    process: ProcessId,
    place: StateDirectory,
    view: watch::Sender<Arc<View>>,
    certificates: watch::Sender<Arc<CertificatesView>>,
    etcd_trouble: Mutex<Option<String>>,
    etcd_status: Mutex<Option<EtcdStatus>>,
    troubles: Mutex<BTreeMap<(DatabaseId, Option<ShardNumber>), String>>,
    /// Wakes the reconciler.
    changed: Condvar,
    pending: Mutex<Pending>,
    /// An operator has asked the node to leave.
    pub(crate) is_leaving: AtomicBool,
    /// See [`Agent::restarts`].
    restarts: Arc<AtomicBool>,
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
        let restarts = node.as_ref().map_or_else(Arc::default, |node| Arc::clone(node.begins_anew()));
        let shared = Arc::new(Shared {
            node,
            peer_port: config.peer_port,
            announced_port: announced_port(config),
            peer_tls: config.peer_tls,
            folder,
            api_port: Arc::default(),
            cluster: RwLock::new(cluster),
            membership: RwLock::default(),
            restarts,
            stop: watch::Sender::new(false),
            failure: Mutex::default(),
            removal: Mutex::default(),
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

    /// True: the process ends because its program is to begin anew.
    pub fn restarts(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.restarts)
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

    pub(crate) fn folder(&self) -> &Folder {
        &self.shared.folder
    }

    /// As what member the node was removed from its cluster, if it was.
    pub fn removal(&self) -> Option<(Member, Removal)> {
        self.shared.removal.lock().clone()
    }

    /// Operators ask nodes that keep data: only these have an API.
    pub(crate) fn node(&self) -> &Arc<Node> {
        self.shared.node.as_ref().expect("the node keeps data")
    }

    pub(crate) fn membership(&self) -> Result<Arc<Membership>, NoCluster> {
        self.shared.membership.read().clone().ok_or(NoCluster)
    }

    /// From now on, the connections of other members' APIs come here.
    pub fn serve_api(&self) -> mpsc::Receiver<ApiHello> {
        self.shared.api_port.open()
    }

    /// A connection to the API of another member, for one request. In the caller's runtime.
    pub async fn open_api(&self, node: NodeId) -> Result<ApiStream, ApiUnreachable> {
        let membership = self.membership().map_err(|why| ApiUnreachable::Away(why.to_string()))?;
        membership.peers.open_api(node).await
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
        Ok(ask_all(self.node(), &self.runtime, shards, &format!("INFO {section}")))
    }

    /// Tells the other data nodes this text about this node's endpoint of a database. Nobody waits for it.
    pub fn tell_endpoint(&self, id: DatabaseId, text: &str) {
        let Ok(membership) = self.membership() else { return };
        let message = endpoints::encode(id, text);
        let others = membership.other_data_nodes();
        let tell = async move {
            for node in others {
                let is_sent = membership.peers.link(node).is_some_and(|link| link.send_message(&message));
                if !is_sent {
                    tracing::debug!("node {node} was not told about an endpoint");
                }
            }
        };
        self.node().run_on_worker(0, Box::new(move || Box::pin(tell)));
    }

    /// What the other nodes that run have told of their endpoints of a database, by their names. `None`: one of them has told nothing lately.
    pub fn told_endpoints(&self, id: DatabaseId) -> Option<Vec<(String, String)>> {
        let membership = self.membership().ok()?;
        let (view, now) = (membership.view(), Instant::now());
        let runs = membership.other_data_nodes().into_iter().filter(|node| view.live.contains_key(node));
        runs.map(|node| Some((view.node_name(node), membership.served.endpoints.get(node, id, now)?))).collect()
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
        Ok(self.wait(calls::ask(&membership.issuer(), &view, asked)))
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
        certificates.extend(issuer.folder.etcd_certificate().ok().flatten().map(|(etcd, _)| ("etcd", etcd.expires_ms)));
        let etcd = membership.etcd_status.lock().clone();
        Ok(Seen { etcd, etcd_slowest: issuer.etcd.slowest(), connected: membership.peers.connected(), certificates })
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

    /// Everything that is asked of etcd from now on is asked over the new connections.
    fn set_issuer(&self, issuer: Issuer) {
        *self.issuer.write() = Arc::new(issuer);
    }

    pub(crate) fn records(&self) -> Records {
        self.issuer.read().records.clone()
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    fn candidate(self: &Arc<Self>, role: Role, workers: u64) -> Candidate {
        let membership = Arc::clone(self);
        Candidate {
            role,
            me: self.me,
            process: self.process,
            view: self.view.subscribe(),
            workers,
            issuer: Box::new(move || membership.issuer()),
        }
    }

    pub(crate) fn view_receiver(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    fn other_data_nodes(&self) -> Vec<NodeId> {
        let view = self.view();
        let others = view.nodes.iter().filter(|(id, node)| node.role == Role::Data && **id != self.me);
        others.map(|(id, _)| *id).collect()
    }

    /// This node's part in the replacement of the authority.
    pub(crate) fn part(&self) -> Part {
        let seen = self.certificates.borrow().clone();
        Part { me: self.me, process: self.process, issuer: self.issuer(), view: self.view(), seen }
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

impl NodeCalls for Membership {
    fn copies(&self, shards: &[ShardUid]) -> Vec<CopyAnswer> {
        shards.iter().filter_map(|shard| self.served.ask_copy(*shard)).collect()
    }

    fn hand_over(&self, shard: ShardUid, epoch: Epoch, to: CopyNumber) -> HandingOver {
        let copy = self.served.replicated(shard);
        Box::pin(async move { copy.ok_or("this node has no copy of the shard")?.hand_over(epoch, to).await })
    }

    fn restart(&self, process: ProcessId) -> Reply<()> {
        if process != self.process {
            return Err("another process is the node now".to_owned());
        }
        if std::env::args_os().any(|arg| arg == "-") {
            return Err("its configuration came from standard input, which cannot be read again".to_owned());
        }
        tracing::info!("an operator has asked for a restart: this process ends its work, and its program begins anew");
        self.restarts.store(true, Relaxed);
        // As a service manager would end it, when the answer has left.
        drop(Handle::current().spawn(async {
            sleep(SOON).await;
            let ended = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
            ended.expect("a process may end itself");
        }));
        Ok(())
    }
}

impl Answers for Membership {
    fn issuer(&self) -> Arc<Issuer> {
        Membership::issuer(self)
    }

    fn api(&self, hello: PeerHello) {
        self.api_port.hand_over(hello);
    }

    fn link(&self, hello: PeerHello) {
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
                let ended = be_member(shared, member.clone()).await;
                *shared.membership.write() = None;
                match ended {
                    Ok(Over::Left) => note(shared, None),
                    Ok(Over::Removed(removal)) => be_removed(shared, member, removal).await,
                    Err(why) => note(shared, Some(why)),
                }
            }
            Err(error) => note(shared, Some(error.to_string())),
        }
        shared.pause(LOOK).await;
    }
}

fn note(shared: &Shared, now: Option<String>) {
    let mut failure = shared.failure.lock();
    if let Some(why) = now.as_ref().filter(|why| failure.as_ref() != Some(why)) {
        tracing::error!("this node does not work for its cluster: {why}");
    }
    *failure = now;
}

/// Until an operator does something about it: the node leaves, or etcd has its record again.
async fn be_removed(shared: &Shared, member: Member, removal: Removal) {
    let why = format!(
        "{removal}. Nothing is served for the cluster, and its files stay. `flintkv cluster leave` makes it a node without a cluster, \
         which may join again"
    );
    note(shared, Some(why));
    *shared.removal.lock() = Some((member.clone(), removal));
    loop {
        tokio::select! {
            () = is_over(shared, &member) => break,
            () = sleep(RETURN_INTERVAL) => {}
        }
        if is_in_etcd(shared, &member).await {
            break;
        }
    }
    *shared.removal.lock() = None;
}

/// Whether etcd has a record of this node. Without an answer it has none.
async fn is_in_etcd(shared: &Shared, member: &Member) -> bool {
    let Ok(credential) = shared.folder.credential(wall_ms()) else { return false };
    let Ok(etcd) = etcd_client(member, &credential, &member.etcd.endpoints) else { return false };
    let records = Records::new(Arc::new(etcd), member.cluster);
    let found = records.get::<NodeRecord>(&membership::issuer::node_key(member.node)).await;
    found.is_ok_and(|found| found.is_some())
}

/// Why a node is no member any more.
enum Over {
    /// By its files; or the agent ends.
    Left,
    Removed(Removal),
}

/// Until the agent ends, or the node is a member no more.
async fn be_member(shared: &Arc<Shared>, member: Member) -> Result<Over, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let place = StateDirectory::take(&shared.folder)?;
    let credential = shared.folder.credential(wall_ms()).map_err(|error| text(&error))?;
    let trust = shared.folder.trust(&member).map_err(|error| text(&error))?;
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
        api_port: Arc::clone(&shared.api_port),
        me,
        process: random_process(),
        place,
        view: watch::Sender::new(Arc::default()),
        certificates: watch::Sender::new(Arc::default()),
        etcd_trouble: Mutex::default(),
        etcd_status: Mutex::default(),
        troubles: Mutex::default(),
        changed: Condvar::new(),
        pending: Mutex::default(),
        is_leaving: AtomicBool::new(false),
        restarts: Arc::clone(&shared.restarts),
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
    let candidate = membership.candidate(member.role, shared.node.as_ref().map_or(1, |node| node.workers() as u64));
    let over = tokio::select! {
        () = is_over(shared, &member) => Over::Left,
        removal = removal(&membership) => Over::Removed(removal),
        never = follow(&membership) => match never {},
        never = keep_alive(&membership) => match never {},
        never = keep_node_record(shared, &membership) => match never {},
        never = keep_endpoints(&membership) => match never {},
        never = keep_certificates(&membership) => match never {},
        never = keep_authority(&membership) => match never {},
        never = controller::lead(&candidate) => match never {},
    };
    port.abort();
    membership.pending.lock().is_over = true;
    membership.changed.notify_one();
    let Some(reconciler) = reconciler else { return Ok(over) };
    // It may be waiting for etcd, which needs this runtime's thread.
    while !reconciler.is_finished() {
        sleep(UNFINISHED_PAUSE).await;
    }
    reconciler.join().map(|()| over).map_err(|_| "a bug: the reconciler panicked".to_owned())
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

/// Returns when this node was removed from its cluster: etcd has no record of it, or does not talk to it and another node says why.
async fn removal(membership: &Membership) -> Removal {
    let mut view = membership.view.subscribe();
    let (mut pause, mut told) = (STANDING_PAUSE, String::new());
    loop {
        let is_in_view = {
            let seen = view.borrow_and_update();
            // Before the first list nothing is known.
            seen.nodes.is_empty() || seen.nodes.contains_key(&membership.me)
        };
        let issuer = membership.issuer();
        // A node that leaves removes its record before its files.
        if !is_in_view && !membership.is_leaving.load(Relaxed) {
            let shut_out = issuer.trust.shut_out(issuer.current.get().identity());
            return Removal { at_ms: shut_out.and_then(|shut_out| shut_out.since_ms()) };
        }
        tokio::select! {
            // The membership has the sender.
            _ = view.changed() => continue,
            () = sleep(pause) => {}
        }
        if membership.etcd_trouble.lock().is_none() {
            pause = STANDING_PAUSE;
            continue;
        }
        pause = (pause * 2).min(STANDING_PAUSE_MAX);
        let why = match issuer.folder.neighbours() {
            Ok(neighbours) => match ask_neighbours(&neighbours, &issuer.current, &issuer.trust).await {
                Ok(Some(removal)) => return removal,
                Ok(None) => continue,
                Err(refusal) => format!(
                    "{refusal}. If the cluster's authority was replaced while this node was away, it was removed before: \
                     delete {}, and let the node join again",
                    issuer.folder.path().display()
                ),
            },
            Err(error) => error.to_string(),
        };
        if why != told {
            tracing::warn!("etcd does not answer, and no other node says whether this one is still a member: {why}");
            told = why;
        }
    }
}

/// Keeps the view up to date.
async fn follow(membership: &Arc<Membership>) -> Infallible {
    loop {
        let issuer = membership.issuer();
        let mut mirror = Mirror::new(Arc::clone(&issuer.records.coord), issuer.records.prefix());
        // A new mirror begins with a list, and so with an empty view.
        let mut view = View::default();
        let mut certificates = CertificatesView::default();
        let mut shut_out: BTreeMap<String, ShutOut> = BTreeMap::new();
        let mut look = interval(LOOK);
        let mut kept = issuer.folder.neighbours().unwrap_or_default();
        loop {
            tokio::select! {
                events = mirror.next() => {
                    let mut has_certificates = false;
                    for event in events {
                        let Some(key) = event.key().strip_prefix(issuer.records.prefix()) else { continue };
                        has_certificates |= certificates.apply(key, &event);
                        apply(key, &event, &mut view, &mut shut_out);
                    }
                    if has_certificates {
                        membership.certificates.send_replace(Arc::new(certificates.clone()));
                    }
                    let list: Vec<ShutOut> = shut_out.values().copied().collect();
                    issuer.trust.set_shut_out(&list);
                    keep_neighbours(membership, &view, list, &mut kept);
                    let addresses = view.nodes.iter().map(|(id, node)| (*id, node.addresses.peer.as_str().to_owned()));
                    membership.peers.set_addresses(addresses.collect::<HashMap<_, _>>());
                    membership.peers.set_running(view.live.keys().copied().collect());
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

/// Writes down what the node needs when etcd does not answer. `kept`: what the file has.
fn keep_neighbours(membership: &Membership, view: &View, mut shut_out: Vec<ShutOut>, kept: &mut Neighbours) {
    // A node that was removed asks those that it knew.
    if !view.nodes.contains_key(&membership.me) {
        return;
    }
    let others = view.nodes.iter().filter(|(id, _)| **id != membership.me);
    let address = |(id, node): (&NodeId, &Revised<NodeRecord>)| {
        Some((id.to_string().parse().ok()?, node.addresses.peer.as_str().to_owned()))
    };
    shut_out.sort_by_key(|record| std::cmp::Reverse(record.issued_before_ms));
    shut_out.truncate(SHUT_OUT_MAX);
    let now = Neighbours::new(others.filter_map(address).take(NEIGHBOURS_MAX).collect(), shut_out);
    if now == *kept {
        return;
    }
    match membership.issuer().folder.write_neighbours(&now) {
        Ok(()) => *kept = now,
        Err(error) => tracing::warn!("{error}"),
    }
}

fn apply(key: &str, event: &Event, view: &mut View, shut_out: &mut BTreeMap<String, ShutOut>) {
    let bytes = match event {
        Event::Put(entry) => Some(&*entry.value),
        Event::Deleted { .. } => None,
    };
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
async fn keep_alive(membership: &Arc<Membership>) -> Infallible {
    let mut told = String::new();
    // The last lease is kept until the next one is in its place.
    let mut kept: Option<Keeper> = None;
    loop {
        let issuer = membership.issuer();
        match take_lease(membership, &issuer).await {
            Ok(keeper) => {
                let keeper = kept.insert(keeper);
                tokio::select! {
                    why = keeper.lost() => tracing::debug!("the lease of this node has ended: {why:?}"),
                    // Its connections show a certificate that is renewed.
                    () = is_reconnected(membership, &issuer) => continue,
                }
            }
            Err(why) if why == told => {}
            Err(why) => {
                tracing::warn!("this node is not shown as alive: {why}");
                told = why;
            }
        }
        sleep(AGAIN).await;
    }
}

async fn is_reconnected(membership: &Membership, issuer: &Arc<Issuer>) {
    while Arc::ptr_eq(issuer, &membership.issuer()) {
        sleep(LOOK).await;
    }
}

async fn take_lease(membership: &Membership, issuer: &Issuer) -> Result<Keeper, String> {
    let key = Key::Live(membership.me);
    let name = key.to_string();
    let (process, place) = (membership.process, membership.place.name.clone());
    let record = LiveRecord { process, place, unknown: Unknown::new() };
    let bytes = records::encode(key, &record).map_err(|error| error.to_string())?;
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
    issuer.records.change(change).await.map_err(|error| error.to_string())?;
    Keeper::start(Arc::new(issuer.etcd.apart()), lease, || true).map_err(|error| error.to_string())
}

/// Says what this node has, and again when that has changed.
async fn keep_node_record(shared: &Shared, membership: &Membership) -> Infallible {
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
    // Before init has written the first records, there is none.
    let Some((before, revision)) = found else { return Ok(false) };
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
    let members = async {
        match issuer.etcd.members().await {
            Ok(members) => Ok(members),
            Err(_) => issuer.etcd.known_members().await,
        }
    };
    let (members, alarms) = tokio::join!(members, issuer.etcd.alarms());
    // Without a majority nobody can say which alarms there are, and the members say that they know no leader.
    Ok(EtcdStatus { members: members?, alarms: alarms.unwrap_or_default() })
}

/// Follows etcd's members, and keeps their addresses for the next start.
async fn keep_endpoints(membership: &Membership) -> Infallible {
    loop {
        sleep(ENDPOINTS_INTERVAL).await;
        let issuer = membership.issuer();
        let status = ask_etcd(&issuer).await.ok();
        // A list of members without a leader may be old.
        let is_new = |status: &&EtcdStatus| status.members.iter().any(coord::etcd::maintenance::Member::has_leader);
        let endpoints = status.as_ref().filter(is_new).and_then(|status| issuer.changed_endpoints(&status.members));
        *membership.etcd_status.lock() = status;
        let Some(endpoints) = endpoints else { continue };
        let mut member = issuer.member.clone();
        member.etcd.endpoints = endpoints;
        match issuer.reconnected(member) {
            Ok(reconnected) => {
                if let Err(error) = reconnected.folder.write_member(&reconnected.member) {
                    tracing::warn!("{error}");
                }
                membership.set_issuer(reconnected);
            }
            Err(error) => tracing::warn!("etcd's endpoints have changed, and cannot be used: {error}"),
        }
    }
}

/// Takes this node's part in the replacement of the cluster's authority, and the key if it is to have it.
async fn keep_authority(membership: &Membership) -> Infallible {
    let mut seen = membership.certificates.subscribe();
    let mut told = String::new();
    loop {
        seen.mark_unchanged();
        match membership.part().follow().await {
            Ok(None) => told.clear(),
            Ok(Some(reconnected)) => {
                membership.set_issuer(reconnected);
                continue;
            }
            Err(why) if why == told => {}
            Err(why) => {
                tracing::warn!("this node does not have what it is to have of the cluster's authority: {why}");
                told = why;
            }
        }
        tokio::select! {
            _ = seen.changed() => {}
            // Files, and who runs, change without a record.
            () = sleep(AGAIN) => {}
        }
    }
}

/// Renews the certificates of the node and of its etcd in time, and when another authority signs.
async fn keep_certificates(membership: &Membership) -> Infallible {
    // Before the first list it is not known whom to ask.
    membership.view_when(|view| !view.nodes.is_empty()).await;
    let mut seen = membership.certificates.subscribe();
    let mut told = String::new();
    loop {
        // While the authority is replaced: the one of which both are to be.
        let wanted = seen.borrow_and_update().authority.as_ref().and_then(|(record, _)| record.renews_with());
        let mut pause = RENEWAL_INTERVAL;
        for purpose in [Purpose::Node, Purpose::Etcd] {
            if let Err(why) = renew(membership, purpose, wanted).await {
                pause = RENEWAL_AGAIN;
                if why != told {
                    tracing::warn!("the certificate of this node ({purpose:?}) was not renewed: {why}");
                    told = why;
                }
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = seen.wait_for(|seen| seen.authority.as_ref().and_then(|(record, _)| record.renews_with()) != wanted) => {}
        }
    }
}

async fn renew(membership: &Membership, purpose: Purpose, wanted: Option<Fingerprint>) -> Result<(), String> {
    let issuer = membership.issuer();
    let now = match purpose {
        Purpose::Node => {
            let current = issuer.current.get();
            Some((*current.identity(), current.authority().clone()))
        }
        Purpose::Etcd => issuer.folder.etcd_certificate().map_err(|error| error.to_string())?,
    };
    let is_due = |(identity, authority): (pki::Identity, pki::AuthorityCertificate)| {
        identity.needs_renewal(wall_ms()) || wanted.is_some_and(|wanted| authority.fingerprint() != wanted)
    };
    if !now.is_some_and(is_due) {
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
                if wanted.is_some_and(|wanted| authority.fingerprint() != wanted) {
                    why = format!("{}: another authority signs there", peer.at);
                    continue;
                }
                let renewed = pki::Credential::new(&key, &answer.certificate, &authority, wall_ms());
                keep_renewed(membership, purpose, renewed.map_err(|error| error.to_string())?)?;
                tracing::info!("the certificate of this node ({purpose:?}) was renewed");
                return Ok(());
            }
            Ok(Err(error)) => why = format!("{}: {error}", peer.at),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn keep_renewed(membership: &Membership, purpose: Purpose, renewed: pki::Credential) -> Result<(), String> {
    let issuer = membership.issuer();
    match purpose {
        // etcd reads the file at each handshake.
        Purpose::Etcd => issuer.folder.write_etcd_credential(&renewed).map_err(|error| error.to_string()),
        Purpose::Node => {
            issuer.folder.write_credential(&renewed).map_err(|error| error.to_string())?;
            issuer.current.replace(renewed).map_err(|error| error.to_string())?;
            // The connections to etcd show the certificate with which they were made.
            let reconnected = issuer.reconnected(issuer.member.clone()).map_err(|error| error.to_string())?;
            membership.set_issuer(reconnected);
            Ok(())
        }
    }
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
        while !shared.is_stopping() && !reconciler.close_all() {
            std::thread::sleep(UNFINISHED_PAUSE);
        }
        // At the node's end the node closes them itself.
        if shared.is_stopping() {
            reconciler.end_roles();
        }
    };
    std::thread::Builder::new().name("reconciler".to_owned()).spawn(run)
}
