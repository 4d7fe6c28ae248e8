//! What an ideal log would write: bytes written to flash per byte demoted, in steady state, from segments, reserve and policy alone.
//! A real run is compared with this figure (docs/figures.md).
//!
//! `cargo run --release -p flintkv-store --example write_amplification [-- SEGMENTS RECORDS_PER_SEGMENT LIVE_PERCENT]`
//!
//! The model: every record takes one slot. A demotion writes a random key's record to the open segment of new data, and its old slot
//! is dead. When the free segments are few, the segment with the largest (1 - u) · age / (1 + u) is collected: its live records
//! are written to the open segment of moved records.

use base::random::SplitMix64;
use std::collections::VecDeque;

/// As in the store: free segments that new data leaves to the collector, and the number at which collecting begins.
const RESERVE: usize = 3;

struct Log {
    /// The key in each slot.
    slots: Vec<Vec<u32>>,
    live: Vec<u32>,
    sealed_at: Vec<Option<u64>>,
    /// The segment of each key.
    place: Vec<u32>,
    free: VecDeque<usize>,
    /// Of new data, and of moved records.
    open: [usize; 2],
    sealed: u64,
    per_segment: usize,
    written: u64,
}

impl Log {
    fn new(segments: usize, per_segment: usize, keys: usize) -> Log {
        let mut log = Log {
            slots: vec![Vec::new(); segments],
            live: vec![0; segments],
            sealed_at: vec![None; segments],
            place: vec![u32::MAX; keys],
            free: (2..segments).collect(),
            open: [0, 1],
            sealed: 0,
            per_segment,
            written: 0,
        };
        (0..keys as u32).for_each(|key| log.write(0, key));
        log
    }

    fn low(&self) -> usize {
        RESERVE + (self.slots.len() / 32).clamp(2, 8)
    }

    fn write(&mut self, stream: usize, key: u32) {
        if let Some(before) = self.live.get_mut(self.place[key as usize] as usize) {
            *before -= 1;
        }
        let mut segment = self.open[stream];
        if self.slots[segment].len() == self.per_segment {
            self.sealed += 1;
            self.sealed_at[segment] = Some(self.sealed);
            segment = self.free.pop_front().expect("the reserve suffices");
            self.open[stream] = segment;
        }
        self.slots[segment].push(key);
        self.live[segment] += 1;
        self.place[key as usize] = segment as u32;
        self.written += 1;
    }

    fn collect(&mut self) {
        let gain = |segment: usize| {
            let used = f64::from(self.live[segment]) / self.per_segment as f64;
            self.sealed_at[segment].map(|at| (1.0 - used) * (self.sealed - at + 1) as f64 / (1.0 + used))
        };
        let gains = (0..self.slots.len()).filter_map(|segment| Some((gain(segment)?, segment)));
        let (_, victim) = gains.max_by(|a, b| a.0.total_cmp(&b.0)).expect("some segment is sealed");
        self.sealed_at[victim] = None;
        for key in std::mem::take(&mut self.slots[victim]) {
            if self.place[key as usize] == victim as u32 {
                self.write(1, key);
            }
        }
        // Its records have left one by one.
        assert_eq!(self.live[victim], 0);
        self.free.push_back(victim);
    }
}

/// Bytes written per byte demoted. Of the demotions, `hot` of 100 go to the first 100 - `hot` of 100 keys.
fn amplification(segments: usize, per_segment: usize, live_percent: usize, hot: usize) -> f64 {
    let keys = segments * per_segment * live_percent / 100;
    let mut log = Log::new(segments, per_segment, keys);
    let mut random = SplitMix64(7);
    let border = keys * (100 - hot) / 100;
    let rounds = 12 * keys;
    let (mut begun, mut demoted) = (0, 0u64);
    for round in 0..rounds {
        if round == rounds / 2 {
            (begun, demoted) = (log.written, 0);
        }
        while log.free.len() <= log.low() {
            log.collect();
        }
        let is_hot = random.index(100) < hot;
        let key = if is_hot { random.index(border) } else { border + random.index(keys - border) };
        log.write(0, key as u32);
        demoted += 1;
    }
    (log.written - begun) as f64 / demoted as f64
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|arg| arg.parse().expect("a number")).collect();
    let [segments, per_segment, live_percent] = match numbers[..] {
        [] => [64, 31_000, 80],
        [segments, per_segment, live_percent] => [segments, per_segment, live_percent],
        _ => panic!("usage: write_amplification [SEGMENTS RECORDS_PER_SEGMENT LIVE_PERCENT]"),
    };
    println!("{segments} segments of {per_segment} records, {live_percent} % live");
    for (name, hot) in [("uniform", 50), ("80:20", 80)] {
        println!(
            "{name:8} {:.2} bytes written per byte demoted",
            amplification(segments, per_segment, live_percent, hot)
        );
    }
}
