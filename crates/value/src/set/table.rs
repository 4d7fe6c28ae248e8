//! Owns the large form of a set. Never knows replies or settings.

use crate::Corrupt;
use crate::input::Input;
use crate::part::{Absent, AbsentPart, Parts};
use crate::tagged::{Drawn, Iter, Shape, Step, Tagged};
use crate::varint::{self, Varint};

/// `[length varint][member]`.
#[derive(Clone)]
struct Member;

impl Shape for Member {
    #[inline]
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize> {
        varint::read_part(bytes, at).map(|member| member.end)
    }
}

#[inline]
fn member(payload: &[u8]) -> &[u8] {
    let (_, start) = varint::read(payload, 0).expect("insert() wrote it");
    &payload[start..]
}

/// A set of any number of members. Access to one member is O(1).
#[derive(Clone, Default)]
pub struct Table {
    members: Tagged<Member>,
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    pub fn contains(&self, name: &[u8]) -> bool {
        self.members.find(self.members.tag(name), |payload| member(payload) == name).is_ok()
    }

    /// True: the member is new.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        let tag = self.members.tag(name);
        match self.members.find(tag, |payload| member(payload) == name) {
            Ok(_) => false,
            Err(place) => {
                self.members.insert(place, tag, &[Varint::new(name.len()).as_bytes(), name]);
                true
            }
        }
    }

    /// True: the member was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let found = self.members.find(self.members.tag(name), |payload| member(payload) == name);
        if let Ok(place) = found {
            self.members.remove(place);
        }
        found.is_ok()
    }

    /// All members, in an order that looks random.
    pub fn iter(&self) -> Members<'_> {
        Members(self.members.iter())
    }

    /// A uniformly random member. `draw(n)` is a random number below n.
    pub fn random(&self, draw: impl FnMut(usize) -> usize) -> Option<&[u8]> {
        self.members.random(draw).map(member)
    }

    /// See [`Tagged::sample`].
    pub fn sample(&self, count: usize, distinct: bool, draw: impl FnMut(usize) -> usize) -> Vec<Drawn> {
        self.members.sample(count, distinct, draw)
    }

    pub fn drawn(&self, drawn: Drawn) -> &[u8] {
        member(self.members.drawn(drawn))
    }

    /// See [`Tagged::scan`].
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(&'a [u8])) -> Step {
        self.members.scan(cursor, count, &mut |_, payload| visit(member(payload)))
    }

    /// Bytes of memory that the table holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.members.mem_bytes()
    }

    /// Records the parts that [`Table::contains`], [`Table::insert`] and [`Table::remove`] touch.
    pub fn want(&self, name: &[u8], out: &mut Absent) {
        self.members.want(self.members.tag(name), out);
    }

    /// Records the parts that [`Table::scan`] touches.
    pub fn want_scan(&self, cursor: u64, count: usize, out: &mut Absent) {
        self.members.want_scan(cursor, count, out);
    }

    /// Records the parts that [`Table::drawn`] touches.
    pub fn want_drawn(&self, drawn: Drawn, out: &mut Absent) {
        self.members.want_drawn(drawn, out);
    }

    /// See [`Tagged::stretch`].
    pub(crate) fn stretch(&self, tag: u64) -> Option<(Option<AbsentPart>, u64)> {
        self.members.stretch(tag)
    }

    /// See [`Tagged::walk`].
    pub(crate) fn walk(&self, tag: u64, bytes: Option<&[u8]>, visit: &mut dyn FnMut(&[u8])) -> Result<(), Corrupt> {
        self.members.walk(tag, bytes, &mut |payload| visit(member(payload)))
    }

    pub(crate) fn parts(&self) -> &dyn Parts {
        &self.members
    }

    pub(crate) fn parts_mut(&mut self) -> &mut dyn Parts {
        &mut self.members
    }

    /// See `skeleton`.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        self.members.save(out);
    }

    pub(crate) fn load(input: &mut Input<'_>) -> Result<Table, Corrupt> {
        let table = Table { members: Tagged::load(input)? };
        if table.is_empty() { Err(Corrupt) } else { Ok(table) }
    }

    /// Appends the number of members and then all members, each after its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.len()).as_bytes());
        self.members.iter().for_each(|payload| out.extend_from_slice(payload));
    }

    /// The members may be in any order, because the salt that orders them changes with a restart.
    pub fn decode(bytes: &[u8]) -> Result<Table, Corrupt> {
        let (members, mut at) = varint::read(bytes, 0).ok_or(Corrupt)?;
        let mut table = Table::new();
        for _ in 0..members {
            let member = varint::read_part(bytes, at).ok_or(Corrupt)?;
            at = member.end;
            if !table.insert(&bytes[member]) {
                return Err(Corrupt);
            }
        }
        if at == bytes.len() { Ok(table) } else { Err(Corrupt) }
    }
}

#[derive(Clone)]
pub struct Members<'a>(Iter<'a, Member>);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(member)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("members", &self.len()).finish_non_exhaustive()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Table {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Table {
        let mut table = Table::new();
        for member in members {
            table.insert(member.as_ref());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::malloc_bytes;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn name(n: usize) -> Vec<u8> {
        format!("member:{n}").into_bytes()
    }

    #[test]
    fn a_large_set_takes_half_of_redis_s_memory() {
        let table: Table = (100..100_100).map(|n| format!("{n:010}")).collect();
        table.members.check();
        // Redis: 24 bytes of entry, 16 of string, 8 to 16 of bucket.
        let each = table.mem_bytes() as f64 / table.len() as f64;
        assert!(each < 24.0, "{each}");
        assert_eq!(Table::new().mem_bytes(), malloc_bytes(4) + malloc_bytes(48));
    }

    #[test]
    fn chunks_go_when_their_members_do() {
        let mut table: Table = (0..50_000).map(name).collect();
        let full = table.mem_bytes();
        for n in 0..49_990 {
            assert!(table.remove(&name(n)));
            assert!(!table.remove(&name(n)));
        }
        table.members.check();
        assert_eq!(table.len(), 10);
        assert!(table.members.chunk_count() <= 4, "{}", table.members.chunk_count());
        assert!(table.mem_bytes() < full / 100, "{} of {full}", table.mem_bytes());
        assert_eq!(table.iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>(), (49_990..50_000).map(name).collect());
    }

    #[test]
    fn large_members_do_not_blow_the_directory_up() {
        let table: Table = (0..3000usize).map(|n| [&name(n)[..], &[b'x'; 1500]].concat()).collect();
        table.members.check();
        let own: usize = (0..3000).map(|n| name(n).len() + 1500).sum();
        assert!(table.mem_bytes() < own * 5 / 4, "{} for {own}", table.mem_bytes());
    }

    #[test]
    fn every_member_is_drawn_about_as_often() {
        // Members of very different lengths: their chunks hold different numbers of members.
        let table: Table = (0..400).map(|n| if n % 2 == 0 { name(n) } else { vec![b'x'; 20 + n] }).collect();
        let (mut seed, mut drawn) = (5u64, BTreeMap::<Vec<u8>, usize>::new());
        for _ in 0..400 * 100 {
            let member = table.random(|n| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
                ((u128::from(seed) * n as u128) >> 64) as usize
            });
            *drawn.entry(member.unwrap().to_vec()).or_default() += 1;
        }
        // 100 each, with a standard deviation of 10.
        assert_eq!(drawn.len(), 400);
        assert!(drawn.values().all(|&times| (55..=150).contains(&times)), "{drawn:?}");
    }

    #[test]
    fn a_walk_visits_what_stays_exactly_once_while_the_rest_comes_and_goes() {
        let mut table: Table = (0..2000).map(name).collect();
        let (mut cursor, mut seen, mut step) = (0, BTreeMap::<Vec<u8>, usize>::new(), 0);
        loop {
            let next = table.scan(cursor, 7, &mut |member| *seen.entry(member.to_vec()).or_default() += 1);
            // First many members come, then nearly all go.
            for n in 0..200 {
                step += 1;
                if step < 20_000 {
                    table.insert(format!("new:{}", step * 200 + n).as_bytes());
                } else {
                    table.remove(format!("new:{}", (step - 20_000) * 200 + n).as_bytes());
                }
            }
            match next {
                Step::Next(next) => cursor = next,
                Step::End => break,
            }
        }
        table.members.check();
        assert!((0..2000).all(|n| seen.get(&name(n)) == Some(&1)));
        assert_eq!(table.scan(u64::MAX, 1, &mut |_| unreachable!()), Step::End);
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(ops in proptest::collection::vec((0..3u8, 0..300usize), 0..1500)) {
            let (mut table, mut model) = (Table::new(), BTreeSet::new());
            for (op, n) in ops {
                let member = if n % 50 == 0 { vec![b'm'; n * 9] } else { name(n) };
                if op > 0 {
                    prop_assert_eq!(table.insert(&member), model.insert(member));
                } else {
                    prop_assert_eq!(table.remove(&member), model.remove(&member));
                }
            }
            table.members.check();
            prop_assert_eq!(table.len(), model.len());
            let all: BTreeSet<Vec<u8>> = table.iter().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&all, &model);
            prop_assert!(model.iter().all(|member| table.contains(member)));
            let mut bytes = Vec::new();
            table.encode(&mut bytes);
            let back = Table::decode(&bytes).unwrap();
            prop_assert_eq!(back.iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>(), all);
            prop_assert!(Table::decode(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(table) = Table::decode(&bytes) {
                prop_assert!(table.len() <= bytes.len());
            }
        }
    }
}
