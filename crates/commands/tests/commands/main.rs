//! The commands without a server: handlers over a store, rows, docs. All files are one program, because linking each
//! file by itself took longer than running it.

mod claims;
mod differential;
mod digest;
mod docs;
mod dump;
mod effects;
mod errors;
mod examples;
mod handlers;
mod harness;
mod pair;
mod parts;
mod proof;
mod snapshot;
mod table;
