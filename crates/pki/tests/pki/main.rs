//! Certificates and mutual TLS, over connections in memory.

mod common;
mod files;
mod links;
