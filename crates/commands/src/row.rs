//! Owns the shape of a command's row: everything known of a command without running it. Never knows what a command
//! does.

use crate::cx::{Args, Cx};
use crate::stop::Run;

/// One command, or one subcommand of a container command. Each row stands beside its handler, in the file of its
/// family.
pub struct Row {
    /// Lower case. A subcommand's name is without its container's name.
    pub name: &'static str,
    /// The number of arguments, with the command's name: n is exactly n, −n is at least n, as in COMMAND INFO.
    pub arity: i16,
    pub keys: Keys,
    /// What the command does to the values of its keys, if the flags do not say everything.
    pub access: Access,
    /// The channels that the command names, for the ACL.
    pub channels: Channels,
    pub secrets: Secrets,
    pub flags: &'static [Flag],
    pub handling: &'static [Handling],
    /// The ACL categories beside those that its flags and its group imply: see [`acl_of`].
    pub acl: &'static [Acl],
    /// Hints for clients and proxies that distribute commands over servers, in Redis's words.
    pub tips: &'static [&'static str],
    pub values: Values,
    pub effect: Effect,
    pub group: Group,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// The syntax after the name, as in the documentation: `key [NX | XX] [GET]`.
    pub syntax: &'static str,
    pub examples: &'static [Example],
    /// Not empty for a container (CLIENT, CONFIG …). The container's own handler then answers unknown subcommands.
    pub subcommands: &'static [Row],
    pub run: fn(&mut Cx<'_>) -> Run,
}

impl Row {
    /// What most rows share, for `..Row::BASE`. The table's test finds what a row forgot to name.
    pub const BASE: Row = Row {
        name: "",
        arity: 0,
        keys: Keys::ONE,
        access: Access::ByFlags,
        channels: Channels::None,
        secrets: Secrets::None,
        flags: &[],
        handling: &[],
        acl: &[],
        tips: &[],
        values: Values::Read,
        effect: Effect::Arguments,
        group: Group::Generic,
        since: "",
        complexity: "O(1)",
        summary: "",
        syntax: "key",
        examples: &[],
        subcommands: &[],
        run: |_| unreachable!("every row names its handler"),
    };
}

/// The positions of a command's keys among its arguments (0 is the command's name).
#[derive(Clone, Copy)]
pub enum Keys {
    None,
    /// first, last (negative: counted from the end) and step, as in COMMAND INFO.
    Range {
        first: i16,
        last: i16,
        step: i16,
    },
    /// Like `Range`, for shard channels: they belong to slots as keys do, but they are not keys.
    NotKeys {
        first: i16,
        last: i16,
        step: i16,
    },
    /// Argument `at` holds the number of keys that follow it.
    Counted {
        at: i16,
    },
    /// The command's own function finds the keys and appends their positions.
    Rule(fn(&Args<'_>, &mut Vec<usize>), &'static [KeyLocation]),
    /// Like `Rule`. Usually this one argument is the only key.
    UsuallyAt(i16, fn(&Args<'_>, &mut Vec<usize>), &'static [KeyLocation]),
    /// The first argument, and more keys that the command's own function finds (ZUNIONSTORE's sources).
    FirstAnd(fn(&Args<'_>, &mut Vec<usize>), &'static [KeyLocation]),
}

/// Where a rule finds keys, as COMMAND INFO tells clients that look for keys without the server.
#[derive(Clone, Copy)]
pub enum KeyLocation {
    /// Argument `at` holds the number of keys that follow it.
    Counted { at: i16 },
    /// After a word that stands at `from` or later (negative: counted from the end). Not every place where the word may
    /// stand.
    Behind { word: &'static str, from: i16, how_many: HowMany },
    /// Finding the keys needs the command's whole syntax.
    Anywhere,
    /// No argument names these keys: the content of a value does. The command reads them.
    Unnamed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HowMany {
    One,
    All,
    /// The first half of the remaining arguments.
    Half,
}

impl Keys {
    pub const NONE: Keys = Keys::None;
    /// The first argument is the only key.
    pub const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
    /// Every argument is a key.
    pub const ALL: Keys = Keys::Range { first: 1, last: -1, step: 1 };

    /// Appends the positions of the keys. Arguments that do not fit the rule give fewer keys, never a panic. The
    /// handler then finds the syntax error.
    pub fn positions(self, args: &Args<'_>, at: &mut Vec<usize>) {
        match self {
            Keys::None | Keys::NotKeys { .. } => {}
            Keys::Range { first, last, step } => {
                let count = args.len() as i64;
                let last = if last < 0 { count + i64::from(last) } else { i64::from(last) };
                let last = last.min(count - 1);
                let mut key = i64::from(first);
                while key <= last {
                    at.push(key as usize);
                    key += i64::from(step.max(1));
                }
            }
            Keys::Counted { at: position } => {
                let position = position as usize;
                let count = args.get(position).and_then(crate::number::int).unwrap_or(0);
                let room = args.len().saturating_sub(position + 1);
                if count > 0 && count as u64 <= room as u64 {
                    at.extend(position + 1..position + 1 + count as usize);
                }
            }
            Keys::Rule(rule, _) | Keys::UsuallyAt(_, rule, _) => rule(args, at),
            Keys::FirstAnd(rule, _) => {
                Keys::ONE.positions(args, at);
                rule(args, at);
            }
        }
    }

    /// The keys that COMMAND GETKEYS names. If the row names only words before keys, these are the keys behind the
    /// first occurrence of each word, as clients find them that know only the row. If a word is repeated, the command
    /// itself may use another occurrence: see [`Keys::positions`].
    pub fn named(self, args: &Args<'_>, at: &mut Vec<usize>) {
        let Keys::FirstAnd(_, places) = self else { return self.positions(args, at) };
        let words: Option<Vec<(&str, i16)>> = places.iter().map(|place| place.word()).collect();
        let Some(words) = words else { return self.positions(args, at) };
        Keys::ONE.positions(args, at);
        for (word, from) in words {
            let mut places = usize::from(from.unsigned_abs())..args.len().saturating_sub(1);
            at.extend(places.find(|&place| args[place].eq_ignore_ascii_case(word.as_bytes())).map(|place| place + 1));
        }
    }
}

impl KeyLocation {
    /// If this location is a single key behind a word: the word, and the first position where it may stand.
    fn word(&self) -> Option<(&'static str, i16)> {
        match *self {
            KeyLocation::Behind { word, from: from @ 0.., how_many: HowMany::One } => Some((word, from)),
            _ => None,
        }
    }
}

/// The rights that a user needs on a key before a command may name it. Neither right: the command looks only at the
/// key's existence or type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    pub read: bool,
    pub write: bool,
}

impl Use {
    pub const NONE: Use = Use { read: false, write: false };
    pub const READ: Use = Use { read: true, write: false };
    pub const WRITE: Use = Use { read: false, write: true };
    pub const BOTH: Use = Use { read: true, write: true };

    #[must_use]
    pub fn and(self, other: Use) -> Use {
        Use { read: self.read || other.read, write: self.write || other.write }
    }

    /// Whether these rights include the others.
    pub fn covers(self, other: Use) -> bool {
        self.and(other) == self
    }
}

/// What a command does to the value of a key, in the words of Redis's key specifications: RO reads, RW reads and
/// changes, OW overwrites, RM removes the key. `access` returns something of the value to the client; the other words
/// say how the value changes. A change without a look at the value needs no right to read.
#[derive(Clone, Copy)]
pub struct KeyUse {
    pub words: &'static [&'static str],
    pub needs: Use,
}

impl KeyUse {
    /// Looks at existence, type or size only.
    pub const LOOK: KeyUse = KeyUse { words: &["RO"], needs: Use::NONE };
    pub const READ: KeyUse = KeyUse { words: &["RO", "access"], needs: Use::READ };
    /// Reads, and may write a cached result into the value.
    pub const CACHE: KeyUse = KeyUse { words: &["RW", "access"], needs: Use::READ };
    pub const UPDATE: KeyUse = KeyUse { words: &["RW", "update"], needs: Use::WRITE };
    pub const INSERT: KeyUse = KeyUse { words: &["RW", "insert"], needs: Use::WRITE };
    pub const DELETE: KeyUse = KeyUse { words: &["RW", "delete"], needs: Use::WRITE };
    /// Reads and updates.
    pub const CHANGE: KeyUse = KeyUse { words: &["RW", "access", "update"], needs: Use::BOTH };
    /// Reads and inserts.
    pub const MERGE: KeyUse = KeyUse { words: &["RW", "access", "insert"], needs: Use::BOTH };
    /// Reads and deletes.
    pub const TAKE: KeyUse = KeyUse { words: &["RW", "access", "delete"], needs: Use::BOTH };
    pub const OVERWRITE: KeyUse = KeyUse { words: &["OW", "update"], needs: Use::WRITE };
    pub const CREATE: KeyUse = KeyUse { words: &["OW", "insert"], needs: Use::WRITE };
    pub const REMOVE: KeyUse = KeyUse { words: &["RM", "delete"], needs: Use::WRITE };
}

/// What a command does to the values of its keys.
#[derive(Clone, Copy)]
pub enum Access {
    /// According to the flags: a reader reads, a writer reads and updates.
    ByFlags,
    All(KeyUse),
    /// The use of the first key, and the use of the others.
    First(KeyUse, KeyUse),
    Rule(fn(&Args<'_>) -> KeyUse),
}

impl Row {
    /// Whether the command takes so many arguments, its own name included.
    pub fn takes(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity >= 0 { count == least } else { count >= least }
    }

    /// The use of the `nth` key, with Redis's words.
    pub fn key_use(&self, nth: usize, args: &Args<'_>) -> KeyUse {
        match self.access {
            Access::ByFlags if self.flags.contains(&Flag::Write) => KeyUse::CHANGE,
            Access::ByFlags => KeyUse::READ,
            Access::All(effect) => effect,
            Access::First(first, others) => {
                if nth == 0 {
                    first
                } else {
                    others
                }
            }
            Access::Rule(rule) => rule(args),
        }
    }

    /// The rights needed for the `nth` key.
    pub fn access(&self, nth: usize, args: &Args<'_>) -> Use {
        self.key_use(nth, args).needs
    }
}

/// Channels among a command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    None,
    /// The first argument.
    First,
    All,
    /// All arguments are patterns of channels.
    Patterns,
}

/// Arguments that MONITOR and the slow log hide: passwords, and the users that they belong to. The row decides, because
/// a command can be renamed. Argument 0 is the command's name; positions in a subcommand's row count from the
/// container's name too.
#[derive(Clone, Copy)]
pub enum Secrets {
    None,
    /// From this argument on.
    From(usize),
    /// The command's own function decides whether this argument is secret.
    Rule(fn(&Args<'_>, usize) -> bool),
    /// From this argument on, names of directives and their values alternate. The server knows which values are secret.
    Directives(usize),
}

impl Row {
    /// Whether to hide argument `at`. `is_secret` tells directives with secret values.
    pub fn hides(&self, args: &Args<'_>, at: usize, is_secret: impl Fn(&[u8]) -> bool) -> bool {
        match self.secrets {
            Secrets::None => false,
            Secrets::From(first) => at >= first,
            Secrets::Rule(rule) => rule(args, at),
            Secrets::Directives(first) => {
                at > first && !(at - first).is_multiple_of(2) && args.get(at - 1).is_some_and(is_secret)
            }
        }
    }
}

/// Whether `word`, in any case, is one of the `count` arguments before argument `at`, and is at `from` or later.
pub fn is_behind(args: &Args<'_>, at: usize, word: &str, count: usize, from: usize) -> bool {
    let before = at.saturating_sub(count).max(from)..at;
    before.into_iter().any(|at| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes())))
}

/// Whether a command reads its keys' values, so that starting reads from flash before it runs is worthwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// It looks at no value (PING; a blind SET or DEL).
    Untouched,
    /// It reads the values of its keys.
    Read,
}

/// How the journal or a replica repeats a command that has changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// By its own arguments: on the same data, with the same clock, they always do the same.
    Arguments,
    /// By the command that its handler states with `Keyspace::effect` wherever it changes something. Its own arguments
    /// depend on chance, on the time or on a value's encoding, or they would wait.
    Stated,
}

/// Redis's command flags, by the names COMMAND INFO prints in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    Write,
    Readonly,
    Denyoom,
    Admin,
    Pubsub,
    Noscript,
    Blocking,
    Loading,
    Stale,
    SkipMonitor,
    SkipSlowlog,
    Asking,
    Fast,
    NoAuth,
    NoMulti,
    MovableKeys,
    NoMandatoryKeys,
    AllowBusy,
    NoAsyncLoading,
    /// Touches keys that its arguments do not name (SORT's patterns). Inside a transaction or script the command needs
    /// every stripe.
    UnnamedKeys,
    /// Walks whole databases. Inside a transaction or script every stripe is locked; otherwise none is, and the walk
    /// takes one step at a time.
    Keyspace,
    /// Changes state that no key names (whole databases, functions). The command runs with every stripe locked, so
    /// every other command runs before it or after it.
    Barrier,
}

/// What the server does for a command besides running its handler, as far as Redis's flags do not say it. A container's
/// entries hold for its subcommands. Clients cannot see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// Runs while clients are paused.
    Unpausable,
    /// Leaves CLIENT CACHING in force for the next command.
    KeepsCaching,
    /// Redis sends it to replicas although it is no write. So it waits while writes are paused, and a read-only script
    /// may not call it.
    MayReplicate,
    /// Allowed on a RESP2 connection with subscriptions. Replies of other commands could not be told from messages
    /// there.
    Listening,
    /// It replies with push messages, which CLIENT REPLY does not suppress.
    AnswersByPush,
    /// Runs at once between MULTI and EXEC, and is not queued.
    Unqueued,
    /// Runs the commands of a transaction.
    Exec,
    /// Runs a script or function. The server runs it itself, not through the row's handler.
    Script,
    /// Other clients see its effect, although it writes no data. A script that has run it does not start again.
    Publishes,
    /// Watches keys.
    Watches,
    /// Forgets the keys that are watched.
    Unwatches,
    /// Changes the user of its connection.
    ChangesUser,
    /// Changes only its own connection.
    OfConnection,
    /// Part of a transaction, so it depends on the connection's earlier commands.
    OfTransaction,
    /// Sends more than one reply, for as long as the connection lasts.
    Streams,
    /// Runs while the dataset is being loaded from a primary, because it may end the loading.
    WhileArriving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acl {
    Keyspace,
    Read,
    Write,
    Set,
    SortedSet,
    List,
    Hash,
    String,
    Bitmap,
    HyperLogLog,
    Geo,
    Stream,
    Pubsub,
    Admin,
    Fast,
    Slow,
    Blocking,
    Dangerous,
    Connection,
    Transaction,
    Scripting,
}

/// The names of [`acl_of`].
pub fn categories(row: &Row) -> Vec<&'static str> {
    acl_of(row).into_iter().map(category_name).collect()
}

/// The row's ACL categories, in Redis's order. As in Redis, most follow from the flags and from the group.
pub fn acl_of(row: &Row) -> Vec<Acl> {
    let has = |flag| row.flags.contains(&flag);
    let mut all = row.acl.to_vec();
    let implied = [
        (Acl::Write, has(Flag::Write)),
        // What a script reads is checked when it reads it.
        (Acl::Read, has(Flag::Readonly) && row.group != Group::Scripting),
        (Acl::Admin, has(Flag::Admin)),
        (Acl::Dangerous, has(Flag::Admin)),
        (Acl::Pubsub, has(Flag::Pubsub)),
        (Acl::Blocking, has(Flag::Blocking)),
        (Acl::Fast, has(Flag::Fast)),
        (Acl::Slow, !has(Flag::Fast)),
    ];
    all.extend(implied.into_iter().filter(|(_, is)| *is).map(|(acl, _)| acl));
    // A container has no category of what its subcommands are about. A row that names one has none of its group.
    let names_subject = row.acl.iter().any(|acl| !matches!(acl, Acl::Dangerous | Acl::Admin));
    if row.subcommands.is_empty() && !names_subject {
        all.extend(category_of(row.group));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn category_of(group: Group) -> Option<Acl> {
    Some(match group {
        Group::Generic => Acl::Keyspace,
        Group::String => Acl::String,
        Group::List => Acl::List,
        Group::Set => Acl::Set,
        Group::SortedSet => Acl::SortedSet,
        Group::Hash => Acl::Hash,
        Group::HyperLogLog => Acl::HyperLogLog,
        Group::Geo => Acl::Geo,
        Group::Stream => Acl::Stream,
        Group::Bitmap => Acl::Bitmap,
        Group::Connection => Acl::Connection,
        Group::Transactions => Acl::Transaction,
        Group::Scripting => Acl::Scripting,
        Group::Pubsub | Group::Server | Group::Cluster => return None,
    })
}

pub fn category_name(acl: Acl) -> &'static str {
    match acl {
        Acl::Keyspace => "keyspace",
        Acl::Read => "read",
        Acl::Write => "write",
        Acl::Set => "set",
        Acl::SortedSet => "sortedset",
        Acl::List => "list",
        Acl::Hash => "hash",
        Acl::String => "string",
        Acl::Bitmap => "bitmap",
        Acl::HyperLogLog => "hyperloglog",
        Acl::Geo => "geo",
        Acl::Stream => "stream",
        Acl::Pubsub => "pubsub",
        Acl::Admin => "admin",
        Acl::Fast => "fast",
        Acl::Slow => "slow",
        Acl::Blocking => "blocking",
        Acl::Dangerous => "dangerous",
        Acl::Connection => "connection",
        Acl::Transaction => "transaction",
        Acl::Scripting => "scripting",
    }
}

/// All categories, in Redis's order.
pub const CATEGORIES: [Acl; 21] = [
    Acl::Keyspace,
    Acl::Read,
    Acl::Write,
    Acl::Set,
    Acl::SortedSet,
    Acl::List,
    Acl::Hash,
    Acl::String,
    Acl::Bitmap,
    Acl::HyperLogLog,
    Acl::Geo,
    Acl::Stream,
    Acl::Pubsub,
    Acl::Admin,
    Acl::Fast,
    Acl::Slow,
    Acl::Blocking,
    Acl::Dangerous,
    Acl::Connection,
    Acl::Transaction,
    Acl::Scripting,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Pubsub,
    Transactions,
    Connection,
    Server,
    Scripting,
    HyperLogLog,
    Cluster,
    Geo,
    Stream,
    Bitmap,
}

impl Group {
    pub const ALL: [Group; 16] = [
        Group::String,
        Group::Hash,
        Group::List,
        Group::Set,
        Group::SortedSet,
        Group::Stream,
        Group::Bitmap,
        Group::HyperLogLog,
        Group::Geo,
        Group::Generic,
        Group::Transactions,
        Group::Scripting,
        Group::Pubsub,
        Group::Connection,
        Group::Server,
        Group::Cluster,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Group::Generic => "Keys",
            Group::String => "Strings",
            Group::List => "Lists",
            Group::Set => "Sets",
            Group::SortedSet => "Sorted sets",
            Group::Hash => "Hashes",
            Group::Pubsub => "Pub/sub",
            Group::Transactions => "Transactions",
            Group::Connection => "Connection",
            Group::Server => "Server",
            Group::Scripting => "Scripts and functions",
            Group::HyperLogLog => "HyperLogLog",
            Group::Cluster => "Cluster",
            Group::Geo => "Geo",
            Group::Stream => "Streams",
            Group::Bitmap => "Bitmaps",
        }
    }
}

/// A line of a transcript that runs as a test against FlintKV and against a real Redis: `command` as typed to redis-cli
/// (with its quoting rules), `reply` as redis-cli prints it without a terminal (`--no-raw`), lines joined by '\n'. A
/// row's examples run in order on one connection after a FLUSHALL.
#[derive(Clone, Copy)]
pub struct Example {
    pub command: &'static str,
    pub reply: Expect,
}

pub const fn is(command: &'static str, reply: &'static str) -> Example {
    Example { command, reply: Expect::Is(reply) }
}

pub const fn starts(command: &'static str, reply: &'static str) -> Example {
    Example { command, reply: Expect::Starts(reply) }
}

pub const fn only_here(command: &'static str, reply: &'static str) -> Example {
    Example { command, reply: Expect::OnlyHere(reply) }
}

#[derive(Clone, Copy)]
pub enum Expect {
    /// Exactly this reply on both servers.
    Is(&'static str),
    /// The reply varies (a time, a random key, a version). It starts with this on both servers.
    Starts(&'static str),
    /// Redis 7.0 does not have it, or answers differently. Checked on FlintKV only.
    OnlyHere(&'static str),
}
