import { expect, test } from "vitest";
import { canAbort, drain, move, onAbort, outage, progressText, restart, seconds, stepText, switchOver, waitsFor } from "./operations";
import type { Operation } from "./types";

const step = (shard: string) => ({ kind: "switchover", shard, from: null, to: "b" });
const operation = (more: Partial<Operation> = {}): Operation => ({
  id: "1", kind: "drain", target: "a", about: null, failover: null, by: "ann", state: "running", started_ms: 1000, ended_ms: null, error: null, nodes: [], steps: [step("orders.0"), step("orders.1")], steps_done: 1, waits_for: null, aborted_by: null, ...more,
});

test("what is sent", () => {
  expect(drain("a b").path).toBe("/cluster/nodes/a%20b/drain");
  expect(switchOver("orders", null, "").body).toEqual({ database: "orders" });
  expect(switchOver("orders", 0, "b").body).toEqual({ database: "orders", shard: 0, to: "b" });
  expect(move("orders.1", "a", "b").body).toEqual({ shard: "orders.1", from: "a", to: "b" });
  expect(restart([]).body).toEqual({ nodes: [] });
});

test("each step is a line", () => {
  expect(stepText(step("orders.0"))).toBe("orders.0: the primary goes to b");
  expect(stepText({ kind: "move", shard: "orders.1", from: "a", to: "c" })).toBe("orders.1: the copy on a goes to c");
  expect(stepText({ kind: "restart", shard: null, from: null, to: "c" })).toBe("c: drained, started anew, undrained");
});

test("how far an operation is, and what it waits for", () => {
  expect(progressText(operation(), 36_000)).toBe("1 of 2 steps, for 35 s");
  expect(progressText(operation({ aborted_by: "bob" }), 36_000)).toBe("1 of 2 steps, is aborted by bob");
  expect(progressText(operation({ state: "done", steps_done: 2 }), 36_000)).toBe("2 of 2 steps");
  expect(progressText(operation({ steps: [] }), 36_000)).toBe("");
  const part = (name: string, more: object) => ({ name, is_done: false, is_live: true, trouble: null, ...more });
  expect(waitsFor(operation({ waits_for: "node b does not run", nodes: [part("a", { is_live: false }), part("c", { trouble: "no room" }), part("d", { is_done: true })] }))).toBe("a (does not run), c (no room), node b does not run");
  expect(waitsFor(operation({ state: "failed", waits_for: "node b does not run" }))).toBe("");
});

test("only what runs in steps can be aborted, once", () => {
  expect([operation(), operation({ state: "done" }), operation({ steps: [] }), operation({ aborted_by: "ann" })].map(canAbort)).toEqual([true, false, false, false]);
  expect(onAbort("drain")).toContain("takes primaries again");
  expect(onAbort("add replicas")).toContain("What was added stays.");
  expect(onAbort("of a newer version")).toContain("taken back");
});

test("how long nobody served a shard", () => {
  const failover = { from: "a", to: "b", epoch: 2, cause: "", missed_ms: 1000, named_ms: 1100, served_ms: 3000 };
  expect(outage(failover)).toBe("2.0 s");
  expect(outage({ ...failover, served_ms: null })).toBeUndefined();
  expect([seconds(-5), seconds(59_900), seconds(125_000)]).toEqual(["0.0 s", "59.9 s", "2 min 5 s"]);
});
