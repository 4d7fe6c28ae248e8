//! The commands without a server: handlers over a store, run by the engine's `execute` as they run for clients. All files are one
//! program, because linking each file by itself took longer than running it.

mod claims;
mod differential;
mod digest;
mod docs;
mod dump;
mod effects;
mod examples;
mod handlers;
mod harness;
mod pair;
mod parts;
mod proof;
mod snapshot;
