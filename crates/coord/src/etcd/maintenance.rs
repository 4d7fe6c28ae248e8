//! Owns what an operator asks of etcd: its members, its leader, its space, its alarms and a snapshot. Never knows why. There is no twin
//! of this: only the command line and the choice of etcd's leader need it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::error::{Error, Failure};
use crate::etcd::connection::{Connection, failure};
use crate::etcd::messages::{self, *};
use crate::etcd::{Etcd, Repeat};

/// A member rewrites its whole database meanwhile, and answers nothing else.
const DEFRAGMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// A snapshot ends with the SHA-256 of what comes before.
const SUM_BYTES: u64 = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// Empty: it was added and has not started yet.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    /// It receives everything, does not vote, and answers no client.
    pub is_learner: bool,
    /// What the member itself says.
    pub status: Result<Status, Error>,
}

impl Member {
    /// It answers, and a majority is there for it.
    pub fn has_leader(&self) -> bool {
        self.status.as_ref().is_ok_and(|status| status.has_leader)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub version: String,
    pub is_leader: bool,
    /// The member knows a leader, itself or another one: a majority of the members is there.
    pub has_leader: bool,
    /// The file's size, and how much of it defragmenting would keep.
    pub db_bytes: u64,
    pub db_bytes_in_use: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    pub member: u64,
    pub kind: AlarmKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota was reached: etcd refuses puts until the alarm is disarmed.
    NoSpace,
    /// The member's data differ from the others'. Remove it, and add it anew.
    Corrupt,
}

impl Etcd {
    /// Asks each member for its status, one after the other.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let listed = self.ask(MemberListRequest {}, Repeat::Always).await?.members;
        Ok(self.with_status(listed).await)
    }

    /// The same without a majority: the members as one of them last knew them. For operators to see; nothing may be decided by it.
    pub async fn known_members(&self) -> Result<Vec<Member>, Error> {
        let listed = self.ask(KnownMembersRequest {}, Repeat::Always).await?.members;
        Ok(self.with_status(listed).await)
    }

    async fn with_status(&self, listed: Vec<messages::Member>) -> Vec<Member> {
        let mut members = Vec::with_capacity(listed.len());
        for member in listed {
            let status = self.status(&member).await;
            let messages::Member { id, name, peer_urls, client_urls, is_learner } = member;
            members.push(Member { id, name, peer_urls, client_urls, is_learner, status });
        }
        members
    }

    /// The id of the new member, which may be started now. It is a learner: until it is promoted it does not vote, so that the others
    /// keep their majority while it is down. etcd takes one learner at a time.
    pub async fn add_learner(&self, peer_url: &str) -> Result<u64, Error> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        let answer = self.ask(request, Repeat::UnlessSent).await?;
        Ok(answer.member.unwrap_or_default().id)
    }

    /// Lets a learner vote. etcd refuses as long as the learner lacks much of what the leader has.
    pub async fn promote(&self, id: u64) -> Result<(), Error> {
        self.ask(MemberPromoteRequest { id }, Repeat::UnlessSent).await.map(drop)
    }

    pub async fn remove_member(&self, id: u64) -> Result<(), Error> {
        self.ask(MemberRemoveRequest { id }, Repeat::UnlessSent).await.map(drop)
    }

    pub async fn move_leader(&self, to: u64) -> Result<(), Error> {
        let members = self.members().await?;
        let leader = members.iter().find(|member| member.status.as_ref().is_ok_and(|status| status.is_leader));
        let leader = leader.ok_or_else(|| Error::Unreachable("no member is the leader".to_owned()))?;
        if leader.id == to {
            return Ok(());
        }
        self.ask_member(&leader.client_urls, MoveLeaderRequest { target_id: to }, self.shared.options.timeout)
            .await
            .map(drop)
    }

    /// Gives the space of what was compacted back to the file system. One member after the other, the leader last.
    pub async fn defragment(&self, id: u64) -> Result<(), Error> {
        let listed = self.ask(MemberListRequest {}, Repeat::Always).await?.members;
        let member = listed.into_iter().find(|member| member.id == id);
        let member = member.ok_or_else(|| Error::Refused(format!("etcd has no member {id:x}")))?;
        self.ask_member(&member.client_urls, DefragmentRequest {}, DEFRAGMENT_TIMEOUT).await.map(drop)
    }

    pub async fn alarms(&self) -> Result<Vec<Alarm>, Error> {
        let answer = self.ask(AlarmRequest::default(), Repeat::Always).await?;
        let alarm = |alarm: AlarmMember| {
            let kind = match alarm.alarm {
                NO_SPACE => AlarmKind::NoSpace,
                CORRUPT => AlarmKind::Corrupt,
                _ => return None,
            };
            Some(Alarm { member: alarm.member_id, kind })
        };
        Ok(answer.alarms.into_iter().filter_map(alarm).collect())
    }

    pub async fn disarm(&self, alarm: Alarm) -> Result<(), Error> {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => NO_SPACE,
            AlarmKind::Corrupt => CORRUPT,
        };
        let request = AlarmRequest { action: DEACTIVATE, member_id: alarm.member, alarm: kind };
        self.ask(request, Repeat::Always).await.map(drop)
    }

    /// Writes etcd's database to a new file that `etcdctl snapshot restore` reads, and returns its bytes. A file at `path` is replaced
    /// only by a complete snapshot. Blocks the thread while it writes.
    pub async fn snapshot(&self, path: &Path) -> Result<u64, Error> {
        let local = |error: std::io::Error| Error::Local(format!("{}: {error}", path.display()));
        let part = path.with_extension("part");
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&part).map_err(local)?;
        let taken = self.receive_snapshot(&mut file, &local).await;
        let done = taken.and_then(|bytes| {
            file.sync_all().and_then(|()| std::fs::rename(&part, path)).map_err(local)?;
            Ok(bytes)
        });
        if done.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        done
    }

    async fn receive_snapshot(&self, file: &mut File, local: &impl Fn(std::io::Error) -> Error) -> Result<u64, Error> {
        // Asks until a member answers, so that the snapshot begins at one that is there.
        self.ask(MemberListRequest {}, Repeat::Always).await?;
        let shared = &self.shared;
        let connection = &shared.connections[shared.current.load(std::sync::atomic::Ordering::Relaxed)];
        let slow = |_| Error::Lost("the snapshot stopped".to_owned());
        let wait = shared.options.timeout;
        let began = async {
            let token = shared.token(connection).await?;
            connection.stream(tokio_stream::once(SnapshotRequest {}), token).await.map_err(|status| failure(&status))
        };
        let mut pieces = timeout(wait, began).await.map_err(slow)??;
        let mut bytes = 0;
        while let Some(piece) =
            timeout(wait, pieces.message()).await.map_err(slow)?.map_err(|status| failure(&status))?
        {
            file.write_all(&piece.blob).map_err(local)?;
            bytes += piece.blob.len() as u64;
        }
        match has_its_sum(file, bytes).map_err(local)? {
            true => Ok(bytes),
            false => Err(Error::Lost("the snapshot is incomplete or damaged".to_owned())),
        }
    }

    async fn status(&self, member: &messages::Member) -> Result<Status, Error> {
        let answer = self.ask_member(&member.client_urls, StatusRequest {}, self.shared.options.timeout).await?;
        Ok(Status {
            is_leader: answer.leader == member.id,
            has_leader: answer.leader != 0,
            version: answer.version,
            db_bytes: answer.db_bytes as u64,
            db_bytes_in_use: answer.db_bytes_in_use as u64,
        })
    }

    async fn ask<C: Call>(&self, request: C, repeat: Repeat) -> Result<C::Answer, Error> {
        Ok(self.shared.call(request, repeat, self.shared.options.timeout).await?)
    }

    /// Asks this member and no other.
    async fn ask_member<C: Call>(&self, urls: &[String], request: C, wait: Duration) -> Result<C::Answer, Error> {
        let mut failure = Failure::NotSent("the member has not started".to_owned());
        for url in urls {
            let connection = Connection::new(url, &self.shared.options)?;
            match self.shared.attempt(&connection, request.clone(), wait).await {
                Err(Failure::NotSent(why)) => failure = Failure::NotSent(why),
                answer => return Ok(answer?),
            }
        }
        Err(failure.into())
    }
}

fn has_its_sum(file: &mut File, bytes: u64) -> std::io::Result<bool> {
    let Some(data_bytes) = bytes.checked_sub(SUM_BYTES) else { return Ok(false) };
    file.rewind()?;
    let mut sum = Sha256::new();
    let mut piece = vec![0; 64 << 10];
    let mut data = file.take(data_bytes);
    loop {
        match data.read(&mut piece)? {
            0 => break,
            read => sum.update(&piece[..read]),
        }
    }
    let mut said = [0; SUM_BYTES as usize];
    data.into_inner().read_exact(&mut said)?;
    Ok(sum.finalize()[..] == said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_short_snapshot_is_noticed() {
        let data = vec![7; 100_000];
        let whole = [&data[..], &Sha256::digest(&data)].concat();
        let check = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            has_its_sum(&mut file, bytes.len() as u64).unwrap()
        };
        assert!(check(&whole));
        assert!(!check(&whole[..whole.len() - 1]));
        assert!(!check(&whole[..31]));
        let mut damaged = whole.clone();
        damaged[50_000] ^= 1;
        assert!(!check(&damaged));
    }
}
