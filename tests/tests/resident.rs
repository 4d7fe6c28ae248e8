//! The RAM limit bounds the resident size of the process at every moment, and -OOM means that flash is full.

use flintkv_tests::{Client, Node, Random, Watch, eventually, seed};
use resp::client::{Value, encode_command};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// On a slow machine, a phase of a test ends after this time.
const PHASE: Duration = Duration::from_secs(25);
/// The bound, in tenths of the limit.
const TENTHS_MAX: u64 = 11;

/// Prints the largest size since the last call, and checks it.
fn check(watch: &Watch<'_>, phase: &str, limit: u64) {
    let (largest, longest_ms) = watch.take();
    let percent = largest * 100 / limit;
    println!(
        "{phase}: at most {:.1} MiB of {} MiB, {percent} %, longest PING {longest_ms} ms",
        largest as f64 / MIB as f64,
        limit / MIB
    );
    assert!(largest <= limit * TENTHS_MAX / 10, "{phase}: {largest} bytes resident, RAM limit {limit}");
}

/// 32 bytes, 500 bytes or 20 KB, in proportions that give most of the bytes to the larger two.
fn size(random: &mut Random) -> usize {
    match random.below(20) {
        0..6 => 32,
        6..19 => 500,
        _ => 20_000,
    }
}

fn key(i: usize) -> Vec<u8> {
    format!("key:{i:09}").into_bytes()
}

/// Runs pipelines over `keys` until all keys are done or the phase is over. Returns the bytes of the values that were
/// set.
fn load(
    node: &Node,
    name: &str,
    keys: std::ops::Range<usize>,
    mut command: impl FnMut(usize, &mut Vec<u8>) -> u64,
) -> u64 {
    let mut client = node.connect();
    let deadline = Instant::now() + PHASE;
    let mut set = 0;
    for start in keys.clone().step_by(20) {
        let mut bytes = Vec::new();
        let end = (start + 20).min(keys.end);
        for i in start..end {
            set += command(i, &mut bytes);
        }
        client.send(&bytes);
        for i in start..end {
            let reply = client.reply().expect("the connection stays open");
            assert!(!matches!(reply, Value::Error(_)), "{name}, key {i}: {reply:?}");
        }
        if Instant::now() > deadline {
            println!("{name}: stopped at key {end} of {}", keys.end);
            break;
        }
    }
    set
}

#[test]
fn the_resident_size_stays_within_the_limit() {
    const LIMIT: u64 = 64 * MIB;
    /// Values of 1,340 bytes on average: more than five times the limit.
    const KEYS: usize = 260_000;
    let node = Node::start(&[("memory-limit", "1gb"), ("ram-limit", "64mb"), ("flash-segment-size", "4mb")]);
    Watch::during(&node, |watch| {
        let halves = [0..KEYS / 2, KEYS / 2..KEYS];

        let populate = |half: std::ops::Range<usize>| {
            let mut random = Random::new(seed() + half.start as u64);
            load(&node, "populate", half, |i, bytes| {
                let value_bytes = size(&mut random);
                let value = random.text(value_bytes);
                encode_command(&[b"SET", &key(i), &value], bytes);
                value.len() as u64
            })
        };
        let set: u64 = thread::scope(|scope| {
            let writers = halves.clone().map(|half| scope.spawn(move || populate(half)));
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        println!("populated with {:.1} times the limit", set as f64 / LIMIT as f64);
        check(watch, "populate", LIMIT);

        let read = |half: std::ops::Range<usize>| {
            let mut random = Random::new(seed() + half.end as u64);
            load(&node, "read", 0..40_000, |_, bytes| {
                encode_command(&[b"GET", &key(half.start + random.below(half.len()))], bytes);
                0
            })
        };
        thread::scope(|scope| halves.clone().into_iter().for_each(|half| drop(scope.spawn(move || read(half)))));
        check(watch, "read", LIMIT);

        let overwrite = |half: std::ops::Range<usize>| {
            let mut random = Random::new(seed() + half.end as u64);
            load(&node, "overwrite", 0..50_000, |_, bytes| {
                let i = half.start + random.below(half.len());
                match random.below(4) {
                    0 => encode_command(&[b"GET", &key(i)], bytes),
                    1 => encode_command(&[b"HSET", format!("hash:{}", i % 2000).as_bytes(), &key(i), b"field"], bytes),
                    _ => {
                        let value_bytes = size(&mut random);
                        encode_command(&[b"SET", &key(i), &random.text(value_bytes)], bytes);
                    }
                }
                0
            })
        };
        thread::scope(|scope| halves.clone().into_iter().for_each(|half| drop(scope.spawn(move || overwrite(half)))));
        check(watch, "overwrite", LIMIT);
        assert!(watch.samples() > 50);
    });
    let mut client = node.connect();
    assert!(client.info_number("tiering", "values_in_flash") > client.info_number("tiering", "values_in_ram"));
}

/// Sets keys in pipelines until one is refused. Returns how many were accepted before.
fn fill_until_refused(client: &mut Client, random: &mut Random, keys_max: usize) -> Option<usize> {
    const PIPELINE: usize = 20;
    let mut bytes = Vec::new();
    for start in (0..keys_max).step_by(PIPELINE) {
        let keys = start..(start + PIPELINE).min(keys_max);
        bytes.clear();
        keys.clone().for_each(|i| encode_command(&[b"SET", &key(i), &noise(random, 1000)], &mut bytes));
        client.send(&bytes);
        let mut refused = None;
        for i in keys {
            match client.reply().expect("the connection stays open") {
                Value::Simple(_) => {}
                Value::Error(text) if text.starts_with(b"OOM ") => refused = refused.or(Some(i)),
                other => panic!("{other:?}"),
            }
        }
        if refused.is_some() {
            return refused;
        }
    }
    None
}

/// Incompressible text.
fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_ne_bytes()).take(bytes).collect()
}

#[test]
fn writes_are_refused_only_when_flash_is_full_too() {
    // The binary of a debug build alone has 32 MB resident.
    const RAM: u64 = 42 * MIB;
    const FLASH: u64 = 48 * MIB;
    let (memory, ram) = ((RAM + FLASH).to_string(), RAM.to_string());
    let node = Node::start(&[("memory-limit", &memory), ("ram-limit", &ram), ("flash-segment-size", "1mb")]);
    let (mut client, mut random) = (node.connect(), Random::new(seed()));
    let taken = fill_until_refused(&mut client, &mut random, 200_000).expect("90 MB do not hold 200 MB");
    println!("refused after {taken} keys of 1,000 bytes with 42 MB of RAM and 48 MB of flash");
    // Three such records fill a page of 4 KiB to 73 %, and the collector keeps some segments free. RAM holds further
    // records, but their number depends on how much of the binary is resident.
    assert!(taken as u64 * 1000 > FLASH * 65 / 100, "refused after {taken} keys, long before flash was full");
    assert_eq!(client.info("tiering", "flash_full"), "1");

    // Commands that need no room still work.
    assert_eq!(client.run("EXISTS key:000000000"), "(integer) 1");
    assert!(matches!(client.call(&[b"GET", &key(0)]), Value::Bulk(value) if value.len() == 1000));
    for i in 0..taken / 2 {
        assert_eq!(client.call(&[b"DEL", &key(i)]), Value::Int(1), "key {i}");
    }
    eventually("what was deleted makes room", || client.run("SET again 1") == "OK");

    // With a policy that evicts, nothing is refused any more.
    assert_eq!(client.run("CONFIG SET maxmemory-policy allkeys-lru"), "OK");
    let refused = fill_until_refused(&mut client, &mut random, 150_000);
    assert_eq!(refused, None, "allkeys-lru makes room");
    assert!(client.info_number("stats", "evicted_keys") > 10_000);
    let mut kept = 0;
    for i in 149_000..150_000 {
        match client.call(&[b"GET", &key(i)]) {
            Value::Bulk(value) => {
                assert_eq!(value.len(), 1000);
                kept += 1;
            }
            Value::Null => {}
            other => panic!("{other:?}"),
        }
    }
    println!("of the last 1,000 keys {kept} are there");
    assert!(kept > 900, "the newest keys are kept: {kept} of 1,000");
    assert!(node.resident_bytes() <= RAM * TENTHS_MAX / 10);
}
