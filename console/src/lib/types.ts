// Owns the types of the HTTP API (docs/api.md, /api/v1/openapi.json). Bytes are integers, times are ms since 1970.

/** Text that may be binary: a string if it is UTF-8. */
export type Bytes = string | { base64: string };

export type Role = "viewer" | "operator" | "admin";

export interface Session {
  user: string;
  role: Role;
  csrf: string;
  must_change_password: boolean;
}

export interface Room {
  ram_bytes: number;
  ram_taken_bytes: number;
  flash_bytes: number;
  flash_taken_bytes: number;
  by_database?: { name: string; ram_bytes: number; flash_bytes: number }[];
}

export interface NodeFigures {
  cpu_user_us: number;
  cpu_system_us: number;
  resident_bytes: number;
  open_files: number;
  uptime_s: number;
  system_ram_bytes: number;
  system_ram_free_bytes: number;
  cores: number;
}

export interface NodeInfo {
  version: string;
  redis_version: string;
  run_id: string;
  started_ms: number;
  workers: number;
  cores: number;
  console_tls: boolean;
  flash_driver: string;
  room: Room;
  figures: NodeFigures;
  flash_paths: string[];
}

export interface Definition {
  port: number;
  tls_port: number;
  unixsocket: string | null;
  bind: string[];
  memory_limit_bytes: number;
  ram_limit_bytes: number;
  policy: string;
  compression: string;
  has_password: boolean;
  shards: number;
  replicas: number;
  persistence: string;
  zones: string[];
}

export type DbState = "active" | "paused" | "resizing" | "deleting";

/** The latest value of each metric; null or missing if there is none yet. */
export type Now = Record<string, number | null | undefined>;

export interface Db {
  name: string;
  state: DbState;
  progress: { done_bytes: number; total_bytes: number } | null;
  is_default: boolean;
  definition: Definition;
  endpoints: { kind: string; address: string; command: string }[];
  now: Now;
}

export interface CreateDb {
  name: string;
  memory_limit_bytes: number;
  ram_limit_bytes?: number;
  port?: number;
  tls_port?: number;
  unixsocket?: string;
  bind?: string[];
  policy?: string;
  compression?: string;
  password?: string;
  shards?: number;
  replicas?: number;
  persistence?: string;
  zones?: string[];
}

export interface Metric {
  name: string;
  unit: string;
  group: string;
  label: string;
  description: string;
  scope: "database" | "node";
}

export interface Series {
  step_ms: number;
  from_ms: number;
  times_ms: number[];
  series: Record<string, (number | null)[]>;
}

export interface SlowEntry {
  id: number;
  at_ms: number;
  duration_us: number;
  args: Bytes[];
  client: string;
  client_name: string;
}

export interface Client {
  id: number;
  addr: string;
  name: string;
  user: string;
  age_s: number;
  idle_s: number;
  db: number;
  cmd: string;
  flags: string;
  in_bytes?: number;
  out_bytes?: number;
  memory_bytes?: number;
  lib?: string;
  resp?: number;
}

export interface KeyRow {
  key: Bytes;
  type: string;
  ttl_ms: number | null;
  bytes: number | null;
  tier: "ram" | "flash" | null;
}

export interface KeyPage {
  cursor: string;
  keys: KeyRow[];
  scanned: number;
}

export type StreamEntry = [string, [Bytes, Bytes][]];

export interface KeyView {
  key: Bytes;
  type: string;
  encoding: string;
  ttl_ms: number | null;
  bytes: number | null;
  tier: "ram" | "flash" | null;
  length: number;
  value: Bytes | Bytes[] | [Bytes, Bytes][] | [Bytes, number | string][] | StreamEntry[];
  next: string | number | null;
}

export interface Reply {
  type: string;
  value: unknown;
}

export interface CommandResult {
  reply: Reply;
  elapsed_us: number;
  db: number;
}

export interface CommandDoc {
  name: string;
  summary: string;
  syntax: string;
  group: string;
  since: string;
  complexity: string;
  flags: string[];
  acl: string[];
}

export interface Directive {
  name: string;
  value: string | null;
  default: string | null;
  changed: boolean;
  change: "live" | "start" | "protected";
  group: string;
  doc: string;
  effect: string | null;
  secret: boolean;
}

export interface Scenario {
  name: string;
  title: string;
  published_by: string;
  machine: string;
}

export interface Benchmark {
  id: string;
  database: string;
  scenario: string;
  scale: string;
  state: "running" | "done" | "failed" | "cancelled";
  started_ms: number;
  phase: string;
  percent: number;
  lines: string[];
  report: { rows: { name: string; value: number | string | null; unit: string; published: number | string | null }[] } | null;
}

export type Severity = "info" | "warning" | "critical";

export interface Rule {
  id: string;
  name: string;
  metric: string;
  scope: string;
  op: ">" | "<";
  threshold: number;
  for_s: number;
  severity: Severity;
  enabled: boolean;
}

export type AlertWord = "ok" | "pending" | "firing" | "no_data";

export interface Webhook {
  url: string | null;
  enabled: boolean;
  last: { at_ms: number; ok: boolean; message: string } | null;
}

export interface Alerts {
  rules: Rule[];
  states: { rule_id: string; scope: string; state: AlertWord; since_ms: number; value: number | null }[];
  history: { at_ms: number; rule_id: string; name: string; scope: string; from: AlertWord; to: AlertWord; value: number | null }[];
  webhook: Webhook;
}

export interface Event {
  id: number | string;
  at_ms: number;
  kind: string;
  severity: string;
  database: string | null;
  user: string | null;
  message: string;
}

export interface AuditEntry {
  at_ms: number;
  user: string;
  role: string;
  address: string;
  action: string;
  target: string;
  detail: unknown;
  ok: boolean;
}

export interface User {
  name: string;
  role: Role;
  created_ms: number;
  last_login_ms: number | null;
}

export interface Token {
  id: string;
  name: string;
  role: Role;
  created_ms?: number;
  expires_ms: number | null;
  last_used_ms?: number | null;
  token?: string;
}
