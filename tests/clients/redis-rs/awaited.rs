//! Owns the families that only the async API has: many commands in flight at once, streams of keys, async pipelines.
//! Never knows how a family is run.

use crate::harness::{ASYNC, Session};
use redis::{AsyncTypedCommands as _, RedisResult, Script, pipe};
use std::collections::HashSet;

pub fn commands(s: &mut Session) -> RedisResult<()> {
    let link = s.r.many();
    ASYNC.block_on(async {
        // A thousand tasks on one connection: each gets its own reply.
        let tasks: Vec<_> = (0..1000)
            .map(|i| {
                let mut r = link.clone();
                tokio::spawn(async move {
                    r.set(format!("key{i}"), i).await?;
                    r.get_int(format!("key{i}")).await
                })
            })
            .collect();
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.expect("a task")?, Some(i as isize));
        }
        let mut r = link.clone();
        assert_eq!(r.hset("h", "f", "v").await?, 1);
        assert_eq!(r.rpush("l", &[1, 2, 3]).await?, 3);
        assert_eq!(r.sadd("s", &["a", "b"]).await?, 2);
        assert_eq!(r.zadd_multiple("z", &[(1, "a"), (2, "b")]).await?, 2);
        assert_eq!(r.zrange_withscores("z", 1, 1).await?, [("b".to_string(), 2.0)]);
        assert_eq!(r.xadd("x", "1-1", &[("f", "v")]).await?.as_deref(), Some("1-1"));
        assert_eq!(r.xrange_all("x").await?.ids.len(), 1);
        let script = Script::new("return tonumber(ARGV[1]) + 1");
        assert_eq!(script.arg(1).invoke_async::<i64>(&mut r).await?, 2);
        assert!(r.incr("h", 1).await.is_err());
        assert_eq!(r.ping().await?, "PONG");
        Ok(())
    })
}

pub fn pipelines(s: &mut Session) -> RedisResult<()> {
    let mut r = s.r.many();
    ASYNC.block_on(async {
        let (value, n): (String, i64) = pipe().set("k", "v").ignore().get("k").incr("n", 5).query_async(&mut r).await?;
        assert_eq!((&value[..], n), ("v", 5));
        let (n, list): (i64, Vec<String>) =
            pipe().atomic().incr("n", 1).rpush("l", "a").ignore().lrange("l", 0, -1).query_async(&mut r).await?;
        assert_eq!((n, list.len()), (6, 1));
        let mut many = pipe();
        for i in 0..5000 {
            many.set(format!("key{i}"), i).ignore().get(format!("key{i}"));
        }
        assert_eq!(many.query_async::<Vec<i64>>(&mut r).await?, (0..5000).collect::<Vec<_>>());
        assert!(pipe().atomic().incr("l", 1).exec_async(&mut r).await.is_err());
        Ok(())
    })
}

pub fn iterators(s: &mut Session) -> RedisResult<()> {
    let mut r = s.r.many();
    ASYNC.block_on(async {
        for i in 0..600 {
            r.set(format!("key:{i}"), i).await?;
            r.hset("h", format!("f{i}"), i).await?;
        }
        let mut found = HashSet::new();
        let mut keys = r.scan_match::<_, String>("key:*").await?;
        while let Some(key) = keys.next_item().await {
            found.insert(key?);
        }
        drop(keys);
        assert_eq!(found.len(), 600);
        let mut sum = 0;
        let mut fields = r.hscan::<_, (String, i64)>("h").await?;
        while let Some(pair) = fields.next_item().await {
            sum += pair?.1;
        }
        assert_eq!(sum, 599 * 600 / 2);
        Ok(())
    })
}
