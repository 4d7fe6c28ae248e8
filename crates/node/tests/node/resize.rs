//! Flash that grows and shrinks under load: afterwards every value is there, and the files have the reported size.

use crate::common::{Client, Node, eventually, free_port};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const MB: u64 = 1 << 20;
const RAM_MB: u64 = 22;

fn start(flash: &Path, port: u16, flash_mb: u64) -> Node {
    let (memory, ram) = (format!("{}mb", RAM_MB + flash_mb), format!("{RAM_MB}mb"));
    let directives = [
        ("flash-path", flash.to_str().unwrap()),
        ("memory-limit", &memory),
        ("ram-limit", &ram),
        ("flash-compression", "none"),
    ];
    Node::try_start(port, &directives).expect("the node starts")
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info("tiering", field).parse().unwrap()
}

fn set_flash(client: &mut Client, flash_mb: u64) -> String {
    client.run(&format!("CONFIG SET memory-limit {}mb", RAM_MB + flash_mb))
}

/// The size of the data in the log file, without the file's first megabyte.
fn file_mb(flash: &Path, port: u16) -> u64 {
    std::fs::metadata(flash.join(format!("flintkv-{port}.log"))).unwrap().len() / MB - 1
}

/// 1,300 bytes that contain their key and version: three values per page.
fn value(key: u64, version: u64) -> String {
    format!("{key}:{version}:").repeat(1_300 / format!("{key}:{version}:").len())
}

/// A client's own keys, with the versions that the node has acknowledged.
struct Keys {
    first: u64,
    versions: Vec<u64>,
    next: u64,
}

impl Keys {
    fn new(client: &mut Client, first: u64, count: u64) -> Keys {
        let mut keys = Keys { first, versions: vec![0; count as usize], next: first };
        (0..count).for_each(|at| keys.set(client, at as usize));
        keys
    }

    fn set(&mut self, client: &mut Client, at: usize) {
        let (key, version) = (self.first + at as u64, self.versions[at] + 1);
        assert_eq!(client.run(&format!("SET key:{key} {}", value(key, version))), "OK");
        self.versions[at] = version;
    }

    fn check(&self, client: &mut Client, at: usize) {
        let key = self.first + at as u64;
        assert_eq!(
            client.run(&format!("GET key:{key}")),
            format!("\"{}\"", value(key, self.versions[at])),
            "key:{key}"
        );
    }

    /// Reads two keys and writes one, all at random.
    fn step(&mut self, client: &mut Client) {
        let mut any = || {
            self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.next >> 33) as usize % self.versions.len()
        };
        let [read, also, written] = [any(), any(), any()];
        self.check(client, read);
        self.check(client, also);
        self.set(client, written);
    }
}

#[test]
fn flash_grows_and_shrinks_under_load() {
    let flash = tempfile::tempdir().unwrap();
    let node = start(flash.path(), free_port(), 64);
    let mut client = node.connect();
    let file = || file_mb(flash.path(), node.port);
    assert_eq!((number(&mut client, "flash_limit"), file()), (64 * MB, 64));
    let mut keys: Vec<_> = (0..2).map(|n| Keys::new(&mut client, n * 10_000, 10_000)).collect();
    assert!(number(&mut client, "values_in_flash") > 8_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for keys in &mut keys {
            let (stop, mut client) = (&stop, node.connect());
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    keys.step(&mut client);
                }
            });
        }
        let mut settled = |flash_mb: u64| {
            eventually("the flash has its size", || {
                number(&mut client, "flash_resize_in_progress") == 0 && file() == flash_mb
            });
            assert_eq!(number(&mut client, "flash_limit"), flash_mb * MB);
            assert!(number(&mut client, "used_flash") <= flash_mb * MB);
        };
        let mut operator = node.connect();
        // A growth is complete at once. A shrink is complete when the data behind the new end has moved.
        for (flash_mb, at_once) in [(128, true), (48, false), (96, true), (40, false), (64, true)] {
            assert_eq!(set_flash(&mut operator, flash_mb), "OK");
            assert_eq!(number(&mut operator, "flash_limit"), flash_mb * MB);
            if at_once {
                assert!(file() >= flash_mb);
            }
            settled(flash_mb);
        }
        // A new size replaces the previous one before that was reached.
        for flash_mb in [40, 128, 44, 48, 40, 56] {
            assert_eq!(set_flash(&mut operator, flash_mb), "OK");
        }
        settled(56);
        // A size that does not fit is refused with a reason, and nothing changes.
        let live_mb = number(&mut operator, "flash_live_bytes") / MB;
        assert!(live_mb > 15);
        let refused = set_flash(&mut operator, live_mb + 1);
        let why = format!("argument 'memory-limit') - flash of {}mb is too small for the values on it: ", live_mb + 1);
        assert!(refused.contains(&why), "{refused}");
        let refused = set_flash(&mut operator, 15);
        assert!(refused.contains("flash of 15mb is too small: it has segments of 1024kb since the start"), "{refused}");
        let refused = set_flash(&mut operator, 1 << 30);
        assert!(refused.contains("is too large"), "{refused}");
        assert_eq!(
            operator.run("CONFIG GET memory-limit"),
            format!("1) \"memory-limit\"\n2) \"{}\"", (RAM_MB + 56) * MB)
        );
        settled(56);
        // RAM that is given up becomes flash.
        assert_eq!(operator.run(&format!("CONFIG SET maxmemory {}mb", RAM_MB - 2)), "OK");
        settled(58);
        stop.store(true, Relaxed);
    });
    let mut client = node.connect();
    for keys in &keys {
        (0..keys.versions.len()).for_each(|at| keys.check(&mut client, at));
    }
    assert_eq!(number(&mut client, "flash_checksum_errors") + number(&mut client, "flash_read_errors"), 0);
}

/// A start empties the log: however far the shrink had come, the next node has the configured size.
#[test]
fn a_node_killed_while_it_shrinks_starts_again() {
    let flash = tempfile::tempdir().unwrap();
    let mut node = start(flash.path(), free_port(), 96);
    let mut client = node.connect();
    let keys = Keys::new(&mut client, 0, 8_000);
    assert_eq!(set_flash(&mut client, 40), "OK");
    let progress = [number(&mut client, "flash_resize_moved_bytes"), number(&mut client, "flash_resize_total_bytes")];
    assert!(progress[0] <= progress[1]);
    node.signal(libc::SIGKILL);
    node.ended();
    let node = start(flash.path(), node.port, 40);
    let mut client = node.connect();
    assert_eq!((client.run("DBSIZE"), number(&mut client, "flash_limit")), ("(integer) 0".to_owned(), 40 * MB));
    assert_eq!(file_mb(flash.path(), node.port), 40);
    let again = Keys::new(&mut client, 0, 2_000);
    (0..again.versions.len()).for_each(|at| again.check(&mut client, at));
    drop(keys);
}
