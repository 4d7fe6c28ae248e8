use super::super::View;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

impl Tree {
    /// What must always hold.
    fn check(&self) {
        let (mut entries, mut bytes, mut leaves, mut last) = (0, 0, Vec::new(), None::<(f64, Vec<u8>)>);
        if self.height == 0 {
            leaves.push(self.root);
        } else {
            self.check_inner(self.root, self.height - 1, &mut leaves);
        }
        let mut prev = NONE;
        for (at, &leaf) in leaves.iter().enumerate() {
            let Leaf { bytes: run, entries: count, prev: before, next } = &self.leaves[leaf as usize];
            assert_eq!((*before, *next), (prev, leaves.get(at + 1).copied().unwrap_or(NONE)));
            assert_eq!(run::len(run), *count as usize);
            assert!(!run.is_empty() || self.len == 0);
            run::check(run).unwrap();
            if let (Some((score, member)), Some((first, name))) = (&last, run::iter(run).next()) {
                assert!(Edge::Entry(first, name, Side::Before).is_after(*score, member), "leaves are in order");
            }
            for (score, member) in run::iter(run) {
                assert!(self.index.find(tag(member), |other| other == leaf).is_ok());
                last = Some((score, member.to_vec()));
            }
            (entries, bytes, prev) = (entries + count, bytes + run.capacity(), leaf);
        }
        assert_eq!((entries as usize, bytes), (self.len, self.leaf_bytes));
        self.index.check(self.len);
        assert_eq!(self.leaves.len(), leaves.len() + self.leaves_free.len());
    }

    fn check_inner(&self, inner: u32, level: usize, leaves: &mut Vec<u32>) -> u32 {
        let children = &self.inners[inner as usize].children;
        assert!(!children.is_empty() && children.len() < CHILDREN_MAX);
        assert!(self.inners[inner as usize].children.capacity() <= CHILDREN_MAX);
        for (at, child) in children.iter().enumerate() {
            let from = leaves.len();
            let entries = if level == 0 {
                leaves.push(child.node);
                self.leaves[child.node as usize].entries
            } else {
                self.check_inner(child.node, level - 1, leaves)
            };
            assert_eq!(entries, child.entries);
            if at > 0 {
                let first = run::iter(self.leaf(leaves[from])).next().unwrap().0;
                let before = run::iter(self.leaf(leaves[from - 1])).last().unwrap().0;
                assert!(before <= child.least, "{before} {}", child.least);
                assert!(child.least <= first, "{} {first}", child.least);
            }
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
    // In order, leaves are full.
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
    // Some scores have thousands of members, more than any inner has below it.
    for n in 0..30_000 {
        let score = if n % 3 == 0 { 5.0 } else { (random(&mut seed) % 2000) as f64 / 4.0 };
        assert!(tree.insert(&name(n), score));
        model.insert(((score * 4.0) as i64, name(n)), score);
    }
    tree.check();
    assert!(tree.height >= 2);
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
    assert!(tree.height <= 1);
    // The numbers of leaves that were in use are kept.
    assert!(tree.mem_bytes() < full / 4, "{} of {full}", tree.mem_bytes());
    tree.remove_range(0..50);
    tree.check();
    assert_eq!((tree.len(), tree.height), (0, 0));
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
        let sorted = sorted(&model);
        prop_assert!(View::Tree(&tree).iter().eq(sorted.iter().map(|(score, member)| (*score, &member[..]))));
        let mut bytes = Vec::new();
        tree.encode(&mut bytes);
        let back = Tree::decode(&bytes).unwrap();
        back.check();
        prop_assert!(View::Tree(&back).iter().eq(View::Tree(&tree).iter()));
        prop_assert!(Tree::decode(&bytes[..bytes.len() - 1]).is_err());
        // The packed form knows the same.
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
