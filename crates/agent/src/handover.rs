//! Owns how a leader has a shard's primary hand over to another copy. Never knows why, and never writes a record: the primary does.

use cluster::ids::{CopyNumber, DatabaseId, ShardNumber, shard_uid};
use cluster::view::View;
use membership::call::Call;
use membership::issuer::Issuer;
use membership::join::Peer;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The primary waits for the new one at most 2 s before it gives up, and for etcd as long as that takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the primary of the shard to make the copy `to` primary. `Ok`: the record in etcd names it, though `view` may come later. `Err`: why not,
/// as far as is known: it may still happen, so who asks again looks at the newest record first. Nothing is lost by an end of this at any time.
pub async fn hand_over(
    issuer: &Issuer,
    view: &View,
    shard: (DatabaseId, ShardNumber),
    to: CopyNumber,
) -> Result<(), String> {
    let (database, number) = shard;
    let records = view.databases.get(&database).ok_or("the database is not known")?;
    let record = records.shards.get(&number).ok_or("the shard is not known")?;
    if record.primary == to {
        return Ok(());
    }
    let node = record.primary_node().and_then(|node| view.nodes.get(&node)).ok_or("its primary is on no node")?;
    let peer = Peer {
        at: node.addresses.peer.as_str().to_owned(),
        current: Arc::clone(&issuer.current),
        trust: Arc::clone(&issuer.trust),
    };
    let call = Call::HandOver { shard: shard_uid(database, number), epoch: record.epoch, to };
    let asked = timeout(CALL_TIMEOUT, peer.ask::<()>(&call)).await;
    asked.unwrap_or_else(|_| Err(format!("{} has not answered in time", peer.at)))
}
