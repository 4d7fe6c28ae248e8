//! Users: who may log in and what they may do, as clients see it. Where Redis 7.0 behaves like 7.2, the transcripts
//! also run on Debian's redis-server.

use crate::common::{Client, Node, Redis, eventually};

fn on_both(transcript: fn(&dyn Fn() -> Client)) {
    let node = Node::start(&[]);
    transcript(&|| node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        transcript(&|| redis.connect());
    }
}

#[test]
fn a_user_logs_in_and_does_what_it_may() {
    on_both(|connect| {
        let (mut admin, mut bob) = (connect(), connect());
        assert_eq!(admin.run("ACL SETUSER bob on >secret +get +set +multi +exec +acl|whoami ~bob:* %R~shared:*"), "OK");
        assert_eq!(bob.run("AUTH bob wrong"), "(error) WRONGPASS invalid username-password pair or user is disabled.");
        assert_eq!(bob.run("ACL WHOAMI"), "\"default\"");
        assert_eq!(bob.run("AUTH bob secret"), "OK");
        assert_eq!(bob.run("ACL WHOAMI"), "\"bob\"");
        assert_eq!(bob.run("SET bob:1 v"), "OK");
        assert_eq!(bob.run("GET bob:1"), "\"v\"");
        assert_eq!(bob.run("GET shared:1"), "(nil)");
        for denied in ["SET shared:1 v", "GET other", "DEL bob:1", "CONFIG GET port", "ACL USERS"] {
            assert!(bob.run(denied).starts_with("(error) NOPERM "), "{denied}");
        }
        // A command is refused when it is queued, and then EXEC runs nothing.
        assert_eq!(bob.run("MULTI"), "OK");
        assert!(bob.run("SET other v").starts_with("(error) NOPERM "));
        assert_eq!(bob.run("EXEC"), "(error) EXECABORT Transaction discarded because of previous errors.");
        // A change of a user's rules applies from the next command on, also to queued commands.
        assert_eq!(bob.run("MULTI"), "OK");
        assert_eq!(bob.run("SET bob:1 w"), "QUEUED");
        assert_eq!(bob.run("GET bob:1"), "QUEUED");
        assert_eq!(admin.run("ACL SETUSER bob -set"), "OK");
        assert_eq!(
            bob.run("EXEC"),
            "1) (error) NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: no permission to execute the command or \
             subcommand\n2) \"v\""
        );
        assert!(bob.run("SET bob:1 x").starts_with("(error) NOPERM "));
        assert!(admin.run("CLIENT LIST").contains(" user=bob "));
        assert_eq!(admin.run("CLIENT KILL USER bob"), "(integer) 1");
        assert_eq!(admin.run("CLIENT KILL USER nobody"), "(error) ERR No such user 'nobody'");
        // Deleting a user ends its connections at once.
        let mut again = connect();
        assert_eq!(again.run("HELLO 2 AUTH bob secret").split('\n').count(), 14);
        assert_eq!(admin.run("ACL DELUSER bob nobody"), "(integer) 1");
        eventually("its connection ends", || !admin.run("CLIENT LIST").contains(" user=bob "));
        assert!(connect().run("AUTH bob secret").starts_with("(error) WRONGPASS"));
    });
}

#[test]
fn errors_name_the_user_and_the_command_as_redis_7_2_does() {
    let node = Node::start(&[]);
    let (mut admin, mut bob) = (node.connect(), node.connect());
    admin.run("ACL SETUSER bob on nopass +@all -config|set resetkeys ~a* resetchannels &news");
    bob.run("AUTH bob x");
    for (line, reply) in [
        ("CONFIG SET port 1", "(error) NOPERM User bob has no permissions to run the 'config|set' command"),
        ("GET b", "(error) NOPERM No permissions to access a key"),
        ("SUBSCRIBE sports", "(error) NOPERM No permissions to access a channel"),
        ("SUBSCRIBE news", "1) \"subscribe\"\n2) \"news\"\n3) (integer) 1"),
        ("UNSUBSCRIBE", "1) \"unsubscribe\"\n2) \"news\"\n3) (integer) 0"),
    ] {
        assert_eq!(bob.run(line), reply);
    }
    assert_eq!(bob.info("stats", "acl_access_denied_cmd"), "1");
    assert_eq!(bob.info("stats", "acl_access_denied_key"), "1");
    assert_eq!(bob.info("stats", "acl_access_denied_channel"), "1");
    let log = admin.run("ACL LOG 1");
    for part in
        ["\"reason\"\n    4) \"channel\"", "\"object\"\n    8) \"sports\"", "\"username\"\n   10) \"bob\"", "id="]
    {
        assert!(log.contains(part), "{log}");
    }
    // A blocked command is checked again when it runs.
    let mut waits = node.connect();
    waits.run("AUTH bob x");
    waits.send(b"BLPOP alist 0\r\n");
    eventually("it waits", || admin.info("clients", "blocked_clients") == "1");
    admin.run("ACL SETUSER bob resetkeys");
    admin.run("RPUSH alist x");
    assert_eq!(waits.read(), "(error) NOPERM No permissions to access a key");
    assert_eq!(admin.run("LLEN alist"), "(integer) 1");
    // As every refused command, it has not run.
    let stat = admin.info("commandstats", "cmdstat_blpop");
    assert!(stat.starts_with("calls=0,") && stat.ends_with(",rejected_calls=1,failed_calls=0"), "{stat}");
}

/// Whether a command was refused because of its user. Redis 7.0 uses other words.
fn is_refused(reply: &str) -> bool {
    ["NOPERM ", "ERR ACL failure in script: ", "ERR The user executing the script can't "]
        .iter()
        .any(|start| reply.strip_prefix("(error) ").is_some_and(|text| text.starts_with(start)))
}

/// A user's rights are the same for a single command, a command in a script or a function, and a command in a
/// transaction.
#[test]
fn scripts_functions_and_transactions_may_do_what_their_user_may() {
    on_both(|connect| {
        let (mut admin, mut bob) = (connect(), connect());
        admin.run("ACL SETUSER bob on nopass +@all -set -config ~k* %R~r* %W~w* resetchannels &news");
        admin.run("MSET k1 v r1 v x1 v");
        admin.run(
            "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function(_, args) return redis.pcall(unpack(args)) end)\"",
        );
        assert_eq!(bob.run("AUTH bob x"), "OK");
        for (command, refused) in [
            ("SET k1 v", true),
            ("GET k1", false),
            ("GET r1", false),
            ("GET w1", true),
            ("GET x1", true),
            ("MGET k1 r1", false),
            ("MGET k1 x1", true),
            ("DEL w1", false),
            ("DEL r1", true),
            ("APPEND w1 x", false),
            ("GETDEL w1", true),
            ("STRLEN r1", false),
            ("COPY r1 k2", false),
            ("COPY r1 w3", false),
            ("COPY x1 k2", true),
            ("COPY r1 r2", true),
            ("RENAME r1 k2", true),
            ("RENAMENX k1 r9", true),
            ("LMOVE k3 r3 LEFT LEFT", true),
            ("SUNIONSTORE w4 r4 k4", false),
            ("SUNIONSTORE k4 r4 w4", true),
            ("ZUNIONSTORE w5 2 k5 x5", true),
            ("BITOP AND w6 r6 x6", true),
            ("SORT k1 STORE x2", true),
            ("GEORADIUS k7 0 0 1 m STORE x7", true),
            ("GEORADIUS k7 0 0 1 m STOREDIST r7", true),
            ("GEORADIUS k7 0 0 1 m STORE w7", false),
            ("GEOSEARCHSTORE x8 k8 FROMLONLAT 0 0 BYRADIUS 1 m", true),
            ("XREAD STREAMS k9 x9 0 0", true),
            ("PUBLISH news x", false),
            ("PUBLISH sport x", true),
            ("SPUBLISH sport x", true),
        ] {
            let script = bob.run(&format!("EVAL \"return redis.pcall(unpack(ARGV))\" 0 {command}"));
            assert_eq!(is_refused(&script), refused, "by a script: {command}: {script}");
            let function = bob.run(&format!("FCALL f 0 {command}"));
            assert_eq!(is_refused(&function), refused, "by a function: {command}: {function}");
            let alone = bob.run(command);
            assert_eq!(is_refused(&alone), refused, "{command}: {alone}");
            bob.run("MULTI");
            let queued = bob.run(command);
            assert_eq!(is_refused(&queued), refused, "queued: {command}: {queued}");
            // A transaction continues after a script whose command was refused.
            let done = bob.run("EXEC");
            assert_eq!(done.starts_with("(error) EXECABORT"), refused, "{command}: {done}");
            let words: Vec<String> = command.split(' ').map(|word| format!("'{word}'")).collect();
            let asked = bob.run(&format!("EVAL \"return redis.acl_check_cmd({})\" 0", words.join(",")));
            assert_eq!(asked, if refused { "(nil)" } else { "(integer) 1" }, "{command}");
        }
        // Declared keys are checked too, and a refusal of redis.call ends the script.
        assert!(is_refused(&bob.run("EVAL \"return 1\" 1 x1")));
        assert!(is_refused(&bob.run("EVAL \"return 1\" 1 r1")), "it might write");
        assert_eq!(bob.run("EVAL_RO \"return 1\" 1 r1"), "(integer) 1");
        assert!(is_refused(&bob.run("FCALL f 1 x1 GET k1")));
        assert!(is_refused(&bob.run("EVAL \"redis.call('GET', 'x1') return 1\" 0")));
        bob.run("MULTI");
        bob.run("EVAL \"return redis.pcall('GET', 'x1')\" 0");
        bob.run("GET k1");
        let done = bob.run("EXEC");
        assert!(is_refused(done.strip_prefix("1) ").unwrap_or("").split('\n').next().unwrap()), "{done}");
        assert!(done.ends_with("\n2) \"v\""), "{done}");
        // ACL LOG distinguishes the contexts of these refusals.
        let log = admin.run("ACL LOG");
        for context in ["toplevel", "multi", "lua"] {
            assert!(log.contains(&format!("\"{context}\"")), "{context}: {log}");
        }
        // Arguments of redis.acl_check_cmd: invalid commands, and valid ones.
        for (script, told) in [
            (
                "redis.acl_check_cmd('nosuch', 'x')",
                "(error) ERR Invalid command passed to redis.acl_check_cmd() script: ",
            ),
            (
                "redis.acl_check_cmd('config|get')",
                "(error) ERR Invalid command passed to redis.acl_check_cmd() script: ",
            ),
            (
                "redis.acl_check_cmd()",
                "(error) ERR Please specify at least one argument for this redis lib call script: ",
            ),
            ("redis.acl_check_cmd('config', 'get', 'x')", "(nil)"),
            ("redis.acl_check_cmd('get')", "(integer) 1"),
        ] {
            let reply = bob.run(&format!("EVAL \"return {script}\" 0"));
            assert!(reply.starts_with(told), "{script}: {reply}");
        }
    });
}

/// Selectors are not combined: one of them must allow the whole command. The patterns of SORT read keys that the
/// command does not name, so SORT with patterns needs the right to read every key.
#[test]
fn rules_cannot_be_bypassed() {
    on_both(|connect| {
        let (mut admin, mut bob) = (connect(), connect());
        admin.run(
            "ACL SETUSER bob on nopass +sort +sort_ro ~l (+get +set +del ~a*) (+get +copy %R~src* ~b*) (+copy %W~dst*)",
        );
        admin.run("MSET a1 v b1 v src v secret_1 s");
        admin.run("RPUSH l 1");
        assert_eq!(bob.run("AUTH bob x"), "OK");
        for (command, refused) in [
            ("GET a1", false),
            ("GET b1", false),
            ("SET a1 v", false),
            ("SET b1 v", true),
            ("DEL a1 b1", true),
            ("COPY src b2", false),
            ("COPY src dst", true),
            ("COPY a1 dst", true),
            ("GET dst", true),
            ("SORT l", false),
            ("SORT a1", true),
            ("PING", true),
        ] {
            let reply = bob.run(command);
            assert_eq!(is_refused(&reply), refused, "{command}: {reply}");
        }
        let by = "(error) ERR BY option of SORT denied due to insufficient ACL permissions.";
        let get = "(error) ERR GET option of SORT denied due to insufficient ACL permissions.";
        for (command, told) in [
            ("SORT l BY secret_*", by),
            ("SORT l BY nosort GET secret_*", get),
            ("SORT l GET # GET secret_*->f", get),
            ("SORT_RO l GET secret_*", get),
            ("SORT l BY nosort GET #", get),
        ] {
            assert_eq!(bob.run(command), told, "{command}");
        }
        admin.run("ACL SETUSER bob %R~*");
        assert_eq!(bob.run("SORT l BY nosort GET secret_*"), "1) \"s\"");
    });
}

#[test]
fn subscribers_that_lose_their_right_are_closed() {
    on_both(|connect| {
        let (mut admin, mut listener) = (connect(), connect());
        admin.run("ACL SETUSER bob on nopass +@all resetchannels &news &news* &other");
        listener.run("AUTH bob x");
        listener.run("PSUBSCRIBE news*");
        listener.run("SUBSCRIBE news");
        admin.run("ACL SETUSER bob resetchannels &news &news*");
        assert_eq!(admin.run("PUBLISH news m"), "(integer) 2");
        admin.run("ACL SETUSER bob resetchannels &news");
        eventually("it is ended", || admin.run("PUBSUB NUMPAT") == "(integer) 0");
    });
}

#[test]
fn the_password_of_the_default_user() {
    on_both(|connect| {
        let mut admin = connect();
        assert_eq!(
            admin.run("AUTH secret"),
            "(error) ERR AUTH <password> called without any password configured for the default user. Are you sure \
             your configuration is correct?"
        );
        assert_eq!(admin.run("CONFIG SET requirepass secret"), "OK");
        let mut other = connect();
        assert_eq!(other.run("GET k"), "(error) NOAUTH Authentication required.");
        assert_eq!(other.run("AUTH wrong").split(' ').nth(1), Some("WRONGPASS"));
        assert_eq!(other.run("AUTH secret"), "OK");
        assert_eq!(other.run("GET k"), "(nil)");
        assert!(admin.run("ACL LIST").contains("#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"));
        // Authenticated clients stay authenticated. New clients need no password when none is required any more.
        let mut waits = connect();
        assert_eq!(waits.run("GET k"), "(error) NOAUTH Authentication required.");
        assert_eq!(admin.run("CONFIG SET requirepass ''"), "OK");
        assert_eq!(waits.run("GET k"), "(nil)");
        // The default user may be restricted like any other user.
        assert_eq!(admin.run("ACL SETUSER default -set"), "OK");
        assert!(other.run("SET k v").starts_with("(error) NOPERM "));
        assert!(admin.run("SET k v").starts_with("(error) NOPERM "));
        assert_eq!(admin.run("ACL SETUSER default +@all"), "OK");
        assert_eq!(other.run("SET k v"), "OK");
        assert_eq!(admin.run("ACL SETUSER default off"), "OK");
        assert_eq!(connect().run("GET k"), "(error) NOAUTH Authentication required.");
        assert_eq!(other.run("GET k"), "\"v\"");
        assert_eq!(admin.run("ACL SETUSER default on"), "OK");
    });
}

#[test]
fn users_are_kept_in_a_file_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    std::fs::write(&path, "user default on nopass ~* &* +@all\nuser bob on >secret +get ~*\n").unwrap();
    let node = Node::start(&[("aclfile", path.to_str().unwrap())]);
    let (mut admin, mut bob) = (node.connect(), node.connect());
    assert_eq!(bob.run("AUTH bob secret"), "OK");
    assert_eq!(admin.run("ACL SETUSER eve on >x"), "OK");
    assert_eq!(admin.run("ACL SAVE"), "OK");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("user eve on sanitize-payload #"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    std::fs::write(&path, "user bob on nonsense\n").unwrap();
    let error = admin.run("ACL LOAD");
    assert!(error.contains("users.acl:1: Error in ACL SETUSER modifier 'nonsense': Syntax error"), "{error}");
    assert_eq!(bob.run("GET k"), "(nil)");
    // Connections of users that are no longer in the file end.
    std::fs::write(&path, "user eve on nopass +ping\n").unwrap();
    assert_eq!(admin.run("ACL LOAD"), "OK");
    eventually("bob's connection ends", || !admin.run("CLIENT LIST").contains(" user=bob "));
    assert_eq!(admin.run("ACL USERS"), "1) \"default\"\n2) \"eve\"");
}

/// They once stayed with what they had chosen before, such as a password that is not theirs any more.
#[test]
fn acl_load_ends_the_connections_of_users_that_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let file = |text: &str| std::fs::write(&path, format!("user default on nopass ~* &* +@all\n{text}")).unwrap();
    file(
        "user same on nopass +@all ~*\nuser rules on nopass +@all ~*\nuser word on >a +@all ~*\nuser gone on nopass +@all\n",
    );
    let node = Node::start(&[("aclfile", path.to_str().unwrap())]);
    let mut admin = node.connect();
    let mut clients = ["same", "rules", "word", "gone"].map(|user| {
        let mut client = node.connect();
        assert_eq!(client.run(&format!("AUTH {user} a")), "OK");
        client
    });
    // In another order, and a rule in other words.
    file("user word on >b +@all ~*\nuser rules on nopass +@all ~* -get\nuser same on allkeys allcommands nopass\n");
    assert_eq!(admin.run("ACL LOAD"), "OK");
    eventually("three are ended", || admin.info("clients", "connected_clients") == "2");
    assert_eq!(clients[0].run("ACL WHOAMI"), "\"same\"");
    // The default user's stay, as in Redis, and the caller's ends behind its reply.
    std::fs::write(&path, "user default on >x ~* &* +@all\nuser same on nopass +@all ~a*\n").unwrap();
    let [same, ..] = &mut clients;
    assert_eq!(same.run("ACL LOAD"), "OK");
    eventually("the caller is ended", || admin.info("clients", "connected_clients") == "1");
    assert_eq!(admin.run("ACL WHOAMI"), "\"default\"");
}

/// The entry once showed the client with the command before.
#[test]
fn the_log_shows_the_client_with_the_command_that_was_refused() {
    on_both(|connect| {
        let (mut admin, mut bob) = (connect(), connect());
        let expect = |admin: &mut Client, parts: &[&str]| {
            let log = admin.run("ACL LOG 1");
            parts.iter().for_each(|part| assert!(log.contains(part), "{part}: {log}"));
        };
        admin.run("ACL SETUSER bob on nopass +@all -get -config ~*");
        bob.run("AUTH bob x");
        assert!(is_refused(&bob.run("GET k")));
        expect(&mut admin, &["\"toplevel\"", " cmd=get user=bob"]);
        assert!(is_refused(&bob.run("CONFIG GET port")));
        expect(&mut admin, &["\"toplevel\"", " cmd=config|get user=bob"]);
        bob.run("MULTI");
        assert!(is_refused(&bob.run("GET k")));
        expect(&mut admin, &["\"multi\"", " cmd=get user=bob"]);
        bob.run("DISCARD");
        assert!(bob.run("EVAL \"return redis.pcall('get', KEYS[1])\" 1 k").contains("(error) "));
        expect(&mut admin, &["\"lua\"", " cmd=eval user=bob"]);
        admin.run("ACL SETUSER bob +get");
        bob.run("MULTI");
        bob.run("GET k");
        admin.run("ACL SETUSER bob -get");
        assert!(bob.run("EXEC").contains("NOPERM"));
        expect(&mut admin, &["\"multi\"", " cmd=exec user=bob"]);
        // So does CLIENT LIST, whatever the reason.
        for (line, shown) in
            [("GET k", "get"), ("STRLEN", "strlen"), ("CONFIG GET x", "config|get"), ("NOSUCH", "NULL")]
        {
            assert!(bob.run(line).starts_with("(error) "));
            let list = admin.run("CLIENT LIST");
            assert!(list.contains(&format!(" cmd={shown} user=bob")), "{line}: {list}");
        }
    });
}

#[test]
fn users_are_kept_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flintkv.conf");
    std::fs::write(&path, "# users\nuser bob on >secret +get ~* resetchannels\nuser eve off\n").unwrap();
    let node = Node::start_with_file(&path, &[]);
    let mut admin = node.connect();
    assert_eq!(node.connect().run("AUTH bob secret"), "OK");
    admin.run("ACL SETUSER bob +set (+del ~tmp:*)");
    admin.run("ACL DELUSER eve");
    assert_eq!(admin.run("CONFIG REWRITE"), "OK");
    let text = std::fs::read_to_string(&path).unwrap();
    let users: Vec<&str> = text.lines().filter(|line| line.starts_with("user ")).collect();
    assert_eq!(users.len(), 1, "{text}");
    assert!(users[0].starts_with("user bob on sanitize-payload \"#2bb80d53"), "{text}");
    assert!(users[0].ends_with(" ~* resetchannels -@all +get +set (~tmp:* resetchannels -@all +del)"), "{text}");
}

/// A password is bytes, in every way to set it.
#[test]
fn passwords_may_hold_any_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flintkv.conf");
    std::fs::write(&path, "user bob on \">a\\x00\\xff\" +@all ~*\n").unwrap();
    let node = Node::start_with_file(&path, &[]);
    let mut admin = node.connect();
    assert_eq!(node.connect().run("AUTH bob \"a\\x00\\xff\""), "OK");
    for (password, shown) in
        [("abc\\x00def", "abc\\x00def"), ("\\xff\\x00", "\\xff\\x00"), ("\\x00ff", "\\x00ff"), ("plain", "plain")]
    {
        assert_eq!(admin.run(&format!("CONFIG SET requirepass \"{password}\" masterauth \"{password}\"")), "OK");
        let got = admin.raw_call(&[b"CONFIG", b"GET", b"requirepass"]).escape_ascii().to_string();
        assert!(got.ends_with(&format!("\\r\\n{shown}\\r\\n")), "{got}");
        let mut other = node.connect();
        assert!(other.run("GET k").starts_with("(error) NOAUTH"));
        assert_eq!(other.run(&format!("AUTH \"{password}\"")), "OK");
        assert_eq!(admin.run("CONFIG REWRITE"), "OK");
        let copy = folder.path().join("copy.conf");
        std::fs::copy(&path, &copy).unwrap();
        let again = Node::start_with_file(&copy, &[]);
        let mut other = again.connect();
        assert!(other.run("GET k").starts_with("(error) NOAUTH"));
        assert_eq!(other.run(&format!("AUTH \"{password}\"")), "OK");
    }
}
