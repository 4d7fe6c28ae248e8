//! Owns positions between the entries of a sorted set. Never knows in which form the set is.

use std::cmp::Ordering;

/// Before or after the matching entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// A position in the order. A range lies between two edges.
#[derive(Clone, Copy, Debug)]
pub enum Edge<'a> {
    /// Before or after all entries with a score.
    Score(f64, Side),
    /// Before or after an entry, or where the entry would be.
    Entry(f64, &'a [u8], Side),
    /// Before or after a member, in a set whose scores are all the same.
    Member(&'a [u8], Side),
}

impl Edge<'_> {
    pub const START: Edge<'static> = Edge::Score(f64::NEG_INFINITY, Side::Before);
    pub const END: Edge<'static> = Edge::Score(f64::INFINITY, Side::After);

    /// Whether the entry is before this edge.
    #[inline]
    pub fn is_after(&self, score: f64, member: &[u8]) -> bool {
        let (order, side) = match *self {
            Edge::Score(at, side) => (compare(score, at), side),
            Edge::Entry(at, name, side) => (compare(score, at).then_with(|| member.cmp(name)), side),
            Edge::Member(name, side) => (member.cmp(name), side),
        };
        order == Ordering::Less || order == Ordering::Equal && side == Side::After
    }

    /// Whether this edge is after the start of entries whose scores are at least `least`, where all entries before them
    /// have at most that score. `None`: only a look at their first entry can tell.
    #[inline]
    pub(super) fn is_beyond(&self, least: f64) -> Option<bool> {
        match *self {
            Edge::Score(at, Side::Before) => Some(least < at),
            Edge::Score(at, Side::After) => Some(least <= at),
            Edge::Entry(at, ..) if least != at => Some(least < at),
            Edge::Entry(..) | Edge::Member(..) => None,
        }
    }
}

/// No score is NaN, and the two zeros are equal.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}
