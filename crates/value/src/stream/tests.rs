use super::*;
use crate::listpack::Element;
use crate::part::Numbered;
use proptest::prelude::*;
use std::sync::Arc;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn append(stream: &mut Stream, id: Id, pairs: &Pairs, limits: ChunkLimits) {
    stream.append(id, pairs.iter().map(|(field, value)| (&field[..], &value[..])), limits);
}

fn owned(entry: &Entry<'_>) -> (Id, Pairs) {
    (entry.id, entry.pairs().map(|(field, value)| (field.to_vec(), value.to_vec())).collect())
}

fn range(stream: &Stream, start: Id, end: Id, order: Order) -> Vec<(Id, Pairs)> {
    let mut found = Vec::new();
    stream.each(start, end, order, |entry| {
        found.push(owned(entry));
        true
    });
    found
}

/// Asserts that the summary of each chunk is true, and that the sums are right.
fn assert_sound(stream: &Stream) {
    let here = |chunk: &&Chunk| !chunk.part.is_absent();
    assert!(stream.chunks.iter().filter(here).all(|chunk| chunk.accepts(chunk.bytes())));
    assert!(stream.chunks.iter().all(|chunk| chunk.live() > 0));
    assert!(stream.chunks.iter().is_sorted_by(|a, b| a.number < b.number && a.summary.last < b.base));
    assert_eq!(stream.len, stream.chunks.iter().map(Chunk::live).sum::<u64>());
    assert_eq!(stream.chunk_bytes, stream.chunks.iter().map(|chunk| chunk.part.capacity()).sum::<usize>());
}

#[test]
fn entries_with_the_same_fields_share_them() {
    let limits = ChunkLimits { bytes: 4096, entries: 100 };
    let mut stream = Stream::new();
    for n in 1..=100u64 {
        let value = n.to_string();
        let pairs = [(&b"temperature"[..], value.as_bytes()), (b"humidity", b"50")];
        stream.append(Id::new(1_700_000_000_000 + n, 0), pairs.into_iter(), limits);
    }
    assert_eq!(stream.chunks(), 1);
    // Flags, two parts of the id, two values and the count: about 13 bytes per entry.
    assert!(stream.mem_bytes() < 2000, "{} bytes", stream.mem_bytes());
    stream.append(Id::new(1_800_000_000_000, 0), [(&b"a"[..], &b"b"[..])].into_iter(), limits);
    assert_eq!(stream.chunks(), 2, "the 101st begins another");
    let entry = stream.get(Id::new(1_700_000_000_007, 0)).expect("it is there");
    let pairs: Vec<_> = entry.pairs().collect();
    assert_eq!(pairs[0], (Element::Bytes(b"temperature"), Element::Int(7)));
}

#[test]
fn groups_and_chunks_are_accounted_for() {
    let limits = ChunkLimits { bytes: 100, entries: 5 };
    let mut stream = Stream::new();
    for n in 1..=50 {
        stream.append(Id::new(n, 0), [(&b"f"[..], &b"v"[..])].into_iter(), limits);
    }
    assert!(stream.create_group(b"g", Group::new(Id::MIN, None)));
    assert!(!stream.create_group(b"g", Group::new(Id::MIN, None)));
    let before = stream.mem_bytes();
    {
        let mut group = stream.group_mut(b"g").expect("it is there");
        assert!(group.create_consumer(b"c", 1));
        (1..=50).for_each(|n| group.assign(Id::new(n, 0), b"c", 1, 1));
    }
    assert!(stream.mem_bytes() > before + 50 * 100);
    assert!(stream.remove_group(b"g"));
    (1..=50).for_each(|n| assert!(stream.remove(Id::new(n, 0))));
    assert_eq!((stream.len(), stream.chunks(), stream.mem_bytes()), (0, 0, 0));
    assert_eq!((stream.first_id(), stream.max_deleted_id, stream.entries_added), (Id::MIN, Id::new(50, 0), 50));
}

#[test]
fn an_entry_pending_with_one_consumer_moves_to_another() {
    let mut group = Group::new(Id::MIN, None);
    for name in [&b"a"[..], b"b"] {
        assert!(group.create_consumer(name, 1));
        assert!(!group.create_consumer(name, 2));
    }
    group.assign(Id::new(1, 0), b"a", 10, 1);
    group.assign(Id::new(2, 0), b"a", 10, 1);
    group.assign(Id::new(1, 0), b"b", 20, 2);
    assert_eq!(group.consumer(b"a").map(|a| a.pending().len()), Some(1));
    assert_eq!(group.pending_at(Id::new(1, 0)).map(|pending| &*pending.consumer), Some(&b"b"[..]));
    assert!(group.acknowledge(Id::new(1, 0)));
    assert!(!group.acknowledge(Id::new(1, 0)));
    assert_eq!(group.remove_consumer(b"a"), Some(1));
    assert_eq!((group.pending_len(), group.remove_consumer(b"a")), (0, None));
}

#[derive(Clone, Debug)]
enum Op {
    Append(u64, u64, Pairs),
    Remove(usize),
    Trim(Keep, bool, u64),
    Range(u64, u64),
    Reload,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let text = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        any::<i32>().prop_map(|n| n.to_string().into_bytes()),
        Just(vec![b'z'; 150]),
    ];
    let field = prop_oneof![4 => Just(b"a".to_vec()), 4 => Just(b"b".to_vec()), 1 => text.clone()];
    let pairs = proptest::collection::vec((field, text), 1..4);
    let op = prop_oneof![
        8 => (0..3u64, 0..3u64, pairs).prop_map(|(ms, seq, pairs)| Op::Append(ms, seq, pairs)),
        3 => (0..60usize).prop_map(Op::Remove),
        1 => (0..30u64, any::<bool>(), 0..10u64).prop_map(|(n, whole, limit)| Op::Trim(Keep::Len(n), whole, limit)),
        1 => (0..60u64, any::<bool>(), 0..10u64)
            .prop_map(|(n, whole, limit)| Op::Trim(Keep::From(Id::new(n, 0)), whole, limit)),
        2 => (0..80u64, 0..80u64).prop_map(|(start, end)| Op::Range(start, end)),
        1 => Just(Op::Reload),
    ];
    proptest::collection::vec(op, 1..80)
}

proptest! {
    #[test]
    fn behaves_as_a_list_of_entries(ops in ops(), bytes in prop_oneof![Just(0usize), Just(120), Just(4096)], entries in 0..6usize) {
        let limits = ChunkLimits { bytes, entries };
        let (mut stream, mut model) = (Stream::new(), Vec::<(Id, Pairs)>::new());
        for op in ops {
            match op {
                Op::Append(ms, seq, pairs) => {
                    let last = stream.last_id;
                    let id = if ms == 0 { Id::new(last.ms, last.seq + 1 + seq) } else { Id::new(last.ms + ms, seq) };
                    append(&mut stream, id, &pairs, limits);
                    model.push((id, pairs));
                }
                Op::Remove(at) => match model.get(at).map(|(id, _)| *id) {
                    Some(id) => {
                        prop_assert!(stream.remove(id));
                        prop_assert!(!stream.remove(id));
                        model.remove(at);
                    }
                    None => prop_assert!(!stream.remove(Id::new(1000, at as u64))),
                },
                Op::Trim(keep, whole_chunks, limit) => {
                    let exact = match keep {
                        Keep::Len(len) => model.len().saturating_sub(len as usize),
                        Keep::From(from) => model.iter().filter(|(id, _)| *id < from).count(),
                    };
                    let limit = if whole_chunks { limit } else { 0 };
                    let removed = stream.trim(&Trim { keep, whole_chunks, limit }) as usize;
                    prop_assert!(removed <= exact);
                    prop_assert!(whole_chunks || removed == exact);
                    prop_assert!(limit == 0 || removed <= limit as usize);
                    model.drain(..removed);
                }
                Op::Range(start, end) => {
                    let (start, end) = (Id::new(start, 1), Id::new(end, 1));
                    let mut expected: Vec<_> = model.iter().filter(|(id, _)| *id >= start && *id <= end).cloned().collect();
                    prop_assert_eq!(&range(&stream, start, end, Order::Ascending), &expected);
                    expected.reverse();
                    prop_assert_eq!(&range(&stream, start, end, Order::Descending), &expected);
                }
                Op::Reload => {
                    let mut flash = Vec::new();
                    stream.encode(&mut flash);
                    stream = Stream::decode(&flash).expect("sound");
                }
            }
            prop_assert_eq!(stream.len(), model.len() as u64);
            prop_assert_eq!(stream.first_id(), model.first().map_or(Id::MIN, |(id, _)| *id));
            prop_assert_eq!(stream.last_entry_id(), model.last().map(|(id, _)| *id));
            assert_sound(&stream);
        }
        prop_assert_eq!(range(&stream, Id::MIN, Id::MAX, Order::Ascending), model);
    }
}

// --- parts on flash ---

use crate::Boxed;
use crate::part::testing::Flash;

fn stream(value: &mut Boxed) -> &mut Stream {
    let Boxed::Stream(stream) = value else { unreachable!() };
    stream
}

fn seen(value: &Boxed) -> &Stream {
    let Boxed::Stream(stream) = value else { unreachable!() };
    stream
}

fn bring(flash: &Flash, value: &mut Boxed, want: impl Fn(&Stream, &mut Absent)) -> usize {
    flash.bring(value, |value, out| {
        want(seen(value), out);
        out.sort_unstable_by_key(|part| part.number);
        out.dedup();
    })
}

const FAR: ChunkLimits = ChunkLimits { bytes: 4096, entries: 100 };

/// A stream whose chunks are all on flash.
fn far(entries: u64, limits: ChunkLimits) -> (Boxed, Arc<Flash>) {
    let mut stream = Stream::new();
    for n in 1..=entries {
        let value = n.to_string();
        stream.append(Id::new(n, 0), [(&b"field"[..], value.as_bytes())].into_iter(), limits);
    }
    let (mut value, flash) = (Boxed::Stream(Box::new(stream)), Arc::new(Flash::default()));
    flash.send(&mut value);
    (value, flash)
}

#[test]
fn a_command_loads_the_chunks_that_it_touches() {
    let (mut value, flash) = far(10_000, FAR);
    assert!(value.mem_bytes() < 15_000, "{}", value.mem_bytes());
    assert_eq!((flash.len(), seen(&value).chunks()), (100, 100));
    let at = |n: u64| Id::new(n, 0);

    for (start, order, at_most) in
        [(at(5001), Order::Ascending, 1), (at(4995), Order::Ascending, 2), (at(1), Order::Descending, 1)]
    {
        let brought = bring(&flash, &mut value, |stream, out| stream.want(start, Id::MAX, order, 10, out));
        assert!(brought <= at_most, "XRANGE COUNT 10 brings {brought}");
        let mut given = 0;
        seen(&value).each(start, Id::MAX, order, |_| {
            given += 1;
            given < 10
        });
        assert_eq!(given, 10);
    }
    flash.send(&mut value);
    assert_eq!(
        bring(&flash, &mut value, |stream, out| stream.want(Id::new(10_000, 1), Id::MAX, Order::Ascending, 0, out)),
        0
    );
    assert_eq!(bring(&flash, &mut value, |stream, out| stream.want(at(101), at(300), Order::Ascending, 0, out)), 2);
    for n in [7, 777, 20_000] {
        let expected = usize::from(n <= 10_000);
        assert_eq!(bring(&flash, &mut value, |stream, out| stream.want_id(at(n), out)), expected);
        assert_eq!(stream(&mut value).remove(at(n)), n <= 10_000);
    }
    assert_eq!(bring(&flash, &mut value, |stream, out| stream.want_id(at(7), out)), 0);
    assert_eq!(flash.len(), 98, "what was changed has no copy");

    flash.send(&mut value);
    assert_eq!(bring(&flash, &mut value, |stream, out| stream.want_append(6, FAR, None, out)), 0, "it is full");
    stream(&mut value).append(at(10_001), [(&b"field"[..], &b"v"[..])].into_iter(), FAR);
    flash.send(&mut value);
    let trim = Trim { keep: Keep::Len(5000), whole_chunks: true, limit: 0 };
    assert_eq!(bring(&flash, &mut value, |stream, out| stream.want_append(6, FAR, Some(&trim), out)), 1, "the last");
    stream(&mut value).append(at(10_002), [(&b"field"[..], &b"v"[..])].into_iter(), FAR);
    assert_eq!(stream(&mut value).trim(&trim), 4998);
    assert_eq!((seen(&value).first_id(), seen(&value).len()), (at(5001), 5002));
    let trim = Trim { keep: Keep::From(at(7050)), whole_chunks: false, limit: 0 };
    assert_eq!(bring(&flash, &mut value, |stream, out| stream.want_trim(&trim, out)), 1);
    assert_eq!(stream(&mut value).trim(&trim), 2049);
    assert_eq!(seen(&value).first_id(), at(7050));
    assert_sound(seen(&value));
    drop(value);
    assert_eq!(flash.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn behaves_as_a_list_of_entries_while_its_chunks_come_and_go(ops in ops(), entries in 1..6usize, count in 0..5u64) {
        let limits = ChunkLimits { bytes: 0, entries };
        let (mut value, flash) = far(20, limits);
        flash.bring(&mut value, |value, out| value.absent(out));
        let mut model = range(seen(&value), Id::MIN, Id::MAX, Order::Ascending);
        for op in ops {
            match op {
                Op::Append(ms, seq, pairs) => {
                    let last = seen(&value).last_id;
                    let id = if ms == 0 { Id::new(last.ms, last.seq + 1 + seq) } else { Id::new(last.ms + ms, seq) };
                    let bytes = pairs.iter().map(|(field, value)| field.len() + value.len()).sum();
                    let trim = Trim { keep: Keep::Len(seq * 8), whole_chunks: ms == 1, limit: 0 };
                    bring(&flash, &mut value, |stream, out| stream.want_append(bytes, limits, Some(&trim), out));
                    append(stream(&mut value), id, &pairs, limits);
                    model.push((id, pairs));
                    model.drain(..stream(&mut value).trim(&trim) as usize);
                }
                Op::Remove(at) => {
                    let id = model.get(at).map_or(Id::new(1000, at as u64), |(id, _)| *id);
                    bring(&flash, &mut value, |stream, out| stream.want_id(id, out));
                    prop_assert_eq!(seen(&value).get(id).is_some(), at < model.len());
                    prop_assert_eq!(stream(&mut value).remove(id), at < model.len());
                    model.retain(|(other, _)| *other != id);
                }
                Op::Trim(keep, whole_chunks, limit) => {
                    let trim = Trim { keep, whole_chunks, limit: if whole_chunks { limit } else { 0 } };
                    bring(&flash, &mut value, |stream, out| stream.want_trim(&trim, out));
                    model.drain(..stream(&mut value).trim(&trim) as usize);
                }
                Op::Range(start, end) => {
                    let (start, end) = (Id::new(start, 1), Id::new(end, 1));
                    for order in [Order::Ascending, Order::Descending] {
                        let mut expected: Vec<_> = model.iter().filter(|(id, _)| *id >= start && *id <= end).cloned().collect();
                        if order == Order::Descending {
                            expected.reverse();
                        }
                        if count > 0 {
                            expected.truncate(count as usize);
                        }
                        bring(&flash, &mut value, |stream, out| stream.want(start, end, order, count, out));
                        let mut found = Vec::new();
                        seen(&value).each(start, end, order, |entry| {
                            found.push(owned(entry));
                            count == 0 || (found.len() as u64) < count
                        });
                        prop_assert_eq!(found, expected);
                    }
                }
                Op::Reload => flash.send(&mut value),
            }
            prop_assert_eq!(seen(&value).len(), model.len() as u64);
            prop_assert_eq!(seen(&value).first_id(), model.first().map_or(Id::MIN, |(id, _)| *id));
            assert_sound(seen(&value));
        }
        flash.bring(&mut value, |value, out| value.absent(out));
        prop_assert_eq!(range(seen(&value), Id::MIN, Id::MAX, Order::Ascending), model);
        drop(value);
        prop_assert_eq!(flash.len(), 0);
    }
}
