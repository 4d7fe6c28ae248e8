//! Owns what a member answers to nodes that join, and to the calls of other members. Never knows a socket.

use crate::authority::{self, AUTHORITY};
use crate::call::{Call, EtcdAdmission, NewToken, NodeCalls, Reply, Welcome};
use crate::etcd::etcd_client;
use crate::folder::{Folder, Member};
use crate::records::{self, Change, Records, RecordsError, issued_key, name_key, token_key};
use base::clock::wall_ms;
use cluster::failover::CopyAnswer;
use cluster::keys::Key;
use cluster::names::{NodeName, ZoneName};
use cluster::records::{Addresses, Capacity, NodeRecord, Role, Unknown, Versions};
use coord::{Etcd, Revision};
use pki::{
    Authority, CurrentCredential, Fingerprint, Identity, IssueRequest, JoinAnswer, JoinError, JoinRequest, Known,
    NodeId, Token, TokenRecord, Trust,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// So many members of etcd outlive the loss of one. More make each transaction slower, so further ones are only added on demand.
const COORDINATORS: usize = 3;
/// How often a change is tried again whose records somebody else has changed.
const ATTEMPTS: usize = 5;
/// The zone of a node that names none.
pub const DEFAULT_ZONE: &str = "default";
/// What this release writes and understands.
pub const FEATURE_LEVEL: u32 = 1;

/// A token as the cluster keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredToken {
    #[serde(flatten)]
    pub token: TokenRecord,
    /// The node that uses it may have the authority's key, and run a member of etcd if that is the cluster's own.
    pub may_coordinate: bool,
    /// The one that the token names. Tokens of older versions do not say it.
    #[serde(default)]
    pub authority: Option<Fingerprint>,
}

pub struct Issuer {
    pub folder: Folder,
    pub member: Member,
    pub records: Records,
    pub etcd: Etcd,
    pub current: Arc<CurrentCredential>,
    pub trust: Arc<Trust>,
}

/// The record of a node that has not said yet what it has.
pub fn node_record(name: NodeName, zone: ZoneName, role: Role, host: &str, peer_port: u16) -> Option<NodeRecord> {
    Some(NodeRecord {
        name,
        zone,
        role,
        is_draining: false,
        addresses: Addresses {
            peer: crate::folder::host_and_port(host, peer_port).parse().ok()?,
            client_host: host.to_owned(),
            unknown: Unknown::new(),
        },
        versions: Versions { flintkv: env!("CARGO_PKG_VERSION").to_owned(), unknown: Unknown::new() },
        capacity: Capacity { ram_bytes: 0, flash_bytes: 0, unknown: Unknown::new() },
        feature_level: FEATURE_LEVEL,
        unknown: Unknown::new(),
    })
}

pub fn node_key(node: NodeId) -> String {
    format!("nodes/{node}")
}

/// The nodes with this record have the authority's key. They run the members of etcd too, if it is the cluster's own.
pub fn coordinator_key(node: NodeId) -> String {
    format!("coordinators/{node}")
}

pub fn encode_node(node: NodeId, record: &NodeRecord) -> Result<Vec<u8>, String> {
    let key = node_key(node).parse::<Key>().expect("it is the key of a node");
    cluster::records::encode(key, record).map_err(|error| error.to_string())
}

pub fn role_of(role: pki::Role) -> Role {
    match role {
        pki::Role::Data => Role::Data,
        pki::Role::Quorum => Role::Quorum,
    }
}

impl Issuer {
    /// Decodes, carries out and encodes the answer.
    pub async fn answer_join(&self, question: &[u8]) -> Vec<u8> {
        let answer = match pki::decode::<JoinRequest>(question) {
            Ok(request) => self.join(&request).await,
            Err(error) => Err(error.into()),
        };
        if let Err(why) = &answer {
            tracing::warn!("a node was refused that wanted to join: {why}");
        }
        pki::encode(&answer)
    }

    async fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        let mut conflict = String::new();
        for _ in 0..ATTEMPTS {
            match self.try_join(request).await? {
                Ok(answer) => {
                    tracing::info!("node {} ({}) has joined the cluster", request.name, request.node);
                    return Ok(answer);
                }
                Err(why @ RecordsError::Conflict) => conflict = why.to_string(),
                Err(why) => return Err(JoinError::Authority { why: why.to_string() }),
            }
        }
        Err(JoinError::Authority { why: conflict })
    }

    /// The inner error: the change of the records was not made.
    async fn try_join(&self, request: &JoinRequest) -> Result<Result<JoinAnswer, RecordsError>, JoinError> {
        let unavailable = |error: RecordsError| JoinError::Authority { why: error.to_string() };
        let (authority, authority_revision) =
            self.signing_authority().await.map_err(|why| JoinError::Authority { why })?;
        let invalid = |field: &str, why: String| JoinError::Invalid { field: field.to_owned(), why };
        let token = token_key(&request.secret.sha256());
        let stored: Option<(StoredToken, _)> = self.records.get(&token).await.map_err(unavailable)?;
        let (name, node) = (name_key(&request.name), node_key(request.node));
        let owner: Option<(NodeId, _)> = self.records.get(&name).await.map_err(unavailable)?;
        let before: Option<(NodeRecord, _)> = self.records.get(&node).await.map_err(unavailable)?;
        let known = Known {
            token: stored.as_ref().map(|(stored, _)| &stored.token),
            name_owner: owner.as_ref().map(|(owner, _)| *owner),
            is_member: before.is_some(),
        };
        let admission = pki::admit(&authority, &self.trust, request, known, wall_ms())?;
        let (stored, token_revision) = stored.expect("the token was found");
        if stored.authority.is_some_and(|named| named != authority.certificate().fingerprint()) {
            return Err(JoinError::ReplacedAuthority);
        }
        let zone = request.zone.as_deref().unwrap_or(DEFAULT_ZONE);
        let zone = zone.parse().map_err(|error| invalid("zone", format!("{error}")))?;
        let parsed = request.name.parse().map_err(|error| invalid("name", format!("{error}")))?;
        let host = request.addresses.first().map(String::as_str).unwrap_or_default();
        let record = node_record(parsed, zone, role_of(request.role), host, request.peer_port)
            .ok_or_else(|| invalid("addresses", format!("'{host}' and port {}: no address", request.peer_port)))?;
        let record = encode_node(request.node, &record).map_err(|why| invalid("name", why))?;
        let coordinators = self.records.list::<Role>("coordinators/").await.map_err(unavailable)?.len();
        let mut change = Change::default()
            .given(AUTHORITY, authority_revision)
            .given(&token, token_revision)
            .given(&name, owner.map_or(0, |(_, revision)| revision))
            .given(&node, before.as_ref().map_or(0, |(_, revision)| *revision))
            .put(&token, &StoredToken { token: admission.token, ..stored.clone() })
            .put(&name, &request.node)
            .put(&issued_key(&admission.issued), &admission.issued)
            .put_bytes(&node, record);
        if let Some((before, _)) = before.filter(|(before, _)| before.name.as_str() != request.name) {
            change = change.delete(&name_key(before.name.as_str()));
        }
        if stored.may_coordinate && (coordinators < COORDINATORS || request.role == pki::Role::Quorum) {
            change = change.put(&coordinator_key(request.node), &role_of(request.role));
        }
        Ok(self.records.change(change).await.map(|_| admission.answer))
    }

    /// `node`: of whose copies some calls are.
    pub async fn answer_call(&self, peer: &Identity, question: &[u8], node: &dyn NodeCalls) -> Vec<u8> {
        let call: Call = match pki::decode(question) {
            Ok(call) => call,
            Err(error) => return pki::encode::<Reply<()>>(&Err(error.to_string())),
        };
        match call {
            Call::Copies(shards) => pki::encode::<Reply<Vec<CopyAnswer>>>(&Ok(node.copies(&shards))),
            Call::HandOver { shard, epoch, to } => pki::encode(&node.hand_over(shard, epoch, to).await),
            Call::Restart { process } => pki::encode(&node.restart(process)),
            Call::Welcome => pki::encode(&self.welcome(peer).await),
            Call::RunEtcd { issue, peer_url } => pki::encode(&self.run_etcd(peer, &issue, &peer_url).await),
            Call::Renew(issue) => pki::encode(&self.renew(peer, &issue).await),
            Call::AuthorityKey { authority } => pki::encode(&self.authority_key(peer, authority).await),
        }
    }

    async fn welcome(&self, peer: &Identity) -> Reply<Welcome> {
        let coordinates: Option<(Role, _)> = self.records.get(&coordinator_key(peer.node)).await.map_err(text)?;
        Ok(Welcome {
            cluster: self.member.cluster,
            cluster_name: self.member.cluster_name.clone(),
            etcd: self.member.etcd.clone(),
            coordinates: coordinates.is_some() && self.member.etcd.external.is_none(),
        })
    }

    async fn run_etcd(&self, peer: &Identity, issue: &IssueRequest, peer_url: &str) -> Reply<EtcdAdmission> {
        let (authority, revision) = self.signing_authority().await?;
        let coordinates: Option<(Role, _)> = self.records.get(&coordinator_key(peer.node)).await.map_err(text)?;
        let issued = pki::issue(&authority, &self.trust, peer, coordinates.is_some(), issue, wall_ms());
        let (identity, issued) = issued.map_err(|error| error.to_string())?;
        self.records.change(issuing(&identity, revision)).await.map_err(text)?;
        let members = self.etcd.members().await.map_err(|error| format!("etcd: {error}"))?;
        let is_there = |member: &coord::etcd::maintenance::Member| member.peer_urls.iter().any(|url| url == peer_url);
        match members.iter().find(|member| is_there(member)) {
            None => {
                self.etcd.add_learner(peer_url).await.map_err(|error| format!("etcd: {error}"))?;
            }
            // It was added, and the answer was lost. One that has run is another matter: its data are not here.
            Some(member) if member.name.is_empty() => {}
            Some(_) => return Err(format!("{peer_url} is a member of etcd already")),
        }
        let others = members.into_iter().filter(|member| !member.peer_urls.iter().any(|url| url == peer_url));
        let mut named = Vec::new();
        for member in others {
            if member.name.is_empty() {
                return Err("another node's member of etcd has not started yet: try again when it has".to_owned());
            }
            named.extend(member.peer_urls.into_iter().map(|url| (member.name.clone(), url)));
        }
        Ok(EtcdAdmission { issued, authority: authority.to_pem().expose().to_owned(), others: named })
    }

    async fn renew(&self, peer: &Identity, issue: &IssueRequest) -> Result<pki::IssueAnswer, pki::IssueError> {
        let unavailable = |why: String| pki::IssueError::Authority { why };
        let (authority, revision) = self.signing_authority().await.map_err(unavailable)?;
        let coordinates: Option<(Role, _)> =
            self.records.get(&coordinator_key(peer.node)).await.map_err(|error| unavailable(error.to_string()))?;
        let (identity, answer) = pki::issue(&authority, &self.trust, peer, coordinates.is_some(), issue, wall_ms())?;
        let kept = self.records.change(issuing(&identity, revision)).await;
        kept.map_err(|error| unavailable(error.to_string()))?;
        Ok(answer)
    }

    /// Whoever is a coordinator issues certificates too, even if etcd is the operator's own.
    async fn authority_key(&self, peer: &Identity, wanted: Fingerprint) -> Reply<String> {
        let coordinates: Option<(Role, _)> = self.records.get(&coordinator_key(peer.node)).await.map_err(text)?;
        self.trust.admits(peer).map_err(|refusal| refusal.to_string())?;
        if coordinates.is_none() {
            return Err(format!("node {} is no coordinator, so it gets no authority's key", peer.node));
        }
        Ok(self.authority_named(Some(wanted))?.to_pem().expose().to_owned())
    }

    /// The text of the token is in no record and in no log.
    pub async fn new_token(&self, returning: Option<NodeId>, may_coordinate: bool) -> Reply<NewToken> {
        let (authority, _) = self.signing_authority().await?;
        let authority = authority.certificate();
        if *self.current.get().authority() != *authority {
            return Err("the cluster's authority is being replaced: try again in a moment".to_owned());
        }
        let (token, record) = Token::create(authority, returning, wall_ms());
        let key = token_key(&record.secret_sha256);
        let stored = StoredToken { token: record, may_coordinate, authority: Some(authority.fingerprint()) };
        self.records.change(Change::default().given(&key, 0).put(&key, &stored)).await.map_err(text)?;
        Ok(NewToken { token: token.reveal(), expires_ms: token.expires_ms })
    }

    /// Whoever issues by it requires that the record of this revision still holds.
    async fn signing_authority(&self) -> Reply<(Authority, Revision)> {
        let (record, revision) = authority::read(&self.records).await.map_err(text)?;
        Ok((self.authority_named(record.map(|record| record.signing))?, revision))
    }

    /// `None`: the only one.
    fn authority_named(&self, wanted: Option<Fingerprint>) -> Reply<Authority> {
        let found = self.folder.authorities().map_err(|error| error.to_string())?;
        let is_wanted = |one: &Authority| wanted.is_none_or(|wanted| one.certificate().fingerprint() == wanted);
        found.into_iter().find(is_wanted).ok_or_else(|| self.lacks_key())
    }

    /// Why this node cannot sign.
    pub fn lacks_key(&self) -> String {
        let others = match self.member.etcd.external {
            None => "a node that runs a member of etcd",
            Some(_) => "one of the first nodes of the cluster",
        };
        format!("node {} does not have the authority's key: ask {others}", self.member.name)
    }

    /// The endpoints of these members. `None`: they are the known ones.
    pub fn changed_endpoints(&self, members: &[coord::etcd::maintenance::Member]) -> Option<Vec<String>> {
        if self.member.etcd.external.is_some() {
            return None;
        }
        let voters = members.iter().filter(|member| !member.is_learner && !member.name.is_empty());
        let mut found: Vec<String> = voters.flat_map(|member| member.client_urls.clone()).collect();
        let own = crate::folder::url(&self.member.host, 0);
        let is_own =
            |url: &String| url.rsplit_once(':').map(|(host, _)| host) == own.rsplit_once(':').map(|(host, _)| host);
        // The nearest first.
        found.sort_by_key(|url| (!is_own(url), url.clone()));
        (!found.is_empty() && found != self.member.etcd.endpoints).then_some(found)
    }

    /// The same issuer, with connections to etcd of its own: as `member` says, and with the node's present certificate.
    pub fn reconnected(&self, member: Member) -> Result<Issuer, coord::Error> {
        let etcd = etcd_client(&member, &self.current.get(), &member.etcd.endpoints)?;
        Ok(Issuer {
            folder: self.folder.clone(),
            records: Records::new(Arc::new(etcd.clone()), member.cluster),
            member,
            etcd,
            current: Arc::clone(&self.current),
            trust: Arc::clone(&self.trust),
        })
    }
}

/// Keeps what was issued. A certificate of an authority that signs no more is not given out.
fn issuing(identity: &Identity, authority_revision: Revision) -> Change {
    Change::default().given(AUTHORITY, authority_revision).put(&issued_key(identity), identity)
}

fn text(error: records::RecordsError) -> String {
    error.to_string()
}
