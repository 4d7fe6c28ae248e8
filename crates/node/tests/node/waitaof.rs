//! WAITAOF waits for the journal, whose device a test stops.

use crate::common::{Client, Node, eventually};
use crate::journal_waits::{connect, have_sent, is_silent, start};

const NOBODY: &str = "1) (integer) 0\n2) (integer) 0";
const HERE: &str = "1) (integer) 1\n2) (integer) 0";

fn blocked(node: &Node, count: &str) {
    eventually("the number of blocked clients", || node.connect().info("clients", "blocked_clients") == count);
}

fn id(client: &mut Client) -> String {
    client.run("CLIENT ID").replace("(integer) ", "")
}

#[test]
fn it_waits_until_the_clients_own_last_write_is_durable() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    let (mut writer, socket) = connect(&node);
    let mut reader = node.connect();
    operator.run("journal pause");
    writer.send(b"SET k 1\r\nWAITAOF 1 0 0\r\nGET k\r\n");
    assert_eq!(writer.read(), "OK");
    blocked(&node, "1");
    have_sent(&mut operator);
    is_silent(&socket);
    // These wait for nobody else's write.
    assert_eq!(reader.run("WAITAOF 1 0 0"), HERE);
    assert_eq!(reader.run("GET k"), "\"1\"");
    assert_eq!(reader.run("WAITAOF 1 0 0"), HERE);
    operator.run("journal go");
    assert_eq!(writer.read(), HERE);
    assert_eq!(writer.read(), "\"1\"");
    blocked(&node, "0");
    operator.run("journal pause");
    assert_eq!(reader.run("SET other 1"), "OK");
    assert_eq!(writer.run("WAITAOF 1 0 0"), HERE);
    assert_eq!(reader.run("WAITAOF 0 0 0"), NOBODY);

    // What another client's command has served is the blocked client's write.
    let mut popper = node.connect();
    popper.send(b"BLPOP list 0\r\n");
    blocked(&node, "1");
    assert_eq!(reader.run("RPUSH list a"), "(integer) 1");
    assert_eq!(popper.read(), "1) \"list\"\n2) \"a\"");
    assert_eq!(popper.run("WAITAOF 1 0 1"), NOBODY);
}

#[test]
fn a_timeout_an_unblock_and_a_kill_end_the_wait() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    let (mut writer, _) = connect(&node);
    let mut other = node.connect();
    let writer_id = id(&mut writer);
    operator.run("journal pause");
    assert_eq!(writer.run("SET k 1"), "OK");
    assert_eq!(writer.run("WAITAOF 1 0 20"), NOBODY);
    assert_eq!(writer.run("WAITAOF 0 1 20"), NOBODY);
    assert_eq!(writer.run("WAITAOF 1 1 20"), NOBODY);
    for (how, reply) in [("", NOBODY), (" ERROR", "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        writer.send(b"WAITAOF 1 0 0\r\n");
        blocked(&node, "1");
        assert_eq!(other.run(&format!("CLIENT UNBLOCK {writer_id}{how}")), "(integer) 1");
        assert_eq!(writer.read(), reply);
    }
    writer.send(b"WAITAOF 1 0 0\r\n");
    blocked(&node, "1");
    assert_eq!(other.run(&format!("CLIENT KILL ID {writer_id}")), "(integer) 1");
    assert_eq!(writer.reply(), None);
    blocked(&node, "0");

    // There is no replica. At the end of the wait, the reply says what is true then.
    let other_id = id(&mut other);
    assert_eq!(other.run("SET k 2"), "OK");
    other.send(b"WAITAOF 1 1 0\r\n");
    blocked(&node, "1");
    operator.run("journal go");
    eventually("the journal is durable", || operator.run("journal durable") == "true");
    assert_eq!(node.connect().run(&format!("CLIENT UNBLOCK {other_id}")), "(integer) 1");
    assert_eq!(other.read(), HERE);
    assert_eq!(other.run("WAITAOF 0 1 20"), HERE);
}

#[test]
fn transactions_and_scripts_do_not_wait() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    let mut client = node.connect();
    operator.run("journal pause");
    for line in ["SET k 1", "MULTI", "WAITAOF 1 0 0"] {
        client.run(line);
    }
    assert_eq!(client.run("EXEC"), "1) 1) (integer) 0\n   2) (integer) 0");
    assert_eq!(client.run("EVAL \"return redis.call('waitaof', 1, 0, 0)\" 0"), NOBODY);
}

#[test]
fn it_ends_with_the_journal() {
    let (node, mut operator, _folder) = start("everysec", &[]);
    let mut client = node.connect();
    let refusal = "(error) ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    operator.run("journal pause");
    client.send(b"SET k 1\r\nWAITAOF 1 0 0\r\n");
    assert_eq!(client.read(), "OK");
    blocked(&node, "1");
    operator.run("journal detach");
    assert_eq!(client.read(), refusal);
    assert_eq!(client.run("WAITAOF 1 0 0"), refusal);
    assert_eq!(client.run("WAITAOF 0 0 0"), NOBODY);
}

#[test]
fn with_no_it_waits_for_a_sync_that_the_ring_needs_and_with_always_replies_have_waited_already() {
    let (node, mut operator, _folder) = start("no", &[]);
    let mut client = node.connect();
    assert_eq!(client.run("SET k 1"), "OK");
    assert_eq!(client.run("WAITAOF 1 0 20"), NOBODY);
    client.send(b"WAITAOF 1 0 0\r\n");
    blocked(&node, "1");
    let mut other = node.connect();
    let value = "v".repeat(10_000);
    while operator.run("journal durable") == "false" && node.connect().info("clients", "blocked_clients") == "1" {
        other.run(&format!("SET k {value}"));
    }
    assert_eq!(client.read(), HERE);

    let (node, _operator, _folder) = start("always", &[]);
    let mut client = node.connect();
    client.send(b"SET k 1\r\nWAITAOF 1 0 0\r\n");
    assert_eq!((client.read(), client.read()), ("OK".into(), HERE.into()));
    assert_eq!(client.run("WAITAOF 1 0 0"), HERE);
}
