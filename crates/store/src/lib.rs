//! The tiered store: hot values in RAM, all other values on flash. Each key has one 16-byte index entry in either case.
//!
//! Each layer imports only the layers before it (`tests/layers.rs`); all of them may use `narrow`, the casts to narrower integers:
//!
//! 1. [`effects`]: the commands that repeat changes;
//! 2. [`mem`]: the index, values in RAM, the RAM limit; [`counters`]: event counters;
//! 3. [`log`]: the format on flash, segments, filling, collecting, resizing;
//! 4. `stripe`: the tables and their locks, watched keys, blocked clients, the number of keys; [`event_sinks`]: events of keys;
//! 5. [`store`]: owns all of these, and forwards to them; `config`: the settings of a store;
//! 6. [`keyspace`]: a handler's view of locked stripes, and the point that every change passes; [`snapshot`]: the dataset at one moment;
//! 7. [`lane`]: a worker's flash I/O and maintenance; [`stats`]: the figures of the store; [`digest`]: the digest of the dataset.
//!
//! `flash::io` defines the operations of I/O.
//! Knows no sockets, no RESP and no clock: the time is an argument, and I/O is returned as a value.

// A length, an offset or a hash that loses its upper bits is a wrong value that nobody notices.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod checkpoint_index;
mod config;
pub mod counters;
pub mod digest;
pub mod effects;
pub mod event_sinks;
pub mod keyspace;
pub mod lane;
pub mod log;
pub mod mem;
mod narrow;
pub mod page_import;
pub mod salvage;
pub mod snapshot;
pub mod stats;
pub mod store;
mod stripe;

pub use base::events::Class;
pub use base::{Codec, Policy};
pub use checkpoint_index::{Adding, CheckpointIndex, Restoring, Unsuitable, key_in_parts};
pub use config::{FlashConfig, StoreConfig};

pub use effects::{ChangeLog, Effect, Effects, Sent, Why};
pub use event_sinks::Listener;
pub use keyspace::guards::{Held, NotHeld, Reach};
pub use keyspace::{
    Cold, ColdRead, Inspect, Keyspace, NOTHING, NoEdit, Peek, Resume, Show, Value, ValueMut, Visited, Visitor, Want,
    Watches, cursor_of_stripe, stripe_of_cursor,
};
pub use lane::{Lane, Maintain, Ticket};
pub use log::read::ReadError;
pub use log::resize::{Progress, ResizeError};

pub use mem::hash::{Hasher, Key, KeyHash, STRIPES};
pub use mem::lend::lent_and_room_max;
pub use mem::tier::{Admission, LimitOf};
pub use page_import::{PageImport, Refusal};
pub use salvage::{Salvage, Salvaged, SegmentAt};
pub use snapshot::{CheckpointPart, DumpError, Dumper, PartReader, Places, Snapshot, Spill};
pub use stats::StoreStats;
pub use store::Store;
pub use stripe::census::{Census, KeyCounts};
pub use stripe::wait::{Ready, Wants};
pub use value::Kind;
