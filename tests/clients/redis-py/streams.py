"""Streams and their consumer groups."""

import time

from redis.exceptions import ResponseError

from harness import family, fails, same, within


def entries(reply):
    """XREAD's reply is a list of pairs or, with RESP3 in some versions, a dict."""
    if isinstance(reply, dict):
        return {name: found for name, found in reply.items()}
    return {name: found for name, found in reply}


@family
def streams(t):
    r = t.r
    same(r.xadd("x", {"a": 1}, id="1-1"), "1-1")
    same(r.xadd("x", {"b": 2, "c": 3}, id="1-2"), "1-2")
    same(r.xadd("x", {"d": 4}, id="2-*"), "2-0")
    fails(ResponseError, "equal or smaller than the target stream top item", r.xadd, "x", {"a": 1}, id="1-1")
    fails(ResponseError, "must be greater than 0-0", r.xadd, "y", {"a": 1}, id="0-0")
    same(r.xadd("none", {"a": 1}, nomkstream=True), None)
    same(r.xlen("x"), 3)
    same(r.xrange("x"), [("1-1", {"a": "1"}), ("1-2", {"b": "2", "c": "3"}), ("2-0", {"d": "4"})])
    same(r.xrange("x", "(1-1", "+", count=1), [("1-2", {"b": "2", "c": "3"})])
    same(r.xrevrange("x", count=1), [("2-0", {"d": "4"})])
    same(r.xrange("none"), [])
    same(r.xdel("x", "1-2", "9-9"), 1)
    same(entries(r.xread({"x": "0"})), {"x": [("1-1", {"a": "1"}), ("2-0", {"d": "4"})]})
    same(entries(r.xread({"x": "1-1", "none": 0}, count=1)), {"x": [("2-0", {"d": "4"})]})
    same(r.xread({"x": "$"}, block=20) or [], [])
    with t.later(lambda: t.side.xadd("x", {"e": 5}, id="3-1")):
        same(entries(r.xread({"x": "$"}, block=5000)), {"x": [("3-1", {"e": "5"})]})
    same(r.xtrim("x", maxlen=2, approximate=False), 1)
    same(r.xtrim("x", minid="3-0", approximate=False), 1)
    same(r.xlen("x"), 1)
    for n in range(20):
        r.xadd("t", {"n": n}, maxlen=5, approximate=False)
    same(r.xlen("t"), 5)
    r.xadd("t", {"n": 1}, minid="9999999999999-0", approximate=False)
    within(r.xlen("t"), 0, 1)
    r.xadd("t", {"n": 1}, maxlen=100, limit=10)
    info = r.xinfo_stream("x")
    same((info["length"], info["last-generated-id"], info["entries-added"]), (1, "3-1", 4))
    same(info["first-entry"], ("3-1", {"e": "5"}))
    same(info["max-deleted-entry-id"], "1-2")
    full = r.xinfo_stream("x", full=True)
    same(full["length"], 1)
    same(r.type("x"), "stream")
    same(r.object("encoding", "x"), "stream")
    fails(ResponseError, "Invalid stream ID", r.xrange, "x", "nonsense")


@family
def stream_groups(t):
    r = t.r
    fails(ResponseError, "requires the key to exist", r.xgroup_create, "x", "g")
    same(r.xgroup_create("x", "g", mkstream=True), True)
    fails(ResponseError, "BUSYGROUP Consumer Group name already exists", r.xgroup_create, "x", "g")
    for n in range(1, 6):
        r.xadd("x", {"n": n}, id=f"{n}-0")
    same(r.xgroup_createconsumer("x", "g", "idle"), 1)
    same(
        entries(r.xreadgroup("g", "c1", {"x": ">"}, count=2)),
        {"x": [("1-0", {"n": "1"}), ("2-0", {"n": "2"})]},
    )
    same(entries(r.xreadgroup("g", "c2", {"x": ">"}, count=1)), {"x": [("3-0", {"n": "3"})]})
    same(entries(r.xreadgroup("g", "c3", {"x": ">"}, noack=True, count=1)), {"x": [("4-0", {"n": "4"})]})
    same(entries(r.xreadgroup("g", "c1", {"x": "0"})), {"x": [("1-0", {"n": "1"}), ("2-0", {"n": "2"})]})
    pending = r.xpending("x", "g")
    same((pending["pending"], pending["min"], pending["max"]), (3, "1-0", "3-0"))
    same([(c["name"], c["pending"]) for c in pending["consumers"]], [("c1", 2), ("c2", 1)])
    rows = r.xpending_range("x", "g", "-", "+", 10)
    same([(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows][2], ("3-0", "c2", 1))
    same(len(r.xpending_range("x", "g", "-", "+", 10, consumername="c1", idle=0)), 2)
    same(r.xack("x", "g", "1-0", "9-0"), 1)
    time.sleep(0.01)
    same(r.xclaim("x", "g", "c2", 0, ["2-0"]), [("2-0", {"n": "2"})])
    same(r.xclaim("x", "g", "c1", 0, ["2-0"], justid=True, idle=5000, retrycount=7), ["2-0"])
    same(r.xpending_range("x", "g", "2-0", "2-0", 1)[0]["times_delivered"], 7)
    claimed = r.xautoclaim("x", "g", "c3", 1000, "0-0", count=10)
    same((claimed[0], claimed[1], claimed[2]), ("0-0", [("2-0", {"n": "2"})], []))
    same(r.xautoclaim("x", "g", "c3", 0, justid=True), ["2-0", "3-0"])
    groups = r.xinfo_groups("x")
    same((groups[0]["name"], groups[0]["pending"], groups[0]["entries-read"], groups[0]["lag"]), ("g", 2, 4, 1))
    consumers = {c["name"]: c["pending"] for c in r.xinfo_consumers("x", "g")}
    same(consumers, {"c1": 0, "c2": 0, "c3": 2, "idle": 0})
    full = r.xinfo_stream("x", full=True)
    same(full["groups"][0]["name" if isinstance(full["groups"][0], dict) else 1], "g")
    same(r.xgroup_delconsumer("x", "g", "c3"), 2)
    same(r.xgroup_setid("x", "g", "0", entries_read=0), True)
    same(len(entries(r.xreadgroup("g", "c1", {"x": ">"}))["x"]), 5)
    same(r.xreadgroup("g", "c1", {"x": ">"}, block=20) or [], [])
    with t.later(lambda: t.side.xadd("x", {"n": 6}, id="6-0")):
        same(entries(r.xreadgroup("g", "c1", {"x": ">"}, block=5000)), {"x": [("6-0", {"n": "6"})]})
    fails(ResponseError, "NOGROUP", r.xreadgroup, "none", "c", {"x": ">"})
    same(r.xgroup_destroy("x", "g"), True)
    same(r.xgroup_destroy("x", "g"), False)
