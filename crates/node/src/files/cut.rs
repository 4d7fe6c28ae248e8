//! Owns the moment of a dump of a dataset that has a stream: whatever a primary has sent is in both or in none. Never knows what is dumped.

use crate::database::Database;
use engine::replication::Mark;
use parking_lot::MutexGuard;
use std::cell::RefCell;

/// Sees that the stream and the dataset agree at the moment of a cut.
pub struct AtCut<'d> {
    database: &'d Database,
    /// Until the cut.
    applied: RefCell<Option<MutexGuard<'d, ()>>>,
}

impl<'d> AtCut<'d> {
    /// Waits until all is applied that the stream has. From then on nothing is added by a primary until the cut.
    pub fn new(database: &'d Database) -> AtCut<'d> {
        AtCut { database, applied: RefCell::new(Some(database.replication.apply.lock())) }
    }

    /// Called at the moment of the cut, with every stripe locked. Returns where the stream is, if there is one.
    pub fn mark(&self) -> Option<Mark> {
        let stream = &self.database.hub.journaling.stream;
        let mark = stream.mark().filter(|_| stream.is_on());
        self.applied.take();
        mark
    }
}
