//! Owns the common parts of all tests that start a node: the process, and a client that uses it over the network.
//!
//! [`Process`] is a node that ends with the test: the real binary ([`Node`]), or the test program itself, for tests of
//! the crates in the binary. [`Redis`] is a real redis-server, [`Client`] a connection that shows every byte, [`Random`]
//! a random generator that a seed replays. Never knows how FlintKV works inside: of FlintKV's crates it links only the
//! one of the protocol.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FLINTKV` | the binary to test; without it, `cargo build -p flintkv` builds one |
//! | `FLINTKV_SEED` | replays a run; `random` draws one |
//! | `FLINTKV_TEST_SECONDS` | how long a random test goes on, see the crate `seeds` |
//! | `FLINTKV_DIFF_COMMANDS` | how many commands each part of the differential test takes, whatever the time |

mod client;
pub mod cluster;
pub mod compare;
pub mod cutter;
pub mod generator;
mod node;
pub mod power;
mod programs;
mod random;
mod redis;
pub mod sharded;
mod watch;

pub use client::{Client, one_line, shown, words};
pub use node::{Binary, MANAGER, Node, Process, Program, resident_bytes, words_of_node};
pub use programs::{binary, free_port, is_installed, set_binary, tool};
pub use random::{Random, number, seed};
pub use redis::Redis;
pub use watch::Watch;

use std::time::{Duration, Instant};

/// The time limit of a step, longer than any step takes on a busy machine. Reaching it is a failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Retries until `holds` returns true, for effects of another process that are visible only after a moment.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
