//! Several databases in one node: made, changed, paused and deleted, each with its own data, limits and users, and
//! open again after a restart.

use crate::common::{Client, Node, eventually, free_port};
use node::{Definition, DefinitionChange, Role};
use std::any::Any;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

/// The operator's interface of a test's node: a socket in its `state-dir`, one line per request.
const SOCKET: &str = "operator";

/// The node of a test calls this when it serves clients.
pub fn attach(node: &Arc<node::Node>) -> io::Result<Box<dyn Any>> {
    let folder = node.state_dir();
    if folder.exists() {
        let path = folder.join(SOCKET);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path)?;
        let node = Arc::clone(node);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let node = Arc::clone(&node);
                std::thread::spawn(move || serve(&node, socket));
            }
        });
    }
    Ok(Box::new(()))
}

fn serve(node: &Arc<node::Node>, socket: UnixStream) {
    let mut replies = socket.try_clone().unwrap();
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let done = run_command(node, &words).unwrap_or_else(|error| format!("error: {error}"));
        let _ = writeln!(replies, "{done}");
    }
}

fn mb(word: &str) -> u64 {
    word.parse::<u64>().unwrap() << 20
}

fn run_command(node: &Arc<node::Node>, words: &[&str]) -> Result<String, node::NodeError> {
    match *words {
        ["create", name, port, memory, ram] => {
            let definition = Definition {
                name: name.to_owned(),
                port: port.parse().unwrap(),
                memory_limit_bytes: mb(memory),
                ram_limit_bytes: mb(ram),
                ..Definition::default()
            };
            node.create(&definition).map(|database| database.definition().port.to_string())
        }
        ["keep", name, port, persistence] => {
            let definition = Definition {
                name: name.to_owned(),
                port: port.parse().unwrap(),
                memory_limit_bytes: mb("60"),
                ram_limit_bytes: mb("40"),
                persistence: persistence.to_owned(),
                ..Definition::default()
            };
            let database = node.create(&definition)?;
            let definition = database.definition();
            assert_eq!(definition.persistence, persistence);
            Ok(definition.port.to_string())
        }
        ["resize", name, memory, ram] => {
            let change = DefinitionChange {
                memory_limit_bytes: Some(mb(memory)),
                ram_limit_bytes: Some(mb(ram)),
                ..DefinitionChange::default()
            };
            node.resize(name, &change).map(|()| "done".to_owned())
        }
        ["password", name, password] => {
            let change = DefinitionChange { password: Some(Some(password.to_owned())), ..DefinitionChange::default() };
            node.resize(name, &change).map(|()| "done".to_owned())
        }
        ["pause", name] => node.pause(name).map(|()| "done".to_owned()),
        ["resume", name] => node.resume(name).map(|()| "done".to_owned()),
        ["delete", name] => node.delete(name).map(|()| "done".to_owned()),
        ["names"] => {
            Ok(node.databases().iter().map(|database| database.name().to_owned()).collect::<Vec<_>>().join(" "))
        }
        ["used", name] => Ok(node.database(name).unwrap().figures().used_ram_bytes.to_string()),
        ["failed"] => Ok(node.failed().into_keys().collect::<Vec<_>>().join(" ")),
        // Runs a command as a console user with a role.
        ["as", role, name, ref command @ ..] => {
            let role = match role {
                "viewer" => Role::Viewer,
                "operator" => Role::Operator,
                _ => Role::Admin,
            };
            let mut stream = node.database(name).unwrap().connect(role).unwrap();
            stream.write_all(format!("{}\r\n", command.join(" ")).as_bytes()).unwrap();
            let mut reply = String::new();
            BufReader::new(stream).read_line(&mut reply).unwrap();
            Ok(reply.trim_end().to_owned())
        }
        ["backup", ..] | ["restore", ..] => crate::backup::run_command(node, words),
        ["copy", ..] => crate::copies::run_command(node, &words[1..]),
        ["journal", ..] => Ok(crate::journal_waits::control(node, &words[1..])),
        ["shard", ..] => Ok(crate::shard_copies::control(node, &words[1..])),
        _ => panic!("{words:?}"),
    }
}

pub struct Operator(UnixStream);

impl Operator {
    pub fn of(state: &Path) -> Operator {
        eventually("the node is attached", || UnixStream::connect(state.join(SOCKET)).is_ok());
        Operator(UnixStream::connect(state.join(SOCKET)).unwrap())
    }

    /// Makes a database on its own port.
    pub fn create(&mut self, name: &str, memory_mb: u64, ram_mb: u64) -> u16 {
        for _ in 0..5 {
            let reply = self.run(&format!("create {name} {} {memory_mb} {ram_mb}", free_port()));
            // If another process takes the free port first, try the next one.
            if !reply.contains("is taken") && !reply.contains("in use") {
                return reply.parse().unwrap_or_else(|_| panic!("{reply}"));
            }
        }
        panic!("no port is free")
    }

    pub fn run(&mut self, line: &str) -> String {
        self.try_run(line).unwrap()
    }

    /// As [`Operator::run`], of a node that may end.
    pub fn try_run(&mut self, line: &str) -> io::Result<String> {
        writeln!(self.0, "{line}")?;
        let mut reply = String::new();
        BufReader::new(self.0.try_clone()?).read_line(&mut reply)?;
        Ok(reply.trim_end().to_owned())
    }
}

/// A node with flash, and its operator.
pub fn start(directory: &Path, more: &[(&str, &str)]) -> (Node, Operator) {
    let state = directory.join("state");
    let flash = directory.join("flash");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&flash).unwrap();
    let _ = std::fs::remove_file(state.join(SOCKET));
    let mut directives = vec![
        ("dir", directory.to_str().unwrap()),
        ("state-dir", "state"),
        ("flash-path", flash.to_str().unwrap()),
        ("memory-limit", "100mb"),
        ("ram-limit", "40mb"),
    ];
    directives.extend(more);
    let node = Node::start(&directives);
    let operator = Operator::of(&state);
    (node, operator)
}

pub fn connect(port: u16) -> Client {
    Client::new(TcpStream::connect(("127.0.0.1", port)).unwrap())
}

#[test]
fn databases_are_apart_and_are_there_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    let port = operator.create("orders", 80, 30);
    assert_eq!(operator.run("names"), "default orders");
    let (mut default, mut orders) = (node.connect(), connect(port));
    assert_eq!(orders.run("SET k theirs"), "OK");
    assert_eq!(default.run("GET k"), "(nil)");
    assert_eq!(default.run("SET k ours"), "OK");
    assert_eq!(orders.run("GET k"), "\"theirs\"");
    assert_eq!(orders.run("FLUSHALL"), "OK");
    assert_eq!(default.run("GET k"), "\"ours\"");
    assert_eq!(orders.run("PUBLISH channel x"), "(integer) 0");
    assert_eq!(orders.info("clients", "connected_clients"), "1");
    assert_eq!(orders.run("CONFIG GET maxmemory"), format!("1) \"maxmemory\"\n2) \"{}\"", 30 << 20));
    assert_eq!(
        orders.run("SHUTDOWN"),
        "(error) ERR SHUTDOWN stops the whole node: send it to the node's default database"
    );
    assert_eq!(
        orders.run("CONFIG SET loglevel debug"),
        "(error) ERR CONFIG SET failed - 'loglevel' is a setting of the node: set it on the node's default database"
    );
    // One setting that a client made and kept, and one that the operator made.
    assert_eq!(orders.run("CONFIG SET slowlog-max-len 7"), "OK");
    assert_eq!(orders.run("CONFIG REWRITE"), "OK");
    assert_eq!(operator.run("password orders secret"), "done");
    assert_eq!(connect(port).run("GET k"), "(error) NOAUTH Authentication required.");
    node.signal(libc::SIGTERM);
    assert!(node.ended().success());

    let (_node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("names"), "default orders");
    let mut orders = connect(port);
    assert_eq!(orders.run("AUTH secret"), "OK");
    assert_eq!(orders.run("CONFIG GET slowlog-max-len"), "1) \"slowlog-max-len\"\n2) \"7\"");
    assert_eq!(operator.run("delete orders"), "done");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(orders.read(), "(closed)");
    let logs = std::fs::read_dir(directory.path().join("flash")).unwrap().count();
    assert_eq!(logs, 2, "the default database's logs, of both starts");
    assert_eq!(operator.run(&format!("create orders {port} 80 30")), port.to_string());
    assert_eq!(connect(port).run("GET k"), "(nil)");
}

#[test]
fn a_database_with_persistence_comes_back_until_it_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("keep orders 0 aof"), "error: 'aof' is not one of none, no, everysec, always");
    let port: u16 = operator.run(&format!("keep orders {} always", free_port())).parse().unwrap();
    let (mut default, mut orders) = (node.connect(), connect(port));
    assert_eq!(default.info("persistence", "aof_enabled"), "0");
    assert_eq!(orders.info("persistence", "aof_enabled"), "1");
    default.run("SET k ours");
    orders.run("SET k theirs");
    node.signal(libc::SIGKILL);
    node.ended();

    let (mut node, _operator) = start(directory.path(), &[]);
    eventually("it is loaded", || connect(port).run("GET k") == "\"theirs\"");
    assert_eq!(node.connect().run("GET k"), "(nil)", "the default database has no persistence");
    node.signal(libc::SIGTERM);
    node.ended();
    let journal = directory.path().join("orders/flintkv.journal");
    let manifest = std::fs::read(journal.join("manifest")).unwrap();
    std::fs::write(journal.join("manifest"), &manifest[1..]).unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("failed"), "orders", "the others are served");
    node.signal(libc::SIGTERM);
    node.ended();
    std::fs::write(journal.join("manifest"), &manifest).unwrap();

    let (_node, mut operator) = start(directory.path(), &[]);
    eventually("it is loaded", || connect(port).run("GET k") == "\"theirs\"");
    assert_eq!(operator.run("delete orders"), "done");
    assert!(!journal.exists());
    let port: u16 = operator.run(&format!("keep orders {} everysec", free_port())).parse().unwrap();
    assert_eq!(connect(port).run("GET k"), "(nil)");
}

#[test]
fn a_restart_loads_what_each_database_has_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    let port = operator.create("orders", 80, 30);
    let (mut default, mut orders) = (node.connect(), connect(port));
    default.run("SET k ours");
    orders.run("SET k theirs");
    assert_eq!(default.run("SAVE"), "OK");
    assert_eq!(orders.run("SAVE"), "OK");
    node.signal(libc::SIGTERM);
    assert!(node.ended().success());

    let (node, mut operator) = start(directory.path(), &[]);
    let (mut default, mut orders) = (node.connect(), connect(port));
    eventually("both are loaded", || default.run("GET k") == "\"ours\"" && orders.run("GET k") == "\"theirs\"");
    // A database that was deleted does not come back with a new one of its name.
    assert_eq!(operator.run("delete orders"), "done");
    assert!(directory.path().join("orders/dump.rdb.deleted").exists());
    assert_eq!(operator.run(&format!("create orders {port} 80 30")), port.to_string());
    assert_eq!(connect(port).run("GET k"), "(nil)");
}

#[test]
fn impossible_definitions_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("create default 1 80 30"), "error: the name 'default' is reserved: choose another name");
    let taken = operator.run(&format!("create other {} 80 30", node.port));
    assert_eq!(taken, format!("error: port {} is taken: choose another", node.port));
    assert!(operator.run("create other 0 20 30").contains("more than the memory limit"));
    assert!(operator.run("create small 0 20 10").contains("ram-limit 10mb is less than the"), "room for nothing");
    let far = operator.run("create far 0 9000000 8000000");
    assert!(
        far.starts_with("error: RAM limits of all databases together would be default 40 MB + far 7.63 TB = "),
        "{far}"
    );
    let far = operator.run("create far 0 900000000 30");
    assert!(far.starts_with("error: flash of all databases together would be default 60 MB + far "), "{far}");
    assert_eq!(operator.run("names"), "default");
    assert_eq!(operator.run("delete none"), "error: there is no database 'none'");
    assert!(
        operator.run("delete default").starts_with("error: the default database is defined by the configuration file")
    );
    let left = std::fs::read_dir(directory.path().join("state/databases")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "definitions were left behind");
    // Without a port, the node picks the next free one.
    let reply = operator.run("create other 0 80 30");
    let port: u16 = reply.parse().unwrap_or_else(|_| panic!("{reply}"));
    assert!(port > node.port);
    assert_eq!(connect(port).run("PING"), "PONG");
    assert_eq!(operator.run("create other 0 80 30"), "error: a database 'other' exists already");
    // The same limits apply to the database's clients and to the operator.
    let refused = connect(port).run("CONFIG SET maxmemory 9tb");
    assert!(refused.starts_with("(error) ERR CONFIG SET failed"), "{refused}");
    assert_eq!(connect(port).run("CONFIG GET maxmemory"), format!("1) \"maxmemory\"\n2) \"{}\"", 30 << 20));
}

#[test]
fn a_paused_database_refuses_commands_until_it_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    let port: u16 = operator.create("orders", 80, 30);
    let mut orders = connect(port);
    assert_eq!(orders.run("SET k v"), "OK");
    assert_eq!(operator.run("pause orders"), "done");
    let paused = "(error) PAUSED Database 'orders' is paused by its operator";
    assert_eq!(orders.run("GET k"), paused);
    assert_eq!(connect(port).run("PING"), paused);
    assert_eq!(node.connect().run("PING"), "PONG");
    assert_eq!(operator.run("as viewer orders EXISTS k"), ":1");
    node.signal(libc::SIGTERM);
    assert!(node.ended().success());
    let (_node, mut operator) = start(directory.path(), &[]);
    assert_eq!(connect(port).run("PING"), paused);
    assert_eq!(operator.run("resume orders"), "done");
    assert_eq!(connect(port).run("PING"), "PONG");
}

/// RAM that a lower limit does not free, because nothing can leave, is not promised to another database.
#[test]
fn ram_that_is_held_beyond_a_lowered_limit_is_not_free() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut operator) = start(directory.path(), &[]);
    let created = operator.run("create large 0 124 120");
    let mut client = connect(created.parse().expect(&created));
    // Halves when it is compressed, which is more than flash has room for.
    let fill = "local n = tonumber(ARGV[1]) local t = {} for i = 1, 4096 do n = (n * 1103515245 + 12345) % 2147483648 t[i] = redis.sha1hex(n) end \
                return redis.call('SET', ARGV[1], table.concat(t))";
    for key in 1..=256 {
        assert_eq!(client.run(&format!("EVAL \"{fill}\" 0 {key}")), "OK");
    }
    assert_eq!(operator.run("resize large 34 30"), "done");
    let refused = operator.run("create far 0 9000000 8000000");
    let takes = refused.split_once("+ large ").and_then(|(_, rest)| rest.split_once(" MB")).expect(&refused).0;
    assert!(takes.parse::<f64>().unwrap() >= 36.0, "{refused}");
}

#[test]
fn console_users_do_what_their_role_allows() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), &[]);
    assert_eq!(node.connect().run("CONFIG SET requirepass secret"), "OK");
    let denied = |reply: &str| reply.starts_with("-NOPERM");
    assert_eq!(operator.run("as operator default SET k v"), "+OK");
    assert_eq!(operator.run("as viewer default EXISTS k"), ":1");
    for command in
        ["SET k w", "FLUSHALL", "CONFIG GET requirepass", "AUTH secret", "HELLO 3 AUTH default secret", "RESET"]
    {
        assert!(denied(&operator.run(&format!("as viewer default {command}"))), "{command}");
    }
    for command in [
        "CONFIG SET maxmemory 1gb",
        "CONFIG GET requirepass",
        "ACL SETUSER x on",
        "SHUTDOWN",
        "DEBUG SLEEP 1",
        "AUTH secret",
    ] {
        assert!(denied(&operator.run(&format!("as operator default {command}"))), "{command}");
    }
    assert_eq!(operator.run("as admin default CONFIG SET slowlog-max-len 5"), "+OK");
    let mut client = node.connect();
    assert_eq!(
        client.run("AUTH (console:admin) secret"),
        "(error) WRONGPASS invalid username-password pair or user is disabled."
    );
    assert_eq!(client.run("AUTH secret"), "OK");
    assert_eq!(
        client.run("ACL SETUSER (console:x) on"),
        "(error) ERR Usernames can't contain spaces or null characters"
    );
}

/// A definition that cannot be opened (its port is taken) is reported, and the other databases are served.
#[test]
fn a_database_that_cannot_be_opened_does_not_affect_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    let first: u16 = operator.create("first", 80, 30);
    let second: u16 = operator.create("second", 80, 30);
    node.signal(libc::SIGTERM);
    assert!(node.ended().success());
    let _taken = std::net::TcpListener::bind(("127.0.0.1", first)).unwrap();
    let (_node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("names"), "default second");
    assert_eq!(operator.run("failed"), "first");
    assert_eq!(connect(second).run("PING"), "PONG");
    assert_eq!(operator.run("delete first"), "done");
    assert_eq!(operator.run("failed"), "");
}

/// A new database of the name once served the old dataset, and a deletion that had failed could not be asked for again.
#[test]
fn a_deletion_leaves_nothing_whether_the_database_is_open_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let (mut node, mut operator) = start(directory.path(), &[]);
    let keep = |operator: &mut Operator, name: &str| {
        let port: u16 = operator.run(&format!("keep {name} {} everysec", free_port())).parse().unwrap();
        let mut client = connect(port);
        assert_eq!(client.run("SET k old"), "OK");
        assert_eq!(client.run("SAVE"), "OK");
        port
    };
    let first = keep(&mut operator, "first");
    keep(&mut operator, "second");
    node.signal(libc::SIGTERM);
    assert!(node.ended().success());
    let _taken = std::net::TcpListener::bind(("127.0.0.1", first)).unwrap();
    let (_node, mut operator) = start(directory.path(), &[]);
    assert_eq!(operator.run("failed"), "first");

    for (name, list) in [("first", "failed"), ("second", "names")] {
        let (journal, log) = (
            directory.path().join(name).join("flintkv.journal"),
            directory.path().join("flash").join(format!("flintkv-{name}.log")),
        );
        assert!(journal.exists() && log.exists(), "{name}");
        let mark = directory.path().join(format!("state/databases/{name}.restore"));
        std::fs::write(&mark, "").unwrap();
        std::fs::write(journal.join("manifest.new"), "a killed process has left this").unwrap();
        // A directory with a file of somebody else stays.
        let foreign = journal.join("foreign");
        std::fs::write(&foreign, "").unwrap();
        let refused = operator.run(&format!("delete {name}"));
        assert!(refused.starts_with("error: ") && refused.contains("not empty"), "{refused}");
        assert!(operator.run(list).contains(name), "{name}");
        std::fs::remove_file(&foreign).unwrap();
        assert_eq!(operator.run(&format!("delete {name}")), "done");
        assert!(!operator.run(list).contains(name), "{name}");
        assert!(!journal.exists() && !log.exists() && !mark.exists(), "{name}");
        assert!(directory.path().join(name).join("dump.rdb.deleted").exists(), "{name}");
        let port: u16 = operator.run(&format!("keep {name} {} everysec", free_port())).parse().unwrap();
        let mut client = connect(port);
        eventually("it is loaded", || client.info("persistence", "loading") == "0");
        assert_eq!(client.run("GET k"), "(nil)", "{name}");
    }
}

/// Twenty databases are filled beyond their RAM limits at the same time. Each keeps to its limit, and the process to
/// their sum.
#[test]
fn twenty_databases_keep_to_their_limits() {
    const COUNT: usize = 20;
    const LIMIT_MB: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), &[]);
    let ports: Vec<u16> =
        (1..COUNT).map(|at| operator.create(&format!("d{at}"), LIMIT_MB + 20, LIMIT_MB)).chain([node.port]).collect();
    std::thread::scope(|scope| {
        for &port in &ports {
            scope.spawn(move || {
                // The data compresses. Flash has room for all of it, so nothing may be lost.
                connect(port).set_all((0..20_000).map(|key| (format!("key:{port}:{key}"), [b'x'; 1000])));
            });
        }
    });
    let limits = (COUNT as u64 - 1) * LIMIT_MB + 40;
    let resident_mb = node.resident_bytes() >> 20;
    assert!(resident_mb <= limits, "{resident_mb} MB of {limits}");
    for at in 1..COUNT {
        let used_mb = operator.run(&format!("used d{at}")).parse::<u64>().unwrap() >> 20;
        assert!(used_mb <= LIMIT_MB + 1, "d{at} uses {used_mb} MB of {LIMIT_MB}");
    }
    for &port in &ports {
        assert_eq!(connect(port).run("DBSIZE"), "(integer) 20000");
        assert_eq!(connect(port).run(&format!("STRLEN key:{port}:77")), "(integer) 1000");
    }
}

/// The change once took effect although the operator was told that it had failed.
#[test]
fn a_change_that_cannot_be_written_to_the_file_has_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, mut operator) = start(directory.path(), &[]);
    let port = operator.create("orders", 80, 30);
    let mut orders = connect(port);
    let file = directory.path().join("state/databases/orders.conf");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "port nonsense\n").unwrap();
    let reply = operator.run("resize orders 90 25");
    assert!(reply.starts_with("error: Rewriting config file: it is no longer valid"), "{reply}");
    let reply = operator.run("password orders secret");
    assert!(reply.starts_with("error: Rewriting config file: it is no longer valid"), "{reply}");
    assert_eq!(connect(port).run("CONFIG GET requirepass"), "1) \"requirepass\"\n2) \"\"");
    assert_eq!(orders.run("CONFIG GET memory-limit"), format!("1) \"memory-limit\"\n2) \"{}\"", 80 << 20));
    assert_eq!(orders.info("tiering", "ram_limit"), (30 << 20).to_string());
    assert_eq!(orders.info("tiering", "flash_limit"), (50 << 20).to_string());
    std::fs::write(&file, good).unwrap();
    assert_eq!(operator.run("resize orders 90 25"), "done");
    assert_eq!(orders.info("tiering", "flash_limit"), (65 << 20).to_string());
    assert_eq!(operator.run("password orders secret"), "done");
    let kept = std::fs::read_to_string(&file).unwrap();
    // The password is kept as requirepass, not as a rule of a user.
    assert!(kept.contains("requirepass secret") && !kept.contains("user "), "{kept}");
    assert_eq!(connect(port).run("GET k"), "(error) NOAUTH Authentication required.");
}

/// Two databases that grew at the same time once both found room that was enough for only one.
#[test]
fn two_databases_that_grow_at_the_same_time_do_not_get_the_same_room() {
    let directory = tempfile::tempdir().unwrap();
    let (node, mut operator) = start(directory.path(), &[("io-threads", "2")]);
    let port = operator.create("orders", 80, 30);
    let (mut default, mut orders) = (node.connect(), connect(port));
    let ram: u64 = default.info("memory", "total_system_memory").parse().unwrap();
    // Enough room for one of them, but not for both. Only the limits count; nothing is filled.
    let much = ram / 16 * 10;
    for _ in 0..40 {
        let limits =
            |ram: u64, flash_mb: u64| format!("CONFIG SET ram-limit {ram} memory-limit {}", ram + (flash_mb << 20));
        let replies = std::thread::scope(|scope| {
            let first = scope.spawn(|| default.run(&limits(much, 60)));
            let second = scope.spawn(|| orders.run(&limits(much, 50)));
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert_ne!(replies, ["OK", "OK"]);
        assert_eq!(default.run(&limits(40 << 20, 60)), "OK");
        assert_eq!(orders.run(&limits(30 << 20, 50)), "OK");
    }
}
