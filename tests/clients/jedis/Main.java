import java.util.List;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.UnifiedJedis;

/** Jedis's public surface for the commands of Redis 7.2, family by family, over RESP2 and RESP3. */
final class Main {
    static final String HOST = Check.env("REDIS_HOST", "127.0.0.1");
    static final int PORT = Integer.parseInt(Check.env("REDIS_PORT", "6379"));

    /** Whether the server has features newer than Debian's 7.0. */
    static boolean since72;

    /** Of the running family. */
    static RedisProtocol protocol;

    private Main() {}

    static DefaultJedisClientConfig.Builder config(RedisProtocol protocol) {
        return DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(60_000);
    }

    static Jedis connect(RedisProtocol protocol) {
        return new Jedis(HOST, PORT, config(protocol).build());
    }

    interface Pooled {
        void run(RedisClient client) throws Exception;
    }

    interface Single {
        void run(Jedis client) throws Exception;
    }

    /** On an empty server, once with each protocol, through the pooled client. */
    private static void pooled(String name, Pooled code) {
        Check.family(name, () -> {
            for (RedisProtocol each : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
                protocol = each;
                try (RedisClient client = RedisClient.builder().hostAndPort(HOST, PORT)
                        .clientConfig(config(protocol).build()).build()) {
                    client.flushDB();
                    code.run(client);
                }
            }
        });
    }

    /** On an empty server, once with each protocol, through one connection. */
    private static void single(String name, Single code) {
        Check.family(name, () -> {
            for (RedisProtocol each : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
                protocol = each;
                try (Jedis client = connect(protocol)) {
                    client.flushDB();
                    code.run(client);
                }
            }
        });
    }

    /** Every method of the library is used, except those for modules, Redis 8, cluster and replication. */
    private static void surface() throws Exception {
        String modules = "(bf|cf|cms|ft|json|tdigest|topk|ts)[A-Z].*|module[LU].*";
        String later = "ar[a-z]+(WithValues|Full|Bitwise|Aggregate|Count)?"
                + "|v(add|card|dim|emb|getattr|info|ismember|links|randmember|rem|setattr|sim).*|b?lmovem|delex|digestKey|hgetdel|hgetex|hsetex|himportSet"
                + "|hotkeys.*|hscanNoValues|increx|msetex|s(diff|union)card|xackdel|xcfgset|xdelex|xnack";
        String persistenceAndReplication = "save|bgsave(Schedule)?|bgrewriteaof|shutdown(Abort)?|configRewrite"
                + "|(slave|replica)of|slaveofNoOne|failover|cluster[A-Z].*|sentinel.*";
        String local = "getC(ache|lient)|isConnected|resetState|set(DefaultSearchDialect|JsonObjectMapper)";
        String others = String.join("|", modules, later, persistenceAndReplication, local);
        Check.eq(Set.of(), Surface.unused(others, UnifiedJedis.class, Jedis.class));
    }

    public static void main(String[] args) {
        Check.only(args);
        try (Jedis client = connect(RedisProtocol.RESP2)) {
            since72 = !client.info("server").contains("redis_version:7.0");
        }
        pooled("strings", Plain::strings);
        pooled("bitmaps", Plain::bitmaps);
        pooled("hyperloglog", Plain::hyperloglog);
        pooled("keys", Plain::keys);
        pooled("scan", Plain::scan);
        pooled("sort", Plain::sort);
        pooled("dump", Plain::dump);
        pooled("binary", Plain::binary);
        pooled("hashes", Types::hashes);
        pooled("hash-expiry", Types::hashExpiry);
        pooled("lists", Types::lists);
        pooled("blocking", Types::blocking);
        pooled("sets", Types::sets);
        pooled("sorted-sets", Types::sortedSets);
        pooled("sorted-set-ranges", Types::sortedSetRanges);
        pooled("geo", Types::geo);
        pooled("streams", Streams::entries);
        pooled("groups", Streams::groups);
        pooled("scripts", Scripts::scripts);
        pooled("functions", Scripts::functions);
        pooled("pipelines", Grouped::pipelines);
        pooled("transactions", Grouped::transactions);
        single("watch", Grouped::watch);
        pooled("pubsub", Messages::pubsub);
        single("sharded-pubsub", Messages::sharded);
        single("keyspace-events", Messages::keyspaceEvents);
        Check.family("tracking", Messages::tracking);
        single("connection", Server::connection);
        single("clients", Server::clients);
        single("databases", Server::databases);
        single("server", Server::server);
        single("command", Server::command);
        single("monitor", Server::monitor);
        single("acl", Server::acl);
        Check.family("pools", Server::pools);
        Check.family("reconnect", Server::reconnect);
        Check.family("timeouts", Server::timeouts);
        pooled("errors", Server::errors);
        if (!Check.env("REDIS_TLS_PORT", "").isEmpty()) {
            Check.family("tls", Server::tls);
        }
        Check.family("surface", Main::surface);
        Check.exit();
    }
}
