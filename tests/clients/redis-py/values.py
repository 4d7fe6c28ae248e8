"""Strings, keys, hashes, lists, sets, bitmaps, HyperLogLogs."""

import datetime
import os
import time

from redis.exceptions import DataError, NoScriptError, ResponseError

from harness import FLINTKV, family, fails, same, within

BIG = "x" * 100_000


@family
def strings(t):
    r = t.r
    same(r.set("a", "1"), True)
    same(r.get("a"), "1")
    same(r.get("none"), None)
    same(r.set("a", "2", nx=True), None)
    same(r.set("b", "2", xx=True), None)
    same(r.set("a", "2", xx=True), True)
    same(r.set("a", "3", get=True), "2")
    same(r.set("none", "1", get=True, xx=True), None)
    same(r.set("a", "4", ex=100), True)
    within(r.ttl("a"), 99, 100)
    same(r.set("a", "5", keepttl=True), True)
    within(r.pttl("a"), 90_000, 100_000)
    same(r.set("a", "6"), True)
    same(r.ttl("a"), -1)
    r.set("a", "7", px=datetime.timedelta(seconds=50))
    within(r.ttl("a"), 49, 50)
    r.set("a", "8", exat=int(time.time()) + 30)
    within(r.ttl("a"), 28, 30)
    r.set("a", "9", pxat=int(time.time() * 1000) + 30_000)
    within(r.ttl("a"), 28, 30)
    same(r.setnx("a", "x"), False)
    same(r.setnx("new", "x"), True)
    same(r.setex("a", 20, "10"), True)
    same(r.psetex("a", 20_000, "11"), True)
    same(r.getset("a", "12"), "11")
    same(r.getdel("a"), "12")
    same(r.getdel("a"), None)
    r.set("a", "13")
    same(r.getex("a", ex=10), "13")
    within(r.ttl("a"), 9, 10)
    same(r.getex("a", px=9000), "13")
    same(r.getex("a", exat=int(time.time()) + 10), "13")
    same(r.getex("a", pxat=int(time.time() * 1000) + 10_000), "13")
    same(r.getex("a", persist=True), "13")
    same(r.ttl("a"), -1)
    same(r.mset({"m1": 1, "m2": 2}), True)
    same(r.msetnx({"m3": 3, "m2": 4}), False)
    same(r.msetnx({"m3": 3, "m4": 4}), True)
    same(r.mget("m1", "none", "m3"), ["1", None, "3"])
    same(r.mget(["m2", "m4"]), ["2", "4"])
    same(r.append("m1", "23"), 3)
    same(r.strlen("m1"), 3)
    same(r.getrange("m1", 1, -1), "23")
    same(r.substr("m1", 0, 1), "12")
    same(r.setrange("m1", 5, "z"), 6)
    same(r.get("m1"), "123\0\0z")
    same(r.strlen("none"), 0)
    r.set("big", BIG)
    same(r.get("big"), BIG)
    same(r.getrange("big", 99_990, 200_000), "x" * 10)
    same(r.set("\u00fc\0\r\n", "\u20ac"), True)
    same(r.get("\u00fc\0\r\n"), "\u20ac")
    fails(DataError, "", r.set, "a", None)
    same(r.lcs("m2", "m2"), "2")
    r.mset({"s1": "ohmytext", "s2": "mynewtext"})
    same(r.lcs("s1", "s2"), "mytext")
    same(r.lcs("s1", "s2", len=True), 6)
    same(
        r.lcs("s1", "s2", idx=True, minmatchlen=3, withmatchlen=True),
        ["matches", [[[4, 7], [5, 8], 4]], "len", 6],
    )


@family
def numbers(t):
    r = t.r
    same(r.incr("n"), 1)
    same(r.incr("n", 9), 10)
    same(r.incrby("n", 5), 15)
    same(r.decr("n"), 14)
    same(r.decr("n", 4), 10)
    same(r.decrby("n", 20), -10)
    same(r.incrbyfloat("n", 0.5), -9.5)
    fails(ResponseError, "value is not an integer or out of range", r.incr, "n")
    r.set("n", 2**63 - 1)
    fails(ResponseError, "increment or decrement would overflow", r.incr, "n")
    r.set("n", "text")
    fails(ResponseError, "value is not a valid float", r.incrbyfloat, "n", 1)
    r.delete("n")
    r.lpush("n", 1)
    fails(ResponseError, "WRONGTYPE Operation against a key holding the wrong kind of value", r.incr, "n")


@family
def keys(t):
    r = t.r
    r.mset({"k1": 1, "k2": 2, "other": 3})
    same(r.exists("k1", "k2", "none", "k1"), 3)
    same(r.touch("k1", "none"), 1)
    same(sorted(r.keys("k*")), ["k1", "k2"])
    same(r.dbsize(), 3)
    same(r.randomkey() in ("k1", "k2", "other"), True)
    same(r.type("k1"), "string")
    same(r.type("none"), "none")
    same(r.rename("k1", "k3"), True)
    same(r.renamenx("k3", "k2"), False)
    same(r.renamenx("k3", "k4"), True)
    fails(ResponseError, "no such key", r.rename, "none", "x")
    same(r.copy("k4", "k5"), True)
    same(r.copy("k4", "k5"), False)
    same(r.copy("k2", "k5", replace=True), True)
    same(r.get("k5"), "2")
    same(r.copy("k5", "k5", destination_db=1, replace=True), True)
    other = t.client(db=1)
    same(other.get("k5"), "2")
    other.flushdb()
    same(r.move("k5", 1), True)
    same(r.move("none", 1), False)
    same(other.get("k5"), "2")
    same(r.swapdb(0, 1), True)
    same(r.get("k5"), "2")
    same(r.swapdb(0, 1), True)
    same(other.flushdb(asynchronous=True), True)
    same(other.dbsize(), 0)
    same(r.delete("k2", "none"), 1)
    same(r.unlink("k4", "none"), 1)
    same(r.object("encoding", "other"), "int")
    r.set("text", "t" * 44)
    same(r.object("encoding", "text"), "embstr")
    r.set("text", "t" * 45)
    same(r.object("encoding", "text"), "raw")
    same(r.object("refcount", "text"), 1)
    within(r.object("idletime", "text"), 0, 1)
    within(r.memory_usage("text", samples=5), 45, 400)
    same(r.memory_usage("none"), None)
    r.rpush("few", 1, 2, 3)
    same(r.object("encoding", "few") in ("listpack", "quicklist"), True)


@family
def expiry(t):
    r = t.r
    now = int(time.time())
    r.set("k", "v")
    same(r.ttl("k"), -1)
    same(r.ttl("none"), -2)
    same(r.pttl("none"), -2)
    same(r.expire("k", 100), True)
    same(r.expire("none", 100), False)
    same(r.expire("k", 200, nx=True), False)
    same(r.expire("k", 50, gt=True), False)
    same(r.expire("k", 200, gt=True), True)
    same(r.expire("k", 150, lt=True), True)
    same(r.expire("k", datetime.timedelta(seconds=160), xx=True), True)
    same(r.pexpire("k", 170_000), True)
    within(r.pttl("k"), 160_000, 170_000)
    same(r.expireat("k", now + 100), True)
    same(r.expiretime("k"), now + 100)
    same(r.pexpireat("k", (now + 90) * 1000), True)
    same(r.pexpiretime("k"), (now + 90) * 1000)
    same(r.expireat("k", datetime.datetime.fromtimestamp(now + 80)), True)
    same(r.expiretime("k"), now + 80)
    same(r.expiretime("none"), -2)
    same(r.persist("k"), True)
    same(r.persist("k"), False)
    r.set("short", "v", px=20)
    time.sleep(0.04)
    same(r.get("short"), None)
    same(r.exists("short"), 0)
    same(r.expire("k", -1), True)
    same(r.exists("k"), 0)
    r.hset("h", "f", "v")
    r.pexpire("h", 10)
    time.sleep(0.03)
    same(r.hgetall("h"), {})
    same(r.type("h"), "none")
    fails(ResponseError, "invalid expire time in 'set' command", r.set, "k", "v", ex=0)


@family
def hashes(t):
    r = t.r
    same(r.hset("h", "a", "1"), 1)
    same(r.hset("h", mapping={"a": "2", "b": "3"}), 1)
    same(r.hset("h", items=["c", "4", "d", "5"]), 2)
    same(r.hmset("h", {"e": "6"}), True)
    same(r.hsetnx("h", "e", "7"), 0)
    same(r.hsetnx("h", "f", "7"), 1)
    same(r.hget("h", "a"), "2")
    same(r.hget("h", "none"), None)
    same(r.hmget("h", "a", "none", "f"), ["2", None, "7"])
    same(r.hmget("h", ["a", "b"]), ["2", "3"])
    same(r.hgetall("h"), {"a": "2", "b": "3", "c": "4", "d": "5", "e": "6", "f": "7"})
    same(r.hgetall("none"), {})
    same(r.hlen("h"), 6)
    same(sorted(r.hkeys("h")), list("abcdef"))
    same(sorted(r.hvals("h")), list("234567"))
    same(r.hexists("h", "a"), True)
    same(r.hexists("h", "z"), False)
    same(r.hstrlen("h", "a"), 1)
    same(r.hincrby("h", "a", 40), 42)
    same(r.hincrbyfloat("h", "a", 0.25), 42.25)
    fails(ResponseError, "hash value is not an integer", r.hincrby, "h", "a")
    same(r.hdel("h", "a", "none"), 1)
    same(r.hrandfield("h") in "bcdef", True)
    same(len(r.hrandfield("h", 3)), 3)
    same(len(r.hrandfield("h", -20)), 20)
    pairs = r.hrandfield("h", 5, withvalues=True)
    same(dict(zip(pairs[::2], pairs[1::2])), {"b": "3", "c": "4", "d": "5", "e": "6", "f": "7"})
    cursor, part = r.hscan("h", match="[bc]", count=100)
    same((cursor, part), (0, {"b": "3", "c": "4"}))
    same(r.object("encoding", "h"), "listpack")
    r.hset("h", mapping={f"field{count}": "v" * 20 for count in range(1000)})
    same(r.object("encoding", "h"), "hashtable")
    same(len(dict(r.hscan_iter("h", count=50))), 1005)
    same(len(dict(r.hscan_iter("h", match="field9*"))), 111)
    fails(ResponseError, "WRONGTYPE", r.get, "h")


if FLINTKV:

    @family
    def hash_field_expiry(t):
        r = t.r
        now = int(time.time())
        r.hset("h", mapping={"a": 1, "b": 2, "c": 3})
        same(r.hexpire("h", 100, "a", "none"), [1, -2])
        same(r.httl("h", "a", "b", "none"), [100, -1, -2])
        same(r.hpexpire("h", 90_000, "a", xx=True), [1])
        within(r.hpttl("h", "a")[0], 80_000, 90_000)
        same(r.hexpireat("h", now + 200, "b"), [1])
        same(r.hexpiretime("h", "b"), [now + 200])
        same(r.hpexpireat("h", (now + 300) * 1000, "b", gt=True), [1])
        same(r.hpexpiretime("h", "b"), [(now + 300) * 1000])
        same(r.hexpire("h", 500, "b", lt=True), [0])
        same(r.hexpire("h", 500, "c", nx=True), [1])
        same(r.hpersist("h", "b", "none"), [1, -2])
        same(r.hpexpire("h", 10, "a"), [1])
        time.sleep(0.03)
        same(r.hgetall("h"), {"b": "2", "c": "3"})
        same(r.hexpire("h", 0, "b", "c"), [2, 2])
        same(r.exists("h"), 0)
        same(r.hscan("h", no_values=True), (0, []))


@family
def lists(t):
    r = t.r
    same(r.rpush("l", "a", "b", "c"), 3)
    same(r.lpush("l", "z", "y"), 5)
    same(r.lrange("l", 0, -1), ["y", "z", "a", "b", "c"])
    same(r.lpushx("none", "a"), 0)
    same(r.rpushx("l", "d"), 6)
    same(r.llen("l"), 6)
    same(r.lindex("l", -1), "d")
    same(r.lindex("l", 99), None)
    same(r.lset("l", 0, "Y"), True)
    fails(ResponseError, "index out of range", r.lset, "l", 99, "v")
    fails(ResponseError, "no such key", r.lset, "none", 0, "v")
    same(r.linsert("l", "before", "a", "m"), 7)
    same(r.linsert("l", "AFTER", "none", "m"), -1)
    same(r.lpop("l"), "Y")
    same(r.rpop("l"), "d")
    same(r.lpop("l", 2), ["z", "m"])
    same(r.rpop("l", 1), ["c"])
    same(r.lpop("none"), None)
    same(r.lpop("none", 2), None)
    r.rpush("l", "a", "b", "a")
    same(r.lpos("l", "a"), 0)
    same(r.lpos("l", "a", rank=2), 2)
    same(r.lpos("l", "a", count=0), [0, 2, 4])
    same(r.lpos("l", "a", rank=-1, maxlen=1), 4)
    same(r.lrem("l", 2, "a"), 2)
    same(r.lrange("l", 0, -1), ["b", "b", "a"])
    same(r.ltrim("l", 1, -1), True)
    same(r.lmove("l", "l2", "LEFT", "RIGHT"), "b")
    same(r.rpoplpush("l", "l2"), "a")
    same(r.rpoplpush("none", "l2"), None)
    same(r.lrange("l2", 0, -1), ["a", "b"])
    same(r.lmpop(2, "none", "l2", direction="LEFT", count=5), ["l2", ["a", "b"]])
    same(r.lmpop(1, "none", direction="RIGHT"), None)
    r.rpush("long", *range(3000))
    same(r.object("encoding", "long"), "quicklist")
    same(r.lindex("long", 1500), "1500")
    same(r.lrange("long", 2990, 5000), [str(n) for n in range(2990, 3000)])
    same(r.linsert("long", "BEFORE", "1500", "here"), 3001)
    same(r.lpos("long", "here"), 1500)


@family
def blocking_lists(t):
    r = t.r
    r.rpush("l", "a")
    same(r.blpop("l", timeout=1), ("l", "a"))
    same(r.blpop(["none", "l"], timeout=0.02), None)
    with t.later(lambda: t.side.rpush("l", "b")):
        same(r.blpop(["none", "l"], timeout=5), ("l", "b"))
    with t.later(lambda: t.side.rpush("l", "c", "d")):
        same(r.brpop(["l"], timeout=5), ("l", "d"))
    with t.later(lambda: t.side.lpush("src", "e")):
        same(r.brpoplpush("src", "dst", timeout=5), "e")
    same(r.brpoplpush("src", "dst", timeout=0.02), None)
    with t.later(lambda: t.side.lpush("src", "f")):
        same(r.blmove("src", "dst", 5, "RIGHT", "RIGHT"), "f")
    same(r.blmove("src", "dst", 0.02), None)
    same(r.lrange("dst", 0, -1), ["e", "f"])
    with t.later(lambda: t.side.rpush("q", "1", "2", "3")):
        same(r.blmpop(5, 2, "none", "q", direction="LEFT", count=2), ["q", ["1", "2"]])
    same(r.blmpop(0.02, 1, "none", direction="RIGHT"), None)
    with t.later(lambda: t.side.set("l2", "x")):
        same(r.blpop("l2", timeout=2), None)
    fails(ResponseError, "timeout is negative", r.blpop, "l", timeout=-1)


@family
def sets(t):
    r = t.r
    same(r.sadd("s", "a", "b", "c", "a"), 3)
    same(r.sadd("s", "a"), 0)
    same(r.smembers("s"), {"a", "b", "c"})
    same(r.smembers("none"), set())
    same(r.scard("s"), 3)
    same(bool(r.sismember("s", "a")), True)
    same(bool(r.sismember("s", "z")), False)
    same([bool(x) for x in r.smismember("s", ["a", "z"])], [True, False])
    r.sadd("t", "b", "c", "d")
    same(r.sinter("s", "t"), {"b", "c"})
    same(r.sunion(["s", "t"]), {"a", "b", "c", "d"})
    same(r.sdiff("s", "t"), {"a"})
    same(r.sinterstore("i", "s", "t"), 2)
    same(r.sunionstore("u", "s", "t"), 4)
    same(r.sdiffstore("d", "s", "t"), 1)
    same(r.smembers("d"), {"a"})
    same(r.sintercard(2, ["s", "t"]), 2)
    same(r.sintercard(2, ["s", "t"], limit=1), 1)
    same(r.smove("s", "t", "a"), True)
    same(r.smove("s", "t", "none"), False)
    same(r.srem("t", "a", "none"), 1)
    same(r.srandmember("t") in "bcd", True)
    same(len(r.srandmember("t", -9)), 9)
    same(sorted(r.srandmember("t", 9)), ["b", "c", "d"])
    same(r.spop("d"), "a")
    same(r.spop("d"), None)
    same(sorted(r.spop("t", 3)), ["b", "c", "d"])
    r.sadd("ints", 1, 2, 3)
    same(r.object("encoding", "ints"), "intset")
    r.sadd("ints", *range(600))
    same(r.object("encoding", "ints"), "hashtable")
    same({int(x) for x in r.sscan_iter("ints", count=30)}, set(range(600)))
    cursor, part = r.sscan("u", 0, match="[ab]")
    same((int(cursor), sorted(part)), (0, ["a", "b"]))


@family
def bitmaps(t):
    r = t.r
    same(r.setbit("b", 7, 1), 0)
    same(r.setbit("b", 7, 1), 1)
    same(r.getbit("b", 7), 1)
    same(r.getbit("b", 100), 0)
    r.set("b", "\x00\x0f\x7f")
    same(r.bitcount("b"), 11)
    same(r.bitcount("b", 1, 1), 4)
    same(r.bitcount("b", 8, 15, "BIT"), 4)
    same(r.bitpos("b", 1), 12)
    same(r.bitpos("b", 0, 1), 8)
    same(r.bitpos("b", 1, 2, -1, "BYTE"), 17)
    same(r.bitpos("b", 1, 13, 14, "BIT"), 13)
    r.set("c", "\x01\x0f")
    same(r.bitop("and", "d", "b", "c"), 3)
    same(r.get("d"), "\x00\x0f\x00")
    same(r.bitop("or", "d", "b", "c"), 3)
    same(r.bitop("xor", "d", "b", "c"), 3)
    same(r.get("d"), "\x01\x00\x7f")
    same(r.bitop("not", "d", "c"), 2)
    fields = r.bitfield("f").set("u8", 0, 200).incrby("u8", 0, 100).get("u8", 0)
    same(fields.execute(), [0, 44, 44])
    same(r.bitfield("f", default_overflow="SAT").incrby("u8", "#0", 255).execute(), [255])
    same(r.bitfield("f").overflow("FAIL").incrby("u8", 0, 1).incrby("i5", 100, 1).execute(), [None, 1])
    same(r.bitfield_ro("f", "u8", 0, items=[("u4", 4)]), [255, 15])
    fails(ResponseError, "bit offset is not an integer or out of range", r.setbit, "b", -1, 1)


@family
def hyperloglogs(t):
    r = t.r
    same(r.pfadd("p", *range(1000)), 1)
    same(r.pfadd("p", 1, 2, 3), 0)
    within(r.pfcount("p"), 970, 1030)
    r.pfadd("q", *range(1000, 2000))
    within(r.pfcount("p", "q"), 1940, 2060)
    same(r.pfmerge("m", "p", "q"), True)
    within(r.pfcount("m"), 1940, 2060)
    r.set("p", "text")
    fails(ResponseError, "WRONGTYPE Key is not a valid HyperLogLog string value", r.pfcount, "p")


@family
def dump_restore(t):
    raw = t.client(decode_responses=False)
    r = t.r
    r.set("s", "value")
    r.rpush("l", *range(300))
    r.sadd("i", 1, 2, 3)
    r.sadd("m", "a")
    r.zadd("z", {"a": 1.5, "b": float("inf")})
    r.hset("h", mapping={"f": "v"})
    r.xadd("x", {"f": "v"}, id="1-1")
    r.xgroup_create("x", "g", "0")
    for key in ("s", "l", "i", "m", "z", "h", "x"):
        payload = raw.dump(key)
        same(raw.restore("copy", 0, payload), b"OK")
        same(r.type("copy"), r.type(key))
        same(raw.dump("copy"), payload)
        fails(ResponseError, "Target key name already exists", raw.restore, "copy", 0, payload)
        same(raw.restore("copy", 50_000, payload, replace=True, idletime=7), b"OK")
        if os.environ["REDIS_FORM"] != "cold":
            within(r.object("idletime", "copy"), 7, 8)
        within(r.ttl("copy"), 49, 50)
        raw.restore("copy", int(time.time() * 1000) + 30_000, payload, replace=True, absttl=True, frequency=9)
        within(r.ttl("copy"), 28, 30)
        r.delete("copy")
    same(raw.dump("none"), None)
    payload = raw.dump("s")
    fails(ResponseError, "DUMP payload version or checksum are wrong", raw.restore, "bad", 0, payload[:-1] + b"\0")
    fails(ResponseError, "DUMP payload version or checksum are wrong", raw.restore, "bad", 0, b"")


@family
def scans(t):
    r = t.r
    r.mset({f"key{n}": n for n in range(500)})
    r.lpush("list", 1)
    r.sadd("set", 1)
    same(len(set(r.scan_iter(count=20))), 502)
    same(len(set(r.scan_iter(match="key1*"))), 111)
    same(list(r.scan_iter(_type="list")), ["list"])
    same(list(r.scan_iter(match="s*", _type="SET", count=1000)), ["set"])
    cursor, part = r.scan(0, count=10)
    same(cursor != 0 and len(part) >= 10, True)
    cursor, part = r.scan(0, count=10_000)
    same((cursor, len(part)), (0, 502))


@family
def sorting(t):
    r = t.r
    r.rpush("l", 3, 1, 2, 10)
    same(r.sort("l"), ["1", "2", "3", "10"])
    same(r.sort("l", desc=True, start=0, num=2), ["10", "3"])
    same(r.sort("l", alpha=True), ["1", "10", "2", "3"])
    r.mset({"w1": 9, "w2": 5, "w3": 7, "w10": 1, "v1": "one", "v2": "two", "v3": "three"})
    same(r.sort("l", by="w*"), ["10", "2", "3", "1"])
    same(r.sort("l", by="nosort"), ["3", "1", "2", "10"])
    same(r.sort("l", get="v*"), ["one", "two", "three", None])
    same(r.sort("l", get=("#", "v*"), groups=True)[0], ("1", "one"))
    r.hset("o1", "f", 2)
    r.hset("o2", "f", 1)
    same(r.sort("l", by="o*->f", start=2, num=2), ["2", "1"])
    same(r.sort("l", store="sorted"), 4)
    same(r.lrange("sorted", 0, -1), ["1", "2", "3", "10"])
    same(r.sort_ro("l", desc=True, start=0, num=1), ["10"])
    same(r.sort_ro("l", by="w*", get=["#", "w*"])[:2], ["10", "1"])
    r.sadd("s", "a", "b")
    same(r.sort("s", alpha=True, desc=True), ["b", "a"])
    fails(ResponseError, "One or more scores can't be converted into double", r.sort, "s")


@family
def migrating(t):
    r = t.r
    same(r.migrate("127.0.0.1", t.side.connection_pool.connection_kwargs["port"], "none", 1, 100), "NOKEY")


@family
def missing_scripts(t):
    fails(NoScriptError, "No matching script", t.r.evalsha, "0" * 40, 0)
