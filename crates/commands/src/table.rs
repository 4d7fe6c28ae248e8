//! Owns the list of all commands. Never knows what any of them does. The server's directory, which applies renames,
//! looks up every command that arrives; this list serves COMMAND, the documentation and tests.

use crate::row::Row;
use crate::{
    acl, bitfield, bitmaps, connection, counters, databases, dump, expiry, geo, hashes, hyperloglog, keys, lcs, lists,
    migrate, object, pubsub, replication, scripting, server, sets, sort, standalone, streams, strings, transactions,
    zsets,
};

/// The families, one line each, in the order of COMMAND.
static FAMILIES: &[&[Row]] = &[
    strings::ROWS,
    counters::ROWS,
    lcs::ROWS,
    bitmaps::ROWS,
    bitfield::ROWS,
    hyperloglog::ROWS,
    hashes::ROWS,
    hashes::EXPIRY_ROWS,
    lists::ROWS,
    lists::MOVING_ROWS,
    lists::BLOCKING_ROWS,
    sets::ROWS,
    zsets::BASIC,
    zsets::RANGES,
    zsets::POPS,
    zsets::ALGEBRA,
    geo::ROWS,
    geo::SEARCHES,
    streams::BASIC,
    streams::READS,
    streams::GROUPS,
    streams::CLAIMS,
    streams::INFO,
    sort::ROWS,
    keys::ROWS,
    expiry::ROWS,
    dump::ROWS,
    migrate::ROWS,
    object::ROWS,
    databases::ROWS,
    pubsub::ROWS,
    transactions::ROWS,
    scripting::ROWS,
    connection::ROWS,
    acl::ROWS,
    server::ROWS,
    replication::ROWS,
    standalone::ROWS,
];

pub fn rows() -> &'static [&'static [Row]] {
    FAMILIES
}

/// Every command: containers, but not their subcommands.
pub fn all() -> impl Iterator<Item = &'static Row> + Clone {
    FAMILIES.iter().copied().flatten()
}

/// The command with that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Row> {
    all().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}

pub fn find_subcommand(container: &'static Row, name: &[u8]) -> Option<&'static Row> {
    container.subcommands.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}
