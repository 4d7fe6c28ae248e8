//! Owns the large form of a sorted set: a B+tree that counts. Never knows replies or settings.
//!
//! ```text
//! inner   up to 64 children: where it begins, node,        (Bayer and McCreight 1972; the counts make it an
//! inner   number of entries below                           order-statistic tree)
//! leaf    a run of entries, up to 512 bytes, linked to its neighbours
//! index   tag of a member → number of its leaf
//! ```
//! Each member is stored once, in its leaf. Overhead: 3 to 11 bytes in the leaf with its score, 8 bytes in the index,
//! some 3 bytes for the leaf and the nodes above. A rank is the sum of the counts along one path. When a leaf is split
//! or merged, each moved member is looked up once in the index, which is one or two look-ups for every insertion.
//!
//! The start of a child need not be an entry; it only has to lie between the entries before the child and the child's
//! own. So a removal never changes a start, and the way down to a leaf reads no other leaf.
//!
//! The leaves and the chunks of the index are parts (see `part`); leaves have numbers of their own. Whatever an
//! operation touches must be in memory. Splitting or merging leaves touches the index entries of all moved members. If
//! those are not in memory, the split or merge is postponed.

use super::edge::{Edge, Side};
use super::index::Index;
use super::inner::{CHILDREN_MAX, Child, Inner, Start};
use super::run::{self, ScoreBytes};
use crate::fit::{fitted, gap};
use crate::input::{Input, put_number, put_text};
use crate::part::{Absent, AbsentPart, FlashCopies, FlashCopiesOf, Part, Parts};
use crate::tagged::Step;
use crate::varint::{self, Varint};
use crate::{Corrupt, malloc_bytes};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const LEAF_BYTES_MAX: usize = 512;
/// The maximum size of a leaf that moves to flash alone, as for chunks of the index (see `tagged`).
const PART_BYTES_MAX: usize = 2 * LEAF_BYTES_MAX;
/// A longer leaf is split only if it has this many entries: large members do not get a leaf each.
const LEAF_ENTRIES_MIN: u32 = 4;
/// A leaf shorter than this is merged with a neighbour ...
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;
/// ... if both together fit into this.
const LEAF_BYTES_JOINED: usize = LEAF_BYTES_MAX / 4 * 3;
const CHILDREN_MIN: usize = CHILDREN_MAX / 4;
const CHILDREN_JOINED: usize = CHILDREN_MAX / 4 * 3;
/// No leaf.
const NONE: u32 = u32::MAX;
/// Neighbours that can be merged are merged, so half-full nodes are the worst case on average: 32^7 leaves.
const HEIGHT_MAX: usize = 12;

#[derive(Clone)]
struct Leaf {
    part: Part,
    entries: u32,
    prev: u32,
    next: u32,
}

impl Default for Leaf {
    fn default() -> Leaf {
        Leaf { part: Part::default(), entries: 0, prev: NONE, next: NONE }
    }
}

/// The path from the root to a leaf: for each level above the leaves, lowest first, the inner node and the child taken.
#[derive(Clone, Copy)]
struct Path {
    steps: [(u32, u32); HEIGHT_MAX],
    leaf: u32,
}

/// A sorted set of any number of members. Access by member is O(1), by rank, score or order O(log n).
pub struct Tree {
    leaves: Vec<Leaf>,
    /// Numbers of leaves and inner nodes that are free.
    leaves_free: Vec<u32>,
    inners: Vec<Inner>,
    inners_free: Vec<u32>,
    root: u32,
    /// See [`Tree::height`].
    levels: u8,
    index: Index,
    len: usize,
    /// Memory of the leaves' bytes, and of the inner nodes.
    leaf_bytes: usize,
    inner_bytes: usize,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            leaves: vec![Leaf::default()],
            leaves_free: Vec::new(),
            inners: Vec::new(),
            inners_free: Vec::new(),
            root: 0,
            levels: 0,
            index: Index::default(),
            len: 0,
            leaf_bytes: 0,
            inner_bytes: 0,
        }
    }
}

impl Tree {
    pub fn new() -> Tree {
        Tree::default()
    }

    /// Builds a tree from the entries of a packed set.
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

    /// Levels of inner nodes. With none, the root is a leaf.
    fn height(&self) -> usize {
        self.levels.into()
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let mut score = None;
        let holds = |leaf: u32| {
            score = run::find(self.leaf(leaf), member).map(|place| place.score);
            score.is_some()
        };
        self.index.find(self.index.tag(member), holds).ok().and(score)
    }

    /// Adds a member. False: the member exists already, whatever its score. The score must not be NaN.
    pub fn insert(&mut self, member: &[u8], score: f64) -> bool {
        debug_assert!(!score.is_nan());
        let tag = self.index.tag(member);
        let holds = |leaf: u32| run::find(self.leaf(leaf), member).is_some();
        let Err(index_place) = self.index.find(tag, holds) else {
            return false;
        };
        let path = self.descend(&Edge::Entry(score, member, Side::After));
        let bytes_max = self.leaf_bytes_max();
        self.index.insert(index_place, tag, path.leaf);
        let leaf = &mut self.leaves[path.leaf as usize];
        let bytes = leaf.part.edit(self.index.flash_copies());
        let (at, _) = run::seek(bytes, &Edge::Entry(score, member, Side::Before));
        let is_last = leaf.next == NONE && at == bytes.len();
        let (score, len) = (ScoreBytes::new(score), Varint::new(member.len()));
        let (score, len) = (score.as_bytes(), len.as_bytes());
        self.leaf_bytes -= bytes.capacity();
        let room = gap(bytes, at, score.len() + len.len() + member.len());
        room[..score.len()].copy_from_slice(score);
        room[score.len()..score.len() + len.len()].copy_from_slice(len);
        room[score.len() + len.len()..].copy_from_slice(member);
        self.leaf_bytes += bytes.capacity();
        leaf.entries += 1;
        let is_long = bytes.len() > bytes_max && leaf.entries >= LEAF_ENTRIES_MIN;
        self.count(&path, 1);
        if is_long {
            // Members that arrive in order fill their leaves.
            let split = if is_last { at } else { self.middle(path.leaf) };
            if self.can_move(&self.leaf(path.leaf)[split..]) {
                self.split_leaf(&path, split);
            }
        }
        true
    }

    /// Changes the score of an existing member.
    pub fn set_score(&mut self, member: &[u8], score: f64) {
        self.remove(member);
        self.insert(member, score);
    }

    /// Removes a member. Returns its score if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.score(member)?;
        let path = self.descend(&Edge::Entry(score, member, Side::After));
        let (at, _) = run::seek(self.leaf(path.leaf), &Edge::Entry(score, member, Side::Before));
        self.remove_at(&path, at);
        Some(score)
    }

    /// Removes the entries with these ranks. They must exist.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        for _ in ranks.clone() {
            let (path, at) = self.descend_to(ranks.start);
            self.remove_at(&path, at);
        }
    }

    /// The number of entries before the edge.
    pub fn rank(&self, edge: &Edge<'_>) -> usize {
        let path = self.descend(edge);
        self.rank_of_leaf(&path) + run::rank(self.leaf(path.leaf), edge)
    }

    /// A member's rank and score.
    pub fn rank_of(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        // The edge after the entry is in the entry's own leaf. The edge before it may be in the leaf before.
        Some((self.rank(&Edge::Entry(score, member, Side::After)) - 1, score))
    }

    /// One step of a walk over all entries in the order of their tags: visits at least `count` entries, from `cursor`
    /// on (0 is the start). A member that exists during the whole walk is visited exactly once, even if its score
    /// changes.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(&'a [u8], f64)) -> Step {
        let mut found = Vec::new();
        let step = self.index.scan(cursor, count, &mut |tag, leaf| found.push((tag, leaf)));
        // If two members in one leaf have the same tag, the first match finds both.
        found.sort_unstable();
        found.dedup();
        for (wanted, leaf) in found {
            for (score, member) in run::iter(self.leaf(leaf)) {
                if self.index.tag(member) == wanted {
                    visit(member, score);
                }
            }
        }
        step
    }

    /// Bytes of memory that the tree holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.leaf_bytes
            + self.inner_bytes
            + self.index.mem_bytes()
            + malloc_bytes(self.leaves.capacity() * size_of::<Leaf>())
            + malloc_bytes(self.leaves_free.capacity() * size_of::<u32>())
            + malloc_bytes(self.inners.capacity() * size_of::<Inner>())
            + malloc_bytes(self.inners_free.capacity() * size_of::<u32>())
    }

    /// Appends the number of members and then all entries in the packed form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.len).as_bytes());
        let mut leaf = self.first_leaf();
        while leaf != NONE {
            out.extend_from_slice(self.leaf(leaf));
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

    /// The bytes of a leaf.
    #[inline]
    pub(super) fn leaf(&self, leaf: u32) -> &[u8] {
        self.leaves[leaf as usize].part.bytes()
    }

    pub(super) fn next_leaf(&self, leaf: u32) -> Option<u32> {
        Some(self.leaves[leaf as usize].next).filter(|&next| next != NONE)
    }

    pub(super) fn prev_leaf(&self, leaf: u32) -> Option<u32> {
        Some(self.leaves[leaf as usize].prev).filter(|&prev| prev != NONE)
    }

    /// The leaf of the entry with that rank, and the entry's index in the leaf.
    pub(super) fn leaf_of_rank(&self, rank: usize) -> (u32, usize) {
        let (path, before) = self.descend_by_count(rank);
        (path.leaf, rank - before)
    }

    fn first_leaf(&self) -> u32 {
        (0..self.height()).fold(self.root, |node, _| self.inners[node as usize].children()[0].node)
    }

    /// The path to the leaf of the edge. For an entry, that is the edge after it.
    fn descend(&self, edge: &Edge<'_>) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.root };
        for level in (0..self.height()).rev() {
            let inner = &self.inners[path.leaf as usize];
            let at = inner.find(edge);
            path.steps[level] = (path.leaf, at as u32);
            path.leaf = inner.children()[at].node;
        }
        path
    }

    /// The number of entries before the path's leaf.
    fn rank_of_leaf(&self, path: &Path) -> usize {
        let before = |&(inner, at): &(u32, u32)| &self.inners[inner as usize].children()[..at as usize];
        path.steps[..self.height()].iter().flat_map(before).map(|child| child.entries as usize).sum()
    }

    /// The path to the leaf of the entry with that rank, and the number of entries before that leaf.
    fn descend_by_count(&self, rank: usize) -> (Path, usize) {
        let (mut path, mut before) = (Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.root }, 0);
        for level in (0..self.height()).rev() {
            let children = self.inners[path.leaf as usize].children();
            let mut at = 0;
            while at + 1 < children.len() && before + children[at].entries as usize <= rank {
                before += children[at].entries as usize;
                at += 1;
            }
            path.steps[level] = (path.leaf, at as u32);
            path.leaf = children[at].node;
        }
        (path, before)
    }

    /// The path to the entry with that rank, and its position in the leaf.
    fn descend_to(&self, rank: usize) -> (Path, usize) {
        let (path, before) = self.descend_by_count(rank);
        let at = run::skip(self.leaf(path.leaf), rank - before);
        (path, at)
    }

    /// Adds to the number of entries of the path's leaf.
    fn count(&mut self, path: &Path, more: i32) {
        for &(inner, at) in &path.steps[..self.height()] {
            self.inners[inner as usize].count(at as usize, more);
        }
        self.len = self.len.wrapping_add_signed(more as isize);
    }

    /// The position of the entry at about half of the leaf's bytes, with at least one entry before it.
    fn middle(&self, leaf: u32) -> usize {
        let bytes = self.leaf(leaf);
        let mut at = run::entry(bytes, 0).expect("a leaf to be halved has entries").end;
        while let Some(entry) = run::entry(bytes, at) {
            if entry.end > bytes.len() / 2 {
                break;
            }
            at = entry.end;
        }
        at
    }

    fn leaf_bytes_max(&self) -> usize {
        if self.index.flash_copies().is_some() { PART_BYTES_MAX } else { LEAF_BYTES_MAX }
    }

    /// Whether the index entries of all these members are in memory.
    fn can_move(&self, entries: &[u8]) -> bool {
        self.index.flash_copies().is_none()
            || run::iter(entries).all(|(_, member)| self.index.is_here(self.index.tag(member)))
    }

    /// Moves the entries of the path's leaf from `split` on into a new leaf after it.
    fn split_leaf(&mut self, path: &Path, split: usize) {
        let left = path.leaf;
        let number = self.new_leaf();
        let leaf = &mut self.leaves[left as usize];
        let whole = leaf.part.edit(self.index.flash_copies());
        self.leaf_bytes -= whole.capacity();
        let bytes = fitted(&whole[split..]);
        *whole = fitted(&whole[..split]);
        self.leaf_bytes += whole.capacity() + bytes.capacity();
        let before = run::iter(whole).last().expect("a split parts entries");
        let start = Start::between(before, run::iter(&bytes).next().expect("a split parts entries"));
        let entries = run::len(&bytes) as u32;
        leaf.entries -= entries;
        let next = std::mem::replace(&mut leaf.next, number);
        if next != NONE {
            self.leaves[next as usize].prev = number;
        }
        for (_, member) in run::iter(&bytes) {
            self.index.move_to(self.index.tag(member), left, number);
        }
        self.leaves[number as usize] = Leaf { part: Part::of(bytes), entries, prev: left, next };
        self.add_child(path, 0, Child::new(number, entries), start);
    }

    /// Adds a node after the path's node below `level`, which gave the new node some of its entries.
    fn add_child(&mut self, path: &Path, level: usize, child: Child, start: Start) {
        if level == self.height() {
            assert!(level < HEIGHT_MAX);
            let mut root = Inner::with_child(Child::new(self.root, (self.len - child.entries as usize) as u32));
            root.insert(1, child, start);
            self.root = self.new_inner(root);
            self.levels += 1;
            return;
        }
        let (inner, at) = (path.steps[level].0, path.steps[level].1 as usize);
        let upper = self.change(inner, |inner| {
            inner.count(at, -(child.entries as i32));
            inner.insert(at + 1, child, start);
            // After the last child, one more will follow: members in order also fill their inner nodes.
            let split = if at + 2 == CHILDREN_MAX { CHILDREN_MAX - 2 } else { CHILDREN_MAX / 2 };
            (inner.children().len() == CHILDREN_MAX).then(|| inner.split_off(split))
        });
        if let Some((start, upper)) = upper {
            let entries = upper.children().iter().map(|child| child.entries).sum();
            let number = self.new_inner(upper);
            self.add_child(path, level + 1, Child::new(number, entries), start);
        }
    }

    /// Changes an inner node's children and accounts for their memory.
    fn change<R>(&mut self, inner: u32, change: impl FnOnce(&mut Inner) -> R) -> R {
        let inner = &mut self.inners[inner as usize];
        self.inner_bytes -= inner.mem_bytes();
        let result = change(inner);
        self.inner_bytes += inner.mem_bytes();
        result
    }

    fn new_leaf(&mut self) -> u32 {
        self.leaves_free.pop().unwrap_or_else(|| {
            if self.leaves.len() == self.leaves.capacity() {
                // Do not double the capacity: both copies exist while the vector grows.
                self.leaves.reserve_exact(self.leaves.len() / 8 + 4);
            }
            self.leaves.push(Leaf::default());
            self.leaves.len() as u32 - 1
        })
    }

    fn new_inner(&mut self, inner: Inner) -> u32 {
        let number = self.inners_free.pop().unwrap_or_else(|| {
            self.inners.push(Inner::default());
            self.inners.len() as u32 - 1
        });
        self.change(number, |place| *place = inner);
        number
    }

    fn free_leaf(&mut self, number: u32) {
        let Leaf { part, prev, next, .. } = std::mem::take(&mut self.leaves[number as usize]);
        part.forget_copy(self.index.flash_copies());
        self.leaf_bytes -= part.capacity();
        if prev != NONE {
            self.leaves[prev as usize].next = next;
        }
        if next != NONE {
            self.leaves[next as usize].prev = prev;
        }
        self.leaves_free.push(number);
    }

    fn free_inner(&mut self, number: u32) -> Inner {
        self.inners_free.push(number);
        self.change(number, std::mem::take)
    }

    fn remove_at(&mut self, path: &Path, at: usize) {
        let leaf = &mut self.leaves[path.leaf as usize];
        let bytes = leaf.part.edit(self.index.flash_copies());
        self.leaf_bytes -= bytes.capacity();
        let entry = run::entry(bytes, at).expect("it was found there");
        let (tag, end) = (self.index.tag(entry.member), entry.end);
        bytes.drain(at..end);
        if malloc_bytes(bytes.len()) < bytes.capacity() / 2 {
            bytes.shrink_to(malloc_bytes(bytes.len()));
        }
        self.leaf_bytes += bytes.capacity();
        leaf.entries -= 1;
        let len = bytes.len();
        self.index.remove(tag, path.leaf);
        self.count(path, -1);
        if self.height() == 0 {
            return;
        }
        if len == 0 && !self.heir_is_absent(path) {
            self.free_leaf(path.leaf);
            self.drop_child(path, 0);
        } else if len < LEAF_BYTES_MIN {
            self.join_leaf(path);
        }
    }

    /// Whether the leaf that would take over the range of the path's leaf is on flash. A command that removes one
    /// member and adds another has not loaded that leaf. Then the path's leaf stays, empty, until it is merged with its
    /// neighbour.
    fn heir_is_absent(&self, path: &Path) -> bool {
        let Leaf { prev, next, .. } = self.leaves[path.leaf as usize];
        let heir = path.steps[..self.height()].iter().find_map(|&(inner, at)| {
            if at > 0 { Some(prev) } else { (self.inners[inner as usize].children().len() > 1).then_some(next) }
        });
        heir.is_some_and(|heir| self.leaves[heir as usize].part.is_absent())
    }

    /// Merges the path's leaf with a neighbour of the same parent, if both fit together and can be merged now.
    fn join_leaf(&mut self, path: &Path) {
        let (inner, at) = path.steps[0];
        let children = self.inners[inner as usize].children();
        let size = |child: &Child| {
            let leaf = &self.leaves[child.node as usize];
            if leaf.part.is_absent() { LEAF_BYTES_JOINED + 1 } else { leaf.part.bytes().len() }
        };
        let Some(left_at) = joinable(children, at as usize, size, LEAF_BYTES_JOINED) else { return };
        let (left, right) = (children[left_at].node, children[left_at + 1].node);
        if !self.can_move(self.leaf(right)) {
            return;
        }
        let (bytes, entries) = (self.leaf(right).to_vec(), self.leaves[right as usize].entries);
        for (_, member) in run::iter(&bytes) {
            self.index.move_to(self.index.tag(member), right, left);
        }
        let leaf = &mut self.leaves[left as usize];
        let joined = leaf.part.edit(self.index.flash_copies());
        self.leaf_bytes -= joined.capacity();
        let end = joined.len();
        gap(joined, end, bytes.len()).copy_from_slice(&bytes);
        self.leaf_bytes += joined.capacity();
        leaf.entries += entries;
        self.free_leaf(right);
        self.inners[inner as usize].count(left_at, entries as i32);
        let mut path = *path;
        path.steps[0].1 = left_at as u32 + 1;
        self.drop_child(&path, 0);
    }

    /// Removes the path's child at `level` from its inner node, and tidies up above. The child itself is already freed.
    fn drop_child(&mut self, path: &Path, level: usize) {
        let (inner, at) = path.steps[level];
        let left = self.change(inner, |inner| {
            inner.remove(at as usize);
            inner.children().len()
        });
        if level + 1 < self.height() {
            if left == 0 {
                self.free_inner(inner);
                self.drop_child(path, level + 1);
            } else if left < CHILDREN_MIN {
                self.join_inner(path, level + 1);
            }
        }
        while self.height() > 0 && self.inners[self.root as usize].children().len() == 1 {
            let old = self.root;
            self.root = self.inners[old as usize].children()[0].node;
            self.free_inner(old);
            self.levels -= 1;
        }
    }

    /// Merges the inner node at `level` of the path with a neighbour of the same parent, if both fit together.
    fn join_inner(&mut self, path: &Path, level: usize) {
        let (parent, at) = path.steps[level];
        let children = self.inners[parent as usize].children();
        let size = |child: &Child| self.inners[child.node as usize].children().len();
        let Some(left_at) = joinable(children, at as usize, size, CHILDREN_JOINED) else { return };
        let (left, right) = (children[left_at].node, children[left_at + 1]);
        let moved = self.free_inner(right.node);
        let start = self.change(parent, |parent| parent.take_start(left_at + 1));
        self.change(left, |left| left.append(moved, start));
        self.inners[parent as usize].count(left_at, right.entries as i32);
        let mut path = *path;
        path.steps[level].1 = left_at as u32 + 1;
        self.drop_child(&path, level);
    }
}

/// The left one of two neighbours, one of them at `at`, whose sizes add up to at most `most`.
fn joinable(children: &[Child], at: usize, size: impl Fn(&Child) -> usize, most: usize) -> Option<usize> {
    let fits = |left: usize| {
        children.get(left).zip(children.get(left + 1)).is_some_and(|(left, right)| size(left) + size(right) <= most)
    };
    [Some(at), at.checked_sub(1)].into_iter().flatten().find(|&left| fits(left))
}

/// The parts that an operation touches. [`crate::Boxed::fill`] loads them before the operation runs.
impl Tree {
    /// Records the parts for a member's score or rank, or for removing the member.
    pub fn want(&self, member: &[u8], out: &mut Absent) {
        if self.index.flash_copies().is_none() {
            return;
        }
        let tag = self.index.tag(member);
        if !self.index.is_here(tag) {
            return self.index.want(tag, out);
        }
        // If several leaves have this tag, only the leaves tell which one holds the member.
        _ = self.index.find(tag, |leaf| {
            self.want_leaf(leaf, out);
            false
        });
    }

    /// Records the parts for setting the scores of members, whether they exist or not.
    pub fn want_put<'m>(&self, entries: impl Iterator<Item = (&'m [u8], f64)>, out: &mut Absent) {
        if self.index.flash_copies().is_none() {
            return;
        }
        let mut more = HashMap::<u32, usize>::new();
        for (member, score) in entries {
            self.want(member, out);
            let leaf = self.descend(&Edge::Entry(score, member, Side::After)).leaf;
            *more.entry(leaf).or_default() += run::size(score, member);
        }
        for (leaf, bytes) in more {
            self.want_leaf(leaf, out);
            let part = &self.leaves[leaf as usize].part;
            // This leaf will be split.
            if !part.is_absent() && part.bytes().len() + bytes > self.leaf_bytes_max() {
                run::iter(part.bytes()).for_each(|(_, member)| self.index.want(self.index.tag(member), out));
            }
        }
    }

    /// Records the parts for the rank of an edge.
    pub fn want_rank(&self, edge: &Edge<'_>, out: &mut Absent) {
        self.want_leaf(self.descend(edge).leaf, out);
    }

    /// Records the parts for the entries with these ranks. They must exist.
    pub fn want_range(&self, ranks: Range<usize>, out: &mut Absent) {
        self.leaves_of(&ranks).for_each(|leaf| self.want_leaf(leaf, out));
    }

    /// Records the parts for removing the entries with these ranks. They must exist.
    pub fn want_remove_range(&self, ranks: Range<usize>, out: &mut Absent) {
        if self.index.flash_copies().is_none() {
            return;
        }
        for leaf in self.leaves_of(&ranks) {
            let part = &self.leaves[leaf as usize].part;
            match part.is_absent() {
                true => self.want_leaf(leaf, out),
                false => run::iter(part.bytes()).for_each(|(_, member)| self.index.want(self.index.tag(member), out)),
            }
        }
    }

    /// Records the parts for [`Tree::scan`].
    pub fn want_scan(&self, cursor: u64, count: usize, out: &mut Absent) {
        if self.index.flash_copies().is_none() {
            return;
        }
        let before = out.len();
        self.index.want_scan(cursor, count, out);
        if out.len() == before {
            self.index.scan(cursor, count, &mut |_, leaf| self.want_leaf(leaf, out));
        }
    }

    fn want_leaf(&self, leaf: u32, out: &mut Absent) {
        self.leaves[leaf as usize].part.want(leaf.into(), out);
    }

    /// The leaves of the entries with these ranks.
    fn leaves_of(&self, ranks: &Range<usize>) -> impl Iterator<Item = u32> {
        let (first, before) = if ranks.is_empty() { (NONE, 0) } else { self.leaf_of_rank(ranks.start) };
        let mut left = before + ranks.len();
        std::iter::successors(Some(first).filter(|&leaf| leaf != NONE), |&leaf| self.next_leaf(leaf)).take_while(
            move |&leaf| {
                let is_needed = left > 0;
                left = left.saturating_sub(self.leaves[leaf as usize].entries as usize);
                is_needed
            },
        )
    }
}

/// A walk over all entries, one leaf at a time, wherever the leaves are: see `walk`. The index holds nothing that the
/// leaves do not.
impl Tree {
    /// For the leaf of the entry with this rank: its place on flash if it is absent, and the first rank of the next
    /// leaf. `None`: no such rank.
    pub(crate) fn stretch(&self, rank: u64) -> Option<(Option<AbsentPart>, u64)> {
        let (number, before) = self.leaf_at(rank)?;
        let leaf = &self.leaves[number as usize];
        Some((leaf.part.absent(number.into()), rank - before as u64 + u64::from(leaf.entries)))
    }

    /// Visits the entries of that leaf from this rank on. `bytes` are the bytes of an absent leaf.
    pub(crate) fn walk(
        &self,
        rank: u64,
        bytes: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], f64),
    ) -> Result<(), Corrupt> {
        let Some((number, before)) = self.leaf_at(rank) else { return Ok(()) };
        let bytes = match bytes {
            Some(bytes) if !self.accepts(number.into(), bytes) => return Err(Corrupt),
            Some(bytes) => bytes,
            None => self.leaves[number as usize].part.peek(),
        };
        run::iter(bytes).skip(before).for_each(|(score, member)| visit(member, score));
        Ok(())
    }

    /// The leaf of the entry with this rank, and the entry's index in the leaf.
    fn leaf_at(&self, rank: u64) -> Option<(u32, usize)> {
        let rank = usize::try_from(rank).ok().filter(|&rank| rank < self.len)?;
        Some(self.leaf_of_rank(rank))
    }
}

/// The tree in a skeleton: see `crate::skeleton`.
impl Tree {
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        self.index.save(out);
        out.push(self.levels);
        put_number(out, self.leaves.len() as u64);
        put_number(out, self.leaves_free.len() as u64);
        self.leaves_free.iter().for_each(|&leaf| put_number(out, leaf.into()));
        self.save_node(self.root, self.height(), out);
    }

    fn save_node(&self, node: u32, level: usize, out: &mut Vec<u8>) {
        if level == 0 {
            let leaf = &self.leaves[node as usize];
            put_number(out, node.into());
            put_number(out, leaf.entries.into());
            return leaf.part.save(out);
        }
        let inner = &self.inners[node as usize];
        put_number(out, inner.children().len() as u64);
        for (at, child) in inner.children().iter().enumerate() {
            if at > 0 {
                let (score, name) = inner.start(at);
                out.extend_from_slice(&score.to_le_bytes());
                put_text(out, name);
            }
            self.save_node(child.node, level - 1, out);
        }
    }

    pub(crate) fn load(input: &mut Input<'_>) -> Result<Tree, Corrupt> {
        let mut tree = Tree::new();
        tree.index = Index::load(input)?;
        tree.levels = Some(input.byte()?).filter(|&levels| usize::from(levels) <= HEIGHT_MAX).ok_or(Corrupt)?;
        let leaves = input.count(1)?;
        tree.leaves = vec![Leaf::default(); leaves];
        let mut is_taken = vec![false; leaves];
        let mut take = |leaf: u32| {
            let is_taken = is_taken.get_mut(leaf as usize).ok_or(Corrupt)?;
            if std::mem::replace(is_taken, true) { Err(Corrupt) } else { Ok(()) }
        };
        for _ in 0..input.count(1)? {
            let leaf = input.short()?;
            take(leaf)?;
            tree.leaves_free.push(leaf);
        }
        let mut last = NONE;
        let root = tree.load_node(input, tree.height(), &mut last, &mut take)?;
        (tree.root, tree.len) = (root.node, root.entries as usize);
        let is_whole = is_taken.iter().all(|&is_taken| is_taken) && tree.len == tree.index.len() && tree.len > 0;
        if is_whole && tree.index.is_sound(leaves) { Ok(tree) } else { Err(Corrupt) }
    }

    /// `last`: the last leaf before this node. `take` refuses the number of a leaf that is used already.
    fn load_node(
        &mut self,
        input: &mut Input<'_>,
        level: usize,
        last: &mut u32,
        take: &mut dyn FnMut(u32) -> Result<(), Corrupt>,
    ) -> Result<Child, Corrupt> {
        if level == 0 {
            let (number, entries, part) = (input.short()?, input.short()?, Part::load(input)?);
            take(number)?;
            self.leaf_bytes += part.capacity();
            self.leaves[number as usize] = Leaf { part, entries, prev: *last, next: NONE };
            let leaf = &self.leaves[number as usize];
            if !leaf.part.is_absent() && !self.accepts(number.into(), leaf.part.peek()) {
                return Err(Corrupt);
            }
            if *last != NONE {
                self.leaves[*last as usize].next = number;
            }
            *last = number;
            return Ok(Child::new(number, entries));
        }
        let children = input.count(4)?;
        if children == 0 || children >= CHILDREN_MAX {
            return Err(Corrupt);
        }
        let first = self.load_node(input, level - 1, last, take)?;
        let (mut inner, mut entries) = (Inner::with_child(first), first.entries);
        for at in 1..children {
            let score = f64::from_le_bytes(input.array()?);
            let start = Start::new(score, input.text()?);
            let child = self.load_node(input, level - 1, last, take)?;
            entries = entries.checked_add(child.entries).filter(|_| !score.is_nan()).ok_or(Corrupt)?;
            inner.insert(at, child, start);
        }
        Ok(Child::new(self.new_inner(inner), entries))
    }
}

impl Parts for Tree {
    fn flash_copies(&self) -> &FlashCopiesOf {
        self.index.flash_copies()
    }

    fn set_flash_copies(&mut self, flash_copies: Arc<dyn FlashCopies>) {
        self.index.set_flash_copies(flash_copies);
    }

    fn part(&self, number: u64) -> Option<&Part> {
        if Index::owns(number) {
            return self.index.part(number);
        }
        self.leaves.get(number as usize).map(|leaf| &leaf.part)
    }

    fn part_mut(&mut self, number: u64) -> Option<&mut Part> {
        if Index::owns(number) {
            return self.index.part_mut(number);
        }
        self.leaves.get_mut(number as usize).map(|leaf| &mut leaf.part)
    }

    fn next_part(&self, from: u64) -> Option<u64> {
        if from < self.leaves.len() as u64 { Some(from) } else { self.index.next_part(from) }
    }

    fn accepts(&self, number: u64, bytes: &[u8]) -> bool {
        if Index::owns(number) {
            return self.index.accepts(number, bytes, self.leaves.len());
        }
        let leaf = self.leaves.get(number as usize);
        leaf.is_some_and(|leaf| run::check(bytes).is_ok() && run::len(bytes) == leaf.entries as usize)
    }

    fn grown(&mut self, number: u64, by: isize) {
        if Index::owns(number) {
            return self.index.grown(number, by);
        }
        self.leaf_bytes = self.leaf_bytes.wrapping_add_signed(by);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let flash_copies = self.index.flash_copies();
        if flash_copies.is_some() {
            self.leaves.iter().for_each(|leaf| leaf.part.forget_copy(flash_copies));
        }
    }
}

impl Clone for Tree {
    /// The copy is in memory and has nothing on flash.
    fn clone(&self) -> Tree {
        let leaves = self.leaves.clone();
        Tree {
            leaf_bytes: leaves.iter().map(|leaf| leaf.part.capacity()).sum(),
            leaves,
            leaves_free: self.leaves_free.clone(),
            inners: self.inners.clone(),
            inners_free: self.inners_free.clone(),
            index: self.index.clone(),
            inner_bytes: self.inner_bytes,
            root: self.root,
            levels: self.levels,
            len: self.len,
        }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("len", &self.len).field("height", &self.height()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
