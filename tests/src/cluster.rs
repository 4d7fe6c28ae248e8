//! Owns the processes of a cluster: nodes on addresses of their own, each with its member of etcd. Never knows the commands.
//!
//! Every test has addresses 127.x.y.1, .2 and so on, of which no other test knows, so all ports are the usual ones.
//!
//! A member's clock can be wrong: libfaketime shifts the wall clock of its processes, and leaves the monotonic one alone. The product has
//! no hook for it. etcd, a Go program that asks the kernel by itself, keeps the machine's clock.

use crate::cutter::Cutter;
use crate::{Client, binary, eventually, free_port};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const PASSWORD: &str = "a-password-of-tests";
const PEER_PORT: u16 = 8380;
/// Where nodes reach each other through a [`Cutter`].
const ANNOUNCED_PORT: u16 = 8480;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Data,
    Quorum,
}

/// A node. Dropping it ends its processes.
pub struct Member {
    pub name: String,
    pub host: String,
    pub dir: TempDir,
    role: Role,
    /// So many seconds are added to the wall clock of what is started from now on.
    pub clock_s: i64,
    /// `flintkv server`, or `flintkv quorum`.
    node: Option<Child>,
    /// `flintkv coordinator` of a data node.
    coordinator: Option<Child>,
}

pub struct Cluster {
    pub members: Vec<Member>,
}

impl Member {
    fn new(host: String, name: String, role: Role, directives: &[(&str, &str)]) -> Member {
        let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a folder");
        let root = dir.path().display();
        let usual = [
            ("port", "0".to_owned()),
            ("unixsocket", format!("{root}/default.sock")),
            ("dir", root.to_string()),
            ("state-dir", format!("{root}/state")),
            ("bind", host.clone()),
            ("console-bind", host.clone()),
            ("console-password", PASSWORD.to_owned()),
            ("io-threads", "2".to_owned()),
            ("flash-path", format!("{root}/flash")),
            ("memory-limit", "64mb".to_owned()),
            ("ram-limit", "48mb".to_owned()),
            ("appendonly", "no".to_owned()),
        ];
        let given = |name: &str| directives.iter().any(|&(given, _)| given == name);
        let mut file: String = usual
            .iter()
            .filter(|(name, _)| !given(name) && (role == Role::Data || *name == "state-dir"))
            .map(|(name, value)| format!("{name} {value}\n"))
            .collect();
        directives.iter().for_each(|(name, value)| file += &format!("{name} {value}\n"));
        fs::write(dir.path().join("flintkv.conf"), file).expect("the file is written");
        Member { name, host, dir, role, clock_s: 0, node: None, coordinator: None }
    }

    /// A node whose directory is a copy of this one's, with another port for nodes and no console. It does not run.
    pub fn copied(&self) -> Member {
        let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a folder");
        let (from, to) = (self.dir.path().display().to_string(), dir.path().display().to_string());
        let copied = Command::new("cp").args(["-a", "--sparse=always", &format!("{from}/."), &to]).status();
        assert!(copied.expect("cp runs").success());
        let conf = fs::read_to_string(self.conf()).expect("the file is there").replace(&from, &to);
        fs::write(dir.path().join("flintkv.conf"), conf + "peer-port 8390\nconsole-port 0\n").expect("it is written");
        for log in ["node.log", "coordinator.log"] {
            fs::write(dir.path().join(log), "").expect("it is written");
        }
        let (name, host) = (self.name.clone(), self.host.clone());
        Member { name, host, dir, role: self.role, clock_s: self.clock_s, node: None, coordinator: None }
    }

    pub fn conf(&self) -> String {
        self.dir.path().join("flintkv.conf").display().to_string()
    }

    /// What its processes have printed.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        read("node.log") + &read("coordinator.log")
    }

    fn spawn(&self, subcommand: &str, log: &str) -> Child {
        let log = File::options().create(true).append(true).open(self.dir.path().join(log)).expect("a file");
        self.program()
            .args([subcommand, &self.conf()])
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("the program runs")
    }

    fn program(&self) -> Command {
        let mut program = Command::new(binary());
        if self.clock_s != 0 {
            program.envs([
                ("LD_PRELOAD", fake_time()),
                ("FAKETIME", format!("{:+}", self.clock_s)),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ]);
        }
        program
    }

    /// The process of `flintkv server`, which runs.
    pub fn pid(&self) -> u32 {
        self.node.as_ref().expect("it runs").id()
    }

    /// Starts what of it does not run.
    pub fn start(&mut self) {
        self.start_node();
        self.start_coordinator();
    }

    pub fn start_node(&mut self) {
        if self.node.is_none() {
            let subcommand = if self.role == Role::Data { "server" } else { "quorum" };
            self.node = Some(self.spawn(subcommand, "node.log"));
        }
    }

    pub fn start_coordinator(&mut self) {
        if self.role == Role::Data && self.coordinator.is_none() {
            self.coordinator = Some(self.spawn("coordinator", "coordinator.log"));
        }
    }

    /// Ends its `flintkv server` or `flintkv quorum` without a word.
    pub fn kill_node(&mut self) {
        end(&mut self.node, Signal::KILL);
    }

    /// Ends it as a loss of its machine's power does, as far as the node can know: what it has written down of its copies was in another boot
    /// of the machine. Their files stay as they are.
    pub fn lose_power(&mut self) {
        self.kill_node();
        for entry in fs::read_dir(self.dir.path().join("state/copies")).expect("a folder") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "life") {
                let mut life: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
                assert!(life["roles"]["boot"].is_string(), "{life}");
                life["roles"]["boot"] = "of another boot".into();
                fs::write(&path, life.to_string()).expect("it is written");
            }
        }
    }

    pub fn stop_node(&mut self) {
        end(&mut self.node, Signal::TERM);
    }

    /// Ends its member of etcd.
    pub fn stop_coordinator(&mut self) {
        end(&mut self.coordinator, Signal::TERM);
    }

    /// A client of this node. Waits until the node listens.
    pub fn connect(&self, port: u16) -> Client {
        let mut stream = None;
        eventually("the node accepts connections", || {
            stream = TcpStream::connect((self.host.as_str(), port)).ok();
            stream.is_some()
        });
        Client::new(stream.expect("it is connected"))
    }

    /// The command line of an operator, whose node this is. The error is what it printed to standard error.
    pub fn operator(&self, words: &[&str]) -> Result<String, String> {
        let done = self
            .program()
            .args(words)
            .env("FLINTKV_URL", format!("http://{}:8379", self.host))
            .env("FLINTKV_USER", "admin")
            .env("FLINTKV_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    /// What GET /api/v1/cluster answers. `None`: the node does not answer, or is no member yet.
    pub fn status(&self) -> Option<Value> {
        let shown = self.operator(&["cluster", "status", "--json"]).ok()?;
        Some(serde_json::from_str(&shown).expect("JSON"))
    }
}

/// The library that shifts the clock, of Debian's package.
fn fake_time() -> String {
    let name = "faketime/libfaketimeMT.so.1";
    let folders = ["/usr/lib".to_owned(), format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH)];
    let found = folders.iter().map(|folder| format!("{folder}/{name}")).find(|path| fs::exists(path).unwrap_or(false));
    found.expect("libfaketime is missing: apt-get install libfaketime")
}

fn end(child: &mut Option<Child>, signal: Signal) {
    if let Some(mut child) = child.take() {
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
        let _ = child.wait();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.log());
        }
        end(&mut self.node, Signal::KILL);
        end(&mut self.coordinator, Signal::TERM);
    }
}

impl Cluster {
    /// The first node, which runs and is the only member.
    pub fn begin(directives: &[(&str, &str)]) -> Cluster {
        let mut member = Member::new(hosts(), "n1".to_owned(), Role::Data, directives);
        member.start();
        let conf = member.conf();
        let init =
            ["cluster", "init", "test", "--conf", &conf, "--address", &member.host, "--name", "n1", "--zone", "a"];
        let begun = member.operator(&init);
        assert!(begun.as_ref().is_ok_and(|said| said.contains("flintkv cluster join")), "{begun:?}\n{}", member.log());
        let cluster = Cluster { members: vec![member] };
        // What it has for copies is recorded a moment after it is a member.
        eventually("the first node is a member", || {
            let has_room = |status: Value| status["nodes"][0]["ram_bytes"].as_u64().is_some_and(|bytes| bytes > 0);
            cluster.members[0].status().is_some_and(has_room)
        });
        cluster
    }

    /// A cluster of these nodes, of which the first one keeps data. It is complete when this returns.
    pub fn start(roles: &[Role], directives: &[(&str, &str)]) -> Cluster {
        assert_eq!(roles[0], Role::Data);
        let mut cluster = Cluster::begin(directives);
        for role in &roles[1..] {
            let joined = cluster.join(*role, directives);
            assert!(joined.is_ok(), "{joined:?}");
        }
        cluster.is_complete();
        cluster
    }

    /// The same, with what cuts the connections to each node's port for nodes.
    pub fn start_cut(roles: &[Role], directives: &[(&str, &str)]) -> (Cluster, Vec<Cutter>) {
        let announced = ANNOUNCED_PORT.to_string();
        let announced = ("peer-announce-port", announced.as_str());
        let cluster = Cluster::start(roles, &[&[announced], directives].concat());
        let cut = |member: &Member| Cutter::start((&member.host, ANNOUNCED_PORT), (&member.host, PEER_PORT));
        let cutters = cluster.members.iter().map(cut).collect();
        (cluster, cutters)
    }

    /// Another node, in a zone of its own, with a token of the first one.
    pub fn join(&mut self, role: Role, directives: &[(&str, &str)]) -> Result<String, String> {
        let token = self.token();
        let mut member = self.candidate(role, directives);
        member.start();
        let said = self.join_with(&member, &token);
        self.members.push(member);
        said
    }

    /// A node that is a member of nothing, and does not run.
    pub fn candidate(&self, role: Role, directives: &[(&str, &str)]) -> Member {
        let number = self.members.len() + 1;
        let (network, _) = self.members[0].host.rsplit_once('.').expect("an address");
        Member::new(format!("{network}.{number}"), format!("n{number}"), role, directives)
    }

    pub fn token(&self) -> String {
        let shown = self.members[0].operator(&["cluster", "token", "--json"]).expect("a token");
        serde_json::from_str::<Value>(&shown).expect("JSON")["token"].as_str().expect("a token").to_owned()
    }

    pub fn join_with(&self, member: &Member, token: &str) -> Result<String, String> {
        let (conf, zone) = (member.conf(), format!("zone-{}", member.name));
        let role = if member.role == Role::Data { "data" } else { "quorum" };
        member.operator(&[
            "cluster",
            "join",
            &self.members[0].host,
            "--token",
            token,
            "--conf",
            &conf,
            "--address",
            &member.host,
            "--name",
            &member.name,
            "--zone",
            &zone,
            "--role",
            role,
        ])
    }

    /// Waits until every node runs, as every data node sees it, and has said what it has.
    pub fn is_complete(&self) {
        let sees_all = |member: &Member| {
            let Some(status) = member.status() else { return false };
            let nodes = status["nodes"].as_array().expect("nodes");
            let is_ready = |node: &Value| {
                node["is_live"] == true
                    && (node["role"] == "quorum" || node["ram_bytes"].as_u64().is_some_and(|bytes| bytes > 0))
            };
            nodes.len() == self.members.len() && nodes.iter().all(is_ready)
        };
        let data = self.members.iter().filter(|member| member.role == Role::Data);
        for member in data {
            eventually("every node is seen by every other", || sees_all(member));
        }
        // Until a member of etcd votes, the loss of another one may take the majority away.
        eventually("every member of etcd votes", || {
            let Ok(shown) = self.members[0].operator(&["cluster", "nodes", "--json"]) else { return false };
            let shown: Value = serde_json::from_str(&shown).expect("JSON");
            let Some(members) = shown["etcd"]["members"].as_array() else { return false };
            let votes = |member: &Value| member["is_learner"] == false && member["trouble"].is_null();
            let Some(nodes) = shown["nodes"].as_array() else { return false };
            let has_room =
                |node: &Value| node["role"] != "data" || node["ram_bytes"].as_u64().is_some_and(|bytes| bytes > 0);
            members.len() == self.members.len() && members.iter().all(votes) && nodes.iter().all(has_room)
        });
    }

    /// Makes a database and returns its port, on which each data node listens when this returns.
    pub fn create(&self, name: &str, shards: u16, options: &[&str]) -> u16 {
        let shards = shards.to_string();
        let words = [&["database", "create", name, "--shards", &shards, "--json"][..], options].concat();
        let shown = self.members[0].operator(&words).expect("the database is created");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let port = shown["definition"]["port"].as_u64().expect("a port") as u16;
        for member in self.members.iter().filter(|member| member.role == Role::Data) {
            eventually("each node serves the database", || {
                TcpStream::connect((member.host.as_str(), port))
                    .is_ok_and(|_| member.operator(&["database", "show", name]).is_ok())
            });
        }
        port
    }

    /// The position of the node that has the key.
    pub fn owner(&self, name: &str, key: &str) -> usize {
        let status = self.members[0].status().expect("the node answers");
        let databases = status["databases"].as_array().expect("databases");
        let database = databases.iter().find(|database| database["name"] == name).expect("the database is there");
        let shards = database["shards"].as_array().expect("shards");
        // Each shard has an equal run of slots.
        let node = shards[slot(key) * shards.len() / 16384]["node"].as_str().expect("a name");
        self.members.iter().position(|member| member.name == node).expect("a member")
    }

    /// Waits until this many shards of the database answer this node.
    pub fn serves(&self, at: usize, name: &str, count: usize) {
        eventually("the shards are served", || {
            let Ok(shown) = self.members[at].operator(&["database", "shards", name, "--json"]) else { return false };
            let shards: Value = serde_json::from_str(&shown).expect("JSON");
            let answering = shards.as_array().expect("shards").iter().filter(|shard| shard["trouble"].is_null());
            answering.count() == count
        });
    }
}

/// The slot of a key without a tag: CRC-16/XMODEM, as Redis Cluster has it.
fn slot(key: &str) -> usize {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        (0..8).fold(crc ^ u16::from(byte) << 8, shift)
    });
    usize::from(crc % 16384)
}

/// The first address of a network that no other test uses.
fn hosts() -> String {
    let [high, low] = free_port().to_be_bytes();
    format!("127.{high}.{low}.1")
}
