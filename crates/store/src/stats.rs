//! Owns the store's figures for INFO and metrics, gathered on demand.

use crate::counters::{Counter, Counts};
use crate::log::resize::Progress;
use crate::log::segment::{FULLEST, Sums};
use crate::mem::tier::Full;
use crate::narrow::whole;
use crate::store::Store;
use crate::stripe::census::KeyCounts;
use std::ops::Index;
use std::sync::atomic::Ordering::Relaxed;

/// The store's figures. Counts of events are since start or CONFIG RESETSTAT. The unit is bytes unless the name says otherwise.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    pub keys: u64,
    /// The counted events, which an index reads: `stats[Counter::FlashReads]`.
    pub counts: Counts,
    /// One element for each logical database.
    pub by_database: Vec<KeyCounts>,
    pub values_in_ram: u64,
    pub values_in_flash: u64,
    pub ram_limit: u64,
    pub resident: u64,
    pub resident_max: u64,
    /// Bytes of the objects' cells, and the bytes that the arena holds for objects.
    pub object_bytes: u64,
    pub arena_bytes: u64,
    /// The free cells among them; and the bytes that no cell can have, headers and rests of slabs.
    pub free_cell_bytes: u64,
    pub slab_overhead_bytes: u64,
    /// The bytes that objects may take under the RAM limit. 0: no limit.
    pub object_budget: u64,
    /// The bytes of objects from which on values leave RAM. 0: no limit.
    pub object_soft_bytes: u64,
    /// The part of the RAM limit that nothing should take.
    pub margin_bytes: u64,
    pub index_bytes: u64,
    /// Bytes of objects being written.
    pub writing_bytes: u64,
    pub flash_bytes: u64,
    /// How many of these bytes live data may take.
    pub flash_data_bytes: u64,
    pub flash_used_bytes: u64,
    pub flash_live_bytes: u64,
    /// The bytes that live data takes, with the unused parts of its pages and segments; the bytes that data could take;
    /// and the bytes from which flash counts as full.
    pub flash_charged_bytes: u64,
    pub flash_usable_bytes: u64,
    pub flash_full_at_bytes: u64,
    pub flash_free_segments: u64,
    pub flash_retired_segments: u64,
    pub segment_bytes: u64,
    /// Segments that will be free after a checkpoint.
    pub flash_quarantined_segments: u64,
    /// One of `plenty`, `low`, `waiting` and `full`.
    pub flash_room: &'static str,
    pub flash_full: bool,
    /// RAM contains only what cannot leave it.
    pub ram_full: bool,
    /// The progress while flash is made smaller.
    pub resizing: Option<Progress>,
    /// How often the scrubber has read everything.
    pub scrub_rounds: u64,
    pub dictionaries: u64,
    /// Latency of flash reads in nanoseconds: p50, p99, p99.9, maximum.
    pub flash_latency_nanos: [u64; 4],
}

impl StoreStats {
    /// Number of keys with an expiry.
    pub fn expires(&self) -> u64 {
        self.by_database.iter().map(|counts| counts.expires).sum()
    }

    /// Redis's keyspace_hits.
    pub fn keyspace_hits(&self) -> u64 {
        self[Counter::RamHits] + self[Counter::FlashHits]
    }
}

impl Index<Counter> for StoreStats {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.counts[counter]
    }
}

impl Store {
    pub fn stats(&self) -> StoreStats {
        let census = self.census();
        let keys: u64 = census.databases.iter().map(|counts| counts.keys).sum();
        let hot: u64 = census.databases.iter().map(|counts| counts.hot).sum();
        let latency = self.latency.lock();
        let limit = |bytes: usize| if bytes == usize::MAX { 0 } else { bytes as u64 };
        let segments = self.segments.sums();
        let (flash_charged_bytes, flash_usable_bytes) = self.charge_of(&segments);
        let flash_bytes = self.flash_bytes();
        StoreStats {
            keys,
            counts: self.counters.sums(),
            values_in_ram: hot,
            values_in_flash: keys - hot.min(keys),
            ram_limit: self.tier.ram_limit(),
            resident: self.tier.resident(),
            resident_max: self.tier.resident_max(),
            object_bytes: self.arena.used_bytes() as u64,
            arena_bytes: self.arena.held_bytes() as u64,
            free_cell_bytes: self.arena.free_bytes() as u64,
            slab_overhead_bytes: self.arena.overhead_bytes() as u64,
            object_budget: limit(self.tier.budget()),
            object_soft_bytes: limit(self.tier.soft()),
            margin_bytes: self.tier.margin(),
            index_bytes: census.index_bytes,
            by_database: census.databases,
            writing_bytes: self.tier.writing.load(Relaxed) as u64,
            flash_bytes,
            flash_data_bytes: flash_bytes.min(self.segments.data_max()),
            flash_used_bytes: u64::from(segments.used) * self.segments.segment_bytes(),
            flash_live_bytes: segments.live_bytes,
            flash_charged_bytes,
            flash_usable_bytes,
            flash_full_at_bytes: whole(FULLEST * flash_usable_bytes as f64).min(self.segments.data_max()),
            flash_free_segments: self.segments.free_count().into(),
            flash_retired_segments: segments.retired.into(),
            segment_bytes: self.segments.segment_bytes(),
            flash_quarantined_segments: self.segments.quarantined_count().into(),
            flash_room: self.segments.room().name(),
            flash_full: self.tier.full() == Full::Flash,
            ram_full: self.tier.full() == Full::Ram,
            resizing: self.resizing(),
            scrub_rounds: self.segments.scrub_rounds(),
            dictionaries: self.compression.count() as u64,
            flash_latency_nanos: [0.5, 0.99, 0.999, 1.0].map(|quantile| latency.value_at_quantile(quantile)),
        }
    }

    /// How many bytes of flash the live data takes as it is stored, and how many it may take. Flash is full from 92 %
    /// of the latter on.
    pub fn flash_charge(&self) -> (u64, u64) {
        self.charge_of(&self.segments.sums())
    }

    /// Entries and cells that background sweeps looked at so far.
    pub fn swept_entries(&self) -> u64 {
        self.counters.sum(Counter::SweptEntries)
    }

    /// Number of values and parts that were changed while their copy on flash was valid.
    pub fn changed_on_flash(&self) -> u64 {
        self.counters.sum(Counter::ChangedOnFlash)
    }

    fn charge_of(&self, sums: &Sums) -> (u64, u64) {
        let bytes = self.segments.segment_bytes();
        (whole(sums.charged * bytes as f64), u64::from(self.segments.usable(sums)) * bytes)
    }

    /// The recent mean cost of one more flash read while many reads are in flight. 0: nothing was read yet. CONFIG
    /// RESETSTAT does not reset it.
    pub fn read_cost_ns(&self) -> u64 {
        self.read_cost_ns.load(Relaxed)
    }

    /// Adds a sample: the median latency of some reads of one worker, and the mean number of reads that were in flight.
    pub(crate) fn note_reads(&self, latency_ns: u64, depth: u64) {
        let cost = cost_of_read(latency_ns, depth);
        // A race between workers loses a sample.
        let before = self.read_cost_ns();
        let mean = if before == 0 { cost } else { before - before / COST_SHARE + cost / COST_SHARE };
        self.read_cost_ns.store(mean, Relaxed);
    }

    /// Resets the counts of events, for CONFIG RESETSTAT.
    pub fn reset_stats(&self) {
        self.counters.reset();
        self.latency.lock().reset();
        self.tier.reset_resident_max();
    }

    /// Sets the RAM limit, for CONFIG SET. 0 removes the limit.
    pub fn set_ram_limit(&self, bytes: u64) {
        self.tier.set_ram_limit(bytes, &self.arena);
    }

    /// Sets the policy, for CONFIG SET maxmemory-policy.
    pub fn set_policy(&self, policy: base::Policy) {
        self.tier.set_policy(policy);
    }
}

/// Each sample has a weight of one in this many in the moving average.
const COST_SHARE: u64 = 8;
/// With fewer reads in flight, the latency does not show how many reads the device can do at once. The cost is then
/// computed as for this number of reads.
const DEPTH_MIN: u64 = 5;

/// The latency divided by the number of reads in flight: a read that waits in the device's queue has a higher latency,
/// but not a higher cost.
fn cost_of_read(latency_ns: u64, depth: u64) -> u64 {
    latency_ns / depth.max(DEPTH_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_not_taken_for_a_slow_device() {
        assert_eq!(cost_of_read(100_000, 1), 20_000, "a common device");
        assert_eq!(cost_of_read(5_000_000, 250), 20_000, "the same with many reads at once");
        assert_eq!(cost_of_read(5_000_000, 2), 1_000_000, "a busy one");
    }
}
