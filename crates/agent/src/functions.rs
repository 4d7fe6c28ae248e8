//! Owns how the functions of a database get to all of its shards and proxies: their record in etcd, and the wait until the shards have
//! what was written there. Never knows what a function does.

use crate::followers::{Followers, Lacking};
use cluster::ids::DatabaseId;
use cluster::keys::Key;
use cluster::records::{self, DatabaseState, FunctionsRecord, Unknown};
use cluster::view::View;
use membership::records::{Change, Records, RecordsError};
use node::NotReplaced;
use parking_lot::RwLock;
use std::sync::Arc;

/// The functions of one database, as its proxy here changes them.
pub struct KeptFunctions {
    pub records: Arc<RwLock<Records>>,
    pub followers: Followers,
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

impl node::Functions for KeptFunctions {
    fn replace(&self, seen: i64, codes: &[&[u8]]) -> Result<i64, NotReplaced> {
        if seen < 0 {
            return Err(NotReplaced::Newer);
        }
        let Followers { view, runtime, database, .. } = &self.followers;
        let (records, view) = (self.records.read().clone(), view.borrow().clone());
        let revision = runtime.block_on(replace(&records, &view, *database, seen, codes))?;
        self.followers.wait("functions", revision).map_err(|Lacking(shard)| {
            NotReplaced::Error(format!("ERR the functions are changed, and shard '{shard}' does not have them yet"))
        })?;
        Ok(revision)
    }
}
