//! Owns what a trace is. Never knows a policy.

mod capture;
mod gaussian;
mod moving;
mod recent;
mod zipf;

pub use capture::Capture;
pub use gaussian::{Published, Scan};
pub use moving::Moving;
pub use recent::Recent;
pub use zipf::Zipf;

use crate::replacement::{Key, Replacement, Setup};

/// Makes the policy that a trace runs on, without any value in RAM.
pub type NewPolicy<'a> = &'a dyn Fn(Setup) -> Box<dyn Replacement>;

/// Accesses to values, and what is measured meanwhile.
pub trait Trace {
    fn title(&self) -> String;

    /// What is measured.
    fn columns(&self) -> Vec<String>;

    /// All keys, the most likely one first, if the probabilities of accesses are always the same.
    fn ranking(&self) -> Option<Vec<Key>> {
        None
    }

    /// Runs the trace on one policy. The shares that are measured, 0 to 1, by column.
    fn measure(&self, new_policy: NewPolicy) -> Vec<f64>;
}
