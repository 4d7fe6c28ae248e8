//! Owns the connections through which a dataset comes in, one a worker, and which of them a command takes. Commands on keys of one
//! stripe run in their order, those of different stripes run at once. Never knows where the commands come from.
//!
//! A command that touches several stripes runs alone: after all before it, and before all behind it. To wait for every connection
//! takes as long as some hundred commands do, so commands go to one connection from then on, until [`CALM`] in a row have
//! touched one stripe each.

use super::pipe::{Broken, Pipe};
use crate::database::Database;

/// At most; one thread that reads a file has no work for more.
const PIPES_MAX: usize = 8;
/// A wait for all connections is a small part of what so many commands take.
const CALM: u32 = 256;

pub struct Pipes {
    pipes: Vec<Pipe>,
    /// How many commands in a row have touched one stripe each, up to [`CALM`]. Below it, all go to the first connection.
    calm: u32,
}

impl Pipes {
    /// As [`Pipe::open`].
    pub fn open(database: &Database) -> Result<Pipes, String> {
        Pipes::of(database, Pipe::open)
    }

    /// As [`Pipe::replay`].
    pub fn replay(database: &Database) -> Result<Pipes, String> {
        Pipes::of(database, Pipe::replay)
    }

    /// As [`Pipe::repeat`].
    pub fn repeat(database: &Database) -> Result<Pipes, String> {
        Pipes::of(database, Pipe::repeat)
    }

    /// As [`Pipe::file`].
    pub fn file(database: &Database) -> Result<Pipes, String> {
        Pipes::of(database, Pipe::file)
    }

    /// As [`Pipe::apply`].
    pub fn apply(database: &Database) -> Result<Pipes, String> {
        Pipes::of(database, Pipe::apply)
    }

    fn of(database: &Database, open: impl Fn(&Database, usize) -> Result<Pipe, String>) -> Result<Pipes, String> {
        let count = database.hub.worker_handles.len().min(PIPES_MAX);
        let pipes: Result<Vec<Pipe>, String> = (0..count).map(|worker| open(database, worker)).collect();
        pipes.map(|pipes| Pipes { pipes, calm: CALM })
    }

    /// The connection for the next command, or the next commands that must run together. `stripe`: that of all their keys, if there is
    /// one.
    pub fn next(&mut self, stripe: Option<usize>) -> Result<&mut Pipe, Broken> {
        let was_calm = self.calm == CALM;
        self.calm = if stripe.is_some() { (self.calm + 1).min(CALM) } else { 0 };
        let is_calm = self.calm == CALM;
        if was_calm != is_calm {
            self.drain()?;
        }
        let at = stripe.filter(|_| is_calm).map_or(0, |stripe| stripe % self.pipes.len());
        Ok(&mut self.pipes[at])
    }

    /// The connection for commands that touch no key.
    pub fn first(&mut self) -> &mut Pipe {
        &mut self.pipes[0]
    }

    /// Waits until all commands have run.
    pub fn drain(&mut self) -> Result<(), Broken> {
        self.pipes.iter_mut().try_for_each(Pipe::flush)?;
        self.pipes.iter_mut().try_for_each(Pipe::drain)
    }

    /// Whether the commands from now on may fail: see [`Pipe::may_fail`]. All before have run when this returns, so that no error is taken for
    /// that of another command.
    pub fn may_fail(&mut self, may_fail: bool) -> Result<(), Broken> {
        self.drain()?;
        self.pipes.iter().for_each(|pipe| pipe.may_fail(may_fail));
        Ok(())
    }

    /// Waits for the replies to all commands. Returns how many errors were not grave.
    pub fn finish(self) -> Result<u64, String> {
        // Each must be waited for, whatever became of the others.
        let finished: Vec<Result<u64, String>> = self.pipes.into_iter().map(Pipe::finish).collect();
        finished.into_iter().sum()
    }
}
