//! Owns what all tests share that start a node: the process, and a client that uses it over the network.
//!
//! [`Process`] is a node that ends with the test: the real binary ([`Node`]), or the test program itself for tests of
//! crates that the binary is made of. [`Redis`] is a real one, [`Client`] a connection that shows every byte, [`Random`]
//! is randomness that a seed replays. Never knows how FlintKV works inside: of its crates it links only the protocol's.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FLINTKV` | the binary to test; without it `cargo build -p flintkv` is asked for one |
//! | `FLINTKV_SEED` | replays a run; `random` draws one |
//! | `FLINTKV_TEST_SECONDS` | how long a random test goes on, see the crate `seeds` |
//! | `FLINTKV_DIFF_COMMANDS` | how many commands each part of the differential test takes, whatever the time |

mod client;
pub mod compare;
pub mod generator;
mod node;
pub mod power;
mod programs;
mod random;
mod redis;
mod watch;

pub use client::{Client, one_line, shown, words};
pub use node::{Binary, MANAGER, Node, Process, Program, resident_bytes, words_of_node};
pub use programs::{binary, free_port, is_installed, tool};
pub use random::{Random, number, seed};
pub use redis::Redis;
pub use watch::Watch;

use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine. Reaching it is a failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Retries until `holds` returns true, for effects that another process shows a moment later.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
