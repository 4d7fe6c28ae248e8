//! Owns the operator's commands of the binary: everything except `server`, `bench` and `scenario`, whose command lines
//! it knows only for completions and manual pages. Never knows a node's insides: it speaks HTTP or RESP to the node, and
//! reads the files of a journal.
//!
//! In reading order: [`args`] is every command line in one tree; `client` uses a node's HTTP API, `database` and
//! `people` are the requests, `top` watches a node; `migrate` moves a running Redis into a database; `plan` says beforehand what data take here; `journal` reads what keeps a database over restarts; `prepare` measures flash and formats devices; `pages` writes manual
//! pages and completions. `size`, `timestamp` and `table` read and print, `progress` shows what is waited for, `prompt` asks the user.
//!
//! Every command builds its whole output and returns it. This file prints the output, or the reason why there is none.
//! Exit codes: 0 done, 1 failed, 2 not understood or not confirmed, 130 interrupted.

#![forbid(unsafe_code)]

pub mod args;
mod client;
mod database;
mod failure;
mod journal;
mod migrate;
#[cfg(test)]
mod mock;
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

/// What reads the flash files of a dataset that no node serves. The formats there are the store's, which this crate does not know.
pub struct Flash {
    /// Finds the keys again that damaged parts of an index named: of an index, the dump beside it, and the flash paths.
    pub find_keys: FindAgain,
    /// Writes a dump to a new file, with the values that are found on flash, because its index is lost.
    pub save_values: FindAgain,
    /// Reads all values that an index names: which cannot be read.
    pub check_values: fn(&Path, &[PathBuf]) -> Result<Unreadable, String>,
    /// Follows what the journal makes of values that are not there, and returns the keys that are lost at its end.
    pub follow: fn(&Missing<'_>, &Records<'_>) -> Result<Names, String>,
    /// Writes the values that an index names as a dump, but for those that cannot be read.
    pub write_values: WriteValues,
    /// Writes an index without the entries of values that cannot be read. Returns its size.
    pub write_index: fn(&Path, &Unread, &Path) -> Result<u64, String>,
    /// Writes a dump of what can be read of a base: of an index, of so many bytes of its dump, if there is one, and of the flash paths.
    pub save_readable: SaveReadable,
}

/// Entries of an index whose values cannot be read, by their stripes, table_ids and hashes.
pub type Unread = HashSet<(u16, u16, u64)>;

/// Names of keys, with their logical databases.
pub type Names = Vec<(u64, Vec<u8>)>;

/// What a journal starts from.
pub enum Missing<'m> {
    /// Entries of an index whose values cannot be read.
    Of(&'m Path, &'m Unread),
    /// Keys, with their logical databases.
    Keys(&'m [(u64, Vec<u8>)]),
}

/// What cannot be read on flash.
pub struct Unreadable {
    pub entries: Unread,
    /// Flash files that are missing, cut, or have no superblock any more: a node does not start with them.
    pub files: Vec<String>,
}

/// Gives a function the logical database and the commands of each record of the journal. It returns what becomes of a record that needs a
/// value that cannot be read; `None`: the record stays.
pub type Records<'r> = dyn Fn(&mut dyn FnMut(u32, &[u8]) -> Result<Option<Vec<u8>>, String>) -> Result<(), String> + 'r;

pub type SaveReadable = fn(&Path, Option<(&Path, u64)>, &[PathBuf], &Unread, &Path) -> Result<(), String>;

/// Calls a function with the logical database and the name of each key that the journal changes in a way that depends on what it was.
pub type Changed<'c> = dyn Fn(&mut dyn FnMut(u64, &[u8])) -> Result<(), String> + 'c;

/// Gets the two files, the flash paths, and what the journal changes.
pub type FindAgain = fn(&Path, &Path, &[PathBuf], &Changed<'_>) -> Result<FoundAgain, String>;

/// Gets the index, the flash paths, what cannot be read, and where the dump goes.
pub type WriteValues = fn(&Path, &[PathBuf], &Unread, Box<dyn Write + Send>) -> Result<(), String>;

/// What was found on flash.
pub struct FoundAgain {
    /// For the damaged parts of an index.
    pub entries: ::journal::index::Entries,
    /// Keys that the journal changes, and that must not be there after it: nobody knows what they were before.
    pub left_out: Names,
    /// What to say of it.
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
