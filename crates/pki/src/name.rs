//! Owns which names and addresses a cluster accepts. Never knows which are taken.

use crate::limits::{HOST_CHARS_MAX, NAME_CHARS_MAX};
use std::net::IpAddr;

/// The top-level domain of names that only the authority gives, such as that of etcd's certificates.
pub(crate) const OWN_DOMAIN: &str = "flintkv";

/// The name of a cluster, a node or a zone: letters, digits, `-`, `_` and `.`, a letter or digit first.
pub fn check_name(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_CHARS_MAX && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
    {
        return Ok(());
    }
    Err(format!("has up to {NAME_CHARS_MAX} letters, digits, '-', '_' and '.', and begins with a letter or digit"))
}

/// What a certificate may say of where its holder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    Dns(String),
}

/// An address without its port.
pub(crate) fn parse_host(text: &str) -> Result<Host, String> {
    if let Ok(ip) = text.parse() {
        return Ok(Host::Ip(ip));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.to_ascii_lowercase();
    let top = name.rsplit('.').next().unwrap_or_default();
    if top == OWN_DOMAIN {
        return Err(format!("is under .{OWN_DOMAIN}, whose names the authority alone gives"));
    }
    // What looks like a wrong IP address is one: no top-level domain has only digits.
    if name.len() <= HOST_CHARS_MAX && name.split('.').all(is_label) && !top.bytes().all(|c| c.is_ascii_digit()) {
        return Ok(Host::Dns(name));
    }
    Err("is neither an IP address nor a host name".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "node-1", "Rack_7.b", "0", &"n".repeat(63)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "-a", ".a", "a b", "a/b", "ä", "a\n", "$(a)", &"n".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_address_is_an_ip_address_or_a_host_name() {
        assert_eq!(parse_host("10.0.0.1"), Ok(Host::Ip([10, 0, 0, 1].into())));
        assert_eq!(parse_host("::1"), Ok(Host::Ip("::1".parse().unwrap())));
        assert_eq!(parse_host("Node-1.Example"), Ok(Host::Dns("node-1.example".to_owned())));
        for wrong in
            ["", ".", "a.", "a..b", "-a", "a-", "a b", "10.0.0.256", "10.0.0.1:8380", "*.a", "ä", &"a.".repeat(200)]
        {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
        assert!(parse_host("etcd.0123.FlintKV").unwrap_err().starts_with("is under .flintkv"));
    }
}
