import { expect, test } from "vitest";
import { CATALOG } from "../../mock/metrics";
import {
  beginOf, beside, csv, decades, drawn, explained, fileName, GRAPHS, graphsOf, grouped, statesOf, hasValues, lonely, powers, sampled, shownLines, spanOf, sparkline, spoken, summaries, thresholdsOf,
  ticks, topOf, zoomOf, type Graph,
} from "./charts";
import { inScale, scaleOf } from "./format";
import type { Series } from "./types";

const GRAPH: Graph = { id: "ops", title: "Operations", unit: "ops/s", stacked: true, lines: [{ name: "r", label: "read" }, { name: "w", label: "write" }] };
const DATA: Series = { step_ms: 1000, from_ms: 0, to_ms: 2000, times_ms: [0, 1000, 2000], series: { r: [1, null, 3], w: [10, null, 30] } };

test("every metric of the catalog is drawn somewhere, or is a state", () => {
  for (const scope of ["database", "node"] as const) {
    const names = new Set(graphsOf(scope, CATALOG).flatMap((graph) => graph.lines.map((line) => line.name)));
    const missing = CATALOG.filter((metric) => metric.scope === scope && metric.unit !== "state" && !names.has(metric.name)).map((metric) => metric.name);
    // Drawn as the height of their parts.
    expect(missing.filter((name) => !["ops", "cpu_percent"].includes(name))).toEqual([]);
  }
});

test("what is or is not so is a word and no graph, and what has no value stands apart", () => {
  const drawn = graphsOf("database", CATALOG).flatMap((graph) => graph.lines.map((line) => line.name));
  const states = statesOf("database", CATALOG).map((metric) => metric.name);
  expect(states).toContain("flash_full");
  expect(states.filter((name) => drawn.includes(name))).toEqual([]);
  const known = { ...GRAPH, group: "Throughput" };
  const unknown: Graph = { id: "lag", title: "Lag", unit: "us", group: "Replication", lines: [{ name: "lag", label: "behind" }] };
  const { shown, empty } = grouped([known, unknown], DATA);
  expect([shown.map(([group]) => group), empty.map(([group]) => group)]).toEqual([["Throughput"], ["Replication"]]);
});

test("a line says what it means", () => {
  const graph = graphsOf("database", CATALOG).find((one) => one.id === "amplification")!;
  expect(explained(graph, CATALOG, "database")).toBe("since the start: The metric write_amplification.\nunder load: The metric busy_write_amplification.");
});

test("a metric that is new gets a graph of its own, one that the node lacks disappears", () => {
  const graphs = graphsOf("database", [{ name: "new_one", unit: "count", group: "x", label: "New one", description: "", scope: "database" }]);
  expect(graphs.map((graph) => [graph.id, graph.title])).toEqual([["new-one", "New one"]]);
});

test("graphs have names of their own", () => {
  for (const graphs of Object.values(GRAPHS)) expect(new Set(graphs.map((graph) => graph.id)).size).toBe(graphs.length);
});

test("stacked lines lie on each other, and gaps stay gaps", () => {
  expect(drawn(GRAPH, DATA)).toEqual([[1, null, 3], [11, null, 33]]);
  expect(drawn({ ...GRAPH, stacked: false }, DATA)).toEqual([[1, null, 3], [10, null, 30]]);
  expect(drawn({ ...GRAPH, lines: [{ name: "unknown", label: "" }] }, DATA)).toEqual([[null, null, null]]);
});

test("numbers and the sentence for those who cannot see it", () => {
  expect(summaries(GRAPH, DATA)[1]).toEqual({ label: "write", last: 30, least: 10, mean: 20, most: 30 });
  expect(spoken(GRAPH, DATA)).toBe("Operations. read: latest 3/s, from 1/s to 3/s; write: latest 30/s, from 10/s to 30/s.");
  const empty = { ...DATA, series: {} };
  expect(hasValues(GRAPH, DATA)).toBe(true);
  expect(hasValues(GRAPH, empty)).toBe(false);
  expect(spoken(GRAPH, empty)).toBe("Operations. read: no values; write: no values.");
});

test("the time is a range up to now, or what was zoomed into", () => {
  expect(spanOf("1h", null, null)).toMatchObject({ live: true, id: "1h", ms: 3_600_000 });
  expect(spanOf("nonsense", null, null)).toMatchObject({ live: true, id: "5m" });
  expect(spanOf("1h", "1000", "61000")).toEqual({ live: false, from_ms: 1000, to_ms: 61_000 });
  expect(spanOf("1h", "61000", "1000")).toMatchObject({ live: true });
  expect(zoomOf(9000, 1000.5)).toEqual({ from: 1000, to: 9000 });
  expect(zoomOf(1000, 1001)).toEqual({ from: 1000, to: 6000 });
});

test("files", () => {
  expect(csv(GRAPH, DATA)).toBe(
    "time,time_ms,r,w\n1970-01-01T00:00:00.000Z,0,1,10\n1970-01-01T00:00:01.000Z,1000,,\n1970-01-01T00:00:02.000Z,2000,3,30\n",
  );
  expect(fileName("cart", GRAPH, Date.UTC(2026, 10, 21), "csv")).toMatch(/^flintkv-cart-ops-2026-11-2\d-\d{6}\.csv$/);
});

test("tables have the first and the last row", () => {
  expect(sampled(3, 10)).toEqual([0, 1, 2]);
  expect(sampled(101, 3)).toEqual([0, 50, 100]);
});

test("layers of zero are not drawn, hidden lines neither, and colours stay", () => {
  const graph: Graph = { ...GRAPH, lines: [...GRAPH.lines, { name: "o", label: "other" }] };
  const data: Series = { ...DATA, series: { ...DATA.series, r: [0, null, 0], o: [5, null, 5] } };
  expect(shownLines(graph, data).lines).toEqual([{ name: "w", label: "write", colour: 1 }, { name: "o", label: "other", colour: 2 }]);
  expect(shownLines(graph, data, new Set(["w"])).lines.map((line) => line.name)).toEqual(["o"]);
  expect(shownLines({ ...graph, stacked: false }, data).lines.map((line) => line.name)).toEqual(["r", "w", "o"]);
  // All of them are zero: a line on the axis says so.
  expect(shownLines(GRAPH, { ...DATA, series: { r: [0, 0, 0], w: [0, 0, 0] } }).lines).toHaveLength(2);
});

test("a logarithm has no zero; values without a neighbour are found", () => {
  expect(drawn({ ...GRAPH, stacked: false, log: true }, { ...DATA, series: { r: [0, 5, null], w: [-1, 2, 3] } })).toEqual([[null, 5, null], [null, 2, 3]]);
  expect(lonely([1, null, 2, 3, null, 4])).toEqual([0, 5]);
  expect(decades(3, 4500)).toEqual([1, 10_000]);
  expect(decades(5, 5)).toEqual([1, 10]);
  expect(powers(1, 1000)).toEqual([1, 10, 100, 1000]);
});

test("a range that nobody chose is as long as the history", () => {
  expect(beginOf({ ...DATA, series: { r: [null, 1, 2] } }, 500)).toBe(1000);
  expect(beginOf({ ...DATA, series: { r: [null, null, 2] } }, 500)).toBe(1500);
  expect(beginOf({ ...DATA, series: { r: [null, null, null] } }, 500)).toBe(0);
});

test("another database beside: by time, unstacked", () => {
  const both = beside(GRAPH, DATA, "shop", { ...DATA, times_ms: [1000, 2000], series: { r: [7, 8] } });
  expect(both.graph.lines.map((line) => line.label)).toEqual(["read", "write", "shop: read", "shop: write"]);
  expect([both.graph.stacked, both.data.series["shop/r"], both.data.series["shop/w"]]).toEqual([false, [null, 7, 8], [null, null, null]]);
});

test("a sparkline has gaps", () => {
  expect(sparkline([0, 10, null, 5], 90, 20, true)).toBe("M0.0 21.0h0L30.0 1.0M90.0 11.0h0");
  expect(sparkline([null, null, 2, 4], 90, 20, true)).toBe("M0.0 11.0h0L90.0 1.0");
  expect(sparkline([], 90, 20, true)).toBe("");
});

test("the ratio of hits ends with the reads", () => {
  const graph: Graph = { id: "hit-ratio", title: "RAM hit ratio", unit: "ratio", lines: [{ name: "hit_ratio", label: "RAM hit ratio" }] };
  const of = (row: (number | null)[]) => summaries(graph, { ...DATA, series: { hit_ratio: row } })[0]!;
  expect(of([0.5, 0.7, null])).toMatchObject({ last: 0.7, most: 0.7 });
  expect(of([0.5, null, null, null])).toMatchObject({ last: null, most: 0.5 });
});

test("thresholds are those of the rules that watch a line, and do not press the values to the ground", () => {
  const rule = { id: "r", name: "late", metric: "r", scope: "databases", op: ">" as const, threshold: 5, for_s: 0, keep_s: 0, severity: "warning" as const, enabled: true };
  const plain = { ...GRAPH, stacked: false };
  expect(thresholdsOf(plain, [rule], "database:a")).toEqual([{ value: 5, label: "late", severity: "warning" }]);
  expect(thresholdsOf(GRAPH, [rule], "database:a")).toEqual([]);
  for (const other of [{ ...rule, enabled: false }, { ...rule, threshold: 0 }, { ...rule, scope: "database:b" }, { ...rule, metric: "x" }]) expect(thresholdsOf(plain, [other], "database:a")).toEqual([]);
  expect(thresholdsOf(plain, [rule], "node")).toEqual([]);
  const [line] = thresholdsOf(plain, [rule], "database:a");
  expect(topOf(plain, 2, [line!])).toBeCloseTo(5.4);
  expect(topOf(plain, 1, [line!])).toBeCloseTo(1.08);
  expect(topOf({ ...plain, top: 1 }, 9, [line!])).toBe(1);
});

test("an axis has one unit, and round steps in it", () => {
  const marks = (max: number, unit: string, wanted = 5): string[] => ticks(0, max, unit, wanted).map((value) => inScale(value, scaleOf(max, unit)));
  expect(marks(1.6 * 1024 ** 2, "bytes")).toEqual(["0 MiB", "0.5 MiB", "1 MiB", "1.5 MiB"]);
  expect(marks(1000 * 1024, "bytes/s")).toEqual(["0 MiB/s", "0.2 MiB/s", "0.4 MiB/s", "0.6 MiB/s", "0.8 MiB/s"]);
  expect(marks(900 * 1024, "bytes")).toEqual(["0 KiB", "200 KiB", "400 KiB", "600 KiB", "800 KiB"]);
  expect(marks(1200, "ops/s", 4)).toEqual(["0 k/s", "0.5 k/s", "1 k/s"]);
  expect(marks(2_500, "us")).toEqual(["0 ms", "0.5 ms", "1 ms", "1.5 ms", "2 ms", "2.5 ms"]);
  expect(marks(1, "ratio")).toEqual(["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
  expect(marks(3, "count")).toEqual(["0", "1", "2", "3"]);
  expect(marks(0, "bytes")).toEqual(["0 B"]);
  // There are no halves of a byte, or of a thing.
  expect([marks(1.08, "count"), marks(1, "bytes")]).toEqual([["0", "1"], ["0 B", "1 B"]]);
});
