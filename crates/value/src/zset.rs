//! Owns the sorted set type: members with scores, in the order of score and then member. Never knows keys, settings
//! or replies.
//!
//! A small one is *packed*, a [`run`] of bytes; a large one is a [`Tree`] whose leaves are such runs. Which is which is
//! the settings' choice, so it is the commands that convert. [`View`] reads either.

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
