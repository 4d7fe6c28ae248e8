//! Owns who follows a database: plain data of each link, for INFO, ROLE and the clients that wait until replicas have their writes. Never
//! knows a socket or the stream's bytes.

use super::pace::Pace;
use commands::session::Replica;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// How far a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The dump is being made.
    WaitsForDump,
    SendsDump,
    Online,
    /// The replica wanted a dump and nothing more.
    HasDump,
}

impl Phase {
    /// INFO's word.
    pub fn name(self) -> &'static str {
        match self {
            Phase::WaitsForDump => "wait_bgsave",
            Phase::SendsDump => "send_bulk",
            Phase::Online => "online",
            Phase::HasDump => "rdb_transmitted",
        }
    }
}

/// A replica's connection. Its task writes, every thread may read.
#[derive(Debug)]
pub struct Link {
    /// The connection's number among the clients.
    pub client: u64,
    pub ip: String,
    pub port: u16,
    pub is_flint: bool,
    pub version: Box<str>,
    phase: AtomicU8,
    /// What the replica says to have, and to have on its device.
    acked: AtomicU64,
    durable: AtomicU64,
    /// When it last said something, in milliseconds since 1970.
    acked_ms: AtomicU64,
    /// Of the dump: sent, and all.
    pub dump_sent_bytes: AtomicU64,
    pub dump_bytes: AtomicU64,
    /// The replica could not compare its dataset with the primary's, and nobody was told.
    pub missed_check: AtomicBool,
    /// The task of the link.
    waker: Mutex<Option<Waker>>,
}

impl Link {
    /// `from`: the address that the connection comes from.
    pub fn new(client: u64, from: String, replica: &Replica, now_ms: u64) -> Link {
        Link {
            client,
            ip: if replica.ip.is_empty() { from } else { replica.ip.to_string() },
            port: replica.port,
            is_flint: replica.flint,
            version: replica.version.clone(),
            phase: AtomicU8::new(Phase::WaitsForDump as u8),
            acked: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            acked_ms: AtomicU64::new(now_ms),
            dump_sent_bytes: AtomicU64::new(0),
            dump_bytes: AtomicU64::new(0),
            missed_check: AtomicBool::new(false),
            waker: Mutex::default(),
        }
    }

    pub fn phase(&self) -> Phase {
        let all = [Phase::WaitsForDump, Phase::SendsDump, Phase::Online, Phase::HasDump];
        all[usize::from(self.phase.load(Relaxed))]
    }

    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// What the replica has.
    pub fn acked(&self) -> u64 {
        self.acked.load(Relaxed)
    }

    pub fn has_said(&self, acked: u64, durable: Option<u64>, now_ms: u64) {
        self.acked.store(acked, Relaxed);
        if let Some(durable) = durable {
            self.durable.store(durable, Relaxed);
        }
        self.is_alive(now_ms);
    }

    pub fn is_alive(&self, now_ms: u64) {
        self.acked_ms.store(now_ms, Relaxed);
    }

    /// How long the replica has been silent.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.acked_ms.load(Relaxed))
    }

    fn has(&self, offset: u64, durably: bool) -> bool {
        let has = if durably { &self.durable } else { &self.acked };
        self.phase() == Phase::Online && has.load(Relaxed) >= offset
    }

    /// Notes what to wake for [`Links::hurry`].
    pub fn listen(&self, waker: &Waker) {
        let mut mine = self.waker.lock();
        if !mine.as_ref().is_some_and(|mine| mine.will_wake(waker)) {
            *mine = Some(waker.clone());
        }
    }
}

/// Who follows a database.
#[derive(Debug, Default)]
pub struct Links {
    all: Mutex<Vec<Arc<Link>>>,
    waiting: Mutex<Vec<Waiting>>,
    /// The last GETACK is in the stream at this offset or behind it. A Redis does not count the GETACK in its answer.
    asked: AtomicU64,
    pub full_syncs: AtomicU64,
    pub partial_syncs: AtomicU64,
    /// Replicas that asked for the rest of a stream and got a dump.
    pub refused_partial_syncs: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Of all dumps.
    pub pace: Mutex<Pace>,
}

/// A client that waits until replicas have an offset.
#[derive(Debug)]
struct Waiting {
    client: u64,
    offset: u64,
    replicas: usize,
    durably: bool,
    waker: Waker,
}

impl Links {
    pub fn add(&self, link: Arc<Link>) {
        self.all.lock().push(link);
    }

    pub fn remove(&self, link: &Arc<Link>) {
        let mut all = self.all.lock();
        all.retain(|other| !Arc::ptr_eq(other, link));
        if all.is_empty() {
            // The stream of another primary may have smaller offsets.
            self.asked.store(0, Relaxed);
        }
    }

    pub fn all(&self) -> Vec<Arc<Link>> {
        self.all.lock().clone()
    }

    /// How many replicas have (`durably`: on their devices) the stream up to this offset.
    pub fn count_at(&self, offset: u64, durably: bool) -> usize {
        self.all.lock().iter().filter(|link| link.has(offset, durably)).count()
    }

    /// How many replicas have said something within this time.
    pub fn count_alive(&self, lag_ms_max: u64, now_ms: u64) -> usize {
        let is_alive = |link: &&Arc<Link>| link.phase() == Phase::Online && link.silent_ms(now_ms) <= lag_ms_max;
        self.all.lock().iter().filter(is_alive).count()
    }

    /// Waits until this many replicas have the stream up to this offset.
    pub fn poll_count(
        &self,
        client: u64,
        (offset, durably): (u64, bool),
        replicas: usize,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|other| other.client != client);
        // With the lock held, so that no answer comes in between.
        if self.count_at(offset, durably) >= replicas {
            return Poll::Ready(());
        }
        waiting.push(Waiting { client, offset, replicas, durably, waker: cx.waker().clone() });
        Poll::Pending
    }

    /// The client waits no more.
    pub fn forget(&self, client: u64) {
        self.waiting.lock().retain(|waiting| waiting.client != client);
    }

    /// A replica has said what it has: wakes those who waited for it.
    pub fn has_progress(&self) {
        let mut waiting = self.waiting.lock();
        let is_there = |waiting: &mut Waiting| self.count_at(waiting.offset, waiting.durably) >= waiting.replicas;
        let ready: Vec<Waiting> = waiting.extract_if(.., is_there).collect();
        drop(waiting);
        ready.into_iter().for_each(|waiting| waiting.waker.wake());
    }

    /// Whether a GETACK is needed, so that replicas report when they have this offset.
    pub fn must_ask(&self, offset: u64) -> bool {
        self.asked.load(Relaxed) < offset && !self.all.lock().is_empty()
    }

    /// A GETACK is in the stream, at this offset or behind it. Wakes the links, which send it at once.
    pub fn hurry(&self, asked: u64) {
        self.asked.fetch_max(asked, Relaxed);
        for link in &*self.all.lock() {
            if let Some(waker) = &*link.waker.lock() {
                waker.wake_by_ref();
            }
        }
    }

    /// Whether a GETACK comes behind this offset of the stream.
    pub fn hurries(&self, sent: u64) -> bool {
        let asked = self.asked.load(Relaxed);
        asked > 0 && asked >= sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn online(links: &Links, client: u64) -> Arc<Link> {
        let link = Arc::new(Link::new(client, "127.0.0.1".to_owned(), &Replica::default(), 1_000));
        link.set_phase(Phase::Online);
        links.add(Arc::clone(&link));
        link
    }

    #[test]
    fn those_who_wait_go_on_when_enough_replicas_have_their_offset() {
        let (links, wakes) = (Links::default(), Arc::new(Wakes::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = Context::from_waker(&waker);
        let (first, second) = (online(&links, 1), online(&links, 2));
        assert!(links.poll_count(7, (100, false), 2, &cx).is_pending());
        assert!(links.poll_count(8, (100, true), 1, &cx).is_pending());
        first.has_said(100, None, 2_000);
        links.has_progress();
        assert_eq!((wakes.0.load(Relaxed), links.count_at(100, false)), (0, 1));
        second.has_said(150, Some(99), 2_000);
        links.has_progress();
        assert_eq!((wakes.0.load(Relaxed), links.count_at(100, true)), (1, 0));
        assert!(links.poll_count(7, (100, false), 2, &cx).is_ready());
        second.has_said(150, Some(100), 2_000);
        links.has_progress();
        assert_eq!(wakes.0.load(Relaxed), 2);
        // A link that still gets its dump has nothing.
        second.set_phase(Phase::SendsDump);
        assert_eq!(links.count_at(100, false), 1);
        links.remove(&first);
        assert_eq!(links.count_at(0, false), 0);
    }

    #[test]
    fn replicas_are_asked_once_for_all_who_wait_before_the_question() {
        let links = Links::default();
        assert!(!links.must_ask(5), "there is nobody");
        let link = online(&links, 1);
        let wakes = Arc::new(Wakes::default());
        link.listen(&Waker::from(Arc::clone(&wakes)));
        assert!(links.must_ask(5) && !links.hurries(0));
        links.hurry(20);
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert!(!links.must_ask(20) && links.must_ask(21));
        assert!(links.hurries(20) && !links.hurries(21));
    }

    #[test]
    fn a_silent_replica_does_not_count() {
        let links = Links::default();
        let link = online(&links, 1);
        assert_eq!((links.count_alive(10_000, 11_000), links.count_alive(10_000, 11_001)), (1, 0));
        link.is_alive(11_001);
        assert_eq!(links.count_alive(10_000, 11_001), 1);
    }
}
