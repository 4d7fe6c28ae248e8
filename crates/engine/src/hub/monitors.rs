//! Owns MONITOR: which connections see every command, and how a command is shown. Never knows what a command does.

use super::Hub;
use crate::clients::{ClientInfo, Peer};
use crate::outbox::Message;
use commands::{Args, Row};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Monitors {
    client_infos: RwLock<BTreeMap<u64, Arc<ClientInfo>>>,
    count: AtomicUsize,
}

impl Monitors {
    pub fn add(&self, client_info: Arc<ClientInfo>) {
        let mut client_infos = self.client_infos.write();
        client_infos.insert(client_info.id, client_info);
        self.count.store(client_infos.len(), Relaxed);
    }

    pub fn remove(&self, id: u64) {
        let mut client_infos = self.client_infos.write();
        client_infos.remove(&id);
        self.count.store(client_infos.len(), Relaxed);
    }

    /// One relaxed load, done for every command.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Shows a command to all monitors. `from` is the client's address, or `None` for a script.
    #[cold]
    pub fn show(&self, hub: &Hub, time_us: u64, db: usize, from: Option<&Peer>, args: Args<'_>) {
        let Some(command) = hub.directory.find(&args[0]) else { return };
        let row = command.subcommand(&args).unwrap_or(command).row;
        let message = line(time_us, db, from, row, args);
        let mut delivery = hub.delivery();
        self.client_infos.read().values().for_each(|client_info| delivery.put(client_info, &message));
        delivery.finish();
    }
}

fn line(time_us: u64, db: usize, from: Option<&Peer>, row: &Row, args: Args<'_>) -> Message {
    let address = match from {
        None => "lua".to_owned(),
        Some(Peer::Unix(path)) => format!("unix:{path}"),
        Some(peer) => peer.addr(),
    };
    let mut text = format!("+{}.{:06} [{db} {address}]", time_us / 1_000_000, time_us % 1_000_000).into_bytes();
    for (at, arg) in args.from(0).enumerate() {
        text.extend_from_slice(b" \"");
        if is_secret(row, args, at) {
            text.extend_from_slice(b"(redacted)");
        } else {
            arg.iter().for_each(|&byte| escape(byte, &mut text));
        }
        text.push(b'"');
    }
    text.extend_from_slice(b"\r\n");
    text.into()
}

fn escape(byte: u8, text: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => text.extend([b'\\', byte]),
        b'\n' => text.extend(b"\\n"),
        b'\r' => text.extend(b"\\r"),
        b'\t' => text.extend(b"\\t"),
        0x07 => text.extend(b"\\a"),
        0x08 => text.extend(b"\\b"),
        b' '..=b'~' => text.push(byte),
        _ => text.extend(format!("\\x{byte:02x}").bytes()),
    }
}

/// Whether the argument is a secret that must not be shown.
pub fn is_secret(row: &Row, args: Args<'_>, at: usize) -> bool {
    row.hides(&args, at, |name| std::str::from_utf8(name).is_ok_and(config::is_secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use resp::Span;

    fn shown(words: &[&[u8]]) -> String {
        let bytes = words.concat();
        let mut start = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                start += word.len() as u32;
                Span { start: start - word.len() as u32, len: word.len() as u32 }
            })
            .collect();
        let args = Args::new(&bytes, &spans);
        let directory = Directory::new(commands::table::all(), &[]).unwrap();
        let command = directory.find(words[0]).unwrap();
        let row = command.subcommand(&args).unwrap_or(command).row;
        let line = line(1_339_518_083_107_412, 3, None, row, args);
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[test]
    fn a_command_is_shown_as_redis_does() {
        assert_eq!(
            shown(&[b"set", b"a \"b\"", b"\x00\n\xff"]),
            "+1339518083.107412 [3 lua] \"set\" \"a \\\"b\\\"\" \"\\x00\\n\\xff\"\r\n"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        for (words, secrets) in [
            (&[&b"AUTH"[..], b"pw"][..], 1),
            (&[b"auth", b"user", b"pw"], 2),
            (&[b"HELLO", b"3", b"AUTH", b"user", b"pw", b"SETNAME", b"me"], 2),
            (&[b"MIGRATE", b"h", b"1", b"k", b"0", b"9", b"AUTH2", b"user", b"pw"], 2),
            (&[b"MIGRATE", b"h", b"1", b"k", b"0", b"9", b"auth", b"pw", b"KEYS", b"a"], 1),
            (&[b"MIGRATE", b"h", b"1", b"auth", b"0", b"9", b"auth", b"pw"], 1),
            (&[b"ACL", b"SETUSER", b"bob", b">pw", b"on"], 3),
            (&[b"acl", b"getuser", b"pw"], 1),
            (&[b"acl", b"deluser", b"pw", b"pw"], 2),
            (&[b"ACL", b"DRYRUN", b"bob", b"get", b"pw"], 0),
            (&[b"config", b"set", b"port", b"1", b"requirepass", b"pw"], 1),
            (&[b"SET", b"auth", b"pw"], 0),
        ] {
            let line = shown(words);
            assert_eq!(line.matches("(redacted)").count(), secrets, "{line}");
            assert_eq!(line.contains("\"pw\""), secrets == 0, "{line}");
        }
    }
}
