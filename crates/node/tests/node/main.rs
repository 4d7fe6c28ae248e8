//! Each test starts its own node and talks to it over sockets. All files are one program, because linking each file
//! took longer than running it.

mod acl;
mod all_cold;
mod answers;
mod backup;
mod blocking;
mod checks;
mod clients;
mod common;
mod config;
mod databases;
mod digest;
mod effects;
mod errors;
mod examples;
mod executor;
mod files;
mod gate;
mod kept_flash;
mod last_base;
mod lifecycle;
mod migrate;
mod moments;
mod news;
mod parts;
mod persist;
mod protocol;
mod pubsub;
mod replica;
mod replica_faults;
mod resize;
mod scripts;
mod scrub;
mod tls;
mod transactions;
mod waitaof;
