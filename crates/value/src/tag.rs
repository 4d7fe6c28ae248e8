//! Owns the keyed hash that orders the members of large hashes, sets and sorted sets. Never knows a table.

use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// The salt of all new tables of this process.
static SALT: OnceLock<u64> = OnceLock::new();

/// Fixes the salt of new tables, so that a seed replays a run. Without a call, or if a table was made before, the salt is
/// random: an attacker who does not know it cannot make fields collide.
pub fn seed(secret: [u64; 2]) {
    let _ = SALT.set(secret[0] ^ secret[1].rotate_left(32));
}

/// The key of the hash with which a table orders its members. Parts on flash contain tags that were made with it, so a
/// table that is restored with its parts after a restart keeps its salt. All other tables have the salt of the process.
/// So cursors stay valid when a table goes to flash as a whole and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(u64);

impl Default for Salt {
    fn default() -> Salt {
        Salt(*SALT.get_or_init(|| RandomState::new().hash_one(0)))
    }
}

impl Salt {
    pub fn from_bytes(bytes: [u8; 8]) -> Salt {
        Salt(u64::from_le_bytes(bytes))
    }

    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// A keyed hash, which orders tables.
    #[inline]
    pub fn tag(self, field: &[u8]) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.0, !self.0);
        hasher.write(field);
        (hasher.finish() >> 32) as u32
    }
}
