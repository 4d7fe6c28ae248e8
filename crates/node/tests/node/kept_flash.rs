//! Databases with `appendonly yes` and flash: values stay on flash over a restart, and only there.

use crate::common::{Client, Node, eventually};
use crate::persist::{PERSISTENT, again, digest, fill, folder, kill, loaded, refusal, with};
use flintkv_tests::{Random, one_line};
use std::fs;
use std::path::Path;

/// Relative flash paths are in the node's directory.
pub const TIERED: &[(&str, &str)] = &[("flash-path", "flash"), ("memory-limit", "200mb"), ("ram-limit", "100mb")];

pub const MB: u64 = 1 << 20;

pub fn set_many(client: &mut Client, keys: std::ops::Range<u64>, bytes: usize, seed: u64) {
    let mut random = Random::new(seed);
    client.set_all(keys.map(|key| (format!("key:{key}"), random.noise(bytes))));
}

pub fn new_checkpoint(client: &mut Client) {
    let rewrites = client.info_number("persistence", "aof_rewrites");
    client.run("BGREWRITEAOF");
    eventually("there is a new checkpoint", || {
        client.info("persistence", "aof_rewrite_in_progress") == "0"
            && client.info_number("persistence", "aof_rewrites") > rewrites
    });
}

fn size_of(folder: &Path, end: &str) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut sizes = files
        .filter(|file| file.file_name().to_str().unwrap().ends_with(end))
        .map(|file| file.metadata().unwrap().len());
    let size = sizes.next().expect("there is such a file");
    assert_eq!(sizes.next(), None, "there is one such file");
    size
}

/// A checkpoint names the places of values that are in RAM too, so a restart leaves them on flash. They once stayed there until somebody
/// read them.
#[test]
fn values_that_were_in_ram_come_back_to_ram_by_themselves() {
    let directives = with(TIERED);
    let node = Node::start(&directives);
    let mut client = node.connect();
    set_many(&mut client, 0..10_000, 1_000, 1);
    new_checkpoint(&mut client);
    assert_eq!(client.info_number("tiering", "values_in_ram"), 10_000);
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    eventually("all values are in RAM", || client.info_number("tiering", "values_in_ram") == 10_000);
    assert_eq!(client.info_number("stats", "keyspace_hits"), 0, "nobody has read them");
}

#[test]
fn values_stay_on_flash_over_restarts() {
    let directives = with(TIERED);
    let node = Node::start(&directives);
    let mut client = node.connect();
    node.limit_objects(10 * MB);
    fill(&mut client, 3);
    set_many(&mut client, 0..15_000, 2_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 10_000);
    new_checkpoint(&mut client);
    let (dump, index) = (size_of(&folder(&node), ".rdb"), size_of(&folder(&node), ".index"));
    assert!(dump < 15 * MB, "the dump of {dump} bytes has the values in RAM only");
    assert!((160_000..600_000).contains(&index), "16 bytes for each key on flash: {index}");
    let before = digest(&mut client);
    // On another port.
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    assert!(client.info_number("tiering", "values_in_flash") > 10_000, "values stayed where they were");
    assert_eq!(digest(&mut client), before);

    // Replayed over the checkpoint: changed, deleted, flushed, moved to other logical databases.
    set_many(&mut client, 1_000..3_000, 3_000, 2);
    (3_000..6_000).for_each(|key| _ = client.run(&format!("APPEND key:{key} more")));
    (6_000..7_000).for_each(|key| _ = client.run(&format!("DEL key:{key}")));
    client.run("SWAPDB 0 1");
    client.run("SELECT 2");
    client.run("FLUSHDB");
    let before = digest(&mut client);
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    new_checkpoint(&mut client);
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before, "with swapped databases");

    // A start by another node empties nothing that is kept.
    client.send(b"SHUTDOWN\r\n").rest();
    let flash = fs::read_dir(node.dir.path().join("flash")).unwrap().next().unwrap().unwrap().path();
    let port = flash.file_stem().unwrap().to_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (dir, paths) = (elsewhere.path().to_str().unwrap(), flash.parent().unwrap().to_str().unwrap().to_owned());
    let other = [("dir", dir), ("flash-path", &paths), ("memory-limit", "200mb"), ("ram-limit", "100mb")];
    let said = Node::try_start_alone(port, &other).expect_err("it must not start");
    assert!(said.contains("has values of a dataset that survives restarts: start with that dataset's dir"), "{said}");
    let node = again(node, &directives);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    assert_eq!(client.run("CONFIG SET appendonly no"), "OK");
    client.send(b"SHUTDOWN NOSAVE\r\n").rest();
    drop(node);
    fs::create_dir_all(flash.parent().unwrap()).unwrap();
    Node::try_start(port, &other).expect("nothing is kept there");
}

#[test]
fn after_a_restart_values_that_were_in_ram_come_back_unasked() {
    let directives = with(TIERED);
    let node = Node::start(&directives);
    let mut client = node.connect();
    node.limit_objects(10 * MB);
    set_many(&mut client, 0..15_000, 2_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 9_000);
    new_checkpoint(&mut client);
    let in_ram = client.info_number("tiering", "values_in_ram");
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    eventually("they are back", || client.info_number("tiering", "values_in_ram") >= in_ram / 10 * 8);
    assert_eq!(client.info_number("stats", "keyspace_hits"), 0, "nobody has asked");
    assert!(client.info_number("tiering", "values_in_flash") > 9_000, "the others stay where they are");
}

const ELEMENTS: usize = 3_000;

/// A large collection of each type, of 500 random bytes an element.
fn fill_large(client: &mut Client, name: &str, random: &mut Random) {
    let mut noise = || random.noise(500);
    let key = |kind: &str| format!("{name}:{kind}").into_bytes();
    for from in (0..ELEMENTS).step_by(20) {
        let numbers = || (from..from + 20).map(|n| format!("{n}").into_bytes());
        let fields: Vec<Vec<u8>> = numbers().flat_map(|number| [number, noise()]).collect();
        let members: Vec<Vec<u8>> = numbers().map(|number| [number, noise()].concat()).collect();
        let scored: Vec<Vec<u8>> =
            numbers().zip(&members).flat_map(|(score, member)| [score, member.clone()]).collect();
        for (command, kind, words) in [
            ("HSET", "hash", &fields),
            ("SADD", "set", &members),
            ("ZADD", "zset", &scored),
            ("RPUSH", "list", &members),
        ] {
            let mut call = vec![command.as_bytes().to_vec(), key(kind)];
            call.extend(words.iter().cloned());
            let reply = one_line(&client.call(&call.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            assert_ne!(reply, "", "{command}");
        }
        for member in &members {
            client.call(&[b"XADD", &key("stream"), b"*", b"field", member]);
        }
    }
    assert_eq!(client.run(&format!("XGROUP CREATE {name}:stream group 0")), "OK");
    for consumer in ["one", "two"] {
        client.run(&format!("XREADGROUP GROUP group {consumer} COUNT 100 STREAMS {name}:stream >"));
    }
    for field in (0..ELEMENTS).step_by(7) {
        let reply = client.run(&format!("HPEXPIREAT {name}:hash {} FIELDS 1 {field}", 4_000_000_000_000 + field));
        assert!(reply.contains('1'), "{reply}");
    }
    client.run(&format!("PEXPIREAT {name}:set 4000000000000"));
}

fn counts(client: &mut Client) -> Vec<String> {
    let of = |name: &str| {
        ["HLEN hash", "SCARD set", "ZCARD zset", "LLEN list", "XLEN stream"]
            .map(|command| command.replace(' ', &format!(" {name}:")))
    };
    let commands = ["cold", "hot"].iter().flat_map(|name| of(name));
    commands.map(|command| client.run(&command)).collect()
}

/// The checkpoint has the skeletons of large collections. Their parts stay where they are.
#[test]
fn large_collections_stay_on_flash_over_restarts() {
    let directives = with(TIERED);
    let node = Node::start(&directives);
    let mut client = node.connect();
    // Not by a RAM limit: it counts what the test's allocator keeps too.
    let mut random = Random::new(3);
    client.run("CONFIG SET debug-tier-mode cold");
    fill_large(&mut client, "cold", &mut random);
    client.run("CONFIG SET debug-tier-mode off");
    fill_large(&mut client, "hot", &mut random);
    for number in 0..200 {
        client.run(&format!("HGET hot:hash {number}"));
        client.run(&format!("LINDEX hot:list {number}"));
        client.run(&format!("ZRANGE hot:zset {number} {number}"));
    }
    eventually("most parts are on flash", || client.info_number("tiering", "flash_part_demotions") > 3_000);
    let (before, counted) = (digest(&mut client), counts(&mut client));
    let mut node = node;
    let sizes = |node: &Node| (size_of(&folder(node), ".rdb"), size_of(&folder(node), ".index"));
    for round in 0..3 {
        let written = client.info_number("tiering", "flash_write_bytes");
        new_checkpoint(&mut client);
        let written = client.info_number("tiering", "flash_write_bytes") - written;
        // 15 MB of values.
        let (dump, index) = sizes(&node);
        assert!(dump < MB / 20, "round {round}: the dump of {dump} bytes has no large collection");
        assert!((MB / 20..2 * MB).contains(&index), "round {round}: some bytes for each part: {index}");
        assert!(round == 0 || written < 2 * MB, "round {round}: what is on flash is not written again: {written}");
        if round == 1 {
            // The same process, with nothing changed.
            continue;
        }
        node = kill(node, &directives);
        client = loaded(&node);
        assert_eq!(counts(&mut client), counted, "round {round}");
        assert!(client.info_number("memory", "used_memory") < 60 * MB, "the parts were not read");
        assert_eq!(digest(&mut client), before, "round {round}");
    }

    // Replayed over the skeletons.
    for number in (0..ELEMENTS).step_by(11) {
        client.run(&format!("HSET cold:hash {number} changed new{number} more"));
        client.run(&format!("HDEL hot:hash {number}"));
        client.run("SPOP cold:set");
        client.run(&format!("ZADD cold:zset {number} more{number}"));
        client.run("LPOP hot:list");
        client.run(&format!("LSET cold:list {number} changed"));
        client.run("XADD cold:stream * field more");
    }
    client.run("RENAME cold:zset zset");
    client.run("XACK hot:stream group 0-1");
    client.run("XREADGROUP GROUP group three COUNT 10 STREAMS hot:stream >");
    client.run("DEL hot:zset");
    let before = digest(&mut client);
    node = kill(node, &directives);
    client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    new_checkpoint(&mut client);
    assert!(sizes(&node).0 < MB / 20);
    node = kill(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before, "from a checkpoint of what came back");
}

#[test]
fn persistence_is_switched_on_where_there_is_flash() {
    let directives = with(TIERED);
    let off: Vec<_> = directives.iter().copied().filter(|(name, _)| *name != "appendonly").collect();
    let node = Node::start(&off);
    let mut client = node.connect();
    set_many(&mut client, 0..1_000, 500, 1);
    let before = digest(&mut client);
    assert_eq!(client.run("CONFIG SET appendonly yes"), "OK");
    let node = kill(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before);
}

/// Each overwrite makes garbage that only a checkpoint frees.
#[test]
fn overwriting_goes_on_for_ever() {
    let directives = with(&[
        ("flash-path", "flash"),
        ("memory-limit", "130mb"),
        ("ram-limit", "90mb"),
        // No room for more than the values.
        ("flash-limit", "552mb"),
        ("auto-aof-rewrite-percentage", "0"),
    ]);
    let node = Node::start(&directives);
    let mut client = node.connect();
    node.limit_objects(6 * MB);
    for round in 0..4 {
        set_many(&mut client, 0..4_000, 5_000, round);
    }
    assert!(client.info_number("persistence", "aof_rewrites") > 0, "checkpoints were taken because room was short");
    let before = digest(&mut client);
    let node = kill(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before);
}

/// The journal takes no more than flash-limit leaves: a checkpoint is written when half of it is used. While none can be written, writers get
/// an error, and reads go on.
#[test]
fn files_stay_within_flash_limit() {
    let limit = 356 * MB;
    let limited = [("flash-limit", "356mb"), ("auto-aof-rewrite-percentage", "0"), ("recovery-time-target", "0")];
    let directives = with(&[TIERED, &limited].concat());
    let node = Node::start(&directives);
    let mut client = node.connect();
    // Not to be packed.
    let value = Random::new(1).noise(MB as usize);
    let set = |client: &mut Client, round: u64| {
        let (key, value) = (format!("key:{}", round % 9), [&round.to_le_bytes()[..], &value].concat());
        one_line(&client.call(&[b"SET", key.as_bytes(), &value]))
    };
    let used = |client: &mut Client| client.info_number("tiering", "flash_files_bytes");
    for round in 0..400 {
        let reply = set(&mut client, round);
        assert!(reply.contains("OK"), "{round}: {reply}");
        if round % 20 == 0 {
            let used = used(&mut client);
            assert!(used <= limit, "{used} bytes");
        }
    }
    assert!(client.info_number("persistence", "aof_rewrites") > 1, "half of the journal's room was used several times");

    // The draft of a checkpoint cannot be made.
    let obstacle = folder(&node).join("base.new");
    fs::create_dir(&obstacle).unwrap();
    let mut refused = (400..1_000).map(|round| (round, set(&mut client, round)));
    let (last, reply) = refused.find(|(_, reply)| !reply.contains("OK")).expect("the journal is full");
    let error = "MISCONF Errors writing to the AOF file: flash-limit allows it only 2 files, and no new checkpoint";
    assert!(reply.contains(error), "{reply}");
    assert!(client.run(&format!("STRLEN key:{}", (last - 1) % 9)).contains("1048584"), "reads go on");
    assert!(used(&mut client) <= limit);
    let before = digest(&mut client);
    fs::remove_dir(&obstacle).unwrap();
    eventually("writers go on", || set(&mut client, last).contains("OK"));
    assert_ne!(digest(&mut client), before);
    let before = digest(&mut client);
    let node = kill(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before);
}

/// What is replayed needs more room than there is, until a later checkpoint frees what is dead.
#[test]
fn a_restart_with_less_flash_takes_a_checkpoint_in_between() {
    let on = |memory| {
        let more = [("flash-path", "flash"), ("ram-limit", "64mb"), ("auto-aof-rewrite-percentage", "0")];
        with(&[&more[..], &[("memory-limit", memory)]].concat())
    };
    let node = Node::start(&on("350mb"));
    let mut client = node.connect();
    for round in 0..3 {
        set_many(&mut client, 0..8_000, 5_000, round);
    }
    assert_eq!(client.info("persistence", "aof_rewrites"), "0", "there is room enough");
    let before = digest(&mut client);
    let tight = [on("135mb"), vec![("flash-limit", "583mb")]].concat();
    let node = kill(node, &tight);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    assert!(node.log().contains("because flash is short of room"), "{}", node.log());
    let node = kill(node, &tight);
    assert_eq!(digest(&mut loaded(&node)), before, "from that checkpoint");
}

#[test]
fn what_is_missing_is_refused_with_advice() {
    let on = |paths: &[&'static str]| {
        let paths = paths.iter().map(|path| ("flash-path", *path));
        let others = [("memory-limit", "200mb"), ("ram-limit", "100mb"), ("debug-tier-mode", "cold")];
        with(&paths.chain(others).collect::<Vec<_>>())
    };
    let directives = on(&["one", "two"]);
    let node = Node::start(&directives);
    let mut client = node.connect();
    fill(&mut client, 4);
    new_checkpoint(&mut client);
    let before = digest(&mut client);
    let (dir, journal) = (node.dir.clone(), folder(&node));
    client.send(b"SHUTDOWN\r\n").rest();
    drop(node);

    let refused = |directives: &[(&str, &str)], why: &str| {
        let said = refusal(&dir, directives);
        assert!(said.contains(why), "{why}: {said}");
    };
    for (paths, why) in [
        (&["two", "one"][..], "it was flash path 2 of 2: give the flash paths in their old order"),
        (&["one"], "it was flash path 1 of 2"),
        (&["one", "three"], "there is no such file"),
    ] {
        refused(&on(paths), why);
    }
    refused(PERSISTENT, "the dataset has values on flash: set the flash-path that it had");
    let one_database = [on(&["one", "two"]), vec![("databases", "1")]].concat();
    refused(&one_database, "set databases to that");

    let names = fs::read_dir(&journal).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let index = journal.join(names.into_iter().find(|name| name.ends_with(".index")).unwrap());
    let whole = fs::read(&index).unwrap();
    for at in [20, whole.len() / 2, whole.len() - 60, whole.len() - 4] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&index, bytes).unwrap();
        refused(&directives, "the index is damaged");
    }
    fs::write(&index, &whole[..whole.len() - 1]).unwrap();
    refused(&directives, "bytes, but the manifest says");
    fs::remove_file(&index).unwrap();
    refused(&directives, "the manifest names this file");
    fs::write(&index, &whole).unwrap();

    let node = Node::start_in(&dir, None, &directives);
    assert_eq!(digest(&mut loaded(&node)), before, "with all files, where they were");
}

/// The usual size of the log was larger once. What was stored then is neither refused nor evicted, until somebody sets a limit.
#[test]
fn a_log_that_is_larger_than_usual_keeps_its_size_until_a_limit_is_given() {
    let on = |more: &[(&'static str, &'static str)]| {
        let limits = [("flash-path", "flash"), ("memory-limit", "500mb"), ("ram-limit", "400mb")];
        with(&[&limits[..], &[("maxmemory-policy", "allkeys-lru")], more].concat())
    };
    let log = |client: &mut Client| client.info_number("tiering", "flash_limit");
    let node = Node::start(&on(&[("flash-limit", "2gb")]));
    let mut client = node.connect();
    // Sets ram-limit, so that only some megabytes of values stay in RAM, and the log is a little smaller.
    node.limit_objects(6 * MB);
    let large = log(&mut client);
    assert!(large > 500 * MB, "{large}");
    set_many(&mut client, 0..60_000, 5_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 55_000);
    new_checkpoint(&mut client);
    let node = kill(node, &on(&[]));
    let mut client = loaded(&node);
    assert_eq!(log(&mut client), large);
    assert_eq!(client.info_number("tiering", "flash_live_limit"), 500 * MB, "values have the limit that they had");
    assert_eq!(client.run("DBSIZE"), "(integer) 60000", "nothing was evicted");
    assert!(node.log().contains("more than the usual"), "{}", node.log());
    // With other limits too, as far as the size is of use: 1.1 times memory-limit, and ram-limit.
    for (name, bytes, most) in [("ram-limit", 100 * MB, large), ("memory-limit", 410 * MB, 551 * MB)] {
        assert_eq!(client.run(&format!("CONFIG SET {name} {bytes}")), "OK");
        assert!((most - 16 * MB..=most).contains(&log(&mut client)), "{name}: {}", log(&mut client));
        assert_eq!(client.run("DBSIZE"), "(integer) 60000", "nothing was evicted for {name}");
    }
    // 1 GB is the usual limit of so small a database.
    assert_eq!(client.run("CONFIG SET flash-limit 1gb"), "OK");
    let usual = log(&mut client);
    assert!(usual < large, "{usual} of {large}");
}

#[test]
fn limits_may_change_while_the_node_is_down() {
    // Small segments, so that the log can become small.
    let small = [("flash-segment-size", "256kb")];
    let node = Node::start(&with(&[TIERED, &small].concat()));
    let mut client = node.connect();
    node.limit_objects(6 * MB);
    set_many(&mut client, 0..10_000, 2_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 5_000);
    new_checkpoint(&mut client);
    let before = digest(&mut client);
    let mut node = node;
    for (memory, ram) in [("400mb", "90mb"), ("170mb", "110mb"), ("200mb", "100mb")] {
        let directives = with(&[("flash-path", "flash"), ("memory-limit", memory), ("ram-limit", ram)]);
        node = kill(node, &directives);
        let mut client = loaded(&node);
        assert_eq!(digest(&mut client), before, "{memory}");
        set_many(&mut client, 20_000..20_500, 2_000, 9);
        (20_000..20_500).for_each(|key| _ = client.run(&format!("DEL key:{key}")));
        new_checkpoint(&mut client);
    }
    // Less than the values take: the log keeps its size, and all is served.
    let less = [("memory-limit", "116mb"), ("ram-limit", "100mb"), ("flash-limit", "528mb")];
    let flash_limit = |client: &mut Client| client.info_number("tiering", "flash_limit");
    let flash = flash_limit(&mut node.connect());
    let node = kill(node, &with(&[&[("flash-path", "flash")], &less[..]].concat()));
    let mut client = loaded(&node);
    assert_eq!((digest(&mut client), flash_limit(&mut client)), (before, flash));
    assert_eq!(client.run("SET another value"), "OK");
}
