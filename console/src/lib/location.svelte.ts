// Owns the address bar: the current address as state, and navigation without a page load.
import { nodeOf, ofNode, queryOf, routeOf, type Route } from "./route";

const read = () => ({ ...nodeOf(window.location.pathname), query: window.location.search });

let current = $state.raw(read());

window.addEventListener("popstate", () => (current = read()));

export const place = {
  /** The node of the cluster whose pages are shown; empty: the one that serves the console. */
  get node(): string {
    return current.node;
  },
  /** Without the node. */
  get path(): string {
    return current.path;
  },
  get route(): Route {
    return routeOf(current.path);
  },
  param(name: string): string | null {
    return new URLSearchParams(current.query).get(name);
  },
  get full(): string {
    return at(current.path) + current.query;
  },
};

/** The address of a page of the node whose pages are shown. */
export const at = (path: string): string => ofNode(current.node, path);

export function go(to: string, how: "push" | "replace" = "push"): void {
  if (to === place.full) return;
  const moved = to.split("?")[0] !== at(current.path);
  history[how === "push" ? "pushState" : "replaceState"](null, "", to);
  current = read();
  if (moved && how === "push") window.scrollTo(0, 0);
}

/** Changes some parameters of the address and keeps the others. */
export function setParams(values: Record<string, string | number | null>, how: "push" | "replace" = "replace"): void {
  const all: Record<string, string | number | null> = Object.fromEntries(new URLSearchParams(current.query));
  go(at(current.path) + queryOf({ ...all, ...values }), how);
}

/** Follows links within the console. The browser follows links with a modifier key, a target or another host. */
export function onLinkClick(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
  if (link.pathname.startsWith("/api/") || (link.hash && link.pathname === window.location.pathname)) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
