//! Owns what an operator's definition of a database consists of: a row for each field, with its texts. The definition, its changes, the
//! database's file, the API's requests and the options of `flintkv database` are made of the rows. Never knows a node or a request.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::{ConfigStore, join_words};

/// What is known of a field of a definition. Texts have no full stop at their end.
#[derive(Debug)]
pub struct Field {
    /// In [`Definition`], in the API and in errors.
    pub name: &'static str,
    pub form: Form,
    /// The directive of the database's file; empty: there is none, or several: see `Field::directives`.
    pub directive: &'static str,
    /// The part of the help that lists it: Limits, Endpoints or Placement.
    pub section: &'static str,
    /// Of `flintkv database create`, and what stands for its value in the help.
    pub option: (&'static str, &'static str),
    pub is_required: bool,
    /// Whether it may change while the database serves.
    pub can_change: bool,
    /// Whether it is shown of a database that is there.
    pub is_shown: bool,
    pub about: &'static str,
    pub texts: Texts,
}

/// What else is said of a field. An empty text: what it is about will do.
#[derive(Debug)]
pub struct Texts {
    /// What a new database gets that is not told.
    pub missing: &'static str,
    /// Of a change, in the API.
    pub change: &'static str,
    /// Of the option of `create`; it also says what is missing.
    pub create: &'static str,
    /// Of the option of `resize`.
    pub resize: &'static str,
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Port,
    Number,
    /// Bytes.
    Size,
    /// Bytes; on the command line also a share of the memory limit.
    RamLimit,
    /// Milliseconds since 1970.
    Time,
    Policy,
    Codec,
    Text,
    Texts,
    Path,
    Password,
    /// One of [`PERSISTENCE`].
    Persistence,
    /// One of [`REPLICATION`].
    Replication,
    /// HOST:PORT; empty: none.
    Primary,
}

/// Whether a write waits for the in-sync replicas of its shard.
pub const REPLICATION: &[&str] = &["async", "sync"];

/// Nothing survives a restart; or `appendonly yes`, and the word is `appendfsync`.
pub const PERSISTENCE: &[&str] = &["none", "no", "everysec", "always"];

/// Makes [`FIELDS`], [`Definition`], [`NewDefinition`] and [`DefinitionChange`] of rows:
/// ```text
/// /// TEXT
/// name: Type = DEFAULT, SECTION, FORM, "DIRECTIVE", "OPTION" "VALUE", new: Type, change: Type { missing: "TEXT", … }
/// ```
/// A field that a new definition must have says its type behind `new:`; any other one may be missing there. One that may change says its
/// type behind `change:`.
macro_rules! fields {
    ($(
        #[doc = $about:literal] $(#[serde($hidden:ident)])?
        $name:ident: $type:ty = $default:expr, $section:ident, $form:ident, $directive:literal, $option:literal $value:literal
            $(, new: $new:ty)? $(, change: $(#[$change_attr:meta])* $change:ty)?
            {$($place:ident: $text:literal),*}
    )*) => {
        /// The fields of a definition, but for its name, in the order of the directives in the file.
        pub const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            form: Form::$form,
            directive: $directive,
            section: stringify!($section),
            option: ($option, $value),
            is_required: fields!(@given $($new)?),
            can_change: fields!(@given $($change)?),
            is_shown: !fields!(@given $($hidden)?),
            about: $about.trim_ascii(),
            texts: Texts { $($place: $text,)* ..NO_TEXTS },
        }),*];

        /// A database as an operator asks for it. It is serialized without what only a new database has, and without its password.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Definition {
            /// Lower-case letters, digits and hyphens.
            #[serde(skip_serializing)]
            pub name: String,
            $(#[doc = $about] $(#[serde($hidden)])? pub $name: $type,)*
        }

        impl Default for Definition {
            fn default() -> Definition {
                Definition { name: String::new(), $($name: $default,)* }
            }
        }

        impl Definition {
            /// The words of each field; none: it is not set.
            fn words(&self) -> Vec<(&'static Field, Vec<String>)> {
                let words = [$(self.$name.words()),*];
                FIELDS.iter().zip(words).collect()
            }

            /// What the directives of a database say.
            pub fn of(config: &ConfigStore) -> Definition {
                let mut definition = Definition::default();
                $(if let Some(value) = FieldValue::of_words(&config.words($directive)) {
                    definition.$name = value;
                })*
                definition
            }
        }

        /// A request for a new database: what is missing, the node chooses.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct NewDefinition {
            pub name: String,
            $(pub $name: fields!(@new $type $(, $new)?),)*
        }

        impl From<NewDefinition> for Definition {
            fn from(new: NewDefinition) -> Definition {
                let mut definition = Definition { name: new.name, ..Definition::default() };
                $(if let Some(value) = Option::<$type>::from(new.$name) {
                    definition.$name = value;
                })*
                definition
            }
        }

        /// What may change while a database serves.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct DefinitionChange {
            $($(#[doc = $about] $(#[$change_attr])* pub $name: Option<$change>,)?)*
        }

        impl DefinitionChange {
            /// The fields that change, and their new words.
            pub fn words(&self) -> Vec<(&'static Field, Vec<String>)> {
                let words = [$($(self.$name.as_ref().map(<$change as FieldValue>::words),)?)*];
                FIELDS.iter().filter(|field| field.can_change).zip(words).filter_map(|(field, words)| Some((field, words?))).collect()
            }
        }
    };
    (@given) => { false };
    (@given $type:ty) => { true };
    (@new $type:ty) => { Option<$type> };
    (@new $type:ty, $new:ty) => { $new };
}

const NO_TEXTS: Texts = Texts { missing: "", change: "", create: "", resize: "" };

fields! {
    /// TCP port
    port: u16 = 0, Endpoints, Port, "port", "port" "PORT" { missing: "the next free one" }
    /// TCP port with TLS; the certificate is the node's
    tls_port: u16 = 0, Endpoints, Port, "tls-port", "tls-port" "PORT" {}
    /// Unix socket
    unixsocket: Option<PathBuf> = None, Endpoints, Path, "unixsocket", "unixsocket" "PATH" {}
    /// Addresses to listen on; empty: the node's
    bind: Vec<String> = vec![], Endpoints, Texts, "bind", "bind" "ADDRESS" { create: "Address to listen on; repeatable [default: the node's]" }

    /// RAM and flash together
    memory_limit_bytes: u64 = 0, Limits, Size, "memory-limit", "memory-limit" "SIZE", new: u64, change: u64 {
        create: "RAM and flash together: 512mb, 10gb, 2tb"
    }
    /// The part of the memory limit that may be RAM
    ram_limit_bytes: u64 = 0, Limits, RamLimit, "ram-limit", "ram-limit" "SIZE|%", change: u64 {
        missing: "30 % of the memory limit, or all of it on a node without flash",
        create: "The part of the memory limit that may be RAM, as a size or a percentage [default: 30%]",
        resize: "The part of the memory limit that may be RAM, as a size or a percentage"
    }
    /// All files on flash, with the journal and the checkpoints of persistence; 0: what they need
    flash_limit_bytes: u64 = 0, Limits, Size, "flash-limit", "flash-limit" "SIZE", change: u64 {
        create: "All files on flash, with the journal and the checkpoints of persistence [default: what they need]"
    }
    /// Which keys make room when RAM and flash are full
    policy: String = "noeviction".to_owned(), Limits, Policy, "maxmemory-policy", "policy" "POLICY", change: String { missing: "noeviction" }
    /// Compression of values on flash
    compression: String = "lz4".to_owned(), Limits, Codec, "flash-compression", "compression" "KIND", change: String {
        missing: "lz4", resize: "Compression of values on flash, from now on"
    }

    /// Parts that a cluster divides the keys into; 1 on a node outside of a cluster
    shards: u32 = 1, Placement, Number, "", "shards" "N" {}
    /// Copies of each shard that a cluster keeps on other nodes beside the primary; 0 on a node outside of a cluster, where replica_of makes a replica
    replicas: u32 = 0, Placement, Number, "", "replicas" "N" {
        create: "Copies of each shard that a cluster keeps on other nodes beside the primary [default: 0]. Outside of a cluster, create a replica with --replica-of on another node"
    }
    /// When a write of a database with replicas is acknowledged: async, at once; sync, when every replica that may take over has it
    replication: String = "async".to_owned(), Placement, Replication, "", "replication" "KIND" { missing: "async" }
    /// Writes are refused while fewer copies of their shard are in sync, the primary among them
    min_in_sync: u32 = 1, Placement, Number, "", "min-in-sync" "N" { missing: "1" }
    /// Whether the data survives restarts: none, or when it is put on the device: no, everysec, always
    persistence: String = "none".to_owned(), Placement, Persistence, "", "persistence" "KIND", change: String {
        missing: "everysec with flash, otherwise none",
        change: "none, no, everysec or always, in a separate request. The reply comes when the change is in effect, or after some seconds",
        resize: "Whether the data survives restarts: none, no, everysec, always; must be the only change"
    }
    /// How long a restart should take at most, in seconds; 0: no target
    recovery_time_target_s: u32 = 10, Placement, Number, "recovery-time-target", "recovery-time-target" "SECONDS", change: u32 { missing: "10" }
    /// The backup to begin with: its directory below the node's backup-path
    #[serde(skip_serializing)]
    from: Option<String> = None, Placement, Text, "", "from" "BACKUP" {}
    /// The moment whose dataset the database gets, in milliseconds since 1970: the newest backup before it, and the archived journal up to it. from may then be a directory of backups, such as a database's name
    #[serde(skip_serializing)]
    at_ms: Option<u64> = None, Placement, Time, "", "at" "TIME" {
        missing: "the moment of the backup",
        create: "Begin with the dataset of this time, which may be between two backups: in UTC, as 2026-11-23T04:05:06Z, or as a time span before now: 10m. --from may then be the directory of all backups of a database, which has the database's name"
    }
    /// How often the node makes a backup: 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never
    backup_schedule: String = String::new(), Placement, Text, "backup-schedule", "backup-schedule" "SPAN", change: String {
        create: "How often the node makes a backup: 30m, 6h, 1d, '1d at 03:00' (UTC) [default: never]",
        resize: "How often the node makes a backup: 30m, 6h, 1d; empty: never"
    }
    /// How many scheduled backups are kept
    backup_keep: u32 = 7, Placement, Number, "backup-keep", "backup-keep" "N", change: u32 { missing: "7" }
    /// For how long back a database can be created with the dataset of any time: 7d, 12h; empty: the journal is not archived
    backup_journal_keep: String = String::new(), Placement, Text, "backup-journal-keep", "backup-journal-keep" "SPAN", change: String {
        create: "For how long --at reaches back: the journal is archived with the backups: 7d, 12h [default: not archived]",
        resize: "For how long `create --at` reaches back: 7d, 12h; empty: the journal is not archived"
    }
    /// HOST:PORT of the primary that the database follows; empty: it is a primary. A primary that wants a login is followed with /databases/{name}/replicate
    replica_of: String = String::new(), Placement, Primary, "", "replica-of" "HOST:PORT", change: String {
        change: "HOST:PORT of the primary to follow, whose dataset replaces this one; empty: it becomes a primary. In a separate request",
        create: "The primary that the database follows from its start [default: it is a primary]"
    }
    /// The zones of the nodes where a cluster places shards; empty: any
    zones: Vec<String> = vec![], Placement, Texts, "", "zone" "ZONE" {
        create: "A zone of the nodes where a cluster places shards; repeatable [default: any]"
    }

    /// Password for clients
    #[serde(skip_serializing)]
    password: Option<String> = None, Endpoints, Password, "requirepass", "password" "TEXT",
        change: #[serde(default, deserialize_with = "given")] Option<String> {
        change: "null removes the password",
        create: "Password for clients; without a value, the command asks for it",
        resize: "Password for clients; without a value, the command asks for it"
    }
}

/// For a field that may be null: `Some(None)` is null, `None` is a field that is missing.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Field {
    /// What these words are in a file: directives and their words.
    fn directives(&self, words: &[String]) -> Vec<(&'static str, Vec<String>)> {
        match (self.form, words) {
            (Form::Persistence, [none]) if none == "none" => vec![("appendonly", vec!["no".to_owned()])],
            (Form::Persistence, [_]) => vec![("appendonly", vec!["yes".to_owned()]), ("appendfsync", words.to_vec())],
            (Form::Primary, [primary]) => host_and_port(primary)
                .map(|(host, port)| ("replicaof", vec![host.to_owned(), port.to_string()]))
                .into_iter()
                .collect(),
            // The limit follows from the others.
            (Form::Size, [zero]) if zero == "0" => vec![],
            (_, []) => vec![],
            _ if self.directive.is_empty() => vec![],
            _ => vec![(self.directive, words.to_vec())],
        }
    }
}

impl Definition {
    /// The text of the database's configuration file.
    pub fn file(&self) -> String {
        let mut text = format!(
            "# Database {} of a FlintKV node. The node reads it at start; the console and CONFIG REWRITE write it.\n",
            self.name
        );
        for (name, words) in self.words().iter().flat_map(|(field, words)| field.directives(words)) {
            text.push_str(&format!("{name} {}\n", join_words(&words)));
        }
        text
    }
}

impl DefinitionChange {
    /// The change as directives of CONFIG SET, but for the persistence and the primary.
    pub fn directives(&self) -> Vec<(&'static str, String)> {
        let words = self.words().into_iter().filter(|(field, _)| !field.directive.is_empty());
        words.map(|(field, words)| (field.directive, words.concat())).collect()
    }
}

/// Of HOST:PORT, where an address of IPv6 may be in brackets.
pub fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    port.parse().ok().filter(|&port| port != 0 && is_host).map(|port| (host, port))
}

/// The value of a field as words of a directive.
trait FieldValue: Sized {
    fn words(&self) -> Vec<String>;
    /// `None`: the words say nothing.
    fn of_words(words: &[String]) -> Option<Self>;
}

macro_rules! field_values {
    ($($type:ty: |$value:ident| $words:expr, |$of:ident| $read:expr;)*) => {
        $(impl FieldValue for $type {
            fn words(&self) -> Vec<String> {
                let $value = self;
                $words
            }
            fn of_words($of: &[String]) -> Option<$type> {
                $read
            }
        })*
    };
}

field_values! {
    u16: |number| vec![number.to_string()], |words| words.first()?.parse().ok();
    u32: |number| vec![number.to_string()], |words| words.first()?.parse().ok();
    u64: |number| vec![number.to_string()], |words| words.first()?.parse().ok();
    Option<u64>: |number| number.iter().map(u64::to_string).collect(), |words| Some(words.first()?.parse().ok());
    String: |text| if text.is_empty() { vec![] } else { vec![text.clone()] }, |words| words.first().cloned();
    Option<String>: |text| text.iter().cloned().collect(), |words| Some(words.first().cloned());
    Vec<String>: |texts| texts.clone(), |words| Some(words.to_vec());
    Option<PathBuf>: |path| path.iter().map(|path| path.display().to_string()).collect(), |words| Some(words.first().map(PathBuf::from));
}

#[cfg(test)]
mod tests {
    use super::super::{ROWS, table};
    use super::*;

    /// What a definition says of itself agrees with what its directives say.
    #[test]
    fn defaults_are_those_of_the_directives() {
        for (field, words) in Definition::default().words() {
            let Some(row) = table::find(field.directive).map(|index| &ROWS[index]) else {
                assert_eq!(field.directive, "", "{}", field.name);
                continue;
            };
            if matches!(field.form, Form::Number | Form::Policy | Form::Codec) {
                assert_eq!(
                    (words.concat().as_str(), field.texts.missing),
                    (row.default, row.default),
                    "{}",
                    field.name
                );
            }
        }
    }
    #[test]
    fn a_file_has_a_line_for_each_directive_that_is_set() {
        let sound = Definition {
            name: "a".to_owned(),
            port: 7000,
            memory_limit_bytes: 2,
            ram_limit_bytes: 1,
            ..Definition::default()
        };
        let lines = |definition: &Definition| {
            definition.file().lines().skip(1).map(str::to_owned).collect::<Vec<_>>().join("; ")
        };
        let limits = "port 7000; tls-port 0; memory-limit 2; ram-limit 1";
        let values = "maxmemory-policy noeviction; flash-compression lz4";
        let least = format!("{limits}; {values}; appendonly no; recovery-time-target 10; backup-keep 7");
        assert_eq!(lines(&sound), least);
        let more = Definition {
            bind: vec!["127.0.0.1".to_owned(), "-::1".to_owned()],
            flash_limit_bytes: 3,
            persistence: "always".to_owned(),
            replica_of: "[::1]:6379".to_owned(),
            password: Some("two words".to_owned()),
            ..sound
        };
        let most = least
            .replace("tls-port 0;", "tls-port 0; bind 127.0.0.1 -::1;")
            .replace("ram-limit 1;", "ram-limit 1; flash-limit 3;")
            .replace("appendonly no", "appendonly yes; appendfsync always");
        assert_eq!(lines(&more), most + "; replicaof ::1 6379; requirepass \"two words\"");
    }

    #[test]
    fn a_change_sets_the_directives_that_it_names() {
        let change = DefinitionChange {
            flash_limit_bytes: Some(0),
            backup_schedule: Some(String::new()),
            persistence: Some("no".to_owned()),
            password: Some(None),
            ..DefinitionChange::default()
        };
        let set = |name, value: &str| (name, value.to_owned());
        assert_eq!(change.directives(), [set("flash-limit", "0"), set("backup-schedule", ""), set("requirepass", "")]);
        let names: Vec<_> = change.words().iter().map(|(field, _)| field.name).collect();
        assert_eq!(names, ["flash_limit_bytes", "persistence", "backup_schedule", "password"]);
    }
}
