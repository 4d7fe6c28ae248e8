// Owns what the pages say of a cluster: its troubles, which shards are not served, and where a new database would be. Pure.
import { plural } from "./format";
import type { Cluster, ClusterNode, Etcd, ForgetPlan, Placement, ShardInfo } from "./types";

export interface Trouble {
  level: "bad" | "warn";
  title: string;
  lines: string[];
}

/** "0, 3 and 5"; three and more in a row as "0–3"; at most so many, then how many more there are. */
export function numbers(list: number[], most = 8): string {
  const sorted = [...list].sort((a, b) => a - b);
  const runs: [number, number][] = [];
  for (const number of sorted) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  const texts = runs.flatMap(([from, to]) => (to - from === 1 ? [String(from), String(to)] : [from === to ? String(from) : `${from}–${to}`]));
  if (texts.length <= most) return texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`;
  return `${texts.slice(0, most).join(", ")} and more`;
}

/** "shard 3", "shards 1 and 2". */
export const shardsNamed = (list: number[]): string => `${list.length === 1 ? "shard" : "shards"} ${numbers(list)}`;

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export const unserved = (shards: readonly ShardInfo[]): ShardInfo[] => shards.filter((one) => !one.is_served);

/** What is said of a database while some of its shards are not served; undefined: all are. */
export function unservedNotice(shards: readonly ShardInfo[]): Trouble | undefined {
  const down = unserved(shards);
  if (down.length === 0) return undefined;
  const named = shardsNamed(down.map((one) => one.number));
  const nodes = [...new Set(down.map((one) => one.node).filter(Boolean))].sort();
  const up = shards.length - down.length;
  const rest = up === 0 ? "No shard is served." : up === 1 ? "The other shard is served." : `The other ${up} shards are served.`;
  const lines = [`Keys of ${named} answer CLUSTERDOWN. ${rest}`];
  if (nodes.length > 0) lines.push(`${down.length === 1 ? "It is" : "They are"} on ${nodes.length === 1 ? "node" : "the nodes"} ${nodes.join(", ")}.`);
  return { level: "bad", title: `${capital(named)} ${down.length === 1 ? "is" : "are"} not served`, lines };
}

/** What is wrong with the cluster, the worst first. */
export function troublesOf(cluster: Cluster): Trouble[] {
  const found: Trouble[] = [];
  if (cluster.etcd_trouble) {
    found.push({ level: "bad", title: "This node cannot follow etcd", lines: [cluster.etcd_trouble, "What is served goes on. Nothing of the cluster can be changed, and what this page shows may be old."] });
  }
  for (const node of cluster.nodes.filter((one) => !one.is_live)) {
    const has = node.shards > 0;
    const lines = has ? [`It has ${plural(node.shards, "shard")}, which ${node.shards === 1 ? "is" : "are"} served again when it runs.`] : [node.role === "quorum" ? "It only votes: no shard is missing." : "It has no shards."];
    found.push({ level: has ? "bad" : "warn", title: `Node ${node.name} does not run`, lines });
  }
  for (const database of cluster.databases) {
    // A database that is being made or deleted has shards that nobody serves yet, or any more.
    if (database.state === "creating" || database.state === "deleting") continue;
    const notice = unservedNotice(database.shards);
    if (notice) found.push({ ...notice, title: `${database.name}: ${notice.title.charAt(0).toLowerCase()}${notice.title.slice(1)}` });
  }
  if (cluster.troubles.length > 0) found.push({ level: "warn", title: `On this node, ${cluster.node}`, lines: cluster.troubles });
  return found;
}

export interface EtcdHealth {
  /** Those that count for a majority. */
  voters: number;
  answering: number;
  /** Without a majority nothing of the cluster can be changed. */
  has_majority: boolean;
}

export function etcdHealth(etcd: Etcd): EtcdHealth {
  const voters = etcd.members.filter((one) => !one.is_learner);
  const answering = voters.filter((one) => !one.trouble).length;
  return { voters: voters.length, answering, has_majority: answering * 2 > voters.length };
}

/** Why this node cannot leave its cluster; empty if it can. */
export const whyNotLeave = (node: ClusterNode): string => (node.shards > 0 ? `It has ${plural(node.shards, "shard")}: delete their databases first.` : "");

/** The API refuses to remove a node because shards are on it, and asks whether their data may be lost. */
export const asksForData = (error: { code: string; message: string }): boolean => error.code === "busy" && error.message.includes("lose-data");

export interface LostShards {
  database: string;
  /** The node on which the shards go on, and with what. */
  to: string;
  left: string;
  numbers: number[];
}

/** What the cluster loses with a node: by database, and by the node on which the shards go on. */
export function lostWith(plan: ForgetPlan | undefined): LostShards[] {
  const groups = new Map<string, LostShards>();
  for (const { database, to, left, number } of plan?.lost ?? []) {
    const group = groups.get(`${database} ${to} ${left}`) ?? { database, to, left, numbers: [] };
    group.numbers.push(number);
    groups.set(`${database} ${to} ${left}`, group);
  }
  return [...groups.values()];
}

/** What becomes of shards that lose their primary. */
export function goesOn({ to, left, numbers }: LostShards): string {
  const is_one = numbers.length === 1;
  if (left === "copy_in_sync") return `${is_one ? "goes" : "go"} on at ${to} with a copy in sync`;
  if (left === "older_copy") return `${is_one ? "goes" : "go"} on at ${to} with an older copy: what was written since it was in sync is lost`;
  return is_one ? `begins empty on ${to}: all its keys are lost` : `begin empty on ${to}: all their keys are lost`;
}

/** A message for whoever has no command line before them. */
export const withoutFlags = (message: string): string => message.replace(/ ?\(--[a-z-]+\)/g, "");

export interface NodeAfter {
  name: string;
  /** Of the new database. */
  shards: number[];
  /** What was placed before, and what the new database adds. */
  ram: { before: number; more: number; limit: number };
  flash: { before: number; more: number; limit: number };
}

/** The nodes that get copies of a new database, and the names of the others. */
export function nodesAfter(placement: Placement): { takes: NodeAfter[]; others: string[] } {
  const takes: NodeAfter[] = [];
  const others: string[] = [];
  for (const node of placement.nodes) {
    const shards = placement.shards.filter((one) => one.nodes.includes(node.name)).map((one) => one.number);
    if (shards.length === 0) {
      others.push(node.name);
      continue;
    }
    const [ram, flash] = [shards.length * placement.copy_ram_bytes, shards.length * placement.copy_flash_bytes];
    takes.push({
      name: node.name,
      shards,
      ram: { before: Math.max(0, node.ram_placed_bytes - ram), more: ram, limit: node.ram_bytes },
      flash: { before: Math.max(0, node.flash_placed_bytes - flash), more: flash, limit: node.flash_bytes },
    });
  }
  return { takes, others };
}
