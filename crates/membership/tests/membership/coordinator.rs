//! `flintkv coordinator` with real etcd: Debian's etcd-server and etcd-client, or the program that FLINTKV_ETCD names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::records::Role;
use config::{Config, ConfigStore};
use coord::etcd::maintenance::AlarmKind;
use coord::etcd::{Options, Tls};
use coord::{Coord, Error, Etcd, Operation, Outcome, Transaction};
use flintkv_tests::{eventually, free_port};
use membership::coordinator::{
    Coordinator, Log, RESTARTS, RunError, backup, compact, keep_this_member, main, restore, revoked_crl, status,
};
use membership::etcd::etcd_options;
use membership::records::{Change, Records, issued_key, shut_out_key};
use membership::{EtcdAccess, EtcdMember, Folder, Member, etcd_client};
use pki::{Authority, CheckedRequest, Credential, NodeId, NodeKey, Purpose, ShutOut};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const HOST: &str = "127.0.0.1";
/// Of a call that must succeed: a busy machine's disk may make a member wait for seconds.
const PATIENCE: Duration = Duration::from_secs(30);

fn now_ms() -> u64 {
    base::clock::wall_ms()
}

fn etcd_binary() -> String {
    std::env::var("FLINTKV_ETCD").unwrap_or_else(|_| "etcd".to_owned())
}

/// Blocks on one call at a time, as an operator does.
fn call<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(answer)
}

/// A client whose calls must succeed.
fn patient(member: &Member, credential: &Credential, url: String) -> Etcd {
    Etcd::new(Options { timeout: PATIENCE, ..etcd_options(member, credential, &[url]) }).unwrap()
}

fn credential(authority: &Authority, node: NodeId, purpose: Purpose) -> Credential {
    let key = NodeKey::generate();
    let request = CheckedRequest::from_pem(&key.request()).unwrap();
    let issued = authority.issue(&request, node, purpose, &[HOST.to_owned()], now_ms()).unwrap();
    Credential::new(&key, &issued.certificate, authority.certificate(), now_ms()).unwrap()
}

/// A node's state directory. Nothing runs there yet.
struct Node {
    state: TempDir,
    id: NodeId,
    ports: (u16, u16),
    directives: Vec<(&'static str, String)>,
}

impl Node {
    fn new() -> Node {
        let state = tempfile::Builder::new().prefix("flintkv-test-").tempdir().unwrap();
        let port = free_port();
        let path = state.path().to_str().unwrap().to_owned();
        let directives = vec![("state-dir", path), ("etcd-binary", etcd_binary())];
        Node { state, id: NodeId::random(), ports: (port, port + 1), directives }
    }

    fn with(mut self, directive: &'static str, value: &str) -> Node {
        self.directives.push((directive, value.to_owned()));
        self
    }

    fn config(&self) -> Config {
        let directives: Vec<_> = self.directives.iter().map(|(name, value)| (*name, &**value)).collect();
        ConfigStore::from_directives(&directives).unwrap().snapshot().as_ref().clone()
    }

    fn folder(&self) -> Folder {
        Folder::of(&self.config())
    }

    fn data(&self) -> PathBuf {
        self.config().etcd_path.clone()
    }

    fn etcd_member(&self, authority: &Authority, others: &[&Node]) -> EtcdMember {
        let cluster = authority.certificate().cluster;
        let url = |node: &&Node| (node.id.to_string(), membership::folder::url(HOST, node.ports.1));
        EtcdMember::new(self.id, HOST.to_owned(), self.ports, cluster, others.iter().map(url).collect())
    }

    fn client_url(&self) -> String {
        membership::folder::url(HOST, self.ports.0)
    }

    fn member(&self, authority: &Authority, endpoints: &[&Node]) -> Member {
        Member::new(
            authority.certificate().cluster,
            "test".to_owned(),
            self.id,
            "n".parse().unwrap(),
            "a".parse().unwrap(),
            Role::Data,
            HOST.to_owned(),
            vec![authority.certificate().pem()],
            EtcdAccess { endpoints: endpoints.iter().map(|node| node.client_url()).collect(), external: None },
        )
    }

    /// Writes the files that make the node run a member of etcd, in the order in which a node does it.
    fn write(&self, authority: &Authority, others: &[&Node]) {
        self.write_coordinator(authority, others);
        self.write_member(authority, others);
    }

    fn write_coordinator(&self, authority: &Authority, others: &[&Node]) {
        let folder = self.folder();
        folder.make().unwrap();
        folder.write_authority(authority).unwrap();
        folder.write_ca(&[authority.certificate().clone()]).unwrap();
        folder.write_credential(&credential(authority, self.id, Purpose::Node)).unwrap();
        folder.write_etcd_credential(&credential(authority, self.id, Purpose::Etcd)).unwrap();
        folder.write_etcd_member(&self.etcd_member(authority, others)).unwrap();
    }

    fn write_member(&self, authority: &Authority, others: &[&Node]) {
        let all: Vec<&Node> = others.iter().copied().chain([self]).collect();
        self.folder().write_member(&self.member(authority, &all)).unwrap();
    }

    /// A client of this node's member alone, with the node's own certificate.
    fn etcd(&self) -> Etcd {
        let folder = self.folder();
        let member = folder.member().unwrap().expect("it is a member");
        patient(&member, &folder.credential(now_ms()).unwrap(), self.client_url())
    }

    fn put(&self, key: &str, value: &str) {
        let operations = vec![Operation::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease: None }];
        let outcome = call(async { self.etcd().transact(Transaction { compare: Vec::new(), operations }).await });
        assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    }

    fn get(&self, key: &str) -> Option<String> {
        let found = call(async { self.etcd().get(key).await }).expect("etcd answers");
        found.entry.map(|entry| String::from_utf8(entry.value).unwrap())
    }

    /// The members, as (node, whether it is a learner).
    fn members(&self) -> Vec<(String, bool)> {
        let members = call(async { self.etcd().members().await }).unwrap_or_default();
        members.into_iter().map(|member| (member.name, member.is_learner)).collect()
    }

    fn start(&self) -> Running {
        let (config, shutdown) = (self.config(), Arc::new(AtomicBool::new(false)));
        let lines = Lines::default();
        let log = lines.log();
        let stop = Arc::clone(&shutdown);
        let thread = std::thread::spawn(move || Coordinator::run(&config, &stop, &log));
        Running { shutdown, lines, thread: Some(thread) }
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn log(&self) -> Log {
        let lines = Arc::clone(&self.0);
        Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    }

    fn count(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    /// Of the etcd that was started last.
    fn pid(&self) -> Pid {
        let lines = self.0.lock().unwrap();
        let line = lines.iter().rev().find_map(|line| line.split(" is started as process ").nth(1)).unwrap();
        Pid::from_raw(line.split(' ').next().unwrap().parse().unwrap()).unwrap()
    }
}

/// A coordinator on a thread of the test, which stops with it.
struct Running {
    shutdown: Arc<AtomicBool>,
    lines: Lines,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    /// Waits for the `count`th line with this text.
    fn says_often(&self, part: &str, count: usize) {
        eventually(&format!("the coordinator says {part:?}"), || {
            let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            let has_said = self.lines.count(part) >= count;
            assert!(has_said || !is_over, "it ended and never said {part:?}: {}", self.lines.text());
            has_said
        });
    }

    fn says(&self, part: &str) {
        self.says_often(part, 1);
    }

    /// Waits until it ends by itself.
    fn ends(&mut self) -> Result<(), RunError> {
        let thread = self.thread.take().expect("it runs");
        eventually("the coordinator ends", || thread.is_finished());
        thread.join().unwrap()
    }

    fn stop(mut self) {
        self.shutdown.store(true, Relaxed);
        self.ends().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if std::thread::panicking() {
            let lines = self.lines.0.lock().unwrap();
            eprintln!("{ended:?}\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

fn authority() -> Authority {
    Authority::create("test", now_ms()).unwrap()
}

/// A cluster of one member, which answers.
fn first() -> (Authority, Node, Running) {
    let (authority, node) = (authority(), Node::new());
    node.write(&authority, &[]);
    let running = node.start();
    running.says("etcd answers");
    (authority, node, running)
}

/// What whoever admits a node does: it is added as a learner, and gets its files.
fn join(authority: &Authority, node: &Node, others: &[&Node]) -> Running {
    let url = node.etcd_member(authority, &[]).peer_url();
    // etcd refuses as long as a member is new or does not answer.
    eventually("the node is added", || call(async { others[0].etcd().add_learner(&url).await }).is_ok());
    node.write(authority, others);
    node.start()
}

fn lives(pid: Pid) -> bool {
    // A process whose parent is gone may stay as a zombie where nobody waits for it.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn the_first_member_is_started_once_the_node_is_one_and_stopped_when_it_leaves() {
    let (authority, node) = (authority(), Node::new());
    let running = node.start();
    running.says("waiting until this node inits or joins a cluster: flintkv cluster init | join");
    // etcd is needed to write what makes the node a member, so it starts before member.json is there.
    node.write_coordinator(&authority, &[]);
    running.says("member.json is not there yet");
    node.write_member(&authority, &[]);
    running.says("etcd answers");
    assert_eq!(running.lines.count("waiting until"), 1, "it is said once");
    assert_eq!(fs::metadata(node.data()).unwrap().permissions().mode() & 0o777, 0o700);
    node.put("a", "1");
    assert_eq!(node.get("a").as_deref(), Some("1"));
    assert!(running.lines.count("etcd: info: ") > 0, "lines of etcd are reduced: {}", running.lines.text());

    let pid = running.lines.pid();
    let folder = node.folder();
    let (member, own) = (folder.member().unwrap().unwrap(), folder.credential(now_ms()).unwrap());
    let etcd = etcd_client(&member, &own, &[node.client_url()]).unwrap();
    folder.remove().unwrap();
    running.says("this node has left its cluster");
    running.says_often("waiting until", 2);
    assert!(!lives(pid));
    // Which error it is depends on when the connection was noticed to be closed.
    assert!(call(async { etcd.get("a").await }).is_err());
    // It joins again: what is left of the earlier membership is set aside.
    node.write(&authority, &[]);
    running.says("are of an earlier membership");
    running.says_often("etcd answers", 2);
    assert_eq!(node.get("a"), None);
    running.stop();
}

#[test]
fn only_a_certificate_of_the_cluster_opens_etcd() {
    let (authority, node, running) = first();
    node.put("a", "1");
    let member = node.folder().member().unwrap().unwrap();
    let pem = |credential: &Credential| credential.to_pem().expose().as_bytes().to_vec();
    let client = |client: Option<Vec<u8>>, server_name: String, timeout: Duration| {
        let tls = Tls {
            ca: member.authorities.concat().into_bytes(),
            client: client.map(|pem| (pem.clone(), pem)),
            server_name: Some(server_name),
        };
        Etcd::new(Options { tls: Some(tls), timeout, ..Options::new(vec![node.client_url()]) }).unwrap()
    };
    let name = pki::etcd_server_name(member.cluster);
    // Of a client whose calls fail, after trying for so long.
    let vain = Duration::from_secs(1);
    let get = |etcd: Etcd| call(async { etcd.get("a").await });
    // Any node's, but not another cluster's, and not none.
    let other = pem(&credential(&authority, NodeId::random(), Purpose::Node));
    assert!(get(client(Some(other), name.clone(), PATIENCE)).is_ok());
    let foreign = Authority::create("test", now_ms()).unwrap();
    let refused = get(client(Some(pem(&credential(&foreign, node.id, Purpose::Node))), name.clone(), vain));
    assert!(refused.is_err(), "{refused:?}");
    assert!(get(client(None, name, vain)).is_err());
    // The client asks for etcd's name, and for no other.
    let own = pem(&node.folder().credential(now_ms()).unwrap());
    assert!(get(client(Some(own.clone()), "other.flintkv".to_owned(), vain)).is_err());
    // And a node's certificate does not open the port of the members.
    let peer = Options::new(vec![format!("https://{HOST}:{}", node.ports.1)]);
    let tls = Tls {
        ca: member.authorities.concat().into_bytes(),
        client: Some((own.clone(), own)),
        server_name: Some(pki::etcd_server_name(member.cluster)),
    };
    assert!(call(async { Etcd::new(Options { tls: Some(tls), ..peer }).unwrap().get("a").await }).is_err());
    running.says("client certificate authentication failed");
    running.stop();
}

#[test]
fn a_list_that_has_ended_or_is_damaged_locks_nobody_out() {
    const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;
    let (authority, node) = (authority(), Node::new());
    node.write(&authority, &[]);
    let path = revoked_crl(&node.folder());
    // The nodes were down for longer than the list counts, which is ten years.
    let ended = authority.revocation_list(&[], 1, now_ms() - 11 * YEAR_MS);
    pki::write_public(&path, &ended).unwrap();
    let running = node.start();
    running.says("etcd answers");
    assert_ne!(fs::read(&path).unwrap(), ended, "it was written anew");
    // While etcd runs: each call makes a new connection.
    pki::write_public(&path, &ended).unwrap();
    node.put("a", "1");
    assert_eq!(fs::read(&path).unwrap(), ended, "etcd has read this one");
    for damage in [&b"no list"[..], &ended[..ended.len() / 2], b""] {
        fs::write(&path, damage).unwrap();
        eventually("the list is repaired", || call(async { node.etcd().get("a").await }).is_ok());
    }
    fs::remove_file(&path).unwrap();
    eventually("the list is there again", || call(async { node.etcd().get("a").await }).is_ok());
    assert!(path.exists());
    running.stop();
    // Damaged while nothing runs.
    fs::write(&path, "no list").unwrap();
    let running = node.start();
    running.says("etcd answers");
    assert_eq!(node.get("a").as_deref(), Some("1"));
    running.stop();
}

#[test]
fn a_node_that_is_shut_out_loses_its_connections_to_etcd_too() {
    let (authority, node, running) = first();
    let (bad, good) = (NodeId::random(), NodeId::random());
    let etcd_of_bad = credential(&authority, bad, Purpose::Etcd);
    let bad = credential(&authority, bad, Purpose::Node);
    let good = credential(&authority, good, Purpose::Node);
    let member = node.folder().member().unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect = |credential: &Credential| etcd_client(&member, credential, &[node.client_url()]).unwrap();
    let (of_bad, of_good) = (connect(&bad), patient(&member, &good, node.client_url()));
    let answers = |etcd: &Etcd| runtime.block_on(etcd.get("a")).is_ok();
    assert!(answers(&of_bad) && answers(&of_good));

    // As the cluster has it when the node is forgotten, while another member restarts its etcd.
    let records = Records::new(Arc::new(node.etcd()), member.cluster);
    let shut_out = ShutOut::until_it_joins_again(bad.identity().node, now_ms());
    let change = Change::default()
        .put(RESTARTS, &"another")
        .put(&issued_key(bad.identity()), bad.identity())
        .put(&issued_key(etcd_of_bad.identity()), etcd_of_bad.identity())
        .put(&issued_key(good.identity()), good.identity())
        .put(&shut_out_key(bad.identity().node), &shut_out);
    call(async { records.change(change).await }).unwrap();
    running.says("another member restarts its etcd now");
    let list = fs::read(revoked_crl(&node.folder())).unwrap();
    let mut revoked = [&bad, &etcd_of_bad].map(|credential| credential.identity().serial);
    revoked.sort();
    assert_eq!(pki::revoked_serials(&list), Some(revoked.to_vec()));
    // A new connection is refused at once, and one that lives goes on.
    assert!(!answers(&connect(&bad)));
    assert!(answers(&of_bad) && answers(&patient(&member, &good, node.client_url())));
    let members_url = membership::folder::url(HOST, node.ports.1);
    assert!(!answers(&etcd_client(&member, &etcd_of_bad, &[members_url]).unwrap()));
    running.says(&format!("certificate serial {} revoked", etcd_of_bad.identity().serial));

    let records = Records::new(Arc::new(node.etcd()), member.cluster);
    call(async { records.change(Change::default().delete(RESTARTS)).await }).unwrap();
    running.says("etcd is restarted: it does not end connections");
    running.says_often("etcd answers", 2);
    assert!(!answers(&of_bad) && !answers(&connect(&bad)));
    eventually("the other node reaches etcd again", || answers(&of_good));
    assert_eq!(running.lines.count("etcd is restarted"), 1);
    running.stop();
}

#[test]
fn the_second_and_the_third_become_voters_and_a_removed_one_ends() {
    let (authority, one, first) = first();
    one.put("a", "1");
    let (two, three) = (Node::new(), Node::new());
    let second = join(&authority, &two, &[&one]);
    second.says("this node's member of etcd votes");
    let mut third = join(&authority, &three, &[&one, &two]);
    third.says("this node's member of etcd votes");
    let mut members = one.members();
    members.sort();
    let mut expected = [&one, &two, &three].map(|node| (node.id.to_string(), false));
    expected.sort();
    assert_eq!(members, expected);
    for node in [&two, &three] {
        assert_eq!(node.get("a").as_deref(), Some("1"));
    }
    let mut out = Vec::new();
    call(status(&two.config(), &mut out)).unwrap();
    let told = String::from_utf8(out).unwrap();
    assert_eq!(told.matches("  state     leader, etcd 3.").count(), 1, "{told}");
    assert_eq!(told.matches("  state     follower, etcd 3.").count(), 2, "{told}");
    assert_eq!(told.matches(", this node\n").count(), 1, "{told}");
    assert!(told.contains(" % of etcd-quota 2 GB; ") && told.ends_with("no alarms\n"), "{told}");

    let members = call(async { one.etcd().members().await }).unwrap();
    let id = members.iter().find(|member| member.name == three.id.to_string()).unwrap().id;
    eventually("the third is removed", || {
        let _ = call(async { one.etcd().remove_member(id).await });
        one.members().len() == 2
    });
    let why = third.ends().unwrap_err();
    assert!(matches!(why, RunError::Removed { .. }), "{why}");
    assert!(why.to_string().contains("was removed from the cluster"), "{why}");
    // Starting it again says the same, and makes no new cluster.
    let why = three.start().ends().unwrap_err();
    assert!(matches!(why, RunError::Removed { .. }), "{why}");
    assert_eq!(one.get("a").as_deref(), Some("1"));
    second.stop();
    first.stop();
}

#[test]
fn a_killed_etcd_is_started_again_with_its_data() {
    let (_authority, node, running) = first();
    node.put("a", "1");
    let pid = running.lines.pid();
    kill_process(pid, Signal::KILL).unwrap();
    running.says("etcd ended (signal: 9 (SIGKILL)); etcd is started in 1 s");
    running.says_often("etcd answers", 2);
    assert_ne!(running.lines.pid(), pid);
    assert_eq!(node.get("a").as_deref(), Some("1"));
    running.stop();
    // And with the coordinator.
    let running = node.start();
    running.says("etcd answers");
    assert_eq!(node.get("a").as_deref(), Some("1"));
    // The data are lost, or their device is not mounted.
    running.stop();
    fs::rename(node.data(), node.state.path().join("elsewhere")).unwrap();
    let why = node.start().ends().unwrap_err().to_string();
    assert!(why.contains("has no data, although this node's etcd was started before"), "{why}");
}

#[test]
fn what_keeps_etcd_from_running_is_told() {
    let authority = authority();
    let ends = |directive: &'static str, value: &str| {
        let node = Node::new().with(directive, value);
        node.write(&authority, &[]);
        node.start().ends().unwrap_err().to_string()
    };
    let missing = ends("etcd-binary", "no-such-etcd");
    assert!(missing.contains("etcd-binary") && missing.contains("apt-get install etcd-server"), "{missing}");
    let other = ends("etcd-binary", "/bin/echo");
    assert!(other.contains("/bin/echo, which is no etcd") && other.contains("apt-get install etcd-server"), "{other}");
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old-etcd");
    fs::write(&old, "#!/bin/sh\necho etcd Version: 3.3.27\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let old = ends("etcd-binary", old.to_str().unwrap());
    assert!(old.contains("is etcd 3.3.27, and 3.4 or later is needed"), "{old}");
    // Root may write everywhere but here.
    let unwritable = ends("etcd-path", "/proc/flintkv-etcd");
    assert!(unwritable.contains("etcd-path /proc/flintkv-etcd cannot be written"), "{unwritable}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let no_folder = ends("etcd-path", file.to_str().unwrap());
    assert!(no_folder.contains("cannot be written"), "{no_folder}");
}

#[test]
fn a_second_coordinator_and_a_taken_port_are_told() {
    let (authority, node, running) = first();
    let why = node.start().ends().unwrap_err().to_string();
    assert!(why.contains("another coordinator uses etcd-path") && why.contains("systemctl stop"), "{why}");
    let why = restore(&node.config(), &node.folder().ca_pem(), &Lines::default().log()).unwrap_err().to_string();
    assert!(why.contains("another coordinator uses etcd-path"), "{why}");

    // It waits for the port.
    let mut other = Node::new();
    other.ports.0 = node.ports.0;
    other.write(&authority, &[]);
    let waits = other.start();
    waits.says(&format!("another program listens on {HOST}:{} (etcd-client-port)", node.ports.0));
    running.stop();
    waits.says("etcd answers");
    waits.stop();
}

#[test]
fn an_etcd_that_nobody_watches_is_named() {
    let (authority, node) = (authority(), Node::new());
    node.write(&authority, &[]);
    // It looks like one.
    let mut left = Command::new("/bin/sh");
    left.args(["-c", "read line", "etcd", "--data-dir"]).arg(node.data());
    let mut left = left.stdin(Stdio::piped()).spawn().unwrap();
    let running = node.start();
    running.says(&format!("the process {} is an etcd with the same data", left.id()));
    left.kill().unwrap();
    left.wait().unwrap();
    running.says("etcd answers");
    running.stop();
}

#[test]
fn compaction_gives_space_back_and_ends_the_alarm() {
    let (authority, node) = (authority(), Node::new().with("etcd-quota", "16mb"));
    node.write(&authority, &[]);
    let running = node.start();
    running.says("etcd answers");
    let value = vec![1; 1 << 20];
    let etcd = node.etcd();
    // A single client may go beyond the quota before etcd looks at its file again, so not a number of puts.
    let full = call(async {
        loop {
            let put = Operation::Put { key: "a".to_owned(), value: value.clone(), lease: None };
            match etcd.transact(Transaction { compare: Vec::new(), operations: vec![put] }).await {
                Ok(Outcome::Committed(_)) => {}
                other => break other,
            }
        }
    });
    assert_eq!(full, Err(Error::NoSpace));
    // The call that finds the quota reached raises the alarm.
    eventually("the alarm is there", || {
        call(async { node.etcd().alarms().await })
            .is_ok_and(|alarms| alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace))
    });
    let said = |act: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        act(&mut out);
        String::from_utf8(out).unwrap()
    };
    let told = said(&|out| call(status(&node.config(), out)).unwrap());
    assert!(told.contains("the quota is reached, etcd refuses changes: flintkv coordinator compact"), "{told}");
    let told = said(&|out| call(compact(&node.config(), out)).unwrap());
    assert!(told.starts_with("compacted up to revision "), "{told}");
    assert!(told.contains(" before, ") && told.contains(" after\n"), "{told}");
    assert!(told.contains("its alarm of the full quota is ended"), "{told}");
    node.put("b", "1");
    let db_bytes = call(async { node.etcd().members().await }).unwrap()[0].status.clone().unwrap().db_bytes;
    assert!(db_bytes < 4 << 20, "{db_bytes}");
    // Again, with nothing to compact.
    let told = said(&|out| {
        call(compact(&node.config(), out)).unwrap();
        call(compact(&node.config(), out)).unwrap();
    });
    assert!(!told.contains("alarm"), "{told}");
    running.stop();
}

#[test]
fn a_backup_is_restored_on_a_node_without_data_and_others_join_again() {
    let (authority, one, first) = first();
    let two = Node::new();
    let second = join(&authority, &two, &[&one]);
    second.says("this node's member of etcd votes");
    one.put("a", "1");
    let file = one.state.path().join("backup.db");
    let mut out = Vec::new();
    call(backup(&one.config(), &file, &mut out)).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("authority.pem"));
    one.put("a", "2");
    let before = call(async { one.etcd().get("a").await }).unwrap().revision;
    first.stop();
    second.stop();

    // All data of both are lost.
    fs::remove_dir_all(one.data()).unwrap();
    fs::remove_dir_all(two.data()).unwrap();
    let lines = Lines::default();
    // A damaged snapshot changes nothing.
    let damaged = one.state.path().join("damaged.db");
    let bytes = fs::read(&file).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 100]).unwrap();
    let why = restore(&one.config(), &damaged, &lines.log()).unwrap_err().to_string();
    assert!(why.contains("nothing was changed"), "{why}");
    assert!(fs::read_dir(one.data()).unwrap().next().is_none());
    restore(&one.config(), &file, &lines.log()).unwrap();
    assert!(!one.data().join("restoring").exists());
    let first = one.start();
    first.says("etcd answers");
    assert_eq!(one.get("a").as_deref(), Some("1"));
    assert_eq!(one.members(), [(one.id.to_string(), false)]);
    let after = call(async { one.etcd().get("a").await }).unwrap().revision;
    // Whoever remembers a lost revision does not take a new one for it, or is to be restarted.
    assert_eq!(after <= before, lines.count("restart all nodes of the cluster") == 1, "{before}, {after}");

    two.folder().remove().unwrap();
    let second = join(&authority, &two, &[&one]);
    second.says("this node's member of etcd votes");
    assert_eq!(two.get("a").as_deref(), Some("1"));

    // Onto a node that has data: these are kept.
    first.stop();
    second.stop();
    restore(&one.config(), &file, &lines.log()).unwrap();
    let names = fs::read_dir(one.data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("member.before-restore-")).count(), 1);
    let first = one.start();
    first.says("etcd answers");
    assert_eq!(one.get("a").as_deref(), Some("1"));
    first.stop();
}

#[test]
fn a_member_goes_on_alone_after_the_majority_is_lost() {
    let (authority, one, first) = first();
    let two = Node::new();
    let second = join(&authority, &two, &[&one]);
    second.says("this node's member of etcd votes");
    two.put("a", "1");
    assert_eq!(one.get("a").as_deref(), Some("1"));
    let lines = Lines::default();
    let held = keep_this_member(&two.config(), &lines.log()).unwrap_err().to_string();
    assert!(held.contains("another coordinator uses etcd-path"), "{held}");
    first.stop();
    second.stop();
    fs::remove_dir_all(one.data()).unwrap();

    // One of two is no majority.
    let second = two.start();
    second.says("etcd does not answer yet");
    second.stop();
    keep_this_member(&two.config(), &lines.log()).unwrap();
    let second = two.start();
    second.says("etcd answers");
    assert_eq!(two.members(), [(two.id.to_string(), false)]);
    assert_eq!(two.get("a").as_deref(), Some("1"));
    two.put("a", "2");

    // The lost one comes back as a new member.
    one.folder().remove().unwrap();
    let first = join(&authority, &one, &[&two]);
    first.says("this node's member of etcd votes");
    assert_eq!(one.get("a").as_deref(), Some("2"));
    first.stop();
    second.stop();
}

/// `flintkv coordinator` itself: this test program, with the arguments in a variable.
struct Program {
    child: Child,
    output: PathBuf,
}

const ARGUMENTS: &str = "FLINTKV_TEST_COORDINATOR";

#[test]
fn called_as_a_program() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let code = main(arguments.split('\n').map(Into::into));
        // The number is not to be had otherwise.
        let text = format!("{code:?}");
        let number: String = text.chars().filter(char::is_ascii_digit).collect();
        std::process::exit(number.parse().unwrap_or(99));
    }
}

impl Program {
    fn start(node: &Node, words: &[&str], notify: &Path) -> Program {
        let output = node.state.path().join("output");
        let file = fs::File::create(&output).unwrap();
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        for (name, value) in &node.directives {
            arguments.extend([format!("--{name}"), value.clone()]);
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "coordinator::called_as_a_program", "--nocapture"])
            .env(ARGUMENTS, arguments.join("\n"))
            .env("NOTIFY_SOCKET", notify)
            // Of Debian's /etc/default/etcd: nothing of this reaches our etcd.
            .env("ETCD_LISTEN_METRICS_URLS", "nonsense")
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Program { child, output }
    }

    fn says(&self, part: &str) -> Lines {
        let mut lines = Lines::default();
        eventually(&format!("the program says {part:?}"), || {
            let text = fs::read_to_string(&self.output).unwrap();
            lines = Lines(Arc::new(Mutex::new(text.lines().map(str::to_owned).collect())));
            text.contains(part)
        });
        lines
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_tells_systemd_and_takes_etcd_with_it() {
    let (authority, node) = (authority(), Node::new().with("supervised", "systemd"));
    node.write(&authority, &[]);
    let address = node.state.path().join("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_nonblocking(true).unwrap();
    // Until it is told this, whatever comes before.
    let is_told = |state: &str| {
        let mut bytes = [0; 1000];
        eventually(&format!("systemd is told {state:?}"), || {
            manager.recv(&mut bytes).is_ok_and(|count| String::from_utf8_lossy(&bytes[..count]).starts_with(state))
        });
    };
    let mut program = Program::start(&node, &[], &address);
    is_told("READY=1\nSTATUS=etcd answers at https://");
    node.put("a", "1");
    let pid = program.says("etcd answers").pid();
    kill_process(Pid::from_child(&program.child), Signal::TERM).unwrap();
    is_told("STOPPING=1");
    assert_eq!(program.code(), Some(0));
    assert!(!lives(pid));

    // Killed without a word: the kernel ends etcd.
    let mut program = Program::start(&node, &[], &address);
    let pid = program.says("etcd answers").pid();
    assert!(lives(pid));
    program.child.kill().unwrap();
    assert_eq!(program.code(), None);
    eventually("etcd ends with its coordinator", || !lives(pid));

    // A disaster is not ordered by accident.
    let file = node.state.path().join("backup.db");
    let mut program = Program::start(&node, &["restore", file.to_str().unwrap()], &address);
    assert_eq!(program.code(), Some(1));
    program.says("This node becomes the only member");
    program.says("nothing was done: if this is what you want, add --yes");
    let mut program = Program::start(&node, &["recover", "--keep-this-member"], &address);
    assert_eq!(program.code(), Some(1));
    program.says("add --yes");
    let mut program = Program::start(&node, &["recover", "--keep-this-member", "--yes"], &address);
    assert_eq!(program.code(), Some(0));
    let mut program = Program::start(&node, &["recover"], &address);
    assert_eq!(program.code(), Some(2));

    // What starting again does not help has a code of its own, for the unit.
    fs::remove_dir_all(node.data()).unwrap();
    let mut program = Program::start(&node, &[], &address);
    assert_eq!(program.code(), Some(78));
    program.says("flintkv coordinator: etcd-path");
}
