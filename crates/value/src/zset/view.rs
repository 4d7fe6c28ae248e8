//! Owns the reading of a sorted set in either form. Never changes one.

use super::edge::Edge;
use super::run;
use super::tree::Tree;

#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// The packed form.
    Run(&'a [u8]),
    Tree(&'a Tree),
}

impl<'a> View<'a> {
    pub fn len(self) -> usize {
        match self {
            View::Run(bytes) => run::len(bytes),
            View::Tree(tree) => tree.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            View::Run(bytes) => run::find(bytes, member).map(|place| place.score),
            View::Tree(tree) => tree.score(member),
        }
    }

    /// How many entries are before the edge.
    pub fn rank(self, edge: &Edge<'_>) -> usize {
        match self {
            View::Run(bytes) => run::rank(bytes, edge),
            View::Tree(tree) => tree.rank(edge),
        }
    }

    /// A member's rank and score.
    pub fn rank_of(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            View::Run(bytes) => run::find(bytes, member).map(|place| (place.index, place.score)),
            View::Tree(tree) => tree.rank_of(member),
        }
    }

    /// All entries in order.
    pub fn iter(self) -> Range<'a> {
        self.range(0, self.len(), false)
    }

    /// `count` entries from rank `start` on, upwards, or downwards if `reverse`. They must exist.
    pub fn range(self, start: usize, count: usize, reverse: bool) -> Range<'a> {
        let (tree, leaf, index, bytes) = match self {
            View::Run(bytes) => (None, 0, start, bytes),
            View::Tree(tree) if count > 0 => {
                let (leaf, index) = tree.leaf_of_rank(start);
                (Some(tree), leaf, index, tree.leaf(leaf))
            }
            View::Tree(tree) => (Some(tree), 0, 0, &[][..]),
        };
        let mut range = Range { tree, leaf, bytes, at: 0, offsets: Vec::new(), reverse, left: count };
        if reverse && count > 0 {
            range.offsets = run::offsets(bytes);
            range.offsets.truncate(index + 1);
        } else if count > 0 {
            range.at = run::skip(bytes, index);
        }
        range
    }
}

/// Entries in order, or in reverse.
#[derive(Clone)]
pub struct Range<'a> {
    tree: Option<&'a Tree>,
    leaf: u32,
    bytes: &'a [u8],
    /// Upwards: the position of the next entry.
    at: usize,
    /// Downwards: the positions of the entries of this run that are still to come.
    offsets: Vec<u32>,
    reverse: bool,
    left: usize,
}

impl<'a> Iterator for Range<'a> {
    type Item = (f64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(f64, &'a [u8])> {
        if self.left == 0 {
            return None;
        }
        let entry = if self.reverse {
            while self.offsets.is_empty() {
                let tree = self.tree?;
                self.leaf = tree.prev_leaf(self.leaf)?;
                self.bytes = tree.leaf(self.leaf);
                self.offsets = run::offsets(self.bytes);
            }
            run::entry(self.bytes, self.offsets.pop()? as usize)?
        } else {
            while self.at == self.bytes.len() {
                let tree = self.tree?;
                self.leaf = tree.next_leaf(self.leaf)?;
                (self.bytes, self.at) = (tree.leaf(self.leaf), 0);
            }
            run::entry(self.bytes, self.at)?
        };
        self.at = entry.end;
        self.left -= 1;
        Some((entry.score, entry.member))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}
