//! Owns the data in RAM: the hash of a key ([`hash`]), the entry and the table of entries ([`word`], [`index`]), the memory of the table's
//! leaves (`leaf_memory`) and when they are moved together (`compaction`), values ([`object`], [`arena`]), the RAM limit (`tier`), the memory
//! lent to clients (`lend`), the states of a cleaning and of a pass that drops copies (`cleaning`, `copies`), and hints of deadlines inside values (`deadlines`).
//! Never knows flash, stripes or the store.

pub mod arena;
pub(crate) mod cleaning;
pub(crate) mod compaction;
pub(crate) mod copies;
pub(crate) mod deadlines;
pub mod hash;
pub mod index;
pub(crate) mod leaf_memory;
pub(crate) mod lend;
pub mod object;
pub(crate) mod tier;
pub mod word;
