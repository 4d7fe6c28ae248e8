import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.args.BitCountOption;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.BitPosParams;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.LCSParams;
import redis.clients.jedis.params.RestoreParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.resps.LCSMatchResult;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.util.PrefixedKeyArgumentPreProcessor;

/** Strings, types made of strings, and keys of any type. */
final class Plain extends Check {
    static void strings(RedisClient r) {
        eq("OK", r.set("s", "one"));
        eq("one", r.get("s"));
        eq(null, r.get("none"));
        eq(null, r.set("s", "two", SetParams.setParams().nx()));
        eq("OK", r.set("s", "two", SetParams.setParams().xx().ex(100)));
        yes(r.ttl("s") > 90);
        eq("OK", r.set("s", "three", SetParams.setParams().keepTtl()));
        yes(r.pttl("s") > 90_000);
        eq("OK", r.set("s", "four", SetParams.setParams().px(100_000)));
        eq("OK", r.set("s", "four", SetParams.setParams().exAt(4_000_000_000L)));
        eq(4_000_000_000L, r.expireTime("s"));
        eq("OK", r.set("s", "four", SetParams.setParams().pxAt(4_000_000_000_123L)));
        eq(4_000_000_000_123L, r.pexpireTime("s"));
        eq("four", r.setGet("s", "five"));
        eq(-1L, r.ttl("s"));
        eq("five", r.setGet("s", "six", SetParams.setParams().xx()));
        eq(null, r.setGet("none", "x", SetParams.setParams().xx()));
        eq("six", r.getSet("s", "seven"));
        eq("seven", r.getEx("s", GetExParams.getExParams().ex(50)));
        yes(r.ttl("s") > 40);
        eq("seven", r.getEx("s", GetExParams.getExParams().persist()));
        eq(-1L, r.ttl("s"));
        eq("seven", r.getDel("s"));
        eq(null, r.getDel("s"));
        eq(1L, r.setnx("s", "a"));
        eq(0L, r.setnx("s", "b"));
        eq("OK", r.setex("s", 100, "ex"));
        eq("OK", r.psetex("s", 100_000, "pex"));
        yes(r.pttl("s") > 90_000);

        eq(5L, r.append("text", "Hello"));
        eq(11L, r.append("text", " World"));
        eq(11L, r.strlen("text"));
        eq("World", r.getrange("text", -5, -1));
        eq("Hello", r.substr("text", 0, 4));
        eq(11L, r.setrange("text", 6, "Redis"));
        eq("Hello Redis", r.get("text"));
        eq(6L, r.setrange("hole", 5, "x"));
        eq("\0\0\0\0\0x", r.get("hole"));

        eq(1L, r.incr("n"));
        eq(11L, r.incrBy("n", 10));
        eq(10L, r.decr("n"));
        eq(-5L, r.decrBy("n", 15));
        near(-4.5, r.incrByFloat("n", 0.5), 0);
        eq("-4.5", r.get("n"));
        r.set("n", String.valueOf(Long.MAX_VALUE));
        fails(JedisDataException.class, "ERR increment or decrement would overflow", () -> r.incr("n"));

        eq("OK", r.mset("m1", "a", "m2", "b"));
        eq(list("a", "b", null), r.mget("m1", "m2", "m3"));
        eq(0L, r.msetnx("m2", "x", "m3", "y"));
        eq(1L, r.msetnx("m3", "x", "m4", "y"));

        r.mset("lcs1", "ohmytext", "lcs2", "mynewtext");
        eq("mytext", r.lcs("lcs1", "lcs2", LCSParams.LCSParams()).getMatchString());
        eq(6L, r.lcs("lcs1", "lcs2", LCSParams.LCSParams().len()).getLen());
        LCSMatchResult idx = r.lcs("lcs1", "lcs2", LCSParams.LCSParams().idx().minMatchLen(4).withMatchLen());
        eq(6L, idx.getLen());
        eq(1, idx.getMatches().size());
        eq(4L, idx.getMatches().get(0).getMatchLen());
        eq(4L, idx.getMatches().get(0).getA().getStart());
        eq(8L, idx.getMatches().get(0).getB().getEnd());

        String big = "x".repeat(3_000_000);
        r.set("big", big);
        eq(big, r.get("big"));
    }

    static void bitmaps(RedisClient r) {
        eq(false, r.setbit("b", 7, true));
        eq(true, r.setbit("b", 7, true));
        eq(true, r.getbit("b", 7));
        eq(false, r.getbit("b", 100));
        r.set("b", "foobar");
        eq(26L, r.bitcount("b"));
        eq(6L, r.bitcount("b", 1, 1));
        eq(17L, r.bitcount("b", 5, 30, BitCountOption.BIT));
        r.set("p".getBytes(UTF_8), new byte[] {0, (byte) 0xff, (byte) 0xf0});
        eq(8L, r.bitpos("p", true));
        eq(16L, r.bitpos("p", true, new BitPosParams(2)));
        eq(-1L, r.bitpos("p", true, new BitPosParams(0, 0)));
        eq(8L, r.bitpos("p", true, BitPosParams.bitPosParams().start(7).end(15).modifier(BitCountOption.BIT)));
        eq(list(0L, 0L), r.bitfield("f", "SET", "u8", "#0", "255", "GET", "u4", "8"));
        eq(list(255L, null), r.bitfield("f", "OVERFLOW", "SAT", "INCRBY", "u8", "0", "10",
                "OVERFLOW", "FAIL", "INCRBY", "u8", "0", "1"));
        eq(list(0L), r.bitfield("f", "OVERFLOW", "WRAP", "INCRBY", "u8", "0", "1"));
        eq(list(0L, 0L), r.bitfieldReadonly("f", "GET", "i8", "0", "GET", "i64", "64"));
        r.mset("x", "abc", "y", "abd");
        eq(3L, r.bitop(BitOP.AND, "and", "x", "y"));
        eq("ab`", r.get("and"));
        eq(3L, r.bitop(BitOP.OR, "or", "x", "y"));
        eq("abg", r.get("or"));
        eq(3L, r.bitop(BitOP.XOR, "xor", "x", "y"));
        eq("\0\0\7", r.get("xor"));
        eq(3L, r.bitop(BitOP.NOT, "not", "x"));
        eq(0L, r.bitop(BitOP.AND, "and", "none", "nothing"));
        eq(false, r.exists("and"));
    }

    static void hyperloglog(RedisClient r) {
        eq(1L, r.pfadd("h", "a", "b", "c"));
        eq(0L, r.pfadd("h", "a"));
        eq(3L, r.pfcount("h"));
        String[] many = new String[5000];
        for (int i = 0; i < many.length; i++) {
            many[i] = "m" + i;
        }
        r.pfadd("big", many);
        near(5000, r.pfcount("big"), 150);
        near(5003, r.pfcount("h", "big"), 150);
        eq("OK", r.pfmerge("sum", "h", "big"));
        eq(r.pfcount("h", "big"), r.pfcount("sum"));
        eq("string", r.type("sum"));
        r.set("text", "no");
        fails(JedisDataException.class, "WRONGTYPE Key is not a valid HyperLogLog", () -> r.pfcount("text"));
    }

    static void keys(RedisClient r) throws Exception {
        r.mset("k1", "a", "k2", "b", "k3", "c");
        eq(3L, r.exists("k1", "k2", "k3", "none"));
        eq(true, r.exists("k1"));
        eq(2L, r.touch("k1", "k2", "none"));
        eq("string", r.type("k1"));
        eq("none", r.type("none"));
        eq(1L, r.expire("k1", 100));
        eq(0L, r.expire("k1", 200, ExpiryOption.NX));
        eq(1L, r.expire("k1", 200, ExpiryOption.XX));
        eq(0L, r.pexpire("k1", 100_000, ExpiryOption.GT));
        eq(1L, r.pexpire("k1", 100_000, ExpiryOption.LT));
        yes(r.ttl("k1") > 90 && r.ttl("k1") <= 100);
        eq(1L, r.expireAt("k1", 4_000_000_000L));
        eq(4_000_000_000_000L, r.pexpireTime("k1"));
        eq(1L, r.pexpireAt("k1", 4_000_000_000_500L, ExpiryOption.GT));
        eq(1L, r.persist("k1"));
        eq(0L, r.persist("k1"));
        eq(-1L, r.ttl("k1"));
        eq(-2L, r.pttl("none"));
        eq(-2L, r.expireTime("none"));
        r.pexpire("k3", 20);
        soon(() -> !r.exists("k3"));
        eq(1L, r.expire("k2", -1));
        eq(null, r.get("k2"));

        eq("OK", r.rename("k1", "k4"));
        fails(JedisDataException.class, "ERR no such key", () -> r.rename("k1", "k5"));
        r.set("k5", "e");
        eq(0L, r.renamenx("k4", "k5"));
        eq(1L, r.renamenx("k4", "k6"));
        eq(true, r.copy("k6", "k7", false));
        eq(false, r.copy("k6", "k7", false));
        eq(true, r.copy("k5", "k7", true));
        eq("e", r.get("k7"));
        eq(set("k5", "k6", "k7"), r.keys("k*"));
        eq(3L, r.dbSize());
        yes(r.randomKey().startsWith("k"));
        eq(2L, r.del("k5", "k6", "none"));
        eq(1L, r.unlink("k7"));
        eq(0L, r.del("k7"));

        r.set("int", "123");
        r.set("embstr", "short");
        r.set("raw", "x".repeat(100));
        r.rpush("list", "a");
        r.sadd("intset", "1");
        r.sadd("set", "x".repeat(100));
        r.hset("hash", "f", "v");
        r.zadd("zset", 1, "m");
        for (String[] pair : new String[][] {{"int", "int"}, {"embstr", "embstr"}, {"raw", "raw"},
                {"list", "listpack,quicklist"}, {"intset", "intset"}, {"set", "hashtable"}, {"hash", "listpack"},
                {"zset", "listpack"}}) {
            String encoding = r.objectEncoding(pair[0]);
            yes(Arrays.asList(pair[1].split(",")).contains(encoding), pair[0], encoding);
        }
        yes(r.objectRefcount("raw") >= 1);
        yes(r.objectIdletime("raw") >= 0);
        eq(null, r.objectEncoding("none"));
        fails(JedisDataException.class, "ERR An LFU maxmemory policy is not selected", () -> r.objectFreq("raw"));
        yes(r.memoryUsage("raw") > 100);
        yes(r.memoryUsage("hash", 0) > 0);
        eq(null, r.memoryUsage("none"));
        eq("OK", r.flushDB());
        eq(null, r.randomKey());
    }

    static void scan(RedisClient r) {
        Set<String> expected = new HashSet<>();
        for (int i = 0; i < 500; i++) {
            r.set("key:" + i, "v");
            expected.add("key:" + i);
        }
        r.rpush("a-list", "x");
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = r.scan(cursor, new ScanParams().match("key:*").count(50));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        eq(expected, found);
        eq(expected, r.scanIteration(100, "key:*").collect(new HashSet<>()));
        eq(set("a-list"), r.scanIteration(100, "*", "list").collect(new HashSet<>()));

        for (int i = 0; i < 600; i++) {
            r.hset("h", "f" + i, "v" + i);
            r.sadd("s", "m" + i);
            r.zadd("z", i, "m" + i);
        }
        List<Object> fields = new ArrayList<>();
        List<Object> members = new ArrayList<>();
        List<Object> scored = new ArrayList<>();
        cursor = "0";
        do {
            var page = r.hscan("h", cursor, new ScanParams().match("f*").count(100));
            page.getResult().forEach(e -> {
                eq(e.getKey().substring(1), e.getValue().substring(1));
                fields.add(e.getKey());
            });
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        do {
            var page = r.sscan("s", cursor, new ScanParams().count(100));
            members.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        do {
            var page = r.zscan("z", cursor, new ScanParams().count(100));
            page.getResult().forEach(t -> {
                eq("m" + (int) t.getScore(), t.getElement());
                scored.add(t.getElement());
            });
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        eq(600, new HashSet<>(fields).size());
        eq(600, new HashSet<>(members).size());
        eq(600, new HashSet<>(scored).size());
        fails(JedisDataException.class, "ERR invalid cursor", () -> r.scan("x"));
    }

    static void sort(RedisClient r) {
        r.rpush("l", "3", "1", "2");
        eq(list("1", "2", "3"), r.sort("l"));
        eq(list("3", "2"), r.sort("l", new SortingParams().desc().limit(0, 2)));
        r.mset("w1", "30", "w2", "20", "w3", "10", "d1", "one", "d2", "two", "d3", "three");
        eq(list("3", "2", "1"), r.sort("l", new SortingParams().by("w*")));
        eq(list("three", "3", "two", "2", "one", "1"), r.sort("l", new SortingParams().by("w*").get("d*", "#")));
        eq(list("1", "2", "3"), r.sortReadonly("l", new SortingParams()));
        eq(list("3", "1", "2"), r.sort("l", new SortingParams().by("nosort")));
        eq(3L, r.sort("l", new SortingParams().get("d*"), "stored"));
        eq(list("one", "two", "three"), r.lrange("stored", 0, -1));
        eq(3L, r.sort("l", "sorted"));
        r.sadd("s", "b", "a", "c");
        eq(list("a", "b", "c"), r.sort("s", new SortingParams().alpha()));
        r.hset("h1", "w", "2");
        r.hset("h2", "w", "1");
        r.hset("h3", "w", "3");
        eq(list("2", "1", "3"), r.sort("l", new SortingParams().by("h*->w")));
        fails(JedisDataException.class, "ERR One or more scores can't be converted into double", () -> r.sort("s"));
    }

    static void dump(RedisClient r) {
        r.set("str", "value");
        r.set("num", "42");
        r.rpush("list", "a", "b", "1");
        r.sadd("set", "x", "y");
        r.sadd("ints", "1", "2");
        r.hset("hash", map("f", "v", "g", "w"));
        r.zadd("zset", 1.5, "m");
        r.pfadd("hll", "a");
        for (int i = 0; i < 1000; i++) {
            r.rpush("longlist", "element" + i);
            r.hset("longhash", "f" + i, "v" + i);
            r.zadd("longzset", i / 3.0, "m" + i);
            r.sadd("longset", "m" + i);
        }
        for (String key : r.keys("*")) {
            byte[] payload = r.dump(key);
            eq("OK", r.restore(key + "!", 0, payload));
            eq(r.type(key), r.type(key + "!"));
            if (!key.equals("hll")) {
                eq(r.objectEncoding(key), r.objectEncoding(key + "!"));
            }
            eq(-1L, r.ttl(key + "!"));
            byte[] bad = payload.clone();
            bad[bad.length - 1] ^= 1;
            fails(JedisDataException.class, "ERR DUMP payload version or checksum are wrong",
                    () -> r.restore("bad", 0, bad));
        }
        eq("value", r.get("str!"));
        eq(list("a", "b", "1"), r.lrange("list!", 0, -1));
        eq(set("x", "y"), r.smembers("set!"));
        eq(map("f", "v", "g", "w"), r.hgetAll("hash!"));
        eq(1.5, r.zscore("zset!", "m"));
        eq(r.hgetAll("longhash"), r.hgetAll("longhash!"));
        eq(r.lrange("longlist", 0, -1), r.lrange("longlist!", 0, -1));
        eq(r.zrangeWithScores("longzset", 0, -1), r.zrangeWithScores("longzset!", 0, -1));
        byte[] payload = r.dump("str");
        fails(JedisDataException.class, "BUSYKEY", () -> r.restore("str!", 0, payload));
        eq("OK", r.restore("str!", 4_000_000_000_000L, payload, RestoreParams.restoreParams().replace().absTtl()));
        eq(4_000_000_000_000L, r.pexpireTime("str!"));
        eq("OK", r.restore("str!", 0, payload, RestoreParams.restoreParams().replace().idleTime(1000)));
        yes(r.objectIdletime("str!") >= 990 || System.getenv("REDIS_FORM").equals("cold"));
        eq(null, r.dump("none"));
        eq("NOKEY", r.migrate(Main.HOST, Main.PORT, "none", 1000));
        fails(JedisDataException.class, "IOERR", () -> r.migrate("127.0.0.1", 1, "str", 300));
    }

    /** Keys, fields, members and values may contain any byte. */
    static void binary(RedisClient r) {
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        eq("OK", r.set(all, all));
        eq(all, r.get(all));
        eq(all, r.randomBinaryKey());
        eq(list(all), new ArrayList<>(r.keys("*".getBytes(UTF_8))));
        r.del(all);
        r.hset(all, all, all);
        eq(all, r.hget(all, all));
        eq(all, r.hgetAll(all).values().iterator().next());
        r.del(all);
        r.rpush(all, all, new byte[0]);
        eq(list(all, new byte[0]), r.lrange(all, 0, -1));
        r.del(all);
        r.sadd(all, all);
        eq(true, r.sismember(all, all));
        r.del(all);
        r.zadd(all, 1, all);
        eq(0L, r.zrank(all, all));
        eq(all, r.zrange(all, 0, 0).get(0));
        eq("", r.echo(""));
        eq("ž€😀", r.echo("ž€😀"));
        r.set("", "empty key");
        eq("empty key", r.get(""));
        r.del("");
        // The library's own mapping and its prefix for keys.
        eq(1L, r.hsetObject("h", "n", 5));
        eq("5", r.hget("h", "n"));
        r.setKeyArgumentPreProcessor(new PrefixedKeyArgumentPreProcessor("app:"));
        r.set("k", "v");
        r.setKeyArgumentPreProcessor(null);
        eq("v", r.get("app:k"));
        // Commands without a method of their own.
        eq("v", new String((byte[]) r.sendCommand(Protocol.Command.GET, "app:k")));
        eq("v", new String((byte[]) r.executeCommand(new CommandArguments(Protocol.Command.GET).key("app:k"))));
        r.rpush("l", "x");
        eq(2, ((List<?>) r.sendBlockingCommand(Protocol.Command.BLPOP, "l", "1")).size());
    }
}
