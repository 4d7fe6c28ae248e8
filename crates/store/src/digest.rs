//! Owns the digest of a dataset: a number that is equal for two stores if, and only if, they hold the same data. It does not
//! depend on the order of keys, on encodings, on tiers, on the store's secret, or on the machine. Never knows commands.
//!
//! A key's digest is a SHA-256 hash. The digest of a stripe is the sum of its keys' digests, and the digest of the dataset is
//! the sum of the stripes' digests. A stripe is the 16 slots whose numbers share the upper bits, so it is the same in every store.
//! Two different datasets have equal digests as rarely as two texts have equal hashes. But a sum of hashes is weaker than one hash
//! against an attacker who chooses the data: the digest finds mistakes, not forgeries.
//!
//! The digest contains, for each key that has not expired:
//! - logical database, name, type, and the exact expiry in milliseconds;
//! - every element: in a list with its index, in a sorted set with its score, in a hash with its value and deadline;
//! - of a stream: entries, last identifier, largest deleted identifier, number of entries ever added;
//! - of a consumer group: name, last identifier, entries read, and the names of its consumers;
//! - of a pending entry: its consumer, the time of its last delivery, and the number of deliveries.
//!
//! The digest does not contain: the sign of a zero score, which only one encoding of sorted sets keeps; when a consumer was last
//! seen or active; when and how often a key was used; encodings; the bounds of chunks; empty logical databases. Replayed effects
//! do not reproduce these exactly, and clients see them only in a score `-0` and in replies of introspection commands. Functions
//! are no part of a store: their owner adds them, see [`Sum::of`].

use crate::keyspace::{Cold, Keyspace, Value, Visited, Visitor};
use crate::log::read::ReadError;
use crate::mem::hash::STRIPES;
use crate::snapshot::{DumpError, Dumper, PartReader};
use sha2::{Digest, Sha256};
use std::{fmt, io};
use value::stream::Id;
use value::walk::{Cursor, Element, walk_inline};

/// A sum of SHA-256 hashes: four 64-bit lanes, and each lane wraps around on its own.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sum([u64; 4]);

impl Sum {
    /// The hash of these fields. `what` names the kind of the thing that is hashed.
    pub fn of(what: &str, fields: &[&[u8]]) -> Sum {
        let mut hash = Fields::of(what);
        fields.iter().for_each(|field| hash.bytes(field));
        hash.sum()
    }

    pub fn add(&mut self, other: Sum) {
        self.0.iter_mut().zip(other.0).for_each(|(lane, other)| *lane = lane.wrapping_add(other));
    }

    /// A quarter of the sum: enough to find a mistake.
    pub fn short(self) -> u64 {
        self.0[0]
    }

    fn to_bytes(self) -> [u8; 32] {
        std::array::from_fn(|at| self.0[at / 8].to_be_bytes()[at % 8])
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|lane| write!(f, "{lane:016x}"))
    }
}

/// A hash of fields. Each field is preceded by its length, so that two different sequences of fields never give the same bytes.
struct Fields(Sha256);

impl Fields {
    fn of(what: &str) -> Fields {
        let mut fields = Fields(Sha256::new());
        fields.bytes(what.as_bytes());
        fields
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(number.is_some().into());
        self.number(number.unwrap_or(0));
    }

    fn id(&mut self, id: Id) {
        self.0.update(id.to_bytes());
    }

    fn sum(self) -> Sum {
        let hash: [u8; 32] = self.0.finalize().into();
        let lane = |at: usize| std::array::from_fn(|byte| hash[8 * at + byte]);
        Sum(std::array::from_fn(|at| u64::from_be_bytes(lane(at))))
    }
}

/// The digest of a dataset, by stripe. Stripe n holds the keys of the slots 16·n to 16·n + 15.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetDigest {
    pub stripes: Box<[Sum]>,
}

impl DatasetDigest {
    pub fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.stripes.iter().for_each(|stripe| total.add(*stripe));
        total
    }
}

/// A digest that is not complete yet.
struct Digesting {
    done: DatasetDigest,
    /// The key being visited: its stripe, the hash of its fields before the elements, and the sum of its elements.
    stripe: usize,
    head: Fields,
    elements: Sum,
}

impl Digesting {
    fn new() -> Digesting {
        let done = DatasetDigest { stripes: vec![Sum::default(); STRIPES].into() };
        Digesting { done, stripe: 0, head: Fields::of("key"), elements: Sum::default() }
    }
}

impl Keyspace<'_> {
    /// Computes one slice of the digest of all logical databases. `None`: the handler must yield and run again.
    pub fn digest(&mut self) -> Result<Option<DatasetDigest>, Cold> {
        let state = self.resume.state.take().and_then(|state| state.downcast::<Digesting>().ok());
        let mut digesting = state.unwrap_or_else(|| Box::new(Digesting::new()));
        let visited = self.visit(&mut *digesting);
        if visited == Ok(true) {
            return Ok(Some(digesting.done));
        }
        self.resume.state = Some(digesting);
        visited.map(|_| None)
    }
}

impl Visitor for Digesting {
    fn begin(&mut self, key: &Visited<'_>) {
        let mut head = Fields::of("key");
        head.number(key.db as u64);
        head.bytes(key.name);
        head.bytes(key.kind.name().as_bytes());
        head.maybe(key.expiry);
        (self.stripe, self.head, self.elements) = (key.stripe, head, Sum::default());
    }

    fn element(&mut self, element: Element<'_>) {
        self.elements.add(hash(element));
        if let Element::Group(name, group) = element {
            group.consumers().for_each(|(consumer, _)| self.elements.add(Sum::of("consumer", &[name, consumer])));
        }
    }

    fn end(&mut self) {
        let mut head = std::mem::replace(&mut self.head, Fields::of("key"));
        head.bytes(&self.elements.to_bytes());
        self.done.stripes[self.stripe].add(head.sum());
    }
}

/// Computes the digest of a snapshot. Keys and hash fields that have expired by the given time are left out, whether
/// they are already removed or not.
pub struct Digester {
    digesting: Digesting,
    now_ms: u64,
}

impl Digester {
    pub fn new(now_ms: u64) -> Digester {
        Digester { digesting: Digesting::new(), now_ms }
    }

    pub fn finish(self) -> DatasetDigest {
        self.digesting.done
    }
}

impl Dumper for Digester {
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        let (digesting, now_ms) = (&mut self.digesting, self.now_ms);
        if key.expiry.is_some_and(|at_ms| at_ms <= now_ms) {
            return Ok(());
        }
        digesting.begin(key);
        let mut is_empty = true;
        let mut add = |element: Element<'_>| {
            if !matches!(element, Element::Field(_, _, Some(at_ms)) if at_ms <= now_ms) {
                is_empty = false;
                digesting.element(element);
            }
        };
        match value {
            Value::Inline(kind, bytes) => walk_inline(kind, bytes, &mut add),
            Value::Boxed(value) => {
                let mut cursor = Cursor::default();
                while let Some(stretch) = value.stretch(cursor) {
                    let bytes = stretch.absent.map(|part| parts.read(value, part)).transpose()?;
                    value.walk(cursor, bytes.as_deref(), &mut add).map_err(|_| ReadError::Missing)?;
                    cursor = stretch.next;
                }
            }
        }
        if !is_empty {
            digesting.end();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hash(element: Element<'_>) -> Sum {
    let mut fields;
    match element {
        Element::Text(bytes) => return Sum::of("text", &[bytes]),
        Element::Member(member) => return Sum::of("member", &[member]),
        Element::Item(index, item) => {
            fields = Fields::of("item");
            fields.number(index);
            fields.bytes(item);
        }
        Element::Field(field, value, at_ms) => {
            fields = Fields::of("field");
            fields.bytes(field);
            fields.bytes(value);
            fields.maybe(at_ms);
        }
        Element::Scored(member, score) => {
            fields = Fields::of("scored");
            fields.bytes(member);
            fields.number((score + 0.0).to_bits());
        }
        Element::Entry(entry) => {
            fields = Fields::of("entry");
            fields.id(entry.id);
            for (field, value) in entry.pairs() {
                fields.bytes(&field.to_vec());
                fields.bytes(&value.to_vec());
            }
        }
        Element::Stream(stream) => {
            fields = Fields::of("stream");
            fields.id(stream.last_id);
            fields.id(stream.max_deleted_id);
            fields.number(stream.entries_added);
        }
        Element::Group(name, group) => {
            fields = Fields::of("group");
            fields.bytes(name);
            fields.id(group.last_id);
            fields.maybe(group.entries_read);
        }
        Element::Pending(group, id, pending) => {
            fields = Fields::of("pending");
            fields.bytes(group);
            fields.id(id);
            fields.bytes(&pending.consumer);
            fields.number(pending.delivered_ms as u64);
            fields.number(pending.deliveries);
        }
    }
    fields.sum()
}
