import io.lettuce.core.RedisClient;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TrackingInfo;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Messages that are not replies: pub/sub, keyspace events, invalidations. */
final class Messages extends Check {
    /** Records the messages that arrive. */
    private static final class Ear extends RedisPubSubAdapter<String, String> {
        final List<String> heard = Collections.synchronizedList(new ArrayList<>());

        @Override
        public void message(String channel, String message) {
            heard.add(channel + "=" + message);
        }

        @Override
        public void message(String pattern, String channel, String message) {
            heard.add(pattern + ":" + channel + "=" + message);
        }

        @Override
        public void smessage(String channel, String message) {
            heard.add("s " + channel + "=" + message);
        }

        @Override
        public void subscribed(String channel, long count) {
            heard.add("+" + channel + count);
        }

        @Override
        public void unsubscribed(String channel, long count) {
            heard.add("-" + channel + count);
        }

        @Override
        public void psubscribed(String pattern, long count) {
            heard.add("+" + pattern + count);
        }

        @Override
        public void punsubscribed(String pattern, long count) {
            heard.add("-" + pattern + count);
        }

        @Override
        public void ssubscribed(String channel, long count) {
            heard.add("s+" + channel + count);
        }

        @Override
        public void sunsubscribed(String channel, long count) {
            heard.add("s-" + channel + count);
        }

        void hears(String text) throws Exception {
            for (int i = 0; i < 1000 && !heard.contains(text); i++) {
                Thread.sleep(5);
            }
            yes(heard.contains(text), text, heard);
        }
    }

    static void pubsub(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        try (StatefulRedisPubSubConnection<String, String> connection = s.client.connectPubSub()) {
            Ear ear = new Ear();
            connection.addListener(ear);
            connection.sync().subscribe("news", "sport");
            ear.hears("+sport2");
            eq(1L, r.publish("news", "hello"));
            ear.hears("news=hello");
            connection.async().psubscribe("s*", "n?ws").toCompletableFuture().get();
            ear.hears("+n?ws4");
            eq(2L, r.publish("news", "twice"));
            eq(1L, r.publish("sun", "once"));
            ear.hears("n?ws:news=twice");
            ear.hears("s*:sun=once");
            // With RESP2 the reply of a subscriber's PING is a list, and Lettuce returns its last element.
            eq(s.client == Main.RESP3 ? "PONG" : "", connection.sync().ping());
            eq(set("news", "sport"), new HashSet<>(r.pubsubChannels()));
            eq(list("sport"), r.pubsubChannels("sp*"));
            eq(Map.of("news", 1L, "none", 0L), r.pubsubNumsub("news", "none"));
            eq(2L, r.pubsubNumpat());
            // A subscription survives a reconnect.
            connection.sync().unsubscribe("sport");
            ear.hears("-sport3");
            ear.heard.clear();
            r.clientKill(io.lettuce.core.KillArgs.Builder.typePubsub());
            ear.hears("+news1");
            soon(() -> r.publish("news", "again") == 2);
            ear.hears("n?ws:news=again");
            connection.sync().unsubscribe();
            connection.sync().punsubscribe();
            soon(() -> r.publish("news", "gone") == 0);

            var reactive = connection.reactive();
            List<String> flow = Collections.synchronizedList(new ArrayList<>());
            reactive.observeChannels().subscribe(m -> flow.add(m.getMessage()));
            reactive.subscribe("many").block();
            for (int i = 0; i < 500; i++) {
                r.publish("many", "m" + i);
            }
            soon(() -> flow.size() == 500);
            eq("m499", flow.get(499));
        }
    }

    static void sharded(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        try (StatefulRedisPubSubConnection<String, String> connection = s.client.connectPubSub()) {
            Ear ear = new Ear();
            connection.addListener(ear);
            connection.sync().ssubscribe("shard1");
            connection.sync().ssubscribe("shard2");
            ear.hears("s+shard22");
            eq(1L, r.spublish("shard1", "hi"));
            eq(0L, r.publish("shard1", "not sharded"));
            ear.hears("s shard1=hi");
            eq(list("shard2"), r.pubsubShardChannels("*2"));
            eq(2, r.pubsubShardChannels().size());
            eq(Map.of("shard1", 1L), r.pubsubShardNumsub("shard1"));
            connection.sync().sunsubscribe("shard2");
            ear.hears("s-shard21");
            eq(0L, r.spublish("shard2", "gone"));
        }
    }

    static void keyspaceEvents(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        r.configSet("notify-keyspace-events", "KEA");
        try (StatefulRedisPubSubConnection<String, String> connection = s.client.connectPubSub()) {
            Ear ear = new Ear();
            connection.addListener(ear);
            connection.sync().psubscribe("__key*@0__:*");
            ear.hears("+__key*@0__:*1");
            r.set("k", "v");
            r.rename("k", "l");
            r.pexpire("l", 20);
            r.xadd("x", map("f", "v"));
            soon(() -> r.exists("l") == 0);
            for (String said : List.of("set=k", "rename_from=k", "rename_to=l", "expire=l", "expired=l", "xadd=x")) {
                ear.hears("__key*@0__:*:__keyevent@0__:" + said);
            }
            ear.hears("__key*@0__:*:__keyspace@0__:k=set");
        } finally {
            r.configSet("notify-keyspace-events", "");
        }
    }

    /** Lettuce's cache in front of the server. The server tells it what to forget. */
    static void caching() throws Exception {
        RedisClient client = Main.RESP3;
        try (StatefulRedisConnection<String, String> cached = client.connect();
                StatefulRedisConnection<String, String> other = client.connect()) {
            RedisCommands<String, String> r = other.sync();
            r.flushdb();
            Map<String, String> local = new ConcurrentHashMap<>();
            Set<String> forgotten = ConcurrentHashMap.newKeySet();
            CacheFrontend<String, String> cache = ClientSideCaching.enable(CacheAccessor.forMap(local), cached,
                    TrackingArgs.Builder.enabled());
            ClientSideCaching<String, String> frontend = (ClientSideCaching<String, String>) cache;
            frontend.addInvalidationListener(forgotten::add);
            r.set("k", "1");
            eq("1", frontend.get("k"));
            eq("1", local.get("k"));
            r.set("k", "2");
            soon(() -> local.get("k") == null);
            eq("2", frontend.get("k"));
            r.pexpire("k", 20);
            soon(() -> forgotten.contains("k") && frontend.get("k") == null);
            eq("loaded", frontend.get("fresh", () -> "loaded"));
            eq("loaded", r.get("fresh"));
            TrackingInfo info = cached.sync().clientTrackinginfo();
            eq(EnumSet.of(TrackingInfo.TrackingFlag.ON), EnumSet.copyOf(info.getFlags()));
            eq(0L, cached.sync().clientGetredir());
            eq("OK", cached.sync().clientTracking(TrackingArgs.Builder.enabled(false)));
            eq(-1L, cached.sync().clientGetredir());
        }
        try (StatefulRedisConnection<String, String> tracked = client.connect();
                StatefulRedisConnection<String, String> other = client.connect()) {
            List<String> pushed = Collections.synchronizedList(new ArrayList<>());
            tracked.addListener(message -> {
                if (message.getType().equals("invalidate")) {
                    pushed.add(String.valueOf(message.getContent(
                            io.lettuce.core.codec.StringCodec.UTF8::decodeKey).get(1)));
                }
            });
            RedisCommands<String, String> t = tracked.sync();
            RedisCommands<String, String> r = other.sync();
            eq("OK", t.clientTracking(TrackingArgs.Builder.enabled().bcast().prefixes("user:", "item:")));
            r.mset(map("user:1", "x", "other", "x"));
            soon(() -> pushed.equals(list("[user:1]")));
            t.clientTracking(TrackingArgs.Builder.enabled(false));
            pushed.clear();
            eq("OK", t.clientTracking(TrackingArgs.Builder.enabled().optin().noloop()));
            t.get("other");
            eq("OK", t.clientCaching(true));
            t.get("user:1");
            r.set("other", "y");
            r.set("user:1", "y");
            soon(() -> pushed.equals(list("[user:1]")));
        }
    }
}
