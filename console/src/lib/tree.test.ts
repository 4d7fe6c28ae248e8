import { expect, test } from "vitest";
import { treeRows } from "./tree";
import type { KeyRow } from "./types";

const rows = (...keys: string[]): KeyRow[] => keys.map((key) => ({ key, type: "string", ttl_ms: null, bytes: 1, encoding: "", tier: "ram" }));
const text = (keys: KeyRow[], separator: string, open: string[] = []) =>
  treeRows(keys, separator, new Set(open)).map((row) => `${" ".repeat(row.depth)}${row.kind === "folder" ? `${row.name} (${row.keys})` : row.name}`);

test("folders first, with counts, in the order of people", () => {
  const keys = rows("user:10:cart", "user:2:cart", "user:2:name", "solo", "user:2");
  expect(text(keys, ":")).toEqual(["user (4)", "solo"]);
  expect(text(keys, ":", ["user:"])).toEqual(["user (4)", " 2 (2)", " 10 (1)", " 2", "solo"]);
  expect(text(keys, ":", ["user:", "user:2:"])).toEqual(["user (4)", " 2 (2)", "  cart", "  name", " 10 (1)", " 2", "solo"]);
});

test("a folder of one folder is one row, and without a separator there are no folders", () => {
  const keys = rows("a:b:c:1", "a:b:c:2");
  expect(text(keys, ":")).toEqual(["a:b:c (2)"]);
  expect(text(keys, ":", ["a:b:c:"])).toEqual(["a:b:c (2)", " 1", " 2"]);
  expect(text(keys, "")).toEqual(["a:b:c:1", "a:b:c:2"]);
});
