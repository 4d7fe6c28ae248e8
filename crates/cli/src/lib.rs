//! The operator's commands of the one binary: everything but `server`, `bench` and `scenario`, whose command lines it
//! knows for completions and manual pages only.
//!
//! In reading order: [`args`] is every command line in one tree, `prepare` measures flash and formats devices, `pages`
//! writes manual pages and completions, `size` reads and prints sizes, `table` prints tables.
//!
//! Every command builds its whole output and returns it; this file prints it, or says why there is none. Exit codes:
//! 0 done, 1 failed, 2 not understood or not confirmed, 130 interrupted.

pub mod args;
mod failure;
mod pages;
mod prepare;
mod size;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
pub use failure::Failure;

/// `argv` without the program's name: a subcommand and its arguments.
pub fn main(argv: impl Iterator<Item = OsString>) -> ExitCode {
    let argv = std::iter::once(OsString::from("flintkv")).chain(argv);
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let output = match cli.command {
        Command::PrepareFlash(args) => prepare::run(&args),
        Command::Completions { shell } => Ok(pages::completions(shell)),
        Command::Man { dir } => pages::man(dir.as_deref()),
    };
    match output.and_then(|output| print(&output).map_err(|error| Failure::failed(format!("standard output: {error}"))))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

/// A reader that has seen enough (`| head`) is no failure.
fn print(output: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
