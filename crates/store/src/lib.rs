//! The tiered store: what is hot in RAM, everything else on flash, one 16-byte index entry per key either way.
//!
//! Imports point one way, from each of these layers to those before it (`tests/layers.rs`):
//!
//! 1. [`effects`] (how changes are repeated);
//! 2. [`mem`]: the index, values in RAM, the RAM limit; [`counters`] (what is counted);
//! 3. [`log`]: the format on flash, segments, filling, collecting, resizing;
//! 4. `stripe` (the tables and their locks; who watches, who waits, how many keys), [`listen`] (what is said of keys);
//! 5. [`store`]: owns all of these, and forwards to them; `config` (what it is opened with);
//! 6. [`keyspace`]: what a handler sees of locked stripes, and the point that every change passes; [`digest`] goes over it all;
//! 7. [`lane`]: a worker's flash I/O and upkeep; [`stats`]: the figures of everything.
//!
//! The words in which I/O is asked for are `flash::io`'s.
//! Knows no sockets, no RESP and no clock: time arrives as an argument, I/O leaves as a value.

mod config;
pub mod counters;
pub mod digest;
pub mod effects;
pub mod keyspace;
pub mod lane;
pub mod listen;
pub mod log;
pub mod mem;
pub mod stats;
pub mod store;
mod stripe;

pub use base::events::Class;
pub use base::{Codec, Policy};
pub use config::{FlashConfig, StoreConfig};
pub use effects::{Effect, Effects, Why};
pub use keyspace::guards::Held;
pub use keyspace::{
    Cold, ColdRead, Inspect, Keyspace, NOTHING, NoEdit, Peek, Resume, Value, ValueMut, Visited, Visitor, Want, Watches,
};
pub use lane::{Lane, Maintain, Ticket};
pub use listen::Listener;
pub use log::read::ReadError;
pub use log::resize::{Progress, ResizeError};
pub use mem::hash::{Hasher, Key, KeyHash};
pub use mem::tier::{Admission, LimitOf};
pub use stats::StoreStats;
pub use store::Store;
pub use stripe::census::{Census, KeyCounts};
pub use stripe::wait::{Ready, Wants};
pub use value::Kind;
