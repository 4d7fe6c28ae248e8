//! Owns DEBUG, for tests and for people who look inside, and LOLWUT. A Redis subcommand that FlintKV cannot carry out
//! is refused with the reason. Never claims to have done something that it has not.

use super::digest;
use crate::connection::wrong_subcommand;
use crate::cx::{Args, Cx, claim_reply};
use crate::dump;
use crate::host::REDIS_VERSION;
use crate::number;
use crate::object::encoding_name;
use crate::stop::{NO_SUCH_KEY, NOT_INTEGER, Run, SYNTAX, Stop};
use base::glob;
use std::time::Duration;
use store::{Admission, Value};
use value::rdb::saved_bytes;

const NOT_ALLOWED: Stop = Stop::error(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// The longest text of DEBUG STRINGMATCH-LEN: the time is at most this times the length of the pattern.
const MATCHED_BYTES_MAX: usize = 1 << 20;

/// Keys that one step of DEBUG POPULATE sets while every stripe is locked.
const POPULATED_AT_ONCE: u64 = 1_000;
/// DEBUG POPULATE's largest values.
const POPULATED_BYTES_MAX: usize = 512 << 20;

/// Subcommands with one key.
const ONE_KEY: [&str; 6] = ["object", "sdslen", "listpack", "quicklist", "htstats-key", "panic"];

pub(super) fn keys(args: &Args<'_>, at: &mut Vec<usize>) {
    let Some(subcommand) = args.get(1).filter(|_| args.len() > 2) else { return };
    let is = |name: &str| subcommand.eq_ignore_ascii_case(name.as_bytes());
    if ONE_KEY.iter().any(|name| is(name)) {
        at.push(2);
    } else if is("digest-value") {
        at.extend(2..args.len());
    }
}

/// Subcommands of Redis that FlintKV refuses, and why.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["loadaof", "aof-flush-sleep", "delay-rdb-client-free-seconds", "crash-and-recover", "restart"],
        "FlintKV has no append-only file and no forked process",
    ),
    (&["change-repl-id", "replicate"], "the stream to replicas and its id follow from the dataset alone"),
    (
        &["drop-cluster-packet-filter", "close-cluster-link-on-packet-drop"],
        "This instance has cluster support disabled",
    ),
    (
        &["quicklist-packed-threshold", "dict-resizing", "htstats", "quicklist", "replybuffer"],
        "FlintKV does not have this structure of Redis",
    ),
    (
        &[
            "assert",
            "segfault",
            "oom",
            "leak",
            "jmap",
            "mallctl",
            "mallctl-str",
            "mallsize",
            "structsize",
            "config-rewrite-force-all",
            "set-disable-deny-scripts",
            "set-skip-checksum-validation",
            "pause-cron",
            "stringmatch-len-limit",
            "client-eviction",
            "client-enforce-reply-list",
        ],
        "it is about internals of Redis that FlintKV does not have",
    ),
];

fn reload(cx: &mut Cx<'_>, saves: bool) -> Run {
    if cx.ks.runs_once() {
        return Err(Stop::error("ERR DEBUG RELOAD cannot be a part of a transaction or script"));
    }
    cx.server.reload(cx.session, saves)?;
    cx.out.ok();
    Ok(())
}

pub(super) fn run(cx: &mut Cx<'_>) -> Run {
    if !cx.server.debug_allowed(cx.session) {
        return Err(NOT_ALLOWED);
    }
    let args = cx.args;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"sleep", 3) => {
            let seconds = std::str::from_utf8(&args[2]).ok().and_then(|text| text.parse::<f64>().ok());
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            cx.server.sleep(duration.ok_or(Stop::error("ERR value is not a valid float"))?);
            cx.out.ok();
        }
        (b"object", 3) => object(cx)?,
        (b"object", 4) if args[3].eq_ignore_ascii_case(b"fast") => object(cx)?,
        (b"sdslen", 3) => string_sizes(cx)?,
        (b"listpack", 3) => listpack(cx)?,
        (b"htstats-key", 3 | 4) => {
            cx.ks.inspect(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
            return Err(Stop::error(
                "ERR The value stored at the specified key is not represented using an hash table",
            ));
        }
        (b"digest-value", 3..) => {
            cx.ks.want(cx.keys)?;
            let digests: Result<Vec<String>, Stop> =
                (0..cx.keys.len()).map(|place| digest::of_value(cx, place)).collect();
            let digests = digests?;
            cx.out.array(digests.len());
            digests.iter().for_each(|digest| cx.out.simple(digest));
        }
        (b"digest", 2) => digest::of_dataset(cx)?,
        (b"flint-digest", 2 | 3) => digest::of_everything(cx)?,
        (b"populate", 3..=5) => populate(cx)?,
        (b"set-active-expire", 3) => {
            let on = match &args[2] {
                b"0" => false,
                b"1" => true,
                _ => return Err(SYNTAX),
            };
            cx.server.set_active_expire(on);
            cx.out.ok();
        }
        (b"protocol", 3) => protocol(cx)?,
        (b"reload", 2) => reload(cx, true)?,
        (b"reload", 3) if args[2].eq_ignore_ascii_case(b"nosave") => reload(cx, false)?,
        (b"error", 3) => {
            // The text is one line of the protocol, so it must not contain a line end.
            let text = String::from_utf8_lossy(&args[2]).replace(['\r', '\n'], " ");
            return Err(Stop::Error(text.into()));
        }
        (b"log", 3) => {
            cx.server.log(&format!("DEBUG LOG: {}", String::from_utf8_lossy(&args[2])));
            cx.out.ok();
        }
        (b"stringmatch-len", 4) => {
            let length = number::int(&args[2]).and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|&length| length <= MATCHED_BYTES_MAX).ok_or(NOT_INTEGER)?;
            cx.out.int(glob::matches(&args[3], &vec![b'a'; length], false).into());
        }
        (b"panic", 2) => panic!("DEBUG PANIC was given"),
        (b"panic", 3) => {
            cx.ks.set_string(&cx.keys[0], b"half changed", None);
            panic!("DEBUG PANIC was given with a key");
        }
        (b"help", 2) => {
            let lines = [
                "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "SLEEP seconds",
                "    Blocks the worker of this connection, and all connections of this worker.",
                "OBJECT key [FAST]",
                "    Shows where and how the key's value is kept.",
                "SDSLEN key",
                "    Shows how long a key and its string are.",
                "LISTPACK key",
                "    Writes the bytes of a packed value to the log.",
                "DIGEST",
                "    A number for the whole dataset, the same on every Redis that has it.",
                "FLINT-DIGEST [STRIPES]",
                "    Like DIGEST, but includes functions, exact expiries, expiries of fields and consumer groups; STRIPES gives one for each group of slots.",
                "RELOAD [NOSAVE]",
                "    Writes the dataset to the file, empties it, and loads it from the file.",
                "DIGEST-VALUE key [key ...]",
                "    A number for each value, the same on every server that has it.",
                "POPULATE count [prefix [size]]",
                "    Creates this number of strings, prefix:0 and so on, if they do not exist.",
                "SET-ACTIVE-EXPIRE <0 | 1>",
                "    Whether expired keys are removed in the background, or only when a command uses them.",
                "PROTOCOL <STRING | INTEGER | DOUBLE | NULL | ARRAY | SET | MAP | PUSH | BIGNUM | VERBATIM | TRUE | FALSE>",
                "    Answers with a reply of that type.",
                "ERROR string",
                "    Answers with the string as an error.",
                "LOG message",
                "    Writes the message to the log.",
                "STRINGMATCH-LEN len pattern",
                "    Whether the pattern matches a string of len letters a.",
                "PANIC [key]",
                "    Fails inside the command, which closes only this connection.",
                "    With a key it fails in the middle of a change, which stops the process.",
            ];
            cx.out.array(lines.len());
            lines.iter().for_each(|line| cx.out.simple(line));
        }
        (name, _) => {
            let refused = REFUSED.iter().find(|(names, _)| names.iter().any(|known| known.as_bytes() == name));
            return Err(match refused {
                Some((_, why)) => Stop::Error(
                    format!("ERR DEBUG {} is not supported: {why}", String::from_utf8_lossy(name).to_uppercase())
                        .into(),
                ),
                None => wrong_subcommand(args, "DEBUG"),
            });
        }
    }
    Ok(())
}

fn object(cx: &mut Cx<'_>) -> Run {
    let found = cx.ks.inspect(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
    let encoding = encoding_name(cx, &found)?;
    // All of the value is read, as by DUMP.
    claim_reply(cx.settings, cx.session, &mut cx.out, 2 * found.ram_bytes)?;
    let value = cx.ks.view(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
    let saved = saved_bytes(&dump::payload(value)?).expect("a payload of our own");
    let tier = match (found.hot, found.dirty) {
        (false, _) => "flash",
        (true, false) => "ram,flash",
        (true, true) => "ram",
    };
    cx.out.simple(&format!(
        "Value at:{tier} refcount:1 encoding:{encoding} serializedlength:{} lru_seconds_idle:{} type:{} frequency:{} \
         flash_pages:{} expiry_ms:{}",
        saved,
        found.idle_seconds,
        found.kind.name(),
        found.frequency,
        found.flash_pages,
        found.expiry.map_or(-1, |at| at as i64),
    ));
    Ok(())
}

/// Strings have no spare capacity here.
fn string_sizes(cx: &mut Cx<'_>) -> Run {
    let found = cx.ks.inspect(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
    let is_string = matches!(encoding_name(cx, &found)?, "embstr" | "raw");
    let Some(Value::Inline(_, bytes)) = cx.ks.view(&cx.keys[0])?.filter(|_| is_string) else {
        return Err(Stop::error("ERR Not an sds encoded string."));
    };
    let (key, value) = (cx.keys[0].name.len(), bytes.len());
    cx.out.simple(&format!(
        "key_sds_len:{key}, key_sds_avail:0, key_zmalloc: {key}, val_sds_len:{value}, val_sds_avail:0, val_zmalloc: {}",
        found.ram_bytes - key
    ));
    Ok(())
}

fn listpack(cx: &mut Cx<'_>) -> Run {
    let found = cx.ks.inspect(&cx.keys[0])?.ok_or(NO_SUCH_KEY)?;
    let is_listpack = encoding_name(cx, &found)? == "listpack";
    let Some(Value::Inline(_, bytes)) = cx.ks.view(&cx.keys[0])?.filter(|_| is_listpack) else {
        return Err(Stop::error("ERR Not a listpack encoded object."));
    };
    cx.server.log(&format!("DEBUG LISTPACK: {} bytes: {}", bytes.len(), bytes.escape_ascii()));
    cx.out.simple("Packed bytes written to the log");
    Ok(())
}

/// Runs in steps. Its keys' names are not arguments, so it locks every stripe. `resume` counts the keys.
fn populate(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let wrong = Stop::error("ERR value is out of range, must be positive");
    let size = args.get(4).map_or(Some(0), |size| usize::try_from(number::int(size)?).ok());
    let size = size.filter(|&size| size <= POPULATED_BYTES_MAX);
    let count = number::int(&args[2]).and_then(|count| u64::try_from(count).ok());
    let (Some(count), Some(size)) = (count, size) else { return Err(wrong) };
    let prefix = args.get(3).unwrap_or(b"key");
    if cx.ks.resume.count < count && !cx.ks.add_all() {
        return Err(Stop::Yield);
    }
    let mut left = POPULATED_AT_ONCE;
    while cx.ks.resume.count < count {
        match cx.ks.admission() {
            Admission::Full => {
                cx.ks.resume.count = 0;
                return Err(Stop::error(cx.ks.refusal()));
            }
            Admission::Open if left > 0 => left -= 1,
            Admission::Open | Admission::Slow => return Err(Stop::Yield),
        }
        let number = cx.ks.resume.count;
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let key = cx.ks.hasher().key(&name);
        if !cx.ks.is_there(&key) {
            let mut value = format!("value:{number}").into_bytes();
            if size > 0 {
                value.resize(size, 0);
            }
            cx.ks.set_string(&key, &value, None);
            cx.effect(&[b"SET", &name, &value]);
        }
        cx.ks.resume.count += 1;
    }
    // Reset the count for the next command.
    cx.ks.resume.count = 0;
    cx.out.ok();
    Ok(())
}

/// One reply of each type, for tests of clients.
fn protocol(cx: &mut Cx<'_>) -> Run {
    let out = &mut cx.out;
    match cx.args[2].to_ascii_lowercase().as_slice() {
        b"string" => out.bulk(b"Hello World"),
        b"integer" => out.int(12345),
        b"double" => out.double(3.25),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|i| out.int(i));
        }
        b"set" => {
            out.set(3);
            (0..3).for_each(|i| out.int(i));
        }
        b"map" => {
            out.map(3);
            for i in 0..3 {
                out.int(i);
                out.boolean(i == 1);
            }
        }
        b"push" => {
            if out.proto() == resp::reply::Proto::Resp2 {
                return Err(Stop::error("ERR RESP2 is not supported by this command"));
            }
            out.push(2);
            out.bulk(b"server-cpu-usage");
            out.int(42);
            // A push message is not a reply; the command still needs one.
            out.ok();
        }
        b"attrib" => {
            out.attribute(1);
            if out.proto() == resp::reply::Proto::Resp3 {
                out.bulk(b"key-popularity");
                out.array(2);
                out.bulk(b"key:123");
                out.int(90);
            }
            // An attribute is not a reply; one must follow.
            out.bulk(b"Some real reply following the attribute");
        }
        b"bignum" => out.big_number("1234567999999999999999999999999999999"),
        b"verbatim" => out.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => out.boolean(true),
        b"false" => out.boolean(false),
        _ => {
            return Err(Stop::error(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|null|array|set|\
                 map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// Rows and columns of LOLWUT's picture.
const ROWS: usize = 8;
const COLUMNS: usize = 48;

/// Sparks of a struck flint: fewer with distance, and different each time.
pub(super) fn lolwut(cx: &mut Cx<'_>) -> Run {
    if cx.args.len() >= 3 && cx.args[1].eq_ignore_ascii_case(b"version") {
        number::int(&cx.args[2]).ok_or(crate::stop::NOT_INTEGER)?;
    }
    let mut seed = cx.server.time_us() | 1;
    let mut picture = String::new();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            // xorshift64*: any generator is good enough for sparks.
            seed ^= seed >> 12;
            seed ^= seed << 25;
            seed ^= seed >> 27;
            let distance = (ROWS - row) * 4 + column;
            let spark = (seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % (distance + 2);
            picture.push(match (row == ROWS - 1 && column < 3, spark) {
                (true, _) => '▲',
                (false, 0) => '*',
                (false, 1) => '·',
                _ => ' ',
            });
        }
        picture.truncate(picture.trim_end_matches(' ').len());
        picture.push('\n');
    }
    picture.push_str(&format!("\nFlintKV, speaks Redis ver. {REDIS_VERSION}\n"));
    cx.out.verbatim("txt", picture.as_bytes());
    Ok(())
}
