import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisMonitor;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.args.ClientAttributeOption;
import redis.clients.jedis.args.ClientPauseMode;
import redis.clients.jedis.args.ClientType;
import redis.clients.jedis.args.FlushMode;
import redis.clients.jedis.args.LatencyEvent;
import redis.clients.jedis.args.UnblockType;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.ClientKillParams;
import redis.clients.jedis.params.CommandListFilterByParams;
import redis.clients.jedis.util.KeyValue;

/** Connections, the server itself, and access rights. */
final class Server extends Check {
    static void connection(Jedis j) {
        eq("PONG", j.ping());
        eq("text", j.ping("text"));
        eq("text", j.echo("text"));
        eq("OK", j.clientSetname("me"));
        eq("me", j.clientGetname());
        eq("OK", j.select(3));
        eq(3, j.getDB());
        yes(j.clientInfo().contains("db=3"));
        eq("OK", j.select(0));
        fails(JedisDataException.class, "ERR DB index is out of range", () -> j.select(1_000_000));
        eq("RESET", j.reset());
        // RESET returns a connection to RESP2.
        eq(null, j.clientGetname());
        Map<?, ?> hello = pairs(j.sendCommand(Protocol.Command.HELLO, "3"));
        eq(3L, hello.get("proto"));
        eq("redis", hello.get("server"));
        eq("master", hello.get("role"));
        fails(JedisDataException.class, "NOPROTO", () -> j.sendCommand(Protocol.Command.HELLO, "4"));
        fails(JedisDataException.class, "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
                () -> j.sendCommand(() -> "NOSUCH".getBytes(), "a", "b"));
        fails(JedisDataException.class, "ERR wrong number of arguments for 'get' command",
                () -> j.sendCommand(Protocol.Command.GET));
        eq("PONG", j.ping());
    }

    /** RESP3's maps arrive as pairs if the client does not know their type. */
    private static Map<Object, Object> pairs(Object reply) {
        Map<Object, Object> map = new java.util.HashMap<>();
        for (Object pair : (List<?>) reply) {
            KeyValue<?, ?> kv = (KeyValue<?, ?>) pair;
            map.put(text(kv.getKey()), text(kv.getValue()));
        }
        return map;
    }

    private static Object text(Object o) {
        return o instanceof byte[] b ? new String(b) : o;
    }

    static void clients(Jedis j) throws Exception {
        DefaultJedisClientConfig named = Main.config(RedisProtocol.RESP3).clientName("named").database(2).build();
        try (Jedis other = new Jedis(Main.HOST, Main.PORT, named)) {
            eq("named", other.clientGetname());
            yes(other.clientInfo().contains("name=named") && other.clientInfo().contains("db=2"));
            if (Main.since72) {
                yes(other.clientInfo().contains("lib-name=jedis"), other.clientInfo());
                eq("OK", other.clientSetInfo(ClientAttributeOption.LIB_NAME, "mine"));
                yes(other.clientInfo().contains("lib-name=mine"));
                eq("OK", other.clientNoTouchOn());
                eq("OK", other.clientNoTouchOff());
            }
            eq("OK", other.clientNoEvictOn());
            eq("OK", other.clientNoEvictOff());
            long id = other.clientId();
            yes(id > 0 && id != j.clientId());
            yes(j.clientList().contains("name=named"));
            eq("named", new String(other.clientGetnameBinary()));
            yes(new String(other.clientInfoBinary()).contains("name=named"));
            yes(new String(j.clientListBinary(id)).contains("name=named"));
            yes(j.clientList(id).contains("id=" + id + " "));
            yes(j.clientList(ClientType.NORMAL).contains("name=named"));
            eq("", j.clientList(ClientType.PUBSUB));
            eq(List.of("off"), other.clientTrackingInfo().getFlags());
            eq(-1L, other.clientTrackingInfo().getRedirect());

            // A blocked client is unblocked, with no result or with an error.
            var waits = CompletableFuture.supplyAsync(() -> other.blpop(20, "none"));
            soon(() -> j.clientUnblock(id) == 1);
            eq(null, waits.get());
            var refused = CompletableFuture.supplyAsync(() -> {
                try {
                    return String.valueOf(other.blpop(20, "none"));
                } catch (JedisDataException e) {
                    return e.getMessage();
                }
            });
            soon(() -> j.clientUnblock(id, UnblockType.ERROR) == 1);
            yes(refused.get().startsWith("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
            eq(0L, j.clientUnblock(id));

            // Writes wait while the clients pause, reads do not.
            other.del("k");
            eq("OK", j.clientPause(10_000, ClientPauseMode.WRITE));
            eq(null, other.get("k"));
            var write = CompletableFuture.supplyAsync(() -> other.set("k", "v"));
            Thread.sleep(50);
            eq(false, write.isDone());
            eq("OK", j.clientUnpause());
            eq("OK", write.get());
            eq("OK", j.clientPause(20));
            eq("PONG", other.ping());

            eq(1L, j.clientKill(new ClientKillParams().id(String.valueOf(id))));
            fails(JedisConnectionException.class, "", other::ping);
        }
        try (Jedis other = Main.connect(RedisProtocol.RESP2)) {
            String address = other.clientInfo().replaceAll(".*? addr=(\\S+) .*\n?", "$1");
            eq("OK", j.clientKill(address));
            fails(JedisConnectionException.class, "", other::ping);
        }
        fails(JedisDataException.class, "ERR No such client", () -> j.clientKill("127.0.0.1:1"));
        eq(0L, j.clientKill(new ClientKillParams().type(ClientType.PUBSUB).skipMe(ClientKillParams.SkipMe.YES)));
        fails(JedisDataException.class, "ERR unknown subcommand",
                () -> j.sendCommand(Protocol.Command.CLIENT, "NOSUCH"));
    }

    static void databases(Jedis j) {
        j.flushAll();
        j.set("k", "zero");
        j.set("moves", "x");
        eq(1L, j.move("moves", 1));
        eq(0L, j.move("none", 1));
        eq(true, j.copy("k", "copied", 1, false));
        eq(true, j.copy("k", "copied", 1, true));
        j.select(1);
        eq(2L, j.dbSize());
        eq("x", j.get("moves"));
        eq("OK", j.swapDB(0, 1));
        eq("zero", j.get("k"));
        eq(1L, j.dbSize());
        j.select(0);
        eq(2L, j.dbSize());
        eq("OK", j.flushDB(FlushMode.ASYNC));
        eq(0L, j.dbSize());
        j.select(1);
        eq(1L, j.dbSize());
        eq("OK", j.flushAll(FlushMode.SYNC));
        eq(0L, j.dbSize());
    }

    static void server(Jedis j) throws Exception {
        String info = j.info();
        for (String section : List.of("Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU",
                "Cluster", "Keyspace")) {
            yes(info.contains("# " + section + "\r\n"), section);
        }
        for (String field : List.of("redis_version:7.", "redis_mode:standalone", "connected_clients:", "used_memory:",
                "loading:0", "total_commands_processed:", "role:master", "cluster_enabled:0", "maxmemory_policy:")) {
            yes(info.contains("\n" + field), field);
        }
        yes(j.info("commandstats").contains("cmdstat_info:calls="));
        List<String> time = j.time();
        near(System.currentTimeMillis() / 1000.0, Double.parseDouble(time.get(0)), 60);
        eq(list("master", 0L, List.of()), j.role());
        eq(3, j.roleBinary().size());
        eq(0L, j.waitReplicas(0, 10));
        eq(0L, j.waitReplicas(1, 10));
        if (Main.since72) {
            // With a journal, the writes before may be durable already.
            KeyValue<Long, Long> reached = j.waitAOF(0, 0, 10);
            yes(reached.getKey() <= 1 && reached.getValue() == 0);
        }
        eq("OK", j.replicaofNoOne());
        fails(JedisDataException.class, "ERR No failover in progress.", j::failoverAbort);
        for (Code clustered : List.<Code>of(j::asking, j::readonly, j::readwrite, j::clusterInfo)) {
            fails(JedisDataException.class, "ERR This instance has cluster support disabled", clustered);
        }
        eq(0, j.moduleList().size());
        yes(j.lastsave() > 0);

        eq("OK", j.configSet("slowlog-log-slower-than", "0"));
        eq("0", j.configGet("slowlog-log-slower-than").get("slowlog-log-slower-than"));
        yes(j.configGet("slowlog-*", "maxmemory").size() >= 3);
        eq("OK", j.configSet(Map.of("slowlog-max-len", "64")));
        eq("OK", j.slowlogReset());
        j.clientSetname("slow");
        j.set("slow", "command");
        eq("OK", j.configSet("slowlog-log-slower-than", "10000"));
        var slow = j.slowlogGet(10).stream().filter(s -> s.getArgs().equals(List.of("SET", "slow", "command")))
                .findFirst().orElseThrow();
        eq("slow", slow.getClientName());
        yes(slow.getExecutionTime() >= 0 && slow.getId() >= 0 && slow.getClientIpPort().getPort() > 0);
        yes(j.slowlogLen() >= 2);
        eq(1, j.slowlogGetBinary(1).size());
        eq("OK", j.slowlogReset());
        eq("OK", j.configSetBinary(Map.of("slowlog-max-len".getBytes(), "128".getBytes())));
        fails(JedisDataException.class, "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
                () -> j.configSet("nosuch", "1"));
        fails(JedisDataException.class, "ERR CONFIG SET failed (possibly related to argument 'maxmemory')",
                () -> j.configSet("maxmemory", "lots"));
        eq("OK", j.configResetStat());

        eq("OK", j.memoryPurge());
        Map<String, Object> memory = j.memoryStats();
        yes((Long) memory.get("total.allocated") > 0);
        eq(0L, memory.get("replication.backlog"));
        yes(j.memoryDoctor() != null);
        yes(j.memoryDoctorBinary() != null);
        eq(j.objectHelp().size(), j.objectHelpBinary().size());
        yes(j.latencyDoctor() != null);
        yes(j.latencyLatest() != null);
        eq(0, j.latencyHistory(LatencyEvent.COMMAND).size());
        eq(0L, j.latencyReset());
        yes(j.lolwut().contains("Redis ver"), j.lolwut());
        yes(j.objectHelp().get(0).startsWith("OBJECT <subcommand>"));
    }

    static void command(Jedis j) {
        long count = j.commandCount();
        yes(count > 200, count);
        eq(count, j.command().size());
        var get = j.commandInfo("get", "nosuch").get("get");
        eq(2L, get.getArity());
        yes(get.getFlags().contains("readonly") && get.getFlags().contains("fast"), get.getFlags());
        eq(1L, get.getFirstKey());
        eq(1L, get.getLastKey());
        eq(1L, get.getStep());
        yes(get.getAclCategories().contains("@string"));
        yes(j.commandInfo("config").get("config").getSubcommands().containsKey("config|get"));
        eq(list("a", "b"), j.commandGetKeys("MSET", "a", "1", "b", "2"));
        var keys = j.commandGetKeysAndFlags("LMOVE", "src", "dst", "LEFT", "LEFT");
        eq("src", keys.get(0).getKey());
        // FlintKV calls every change an update (docs/compatibility.md).
        yes(keys.get(0).getValue().containsAll(List.of("RW", "access")), keys.get(0).getValue());
        eq("dst", keys.get(1).getKey());
        fails(JedisDataException.class, "ERR The command has no key arguments", () -> j.commandGetKeys("ECHO", "x"));
        yes(j.commandList().contains("xadd"));
        yes(j.commandListFilterBy(CommandListFilterByParams.commandListFilterByParams().filterByPattern("hget*"))
                .containsAll(List.of("hget", "hgetall")));
        yes(j.commandListFilterBy(CommandListFilterByParams.commandListFilterByParams().filterByAclCat("hash"))
                .contains("hset"));
        var doc = j.commandDocs("set").get("set");
        yes(!doc.getSummary().isEmpty());
        eq("1.0.0", doc.getSince());
        eq("string", doc.getGroup());
        eq("O(1)", doc.getComplexity());
    }

    static void monitor(Jedis j) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        Jedis watcher = Main.connect(RedisProtocol.RESP2);
        Thread thread = new Thread(() -> {
            try {
                watcher.monitor(new JedisMonitor() {
                    @Override
                    public void onCommand(String command) {
                        seen.add(command);
                    }
                });
            } catch (JedisException closed) {
                // The test does this below.
            }
        });
        thread.start();
        soon(() -> {
            j.set("k", "\"v\n");
            return !seen.isEmpty();
        });
        yes(seen.get(0).matches("\\d+\\.\\d{6} \\[0 [^ ]+:\\d+\\] \"SET\" \"k\" \"\\\\\"v\\\\n\""), seen.get(0));
        watcher.disconnect();
        thread.join();
    }

    static void acl(Jedis j) throws Exception {
        eq("default", j.aclWhoAmI());
        yes(j.aclCat().contains("sortedset"));
        yes(j.aclCat("hash").contains("hset"));
        eq(64, j.aclGenPass().length());
        eq(8, j.aclGenPass(32).length());
        eq("default", new String(j.aclWhoAmIBinary()));
        eq(list("default"), j.aclUsersBinary().stream().map(String::new).toList());
        eq(1, j.aclListBinary().size());
        eq(j.aclCat().size(), j.aclCatBinary().size());
        eq(2, j.aclGenPassBinary(5).length);
        for (Code file : List.<Code>of(j::aclSave, j::aclLoad)) {
            fails(JedisDataException.class, "ERR This Redis instance is not configured to use an ACL file", file);
        }
        eq("OK", j.aclSetUser("ann", "on", ">secret", "~app:*", "%R~read:*", "&news*", "+@all", "-@dangerous",
                "(~temp:* +get)"));
        eq(set("default", "ann"), java.util.Set.copyOf(j.aclUsers()));
        yes(j.aclList().stream().anyMatch(line -> line.startsWith("user ann on ")), j.aclList());
        var ann = j.aclGetUser("ann");
        yes(ann.getFlags().contains("on"));
        eq(1, ann.getPasswords().size());
        eq("~app:* %R~read:*", ann.getKeys());
        eq("&news*", ann.getChannels());
        yes(ann.getCommands().contains("-@dangerous"), ann.getCommands());
        eq(1, ann.getSelectors().size());
        eq("OK", j.aclDryRun("ann", "GET", "app:1"));
        eq("OK", new String(j.aclDryRunBinary("ann".getBytes(), "GET".getBytes(), "app:1".getBytes())));
        yes(j.aclDryRun("ann", "SET", "read:1", "v").contains("permissions to access"));
        j.aclLogReset();

        DefaultJedisClientConfig as = Main.config(RedisProtocol.RESP3).user("ann").password("secret").build();
        try (Jedis a = new Jedis(Main.HOST, Main.PORT, as)) {
            eq("ann", a.aclWhoAmI());
            eq("OK", a.set("app:1", "v"));
            j.mset("read:1", "r", "temp:1", "t", "other", "o");
            eq("r", a.get("read:1"));
            eq("t", a.get("temp:1"));
            fails(JedisAccessControlException.class, "NOPERM", () -> a.set("read:1", "x"));
            fails(JedisAccessControlException.class, "NOPERM", () -> a.get("other"));
            fails(JedisAccessControlException.class, "NOPERM", () -> a.copy("app:1", "read:2", false));
            fails(JedisAccessControlException.class, "NOPERM", a::flushAll);
            fails(JedisAccessControlException.class, "NOPERM", () -> a.publish("weather", "x"));
            eq(0L, a.publish("news1", "x"));
            var log = j.aclLog();
            eq("channel", log.get(0).getReason());
            eq("weather", log.get(0).getObject());
            eq("ann", log.get(0).getUsername());
            eq("toplevel", log.get(0).getContext());
            yes(log.get(0).getAgeSeconds() < 30);
            eq("ann", log.get(0).getClientInfo().get("user"));
            yes(log.size() >= 4);
            eq(1, j.aclLog(1).size());
            eq("OK", j.aclLogReset());
            eq(0, j.aclLog().size());
            eq(1L, j.aclDelUser("ann", "none"));
            fails(JedisConnectionException.class, "", a::ping);
        }
        fails(JedisAccessControlException.class, "WRONGPASS", () -> {
            try (Jedis a = new Jedis(Main.HOST, Main.PORT, as)) {
                a.ping();
            }
        });
        fails(JedisAccessControlException.class, "WRONGPASS", () -> j.auth("ann", "secret"));
        fails(JedisDataException.class, "ERR Error in ACL SETUSER modifier '+nosuch'",
                () -> j.aclSetUser("ann", "+nosuch"));
        // A password for the default user, and what happens without it.
        eq("OK", j.configSet("requirepass", "hidden"));
        fails(JedisDataException.class, "NOAUTH", () -> {
            try (Jedis a = new Jedis(Main.HOST, Main.PORT, Main.config(RedisProtocol.RESP2).build())) {
                a.get("k");
            }
        });
        try (Jedis a = new Jedis(Main.HOST, Main.PORT, Main.config(RedisProtocol.RESP3).password("hidden").build())) {
            eq("PONG", a.ping());
        }
        eq("OK", j.configSet("requirepass", ""));
    }

    static void pools() throws Exception {
        JedisPoolConfig limits = new JedisPoolConfig();
        limits.setMaxTotal(4);
        limits.setTestOnBorrow(true);
        limits.setBlockWhenExhausted(false);
        try (JedisPool pool = new JedisPool(limits, Main.HOST, Main.PORT)) {
            List<Jedis> held = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                held.add(pool.getResource());
                eq("PONG", held.get(i).ping());
            }
            eq(4, pool.getNumActive());
            fails(JedisException.class, "", pool::getResource);
            held.forEach(Jedis::close);
            eq(0, pool.getNumActive());
            pool.withResource(j -> j.set("k", "v"));
            eq("v", pool.withResourceGet(j -> j.get("k")));
        }
        ConnectionPoolConfig config = new ConnectionPoolConfig();
        config.setMaxTotal(8);
        try (RedisClient r = RedisClient.builder().hostAndPort(Main.HOST, Main.PORT).poolConfig(config)
                .clientConfig(Main.config(RedisProtocol.RESP3).build()).build()) {
            r.flushDB();
            List<CompletableFuture<Void>> all = new ArrayList<>();
            for (int t = 0; t < 16; t++) {
                all.add(CompletableFuture.runAsync(() -> {
                    for (int i = 0; i < 200; i++) {
                        r.incr("n");
                    }
                }));
            }
            for (var one : all) {
                one.get();
            }
            eq("3200", r.get("n"));
            yes(r.getPool().getNumIdle() >= 1 && r.getPool().getNumIdle() <= 8);
        }
        try (RedisClient r = RedisClient.create("redis://" + Main.HOST + ":" + Main.PORT + "/5?protocol=3")) {
            r.set("in", "five");
            try (Jedis j = new Jedis(java.net.URI.create("redis://" + Main.HOST + ":" + Main.PORT + "/5"))) {
                eq("five", j.get("in"));
            }
        }
    }

    /** The pool replaces connections that the server closed. */
    static void reconnect() throws Exception {
        try (RedisClient r = RedisClient.builder().hostAndPort(Main.HOST, Main.PORT)
                .clientConfig(Main.config(RedisProtocol.RESP3).clientName("killed").build()).build();
                Jedis j = Main.connect(RedisProtocol.RESP2)) {
            r.set("k", "v");
            long id = (Long) r.sendCommand(Protocol.Command.CLIENT, "ID");
            eq(1L, j.clientKill(new ClientKillParams().id(String.valueOf(id))));
            fails(JedisConnectionException.class, "", () -> r.get("k"));
            eq("v", r.get("k"));
            eq("OK", text(j.sendCommand(() -> "QUIT".getBytes(), new String[0])));
            j.disconnect();
            eq("PONG", j.ping());
        }
        fails(JedisConnectionException.class, "", () -> {
            try (Jedis nobody = new Jedis("127.0.0.1", 1, 500)) {
                nobody.ping();
            }
        });
    }

    static void timeouts() throws Exception {
        DefaultJedisClientConfig hasty = DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3)
                .connectionTimeoutMillis(1000).socketTimeoutMillis(100).blockingSocketTimeoutMillis(0).build();
        try (Jedis j = Main.connect(RedisProtocol.RESP2); Jedis other = new Jedis(Main.HOST, Main.PORT, hasty)) {
            eq("PONG", other.ping());
            j.clientPause(300);
            fails(JedisConnectionException.class, "Read timed out", other::ping);
            eq(true, other.isBroken());
        }
        // The client's own timeout does not apply to a blocking command.
        try (RedisClient r = RedisClient.builder().hostAndPort(Main.HOST, Main.PORT).clientConfig(hasty).build()) {
            soon(() -> {
                try {
                    return "PONG".equals(r.ping());
                } catch (JedisConnectionException paused) {
                    return false;
                }
            });
            long start = System.nanoTime();
            eq(null, r.blpop(0.3, "none"));
            near(0.3, (System.nanoTime() - start) / 1e9, 0.25);
        }
    }

    static void errors(RedisClient r) {
        r.rpush("l", "a");
        r.set("s", "text");
        String wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        fails(JedisDataException.class, wrong, () -> r.get("l"));
        fails(JedisDataException.class, wrong, () -> r.hget("l", "f"));
        fails(JedisDataException.class, wrong, () -> r.lpush("s", "x"));
        fails(JedisDataException.class, wrong, () -> r.sadd("s", "x"));
        fails(JedisDataException.class, wrong, () -> r.zadd("s", 1, "x"));
        fails(JedisDataException.class, wrong, () -> r.xlen("s"));
        fails(JedisDataException.class, wrong, () -> r.setbit("l", 1, true));
        fails(JedisDataException.class, "ERR value is not an integer or out of range", () -> r.incr("s"));
        fails(JedisDataException.class, "ERR value is not a valid float", () -> r.incrByFloat("s", 1));
        fails(JedisDataException.class, "ERR bit offset is not an integer or out of range",
                () -> r.setbit("b", 1L << 40, true));
        fails(JedisDataException.class, "ERR string exceeds maximum allowed size",
                () -> r.setrange("b", 1L << 40, "x"));
        fails(JedisDataException.class, "ERR invalid expire time in 'set' command",
                () -> r.set("s", "x", redis.clients.jedis.params.SetParams.setParams().ex(0)));
        fails(JedisDataException.class, "ERR syntax error",
                () -> r.sendCommand(Protocol.Command.SET, "s", "x", "NX", "XX"));
        fails(JedisDataException.class, "ERR value is out of range",
                () -> r.sendCommand(Protocol.Command.SRANDMEMBER, "none", "-9223372036854775808"));
    }

    static void tls() throws Exception {
        int port = Integer.parseInt(System.getenv("REDIS_TLS_PORT"));
        DefaultJedisClientConfig config = Main.config(RedisProtocol.RESP3).ssl(true)
                .sslSocketFactory(Certs.context().getSocketFactory()).build();
        try (RedisClient r = RedisClient.builder().hostAndPort(Main.HOST, port).clientConfig(config).build()) {
            r.flushDB();
            eq("OK", r.set("k", "over TLS"));
            String big = "x".repeat(5_000_000);
            r.set("big", big);
            eq(big, r.get("big"));
            try (var p = r.pipelined()) {
                for (int i = 0; i < 1000; i++) {
                    p.rpush("l", "m" + i);
                }
            }
            eq(1000L, r.llen("l"));
        }
        fails(JedisConnectionException.class, "", () -> {
            try (Jedis j = new Jedis(Main.HOST, port, Main.config(RedisProtocol.RESP3).ssl(true).build())) {
                j.ping();
            }
        });
    }
}
