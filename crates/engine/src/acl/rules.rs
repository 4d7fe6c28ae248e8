//! Owns what a user may do: it applies the rules of ACL SETUSER one by one, and checks commands against them. Never
//! knows a connection, nor which users exist.

use super::catalog::Catalog;
use base::glob;
use commands::host::{Denial, Rights};
use commands::{Args, Channels, Row, Use};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The SHA-256 of a password. The password itself is not kept.
pub type Digest = [u8; 32];

pub fn hash(password: &[u8]) -> Digest {
    digest(&SHA256, password).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A user. The unchanged `default` user may do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: Box<str>,
    pub enabled: bool,
    /// Any password is accepted.
    pub nopass: bool,
    /// RESTORE checks payloads of this user deeply.
    pub sanitize: bool,
    pub passwords: Vec<Digest>,
    /// The first selector is the user's own; rules outside parentheses apply to it.
    selectors: Vec<Selector>,
}

/// Rules that allow a command together: the command, all its keys and all its channels must fit one selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// One bit per command number. The last bit is for future commands.
    allowed: Vec<u64>,
    /// Every command is allowed, and none was removed since.
    all_commands: bool,
    /// `+get`, `-@dangerous`: in order, without the rules that a later rule overrode.
    commands: Vec<String>,
    /// For commands that are not allowed otherwise: the first arguments with which they are (`+select|0`).
    first_args: BTreeMap<usize, Vec<Box<[u8]>>>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Box<[u8]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyPattern {
    access: Use,
    glob: Box<[u8]>,
}

/// Why a rule was refused, in Redis's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Unknown,
    Syntax,
    AfterAllKeys,
    AfterAllChannels,
    NoSuchPassword,
    BadHash,
    ArgOfSubcommand,
}

impl Refusal {
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Unknown => "Unknown command or category name in ACL",
            Refusal::Syntax => "Syntax error",
            Refusal::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Refusal::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Refusal::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Refusal::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Refusal::ArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

impl User {
    pub fn new(name: &str, all_channels: bool) -> User {
        User {
            name: name.into(),
            enabled: false,
            nopass: false,
            sanitize: true,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
        }
    }

    /// The user `default` of a server whose configuration does not mention it.
    pub fn default_user() -> User {
        let mut user = User::new("default", true);
        for rule in ["on", "nopass", "allkeys", "allcommands"] {
            user.apply(rule.as_bytes(), true).expect("plain rules");
        }
        user
    }

    /// Whether new connections are this user's without authentication, if this is `default`.
    pub fn is_open(&self) -> bool {
        self.enabled && self.nopass
    }

    /// Whether the user may do everything.
    pub fn is_unlimited(&self) -> bool {
        let own = self.own();
        own.all_commands && own.all_keys && own.all_channels
    }

    pub fn own(&self) -> &Selector {
        &self.selectors[0]
    }

    /// The selectors in parentheses.
    pub fn others(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Applies one word of ACL SETUSER, including parentheses. `all_channels`: `acl-pubsub-default allchannels`.
    pub fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), Refusal> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("nopass") => (self.nopass, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.nopass, self.passwords) = (false, Vec::new()),
            _ if is("sanitize-payload") => self.sanitize = true,
            _ if is("skip-sanitize-payload") => self.sanitize = false,
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => *self = User::new(&self.name, all_channels),
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', hex @ ..] => self.add_password(unhex(hex).ok_or(Refusal::BadHash)?),
            [b'<', password @ ..] => self.remove_password(hash(password))?,
            [b'!', hex @ ..] => self.remove_password(unhex(hex).ok_or(Refusal::BadHash)?)?,
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(all_channels);
                for word in inner.split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
                    selector.apply(word)?;
                    // Between other words this parenthesis would close the selector, so an ACL file could not store
                    // the word.
                    if word.ends_with(b")") {
                        return Err(Refusal::Syntax);
                    }
                }
                self.selectors.push(selector);
            }
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, digest: Digest) {
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, digest: Digest) -> Result<(), Refusal> {
        let at = self.passwords.iter().position(|known| *known == digest).ok_or(Refusal::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Compares in constant time: the time reveals neither where passwords differ nor which one fits.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let mut matches = false;
        for known in &self.passwords {
            let differs = known.iter().zip(&given).fold(0, |differs, (a, b)| differs | (a ^ b));
            matches |= std::hint::black_box(differs) == 0;
        }
        self.enabled && (self.nopass || matches)
    }

    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.nopass {
            flags.push("nopass");
        }
        flags.push(if self.sanitize { "sanitize-payload" } else { "skip-sanitize-payload" });
        flags
    }

    /// The line of ACL LIST, starting with `user`. The configuration file has the same line.
    pub fn line(&self) -> String {
        format!("user {} {}", self.name, self.rules().join(" "))
    }

    /// Rules that make this user from a new one.
    pub fn rules(&self) -> Vec<String> {
        let mut rules: Vec<String> = self.flags().into_iter().map(str::to_owned).collect();
        rules.extend(self.passwords.iter().map(|digest| format!("#{}", hex(digest))));
        rules.extend(self.own().words());
        rules.extend(self.others().iter().map(|selector| format!("({})", selector.words().join(" "))));
        rules
    }
}

impl Rights for User {
    fn check(&self, id: usize, row: &Row, args: Args<'_>, positions: &[usize]) -> Result<(), Denial> {
        let mut worst = None;
        for selector in &self.selectors {
            match selector.check(id, row, args, positions) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(Some(denial)),
            }
        }
        Err(worst.expect("a user has a selector"))
    }

    fn reads_every_key(&self, command: &Row) -> bool {
        let Some(id) = Catalog::get().find(command.name.as_bytes()) else { return false };
        self.selectors.iter().any(|selector| {
            let all = |pattern: &KeyPattern| pattern.access.read && *pattern.glob == *b"*";
            selector.allows_command(id) && (selector.all_keys || selector.keys.iter().any(all))
        })
    }

    fn rules(&self) -> Vec<String> {
        let rules = User::rules(self);
        // Nobody else needs to know the user's passwords. No word of a rule has a space in it.
        let words = rules.iter().filter(|rule| !rule.starts_with('#')).flat_map(|rule| rule.split(' '));
        words.map(str::to_owned).collect()
    }
}

impl Selector {
    fn new(all_channels: bool) -> Selector {
        Selector {
            allowed: vec![0; Catalog::get().entries.len() / 64 + 1],
            all_commands: false,
            commands: Vec::new(),
            first_args: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    fn apply(&mut self, rule: &[u8]) -> Result<(), Refusal> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => (self.all_keys, self.keys) = (true, Vec::new()),
            _ if is("resetkeys") => (self.all_keys, self.keys) = (false, Vec::new()),
            _ if is("allchannels") || is("&*") => (self.all_channels, self.channels) = (true, Vec::new()),
            _ if is("resetchannels") => (self.all_channels, self.channels) = (false, Vec::new()),
            _ if is("allcommands") || is("+@all") => self.set_all(true),
            _ if is("nocommands") || is("-@all") => self.set_all(false),
            [b'~', glob @ ..] => self.add_keys(Use::BOTH, glob)?,
            [b'%', rest @ ..] => {
                let at = rest.iter().position(|&byte| byte == b'~').ok_or(Refusal::Syntax)?;
                let mut access = Use::NONE;
                for letter in &rest[..at] {
                    match letter.to_ascii_uppercase() {
                        b'R' if !access.read => access.read = true,
                        b'W' if !access.write => access.write = true,
                        _ => return Err(Refusal::Syntax),
                    }
                }
                if access == Use::NONE {
                    return Err(Refusal::Syntax);
                }
                self.add_keys(access, &rest[at + 1..])?;
            }
            [b'&', glob @ ..] => {
                if self.all_channels {
                    return Err(Refusal::AfterAllChannels);
                }
                printable(glob)?;
                if !self.channels.iter().any(|known| **known == *glob) {
                    self.channels.push(glob.into());
                }
            }
            [sign @ (b'+' | b'-'), b'@', category @ ..] => self.set_category(category, *sign == b'+')?,
            [b'+', command @ ..] => self.add_command(command)?,
            [b'-', command @ ..] => {
                let id = Catalog::get().find(command).ok_or(Refusal::Unknown)?;
                self.set_command(id, false);
                self.note(&Catalog::get().entries[id].name, false);
            }
            _ => return Err(Refusal::Syntax),
        }
        Ok(())
    }

    fn set_all(&mut self, on: bool) {
        self.allowed.fill(if on { u64::MAX } else { 0 });
        self.all_commands = on;
        self.commands.clear();
        self.first_args.clear();
    }

    fn add_keys(&mut self, access: Use, glob: &[u8]) -> Result<(), Refusal> {
        if self.all_keys {
            return Err(Refusal::AfterAllKeys);
        }
        printable(glob)?;
        match self.keys.iter_mut().find(|known| *known.glob == *glob) {
            Some(known) => known.access = known.access.and(access),
            None => self.keys.push(KeyPattern { access, glob: glob.into() }),
        }
        Ok(())
    }

    fn set_category(&mut self, name: &[u8], on: bool) -> Result<(), Refusal> {
        let catalog = Catalog::get();
        let category = catalog.category(name).ok_or(Refusal::Unknown)?;
        for id in 0..catalog.entries.len() {
            if catalog.entries[id].categories.contains(&category) {
                self.set_command(id, on);
            }
        }
        self.note(&format!("@{category}"), on);
        Ok(())
    }

    fn add_command(&mut self, rule: &[u8]) -> Result<(), Refusal> {
        let catalog = Catalog::get();
        let Some(at) = rule.iter().rposition(|&byte| byte == b'|') else {
            let id = catalog.find(rule).ok_or(Refusal::Unknown)?;
            self.set_command(id, true);
            self.note(&catalog.entries[id].name, true);
            return Ok(());
        };
        let (command, arg) = (&rule[..at], &rule[at + 1..]);
        let id = catalog.find(command).ok_or(Refusal::Unknown)?;
        let entry = &catalog.entries[id];
        if entry.is_subcommand {
            return Err(Refusal::ArgOfSubcommand);
        }
        if arg.is_empty() {
            return Err(Refusal::Syntax);
        }
        if !entry.subcommands.is_empty() {
            let id = catalog.find(rule).ok_or(Refusal::Unknown)?;
            self.set_command(id, true);
        } else {
            let args = self.first_args.entry(id).or_default();
            if !args.iter().any(|known| known.eq_ignore_ascii_case(arg)) {
                args.push(arg.into());
            }
        }
        self.note(&String::from_utf8_lossy(rule), true);
        Ok(())
    }

    /// A container stands for all its subcommands.
    fn set_command(&mut self, id: usize, on: bool) {
        for id in std::iter::once(id).chain(Catalog::get().entries[id].subcommands.clone()) {
            let bit = 1 << (id % 64);
            if on {
                self.allowed[id / 64] |= bit;
            } else {
                self.allowed[id / 64] &= !bit;
                self.all_commands = false;
            }
            self.first_args.remove(&id);
        }
    }

    /// Of several rules for the same command only the last counts.
    fn note(&mut self, rule: &str, on: bool) {
        let rule = rule.to_ascii_lowercase();
        self.commands.retain(|known| {
            let rest = known[1..].strip_prefix(rule.as_str());
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        self.commands.push(format!("{}{rule}", if on { '+' } else { '-' }));
    }

    fn allows_command(&self, id: usize) -> bool {
        self.all_commands || self.allowed[id / 64] & 1 << (id % 64) != 0
    }

    fn check(&self, id: usize, row: &Row, args: Args<'_>, positions: &[usize]) -> Result<(), Denial> {
        if !self.allows_command(id) && !row.flags.contains(&commands::Flag::NoAuth) {
            let first = self.first_args.get(&id).zip(args.get(1));
            if !first.is_some_and(|(known, given)| known.iter().any(|known| known.eq_ignore_ascii_case(given))) {
                return Err(Denial::Command);
            }
        }
        if !self.all_keys {
            for (nth, &at) in positions.iter().enumerate() {
                let access = row.access(nth, &args);
                if !args.get(at).is_some_and(|key| self.allows_key(key, access)) {
                    return Err(Denial::Key(at));
                }
            }
        }
        if !self.all_channels {
            let (channels, is_pattern) = match row.channels {
                Channels::None => (0..0, false),
                Channels::First => (1..2, false),
                Channels::All => (1..args.len(), false),
                Channels::Patterns => (1..args.len(), true),
            };
            for at in channels {
                if !args.get(at).is_some_and(|channel| self.allows_channel(channel, is_pattern)) {
                    return Err(Denial::Channel(at));
                }
            }
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], access: Use) -> bool {
        self.keys.iter().any(|pattern| pattern.access.covers(access) && glob::matches(&pattern.glob, key, false))
    }

    /// A pattern must be literally one of the allowed patterns.
    fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let fits = |known: &[u8]| if is_pattern { known == channel } else { glob::matches(known, channel, false) };
        self.all_channels || self.channels.iter().any(|known| fits(known))
    }

    /// Whether future commands are allowed.
    fn allows_future(&self) -> bool {
        let id = Catalog::get().entries.len();
        self.allowed[id / 64] & 1 << (id % 64) != 0
    }

    pub fn command_rules(&self) -> String {
        let mut text = String::from(if self.allows_future() { "+@all" } else { "-@all" });
        for rule in &self.commands {
            // Writing to a String cannot fail.
            let _ = write!(text, " {rule}");
        }
        text
    }

    pub fn key_rules(&self) -> Vec<String> {
        if self.all_keys {
            return vec!["~*".to_owned()];
        }
        let rule = |pattern: &KeyPattern| {
            let head = match (pattern.access.read, pattern.access.write) {
                (true, true) => "~",
                (true, false) => "%R~",
                _ => "%W~",
            };
            format!("{head}{}", String::from_utf8_lossy(&pattern.glob))
        };
        self.keys.iter().map(rule).collect()
    }

    pub fn channel_rules(&self) -> Vec<String> {
        if self.all_channels {
            return vec!["&*".to_owned()];
        }
        self.channels.iter().map(|glob| format!("&{}", String::from_utf8_lossy(glob))).collect()
    }

    /// Rules that make this selector from an empty one.
    fn words(&self) -> Vec<String> {
        let mut words = self.key_rules();
        if !self.all_channels {
            words.push("resetchannels".to_owned());
        }
        words.extend(self.channel_rules());
        words.push(self.command_rules());
        words
    }
}

/// The configuration file must be able to store a pattern.
fn printable(glob: &[u8]) -> Result<(), Refusal> {
    let good =
        std::str::from_utf8(glob).is_ok_and(|text| !text.contains(['\0', ' ', '\t', '\n', '\r', '\x0b', '\x0c']));
    if good { Ok(()) } else { Err(Refusal::Syntax) }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(hex: &[u8]) -> Option<Digest> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digest = Digest::default();
    if hex.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}
