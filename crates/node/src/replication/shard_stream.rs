//! Owns what a copy receives from its shard's primary: the frames of the stream and the heartbeats between them, and the bytes that are
//! received and not applied yet, with the thread that applies them. So what is acknowledged, and when, does not depend on what is applied.
//! Never knows a connection.

use super::apply::{Applier, NO_ROOM};
use crate::database::Database;
use cluster::failover::Heartbeat;
use cluster::ids::Epoch;
use parking_lot::{Condvar, Mutex};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::Admission;

/// How often a copy without room looks whether there is some.
const LOOK: Duration = Duration::from_millis(20);
/// A copy that waits longer for its journal or for a checkpoint has no room: while it acknowledges, it would hold up every write.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Whoever ends the copy's role lets it wait so long: a device that is only slow makes room by then, and what is given up was acknowledged.
const LAST_WAIT_MAX: Duration = Duration::from_secs(5);
/// The line of a frame is shorter.
const LINE_BYTES_MAX: usize = 128;

/// What is next in the input.
#[derive(Debug, PartialEq)]
pub enum Frame<'i> {
    /// Bytes of the stream.
    Bytes(&'i [u8]),
    /// `shared`: before this offset, every copy that can be named primary has everything. 0: the primary does not say it.
    Heartbeat { heartbeat: Heartbeat, shared: u64 },
    /// The connection is alive.
    Nothing,
}

/// Finds frames in the input, wherever it is cut.
#[derive(Default)]
pub struct Frames {
    /// So many bytes of the stream's frame are to come.
    left: usize,
}

impl Frames {
    /// What the input begins with, and how many bytes of it that takes. `None`: more must come.
    pub fn next<'i>(&mut self, input: &'i [u8]) -> Result<Option<(Frame<'i>, usize)>, String> {
        if self.left > 0 {
            let bytes = self.left.min(input.len());
            self.left -= bytes;
            return Ok((bytes > 0).then(|| (Frame::Bytes(&input[..bytes]), bytes)));
        }
        let Some(end) = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
            return match input.len() {
                ..LINE_BYTES_MAX => Ok(None),
                _ => Err("a frame must begin here in the primary's stream, but something else was found".to_owned()),
            };
        };
        let line = String::from_utf8_lossy(input[..end].trim_ascii()).into_owned();
        let bad = || format!("the primary's stream has a malformed frame: {line}");
        let mut words = line.get(1..).unwrap_or_default().split(' ').map(str::parse::<u64>);
        let mut number = || words.next().and_then(Result::ok).ok_or_else(bad);
        let frame = match line.as_bytes().first() {
            None => Frame::Nothing,
            Some(b'$') => {
                self.left = usize::try_from(number()?).map_err(|_| bad())?;
                Frame::Nothing
            }
            Some(b'+') => {
                let epoch = Epoch(NonZeroU64::new(number()?).ok_or_else(bad)?);
                let heartbeat = Heartbeat { epoch, number: number()?, has_lease: number()? == 1 };
                Frame::Heartbeat { heartbeat, shared: number().unwrap_or(0) }
            }
            Some(_) => return Err(bad()),
        };
        Ok(Some((frame, end + 1)))
    }
}

/// The bytes between who receives and who applies. The primary sends no more than a bounded number of bytes that are not applied.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
    more: Condvar,
    /// There is no room for the next command.
    pub is_full: AtomicBool,
    /// It was not possible to apply everything: nothing more is to be received.
    pub has_failed: AtomicBool,
    /// A comparison of the datasets could not be made here.
    pub missed_check: AtomicBool,
}

#[derive(Default)]
struct InboxState {
    bytes: Vec<u8>,
    is_closed: bool,
}

impl Inbox {
    /// Adds bytes, which are applied after [`Inbox::wake`].
    pub fn put(&self, bytes: &[u8]) {
        self.state.lock().bytes.extend_from_slice(bytes);
    }

    pub fn wake(&self) {
        self.more.notify_one();
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.more.notify_one();
    }

    /// Adds what has come to the input, and waits for some. False: that was all.
    fn take(&self, input: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock();
        while state.bytes.is_empty() && !state.is_closed {
            self.more.wait(&mut state);
        }
        let has_come = !state.bytes.is_empty();
        match input.is_empty() {
            true => std::mem::swap(input, &mut state.bytes),
            false => input.append(&mut state.bytes),
        }
        has_come
    }

    /// Applies everything until the inbox is closed. `db`: the logical database in which the stream goes on. While there is no room, it waits,
    /// as long as `may_wait`. A command that has not come whole is left out: nobody was told of it. After an error, the dataset misses
    /// something that came.
    pub fn apply(&self, database: &Database, db: u32, may_wait: &dyn Fn() -> bool) -> Result<(), String> {
        let applied = self.try_apply(database, db, may_wait);
        self.has_failed.store(applied.is_err(), Relaxed);
        applied
    }

    fn try_apply(&self, database: &Database, db: u32, may_wait: &dyn Fn() -> bool) -> Result<(), String> {
        let mut applier = Applier::new(database, db)?;
        let mut input = Vec::new();
        let applied = loop {
            if !self.take(&mut input) {
                break Ok(());
            }
            if let Err(why) = self.apply_input(database, &mut applier, &mut input, may_wait) {
                break Err(why);
            }
        };
        // Why its connections are broken, if they are.
        let finished = applier.finish();
        match applied {
            Ok(()) => finished,
            Err(why) => Err(finished.err().unwrap_or(why)),
        }
    }

    fn apply_input(
        &self,
        database: &Database,
        applier: &mut Applier<'_>,
        input: &mut Vec<u8>,
        may_wait: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let may_wait_on = |waited: Duration| {
            if waited > WAIT_MAX {
                self.note_full(database, NO_ROOM);
            }
            waited <= LAST_WAIT_MAX || may_wait()
        };
        loop {
            let applied = applier.apply(input, &may_wait_on)?;
            input.drain(..applied.bytes);
            self.missed_check.fetch_or(applied.missed_check, Relaxed);
            let Some(why) = applied.full else {
                self.is_full.store(false, Relaxed);
                return Ok(());
            };
            self.note_full(database, why);
            loop {
                if !may_wait() {
                    return Err(why.to_owned());
                }
                if database.shard.store.admission() != Admission::Full {
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
    }

    fn note_full(&self, database: &Database, why: &str) {
        if !self.is_full.swap(true, Relaxed) {
            tracing::error!(
                "database '{}': there is no room for what its primary sends: {why}. It leaves the shard's in-sync set until there is",
                database.name()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_wherever_the_input_is_cut() {
        let input = b"$0000000005\r\nab\r\nc\n+7 12 1 815\r\n\n$0000000000\r\n$0000000003\r\nxyz+7 13 0\r\n";
        for cut in 0..=input.len() {
            let (mut frames, mut bytes, mut heartbeats) = (Frames::default(), Vec::new(), Vec::new());
            let mut at = 0;
            for arrived in [cut, input.len()] {
                while let Some((frame, used)) = frames.next(&input[at..arrived]).unwrap() {
                    match frame {
                        Frame::Bytes(some) => bytes.extend_from_slice(some),
                        Frame::Heartbeat { heartbeat, shared } => {
                            heartbeats.push((heartbeat.number, heartbeat.has_lease, shared))
                        }
                        Frame::Nothing => {}
                    }
                    at += used;
                }
            }
            assert_eq!(
                (&*bytes, &*heartbeats),
                (&b"ab\r\ncxyz"[..], &[(12, true, 815), (13, false, 0)][..]),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        for bad in ["*1\r\n", "+0 1 1\r\n", "+1 1\r\n", "$x\r\n", "+1 x 0\r\n"] {
            assert!(Frames::default().next(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Frames::default().next(&[b'x'; LINE_BYTES_MAX]).is_err());
    }
}
