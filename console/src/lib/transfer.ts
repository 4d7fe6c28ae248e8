// Owns the file of an export: a line of JSON for each key. Pure.
import type { Dumped } from "./types";

/** Bytes of one request of an import: the node takes bodies up to 8 MB. */
const BATCH_CHARS = 4_000_000;
const BATCH_KEYS = 500;

export const lines = (keys: Dumped[]): string => keys.map((key) => `${JSON.stringify(key)}\n`).join("");

/** The keys of a file, in requests; or the number of the first line that is none. */
export function batches(text: string): Dumped[][] | number {
  const found: Dumped[][] = [];
  let size = Infinity;
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    let one: Partial<Dumped>;
    try {
      one = JSON.parse(line) as Partial<Dumped>;
    } catch {
      return index + 1;
    }
    if (one === null || typeof one !== "object" || one.key === undefined || one.dump === undefined) return index + 1;
    if (size + line.length > BATCH_CHARS || found[found.length - 1]!.length >= BATCH_KEYS) {
      found.push([]);
      size = 0;
    }
    found[found.length - 1]!.push({ key: one.key, ttl_ms: one.ttl_ms ?? null, dump: one.dump });
    size += line.length;
  }
  return found;
}
