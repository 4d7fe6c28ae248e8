//! Owns a node of the tree above its leaves: the children, and the places in the order at which they begin. Never knows
//! what the children are.

use super::edge::Edge;
use crate::malloc_bytes;
use std::cmp::Ordering;

pub const CHILDREN_MAX: usize = 64;

#[derive(Clone, Copy)]
pub struct Child {
    least: f64,
    pub node: u32,
    /// The number of those below it.
    pub entries: u32,
}

impl Child {
    pub fn new(node: u32, entries: u32) -> Child {
        Child { least: f64::NEG_INFINITY, node, entries }
    }
}

/// Where a child begins: all entries before it are less than this, and none of its own is. It need not be an entry, and
/// its name is no longer than it must be: mostly there is none, for the scores alone part the entries.
#[derive(Clone, Default)]
pub struct Start {
    score: f64,
    name: Box<[u8]>,
}

impl Start {
    /// A place between two entries that follow each other.
    pub fn between(before: (f64, &[u8]), first: (f64, &[u8])) -> Start {
        let (score, member) = first;
        let is_tie = before.0.partial_cmp(&score) == Some(Ordering::Equal);
        let same = before.1.iter().zip(member).take_while(|(a, b)| a == b).count();
        Start { score, name: if is_tie { member[..same + 1].into() } else { Box::default() } }
    }
}

/// Fewer than [`CHILDREN_MAX`] children, at least one.
#[derive(Default)]
pub struct Inner {
    children: Vec<Child>,
    /// The names of the children's starts; empty while all of them are.
    names: Vec<Box<[u8]>>,
}

impl Clone for Inner {
    /// With room for as many children as the original has.
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

    /// So many entries more below a child.
    #[inline]
    pub fn count(&mut self, at: usize, more: i32) {
        let entries = &mut self.children[at].entries;
        *entries = entries.wrapping_add_signed(more);
    }

    /// The child in which the edge lies. Where the first one begins is what is above knows.
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

    /// Where a child begins that is to go, or to become the first of some node.
    pub fn take_start(&mut self, at: usize) -> Start {
        let name = self.names.get_mut(at).map(std::mem::take).unwrap_or_default();
        Start { score: self.children[at].least, name }
    }

    /// The children from `at` on, without where the first of them begins.
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

    /// Adds another's children, the first of which begins there.
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

    /// Each child gets a name, an empty one if it had none.
    fn name_all(&mut self) {
        self.names.reserve_exact(CHILDREN_MAX - self.names.len());
        self.names.resize_with(self.children.len(), Box::default);
    }

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        malloc_bytes(self.children.capacity() * size_of::<Child>())
            + malloc_bytes(self.names.capacity() * size_of::<Box<[u8]>>())
            + self.names.iter().map(|name| malloc_bytes(name.len())).sum::<usize>()
    }

    /// Whether an entry lies before where that child begins; `None` for the first one.
    #[cfg(test)]
    pub fn begins_behind(&self, at: usize, score: f64, member: &[u8]) -> Option<bool> {
        use super::edge::Side;
        let name = self.names.get(at).map_or(&b""[..], |name| name);
        assert!(self.names.is_empty() || self.names.len() == self.children.len());
        (at > 0).then(|| Edge::Entry(self.children[at].least, name, Side::Before).is_after(score, member))
    }
}
