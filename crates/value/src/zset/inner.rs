//! Owns an inner node of the tree: its children, and the edges at which they start. Never knows what the children are.

use super::edge::Edge;
use crate::malloc_bytes;
use std::cmp::Ordering;

pub const CHILDREN_MAX: usize = 64;

#[derive(Clone, Copy)]
pub struct Child {
    least: f64,
    pub node: u32,
    /// The number of entries below this child.
    pub entries: u32,
}

impl Child {
    pub fn new(node: u32, entries: u32) -> Child {
        Child { least: f64::NEG_INFINITY, node, entries }
    }
}

/// Where a child starts: all entries before the child are less than this, and no entry of the child is. The start need
/// not be an entry. Its member name is as short as possible, and usually empty, because the scores alone separate the
/// entries.
#[derive(Clone, Default)]
pub struct Start {
    score: f64,
    name: Box<[u8]>,
}

impl Start {
    pub fn new(score: f64, name: &[u8]) -> Start {
        Start { score, name: name.into() }
    }

    /// An edge between two neighbouring entries.
    pub fn between(before: (f64, &[u8]), first: (f64, &[u8])) -> Start {
        let (score, member) = first;
        let is_tie = before.0.partial_cmp(&score) == Some(Ordering::Equal);
        let same = before.1.iter().zip(member).take_while(|(a, b)| a == b).count();
        Start { score, name: if is_tie { member[..same + 1].into() } else { Box::default() } }
    }
}

/// An inner node. It has at least one child and fewer than [`CHILDREN_MAX`].
#[derive(Default)]
pub struct Inner {
    children: Vec<Child>,
    /// The member names of the children's starts; empty while all names are empty.
    names: Vec<Box<[u8]>>,
}

impl Clone for Inner {
    /// The copy keeps capacity for as many children as the original has.
    fn clone(&self) -> Inner {
        let mut copy = Inner::default();
        copy.children.reserve_exact(self.children.capacity());
        copy.children.extend_from_slice(&self.children);
        copy.names.reserve_exact(self.names.capacity());
        copy.names.extend_from_slice(&self.names);
        copy
    }
}

impl Inner {
    pub fn with_child(child: Child) -> Inner {
        let mut children = Vec::with_capacity(CHILDREN_MAX);
        children.push(child);
        Inner { children, names: Vec::new() }
    }

    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// Where a child starts, unless it is the first child.
    pub fn start(&self, at: usize) -> (f64, &[u8]) {
        (self.children[at].least, self.names.get(at).map_or(b"", |name| name))
    }

    /// Adds to the number of entries below a child.
    #[inline]
    pub fn count(&mut self, at: usize, more: i32) {
        let entries = &mut self.children[at].entries;
        *entries = entries.wrapping_add_signed(more);
    }

    /// The child that contains the edge. The parent node knows where the first child starts.
    #[inline]
    pub fn find(&self, edge: &Edge<'_>) -> usize {
        let (mut low, mut high) = (0, self.children.len());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let least = self.children[middle].least;
            let name = || self.names.get(middle).map_or(&b""[..], |name| name);
            if edge.is_beyond(least).unwrap_or_else(|| edge.is_after(least, name())) {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }

    pub fn insert(&mut self, at: usize, child: Child, start: Start) {
        if !start.name.is_empty() {
            self.name_all();
        }
        if !self.names.is_empty() {
            self.names.insert(at, start.name);
        }
        self.children.insert(at, Child { least: start.score, ..child });
    }

    pub fn remove(&mut self, at: usize) {
        self.children.remove(at);
        if !self.names.is_empty() {
            self.names.remove(at);
        }
    }

    /// Takes the start of a child that is removed or that becomes the first child of another node.
    pub fn take_start(&mut self, at: usize) -> Start {
        let name = self.names.get_mut(at).map(std::mem::take).unwrap_or_default();
        Start { score: self.children[at].least, name }
    }

    /// The children from `at` on. The start of the first of them is returned separately.
    pub fn split_off(&mut self, at: usize) -> (Start, Inner) {
        let start = self.take_start(at);
        let mut upper = Inner::default();
        upper.children.reserve_exact(CHILDREN_MAX);
        upper.children.extend(self.children.drain(at..));
        if !self.names.is_empty() {
            upper.names.reserve_exact(CHILDREN_MAX);
            upper.names.extend(self.names.drain(at..));
        }
        (start, upper)
    }

    /// Adds the other node's children; `start` is where the first of them starts.
    pub fn append(&mut self, mut other: Inner, start: Start) {
        if !start.name.is_empty() || !other.names.is_empty() {
            self.name_all();
        }
        if !self.names.is_empty() {
            other.name_all();
            other.names[0] = start.name;
            self.names.append(&mut other.names);
        }
        other.children[0].least = start.score;
        self.children.append(&mut other.children);
    }

    /// Gives each child a name, empty if it had none.
    fn name_all(&mut self) {
        self.names.reserve_exact(CHILDREN_MAX - self.names.len());
        self.names.resize_with(self.children.len(), Box::default);
    }

    /// Bytes of memory that the node holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        malloc_bytes(self.children.capacity() * size_of::<Child>())
            + malloc_bytes(self.names.capacity() * size_of::<Box<[u8]>>())
            + self.names.iter().map(|name| malloc_bytes(name.len())).sum::<usize>()
    }

    /// Whether an entry is before the start of that child. `None` for the first child.
    #[cfg(test)]
    pub fn begins_behind(&self, at: usize, score: f64, member: &[u8]) -> Option<bool> {
        use super::edge::Side;
        let name = self.names.get(at).map_or(&b""[..], |name| name);
        assert!(self.names.is_empty() || self.names.len() == self.children.len());
        (at > 0).then(|| Edge::Entry(self.children[at].least, name, Side::Before).is_after(score, member))
    }
}
