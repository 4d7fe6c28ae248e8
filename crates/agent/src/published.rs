//! Owns a published message on its way to the other nodes' proxies. Never knows who subscribes.
//!
//! ```text
//! | kind u8 = 1 | sharded u8 | database 10 | channel length u32 | channel | message |
//! ```
//! Numbers are little-endian. Kind 2 is an echo (`peers`), 3 is about an endpoint (`endpoints`), and another one is of a newer version.

use crate::peers::Peers;
use cluster::ids::{DatabaseId, NodeId};
use parking_lot::RwLock;
use std::sync::Arc;

const KIND: u8 = 1;
const HEADER_BYTES: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub struct Published<'m> {
    pub database: DatabaseId,
    pub is_sharded: bool,
    pub channel: &'m [u8],
    pub message: &'m [u8],
}

impl Published<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.channel.len() + self.message.len());
        bytes.extend([KIND, u8::from(self.is_sharded)]);
        bytes.extend(self.database.0);
        bytes.extend((self.channel.len() as u32).to_le_bytes());
        bytes.extend(self.channel);
        bytes.extend(self.message);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Published<'_>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [KIND, sharded @ (0 | 1), ids @ ..] = header else { return None };
        let database = DatabaseId(ids[..10].try_into().expect("ten bytes"));
        let channel_bytes = u32::from_le_bytes(ids[10..].try_into().expect("four bytes"));
        let (channel, message) = rest.split_at_checked(channel_bytes as usize)?;
        Some(Published { database, is_sharded: *sharded == 1, channel, message })
    }
}

/// The other nodes, as one database's proxy publishes to them. A message is sent once to each, and not again: nobody waits for it.
pub struct OtherNodes {
    pub database: DatabaseId,
    pub peers: Arc<Peers>,
    /// The data nodes but this one.
    pub nodes: Arc<RwLock<Vec<NodeId>>>,
}

impl node::OtherProxies for OtherNodes {
    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        let nodes = self.nodes.read();
        if nodes.is_empty() {
            return;
        }
        let bytes = Published { database: self.database, is_sharded, channel, message }.encode();
        for &node in nodes.iter() {
            let is_sent = self.peers.link(node).is_some_and(|link| link.send_message(&bytes));
            if !is_sent {
                tracing::debug!("a published message did not go to node {node}");
            }
        }
    }

    fn message_bytes_max(&self) -> usize {
        link::frame::MESSAGE_BYTES_MAX - HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_and_anything_else_is_none() {
        let database = DatabaseId([7; 10]);
        for (channel, message) in [(&b""[..], &b""[..]), (b"news", b"hello"), (b"c", &[0xff; 300])] {
            for is_sharded in [false, true] {
                let published = Published { database, is_sharded, channel, message };
                let bytes = published.encode();
                assert_eq!(Published::decode(&bytes), Some(published));
                let cut = HEADER_BYTES + channel.len();
                assert!(Published::decode(&bytes[..cut]).is_some());
                assert!(cut == HEADER_BYTES || Published::decode(&bytes[..cut - 1]).is_none());
            }
        }
        let bytes = Published { database, is_sharded: false, channel: b"c", message: b"m" }.encode();
        assert_eq!(Published::decode(&[&[2], &bytes[1..]].concat()), None);
        assert_eq!(Published::decode(&[&[1, 2], &bytes[2..]].concat()), None);
        assert_eq!(Published::decode(&[]), None);
    }
}
