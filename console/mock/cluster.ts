// The mock node as a member of a cluster of three nodes: a and b have shards, c only votes.
// MOCK_CLUSTER=down: b does not run; away: etcd does not answer; none: the node is a member of no cluster.
import type { Cluster, ClusterNode, Etcd, Operation, Placement, ShardFigures, ShardInfo } from "../src/lib/types";
import type { Answer } from "./node.ts";

const GB = 1024 ** 3;
export const SHAPE = process.env["MOCK_CLUSTER"] ?? "well";
export const IS_MEMBER = SHAPE !== "none";
const IS_DOWN = SHAPE === "down";
const IS_AWAY = SHAPE === "away";

const fail = (status: number, code: string, message: string, hint = "", fields: { field: string; message: string }[] = []): Answer => ({ status, body: { error: { code, message, hint, fields } } });
const node = (name: string, zone: string, more: Partial<ClusterNode>): ClusterNode => ({
  id: `0123456789abcde${name}`, name, zone, role: "data", address: `${name}.example.org:8380`, is_live: true, is_draining: false, version: "0.4.0",
  ram_bytes: 96 * GB, flash_bytes: 1700 * GB, ram_placed_bytes: 0, flash_placed_bytes: 0, shards: 0, primaries: 0, clock_ahead_ms: null, clock_error_ms: null, ...more,
});

const NODES: ClusterNode[] = [
  node("a", "north", { shards: 4, primaries: 2, ram_placed_bytes: 12 * GB, flash_placed_bytes: 62 * GB }),
  node("b", "south", { shards: 4, primaries: 2, clock_ahead_ms: 12, clock_error_ms: 0.4, ram_placed_bytes: 12 * GB, flash_placed_bytes: 62 * GB, is_live: !IS_DOWN }),
  node("c", "west", { role: "quorum", ram_bytes: 2 * GB, flash_bytes: 0 }),
];

const shardsOf = (count: number): ShardInfo[] =>
  // With replicas, a has taken over what b had.
  Array.from({ length: count }, (_, number) => ({ number, node: number % 2 && !IS_DOWN ? "b" : "a", epoch: number === 2 || IS_DOWN ? 3 : 1, is_served: true, in_sync: IS_DOWN ? 1 : 2, copies: 2, advice: null }));
/** By database. */
export const SHARDS: Record<string, ShardInfo[]> = IS_MEMBER ? { orders: shardsOf(4) } : {};
/** What a shard says of itself; one that is not served says nothing. */
export const figuresOf = (shards: ShardInfo[]): ShardFigures[] =>
  shards.map((one) => {
    const said = <T>(value: T): T | null => (one.is_served ? value : null);
    return {
      ...one, keys: said(1_200_000 + one.number), used_ram_bytes: said(5 * GB), ram_limit_bytes: said(6 * GB), used_flash_bytes: said(11 * GB), values_in_ram: said(400_000),
      values_in_ram_percent: said(33.3), ram_hit_percent: said(91.5), ops_per_s: said(12_500), trouble: one.is_served ? null : "it does not answer",
      copies: [
        { node: one.node, role: "primary", state: "serves", is_in_sync: true, offset: 7_000_000, lag_bytes: 0 },
        { node: one.node === "a" ? "b" : "a", role: "replica", state: IS_DOWN ? "its node does not run" : "follows", is_in_sync: !IS_DOWN, offset: IS_DOWN ? null : 6_999_000, lag_bytes: IS_DOWN ? null : 1000 },
      ],
    };
  });
const LIMITS: Record<string, [number, number, number]> = { orders: [12000, 80 * GB, 24 * GB] };

export function created(name: string, port: number, memory: number, ram: number, count: number): void {
  SHARDS[name] = shardsOf(count);
  LIMITS[name] = [port, memory, ram];
}

function cluster(): Cluster {
  return {
    name: "shop", id: "5f1d0c9a7b3e4f6d", node: "a", leader: IS_AWAY ? null : "c", nodes: NODES,
    databases: Object.entries(SHARDS).map(([name, shards]) => {
      const [port, memory_limit_bytes, ram_limit_bytes] = LIMITS[name] ?? [12000, GB, GB];
      return { id: `of ${name}`, name, state: "serving", port, tls_port: 0, memory_limit_bytes, ram_limit_bytes, replicas: 1, shards };
    }),
    removed: null,
    etcd_trouble: IS_AWAY ? "no member of etcd answers: deadline has elapsed" : null,
    troubles: IS_DOWN ? ["shard orders.1: its node cannot be reached", "shard orders.3: its node cannot be reached"] : [],
  };
}

const ETCD: Etcd = {
  members: NODES.map(({ name }, index) => {
    const is_away = IS_DOWN && name === "b";
    return {
      name, client_url: `https://${name}.example.org:2379`, is_leader: index === 0, has_leader: !is_away, is_learner: index === 2 && !IS_DOWN, version: is_away ? null : "3.5.16", db_bytes: is_away ? null : 1_400_000,
      trouble: is_away ? "connection refused" : null,
    };
  }),
  alarms: [],
  slowest_request_ms: 4.2,
};

/** Where a new database would be; a refusal shows what each node has. */
export function placement(memory: number, ram: number, port: number | undefined, count: number, replicas = 0): { placed: Placement } | { refused: Answer } {
  const live = NODES.filter((one) => one.role === "data" && one.is_live);
  const parts = count * (replicas + 1);
  const [copy_ram_bytes, copy_flash_bytes] = [ram / parts, (1.6 * (memory - ram)) / parts];
  const shards = Array.from({ length: count }, (_, number) => ({ number, nodes: live.map((_, copy) => live[(number + copy) % live.length]!.name).slice(0, replicas + 1) }));
  const nodes = NODES.map(({ name, ram_bytes, flash_bytes, ram_placed_bytes, flash_placed_bytes }) => {
    const more = shards.filter((one) => one.nodes.includes(name)).length;
    const primaries = shards.filter((one) => one.nodes[0] === name).length;
    return { name, primaries, replicas: more - primaries, ram_bytes, flash_bytes, ram_placed_bytes: ram_placed_bytes + more * copy_ram_bytes, flash_placed_bytes: flash_placed_bytes + more * copy_flash_bytes };
  });
  if (nodes.some((one) => one.ram_placed_bytes > one.ram_bytes || one.flash_placed_bytes > one.flash_bytes)) {
    const size = (value: number): string => `${Math.round((value / GB) * 10) / 10}gb`;
    const answers = NODES.map((one) => {
      if (one.role === "quorum") return `node ${one.name}: only votes`;
      if (!one.is_live) return `node ${one.name}: is lost`;
      return `node ${one.name}: RAM ${size(one.ram_bytes)}, ${size(one.ram_placed_bytes)} placed, ${size(one.ram_bytes - one.ram_placed_bytes)} free, ${size(copy_ram_bytes)} needed`;
    });
    return { refused: fail(422, "no_room", [`no node takes a copy of shard 0 of database 77aa, which needs RAM ${size(copy_ram_bytes)}, flash ${size(copy_flash_bytes)}`, ...answers].join("\n"), "ask for less, or shrink or delete another database first") };
  }
  return { placed: { port: port ?? 12001, copy_ram_bytes, copy_flash_bytes, shards, nodes } };
}

const operation = (id: string, kind: string, target: string, more: Partial<Operation>): Operation => ({
  id, kind, target, about: null, failover: null, by: "admin", state: "done", started_ms: Date.now() - 60_000, ended_ms: null, error: null, nodes: [], steps: [], steps_done: 0, waits_for: null, aborted_by: null, ...more,
});
const OPERATIONS: Operation[] = [
  operation("02", "flush", "orders", { state: "running", nodes: [{ name: "a", is_done: true, is_live: true, trouble: null }, { name: "b", is_done: !IS_DOWN, is_live: !IS_DOWN, trouble: null }] }),
  operation("01", "create", "orders", { started_ms: 1_764_200_000_000, ended_ms: 1_764_200_001_000, nodes: [{ name: "a", is_done: true, is_live: true, trouble: null }] }),
  ...(IS_DOWN
    ? [1, 3].map((number) => operation(`f${number}`, "failover", `orders.${number}`, { by: "the cluster", about: "from b to a", failover: { from: "b", to: "a", epoch: 3, cause: "its node does not run", missed_ms: Date.now() - 90_000, named_ms: Date.now() - 89_900, served_ms: Date.now() - 88_300 } }))
    : []),
];

/** A step for each second; a step that is asked for is one that the mock makes up. */
function begun(wish: string, body: { database?: string; shard?: string | number; to?: string; nodes?: string[] }, is_plan: boolean): Answer {
  const found = /^nodes\/(.+)\/(drain|undrain|replace)$/.exec(wish);
  const kind = found?.[2] ?? wish;
  const target = found ? decodeURIComponent(found[1]!) : (body.database ?? (typeof body.shard === "string" ? body.shard : (body.nodes?.join(", ") || "all nodes")));
  const steps: Operation["steps"] =
    kind === "restart" ? (body.nodes?.length ? body.nodes : ["b", "a"]).map((to) => ({ kind, shard: null, from: null, to }))
    : kind === "move" ? [{ kind, shard: target, from: "b", to: body.to ?? "a" }]
    : [0, 1].map((number) => ({ kind: kind === "replace" ? "move" : "switchover", shard: `orders.${number}`, from: kind === "replace" ? target : null, to: body.to || "b" }));
  const id = is_plan ? null : `0${OPERATIONS.length + 1}`;
  if (id) OPERATIONS.unshift(operation(id, kind, target, { state: "running", started_ms: Date.now(), steps, waits_for: "the copy of orders.0 on node b is not in sync" }));
  return { status: is_plan ? 200 : 201, body: { id, kind, target, steps, notes: [] } };
}

/** Steps that are done by now. */
function operations(): Operation[] {
  for (const one of OPERATIONS.filter((one) => one.state === "running" && one.steps.length > 0)) {
    one.steps_done = Math.min(one.steps.length, Math.floor((Date.now() - one.started_ms) / 3000));
    if (one.aborted_by || one.steps_done === one.steps.length) [one.state, one.ended_ms, one.waits_for] = ["done", Date.now(), null];
  }
  return OPERATIONS;
}

let replace_after_s = 600;

/** The answers below /cluster, and the operations; undefined: there is no such path. */
export function ofCluster(method: string, path: string, query: URLSearchParams, body: { no_coordinator?: boolean; replace_after_s?: number; database?: string; shard?: string | number; to?: string; nodes?: string[] }, is_admin: boolean): Answer | undefined {
  if (!path.startsWith("/cluster") && !path.startsWith("/operations")) return undefined;
  // What all nodes say together is put together in node.ts.
  if (IS_MEMBER && ["/cluster/alerts", "/cluster/events"].includes(path)) return undefined;
  if (!IS_MEMBER) return fail(422, "unsupported", "this node is a member of no cluster", "flintkv cluster init NAME begins one, flintkv cluster join joins one");
  if (method !== "GET" && !is_admin) return fail(403, "forbidden", "This needs the role admin.");
  const route = `${method} ${path}`;
  if (route === "GET /cluster") return { status: 200, body: cluster() };
  if (route === "GET /operations") return { status: 200, body: operations() };
  if (route === "GET /cluster/settings") return { status: 200, body: { replace_after_s } };
  if (route === "PUT /cluster/settings") return { status: 200, body: { replace_after_s: (replace_after_s = body.replace_after_s ?? replace_after_s) } };
  const wish = /^POST \/cluster\/(switchover|move|restart|nodes\/.+\/(?:drain|undrain|replace))$/.exec(route);
  if (wish) return begun(wish[1]!, body, query.get("dry_run") === "true");
  const aborted = OPERATIONS.find((one) => route === `POST /operations/${one.id}/abort`);
  if (aborted) {
    aborted.aborted_by = "admin";
    return { status: 204 };
  }
  if (route === "GET /cluster/etcd") return IS_AWAY ? fail(500, "failed", "no member of etcd answers: deadline has elapsed") : { status: 200, body: ETCD };
  if (route === "POST /cluster/tokens") {
    if (IS_AWAY) return fail(409, "busy", "etcd: no member answers");
    return { status: 201, body: { token: "fkvj_secret", expires_ms: Date.now() + 3_600_000, command: `flintkv cluster join a.example.org:8380 --token fkvj1.${body.no_coordinator ? "n" : "c"}.${"0123456789abcdef".repeat(4)}` } };
  }
  if (route === "POST /cluster/leave") return fail(409, "busy", "node 'a' has the shards orders.0, orders.2: delete their databases first");
  const found = /^DELETE \/cluster\/nodes\/(.+)$/.exec(route);
  const gone = found && NODES.find((one) => one.name === decodeURIComponent(found[1]!));
  if (!gone) return fail(404, "not_found", `the cluster has no node '${found?.[1] ?? ""}'`);
  if (gone.is_live) return fail(409, "busy", `node '${gone.name}' runs: let it leave itself (flintkv cluster leave on that node), or stop it first`);
  if (query.get("dry_run") === "true") {
    const lost = gone.shards > 0 ? [1, 3].map((number) => ({ database: "orders", number, to: "a" })) : [];
    return { status: 200, body: { node: gone.name, lost, nodes: [] } };
  }
  if (gone.shards > 0 && query.get("lose_data") !== "true") return fail(409, "busy", `node '${gone.name}' has the shards orders.1, orders.3: delete their databases first, or give up the data that were only there (--lose-data)`);
  NODES.splice(NODES.indexOf(gone), 1);
  return { status: 204 };
}
