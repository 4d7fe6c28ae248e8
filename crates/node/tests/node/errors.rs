//! Error texts that no example shows, on a node and on Debian's redis-server: clients print these texts or decide by
//! them. `crates/commands/tests/commands/errors.rs` finds the error texts that no test shows.

use crate::common::{Client, Node, Redis};

/// Lines as typed, each with its reply. Replies that differ in Redis 7.0 are marked.
fn transcript(client: &mut Client, is_ours: bool, lines: &[(&str, &str)]) {
    for (command, expected) in lines {
        let only_here = expected.strip_prefix("here ");
        if only_here.is_some() && !is_ours {
            continue;
        }
        let reply = client.run(command);
        assert_eq!(reply, only_here.unwrap_or(expected), "{command}");
    }
}

fn on_both(directives: &[(&str, &str)], story: fn(&dyn Fn() -> Client, bool)) {
    let node = Node::start(directives);
    story(&|| node.connect(), true);
    if let Some(redis) = Redis::if_installed(&[]) {
        story(&|| redis.connect(), false);
    }
}

#[test]
fn errors_of_values_and_options() {
    on_both(&[], |connect, is_ours| {
        let mut client = connect();
        let lines = [
            ("PING a b", "(error) ERR wrong number of arguments for 'ping' command"),
            ("HELLO x", "(error) ERR Protocol version is not an integer or out of range"),
            ("CLIENT PAUSE 1 x", "(error) ERR CLIENT PAUSE mode must be WRITE or ALL"),
            ("CLIENT KILL MAXAGE x", "here (error) ERR maxage is not an integer or out of range"),
            ("CLIENT KILL MAXAGE 0", "here (error) ERR maxage should be greater than 0"),
            ("SELECT 9999999999", "(error) ERR value is out of range, value must between -2147483648 and 2147483647"),
            ("SWAPDB 0 x", "(error) ERR invalid second DB index"),
            (
                "SLOWLOG GET 1 2",
                "(error) ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ),
            ("FAILOVER TIMEOUT 0", "(error) ERR FAILOVER timeout must be greater than 0"),
            ("WAITAOF 2 0 0", "here (error) ERR value is out of range, value must between 0 and 1"),
            ("COMMAND GETKEYS EVAL x 5 a", "(empty array)"),
            ("COMMAND GETKEYS ZUNION 5 a", "(error) ERR Invalid arguments specified for command"),
            ("GEOADD geo 0 0 a", "(integer) 1"),
            ("GEOSEARCH geo FROMLONLAT 0 0 BYBOX x 1 m", "(error) ERR need numeric width"),
            ("GEOSEARCH geo FROMLONLAT 0 0 BYBOX 1 x m", "(error) ERR need numeric height"),
            ("HSET h f x", "(integer) 1"),
            ("HINCRBYFLOAT h f 1", "(error) ERR hash value is not a float"),
            ("RPUSH l a", "(integer) 1"),
            (
                "LPOS l a RANK 0",
                "(error) ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                 negative to start from the end of the list",
            ),
            ("LPOS l a MAXLEN -1", "(error) ERR MAXLEN can't be negative"),
            (
                "OBJECT FREQ l",
                "(error) ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ),
            ("CONFIG SET maxmemory-policy allkeys-lfu", "OK"),
            (
                "OBJECT IDLETIME l",
                "(error) ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
                 between policies at runtime LRU and LFU data will take some time to adjust.",
            ),
            ("ZADD z 1 a", "(integer) 1"),
            (
                "ZRANGE z - + BYLEX WITHSCORES",
                "(error) ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ),
            (
                "DEBUG OBJECT z",
                "(error) ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
                 it from a local connection, otherwise you need to set this option in the configuration file, and then \
                 restart the server.",
            ),
        ];
        transcript(&mut client, is_ours, &lines);
    });
}

#[test]
fn errors_of_debug() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let lines = [
        ("RPUSH l a", "(integer) 1"),
        ("SET k 1", "OK"),
        (
            "DEBUG HTSTATS-KEY l",
            "(error) ERR The value stored at the specified key is not represented using an hash table",
        ),
        ("DEBUG SDSLEN l", "(error) ERR Not an sds encoded string."),
        ("DEBUG LISTPACK k", "(error) ERR Not a listpack encoded object."),
    ];
    transcript(&mut node.connect(), true, &lines);
}

#[test]
fn errors_of_streams() {
    on_both(&[], |connect, is_ours| {
        let mut client = connect();
        let lines = [
            ("XADD s 2-1 a 1", "\"2-1\""),
            ("XADD s 3-1 a 1", "\"3-1\""),
            ("XGROUP CREATE s g 0", "OK"),
            (
                "XADD s MAXLEN 1 MINID 1 * a 1",
                "(error) ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ),
            (
                "XTRIM s LIMIT 5",
                "(error) ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ),
            ("XTRIM s MAXLEN ~ 5 LIMIT -1", "(error) ERR The LIMIT argument must be >= 0."),
            ("XSETID s 9-9 ENTRIESADDED -1 MAXDELETEDID 0-0", "(error) ERR entries_added must be positive"),
            (
                "XSETID s 5-5 ENTRIESADDED 9 MAXDELETEDID 9-9",
                "(error) ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
            ),
            ("XSETID s 0-1", "(error) ERR The ID specified in XSETID is smaller than the target stream top item"),
            (
                "XSETID s 9-9 ENTRIESADDED 1 MAXDELETEDID 0-0",
                "(error) ERR The entries_added specified in XSETID is smaller than the target stream length",
            ),
            ("XCLAIM s g ann 0 2-1 IDLE x", "(error) ERR Invalid IDLE option argument for XCLAIM"),
            (
                "XREAD NOACK STREAMS s 0",
                "(error) ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
            ),
            (
                "XREAD STREAMS s t 0",
                "here (error) ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.",
            ),
            ("XCLAIM s g ann x 2-1", "(error) ERR Invalid min-idle-time argument for XCLAIM"),
            ("XAUTOCLAIM s g ann x 2-1", "(error) ERR Invalid min-idle-time argument for XAUTOCLAIM"),
            (
                "XGROUP CREATE nosuch g 0",
                "(error) ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                 MKSTREAM option to create an empty stream automatically.",
            ),
            ("XRANGE s (18446744073709551615-18446744073709551615 +", "(error) ERR invalid start ID for the interval"),
            ("XRANGE s - (0-0", "(error) ERR invalid end ID for the interval"),
            ("XREADGROUP COUNT 1 NOACK STREAMS s >", "(error) ERR Missing GROUP option for XREADGROUP"),
            (
                "XREADGROUP GROUP g ann STREAMS s $",
                "(error) ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an \
                 empty result set.",
            ),
        ];
        transcript(&mut client, is_ours, &lines);
    });
}

#[test]
fn errors_of_connections_and_users() {
    on_both(&[], |connect, is_ours| {
        let lines = [
            ("CLIENT TRACKING ON", "OK"),
            (
                "CLIENT TRACKING ON BCAST",
                "(error) ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ),
            ("CLIENT TRACKING ON OPTIN", "OK"),
            (
                "CLIENT TRACKING ON OPTOUT",
                "(error) ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ),
            ("CLIENT TRACKING ON OPTIN OPTOUT", "(error) ERR You can't specify both OPTIN mode and OPTOUT mode"),
            ("CLIENT TRACKING OFF", "OK"),
            ("CLIENT TRACKING ON OPTOUT", "OK"),
            (
                "CLIENT CACHING YES",
                "(error) ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ),
            (
                "ACL SAVE",
                "(error) ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
                 the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) \
                 in order to store users in the Redis configuration.",
            ),
            ("ACL SETUSER \"a b\"", "(error) ERR Usernames can't contain spaces or null characters"),
            ("CONFIG SET requirepass secret", "OK"),
        ];
        let (mut client, mut other) = (connect(), connect());
        let id = other.run("CLIENT ID").replace("(integer) ", "");
        let told = "(error) ERR A client can only redirect to a single other client";
        transcript(&mut client, is_ours, &[(&format!("CLIENT TRACKING ON REDIRECT {id} REDIRECT {id}"), told)]);
        transcript(&mut client, is_ours, &lines);
        let told = "here (error) NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version \
                    at the same time";
        transcript(&mut connect(), is_ours, &[("HELLO 3", told)]);
    });
}

#[test]
fn errors_of_scripts_and_functions() {
    on_both(&[], |connect, is_ours| {
        let mut client = connect();
        let names = "(error) ERR Library names can only contain letters, numbers, or underscores(_) and must be at least \
                     one character long";
        let lines = [
            ("FCALL f x", "(error) ERR Function not found"),
            ("FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"", "\"lib\""),
            ("FCALL f x", "(error) ERR Bad number of keys provided"),
            ("FCALL f -1", "(error) ERR Number of keys can't be negative"),
            ("EVAL \"return 1\" -1", "(error) ERR Number of keys can't be negative"),
            ("FUNCTION LIST LIBRARYNAME", "(error) ERR library name argument was not given"),
            ("FUNCTION LOAD \"return 1\"", "(error) ERR Missing library metadata"),
            ("FUNCTION LOAD \"#!lua\"", "(error) ERR Invalid library metadata"),
            ("FUNCTION LOAD \"#!lua\\nreturn 1\"", "(error) ERR Library name was not given"),
            ("FUNCTION LOAD \"#!lua x=y\\nreturn 1\"", "(error) ERR Invalid metadata value given: x=y"),
            (
                "FUNCTION LOAD \"#!lua name=a name=b\\nreturn 1\"",
                "(error) ERR Invalid metadata value, name argument was given multiple times",
            ),
            ("FUNCTION LOAD \"#!lua name=a-b\\nreturn 1\"", names),
            ("FUNCTION LOAD \"#!py name=a\\nreturn 1\"", "(error) ERR Engine 'py' not found"),
            ("FUNCTION LOAD \"#!lua name=a\\nreturn 1\"", "(error) ERR No functions registered"),
            (
                "FUNCTION LOAD \"#!lua name=a\\nx y\"",
                "(error) ERR Error compiling function: user_function:2: '=' expected near 'y'",
            ),
            (
                "SCRIPT DEBUG YES",
                "here (error) ERR FlintKV has no Lua debugger: use redis.log, or debug the script on a Redis server",
            ),
        ];
        transcript(&mut client, is_ours, &lines);
    });
}
