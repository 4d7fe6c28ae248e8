import { expect, test } from "vitest";
import { addForm, dropMember, globOf, members, newValue, parseTtl, putMember } from "./members";
import type { KeyView } from "./types";

const view = (type: string, value: KeyView["value"]): KeyView => ({ key: "k", type, encoding: "x", ttl_ms: null, bytes: 1, tier: "ram", length: 1, value, looked_at: 1, next: null });

test("values of every type as rows", () => {
  expect(members(view("string", "x"))).toEqual([]);
  expect(members(view("hash", [["f", "v"]]))).toEqual([{ name: "f", value: "v" }]);
  expect(members(view("list", ["a", "b"]), 100)).toEqual([{ name: "100", value: "a" }, { name: "101", value: "b" }]);
  expect(members(view("list", [[7, "a"], [9, { base64: "AA==" }]]), 100)).toEqual([{ name: "7", value: "a" }, { name: "9", value: { base64: "AA==" } }]);
  expect(members(view("set", [{ base64: "AA==" }]))).toEqual([{ name: { base64: "AA==" }, value: null }]);
  expect(members(view("zset", [["m", 1.5]]))).toEqual([{ name: "m", value: "1.5" }]);
  expect(members(view("stream", [["1-0", [["f", "v"], ["g", "w"]]]]))).toEqual([{ name: "1-0", value: "f: v\ng: w" }]);
});

test("changes as the API takes them, binary names included", () => {
  const raw = { base64: "AA==" };
  expect(putMember("hash", { name: raw, value: "x" }, "ignored", "v", 1)).toEqual([raw, "v"]);
  expect(putMember("list", { name: "3", value: "x" }, "", "v", 9)).toEqual([3, "v"]);
  expect(putMember("list", null, "", "v", 9)).toEqual([9, "v"]);
  expect(putMember("set", null, "m", "", 1)).toBe("m");
  expect([" 2.5 ", "-inf", "abc", ""].map((text) => putMember("zset", null, "m", text, 1))).toEqual([["m", 2.5], ["m", "-inf"], ["m", "abc"], ["m", ""]]);
  expect(putMember("stream", null, "f", "v", 1)).toEqual(["*", [["f", "v"]]]);
  expect(putMember("string", null, "", "", 1)).toBeUndefined();
  expect(dropMember("hash", { name: raw, value: "x" })).toEqual(raw);
  expect(dropMember("list", { name: "4", value: "x" })).toBe(4);
});

test("new keys have one member", () => {
  expect(["string", "list", "set", "hash", "zset", "stream"].map((type) => newValue(type, "n", "1"))).toEqual([
    "1", ["1"], ["n"], [["n", "1"]], [["n", 1]], [["*", [["n", "1"]]]],
  ]);
  expect([addForm("list"), addForm("set"), addForm("hash")]).toEqual([["", "Element"], ["Member", ""], ["Field", "Value"]]);
});

test("times to live", () => {
  expect(["", "90", "90 s", "5 min", "2h", "1 d", "250 ms"].map(parseTtl)).toEqual([null, 90_000, 90_000, 300_000, 7_200_000, 86_400_000, 250]);
  expect(["x", "-1", "0", "1 y"].map(parseTtl)).toEqual([undefined, undefined, undefined, undefined]);
});

test("a word is looked for anywhere, a pattern as it is", () => {
  expect([globOf(""), globOf("ada"), globOf("ada*"), globOf("[ab]"), globOf("\\*")]).toEqual([null, "*ada*", "ada*", "[ab]", "\\*"]);
});
