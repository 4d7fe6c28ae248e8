//! Owns the families of messages that are not replies: pub/sub, pushes, keyspace events, invalidations, MONITOR. Never
//! knows how a family is run.

use crate::harness::{ASYNC, Session, soon};
use futures_util::StreamExt as _;
use redis::caching::CacheConfig;
use redis::{
    AsyncConnectionConfig, AsyncTypedCommands as _, ControlFlow, Msg, PubSubCommands as _, PushInfo, PushKind,
    RedisResult, TypedCommands as _, cmd,
};
use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn said(message: &Msg) -> (String, String) {
    (message.get_channel_name().into(), message.get_payload().expect("text"))
}

pub fn pubsub(s: &mut Session) -> RedisResult<()> {
    assert_eq!(redis::TypedCommands::publish(&mut s.r, "news", "nobody")?, 0);
    let mut link = s.client().get_connection()?;
    let mut ear = link.as_pubsub();
    ear.set_read_timeout(Some(Duration::from_secs(60)))?;
    ear.subscribe(&["news", "sport"])?;
    ear.psubscribe("n?ws")?;
    // The library takes the first of several confirmations for all of them.
    soon(|| cmd("PUBSUB").arg("NUMPAT").query::<i64>(&mut s.r).unwrap() == 1);
    assert_eq!(redis::TypedCommands::publish(&mut s.r, "news", "hello")?, 2);
    assert_eq!(said(&ear.get_message()?), ("news".into(), "hello".into()));
    let second = ear.get_message()?;
    assert!(second.from_pattern());
    assert_eq!(second.get_pattern::<String>()?, "n?ws");
    let sub = cmd("PUBSUB").arg("NUMSUB").arg(&["news", "none"]).query::<HashMap<String, i64>>(&mut s.r)?;
    assert_eq!(sub, HashMap::from([("news".into(), 1), ("none".into(), 0)]));
    assert_eq!(cmd("PUBSUB").arg("CHANNELS").arg("s*").query::<Vec<String>>(&mut s.r)?, ["sport"]);
    ear.unsubscribe("news")?;
    ear.punsubscribe("n?ws")?;
    soon(|| redis::TypedCommands::publish(&mut s.r, "news", "gone").unwrap() == 0);
    for i in 0..1000 {
        redis::TypedCommands::publish(&mut s.r, "sport", i)?;
    }
    for i in 0..1000 {
        assert_eq!(ear.get_message()?.get_payload::<i64>()?, i);
    }
    drop(ear);
    // After the last unsubscribe, the connection accepts commands again.
    assert_eq!(link.get("none")?, None);
    let listener = thread::spawn(move || {
        link.subscribe(&["jobs"], |message| match &message.get_payload::<String>().expect("text")[..] {
            "stop" => ControlFlow::Break(message.get_channel_name().to_string()),
            _ => ControlFlow::Continue,
        })
    });
    soon(|| redis::TypedCommands::publish(&mut s.r, "jobs", "go").unwrap() == 1);
    redis::TypedCommands::publish(&mut s.r, "jobs", "stop")?;
    assert_eq!(listener.join().expect("the listener")?, "jobs");

    ASYNC.block_on(async {
        let (mut sink, mut stream) = s.client().get_async_pubsub().await?.split();
        sink.subscribe("a").await?;
        sink.psubscribe("b*").await?;
        sink.ping_message::<redis::Value>("are you there").await?;
        let mut speaker = s.client().get_multiplexed_async_connection().await?;
        speaker.publish("a", "1").await?;
        speaker.publish("b2", "2").await?;
        assert_eq!(said(&stream.next().await.expect("a message")), ("a".into(), "1".into()));
        assert_eq!(said(&stream.next().await.expect("a message")), ("b2".into(), "2".into()));
        sink.unsubscribe("a").await?;
        sink.punsubscribe("b*").await
    })
}

/// With RESP3, one connection takes commands and pushes. The connection manager reconnects with its subscriptions.
pub fn pushes(s: &mut Session) -> RedisResult<()> {
    let (sender, pushes) = mpsc::channel::<PushInfo>();
    let mut link = s.client().get_connection()?;
    link.set_push_sender(sender);
    link.subscribe_resp3("news")?;
    link.set("k", "v")?;
    redis::TypedCommands::publish(&mut s.r, "news", "x")?;
    link.get("k")?;
    let kinds: Vec<PushKind> = pushes.try_iter().map(|push| push.kind).collect();
    assert_eq!(kinds, [PushKind::Subscribe, PushKind::Message]);
    ASYNC.block_on(async {
        let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel::<PushInfo>();
        let config = redis::aio::ConnectionManagerConfig::new()
            .set_push_sender(sender)
            .set_automatic_resubscription()
            .set_min_delay(Duration::from_millis(10));
        let mut manager = s.client().get_connection_manager_with_config(config).await?;
        manager.subscribe("jobs").await?;
        let id = manager.client_id().await?;
        cmd("CLIENT").arg("KILL").arg("ID").arg(id).exec(&mut s.r.sync())?;
        let mut seen = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), async {
            while seen.iter().filter(|kind| **kind == PushKind::Subscribe).count() < 2 {
                seen.push(pushes.recv().await.expect("a push").kind);
            }
        })
        .await
        .expect("a subscription again");
        assert!(seen.contains(&PushKind::Disconnection));
        redis::TypedCommands::publish(&mut s.r, "jobs", "again")?;
        let message = Msg::from_push_info(pushes.recv().await.expect("a push")).expect("a message");
        assert_eq!(said(&message), ("jobs".into(), "again".into()));
        Ok(())
    })
}

pub fn sharded(s: &mut Session) -> RedisResult<()> {
    assert_eq!(redis::TypedCommands::spublish(&mut s.r, "shard", "nobody")?, 0);
    if !s.is_resp3() {
        return Ok(());
    }
    let (sender, pushes) = mpsc::channel::<PushInfo>();
    let mut ear = s.client().get_connection()?;
    ear.set_push_sender(sender);
    cmd("SSUBSCRIBE").arg("shard").set_no_response(true).exec(&mut ear)?;
    soon(|| cmd("PUBSUB").arg("SHARDNUMSUB").arg("shard").query::<(String, i64)>(&mut s.r).unwrap().1 == 1);
    assert_eq!(cmd("PUBSUB").arg("SHARDCHANNELS").query::<Vec<String>>(&mut s.r)?, ["shard"]);
    assert_eq!(redis::TypedCommands::spublish(&mut s.r, "shard", "hi")?, 1);
    let mut kinds = Vec::new();
    soon(|| {
        // Pushes are read with replies.
        redis::TypedCommands::ping(&mut ear).unwrap();
        kinds.extend(pushes.try_iter().map(|push| push.kind));
        kinds == [PushKind::SSubscribe, PushKind::SMessage]
    });
    Ok(())
}

pub fn keyspace_events(s: &mut Session) -> RedisResult<()> {
    cmd("CONFIG").arg(&["SET", "notify-keyspace-events", "KEA"]).exec(&mut s.r)?;
    let mut link = s.client().get_connection()?;
    let mut ear = link.as_pubsub();
    ear.set_read_timeout(Some(Duration::from_secs(60)))?;
    ear.psubscribe("__keyevent@0__:*")?;
    s.r.set("k", "v")?;
    s.r.pexpire("k", 20)?;
    soon(|| !s.r.exists("k").unwrap());
    s.r.rpush("l", "a")?;
    s.r.ltrim("l", 1, 0)?;
    s.r.geo_add("g", (1, 1, "m"))?;
    let mut events = Vec::new();
    for _ in 0..7 {
        let (channel, key) = said(&ear.get_message()?);
        events.push(format!("{}={key}", channel.rsplit(':').next().unwrap()));
    }
    assert_eq!(events, ["set=k", "expire=k", "expired=k", "rpush=l", "ltrim=l", "del=l", "zadd=g"]);
    drop(ear);
    cmd("CONFIG").arg(&["SET", "notify-keyspace-events", ""]).exec(&mut s.r)
}

/// The library's cache in front of the server. The server sends it invalidations.
pub fn caching(s: &mut Session) -> RedisResult<()> {
    let client = s.client();
    ASYNC.block_on(async {
        let config = AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
        let mut cached = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut other = client.get_multiplexed_async_connection().await?;
        other.set("k", "1").await?;
        other.hset("h", "f", "1").await?;
        for _ in 0..3 {
            assert_eq!(cached.get("k").await?.as_deref(), Some("1"));
            assert_eq!(cached.hget("h", "f").await?.as_deref(), Some("1"));
        }
        let counts = cached.get_cache_statistics().expect("a cache");
        assert_eq!((counts.hit, counts.miss), (4, 2));
        other.set("k", "2").await?;
        other.hset("h", "f", "2").await?;
        tokio::time::timeout(Duration::from_secs(60), async {
            while cached.get_cache_statistics().expect("a cache").invalidate < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("two invalidations");
        assert_eq!(cached.get("k").await?.as_deref(), Some("2"));
        assert_eq!(cached.hget("h", "f").await?.as_deref(), Some("2"));
        // An expired key is forgotten as well.
        other.pexpire("k", 20).await?;
        tokio::time::timeout(Duration::from_secs(60), async {
            while cached.get("k").await.expect("a reply").is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("an invalidation");
        Ok(())
    })
}

pub fn monitor(s: &mut Session) -> RedisResult<()> {
    let client = s.client();
    ASYNC.block_on(async {
        let mut monitor = client.get_async_monitor().await?;
        let mut lines = monitor.on_message::<String>();
        s.r.set("seen", "\"by\n")?;
        let line = loop {
            let line = tokio::time::timeout(Duration::from_secs(60), lines.next()).await.expect("a line").unwrap();
            if line.contains("\"SET\"") {
                break line;
            }
        };
        assert!(line.contains(" [0 ") && line.ends_with("\"SET\" \"seen\" \"\\\"by\\n\""), "{line}");
        Ok(())
    })
}
