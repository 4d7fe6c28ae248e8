//! Owns a table that says which values a command uses, by its arguments. `tests/tests/plan.rs` compares the table with the
//! command table of a node.

/// What a command does with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Read,
    /// The command needs the old value, and changes it.
    Change,
    /// The command sets a new value without reading the old one.
    Overwrite,
}

/// The positions of a command's keys among its arguments.
enum Keys {
    None,
    /// This many words after the name.
    First(usize),
    /// All words after the name, except this many at the end.
    AllBut(usize),
    /// Keys and values alternate.
    Pairs,
    /// The word at this position is the number of keys that follow it.
    Counted(usize),
    /// The destination, then a number of keys.
    StoredCounted,
    /// The first word, and the word after STORE or STOREDIST.
    Stored,
    /// From this word to the end.
    From(usize),
    /// Only this word.
    Only(usize),
    /// The first half of the words after STREAMS.
    Streams,
}

/// Calls `each` with every key whose value the command uses, and how. Commands that only ask whether a key exists, or when
/// it expires, use no value. EVAL and FCALL are ignored too, because MONITOR shows the commands of a script separately.
pub fn uses<'a>(words: &'a [Vec<u8>], mut each: impl FnMut(&'a [u8], Use)) {
    let Some((name, arguments)) = words.split_first() else { return };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let kind = match name.as_str() {
        "set" | "setex" | "psetex" | "mset" | "restore" => Use::Overwrite,
        name if READS.contains(&name) => Use::Read,
        _ => Use::Change,
    };
    let mut all = |keys: &'a [Vec<u8>]| keys.iter().for_each(|key| each(key, kind));
    let upto = |count: usize| &arguments[..count.min(arguments.len())];
    let after = |from: usize| &arguments[from.min(arguments.len())..];
    // The number of keys at a place, and the keys that follow it.
    let counted = |at: usize| {
        let count = arguments.get(at).and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
        let keys = after(at + 1);
        &keys[..count.unwrap_or(0).min(keys.len())]
    };
    match keys(&name) {
        Keys::None => {}
        Keys::First(count) => all(upto(count)),
        Keys::AllBut(rest) => all(upto(arguments.len().saturating_sub(rest))),
        Keys::Pairs => arguments.iter().step_by(2).for_each(|key| each(key, kind)),
        Keys::Counted(at) => all(counted(at)),
        Keys::StoredCounted => {
            all(upto(1));
            all(counted(1));
        }
        Keys::Stored => {
            all(upto(1));
            let is_store =
                |word: &[u8]| [&b"store"[..], b"storedist"].iter().any(|store| word.eq_ignore_ascii_case(store));
            let at = arguments.iter().rposition(|word| is_store(word));
            all(at.map_or(&[][..], |at| &after(at + 1)[..usize::from(at + 1 < arguments.len())]));
        }
        Keys::From(at) => all(after(at)),
        Keys::Only(at) => all(&after(at)[..usize::from(at < arguments.len())]),
        Keys::Streams => {
            let streams = arguments.iter().position(|word| word.eq_ignore_ascii_case(b"streams"));
            let rest = streams.map_or(&[][..], |at| &arguments[at + 1..]);
            all(&rest[..rest.len() / 2]);
        }
    }
}

fn keys(name: &str) -> Keys {
    match name {
        "mget" | "sinter" | "sunion" | "sdiff" | "sinterstore" | "sunionstore" | "sdiffstore" | "pfcount"
        | "pfmerge" => Keys::AllBut(0),
        "blpop" | "brpop" | "bzpopmin" | "bzpopmax" => Keys::AllBut(1),
        "mset" | "msetnx" => Keys::Pairs,
        "zinter" | "zunion" | "zdiff" | "sintercard" | "zintercard" | "lmpop" | "zmpop" => Keys::Counted(0),
        "blmpop" | "bzmpop" => Keys::Counted(1),
        "zinterstore" | "zunionstore" | "zdiffstore" => Keys::StoredCounted,
        "sort" | "georadius" | "georadiusbymember" => Keys::Stored,
        "bitop" => Keys::From(1),
        "rename" | "renamenx" | "copy" | "lmove" | "blmove" | "rpoplpush" | "brpoplpush" | "smove" | "lcs"
        | "geosearchstore" | "zrangestore" => Keys::First(2),
        "xgroup" | "xinfo" => Keys::Only(1),
        "xread" | "xreadgroup" => Keys::Streams,
        name if WITHOUT.contains(&name) => Keys::None,
        _ => Keys::First(1),
    }
}

/// Commands that use no value.
const WITHOUT: &[&str] = &[
    "acl",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster",
    "command",
    "config",
    "dbsize",
    "debug",
    "del",
    "discard",
    "echo",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "exists",
    "expire",
    "expireat",
    "expiretime",
    "failover",
    "fcall",
    "fcall_ro",
    "flushall",
    "flushdb",
    "function",
    "hello",
    "info",
    "keys",
    "lastsave",
    "latency",
    "lolwut",
    "memory",
    "migrate",
    "module",
    "monitor",
    "move",
    "multi",
    "object",
    "persist",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "pfdebug",
    "pfselftest",
    "ping",
    "psubscribe",
    "psync",
    "pttl",
    "publish",
    "pubsub",
    "punsubscribe",
    "quit",
    "randomkey",
    "readonly",
    "readwrite",
    "replconf",
    "replicaof",
    "reset",
    "restore-asking",
    "role",
    "save",
    "scan",
    "script",
    "select",
    "shutdown",
    "slaveof",
    "slowlog",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "swapdb",
    "sync",
    "time",
    "touch",
    "ttl",
    "type",
    "unlink",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
    "watch",
];

/// Commands that use values without changing them.
const READS: &[&str] = &[
    "bitcount",
    "bitfield_ro",
    "bitpos",
    "dump",
    "geodist",
    "geohash",
    "geopos",
    "georadius_ro",
    "georadiusbymember_ro",
    "geosearch",
    "get",
    "getbit",
    "getrange",
    "hexists",
    "hexpiretime",
    "hget",
    "hgetall",
    "hkeys",
    "hlen",
    "hmget",
    "hpexpiretime",
    "hpttl",
    "hrandfield",
    "hscan",
    "hstrlen",
    "httl",
    "hvals",
    "lcs",
    "lindex",
    "llen",
    "lpos",
    "lrange",
    "mget",
    "pfcount",
    "scard",
    "sdiff",
    "sinter",
    "sintercard",
    "sismember",
    "smembers",
    "smismember",
    "sort_ro",
    "srandmember",
    "sscan",
    "strlen",
    "substr",
    "sunion",
    "xinfo",
    "xlen",
    "xpending",
    "xrange",
    "xread",
    "xrevrange",
    "zcard",
    "zcount",
    "zdiff",
    "zinter",
    "zintercard",
    "zlexcount",
    "zmscore",
    "zrandmember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrank",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zscan",
    "zscore",
    "zunion",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut found = Vec::new();
        uses(&words, |key, kind| found.push(format!("{} {kind:?}", String::from_utf8_lossy(key))));
        found.join(", ")
    }

    #[test]
    fn each_form_of_a_command_has_its_keys() {
        for (line, expected) in [
            ("GET a", "a Read"),
            ("set a b EX 5", "a Overwrite"),
            ("APPEND a b", "a Change"),
            ("MGET a b", "a Read, b Read"),
            ("MSET a 1 b 2", "a Overwrite, b Overwrite"),
            ("BLPOP a b 0", "a Change, b Change"),
            ("ZUNION 2 a b WEIGHTS 1 2", "a Read, b Read"),
            ("ZUNIONSTORE c 2 a b", "c Change, a Change, b Change"),
            ("BLMPOP 0 2 a b LEFT", "a Change, b Change"),
            ("SORT a LIMIT 0 5 STORE c", "a Change, c Change"),
            ("SORT a STORE", "a Change"),
            ("BITOP AND c a b", "c Change, a Change, b Change"),
            ("XREAD COUNT 2 STREAMS a b 0 0", "a Read, b Read"),
            ("XINFO STREAM a", "a Read"),
            ("EXISTS a", ""),
            ("EVAL x 1 a", ""),
            // Invalid commands must not cause a panic.
            ("XINFO", ""),
            ("ZUNION 9 a", "a Read"),
            ("ZUNION x a", ""),
            ("XREAD STREAMS", ""),
            ("BLPOP", ""),
            ("MSET a", "a Overwrite"),
            ("NEWCOMMAND a b", "a Change"),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
        uses(&[], |_, _| panic!("no words, no keys"));
    }
}
