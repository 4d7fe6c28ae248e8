//! Owns how a member gets a further certificate over a link: its own renewed, or one for its etcd. Never knows the
//! link, whose other end is an argument, nor who runs etcd.

use crate::authority::{Authority, AuthorityError};
use crate::certificate::{Identity, Purpose};
use crate::id::NodeId;
use crate::join::authority_texts;
use crate::limits::CLOCKS_APART_MS_MAX;
use crate::request::CheckedRequest;
use crate::trust::Trust;
use base::time::instant;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueRequest {
    pub purpose: Purpose,
    /// IP addresses and host names, without ports; they may be others than before.
    pub addresses: Vec<String>,
    /// The request for a certificate, in PEM. A renewal has a new key too, so that a key that leaked ends with its
    /// certificate.
    pub request: String,
    pub clock_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueAnswer {
    /// In PEM.
    pub certificate: String,
    /// All that the cluster trusts, in PEM; first the one that signed.
    pub authorities: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum IssueError {
    /// The link's other end was shut out since its handshake.
    ShutOut {
        why: String,
    },
    /// The node is to run no etcd.
    NoEtcd {
        node: NodeId,
    },
    ClocksApart {
        node_ms: u64,
        issuer_ms: u64,
    },
    Invalid {
        why: String,
    },
    /// The issuer cannot issue certificates.
    Authority {
        why: String,
    },
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IssueError::ShutOut { why } | IssueError::Invalid { why } => f.write_str(why),
            IssueError::NoEtcd { node } => {
                write!(f, "the node {node} runs no member of etcd, so it gets no certificate for one")
            }
            IssueError::ClocksApart { node_ms, issuer_ms } => write!(
                f,
                "this node's clock says {}, that of the node that was asked {}: set the clocks",
                instant(*node_ms),
                instant(*issuer_ms)
            ),
            IssueError::Authority { why } => write!(f, "the node that was asked cannot issue a certificate: {why}"),
        }
    }
}

impl std::error::Error for IssueError {}

/// The issuer's side. `peer`: who the link's certificate says the other end is. `runs_etcd`: that node is to run a
/// member of etcd. The identity is to be kept before the answer is sent.
pub fn issue(
    authority: &Authority,
    trust: &Trust,
    peer: &Identity,
    runs_etcd: bool,
    request: &IssueRequest,
    now_ms: u64,
) -> Result<(Identity, IssueAnswer), IssueError> {
    let shut_out = |refusal: crate::refusal::Refusal| IssueError::ShutOut { why: refusal.to_string() };
    trust.admits(peer).map_err(shut_out)?;
    if request.purpose == Purpose::Etcd && !runs_etcd {
        return Err(IssueError::NoEtcd { node: peer.node });
    }
    if request.clock_ms.abs_diff(now_ms) > CLOCKS_APART_MS_MAX {
        return Err(IssueError::ClocksApart { node_ms: request.clock_ms, issuer_ms: now_ms });
    }
    let checked = CheckedRequest::from_pem(&request.request);
    let checked = checked.map_err(|error| IssueError::Invalid { why: error.to_string() })?;
    let issued = authority.issue(&checked, peer.node, request.purpose, &request.addresses, now_ms);
    let issued = issued.map_err(|error| match error {
        AuthorityError::BadAddress { .. } => IssueError::Invalid { why: error.to_string() },
        _ => IssueError::Authority { why: error.to_string() },
    })?;
    let answer =
        IssueAnswer { certificate: issued.certificate, authorities: authority_texts(authority.certificate(), trust) };
    Ok((issued.identity, answer))
}
