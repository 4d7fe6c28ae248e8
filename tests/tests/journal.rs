//! `flintkv journal` on the directory of a node: its output, and the damage that it detects.

use flintkv_tests::compare::{assert_same_dataset, dataset, keep_keys};
use flintkv_tests::generator::Writes;
use flintkv_tests::{Client, Node, Redis, binary, eventually, is_installed, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the command prints, and whether it succeeded.
fn journal(args: &[&str]) -> (bool, String) {
    let done = Command::new(binary()).arg("journal").args(args).output().expect("the binary runs");
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(text).expect("text"))
}

fn fill(node: &Node, nth: u32) {
    let mut client = node.connect();
    for line in [
        "SET text{n} value",
        "RPUSH list{n} 1 2 three",
        "SADD set{n} a b 1",
        "HSET hash{n} f v g w",
        "ZADD zset{n} 1.5 a inf b",
        "XADD stream{n} 1-1 f v",
        "XGROUP CREATE stream{n} g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS stream{n} >",
        "SET mortal{n} v EX 1000",
        "SELECT 3",
        "SET other{n} v",
        "MULTI",
        "INCR number",
        "LPUSH both{n} 1",
        "EXEC",
    ] {
        let line = line.replace("{n}", &nth.to_string());
        let reply = client.run(&line);
        assert!(!reply.contains("ERR"), "{line}: {reply}");
    }
}

/// Half of the dataset is in the checkpoint, half in the journal. While the node runs, the journal's end is only in the
/// ring.
fn node() -> Node {
    let node = Node::start(&[("appendonly", "yes")]);
    fill(&node, 1);
    node.connect().run("BGREWRITEAOF");
    let info = |name: &str| node.connect().run("INFO persistence").contains(name);
    eventually("the checkpoint is written", || {
        info("aof_rewrite_in_progress:0") && !has_checkpoint(&node, "base-0.rdb")
    });
    fill(&node, 2);
    node
}

fn has_checkpoint(node: &Node, name: &str) -> bool {
    node.dir.path().join("flintkv.journal").join(name).exists()
}

fn show(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn show_prints_commands_and_check_finds_damage() {
    let mut node = node();
    let folder = node.dir.path().join("flintkv.journal");
    let (done, said) = journal(&["show", show(&folder)]);
    assert!(done && said.contains("in use by a running node") && said.contains(" list2 1 2 three\n"), "{said}");
    assert!(!said.contains("list1"), "the checkpoint has it: {said}");
    node.terminate();
    node.ended();
    let (done, said) = journal(&["check", show(&folder)]);
    assert!(done && said.ends_with("\nok\n") && !said.contains("in use"), "{said}");
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let checkpoint =
        files.into_iter().find(|path| path.extension().is_some_and(|name| name == "rdb")).expect("a checkpoint");
    let mut bytes = fs::read(&checkpoint).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&checkpoint, &bytes).unwrap();
    let (done, said) = journal(&["check", show(&folder)]);
    assert!(!done && said.contains("base-") && said.contains("hint: restore"), "{said}");
}

fn write_at_random(client: &mut Client, seed: u64, count: usize) {
    let mut writes = Writes::new(seed);
    for _ in 0..count {
        let words = writes.command_of_redis_7_0(1_700_000_000_000);
        client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

fn redis(dir: &Path, more: &[&str]) -> Option<Redis> {
    let directives = [&["--dir", show(dir), "--enable-debug-command", "yes"], more].concat();
    let redis = Redis::if_installed(&directives)?;
    let mut client = redis.connect();
    eventually("Redis has loaded its files", || client.info("persistence", "loading") == "0");
    Some(redis)
}

#[test]
fn redis_loads_an_export_as_it_loads_a_dump_of_the_same_data() {
    // Without flash: values there are not exported.
    let settings = [("appendonly", "yes"), ("enable-debug-command", "yes"), ("rdb-version", "10"), ("flash-path", "")];
    let mut node = Node::start(&settings);
    let mut client = node.connect();
    fill(&node, 1);
    write_at_random(&mut client, 3, 1500);
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    write_at_random(&mut client, 4, 1500);
    fill(&node, 2);
    client.run("FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"");
    keep_keys(&mut client);
    assert_eq!(client.run("SAVE"), "OK");
    node.terminate();
    node.ended();

    let folder = node.dir.path().join("flintkv.journal");
    let export = tempfile::tempdir().unwrap();
    let to = export.path().join("appendonly.aof");
    let (done, said) = journal(&["export", show(&folder), "--to", show(&to)]);
    assert!(done && said.contains(" commands, up to position "), "{said}");
    let (again, said) = journal(&["export", show(&folder), "--to", show(&to)]);
    assert!(!again && said.contains("exists"), "{said}");
    if !is_installed("redis-check-aof") {
        return;
    }
    let checked = tool("redis-check-aof").arg(&to).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let Some(exported) = redis(export.path(), &["--appendonly", "yes"]) else { return };
    let Some(saved) = redis(node.dir.path(), &[]) else { return };
    let (mut exported, mut saved) = (exported.connect(), saved.connect());
    assert_same_dataset(&mut exported, &mut saved);
    assert_eq!(exported.run("DEBUG DIGEST"), saved.run("DEBUG DIGEST"));
}

/// A node that has ended, and its directory. The dataset has one value, which is on flash, so the directory has only
/// its address.
fn with_a_value_on_flash() -> (Node, PathBuf) {
    let mut node = Node::start(&[("appendonly", "yes"), ("debug-tier-mode", "cold")]);
    let mut client = node.connect();
    client.run("SET cold value");
    eventually("it is on flash", || client.info("tiering", "values_in_flash") == "1");
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    node.terminate();
    node.ended();
    let folder = node.dir.path().join("flintkv.journal");
    (node, folder)
}

#[test]
fn values_on_flash_are_not_left_out_in_silence() {
    let (node, folder) = with_a_value_on_flash();
    let to = node.dir.path().join("export.aof");
    let (done, said) = journal(&["export", show(&folder), "--to", show(&to)]);
    assert!(
        !done
            && said.contains("1 values are on flash")
            && said.contains("flintkv database backup NAME --rdb-version 10"),
        "{said}"
    );
    assert!(!to.exists());
    let (done, said) = journal(&["check", show(&folder)]);
    assert!(done && said.contains("1 values on flash"), "{said}");
}

#[test]
fn expiries_of_fields_are_exported_on_request_only() {
    let settings = [("appendonly", "yes"), ("enable-debug-command", "yes"), ("flash-path", "")];
    let mut node = Node::start(&settings);
    let mut client = node.connect();
    client.run("HSET checkpoint f v g w");
    client.run("HPEXPIREAT checkpoint 4000000000000 FIELDS 1 f");
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    client.run("HSET tail f v g w h x");
    client.run("HPEXPIREAT tail 4000000000000 FIELDS 2 f g");
    client.run("HPERSIST tail FIELDS 1 f");
    let digest = client.run("DEBUG FLINT-DIGEST");
    node.terminate();
    node.ended();

    let folder = node.dir.path().join("flintkv.journal");
    let export = tempfile::tempdir().unwrap();
    let (plain, whole) = (export.path().join("plain"), export.path().join("appendonly.aof"));
    let (done, said) = journal(&["export", show(&folder), "--to", show(&plain)]);
    assert!(done && said.contains("3 commands about expiries of fields are left out"), "{said}");
    assert!(!String::from_utf8_lossy(&fs::read(&plain).unwrap()).contains("HP"));
    let (done, said) = journal(&["export", show(&folder), "--to", show(&whole), "--with-field-expiry"]);
    assert!(done && !said.contains("left out"), "{said}");
    // FlintKV imports the file.
    let node = Node::start_in(&std::sync::Arc::new(export), None, &settings);
    let mut client = node.connect();
    eventually("the export is loaded", || client.info("persistence", "loading") == "0");
    assert_eq!(client.run("DEBUG FLINT-DIGEST"), digest);
}

fn repair(args: &[&str]) -> (bool, String) {
    let done = Command::new(binary()).arg("repair").args(args).output().expect("the binary runs");
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).expect("text"))
}

/// A node in a new directory that has this dump.
fn node_with(dump: &Path) -> Node {
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    fs::copy(dump, dir.path().join("dump.rdb")).unwrap();
    let node = Node::start_in(&dir, None, &[]);
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    node
}

#[test]
fn a_damaged_journal_is_cut_where_the_damage_begins() {
    let directives = [("appendonly", "yes"), ("appendfsync", "always")];
    let mut node = Node::start(&directives);
    let mut client = node.connect();
    client.run("SET checkpoint value");
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    (0..200).for_each(|key| _ = client.run(&format!("SET key:{key}: value")));
    let folder = node.dir.path().join("flintkv.journal");
    let (done, said) = repair(&[show(&folder)]);
    assert!(!done && said.contains("a node uses it"), "{said}");
    node.terminate();
    node.ended();
    let (done, said) = repair(&[show(&folder)]);
    assert!(done && said.contains("nothing is damaged"), "{said}");

    let file = folder.join("journal-0000");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"key:100:").expect("its record");
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let (done, said) = repair(&[show(&folder)]);
    assert!(!done && said.contains("journal file 0 is damaged at offset") && said.contains("--cut --to NEW"), "{said}");
    assert!(said.contains("100 records before it can be read"), "{said}");
    assert!(said.contains("with at least 99 undamaged records"), "{said}");
    let elsewhere = tempfile::tempdir().unwrap();
    let new = elsewhere.path().join("new");
    let (done, said) = repair(&[show(&folder), "--to", show(&new), "--cut"]);
    assert!(done, "{said}");
    assert!(fs::read(&file).unwrap() == bytes, "the damaged directory is as it was");
    let (again, said) = repair(&[show(&folder), "--to", show(&new), "--cut"]);
    assert!(!again && said.contains("exists"), "{said}");
    // The flash files are not moved.
    fs::rename(&folder, elsewhere.path().join("damaged")).unwrap();
    fs::rename(&new, &folder).unwrap();
    let node = Node::start_in(&node.dir, None, &directives);
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    assert_eq!(client.run("DBSIZE"), "(integer) 101");
    assert_eq!(
        client.run("MGET checkpoint key:0: key:99: key:100:").lines().filter(|line| line.contains("value")).count(),
        3
    );
}

#[test]
fn the_keys_before_the_damage_of_a_dump_are_saved() {
    // Without flash the dump has all values.
    let mut node = Node::start(&[("appendonly", "yes"), ("flash-path", "")]);
    let mut client = node.connect();
    (0..500).for_each(|key| _ = client.run(&format!("SET key:{key} value:{key}")));
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    node.terminate();
    node.ended();
    let folder = node.dir.path().join("flintkv.journal");
    let mut files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let checkpoint = files.find(|path| path.extension().is_some_and(|name| name == "rdb")).expect("a checkpoint");
    let mut bytes = fs::read(&checkpoint).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0xee);
    fs::write(&checkpoint, &bytes).unwrap();
    let (done, said) = repair(&[show(&folder)]);
    assert!(!done && said.contains("keys before the damage can be read"), "{said}");
    let elsewhere = tempfile::tempdir().unwrap();
    let new = elsewhere.path().join("new");
    let (done, said) = repair(&[show(&folder), "--to", show(&new)]);
    assert!(done && said.contains("A node loads it as the dump in its dir"), "{said}");
    let saved: u64 = said
        .lines()
        .find_map(|line| line.strip_suffix(" keys before the damage can be read"))
        .unwrap()
        .parse()
        .unwrap();
    assert!((100..400).contains(&saved), "{said}");
    let node = node_with(&new.join("dump.rdb"));
    assert_eq!(node.connect().run("DBSIZE"), format!("(integer) {saved}"));
}

#[test]
fn a_damaged_part_of_an_index_costs_the_keys_in_it() {
    let directives = [("appendonly", "yes"), ("debug-tier-mode", "cold"), ("auto-aof-rewrite-percentage", "0")];
    let mut node = Node::start(&directives);
    let mut client = node.connect();
    (0..3000).for_each(|key| _ = client.run(&format!("SET key:{key} value:{key}")));
    eventually("they are on flash", || client.info("tiering", "values_in_flash") == "3000");
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") == "1");
    client.run("SET later value");
    node.terminate();
    node.ended();
    let folder = node.dir.path().join("flintkv.journal");
    let mut files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let index = files.find(|path| path.extension().is_some_and(|name| name == "index")).expect("an index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[14] ^= 1;
    fs::write(&index, &bytes).unwrap();

    let (done, said) = repair(&[show(&folder)]);
    assert!(!done && said.contains("the index is damaged") && said.contains("--lose-keys --to NEW"), "{said}");
    let number = |word: &str| {
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words.iter().position(|&found| found == word).expect(word);
        words[at - 1].parse::<u64>().or_else(|_| words[at - 2].parse()).expect("a number")
    };
    let (kept, lost) = (number("keys"), number("lost"));
    assert!(kept + lost == 3000 && (1..100).contains(&lost), "{said}");

    let elsewhere = tempfile::tempdir().unwrap();
    let (with, without) = (elsewhere.path().join("with"), elsewhere.path().join("without"));
    let (done, said) = repair(&[show(&folder), "--to", show(&with), "--lose-keys"]);
    assert!(done && said.contains("repair again with --cut"), "{said}");
    let (done, said) = repair(&[show(&folder), "--to", show(&without), "--lose-keys", "--cut"]);
    assert!(done && said.contains("The changes in the journal are lost"), "{said}");
    assert!(fs::read(&index).unwrap() == bytes, "the damaged directory is as it was");
    fs::rename(&folder, elsewhere.path().join("damaged")).unwrap();
    let (done, said) = journal(&["check", show(&without)]);
    assert!(done && said.contains(&format!("{kept} values on flash")) && said.ends_with("\nok\n"), "{said}");
    let (done, said) = journal(&["show", show(&without)]);
    assert!(done && !said.contains("later value"), "{said}");
    fs::rename(&with, &folder).unwrap();
    let node = Node::start_in(&node.dir, None, &directives);
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    assert_eq!(client.run("DBSIZE"), format!("(integer) {}", kept + 1));
    assert_eq!(client.run("GET later"), "\"value\"");
    let is_right = |key: u64| [format!("\"value:{key}\""), "(nil)".to_owned()];
    (0..3000).for_each(|key| assert!(is_right(key).contains(&client.run(&format!("GET key:{key}"))), "key:{key}"));
}

/// Without the end of an index, only `--from-segments` finds anything on flash.
#[test]
fn an_index_without_its_end_is_told_and_not_repaired() {
    let (_node, folder) = with_a_value_on_flash();
    let mut files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let index = files.find(|path| path.extension().is_some_and(|name| name == "index")).expect("an index");
    let mut bytes = fs::read(&index).unwrap();
    let end = bytes.len() - 60;
    bytes[end] ^= 1;
    fs::write(&index, &bytes).unwrap();
    let (done, said) = repair(&[show(&folder)]);
    assert!(
        !done && said.contains("the checksum of its table is wrong") && said.contains("--from-segments --to NEW"),
        "{said}"
    );
}

/// The directives of the node that is started several times.
const ALL_COLD: &[(&str, &str)] = &[
    ("appendonly", "yes"),
    ("debug-tier-mode", "cold"),
    ("auto-aof-rewrite-percentage", "0"),
    ("enable-debug-command", "yes"),
    ("flash-split-size", "8kb"),
];

/// A node that is started several times. Each run overwrites and deletes values of the earlier runs, with all values on
/// flash. The last checkpoint is older than the end of the last run.
fn killed_after_several_lives() -> Node {
    let mut node = Node::start(ALL_COLD);
    for life in 0..3 {
        let mut client = node.connect();
        eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
        fill(&node, life);
        // A seed that is used again changes the same keys in other ways.
        write_at_random(&mut client, 3 + u64::from(life), 1200);
        (0..300).for_each(|key| _ = client.run(&format!("SET key:{key} {life}:{}", "v".repeat(key % 90))));
        (0..300).step_by(7).for_each(|key| _ = client.run(&format!("DEL key:{}", key + life as usize)));
        (0..2000).for_each(|field| _ = client.run(&format!("HSET large field:{field} {life}:{field}:abcdefghij")));
        if life > 0 {
            let before = client.info("persistence", "aof_rewrites");
            client.run("BGREWRITEAOF");
            eventually("the checkpoint is written", || client.info("persistence", "aof_rewrites") != before);
        }
        // Changes that are only in the journal, not in the checkpoint.
        (0..100).for_each(|key| _ = client.run(&format!("APPEND key:{key} +")));
        (0..100).step_by(3).for_each(|key| _ = client.run(&format!("DEL key:{}", key + 100)));
        fill(&node, 10 + life);
        keep_keys(&mut client);
        if life < 2 {
            node.signal(9);
            node.ended();
            node = Node::start_in(&node.dir.clone(), None, ALL_COLD);
        }
    }
    node
}

/// A copy of a flash file in a new directory, with a directory of a dataset beside it.
fn moved(journal: &Path, flash: Option<&Path>) -> std::sync::Arc<tempfile::TempDir> {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    fs::rename(journal, folder.path().join("flintkv.journal")).unwrap();
    if let Some(flash) = flash {
        fs::create_dir(folder.path().join("flash")).unwrap();
        let copied = Command::new("cp").arg("--sparse=always").arg(flash).arg(folder.path().join("flash")).status();
        assert!(copied.unwrap().success());
    }
    folder
}

/// The keys that a node lacks, and the number of additional keys. Asserts that the existing ones have the right values.
fn differences(node: &Node, expected: &Dataset) -> (Vec<String>, usize) {
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    let found = dataset(&mut client);
    for (key, state) in found.iter().filter(|(key, _)| expected.contains_key(*key)) {
        assert_eq!(state, &expected[key], "{}:{}", key.0, key.1);
    }
    let lacks = expected.keys().filter(|key| !found.contains_key(*key));
    let lacks = lacks.map(|(db, key)| format!("{db}:{key}")).collect();
    (lacks, found.keys().filter(|key| !expected.contains_key(*key)).count())
}

type Dataset = std::collections::BTreeMap<(u32, String), [String; 4]>;

#[test]
fn keys_of_a_damaged_or_lost_index_are_found_in_the_flash_files() {
    let mut node = killed_after_several_lives();
    let expected = dataset(&mut node.connect());
    node.signal(9);
    node.ended();
    let folder = node.dir.path().join("flintkv.journal");
    let flash_folder = node.dir.path().join("flash");
    let flash = fs::read_dir(&flash_folder).unwrap().next().unwrap().unwrap().path();
    let file_of = |kind: &str| {
        let mut files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        files.find(|path| path.extension().is_some_and(|name| name == kind)).expect(kind)
    };
    let index = file_of("index");
    let whole = fs::read(&index).unwrap();
    let table_bytes = u64::from_le_bytes(whole[whole.len() - 24..][..8].try_into().unwrap()) as usize;
    let table = whole.len() - 40 - table_bytes;
    let elsewhere = tempfile::tempdir().unwrap();
    let new = elsewhere.path().join("new");
    let save = |bytes: Option<&[u8]>| {
        match bytes {
            Some(bytes) => fs::write(&index, bytes).unwrap(),
            None => fs::remove_file(&index).unwrap(),
        }
        let words = [show(&folder), "--to", show(&new), "--from-segments", "--flash-path", show(&flash_folder)];
        let (done, said) = repair(&words);
        assert!(done, "{said}");
        said
    };

    // One entry is damaged: its key is found by the checksum of its part, and no deleted key reappears.
    let mut bytes = whole.clone();
    bytes[14] ^= 1;
    let said = save(Some(&bytes));
    assert!(
        said.contains("1 of 1 missing keys are found again") && !said.contains("numbers of their records"),
        "{said}"
    );
    let repaired = Node::start_in(&moved(&new, Some(&flash)), None, ALL_COLD);
    let (lacks, more) = differences(&repaired, &expected);
    assert!(lacks.is_empty() && more == 0, "{lacks:?}, {more} more: {said}");

    // The first half of all parts, including their headers.
    let mut bytes = whole.clone();
    bytes[..table / 2].fill(0xee);
    let said = save(Some(&bytes));
    let repaired = Node::start_in(&moved(&new, Some(&flash)), None, ALL_COLD);
    let (lacks, _) = differences(&repaired, &expected);
    assert!(lacks.iter().all(|key| said.contains(key.as_str())), "{lacks:?}: {said}");

    // First the table is damaged, then the whole file is missing. Collections in parts are lost, and this is reported.
    for is_there in [true, false] {
        let mut bytes = whole.clone();
        bytes[table + 5] ^= 1;
        let said = save(is_there.then_some(&bytes[..]));
        assert!(said.contains("keys are found by the numbers of their records"), "{said}");
        let repaired = Node::start_in(&moved(&new, None), None, ALL_COLD);
        let (lacks, _) = differences(&repaired, &expected);
        assert!(lacks.contains(&"0:large".to_owned()), "{lacks:?}");
        assert!(lacks.iter().all(|key| said.contains(key.as_str())), "{lacks:?}: {said}");
    }
}

#[test]
fn an_export_has_the_values_on_flash() {
    let mut node = killed_after_several_lives();
    let mut client = node.connect();
    let expected = dataset(&mut client);
    node.signal(9);
    node.ended();
    let folder = node.dir.path().join("flintkv.journal");
    let flash = node.dir.path().join("flash");
    let export = tempfile::tempdir().unwrap();
    let to = export.path().join("appendonly.aof");
    let (done, said) = journal(&["export", show(&folder), "--to", show(&to), "--flash-path", show(export.path())]);
    assert!(!done && said.contains("No such file") && !to.exists(), "{said}");
    let (done, said) = journal(&["export", show(&folder), "--to", show(&to), "--flash-path", show(&flash)]);
    assert!(done && said.contains(" commands, up to position "), "{said}");
    let Some(exported) = redis(export.path(), &["--appendonly", "yes"]) else { return };
    assert_eq!(dataset(&mut exported.connect()), expected);
}

/// A node with more journal than a start is assumed to replay in a second.
fn with_a_long_journal() -> (Node, Dataset) {
    let directives = [("auto-aof-rewrite-percentage", "0"), ("recovery-time-target", "0")];
    let node = Node::start(&[KEPT, &directives].concat());
    fill(&node, 1);
    let mut client = node.connect();
    write_at_random(&mut client, 3, 500);
    let value = vec![b'v'; 900_000];
    for round in 0..235_u64 {
        let (key, value) = (format!("long:{}", round % 9), [round.to_string().as_bytes(), &value].concat());
        client.call(&[b"SET", key.as_bytes(), &value]);
    }
    keep_keys(&mut client);
    let expected = dataset(&mut client);
    (node, expected)
}

const KEPT: &[(&str, &str)] = &[("appendonly", "yes"), ("enable-debug-command", "yes")];

fn started_again(node: &Node) -> (Node, Client) {
    let node = Node::start_in(&node.dir, None, KEPT);
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    (node, client)
}

#[test]
fn a_node_that_ends_leaves_no_journal_to_replay() {
    let (mut node, expected) = with_a_long_journal();
    node.terminate();
    assert!(node.ended().success());
    let (done, said) = journal(&["show", show(&node.dir.path().join("flintkv.journal"))]);
    assert!(done && !said.contains("long:"), "the checkpoint has it: {said}");
    let (node, mut client) = started_again(&node);
    assert!(node.log().contains(", 0 records"), "{}", node.log());
    assert_eq!(
        client.info("persistence", "journal_position"),
        client.info("persistence", "journal_checkpoint_position")
    );
    assert_eq!(dataset(&mut client), expected);
}

/// The node is killed at any stage of its last checkpoint.
#[test]
fn a_node_that_is_killed_at_its_end_loses_nothing() {
    type IsReached = fn(&Node) -> bool;
    let steps: [(&str, IsReached); 4] = [
        ("the end has begun", |node| node.log().contains("the node writes a checkpoint before it stops")),
        ("the index is being written", |node| has_checkpoint(node, "base-index.new")),
        ("the dump is being written", |node| has_checkpoint(node, "base.new")),
        ("the checkpoint is written", |node| node.log().contains("the next start replays 0 B of")),
    ];
    for (what, is_reached) in steps {
        let (mut node, expected) = with_a_long_journal();
        node.terminate();
        // A draft may exist only for a moment.
        eventually(what, || is_reached(&node) || node.has_ended().is_some());
        if node.has_ended().is_none() {
            node.signal(9);
            node.ended();
        }
        let (_node, mut client) = started_again(&node);
        assert_eq!(dataset(&mut client), expected, "{what}");
    }
}
