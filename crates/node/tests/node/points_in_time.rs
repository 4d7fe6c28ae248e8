//! Databases that begin with the dataset of a moment between two backups.

use crate::backup::{DEBUG, flip, restore};
use crate::common::{Client, eventually};
use crate::databases::{Operator, connect, start};
use crate::files::{digests, fill, loaded, random};
use std::fs;
use std::path::{Path, PathBuf};

const ARCHIVED: &[(&str, &str)] =
    &[DEBUG[0], ("appendonly", "yes"), ("backup-journal-keep", "1d"), ("auto-aof-rewrite-percentage", "0")];

fn now_ms(client: &mut Client) -> u64 {
    let time = client.run("TIME");
    let numbers: Vec<u64> = time.split('"').filter_map(|word| word.parse().ok()).collect();
    numbers[0] * 1000 + numbers[1] / 1000
}

/// A moment after everything that has happened, and before everything that happens later.
fn moment(client: &mut Client) -> u64 {
    let last_ms = now_ms(client);
    eventually("the clock goes on", || now_ms(client) > last_ms + 1);
    let moment_ms = now_ms(client);
    eventually("the clock goes on", || now_ms(client) > moment_ms + 1);
    moment_ms
}

/// Writes a checkpoint, before which the journal is archived.
pub fn rewrite(client: &mut Client) {
    client.run("BGREWRITEAOF");
    eventually("the checkpoint is written", || client.info("persistence", "aof_rewrite_in_progress") == "0");
    assert_eq!(client.info("persistence", "aof_last_bgrewrite_status"), "ok");
}

pub fn archived(directory: &Path) -> Vec<PathBuf> {
    let folder = directory.join("state/backups/default/journal");
    let logs = fs::read_dir(folder).into_iter().flatten().map(|log| log.unwrap().path());
    let mut files: Vec<PathBuf> =
        logs.flat_map(|log| fs::read_dir(log).unwrap()).map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn restored(operator: &mut Operator, name: &str, from: &str, at_ms: u64) -> u16 {
    let port = restore(operator, name, "everysec", &format!("{from} {at_ms}"));
    eventually("it is active or has failed", || !operator.run(&format!("restore {name}")).contains("Loading"));
    assert_eq!(operator.run(&format!("restore {name}")), "Active");
    port
}

#[test]
fn the_dataset_of_a_moment_between_two_backups_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), ARCHIVED);
    let mut client = node.connect();
    fill(&mut client, 7);
    // It expires before the restore, and a later command makes that undone.
    client.run("SET persisted v PX 15000");
    let deadline_ms = now_ms(&mut client) + 15_000;
    client.run("SET expired v PX 2000");
    assert!(operator.run("backup default default/one 12").starts_with("default/one "));
    assert_eq!(client.run("PERSIST persisted"), "(integer) 1", "in time");
    random(&mut client, 8);
    rewrite(&mut client);
    for line in ["SPOP big:set 50", "SWAPDB 0 1", "SELECT 3", "SET three 3", "SELECT 0", "FUNCTION FLUSH"] {
        client.run(line);
    }
    eventually("the key expires", || {
        client.run("SELECT 1");
        client.run("EXISTS expired") == "(integer) 0"
    });
    client.run("SELECT 0");
    eventually("the deadline is over that the backup has", || now_ms(&mut client) > deadline_ms);
    let at_ms = moment(&mut client);
    let before = digests(&mut client);
    client.run("FLUSHALL");
    client.run("SET after 1");
    assert_eq!(operator.run("backup default default/two 12"), "default/two 1");

    let first = restored(&mut operator, "first", "default", at_ms);
    // The moment of the backup itself, and one that the archive has only now.
    let late_ms = moment(&mut client);
    client.run("SET later 1");
    let second = restored(&mut operator, "second", "default/two", late_ms);
    assert_eq!(connect(second).run("DBSIZE"), "(integer) 1");
    drop((node, client));

    let conf = directory.path().join("state/databases/first.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text + "enable-debug-command yes\n").unwrap();
    let (node, mut operator) = start(directory.path(), ARCHIVED);
    assert_eq!(operator.run("failed"), "");
    let mut copy = connect(first);
    loaded(&mut copy);
    assert_eq!(digests(&mut copy), before);
    copy.run("SELECT 1");
    assert_eq!(copy.run("GET persisted"), "\"v\"");

    // The archive goes on where it ended.
    let mut client = node.connect();
    loaded(&mut client);
    client.run("SET restarted 1");
    let at_ms = moment(&mut client);
    client.run("FLUSHALL");
    let third = restored(&mut operator, "third", "default", at_ms);
    assert_eq!(connect(third).run("MGET after later restarted"), "1) \"1\"\n2) \"1\"\n3) \"1\"");
}

#[test]
fn a_moment_that_cannot_be_reached_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), ARCHIVED);
    let mut client = node.connect();
    let mut refused = |words: &str| operator.run(&format!("restore copy 1 none {words}"));
    let early_ms = moment(&mut client);
    let folder = directory.path().join("state/backups");
    assert_eq!(refused("default 1"), format!("error: there is no backup in {}", folder.join("default").display()));
    operator.run("backup default default/one 12");
    client.run("SET a 1");
    rewrite(&mut client);
    let middle_ms = moment(&mut client);
    client.run("SET a 2");
    rewrite(&mut client);
    for line in ["SET a 3", "SET a 4"] {
        client.run(line);
        rewrite(&mut client);
    }
    let late_ms = moment(&mut client);
    let mut refused = |words: &str| operator.run(&format!("restore copy 1 none {words}"));
    let early = refused(&format!("default {early_ms}"));
    assert!(
        early.starts_with("error: the oldest backup in default was made at ") && early.ends_with(" is earlier"),
        "{early}"
    );
    let early = refused(&format!("default/one {early_ms}"));
    assert!(early.contains("give an older backup, or the directory that has all backups"), "{early}");
    let future = refused("default 4000000000000");
    assert_eq!(future, "error: 2096-10-02T07:06:40.000Z is in the future");
    // Nobody archives what is later.
    client.run("CONFIG SET backup-journal-keep \"\"");
    let late = refused(&format!("default {late_ms}"));
    assert!(late.starts_with("error: the journal is archived only up to ") && late.ends_with(" is later"), "{late}");

    let files = archived(directory.path());
    assert!(files.len() >= 4, "{files:?}");
    // A file without which the next ones cannot be reached.
    let (gap, kept) = (&files[files.len() - 2], fs::read(&files[files.len() - 2]).unwrap());
    fs::remove_file(gap).unwrap();
    let why = refused(&format!("default {late_ms}"));
    assert!(why.contains("the archived journal has a gap from position "), "{why}");
    let port = restored(&mut operator, "copy", "default", middle_ms);
    assert_eq!(connect(port).run("GET a"), "\"1\"");
    assert_eq!(operator.run("delete copy"), "done");
    fs::write(gap, kept).unwrap();

    // The file that the middle needs is damaged.
    let needed = files.iter().find(|file| fs::read(file).unwrap().windows(3).any(|part| part == b"SET")).unwrap();
    let at = fs::read(needed).unwrap().windows(3).position(|part| part == b"SET").unwrap();
    flip(needed, at);
    restore(&mut operator, "copy", "none", &format!("default {middle_ms}"));
    eventually("the restore fails", || operator.run("restore copy").contains("its checksum or its end is wrong"));
    let why = operator.run("restore copy");
    assert!(why.starts_with(&needed.display().to_string()), "{why}");
    assert_eq!(operator.run("delete copy"), "done");

    // Without a journal there is nothing that goes on from a backup.
    client.run("CONFIG SET appendonly no");
    operator.run("backup default other/one 12");
    let why = operator.run(&format!("restore copy 1 none other {}", now_ms(&mut client)));
    assert!(
        why.starts_with("error: the backup other/one does not say at which position of the journal it was made"),
        "{why}"
    );
    // Another journal has begun, and is not archived.
    client.run("CONFIG SET appendonly yes");
    operator.run("backup default default/two 12");
    let why = operator.run(&format!("restore copy 1 none default {}", moment(&mut client)));
    assert!(why.contains("has no archived journal after the backup"), "{why}");
}

/// What a replica repeats has no time in its journal. Once, all of it was restored, whatever the moment was.
#[test]
fn between_two_copies_of_a_replicas_journal_no_moment_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), ARCHIVED);
    let primary = crate::common::Node::start(&[]);
    let (mut client, mut of_primary) = (node.connect(), primary.connect());
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
    let mut write = |value: &str, client: &mut Client| {
        of_primary.run(&format!("SET k {value}"));
        eventually("it has arrived", || client.run("GET k") == format!("\"{value}\""));
        moment(client)
    };
    write("0", &mut client);
    assert_eq!(operator.run("backup default default/one 12"), "default/one 1");
    let between_ms = write("1", &mut client);
    write("2", &mut client);
    // All records up to here are copied now.
    rewrite(&mut client);
    let whole_ms = stretch_ms(directory.path());
    write("3", &mut client);
    rewrite(&mut client);

    let port = restored(&mut operator, "whole", "default", whole_ms);
    assert_eq!(connect(port).run("GET k"), "\"2\"");
    restore(&mut operator, "between", "none", &format!("default {between_ms}"));
    let mut why = String::new();
    eventually("the restore fails", || {
        why = operator.run("restore between");
        why.contains("that a replica has repeated")
    });
    let (_, last) = why.rsplit_once("that can be restored is ").unwrap();
    let first_ms = base::time::parse_instant(last).unwrap();
    assert_eq!(operator.run("delete between"), "done");
    let port = restored(&mut operator, "first", "default", first_ms);
    assert_eq!(connect(port).run("GET k"), "\"0\"");
}

/// Up to when the archive has everything.
fn stretch_ms(directory: &Path) -> u64 {
    let names = archived(directory).into_iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    names.filter_map(|name| name.rsplit_once('-')?.1.parse().ok()).max().unwrap()
}
