import java.util.List;
import java.util.Map;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.ZRangeParams;
import redis.clients.jedis.resps.Tuple;

/** Many commands at once: pipelines, MULTI, WATCH. */
final class Grouped extends Check {
    static void pipelines(RedisClient r) {
        try (AbstractPipeline p = r.pipelined()) {
            Response<String> set = p.set("s", "v");
            Response<String> get = p.get("s");
            Response<Long> incr = p.incr("n");
            Response<List<String>> mget = p.mget("s", "none");
            Response<Boolean> bit = p.setbit("b", 3, true);
            Response<Long> bits = p.bitop(BitOP.NOT, "b2", "b");
            Response<Long> push = p.rpush("l", "a", "b");
            Response<String> move = p.lmove("l", "l2", ListDirection.LEFT, ListDirection.LEFT);
            Response<List<String>> range = p.lrange("l", 0, -1);
            Response<Long> hset = p.hset("h", map("f", "1"));
            Response<Map<String, String>> hash = p.hgetAll("h");
            Response<Long> sadd = p.sadd("set", "m");
            Response<java.util.Set<String>> members = p.smembers("set");
            Response<Long> zadd = p.zadd("z", 2, "m");
            Response<List<Tuple>> scored = p.zrangeWithScores("z", ZRangeParams.zrangeParams(0, -1));
            Response<Long> geo = p.geoadd("g", 13.36, 38.11, "here");
            Response<Double> dist = p.geodist("g", "here", "here", GeoUnit.KM);
            Response<Long> pf = p.pfadd("hll", "x");
            Response<String> wrong = p.get("l");
            Response<Long> published = p.publish("nobody", "hears");
            var scan = p.sscan("set", "0", new ScanParams());
            Response<Boolean> exists = p.exists("s");
            Response<String> type = p.type("z");
            Response<Long> ttl = p.ttl("s");
            Response<Long> del = p.del("s", "n");
            fails(IllegalStateException.class, "", set::get);
            p.sync();
            eq("OK", set.get());
            eq("v", get.get());
            eq(1L, incr.get());
            eq(list("v", null), mget.get());
            eq(false, bit.get());
            eq(1L, bits.get());
            eq(2L, push.get());
            eq("a", move.get());
            eq(list("b"), range.get());
            eq(1L, hset.get());
            eq(map("f", "1"), hash.get());
            eq(1L, sadd.get());
            eq(set("m"), members.get());
            eq(1L, zadd.get());
            eq(list(new Tuple("m", 2.0)), scored.get());
            eq(1L, geo.get());
            near(0, dist.get(), 0);
            eq(1L, pf.get());
            fails(JedisDataException.class, "WRONGTYPE", wrong::get);
            eq(0L, published.get());
            eq(list("m"), scan.get().getResult());
            eq(true, exists.get());
            eq("zset", type.get());
            eq(-1L, ttl.get());
            eq(2L, del.get());

            Response<StreamEntryID> id = p.xadd("x", new StreamEntryID(1, 1), map("f", "v"));
            Response<Object> script = p.eval("return KEYS[1]", List.of("k"), List.of());
            p.sync();
            eq(new StreamEntryID(1, 1), id.get());
            eq("k", script.get());
        }
        try (Pipeline p = r.pipelined()) {
            for (int i = 0; i < 10_000; i++) {
                p.set("key" + i, "value" + i);
            }
            for (int i = 0; i < 10_000; i++) {
                p.get("key" + i);
            }
            List<Object> replies = p.syncAndReturnAll();
            eq(20_000, replies.size());
            for (int i = 0; i < 10_000; i++) {
                eq("value" + i, replies.get(10_000 + i));
            }
        }
    }

    static void transactions(RedisClient r) {
        try (AbstractTransaction t = r.multi()) {
            Response<String> set = t.set("k", "v");
            Response<Long> push = t.rpush("l", "a", "b");
            Response<List<String>> range = t.lrange("l", 0, -1);
            Response<Map<String, String>> none = t.hgetAll("none");
            Response<Double> score = t.zincrby("z", 1.5, "m");
            eq(list("OK", 2L, list("a", "b"), Map.of(), 1.5), t.exec());
            eq("OK", set.get());
            eq(2L, push.get());
            eq(list("a", "b"), range.get());
            eq(Map.of(), none.get());
            eq(1.5, score.get());
        }
        try (AbstractTransaction t = r.multi()) {
            t.set("k", "discarded");
            eq("OK", t.discard());
        }
        eq("v", r.get("k"));
        // An error of one command does not undo the others.
        try (AbstractTransaction t = r.multi()) {
            Response<Long> wrong = t.incr("l");
            Response<String> set = t.set("k", "after");
            List<Object> replies = t.exec();
            yes(replies.get(0) instanceof JedisDataException);
            eq("OK", set.get());
            fails(JedisDataException.class, "WRONGTYPE", wrong::get);
        }
        eq("after", r.get("k"));
        // A command is refused while queued, so nothing runs.
        try (AbstractTransaction t = r.multi()) {
            t.set("k", "never");
            t.sendCommand(() -> "NOSUCH".getBytes(), new String[0]);
            fails(JedisDataException.class, "EXECABORT", t::exec);
        }
        eq("after", r.get("k"));
        // WATCH before MULTI.
        try (AbstractTransaction t = r.transaction(false)) {
            eq("OK", t.watch("k"));
            t.multi();
            t.set("k", "won");
            eq(list("OK"), t.exec());
            t.watch("k");
            r.set("k", "changed");
            t.multi();
            t.set("k", "lost");
            eq(null, t.exec());
        }
        eq("changed", r.get("k"));
    }

    static void watch(Jedis j) throws Exception {
        try (Jedis other = Main.connect(redis.clients.jedis.RedisProtocol.RESP2)) {
            for (String change : new String[] {"set", "del", "expire", "flush", "none"}) {
                j.set("w", "1");
                eq("OK", j.watch("w", "none"));
                switch (change) {
                    case "set" -> other.set("w", "2");
                    case "del" -> other.del("w");
                    case "expire" -> other.pexpire("w", 100_000);
                    case "flush" -> other.flushDB();
                    default -> other.get("w");
                }
                Transaction t = j.multi();
                t.set("x", "1");
                eq(change.equals("none") ? list("OK") : null, t.exec());
            }
            j.watch("w");
            other.set("w", "3");
            eq("OK", j.unwatch());
            Transaction t = j.multi();
            t.get("w");
            eq(list("3"), t.exec());
            // A watched key that is created.
            j.watch("fresh");
            other.rpush("fresh", "x");
            t = j.multi();
            t.get("w");
            eq(null, t.exec());
            // The client's own write counts too.
            j.watch("w");
            j.set("w", "own");
            t = j.multi();
            t.get("w");
            eq(null, t.exec());
        }
    }
}
