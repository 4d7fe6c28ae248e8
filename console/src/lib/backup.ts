// Owns asking for a backup and waiting for its end. Never shows anything.
import { ApiError, call, get } from "./api.svelte";
import type { Backups, RunningBackup } from "./types";

const LOOK_MS = 500;

/** Makes a backup, and returns its directory when it was read back. */
export async function makeBackup(name: string): Promise<string> {
  const begun = await call<RunningBackup>("POST", `/databases/${name}/backups`, { body: {} });
  for (;;) {
    const state = await get<Backups>(`/databases/${name}/backups`);
    if (state.running?.path !== begun.path) {
      if (state.backups.some((one) => one.path === begun.path)) return begun.path;
      throw new ApiError(500, "failed", `The backup failed: ${state.last?.error ?? "the node has stopped in the meantime"}`);
    }
    await new Promise((wake) => setTimeout(wake, LOOK_MS));
  }
}

/** How far a backup is, in percent. */
export const percentOf = (running: Pick<RunningBackup, "done" | "total">): number =>
  running.total > 0 ? Math.floor((100 * Math.min(running.done, running.total)) / running.total) : 0;
