//! Owns the one binary: which part of FlintKV runs. Never knows what that part does.

mod allocator;
mod node;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
FlintKV: a Redis-compatible database that keeps hot values in RAM and everything else on flash

usage:
  flintkv server [CONF|-] [--directive value ...]   run a node; directives are redis.conf's
  flintkv bench [OPTIONS]                           load a server, with memtier_benchmark's options
  flintkv scenario NAME [OPTIONS]                   run a published benchmark: rof, rof-replicated,
                                                    keydb-flash, gemini-rta
  flintkv --version
  flintkv --help

Each subcommand has its own --help. Called as redis-server, the binary is `flintkv server`.
";

fn main() -> ExitCode {
    let mut args: Vec<String> = Vec::new();
    for arg in std::env::args_os() {
        match arg.into_string() {
            Ok(arg) => args.push(arg),
            Err(arg) => return refuse(&format!("argument {arg:?} is not valid UTF-8")),
        }
    }
    let called_as = args
        .first()
        .and_then(|name| Path::new(name).file_name())
        .unwrap_or_default()
        .to_owned();
    if called_as == "redis-server" {
        return node::main(args.get(1..).unwrap_or_default());
    }
    let rest = args.get(2..).unwrap_or_default();
    match args.get(1).map(String::as_str) {
        Some("server") => node::main(rest),
        Some("bench") => bench::cli::main(rest),
        Some("scenario") => bench::scenario::main(rest),
        Some("--version" | "-v" | "-V" | "version") => {
            println!("flintkv {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => refuse(&format!("'{}' is no subcommand", other.escape_debug())),
        None => {
            eprint!("{HELP}");
            ExitCode::from(2)
        }
    }
}

/// Says on standard error why the command line is refused.
fn refuse(why: &str) -> ExitCode {
    eprintln!("flintkv: {why}; see flintkv --help");
    ExitCode::from(2)
}
