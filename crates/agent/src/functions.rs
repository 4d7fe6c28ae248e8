//! Owns how the functions of a database get to all of its shards and proxies: their record in etcd, and the wait until the shards have
//! what was written there. Never knows what a function does.

use crate::shard::{ClusterShard, infos};
use cluster::ids::{DatabaseId, ShardNumber};
use cluster::keys::Key;
use cluster::records::{self, DatabaseState, FunctionsRecord, Unknown};
use cluster::view::View;
use membership::records::{Change, Records, RecordsError};
use node::{Node, NotReplaced};
use parking_lot::RwLock;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How long the shards may take until they have new functions.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Before a shard is asked again.
const AGAIN: Duration = Duration::from_millis(10);

/// The functions of one database, as its proxy here changes them.
pub struct KeptFunctions {
    pub database: DatabaseId,
    pub records: Arc<RwLock<Records>>,
    pub view: watch::Receiver<Arc<View>>,
    pub runtime: Handle,
    pub node: Weak<Node>,
    /// By their numbers.
    pub shards: Vec<Arc<ClusterShard>>,
}

/// The code of each library.
pub fn codes(record: &FunctionsRecord) -> Vec<Vec<u8>> {
    record.libraries.iter().map(|library| config::word_bytes(library)).collect()
}

/// Writes the record, given that the one of the revision `seen` is the newest. Returns the new revision.
pub async fn replace(
    records: &Records,
    view: &View,
    id: DatabaseId,
    seen: i64,
    codes: &[&[u8]],
) -> Result<i64, NotReplaced> {
    let error = |text: String| NotReplaced::Error(format!("ERR {text}"));
    let database = view.databases.get(&id);
    let spec = database.and_then(|database| database.spec.as_ref());
    let Some(spec) = spec.filter(|spec| spec.state != DatabaseState::Deleting) else {
        return Err(error("the database is being deleted".to_owned()));
    };
    let before = database.and_then(|database| database.functions.as_ref());
    let record = FunctionsRecord {
        libraries: codes.iter().map(|code| config::word(code)).collect(),
        unknown: before.map_or_else(Unknown::new, |record| record.unknown.clone()),
    };
    let key = Key::Functions(id);
    let bytes = records::encode(key, &record).map_err(|why| {
        error(format!("the libraries of a cluster's database do not fit into one record: {}", why.why))
    })?;
    let (name, spec_name) = (key.to_string(), Key::Spec(id).to_string());
    // A database that is deleted meanwhile has no functions.
    let change = Change::default().given(&name, seen).given(&spec_name, spec.revision).put_bytes(&name, bytes);
    match records.change(change).await {
        Ok(revision) => Ok(revision),
        Err(RecordsError::Conflict) => Err(NotReplaced::Newer),
        Err(RecordsError::Unknown(why)) => match records.get::<FunctionsRecord>(&name).await {
            Ok(Some((found, revision))) if revision > seen && found == record => Ok(revision),
            _ => {
                Err(NotReplaced::Error(format!("UNCERTAIN etcd did not say whether the functions were changed: {why}")))
            }
        },
        Err(other) => Err(error(format!("the functions were not changed: {other}"))),
    }
}

impl KeptFunctions {
    /// Waits until every shard that is served has the functions of this revision. A shard that comes back takes them first.
    fn wait_for_shards(&self, node: &Arc<Node>, revision: i64) -> Result<(), NotReplaced> {
        let begun = Instant::now();
        loop {
            let lacking = self.lacking(node, revision);
            let Some((shard, is_served)) = lacking.first() else { return Ok(()) };
            if begun.elapsed() < TIMEOUT {
                std::thread::sleep(AGAIN);
                continue;
            }
            return match is_served {
                false => Ok(()),
                true => Err(NotReplaced::Error(format!(
                    "ERR the functions are changed, and shard '{shard}' does not have them yet"
                ))),
            };
        }
    }

    /// The shards that do not have the functions, and whether they answer. Those that answer come first; those of a node that does not run
    /// are left out.
    fn lacking(&self, node: &Arc<Node>, revision: i64) -> Vec<(String, bool)> {
        let infos = infos(node, &self.runtime, self.shards.clone(), "cluster");
        let view = self.view.borrow().clone();
        let may_serve = |number: usize| {
            let shard = view.databases.get(&self.database)?.shards.get(&ShardNumber(number as u16))?;
            Some(!shard.in_sync.is_empty() && view.live.contains_key(&shard.primary_node()?))
        };
        let lacks = |(number, info): (usize, Result<String, String>)| {
            let name = node::Shard::name(&*self.shards[number]).to_owned();
            let Ok(info) = info else { return may_serve(number).filter(|may| *may).map(|_| (name, false)) };
            let taken =
                info.lines().find_map(|line| line.strip_prefix("functions_revision:")?.trim().parse::<i64>().ok());
            taken.is_none_or(|taken| taken < revision).then_some((name, true))
        };
        let mut lacking: Vec<_> = infos.into_iter().enumerate().filter_map(lacks).collect();
        lacking.sort_by_key(|(_, answers)| !answers);
        lacking
    }
}

impl node::Functions for KeptFunctions {
    fn replace(&self, seen: i64, codes: &[&[u8]]) -> Result<i64, NotReplaced> {
        let node = self.node.upgrade().ok_or_else(|| NotReplaced::Error("ERR the node is stopping".to_owned()))?;
        if seen < 0 {
            return Err(NotReplaced::Newer);
        }
        let (records, view) = (self.records.read().clone(), self.view.borrow().clone());
        let revision = self.runtime.block_on(replace(&records, &view, self.database, seen, codes))?;
        self.wait_for_shards(&node, revision)?;
        Ok(revision)
    }
}
