//! Owns the running of a journal's records at their recorded times. Never knows where the records come from, nor what their commands mean.

use super::pipe::{Broken, Expect};
use super::pipes::Pipes;
use super::touched::Finder;
use crate::database::Database;
use engine::replication::Stream;
use journal::Record;

/// Runs records of a journal at their times.
pub struct Replay<'d> {
    pipes: Pipes,
    finder: Finder<'d>,
    stream: &'d Stream,
    records: u64,
    /// What was sent last was a primary's, which may fail here: see [`Pipes::may_fail`].
    is_primarys: bool,
    /// Why a record is no list of commands.
    damaged: Option<String>,
}

impl<'d> Replay<'d> {
    pub fn begin(database: &'d Database) -> Result<Replay<'d>, String> {
        let finder = Finder::new(&database.hub.directory, database.shard.store.hasher());
        let (pipes, stream) = (Pipes::repeat(database)?, &database.hub.dataset.journaling.stream);
        Ok(Replay { pipes, finder, stream, records: 0, is_primarys: false, damaged: None })
    }

    /// Waits for the end of all records. An error of [`Replay::run`] has its reason here.
    pub fn finish(self) -> Result<(), String> {
        // If the database has refused something, the connection is broken for that reason.
        let refused = self.pipes.finish();
        match self.damaged {
            Some(why) => Err(why),
            None => refused.map(drop),
        }
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// The connections, to wait for what has been sent.
    pub fn pipes(&mut self) -> &mut Pipes {
        &mut self.pipes
    }

    pub fn run(&mut self, record: &Record<'_>) -> Result<(), Broken> {
        self.records += 1;
        let touched = self.finder.find(record.resp).map_err(|error| {
            self.damaged = Some(format!("record {} of the journal is not a valid command: {error}", self.records));
            Broken
        })?;
        if self.stream.is_prepared() {
            self.stream.replay(touched.selected.unwrap_or(record.db), record.resp);
        }
        if touched.is_message {
            return Ok(());
        }
        // Only what a replica has repeated has no time. It is in the journal as it came, also if it has failed there.
        let is_primarys = record.time_ms == 0;
        if std::mem::replace(&mut self.is_primarys, is_primarys) != is_primarys {
            self.pipes.may_fail(is_primarys)?;
        }
        let pipe = self.pipes.next(touched.stripe)?;
        pipe.at(record.time_ms)?;
        pipe.select(record.db.into())?;
        if touched.selects {
            pipe.forget_selected();
        }
        pipe.encoded(record.resp, Expect::Success, touched.commands)
    }
}
