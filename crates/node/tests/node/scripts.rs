//! Scripts and functions as clients see them: their replies, what they may not do, what ends them.

use crate::common::{Client, Node, eventually, shown};

/// The reply to EVAL of a script with keys and arguments.
fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> String {
    let count = keys.len().to_string();
    let words = ["EVAL", script, &count].into_iter().chain(keys.iter().copied()).chain(args.iter().copied());
    let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
    client.value(&words).map_or("(closed)".to_owned(), |value| shown(&value))
}

/// Checks scripts without keys against their replies. The suffix "… script: <sha>, on @user_script:1." is cut off.
fn answers(client: &mut Client, transcript: &[(&str, &str)]) {
    for (script, expected) in transcript {
        let reply = eval(client, script, &[], &[]);
        let reply = reply.split(" script: ").next().unwrap();
        assert_eq!(reply, *expected, "{script}");
    }
}

#[test]
fn lua_values_become_replies() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    answers(
        &mut a,
        &[
            ("return 3.99", "(integer) 3"),
            ("return -3.99", "(integer) -3"),
            ("return 1e300", "(integer) -9223372036854775808"),
            ("return 0/0", "(integer) -9223372036854775808"),
            ("return 'text'", "\"text\""),
            ("return true", "(integer) 1"),
            ("return false", "(nil)"),
            ("return nil", "(nil)"),
            ("return", "(nil)"),
            ("return redis.call", "(nil)"),
            ("return {1, 'two', {3}, nil, 5}", "1) (integer) 1\n2) \"two\"\n3) 1) (integer) 3"),
            ("return {ok = 'fine'}", "fine"),
            ("return {ok = 'a\\r\\nb'}", "a  b"),
            ("return {err = 'BAD thing'}", "(error) BAD thing"),
            ("return redis.error_reply('word')", "(error) ERR word"),
            ("return redis.error_reply('MY word')", "(error) MY word"),
            ("return redis.error_reply('MY word \\r\\n')", "(error) MY word "),
            ("return redis.error_reply('MY word\\0 unseen')", "(error) MY word"),
            ("return {ok = 'fine\\0 unseen'}", "fine"),
            ("return {err = 'MY word\\0 unseen'}", "(error) MY word"),
            ("return {double = 3.5}", "\"3.5\""),
            ("return {big_number = '12'}", "\"12\""),
            ("return redis.sha1hex('abc')", "\"a9993e364706816aba3e25717850c26c9cd0d89d\""),
            // The conversion of a table that contains itself ends at a limit.
            ("local t = {} t[1] = t return #t", "(integer) 1"),
            ("redis.setresp(3) return redis.call('HGETALL', 'nosuch').map ~= nil", "(integer) 1"),
        ],
    );
    let mut deep = node.connect();
    deep.send(b"EVAL 'local t = {} t[1] = t return t' 0\r\nQUIT\r\n");
    let reply = String::from_utf8(deep.rest()).unwrap();
    assert!(
        reply.starts_with("*1\r\n*1\r\n") && reply.contains("-ERR reached lua stack limit\r\n+OK"),
        "{}",
        reply.len()
    );
    a.run("HELLO 3");
    answers(
        &mut a,
        &[
            ("return {double = 3.5}", "(double) 3.5"),
            ("return {map = {a = 1}}", "1# \"a\" => (integer) 1"),
            ("return {set = {a = true}}", "1~ \"a\""),
            ("return true", "(integer) 1"),
            ("redis.setresp(3) return true", "(true)"),
            ("return nil", "(nil)"),
        ],
    );
}

#[test]
fn commands_inside_a_script() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    a.run("SET text x");
    answers(
        &mut a,
        &[
            ("return redis.call('SET', 'n', 1.5)", "OK"),
            ("return redis.call('GET', 'n')", "\"1.5\""),
            ("return redis.call('SET', 'n', 123456789012)", "OK"),
            ("return redis.call('INCR', 'n')", "(integer) 123456789013"),
            ("return redis.call('GET', 'nosuch') == false", "(integer) 1"),
            ("return redis.call('INCR', 'text')", "(error) ERR value is not an integer or out of range"),
            ("return redis.pcall('INCR', 'text').err", "\"ERR value is not an integer or out of range\""),
            ("return redis.call('NOSUCH')", "(error) ERR Unknown Redis command called from script"),
            ("return redis.call('GET')", "(error) ERR Wrong number of args calling Redis command from script"),
            ("return redis.call('MULTI')", "(error) ERR This Redis command is not allowed from script"),
            ("return redis.call('EVAL', 'return 1', 0)", "(error) ERR This Redis command is not allowed from script"),
            ("return redis.call()", "(error) ERR Please specify at least one argument for this redis lib call"),
            ("return redis.call({})", "(error) ERR Lua redis lib command arguments must be strings or integers"),
            // SELECT in a script applies to the script only.
            ("redis.call('SELECT', 3) return redis.call('SET', 'there', 1)", "OK"),
            ("return redis.call('EXISTS', 'there')", "(integer) 0"),
            ("return redis.call('DBSIZE')", "(integer) 2"),
            ("return redis.call('FLUSHALL')", "OK"),
            ("return #redis.call('KEYS', '*')", "(integer) 0"),
        ],
    );
    let text = eval(&mut a, "\n\nerror('gone wrong')", &[], &[]);
    assert!(text.starts_with("(error) ERR user_script:3: gone wrong script: "), "{text}");
    assert!(text.ends_with(", on @user_script:3."), "{text}");
}

#[test]
fn keys_that_were_not_declared() {
    let node = Node::start(&[]);
    const ROUNDS: usize = 200;
    // Each script holds one stripe and then needs the other's. If a script cannot lock it, it starts again. No update
    // may be lost.
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let node = &node;
            scope.spawn(move || {
                let mut client = node.connect();
                let (mine, other) = if worker % 2 == 0 { ("p", "q") } else { ("q", "p") };
                let script = "local had = redis.call('GET', KEYS[1]) or 0 \
                              local others = redis.call('GET', ARGV[1]) or 0 \
                              if tonumber(had) ~= tonumber(others) then return 'torn' end \
                              redis.call('SET', KEYS[1], had + 1) redis.call('SET', ARGV[1], others + 1) return 'done'";
                for _ in 0..ROUNDS {
                    assert_eq!(eval(&mut client, script, &[mine], &[other]), "\"done\"");
                }
            });
        }
    });
    assert_eq!(node.connect().run("MGET p q"), format!("1) \"{0}\"\n2) \"{0}\"", 4 * ROUNDS));
}

#[test]
fn inside_a_transaction() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    a.run("MULTI");
    a.run("SELECT 2");
    assert_eq!(eval(&mut a, "return redis.call('INCR', KEYS[1])", &["n"], &[]), "QUEUED");
    assert_eq!(eval(&mut a, "return redis.call('INCR', 'undeclared')", &[], &[]), "QUEUED");
    assert_eq!(eval(&mut a, "error({err = 'MY error'})", &[], &[]), "QUEUED");
    a.run("FCALL nosuch 0");
    a.run("GET n");
    let reply = a.run("EXEC");
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!(lines[..3], ["1) OK", "2) (integer) 1", "3) (integer) 1"]);
    assert!(lines[3].starts_with("4) (error) MY error script: "), "{reply}");
    assert_eq!(lines[4..], ["5) (error) ERR Function not found", "6) \"1\""]);
}

#[test]
fn the_sandbox() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    const READ_ONLY: &str = "(error) ERR user_script:1: Attempt to modify a readonly table";
    const RAW: &str = "(error) ERR Attempt to modify a readonly table";
    for name in [
        "dofile",
        "loadfile",
        "print",
        "require",
        "os",
        "io",
        "debug",
        "package",
        "module",
        "newproxy",
        "getfenv",
        "setfenv",
        "jit",
        "_ENV",
        "undeclared",
    ] {
        let error =
            format!("(error) ERR user_script:1: Script attempted to access nonexistent global variable '{name}'");
        answers(&mut a, &[(&format!("return {name}"), &error)]);
    }
    answers(
        &mut a,
        &[
            ("x = 1", READ_ONLY),
            ("_G.x = 1", READ_ONLY),
            ("redis.call = nil", READ_ONLY),
            ("string.format = nil", READ_ONLY),
            ("math.x = 1", READ_ONLY),
            ("getmetatable('').__index = 1", READ_ONLY),
            ("getmetatable(_G).__index = 1", READ_ONLY),
            ("rawset(_G, 'x', 1)", RAW),
            ("rawset(redis, 'x', 1)", RAW),
            ("setmetatable(_G, {})", RAW),
            ("setmetatable(string, nil)", RAW),
            ("table.insert(redis, 1)", RAW),
            ("table.remove(redis)", RAW),
            ("loadstring('x = 1')()", "(error) ERR [string \"x = 1\"]:1: Attempt to modify a readonly table"),
            ("coroutine.wrap(function() x = 1 end)()", &READ_ONLY.replace("ERR ", "ERR user_script:1: ")),
            ("return rawget(_G, 'redis') == redis", "(integer) 1"),
            ("return rawget(_G, 'x')", "(nil)"),
            ("return getmetatable(redis)", "(nil)"),
            ("for name, value in pairs(_G) do if type(value) == 'table' then rawset(value, 'x', 1) end end", RAW),
            // Nothing of one script is visible to the next.
            ("local t = {} t.x = 1 return t.x", "(integer) 1"),
            ("return x", "(error) ERR user_script:1: Script attempted to access nonexistent global variable 'x'"),
            // Bytecode is refused.
            ("return loadstring(string.dump(function() return 1 end))", "(nil)"),
            ("return load(function() return nil end) ~= nil", "(integer) 1"),
            // Arguments that make Lua's own functions loop for ever or overflow.
            ("return {unpack({}, 0, 2147483647)}", "(error) ERR user_script:1: too many results to unpack"),
            ("return {unpack({}, -2147483648, 2147483647)}", "(error) ERR user_script:1: too many results to unpack"),
            ("return {unpack({}, 1, 1e300)}", "(error) ERR user_script:1: too many results to unpack"),
            ("return #string.rep('', 2147483647)", "(integer) 0"),
            ("return string.rep('x', 2147483647)", NOT_ENOUGH),
            (
                "return string.find(string.rep('a', 9999), string.rep('a?', 9999))",
                "(error) ERR user_script:1: pattern too complex",
            ),
            (
                "table.insert({}, -2147483648, 1)",
                "(error) ERR user_script:1: bad argument #2 to 'insert' (position out of bounds)",
            ),
            ("local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end", NOT_ENOUGH),
            ("return 'still here'", "\"still here\""),
        ],
    );
    let deep = eval(&mut a, "local function f() return 1 + f() end return f()", &[], &[]);
    assert!(deep.contains("stack overflow"), "{deep}");
    let nested = format!("return {}1{}", "(".repeat(300), ")".repeat(300));
    assert!(eval(&mut a, &nested, &[], &[]).contains("chunk has too many syntax levels"));
    let chained =
        eval(&mut a, "local s = {} for i = 1, 300 do s = setmetatable({}, {__index = s}) end return s.x", &[], &[]);
    assert!(chained.contains("loop in gettable"), "{chained}");
}

#[test]
fn the_libraries() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    answers(
        &mut a,
        &[
            ("return bit.tohex(-2147483648)", "\"80000000\""),
            ("return bit.tohex(255, -2147483648)", "\"000000FF\""),
            ("return bit.tobit(2 ^ 32 + 5)", "(integer) 5"),
            ("return bit.tobit(1e20)", "(integer) 2025163840"),
            (
                "return bit.band({})",
                "(error) ERR user_script:1: bad argument #1 to 'band' (number expected, got table)",
            ),
            ("return bit.arshift(-256, 4)", "(integer) -16"),
            ("return cjson.encode({1, 2, 'x', {a = 1}})", "\"[1,2,\\\"x\\\",{\\\"a\\\":1}]\""),
            ("return cjson.encode({})", "\"{}\""),
            ("return cjson.encode(123456789012345678)", "\"1.2345678901235e+17\""),
            ("return cjson.decode('[1, {\"a\": null}]')[2].a == cjson.null", "(integer) 1"),
            (
                "return cjson.decode('{\"a\" 1}')",
                "(error) ERR user_script:1: Expected colon but found T_NUMBER at character 6",
            ),
            (
                "return cjson.encode({[1] = 1, [30] = 3})",
                "(error) ERR user_script:1: Cannot serialise table: excessively sparse array",
            ),
            // A script's settings do not apply to the next script.
            ("return cjson.encode_number_precision(3) and cjson.encode(1 / 3)", "\"0.333\""),
            ("return cjson.encode(1 / 3)", "\"0.33333333333333\""),
            ("cjson.encode = nil", "(error) ERR user_script:1: Attempt to modify a readonly table"),
            (
                "return {cmsgpack.unpack(cmsgpack.pack(1, -70000, 2 ^ 40, 'x', {1, 2}, nil))}",
                "1) (integer) 1\n2) (integer) -70000\n3) (integer) 1099511627776\n4) \"x\"\n5) 1) (integer) 1\n   2) (integer) 2",
            ),
            ("return cmsgpack.unpack('\\193')", "(error) ERR user_script:1: Bad data format in input."),
            (
                "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
                "(error) ERR user_script:1: Missing bytes in input.",
            ),
            (
                "return {struct.unpack('>I2i4', struct.pack('>I2i4', 1, -2))}",
                "1) (integer) 1\n2) (integer) -2\n3) (integer) 7",
            ),
            ("return struct.size('!8bd')", "(integer) 16"),
            ("return struct.size('i99999999999')", "(error) ERR user_script:1: integral size overflow"),
            (
                "return struct.unpack('lc0', string.rep('\\255', 8) .. 'abc')",
                "(error) ERR user_script:1: bad argument #2 to 'unpack' (data string too short)",
            ),
        ],
    );
    // Nesting as deep as a script may ask for, and deeper than the thread's stack.
    for (script, error) in [
        ("return cjson.decode(string.rep('[', 100000))", "Found too many nested data structures (1001)"),
        (
            "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 1000000))",
            "Found too many nested data structures (2001)",
        ),
        ("local t = {} t[1] = t return cjson.encode(t)", "Cannot serialise, excessive nesting (1001)"),
        (
            "cjson.encode_max_depth(1000000) local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
            "Cannot serialise, excessive nesting (2001)",
        ),
        ("return cmsgpack.unpack(string.rep('\\145', 1000000))", "stack overflow (in function mp_decode_to_lua_array)"),
        (
            "return cmsgpack.unpack(string.rep('\\129\\1', 1000000))",
            "stack overflow (in function mp_decode_to_lua_hash)",
        ),
    ] {
        let reply = eval(&mut a, script, &[], &[]);
        assert!(reply.starts_with(&format!("(error) ERR user_script:1: {error}")), "{script}: {reply}");
    }
    assert_eq!(eval(&mut a, "local t = {} t[1] = t return #cmsgpack.pack(t)", &[], &[]), "(integer) 17");
}

#[test]
fn scripts_are_known_by_their_sha1() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    const SHA: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(a.run(&format!("EVALSHA {SHA} 0")), "(error) NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(eval(&mut a, "return 1", &[], &[]), "(integer) 1");
    // On another worker too, and in any case.
    assert_eq!(b.run(&format!("EVALSHA {} 0", SHA.to_uppercase())), "(integer) 1");
    assert_eq!(b.run(&format!("SCRIPT EXISTS {SHA} x")), "1) (integer) 1\n2) (integer) 0");
    assert_eq!(b.info("memory", "number_of_cached_scripts"), "1");
    assert_eq!(b.run("SCRIPT FLUSH"), "OK");
    for client in [&mut a, &mut b] {
        assert_eq!(client.run(&format!("EVALSHA {SHA} 0")), "(error) NOSCRIPT No matching script. Please use EVAL.");
    }
    assert_eq!(a.run("SCRIPT LOAD \"return 1\""), format!("\"{SHA}\""));
    assert_eq!(b.run(&format!("EVALSHA_RO {SHA} 0")), "(integer) 1");
}

const BUSY: &str = "(error) BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Sends a command whose reply is read later.
fn begin(client: &mut Client, words: &[&[u8]]) {
    let mut bytes = Vec::new();
    resp::client::encode_command(words, &mut bytes);
    client.send(&bytes);
}

/// The script's worker is the only one. Its thread is blocked, but its connections are still answered.
#[test]
fn a_script_that_runs_too_long_on_the_only_worker() {
    let node = Node::start(&[("busy-reply-threshold", "50"), ("io-threads", "1")]);
    let (mut busy, mut other, mut queued) = (node.connect(), node.connect(), node.connect());
    assert_eq!(other.run("SET k 1"), "OK");
    for line in ["WATCH k", "MULTI", "SET k 2"] {
        queued.run(line);
    }
    begin(&mut busy, &[b"EVAL", b"while true do end", b"0"]);
    // An old connection. Its first command may have run before the script counted as slow.
    eventually("others are told", || other.run("GET k") == BUSY);
    // A new connection.
    let mut late = node.connect();
    assert_eq!(late.run("GET k"), BUSY);
    assert_eq!(late.run("NOSUCH"), "(error) ERR unknown command 'NOSUCH', with args beginning with: ");
    assert_eq!(late.run("GET"), "(error) ERR wrong number of arguments for 'get' command");
    assert_eq!(late.run("SHUTDOWN"), BUSY);
    assert_eq!(late.run("FUNCTION STATS"), BUSY);
    assert!(late.run("HELLO 3").contains("\"proto\" => (integer) 3"), "allowed while a script is busy");
    assert_eq!(late.run("RESET"), "RESET");
    // EXEC discards a transaction with a refused command.
    for (line, told) in [
        ("MULTI", "OK"),
        ("GET k", BUSY),
        ("EXEC", &BUSY.replace("(error) ", "(error) EXECABORT Transaction discarded because of: ")),
        ("DISCARD", "(error) ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("DISCARD", "OK"),
    ] {
        assert_eq!(late.run(line), told, "{line}");
    }
    // A transaction with watched keys, which the script may hold, is answered after the script.
    queued.send(b"EXEC\r\n");
    // A command that arrives in pieces, a large command, and the end of a connection.
    late.send(b"*2\r\n$3\r\nGET\r\n$1");
    assert_eq!(other.run("GET k"), BUSY);
    late.send(b"\r\nk\r\n");
    assert_eq!(late.read(), BUSY);
    let large = vec![b'x'; 1 << 20];
    assert_eq!(shown(&late.value(&[b"SET", b"k", &large]).unwrap()), BUSY);
    assert_eq!(late.run("QUIT"), "OK");
    assert_eq!(late.read(), "(closed)");
    // More replies than one batch has, in order.
    let mut pipeline = b"GET k\r\n".repeat(2_500);
    pipeline.extend_from_slice(b"NOSUCH\r\nSCRIPT KILL\r\n");
    other.send(&pipeline);
    for _ in 0..2_500 {
        assert_eq!(other.read(), BUSY);
    }
    assert!(other.read().starts_with("(error) ERR unknown command"));
    assert_eq!(other.read(), "OK");
    assert!(busy.read().starts_with("(error) ERR Script killed by user with SCRIPT KILL."));
    assert_eq!(queued.read(), "1) OK");
    for client in [&mut busy, &mut other, &mut queued] {
        assert_eq!(client.run("GET k"), "\"2\"");
    }
    assert_eq!(other.run("SCRIPT KILL"), "(error) NOTBUSY No scripts in execution right now.");
    eventually("the one that has gone is gone", || other.info("clients", "connected_clients") == "3");
}

/// Begins a script without end on the only worker, and waits until it runs.
fn spin(busy: &mut Client, other: &mut Client) {
    let mut both = Vec::new();
    resp::client::encode_command(&[b"SET", b"begun", b"1"], &mut both);
    resp::client::encode_command(&[b"EVAL", b"while true do end", b"1", b"held"], &mut both);
    busy.send(&both);
    // Both are in one batch, so this is seen in the middle of the script.
    eventually("the script runs", || other.run("GET begun") != "(nil)");
}

/// Whether nothing has arrived.
fn is_silent(client: &Client) -> bool {
    client.stream.set_nonblocking(true).unwrap();
    let seen = client.stream.peek(&mut [0]);
    client.stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Before it counts as busy, clients of its worker get what does not touch what the script may touch.
#[test]
fn others_read_in_the_middle_of_a_script() {
    let node = Node::start(&[("busy-reply-threshold", "3600000"), ("io-threads", "1")]);
    let mut waiting: Vec<Client> = (0..5).map(|_| node.connect()).collect();
    let (mut busy, mut other) = (node.connect(), node.connect());
    assert_eq!(other.run("SET other 1"), "OK");
    assert_eq!(waiting[4].run("MULTI"), "OK");
    spin(&mut busy, &mut other);
    // Its own key, a write, another script, what needs all stripes, and a transaction.
    for (client, line) in
        waiting.iter_mut().zip(["GET held", "SET other 2", "EVAL 'return 1' 0", "DBSIZE", "GET other"])
    {
        client.send(line.as_bytes()).send(b"\r\n");
    }
    // A pass asks the connections in their order: those that wait are before this one.
    for _ in 0..3 {
        assert_eq!(other.run("PING"), "PONG");
        assert_eq!(other.run("GET other"), "\"1\"");
        assert_eq!(node.connect().run("STRLEN other"), "(integer) 1", "a new connection");
        assert!(waiting.iter().all(is_silent));
    }
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

/// When the script counts as busy, those that have waited are told. When it is over, everybody is served.
#[test]
fn who_waits_for_a_script_is_told_when_it_is_busy() {
    let node = Node::start(&[("busy-reply-threshold", "500"), ("io-threads", "1")]);
    let (mut busy, mut other) = (node.connect(), node.connect());
    let mut waiting: Vec<Client> = (0..3).map(|_| node.connect()).collect();
    spin(&mut busy, &mut other);
    for (client, line) in waiting.iter_mut().zip(["GET held", "SET held 2", "EVAL 'return 1' 0"]) {
        client.send(line.as_bytes()).send(b"\r\n");
    }
    for client in &mut waiting {
        assert_eq!(client.read(), BUSY);
    }
    assert_eq!(other.run("SCRIPT KILL"), "OK");
    assert_eq!(busy.read(), "OK");
    assert!(busy.read().starts_with("(error) ERR Script killed by user with SCRIPT KILL."));
    for client in &mut waiting {
        assert_eq!(client.run("SET held 3"), "OK");
        assert_eq!(client.run("EVAL 'return 1' 0"), "(integer) 1");
    }
}

#[test]
fn a_script_that_has_written_on_the_only_worker() {
    let mut node = Node::start(&[("busy-reply-threshold", "50"), ("io-threads", "1")]);
    let (mut busy, mut other) = (node.connect(), node.connect());
    begin(&mut busy, &[b"EVAL", b"redis.call('SET', KEYS[1], 1) while true do end", b"1", b"k"]);
    eventually("others are told", || other.run("GET k") == BUSY);
    assert!(
        other.run("SCRIPT KILL").starts_with("(error) UNKILLABLE Sorry the script already executed write commands")
    );
    assert_eq!(other.run("SHUTDOWN NOSAVE"), "(closed)");
    assert!(node.ended().success());
}

/// A worker that waits for a stripe which the script holds is blocked like the script's own worker.
#[test]
fn workers_that_wait_for_the_script_still_answer() {
    let node = Node::start(&[("busy-reply-threshold", "50"), ("io-threads", "2")]);
    let mut clients: Vec<Client> = (0..4).map(|_| node.connect()).collect();
    assert_eq!(clients[0].run("SET k 1"), "OK");
    for client in &mut clients[1..] {
        assert_eq!(client.run("WATCH k"), "OK");
    }
    let script = b"redis.call('GET', KEYS[1]) while true do end";
    begin(&mut clients[0], &[b"EVAL", script, b"1", b"k"]);
    let mut late = node.connect();
    eventually("others are told", || late.run("GET k") == BUSY);
    // Each client must forget a watched key that the script holds. The clients are on both workers.
    for client in &mut clients[1..] {
        client.send(b"UNWATCH\r\n");
    }
    for _ in 0..3 {
        let mut late = node.connect();
        assert_eq!(late.run("GET k"), BUSY);
    }
    assert_eq!(late.run("SCRIPT KILL"), "OK");
    for client in &mut clients[1..] {
        assert_eq!(client.read(), "OK");
        eventually("it is served again", || client.run("GET k") == "\"1\"");
    }
}

#[test]
fn a_script_that_runs_too_long() {
    let node = Node::start(&[("busy-reply-threshold", "50")]);
    let mut probe = node.connect();
    assert_eq!(
        probe.run(
            "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('spin', function() while true do end end)\""
        ),
        "\"lib\""
    );
    drop(probe);
    // The script ends even if it catches errors.
    for (script, kill, wrong) in [
        ("while true do end", "SCRIPT KILL", "FUNCTION KILL"),
        ("while true do pcall(function() while true do end end) end", "SCRIPT KILL", "FUNCTION KILL"),
        ("local c = coroutine.wrap(function() while true do end end) c()", "SCRIPT KILL", "FUNCTION KILL"),
        (
            "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
            "SCRIPT KILL",
            "FUNCTION KILL",
        ),
        ("spin", "FUNCTION KILL", "SCRIPT KILL"),
    ] {
        let command: &[u8] = if script == "spin" { b"FCALL" } else { b"EVAL" };
        let mut busy = node.connect();
        let mut bytes = Vec::new();
        resp::client::encode_command(&[command, script.as_bytes(), b"0"], &mut bytes);
        busy.send(&bytes);
        let told = if script == "spin" { BUSY.replace("SCRIPT KILL", "FUNCTION KILL") } else { BUSY.to_owned() };
        // Connections that arrive while the script runs go to the other worker.
        let mut other = node.connect();
        eventually("the script runs for longer than the threshold", || {
            other = node.connect();
            other.run("GET k") == told
        });
        assert_eq!(other.run(wrong), told);
        let stats = other.run("FUNCTION STATS");
        assert!(if script == "spin" { stats.contains("duration_ms") } else { stats == BUSY }, "{stats}");
        assert_eq!(other.run(kill), "OK");
        let ended = busy.read();
        assert!(ended.starts_with(&format!("(error) ERR Script killed by user with {kill}. script: ")), "{ended}");
        eventually("others are served again", || other.run("GET k") == "(nil)");
        assert_eq!(other.run(kill), "(error) NOTBUSY No scripts in execution right now.");
        assert_eq!(busy.run("GET k"), "(nil)");
    }
}

#[test]
fn a_script_that_has_written_is_not_killed() {
    let mut node = Node::start(&[("busy-reply-threshold", "50")]);
    let mut busy = node.connect();
    let mut bytes = Vec::new();
    let script = b"redis.call('SET', KEYS[1], 1) while true do end";
    resp::client::encode_command(&[b"EVAL", script, b"1", b"k"], &mut bytes);
    busy.send(&bytes);
    let mut other = node.connect();
    eventually("the script runs for longer than the threshold", || {
        other = node.connect();
        other.run("SCRIPT KILL").starts_with("(error) UNKILLABLE Sorry the script already executed write commands")
    });
    assert_eq!(other.run("SHUTDOWN NOSAVE"), "(closed)");
    assert!(node.ended().success());
}

#[test]
fn functions() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    let load = |client: &mut Client, words: &[&str], code: &str| {
        let words: Vec<&[u8]> =
            ["FUNCTION", "LOAD"].iter().chain(words).copied().chain([code]).map(str::as_bytes).collect();
        shown(&client.value(&words).unwrap())
    };
    let code = "#!lua name=lib\n\
                local calls = 0\n\
                redis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)\n\
                redis.register_function{function_name='peek', callback=function(keys) return redis.call('GET', keys[1]) end,\n\
                    flags={'no-writes'}, description='reads'}\n\
                redis.register_function('fails', function() error('no') end)";
    assert_eq!(load(&mut a, &[], code), "\"lib\"");
    assert_eq!(load(&mut a, &[], code), "(error) ERR Library 'lib' already exists");
    assert_eq!(load(&mut b, &["REPLACE"], code), "\"lib\"");
    for client in [&mut a, &mut b] {
        assert!(client.run("FCALL add 1 n 5").starts_with("(integer) "));
    }
    assert_eq!(a.run("FCALL_RO peek 1 n"), "\"10\"");
    assert_eq!(a.run("FCALL_RO add 1 n 1"), "(error) ERR Can not execute a script with write flag using *_ro command.");
    assert_eq!(a.run("FCALL fails 0"), "(error) ERR user_function:6: no script: fails, on @user_function:6.");
    let other = "#!lua name=other\nredis.register_function('add', function() end)";
    assert_eq!(load(&mut a, &[], other), "(error) ERR Function add already exists");
    let endless = "#!lua name=endless\nwhile true do end";
    assert_eq!(load(&mut a, &[], endless), "(error) ERR Error registering functions: ERR FUNCTION LOAD timeout");
    // Every worker sees a new version of a library.
    let newer = "#!lua name=lib\nredis.register_function('add', function() return 'new' end)";
    assert_eq!(load(&mut a, &["REPLACE"], newer), "\"lib\"");
    for client in [&mut a, &mut b] {
        assert_eq!(client.run("FCALL add 0"), "\"new\"");
        assert_eq!(client.run("FCALL peek 1 n"), "(error) ERR Function not found");
    }
    // Dump and restore.
    let Some(resp::client::Value::Bulk(dump)) = a.value(&[b"FUNCTION", b"DUMP"]) else { panic!("a payload") };
    assert_eq!(a.run("FUNCTION FLUSH"), "OK");
    assert_eq!(a.run("FCALL add 0"), "(error) ERR Function not found");
    assert_eq!(shown(&a.value(&[b"FUNCTION", b"RESTORE", &dump]).unwrap()), "OK");
    assert_eq!(b.run("FCALL add 0"), "\"new\"");
    let again = shown(&a.value(&[b"FUNCTION", b"RESTORE", &dump]).unwrap());
    assert_eq!(again, "(error) ERR Library lib already exists");
    for policy in [&b"REPLACE"[..], b"FLUSH"] {
        assert_eq!(shown(&a.value(&[b"FUNCTION", b"RESTORE", &dump, policy]).unwrap()), "OK");
    }
    assert_eq!(a.info("memory", "number_of_libraries"), "1");
    assert_eq!(a.run("FUNCTION DELETE lib"), "OK");
    assert_eq!(a.info("memory", "number_of_functions"), "0");
}

#[test]
fn flags_of_a_script() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    answers(
        &mut a,
        &[
            (
                "#!lua flags=no-writes\nreturn redis.call('SET', 'k', 1)",
                "(error) ERR Write commands are not allowed from read-only scripts.",
            ),
            ("#!lua flags=nosuch\nreturn 1", "(error) ERR Unexpected flag in script shebang: nosuch"),
            ("#!lua name=x\nreturn 1", "(error) ERR Unknown lua shebang option: name=x"),
            ("#!python\nreturn 1", "(error) ERR Unexpected engine in script shebang: #!python"),
            ("#!lua", "(error) ERR Invalid script shebang"),
            ("#!lua\nreturn redis.call('SET', 'k', 1)", "OK"),
        ],
    );
}

/// Calls every reachable function with unreasonable arguments. ARGV[1] is the seed.
const HOSTILE: &str = r#"
local functions, seen = {}, {}
local function collect(of)
  for name, value in pairs(of) do
    if type(value) == 'function' then
      functions[#functions + 1] = value
    elseif type(value) == 'table' and not seen[value] then
      seen[value] = true
      collect(value)
    end
  end
end
collect(_G)
local values = {
  function() return nil end, function() return true end, function() return -1 end, function() return 0 end,
  function() return 1 end, function() return 300 end, function() return 2 ^ 31 end, function() return -2 ^ 31 end,
  function() return 2 ^ 53 end, function() return 1 / 0 end, function() return 0 / 0 end, function() return 1e308 end,
  function() return '' end, function() return 'a' end, function() return '%' end, function() return '[a' end,
  function() return '(a*(.)%w(%s*))' end, function() return '%b()%f[a]' end, function() return ('x-'):rep(600) end,
  function() return '\0\255' end, function() return 'bBhHiIlLTfdsc0!8' end, function() return '{"a":[1,2]}' end,
  function() return {} end, function() return {1, 2, 3} end, function() return {[1] = 1, [2 ^ 40] = 2} end,
  function() local t = {} t[1] = t t.t = t return t end, function() return _G end, function() return redis end,
  function() return getmetatable('') end, function() return getmetatable(_G) end, function() return string end,
  function() return print_nothing end, function() return function() end end, function() return error end,
  function() return function() error({err = 'E x'}) end end, function() return coroutine.create(function() end) end,
  function() return setmetatable({}, {__index = _G, __newindex = _G, __call = error, __tostring = error}) end,
  function() return setmetatable({}, {__metatable = 1, __lt = error, __concat = error, __len = error}) end,
}
local state = tonumber(ARGV[1])
local function draw(below)
  state = (state * 1103515245 + 12345) % 2 ^ 31
  return math.floor(state / 8) % below + 1
end
local raised = 0
for _ = 1, 4000 do
  local args = {}
  for at = 1, draw(5) - 1 do
    local ok, value = pcall(values[draw(#values)])
    args[at] = ok and value or nil
  end
  if not pcall(functions[draw(#functions)], args[1], args[2], args[3], args[4]) then
    raised = raised + 1
  end
end
return raised
"#;

#[test]
fn every_function_with_hostile_arguments() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    const COUNT: &str = "local n, seen = 0, {} local function count(of) for _, value in pairs(of) do n = n + 1 \
                         if type(value) == 'table' and not seen[value] then seen[value] = true count(value) end end end \
                         count(_G) return n";
    let before = eval(&mut a, COUNT, &[], &[]);
    for seed in 0..12 {
        let reply = eval(&mut a, HOSTILE, &[], &[&(seed * 7919).to_string()]);
        // Functions like randomseed may be called, yield may not. Some calls raise errors, and the script runs to its
        // end.
        let raised: u64 =
            reply.strip_prefix("(integer) ").unwrap_or_else(|| panic!("{seed}: {reply}")).parse().unwrap();
        assert!((100..4000).contains(&raised), "{seed}: {raised}");
        // The script has left nothing behind, and has removed nothing.
        answers(
            &mut a,
            &[
                (COUNT, &before),
                ("return redis.sha1hex('')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""),
                ("return ('x'):rep(3) .. cjson.encode({1}) .. bit.tohex(1)", "\"xxx[1]00000001\""),
                ("return x", "(error) ERR user_script:1: Script attempted to access nonexistent global variable 'x'"),
                ("x = 1", "(error) ERR user_script:1: Attempt to modify a readonly table"),
            ],
        );
    }
}

/// The error without a RAM limit.
const NOT_ENOUGH: &str =
    "(error) ERR not enough memory: the scripts of one worker may use 268435456 bytes, see script-memory-limit";

#[test]
fn the_memory_of_scripts_has_a_limit_of_its_own() {
    const TABLE: &str = "local t = {} for i = 1, 1000000 do t[i] = i end return #t";
    let node = Node::start(&[("script-memory-limit", "8mb")]);
    let mut a = node.connect();
    let limit =
        "(error) ERR not enough memory: the scripts of one worker may use 8388608 bytes, see script-memory-limit";
    answers(&mut a, &[(TABLE, limit), ("return 'still here'", "\"still here\"")]);
    assert_eq!(a.run("CONFIG SET script-memory-limit 64mb"), "OK");
    answers(&mut a, &[(TABLE, "(integer) 1000000")]);
    assert_eq!(a.run("CONFIG GET script-memory-limit"), "1) \"script-memory-limit\"\n2) \"67108864\"");
}

/// Once, the interpreters kept what was flushed until their next script.
#[test]
fn the_memory_of_flushed_scripts_and_libraries_is_given_back() {
    let node = Node::start(&[]);
    // On all workers.
    let mut clients: Vec<Client> = (0..8).map(|_| node.connect()).collect();
    clients.iter_mut().for_each(|client| drop(eval(client, "return 1", &[], &[])));
    let mut a = node.connect();
    let few = a.info_number("memory", "used_memory_lua");
    let body = |number: usize| format!("local t = {{{}}} return t[{number}]", "{a = 'b'}, ".repeat(3000));
    let load = |client: &mut Client, number: usize| {
        let library =
            format!("#!lua name=l{number}\nredis.register_function('f{number}', function() {} end)", body(number));
        assert!(client.words(&[b"FUNCTION", b"LOAD", library.as_bytes()]).contains('l'));
        assert_ne!(client.run(&format!("FCALL f{number} 0")), "");
    };
    for flush in ["SCRIPT FLUSH SYNC", "SCRIPT FLUSH ASYNC"] {
        for (at, client) in clients.iter_mut().enumerate() {
            (0..10).for_each(|number| drop(eval(client, &body(at * 10 + number), &[], &[])));
        }
        let many = a.info_number("memory", "used_memory_lua");
        assert!(many > few + (256 << 10), "{few} {many}");
        assert_eq!(a.run(flush), "OK");
        eventually("it is given back", || a.info_number("memory", "used_memory_lua") < few + (64 << 10));
    }
    for flush in ["FUNCTION FLUSH", "FUNCTION DELETE"] {
        clients.iter_mut().enumerate().for_each(|(at, client)| load(client, at));
        let many = a.info_number("memory", "used_memory_lua");
        assert!(many > few + (256 << 10), "{few} {many}");
        match flush {
            "FUNCTION FLUSH" => assert_eq!(a.run(flush), "OK"),
            _ => (0..clients.len()).for_each(|at| assert_eq!(a.run(&format!("{flush} l{at}")), "OK")),
        }
        eventually("it is given back", || a.info_number("memory", "used_memory_lua") < few + (64 << 10));
    }
}
