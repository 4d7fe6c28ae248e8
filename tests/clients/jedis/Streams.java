import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.XAddParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XClaimParams;
import redis.clients.jedis.params.XPendingParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.params.XTrimParams;
import redis.clients.jedis.resps.StreamEntry;

/** Streams: the log itself, then its consumer groups. */
final class Streams extends Check {
    private static StreamEntryID id(long time, long sequence) {
        return new StreamEntryID(time, sequence);
    }

    private static List<StreamEntryID> ids(List<StreamEntry> entries) {
        return entries.stream().map(StreamEntry::getID).toList();
    }

    static void entries(RedisClient r) throws Exception {
        eq(id(1, 1), r.xadd("s", id(1, 1), map("f", "a")));
        eq(id(1, 2), r.xadd("s", XAddParams.xAddParams().id("1-*"), map("f", "b", "g", "c")));
        eq(id(2, 0), r.xadd("s", XAddParams.xAddParams().id(2, 0), map("f", "d")));
        fails(JedisDataException.class, "ERR The ID specified in XADD is equal or smaller", () ->
                r.xadd("s", id(1, 5), map("f", "x")));
        eq(null, r.xadd("none", XAddParams.xAddParams().noMkStream(), map("f", "x")));
        StreamEntryID now = r.xadd("s", StreamEntryID.NEW_ENTRY, map("f", "e"));
        yes(now.getTime() > 1_600_000_000_000L);
        eq(4L, r.xlen("s"));
        List<StreamEntry> all = r.xrange("s", "-", "+");
        eq(list(id(1, 1), id(1, 2), id(2, 0), now), ids(all));
        eq(map("f", "b", "g", "c"), all.get(1).getFields());
        eq(list(id(1, 2)), ids(r.xrange("s", "(1-1", "+", 1)));
        eq(list(id(1, 1), id(1, 2)), ids(r.xrange("s", id(1, 0), id(1, 9))));
        eq(list(now, id(2, 0)), ids(r.xrevrange("s", "+", "-", 2)));
        eq(1L, r.xdel("s", id(1, 2), id(9, 9)));
        eq(2L, r.xtrim("s", 1, false));
        eq(list(now), ids(r.xrange("s", "-", "+")));
        for (int i = 0; i < 1000; i++) {
            r.xadd("t", XAddParams.xAddParams().id(i, 1).maxLen(500).exactTrimming(), map("i", "" + i));
        }
        eq(500L, r.xlen("t"));
        eq(100L, r.xtrim("t", XTrimParams.xTrimParams().minId("600").exactTrimming()));
        r.xtrim("t", XTrimParams.xTrimParams().maxLen(10).approximateTrimming().limit(5));
        yes(r.xlen("t") >= 10);

        eq(1, r.xread(XReadParams.xReadParams().count(1), Map.of("s", new StreamEntryID())).size());
        eq(null, r.xread(XReadParams.xReadParams(), Map.of("s", now)));
        var read = r.xreadAsMap(XReadParams.xReadParams().count(2),
                Map.of("s", new StreamEntryID(), "t", id(997, 1)));
        eq(set("s", "t"), read.keySet());
        eq(list(id(998, 1), id(999, 1)), ids(read.get("t")));
        eq(null, r.xread(XReadParams.xReadParams().block(30), Map.of("none", id(0, 0))));
        var late = CompletableFuture.supplyAsync(() ->
                r.xread(XReadParams.xReadParams().block(5000), Map.of("b", StreamEntryID.XREAD_NEW_ENTRY)));
        Types.waiting(r, 1);
        r.xadd("b", id(7, 7), map("k", "v"));
        eq("b", late.get().get(0).getKey());
        eq(list(id(7, 7)), ids(late.get().get(0).getValue()));

        byte[] key = "b".getBytes();
        eq(1, r.xreadBinary(XReadParams.xReadParams(), Map.of(key, id(0, 0))).size());
        var binary = r.xreadBinaryAsMap(XReadParams.xReadParams(), Map.of(key, id(0, 0)));
        eq("v".getBytes(), binary.values().iterator().next().get(0).getFields().values().iterator().next());

        var info = r.xinfoStream("s");
        eq(1L, info.getLength());
        eq(0L, info.getGroups());
        eq(now, info.getLastGeneratedId());
        eq(now, info.getFirstEntry().getID());
        eq(now, info.getLastEntry().getID());
        eq(4L, info.getStreamInfo().get("entries-added"));
        yes(info.getRadixTreeKeys() >= 1 && info.getRadixTreeNodes() >= 1);
        eq("stream", r.type("s"));
        eq("stream", r.objectEncoding("s"));
        fails(JedisDataException.class, "ERR no such key", () -> r.xinfoStream("none"));
    }

    static void groups(RedisClient r) throws Exception {
        fails(JedisDataException.class, "ERR The XGROUP subcommand requires the key to exist", () ->
                r.xgroupCreate("s", "g", id(0, 0), false));
        eq("OK", r.xgroupCreate("s", "g", id(0, 0), true));
        fails(JedisDataException.class, "BUSYGROUP Consumer Group name already exists", () ->
                r.xgroupCreate("s", "g", id(0, 0), false));
        eq(true, r.xgroupCreateConsumer("s", "g", "ann"));
        eq(false, r.xgroupCreateConsumer("s", "g", "ann"));
        for (int i = 1; i <= 6; i++) {
            r.xadd("s", id(i, 0), map("i", "" + i));
        }
        Map<String, StreamEntryID> fresh = Map.of("s", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        eq(list(id(1, 0), id(2, 0)), ids(r.xreadGroup("g", "ann",
                XReadGroupParams.xReadGroupParams().count(2), fresh).get(0).getValue()));
        eq(list(id(3, 0), id(4, 0)), ids(r.xreadGroupAsMap("g", "bob",
                XReadGroupParams.xReadGroupParams().count(2), fresh).get("s")));
        eq(list(id(5, 0)), ids(r.xreadGroup("g", "bob",
                XReadGroupParams.xReadGroupParams().count(1).noAck(), fresh).get(0).getValue()));
        eq(list(id(1, 0), id(2, 0)), ids(r.xreadGroup("g", "ann",
                XReadGroupParams.xReadGroupParams(), Map.of("s", id(0, 0))).get(0).getValue()));

        byte[] group = "binary".getBytes();
        r.xgroupCreate("s", "binary", id(5, 0), false);
        Map<byte[], StreamEntryID> freshBinary = Map.of("s".getBytes(), StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        eq(1, r.xreadGroupBinary(group, group, XReadGroupParams.xReadGroupParams().noAck(), freshBinary).size());
        eq(null, r.xreadGroupBinaryAsMap(group, group, XReadGroupParams.xReadGroupParams(), freshBinary));
        r.xgroupDestroy("s", "binary");

        var summary = r.xpending("s", "g");
        eq(4L, summary.getTotal());
        eq(id(1, 0), summary.getMinId());
        eq(id(4, 0), summary.getMaxId());
        eq(Map.of("ann", 2L, "bob", 2L), summary.getConsumerMessageCount());
        var pending = r.xpending("s", "g", XPendingParams.xPendingParams("-", "+", 10).consumer("ann"));
        eq(2, pending.size());
        eq(id(1, 0), pending.get(0).getID());
        eq(2L, pending.get(0).getDeliveredTimes());
        eq("ann", pending.get(0).getConsumerName());
        eq(0, r.xpending("s", "g", XPendingParams.xPendingParams("-", "+", 10).idle(100_000)).size());
        eq(1L, r.xack("s", "g", id(1, 0), id(9, 9)));

        eq(list(id(2, 0)), ids(r.xclaim("s", "g", "bob", 0,
                XClaimParams.xClaimParams().idle(5000).retryCount(7), id(2, 0), id(9, 9))));
        eq(7L, r.xpending("s", "g", XPendingParams.xPendingParams("2", "2", 1)).get(0).getDeliveredTimes());
        eq(list(id(3, 0)), r.xclaimJustId("s", "g", "ann", 0, XClaimParams.xClaimParams().force(), id(3, 0)));
        var claimed = r.xautoclaim("s", "g", "cyd", 0, id(0, 0), XAutoClaimParams.xAutoClaimParams().count(2));
        eq(id(4, 0), claimed.getKey());
        eq(list(id(2, 0), id(3, 0)), ids(claimed.getValue()));
        var rest = r.xautoclaimJustId("s", "g", "cyd", 0, claimed.getKey(), XAutoClaimParams.xAutoClaimParams());
        eq(id(0, 0), rest.getKey());
        eq(list(id(4, 0)), rest.getValue());

        var groups = r.xinfoGroups("s");
        eq(1, groups.size());
        eq("g", groups.get(0).getName());
        eq(3L, groups.get(0).getConsumers());
        eq(3L, groups.get(0).getPending());
        eq(id(5, 0), groups.get(0).getLastDeliveredId());
        eq(5L, groups.get(0).getGroupInfo().get("entries-read"));
        eq(1L, groups.get(0).getGroupInfo().get("lag"));
        eq(3, r.xinfoConsumers("s", "g").size());
        var consumers = r.xinfoConsumers2("s", "g");
        eq(list("ann", "bob", "cyd"), consumers.stream().map(c -> c.getName()).toList());
        eq(3L, consumers.get(2).getPending());
        yes(consumers.get(2).getIdle() >= 0);
        if (Main.since72) {
            yes(consumers.get(2).getInactive() >= 0);
        }
        var full = r.xinfoStreamFull("s", 2);
        eq(6L, full.getLength());
        eq(2, full.getEntries().size());
        var whole = full.getGroups().get(0);
        eq("g", whole.getName());
        eq(3L, whole.getPelCount());
        eq(2, whole.getPending().size());
        eq(3, whole.getConsumers().size());
        eq("cyd", whole.getConsumers().get(2).getName());
        eq(3L, whole.getConsumers().get(2).getPelCount());
        if (Main.since72) {
            yes(whole.getConsumers().get(2).getActiveTime() > 0);
        }

        eq(3L, r.xgroupDelConsumer("s", "g", "cyd"));
        eq("OK", r.xgroupSetID("s", "g", StreamEntryID.XGROUP_LAST_ENTRY));
        var late = CompletableFuture.supplyAsync(() -> r.xreadGroup("g", "ann",
                XReadGroupParams.xReadGroupParams().block(5000), fresh));
        Types.waiting(r, 1);
        r.xadd("s", id(100, 0), map("late", "yes"));
        eq(list(id(100, 0)), ids(late.get().get(0).getValue()));
        var lost = CompletableFuture.supplyAsync(() -> {
            try {
                return r.xreadGroup("g", "ann", XReadGroupParams.xReadGroupParams().block(5000), fresh);
            } catch (JedisDataException e) {
                return e.getMessage();
            }
        });
        Types.waiting(r, 1);
        eq(1L, r.xgroupDestroy("s", "g"));
        yes(String.valueOf(lost.get()).contains("the consumer group this client was blocked on no longer exists")
                || String.valueOf(lost.get()).startsWith("NOGROUP"), lost.get());
        fails(JedisDataException.class, "NOGROUP", () -> r.xpending("s", "g"));
    }
}
