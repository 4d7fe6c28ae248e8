//! Owns moving a dataset key by key: SCAN and DUMP, and again what keyspace notifications tell of. Never needs a right to replicate.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use resp::client::Value;
use survey::{Address, Server, bytes, list};

use super::{Ends, Mover, pause};
use crate::failure::Failure;
use crate::progress;

const BATCH: usize = 256;
const SCAN_COUNT: &str = "512";
/// In sync: so many keys have changed and are not copied yet.
const NEAR_KEYS: usize = 1000;
/// How long the last notifications may take after the pause.
const SETTLE: Duration = Duration::from_millis(200);
const NOTIFICATIONS: &str = "notify-keyspace-events";
/// Keyspace events of every class.
const EVERYTHING: &str = "KA";
const CHANNEL: &[u8] = b"__keyspace@";

type Changed = Arc<Changes>;

#[derive(Default)]
struct Changes {
    keys: Mutex<HashSet<(u32, Vec<u8>)>>,
    /// The connection has ended, so changes may be missing.
    is_over: AtomicBool,
}

/// One for each node of a cluster, or one.
struct Source {
    server: Server,
    changed: Changed,
    /// What `notify-keyspace-events` was.
    events_before: Option<String>,
}

pub struct Copy {
    sources: Vec<Source>,
    only: Option<u32>,
}

impl Copy {
    pub fn begin(ends: &mut Ends, cacert: Option<&Path>) -> Result<Copy, Failure> {
        let cacert: Option<PathBuf> = cacert.map(Path::to_owned);
        let mut sources = Vec::new();
        for address in addresses(ends)? {
            let mut server = Server::connect(&address, cacert.as_deref())?;
            let events_before = notify(&mut server)?;
            let changed = Changed::default();
            listen(&address, cacert.as_deref(), Arc::clone(&changed))?;
            sources.push(Source { server, changed, events_before });
        }
        ends.target.ask(&["FLUSHALL"])?;
        Ok(Copy { sources, only: ends.from.db })
    }

    /// Copies what has changed. Returns how many keys.
    fn copy_changed(&mut self, ends: &mut Ends) -> Result<usize, Failure> {
        let mut count = 0;
        for source in &mut self.sources {
            if source.changed.is_over.load(Relaxed) {
                return Err(Failure::failed("the source has ended the connection that tells of changed keys")
                    .hint("client-output-buffer-limit pubsub may be too small for the rate of its changes"));
            }
            let changed: Vec<(u32, Vec<u8>)> = source.changed.keys.lock().expect("no panic").drain().collect();
            count += changed.len();
            let databases: HashSet<u32> = changed.iter().map(|(db, _)| *db).collect();
            for db in databases.into_iter().filter(|db| self.only.is_none_or(|only| only == *db)) {
                let names: Vec<&[u8]> = changed.iter().filter(|(of, _)| *of == db).map(|(_, name)| &**name).collect();
                for names in names.chunks(BATCH) {
                    ends.check()?;
                    copy_keys(&mut source.server, &mut ends.target, db, names)?;
                }
            }
        }
        Ok(count)
    }

    fn restore_settings(&mut self) {
        for source in &mut self.sources {
            if let Some(before) = source.events_before.take()
                && let Err(failure) = source.server.ask(&["CONFIG", "SET", NOTIFICATIONS, &before])
            {
                eprint!("{NOTIFICATIONS} stays changed at the source: {failure}");
            }
        }
    }
}

/// The source, or every primary of its cluster.
fn addresses(ends: &mut Ends) -> Result<Vec<Address>, Failure> {
    let is_cluster = ends.source.info("cluster")?.get("cluster_enabled").is_some_and(|on| on == "1");
    if !is_cluster {
        return Ok(vec![ends.from.clone()]);
    }
    let mut found: Vec<Address> = Vec::new();
    for range in list(ends.source.ask(&["CLUSTER", "SLOTS"])?) {
        let primary = list(list(range).into_iter().nth(2).unwrap_or(Value::Null));
        let (Some(host), Some(Value::Int(port))) = (primary.first().and_then(bytes), primary.get(1)) else { continue };
        // A node that does not know its own address leaves it out.
        let host = if host.is_empty() { ends.from.host.clone() } else { String::from_utf8_lossy(host).into_owned() };
        let address = Address { host, port: *port as u16, ..ends.from.clone() };
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

/// Lets the source tell of changed keys. Returns what the setting was, if it was changed.
fn notify(server: &mut Server) -> Result<Option<String>, Failure> {
    let hint = "without notifications, what changes during the copy is not seen: allow CONFIG, or set notify-keyspace-events KA \
                at the source";
    let reply = server.ask(&["CONFIG", "GET", NOTIFICATIONS]).map_err(|error| Failure::from(error).hint(hint))?;
    let value = list(reply).get(1).and_then(bytes).map(|value| String::from_utf8_lossy(value).into_owned());
    let before = value.unwrap_or_default();
    if before.contains('K') && before.contains('A') {
        return Ok(None);
    }
    server.ask(&["CONFIG", "SET", NOTIFICATIONS, EVERYTHING]).map_err(|error| Failure::from(error).hint(hint))?;
    Ok(Some(before))
}

/// Collects the names of changed keys on a connection of its own, until that ends.
fn listen(address: &Address, cacert: Option<&Path>, changed: Changed) -> Result<(), Failure> {
    let mut server = Server::connect(address, cacert)?;
    server.ask(&["PSUBSCRIBE", "__keyspace@*__:*"])?;
    server.wait_for_ever()?;
    std::thread::spawn(move || {
        while let Ok(message) = server.receive_next() {
            let message = list(message);
            if let Some((db, name)) = message.get(2).and_then(bytes).and_then(changed_key) {
                changed.keys.lock().expect("no panic").insert((db, name.to_vec()));
            }
        }
        changed.is_over.store(true, Relaxed);
    });
    Ok(())
}

/// `__keyspace@3__:name`
fn changed_key(channel: &[u8]) -> Option<(u32, &[u8])> {
    let rest = channel.strip_prefix(CHANNEL)?;
    let end = rest.windows(3).position(|bytes| bytes == b"__:")?;
    let db = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((db, &rest[end + 3..]))
}

/// Makes these keys of the target as they are in the source.
fn copy_keys(source: &mut Server, target: &mut Server, db: u32, names: &[&[u8]]) -> Result<(), Failure> {
    source.select(db)?;
    target.select(db)?;
    let asked = names.iter().flat_map(|name| [vec![&b"DUMP"[..], name], vec![&b"PTTL"[..], name]]);
    let replies = source.pipeline(asked)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let expiries: Vec<String> = replies
        .chunks(2)
        .map(|pair| match pair[1] {
            Value::Int(ttl_ms) if ttl_ms > 0 => (now_ms + ttl_ms).to_string(),
            _ => "0".to_owned(),
        })
        .collect();
    let commands =
        names.iter().zip(replies.chunks(2)).zip(&expiries).map(|((name, pair), expiry)| match bytes(&pair[0]) {
            Some(dump) => vec![&b"RESTORE"[..], name, expiry.as_bytes(), dump, b"REPLACE", b"ABSTTL"],
            None => vec![&b"DEL"[..], name],
        });
    for (name, reply) in names.iter().zip(target.pipeline(commands)?) {
        if let Value::Error(text) = reply {
            return Err(Failure::failed(format!(
                "the target does not take the key '{}': {}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(&text)
            )));
        }
    }
    Ok(())
}

impl Mover for Copy {
    fn catch_up(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        let bar = progress::bar("copying [{bar:30}] {pos} of {len} keys, {per_sec}, {eta} left", 0);
        for at in 0..self.sources.len() {
            let databases = self.sources[at].server.keys()?;
            bar.inc_length(databases.values().sum());
            for &db in databases.keys().filter(|db| self.only.is_none_or(|only| only == **db)) {
                let mut cursor = "0".to_owned();
                loop {
                    ends.check()?;
                    let source = &mut self.sources[at].server;
                    source.select(db)?;
                    let mut reply = list(source.ask(&["SCAN", &cursor, "COUNT", SCAN_COUNT])?).into_iter();
                    let next = reply.next().unwrap_or(Value::Null);
                    let names = list(reply.next().unwrap_or(Value::Null));
                    let names: Vec<&[u8]> = names.iter().filter_map(bytes).collect();
                    for names in names.chunks(BATCH) {
                        copy_keys(source, &mut ends.target, db, names)?;
                    }
                    bar.inc(names.len() as u64);
                    cursor = String::from_utf8_lossy(bytes(&next).unwrap_or(b"0")).into_owned();
                    if cursor == "0" {
                        break;
                    }
                }
            }
        }
        bar.finish_and_clear();
        // A source that changes as fast as its keys are copied does not get nearer: the pause at the switch brings the end.
        let mut before = usize::MAX;
        loop {
            let count = self.copy_changed(ends)?;
            if count <= NEAR_KEYS || count > before / 4 * 3 {
                return Ok(());
            }
            before = count;
        }
    }

    fn lag(&mut self, ends: &mut Ends) -> Result<String, Failure> {
        Ok(format!("{} keys had changed since the last look", self.copy_changed(ends)?))
    }

    fn switch(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        loop {
            std::thread::sleep(SETTLE);
            if self.copy_changed(ends)? == 0 {
                break;
            }
            // It takes as long as it takes. A source that cannot be paused may go on for ever: Ctrl-C ends it.
            pause(&mut ends.source, true);
        }
        self.restore_settings();
        Ok(())
    }

    fn abort(&mut self, ends: &mut Ends) {
        self.restore_settings();
        eprintln!("aborted: {} keeps what it has", ends.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_key() {
        assert_eq!(changed_key(b"__keyspace@0__:a"), Some((0, &b"a"[..])));
        assert_eq!(changed_key(b"__keyspace@12__:a__:b"), Some((12, &b"a__:b"[..])));
        assert_eq!(changed_key(b"__keyevent@0__:set"), None);
        assert_eq!(changed_key(b"__keyspace@x__:a"), None);
    }
}
