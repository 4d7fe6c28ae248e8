//! Owns the replacement of a cluster's authority: its record, what each node says of its certificates, and which step comes next. Never
//! knows how a node takes a step, or who asks for the next one.
//!
//! ```text
//! step     every node …                                           the next step begins when every node …
//! trust    trusts both authorities, its etcd too                  says so, and every node that is to have the new key has it
//! renew    gets certificates of the new one, which signs now      has them
//! drop     trusts the new one alone, its etcd too                 says so: then the replacement has ended
//! ```
//! Nodes say what they have, not what they have done: so it does not matter who was interrupted where. A node that does not run holds every
//! step up. Abandoned, a replacement goes the same way back: the authority that is to be left at the end is the old one again.

use crate::records::{Change, Records, RecordsError};
use pki::{AuthorityCertificate, Fingerprint, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The key of the [`AuthorityRecord`].
pub const AUTHORITY: &str = "authority";

/// Of a node's [`NodeCertificates`].
pub fn certificates_key(node: NodeId) -> String {
    format!("certificates/{node}")
}

/// Of the authorities with which the node's member of etcd was started, a set of [`Fingerprint`]s.
pub fn etcd_trusts_key(node: NodeId) -> String {
    format!("etcd_trusts/{node}")
}

/// The authorities of the cluster. There is no record before the first replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// What every node trusts: one certificate, or the old one and the new one; in PEM.
    pub trusted: Vec<String>,
    /// Whose key signs.
    pub signing: Fingerprint,
    /// Which one is left at the end.
    pub target: Fingerprint,
    pub is_abandoned: bool,
    pub started_ms: u64,
    pub by: String,
    /// `None`: the replacement is under way.
    pub ended_ms: Option<u64>,
}

/// What a node has of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCertificates {
    pub trusts: BTreeSet<Fingerprint>,
    /// The authority of its own certificate.
    pub node: Fingerprint,
    /// The authority of its etcd's certificate. `None`: it runs none.
    pub etcd: Option<Fingerprint>,
    /// The authorities whose keys it has.
    pub keys: BTreeSet<Fingerprint>,
}

/// What the step needs to know of a node.
#[derive(Clone, Debug)]
pub struct NodeProgress {
    pub name: String,
    pub is_live: bool,
    /// It is to have the authority's key.
    pub keeps_key: bool,
    /// It runs a member of etcd.
    pub runs_etcd: bool,
    /// `None`: it has not said yet what it has.
    pub certificates: Option<NodeCertificates>,
    pub etcd_trusts: Option<BTreeSet<Fingerprint>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Trust,
    Renew,
    Drop,
}

impl Step {
    pub fn word(self) -> &'static str {
        match self {
            Step::Trust => "trust",
            Step::Renew => "renew",
            Step::Drop => "drop",
        }
    }
}

/// What a node has not done yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub node: String,
    pub why: &'static str,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node '{}' {}", self.node, self.why)
    }
}

const DOES_NOT_RUN: &str = "does not run";

impl AuthorityRecord {
    /// The first step of a replacement of `old` by `new`.
    pub fn begin(old: &AuthorityCertificate, new: &AuthorityCertificate, by: &str, now_ms: u64) -> AuthorityRecord {
        AuthorityRecord {
            trusted: vec![old.pem(), new.pem()],
            signing: old.fingerprint(),
            target: new.fingerprint(),
            is_abandoned: false,
            started_ms: now_ms,
            by: by.to_owned(),
            ended_ms: None,
        }
    }

    /// `None`: the replacement has ended.
    pub fn step(&self) -> Option<Step> {
        match (self.ended_ms, &self.trusted[..]) {
            (Some(_), _) => None,
            (None, [_]) => Some(Step::Drop),
            (None, _) if self.signing == self.target => Some(Step::Renew),
            (None, _) => Some(Step::Trust),
        }
    }

    /// The authority of which every node gets certificates now, whatever is left of the life of those that it has.
    pub fn renews_with(&self) -> Option<Fingerprint> {
        (self.step() == Some(Step::Renew)).then_some(self.target)
    }

    /// The certificates that every node trusts.
    pub fn trusted(&self) -> Result<Vec<AuthorityCertificate>, pki::CertificateError> {
        self.trusted.iter().map(|pem| AuthorityCertificate::from_pem(pem)).collect()
    }

    pub fn fingerprints(&self) -> BTreeSet<Fingerprint> {
        self.trusted().unwrap_or_default().iter().map(AuthorityCertificate::fingerprint).collect()
    }

    /// Whom the step waits for. Nobody: [`AuthorityRecord::next`] may be written.
    pub fn waits_for(&self, nodes: &[NodeProgress]) -> Vec<Waiting> {
        let Some(step) = self.step() else { return Vec::new() };
        let waiting = |node: &NodeProgress| Some(Waiting { node: node.name.clone(), why: self.lacks(step, node)? });
        nodes.iter().filter_map(waiting).collect()
    }

    fn lacks(&self, step: Step, node: &NodeProgress) -> Option<&'static str> {
        if !node.is_live {
            return Some(DOES_NOT_RUN);
        }
        let Some(has) = &node.certificates else { return Some("has not said what certificates it has") };
        let trusted = self.fingerprints();
        let etcd_trusts = |wanted: &dyn Fn(&BTreeSet<Fingerprint>) -> bool| {
            !node.runs_etcd || node.etcd_trusts.as_ref().is_some_and(wanted)
        };
        match step {
            Step::Trust if !has.trusts.is_superset(&trusted) => Some("does not trust the new authority yet"),
            Step::Trust if node.keeps_key && !has.keys.contains(&self.target) => {
                Some("does not have the new authority's key yet")
            }
            Step::Trust if !etcd_trusts(&|told| told.is_superset(&trusted)) => {
                Some("has not restarted its etcd yet, so that it trusts the new authority")
            }
            Step::Renew if has.node != self.target => Some("has no certificate of the authority that stays yet"),
            Step::Renew if has.etcd.is_some_and(|etcd| etcd != self.target) => {
                Some("has no certificate of the authority that stays for its etcd yet")
            }
            Step::Drop if has.trusts != trusted => Some("trusts the authority that goes still"),
            Step::Drop if !has.keys.is_subset(&trusted) => Some("has the key of the authority that goes still"),
            Step::Drop if !etcd_trusts(&|told| *told == trusted) => {
                Some("has not restarted its etcd yet, so that it trusts one authority alone")
            }
            _ => None,
        }
    }

    /// The record of the next step.
    #[must_use]
    pub fn next(&self, now_ms: u64) -> AuthorityRecord {
        let mut next = self.clone();
        match self.step() {
            None => {}
            Some(Step::Trust) => next.signing = self.target,
            Some(Step::Renew) => next.trusted = self.only(self.target),
            Some(Step::Drop) => next.ended_ms = Some(now_ms),
        }
        next
    }

    /// The record of the way back. `None`: it is too late, or there is nothing to abandon.
    pub fn abandoned(&self) -> Option<AuthorityRecord> {
        let mut back = AuthorityRecord { is_abandoned: !self.is_abandoned, ..self.clone() };
        match self.step()? {
            Step::Trust => {
                back.target = self.signing;
                back.trusted = self.only(self.signing);
            }
            Step::Renew => {
                back.target = *self.fingerprints().iter().find(|one| **one != self.target)?;
                back.signing = back.target;
            }
            Step::Drop => return None,
        }
        Some(back)
    }

    fn only(&self, wanted: Fingerprint) -> Vec<String> {
        let is_it = |pem: &&String| AuthorityCertificate::from_pem(pem).is_ok_and(|one| one.fingerprint() == wanted);
        self.trusted.iter().filter(is_it).cloned().collect()
    }
}

/// The record, and its revision; 0: there is none.
pub async fn read(records: &Records) -> Result<(Option<AuthorityRecord>, i64), RecordsError> {
    let found = records.get::<AuthorityRecord>(AUTHORITY).await?;
    Ok(found.map_or((None, 0), |(record, revision)| (Some(record), revision)))
}

/// Writes the record, if it is still the one that was read.
pub async fn write(records: &Records, revision: i64, record: &AuthorityRecord) -> Result<i64, RecordsError> {
    records.change(Change::default().given(AUTHORITY, revision).put(AUTHORITY, record)).await
}
