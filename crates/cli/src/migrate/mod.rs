//! Owns `flintkv migrate`: a running Redis or Valkey moves into a database, which can be one of a FlintKV node or any other
//! server that accepts the same commands. Never reads files of either server.
//!
//! - `measure` estimates what the dataset will need.
//! - `follow` moves it as replication: the target follows the source. `copy` moves it key by key if the source forbids
//!   replication.
//! - `beside` moves functions and users, and lists what does not move.
//! - `compare` compares the copy with the source.

mod beside;
mod compare;
mod copy;
mod follow;
pub mod measure;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::args::{Method, Migrate};
use crate::client::{Client, segment};
use crate::failure::Failure;
use crate::progress;
use survey::{Address, Server, look};

/// Writes of the source's clients wait at most this long at the switch.
const PAUSE: Duration = Duration::from_secs(10);
/// The number of keys that are sampled.
const SAMPLES: usize = 1000;
/// How many keys are compared.
const COMPARED: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(600);

/// A method of moving the dataset.
trait Mover {
    /// Brings the target as near to the source as possible while the source accepts writes, and shows the progress.
    fn catch_up(&mut self, ends: &mut Ends) -> Result<(), Failure>;
    /// Waits until the target has everything that the source had at the time of the call.
    fn reach(&mut self, ends: &mut Ends) -> Result<(), Failure>;
    /// A text that says how far the target is behind.
    fn lag(&mut self, ends: &mut Ends) -> Result<String, Failure>;
    /// Pauses or resumes the writes of the source's clients. Returns whether the source supports this.
    fn hold(&mut self, ends: &mut Ends, on: bool) -> bool {
        pause(&mut ends.source, on)
    }
    /// Called while the source is paused, if it supports that: the target receives the remaining changes and becomes
    /// independent.
    fn switch(&mut self, ends: &mut Ends) -> Result<(), Failure>;
    /// The target keeps its current data and becomes independent.
    fn abort(&mut self, ends: &mut Ends);
}

/// Both servers.
struct Ends {
    source: Server,
    target: Server,
    from: Address,
    to: Address,
    cacert: Option<PathBuf>,
    /// Ctrl-C was pressed.
    interrupted: Arc<AtomicBool>,
}

impl Ends {
    fn check(&self) -> Result<(), Failure> {
        match self.interrupted.load(Relaxed) {
            true => Err(Failure::interrupted("interrupted")),
            false => Ok(()),
        }
    }
}

pub fn run(args: &Migrate) -> Result<String, Failure> {
    let from: Address = args.from.parse().map_err(|why: String| Failure::refused(format!("--from: {why}")))?;
    let from = from.with_password(args.from_password.as_deref());
    let mut source = Server::connect(&from, args.connection.cacert.as_deref())?;
    let sample = look(&mut source, SAMPLES, from.db, &|_| true)?;
    let left_behind = beside::left_behind(&mut source, args.users)?;
    let report = format!("{}{left_behind}", measure::report(&sample, &from.to_string()));
    if args.rehearse {
        let method = method(&mut source, args.method)?;
        let rate = measure::rate(&mut source, &sample)?;
        return Ok(format!("{report}{}{}", measure::duration(&sample, rate), said_of(method)));
    }
    eprint!("{report}");
    let to = target(args)?;
    let mut target = Server::connect(&to, args.connection.cacert.as_deref())?;
    let taken = target.keys()?.values().sum::<u64>();
    if taken > 0 && !args.replace {
        return Err(Failure::refused(format!("{to} has {taken} keys already, which would be lost"))
            .hint("give --replace if they may be lost"));
    }
    measure::fits(&sample, &mut target, args.force)?;
    let method = method(&mut source, args.method)?;
    eprint!("{}", said_of(method));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    let cacert = args.connection.cacert.clone();
    let mut ends = Ends { source, target, from, to, cacert, interrupted };
    let mut mover: Box<dyn Mover> = match method {
        Method::Follow => Box::new(follow::Follow::begin(&mut ends)?),
        Method::Copy => Box::new(copy::Copy::begin(&mut ends)?),
    };
    let moved = catch_up_and_switch(&mut ends, &mut *mover, args);
    if moved.is_err() {
        mover.abort(&mut ends);
    }
    moved
}

fn catch_up_and_switch(ends: &mut Ends, mover: &mut dyn Mover, args: &Migrate) -> Result<String, Failure> {
    mover.catch_up(ends)?;
    eprintln!("in sync: {}", mover.lag(ends)?);
    let compared = compare::compare(ends, COMPARED, &mut |ends| mover.reach(ends))?;
    eprint!("{compared}");
    if !args.switch {
        wait_for_the_word(ends, mover)?;
    }
    let users = if args.users { beside::move_users(ends)? } else { String::new() };
    let paused = mover.hold(ends, true);
    let switched = mover.switch(ends).and_then(|()| compare::counts(ends));
    let way_back = match (&switched, args.way_back) {
        (Ok(_), true) => turn_around(ends).map(|()| true),
        _ => Ok(false),
    };
    mover.hold(ends, false);
    let counts = switched?;
    let mut said = format!("{counts}{users}{} is now independent: connect the clients to it\n", ends.to);
    if !paused {
        said.push_str("the source could not be paused: what its clients wrote during the last second may be missing\n");
    }
    if way_back? {
        said.push_str(&format!(
            "{} follows {}, so that you can switch back: REPLICAOF NO ONE there ends this\n",
            ends.from, ends.to
        ));
    }
    Ok(said)
}

/// Waits until Enter is pressed. The target stays in sync meanwhile.
fn wait_for_the_word(ends: &mut Ends, mover: &mut dyn Mover) -> Result<(), Failure> {
    let entered = Arc::new(AtomicBool::new(false));
    let enter = Arc::clone(&entered);
    std::thread::spawn(move || {
        let mut line = String::new();
        // Without a terminal nobody can press Enter, so the end of the input does not count as Enter.
        if std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            enter.store(true, Relaxed);
        }
    });
    let spinner = progress::spinner("{spinner} {msg}");
    while !entered.load(Relaxed) {
        ends.check()?;
        spinner.set_message(format!("{}; Enter switches, Ctrl-C aborts", mover.lag(ends)?));
        spinner.tick();
        std::thread::sleep(Duration::from_millis(200));
    }
    spinner.finish_and_clear();
    Ok(())
}

/// Pauses or resumes the writes of a server's clients. Returns whether the server supports this.
fn pause(source: &mut Server, on: bool) -> bool {
    let millis = PAUSE.as_millis().to_string();
    let command: &[&str] = if on { &["CLIENT", "PAUSE", &millis, "WRITE"] } else { &["CLIENT", "UNPAUSE"] };
    source.ask(command).is_ok()
}

/// Makes the old server a replica of the new one.
fn turn_around(ends: &mut Ends) -> Result<(), Failure> {
    let Address { host, port, user, password, .. } = &ends.to;
    for (name, value) in [("masteruser", user), ("masterauth", password)] {
        if let Some(value) = value {
            ends.source.ask(&["CONFIG", "SET", name, value])?;
        }
    }
    Ok(ends.source.ask(&["REPLICAOF", host, &port.to_string()]).map(drop)?)
}

/// The method that the user asked for, otherwise the one that the source allows.
fn method(source: &mut Server, wanted: Option<Method>) -> Result<Method, Failure> {
    if let Some(method) = wanted {
        return Ok(method);
    }
    let is_cluster = source.info("cluster")?.get("cluster_enabled").is_some_and(|on| on == "1");
    let may_follow = source.ask(&["REPLCONF", "capa", "psync2"]).is_ok();
    Ok(if may_follow && !is_cluster { Method::Follow } else { Method::Copy })
}

fn said_of(method: Method) -> String {
    match method {
        Method::Follow => "method: follow (the target is a replica of the source until the switch)\n",
        Method::Copy => "method: copy (SCAN and DUMP, and what changes meanwhile by keyspace notifications)\n",
    }
    .to_owned()
}

/// The address of the target: as given, or that of the database with this name, from its node.
fn target(args: &Migrate) -> Result<Address, Failure> {
    let to = args.to.as_deref().unwrap_or_default();
    let address: Address = match to.contains("://") {
        true => to.parse().map_err(|why: String| Failure::refused(format!("--to: {why}")))?,
        false => {
            let client = Client::new(&args.connection, TIMEOUT)?;
            let database = client.get(&format!("/databases/{}", segment(to)))?;
            let endpoints = database["endpoints"].as_array().cloned().unwrap_or_default();
            let tcp = endpoints.iter().find(|endpoint| endpoint["kind"] == "tcp");
            let address = tcp.and_then(|endpoint| endpoint["address"].as_str());
            let address = address.ok_or_else(|| Failure::failed(format!("{to} has no TCP port")))?;
            let address = address.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
            format!("redis://{address}").parse().map_err(|why: String| Failure::failed(why))?
        }
    };
    Ok(address.with_password(args.to_password.as_deref()))
}
