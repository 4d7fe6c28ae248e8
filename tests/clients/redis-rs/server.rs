//! Owns the families of connections, of the server itself, of access rights, and of errors. Never knows how a family is
//! run.

use crate::harness::{ASYNC, Session, address, env, refused, soon};
use redis::acl::Rule;
use redis::{
    Client, ConnectionLike as _, ErrorKind, FlushAllOptions, IntoConnectionInfo as _, RedisResult, Role,
    ServerErrorKind, TlsCertificates, TypedCommands as _, cmd,
};
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

pub fn connection(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.ping()?, "PONG");
    assert_eq!(r.ping_message("text")?, "text");
    r.client_setname("me")?;
    assert_eq!(r.client_getname()?.as_deref(), Some("me"));
    let id = r.client_id()?;
    let info: String = cmd("CLIENT").arg("INFO").query(r)?;
    assert!(info.contains(&format!("id={id} ")) && info.contains("name=me"), "{info}");
    if s.since72 {
        assert!(info.contains("lib-name=redis-rs"), "{info}");
    }
    let protocol = if s.style.protocol() == redis::ProtocolVersion::RESP3 { 3 } else { 2 };
    assert!(!s.since72 || info.contains(&format!("resp={protocol}")), "{info}");
    refused(cmd("SELECT").arg(1_000_000).exec(r), "ERR DB index is out of range");
    refused(cmd("NOSUCH").arg("a").exec(r), "unknown command 'NOSUCH', with args beginning with: 'a'");
    refused(cmd("HELLO").arg(4).exec(r), "NOPROTO");

    // Another client's blocking command is ended, with no result or with an error.
    let mut w = s.another()?;
    let id = w.client_id()?;
    let waits = thread::spawn(move || (w.blpop("none", 20.0), w.blpop("none", 20.0)));
    soon(|| cmd("CLIENT").arg("UNBLOCK").arg(id).query::<i64>(&mut s.r).unwrap() == 1);
    soon(|| cmd("CLIENT").arg("UNBLOCK").arg(id).arg("ERROR").query::<i64>(&mut s.r).unwrap() == 1);
    let (nothing, error) = waits.join().expect("replies");
    assert_eq!(nothing?, None);
    refused(error, "UNBLOCKED");
    Ok(())
}

pub fn databases(s: &mut Session) -> RedisResult<()> {
    let client = s.client();
    let in_one = client.get_connection_info().clone();
    let settings = in_one.redis_settings().clone().set_db(1);
    let mut one = Client::open(in_one.set_redis_settings(settings))?.get_connection()?;
    assert_eq!(one.get_db(), 1);
    one.flushdb()?;
    let r = &mut s.r;
    r.set("moves", "x")?;
    assert!(cmd("MOVE").arg("moves").arg(1).query::<bool>(r)?);
    r.set("k", "zero")?;
    assert!(r.copy("k", "copied", redis::CopyOptions::default().db(1))?);
    assert_eq!(cmd("DBSIZE").query::<i64>(&mut one)?, 2);
    cmd("SWAPDB").arg(0).arg(1).exec(r)?;
    assert_eq!(one.get("k")?.as_deref(), Some("zero"));
    one.flushdb_options(&FlushAllOptions::default().blocking(true))?;
    assert_eq!(cmd("DBSIZE").query::<i64>(&mut one)?, 0);
    assert_eq!(cmd("DBSIZE").query::<i64>(r)?, 2);
    Ok(())
}

pub fn server(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    let info: redis::InfoDict = cmd("INFO").query(r)?;
    assert!(info.get::<String>("redis_version").expect("a version").starts_with("7."));
    assert_eq!(info.get::<String>("role").as_deref(), Some("master"));
    let (seconds, _): (i64, i64) = cmd("TIME").query(r)?;
    assert!(seconds > 1_700_000_000);
    assert!(matches!(cmd("ROLE").query::<Role>(r)?, Role::Primary { replicas, .. } if replicas.is_empty()));
    assert_eq!(cmd("WAIT").arg(0).arg(10).query::<i64>(r)?, 0);
    cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "0"]).exec(r)?;
    let config: HashMap<String, String> = cmd("CONFIG").arg("GET").arg("slowlog-log-slower-than").query(r)?;
    assert_eq!(config["slowlog-log-slower-than"], "0");
    r.set("slow", "command")?;
    cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "10000"]).exec(r)?;
    let slow: Vec<(i64, i64, i64, Vec<String>, String, String)> = cmd("SLOWLOG").arg("GET").query(r)?;
    assert!(slow.iter().any(|entry| entry.3 == ["SET", "slow", "command"]));
    cmd("SLOWLOG").arg("RESET").exec(r)?;
    refused(
        cmd("CONFIG").arg(&["SET", "nosuch", "1"]).exec(r),
        "ERR Unknown option or number of arguments for CONFIG SET",
    );
    assert!(cmd("COMMAND").arg("COUNT").query::<usize>(r)? > 200);
    assert!(cmd("COMMAND").arg("LIST").query::<Vec<String>>(r)?.iter().any(|name| name == "xadd"));
    assert_eq!(cmd("COMMAND").arg("GETKEYS").arg(&["MSET", "a", "1", "b", "2"]).query::<Vec<String>>(r)?, ["a", "b"]);
    Ok(())
}

pub fn acl(s: &mut Session) -> RedisResult<()> {
    let since72 = s.since72;
    let r = &mut s.r;
    assert_eq!(r.acl_whoami()?, "default");
    assert!(r.acl_cat()?.contains("sortedset"));
    assert!(r.acl_cat_categoryname("hash")?.contains("hset"));
    assert_eq!(r.acl_genpass()?.len(), 64);
    assert_eq!(r.acl_genpass_bits(32)?.len(), 8);
    r.acl_deluser(&["ann"])?;
    let rules = [
        Rule::On,
        Rule::AddPass("secret".into()),
        Rule::Pattern("app:*".into()),
        Rule::Other("%R~read:*".into()),
        Rule::Channel("news*".into()),
        Rule::AllCommands,
        Rule::RemoveCategory("dangerous".into()),
        Rule::Selector(vec![Rule::Pattern("temp:*".into()), Rule::AddCommand("get".into())]),
    ];
    r.acl_setuser_rules("ann", &rules)?;
    r.acl_setuser("bob")?;
    let mut users = r.acl_users()?;
    users.sort();
    assert_eq!(users, ["ann", "bob", "default"]);
    assert_eq!(r.acl_list()?.len(), 3);
    let ann = r.acl_getuser("ann")?.expect("ann");
    assert!(ann.flags.contains(&Rule::On));
    assert_eq!(ann.passwords.len(), 1);
    assert!(!ann.selectors.is_empty());
    assert!(ann.keys.contains(&Rule::Pattern("app:*".into())), "{:?}", ann.keys);
    assert_eq!(r.acl_dryrun("ann", "GET", "app:1")?, "OK");
    assert!(r.acl_dryrun("ann", "SET", &["other", "v"])?.contains("permissions to access"));
    r.acl_log_reset()?;
    r.mset(&[("read:1", "r"), ("temp:1", "t"), ("other", "o")])?;

    let as_ann = address();
    let settings =
        as_ann.redis_settings().clone().set_username("ann").set_password("secret").set_protocol(s.style.protocol());
    let as_ann = Client::open(as_ann.set_redis_settings(settings))?;
    let mut a = as_ann.get_connection()?;
    assert_eq!(a.acl_whoami()?, "ann");
    a.set("app:1", "v")?;
    assert_eq!(a.get("read:1")?.as_deref(), Some("r"));
    assert_eq!(a.get("temp:1")?.as_deref(), Some("t"));
    for refusal in
        [a.set("read:1", "x").err(), a.get("other").err(), a.flushall().err(), a.publish("weather", "x").err()]
    {
        assert_eq!(refusal.expect("an error").kind(), ErrorKind::Server(ServerErrorKind::NoPerm));
    }
    assert_eq!(a.publish("news1", "x")?, 0);
    let log: Vec<redis::Value> = cmd("ACL").arg("LOG").arg(10).query(r)?;
    assert_eq!(log.len(), 4);
    assert_eq!(r.acl_deluser(&["ann", "bob", "none"])?, 2);
    soon(|| a.ping().is_err());
    let error = as_ann.get_connection().err().expect("no such user any more");
    // A refused AUTH has an error kind of its own; a refused HELLO is passed through.
    assert!(error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS"), "{error:?}");
    for file in [r.acl_load(), r.acl_save()] {
        refused(file, "ERR This Redis instance is not configured to use an ACL file");
    }
    if since72 {
        assert!(r.acl_help()?.len() > 10);
    }
    Ok(())
}

pub fn pools(s: &mut Session) -> RedisResult<()> {
    let pool = r2d2::Pool::builder().max_size(4).build(s.client()).expect("a pool");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.get().expect("a connection").incr("n", 1).expect("a reply");
                }
            });
        }
    });
    assert_eq!(s.r.get_int("n")?, Some(800));
    assert!(pool.state().connections <= 4);
    Ok(())
}

/// The connection manager reconnects by itself.
pub fn reconnect(s: &mut Session) -> RedisResult<()> {
    use redis::AsyncTypedCommands;
    let client = s.client();
    s.r.set("k", "v")?;
    let mut manager = ASYNC.block_on(client.get_connection_manager())?;
    for _ in 0..3 {
        let id = ASYNC.block_on(AsyncTypedCommands::client_id(&mut manager))?;
        cmd("CLIENT").arg("KILL").arg("ID").arg(id).exec(&mut s.r)?;
        soon(|| {
            ASYNC.block_on(AsyncTypedCommands::get(&mut manager, "k")).is_ok_and(|value| value.as_deref() == Some("v"))
        });
    }
    let mut link = client.get_connection()?;
    let id = link.client_id()?;
    cmd("CLIENT").arg("KILL").arg("ID").arg(id).exec(&mut s.r)?;
    let error = link.get("k").unwrap_err();
    assert!(error.is_connection_dropped(), "{error:?}");
    assert!(!link.is_open());
    let nobody = Client::open("redis://127.0.0.1:1")?.get_connection();
    assert!(nobody.err().expect("an error").is_connection_refusal());
    Ok(())
}

pub fn timeouts(s: &mut Session) -> RedisResult<()> {
    let mut link = s.client().get_connection_with_timeout(Duration::from_secs(1))?;
    link.set_read_timeout(Some(Duration::from_millis(100)))?;
    assert!(link.blpop("none", 1.0).unwrap_err().is_timeout());
    let client = s.client();
    ASYNC.block_on(async {
        use redis::AsyncTypedCommands as _;
        let hasty = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_millis(100)));
        let mut link = client.get_multiplexed_async_connection_with_config(&hasty).await?;
        assert!(link.blpop("none", 0.3).await.unwrap_err().is_timeout());
        // A late reply must not go to another command.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(link.ping().await?, "PONG");
        Ok(())
    })
}

pub fn errors(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    r.rpush("l", "a")?;
    r.set("s", "text")?;
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    refused(r.get("l"), wrong);
    refused(r.hgetall("l"), wrong);
    refused(r.lrange("s", 0, -1), wrong);
    refused(r.smembers("s"), wrong);
    refused(r.zrange("s", 0, -1), wrong);
    refused(r.xlen("s"), wrong);
    refused(r.incr("s", 1), "ERR value is not an integer or out of range");
    refused(r.setbit("b", 1 << 40, true), "ERR bit offset is not an integer or out of range");
    refused(r.setrange("b", 1 << 40, "x"), "ERR string exceeds maximum allowed size");
    refused(r.set_ex("s", "x", 0), "ERR invalid expire time in 'setex' command");
    refused(cmd("SET").arg(&["s", "x", "NX", "XX"]).exec(r), "ERR syntax error");
    refused(cmd("GET").exec(r), "ERR wrong number of arguments for 'get' command");
    assert_eq!(cmd("FOO").exec(r).unwrap_err().kind(), ErrorKind::Server(ServerErrorKind::ResponseError));
    // A reply of another type than expected is the client's error, and the connection stays usable.
    assert_eq!(cmd("GET").arg("s").query::<i64>(r).unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(r.ping()?, "PONG");
    Ok(())
}

pub fn tls(_: &mut Session) -> RedisResult<()> {
    let file = |name: &str| std::fs::read(format!("{}/{name}", env("REDIS_CERTS").expect("certificates"))).expect(name);
    let url = format!("rediss://localhost:{}", env("REDIS_TLS_PORT").expect("a port"));
    let certificates = TlsCertificates {
        client_tls: Some(redis::ClientTlsConfig { client_cert: file("client.crt"), client_key: file("client.key") }),
        root_cert: Some(file("ca.crt")),
    };
    let client = Client::build_with_tls(&url[..], certificates)?;
    let big = "x".repeat(5_000_000);
    let mut link = client.get_connection()?;
    link.set("big", &big)?;
    assert_eq!(link.get("big")?.as_deref(), Some(&big[..]));
    ASYNC.block_on(async {
        use redis::AsyncTypedCommands as _;
        let mut link = client.get_multiplexed_async_connection().await?;
        assert_eq!(link.get("big").await?.as_deref(), Some(&big[..]));
        link.del("big").await
    })?;
    assert!(Client::open(&url[..])?.get_connection().is_err(), "an authority nobody trusts");
    Ok(())
}

pub fn unix_socket(_: &mut Session) -> RedisResult<()> {
    let path = env("REDIS_SOCKET").expect("a path");
    let client = Client::open(format!("unix://{path}?protocol=resp3").into_connection_info()?)?;
    let mut link = client.get_connection()?;
    link.set("k", "over a socket")?;
    let info: String = cmd("CLIENT").arg("INFO").query(&mut link)?;
    assert!(info.contains(&format!("addr={path}")), "{info}");
    ASYNC.block_on(async {
        use redis::AsyncTypedCommands as _;
        let mut link = client.get_multiplexed_async_connection().await?;
        assert_eq!(link.get("k").await?.as_deref(), Some("over a socket"));
        Ok(())
    })
}
