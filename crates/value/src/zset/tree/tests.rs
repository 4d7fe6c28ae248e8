use super::super::View;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

impl Tree {
    /// The invariants of the tree.
    fn check(&self) {
        let (mut entries, mut bytes, mut leaves, mut last) = (0, 0, Vec::new(), None::<(f64, Vec<u8>)>);
        if self.height() == 0 {
            leaves.push(self.root);
        } else {
            self.check_inner(self.root, self.height() - 1, &mut leaves);
        }
        let mut prev = NONE;
        for (at, &leaf) in leaves.iter().enumerate() {
            let Leaf { part, entries: count, prev: before, next } = &self.leaves[leaf as usize];
            let run = part.bytes();
            assert_eq!((*before, *next), (prev, leaves.get(at + 1).copied().unwrap_or(NONE)));
            assert_eq!(run::len(run), *count as usize);
            run::check(run).unwrap();
            if let (Some((score, member)), Some((first, name))) = (&last, run::iter(run).next()) {
                assert!(Edge::Entry(first, name, Side::Before).is_after(*score, member), "leaves are in order");
            }
            for (score, member) in run::iter(run) {
                assert!(self.index.find(self.index.tag(member), |other| other == leaf).is_ok());
                last = Some((score, member.to_vec()));
            }
            (entries, bytes, prev) = (entries + count, bytes + part.capacity(), leaf);
        }
        assert_eq!((entries as usize, bytes), (self.len, self.leaf_bytes));
        self.index.check(self.len);
        assert_eq!(self.leaves.len(), leaves.len() + self.leaves_free.len());
        assert_eq!(self.inner_bytes, self.inners.iter().map(Inner::mem_bytes).sum());
    }

    fn empty_leaves(&self) -> usize {
        self.leaves.iter().filter(|leaf| leaf.entries == 0).count() - self.leaves_free.len()
    }

    fn check_inner(&self, inner: u32, level: usize, leaves: &mut Vec<u32>) -> u32 {
        let inner = &self.inners[inner as usize];
        let children = inner.children();
        assert!(!children.is_empty() && children.len() < CHILDREN_MAX);
        for (at, child) in children.iter().enumerate() {
            let from = leaves.len();
            let entries = if level == 0 {
                leaves.push(child.node);
                self.leaves[child.node as usize].entries
            } else {
                self.check_inner(child.node, level - 1, leaves)
            };
            assert_eq!(entries, child.entries);
            let mut own = leaves[from..].iter().flat_map(|&leaf| run::iter(self.leaf(leaf)));
            assert!(own.all(|(score, member)| inner.begins_behind(at, score, member) != Some(true)));
            let mut before = leaves[..from].iter().rev().filter_map(|&leaf| run::iter(self.leaf(leaf)).last());
            assert!(before.next().is_none_or(|(score, member)| inner.begins_behind(at, score, member) != Some(false)));
        }
        children.iter().map(|child| child.entries).sum()
    }
}

fn name(n: usize) -> Vec<u8> {
    format!("member:{n}").into_bytes()
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
    (*seed >> 33) as usize
}

#[test]
fn a_large_set_takes_a_third_of_redis_s_memory() {
    // Redis: 24 bytes of entry, 8 to 16 of bucket, 16 of string and 48 of node for ten bytes of member.
    let mut seed = 1;
    let mut tree = Tree::new();
    for n in 0..100_000 {
        tree.insert(format!("{n:010}").as_bytes(), (random(&mut seed) % 1_000_000) as f64);
    }
    tree.check();
    let each = tree.mem_bytes() as f64 / tree.len() as f64;
    assert!(each < 40.0, "{each}");
    // With ordered insertion, leaves are full.
    let mut tree = Tree::new();
    for n in 0..100_000 {
        tree.insert(format!("{n:010}").as_bytes(), n as f64);
    }
    tree.check();
    let each = tree.mem_bytes() as f64 / tree.len() as f64;
    assert!(each < 38.0, "{each}");
}

#[test]
fn ranks_scores_and_ranges_agree_in_a_large_set() {
    let (mut seed, mut tree, mut model) = (7, Tree::new(), BTreeMap::new());
    // Some scores have thousands of members, more than the entries below any inner node.
    for n in 0..30_000 {
        let score = if n % 3 == 0 { 5.0 } else { (random(&mut seed) % 2000) as f64 / 4.0 };
        assert!(tree.insert(&name(n), score));
        model.insert(((score * 4.0) as i64, name(n)), score);
    }
    tree.check();
    assert!(tree.height() >= 2);
    let view = View::Tree(&tree);
    let sorted: Vec<(f64, Vec<u8>)> = model.iter().map(|((_, member), &score)| (score, member.clone())).collect();
    assert!(view.iter().eq(sorted.iter().map(|(score, member)| (*score, &member[..]))));
    for (rank, (score, member)) in sorted.iter().enumerate().step_by(97) {
        assert_eq!(view.rank_of(member), Some((rank, *score)));
        assert_eq!(view.range(rank, 1, false).next(), Some((*score, &member[..])));
        assert_eq!(tree.rank(&Edge::Entry(*score, member, Side::After)), rank + 1);
        let before = sorted.partition_point(|(other, _)| other < score);
        assert_eq!(tree.rank(&Edge::Score(*score, Side::Before)), before);
        let after = sorted.partition_point(|(other, _)| other <= score);
        assert_eq!(tree.rank(&Edge::Score(*score, Side::After)), after);
        assert_eq!(tree.rank(&Edge::Score(score + 0.1, Side::Before)), after);
        let reverse: Vec<_> = view.range(rank, (rank + 1).min(90), true).collect();
        let wanted = sorted[..=rank].iter().rev().take(90).map(|(score, member)| (*score, &member[..]));
        assert!(reverse.into_iter().eq(wanted));
    }
    assert_eq!(tree.rank(&Edge::END), 30_000);
    assert_eq!(tree.rank(&Edge::START), 0);
}

#[test]
fn nodes_go_when_members_do() {
    let (mut seed, mut tree) = (3, Tree::new());
    for n in 0..60_000 {
        tree.insert(&name(n), (random(&mut seed) % 1000) as f64);
    }
    let full = tree.mem_bytes();
    for n in 0..59_950 {
        assert!(tree.remove(&name(n)).is_some());
        if n % 5000 == 0 {
            tree.check();
        }
    }
    tree.check();
    assert!(tree.height() <= 1);
    // The slots of freed leaves remain.
    assert!(tree.mem_bytes() < full / 4, "{} of {full}", tree.mem_bytes());
    tree.remove_range(0..50);
    tree.check();
    assert_eq!((tree.len(), tree.height()), (0, 0));
    assert!(tree.insert(b"again", 1.0));
    assert_eq!(tree.score(b"again"), Some(1.0));
}

#[test]
fn a_walk_visits_what_stays_exactly_once_while_scores_change() {
    let (mut seed, mut tree) = (9, Tree::new());
    for n in 0..3000 {
        tree.insert(&name(n), n as f64);
    }
    let (mut cursor, mut seen, mut step) = (0, BTreeMap::<Vec<u8>, usize>::new(), 0);
    loop {
        let next = tree.scan(cursor, 10, &mut |member, _| *seen.entry(member.to_vec()).or_default() += 1);
        for _ in 0..30 {
            step += 1;
            tree.set_score(&name(random(&mut seed) % 3000), (random(&mut seed) % 5000) as f64);
            tree.insert(format!("new:{step}").as_bytes(), step as f64);
        }
        match next {
            Step::Next(next) => cursor = next,
            Step::End => break,
        }
    }
    tree.check();
    assert!((0..3000).all(|n| seen.get(&name(n)) == Some(&1)));
}

#[test]
fn large_members_are_members() {
    let mut tree = Tree::new();
    for n in 0..200 {
        tree.insert(&[&name(n)[..], &[b'x'; 3000]].concat(), (n % 7) as f64);
    }
    tree.check();
    for n in 0..200 {
        assert_eq!(tree.remove(&[&name(n)[..], &[b'x'; 3000]].concat()), Some((n % 7) as f64));
    }
    tree.check();
}

proptest! {
    #[test]
    fn behaves_as_a_sorted_list(ops in proptest::collection::vec((0..5u8, 0..400usize, -20..20i32), 0..1500)) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::<Vec<u8>, f64>::new());
        for (op, n, score) in ops {
            let score = f64::from(score) / 2.0;
            match op {
                0 => prop_assert_eq!(tree.remove(&name(n)), model.remove(&name(n))),
                1 if model.contains_key(&name(n)) => {
                    tree.set_score(&name(n), score);
                    model.insert(name(n), score);
                }
                2 if n == 0 => {
                    let range = model.len() / 3..model.len() / 2;
                    let sorted = sorted(&model);
                    tree.remove_range(range.clone());
                    sorted[range].iter().for_each(|(_, member)| _ = model.remove(member));
                }
                _ => {
                    let is_new = !model.contains_key(&name(n));
                    prop_assert_eq!(tree.insert(&name(n), score), is_new);
                    model.entry(name(n)).or_insert(score);
                }
            }
        }
        tree.check();
        prop_assert!(tree.empty_leaves() == 0 || tree.is_empty());
        let sorted = sorted(&model);
        prop_assert!(View::Tree(&tree).iter().eq(sorted.iter().map(|(score, member)| (*score, &member[..]))));
        let mut bytes = Vec::new();
        tree.encode(&mut bytes);
        let back = Tree::decode(&bytes).unwrap();
        back.check();
        prop_assert!(View::Tree(&back).iter().eq(View::Tree(&tree).iter()));
        prop_assert!(Tree::decode(&bytes[..bytes.len() - 1]).is_err());
        // The packed form must agree.
        let run = View::Run(&bytes[1 + usize::from(bytes[0] > 127)..]);
        for (rank, (score, member)) in sorted.iter().enumerate() {
            prop_assert_eq!(run.rank_of(member), Some((rank, *score)));
            prop_assert_eq!(View::Tree(&tree).rank_of(member), Some((rank, *score)));
        }
        prop_assert_eq!(run.range(model.len() / 2, model.len() / 4, false).count(), model.len() / 4);
        if !model.is_empty() {
            let back: Vec<_> = run.range(model.len() - 1, model.len(), true).collect();
            prop_assert!(back.iter().rev().copied().eq(run.iter()));
        }
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(tree) = Tree::decode(&bytes) {
            tree.check();
        }
    }
}

fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(f64, Vec<u8>)> {
    let mut sorted: Vec<_> = model.iter().map(|(member, &score)| (score, member.clone())).collect();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    sorted
}

#[test]
fn members_twice_in_an_encoding_are_corrupt() {
    assert_eq!(Tree::decode(b"\x02\x01\x01a\x02\x01a").err(), Some(Corrupt));
    assert_eq!(Tree::decode(b"\x01\x01\x01a\x02\x01b").err(), Some(Corrupt));
    let names: BTreeSet<&[u8]> = [&b"a"[..], b"b"].into();
    let tree = Tree::decode(b"\x02\x01\x01a\x02\x01b").unwrap();
    assert_eq!(View::Tree(&tree).iter().map(|(_, member)| member).collect::<BTreeSet<_>>(), names);
}

// --- parts on flash ---

use crate::Boxed;
use crate::part::testing::Flash;

fn zset(value: &mut Boxed) -> &mut Tree {
    let Boxed::ZSet(tree) = value else { unreachable!() };
    tree
}

fn seen(value: &Boxed) -> &Tree {
    let Boxed::ZSet(tree) = value else { unreachable!() };
    tree
}

/// A sorted set of which only the skeleton is in memory.
fn sent(members: usize, score: impl Fn(usize) -> f64) -> (Boxed, Arc<Flash>) {
    let mut tree = Tree::new();
    (0..members).for_each(|n| _ = tree.insert(&name(n), score(n)));
    let (mut value, flash) = (Boxed::ZSet(tree), Arc::new(Flash::default()));
    flash.send(&mut value);
    (value, flash)
}

#[test]
fn the_skeleton_is_small() {
    for score in [0.0, 1.5] {
        let (mut value, flash) = sent(30_000, |n| n as f64 * score);
        let left = value.mem_bytes();
        flash.bring(&mut value, |value, out| value.absent(out));
        assert!(left < value.mem_bytes() / 3, "{left} of {}", value.mem_bytes());
        seen(&value).check();
        drop(value);
        assert_eq!(flash.len(), 0);
    }
}

#[test]
fn an_operation_needs_few_parts() {
    for tie in [false, true] {
        let score = |n: usize| if tie { 3.0 } else { (n * 7919 % 30_000) as f64 };
        let (mut value, flash) = sent(30_000, score);
        assert_eq!(flash.bring(&mut value, |value, out| seen(value).want(b"member:77", out)), 2);
        assert_eq!(seen(&value).score(b"member:77"), Some(score(77)));
        assert!(seen(&value).rank_of(b"member:77").is_some());
        // No such member: the index alone can tell.
        assert!(flash.bring(&mut value, |value, out| seen(value).want(b"member:x", out)) <= 1);
        assert_eq!(seen(&value).score(b"member:x"), None);
        assert!(flash.bring(&mut value, |value, out| seen(value).want_range(12_345..12_355, out)) <= 3);
        assert_eq!(View::Tree(seen(&value)).range(12_345, 10, false).count(), 10);
        assert_eq!(View::Tree(seen(&value)).range(12_354, 10, true).count(), 10);
        let edge = Edge::Entry(3.0, b"member:20500", Side::Before);
        assert!(flash.bring(&mut value, |value, out| seen(value).want_rank(&edge, out)) <= 1);
        seen(&value).rank(&edge);
        // The leaf, and the index entries of the members that go.
        assert!(flash.bring(&mut value, |value, out| seen(value).want_remove_range(29_999..30_000, out)) <= 50);
        zset(&mut value).remove_range(29_999..30_000);
        let mut visited = 0;
        assert!(flash.bring(&mut value, |value, out| seen(value).want_scan(1 << 20, 10, out)) <= 80);
        seen(&value).scan(1 << 20, 10, &mut |_, _| visited += 1);
        assert!(visited >= 10);
        flash.bring(&mut value, |value, out| value.absent(out));
        seen(&value).check();
    }
}

#[test]
fn a_thousand_members_come_to_one_cold_leaf() {
    let (mut value, flash) = sent(2000, |n| n as f64);
    let new: Vec<Vec<u8>> = (0..1000).map(|n| format!("new:{n}").into_bytes()).collect();
    let entries = || new.iter().map(|member| (&member[..], 700.5));
    flash.bring(&mut value, |value, out| seen(value).want_put(entries(), out));
    entries().for_each(|(member, score)| assert!(zset(&mut value).insert(member, score)));
    flash.bring(&mut value, |value, out| value.absent(out));
    seen(&value).check();
    let longest = seen(&value).leaves.iter().map(|leaf| leaf.part.bytes().len()).max().unwrap();
    assert!(longest <= PART_BYTES_MAX, "{longest}");
}

#[test]
fn a_queue_leaves_no_empty_leaves_behind() {
    let (mut value, flash) = sent(3000, |n| n as f64);
    for round in 0..3500 {
        let tree = zset(&mut value);
        let len = tree.len();
        if len > 0 {
            flash.bring(&mut value, |value, out| seen(value).want_remove_range(0..1, out));
            zset(&mut value).remove_range(0..1);
            assert_eq!(seen(&value).len(), len - 1);
        }
        if round % 10 == 0 {
            flash.send(&mut value);
        }
        let tree = seen(&value);
        assert!(tree.empty_leaves() <= 2, "round {round}");
    }
    assert_eq!(flash.len(), 0);
}

#[test]
fn parts_of_another_shape_are_corrupt() {
    let (mut value, _flash) = sent(1000, |n| n as f64);
    let mut absent = Absent::new();
    value.absent(&mut absent);
    for part in [absent[0], *absent.last().unwrap()] {
        for bytes in [&b""[..], b"\x01\x01a", b"\0\0\0\0\xff\xff\xff\xff", b"junk"] {
            assert_eq!(value.fill(part.number, part.place, bytes), Err(Corrupt));
        }
    }
}

proptest! {
    #[test]
    fn behaves_as_a_sorted_list_while_its_parts_come_and_go(
        ops in proptest::collection::vec((0..10u8, 0..400usize, 0..40i32), 0..600),
        spread in 1..4i32,
    ) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::<Vec<u8>, f64>::new());
        for n in 0..300 {
            let score = f64::from(n % (spread * spread * spread));
            tree.insert(&name(n as usize), score);
            model.insert(name(n as usize), score);
        }
        let (mut value, flash) = (Boxed::ZSet(tree), Arc::new(Flash::default()));
        for (op, n, score) in ops {
            let (member, score) = (name(n), f64::from(score) / 2.0);
            match op {
                0 => flash.send(&mut value),
                1 | 2 => {
                    flash.bring(&mut value, |value, out| seen(value).want(&member, out));
                    prop_assert_eq!(zset(&mut value).remove(&member), model.remove(&member));
                }
                3..6 => {
                    // Two at a time, as in a command that reads everything before it writes.
                    let entries = [(&member[..], score), (&name(n / 2)[..], score + 1.0)];
                    flash.bring(&mut value, |value, out| seen(value).want_put(entries.into_iter(), out));
                    for (member, score) in entries {
                        let is_new = model.insert(member.to_vec(), score).is_none();
                        if is_new {
                            prop_assert!(zset(&mut value).insert(member, score));
                        } else {
                            zset(&mut value).set_score(member, score);
                        }
                    }
                }
                6 if !model.is_empty() => {
                    let start = n % model.len();
                    let ranks = start..(start + 1 + n / 9).min(model.len());
                    flash.bring(&mut value, |value, out| seen(value).want_remove_range(ranks.clone(), out));
                    let gone = sorted(&model)[ranks.clone()].to_vec();
                    zset(&mut value).remove_range(ranks);
                    gone.iter().for_each(|(_, member)| _ = model.remove(member));
                }
                7 if !model.is_empty() => {
                    let sorted = sorted(&model);
                    let start = n % model.len();
                    let ranks = start..(start + n / 5).min(model.len());
                    flash.bring(&mut value, |value, out| seen(value).want_range(ranks.clone(), out));
                    let found: Vec<_> = View::Tree(seen(&value)).range(start, ranks.len(), false).collect();
                    let back: Vec<_> = if ranks.is_empty() {
                        Vec::new()
                    } else {
                        View::Tree(seen(&value)).range(ranks.end - 1, ranks.len(), true).collect()
                    };
                    let wanted = sorted[ranks].iter().map(|(score, member)| (*score, &member[..]));
                    prop_assert!(back.into_iter().rev().eq(wanted.clone()));
                    prop_assert!(found.into_iter().eq(wanted));
                }
                8 => {
                    let cursor = (n as u64) << 23;
                    flash.bring(&mut value, |value, out| seen(value).want_scan(cursor, n / 20, out));
                    seen(&value).scan(cursor, n / 20, &mut |member, score| assert_eq!(model.get(member), Some(&score)));
                }
                _ => {
                    let sorted = sorted(&model);
                    for side in [Side::Before, Side::After] {
                        for edge in [Edge::Score(score, side), Edge::Entry(score, &member, side)] {
                            flash.bring(&mut value, |value, out| seen(value).want_rank(&edge, out));
                            let rank = sorted.partition_point(|(score, member)| edge.is_after(*score, member));
                            prop_assert_eq!(seen(&value).rank(&edge), rank);
                        }
                    }
                    flash.bring(&mut value, |value, out| seen(value).want(&member, out));
                    let rank = sorted.iter().position(|(_, other)| *other == member);
                    prop_assert_eq!(seen(&value).rank_of(&member), rank.map(|rank| (rank, sorted[rank].0)));
                }
            }
            prop_assert_eq!(seen(&value).len(), model.len());
        }
        flash.bring(&mut value, |value: &Boxed, out: &mut Absent| value.absent(out));
        seen(&value).check();
        let copy = value.clone();
        seen(&copy).check();
        prop_assert!(copy.shelf_id().is_none());
        let sorted = sorted(&model);
        prop_assert!(View::Tree(seen(&value)).iter().eq(sorted.iter().map(|(score, member)| (*score, &member[..]))));
        drop(value);
        prop_assert_eq!(flash.len(), 0);
        prop_assert!(View::Tree(seen(&copy)).iter().eq(sorted.iter().map(|(score, member)| (*score, &member[..]))));
    }
}
