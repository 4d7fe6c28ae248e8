//! Owns one run of etcd: its arguments, its output, and its end. Never knows when it is started again.
//!
//! etcd does not outlive the coordinator. The kernel kills it when the thread that started it ends, which `setpriv` asks for
//! (PR_SET_PDEATHSIG): to ask for it between fork and exec would be unsafe code. etcd is made for being killed.

use crate::coordinator::Log;
use crate::coordinator::certificates::revoked_crl;
use crate::coordinator::program::{Program, Version, bare_command};
use crate::folder::{EtcdMember, Folder, host_and_port};
use config::Config;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// From SIGTERM to SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// A line of etcd's that is longer is cut.
const LINE_CHARS_MAX: usize = 2000;

pub struct Process {
    child: Child,
    said: Arc<Said>,
    reader: Option<JoinHandle<()>>,
}

/// What etcd's output has told.
#[derive(Debug, Default)]
struct Said {
    was_removed: AtomicBool,
    is_full: AtomicBool,
}

/// How etcd ended.
#[derive(Debug)]
pub struct End {
    pub status: ExitStatus,
    /// The other members have removed it.
    pub was_removed: bool,
    /// The device of its directory is full.
    pub is_full: bool,
}

/// etcd's options, of 3.4 and of all later versions.
pub struct Options<'a> {
    pub config: &'a Config,
    pub folder: &'a Folder,
    pub member: &'a EtcdMember,
    pub data: &'a Path,
    /// Forgets all other members.
    pub force_new_cluster: bool,
}

impl Options<'_> {
    fn arguments(&self) -> Vec<OsString> {
        let Options { config, folder, member, data, force_new_cluster } = self;
        let listen = |port| format!("https://{}", host_and_port(&listen_host(&member.host), port));
        let initial: Vec<String> = member.initial.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
        add("--name", member.name.clone().into());
        add("--data-dir", data.into());
        add("--listen-client-urls", listen(member.client_port).into());
        add("--advertise-client-urls", member.client_url().into());
        add("--listen-peer-urls", listen(member.peer_port).into());
        add("--initial-advertise-peer-urls", member.peer_url().into());
        // These three count only as long as there are no data.
        add("--initial-cluster", initial.join(",").into());
        add("--initial-cluster-state", if member.is_new { "new" } else { "existing" }.into());
        add("--initial-cluster-token", member.cluster_token.clone().into());
        for prefix in ["--", "--peer-"] {
            add(&format!("{prefix}trusted-ca-file"), folder.ca_pem().into());
            // One file has the certificate and the key: etcd takes of it what it looks for.
            add(&format!("{prefix}cert-file"), folder.etcd_pem().into());
            add(&format!("{prefix}key-file"), folder.etcd_pem().into());
            if revoked_crl(folder).exists() {
                let option = if prefix == "--" { "--client-crl-file" } else { "--peer-crl-file" };
                add(option, revoked_crl(folder).into());
            }
        }
        // The certificates of nodes are of the same authority, and open the clients' port only.
        add("--peer-cert-allowed-cn", "etcd".into());
        add("--quota-backend-bytes", config.etcd_quota_bytes.to_string().into());
        add("--auto-compaction-mode", "periodic".into());
        add("--auto-compaction-retention", "1h".into());
        add("--logger", "zap".into());
        // Without it, a member that was cut off and comes back takes the lead away: all that asks etcd waits for an election then.
        arguments.extend(["--client-cert-auth", "--peer-client-cert-auth", "--pre-vote"].map(OsString::from));
        if *force_new_cluster {
            arguments.push("--force-new-cluster".into());
        }
        arguments
    }

    /// Why etcd could not run now: something has its ports, or its data.
    pub fn obstacle(&self) -> Option<String> {
        if let Some(pid) = left_over(self.data) {
            return Some(format!(
                "the process {pid} is an etcd with the same data ({}), which no coordinator watches any more: kill {pid}",
                self.data.display()
            ));
        }
        let host = listen_host(&self.member.host);
        [("etcd-client-port", self.member.client_port), ("etcd-peer-port", self.member.peer_port)].iter().find_map(
            |(directive, port)| {
                let address: IpAddr = host.parse().expect("listen_host gives IP addresses");
                let error = TcpListener::bind((address, *port)).err()?;
                Some(match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        format!("another program listens on {} ({directive})", host_and_port(&host, *port))
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        format!("this node's address in its cluster, {host}, is no address of this machine")
                    }
                    _ => format!("{} ({directive}): {error}", host_and_port(&host, *port)),
                })
            },
        )
    }
}

impl Process {
    /// To be called on a thread that lives as long as etcd shall.
    pub fn start(program: &Program, options: &Options<'_>, log: &Log) -> io::Result<Process> {
        let mut command = match setpriv() {
            Some(setpriv) => {
                let mut command = bare_command(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&program.path);
                command
            }
            None => bare_command(&program.path),
        };
        if cfg!(target_arch = "aarch64") && program.version <= (Version { major: 3, minor: 4 }) {
            // etcd 3.4 was not yet tested there by its authors.
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        let (reader, writer) = io::pipe()?;
        // A group of its own: Ctrl-C in a terminal reaches the coordinator alone, which then stops etcd.
        command.args(options.arguments()).process_group(0).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        // Our ends for writing: the reader ends when etcd's are closed.
        drop(command);
        let said = Arc::new(Said::default());
        let reader = thread::Builder::new().name("etcd-output".to_owned()).spawn({
            let (said, log) = (Arc::clone(&said), Arc::clone(log));
            move || pass_on(reader, &said, &log)
        })?;
        Ok(Process { child, said, reader: Some(reader) })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `None`: it runs.
    pub fn ended(&mut self) -> io::Result<Option<End>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        if let Some(reader) = self.reader.take() {
            // All that it said is read before its end counts.
            let _ = reader.join();
        }
        let Said { was_removed, is_full } = &*self.said;
        Ok(Some(End { status, was_removed: was_removed.load(Relaxed), is_full: is_full.load(Relaxed) }))
    }

    /// Asks etcd to stop, and kills it if it does not.
    pub fn stop(&mut self) -> io::Result<()> {
        let until = Instant::now() + STOP_TIMEOUT;
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while self.ended()?.is_none() {
            if Instant::now() >= until {
                self.child.kill()?;
                self.child.wait()?;
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Does nothing to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of util-linux, which is on every Debian; a container may be without it.
fn setpriv() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let paths = ["/usr/bin/setpriv", "/bin/setpriv"].map(PathBuf::from);
        paths.into_iter().find(|path| {
            let knows = bare_command(path).args(["--pdeathsig", "KILL", "--", "/bin/true"]).status();
            knows.is_ok_and(|status| status.success())
        })
    };
    FOUND.get_or_init(find).as_deref()
}

/// etcd listens on addresses only. One that is known by a name listens on all: the name may get another address.
fn listen_host(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_string(),
        Err(_) if TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() => "::".to_owned(),
        Err(_) => "0.0.0.0".to_owned(),
    }
}

/// An etcd with these data whose coordinator was killed at the moment in which it started etcd, or that had no `setpriv`.
fn left_over(data: &Path) -> Option<u32> {
    let wanted = [b"--data-dir\0", data.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut others = processes.filter(|pid: &u32| *pid != std::process::id());
    others.find(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.windows(wanted.len()).any(|part| part == wanted)
    })
}

fn pass_on(output: io::PipeReader, said: &Said, log: &Log) {
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        if line.contains("permanently removed from the cluster") {
            said.was_removed.store(true, Relaxed);
        }
        if line.contains("no space left on device") {
            said.is_full.store(true, Relaxed);
        }
        let short: String = reduced(&line).chars().take(LINE_CHARS_MAX).collect();
        log(&format!("etcd: {short}"));
    }
}

/// A JSON line of etcd's logger becomes its level, its message and its error.
fn reduced(line: &str) -> String {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { return line.to_owned() };
    let text = |name: &str| value.get(name).and_then(|value| value.as_str());
    let (Some(level), Some(message)) = (text("level"), text("msg")) else { return line.to_owned() };
    match text("error") {
        Some(error) => format!("{level}: {message}: {error}"),
        None => format!("{level}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::ConfigStore;
    use pki::{ClusterId, NodeId};

    #[test]
    fn the_arguments_of_a_member_that_joins() {
        let store = ConfigStore::from_directives(&[("state-dir", "/s"), ("etcd-quota", "16mb")]).unwrap();
        let (config, node, cluster) = (store.snapshot(), NodeId::random(), ClusterId::random());
        let others = vec![("a".to_owned(), "https://10.0.0.1:8382".to_owned())];
        let member = EtcdMember::new(node, "fd00::2".to_owned(), (8381, 8382), cluster, others);
        let folder = Folder::of(&config);
        let options = |force_new_cluster| Options {
            config: &config,
            folder: &folder,
            member: &member,
            data: Path::new("/d"),
            force_new_cluster,
        };
        let words: Vec<String> =
            options(false).arguments().into_iter().map(|word| word.into_string().unwrap()).collect();
        let value = |option: &str| &words[words.iter().position(|word| word == option).unwrap() + 1];
        assert_eq!(value("--listen-client-urls"), "https://[fd00::2]:8381");
        assert_eq!(
            value("--initial-cluster"),
            &format!("a=https://10.0.0.1:8382,{node}=https://[fd00::2]:8382"),
            "a URL with brackets"
        );
        assert_eq!(value("--initial-cluster-state"), "existing");
        assert_eq!(value("--peer-key-file"), "/s/cluster/etcd.pem");
        assert_eq!(value("--quota-backend-bytes"), "16777216");
        assert!(words.contains(&"--pre-vote".to_owned()));
        assert!(!words.iter().any(|word| word.contains("crl") || word.contains("force")));
        assert!(options(true).arguments().contains(&"--force-new-cluster".into()));
        // A name: every address of the machine.
        assert!(["::", "0.0.0.0"].contains(&&*listen_host("n1.example")));
    }

    #[test]
    fn lines_of_the_logger_are_reduced_and_others_kept() {
        let line = r#"{"level":"warn","ts":"2026","caller":"a.go:1","msg":"failed","peer":"x","error":"refused"}"#;
        assert_eq!(reduced(line), "warn: failed: refused");
        assert_eq!(reduced(r#"{"level":"info","msg":"ready"}"#), "info: ready");
        assert_eq!(reduced("panic: {"), "panic: {");
        assert_eq!(reduced("7"), "7");
    }
}
