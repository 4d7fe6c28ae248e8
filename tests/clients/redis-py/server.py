"""Administration: CLIENT, CONFIG, INFO, COMMAND, ACL, MEMORY, LATENCY, SLOWLOG, and commands that a standalone server refuses."""

import time

import redis
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    ResponseError,
)

from harness import FLINTKV, PORT, family, eventually, fails, once, same, within


KEY_DENIED = "No permissions to access a key" if FLINTKV else "permissions to access one of the keys"


@family
def basics(t):
    r = t.r
    same(r.ping(), True)
    same(r.echo("hi"), "hi")
    within(r.time()[0], time.time() - 5, time.time() + 5)
    same("ver." in r.lolwut(), True)
    same("ver." in r.lolwut(5, 1, 1, 1), True)
    fails(ResponseError, "unknown command 'NONSENSE'", r.execute_command, "NONSENSE", "a")
    fails(ResponseError, "wrong number of arguments for 'get' command", r.execute_command, "GET")
    fails(ResponseError, "syntax error", r.execute_command, "SET", "a", "b", "c")
    same(r.quit(), True)


@family
def info(t):
    r = t.r
    everything = r.info()
    same(everything["redis_version"].split(".")[0], "7")
    same(everything["role"], "master")
    same(everything["redis_mode"], "standalone")
    same(r.info("server")["tcp_port"], PORT)
    same("used_memory" in r.info("memory", "clients"), True)
    r.set("k", "v", ex=100)
    same((r.info("keyspace")["db0"]["keys"], r.info("keyspace")["db0"]["expires"]), (1, 1))
    stats = r.info("commandstats")
    same(stats["cmdstat_set"]["calls"], 1)
    fails(ResponseError, "WRONGTYPE", r.lpush, "k", 1)
    same(r.info("errorstats")["errorstat_WRONGTYPE"]["count"], 1)
    same(r.config_resetstat(), True)
    same("errorstat_WRONGTYPE" in r.info("errorstats"), False)
    within(r.info("stats")["total_connections_received"], 0, 100)


@family
def configuration(t):
    r = t.r
    same(r.config_get("maxclients")["maxclients"].isdigit(), True)
    same(set(r.config_get("hash-max-listpack-*")), {"hash-max-listpack-entries", "hash-max-listpack-value"})
    same(set(r.config_get("timeout", "port")), {"timeout", "port"})
    old = r.config_get("slowlog-max-len")["slowlog-max-len"]
    same(r.config_set("slowlog-max-len", 64, "timeout", 0), True)
    same(r.config_get("slowlog-max-len"), {"slowlog-max-len": "64"})
    r.config_set("slowlog-max-len", old)
    fails(ResponseError, "Unknown option", r.config_set, "nonsense", 1)
    fails(ResponseError, "CONFIG SET failed", r.config_set, "maxclients", "x")
    r.config_set("hash-max-listpack-entries", 2)
    r.hset("h", mapping={"a": 1, "b": 2, "c": 3})
    same(r.object("encoding", "h"), "hashtable")
    r.config_set("hash-max-listpack-entries", 128)
    fails(ResponseError, "without a config file", r.config_rewrite)


@family
def clients(t):
    r = t.client(client_name="me", single_connection_client=True)
    same(r.client_getname(), "me")
    same(r.client_setname("you"), True)
    mine = r.client_info()
    same((mine["name"], mine["id"], mine["cmd"]), ("you", r.client_id(), "client|info"))
    if FLINTKV:
        same((mine["lib-name"].startswith("redis-py"), mine["lib-ver"] != ""), (True, True))
        same(r.client_setinfo("LIB-NAME", "mine"), True)
        same(r.client_no_touch("ON"), "OK")
        same(r.client_no_touch("OFF"), "OK")
    same(any(c["name"] == "you" for c in r.client_list()), True)
    same(len(r.client_list(client_id=[r.client_id()])), 1)
    same([c["name"] for c in r.client_list(_type="normal") if c["name"] == "you"], ["you"])
    same(r.client_list(_type="pubsub"), [])
    same(r.client_no_evict("ON"), "OK")
    same(r.client_no_evict("OFF"), "OK")
    same(r.client_getredir(), -1)
    same("off" in str(r.client_trackinginfo()), True)
    other = t.client(single_connection_client=True, client_name="victim")
    victim = other.client_id()
    same(r.client_kill_filter(_id=victim), 1)
    eventually(lambda: not any(c["name"] == "victim" for c in t.side.client_list()))
    fails(ResponseError, "No such client", r.client_kill, "1.2.3.4:5")
    address = next(c["addr"] for c in r.client_list() if c["name"] == "you")
    same(r.client_kill_filter(addr=address, skipme=True), 0)
    same(r.client_kill_filter(_type="pubsub", laddr="1.2.3.4:5", user="default"), 0)
    if FLINTKV:
        same(r.client_kill_filter(maxage=100_000), 0)


@family
def client_unblock_and_pause(t):
    r = t.client(single_connection_client=True)
    me = r.client_id()
    with t.later(lambda: same(t.side.client_unblock(me), True)):
        same(r.blpop("none", timeout=5), None)
    with t.later(lambda: same(t.side.client_unblock(me, error=True), True)):
        fails(ResponseError, "client unblocked via CLIENT UNBLOCK", r.blpop, "none", timeout=5)
    same(r.client_unblock(me), False)
    same(r.client_pause(10_000, all=False), True)
    same(r.get("k"), None)
    began = time.monotonic()
    with t.later(lambda: t.side.client_unpause(), 0.1):
        same(r.set("k", "v"), True)
    within(time.monotonic() - began, 0.08, 5)
    same(r.client_pause(50), True)
    same(r.get("k"), "v")
    same(r.client_unpause(), "OK")


@family
def commands(t):
    r = t.r
    same((r.xlen("none"), r.eval("return 1", 0)), (0, 1))
    within(r.command_count(), 180, 500)
    table = r.command()
    get = table["get"]
    same((get["arity"], get["first_key_pos"], get["last_key_pos"], get["step_count"]), (2, 1, 1, 1))
    same("readonly" in get["flags"], True)
    same("blpop" in table and "xadd" in table and "client" in table, True)
    same(r.command_getkeys("MSET", "a", 1, "b", 2), ["a", "b"])
    same(r.command_getkeys("EVAL", "return 1", 2, "a", "b", "c"), ["a", "b"])
    flags = r.command_getkeysandflags("LMOVE", "a", "b", "LEFT", "RIGHT")
    same([key for key, _ in flags], ["a", "b"])
    same([name for name in r.command_list(pattern="xg*") if "|" not in name], ["xgroup"])
    same("get" in r.command_list(category="string"), True)
    fails(NotImplementedError, "", r.command_info)
    same("summary" in str(r.execute_command("COMMAND DOCS", "get")), True)
    same(len(r.execute_command("COMMAND INFO", "get", "nonsense")), 2)


@family
def acl(t):
    r = t.r
    try:
        acl_story(t, r)
    finally:
        r.acl_deluser("worker", "reader")


def acl_story(t, r):
    same(r.acl_whoami(), "default")
    same("default" in r.acl_users(), True)
    same("string" in r.acl_cat(), True)
    same("get" in r.acl_cat("string"), True)
    same(len(r.acl_genpass()), 64)
    same(len(r.acl_genpass(5)), 2)
    same(len(r.acl_help()) > 5, True)
    same(
        r.acl_setuser(
            "worker", enabled=True, reset=True, passwords=["+secret"], commands=["+get", "+set", "+acl|whoami", "-del"],
            categories=["+@list"], keys=["w:*"], channels=["news:*"], selectors=[("+del", "~d:*")],
        ),
        True,
    )
    user = r.acl_getuser("worker")
    same("on" in user["flags"] and user["enabled"], True)
    same(user["keys"] in (["~w:*"], "~w:*"), True)
    same(r.acl_getuser("nobody"), None)
    same(any(line.startswith("user worker on") for line in r.acl_list()), True)
    w = t.client(username="worker", password="secret", **once(t))
    same(w.acl_whoami(), "worker")
    same(w.set("w:1", "v"), True)
    same(w.lpush("w:l", 1), 1)
    same(w.delete("d:1"), 0)
    fails(NoPermissionError, "has no permissions to run the 'hset' command", w.hset, "w:h", "f", "v")
    fails(NoPermissionError, KEY_DENIED, w.set, "x", "v")
    fails(NoPermissionError, KEY_DENIED, w.delete, "w:1")
    fails(NoPermissionError, "", w.publish, "other", "x")
    entry = r.acl_log(1)[0]
    same((entry["username"], entry["count"]), ("worker", 1))
    same(r.acl_log_reset(), True)
    same(r.acl_log(), [])
    same(r.acl_dryrun("worker", "get", "w:1"), "OK")
    same("no permissions" in r.acl_dryrun("worker", "hset", "w:1", "f", "v"), True)
    fails(AuthenticationError, "invalid username-password pair or user is disabled", t.client(
        username="worker", password="wrong", **once(t)).ping)
    one = t.client(single_connection_client=True)
    same(one.auth("secret", "worker"), True)
    same(one.acl_whoami(), "worker")
    r.acl_setuser("reader", enabled=True, nopass=True, keys=["%R~*"], categories=["+@all"])
    reader = t.client(username="reader", password="anything")
    r.set("w:1", "v2")
    same(reader.get("w:1"), "v2")
    fails(NoPermissionError, "", reader.set, "w:1", "v")
    fails(ResponseError, "", r.acl_setuser, "worker", commands=["+nonsense"])
    fails(ResponseError, "not configured to use an ACL file", r.acl_save)
    fails(ResponseError, "not configured to use an ACL file", r.acl_load)
    # The deleted user's connections close.
    same(r.acl_deluser("worker", "nobody"), 1)
    eventually(lambda: refused(w))


def refused(client):
    """The client may notice the closed connection first."""
    try:
        return client.get("w:1") and False
    except ConnectionError as error:
        return isinstance(error, AuthenticationError)


@family
def memory_and_latency(t):
    r = t.r
    r.set("k", "v")
    within(r.memory_usage("k"), 20, 300)
    same(r.memory_stats()["peak.allocated"] > 0, True)
    same(isinstance(r.memory_malloc_stats(), str), True)
    same(r.memory_purge(), True)
    # The library refuses some of them, and names the command to run by hand.
    fails(NotImplementedError, "", r.memory_doctor)
    fails(NotImplementedError, "", r.memory_help)
    fails(NotImplementedError, "", r.latency_doctor)
    for name in ("MEMORY DOCTOR", "LATENCY DOCTOR"):
        same(len(r.execute_command(name)) > 20, True)
    same(len(r.execute_command("MEMORY HELP")) > 5, True)
    fails(ResponseError, "No samples available for event", r.execute_command, "LATENCY GRAPH", "command")
    same(r.latency_history("command"), [])
    same(r.latency_latest(), [])
    same(r.latency_reset(), 0)
    try:
        same("set" in str(r.latency_histogram("set")), True)
    except NotImplementedError:
        same("set" in str(r.execute_command("LATENCY HISTOGRAM", "set")), True)


@family
def slowlog(t):
    r = t.r
    r.config_set("slowlog-log-slower-than", 0, "slowlog-max-len", 100_000)
    r.slowlog_reset()
    r.set("k", "v")
    r.config_set("slowlog-log-slower-than", 10_000, "slowlog-max-len", 128)
    same([entry for entry in r.slowlog_get(-1) if entry["command"] in ("SET k v", b"SET k v")] != [], True)
    same(r.slowlog_len() > 0, True)
    same(r.slowlog_reset(), True)
    same(r.slowlog_len(), 0)


@family
def monitoring(t):
    r = t.r
    with r.monitor() as m:
        t.side.set("seen", "by monitor")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            line = m.next_command()
            if line["command"] == "SET seen by monitor":
                same((line["db"], line["client_type"]), (0, "tcp"))
                break
        else:
            raise AssertionError("MONITOR did not show the command")


@family
def standalone_replies(t):
    r = t.r
    same(r.role()[0], "master")
    same(r.wait(0, 10), 0)
    same(r.module_list(), [])
    same(r.info("cluster")["cluster_enabled"], 0)
    fails(ResponseError, "cluster support disabled", r.execute_command, "CLUSTER INFO")
    fails(ResponseError, "cluster support disabled", r.readonly)
    fails(ResponseError, "cluster support disabled", r.readwrite)
    same(r.lastsave() is not None, True)
    if FLINTKV:
        # With a journal, the writes before may be durable already.
        same(r.waitaof(0, 0, 10) in ([0, 0], [1, 0]), True)
        same(r.zadd("z", {"a": 1.5}), 1)
        same(r.zrank("z", "a", withscore=True)[0], 0)
        same(r.zrevrank("z", "a", withscore=True)[0], 0)
    for call in (r.module_load, r.module_unload):
        try:
            call("nothing")
            raise AssertionError("a module was loaded")
        except redis.exceptions.RedisError:
            pass


@family
def resets(t):
    r = t.client(single_connection_client=True, client_name="x", db=1)
    same(r.reset(), "RESET")
    same(r.client_getname(), None)
