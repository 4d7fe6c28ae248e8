//! Owns the certificates of a cluster: its authority, the certificates of nodes and of etcd, the tokens with which
//! nodes join, and the mutual TLS between nodes. Never knows a socket, etcd's API, or which node does what; the clock
//! is an argument.
//!
//! - `limits` has every limit and duration. `hex`, `id`, `name` and `pem` are what the others are written in.
//! - `certificate` says what a certificate means: whose it is, of which cluster, for which purpose.
//! - `request` is a node's key and its request for a certificate.
//! - `authority` has the cluster's key: it issues certificates and the list of revoked ones.
//! - `credential` is a certificate with its key and authority. It changes while connections live.
//! - `trust` is whom a node believes: the authorities, less the nodes that are shut out. `refusal` says why not.
//! - `tls` makes the settings of rustls of these, for links between nodes and for joining.
//! - `token` is what an operator copies to a node that is to join, and the record that the cluster keeps of it.
//! - `message` is the bytes of what nodes say to each other: `join` to become a member, `issue` for more certificates.
//! - `secret` is text that no log shows. `files` keeps it: complete, and readable only by its owner.

#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod credential;
mod files;
mod hex;
mod id;
mod issue;
mod join;
pub mod limits;
mod message;
mod name;
mod pem;
mod refusal;
mod request;
mod secret;
mod tls;
mod token;
mod trust;

pub use authority::{Authority, AuthorityError, Issued, revoked_serials};
pub use certificate::{AuthorityCertificate, CertificateError, Identity, Purpose};
pub use credential::{Credential, CredentialError, CurrentCredential};
pub use files::{FileError, read_secret, write_public, write_secret};
pub use hex::{Fingerprint, Hex, Serial};
pub use id::{ClusterId, NodeId};
pub use issue::{IssueAnswer, IssueError, IssueRequest, issue};
pub use join::{
    Admission, Candidate, JoinAnswer, JoinError, JoinRequest, Known, Membership, MembershipError, Role, admit,
};
pub use message::{MessageError, VERSION, decode, encode};
pub use name::check_name;
pub use refusal::{Refusal, refusal};
pub use request::{CheckedRequest, NodeKey, RequestError};
pub use secret::SecretText;
pub use tls::{
    API_PROTOCOL, CALL_PROTOCOL, Clock, JOIN_PROTOCOL, LINK_PROTOCOL, PLAIN_LINK_PROTOCOL, STANDING_PROTOCOL,
    etcd_server_name, is_join, join_client, join_server, link_client, link_server, peer_certificate, peer_identity,
    server_name, standing_server,
};
pub use token::{Token, TokenError, TokenRecord, TokenSecret, TokenUse};
pub use trust::{PeerCertificate, ShutOut, Trust, TrustError};
