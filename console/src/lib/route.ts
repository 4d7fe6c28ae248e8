// Owns the map from addresses to pages. Pure: strings in, plain data out.

export type Page =
  | "login" | "databases" | "create" | "overview" | "shards" | "metrics" | "keys" | "command" | "slowlog" | "clients" | "backups" | "replication" | "config" | "acl"
  | "node" | "cluster" | "plan" | "benchmark" | "alerts" | "events" | "users" | "account" | "missing";

export interface Route {
  page: Page;
  /** The database, if the page belongs to one. */
  name: string;
}

const FIXED: Record<string, Page> = {
  "/": "databases",
  "/login": "login",
  "/databases": "databases",
  // Not under /databases/, because a database may have the name "new".
  "/create": "create",
  "/node": "node",
  "/cluster": "cluster",
  "/plan": "plan",
  "/benchmark": "benchmark",
  "/alerts": "alerts",
  "/events": "events",
  "/users": "users",
  "/account": "account",
};

const OF_DATABASE: Record<string, Page> = {
  "": "overview",
  shards: "shards",
  metrics: "metrics",
  keys: "keys",
  command: "command",
  slowlog: "slowlog",
  clients: "clients",
  backups: "backups",
  replication: "replication",
  config: "config",
  acl: "acl",
};

export function routeOf(path: string): Route {
  const clean = path.length > 1 ? path.replace(/\/+$/, "") : path;
  const fixed = FIXED[clean];
  if (fixed) return { page: fixed, name: "" };
  const found = /^\/databases\/([a-z0-9][a-z0-9-]*)(?:\/([a-z]+))?$/.exec(clean);
  const page = found ? OF_DATABASE[found[2] ?? ""] : undefined;
  return found && page ? { page, name: found[1]! } : { page: "missing", name: "" };
}

/** The node whose pages are shown, and the address among them. An empty node: the one that serves the console. */
export function nodeOf(path: string): { node: string; path: string } {
  const found = /^\/nodes\/([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(\/.*)$/.exec(path);
  return found ? { node: found[1]!, path: found[2]! } : { node: "", path };
}

/** The address of a page of this node; an empty node: of the one that serves the console. */
export const ofNode = (node: string, path: string): string => (node ? `/nodes/${node}${path}` : path);

export function pathOf(page: Page, name = ""): string {
  for (const [path, fixed] of Object.entries(FIXED)) {
    if (fixed === page && path !== "/") return path;
  }
  for (const [part, of] of Object.entries(OF_DATABASE)) {
    if (of === page) return `/databases/${name}${part && `/${part}`}`;
  }
  return "/";
}

/** A query string without empty values, keys in the given order: links are short, and the same state gives the same link. */
export function queryOf(values: Record<string, string | number | null | undefined>): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return text && `?${text}`;
}

/** The page after the login: always one of the console, never another host. */
export function safeNext(next: string | null): string {
  return next && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/databases";
}
