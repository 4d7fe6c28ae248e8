//! Owns what the tests of the whole node share: the real binary in a process of its own, used over the network.
//!
//! [`Node`] and [`Redis`] are processes that end with the test, [`Client`] is a connection that shows every byte,
//! [`Random`] is randomness that a seed replays. Never knows how FlintKV works inside: it links only the client's side
//! of the protocol.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FLINTKV` | the binary to test; without it `cargo build -p flintkv` is asked for one |
//! | `FLINTKV_SEED` | replays a run; `random` draws one |
//! | `FLINTKV_TEST_SECONDS` | how long a random test goes on, see the crate `seeds` |
//! | `FLINTKV_DIFF_COMMANDS` | how many commands each part of the differential test takes, whatever the time |

mod client;
mod node;
mod random;

pub use client::{Client, shown, words};
pub use node::{Node, Redis, binary, free_port, resident_bytes, tool};
pub use random::{Random, number, seed};

use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine. Reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Retries until `holds` returns true, for effects that another process shows a moment later.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
