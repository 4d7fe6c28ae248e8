//! Owns the command line of `flintkv scenario`. Never runs anything.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use super::scale::Scale;
use super::wire::Endpoint;

/// Runs a published benchmark of a tiered store at any scale and prints the result beside the published one.
#[derive(Parser, Clone, Debug)]
#[command(name = "flintkv scenario", disable_help_flag = true, disable_version_flag = true, max_term_width = 120)]
pub struct Args {
    #[arg(value_enum)]
    pub name: Name,
    /// Key counts, limits and standard deviations × F: 1/150 or 0.01
    #[arg(long, value_name = "F", value_parser = |text: &str| text.parse::<Scale>())]
    pub scale: Scale,

    /// Server address
    #[arg(short = 'h', long, value_name = "ADDR", default_value = "127.0.0.1", help_heading = "Server")]
    pub host: String,
    /// Server port
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 6379, help_heading = "Server")]
    pub port: u16,
    /// [USER:]PASSWORD of the server [default: the environment's REDISCLI_AUTH, which other users do not see]
    #[arg(short = 'a', long, value_name = "CREDENTIALS", help_heading = "Server")]
    pub password: Option<String>,
    /// Start a node with the scenario's limits on a free loopback port, and stop it at the end
    #[arg(long, conflicts_with_all = ["host", "port", "password"], help_heading = "Server")]
    pub start: bool,
    /// With --start: where flash and logs are put [default: a temporary directory that takes O_DIRECT]
    #[arg(long, value_name = "DIR", requires = "start", help_heading = "Server")]
    pub dir: Option<PathBuf>,
    /// With --start: a directive for the node, as NAME=VALUE. Repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "start", help_heading = "Server")]
    pub directives: Vec<String>,
    /// keydb-flash without --start: HOST:PORT of the same server with enough RAM, to compare with
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "start", help_heading = "Server")]
    pub compare: Option<String>,

    /// Seconds of the measured run; for keydb-flash, of each working set [default: 30; keydb-flash 10]
    #[arg(long, value_name = "S", help_heading = "Load")]
    pub test_time: Option<u64>,
    /// Longest dry run in seconds; the dry run ends earlier when the RAM hit ratio is stable [default: 60; keydb-flash
    /// 30]
    #[arg(long, value_name = "S", help_heading = "Load")]
    pub dry_time: Option<u64>,
    /// Change the keys' standard deviation until this share (0-1) of the reads is served from RAM
    #[arg(long, value_name = "R", help_heading = "Load")]
    pub hit_ratio: Option<f64>,
    /// Threads of the load generator; connections do not change [default: as published, at most one per core]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub threads: Option<u32>,
    /// Values of which a compressor removes this share (0-1), instead of memtier's
    #[arg(long, value_name = "R", help_heading = "Load")]
    pub data_compressibility: Option<f64>,

    /// Report with plots, one file for any browser
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Everything in the report as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write JSON lines to standard output: {"phase", "percent", "text"} once a second, at the end {"report",
    /// "measured"}
    #[arg(long, help_heading = "Output")]
    pub json_lines: bool,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help, help_heading = "Output")]
    help: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Redis on Flash: 150 M items of 500 bytes, four primaries
    Rof,
    /// Redis on Flash: 75 M items, two primaries with a replica each
    RofReplicated,
    /// KeyDB FLASH: 200 M keys of 1 KB, working sets from inside RAM to the whole
    KeydbFlash,
    /// GeminiDB Redis API, advertising: 4 billion hashes and strings, compressed
    GeminiRta,
}

impl Args {
    pub fn parse(argv: impl Iterator<Item = OsString>) -> Result<Args> {
        let argv = std::iter::once(OsString::from("flintkv scenario")).chain(argv);
        let args = Args::try_parse_from(argv)?;
        for (name, share) in [("--hit-ratio", args.hit_ratio), ("--data-compressibility", args.data_compressibility)] {
            let good = share.is_none_or(|share| (0.0..=1.0).contains(&share));
            ensure!(good, "{name} must be between 0 and 1");
        }
        let is_rof = matches!(args.name, Name::Rof | Name::RofReplicated);
        ensure!(
            args.hit_ratio.is_none() || is_rof,
            "--hit-ratio works for rof and rof-replicated: only they draw keys from a normal distribution"
        );
        ensure!(args.compare.is_none() || args.name == Name::KeydbFlash, "--compare is for keydb-flash");
        ensure!(args.test_time != Some(0), "--test-time must be at least 1 second");
        ensure!(args.dry_time != Some(0), "--dry-time must be at least 1 second");
        ensure!(args.threads != Some(0), "--threads must be at least 1");
        for directive in &args.directives {
            ensure!(directive.contains('='), "--set {directive}: expected NAME=VALUE");
        }
        Ok(args)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.host.clone(), port: self.port, password: self.credentials() }
    }

    fn credentials(&self) -> Option<String> {
        let given = self.password.clone().or_else(|| std::env::var("REDISCLI_AUTH").ok());
        given.filter(|password| !password.is_empty())
    }

    /// The server to compare with must have the same password.
    pub fn compared(&self) -> Result<Option<Endpoint>> {
        let Some(text) = &self.compare else { return Ok(None) };
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else { anyhow::bail!("--compare {text}: expected HOST:PORT") };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Some(Endpoint { host, port, password: self.credentials() }))
    }

    pub fn test_time(&self) -> Duration {
        let default = if self.name == Name::KeydbFlash { 10 } else { 30 };
        Duration::from_secs(self.test_time.unwrap_or(default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args> {
        Args::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn names_are_those_of_the_documentation() {
        for name in ["rof", "rof-replicated", "keydb-flash", "gemini-rta"] {
            assert!(parse(&format!("{name} --scale 1/150")).is_ok(), "{name}");
        }
        assert!(parse("rof").is_err(), "a scale must be given");
        assert!(parse("other --scale 1").is_err());
    }

    #[test]
    fn contradicting_options_are_refused() {
        for line in [
            "rof --scale 1 --start --port 7000",
            "rof --scale 1 --dir /tmp",
            "rof --scale 1 --hit-ratio 85",
            "gemini-rta --scale 1 --hit-ratio 0.85",
            "rof --scale 1 --compare localhost:7001",
            "keydb-flash --scale 1 --start --compare localhost:7001",
            "rof --scale 1 --test-time 0",
            "rof --scale 1 --start --set hz",
        ] {
            assert!(parse(line).is_err(), "{line} was taken");
        }
    }

    #[test]
    fn a_server_to_compare_with_has_host_and_port() {
        let compared = |text| parse(&format!("keydb-flash --scale 1 --compare {text}")).expect("args").compared();
        let endpoint = compared("[::1]:7001").expect("good").expect("given");
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 7001));
        assert!(compared("7001").is_err());
    }
}
