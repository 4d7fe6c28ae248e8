//! Owns what happens to keys when a repeated command, a record of the journal or a command of the primary, needs a value that cannot be
//! read. What the command would have written is not known then, so its keys are lost: they answer with an error until they are set again or
//! deleted, which a later record may do. Never reads or changes a key: `execute` does.

use crate::directory::Command;
use commands::{Access, Args};
use parking_lot::Mutex;
use resp::Span;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::Key;

/// So many keys are named.
const NAMES_MAX: usize = 100;

/// What was lost since the start.
#[derive(Default)]
pub struct Lost {
    /// Commands that could not be repeated.
    pub commands: AtomicU64,
    keys: Mutex<Vec<LostKey>>,
}

/// A key, and the first command that made it lost.
#[derive(Clone, Debug)]
pub struct LostKey {
    pub db: usize,
    pub name: Box<[u8]>,
    /// The command's name, and the time that it saw.
    pub command: Box<str>,
    pub at_ms: u64,
    /// What could not be read.
    pub why: Box<str>,
}

impl Lost {
    /// Notes a command and the keys that it has made lost.
    pub fn note(&self, keys: Vec<LostKey>) {
        self.commands.fetch_add(1, Relaxed);
        let mut known = self.keys.lock();
        for key in keys {
            if known.len() < NAMES_MAX && !known.iter().any(|other| (other.db, &other.name) == (key.db, &key.name)) {
                known.push(key);
            }
        }
    }

    /// The first of these keys. Some may have been set again since.
    pub fn keys(&self) -> Vec<LostKey> {
        self.keys.lock().clone()
    }
}

impl fmt::Display for LostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostKey { db, name, command, at_ms, why } = self;
        write!(f, "{db}:{} ({command} at {at_ms} ms: {why})", name.escape_ascii())
    }
}

/// What is done instead of a command that cannot be repeated.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A part of it that may not need the value.
    Run(Vec<&'a [u8]>),
    /// The key is lost, in this logical database, or in that of the command.
    Lose { db: Option<&'a [u8]>, key: &'a [u8] },
}

/// The steps instead of a command. What is certain is done: a key that was renamed is gone, whatever it held. All other keys that it
/// writes are lost.
pub fn instead<'a>(command: &Command, args: Args<'a>, keys: &[Key<'a>]) -> Vec<Step<'a>> {
    let arg = |at: usize| args.get(at).unwrap_or_default();
    let lose = |key| Step::Lose { db: None, key };
    match command.row.name {
        "rename" | "renamenx" => vec![Step::Run(vec![b"DEL", arg(1)]), lose(arg(2))],
        "move" => vec![Step::Run(vec![b"DEL", arg(1)]), Step::Lose { db: Some(arg(2)), key: arg(1) }],
        "copy" => {
            let word = (3..args.len()).find(|&at| arg(at).eq_ignore_ascii_case(b"db"));
            vec![Step::Lose { db: word.map(|at| arg(at + 1)), key: arg(2) }]
        }
        "smove" => {
            vec![Step::Run(vec![b"SREM", arg(1), arg(3)]), Step::Run(vec![b"SADD", arg(2), arg(3)])]
        }
        "lmove" | "rpoplpush" => {
            let is_left = command.row.name == "lmove" && arg(3).eq_ignore_ascii_case(b"left");
            vec![Step::Run(vec![if is_left { b"LPOP" } else { b"RPOP" }, arg(1)]), lose(arg(2))]
        }
        // These commands are in the journal only because they did set the keys.
        "setnx" | "msetnx" | "getset" => {
            vec![Step::Run(std::iter::once(&b"MSET"[..]).chain(args.from(1)).collect())]
        }
        _ => {
            let is_written = |&(nth, _): &(usize, &Key<'a>)| command.row.key_use(nth, &args).needs.write;
            keys.iter().enumerate().filter(is_written).map(|(_, key)| lose(key.name)).collect()
        }
    }
}

/// Whether the command removes its keys, whatever they hold.
pub fn removes(command: &Command) -> bool {
    matches!(command.row.access, Access::All(all) if all.words[0] == "RM")
}

/// A command in words.
pub struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Words {
    pub fn of(words: &[&[u8]]) -> Words {
        let mut at = 0;
        let span = |word: &&[u8]| {
            let span = Span { start: at, len: word.len() as u32 };
            at += span.len;
            span
        };
        Words { spans: words.iter().map(span).collect(), bytes: words.concat() }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use store::Hasher;

    #[test]
    fn what_is_certain_is_done_and_the_rest_is_lost() {
        let directory = Directory::new(commands::table::all(), &[]).unwrap();
        let hasher = Hasher::new([1, 2]);
        for (line, wanted) in [
            ("APPEND k v", "lose k"),
            ("HSET k f v", "lose k"),
            ("PEXPIREAT k 5", "lose k"),
            ("SET k v KEEPTTL", "lose k"),
            ("SUNIONSTORE to a b", "lose to"),
            ("ZUNIONSTORE to 2 a b", "lose to"),
            ("BITOP AND to a b", "lose to"),
            ("PFMERGE to a", "lose to"),
            ("COPY a b REPLACE DB 3", "lose b in 3"),
            ("COPY a b", "lose b"),
            ("RENAME a b", "DEL a, lose b"),
            ("MOVE a 7", "DEL a, lose a in 7"),
            ("SMOVE a b m", "SREM a m, SADD b m"),
            ("LMOVE a b left RIGHT", "LPOP a, lose b"),
            ("RPOPLPUSH a b", "RPOP a, lose b"),
            ("SETNX k v", "MSET k v"),
            ("PFCOUNT k", ""),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let words = Words::of(&words);
            let command = directory.find(&words.args()[0]).unwrap();
            let keys = crate::execute::keys(&hasher, command.row.keys, words.args(), &mut Vec::new());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let said: Vec<String> = instead(command, words.args(), &keys)
                .iter()
                .map(|step| match step {
                    Step::Run(words) => text(&words.join(&b' ')),
                    Step::Lose { db: None, key } => format!("lose {}", text(key)),
                    Step::Lose { db: Some(db), key } => format!("lose {} in {}", text(key), text(db)),
                })
                .collect();
            assert_eq!(said.join(", "), wanted, "{line}");
        }
        for (name, is) in [("DEL", true), ("UNLINK", true), ("GETDEL", false), ("SET", false)] {
            assert_eq!(removes(directory.find(name.as_bytes()).unwrap()), is, "{name}");
        }
    }
}
