// Owns reading MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) into text for people. Pure. The bytes may be anything:
// what is no MessagePack, or too much of it, is null.
import { shown } from "./binary";

const BYTES_MAX = 100_000;
const DEPTH_MAX = 64;
/** Each value takes a line. */
const VALUES_MAX = 10_000;
const TIMESTAMP = -1;

/** One map or array that is all of the bytes, like indented JSON: nothing else is told apart from other binary data. */
export function prettyMsgpack(raw: Uint8Array): string | null {
  const first = raw[0] ?? 0;
  const isCollection = (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf);
  if (!isCollection || raw.length > BYTES_MAX) return null;
  try {
    const reader = new Reader(raw);
    const text = reader.value(0);
    return reader.isAtEnd ? text : null;
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

class Reader {
  #view: DataView;
  #at = 0;
  #values = 0;

  constructor(readonly raw: Uint8Array) {
    this.#view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#at === this.raw.length;
  }

  value(depth: number): string {
    this.#values += 1;
    if (depth > DEPTH_MAX || this.#values > VALUES_MAX) throw new RangeError("too much");
    const head = this.#uint(1);
    if (head <= 0x7f) return String(head);
    if (head <= 0x8f) return this.#map(head & 0x0f, depth);
    if (head <= 0x9f) return this.#array(head & 0x0f, depth);
    if (head <= 0xbf) return this.#text(head & 0x1f);
    if (head >= 0xe0) return String(head - 0x100);
    switch (head) {
      case 0xc0: return "null";
      case 0xc2: return "false";
      case 0xc3: return "true";
      case 0xc4: case 0xc5: case 0xc6: return binary(this.#take(this.#uint(1 << (head - 0xc4))));
      case 0xc7: case 0xc8: case 0xc9: return this.#extension(this.#uint(1 << (head - 0xc7)));
      case 0xca: return float(this.#view.getFloat32(this.#skip(4)));
      case 0xcb: return float(this.#view.getFloat64(this.#skip(8)));
      case 0xcc: case 0xcd: case 0xce: return String(this.#uint(1 << (head - 0xcc)));
      case 0xcf: return String(this.#view.getBigUint64(this.#skip(8)));
      case 0xd0: return String(this.#view.getInt8(this.#skip(1)));
      case 0xd1: return String(this.#view.getInt16(this.#skip(2)));
      case 0xd2: return String(this.#view.getInt32(this.#skip(4)));
      case 0xd3: return String(this.#view.getBigInt64(this.#skip(8)));
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.#extension(1 << (head - 0xd4));
      case 0xd9: case 0xda: case 0xdb: return this.#text(this.#uint(1 << (head - 0xd9)));
      case 0xdc: case 0xdd: return this.#array(this.#uint(2 << (head - 0xdc)), depth);
      case 0xde: case 0xdf: return this.#map(this.#uint(2 << (head - 0xde)), depth);
      // 0xc1 is never used.
      default: throw new RangeError("no MessagePack");
    }
  }

  #skip(count: number): number {
    const at = this.#at;
    if (count > this.raw.length - at) throw new RangeError("cut short");
    this.#at += count;
    return at;
  }

  #take(count: number): Uint8Array {
    const at = this.#skip(count);
    return this.raw.subarray(at, at + count);
  }

  #uint(bytes: number): number {
    let number = 0;
    for (const byte of this.#take(bytes)) number = number * 256 + byte;
    return number;
  }

  #array(count: number, depth: number): string {
    const items: string[] = [];
    while (items.length < count) items.push(this.value(depth + 1));
    return block("[", items, "]", depth);
  }

  #map(count: number, depth: number): string {
    const pairs: string[] = [];
    while (pairs.length < count) {
      const key = this.value(depth + 1);
      pairs.push(`${key}: ${this.value(depth + 1)}`);
    }
    return block("{", pairs, "}", depth);
  }

  #text(count: number): string {
    const raw = this.#take(count);
    try {
      return shown(JSON.stringify(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw)));
    } catch {
      return binary(raw);
    }
  }

  #extension(count: number): string {
    const type = this.#view.getInt8(this.#skip(1));
    const raw = this.#take(count);
    return (type === TIMESTAMP ? timestamp(raw) : null) ?? `extension ${type}, ${binary(raw)}`;
  }
}

function block(open: string, parts: string[], close: string, depth: number): string {
  if (parts.length === 0) return open + close;
  const indent = "  ".repeat(depth);
  return `${open}\n${parts.map((part) => `${indent}  ${part}`).join(",\n")}\n${indent}${close}`;
}

const binary = (raw: Uint8Array): string => `bytes ${[...raw].map((byte) => byte.toString(16).padStart(2, "0")).join("") || "(none)"}`;

/** With a point, so that it is told apart from an integer. */
const float = (number: number): string => (Number.isInteger(number) && Math.abs(number) < 1e15 ? number.toFixed(1) : String(number));

/** 4, 8 or 12 bytes; null if it is none, or no date that JavaScript can hold. */
function timestamp(raw: Uint8Array): string | null {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  let seconds: number;
  let nanos = 0;
  if (raw.length === 4) seconds = view.getUint32(0);
  else if (raw.length === 8) {
    nanos = view.getUint32(0) >>> 2;
    seconds = (view.getUint32(0) & 3) * 2 ** 32 + view.getUint32(4);
  } else if (raw.length === 12) {
    nanos = view.getUint32(0);
    seconds = Number(view.getBigInt64(4));
  } else return null;
  const date = new Date(seconds * 1000);
  if (nanos > 999_999_999 || Number.isNaN(date.getTime())) return null;
  const fraction = nanos > 0 ? `.${String(nanos).padStart(9, "0").replace(/0+$/, "")}` : "";
  return date.toISOString().replace(".000Z", `${fraction}Z`);
}
