import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

/** Messages that are not replies: pub/sub, keyspace events, invalidations. */
final class Messages extends Check {
    /** Records the messages that arrive. */
    private static final class Ear extends JedisPubSub {
        final List<String> heard = Collections.synchronizedList(new ArrayList<>());

        @Override
        public void onMessage(String channel, String message) {
            heard.add(channel + "=" + message);
        }

        @Override
        public void onPMessage(String pattern, String channel, String message) {
            heard.add(pattern + ":" + channel + "=" + message);
        }

        @Override
        public void onSubscribe(String channel, int count) {
            heard.add("+" + channel + count);
        }

        @Override
        public void onUnsubscribe(String channel, int count) {
            heard.add("-" + channel + count);
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            heard.add("+" + pattern + count);
        }

        @Override
        public void onPUnsubscribe(String pattern, int count) {
            heard.add("-" + pattern + count);
        }

        @Override
        public void onPong(String text) {
            heard.add("pong " + text);
        }

        void hears(String text) throws Exception {
            soon(() -> heard.contains(text));
        }
    }

    static void pubsub(RedisClient r) throws Exception {
        eq(0L, r.publish("news", "nobody"));
        Ear ear = new Ear();
        Thread thread = new Thread(() -> r.subscribe(ear, "news", "sport"));
        thread.start();
        ear.hears("+sport2");
        eq(1L, r.publish("news", "hello"));
        ear.hears("news=hello");
        ear.psubscribe("s*", "n?ws");
        ear.hears("+n?ws4");
        eq(3L, r.publish("news", "twice") + r.publish("sun", "once"));
        ear.hears("news=twice");
        ear.hears("n?ws:news=twice");
        ear.hears("s*:sun=once");
        if (Main.protocol == RedisProtocol.RESP2) {
            // With RESP3 a PONG is not a push, and Jedis's loop accepts only pushes.
            ear.ping();
            ear.hears("pong ");
            ear.ping("text");
            ear.hears("pong text");
        }
        eq(4, ear.getSubscribedChannels());
        try (Jedis j = Main.connect(RedisProtocol.RESP3)) {
            eq(set("news", "sport"), Set.copyOf(j.pubsubChannels()));
            eq(list("sport"), j.pubsubChannels("sp*"));
            eq(Map.of("news", 1L, "none", 0L), j.pubsubNumSub("news", "none"));
            eq(2L, j.pubsubNumPat());
        }
        ear.unsubscribe("sport");
        ear.hears("-sport3");
        ear.unsubscribe();
        ear.punsubscribe();
        thread.join();
        eq(false, ear.isSubscribed());
        eq(0L, r.publish("news", "gone"));

        // Messages arrive in order, however many.
        Ear many = new Ear();
        Thread reader = new Thread(() -> r.psubscribe(many, "c*"));
        reader.start();
        many.hears("+c*1");
        try (var p = r.pipelined()) {
            for (int i = 0; i < 2000; i++) {
                p.publish("c1", "m" + i);
            }
        }
        soon(() -> many.heard.size() == 2001);
        for (int i = 0; i < 2000; i++) {
            eq("c*:c1=m" + i, many.heard.get(i + 1));
        }
        many.punsubscribe();
        reader.join();
    }

    static void sharded(Jedis j) throws Exception {
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        JedisShardedPubSub ear = new JedisShardedPubSub() {
            @Override
            public void onSMessage(String channel, String message) {
                heard.add(channel + "=" + message);
            }

            @Override
            public void onSSubscribe(String channel, int count) {
                heard.add("+" + channel + count);
            }

            @Override
            public void onSUnsubscribe(String channel, int count) {
                heard.add("-" + channel + count);
            }
        };
        RedisProtocol protocol = j.getConnection().getRedisProtocol();
        try (Connection connection = new Connection(new HostAndPort(Main.HOST, Main.PORT),
                Main.config(protocol).build())) {
            Thread thread = new Thread(() -> {
                connection.setTimeoutInfinite();
                ear.proceed(connection, "shard1", "shard2");
            });
            thread.start();
            soon(() -> heard.contains("+shard22"));
            eq(1L, j.sendCommand(Protocol.Command.SPUBLISH, "shard1", "hi"));
            eq(0L, j.publish("shard1", "not sharded"));
            soon(() -> heard.contains("shard1=hi"));
            eq(list("shard2"), j.pubsubShardChannels("*2"));
            eq(2, j.pubsubShardChannels().size());
            eq(Map.of("shard1", 1L), j.pubsubShardNumSub("shard1"));
            ear.sunsubscribe("shard2");
            soon(() -> heard.contains("-shard21"));
            ear.sunsubscribe();
            thread.join();
            eq(3 + 2, heard.size());
        }
    }

    static void keyspaceEvents(Jedis j) throws Exception {
        j.configSet("notify-keyspace-events", "KEA");
        eq("AKE", j.configGet("notify-keyspace-events").get("notify-keyspace-events"));
        Ear ear = new Ear();
        Thread thread = new Thread(() -> {
            try (Jedis listener = Main.connect(RedisProtocol.RESP2)) {
                listener.psubscribe(ear, "__key*@0__:*");
            }
        });
        thread.start();
        ear.hears("+__key*@0__:*1");
        j.set("k", "v");
        j.rpush("l", "a");
        j.hset("h", "f", "v");
        j.sadd("s", "m");
        j.zadd("z", 1, "m");
        j.pexpire("k", 20);
        soon(() -> !j.exists("k"));
        j.lpop("l");
        String event = "__key*@0__:*:__keyevent@0__:";
        for (String said : List.of("set=k", "rpush=l", "hset=h", "sadd=s", "zadd=z", "expire=k", "expired=k", "lpop=l",
                "del=l")) {
            ear.hears(event + said);
        }
        ear.hears("__key*@0__:*:__keyspace@0__:k=set");
        ear.punsubscribe();
        thread.join();
        j.configSet("notify-keyspace-events", "");
    }

    /** A connection that records the invalidated keys. */
    private static final class Tracked extends Connection {
        final List<String> forgotten = new ArrayList<>();

        Tracked() {
            super(new HostAndPort(Main.HOST, Main.PORT), Main.config(RedisProtocol.RESP3).build());
            addPushConsumer(push -> {
                if (SafeEncoder.encode(push.getMessage().getType()).equals("invalidate")) {
                    Object keys = push.getMessage().getContent().get(1);
                    if (keys == null) {
                        forgotten.add("*");
                    } else {
                        ((List<?>) keys).forEach(key -> forgotten.add(SafeEncoder.encode((byte[]) key)));
                    }
                    push.drop();
                }
                return push;
            });
        }

        Object call(Protocol.Command command, String... arguments) {
            sendCommand(command, arguments);
            return getOne();
        }

        /** The keys invalidated so far, up to the reply of a PING. */
        List<String> forgets(int count) throws Exception {
            soon(() -> {
                call(Protocol.Command.PING);
                return forgotten.size() >= count;
            });
            List<String> all = List.copyOf(forgotten);
            forgotten.clear();
            return all;
        }
    }

    /**
     * Jedis's own cache refuses servers before Redis 7.4 by their version, so this is what it is made of: tracking
     * over RESP3 with a consumer of pushes.
     */
    static void tracking() throws Exception {
        fails(JedisException.class, "Client side caching is only supported with 'Redis 7.4' or later", () -> {
            try (RedisClient cached = RedisClient.builder().hostAndPort(Main.HOST, Main.PORT)
                    .clientConfig(Main.config(RedisProtocol.RESP3).build())
                    .cacheConfig(CacheConfig.builder().maxSize(10).build()).build()) {
                cached.get("k");
            }
        });
        try (Jedis j = Main.connect(RedisProtocol.RESP2); Tracked tracked = new Tracked()) {
            j.flushDB();
            j.mset("a", "1", "b", "2");
            tracked.call(Protocol.Command.CLIENT, "TRACKING", "ON");
            tracked.call(Protocol.Command.GET, "a");
            tracked.call(Protocol.Command.MGET, "b", "none");
            j.set("a", "2");
            eq(list("a"), tracked.forgets(1));
            j.set("a", "3");
            j.del("b");
            j.set("none", "now");
            eq(list("b", "none"), tracked.forgets(2));
            tracked.call(Protocol.Command.GET, "a");
            j.flushDB();
            eq(list("*"), tracked.forgets(1));
            tracked.call(Protocol.Command.CLIENT, "TRACKING", "OFF");

            tracked.call(Protocol.Command.CLIENT, "TRACKING", "ON", "BCAST", "PREFIX", "user:", "PREFIX", "item:");
            j.set("user:1", "x");
            j.set("other", "x");
            j.set("item:1", "x");
            eq(set("user:1", "item:1"), Set.copyOf(tracked.forgets(2)));
            tracked.call(Protocol.Command.CLIENT, "TRACKING", "OFF");

            tracked.call(Protocol.Command.CLIENT, "TRACKING", "ON", "OPTIN", "NOLOOP");
            tracked.call(Protocol.Command.GET, "user:1");
            tracked.call(Protocol.Command.CLIENT, "CACHING", "YES");
            tracked.call(Protocol.Command.GET, "item:1");
            tracked.call(Protocol.Command.GET, "other");
            tracked.call(Protocol.Command.SET, "item:1", "own");
            j.set("user:1", "y");
            j.set("other", "y");
            tracked.call(Protocol.Command.CLIENT, "CACHING", "YES");
            tracked.call(Protocol.Command.GET, "item:1");
            j.set("item:1", "y");
            eq(list("item:1"), tracked.forgets(1));
        }
    }
}
