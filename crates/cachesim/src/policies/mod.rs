//! Owns the table of policies. Never knows a trace.

mod clock;
mod ideal;
mod lru;
mod s3_fifo;
mod second_access;
mod w_tiny_lfu;

pub use clock::Clock;
pub use ideal::Ideal;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use second_access::SecondAccess;
pub use w_tiny_lfu::WTinyLfu;

use crate::replacement::{Replacement, Setup};

/// Makes a policy.
pub type Make = fn(Setup) -> Box<dyn Replacement>;

/// All policies that learn only from accesses, by name.
pub const POLICIES: [(&str, Make); 5] = [
    ("LRU", |setup| Box::new(Lru::new(setup))),
    ("CLOCK, 2 bits", |setup| Box::new(Clock::new(setup))),
    ("S3-FIFO", |setup| Box::new(S3Fifo::new(setup))),
    ("W-TinyLFU", |setup| Box::new(WTinyLfu::new(setup))),
    ("CLOCK, second access", |setup| Box::new(SecondAccess::new(setup))),
];
