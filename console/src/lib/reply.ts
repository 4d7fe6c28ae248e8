// Owns the API's typed replies as rows to draw: depth, mark, text. Pure; never makes markup.
import { shown } from "./binary";
import type { Bytes, Reply } from "./types";

export interface ReplyRow {
  depth: number;
  /** "1)", "a key", or empty for the outermost row. */
  mark: string;
  kind: "status" | "string" | "error" | "number" | "nothing" | "truth" | "head";
  text: string;
}

export const REPLY_ROWS_MAX = 2000;

const isReply = (value: unknown): value is Reply => typeof value === "object" && value !== null && "type" in value;

function asBytes(value: unknown): Bytes {
  if (typeof value === "string") return value;
  if (typeof value === "object" && value !== null && "base64" in value) return value as Bytes;
  return String(value);
}

/** At most `most` rows of a reply. `more`: there are further rows. */
export function replyRows(reply: Reply, most = REPLY_ROWS_MAX): { rows: ReplyRow[]; more: boolean } {
  const rows: ReplyRow[] = [];
  let more = false;
  const add = (row: ReplyRow): void => {
    if (rows.length < most) rows.push(row);
    else more = true;
  };
  const walk = (one: Reply, depth: number, mark: string): void => {
    if (more) return;
    switch (one.type) {
      case "status":
        return add({ depth, mark, kind: "status", text: shown(asBytes(one.value)) });
      case "error":
        return add({ depth, mark, kind: "error", text: shown(asBytes(one.value)) });
      case "integer":
      case "double":
      case "big":
        return add({ depth, mark, kind: "number", text: String(one.value) });
      case "boolean":
        return add({ depth, mark, kind: "truth", text: one.value ? "true" : "false" });
      case "null":
        return add({ depth, mark, kind: "nothing", text: "nil" });
      case "array":
      case "set":
      case "push": {
        const items = Array.isArray(one.value) ? (one.value as Reply[]) : [];
        add({ depth, mark, kind: "head", text: items.length === 0 ? `empty ${one.type}` : `${one.type} of ${items.length}` });
        items.forEach((item, index) => walk(item, depth + 1, one.type === "set" ? "~" : `${index + 1})`));
        return;
      }
      case "map": {
        const pairs = Array.isArray(one.value) ? (one.value as [Reply, Reply][]) : [];
        add({ depth, mark, kind: "head", text: pairs.length === 0 ? "empty map" : `map of ${pairs.length}` });
        for (const [key, value] of pairs) walk(value, depth + 1, isReply(key) ? inline(key) : shown(asBytes(key)));
        return;
      }
      default: {
        // Strings and verbatim strings; long texts such as INFO keep their lines.
        const value = asBytes(one.value);
        const text = typeof value === "string" && value.includes("\n") ? value.split(/\r?\n/).map((part) => shown(part)).join("\n") : shown(value);
        return add({ depth, mark, kind: "string", text });
      }
    }
  };
  walk(reply, 0, "");
  return { rows, more };
}

/** A reply on one line, for keys of maps. */
export function inline(reply: Reply): string {
  if (reply.type === "null") return "nil";
  if (Array.isArray(reply.value)) return `[${reply.value.map((one) => (isReply(one) ? inline(one) : "…")).join(", ")}]`;
  return shown(asBytes(reply.value), 200);
}
