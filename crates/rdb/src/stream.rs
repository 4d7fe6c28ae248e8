//! Owns reading a stream in parts. Each part is a stream with some of the chunks, or with some of what the groups
//! contain, and `Stream::merge` joins the parts in their order. Never holds more of a stream than a part, and the ids
//! of the pending entries of one group.

use crate::window::{Error, PIECE_BYTES, PIECE_MEMBERS, Window};
use std::io::Read;
use value::rdb::stream::{self, Head, Miscount, Version};
use value::stream::{Group, Id, Stream};

/// A stream that is being read.
pub struct Parts {
    version: Version,
    head: Option<Head>,
    /// How many chunks were read, how many of them had wrong counts, and how many entries they have.
    chunks: u64,
    wrong_chunks: u64,
    entries: u64,
    first_id: Option<Id>,
    group: Option<GroupState>,
    next: Next,
}

/// What is read next, and how many of it are left.
#[derive(Clone, Copy)]
enum Next {
    Start,
    Chunks(u64),
    Groups(u64),
    /// Consumers of the last group.
    Consumers(u64),
    /// Pending ids of the last consumer, and the consumers behind it.
    Ids(u64, u64),
}

/// The group whose consumers are being read, and how many groups follow.
struct GroupState {
    name: Vec<u8>,
    last_id: Id,
    entries_read: Option<u64>,
    pending: Vec<Pending>,
    given: usize,
    /// The last consumer, and when it was seen and active.
    consumer: (Vec<u8>, i64, i64),
    groups_left: u64,
}

/// A pending entry. Its consumer is read later.
struct Pending {
    id: Id,
    delivered_ms: i64,
    deliveries: u64,
    is_given: bool,
}

impl Parts {
    pub fn new(version: Version) -> Parts {
        Parts {
            version,
            head: None,
            chunks: 0,
            wrong_chunks: 0,
            entries: 0,
            first_id: None,
            group: None,
            next: Next::Start,
        }
    }

    /// The next part; what is wrong with the counts of the stream, if it is known with this part; and whether this is
    /// the last part.
    pub fn next<R: Read>(&mut self, window: &mut Window<R>) -> Result<(Stream, Option<Miscount>, bool), Error> {
        let (mut part, mut miscount) = (self.begin(), None);
        let (mut bytes, mut members) = (0, 0);
        loop {
            if bytes >= PIECE_BYTES || members >= PIECE_MEMBERS {
                return Ok((part, miscount, false));
            }
            match self.next {
                Next::Start => {
                    self.next = Next::Chunks(window.read("a stream", |reader| reader.len())?);
                }
                Next::Chunks(0) => {
                    let (version, entries) = (self.version, self.entries);
                    let (head, groups) = window.read("a stream", |reader| stream::head(reader, version, entries))?;
                    miscount = head.miscount((self.chunks, self.wrong_chunks)).map_err(|_| {
                        window.bad("a stream is damaged: it has no entries, although it says that it has some")
                    })?;
                    head.put(&mut part).map_err(|_| window.bad("a stream is damaged"))?;
                    (self.head, self.next) = (Some(head), Next::Groups(groups));
                }
                Next::Chunks(left) => {
                    let (base, list) = window.read("a part of a stream", stream::chunk)?;
                    bytes += list.len();
                    let before = part.len();
                    let is_corrected = stream::add_chunk(&mut part, base, list)
                        .map_err(|_| window.bad("a part of a stream is damaged"))?;
                    self.chunks += 1;
                    self.wrong_chunks += u64::from(is_corrected);
                    self.entries += part.len() - before;
                    if self.first_id.is_none() && !part.is_empty() {
                        self.first_id = Some(part.first_id());
                    }
                    self.next = Next::Chunks(left - 1);
                }
                Next::Groups(0) => return Ok((part, miscount, true)),
                Next::Groups(left) => {
                    let group = self.read_group(window, left - 1)?;
                    let made = Group::new(group.last_id, group.entries_read);
                    if !part.create_group(&group.name, made) {
                        return Err(window.bad("a stream has two groups with the same name"));
                    }
                    members += 1;
                    self.group = Some(group);
                    self.next = Next::Consumers(window.read("a group", |reader| reader.len())?);
                }
                Next::Consumers(0) => {
                    let group = self.group.take().expect("its consumers were read");
                    // Every pending entry must belong to a consumer.
                    if group.given != group.pending.len() {
                        return Err(window.bad("a group has pending entries of no consumer"));
                    }
                    self.next = Next::Groups(group.groups_left);
                }
                Next::Consumers(left) => {
                    let version = self.version;
                    let (name, seen_ms, active_ms, ids) =
                        window.read("a consumer", |reader| stream::consumer(reader, version))?;
                    let group = self.group.as_mut().expect("it has consumers");
                    group.consumer = (name, seen_ms, active_ms);
                    if !group.put_consumer(&mut part) {
                        return Err(window.bad("a group has two consumers with the same name"));
                    }
                    members += 1;
                    self.next = Next::Ids(ids, left - 1);
                }
                Next::Ids(0, consumers) => self.next = Next::Consumers(consumers),
                Next::Ids(left, consumers) => {
                    let id = window.read("a pending entry", stream::raw_id)?;
                    let group = self.group.as_mut().expect("it has pending entries");
                    if !group.give(&mut part, id) {
                        return Err(
                            window.bad("a consumer has an entry that is not pending, or that another consumer has too")
                        );
                    }
                    members += 1;
                    self.next = Next::Ids(left - 1, consumers);
                }
            }
        }
    }

    /// Begins a part, with the fields that are known already.
    fn begin(&self) -> Stream {
        let mut part = Stream::new();
        if let Some(head) = &self.head {
            head.put(&mut part).expect("it has no chunks");
        }
        if let Some(group) = &self.group {
            part.create_group(&group.name, Group::new(group.last_id, group.entries_read));
            if matches!(self.next, Next::Ids(..)) {
                group.put_consumer(&mut part);
            }
        }
        part
    }

    fn read_group<R: Read>(&self, window: &mut Window<R>, groups_left: u64) -> Result<GroupState, Error> {
        let version = self.version;
        let (name, last_id, mut entries_read, count) =
            window.read("a group", |reader| stream::group_head(reader, version))?;
        if version < Version::V2
            && let Some(head) = &self.head
        {
            entries_read = head.entries_until(self.first_id, last_id);
        }
        let mut pending = Vec::new();
        for _ in 0..count {
            let (id, delivered_ms, deliveries) = window.read("a pending entry", stream::pending)?;
            pending.push(Pending { id, delivered_ms, deliveries, is_given: false });
        }
        pending.sort_by_key(|pending| pending.id);
        if pending.windows(2).any(|two| two[0].id == two[1].id) {
            return Err(window.bad("an entry is pending twice in one group"));
        }
        let consumer = (Vec::new(), 0, 0);
        Ok(GroupState { name, last_id, entries_read, pending, given: 0, consumer, groups_left })
    }
}

impl GroupState {
    /// Adds the last consumer to a part. False: it is in the part already.
    fn put_consumer(&self, part: &mut Stream) -> bool {
        let (name, seen_ms, active_ms) = &self.consumer;
        let mut group = part.group_mut(&self.name).expect("it was made");
        let is_new = group.create_consumer(name, *seen_ms);
        if let Some(consumer) = group.consumer_mut(name) {
            consumer.active_ms = *active_ms;
        }
        is_new
    }

    /// Makes the entry pending at the last consumer. False: the entry is not pending in the group, or has a consumer
    /// already.
    fn give(&mut self, part: &mut Stream, id: Id) -> bool {
        let Ok(at) = self.pending.binary_search_by_key(&id, |pending| pending.id) else { return false };
        let Pending { delivered_ms, deliveries, is_given, .. } = &mut self.pending[at];
        if std::mem::replace(is_given, true) {
            return false;
        }
        self.given += 1;
        part.group_mut(&self.name).expect("it was made").assign(id, &self.consumer.0, *delivered_ms, *deliveries);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use value::rdb::put_len;
    use value::stream::ChunkLimits;

    /// A stream with entries, some of which are deleted, and with groups that have consumers.
    fn stream(entries: u64, pending: u64) -> Stream {
        let mut stream = Stream::new();
        let text = [b'x'; 100];
        for ms in 1..=entries {
            let limits = ChunkLimits { bytes: 4096, entries: 100 };
            stream.append(Id::new(ms, 0), [(&b"field"[..], &text[..])].into_iter(), limits);
        }
        [1, 2, entries / 2].into_iter().for_each(|ms| _ = stream.remove(Id::new(ms, 0)));
        let mut group = Group::new(Id::new(pending, 0), Some(pending));
        for (consumer, ids) in
            [("ann", 1..=pending / 3), ("bob", pending / 3 + 1..=pending), ("idle", pending + 1..=pending)]
        {
            group.create_consumer(consumer.as_bytes(), 7);
            if let Some(consumer) = group.consumer_mut(consumer.as_bytes()) {
                consumer.active_ms = 8;
            }
            ids.for_each(|ms| group.assign(Id::new(ms, 0), consumer.as_bytes(), 1000 + ms as i64, ms % 5));
        }
        stream.create_group(b"group", group);
        stream.create_group(b"later", Group::new(Id::new(3, 0), None));
        stream
    }

    fn encoded(stream: &Stream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.encode(&mut bytes);
        bytes
    }

    /// The number of parts, the stream that they make together, and what is wrong with its counts.
    fn merged(bytes: &[u8]) -> Result<(usize, Stream, Option<Miscount>), Error> {
        let (mut window, mut parts) = (Window::new(bytes), Parts::new(Version::V3));
        let (mut whole, mut miscount, mut is_last) = parts.next(&mut window)?;
        let mut count = 1;
        while !is_last {
            let (part, told, last) = parts.next(&mut window)?;
            miscount = miscount.or(told);
            // Each part is a valid stream of its own.
            let part_bytes = encoded(&part);
            assert!(part_bytes.len() < PIECE_BYTES + 8192, "{}", part_bytes.len());
            let part = Stream::decode(&part_bytes).unwrap();
            if !whole.takes(&part) {
                return Err(window.bad("parts do not follow"));
            }
            whole.merge(part);
            is_last = last;
            count += 1;
        }
        Ok((count, whole, miscount))
    }

    #[test]
    fn the_parts_of_a_stream_make_the_stream() {
        for (entries, pending, parts) in [(0, 0, 1), (50, 20, 1), (8000, 5000, 5), (3, 9000, 3), (6000, 0, 3)] {
            let bytes = encoded(&stream(entries, pending));
            let (count, whole, miscount) = merged(&bytes).unwrap();
            assert_eq!(miscount, None);
            assert!(encoded(&whole) == bytes, "{entries} entries, {pending} pending");
            assert!(count.abs_diff(parts) <= 1, "{count} parts of {entries} entries, {pending} pending");
        }
    }

    #[test]
    fn a_count_that_disagrees_is_corrected_in_parts_too() {
        let sound = stream(8000, 50);
        let (bytes, mut tail, mut count, mut other) = (encoded(&sound), Vec::new(), Vec::new(), Vec::new());
        stream::write_after_chunks(&sound, Version::V3, &mut tail);
        put_len(&mut count, sound.len());
        put_len(&mut other, sound.len() + 2);
        let chunks = &bytes[..bytes.len() - tail.len()];
        let (parts, whole, miscount) = merged(&[chunks, &other, &tail[count.len()..]].concat()).unwrap();
        assert!(parts > 1 && encoded(&whole) == bytes);
        assert_eq!(miscount, Some(Miscount { told: sound.len() + 2, found: sound.len(), chunks: 0 }));
    }

    #[test]
    fn parts_that_do_not_follow_and_damaged_bytes_are_refused() {
        let bytes = encoded(&stream(5000, 50));
        let (mut window, mut parts) = (Window::new(&bytes[..]), Parts::new(Version::V3));
        let (first, ..) = parts.next(&mut window).unwrap();
        assert!(!first.takes(&Stream::decode(&encoded(&first)).unwrap()));
        for cut in (0..bytes.len()).step_by(9973) {
            assert!(merged(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        // Change bytes behind the chunks, where they may belong to an id, a time or a name. Nothing must panic.
        let mut refused = 0;
        for at in (bytes.len() - 3000..bytes.len()).step_by(7) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            refused += usize::from(merged(&other).is_err());
        }
        assert!(refused > 100, "{refused}");
    }
}
