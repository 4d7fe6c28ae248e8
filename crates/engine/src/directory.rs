//! Owns the look-up from a command's name to its row: with renames applied, flags folded into bits, and a dense
//! number for the statistics. Never knows what a command does or who may run it.

use crate::routes::{Policy, policy_of};
use commands::{Args, Flag, Handling, Keys, Row, Values};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

/// The properties of a command that `admit` checks, as bits.
pub mod bit {
    pub const WRITE: u32 = 1 << 0;
    /// Refused when neither RAM nor flash has room.
    pub const DENYOOM: u32 = 1 << 1;
    /// Allowed before authentication.
    pub const NO_AUTH: u32 = 1 << 2;
    /// Reads the values of its keys, so prefetching helps.
    pub const READS: u32 = 1 << 3;
    pub const FAST: u32 = 1 << 4;
    pub const SKIP_SLOWLOG: u32 = 1 << 5;
    /// Runs while clients are paused.
    pub const UNPAUSABLE: u32 = 1 << 6;
    pub const CONTAINER: u32 = 1 << 7;
    /// Works on no key that it names: on the whole dataset, or on no key at all.
    pub const KEYLESS: u32 = 1 << 8;
    /// Allowed to a RESP2 connection in subscriber mode.
    pub const LISTENER: u32 = 1 << 9;
    /// Its answers are push messages: CLIENT REPLY does not withhold them.
    pub const ANSWERS_BY_PUSH: u32 = 1 << 10;
    /// Works on whole databases, or on keys that it finds only while it runs. Inside a transaction or script it needs
    /// every stripe.
    pub const WHOLE: u32 = 1 << 11;
    /// Runs at once between MULTI and EXEC.
    pub const UNQUEUED: u32 = 1 << 12;
    pub const NO_MULTI: u32 = 1 << 13;
    pub const EXEC: u32 = 1 << 14;
    pub const READONLY: u32 = 1 << 15;
    /// Not shown to MONITOR.
    pub const UNSEEN: u32 = 1 << 16;
    /// Runs a script or function: the engine carries it out, not the row's handler.
    pub const SCRIPT: u32 = 1 << 17;
    /// Not allowed inside a script.
    pub const NO_SCRIPT: u32 = 1 << 18;
    /// Answered while a script runs too long.
    pub const ALLOW_BUSY: u32 = 1 << 19;
    /// Has an effect that other clients see, although it changes no data. A script that has run it does not start
    /// again.
    pub const PUBLISHES: u32 = 1 << 20;
    /// `WATCHES`: watches keys. `UNWATCHES`: forgets the watched keys.
    pub const WATCHES: u32 = 1 << 21;
    pub const UNWATCHES: u32 = 1 << 22;
    /// Changes state that no key names, so it runs with every stripe locked.
    pub const BARRIER: u32 = 1 << 23;
    /// Gives its connection another user.
    pub const CHANGES_USER: u32 = 1 << 24;
    /// Leaves CLIENT CACHING in force.
    pub const KEEPS_CACHING: u32 = 1 << 25;
    /// No write, but Redis tells its replicas of it.
    pub const MAY_REPLICATE: u32 = 1 << 26;
    /// Answered while the dataset is being loaded.
    pub const LOADING: u32 = 1 << 27;
    /// Answered by a replica without its primary.
    pub const STALE: u32 = 1 << 28;
    /// One key at a fixed position and none of [`SPECIAL`]: the handler is all there is to it.
    pub const PLAIN: u32 = 1 << 30;
    /// May wait for a key, or for replicas.
    pub const BLOCKS: u32 = 1 << 31;
    /// What the engine does something for beside running the handler.
    pub const SPECIAL: u32 = KEYLESS
        | CONTAINER
        | LISTENER
        | ANSWERS_BY_PUSH
        | WHOLE
        | BARRIER
        | UNQUEUED
        | NO_MULTI
        | EXEC
        | SCRIPT
        | PUBLISHES
        | WATCHES
        | UNWATCHES
        | CHANGES_USER
        | KEEPS_CACHING;
    /// Answered while the dataset arrives from a primary.
    pub const WHILE_ARRIVING: u32 = 1 << 29;
}

/// A command as the engine sees it.
pub struct Command {
    pub row: &'static Row,
    /// Dense, from 0: the index of its statistics.
    pub id: usize,
    /// Its original name, as INFO commandstats and users' rules show it even if it was renamed: `get`, `client|list`.
    pub name: &'static str,
    pub bits: u32,
    /// How many arguments it takes, including its own name.
    args_min: usize,
    args_max: usize,
    /// The position of its key, if it has one key at a fixed position.
    pub only_key: Option<NonZeroUsize>,
    pub subcommands: Vec<Command>,
    /// The word by which it is called: a subcommand's is its container's name.
    pub word: &'static str,
    /// Where a proxy sends it.
    pub policy: Policy,
}

impl Command {
    /// Whether its handler only reads and changes the given key: see [`store::Keyspace::rehearsal`].
    pub fn can_rehearse(&self) -> bool {
        const OTHERWISE: u32 = bit::KEYLESS | bit::CONTAINER | bit::SCRIPT | bit::EXEC | bit::WHOLE | bit::NO_MULTI;
        self.is(bit::READS) && self.bits & OTHERWISE == 0
    }

    fn new(row: &'static Row, container: Option<&'static Row>, id: &mut usize) -> Command {
        let has = |flag: Flag| row.flags.contains(&flag);
        let does = |handling| [Some(row), container].iter().flatten().any(|row| row.handling.contains(&handling));
        let name: &'static str = match container {
            None => row.name,
            Some(container) => full_name(container.name, row.name),
        };
        let mut bits = 0;
        for (on, bit) in [
            (has(Flag::Write), bit::WRITE),
            (has(Flag::Denyoom), bit::DENYOOM),
            (has(Flag::NoAuth), bit::NO_AUTH),
            (row.values == Values::Read, bit::READS),
            (has(Flag::Fast), bit::FAST),
            (has(Flag::Readonly), bit::READONLY),
            (has(Flag::SkipMonitor) || has(Flag::Admin), bit::UNSEEN),
            (has(Flag::SkipSlowlog), bit::SKIP_SLOWLOG),
            (does(Handling::Unpausable), bit::UNPAUSABLE),
            (!row.subcommands.is_empty(), bit::CONTAINER),
            (matches!(row.keys, Keys::None | Keys::NotKeys { .. }), bit::KEYLESS),
            (does(Handling::Listening), bit::LISTENER),
            (does(Handling::AnswersByPush), bit::ANSWERS_BY_PUSH),
            (has(Flag::Keyspace) || has(Flag::UnnamedKeys) || has(Flag::Barrier), bit::WHOLE),
            (has(Flag::Barrier), bit::BARRIER),
            (has(Flag::Blocking), bit::BLOCKS),
            (does(Handling::Unqueued), bit::UNQUEUED),
            (has(Flag::NoMulti), bit::NO_MULTI),
            (does(Handling::Exec), bit::EXEC),
            (does(Handling::Script), bit::SCRIPT),
            (has(Flag::Noscript), bit::NO_SCRIPT),
            (has(Flag::AllowBusy), bit::ALLOW_BUSY),
            (does(Handling::Publishes), bit::PUBLISHES),
            (does(Handling::Watches), bit::WATCHES),
            (does(Handling::Unwatches), bit::UNWATCHES),
            (does(Handling::ChangesUser), bit::CHANGES_USER),
            (does(Handling::KeepsCaching), bit::KEEPS_CACHING),
            (does(Handling::MayReplicate), bit::MAY_REPLICATE),
            (has(Flag::Loading), bit::LOADING),
            (has(Flag::Stale), bit::STALE),
            (does(Handling::WhileArriving), bit::WHILE_ARRIVING),
        ] {
            bits |= if on { bit } else { 0 };
        }
        let own_id = *id;
        *id += 1;
        let subcommands = row.subcommands.iter().map(|sub| Command::new(sub, Some(row), id)).collect();
        let only_key = match row.keys {
            Keys::Range { first, last, .. } if first == last => usize::try_from(first).ok().and_then(NonZeroUsize::new),
            _ => None,
        };
        // MOVE reaches more than its key: a proxy asks the key's owner, which refuses it.
        if only_key.is_some() && bits & bit::SPECIAL == 0 && name != "move" {
            bits |= bit::PLAIN;
        }
        let args_min = usize::from(row.arity.unsigned_abs());
        let args_max = if row.arity >= 0 { args_min } else { usize::MAX };
        let word = container.unwrap_or(row).name;
        let policy = policy_of(name, bits & bit::KEYLESS == 0, bits & bit::SCRIPT != 0);
        Command { row, id: own_id, name, bits, args_min, args_max, only_key, subcommands, word, policy }
    }

    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.bits & bits != 0
    }

    /// Whether the command takes `count` arguments, including its own name.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        self.args_min <= count && count <= self.args_max
    }

    /// The subcommand that the second argument names.
    pub fn subcommand(&self, args: &Args<'_>) -> Option<&Command> {
        let name = args.get(1)?;
        self.subcommands.iter().find(|sub| sub.row.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The full name of a subcommand. Each name is allocated once per process, however many databases are opened.
fn full_name(container: &str, subcommand: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let name = format!("{container}|{subcommand}");
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    // The leak is bounded by the number of rows.
    let name = String::leak(name);
    names.insert(name);
    name
}

/// Twice the number of commands of Redis 7.2, rounded up. Most names are found at the first probe.
const BUCKETS: usize = 1024;
const EMPTY: u16 = u16::MAX;

pub struct Directory {
    commands: Vec<Named>,
    /// Commands that have lost their name.
    removed: Vec<Command>,
    /// Open addressing over `commands`.
    buckets: Box<[Bucket; BUCKETS]>,
    /// Where a command is in `commands`, and which of its subcommands it is, by its number.
    places: Vec<Option<(u16, Option<u16>)>>,
    /// Commands and subcommands.
    pub count: usize,
}

/// The position of a command in the directory: smaller than a reference, and without its lifetime.
#[derive(Clone, Copy)]
pub struct CommandPlace(u16);

struct Named {
    /// Lower case.
    name: Box<[u8]>,
    command: Command,
}

#[derive(Clone, Copy)]
struct Bucket {
    folded: Folded,
    /// The name has letters only, at most eight, so `folded` holds the whole name.
    is_short: bool,
    /// [`EMPTY`], or the index of the command.
    index: u16,
}

/// A name's length and its first eight bytes, with letters in lower case. Folding sets the ASCII case bit of every
/// byte. This makes some other bytes equal, but never two different letters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folded {
    head: u64,
    len: u32,
}

impl Folded {
    #[inline]
    fn new(name: &[u8]) -> Folded {
        let head = match name {
            _ if name.len() >= 8 => u64::from_le_bytes(*name.first_chunk().expect("eight bytes")),
            [_, _, _, _, ..] => {
                // The two halves overlap. The shift drops the bytes that both contain.
                let low = u32::from_le_bytes(*name.first_chunk().expect("four bytes"));
                let high = u32::from_le_bytes(*name.last_chunk().expect("four bytes"));
                u64::from(low) | u64::from(high) << (8 * (name.len() - 4))
            }
            &[a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            short => short.iter().rev().fold(0, |head, &byte| head << 8 | u64::from(byte)),
        };
        Folded { head: head | 0x2020_2020_2020_2020, len: name.len() as u32 }
    }

    #[inline]
    fn bucket(self, name: &[u8]) -> usize {
        // The last byte tells EXPIREAT from EXPIRETIME.
        let tail = if name.len() > 8 { name[name.len() - 1] | 0x20 } else { 0 };
        let mixed = (self.head ^ u64::from(self.len) << 32 ^ u64::from(tail)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize % BUCKETS
    }
}

impl Directory {
    /// `renames`: pairs of a command and its new name. An empty new name removes the command.
    pub fn new(rows: impl Iterator<Item = &'static Row>, renames: &[(String, String)]) -> Result<Directory, String> {
        let mut count = 0;
        let mut named: Vec<(String, Command)> =
            rows.map(|row| (row.name.to_owned(), Command::new(row, None, &mut count))).collect();
        let mut removed = Vec::new();
        for (from, to) in renames {
            let Some(at) = named.iter().position(|(name, _)| name.eq_ignore_ascii_case(from)) else {
                return Err(format!("rename-command: there is no command '{from}'"));
            };
            if to.is_empty() {
                removed.push(named.remove(at).1);
            } else if named.iter().any(|(name, _)| name.eq_ignore_ascii_case(to)) {
                return Err(format!("rename-command: there is a command '{to}' already"));
            } else {
                named[at].0 = to.to_ascii_lowercase();
            }
        }
        assert!(named.len() * 2 <= BUCKETS);
        let empty = Bucket { folded: Folded::new(b""), is_short: false, index: EMPTY };
        let mut buckets = Box::new([empty; BUCKETS]);
        let mut commands = Vec::with_capacity(named.len());
        for (index, (name, command)) in named.into_iter().enumerate() {
            let folded = Folded::new(name.as_bytes());
            let mut at = folded.bucket(name.as_bytes());
            while buckets[at].index != EMPTY {
                at = (at + 1) % BUCKETS;
            }
            let is_short = name.len() <= 8 && name.bytes().all(|byte| byte.is_ascii_lowercase());
            buckets[at] = Bucket { folded, is_short, index: index as u16 };
            commands.push(Named { name: name.into_bytes().into(), command });
        }
        let mut places = vec![None; count];
        for (index, Named { command, .. }) in commands.iter().enumerate() {
            places[command.id] = Some((index as u16, None));
            for (sub, subcommand) in command.subcommands.iter().enumerate() {
                places[subcommand.id] = Some((index as u16, Some(sub as u16)));
            }
        }
        Ok(Directory { commands, removed, buckets, places, count })
    }

    /// Case is ignored.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        self.place(name).map(|place| self.at(place))
    }

    /// The command that has this name in the table, however it is called here. For files, which have the table's names.
    #[cold]
    pub fn original(&self, name: &[u8]) -> Option<&Command> {
        let named = self.commands.iter().map(|named| &named.command);
        named.chain(&self.removed).find(|command| command.row.name.as_bytes().eq_ignore_ascii_case(name))
    }

    #[inline]
    pub fn at(&self, place: CommandPlace) -> &Command {
        &self.commands[place.0 as usize].command
    }

    /// The command or subcommand with this number, which has not lost its name.
    #[inline]
    pub fn by_id(&self, id: usize) -> &Command {
        let (index, sub) = self.places[id].expect("it has a name");
        let command = &self.commands[usize::from(index)].command;
        sub.map_or(command, |sub| &command.subcommands[usize::from(sub)])
    }

    /// The position of the command with that name, for [`Directory::at`]. Case is ignored.
    #[inline]
    pub fn place(&self, name: &[u8]) -> Option<CommandPlace> {
        let folded = Folded::new(name);
        let at = folded.bucket(name);
        let bucket = &self.buckets[at];
        if bucket.folded == folded && bucket.is_short {
            return Some(CommandPlace(bucket.index));
        }
        self.place_from(at, folded, name)
    }

    #[inline(never)]
    fn place_from(&self, mut at: usize, folded: Folded, name: &[u8]) -> Option<CommandPlace> {
        loop {
            let bucket = &self.buckets[at];
            if bucket.index == EMPTY {
                return None;
            }
            let is_it = || bucket.is_short || self.commands[bucket.index as usize].name.eq_ignore_ascii_case(name);
            if bucket.folded == folded && is_it() {
                return Some(CommandPlace(bucket.index));
            }
            at = (at + 1) % BUCKETS;
        }
    }

    /// The name of the command with that number, as CLIENT LIST shows it.
    pub fn name(&self, id: usize) -> &'static str {
        self.all().find(|command| command.id == id).map_or("NULL", |command| command.name)
    }

    /// Commands and subcommands, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Command> {
        self.commands
            .iter()
            .map(|named| &named.command)
            .flat_map(|command| std::iter::once(command).chain(&command.subcommands))
    }
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
        for (name, found) in [(&b"get"[..], true), (b"GeT", true), (b"ge", false), (b"gett", false), (b"g\x05t", false)]
        {
            assert_eq!(directory.find(name).is_some(), found, "{name:?}");
        }
    }

    /// Every opened database once leaked its own copies of the names.
    #[test]
    fn all_databases_share_one_copy_of_the_names() {
        let (first, second) = (directory(&[]).unwrap(), directory(&[]).unwrap());
        for command in first.all() {
            let other = second.all().find(|other| other.id == command.id).unwrap();
            assert_eq!((command.name, command.name.as_ptr()), (other.name, other.name.as_ptr()));
        }
    }

    /// LATENCY RESET and SLOWLOG RESET once had the bits of RESET, and ran at once between MULTI and EXEC.
    #[test]
    fn subcommands_do_not_get_the_bits_of_a_command_with_their_name() {
        let directory = directory(&[]).unwrap();
        let with = |bits| directory.all().filter(|command| command.is(bits)).map(|command| command.name).collect();
        let unqueued: BTreeSet<&str> = with(bit::UNQUEUED);
        assert_eq!(unqueued, BTreeSet::from(["discard", "exec", "multi", "quit", "reset", "watch"]));
        let changes_user: BTreeSet<&str> = with(bit::CHANGES_USER);
        assert_eq!(changes_user, BTreeSet::from(["auth", "hello", "reset"]));
        let unpausable: BTreeSet<&str> = with(bit::UNPAUSABLE);
        assert_eq!(unpausable, BTreeSet::from(["shutdown"]));
        let may_replicate: BTreeSet<&str> = with(bit::MAY_REPLICATE);
        assert_eq!(may_replicate, BTreeSet::from(["pfcount", "publish", "spublish"]));
        let while_arriving: BTreeSet<&str> = with(bit::WHILE_ARRIVING);
        assert_eq!(while_arriving, BTreeSet::from(["replicaof", "slaveof"]));
    }

    #[test]
    fn commands_can_be_renamed_and_removed() {
        let directory = directory(&[("FLUSHALL", ""), ("get", "fetch")]).unwrap();
        assert!(directory.find(b"flushall").is_none());
        assert!(directory.find(b"get").is_none());
        assert_eq!(directory.find(b"FETCH").unwrap().row.name, "get");
        for name in ["FlushAll", "get", "set"] {
            assert_eq!(directory.original(name.as_bytes()).unwrap().row.name, name.to_ascii_lowercase());
        }
        assert!(directory.original(b"fetch").is_none());
    }

    #[test]
    fn impossible_renames_are_refused() {
        assert!(directory(&[("nosuch", "x")]).is_err());
        assert!(directory(&[("get", "SET")]).is_err());
    }
}
