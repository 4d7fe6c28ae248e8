// Owns what every form does: one request at a time, and the node's errors beside the fields.
import { ApiError, call, link } from "./api.svelte";

export interface Submission {
  readonly busy: boolean;
  readonly error: ApiError | undefined;
  /** The node's error for a field. */
  wrong(field: string): string | undefined;
  /** The node's error that belongs to no field. */
  readonly general: ApiError | undefined;
  clear(): void;
  /** True if the action succeeded; otherwise its error is kept. */
  run(action: () => Promise<unknown>): Promise<boolean>;
}

export function submission(): Submission {
  let busy = $state(false);
  let error = $state.raw<ApiError>();
  return {
    get busy() {
      return busy;
    },
    get error() {
      return error;
    },
    wrong: (field) => error?.field(field),
    get general() {
      return error && error.fields.length === 0 ? error : undefined;
    },
    clear: () => (error = undefined),
    async run(action) {
      if (busy) return false;
      busy = true;
      error = undefined;
      try {
        await action();
        return true;
      } catch (caught) {
        error = caught instanceof ApiError ? caught.inWords() : new ApiError(0, "console", String(caught));
        return false;
      } finally {
        busy = false;
      }
    },
  };
}

export interface Checked {
  /** What the node would say, in the console's words. */
  readonly error: ApiError | undefined;
  wrong(field: string): string | undefined;
  /** The node would do it. */
  readonly passed: boolean;
  /** What the node said to the last request that it would do; undefined after one that it would not. */
  readonly answer: unknown;
}

interface Request {
  method: "POST" | "PATCH";
  path: string;
  body: object;
}

const TYPING_MS = 250;

/** Lets the node check a form while somebody types, and changes nothing (dry_run). Without a request there is nothing to check. */
export function checks(request: () => Request | undefined): Checked {
  let error = $state.raw<ApiError>();
  let passed = $state(false);
  let answer = $state.raw<unknown>();
  // A page that is polled builds its request anew each time; only one that says something else is another one.
  let asked_json = $derived(JSON.stringify(request()));
  $effect(() => {
    // An answer that was lost comes when the node answers again.
    void link.epoch;
    passed = false;
    if (asked_json === undefined) {
      error = undefined;
      answer = undefined;
      return;
    }
    const asked = JSON.parse(asked_json) as Request;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const said = await call<unknown>(asked.method, asked.path, { query: { dry_run: "true" }, body: asked.body, signal: stop.signal });
        if (stop.signal.aborted) return;
        error = undefined;
        answer = said;
        passed = true;
      } catch (caught) {
        if (stop.signal.aborted || !(caught instanceof ApiError)) return;
        error = caught.inWords();
        answer = undefined;
      }
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });
  return {
    get error() {
      return error;
    },
    wrong: (field) => error?.field(field),
    get passed() {
      return passed;
    },
    get answer() {
      return answer;
    },
  };
}
