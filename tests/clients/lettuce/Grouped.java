import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScanStream;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.reactive.RedisReactiveCommands;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import reactor.core.publisher.Flux;

/** Many commands at once: MULTI in each style, batches, streams of reactive commands. */
final class Grouped extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    static void transactions(Main.Session s) throws Exception {
        StatefulRedisConnection<String, String> connection = s.connection();
        RedisCommands<String, String> r = connection.sync();
        eq("OK", r.multi());
        eq(true, connection.isMulti());
        eq(null, r.set("k", "v"));
        r.rpush("l", "a", "b");
        r.lrange("l", 0, -1);
        r.hgetall("none");
        r.zincrby("z", 1.5, "m");
        TransactionResult replies = r.exec();
        eq(list("OK", 2L, list("a", "b"), java.util.Map.of(), 1.5), replies.stream().toList());
        eq(false, replies.wasDiscarded());
        r.multi();
        r.set("k", "discarded");
        eq("OK", r.discard());
        eq("v", r.get("k"));
        // An error of one command does not undo the others.
        r.multi();
        r.incr("l");
        r.set("k", "after");
        replies = r.exec();
        yes(replies.get(0) instanceof RedisCommandExecutionException);
        eq("OK", replies.get(1));
        eq("after", r.get("k"));
        // Another client writes between WATCH and EXEC.
        eq("OK", r.watch("k", "other"));
        s.r.set("k", "changed");
        r.multi();
        r.set("k", "lost");
        eq(true, r.exec().wasDiscarded());
        eq("changed", r.get("k"));
        r.watch("k");
        s.r.set("k", "again");
        eq("OK", r.unwatch());
        r.multi();
        r.get("k");
        eq("again", r.exec().get(0));

        RedisAsyncCommands<String, String> a = connection.async();
        a.multi();
        RedisFuture<String> set = a.set("k", "async");
        RedisFuture<Long> wrong = a.incr("k");
        RedisFuture<TransactionResult> exec = a.exec();
        eq(2, exec.get(60, TimeUnit.SECONDS).size());
        eq("OK", set.get());
        fails(java.util.concurrent.ExecutionException.class, "ERR value is not an integer", wrong::get);

        RedisReactiveCommands<String, String> f = connection.reactive();
        List<Object> seen = f.multi().flatMapMany(ok -> {
            f.set("k", "reactive").subscribe();
            f.get("k").subscribe();
            return f.exec().flatMapMany(result -> Flux.fromStream(result.stream()));
        }).collectList().block();
        eq(list("OK", "reactive"), seen);
    }

    /** Commands are written together, and replies arrive in order. */
    static void pipelines(Main.Session s) throws Exception {
        StatefulRedisConnection<String, String> connection = s.connection();
        RedisAsyncCommands<String, String> a = connection.async();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> values = new ArrayList<>();
        for (int i = 0; i < 5000; i++) {
            a.set("key" + i, "value" + i);
            values.add(a.get("key" + i));
        }
        RedisFuture<Long> wrong = a.lpush("key0", "x");
        eq(false, values.get(0).await(20, TimeUnit.MILLISECONDS));
        connection.flushCommands();
        for (int i = 0; i < 5000; i++) {
            eq("value" + i, values.get(i).get(60, TimeUnit.SECONDS));
        }
        eq("WRONGTYPE Operation against a key holding the wrong kind of value",
                wrong.handle((ok, e) -> e.getMessage()).toCompletableFuture().get());
        connection.setAutoFlushCommands(true);

        // Threads share one connection.
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            threads.add(new Thread(() -> {
                for (int i = 0; i < 250; i++) {
                    connection.sync().incr("n");
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        eq("2000", connection.sync().get("n"));
    }

    static void reactive(Main.Session s) {
        RedisReactiveCommands<String, String> f = s.connection().reactive();
        eq(1000L, Flux.range(0, 1000).flatMap(i -> f.set("key:" + i, "v" + i)).count().block());
        eq(499_500L, Flux.range(0, 1000).concatMap(i -> f.get("key:" + i))
                .map(v -> Long.parseLong(v.substring(1))).reduce(Long::sum).block());
        eq(1000, ScanStream.scan(f).collect(java.util.stream.Collectors.toSet()).block().size());
        for (int i = 0; i < 300; i++) {
            f.hset("h", "f" + i, "v").and(f.sadd("s", "m" + i)).and(f.zadd("z", i, "m" + i)).block();
        }
        eq(300L, ScanStream.hscan(f, "h").count().block());
        eq(300L, ScanStream.sscan(f, "s").count().block());
        eq(300L, ScanStream.zscan(f, "z").count().block());
        fails(REFUSED, "WRONGTYPE", () -> f.get("h").block());
        eq("fallback", f.get("h").onErrorReturn("fallback").block());
        eq(list("m0", "m1"), f.zrange("z", 0, -1).take(2).collectList().block());
    }
}
