//! Owns DEBUG DIGEST-VALUE: a number for a value that is the same wherever the value is, as Redis computes it. What has no
//! order is combined by exclusive or. Never changes anything.

use crate::cx::{Cx, Stop};
use crate::lists::elements;
use crate::sets::form::{self as set_form, Set};
use crate::zsets::form as zset_form;
use resp::number::format_double;
use store::{Kind, Value};
use value::hash::packed;
use value::stream::{Id, Order};
use value::{Boxed, set};

type Sum = [u8; 20];

struct Digest<'a> {
    sha1: &'a dyn Fn(&[u8]) -> Sum,
    sum: Sum,
}

impl<'a> Digest<'a> {
    fn new(sha1: &'a dyn Fn(&[u8]) -> Sum) -> Digest<'a> {
        Digest { sha1, sum: Sum::default() }
    }

    /// In any order.
    fn add(&mut self, bytes: &[u8]) {
        let hash = (self.sha1)(bytes);
        self.sum.iter_mut().zip(hash).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// In this order.
    fn then(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.sum = (self.sha1)(&self.sum);
    }

    /// Two that belong together, in any order with other such.
    fn add_pair(&mut self, one: &[u8], other: &[u8]) {
        let mut pair = Digest::new(self.sha1);
        pair.then(one);
        pair.then(other);
        self.add(&pair.sum);
    }
}

/// Of the value at a key of the command, and whether it expires; zero where there is none.
pub(super) fn digest(cx: &mut Cx<'_>, place: usize) -> Result<String, Stop> {
    let key = &cx.keys[place];
    let expires = cx.ks.expiry(key)?.flatten().is_some();
    let server = cx.server;
    let sha1 = |bytes: &[u8]| server.sha1(bytes);
    let mut digest = Digest::new(&sha1);
    if let Some(value) = cx.ks.view(key)? {
        add_value(&mut digest, value)?;
    }
    if expires {
        digest.add(b"!!expire!!");
    }
    Ok(digest.sum.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn add_value(digest: &mut Digest<'_>, value: Value<'_>) -> Result<(), Stop> {
    // Redis's numbers for types.
    let kind = match &value {
        Value::Inline(kind, _) => *kind,
        Value::Boxed(boxed) => boxed.kind(),
    };
    let number = match kind {
        Kind::String => 0u32,
        Kind::List => 1,
        Kind::Set => 2,
        Kind::ZSet => 3,
        Kind::Hash => 4,
        Kind::Stream => 6,
    };
    digest.then(&number.to_be_bytes());
    match value {
        Value::Inline(Kind::String, bytes) => digest.then(bytes),
        Value::Inline(Kind::Hash, bytes) => {
            packed::iter(bytes).for_each(|(field, value)| digest.add_pair(field, value));
        }
        Value::Boxed(Boxed::Hash(table)) => table.iter().for_each(|(field, value)| digest.add_pair(field, value)),
        Value::Boxed(Boxed::Stream(stream)) => stream.each(Id::MIN, Id::MAX, Order::Ascending, |entry| {
            digest.then(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (field, value) in entry.pairs() {
                digest.then(&field.to_vec());
                digest.then(&value.to_vec());
            }
            true
        }),
        value @ (Value::Inline(Kind::List, _) | Value::Boxed(Boxed::List(_))) => {
            if let Some(list) = elements(Some(value))? {
                list.each_from(0, |element| {
                    digest.then(element);
                    true
                });
            }
        }
        value @ (Value::Inline(Kind::Set, _) | Value::Boxed(Boxed::Set(_))) => match set_form::set(Some(value))? {
            Some(Set::Ints(bytes)) => {
                set::ints::iter(bytes).for_each(|number| digest.add(number.to_string().as_bytes()));
            }
            Some(Set::List(bytes)) => set::list::iter(bytes).for_each(|member| digest.add(member)),
            Some(Set::Table(table)) => table.iter().for_each(|member| digest.add(member)),
            None => {}
        },
        value => {
            for (score, member) in zset_form::zset(Some(value))?.iter().flat_map(|view| view.iter()) {
                let mut text = Vec::new();
                format_double(score, &mut text);
                digest.add_pair(member, &text);
            }
        }
    }
    Ok(())
}
