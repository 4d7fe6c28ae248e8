//! Owns the settings that a store is opened with: limits, policy, location of flash. Never knows the source of the settings.

use crate::log::page::Codec;
use crate::mem::tier::LimitOf;
use base::Policy;

/// The location and size of the log.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    pub paths: u32,
    /// Offset of the log's first byte in each file.
    pub data_offset: u64,
    pub segment_bytes: u64,
    /// Number of segments in all paths together.
    pub segments: u32,
    pub codec: Codec,
}

impl FlashConfig {
    /// Divides `bytes` of flash into segments of `wanted` bytes. The segment size is halved, down to 256 KiB, until there
    /// are 64 segments, because the collector needs segments to choose from.
    pub fn divide(bytes: u64, wanted: u64, paths: u32, data_offset: u64, codec: Codec) -> FlashConfig {
        let mut segment_bytes = wanted.next_power_of_two().clamp(256 << 10, 128 << 20);
        while segment_bytes > 256 << 10 && bytes / segment_bytes < 64 {
            segment_bytes /= 2;
        }
        let segments = u32::try_from(bytes / segment_bytes).unwrap_or(u32::MAX);
        FlashConfig { paths, data_offset, segment_bytes, segments: segments - segments % paths, codec }
    }

    /// Bytes that each path's file needs after `data_offset`.
    pub fn bytes_per_path(&self) -> u64 {
        u64::from(self.segments / self.paths) * self.segment_bytes
    }
}

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub workers: usize,
    pub databases: usize,
    /// 0: no limit.
    pub ram_limit: u64,
    pub limit_of: LimitOf,
    pub policy: Policy,
    /// Ask the kernel for huge pages for objects.
    pub huge_pages: bool,
    /// `None`: all values stay in RAM.
    pub flash: Option<FlashConfig>,
    /// The caller draws it at random. With the secret, an attacker can construct two cold keys that collide.
    pub secret: [u64; 2],
    /// Random choices begin with it. It differs at each start, although the secret may stay.
    pub seed: u64,
}

impl StoreConfig {
    pub fn in_ram(workers: usize) -> StoreConfig {
        StoreConfig {
            workers,
            databases: 16,
            ram_limit: 0,
            limit_of: LimitOf::Process,
            policy: Policy::NoEviction,
            huge_pages: false,
            flash: None,
            secret: [0x0f1e_2d3c_4b5a_6978, 0x8796_a5b4_c3d2_e1f0],
            seed: 0x2d35_8dcc_aa6c_78a5,
        }
    }
}
