use super::*;
use crate::part::Parts;
use proptest::prelude::*;

/// Chunks of 4 KB, and chunks of three elements.
const LIMITS: [Limit; 2] = [Limit { bytes: 4096, elements: usize::MAX }, Limit { bytes: 8192, elements: 3 }];

fn numbered(elements: usize, limit: Limit) -> List {
    let mut list = List::new();
    (0..elements).for_each(|n| list.push_back(n.to_string().as_bytes(), limit));
    list
}

/// Asserts that counts and sums agree, and that no chunk is empty or too large.
fn assert_sound(list: &List, limit: Limit) {
    let (mut len, mut bytes) = (0, 0);
    for chunk in &list.chunks {
        if !chunk.part.is_absent() {
            assert_eq!(run::count(chunk.bytes()), Ok(chunk.count as usize));
        }
        assert!(chunk.count == 1 || limit.allows(chunk.len(), chunk.count as usize), "{} bytes", chunk.len());
        assert!(chunk.count > 0);
        assert_eq!(malloc_bytes(chunk.part.capacity()), chunk.part.capacity(), "as it is counted");
        len += chunk.count as usize;
        bytes += chunk.part.capacity();
    }
    assert_eq!((len, bytes), (list.len, list.chunk_bytes));
    let numbers: Vec<u64> = list.chunks.iter().map(|chunk| chunk.number).collect();
    assert!(numbers.is_sorted());
    let is_second = |at: usize| at > 0 && numbers[at - 1] == numbers[at];
    let known = |chunk: &Chunk| {
        chunk.part.is_absent() || list.part(chunk.number).is_some_and(|part| std::ptr::eq(part, &chunk.part))
    };
    assert!(list.chunks.iter().enumerate().all(|(at, chunk)| is_second(at) || known(chunk)));
}

#[test]
fn the_directive_is_read_as_redis_reads_it() {
    for (directive, bytes) in
        [(-1, 4096), (-2, 8192), (-3, 16384), (-4, 32768), (-5, 65536), (-6, 65536), (i64::MIN, 65536)]
    {
        let limit = Limit::of(directive);
        assert!(limit.allows(bytes - 7, 1 << 40) && !limit.allows(bytes - 6, 1), "{directive}");
    }
    assert!(Limit::of(3).allows(10, 3) && !Limit::of(3).allows(10, 4));
    assert!(!Limit::of(1000).allows(8192, 2), "the safety limit");
    assert!(Limit::of(0).allows(10, 1) && !Limit::of(0).allows(10, 2));
    assert!(Limit::of(4).half().allows(10, 2) && !Limit::of(4).half().allows(10, 3));
}

#[test]
fn a_hundred_thousand_elements_pass_through_a_queue() {
    let limit = Limit::of(-2);
    let mut list = numbered(100_000, limit);
    assert_sound(&list, limit);
    for index in [0, 1, 4711, 50_000, 50_001, 99_999] {
        assert_eq!(list.get(index), Some(index.to_string().as_bytes()));
    }
    assert_eq!(list.get(100_000), None);
    let held: usize = (0..100_000usize).map(|n| n.to_string().len() + 2).sum();
    assert!(list.mem_bytes() < held + held / 10, "{} bytes for {held}", list.mem_bytes());
    list.remove(0..99_990, limit);
    assert_sound(&list, limit);
    assert_eq!(list.iter_from(0).next(), Some(&b"99990"[..]));
    assert!(list.mem_bytes() < 1000, "{}", list.mem_bytes());
    assert_eq!(list.to_packed(limit).map(|packed| packed::len(&packed)), Some(10));
}

#[test]
fn a_queue_does_not_grow_with_what_passed_through_it() {
    let limit = Limit::of(-2);
    let mut list = List::new();
    for n in 0..200_000usize {
        list.push_front(n.to_string().as_bytes(), limit);
        if n >= 10 {
            assert_eq!(list.iter_back().next(), Some((n - 10).to_string().as_bytes()));
            list.remove(10..11, limit);
        }
    }
    assert_sound(&list, limit);
    assert!(list.mem_bytes() < 40_000, "{}", list.mem_bytes());
}

#[test]
fn an_element_larger_than_a_chunk_gets_its_own() {
    let limit = Limit::of(-1);
    let large = vec![b'x'; 10_000];
    let mut list = numbered(10, limit);
    list.insert(5, &large, limit);
    assert_sound(&list, limit);
    assert_eq!(list.chunks.len(), 3);
    assert_eq!(list.get(5), Some(&large[..]));
    assert!(list.set(5, b"small", limit));
    assert!(list.set(0, &large, limit));
    assert_sound(&list, limit);
    assert_eq!((list.get(0), list.get(5)), (Some(&large[..]), Some(&b"small"[..])));
    assert_eq!(list.len(), 11);
    assert!(!list.set(11, b"", limit));
}

#[test]
fn flash_gives_back_the_same_chunks_and_refuses_damaged_ones() {
    let list = numbered(5000, LIMITS[0]);
    let mut bytes = Vec::new();
    list.encode(&mut bytes);
    let back = List::decode(&bytes).unwrap();
    assert_sound(&back, LIMITS[0]);
    assert_eq!(back.chunks.len(), list.chunks.len());
    assert!(back.iter_from(0).eq(list.iter_from(0)));
    for cut in [0, 1, 2, 3, 100, bytes.len() - 1] {
        assert!(List::decode(&bytes[..cut]).is_err(), "{cut}");
    }
    assert!(List::decode(&[&bytes[..], b"x"].concat()).is_err());
    assert!(List::decode(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 3, 1, b'a', 1]).is_err(), "chunks that are not there");
    assert!(List::decode(&[1, 2, 3, 1, b'a', 1]).is_err(), "a wrong count");
    assert!(List::decode(&[1, 0, 0]).is_err(), "an empty chunk");
}

proptest! {
    #[test]
    fn behaves_as_a_vector(
        limit in 0..2usize,
        ops in proptest::collection::vec((0..9u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), "[ab]{0,2}|x{100,300}|y{4000,5000}"), 0..150),
    ) {
        let limit = LIMITS[limit];
        let (mut list, mut model) = (List::new(), Vec::<Vec<u8>>::new());
        for (op, a, b, element) in ops {
            let element = element.into_bytes();
            let at = a.index(model.len() + 1);
            match op {
                0 => { list.push_front(&element, limit); model.insert(0, element); }
                1 | 2 => { list.push_back(&element, limit); model.push(element); }
                3 | 4 => { list.insert(at, &element, limit); model.insert(at, element); }
                5 => {
                    prop_assert_eq!(list.set(at, &element, limit), at < model.len());
                    if let Some(old) = model.get_mut(at) { *old = element; }
                }
                6 => {
                    let to = at + b.index(model.len() + 1 - at);
                    list.remove(at..to, limit);
                    model.drain(at..to);
                }
                7 => {
                    let (max, back) = (1 + b.index(4), at % 2 == 0);
                    let mut left = max;
                    let mut keep = |other: &Vec<u8>| { let cut = *other == element && left > 0; left -= usize::from(cut); !cut };
                    if back {
                        model.reverse();
                        model.retain(&mut keep);
                        model.reverse();
                    } else {
                        model.retain(&mut keep);
                    }
                    prop_assert_eq!(list.remove_equal(&element, max, back, limit), max - left);
                }
                _ => {
                    let mut bytes = Vec::new();
                    list.encode(&mut bytes);
                    list = if at % 2 == 0 { List::decode(&bytes).unwrap() } else { list.clone() };
                }
            }
            assert_sound(&list, limit);
            let probe = b.index(model.len() + 1);
            prop_assert_eq!(list.get(probe), model.get(probe).map(Vec::as_slice));
            prop_assert!(list.iter_from(probe).eq(model[probe..].iter()));
        }
        prop_assert!(list.iter_back().eq(model.iter().rev()));
    }

    #[test]
    fn hostile_bytes_are_refused_or_a_list(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(list) = List::decode(&bytes) {
            prop_assert_eq!(list.iter_from(0).count(), list.len());
            prop_assert_eq!(list.iter_back().count(), list.len());
        }
    }
}

// --- parts on flash ---

use crate::part::testing::Flash;
use crate::{Absent, Boxed};
use std::sync::Arc;

fn list(value: &mut Boxed) -> &mut List {
    let Boxed::List(list) = value else { unreachable!() };
    list
}

fn seen(value: &Boxed) -> &List {
    let Boxed::List(list) = value else { unreachable!() };
    list
}

/// A list whose chunks are all on flash.
fn far(elements: usize, limit: Limit) -> (Boxed, Arc<Flash>) {
    let mut value = Boxed::List(numbered(elements, limit));
    let flash = Arc::new(Flash::default());
    flash.send(&mut value);
    (value, flash)
}

fn bring(flash: &Flash, value: &mut Boxed, want: impl Fn(&List, &mut Absent)) -> usize {
    flash.bring(value, |value, out| {
        want(seen(value), out);
        out.sort_unstable_by_key(|part| part.number);
        out.dedup();
    })
}

#[test]
fn a_command_loads_the_chunks_that_it_touches() {
    let limit = Limit::of(-1);
    let whole = numbered(100_000, limit).mem_bytes();
    let (mut value, flash) = far(100_000, limit);
    let chunks = seen(&value).chunks.len();
    assert!(value.mem_bytes() < whole / 50, "{} of {whole}", value.mem_bytes());
    assert_eq!(flash.len(), chunks);

    assert_eq!(bring(&flash, &mut value, |list, out| list.want(70_000..70_001, out)), 1, "LINDEX");
    assert_eq!(seen(&value).get(70_000), Some(&b"70000"[..]));
    assert_eq!(bring(&flash, &mut value, |list, out| list.want(5000..5100, out)), 1, "LRANGE");
    assert_eq!(seen(&value).iter_from(5000).nth(99), Some(&b"5099"[..]));
    assert_eq!(flash.len(), chunks, "read, they still have their copies");

    let element = [b'x'; 100].as_slice();
    assert_eq!(bring(&flash, &mut value, |list, out| list.want_push(false, element, limit, out)), 0, "it is full");
    list(&mut value).push_front(element, limit);
    assert_eq!(bring(&flash, &mut value, |list, out| list.want_push(true, element, limit, out)), 1);
    list(&mut value).push_back(element, limit);
    assert_eq!(bring(&flash, &mut value, |list, out| list.want_pop(false, 3, out)), 1, "LPOP 3");
    list(&mut value).remove(0..3, limit);
    assert_eq!(seen(&value).iter_from(0).next(), Some(&b"2"[..]));
    assert_eq!(flash.len(), chunks - 2);

    let brought = bring(&flash, &mut value, |list, out| list.want_walk(false, |element| element != b"3000", out));
    assert!((3..20).contains(&brought), "LPOS of something near reads {brought} of {chunks}");

    assert_eq!(bring(&flash, &mut value, |list, out| list.want_keep(40_000..60_000, out)), 2, "LTRIM");
    let len = seen(&value).len();
    list(&mut value).remove(60_000..len, limit);
    list(&mut value).remove(0..40_000, limit);
    assert_eq!((seen(&value).len(), seen(&value).get(0)), (20_000, Some(&b"40002"[..])));
    assert_eq!(flash.len(), seen(&value).chunks.len() - 2, "what is gone has no copies");
    assert_sound(seen(&value), limit);

    assert_eq!(bring(&flash, &mut value, |list, out| list.want_keep(9000..9010, out)), 1);
    list(&mut value).remove(9010..20_000, limit);
    list(&mut value).remove(0..9000, limit);
    assert!(seen(&value).to_packed(limit).is_some(), "what is left is in memory");
    drop(value);
    assert_eq!(flash.len(), 0);
}

#[test]
fn chunks_find_numbers_between_those_that_are_on_flash() {
    let limit = LIMITS[1];
    let (mut value, flash) = far(30, limit);
    // Each round inserts an element before one that was on flash, and sends everything to flash again. So the room
    // between the chunks' numbers shrinks.
    for n in 0..400usize {
        bring(&flash, &mut value, |list, out| list.want(14..16, out));
        list(&mut value).insert(15, n.to_string().as_bytes(), limit);
        assert_sound(seen(&value), limit);
        flash.send(&mut value);
    }
    let absent = seen(&value).chunks.iter().filter(|chunk| chunk.part.is_absent()).count();
    assert!(absent > seen(&value).chunks.len() / 2, "{absent} of {}", seen(&value).chunks.len());
    flash.bring(&mut value, |value, out| value.absent(out));
    let expected = (0..15).chain((0..400).rev()).chain(15..30).map(|n: usize| n.to_string().into_bytes());
    assert!(seen(&value).iter_from(0).eq(expected.collect::<Vec<_>>().iter()));
    // With its neighbours in memory, each chunk gets a number of its own again.
    list(&mut value).insert(15, b"x", limit);
    list(&mut value).insert(15, b"y", limit);
    drop(value);
    assert_eq!(flash.len(), 0);
}

#[test]
fn a_chunk_with_other_bytes_is_refused() {
    let (mut value, _flash) = far(5000, LIMITS[0]);
    let mut absent = Absent::new();
    value.absent(&mut absent);
    let (first, part) = (absent[0], absent[1]);
    let content = |from: usize| {
        let mut run = Vec::new();
        (from..from + 3).for_each(|n| run::push_back(&mut run, n.to_string().as_bytes()));
        run
    };
    for bytes in [&b""[..], b"\x01a\x01", b"\x01a", &content(7)] {
        assert_eq!(value.fill(part.number, part.place, bytes), Err(Corrupt));
    }
    assert_eq!(value.fill(part.number, first.place, b""), Ok(()), "not what is asked for any more");
    assert_eq!(value.fill(part.number + 1, part.place, b""), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_as_a_vector_while_its_chunks_come_and_go(
        limit in 0..2usize,
        ops in proptest::collection::vec((0..11u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), "[ab]{0,2}|x{100,300}|y{4000,5000}"), 0..150),
    ) {
        let limit = LIMITS[limit];
        let (mut value, flash) = far(40, limit);
        let mut model: Vec<Vec<u8>> = (0..40usize).map(|n| n.to_string().into_bytes()).collect();
        for (op, a, b, element) in ops {
            let element = element.into_bytes();
            let at = a.index(model.len() + 1);
            match op {
                0 => flash.send(&mut value),
                1 | 2 => {
                    let back = op == 2;
                    bring(&flash, &mut value, |list, out| list.want_push(back, &element, limit, out));
                    if back { list(&mut value).push_back(&element, limit) } else { list(&mut value).push_front(&element, limit) }
                    model.insert(if back { model.len() } else { 0 }, element);
                }
                // As in LINSERT, which has found the pivot before or after.
                3 | 4 if at < model.len() => {
                    bring(&flash, &mut value, |list, out| list.want(at..at + 1, out));
                    let at = at + usize::from(op == 4);
                    list(&mut value).insert(at, &element, limit);
                    model.insert(at, element);
                }
                5 => {
                    bring(&flash, &mut value, |list, out| list.want(at..(at + 1).min(model.len()), out));
                    prop_assert_eq!(list(&mut value).set(at, &element, limit), at < model.len());
                    if let Some(old) = model.get_mut(at) { *old = element; }
                }
                6 => {
                    let to = at + b.index(model.len() + 1 - at);
                    bring(&flash, &mut value, |list, out| list.want_keep(at..to, out));
                    if at < to {
                        let len = model.len();
                        list(&mut value).remove(to..len, limit);
                        list(&mut value).remove(0..at, limit);
                        model.truncate(to);
                        model.drain(..at);
                    }
                }
                7 | 8 if !model.is_empty() => {
                    let (back, count) = (op == 7, 1 + b.index(model.len()).min(7));
                    bring(&flash, &mut value, |list, out| list.want_pop(back, count, out));
                    let range = if back { model.len() - count..model.len() } else { 0..count };
                    let popped: Vec<_> = if back {
                        seen(&value).iter_back().take(count).map(<[u8]>::to_vec).collect()
                    } else {
                        seen(&value).iter_from(0).take(count).map(<[u8]>::to_vec).collect()
                    };
                    list(&mut value).remove(range.clone(), limit);
                    let mut gone: Vec<_> = model.drain(range).collect();
                    if back { gone.reverse() }
                    prop_assert_eq!(popped, gone);
                }
                9 => {
                    let (back, max) = (at % 2 == 0, 1 + b.index(3));
                    bring(&flash, &mut value, |list, out| {
                        let mut left = max;
                        list.want_walk(back, |other| { left -= usize::from(other == element); left > 0 }, out)
                    });
                    let mut left = max;
                    let mut keep = |other: &Vec<u8>| { let cut = *other == element && left > 0; left -= usize::from(cut); !cut };
                    if back { model.reverse(); }
                    model.retain(&mut keep);
                    if back { model.reverse(); }
                    prop_assert_eq!(list(&mut value).remove_equal(&element, max, back, limit), max - left);
                }
                10 if at < model.len() => {
                    let to = at + 1 + b.index(model.len() - at);
                    bring(&flash, &mut value, |list, out| list.want(at..to, out));
                    prop_assert!(seen(&value).iter_from(at).take(to - at).eq(model[at..to].iter()));
                }
                _ => {}
            }
            assert_sound(seen(&value), limit);
            prop_assert_eq!(seen(&value).len(), model.len());
        }
        flash.bring(&mut value, |value, out| value.absent(out));
        prop_assert!(seen(&value).iter_from(0).eq(model.iter()));
        drop(value);
        prop_assert_eq!(flash.len(), 0);
    }
}
