//! Owns what an operator does to the etcd of this node after a disaster, while it does not run: a restore from a snapshot, and going on
//! without the lost majority. Never knows the other nodes: they come back by joining.

use crate::coordinator::Log;
use crate::coordinator::data::{DataDir, DataError, Mark};
use crate::coordinator::process::{Options, Process};
use crate::coordinator::program::{Program, ProgramError, bare_command};
use crate::etcd::etcd_client;
use crate::folder::{EtcdMember, Folder, FolderError};
use config::Config;
use coord::Etcd;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For an etcd that is alone: it reads its data, and elects itself.
const ALONE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// So many revisions the restored store is ahead of the snapshot, more than can have been lost. Nodes that still know a lost revision
/// then do not take a new one for it.
const BUMP: &str = "1000000000";

/// Each says what to do.
#[derive(Debug)]
pub enum RecoveryError {
    NoCoordinator(Folder),
    NoMember(Folder),
    Folder(FolderError),
    Program(ProgramError),
    Data(DataError),
    NoFile {
        path: PathBuf,
        error: io::Error,
    },
    /// Something has etcd's ports or its data.
    Obstacle(String),
    /// In the tool's own words.
    Tool {
        tool: PathBuf,
        said: String,
    },
    NoData(PathBuf),
    Etcd(coord::Error),
    Ended(String),
    Io(io::Error),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::NoCoordinator(folder) => write!(
                f,
                "this node runs no member of etcd (there is no {}): give the node's configuration, and run the command on a \
                 node that does",
                folder.coordinator_file().display()
            ),
            RecoveryError::NoMember(folder) => write!(
                f,
                "{} is missing, and without it this node is a member of no cluster: bring the folder back from a backup",
                folder.member_file().display()
            ),
            RecoveryError::Folder(error) => error.fmt(f),
            RecoveryError::Program(error) => error.fmt(f),
            RecoveryError::Data(error) => error.fmt(f),
            RecoveryError::NoFile { path, error } => write!(f, "the snapshot {}: {error}", path.display()),
            RecoveryError::Obstacle(why) => f.write_str(why),
            RecoveryError::Tool { tool, said } => {
                write!(f, "{} failed, and nothing was changed: {said}", tool.display())
            }
            RecoveryError::NoData(path) => {
                write!(f, "{} has no data of etcd to keep: flintkv coordinator restore", path.display())
            }
            RecoveryError::Etcd(error) => error.fmt(f),
            RecoveryError::Ended(why) => f.write_str(why),
            RecoveryError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecoveryError {}

impl From<FolderError> for RecoveryError {
    fn from(error: FolderError) -> RecoveryError {
        RecoveryError::Folder(error)
    }
}

impl From<ProgramError> for RecoveryError {
    fn from(error: ProgramError) -> RecoveryError {
        RecoveryError::Program(error)
    }
}

impl From<DataError> for RecoveryError {
    fn from(error: DataError) -> RecoveryError {
        RecoveryError::Data(error)
    }
}

impl From<coord::Error> for RecoveryError {
    fn from(error: coord::Error) -> RecoveryError {
        RecoveryError::Etcd(error)
    }
}

impl From<io::Error> for RecoveryError {
    fn from(error: io::Error) -> RecoveryError {
        RecoveryError::Io(error)
    }
}

/// Printed before a restore. It is done with `--yes` only.
pub fn restore_explanation(config: &Config, file: &Path) -> String {
    format!(
        "\
This makes etcd's data on this node anew from the snapshot {}.
  - This node becomes the only member of the cluster's etcd. What was written to etcd after the snapshot is lost.
  - etcd's present data in {} are kept beside the new ones, as member.before-restore-*.
  - Before: stop flintkv-coordinator on ALL nodes that run etcd. Two of the old members would go on as the old cluster.
  - After: start it here. Each other node that ran etcd leaves the cluster and joins again. Nodes that still run are
    restarted: they may remember what the snapshot does not have.
",
        file.display(),
        config.etcd_path.display()
    )
}

/// Printed before this member goes on alone. It is done with `--yes` only.
pub fn recover_explanation(config: &Config) -> String {
    format!(
        "\
This makes this node's member of etcd, with its data in {}, the only one of its cluster.
  - It is for a lost majority: more than half of the members are gone for good. If they can be started, start them instead.
  - What the others had and this one had not received is lost. If several members are left, keep the one whose data are the newest.
  - Before: stop flintkv-coordinator on ALL nodes that run etcd, and see that the lost ones do not come back. Two of the
    old members would go on as the old cluster.
  - After: start it here. Each other node that ran etcd leaves the cluster and joins again.
",
        config.etcd_path.display()
    )
}

/// etcd's data of this node, made from a snapshot, as a cluster of this one member.
pub fn restore(config: &Config, file: &Path, log: &Log) -> Result<(), RecoveryError> {
    let (folder, member) = known(config)?;
    std::fs::File::open(file).map_err(|error| RecoveryError::NoFile { path: file.to_owned(), error })?;
    let program = Program::find(&config.etcd_binary)?;
    let tool = program.restore_tool()?;
    let data = stopped(config, &folder, &member)?;
    let now_ms = base::clock::wall_ms();
    let place = data.place_for_restore()?;
    let mut command = bare_command(&tool);
    command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file).arg("--data-dir").arg(&place);
    command.args(["--name", &member.name, "--initial-advertise-peer-urls", &member.peer_url()]);
    command.args(["--initial-cluster", &format!("{}={}", member.name, member.peer_url())]);
    // etcd makes the ids of the cluster and of its members from the token and the URLs. With the old token, members of the old cluster
    // that were forgotten could take this one for the old first member.
    command.args(["--initial-cluster-token", &format!("{}-restored-{now_ms}", member.cluster_token)]);
    let can_bump = has_option(&tool, "--bump-revision")?;
    if can_bump {
        command.args(["--bump-revision", BUMP, "--mark-compacted"]);
    }
    let done = command.output()?;
    if !done.status.success() {
        let _ = data.place_for_restore();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let last = said.trim().lines().last().unwrap_or("it says nothing").to_owned();
        return Err(RecoveryError::Tool { tool, said: last });
    }
    if let Some(aside) = data.set_aside("before-restore", now_ms)? {
        log(&format!("the old data are {}", aside.display()));
    }
    data.take_restored(&place)?;
    Mark::Started.write(&folder, &member)?;
    log(&format!("restored {} by {}", file.display(), tool.display()));
    if !can_bump {
        log("this version of etcd's tool cannot number later revisions differently: restart all nodes of the cluster");
    }
    log("now: systemctl start flintkv-coordinator");
    Ok(())
}

/// Starts etcd once with `--force-new-cluster`, and stops it as soon as it is alone.
pub fn keep_this_member(config: &Config, log: &Log) -> Result<(), RecoveryError> {
    let (folder, member) = known(config)?;
    let program = Program::find(&config.etcd_binary)?;
    let data = stopped(config, &folder, &member)?;
    if !data.has_data() {
        return Err(RecoveryError::NoData(data.path().to_owned()));
    }
    let known = folder.member()?.ok_or_else(|| RecoveryError::NoMember(folder.clone()))?;
    let credential = folder.credential(base::clock::wall_ms())?;
    let client = etcd_client(&known, &credential, &[member.client_url()])?;
    let options = Options { config, folder: &folder, member: &member, data: data.path(), force_new_cluster: true };
    let mut etcd = Process::start(&program, &options, log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let alone = runtime.block_on(becomes_alone(&mut etcd, &client));
    etcd.stop()?;
    alone?;
    log("this node's member is the only one of its cluster. Now: systemctl start flintkv-coordinator");
    Ok(())
}

async fn becomes_alone(etcd: &mut Process, client: &Etcd) -> Result<(), RecoveryError> {
    let until = Instant::now() + ALONE_TIMEOUT;
    loop {
        if let Some(end) = etcd.ended()? {
            let why = format!("etcd ended ({}) instead of going on alone: its last lines say why", end.status);
            return Err(RecoveryError::Ended(why));
        }
        match client.members().await {
            Ok(members) if members.len() == 1 && members[0].has_leader() => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Ok(members) if Instant::now() > until => {
                return Err(RecoveryError::Ended(format!("etcd still lists {} members", members.len())));
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

fn known(config: &Config) -> Result<(Folder, EtcdMember), RecoveryError> {
    let folder = Folder::of(config);
    let member = folder.etcd_member()?.ok_or_else(|| RecoveryError::NoCoordinator(folder.clone()))?;
    Ok((folder, member))
}

/// The data, of which no coordinator and no etcd has hold.
fn stopped(config: &Config, folder: &Folder, member: &EtcdMember) -> Result<DataDir, RecoveryError> {
    let data = DataDir::open(config)?;
    let options = Options { config, folder, member, data: data.path(), force_new_cluster: false };
    match options.obstacle() {
        Some(why) => Err(RecoveryError::Obstacle(why)),
        None => Ok(data),
    }
}

fn has_option(tool: &Path, option: &str) -> io::Result<bool> {
    let help = bare_command(tool).env("ETCDCTL_API", "3").args(["snapshot", "restore", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains(option))
}
