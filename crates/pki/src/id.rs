//! Owns the ids of clusters and nodes: random bytes. Never knows names, which people choose and may change.

use crate::hex::Hex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Drawn when the cluster is created. It stays the same when the authority changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(Hex<16>);

/// Drawn by a node before it joins for the first time, and kept in its state directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(Hex<20>);

impl ClusterId {
    pub fn random() -> ClusterId {
        ClusterId(Hex::random())
    }
}

impl NodeId {
    pub fn random() -> NodeId {
        NodeId(Hex::random())
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({})", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = String;

    fn from_str(text: &str) -> Result<ClusterId, String> {
        text.parse().map(ClusterId)
    }
}

impl FromStr for NodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeId, String> {
        text.parse().map(NodeId)
    }
}
