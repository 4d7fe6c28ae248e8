//! A server of its own for each test, spoken to over sockets. One program: linking each file by itself took longer than
//! running it.

mod acl;
mod all_cold;
mod blocking;
mod clients;
mod common;
mod config;
mod databases;
mod digest;
mod effects;
mod errors;
mod examples;
mod executor;
mod lifecycle;
mod migrate;
mod news;
mod parts;
mod protocol;
mod pubsub;
mod resize;
mod scripts;
mod tls;
mod transactions;
