// Owns repeated loading while the page is visible. Never loads while the page is hidden or the node does not answer.
import { ApiError, link, who } from "./api.svelte";

export interface Polled<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly loading: boolean;
  /** Loads now, without waiting for the next turn. */
  again(): Promise<void>;
}

/**
 * `load` runs when the component appears, when what it reads changes, and `every_ms` after each answer (0: once).
 * One request at a time. An answer to a request from before a change is dropped.
 */
export function poll<T>(load: (signal: AbortSignal) => Promise<T>, every_ms: () => number): Polled<T> {
  let data = $state.raw<T>();
  let error = $state.raw<ApiError>();
  let loading = $state(true);
  let restart: () => Promise<void> = async () => {};

  $effect(() => {
    void link.epoch;
    void who.session;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stopped = false;
    let running: AbortController | undefined;
    const period = every_ms();

    const once = async (): Promise<void> => {
      clearTimeout(timer);
      running?.abort();
      const mine = new AbortController();
      running = mine;
      try {
        const fresh = await load(mine.signal);
        if (mine.signal.aborted) return;
        data = fresh;
        error = undefined;
      } catch (caught) {
        if (mine.signal.aborted) return;
        error = caught instanceof ApiError ? caught : new ApiError(0, "console", String(caught));
      }
      loading = false;
      running = undefined;
      if (!stopped && period > 0) timer = setTimeout(() => turn(), period);
    };
    const turn = () => {
      if (document.hidden || link.gone) return;
      void once();
    };
    const seen = () => {
      if (!document.hidden && period > 0 && !running) void once();
    };

    restart = once;
    loading = true;
    void once();
    document.addEventListener("visibilitychange", seen);
    return () => {
      stopped = true;
      clearTimeout(timer);
      running?.abort();
      document.removeEventListener("visibilitychange", seen);
    };
  });

  return {
    get data() {
      return data;
    },
    get error() {
      return error;
    },
    get loading() {
      return loading;
    },
    again: () => restart(),
  };
}
