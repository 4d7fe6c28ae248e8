//! The scrubber of a running node: damage of files is found before anybody needs them.

use crate::common::{Client, Node, eventually};
use crate::databases::start;
use crate::kept_flash::{MB, TIERED, new_checkpoint, set_many};
use crate::persist::{again, folder, loaded, with};
use crate::points_in_time::archived;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    file.sync_all().unwrap();
}

fn only(folder: &Path, end: &str) -> std::path::PathBuf {
    let mut files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.find(|path| path.to_str().unwrap().ends_with(end)).expect("there is such a file")
}

#[test]
fn damage_on_flash_and_of_the_base_is_found_and_a_new_checkpoint_is_written() {
    let directives = with(&[TIERED, &[("scrub-interval", "0")]].concat());
    let node = Node::start(&directives);
    let mut client = node.connect();
    node.limit_objects(4 * MB);
    set_many(&mut client, 0..10_000, 2_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 7_000);
    new_checkpoint(&mut client);
    let flash = only(&node.dir.path().join("flash"), ".log");
    // Some of it is in the middle of written segments.
    (0..10).for_each(|nth| flip(&flash, (1 + nth) * MB + 1_000));
    assert_eq!(client.run("CONFIG SET scrub-interval 1"), "OK");
    let number = |client: &mut Client, name: &str| client.info_number("tiering", name);
    eventually("the damage is found", || number(&mut client, "rotten_pages") > 0);
    eventually("keys are counted", || number(&mut client, "rotten_keys") + number(&mut client, "rescued_values") > 0);
    assert!(node.log().contains("the scrubber has found damage on flash"), "{}", node.log());

    let checkpoint = only(&folder(&node), ".rdb");
    flip(&checkpoint, fs::metadata(&checkpoint).unwrap().len() / 2);
    eventually("a new checkpoint is there", || !checkpoint.exists());
    assert!(node.log().contains("the checkpoint is damaged"), "{}", node.log());
    assert_eq!(client.run("CONFIG SET scrub-interval 0"), "OK");
    eventually("it is complete", || client.info("persistence", "aof_rewrite_in_progress") == "0");
    let node = again(node, &directives);
    assert_eq!(loaded(&node).run("DBSIZE"), "(integer) 10000");
}

#[test]
fn damage_of_the_journal_is_found_and_a_checkpoint_makes_it_harmless() {
    let directives = with(&[("scrub-interval", "0"), ("auto-aof-rewrite-percentage", "0")]);
    let node = Node::start(&directives);
    let mut client = node.connect();
    set_many(&mut client, 0..2_000, 1_000, 1);
    let durable = client.info_number("persistence", "journal_position");
    eventually("it is on the device", || client.info_number("persistence", "journal_durable_position") >= durable);
    let journal = folder(&node).join("journal-0000");
    let checkpoint = only(&folder(&node), ".rdb");
    // Behind the file's head.
    flip(&journal, MB + 500_000);
    assert_eq!(client.run("CONFIG SET scrub-interval 1"), "OK");
    eventually("a new checkpoint is there", || !checkpoint.exists());
    assert!(node.log().contains("the journal is damaged: "), "{}", node.log());
    assert_eq!(client.run("CONFIG SET scrub-interval 0"), "OK");
    eventually("it is complete", || client.info("persistence", "aof_rewrite_in_progress") == "0");
    let node = again(node, &directives);
    assert_eq!(loaded(&node).run("DBSIZE"), "(integer) 2000");
}

#[test]
fn damage_of_backups_and_of_the_archived_journal_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let more = [("scrub-interval", "0"), ("appendonly", "yes"), ("backup-journal-keep", "1d")];
    let (node, mut operator) = start(directory.path(), &more);
    let mut client = node.connect();
    client.run("SET key 12345678901234567890");
    assert_eq!(operator.run("backup default one 12"), "one 1");
    assert_eq!(operator.run("backup default two 12"), "two 1");
    client.run("SET key 12345678901234567891");
    client.run("BGREWRITEAOF");
    let backups = directory.path().join("state/backups");
    let archived = || archived(directory.path());
    // A file may get its final name between the two questions.
    let is_written = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.len() > 100);
    eventually("the journal is archived", || archived().iter().any(is_written));
    assert_eq!(client.run("CONFIG SET scrub-interval 1"), "OK");
    eventually("the journal is checked", || node.log().contains("the journal is intact"));
    assert!(!node.log().contains("damaged"), "{}", node.log());
    let dump = backups.join("one/dump.rdb");
    flip(&dump, fs::metadata(&dump).unwrap().len() - 12);
    let file = archived().into_iter().find(is_written).unwrap();
    flip(&file, 60);
    for file in [dump, file] {
        let line = format!("the scrubber has found a damaged backup: {}", file.display());
        eventually("the damage is found", || node.log().contains(&line));
    }
    assert!(!node.log().contains("two/dump.rdb"), "{}", node.log());
}
