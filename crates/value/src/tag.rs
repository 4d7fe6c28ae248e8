//! Owns the keyed hash that orders the members of large hashes, sets and sorted sets. Never knows a table.

use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

static SECRET: OnceLock<[u64; 2]> = OnceLock::new();

/// Fixes the secret of the fields' order, so that a seed replays a run. Without a call, or if a table was made before,
/// the secret is random: an attacker who does not know it cannot make fields collide.
pub fn seed(secret: [u64; 2]) {
    let _ = SECRET.set(secret);
}

/// A keyed hash, which orders tables.
pub(crate) fn tag(field: &[u8]) -> u32 {
    let secret = SECRET.get_or_init(|| [RandomState::new().hash_one(0), RandomState::new().hash_one(1)]);
    let mut hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
    hasher.write(field);
    (hasher.finish() >> 32) as u32
}
