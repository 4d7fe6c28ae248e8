//! Owns which directives the parts of a divided database share. Never knows who shares them.

/// The directives that say how values are kept and commands run. What clients set at the proxy is set at its copies.
pub const OF_COPIES: &[&str] = &[
    "busy-reply-threshold",
    "debug-tier-mode",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hll-sparse-max-bytes",
    "list-max-listpack-size",
    "maxmemory-policy",
    "proto-max-bulk-len",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
];

/// What clients may set of a cluster's database: it holds on all nodes. The other directives are the node's, or the database's
/// definition has them.
pub const SHARED: &[&str] = &[
    "acllog-max-len",
    "busy-reply-threshold",
    "client-output-buffer-limit",
    "client-query-buffer-limit",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hll-sparse-max-bytes",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
    "list-max-listpack-size",
    "maxclients",
    "proto-max-bulk-len",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "tcp-keepalive",
    "timeout",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
];
