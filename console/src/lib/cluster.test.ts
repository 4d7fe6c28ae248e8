import { expect, test } from "vitest";
import { aloneNotice, asksForData, clockGap, etcdHealth, goesOn, lostWith, nodesAfter, numbers, shardsNamed, troublesOf, unservedNotice, whyNotLeave, withoutFlags } from "./cluster";
import type { Cluster, ClusterNode, Etcd, Placement, ShardInfo } from "./types";

const node = (name: string, more: Partial<ClusterNode> = {}): ClusterNode => ({
  id: name, name, zone: "default", role: "data", address: `${name}:8380`, is_live: true, is_draining: false, version: "1", ram_bytes: 100, flash_bytes: 1000, ram_placed_bytes: 0, flash_placed_bytes: 0, shards: 0, primaries: 0, clock_ahead_ms: null, clock_error_ms: null, ...more,
});
const shard = (number: number, node: string, is_served = true, in_sync = 1, copies = 1): ShardInfo => ({ number, node, epoch: 1, is_served, in_sync, copies, advice: null });
const cluster = (more: Partial<Cluster> = {}): Cluster => ({ name: "shop", id: "1", node: "a", leader: "a", nodes: [node("a"), node("b")], databases: [], etcd_trouble: null, removed: null, troubles: [], ...more });
const database = (name: string, shards: ShardInfo[], state = "serving"): Cluster["databases"][number] => ({ id: name, name, state, port: 1, tls_port: 0, memory_limit_bytes: 1, ram_limit_bytes: 1, replicas: 0, shards });

test("numbers of shards are said shortly", () => {
  expect([[], [4], [1, 0], [0, 2, 5], [0, 1, 2, 3], [7, 0, 1, 2, 9, 10]].map((list) => numbers(list))).toEqual(["", "4", "0 and 1", "0, 2 and 5", "0–3", "0–2, 7, 9 and 10"]);
  expect(numbers([0, 2, 4, 6, 8], 3)).toBe("0, 2, 4 and more");
  expect([shardsNamed([2]), shardsNamed([2, 4])]).toEqual(["shard 2", "shards 2 and 4"]);
});

test("a cluster without troubles has nothing to say", () => {
  expect(troublesOf(cluster({ databases: [database("orders", [shard(0, "a"), shard(1, "b")])] }))).toEqual([]);
});

test("troubles: etcd first, then nodes, then shards, then what this node says", () => {
  const found = troublesOf(
    cluster({
      etcd_trouble: "no member answers",
      troubles: ["shard orders.1: refused"],
      nodes: [node("a"), node("b", { is_live: false, shards: 1 }), node("c", { is_live: false, role: "quorum" }), node("d", { is_live: false })],
      databases: [database("orders", [shard(0, "a"), shard(1, "b", false)])],
    }),
  );
  expect(found.map(({ level, title }) => [level, title])).toEqual([
    ["bad", "This node cannot follow etcd"],
    ["bad", "Node b does not run"],
    ["warn", "Node c does not run"],
    ["warn", "Node d does not run"],
    ["bad", "orders: shard 1 is not served"],
    ["warn", "On this node, a"],
  ]);
  expect(found[0]!.lines[0]).toBe("no member answers");
  expect(found[1]!.lines).toEqual(["It has 1 shard, which is served again when it runs."]);
  expect(found[2]!.lines).toEqual(["It only votes: no shard is missing."]);
  expect(found.at(-1)!.lines).toEqual(["shard orders.1: refused"]);
});

test("shards of a database that is being made or deleted are no trouble", () => {
  for (const state of ["creating", "deleting"]) expect(troublesOf(cluster({ databases: [database("orders", [shard(0, "a", false)], state)] }))).toEqual([]);
  expect(troublesOf(cluster({ databases: [database("orders", [shard(0, "a", false)], "paused")] }))).toHaveLength(1);
});

test("which keys answer CLUSTERDOWN", () => {
  expect(unservedNotice([shard(0, "a"), shard(1, "b")])).toBeUndefined();
  expect(unservedNotice([shard(0, "a"), shard(1, "b", false)])).toEqual({
    level: "bad", title: "Shard 1 is not served", lines: ["Keys of shard 1 answer CLUSTERDOWN. The other shard is served.", "It is on node b."],
  });
  expect(unservedNotice([shard(0, "a", false), shard(1, "b", false), shard(2, "", true)])).toEqual({
    level: "bad", title: "Shards 0 and 1 are not served", lines: ["Keys of shards 0 and 1 answer CLUSTERDOWN. The other shard is served.", "They are on the nodes a, b."],
  });
  expect(unservedNotice([shard(0, "", false)])!.lines).toEqual(["Keys of shard 0 answer CLUSTERDOWN. No shard is served."]);
  const advice = "no copy has every write that was acknowledged; flintkv database recover orders shows what each has";
  const decided = [0, 1].map((number) => ({ ...shard(number, "a", false), advice }));
  expect(unservedNotice(decided)!.lines).toEqual(["Keys of shards 0 and 1 answer CLUSTERDOWN. No shard is served.", "No copy has every write that was acknowledged; flintkv database recover orders shows what each has.", "They are on node a."]);
});

test("learners do not count for etcd's majority", () => {
  const member = (trouble: string | null, is_learner = false): Etcd["members"][number] => ({ name: "", client_url: "", is_leader: false, has_leader: !trouble, is_learner, version: null, db_bytes: null, trouble });
  const health = (...members: Etcd["members"]) => etcdHealth({ members, alarms: [], slowest_request_ms: null });
  expect(health(member(null), member("gone"), member(null, true))).toEqual({ voters: 2, answering: 1, has_majority: false });
  expect(health(member(null), member("gone"), member(null))).toEqual({ voters: 3, answering: 2, has_majority: true });
  expect(health().has_majority).toBe(false);
});

test("a refusal that asks whether data may be lost", () => {
  const message = "node 'b' has the shards orders.1: delete their databases first, or give up the data that were only there (--lose-data)";
  expect(asksForData({ code: "busy", message })).toBe(true);
  expect(asksForData({ code: "busy", message: "a shard without its node cannot be given up yet: delete its database" })).toBe(false);
  expect(asksForData({ code: "failed", message })).toBe(false);
  expect(withoutFlags(message)).toBe("node 'b' has the shards orders.1: delete their databases first, or give up the data that were only there");
  expect([whyNotLeave(node("a", { shards: 2 })), whyNotLeave(node("a"))]).toEqual(["It has 2 shards: delete their databases first.", ""]);
});

test("what each node has with a new database, apart from what it had before", () => {
  const placement: Placement = {
    port: 12000, copy_ram_bytes: 10, copy_flash_bytes: 30,
    shards: [{ number: 0, nodes: ["a"] }, { number: 1, nodes: ["b"] }, { number: 2, nodes: ["a"] }],
    nodes: [
      { name: "a", primaries: 2, replicas: 0, ram_bytes: 100, ram_placed_bytes: 45, flash_bytes: 1000, flash_placed_bytes: 60 },
      { name: "b", primaries: 1, replicas: 0, ram_bytes: 100, ram_placed_bytes: 10, flash_bytes: 1000, flash_placed_bytes: 30 },
      { name: "c", primaries: 0, replicas: 0, ram_bytes: 2, ram_placed_bytes: 0, flash_bytes: 0, flash_placed_bytes: 0 },
    ],
  };
  expect(nodesAfter(placement)).toEqual({
    takes: [
      { name: "a", primaries: [0, 2], replicas: [], ram: { before: 25, more: 20, limit: 100 }, flash: { before: 0, more: 60, limit: 1000 } },
      { name: "b", primaries: [1], replicas: [], ram: { before: 0, more: 10, limit: 100 }, flash: { before: 0, more: 30, limit: 1000 } },
    ],
    others: ["c"],
  });
});

test("what is lost with a node is told by database and by the node that comes after it", () => {
  const lost = [{ database: "orders", number: 3, to: "a", left: "nothing" }, { database: "orders", number: 1, to: "a", left: "nothing" }, { database: "orders", number: 2, to: "c", left: "older_copy" }, { database: "carts", number: 0, to: "a", left: "copy_in_sync" }];
  expect(lostWith({ node: "b", lost, nodes: [] })).toEqual([
    { database: "orders", to: "a", left: "nothing", numbers: [3, 1] },
    { database: "orders", to: "c", left: "older_copy", numbers: [2] },
    { database: "carts", to: "a", left: "copy_in_sync", numbers: [0] },
  ]);
  expect(lostWith(undefined)).toEqual([]);
  expect(lostWith({ node: "b", lost, nodes: [] }).map(goesOn)).toEqual([
    "begin empty on a: all their keys are lost",
    "goes on at c with an older copy: what was written since it was in sync is lost",
    "goes on at a with a copy in sync",
  ]);
});

test("replicas of a new database count on their nodes, apart from its primaries", () => {
  const of = (name: string) => ({ name, primaries: 1, replicas: 1, ram_bytes: 100, ram_placed_bytes: 25, flash_bytes: 0, flash_placed_bytes: 0 });
  const placement: Placement = { port: 1, copy_ram_bytes: 10, copy_flash_bytes: 0, shards: [{ number: 0, nodes: ["a", "b"] }, { number: 1, nodes: ["b", "a"] }], nodes: [of("a"), of("b")] };
  const { takes } = nodesAfter(placement);
  expect(takes.map(({ name, primaries, replicas, ram }) => [name, primaries, replicas, ram.before])).toEqual([["a", [0], [1], 5], ["b", [1], [0], 5]]);
});

test("shards without a replica that could take over", () => {
  expect(aloneNotice([shard(0, "a", true, 2, 2), shard(1, "b")])).toBeUndefined();
  // One that nobody serves is told already.
  expect(aloneNotice([shard(0, "a", false, 0, 2)])).toBeUndefined();
  expect(aloneNotice([shard(0, "a", true, 1, 2), shard(1, "a", true, 1, 3)])).toMatchObject({ level: "warn", title: "Shards 0 and 1 have no replica in sync", lines: ["If node a is lost now, no other copy can take over. A copy that comes back joins by itself."] });
});

test("a node that is down says what is served elsewhere, and clocks count beyond what the measurement explains", () => {
  const shards = [shard(0, "b", false, 0, 2), shard(1, "a", true, 1, 2)];
  const titles = (more: Partial<Cluster>) => troublesOf(cluster(more)).map((one) => one.title);
  const [down] = troublesOf(cluster({ nodes: [node("a"), node("b", { is_live: false, shards: 2 })], databases: [database("orders", shards)] }));
  expect(down!.lines).toEqual(["It has 1 shard, which is served again when it runs.", "It has 1 copy of shards that other nodes serve. It joins again when it runs."]);
  expect(titles({ databases: [database("orders", shards)] })).toEqual(["orders: shard 0 is not served", "orders: shard 1 has no replica in sync"]);
  expect(titles({ leader: null })).toEqual(["Nobody leads the cluster"]);
  expect(titles({ leader: null, etcd_trouble: "away" })).toEqual(["This node cannot follow etcd"]);
  const apart = (clock_ahead_ms: number, clock_error_ms: number) => node("b", { clock_ahead_ms, clock_error_ms });
  expect([apart(-1500, 100), apart(1500, 1600), node("b")].map(clockGap)).toEqual([1400, 0, 0]);
  expect(titles({ nodes: [apart(-1500, 100), apart(5000, 4500)] })).toEqual(["The clock of node b is 1.5 s behind that of this node"]);
});
