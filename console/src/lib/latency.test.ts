import { expect, test } from "vitest";
import { hasValues, spoken } from "./charts";
import { latencyGraph } from "./latency";
import type { LatencyEvent } from "./types";

const event = (name: string, ...samples: [number, number][]): LatencyEvent => ({
  name, at_ms: samples.at(-1)![0], last_ms: samples.at(-1)![1], worst_ms: Math.max(...samples.map(([, ms]) => ms)),
  samples: samples.map(([at_ms, took_ms]) => ({ at_ms, took_ms })),
});

test("samples of neighbouring seconds are a line, and others stand alone", () => {
  const { graph, data } = latencyGraph([event("command", [10_000, 30], [11_000, 40], [60_000, 20]), event("expire-cycle", [11_000, 5])]);
  expect(data.times_ms).toEqual([10_000, 11_000, 59_000, 60_000]);
  expect(data.series).toEqual({ command: [30_000, 40_000, null, 20_000], "expire-cycle": [null, 5_000, null, null] });
  expect([data.from_ms, data.to_ms]).toEqual([10_000, 60_000]);
  expect(graph.lines.map((line) => line.name)).toEqual(["command", "expire-cycle"]);
  expect(hasValues(graph, data)).toBe(true);
  expect(spoken(graph, data)).toContain("Latency events");
});

test("nothing is an empty graph", () => {
  expect(latencyGraph([]).data.times_ms).toEqual([]);
});
