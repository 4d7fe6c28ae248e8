import { expect, test } from "vitest";
import { BYTES_MAX, cleared, extended, NOTHING, ROWS_MAX } from "./tail";
import type { StreamRow } from "./types";

const row = (number: number, payload = "x"): StreamRow => ({ number, at_ms: 1, channel: "c", pattern: null, payload, payload_bytes: payload.length });
const page = (from: number, count: number, left_out = 0, payload?: string) => ({
  rows: Array.from({ length: count }, (_, at) => row(from + at, payload)), last: from + count - 1, left_out,
});

test("rows are added, and the oldest leave at the bound and are counted", () => {
  let tail = extended(NOTHING, page(1, 3));
  expect([tail.rows.length, tail.last, tail.left_out]).toEqual([3, 3, 0]);
  tail = extended(tail, page(8, ROWS_MAX, 4));
  expect([tail.rows.length, tail.rows[0]!.number, tail.left_out]).toEqual([ROWS_MAX, 8, 7]);
  tail = extended(tail, { rows: [], last: tail.last, left_out: 0 });
  expect([tail.rows.length, tail.left_out]).toEqual([ROWS_MAX, 7]);
  expect(cleared(tail)).toEqual({ rows: [], last: tail.last, left_out: 0 });
});

test("long payloads leave at the bound of bytes", () => {
  const quarter = "x".repeat(BYTES_MAX / 4);
  const tail = extended(NOTHING, page(1, 6, 0, quarter));
  expect([tail.rows.map((one) => one.number), tail.left_out]).toEqual([[3, 4, 5, 6], 2]);
});
