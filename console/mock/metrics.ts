// Metrics of the node that is not there: smooth functions of time, so that a picture taken twice is the same picture.
import type { Metric, Series } from "../src/lib/types";

const row = (scope: Metric["scope"], group: string, unit: Metric["unit"], names: string): Metric[] =>
  names.split(" ").map((name) => ({
    name, unit, group, scope,
    label: name.replaceAll("_", " ").replace(/ us$/, "").replace(/ bytes$/, "").replace(/^./, (c) => c.toUpperCase()),
    description: `The metric ${name}.`,
  }));

export const CATALOG: Metric[] = [
  ...row("database", "throughput", "ops/s", "ops ops_read ops_write ops_other"),
  ...row("database", "latency", "us", "latency_us latency_p50_us latency_p99_us latency_p999_us latency_p9999_us ram_latency_us ram_latency_p99_us flash_latency_us flash_latency_p99_us"),
  ...row("database", "tiers", "ratio", "hit_ratio values_in_ram_ratio"),
  ...row("database", "tiers", "ops/s", "ram_hits flash_hits misses demotions promotions"),
  ...row("database", "keys", "count", "keys values_in_ram values_in_flash"),
  ...row("database", "flash", "factor", "compression_ratio flash_fragmentation write_amplification busy_write_amplification"),
  ...row("database", "limits", "state", "flash_full ram_full paused"),
  ...row("database", "replication", "us", "replica_lag_us"),
  ...row("database", "memory", "bytes", "used_ram_bytes ram_limit_bytes ram_overhead_bytes used_flash_bytes live_flash_bytes flash_limit_bytes files_bytes files_limit_bytes"),
  ...row("database", "flash", "ops/s", "flash_reads flash_writes"),
  ...row("database", "flash", "bytes/s", "flash_read_bytes flash_write_bytes"),
  ...row("database", "clients", "count", "clients blocked_clients"),
  ...row("database", "network", "bytes/s", "net_in_bytes net_out_bytes"),
  ...row("database", "keys", "ops/s", "expired evicted errors"),
  ...row("database", "durability", "bytes", "checkpoint_bytes journal_tail_bytes journal_unsynced_bytes journal_missing_bytes"),
  ...row("database", "durability", "bytes/s", "journal_bytes"),
  ...row("database", "durability", "us", "journal_sync_us recovery_us"),
  ...row("database", "durability", "ratio", "journal_waiting"),
  ...row("database", "durability", "count", "checkpoint_failures rot"),
  ...row("database", "durability", "state", "journal_behind journal_failed recovery_late backup_failed"),
  ...row("node", "machine", "percent", "machine_cpu_percent machine_io_wait_percent disk_free_percent disk_busy_percent"),
  ...row("node", "machine", "bytes", "machine_ram_free_bytes"),
  ...row("node", "machine", "us", "disk_latency_us"),
  ...row("node", "processor", "percent", "cpu_percent cpu_user_percent cpu_system_percent"),
  ...row("node", "memory", "bytes", "resident_bytes used_ram_bytes used_flash_bytes"),
  ...row("node", "throughput", "ops/s", "ops flash_reads flash_writes"),
  ...row("node", "clients", "count", "clients"),
  ...row("node", "network", "bytes/s", "net_in_bytes net_out_bytes flash_read_bytes flash_write_bytes"),
];

const GB = 1024 ** 3;
const BASE: Record<string, number> = {
  ops_read: 118_000, ops_write: 29_000, ops_other: 800, latency_us: 92, latency_p50_us: 61, latency_p99_us: 540, latency_p999_us: 1100, latency_p9999_us: 2100,
  ram_latency_us: 41, ram_latency_p99_us: 110, flash_latency_us: 310, flash_latency_p99_us: 890, hit_ratio: 0.862,
  ram_hits: 101_500, flash_hits: 16_300, misses: 220, keys: 41_200_000, values_in_ram: 12_100_000, values_in_flash: 29_100_000,
  values_in_ram_ratio: 0.294, used_ram_bytes: 7.4 * GB, ram_limit_bytes: 8 * GB, ram_overhead_bytes: 1.1 * GB, used_flash_bytes: 21 * GB, live_flash_bytes: 17 * GB,
  flash_limit_bytes: 56 * GB, files_bytes: 42 * GB, files_limit_bytes: 80 * GB, flash_reads: 16_300, flash_writes: 410, flash_read_bytes: 66e6, flash_write_bytes: 48e6,
  compression_ratio: 0.43, write_amplification: 1.31, demotions: 15_900, promotions: 16_200, clients: 204, blocked_clients: 3,
  net_in_bytes: 21e6, net_out_bytes: 74e6, expired: 120, evicted: 0, errors: 2, flash_fragmentation: 1.19, busy_write_amplification: 0.034, flash_full: 0, ram_full: 0, paused: 0,
  machine_cpu_percent: 41, machine_io_wait_percent: 3, disk_free_percent: 22, disk_busy_percent: 37, machine_ram_free_bytes: 52 * GB, disk_latency_us: 140,
  checkpoint_bytes: 18 * GB, journal_tail_bytes: 3.2 * GB, journal_unsynced_bytes: 4.1e6, journal_bytes: 9.4e6, journal_sync_us: 1900,
  recovery_us: 4.2e6, recovery_late: 0, journal_missing_bytes: 0, journal_behind: 0, journal_failed: 0, checkpoint_failures: 0, rot: 0, backup_failed: 0,
  cpu_user_percent: 142, cpu_system_percent: 61, resident_bytes: 9.1 * GB,
};

function noise(name: string, at_s: number): number {
  let seed = 7;
  for (const c of name) seed = (seed * 31 + c.charCodeAt(0)) % 9973;
  return Math.sin(at_s / 37 + seed) * 0.06 + Math.sin(at_s / 11 + seed * 3) * 0.03 + Math.sin(at_s / 900 + seed * 5) * 0.12;
}

const STEADY = new Set(["ram_limit_bytes", "flash_limit_bytes", "files_limit_bytes", "keys", "values_in_ram", "values_in_flash"]);

export function metricAt(name: string, at_ms: number, share = 1): number {
  if (name === "ops") return ["ops_read", "ops_write", "ops_other"].reduce((sum, one) => sum + metricAt(one, at_ms, share), 0);
  if (name === "cpu_percent") return metricAt("cpu_user_percent", at_ms) + metricAt("cpu_system_percent", at_ms);
  const base = BASE[name] ?? 1;
  if (STEADY.has(name)) return base * share;
  const value = base * (1 + noise(name, at_ms / 1000));
  if (/hit_ratio|values_in_ram_ratio/.test(name)) return Math.min(1, base * (1 + noise(name, at_ms / 1000) / 4));
  if (/clients$/.test(name)) return Math.round(value * share);
  return /_us$|percent|amplification|compression|fragmentation/.test(name) ? value : value * share;
}

export function series(names: string[], from_ms: number, to_ms: number, points: number, share: number): Series {
  const step_ms = Math.max(1000, Math.ceil((to_ms - from_ms) / points / 1000) * 1000);
  const times_ms: number[] = [];
  for (let at = Math.ceil(from_ms / step_ms) * step_ms; at <= to_ms; at += step_ms) times_ms.push(at);
  const values = (name: string) =>
    // A gap, as a restart of the node leaves one.
    name === "replica_lag_us" ? times_ms.map(() => null) : times_ms.map((at, index) => (index > times_ms.length * 0.3 && index < times_ms.length * 0.33 ? null : metricAt(name, at, share)));
  return { step_ms, from_ms, to_ms, times_ms, series: Object.fromEntries(names.map((name) => [name, values(name)])) };
}
