//! Owns what replicas are told: the stream of all effects, and its newest bytes. Never knows a socket's address, a dump, or who decides
//! which database follows which.

mod backlog;
mod stream;

pub use backlog::Gone;
pub use journal::{Id, Mark};
pub use stream::{Stream, new_id};
