import { expect, test } from "vitest";
import { batches, lines } from "./transfer";

test("what is exported is imported, in requests that are not too large", () => {
  const keys = Array.from({ length: 1201 }, (_, index) => ({ key: `k${index}`, ttl_ms: index ? null : 5, dump: { base64: "/wA=" } }));
  const found = batches(lines(keys));
  if (typeof found === "number") throw new Error(`line ${found}`);
  expect(found.map((batch) => batch.length)).toEqual([500, 500, 201]);
  expect(found.flat()).toEqual(keys);
  const large = batches(lines([1, 2, 3].map((n) => ({ key: `${n}`, ttl_ms: null, dump: "x".repeat(3_000_000) }))));
  expect(typeof large === "number" ? large : large.map((batch) => batch.length)).toEqual([1, 1, 1]);
});

test("a line that is no key is named", () => {
  expect(batches('{"key":"a","dump":"b"}\n\nnothing\n')).toBe(3);
  expect(batches('{"key":"a"}')).toBe(1);
  expect(batches("null")).toBe(1);
  expect(batches("")).toEqual([]);
});
