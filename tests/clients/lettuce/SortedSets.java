import io.lettuce.core.KeyValue;
import io.lettuce.core.Limit;
import io.lettuce.core.Range;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.ZAddArgs;
import io.lettuce.core.ZAggregateArgs;
import io.lettuce.core.ZPopArgs;
import io.lettuce.core.ZStoreArgs;
import io.lettuce.core.api.sync.RedisCommands;

/** Sorted sets. */
final class SortedSets extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    private static ScoredValue<String> m(double score, String member) {
        return ScoredValue.just(score, member);
    }

    static void sortedSets(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq(1L, r.zadd("z", 1, "a"));
        eq(2L, r.zadd("z", m(2, "b"), m(3, "c")));
        eq(0L, r.zadd("z", ZAddArgs.Builder.nx(), 9, "a"));
        eq(1L, r.zadd("z", ZAddArgs.Builder.xx().ch(), m(4, "c")));
        eq(0L, r.zadd("z", ZAddArgs.Builder.gt().ch(), 3, "c"));
        eq(1L, r.zadd("z", ZAddArgs.Builder.lt().ch(), 3, "c"));
        near(3.5, r.zaddincr("z", 0.5, "c"), 0);
        eq(null, r.zaddincr("z", ZAddArgs.Builder.xx(), 1, "new"));
        near(3, r.zincrby("z", -0.5, "c"), 0);
        eq(3L, r.zcard("z"));
        eq(1.0, r.zscore("z", "a"));
        eq(null, r.zscore("z", "none"));
        eq(list(1.0, null, 3.0), r.zmscore("z", "a", "none", "c"));
        eq(0L, r.zrank("z", "a"));
        eq(2L, r.zrevrank("z", "a"));
        eq(null, r.zrank("z", "none"));
        if (Main.since72 && s.client == Main.RESP3) {
            // Lettuce loses the score if RESP2 sends it as text.
            eq(ScoredValue.just(2.0, 1L), r.zrankWithScore("z", "b"));
            eq(ScoredValue.just(3.0, 0L), r.zrevrankWithScore("z", "c"));
        }
        eq(2L, r.zcount("z", Range.create(1, 2)));
        eq(1L, r.zcount("z", Range.<Integer>unbounded().gt(1).lt(3)));
        yes(set("a", "b", "c").contains(r.zrandmember("z")));
        eq(3, r.zrandmember("z", 10).size());
        yes(r.zrandmemberWithScores("z").getScore() >= 1);
        eq(5, r.zrandmemberWithScores("z", -5).size());
        eq(m(1, "a"), r.zpopmin("z"));
        eq(m(3, "c"), r.zpopmax("z"));
        r.zadd("z", m(1, "x"), m(2.5, "y"));
        eq(list(m(1, "x"), m(2, "b")), r.zpopmin("z", 2));
        eq(list(m(2.5, "y")), r.zpopmax("z", 2));
        r.zadd("z", m(Double.POSITIVE_INFINITY, "inf"), m(Double.NEGATIVE_INFINITY, "-inf"), m(1e-300, "small"));
        eq(Double.POSITIVE_INFINITY, r.zscore("z", "inf"));
        eq(1e-300, r.zscore("z", "small"));
        eq(list("-inf", "small", "inf"), r.zrange("z", 0, -1));
        fails(REFUSED, "resulting score is not a number", () -> r.zincrby("z", Double.NEGATIVE_INFINITY, "inf"));
        eq(1L, r.zrem("z", "inf", "none"));
        eq(KeyValue.just("z", m(1e-300, "small")), r.zmpop(ZPopArgs.Builder.max(), "none", "z"));
        r.zadd("z", -5.5, "-inf");
        eq(KeyValue.just("z", list(m(-5.5, "-inf"))), r.zmpop(5, ZPopArgs.Builder.min(), "z"));
        var none = r.zmpop(ZPopArgs.Builder.max(), "z");
        yes(none == null || none.isEmpty(), none);
    }

    static void algebra(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.zadd("p", m(1, "a"), m(2, "b"));
        r.zadd("q", m(3, "b"), m(4, "c"));
        eq(list("a"), r.zdiff("p", "q"));
        eq(list(m(1, "a")), r.zdiffWithScores("p", "q"));
        eq(list("b"), r.zinter("p", "q"));
        eq(list("b"), r.zinter(ZAggregateArgs.Builder.sum(), "p", "q"));
        eq(list(m(5, "b")), r.zinterWithScores("p", "q"));
        eq(list(m(11, "b")), r.zinterWithScores(ZAggregateArgs.Builder.weights(1, 3), "p", "q"));
        eq(list("a", "c", "b"), r.zunion("p", "q"));
        eq(list("a", "b", "c"), r.zunion(ZAggregateArgs.Builder.max(), "p", "q"));
        eq(list(m(1, "a"), m(4, "c"), m(5, "b")), r.zunionWithScores("p", "q"));
        eq(list(m(1, "a"), m(2, "b"), m(4, "c")), r.zunionWithScores(ZAggregateArgs.Builder.min(), "p", "q"));
        eq(1L, r.zintercard("p", "q"));
        eq(1L, r.zintercard(1, "p", "q"));
        eq(1L, r.zdiffstore("dst", "p", "q"));
        eq(1L, r.zinterstore("dst", "p", "q"));
        eq(1L, r.zinterstore("dst", ZStoreArgs.Builder.max(), "p", "q"));
        eq(3.0, r.zscore("dst", "b"));
        eq(3L, r.zunionstore("dst", "p", "q"));
        eq(3L, r.zunionstore("dst", ZStoreArgs.Builder.weights(2.0, 1.0), "p", "q"));
        eq(7.0, r.zscore("dst", "b"));
    }

    static void ranges(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        for (int i = 0; i < 200; i++) {
            r.zadd("z", i, String.format("m%03d", i));
        }
        eq(list("m000", "m001"), r.zrange("z", 0, 1));
        eq(list("m199", "m198"), r.zrevrange("z", 0, 1));
        eq(list(m(198, "m198"), m(199, "m199")), r.zrangeWithScores("z", -2, -1));
        eq(list(m(199, "m199")), r.zrevrangeWithScores("z", 0, 0));
        Range<Integer> tens = Range.create(10, 12);
        eq(list("m010", "m011", "m012"), r.zrangebyscore("z", tens));
        eq(list("m011"), r.zrangebyscore("z", tens, Limit.create(1, 1)));
        eq(list(m(10, "m010"), m(11, "m011"), m(12, "m012")), r.zrangebyscoreWithScores("z", tens));
        eq(list(m(12, "m012")), r.zrangebyscoreWithScores("z", tens, Limit.create(2, 5)));
        eq(list("m012", "m011", "m010"), r.zrevrangebyscore("z", tens));
        eq(list("m010"), r.zrevrangebyscore("z", tens, Limit.create(2, 5)));
        eq(list(m(12, "m012"), m(11, "m011"), m(10, "m010")), r.zrevrangebyscoreWithScores("z", tens));
        eq(list(m(11, "m011")), r.zrevrangebyscoreWithScores("z", tens, Limit.create(1, 1)));
        eq(3L, r.zrangestore("dst", "z", Range.create(0L, 2L)));
        eq(2L, r.zrangestorebyscore("dst", "z", tens, Limit.create(0, 2)));
        eq(list("m010", "m011"), r.zrange("dst", 0, -1));
        eq(2L, r.zrevrangestore("dst", "z", Range.create(0L, 1L)));
        eq(list("m198", "m199"), r.zrange("dst", 0, -1));
        eq(1L, r.zrevrangestorebyscore("dst", "z", tens, Limit.create(0, 1)));
        eq(list("m012"), r.zrange("dst", 0, -1));
        eq(2L, r.zremrangebyrank("z", 0, 1));
        eq(3L, r.zremrangebyscore("z", Range.create(2, 4)));

        for (String member : "abcdef".split("")) {
            r.zadd("lex", 0, member);
        }
        Range<String> lex = Range.create("b", "e");
        eq(4L, r.zlexcount("lex", lex));
        eq(list("b", "c", "d", "e"), r.zrangebylex("lex", lex));
        eq(list("c"), r.zrangebylex("lex", lex, Limit.create(1, 1)));
        eq(list("e", "d", "c", "b"), r.zrevrangebylex("lex", lex));
        eq(list("d"), r.zrevrangebylex("lex", lex, Limit.create(1, 1)));
        eq(2L, r.zrangestorebylex("dst", "lex", lex, Limit.create(0, 2)));
        eq(list("b", "c"), r.zrange("dst", 0, -1));
        eq(2L, r.zrevrangestorebylex("dst", "lex", lex, Limit.create(0, 2)));
        eq(list("d", "e"), r.zrange("dst", 0, -1));
        eq(3L, r.zremrangebylex("lex", Range.<String>unbounded().lt("d")));
    }
}
