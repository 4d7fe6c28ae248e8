// Owns what pages show of all nodes of the cluster together. The pages of another node, and a node in no cluster, show one node alone.
import { get } from "./api.svelte";
import { place } from "./location.svelte";
import { membership } from "./membership.svelte";
import type { Alerts, ClusterAlerts, ClusterEvents, Event } from "./types";

const isOfAll = (): boolean => membership.isMember === true && place.node === "";

/** Of one node alone, its name is empty. */
export async function loadAlerts(signal?: AbortSignal): Promise<ClusterAlerts> {
  if (isOfAll()) return get<ClusterAlerts>("/cluster/alerts", {}, signal);
  return { nodes: [{ node: "", alerts: await get<Alerts>("/alerts", {}, signal) }], missing: [] };
}

export async function loadEvents(query: Record<string, string | number | null>, signal?: AbortSignal): Promise<ClusterEvents> {
  if (isOfAll()) return get<ClusterEvents>("/cluster/events", query, signal);
  return { events: (await get<Event[]>("/events", query, signal)).map((event) => ({ node: "", event })), missing: [] };
}
