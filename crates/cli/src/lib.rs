//! Owns the operator's commands of the binary: everything except `server`, `bench` and `scenario`, whose command lines
//! it knows only for completions and manual pages. Never knows a node's insides: it speaks HTTP or RESP to the node, and
//! reads the files of a journal.
//!
//! In reading order: [`args`] is every command line in one tree; `client` uses a node's HTTP API, `database` and
//! `people` are the requests, `top` watches a node; `migrate` moves a running Redis into a database; `plan` estimates how
//! much RAM and flash data need; `journal` reads the checkpoint and the journal of a database; `prepare` measures flash and
//! formats devices; `pages` writes manual pages and completions. `size`, `timestamp` and `table` parse and print values,
//! `progress` shows the progress of a wait, `prompt` asks the user.
//!
//! Every command builds its whole output and returns it. This file prints the output, or the reason why there is none.
//! Exit codes: 0 success, 1 failure, 2 invalid arguments or not confirmed, 130 interrupted.

#![forbid(unsafe_code)]

pub mod args;
mod client;
mod cluster;
mod database;
mod failure;
mod journal;
mod migrate;
#[cfg(test)]
mod mock;
mod operations;
mod pages;
mod people;
mod plan;
mod prepare;
mod progress;
mod prompt;
#[cfg(test)]
mod remote_tests;
mod size;
mod table;
mod timestamp;
mod top;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use args::{Cli, Command, Connection};
use client::Client;
pub use failure::Failure;

/// Creating a database reserves its flash before the reply.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Functions that read the flash files of a dataset that no node serves. The binary provides them, because the formats
/// belong to the store, which this crate does not import.
pub struct Flash {
    /// Recovers the keys that were in damaged parts of an index, from the index, the dump beside it, and the flash
    /// paths.
    pub find_keys: FindAgain,
    /// Writes a dump to a new file, and adds the values that are found on flash, because the index is lost.
    pub save_values: FindAgain,
    /// Reads all values that an index names, and returns those that cannot be read.
    pub check_values: fn(&Path, &[PathBuf]) -> Result<Unreadable, String>,
    /// Follows the effects of the journal on missing values, and returns the keys that are lost at its end.
    pub follow: fn(&Missing<'_>, &Records<'_>) -> Result<Names, String>,
    /// Writes the values that an index names as a dump, except those that cannot be read.
    pub write_values: WriteValues,
    /// Writes an index without the entries of values that cannot be read. Returns its size.
    pub write_index: fn(&Path, &Unread, &Path) -> Result<u64, String>,
    /// Writes a dump with the readable values of a checkpoint: from its index, from the first bytes of its dump (if there is
    /// one), and from the flash paths.
    pub save_readable: SaveReadable,
}

/// Entries of an index whose values cannot be read, by their stripes, table_ids and hashes.
pub type Unread = HashSet<(u16, u16, u64)>;

/// Names of keys, with their logical databases.
pub type Names = Vec<(u64, Vec<u8>)>;

/// The values that are missing before the journal is applied.
pub enum Missing<'m> {
    /// Entries of an index whose values cannot be read.
    Of(&'m Path, &'m Unread),
    /// Keys, with their logical databases.
    Keys(&'m [(u64, Vec<u8>)]),
}

/// The values and files on flash that cannot be read.
pub struct Unreadable {
    pub entries: Unread,
    /// Flash files that are missing, cut, or have no superblock any more: a node does not start with them.
    pub files: Vec<String>,
}

/// Calls a function with the logical database and the commands of each record of the journal. The function returns the
/// replacement of a record that needs an unreadable value; `None`: the record is kept.
pub type Records<'r> = dyn Fn(&mut dyn FnMut(u32, &[u8]) -> Result<Option<Vec<u8>>, String>) -> Result<(), String> + 'r;

pub type SaveReadable = fn(&Path, Option<(&Path, u64)>, &[PathBuf], &Unread, &Path) -> Result<(), String>;

/// Calls a function with the logical database and the name of each key that the journal changes in a way that depends on its
/// earlier value.
pub type Changed<'c> = dyn Fn(&mut dyn FnMut(u64, &[u8])) -> Result<(), String> + 'c;

/// Arguments: the two files, the flash paths, and the keys that the journal changes.
pub type FindAgain = fn(&Path, &Path, &[PathBuf], &Changed<'_>) -> Result<FoundAgain, String>;

/// Arguments: the index, the flash paths, the unreadable entries, and the destination of the dump.
pub type WriteValues = fn(&Path, &[PathBuf], &Unread, Box<dyn Write + Send>) -> Result<(), String>;

/// The result of a search of the flash files.
pub struct FoundAgain {
    /// Entries that replace the damaged parts of an index.
    pub entries: ::journal::index::Entries,
    /// Keys that must not exist after the journal is applied: it changes them in a way that depends on their earlier
    /// value, which is unknown.
    pub left_out: Names,
    /// A text for the user.
    pub said: String,
}

/// `argv` without the program's name: a subcommand and its arguments.
pub fn main(argv: impl Iterator<Item = OsString>, flash: &Flash) -> ExitCode {
    let argv = std::iter::once(OsString::from("flintkv")).chain(argv);
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let printed = run(&cli.command, flash)
        .and_then(|output| print(&output).map_err(|error| Failure::failed(format!("standard output: {error}"))));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &Command, flash: &Flash) -> Result<String, Failure> {
    let client = |connection: &Connection| Client::new(connection, TIMEOUT);
    match command {
        Command::Database(args) => database::run(&client(&args.connection)?, &args.action, args.connection.json),
        Command::Cluster(args) => cluster::run(&args.action),
        Command::Node(args) => database::node(&client(&args.connection)?, args.connection.json),
        Command::User(args) => people::users(&client(&args.connection)?, &args.action, args.connection.json),
        Command::Token(args) => people::tokens(&client(&args.connection)?, &args.action, args.connection.json),
        Command::Top(args) => top::run(args),
        Command::Journal(args) => journal::run(args, flash),
        Command::Migrate(args) => migrate::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Repair(args) => journal::repair(args, flash),
        Command::PrepareFlash(args) => prepare::run(args),
        Command::Completions { shell } => Ok(pages::completions(*shell)),
        Command::Man { dir } => pages::man(dir.as_deref()),
    }
}

/// A reader that closes the pipe early (`| head`) is not an error.
fn print(output: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
