//! Owns which stripe the keys of commands are in. Never runs a command.

use engine::{Directory, bit};
use resp::{Args, Limits, Parsed, Progress, ProtocolError, Source, Span, parse};
use store::Hasher;

/// The limits of a file: who wrote it has accepted its commands.
const LIMITS: Limits =
    Limits { bulk_bytes_max: u32::MAX as usize, args_count_max: u32::MAX as usize, ..Limits::DEFAULT };

/// What a primary tells its replicas beside changes.
const MESSAGES: [&[u8]; 4] = [b"ping", b"replconf", b"publish", b"spublish"];

/// What a list of commands touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    /// The stripe of all their keys. `None`: the keys are in several stripes, or the commands touch what no key names.
    pub stripe: Option<usize>,
    pub commands: u32,
    /// One of them is SELECT.
    pub selects: bool,
    /// The logical database that the last SELECT has chosen.
    pub selected: Option<u32>,
    /// It is one command that changes nothing: PING, REPLCONF or a message.
    pub is_message: bool,
    /// One of them is refused to clients when there is no room.
    pub needs_room: bool,
}

/// Reads commands as clients send them, and finds their keys.
pub struct Finder<'d> {
    directory: &'d Directory,
    hasher: &'d Hasher,
    progress: Progress,
    spans: Vec<Span>,
    positions: Vec<usize>,
}

/// What one command touches.
enum Keys {
    /// It only frames the others, or chooses the logical database of its keys.
    Nothing,
    One(usize),
    Several,
}

impl<'d> Finder<'d> {
    pub fn new(directory: &'d Directory, hasher: &'d Hasher) -> Finder<'d> {
        Finder { directory, hasher, progress: Progress::default(), spans: Vec::new(), positions: Vec::new() }
    }

    /// Whether this one whole command of this name changes no data, neither by itself nor for what follows. An unknown command may do
    /// anything.
    pub fn changes_nothing(&mut self, name: &[u8], command: &[u8]) -> bool {
        const CHANGES: u32 = bit::WRITE | bit::MAY_REPLICATE | bit::SCRIPT;
        let Some(found) = self.directory.find(name).or_else(|| self.directory.original(name)) else { return false };
        if found.is(CHANGES) || NEEDED.contains(&found.row.name) {
            return false;
        }
        if !found.is(bit::CONTAINER) {
            return true;
        }
        self.spans.clear();
        match parse(command, &mut self.progress, &LIMITS, &mut self.spans) {
            Ok(Parsed::Complete { source: Source::Input, .. }) => {
                let subcommand = found.subcommand(&Args::new(command, &self.spans));
                subcommand.is_some_and(|subcommand| !subcommand.is(CHANGES))
            }
            _ => false,
        }
    }

    /// `commands`: whole commands, one after the other.
    pub fn find(&mut self, mut commands: &[u8]) -> Result<Touched, String> {
        let (mut count, mut selects, mut stripe, mut is_several) = (0, false, None, false);
        let (mut selected, mut is_message, mut needs_room) = (None, false, false);
        while !commands.is_empty() {
            self.spans.clear();
            if commands[0] != b'*' {
                return Err("no command begins here".to_owned());
            }
            let consumed = match parse(commands, &mut self.progress, &LIMITS, &mut self.spans) {
                Ok(Parsed::Complete { consumed, source: Source::Input }) if !self.spans.is_empty() => consumed,
                Ok(Parsed::Complete { .. }) => return Err("no command begins here".to_owned()),
                Ok(Parsed::Incomplete { .. }) => return Err("a command is cut off".to_owned()),
                Err(error) => return Err(ProtocolError::text(error)),
            };
            let args = Args::new(commands, &self.spans);
            count += 1;
            if args[0].eq_ignore_ascii_case(b"select") {
                selects = true;
                selected = args.get(1).and_then(|db| std::str::from_utf8(db).ok()?.parse().ok());
            }
            is_message = count == 1 && MESSAGES.iter().any(|name| args[0].eq_ignore_ascii_case(name));
            needs_room |= self.directory.find(&args[0]).is_some_and(|command| command.is(bit::DENYOOM));
            match keys_of(self.directory, self.hasher, args, &mut self.positions) {
                Keys::Nothing => {}
                Keys::One(found) => is_several |= stripe.replace(found).is_some_and(|before| before != found),
                Keys::Several => is_several = true,
            }
            commands = &commands[consumed..];
        }
        Ok(Touched {
            stripe: stripe.filter(|_| !is_several),
            commands: count,
            selects,
            selected,
            is_message,
            needs_room,
        })
    }
}

/// The commands in whole commands of a stream that change something. `None`: these are no commands.
pub fn writes_in(mut commands: &[u8]) -> Option<u64> {
    let (mut spans, mut progress, mut count) = (Vec::new(), Progress::default(), 0);
    while !commands.is_empty() {
        spans.clear();
        let Ok(Parsed::Complete { consumed, .. }) = parse(commands, &mut progress, &LIMITS, &mut spans) else {
            return None;
        };
        count += u64::from(!spans.is_empty() && changes(&Args::new(commands, &spans)[0]));
        commands = &commands[consumed..];
    }
    Some(count)
}

/// Whether a command of the stream is more than a frame or a message.
pub fn changes(name: &[u8]) -> bool {
    let others = ["select", "multi", "exec", "ping", "replconf", "publish", "spublish"];
    !others.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Commands that frame others, choose the logical database, or bring scripts.
const NEEDED: [&str; 5] = ["multi", "exec", "discard", "select", "script"];

/// Only of a command whose row says so is it certain that it touches nothing but its keys.
fn keys_of(directory: &Directory, hasher: &Hasher, args: Args<'_>, positions: &mut Vec<usize>) -> Keys {
    let Some(mut command) = directory.find(&args[0]).or_else(|| directory.original(&args[0])) else {
        return Keys::Several;
    };
    if let "multi" | "exec" | "select" = command.row.name {
        return Keys::Nothing;
    }
    if command.is(bit::CONTAINER) {
        let Some(sub) = command.subcommand(&args) else { return Keys::Several };
        command = sub;
    }
    if !command.is(bit::WRITE) || command.is(bit::KEYLESS | bit::SCRIPT | bit::WHOLE) {
        return Keys::Several;
    }
    let stripe = |name| hasher.hash(name).stripe();
    if let Some(at) = command.only_key {
        return args.get(at.get()).map_or(Keys::Several, |name| Keys::One(stripe(name)));
    }
    positions.clear();
    command.row.keys.positions(&args, positions);
    let mut stripes = positions.iter().filter_map(|&at| args.get(at)).map(stripe);
    match stripes.next() {
        Some(first) if stripes.all(|other| other == first) => Keys::One(first),
        _ => Keys::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::client::encode_command;

    fn touched(lines: &[&str]) -> (Option<usize>, u32, bool) {
        let directory = Directory::new(commands::table::all(), &[("del".into(), "".into())]).unwrap();
        let hasher = Hasher::new([1, 2]);
        let mut bytes = Vec::new();
        for line in lines {
            encode_command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &mut bytes);
        }
        let mut finder = Finder::new(&directory, &hasher);
        let Touched { stripe, commands, selects, .. } = finder.find(&bytes).unwrap();
        (stripe, commands, selects)
    }

    #[test]
    fn commands_on_keys_of_one_stripe_touch_that_stripe() {
        let stripe = |name: &[u8]| Some(Hasher::new([9, 9]).hash(name).stripe());
        let (a, b) = (stripe(b"a"), stripe(b"b"));
        assert_ne!(a, b);
        for one in
            ["SET a 1", "set a 1", "DEL a", "XGROUP CREATE a g 0", "RENAME {a}x {a}y", "MSET a 1 {a}b 2", "MOVE a 3"]
        {
            assert_eq!(touched(&[one]), (a, 1, false), "{one}");
        }
        for several in [
            "RENAME a b",
            "MSET a 1 b 2",
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 1",
            "FUNCTION FLUSH",
            "XGROUP NOSUCH a",
            "SORT a STORE a",
            "EVAL x 1 a",
            "GET a",
            "NOSUCH a",
            "DEL",
        ] {
            assert_eq!(touched(&[several]), (None, 1, false), "{several}");
        }
        assert_eq!(touched(&["MULTI", "SET a 1", "SELECT 3", "DEL a", "EXEC"]), (a, 5, true));
        assert_eq!(touched(&["MULTI", "SET a 1", "SET b 1", "EXEC"]), (None, 4, false));
        assert_eq!(touched(&["MULTI", "SET a 1", "FLUSHALL", "SET a 1", "EXEC"]), (None, 5, false));
    }

    #[test]
    fn the_last_select_counts_and_messages_are_told() {
        let directory = Directory::new(commands::table::all(), &[]).unwrap();
        let hasher = Hasher::new([1, 2]);
        let find = |lines: &[&str]| {
            let mut bytes = Vec::new();
            for line in lines {
                encode_command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &mut bytes);
            }
            let Touched { selected, is_message, .. } = Finder::new(&directory, &hasher).find(&bytes).unwrap();
            (selected, is_message)
        };
        assert_eq!(find(&["MULTI", "SELECT 3", "SET a 1", "SELECT 7", "EXEC"]), (Some(7), false));
        for message in ["PING", "REPLCONF GETACK *", "publish c m"] {
            assert_eq!(find(&[message]), (None, true), "{message}");
        }
        assert_eq!(find(&["MULTI", "PUBLISH c m", "EXEC"]), (None, false));
    }

    #[test]
    fn reads_and_commands_about_the_connection_change_nothing() {
        let directory = Directory::new(commands::table::all(), &[("set".into(), "put".into())]).unwrap();
        let hasher = Hasher::new([1, 2]);
        let mut finder = Finder::new(&directory, &hasher);
        let mut is_idle = |line: &str| {
            let (words, mut bytes) = (line.split(' ').map(str::as_bytes).collect::<Vec<_>>(), Vec::new());
            encode_command(&words, &mut bytes);
            finder.changes_nothing(words[0], &bytes)
        };
        for line in [
            "GET k",
            "client reply off",
            "SUBSCRIBE a b",
            "QUIT",
            "SHUTDOWN",
            "CONFIG SET a b",
            "WAIT 1 0",
            "FUNCTION LIST",
        ] {
            assert!(is_idle(line), "{line}");
        }
        for line in [
            "put k v",
            "SET k v",
            "FUNCTION LOAD x",
            "EVAL x 0",
            "SCRIPT LOAD x",
            "MULTI",
            "select 3",
            "PFCOUNT p",
            "XGROUP CREATE a b c",
            "NOSUCH",
            "CLIENT NOSUCH",
            "FUNCTION",
        ] {
            assert!(!is_idle(line), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_is_an_error() {
        let directory = Directory::new(commands::table::all(), &[]).unwrap();
        let hasher = Hasher::new([1, 2]);
        for bad in [&b"*1\r\n$4\r\nPIN"[..], b"+OK\r\n", b"*0\r\n", b"*1\r\n:4\r\n", b"PING\r\n"] {
            assert!(Finder::new(&directory, &hasher).find(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
