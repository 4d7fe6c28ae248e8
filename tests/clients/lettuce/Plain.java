import io.lettuce.core.BitFieldArgs;
import io.lettuce.core.CopyArgs;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LcsArgs;
import io.lettuce.core.MigrateArgs;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RestoreArgs;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SortArgs;
import io.lettuce.core.XAddArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import java.util.HashSet;
import java.util.Set;
import java.util.stream.Collectors;

/** Strings, types made of strings, and keys of any type. */
final class Plain extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;
    private static final Instant FAR = Instant.ofEpochSecond(4_000_000_000L);

    static void strings(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        eq("OK", r.set("s", "one"));
        eq("one", r.get("s"));
        eq(null, r.get("none"));
        eq(null, r.set("s", "two", SetArgs.Builder.nx()));
        eq("OK", r.set("s", "two", SetArgs.Builder.xx().ex(100)));
        yes(r.ttl("s") > 90);
        eq("OK", r.set("s", "three", SetArgs.Builder.keepttl()));
        yes(r.pttl("s") > 90_000);
        eq("OK", r.set("s", "three", SetArgs.Builder.px(Duration.ofSeconds(100))));
        eq("OK", r.set("s", "three", SetArgs.Builder.exAt(FAR)));
        eq(4_000_000_000L, r.expiretime("s"));
        eq("OK", r.set("s", "four", SetArgs.Builder.pxAt(FAR.plusMillis(5))));
        eq(4_000_000_000_005L, r.pexpiretime("s"));
        eq("four", r.setGet("s", "five"));
        eq("five", r.setGet("s", "six", SetArgs.Builder.xx()));
        eq("six", r.getset("s", "seven"));
        eq("seven", r.getex("s", GetExArgs.Builder.ex(50)));
        yes(r.ttl("s") > 40);
        eq("seven", r.getex("s", GetExArgs.Builder.pxAt(FAR)));
        eq("seven", r.getex("s", GetExArgs.Builder.persist()));
        eq(-1L, r.ttl("s"));
        eq("seven", r.getdel("s"));
        eq(null, r.getdel("s"));
        eq(true, r.setnx("s", "a"));
        eq(false, r.setnx("s", "b"));
        eq("OK", r.setex("s", 100, "ex"));
        eq("OK", r.psetex("s", 100_000, "pex"));

        eq(5L, r.append("text", "Hello"));
        eq(11L, r.append("text", " World"));
        eq(11L, r.strlen("text"));
        eq("World", r.getrange("text", -5, -1));
        eq(11L, r.setrange("text", 6, "Redis"));
        eq("Hello Redis", r.get("text"));
        eq(1L, r.incr("n"));
        eq(11L, r.incrby("n", 10));
        eq(10L, r.decr("n"));
        eq(-5L, r.decrby("n", 15));
        near(-4.5, r.incrbyfloat("n", 0.5), 0);
        r.set("n", String.valueOf(Long.MAX_VALUE));
        fails(REFUSED, "ERR increment or decrement would overflow", () -> r.incr("n"));
        eq("OK", r.mset(map("m1", "a", "m2", "b")));
        eq(list(KeyValue.just("m1", "a"), KeyValue.just("m2", "b"), KeyValue.empty("m3")), r.mget("m1", "m2", "m3"));
        eq(false, r.msetnx(map("m2", "x", "m3", "y")));
        eq(true, r.msetnx(map("m3", "x", "m4", "y")));

        r.mset(map("lcs1", "ohmytext", "lcs2", "mynewtext"));
        eq("mytext", r.lcs(LcsArgs.Builder.keys("lcs1", "lcs2")).getMatchString());
        eq(6L, r.lcs(LcsArgs.Builder.keys("lcs1", "lcs2").justLen()).getLen());
        var idx = r.lcs(LcsArgs.Builder.keys("lcs1", "lcs2").withIdx().minMatchLen(4).withMatchLen());
        eq(6L, idx.getLen());
        eq(1, idx.getMatches().size());
        eq(4L, idx.getMatches().get(0).getMatchLen());
        eq(5L, idx.getMatches().get(0).getB().getStart());

        String big = "ž".repeat(1_000_000);
        r.set("big", big);
        eq(big, r.get("big"));
    }

    static void bitmaps(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(0L, r.setbit("b", 7, 1));
        eq(1L, r.setbit("b", 7, 1));
        eq(1L, r.getbit("b", 7));
        r.set("b", "foobar");
        eq(26L, r.bitcount("b"));
        eq(6L, r.bitcount("b", 1, 1));
        r.set("p", "\0\7x");
        eq(13L, r.bitpos("p", true));
        eq(17L, r.bitpos("p", true, 2));
        eq(-1L, r.bitpos("p", true, 0, 0));
        eq(list(0L, 0L), r.bitfield("f", BitFieldArgs.Builder.set(BitFieldArgs.unsigned(8),
                BitFieldArgs.typeWidthBasedOffset(0), 255).get(BitFieldArgs.unsigned(4), 8)));
        eq(list(255L), r.bitfield("f", new BitFieldArgs().overflow(BitFieldArgs.OverflowType.SAT)
                .incrBy(BitFieldArgs.unsigned(8), 0, 10)));
        eq(list(0L), r.bitfield("f", new BitFieldArgs().overflow(BitFieldArgs.OverflowType.WRAP)
                .incrBy(BitFieldArgs.unsigned(8), 0, 1)));
        r.mset(map("x", "abc", "y", "abd"));
        eq(3L, r.bitopAnd("and", "x", "y"));
        eq("ab`", r.get("and"));
        eq(3L, r.bitopOr("or", "x", "y"));
        eq("abg", r.get("or"));
        eq(3L, r.bitopXor("xor", "x", "y"));
        eq("\0\0\7", r.get("xor"));
        eq(3L, r.bitopNot("not", "x"));
    }

    static void hyperloglog(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(1L, r.pfadd("h", "a", "b", "c"));
        eq(0L, r.pfadd("h", "a"));
        eq(3L, r.pfcount("h"));
        r.pfadd("g", "c", "d");
        eq(4L, r.pfcount("h", "g"));
        eq("OK", r.pfmerge("sum", "h", "g"));
        eq(4L, r.pfcount("sum"));
        r.set("text", "no");
        fails(REFUSED, "WRONGTYPE Key is not a valid HyperLogLog", () -> r.pfadd("text", "x"));
    }

    static void keys(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        r.mset(map("k1", "a", "k2", "b", "k3", "c"));
        eq(3L, r.exists("k1", "k2", "k3", "none"));
        eq(2L, r.touch("k1", "k2", "none"));
        eq("string", r.type("k1"));
        eq("none", r.type("none"));
        eq(true, r.expire("k1", 100));
        eq(false, r.expire("k1", Duration.ofSeconds(200), ExpireArgs.Builder.nx()));
        eq(true, r.expire("k1", 200, ExpireArgs.Builder.xx()));
        eq(false, r.pexpire("k1", Duration.ofSeconds(100), ExpireArgs.Builder.gt()));
        eq(true, r.pexpire("k1", 100_000, ExpireArgs.Builder.lt()));
        yes(r.ttl("k1") > 90 && r.ttl("k1") <= 100);
        eq(true, r.expireat("k1", FAR));
        eq(true, r.expireat("k1", Date.from(FAR)));
        eq(4_000_000_000_000L, r.pexpiretime("k1"));
        eq(true, r.pexpireat("k1", FAR.plusMillis(500), ExpireArgs.Builder.gt()));
        eq(true, r.persist("k1"));
        eq(false, r.persist("k1"));
        eq(-2L, r.pttl("none"));
        eq(-2L, r.expiretime("none"));
        r.pexpire("k3", 20);
        soon(() -> r.exists("k3") == 0);

        eq("OK", r.rename("k1", "k4"));
        fails(REFUSED, "ERR no such key", () -> r.rename("k1", "k5"));
        eq(false, r.renamenx("k4", "k2"));
        eq(true, r.renamenx("k4", "k6"));
        eq(true, r.copy("k6", "k7"));
        eq(false, r.copy("k6", "k7"));
        eq(true, r.copy("k2", "k7", CopyArgs.Builder.replace(true)));
        eq("b", r.get("k7"));
        eq(set("k2", "k6", "k7"), new HashSet<>(r.keys("k*")));
        eq(3L, r.dbsize());
        yes(r.randomkey().startsWith("k"));
        eq(2L, r.del("k2", "k6", "none"));
        eq(1L, r.unlink("k7"));

        r.set("int", "123");
        r.set("raw", "x".repeat(100));
        r.sadd("ints", "1", "2");
        eq("int", r.objectEncoding("int"));
        eq("raw", r.objectEncoding("raw"));
        eq("intset", r.objectEncoding("ints"));
        yes(r.objectRefcount("raw") >= 1);
        yes(r.objectIdletime("raw") >= 0);
        fails(REFUSED, "ERR An LFU maxmemory policy is not selected", () -> r.objectFreq("raw"));
        yes(r.memoryUsage("raw") > 100);
        eq("OK", r.flushdb());
        eq(null, r.randomkey());
    }

    static void scan(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        Set<String> expected = new HashSet<>();
        for (int i = 0; i < 600; i++) {
            r.set("key:" + i, "v");
            r.hset("h", "f" + i, "v" + i);
            r.sadd("s", "m" + i);
            r.zadd("z", i, "m" + i);
            expected.add("key:" + i);
        }
        Set<String> found = new HashSet<>();
        ScanCursor cursor = ScanCursor.INITIAL;
        while (!cursor.isFinished()) {
            var page = r.scan(cursor, ScanArgs.Builder.limit(50).match("key:*"));
            found.addAll(page.getKeys());
            cursor = page;
        }
        eq(expected, found);
        eq(603, ScanIterator.scan(r).stream().collect(Collectors.toSet()).size());
        eq(600, ScanIterator.hscan(r, "h").stream().peek(kv -> eq(kv.getKey().substring(1), kv.getValue().substring(1)))
                .collect(Collectors.toSet()).size());
        eq(11, ScanIterator.sscan(r, "s", ScanArgs.Builder.matches("m10*").limit(40)).stream()
                .collect(Collectors.toSet()).size());
        eq(600, ScanIterator.zscan(r, "z").stream().peek(m -> eq("m" + (int) m.getScore(), m.getValue()))
                .collect(Collectors.toSet()).size());
        eq(false, r.hscan("h", ScanArgs.Builder.limit(10)).isFinished());
        yes(!r.sscan("s").getValues().isEmpty() && !r.zscan("z").getValues().isEmpty());
        fails(REFUSED, "ERR invalid cursor", () -> r.scan(ScanCursor.of("x")));
    }

    static void sort(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.rpush("l", "3", "1", "2");
        eq(list("1", "2", "3"), r.sort("l"));
        eq(list("3", "2"), r.sort("l", SortArgs.Builder.desc().limit(0, 2)));
        r.mset(map("w1", "30", "w2", "20", "w3", "10", "d1", "one", "d2", "two", "d3", "three"));
        eq(list("three", "3", "two", "2", "one", "1"), r.sort("l", SortArgs.Builder.by("w*").get("d*").get("#")));
        eq(list("1", "2", "3"), r.sortReadOnly("l"));
        eq(list("3", "2", "1"), r.sortReadOnly("l", SortArgs.Builder.by("w*")));
        eq(3L, r.sortStore("l", SortArgs.Builder.get("d*"), "stored"));
        eq(list("one", "two", "three"), r.lrange("stored", 0, -1));
        r.sadd("s", "b", "a", "c");
        eq(list("a", "b", "c"), r.sort("s", SortArgs.Builder.alpha()));
    }

    static void dump(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.set("str", "value");
        r.hset("hash", map("f", "v", "g", "w"));
        r.xadd("stream", new XAddArgs().id("1-1"), map("f", "v"));
        for (int i = 0; i < 1000; i++) {
            r.zadd("zset", i / 3.0, "m" + i);
        }
        for (String key : r.keys("*")) {
            byte[] payload = r.dump(key);
            eq("OK", r.restore(key + "!", 0, payload));
            eq(r.objectEncoding(key), r.objectEncoding(key + "!"));
            payload[0] ^= 1;
            fails(REFUSED, "ERR DUMP payload version or checksum are wrong", () -> r.restore("bad", 0, payload));
        }
        eq("value", r.get("str!"));
        eq(map("f", "v", "g", "w"), r.hgetall("hash!"));
        eq(r.zrangeWithScores("zset", 0, -1), r.zrangeWithScores("zset!", 0, -1));
        eq(1L, r.xlen("stream!"));
        byte[] payload = r.dump("str");
        fails(REFUSED, "BUSYKEY", () -> r.restore("str!", 0, payload));
        eq("OK", r.restore("str!", payload, RestoreArgs.Builder.ttl(FAR.toEpochMilli()).replace().absttl()));
        eq(4_000_000_000_000L, r.pexpiretime("str!"));
        eq(null, r.dump("none"));
        eq("NOKEY", r.migrate(Main.HOST, Main.PORT, "none", 0, 1000));
        fails(REFUSED, "IOERR", () -> r.migrate("127.0.0.1", 1, 0, 300, MigrateArgs.Builder.key("str")));
    }
}
