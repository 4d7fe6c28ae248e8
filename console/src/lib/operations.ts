// Owns what the pages say of operations with steps and of failovers: what is asked for, the steps, what they wait for, and what an abort does. Pure.
import { duration, plural } from "./format";
import type { Failover, Operation, OperationStep } from "./types";

/** What an operator can ask of the cluster's copies and primaries. */
export interface Wish {
  kind: "switchover" | "move" | "drain" | "undrain" | "replace" | "restart";
  path: string;
  body: object;
}

const onNode = (kind: "drain" | "undrain" | "replace") => (node: string): Wish => ({ kind, path: `/cluster/nodes/${encodeURIComponent(node)}/${kind}`, body: {} });
export const drain = onNode("drain");
export const undrain = onNode("undrain");
export const replace = onNode("replace");
/** Without names: of all nodes that run. */
export const restart = (nodes: string[]): Wish => ({ kind: "restart", path: "/cluster/restart", body: { nodes } });
/** Without a number: all shards. Without a node: the best copy of each. */
export const switchOver = (database: string, shard: number | null, to: string): Wish => ({ kind: "switchover", path: "/cluster/switchover", body: { database, ...(shard === null ? {} : { shard }), ...(to ? { to } : {}) } });
export const move = (shard: string, from: string, to: string): Wish => ({ kind: "move", path: "/cluster/move", body: { shard, from, to } });

/** What clients notice of it, and for how long. */
const HANDING_OVER = "A primary hands over when its replica has everything. Commands for the shard wait meanwhile, usually some milliseconds. If the replica does not have everything within 2 seconds, the primary goes on and hands over later. No client gets an error, and no acknowledged write is lost.";
export const NOTICED: Record<Wish["kind"], string> = {
  switchover: HANDING_OVER,
  drain: `All primaries leave the node. None is named there while another copy can be, and it gets no new copies; its replicas stay. ${HANDING_OVER}`,
  undrain: `The node takes primaries again, and gets its part of them. ${HANDING_OVER}`,
  move: `A new copy is made and joins the in-sync set; then the old one goes, with its files. The shard is served meanwhile. If the old copy is the primary, it hands over. ${HANDING_OVER}`,
  replace: "The copies of the node that does not run are made anew on other nodes. Shards that are served stay so. If the node runs again before the end, what is half done is taken back.",
  restart: `Each node is drained, starts anew with the program that is at its path then, catches up, and is undrained; the next one follows. The node that leads comes last. Shards without replicas are not served while their node starts. ${HANDING_OVER}`,
};

/** What is taken back when an operation is aborted, and what stays. */
const ABORTS: Record<string, string> = {
  switchover: "Primaries that were handed over stay where they are.",
  undrain: "Primaries that were handed over stay where they are.",
  drain: "The node takes primaries again. Those that have left stay where they are.",
  move: "A new copy that is not the primary yet goes again; otherwise the step is completed, so that no copy is half there. What has moved stays.",
  "add replicas": "A new copy that is not in use yet goes again; otherwise the step is completed, so that no copy is half there. What was added stays.",
  replace: "A new copy that is not in use yet goes again; otherwise the step is completed, so that no copy is half there. What has moved stays.",
  restart: "The node that is drained is undrained. Nodes that have started anew stay as they are.",
};
export const onAbort = (kind: string): string => ABORTS[kind] ?? "What is half done is taken back, and what is done stays.";

export const canAbort = (one: Operation): boolean => one.state === "running" && one.steps.length > 0 && one.aborted_by === null;

/** "orders.1: the primary goes to b". */
export function stepText({ kind, shard, from, to }: OperationStep): string {
  switch (kind) {
    case "switchover":
      return `${shard}: the primary goes to ${to}`;
    case "add":
      return `${shard}: a new copy on ${to}`;
    case "move":
      return `${shard}: the copy on ${from} goes to ${to}`;
    case "drop":
      return `${shard}: the copy on ${from} goes`;
    case "restart":
      return `${to}: drained, started anew, undrained`;
    default:
      return [kind, shard, to].filter(Boolean).join(" ");
  }
}

/** The nodes that have not done their part, with what keeps them. */
function openNodes(one: Operation): string[] {
  const why = (node: Operation["nodes"][number]): string | null => (node.is_live ? node.trouble : "does not run");
  return one.nodes.filter((node) => !node.is_done).map((node) => (why(node) ? `${node.name} (${why(node)})` : node.name));
}

/** What a running operation waits for; empty: nothing that is known. */
export function waitsFor(one: Operation): string {
  if (one.state !== "running") return "";
  return [...openNodes(one), ...(one.waits_for ? [one.waits_for] : [])].join(", ");
}

/** "2 of 4 steps, for 35 s"; of one without steps nothing. */
export function progressText(one: Operation, now_ms: number): string {
  if (one.steps.length === 0) return "";
  const done = `${one.steps_done} of ${plural(one.steps.length, "step")}`;
  if (one.state !== "running") return done;
  const since = `for ${duration(Math.max(0, now_ms - one.started_ms) / 1000)}`;
  return one.aborted_by ? `${done}, is aborted by ${one.aborted_by}` : `${done}, ${since}`;
}

/** A time of less than a minute, in seconds with one digit. */
export const seconds = (ms: number): string => (ms < 60_000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : duration(ms / 1000));

/** How long the shard had no primary that was heard; undefined: not known. */
export const outage = ({ missed_ms, served_ms }: Failover): string | undefined => (served_ms === null ? undefined : seconds(served_ms - missed_ms));
