//! Coordination, by the twin and by real etcd: Debian's etcd-server, in processes that the tests start and end.

mod cluster;
mod common;
mod etcd;
mod operator;
mod random;
mod suite;
mod twin;
