//! The tiered store. Knows no sockets and no RESP.
pub mod io;
