//! Owns every limit and duration of the crate. Never knows who keeps to them.

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The life of an authority's certificate.
pub const AUTHORITY_LIFE_MS: u64 = 3650 * DAY_MS;
/// An authority needs a successor when it could no longer issue a certificate for its whole life, with a year to spare.
pub const AUTHORITY_SUCCESSOR_MS: u64 = 2 * CERTIFICATE_LIFE_MS;
/// The life of a node's and of etcd's certificates.
pub const CERTIFICATE_LIFE_MS: u64 = 365 * DAY_MS;
/// A certificate is renewed when less than this part of its life is left.
pub const RENEWED_AT: u64 = 3;
/// The life of a join token.
pub const TOKEN_LIFE_MS: u64 = HOUR_MS;

/// How far the clocks of two nodes may be apart. A certificate is valid so long before it is issued, so that a node
/// whose clock is behind can use it at once. A node whose clock is further away is told so and does not join.
pub const CLOCKS_APART_MS_MAX: u64 = 5 * MINUTE_MS;

/// Names of clusters, nodes and zones: a certificate's common name has at most 64 characters.
pub const NAME_CHARS_MAX: usize = 63;
/// As DNS has it.
pub const HOST_CHARS_MAX: usize = 253;
/// A node's addresses in its certificate.
pub const ADDRESSES_MAX: usize = 16;
/// A request for a certificate with a P-256 key has some 400 bytes.
pub const REQUEST_CHARS_MAX: usize = 4 << 10;
/// A message between nodes: the largest has a few certificates of 1 KiB each.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// A file with a key and certificates.
pub const FILE_BYTES_MAX: u64 = 64 << 10;
/// The authorities that a node may trust at a time: the cluster's own, and its successor.
pub const AUTHORITIES_MAX: usize = 4;
