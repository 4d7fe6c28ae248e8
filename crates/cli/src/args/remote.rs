//! Owns the command lines of commands that use a node's HTTP API. Never runs anything.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::fields::Fields;
use crate::timestamp;

/// Which node, as which user, and how to print. Valid before and after the action.
#[derive(Args, Debug, Clone)]
pub struct Connection {
    /// Address of the node's console
    #[arg(long, global = true, value_name = "URL", env = "FLINTKV_URL", default_value = "http://127.0.0.1:8379", value_hint = ValueHint::Url, help_heading = "Connection")]
    pub url: String,
    /// API token; better in the environment, where other users do not see it
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "FLINTKV_TOKEN",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token: Option<String>,
    /// Console user, preferred over a token; the password comes from FLINTKV_PASSWORD, or is asked for
    #[arg(long, global = true, value_name = "NAME", env = "FLINTKV_USER", help_heading = "Connection")]
    pub user: Option<String>,
    /// Certificates to trust, in PEM, instead of the public authorities
    #[arg(long, global = true, value_name = "FILE", env = "FLINTKV_CACERT", value_hint = ValueHint::FilePath, help_heading = "Connection")]
    pub cacert: Option<PathBuf>,
    /// Do not check the certificate, and allow http to another machine: anybody in between can read and change
    /// everything
    #[arg(long, global = true, help_heading = "Connection")]
    pub insecure: bool,
    /// Print JSON, as the API returns it
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Database {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub action: DatabaseAction,
}

#[derive(Subcommand, Debug, Clone)]
pub enum DatabaseAction {
    /// Create a database
    Create(Create),
    /// List all databases
    List,
    /// Show a database: definition, endpoints, figures
    Show {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the shards of a database of a cluster: node, keys, RAM, flash, operations, hit ratio
    Shards {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Change a database's limits, policy, compression, password, backups or persistence while it serves clients
    #[command(visible_alias = "update")]
    Resize(Resize),
    /// Make a backup of a database, which goes on serving
    ///
    /// A backup is a directory below the node's backup-path with one file, dump.rdb, and its description, backup.json. The dump
    /// is read back before the backup counts. `flintkv database create NAME --from BACKUP` makes a database of it.
    Backup(Backup),
    /// List backups, newest first: of a database, or all
    Backups {
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Show whom a database follows, and who follows it
    Replication {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Make a database the replica of another server: a FlintKV, a Redis or a Valkey
    ///
    /// The database's own keys are lost when the primary's dataset arrives. It refuses writes until it is promoted.
    Replicate(Replicate),
    /// Make a replica a primary
    ///
    /// It applies what it has received before it takes writes. A primary that is still alive goes on taking writes, which the
    /// promoted database does not get: `flintkv database switchover` loses none.
    Promote {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Hand a primary's role to one of its replicas without losing a write, and follow it
    ///
    /// Of a cluster's database: other copies of its shards, or of one of them, become the primaries.
    Switchover {
        #[arg(value_name = "NAME")]
        name: String,
        /// The replica: HOST:PORT, in a cluster the name of its node [default: the one that has most, in a cluster any that is in sync]
        #[arg(long, value_name = "REPLICA")]
        to: Option<String>,
        /// How long the replica may take; in a cluster, which has its own limits, this is not used
        #[arg(long, value_name = "MS", default_value_t = 10_000)]
        timeout: u64,
        /// Only this shard of a cluster's database
        #[arg(long, value_name = "N")]
        shard: Option<u16>,
        /// Of a cluster's database: only show the steps
        #[arg(long)]
        dry_run: bool,
        /// Of a cluster's database: do not wait until the last step is done
        #[arg(long)]
        no_wait: bool,
    },
    /// Have shards of a cluster's database that nobody can serve go on with what is left
    ///
    /// For shards whose copies may all lack acknowledged writes, for instance after all machines have lost power: the cluster itself names
    /// none of these copies. The plan says what each copy has, which one has most, and what may be lost; then it is confirmed.
    Recover {
        #[arg(value_name = "NAME")]
        name: String,
        /// Only this shard [default: all that nobody can serve]
        #[arg(long, value_name = "N")]
        shard: Option<u16>,
        /// Go on without the copies that do not answer: what only they have is lost
        #[arg(long)]
        lose_data: bool,
        /// Confirms it, instead of typing the name
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
        /// Only show the plan
        #[arg(long)]
        dry_run: bool,
    },
    /// Refuse every command until the database is resumed
    Pause {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Serve clients again
    Resume {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Delete every key
    Flush {
        #[arg(value_name = "NAME")]
        name: String,
        /// Confirms the flush, instead of typing the name
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Delete a database and every key in it
    Delete {
        #[arg(value_name = "NAME")]
        name: String,
        /// Confirms the deletion, instead of typing the name
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
        /// Make a backup first, and delete the database only if that succeeds
        #[arg(long)]
        backup: bool,
        /// Do not wait until the database is gone
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Args, Debug, Clone)]
pub struct Create {
    /// Small letters, digits and dashes, at most 40
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub fields: Fields<true>,
    /// Only check whether the database could be created
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Resize {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub fields: Fields<false>,
    /// Do not wait until values have moved
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Replicate {
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The primary
    #[arg(long, value_name = "HOST:PORT")]
    pub of: String,
    /// The user on the primary [default: its default user]
    #[arg(long, value_name = "NAME")]
    pub primary_user: Option<String>,
    /// The password on the primary; better in the environment
    #[arg(long, value_name = "PASSWORD", env = "FLINTKV_PRIMARY_PASSWORD", hide_env_values = true)]
    pub primary_password: Option<String>,
    /// The primary's port speaks TLS
    #[arg(long)]
    pub tls: bool,
    /// Confirms that the database's keys may be lost, instead of typing its name
    #[arg(long, value_name = "NAME")]
    pub yes: Option<String>,
}

#[derive(Args, Debug, Clone)]
pub struct Backup {
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A new directory below the node's backup-path [default: the database's name and the time]
    #[arg(long, value_name = "DIR")]
    pub to: Option<String>,
    /// The version of the dump: 10 for Redis 7.0, 11 for 7.2, 12 for 7.4, which alone has expiries of fields [default: 12]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=12))]
    pub rdb_version: Option<u32>,
    /// Do not wait until the backup is made
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Node {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub action: NodeAction,
}

#[derive(Subcommand, Debug, Clone)]
pub enum NodeAction {
    /// Show the node: version, workers, and the RAM and flash reserved for each database
    Show,
}

#[derive(Args, Debug, Clone)]
pub struct User {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub action: UserAction,
}

#[derive(Subcommand, Debug, Clone)]
pub enum UserAction {
    /// List the console's users
    List,
    /// Create a user; the password is asked for, or read from standard input
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// What the user may do
        #[arg(long, value_enum)]
        role: Role,
    },
    /// Change a password; it is asked for, or read from standard input
    Passwd {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Delete a user
    Delete {
        #[arg(value_name = "NAME")]
        name: String,
        /// Confirms the deletion, instead of typing the name
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
}

#[derive(Args, Debug, Clone)]
pub struct Token {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub action: TokenAction,
}

#[derive(Subcommand, Debug, Clone)]
pub enum TokenAction {
    /// List the API tokens
    List,
    /// Create a token; it is printed only once
    Create {
        /// What the token is for
        #[arg(value_name = "NAME")]
        name: String,
        /// What the token may do
        #[arg(long, value_enum)]
        role: Role,
        /// When the token expires, from now: 30d, 12h [default: never]
        #[arg(long, value_name = "SPAN", value_parser = timestamp::parse_span)]
        expires: Option<u64>,
    },
    /// Delete a token
    Delete {
        /// The id in the list
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// May read
    Viewer,
    /// May also manage databases, keys, clients, benchmarks and alerts
    Operator,
    /// May also manage users, tokens, configuration and the audit log
    Admin,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct Top {
    #[command(flatten)]
    pub connection: Connection,
    /// Seconds between two updates
    #[arg(short = 'i', long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one frame as text; with --json, one update as JSON
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "from 0.1 to 3600 seconds".to_owned())
}
