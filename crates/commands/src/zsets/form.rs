//! Owns a sorted set in either form, when it changes from one form to the other, and how its entries are written. Never
//! knows commands.

use crate::cx::{Cx, Settings};
use crate::stop::{Stop, WRONG_TYPE};
use resp::format_double;
use resp::reply::{Out, Proto};
use std::ops::Range;
use store::{Class, Key, Kind, NOTHING, Value, ValueMut};
use value::zset::{Tree, View, run};
use value::{Absent, Boxed, Buffer};

pub fn zset(value: Option<Value<'_>>) -> Result<Option<View<'_>>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Inline(Kind::ZSet, bytes)) => Ok(Some(View::Run(bytes))),
        Some(Value::Boxed(Boxed::ZSet(tree))) => Ok(Some(View::Tree(tree))),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// The parts of a sorted set that `want` names.
pub fn of_tree(want: impl Fn(&Tree, &mut Absent)) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| {
        if let Boxed::ZSet(tree) = value {
            want(tree, out);
        }
    }
}

/// The parts of these members, whose scores or ranks are read, or which are removed.
pub fn of_members<'a>(members: impl Iterator<Item = &'a [u8]> + Clone) -> impl Fn(&Boxed, &mut Absent) {
    of_tree(move |tree, out| members.clone().for_each(|member| tree.want(member, out)))
}

/// The limits up to which a sorted set stays packed.
#[derive(Clone, Copy)]
pub struct Limits {
    pub entries: usize,
    bytes: usize,
}

impl Limits {
    pub fn of(settings: &Settings) -> Limits {
        Limits { entries: settings.zset_max_listpack_entries, bytes: settings.zset_max_listpack_value }
    }

    fn allow(self, run: &[u8], member: &[u8]) -> bool {
        member.len() <= self.bytes && run::len(run) < self.entries
    }
}

/// Sets a member's score in a run. If the set must become a tree first, the run does not change and the new tree is
/// returned. `put` converts the score to the one that the run stores.
fn set_in_run<B: Buffer>(
    buffer: &mut B,
    member: &[u8],
    score: f64,
    limits: Limits,
    put: fn(f64) -> f64,
) -> Option<Tree> {
    match run::find(buffer.bytes(), member) {
        Some(place) => run::remove(buffer, place),
        None if !limits.allow(buffer.bytes(), member) => {
            let mut tree = Tree::from_run(buffer.bytes());
            tree.insert(member, score);
            return Some(tree);
        }
        None => {}
    }
    run::insert(buffer, put(score), member);
    None
}

/// Redis stores no minus zero in its packed form. Its skip list can contain one, and so can packed forms in old files.
fn packed(score: f64) -> f64 {
    score + 0.0
}

fn set_in_tree(tree: &mut Tree, member: &[u8], score: f64) {
    if !tree.insert(member, score) {
        tree.set_score(member, score);
    }
}

/// A sorted set during a change.
pub struct Edit<'v, 'k> {
    pub value: &'v mut ValueMut<'k>,
}

impl Edit<'_, '_> {
    fn tree(&mut self) -> Option<&mut Tree> {
        match self.value.boxed() {
            Some(Boxed::ZSet(tree)) => Some(tree),
            Some(_) => unreachable!("its kind was looked at"),
            None => None,
        }
    }

    pub fn score(&mut self, member: &[u8]) -> Option<f64> {
        if let Some(tree) = self.tree() {
            return tree.score(member);
        }
        View::Run(self.value.bytes()).score(member)
    }

    pub fn set(&mut self, member: &[u8], score: f64, limits: Limits) {
        if let Some(tree) = self.tree() {
            set_in_tree(tree, member, score);
        } else if let Some(tree) = set_in_run(self.value, member, score, limits, packed) {
            self.value.replace_boxed(Boxed::ZSet(tree));
        }
    }

    /// True: the member was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if let Some(tree) = self.tree() {
            return tree.remove(member).is_some();
        }
        let place = run::find(self.value.bytes(), member);
        if let Some(place) = place {
            run::remove(self.value, place);
        }
        place.is_some()
    }

    pub fn remove_range(&mut self, ranks: Range<usize>) {
        match self.tree() {
            Some(tree) => tree.remove_range(ranks),
            None => run::remove_range(self.value, ranks),
        }
    }

    pub fn is_empty(&mut self) -> bool {
        match self.tree() {
            Some(tree) => tree.is_empty(),
            None => self.value.bytes().is_empty(),
        }
    }

    pub fn make_tree(&mut self) {
        if self.tree().is_none() {
            let tree = Tree::from_run(self.value.bytes());
            self.value.replace_boxed(Boxed::ZSet(tree));
        }
    }
}

/// Removes the entries with these ranks, and removes the key together with its last entry. The sorted set and the
/// entries exist.
pub fn remove_range(cx: &mut Cx<'_>, key: &Key<'_>, ranks: Range<usize>, event: &'static str) -> Result<(), Stop> {
    let Some(mut value) = cx.ks.get_mut_for(key, NOTHING)? else { return Ok(()) };
    let mut edit = Edit { value: &mut value };
    edit.remove_range(ranks);
    let is_empty = edit.is_empty();
    cx.ks.event(Class::SORTED_SET, event, key);
    if is_empty {
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
    }
    Ok(())
}

/// A new sorted set that is not yet at a key.
pub enum Draft {
    Run(Vec<u8>),
    Tree(Tree),
}

impl Draft {
    /// A draft in the form for `members` members, the first of which is `first`.
    pub fn new(first: &[u8], members: usize, limits: Limits) -> Draft {
        if members <= limits.entries && first.len() <= limits.bytes {
            Draft::Run(Vec::new())
        } else {
            Draft::Tree(Tree::new())
        }
    }

    /// The entries are distinct members, in order.
    pub fn of_sorted<M: AsRef<[u8]>>(entries: &[(f64, M)], limits: Limits) -> Draft {
        let is_small =
            entries.len() <= limits.entries && entries.iter().all(|(_, member)| member.as_ref().len() <= limits.bytes);
        if is_small {
            let mut bytes = Vec::new();
            entries.iter().for_each(|(score, member)| run::append(&mut bytes, packed(*score), member.as_ref()));
            return Draft::Run(bytes);
        }
        let mut tree = Tree::new();
        entries.iter().for_each(|(score, member)| _ = tree.insert(member.as_ref(), *score));
        Draft::Tree(tree)
    }

    pub fn view(&self) -> View<'_> {
        match self {
            Draft::Run(bytes) => View::Run(bytes),
            Draft::Tree(tree) => View::Tree(tree),
        }
    }

    pub fn set(&mut self, member: &[u8], score: f64, limits: Limits) {
        self.set_as(member, score, limits, packed);
    }

    /// Adds an entry of a packed form that was made elsewhere: a minus zero stays as it is.
    pub fn set_packed(&mut self, member: &[u8], score: f64, limits: Limits) {
        self.set_as(member, score, limits, |score| score);
    }

    fn set_as(&mut self, member: &[u8], score: f64, limits: Limits, put: fn(f64) -> f64) {
        match self {
            Draft::Tree(tree) => set_in_tree(tree, member, score),
            Draft::Run(bytes) => {
                if let Some(tree) = set_in_run(bytes, member, score, limits, put) {
                    *self = Draft::Tree(tree);
                }
            }
        }
    }

    /// Replaces whatever the key holds by this sorted set.
    pub fn put(self, cx: &mut Cx<'_>, key: &Key<'_>) {
        match self {
            Draft::Run(bytes) => cx.ks.set_packed(key, Kind::ZSet, &bytes, None),
            Draft::Tree(tree) => cx.ks.set_boxed(key, Boxed::ZSet(tree), None),
        }
    }

    /// The command that creates this sorted set at an absent key.
    pub fn as_zadd(&self, key: &Key<'_>) -> Vec<Vec<u8>> {
        let mut words = vec![b"ZADD".to_vec(), key.name.to_vec()];
        for (score, member) in self.view().iter() {
            let mut text = Vec::new();
            format_double(score, &mut text);
            words.extend([text, member.to_vec()]);
        }
        words
    }

    /// Like [`Draft::put`]; without entries, removes what the key holds. Returns the number of entries.
    pub fn store(self, cx: &mut Cx<'_>, key: &Key<'_>, event: &'static str) -> Result<usize, Stop> {
        let len = self.view().len();
        if len > 0 {
            self.put(cx, key);
            cx.ks.event(Class::SORTED_SET, event, key);
        } else if cx.ks.clear(key)? {
            cx.ks.event(Class::GENERIC, "del", key);
        }
        Ok(len)
    }
}

/// A reply of entries. RESP3 sends a member and its score as an array of their own.
pub struct Entries<'o, 'b> {
    pub out: &'o mut Out<'b>,
    pub with_scores: bool,
}

impl Entries<'_, '_> {
    pub fn header(&mut self, entries: usize) {
        let flat = self.with_scores && self.out.proto() == Proto::Resp2;
        self.out.array(if flat { 2 * entries } else { entries });
    }

    pub fn entry(&mut self, score: f64, member: &[u8]) {
        if self.with_scores && self.out.proto() == Proto::Resp3 {
            self.out.array(2);
        }
        self.out.bulk(member);
        if self.with_scores {
            self.out.double(score);
        }
    }
}
