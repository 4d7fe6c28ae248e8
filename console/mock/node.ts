// A node that is not there: the HTTP API's answers for working on the console without one. Only for development.
// Log in as admin, operator or viewer; the password is the name.
import type { Alerts, Backup, Benchmark, Db, KeyView, Reply, Role } from "../src/lib/types";
import { created, figuresOf, IS_MEMBER, ofCluster, placement, SHARDS } from "./cluster.ts";
import { CATALOG, metricAt, series } from "./metrics.ts";

export interface Answer {
  status: number;
  body?: unknown;
}

const GB = 1024 ** 3;
const STARTED = Date.now() - 3 * 86_400_000;

function database(name: string, port: number, memory: number, ram: number, more: Partial<Db> = {}): Db {
  return {
    name, state: "active", progress: null, failure: null, is_default: false, has_file: true, shards: SHARDS[name] ?? null,
    conditions: [{ name: "active", level: "good", sentence: "The database serves its clients.", advice: "" }],
    ram: { used_bytes: ram * 0.97, limit_bytes: ram, percent: 97, level: "good" },
    flash: { used_bytes: (memory - ram) * 0.4, limit_bytes: memory - ram, percent: memory > ram ? 40 : null, level: "good" },
    definition: {
      port, tls_port: 0, unixsocket: null, bind: [], memory_limit_bytes: memory, ram_limit_bytes: ram, flash_limit_bytes: 0, policy: "noeviction",
      compression: "lz4", has_password: false, shards: SHARDS[name]?.length ?? 1, replicas: 0, replication: "async", min_in_sync: 1, replica_of: "", persistence: port === 6381 ? "none" : "everysec", recovery_time_target_s: 10, backup_schedule: port === 6379 ? "6h" : "", backup_keep: 7, backup_journal_keep: "7d", zones: [],
    },
    endpoints: [{ kind: "tcp", address: `127.0.0.1:${port}`, command: `redis-cli -h 127.0.0.1 -p ${port}` }],
    now: {},
    ...more,
  };
}

const DATABASES: Db[] = [
  database("default", 6379, 64 * GB, 8 * GB, {
    is_default: true,
    endpoints: [
      { kind: "tcp", address: "127.0.0.1:6379", command: "redis-cli -h 127.0.0.1 -p 6379" },
      { kind: "tls", address: "127.0.0.1:6380", command: "redis-cli --tls -h 127.0.0.1 -p 6380" },
      { kind: "unix", address: "/run/flintkv/flintkv.sock", command: "redis-cli -s /run/flintkv/flintkv.sock" },
    ],
  }),
  ...(IS_MEMBER ? [database("orders", 12000, 80 * GB, 24 * GB)] : []),
  database("cart", 6381, 20 * GB, 6 * GB),
  database("sessions-of-the-european-shop-production", 6382, 4 * GB, 4 * GB, { state: "paused", conditions: [{ name: "paused", level: "warning", sentence: "Clients get an error for every command. The console can still use the database.", advice: "Resume it when the work is done." }] }),
  database("recommendations", 6383, 400 * GB, 40 * GB, { state: "resizing", conditions: [{ name: "resizing", level: "info", sentence: "Flash is being made smaller: 3.1 GB of 9 GB are moved.", advice: "" }], progress: { done_bytes: 3.1 * GB, total_bytes: 9 * GB } }),
];
const SHARE: Record<string, number> = { default: 1, cart: 0.22, recommendations: 6.5, orders: 0.5 };
const EMPTY_DATABASES = new Set<string>(["sessions-of-the-european-shop-production"]);

function withNow(db: Db): Db {
  const share = EMPTY_DATABASES.has(db.name) ? 0 : (SHARE[db.name] ?? 0.01);
  const names = CATALOG.filter((metric) => metric.scope === "database").map((metric) => metric.name);
  const now = Object.fromEntries(names.map((name) => [name, share === 0 && /ratio|_us$|amplif|fragm/.test(name) ? null : metricAt(name, Date.now(), share)]));
  const flash = db.definition.memory_limit_bytes - db.definition.ram_limit_bytes;
  now["used_ram_bytes"] = Math.min(now["used_ram_bytes"] ?? 0, db.definition.ram_limit_bytes * 0.96);
  now["used_flash_bytes"] = Math.min(now["used_flash_bytes"] ?? 0, flash * 0.8);
  return { ...db, now };
}

const backup = (database: string, hours: number): Backup => ({
  path: `${database}/20261122-${String(23 - hours).padStart(2, "0")}0000-000`, database, created_ms: Date.now() - hours * 3_600_000, node_version: "0.1.0",
  rdb_version: 12, keys: 41_200_000 - hours * 1000, bytes: 19 * GB, sha256: "0f".repeat(32), scheduled: hours % 6 === 0,
  moment_ms: Date.now() - hours * 3_600_000, reaches_ms: Date.now() - 20_000,
});
const BACKUPS: Backup[] = [0, 2, 6, 12, 18].map((hours) => backup("default", hours));

const room = () => ({
  ram_bytes: 120 * GB,
  ram_taken_bytes: DATABASES.reduce((sum, db) => sum + db.definition.ram_limit_bytes, 0),
  flash_bytes: 1800 * GB,
  flash_taken_bytes: DATABASES.reduce((sum, db) => sum + db.definition.memory_limit_bytes - db.definition.ram_limit_bytes, 0),
  by_database: DATABASES.map((db) => ({ name: db.name, ram_bytes: db.definition.ram_limit_bytes, flash_bytes: db.definition.memory_limit_bytes - db.definition.ram_limit_bytes })),
});

const KEYS: KeyView[] = [
  { key: "user:1001:profile", type: "hash", encoding: "listpack", ttl_ms: 5_400_000, bytes: 312, tier: "ram", length: 4, value: [["name", "Ada Lovelace"], ["email", "ada@example.org"], ["visits", "1842"], ["raw", { base64: "AAEC/w==" }]], looked_at: 0, next: null },
  { key: "user:1002:profile", type: "hash", encoding: "listpack", ttl_ms: null, bytes: 298, tier: "flash", length: 1, value: [["name", "Grace Hopper"]], looked_at: 0, next: null },
  { key: "cart:88213", type: "list", encoding: "quicklist", ttl_ms: 86_400_000, bytes: 4096, tier: "ram", length: 3, value: ["sku-1881", "sku-0042", "sku-7345"], looked_at: 0, next: null },
  { key: "leaderboard:week", type: "zset", encoding: "skiplist", ttl_ms: null, bytes: 91_000, tier: "ram", length: 3, value: [["ada", 9812.5], ["grace", 9011], ["edsger", 120]], looked_at: 0, next: null },
  { key: "tags:popular", type: "set", encoding: "listpack", ttl_ms: null, bytes: 210, tier: "flash", length: 3, value: ["flash", "ram", "redis"], looked_at: 0, next: null },
  { key: "events:orders", type: "stream", encoding: "stream", ttl_ms: null, bytes: 128_000, tier: "ram", length: 2, value: [["1763747000000-0", [["order", "1"], ["total", "12.50"]]], ["1763747001000-0", [["order", "2"], ["total", "99.00"]]]], looked_at: 0, next: null },
  { key: "page:/index.html", type: "string", encoding: "raw", ttl_ms: 900, bytes: 20_480, tier: "flash", length: 40, value: '{"title":"Index","blocks":[1,2,3],"x":null}', looked_at: 0, next: null },
  { key: { base64: "AP8Qc2Vzc2lvbg==" }, type: "string", encoding: "raw", ttl_ms: null, bytes: 64, tier: "ram", length: 8, value: { base64: "iVBORw0KGgo=" }, looked_at: 0, next: null },
  ...Array.from({ length: 140 }, (_, index): KeyView => ({ key: `session:${String(100_000 + index * 37)}`, type: "string", encoding: "embstr", ttl_ms: 1_800_000 - index * 1000, bytes: 180, tier: index % 3 ? "flash" : "ram", length: 12, value: `value of ${index}`, looked_at: 0, next: null })),
];
const keyId = (key: unknown): string => JSON.stringify(key);

const alerts: Alerts = {
  rules: [
    { id: "r1", name: "RAM hit ratio is low", metric: "hit_ratio", scope: "databases", op: "<", threshold: 0.8, for_s: 300, keep_s: 0, severity: "warning", enabled: true },
    { id: "r2", name: "Flash is nearly full", metric: "used_flash_bytes", scope: "node", op: ">", threshold: 1600 * GB, for_s: 60, keep_s: 0, severity: "critical", enabled: true },
    { id: "r3", name: "p99 is above 2 ms", metric: "latency_p99_us", scope: "database:cart", op: ">", threshold: 2000, for_s: 30, keep_s: 0, severity: "info", enabled: false },
  ],
  states: [
    { rule_id: "r1", scope: "database:cart", state: "firing", since_ms: Date.now() - 400_000, value: 0.61, acknowledged: null, silenced_until_ms: null },
    { rule_id: "r1", scope: "database:default", state: "ok", since_ms: STARTED, value: 0.86, acknowledged: null, silenced_until_ms: null },
    { rule_id: "r2", scope: "node", state: "pending", since_ms: Date.now() - 20_000, value: 1630 * GB, acknowledged: null, silenced_until_ms: null },
    { rule_id: "r1", scope: "database:sessions-of-the-european-shop-production", state: "no_data", since_ms: STARTED, value: null, acknowledged: null, silenced_until_ms: null },
  ],
  silences: [],
  history: [
    { at_ms: Date.now() - 400_000, rule_id: "r1", name: "RAM hit ratio is low", scope: "database:cart", from: "pending", to: "firing", value: 0.61 },
    { at_ms: Date.now() - 4_000_000, rule_id: "r2", name: "Flash is nearly full", scope: "node", from: "firing", to: "ok", value: 1200 * GB },
  ],
  webhook: { url: "https://alerts.example.org/flintkv", enabled: true, format: "json", is_signed: false, last: { at_ms: Date.now() - 390_000, ok: true, message: "200 OK" } },
};

const benchmarks: Benchmark[] = [
  {
    id: "b1", database: "default", scenario: "rof", scale: "1/150", state: "done", started_ms: Date.now() - 7_200_000, ended_ms: Date.now() - 7_000_000, phase: "done", percent: 100,
    lines: ["populate: 1,000,000 keys", "centralise", "dry run: hit ratio 0.87", "measured run: 30 s"],
    report: { title: "rof at scale 1/150", notes: [], whole: {}, rows: [
      { name: "Throughput", value: "212,400", unit: "ops/s", published: "160,000" },
      { name: "Latency", value: "0.38", unit: "ms", published: "1" },
      { name: "RAM hit ratio", value: "0.871", unit: "", published: "0.85" },
    ] },
  },
];

let role: Role | null = null;
let user = "";
/** The first admin must choose a password of their own. */
let is_first_password = true;

const fail = (status: number, code: string, message: string, fields: { field: string; message: string }[] = [], hint = ""): Answer => ({ status, body: { error: { code, message, hint, fields } } });
const ok = (body: unknown): Answer => ({ status: 200, body });
const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

type Body = any;

export function answer(method: string, path: string, query: URLSearchParams, body: Body): Answer {
  if (path === "/session" && method === "POST") {
    if (!["admin", "operator", "viewer"].includes(body.user) || body.password !== body.user) return fail(401, "wrong_password", "The user or the password is wrong.");
    role = body.user;
    user = body.user;
  }
  if (role === null) return fail(401, "unauthenticated", "Log in first.");
  const session = { user, role, csrf: "mock", must_change_password: role === "admin" && is_first_password };
  const needs = (least: Role): boolean => RANK[role!] >= RANK[least];
  const other = /^\/nodes\/([^/]+)(\/.*)$/.exec(path);
  if (other && IS_MEMBER) return answer(method, other[2]!, query, body);
  const route = `${method} ${path}`;
  const clustered = ofCluster(method, path, query, body, needs("admin"));
  if (clustered) return clustered;
  switch (route) {
    case "POST /session":
    case "GET /session":
      return ok(session);
    case "DELETE /session":
      role = null;
      return { status: 204 };
    case "PUT /session/password":
      is_first_password = body.old !== user;
      return body.old === user ? { status: 204 } : fail(400, "invalid", "The present password is wrong.", [{ field: "old", message: "This is not it." }]);
    case "GET /node":
      return ok({
        version: "0.4.0", redis_version: "7.2.5", run_id: "a".repeat(40), started_ms: STARTED, workers: 8, cores: 8, console_tls: false, flash_driver: "io_uring",
        room: room(), flash_paths: ["/mnt/nvme0/flintkv", "/mnt/nvme1/flintkv"],
        figures: { cpu_user_us: 9e11, cpu_system_us: 4e11, resident_bytes: 61 * GB, open_files: 412, uptime_s: (Date.now() - STARTED) / 1000, system_ram_bytes: 128 * GB, system_ram_free_bytes: 52 * GB, cores: 8 },
        disks: [
          { name: "nvme0n1", uses: ["flash"], bytes: 894 * GB, free_bytes: 201 * GB, latency_us: 142, busy_percent: 37.2, read_bytes_per_second: 66e6, written_bytes_per_second: 48e6 },
          { name: "vda1", uses: ["journal", "backups", "state"], bytes: 250 * GB, free_bytes: 121 * GB, latency_us: null, busy_percent: 0, read_bytes_per_second: 0, written_bytes_per_second: 0 },
        ],
        now: Object.fromEntries(["machine_cpu_percent", "machine_io_wait_percent"].map((name) => [name, metricAt(name, Date.now())])),
      });
    case "GET /databases":
      return ok({ databases: DATABASES.map(withNow), room: room() });
    case "POST /databases":
      return create(body, query.get("dry_run") === "true");
    case "GET /backups":
      return ok({ directory: "/var/lib/flintkv/flintkv-state/backups", backups: BACKUPS });
    case "POST /backups/verify":
    case "DELETE /backups":
      return { status: 204 };
    case "GET /metrics-catalog":
      return ok(CATALOG);
    case "GET /node/metrics":
      return ok(metrics(query, 1.3));
    case "GET /commands":
      return ok(COMMANDS);
    case "GET /scenarios":
      return ok([{ name: "rof", title: "Redis on Flash", published_by: "Redis Labs", machine: "a machine of 2017", keys: 150e6, raw_bytes: 77.4e9, memory_bytes: 100e9, ram_bytes: 30e9 }, { name: "keydb-flash", title: "KeyDB FLASH", published_by: "KeyDB", machine: "another one", keys: 200e6, raw_bytes: 208e9, memory_bytes: 272e9, ram_bytes: 26e9 }]);
    case "GET /benchmarks":
      return ok(benchmarks);
    case "POST /benchmarks": {
      const run: Benchmark = { id: `b${benchmarks.length + 1}`, ...body, state: "running", started_ms: Date.now(), phase: "populate", percent: 12, lines: ["populate: 1,000,000 keys"], report: null };
      benchmarks.push(run);
      return ok(run);
    }
    case "GET /alerts":
      return ok(alerts);
    case "GET /cluster/alerts":
      return ok({ nodes: ["a", "b"].map((node) => ({ node, alerts })), missing: [] });
    case "GET /cluster/events": {
      const events = answer("GET", "/events", query, body).body as { id: number }[];
      return ok({ events: events.map((event) => ({ node: event.id % 2 ? "a" : "b", event })), missing: [] });
    }
    case "PUT /alerts/webhook":
      alerts.webhook = { ...alerts.webhook, ...body };
      return ok(alerts.webhook);
    case "POST /alerts/webhook/test":
      return { status: 204 };
    case "POST /alerts/rules":
      alerts.rules.push({ ...body, id: `r${alerts.rules.length + 1}` });
      return ok(alerts.rules.at(-1));
    case "GET /events":
      return ok(Array.from({ length: 60 }, (_, index) => ({ id: 60 - index, at_ms: Date.now() - index * 600_000, kind: ["database", "alert", "node"][index % 3], severity: ["info", "warning", "critical"][index % 7] ?? "info", database: index % 3 ? "cart" : null, user: index % 4 ? null : "admin", message: ["Database cart was resized from 10 GB to 20 GB.", "RAM hit ratio is low: 0.61.", "The node has started."][index % 3] })));
    case "GET /audit":
      return needs("admin") ? ok([{ at_ms: Date.now() - 60_000, user: "admin", role: "admin", address: "127.0.0.1:55210", action: "database.create", target: "cart", detail: "memory_limit_bytes=21474836480", ok: true }, { at_ms: Date.now() - 90_000, user: "viewer", role: "viewer", address: "127.0.0.1:55211", action: "database.delete", target: "cart", detail: "", ok: false }]) : fail(403, "forbidden", "The audit log needs the role admin.");
    case "GET /users":
      return needs("admin") ? ok(["admin", "operator", "viewer"].map((name, index) => ({ name, role: name, created_ms: STARTED, last_login_ms: index === 2 ? null : Date.now() - 90_000 }))) : fail(403, "forbidden", "Users need the role admin.");
    case "GET /tokens":
      return ok([{ id: "t1", name: "prometheus", role: "viewer", expires_ms: null }, { id: "t2", name: "deploy", role: "operator", expires_ms: Date.now() - 1000 }]);
    case "POST /tokens":
      return ok({ id: "t3", ...body, token: "fkv_0123456789abcdefghijklmnopqrstuvwxyz0123456789" });
  }
  const part = /^\/databases\/([a-z0-9-]+)(?:\/(.*))?$/.exec(path);
  const db = part && DATABASES.find((one) => one.name === part[1]);
  if (part && !db) return fail(404, "not_found", `There is no database '${part[1]}'.`, [], "GET /api/v1/databases lists them.");
  if (db) return ofDatabase(db, method, part[2] ?? "", query, body);
  return method === "GET" ? fail(404, "not_found", `There is nothing at ${path}.`) : { status: 204 };
}

function metrics(query: URLSearchParams, share: number) {
  return series((query.get("names") ?? "").split(",").filter(Boolean), Number(query.get("from_ms")), Number(query.get("to_ms")), Number(query.get("points") ?? 300), share);
}

function create(body: Body, dry: boolean): Answer {
  const free = room();
  const fields: { field: string; message: string }[] = [];
  if (DATABASES.some((db) => db.name === body.name)) fields.push({ field: "name", message: `A database '${body.name}' exists already.` });
  if (!IS_MEMBER && body.shards > 1) fields.push({ field: "shards", message: "a database of several shards needs a cluster, which this version does not have: leave shards at 1, and divide keys over several databases in the client" });
  if (!IS_MEMBER && body.ram_limit_bytes > free.ram_bytes - free.ram_taken_bytes) fields.push({ field: "ram_limit_bytes", message: "More RAM than is left." });
  if (fields.length > 0) return fail(422, "invalid", fields.map((one) => one.message).join(" "), fields);
  if (IS_MEMBER) {
    const count = body.shards ?? 1;
    const outcome = placement(body.memory_limit_bytes, body.ram_limit_bytes, body.port, count, body.replicas ?? 0);
    if ("refused" in outcome) return outcome.refused;
    if (dry) return ok(outcome.placed);
    created(body.name, outcome.placed.port, body.memory_limit_bytes, body.ram_limit_bytes, count);
    body.port = outcome.placed.port;
  }
  const db = database(body.name, body.port ?? 6390 + DATABASES.length, body.memory_limit_bytes, body.ram_limit_bytes, {});
  if (!dry) {
    DATABASES.push(db);
    EMPTY_DATABASES.add(db.name);
  }
  return { status: dry ? 200 : 201, body: withNow(db) };
}

function ofDatabase(db: Db, method: string, rest: string, query: URLSearchParams, body: Body): Answer {
  switch (`${method} ${rest}`) {
    case "GET ":
      return ok(withNow(db));
    case "GET shards":
      return db.shards ? ok(figuresOf(db.shards)) : fail(404, "not_found", `the cluster has no database '${db.name}'`);
    case "PATCH ":
      if (db.shards && query.get("dry_run") === "true") return fail(422, "unsupported", `'${db.name}' is a database of the cluster: it is changed as a whole`, [{ field: "name", message: "it is changed as a whole" }]);
      if (query.get("dry_run") !== "true") Object.assign(db.definition, body);
      return ok(withNow(db));
    case "DELETE ":
      DATABASES.splice(DATABASES.indexOf(db), 1);
      delete SHARDS[db.name];
      return { status: 204 };
    case "POST pause":
    case "POST resume":
      db.state = rest === "pause" ? "paused" : "active";
      return ok(withNow(db));
    case "POST flush":
      EMPTY_DATABASES.add(db.name);
      return ok(withNow(db));
    case "GET backups":
      return ok({
        running: db.name === "recommendations" ? { path: "recommendations/20261123-011105-000", scheduled: false, started_ms: Date.now(), phase: "verifying", done: 31, total: 100 } : null,
        last: db.name === "cart" ? { path: "cart/20261123-000000-000", scheduled: true, started_ms: Date.now() - 600_000, took_ms: 12, error: "/backups has 1 GB free, but the backup needs at least 5 GB: 4 GB are missing" } : null,
        backups: BACKUPS.filter((one) => one.database === db.name),
      });
    case "POST backups":
      BACKUPS.unshift(backup(db.name, 0));
      return { status: 201, body: { path: BACKUPS[0]!.path, scheduled: false, started_ms: Date.now(), phase: "writing", done: 0, total: 100 } };
    case "GET metrics":
      return ok(metrics(query, SHARE[db.name] ?? 0.01));
    case "GET slowlog":
      return ok(db.name === "cart" ? [] : Array.from({ length: 24 }, (_, index) => ({ id: 100 - index, at_ms: Date.now() - index * 61_000, duration_us: 10_400 + ((index * 7919) % 90_000), args: index % 3 ? ["KEYS", "session:*"] : ["HSET", "user:1001:profile", "raw", { base64: "AAEC/w==" }], client: `10.0.0.${index + 2}:41${index}22`, client_name: index % 2 ? "checkout" : "" })));
    case "GET latency":
      return ok({ threshold_ms: 20, report: "", events: [{ name: "command", at_ms: Date.now() - 5000, last_ms: 31, worst_ms: 240, samples: Array.from({ length: 40 }, (_, index) => ({ at_ms: Date.now() - 5000 - (39 - index) * 7000, took_ms: 20 + ((index * 7919) % 220) })) }] });
    case "DELETE slowlog":
      return { status: 204 };
    case "GET clients":
      return ok(Array.from({ length: 14 }, (_, index) => ({ id: 40 + index, addr: `10.0.0.${index + 2}:5${index}310`, name: index % 3 ? `checkout-worker-${index}` : "", user: "default", age_s: 9000 - index * 321, idle_s: index * 13, db: index % 2, cmd: ["get", "hset", "blpop", "xread"][index % 4], flags: index % 4 === 2 ? "b" : "N", memory_bytes: 18_000 + index * 911, lib: index % 2 ? "redis-py 6.4.0" : "" })));
    case "GET keys": {
      const from = Number(query.get("cursor") ?? 0);
      const pattern = query.get("pattern") ?? "";
      const glob = new RegExp(`^${(pattern || "*").replace(/[.+^${}()|[\]\\/]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")}$`);
      const all = EMPTY_DATABASES.has(db.name) ? [] : KEYS;
      const step = all.slice(from, from + 100);
      const found = step.filter((one) => (!pattern || (typeof one.key === "string" && glob.test(one.key))) && (!query.get("type") || one.type === query.get("type")));
      return ok({ cursor: from + 100 < all.length ? String(from + 100) : "0", scanned: step.length, keys: found.map(({ key, type, ttl_ms, bytes, tier }) => ({ key, type, ttl_ms, bytes, tier })) });
    }
    case "GET key": {
      const key64 = query.get("key64");
      const wanted = key64 ? keyId({ base64: Buffer.from(key64, "base64url").toString("base64") }) : keyId(query.get("key"));
      const found = KEYS.find((one) => keyId(one.key) === wanted);
      return found ? ok(found) : fail(404, "not_found", "There is no such key.", [], "It may have expired.");
    }
    case "PUT key":
    case "PATCH key":
      Object.assign(KEYS.find((one) => keyId(one.key) === keyId(body.key)) ?? {}, body);
      return ok(KEYS.find((one) => keyId(one.key) === keyId(body.key)));
    case "POST terminals":
      return { status: 201, body: { id: "1" } };
    case "POST terminals/1/command":
      return command(body.line, 0);
    case "GET terminals/1/stream": {
      const last = Number(query.get("after") ?? 0) + 1;
      return ok({ rows: [{ number: last, at_ms: Date.now(), channel: "news.de", pattern: "news.*", payload: `message ${last}`, payload_bytes: 10 }], last, left_out: 0, subscriptions: [{ space: "pattern", name: "news.*" }], monitors: false, is_open: true, ended: "" });
    }
    case "POST command":
      return command(body.line ?? body.args.join(" "), body.db ?? 0);
    case "GET config":
      return ok([
        { name: "maxclients", value: "10000", default: "10000", changed: false, change: "live", group: "Clients", doc: "How many clients may be connected at a time.", effect: null, secret: false },
        { name: "timeout", value: "300", default: "0", changed: true, change: "live", group: "Clients", doc: "Seconds after which an idle client is disconnected; 0 is never.", effect: null, secret: false },
        { name: "requirepass", value: null, default: null, changed: true, change: "live", group: "Security", doc: "The password of the default user.", effect: null, secret: true },
        { name: "flash-path", value: "/mnt/nvme0/flintkv /mnt/nvme1/flintkv", default: "", changed: true, change: "start", group: "Flash", doc: "Where values that are not in RAM are kept. May be repeated.", effect: null, secret: false },
        { name: "activedefrag", value: "no", default: "no", changed: false, change: "live", group: "Memory", doc: "", effect: "the allocator returns memory by itself", secret: false },
      ]);
    default:
      return method === "GET" ? fail(404, "not_found", "Nothing is here.") : { status: 204 };
  }
}

const text = (value: string): Reply => ({ type: "string", value });
function command(line: string, db: number): Answer {
  const [name = "", ...args] = line.trim().split(/\s+/);
  const reply = (value: Reply, next = db): Answer => ok({ reply: value, elapsed_us: 37, db: next, transaction: null, is_watching: false, is_listening: /subscribe$/i.test(name) });
  switch (name.toLowerCase()) {
    case "psubscribe":
      return reply({ type: "push", value: [text("psubscribe"), text("news.*"), { type: "integer", value: 1 }] });
    case "ping":
      return reply({ type: "status", value: "PONG" });
    case "select":
      return reply({ type: "status", value: "OK" }, Number(args[0]));
    case "exists":
      return reply({ type: "integer", value: 0 });
    case "hgetall":
      return reply({ type: "map", value: [[text("name"), text("Ada Lovelace")], [text("visits"), { type: "integer", value: 1842 }], [text("tags"), { type: "set", value: [text("a"), text("b")] }], [text("raw"), { type: "string", value: { base64: "AAEC/w==" } }]] });
    case "get":
      return reply(args[0] ? text(`value of ${args[0]}`) : { type: "error", value: "ERR wrong number of arguments for 'get' command" });
    case "set":
      return reply({ type: "status", value: "OK" });
    case "lrange":
      return reply({ type: "array", value: [text("one"), { type: "null", value: null }, { type: "double", value: 1.5 }, { type: "boolean", value: true }] });
    default:
      return reply({ type: "error", value: `ERR unknown command '${name}'` });
  }
}

const COMMANDS = [
  { name: "get", summary: "Returns the string value of a key.", syntax: "GET key", group: "string", since: "1.0.0", complexity: "O(1)", flags: ["readonly", "fast"], acl: ["@read", "@string", "@fast"] },
  { name: "getdel", summary: "Returns the string value of a key after deleting the key.", syntax: "GETDEL key", group: "string", since: "6.2.0", complexity: "O(1)", flags: ["write", "fast"], acl: ["@write"] },
  { name: "getex", summary: "Returns the string value of a key after setting its expiration time.", syntax: "GETEX key [EX seconds | PX milliseconds | PERSIST]", group: "string", since: "6.2.0", complexity: "O(1)", flags: ["write", "fast"], acl: ["@write"] },
  { name: "set", summary: "Sets the string value of a key, ignoring its type. The key is created if it does not exist.", syntax: "SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", group: "string", since: "1.0.0", complexity: "O(1)", flags: ["write", "denyoom"], acl: ["@write", "@string", "@slow"] },
  { name: "hgetall", summary: "Returns all fields and values in a hash.", syntax: "HGETALL key", group: "hash", since: "2.0.0", complexity: "O(N) where N is the size of the hash.", flags: ["readonly"], acl: ["@read", "@hash"] },
  { name: "ping", summary: "Returns the server's liveliness response.", syntax: "PING [message]", group: "connection", since: "1.0.0", complexity: "O(1)", flags: ["fast"], acl: ["@fast", "@connection"] },
  { name: "lrange", summary: "Returns a range of elements from a list.", syntax: "LRANGE key start stop", group: "list", since: "1.0.0", complexity: "O(S+N)", flags: ["readonly"], acl: ["@read", "@list"] },
  { name: "config get", summary: "Returns the effective values of configuration parameters.", syntax: "CONFIG GET parameter [parameter ...]", group: "server", since: "2.0.0", complexity: "O(N)", flags: ["admin"], acl: ["@admin"] },
];
