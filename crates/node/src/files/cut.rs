//! Owns the moment of a dump of a dataset that has a stream: whatever a primary has sent is in both or in none; and what the dump says of
//! that moment. Never knows what is dumped.

use crate::database::Database;
use engine::replication::{Id, Mark};
use parking_lot::MutexGuard;
use rdb::{Item, Reader};
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Sees that the stream and the dataset agree at the moment of a cut.
pub struct AtCut<'d> {
    database: &'d Database,
    /// The lock `apply` of [`Replication`](crate::role::Replication), held until the cut.
    applied: RefCell<Option<MutexGuard<'d, ()>>>,
}

impl<'d> AtCut<'d> {
    /// Waits until the dataset has everything that the stream has. From then on, a primary adds nothing to the stream until the cut.
    pub fn new(database: &'d Database) -> AtCut<'d> {
        AtCut { database, applied: RefCell::new(Some(database.replication.apply.lock())) }
    }

    /// Called at the moment of the cut, with every stripe locked. Returns where the stream is, if there is one.
    pub fn mark(&self) -> Option<Mark> {
        let stream = &self.database.hub.dataset.journaling.stream;
        let mark = stream.mark().filter(|_| stream.is_on());
        self.applied.take();
        mark
    }
}

/// What a dump says of the stream at its moment.
#[derive(Default)]
pub struct StreamAtDump {
    pub id: Option<Id>,
    pub offset: Option<u64>,
    /// The logical database in which the stream goes on.
    pub db: u32,
}

impl StreamAtDump {
    pub fn read(dump: &Path) -> Result<StreamAtDump, String> {
        File::open(dump).map_err(|error| error.to_string()).and_then(StreamAtDump::of)
    }

    pub fn of(dump: impl Read) -> Result<StreamAtDump, String> {
        let mut reader = Reader::new(dump, false).map_err(|error| error.to_string())?.with_pages();
        let mut found = StreamAtDump::default();
        while let Item::Aux(name, value) = reader.next_item().map_err(|error| error.to_string())? {
            let text = std::str::from_utf8(&value).unwrap_or_default();
            match name.as_slice() {
                b"repl-id" => found.id = text.parse().ok(),
                b"repl-offset" => found.offset = text.parse().ok(),
                b"repl-stream-db" => found.db = text.parse().unwrap_or(0),
                _ => {}
            }
        }
        Ok(found)
    }

    pub fn mark(&self) -> Option<Mark> {
        Some(Mark { id: self.id?, second: None, offset: self.offset?, db: Some(self.db) })
    }
}
