// Owns text that may be binary, in the API's format: shown with escapes, and read back from escapes. Never makes HTML.
import type { Bytes } from "./types";

export function fromBase64(text: string): Uint8Array {
  const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(raw, (c) => c.charCodeAt(0));
}

export function toBase64(raw: Uint8Array): string {
  let text = "";
  for (const byte of raw) text += String.fromCharCode(byte);
  return btoa(text);
}

export function toBase64Url(raw: Uint8Array): string {
  return toBase64(raw).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function isBinary(value: Bytes): value is { base64: string } {
  return typeof value !== "string";
}

export function rawOf(value: Bytes): Uint8Array {
  return isBinary(value) ? fromBase64(value.base64) : new TextEncoder().encode(value);
}

export function lengthOf(value: Bytes): number {
  return rawOf(value).length;
}

/** For people: UTF-8 unchanged, control characters and bytes that are no UTF-8 as \xNN, at most `limit` characters. */
export function shown(value: Bytes, limit = Infinity): string {
  const text = isBinary(value) ? escapeRaw(fromBase64(value.base64), limit) : escapeText(value, limit);
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

const SHORT: Record<number, string> = { 9: "\\t", 10: "\\n", 13: "\\r" };

/** The text in it as text, so that a name with one byte that is no UTF-8 is shown like the others. */
function escapeRaw(raw: Uint8Array, limit: number): string {
  let text = "";
  for (let at = 0; at < raw.length && text.length <= limit; ) {
    const length = raw[at]! < 0x80 ? 1 : raw[at]! < 0xe0 ? 2 : raw[at]! < 0xf0 ? 3 : 4;
    try {
      text += escapeText(STRICT.decode(raw.subarray(at, at + length)), limit);
      at += length;
    } catch {
      text += `\\x${raw[at]!.toString(16).padStart(2, "0")}`;
      at += 1;
    }
  }
  return text;
}

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function escapeText(value: string, limit: number): string {
  const part = value.length > limit ? value.slice(0, limit + 1) : value;
  // Control characters, and characters that reverse the direction of text: these make different values look the same.
  return part.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => {
    const code = c.charCodeAt(0);
    return SHORT[code] ?? (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`);
  });
}

/** 16 bytes a line: offset, hex, characters. */
export function hexDump(raw: Uint8Array, limit = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(raw.length, limit); at += 16) {
    const row = [...raw.subarray(at, Math.min(at + 16, limit))];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** A key in a query of the API: `key=` for UTF-8, `key64=` for the rest. */
export function keyQuery(key: Bytes): Record<string, string> {
  return isBinary(key) ? { key64: toBase64Url(fromBase64(key.base64)) } : { key };
}

/** A key in the console's own address, and back. */
export function keyToParam(key: Bytes): string {
  return isBinary(key) ? `64:${toBase64Url(fromBase64(key.base64))}` : `s:${key}`;
}

export function keyFromParam(text: string | null): Bytes | null {
  if (text === null) return null;
  if (text.startsWith("64:")) return { base64: toBase64(fromBase64(text.slice(3))) };
  return text.startsWith("s:") ? text.slice(2) : null;
}

export function sameBytes(a: Bytes, b: Bytes): boolean {
  return keyToParam(a) === keyToParam(b);
}
