//! Owns the families of many commands at once: pipelines, transactions, scripts, functions.

use crate::harness::{Session, refused, soon};
use redis::{ErrorKind, RedisResult, Script, ServerErrorKind, TypedCommands as _, cmd, pipe};
use std::thread;
use std::time::Duration;

pub fn pipelines(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    let (get, n, list): (String, i64, Vec<String>) = pipe()
        .set("k", "v")
        .ignore()
        .get("k")
        .incr("n", 5)
        .rpush("l", &["a", "b"])
        .ignore()
        .lrange("l", 0, -1)
        .query(r)?;
    assert_eq!((&get[..], n, list), ("v", 5, vec!["a".to_string(), "b".to_string()]));
    let mut many = pipe();
    for i in 0..10_000 {
        many.set(format!("key{i}"), i).ignore();
    }
    for i in 0..10_000 {
        many.get(format!("key{i}"));
    }
    assert_eq!(many.query::<Vec<i64>>(r)?, (0..10_000).collect::<Vec<_>>());
    // An error of one command belongs to that command only.
    let failed = pipe().set("k", "w").incr("k", 1).set("after", "x").query::<()>(r).unwrap_err();
    let errors = failed.into_server_errors().expect("errors by their index");
    assert_eq!((errors.len(), errors[0].0), (1, 1));
    assert_eq!(r.get("after")?.as_deref(), Some("x"));
    let replies: Vec<redis::Value> = pipe().get("k").incr("k", 1).ignore_errors().query(r)?;
    assert!(matches!(replies[1], redis::Value::ServerError(_)));
    Ok(())
}

pub fn transactions(s: &mut Session) -> RedisResult<()> {
    let mut other = s.another()?;
    let r = &mut s.r;
    let (n, list): (i64, Vec<String>) =
        pipe().atomic().incr("n", 1).rpush("l", "a").ignore().lrange("l", 0, -1).query(r)?;
    assert_eq!((n, list), (1, vec!["a".to_string()]));
    // An error of one command does not undo the others.
    assert!(pipe().atomic().incr("l", 1).set("k", "kept").query::<()>(r).is_err());
    assert_eq!(r.get("k")?.as_deref(), Some("kept"));
    // A command refused while queued: nothing runs.
    let error = pipe().atomic().set("k", "never").cmd("NOSUCH").query::<()>(r).unwrap_err();
    assert!(format!("{error:?}").contains("unknown command") || error.code() == Some("EXECABORT"), "{error:?}");
    assert_eq!(r.get("k")?.as_deref(), Some("kept"));
    // Another client writes between WATCH and EXEC, so the function runs again.
    let mut rounds = 0;
    let total: (i64,) = redis::transaction(r.sync(), &["n"], |link, pipe| {
        rounds += 1;
        let n: i64 = cmd("GET").arg("n").query(link)?;
        if rounds == 1 {
            other.set("n", 10)?;
        }
        pipe.incr("n", n).query(link)
    })?;
    assert_eq!((rounds, total), (2, (20,)));
    cmd("WATCH").arg("n").exec(r)?;
    other.set("n", 1)?;
    cmd("UNWATCH").exec(r)?;
    assert_eq!(pipe().atomic().get("n").query::<(i64,)>(r)?, (1,));
    cmd("MULTI").exec(r)?;
    cmd("SET").arg("n").arg(2).exec(r)?;
    cmd("DISCARD").exec(r)?;
    refused(cmd("EXEC").exec(r), "EXEC without MULTI");
    assert_eq!(r.get_int("n")?, Some(1));
    Ok(())
}

pub fn scripts(s: &mut Session) -> RedisResult<()> {
    let mut busy = s.another()?;
    let r = &mut s.r;
    cmd("SCRIPT").arg("FLUSH").exec(r)?;
    let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]) return {KEYS[1], redis.call('GET', KEYS[1])}");
    assert_eq!(script.key("k").arg("v").invoke::<(String, String)>(r)?, ("k".into(), "v".into()));
    assert_eq!(script.key("k").arg("w").invoke::<Vec<String>>(r)?, ["k", "w"]);
    assert_eq!(script.load(r)?, script.get_hash());
    let known: Vec<bool> = cmd("SCRIPT").arg("EXISTS").arg(script.get_hash()).arg("0").query(r)?;
    assert_eq!(known, [true, false]);
    cmd("SCRIPT").arg("FLUSH").exec(r)?;
    let error = cmd("EVALSHA").arg(script.get_hash()).arg(0).exec(r).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::NoScript));
    assert_eq!(cmd("EVAL").arg("return {1, 2.9, 'x'}").arg(0).query::<(i64, i64, String)>(r)?, (1, 2, "x".into()));
    assert_eq!(cmd("EVAL_RO").arg("return redis.call('GET', KEYS[1])").arg(1).arg("k").query::<String>(r)?, "w");
    let write = cmd("EVAL_RO").arg("return redis.call('DEL', KEYS[1])").arg(1).arg("k").exec(r);
    refused(write, "Write commands are not allowed from read-only scripts");
    refused(cmd("EVAL").arg("return redis.error_reply('My error')").arg(0).exec(r), "My error");
    refused(cmd("EVAL").arg("return {").arg(0).exec(r), "Error compiling script");
    let json: String = cmd("EVAL").arg("return cjson.encode({a = 1})").arg(0).query(r)?;
    assert_eq!(json, "{\"a\":1}");
    refused(cmd("SCRIPT").arg("KILL").exec(r), "NOTBUSY");

    // Another connection stops the script.
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "20"]).exec(r)?;
    let endless = thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy).unwrap_err());
    // Connections of the script's own worker wait for it (docs/compatibility.md); new ones go to another worker.
    soon(|| {
        thread::sleep(Duration::from_millis(200));
        s.another().and_then(|mut killer| cmd("SCRIPT").arg("KILL").exec(&mut killer)).is_ok()
    });
    let r = &mut s.r;
    let error = endless.join().expect("an error");
    assert!(format!("{error:?}").contains("Script killed by user"), "{error:?}");
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "5000"]).exec(r)
}

const LIBRARY: &str = "#!lua name=lib
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
redis.register_function{function_name='fetch', callback=function(keys) return redis.call('GET', keys[1]) end,
    flags={'no-writes'}}
";

pub fn functions(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    cmd("FUNCTION").arg("FLUSH").exec(r)?;
    assert_eq!(cmd("FUNCTION").arg("LOAD").arg(LIBRARY).query::<String>(r)?, "lib");
    refused(cmd("FUNCTION").arg("LOAD").arg(LIBRARY).exec(r), "ERR Library 'lib' already exists");
    cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(LIBRARY).exec(r)?;
    cmd("FCALL").arg(&["put", "1", "k", "v"]).exec(r)?;
    assert_eq!(cmd("FCALL_RO").arg(&["fetch", "1", "k"]).query::<String>(r)?, "v");
    refused(
        cmd("FCALL_RO").arg(&["put", "1", "k", "v"]).exec(r),
        "Can not execute a script with write flag using *_ro",
    );
    refused(cmd("FCALL").arg(&["none", "0"]).exec(r), "ERR Function not found");
    let saved: Vec<u8> = cmd("FUNCTION").arg("DUMP").query(r)?;
    cmd("FUNCTION").arg("DELETE").arg("lib").exec(r)?;
    assert_eq!(cmd("FUNCTION").arg("LIST").query::<Vec<redis::Value>>(r)?, []);
    cmd("FUNCTION").arg("RESTORE").arg(&saved[..]).exec(r)?;
    refused(cmd("FUNCTION").arg("RESTORE").arg(&saved[..]).exec(r), "already exists");
    assert_eq!(cmd("FCALL").arg(&["fetch", "1", "k"]).query::<String>(r)?, "v");
    cmd("FUNCTION").arg("FLUSH").exec(r)
}
