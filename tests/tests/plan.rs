//! Compares the predictions of `flintkv plan` with the measured RAM and flash of filled nodes.

use base::pattern::Pattern;
use base::random::SplitMix64;
use base::sizing::WorkloadSpec;
use commands::Expect;
use flintkv_tests::{Client, Node, Redis, binary, eventually, free_port, shown};
use resp::client::{Value, encode_command};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use survey::{Use, uses};

const KEYS: u64 = 40_000;
const VALUE_BYTES: usize = 500;
const PIPELINE: u64 = 200;
const SIGSTOP: i32 = 19;

fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Draws keys by Zipf's law. Frequent keys are scattered over the order in which they were set.
struct Zipf {
    /// For each rank, the probability that it or a more frequent one is drawn.
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

fn settled(client: &mut Client) {
    let mut before = u64::MAX;
    eventually("values leave RAM until there are as many as fit", || {
        let now = client.info_number("tiering", "values_in_ram");
        let rests = now == before && client.info_number("tiering", "ram_writing_bytes") == 0 && now < KEYS;
        before = now;
        rests
    });
}

/// It compares resident sizes, which settle late on a busy machine, so only `make soak` runs it.
#[test]
#[ignore = "measures resident memory: part of make soak"]
fn a_filled_node_takes_what_the_plan_says() {
    let node = Node::start(&[
        ("memory-limit", "1gb"),
        ("flash-compression", "none"),
        ("flash-segment-size", "1mb"),
        ("io-threads", "1"),
    ]);
    let demand = WorkloadSpec {
        keys: KEYS,
        key_bytes: 16,
        value_bytes: VALUE_BYTES as u64,
        compression: 1.0,
        pattern: Pattern::Skew(0.0),
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
    // The memory of the process itself is measured, not planned, because the plan assumes an optimised build.
    let own = node.resident_bytes()
        - client.info_number("tiering", "ram_object_bytes")
        - client.info_number("tiering", "ram_index_bytes");
    let limit = plan.ram_limit_bytes - plan.own_bytes + own;
    assert_eq!(client.run(&format!("CONFIG SET ram-limit {limit}")), "OK");
    settled(&mut client);
    is_near("index", client.info_number("tiering", "ram_index_bytes"), plan.index_bytes, 30);
    // Read each key once, so that values move to RAM and back to flash.
    pipelined(&mut client, 0..KEYS, |number, bytes| encode_command(&[b"GET", key(number).as_bytes()], bytes));
    settled(&mut client);
    let hot = client.info_number("tiering", "values_in_ram");
    let each = client.info_number("tiering", "ram_object_bytes") / hot;
    is_near("bytes of a value in RAM", each, plan.hot_bytes / plan.hot_values, 5);
    // The memory of the process itself varies by a megabyte; values have seven.
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
    let planned = WorkloadSpec { pattern: Pattern::Skew(1.0), ..demand }.for_ram_share(hot / KEYS as f64);
    let measured = hits / (hits + misses);
    println!("hit ratio: {measured:.3}, planned {:.3}", planned.hit_ratio);
    assert!((measured - planned.hit_ratio).abs() < 0.03, "hit ratio {measured} instead of {}", planned.hit_ratio);
}

/// Loads of the published scenarios, and three skews: options of `flintkv bench`, and whether a half of the commands are writes.
const LOADS: [(&str, &str); 7] = [
    ("rof", "--key-pattern G:G --key-stddev 2733 --ratio 1:1"),
    ("keydb-flash", "--key-pattern R:R --ratio 1:9"),
    ("gemini-rta", "--key-pattern R:R --ratio 0:1 --key-maximum 20000"),
    ("skew 0.6", "--key-pattern Z:Z --key-zipf-exp 0.6 --ratio 0:1"),
    ("skew 0.8 with writes", "--key-pattern Z:Z --key-zipf-exp 0.8 --ratio 1:3"),
    ("skew 1.0", "--key-pattern Z:Z --key-zipf-exp 1 --ratio 0:1"),
    ("skew 1.2", "--key-pattern Z:Z --key-zipf-exp 1.2 --ratio 1:9"),
];

/// A load that runs until it is dropped.
struct Load(Child);

impl Load {
    fn start(port: &str, options: &str) -> Load {
        let fixed = ["bench", "-p", port, "-t", "1", "-c", "4", "--pipeline", "11", "-d", "500", "--random-data"];
        let range = ["--key-minimum", "1", "--test-time", "600", "--distinct-client-seed", "--randomize"];
        let last = KEYS.to_string();
        // If the load has its own key range, use that.
        let range_end: &[&str] = if options.contains("maximum") { &[] } else { &["--key-maximum", &last] };
        let mut command = Command::new(binary());
        command.args(fixed).args(options.split(' ')).args(range).args(range_end);
        Load(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bench starts"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().expect("bench still runs");
        self.0.wait().expect("bench ends");
    }
}

/// The same as the test above, with a monitored load instead of given numbers.
#[test]
#[ignore = "takes five minutes: part of make soak"]
fn a_watched_load_is_answered_as_planned() {
    let node = Node::start(&[
        ("memory-limit", "1gb"),
        ("flash-compression", "none"),
        ("flash-segment-size", "1mb"),
        ("io-threads", "1"),
    ]);
    let mut client = node.connect();
    pipelined(&mut client, 0..KEYS, |number, bytes| {
        let name = format!("memtier-{}", number + 1);
        encode_command(&[b"SET", name.as_bytes(), &SplitMix64(number).bytes(VALUE_BYTES)], bytes);
    });
    // Three tenths of the values are to stay in RAM; of a small limit, a tenth stays free.
    let objects = client.info_number("tiering", "ram_object_bytes");
    let limit = (node.resident_bytes() - objects + objects * 3 / 10) * 10 / 9;
    assert_eq!(client.run(&format!("CONFIG SET ram-limit {limit}")), "OK");
    settled(&mut client);
    let port = node.port.to_string();
    let from = format!("redis://127.0.0.1:{port}");
    // The first measurement takes memory of the process, which is then missing for values, so measure once before.
    let load = Load::start(&port, LOADS[0].1);
    let (code, said) = plan(&["--from", &from, "--monitor", "8"]);
    assert_eq!(code, Some(0), "{said}");
    drop(load);
    let mut wrong = Vec::new();
    for (name, options) in LOADS {
        let load = Load::start(&port, options);
        // Wait until as many values enter RAM as leave it.
        std::thread::sleep(Duration::from_secs(20));
        let hot = client.info_number("tiering", "values_in_ram") as f64 / KEYS as f64;
        let (code, planned) = plan(&[
            "--from",
            &from,
            "--monitor",
            "8",
            "--json",
            // The codec of the node.
            "--compression",
            "1",
            "--ram-share",
            &hot.to_string(),
        ]);
        assert_eq!(code, Some(0), "{name}: {planned}");
        // Reset after the sample, because its reads do not belong to the load.
        assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
        std::thread::sleep(Duration::from_secs(5));
        let number = |client: &mut Client, field: &str| client.info_number("tiering", field) as f64;
        let [hits, misses] =
            ["storage_provider_read_hits", "storage_provider_read_misses"].map(|field| number(&mut client, field));
        let [values, objects, index, live] =
            ["values_in_ram", "ram_object_bytes", "ram_index_bytes", "flash_live_bytes"]
                .map(|field| number(&mut client, field));
        drop(load);
        let planned: serde_json::Value = serde_json::from_str(&planned).expect("a plan");
        let chosen = |field: &str| planned["chosen"][field].as_f64().expect("a number");
        let ratio = hits / (hits + misses);
        let (ram, flash) = ((objects + index) / 1e6, live / 1e6);
        let (ram_planned, flash_planned) =
            ((chosen("hot_bytes") + chosen("index_bytes")) / 1e6, chosen("flash_live_bytes") / 1e6);
        println!(
            "{name}: {:.1} % in RAM, then {:.1} %; hit ratio {:.1} % of {} reads, planned {:.1} %; RAM {ram:.2} MB, planned {ram_planned:.2}; flash {flash:.2} MB, planned {flash_planned:.2}; {} commands seen",
            hot * 100.0,
            values / KEYS as f64 * 100.0,
            ratio * 100.0,
            hits + misses,
            chosen("hit_ratio") * 100.0,
            planned["monitor"]["commands"],
        );
        let is_near = |measured: f64, planned: f64| (measured - planned).abs() <= 0.1 * measured;
        let sizes_fit = is_near(ram, ram_planned) && is_near(flash, flash_planned);
        if (ratio - chosen("hit_ratio")).abs() > 0.03 || !sizes_fit {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "other than planned: {wrong:?}");
}

fn plan(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary()).arg("plan").args(args).stdin(Stdio::null()).output().expect("the binary runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), said(&output.stdout) + &said(&output.stderr))
}

fn json(args: &[&str]) -> serde_json::Value {
    let (code, said) = plan(&[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_running_server_is_measured() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.set_all((0..500).map(|number| (key(number), "abcdefgh".repeat(50))));
    let from = format!("redis://127.0.0.1:{}", node.port);
    let (code, said) = plan(&["--from", &from, "--ram-price", "8", "--flash-price", "1"]);
    assert_eq!(code, Some(0), "{said}");
    // 500 keys of 16 bytes with values of 400 bytes, which compress well. The source does not tell how the keys are
    // used.
    for part in
        ["500 keys of 16 B with values of 400 B", "compressed to ", "directives", "instead of", "it is not known"]
    {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert_eq!(client.run("DBSIZE"), "(integer) 500");
    // Given numbers override measured ones.
    let (_, said) = plan(&["--from", &from, "--keys", "75m", "--skew", "0", "--ram-share", "50%"]);
    assert!(
        said.contains("75M keys of 16 B with values of 400 B") && said.contains("50 % with 50 % of the values"),
        "{said}"
    );
    let (code, said) = plan(&["--keys", "0", "--value-size", "500"]);
    assert!(code == Some(2) && said.contains("--keys: must be from 1"), "{said}");

    // A fifth of the keys gets all reads.
    let stop = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut reader, mut random) = (node.connect(), SplitMix64(1));
            while !stop.load(Ordering::Relaxed) {
                let numbers: Vec<u64> = (0..100).map(|_| random.below(100)).collect();
                pipelined(&mut reader, numbers.into_iter(), |number, bytes| {
                    encode_command(&[b"GET", key(number).as_bytes()], bytes)
                });
            }
        });
        let watched = json(&["--from", &from, "--monitor", "3", "--hit-ratio", "50%"]);
        stop.store(true, Ordering::Relaxed);
        watched
    });
    assert_eq!(watched["usage"]["keys"], 100);
    assert!(watched["monitor"]["commands"].as_u64() > Some(1000), "{watched:#}");
    let share = watched["chosen"]["ram_share"].as_f64().expect("a share");
    assert!((0.08..0.12).contains(&share), "{watched:#}");

    assert_eq!(client.run("FLUSHALL"), "OK");
    let (code, said) = plan(&["--from", &from]);
    assert!(code == Some(1) && said.contains("has no keys to measure"), "{said}");
}

#[test]
fn a_dump_and_a_capture_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.set_all((0..300).map(|number| (key(number), "abcdefgh".repeat(50))));
    assert_eq!(client.run("HSET hash field value"), "(integer) 1");
    assert_eq!(client.run("XADD stream 1-1 field value"), "\"1-1\"");
    assert_eq!(client.run("SAVE"), "OK");
    let dump = format!("{}/dump.rdb", client.run("CONFIG GET dir").split('"').nth(3).expect("a directory"));
    let read = json(&["--rdb", &dump, "--ram-share", "30%"]);
    assert_eq!((&read["sample"]["keys"], &read["workload"]["keys"]), (&302.into(), &302.into()), "{read:#}");
    assert!(read["sample"]["compression"].as_f64() < Some(0.1), "{read:#}");
    assert!(read["chosen"]["hit_ratio_low"].as_f64() < read["chosen"]["hit_ratio_high"].as_f64(), "{read:#}");

    // A capture has keys, values and times; a dump in addition has all values.
    let lines: String = (0..3000)
        .map(|line| {
            let (at, number) = (100.0 + f64::from(line) / 1000.0, line % 200);
            format!("{at:.6} [0 10.0.0.1:5] \"set\" \"key:{number:04}\" \"{}\"\n{at:.6} [0 10.0.0.1:5] \"get\" \"key:{number:04}\"\n", "v".repeat(100))
        })
        .collect();
    std::fs::write(path("monitor.txt"), lines).expect("written");
    let traced = json(&["--trace", &path("monitor.txt"), "--ram-share", "30%"]);
    assert_eq!(
        (&traced["workload"]["keys"], &traced["workload"]["value_bytes"]),
        (&200.into(), &100.into()),
        "{traced:#}"
    );
    let rates = [&traced["workload"]["reads_per_second"], &traced["workload"]["writes_per_second"]]
        .map(|rate| rate.as_f64().expect("a rate"));
    assert!(rates.iter().all(|rate| (990.0..1010.0).contains(rate)), "{rates:?}");
    // Each read follows a SET of the same key.
    assert_eq!(traced["chosen"]["hit_ratio"], 1.0, "{traced:#}");
    let both = json(&["--trace", &path("monitor.txt"), "--rdb", &dump]);
    assert_eq!((&both["workload"]["keys"], &both["usage"]["keys"]), (&302.into(), &200.into()), "{both:#}");

    // The figures of a device.
    let point = |depth: u32, rate: u32, us: u32| {
        format!(
            r#"{{"depth":{depth},"reads_per_second":{rate},"latency_us":{us},"latency_p99_us":{},"cpu_us_per_read":5}}"#,
            us * 2
        )
    };
    let device = format!(
        r#"{{"directories":[{{"reads":[{},{}],"write_bytes_per_second":1000000000}}]}}"#,
        point(1, 10_000, 100),
        point(64, 100_000, 640)
    );
    std::fs::write(path("device.json"), device).expect("written");
    let numbers = ["--keys", "1m", "--value-size", "500", "--skew", "0", "--ram-share", "50%", "--reads", "10k"];
    let on_device = json(&[&numbers[..], &["--flash", &path("device.json")]].concat());
    let expected = ["flash_read_us", "added_us", "reads_per_second_max"]
        .map(|field| on_device["chosen"]["expected"][field].as_f64().map(f64::round));
    assert_eq!(expected, [Some(100.0), Some(50.0), Some(120_000.0)], "{on_device:#}");
    for (args, said) in [
        (vec!["--rdb", &path("monitor.txt")], "not an RDB file"),
        (vec!["--trace", &dump], "MONITOR"),
        (vec!["--trace", &path("none")], "No such file"),
        (vec!["--keys", "1", "--value-size", "1", "--flash", &path("monitor.txt")], "prepare-flash --json"),
        (vec!["--keys", "1", "--value-size", "1", "--flash", &path("none")], "prepare-flash --json"),
    ] {
        let (code, answer) = plan(&args);
        assert!(code != Some(0) && answer.contains(said), "{args:?}: {answer}");
    }
}

#[test]
fn a_server_that_cannot_be_measured_is_named_with_the_reason() {
    let node = Node::start(&[("requirepass", "right")]);
    let from = format!("redis://127.0.0.1:{}", node.port);
    for (args, why) in [
        (&[][..], "NOAUTH"),
        (&["--from-password", "wrong"], "WRONGPASS"),
        (&["--from-password", "right"], "has no keys to measure"),
        (&["--from-password", "right", "--monitor", "1"], "has no keys to measure"),
    ] {
        let (code, said) = plan(&[&["--from", &from], args].concat());
        assert!(code == Some(1) && said.contains(why) && !said.contains("wrong"), "{args:?}: {said}");
    }
    let (code, said) = plan(&["--from", &from.replace("redis:", "rediss:"), "--from-password", "right"]);
    assert!(code == Some(1) && said.contains(&format!("127.0.0.1:{}", node.port)), "TLS where there is none: {said}");
    // The server accepts connections but does not answer.
    node.signal(SIGSTOP);
    let (code, said) = plan(&["--from", &from, "--from-password", "right"]);
    assert!(code == Some(1) && said.contains("it does not answer"), "{said}");
}

#[test]
fn a_server_with_tls_and_a_node_of_a_cluster_are_measured() {
    let folder = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (cert, secret, port) = (path("cert.pem"), path("key.pem"), free_port().to_string());
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&secret, made.signing_key.serialize_pem()).expect("written");
    let node = Node::start(&[
        ("tls-port", &port),
        ("tls-cert-file", &cert),
        ("tls-key-file", &secret),
        ("tls-auth-clients", "no"),
    ]);
    node.connect().set_all((0..50).map(|number| (key(number), "v".repeat(100))));
    let from = format!("rediss://localhost:{port}");
    let read = json(&["--from", &from, "--cacert", &cert, "--ram-share", "30%"]);
    assert_eq!((&read["sample"]["keys"], &read["sample"]["value_bytes"]), (&50.into(), &100.into()), "{read:#}");
    for (from, why) in [(from.clone(), "certificate"), (from.replace("rediss:", "redis:"), "localhost")] {
        let (code, said) = plan(&["--from", &from]);
        assert!(code == Some(1) && said.contains(why), "{from}: {said}");
    }

    // By default the cluster bus uses port + 10,000, which is in the range of client ports.
    let bus = free_port().to_string();
    let Some(redis) = Redis::if_installed(&["--cluster-enabled", "yes", "--cluster-port", &bus]) else { return };
    let mut client = redis.connect();
    assert_eq!(client.run("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    eventually("the cluster is ready", || client.run("CLUSTER INFO").contains("cluster_state:ok"));
    client.set_all((0..50).map(|number| (key(number), "v".repeat(100))));
    let read = json(&["--from", &format!("redis://127.0.0.1:{}", redis.port), "--ram-share", "30%"]);
    assert_eq!((&read["sample"]["keys"], &read["sample"]["value_bytes"]), (&50.into(), &100.into()), "{read:#}");
    assert!(read["sources"][0].as_str().is_some_and(|name| name.contains("one node of a cluster")), "{read:#}");
}

/// Different kinds of Redis servers: each is measured, or the error gives the reason and advice.
#[test]
fn a_redis_of_any_kind_is_measured_or_says_what_to_do() {
    let Some(redis) = Redis::if_installed(&["--enable-debug-command", "yes"]) else { return };
    let mut client = redis.connect();
    let from = |rest: &str| format!("redis://{rest}127.0.0.1:{}", redis.port);
    let refused = |args: &[&str], why: &str, hint: &str| {
        let (code, said) = plan(args);
        assert!(code != Some(0) && said.contains(why), "{args:?}: {said}");
        let hints = said.split_once("hint: ").map_or("", |(_, hint)| hint);
        assert!(hints.contains(hint), "{args:?}: {said}");
    };
    refused(&["--from", &from("")], "has no keys to measure", "--keys");

    // Logical databases: all of them, or one.
    for (db, count) in [(0, 300), (7, 200), (15, 100)] {
        assert_eq!(client.run(&format!("SELECT {db}")), "OK");
        client.set_all((0..count).map(|number| (key(number), "v".repeat(100))));
    }
    let all = json(&["--from", &from(""), "--ram-share", "30%"]);
    assert_eq!((&all["sample"]["keys"], &all["sample"]["sampled"]), (&600.into(), &600.into()), "{all:#}");
    let one = json(&["--from", &(from("") + "/7"), "--ram-share", "30%"]);
    assert_eq!((&one["sample"]["keys"], &one["workload"]["keys"]), (&200.into(), &200.into()), "{one:#}");

    // Users that may not do everything.
    for (name, rules) in [("blind", "+@all -monitor"), ("mute", "+@all -dump"), ("apart", "+@all resetkeys ~app:*")] {
        assert_eq!(client.run(&format!("ACL SETUSER {name} on >pw ~* {rules}")), "OK");
    }
    let may = "resetchannels -@all +ping +info +select +scan +randomkey +memory|usage +dump";
    assert_eq!(client.run(&format!("ACL SETUSER least on >pw ~* {may}")), "OK");
    refused(&["--from", &from("blind:pw@"), "--monitor", "1"], "MONITOR: NOPERM", "+monitor");
    refused(&["--from", &from("mute:pw@")], "DUMP: NOPERM", "--rdb");
    refused(&["--from", &from("apart:pw@")], "MEMORY USAGE: NOPERM", "~*");
    refused(&["--from", &from("least:wrong@")], "WRONGPASS", "password");
    let least = json(&["--from", &from("least:pw@"), "--ram-share", "30%"]);
    assert_eq!(least["sample"]["keys"], 600, "{least:#}");

    // A dataset only of keys that expire, one only of hashes, and one of values that do not compress.
    assert_eq!(client.run("FLUSHALL"), "OK");
    for number in 0..20u64 {
        client.call(&[b"SET", key(number).as_bytes(), &SplitMix64(number).bytes(1_000_000), b"EX", b"1000"]);
    }
    let large = json(&["--from", &from(""), "--ram-share", "30%"]);
    assert_eq!((&large["sample"]["sampled"], &large["sample"]["value_bytes"]), (&20.into(), &1_000_000.into()));
    assert!(large["sample"]["compression"].as_f64() > Some(0.99), "{large:#}");
    assert_eq!(client.run("FLUSHALL"), "OK");
    (0..50).for_each(|number| drop(client.run(&format!("HSET h{number} name bob city paris"))));
    let hashes = json(&["--from", &from(""), "--ram-share", "30%"]);
    assert_eq!((&hashes["sample"]["keys"], &hashes["sample"]["value_bytes"]), (&50.into(), &24.into()), "{hashes:#}");

    // A giant key among others is not fetched; as the only key it is no basis for an average.
    assert_eq!(client.run("EVAL \"return redis.call('setrange', 'giant', 90000000, 'x')\" 0"), "(integer) 90000001");
    let giant = json(&["--from", &from(""), "--ram-share", "30%"]);
    assert_eq!((&giant["sample"]["estimated"], &giant["sample"]["keys"]), (&1.into(), &51.into()), "{giant:#}");
    assert!(giant["sample"]["largest_bytes"].as_u64() > Some(80_000_000), "{giant:#}");
    (0..50).for_each(|number| drop(client.run(&format!("DEL h{number}"))));
    refused(&["--from", &from("")], "at most 16 MB: a larger string", "");

    // The server ends while it is monitored.
    let ending = std::thread::scope(|scope| {
        let watching = scope.spawn(|| plan(&["--from", &from(""), "--monitor", "60"]));
        eventually("it is watched", || client.run("CLIENT LIST").contains("cmd=monitor"));
        client.send(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n");
        watching.join().expect("it ends")
    });
    assert!(ending.0 == Some(1) && ending.1.contains("hint: check that the server still runs"), "{}", ending.1);
    refused(&["--from", &from("")], "Connection refused", "host and port");

    let Some(renamed) = Redis::if_installed(&["--rename-command", "MEMORY", "", "--rename-command", "MONITOR", ""])
    else {
        return;
    };
    renamed.connect().set_all([(key(1), "v".to_owned())]);
    let from = format!("redis://127.0.0.1:{}", renamed.port);
    refused(&["--from", &from], "unknown command 'MEMORY'", "--rdb");
    refused(&["--from", &from, "--monitor", "1"], "unknown command 'MONITOR'", "--trace");
}

#[test]
fn files_that_are_broken_are_read_as_far_as_they_tell_something() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.set_all((0..300).map(|number| (key(number), "abcdefgh".repeat(50))));
    assert_eq!(client.run("SAVE"), "OK");
    let dump = format!("{}/dump.rdb", client.run("CONFIG GET dir").split('"').nth(3).expect("a directory"));
    let whole = std::fs::read(&dump).expect("the dump");
    for bytes in [0, 5, whole.len() / 2, whole.len() - 1] {
        std::fs::write(path("cut.rdb"), &whole[..bytes]).expect("written");
        let (code, said) = plan(&["--rdb", &path("cut.rdb")]);
        assert!(code == Some(1) && said.contains("hint: a complete dump.rdb is needed"), "{bytes} bytes: {said}");
    }
    let lines: String = (0..4000)
        .map(|line| match line % 40 {
            0 => "1.0 [0 127.0.0.1:5] \"GET\" \"cut off\n".to_owned(),
            _ => format!("{}.5 [0 127.0.0.1:5] \"get\" \"key:{}\"\n", 100 + line / 40, line % 70),
        })
        .collect();
    std::fs::write(path("monitor.txt"), format!("OK\n{lines}")).expect("written");
    let traced = json(&["--trace", &path("monitor.txt"), "--keys", "1000", "--value-size", "100"]);
    assert!(traced["sources"][0].as_str().is_some_and(|name| name.contains("without 100 lines")), "{traced:#}");
    assert_eq!(traced["usage"]["reads"], 3900, "{traced:#}");
}

/// A directory's flash is measured.
#[test]
#[ignore = "measures a device for 10 s, and writes 1 GB: part of make soak"]
fn the_flash_of_a_directory_is_measured() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_string_lossy().into_owned();
    let numbers = ["--keys", "1m", "--value-size", "500", "--skew", "0", "--ram-share", "50%", "--reads", "1"];
    let planned = json(&[&numbers[..], &["--flash", &path]].concat());
    let expected = |field: &str| planned["chosen"]["expected"][field].as_f64();
    let [read, p99, most] = ["flash_read_us", "flash_read_p99_us", "reads_per_second_max"].map(expected);
    assert!(read > Some(0.0) && p99 >= read && most > Some(0.0), "{planned:#}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 0, "nothing is left there");
}

/// Commands that have keys, but need no values.
const NO_VALUE: &[&str] = &[
    "copy-to",
    "del",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exists",
    "expire",
    "expireat",
    "expiretime",
    "fcall",
    "fcall_ro",
    "migrate",
    "move",
    "persist",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "pttl",
    "restore-asking",
    "spublish",
    "ssubscribe",
    "sunsubscribe",
    "touch",
    "ttl",
    "type",
    "unlink",
    "watch",
    "pfdebug",
];

#[test]
fn the_planner_knows_which_values_a_command_uses() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let Value::Array(rows) = client.call(&[b"COMMAND"]) else { panic!("COMMAND answers a list") };
    assert!(rows.len() > 200);
    for row in &rows {
        let Value::Array(row) = row else { panic!("a command is a list") };
        let name = shown(&row[0]).trim_matches('"').to_owned();
        let flags = shown(&row[2]);
        let has_keys = shown(&row[3]) != "(integer) 0" || flags.contains("movablekeys");
        // A line in which every form of key positions finds a key.
        let words = [name.as_str(), "1", "1", "STREAMS", "key", "0"].map(|word| word.as_bytes().to_vec());
        let mut found = None;
        uses(&words, |_, kind| found = Some(kind));
        match found {
            None => assert!(!has_keys || NO_VALUE.contains(&name.as_str()), "{name} has keys"),
            // Only the subcommands have keys.
            Some(_) if ["xgroup", "xinfo"].contains(&name.as_str()) => {}
            Some(kind) => {
                assert!(has_keys, "{name} has no keys");
                assert_eq!(kind == Use::Read, flags.contains("readonly"), "{name}: {kind:?}, {flags}");
            }
        }
    }
}

/// Compares the table with the node for each example in the documentation of the commands.
#[test]
fn the_planner_finds_the_keys_that_a_node_finds() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    let mut compared = 0;
    let lines = commands::table::all().flat_map(|row| {
        let subcommands = row.subcommands.iter().flat_map(|row| row.examples);
        row.examples.iter().chain(subcommands)
    });
    // Examples that end in an error are skipped.
    let lines = lines.filter(|example| match example.reply {
        Expect::Is(reply) | Expect::Starts(reply) | Expect::OnlyHere(reply) => !reply.starts_with("(error)"),
    });
    for line in lines.map(|example| example.command) {
        let words = resp::words(line.as_bytes()).expect("an example is a line");
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let mut found = Vec::new();
        uses(&words, |key, _| found.push(key.to_vec()));
        let asked: Vec<&[u8]> =
            [&b"COMMAND"[..], b"GETKEYS"].into_iter().chain(words.iter().map(Vec::as_slice)).collect();
        let mut keys = match client.call(&asked) {
            Value::Array(keys) => keys.iter().filter_map(survey::bytes).map(<[u8]>::to_vec).collect::<Vec<_>>(),
            // The example has no keys, or shows an error.
            _ => continue,
        };
        // Only those of their subcommands that do not use a value have keys.
        if NO_VALUE.contains(&name.as_str()) || ["object", "memory", "debug"].contains(&name.as_str()) {
            keys.clear();
        }
        found.sort();
        keys.sort();
        assert_eq!(found, keys, "{line}");
        compared += 1;
    }
    assert!(compared > 300, "{compared} examples have keys");
}
