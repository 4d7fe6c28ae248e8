//! Tests of the whole node: the real binary in a process of its own, talked to over the network.
//!
//! This crate owns what the tests under `tests/` share: [`Node`] and [`Redis`] are processes that end with the test,
//! [`Client`] is a connection that shows every byte, [`Random`] makes a run that its seed replays.
//! It never knows how FlintKV works inside: it links nothing of it but the client's side of the protocol.
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

/// Longer than anything here takes on a busy machine; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tries again until it holds, for what happens a moment later in another process.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
