//! Owns the identifiers of a cluster: their digits, and how a shard's uid and a replication id are composed. Never draws a random number:
//! random bytes are arguments.
//!
//! ```text
//! node            40 digits of hex, as Redis's node ids
//! database        20 random digits, then 0000
//! shard's uid     the same 20 digits, then the shard's number in 4
//! replication id  the shard's uid (24), then the epoch (16)
//! ```
//!
//! So a replication id says which database, shard and epoch it belongs to, and PSYNC, manifests and second ids carry epochs without a
//! field of their own. Epochs begin at 1: no replication id consists of zeros only, which is Redis's way to say that there is none.

use crate::text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError {
    expected: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text itself is left out: it may be a secret.
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for IdError {}

/// Makes types of bytes that are written as lower-case hex digits, perhaps with fixed digits behind them.
macro_rules! hex_ids {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal $suffix:literal, $expected:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            fn digits(self) -> String {
                hex(&self.0) + $suffix
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<$name, IdError> {
                text.strip_suffix($suffix).and_then(unhex).map($name).ok_or(IdError { expected: $expected })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.digits())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                text::read(deserializer, $expected)
            }
        }
    )*};
}

hex_ids! {
    /// A node, for as long as its state directory exists.
    NodeId: 20 "", "40 lower-case hex digits";
    /// A database. Only the random part is kept: the digits of the shard's number are 0.
    DatabaseId: 10 "0000", "20 lower-case hex digits and 0000";
    /// A shard of a database: see [`shard_uid`].
    ShardUid: 12 "", "24 lower-case hex digits";
    OperationId: 8 "", "16 lower-case hex digits";
    /// One run of a node's process. Drawn at each start.
    ProcessId: 8 "", "16 lower-case hex digits";
    /// The life of a copy's dataset. Drawn whenever the dataset is emptied, so that an emptied copy is not taken for a member of
    /// the in-sync set.
    Incarnation: 8 "", "16 lower-case hex digits";
    /// The secret of the hash of keys, the same in all copies of a database.
    HashSecret: 16 "", "32 lower-case hex digits";
    /// With which the nodes sign the sessions of their consoles.
    ConsoleKey: 32 "", "64 lower-case hex digits";
    /// The SHA-256 of a session's secret.
    SessionDigest: 32 "", "64 lower-case hex digits";
}

/// Those that may be shown, which is all but the secrets.
macro_rules! shown {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.digits())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.digits())
            }
        }
    )*};
}

shown! { NodeId DatabaseId ShardUid OperationId ProcessId Incarnation SessionDigest }

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSecret")
    }
}

impl fmt::Debug for ConsoleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConsoleKey")
    }
}

/// The number of a shard inside its database. Shards are never merged, so a number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardNumber(pub u16);

/// The number of a copy inside its shard. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CopyNumber(pub u32);

/// Counts the primaries that a shard has had. Each promotion takes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub NonZeroU64);

impl Epoch {
    pub const FIRST: Epoch = Epoch(NonZeroU64::MIN);

    /// No cluster lives to see the last one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.checked_add(1).expect("an epoch below 2^64"))
    }
}

macro_rules! shown_as_numbers {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_numbers! { ShardNumber CopyNumber Epoch }

pub fn shard_uid(database: DatabaseId, shard: ShardNumber) -> ShardUid {
    let mut uid = [0; 12];
    uid[..10].copy_from_slice(&database.0);
    uid[10..].copy_from_slice(&shard.0.to_be_bytes());
    ShardUid(uid)
}

impl ShardUid {
    pub fn database(self) -> DatabaseId {
        let (database, _) = self.0.split_first_chunk().expect("12 bytes");
        DatabaseId(*database)
    }

    pub fn number(self) -> ShardNumber {
        let (_, number) = self.0.split_last_chunk().expect("12 bytes");
        ShardNumber(u16::from_be_bytes(*number))
    }
}

/// A replication id as members of a cluster use it. Any 40 hex digits but those of epoch 0 have this form, those of a foreign Redis
/// too: who reads one compares the uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicationId {
    pub uid: ShardUid,
    pub epoch: Epoch,
}

pub fn replication_id(uid: ShardUid, epoch: Epoch) -> ReplicationId {
    ReplicationId { uid, epoch }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:016x}", self.uid, self.epoch.0)
    }
}

impl FromStr for ReplicationId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<ReplicationId, IdError> {
        let wrong = IdError { expected: "40 lower-case hex digits, the last 16 not all 0" };
        let (uid, epoch) = text.split_at_checked(24).ok_or_else(|| wrong.clone())?;
        let number = unhex(epoch).map(u64::from_be_bytes).and_then(NonZeroU64::new);
        match (uid.parse(), number) {
            (Ok(uid), Some(number)) => Ok(ReplicationId { uid, epoch: Epoch(number) }),
            _ => Err(wrong),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly two lower-case digits for each byte.
fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_replication_id_names_database_shard_and_epoch() {
        let database: DatabaseId = "001122334455667788990000".parse().unwrap();
        let uid = shard_uid(database, ShardNumber(0x2a));
        assert_eq!(uid.to_string(), "00112233445566778899002a");
        let id = replication_id(uid, Epoch::FIRST.next());
        assert_eq!(id.to_string(), "00112233445566778899002a0000000000000002");
        assert_eq!("00112233445566778899002a0000000000000002".parse(), Ok(id));
        assert_eq!((id.uid.database(), id.uid.number()), (database, ShardNumber(0x2a)));
    }

    #[test]
    fn only_exact_lower_case_digits_are_an_id() {
        let whole = "00112233445566778899002a000000000000000f";
        assert!(whole.parse::<ReplicationId>().is_ok() && whole.parse::<NodeId>().is_ok());
        let upper = whole.replace('f', "F");
        let epoch_0 = whole.replace('f', "0");
        let long = format!("{whole}0");
        let other = whole.replacen('0', "+", 1);
        let wide = whole.replacen("00", "é", 1);
        // A character that lies on the border of uid and epoch.
        let border = format!("{}é{}", &whole[..23], &whole[25..]);
        for wrong in ["", &whole[1..], &upper, &epoch_0, &long, &other, &wide, &border] {
            assert!(wrong.parse::<ReplicationId>().is_err(), "{wrong}");
        }
        assert!("001122334455667788990001".parse::<DatabaseId>().is_err(), "a shard is no database");
        assert!(whole.replace('f', "F").parse::<NodeId>().is_err());
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret: HashSecret = "0123456789abcdef0123456789abcdef".parse().unwrap();
        assert_eq!(format!("{secret:?}"), "HashSecret");
        let wrong = "0123456789abcdef0123456789abcdeX".parse::<HashSecret>().unwrap_err();
        assert_eq!(wrong.to_string(), "expected 32 lower-case hex digits");
    }

    proptest! {
        #[test]
        fn what_is_composed_comes_back(random: [u8; 10], shard: u16, epoch in 1..=u64::MAX) {
            let uid = shard_uid(DatabaseId(random), ShardNumber(shard));
            let id = replication_id(uid, Epoch(NonZeroU64::new(epoch).unwrap()));
            let text = id.to_string();
            prop_assert_eq!(text.len(), 40);
            prop_assert_eq!(text.parse(), Ok(id));
            prop_assert_eq!(uid.to_string().parse(), Ok(uid));
            prop_assert_eq!((uid.database(), uid.number()), (DatabaseId(random), ShardNumber(shard)));
        }

        #[test]
        fn any_text_is_an_id_or_an_error(text in "\\PC{0,44}|[0-9a-f]{38,42}") {
            if let Ok(id) = text.parse::<ReplicationId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
