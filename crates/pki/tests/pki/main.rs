//! Certificates, join tokens and mutual TLS, over connections in memory.

mod common;
mod files;
mod join;
mod links;
mod mutations;
mod secrets;
