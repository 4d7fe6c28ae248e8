//! Owns `flintkv server`: the configuration, and what a process must set before its first thread.
//! Never knows workers, sockets or data.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::config::{Config, ConfigStore};

/// Tells a process that it is the detached one that `daemonize` asks for.
const DETACHED: &str = "FLINTKV_DETACHED";

/// Descriptors for other things than clients: flash files, rings, the log, listeners.
const DESCRIPTORS_RESERVED: u64 = 128;

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

pub fn main(args: &[String]) -> ExitCode {
    match args.first().map(String::as_str) {
        Some("--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-v") => {
            println!(
                "FlintKV server v={} flintkv={} malloc=jemalloc bits={}",
                server::REDIS_VERSION,
                env!("CARGO_PKG_VERSION"),
                usize::BITS
            );
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let store = match ConfigStore::from_args(args) {
        Ok(store) => store,
        Err(error) => return fail(&error.to_string()),
    };
    let config = store.snapshot();
    if config.daemonize && std::env::var_os(DETACHED).is_none() {
        return match detach(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("daemonize: {error}")),
        };
    }
    if config.daemonize
        && let Err(error) = rustix::process::setsid()
    {
        return fail(&format!("daemonize: {error}"));
    }
    if config.disable_thp
        && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
    {
        store.notice(format!(
            "disable-thp: {error}: the resident size may be larger than the data"
        ));
    }
    if let Some(line) = raise_descriptors(&config) {
        store.notice(line);
    }
    let pidfile = config
        .pidfile
        .as_deref()
        .and_then(|path| PidFile::write(path, &store));
    let ended = server::run(Arc::new(store));
    drop(pidfile);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("flintkv server: {why}");
    ExitCode::FAILURE
}

/// Starts this command again without a terminal. A new process rather than a fork: the allocator's thread would not
/// survive one.
fn detach(args: &[String]) -> io::Result<()> {
    if args.first().is_some_and(|arg| arg == "-") || args.last().is_some_and(|arg| arg == "-") {
        return Err(io::Error::other(
            "a configuration from standard input cannot be read twice: put it into a file",
        ));
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

/// Makes room for `maxclients` connections; a line for the log where the system does not allow it.
fn raise_descriptors(config: &Config) -> Option<String> {
    let wanted = config.maxclients as u64 + DESCRIPTORS_RESERVED;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return None;
    }
    // First all that is needed, which raises the hard limit where the process may, then what there is.
    let all = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|maximum| maximum.max(wanted)),
    };
    if setrlimit(Resource::Nofile, all).is_ok() {
        return None;
    }
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Some(format!(
        "the limit of open files is {current}, so only {} of maxclients {} can connect: raise it (ulimit -n) to {wanted}",
        current.saturating_sub(DESCRIPTORS_RESERVED),
        config.maxclients
    ))
}

/// The process id in a file, for as long as the process runs.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path, store: &ConfigStore) -> Option<PidFile> {
        match std::fs::write(path, format!("{}\n", std::process::id())) {
            Ok(()) => Some(PidFile(path.to_owned())),
            Err(error) => {
                store.notice(format!("pidfile {}: {error}", path.display()));
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
