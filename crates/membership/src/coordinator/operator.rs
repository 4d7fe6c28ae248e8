//! Owns what an operator asks of a cluster's etcd while it runs: status, compaction, a backup. Never knows the process of this node.

use crate::etcd::etcd_client;
use crate::folder::{Folder, FolderError, Member};
use base::size::human;
use config::Config;
use coord::etcd::maintenance::{Alarm, AlarmKind, Member as Listed};
use coord::{Coord, Error, Etcd};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// Each says what to do.
#[derive(Debug)]
pub enum OperatorError {
    NoMember(Folder),
    Folder(FolderError),
    Etcd(Error),
    /// `compact` is for the cluster's own etcd.
    External,
    /// Which members were not defragmented.
    Partly(Vec<String>),
    Output(io::Error),
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorError::NoMember(folder) => write!(
                f,
                "this node is a member of no cluster (there is no {}): give the node's configuration, and run the command as \
                 the node's user",
                folder.member_file().display()
            ),
            OperatorError::Folder(error) => error.fmt(f),
            OperatorError::Etcd(error) => error.fmt(f),
            OperatorError::External => f.write_str(
                "the cluster uses an etcd of your own: compact and defragment it with its own tools, when it suits its other users",
            ),
            OperatorError::Partly(names) => write!(
                f,
                "not all members were defragmented: see that they run, and run the command again. Left out: {}",
                names.join(", ")
            ),
            OperatorError::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OperatorError {}

impl From<FolderError> for OperatorError {
    fn from(error: FolderError) -> OperatorError {
        OperatorError::Folder(error)
    }
}

impl From<Error> for OperatorError {
    fn from(error: Error) -> OperatorError {
        OperatorError::Etcd(error)
    }
}

impl From<io::Error> for OperatorError {
    fn from(error: io::Error) -> OperatorError {
        OperatorError::Output(error)
    }
}

/// The members and the alarms.
pub async fn status(config: &Config, to: &mut dyn Write) -> Result<(), OperatorError> {
    let (member, etcd) = open(config)?;
    let mut members = etcd.members().await?;
    members.sort_by_key(|listed| listed.id);
    for listed in &members {
        let here = if listed.name == member.node.to_string() { ", this node" } else { "" };
        writeln!(to, "member {:x}{here}", listed.id)?;
        writeln!(to, "  node      {}", name(listed))?;
        writeln!(to, "  clients   {}", listed.client_urls.join(", "))?;
        writeln!(to, "  peers     {}", listed.peer_urls.join(", "))?;
        match &listed.status {
            Ok(status) => {
                let role = match (listed.is_learner, status.is_leader) {
                    (true, _) => "learner: it does not vote yet",
                    (_, true) => "leader",
                    _ => "follower",
                };
                writeln!(to, "  state     {role}, etcd {}", status.version)?;
                let quota = config.etcd_quota_bytes;
                let share = status.db_bytes as f64 * 100.0 / quota as f64;
                let share = match &member.etcd.external {
                    None => format!(", {share:.1} % of etcd-quota {}", human(quota)),
                    // It has a quota of its own.
                    Some(_) => String::new(),
                };
                let (size, used) = (human(status.db_bytes), human(status.db_bytes_in_use));
                writeln!(to, "  database  {size}{share}; {used} of it in use")?;
            }
            Err(error) => writeln!(to, "  state     does not answer: {error}")?,
        }
    }
    let alarms = etcd.alarms().await?;
    for Alarm { member, kind } in &alarms {
        let text = match kind {
            AlarmKind::NoSpace => "the quota is reached, etcd refuses changes: flintkv coordinator compact",
            AlarmKind::Corrupt => "its data differ from the others': remove the member, and let its node join again",
        };
        writeln!(to, "alarm of member {member:x}: {text}")?;
    }
    if alarms.is_empty() {
        writeln!(to, "no alarms")?;
    }
    Ok(())
}

/// Forgets old revisions, gives their space back on each member, and ends the alarms of full ones.
pub async fn compact(config: &Config, to: &mut dyn Write) -> Result<(), OperatorError> {
    let (member, etcd) = open(config)?;
    if member.etcd.external.is_some() {
        return Err(OperatorError::External);
    }
    let revision = etcd.probe("").await?.revision;
    match etcd.compact(revision).await {
        // Nothing was changed since the last compaction.
        Err(Error::Refused(why)) if why.contains("has been compacted") => {}
        answer => answer?,
    }
    writeln!(to, "compacted up to revision {revision}")?;
    let mut members = etcd.members().await?;
    // Others elect a leader while this one is busy, so it comes last.
    members.sort_by_key(|listed| listed.status.as_ref().is_ok_and(|status| status.is_leader));
    let mut left_out = Vec::new();
    let mut done = Vec::new();
    for listed in &members {
        let label = format!("member {:x} ({})", listed.id, name(listed));
        if listed.is_learner {
            writeln!(to, "{label}: a learner takes no such order; it is left out")?;
            continue;
        }
        let before = match &listed.status {
            Ok(status) => status.db_bytes,
            Err(error) => {
                writeln!(to, "{label}: {error}")?;
                left_out.push(label);
                continue;
            }
        };
        if let Err(error) = etcd.defragment(listed.id).await {
            writeln!(to, "{label}: {error}")?;
            left_out.push(label);
            continue;
        }
        done.push(listed.id);
        let now = etcd.members().await?;
        let now = now.iter().find(|now| now.id == listed.id).and_then(|now| now.status.as_ref().ok());
        let after = now.map_or_else(|| "unknown".to_owned(), |status| human(status.db_bytes));
        writeln!(to, "{label}: {} before, {after} after", human(before))?;
    }
    for alarm in etcd.alarms().await? {
        if alarm.kind == AlarmKind::NoSpace && done.contains(&alarm.member) {
            etcd.disarm(alarm).await?;
            writeln!(to, "member {:x}: its alarm of the full quota is ended", alarm.member)?;
        }
    }
    if left_out.is_empty() { Ok(()) } else { Err(OperatorError::Partly(left_out)) }
}

/// Writes all that the cluster keeps in etcd to a file.
pub async fn backup(config: &Config, file: &Path, to: &mut dyn Write) -> Result<(), OperatorError> {
    let (_, etcd) = open(config)?;
    let bytes = etcd.snapshot(file).await?;
    writeln!(to, "{}: {}", file.display(), human(bytes))?;
    writeln!(
        to,
        "Keep it with a copy of authority.pem from {}: the snapshot has no key",
        Folder::of(config).path().display()
    )?;
    Ok(())
}

fn open(config: &Config) -> Result<(Member, Etcd), OperatorError> {
    let folder = Folder::of(config);
    let member = folder.member()?.ok_or_else(|| OperatorError::NoMember(folder.clone()))?;
    let credential = folder.credential(base::clock::wall_ms())?;
    let etcd = etcd_client(&member, &credential, &member.etcd.endpoints)?;
    Ok((member, etcd))
}

fn name(listed: &Listed) -> &str {
    if listed.name.is_empty() { "has not started yet" } else { &listed.name }
}
