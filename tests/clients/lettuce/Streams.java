import io.lettuce.core.Consumer;
import io.lettuce.core.Limit;
import io.lettuce.core.Range;
import io.lettuce.core.RedisBusyException;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.XAddArgs;
import io.lettuce.core.XAutoClaimArgs;
import io.lettuce.core.XClaimArgs;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XPendingArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.XTrimArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Streams: the log itself, then its consumer groups. */
final class Streams extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    private static List<String> ids(List<StreamMessage<String, String>> messages) {
        return messages.stream().map(StreamMessage::getId).toList();
    }

    /** The value after a name, in a reply that Lettuce does not convert. */
    static Object field(List<?> pairs, String name) {
        return pairs.get(pairs.indexOf(name) + 1);
    }

    static void entries(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        eq("1-1", r.xadd("s", new XAddArgs().id("1-1"), map("f", "a")));
        eq("1-2", r.xadd("s", new XAddArgs().id("1-*"), map("f", "b", "g", "c")));
        eq("2-0", r.xadd("s", new XAddArgs().id("2"), "f", "d"));
        fails(REFUSED, "ERR The ID specified in XADD is equal or smaller", () ->
                r.xadd("s", new XAddArgs().id("1-5"), map("f", "x")));
        eq(null, r.xadd("none", XAddArgs.Builder.nomkstream(), map("f", "x")));
        String now = r.xadd("s", map("f", "e"));
        eq(4L, r.xlen("s"));
        var all = r.xrange("s", Range.unbounded());
        eq(list("1-1", "1-2", "2-0", now), ids(all));
        eq(map("f", "b", "g", "c"), all.get(1).getBody());
        eq(list("1-2"), ids(r.xrange("s", Range.<String>unbounded().gt("1-1"), Limit.from(1))));
        eq(list(now, "2-0"), ids(r.xrevrange("s", Range.unbounded(), Limit.from(2))));
        eq(4, r.xrevrange("s", Range.unbounded()).size());
        eq(1L, r.xdel("s", "1-2", "9-9"));
        eq(2L, r.xtrim("s", 1));
        for (int i = 1; i <= 500; i++) {
            r.xadd("t", XAddArgs.Builder.maxlen(300).exactTrimming().id(i + "-1"), map("i", "" + i));
        }
        eq(300L, r.xlen("t"));
        eq(100L, r.xtrim("t", XTrimArgs.Builder.minId("301").exactTrimming()));
        r.xtrim("t", true, 10);

        eq(list(now), ids(r.xread(StreamOffset.from("s", "0"))));
        eq(list(), r.xread(StreamOffset.from("s", now)));
        eq(3, r.xread(XReadArgs.Builder.count(2), StreamOffset.from("s", "0"), StreamOffset.from("t", "0")).size());
        RedisCommands<String, String> w = s.another();
        var late = CompletableFuture.supplyAsync(() ->
                w.xread(XReadArgs.Builder.block(Duration.ofSeconds(5)), StreamOffset.latest("b")));
        Types.waiting(r, 1);
        r.xadd("b", new XAddArgs().id("7-7"), map("k", "v"));
        eq("b", late.get().get(0).getStream());
        eq(list("7-7"), ids(late.get()));

        List<?> info = r.xinfoStream("s");
        eq(1L, field(info, "length"));
        eq(now, field(info, "last-generated-id"));
        eq(4L, field(info, "entries-added"));
        eq("stream", r.type("s"));
        fails(REFUSED, "ERR no such key", () -> r.xinfoStream("none"));
    }

    static void groups(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        fails(REFUSED, "ERR The XGROUP subcommand requires the key to exist", () ->
                r.xgroupCreate(StreamOffset.from("s", "0"), "g"));
        eq("OK", r.xgroupCreate(StreamOffset.from("s", "0"), "g", XGroupCreateArgs.Builder.mkstream()));
        fails(RedisBusyException.class, "BUSYGROUP", () -> r.xgroupCreate(StreamOffset.from("s", "0"), "g"));
        Consumer<String> ann = Consumer.from("g", "ann");
        Consumer<String> bob = Consumer.from("g", "bob");
        Consumer<String> cyd = Consumer.from("g", "cyd");
        eq(true, r.xgroupCreateconsumer("s", ann));
        eq(false, r.xgroupCreateconsumer("s", ann));
        for (int i = 1; i <= 6; i++) {
            r.xadd("s", new XAddArgs().id(i + "-0"), map("i", "" + i));
        }
        StreamOffset<String> fresh = StreamOffset.lastConsumed("s");
        eq(list("1-0", "2-0"), ids(r.xreadgroup(ann, XReadArgs.Builder.count(2), fresh)));
        eq(list("3-0", "4-0"), ids(r.xreadgroup(bob, XReadArgs.Builder.count(2), fresh)));
        eq(list("5-0"), ids(r.xreadgroup(bob, XReadArgs.Builder.count(1).noack(true), fresh)));
        eq(list("1-0", "2-0"), ids(r.xreadgroup(ann, StreamOffset.from("s", "0"))));
        var summary = r.xpending("s", "g");
        eq(4L, summary.getCount());
        eq(Range.create("1-0", "4-0"), summary.getMessageIds());
        eq(Map.of("ann", 2L, "bob", 2L), summary.getConsumerMessageCount());
        var pending = r.xpending("s", ann, Range.unbounded(), Limit.from(10));
        eq(2, pending.size());
        eq("1-0", pending.get(0).getId());
        eq(2L, pending.get(0).getRedeliveryCount());
        eq(4, r.xpending("s", "g", Range.unbounded(), Limit.from(10)).size());
        eq(0, r.xpending("s", XPendingArgs.Builder.xpending("g", Range.<String>unbounded(), Limit.from(10))
                .idle(Duration.ofMinutes(10))).size());
        eq(1L, r.xack("s", "g", "1-0", "9-9"));
        eq(list("2-0"), ids(r.xclaim("s", bob, 0, "2-0")));
        eq(list("3-0"), ids(r.xclaim("s", ann, XClaimArgs.Builder.justid().minIdleTime(0).retryCount(7), "3-0")));
        eq(7L, r.xpending("s", "g", Range.create("3", "3"), Limit.from(1)).get(0).getRedeliveryCount());
        var claimed = r.xautoclaim("s", XAutoClaimArgs.Builder.xautoclaim(cyd, 0, "0").count(2));
        eq("4-0", claimed.getId());
        eq(list("2-0", "3-0"), ids(claimed.getMessages()));
        var rest = r.xautoclaim("s", XAutoClaimArgs.Builder.justid(cyd, 0, claimed.getId()));
        eq("0-0", rest.getId());
        eq(list("4-0"), ids(rest.getMessages()));

        List<?> group = (List<?>) r.xinfoGroups("s").get(0);
        eq("g", field(group, "name"));
        eq(3L, field(group, "consumers"));
        eq(3L, field(group, "pending"));
        eq(5L, field(group, "entries-read"));
        eq(1L, field(group, "lag"));
        List<?> consumers = r.xinfoConsumers("s", "g");
        eq(3, consumers.size());
        eq("cyd", field((List<?>) consumers.get(2), "name"));
        eq(3L, field((List<?>) consumers.get(2), "pending"));
        eq(3L, r.xgroupDelconsumer("s", cyd));
        eq("OK", r.xgroupSetid(StreamOffset.from("s", "6-0"), "g"));
        RedisCommands<String, String> w = s.another();
        var late = CompletableFuture.supplyAsync(() -> w.xreadgroup(ann, XReadArgs.Builder.block(5000), fresh));
        Types.waiting(r, 1);
        r.xadd("s", new XAddArgs().id("100-0"), map("late", "yes"));
        eq(list("100-0"), ids(late.get()));
        eq(true, r.xgroupDestroy("s", "g"));
        eq(false, r.xgroupDestroy("s", "g"));
        fails(REFUSED, "NOGROUP", () -> r.xpending("s", "g"));
    }
}
