//! Owns how a node becomes a member of a cluster, and what it keeps of that in its state directory. Never knows databases, shards or
//! clients.
//!
//! Reading order: `folder` (the files).

#![forbid(unsafe_code)]

pub mod folder;

pub use folder::{EtcdAccess, EtcdMember, ExternalEtcd, Folder, FolderError, Member};
