//! Owns every command line of the binary in one tree, for parsing, help, completions and manual pages. `server`,
//! `bench` and `scenario` parse their own arguments; the tree only lists their options. Never runs anything.

mod cluster;
mod fields;
mod remote;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use config::{Change, Effect, Kind, ROWS, Row};

use crate::size;
pub use cluster::{AuthorityAction, Begun, Cluster, ClusterAction, Init, Join, Local, Role};
pub use fields::{Fields, RamLimit, is_option};
pub use remote::{
    Backup, Connection, Create, Database, DatabaseAction, Node, Replicate, Resize, Token, TokenAction, Top, User,
    UserAction,
};

/// A Redis-compatible database that keeps hot values in RAM and all other values on flash
#[derive(Parser, Debug)]
#[command(name = "flintkv", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create, list, show, resize, back up, pause, resume, flush and delete databases of a running node
    Database(Box<Database>),
    /// Make a cluster of several nodes, whose databases have shards on all of them
    Cluster(Box<Cluster>),
    /// Show a running node
    Node(Node),
    /// Administer the console's users
    User(User),
    /// Administer API tokens
    Token(Token),
    /// Watch a node live: throughput, latency, hit ratio, RAM and flash of every database
    Top(Top),
    /// Measure flash and recommend settings; format and mount devices
    ///
    /// A directory is measured with a temporary file, which is deleted even if the measurement is interrupted. A device
    /// is shown first: what it is, what it holds, who uses it. A device in use is refused. After a confirmation by
    /// name, the device is formatted, mounted and measured.
    PrepareFlash(PrepareFlash),
    /// Show, check and export the journal that keeps a database over restarts
    ///
    /// DIR is the directory flintkv.journal in the node's dir, or a copy of it. Nothing in it is changed, and a node may
    /// be using it; then the last records may be missing.
    Journal(Journal),
    /// Check a damaged directory flintkv.journal, and write what can be saved into a new directory
    ///
    /// Without --to, the command only reports what can be saved, and writes nothing. With --cut, a damaged journal ends at its first
    /// bad frame: everything after it is lost, and the command says how much that is. If a dump is damaged, the keys before the damage are
    /// written as dump.rdb. If an index is damaged, --lose-keys leaves out the keys in the damaged parts, and --from-segments finds
    /// these keys in the flash files, even if the whole index is lost. The directory itself and the flash files are never changed. No
    /// node may be using them.
    Repair(Repair),
    /// Move the dataset of a running Redis or Valkey into a database, while clients keep using it
    ///
    /// The command first measures the dataset, and reports how much RAM and flash it will need here. Then the target follows the source
    /// as a replica. If the source does not allow that, its keys are copied, and keys that change meanwhile are copied again. When both
    /// are in sync, the values of random keys are compared. The switch happens when you press Enter, or immediately with --switch:
    /// writes to the source are paused for some milliseconds, the target receives the last changes, and then stops following the source.
    /// Ctrl-C before the switch leaves the source as it was. Functions are moved too, and ACL users with --users. The command lists
    /// what it does not move.
    Migrate(Migrate),
    /// Calculate how much RAM and flash data need in FlintKV, and how many of their reads RAM answers
    ///
    /// Describe the data by numbers, or have a running Redis measured with --from, which only reads from it. Numbers that you give
    /// take precedence over measured ones. The result is a limit for RAM and one for flash, with a table of alternatives.
    /// docs/operations.md has the formulas.
    Plan(Plan),
    /// Print the completions of a shell
    ///
    /// bash:  flintkv completions bash > /usr/share/bash-completion/completions/flintkv
    /// zsh:   flintkv completions zsh > /usr/local/share/zsh/site-functions/_flintkv
    /// fish:  flintkv completions fish > ~/.config/fish/completions/flintkv.fish
    #[command(verbatim_doc_comment)]
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write all of them into a directory
    ///
    /// With DIR, writes flintkv.1, a page for every subcommand and flintkv.conf.5.
    Man {
        /// Where to write every page; without DIR, flintkv(1) is printed: flintkv man | man -l -
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[derive(Args, Debug, Clone, Default)]
pub struct PrepareFlash {
    /// Directories on flash, or block devices to format
    #[arg(required = true, value_name = "DEVICE|DIR", value_hint = ValueHint::AnyPath)]
    pub targets: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only show what each target is and holds; measure and change nothing
    #[arg(long)]
    pub check: bool,

    /// Approximate seconds for measuring one directory
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Measurement")]
    pub seconds: u32,
    /// How much to write for the measurement, at most half of the free space
    #[arg(long, value_name = "SIZE", default_value = "1gb", value_parser = size::parse, help_heading = "Measurement")]
    pub size: u64,

    /// Confirms the formatting of this device, instead of typing its name; once for every device
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath, help_heading = "Devices")]
    pub yes: Vec<PathBuf>,
    /// File system [default: xfs if mkfs.xfs is installed, otherwise ext4]
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(["xfs", "ext4"]), help_heading = "Devices")]
    pub filesystem: Option<String>,
    /// Where to mount, once for every device, in the same order [default: /var/lib/flintkv/flash-N]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Devices")]
    pub mount: Vec<PathBuf>,
    /// Who may write there [default: the user flintkv, if it exists]
    #[arg(long, value_name = "USER", value_hint = ValueHint::Username, help_heading = "Devices")]
    pub owner: Option<String>,
    /// Append the lines to this file, and keep a copy of it [without FILE: /etc/fstab]
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/etc/fstab",
        value_hint = ValueHint::FilePath,
        help_heading = "Devices"
    )]
    pub fstab: Option<PathBuf>,
}

#[derive(Args, Debug, Clone)]
pub struct Migrate {
    /// Where the dataset is: redis://[[user:]password@]host[:port][/db], or rediss:// with TLS
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// A database of the node at --url, or an address like --from
    #[arg(long, value_name = "DATABASE|URL", required_unless_present = "rehearse")]
    pub to: Option<String>,
    /// The source's password; better in the environment than in the address
    #[arg(long, value_name = "PASSWORD", env = "FLINTKV_FROM_PASSWORD", hide_env_values = true)]
    pub from_password: Option<String>,
    /// The target's password
    #[arg(long, value_name = "PASSWORD", env = "FLINTKV_TO_PASSWORD", hide_env_values = true)]
    pub to_password: Option<String>,
    /// Only measure: what the dataset will take here, and how long the move will take
    #[arg(long)]
    pub rehearse: bool,
    /// How: follow (replication) or copy (SCAN and DUMP) [default: follow if the source allows it]
    #[arg(long, value_enum)]
    pub method: Option<Method>,
    /// Switch as soon as both are in sync, without asking
    #[arg(long)]
    pub switch: bool,
    /// Make the source's ACL users at the target too, all but 'default'
    #[arg(long)]
    pub users: bool,
    /// After the switch, let the old server follow the new one, so that there is a way back
    #[arg(long)]
    pub way_back: bool,
    /// The target's keys may be lost
    #[arg(long)]
    pub replace: bool,
    /// Begin although the target seems too small
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Args, Debug, Clone)]
pub struct Plan {
    /// Measure a running Redis, which is only read: redis://[[user:]password@]host[:port], or rediss:// with TLS
    #[arg(long, value_name = "URL", help_heading = "Sources")]
    pub from: Option<String>,
    /// The measured server's password; better in the environment than in the address
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "FLINTKV_FROM_PASSWORD",
        hide_env_values = true,
        help_heading = "Sources"
    )]
    pub from_password: Option<String>,
    /// Certificates to trust, in PEM, instead of the public authorities
    #[arg(long, value_name = "FILE", env = "FLINTKV_CACERT", value_hint = ValueHint::FilePath, help_heading = "Sources")]
    pub cacert: Option<PathBuf>,
    /// Watch the commands of the server for so many seconds, by MONITOR, which costs it some of its speed
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600), requires = "from", help_heading = "Sources")]
    pub monitor: Option<u32>,
    /// Read a dump of Redis: dump.rdb
    #[arg(long, value_name = "FILE", conflicts_with = "from", value_hint = ValueHint::FilePath, help_heading = "Sources")]
    pub rdb: Option<PathBuf>,
    /// Read a capture of MONITOR, as redis-cli MONITOR writes it and memtier_benchmark --monitor-input takes it
    #[arg(long, value_name = "FILE", conflicts_with = "monitor", value_hint = ValueHint::FilePath, help_heading = "Sources")]
    pub trace: Option<PathBuf>,
    /// The flash: a directory, which is measured for 10 s, or a file with what prepare-flash --json has printed; once for each device
    #[arg(long, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath, help_heading = "Sources")]
    pub flash: Vec<PathBuf>,
    /// How many keys: 75000000, 75m
    #[arg(long, value_name = "N", value_parser = size::number, help_heading = "Data")]
    pub keys: Option<u64>,
    /// Bytes of a key [default: 16]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Data")]
    pub key_size: Option<u64>,
    /// Bytes of a value, on average
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Data")]
    pub value_size: Option<u64>,
    /// Compressed size on flash divided by the original size, such as 0.5 [default: 1]
    #[arg(long, value_name = "RATIO", help_heading = "Data")]
    pub compression: Option<f64>,
    /// Reads a second
    #[arg(long, value_name = "N", value_parser = size::number, help_heading = "Load")]
    pub reads: Option<u64>,
    /// Writes a second
    #[arg(long, value_name = "N", value_parser = size::number, help_heading = "Load")]
    pub writes: Option<u64>,
    /// How unevenly keys are used, the exponent of Zipf's law: 0 all alike, about 1 as in many caches [default: as measured, or 0.8]
    #[arg(long, value_name = "S", conflicts_with_all = ["monitor", "trace"], help_heading = "Load")]
    pub skew: Option<f64>,
    /// Share of the reads that RAM shall answer: 85% or 0.85
    #[arg(long, value_name = "SHARE", value_parser = size::share, default_value = "85%", conflicts_with = "ram_share", help_heading = "Aim")]
    pub hit_ratio: f64,
    /// Share of the values that shall be in RAM, instead of a hit ratio
    #[arg(long, value_name = "SHARE", value_parser = size::share, help_heading = "Aim")]
    pub ram_share: Option<f64>,
    /// Workers of the node (io-threads), one per core
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Aim")]
    pub workers: u64,
    /// Without a journal: true: the data need not survive restarts
    #[arg(long, help_heading = "Aim")]
    pub no_journal: bool,
    /// Price price of a gigabyte of RAM, in any currency; with --flash-price
    #[arg(long, value_name = "PRICE", requires = "flash_price", help_heading = "Prices")]
    pub ram_price: Option<f64>,
    /// Price of a gigabyte of flash
    #[arg(long, value_name = "PRICE", requires = "ram_price", help_heading = "Prices")]
    pub flash_price: Option<f64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Follow,
    Copy,
}

#[derive(Args, Debug, Clone)]
pub struct Journal {
    #[command(subcommand)]
    pub action: JournalAction,
}

#[derive(Args, Debug, Clone)]
pub struct Repair {
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The directory to write; it must not be there yet
    #[arg(long, value_name = "NEW", value_hint = ValueHint::DirPath)]
    pub to: Option<PathBuf>,
    /// Discard the journal from its first bad frame on; with --lose-keys, discard all of it
    #[arg(long, requires = "to")]
    pub cut: bool,
    /// Leave out the keys in the damaged parts of the index; with --flash-path, also the keys whose values cannot be read
    #[arg(long, requires = "to")]
    pub lose_keys: bool,
    /// If the index is damaged or lost, find its keys in the flash files
    #[arg(long, requires = "to", requires = "flash_path", conflicts_with = "lose_keys")]
    pub from_segments: bool,
    /// The flash files of the dataset, or their directories: all of them, in the order of the node's flash-path. The values in them are
    /// read too. No node may be using them
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub flash_path: Vec<PathBuf>,
}

#[derive(Subcommand, Debug, Clone)]
pub enum JournalAction {
    /// Print the manifest, the files and the records
    Show {
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Only records from this position on
        #[arg(long, value_name = "POSITION", default_value_t = 0)]
        from: u64,
        /// At most so many records
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
    },
    /// Read the manifest, the checkpoint and every record, and say whether they are whole
    Check {
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Also read the values in these flash files of the dataset, or in these directories: all of them, in the order of the node's
        /// flash-path. No node may be using them
        #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
        flash_path: Vec<PathBuf>,
    },
    /// Write the dataset as an append-only file that Redis 7.0 loads
    Export {
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// The file to write; it must not be there yet
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        to: PathBuf,
        /// Also write when fields of hashes expire (HPEXPIREAT), which needs Redis 7.4
        #[arg(long)]
        with_field_expiry: bool,
        /// If values are on flash: a directory with a flash file of the dataset, or the file: all of them, in the order of the node's
        /// flash-path. No node may be using them
        #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
        flash_path: Vec<PathBuf>,
    },
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
}

/// Every command line of the binary.
pub fn tree() -> clap::Command {
    let ours = Cli::command();
    let order = ["server", "bench", "scenario", "licences"];
    [server(), bench::cli::command(), bench::scenario::command(), licences()]
        .into_iter()
        .zip(order)
        .fold(ours, |tree, (command, name)| tree.subcommand(command.name(name)))
}

/// `flintkv licences`; the binary has its text.
fn licences() -> clap::Command {
    clap::Command::new("licences").about("Print the licences of all code in the binary").disable_version_flag(true)
}

/// `flintkv server`: a file, and every directive as an option.
fn server() -> clap::Command {
    let file = Arg::new("CONF")
        .value_hint(ValueHint::FilePath)
        .help("A file in redis.conf's syntax; - is standard input. Directives on the command line override it");
    clap::Command::new("server")
        .about("Run a node")
        .disable_version_flag(true)
        .arg(file)
        .args(ROWS.iter().filter(|row| row.effect == Effect::Used).map(directive))
}

fn directive(row: &'static Row) -> Arg {
    let arg = Arg::new(row.name)
        .long(row.name)
        .value_name("VALUE")
        .help(first_sentence(row.about))
        .long_help(row.about)
        .help_heading(if row.change == Change::Live {
            "Directives, which CONFIG SET changes too"
        } else {
            "Directives"
        });
    let arg = if row.alias.is_empty() { arg } else { arg.alias(row.alias) };
    match row.kind {
        Kind::Bool => arg.value_parser(["yes", "no"]),
        Kind::Choice(words) => arg.value_parser(PossibleValuesParser::new(words)),
        Kind::Path | Kind::FileName => arg.value_hint(ValueHint::FilePath),
        Kind::Directory | Kind::Paths => arg.value_hint(ValueHint::DirPath),
        kind if kind.takes_words() || kind.takes_lines() => arg.num_args(1..),
        _ => arg,
    }
}

fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").or_else(|| text.find("; ")).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_sound_and_knows_every_subcommand() {
        tree().debug_assert();
        let names: Vec<String> = tree().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for name in [
            "server",
            "bench",
            "scenario",
            "database",
            "node",
            "user",
            "token",
            "top",
            "prepare-flash",
            "journal",
            "repair",
            "migrate",
            "plan",
            "completions",
            "man",
            "licences",
        ] {
            assert!(names.iter().any(|known| known == name), "{name} is missing in {names:?}");
        }
    }

    #[test]
    fn every_option_says_what_it_is_for() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} has no description");
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                assert!(arg.get_help().is_some(), "{path}: {} says nothing", arg.get_id());
            }
            command.get_subcommands().for_each(|command| look(command, &path));
        }
        look(&tree(), "");
    }

    #[test]
    fn the_server_takes_every_directive_that_has_an_effect() {
        let server = server();
        for row in ROWS {
            let known = server.get_arguments().any(|arg| arg.get_id() == row.name);
            assert_eq!(known, row.effect == Effect::Used, "{}", row.name);
        }
    }

    #[test]
    fn contradictory_and_malformed_lines_are_refused() {
        for line in [
            "prepare-flash",
            "prepare-flash /x --seconds 0",
            "prepare-flash /x --size 10xb",
            "prepare-flash /x --filesystem btrfs",
            "journal show",
            "journal check",
            "journal show",
            "journal export /x",
            "repair",
            "repair /x --cut",
            "repair /x --to /y --from-segments",
            "repair /x --from-segments --flash-path /f",
            "repair /x --to /y --from-segments --flash-path /f --lose-keys",
            "migrate",
            "migrate --from redis://h --method random --to x",
            "plan --keys many --value-size 500",
            "plan --keys 1mb --value-size 500",
            "plan --keys 1m --value-size 500 --hit-ratio 85",
            "plan --keys 1m --value-size 500 --hit-ratio 85% --ram-share 10%",
            "plan --keys 1m --value-size 500 --ram-price 3",
            "plan --keys 1m --value-size 500 --monitor 5",
            "plan --from redis://h --monitor 5 --skew 1",
            "plan --from redis://h --rdb dump.rdb",
            "plan --from redis://h --monitor 5 --trace file",
            "completions tcsh",
            "database",
            "database create ads",
            "database create ads --memory-limit 10xb",
            "database create ads --memory-limit 10gb --ram-limit 110%",
            "database resize ads --password=x --no-password",
            "database resize ads --policy random",
            "database create ads --memory-limit 1gb --at 10m",
            "database create ads --memory-limit 1gb --from a --at yesterday",
            "database backup ads --rdb-version 9",
            "user create bob --role root",
            "token create ci --role viewer --expires 5",
            "top --interval 0",
        ] {
            let argv = ["flintkv"].into_iter().chain(line.split(' '));
            let error = Cli::try_parse_from(argv).err().unwrap_or_else(|| panic!("{line} was taken"));
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
