//! The operator's commands against a node: `flintkv database`, `node`, `user`, `token` and `top`, as an operator types
//! them.

use flintkv_tests::{Client, Node, binary, eventually, free_port};
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

const PASSWORD: &str = "operators-password";

struct Operator {
    /// Dropping it ends the node.
    _node: Node,
    url: String,
}

impl Operator {
    fn start() -> Operator {
        let console = free_port();
        let console_port = console.to_string();
        let node = Node::start(&[
            ("console-port", &console_port),
            ("console-bind", "127.0.0.1"),
            ("console-password", PASSWORD),
            ("memory-limit", "256mb"),
            ("ram-limit", "96mb"),
        ]);
        let operator = Operator { _node: node, url: format!("http://127.0.0.1:{console}") };
        eventually("the console answers", || operator.run(&["node", "show"], "").status.success());
        operator
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args);
        command.env("FLINTKV_URL", &self.url).env("FLINTKV_USER", "admin").env("FLINTKV_PASSWORD", PASSWORD);
        command.env_remove("FLINTKV_TOKEN");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(args).spawn().expect("the binary runs");
        // The process may end without reading it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().expect("it ends")
    }

    /// Runs a command and returns what it prints.
    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args, "");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// The exit code and the error message.
    fn fails(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args, "");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Creates a database on a port that no other test uses.
    fn create(&self, name: &str) -> u16 {
        let port = free_port();
        let one_line = self.says(&[
            "database",
            "create",
            name,
            "--memory-limit",
            "64mb",
            "--ram-limit",
            "32mb",
            "--port",
            &port.to_string(),
        ]);
        assert!(one_line.contains(&format!("redis-cli -h 127.0.0.1 -p {port}")), "{one_line}");
        port
    }
}

#[test]
fn a_database_is_created_changed_paused_flushed_and_deleted() {
    let operator = Operator::start();
    let port = operator.create("ads");
    let mut client = Client::connect(port);
    assert_eq!(client.run("SET a 1"), "OK");
    let list = operator.says(&["database", "list"]);
    assert!(list.lines().any(|line| line.starts_with("ads ") && line.contains("64 MB")), "{list}");

    let one_line = operator.says(&["database", "resize", "ads", "--memory-limit", "96mb", "--ram-limit", "50%"]);
    assert!(one_line.contains("96 MB") && one_line.contains("48 MB"), "{one_line}");
    assert!(client.run("GET a").contains('1'), "the value is gone");

    // While the database serves: values that leave RAM from now on are compressed with the new codec.
    let compression = |client: &mut Client| client.run("CONFIG GET flash-compression");
    assert!(compression(&mut client).contains("lz4"));
    let one_line = operator.says(&["database", "resize", "ads", "--compression", "zstd"]);
    assert!(one_line.contains("zstd"), "{one_line}");
    assert!(compression(&mut client).contains("zstd"));
    let shown = operator.says(&["database", "show", "ads"]);
    assert!(shown.lines().any(|line| line.contains("compression") && line.contains("zstd")), "{shown}");
    let (code, why) = operator.fails(&["database", "resize", "ads", "--compression", "gzip"]);
    assert!(code == Some(2) && why.contains("gzip"), "{why}");

    assert_eq!(operator.says(&["database", "pause", "ads"]), "ads is paused\n");
    assert!(client.run("GET a").contains("PAUSED"));
    assert_eq!(operator.says(&["database", "resume", "ads"]), "ads is active\n");
    assert!(client.run("GET a").contains('1'), "the value is gone");

    let (code, why) = operator.fails(&["database", "flush", "ads"]);
    assert!(code == Some(2) && why.contains("--yes ads"), "{why}");
    assert!(client.run("DBSIZE").contains('1'), "flushed without a confirmation");
    operator.says(&["database", "flush", "ads", "--yes", "ads"]);
    assert!(client.run("DBSIZE").contains('0'));

    let (code, why) = operator.fails(&["database", "create", "huge", "--memory-limit", "1000tb"]);
    assert!(code == Some(1) && why.contains("error: ") && why.contains("hint: "), "{why}");
    let (code, why) = operator.fails(&["database", "delete", "default", "--yes", "default"]);
    assert!(code == Some(1) && why.contains("default"), "{why}");

    operator.says(&["database", "delete", "ads", "--yes", "ads"]);
    let (code, why) = operator.fails(&["database", "show", "ads"]);
    assert!(code == Some(1) && why.contains("ads"), "{why}");
}

#[test]
fn users_and_tokens_may_do_what_their_role_allows() {
    let operator = Operator::start();
    let made = operator.says(&["token", "create", "watcher", "--role", "viewer", "--expires", "1h"]);
    let token = made.lines().next().unwrap().to_owned();
    let by_token = |args: &[&str]| {
        let mut command = operator.command(args);
        command.env_remove("FLINTKV_USER").env("FLINTKV_TOKEN", &token);
        command.output().expect("it runs")
    };
    assert!(by_token(&["node", "show"]).status.success());
    let refused = by_token(&["database", "pause", "default"]);
    assert_eq!(refused.status.code(), Some(1), "a viewer paused a database");
    assert!(operator.says(&["token", "list"]).contains("watcher"));

    let created = operator.run(&["user", "create", "bob", "--role", "operator"], "first-password\n");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let changed = {
        let mut command = operator.command(&["user", "passwd", "bob"]);
        let mut child = command.env("FLINTKV_USER", "bob").env("FLINTKV_PASSWORD", "first-password").spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"second-password\n").unwrap();
        child.wait_with_output().unwrap()
    };
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    assert!(operator.says(&["user", "list"]).contains("bob"));
    operator.says(&["user", "delete", "bob", "--yes", "bob"]);
    assert!(!operator.says(&["user", "list"]).contains("bob"));
}

#[test]
fn top_draws_and_takes_keys_at_a_terminal() {
    let operator = Operator::start();
    let frame = operator.says(&["top", "--once"]);
    assert!(frame.contains("FlintKV") && frame.contains("default"), "{frame}");

    // The `script` program of util-linux provides a terminal.
    let line = format!("stty cols 100 rows 30; {} top --interval 0.1", binary().display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("FLINTKV_URL", &operator.url).env("FLINTKV_USER", "admin").env("FLINTKV_PASSWORD", PASSWORD);
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("script runs");
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let drawn = Arc::new(Mutex::new(String::new()));
    let reader = {
        let drawn = drawn.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut chunk) {
                drawn.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..count]));
            }
        })
    };
    let shows = |word: &str| eventually(word, || drawn.lock().unwrap().contains(word));
    shows("LATENCY");
    keys.write_all(b"?").unwrap();
    shows("latency");
    // Not Escape, because the terminal could combine it with the next key.
    keys.write_all(b"?").unwrap();
    drawn.lock().unwrap().clear();
    keys.write_all(b"\r").unwrap();
    shows("endpoint");
    keys.write_all(b"q").unwrap();
    let status = child.wait().expect("it ends");
    reader.join().unwrap();
    assert!(status.success(), "{status}");
    // ratatui moves the cursor over spaces, so search for single words. At the end the screen is restored.
    assert!(drawn.lock().unwrap().contains("\x1b[?1049l"));
}

#[test]
fn bench_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (cert, key, port) = (path("cert.pem"), path("key.pem"), free_port().to_string());
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let node = Node::start(&[
        ("tls-port", &port),
        ("tls-cert-file", &cert),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", &cert),
        ("tls-auth-clients", "yes"),
    ]);
    let run = |load: &str, more: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["bench", "-h", "127.0.0.1", "-p", &port, "-t", "1", "--hide-histogram"]);
        let output = command.args(load.split(' ')).args(more).output().expect("the binary runs");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    // Values that are larger than a TLS record, and replies that arrive in several records.
    let bench = |more: &[&str]| run("-c 2 -n 300 -d 40000 --ratio 1:1 --key-maximum 20 --pipeline 10", more);
    let ours = ["--cert", &cert, "--key", &key];
    for more in [
        &["--tls", "--cacert", &cert, "--sni", "localhost"][..],
        &["--tls", "--tls-skip-verify", "--tls-protocols", "TLSv1.2"],
    ] {
        let (well, said) = bench(&[more, &ours].concat());
        assert!(well && said.contains("Totals"), "{more:?}: {said}");
    }
    let mut client = node.connect();
    assert_eq!(client.run("STRLEN memtier-3"), "(integer) 40000");
    // One request that is too large for the socket's buffer: its last bytes are sent when there is room.
    let one = "-c 1 -n 1 -d 20000000 --ratio 1:0 --key-maximum 1";
    let (well, said) = run(one, &[&["--tls", "--tls-skip-verify"], &ours[..]].concat());
    assert!(well && !said.contains("connection errors"), "{said}");
    assert!(["STRLEN memtier-0", "STRLEN memtier-1"].iter().any(|line| client.run(line) == "(integer) 20000000"));
    for (more, why) in [
        // 127.0.0.1 is not the name in the certificate.
        (&["--tls", "--cacert", &cert][..], "not valid for name"),
        (&["--tls", "--sni", "localhost"], "UnknownIssuer"),
        (&["--tls", "--cacert", "/nonexistent"], "/nonexistent"),
        (&["--tls", "--tls-skip-verify", "--tls-protocols", "SSLv3"], "'SSLv3' is neither"),
    ] {
        let (well, said) = bench(&[more, &ours].concat());
        assert!(!well && said.contains(why), "{more:?}: {said}");
    }
    // The server requires a client certificate, and reports this after the client's handshake.
    let (_, said) = bench(&["--tls", "--tls-skip-verify"]);
    assert!(said.contains("2 connection errors"), "{said}");
}
