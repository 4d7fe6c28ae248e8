//! Real etcd: members in processes of their own, which end with the test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coord::etcd::Options;
use coord::{Coord, Etcd};
use flintkv_tests::{free_port, is_installed};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{BOUND, eventually};

pub struct Cluster {
    pub members: Vec<Member>,
    folder: TempDir,
    arguments: Vec<String>,
    scheme: &'static str,
    /// Each has its own name and folder, those that are gone too.
    made: usize,
}

pub struct Member {
    pub name: String,
    pub client_url: String,
    pub peer_url: String,
    child: Option<Child>,
}

impl Cluster {
    pub async fn start(count: usize) -> Cluster {
        Cluster::start_with(count, &[]).await
    }

    pub async fn start_with(count: usize, arguments: &[&str]) -> Cluster {
        let cluster = Cluster::spawn(count, "http", arguments);
        cluster.is_ready(&cluster.etcd()).await;
        cluster
    }

    /// `scheme`: of the clients' addresses.
    pub fn spawn(count: usize, scheme: &'static str, arguments: &[&str]) -> Cluster {
        assert!(is_installed("etcd"), "etcd is missing: apt-get install etcd-server");
        let folder = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a folder");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut cluster = Cluster { members: Vec::new(), folder, arguments, scheme, made: 0 };
        (0..count).for_each(|_| cluster.add());
        (0..count).for_each(|index| cluster.spawn_member(index, "new"));
        cluster
    }

    /// The addresses of another member, which is not started.
    pub fn add(&mut self) {
        let port = free_port();
        let scheme = self.scheme;
        let (client_url, peer_url) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", port + 1));
        self.members.push(Member { name: format!("m{}", self.made), client_url, peer_url, child: None });
        self.made += 1;
    }

    /// Starts a member, or starts it again. `state`: new, or existing for a member that joins.
    pub fn spawn_member(&mut self, index: usize, state: &str) {
        let all: Vec<_> = self.members.iter().map(|member| format!("{}={}", member.name, member.peer_url)).collect();
        let Member { name, client_url, peer_url, .. } = &self.members[index];
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log")));
        let child = Command::new("etcd")
            .args(["--name", name, "--data-dir"])
            .arg(self.path(name))
            .args(["--listen-client-urls", client_url, "--advertise-client-urls", client_url])
            .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", state, "--logger", "zap"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a file"))
            .spawn()
            .expect("etcd runs");
        self.members[index].child = Some(child);
    }

    /// A busy machine's disk may make a member wait for seconds.
    pub fn options(&self) -> Options {
        let endpoints = self.members.iter().map(|member| member.client_url.clone()).collect();
        Options { timeout: BOUND / 2, ..Options::new(endpoints) }
    }

    pub fn etcd(&self) -> Etcd {
        Etcd::new(self.options()).expect("right options")
    }

    /// A client of these members only.
    pub fn etcd_of(&self, indexes: &[usize], timeout: Duration) -> Etcd {
        let endpoints = indexes.iter().map(|index| self.members[*index].client_url.clone()).collect();
        Etcd::new(Options { timeout, ..Options::new(endpoints) }).expect("right options")
    }

    pub async fn is_ready(&self, etcd: &Etcd) {
        eventually("etcd starts", async || etcd.get("none").await.is_ok()).await;
    }

    /// The leader's index.
    pub async fn leader(&self) -> usize {
        let etcd = self.etcd();
        for _ in 0..100 {
            let members = etcd.members().await.expect("members");
            let leader = members.iter().find(|member| member.status.as_ref().is_ok_and(|status| status.is_leader));
            if let Some(leader) = leader {
                return self.index(&leader.peer_urls);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no member leads");
    }

    pub fn index(&self, peer_urls: &[String]) -> usize {
        self.members.iter().position(|member| peer_urls.contains(&member.peer_url)).expect("one of the members")
    }

    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].child.take() {
            child.kill().expect("our own process");
            child.wait().expect("our own process");
        }
    }

    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signal(&self, index: usize, signal: Signal) {
        let child = self.members[index].child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("our own process");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let test_failed = std::thread::panicking();
        for Member { name, child, .. } in &mut self.members {
            if let Some(mut child) = child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
            if test_failed {
                let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{name}: {}", lines[lines.len().saturating_sub(5)..].join("\n"));
            }
        }
    }
}
