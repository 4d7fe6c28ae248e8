// Owns the members of values as rows of one shape, and the API's format for changing them. Pure.
import { shown } from "./binary";
import type { Bytes, KeyView, StreamEntry } from "./types";

export interface Member {
  /** The member's name: index, field, member or stream ID. */
  name: Bytes;
  /** The member's value; null if a member has only a name. */
  value: Bytes | null;
}

export const HEADS: Record<string, [string, string]> = {
  hash: ["Field", "Value"],
  list: ["Index", "Element"],
  set: ["Member", ""],
  zset: ["Member", "Score"],
  stream: ["Entry", "Fields"],
};

/** What can be searched in a value, for the field that asks for it. */
export const SOUGHT: Record<string, string> = {
  hash: "a field", list: "an element", set: "a member", zset: "a member", stream: "a field or value",
};

/** What a search looks for: a word without a sign of a pattern is looked for anywhere. */
export const globOf = (text: string): string | null => (text === "" ? null : /[*?[\]\\]/.test(text) ? text : `*${text}*`);

export function members(view: KeyView, offset = 0): Member[] {
  if (!Array.isArray(view.value)) return [];
  switch (view.type) {
    case "list":
      // A search tells the indexes of what it found.
      return (view.value as (Bytes | [number, Bytes])[]).map((one, index) => (Array.isArray(one) ? { name: String(one[0]), value: one[1] } : { name: String(offset + index), value: one }));
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

/** A score in the API's format: a number, or inf and -inf as words. */
const score = (text: string): number | string => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text.trim());

/** The argument of `set.put` that changes a member, or adds one (`old` is null); undefined if the type has no members. */
export function putMember(type: string, old: Member | null, name: string, value: string, length: number): unknown {
  const target: Bytes = old ? old.name : name;
  switch (type) {
    case "hash":
      return [target, value];
    case "list":
      return [old ? Number(old.name) : length, value];
    case "set":
      return name;
    case "zset":
      return [target, score(value)];
    case "stream":
      return ["*", [[name, value]]];
    default:
      return undefined;
  }
}

/** The argument of `set.remove` that removes a member. */
export function dropMember(type: string, member: Member): Bytes | number {
  return type === "list" ? Number(member.name) : member.name;
}

/** The value of a new key that has one member, or is a string. */
export function newValue(type: string, name: string, value: string): unknown {
  const member = putMember(type, null, name, value, 0);
  if (type === "list") return [value];
  return type === "string" ? value : [member];
}

/** The labels of the two fields of the form that adds a member; empty if there is no such field. */
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
