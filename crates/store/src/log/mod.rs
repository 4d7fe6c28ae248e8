//! Owns the log on flash: the format ([`page`], `record_kind`, `parts`), the places of pages and the counts of live records
//! ([`segment`], [`resize`]), how records become units (`fill`, `compression`), the order of versions (`sequence`), a collection's state (`collect`), errors of reads (`read`),
//! which pages are read together (`run`), buffers (`page_bufs`).
//! Never knows an entry, a stripe or the store, and does no I/O.

pub(crate) mod collect;
pub(crate) mod compression;
pub(crate) mod fill;
pub mod page;
pub(crate) mod page_bufs;
pub(crate) mod parts;
pub(crate) mod read;
pub(crate) mod record_kind;
pub mod resize;
pub(crate) mod run;
pub mod segment;
pub(crate) mod sequence;
