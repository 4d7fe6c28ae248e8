import io.lettuce.core.FlushMode;
import io.lettuce.core.FunctionRestoreMode;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** EVAL and the like, and libraries of functions. */
final class Scripts extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    private static String[] keys(String... keys) {
        return keys;
    }

    static void scripts(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        eq(1L, r.eval("return 1", ScriptOutputType.INTEGER));
        eq(true, r.eval("return 1", ScriptOutputType.BOOLEAN));
        eq("OK", r.eval("return redis.call('set', KEYS[1], ARGV[1])", ScriptOutputType.STATUS, keys("k"), "v"));
        eq("v", r.eval("return redis.call('get', KEYS[1])", ScriptOutputType.VALUE, "k"));
        eq(list("a", 2L), r.eval("return {'a', 2.9}", ScriptOutputType.MULTI));
        eq("v", r.evalReadOnly("return redis.call('get', KEYS[1])", ScriptOutputType.VALUE, keys("k")));
        fails(REFUSED, "Write commands are not allowed from read-only scripts", () ->
                r.evalReadOnly("return redis.call('set', KEYS[1], 'x')", ScriptOutputType.STATUS, keys("k")));
        fails(REFUSED, "My error", () -> r.eval("return redis.error_reply('My error')", ScriptOutputType.STATUS));
        fails(REFUSED, "WRONGTYPE", () ->
                r.eval("redis.call('lpush', KEYS[1], 'x') return redis.call('get', KEYS[1])",
                        ScriptOutputType.VALUE, "l"));
        eq("[1,2]", r.eval("return cjson.encode({1, 2})", ScriptOutputType.VALUE));
        String script = "return ARGV[1] .. 'b'";
        String sha = r.scriptLoad(script);
        eq(r.digest(script), sha);
        eq("ab", r.evalsha(sha, ScriptOutputType.VALUE, keys(), "a"));
        eq("cb", r.evalshaReadOnly(sha, ScriptOutputType.VALUE, keys(), "c"));
        eq(list(true, false), r.scriptExists(sha, "0".repeat(40)));
        eq("OK", r.scriptFlush());
        eq("OK", r.scriptFlush(FlushMode.ASYNC));
        fails(RedisNoScriptException.class, "NOSCRIPT", () -> r.evalsha(sha, ScriptOutputType.VALUE, keys(), "a"));
        fails(REFUSED, "NOTBUSY", () -> r.scriptKill());

        // Another connection stops the running script; until then, other clients get BUSY.
        r.configSet("lua-time-limit", "20");
        RedisCommands<String, String> busy = s.another();
        var endless = CompletableFuture.supplyAsync(() -> {
            try {
                // In a cluster it runs at the shard of this key, which others ask for below.
                return busy.eval("while true do end", ScriptOutputType.VALUE, "k");
            } catch (RedisCommandExecutionException e) {
                return e.getMessage();
            }
        });
        soon(() -> {
            try {
                r.get("k");
                return false;
            } catch (io.lettuce.core.RedisBusyException e) {
                return e.getMessage().startsWith("BUSY Redis is busy running a script");
            }
        });
        eq("OK", r.scriptKill());
        yes(String.valueOf(endless.get()).contains("Script killed by user"), endless.get());
        r.configSet("lua-time-limit", "5000");
    }

    private static final String LIBRARY = """
            #!lua name=lib
            redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)
            redis.register_function{function_name='fetch', flags={'no-writes'},
                callback=function(keys) return redis.call('get', keys[1]) end}
            """;

    static void functions(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.functionFlush(FlushMode.SYNC);
        eq("lib", r.functionLoad(LIBRARY));
        fails(REFUSED, "ERR Library 'lib' already exists", () -> r.functionLoad(LIBRARY));
        eq("lib", r.functionLoad(LIBRARY, true));
        eq("OK", r.fcall("put", ScriptOutputType.STATUS, keys("k"), "v"));
        eq("v", r.fcall("fetch", ScriptOutputType.VALUE, "k"));
        eq("v", r.fcallReadOnly("fetch", ScriptOutputType.VALUE, keys("k")));
        fails(REFUSED, "Can not execute a script with write flag using *_ro command", () ->
                r.fcallReadOnly("put", ScriptOutputType.STATUS, keys("k"), "v"));
        fails(REFUSED, "ERR Function not found", () -> r.fcall("none", ScriptOutputType.VALUE));
        List<?> libraries = r.functionList("li*");
        eq(1, libraries.size());
        if (s.client == Main.RESP3) {
            // With RESP2, Lettuce does not convert the pairs.
            eq("lib", ((Map<?, ?>) libraries.get(0)).get("library_name"));
            eq("LUA", ((Map<?, ?>) libraries.get(0)).get("engine"));
        }
        byte[] saved = r.functionDump();
        eq("OK", r.functionFlush(FlushMode.ASYNC));
        eq(0, r.functionList().size());
        eq("OK", r.functionRestore(saved));
        fails(REFUSED, "already exists", () -> r.functionRestore(saved));
        eq("OK", r.functionRestore(saved, FunctionRestoreMode.REPLACE));
        eq("v", r.fcall("fetch", ScriptOutputType.VALUE, "k"));
        fails(REFUSED, "NOTBUSY", () -> r.functionKill());
        r.functionFlush(FlushMode.SYNC);
    }
}
