"""Sorted sets and geo."""

from redis.exceptions import DataError, ResponseError

from harness import family, fails, same, within

INF = float("inf")


def score_text(t, score):
    """With RESP2 the library returns these scores as text, with RESP3 as the bytes of that text."""
    return str(score) if t.variant["resp"] == 2 else str(score).encode()


@family
def sorted_sets(t):
    r = t.r
    same(r.zadd("z", {"a": 1, "b": 2, "c": 3}), 3)
    same(r.zadd("z", {"a": 5}, nx=True), 0)
    same(r.zadd("z", {"d": 5}, xx=True), 0)
    same(r.zadd("z", {"a": 1.5, "e": 5}, ch=True), 2)
    same(r.zadd("z", {"a": 0.5}, gt=True, ch=True), 0)
    same(r.zadd("z", {"a": 0.5}, lt=True, ch=True), 1)
    same(r.zadd("z", {"a": 0.5}, incr=True), 1.0)
    same(r.zadd("z", {"a": 0.5}, incr=True, nx=True), None)
    fails(DataError, "allows either", r.zadd, "z", {"a": 1}, nx=True, xx=True)
    same(r.zcard("z"), 4)
    same(r.zscore("z", "a"), 1.0)
    same(r.zscore("z", "none"), None)
    same(r.zmscore("z", ["a", "none", "c"]), [1.0, None, 3.0])
    same(r.zincrby("z", 2.5, "a"), 3.5)
    same(r.zadd("z", {"a": 1}), 0)
    same(r.zcount("z", 2, "+inf"), 3)
    same(r.zcount("z", "(2", "(5"), 1)
    same(r.zrank("z", "c"), 2)
    same(r.zrevrank("z", "c"), 1)
    same(r.zrank("z", "none"), None)
    same(r.zrange("z", 0, -1), ["a", "b", "c", "e"])
    same(r.zrange("z", 0, 1, withscores=True), [("a", 1.0), ("b", 2.0)])
    same(r.zrange("z", 0, 1, desc=True), ["e", "c"])
    same(r.zrange("z", "(1", 3, byscore=True, offset=0, num=1), ["b"])
    same(r.zrange("z", INF, "-inf", byscore=True, desc=True, withscores=True)[0], ("e", 5.0))
    same(r.zrangestore("dst", "z", 1, 2), 2)
    same(r.zrangestore("dst", "z", 2, 5, byscore=True, offset=1, num=1), 1)
    same(r.zrange("dst", 0, -1), ["c"])
    same(r.zrevrange("z", 0, 0, withscores=True), [("e", 5.0)])
    same(r.zrangebyscore("z", "-inf", 2, start=1, num=5, withscores=True), [("b", 2.0)])
    same(r.zrevrangebyscore("z", 3, 1), ["c", "b", "a"])
    same(r.zrem("z", "e", "none"), 1)
    same(r.zrandmember("z") in "abc", True)
    same(sorted(r.zrandmember("z", 9)), ["a", "b", "c"])
    same(len(r.zrandmember("z", -9)), 9)
    same(len(r.zrandmember("z", 2, withscores=True)), 4)
    same(r.zscan("z", match="[ab]"), (0, [("a", 1.0), ("b", 2.0)]))
    same(r.zpopmin("z"), [("a", 1.0)])
    same(r.zpopmax("z", 5), [("c", 3.0), ("b", 2.0)])
    same(r.zpopmin("z"), [])
    r.zadd("n", {"lo": -INF, "hi": INF, "mid": 0.1})
    same(r.zrange("n", 0, -1, withscores=True), [("lo", -INF), ("mid", 0.1), ("hi", INF)])
    fails(ResponseError, "resulting score is not a number (NaN)", r.zincrby, "n", "-inf", "hi")
    fails(ResponseError, "min or max is not a float", r.zcount, "n", "x", 1)
    same(r.object("encoding", "n"), "listpack")
    r.zadd("big", {f"member{n:04}": n for n in range(1000)})
    same(r.object("encoding", "big"), "skiplist")
    same(r.zrank("big", "member0500"), 500)
    same(len(dict(r.zscan_iter("big", count=40))), 1000)
    same(r.zremrangebyrank("big", 0, 9), 10)
    same(r.zremrangebyscore("big", "(900", "+inf"), 99)
    same(r.zcard("big"), 891)


@family
def sorted_sets_by_lex(t):
    r = t.r
    r.zadd("z", dict.fromkeys("abcdef", 0))
    same(r.zlexcount("z", "-", "+"), 6)
    same(r.zlexcount("z", "[b", "(d"), 2)
    same(r.zrangebylex("z", "[b", "(d"), ["b", "c"])
    same(r.zrangebylex("z", "-", "+", start=1, num=2), ["b", "c"])
    same(r.zrevrangebylex("z", "+", "[e"), ["f", "e"])
    same(r.zrange("z", "[a", "[c", bylex=True, offset=1, num=1), ["b"])
    same(r.zrange("z", "+", "-", bylex=True, desc=True)[0], "f")
    same(r.zremrangebylex("z", "[a", "[c"), 3)
    fails(ResponseError, "min or max not valid string range item", r.zlexcount, "z", "b", "+")


@family
def sorted_set_algebra(t):
    r = t.r
    r.zadd("a", {"x": 1, "y": 2})
    r.zadd("b", {"y": 10, "z": 20})
    same(r.zunion(["a", "b"]), ["x", "y", "z"])
    same(r.zunion(["a", "b"], withscores=True, aggregate="MAX"), [("x", 1.0), ("y", 10.0), ("z", 20.0)])
    same(r.zunion({"a": 2, "b": 0.5}, withscores=True), [("x", 2.0), ("y", 9.0), ("z", 10.0)])
    same(r.zinter(["a", "b"], withscores=True), [("y", 12.0)])
    same(r.zinter(["a", "b"], aggregate="MIN", withscores=True), [("y", 2.0)])
    same(r.zdiff(["a", "b"]), ["x"])
    same(r.zdiff(["a", "b"], withscores=True), ["x", score_text(t, 1)])
    same(r.zunionstore("u", {"a": 1, "b": 2}), 3)
    same(r.zinterstore("i", ["a", "b"], aggregate="MAX"), 1)
    same(r.zdiffstore("d", ["a", "b"]), 1)
    same(r.zrange("u", 0, -1, withscores=True), [("x", 1.0), ("y", 22.0), ("z", 40.0)])
    same(r.zintercard(2, ["a", "b"]), 1)
    same(r.zintercard(2, ["a", "b"], limit=1), 1)
    same(r.zmpop(2, ["none", "a"], min=True, count=1), ["a", [["x", score_text(t, 1)]]])
    same(r.zmpop(1, ["none"], max=True), None)
    r.sadd("s", "x", "y")
    same(r.zunionstore("u", ["b", "s"]), 3)


@family
def blocking_sorted_sets(t):
    r = t.r
    r.zadd("z", {"a": 1, "b": 2})
    same(r.bzpopmin("z", timeout=1), ("z", "a", 1.0))
    same(r.bzpopmax(["none", "z"], timeout=1), ("z", "b", 2.0))
    same(r.bzpopmin("z", timeout=0.02), None)
    with t.later(lambda: t.side.zadd("z", {"c": 3})):
        same(r.bzpopmin(["z"], timeout=5), ("z", "c", 3.0))
    with t.later(lambda: t.side.zadd("z", {"c": 3, "d": 4})):
        same(r.bzmpop(5, 2, ["none", "z"], max=True, count=2), ["z", [["d", score_text(t, 4)], ["c", score_text(t, 3)]]])
    same(r.bzmpop(0.02, 1, ["z"], min=True), None)


@family
def geo(t):
    r = t.r
    places = (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")
    same(r.geoadd("g", places), 2)
    same(r.geoadd("g", (13.5, 38.0, "Palermo"), nx=True), 0)
    same(r.geoadd("g", (13.361389, 38.115556, "Palermo"), xx=True, ch=True), 0)
    same(r.geodist("g", "Palermo", "Catania"), 166274.1516)
    same(r.geodist("g", "Palermo", "Catania", "km"), 166.2742)
    same(r.geodist("g", "Palermo", "none"), None)
    same(r.geohash("g", "Palermo", "Catania"), ["sqc8b49rny0", "sqdtr74hyu0"])
    (lon, lat), none = r.geopos("g", "Palermo", "none")
    within(lon, 13.3613, 13.3615)
    within(lat, 38.1155, 38.1156)
    same(none, None)
    same(r.georadius("g", 15, 37, 200, "km", sort="ASC"), ["Catania", "Palermo"])
    found = r.georadius("g", 15, 37, 200, "km", withdist=True, withcoord=True, withhash=True, count=1, sort="DESC")
    same(found[0][:3], ["Palermo", 190.4424, 3479099956230698])
    same(r.georadius("g", 15, 37, 200, "km", store="stored"), 2)
    same(r.georadius("g", 15, 37, 200, "km", store_dist="dist"), 2)
    within(r.zscore("dist", "Catania"), 56.4, 56.5)
    same(r.georadiusbymember("g", "Palermo", 10, "km"), ["Palermo"])
    same(len(r.georadiusbymember("g", "Palermo", 500, "km", count=1, any=True)), 1)
    same(r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC"), ["Catania", "Palermo"])
    same(r.geosearch("g", member="Palermo", width=400, height=400, unit="km", sort="DESC", count=1), ["Catania"])
    same(
        r.geosearch("g", longitude=15, latitude=37, width=400, height=400, unit="km", sort="ASC", withdist=True),
        [["Catania", 56.4413], ["Palermo", 190.4424]],
    )
    same(r.geosearchstore("dst", "g", longitude=15, latitude=37, radius=100, unit="km"), 1)
    same(r.geosearchstore("dst", "g", member="Palermo", radius=500, unit="km", storedist=True), 2)
    fails(ResponseError, "invalid longitude,latitude pair", r.geoadd, "g", (200, 100, "x"))
    fails(ResponseError, "could not decode requested zset member", r.geosearch, "g", member="x", radius=1, unit="m")
