// Owns the events of the latency monitor as a graph. Pure.
import type { Graph } from "./charts";
import type { LatencyEvent, Series } from "./types";

/** Samples that are further apart are no line: nothing was noted in between. */
const NEAR_MS = 2000;

/** The name of an event for people; Redis's own name is the key. */
const ABOUT: Record<string, string> = {
  command: "Commands that are not fast by their nature",
  "fast-command": "Commands that should be fast: O(1) or O(log N)",
  "expire-cycle": "Removing keys that have expired",
};
export const aboutEvent = (name: string): string => ABOUT[name] ?? "";

export function latencyGraph(events: readonly LatencyEvent[]): { graph: Graph; data: Series } {
  const lines = events.map((event, colour) => ({ name: event.name, label: event.name, colour }));
  const times = [...new Set(events.flatMap((event) => event.samples.map((sample) => sample.at_ms)))].toSorted((a, b) => a - b);
  // A moment without a value ends a line.
  const times_ms = times.flatMap((at, index) => (index > 0 && at - times[index - 1]! > NEAR_MS ? [at - 1000, at] : [at]));
  const series = Object.fromEntries(
    events.map((event) => {
      const took = new Map(event.samples.map((sample) => [sample.at_ms, sample.took_ms * 1000]));
      return [event.name, times_ms.map((at) => took.get(at) ?? null)];
    }),
  );
  const [from_ms, to_ms] = [times[0] ?? 0, times.at(-1) ?? 0];
  return { graph: { id: "latency-events", title: "Latency events", unit: "us", log: true, lines }, data: { from_ms, to_ms, step_ms: 1000, times_ms, series } };
}
