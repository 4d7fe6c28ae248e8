//! Owns `flintkv server`: it makes a configuration from the arguments, and detaches from the terminal. Never knows
//! workers, sockets or data.

use std::any::Any;
use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use crate::program::Program;
use config::ConfigStore;
use node::Then;

/// Marks the detached process that `daemonize` starts.
const DETACHED: &str = "FLINTKV_DETACHED";

const HELP: &str = "\
usage: flintkv server [CONF|-] [--directive value ...]

CONF is a file in redis.conf's syntax, - is standard input. Directives on the command line come after it and win.

examples:
  flintkv server                                    port 6379, this machine only, everything in RAM
  flintkv server flintkv.conf --port 7000
  flintkv server --memory-limit 100gb --ram-limit 30% --flash-path /mnt/nvme0/flintkv
  echo 'maxmemory 1gb' | flintkv server -

All directives: docs/configuration.md, or CONFIG GET '*' of a running node.
";

/// The name by which the binary was called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Called {
    ByItsName,
    /// The binary replaces redis-server: the node opens only the ports that Redis has, unless the configuration names
    /// more.
    AsRedis,
}

pub fn main(args: &[String], called: Called, this: Program) -> ExitCode {
    match args.first().map(String::as_str) {
        Some("--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-v") => {
            println!(
                "FlintKV server v={} flintkv={} malloc=jemalloc bits={}",
                node::REDIS_VERSION,
                env!("CARGO_PKG_VERSION"),
                usize::BITS
            );
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match run(args, called) {
        Ok(Then::Exit) => ExitCode::SUCCESS,
        Ok(Then::BeginAnew) => {
            eprintln!("flintkv server: cannot begin anew: {}", this.begin_anew());
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("flintkv server: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String], called: Called) -> Result<Then, String> {
    let config = ConfigStore::from_args(args).map_err(|error| error.to_string())?;
    let settings = config.snapshot();
    // A service manager watches the process that it started, so do not detach.
    if settings.daemonize && !node::is_supervised(settings.supervised) {
        if std::env::var_os(DETACHED).is_none() {
            return detach(args).map(|()| Then::Exit).map_err(|error| format!("daemonize: {error}"));
        }
        // It has its own session if it has begun anew.
        let has_session = rustix::process::getsid(None).is_ok_and(|leader| leader == rustix::process::getpid());
        if !has_session {
            rustix::process::setsid().map_err(|error| format!("daemonize: {error}"))?;
        }
    }
    let with_console = called == Called::ByItsName || config.is_named("console-port");
    let attach = |node: &Arc<node::Node>| {
        let agent = Arc::new(agent::Agent::start(node)?);
        let console = match with_console {
            true => api::start(node, Some(Arc::clone(&agent)))?,
            false => Box::new(()) as Box<dyn Any>,
        };
        // The console goes first: it asks the agent.
        Ok(Box::new((console, agent)) as Box<dyn Any>)
    };
    node::run(Arc::new(config), attach).map_err(|error| error.to_string())
}

/// Starts this command again without a terminal, as a new process: the allocator's thread would not survive a fork.
fn detach(args: &[String]) -> io::Result<()> {
    if args.first().is_some_and(|arg| arg == "-") || args.last().is_some_and(|arg| arg == "-") {
        return Err(io::Error::other("a configuration from standard input cannot be read twice: put it into a file"));
    }
    Command::new(std::env::current_exe()?)
        .arg("server")
        .args(args)
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(|_| ())
}
