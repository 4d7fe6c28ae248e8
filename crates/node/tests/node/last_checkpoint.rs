//! The end of a node: when it writes a checkpoint, so that its next start has no journal to run, and what ends that.

use crate::common::{Client, Node, eventually, free_port};
use crate::databases::{self, connect};
use crate::kept_flash::TIERED;
use crate::persist::{again, digest, fill, folder, loaded, with};
use flintkv_tests::one_line;
use libc::{SIGKILL, SIGTERM};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// No checkpoint is written but the first one, and that of the end.
const NO_CHECKPOINTS: &[(&str, &str)] = &[("auto-aof-rewrite-percentage", "0"), ("recovery-time-target", "0")];

/// More of the journal than a start is assumed to replay in a second, which is 200 MB. A node that was never recovered has measured nothing.
fn write_tail(client: &mut Client) {
    let value = vec![b'v'; 900_000];
    for round in 0..235_u64 {
        let (key, value) = (format!("tail:{}", round % 9), [&round.to_le_bytes()[..], &value].concat());
        assert_eq!(one_line(&client.call(&[b"SET", key.as_bytes(), &value])), "OK");
    }
    assert!(client.info_number("persistence", "recovery_estimated_ms") > 1000);
    assert_eq!(client.info("persistence", "aof_rewrites"), "0");
    // Of more than 211 MB of records, packed in its files.
    let mut size = |name| client.info_number("persistence", name);
    assert!(size("aof_current_size") - size("aof_base_size") < 16 << 20);
}

/// A node with a journal that its next start would run for long, and the digest of its dataset.
fn with_tail(directives: &[(&str, &str)]) -> (Node, Client, String) {
    let node = Node::start(directives);
    let mut client = loaded(&node);
    fill(&mut client, 3);
    write_tail(&mut client);
    let before = digest(&mut client);
    (node, client, before)
}

/// The only recovery that this log tells of has replayed so many records.
fn replayed(node: &Node) -> u64 {
    let log = node.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("the journal was replayed from")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let records = lines[0].rsplit_once(", ").and_then(|(_, words)| words.split_once(' '));
    records.and_then(|(number, _)| number.parse().ok()).expect("a number")
}

fn is_ending(client: &mut Client) -> bool {
    client.run("INFO server").contains("shutdown_in_milliseconds:")
}

/// A checkpoint cannot go on until somebody reads from this pipe, or it is removed.
struct Obstacle(PathBuf);

impl Obstacle {
    fn at(path: PathBuf) -> Obstacle {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        Obstacle(path)
    }
}

impl Drop for Obstacle {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it is there");
    }
}

#[test]
fn a_start_behind_an_end_replays_nothing() {
    for directives in [with(NO_CHECKPOINTS), with(&[TIERED, NO_CHECKPOINTS].concat())] {
        for by_client in [true, false] {
            let (mut node, mut client, before) = with_tail(&directives);
            match by_client {
                true => assert!(client.send(b"SHUTDOWN\r\n").rest().is_empty()),
                false => node.signal(SIGTERM),
            }
            assert!(node.ended().success());
            assert!(node.log().contains("the next start replays 0 B of"), "{}", node.log());
            let node = again(node, &directives);
            let mut client = loaded(&node);
            assert_eq!(replayed(&node), 0);
            assert_eq!(digest(&mut client), before);
        }
    }
}

#[test]
fn who_wants_the_end_now_or_without_saving_gets_it_without_a_checkpoint() {
    let directives = with(&[TIERED, NO_CHECKPOINTS].concat());
    for command in ["SHUTDOWN NOW", "SHUTDOWN NOSAVE"] {
        let (mut node, mut client, before) = with_tail(&directives);
        // A checkpoint would never end.
        let obstacle = Obstacle::at(folder(&node).join("base-index.new"));
        assert!(client.send(format!("{command}\r\n").as_bytes()).rest().is_empty());
        assert!(node.ended().success());
        assert!(!node.log().contains("the node writes a checkpoint before it stops"), "{command}: {}", node.log());
        drop(obstacle);
        let node = again(node, &directives);
        let mut client = loaded(&node);
        assert!(replayed(&node) >= 235, "{command}");
        assert_eq!(digest(&mut client), before, "{command}");
    }
}

/// A journal that a start runs within a second is left as it is.
#[test]
fn a_short_journal_is_not_worth_a_checkpoint() {
    let directives = with(&[TIERED, NO_CHECKPOINTS].concat());
    let mut node = Node::start(&directives);
    let mut client = loaded(&node);
    fill(&mut client, 3);
    let before = digest(&mut client);
    let obstacle = Obstacle::at(folder(&node).join("base-index.new"));
    node.signal(SIGTERM);
    assert!(node.ended().success());
    drop(obstacle);
    let node = again(node, &directives);
    let mut client = loaded(&node);
    assert!(replayed(&node) > 0);
    assert_eq!(digest(&mut client), before);
}

#[test]
fn while_the_checkpoint_is_written_readers_go_on_writers_wait_and_the_end_can_be_given_up() {
    let directives = with(&[TIERED, NO_CHECKPOINTS].concat());
    let (mut node, mut client, before) = with_tail(&directives);
    let obstacle = Obstacle::at(folder(&node).join("base-index.new"));
    let mut ending = node.connect();
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || is_ending(&mut client));
    let mut writer = node.connect();
    writer.send(b"SET later 1\r\n");
    eventually("both wait", || client.info("clients", "blocked_clients") == "2");
    assert_eq!(client.run("STRLEN tail:1"), "(integer) 900008");
    assert_eq!(digest(&mut client), before);
    assert_eq!(client.run("SHUTDOWN ABORT"), "OK");
    assert_eq!(ending.read(), "(error) ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(writer.read(), "OK");
    eventually("it goes on", || !is_ending(&mut client));
    let before = digest(&mut client);

    // The checkpoint still hangs, and the next end waits for it. Whoever asks twice does not wait.
    node.signal(SIGTERM);
    eventually("it waits", || is_ending(&mut client));
    assert_eq!(client.info("persistence", "aof_rewrite_in_progress"), "1");
    node.signal(SIGTERM);
    assert!(node.ended().success());
    assert!(node.log().contains("because the checkpoint was not ready"), "{}", node.log());
    drop(obstacle);
    let node = again(node, &directives);
    let mut client = loaded(&node);
    assert!(replayed(&node) >= 235);
    assert_eq!(digest(&mut client), before);
}

#[test]
fn a_node_that_is_killed_while_it_writes_its_last_checkpoint_has_lost_nothing() {
    // Before the cut, and in the middle of the dump.
    for (directives, draft) in
        [(with(&[TIERED, NO_CHECKPOINTS].concat()), "base-index.new"), (with(NO_CHECKPOINTS), "base.new")]
    {
        let (mut node, mut client, before) = with_tail(&directives);
        let obstacle = Obstacle::at(folder(&node).join(draft));
        node.signal(SIGTERM);
        eventually("it waits", || is_ending(&mut client));
        eventually("the checkpoint is begun", || client.info("persistence", "aof_rewrite_in_progress") == "1");
        node.signal(SIGKILL);
        node.ended();
        drop(obstacle);
        let node = again(node, &directives);
        let mut client = loaded(&node);
        assert!(replayed(&node) >= 235, "{draft}");
        assert_eq!(digest(&mut client), before, "{draft}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_does_not_keep_the_node_from_ending() {
    let directives = with(&[TIERED, NO_CHECKPOINTS].concat());
    let (mut node, _client, before) = with_tail(&directives);
    let obstacle = folder(&node).join("base.new");
    fs::create_dir(&obstacle).unwrap();
    node.signal(SIGTERM);
    assert!(node.ended().success());
    assert!(node.log().contains("no checkpoint could be written"), "{}", node.log());
    fs::remove_dir(&obstacle).unwrap();
    let node = again(node, &directives);
    let mut client = loaded(&node);
    assert!(replayed(&node) >= 235);
    assert_eq!(digest(&mut client), before);
}

/// The dump of the `save` points is written as well, and after a checkpoint that was being written.
#[test]
fn an_end_saves_and_writes_a_checkpoint() {
    let directives = with(&[TIERED, NO_CHECKPOINTS, &[("save", "3600 1")]].concat());
    let (mut node, mut client, before) = with_tail(&directives);
    client.run("BGREWRITEAOF");
    write_more(&mut client);
    node.signal(SIGTERM);
    assert!(node.ended().success());
    assert!(node.dir.path().join("dump.rdb").exists());
    let node = again(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before);
}

/// Nothing that a digest shows.
fn write_more(client: &mut Client) {
    client.run("SET more 1");
    client.run("DEL more");
}

#[test]
fn all_databases_of_a_node_end_with_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let debug = [("enable-debug-command", "yes")];
    let (mut node, mut operator) = databases::start(directory.path(), &debug);
    let begin = |operator: &mut databases::Operator, name: &str| {
        let port: u16 = operator.run(&format!("keep {name} {} everysec", free_port())).parse().expect("a port");
        let mut client = connect(port);
        for (directive, value) in NO_CHECKPOINTS {
            assert_eq!(client.run(&format!("CONFIG SET {directive} {value}")), "OK");
        }
        write_tail(&mut client);
        (port, values(&mut client))
    };
    let kept = ["orders", "users"].map(|name| begin(&mut operator, name));
    // Its commands are refused, and its dataset is kept like others.
    assert_eq!(operator.run("pause users"), "done");
    node.signal(SIGTERM);
    assert!(node.ended().success());
    assert_eq!(node.log().matches("the next start replays 0 B of").count(), 2, "{}", node.log());
    drop(node);
    let (node, mut operator) = databases::start(directory.path(), &debug);
    assert_eq!(operator.run("resume users"), "done");
    for (port, before) in kept {
        let mut client = connect(port);
        eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
        assert_eq!(values(&mut client), before);
    }
    assert_eq!(node.log().matches(", 0 records").count(), 2, "{}", node.log());
}

fn values(client: &mut Client) -> Vec<String> {
    (0..9).map(|key| client.run(&format!("GETRANGE tail:{key} 0 20"))).collect()
}

/// A replica's stream goes on meanwhile.
#[test]
fn a_replica_ends_with_a_checkpoint_too() {
    let primary = Node::start(&[("enable-debug-command", "yes")]);
    let directives = with(&[TIERED, NO_CHECKPOINTS].concat());
    let mut replica = Node::start(&directives);
    let (mut of_primary, mut of_replica) = (primary.connect(), loaded(&replica));
    crate::replica::follow(&mut of_replica, primary.port);
    let value = vec![b'v'; 900_000];
    for round in 0..235_u64 {
        of_primary.call(&[b"SET", format!("tail:{}", round % 9).as_bytes(), &value]);
        // Or a slow replica would lose the link, and get all as a checkpoint instead of a tail.
        assert_eq!(of_primary.run("WAIT 1 0"), "(integer) 1");
    }
    crate::replica::are_same(&mut of_primary, &mut of_replica);
    replica.signal(SIGTERM);
    assert!(replica.ended().success());
    assert!(replica.log().contains("the shutdown has waited"), "{}", replica.log());
    let replica = again(replica, &directives);
    let mut of_replica = loaded(&replica);
    crate::replica::follow(&mut of_replica, primary.port);
    crate::replica::are_same(&mut of_primary, &mut of_replica);
}
