//! `flintkv journal` on the directory of a node: what it prints, and what it notices.

use flintkv_tests::{Node, binary, eventually};
use std::fs;
use std::path::Path;
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

/// Half of the dataset is in the base, half in the journal, of which a running node has the end in the ring only.
fn node() -> Node {
    let node = Node::start(&[("appendonly", "yes")]);
    fill(&node, 1);
    node.connect().run("BGREWRITEAOF");
    let info = |name: &str| node.connect().run("INFO persistence").contains(name);
    eventually("the base is written", || info("aof_rewrite_in_progress:0") && !has_base(&node, "base-0.rdb"));
    fill(&node, 2);
    node
}

fn has_base(node: &Node, name: &str) -> bool {
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
    assert!(!said.contains("list1"), "the base has it: {said}");
    node.terminate();
    node.ended();
    let (done, said) = journal(&["check", show(&folder)]);
    assert!(done && said.ends_with("\nok\n") && !said.contains("in use"), "{said}");
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let base = files.into_iter().find(|path| path.extension().is_some_and(|name| name == "rdb")).expect("a base");
    let mut bytes = fs::read(&base).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&base, &bytes).unwrap();
    let (done, said) = journal(&["check", show(&folder)]);
    assert!(!done && said.contains("base-") && said.contains("hint: restore"), "{said}");
}
