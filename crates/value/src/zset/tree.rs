//! Owns the large form of a sorted set: a B+tree that counts. Never knows replies or settings.
//!
//! ```text
//! inner   up to 64 children: least score, node, number of entries below    (Bayer and McCreight 1972; the counts make
//! inner   ...                                                               it an order-statistic tree)
//! leaf    a run of entries, up to 512 bytes, linked to its neighbours
//! index   tag of a member → number of its leaf
//! ```
//! A member stands once, in its leaf: with its score 3 to 11 bytes more than itself, in the index 8, for the leaf and
//! what is above it some 3. A rank is the sum of the counts beside one path. The index follows when a leaf is halved
//! or joined: then each member that moves is looked up once, which is one or two look-ups for every insertion.
//!
//! A child's *least* score lies between the scores before it and its own. It need not be exact, so a removal never
//! changes it; where the score sought equals it, the child's first entry decides.

use super::edge::{Edge, Side};
use super::index::Index;
use super::run::{self, ScoreBytes};
use crate::hash::tag;
use crate::tagged::{Step, fitted, gap};
use crate::varint::{self, Varint};
use crate::{Corrupt, malloc_bytes};

const LEAF_BYTES_MAX: usize = 512;
/// A leaf longer than that is halved unless it has fewer entries: large members do not get a leaf each.
const LEAF_ENTRIES_MIN: u32 = 4;
/// A leaf shorter than this is joined with a neighbour ...
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;
/// ... if both fit this.
const LEAF_BYTES_JOINED: usize = LEAF_BYTES_MAX / 4 * 3;
const CHILDREN_MAX: usize = 64;
const CHILDREN_MIN: usize = CHILDREN_MAX / 4;
const CHILDREN_JOINED: usize = CHILDREN_MAX / 4 * 3;
/// No leaf.
const NONE: u32 = u32::MAX;
/// Neighbours that could be joined are, so half-full nodes are the worst on average: 32^7 leaves.
const HEIGHT_MAX: usize = 12;

#[derive(Clone, Default)]
struct Leaf {
    bytes: Vec<u8>,
    entries: u32,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Child {
    least: f64,
    node: u32,
    entries: u32,
}

#[derive(Clone, Default)]
struct Inner {
    children: Vec<Child>,
}

/// The way from the root to a leaf: at each level above the leaves, lowest first, the inner and the child taken.
#[derive(Clone, Copy)]
struct Path {
    steps: [(u32, u32); HEIGHT_MAX],
    leaf: u32,
    /// Entries before the leaf.
    rank: usize,
}

/// A sorted set of any number of members. Access by member is O(1), by rank, score or order O(log n).
#[derive(Clone)]
pub struct Tree {
    leaves: Vec<Leaf>,
    /// Numbers of leaves and inners that are not in use.
    leaves_free: Vec<u32>,
    inners: Vec<Inner>,
    inners_free: Vec<u32>,
    root: u32,
    /// Levels of inners: with none, the root is a leaf.
    height: usize,
    index: Index,
    len: usize,
    /// What the leaves' bytes take.
    leaf_bytes: usize,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            leaves: vec![Leaf { prev: NONE, next: NONE, ..Leaf::default() }],
            leaves_free: Vec::new(),
            inners: Vec::new(),
            inners_free: Vec::new(),
            root: 0,
            height: 0,
            index: Index::default(),
            len: 0,
            leaf_bytes: 0,
        }
    }
}

impl Tree {
    pub fn new() -> Tree {
        Tree::default()
    }

    /// The entries of a packed set.
    pub fn from_run(bytes: &[u8]) -> Tree {
        let mut tree = Tree::new();
        for (score, member) in run::iter(bytes) {
            tree.insert(member, score);
        }
        tree
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let mut score = None;
        let holds = |leaf: u32| {
            score = run::find(&self.leaves[leaf as usize].bytes, member).map(|place| place.score);
            score.is_some()
        };
        self.index.find(tag(member), holds).ok().and(score)
    }

    /// Adds a member; false if it is there already, whatever its score. The score is a number.
    pub fn insert(&mut self, member: &[u8], score: f64) -> bool {
        debug_assert!(!score.is_nan());
        let tag = tag(member);
        let holds = |leaf: u32| run::find(&self.leaves[leaf as usize].bytes, member).is_some();
        let Err(index_place) = self.index.find(tag, holds) else {
            return false;
        };
        let edge = Edge::Entry(score, member, Side::Before);
        let path = self.descend(&edge);
        self.index.insert(index_place, tag, path.leaf);
        let leaf = &mut self.leaves[path.leaf as usize];
        let (at, _) = run::seek(&leaf.bytes, &edge);
        let is_last = leaf.next == NONE && at == leaf.bytes.len();
        let (score, len) = (ScoreBytes::new(score), Varint::new(member.len()));
        let (score, len) = (score.as_bytes(), len.as_bytes());
        self.leaf_bytes -= leaf.bytes.capacity();
        let room = gap(&mut leaf.bytes, at, score.len() + len.len() + member.len());
        room[..score.len()].copy_from_slice(score);
        room[score.len()..score.len() + len.len()].copy_from_slice(len);
        room[score.len() + len.len()..].copy_from_slice(member);
        self.leaf_bytes += leaf.bytes.capacity();
        leaf.entries += 1;
        let is_long = leaf.bytes.len() > LEAF_BYTES_MAX && leaf.entries >= LEAF_ENTRIES_MIN;
        self.count(&path, 1);
        if is_long {
            // Members that come in order fill their leaves.
            let split = if is_last { at } else { self.middle(path.leaf) };
            self.split_leaf(&path, split);
        }
        true
    }

    /// Gives a member that is there another score.
    pub fn set_score(&mut self, member: &[u8], score: f64) {
        self.remove(member);
        self.insert(member, score);
    }

    /// The score that the member had, if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.score(member)?;
        // The place behind it is in its own leaf, the one before it may be in the leaf before.
        let path = self.descend(&Edge::Entry(score, member, Side::After));
        let (at, _) = run::seek(&self.leaves[path.leaf as usize].bytes, &Edge::Entry(score, member, Side::Before));
        self.remove_at(&path, at);
        Some(score)
    }

    /// Removes the entries with these ranks, which are there.
    pub fn remove_range(&mut self, ranks: std::ops::Range<usize>) {
        for _ in ranks.clone() {
            let (path, at) = self.descend_to(ranks.start);
            self.remove_at(&path, at);
        }
    }

    /// How many entries are before the edge.
    pub fn rank(&self, edge: &Edge<'_>) -> usize {
        let path = self.descend(edge);
        path.rank + run::rank(&self.leaves[path.leaf as usize].bytes, edge)
    }

    /// One step of a walk over all entries in the order of their tags: visits at least `count` of them, from `cursor`
    /// on (0 is the start). A member that is there from the walk's start to its end is visited exactly once, whatever
    /// its score becomes.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(&'a [u8], f64)) -> Step {
        let mut found = Vec::new();
        let step = self.index.scan(cursor, count, &mut |tag, leaf| found.push((tag, leaf)));
        // Two members with one tag in one leaf are both found by the first of them.
        found.sort_unstable();
        found.dedup();
        for (wanted, leaf) in found {
            for (score, member) in run::iter(&self.leaves[leaf as usize].bytes) {
                if tag(member) == wanted {
                    visit(member, score);
                }
            }
        }
        step
    }

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        let inner_bytes = malloc_bytes(CHILDREN_MAX * size_of::<Child>());
        self.leaf_bytes
            + self.index.mem_bytes()
            + malloc_bytes(self.leaves.capacity() * size_of::<Leaf>())
            + malloc_bytes(self.leaves_free.capacity() * size_of::<u32>())
            + malloc_bytes(self.inners.capacity() * size_of::<Inner>())
            + malloc_bytes(self.inners_free.capacity() * size_of::<u32>())
            + (self.inners.len() - self.inners_free.len()) * inner_bytes
    }

    /// Appends the number of members and then all entries as the packed form has them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.len).as_bytes());
        let (mut leaf, _) = self.leaf_of_rank(0);
        while leaf != NONE {
            out.extend_from_slice(&self.leaves[leaf as usize].bytes);
            leaf = self.leaves[leaf as usize].next;
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Tree, Corrupt> {
        let (entries, start) = varint::read(bytes, 0).ok_or(Corrupt)?;
        let run = &bytes[start..];
        run::check(run)?;
        let mut tree = Tree::new();
        for (score, member) in run::iter(run) {
            if !tree.insert(member, score) {
                return Err(Corrupt);
            }
        }
        if tree.len == entries { Ok(tree) } else { Err(Corrupt) }
    }

    /// A leaf's bytes.
    pub(super) fn leaf(&self, leaf: u32) -> &[u8] {
        &self.leaves[leaf as usize].bytes
    }

    pub(super) fn next_leaf(&self, leaf: u32) -> Option<u32> {
        Some(self.leaves[leaf as usize].next).filter(|&next| next != NONE)
    }

    pub(super) fn prev_leaf(&self, leaf: u32) -> Option<u32> {
        Some(self.leaves[leaf as usize].prev).filter(|&prev| prev != NONE)
    }

    /// The leaf that has the entry of that rank, and how many are before it there.
    pub(super) fn leaf_of_rank(&self, rank: usize) -> (u32, usize) {
        let path = self.descend_by_count(rank);
        (path.leaf, rank - path.rank)
    }

    /// The way to the leaf in which the edge lies.
    fn descend(&self, edge: &Edge<'_>) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.root, rank: 0 };
        for level in (0..self.height).rev() {
            let children = &self.inners[path.leaf as usize].children[..];
            let (mut low, mut high) = (0, children.len());
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.starts_before(&children[middle], level, edge) { low = middle } else { high = middle }
            }
            path.rank += children[..low].iter().map(|child| child.entries as usize).sum::<usize>();
            path.steps[level] = (path.leaf, low as u32);
            path.leaf = children[low].node;
        }
        path
    }

    fn starts_before(&self, child: &Child, level: usize, edge: &Edge<'_>) -> bool {
        edge.is_beyond(child.least).unwrap_or_else(|| {
            let mut node = child.node;
            for _ in 0..level {
                node = self.inners[node as usize].children[0].node;
            }
            let first = run::entry(&self.leaves[node as usize].bytes, 0).expect("no leaf but a lone root is empty");
            edge.is_after(first.score, first.member)
        })
    }

    fn descend_by_count(&self, rank: usize) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.root, rank: 0 };
        for level in (0..self.height).rev() {
            let children = &self.inners[path.leaf as usize].children[..];
            let mut at = 0;
            while at + 1 < children.len() && path.rank + children[at].entries as usize <= rank {
                path.rank += children[at].entries as usize;
                at += 1;
            }
            path.steps[level] = (path.leaf, at as u32);
            path.leaf = children[at].node;
        }
        path
    }

    /// The way to the entry of that rank, and where it stands in its leaf.
    fn descend_to(&self, rank: usize) -> (Path, usize) {
        let path = self.descend_by_count(rank);
        let at = run::skip(&self.leaves[path.leaf as usize].bytes, rank - path.rank);
        (path, at)
    }

    /// So many entries more in the leaf at the path's end.
    fn count(&mut self, path: &Path, more: i32) {
        for &(inner, at) in &path.steps[..self.height] {
            let entries = &mut self.inners[inner as usize].children[at as usize].entries;
            *entries = entries.wrapping_add_signed(more);
        }
        self.len = self.len.wrapping_add_signed(more as isize);
    }

    /// Where the entry begins that has about half of the leaf's bytes before it, and at least one entry.
    fn middle(&self, leaf: u32) -> usize {
        let bytes = &self.leaves[leaf as usize].bytes[..];
        let mut at = run::entry(bytes, 0).expect("a leaf to be halved has entries").end;
        while let Some(entry) = run::entry(bytes, at) {
            if entry.end > bytes.len() / 2 {
                break;
            }
            at = entry.end;
        }
        at
    }

    /// The entries of the path's leaf from `split` on go to a new leaf behind it.
    fn split_leaf(&mut self, path: &Path, split: usize) {
        let left = path.leaf;
        let number = self.new_leaf();
        let leaf = &mut self.leaves[left as usize];
        self.leaf_bytes -= leaf.bytes.capacity();
        let bytes = fitted(&leaf.bytes[split..]);
        leaf.bytes = fitted(&leaf.bytes[..split]);
        self.leaf_bytes += leaf.bytes.capacity() + bytes.capacity();
        let entries = run::len(&bytes) as u32;
        leaf.entries -= entries;
        let next = std::mem::replace(&mut leaf.next, number);
        if next != NONE {
            self.leaves[next as usize].prev = number;
        }
        for (_, member) in run::iter(&bytes) {
            self.index.move_to(tag(member), left, number);
        }
        let (least, _) = run::iter(&bytes).next().expect("a split parts entries");
        self.leaves[number as usize] = Leaf { bytes, entries, prev: left, next };
        self.add_child(path, 0, Child { least, node: number, entries });
    }

    /// A node behind the path's one below `level`, which gave it some of its entries.
    fn add_child(&mut self, path: &Path, level: usize, child: Child) {
        if level == self.height {
            assert!(level < HEIGHT_MAX);
            let entries = (self.len - child.entries as usize) as u32;
            let first = Child { least: f64::NEG_INFINITY, node: self.root, entries };
            self.root = self.new_inner();
            self.inners[self.root as usize].children.extend([first, child]);
            self.height += 1;
            return;
        }
        let (inner, at) = path.steps[level];
        let children = &mut self.inners[inner as usize].children;
        children[at as usize].entries -= child.entries;
        children.insert(at as usize + 1, child);
        if children.len() == CHILDREN_MAX {
            // Behind the last one more will come: members in order fill their inners, too.
            let is_last = at as usize + 2 == CHILDREN_MAX;
            let upper = children.split_off(if is_last { CHILDREN_MAX - 2 } else { CHILDREN_MAX / 2 });
            let entries = upper.iter().map(|child| child.entries).sum();
            let least = upper[0].least;
            let number = self.new_inner();
            self.inners[number as usize].children.extend(upper);
            self.add_child(path, level + 1, Child { least, node: number, entries });
        }
    }

    fn new_leaf(&mut self) -> u32 {
        self.leaves_free.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::default());
            self.leaves.len() as u32 - 1
        })
    }

    fn new_inner(&mut self) -> u32 {
        let number = self.inners_free.pop().unwrap_or_else(|| {
            self.inners.push(Inner::default());
            self.inners.len() as u32 - 1
        });
        self.inners[number as usize].children.reserve_exact(CHILDREN_MAX);
        number
    }

    fn free_leaf(&mut self, number: u32) {
        let Leaf { bytes, prev, next, .. } = std::mem::take(&mut self.leaves[number as usize]);
        self.leaf_bytes -= bytes.capacity();
        if prev != NONE {
            self.leaves[prev as usize].next = next;
        }
        if next != NONE {
            self.leaves[next as usize].prev = prev;
        }
        self.leaves_free.push(number);
    }

    fn free_inner(&mut self, number: u32) {
        self.inners[number as usize] = Inner::default();
        self.inners_free.push(number);
    }

    fn remove_at(&mut self, path: &Path, at: usize) {
        let leaf = &mut self.leaves[path.leaf as usize];
        let entry = run::entry(&leaf.bytes, at).expect("it was found there");
        let end = entry.end;
        self.index.remove(tag(entry.member), path.leaf);
        leaf.bytes.drain(at..end);
        leaf.entries -= 1;
        let (len, capacity) = (leaf.bytes.len(), leaf.bytes.capacity());
        if malloc_bytes(len) < capacity / 2 {
            leaf.bytes.shrink_to(malloc_bytes(len));
            self.leaf_bytes = self.leaf_bytes - capacity + leaf.bytes.capacity();
        }
        self.count(path, -1);
        if self.height == 0 {
            return;
        }
        if len == 0 {
            self.free_leaf(path.leaf);
            self.drop_child(path, 0);
        } else if len < LEAF_BYTES_MIN {
            self.join_leaf(path);
        }
    }

    /// Joins the path's leaf with a neighbour of the same parent, if they fit.
    fn join_leaf(&mut self, path: &Path) {
        let (inner, at) = path.steps[0];
        let children = &self.inners[inner as usize].children[..];
        let Some(left_at) = joinable(children, at as usize, |child| self.leaf(child.node).len(), LEAF_BYTES_JOINED)
        else {
            return;
        };
        let (left, right) = (children[left_at].node, children[left_at + 1].node);
        let (bytes, entries) = {
            let leaf = &self.leaves[right as usize];
            (leaf.bytes.clone(), leaf.entries)
        };
        for (_, member) in run::iter(&bytes) {
            self.index.move_to(tag(member), right, left);
        }
        let leaf = &mut self.leaves[left as usize];
        self.leaf_bytes -= leaf.bytes.capacity();
        let end = leaf.bytes.len();
        gap(&mut leaf.bytes, end, bytes.len()).copy_from_slice(&bytes);
        self.leaf_bytes += leaf.bytes.capacity();
        leaf.entries += entries;
        self.free_leaf(right);
        self.inners[inner as usize].children[left_at].entries += entries;
        let mut path = *path;
        path.steps[0].1 = left_at as u32 + 1;
        self.drop_child(&path, 0);
    }

    /// Takes the path's child at `level` out of its inner, whose node is freed already, and tidies up above it.
    fn drop_child(&mut self, path: &Path, level: usize) {
        let (inner, at) = path.steps[level];
        self.inners[inner as usize].children.remove(at as usize);
        let left = self.inners[inner as usize].children.len();
        if level + 1 < self.height {
            if left == 0 {
                self.free_inner(inner);
                self.drop_child(path, level + 1);
            } else if left < CHILDREN_MIN {
                self.join_inner(path, level + 1);
            }
        }
        while self.height > 0 && self.inners[self.root as usize].children.len() == 1 {
            let old = self.root;
            self.root = self.inners[old as usize].children[0].node;
            self.free_inner(old);
            self.height -= 1;
        }
    }

    /// Joins the inner that is the path's child at `level` with a neighbour of the same parent, if they fit.
    fn join_inner(&mut self, path: &Path, level: usize) {
        let (parent, at) = path.steps[level];
        let children = &self.inners[parent as usize].children[..];
        let size = |child: &Child| self.inners[child.node as usize].children.len();
        let Some(left_at) = joinable(children, at as usize, size, CHILDREN_JOINED) else { return };
        let (left, right) = (children[left_at].node, children[left_at + 1]);
        let mut moved = std::mem::take(&mut self.inners[right.node as usize].children);
        // What was known of the inner is now known of its first child.
        moved[0].least = right.least;
        self.inners[left as usize].children.append(&mut moved);
        self.inners_free.push(right.node);
        self.inners[parent as usize].children[left_at].entries += right.entries;
        let mut path = *path;
        path.steps[level].1 = left_at as u32 + 1;
        self.drop_child(&path, level);
    }
}

/// The left one of two neighbours, one of them at `at`, that together are at most `most`.
fn joinable(children: &[Child], at: usize, size: impl Fn(&Child) -> usize, most: usize) -> Option<usize> {
    let fits = |left: usize| {
        children.get(left).zip(children.get(left + 1)).is_some_and(|(left, right)| size(left) + size(right) <= most)
    };
    [Some(at), at.checked_sub(1)].into_iter().flatten().find(|&left| fits(left))
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("len", &self.len).field("height", &self.height).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
