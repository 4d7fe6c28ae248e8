//! Owns what is in RAM: what a key is reduced to ([`hash`]), the entry and the table of entries ([`word`], [`index`]), values
//! ([`object`], [`arena`]), how much of all that there may be (`tier`), and hints of what expires inside values (`deadlines`).
//! Never knows flash, stripes or the store.

pub mod arena;
pub(crate) mod deadlines;
pub mod hash;
pub mod index;
pub mod object;
pub(crate) mod tier;
pub mod word;
