//! Owns moving a dataset as replication: the target follows the source until the switch. Never copies a key itself.

use base::size::human;
use std::time::{Duration, Instant};

use resp::client::Value;
use survey::{Address, Server};

use super::{Ends, Mover};
use crate::failure::Failure;
use crate::progress;

const LOOK: Duration = Duration::from_millis(100);
/// How long the target may take to receive everything that the paused source has written.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(9);
/// The same while the source accepts writes.
const REACH_TIMEOUT: Duration = Duration::from_secs(60);
/// The target counts as in sync if it is at most so many bytes behind.
const NEAR_BYTES: u64 = 1 << 20;

pub struct Follow;

impl Follow {
    pub fn begin(ends: &mut Ends) -> Result<Follow, Failure> {
        if ends.from.db.is_some() {
            return Err(Failure::refused("replication moves all logical databases")
                .hint("--method copy moves only the database in the address"));
        }
        let Address { host, port, user, password, has_tls, .. } = ends.from.clone();
        for (name, value) in [("masteruser", user), ("masterauth", password)] {
            ends.target.ask(&["CONFIG", "SET", name, &value.unwrap_or_default()])?;
        }
        ends.target.ask(&["CONFIG", "SET", "tls-replication", if has_tls { "yes" } else { "no" }])?;
        ends.target.ask(&["REPLICAOF", &host, &port.to_string()])?;
        Ok(Follow)
    }
}

/// Tells the target to take over, as a primary does at the end of FAILOVER. So the target knows that the change is intended,
/// and does not report a second primary. False: the target does not support this (before Redis 6.2, or without the right).
fn hand_over(ends: &mut Ends) -> Result<bool, Failure> {
    let ours = ends.target.info("replication")?;
    let (Some(id), Some(Ok(offset))) =
        (ours.get("master_replid"), ours.get("slave_repl_offset").map(|text| text.parse::<u64>()))
    else {
        return Ok(false);
    };
    // This command makes the connection that of a replica, so a separate connection is used and closed.
    let mut primary = Server::connect(&ends.to, ends.cacert.as_deref())?;
    let reply = primary.call(&[b"PSYNC", id.as_bytes(), (offset + 1).to_string().as_bytes(), b"FAILOVER"])?;
    Ok(!matches!(reply, Value::Error(_)))
}

/// Both offsets, and whether the link is up.
struct ReplicationOffsets {
    theirs: u64,
    ours: u64,
    is_up: bool,
}

impl ReplicationOffsets {
    fn read(ends: &mut Ends) -> Result<ReplicationOffsets, Failure> {
        let theirs = ends.source.info("replication")?;
        let ours = ends.target.info("replication")?;
        let number = |text: Option<&String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(ReplicationOffsets {
            theirs: number(theirs.get("master_repl_offset")),
            ours: number(ours.get("slave_repl_offset")),
            is_up: ours.get("master_link_status").is_some_and(|status| status == "up"),
        })
    }

    fn behind(&self) -> u64 {
        self.theirs.saturating_sub(self.ours)
    }
}

impl Mover for Follow {
    fn catch_up(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        let template = "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        let bar = progress::bar(template, 0);
        loop {
            ends.check()?;
            let target = ends.target.info("replication")?;
            let number = |name: &str| target.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if target.get("role").is_none_or(|role| role != "slave") {
                return Err(Failure::failed("the target no longer follows the source: it was promoted"));
            }
            if let Some(why) = target.get("master_link_error").filter(|why| !why.is_empty()) {
                bar.set_message(why.clone());
            }
            let state = ReplicationOffsets::read(ends)?;
            if state.is_up && state.behind() <= NEAR_BYTES {
                break;
            }
            match state.is_up {
                true => bar.set_message(format!("{} behind", human(state.behind()))),
                false => {
                    bar.set_length(number("master_sync_total_bytes"));
                    bar.set_position(number("master_sync_read_bytes"));
                    bar.set_message("copying");
                }
            }
            std::thread::sleep(LOOK);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn reach(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        let (begun, end) = (Instant::now(), ReplicationOffsets::read(ends)?.theirs);
        while ReplicationOffsets::read(ends)?.ours < end {
            ends.check()?;
            if begun.elapsed() > REACH_TIMEOUT {
                return Err(Failure::failed(format!(
                    "the target has still not received what the source wrote {} s ago; nothing was switched",
                    REACH_TIMEOUT.as_secs()
                ))
                .hint("look at master_link_error in the target's INFO, and check the load of both servers"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn lag(&mut self, ends: &mut Ends) -> Result<String, Failure> {
        let state = ReplicationOffsets::read(ends)?;
        Ok(match state.is_up {
            true => format!("{} behind", human(state.behind())),
            false => "the link is down".to_owned(),
        })
    }

    fn switch(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        let begun = Instant::now();
        let end = ReplicationOffsets::read(ends)?.theirs;
        while ReplicationOffsets::read(ends)?.ours < end {
            if begun.elapsed() > SWITCH_TIMEOUT {
                return Err(Failure::failed(
                    "the target has not received the last writes in time; nothing was switched",
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if hand_over(ends)? {
            return Ok(());
        }
        Ok(ends.target.ask(&["REPLICAOF", "NO", "ONE"]).map(drop)?)
    }

    fn abort(&mut self, ends: &mut Ends) {
        match ends.target.ask(&["REPLICAOF", "NO", "ONE"]) {
            Ok(_) => {
                eprintln!("aborted: {} no longer follows the source, and keeps the keys that it has received", ends.to)
            }
            Err(failure) => eprint!("aborted, but the target may still follow: {failure}"),
        }
    }
}
