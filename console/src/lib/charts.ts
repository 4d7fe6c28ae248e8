// Owns the list of graphs, their lines and their time ranges. Pure: the page keeps its state in its address.
import { clock, inUnit, scaleOf } from "./format";
import type { Metric, Rule, Series } from "./types";

export interface Line {
  name: string;
  label: string;
  /** Which colour of the theme: it stays the line's own when other lines are hidden. */
  colour?: number;
}

export interface Graph {
  id: string;
  title: string;
  unit: string;
  lines: Line[];
  /** The group of its first metric in the catalog. */
  group?: string;
  /** The lines are stacked as areas, because their sum matters. */
  stacked?: boolean;
  /** The largest possible value: the axis always reaches it. */
  top?: number;
  /** Values that differ by orders of magnitude: the axis is logarithmic unless the reader wants it otherwise. */
  log?: boolean;
}

const line = (name: string, label: string) => ({ name, label });

export const GRAPHS: Record<"database" | "node", Graph[]> = {
  database: [
    { id: "ops", title: "Operations", unit: "ops/s", stacked: true, lines: [line("ops_read", "read"), line("ops_write", "write"), line("ops_other", "other")] },
    { id: "hit-ratio", title: "RAM hit ratio", unit: "ratio", top: 1, lines: [line("hit_ratio", "RAM hit ratio"), line("busy_hit_ratio", "under load")] },
    { id: "latency", title: "Latency, without the network", unit: "us", log: true, lines: [line("latency_us", "average"), line("latency_p50_us", "p50"), line("latency_p99_us", "p99"), line("latency_p999_us", "p99.9"), line("latency_p9999_us", "p99.99")] },
    { id: "tier-latency", title: "Latency by tier", unit: "us", log: true, lines: [line("ram_latency_us", "RAM hit"), line("flash_latency_us", "flash hit"), line("ram_latency_p99_us", "RAM hit p99"), line("flash_latency_p99_us", "flash hit p99")] },
    { id: "hits", title: "Hits by tier", unit: "ops/s", stacked: true, lines: [line("ram_hits", "RAM"), line("flash_hits", "flash"), line("misses", "missed")] },
    { id: "values", title: "Values", unit: "count", stacked: true, lines: [line("values_in_ram", "in RAM"), line("values_in_flash", "in flash")] },
    { id: "values-in-ram", title: "Share of values in RAM", unit: "ratio", top: 1, lines: [line("values_in_ram_ratio", "in RAM")] },
    { id: "keys", title: "Keys", unit: "count", lines: [line("keys", "keys")] },
    { id: "ram", title: "RAM", unit: "bytes", lines: [line("used_ram_bytes", "used"), line("ram_limit_bytes", "limit"), line("ram_overhead_bytes", "besides values")] },
    { id: "flash", title: "Flash", unit: "bytes", lines: [line("used_flash_bytes", "used"), line("flash_limit_bytes", "limit"), line("live_flash_bytes", "live values")] },
    { id: "flash-io", title: "Flash operations", unit: "ops/s", lines: [line("flash_reads", "reads"), line("flash_writes", "writes")] },
    { id: "flash-bytes", title: "Flash bandwidth", unit: "bytes/s", lines: [line("flash_read_bytes", "read"), line("flash_write_bytes", "written")] },
    { id: "moves", title: "Demotions and promotions", unit: "ops/s", lines: [line("demotions", "to flash"), line("promotions", "to RAM")] },
    { id: "compression", title: "Compression: stored to raw", unit: "factor", lines: [line("compression_ratio", "stored")] },
    { id: "amplification", title: "Write amplification", unit: "factor", lines: [line("write_amplification", "since the start"), line("busy_write_amplification", "under load")] },
    { id: "fragmentation", title: "Flash fragmentation", unit: "factor", lines: [line("flash_fragmentation", "used to live")] },
    { id: "clients", title: "Connections", unit: "count", lines: [line("clients", "connected"), line("blocked_clients", "blocked")] },
    { id: "network", title: "Network", unit: "bytes/s", lines: [line("net_in_bytes", "in"), line("net_out_bytes", "out")] },
    { id: "gone", title: "Expired and evicted", unit: "ops/s", lines: [line("expired", "expired"), line("evicted", "evicted")] },
    { id: "journal", title: "Journal and checkpoint", unit: "bytes", stacked: true, lines: [line("checkpoint_bytes", "checkpoint"), line("journal_tail_bytes", "journal to replay")] },
    { id: "journalled", title: "Journalled", unit: "bytes/s", lines: [line("journal_bytes", "journalled")] },
    { id: "journal-sync", title: "Sync of the journal", unit: "us", log: true, lines: [line("journal_sync_us", "last sync")] },
    { id: "restart", title: "Restart, as estimated", unit: "us", lines: [line("recovery_us", "restart")] },
    { id: "limits", title: "Of the limits", unit: "percent", lines: [line("ram_percent", "RAM"), line("flash_percent", "flash"), line("files_percent", "files"), line("index_percent", "index"), line("clients_percent", "clients")] },
    { id: "replica-lag", title: "Lag of the last replica", unit: "us", lines: [line("replica_lag_us", "behind")] },
    { id: "replica-lag-bytes", title: "Lag of the last replica in bytes", unit: "bytes", lines: [line("replica_lag_bytes", "behind")] },
    { id: "replica-traffic", title: "Replication", unit: "bytes/s", lines: [line("replicated_bytes", "to replicas"), line("followed_bytes", "from the primary")] },
    { id: "errors", title: "Errors and refusals", unit: "ops/s", lines: [line("errors", "error replies"), line("refused", "refused writes"), line("rejected_clients", "rejected clients")] },
  ],
  node: [
    { id: "machine-cpu", title: "Processors of the machine", unit: "percent", top: 100, lines: [line("machine_cpu_percent", "busy"), line("machine_io_wait_percent", "waiting for disks")] },
    { id: "machine-ram", title: "Available RAM of the machine", unit: "bytes", lines: [line("machine_ram_free_bytes", "available")] },
    { id: "disk-latency", title: "Latency of the slowest disk", unit: "us", log: true, lines: [line("disk_latency_us", "a read or write")] },
    { id: "disks", title: "Disks", unit: "percent", top: 100, lines: [line("disk_busy_percent", "busiest, busy"), line("disk_free_percent", "fullest, free")] },
    { id: "cpu", title: "Processor of the node, 100 % is a core", unit: "percent", stacked: true, lines: [line("cpu_user_percent", "user"), line("cpu_system_percent", "system")] },
    { id: "ops", title: "Operations", unit: "ops/s", lines: [line("ops", "operations")] },
    { id: "resident", title: "Resident memory", unit: "bytes", lines: [line("resident_bytes", "resident"), line("used_ram_bytes", "of databases")] },
    { id: "flash", title: "Used flash", unit: "bytes", lines: [line("used_flash_bytes", "used")] },
    { id: "flash-io", title: "Flash operations", unit: "ops/s", lines: [line("flash_reads", "reads"), line("flash_writes", "writes")] },
    { id: "flash-bytes", title: "Flash bandwidth", unit: "bytes/s", lines: [line("flash_read_bytes", "read"), line("flash_write_bytes", "written")] },
    { id: "clients", title: "Connections", unit: "count", lines: [line("clients", "connected")] },
    { id: "network", title: "Network", unit: "bytes/s", lines: [line("net_in_bytes", "in"), line("net_out_bytes", "out")] },
  ],
};

/** What is or is not so: words, and no graphs. */
export const statesOf = (scope: "database" | "node", catalog: Metric[]): Metric[] => catalog.filter((metric) => metric.scope === scope && metric.unit === "state");

/** The graphs above, and one for each metric of the catalog that they do not draw, so that no new metric is invisible. */
export function graphsOf(scope: "database" | "node", catalog: Metric[]): Graph[] {
  const known = catalog.filter((metric) => metric.scope === scope && metric.unit !== "state");
  const names = new Set(known.map((metric) => metric.name));
  const graphs = GRAPHS[scope]
    .map((graph) => ({ ...graph, lines: graph.lines.filter((one) => names.has(one.name)) }))
    .filter((graph) => graph.lines.length > 0);
  const drawn = new Set(graphs.flatMap((graph) => graph.lines.map((one) => one.name)));
  // The sums of "Operations" and "Processor" are drawn already, as the height of the stacks.
  if (drawn.has("ops_read")) drawn.add("ops");
  if (drawn.has("cpu_user_percent")) drawn.add("cpu_percent");
  // The same in another unit, for rules.
  if (drawn.has("machine_ram_free_bytes")) drawn.add("machine_ram_free_percent");
  for (const metric of known) {
    if (!drawn.has(metric.name)) {
      graphs.push({ id: metric.name.replaceAll("_", "-"), title: metric.label, unit: metric.unit, lines: [line(metric.name, metric.label)] });
    }
  }
  const groups = new Map(known.map((metric) => [metric.name, metric.group]));
  return graphs.map((graph) => ({ ...graph, group: groups.get(graph.lines[0]!.name) }));
}

/** A line across a graph: the threshold of a rule that watches one of its metrics. */
export interface Threshold {
  value: number;
  label: string;
  severity: Rule["severity"];
}

/** Zero says only that something must not be, and is the axis already. In a stack, a line is not at its own height. */
export function thresholdsOf(graph: Graph, rules: Rule[], scope: string): Threshold[] {
  if (graph.stacked) return [];
  const watches = (rule: Rule) =>
    rule.enabled && rule.threshold !== 0 && graph.lines.some((one) => one.name === rule.metric) && (rule.scope === scope || (rule.scope === "databases" && scope.startsWith("database:")));
  return rules.filter(watches).map((rule) => ({ value: rule.threshold, label: rule.name, severity: rule.severity }));
}

/** The top of the axis: a threshold is shown if values come near it; otherwise it would press them to the ground. */
export function topOf(graph: Graph, most: number, thresholds: Threshold[]): number {
  if (graph.top !== undefined) return graph.top;
  const near = thresholds.map((one) => one.value).filter((value) => value <= 4 * most);
  const top = Math.max(most, ...near);
  return top > 0 ? Math.max(top * 1.08, graph.unit === "count" ? 1 : 0) : 1;
}

/** Something that happened, drawn as a line down a graph. */
export interface Mark {
  at_ms: number;
  word: string;
}

export const RANGES: { id: string; label: string; spoken: string; ms: number; refresh_ms: number }[] = [
  { id: "1m", label: "1 min", spoken: "the last minute", ms: 60_000, refresh_ms: 1000 },
  { id: "5m", label: "5 min", spoken: "the last 5 minutes", ms: 300_000, refresh_ms: 2000 },
  { id: "15m", label: "15 min", spoken: "the last 15 minutes", ms: 900_000, refresh_ms: 2000 },
  { id: "1h", label: "1 h", spoken: "the last hour", ms: 3_600_000, refresh_ms: 5000 },
  { id: "6h", label: "6 h", spoken: "the last 6 hours", ms: 21_600_000, refresh_ms: 15_000 },
  { id: "1d", label: "1 day", spoken: "the last day", ms: 86_400_000, refresh_ms: 30_000 },
  { id: "1w", label: "1 week", spoken: "the last week", ms: 604_800_000, refresh_ms: 60_000 },
];

export const DEFAULT_RANGE = "5m";

/** The time in the address: a range up to now, or a fixed interval after zooming. */
export type Span = { live: true; id: string; ms: number; refresh_ms: number } | { live: false; from_ms: number; to_ms: number };

const MIN_SPAN_MS = 5000;

export function spanOf(range: string | null, from: string | null, to: string | null): Span {
  const from_ms = Number(from);
  const to_ms = Number(to);
  if (from && to && Number.isFinite(from_ms) && to_ms - from_ms >= MIN_SPAN_MS) {
    return { live: false, from_ms: Math.round(from_ms), to_ms: Math.round(to_ms) };
  }
  const found = RANGES.find((one) => one.id === range) ?? RANGES.find((one) => one.id === DEFAULT_RANGE)!;
  return { live: true, id: found.id, ms: found.ms, refresh_ms: found.refresh_ms };
}

/** Shows at least a few seconds, even after a tiny drag. */
export function zoomOf(a_ms: number, b_ms: number): { from: number; to: number } {
  const from = Math.floor(Math.min(a_ms, b_ms));
  return { from, to: Math.max(Math.ceil(Math.max(a_ms, b_ms)), from + MIN_SPAN_MS) };
}

const isZero = (row: (number | null)[] | undefined): boolean => (row ?? []).every((value) => value === null || value === undefined || value === 0);

/** The graph without hidden lines and, where layers are stacked, without layers of zero: these would draw over the one below. */
export function shownLines(graph: Graph, data: Series, hidden: ReadonlySet<string> = new Set()): Graph {
  const all = graph.lines.map((one, index) => ({ ...one, colour: one.colour ?? index }));
  const wanted = all.filter((one) => !hidden.has(one.name));
  const layers = graph.stacked ? wanted.filter((one) => !isZero(data.series[one.name])) : wanted;
  return { ...graph, lines: layers.length > 0 ? layers : wanted };
}

/** A series as numbers to draw. In a stacked graph, each line starts at the sum of the lines below it. A logarithm has no zero. */
export function drawn(graph: Graph, data: Series): (number | null)[][] {
  const rows = graph.lines.map((one) => data.series[one.name] ?? data.times_ms.map(() => null));
  if (graph.log) return rows.map((row) => row.map((value) => (value !== null && value > 0 ? value : null)));
  if (!graph.stacked) return rows;
  const sums: (number | null)[][] = [];
  rows.forEach((row, index) => {
    const below = sums[index - 1];
    sums.push(row.map((value, at) => (value === null || value === undefined ? (below?.[at] ?? null) : value + (below?.[at] ?? 0))));
  });
  return sums;
}

/** Values without a neighbour: a line does not show them. */
export function lonely(row: readonly (number | null | undefined)[]): number[] {
  const known = (at: number): boolean => row[at] !== null && row[at] !== undefined;
  return row.flatMap((_, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []));
}

/** Where the values of some lines begin. A range that nobody chose is no longer than that. */
export function beginOf(data: Series, least_ms: number): number {
  const first = data.times_ms.findIndex((_, at) => Object.values(data.series).some((row) => row[at] !== null && row[at] !== undefined));
  const begin = first < 0 ? data.from_ms : data.times_ms[first]!;
  return Math.max(data.from_ms, Math.min(begin, data.to_ms - least_ms));
}

/** Another database in the same graph: its lines beside the graph's own, not stacked. Both have the same times. */
export function beside(graph: Graph, data: Series, other: string, more: Series): { graph: Graph; data: Series } {
  const name = (line: string): string => `${other}/${line}`;
  const at = new Map(more.times_ms.map((time, index) => [time, index]));
  const series = { ...data.series };
  for (const one of graph.lines) {
    const row = more.series[one.name] ?? [];
    series[name(one.name)] = data.times_ms.map((time) => row[at.get(time) ?? -1] ?? null);
  }
  const lines = [...graph.lines, ...graph.lines.map((one) => ({ name: name(one.name), label: `${other}: ${one.label}` }))];
  return { graph: { ...graph, id: `${graph.id}+${other}`, stacked: false, lines }, data: { ...data, series } };
}

export interface Summary {
  label: string;
  last: number | null;
  least: number | null;
  mean: number | null;
  most: number | null;
}

export function summaries(graph: Graph, data: Series): Summary[] {
  return graph.lines.map(({ name, label }) => {
    const values = (data.series[name] ?? []).filter((value): value is number => value !== null && value !== undefined);
    if (values.length === 0) return { label, last: null, least: null, mean: null, most: null };
    return {
      label,
      last: latest(name, data.series[name] ?? []),
      least: values.reduce((a, b) => Math.min(a, b)),
      mean: values.reduce((a, b) => a + b, 0) / values.length,
      most: values.reduce((a, b) => Math.max(a, b)),
    };
  });
}

/** A ratio of hits is unknown while nobody reads. */
export const isOfReads = (name: string): boolean => name.split("/").pop() === "hit_ratio";

/** The newest points may not be measured yet: so many unknown ones at the end say nothing. */
const UNMEASURED = 3;

/** The present value of a line. What was the ratio of hits when somebody read last is not its present value. */
function latest(name: string, row: readonly (number | null | undefined)[]): number | null {
  const recent = isOfReads(name) ? row.slice(-UNMEASURED) : row;
  return recent.findLast((value) => value !== null && value !== undefined) ?? null;
}

/** The sentence that describes a graph to screen readers. */
export function spoken(graph: Graph, data: Series): string {
  const parts = summaries(graph, data).map((one) =>
    one.most === null
      ? `${one.label}: no ${one.label.endsWith("hit ratio") ? "reads" : "values"}`
      : `${one.label}: latest ${inUnit(one.last, graph.unit)}, from ${inUnit(one.least, graph.unit)} to ${inUnit(one.most, graph.unit)}`,
  );
  return `${graph.title}. ${parts.join("; ")}.`;
}

/** What the lines of a graph mean, of those whose label does not say it: "under load: …". */
export function explained(graph: Graph, catalog: Metric[], scope: "database" | "node"): string {
  const about = new Map(catalog.filter((metric) => metric.scope === scope).map((metric) => [metric.name, metric.description]));
  return graph.lines.map((one) => (about.has(one.name) ? `${one.label}: ${about.get(one.name)!}` : "")).filter(Boolean).join("\n");
}

/** By group, in the catalog's order; those without any value in this time apart, because they say nothing. */
export function grouped(graphs: Graph[], data: Series): { shown: [string, Graph[]][]; empty: [string, Graph[]][] } {
  const names = [...new Set(graphs.map((graph) => graph.group ?? ""))];
  const all = names.map((name): [string, Graph[]] => [name, graphs.filter((graph) => (graph.group ?? "") === name)]);
  const says = ([, members]: [string, Graph[]]): boolean => members.some((graph) => hasValues(graph, data));
  return { shown: all.filter(says), empty: all.filter((one) => !says(one)) };
}

export function hasValues(graph: Graph, data: Series): boolean {
  return graph.lines.some((one) => (data.series[one.name] ?? []).some((value) => value !== null && value !== undefined));
}

const quoted = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export function csv(graph: Graph, data: Series): string {
  const head = ["time", "time_ms", ...graph.lines.map((one) => one.name)].map(quoted).join(",");
  const rows = data.times_ms.map((at, index) =>
    [new Date(at).toISOString(), at, ...graph.lines.map((one) => data.series[one.name]?.[index] ?? "")].join(","),
  );
  return [head, ...rows, ""].join("\n");
}

/** At most `rows` evenly spaced points, always with the last one: for the table under a graph. */
export function sampled(length: number, rows: number): number[] {
  if (length <= rows) return Array.from({ length }, (_, index) => index);
  return Array.from({ length: rows }, (_, index) => Math.round((index * (length - 1)) / (rows - 1)));
}

export const fileName = (name: string, graph: Graph, at_ms: number, ending: string): string =>
  `flintkv-${name}-${graph.id}-${clock(at_ms).replace(" ", "-").replaceAll(":", "")}.${ending}`;

/** The path of a small line without axes, in a box of this size: unknown values are gaps, a lonely one is a dot. */
export function sparkline(values: readonly (number | null | undefined)[], width: number, height: number, from_zero: boolean): string {
  const known = values.filter((value): value is number => value !== null && value !== undefined);
  if (known.length === 0) return "";
  // A young history takes the whole width.
  values = values.slice(values.findIndex((value) => value !== null && value !== undefined));
  const low = from_zero ? Math.min(0, ...known) : Math.min(...known);
  const high = Math.max(...known);
  const x = (at: number): string => ((at * width) / Math.max(1, values.length - 1)).toFixed(1);
  const y = (value: number): string => (1 + height - (high > low ? ((value - low) / (high - low)) * height : from_zero && high > 0 ? height : 0)).toFixed(1);
  let path = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) return;
    const before = values[at - 1];
    path += before === null || before === undefined ? `M${x(at)} ${y(value)}h0` : `L${x(at)} ${y(value)}`;
  });
  return path;
}

/** The powers of ten around all values; at least one decade. */
export function decades(min: number, max: number): [number, number] {
  if (!(min > 0) || !(max > 0)) return [1, 1000];
  const low = 10 ** Math.floor(Math.log10(min));
  return [low, Math.max(10 ** Math.ceil(Math.log10(max)), low * 10)];
}

export function powers(min: number, max: number): number[] {
  const found: number[] = [];
  for (let value = 10 ** Math.ceil(Math.log10(min) - 1e-9); value <= max * 1.0001 && found.length < 20; value *= 10) found.push(value);
  return found;
}

/** Round steps in the unit of the highest mark. */
export function ticks(min: number, max: number, unit: string, wanted: number): number[] {
  const step = roundStep((max - min) / wanted, scaleOf(max, unit).one, /^(count|bytes)/.test(unit) ? 1 : 0);
  const found: number[] = [];
  for (let value = Math.ceil(min / step) * step; value <= max * 1.0001 && found.length < 50; value += step) found.push(value);
  return found;
}

function roundStep(rough: number, one: number, least: number): number {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough / one)) * one;
  return [1, 2, 5, 10, 20, 50].map((factor) => factor * power).find((step) => step >= rough * 0.9999 && step >= least) ?? least;
}
