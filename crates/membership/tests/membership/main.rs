//! Membership with real etcd and real sockets, in processes and threads that end with their tests.

mod authority;
mod coordinator;
mod links;
