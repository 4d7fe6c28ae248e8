//! Owns the command lines of `flintkv cluster`. Never runs anything.

use super::remote::Connection;
use crate::timestamp;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

#[derive(Args, Debug, Clone)]
pub struct Cluster {
    #[command(subcommand)]
    pub action: ClusterAction,
}

#[derive(Subcommand, Debug, Clone)]
pub enum ClusterAction {
    /// Begin a cluster on this node, and print the line with which the next node joins
    ///
    /// Run it as the user of the node, with the node's configuration file. It writes the cluster's certificates into state-dir, and
    /// waits for this node's member of etcd, which `flintkv coordinator` runs. If it is interrupted, run it again: it continues.
    Init(Init),
    /// Make this node a member of a cluster
    ///
    /// Run it as the user of the node, with the node's configuration file. `flintkv server` and `flintkv coordinator` of this node may
    /// run already, or be started afterwards.
    Join(Join),
    /// Show the cluster: databases, where their shards are, and what is not as it should be
    Status {
        #[command(flatten)]
        connection: Connection,
    },
    /// List the nodes: zone, role, whether they run, what they have and what is placed on them; and etcd's members
    Nodes {
        #[command(flatten)]
        connection: Connection,
    },
    /// List what operators have asked of the cluster, and how far each node is, and failovers
    Operations {
        #[command(flatten)]
        connection: Connection,
    },
    /// End an operation of the list before its last step; the cluster takes back what is half done
    Abort {
        #[command(flatten)]
        connection: Connection,
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Have all primaries leave a node, before work on it
    ///
    /// Until it is undrained, no primary is named there while another copy can be, and the node gets no new copies. Its replicas stay.
    Drain {
        #[command(flatten)]
        begun: Begun,
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Let a node have primaries again, and give it its part of them
    Undrain {
        #[command(flatten)]
        begun: Begun,
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Move a copy of a shard to another node
    ///
    /// A new copy joins the in-sync set, becomes the primary if the old one is, and then the old one goes.
    Move {
        #[command(flatten)]
        begun: Begun,
        /// Such as orders.1
        #[arg(value_name = "SHARD")]
        shard: String,
        /// The node that gets the copy
        #[arg(long, value_name = "NODE")]
        to: String,
        /// The node that the copy leaves [default: that of the shard's only replica]
        #[arg(long, value_name = "NODE")]
        from: Option<String>,
    },
    /// Make the copies of a node that does not run anew on other nodes
    ///
    /// The cluster does so by itself after a while: see flintkv cluster settings.
    Replace {
        #[command(flatten)]
        begun: Begun,
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Start the processes of nodes anew, one after the other, while clients are served
    ///
    /// Each node is drained, starts the program that is at its path then, has its copies in sync, and takes primaries again.
    Restart {
        #[command(flatten)]
        begun: Begun,
        /// Only these [default: all nodes that run]
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<String>,
        /// Confirms it, instead of typing the cluster's name
        #[arg(long, value_name = "CLUSTER")]
        yes: Option<String>,
    },
    /// Show what is set for the whole cluster, or set it
    Settings {
        #[command(flatten)]
        connection: Connection,
        /// When a node has not run for so long, its copies come anew on other nodes: 10m, 1h, or off
        #[arg(long, value_name = "SPAN", value_parser = span_or_off)]
        replace_after: Option<u64>,
    },
    /// Make a token with which one node can join within an hour
    Token {
        #[command(flatten)]
        connection: Connection,
        /// The node that joins runs no member of etcd, and does not get the key of the cluster's authority
        #[arg(long)]
        no_coordinator: bool,
    },
    /// Show the authority of the cluster's certificates, replace it, or abandon its replacement
    ///
    /// The nodes replace it by themselves, one step after the other: all trust the old authority and a new one, all get certificates of the
    /// new one, all trust the new one alone. A node that does not run holds a step up.
    Authority {
        #[command(flatten)]
        connection: Connection,
        /// Without one: show it
        #[arg(value_enum, value_name = "ACTION")]
        action: Option<AuthorityAction>,
        /// Confirms it, instead of typing the cluster's name
        #[arg(long, value_name = "CLUSTER")]
        yes: Option<String>,
    },
    /// Let a node leave the cluster: the one whose console is at --url. It must have no shards
    Leave {
        #[command(flatten)]
        connection: Connection,
        /// Confirms it, instead of typing the node's name
        #[arg(long, value_name = "NODE")]
        yes: Option<String>,
    },
    /// Remove a node that does not run and will not come back
    Forget {
        #[command(flatten)]
        connection: Connection,
        #[arg(value_name = "NODE")]
        node: String,
        /// Confirms it, instead of typing the node's name
        #[arg(long, value_name = "NODE")]
        yes: Option<String>,
        /// Also if the node has primaries: their shards go on with the copies of other nodes that have most, or begin empty
        #[arg(long)]
        lose_data: bool,
        /// Only say what would be lost, and where the shards would go on
        #[arg(long)]
        dry_run: bool,
    },
}

/// How an operation that the cluster carries out is begun.
#[derive(Args, Debug, Clone)]
pub struct Begun {
    #[command(flatten)]
    pub connection: Connection,
    /// Only show the steps
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until the last step is done
    #[arg(long)]
    pub no_wait: bool,
}

/// Seconds; 0 for off.
fn span_or_off(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        text => match timestamp::parse_span(text)? / 1_000 {
            0 => Err("at least one second is expected, or off".to_owned()),
            seconds => Ok(seconds),
        },
    }
}

/// Which node on this machine, by its configuration.
#[derive(Args, Debug, Clone)]
pub struct Local {
    /// The node's configuration file [default: the defaults of flintkv server, in this directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub conf: Option<PathBuf>,
    /// Where other nodes reach this one: an IP address or a host name
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,
    /// The node's name in the cluster [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The zone, whose nodes may fail together: a rack, a data centre [default: default]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Directives as for flintkv server, which win over the file: -- --state-dir DIR --peer-port 8390
    #[arg(last = true, value_name = "--DIRECTIVE VALUE")]
    pub directives: Vec<String>,
}

#[derive(Args, Debug, Clone)]
pub struct Init {
    /// The name of the cluster
    #[arg(value_name = "NAME")]
    pub cluster: String,
    #[command(flatten)]
    pub local: Local,
    /// Use an etcd that is there already: the URLs of its members, with commas between them
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = "An etcd of your own")]
    pub etcd: Vec<String>,
    /// The authority of its certificates, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd", value_hint = ValueHint::FilePath, help_heading = "An etcd of your own")]
    pub etcd_ca: Option<PathBuf>,
    /// A client certificate for it, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key", value_hint = ValueHint::FilePath, help_heading = "An etcd of your own")]
    pub etcd_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_cert", value_hint = ValueHint::FilePath, help_heading = "An etcd of your own")]
    pub etcd_key: Option<PathBuf>,
    /// A user of it; the password comes from FLINTKV_ETCD_PASSWORD, or is asked for
    #[arg(long, value_name = "NAME", requires = "etcd", help_heading = "An etcd of your own")]
    pub etcd_user: Option<String>,
}

#[derive(Args, Debug, Clone)]
pub struct Join {
    /// A member of the cluster; the port is 8380 if none is given
    #[arg(value_name = "HOST[:PORT]")]
    pub at: String,
    /// What `flintkv cluster init` or `flintkv cluster token` printed; better in the environment, where other users do not see it
    #[arg(long, value_name = "TOKEN", env = "FLINTKV_JOIN_TOKEN", hide_env_values = true)]
    pub token: String,
    #[command(flatten)]
    pub local: Local,
    /// data keeps shards and serves clients; quorum only votes
    #[arg(long, value_enum, default_value_t = Role::Data)]
    pub role: Role,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityAction {
    /// Make a new one, and give every node certificates of it
    Replace,
    /// Go back to the one that is being replaced
    Abandon,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Data,
    Quorum,
}
