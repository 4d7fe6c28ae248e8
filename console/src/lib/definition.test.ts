import { expect, test } from "vitest";
import { EMPTY, filesLimit, filesParts, left, read, safety } from "./definition";

const GB = 1024 ** 3;

test("a form as it comes needs nothing but a name", () => {
  expect(read(EMPTY).wrong).toEqual({ name: "A name is needed." });
  expect(read({ ...EMPTY, name: "cart" })).toEqual({
    wrong: {},
    body: { name: "cart", memory_limit_bytes: GB, ram_limit_bytes: Math.floor(GB * 0.3), policy: "noeviction", compression: "lz4" },
  });
});

test("all fields go along", () => {
  const { body, wrong } = read({
    name: "cart", memory: "10 gb", ram: "2gb", flash: "20 gb", policy: "allkeys-lru", compression: "zstd", port: " 7000 ", password: "x", tls_port: "7001",
    unixsocket: " /run/a.sock ", bind: "127.0.0.1, ::1", shards: "2", replicas: "1", replication: "async", min_in_sync: "1", persistence: "always", recovery: "30", zones: "a b",
    backup_schedule: " 6h ", backup_keep: "3", backup_journal_keep: " 7d ", from: "shop/one", at: "2026-11-23T04:05:06",
  });
  expect(wrong).toEqual({});
  expect(body).toEqual({
    name: "cart", memory_limit_bytes: 10 * GB, ram_limit_bytes: 2 * GB, flash_limit_bytes: 20 * GB, policy: "allkeys-lru", compression: "zstd", port: 7000, password: "x",
    tls_port: 7001, unixsocket: "/run/a.sock", bind: ["127.0.0.1", "::1"], shards: 2, replicas: 1, persistence: "always", recovery_time_target_s: 30, zones: ["a", "b"],
    backup_schedule: "6h", backup_keep: 3, backup_journal_keep: "7d", from: "shop/one", at_ms: new Date(2026, 10, 23, 4, 5, 6).getTime(),
  });
});

test("on a member of a cluster, shards are 1 to 1024, and no backup is where it begins", () => {
  const one = { ...EMPTY, name: "a" };
  expect(read({ ...one, shards: "1024" }, true)).toMatchObject({ wrong: {}, body: { shards: 1024 } });
  expect(read({ ...one, shards: "1025" }, true).wrong).toEqual({ shards: "At most 1024." });
  expect(read({ ...one, shards: "0" }, true).wrong).toEqual({ shards: "At least 1." });
  expect(read({ ...one, shards: "1" }, true).body.shards).toBeUndefined();
  expect(Object.keys(read({ ...one, from: "shop/one" }, true).wrong)).toEqual(["from"]);
  // The node itself refuses more than one shard off a cluster, and says why.
  expect(read({ ...one, shards: "1025" })).toMatchObject({ wrong: {}, body: { shards: 1025 } });
});

test("a moment belongs to a backup", () => {
  expect(read({ ...EMPTY, name: "a", at: "2026-11-23T04:05:06" }).body.at_ms).toBeUndefined();
  expect(Object.keys(read({ ...EMPTY, name: "a", from: "shop/one", at: "soon" }).wrong)).toEqual(["at_ms"]);
});

test("no persistence is told to the node, whose default may be another", () => {
  expect(read({ ...EMPTY, name: "a", persistence: "none" }).body.persistence).toBe("none");
  expect(read({ ...EMPTY, name: "a" }).body.persistence).toBeUndefined();
});

test("what cannot be read is told by its field", () => {
  expect(Object.keys(read({ ...EMPTY, name: "No", memory: "much", port: "abc" }).wrong)).toEqual(["name", "memory_limit_bytes", "port"]);
  expect(read({ ...EMPTY, name: "a", port: "65536", tls_port: "65535" }).wrong).toEqual({ port: "At most 65535." });
  expect(Object.keys(read({ ...EMPTY, name: "a", ram: "120 %" }).wrong)).toEqual(["ram_limit_bytes"]);
  expect(read({ ...EMPTY, name: "a".repeat(41) }).wrong["name"]).toBeDefined();
});

test("what is left counts what the database has already", () => {
  const room = { ram_bytes: 100, ram_taken_bytes: 40, flash_bytes: 1000, flash_taken_bytes: 500 };
  expect(left(room, { memory: 300, ram: 50 })).toEqual({ ram_bytes: 10, flash_bytes: 250 });
  expect(left(room, { memory: 900, ram: 70 })).toEqual({ ram_bytes: -10, flash_bytes: -330 });
  expect(left(room, { memory: 300, ram: 50 }, { memory: 300, ram: 50 })).toEqual({ ram_bytes: 60, flash_bytes: 500 });
});

test("persistence takes more flash than the values, and a limit counts as it is given", () => {
  expect(filesLimit({ memory: 10 * GB, ram: 3 * GB, persistence: "none" })).toBe(7 * GB);
  expect(filesLimit({ memory: 10 * GB, ram: 3 * GB, persistence: "everysec" })).toBe(15 * GB);
  expect(filesParts({ memory: 100 * GB, ram: 30 * GB, persistence: "everysec" })).toEqual({ log: 88 * GB, kept: 62 * GB });
  expect(filesLimit({ memory: 100 * GB, ram: 60 * GB, persistence: "everysec" })).toBe(40 * GB + 122 * GB);
  expect(filesLimit({ memory: 100 * GB, ram: 5 * GB, persistence: "everysec" })).toBe(115 * GB + 12 * GB);
  expect(filesParts({ memory: 100 * GB, ram: 30 * GB, persistence: "none" })).toEqual({ log: 70 * GB, kept: 0 });
  expect(filesLimit({ memory: 1000, ram: 500, persistence: "everysec" })).toBe(1600 + GB / 2);
  expect(filesLimit({ memory: 2048 * GB, ram: 100 * GB, persistence: "everysec" })).toBe(2048 * GB + 200 * GB + Math.floor((2048 * GB) / 50));
  expect(filesLimit({ memory: 512 * 1024 ** 2, ram: 256 * 1024 ** 2, persistence: "everysec" })).toBe(GB);
  expect(filesLimit({ memory: 10 * GB, ram: 3 * GB, flash: 9 * GB, persistence: "everysec" })).toBe(9 * GB);
  expect(filesLimit({ memory: 3 * GB, ram: 3 * GB, persistence: "everysec" })).toBe(0);
});

test("replicas of a database of a cluster say when a write is acknowledged", () => {
  const body = (more: object) => read({ ...EMPTY, name: "orders", ...more }, true).body;
  expect(body({ replication: "sync", min_in_sync: "2" })).not.toHaveProperty("replication");
  expect(body({ replicas: "1" })).toMatchObject({ replicas: 1, replication: "async" });
  expect(body({ replicas: "1", min_in_sync: "2" })).not.toHaveProperty("min_in_sync");
  expect(body({ replicas: "2", replication: "sync", min_in_sync: "2" })).toMatchObject({ replicas: 2, replication: "sync", min_in_sync: 2 });
  expect(read({ ...EMPTY, name: "orders", replicas: "1" }).body).not.toHaveProperty("replication");
});

test("what the loss of a node takes with it", () => {
  expect(safety("0", "async", "1")).toContain("one copy");
  expect(safety("1", "async", "1")).toContain("may lack the newest writes");
  expect(safety("1", "sync", "1")).toContain("the primary alone takes writes");
  expect(safety("1", "sync", "2")).toContain("while one node is away every write is refused");
  expect(safety("2", "sync", "2")).toContain("no acknowledged write is lost with up to 1 of their nodes");
});
