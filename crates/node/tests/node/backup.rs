//! Backups of a running database, and databases that begin with one.

use crate::common::{eventually, free_port};
use crate::databases::{Operator, connect, start};
use crate::files::{digests, fill, loaded};
use base::clock::wall_ms;
use node::{DatabaseState, Definition, NodeError, WantedBackup};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The requests of these tests to their node.
pub fn run_command(node: &Arc<node::Node>, words: &[&str]) -> Result<String, NodeError> {
    let database = |name: &str| node.database(name).ok_or_else(|| NodeError::NotFound(name.to_owned()));
    let wanted = |to: &str, version: &str| WantedBackup {
        to: (to != "-").then(|| to.to_owned()),
        rdb_version: version.parse().ok(),
        is_scheduled: false,
    };
    let now_ms = wall_ms();
    match *words {
        // Waits for the end.
        ["backup", name, to, version] => {
            let database = database(name)?;
            let started = database.start_backup(&wanted(to, version), now_ms)?;
            eventually("the backup ends", || database.running_backup().is_none());
            let ended = database.last_backup().unwrap();
            assert_eq!(ended.path, started.path);
            Ok(ended
                .outcome
                .map_or_else(|why| format!("failed: {why}"), |backup| format!("{} {}", backup.path, backup.keys)))
        }
        ["backup", name, to] => database(name)?.start_backup(&wanted(to, "12"), now_ms).map(|begun| begun.path.clone()),
        // As if it were so many milliseconds later.
        ["backup", name, "due", "after", later_ms] => {
            let database = database(name)?;
            eventually("no backup is being made", || database.running_backup().is_none());
            database.back_up_if_due(now_ms + later_ms.parse::<u64>().unwrap());
            Ok("done".to_owned())
        }
        ["backup"] => Ok(node.backups().iter().map(|backup| backup.path.clone()).collect::<Vec<_>>().join(" ")),
        ["backup", name] => Ok(match database(name)?.last_backup() {
            None => "none".to_owned(),
            Some(ended) => ended.outcome.map_or_else(|why| format!("failed: {why}"), |backup| backup.path),
        }),
        ["restore", name] => Ok(match database(name)?.state() {
            DatabaseState::Failed => database(name)?.load_failure().unwrap(),
            state => format!("{state:?}"),
        }),
        ["restore", name, port, persistence, from, ref at @ ..] => {
            let definition = Definition {
                name: name.to_owned(),
                port: port.parse().unwrap(),
                memory_limit_bytes: 80 << 20,
                ram_limit_bytes: 40 << 20,
                persistence: persistence.to_owned(),
                from: Some(from.to_owned()),
                at_ms: at.first().map(|at_ms| at_ms.parse().unwrap()),
                ..Definition::default()
            };
            node.create(&definition).map(|database| database.definition().port.to_string())
        }
        _ => panic!("{words:?}"),
    }
}

pub fn restore(operator: &mut Operator, name: &str, persistence: &str, from: &str) -> u16 {
    let mut said = String::new();
    eventually("a port is free", || {
        said = operator.run(&format!("restore {name} {} {persistence} {from}", free_port()));
        !said.contains("is taken") && !said.contains("in use")
    });
    said.parse().unwrap_or_else(|_| panic!("{said}"))
}

pub const DEBUG: &[(&str, &str)] = &[("enable-debug-command", "yes")];

#[test]
fn a_backup_becomes_a_database_with_the_same_dataset() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), DEBUG);
    let mut client = node.connect();
    fill(&mut client, 7);
    client.run("HSET volatile a 1 b 2 c 3");
    client.run("HPEXPIREAT volatile 4000000000000 FIELDS 1 a");
    client.run("HPEXPIREAT volatile 4000000000777 FIELDS 1 b");
    let before = digests(&mut client);
    let said = operator.run("backup default orders/first 12");
    let keys: u64 = said.strip_prefix("orders/first ").expect(&said).parse().unwrap();
    assert!(keys > 100, "{keys}");
    let folder = directory.path().join("state/backups/orders/first");
    let card: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("backup.json")).unwrap()).unwrap();
    assert_eq!((&card["keys"], &card["database"]), (&keys.into(), &"default".into()));
    assert_eq!(card["bytes"], fs::metadata(folder.join("dump.rdb")).unwrap().len());
    client.run("FLUSHALL");

    let port = restore(&mut operator, "copy", "everysec", "orders/first");
    let mut copy = connect(port);
    loaded(&mut copy);
    eventually("it is active", || operator.run("restore copy") == "Active");
    drop((node, client, copy));

    // The next start does not load the backup again. A database of its own must allow DEBUG itself.
    fs::remove_dir_all(&folder).unwrap();
    let conf = directory.path().join("state/databases/copy.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text + "enable-debug-command yes\n").unwrap();
    let (_node, mut operator) = start(directory.path(), DEBUG);
    assert_eq!(operator.run("failed"), "");
    let mut copy = connect(port);
    loaded(&mut copy);
    assert_eq!(digests(&mut copy), before);
}

#[test]
fn a_restore_that_was_interrupted_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), DEBUG);
    node.connect().run("MSET a 1 b 2");
    assert_eq!(operator.run("backup default a 12"), "a 2");
    let port = restore(&mut operator, "copy", "none", "a");
    loaded(&mut connect(port));
    let mark = directory.path().join("state/databases/copy.restore");
    assert!(!mark.exists());
    drop(node);
    fs::write(&mark, "a").unwrap();
    let (_node, _operator) = start(directory.path(), DEBUG);
    let mut copy = connect(port);
    loaded(&mut copy);
    assert_eq!(copy.run("MGET a b"), "1) \"1\"\n2) \"2\"");
    eventually("the mark is removed", || !mark.exists());
}

#[test]
fn a_backup_that_cannot_be_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), DEBUG);
    let mut client = node.connect();
    client.run("SET k v");
    let backups = directory.path().join("state/backups");
    assert_eq!(operator.run("backup default one 12"), "one 1");
    let not_empty = format!("error: {} is not empty", backups.join("one").display());
    assert_eq!(operator.run("backup default one 12"), not_empty);
    assert_eq!(operator.run("backup default - 9"), "error: 9 is not one of 10, 11 and 12");
    for to in ["../x", "/etc/x", "a/../../x"] {
        let said = operator.run(&format!("backup default {to} 12"));
        assert_eq!(said, format!("error: '{to}' is not below {}, the node's backup-path", backups.display()));
    }
    fs::write(backups.join("file"), "").unwrap();
    let said = operator.run("backup default file/x 12");
    assert!(said.contains("file/x") && said.ends_with("Not a directory (os error 20)"), "{said}");

    // Older versions of the format cannot hold expiries of fields.
    client.run("HSET h f v");
    client.run("HEXPIRE h 1000 FIELDS 1 f");
    let said = operator.run("backup default old 10");
    assert!(said.starts_with("failed: 1 hashes have fields that expire"), "{said}");
    assert!(!backups.join("old").exists());
    assert_eq!(operator.run("backup"), "one", "nothing is left of what failed");

    // While a script keeps the dataset, the backup waits for its moment.
    client.run("CONFIG SET busy-reply-threshold 1");
    let mut other = node.connect();
    other.send(b"EVAL \"redis.call('get', KEYS[1]) while true do end\" 1 k\r\n");
    eventually("the script runs", || client.run("PING").starts_with("(error) BUSY"));
    assert_eq!(operator.run("backup default two"), "two");
    assert_eq!(operator.run("backup default three"), "error: another backup is being made: two");
    assert_eq!(client.run("SCRIPT KILL"), "OK");
    eventually("the backup ends", || operator.run("backup default") == "two");
}

pub fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_backup_is_not_served_and_its_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), DEBUG);
    node.connect().run("SET key 12345678901234567890");
    assert_eq!(operator.run("backup default one 12"), "one 1");
    let backup = directory.path().join("state/backups/one");
    let dump = backup.join("dump.rdb");
    let bytes = fs::read(&dump).unwrap();
    let at = bytes.windows(5).position(|part| part == b"56789").unwrap();
    flip(&dump, at);
    let port = restore(&mut operator, "copy", "none", "one");
    eventually("the restore fails", || operator.run("restore copy").contains("checksum"));
    let why = operator.run("restore copy");
    assert!(why.starts_with(&dump.display().to_string()), "{why}");
    assert!(connect(port).run("GET key").starts_with("(error) LOADING"));
    assert_eq!(operator.run("delete copy"), "done");

    // The checksum of the file is right, but it is another file.
    node.connect().run("SET key 12345678901234567891");
    assert_eq!(operator.run("backup default two 12"), "two 1");
    fs::copy(directory.path().join("state/backups/two/dump.rdb"), &dump).unwrap();
    restore(&mut operator, "copy", "none", "one");
    eventually("the restore fails", || operator.run("restore copy").contains("its SHA-256 is"));
    assert_eq!(operator.run("delete copy"), "done");

    fs::write(&dump, &bytes[1..]).unwrap();
    let refused = operator.run("restore copy 1 none one");
    let size = format!("it has {} bytes, but backup.json says {}", bytes.len() - 1, bytes.len());
    assert!(refused.ends_with(&size), "{refused}");
    fs::write(backup.join("backup.json"), "{\"format\": 2}").unwrap();
    let refused = operator.run("restore copy 1 none one");
    assert!(refused.ends_with("its format is 2, but this release reads only format 1"), "{refused}");
    let refused = operator.run("restore copy 1 none nothing");
    assert!(refused.ends_with("No such file or directory (os error 2)"), "{refused}");
    assert_eq!(operator.run("names"), "default");
}

#[test]
fn the_schedule_makes_backups_and_deletes_old_ones() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), DEBUG);
    let mut client = node.connect();
    client.run("SET k v");
    assert_eq!(operator.run("backup default kept 12"), "kept 1");
    assert_eq!(
        client.run("CONFIG SET backup-schedule soon"),
        "(error) ERR CONFIG SET failed (possibly related to argument 'backup-schedule') - backup-schedule: \"soon\" is not a schedule; write 30m, 6h, 1d, or with a time of the day (UTC) 1d at 03:00"
    );
    assert_eq!(client.run("CONFIG SET backup-keep 2 backup-schedule 1h"), "OK");
    eventually("the first one is made at once", || operator.run("backup default").starts_with("default/"));
    let first = operator.run("backup default");
    operator.run("backup default due after 3000000");
    assert_eq!(operator.run("backup default"), first, "it is not due yet");
    operator.run("backup default due after 3600000");
    eventually("the second one is made", || operator.run("backup default") != first);
    // The node's own clock is behind the second one, so the third one follows at once, and the first one goes.
    eventually("the first one goes", || {
        let all = operator.run("backup");
        !all.contains(&first) && all.split(' ').count() == 3
    });
    assert!(operator.run("backup").contains("kept"), "what somebody asked for is not deleted");

    // A directory that cannot be made: the failure is told, and the next try is not at once.
    let folder = directory.path().join("state/backups/default");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    operator.run("backup default due after 90000000");
    let failed = operator.run("backup default");
    assert!(failed.starts_with("failed: the backup cannot begin: "), "{failed}");
    fs::remove_file(&folder).unwrap();
    operator.run("backup default due after 90000001");
    assert_eq!(operator.run("backup default"), failed);
    operator.run("backup default due after 90600000");
    eventually("the next try", || operator.run("backup default").starts_with("default/"));
}
