//! Owns the log on flash: the format ([`page`], `record_kind`, `parts`), where pages lie and what in them is live ([`segment`],
//! [`resize`]), how records become units (`fill`, `compression`), what a collection knows (`collect`), how a read ends (`read`).
//! Never knows an entry, a stripe or the store, and does no I/O.

pub(crate) mod collect;
pub(crate) mod compression;
pub(crate) mod fill;
pub mod page;
pub(crate) mod parts;
pub(crate) mod read;
pub(crate) mod record_kind;
pub mod resize;
pub mod segment;
