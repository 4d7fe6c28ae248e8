//! Owns what etcd is told of certificates: the authorities that it trusts, and which certificates are revoked; and whose turn it is to
//! restart its etcd for that. Never knows how etcd is restarted.
//!
//! etcd knows nothing of the cluster's records of nodes that are shut out. Each coordinator writes a list from them, signed by the
//! authority, whose key is on each node with a member. etcd (3.4 to 3.6) reads the list at each handshake, but only if there was one at its
//! start; so an empty one is written before the first start. It asks neither for the list's signature nor for its end, and refuses
//! everybody if it cannot read the list; so a list that is missing or damaged is written anew before anything is asked of etcd.
//!
//! etcd reads the authorities at its start only, and does not look at connections again that live. For both, the members restart their etcd,
//! one after the other.

use crate::authority::etcd_trusts_key;
use crate::folder::{EtcdMember, Folder, Member};
use crate::records::{Change, Records, RecordsError};
use coord::{Coord, Etcd};
use pki::{AuthorityCertificate, Fingerprint, Identity, Serial, ShutOut};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of the member that may restart its etcd now.
pub const RESTARTS: &str = "ctl/etcd_restart";
/// How long no other member restarts its etcd, if the first one does not say earlier that it is back. While a member does not answer, no
/// other one restarts its etcd.
const TURN: Duration = Duration::from_secs(15);

/// The list of revoked certificates for etcd, in DER.
pub fn revoked_crl(folder: &Folder) -> PathBuf {
    folder.path().join("revoked.crl")
}

/// What a run of etcd was told at its start. Connections may live that were accepted by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The file of authorities.
    authorities: Vec<u8>,
    revoked: BTreeSet<Serial>,
}

impl Told {
    /// What the files say now.
    pub fn read(folder: &Folder) -> Result<Told, String> {
        Ok(Told { authorities: read_authorities(folder)?, revoked: read_revoked(folder)?.unwrap_or_default() })
    }
}

/// Writes the list as it is, or an empty one, with a later end: however long the node was down, nobody finds that the list has ended.
pub fn renew_list(folder: &Folder, now_ms: u64) -> Result<(), String> {
    write_revoked(folder, &read_revoked(folder)?.unwrap_or_default(), now_ms)
}

fn read_authorities(folder: &Folder) -> Result<Vec<u8>, String> {
    let path = folder.ca_pem();
    fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// `None`: there is no list, or nobody can read it.
fn read_revoked(folder: &Folder) -> Result<Option<BTreeSet<Serial>>, String> {
    let path = revoked_crl(folder);
    match fs::read(&path) {
        Ok(list) => Ok(pki::revoked_serials(&list).map(|serials| serials.into_iter().collect())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn write_revoked(folder: &Folder, revoked: &BTreeSet<Serial>, now_ms: u64) -> Result<(), String> {
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

/// Says which authorities this run of etcd trusts.
async fn report(records: &Records, member: &Member, told: &Told) -> Result<(), String> {
    let key = etcd_trusts_key(member.node);
    let trusts = AuthorityCertificate::list_from_pem(&String::from_utf8_lossy(&told.authorities));
    let trusts = trusts.map_err(|error| format!("etcd's file of authorities: {error}"))?;
    let trusts: BTreeSet<Fingerprint> = trusts.iter().map(AuthorityCertificate::fingerprint).collect();
    let said = records.get::<BTreeSet<Fingerprint>>(&key).await.map_err(|error| error.to_string())?;
    if said.is_some_and(|(said, _)| said == trusts) {
        return Ok(());
    }
    records.change(Change::default().put(&key, &trusts)).await.map(drop).map_err(|error| error.to_string())
}

/// Writes the list anew if etcd cannot read it, from what is known without etcd.
pub fn repair(folder: &Folder, told: &Told, now_ms: u64) -> Result<(), String> {
    match read_revoked(folder)? {
        Some(_) => Ok(()),
        None => write_revoked(folder, &told.revoked, now_ms),
    }
}

/// Brings the list up to date. `Ok(true)`: etcd is to be restarted now, because it was `told` other authorities at its start, or because
/// connections may live whose certificates were not revoked then.
pub async fn update(
    folder: &Folder,
    own: &EtcdMember,
    member: &Member,
    etcd: &Etcd,
    told: &Told,
    now_ms: u64,
) -> Result<bool, String> {
    let records = Records::new(Arc::new(etcd.clone()), member.cluster);
    let wanted = wanted(&records, now_ms).await.map_err(|error| error.to_string())?;
    if read_revoked(folder)?.as_ref() != Some(&wanted) {
        write_revoked(folder, &wanted, now_ms)?;
    }
    report(&records, member, told).await?;
    if wanted.is_subset(&told.revoked) && read_authorities(folder)? == told.authorities {
        return Ok(false);
    }
    let members = etcd.members().await.map_err(|error| error.to_string())?;
    if let Some(silent) = members.iter().find(|member| !member.has_leader()) {
        return Err(format!("the member {} does not answer, and etcd needs a majority", silent.name));
    }
    let lease = etcd.grant(TURN).await.map_err(|error| error.to_string())?;
    let name = serde_json::to_vec(&own.name).expect("a name is plain text");
    let turn = Change::default().given(RESTARTS, 0).put_leased(RESTARTS, name, lease.id);
    match records.change(turn).await {
        Ok(_) => Ok(true),
        Err(RecordsError::Conflict) => Err("another member restarts its etcd now".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// This member is back, and another one may restart its etcd.
pub async fn end_turn(own: &EtcdMember, member: &Member, etcd: &Etcd) -> Result<(), RecordsError> {
    let records = Records::new(Arc::new(etcd.clone()), member.cluster);
    match records.get::<String>(RESTARTS).await? {
        Some((name, revision)) if name == own.name => {
            records.change(Change::default().given(RESTARTS, revision).delete(RESTARTS)).await.map(drop)
        }
        _ => Ok(()),
    }
}
