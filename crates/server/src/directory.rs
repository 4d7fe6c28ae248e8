//! Owns the way from a command's name to its row: renames applied, flags folded into bits, a dense number
//! for the statistics. Never knows what a command does or who may run it.

use commands::{Args, Flag, Row, Values};

/// What `admit` asks of a command, as bits.
pub mod bit {
    pub const WRITE: u32 = 1 << 0;
    /// Refused when neither RAM nor flash has room.
    pub const DENYOOM: u32 = 1 << 1;
    /// Allowed before authentication.
    pub const NO_AUTH: u32 = 1 << 2;
    /// Reads the values of its keys: worth prefetching.
    pub const READS: u32 = 1 << 3;
    pub const FAST: u32 = 1 << 4;
    pub const SKIP_SLOWLOG: u32 = 1 << 5;
    /// Runs while clients are paused: CLIENT itself, or nobody could unpause.
    pub const UNPAUSABLE: u32 = 1 << 6;
    pub const CONTAINER: u32 = 1 << 7;
    /// Works on no key it names: on the whole dataset, or on none of it.
    pub const KEYLESS: u32 = 1 << 8;
}

/// A command as the server sees it.
pub struct Command {
    pub row: &'static Row,
    /// Dense, from 0: the place of its statistics.
    pub id: usize,
    /// As INFO commandstats prints it: `get`, `client|list`.
    pub name: &'static str,
    pub bits: u32,
    pub subcommands: Vec<Command>,
}

impl Command {
    fn new(row: &'static Row, container: Option<&'static str>, id: &mut usize) -> Command {
        let has = |flag: Flag| row.flags.contains(&flag);
        let name: &'static str = match container {
            None => row.name,
            // Once per subcommand and process: the table lives as long as the server.
            Some(container) => String::leak(format!("{container}|{}", row.name)),
        };
        let mut bits = 0;
        for (on, bit) in [
            (has(Flag::Write), bit::WRITE),
            (has(Flag::Denyoom), bit::DENYOOM),
            (has(Flag::NoAuth), bit::NO_AUTH),
            (row.values == Values::Read, bit::READS),
            (has(Flag::Fast), bit::FAST),
            (has(Flag::SkipSlowlog), bit::SKIP_SLOWLOG),
            (row.name == "client" || container == Some("client") || row.name == "shutdown", bit::UNPAUSABLE),
            (!row.subcommands.is_empty(), bit::CONTAINER),
            (matches!(row.keys, commands::Keys::None), bit::KEYLESS),
        ] {
            bits |= if on { bit } else { 0 };
        }
        let own_id = *id;
        *id += 1;
        let subcommands = row.subcommands.iter().map(|sub| Command::new(sub, Some(row.name), id)).collect();
        Command { row, id: own_id, name, bits, subcommands }
    }

    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.bits & bits != 0
    }

    /// Whether `count` arguments (with the command's own name) are what it takes.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let arity = self.row.arity;
        if arity >= 0 { count == arity as usize } else { count >= -i32::from(arity) as usize }
    }

    /// The subcommand that the second argument names.
    pub fn subcommand(&self, args: &Args<'_>) -> Option<&Command> {
        let name = args.get(1)?;
        self.subcommands.iter().find(|sub| sub.row.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Twice the commands of Redis 7.2, rounded up: most names are found at the first look.
const BUCKETS: usize = 1024;
const EMPTY: u16 = u16::MAX;

pub struct Directory {
    commands: Vec<(Box<[u8]>, Command)>,
    /// Open addressing over `commands`.
    buckets: Box<[u16; BUCKETS]>,
    /// Commands and subcommands.
    pub count: usize,
}

impl Directory {
    /// `renames`: (command, new name); an empty new name removes the command.
    pub fn new(rows: impl Iterator<Item = &'static Row>, renames: &[(String, String)]) -> Result<Directory, String> {
        let mut count = 0;
        let mut commands: Vec<(Box<[u8]>, Command)> =
            rows.map(|row| (row.name.as_bytes().into(), Command::new(row, None, &mut count))).collect();
        for (from, to) in renames {
            let at = commands.iter().position(|(name, _)| name.eq_ignore_ascii_case(from.as_bytes()));
            let Some(at) = at else {
                return Err(format!("rename-command: there is no command '{from}'"));
            };
            if to.is_empty() {
                commands.remove(at);
            } else if commands.iter().any(|(name, _)| name.eq_ignore_ascii_case(to.as_bytes())) {
                return Err(format!("rename-command: there is a command '{to}' already"));
            } else {
                commands[at].0 = to.to_ascii_lowercase().into_bytes().into();
            }
        }
        assert!(commands.len() * 2 <= BUCKETS);
        let mut buckets = Box::new([EMPTY; BUCKETS]);
        for (index, (name, _)) in commands.iter().enumerate() {
            let mut at = bucket(name);
            while buckets[at] != EMPTY {
                at = (at + 1) % BUCKETS;
            }
            buckets[at] = index as u16;
        }
        Ok(Directory { commands, buckets, count })
    }

    /// Any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let mut at = bucket(name);
        loop {
            let index = self.buckets[at];
            if index == EMPTY {
                return None;
            }
            let (known, command) = &self.commands[index as usize];
            if known.eq_ignore_ascii_case(name) {
                return Some(command);
            }
            at = (at + 1) % BUCKETS;
        }
    }

    /// Commands and subcommands, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().flat_map(|(_, command)| std::iter::once(command).chain(&command.subcommands))
    }
}

/// Folds case by setting the bit that tells the ASCII letters' cases apart; other bytes may collide, no harm.
#[inline]
fn bucket(name: &[u8]) -> usize {
    let mut word = [0u8; 8];
    let len = name.len().min(8);
    word[..len].copy_from_slice(&name[..len]);
    let folded = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
    // The tail tells EXPIREAT from EXPIRETIME.
    let tail = name.last().map_or(0, |&byte| u64::from(byte | 0x20)) + 31 * name.len() as u64;
    let mixed = (folded ^ tail.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 54) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(renames: &[(&str, &str)]) -> Result<Directory, String> {
        let renames: Vec<_> = renames.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Directory::new(commands::table::all(), &renames)
    }

    #[test]
    fn every_command_is_found_in_any_case_and_has_its_own_number() {
        let directory = directory(&[]).unwrap();
        let mut seen = vec![false; directory.count];
        for command in directory.all() {
            assert!(!std::mem::replace(&mut seen[command.id], true), "{} shares its number", command.name);
        }
        assert!(seen.iter().all(|&seen| seen));
        for row in commands::table::all() {
            let upper = row.name.to_ascii_uppercase();
            assert_eq!(directory.find(upper.as_bytes()).unwrap().row.name, row.name);
        }
        assert!(directory.find(b"").is_none());
        assert!(directory.find(b"nosuchcommand").is_none());
    }

    #[test]
    fn renamed_and_removed() {
        let directory = directory(&[("FLUSHALL", ""), ("get", "fetch")]).unwrap();
        assert!(directory.find(b"flushall").is_none());
        assert!(directory.find(b"get").is_none());
        assert_eq!(directory.find(b"FETCH").unwrap().row.name, "get");
    }

    #[test]
    fn impossible_renames_are_refused() {
        assert!(directory(&[("nosuch", "x")]).is_err());
        assert!(directory(&[("get", "SET")]).is_err());
    }
}
