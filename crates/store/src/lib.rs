//! The tiered store. Knows no sockets and no RESP.
pub mod arena;
pub mod hash;
pub mod index;
pub mod io;
pub mod word;
