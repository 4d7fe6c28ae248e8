//! Owns the programs that etcd's packages bring: where they are, and their versions. Never knows a cluster.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The first version that has learners.
const OLDEST: Version = Version { major: 3, minor: 4 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// etcd itself.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub version: Version,
    /// As it says it, such as `3.4.23`.
    pub full_version: String,
}

/// Each says what to do.
#[derive(Debug)]
pub enum ProgramError {
    Missing { wanted: String },
    NoEtcd { path: PathBuf, why: String },
    TooOld { path: PathBuf, version: String },
    NoTool(String),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Missing { wanted } => write!(
                f,
                "the directive etcd-binary names the program {wanted:?}, which is not there: apt-get install etcd-server, or \
                 give the path of etcd {OLDEST} or later to etcd-binary"
            ),
            ProgramError::NoEtcd { path, why } => write!(
                f,
                "the directive etcd-binary names {}, which is no etcd ({why}): apt-get install etcd-server, or give the path \
                 of etcd {OLDEST} or later to etcd-binary",
                path.display()
            ),
            ProgramError::TooOld { path, version } => write!(
                f,
                "{} is etcd {version}, and {OLDEST} or later is needed: give the path of a newer one to etcd-binary",
                path.display()
            ),
            ProgramError::NoTool(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ProgramError {}

impl Program {
    /// `wanted`: a path, or a name without a slash that is looked up in PATH.
    pub fn find(wanted: &str) -> Result<Program, ProgramError> {
        let path = look_up(wanted).ok_or_else(|| ProgramError::Missing { wanted: wanted.to_owned() })?;
        let no_etcd = |why| ProgramError::NoEtcd { path: path.clone(), why };
        let output = ask(&path, "--version").map_err(|error| no_etcd(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let full_version = after(&said, "etcd Version: ").ok_or_else(|| {
            let line = said.lines().next().unwrap_or("nothing").to_owned();
            no_etcd(format!("etcd --version says {line:?}"))
        })?;
        match parse(&full_version) {
            None => Err(no_etcd(format!("its version is {full_version:?}"))),
            Some(version) if version < OLDEST => Err(ProgramError::TooOld { path, version: full_version }),
            Some(version) => Ok(Program { path, version, full_version }),
        }
    }

    /// etcd's program that makes a data directory of a snapshot: `etcdutl`, or up to 3.5 `etcdctl`. It is looked for beside etcd and
    /// in PATH. Only one of etcd's own version is taken: a newer one may write what this etcd does not read.
    pub fn restore_tool(&self) -> Result<PathBuf, ProgramError> {
        let beside = |name: &str| Some(self.path.parent()?.join(name)).filter(|path| path.is_file());
        let mut seen = Vec::new();
        for (name, argument) in [("etcdutl", "version"), ("etcdctl", "version")] {
            for path in [beside(name), look_up(name)].into_iter().flatten() {
                let output = ask(&path, argument).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                let version = output.ok().and_then(|said| after(&said, &format!("{name} version: ")));
                if version.as_deref().and_then(parse) == Some(self.version) && can_restore(name, self.version) {
                    return Ok(path);
                }
                seen.push(format!("{} is {}", path.display(), version.as_deref().unwrap_or("of no known version")));
            }
        }
        seen.dedup();
        let found = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
        let version = self.version;
        let name = if can_restore("etcdctl", version) { "etcdctl or etcdutl" } else { "etcdutl" };
        Err(ProgramError::NoTool(format!(
            "restoring needs {name} {version}, of etcd's own version, beside {} or in PATH{found}: apt-get install etcd-client, \
             because Debian's etcd-server comes without it, or copy it from etcd's release",
            self.path.display()
        )))
    }
}

/// From 3.6 on, etcdctl only talks to servers.
fn can_restore(name: &str, version: Version) -> bool {
    name == "etcdutl" || version < Version { major: 3, minor: 6 }
}

fn look_up(wanted: &str) -> Option<PathBuf> {
    if wanted.contains('/') {
        return Some(PathBuf::from(wanted)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(wanted)).find(|path| path.is_file())
}

/// A command that sees nothing of our environment but PATH: etcd and its tools read each option from a variable too, and
/// Debian's /etc/default/etcd is full of them.
pub fn bare_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

fn ask(path: &Path, argument: &str) -> std::io::Result<Output> {
    // etcdctl 3.4 has an older API too.
    bare_command(path).arg(argument).env("ETCDCTL_API", "3").output()
}

fn after(said: &str, label: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix(label)).map(|rest| rest.trim().to_owned())
}

fn parse(version: &str) -> Option<Version> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some(Version { major: numbers.next()??, minor: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let [old, new] = ["3.4.23", "3.10.0-rc.1"].map(|text| parse(text).unwrap());
        assert!(old < new);
        assert_eq!((parse("3"), parse("main"), new.to_string()), (None, None, "3.10".to_owned()));
    }
}
