//! Owns the commands on sorted sets. Never knows other types, except to refuse them and to take sets as sources.

mod algebra;
mod basic;
pub(crate) mod form;
mod pop;
mod range;

pub use algebra::ROWS as ALGEBRA;
pub use basic::ROWS as BASIC;
pub(crate) use basic::{Rule, put};
pub use pop::ROWS as POPS;
pub use range::ROWS as RANGES;

use crate::row::{Flag, Group, Row};

const READ: &[Flag] = &[Flag::Readonly];
const READ_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const WRITE: &[Flag] = &[Flag::Write];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

const BASE: Row = Row { group: Group::SortedSet, since: "2.0.0", complexity: "O(log(N))", ..Row::BASE };
