// Owns the tree of keys by their separator: folders, their counts, and which rows are open. Pure.
import { shown } from "./binary";
import type { KeyRow } from "./types";

export type TreeRow = { kind: "folder"; path: string; name: string; depth: number; keys: number; open: boolean } | { kind: "key"; row: KeyRow; name: string; depth: number };

interface Folder {
  folders: Map<string, Folder>;
  keys: { name: string; row: KeyRow }[];
  count: number;
}

const folder = (): Folder => ({ folders: new Map(), keys: [], count: 0 });

/** The rows that are visible: folders first, then keys, both by name. `open` has the paths of open folders. */
export function treeRows(rows: KeyRow[], separator: string, open: ReadonlySet<string>): TreeRow[] {
  const root = folder();
  for (const row of rows) {
    const parts = separator ? shown(row.key).split(separator) : [shown(row.key)];
    let at = root;
    for (const part of parts.slice(0, -1)) {
      let next = at.folders.get(part);
      if (!next) at.folders.set(part, (next = folder()));
      next.count += 1;
      at = next;
    }
    at.keys.push({ name: parts[parts.length - 1]!, row });
  }
  const found: TreeRow[] = [];
  walk(root, "", 0, separator, open, found);
  return found;
}

const byName = <T>(a: [string, T], b: [string, T]): number => a[0].localeCompare(b[0], "en", { numeric: true });

function walk(at: Folder, path: string, depth: number, separator: string, open: ReadonlySet<string>, found: TreeRow[]): void {
  for (let [name, inner] of [...at.folders].sort(byName)) {
    // A folder with nothing but one folder needs no row of its own.
    while (inner.keys.length === 0 && inner.folders.size === 1) {
      const [only, deeper] = [...inner.folders][0]!;
      name += separator + only;
      inner = deeper;
    }
    const here = path + name + separator;
    const is_open = open.has(here);
    found.push({ kind: "folder", path: here, name, depth, keys: inner.count, open: is_open });
    if (is_open) walk(inner, here, depth + 1, separator, open, found);
  }
  for (const { name, row } of at.keys.toSorted((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }))) {
    found.push({ kind: "key", row, name, depth });
  }
}
