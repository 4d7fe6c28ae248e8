import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.args.ListPosition;
import redis.clients.jedis.args.SortedSetOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.GeoAddParams;
import redis.clients.jedis.params.GeoRadiusParam;
import redis.clients.jedis.params.GeoRadiusStoreParam;
import redis.clients.jedis.params.GeoSearchParam;
import redis.clients.jedis.params.LPosParams;
import redis.clients.jedis.params.ZAddParams;
import redis.clients.jedis.params.ZIncrByParams;
import redis.clients.jedis.params.ZParams;
import redis.clients.jedis.params.ZRangeParams;
import redis.clients.jedis.resps.GeoRadiusResponse;
import redis.clients.jedis.resps.Tuple;
import redis.clients.jedis.util.KeyValue;

/** Hashes, lists, sets, sorted sets and geo. */
final class Types extends Check {
    static void hashes(RedisClient r) {
        eq(1L, r.hset("h", "f", "v"));
        eq(2L, r.hset("h", map("f", "w", "g", "x", "n", "1")));
        eq("w", r.hget("h", "f"));
        eq(null, r.hget("h", "none"));
        eq(0L, r.hsetnx("h", "f", "y"));
        eq(1L, r.hsetnx("h", "i", "y"));
        eq("OK", r.hmset("h", map("i", "z")));
        eq(list("w", null, "z"), r.hmget("h", "f", "none", "i"));
        eq(map("f", "w", "g", "x", "n", "1", "i", "z"), r.hgetAll("h"));
        eq(Map.of(), r.hgetAll("none"));
        eq(set("f", "g", "n", "i"), r.hkeys("h"));
        eq(set("w", "x", "1", "z"), new HashSet<>(r.hvals("h")));
        eq(4L, r.hlen("h"));
        eq(1L, r.hstrlen("h", "f"));
        eq(true, r.hexists("h", "f"));
        eq(false, r.hexists("h", "none"));
        eq(11L, r.hincrBy("h", "n", 10));
        near(11.5, r.hincrByFloat("h", "n", 0.5), 0);
        fails(JedisDataException.class, "ERR hash value is not an integer", () -> r.hincrBy("h", "f", 1));
        yes(r.hkeys("h").contains(r.hrandfield("h")));
        eq(4, new HashSet<>(r.hrandfield("h", 10)).size());
        eq(10, r.hrandfield("h", -10).size());
        List<Map.Entry<String, String>> drawn = r.hrandfieldWithValues("h", 2);
        eq(2, drawn.size());
        drawn.forEach(e -> eq(r.hget("h", e.getKey()), e.getValue()));
        eq(2L, r.hdel("h", "f", "g", "none"));
        eq(2L, r.hdel("h", "n", "i"));
        eq(false, r.exists("h"));
        for (int i = 0; i < 1000; i++) {
            r.hset("big", "field" + i, "value" + i);
        }
        eq("hashtable", r.objectEncoding("big"));
        eq(1000, r.hgetAll("big").size());
    }

    /** Redis has these since 7.4. Debian's server is older; FlintKV has them. */
    static void hashExpiry(RedisClient r) throws Exception {
        if (!Main.since72) {
            return;
        }
        r.hset("h", map("a", "1", "b", "2", "c", "3"));
        eq(list(1L, -2L), r.hexpire("h", 100, "a", "none"));
        eq(list(0L), r.hexpire("h", 200, ExpiryOption.NX, "a"));
        eq(list(1L), r.hpexpire("h", 200_000, ExpiryOption.GT, "a"));
        yes(r.httl("h", "a").get(0) > 190);
        yes(r.hpttl("h", "a").get(0) > 190_000);
        eq(list(-1L, -2L), r.httl("h", "b", "none"));
        eq(list(1L), r.hexpireAt("h", 4_000_000_000L, "b"));
        eq(list(4_000_000_000L), r.hexpireTime("h", "b"));
        eq(list(1L), r.hpexpireAt("h", 4_000_000_000_123L, "b"));
        eq(list(4_000_000_000_123L), r.hpexpireTime("h", "b"));
        eq(list(1L, -1L), r.hpersist("h", "b", "c"));
        eq(list(2L), r.hexpire("h", 0, "c"));
        eq(false, r.hexists("h", "c"));
        r.hpexpire("h", 20, "a");
        soon(() -> r.hget("h", "a") == null);
        eq(map("b", "2"), r.hgetAll("h"));
        eq(list(1L), r.hpexpire("h", 20, "b"));
        soon(() -> !r.exists("h"));
    }

    static void lists(RedisClient r) {
        eq(3L, r.rpush("l", "a", "b", "c"));
        eq(4L, r.lpush("l", "z"));
        eq(0L, r.lpushx("none", "x"));
        eq(0L, r.rpushx("none", "x"));
        eq(5L, r.rpushx("l", "d"));
        eq(6L, r.lpushx("l", "y"));
        eq(6L, r.llen("l"));
        eq(list("y", "z", "a", "b", "c", "d"), r.lrange("l", 0, -1));
        eq("y", r.lindex("l", 0));
        eq("d", r.lindex("l", -1));
        eq(null, r.lindex("l", 100));
        eq("OK", r.lset("l", 0, "x"));
        fails(JedisDataException.class, "ERR index out of range", () -> r.lset("l", 100, "x"));
        eq(7L, r.linsert("l", ListPosition.BEFORE, "a", "before"));
        eq(8L, r.linsert("l", ListPosition.AFTER, "a", "after"));
        eq(-1L, r.linsert("l", ListPosition.AFTER, "none", "x"));
        eq(3L, r.lpos("l", "a"));
        eq(null, r.lpos("l", "none"));
        r.rpush("l", "a");
        eq(8L, r.lpos("l", "a", LPosParams.lPosParams().rank(-1)));
        eq(list(3L, 8L), r.lpos("l", "a", LPosParams.lPosParams().maxlen(100), 0));
        eq(1L, r.lrem("l", -1, "a"));
        eq("x", r.lpop("l"));
        eq("d", r.rpop("l"));
        eq(list("z", "before"), r.lpop("l", 2));
        eq(list("c", "b"), r.rpop("l", 2));
        eq(null, r.lpop("none"));
        eq(null, r.lpop("none", 2));
        eq("OK", r.ltrim("l", 0, 0));
        eq(list("a"), r.lrange("l", 0, -1));
        r.rpush("src", "1", "2", "3");
        eq("3", r.rpoplpush("src", "dst"));
        eq("1", r.lmove("src", "dst", ListDirection.LEFT, ListDirection.RIGHT));
        eq(list("3", "1"), r.lrange("dst", 0, -1));
        eq(null, r.lmove("none", "dst", ListDirection.LEFT, ListDirection.RIGHT));
        KeyValue<String, List<String>> popped = r.lmpop(ListDirection.RIGHT, 5, "none", "dst");
        eq("dst", popped.getKey());
        eq(list("1", "3"), popped.getValue());
        eq(list("2"), r.lmpop(ListDirection.LEFT, "src").getValue());
        eq(null, r.lmpop(ListDirection.LEFT, "none"));
        String[] many = new String[5000];
        for (int i = 0; i < many.length; i++) {
            many[i] = "element " + i;
        }
        eq(5000L, r.rpush("big", many));
        eq("quicklist", r.objectEncoding("big"));
        eq("element 2500", r.lindex("big", 2500));
        eq(list(many), r.lrange("big", 0, -1));
    }

    /** Another connection of the pool serves the waiting client. */
    static void blocking(RedisClient r) throws Exception {
        r.rpush("l", "a", "b");
        eq(list("l", "a"), r.blpop(1, "none", "l"));
        eq(list("l", "b"), r.brpop(1, "none", "l"));
        eq(null, r.blpop(0.05, "none"));
        eq(null, r.blmove("none", "l", ListDirection.LEFT, ListDirection.LEFT, 0.05));
        eq(null, r.blmpop(0.05, ListDirection.LEFT, "none"));
        eq(null, r.bzpopmin(0.05, "none"));
        eq(null, r.bzmpop(0.05, SortedSetOption.MIN, "none"));

        var popped = CompletableFuture.supplyAsync(() -> r.blpop(5.0, "q1", "q2"));
        waiting(r, 1);
        eq(1L, r.rpush("q2", "late"));
        eq(KeyValue.of("q2", "late"), popped.get());
        eq(false, r.exists("q2"));
        var moved = CompletableFuture.supplyAsync(() -> r.brpoplpush("q1", "to", 5));
        waiting(r, 1);
        r.lpush("q1", "x");
        eq("x", moved.get());
        moved = CompletableFuture.supplyAsync(() ->
                r.blmove("q1", "to", ListDirection.LEFT, ListDirection.RIGHT, 5));
        waiting(r, 1);
        r.lpush("q1", "y");
        eq("y", moved.get());
        eq(list("x", "y"), r.lrange("to", 0, -1));
        var many = CompletableFuture.supplyAsync(() -> r.blmpop(5, ListDirection.LEFT, 2, "q1", "q2"));
        waiting(r, 1);
        r.rpush("q1", "1", "2", "3");
        eq(list("1", "2"), many.get().getValue());
        var min = CompletableFuture.supplyAsync(() -> r.bzpopmin(5, "z1", "z2"));
        waiting(r, 1);
        r.zadd("z2", 2, "m");
        eq(new Tuple("m", 2.0), min.get().getValue());
        r.zadd("z1", 1, "m");
        eq("m", r.bzpopmax(1, "z1").getValue().getElement());
        var both = CompletableFuture.supplyAsync(() -> r.bzmpop(5, SortedSetOption.MAX, 2, "z1", "z2"));
        waiting(r, 1);
        r.zadd("z1", Map.of("a", 1.0, "b", 2.0, "c", 3.0));
        eq(list(new Tuple("c", 3.0), new Tuple("b", 2.0)), both.get().getValue());

        // First come, first served.
        var first = CompletableFuture.supplyAsync(() -> r.blpop(5.0, "fifo"));
        waiting(r, 1);
        var second = CompletableFuture.supplyAsync(() -> r.blpop(5.0, "fifo"));
        waiting(r, 2);
        r.rpush("fifo", "1", "2");
        eq("1", first.get().getValue());
        eq("2", second.get().getValue());
    }

    static void waiting(RedisClient r, int clients) throws Exception {
        soon(() -> r.info("clients").contains("blocked_clients:" + clients + "\r"));
    }

    static void sets(RedisClient r) {
        eq(3L, r.sadd("s", "a", "b", "c"));
        eq(0L, r.sadd("s", "a"));
        eq(3L, r.scard("s"));
        eq(set("a", "b", "c"), r.smembers("s"));
        eq(true, r.sismember("s", "a"));
        eq(false, r.sismember("s", "z"));
        eq(list(true, false), r.smismember("s", "a", "z"));
        eq(1L, r.srem("s", "a", "z"));
        eq(1L, r.smove("s", "t", "b"));
        eq(0L, r.smove("s", "t", "none"));
        yes(set("c").contains(r.srandmember("s")));
        r.sadd("s", "d", "e");
        eq(3, new HashSet<>(r.srandmember("s", 10)).size());
        eq(7, r.srandmember("s", -7).size());
        eq(2, r.spop("s", 2).size());
        yes(set("c", "d", "e").contains(r.spop("s")));
        eq(null, r.spop("s"));
        r.sadd("x", "1", "2", "3");
        r.sadd("y", "2", "3", "4");
        r.sadd("z", "3");
        eq(set("2", "3"), r.sinter("x", "y"));
        eq(set("1", "2", "3", "4"), r.sunion("x", "y"));
        eq(set("1"), r.sdiff("x", "y"));
        eq(set(), r.sinter("x", "none"));
        eq(2L, r.sintercard("x", "y"));
        eq(1L, r.sintercard(1, "x", "y"));
        eq(1L, r.sinterstore("dst", "x", "y", "z"));
        eq(4L, r.sunionstore("dst", "x", "y"));
        eq(1L, r.sdiffstore("dst", "x", "y"));
        eq(set("1"), r.smembers("dst"));
        String[] many = new String[3000];
        for (int i = 0; i < many.length; i++) {
            many[i] = "member" + i;
        }
        eq(3000L, r.sadd("big", many));
        eq(set(many), r.smembers("big"));
        eq(0L, r.sdiffstore("dst", "big", "big"));
        eq(false, r.exists("dst"));
    }

    static void sortedSets(RedisClient r) {
        eq(1L, r.zadd("z", 1, "a"));
        eq(2L, r.zadd("z", Map.of("b", 2.0, "c", 3.0)));
        eq(0L, r.zadd("z", 9, "a", ZAddParams.zAddParams().nx()));
        eq(1L, r.zadd("z", 4, "c", ZAddParams.zAddParams().xx().ch()));
        eq(0L, r.zadd("z", 3, "c", ZAddParams.zAddParams().gt().ch()));
        eq(1L, r.zadd("z", Map.of("c", 3.0), ZAddParams.zAddParams().lt().ch()));
        near(3.5, r.zaddIncr("z", 0.5, "c", ZAddParams.zAddParams()), 0);
        eq(null, r.zaddIncr("z", 1, "new", ZAddParams.zAddParams().xx()));
        near(3, r.zincrby("z", -0.5, "c"), 0);
        near(2.5, r.zincrby("z", 0.5, "b", ZIncrByParams.zIncrByParams().xx()), 0);
        eq(3L, r.zcard("z"));
        eq(1.0, r.zscore("z", "a"));
        eq(null, r.zscore("z", "none"));
        eq(list(1.0, null, 3.0), r.zmscore("z", "a", "none", "c"));
        eq(0L, r.zrank("z", "a"));
        eq(2L, r.zrevrank("z", "a"));
        eq(null, r.zrank("z", "none"));
        if (Main.since72) {
            eq(KeyValue.of(1L, 2.5), r.zrankWithScore("z", "b"));
            eq(KeyValue.of(0L, 3.0), r.zrevrankWithScore("z", "c"));
            eq(null, r.zrankWithScore("z", "none"));
        }
        eq(2L, r.zcount("z", 1, 2.5));
        eq(1L, r.zcount("z", "(1", "(3"));
        yes(set("a", "b", "c").contains(r.zrandmember("z")));
        eq(3, r.zrandmember("z", 10).size());
        eq(5, r.zrandmemberWithScores("z", -5).size());
        eq(new Tuple("a", 1.0), r.zpopmin("z"));
        eq(new Tuple("c", 3.0), r.zpopmax("z"));
        r.zadd("z", Map.of("x", 1.0, "y", 2.0));
        eq(list(new Tuple("x", 1.0), new Tuple("y", 2.0)), r.zpopmin("z", 2));
        eq(list(new Tuple("b", 2.5)), r.zpopmax("z", 2));
        eq(false, r.exists("z"));
        r.zadd("z", Map.of("inf", Double.POSITIVE_INFINITY, "-inf", Double.NEGATIVE_INFINITY, "small", 1e-300));
        eq(Double.POSITIVE_INFINITY, r.zscore("z", "inf"));
        eq(1e-300, r.zscore("z", "small"));
        fails(JedisDataException.class, "resulting score is not a number", () ->
                r.zincrby("z", Double.NEGATIVE_INFINITY, "inf"));

        r.zadd("p", Map.of("a", 1.0, "b", 2.0));
        r.zadd("q", Map.of("b", 3.0, "c", 4.0));
        eq(list("a"), r.zdiff("p", "q"));
        eq(list(new Tuple("a", 1.0)), r.zdiffWithScores("p", "q"));
        eq(list("b"), r.zinter(new ZParams(), "p", "q"));
        eq(list(new Tuple("b", 11.0)), r.zinterWithScores(new ZParams().weights(1, 3), "p", "q"));
        eq(list(new Tuple("a", 1.0), new Tuple("b", 2.0), new Tuple("c", 4.0)),
                r.zunionWithScores(new ZParams().aggregate(ZParams.Aggregate.MIN), "p", "q"));
        eq(list("a", "c", "b"), r.zunion(new ZParams(), "p", "q"));
        eq(1L, r.zintercard("p", "q"));
        eq(1L, r.zintercard(1, "p", "q"));
        eq(1L, r.zdiffstore("dst", "p", "q"));
        eq(1L, r.zdiffStore("dst", "p", "q"));
        eq(1L, r.zinterstore("dst", "p", "q"));
        eq(1L, r.zinterstore("dst", new ZParams().aggregate(ZParams.Aggregate.MAX), "p", "q"));
        eq(3.0, r.zscore("dst", "b"));
        eq(3L, r.zunionstore("dst", "p", "q"));
        eq(3L, r.zunionstore("dst", new ZParams().weights(2, 1), "p", "q"));
        eq(7.0, r.zscore("dst", "b"));
        var popped = r.zmpop(SortedSetOption.MAX, 2, "none", "dst");
        eq("dst", popped.getKey());
        eq(list(new Tuple("b", 7.0), new Tuple("c", 4.0)), popped.getValue());
        eq(null, r.zmpop(SortedSetOption.MIN, "none"));
        eq(1L, r.zrem("p", "a", "none"));
    }

    static void sortedSetRanges(RedisClient r) {
        for (int i = 0; i < 500; i++) {
            r.zadd("z", i, String.format("m%03d", i));
        }
        eq("skiplist", r.objectEncoding("z"));
        eq(list("m000", "m001"), r.zrange("z", 0, 1));
        eq(list("m499", "m498"), r.zrevrange("z", 0, 1));
        eq(list(new Tuple("m498", 498.0), new Tuple("m499", 499.0)), r.zrangeWithScores("z", -2, -1));
        eq(list(new Tuple("m499", 499.0)), r.zrevrangeWithScores("z", 0, 0));
        eq(list("m010", "m011"), r.zrangeByScore("z", 10, 11));
        eq(list("m011"), r.zrangeByScore("z", "(10", "(12"));
        eq(list("m012", "m013"), r.zrangeByScore("z", 10, 20, 2, 2));
        eq(list("m499"), r.zrangeByScore("z", "(498", "+inf"));
        eq(list("m011", "m010"), r.zrevrangeByScore("z", 11, 10));
        eq(list(new Tuple("m010", 10.0)), r.zrangeByScoreWithScores("z", 10, 10));
        eq(list(new Tuple("m019", 19.0)), r.zrevrangeByScoreWithScores("z", 20, 10, 1, 1));
        eq(list("m019"), r.zrange("z", ZRangeParams.zrangeByScoreParams(20, 10).rev().limit(1, 1)));
        eq(list("m498"), r.zrange("z", ZRangeParams.zrangeParams(1, 1).rev()));
        eq(3L, r.zrangestore("dst", "z", ZRangeParams.zrangeParams(0, 2)));
        eq(list(new Tuple("m000", 0.0), new Tuple("m001", 1.0), new Tuple("m002", 2.0)),
                r.zrangeWithScores("dst", ZRangeParams.zrangeByScoreParams(0, 5)));
        eq(2L, r.zremrangeByRank("z", 0, 1));
        eq(3L, r.zremrangeByScore("z", 2, 4));
        eq(2L, r.zremrangeByScore("z", "(4", "6"));
        eq(493L, r.zcard("z"));

        for (String m : "abcdef".split("")) {
            r.zadd("lex", 0, m);
        }
        eq(4L, r.zlexcount("lex", "[b", "[e"));
        eq(list("b", "c"), r.zrangeByLex("lex", "(a", "(d"));
        eq(list("d"), r.zrangeByLex("lex", "(a", "+", 2, 1));
        eq(list("c", "b"), r.zrevrangeByLex("lex", "[c", "(a"));
        eq(list("a", "b"), r.zrange("lex", ZRangeParams.zrangeByLexParams("-", "[b")));
        eq(2L, r.zremrangeByLex("lex", "-", "(c"));
        fails(JedisDataException.class, "ERR min or max not valid string range item", () ->
                r.zrangeByLex("lex", "a", "b"));
        fails(JedisDataException.class, "ERR min or max is not a float", () -> r.zrangeByScore("z", "x", "y"));
    }

    static void geo(RedisClient r) {
        eq(1L, r.geoadd("sicily", 13.361389, 38.115556, "Palermo"));
        eq(1L, r.geoadd("sicily", Map.of("Catania", new GeoCoordinate(15.087269, 37.502669))));
        eq(0L, r.geoadd("sicily", GeoAddParams.geoAddParams().nx(),
                Map.of("Catania", new GeoCoordinate(15, 37))));
        eq(1L, r.geoadd("sicily", GeoAddParams.geoAddParams().ch(),
                Map.of("Edge", new GeoCoordinate(12.758489, 38.788135))));
        near(166274.1516, r.geodist("sicily", "Palermo", "Catania"), 0.001);
        near(166.2742, r.geodist("sicily", "Palermo", "Catania", GeoUnit.KM), 0.001);
        eq(null, r.geodist("sicily", "Palermo", "none"));
        eq(list("sqc8b49rny0", "sqdtr74hyu0", null), r.geohash("sicily", "Palermo", "Catania", "none"));
        List<GeoCoordinate> at = r.geopos("sicily", "Palermo", "none");
        near(13.361389, at.get(0).getLongitude(), 1e-5);
        near(38.115556, at.get(0).getLatitude(), 1e-5);
        eq(null, at.get(1));
        eq(2, r.georadius("sicily", 15, 37, 200, GeoUnit.KM).size());
        eq(3, r.georadiusReadonly("sicily", 15, 37, 1000, GeoUnit.KM).size());
        List<GeoRadiusResponse> near = r.georadius("sicily", 15, 37, 200, GeoUnit.KM,
                GeoRadiusParam.geoRadiusParam().withCoord().withDist().withHash().sortAscending().count(1));
        eq("Catania", near.get(0).getMemberByString());
        near(56.4413, near.get(0).getDistance(), 1e-3);
        near(15.087269, near.get(0).getCoordinate().getLongitude(), 1e-5);
        eq(3479447370796909L, near.get(0).getRawScore());
        eq(2, r.georadiusByMember("sicily", "Palermo", 100, GeoUnit.KM).size());
        eq("Edge", r.georadiusByMemberReadonly("sicily", "Palermo", 200, GeoUnit.KM,
                GeoRadiusParam.geoRadiusParam().sortDescending()).get(1).getMemberByString());
        eq(2L, r.georadiusStore("sicily", 15, 37, 200, GeoUnit.KM, GeoRadiusParam.geoRadiusParam(),
                GeoRadiusStoreParam.geoRadiusStoreParam().store("dst")));
        eq(2L, r.georadiusByMemberStore("sicily", "Palermo", 100, GeoUnit.KM, GeoRadiusParam.geoRadiusParam(),
                GeoRadiusStoreParam.geoRadiusStoreParam().storeDist("dst")));
        eq(0.0, r.zscore("dst", "Palermo"));
        eq(2, r.geosearch("sicily", new GeoCoordinate(15, 37), 200, GeoUnit.KM).size());
        eq(2, r.geosearch("sicily", "Palermo", 300, 200, GeoUnit.KM).size());
        List<GeoRadiusResponse> box = r.geosearch("sicily", GeoSearchParam.geoSearchParam().fromLonLat(15, 37)
                .byBox(400, 400, GeoUnit.KM).asc().withDist().withCoord().withHash().count(3));
        eq(list("Catania", "Palermo", "Edge"), box.stream().map(GeoRadiusResponse::getMemberByString).toList());
        near(190.4424, box.get(1).getDistance(), 1e-3);
        eq(2L, r.geosearchStore("dst", "sicily", new GeoCoordinate(15, 37), 200, GeoUnit.KM));
        eq(1L, r.geosearchStoreStoreDist("dst", "sicily",
                GeoSearchParam.geoSearchParam().fromMember("Catania").byRadius(1, GeoUnit.MI)));
        fails(JedisDataException.class, "ERR invalid longitude,latitude pair", () -> r.geoadd("sicily", 200, 100, "x"));
    }
}
