//! Owns the wait until every shard of a database that is served has taken a record. Never knows what the record says.

use crate::shard::{ClusterShard, ask_all};
use cluster::ids::{DatabaseId, ShardNumber};
use cluster::view::View;
use node::{Node, REVISIONS, Shard};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How long the shards may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Before a shard is asked again.
const AGAIN: Duration = Duration::from_millis(10);

/// The shards of a database, as its proxy on this node reaches them.
#[derive(Clone)]
pub struct Followers {
    pub database: DatabaseId,
    pub view: watch::Receiver<Arc<View>>,
    pub runtime: Handle,
    pub node: Weak<Node>,
    /// By their numbers.
    pub shards: Vec<Arc<ClusterShard>>,
}

/// A shard that answers, and has not taken the record in time.
#[derive(Debug)]
pub struct Lacking(pub String);

impl Followers {
    /// Waits until every shard that is served has taken this revision of the record with this name ([`REVISIONS`]). A shard that comes back
    /// takes it before it serves.
    pub fn wait(&self, record: &str, revision: i64) -> Result<(), Lacking> {
        let Some(node) = self.node.upgrade() else { return Ok(()) };
        let begun = Instant::now();
        loop {
            let mut lacking = self.lacking(&node, record, revision);
            // Those that answer come first.
            lacking.sort_by_key(|(_, answers)| !answers);
            let Some((shard, answers)) = lacking.into_iter().next() else { return Ok(()) };
            if begun.elapsed() < TIMEOUT {
                std::thread::sleep(AGAIN);
                continue;
            }
            return if answers { Err(Lacking(shard)) } else { Ok(()) };
        }
    }

    /// The shards that do not have it, and whether they answer. Those of a node that does not run are left out.
    fn lacking(&self, node: &Arc<Node>, record: &str, revision: i64) -> Vec<(String, bool)> {
        let answers = ask_all(node, &self.runtime, self.shards.clone(), REVISIONS);
        let view = self.view.borrow().clone();
        let may_serve = |number: usize| {
            let shard = view.databases.get(&self.database)?.shards.get(&ShardNumber(number as u16))?;
            Some(!shard.in_sync.is_empty() && view.live.contains_key(&shard.primary_node()?))
        };
        let lacks = |(number, answer): (usize, Result<String, String>)| {
            let name = self.shards[number].name().to_owned();
            let Ok(answer) = answer else { return may_serve(number).filter(|may| *may).map(|_| (name, false)) };
            let taken =
                answer.lines().find_map(|line| line.strip_prefix(record)?.strip_prefix(':')?.parse::<i64>().ok());
            taken.is_none_or(|taken| taken < revision).then_some((name, true))
        };
        answers.into_iter().enumerate().filter_map(lacks).collect()
    }
}
