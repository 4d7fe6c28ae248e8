//! Owns the keys under which a cluster's records lie in etcd, relative to the cluster's prefix. Never knows what a record consists of.

use crate::ids::{DatabaseId, NodeId, OperationId, SessionDigest, ShardNumber};
use std::fmt;
use std::str::FromStr;

/// The key of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `nodes/<id>`
    Node(NodeId),
    /// `live/<id>`, which ends with the node's lease
    Live(NodeId),
    /// `db/<id>/spec`
    Spec(DatabaseId),
    /// `db/<id>/users`
    Users(DatabaseId),
    /// `db/<id>/functions`
    Functions(DatabaseId),
    /// `db/<id>/map`
    Map(DatabaseId),
    /// `db/<id>/shard/<n>`
    Shard(DatabaseId, ShardNumber),
    /// `ops/<id>`
    Operation(OperationId),
    /// `failovers/<id>`
    Failover(OperationId),
    /// `layout`
    Layout,
    /// `settings`
    Settings,
    /// `ctl/leader`
    Leader,
    /// `feature_level`
    FeatureLevel,
    /// `console/users`
    ConsoleUsers,
    /// `console/key`
    ConsoleKey,
    /// `console/ended/<digest>`, which ends with a lease
    ConsoleEnded(SessionDigest),
}

/// A key that this version does not know: one of a newer version, or of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no key of a cluster's record", self.0)
    }
}

impl std::error::Error for KeyError {}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Node(id) => write!(f, "nodes/{id}"),
            Key::Live(id) => write!(f, "live/{id}"),
            Key::Spec(id) => write!(f, "db/{id}/spec"),
            Key::Users(id) => write!(f, "db/{id}/users"),
            Key::Functions(id) => write!(f, "db/{id}/functions"),
            Key::Map(id) => write!(f, "db/{id}/map"),
            Key::Shard(id, number) => write!(f, "db/{id}/shard/{number}"),
            Key::Operation(id) => write!(f, "ops/{id}"),
            Key::Failover(id) => write!(f, "failovers/{id}"),
            Key::Layout => f.write_str("layout"),
            Key::Settings => f.write_str("settings"),
            Key::Leader => f.write_str("ctl/leader"),
            Key::FeatureLevel => f.write_str("feature_level"),
            Key::ConsoleUsers => f.write_str("console/users"),
            Key::ConsoleKey => f.write_str("console/key"),
            Key::ConsoleEnded(digest) => write!(f, "console/ended/{digest}"),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        // What is not written as this version writes it (a shard 007) is a different key for etcd.
        let found = parse(text).filter(|key| key.to_string() == text);
        found.ok_or_else(|| KeyError(text.chars().take(128).flat_map(char::escape_default).collect()))
    }
}

fn parse(text: &str) -> Option<Key> {
    let parts: Vec<&str> = text.split('/').collect();
    Some(match parts[..] {
        ["nodes", id] => Key::Node(id.parse().ok()?),
        ["live", id] => Key::Live(id.parse().ok()?),
        ["db", id, "spec"] => Key::Spec(id.parse().ok()?),
        ["db", id, "users"] => Key::Users(id.parse().ok()?),
        ["db", id, "functions"] => Key::Functions(id.parse().ok()?),
        ["db", id, "map"] => Key::Map(id.parse().ok()?),
        ["db", id, "shard", number] => Key::Shard(id.parse().ok()?, ShardNumber(number.parse().ok()?)),
        ["ops", id] => Key::Operation(id.parse().ok()?),
        ["failovers", id] => Key::Failover(id.parse().ok()?),
        ["layout"] => Key::Layout,
        ["settings"] => Key::Settings,
        ["ctl", "leader"] => Key::Leader,
        ["feature_level"] => Key::FeatureLevel,
        ["console", "users"] => Key::ConsoleUsers,
        ["console", "key"] => Key::ConsoleKey,
        ["console", "ended", digest] => Key::ConsoleEnded(digest.parse().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATABASE: &str = "001122334455667788990000";
    const NODE: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn each_key_reads_back() {
        let keys = [
            format!("nodes/{NODE}"),
            format!("live/{NODE}"),
            format!("db/{DATABASE}/spec"),
            format!("db/{DATABASE}/users"),
            format!("db/{DATABASE}/functions"),
            format!("db/{DATABASE}/map"),
            format!("db/{DATABASE}/shard/0"),
            format!("db/{DATABASE}/shard/65535"),
            "ops/0123456789abcdef".to_owned(),
            "failovers/0123456789abcdef".to_owned(),
            "layout".to_owned(),
            "settings".to_owned(),
            "ctl/leader".to_owned(),
            "feature_level".to_owned(),
            "console/users".to_owned(),
            "console/key".to_owned(),
            format!("console/ended/{}", "0123456789abcdef".repeat(4)),
        ];
        for key in keys {
            assert_eq!(key.parse::<Key>().map(|key| key.to_string()), Ok(key));
        }
    }

    #[test]
    fn other_keys_are_refused() {
        for key in [
            String::new(),
            "nodes".to_owned(),
            "nodes/".to_owned(),
            format!("nodes/{NODE}/"),
            format!("/nodes/{NODE}"),
            format!("db/{DATABASE}/shard/007"),
            format!("db/{DATABASE}/shard/+7"),
            format!("db/{DATABASE}/shard/65536"),
            format!("db/{DATABASE}/metrics"),
        ] {
            assert!(key.parse::<Key>().is_err(), "{key}");
        }
        assert_eq!("a\nb".parse::<Key>().unwrap_err().to_string(), "'a\\nb' is no key of a cluster's record");
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_an_error(text in "\\PC{0,40}|db/00112233445566778899000[01]/shard/[0-9+ ]{0,7}") {
            if let Ok(key) = text.parse::<Key>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
