//! Owns backups of databases: where they are, how one is made of a running database, and how one becomes a new database.
//! Never knows how a dump is written or loaded.
//!
//! ```text
//! backup-path/orders/20261123-011105/     a backup
//!   dump.rdb                              the dataset at one moment, as SAVE writes it
//!   backup.json                           what it is: see `card`
//! backup-path/orders/journal/             the changes between backups: see `archive`
//! backup-path/orders/.20261123-011105.orders.part    one that is being written
//! ```
//!
//! - `card` is the description of a backup, `place` the directories that backups may have.
//! - `make` writes one, and reads it back; `verify` reads one; `scrub` reads all of them now and then.
//! - `schedule` decides when the node makes one by itself, and which old ones go.
//! - `archive` keeps the journal beside the backups, and `point_in_time` finds what of it a moment needs.
//! - `restore` gives a new database the dataset of a backup, or of a moment behind one.

mod archive;
mod card;
mod make;
mod place;
mod point_in_time;
mod restore;
mod schedule;
mod scrub;
mod verify;

pub use card::{list, read};
pub use make::WantedBackup;
pub use place::below;
pub use point_in_time::reaches_ms;
pub use restore::{Restore, Target, mark};
pub use schedule::remove;
pub use scrub::check;
