// Values of keys: their members as rows of one shape, and the Redis commands that change a member. Pure.
// Changes of members are ordinary commands, so that the rights, the keyspace events and the atomicity are the database's.
import { shown } from "./binary";
import type { Bytes, KeyView, StreamEntry } from "./types";

export interface Member {
  /** What names the member: index, field, member, stream ID. */
  name: Bytes;
  /** What it holds; null where the name is all there is. */
  value: Bytes | null;
}

export const HEADS: Record<string, [string, string]> = {
  hash: ["Field", "Value"],
  list: ["Index", "Element"],
  set: ["Member", ""],
  zset: ["Member", "Score"],
  stream: ["Entry", "Fields"],
};

export function members(view: KeyView, offset = 0): Member[] {
  if (!Array.isArray(view.value)) return [];
  switch (view.type) {
    case "list":
      return (view.value as Bytes[]).map((value, index) => ({ name: String(offset + index), value }));
    case "set":
      return (view.value as Bytes[]).map((name) => ({ name, value: null }));
    case "stream":
      return (view.value as StreamEntry[]).map(([name, fields]) => ({
        name,
        value: fields.map(([field, value]) => `${shown(field)}: ${shown(value)}`).join("\n"),
      }));
    default:
      return (view.value as [Bytes, Bytes | number][]).map(([name, value]) => ({
        name,
        value: typeof value === "number" ? String(value) : value,
      }));
  }
}

/** The command that gives a member (a new one if `old` is null) another value; null where the type has no such thing. */
export function putMember(type: string, key: Bytes, old: Member | null, name: string, value: string): Bytes[] | null {
  const target: Bytes = old ? old.name : name;
  switch (type) {
    case "hash":
      return ["HSET", key, target, value];
    case "list":
      return old ? ["LSET", key, target, value] : ["RPUSH", key, value];
    case "set":
      return ["SADD", key, name];
    case "zset":
      return ["ZADD", key, value, target];
    case "stream":
      return ["XADD", key, "*", name, value];
    default:
      return null;
  }
}

/** The command that takes a member away; an element of a list has none that cannot hit another one. */
export function dropMember(type: string, key: Bytes, member: Member): Bytes[] | null {
  switch (type) {
    case "hash":
      return ["HDEL", key, member.name];
    case "set":
      return ["SREM", key, member.name];
    case "zset":
      return ["ZREM", key, member.name];
    case "stream":
      return ["XDEL", key, member.name];
    default:
      return null;
  }
}

/** The words of the form that adds one: what stands in the first and the second field, empty where there is none. */
export function addForm(type: string): [string, string] {
  switch (type) {
    case "list":
      return ["", "Element"];
    case "set":
      return ["Member", ""];
    case "stream":
      return ["Field", "Value"];
    default:
      return HEADS[type] ?? ["", ""];
  }
}

/** "90", "5 min", "2 h", "1 d": a time to live in ms; "" is none; undefined is not a time. */
export function parseTtl(text: string): number | null | undefined {
  if (text.trim() === "") return null;
  const found = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h|d)?\s*$/i.exec(text);
  if (!found) return undefined;
  const unit = { ms: 1, s: 1000, sec: 1000, min: 60_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[(found[2] ?? "s").toLowerCase()]!;
  const ms = Math.round(Number(found[1]) * unit);
  return ms > 0 && Number.isSafeInteger(ms) ? ms : undefined;
}
