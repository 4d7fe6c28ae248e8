use super::*;
use crate::stream::{ChunkLimits, Group, Id};
use proptest::prelude::*;

fn parts(items: &[&[u8]]) -> Parts {
    let mut parts = Parts::new();
    items.iter().for_each(|item| parts.push(item).unwrap());
    parts
}

#[test]
fn strings_are_as_redis_writes_them() {
    // On redis-server 7.2, DUMP of SET v value differs from that of 7.0 only in the version.
    let mut payload = dump(Type::String, |out| put_string(out, b"value"));
    assert_eq!(payload[..9], *b"\0\x05value\x0b\0");
    reseal(&mut payload, 10);
    assert_eq!(payload, b"\0\x05value\x0a\0\x81\xf6\xc1\x38\xc1\xaa\x9b\x6e");
    for (text, bytes) in [
        (&b"-1"[..], &b"\xc0\xff"[..]),
        (b"300", b"\xc1\x2c\x01"),
        (b"-70000", b"\xc2\x90\xee\xfe\xff"),
        (b"2147483648", b"\x0a2147483648"),
        (b"01", b"\x0201"),
        (b"", b"\0"),
    ] {
        let mut out = Vec::new();
        put_string(&mut out, text);
        assert_eq!(out, bytes);
        assert_eq!(Reader::new(&out).string().unwrap(), text);
    }
}

#[test]
fn lengths_come_back() {
    for len in [0, 63, 64, 16_383, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        let mut out = Vec::new();
        put_len(&mut out, len);
        assert_eq!(Reader::new(&out).len(), Ok(len));
        assert_eq!(Reader::new(&out[..out.len() - 1]).len(), Err(Corrupt));
    }
    assert_eq!(Reader::new(b"\xc4").len(), Err(Corrupt));
}

#[test]
fn a_wrong_envelope_is_told_from_a_wrong_value() {
    let sound = dump(Type::String, |out| put_string(out, b"x"));
    assert!(matches!(restore(&sound), Ok(Decoded::String(text)) if text == b"x"));
    let mut newer = sound.clone();
    reseal(&mut newer, VERSION + 1);
    let mut flipped = sound.clone();
    flipped[2] ^= 1;
    for payload in [&newer[..], &flipped, b"", b"short", &sound[..sound.len() - 1]] {
        assert_eq!(restore(payload).unwrap_err(), Refused::Envelope);
    }
    for value in [&b""[..], b"\x06", b"\xff", b"\0\x02x", b"\0\x01xy", b"\x04\0", b"\x02\x80\xff\xff\xff\xff"] {
        let mut payload = value.to_vec();
        payload.extend([0; FOOTER_BYTES]);
        reseal(&mut payload, VERSION);
        assert_eq!(restore(&payload).unwrap_err(), Refused::Corrupt, "{value:?}");
    }
}

#[test]
fn old_encodings_are_read() {
    let string = |kind: u8, body: &[u8]| {
        let mut out = vec![kind];
        put_string(&mut out, body);
        read_value(&out)
    };
    // Two elements, "a" and 1024, in a ziplist.
    let ziplist = b"\x12\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xc0\x00\x04\xff";
    assert!(matches!(string(10, ziplist), Ok(Decoded::List(found)) if found == parts(&[b"a", b"1024"])));
    assert!(matches!(string(13, ziplist), Ok(Decoded::Hash(found)) if found == parts(&[b"a", b"1024"])));
    assert!(
        matches!(string(12, ziplist), Ok(Decoded::ZSet(found, scores)) if found == parts(&[b"a"]) && scores == [1024.0])
    );
    let zipmap = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
    let expected = parts(&[b"foo", b"bar", b"hello", b"world"]);
    assert!(matches!(string(9, zipmap), Ok(Decoded::Hash(found)) if found == expected));
    for cut in 0..zipmap.len() {
        assert!(string(9, &zipmap[..cut]).is_err());
    }
    for cut in 0..ziplist.len() {
        assert!(string(10, &ziplist[..cut]).is_err());
    }
    let intset = intset::bytes(&[-5, 70_000]);
    assert!(matches!(string(11, &intset), Ok(Decoded::Set(found)) if found == parts(&[b"-5", b"70000"])));
    assert!(string(11, &intset::bytes(&[5, 5])).is_err());
    let old_scores = b"\x03\x02\x01a\x031.5\x01b\xfe";
    assert!(matches!(read_value(old_scores), Ok(Decoded::ZSet(_, scores)) if scores == [1.5, f64::INFINITY]));
    assert!(read_value(b"\x03\x01\x01a\xfd").is_err(), "NaN");
}

#[test]
fn lists_are_divided_into_nodes() {
    let long = vec![b'l'; 10_000];
    let items: Vec<&[u8]> = (0..3000).map(|n| if n == 1500 { &long[..] } else { &b"element"[..] }).collect();
    let payload = dump(Type::ListQuicklist2, |out| put_list(out, items.iter().copied()));
    let Ok(Decoded::List(found)) = restore(&payload) else { panic!("a list") };
    assert!(found.iter().eq(items.iter().copied()));
}

fn sample_stream(entries: u64) -> Stream {
    let mut stream = Stream::new();
    let limits = ChunkLimits { bytes: 200, entries: 10 };
    for n in 1..=entries {
        let value = n.to_string();
        let pairs = [(&b"field"[..], value.as_bytes()), (if n % 3 == 0 { b"x" } else { b"y" }, b"const")];
        stream.append(Id::new(n, n % 2), pairs.into_iter(), limits);
    }
    stream.remove(Id::new(2, 0));
    let mut group = Group::new(Id::new(3, 1), Some(3));
    group.create_consumer(b"alice", 77);
    group.create_consumer(b"bob", 88);
    group.assign(Id::new(1, 1), b"alice", 99, 2);
    stream.create_group(b"group", group);
    stream
}

#[test]
fn streams_come_back() {
    let stream = sample_stream(50);
    let mut bytes = Vec::new();
    stream.encode(&mut bytes);
    let back = Stream::decode(&bytes).unwrap();
    assert_eq!((back.len(), back.last_id, back.max_deleted_id), (49, Id::new(50, 0), Id::new(2, 0)));
    assert_eq!((back.first_id(), back.entries_added), (Id::new(1, 1), 50));
    assert_eq!(back.group(b"group"), stream.group(b"group"));
    let mut again = Vec::new();
    back.encode(&mut again);
    assert_eq!(again, bytes);
    for cut in 0..bytes.len() {
        assert!(Stream::decode(&bytes[..cut]).is_err());
    }
}

proptest! {
    #[test]
    fn collections_come_back(
        items in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..60),
        numbers in proptest::collection::btree_set(any::<i64>(), 1..50),
        scores in proptest::collection::vec(any::<f64>().prop_filter("a number", |score| !score.is_nan()), 60),
    ) {
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let strings = || items.iter().copied();
        let list = restore(&dump(Type::ListQuicklist2, |out| put_list(out, strings())));
        prop_assert!(matches!(list, Ok(Decoded::List(found)) if found == parts(&items)));
        let set = restore(&dump(Type::SetListpack, |out| put_listpack(out, strings())));
        prop_assert!(matches!(set, Ok(Decoded::Set(found)) if found == parts(&items)));
        let set = restore(&dump(Type::Set, |out| put_strings(out, items.len(), strings())));
        prop_assert!(matches!(set, Ok(Decoded::Set(found)) if found == parts(&items)));
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let set = restore(&dump(Type::SetIntset, |out| put_intset(out, &numbers)));
        prop_assert!(matches!(set, Ok(Decoded::Set(found)) if found == parts(&texts)));
        let scored = || strings().zip(scores.iter().copied());
        for payload in [
            dump(Type::ZSetListpack, |out| put_scored_listpack(out, scored())),
            dump(Type::ZSet, |out| put_scored(out, items.len(), scored())),
        ] {
            let Ok(Decoded::ZSet(members, found)) = restore(&payload) else { panic!("a sorted set") };
            prop_assert_eq!(members, parts(&items));
            prop_assert_eq!(&found[..], &scores[..items.len()]);
        }
    }

    #[test]
    fn hostile_values_never_panic(kind in 0..24u8, body in proptest::collection::vec(any::<u8>(), 0..120), wrap in any::<bool>()) {
        let mut bytes = vec![kind];
        if wrap { put_string(&mut bytes, &body) } else { bytes.extend_from_slice(&body) }
        if let Ok(Decoded::Stream(stream, _)) = read_value(&bytes) {
            let mut again = Vec::new();
            stream.encode(&mut again);
            prop_assert!(Stream::decode(&again).is_ok());
        }
    }

    #[test]
    fn a_stream_with_a_changed_byte_is_refused_or_valid(at in 0..2000usize, to in any::<u8>()) {
        let mut bytes = Vec::new();
        sample_stream(12).encode(&mut bytes);
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(mut stream) = Stream::decode(&bytes) {
            let mut seen = 0;
            stream.each(Id::MIN, Id::MAX, crate::stream::Order::Descending, |entry| {
                seen += 1;
                entry.pairs().count() == entry.len()
            });
            prop_assert_eq!(seen, stream.len());
            while stream.first_id() != Id::MIN {
                let first = stream.first_id();
                prop_assert!(stream.remove(first));
            }
            prop_assert!(stream.is_empty());
        }
    }
}
