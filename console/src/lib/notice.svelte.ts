// Owns the notices about actions that succeeded or failed, in one corner and for screen readers.
import { ApiError } from "./api.svelte";

export interface Notice {
  id: number;
  kind: "good" | "bad";
  text: string;
}

const SHOWN_MS = 6000;
let notices = $state<Notice[]>([]);
let next = 1;

export const notice = {
  get all(): Notice[] {
    return notices;
  },
  good(text: string): void {
    add("good", text);
  },
  bad(error: unknown): void {
    add("bad", error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(" ") : String(error));
  },
  close(id: number): void {
    notices = notices.filter((one) => one.id !== id);
  },
};

function add(kind: Notice["kind"], text: string): void {
  const id = next++;
  notices = [...notices.slice(-3), { id, kind, text }];
  // Failures stay until they are closed, so that nobody misses one.
  if (kind === "good") setTimeout(() => notice.close(id), SHOWN_MS);
}

/** Runs the action of a button, and shows its error if it fails. */
export async function attempt(action: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await action();
    if (done) notice.good(done);
    return true;
  } catch (error) {
    notice.bad(error);
    return false;
  }
}
