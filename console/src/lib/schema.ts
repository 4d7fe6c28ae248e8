// The types of the HTTP API, made of its OpenAPI document by
// `cargo run -p flintkv-api --example api_ts > console/src/lib/schema.ts`. A test of the API holds it to that.

/** A note that somebody works on an alert. */
export interface Acknowledged {
  at_ms: number;
  by: string;
  note: string;
}

export interface Acknowledgement {
  note?: string;
  rule_id: string;
  /** `node` or `database:NAME`. */
  scope: string;
}

export interface All {
  /** Newest first. */
  history: Change[];
  rules: Rule[];
  silences: Silence[];
  states: RuleState[];
  webhook: Webhook;
}

export interface AllBackups {
  backups: BackupInfo[];
  /** The directory of all backups. */
  directory: string;
}

export interface Analysis {
  db: number;
  ended_ms: number | null;
  /** Why it failed. */
  failure: string;
  /** The average size of a value on flash. The `flash_bytes` of the groups are estimated with it. */
  flash_bytes_each: number;
  /** The most used keys whose values are in RAM, the most used first. */
  hottest: ListedKey[];
  /** What `used` says of these keys: `frequency` (if the eviction policy is LFU) or `idle`. */
  hottest_by: string;
  keys_done: number;
  keys_total: number;
  /** The keys with the largest values in RAM, the largest first. */
  largest: ListedKey[];
  /** Keys grouped by a pattern of their names, such as `user:*:cart`. Only the largest groups. */
  patterns: KeyGroup[];
  /** Keys grouped by what precedes the first colon in their names. Only the largest groups. */
  prefixes: KeyGroup[];
  started_ms: number;
  state: AnalysisState;
  /** Keys grouped by their times to live. Only keys whose values are in RAM. */
  ttls: TtlBand[];
  /** Keys grouped by their types. */
  types: KeyGroup[];
}

export const AnalysisState = ["running", "done", "stopped", "failed"] as const;
export type AnalysisState = (typeof AnalysisState)[number];

export interface Audited {
  /** What was asked for, such as `database.create`. */
  action: string;
  address: string;
  at_ms: number;
  /** Details of the request, and the reason if it has failed. Never a password or a value. */
  detail: string;
  ok: boolean;
  role: string;
  /** The name of what was to be changed: a database, user or rule, for example. */
  target: string;
  /** The node of the cluster that was asked first and has checked the user; empty: this one. */
  through: string;
  /** The name of the user, or of the token that a program has used. */
  user: string;
}

export interface BackupInfo {
  bytes: number;
  created_ms: number;
  database: string;
  keys: number;
  /** The moment of the backup. With the archived journal, a new database can get the dataset of a later moment too: its `at_ms`. null: the backup does not say where the journal continues, so no later moment can be restored. */
  moment_ms: number | null;
  node_version: string;
  /** The backup's directory, below the node's backup-path: the `from` of a new database. */
  path: string;
  rdb_version: number;
  /** The last moment that can be restored from this backup and the archived journal. null: only the moment of the backup. */
  reaches_ms: number | null;
  /** Made by the schedule. The node deletes such backups by itself. */
  scheduled: boolean;
  /** The checksum of dump.rdb. */
  sha256: string;
}

export interface Backups {
  backups: BackupInfo[];
  last: null | EndedInfo;
  running: null | RunningInfo;
}

/** An operation that has begun, or would begin. */
export interface BegunOperation {
  /** null: nothing was begun. */
  id: string | null;
  kind: string;
  /** What is left out, and why. */
  notes: string[];
  steps: OperationStep[];
  target: string;
}

export interface Benchmark {
  database: string;
  ended_ms: number | null;
  id: string;
  /** What the scenario said, oldest first. */
  lines: string[];
  /** Of the phase. */
  percent: number;
  /** populate, dry run, measured run … */
  phase: string;
  report: null | BenchmarkReport;
  scale: string;
  scenario: string;
  started_ms: number;
  state: Stage;
}

export interface BenchmarkReport {
  notes: string[];
  rows: ReportRow[];
  title: string;
  /** The whole report, as `flintkv scenario --json` writes it. */
  whole: unknown;
}

/** A string if it is UTF-8, else an object with its base64; both are accepted. */
export type Bytes = string | {
  base64: string;
};

export interface Change {
  at_ms: number;
  from: Stand;
  name: string;
  rule_id: string;
  scope: string;
  to: Stand;
  value: number | null;
}

export interface ClientInfo {
  addr: string;
  age_s: number;
  /** The last command. */
  cmd: string;
  db: number;
  flags: string;
  id: number;
  idle_s: number;
  /** Waiting to be read, and to be sent. */
  in_bytes: number;
  laddr: string;
  lib: string;
  memory_bytes: number;
  /** Queued in a transaction; -1 outside one. */
  multi: number;
  name: string;
  out_bytes: number;
  /** 2 or 3. */
  resp: number;
  /** Channels and patterns that it listens to. */
  subscriptions: number;
  user: string;
  watch: number;
}

export interface ClusterAlerts {
  /** Whose alerts are not among them. */
  missing: MissingNode[];
  /** This node first. */
  nodes: NodeAlerts[];
}

/** The authority that signs the certificates of nodes. */
export interface ClusterAuthority {
  expires_ms: number;
  /** The SHA-256 of the certificate of the one that has signed this node's certificate. */
  fingerprint: string;
  replacement: null | ClusterReplacement;
}

export interface ClusterDatabase {
  id: string;
  memory_limit_bytes: number;
  name: string;
  port: number;
  ram_limit_bytes: number;
  /** Of each shard. */
  replicas: number;
  shards: ShardInfo[];
  /** creating, serving, paused or deleting. */
  state: string;
  tls_port: number;
}

export interface ClusterEtcd {
  alarms: string[];
  members: ClusterEtcdMember[];
  /** How long the slowest request of the node that answers took in the last 10 to 20 seconds. null: there was none. */
  slowest_request_ms: number | null;
}

export interface ClusterEtcdMember {
  client_url: string;
  db_bytes: number | null;
  /** It knows a leader, itself or another one: a majority is there. */
  has_leader: boolean;
  is_leader: boolean;
  is_learner: boolean;
  /** The node's name, or etcd's own. */
  name: string;
  /** Why it does not answer. */
  trouble: string | null;
  version: string | null;
}

export interface ClusterEvents {
  events: NodeEvent[];
  /** Whose events are not among them. */
  missing: MissingNode[];
}

export interface ClusterInfo {
  databases: ClusterDatabase[];
  /** Why etcd cannot be followed at the moment. What is served goes on. */
  etcd_trouble: string | null;
  id: string;
  /** The node that leads: it names primaries, and carries operations out. null: none does, or it is not known. */
  leader: string | null;
  name: string;
  /** The name of the node that answers. */
  node: string;
  nodes: ClusterNode[];
  /** The node that answers was removed from the cluster, and when if that is known. It serves nothing for it, and knows no more of it. */
  removed: string | null;
  /** What on this node is not as it should be. */
  troubles: string[];
}

export interface ClusterNode {
  address: string;
  /** How far its clock is ahead of that of the node that answers; below 0: behind it. null: unknown. */
  clock_ahead_ms: number | null;
  /** By how much that may be wrong. */
  clock_error_ms: number | null;
  flash_bytes: number;
  flash_placed_bytes: number;
  id: string;
  /** Primaries leave it, and none is named there while another copy can be. */
  is_draining: boolean;
  is_live: boolean;
  name: string;
  /** How many of them are primaries. */
  primaries: number;
  ram_bytes: number;
  ram_placed_bytes: number;
  /** data or quorum. */
  role: string;
  /** The copies of shards on it. */
  shards: number;
  version: string;
  zone: string;
}

/** The last replacement of the authority, or the one that is under way. */
export interface ClusterReplacement {
  by: string;
  ended_ms: number | null;
  /** The nodes go back to the authority that was to be replaced. */
  is_abandoned: boolean;
  started_ms: number;
  /** trust: every node trusts both. renew: it gets certificates of the one that stays. drop: it trusts that one alone. null: it has ended. */
  step: string | null;
  /** The fingerprint of the authority that stays. */
  to: string;
  /** What the step still waits for, a sentence for each node. */
  waits_for: string[];
}

export interface ClusterSettings {
  /** When a node has not run for so many seconds, its copies come anew on other nodes. 0: only when an operator asks for that. */
  replace_after_s: number;
}

/** What compresses values on flash. A new database has lz4 if none is given. */
export const Codec = ["none", "lz4", "zstd"] as const;
export type Codec = (typeof Codec)[number];

export interface CommandInfo {
  /** Categories. */
  acl: string[];
  complexity: string;
  flags: string[];
  group: string;
  /** In capitals; a subcommand behind its container. */
  name: string;
  since: string;
  summary: string;
  /** With the name in front. */
  syntax: string;
}

export interface CommandLine {
  /** Either these … */
  args?: Bytes[] | null;
  db?: number;
  /** … or a line, quoted as for redis-cli. */
  line?: string | null;
}

export interface CommandOutcome {
  /** The logical database for the next command: SELECT changes it. */
  db: number;
  elapsed_us: number;
  /** Of a terminal: there is a stream to be read. */
  is_listening: boolean;
  /** Of a terminal: WATCH is in effect. */
  is_watching: boolean;
  reply: Reply;
  transaction: null | Transaction;
}

export interface Condition {
  /** What to do about it; empty: nothing has to be done. */
  advice: string;
  level: Level;
  name: ConditionWord;
  /** The condition as a sentence to show. */
  sentence: string;
}

/** The state of a database, or what it is doing, in a word. */
export const ConditionWord = ["failed", "full", "shards down", "degraded", "too few replicas", "link down", "deleting", "paused", "loading", "synchronising", "waiting for flash", "near full", "resizing", "active"] as const;
export type ConditionWord = (typeof ConditionWord)[number];

export interface Confirmation {
  /** The database's name, once more. */
  confirm: string;
}

/** A copy of a shard. */
export interface CopyInfo {
  /** A failover may make it the primary: it has every acknowledged write. */
  is_in_sync: boolean;
  /** The bytes that it has not received yet. */
  lag_bytes: number | null;
  node: string;
  /** The bytes of the shard's stream that it has; null: the shard has no replicas, or the node does not say it. */
  offset: number | null;
  /** primary or replica. */
  role: string;
  /** What its node says of it. */
  state: string;
}

export interface DatabaseChange {
  /** For how long back a database can be created with the dataset of any time: 7d, 12h; empty: the journal is not archived. */
  backup_journal_keep?: string | null;
  /** How many scheduled backups are kept. */
  backup_keep?: number | null;
  /** How often the node makes a backup: 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never. */
  backup_schedule?: string | null;
  /** Compression of values on flash. */
  compression?: null | Codec;
  /** All files on flash, with the journal and the checkpoints of persistence; 0: what they need. */
  flash_limit_bytes?: number | null;
  /** RAM and flash together. */
  memory_limit_bytes?: number | null;
  /** null removes the password. */
  password?: string | null;
  /** none, no, everysec or always, in a separate request. The reply comes when the change is in effect, or after some seconds. */
  persistence?: string | null;
  /** Which keys make room when RAM and flash are full. */
  policy?: null | Policy;
  /** The part of the memory limit that may be RAM. */
  ram_limit_bytes?: number | null;
  /** How long a restart should take at most, in seconds; 0: no target. */
  recovery_time_target_s?: number | null;
  /** HOST:PORT of the primary to follow, whose dataset replaces this one; empty: it becomes a primary. In a separate request. */
  replica_of?: string | null;
}

export interface DatabaseList {
  databases: Db[];
  /** Defined, and not served because they could not be opened. */
  failed: FailedDatabase[];
  room: RoomInfo;
}

export interface Db {
  /** What it is and does, the worst first; never empty. */
  conditions: Condition[];
  definition: DefinitionInfo;
  endpoints: EndpointInfo[];
  /** Why it has failed. */
  failure: string | null;
  /** The values on flash, and how much they may take. */
  flash: Filling;
  /** It was started with a configuration file, which CONFIG REWRITE can write. */
  has_file: boolean;
  is_default: boolean;
  name: string;
  /** Every metric of the catalog as it is now; null where nothing is known. */
  now: Record<string, number | null>;
  progress: null | Progress;
  ram: Filling;
  /** Of a database of the cluster. */
  shards: ShardInfo[] | null;
  state: StateName;
}

export interface DefinitionInfo {
  /** For how long back a database can be created with the dataset of any time: 7d, 12h; empty: the journal is not archived. */
  backup_journal_keep: string;
  /** How many scheduled backups are kept. */
  backup_keep: number;
  /** How often the node makes a backup: 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never. */
  backup_schedule: string;
  /** Addresses to listen on; empty: the node's. */
  bind: string[];
  /** Compression of values on flash. */
  compression: Codec;
  /** All files on flash, with the journal and the checkpoints of persistence; 0: what they need. */
  flash_limit_bytes: number;
  has_password: boolean;
  /** RAM and flash together. */
  memory_limit_bytes: number;
  /** Writes are refused while fewer copies of their shard are in sync, the primary among them. */
  min_in_sync: number;
  /** Whether the data survives restarts: none, or when it is put on the device: no, everysec, always. */
  persistence: string;
  /** Which keys make room when RAM and flash are full. */
  policy: Policy;
  /** TCP port. */
  port: number;
  /** The part of the memory limit that may be RAM. */
  ram_limit_bytes: number;
  /** How long a restart should take at most, in seconds; 0: no target. */
  recovery_time_target_s: number;
  /** HOST:PORT of the primary that the database follows; empty: it is a primary. A primary that wants a login is followed with /databases/{name}/replicate. */
  replica_of: string;
  /** Copies of each shard that a cluster keeps on other nodes beside the primary; 0 on a node outside of a cluster, where replica_of makes a replica. */
  replicas: number;
  /** When a write of a database with replicas is acknowledged: async, at once; sync, when every replica that may take over has it. */
  replication: string;
  /** Parts that a cluster divides the keys into; 1 on a node outside of a cluster. */
  shards: number;
  /** TCP port with TLS; the certificate is the node's. */
  tls_port: number;
  /** Unix socket. */
  unixsocket: string | null;
  /** The zones of the nodes where a cluster places shards; empty: any. */
  zones: string[];
}

export interface Deleted {
  cursor: string;
  /** A key that is gone already is not counted. */
  deleted: number;
  /** Keys of this slice that match. */
  matched: number;
  /** Some of the keys. */
  sample: Bytes[];
  /** Entries looked at, about. */
  scanned: number;
}

export interface Deletion {
  /** 0 to begin. */
  cursor: string;
  db?: number;
  /** Glob, as in SCAN MATCH; * is every key. */
  pattern: string;
  /** Nothing is deleted, only counted. */
  preview?: boolean;
  type?: string;
}

export interface Delivery {
  at_ms: number;
  message: string;
  ok: boolean;
}

export interface Directive {
  /** live, start (only in the file) or protected (if enable-protected-configs lets a client) */
  change: string;
  /** Whether it differs from the default. */
  changed: boolean;
  default: string;
  doc: string;
  /** Why it has no effect; null if it has one. */
  effect: string | null;
  group: string;
  name: string;
  secret: boolean;
  /** null: secret. */
  value: string | null;
}

/** A disk that the node uses. */
export interface DiskNow {
  /** Share of the last second in which the disk had something to do. null: the kernel does not count. */
  busy_percent: number | null;
  bytes: number;
  /** That the node may still take. */
  free_bytes: number;
  /** How long a read or write took on average in the last second. null: there was none. */
  latency_us: number | null;
  /** As in /dev; of a file system without a disk of this machine, its number. */
  name: string;
  read_bytes_per_second: number | null;
  /** flash, journal, state, backups. */
  uses: string[];
  written_bytes_per_second: number | null;
}

export interface Dumped {
  /** What DUMP gives. */
  dump: Bytes;
  key: Bytes;
  /** null: it does not expire. */
  ttl_ms: number | null;
}

export interface EndedInfo {
  /** Why the backup failed. null: it is made and verified. */
  error: string | null;
  path: string;
  scheduled: boolean;
  started_ms: number;
  took_ms: number;
}

export interface EndpointInfo {
  address: string;
  /** A line for a shell. */
  command: string;
  kind: string;
}

export interface ErrorBody {
  /** For programs: invalid, unauthenticated, forbidden, password (to be changed first), not_found, exists, busy, unsupported, no_room, too_large, rate_limited, failed, unreachable (another node of the cluster), timeout, loading, stopping. */
  code: string;
  /** Which fields of the request are wrong, and why. */
  fields: FieldError[];
  /** What to do; may be empty. */
  hint: string;
  /** For people, with the calculation if there is one. */
  message: string;
}

export interface Event {
  at_ms: number;
  /** The database that the event is about. Empty: it is about the node. */
  database: string;
  id: number;
  kind: string;
  /** A word that graphs show at this moment: resize, paused, restarted and the like; empty: they show none. */
  mark: string;
  message: string;
  severity: Severity;
  /** The user who has caused the event. Empty: no user has. */
  user: string;
}

/** What a flash device achieves under a load. */
export interface ExpectedInfo {
  /** The time that flash adds to a client's read, as the average of all reads, including those that RAM answers. */
  added_us: number | null;
  /** The processor cores that the reads from flash take. */
  cores: number;
  /** The time within which 99 % of the reads from flash are done. null: the device cannot serve so many reads. */
  flash_read_p99_us: number | null;
  /** The average time of a read from flash. null: the device cannot serve so many reads. */
  flash_read_us: number | null;
  /** How much of the device's write speed is used in the worst case: 1 is all of it. */
  flash_written_share: number;
  /** The rate of clients' reads at which the device is saturated. null: no read goes to flash. */
  reads_per_second_max: number | null;
}

export interface Exported {
  cursor: string;
  keys: Dumped[];
  /** Keys whose values are too large for the console. */
  left_out: Bytes[];
  scanned: number;
}

export interface FailedDatabase {
  name: string;
  why: string;
}

/** A change of a shard's primary that nobody has asked for. */
export interface Failover {
  /** Why the old primary was given up. */
  cause: string;
  /** That the new primary serves in. */
  epoch: number;
  from: string;
  /** When the cluster missed the old primary, named the new one, and heard it serve. null: not yet, or that is not known. */
  missed_ms: number;
  named_ms: number;
  served_ms: number | null;
  to: string;
}

/** What every reply that is not a success holds. */
export interface Failure {
  error: ErrorBody;
}

export interface FieldError {
  field: string;
  message: string;
}

/** How much of a limit is used. */
export interface Filling {
  /** warning from 85 % on, critical from 95 % on, where that matters: RAM in front of flash is full on purpose, and a database that evicts is never worse than warning. */
  level: Level;
  /** 0: no limit. */
  limit_bytes: number;
  /** null: no limit. */
  percent: number | null;
  used_bytes: number;
}

/** What a node that is gone for good takes with it. */
export interface ForgetPlan {
  /** The shards of which it has the primary. */
  lost: LostShard[];
  node: string;
  /** What the others would have then. */
  nodes: PlacedNode[];
}

export const Format = ["json", "slack"] as const;
export type Format = (typeof Format)[number];

export interface Import {
  db?: number;
  keys: Dumped[];
  replace?: boolean;
}

export interface Imported {
  failed: NotImported[];
  /** They exist already. */
  kept: number;
  restored: number;
}

export interface JoinToken {
  /** A line for a shell on the node that is to join. */
  command: string;
  expires_ms: number;
  token: string;
}

export interface JoinTokenRequest {
  /** The node that joins runs no member of etcd, and does not get the authority's key. */
  no_coordinator?: boolean;
}

export interface KeyChange {
  db?: number;
  key: Bytes;
  set?: null | Members;
  /** null: it does not expire any more. */
  ttl_ms?: number | null;
}

export interface KeyGroup {
  /** Estimated: `keys_on_flash` times `flash_bytes_each`. */
  flash_bytes: number;
  keys: number;
  keys_in_ram: number;
  keys_on_flash: number;
  name: string;
  ram_bytes: number;
}

export interface KeyInfo {
  /** In RAM; null while the value is on flash, which is not read for its size. */
  bytes: number | null;
  /** As OBJECT ENCODING says; empty while the value is on flash. */
  encoding: string;
  key: Bytes;
  /** ram or flash. */
  tier: string;
  /** null: it does not expire. */
  ttl_ms: number | null;
  type: string;
}

export interface KeyPage {
  cursor: string;
  keys: KeyInfo[];
  /** Entries looked at, about. */
  scanned: number;
}

export interface KeyView {
  bytes: number | null;
  encoding: string;
  key: Bytes;
  /** Bytes of a string, members of everything else. */
  length: number;
  /** Members that were looked at for this page, about. */
  looked_at: number;
  /** The offset of the next page; null after the last. */
  next: string | null;
  /** Where the value was before it was looked at. */
  tier: string;
  /** null: it does not expire. */
  ttl_ms: number | null;
  type: string;
  value: ValueView;
}

export interface LatencyEvent {
  /** When it was last noted. */
  at_ms: number;
  last_ms: number;
  name: string;
  /** The oldest first; at most 160. */
  samples: LatencySample[];
  /** Since the start, or since it was forgotten. */
  worst_ms: number;
}

export interface LatencyHistory {
  events: LatencyEvent[];
  /** What LATENCY DOCTOR says; empty for a viewer. */
  report: string;
  /** 0: nothing is noted. */
  threshold_ms: number;
}

export interface LatencySample {
  at_ms: number;
  /** The longest of that second. */
  took_ms: number;
}

export const Level = ["good", "info", "warning", "critical"] as const;
export type Level = (typeof Level)[number];

export interface ListedKey {
  bytes: number;
  key: Bytes;
  type: string;
  /** What OBJECT FREQ or OBJECT IDLETIME says: how often the key is used, or for how many seconds it was not used. */
  used: number;
}

export interface Login {
  /** For a program that logs in for a single command. The session ends after ten minutes without a request. The audit log records what the session changes, but neither its login nor its logout. A refused login is always recorded. */
  brief?: boolean;
  password: string;
  user: string;
}

export interface LostShard {
  database: string;
  /** What would be left of the shard: `nothing` (it begins empty), `older_copy` (a copy that lacks what was written since it was in sync), or `copy_in_sync`. */
  left: string;
  number: number;
  /** The node that would have the primary then. */
  to: string;
}

export interface MadeToken {
  expires_ms: number | null;
  id: string;
  name: string;
  role: Role;
  /** Shown only now. */
  token: string;
}

export interface Members {
  /** hash: [field, value]; set: member; zset: [member, score]; list: [index, value], where an index of its length appends; stream: [id, [[field, value]]], where * draws an id. */
  put?: unknown[];
  /** hash: field; set, zset: member; list: index; stream: id. */
  remove?: unknown[];
}

export interface MetricInfo {
  description: string;
  group: string;
  label: string;
  name: string;
  /** database or node */
  scope: string;
  unit: Unit;
}

/** A node that does not answer, so what is shown lacks its part. */
export interface MissingNode {
  node: string;
  why: string;
}

/** What it has cost the server to be watched with MONITOR. */
export interface MonitorInfo {
  bytes: number;
  commands: number;
  /** The processor cores that the server used in the second before MONITOR. null: the server does not report it. */
  cores_before: number | null;
  /** The processor cores that the server used during MONITOR. null: the server does not report it. */
  cores_meanwhile: number | null;
  /** MONITOR was ended early, because the server had to buffer output that was not read in time. */
  ended_early: boolean;
  seconds: number;
}

export interface MoveRequest {
  /** The node that it leaves. Without it, that of the shard's only replica. */
  from?: string | null;
  /** Such as orders.1. */
  shard: string;
  /** The node that gets the copy. */
  to: string;
}

export interface NewBackup {
  /** The version of the RDB format: 10 (Redis 7.0), 11 (7.2) or 12 (7.4). Missing: 12, the only one that has expiries of hash fields. */
  rdb_version?: number | null;
  /** A new directory below the node's backup-path. Missing: one with the database's name and the time. */
  to?: string | null;
}

export interface NewBenchmark {
  database: string;
  /** A fraction of the published size: "1/150", "0.01" or a number. */
  scale: string;
  scenario: string;
  /** Of the measured run; populating and the dry run come before it. */
  seconds?: number | null;
}

export interface NewDatabase {
  /** The moment whose dataset the database gets, in milliseconds since 1970: the newest backup before it, and the archived journal up to it. from may then be a directory of backups, such as a database's name. Missing: the moment of the backup. */
  at_ms?: number | null;
  /** For how long back a database can be created with the dataset of any time: 7d, 12h; empty: the journal is not archived. */
  backup_journal_keep?: string | null;
  /** How many scheduled backups are kept. Missing: 7. */
  backup_keep?: number | null;
  /** How often the node makes a backup: 30m, 6h, 1d, 1d at 03:00 (UTC); empty: never. */
  backup_schedule?: string | null;
  /** Addresses to listen on; empty: the node's. */
  bind?: string[] | null;
  /** Compression of values on flash. Missing: lz4. */
  compression?: null | Codec;
  /** All files on flash, with the journal and the checkpoints of persistence; 0: what they need. */
  flash_limit_bytes?: number | null;
  /** The backup to begin with: its directory below the node's backup-path. */
  from?: string | null;
  /** RAM and flash together. */
  memory_limit_bytes: number;
  /** Writes are refused while fewer copies of their shard are in sync, the primary among them. Missing: 1. */
  min_in_sync?: number | null;
  /** Small letters, digits and dashes, 1 to 40. */
  name: string;
  /** Password for clients. */
  password?: string | null;
  /** Whether the data survives restarts: none, or when it is put on the device: no, everysec, always. Missing: everysec with flash, otherwise none. */
  persistence?: string | null;
  /** Which keys make room when RAM and flash are full. Missing: noeviction. */
  policy?: null | Policy;
  /** TCP port. Missing: the next free one. */
  port?: number | null;
  /** The part of the memory limit that may be RAM. Missing: 30 % of the memory limit, or all of it on a node without flash. */
  ram_limit_bytes?: number | null;
  /** How long a restart should take at most, in seconds; 0: no target. Missing: 10. */
  recovery_time_target_s?: number | null;
  /** HOST:PORT of the primary that the database follows; empty: it is a primary. A primary that wants a login is followed with /databases/{name}/replicate. */
  replica_of?: string | null;
  /** Copies of each shard that a cluster keeps on other nodes beside the primary; 0 on a node outside of a cluster, where replica_of makes a replica. */
  replicas?: number | null;
  /** When a write of a database with replicas is acknowledged: async, at once; sync, when every replica that may take over has it. Missing: async. */
  replication?: string | null;
  /** Parts that a cluster divides the keys into; 1 on a node outside of a cluster. */
  shards?: number | null;
  /** TCP port with TLS; the certificate is the node's. */
  tls_port?: number | null;
  /** Unix socket. */
  unixsocket?: string | null;
  /** The zones of the nodes where a cluster places shards; empty: any. */
  zones?: string[] | null;
}

export interface NewKey {
  db?: number;
  key: Bytes;
  /** Missing or null: it does not expire. */
  ttl_ms?: number | null;
  /** string, list, set, hash, zset or stream */
  type: string;
  /** As GET shows it: string: Bytes; list, set: list of Bytes; hash: [field, value]; zset: [member, score]; stream: [id, [[field, value]]], where * draws an id. */
  value: unknown;
}

export interface NewPassword {
  new: string;
  old: string;
}

export interface NewRule {
  enabled?: boolean;
  /** The alert fires after the threshold was passed for this long without a break. */
  for_s?: number;
  /** The alert ends after the threshold was not passed for this long without a break. */
  keep_s?: number;
  /** The name of a metric in GET /api/v1/metrics-catalog. */
  metric: string;
  name: string;
  op: Op;
  /** `node`, `databases` (each of them) or `database:NAME`. */
  scope: string;
  severity: Severity;
  threshold: number;
}

export interface NewSilence {
  reason?: string;
  /** The rule whose alerts are silenced. Missing: every rule. */
  rule_id?: string | null;
  /** The scope in which they are silenced: `node` or `database:NAME`. Missing: every scope. */
  scope?: string | null;
  /** When the silence ends: at most 90 days from now. */
  until_ms: number;
}

export interface NewTerminal {
  /** The logical database that it begins in. */
  db: number;
}

export interface NewToken {
  /** Missing or null: never. */
  expires_ms?: number | null;
  name: string;
  role: Role;
}

export interface NewUser {
  /** Letters, digits and -_.@ */
  name: string;
  /** At least eight characters. */
  password: string;
  role: Role;
}

export interface NodeAlerts {
  /** As the node's own version says it. */
  alerts: All;
  node: string;
}

export interface NodeEvent {
  event: Event;
  node: string;
}

export interface NodeFiguresInfo {
  cores: number;
  cpu_system_us: number;
  cpu_user_us: number;
  open_files: number;
  resident_bytes: number;
  system_ram_bytes: number;
  system_ram_free_bytes: number;
  uptime_s: number;
}

export interface NodeInfo {
  console_tls: boolean;
  cores: number;
  /** The disks that hold flash, journals, the state and backups. */
  disks: DiskNow[];
  figures: NodeFiguresInfo;
  /** uring, threads or none. */
  flash_driver: string;
  flash_paths: string[];
  /** The node's metrics as they are now. */
  now: Record<string, number | null>;
  redis_version: string;
  room: RoomInfo;
  run_id: string;
  started_ms: number;
  version: string;
  workers: number;
}

export interface NodePlan {
  node_flash_left_bytes: number;
  /** What this node has not promised to a database yet. */
  node_ram_left_bytes: number;
  plan: PlanInfo;
}

export interface NotImported {
  key: Bytes;
  message: string;
}

export const Op = [">", "<"] as const;
export type Op = (typeof Op)[number];

export interface Operation {
  /** Who has aborted it. */
  aborted_by: string | null;
  /** Of a failover: between which nodes, and why. */
  about: string | null;
  /** Who has asked for it. Of what the cluster does by itself, the cluster. */
  by: string;
  ended_ms: number | null;
  /** Why it has failed, or what stays as it is after it was aborted. */
  error: string | null;
  failover: null | Failover;
  id: string;
  /** create, resize, delete, flush, pause, resume, forget, recover, failover; with steps: add replicas, switchover, drain, undrain, move, replace or restart. */
  kind: string;
  nodes: OperationNode[];
  started_ms: number;
  /** running, done or failed. It runs until each of its nodes has done its part, or until its last step is done; a node that does not run does its part when it is back. */
  state: string;
  /** In the order in which the cluster carries them out. */
  steps: OperationStep[];
  /** How many steps are done. */
  steps_done: number;
  /** The name of the database, node or shard that it is about. */
  target: string;
  /** What the next step waits for. */
  waits_for: string | null;
}

export interface OperationNode {
  is_done: boolean;
  is_live: boolean;
  name: string;
  /** What keeps it from its part. */
  trouble: string | null;
}

export interface OperationStep {
  /** The node that a copy leaves. */
  from: string | null;
  /** add, move, drop, switchover, resize or restart. */
  kind: string;
  /** The shard, such as orders.1. */
  shard: string | null;
  /** The node that gets a copy or the primary, or that starts anew. */
  to: string | null;
}

export const Phase = ["writing", "verifying"] as const;
export type Phase = (typeof Phase)[number];

export interface PlacedNode {
  flash_bytes: number;
  flash_placed_bytes: number;
  name: string;
  /** The copies of the database's shards that the node would have. */
  primaries: number;
  ram_bytes: number;
  ram_placed_bytes: number;
  replicas: number;
}

export interface PlacedShard {
  /** The primary's node first. */
  nodes: string[];
  number: number;
}

/** Where the shards of a database would be, and what the nodes would have. */
export interface PlacementInfo {
  copy_flash_bytes: number;
  /** What each copy of a shard takes. */
  copy_ram_bytes: number;
  nodes: PlacedNode[];
  port: number;
  shards: PlacedShard[];
}

/** The RAM and flash that some data need in FlintKV. */
export interface PlanInfo {
  /** The RAM that the same data need without flash. */
  all_in_ram_bytes: number;
  /** The price of the RAM that the same data need without flash. null: no prices were given. */
  all_in_ram_price: number | null;
  /** The same for other shares of values in RAM, the smallest share first. */
  choices: SizingInfo[];
  chosen: SizingInfo;
  monitor: null | MonitorInfo;
  sample: null | SampleInfo;
  /** Where the sample comes from, as text to show. */
  sources: string[];
  usage: null | UsageInfo;
  workload: WorkloadInfo;
}

/** What happens to a write when neither RAM nor flash has room: maxmemory-policy. A new database has noeviction if none is given. */
export const Policy = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"] as const;
export type Policy = (typeof Policy)[number];

export interface Primary {
  host: string;
  password?: string | null;
  port: number;
  /** Whether the primary's port speaks TLS. Missing: no. */
  tls?: boolean | null;
  /** The user on the primary. Missing: the default one. */
  username?: string | null;
}

export interface PrimaryInfo {
  /** How long the link has been down; null: it is up. */
  down_ms: number | null;
  error: string | null;
  /** Commands of the primary that have failed here. */
  failed_commands: number;
  host: string;
  is_up: boolean;
  port: number;
  /** The time since the primary last sent something, in milliseconds; null: it has sent nothing yet. */
  silent_ms: number | null;
  /** connect, connecting, handshake, sync or connected. */
  state: string;
  /** How much of the primary's dataset was received. */
  sync_bytes: number;
  /** The size of the dataset that is being received from the primary; 0: not known. */
  sync_total_bytes: number;
}

export interface Progress {
  done_bytes: number;
  total_bytes: number;
}

export interface RecoverRequest {
  database: string;
  /** Go on without the copies that do not answer: what only they have is lost. */
  lose_data?: boolean;
  /** The number of a shard. Without it, all shards that nobody can serve. */
  shard?: number | null;
}

export interface RecoveryCopy {
  /** The shard goes on with it. */
  is_taken: boolean;
  node: string;
  /** How much of the shard's stream it has. null: it does not answer. */
  received_bytes: number | null;
  /** The epoch of the primary whose stream the copy has last. A newer one counts more than a longer stream. null: the copy is empty, or does not answer. */
  stream_epoch: number | null;
}

/** How shards go on that nobody can serve. */
export interface RecoveryPlan {
  database: string;
  /** The shards that need no decision, and why. */
  left_out: string[];
  /** What may be lost, in sentences. */
  lost: string[];
  shards: RecoveryShard[];
}

export interface RecoveryShard {
  copies: RecoveryCopy[];
  /** That the new primary serves in. */
  epoch: number;
  number: number;
  /** The node whose copy becomes the primary. */
  to: string;
}

export interface ReplicaInfo {
  address: string;
  /** How many bytes of the stream the replica has not confirmed yet. */
  lag_bytes: number;
  /** The age of the oldest change that the replica has not confirmed yet, exact to a second. */
  lag_ms: number;
  /** How many bytes of the stream the replica has confirmed. */
  offset: number;
  /** The time since the replica last sent something, in milliseconds. */
  silent_ms: number;
  /** wait_bgsave, send_bulk, online or rdb_transmitted. */
  state: string;
  /** How much of the dataset was sent to the replica. */
  sync_bytes: number;
  /** The size of the dataset that is being sent to the replica; 0: none is being sent. */
  sync_total_bytes: number;
  version: string;
}

export interface Replication {
  /** How many of the newest bytes of the stream are kept. A replica whose link was lost needs no full synchronisation if it misses no more than these. */
  backlog_bytes: number;
  /** Whether a switchover is under way: no-failover, waiting-for-sync or failover-in-progress. */
  failover: string;
  /** The id of the stream of changes. Empty: no replica has asked for the stream yet. */
  id: string;
  /** The length of the stream so far, in bytes. */
  offset: number;
  primary: null | PrimaryInfo;
  replicas: ReplicaInfo[];
  /** primary or replica. */
  role: string;
}

/** A RESP3 reply: `{type, value}`. A map's value is a list of pairs. */
export type Reply = {
  type: "status";
  value: Bytes;
} | {
  type: "string";
  value: Bytes;
} | {
  type: "error";
  value: Bytes;
} | {
  type: "integer";
  value: number;
} | {
  type: "double";
  /** A string for what JSON has no number for: inf, -inf, nan. */
  value: unknown;
} | {
  type: "boolean";
  value: boolean;
} | {
  type: "null";
} | {
  type: "big";
  value: Bytes;
} | {
  type: "array";
  value: unknown[];
} | {
  type: "set";
  value: unknown[];
} | {
  type: "map";
  value: unknown[];
} | {
  type: "push";
  value: unknown[];
} | {
  type: "verbatim";
  value: Bytes;
};

export interface ReportRow {
  name: string;
  published: string;
  /** Empty: the value contains its unit. */
  unit: string;
  value: string;
}

export interface RestartRequest {
  /** Empty: all nodes that run. */
  nodes?: string[];
}

/** Each role includes the ones before it. */
export const Role = ["viewer", "operator", "admin"] as const;
export type Role = (typeof Role)[number];

/** What the databases may have together, and what they were given. */
export interface RoomInfo {
  by_database: Share[];
  flash_bytes: number;
  flash_taken_bytes: number;
  ram_bytes: number;
  ram_taken_bytes: number;
}

export interface Rule {
  enabled: boolean;
  for_s: number;
  id: string;
  keep_s: number;
  metric: string;
  name: string;
  op: Op;
  scope: string;
  severity: Severity;
  threshold: number;
}

export interface RuleState {
  acknowledged: null | Acknowledged;
  rule_id: string;
  /** `node` or `database:NAME`. */
  scope: string;
  silenced_until_ms: number | null;
  since_ms: number;
  state: Stand;
  value: number | null;
}

export interface RunningInfo {
  /** How much is done of `total`: keys in the phase `writing`, bytes in the phase `verifying`. */
  done: number;
  path: string;
  phase: Phase;
  scheduled: boolean;
  started_ms: number;
  total: number;
}

/** What a sample of the keys in a server or a dump has shown. */
export interface SampleInfo {
  /** The compressed size on flash divided by the original size: 1 if the data do not compress. */
  compression: number;
  /** The number of sampled keys whose values were too large to fetch. Their sizes come from the server's MEMORY USAGE. */
  estimated: number;
  /** The average size of a key's name. */
  key_bytes: number;
  /** The number of all keys, including those that were not sampled. */
  keys: number;
  largest_bytes: number;
  /** The number of sampled keys. */
  sampled: number;
  /** The average size of a value in FlintKV's RAM. */
  value_bytes: number;
  /** The version of the server that has the keys, or that has written the dump. */
  version: string;
}

export interface Scenario {
  keys: number;
  machine: string;
  memory_bytes: number;
  name: string;
  published_by: string;
  ram_bytes: number;
  raw_bytes: number;
  title: string;
}

export interface Series {
  from_ms: number;
  /** By metric, one value for each time; null is a gap. */
  series: Record<string, (number | null)[]>;
  /** The distance between two times. */
  step_ms: number;
  times_ms: number[];
  to_ms: number;
}

export interface SessionInfo {
  /** The value for the header X-CSRF-Token. Empty if the request was made with a token, which needs no such header. */
  csrf: string;
  /** Somebody else has chosen the user's password. Until the user changes it, every other route fails with the code `password`. */
  must_change_password: boolean;
  /** The user who has chosen the password; empty: the node, at its first start. */
  password_by: string;
  role: Role;
  user: string;
}

export const Severity = ["info", "warning", "critical"] as const;
export type Severity = (typeof Severity)[number];

/** A shard of a database, and its figures; null: the shard does not answer. */
export interface ShardFigures {
  /** Where it is, the primary first. */
  copies: CopyInfo[];
  epoch: number;
  is_served: boolean;
  keys: number | null;
  node: string;
  number: number;
  ops_per_s: number | null;
  ram_hit_percent: number | null;
  ram_limit_bytes: number | null;
  /** Why it does not answer. */
  trouble: string | null;
  used_flash_bytes: number | null;
  used_ram_bytes: number | null;
  values_in_ram: number | null;
  values_in_ram_percent: number | null;
}

/** A shard of a database, and the node that serves it. */
export interface ShardInfo {
  /** What an operator has to do, because no copy has every acknowledged write and so none becomes the primary by itself. null: nothing. */
  advice: string | null;
  /** How many that should be. */
  copies: number;
  epoch: number;
  /** How many copies are in sync, on nodes that run. */
  in_sync: number;
  /** The node has said that it serves the shard, and it runs. */
  is_served: boolean;
  node: string;
  number: number;
}

export interface Share {
  flash_bytes: number;
  name: string;
  ram_bytes: number;
}

/** Until `until_ms`, no messages are sent about the alerts of some rules and scopes. */
export interface Silence {
  by: string;
  id: string;
  reason: string;
  /** The rule whose alerts are silenced; null: every rule. */
  rule_id: string | null;
  /** The scope in which they are silenced: `node` or `database:NAME`; null: every scope. */
  scope: string | null;
  until_ms: number;
}

/** The RAM and flash that the data need if a certain share of the values is in RAM. */
export interface SizingInfo {
  /** How many databases the keys must be divided among, because the flash of one database has a maximum size. */
  databases: number;
  /** The settings, as lines of flintkv.conf. */
  directives: string[];
  expected: null | ExpectedInfo;
  /** The size of all files on flash. With a journal, it includes copies of the values in RAM, the journal and two checkpoints. */
  files_bytes: number;
  /** The flash for values, including the free room that garbage collection needs. */
  flash_bytes: number;
  /** The flash that values take, without free room. */
  flash_live_bytes: number;
  flash_reads_per_second: number;
  /** The number of values that have a copy on flash: all that are not in RAM, and some that are. */
  flash_values: number;
  /** Share of the reads that RAM answers, 0 to 1. */
  hit_ratio: number;
  /** The hit ratio if most reads go to few keys. Same as `hit_ratio` unless the skew is guessed. */
  hit_ratio_high: number;
  /** The hit ratio if all keys are used alike. Same as `hit_ratio` unless the skew is guessed. */
  hit_ratio_low: number;
  /** The RAM that the values in RAM and their keys take. */
  hot_bytes: number;
  /** The number of values in RAM. */
  hot_values: number;
  /** The RAM of the index of keys. */
  index_bytes: number;
  /** More values are in RAM than were used during the measurement, so the hit ratio is extrapolated. */
  is_beyond_measured: boolean;
  memory_limit_bytes: number;
  /** The RAM of the process itself, without data. */
  own_bytes: number;
  /** The price of the RAM and the flash. null: no prices were given. */
  price: number | null;
  ram_limit_bytes: number;
  /** Share of the values in RAM, 0 to 1. */
  ram_share: number;
}

export interface SlowCommand {
  args: Bytes[];
  at_ms: number;
  client: string;
  client_name: string;
  duration_us: number;
  id: number;
}

export const Space = ["channel", "pattern", "shard"] as const;
export type Space = (typeof Space)[number];

export const Stage = ["running", "done", "failed", "cancelled"] as const;
export type Stage = (typeof Stage)[number];

export const Stand = ["ok", "pending", "firing", "no_data"] as const;
export type Stand = (typeof Stand)[number];

export const StateName = ["loading", "failed", "active", "paused", "resizing", "deleting"] as const;
export type StateName = (typeof StateName)[number];

export interface StreamPage {
  /** Why the database ended the stream; may be empty. */
  ended: string;
  is_open: boolean;
  /** The number of the newest row: the `after` of the next request. */
  last: number;
  /** How many rows after `after` were dropped before this request, because only the newest rows are kept. */
  left_out: number;
  monitors: boolean;
  rows: StreamRow[];
  subscriptions: Subscription[];
}

export interface StreamRow {
  at_ms: number;
  channel: null | Bytes;
  /** One more than that of the row before. */
  number: number;
  pattern: null | Bytes;
  /** At most the first 4 KiB. */
  payload: Bytes;
  payload_bytes: number;
}

export interface Subscription {
  name: Bytes;
  space: Space;
}

export interface SurveyInfo {
  ended_ms: number | null;
  /** Why it failed. */
  failure: string;
  /** What to do about it; may be empty. */
  hint: string;
  monitor: null | MonitorInfo;
  /** The progress of the stage, 0 to 1. */
  progress: number;
  reads_per_second: number;
  sample: null | SampleInfo;
  /** Host and port. */
  server: string;
  stage: SurveyStage;
  started_ms: number;
  state: SurveyState;
  usage: null | UsageInfo;
  writes_per_second: number;
}

export interface SurveyOrder {
  /** For how long the server's commands are watched by MONITOR, at most 300. Missing or 0: not at all. */
  monitor_seconds?: number;
  /** Used for this measurement only, and kept nowhere. */
  password?: string | null;
  /** redis://HOST[:PORT][/DB], or rediss:// with TLS and a certificate that this machine trusts. Without a user or password. */
  url: string;
  user?: string | null;
}

export const SurveyStage = ["connecting", "watching", "looking"] as const;
export type SurveyStage = (typeof SurveyStage)[number];

export const SurveyState = ["running", "done", "stopped", "failed"] as const;
export type SurveyState = (typeof SurveyState)[number];

export interface Switchover {
  /** The time that the replica has to catch up, in milliseconds. Missing: 10,000. */
  timeout_ms?: number | null;
  /** HOST:PORT of the replica that becomes the primary. Missing: the replica that has received most of the stream. */
  to?: string | null;
}

export interface SwitchoverRequest {
  database: string;
  /** The number of a shard. Without it, all shards. */
  shard?: number | null;
  /** The node of the next primary. Without it, the copy that is in sync and whose node has the fewest primaries. */
  to?: string | null;
}

export interface TerminalInfo {
  id: string;
}

export interface TerminalLine {
  /** Either these … */
  args?: Bytes[] | null;
  /** … or a line, quoted as for redis-cli. */
  line?: string | null;
}

export interface ThatBackup {
  /** Its directory below the node's backup-path. */
  path: string;
}

export interface TokenInfo {
  created_by: string;
  created_ms: number;
  /** When the token ends; null: never. */
  expires_ms: number | null;
  id: string;
  name: string;
  role: Role;
}

export interface Transaction {
  /** A command was refused, so EXEC will refuse all of them. */
  is_broken: boolean;
  queued: number;
}

export interface TtlBand {
  keys: number;
  name: string;
}

export const Unit = ["ops/s", "us", "ratio", "factor", "state", "bytes", "bytes/s", "count", "percent"] as const;
export type Unit = (typeof Unit)[number];

/** How keys were used while the server's commands were watched. */
export interface UsageInfo {
  changes: number;
  /** The number of different keys that were used. */
  keys: number;
  reads: number;
}

export interface UserChange {
  password?: string | null;
  role?: null | Role;
}

export interface UserInfo {
  created_ms: number;
  /** In a cluster: at this node, since it has started. */
  last_login_ms: number | null;
  /** Somebody else has chosen the user's password. Until the user changes it, every other request is refused. */
  must_change_password: boolean;
  name: string;
  /** The user who has chosen the password; empty: the node, at its first start. */
  password_by: string;
  role: Role;
}

/** By type: string: Bytes; list, set: list of Bytes; hash: [field, value]; zset: [member, score]; stream: [id, [[field, value]]]. A search in a list: [index, element]. */
export type ValueView = Bytes | Bytes[] | [string | {
  base64: string;
}, string | {
  base64: string;
}][] | [number, string | {
  base64: string;
}][] | [string | {
  base64: string;
}, number | string][] | [string, [string | {
  base64: string;
}, string | {
  base64: string;
}][]][];

export interface WantedWebhook {
  enabled: boolean;
  /** Missing: json. */
  format?: Format;
  /** The key that signs messages, 1 to 256 bytes. Missing: the present key stays; null: messages are not signed. */
  secret?: string | null;
  url: string;
}

export interface Webhook {
  enabled: boolean;
  format: Format;
  is_signed: boolean;
  last: null | Delivery;
  url: string;
}

/** The data to be stored, and how they are used. */
export interface WorkloadInfo {
  compression: number;
  /** Measured pairs: a number of values in RAM, and the share of the reads that these values answer. For more values than in the last pair, `skew` is used. null: the use of keys was not measured. */
  hit_ratio_by_values: [number, number][] | null;
  /** Nothing is known about how keys are used, so `skew` is a typical value, and the hit ratios are a range. */
  is_skew_guessed: boolean;
  key_bytes: number;
  keys: number;
  reads_per_second: number;
  /** How unevenly keys are used, as the exponent of Zipf's law; 0: all keys alike. If the use of keys was measured, the exponent that fits best. */
  skew: number;
  value_bytes: number;
  workers: number;
  writes_per_second: number;
}
