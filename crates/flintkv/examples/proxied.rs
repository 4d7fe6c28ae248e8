//! A node whose database keeps no data: it is a proxy over copies of so many shards in the same process. For measuring what a proxy
//! costs (`scripts/instructions.sh --cluster`) without a cluster. usage: proxied SHARDS [CONF] [--directive value ...]

#[path = "../src/allocator.rs"]
mod allocator;

use node::Definition;
use std::any::Any;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

/// The limits of one copy.
const MEMORY_BYTES: u64 = 2 << 30;
const RAM_BYTES: u64 = 1 << 30;

fn attach(node: &Arc<node::Node>, shards: u16) -> io::Result<Box<dyn Any>> {
    let definition = Definition {
        name: "shard".to_owned(),
        memory_limit_bytes: MEMORY_BYTES,
        ram_limit_bytes: RAM_BYTES,
        persistence: "none".to_owned(),
        ..Definition::default()
    };
    let proxy = &node.databases()[0];
    let copies: Result<Vec<_>, _> =
        (0..shards).map(|shard| node.open_copy(&definition, shard, Some(proxy), None)).collect();
    let copies = copies.map_err(|error| io::Error::other(error.to_string()))?;
    proxy.serve_from(&copies).map_err(io::Error::other)?;
    Ok(Box::new(()))
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(shards) = words.next().and_then(|word| word.parse().ok()) else {
        eprintln!("usage: proxied SHARDS [CONF] [--directive value ...]");
        return ExitCode::from(2);
    };
    let config = match config::ConfigStore::from_args(&words.collect::<Vec<_>>()) {
        Ok(config) => Arc::new(config),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match node::run(config, |node| attach(node, shards)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
