//! Owns `flintkv quorum`: a node that only votes. It runs a member of etcd, admits nodes that join, and shows that it runs. Never knows
//! data or clients.

use crate::program::Program;
use config::ConfigStore;
use membership::coordinator::{Coordinator, Log, RunError};
use node::Then;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const HELP: &str = "\
usage: flintkv quorum [CONF|-] [--directive value ...]

A node that keeps no data and has no clients: it runs a member of etcd, so that a cluster of two nodes with data has a
majority when one of them is lost. Until `flintkv cluster join … --role quorum` has made it a member, it waits.
Of the directives it reads state-dir, peer-port, those of etcd, those of the log, and supervised.
";

/// How often the order to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);

pub fn main(args: &[String], this: Program) -> ExitCode {
    if let Some("--help" | "-h") = args.first().map(String::as_str) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(args) {
        Ok(Then::Exit) => ExitCode::SUCCESS,
        Ok(Then::BeginAnew) => {
            eprintln!("flintkv quorum: cannot begin anew: {}", this.begin_anew());
            ExitCode::FAILURE
        }
        Err((why, code)) => {
            eprintln!("flintkv quorum: {why}");
            code
        }
    }
}

fn run(args: &[String]) -> Result<Then, (String, ExitCode)> {
    let failed = |error: &dyn std::fmt::Display| (error.to_string(), ExitCode::FAILURE);
    let store = ConfigStore::from_args(args).map_err(|error| failed(&error))?;
    let config = store.snapshot();
    node::start_log(&config).map_err(|error| failed(&error))?;
    let is_stopping = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopping)).map_err(|error| failed(&error))?;
    }
    tracing::info!(
        "FlintKV {} starts as a node that only votes: process {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let agent = agent::Agent::start_quorum(&config).map_err(|error| failed(&error))?;
    let restarts = agent.restarts();
    let log: Log = Arc::new(|line| tracing::info!("{line}"));
    let ended = std::thread::scope(|scope| {
        let coordinator = scope.spawn(|| Coordinator::run(&config, &is_stopping, &log));
        while !is_stopping.load(Relaxed) && !coordinator.is_finished() {
            std::thread::sleep(LOOK);
        }
        drop(agent);
        coordinator.join().unwrap_or_else(|_| Err(RunError::Io(io::Error::other("a bug: the coordinator panicked"))))
    });
    ended.map_err(|error| (error.to_string(), error.exit_code()))?;
    Ok(if restarts.load(Relaxed) { Then::BeginAnew } else { Then::Exit })
}
