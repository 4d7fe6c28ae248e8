//! Owns what a store is opened with: limits, policy, where its flash lies. Never knows where the settings come from.

use crate::log::page::Codec;
use crate::mem::tier::LimitOf;
use base::Policy;

/// Where the log lies.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    pub paths: u32,
    /// First byte of the log in each file.
    pub data_offset: u64,
    pub segment_bytes: u64,
    /// All paths together.
    pub segments: u32,
    pub codec: Codec,
}

impl FlashConfig {
    /// Shares `bytes` of flash out into segments: `wanted` bytes each, halved (to 256 KiB at least) until there
    /// are 64, because a collector needs segments to choose from.
    pub fn divide(bytes: u64, wanted: u64, paths: u32, data_offset: u64, codec: Codec) -> FlashConfig {
        let mut segment_bytes = wanted.next_power_of_two().clamp(256 << 10, 128 << 20);
        while segment_bytes > 256 << 10 && bytes / segment_bytes < 64 {
            segment_bytes /= 2;
        }
        let segments = u32::try_from(bytes / segment_bytes).unwrap_or(u32::MAX);
        FlashConfig { paths, data_offset, segment_bytes, segments: segments - segments % paths, codec }
    }

    /// Bytes each path's file needs after `data_offset`.
    pub fn bytes_per_path(&self) -> u64 {
        u64::from(self.segments / self.paths) * self.segment_bytes
    }
}

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub workers: usize,
    pub databases: usize,
    /// 0: none.
    pub ram_limit: u64,
    pub limit_of: LimitOf,
    pub policy: Policy,
    /// Objects lie in huge pages where there are such.
    pub huge_pages: bool,
    /// `None`: everything stays in RAM.
    pub flash: Option<FlashConfig>,
    /// Drawn at random by the caller: the identity of cold keys depends on nobody knowing it.
    pub secret: [u64; 2],
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
        }
    }
}
