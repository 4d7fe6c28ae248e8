//! Owns the commands on streams. Never knows other types, except to refuse them.

mod basic;
mod claim;
mod groups;
mod ids;
mod info;
mod read;
mod state;

pub use basic::ROWS as BASIC;
pub use claim::ROWS as CLAIMS;
pub use groups::ROWS as GROUPS;
pub use info::ROWS as INFO;
pub use read::ROWS as READS;

use crate::row::{Flag, Group, Row};
use crate::stop::{Stop, WRONG_TYPE};
use ids::IdText;
use resp::reply::Out;
use store::{Value, ValueMut};
use value::listpack::Element;
use value::stream::{Entry, Id, Stream};
use value::{Absent, Boxed};

const READ: &[Flag] = &[Flag::Readonly];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

const BASE: Row = Row { group: Group::Stream, since: "5.0.0", ..Row::BASE };

/// The stream of a value. `None`: no such key.
fn stream(value: Option<Value<'_>>) -> Result<Option<&Stream>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Boxed(Boxed::Stream(stream))) => Ok(Some(stream)),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// The stream of a value whose type has been checked.
fn stream_mut<'v>(value: &'v mut ValueMut<'_>) -> &'v mut Stream {
    match value.boxed() {
        Some(Boxed::Stream(stream)) => stream,
        _ => unreachable!("it was a stream when the command looked, under the same lock"),
    }
}

/// The parts of a stream that `want` names.
fn of_stream(want: impl Fn(&Stream, &mut Absent)) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| {
        if let Boxed::Stream(stream) = value {
            want(stream, out);
        }
    }
}

/// The parts that hold these entries.
fn of_ids(ids: impl Iterator<Item = Id> + Clone) -> impl Fn(&Boxed, &mut Absent) {
    of_stream(move |stream, out| ids.clone().for_each(|id| stream.want_id(id, out)))
}

fn reply_id(out: &mut Out<'_>, id: Id) {
    out.bulk(IdText::new(id).as_bytes());
}

fn reply_element(out: &mut Out<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => out.bulk(bytes),
        Element::Int(number) => out.bulk_int(number),
    }
}

/// An entry: its id, then its fields and values alternately.
fn reply_entry(out: &mut Out<'_>, entry: &Entry<'_>) {
    out.array(2);
    reply_id(out, entry.id);
    out.array(2 * entry.len());
    for (field, value) in entry.pairs() {
        reply_element(out, field);
        reply_element(out, value);
    }
}

/// The limit that COUNT gives. 0: no limit.
#[derive(Clone, Copy)]
struct Count(u64);

impl Count {
    fn is_reached(self, count: usize) -> bool {
        count >= self.most()
    }

    fn most(self) -> usize {
        if self.0 == 0 { usize::MAX } else { usize::try_from(self.0).unwrap_or(usize::MAX) }
    }
}

fn shown(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The command needs a key with this group, and the key or the group does not exist.
fn no_group(key: &[u8], group: &[u8]) -> Stop {
    Stop::Error(format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group)).into())
}

fn no_group_to_read(key: &[u8], group: &[u8]) -> Stop {
    let (key, group) = (shown(key), shown(group));
    let text = format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option");
    Stop::Error(text.into())
}

fn no_such_group(group: &[u8], key: &[u8]) -> Stop {
    let text = format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key));
    Stop::Error(text.into())
}
