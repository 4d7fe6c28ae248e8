//! Owns recording a running server's commands for a time, with MONITOR. It ends early if the server would have to buffer
//! much output for it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::capture::Capture;
use crate::server::{Server, bytes};
use crate::{Address, Error};

/// The server buffers unread output of MONITOR without a limit. If its buffers grow above this size, the recording
/// ends.
const KEPT_BYTES_MAX: u64 = 64 << 20;
const CHECK_TIME: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Watched {
    pub capture: Capture,
    pub cost: Cost,
}

/// What MONITOR has cost the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    pub seconds: f64,
    pub commands: u64,
    pub bytes: u64,
    /// The number of cores that the server used in the second before MONITOR, and during it. `None`: the server does not
    /// report it.
    pub cores_before: Option<f64>,
    pub cores_meanwhile: Option<f64>,
    /// The server had to buffer too much.
    pub ended_early: bool,
}

/// Records for this time, or until `go_on` returns false. `go_on` gets the elapsed part of the time, 0 to 1.
pub fn watch(
    address: &Address,
    cacert: Option<&Path>,
    time: Duration,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Watched, Error> {
    let mut beside = Server::connect(address, cacert)?;
    let mut monitor = Server::connect(address, cacert)?;
    let cores_before = cores(&mut beside, |_| {
        std::thread::sleep(CHECK_TIME);
        Ok(())
    })?;
    let kept_before = kept_bytes(&mut beside)?;
    let (mut capture, mut ended_early) = (Capture::new(false, address.db), false);
    monitor.ask(&["MONITOR"])?;
    let begun = Instant::now();
    let cores_meanwhile = cores(&mut beside, |beside| {
        let mut checked = begun;
        while begun.elapsed() < time && go_on(begun.elapsed().as_secs_f64() / time.as_secs_f64()) {
            if let Some(message) = monitor.next_within(WAIT)?
                && let Some(line) = bytes(&message)
            {
                capture.line(line);
            }
            if checked.elapsed() >= CHECK_TIME {
                checked = Instant::now();
                if kept_bytes(beside)? > kept_before + KEPT_BYTES_MAX {
                    ended_early = true;
                    break;
                }
            }
        }
        Ok(())
    })?;
    let (commands, bytes) = (capture.commands, capture.bytes);
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Watched { capture, cost: Cost { seconds, commands, bytes, cores_before, cores_meanwhile, ended_early } })
}

/// The number of cores that the server uses while `done` runs.
fn cores(server: &mut Server, mut done: impl FnMut(&mut Server) -> Result<(), Error>) -> Result<Option<f64>, Error> {
    let used = |server: &mut Server| -> Result<Option<f64>, Error> {
        let fields = server.info("cpu")?;
        let number = |name: &str| fields.get(name)?.parse::<f64>().ok();
        Ok(number("used_cpu_sys").zip(number("used_cpu_user")).map(|(system, user)| system + user))
    };
    let before = used(server)?;
    let begun = Instant::now();
    done(server)?;
    let after = used(server)?;
    Ok(before.zip(after).map(|(before, after)| (after - before) / begun.elapsed().as_secs_f64()))
}

/// The bytes that the server buffers for all its clients. Servers before Redis 5 do not report them.
fn kept_bytes(server: &mut Server) -> Result<u64, Error> {
    Ok(server.info("memory")?.get("mem_clients_normal").and_then(|bytes| bytes.parse().ok()).unwrap_or(0))
}
