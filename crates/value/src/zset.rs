//! Owns the sorted set type: members with scores, in the order of score and then member. Never knows keys, settings
//! or replies.
//!
//! A small sorted set is *packed* into one [`run`] of bytes. A large one is a [`Tree`] whose leaves are such runs.
//! Settings decide between the forms, so the commands convert. [`View`] reads both.

mod edge;
mod index;
mod inner;
pub mod run;
mod tree;
mod view;

pub use crate::tagged::Step;
pub use edge::{Edge, Side};
pub use tree::Tree;
pub use view::{Range, View};
