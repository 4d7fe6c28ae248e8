//! Debian's redis-cli and redis-benchmark against a node, as users run them.

use flintkv_tests::{Node, tool};
use std::io::Write;
use std::process::{Output, Stdio};

struct Cli {
    node: Node,
}

impl Cli {
    fn start() -> Cli {
        Cli { node: Node::start(&[]) }
    }

    fn output(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = tool("redis-cli");
        command.args(["-p", &self.node.port.to_string()]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut cli = command.spawn().expect("redis-cli runs");
        let mut stdin = cli.stdin.take().unwrap();
        let input = input.to_vec();
        // The tool may end without reading everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = cli.wait_with_output().expect("redis-cli ends");
        writer.join().unwrap();
        output
    }

    /// Runs the tool and returns what it prints.
    fn says(&self, args: &[&str], input: &str) -> String {
        let output = self.output(args, input.as_bytes());
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_session_through_a_pipe() {
    let cli = Cli::start();
    let said = cli.says(
        &["--no-raw"],
        "SET greeting \"hello world\"\nGET greeting\nGET nosuch\nINCR visits\nINCRBY visits 41\nINCR greeting\n\
         HSET user name Ada born 1815\nHGETALL user\nHGET user name\nMGET greeting nosuch visits\nEXPIRE user 100\nTTL user\n\
         TYPE user\nOBJECT ENCODING user\nOBJECT ENCODING visits\nSTRLEN greeting\nGETRANGE greeting 0 4\nDEL greeting visits\n\
         EXISTS greeting user\nSELECT 1\nDBSIZE\nLCS a b\nFOO\n",
    );
    let expected = "\
OK
\"hello world\"
(nil)
(integer) 1
(integer) 42
(error) ERR value is not an integer or out of range
(integer) 2
1) \"name\"
2) \"Ada\"
3) \"born\"
4) \"1815\"
\"Ada\"
1) \"hello world\"
2) (nil)
3) \"42\"
(integer) 1
(integer) 100
hash
\"listpack\"
\"int\"
(integer) 11
\"hello\"
(integer) 2
(integer) 1
OK
(integer) 0
\"\"
(error) ERR unknown command 'FOO', with args beginning with: 
";
    assert_eq!(said, expected);
}

#[test]
fn resp3_has_maps() {
    let cli = Cli::start();
    cli.says(&["HSET", "user", "name", "Ada", "born", "1815"], "");
    assert_eq!(
        cli.says(&["-3", "--no-raw", "HGETALL", "user"], ""),
        "1# \"name\" => \"Ada\"\n2# \"born\" => \"1815\"\n"
    );
    assert_eq!(cli.says(&["-3", "--json", "HGETALL", "user"], ""), "{\"name\":\"Ada\",\"born\":\"1815\"}\n");
    assert_eq!(cli.says(&["-3", "--no-raw", "GET", "nosuch"], ""), "(nil)\n");
    assert_eq!(cli.says(&["--csv", "HMGET", "user", "name", "nosuch"], ""), "\"Ada\",NULL\n");
    let hello = cli.says(&["-3", "--no-raw", "HELLO"], "");
    assert!(hello.contains("\"proto\" => (integer) 3"), "{hello}");
    assert!(hello.contains("\"server\" => \"redis\""), "{hello}");
}

#[test]
fn a_binary_value_from_standard_input() {
    let cli = Cli::start();
    let value: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 256) as u8).collect();
    assert!(cli.output(&["-x", "SET", "binary"], &value).status.success());
    assert_eq!(cli.says(&["STRLEN", "binary"], ""), "100000\n");
    let back = cli.output(&["GET", "binary"], b"").stdout;
    assert_eq!(&back[..value.len()], value);
}

#[test]
fn errors_are_exit_codes() {
    let cli = Cli::start();
    let output = cli.output(&["-e", "INCR", "a", "b"], b"");
    assert_eq!(output.status.code(), Some(1));
    let said = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8(said).unwrap().contains("ERR wrong number of arguments for 'incr' command"));
}

#[test]
fn ten_thousand_commands_by_pipe_then_the_tools_that_walk_all_keys() {
    let cli = Cli::start();
    let mut commands = String::new();
    for i in 0..10_000 {
        commands.push_str(&format!("SET key:{i} {}\r\n", "v".repeat(1 + i % 50)));
    }
    commands.push_str("HSET big:hash a 1 b 2 c 3 d 4\r\n");
    let said = cli.says(&["--pipe"], &commands);
    assert!(said.contains("errors: 0, replies: 10001"), "{said}");

    let scanned = cli.says(&["--scan"], "");
    let mut keys: Vec<&str> = scanned.lines().collect();
    assert_eq!(keys.len(), 10_001, "no key twice: the table did not change");
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 10_001);
    assert_eq!(cli.says(&["--scan", "--pattern", "key:999?"], "").lines().count(), 10);

    let said = cli.says(&["--bigkeys"], "");
    assert!(said.contains("Sampled 10001 keys in the keyspace!"), "{said}");
    assert!(said.contains("Biggest   hash found '\"big:hash\"' has 4 fields"), "{said}");
    assert!(said.contains("10000 strings with 255000 bytes"), "{said}");
    let said = cli.says(&["--memkeys"], "");
    assert!(said.contains("Sampled 10001 keys in the keyspace!"), "{said}");
}

#[test]
fn repetition_and_databases() {
    let cli = Cli::start();
    assert_eq!(cli.says(&["-r", "3", "-n", "2", "INCR", "n"], ""), "1\n2\n3\n");
    assert_eq!(cli.says(&["-u", &format!("redis://127.0.0.1:{}/2", cli.node.port), "GET", "n"], ""), "3\n");
    assert_eq!(cli.says(&["GET", "n"], ""), "\n");
}

#[test]
fn a_password() {
    let cli = Cli { node: Node::start(&[("requirepass", "open-sesame")]) };
    assert!(cli.says(&["PING"], "").contains("NOAUTH Authentication required."));
    assert_eq!(cli.says(&["-a", "open-sesame", "--no-auth-warning", "PING"], ""), "PONG\n");
    assert_eq!(
        cli.says(&["--user", "default", "--pass", "open-sesame", "--no-auth-warning", "-3", "PING"], ""),
        "PONG\n"
    );
}

#[test]
fn redis_benchmark() {
    let node = Node::start(&[]);
    for more in [&["-P", "16", "-d", "500"][..], &["-c", "200", "-d", "3"], &["--threads", "2", "-P", "4", "-3"]] {
        let output = tool("redis-benchmark")
            .args(["-p", &node.port.to_string(), "-n", "20000", "-r", "5000", "--csv"])
            .args(["-t", "ping,set,get,incr,hset,mset"])
            .args(more)
            .output()
            .expect("redis-benchmark runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "HSET", "MSET (10 keys)"] {
            let line = said.lines().find(|line| line.starts_with(&format!("\"{test}\",")));
            let rate = line.and_then(|line| line.split('"').nth(3)?.parse::<f64>().ok());
            assert!(rate.is_some_and(|rate| rate > 0.0), "{test} in {said}");
        }
        assert!(!said.to_lowercase().contains("error"), "{said}");
    }
    let mut client = node.connect();
    let size = client.run("DBSIZE");
    assert!(size.starts_with("(integer) ") && size != "(integer) 0", "{size}");
    assert_eq!(client.run("TYPE myhash"), "hash");
}
