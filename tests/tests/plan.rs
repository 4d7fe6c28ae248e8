//! `flintkv plan` against nodes that are really filled: what it predicts is what they take.

use base::random::SplitMix64;
use base::sizing::Demand;
use flintkv_tests::{Client, Node, binary, eventually};
use resp::client::encode_command;
use std::process::{Command, Stdio};

const KEYS: u64 = 40_000;
const VALUE_BYTES: usize = 500;
const PIPELINE: u64 = 200;

fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Draws keys by Zipf's law. Frequent keys are scattered over the order in which they were set.
struct Zipf {
    /// For each rank, how often it or a more frequent one is drawn.
    sums: Vec<f64>,
    random: SplitMix64,
}

impl Zipf {
    /// Has no divisor in common with [`KEYS`].
    const STEP: u64 = 7919;

    fn new(skew: f64) -> Zipf {
        let sums = (1..=KEYS).scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-skew);
            Some(*sum)
        });
        Zipf { sums: sums.collect(), random: SplitMix64(1) }
    }

    fn draw(&mut self) -> u64 {
        let at = self.random.draw() as f64 / u64::MAX as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum < at) as u64 * Self::STEP % KEYS
    }
}

fn pipelined(client: &mut Client, numbers: impl Iterator<Item = u64>, words: impl Fn(u64, &mut Vec<u8>)) {
    let numbers: Vec<u64> = numbers.collect();
    for part in numbers.chunks(PIPELINE as usize) {
        let mut bytes = Vec::new();
        part.iter().for_each(|&number| words(number, &mut bytes));
        client.send(&bytes);
        part.iter().for_each(|_| drop(client.raw().expect("a reply")));
    }
}

fn is_near(what: &str, measured: u64, planned: u64, percent: u64) {
    println!("{what}: {measured}, planned {planned}");
    assert!(measured.abs_diff(planned) * 100 <= planned * percent, "{what}: {measured} instead of {planned}");
}

/// It compares what a process takes, which other processes of a busy machine delay: `make soak` runs it.
#[test]
#[ignore = "measures resident memory: part of make soak"]
fn a_filled_node_takes_what_the_plan_says() {
    let node = Node::start(&[
        ("memory-limit", "1gb"),
        ("flash-compression", "none"),
        ("flash-segment-size", "1mb"),
        ("io-threads", "1"),
    ]);
    let demand = Demand {
        keys: KEYS,
        key_bytes: 16,
        value_bytes: VALUE_BYTES as u64,
        compression: 1.0,
        skew: 0.0,
        reads_per_second: 1.0,
        writes_per_second: 0.0,
        workers: 1,
        has_journal: false,
        has_console: false,
    };
    let plan = demand.for_ram_share(0.3);
    let mut client = node.connect();
    pipelined(&mut client, 0..KEYS, |number, bytes| {
        encode_command(&[b"SET", key(number).as_bytes(), &SplitMix64(number).bytes(VALUE_BYTES)], bytes);
    });
    // What a process of this build takes is measured, not planned: the plan has an optimised build's.
    let own = node.resident_bytes()
        - client.info_number("tiering", "ram_object_bytes")
        - client.info_number("tiering", "ram_index_bytes");
    let limit = plan.ram_limit_bytes - plan.own_bytes + own;
    assert_eq!(client.run(&format!("CONFIG SET ram-limit {limit}")), "OK");
    let settled = |client: &mut Client| {
        let mut before = u64::MAX;
        eventually("values leave RAM until there are as many as fit", || {
            let now = client.info_number("tiering", "values_in_ram");
            let rests = now == before && client.info_number("tiering", "ram_writing_bytes") == 0 && now < KEYS;
            before = now;
            rests
        });
    };
    settled(&mut client);
    is_near("index", client.info_number("tiering", "ram_index_bytes"), plan.index_bytes, 30);
    // Each key is read once: values come and go.
    pipelined(&mut client, 0..KEYS, |number, bytes| encode_command(&[b"GET", key(number).as_bytes()], bytes));
    settled(&mut client);
    let hot = client.info_number("tiering", "values_in_ram");
    let each = client.info_number("tiering", "ram_object_bytes") / hot;
    is_near("bytes of a value in RAM", each, plan.hot_bytes / plan.hot_values, 5);
    // What the process takes for itself changes by a megabyte, of seven for values.
    is_near("values in RAM", hot, plan.hot_values, 30);
    is_near("live bytes on flash", client.info_number("tiering", "flash_live_bytes"), plan.flash_live_bytes, 10);

    let mut zipf = Zipf::new(1.0);
    let mut read = |client: &mut Client, reads: u64| {
        let numbers: Vec<u64> = (0..reads).map(|_| zipf.draw()).collect();
        pipelined(client, numbers.into_iter(), |number, bytes| {
            encode_command(&[b"GET", key(number).as_bytes()], bytes)
        });
    };
    read(&mut client, 60_000);
    assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
    read(&mut client, 40_000);
    let [hot, hits, misses] = ["values_in_ram", "storage_provider_read_hits", "storage_provider_read_misses"]
        .map(|field| client.info_number("tiering", field) as f64);
    let planned = Demand { skew: 1.0, ..demand }.for_ram_share(hot / KEYS as f64);
    let measured = hits / (hits + misses);
    println!("hit ratio: {measured:.3}, planned {:.3}", planned.hit_ratio);
    assert!((measured - planned.hit_ratio).abs() < 0.03, "hit ratio {measured} instead of {}", planned.hit_ratio);
}

#[test]
fn a_running_server_is_measured() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for number in 0..500 {
        let text = "abcdefgh".repeat(50);
        assert_eq!(client.run(&format!("SET {} {text}", key(number))), "OK");
    }
    let plan = |args: &[&str]| {
        let output =
            Command::new(binary()).arg("plan").args(args).stdin(Stdio::null()).output().expect("the binary runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let from = format!("redis://127.0.0.1:{}", node.port);
    let (code, said) = plan(&["--from", &from, "--ram-price", "8", "--flash-price", "1"]);
    assert_eq!(code, Some(0), "{said}");
    // 500 keys of 16 bytes with 400; the text is short when it is compressed.
    for part in ["500 keys of 16 B with values of 400 B", "compressed to ", "directives", "HIT RATIO", "instead of"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert_eq!(client.run("DBSIZE"), "(integer) 500");
    // What is said overrides what was measured.
    let (_, said) = plan(&["--from", &from, "--keys", "75m", "--skew", "0", "--ram-share", "50%"]);
    assert!(
        said.contains("75M keys of 16 B with values of 400 B") && said.contains("50 % with 50 % of the values"),
        "{said}"
    );
    let (code, said) = plan(&["--keys", "0", "--value-size", "500"]);
    assert!(code == Some(2) && said.contains("--keys: must be from 1"), "{said}");
    assert_eq!(client.run("FLUSHALL"), "OK");
    let (code, said) = plan(&["--from", &from]);
    assert!(code == Some(1) && said.contains("has no keys to measure"), "{said}");
}
