//! Owns where a proxy sends commands: which shard owns a slot, and how each command is distributed. Never knows a connection, or how a
//! shard is reached.

use crate::session_stream::SessionStream;
use commands::host::Unblock;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use store::{KeyHash, STRIPES};

/// A shard as a proxy sees it.
pub trait Shard: fmt::Debug + Send + Sync {
    /// As errors name it: `orders.2`.
    fn name(&self) -> &str;
    /// Opens a session with the copy that owns the shard. Called on a worker's thread.
    fn connect(&self) -> io::Result<SessionStream>;
    /// The hub of the copy that owns it, if that is in this process. A hub knows routes, so routes do not know hubs.
    fn local(&self) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Ends the wait of the session's client, which has this id there. False: it does not wait.
    fn unblock(&self, client: u64, how: Unblock) -> bool;
}

/// The proxies of the same database on other nodes.
pub trait OtherProxies: Send + Sync {
    /// Sends a message to the subscribers there. Called on a worker's thread.
    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]);
    /// Bytes of a channel and a message together.
    fn message_bytes_max(&self) -> usize;
}

/// Keeps the functions of a database for all of its shards and proxies.
pub trait Functions: Send + Sync {
    /// Replaces all libraries, given that those of the revision `seen` are the newest, and returns the new revision. Waits until the
    /// shards that are served have them.
    fn replace(&self, seen: i64, codes: &[&[u8]]) -> Result<i64, NotReplaced>;
}

/// Keeps the settings of a database for all of its shards and proxies.
pub trait Settings: Send + Sync {
    /// Returns when this version of the proxy's configuration is kept, and the shards that are served have it. Waits. The error is the whole
    /// reply.
    fn spread(&self, version: u64) -> Result<(), String>;
}

#[derive(Debug, PartialEq, Eq)]
pub enum NotReplaced {
    /// There are newer functions, which get here by themselves.
    Newer,
    /// The whole reply.
    Error(String),
}

/// The shards of a database, and which of them owns each stripe.
pub struct Routes {
    owners: Box<[u16; STRIPES]>,
    pub shards: Vec<Arc<dyn Shard>>,
    /// `None`: there is one proxy only.
    pub others: Option<Box<dyn OtherProxies>>,
    /// `None`: each shard keeps them itself.
    pub functions: Option<Box<dyn Functions>>,
    /// `None`: what is set at the proxy is at its shards at once, and nothing keeps it but a configuration file.
    pub settings: Option<Box<dyn Settings>>,
}

impl Routes {
    /// `owner` tells the shard of a stripe, by its position in `shards`.
    pub fn new(shards: Vec<Arc<dyn Shard>>, owner: impl Fn(usize) -> u16) -> Routes {
        let owners = Box::new(std::array::from_fn(owner));
        assert!(owners.iter().all(|&shard| usize::from(shard) < shards.len()), "each stripe has an owner");
        Routes { owners, shards, others: None, functions: None, settings: None }
    }

    #[must_use]
    pub fn with_others(mut self, others: Box<dyn OtherProxies>) -> Routes {
        self.others = Some(others);
        self
    }

    #[must_use]
    pub fn with_functions(mut self, functions: Box<dyn Functions>) -> Routes {
        self.functions = Some(functions);
        self
    }

    #[must_use]
    pub fn with_settings(mut self, settings: Box<dyn Settings>) -> Routes {
        self.settings = Some(settings);
        self
    }

    #[inline]
    pub fn owner(&self, hash: KeyHash) -> u16 {
        self.owners[hash.stripe()]
    }

    pub fn owner_of_stripe(&self, stripe: usize) -> u16 {
        self.owners[stripe]
    }

    /// The first stripe behind `stripe` that another shard owns, or [`STRIPES`].
    pub fn end_of_run(&self, stripe: usize) -> usize {
        let owner = self.owners[stripe];
        (stripe..STRIPES).find(|&stripe| self.owners[stripe] != owner).unwrap_or(STRIPES)
    }

    /// Whether commands over several slots are refused, and whatever else would depend on where keys lie. A database with one shard
    /// behaves like one outside of a cluster.
    #[inline]
    pub fn are_several(&self) -> bool {
        self.shards.len() > 1
    }
}

/// How a proxy distributes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The proxy runs it: it is about the connection, users, channels, configuration.
    Here,
    /// The owner of its keys, which all have one slot, runs it. Without keys, any shard.
    Owner,
    /// Each shard gets the keys that it owns. A key has this many arguments: itself, and what belongs to it.
    Split(usize, Merge),
    /// Every shard runs it.
    All(Merge),
    /// The owner of the stripe where the cursor stands runs it.
    Scan,
    /// Every shard runs it, and the proxy: INFO.
    Info,
    /// It changes the functions. Who keeps them does it, else every shard.
    ChangeFunctions,
    /// It shows the functions. The proxy has them if they are kept for all shards, else any shard.
    ShowFunctions,
    /// By what it is asked for.
    Debug,
    Refused,
}

/// How the replies of several shards become one. If one of them is an error, it is the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The first one: they are equal.
    First,
    /// The elements of the arrays, in the order of the keys.
    InOrder,
    /// The elements of the arrays, one array behind the other.
    Chain,
    Sum,
    /// The smallest integer; of arrays of integers, element by element.
    Min,
    /// One of those that are not null.
    Any,
    /// Digests of datasets, which are the XOR of those of their keys.
    Xor,
    /// The first that is no error, else the first error that is not `NOTBUSY`: of all shards, one has what is to be ended.
    OneSucceeds,
    /// Texts of INFO; those that are errors are left out.
    Info,
}

/// How to distribute the command with this name, which is the original one: `get`, `script|load`.
pub fn policy_of(name: &str, has_keys: bool, is_script: bool) -> Policy {
    match name {
        "mget" => Policy::Split(1, Merge::InOrder),
        "mset" => Policy::Split(2, Merge::First),
        "del" | "unlink" | "exists" | "touch" => Policy::Split(1, Merge::Sum),
        "dbsize" => Policy::All(Merge::Sum),
        "keys" => Policy::All(Merge::Chain),
        "flushall" | "flushdb" | "script|flush" | "config|resetstat" => Policy::All(Merge::First),
        "function|load" | "function|delete" | "function|flush" | "function|restore" => Policy::ChangeFunctions,
        "function|list" | "function|dump" => Policy::ShowFunctions,
        "function|stats" => Policy::Owner,
        "script|kill" | "function|kill" => Policy::All(Merge::OneSucceeds),
        "randomkey" => Policy::All(Merge::Any),
        "wait" | "waitaof" => Policy::All(Merge::Min),
        "scan" => Policy::Scan,
        "info" => Policy::Info,
        "swapdb" | "migrate" | "replicaof" | "slaveof" | "failover" | "sync" | "psync" | "replconf" | "save"
        | "bgsave" | "bgrewriteaof" | "client|tracking" | "client|caching" => Policy::Refused,
        "debug" => Policy::Debug,
        _ if has_keys || is_script => Policy::Owner,
        _ => Policy::Here,
    }
}
