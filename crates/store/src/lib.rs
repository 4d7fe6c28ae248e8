//! The tiered store: what is hot in RAM, everything else on flash, one 16-byte index entry per key either way.
//!
//! In reading order: [`hash`] (what a key is reduced to), [`word`] and [`index`] (the entry and the table of entries),
//! [`object`] and [`arena`] (values in RAM), [`store`] and [`keyspace`] (stripes, and what a handler sees of them),
//! `guards` (how stripes are locked), `direct` (a read under the lock), `watch` (WATCH's memory), [`wait`] (who is
//! blocked), [`listen`] (what is said of keys), `commit` (the point that every change passes), [`effects`] (how changes are
//! repeated), [`page`] (the format on flash), [`segment`] (the log), [`resize`] (its size), `tier` and `hand`
//! (what leaves RAM when), `parts` (large values), `chill` (all of it, for testing), `deadlines` (fields that expire), [`digest`] (whether two datasets are the same),
//! [`lane`] with `fill` and `collect` (a worker's flash I/O), [`io`] (the words spoken with the drivers), [`stats`] and `census`
//! (what is counted, and how many keys there are).
//!
//! Knows no sockets, no RESP and no clock: time arrives as an argument, I/O leaves as a value.

pub mod arena;
mod census;
mod chill;
mod collect;
mod commit;
pub mod counters;
mod deadlines;
pub mod digest;
mod direct;
pub mod effects;
mod fill;
mod guards;
mod hand;
pub mod hash;
pub mod index;
pub mod io;
pub mod keyspace;
pub mod lane;
pub mod listen;
pub mod object;
pub mod page;
mod parts;
pub mod resize;
pub mod segment;
pub mod stats;
pub mod store;
mod tier;
pub mod wait;
mod watch;
pub mod word;

pub use base::events::Class;
pub use base::{Codec, Policy};
pub use census::{Census, KeyCounts};
pub use effects::{Effect, Effects, Why};
pub use hash::{Hasher, Key, KeyHash};
pub use keyspace::{
    Cold, ColdRead, Inspect, Keyspace, NOTHING, NoEdit, Peek, Resume, Value, ValueMut, Visited, Visitor, Want,
};
pub use lane::{Lane, Maintain, ReadError, Ticket};
pub use listen::Listener;
pub use resize::{Progress, ResizeError};
pub use stats::StoreStats;
pub use store::{FlashConfig, LimitOf, Store, StoreConfig};
pub use tier::Admission;
pub use value::Kind;
pub use wait::{Ready, Wants};
pub use watch::Watches;
