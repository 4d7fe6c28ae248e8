import { expect, test } from "vitest";
import { switched } from "./rule";
import type { Rule } from "./types";

test("a rule is switched as the API takes it: without its id", () => {
  const rule: Rule = { id: "r1", name: "many keys", metric: "keys", scope: "databases", op: ">", threshold: 2, for_s: 1, keep_s: 0, severity: "warning", enabled: true };
  expect(switched(rule)).toEqual({ name: "many keys", metric: "keys", scope: "databases", op: ">", threshold: 2, for_s: 1, keep_s: 0, severity: "warning", enabled: false });
  expect(switched({ ...rule, enabled: false }).enabled).toBe(true);
});
