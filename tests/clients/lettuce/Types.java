import io.lettuce.core.ExpireArgs;
import io.lettuce.core.GeoAddArgs;
import io.lettuce.core.GeoArgs;
import io.lettuce.core.GeoRadiusStoreArgs;
import io.lettuce.core.GeoSearch;
import io.lettuce.core.GeoValue;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LMPopArgs;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.LPosArgs;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.Value;
import io.lettuce.core.ZPopArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.time.Instant;
import java.util.HashSet;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Hashes, lists, sets and geo. */
final class Types extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    static void hashes(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(true, r.hset("h", "f", "v"));
        eq(false, r.hset("h", "f", "w"));
        eq(2L, r.hset("h", map("g", "x", "n", "1")));
        eq("w", r.hget("h", "f"));
        eq(null, r.hget("h", "none"));
        eq(false, r.hsetnx("h", "f", "y"));
        eq(true, r.hsetnx("h", "i", "y"));
        eq("OK", r.hmset("h", map("i", "z")));
        eq(list(KeyValue.just("f", "w"), KeyValue.empty("none")), r.hmget("h", "f", "none"));
        eq(map("f", "w", "g", "x", "n", "1", "i", "z"), r.hgetall("h"));
        eq(Map.of(), r.hgetall("none"));
        eq(set("f", "g", "n", "i"), new HashSet<>(r.hkeys("h")));
        eq(set("w", "x", "1", "z"), new HashSet<>(r.hvals("h")));
        eq(4L, r.hlen("h"));
        eq(1L, r.hstrlen("h", "f"));
        eq(true, r.hexists("h", "f"));
        eq(11L, r.hincrby("h", "n", 10));
        near(11.5, r.hincrbyfloat("h", "n", 0.5), 0);
        yes(r.hexists("h", r.hrandfield("h")));
        eq(4, r.hrandfield("h", 10).size());
        KeyValue<String, String> one = r.hrandfieldWithvalues("h");
        eq(r.hget("h", one.getKey()), one.getValue());
        for (KeyValue<String, String> kv : r.hrandfieldWithvalues("h", -7)) {
            eq(r.hget("h", kv.getKey()), kv.getValue());
        }
        eq(4L, r.hdel("h", "f", "g", "n", "i", "none"));
        eq(0L, r.exists("h"));
    }

    /** Redis has these since 7.4. Debian's server is older; FlintKV has them. */
    static void hashExpiry(Main.Session s) throws Exception {
        if (!Main.since72) {
            return;
        }
        RedisCommands<String, String> r = s.r;
        r.hset("h", map("a", "1", "b", "2", "c", "3"));
        eq(list(1L, -2L), r.hexpire("h", 100, "a", "none"));
        eq(list(0L), r.hexpire("h", Duration.ofSeconds(200), ExpireArgs.Builder.nx(), "a"));
        eq(list(1L), r.hpexpire("h", 200_000, ExpireArgs.Builder.gt(), "a"));
        yes(r.httl("h", "a").get(0) > 190);
        yes(r.hpttl("h", "a").get(0) > 190_000);
        eq(list(1L), r.hexpireat("h", Instant.ofEpochSecond(4_000_000_000L), "b"));
        eq(list(4_000_000_000L), r.hexpiretime("h", "b"));
        eq(list(1L), r.hpexpireat("h", 4_000_000_000_123L, "b"));
        eq(list(4_000_000_000_123L), r.hpexpiretime("h", "b"));
        eq(list(1L, -1L, -2L), r.hpersist("h", "b", "c", "none"));
        eq(list(2L), r.hexpire("h", 0, "c"));
        r.hpexpire("h", 20, "a");
        soon(() -> r.hget("h", "a") == null);
        eq(map("b", "2"), r.hgetall("h"));
    }

    static void lists(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(3L, r.rpush("l", "a", "b", "c"));
        eq(4L, r.lpush("l", "z"));
        eq(0L, r.lpushx("none", "x"));
        eq(0L, r.rpushx("none", "x"));
        eq(4L, r.llen("l"));
        eq(list("z", "a", "b", "c"), r.lrange("l", 0, -1));
        eq("c", r.lindex("l", -1));
        eq(null, r.lindex("l", 100));
        eq("OK", r.lset("l", 0, "y"));
        fails(REFUSED, "ERR index out of range", () -> r.lset("l", 100, "x"));
        eq(5L, r.linsert("l", true, "a", "before"));
        eq(6L, r.linsert("l", false, "a", "after"));
        r.rpush("l", "a");
        eq(2L, r.lpos("l", "a"));
        eq(6L, r.lpos("l", "a", LPosArgs.Builder.rank(-1)));
        eq(list(2L, 6L), r.lpos("l", "a", 0));
        eq(list(2L), r.lpos("l", "a", 0, LPosArgs.Builder.maxlen(4)));
        eq(null, r.lpos("l", "none"));
        eq(1L, r.lrem("l", -1, "a"));
        eq("y", r.lpop("l"));
        eq("c", r.rpop("l"));
        eq(list("before", "a"), r.lpop("l", 2));
        eq(list("b", "after"), r.rpop("l", 5));
        eq(null, r.lpop("l"));
        eq(list(), r.lpop("l", 2));
        r.rpush("src", "1", "2", "3");
        eq("3", r.rpoplpush("src", "dst"));
        eq("1", r.lmove("src", "dst", LMoveArgs.Builder.leftRight()));
        eq(KeyValue.just("dst", list("1", "3")), r.lmpop(LMPopArgs.Builder.right().count(5), "none", "dst"));
        eq(null, r.lmpop(LMPopArgs.Builder.left(), "none"));
        eq("OK", r.ltrim("src", 1, 0));
        eq(0L, r.exists("src"));
        for (int i = 0; i < 1000; i++) {
            r.rpush("big", "element " + i);
        }
        eq("element 500", r.lindex("big", 500));
        eq(1000, r.lrange("big", 0, -1).size());
    }

    /** Another connection serves the waiting client. */
    static void blocking(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        RedisCommands<String, String> w = s.another();
        r.rpush("l", "a", "b");
        eq(KeyValue.just("l", "a"), w.blpop(1, "none", "l"));
        eq(KeyValue.just("l", "b"), w.brpop(1, "none", "l"));
        eq(null, w.blpop(0.05, "none"));
        eq(null, w.brpoplpush(0.05, "none", "l"));
        eq(null, w.bzpopmin(0.05, "none"));
        eq(null, w.blmpop(0.05, LMPopArgs.Builder.left(), "none"));

        var popped = CompletableFuture.supplyAsync(() -> w.brpop(5.0, "q1", "q2"));
        waiting(r, 1);
        eq(1L, r.rpush("q2", "late"));
        eq(KeyValue.just("q2", "late"), popped.get());
        var moved = CompletableFuture.supplyAsync(() -> w.brpoplpush(5L, "q1", "to"));
        waiting(r, 1);
        r.lpush("q1", "x");
        eq("x", moved.get());
        moved = CompletableFuture.supplyAsync(() -> w.blmove("q1", "to", LMoveArgs.Builder.leftRight(), 5.0));
        waiting(r, 1);
        r.lpush("q1", "y");
        eq("y", moved.get());
        eq(list("x", "y"), r.lrange("to", 0, -1));
        var many = CompletableFuture.supplyAsync(() -> w.blmpop(5, LMPopArgs.Builder.left().count(2), "q1", "q2"));
        waiting(r, 1);
        r.rpush("q1", "1", "2", "3");
        eq(KeyValue.just("q1", list("1", "2")), many.get());
        var min = CompletableFuture.supplyAsync(() -> w.bzpopmin(5L, "z1", "z2"));
        waiting(r, 1);
        r.zadd("z2", 2, "m");
        eq(KeyValue.just("z2", ScoredValue.just(2, "m")), min.get());
        var max = CompletableFuture.supplyAsync(() -> w.bzpopmax(5.0, "z1", "z2"));
        waiting(r, 1);
        r.zadd("z1", ScoredValue.just(1, "a"), ScoredValue.just(2, "b"), ScoredValue.just(3, "c"));
        eq(KeyValue.just("z1", ScoredValue.just(3, "c")), max.get());
        eq(KeyValue.just("z1", list(ScoredValue.just(1, "a"), ScoredValue.just(2, "b"))),
                w.bzmpop(1L, 5L, ZPopArgs.Builder.min(), "none", "z1"));
        var one = CompletableFuture.supplyAsync(() -> w.bzmpop(5L, ZPopArgs.Builder.max(), "z1"));
        waiting(r, 1);
        r.zadd("z1", 7, "x");
        eq(KeyValue.just("z1", ScoredValue.just(7, "x")), one.get());

        RedisCommands<String, String> w2 = s.another();
        var first = CompletableFuture.supplyAsync(() -> w.blpop(5.0, "fifo"));
        waiting(r, 1);
        var second = CompletableFuture.supplyAsync(() -> w2.blpop(5.0, "fifo"));
        waiting(r, 2);
        r.rpush("fifo", "1", "2");
        eq("1", first.get().getValue());
        eq("2", second.get().getValue());
    }

    static void waiting(RedisCommands<String, String> r, int clients) throws Exception {
        soon(() -> r.info("clients").contains("blocked_clients:" + clients + "\r"));
    }

    static void sets(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(3L, r.sadd("s", "a", "b", "c"));
        eq(3L, r.scard("s"));
        eq(set("a", "b", "c"), r.smembers("s"));
        eq(true, r.sismember("s", "a"));
        eq(list(true, false), r.smismember("s", "a", "z"));
        eq(1L, r.srem("s", "a", "z"));
        eq(true, r.smove("s", "t", "b"));
        eq(false, r.smove("s", "t", "none"));
        eq("c", r.srandmember("s"));
        r.sadd("s", "d", "e");
        eq(3, r.srandmember("s", 10).size());
        eq(7, r.srandmember("s", -7).size());
        eq(2, r.spop("s", 2).size());
        yes(set("c", "d", "e").contains(r.spop("s")));
        eq(null, r.spop("s"));
        r.sadd("x", "1", "2", "3");
        r.sadd("y", "2", "3", "4");
        eq(set("2", "3"), r.sinter("x", "y"));
        eq(set("1", "2", "3", "4"), r.sunion("x", "y"));
        eq(set("1"), r.sdiff("x", "y"));
        eq(2L, r.sintercard("x", "y"));
        eq(1L, r.sintercard(1, "x", "y"));
        eq(2L, r.sinterstore("dst", "x", "y"));
        eq(4L, r.sunionstore("dst", "x", "y"));
        eq(1L, r.sdiffstore("dst", "x", "y"));
        eq(set("1"), r.smembers("dst"));
    }

    static void geo(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(1L, r.geoadd("sicily", 13.361389, 38.115556, "Palermo"));
        eq(1L, r.geoadd("sicily", GeoValue.just(15.087269, 37.502669, "Catania")));
        eq(0L, r.geoadd("sicily", 15, 37, "Catania", GeoAddArgs.Builder.nx()));
        near(166274.1516, r.geodist("sicily", "Palermo", "Catania", GeoArgs.Unit.m), 0.001);
        near(103.3182, r.geodist("sicily", "Palermo", "Catania", GeoArgs.Unit.mi), 0.001);
        eq(list(Value.just("sqc8b49rny0"), Value.empty()), r.geohash("sicily", "Palermo", "none"));
        var at = r.geopos("sicily", "Palermo", "none");
        near(13.361389, at.get(0).getX().doubleValue(), 1e-5);
        eq(null, at.get(1));
        eq(set("Palermo", "Catania"), r.georadius("sicily", 15, 37, 200, GeoArgs.Unit.km));
        GeoArgs nearest = GeoArgs.Builder.full().asc().withCount(1);
        var near = r.georadius("sicily", 15, 37, 200, GeoArgs.Unit.km, nearest).get(0);
        eq("Catania", near.getMember());
        near(56.4413, near.getDistance(), 1e-3);
        near(15.087269, near.getCoordinates().getX().doubleValue(), 1e-5);
        eq(3479447370796909L, near.getGeohash());
        eq(set("Palermo"), r.georadiusbymember("sicily", "Palermo", 10, GeoArgs.Unit.km));
        eq(2, r.georadiusbymember("sicily", "Palermo", 200, GeoArgs.Unit.km, GeoArgs.Builder.distance()).size());
        eq(2L, r.georadius("sicily", 15, 37, 200, GeoArgs.Unit.km, GeoRadiusStoreArgs.Builder.store("dst")));
        eq(1L, r.georadiusbymember("sicily", "Palermo", 10, GeoArgs.Unit.km,
                GeoRadiusStoreArgs.Builder.withStoreDist("dst")));
        eq(0.0, r.zscore("dst", "Palermo"));
        eq(set("Palermo", "Catania"), r.geosearch("sicily", GeoSearch.fromCoordinates(15, 37),
                GeoSearch.byBox(400, 400, GeoArgs.Unit.km)));
        var box = r.geosearch("sicily", GeoSearch.fromMember("Palermo"), GeoSearch.byRadius(200, GeoArgs.Unit.km),
                new GeoArgs().withDistance().desc());
        eq("Catania", box.get(0).getMember());
        near(166.2742, box.get(0).getDistance(), 1e-3);
        eq(2L, r.geosearchstore("dst", "sicily", GeoSearch.fromMember("Palermo"),
                GeoSearch.byRadius(200, GeoArgs.Unit.km), new GeoArgs(), true));
        near(166.2742, r.zscore("dst", "Catania"), 1e-3);
        fails(REFUSED, "ERR invalid longitude,latitude pair", () -> r.geoadd("sicily", 200, 100, "x"));
    }
}
