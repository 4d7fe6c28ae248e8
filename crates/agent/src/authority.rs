//! Owns this node's part in the replacement of the cluster's authority: it trusts what the record says, has its keys and certificates
//! follow, says what it has, and begins the next step when every node has said so. Never knows which steps there are
//! (`membership::authority`).

use crate::change_error::ChangeError;
use base::clock::wall_ms;
use base::time::instant;
use cluster::ids::{NodeId, ProcessId};
use cluster::records::Role;
use cluster::view::View;
use coord::Event;
use membership::authority::{
    self, AUTHORITY, AuthorityRecord, NodeCertificates, NodeProgress, Step, Waiting, certificates_key,
};
use membership::call::{Call, Reply};
use membership::issuer::Issuer;
use membership::join::Peer;
use membership::records::{Change, RecordsError};
use pki::{Authority, AuthorityCertificate, Fingerprint, SecretText};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The records of the cluster's certificates.
#[derive(Clone, Debug, Default)]
pub struct CertificatesView {
    /// With its revision.
    pub authority: Option<(AuthorityRecord, i64)>,
    nodes: BTreeMap<NodeId, NodeCertificates>,
    etcd_trusts: BTreeMap<NodeId, BTreeSet<Fingerprint>>,
    /// The nodes that are to have the authority's key. They run the members of etcd too, if it is the cluster's own.
    coordinators: BTreeMap<NodeId, Role>,
}

/// The authority of a cluster, and how far its replacement is.
#[derive(Clone, Debug)]
pub struct AuthorityStatus {
    /// That of this node's certificate.
    pub now: AuthorityCertificate,
    /// The last replacement, or the one that is under way.
    pub record: Option<AuthorityRecord>,
    pub waits_for: Vec<Waiting>,
}

impl CertificatesView {
    /// A record was put, or deleted. `key` is below the cluster's prefix. True: it is one of these records.
    pub fn apply(&mut self, key: &str, event: &Event) -> bool {
        let bytes = match event {
            Event::Put(entry) => Some(&*entry.value),
            Event::Deleted { .. } => None,
        };
        match key.split_once('/') {
            None if key == AUTHORITY => {
                let record = bytes.and_then(|bytes| read(key, bytes));
                self.authority = record.map(|record| (record, event.revision()));
            }
            Some(("certificates", node)) => set(&mut self.nodes, key, node, bytes),
            Some(("etcd_trusts", node)) => set(&mut self.etcd_trusts, key, node, bytes),
            Some(("coordinators", node)) => set(&mut self.coordinators, key, node, bytes),
            _ => return false,
        }
        true
    }

    /// `runs_etcd`: the cluster's nodes do.
    fn progress(&self, view: &View, runs_etcd: bool) -> Vec<NodeProgress> {
        let node = |id: &NodeId| NodeProgress {
            name: view.node_name(*id),
            is_live: view.live.contains_key(id),
            keeps_key: self.coordinators.contains_key(id),
            runs_etcd: runs_etcd && self.coordinators.contains_key(id),
            certificates: self.nodes.get(id).cloned(),
            etcd_trusts: self.etcd_trusts.get(id).cloned(),
        };
        view.nodes.keys().map(node).collect()
    }
}

fn set<R: DeserializeOwned>(records: &mut BTreeMap<NodeId, R>, key: &str, node: &str, bytes: Option<&[u8]>) {
    let Ok(node) = node.parse() else { return };
    match bytes.and_then(|bytes| read(key, bytes)) {
        Some(record) => drop(records.insert(node, record)),
        None => drop(records.remove(&node)),
    }
}

/// One of a newer version is as good as none: nothing goes on before it is known what the node has.
fn read<R: DeserializeOwned>(key: &str, bytes: &[u8]) -> Option<R> {
    serde_json::from_slice(bytes).inspect_err(|error| tracing::error!("the record {key} cannot be read: {error}")).ok()
}

/// What this node knows when it takes its part.
pub struct Part {
    pub me: NodeId,
    /// This run of the node.
    pub process: ProcessId,
    pub issuer: Arc<Issuer>,
    pub view: Arc<View>,
    pub seen: Arc<CertificatesView>,
}

impl Part {
    /// Does what of it is to be done now. `Some`: etcd is asked by this issuer from now on, and the rest is done then.
    pub async fn follow(&self) -> Result<Option<Issuer>, String> {
        // A copy of the node's directory must not speak for it.
        if self.view.live.get(&self.me).is_none_or(|live| live.process != self.process) {
            return Ok(None);
        }
        let record = self.seen.authority.as_ref().map(|(record, _)| record);
        if let Some(reconnected) = record.map_or(Ok(None), |record| self.trust(record))? {
            return Ok(Some(reconnected));
        }
        let taken = self.take_key(record).await;
        self.report().await?;
        taken?;
        let Some((record, revision)) = &self.seen.authority else { return Ok(None) };
        if record.step().is_none() || !self.waits_for().is_empty() {
            return Ok(None);
        }
        let next = record.next(wall_ms());
        match authority::write(&self.issuer.records, *revision, &next).await {
            Ok(_) => match next.step() {
                Some(step) => tracing::info!("the replacement of the cluster's authority goes on: {}", step.word()),
                None => tracing::info!("the cluster's authority is {} now", next.target),
            },
            // Another node was faster, or it is not known: then the next look tells.
            Err(RecordsError::Conflict | RecordsError::Unknown(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(None)
    }

    pub fn status(&self) -> AuthorityStatus {
        AuthorityStatus {
            now: self.issuer.current.get().authority().clone(),
            waits_for: self.waits_for(),
            record: self.seen.authority.as_ref().map(|(record, _)| record.clone()),
        }
    }

    /// Makes a new authority at this node, and begins the replacement.
    pub async fn replace(&self, by: &str) -> Result<(), ChangeError> {
        let busy = |error: &dyn std::fmt::Display| ChangeError::Busy(error.to_string());
        let issuer = &self.issuer;
        let (record, revision) = authority::read(&issuer.records).await?;
        if let Some(record) = record.filter(|record| record.step().is_some()) {
            let since = instant(record.started_ms);
            return Err(ChangeError::Busy(format!("the authority is being replaced since {since}, by {}", record.by)));
        }
        if let Some(id) = self.view.nodes.keys().find(|id| !self.view.live.contains_key(*id)) {
            let name = self.view.node_name(*id);
            return Err(ChangeError::Busy(format!(
                "node '{name}' does not run: start it, or remove it for good (flintkv cluster forget {name})"
            )));
        }
        let now = issuer.current.get().authority().clone();
        let keys = issuer.folder.authorities().map_err(|error| busy(&error))?;
        let Some(old) = keys.iter().find(|authority| *authority.certificate() == now) else {
            return Err(ChangeError::Busy(issuer.lacks_key()));
        };
        let new = old.successor(wall_ms());
        // Before the record: every other node that is to have it asks this one for it.
        issuer.folder.write_next_authority(&new).map_err(|error| busy(&error))?;
        let record = AuthorityRecord::begin(&now, new.certificate(), by, wall_ms());
        authority::write(&issuer.records, revision, &record).await?;
        Ok(())
    }

    /// Begins the way back to the old authority.
    pub async fn abandon(&self) -> Result<(), ChangeError> {
        let (record, revision) = authority::read(&self.issuer.records).await?;
        let Some(record) = record.filter(|record| record.step().is_some()) else {
            return Err(ChangeError::NotFound("replacement of its authority under way".to_owned()));
        };
        let late = "every node has its certificates of the authority that stays: the replacement ends in a moment";
        let back = record.abandoned().ok_or_else(|| ChangeError::Busy(late.to_owned()))?;
        authority::write(&self.issuer.records, revision, &back).await?;
        Ok(())
    }

    fn waits_for(&self) -> Vec<Waiting> {
        let runs_etcd = self.issuer.member.etcd.external.is_none();
        let progress = self.seen.progress(&self.view, runs_etcd);
        self.seen.authority.as_ref().map_or_else(Vec::new, |(record, _)| record.waits_for(&progress))
    }

    /// Has the node and its etcd trust what the record says.
    fn trust(&self, record: &AuthorityRecord) -> Result<Option<Issuer>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let issuer = &self.issuer;
        let trusted = record.trusted().map_err(|error| text(&error))?;
        let etcd = issuer.folder.etcd_certificate().map_err(|error| text(&error))?;
        let mut own = vec![issuer.current.get().authority().clone()];
        own.extend(etcd.as_ref().map(|(_, authority)| authority.clone()));
        // The record is older than the node's certificates: it comes from a restored backup, and all nodes would refuse each other.
        if own.iter().any(|own| !trusted.contains(own)) {
            return Err(
                "the record in etcd does not name the authority of this node's certificates, as after a restored \
                        backup: flintkv cluster authority replace writes it anew"
                    .to_owned(),
            );
        }
        if etcd.is_some() && issuer.folder.etcd_authorities().map_err(|error| text(&error))? != trusted {
            // The coordinator restarts etcd for it.
            issuer.folder.write_ca(&trusted).map_err(|error| text(&error))?;
        }
        if issuer.member.authorities == record.trusted {
            return Ok(None);
        }
        let mut member = issuer.member.clone();
        member.authorities.clone_from(&record.trusted);
        issuer.folder.write_member(&member).map_err(|error| text(&error))?;
        let reconnected = issuer.reconnected(member).map_err(|error| text(&error))?;
        issuer.trust.set_authorities(trusted).map_err(|error| text(&error))?;
        Ok(Some(reconnected))
    }

    /// Has the node have the keys that it is to have: that of the authority that stays, or of the only one.
    async fn take_key(&self, record: Option<&AuthorityRecord>) -> Result<(), String> {
        let (issuer, seen) = (&self.issuer, &self.seen);
        let step = record.and_then(AuthorityRecord::step);
        let wanted = record.map_or_else(|| issuer.current.get().authority().fingerprint(), |record| record.target);
        if step == Some(Step::Drop) {
            issuer.folder.keep_authority(wanted).map_err(|error| error.to_string())?;
        }
        let has = issuer.folder.authorities().map_err(|error| error.to_string())?;
        let is_wanted = |authority: &Authority| authority.certificate().fingerprint() == wanted;
        if !seen.coordinators.contains_key(&self.me) || has.iter().any(is_wanted) {
            return Ok(());
        }
        let mut why = "no node has the authority's key".to_owned();
        for (id, node) in self.view.nodes.iter().filter(|(id, _)| **id != self.me) {
            if seen.nodes.get(id).is_none_or(|has| !has.keys.contains(&wanted)) {
                continue;
            }
            let peer = Peer {
                at: node.addresses.peer.as_str().to_owned(),
                current: Arc::clone(&issuer.current),
                trust: Arc::clone(&issuer.trust),
            };
            let call = Call::AuthorityKey { authority: wanted };
            match peer.ask_raw::<Call, Reply<String>>(&call).await {
                Ok(Ok(pem)) => {
                    let authority = Authority::from_pem(&SecretText::new(pem)).map_err(|error| error.to_string())?;
                    if is_wanted(&authority) {
                        let written = match step {
                            Some(Step::Trust | Step::Renew) => issuer.folder.write_next_authority(&authority),
                            Some(Step::Drop) | None => issuer.folder.write_authority(&authority),
                        };
                        return written.map_err(|error| error.to_string());
                    }
                }
                Ok(Err(error)) | Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Says what the node has.
    async fn report(&self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let issuer = &self.issuer;
        let etcd = issuer.folder.etcd_certificate().map_err(|error| text(&error))?;
        let keys = issuer.folder.authorities().map_err(|error| text(&error))?;
        let has = NodeCertificates {
            trusts: issuer.trust.authorities().iter().map(AuthorityCertificate::fingerprint).collect(),
            node: issuer.current.get().authority().fingerprint(),
            etcd: etcd.map(|(_, authority)| authority.fingerprint()),
            keys: keys.iter().map(|authority| authority.certificate().fingerprint()).collect(),
        };
        if self.seen.nodes.get(&self.me) == Some(&has) {
            return Ok(());
        }
        let change = Change::default().put(&certificates_key(issuer.member.node), &has);
        issuer.records.change(change).await.map(drop).map_err(|error| text(&error))
    }
}
