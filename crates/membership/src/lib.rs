//! Owns how a node becomes a member of a cluster, and what it keeps of that in its state directory; and the port for other nodes. Never
//! knows databases, shards or clients.
//!
//! Reading order: `folder` (the files), `etcd` and `records` (what lies in etcd), `init` (the first node), `call` (the bytes between two
//! nodes), `join` and `issuer` (the two sides of joining), `peer` (the port), `authority` (its replacement), `standing` (how a removed node
//! learns it), `link_stream` (what of a link is TLS), `api_stream` (how one API asks another), `coordinator` (the member of etcd that a node
//! runs).

#![forbid(unsafe_code)]

pub mod addresses;
pub mod api_stream;
pub mod authority;
pub mod call;
pub mod coordinator;
pub mod etcd;
pub mod folder;
pub mod init;
pub mod issuer;
pub mod join;
pub mod link_stream;
pub mod peer;
pub mod records;
pub mod standing;

pub use etcd::etcd_client;
pub use folder::{EtcdAccess, EtcdMember, ExternalEtcd, Folder, FolderError, Member, Neighbours};
pub use standing::Removal;
