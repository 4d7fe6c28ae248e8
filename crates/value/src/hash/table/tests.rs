use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

fn name(n: usize) -> Vec<u8> {
    format!("field:{n}").into_bytes()
}

fn filled(fields: usize) -> Table {
    (0..fields).map(|n| (name(n), n.to_string().into_bytes())).collect()
}

/// A small deterministic source of numbers below n.
fn source(mut state: u64) -> impl FnMut(usize) -> usize {
    move |n| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % n as u64) as usize
    }
}

#[test]
fn a_hundred_thousand_fields_come_and_go() {
    let mut table = filled(100_000);
    table.fields.check();
    assert_eq!(table.len(), 100_000);
    assert_eq!(table.get(b"field:4711"), Some(&b"4711"[..]));
    assert_eq!(table.get(b"field:100000"), None);
    assert!(!table.set(b"field:7", b"seven"));
    assert_eq!(table.get(b"field:7"), Some(&b"seven"[..]));
    for n in 0..99_990 {
        assert!(table.remove(&name(n)));
    }
    assert!(!table.remove(b"field:3"));
    table.fields.check();
    assert_eq!(table.len(), 10);
    assert!(table.fields.chunk_count() <= 4, "it shrank: {}", table.fields.chunk_count());
}

#[test]
fn a_field_costs_some_ten_bytes_of_overhead() {
    for fields in [200, 1000, 5000, 5001, 20_000, 33_333, 70_000] {
        let table = filled(fields);
        let own: usize = table.iter().map(|(field, value)| field.len() + value.len()).sum();
        let more = (table.mem_bytes() - own) as f64 / fields as f64;
        assert!(more < 14.0, "{more} for {fields}");
    }
}

#[test]
fn a_scan_sees_every_field_that_stays_while_the_table_grows_and_shrinks() {
    let mut table = filled(1000);
    let mut seen = HashMap::<Vec<u8>, u32>::new();
    let (mut cursor, mut round) = (0, 0);
    loop {
        let step = table.scan(cursor, 10, &mut |field, _| *seen.entry(field.to_vec()).or_default() += 1);
        // Fields with even numbers stay; thousands of others come and go.
        for n in 0..3000 {
            let stranger = name(10_000 + n);
            if round % 2 == 0 {
                table.set(&stranger, b"")
            } else {
                table.remove(&stranger)
            };
        }
        table.remove(&name(round * 2 + 1));
        round += 1;
        match step {
            Step::Next(next) => cursor = next,
            Step::End => break,
        }
    }
    for n in (0..1000).step_by(2) {
        assert_eq!(seen.get(&name(n)), Some(&1), "field {n}, after {round} rounds");
    }
}

#[test]
fn a_scan_by_hostile_cursors_ends() {
    let table = filled(300);
    for cursor in [u64::MAX, 1 << 32, u64::from(u32::MAX), 1] {
        let mut seen = 0;
        table.scan(cursor, usize::MAX, &mut |_, _| seen += 1);
        assert!(seen <= 300);
    }
    assert_eq!(Table::new().scan(0, 10, &mut |_, _| panic!("nothing to visit")), Step::End);
    assert_eq!(Table::new().scan(77, 0, &mut |_, _| panic!("nothing to visit")), Step::End);
}

#[test]
fn random_fields_are_drawn_evenly() {
    let table = filled(50);
    let mut draw = source(42);
    let mut counts = BTreeMap::<Vec<u8>, u32>::new();
    for _ in 0..50_000 {
        *counts.entry(table.random(&mut draw).expect("it is not empty").0.to_vec()).or_default() += 1;
    }
    // The expected count is 1000 with a standard deviation of 31. Six deviations happen once in a hundred million.
    assert_eq!(counts.len(), 50);
    assert!(counts.values().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    assert_eq!(Table::new().random(draw), None);
}

#[test]
fn fields_of_one_tag_are_one_step() {
    // A simulated collision of the 32-bit tags: the tag alone must not identify a field.
    let mut table = Table::new();
    for field in [b"a", b"b", b"c"] {
        let place = table.find(77, field).unwrap_err();
        table.fields.insert(place, 77, &[&[1], field, &[1], b"v"]);
    }
    let mut seen = Vec::new();
    assert_eq!(table.scan(0, 1, &mut |field, _| seen.push(field.to_vec())), Step::End);
    assert_eq!(seen, [b"a", b"b", b"c"]);
    assert!(table.find(77, b"c").is_ok() && table.find(77, b"d").is_err());
}

#[test]
fn encoded_tables_come_back() {
    for fields in [0, 1, 2, 17, 1000] {
        let table = filled(fields);
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        let back = Table::decode(&bytes).expect("own bytes");
        back.fields.check();
        let mut again = Vec::new();
        back.encode(&mut again);
        assert_eq!(bytes, again, "deterministic");
        // With one byte less or more it is not a table.
        assert_eq!(Table::decode(&bytes[..bytes.len() - 1]).err(), Some(Corrupt));
        bytes.push(0);
        assert_eq!(Table::decode(&bytes).err(), Some(Corrupt));
    }
}

#[test]
fn hostile_counts_allocate_nothing() {
    assert_eq!(Table::decode(&[]).err(), Some(Corrupt));
    assert_eq!(Table::decode(&[0xff, 0xff, 0xff, 0xff, 0x0f]).err(), Some(Corrupt));
    assert_eq!(Table::decode(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0]).err(), Some(Corrupt));
    // The same field twice.
    assert_eq!(Table::decode(&[2, 1, b'a', 0, 1, b'a', 0]).err(), Some(Corrupt));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(table) = Table::decode(&bytes) {
            table.fields.check();
        }
    }

    #[test]
    fn behaves_as_a_map(ops in proptest::collection::vec((0..4u8, 0..400usize, 0..40usize), 0..1500)) {
        let (mut table, mut model) = (Table::new(), HashMap::new());
        for (op, field, len) in ops {
            let (field, value) = (name(field), vec![b'v'; len]);
            if op == 0 {
                prop_assert_eq!(table.remove(&field), model.remove(&field).is_some());
            } else {
                prop_assert_eq!(table.set(&field, &value), model.insert(field, value).is_none());
            }
        }
        table.fields.check();
        prop_assert_eq!(table.len(), model.len());
        let fields: HashSet<&[u8]> = table.iter().map(|(field, _)| field).collect();
        prop_assert_eq!(fields.len(), model.len());
        for (field, value) in &model {
            prop_assert_eq!(table.get(field), Some(&value[..]));
        }
    }

    #[test]
    fn fields_go_with_their_deadlines(ops in proptest::collection::vec((0..6u8, 0..60usize, 0..200u64), 0..600)) {
        let (mut table, mut model) = (Table::new(), BTreeMap::<Vec<u8>, Option<u64>>::new());
        let mut now_ms = 0;
        for (op, field, number) in ops {
            let field = name(field);
            match op {
                0 => prop_assert_eq!(table.remove(&field), model.remove(&field).is_some()),
                1 => prop_assert_eq!(table.set(&field, b"new"), model.insert(field, None).is_none()),
                2 => prop_assert_eq!(table.change(&field, b"sum"), model.insert(field.clone(), model.get(&field).copied().flatten()).is_none()),
                3 => {
                    now_ms += number / 10;
                    table.expire(now_ms, &mut |_| {});
                    model.retain(|_, at| at.is_none_or(|at| at > now_ms));
                }
                _ if model.contains_key(&field) => {
                    let at_ms = (op == 4).then_some(now_ms + 1 + number);
                    table.set_deadline(&field, at_ms);
                    model.insert(field, at_ms);
                }
                _ => {}
            }
            prop_assert_eq!(table.next_deadline(), model.values().copied().flatten().min());
        }
        table.fields.check();
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        for table in [&table, &Table::decode(&bytes).unwrap()] {
            prop_assert_eq!(table.len(), model.len());
            for (field, at) in &model {
                prop_assert_eq!(table.deadline(field), *at);
            }
        }
        for cut in bytes.len().saturating_sub(12)..bytes.len() {
            if let Ok(table) = Table::decode(&bytes[..cut]) {
                prop_assert!(table.next_deadline().is_none(), "only whole deadlines are read");
            }
        }
    }
}

// --- parts on flash ---

use crate::part::testing::Flash;
use crate::{Absent, Boxed};
use std::sync::Arc;

fn hash(value: &mut Boxed) -> &mut Table {
    let Boxed::Hash(table) = value else { unreachable!() };
    table
}

fn seen(value: &Boxed) -> &Table {
    let Boxed::Hash(table) = value else { unreachable!() };
    table
}

#[test]
fn one_field_needs_one_part() {
    let mut value = Boxed::Hash(filled(10_000));
    let flash = Arc::new(Flash::default());
    let whole = value.mem_bytes();
    flash.send(&mut value);
    assert!(value.mem_bytes() < whole / 5, "{} of {whole}", value.mem_bytes());
    assert_eq!(flash.len(), seen(&value).fields.chunk_count());
    assert_eq!(flash.bring(&mut value, |value, out| seen(value).want(b"field:77", out)), 1);
    assert_eq!(seen(&value).get(b"field:77"), Some(&b"77"[..]));
    // A part that was only read keeps its copy on flash. A changed part has none.
    assert_eq!(flash.len(), seen(&value).fields.chunk_count());
    assert!(!hash(&mut value).set(b"field:77", b"new"));
    assert_eq!(flash.len(), seen(&value).fields.chunk_count() - 1);
    // A step of a walk needs only its own fields.
    assert!(flash.bring(&mut value, |value, out| seen(value).want_scan(1 << 20, 30, out)) <= 4);
    let mut visited = 0;
    assert_ne!(seen(&value).scan(1 << 20, 30, &mut |_, _| visited += 1), Step::End);
    assert!(visited >= 30);
    drop(value);
    assert_eq!(flash.len(), 0);
}

proptest! {
    #[test]
    fn behaves_as_a_map_while_its_parts_come_and_go(
        ops in proptest::collection::vec((0..8u8, 0..400usize, 0..60usize), 0..800),
    ) {
        let (mut value, mut model) = (Boxed::Hash(filled(300)), BTreeMap::new());
        seen(&value).iter().for_each(|(field, value)| _ = model.insert(field.to_vec(), value.to_vec()));
        let flash = Arc::new(Flash::default());
        for (op, field, len) in ops {
            let (field, content) = (name(field), vec![b'v'; len]);
            if op == 0 {
                flash.send(&mut value);
            }
            flash.bring(&mut value, |value, out| seen(value).want(&field, out));
            match op {
                1..3 => prop_assert_eq!(hash(&mut value).remove(&field), model.remove(&field).is_some()),
                3..6 => {
                    prop_assert_eq!(hash(&mut value).set(&field, &content), !model.contains_key(&field));
                    model.insert(field, content);
                }
                _ => prop_assert_eq!(seen(&value).get(&field), model.get(&field).map(|value| &value[..])),
            }
            prop_assert_eq!(seen(&value).len(), model.len());
        }
        flash.bring(&mut value, |value: &Boxed, out: &mut Absent| value.absent(out));
        seen(&value).fields.check();
        let all: BTreeMap<Vec<u8>, Vec<u8>> = seen(&value).iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
        prop_assert_eq!(all, model);
        drop(value);
        prop_assert_eq!(flash.len(), 0);
    }
}
