//! Owns moving a dataset key by key with SCAN and DUMP; keys that change according to keyspace notifications are copied
//! again. Never needs the right to replicate.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resp::client::Value;
use survey::{Address, Server, bytes, list};

use super::beside::copy_functions;
use super::{Ends, Mover, pause};
use crate::failure::Failure;
use crate::progress;

const BATCH: usize = 256;
const SCAN_COUNT: &str = "512";
/// The target counts as in sync if at most this many changed keys are not copied yet.
const NEAR_KEYS: usize = 1000;
/// How often the listening thread checks whether a mark is wanted, and the waiting thread whether the mark has arrived.
const LOOK: Duration = Duration::from_millis(10);
/// The number of streams that are copied between two checks of the pause.
const STREAMS: usize = 16;
const NOTIFICATIONS: &str = "notify-keyspace-events";
/// Keyspace events of every class.
const EVERYTHING: &str = "KA";
const CHANNEL: &[u8] = b"__keyspace@";
/// Commands that change keys without keyspace events.
const UNTOLD: [&str; 3] = ["cmdstat_flushall", "cmdstat_flushdb", "cmdstat_swapdb"];
/// The first byte of a DUMP payload that contains a stream: one of these.
const STREAM_TYPES: [u8; 3] = [15, 19, 21];

type Changed = Arc<Changes>;
type Names = HashSet<(u32, Vec<u8>)>;

/// The changed keys that a source has reported.
#[derive(Default)]
struct Changes {
    keys: Mutex<Names>,
    /// The number of marks that are wanted, and that have arrived. When a mark has arrived, `keys` contains every key that
    /// was reported before the mark was wanted.
    wanted: AtomicU64,
    come: AtomicU64,
    /// The connection has ended, so changes may be missing.
    is_over: AtomicBool,
}

/// A server that is copied: a single one, or one of the primaries of a cluster.
struct Source {
    server: Server,
    changed: Changed,
    /// The value of `notify-keyspace-events` before the copy.
    events_before: Option<String>,
    /// How often the source was emptied or its logical databases were swapped.
    untold: u64,
    /// The source supports PEXPIRETIME (Redis 7.0).
    tells_moments: bool,
    streams: Names,
}

pub struct Copy {
    sources: Vec<Source>,
    only: Option<u32>,
}

impl Copy {
    pub fn begin(ends: &mut Ends) -> Result<Copy, Failure> {
        let mut copy = Copy { sources: Vec::new(), only: ends.from.db };
        let begun = copy.open(ends);
        if begun.is_err() {
            copy.restore_settings();
        }
        begun.map(|()| copy)
    }

    fn open(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        for address in addresses(ends)? {
            let mut server = Server::connect(&address, ends.cacert.as_deref())?;
            let tells_moments = !matches!(server.call(&[b"PEXPIRETIME", b""])?, Value::Error(_));
            let (changed, streams) = (Changed::default(), Names::new());
            let (events_before, untold) = (notify(&mut server)?, 0);
            self.sources.push(Source { server, changed, events_before, untold, tells_moments, streams });
            let source = self.sources.last_mut().expect("it was just added");
            listen(&address, ends.cacert.as_deref(), Arc::clone(&source.changed))?;
            source.untold = untold_calls(&mut source.server)?;
        }
        Ok(ends.target.ask(&["FLUSHALL"]).map(drop)?)
    }

    /// Copies the keys that have changed up to now. Returns their number.
    fn copy_changed(&mut self, ends: &mut Ends) -> Result<usize, Failure> {
        let mut count = 0;
        for source in &mut self.sources {
            source.changed.catch_up(ends)?;
            let changed: Vec<(u32, Vec<u8>)> = source.changed.keys.lock().expect("no panic").drain().collect();
            count += changed.len();
            source.copy(ends, self.only, &changed, BATCH, &mut |_| ())?;
            if untold_calls(&mut source.server)? != source.untold {
                return Err(Failure::failed(format!(
                    "{} was emptied, or its databases were swapped (FLUSHALL, FLUSHDB, SWAPDB), which keyspace notifications do not report",
                    ends.from
                ))
                .hint("start again, or use --method follow, which can handle these commands"));
            }
        }
        copy_functions(ends)?;
        Ok(count)
    }

    /// XREADGROUP, XACK and XCLAIM cause no keyspace events. So streams with groups are copied again while the source is
    /// paused.
    fn copy_groups(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        for source in &mut self.sources {
            let streams: Vec<(u32, Vec<u8>)> = std::mem::take(&mut source.streams).into_iter().collect();
            let mut with_groups = Vec::new();
            for names in streams.chunks(BATCH) {
                for (db, name) in names {
                    source.server.select(*db)?;
                    let groups = source.server.call(&[b"XINFO", b"GROUPS", name])?;
                    // If the user may not run XINFO, all streams are copied.
                    if matches!(groups, Value::Error(_)) || !list(groups).is_empty() {
                        with_groups.push((*db, name.clone()));
                    }
                }
            }
            source.copy(ends, self.only, &with_groups, STREAMS, &mut |source| _ = pause(source, true))?;
        }
        Ok(())
    }

    fn restore_settings(&mut self) {
        for source in &mut self.sources {
            if let Some(before) = source.events_before.take()
                && let Err(failure) = source.server.ask(&["CONFIG", "SET", NOTIFICATIONS, &before])
            {
                eprint!("{NOTIFICATIONS} could not be set back at the source: {failure}");
            }
        }
    }
}

impl Source {
    /// Copies these keys to the target, a number of them at a time.
    fn copy(
        &mut self,
        ends: &mut Ends,
        only: Option<u32>,
        keys: &[(u32, Vec<u8>)],
        at_once: usize,
        before_each: &mut dyn FnMut(&mut Server),
    ) -> Result<(), Failure> {
        let databases: HashSet<u32> = keys.iter().map(|(db, _)| *db).collect();
        for db in databases.into_iter().filter(|db| only.is_none_or(|only| only == *db)) {
            let names: Vec<&[u8]> = keys.iter().filter(|(of, _)| *of == db).map(|(_, name)| &**name).collect();
            for names in names.chunks(at_once) {
                ends.check()?;
                before_each(&mut self.server);
                self.copy_keys(&mut ends.target, db, names)?;
            }
        }
        Ok(())
    }

    /// Copies the current state of these keys to the target.
    fn copy_keys(&mut self, target: &mut Server, db: u32, names: &[&[u8]]) -> Result<(), Failure> {
        self.server.select(db)?;
        target.select(db)?;
        // The expiry is asked for as a point in time by the source's clock, so the duration of the query does not
        // matter.
        let asked: &[&[u8]] =
            if self.tells_moments { &[b"DUMP", b"PEXPIRETIME"] } else { &[b"DUMP", b"PTTL", b"TIME"] };
        let commands = names
            .iter()
            .flat_map(|name| asked.iter().map(|&word| if word == b"TIME" { vec![word] } else { vec![word, *name] }));
        let replies = self.server.pipeline(commands)?;
        let mut texts = Vec::with_capacity(names.len());
        for (name, replies) in names.iter().zip(replies.chunks(asked.len())) {
            // An error does not mean that the key is absent: the user may lack the right, or a cluster may have moved
            // the key.
            if let Some(Value::Error(text)) = replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
                let failure = Failure::from(self.server.refused("DUMP", text));
                return Err(Failure { message: format!("the key '{}': {}", shown(name), failure.message), ..failure });
            }
            let dump = bytes(&replies[0]);
            texts.push(dump.and_then(|_| expiry(&replies[1..])).map(|moment| moment.to_string()));
            match dump {
                Some([kind, ..]) if STREAM_TYPES.contains(kind) => _ = self.streams.insert((db, name.to_vec())),
                _ => {}
            }
        }
        let commands =
            names.iter().zip(replies.chunks(asked.len())).zip(&texts).map(|((name, replies), moment)| {
                match (bytes(&replies[0]), moment) {
                    (Some(dump), Some(moment)) => {
                        vec![&b"RESTORE"[..], name, moment.as_bytes(), dump, b"REPLACE", b"ABSTTL"]
                    }
                    _ => vec![&b"DEL"[..], name],
                }
            });
        for (name, reply) in names.iter().zip(target.pipeline(commands)?) {
            if let Value::Error(text) = reply {
                let (name, text) = (shown(name), String::from_utf8_lossy(&text).into_owned());
                return Err(Failure::failed(format!("the target does not accept the key '{name}': {text}")));
            }
        }
        Ok(())
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// When a key expires, in milliseconds since 1970; 0: never. `None`: it has expired since it was read.
fn expiry(replies: &[Value]) -> Option<i64> {
    match replies {
        [Value::Int(-1), ..] => Some(0),
        [Value::Int(..-1), ..] => None,
        [Value::Int(moment)] => Some(*moment),
        [Value::Int(ttl_ms), Value::Array(time)] => {
            let number = |at: usize| -> Option<i64> { std::str::from_utf8(bytes(time.get(at)?)?).ok()?.parse().ok() };
            Some(number(0)? * 1000 + number(1)? / 1000 + ttl_ms)
        }
        _ => None,
    }
}

impl Changes {
    /// When this returns, all keys that the source has changed before the call are in the list.
    fn catch_up(&self, ends: &Ends) -> Result<(), Failure> {
        let mark = self.wanted.fetch_add(1, SeqCst) + 1;
        loop {
            ends.check()?;
            if self.is_over.load(SeqCst) {
                return Err(Failure::failed("the source has closed the connection for keyspace notifications")
                    .hint("client-output-buffer-limit pubsub may be too small for the rate of its changes"));
            }
            if self.come.load(SeqCst) >= mark {
                return Ok(());
            }
            std::thread::sleep(LOOK / 5);
        }
    }
}

/// How often the source was emptied, or its logical databases were swapped.
fn untold_calls(server: &mut Server) -> Result<u64, Failure> {
    let fields = server.info("commandstats")?;
    let calls = |name: &&str| {
        let text = fields.get(*name)?;
        text.split(',').find_map(|field| field.strip_prefix("calls=")?.parse::<u64>().ok())
    };
    Ok(UNTOLD.iter().filter_map(calls).sum())
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

/// Makes the source report changed keys. Returns the old value of the setting if it was changed.
fn notify(server: &mut Server) -> Result<Option<String>, Failure> {
    let hint = "without keyspace notifications, changes during the copy would be missed: allow CONFIG, or set notify-keyspace-events KA at the source";
    let reply = server.ask(&["CONFIG", "GET", NOTIFICATIONS]).map_err(|error| Failure::from(error).hint(hint))?;
    let value = list(reply).get(1).and_then(bytes).map(|value| String::from_utf8_lossy(value).into_owned());
    let before = value.unwrap_or_default();
    if before.contains('K') && before.contains('A') {
        return Ok(None);
    }
    // Keep the classes of events that others may listen to.
    server
        .ask(&["CONFIG", "SET", NOTIFICATIONS, &format!("{before}{EVERYTHING}")])
        .map_err(|error| Failure::from(error).hint(hint))?;
    Ok(Some(before))
}

/// Collects the names of changed keys on its own connection until that ends. The reply to a PING arrives after every event
/// that was sent before it, so it serves as the mark.
fn listen(address: &Address, cacert: Option<&Path>, changed: Changed) -> Result<(), Failure> {
    let mut server = Server::connect(address, cacert)?;
    server.ask(&["PSUBSCRIBE", "__keyspace@*__:*"])?;
    std::thread::spawn(move || {
        // The marks of the PINGs whose replies have not arrived yet.
        let mut asked = VecDeque::new();
        let mut last = 0;
        loop {
            let wanted = changed.wanted.load(SeqCst);
            if wanted > last {
                if server.send(&[b"PING"]).is_err() {
                    break;
                }
                asked.push_back(wanted);
                last = wanted;
            }
            let Ok(message) = server.next_within(LOOK) else { break };
            let message = list(message.unwrap_or(Value::Null));
            match message.first().and_then(bytes) {
                Some(b"pong") => {
                    if let Some(mark) = asked.pop_front() {
                        changed.come.store(mark, SeqCst);
                    }
                }
                _ => {
                    if let Some((db, name)) = message.get(2).and_then(bytes).and_then(changed_key) {
                        changed.keys.lock().expect("no panic").insert((db, name.to_vec()));
                    }
                }
            }
        }
        changed.is_over.store(true, SeqCst);
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
                        self.sources[at].copy_keys(&mut ends.target, db, names)?;
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
        // If the source changes as fast as its keys are copied, the target does not come nearer: then the pause at the
        // switch finishes the copy.
        let mut before = usize::MAX;
        loop {
            let count = self.copy_changed(ends)?;
            if count <= NEAR_KEYS || count > before / 4 * 3 {
                return Ok(());
            }
            before = count;
        }
    }

    fn reach(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        self.copy_changed(ends).map(drop)
    }

    fn lag(&mut self, ends: &mut Ends) -> Result<String, Failure> {
        Ok(format!("{} keys had changed since they were copied", self.copy_changed(ends)?))
    }

    fn hold(&mut self, _: &mut Ends, on: bool) -> bool {
        // All sources are asked, even if one of them refuses.
        let refused = self.sources.iter_mut().map(|source| pause(&mut source.server, on)).filter(|&paused| !paused);
        refused.count() == 0
    }

    fn switch(&mut self, ends: &mut Ends) -> Result<(), Failure> {
        self.copy_changed(ends)?;
        self.copy_groups(ends)?;
        while self.copy_changed(ends)? > 0 {
            // There is no time limit. If the source cannot be paused, this may never end: Ctrl-C ends it.
            self.hold(ends, true);
            self.copy_groups(ends)?;
        }
        self.restore_settings();
        Ok(())
    }

    fn abort(&mut self, ends: &mut Ends) {
        self.restore_settings();
        eprintln!("aborted: {} keeps the keys that it has received", ends.to);
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

    #[test]
    fn an_expiry_is_a_moment_of_the_sources_clock() {
        let word = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let time = || Value::Array(vec![word("1700000000"), word("123456")]);
        for (replies, moment) in [
            (vec![Value::Int(-1)], Some(0)),
            (vec![Value::Int(-2)], None),
            (vec![Value::Int(1_700_000_000_500)], Some(1_700_000_000_500)),
            (vec![Value::Int(-1), time()], Some(0)),
            (vec![Value::Int(-2), time()], None),
            // It expires now. This must not become 0, which means never.
            (vec![Value::Int(0), time()], Some(1_700_000_000_123)),
            (vec![Value::Int(1000), time()], Some(1_700_000_001_123)),
        ] {
            assert_eq!(expiry(&replies), moment, "{replies:?}");
        }
    }
}
