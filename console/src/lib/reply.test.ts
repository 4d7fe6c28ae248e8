import { expect, test } from "vitest";
import { inline, replyRows } from "./reply";
import type { Bytes, Reply } from "./types";

const text = (value: Bytes): Reply => ({ type: "string", value });
const drawn = (reply: Reply) => replyRows(reply).rows.map((row) => `${"  ".repeat(row.depth)}${row.mark && `${row.mark} `}${row.text} (${row.kind})`);

test("plain replies", () => {
  expect(drawn({ type: "status", value: "OK" })).toEqual(["OK (status)"]);
  expect(drawn({ type: "error", value: "ERR no" })).toEqual(["ERR no (error)"]);
  expect(drawn({ type: "integer", value: 7 })).toEqual(["7 (number)"]);
  expect(drawn({ type: "big", value: "123456789012345678901234567890" })).toEqual(["123456789012345678901234567890 (number)"]);
  expect(drawn({ type: "null" })).toEqual(["nil (nothing)"]);
  expect(drawn({ type: "boolean", value: false })).toEqual(["false (truth)"]);
  expect(drawn(text({ base64: "AAE=" }))).toEqual(["\\x00\\x01 (string)"]);
});

test("lists, maps and sets inside each other", () => {
  const reply: Reply = {
    type: "array",
    value: [text("a"), { type: "map", value: [[text("k"), { type: "integer", value: 1 }], [text("s"), { type: "set", value: [] }]] }],
  };
  expect(drawn(reply)).toEqual(["array of 2 (head)", "  1) a (string)", "  2) map of 2 (head)", "    k 1 (number)", "    s empty set (head)"]);
});

test("texts of many lines keep them", () => {
  expect(replyRows({ type: "verbatim", value: "# Server\r\nport:1\r\n" }).rows[0]?.text).toBe("# Server\nport:1\n");
});

test("long replies end and say so", () => {
  const reply: Reply = { type: "array", value: Array.from({ length: 100 }, (_, value) => ({ type: "integer", value })) };
  const { rows, more } = replyRows(reply, 10);
  expect(rows).toHaveLength(10);
  expect(more).toBe(true);
  expect(replyRows(reply, 101).more).toBe(false);
});

test("keys of maps are on one line", () => {
  expect(inline({ type: "array", value: [text("a"), { type: "null" }] })).toBe("[a, nil]");
});
