//! Owns `flintkv coordinator`: the process that runs this node's member of etcd and watches it, and what an operator does with that
//! etcd. Never knows databases, or what nodes keep in etcd.
//!
//! Reading order: `run` (the life of the member), `process` (one run of etcd), `data` (its directory), `program` (its binaries),
//! `certificates` (what etcd must know of them), `operator` and `recovery` (the subcommands), `notify` (systemd).

mod certificates;
mod data;
mod notify;
mod operator;
mod process;
mod program;
mod recovery;
mod run;

pub use certificates::{RESTARTS, revoked_crl};
pub use data::DataError;
pub use operator::{OperatorError, backup, compact, status};
pub use program::ProgramError;
pub use recovery::{RecoveryError, keep_this_member, restore};
pub use run::{Coordinator, RunError};

use config::{Config, ConfigStore};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::signal::unix::{SignalKind, signal};

/// Where lines for the operator go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

const HELP: &str = "\
usage: flintkv coordinator [CONF|-] [--directive value ...]
       flintkv coordinator status [CONF|-] [--directive value ...]
       flintkv coordinator compact [CONF|-] [--directive value ...]
       flintkv coordinator backup FILE [CONF|-] [--directive value ...]
       flintkv coordinator restore FILE [--yes] [CONF|-] [--directive value ...]
       flintkv coordinator recover --keep-this-member [--yes] [CONF|-] [--directive value ...]

Without a subcommand it runs this node's member of etcd, in which the cluster keeps who its members are and what each does. Until
`flintkv cluster init` or `flintkv cluster join` has made the node run one, it waits. Give it the node's own configuration: of that it reads state-dir, supervised and
etcd-*.

  status     the members of etcd: leader, version, size, alarms
  compact    give back the space of old revisions, member by member, and end the alarm of a full quota
  backup     write all that is in etcd to FILE, while it runs
  restore    make etcd's data on this node anew from FILE; the coordinators must be stopped
  recover    go on with this member alone after the majority was lost; the coordinators must be stopped

restore and recover explain what they do, and do it only with --yes. docs/etcd.md has the steps.
";

pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Snapshots have all that the cluster keeps: no file of this process is for others.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let args = match args.map(OsString::into_string).collect::<Result<Vec<String>, _>>() {
        Ok(args) => args,
        Err(arg) => return wrong(&format!("argument {arg:?} is not valid UTF-8")),
    };
    if args.first().is_some_and(|arg| ["--help", "-h", "help"].contains(&arg.as_str())) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let command = match Command::parse(args) {
        Ok(command) => command,
        Err(why) => return wrong(&why),
    };
    let store = match ConfigStore::from_args(&command.rest) {
        Ok(store) => store,
        Err(error) => return failed(&error, ExitCode::FAILURE),
    };
    command.action.act(&store.snapshot())
}

struct Command {
    action: Action,
    /// For the configuration.
    rest: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Action {
    Run,
    Status,
    Compact,
    Backup(PathBuf),
    Restore { file: PathBuf, yes: bool },
    Recover { yes: bool },
}

impl Command {
    fn parse(mut args: Vec<String>) -> Result<Command, String> {
        let word = args.first().cloned().unwrap_or_default();
        if !["status", "compact", "backup", "restore", "recover"].contains(&&*word) {
            return Ok(Command { action: Action::Run, rest: args });
        }
        args.remove(0);
        let mut take = |flag: &str| {
            let place = args.iter().position(|arg| arg == flag);
            place.map(|place| args.remove(place)).is_some()
        };
        let action = match &*word {
            "status" => Action::Status,
            "compact" => Action::Compact,
            "backup" => Action::Backup(file(&word, &mut args)?),
            "restore" => {
                let yes = take("--yes");
                Action::Restore { file: file(&word, &mut args)?, yes }
            }
            _ => {
                let (keep, yes) = (take("--keep-this-member"), take("--yes"));
                if !keep {
                    return Err("recover needs --keep-this-member, which says what it does".to_owned());
                }
                Action::Recover { yes }
            }
        };
        Ok(Command { action, rest: args })
    }
}

fn file(word: &str, args: &mut Vec<String>) -> Result<PathBuf, String> {
    match args.first() {
        Some(arg) if !arg.starts_with('-') => Ok(args.remove(0).into()),
        _ => Err(format!("{word} needs the path of a snapshot")),
    }
}

impl Action {
    fn act(self, config: &Config) -> ExitCode {
        let log: Log = Arc::new(|line| eprintln!("{line}"));
        match self {
            Action::Run => attend(config, &log),
            Action::Status => ask(status(config, &mut stdout())),
            Action::Compact => ask(compact(config, &mut stdout())),
            Action::Backup(file) => ask(backup(config, &file, &mut stdout())),
            Action::Restore { file, yes } => {
                let explanation = recovery::restore_explanation(config, &file);
                explained(&explanation, yes, || restore(config, &absolute(&file), &log))
            }
            Action::Recover { yes } => {
                let explanation = recovery::recover_explanation(config);
                explained(&explanation, yes, || keep_this_member(config, &log))
            }
        }
    }
}

/// Runs until SIGTERM or SIGINT.
fn attend(config: &Config, log: &Log) -> ExitCode {
    let shutdown = Arc::new(AtomicBool::new(false));
    if let Err(error) = stop_on_signals(Arc::clone(&shutdown)) {
        return failed(&error, ExitCode::FAILURE);
    }
    match Coordinator::run(config, &shutdown, log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, error.exit_code()),
    }
}

/// On a thread of its own, because the coordinator's waits for etcd now and then.
fn stop_on_signals(shutdown: Arc<AtomicBool>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        shutdown.store(true, Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

fn ask(answer: impl Future<Output = Result<(), OperatorError>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error, ExitCode::FAILURE),
    };
    match runtime.block_on(answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, ExitCode::FAILURE),
    }
}

fn explained(explanation: &str, yes: bool, act: impl FnOnce() -> Result<(), RecoveryError>) -> ExitCode {
    eprint!("{explanation}");
    if !yes {
        return failed(&"nothing was done: if this is what you want, add --yes", ExitCode::FAILURE);
    }
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, ExitCode::FAILURE),
    }
}

fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

fn failed(why: &dyn Display, code: ExitCode) -> ExitCode {
    eprintln!("flintkv coordinator: {why}");
    code
}

fn wrong(why: &str) -> ExitCode {
    eprintln!("flintkv coordinator: {why}; see flintkv coordinator --help");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_command_is_for_the_configuration() {
        let parse = |text: &str| {
            let command = Command::parse(text.split_whitespace().map(str::to_owned).collect())?;
            Ok::<_, String>((command.action, command.rest.join(" ")))
        };
        assert_eq!(parse("a.conf --etcd-quota 1gb"), Ok((Action::Run, "a.conf --etcd-quota 1gb".to_owned())));
        assert_eq!(parse(""), Ok((Action::Run, String::new())));
        assert_eq!(parse("backup a.db a.conf"), Ok((Action::Backup("a.db".into()), "a.conf".to_owned())));
        let restore = |yes| Action::Restore { file: "a.db".into(), yes };
        assert_eq!(parse("restore --yes a.db - --port 1"), Ok((restore(true), "- --port 1".to_owned())));
        assert_eq!(parse("restore a.db"), Ok((restore(false), String::new())));
        let recover = parse("recover a.conf --yes --keep-this-member");
        assert_eq!(recover, Ok((Action::Recover { yes: true }, "a.conf".to_owned())));
        assert!(parse("recover --yes").unwrap_err().contains("--keep-this-member"));
        assert!(parse("backup --etcd-quota 1gb").unwrap_err().contains("needs the path"));
    }
}
