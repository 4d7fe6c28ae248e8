"""Owns how families are written, run and counted. Never knows a command.

A family is a function of one argument, the Session: its client `r` with an empty database, more clients by `client()`,
and what the server is. It asserts with `same` and `fails`; what it raises is its failure, and the next one runs.
"""

import asyncio
import inspect
import os
import threading
import time
import traceback

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry

HOST = os.environ["REDIS_HOST"]
PORT = int(os.environ["REDIS_PORT"])
TLS_PORT = int(os.environ.get("REDIS_TLS_PORT") or 0)
SOCKET = os.environ.get("REDIS_SOCKET") or None
CERTS = os.environ.get("REDIS_CERTS") or None
FLINTKV = os.environ.get("REDIS_KIND", "flintkv") == "flintkv"
IS_CLUSTER = os.environ.get("REDIS_FORM") in ("cluster", "shard")

# The longest wait for an immediate effect.
PATIENCE_S = 60

FAMILIES = []


def family(run):
    """Every family runs in every variant."""
    FAMILIES.append((run, lambda variant: True))
    return run


def family_for(**wanted):
    """A family of some variants: family_for(style="asyncio")."""

    def add(run):
        FAMILIES.append((run, lambda variant: all(variant[name] == value for name, value in wanted.items())))
        return run

    return add


class Difference(AssertionError):
    pass


def same(got, expected):
    if got != expected:
        raise Difference(f"got {got!r}, expected {expected!r}")


def within(got, low, high):
    if not low <= got <= high:
        raise Difference(f"got {got!r}, expected {low!r} to {high!r}")


def fails(kind, text, call, *args, **kwargs):
    """Asserts that the call raises exactly this class of error, with this text in it."""
    try:
        got = call(*args, **kwargs)
    except Exception as error:
        if type(error) is not kind or text not in str(error):
            raise Difference(f"raised {type(error).__name__}({error}), expected {kind.__name__}({text})") from None
    else:
        raise Difference(f"got {got!r}, expected {kind.__name__}({text})")


def eventually(condition):
    """Waits for the effect of another connection."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise Difference("it did not happen: " + " ".join(inspect.getsource(condition).split()))
        time.sleep(0.005)


class Later:
    """Runs something on another thread while the test blocks: after `delay_s`, or else once `side` sees a blocked client."""

    def __init__(self, side, act, delay_s=None):
        self.error = None
        self.has_failed = False

        def is_due():
            return self.has_failed or side.info("clients")["blocked_clients"] == 1

        def run():
            try:
                if delay_s is None:
                    # A client that has just got its reply may still be counted.
                    time.sleep(0.05)
                    eventually(is_due)
                    # A node of a cluster counts a client whose command it has passed on, which may be on its way to the shard.
                    time.sleep(0.3 if IS_CLUSTER else 0)
                else:
                    time.sleep(delay_s)
                if not self.has_failed:
                    act()
            except Exception as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # What failed may never have blocked.
        self.has_failed = kind is not None
        self.thread.join(PATIENCE_S)
        if self.error:
            raise self.error


class Blocking:
    """An object of redis.asyncio that is called as its sync twin is: coroutines run to their end on the loop.

    So that one text of a family drives both libraries. It notes which methods were used.
    """

    def __init__(self, target, loop, used):
        self._parts = target, loop, used

    def _wrap(self, value):
        _, loop, used = self._parts
        if inspect.iscoroutine(value):
            return self._wrap(loop.run_until_complete(value))
        if inspect.isasyncgen(value):
            return self._drain(value)
        module = type(value).__module__
        if module.startswith("redis.") and hasattr(type(value), "execute_command") or module in WRAPPED_MODULES:
            return Blocking(value, loop, used)
        return value

    def _drain(self, items):
        while True:
            try:
                yield self._wrap(step(items))
            except StopAsyncIteration:
                return

    def __getattr__(self, name):
        target, _, used = self._parts
        value = getattr(target, name)
        if not callable(value):
            return value
        used.add(name)
        return lambda *args, **kwargs: self._wrap(value(*map(unwrap, args), **kwargs))

    def __call__(self, *args, **kwargs):
        target = self._parts[0]
        kwargs = {name: unwrap(value) for name, value in kwargs.items()}
        return self._wrap(target(*map(unwrap, args), **kwargs))

    def __enter__(self):
        return self._wrap(self._parts[0].__aenter__())

    def __exit__(self, *error):
        return self._wrap(self._parts[0].__aexit__(*error))

    def __len__(self):
        return len(self._parts[0])


async def step(items):
    return await items.__anext__()


def once(t):
    """Options for a client that does not try again. redis.asyncio has a class of its own for it."""
    retry = redis.retry.Retry if t.loop is None else redis.asyncio.retry.Retry
    return {"retry": retry(redis.backoff.NoBackoff(), 0)}


WRAPPED_MODULES = {"redis.asyncio.lock", "redis.commands.core", "redis.asyncio.client", "redis.asyncio.keyspace_notifications"}


def unwrap(value):
    return value._parts[0] if isinstance(value, Blocking) else value


class Noting:
    """A sync client that records which methods were used."""

    def __init__(self, target, used):
        self._parts = target, None, used

    def __getattr__(self, name):
        target, _, used = self._parts
        value = getattr(target, name)
        if callable(value):
            used.add(name)
        return value

    def __enter__(self):
        self._parts[0].__enter__()
        return self

    def __exit__(self, *error):
        return self._parts[0].__exit__(*error)


class Session:
    """What a family gets: clients of one variant."""

    def __init__(self, variant, used):
        self.variant = variant
        self.used = used
        self.loop = asyncio.new_event_loop() if variant["style"] == "asyncio" else None
        self.clients = []
        self.threads = []
        # A second, plain client; any thread may use it.
        self.side = redis.Redis(host=HOST, port=PORT, decode_responses=True)
        self.r = self.client()

    def client(self, **options):
        options = {"host": HOST, "port": PORT, "decode_responses": True, **self.variant["options"], **options}
        if self.loop is None:
            client = redis.Redis(**options)
            self.clients.append(client)
            return Noting(client, self.used)
        client = redis.asyncio.Redis(**options)
        self.clients.append(client)
        return Blocking(client, self.loop, self.used)

    def later(self, act, delay_s=None):
        return Later(self.side, act, delay_s)

    def close(self):
        for client in self.clients:
            if self.loop is None:
                client.close()
            else:
                self.loop.run_until_complete(client.aclose())
        self.side.close()
        if self.loop is not None:
            self.loop.close()


def run_family(variant, run, used):
    """None, or the error."""
    session = None
    try:
        session = Session(variant, used)
        session.r.flushdb()
        session.r.config_resetstat()
        run(session)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(HERE)]
        at = [frame for frame in frames if not frame.filename.endswith("harness.py")] or frames
        where = f"{os.path.basename(at[-1].filename)}:{at[-1].lineno}" if at else "?"
        return f"{where}: {type(error).__name__}: {error}"
    finally:
        if session is not None:
            try:
                session.close()
            except Exception:
                pass


HERE = os.path.dirname(os.path.abspath(__file__))
