//! Owns places between the entries of a sorted set. Never knows in what form the set is.

use std::cmp::Ordering;

/// Which side of the entries that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// A place in the order: a range lies between two of them.
#[derive(Clone, Copy, Debug)]
pub enum Edge<'a> {
    /// Beside all entries of a score.
    Score(f64, Side),
    /// Beside an entry, or where it would be.
    Entry(f64, &'a [u8], Side),
    /// Beside a member in a set whose scores are all the same.
    Member(&'a [u8], Side),
}

impl Edge<'_> {
    pub const START: Edge<'static> = Edge::Score(f64::NEG_INFINITY, Side::Before);
    pub const END: Edge<'static> = Edge::Score(f64::INFINITY, Side::After);

    /// Whether the entry stands before this place.
    #[inline]
    pub fn is_after(&self, score: f64, member: &[u8]) -> bool {
        let (order, side) = match *self {
            Edge::Score(at, side) => (compare(score, at), side),
            Edge::Entry(at, name, side) => (compare(score, at).then_with(|| member.cmp(name)), side),
            Edge::Member(name, side) => (member.cmp(name), side),
        };
        order == Ordering::Less || order == Ordering::Equal && side == Side::After
    }

    /// Whether this place lies beyond the start of entries whose scores are at least `least`, where all entries before
    /// them have at most that. `None`: their first entry must be looked at.
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

/// No score is NaN; the zeros are equal.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}
