// Owns what every form does: one request at a time, and the node's errors beside the fields.
import { ApiError } from "./api.svelte";

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
        error = caught instanceof ApiError ? caught : new ApiError(0, "console", String(caught));
        return false;
      } finally {
        busy = false;
      }
    },
  };
}
