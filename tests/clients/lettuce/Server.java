import io.lettuce.core.AclCategory;
import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.ClientListArgs;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.CopyArgs;
import io.lettuce.core.FlushMode;
import io.lettuce.core.KillArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.UnblockType;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.CompressionCodec;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.dynamic.Commands;
import io.lettuce.core.dynamic.RedisCommandFactory;
import io.lettuce.core.dynamic.annotation.Command;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.output.ValueOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.support.AsyncConnectionPoolSupport;
import io.lettuce.core.support.BoundedPoolConfig;
import io.lettuce.core.support.ConnectionPoolSupport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/** Connections, the server itself, and access rights. */
final class Server extends Check {
    private static final Class<RedisCommandExecutionException> REFUSED = RedisCommandExecutionException.class;

    static void codecs(Main.Session s) {
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        try (StatefulRedisConnection<byte[], byte[]> bytes = s.client.connect(ByteArrayCodec.INSTANCE)) {
            RedisCommands<byte[], byte[]> r = bytes.sync();
            eq("OK", r.set(all, all));
            eq(all, r.get(all));
            eq(all, r.keys("*").get(0));
            r.del(all);
            r.hset(all, all, all);
            eq(all, r.hget(all, all));
            eq(all, r.hgetall(all).keySet().iterator().next());
        }
        RedisCodec<String, String> packed = CompressionCodec.valueCompressor(StringCodec.UTF8,
                CompressionCodec.CompressionType.GZIP);
        try (StatefulRedisConnection<String, String> gzip = s.client.connect(packed)) {
            String text = "squeeze me ".repeat(10_000);
            gzip.sync().set("packed", text);
            eq(text, gzip.sync().get("packed"));
            yes(gzip.sync().strlen("packed") < 1000);
        }
    }

    /** An interface of the application, which Lettuce implements. */
    public interface Own extends Commands {
        String get(String key);

        @Command("SET ?0 ?1 PX ?2")
        String keep(String key, String value, long ms);

        @Command("OBJECT ENCODING ?0")
        String encoding(String key);
    }

    static void ownCommands(Main.Session s) {
        Own own = new RedisCommandFactory(s.connection()).getCommands(Own.class);
        eq("OK", own.keep("k", "12", 100_000));
        eq("12", own.get("k"));
        eq("int", own.encoding("k"));
    }

    static void connection(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        eq("PONG", r.ping());
        eq("text", r.echo("text"));
        eq("OK", r.clientSetname("me"));
        eq("me", r.clientGetname());
        eq("OK", r.select(3));
        yes(r.clientInfo().contains("db=3"));
        eq("OK", r.select(0));
        fails(REFUSED, "ERR DB index is out of range", () -> r.select(1_000_000));
        eq("PONG", r.dispatch(CommandType.PING, new StatusOutput<>(StringCodec.UTF8)));
        eq("text", r.dispatch(CommandType.ECHO, new ValueOutput<>(StringCodec.UTF8),
                new CommandArgs<>(StringCodec.UTF8).add("text")));
        fails(REFUSED, "ERR wrong number of arguments for 'get' command", () ->
                r.dispatch(CommandType.GET, new StatusOutput<>(StringCodec.UTF8)));
        fails(REFUSED, "WRONGPASS", () -> r.auth("nobody", "x"));
        eq("OK", s.another().quit());
        for (Code clustered : List.<Code>of(r::readOnly, r::readWrite)) {
            fails(REFUSED, "ERR This instance has cluster support disabled", clustered);
        }
    }

    static void clients(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        RedisURI named = Main.uri().withClientName("named").withDatabase(2).build();
        try (StatefulRedisConnection<String, String> connection = s.client.connect(named)) {
            RedisCommands<String, String> other = s.style.of(connection);
            eq("named", other.clientGetname());
            yes(other.clientInfo().contains("db=2"));
            if (Main.since72) {
                yes(other.clientInfo().contains("lib-name=Lettuce"), other.clientInfo());
                eq("OK", other.clientSetinfo("lib-name", "mine"));
                eq("OK", other.clientNoTouch(true));
                eq("OK", other.clientNoTouch(false));
            }
            eq("OK", other.clientNoEvict(true));
            eq("OK", other.clientNoEvict(false));
            long id = other.clientId();
            yes(r.clientList().contains("name=named"));
            yes(r.clientList(ClientListArgs.Builder.ids(id)).contains("id=" + id + " "));
            yes(!r.clientList(ClientListArgs.Builder.typePubsub()).contains("name=named"));

            var waits = CompletableFuture.supplyAsync(() -> other.blpop(15, "none"));
            soon(() -> r.clientUnblock(id, UnblockType.TIMEOUT) == 1);
            eq(null, waits.get());
            var refused = CompletableFuture.supplyAsync(() -> {
                try {
                    return String.valueOf(other.blpop(15, "none"));
                } catch (RedisCommandExecutionException e) {
                    return e.getMessage();
                }
            });
            soon(() -> r.clientUnblock(id, UnblockType.ERROR) == 1);
            yes(refused.get().startsWith("UNBLOCKED client unblocked via CLIENT UNBLOCK"), refused.get());
            eq("OK", r.clientPause(30));
            eq("PONG", other.ping());
            // Lettuce reconnects by itself, with its name and database.
            eq(1L, r.clientKill(KillArgs.Builder.id(id)));
            soon(() -> {
                try {
                    return other.clientId() != id;
                } catch (RedisException closing) {
                    return false;
                }
            });
            eq("named", other.clientGetname());
            yes(other.clientInfo().contains("db=2"));
            String address = other.clientInfo().replaceAll("(?s).*? addr=(\\S+) .*", "$1");
            eq("OK", r.clientKill(address));
        }
        fails(REFUSED, "ERR No such client", () -> r.clientKill("127.0.0.1:1"));
    }

    static void databases(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.flushall();
        r.set("k", "zero");
        r.set("moves", "x");
        eq(true, r.move("moves", 1));
        eq(false, r.move("none", 1));
        eq(true, r.copy("k", "copied", CopyArgs.Builder.destinationDb(1)));
        r.select(1);
        eq(2L, r.dbsize());
        eq("OK", r.swapdb(0, 1));
        eq("zero", r.get("k"));
        eq("OK", r.flushdb(FlushMode.ASYNC));
        eq("OK", r.flushdbAsync());
        r.select(0);
        eq(2L, r.dbsize());
        eq("OK", r.flushallAsync());
        eq("OK", r.flushall(FlushMode.SYNC));
        eq(0L, r.dbsize());
    }

    static void server(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        String info = r.info();
        for (String field : List.of("redis_version:7.", "redis_mode:standalone", "connected_clients:", "used_memory:",
                "role:master", "cluster_enabled:0")) {
            yes(info.contains("\n" + field), field);
        }
        near(System.currentTimeMillis() / 1000.0, Double.parseDouble(r.time().get(0)), 60);
        eq("master", r.role().get(0));
        eq(0L, r.waitForReplication(0, 10));
        yes(r.lastsave().getTime() > 0);
        eq("OK", r.replicaofNoOne());
        eq("OK", r.configSet("slowlog-log-slower-than", "0"));
        eq(map("slowlog-log-slower-than", "0"), r.configGet("slowlog-log-slower-than"));
        yes(r.configGet("slowlog-*", "maxmemory").size() >= 3);
        r.set("slow", "command");
        eq("OK", r.configSet(Map.of("slowlog-log-slower-than", "10000")));
        yes(r.slowlogLen() >= 1);
        yes(r.slowlogGet().toString().contains("[SET, slow, command]"), r.slowlogGet());
        eq(1, r.slowlogGet(1).size());
        eq("OK", r.slowlogReset());
        eq("OK", r.configResetstat());
        fails(REFUSED, "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
                () -> r.configSet("nosuch", "1"));
        eq(r.commandCount(), r.command().size());
        List<?> get = (List<?>) r.commandInfo("get").get(0);
        eq(list("get", 2L), get.subList(0, 2));
        eq(list(1L, 1L, 1L), get.subList(3, 6));
        eq(2, r.commandInfo(CommandType.SET, CommandType.XADD).size());
    }

    static void acl(Main.Session s) throws Exception {
        RedisCommands<String, String> r = s.r;
        eq("default", r.aclWhoami());
        eq(21, r.aclCat().size());
        yes(r.aclCat(AclCategory.HASH).contains(CommandType.HSET));
        eq(64, r.aclGenpass().length());
        eq(8, r.aclGenpass(32).length());
        r.aclDeluser("ann");
        eq("OK", r.aclSetuser("ann", AclSetuserArgs.Builder.on().addPassword("secret").keyPattern("app:*")
                .channelPattern("news*").allCommands().removeCategory(AclCategory.DANGEROUS)
                .addCommand(CommandType.CONFIG, CommandType.GET)));
        eq(set("default", "ann"), new HashSet<>(r.aclUsers()));
        yes(r.aclList().stream().anyMatch(line -> line.startsWith("user ann on ")));
        List<?> ann = r.aclGetuser("ann");
        eq("~app:*", Streams.field(ann, "keys"));
        yes(Streams.field(ann, "commands").toString().contains("+config|get"), ann);
        eq("OK", r.aclDryRun("ann", "GET", "app:1"));
        yes(r.aclDryRun("ann", "SET", "other", "v").contains("permissions to access"));
        r.aclLogReset();
        RedisURI as = Main.uri().withAuthentication("ann", "secret").build();
        try (StatefulRedisConnection<String, String> connection = s.client.connect(as)) {
            RedisCommands<String, String> a = s.style.of(connection);
            eq("ann", a.aclWhoami());
            eq("OK", a.set("app:1", "v"));
            fails(REFUSED, "NOPERM", () -> a.get("other"));
            fails(REFUSED, "NOPERM", a::flushall);
            eq(0L, a.publish("news1", "x"));
            fails(REFUSED, "NOPERM", () -> a.publish("weather", "x"));
            Map<String, Object> entry = r.aclLog(1).get(0);
            eq("channel", entry.get("reason"));
            eq("weather", entry.get("object"));
            eq("ann", entry.get("username"));
            eq(3, r.aclLog().size());
            eq("OK", r.aclLogReset());
        }
        eq("OK", r.aclSetuser("ann", AclSetuserArgs.Builder.off()));
        RedisException refused = fails(RedisConnectionException.class, "", () -> s.client.connect(as).close());
        // Lettuce reports the reason when it closes the channel, but sometimes it sees the closed channel first.
        String reason = refused.getCause() == null ? refused.getMessage() : refused.getCause().getMessage();
        yes(reason.contains("WRONGPASS") || reason.contains("Connection closed prematurely"), reason);
        fails(REFUSED, "WRONGPASS", () -> r.auth("ann", "secret"));
        eq(1L, r.aclDeluser("ann", "none"));
        fails(REFUSED, "ERR AUTH <password> called without any password configured for the default user",
                () -> r.auth("anything"));
        for (Code file : List.<Code>of(r::aclSave, r::aclLoad)) {
            fails(REFUSED, "ERR This Redis instance is not configured to use an ACL file", file);
        }
    }

    static void pools(Main.Session s) throws Exception {
        GenericObjectPoolConfig<StatefulRedisConnection<String, String>> limits = new GenericObjectPoolConfig<>();
        limits.setMaxTotal(4);
        try (var pool = ConnectionPoolSupport.createGenericObjectPool(() -> s.client.connect(), limits)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 8; t++) {
                threads.add(new Thread(() -> {
                    for (int i = 0; i < 50; i++) {
                        try (StatefulRedisConnection<String, String> connection = pool.borrowObject()) {
                            connection.sync().incr("n");
                        } catch (Exception e) {
                            throw new IllegalStateException(e);
                        }
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            eq("400", s.r.get("n"));
            yes(pool.getNumIdle() <= 4 && pool.getNumActive() == 0);
        }
        var pool = AsyncConnectionPoolSupport.createBoundedObjectPool(
                () -> s.client.connectAsync(StringCodec.UTF8, Main.uri().build()),
                BoundedPoolConfig.builder().maxTotal(2).build());
        eq("OK", pool.acquire().thenCompose(connection -> connection.async().set("k", "v")
                .whenComplete((ok, e) -> pool.release(connection))).get());
        pool.close();
    }

    static void reconnect(Main.Session s) throws Exception {
        StatefulRedisConnection<String, String> connection = s.connection();
        RedisCommands<String, String> r = connection.sync();
        r.select(4);
        r.set("k", "v");
        for (int round = 0; round < 3; round++) {
            long id = r.clientId();
            s.r.clientKill(KillArgs.Builder.id(id));
            soon(() -> {
                try {
                    return "v".equals(r.get("k")) && r.clientId() != id;
                } catch (RedisException closing) {
                    return false;
                }
            });
        }
        RedisClient nobody = RedisClient.create(RedisURI.create("redis://127.0.0.1:1"));
        fails(RedisConnectionException.class, "Unable to connect", nobody::connect);
        nobody.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }

    static void timeouts(Main.Session s) throws Exception {
        StatefulRedisConnection<String, String> connection = s.connection();
        connection.setTimeout(Duration.ofMillis(100));
        fails(RedisCommandTimeoutException.class, "Command timed out after 100 millisecond", () ->
                connection.sync().blpop(1, "none"));
        // A late reply must not go to another command.
        connection.setTimeout(Duration.ofSeconds(5));
        eq("PONG", connection.sync().ping());
        RedisClient client = Main.client(connection.getOptions().getProtocolVersion());
        client.setOptions(connection.getOptions().mutate()
                .timeoutOptions(TimeoutOptions.enabled(Duration.ofMillis(100))).build());
        try (StatefulRedisConnection<String, String> hasty = client.connect()) {
            var late = hasty.async().blpop(1, "none").toCompletableFuture();
            fails(java.util.concurrent.ExecutionException.class, "Command timed out", late::get);
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }

    static void errors(Main.Session s) {
        RedisCommands<String, String> r = s.r;
        r.rpush("l", "a");
        r.set("s", "text");
        String wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        fails(REFUSED, wrong, () -> r.get("l"));
        fails(REFUSED, wrong, () -> r.hgetall("l"));
        fails(REFUSED, wrong, () -> r.lrange("s", 0, -1));
        fails(REFUSED, wrong, () -> r.smembers("s"));
        fails(REFUSED, wrong, () -> r.zrange("s", 0, -1));
        fails(REFUSED, wrong, () -> r.xlen("s"));
        fails(REFUSED, "ERR value is not an integer or out of range", () -> r.incr("s"));
        fails(REFUSED, "ERR value is not a valid float", () -> r.incrbyfloat("s", 1));
        fails(REFUSED, "ERR bit offset is not an integer or out of range", () -> r.setbit("b", 1L << 40, 1));
        fails(REFUSED, "ERR string exceeds maximum allowed size", () -> r.setrange("b", 1L << 40, "x"));
        fails(REFUSED, "ERR invalid expire time in 'set' command", () -> r.set("s", "x", SetArgs.Builder.ex(0)));
        fails(REFUSED, "ERR syntax error", () -> r.set("s", "x", SetArgs.Builder.nx().xx()));
    }

    static void tls() {
        int port = Integer.parseInt(System.getenv("REDIS_TLS_PORT"));
        RedisURI uri = RedisURI.builder().withHost(Main.HOST).withPort(port).withSsl(true).build();
        RedisClient client = RedisClient.create(uri);
        client.setOptions(ClientOptions.builder().sslOptions(SslOptions.builder().jdkSslProvider()
                .trustManager(Certs.file("ca.crt").toFile())
                .keyManager(Certs.file("client.crt").toFile(), Certs.file("client.key").toFile(), new char[0])
                .build()).build());
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            String big = "x".repeat(5_000_000);
            connection.sync().set("big", big);
            eq(big, connection.sync().get("big"));
        }
        client.setOptions(ClientOptions.create());
        fails(RedisConnectionException.class, "Unable to connect", client::connect);
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }

    static void unixSocket() {
        RedisClient client = RedisClient.create(RedisURI.Builder.socket(System.getenv("REDIS_SOCKET")).build());
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            connection.sync().set("k", "over a socket");
            eq("over a socket", connection.sync().get("k"));
            yes(connection.sync().clientInfo().contains(" addr=" + System.getenv("REDIS_SOCKET")),
                    connection.sync().clientInfo());
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }
}
