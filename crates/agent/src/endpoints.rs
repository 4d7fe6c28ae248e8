//! Owns what the nodes tell each other of a database's endpoints, once a second: a text, which nobody here reads. It goes over links, and one
//! that is lost is made up for by the next.
//!
//! ```text
//! | kind u8 = 3 | database 10 | text |
//! ```
//! Kinds 1 and 2 are published messages and echoes (`published`, `peers`).

use cluster::ids::{DatabaseId, NodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const KIND: u8 = 3;
const HEADER_BYTES: usize = 11;
const TEXT_BYTES_MAX: usize = 64 << 10;
/// What is older says nothing of now.
const FRESH: Duration = Duration::from_secs(4);

/// What the other nodes have told last.
#[derive(Default)]
pub struct Endpoints(Mutex<HashMap<(DatabaseId, NodeId), (Instant, String)>>);

impl Endpoints {
    pub fn insert(&self, node: NodeId, database: DatabaseId, text: &str, now: Instant) {
        let mut told = self.0.lock();
        told.retain(|_, (at, _)| now.duration_since(*at) < FRESH);
        told.insert((database, node), (now, text.to_owned()));
    }

    /// What a node has told lately of its endpoint of a database.
    pub fn get(&self, node: NodeId, database: DatabaseId, now: Instant) -> Option<String> {
        let told = self.0.lock();
        let (at, text) = told.get(&(database, node))?;
        (now.duration_since(*at) < FRESH).then(|| text.clone())
    }
}

pub fn encode(database: DatabaseId, text: &str) -> Vec<u8> {
    [&[KIND][..], &database.0, text.as_bytes()].concat()
}

/// `None`: it is another message.
pub fn decode(message: &[u8]) -> Option<(DatabaseId, &str)> {
    let (header, text) = message.split_first_chunk::<HEADER_BYTES>()?;
    let [KIND, id @ ..] = header else { return None };
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
    Some((DatabaseId(*id), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_reads_back_and_is_forgotten() {
        let (database, node) = (DatabaseId([7; 10]), NodeId([1; 20]));
        let message = encode(database, "clients:3\r\n");
        assert_eq!(decode(&message), Some((database, "clients:3\r\n")));
        for wrong in
            [&[][..], &message[..10], &[2, 0, 0], &[&[1], &message[1..]].concat(), &[&message[..], &[0xff]].concat()]
        {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
        assert_eq!(decode(&encode(database, &"x".repeat(TEXT_BYTES_MAX + 1))), None);
        let (endpoints, begun) = (Endpoints::default(), Instant::now());
        endpoints.insert(node, database, "one", begun);
        endpoints.insert(node, database, "two", begun);
        assert_eq!(endpoints.get(node, database, begun).as_deref(), Some("two"));
        assert_eq!(endpoints.get(NodeId([2; 20]), database, begun), None);
        assert_eq!(endpoints.get(node, database, begun + FRESH), None);
        endpoints.insert(NodeId([2; 20]), database, "late", begun + FRESH);
        assert_eq!(endpoints.0.lock().len(), 1);
    }
}
