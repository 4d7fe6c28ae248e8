//! Owns the published benchmarks as data: keys, sizes, limits, command lines and figures, at full size and at any
//! scale. Never runs anything. What a publication leaves open is chosen here and stated in the notes.

use super::args::Name;
use super::scale::Scale;

/// One `flintkv bench` command line without the server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub name: String,
    pub threads: u32,
    /// Per thread.
    pub clients: u32,
    pub options: Vec<String>,
}

impl Load {
    pub fn new<S: Into<String>>(name: &str, threads: u32, clients: u32, options: impl IntoIterator<Item = S>) -> Load {
        Load { name: name.to_owned(), threads, clients, options: options.into_iter().map(Into::into).collect() }
    }

    /// The same connections, distributed over fewer threads.
    pub fn on_threads(mut self, threads: u32) -> Load {
        let connections = self.threads * self.clients;
        self.threads = threads.clamp(1, connections);
        self.clients = connections.div_ceil(self.threads);
        self
    }

    pub fn with(mut self, option: String) -> Load {
        self.options.push(option);
        self
    }

    pub fn args(&self) -> Vec<String> {
        let mut args = vec![format!("--threads={}", self.threads), format!("--clients={}", self.clients)];
        args.extend(self.options.iter().cloned());
        args
    }
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub memory: u64,
    pub ram: u64,
}

/// A scenario at some scale.
#[derive(Clone, Debug)]
pub struct Spec {
    pub title: &'static str,
    pub name: &'static str,
    pub scale: Scale,
    pub keys: u64,
    /// The number of keys of its load with the fewest keys, at full size.
    pub scarcest: u64,
    /// Keys and values as the client sends them.
    pub raw_bytes: u64,
    pub limits: Limits,
    pub populate: Vec<Load>,
    pub centralise: Vec<Load>,
    pub work: Work,
    pub published: Published,
    /// Directives for a FlintKV node, besides the limits.
    pub directives: &'static [(&'static str, &'static str)],
    pub needs_password: bool,
    pub notes: Vec<String>,
    /// What the difference to the published system is, if the server is one node.
    pub note_of_node: Option<&'static str>,
}

/// The measured load.
#[derive(Clone, Debug)]
pub enum Work {
    /// Keys around the middle, with this standard deviation.
    Gauss { stddev: f64, load: Load },
    /// Several loads at the same time.
    Together(Vec<Load>),
    /// Uniform over the first part of the keys, one part after the other.
    Sweep { parts: Vec<Part>, load: Load },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub share: f64,
    pub keys: u64,
    pub bytes: u64,
}

/// What the vendor published; a dash where nothing is published.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub by: &'static str,
    pub machine: &'static str,
    pub ops_per_s: &'static str,
    pub latency_avg: &'static str,
    pub latency_p99: &'static str,
    pub latency_p9999: &'static str,
    pub hit_ratio: &'static str,
    pub compression: &'static str,
    pub test_time_s: u64,
}

const DASH: &str = "–";
/// The published speeds do not include populating. One thread is fast enough, and any server can handle it.
const FILL_THREADS: u32 = 1;
pub const FILL_CLIENTS: u32 = 20;
const FILL_PIPELINE: u32 = 24;
const ONCE_OVER_ALL: [&str; 3] = ["--requests=allkeys", "--key-pattern=P:P", "--ratio=1:0"];
/// The bytes of `memtier-` and eight digits.
const ROF_KEY_BYTES: u64 = 16;

pub fn spec(name: Name, scale: Scale) -> Spec {
    match name {
        Name::Rof => rof(scale),
        Name::RofReplicated => rof_replicated(scale),
        Name::KeydbFlash => keydb_flash(scale),
        Name::GeminiRta => gemini_rta(scale),
    }
}

struct Rof {
    items: u64,
    centre: (u64, u64),
    stddev: f64,
    pipeline: u32,
    memory_limit: u64,
}

fn rof(scale: Scale) -> Spec {
    let size = Rof {
        items: 150_000_000,
        centre: (54_500_000, 95_500_000),
        stddev: 10_250_000.0,
        pipeline: 24,
        memory_limit: 100_000_000_000,
    };
    let published = Published {
        by: "Redis on Flash, not replicated",
        machine: "2 × (8 vCPU, 61 GiB RAM, NVMe), 4 primaries",
        ops_per_s: "160,000",
        ..ROF_PUBLISHED
    };
    redis_on_flash("rof", "Redis on Flash", scale, &size, published)
}

fn rof_replicated(scale: Scale) -> Spec {
    let size = Rof {
        items: 75_000_000,
        centre: (27_250_000, 47_750_000),
        stddev: 5_125_000.0,
        pipeline: 11,
        // The published 100 GB are shared with replicas; half of it belongs to the primaries.
        memory_limit: 50_000_000_000,
    };
    let published = Published {
        by: "Redis on Flash, replicated",
        machine: "2 × (8 vCPU, 61 GiB RAM, NVMe), 2 primaries + 2 replicas",
        ops_per_s: "115,000",
        ..ROF_PUBLISHED
    };
    let mut spec = redis_on_flash("rof-replicated", "Redis on Flash, replicated", scale, &size, published);
    spec.note_of_node = Some(
        "one node without replicas: it has the primaries' half of the published memory limit (100 GB are \
         primaries and replicas together), and no write was replicated",
    );
    spec
}

const ROF_PUBLISHED: Published = Published {
    by: "",
    machine: "",
    ops_per_s: "",
    latency_avg: "< 1 ms",
    latency_p99: DASH,
    latency_p9999: DASH,
    hit_ratio: "85 %",
    compression: DASH,
    test_time_s: 600,
};

fn redis_on_flash(name: &'static str, title: &'static str, scale: Scale, size: &Rof, published: Published) -> Spec {
    let keys_max = scale.of(size.items).max(u64::from(FILL_CLIENTS));
    let data = String::from("--data-size=500");
    let pipeline = format!("--pipeline={FILL_PIPELINE}");
    let populate = Load::new("populate", FILL_THREADS, FILL_CLIENTS, ONCE_OVER_ALL)
        .with(format!("--key-maximum={keys_max}"))
        .with(data.clone())
        .with(pipeline.clone());
    let (low, high) = (scale.of(size.centre.0).max(1), scale.of(size.centre.1).max(u64::from(FILL_CLIENTS) + 1));
    let centralise =
        Load::new("centralise", FILL_THREADS, FILL_CLIENTS, ["--requests=allkeys", "--key-pattern=P:P", "--ratio=0:1"])
            .with(format!("--key-minimum={low}"))
            .with(format!("--key-maximum={high}"))
            .with(pipeline);
    let load = Load::new("load", 1, 20, ["--key-pattern=G:G", "--ratio=1:1", "--distinct-client-seed", "--randomize"])
        .with(format!("--pipeline={}", size.pipeline))
        .with(data)
        .with(format!("--key-maximum={keys_max}"));
    let memory = scale.of(size.memory_limit);
    Spec {
        title,
        name,
        scale,
        keys: keys_max,
        scarcest: size.centre.1 - size.centre.0,
        raw_bytes: keys_max * (ROF_KEY_BYTES + 500),
        limits: Limits { memory, ram: memory * 3 / 10 },
        populate: vec![populate],
        centralise: vec![centralise],
        work: Work::Gauss { stddev: scale.of_f64(size.stddev), load },
        published,
        directives: &[],
        needs_password: false,
        notes: Vec::new(),
        note_of_node: None,
    }
}

fn keydb_flash(scale: Scale) -> Spec {
    const KEYS: u64 = 200_000_000;
    const VALUE_BYTES: u64 = 1024;
    const RAM: u64 = 32 << 30;
    const FLASH: u64 = 300_000_000_000;
    const PARTS: [f64; 6] = [0.05, 0.1, 0.25, 0.5, 0.75, 1.0];
    let keys = scale.of(KEYS).max(100);
    let populate = Load::new("populate", FILL_THREADS, FILL_CLIENTS, ONCE_OVER_ALL)
        .with(String::from("--key-minimum=1"))
        .with(format!("--key-maximum={keys}"))
        .with(format!("--data-size={VALUE_BYTES}"))
        .with(format!("--pipeline={FILL_PIPELINE}"));
    let load = Load::new("load", 32, 1, ["--key-pattern=R:R", "--ratio=1:10", "--distinct-client-seed", "--randomize"])
        .with(format!("--data-size={VALUE_BYTES}"))
        .with(String::from("--key-minimum=1"));
    let part = |share: f64| {
        let keys = ((keys as f64 * share).round() as u64).max(2);
        Part { share, keys, bytes: keys * (ROF_KEY_BYTES + VALUE_BYTES) }
    };
    Spec {
        title: "KeyDB FLASH",
        name: "keydb-flash",
        scale,
        keys,
        scarcest: (KEYS as f64 * PARTS[0]) as u64,
        raw_bytes: keys * (ROF_KEY_BYTES + VALUE_BYTES),
        limits: Limits { memory: scale.of(RAM + FLASH), ram: scale.of(RAM) },
        populate: vec![populate],
        centralise: Vec::new(),
        work: Work::Sweep { parts: PARTS.map(part).to_vec(), load },
        published: Published {
            by: "KeyDB FLASH",
            machine: "8 vCPU, 32 GiB RAM, direct-attached NVMe, 7 server threads",
            ops_per_s: "85 % of all-RAM",
            latency_avg: "all-RAM + 0.5 ms",
            latency_p99: DASH,
            latency_p9999: DASH,
            hit_ratio: DASH,
            compression: DASH,
            test_time_s: 0,
        },
        directives: &[],
        needs_password: false,
        notes: vec![String::from(
            "chosen, because it is not published: memtier's ratio of 1 SET to 10 GETs, uniform over the working set, one connection per load thread, 300 GB of flash × F",
        )],
        note_of_node: None,
    }
}

/// One kind of gemini-rta's keys, at full size.
struct Kind {
    name: &'static str,
    prefix: &'static str,
    /// First key and number of keys. All keys have as many digits as the first.
    first: u64,
    count: u64,
    /// The keys to read, as offsets from `first`.
    read: (u64, u64),
    value_bytes: u64,
    /// Key and value as sent.
    raw_bytes: u64,
    clients: u32,
    threads: u32,
    is_hash: bool,
}

const HASH_FIELDS: [&str; 10] = [
    "mendke398d",
    "ibwzq3t7ko",
    "q0dhvn52xe",
    "ugp8rm1ylc",
    "7kfsaw9jtz",
    "xo4cben60i",
    "lh2yvd8qmu",
    "r5ntgk3wsa",
    "zp9jie71fb",
    "cw6uxo0rdh",
];

const KINDS: [Kind; 3] = [
    Kind {
        name: "hashes",
        prefix: "ewfdjkff43ksdh41fuihikucl",
        first: 100_000_000,
        count: 800_000_000,
        read: (100_000_000, 500_000_000),
        value_bytes: 50,
        raw_bytes: 25 + 9 + 10 * (10 + 50),
        clients: 20,
        threads: 30,
        is_hash: true,
    },
    Kind {
        name: "short strings",
        prefix: "cefkljrithuir123894873h4523bhj4b2jkjh2iu13bnfdhsbnkfhsdjkh",
        first: 1_000_000_000,
        count: 2_800_000_000,
        read: (0, 1_400_000_000),
        value_bytes: 32,
        raw_bytes: 58 + 10 + 32,
        clients: 70,
        threads: 30,
        is_hash: false,
    },
    Kind {
        name: "long strings",
        prefix: "miqjkfdjiu",
        first: 100_000_000,
        count: 200_000_000,
        read: (0, 200_000_000),
        value_bytes: 1250,
        raw_bytes: 10 + 9 + 1250,
        clients: 10,
        threads: 30,
        is_hash: false,
    },
];

fn gemini_rta(scale: Scale) -> Spec {
    let (mut keys, mut raw_bytes) = (0, 0);
    let (mut inject, mut read) = (Vec::new(), Vec::new());
    for kind in &KINDS {
        let count = scale.of(kind.count).max(u64::from(FILL_CLIENTS) + 1);
        keys += count;
        raw_bytes += count * kind.raw_bytes;
        let prefix = format!("--key-prefix={}", kind.prefix);
        let range = |first: u64, last: u64| [format!("--key-minimum={first}"), format!("--key-maximum={last}")];
        let mut options: Vec<String> = if kind.is_hash {
            let fields: String = HASH_FIELDS.iter().map(|field| format!(" {field} __data__")).collect();
            vec![
                format!("--command=hset __key__{fields}"),
                "--command-key-pattern=P".into(),
                "--requests=allkeys".into(),
            ]
        } else {
            ONCE_OVER_ALL.map(String::from).to_vec()
        };
        options.push(format!("--data-size={}", kind.value_bytes));
        options.extend(["--random-data".into(), "--pipeline=100".into(), prefix.clone()]);
        options.extend(range(kind.first, kind.first + count - 1));
        inject.push(Load::new(kind.name, FILL_THREADS, FILL_CLIENTS, options));
        let mut options: Vec<String> =
            if kind.is_hash { vec!["--command=hgetall __key__".into()] } else { vec!["--ratio=0:1".into()] };
        options.extend(["--random-data", "--randomize", "--distinct-client-seed"].map(String::from));
        options.push(format!("--data-size={}", kind.value_bytes));
        options.push(prefix);
        let last = kind.first + count - 1;
        let first_read = kind.first + scale.of(kind.read.0);
        options.extend(range(first_read.min(last - 1), (kind.first + scale.of(kind.read.1)).min(last)));
        read.push(Load::new(kind.name, kind.threads, kind.clients, options));
    }
    let ram = raw_bytes * 3 / 10;
    Spec {
        title: "GeminiDB Redis API, advertising",
        name: "gemini-rta",
        scale,
        keys,
        scarcest: KINDS.iter().map(|kind| kind.count).min().unwrap_or(0),
        raw_bytes,
        limits: Limits { memory: ram + raw_bytes * 3 / 2, ram },
        populate: inject,
        centralise: Vec::new(),
        work: Work::Together(read),
        published: Published {
            by: "GeminiDB Redis API",
            machine: "20 × 16 vCPU, three zones",
            ops_per_s: "1,600,000 (5,000 per vCPU)",
            latency_avg: DASH,
            latency_p99: DASH,
            latency_p9999: DASH,
            hit_ratio: DASH,
            compression: "13.8 % (30–50 % in production)",
            test_time_s: 1200,
        },
        directives: &[("flash-compression", "zstd")],
        needs_password: true,
        notes: vec![String::from(
            "chosen, because it is not published: a RAM limit of 30 % of the raw data, less than the half that is read; flash for one and a half times the raw data; the names of nine of the ten hash fields; values of the average size (50, 32 and 1,250 bytes)",
        )],
        note_of_node: None,
    }
}

impl Spec {
    /// The loads of the measured run. `stddev` is for keys around a middle only, `part` for a sweep only.
    pub fn loads(&self, stddev: Option<f64>, part: Option<Part>) -> Vec<Load> {
        match &self.work {
            Work::Gauss { stddev: published, load } => {
                let stddev = stddev.unwrap_or(*published).max(1.0);
                vec![load.clone().with(format!("--key-stddev={stddev:.0}"))]
            }
            Work::Together(loads) => loads.clone(),
            Work::Sweep { parts, load } => {
                let part = part.or(parts.last().copied()).expect("a sweep has parts");
                vec![load.clone().with(format!("--key-maximum={}", part.keys))]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config_of;
    use crate::config::{Length, Work as BenchWork};

    fn at(name: Name, scale: &str) -> Spec {
        spec(name, scale.parse().expect("scale"))
    }

    fn all() -> [Name; 4] {
        [Name::Rof, Name::RofReplicated, Name::KeydbFlash, Name::GeminiRta]
    }

    #[test]
    fn rof_at_full_size_is_as_published() {
        let spec = at(Name::Rof, "1");
        assert_eq!((spec.limits.memory, spec.limits.ram), (100_000_000_000, 30_000_000_000));
        assert_eq!(spec.centralise[0].options[3..5], ["--key-minimum=54500000", "--key-maximum=95500000"]);
        let load = &spec.loads(None, None)[0];
        assert_eq!((load.threads, load.clients), (1, 20));
        let expected = "--key-pattern=G:G --ratio=1:1 --distinct-client-seed --randomize --pipeline=24 --data-size=500 \
                        --key-maximum=150000000 --key-stddev=10250000";
        assert_eq!(load.options.join(" "), expected);
    }

    #[test]
    fn rof_replicated_at_a_150th_keeps_sizes_and_pipelines() {
        let spec = at(Name::RofReplicated, "1/150");
        assert_eq!(spec.keys, 500_000);
        assert_eq!((spec.limits.memory, spec.limits.ram), (333_333_333, 99_999_999));
        assert_eq!(spec.centralise[0].options[3..5], ["--key-minimum=181667", "--key-maximum=318333"]);
        let load = spec.loads(None, None)[0].options.join(" ");
        assert!(load.contains("--pipeline=11 --data-size=500 --key-maximum=500000 --key-stddev=34167"), "{load}");
    }

    #[test]
    fn gemini_keeps_the_digits_of_its_keys() {
        let spec = at(Name::GeminiRta, "1/4000");
        assert_eq!(spec.keys, 200_000 + 700_000 + 50_000);
        let ranges: Vec<String> =
            spec.populate.iter().map(|load| load.options[load.options.len() - 2..].join(" ")).collect();
        let expected = [
            "--key-minimum=100000000 --key-maximum=100199999",
            "--key-minimum=1000000000 --key-maximum=1000699999",
            "--key-minimum=100000000 --key-maximum=100049999",
        ];
        assert_eq!(ranges, expected);
        let read = spec.loads(None, None);
        assert!(read[0].options.ends_with(&["--key-minimum=100025000".into(), "--key-maximum=100125000".into()]));
        assert_eq!(read.iter().map(|load| load.threads * load.clients).collect::<Vec<_>>(), [600, 2100, 300]);
    }

    #[test]
    fn keydb_sweeps_from_inside_ram_to_all_keys() {
        let spec = at(Name::KeydbFlash, "1/400");
        let Work::Sweep { parts, .. } = &spec.work else { panic!("no sweep") };
        assert!(parts[0].bytes < spec.limits.ram);
        assert_eq!(parts.last().map(|part| (part.share, part.keys)), Some((1.0, 500_000)));
    }

    /// `flintkv bench` must accept every command line of every scenario, at tiny scales too.
    #[test]
    fn command_lines_are_good_at_every_scale() {
        for name in all() {
            for scale in ["1", "1/150", "1/100000", "1/100000000"] {
                let spec = at(name, scale);
                let populate: u64 = spec
                    .populate
                    .iter()
                    .map(|load| {
                        let config =
                            config_of(load.args()).unwrap_or_else(|error| panic!("{name:?} {scale}: {error:#}"));
                        assert_eq!(config.length, Length::AllKeys);
                        config.requests_total().expect("counted")
                    })
                    .sum();
                assert!(populate >= spec.keys && populate <= spec.keys + 1, "{name:?} {scale}: {populate}");
                for load in spec.centralise.iter().chain(&spec.loads(None, None)) {
                    let config = config_of(load.args()).unwrap_or_else(|error| panic!("{name:?} {scale}: {error:#}"));
                    let reads = match &config.work {
                        BenchWork::SetGet(work) => work.gets > 0,
                        BenchWork::Commands(_) => true,
                    };
                    assert!(reads);
                }
            }
        }
    }

    #[test]
    fn connections_stay_when_threads_change() {
        let load = Load::new("load", 30, 70, ["--ratio=0:1"]);
        assert_eq!(load.clone().on_threads(2).args()[..2], ["--threads=2", "--clients=1050"]);
        assert_eq!(load.on_threads(1_000_000).args()[..2], ["--threads=2100", "--clients=1"]);
    }
}
