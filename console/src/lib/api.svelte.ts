// Owns every request to the node: the login, and whether the node answers. Never shows anything itself.
import { inWords } from "./words";
import { place } from "./location.svelte";
import { queryOf } from "./route";
import type { Role, Session } from "./types";
import { forPeople } from "./hint";

export interface FieldError {
  field: string;
  message: string;
}

/** The API's answer to a refused request. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string = "",
    readonly fields: FieldError[] = [],
  ) {
    super(message);
  }

  field(name: string): string | undefined {
    return this.fields.find((one) => one.field === name)?.message;
  }

  /** For forms: with the names of their fields instead of the node's directives. */
  inWords(): ApiError {
    const fields = this.fields.map((one) => ({ ...one, message: inWords(one.message) }));
    return new ApiError(this.status, this.code, inWords(this.message), inWords(this.hint), fields);
  }
}

let session = $state.raw<Session | null>(null);
let known = $state(false);
let gone = $state(false);
let gone_since = $state(0);
let epoch = $state(0);

export const who = {
  get session(): Session | null {
    return session;
  },
  /** False until the node has said whether the cookie is valid. */
  get known(): boolean {
    return known;
  },
  get role(): Role {
    return session?.role ?? "viewer";
  },
};

export const link = {
  get gone(): boolean {
    return gone;
  },
  get since_ms(): number {
    return gone_since;
  },
  /** Grows each time the node answers again, so that older data is reloaded. */
  get epoch(): number {
    return epoch;
  },
};

const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

export function may(role: Role): boolean {
  return RANK[who.role] >= RANK[role];
}

export function whyNot(role: Role): string {
  return may(role) ? "" : `Needs the role ${role}; yours is ${who.role}.`;
}

type Query = Record<string, string | number | null | undefined>;

export interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  /** It is sent although the page goes. */
  keepalive?: boolean;
  /** The node that is to answer; otherwise the one whose pages are shown. */
  node?: string;
}

/** Sessions are those of the node that serves the console; it has another node answer the rest, if that one's pages are shown. */
const answering = (path: string, node: string): string => (node && !path.startsWith("/session") ? `/nodes/${encodeURIComponent(node)}` : "");

export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session) headers["x-csrf-token"] = session.csrf;
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response: Response;
  let text = "";
  try {
    response = await fetch(`/api/v1${answering(path, options.node ?? place.node)}${path}${queryOf(options.query ?? {})}`, {
      method,
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ? AbortSignal.any([options.signal, patience]) : patience,
      credentials: "same-origin",
      keepalive: options.keepalive ?? false,
    });
    if (response.status !== 204) text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    if (patience.aborted) {
      throw new ApiError(0, "timeout", `The node has not answered within ${PATIENCE_MS / 1000} s.`, "What was asked for may still happen: look again later.");
    }
    lost();
    throw new ApiError(0, "gone", "The node does not answer.", "The console tries again by itself.");
  }
  if (response.status === 204) return undefined as T;
  let body: unknown;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch {
    throw new ApiError(response.status, "not_json", `The node answered with something that is not JSON (status ${response.status}).`);
  }
  if (response.ok) return body as T;
  const said = (body as { error?: Partial<ApiError> & { fields?: FieldError[] } } | undefined)?.error;
  if (response.status === 401 && !path.startsWith("/session")) session = null;
  throw new ApiError(
    response.status,
    said?.code ?? "unknown",
    said?.message ?? `The node answered with status ${response.status}.`,
    forPeople(said?.hint ?? ""),
    said?.fields ?? [],
  );
}

export const get = <T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> =>
  call<T>("GET", path, signal ? { query, signal } : { query });

const RETRY_MS = 1500;
/** The node itself gives up after 30 seconds. */
const PATIENCE_MS = 35_000;
/** Whether the node is alive is asked so often, and an answer takes it no time: without one for so long, it is frozen. */
const PULSE_MS = 2000;
const PULSE_PATIENCE_MS = 5000;

async function isAlive(): Promise<boolean> {
  return fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(PULSE_PATIENCE_MS) }).then((response) => response.ok, () => false);
}

/** Notices a node that takes connections and does not answer, on every page. Returns what ends it. */
export function feelPulse(): () => void {
  let ended = false;
  const beat = async () => {
    if (!document.hidden && !gone && !(await isAlive())) lost();
    if (!ended) setTimeout(beat, PULSE_MS);
  };
  void beat();
  return () => (ended = true);
}

function lost(): void {
  if (gone) return;
  gone = true;
  gone_since = Date.now();
  const retry = async () => {
    if (!(await isAlive())) {
      setTimeout(retry, RETRY_MS);
      return;
    }
    gone = false;
    epoch += 1;
    if (session) void resume();
  };
  setTimeout(retry, RETRY_MS);
}

/** Asks for the user of the cookie. */
export async function resume(): Promise<void> {
  try {
    session = await get<Session>("/session");
    known = true;
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0) {
      session = null;
      known = true;
    }
  }
}

export async function logIn(user: string, password: string): Promise<void> {
  session = await call<Session>("POST", "/session", { body: { user, password } });
  known = true;
}

export async function logOut(): Promise<void> {
  try {
    await call("DELETE", "/session");
  } finally {
    session = null;
  }
}

export async function changePassword(old: string, fresh: string): Promise<void> {
  await call("PUT", "/session/password", { body: { old, new: fresh } });
  await resume();
}
