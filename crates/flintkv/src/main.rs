//! Owns the choice of the part of FlintKV that runs. Never knows what that part does.

mod allocator;
mod node;
mod program;
mod quorum;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use node::Called;
use program::Program;

const HELP: &str = "\
FlintKV: a Redis-compatible database that keeps hot values in RAM and everything else on flash

usage:
  flintkv server [CONF|-] [--directive value ...]   run a node; directives are redis.conf's
  flintkv bench [OPTIONS]                           load a server, with memtier_benchmark's options
  flintkv scenario NAME [OPTIONS]                   run a published benchmark: rof, rof-replicated,
                                                    keydb-flash, gemini-rta
  flintkv database create|list|show|shards|resize|pause|resume|flush|delete|
                   backup|backups|replication|replicate|promote|switchover|recover
                                                    databases of a running node, over its console-port
  flintkv cluster init|join|status|nodes|token|leave|forget|authority|settings|
                  drain|undrain|move|replace|restart|operations|abort
                                                    several nodes as one, by etcd
  flintkv coordinator [CONF|-] [--directive value ...]
                                                    run this node's member of etcd
  flintkv quorum [CONF|-] [--directive value ...]   run a node that only votes
  flintkv node show                                 version, resources and limits of a running node
  flintkv top                                       watch it
  flintkv user list|create|passwd|delete            who may use the console and the API
  flintkv token list|create|delete                  what scripts log in with
  flintkv prepare-flash DEVICE|DIR...               measure flash, recommend settings; format and mount devices
  flintkv journal show|check|export DIR             what keeps a database over restarts: its records, whether
                                                    they are whole, and a file of them that Redis loads
  flintkv repair DIR [--to NEW]                     what can be saved of a damaged directory
  flintkv migrate --from redis://HOST --to DATABASE
                                                    move a running Redis into a database
  flintkv plan --keys N --value-size SIZE           how much RAM and flash data take here, and how many of
                                                    their reads RAM answers; --from measures a running Redis
  flintkv completions bash|zsh|fish|powershell      completions for a shell
  flintkv man [DIR]                                 the manual page, or all of them into a directory
  flintkv licences                                  the licences of all code in the binary
  flintkv --version
  flintkv --help

Each subcommand has its own --help. Called as redis-server, the binary is `flintkv server`.
";

/// The licences of third-party code. scripts/notice.py writes the file.
const NOTICE: &str = include_str!("../NOTICE");

/// The functions by which the operator's commands read flash files.
const FLASH: cli::Flash = cli::Flash {
    find_keys: |index, dump, paths, changed| ::node::salvage::find_keys(index, dump, paths, changed).map(found_again),
    save_values: |dump, to, paths, changed| ::node::salvage::save_values(dump, to, paths, changed).map(found_again),
    check_values: |index, paths| {
        let found = ::node::values::check_values(index, paths)?;
        Ok(cli::Unreadable { entries: found.entries, files: found.files })
    },
    follow: |missing, records| {
        use ::node::values::{Missing, follow};
        match *missing {
            cli::Missing::Of(index, unread) => follow(&Missing::Of(index, unread), records),
            cli::Missing::Keys(keys) => follow(&Missing::Keys(keys), records),
        }
    },
    write_values: ::node::salvage::write_values,
    write_index: ::node::salvage::write_index,
    save_readable: ::node::salvage::save_readable,
};

fn found_again(found: ::node::salvage::FoundAgain) -> cli::FoundAgain {
    cli::FoundAgain { entries: found.entries, left_out: found.left_out, said: found.said }
}

fn main() -> ExitCode {
    let this = Program::of_this_process();
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == "redis-server") {
        return serve(args, Called::AsRedis, this);
    }
    let Some(subcommand) = args.next() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    match subcommand.to_str() {
        Some("server") => serve(args, Called::ByItsName, this),
        Some("coordinator") => membership::coordinator::main(args),
        Some("quorum") => match args.map(OsString::into_string).collect::<Result<Vec<_>, _>>() {
            Ok(args) => quorum::main(&args, this),
            Err(arg) => refuse(&format!("argument {arg:?} is not valid UTF-8")),
        },
        Some("bench") => bench::cli::main(args),
        Some("scenario") => bench::scenario::main(args),
        Some(
            "database" | "cluster" | "node" | "user" | "token" | "top" | "prepare-flash" | "journal" | "repair"
            | "migrate" | "plan" | "completions" | "man",
        ) => cli::main(std::iter::once(subcommand).chain(args), &FLASH),
        Some("--version" | "-v" | "-V" | "version") => {
            println!(
                "flintkv {}\nApache-2.0; flintkv licences prints the licences of all code in it",
                env!("CARGO_PKG_VERSION")
            );
            ExitCode::SUCCESS
        }
        Some("licences" | "licenses") => {
            // Ignore the error: a pager may have been closed.
            let _ = std::io::stdout().write_all(NOTICE.as_bytes());
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => refuse(&format!("{subcommand:?} is not a subcommand")),
    }
}

fn serve(args: impl Iterator<Item = OsString>, called: Called, this: Program) -> ExitCode {
    match args.map(OsString::into_string).collect::<Result<Vec<_>, _>>() {
        Ok(args) => node::main(&args, called, this),
        Err(arg) => refuse(&format!("argument {arg:?} is not valid UTF-8")),
    }
}

/// Prints why the command line is refused to standard error.
fn refuse(why: &str) -> ExitCode {
    eprintln!("flintkv: {why}; see flintkv --help");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::HELP;

    #[test]
    fn the_help_has_every_subcommand_and_every_action() {
        let words: Vec<&str> = HELP.split_whitespace().collect();
        for command in cli::args::tree().get_subcommands() {
            let name = command.get_name();
            let from = words.windows(2).position(|pair| pair == ["flintkv", name]);
            let from = from.unwrap_or_else(|| panic!("flintkv {name} is missing"));
            let row = words[from + 1..].iter().take_while(|word| **word != "flintkv");
            let known: Vec<&str> = row.flat_map(|word| word.split('|')).collect();
            for action in command.get_subcommands() {
                assert!(known.contains(&action.get_name()), "flintkv {name} {} is missing", action.get_name());
            }
        }
    }
}
