use super::*;
use proptest::prelude::*;

/// 4 KB chunks, and chunks of three.
const LIMITS: [Limit; 2] = [Limit { bytes: 4096, elements: usize::MAX }, Limit { bytes: 8192, elements: 3 }];

fn numbered(elements: usize, limit: Limit) -> List {
    let mut list = List::new();
    (0..elements).for_each(|n| list.push_back(n.to_string().as_bytes(), limit));
    list
}

/// Counts and sums agree, no chunk is empty or larger than it may be.
fn assert_sound(list: &List, limit: Limit) {
    let (mut len, mut bytes) = (0, 0);
    for chunk in &list.chunks {
        assert_eq!(run::count(chunk.bytes()), Ok(chunk.count as usize));
        assert!(chunk.count == 1 || limit.allows(chunk.len(), chunk.count as usize), "{} bytes", chunk.len());
        assert!(chunk.count > 0);
        len += chunk.count as usize;
        bytes += chunk.mem_bytes();
    }
    assert_eq!((len, bytes), (list.len, list.chunk_bytes));
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
fn a_hundred_thousand_elements_come_at_one_end_and_go_at_the_other() {
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
fn an_element_larger_than_a_chunk_stands_alone() {
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
