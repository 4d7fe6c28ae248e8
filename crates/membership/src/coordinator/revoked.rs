//! Owns the list of revoked certificates that etcd reads, and whose turn it is to restart its etcd for it. Never knows how etcd is
//! restarted.
//!
//! etcd knows nothing of the cluster's records of nodes that are shut out. Each coordinator writes a list from them, signed by the
//! authority, whose key is on each node with a member. etcd reads the list at each handshake, but only if there was one at its start; so
//! an empty one is written before the first start. Connections that live are not looked at again: for these, the members restart their
//! etcd, one after the other.

use crate::folder::{EtcdMember, Folder, Member};
use crate::records::{Change, Records, RecordsError};
use coord::{Coord, Etcd};
use pki::{Identity, Serial, ShutOut};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of the member that may restart its etcd now.
pub const RESTARTS: &str = "ctl/etcd_restart";
/// How long no other member restarts its etcd, unless the first one does not answer: then nobody does.
const TURN: Duration = Duration::from_secs(15);

/// The list of revoked certificates for etcd, in DER.
pub fn revoked_crl(folder: &Folder) -> PathBuf {
    folder.path().join("revoked.crl")
}

/// Writes an empty list if there is none.
pub fn prepare(folder: &Folder, now_ms: u64) -> Result<(), String> {
    match read(folder)? {
        Some(_) => Ok(()),
        None => write(folder, &BTreeSet::new(), now_ms),
    }
}

/// What the list says. `None`: there is none.
pub fn read(folder: &Folder) -> Result<Option<BTreeSet<Serial>>, String> {
    let path = revoked_crl(folder);
    let list = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let serials = pki::revoked_serials(&list);
    serials.map(|serials| Some(serials.into_iter().collect())).ok_or_else(|| {
        format!("{} is no list of revoked certificates: delete it, and it is written anew", path.display())
    })
}

fn write(folder: &Folder, revoked: &BTreeSet<Serial>, now_ms: u64) -> Result<(), String> {
    let authority = folder.authority().map_err(|error| error.to_string())?;
    let authority = authority.ok_or_else(|| format!("{} is missing", folder.authority_pem().display()))?;
    let serials: Vec<Serial> = revoked.iter().copied().collect();
    // The time as its number: it grows from list to list.
    let list = authority.revocation_list(&serials, now_ms, now_ms);
    pki::write_public(&revoked_crl(folder), &list).map_err(|error| error.to_string())
}

/// The certificates that do not count any more, and have not ended by themselves.
async fn wanted(records: &Records, now_ms: u64) -> Result<BTreeSet<Serial>, RecordsError> {
    let mut revoked = BTreeSet::new();
    for (_, shut_out) in records.list::<ShutOut>("shut_out/").await? {
        let issued = records.list::<Identity>(&format!("issued/{}/", shut_out.node)).await?;
        let counts_no_more =
            |identity: &Identity| identity.issued_ms < shut_out.issued_before_ms && now_ms < identity.expires_ms;
        revoked.extend(issued.into_iter().map(|(_, identity)| identity).filter(counts_no_more).map(|one| one.serial));
    }
    Ok(revoked)
}

/// Brings the list up to date. `Ok(true)`: etcd is to be restarted now, because connections may live whose certificates were not revoked
/// yet when it was started (`at_start`).
pub async fn update(
    folder: &Folder,
    own: &EtcdMember,
    member: &Member,
    etcd: &Etcd,
    at_start: &BTreeSet<Serial>,
    now_ms: u64,
) -> Result<bool, String> {
    let records = Records::new(Arc::new(etcd.clone()), member.cluster);
    let wanted = wanted(&records, now_ms).await.map_err(|error| error.to_string())?;
    if read(folder)?.as_ref() != Some(&wanted) {
        write(folder, &wanted, now_ms)?;
    }
    if wanted.is_subset(at_start) {
        return Ok(false);
    }
    let members = etcd.members().await.map_err(|error| error.to_string())?;
    if let Some(silent) = members.iter().find(|member| member.status.is_err()) {
        return Err(format!("the member {} does not answer, and etcd needs a majority", silent.name));
    }
    let lease = etcd.grant(TURN).await.map_err(|error| error.to_string())?;
    let turn = Change::default().given(RESTARTS, 0).put_leased(RESTARTS, own.name.clone().into_bytes(), lease.id);
    match records.change(turn).await {
        Ok(_) => Ok(true),
        Err(RecordsError::Conflict) => Err("another member restarts its etcd now".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
