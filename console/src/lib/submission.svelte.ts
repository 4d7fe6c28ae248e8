// What every form does: one request at a time, and what the node says of it beside its fields.
import { ApiError } from "./api.svelte";

export interface Submission {
  readonly busy: boolean;
  readonly error: ApiError | undefined;
  /** What the node says of a field. */
  wrong(field: string): string | undefined;
  /** What it says that belongs to no field. */
  readonly general: ApiError | undefined;
  clear(): void;
  /** True if the action was carried out; its error is kept otherwise. */
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
