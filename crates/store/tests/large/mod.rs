//! Owns changes of large collections of all types, for tests that compare them with others in memory.

use crate::node::Random;
use value::hash::Table;
use value::list::{Limit, List};
use value::stream::{ChunkLimits, Group, Id, Order, Stream};
use value::zset::Tree;
use value::{Absent, Boxed, set};

/// So many members at most, and so long elements of lists and streams.
const MEMBERS: u64 = 600;

/// A new collection; the number chooses its type.
pub fn empty(number: usize) -> Boxed {
    match number % 5 {
        0 => Boxed::Hash(Table::new()),
        1 => Boxed::Set(set::Table::new()),
        2 => Boxed::ZSet(Tree::new()),
        3 => Boxed::List(List::new()),
        _ => Boxed::Stream(Box::default()),
    }
}

/// A change of one element.
pub struct Change {
    member: Vec<u8>,
    value: Vec<u8>,
    score: f64,
    removes: bool,
}

fn limit() -> Limit {
    Limit::of(8)
}

const LIMITS: ChunkLimits = ChunkLimits { bytes: 700, entries: 0 };
const GROUP: &[u8] = b"group";

impl Change {
    pub fn new(random: &mut Random) -> Change {
        let number = random.below(MEMBERS);
        let value = (0..random.below(150) + 1).map(|_| random.draw() as u8).collect();
        let score = random.below(300) as f64;
        Change { member: format!("member:{number}").into_bytes(), value, score, removes: random.below(3) == 0 }
    }

    /// Names the parts that it touches.
    pub fn want(&self, value: &Boxed, out: &mut Absent) {
        match value {
            Boxed::Hash(table) => table.want(&self.member, out),
            Boxed::Set(table) => table.want(&self.member, out),
            Boxed::ZSet(tree) if self.removes => tree.want(&self.member, out),
            Boxed::ZSet(tree) => tree.want_put(std::iter::once((&self.member[..], self.score)), out),
            Boxed::List(list) if self.removes => list.want_pop(true, 1, out),
            Boxed::List(list) => list.want_push(self.at_back(), &self.value, limit(), out),
            Boxed::Stream(stream) => stream.want_append(self.value.len() + 5, LIMITS, None, out),
        }
    }

    fn at_back(&self) -> bool {
        self.value.len().is_multiple_of(2)
    }

    /// Returns whether nothing is left.
    pub fn apply(&self, value: &mut Boxed) -> bool {
        let member = &self.member[..];
        match value {
            Boxed::Hash(table) => {
                match self.removes {
                    true => _ = table.remove(member),
                    false => _ = table.set(member, &self.value),
                }
                if !self.removes && self.at_back() {
                    table.set_deadline(member, Some(4_000_000_000_000 + self.value.len() as u64));
                }
                table.is_empty()
            }
            Boxed::Set(table) => {
                match self.removes {
                    true => _ = table.remove(member),
                    false => _ = table.insert(member),
                }
                table.is_empty()
            }
            Boxed::ZSet(tree) => {
                match self.removes {
                    true => _ = tree.remove(member),
                    false => tree.set_score(member, self.score),
                }
                tree.is_empty()
            }
            Boxed::List(list) => {
                match (self.removes, self.at_back()) {
                    (true, _) if list.is_empty() => {}
                    (true, _) => list.remove(list.len() - 1..list.len(), limit()),
                    (false, true) => list.push_back(&self.value, limit()),
                    (false, false) => list.push_front(&self.value, limit()),
                }
                list.is_empty()
            }
            Boxed::Stream(stream) => {
                self.append(stream);
                false
            }
        }
    }

    fn append(&self, stream: &mut Stream) {
        let id = Id::new(stream.last_id.ms + 1, self.value.len() as u64);
        stream.append(id, std::iter::once((&b"field"[..], &self.value[..])), LIMITS);
        stream.create_group(GROUP, Group::new(Id::MIN, None));
        let mut group = stream.group_mut(GROUP).expect("it was just made");
        let consumer = &self.member[..8];
        group.create_consumer(consumer, id.ms as i64);
        group.assign(id, consumer, 7, self.value.len() as u64);
        if let Some(last) = Id::new(id.ms - 1, u64::MAX).previous().filter(|_| self.removes) {
            let first = group.pending(..last).next().map(|(id, _)| *id);
            first.map(|id| group.acknowledge(id));
        }
    }
}

/// What is in it, in an order that does not depend on the collection's history.
pub fn elements(value: &Boxed) -> Vec<Vec<u8>> {
    let mut elements: Vec<Vec<u8>> = match value {
        Boxed::Hash(table) => table
            .iter()
            .map(|(field, value)| format!("{field:?} {value:?} {:?}", table.deadline(field)).into_bytes())
            .collect(),
        Boxed::Set(table) => table.iter().map(<[u8]>::to_vec).collect(),
        Boxed::ZSet(tree) => {
            let mut bytes = Vec::new();
            tree.encode(&mut bytes);
            return vec![bytes];
        }
        Boxed::List(list) => return list.iter_from(0).map(<[u8]>::to_vec).collect(),
        Boxed::Stream(stream) => {
            let mut all = Vec::new();
            stream.each(Id::MIN, Id::MAX, Order::Ascending, |entry| {
                let pairs: Vec<_> = entry.pairs().collect();
                all.push(format!("{} {pairs:?}", entry.id).into_bytes());
                true
            });
            all.extend(stream.groups().map(|(name, group)| format!("{name:?} {group:?}").into_bytes()));
            return all;
        }
    };
    elements.sort_unstable();
    elements
}
