"""Pipelines, transactions, scripts, functions, pub/sub, locks: features of several commands or connections."""

import asyncio
import time

from redis.exceptions import (
    LockError,
    LockNotOwnedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    WatchError,
)

from harness import PATIENCE_S, family, family_for, eventually, fails, same, within


@family
def pipelines(t):
    r = t.r
    with r.pipeline(transaction=False) as pipe:
        pipe.set("a", 1)
        pipe.incr("a")
        pipe.lpush("l", 1, 2)
        pipe.hset("h", "f", "v")
        pipe.hgetall("h")
        pipe.zadd("z", {"m": 1})
        pipe.zrange("z", 0, -1, withscores=True)
        same(len(pipe), 7)
        same(pipe.execute(), [True, 2, 2, 1, {"f": "v"}, 1, [("m", 1.0)]])
    with r.pipeline(transaction=False) as pipe:
        pipe.set("a", "x")
        pipe.incr("a")
        pipe.get("a")
        replies = pipe.execute(raise_on_error=False)
        same(isinstance(replies[1], ResponseError), True)
        same((replies[0], replies[2]), (True, "x"))
        pipe.incr("a")
        fails(ResponseError, "Command # 1 (INCRBY a 1) of pipeline caused error", pipe.execute)
    with r.pipeline(transaction=False) as pipe:
        for n in range(5000):
            pipe.set(f"k{n}", n)
        for n in range(5000):
            pipe.get(f"k{n}")
        same(pipe.execute()[5000:], [str(n) for n in range(5000)])


@family
def transactions(t):
    r = t.r
    with r.pipeline() as pipe:
        pipe.set("a", 1)
        pipe.incr("a")
        pipe.mget("a", "none")
        same(pipe.execute(), [True, 2, ["2", None]])
        pipe.set("a", "x")
        pipe.incr("a")
        pipe.set("b", "y")
        fails(ResponseError, "not an integer", pipe.execute)
    same((r.get("a"), r.get("b")), ("x", "y"))
    with r.pipeline() as pipe:
        pipe.execute_command("SET", "b")
        pipe.set("b", "z")
        fails(ResponseError, "wrong number of arguments", pipe.execute)
    same(r.get("b"), "y")
    r.set("n", 1)
    with r.pipeline() as pipe:
        pipe.watch("n", "none")
        same(pipe.get("n"), "1")
        t.side.set("n", 5)
        pipe.multi()
        pipe.set("n", 2)
        fails(WatchError, "Watched variable changed", pipe.execute)
        pipe.watch("n")
        pipe.unwatch()
        t.side.set("n", 6)
        pipe.multi()
        pipe.incr("n")
        same(pipe.execute(), [7])
        pipe.watch("n")
        t.side.set("other", 6)
        pipe.multi()
        pipe.incr("n")
        same(pipe.execute(), [8])
        pipe.watch("gone")
        t.side.set("gone", 1)
        t.side.delete("gone")
        pipe.multi()
        pipe.incr("n")
        fails(WatchError, "Watched variable changed", pipe.execute)
        pipe.watch("n")
        pipe.reset()
    same(r.get("n"), "8")


@family
def optimistic_increments(t):
    r = t.r
    r.set("n", 10)
    calls = []
    if t.loop is None:

        def work(pipe):
            value = int(pipe.get("n"))
            calls.append(value)
            if len(calls) == 1:
                t.side.set("n", 20)
            pipe.multi()
            pipe.set("n", value + 1)

    else:

        async def work(pipe):
            value = int(await pipe.get("n"))
            calls.append(value)
            if len(calls) == 1:
                t.side.set("n", 20)
            pipe.multi()
            pipe.set("n", value + 1)

    same(r.transaction(work, "n"), [True])
    same((calls, r.get("n")), ([10, 20], "21"))


@family
def scripts(t):
    r = t.r
    same(r.eval("return 1", 0), 1)
    same(r.eval("return {KEYS[1],ARGV[1],1,{'x',false}}", 1, "k", "v"), ["k", "v", 1, ["x", None]])
    same(r.eval("return redis.call('SET',KEYS[1],ARGV[1])", 1, "k", "v"), "OK")
    same(r.eval_ro("return redis.call('GET',KEYS[1])", 1, "k"), "v")
    fails(ResponseError, "Write commands are not allowed from read-only scripts", r.eval_ro,
          "return redis.call('SET',KEYS[1],'x')", 1, "k")
    fails(ResponseError, "my error", r.eval, "return redis.error_reply('my error')", 0)
    fails(ResponseError, "WRONGTYPE", r.eval, "return redis.call('LPUSH',KEYS[1],1)", 1, "k")
    same(r.eval("return redis.pcall('LPUSH',KEYS[1],1)['err']~=nil", 1, "k"), 1)
    fails(ResponseError, "Error compiling script", r.eval, "not lua", 0)
    same(r.eval("return cjson.encode({a=1})", 0), '{"a":1}')
    same(r.eval("return cmsgpack.unpack(cmsgpack.pack('x'))", 0), "x")
    same(r.eval("return struct.unpack('>I2', struct.pack('>I2', 513))", 0), 513)
    same(r.eval("return bit.band(12, 10)", 0), 8)
    same(r.eval("return redis.sha1hex('')", 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    sha = r.script_load("return redis.call('INCRBY',KEYS[1],ARGV[1])")
    same(r.evalsha(sha, 1, "n", 5), 5)
    fails(ResponseError, "", r.evalsha_ro, sha, 1, "n", 5)
    same(r.script_exists(sha, "0" * 40), [True, False])
    multiply = r.register_script("local v = redis.call('GET',KEYS[1]) return v * ARGV[1]")
    same(multiply(keys=["n"], args=[3]), 15)
    same(r.script_flush(), True)
    same(r.script_flush("ASYNC"), True)
    fails(NoScriptError, "No matching script", r.evalsha, sha, 1, "n", 5)
    same(multiply(keys=["n"], args=[4]), 20)
    with r.pipeline() as pipe:
        pipe.set("n", 7)
        multiply(keys=["n"], args=[6], client=pipe)
        same(pipe.execute(), [True, 42])
    fails(ResponseError, "NOTBUSY", r.script_kill)
    with t.later(lambda: eventually(lambda: killed(t.side)), 0.3):
        t.side.config_set("busy-reply-threshold", 50)
        fails(ResponseError, "Script killed by user", r.eval, "while true do end", 0)
    t.side.config_set("busy-reply-threshold", 5000)


def killed(side):
    try:
        return side.script_kill()
    except ResponseError:
        return False


LIBRARY = """#!lua name=mylib
local function put(keys, args) return redis.call('SET', keys[1], args[1]) end
redis.register_function('put', put)
redis.register_function{function_name='fetch', callback=function(keys) return redis.call('GET', keys[1]) end,
  flags={'no-writes'}, description='reads'}
"""


@family
def functions(t):
    r = t.r
    raw = t.client(decode_responses=False)
    r.function_flush()
    same(r.function_load(LIBRARY), "mylib")
    fails(ResponseError, "Library 'mylib' already exists", r.function_load, LIBRARY)
    same(r.function_load(LIBRARY, replace=True), "mylib")
    same(r.fcall("put", 1, "k", "v"), "OK")
    same(r.fcall("fetch", 1, "k"), "v")
    same(r.fcall_ro("fetch", 1, "k"), "v")
    fails(ResponseError, "Can not execute a script with write flag using *_ro command", r.fcall_ro, "put", 1, "k", "v")
    fails(ResponseError, "Function not found", r.fcall, "none", 0)
    same("mylib" in str(r.function_list()), True)
    same("register_function" in str(r.function_list("my*", withcode=True)), True)
    same(r.function_list("other"), [])
    same("LUA" in str(r.function_stats()), True)
    payload = raw.function_dump()
    same(r.function_delete("mylib"), True)
    fails(ResponseError, "Library not found", r.function_delete, "mylib")
    same(raw.function_restore(payload), True)
    fails(ResponseError, "Library mylib already exists", raw.function_restore, payload)
    same(raw.function_restore(payload, "REPLACE"), True)
    same(raw.function_restore(payload, "FLUSH"), True)
    same(r.fcall("fetch", 1, "k"), "v")
    fails(ResponseError, "NOTBUSY", r.function_kill)
    same(r.function_flush("ASYNC"), True)
    same(r.function_list(), [])


def next_message(pubsub):
    """The next message, subscriptions included."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        message = pubsub.get_message(timeout=1)
        if message:
            return message["type"], message.get("pattern"), message["channel"], message["data"]
    return None


@family
def pubsub(t):
    r = t.r
    with r.pubsub() as p:
        p.subscribe("a", "b")
        same(next_message(p), ("subscribe", None, "a", 1))
        same(next_message(p), ("subscribe", None, "b", 2))
        p.psubscribe("p*")
        same(next_message(p), ("psubscribe", None, "p*", 3))
        same(t.side.publish("a", "hello"), 1)
        same(next_message(p), ("message", None, "a", "hello"))
        same(r.publish("p1", "there"), 1)
        same(next_message(p), ("pmessage", "p*", "p1", "there"))
        same(r.publish("none", "x"), 0)
        same(sorted(r.pubsub_channels()), ["a", "b"])
        same(r.pubsub_channels("a*"), ["a"])
        same(r.pubsub_numsub("a", "none"), [("a", 1), ("none", 0)])
        same(r.pubsub_numpat(), 1)
        if t.variant["resp"] == 2:
            # With RESP3, the library takes the reply for a message, although it is not a push.
            p.ping("health")
            same(next_message(p)[3], "health")
        p.unsubscribe("a")
        same(next_message(p), ("unsubscribe", None, "a", 2))
        p.unsubscribe()
        p.punsubscribe("p*")
        same(next_message(p), ("unsubscribe", None, "b", 1))
        same(next_message(p), ("punsubscribe", None, "p*", 0))
        same(p.get_message(timeout=0.02), None)
    eventually(lambda: t.side.pubsub_numpat() == 0)


@family
def sharded_pubsub(t):
    r = t.r
    with r.pubsub() as p:
        p.ssubscribe("shard", "other")
        same(next_message(p), ("ssubscribe", None, "shard", 1))
        same(next_message(p), ("ssubscribe", None, "other", 2))
        same(r.spublish("shard", "x"), 1)
        same(r.publish("shard", "not for it"), 0)
        same(next_message(p), ("smessage", None, "shard", "x"))
        same(sorted(r.pubsub_shardchannels()), ["other", "shard"])
        same(r.pubsub_shardchannels("s*"), ["shard"])
        same(r.pubsub_shardnumsub("shard", "none"), [("shard", 1), ("none", 0)])
        p.sunsubscribe("shard")
        same(next_message(p), ("sunsubscribe", None, "shard", 1))
        p.sunsubscribe()
        same(next_message(p), ("sunsubscribe", None, "other", 0))


@family_for(style="sync")
def pubsub_threads(t):
    got = []
    p = t.r.pubsub(ignore_subscribe_messages=True)
    p.subscribe(**{"news": lambda message: got.append(message["data"])})
    p.psubscribe(**{"n*": lambda message: got.append("p:" + message["data"])})
    thread = p.run_in_thread(sleep_time=0.01, daemon=True)
    eventually(lambda: t.side.publish("news", "1") == 2)
    eventually(lambda: "1" in got and "p:1" in got)
    thread.stop()
    thread.join(5)
    same(thread.is_alive(), False)
    p.close()


@family_for(style="asyncio")
def pubsub_listen(t):
    async def story(r):
        got = []
        async with r.pubsub() as p:
            await p.subscribe("news")

            async def read():
                async for message in p.listen():
                    if message["type"] == "message":
                        got.append(message["data"])
                        if len(got) == 100:
                            return

            reader = asyncio.create_task(read())
            await asyncio.sleep(0.02)
            for n in range(100):
                await r.publish("news", n)
            await asyncio.wait_for(reader, 5)
        same(got, [str(n) for n in range(100)])

    t.loop.run_until_complete(story(t.r._parts[0]))


@family
def keyspace_events(t):
    r = t.r
    same(r.config_set("notify-keyspace-events", "KEA"), True)
    same(set(r.config_get("notify-keyspace-events")["notify-keyspace-events"]) >= set("AKE"), True)
    with r.pubsub(ignore_subscribe_messages=True) as p:
        p.psubscribe("__key*@0__:*")
        eventually(lambda: t.side.pubsub_numpat() == 1)
        t.side.set("k", "v")
        t.side.expire("k", 100)
        t.side.delete("k")
        t.side.lpush("l", 1)
        t.side.set("short", "v", px=10)
        seen = set()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and ("__keyevent@0__:expired", "short") not in seen:
            message = p.get_message(timeout=0.1)
            if message:
                seen.add((message["channel"], message["data"]))
        for channel, data in [
            ("__keyspace@0__:k", "set"), ("__keyevent@0__:set", "k"), ("__keyspace@0__:k", "expire"),
            ("__keyspace@0__:k", "del"), ("__keyevent@0__:lpush", "l"), ("__keyevent@0__:expired", "short"),
        ]:
            if (channel, data) not in seen:
                raise AssertionError(f"no event {data} on {channel}: {sorted(seen)}")
    r.config_set("notify-keyspace-events", "")


@family
def keyspace_notifications(t):
    """The library's own wrapper of keyspace events."""
    r = t.r
    r.config_set("notify-keyspace-events", "KEA")
    notes = r.keyspace_notifications()
    got = []
    notes.subscribe_keyspace("user:*", handler=got.append)
    eventually(lambda: t.side.set("user:1", "x") and (notes.get_message(timeout=0.1) or True) and got)
    same((got[0].key, got[0].event_type), ("user:1", "set"))
    notes.close() if t.loop is None else notes.aclose()
    r.config_set("notify-keyspace-events", "")


@family
def locks(t):
    r = t.r
    lock = r.lock("lock", timeout=10, sleep=0.01)
    same(lock.acquire(), True)
    same(lock.owned(), True)
    same(lock.locked(), True)
    other = r.lock("lock", timeout=10, blocking_timeout=0.05, sleep=0.01)
    same(other.acquire(), False)
    same(lock.extend(5), True)
    within(r.pttl("lock"), 14_000, 15_000)
    same(lock.reacquire(), True)
    within(r.pttl("lock"), 9_000, 10_000)
    lock.release()
    same(r.exists("lock"), 0)
    fails(LockError, "Cannot release", lock.release)
    same(other.acquire(), True)
    r.set("lock", "stolen")
    fails(LockNotOwnedError, "Cannot release a lock that's no longer owned", other.release)
    r.delete("lock")
    with r.lock("lock", timeout=5):
        same(r.exists("lock"), 1)
    same(r.exists("lock"), 0)


@family
def resp3_shapes(t):
    if t.variant["resp"] != 3:
        return
    r = t.client(protocol=3)
    r.hset("h", "f", "v")
    r.zadd("z", {"a": 1.5})
    r.sadd("s", "m")
    r.xadd("x", {"f": "v"}, id="1-1")
    same(r.zrange("z", 0, -1, withscores=True), [["a", 1.5]])
    same(r.zpopmin("z"), ["a", 1.5])
    same(r.hrandfield("h", 1, withvalues=True), [["f", "v"]])
    same(r.xread({"x": 0}), {"x": [[("1-1", {"f": "v"})]]})
    same(r.smembers("s"), {"m"})
    same(r.eval("redis.setresp(3) return redis.call('HGETALL',KEYS[1])", 1, "h"), {"f": "v"})
    same(r.eval("redis.setresp(3) return {double=1.25}", 0), 1.25)
    same(r.eval("return true", 0), 1)
    same(r.eval("redis.setresp(3) return true", 0), True)
    same(r.eval("return {map={a=1}}", 0), {"a": 1})
    unified = t.client(protocol=3, legacy_responses=False)
    same(unified.hrandfield("h", 1, withvalues=True), [["f", "v"]])


@family
def read_only_replica_errors(t):
    """The first word of an error decides its class in the library."""
    fails(ReadOnlyError, "You can't write against a read only replica.", t.r.eval,
          "return redis.error_reply(\"READONLY You can't write against a read only replica.\")", 0)
