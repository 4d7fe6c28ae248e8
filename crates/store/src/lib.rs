//! The tiered store: what is hot in RAM, everything else on flash, one 16-byte index entry per key either way.
//!
//! In reading order: [`hash`] (what a key is reduced to), [`word`] and [`index`] (the entry and the table of entries),
//! [`object`] and [`arena`] (values in RAM), [`store`] and [`keyspace`] (stripes, and what a handler sees of them),
//! `guards` (how stripes are locked), `direct` (a read under the lock), `watch` (WATCH's memory), [`wait`] (who is
//! blocked), [`listen`] (what is said of keys), `commit` (the point that every change passes), [`effects`] (how changes are
//! repeated), [`page`] (the format on flash), [`segment`] (the log), [`resize`] (its size), `tier` and `hand`
//! (what leaves RAM when), `parts` (large values), `chill` (all of it, for testing), `deadlines` (fields that expire), [`digest`] (whether two datasets are the same),
//! [`lane`] with `fill` and `collect` (a worker's flash I/O), [`stats`] and `census` (what is counted, and how many keys there
//! are). The words in which I/O is asked for are `flash::io`'s.
//!
//! Knows no sockets, no RESP and no clock: time arrives as an argument, I/O leaves as a value.

pub mod arena;
mod census;
mod chill;
mod collect;
mod commit;
mod compression;
mod config;
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
pub mod keyspace;
pub mod lane;
pub mod listen;
pub mod object;
pub mod page;
mod parts;
mod read;
mod record_kind;
pub mod resize;
pub mod segment;
pub mod stats;
pub mod store;
mod stripe;
mod tier;
pub mod wait;
mod watch;
pub mod word;

pub use census::{Census, KeyCounts};
pub use config::{FlashConfig, LimitOf, Policy, StoreConfig};
pub use effects::{Effect, Effects, Why};
pub use guards::Held;
pub use hash::{Hasher, Key, KeyHash};
pub use keyspace::{
    Cold, ColdRead, Inspect, Keyspace, NOTHING, NoEdit, Peek, Resume, Value, ValueMut, Visited, Visitor, Want, Watches,
};
pub use lane::{Lane, Maintain, Ticket};
pub use listen::{Class, Listener};
pub use page::Codec;
pub use read::ReadError;
pub use resize::{Progress, ResizeError};
pub use stats::StoreStats;
pub use store::Store;
pub use tier::Admission;
pub use value::Kind;
pub use wait::{Ready, Wants};
