//! Owns the file that says whose dataset a copy's files have: the shard's uid, the copy and the incarnation, how often it was flushed, and
//! what the copy of a shard with replicas has promised. Never knows the dataset.
//!
//! ```text
//! state-dir/copies/NAME.SHARD.life   beside the copy's configuration
//! ```

use cluster::ids::{CopyNumber, Epoch, Incarnation, ShardUid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    pub uid: ShardUid,
    pub incarnation: Incarnation,
    /// Another copy of the shard on this node has another dataset.
    #[serde(default = "first")]
    pub copy: CopyNumber,
    /// The flushes of its database that its dataset has done.
    #[serde(default)]
    pub flushes: u64,
    /// Of a copy of a shard with replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Roles>,
}

/// What a copy has promised, and has been: see `node::CopyMemory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    pub promised: Epoch,
    pub served: Option<Epoch>,
    pub acknowledges: bool,
    /// The machine's boot in which the dataset was opened last. In another one, the end of a journal that is not synchronised at each write
    /// may be missing.
    pub boot: String,
}

/// The machine's boot. Empty: it is not known.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn first() -> CopyNumber {
    CopyNumber(0)
}

fn path(state_dir: &Path, copy: &str) -> PathBuf {
    state_dir.join("copies").join(format!("{copy}.life"))
}

/// `None`: the copy has no files here.
pub fn read(state_dir: &Path, copy: &str) -> Result<Option<Life>, String> {
    let path = path(state_dir, copy);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// After the return the file survives a loss of power.
pub fn write(state_dir: &Path, copy: &str, life: &Life) -> Result<(), String> {
    let path = path(state_dir, copy);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    let bytes = serde_json::to_vec(life).expect("it is plain data");
    pki::write_public(&path, &bytes).map_err(|error| error.to_string())
}

pub fn remove(state_dir: &Path, copy: &str) {
    // Best effort: the dataset that it names is gone.
    let _ = fs::remove_file(path(state_dir, copy));
}
