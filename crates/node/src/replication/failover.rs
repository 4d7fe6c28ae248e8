//! Owns FAILOVER: a replica that has every write becomes the primary, and this database follows it. Never knows how a replica is fed or how
//! this database follows. While writers wait, the replica gets the rest of the stream. Then the database becomes a replica, whose PSYNC tells
//! the other side to take over: it goes on with the same stream, so neither copies a dataset.

use crate::database::Database;
use crate::role::{Attempt, Following};
use base::clock::wall_ms;
use commands::host::Failover;
use engine::Hold;
use engine::replication::{Link, Phase};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often the replicas' offsets are compared with the stream's.
const STEP: Duration = Duration::from_millis(1);
/// How often a replica is asked what it has.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// The replica that takes over, and the end of the stream that it has.
struct PromotionCandidate {
    ip: String,
    port: u16,
    /// `None`: it takes over whatever it has.
    end: Option<u64>,
}

impl Database {
    /// FAILOVER begins: it goes on on another thread.
    pub(crate) fn begin_failover(&self, wanted: Failover) -> Result<(), String> {
        let database = self.me.upgrade().ok_or("ERR the database is being closed")?;
        let mut running = self.replication.failover.lock();
        if running.is_some() {
            return Err("ERR FAILOVER already in progress.".to_owned());
        }
        if self.replication.role.following().is_some() {
            return Err("ERR FAILOVER is not valid when server is a replica.".to_owned());
        }
        let links = self.hub.dataset.links.all();
        if links.is_empty() {
            return Err("ERR FAILOVER requires connected replicas.".to_owned());
        }
        if wanted.force && (wanted.to.is_none() || wanted.timeout_ms.is_none()) {
            let why = "ERR FAILOVER with force option requires both a timeout and target HOST and IP to be set.";
            return Err(why.to_owned());
        }
        if let Some((host, port)) = &wanted.to {
            match links.iter().find(|link| link.ip == *host && link.port == *port) {
                None => return Err("ERR FAILOVER target HOST and PORT is not a replica.".to_owned()),
                Some(link) if link.phase() != Phase::Online => {
                    return Err("ERR FAILOVER target replica is not online.".to_owned());
                }
                Some(_) => {}
            }
        }
        self.hub.change_pauses(|clients| clients.hold_writers(Hold::Failover));
        let attempt = Arc::new(Attempt::default());
        *running = Some(Arc::clone(&attempt));
        let run = move || run(&database, &attempt, &wanted);
        std::thread::Builder::new().name("failover".into()).spawn(run).map(drop).map_err(|error| {
            *running = None;
            self.hub.change_pauses(|clients| clients.let_writers(Hold::Failover));
            format!("ERR cannot start a thread: {error}")
        })
    }

    /// FAILOVER ABORT. If it may wait, writers go on and another failover may begin when this returns.
    pub(crate) fn end_failover(&self, may_wait: bool) -> Result<(), String> {
        let none = || Err("ERR No failover in progress.".to_owned());
        let Some(attempt) = self.replication.failover.lock().clone() else { return none() };
        attempt.is_aborted.store(true, Relaxed);
        if !may_wait {
            return Ok(());
        }
        let mut given_up = attempt.given_up.lock();
        loop {
            match *given_up {
                Some(true) => return Ok(()),
                // It came too late.
                Some(false) => return none(),
                None => attempt.over.wait(&mut given_up),
            }
        }
    }

    /// INFO's word for how far a failover is.
    pub(crate) fn failover_state(&self) -> &'static str {
        match &*self.replication.failover.lock() {
            None => "no-failover",
            Some(attempt) if attempt.hands_over.load(Relaxed) => "failover-in-progress",
            Some(_) => "waiting-for-sync",
        }
    }

    /// Whether the primary with this stream may make this replica the primary.
    pub(crate) fn may_take_over(&self, id: &str) -> Result<(), String> {
        if self.replication.role.following().is_none() {
            return Err("ERR PSYNC FAILOVER can't be sent to a master.".to_owned());
        }
        match self.hub.dataset.journaling.stream.mark() {
            Some(mark) if mark.id.to_string() == id => {
                self.replication.role.takes_over.store(true, Relaxed);
                Ok(())
            }
            _ => Err("ERR PSYNC FAILOVER replid must match my replid.".to_owned()),
        }
    }
}

fn run(database: &Database, attempt: &Attempt, wanted: &Failover) {
    let hub = &database.hub;
    let until = wanted.timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let done = loop {
        match find_candidate(database, attempt, wanted, until) {
            Err(why) => break Err(why),
            Ok(candidate) => match hand_over(database, attempt, &candidate) {
                // A command that was still running has written, so a candidate is looked for again.
                Ok(false) => {}
                Ok(true) => break Ok(candidate),
                Err(why) => break Err(why),
            },
        }
    };
    hub.change_pauses(|clients| clients.let_writers(Hold::Failover));
    *database.replication.failover.lock() = None;
    *attempt.given_up.lock() = Some(done.is_err());
    attempt.over.notify_all();
    match done {
        Ok(PromotionCandidate { ip, port, .. }) => {
            tracing::info!("database '{}': {ip}:{port} is its primary now", hub.name)
        }
        Err(why) => tracing::warn!("database '{}': the failover is aborted: {why}", hub.name),
    }
}

fn may_go_on(database: &Database, attempt: &Attempt) -> Result<(), String> {
    match () {
        () if attempt.is_aborted.load(Relaxed) => Err("FAILOVER ABORT".to_owned()),
        () if database.hub.is_closing.load(Relaxed) => Err("the database is being closed".to_owned()),
        () => Ok(()),
    }
}

/// Waits for a replica that has everything.
fn find_candidate(
    database: &Database,
    attempt: &Attempt,
    wanted: &Failover,
    until: Option<Instant>,
) -> Result<PromotionCandidate, String> {
    let (stream, links) = (&database.hub.dataset.journaling.stream, &database.hub.dataset.links);
    // The stream's offsets before and behind the last GETACK, and when it was sent. A Redis does not count the GETACK in its answer.
    let mut asked: Option<(u64, u64, Instant)> = None;
    loop {
        may_go_on(database, attempt)?;
        let has_moved = |&(_, end, at): &(u64, u64, Instant)| stream.offset() != end || at.elapsed() > ASK_INTERVAL;
        if asked.as_ref().is_none_or(has_moved) {
            let before = stream.offset();
            database.hub.dataset.journaling.keep_for_replicas(&[b"REPLCONF", b"GETACK", b"*"], wall_ms());
            links.hurry(before);
            asked = Some((before, stream.offset(), Instant::now()));
        }
        let (before, end, _) = asked.expect("it was just asked");
        let is_meant =
            |link: &Link| wanted.to.as_ref().is_none_or(|(host, port)| link.ip == *host && link.port == *port);
        let has_all = |link: &&Arc<Link>| is_meant(link) && link.phase() == Phase::Online && link.acked() >= before;
        let all = links.all();
        if let Some(link) = all.iter().find(has_all) {
            return Ok(PromotionCandidate { ip: link.ip.clone(), port: link.port, end: Some(end) });
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return match (&wanted.to, wanted.force) {
                (Some((ip, port)), true) => Ok(PromotionCandidate { ip: ip.clone(), port: *port, end: None }),
                _ => Err("no replica has received every write within the timeout".to_owned()),
            };
        }
        std::thread::sleep(STEP);
    }
}

/// Follows the candidate, which takes over. False: something was written that the candidate may not have.
fn hand_over(database: &Database, attempt: &Attempt, candidate: &PromotionCandidate) -> Result<bool, String> {
    let journaling = &database.hub.dataset.journaling;
    journaling.set_read_only(true);
    database.wait_for_commands()?;
    if candidate.end.is_some_and(|end| journaling.stream.offset() != end) {
        journaling.set_read_only(false);
        return Ok(false);
    }
    attempt.hands_over.store(true, Relaxed);
    let following = match database.hand_over_to(&candidate.ip, candidate.port) {
        Ok(following) => following,
        Err(why) => {
            // The clock must not try again what is given up.
            database.follow(None, true)?;
            journaling.set_read_only(false);
            return Err(why);
        }
    };
    let taken = loop {
        if !following.hands_over.load(Relaxed) {
            break Ok(());
        }
        if let Err(why) = may_go_on(database, attempt).and_then(|()| refusal(&following)) {
            break Err(why);
        }
        std::thread::sleep(STEP);
    };
    if taken.is_err() && !database.hub.is_closing.load(Relaxed) {
        database.follow(None, true)?;
    }
    taken.map(|()| true)
}

fn refusal(following: &Following) -> Result<(), String> {
    match &*following.refusal.lock() {
        Some(why) => Err(why.clone()),
        None => Ok(()),
    }
}
