import { expect, test } from "vitest";
import { addForm, dropMember, members, parseTtl, putMember } from "./members";
import type { KeyView } from "./types";

const view = (type: string, value: KeyView["value"]): KeyView => ({ key: "k", type, encoding: "x", ttl_ms: null, bytes: 1, tier: "ram", length: 1, value, next: null });

test("values of every type as rows", () => {
  expect(members(view("string", "x"))).toEqual([]);
  expect(members(view("hash", [["f", "v"]]))).toEqual([{ name: "f", value: "v" }]);
  expect(members(view("list", ["a", "b"]), 100)).toEqual([{ name: "100", value: "a" }, { name: "101", value: "b" }]);
  expect(members(view("set", [{ base64: "AA==" }]))).toEqual([{ name: { base64: "AA==" }, value: null }]);
  expect(members(view("zset", [["m", 1.5]]))).toEqual([{ name: "m", value: "1.5" }]);
  expect(members(view("stream", [["1-0", [["f", "v"], ["g", "w"]]]]))).toEqual([{ name: "1-0", value: "f: v\ng: w" }]);
});

test("changes are Redis's own commands, binary names included", () => {
  const raw = { base64: "AA==" };
  expect(putMember("hash", "k", { name: raw, value: "x" }, "ignored", "v")).toEqual(["HSET", "k", raw, "v"]);
  expect(putMember("list", "k", { name: "3", value: "x" }, "", "v")).toEqual(["LSET", "k", "3", "v"]);
  expect(putMember("list", "k", null, "", "v")).toEqual(["RPUSH", "k", "v"]);
  expect(putMember("zset", "k", null, "m", "2")).toEqual(["ZADD", "k", "2", "m"]);
  expect(putMember("set", "k", null, "m", "")).toEqual(["SADD", "k", "m"]);
  expect(putMember("stream", "k", null, "f", "v")).toEqual(["XADD", "k", "*", "f", "v"]);
  expect(putMember("string", "k", null, "", "")).toBeNull();
  expect(dropMember("hash", "k", { name: raw, value: "x" })).toEqual(["HDEL", "k", raw]);
  expect(dropMember("list", "k", { name: "0", value: "x" })).toBeNull();
  expect([addForm("list"), addForm("set"), addForm("hash")]).toEqual([["", "Element"], ["Member", ""], ["Field", "Value"]]);
});

test("times to live", () => {
  expect(["", "90", "90 s", "5 min", "2h", "1 d", "250 ms"].map(parseTtl)).toEqual([null, 90_000, 90_000, 300_000, 7_200_000, 86_400_000, 250]);
  expect(["x", "-1", "0", "1 y"].map(parseTtl)).toEqual([undefined, undefined, undefined, undefined]);
});
