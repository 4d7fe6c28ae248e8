//! Owns the directory with etcd's data: that one coordinator has it, that it can be written, and that what is in it belongs to the
//! node's present membership. Never knows how etcd is started.
//!
//! ```text
//! etcd-path/                  locked (flock) by the coordinator that uses it
//! etcd-path/member/           etcd's own
//! etcd-path/member.<word>-<time>   set aside: of an earlier membership, or from before a restore
//! state-dir/cluster/etcd-started   the mark: which member of etcd was started from this membership
//! ```
//!
//! The mark is why an empty directory is not taken for a new member. A directory is also empty if its device is not mounted. etcd would
//! then begin an empty cluster under the old one's identity. The mark also tells data of an earlier membership: leaving a cluster removes
//! it, and not the data.

use crate::folder::{EtcdMember, Folder};
use config::Config;
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::process::geteuid;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// etcd's first files: two segments of its log of 64 MB each, and the database.
const FIRST_BYTES: u64 = 160 << 20;

/// Each says what to do.
#[derive(Debug)]
pub enum DataError {
    Unwritable {
        path: PathBuf,
        error: io::Error,
    },
    Full {
        path: PathBuf,
        free_bytes: u64,
    },
    /// Another coordinator has the directory.
    InUse(PathBuf),
    /// There were data, and there are none.
    Missing(PathBuf),
    OtherOwner {
        path: PathBuf,
        uid: u32,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::Unwritable { path, error } => write!(
                f,
                "etcd-path {} cannot be written ({error}): give it to the user of this process, or set etcd-path to \
                 another directory",
                path.display()
            ),
            DataError::Full { path, free_bytes } => write!(
                f,
                "etcd-path {} has {} left on its device, and etcd begins with {}: free space, or set etcd-path to another \
                 device",
                path.display(),
                base::size::human(*free_bytes),
                base::size::human(FIRST_BYTES)
            ),
            DataError::InUse(path) => write!(
                f,
                "another coordinator uses etcd-path {}: stop it first (systemctl stop flintkv-coordinator)",
                path.display()
            ),
            DataError::Missing(path) => write!(
                f,
                "etcd-path {} has no data, although this node's etcd was started before: see that its device is mounted and \
                 etcd-path is right. If the data are lost, remove this member from the cluster and let the node join again; \
                 if those of all members are lost, flintkv coordinator restore",
                path.display()
            ),
            DataError::OtherOwner { path, uid } => write!(
                f,
                "{} belongs to the user with the id {uid}, whose etcd could not read what root writes: run this command as that \
                 user (sudo -u flintkv ...)",
                path.display()
            ),
            DataError::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for DataError {}

/// `etcd-path`, which no other coordinator has until this value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _locked: File,
}

impl DataDir {
    /// Makes the directory if it is missing. `state-dir/cluster` must be there.
    pub fn open(config: &Config) -> Result<DataDir, DataError> {
        let path = std::path::absolute(&config.etcd_path).unwrap_or_else(|_| config.etcd_path.clone());
        let unwritable = |error| DataError::Unwritable { path: path.clone(), error };
        let folder = Folder::of(config).path().to_owned();
        let owner = fs::metadata(&folder).map_err(|error| DataError::Io { path: folder.clone(), error })?.uid();
        if geteuid().is_root() && owner != 0 {
            return Err(DataError::OtherOwner { path: folder, uid: owner });
        }
        // Only its owner may look in: etcd wants that too.
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(unwritable)?;
        let locked = File::open(&path).map_err(unwritable)?;
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(DataError::InUse(path)),
            Err(error) => return Err(unwritable(error.into())),
        }
        let trial = path.join("trial");
        let tried = File::create(&trial).and_then(|mut file| file.write_all(&[0; 4096]).and_then(|()| file.sync_all()));
        let _ = fs::remove_file(&trial);
        unless_full(tried).map_err(unwritable)?;
        Ok(DataDir { path, _locked: locked })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn has_data(&self) -> bool {
        self.member().exists()
    }

    /// Before etcd's first start by this coordinator. What it returns is for the log.
    pub fn prepare(&self, folder: &Folder, member: &EtcdMember, now_ms: u64) -> Result<Option<String>, DataError> {
        let mark = Mark::read(folder, member)?;
        match (mark, self.has_data()) {
            (Some(Mark::Started), false) => return Err(DataError::Missing(self.path.clone())),
            (Some(_), true) => return Ok(None),
            _ => {}
        }
        let aside = self.set_aside("left", now_ms)?;
        let free_bytes = statvfs(&self.path).map_or(u64::MAX, |told| told.f_bavail * told.f_frsize);
        if free_bytes < FIRST_BYTES {
            return Err(DataError::Full { path: self.path.clone(), free_bytes });
        }
        Mark::Starting.write(folder, member)?;
        Ok(aside.map(|aside| {
            format!(
                "the data in {} are of an earlier membership: they are now {}",
                self.path.display(),
                aside.display()
            )
        }))
    }

    /// Renames etcd's data, if there are any.
    pub fn set_aside(&self, word: &str, now_ms: u64) -> Result<Option<PathBuf>, DataError> {
        if !self.has_data() {
            return Ok(None);
        }
        let aside = self.path.join(format!("member.{word}-{now_ms}"));
        self.rename(&self.member(), &aside)?;
        Ok(Some(aside))
    }

    /// A directory for a tool that wants one that is not there. What an earlier run left in it is removed.
    pub fn place_for_restore(&self) -> Result<PathBuf, DataError> {
        let place = self.path.join("restoring");
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DataError::Io { path: place, error }),
            _ => Ok(place),
        }
    }

    /// What the tool made becomes etcd's data.
    pub fn take_restored(&self, place: &Path) -> Result<(), DataError> {
        self.rename(&place.join("member"), &self.member())?;
        let _ = fs::remove_dir_all(place);
        Ok(())
    }

    fn member(&self) -> PathBuf {
        self.path.join("member")
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DataError> {
        let renamed = fs::rename(from, to).and_then(|()| File::open(&self.path)?.sync_all());
        renamed.map_err(|error| DataError::Io { path: from.to_owned(), error })
    }
}

/// A full device says nothing of who may write to it, and passes. etcd ends on it, and is started until there is room.
fn unless_full(tried: io::Result<()>) -> io::Result<()> {
    match tried {
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(()),
        tried => tried,
    }
}

/// How far etcd came in this membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It may have data.
    Starting,
    /// It has.
    Started,
}

impl Mark {
    /// `None`: never, or it was of another membership.
    fn read(folder: &Folder, member: &EtcdMember) -> Result<Option<Mark>, DataError> {
        let path = mark_file(folder);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| DataError::Io { path, error })?,
        };
        Ok([Mark::Starting, Mark::Started].into_iter().find(|mark| mark.text(member) == text))
    }

    pub fn write(self, folder: &Folder, member: &EtcdMember) -> Result<(), DataError> {
        let path = mark_file(folder);
        // The node may leave its cluster meanwhile: its folder is not made again.
        pki::write_public(&path, self.text(member).as_bytes())
            .map_err(|error| DataError::Io { path, error: io::Error::other(error.to_string()) })
    }

    fn text(self, member: &EtcdMember) -> String {
        let word = match self {
            Mark::Starting => "starting",
            Mark::Started => "started",
        };
        format!("{} {} {word}\n", member.cluster_token, member.name)
    }
}

fn mark_file(folder: &Folder) -> PathBuf {
    folder.path().join("etcd-started")
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::ConfigStore;
    use pki::{ClusterId, NodeId};

    fn place() -> (tempfile::TempDir, DataDir, Folder) {
        let state = tempfile::tempdir().unwrap();
        let config = ConfigStore::from_directives(&[("state-dir", state.path().to_str().unwrap())]).unwrap();
        let folder = Folder::of(&config.snapshot());
        folder.make().unwrap();
        (state, DataDir::open(&config.snapshot()).unwrap(), folder)
    }

    fn member(cluster: ClusterId) -> EtcdMember {
        EtcdMember::new(NodeId::random(), "127.0.0.1".to_owned(), (1, 2), cluster, Vec::new())
    }

    #[test]
    fn a_full_device_is_left_to_etcd() {
        // A coordinator that ended on it would not be started again.
        let full = File::options().write(true).open("/dev/full").unwrap().write_all(b"trial");
        assert_eq!(full.as_ref().unwrap_err().kind(), io::ErrorKind::StorageFull);
        unless_full(full).unwrap();
        let refused = Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(unless_full(refused).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_empty_directory_is_a_new_member_once_only() {
        let (_state, data, folder) = place();
        let member = member(ClusterId::random());
        assert_eq!(data.prepare(&folder, &member, 1).unwrap(), None);
        // etcd may have ended before it made anything.
        assert_eq!(data.prepare(&folder, &member, 1).unwrap(), None);
        fs::create_dir(data.member()).unwrap();
        Mark::Started.write(&folder, &member).unwrap();
        assert_eq!(data.prepare(&folder, &member, 1).unwrap(), None);
        assert!(data.has_data());
        // As if the device were not mounted.
        fs::remove_dir(data.member()).unwrap();
        let why = data.prepare(&folder, &member, 1).unwrap_err().to_string();
        assert!(why.contains("has no data, although") && why.contains("mounted"), "{why}");
    }

    #[test]
    fn the_data_of_an_earlier_membership_are_set_aside() {
        let (_state, data, folder) = place();
        let before = member(ClusterId::random());
        data.prepare(&folder, &before, 1).unwrap();
        fs::create_dir(data.member()).unwrap();
        Mark::Started.write(&folder, &before).unwrap();
        // The node left, and joined again; or its files were replaced by those of another cluster.
        folder.remove().unwrap();
        folder.make().unwrap();
        let said = data.prepare(&folder, &before, 7).unwrap().unwrap();
        assert!(said.contains("of an earlier membership") && said.ends_with("member.left-7"), "{said}");
        fs::create_dir(data.member()).unwrap();
        Mark::Started.write(&folder, &before).unwrap();
        assert!(data.prepare(&folder, &member(ClusterId::random()), 8).unwrap().is_some());
        assert!(!data.has_data());
        assert!(data.path().join("member.left-7").exists());
        assert!(data.path().join("member.left-8").exists());
    }
}
