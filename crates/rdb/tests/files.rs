//! Whole files: one that redis-server 7.0 wrote, files of other versions by hand, damaged files, and files that the
//! writer made.

use proptest::prelude::*;
use rdb::{Error, Item, Key, Options, Piece, Reader, Writer};
use std::collections::BTreeMap;
use value::rdb::{Decoded, Parts, Type, crc64};

/// SAVE of redis-server 7.0.15: every type in every encoding that it writes, a library, two logical databases.
const REDIS_7_0: &[u8] = include_bytes!("redis-7.0.rdb");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn texts(parts: &Parts) -> Vec<String> {
    parts.iter().map(text).collect()
}

/// The keys with their values as text, and everything else.
#[derive(Default, Debug)]
struct Found {
    keys: BTreeMap<String, (Option<u64>, Vec<String>)>,
    aux: BTreeMap<String, String>,
    functions: Vec<String>,
    skipped: Vec<String>,
    pieces: usize,
    frequencies: Vec<u8>,
}

fn read(file: &[u8]) -> Result<Found, Error> {
    let mut reader = Reader::new(file, true)?;
    let mut found = Found::default();
    let mut last: Option<Key> = None;
    loop {
        match reader.next_item()? {
            Item::Aux(name, value) => _ = found.aux.insert(text(&name), text(&value)),
            Item::Function(code) => found.functions.push(text(&code)),
            Item::Skipped { module, key } => found.skipped.push(format!("{module} {:?}", key.as_deref().map(text))),
            Item::Key(key) => {
                let name = format!("{}/{}", key.db, text(&key.name));
                assert!(found.keys.insert(name, (key.expiry_ms, Vec::new())).is_none());
                found.frequencies.extend(key.frequency);
                last = Some(key);
            }
            Item::Piece(piece) => {
                let key = last.as_ref().expect("a key comes first");
                let all = &mut found.keys.get_mut(&format!("{}/{}", key.db, text(&key.name))).unwrap().1;
                found.pieces += 1;
                match piece {
                    Piece::Value(Decoded::String(string)) => all.push(text(&string)),
                    Piece::Value(Decoded::List(parts) | Decoded::Set(parts) | Decoded::Hash(parts)) => {
                        all.extend(texts(&parts));
                    }
                    Piece::Value(Decoded::ZSet(parts, scores)) => {
                        all.extend(texts(&parts).iter().zip(scores).map(|(member, score)| format!("{member} {score}")));
                    }
                    Piece::Value(Decoded::Stream(stream, _)) => {
                        let groups: Vec<_> = stream.groups().map(|(name, group)| (text(name), group.last_id)).collect();
                        all.push(format!("{} entries up to {:?}, {groups:?}", stream.len(), stream.last_id));
                    }
                    Piece::Stream(..) => panic!("nobody has asked for parts"),
                    Piece::Fields(pairs, expiries) => {
                        let pairs = pairs.pairs().zip(expiries);
                        all.extend(pairs.map(|((field, value), at)| format!("{} {} {at}", text(field), text(value))));
                    }
                }
            }
            Item::EndOfKey => last = None,
            Item::Pages(_) | Item::Dictionary(_) => panic!("nobody has asked for them"),
            Item::End => return Ok(found),
        }
    }
}

fn value(found: &Found, key: &str) -> Vec<String> {
    let mut value = found.keys.get(key).unwrap_or_else(|| panic!("{key} is in {found:?}")).1.clone();
    value.sort();
    value
}

#[test]
fn a_file_of_redis_is_read() {
    let found = read(REDIS_7_0).unwrap();
    assert_eq!(found.keys.len(), 16);
    assert_eq!(found.aux["redis-ver"], "7.0.15");
    assert_eq!(found.functions.len(), 1);
    assert!(found.functions[0].starts_with("#!lua name=lib\n"));
    assert_eq!(found.frequencies.len(), 16, "it was written under a policy by frequency");
    for (key, expected) in [
        ("0/text", vec!["value"]),
        ("0/number", vec!["-70000"]),
        ("0/list", vec!["300", "a", "a longer element of the list", "b"]),
        ("0/ints", vec!["1", "2", "70000"]),
        ("0/set", vec!["x", "y", "zzzz"]),
        ("0/zset", vec!["a 1.5", "b -inf", "c 3"]),
        ("0/hash", vec!["f1", "f2", "v1", "v2"]),
        ("3/other", vec!["database"]),
    ] {
        assert_eq!(value(&found, key), expected, "{key}");
    }
    assert_eq!(found.keys["0/expiring"], (Some(4_102_444_800_123), vec!["soon".to_owned()]));
    assert_eq!(found.keys["0/compressed"].1, ["abcabcabd".repeat(60)]);
    assert_eq!(
        value(&found, "0/stream"),
        ["2 entries up to Id { ms: 3, seq: 5 }, [(\"group\", Id { ms: 1, seq: 1 })]"]
    );
    for (key, members) in [("3/bigset", 600), ("3/bighash", 1200), ("3/bigzset", 200), ("3/biglist", 1500)] {
        assert_eq!(value(&found, key).len(), members, "{key}");
    }
}

/// A file of these bytes behind the magic, with its checksum.
fn file(magic: &str, body: &[u8]) -> Vec<u8> {
    let mut file = magic.as_bytes().to_vec();
    file.extend_from_slice(body);
    file.push(255);
    let sum = crc64(&file);
    file.extend_from_slice(&sum.to_le_bytes());
    file
}

#[test]
fn every_version_is_read_by_its_own_rules() {
    // Version 1 has no checksum, and expiries in seconds.
    let old = b"REDIS0001\xfe\0\xfd\x01\0\0\0\0\x01k\x01v\xff";
    assert_eq!(read(old).unwrap().keys["0/k"], (Some(1000), vec!["v".to_owned()]));
    for version in 5..=12 {
        let body = b"\xfe\x02\xfc\xe8\x03\0\0\0\0\0\0\0\x01k\x01v";
        assert_eq!(read(&file(&format!("REDIS{version:04}"), body)).unwrap().keys["2/k"].0, Some(1000));
    }
    let slots = b"\xfe\0\xf4\x05\x06\x07\xfb\x01\0\xf8\x0a\0\x01k\x01v";
    assert_eq!(value(&read(&file("REDIS0012", slots)).unwrap(), "0/k"), ["v"]);
    for (magic, said) in [
        ("REDIS0013", "version 13 is unknown"),
        ("REDIS0000", "version 0 is unknown"),
        ("VALKEY081", "version 81 is unknown"),
        ("REDIS00+1", "not a number"),
        ("RADIS0001", "neither REDIS nor VALKEY"),
    ] {
        let error = read(&file(magic, b"")).unwrap_err().to_string();
        assert!(error.starts_with("byte 0: ") && error.contains(said), "{error}");
    }
    assert!(read(b"REDIS").unwrap_err().to_string().contains("too short"));
}

#[test]
fn fields_that_expire_are_read_in_each_form() {
    // Redis 7.4: differences to the first expiry, plus one. Field b does not expire.
    let redis = b"\x18\x01h\xe8\x03\0\0\0\0\0\0\x02\x0b\x01a\x011\0\x01b\x012";
    assert_eq!(value(&read(&file("REDIS0012", redis)).unwrap(), "0/h"), ["a 1 1010", "b 2 0"]);
    let before_release = b"\x16\x01h\x02\x43\xf2\x01a\x011\0\x01b\x012";
    assert_eq!(value(&read(&file("REDIS0012", before_release)).unwrap(), "0/h"), ["a 1 1010", "b 2 0"]);
    let valkey = b"\x16\x01h\x02\x01a\x011\xf2\x03\0\0\0\0\0\0\x01b\x012\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(value(&read(&file("VALKEY080", valkey)).unwrap(), "0/h"), ["a 1 1010", "b 2 0"]);
    // A listpack of a, 1, 1010 and b, 2, 0.
    let list = b"\x16\0\0\0\x06\0\x81a\x02\x01\x01\xc3\xf2\x02\x81b\x02\x02\x01\0\x01\xff";
    let packed = [&[25, 1, b'h'][..], &1010u64.to_le_bytes(), &[list.len() as u8], list].concat();
    assert_eq!(value(&read(&file("REDIS0012", &packed)).unwrap(), "0/h"), ["a 1 1010", "b 2 0"]);
    let packed = [&[23, 1, b'h', list.len() as u8][..], list].concat();
    assert_eq!(value(&read(&file("REDIS0012", &packed)).unwrap(), "0/h"), ["a 1 1010", "b 2 0"]);
    let error = read(&file("REDIS0011", &packed)).unwrap_err().to_string();
    assert!(error.contains("unknown type 23"), "{error}");
    let error = read(&file("VALKEY080", redis)).unwrap_err().to_string();
    assert!(error.contains("unknown type 24"), "{error}");
}

#[test]
fn data_of_modules_is_skipped_and_told() {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id = "ReJSON-RL".chars().fold(0u64, |id, letter| id << 6 | letters.find(letter).unwrap() as u64) << 10 | 3;
    let mut body = b"\xf7\x81".to_vec();
    body.extend_from_slice(&id.to_be_bytes());
    // When, then a number of each type and a string.
    body.extend_from_slice(b"\x02\x01\x01\x05\x02\x06\x03abcd\x04abcdefgh\x05\x03xyz\0");
    body.extend_from_slice(b"\xfc\x01\0\0\0\0\0\0\0\x07\x03doc\x81");
    body.extend_from_slice(&id.to_be_bytes());
    body.extend_from_slice(b"\x05\x02{}\0\0\x01k\x01v");
    let found = read(&file("REDIS0011", &body)).unwrap();
    assert_eq!(found.skipped, ["ReJSON-RL None", "ReJSON-RL Some(\"doc\")"]);
    assert_eq!(found.keys["0/k"], (None, vec!["v".to_owned()]), "the skipped key's expiry is not the next one's");
    let error = read(&file("REDIS0008", b"\x06\x01k\x01v")).unwrap_err().to_string();
    assert!(error.contains("byte 10: a module's value in the format before Redis 4.0"), "{error}");
}

#[test]
fn damage_is_told_with_its_place() {
    let mut flipped = REDIS_7_0.to_vec();
    let at = flipped.windows(8).position(|bytes| bytes == b"database").unwrap();
    flipped[at] ^= 1;
    let error = read(&flipped).unwrap_err().to_string();
    assert!(error.starts_with(&format!("byte {}: the checksum is ", flipped.len() - 8)), "{error}");
    let end = flipped.len() - 8;
    flipped[end..].fill(0);
    assert!(read(&flipped).unwrap().keys.contains_key("3/other"), "a checksum of 0 is none");
    let cut = &REDIS_7_0[..5000];
    let cut = read(cut).unwrap_err().to_string();
    assert!(cut.starts_with("key '") && cut.contains("': the file ends too early"), "{cut}");
    let unknown = read(&file("REDIS0010", b"\0\x01k\x01v\x1f")).unwrap_err().to_string();
    assert!(unknown.contains("byte 15: a record of the unknown type 31"), "{unknown}");
    // A length of 2^31 bytes ends with the input, and nothing is allocated for it; one of 2^60 bytes is none.
    let huge = file("REDIS0010", b"\0\x81\0\0\0\0\x80\0\0\0k");
    assert!(matches!(read(&huge), Err(Error::Truncated { .. })));
    let huge = file("REDIS0010", b"\0\x81\x10\0\0\0\0\0\0\0k");
    assert!(read(&huge).unwrap_err().to_string().ends_with("its length is damaged"));
    let huge = file("REDIS0010", b"\x01\x01l\x81\x10\0\0\0\0\0\0\0\x01a");
    assert!(read(&huge).is_err());
}

#[test]
fn pages_are_for_who_asks_for_them() {
    let mut writer = Writer::new(Vec::new(), Options { version: 12, compresses: true, has_checksum: true });
    let pages = vec![7; 200_000];
    writer.dictionary(b"words").unwrap();
    writer.pages(&pages).unwrap();
    writer.key(b"k", None, Type::String).unwrap();
    writer.string(b"v").unwrap();
    let file = writer.finish().unwrap();
    let mut reader = Reader::new(&file[..], true).unwrap().with_pages();
    assert!(matches!(reader.next_item().unwrap(), Item::Dictionary(bytes) if bytes == b"words"));
    assert!(matches!(reader.next_item().unwrap(), Item::Pages(bytes) if bytes == pages));
    while !matches!(reader.next_item().unwrap(), Item::End) {}
    let error = read(&file).unwrap_err().to_string();
    assert_eq!(
        error,
        "byte 10: it has pages of a FlintKV server's flash, which only a replica of this server can load"
    );
}

#[test]
fn a_large_collection_comes_in_pieces() {
    let mut writer = Writer::new(Vec::new(), OPTIONS);
    writer.key(b"list", None, Type::List).unwrap();
    writer.len(20_000);
    (0..20_000).for_each(|n| writer.string(format!("{n:0>100}").as_bytes()).unwrap());
    let found = read(&writer.finish().unwrap()).unwrap();
    assert_eq!(found.keys["0/list"].1.len(), 20_000);
    assert!(found.pieces >= 5, "{} pieces", found.pieces);
}

const OPTIONS: Options = Options { version: 10, compresses: true, has_checksum: true };

proptest! {
    #[test]
    fn damaged_files_never_panic(
        cut in 0..REDIS_7_0.len(), changes in proptest::collection::vec((0..REDIS_7_0.len(), any::<u8>()), 0..4),
    ) {
        // Without a checksum, so that the damage is met where it is.
        let mut damaged = REDIS_7_0.to_vec();
        changes.iter().for_each(|&(at, to)| damaged[at] = to);
        let end = damaged.len() - 8;
        damaged[end..].fill(0);
        let whole = read_all(&damaged);
        prop_assert!(whole.is_ok() || whole.is_err_and(|error| !error.to_string().is_empty()));
        prop_assert!(read_all(&damaged[..cut]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300), valkey in any::<bool>()) {
        _ = read_all(&file(if valkey { "VALKEY080" } else { "REDIS0012" }, &body));
    }

    #[test]
    fn what_is_written_comes_back(
        keys in proptest::collection::btree_map("[a-z]{1,9}", ("[a-c]{0,400}", proptest::option::of(1..i64::MAX as u64)), 0..20),
        version in 10..=12u32, compresses in any::<bool>(), has_checksum in any::<bool>(),
    ) {
        let mut writer = Writer::new(Vec::new(), Options { version, compresses, has_checksum });
        writer.aux("who", b"we").unwrap();
        writer.select(7);
        writer.resize(keys.len() as u64, 0);
        for (name, (value, expiry)) in &keys {
            writer.key(name.as_bytes(), *expiry, Type::String).unwrap();
            writer.string(value.as_bytes()).unwrap();
        }
        if version == 12 {
            writer.hash_with_expiries(b"A", None, 1000, 2).unwrap();
            writer.field(b"f", b"v", Some(10)).unwrap();
            writer.field(b"g", b"w", None).unwrap();
        }
        let bytes = writer.finish().unwrap();
        prop_assert_eq!(bytes.ends_with(&[0; 8]), !has_checksum);
        let found = read(&bytes).unwrap();
        prop_assert_eq!(&found.aux["who"], "we");
        for (name, (text, expiry)) in &keys {
            prop_assert_eq!(&found.keys[&format!("7/{name}")], &(*expiry, vec![text.clone()]));
        }
        if version == 12 {
            prop_assert_eq!(value(&found, "7/A"), ["f v 1010", "g w 0"]);
        }
    }
}

/// Like [`read`], for files in which a key may stand twice.
fn read_all(file: &[u8]) -> Result<usize, Error> {
    let mut reader = Reader::new(file, true)?;
    let mut items = 0;
    while !matches!(reader.next_item()?, Item::End) {
        items += 1;
    }
    Ok(items)
}
