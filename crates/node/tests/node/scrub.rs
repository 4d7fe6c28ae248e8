//! The scrubber of a running node: damage of files is found before anybody needs them.

use crate::common::{Client, Node, eventually};
use crate::kept_flash::{MB, TIERED, new_base, set_many};
use crate::persist::{again, folder, loaded, with};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

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
fn damage_on_flash_and_of_the_base_is_found_and_a_new_base_is_written() {
    let directives = with(&[TIERED, &[("scrub-interval", "0")]].concat());
    let node = Node::start(&directives);
    let mut client = node.connect();
    node.limit_objects(4 * MB);
    set_many(&mut client, 0..10_000, 2_000, 1);
    eventually("most values are on flash", || client.info_number("tiering", "values_in_flash") > 7_000);
    new_base(&mut client);
    let flash = only(&node.dir.path().join("flash"), ".log");
    // Some of it is in the middle of written segments.
    (0..10).for_each(|nth| flip(&flash, (1 + nth) * MB + 1_000));
    assert_eq!(client.run("CONFIG SET scrub-interval 1"), "OK");
    let number = |client: &mut Client, name: &str| client.info_number("tiering", name);
    eventually("the damage is found", || number(&mut client, "rotten_pages") > 0);
    eventually("keys are counted", || number(&mut client, "rotten_keys") + number(&mut client, "rescued_values") > 0);
    assert!(node.log().contains("the scrubber has found damage on flash"), "{}", node.log());

    let base = only(&folder(&node), ".rdb");
    flip(&base, fs::metadata(&base).unwrap().len() / 2);
    eventually("a new base is there", || !base.exists());
    assert!(node.log().contains("the base is damaged"), "{}", node.log());
    assert_eq!(client.run("CONFIG SET scrub-interval 0"), "OK");
    eventually("it is complete", || client.info("persistence", "aof_rewrite_in_progress") == "0");
    let node = again(node, &directives);
    assert_eq!(loaded(&node).run("DBSIZE"), "(integer) 10000");
}
