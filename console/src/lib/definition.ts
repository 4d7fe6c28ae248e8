// Owns the form of a database: from the text of its fields to the API's format, and what would be left of the machine. Pure.
import { parseBytes, parseBytesOf } from "./format";
import type { Codec, CreateDb, Policy, Room } from "./types";

export type Replication = "async" | "sync";

/** What an acknowledged write means, and what the loss of a node takes with it. */
export function safety(replicas: string, replication: Replication, min_in_sync: string): string {
  const count = Number(replicas);
  if (!(count > 0)) return "Each shard has one copy. While its node is away its keys answer CLUSTERDOWN, and they are lost with the node's disks.";
  const copies = count + 1;
  if (replication === "async") return `Each shard has ${copies} copies, and a write is acknowledged at once. If a node is lost, another copy takes over; it may lack the newest writes.`;
  const least = Number(min_in_sync);
  const always = "A write is acknowledged when every copy that is in sync has it.";
  if (least >= copies) return `Each shard has ${copies} copies. ${always} All must be in sync: no acknowledged write is lost, and while one node is away every write is refused (NOREPLICAS).`;
  if (least > 1) return `Each shard has ${copies} copies. ${always} At least ${least} must be in sync, otherwise writes are refused (NOREPLICAS): no acknowledged write is lost with up to ${least - 1} of their nodes at once.`;
  return `Each shard has ${copies} copies. ${always} No acknowledged write is lost with one node. While no replica is in sync, the primary alone takes writes: they are lost if it is lost then.`;
}

export interface Form {
  name: string;
  memory: string;
  ram: string;
  flash: string;
  policy: Policy;
  compression: Codec;
  port: string;
  password: string;
  tls_port: string;
  unixsocket: string;
  bind: string;
  shards: string;
  replicas: string;
  replication: Replication;
  min_in_sync: string;
  /** Empty: the node's default. */
  persistence: string;
  recovery: string;
  backup_schedule: string;
  backup_journal_keep: string;
  backup_keep: string;
  from: string;
  /** A moment as a field of dates has it, in the browser's time zone. */
  at: string;
  zones: string;
}

export const EMPTY: Form = {
  name: "", memory: "1 gb", ram: "30 %", flash: "", policy: "noeviction", compression: "lz4", port: "", password: "",
  tls_port: "", unixsocket: "", bind: "", shards: "1", replicas: "0", replication: "async", min_in_sync: "1", persistence: "", recovery: "", backup_schedule: "", backup_keep: "", backup_journal_keep: "", from: "", at: "", zones: "",
};

export type Wrong = Record<string, string>;

function whole(text: string, field: string, wrong: Wrong, most = 999_999_999): number | undefined {
  if (text.trim() === "") return undefined;
  if (/^\s*\d{1,9}\s*$/.test(text) && Number(text) <= most) return Number(text);
  wrong[field] = /^\s*\d+\s*$/.test(text) ? `At most ${most}.` : "A whole number.";
  return undefined;
}

const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** The most shards of a database of a cluster. */
export const SHARDS_MAX = 1024;

/** The body for the API, and the errors found before the API is asked. A member of a cluster creates a database of the cluster. */
export function read(form: Form, is_member = false): { body: CreateDb; wrong: Wrong } {
  const wrong: Wrong = {};
  const name = form.name.trim();
  if (name === "") wrong["name"] = "A name is needed.";
  else if (!/^[a-z0-9][a-z0-9-]{0,39}$/.test(name)) {
    wrong["name"] = "Small letters, digits and hyphens, beginning with a letter or digit, at most 40.";
  }
  const memory = parseBytes(form.memory);
  if (memory === null) wrong["memory_limit_bytes"] = "A size such as 512 mb or 10 gb.";
  const ram = memory === null ? null : parseBytesOf(form.ram, memory);
  if (memory !== null && ram === null) wrong["ram_limit_bytes"] = "A size such as 256 mb, or a share such as 30 %.";
  const body: CreateDb = {
    name,
    memory_limit_bytes: memory ?? 0,
    ram_limit_bytes: ram ?? 0,
    policy: form.policy,
    compression: form.compression,
  };
  if (form.flash.trim()) {
    const flash = parseBytes(form.flash);
    if (flash === null) wrong["flash_limit_bytes"] = "A size such as 20 gb, or empty.";
    else body.flash_limit_bytes = flash;
  }
  const port = whole(form.port, "port", wrong, 65535);
  const tls_port = whole(form.tls_port, "tls_port", wrong, 65535);
  const shards = whole(form.shards, "shards", wrong, is_member ? SHARDS_MAX : undefined);
  if (is_member && shards === 0) wrong["shards"] = "At least 1.";
  // The API takes it, and the database would begin empty.
  if (is_member && form.from) wrong["from"] = "A database of the cluster cannot begin with a backup yet.";
  const replicas = whole(form.replicas, "replicas", wrong);
  const min_in_sync = whole(form.min_in_sync, "min_in_sync", wrong);
  const keep = whole(form.backup_keep, "backup_keep", wrong);
  const recovery = whole(form.recovery, "recovery_time_target_s", wrong);
  if (port !== undefined) body.port = port;
  if (tls_port !== undefined) body.tls_port = tls_port;
  if (form.unixsocket.trim()) body.unixsocket = form.unixsocket.trim();
  if (words(form.bind).length) body.bind = words(form.bind);
  if (form.password) body.password = form.password;
  if (shards !== undefined && shards !== 1) body.shards = shards;
  if (replicas) {
    body.replicas = replicas;
    // Off a cluster the API refuses replicas, and says so.
    if (is_member) {
      body.replication = form.replication;
      if (form.replication === "sync" && min_in_sync !== undefined) body.min_in_sync = min_in_sync;
    }
  }
  if (form.persistence) body.persistence = form.persistence;
  if (recovery !== undefined) body.recovery_time_target_s = recovery;
  if (form.backup_schedule.trim()) body.backup_schedule = form.backup_schedule.trim();
  if (form.backup_journal_keep.trim()) body.backup_journal_keep = form.backup_journal_keep.trim();
  if (keep !== undefined) body.backup_keep = keep;
  if (form.from) body.from = form.from;
  if (form.from && form.at) {
    const at = Date.parse(form.at);
    if (Number.isNaN(at)) wrong["at_ms"] = "A date and a time.";
    else body.at_ms = at;
  }
  if (words(form.zones).length) body.zones = words(form.zones);
  return { body, wrong };
}

export interface Left {
  ram_bytes: number;
  flash_bytes: number;
}

export interface Limits {
  memory: number;
  ram: number;
  /** 0: what follows from the others. */
  flash?: number;
  persistence?: string;
}

const KEPT_MIN = 512 * 1024 ** 2;
const JOURNAL_MIN = 192 * 1024 ** 2;
const USUAL_LIMIT_MIN = 1024 ** 3;
/** What one database can address on flash. */
const LOG_MAX = 2 * 1024 ** 4;

/**
 * What all files of a database may take on flash, as the directive flash-limit says. If the dataset survives restarts, values in RAM have a
 * copy on flash too, and there are the journal and two checkpoints.
 */
export function filesLimit(limits: Limits): number {
  const { log, kept } = filesParts(limits);
  return log > 0 && limits.flash ? limits.flash : log + kept;
}

/** The parts of that, if no limit is given: the values, and the journal with two checkpoints. */
export function filesParts({ memory, ram, persistence = "none" }: Limits): { log: number; kept: number } {
  const values = Math.max(0, memory - ram);
  if (values === 0 || persistence === "none") return { log: values, kept: 0 };
  const journal = Math.min(Math.floor(memory / 8), Math.max(JOURNAL_MIN, Math.floor(memory / 50)));
  const kept = Math.max(KEPT_MIN, 2 * ram + journal);
  const usual = Math.max(USUAL_LIMIT_MIN, memory + Math.floor(memory / 2));
  const most = Math.min(LOG_MAX, memory + Math.floor(memory / 10) + ram);
  return { log: Math.max(values, Math.min(usual - kept, most)), kept };
}

/** What is left of the machine if a database gets these limits. `before`: the limits that it has already. */
export function left(room: Omit<Room, "by_database">, now: Limits, before: Limits = { memory: 0, ram: 0 }): Left {
  return {
    ram_bytes: room.ram_bytes - room.ram_taken_bytes + before.ram - now.ram,
    flash_bytes: room.flash_bytes - room.flash_taken_bytes + filesLimit(before) - filesLimit(now),
  };
}
