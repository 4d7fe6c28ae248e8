//! Owns which names a cluster takes: of databases, nodes and zones, and addresses. Never knows whether a name is taken already.

use crate::text;
use config::definition::host_and_port;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

pub const DATABASE_NAME_BYTES_MAX: usize = 40;
/// The longest label of DNS and of Kubernetes, whose nodes and zones have such names.
pub const NAME_BYTES_MAX: usize = 63;
/// A host name of DNS, and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Each node has a database `default` of its own, and `node` is a word of the API's paths.
const RESERVED: [&str; 2] = ["default", "node"];

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NameError {}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $check:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<$name, NameError> {
                $check($what, text).map(|()| $name(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                text::read(deserializer, $what)
            }
        }
    )*};
}

names! {
    /// 1 to 40 lower-case letters, digits and hyphens: the rule of a node's databases.
    DatabaseName, "the name of a database", check_database;
    /// 1 to 63 letters, digits, `-`, `_` and `.`, a letter or digit first and last. A host's short name is one.
    NodeName, "the name of a node", check_label;
    /// The same: availability zones of clouds and labels of Kubernetes are such names.
    ZoneName, "the name of a zone", check_label;
    /// HOST:PORT.
    Address, "an address", check_address;
}

fn check_database(what: &str, name: &str) -> Result<(), NameError> {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_long = name.len() > DATABASE_NAME_BYTES_MAX;
    if name.is_empty() || is_long || name.starts_with('-') || !name.bytes().all(is_plain) {
        return Err(NameError(format!(
            "{what} is 1 to {DATABASE_NAME_BYTES_MAX} small letters, digits and hyphens, and does not begin with a hyphen"
        )));
    }
    if RESERVED.contains(&name) {
        return Err(NameError(format!("'{name}' is taken: choose another name")));
    }
    Ok(())
}

fn check_label(what: &str, name: &str) -> Result<(), NameError> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let is_end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let has_ends = is_end(bytes.first()) && is_end(bytes.last());
    if has_ends && bytes.len() <= NAME_BYTES_MAX && bytes.iter().copied().all(is_plain) {
        return Ok(());
    }
    Err(NameError(format!(
        "{what} is 1 to {NAME_BYTES_MAX} letters, digits, hyphens, underscores and dots, with a letter or digit first and last"
    )))
}

fn check_address(what: &str, address: &str) -> Result<(), NameError> {
    let is_one = address.len() <= ADDRESS_BYTES_MAX && host_and_port(address).is_some();
    if is_one { Ok(()) } else { Err(NameError(format!("{what} is HOST:PORT, at most {ADDRESS_BYTES_MAX} bytes"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases() {
        for good in ["a", "0", "orders-2024", &"x".repeat(40)] {
            assert!(good.parse::<DatabaseName>().is_ok(), "{good}");
        }
        for wrong in ["", "-a", "A", "a_b", "a.0", "ä", "a b", "a\n", &"x".repeat(41)] {
            let why = wrong.parse::<DatabaseName>().unwrap_err().to_string();
            assert!(why.starts_with("the name of a database is 1 to 40 small letters"), "{wrong}: {why}");
        }
        for taken in ["default", "node"] {
            assert_eq!(
                taken.parse::<DatabaseName>().unwrap_err().to_string(),
                format!("'{taken}' is taken: choose another name")
            );
        }
    }

    #[test]
    fn names_of_nodes_and_zones() {
        for good in ["a", "1", "eu-central-1a", "node3.example.com", "Rack_7", &"x".repeat(63)] {
            assert!(good.parse::<NodeName>().is_ok() && good.parse::<ZoneName>().is_ok(), "{good}");
        }
        for wrong in ["", "-a", "a-", ".", "a/b", "a b", "ä", "a\0", &"x".repeat(64)] {
            let why = wrong.parse::<ZoneName>().unwrap_err().to_string();
            assert!(why.starts_with("the name of a zone is 1 to 63 letters"), "{wrong}: {why}");
            assert!(wrong.parse::<NodeName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        for good in ["10.0.0.1:8380", "[::1]:8380", "node3.example.com:1"] {
            assert!(good.parse::<Address>().is_ok(), "{good}");
        }
        for wrong in ["", "10.0.0.1", "10.0.0.1:0", ":8380", "a b:1", "a:65536", &format!("{}:1", "x".repeat(259))] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
