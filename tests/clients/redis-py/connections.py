"""Pools, sockets, TLS, timeouts, reconnects, threads, client-side caching: the library's use of the network."""

import asyncio
import os
import threading
import time

import redis
import redis.asyncio
from redis.cache import CacheConfig
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    MaxConnectionsError,
    ResponseError,
    TimeoutError,
)

from harness import CERTS, HOST, PATIENCE_S, PORT, SOCKET, TLS_PORT, family, family_for, eventually, fails, once, same, within

@family
def urls(t):
    module = redis if t.loop is None else redis.asyncio
    protocol = "&protocol=2" if t.variant["resp"] == 2 else ""
    client = module.Redis.from_url(f"redis://{HOST}:{PORT}/1?decode_responses=true{protocol}")
    pool = module.ConnectionPool.from_url(f"redis://{HOST}:{PORT}/1?max_connections=3{protocol}")
    from_pool = module.Redis.from_pool(pool)
    if t.loop is None:
        same(client.ping(), True)
        same(from_pool.ping(), True)
        client.close()
        from_pool.close()
    else:
        same(t.loop.run_until_complete(client.ping()), True)
        same(t.loop.run_until_complete(from_pool.ping()), True)
        t.loop.run_until_complete(client.aclose())
        t.loop.run_until_complete(from_pool.aclose())


@family_for(style="sync")
def pools(t):
    options = t.variant["options"]
    pool = redis.ConnectionPool(host=HOST, port=PORT, max_connections=2, **options)
    one, two = pool.get_connection(), pool.get_connection()
    fails(MaxConnectionsError, "Too many connections", pool.get_connection)
    pool.release(one)
    pool.release(two)
    same(pool.get_connection() in (one, two), True)
    pool.disconnect()
    blocking = redis.BlockingConnectionPool(host=HOST, port=PORT, max_connections=1, timeout=0.05, **options)
    held = blocking.get_connection()
    fails(ConnectionError, "No connection available.", blocking.get_connection)
    blocking.release(held)
    r = redis.Redis(connection_pool=blocking)
    same(r.ping(), True)
    blocking.disconnect()


@family_for(style="sync")
def threads(t):
    r = redis.Redis(host=HOST, port=PORT, max_connections=8, **t.variant["options"])
    errors = []

    def work():
        try:
            for _ in range(100):
                r.incr("shared")
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    same((errors, r.get("shared")), ([], b"800"))
    r.close()


@family_for(style="asyncio")
def tasks(t):
    async def story():
        pool = redis.asyncio.BlockingConnectionPool(host=HOST, port=PORT, max_connections=10, **t.variant["options"])
        async with redis.asyncio.Redis(connection_pool=pool) as r:
            await asyncio.gather(*(r.incr("shared") for _ in range(300)))
            same(await r.get("shared"), b"300")

            async def blocked(clients):
                deadline = time.monotonic() + PATIENCE_S
                while (await r.info("clients"))["blocked_clients"] != clients:
                    same(time.monotonic() < deadline, True)
                    await asyncio.sleep(0.005)

            waiting = [asyncio.create_task(r.blpop("queue", timeout=5)) for _ in range(5)]
            await blocked(5)
            await r.rpush("queue", *range(5))
            got = sorted(int(value) for _, value in await asyncio.gather(*waiting))
            same(got, [0, 1, 2, 3, 4])
            # A cancelled wait takes nothing from the list.
            task = asyncio.create_task(r.blpop("queue", timeout=5))
            await blocked(1)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            await blocked(0)
            await r.rpush("queue", "kept")
            same(await r.lrange("queue", 0, -1), [b"kept"])
        await pool.disconnect()

    t.loop.run_until_complete(story())


@family
def unix_sockets(t):
    if not SOCKET:
        return
    options = {"unix_socket_path": SOCKET}
    r = t.client(**options)
    same(r.set("k", "v"), True)
    same(r.get("k"), "v")
    same("unixsocket" in str(r.client_list()) or SOCKET in str(r.client_list()), True)


@family
def tls(t):
    if not TLS_PORT:
        return
    ca, cert, key = (os.path.join(CERTS, name) for name in ("ca.crt", "client.crt", "client.key"))
    r = t.client(host="localhost", port=TLS_PORT, ssl=True, ssl_ca_certs=ca, ssl_certfile=cert, ssl_keyfile=key)
    same(r.set("k", "x" * 50_000), True)
    same(r.get("k"), "x" * 50_000)
    with r.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.incr("n")
        same(pipe.execute()[-1], 1000)
    with r.pubsub(ignore_subscribe_messages=True) as p:
        p.subscribe("c")
        eventually(lambda: t.side.publish("c", "x") == 1)
    insecure = t.client(
        host="localhost", port=TLS_PORT, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False, ssl_certfile=cert,
        ssl_keyfile=key)
    same(insecure.ping(), True)
    without_ca = t.client(host="localhost", port=TLS_PORT, ssl=True, ssl_certfile=cert, ssl_keyfile=key, **once(t))
    fails(ConnectionError, "certificate verify failed", without_ca.ping)
    # The server asks for a client certificate. With TLS 1.3, the refusal may come after the handshake.
    nobody = t.client(host="localhost", port=TLS_PORT, ssl=True, ssl_ca_certs=ca, **once(t))
    try:
        nobody.ping()
        raise AssertionError("a client without a certificate was let in")
    except (ConnectionError, TimeoutError):
        pass


@family
def timeouts(t):
    r = t.client(socket_timeout=0.1, **once(t))
    fails(TimeoutError, "Timeout reading from", r.blpop, "none", timeout=5)
    same(r.ping(), True)
    closed = t.client(port=1, socket_connect_timeout=1, **once(t))
    fails(ConnectionError, "", closed.ping)


@family
def reconnects(t):
    r = t.client(single_connection_client=False, health_check_interval=1)
    first = r.client_id()
    same(t.side.client_kill_filter(_id=str(first)), 1)
    same(r.ping(), True)
    same(r.client_id() != first, True)
    # A pub/sub connection subscribes again by itself.
    with r.pubsub(ignore_subscribe_messages=True) as p:
        p.subscribe("c")
        p.psubscribe("d*")
        eventually(lambda: t.side.publish("c", "x") == 1)
        eventually(lambda: quiet(p) == "x")
        same(t.side.client_kill_filter(_type="pubsub"), 1)

        def heard_again():
            t.side.publish("d1", "again")
            return quiet(p) == "again"

        eventually(heard_again)


def quiet(p):
    try:
        message = p.get_message(timeout=0.05)
    except ConnectionError:
        return None
    return message and message["data"]


@family
def authentication(t):
    t.side.acl_setuser("passworded", enabled=True, reset=True, passwords=["+pw"], keys=["*"], categories=["+@all"])
    try:
        provider = redis.UsernamePasswordCredentialProvider("passworded", "pw")
        same(t.client(credential_provider=provider).acl_whoami(), "passworded")
        module = redis if t.loop is None else redis.asyncio
        client = module.Redis.from_url(f"redis://passworded:pw@{HOST}:{PORT}/0", **t.variant["options"])
        t.clients.append(client)
        same(client.ping() if t.loop is None else t.loop.run_until_complete(client.ping()), True)
        fails(AuthenticationError, "invalid username-password pair or user is disabled",
              t.client(username="passworded", password="no", **once(t)).ping)
        t.side.config_set("requirepass", "hush")
        fails(AuthenticationError, "", t.client(**once(t)).ping)
        same(t.client(password="hush").ping(), True)
    finally:
        fresh = redis.Redis(host=HOST, port=PORT, password="hush")
        try:
            fresh.config_set("requirepass", "")
        except redis.exceptions.AuthenticationError:
            pass
        fresh.close()
        t.side.acl_deluser("passworded")


@family_for(style="sync", resp=3)
def client_side_caching(t):
    # The library requires 7.4, but the features that it uses exist since 6.0.
    redis.connection.CacheProxyConnection.MIN_ALLOWED_VERSION = "7.0.0"
    r = redis.Redis(host=HOST, port=PORT, protocol=3, decode_responses=True, cache_config=CacheConfig(max_size=100))
    cache = r.get_cache()
    r.set("k", "1")
    same(r.get("k"), "1")
    same(cache.size, 1)
    same(r.get("k"), "1")
    t.side.set("k", "2")
    eventually(lambda: r.get("k") == "2")
    r.hset("h", "f", "v")
    same(r.hget("h", "f"), "v")
    same(r.hget("h", "f"), "v")
    t.side.hset("h", "f", "w")
    eventually(lambda: r.hget("h", "f") == "w")
    same(r.mget("k", "none"), ["2", None])
    t.side.delete("k")
    eventually(lambda: r.mget("k", "none") == [None, None])
    t.side.set("short", "v")
    same(r.get("short"), "v")
    # The key may be read and cached again before it has expired; its expiry then sends another invalidation.
    t.side.pexpire("short", 30)
    eventually(lambda: r.get("short") is None)
    t.side.flushdb()
    eventually(lambda: r.hget("h", "f") is None)
    r.close()


@family
def tracking(t):
    """CLIENT TRACKING by hand, redirected to a pub/sub connection as RESP2 clients do."""
    r = t.client(single_connection_client=True)
    side = redis.Redis(host=HOST, port=PORT, decode_responses=True, protocol=2)
    listener = side.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("__redis__:invalidate")
    # SUBSCRIBE was sent on another connection, without waiting for its reply.
    ids = lambda: [int(c["id"]) for c in t.side.client_list() if int(c["sub"]) == 1]
    eventually(lambda: len(ids()) == 1)
    ids = ids()
    same(r.client_tracking_on(clientid=ids[0], bcast=True, prefix=["user:", "item:"], noloop=True), "OK")
    same("bcast" in str(r.client_trackinginfo()), True)
    same(r.client_getredir(), ids[0])
    t.side.set("user:1", "x")
    message = None
    end = time.monotonic() + PATIENCE_S
    while message is None and time.monotonic() < end:
        message = listener.get_message(timeout=0.2)
    same((message["channel"], message["data"]), ("__redis__:invalidate", ["user:1"]))
    same(r.client_tracking_off(), "OK")
    same(r.client_tracking(optin=True), "OK")
    same(r.client_tracking(on=False), "OK")
    fails(ResponseError, "You can't specify both OPTIN mode and OPTOUT mode", r.client_tracking_on, optin=True, optout=True)
    listener.close()
    side.close()
