//! Owns why an operator's change is not made, and how a database is found that it is about. Never makes a change.

use cluster::ids::DatabaseId;
use cluster::records::SpecRecord;
use cluster::view::{Revised, View};
use membership::records::RecordsError;
use std::fmt;

/// Why an operator's change was not made.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeError {
    NoCluster(String),
    Invalid {
        field: &'static str,
        why: String,
    },
    Exists(String),
    NotFound(String),
    /// With the arithmetic per node.
    NoRoom(String),
    /// Something else must be done first.
    Busy(String),
    Records(RecordsError),
    /// It was made, and is not complete yet.
    Slow(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::NoCluster(why) => f.write_str(why),
            ChangeError::Invalid { why, .. }
            | ChangeError::NoRoom(why)
            | ChangeError::Busy(why)
            | ChangeError::Slow(why) => f.write_str(why),
            ChangeError::Exists(name) => write!(f, "a database '{name}' exists already"),
            ChangeError::NotFound(what) => write!(f, "the cluster has no {what}"),
            ChangeError::Records(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<RecordsError> for ChangeError {
    fn from(error: RecordsError) -> ChangeError {
        ChangeError::Records(error)
    }
}

pub fn find(view: &View, name: &str) -> Result<(DatabaseId, Revised<SpecRecord>), ChangeError> {
    let (id, database) = view.named(name).ok_or_else(|| ChangeError::NotFound(format!("database '{name}'")))?;
    Ok((id, database.spec.clone().expect("it has a name")))
}
