// Owns what the pages say of a cluster: its troubles, which shards are not served, and where a new database would be. Pure.
import { duration, plural } from "./format";
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
  lines.push(...new Set(down.flatMap((one) => (one.advice ? [`${capital(one.advice)}.`] : []))));
  if (nodes.length > 0) lines.push(`${down.length === 1 ? "It is" : "They are"} on ${nodes.length === 1 ? "node" : "the nodes"} ${nodes.join(", ")}.`);
  return { level: "bad", title: `${capital(named)} ${down.length === 1 ? "is" : "are"} not served`, lines };
}

/** What is said of a database while some of its shards have no replica that could take over; undefined: all have one, or none is wanted. */
export function aloneNotice(shards: readonly ShardInfo[]): Trouble | undefined {
  const alone = shards.filter((one) => one.is_served && one.copies > 1 && one.in_sync < 2);
  if (alone.length === 0) return undefined;
  const named = shardsNamed(alone.map((one) => one.number));
  const nodes = [...new Set(alone.map((one) => one.node))].sort();
  const lost = nodes.length === 1 ? `node ${nodes[0]} is` : `one of the nodes ${nodes.join(", ")} is`;
  return {
    level: "warn",
    title: `${capital(named)} ${alone.length === 1 ? "has" : "have"} no replica in sync`,
    lines: [`If ${lost} lost now, no other copy can take over. A copy that comes back joins by itself.`],
  };
}

/** "5.2 s"; less than a second in milliseconds. */
export const gapText = (ms: number): string => (ms < 1000 ? `${Math.round(ms)} ms` : ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000));

/** How far a node's clock is from this one's for certain, in ms; 0: the measurement explains all of it. */
export const clockGap = ({ clock_ahead_ms: ahead, clock_error_ms: error }: ClusterNode): number => (ahead === null || error === null ? 0 : Math.max(0, Math.abs(ahead) - error));

/** From this on, a difference of clocks is a trouble; that of the alert. */
const CLOCKS_APART_MS = 1000;

/** "after 10 min", "only when an operator asks for it". */
export const replaceAfterText = (seconds: number): string => (seconds === 0 ? "only when an operator asks for it" : `after ${duration(seconds)}`);

/** What is wrong with the cluster, the worst first. */
export function troublesOf(cluster: Cluster): Trouble[] {
  const found: Trouble[] = [];
  if (cluster.etcd_trouble) {
    found.push({ level: "bad", title: "This node cannot follow etcd", lines: [cluster.etcd_trouble, "What is served goes on. Nothing of the cluster can be changed, and what this page shows may be old."] });
  }
  if (cluster.leader === null && !cluster.etcd_trouble && cluster.removed === null) {
    found.push({ level: "bad", title: "Nobody leads the cluster", lines: ["What is served goes on. If a node is lost now, no other copy becomes the primary, and operations stand still."] });
  }
  for (const node of cluster.nodes.filter((one) => !one.is_live)) {
    const down = cluster.databases.flatMap((one) => unserved(one.shards)).filter((one) => one.node === node.name).length;
    const others = node.shards - down;
    const lines: string[] = [];
    if (down > 0) lines.push(`It has ${plural(down, "shard")}, which ${down === 1 ? "is" : "are"} served again when it runs.`);
    if (others > 0) lines.push(`It has ${plural(others, "copy", "copies")} of shards that other nodes serve. ${others === 1 ? "It joins" : "They join"} again when it runs.`);
    if (node.shards === 0) lines.push(node.role === "quorum" ? "It only votes: no shard is missing." : "It has no shards.");
    found.push({ level: node.shards > 0 ? "bad" : "warn", title: `Node ${node.name} does not run`, lines });
  }
  for (const database of cluster.databases) {
    // A database that is being made or deleted has shards that nobody serves yet, or any more.
    if (database.state === "creating" || database.state === "deleting") continue;
    const notice = unservedNotice(database.shards);
    for (const one of [notice, aloneNotice(database.shards)]) {
      if (one) found.push({ ...one, title: `${database.name}: ${one.title.charAt(0).toLowerCase()}${one.title.slice(1)}` });
    }
  }
  for (const node of cluster.nodes.filter((one) => clockGap(one) > CLOCKS_APART_MS)) {
    const ahead = node.clock_ahead_ms ?? 0;
    found.push({ level: "warn", title: `The clock of node ${node.name} is ${gapText(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"} that of this node`, lines: ["Keys expire by the clock of the node that has the primary. No acknowledged write depends on clocks."] });
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
  /** Of the new database: the shards whose primaries and replicas it gets. */
  primaries: number[];
  replicas: number[];
  /** What was placed before, and what the new database adds. */
  ram: { before: number; more: number; limit: number };
  flash: { before: number; more: number; limit: number };
}

/** The nodes that get copies of a new database, and the names of the others. */
export function nodesAfter(placement: Placement): { takes: NodeAfter[]; others: string[] } {
  const takes: NodeAfter[] = [];
  const others: string[] = [];
  for (const node of placement.nodes) {
    const at = (is_there: (nodes: string[]) => boolean): number[] => placement.shards.filter((one) => is_there(one.nodes)).map((one) => one.number);
    const primaries = at((nodes) => nodes[0] === node.name);
    const replicas = at((nodes) => nodes.slice(1).includes(node.name));
    const copies = primaries.length + replicas.length;
    if (copies === 0) {
      others.push(node.name);
      continue;
    }
    const [ram, flash] = [copies * placement.copy_ram_bytes, copies * placement.copy_flash_bytes];
    takes.push({
      name: node.name,
      primaries,
      replicas,
      ram: { before: Math.max(0, node.ram_placed_bytes - ram), more: ram, limit: node.ram_bytes },
      flash: { before: Math.max(0, node.flash_placed_bytes - flash), more: flash, limit: node.flash_bytes },
    });
  }
  return { takes, others };
}
