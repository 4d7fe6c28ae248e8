use super::*;
use crate::list::Limit;
use crate::part::testing::Flash;
use crate::stream::{ChunkLimits, Group, Id};
use crate::{Absent, Fate};
use std::sync::Arc;

const LIMIT: i64 = 20;

fn name(n: usize) -> Vec<u8> {
    format!("member:{n}").into_bytes()
}

/// Adds elements `from` to `to`; some of them were there.
fn add(value: &mut Boxed, numbers: std::ops::Range<usize>, flash: &Flash) {
    for n in numbers {
        let member = name(n);
        let score = (n * 7919 % 1000 / 2) as f64;
        match value {
            Boxed::Hash(_) => flash.bring(value, |value, out| {
                if let Boxed::Hash(table) = value {
                    table.want(&member, out)
                }
            }),
            Boxed::Set(_) => flash.bring(value, |value, out| {
                if let Boxed::Set(table) = value {
                    table.want(&member, out)
                }
            }),
            Boxed::ZSet(_) => flash.bring(value, |value, out| {
                if let Boxed::ZSet(tree) = value {
                    tree.want_put([(&member[..], score)].into_iter(), out);
                }
            }),
            Boxed::List(_) | Boxed::Stream(_) => flash.bring(value, Boxed::absent),
        };
        let value_of = [&member[..], &[b'x'; 40]].concat();
        match value {
            Boxed::Hash(table) => {
                table.set(&member, &value_of);
                if n.is_multiple_of(3) {
                    table.set_deadline(&member, Some(1_000_000 + n as u64));
                }
            }
            Boxed::Set(table) => _ = table.insert(&member),
            Boxed::ZSet(tree) => tree.set_score(&member, score),
            Boxed::List(list) if n.is_multiple_of(2) => list.push_front(&value_of, Limit::of(LIMIT)),
            Boxed::List(list) => list.push_back(&value_of, Limit::of(LIMIT)),
            Boxed::Stream(stream) => {
                let (id, limits) =
                    (Id::new(stream.last_id.ms + 1 + n as u64, 5), ChunkLimits { bytes: 1000, entries: 0 });
                stream.append(id, [(&b"field"[..], &value_of[..])].into_iter(), limits);
                let group = name(n % 3);
                stream.create_group(&group, Group::new(Id::MIN, Some(1)));
                let mut group = stream.group_mut(&group).expect("it was just made");
                group.create_consumer(b"consumer", 77);
                group.assign(id, b"consumer", 88, n as u64);
            }
        }
    }
}

/// One collection of each type with this many elements, with some parts on flash, some in memory and some in both.
fn collections(elements: usize) -> Vec<(Boxed, Arc<Flash>)> {
    let empty = [Kind::Hash, Kind::Set, Kind::ZSet, Kind::List, Kind::Stream].map(|kind| match kind {
        Kind::Hash => Boxed::Hash(hash::Table::new()),
        Kind::Set => Boxed::Set(set::Table::new()),
        Kind::ZSet => Boxed::ZSet(zset::Tree::new()),
        Kind::List => Boxed::List(list::List::new()),
        _ => Boxed::Stream(Box::default()),
    });
    let mixed = empty.into_iter().map(|mut value| {
        let flash = Arc::new(Flash::default());
        add(&mut value, 0..elements, &flash);
        flash.send(&mut value);
        assert!(flash.len() > 1);
        match value {
            // Whole chunks come back, as below.
            Boxed::List(_) | Boxed::Stream(_) => {}
            _ => add(&mut value, elements - 5..elements + 5, &flash),
        }
        let mut absent = Absent::new();
        value.absent(&mut absent);
        let some: Vec<_> = absent.into_iter().step_by(4).collect();
        for part in some {
            value.fill(part.number, part.place, &flash.copy(part.place)).unwrap();
        }
        (value, flash)
    });
    mixed.collect()
}

/// Makes a collection from the skeleton of another one, with the same flash.
fn restored(value: &Boxed, flash: &Flash) -> (Boxed, Arc<Flash>) {
    let mut bytes = Vec::new();
    value.encode_skeleton(&mut bytes);
    let (id, mut back) = Boxed::decode_skeleton(value.kind(), &bytes).unwrap();
    assert_eq!(Some(id), value.shelf_id());
    let twin = flash.twin();
    back.split(twin.clone());
    (back, twin)
}

fn whole(value: &mut Boxed, flash: &Flash) -> Vec<u8> {
    flash.bring(value, Boxed::absent);
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

#[test]
fn a_collection_comes_back_with_its_parts_where_they_were() {
    for (mut value, flash) in collections(3000) {
        let kind = value.kind();
        let (mut back, twin) = restored(&value, &flash);
        let places = |value: &Boxed| {
            let mut places = Vec::new();
            value.copies(&mut |place| places.push(place));
            places
        };
        let mut absent = Absent::new();
        back.absent(&mut absent);
        assert!(absent.len() > 20, "{kind:?}: {}", absent.len());
        assert_eq!(places(&back), places(&value), "{kind:?}");
        assert_eq!(back.next_deadline(), value.next_deadline());
        assert!(places(&back).len() > absent.len() / 2);

        // The restored collection is changed in the same way as the first one.
        for (value, flash) in [(&mut value, &flash), (&mut back, &twin)] {
            add(value, 2000..6000, flash);
            flash.send(value);
            add(value, 500..600, flash);
        }
        let expected = whole(&mut value, &flash);
        assert!(whole(&mut back, &twin) == expected, "{kind:?}");
        // Removing goes through every node and every chunk, and nothing is counted wrongly.
        match &mut back {
            Boxed::Hash(table) => (0..6000).for_each(|n| assert!(table.remove(&name(n)), "{n}")),
            Boxed::Set(table) => (0..6000).for_each(|n| assert!(table.remove(&name(n)), "{n}")),
            Boxed::ZSet(tree) => (0..6000).for_each(|n| assert!(tree.remove(&name(n)).is_some(), "{n}")),
            Boxed::List(list) => list.remove(0..list.len(), Limit::of(LIMIT)),
            Boxed::Stream(_) => continue,
        }
        assert!(back.mem_bytes() < 10_000, "{kind:?}: {}", back.mem_bytes());
        assert_eq!(twin.len(), 0, "{kind:?}");
    }
}

#[test]
fn a_copy_made_with_the_parts_is_a_copy_without_them() {
    for (mut value, flash) in collections(500) {
        let (mut back, twin) = restored(&value, &flash);
        assert!(whole(&mut back, &twin) == whole(&mut value, &flash));
        // The clone keeps the order of the elements.
        let mut bytes = Vec::new();
        back.clone().encode(&mut bytes);
        assert!(bytes == whole(&mut back, &twin));
    }
}

#[test]
fn no_bytes_make_it_panic() {
    for (value, _) in collections(60) {
        let (kind, mut bytes) = (value.kind(), Vec::new());
        value.encode_skeleton(&mut bytes);
        assert!((30..20_000).contains(&bytes.len()), "{kind:?}: {}", bytes.len());
        let step = bytes.len() * 8 / 6000 + 1;
        for bit in (0..bytes.len() * 8).step_by(step) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok((_, value)) = Boxed::decode_skeleton(kind, &bytes) {
                let mut places = 0;
                value.copies(&mut |_| places += 1);
                assert!(places < bytes.len());
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            // A hash without its deadlines is a hash.
            assert!(
                kind == Kind::Hash || Boxed::decode_skeleton(kind, &bytes[..cut]).is_err(),
                "{kind:?} cut at {cut}"
            );
        }
        for other in [Kind::String, Kind::Hash, Kind::Set, Kind::ZSet, Kind::List, Kind::Stream] {
            _ = Boxed::decode_skeleton(other, &bytes);
        }
        bytes[0] = 2;
        assert_eq!(Boxed::decode_skeleton(kind, &bytes).err(), Some(Corrupt), "a newer format");
    }
}

#[test]
fn parts_that_get_a_copy_stay_in_memory() {
    for (mut value, flash) in collections(500) {
        let kind = value.kind();
        flash.bring(&mut value, Boxed::absent);
        add(&mut value, 500..700, &flash);
        // The parts were used. A sweep that writes nothing resets this.
        let mut from = Some(0);
        while let Some(part) = from {
            from = value.sweep(part, 10, false, &mut |_, _| Fate::Stays).next;
        }
        let mut writes = Vec::new();
        let mut from = Some(0);
        while let Some(part) = from {
            let swept = value.copy(part, 3, &mut |number, bytes| {
                writes.push((number, bytes.to_vec()));
                Fate::Written(writes.len() as u32)
            });
            from = swept.next;
        }
        assert!(writes.len() > 3, "{kind:?}: {}", writes.len());
        let before = value.mem_bytes();
        for (nth, (number, bytes)) in writes.into_iter().enumerate() {
            assert!(value.part_written(number, nth as u32 + 1, flash.put(number, bytes)));
        }
        let (mut parts, mut absent, mut bytes) = (0, Absent::new(), Vec::new());
        value.copies(&mut |_| parts += 1);
        value.absent(&mut absent);
        assert_eq!((parts, absent.len(), value.mem_bytes()), (flash.len(), 0, before), "{kind:?}");
        value.encode_skeleton(&mut bytes);
        // The groups of a stream are a part of it.
        let share = if kind == Kind::Stream { 3 } else { 5 };
        assert!(bytes.len() < before / share, "{kind:?}: {} of {before}", bytes.len());
        value.copy(0, usize::MAX, &mut |_, _| panic!("nothing is written twice"));
        flash.send(&mut value);
        value.absent(&mut absent);
        assert!(absent.len() >= parts - 2, "a sweep moves them: {} of {parts}", absent.len());
    }
}
