//! Owns how a node becomes a member: what it asks with a token, what the issuer checks and answers, and what the node
//! checks of the answer. Never knows where tokens and members are kept: they come as arguments, and what must be kept
//! is returned.

use crate::authority::{Authority, AuthorityError};
use crate::certificate::{AuthorityCertificate, Identity, Purpose};
use crate::credential::{Credential, CredentialError};
use crate::hex::Fingerprint;
use crate::id::{ClusterId, NodeId};
use crate::limits::{AUTHORITIES_MAX, CLOCKS_APART_MS_MAX};
use crate::message::{MessageError, VERSION};
use crate::name::check_name;
use crate::request::{CheckedRequest, NodeKey};
use crate::token::{Token, TokenRecord, TokenSecret, TokenUse};
use crate::trust::Trust;
use base::time::instant;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a node is to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Keeps copies of shards and serves clients.
    Data,
    /// Runs etcd and the controller only.
    Quorum,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub secret: TokenSecret,
    /// The cluster whose member the node is already.
    pub cluster: Option<ClusterId>,
    pub node: NodeId,
    pub name: String,
    pub zone: Option<String>,
    pub role: Role,
    /// IP addresses and host names of the node, without ports. Other nodes reach it at the first one.
    pub addresses: Vec<String>,
    /// Where it listens for other nodes.
    pub peer_port: u16,
    /// The request for a certificate, in PEM.
    pub request: String,
    /// What the node's clock says.
    pub clock_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    pub cluster: ClusterId,
    /// The node's, in PEM.
    pub certificate: String,
    /// All that the cluster trusts, in PEM; first the one that signed the node's certificate.
    pub authorities: Vec<String>,
    /// What the issuer's clock says.
    pub clock_ms: u64,
}

/// Why the issuer refuses. Whoever has no right token learns only that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum JoinError {
    WrongToken,
    UsedToken,
    ExpiredToken {
        expired_ms: u64,
        issuer_ms: u64,
    },
    /// The token is of an authority that signs no more.
    ReplacedAuthority,
    /// The token is for another member to join again.
    ReservedToken {
        node: NodeId,
    },
    OtherVersion {
        node: u32,
        issuer: u32,
    },
    /// The node is a member of another cluster.
    OtherCluster {
        node: ClusterId,
        issuer: ClusterId,
    },
    ClocksApart {
        node_ms: u64,
        issuer_ms: u64,
    },
    NameTaken {
        name: String,
        by: NodeId,
    },
    /// There is a member with this id.
    IdTaken {
        node: NodeId,
    },
    /// The node is shut out.
    ShutOut {
        why: String,
    },
    Invalid {
        field: String,
        why: String,
    },
    /// The issuer cannot issue certificates.
    Authority {
        why: String,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::WrongToken => {
                f.write_str("the cluster does not know this token: it ended long ago, or is of another cluster")
            }
            JoinError::UsedToken => f.write_str("another node has used this token: each node needs its own"),
            JoinError::ExpiredToken { expired_ms, issuer_ms } => write!(
                f,
                "the token ended at {} by the clock of the node that was asked, which says {} now",
                instant(*expired_ms),
                instant(*issuer_ms)
            ),
            JoinError::ReplacedAuthority => {
                f.write_str("the cluster's authority is replaced since the token was made: make another token")
            }
            JoinError::ReservedToken { node } => write!(f, "the token is for the node {node} to join again"),
            JoinError::OtherVersion { node, issuer } => write!(
                f,
                "the node speaks version {node} of the protocol for joining, the cluster version {issuer}: \
                 install the cluster's version"
            ),
            JoinError::OtherCluster { node, issuer } => {
                write!(f, "the node is a member of the cluster {node}; the token is of the cluster {issuer}")
            }
            JoinError::ClocksApart { node_ms, issuer_ms } => write!(
                f,
                "this node's clock says {}, that of the node that was asked {}: they may be {} minutes apart; \
                 set the clocks",
                instant(*node_ms),
                instant(*issuer_ms),
                CLOCKS_APART_MS_MAX / 60_000
            ),
            JoinError::NameTaken { name, by } => write!(f, "the node {by} has the name {name}"),
            JoinError::IdTaken { node } => write!(
                f,
                "there is a member with the id {node}. If this node's state directory is a copy, begin with an empty \
                 one; if this is that member, it needs a token for joining again"
            ),
            JoinError::ShutOut { why } => f.write_str(why),
            JoinError::Invalid { field, why } => write!(f, "{field}: {why}"),
            JoinError::Authority { why } => write!(f, "the node that was asked cannot issue a certificate: {why}"),
        }
    }
}

impl std::error::Error for JoinError {}

/// A request that cannot be read.
impl From<MessageError> for JoinError {
    fn from(error: MessageError) -> JoinError {
        match error {
            MessageError::OtherVersion { theirs } => JoinError::OtherVersion { node: theirs, issuer: VERSION },
            _ => invalid("message", &error),
        }
    }
}

/// What the issuer has read of the cluster's state for a request.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The record under the hash of the request's secret.
    pub token: Option<&'a TokenRecord>,
    /// The member that has the request's name.
    pub name_owner: Option<NodeId>,
    /// There is a member with the request's id.
    pub is_member: bool,
}

/// A request that is granted. One transaction writes the token's record, the node and the identity, on the condition
/// that what was read is unchanged; only after its success the answer may be sent.
#[derive(Clone, Debug)]
pub struct Admission {
    pub token: TokenRecord,
    pub issued: Identity,
    pub answer: JoinAnswer,
}

/// The issuer's side. The token comes first: nobody else may make it work, or learn a name.
pub fn admit(
    authority: &Authority,
    trust: &Trust,
    request: &JoinRequest,
    known: Known<'_>,
    now_ms: u64,
) -> Result<Admission, JoinError> {
    let node = request.node;
    let token = known.token.filter(|token| token.is_of(&request.secret)).ok_or(JoinError::WrongToken)?;
    if token.has_ended(now_ms) {
        return Err(JoinError::ExpiredToken { expired_ms: token.expires_ms, issuer_ms: now_ms });
    }
    if let Some(returning) = token.returning.filter(|&returning| returning != node) {
        return Err(JoinError::ReservedToken { node: returning });
    }
    let checked = CheckedRequest::from_pem(&request.request).map_err(|error| invalid("request", &error))?;
    let key_sha256 = checked.key_sha256();
    let is_repeated = match token.used {
        None => false,
        Some(used) if used.node == node && used.key_sha256 == key_sha256 => true,
        Some(_) => return Err(JoinError::UsedToken),
    };
    if let Some(theirs) = request.cluster.filter(|&theirs| theirs != trust.cluster()) {
        return Err(JoinError::OtherCluster { node: theirs, issuer: trust.cluster() });
    }
    if request.clock_ms.abs_diff(now_ms) > CLOCKS_APART_MS_MAX {
        return Err(JoinError::ClocksApart { node_ms: request.clock_ms, issuer_ms: now_ms });
    }
    check_name(&request.name).map_err(|why| invalid("name", &why))?;
    if let Some(zone) = &request.zone {
        check_name(zone).map_err(|why| invalid("zone", &why))?;
    }
    if known.is_member && !is_repeated && token.returning.is_none() {
        return Err(JoinError::IdTaken { node });
    }
    if let Some(by) = known.name_owner.filter(|&owner| owner != node) {
        return Err(JoinError::NameTaken { name: request.name.clone(), by });
    }
    let issued =
        authority.issue(&checked, node, Purpose::Node, &request.addresses, now_ms).map_err(|error| match error {
            AuthorityError::BadAddress { .. } => invalid("addresses", &error),
            _ => JoinError::Authority { why: error.to_string() },
        })?;
    trust.admits(&issued.identity).map_err(|refusal| JoinError::ShutOut { why: refusal.to_string() })?;
    let used = token.used.unwrap_or(TokenUse { node, key_sha256, used_ms: now_ms });
    Ok(Admission {
        token: TokenRecord { used: Some(used), ..token.clone() },
        issued: issued.identity,
        answer: JoinAnswer {
            cluster: trust.cluster(),
            certificate: issued.certificate,
            authorities: authority_texts(authority.certificate(), trust),
            clock_ms: now_ms,
        },
    })
}

fn invalid(field: &str, why: &dyn fmt::Display) -> JoinError {
    JoinError::Invalid { field: field.to_owned(), why: why.to_string() }
}

/// The signing one first.
pub(crate) fn authority_texts(signing: &AuthorityCertificate, trust: &Trust) -> Vec<String> {
    let others = trust.authorities().into_iter().filter(|other| other != signing);
    [signing.clone()].into_iter().chain(others).map(|authority| authority.pem()).collect()
}

/// A node that is joining: what it asks, and the key to which the answer must fit.
#[derive(Debug)]
pub struct Candidate {
    pub token: Token,
    /// Drawn before the first attempt and kept, so that a second one after a lost answer is the same node's.
    pub node: NodeId,
    pub key: NodeKey,
}

/// What a node has after it joined.
#[derive(Debug)]
pub struct Membership {
    pub credential: Credential,
    /// What it trusts from now on.
    pub authorities: Vec<AuthorityCertificate>,
}

/// Why a node does not accept an issuer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipError {
    /// None of the authorities has the token's fingerprint.
    OtherFingerprint(Fingerprint),
    /// No authority, too many, or one that cannot be read.
    Authorities,
    OtherCluster {
        answer: ClusterId,
        authority: ClusterId,
    },
    /// The certificate is for another node or purpose.
    OtherIdentity,
    Credential(CredentialError),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::OtherFingerprint(wanted) => {
                write!(
                    f,
                    "the answer is not of the cluster that the token names: no authority has the SHA-256 {wanted}"
                )
            }
            MembershipError::Authorities => {
                f.write_str("the answer has no readable certificate of an authority, or too many")
            }
            MembershipError::OtherCluster { answer, authority } => {
                write!(f, "the answer is of the cluster {answer}, its authority of the cluster {authority}")
            }
            MembershipError::OtherIdentity => f.write_str("the answer has the certificate of another node"),
            MembershipError::Credential(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MembershipError {}

impl Candidate {
    /// The node's side of an answer. `now_ms`: by the node's own clock.
    pub fn accept(&self, answer: &JoinAnswer, now_ms: u64) -> Result<Membership, MembershipError> {
        if !(1..=AUTHORITIES_MAX).contains(&answer.authorities.len()) {
            return Err(MembershipError::Authorities);
        }
        let authorities = answer.authorities.iter().map(|text| AuthorityCertificate::from_pem(text));
        let authorities: Vec<_> = authorities.collect::<Result<_, _>>().map_err(|_| MembershipError::Authorities)?;
        if !authorities.iter().any(|authority| authority.fingerprint() == self.token.authority) {
            return Err(MembershipError::OtherFingerprint(self.token.authority));
        }
        if let Some(other) = authorities.iter().find(|authority| authority.cluster != answer.cluster) {
            return Err(MembershipError::OtherCluster { answer: answer.cluster, authority: other.cluster });
        }
        let credential = Credential::new(&self.key, &answer.certificate, &authorities[0], now_ms);
        let credential = credential.map_err(MembershipError::Credential)?;
        if (credential.identity().node, credential.identity().purpose) != (self.node, Purpose::Node) {
            return Err(MembershipError::OtherIdentity);
        }
        Ok(Membership { credential, authorities })
    }
}
