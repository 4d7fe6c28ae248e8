//! Prints the time of the store's hot path, without network or commands:
//! `cargo run --release -p flintkv-store --example hot_path [KEYS]`.
use base::random::SplitMix64;
use std::time::Instant;
use store::{Resume, Store, StoreConfig, Value};

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let store = Store::new(&StoreConfig::in_ram(1));
    let mut resume = Resume::default();
    let value = [b'x'; 500];
    let name = |n: u64| format!("memtier-{n:08}").into_bytes();
    let names: Vec<Vec<u8>> = (0..keys).map(name).collect();
    let mut each = |label: &str, rounds: u64, run: &mut dyn FnMut(&[u8], &mut Resume)| {
        let mut random = SplitMix64(1);
        let begun = Instant::now();
        for n in 0..rounds {
            let at = if label == "insert" { n } else { random.below(keys) };
            run(&names[at as usize], &mut resume);
        }
        println!("{label:8} {:6.0} ns", begun.elapsed().as_nanos() as f64 / rounds as f64);
    };
    let set = |name: &[u8], resume: &mut Resume| {
        let key = store.hasher().key(name);
        let mut ks = store.lock(&[key], 0, 1_700_000_000_000, true, resume);
        ks.set_string(&key, &value, None);
        ks.close();
    };
    each("hash", keys * 2, &mut |name, _| {
        std::hint::black_box(store.hasher().key(name));
    });
    each("insert", keys, &mut |name, resume| set(name, resume));
    each("set", keys * 2, &mut |name, resume| set(name, resume));
    let mut copied = Vec::with_capacity(1 << 10);
    each("get", keys * 2, &mut |name, resume| {
        let key = store.hasher().key(name);
        let mut ks = store.lock(&[key], 0, 1_700_000_000_000, true, resume);
        if let Ok(Some(Value::Inline(_, bytes))) = ks.get(&key) {
            copied.clear();
            copied.extend_from_slice(bytes);
        }
        ks.close();
    });
    // The steps of a pipeline of 24: hash all keys, prefetch for all of them, then look up each.
    let mut random = SplitMix64(1);
    let begun = Instant::now();
    for _ in 0..keys * 2 / 24 {
        let mut batch = [store.hasher().key(b""); 24];
        for key in &mut batch {
            *key = store.hasher().key(&names[random.below(keys) as usize]);
            store.prefetch_stripe(key.hash);
        }
        store.prefetch(batch.iter().map(|key| key.hash), 0);
        for key in batch {
            let mut ks = store.lock(&[key], 0, 1_700_000_000_000, true, &mut resume);
            if let Ok(Some(Value::Inline(_, bytes))) = ks.get(&key) {
                copied.clear();
                copied.extend_from_slice(bytes);
            }
            ks.close();
        }
    }
    println!("get of 24 {:4.0} ns", begun.elapsed().as_nanos() as f64 / (keys * 2) as f64);
    let stats = store.stats();
    println!("{} index bytes and {} object bytes a key", stats.index_bytes / keys, stats.arena_bytes / keys);
}
