//! Owns a worker's copy of the configuration, in the form that the steps of a command read. Never knows who changes the configuration, or
//! when a copy is renewed.

use commands::Settings;
use config::{Config, Policy};
use resp::Limits;
use std::sync::Arc;
use value::list::Limit;

/// A copy of the configuration that a worker reads for each command without a lock.
pub struct ConfigSnapshot {
    pub version: u64,
    pub config: Arc<Config>,
    pub settings: Settings,
    pub limits: Limits,
    pub query_bytes_max: usize,
    /// The largest number of reply bytes that one batch may leave unsent.
    pub output_bytes_max: usize,
    /// Commands that take longer than this may concern the slow log or the latency monitor.
    pub slow_nanos: u64,
    pub latency_tracking: bool,
}

/// What a command may make at once without asking for memory, if the limit is large enough: a thousand clients may do so at a time, and
/// a client of a divided database does so at each shard.
const CLAIM_FREE_BYTES_MAX: u64 = 256 << 10;
const CLAIM_FREE_BYTES_MIN: u64 = 32 << 10;
const CLAIM_FREE_SHARE: u64 = 2000;

impl ConfigSnapshot {
    pub fn new(config: Arc<Config>, version: u64) -> ConfigSnapshot {
        let slow_log = u64::try_from(config.slowlog_log_slower_than_us).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let monitor = match config.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        ConfigSnapshot {
            version,
            settings: Settings {
                hash_max_listpack_entries: config.hash_max_listpack_entries,
                hash_max_listpack_value: config.hash_max_listpack_value,
                list_limit: Limit::of(config.list_max_listpack_size),
                set_max_intset_entries: config.set_max_intset_entries,
                set_max_listpack_entries: config.set_max_listpack_entries,
                set_max_listpack_value: config.set_max_listpack_value,
                zset_max_listpack_entries: config.zset_max_listpack_entries,
                zset_max_listpack_value: config.zset_max_listpack_value,
                hll_sparse_max_bytes: config.hll_sparse_max_bytes,
                stream_node_max_bytes: config.stream_node_max_bytes,
                stream_node_max_entries: config.stream_node_max_entries,
                proto_max_bulk_len: config.proto_max_bulk_len_bytes,
                databases: config.databases,
                claim_free_bytes: match config.ram_limit_bytes.max(config.maxmemory_clients_bytes) {
                    0 => usize::MAX,
                    limit => (limit / CLAIM_FREE_SHARE).clamp(CLAIM_FREE_BYTES_MIN, CLAIM_FREE_BYTES_MAX) as usize,
                },
                lfu: matches!(config.maxmemory_policy, Policy::AllKeysLfu | Policy::VolatileLfu),
            },
            limits: Limits { bulk_bytes_max: config.proto_max_bulk_len_bytes, ..Limits::DEFAULT },
            query_bytes_max: config.client_query_buffer_limit_bytes,
            output_bytes_max: match config.output_limit_normal.hard_bytes {
                0 => usize::MAX,
                bytes => bytes as usize,
            },
            slow_nanos: slow_log.min(monitor),
            latency_tracking: config.latency_tracking,
            config,
        }
    }
}
