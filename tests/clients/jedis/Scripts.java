import java.util.List;
import java.util.Map;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.args.FlushMode;
import redis.clients.jedis.args.FunctionRestorePolicy;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;

/** EVAL and the like, and libraries of functions. */
final class Scripts extends Check {
    static void scripts(RedisClient r) throws Exception {
        eq(1L, r.eval("return 1"));
        eq("v", r.eval("redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])", 1, "k", "v"));
        eq(list("a", 2L, null), r.eval("return {'a', 2.9, false}"));
        eq(list("k", "v"), r.eval("return {KEYS[1], ARGV[1]}", List.of("k"), List.of("v")));
        eq("OK", r.eval("return redis.status_reply('OK')"));
        eq("v", r.evalReadonly("return redis.call('get', KEYS[1])", List.of("k"), List.of()));
        fails(JedisDataException.class, "Write commands are not allowed from read-only scripts", () ->
                r.evalReadonly("return redis.call('set', KEYS[1], 'x')", List.of("k"), List.of()));
        fails(JedisDataException.class, "My error", () -> r.eval("return redis.error_reply('My error')"));
        fails(JedisDataException.class, "WRONGTYPE", () ->
                r.eval("redis.call('lpush', KEYS[1], 'x') return redis.call('get', KEYS[1])", 1, "l"));
        eq("WRONGTYPE", r.eval("local e = redis.pcall('get', KEYS[1]) return string.sub(e.err, 1, 9)", 1, "l"));
        fails(JedisDataException.class, "Script attempted to access nonexistent global variable", () ->
                r.eval("return nosuch"));
        eq("{\"a\":[1,2]}", r.eval("return cjson.encode(cjson.decode(ARGV[1]))", 0, "{\"a\":[1,2]}"));
        eq("7", r.eval("return tostring(bit.bor(3, 4))"));
        eq(2L, r.eval("return #struct.pack('>I2', 258)"));
        eq("x", r.eval("return cmsgpack.unpack(cmsgpack.pack('x'))"));
        eq(40, String.valueOf(r.eval("return redis.sha1hex('')")).length());

        String sha = r.scriptLoad("return ARGV[1] .. 'b'");
        eq(40, sha.length());
        eq("ab", r.evalsha(sha, 0, "a"));
        eq("cb", r.evalshaReadonly(sha, List.of(), List.of("c")));
        eq(list(true, false), r.scriptExists(List.of(sha, "0".repeat(40))));
        eq("OK", r.scriptFlush());
        fails(JedisNoScriptException.class, "NOSCRIPT No matching script", () -> r.evalsha(sha, 0, "a"));
        fails(JedisDataException.class, "NOTBUSY", () -> r.scriptKill());
        // Another connection stops the running script.
        r.configSet("lua-time-limit", "20");
        Thread killer = new Thread(() -> {
            for (int i = 0; i < 400; i++) {
                try {
                    Thread.sleep(10);
                    r.scriptKill();
                    return;
                } catch (JedisDataException notYet) {
                    // Not running yet.
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        killer.start();
        fails(JedisDataException.class, "Script killed by user", () -> r.eval("while true do end"));
        killer.join();
        r.configSet("lua-time-limit", "5000");
        eq("v", r.get("k"));
    }

    private static final String LIBRARY = """
            #!lua name=lib
            redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)
            redis.register_function{function_name='fetch', flags={'no-writes'},
                callback=function(keys) return redis.call('get', keys[1]) end}
            """;

    static void functions(RedisClient r) {
        r.functionFlush();
        eq("lib", r.functionLoad(LIBRARY));
        fails(JedisDataException.class, "ERR Library 'lib' already exists", () -> r.functionLoad(LIBRARY));
        eq("lib", r.functionLoadReplace(LIBRARY));
        eq("OK", r.fcall("put", List.of("k"), List.of("v")));
        eq("v", r.fcallReadonly("fetch", List.of("k"), List.of()));
        fails(JedisDataException.class, "Can not execute a script with write flag using *_ro command", () ->
                r.fcallReadonly("put", List.of("k"), List.of("v")));
        fails(JedisDataException.class, "ERR Function not found", () -> r.fcall("none", List.of(), List.of()));
        var libraries = r.functionListWithCode("li*");
        eq(1, libraries.size());
        eq("lib", libraries.get(0).getLibraryName());
        eq("LUA", libraries.get(0).getEngine());
        eq(LIBRARY, libraries.get(0).getLibraryCode());
        eq(2, libraries.get(0).getFunctions().size());
        for (Map<String, Object> function : libraries.get(0).getFunctions()) {
            yes(function.get("name").equals("put") || function.get("flags").toString().contains("no-writes"));
        }
        eq(null, r.functionList().get(0).getLibraryCode());
        eq(null, r.functionStats().getRunningScript());
        eq(1L, r.functionStats().getEngines().get("LUA").get("libraries_count"));
        eq(2L, r.functionStats().getEngines().get("LUA").get("functions_count"));
        eq(1, r.functionListBinary().size());
        eq(1, r.functionListWithCodeBinary().size());
        yes(r.functionStatsBinary() != null);
        byte[] saved = r.functionDump();
        eq("OK", r.functionDelete("lib"));
        eq(0, r.functionList().size());
        eq("OK", r.functionRestore(saved));
        fails(JedisDataException.class, "already exists", () -> r.functionRestore(saved));
        eq("OK", r.functionRestore(saved, FunctionRestorePolicy.REPLACE));
        eq("OK", r.functionRestore(saved, FunctionRestorePolicy.FLUSH));
        eq("v", r.fcall("fetch", List.of("k"), List.of()));
        fails(JedisDataException.class, "NOTBUSY", () -> r.functionKill());
        fails(JedisDataException.class, "ERR Missing library metadata", () -> r.functionLoad("return 1"));
        eq("OK", r.functionFlush(FlushMode.SYNC));
        eq(0, r.functionList().size());
    }
}
