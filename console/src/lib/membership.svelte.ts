// Owns whether this node is a member of a cluster. Every answer about the cluster tells it.
import { ApiError, get } from "./api.svelte";
import type { Cluster } from "./types";

let is_member = $state<boolean>();

export const membership = {
  /** Undefined until the node has said it. */
  get isMember(): boolean | undefined {
    return is_member;
  },
};

/** The cluster. null: this node is a member of none. */
export async function loadCluster(signal?: AbortSignal): Promise<Cluster | null> {
  try {
    const cluster = await get<Cluster>("/cluster", {}, signal);
    is_member = true;
    return cluster;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.code === "unsupported") {
      is_member = false;
      return null;
    }
    // A member that cannot work for its cluster is one all the same.
    if (error.code === "busy") is_member = true;
    throw error;
  }
}
