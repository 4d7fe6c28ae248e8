import { expect, test } from "vitest";
import { nodeOf, ofNode, pathOf, queryOf, routeOf, safeNext, type Page } from "./route";

test("each page has an address that leads back to it", () => {
  const pages: Page[] = ["login", "databases", "create", "node", "cluster", "plan", "benchmark", "alerts", "events", "users", "account"];
  for (const page of pages) expect(routeOf(pathOf(page))).toEqual({ page, name: "" });
  for (const page of ["overview", "shards", "metrics", "keys", "command", "slowlog", "clients", "backups", "config"] as Page[]) {
    expect(routeOf(pathOf(page, "my-db-2"))).toEqual({ page, name: "my-db-2" });
  }
});

test("addresses of no page are told as such", () => {
  expect(routeOf("/").page).toBe("databases");
  expect(routeOf("/databases/").page).toBe("databases");
  expect(routeOf("/databases/new")).toEqual({ page: "overview", name: "new" });
  for (const path of ["/nothing", "/databases/UPPER", "/databases/a/nothing", "/databases/a/metrics/b", "/databases/-a"]) {
    expect(routeOf(path).page).toBe("missing");
  }
});

test("queries leave out what is empty", () => {
  expect(queryOf({ a: "x y", b: "", c: null, d: undefined, e: 0 })).toBe("?a=x+y&e=0");
  expect(queryOf({})).toBe("");
});

test("after the login one stays on this host", () => {
  expect(safeNext("/databases/a?x=1")).toBe("/databases/a?x=1");
  for (const next of [null, "", "https://example.org", "//example.org", "/\\example.org", "/login?next=/login"]) expect(safeNext(next)).toBe("/databases");
});

test("an address may be of another node", () => {
  for (const node of ["n2", "db1.example.org", "a_b-C"]) expect(nodeOf(ofNode(node, "/databases/a"))).toEqual({ node, path: "/databases/a" });
  expect(nodeOf(ofNode("", "/nodes"))).toEqual({ node: "", path: "/nodes" });
  for (const path of ["/nodes/a", "/nodes//node", "/nodes/-a/node", "/nodes/a%2fb/node", "/databases"]) expect(nodeOf(path).node).toBe("");
});
