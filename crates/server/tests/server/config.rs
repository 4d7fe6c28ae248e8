//! CONFIG SET and CONFIG REWRITE while clients are served: what takes effect when, who waits, what is left of a failure.

use crate::common::Node;

/// CONFIG SET takes effect with the next command, wherever that command was received.
#[test]
fn config_set_applies_to_what_follows_in_the_same_pipeline() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    // All in one batch.
    a.send(b"CONFIG SET set-max-intset-entries 2\r\nSADD s 1 2 3\r\nOBJECT ENCODING s\r\n");
    assert_eq!([a.read(), a.read(), a.read()], ["OK", "(integer) 3", "\"listpack\""]);
    // In a transaction too.
    a.send(b"MULTI\r\nCONFIG SET set-max-intset-entries 512\r\nSADD t 1 2 3\r\nEXEC\r\nOBJECT ENCODING t\r\n");
    assert_eq!([a.read(), a.read(), a.read()], ["OK", "QUEUED", "QUEUED"]);
    assert_eq!([a.read(), a.read()], ["1) OK\n2) (integer) 3", "\"intset\""]);
}

/// As in Redis: whoever sets the threshold to 0 finds that very command in the slow log, and not the one that ends it.
#[test]
fn config_set_obeys_its_own_slow_log_threshold() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    a.send(b"CONFIG SET slowlog-log-slower-than 0\r\nPING\r\nCONFIG SET slowlog-log-slower-than -1\r\nPING\r\n");
    assert_eq!([a.read(), a.read(), a.read(), a.read()], ["OK", "PONG", "OK", "PONG"]);
    let logged = a.run("SLOWLOG GET");
    assert!(logged.contains("\"slowlog-log-slower-than\"") && logged.contains("\"PING\""), "{logged}");
    assert_eq!(a.run("SLOWLOG LEN"), "(integer) 2", "{logged}");
    assert_eq!(a.run("SLOWLOG RESET"), "OK");
    a.send(
        b"MULTI\r\nCONFIG SET slowlog-log-slower-than 0\r\nPING\r\nCONFIG SET slowlog-log-slower-than -1\r\nEXEC\r\n",
    );
    let replies: Vec<String> = (0..5).map(|_| a.read()).collect();
    assert_eq!(replies[4], "1) OK\n2) PONG\n3) OK");
    assert_eq!(a.run("SLOWLOG LEN"), "(integer) 2");
}
