//! Owns what is known of a directive, and what is made of the table of directives. Never knows which directives there are.

use base::words;

/// One directive.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// A second name, empty if there is none.
    pub alias: &'static str,
    pub kind: Kind,
    /// The default as the file would write it.
    pub default: &'static str,
    pub change: Change,
    pub effect: Effect,
    pub group: Group,
    pub about: &'static str,
    /// It belongs to the node, and is set on the default database.
    pub is_of_node: bool,
    /// A database takes it from the default database, unless its own file sets it.
    pub is_inherited: bool,
}

/// The type of a directive's value. Sizes and integers carry their inclusive range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int(i64, i64),
    /// Bytes with an optional unit: 1k = 1000, 1kb = 1024 and so on.
    Size(u64, u64),
    /// Bytes, or a percentage of another size.
    SizeOrPercent,
    /// Bytes: a power of two within the range.
    Segment(u64, u64),
    /// `auto` or an integer.
    AutoOrInt(i64, i64),
    /// File permissions.
    Octal,
    Choice(&'static [&'static str]),
    /// Several of the words.
    Choices(&'static [&'static str]),
    Text,
    /// Text that is never logged.
    Password,
    /// A file name without a directory.
    FileName,
    Path,
    /// An existing directory, stored as an absolute path.
    Directory,
    /// At most this many words.
    Words(usize),
    /// A repeatable directive with one path on each line. An empty path empties the list.
    Paths,
    /// `SECONDS CHANGES` pairs. Each line adds pairs; an empty line empties the list.
    Save,
    OutputLimits,
    OomScores,
    Events,
    Percentiles,
    /// `HOST PORT` or `no one`.
    Primary,
    /// `COMMAND NEW-NAME`, repeatable.
    Renames,
    /// Anything, repeatable.
    Lines,
}

impl Row {
    /// With the next ones, the steps by which `directives!` makes a row: the last three are flags of the row.
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        change: Change,
        group: Group,
        about: &'static str,
    ) -> Row {
        let (is_of_node, is_inherited) = (false, false);
        Row { name, alias: "", kind, default, change, effect: Effect::Used, group, about, is_of_node, is_inherited }
    }

    pub(super) const fn alias(mut self, alias: &'static str) -> Row {
        self.alias = alias;
        self
    }

    pub(super) const fn inert(mut self) -> Row {
        (self.effect, self.about) = (Effect::Inert(self.about), "");
        self
    }

    pub(super) const fn of_node(mut self) -> Row {
        self.is_of_node = true;
        self
    }

    pub(super) const fn inherited(mut self) -> Row {
        self.is_inherited = true;
        self
    }
}

/// When a directive may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// By CONFIG SET.
    Live,
    /// By CONFIG SET, if `enable-protected-configs` allows it to the client.
    Protected,
    /// Only in the file or on the command line.
    Start,
    /// Like `Start`, but CONFIG GET does not show the directive, because it is an instruction and not a value.
    FileOnly,
}

/// Whether the directive has an effect in FlintKV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// The value is accepted and stored. The log says once why it has no effect.
    Inert(&'static str),
}

words!(
    /// The section of the documentation that lists the directive, by its title, in the documentation's order.
    Group {
        Flash = "Flash",
        Memory = "Memory",
        Network = "Network",
        Access = "Access",
        Clients = "Limits of a client",
        Keys = "Keys and workers",
        Observation = "Log, slow log, latency",
        Process = "Process",
        Persistence = "Persistence",
        Replication = "Replication",
        Cluster = "Cluster",
        Tls = "TLS",
        Console = "Node and console",
        Types = "Encodings of other types",
        Other = "Others",
        /// A directive of Redis that CONFIG GET shows only when asked for the exact name.
        Hidden = "Hidden",
    }
);

/// Makes [`Row`]s, and the fields of `Config` that they are read into, of the table of directives. A row is
/// ```text
/// "NAME" | "ALIAS" FLAGS: KIND, "DEFAULT", CHANGE, FIELDS => "MEANING";
/// ```
/// FLAGS are `inert` (it has no effect, and MEANING says why), `of_node` and `inherited`; each may be missing, like the alias. A field is
/// `.field: Type`, or `tls.field: Type` and so on in a part of `Config`. Its value is made of the directive's words by the type (`Typed`),
/// or by a function behind `=`, which also sees what other directives say (`Values`).
macro_rules! directives {
    ($($group:ident {$(
        $name:literal $(| $alias:literal)? $($flag:ident)*: $kind:expr, $default:literal, $change:ident
            $(, $(#[$doc:meta])* .$own:ident: $own_type:ty $(= $own_of:expr)?)*
            $(, tls.$tls:ident: $tls_type:ty $(= $tls_of:expr)?)*
            $(, console.$console:ident: $console_type:ty)*
            $(, redis_files.$files:ident: $files_type:ty)*
            $(, primary.$primary:ident: $primary_type:ty $(= $primary_of:expr)?)*
            $(, replica.$replica:ident: $replica_type:ty)*
            => $about:tt;
    )*})*) => {
        /// Every directive of Redis 7.2, and FlintKV's own.
        pub const ROWS: &[Row] = &[$($(
            Row::new($name, $kind, $default, Change::$change, Group::$group, $about)$(.alias($alias))?$(.$flag())*,
        )*)*];

        /// The configuration that the server reads. Paths are absolute, sizes are bytes, percentages are resolved to bytes.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($($($(#[$doc])* #[doc = $about] pub $own: $own_type,)*)*)*
            pub tls: TlsSettings,
            pub console: ConsoleSettings,
            pub redis_files: RedisFiles,
            pub primary: PrimarySettings,
            pub replica: ReplicaSettings,
        }
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct TlsSettings { $($($(#[doc = $about] pub $tls: $tls_type,)*)*)* }
        /// Where the console listens, and its other start settings.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct ConsoleSettings { $($($(#[doc = $about] pub $console: $console_type,)*)*)* }
        /// The files of a dataset: those of Redis that are loaded and written, and the journal.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct RedisFiles { $($($(#[doc = $about] pub $files: $files_type,)*)*)* }
        /// What a primary wants of its replicas.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct PrimarySettings { $($($(#[doc = $about] pub $primary: $primary_type,)*)*)* }
        /// How the database follows a primary.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct ReplicaSettings { $($($(#[doc = $about] pub $replica: $replica_type,)*)*)* }

        impl Config {
            pub(super) fn of(v: &Values<'_>) -> Config {
                Config {
                    $($($($own: directives!(@value v $name, $own_type $(, $own_of)?),)*)*)*
                    tls: TlsSettings { $($($($tls: directives!(@value v $name, $tls_type $(, $tls_of)?),)*)*)* },
                    console: ConsoleSettings { $($($($console: directives!(@value v $name, $console_type),)*)*)* },
                    redis_files: RedisFiles { $($($($files: directives!(@value v $name, $files_type),)*)*)* },
                    primary: PrimarySettings {
                        $($($($primary: directives!(@value v $name, $primary_type $(, $primary_of)?),)*)*)*
                    },
                    replica: ReplicaSettings { $($($($replica: directives!(@value v $name, $replica_type),)*)*)* },
                }
            }
        }
    };
    (@value $v:ident $name:literal, $type:ty) => { <$type as Typed>::of($v, $v.words($name)) };
    (@value $v:ident $name:literal, $type:ty, $of:expr) => {{
        let of: fn(&Values<'_>, &[String]) -> $type = $of;
        of($v, $v.words($name))
    }};
}
pub(super) use directives;
