//! Prints what the page format costs: bytes on flash and processor time per record, for building and for one read.
//!
//! `cargo run --release -p flintkv-store --example page_speed [-- WORD]` runs the rows whose name contains WORD.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use base::random::SplitMix64;
use flash::io::{PAGE_BYTES, PageBuf};
use store::log::page::{
    Codec, DICTIONARY_BYTES, Dictionary, Page, PageBuilder, Placed, Push, Record, Scratch, Stamp, Trainer, stamp,
    step_pages,
};

const UNIT_PAGES: usize = 64;
const STAMP: Stamp = Stamp { log: 1, generation: 1, number: 0 };
const RECORDS: usize = 100_000;

struct Sample {
    key: Vec<u8>,
    value: Vec<u8>,
    hash: u64,
}

fn sample(key: String, value: Vec<u8>) -> Sample {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Sample { key: key.into_bytes(), value, hash: hash ^ hash >> 32 }
}

/// The values of a memtier client with `-R`: one buffer of random bytes, in which each request changes one byte.
struct NearDuplicates {
    bytes: Vec<u8>,
    at: usize,
}

impl NearDuplicates {
    fn new(rng: &mut SplitMix64, bytes: usize) -> NearDuplicates {
        NearDuplicates { bytes: rng.bytes(bytes), at: 0 }
    }

    fn next(&mut self, bytes: usize) -> Vec<u8> {
        let at = self.at;
        self.bytes[at] = self.bytes[at].wrapping_add(1);
        self.at = (at + 1) % self.bytes.len();
        self.bytes[..bytes].to_vec()
    }
}

fn random_500(random: usize) -> Vec<Sample> {
    let mut rng = SplitMix64(1);
    let record = |i| {
        let mut value = Vec::new();
        // Pieces of 20 bytes, each partly random. So the repeated bytes do not follow one another.
        while value.len() < 500 {
            value.extend(rng.bytes(random / 25));
            value.resize(value.len() + 20 - random / 25, b'x');
        }
        sample(format!("memtier-{i:08}"), value)
    };
    (0..RECORDS).map(record).collect()
}

/// The order in which `clients` clients insert keys with `--key-pattern P`: each inserts its share of the range in ascending
/// order, and their commands interleave.
fn parallel(
    clients: usize,
    value_bytes: usize,
    record: impl Fn(&mut SplitMix64, usize, &mut NearDuplicates) -> Sample,
) -> Vec<Sample> {
    let mut rng = SplitMix64(2);
    let mut streams: Vec<_> = (0..clients).map(|_| NearDuplicates::new(&mut rng, value_bytes)).collect();
    let share = RECORDS / clients;
    let mut out = Vec::new();
    for i in 0..share {
        for (client, stream) in streams.iter_mut().enumerate() {
            out.push(record(&mut rng, client * share + i, stream));
        }
    }
    out
}

fn gemini_32(clients: usize) -> Vec<Sample> {
    parallel(clients, 32, |_, n, stream| {
        let key = format!("cefkljrithuir123894873h4523bhj4b2jkjh2iu13bnfdhsbnkfhsdjkh{}", 1_000_000_000 + n * 997);
        sample(key, stream.next(32))
    })
}

fn gemini_1250(clients: usize) -> Vec<Sample> {
    parallel(clients, 2000, |rng, n, stream| {
        let bytes = 500 + rng.index(1501);
        sample(format!("miqjkfdjiu{}", 100_000_000 + n * 997), stream.next(bytes))
    })
}

fn gemini_hash(clients: usize) -> Vec<Sample> {
    const FIELDS: [&str; 10] = [
        "mendke398d",
        "kdjwie830s",
        "qpwoei4857",
        "zmxncb0192",
        "laksjd5647",
        "eoritu3821",
        "bvncmx7465",
        "tyghru1029",
        "pqlamz8374",
        "wnsxie5610",
    ];
    parallel(clients, 50, |_, n, stream| {
        let mut value = vec![10];
        for field in FIELDS {
            value.push(10);
            value.extend(field.as_bytes());
            value.push(50);
            value.extend(stream.next(50));
        }
        sample(format!("ewfdjkff43ksdh41fuihikucl{}", 100_000_000 + n * 997), value)
    })
}

/// Hashes, short and long strings in the scenario's proportion of 2 : 7 : 1.
fn gemini_mix(clients: usize) -> Vec<Sample> {
    let mut kinds = [gemini_hash(clients), gemini_32(clients), gemini_1250(clients)].map(Vec::into_iter);
    let turn = [1, 1, 0, 1, 1, 1, 0, 1, 1, 2];
    (0..RECORDS).filter_map(|i| kinds[turn[i % 10]].next()).collect()
}

/// The order in which pipelines arrive: many records of one kind and client, then many of the next.
fn bursts(samples: Vec<Sample>) -> Vec<Sample> {
    let mut samples = samples;
    samples.chunks_mut(50_000).for_each(|batch| batch.sort_by(|a, b| a.key.cmp(&b.key)));
    samples
}

/// Processor time of this thread. The time of other programs does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds")
}

fn record(sample: &Sample) -> Record<'_> {
    Record { key: &sample.key, value: &sample.value, kind: 0, db: 0, expiry_ms: None, seq: 1, hash: sample.hash }
}

fn builder_of(codec: Codec, level: i32, dictionary: &Option<Arc<Dictionary>>) -> PageBuilder {
    let mut builder = PageBuilder::new(codec, level);
    builder.set_dictionary(dictionary.clone());
    builder
}

/// `take` gets every unit with its places and gives the next buffer.
fn fill(builder: &mut PageBuilder, samples: &[Sample], take: &mut dyn FnMut(PageBuf, &mut Vec<Placed>) -> PageBuf) {
    let mut placed = Vec::new();
    builder.begin(PageBuf::new(UNIT_PAGES), 1, 0);
    for (tag, s) in samples.iter().enumerate() {
        while builder.push(&record(s), tag as u64) != Push::Taken {
            let mut unit = builder.finish(&mut placed);
            stamp(&mut unit.buf[..unit.pages * PAGE_BYTES], STAMP);
            builder.begin(take(unit.buf, &mut placed), 1, 0);
        }
    }
    let mut unit = builder.finish(&mut placed);
    stamp(&mut unit.buf[..unit.pages * PAGE_BYTES], STAMP);
    take(unit.buf, &mut placed);
}

fn row(name: &str, samples: &[Sample], codec: Codec, level: i32, dictionary: Option<Arc<Dictionary>>) {
    let mut flash: Vec<PageBuf> = Vec::new();
    let mut places: Vec<(usize, Placed)> = Vec::new();
    let mut builder = builder_of(codec, level, &dictionary);
    fill(&mut builder, samples, &mut |unit, placed| {
        places.extend(placed.drain(..).map(|place| (flash.len(), place)));
        flash.push(unit);
        PageBuf::new(UNIT_PAGES)
    });
    // Measure with one buffer: so the time does not include allocating memory for all units.
    let mut timed = builder_of(codec, level, &dictionary);
    let started = cpu_ns();
    fill(&mut timed, samples, &mut |unit, placed| {
        placed.clear();
        unit
    });
    let build_ns = cpu_ns() - started;

    let stats = builder.stats();
    let mut rng = SplitMix64(3);
    let mut scratch = Scratch::new();
    let dictionaries = |_| dictionary.clone();
    let finds = 50_000;
    let started = cpu_ns();
    for _ in 0..finds {
        let (unit, place) = places[rng.index(places.len())];
        let at = usize::from(place.page) * PAGE_BYTES;
        let end = (at + step_pages(place.step) as usize * PAGE_BYTES).min(flash[unit].len());
        let page = Page::open(&flash[unit][at..end], STAMP.later(place.page.into())).expect("sound");
        let s = &samples[place.tag as usize];
        let found = page.find(s.hash, 0, &s.key, &dictionaries, &mut scratch).expect("sound");
        black_box(found.expect("there").value);
    }
    let find_ns = (cpu_ns() - started) / finds;

    let user = stats.user_bytes as f64 / stats.records as f64;
    let bytes = (stats.pages as usize * PAGE_BYTES) as f64 / stats.records as f64;
    println!(
        "{name:<34} {:<22} {user:7.0} {bytes:8.1} {:6.3} {:6.1} {:9.2} {:8} {find_ns:8}",
        match &dictionary {
            Some(d) => format!("{codec:?} {level} + {} KiB dict", d.serialize().len() >> 10),
            None => format!("{codec:?} {level}"),
        },
        bytes / user,
        100.0 * stats.slack_bytes as f64 / (stats.pages as usize * PAGE_BYTES) as f64,
        stats.wasted_attempts as f64 / stats.pages as f64,
        build_ns / stats.records,
    );
}

fn train(samples: &[Sample], bytes: usize, level: i32) -> Option<Arc<Dictionary>> {
    let mut trainer = Trainer::new(1 << 20);
    for s in samples {
        trainer.offer(&record(s));
    }
    let started = Instant::now();
    let dictionary = trainer.train(1, bytes, level)?;
    let ms = started.elapsed().as_millis();
    println!(
        "  trained {bytes} bytes from {} in {ms} ms, {} bytes of RAM",
        trainer.sampled_bytes(),
        dictionary.ram_bytes()
    );
    Some(Arc::new(dictionary))
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    println!(
        "{:<34} {:<22} {:>7} {:>8} {:>6} {:>6} {:>9} {:>8} {:>8}",
        "records", "codec", "bytes", "stored", "ratio", "slack%", "wasted/pg", "build ns", "find ns"
    );
    let sorted = |mut samples: Vec<Sample>| {
        samples.sort_by(|a, b| a.key.cmp(&b.key));
        samples
    };
    let shuffled = |mut samples: Vec<Sample>| {
        let mut rng = SplitMix64(4);
        for i in (1..samples.len()).rev() {
            samples.swap(i, rng.index(i + 1));
        }
        samples
    };
    let sorted_batches = |mut samples: Vec<Sample>| {
        samples.chunks_mut(4096).for_each(|batch| batch.sort_by(|a, b| a.key.cmp(&b.key)));
        samples
    };
    let rows: Vec<(&str, Vec<Sample>)> = vec![
        ("500 B random", random_500(500)),
        ("500 B half random", random_500(250)),
        ("500 B tenth random", random_500(50)),
        ("101 B near-duplicates, 1 client", gemini_32(1)),
        ("101 B near-duplicates, 50 clients", gemini_32(50)),
        ("101 B same, sorted by key", sorted(gemini_32(50))),
        ("101 B same, shuffled", shuffled(gemini_32(50))),
        ("101 B shuffled, batches sorted", sorted_batches(shuffled(gemini_32(50)))),
        ("655 B hashes, 1 client", gemini_hash(1)),
        ("655 B hashes, 50 clients", gemini_hash(50)),
        ("655 B same, shuffled", shuffled(gemini_hash(50))),
        ("1250 B near-duplicates, 1 client", gemini_1250(1)),
        ("1250 B near-duplicates, 50 clients", gemini_1250(50)),
        ("1250 B same, shuffled", shuffled(gemini_1250(50))),
        ("gemini mix, 50 clients", gemini_mix(50)),
        ("gemini mix, batches sorted", sorted_batches(gemini_mix(50))),
        ("gemini mix, 100 a client in turn", bursts(gemini_mix(50))),
    ];
    for (name, samples) in rows.iter().filter(|(name, _)| name.contains(&only)) {
        row(name, samples, Codec::None, 0, None);
        row(name, samples, Codec::Lz4, 0, None);
        for level in [-3, 1] {
            row(name, samples, Codec::Zstd, level, None);
        }
        for (bytes, level) in [(DICTIONARY_BYTES, 1), (DICTIONARY_BYTES, -3)] {
            if let Some(dictionary) = train(samples, bytes, level) {
                row(name, samples, Codec::Zstd, level, Some(dictionary));
            }
        }
    }
}
