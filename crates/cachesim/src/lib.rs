//! Owns the simulator of RAM hit ratios: replacement policies, and traces that run on them. Never knows the store, bytes, or time: all values
//! have the same size, keys are numbers, and a value moves between RAM and flash at once.
//!
//! - `replacement` says what a policy is; `policies` has one file for each, and the table of all.
//! - `traces` has one file for each kind of trace; `run` feeds a policy and counts hits.
//! - `results` runs a trace on every policy.
//! - `lists`, `sketch` and `hand` are parts of several policies.

#![forbid(unsafe_code)]

mod hand;
mod lists;
pub mod policies;
mod replacement;
mod results;
mod run;
mod sketch;
pub mod traces;

pub use replacement::{Key, Replacement, Setup};
pub use results::{Results, simulate};
