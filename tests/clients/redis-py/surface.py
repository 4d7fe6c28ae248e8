"""Which of the library's command methods no family uses. Never runs one."""

import redis
import redis.asyncio

# Methods of other products, of later Redis versions, or of the library itself.
PREFIXES = ("ar", "sentinel", "hotkeys", "himport", "_")
MODULES = {"bf", "cf", "cms", "ft", "json", "tdigest", "topk", "ts", "vset", "load_external_module"}
LATER = {
    "blmovem", "delex", "digest", "digest_local", "hgetdel", "hgetex", "hsetex", "increx", "lmovem", "msetex", "sdiffcard",
    "sunioncard", "xackdel", "xcfgset", "xdelex", "xnack",
}
LIBRARY = {
    "from_pool", "from_url", "get_connection_kwargs", "get_encoder", "get_retry", "set_retry", "set_response_callback",
    "get_cache", "parse_response", "client", "close", "aclose", "initialize", "auto_close_connection_pool",
    "response_callbacks", "watch", "unwatch", "single_connection_client", "connection_pool", "connection",
}
# Methods that a test's server must not get, or that the library refuses.
UNUSED = {
    "bgrewriteaof", "bgsave", "save", "shutdown", "debug_segfault", "failover", "replicaof", "slaveof", "psync", "sync",
    "flushall", "select", "cluster", "stralgo", "script_debug", "command_docs", "command_info", "module_loadex",
    "client_reply", "debug_object", "hello", "latency_graph",
}
# Methods that redis-server 7.0 does not support.
NEWER_THAN_70 = {
    "client_setinfo", "client_no_touch", "waitaof", "hexpire", "hexpireat", "hexpiretime", "hpersist", "hpexpire",
    "hpexpireat", "hpexpiretime", "hpttl", "httl",
}


def missing(variant, used):
    from harness import FLINTKV

    kind = redis.Redis if variant["style"] == "sync" else redis.asyncio.Redis
    skipped = MODULES | LATER | LIBRARY | UNUSED | (set() if FLINTKV else NEWER_THAN_70)
    return [
        name for name in dir(kind)
        if callable(getattr(kind, name)) and not name.startswith(PREFIXES) and name not in skipped and name not in used
    ]
