//! Owns which addresses this machine has. Never knows which of them other nodes can reach.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};

/// The address from which packets to other networks leave. `None`: there is no route to any.
pub fn outward_address() -> Option<String> {
    // Nothing is sent: to connect a UDP socket only asks the system for the route. The address is one of documentation's.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then(|| address.to_string())
}

/// All of the machine's addresses. etcd compares the address from which a member calls with those in the member's certificate.
pub fn own_addresses() -> BTreeSet<IpAddr> {
    let table = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let sixes = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    ipv4_addresses(&table).chain(ipv6_addresses(&sixes)).collect()
}

/// In the kernel's table of routes, `/32 host LOCAL` stands below an address of the machine.
fn ipv4_addresses(table: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let found = |pair: &[&str]| {
        let address = pair[0].strip_prefix("|-- ")?.parse().ok()?;
        pair[1].starts_with("/32 host LOCAL").then_some(address)
    };
    lines.windows(2).filter_map(found).collect::<Vec<_>>().into_iter()
}

/// Each line begins with the 32 digits of an address. Those of a link mean nothing without the link.
fn ipv6_addresses(table: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let address = |line: &str| u128::from_str_radix(line.get(..32)?, 16).ok().map(Ipv6Addr::from_bits);
    table.lines().filter_map(address).filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_name_the_addresses() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\n     |-- 10.1.2.3\n        /32 host LOCAL\n\
                     |-- 10.1.2.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let fours: Vec<String> = ipv4_addresses(table).map(|ip| ip.to_string()).collect();
        assert_eq!(fours, ["10.1.2.3", "127.0.0.1"]);
        let table = "00000000000000000000000000000001 01 80 10 80 lo\nfe800000000000000000000000000001 02 40 20 80 eth0\n\
                     fd000000000000000000000000000007 02 40 00 80 eth0\nx\n";
        let sixes: Vec<String> = ipv6_addresses(table).map(|ip| ip.to_string()).collect();
        assert_eq!(sixes, ["::1", "fd00::7"]);
    }

    #[test]
    fn this_machine_has_addresses() {
        assert!(own_addresses().contains(&"127.0.0.1".parse().unwrap()));
    }
}
