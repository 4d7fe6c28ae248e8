// Owns what INFO says of each command: calls, times, failures. Pure.

export interface CommandFigures {
  name: string;
  calls: number;
  /** Microseconds. */
  total: number;
  mean: number;
  p50: number | null;
  p99: number | null;
  p999: number | null;
  /** Refused before they ran. */
  rejected: number;
  failed: number;
}

const pairs = (text: string): Record<string, number> => Object.fromEntries(text.split(",").map((pair) => pair.split("=")).map(([name, value]) => [name, Number(value)]));

/** The commands of `INFO commandstats latencystats`, those that took most time first. */
export function commandFigures(info: string): CommandFigures[] {
  const times = new Map<string, Record<string, number>>();
  const found: CommandFigures[] = [];
  for (const line of info.split(/\r?\n/)) {
    const [, kind, name, rest] = /^(cmdstat|latency_percentiles_usec)_([^:]+):(.*)$/.exec(line) ?? [];
    if (kind === undefined || name === undefined || rest === undefined) continue;
    const values = pairs(rest);
    if (kind === "cmdstat") {
      found.push({
        name: name.replace("|", " ").toUpperCase(), calls: values["calls"] ?? 0, total: values["usec"] ?? 0, mean: values["usec_per_call"] ?? 0,
        p50: null, p99: null, p999: null, rejected: values["rejected_calls"] ?? 0, failed: values["failed_calls"] ?? 0,
      });
    } else times.set(name.replace("|", " ").toUpperCase(), values);
  }
  for (const one of found) {
    const of = times.get(one.name);
    if (of) [one.p50, one.p99, one.p999] = [of["p50"] ?? null, of["p99"] ?? null, of["p99.9"] ?? null];
  }
  return found.toSorted((a, b) => b.total - a.total);
}
