// Owns the forms in which a value is easier to read: JSON and MessagePack, indented. Pure; never makes markup.
import { isBinary, rawOf, shown } from "./binary";
import { prettyMsgpack } from "./msgpack";
import type { Bytes } from "./types";

export interface Pretty {
  form: "JSON" | "MessagePack";
  text: string;
}

const JSON_CHARACTERS_MAX = 100_000;

/** A JSON object or list, or a MessagePack map or array; null if the value is neither. */
export function pretty(value: Bytes): Pretty | null {
  const text = isBinary(value) ? prettyMsgpack(rawOf(value)) : prettyJson(value);
  return text === null ? null : { form: isBinary(value) ? "MessagePack" : "JSON", text };
}

/** Only the white space changes: a number that JavaScript cannot hold stays as it is. */
function prettyJson(value: string): string | null {
  const text = value.trim();
  if (!/^[[{]/.test(text) || text.length > JSON_CHARACTERS_MAX) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  const line = (by: number): string => `\n${"  ".repeat((depth += by))}`;
  // Strings, empty collections, signs, and everything else up to the next of them.
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[[{]\s*[\]}]|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  const indented = parts.map((part) => {
    if (part === "{" || part === "[") return part + line(1);
    if (part === "}" || part === "]") return line(-1) + part;
    if (part === ",") return part + line(0);
    if (part === ":") return ": ";
    return /^[[{]/.test(part) ? part[0]! + part.at(-1)! : part;
  });
  return indented.join("").split("\n").map((one) => shown(one)).join("\n");
}
