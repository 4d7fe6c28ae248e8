// Owns the newest rows of a stream, within bounds. Pure.
import { lengthOf } from "./binary";
import type { StreamPage, StreamRow } from "./types";

export interface Tail {
  /** The newest last. */
  rows: readonly StreamRow[];
  /** The number of the last row that was read. */
  last: number;
  /** Rows that came and are not here: the node or this page had no room for them. */
  left_out: number;
}

export const ROWS_MAX = 500;
export const BYTES_MAX = 2 ** 20;
export const NOTHING: Tail = { rows: [], last: 0, left_out: 0 };

/** The tail with what was read behind `tail.last`. The oldest rows leave. */
export function extended(tail: Tail, page: Pick<StreamPage, "rows" | "last" | "left_out">): Tail {
  const all = [...tail.rows, ...page.rows];
  let from = Math.max(0, all.length - ROWS_MAX);
  let room = BYTES_MAX;
  for (let at = all.length - 1; at >= from; at -= 1) {
    room -= lengthOf(all[at]!.payload);
    if (room < 0) from = at + 1;
  }
  return { rows: all.slice(from), last: page.last, left_out: tail.left_out + page.left_out + from };
}

/** Without its rows; what comes later follows. */
export const cleared = (tail: Tail): Tail => ({ rows: [], last: tail.last, left_out: 0 });
