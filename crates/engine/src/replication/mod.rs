//! Owns what replicas are told (the stream of all effects, and its newest bytes), and who they are. Never knows a socket's address, a dump, or who decides
//! which database follows which.

mod backlog;
mod boot_clock;
mod links;
mod order;
mod pace;
mod serving;
mod stream;

pub use backlog::Gone;
pub use boot_clock::BootClock;
pub use journal::{Id, Mark};
pub use links::{Link, Links, Phase};
pub use order::{Contents, Dump, Order};
pub use pace::Pace;
pub use serving::{Seen, Serving};
pub use stream::{Stream, new_id};
