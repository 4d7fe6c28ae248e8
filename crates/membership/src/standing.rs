//! Owns how a node learns that it was removed from its cluster when etcd does not talk to it: etcd refuses the certificates of a removed
//! node, so the node asks the others. Never knows what a removed node does then.
//!
//! The port for nodes answers this one question to every certificate that an authority of the cluster has signed. Whoever answers is a
//! member, by its certificate. It may have started a moment ago and know of no removal yet, so only a removal ends the question.

use crate::call;
use crate::folder::Neighbours;
use crate::join::connect;
use base::time::instant;
use pki::{CurrentCredential, Identity, Refusal, STANDING_PROTOCOL, ShutOut, Trust};
use rustls::time_provider::DefaultTimeProvider;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// For one node that is asked.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// What a node is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The node that was asked knows of no removal.
    Member,
    Removed(Removal),
}

/// A node is a member no more, and has not left by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// `None`: nobody knows.
    pub at_ms: Option<u64>,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this node was removed from the cluster")?;
        self.at_ms.map_or(Ok(()), |at_ms| write!(f, " at {}", instant(at_ms)))
    }
}

impl Standing {
    /// Of the node with this certificate.
    pub fn of(peer: &Identity, trust: &Trust) -> Standing {
        let removal = |shut_out: ShutOut| Standing::Removed(Removal { at_ms: shut_out.since_ms() });
        trust.shut_out(peer).map_or(Standing::Member, removal)
    }
}

/// Asks one node after the other until one says that this node was removed. An error: one of them has a certificate that this node does
/// not believe, and none says more.
pub async fn ask_neighbours(
    neighbours: &Neighbours,
    current: &Arc<CurrentCredential>,
    trust: &Arc<Trust>,
) -> Result<Option<Removal>, Refusal> {
    let mut refused = None;
    for address in neighbours.addresses.values() {
        match timeout(ASK_TIMEOUT, ask(address, current, trust)).await {
            Ok(Ok(Standing::Removed(removal))) => return Ok(Some(removal)),
            Ok(Ok(Standing::Member)) | Err(_) => {}
            Ok(Err(error)) => {
                let error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                refused = error.and_then(pki::refusal).or(refused);
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

async fn ask(address: &str, current: &Arc<CurrentCredential>, trust: &Arc<Trust>) -> io::Result<Standing> {
    let tls = pki::link_client(current, trust, None, STANDING_PROTOCOL, Arc::new(DefaultTimeProvider));
    let mut stream = connect(address, tls).await?;
    call::ask(&mut stream, &()).await
}
