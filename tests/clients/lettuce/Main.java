import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** Lettuce's public surface for Redis 7.2: sync, async and reactive, RESP2 and RESP3, family by family. */
final class Main {
    static final String HOST = Check.env("REDIS_HOST", "127.0.0.1");
    static final int PORT = Integer.parseInt(Check.env("REDIS_PORT", "6379"));

    /** Whether the server has features newer than Debian's 7.0. */
    static boolean since72;

    private Main() {}

    static RedisURI.Builder uri() {
        return RedisURI.builder().withHost(HOST).withPort(PORT).withTimeout(Duration.ofSeconds(60));
    }

    static RedisClient client(ProtocolVersion protocol) {
        RedisClient client = RedisClient.create(uri().build());
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        return client;
    }

    private static final RedisClient RESP2 = client(ProtocolVersion.RESP2);
    static final RedisClient RESP3 = client(ProtocolVersion.RESP3);

    /** The connections to the server, in one style and protocol. */
    static final class Session implements AutoCloseable {
        final Styles style;
        final RedisClient client;
        final RedisCommands<String, String> r;
        private final List<StatefulRedisConnection<String, String>> open = new ArrayList<>();

        Session(Styles style, RedisClient client) {
            this.style = style;
            this.client = client;
            r = another();
        }

        StatefulRedisConnection<String, String> connection() {
            StatefulRedisConnection<String, String> connection = client.connect();
            open.add(connection);
            return connection;
        }

        /** A second connection. */
        RedisCommands<String, String> another() {
            return style.of(connection());
        }

        @Override
        public void close() {
            open.forEach(StatefulRedisConnection::close);
        }
    }

    interface Talk {
        void run(Session session) throws Exception;
    }

    private static void in(Session session, Talk code) throws Exception {
        try (session) {
            session.r.flushdb();
            code.run(session);
        } catch (Throwable t) {
            String protocol = session.client == RESP2 ? " RESP2: " : " RESP3: ";
            AssertionError named = new AssertionError(session.style + protocol + t, t);
            named.setStackTrace(t.getStackTrace());
            throw named;
        }
    }

    /** On an empty server, in every style. */
    private static void every(String name, Talk code) {
        Check.family(name, () -> {
            in(new Session(Styles.SYNC, RESP2), code);
            in(new Session(Styles.SYNC, RESP3), code);
            in(new Session(Styles.ASYNC, RESP3), code);
            in(new Session(Styles.REACTIVE, RESP3), code);
        });
    }

    /** On an empty server, with either protocol, for families that choose the style themselves. */
    private static void either(String name, Talk code) {
        Check.family(name, () -> {
            in(new Session(Styles.SYNC, RESP2), code);
            in(new Session(Styles.SYNC, RESP3), code);
        });
    }

    /** Every method of the library is used, except those for modules, Redis 8, cluster, replication and crashes. */
    private static void surface() throws Exception {
        String modules = "(bf|cf|cms|ft|json|tdigest|top[kK])[A-Z].*|get(JsonParser|StatefulConnection)";
        String later = "ar[a-z]+.*|v(add|card|dim|emb|getattr|info|ismember|links|randmember|rem|setattr|sim).*"
                + "|vClearAttributes|b?lmovem|delex|digestKey|hgetdel|hgetex|hsetex|himportSet|hotkeys.*|hscanNovalues|increx|msetex"
                + "|s(diff|union)card|xackdel|xcfgset|xdelex|xnack|bitop(Diff1?|Andor|One)";
        String others = "save|bgsave|bgrewriteaof|shutdown|configRewrite|(slave|replica)of|slaveofNoOne|cluster[A-Z].*"
                + "|asking|debug[A-Z].*|stralgoLcs|setTimeout|keysLegacy";
        Check.eq(Set.of(), Surface.unused(modules + "|" + later + "|" + others, RedisCommands.class));
    }

    public static void main(String[] args) {
        Check.only(args);
        try (StatefulRedisConnection<String, String> connection = RESP2.connect()) {
            since72 = !connection.sync().info("server").contains("redis_version:7.0");
        }
        every("strings", Plain::strings);
        every("bitmaps", Plain::bitmaps);
        every("hyperloglog", Plain::hyperloglog);
        every("keys", Plain::keys);
        every("scan", Plain::scan);
        every("sort", Plain::sort);
        every("dump", Plain::dump);
        every("hashes", Types::hashes);
        every("hash-expiry", Types::hashExpiry);
        every("lists", Types::lists);
        every("blocking", Types::blocking);
        every("sets", Types::sets);
        every("sorted-sets", SortedSets::sortedSets);
        every("sorted-set-algebra", SortedSets::algebra);
        every("sorted-set-ranges", SortedSets::ranges);
        every("geo", Types::geo);
        every("streams", Streams::entries);
        every("groups", Streams::groups);
        every("scripts", Scripts::scripts);
        every("functions", Scripts::functions);
        either("transactions", Grouped::transactions);
        either("pipelines", Grouped::pipelines);
        either("reactive", Grouped::reactive);
        either("pubsub", Messages::pubsub);
        either("sharded-pubsub", Messages::sharded);
        either("keyspace-events", Messages::keyspaceEvents);
        Check.family("caching", Messages::caching);
        either("codecs", Server::codecs);
        either("own-commands", Server::ownCommands);
        every("connection", Server::connection);
        every("clients", Server::clients);
        every("databases", Server::databases);
        every("server", Server::server);
        every("acl", Server::acl);
        either("pools", Server::pools);
        either("reconnect", Server::reconnect);
        either("timeouts", Server::timeouts);
        every("errors", Server::errors);
        if (!Check.env("REDIS_TLS_PORT", "").isEmpty()) {
            Check.family("tls", Server::tls);
        }
        if (!Check.env("REDIS_SOCKET", "").isEmpty()) {
            Check.family("unix-socket", Server::unixSocket);
        }
        Check.family("surface", Main::surface);
        Check.exit();
    }
}
