//! Owns a TCP proxy between two nodes whose connections break: after any number of bytes, in either direction, with a reset or without,
//! after a delay; and which delivers bytes long after their connection has ended. Never knows what the bytes mean.
//!
//! A connection's fate is drawn from the seed when it is accepted. Until [`Cutter::begin`] all of them are passed on.

use crate::Random;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a thread that waits for bytes looks at its connection's state.
const LOOK: Duration = Duration::from_millis(20);
const CHUNK_BYTES: usize = 16 << 10;
/// Most cuts come before this many bytes: handshakes, and a few frames of each kind.
const NEAR_BYTES: usize = 8 << 10;
const FAR_BYTES: usize = 2 << 20;
/// Longer than the silence after which a link ends.
const STALL_MS_MAX: usize = 7000;

pub struct Cutter {
    at: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    seed: AtomicU64,
    cuts: AtomicBool,
    is_over: AtomicBool,
    accepted: AtomicU64,
    broken: AtomicU64,
    /// A connection's two threads keep it: its sockets are closed when both have ended.
    live: Mutex<Vec<Weak<Connection>>>,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    /// After so many bytes of one direction, all ends. What was read before is passed on.
    Cut {
        to_owner: bool,
        after: usize,
        resets: bool,
    },
    /// The same, and every piece comes late.
    Slow {
        to_owner: bool,
        after: usize,
        pause_us: u64,
    },
    /// After so many bytes, nothing more arrives in this direction for a while.
    Stall {
        to_owner: bool,
        after: usize,
        time_ms: u64,
    },
    /// For who has connected, the connection ends after so many bytes. What it has sent by then, and what follows, arrives later.
    Late {
        after: usize,
        time_ms: u64,
    },
}

struct Connection {
    fate: Fate,
    opener: TcpStream,
    owner: TcpStream,
    /// Both directions are over.
    is_cut: AtomicBool,
    resets: AtomicBool,
    /// Everything to the owner waits, from an order of the test; and everything to who has connected.
    is_held: AtomicBool,
    is_held_back: AtomicBool,
}

impl Cutter {
    /// Listens at `at` for connections to `to`.
    pub fn start(at: (&str, u16), to: (&str, u16)) -> Cutter {
        let listener = TcpListener::bind(at).expect("the address is free");
        let at = listener.local_addr().expect("an address");
        let to: SocketAddr = format!("{}:{}", to.0, to.1).parse().expect("an address");
        let shared = Arc::new(Shared {
            seed: AtomicU64::new(0),
            cuts: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            live: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, to, &of_thread));
        Cutter { at, shared, acceptor: Some(acceptor) }
    }

    /// From now on connections break, also those that are there.
    pub fn begin(&self, seed: u64) {
        self.shared.seed.store(seed, Relaxed);
        self.shared.cuts.store(true, Relaxed);
        self.cut_all();
    }

    /// New connections are passed on, and those that are there end.
    pub fn end(&self) {
        self.shared.cuts.store(false, Relaxed);
        self.cut_all();
    }

    pub fn cut_all(&self) {
        self.live().iter().for_each(|connection| connection.cut(true));
    }

    /// Connections that were broken.
    pub fn broken(&self) -> u64 {
        self.shared.broken.load(Relaxed)
    }

    /// What comes for the owner on the connections of now is kept from now on.
    pub fn hold(&self) -> Held {
        let held = Held(self.live());
        held.0.iter().for_each(|connection| connection.is_held.store(true, Relaxed));
        held
    }

    /// Nothing arrives on the connections of now any more, in both directions. [`Cutter::cut_all`] drops it.
    pub fn hold_both(&self) {
        self.hold().0.iter().for_each(|connection| connection.is_held_back.store(true, Relaxed));
    }

    fn live(&self) -> Vec<Arc<Connection>> {
        let live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        self.cut_all();
        // Wakes the acceptor.
        drop(TcpStream::connect(self.at));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Connections whose bytes to the owner wait.
pub struct Held(Vec<Arc<Connection>>);

impl Held {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Ends the connections for those who have opened them, and only for these.
    pub fn cut_openers(&self) {
        for connection in &self.0 {
            let _ = connection.opener.shutdown(Shutdown::Both);
        }
    }

    /// The bytes arrive now.
    pub fn deliver(&self) {
        self.0.iter().for_each(|connection| connection.is_held.store(false, Relaxed));
    }

    /// Whether the owner has ended all of them.
    pub fn are_over(&self) -> bool {
        self.0.iter().all(|connection| connection.is_cut.load(Relaxed))
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, shared: &Arc<Shared>) {
    for opener in listener.incoming() {
        if shared.is_over.load(Relaxed) {
            return;
        }
        let (Ok(opener), Ok(owner)) = (opener, TcpStream::connect(to)) else { continue };
        let number = shared.accepted.fetch_add(1, Relaxed);
        let fate = match shared.cuts.load(Relaxed) {
            true => draw(&mut Random::new(shared.seed.load(Relaxed).wrapping_add(number.wrapping_mul(0x9e37_79b9)))),
            false => Fate::Pass,
        };
        for stream in [&opener, &owner] {
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(LOOK)).expect("a socket");
            stream.set_write_timeout(Some(LOOK)).expect("a socket");
        }
        let connection = Arc::new(Connection {
            fate,
            opener,
            owner,
            is_cut: AtomicBool::new(false),
            resets: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            is_held_back: AtomicBool::new(false),
        });
        let mut live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|connection| connection.strong_count() > 0);
        live.push(Arc::downgrade(&connection));
        drop(live);
        for to_owner in [true, false] {
            let (connection, shared) = (Arc::clone(&connection), Arc::clone(shared));
            thread::spawn(move || {
                if connection.pass(to_owner) {
                    shared.broken.fetch_add(1, Relaxed);
                }
            });
        }
    }
}

fn draw(random: &mut Random) -> Fate {
    let after = match random.below(4) {
        0 => 1 << random.below(FAR_BYTES.ilog2() as usize),
        _ => random.below(NEAR_BYTES),
    };
    let to_owner = random.one_in(2);
    match random.below(20) {
        0 => Fate::Stall { to_owner, after, time_ms: random.below(STALL_MS_MAX) as u64 },
        1..=2 => Fate::Slow { to_owner, after, pause_us: random.below(3000) as u64 },
        3..=6 => Fate::Late { after, time_ms: random.below(1000) as u64 },
        _ => Fate::Cut { to_owner, after, resets: random.one_in(2) },
    }
}

impl Connection {
    fn is_held_in(&self, to_owner: bool) -> bool {
        if to_owner { self.is_held.load(Relaxed) } else { self.is_held_back.load(Relaxed) }
    }

    fn cut(&self, resets: bool) {
        self.resets.fetch_or(resets, Relaxed);
        self.is_cut.store(true, Relaxed);
        // Wakes who reads. What the other end sees comes when both threads have ended.
        let _ = self.opener.shutdown(Shutdown::Read);
        let _ = self.owner.shutdown(Shutdown::Read);
    }

    /// Passes one direction on until it ends. True: the connection's fate has broken it here.
    fn pass(&self, to_owner: bool) -> bool {
        let (mut from, mut to) = if to_owner { (&self.opener, &self.owner) } else { (&self.owner, &self.opener) };
        let mut fate = self.fate;
        let mut is_broken = false;
        let (mut passed, mut until) = (0, None::<Instant>);
        let mut waiting = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut is_at_end = false;
        loop {
            if self.is_cut.load(Relaxed) {
                break;
            }
            // The bytes that are left before the fate comes.
            let room = match fate {
                Fate::Cut { to_owner: of, after, .. } | Fate::Slow { to_owner: of, after, .. } if of == to_owner => {
                    after - passed
                }
                Fate::Stall { to_owner: of, after, .. } if of == to_owner => after - passed,
                Fate::Late { after, .. } if to_owner => after - passed,
                _ => usize::MAX,
            };
            if room == 0 {
                is_broken = true;
                fate = match fate {
                    Fate::Stall { to_owner, after, time_ms } => {
                        until = Some(Instant::now() + Duration::from_millis(time_ms));
                        Fate::Cut { to_owner, after: 2 * after + 1, resets: false }
                    }
                    Fate::Late { time_ms, .. } => {
                        until = Some(Instant::now() + Duration::from_millis(time_ms));
                        // What it sends until it notices is still taken.
                        let _ = self.opener.shutdown(Shutdown::Write);
                        Fate::Pass
                    }
                    Fate::Cut { resets, .. } => {
                        self.cut(resets);
                        break;
                    }
                    Fate::Slow { .. } | Fate::Pass => {
                        self.cut(false);
                        break;
                    }
                };
                continue;
            }
            if !is_at_end {
                match from.read(&mut chunk[..CHUNK_BYTES.min(room)]) {
                    Ok(0) => is_at_end = true,
                    Ok(bytes) => {
                        waiting.extend_from_slice(&chunk[..bytes]);
                        passed += bytes;
                    }
                    Err(error) if is_pause(&error) => {}
                    Err(_) => is_at_end = true,
                }
            } else if waiting.is_empty() {
                break;
            } else {
                thread::sleep(LOOK / 10);
            }
            if until.is_some_and(|until| Instant::now() < until) || self.is_held_in(to_owner) {
                continue;
            }
            if let Fate::Slow { pause_us, .. } = fate {
                thread::sleep(Duration::from_micros(pause_us));
            }
            while !waiting.is_empty() && !self.is_cut.load(Relaxed) {
                match to.write(&waiting) {
                    Ok(bytes) => drop(waiting.drain(..bytes)),
                    Err(error) if is_pause(&error) => {}
                    // Nobody is there any more.
                    Err(_) => {
                        waiting.clear();
                        is_at_end = true;
                    }
                }
            }
        }
        // The opener's end of its direction lets the owner still reply: only the owner's end, and a cut, end both.
        if to_owner && !self.is_cut.load(Relaxed) {
            let _ = self.owner.shutdown(Shutdown::Write);
        } else {
            self.is_cut.store(true, Relaxed);
            let _ = self.opener.shutdown(Shutdown::Read);
            if self.resets.load(Relaxed) {
                for stream in [&self.opener, &self.owner] {
                    let _ = set_socket_linger(stream, Some(Duration::ZERO));
                }
            }
            let _ = self.owner.shutdown(Shutdown::Both);
            if !self.resets.load(Relaxed) {
                let _ = self.opener.shutdown(Shutdown::Both);
            }
        }
        is_broken
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
