// The pages of a cluster. The node is a member of none, and the answers of one are replaced on their way to the page: all is well, a node
// is down, etcd is away. What is sent to the API is compared with what the API takes.
import { logIn, main, openPage, overflow, picture, same, story, that, until, violations, visit } from "./harness.mjs";

const GB = 1024 ** 3;
const member = (name, more = {}) => ({
  id: `id-of-${name}`, name, zone: "default", role: "data", address: `${name}:8380`, is_live: true, version: "0.4.0",
  ram_bytes: 96 * GB, flash_bytes: 1700 * GB, ram_placed_bytes: 12 * GB, flash_placed_bytes: 60 * GB, shards: 2, primaries: 2, is_draining: false, clock_ahead_ms: null, clock_error_ms: null, ...more,
});
const shards = (down = []) => [0, 1, 2, 3].map((number) => ({ number, node: number % 2 ? "b" : "a", epoch: 1, is_served: !down.includes(number), in_sync: 1, copies: 1 }));
const cluster = (more = {}) => ({
  name: "shop", id: "5f1d", node: "a", leader: "c", removed: null, etcd_trouble: null, troubles: [],
  nodes: [member("a"), member("b", { zone: "south" }), member("c", { role: "quorum", shards: 0, ram_placed_bytes: 0, flash_placed_bytes: 0, flash_bytes: 0 })],
  databases: [{ id: "1", name: "orders", state: "serving", port: 12000, tls_port: 0, memory_limit_bytes: 80 * GB, ram_limit_bytes: 24 * GB, replicas: 0, shards: shards() }],
  ...more,
});
const of_etcd = (name, more = {}) => ({ name, client_url: `https://${name}:2379`, is_leader: false, has_leader: true, is_learner: false, version: "3.5.16", db_bytes: 1_400_000, trouble: null, ...more });
const etcd = (more = {}) => ({ members: [of_etcd("a", { is_leader: true }), of_etcd("b"), of_etcd("c", { is_learner: true })], alarms: [], slowest_request_ms: 4.2, ...more });
const DOWN = {
  nodes: [member("a"), member("b", { is_live: false }), member("c", { role: "quorum", shards: 0 })],
  databases: [{ ...cluster().databases[0], shards: shards([1, 3]) }],
  troubles: ["shard orders.1: its node cannot be reached"],
};
const MODES = [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]];

await main(async (node, browser) => {
  const { step, done, on } = story("cluster");
  const page = await openPage(browser, node);
  on(page);

  /** The answers of the API by method and path, replaced until they are again; each gets the request. */
  let said = {};
  const sent = [];
  await page.route((url) => url.pathname.startsWith("/api/v1/"), async (route) => {
    const request = route.request();
    const url = new URL(request.url());
    const name = `${request.method()} ${url.pathname.slice("/api/v1".length)}`;
    const answer = said[name];
    try {
      // This node, as the pages of the node b: what is asked through a is answered by it.
      if (!answer && url.pathname.startsWith("/api/v1/nodes/b/")) return await route.fulfill({ response: await route.fetch({ url: url.href.replace("/nodes/b/", "/") }) });
      if (!answer) return await route.fallback();
      if (request.method() !== "GET") sent.push({ name, query: url.search, body: request.postDataJSON() });
      const [status, body] = await answer({ url, body: request.postDataJSON(), route });
      await route.fulfill({ status, contentType: "application/json", body: status === 204 ? "" : JSON.stringify(body) });
    } catch (error) {
      if (!/already handled|closed|disposed/.test(error.message)) throw error;
    }
  });
  const refusal = (status, code, message, hint = "") => [status, { error: { code, message, hint, fields: [] } }];
  const quiet = { rules: [], states: [], silences: [], history: [], webhook: { url: "", enabled: false, format: "json", is_signed: false, last: null } };
  const answers = (of_cluster, of_etcd = etcd()) => ({
    "GET /cluster": () => [200, of_cluster], "GET /cluster/etcd": () => [200, of_etcd], "GET /operations": () => [200, []], "GET /cluster/settings": () => [200, { replace_after_s: 600 }],
    "GET /cluster/alerts": () => [200, { nodes: [{ node: "a", alerts: quiet }], missing: [] }], "GET /cluster/events": () => [200, { events: [], missing: [] }],
  });
  const button = (name) => page.getByRole("button", { name, exact: true });
  const dialog = page.getByRole("dialog");
  async function clean() {
    same(await violations(page), [], "axe-core");
    that((await overflow(page)) <= 0, "something runs out of the window");
  }
  /** At both widths, in both themes. */
  async function seen(name) {
    for (const [width, colorScheme] of MODES) {
      await page.setViewportSize({ width, height: 860 });
      await page.emulateMedia({ colorScheme });
      await clean();
      await picture(page, `${name}-${width}-${colorScheme}`, { fullPage: true });
    }
    await page.setViewportSize({ width: 1280, height: 860 });
    await page.emulateMedia({ colorScheme: "light" });
  }
  /** The page is loaded anew, so that the console asks again whether the node is a member. */
  async function open(path) {
    await page.goto(path);
    await page.locator("h1").first().waitFor();
  }
  const in_menu = () => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Cluster" });

  await step("a member of no cluster: no page in the menu, and the page of the node says how a cluster begins", async () => {
    await logIn(page);
    await visit(page, "/node");
    await page.getByRole("link", { name: "how a cluster begins" }).click();
    await page.getByRole("heading", { name: "This node is a member of no cluster" }).waitFor();
    for (const line of ["flintkv cluster init NAME", "flintkv cluster token", /^flintkv cluster join HOST/]) await page.getByText(line, { exact: typeof line === "string" }).first().waitFor();
    same(await in_menu().count(), 0, "links in the menu");
    await seen("cluster-none");
    await visit(page, "/create");
    await page.getByRole("heading", { name: "What is left" }).waitFor();
    await page.getByLabel("Begin with").waitFor();
    await visit(page, "/databases/default");
    same(await page.getByRole("link", { name: "Shards" }).count(), 0, "the tab of shards");
    await page.getByRole("link", { name: "Backups" }).first().waitFor();
  });

  await step("all is well: nodes with what is placed on them, databases, members of etcd", async () => {
    said = answers(cluster());
    await open("/cluster");
    await in_menu().waitFor();
    const row = page.getByRole("row", { name: /^b / });
    await row.getByText("runs", { exact: true }).waitFor();
    same(await row.getByRole("meter", { name: "RAM of b" }).getAttribute("aria-valuetext"), "12 GiB of 96 GiB", "the RAM placed on b");
    await page.getByText("2 of 2 answer").waitFor();
    await page.getByText("The slowest request of this node in the last seconds took 4.2 ms.").waitFor();
    await row.getByText("2 primaries", { exact: true }).waitFor();
    await page.getByRole("row", { name: /^c / }).first().getByText("leads").waitFor();
    await page.getByText("made anew on other nodes after 10 min").waitFor();
    await page.getByRole("row", { name: /orders/ }).getByText("4 of 4").waitFor();
    await page.getByRole("row", { name: /^c / }).first().getByText("It only votes").waitFor();
    same(await page.getByRole("alert").count(), 0, "alerts");
    same(await page.getByRole("button", { name: /^Remove/ }).count(), 0, "buttons that remove a node that runs");
    same(await button("Leave the cluster").getAttribute("aria-disabled"), "true", "leaving with shards");
    await seen("cluster-well");
    await visit(page, "/node");
    await page.getByText("member of shop").waitFor();
  });

  await step("a node is down: what it means comes first; etcd's answer may take its time", async () => {
    let let_go;
    const held = new Promise((go) => (let_go = go));
    said = { ...answers(cluster(DOWN)), "GET /cluster/etcd": async () => (await held, [200, etcd({ members: [of_etcd("a", { is_leader: true }), of_etcd("b", { trouble: "connection refused", version: null, db_bytes: null }), of_etcd("c")] })]) };
    await open("/cluster");
    await page.getByRole("alert").filter({ hasText: "Node b does not run" }).waitFor();
    await page.getByRole("alert").filter({ hasText: "Keys of shards 1 and 3 answer CLUSTERDOWN" }).waitFor();
    await page.getByText("shard orders.1: its node cannot be reached").waitFor();
    const [first, figures] = await Promise.all([page.getByText("Node b does not run").boundingBox(), page.locator(".figures").boundingBox()]);
    that(first.y < figures.y, "the trouble is not first");
    await page.getByRole("region", { name: "etcd", exact: true }).getByText("Loading…").waitFor();
    let_go();
    await page.getByText("2 of 3 answer").waitFor();
    await page.getByText("connection refused").waitFor();
    await seen("cluster-down");
  });

  await step("a node is removed by its name, after what would be lost was shown, and its data are given up only with a second choice", async () => {
    let plan = { node: "b", lost: [{ database: "orders", number: 1, to: "a", left: "nothing" }, { database: "orders", number: 3, to: "a", left: "nothing" }], nodes: [] };
    said["DELETE /cluster/nodes/b"] = ({ url }) => {
      if (url.searchParams.get("dry_run") === "true") return plan ? [200, plan] : refusal(422, "no_room", "no node takes shard 1 of 'orders'");
      return url.searchParams.get("lose_data") === "true" || plan.lost.length === 0 ? [204] : refusal(409, "busy", "node 'b' has the shards orders.1, orders.3: delete their databases first, or give up the data that were only there (--lose-data)");
    };
    const remove = dialog.getByRole("button", { name: /^Remove/ });
    sent.length = 0;
    await button("Remove b from the cluster").click();
    await dialog.getByText("orders: shards 1 and 3 begin empty on a").waitFor();
    same(await remove.getAttribute("aria-disabled"), "true", "removing without the name");
    await dialog.getByLabel("Type b to confirm").fill("b");
    same(await remove.getAttribute("aria-disabled"), "true", "removing without the second choice");
    await clean();
    await picture(page, "cluster-remove");
    await dialog.getByLabel("Remove it all the same").check();
    await dialog.getByRole("button", { name: "Remove and lose the data" }).click();
    await page.getByText("b is removed from the cluster.").waitFor();
    const DRY = "DELETE /cluster/nodes/b?dry_run=true&lose_data=true";
    same(sent.map((one) => one.name + one.query), [DRY, "DELETE /cluster/nodes/b?lose_data=true"], "what was sent");
    // Shards may have come onto it since.
    const without = { node: "b", lost: [], nodes: [] };
    plan = without;
    sent.length = 0;
    await button("Remove b from the cluster").click();
    await dialog.getByText("Nothing is lost: no shard is only on it.").waitFor();
    plan = { ...without, lost: [{ database: "orders", number: 1, to: "a", left: "nothing" }] };
    await dialog.getByLabel("Type b to confirm").fill("b");
    await remove.click();
    await dialog.getByText("node 'b' has the shards orders.1, orders.3").waitFor();
    that(!(await dialog.textContent()).includes("--lose-data"), "the dialog names a flag of the command line");
    same(await remove.getAttribute("aria-disabled"), "true", "removing without the second choice");
    await page.keyboard.press("Escape");
    same(sent.map((one) => one.name + one.query), [DRY, "DELETE /cluster/nodes/b"], "what was sent");
    // What is refused is told before the name is typed.
    plan = null;
    await button("Remove b from the cluster").click();
    await dialog.getByText("no node takes shard 1 of 'orders'").waitFor();
    await dialog.getByLabel("Type b to confirm").fill("b");
    same(await remove.getAttribute("aria-disabled"), "true", "removing what is refused");
    await clean();
    await page.keyboard.press("Escape");
  });

  await step("operations: which nodes have not done their part, why, and what has failed", async () => {
    const part = (name, more = {}) => ({ name, is_done: true, is_live: true, trouble: null, ...more });
    const operation = (kind, more) => ({ id: kind, kind, target: "orders", by: "ann", state: "running", started_ms: Date.now() - 60_000, ended_ms: null, error: null, about: null, failover: null, nodes: [part("a")], steps: [], steps_done: 0, waits_for: null, aborted_by: null, ...more });
    const drained = operation("drain", { target: "b", nodes: [], steps: [0, 1].map((number) => ({ kind: "switchover", shard: `orders.${number}`, from: null, to: "a" })), steps_done: 1, waits_for: "the copy of orders.1 on node a is not in sync" });
    const missed_ms = Date.now() - 90_000;
    const failover = { from: "b", to: "a", epoch: 7, cause: "its node does not run", missed_ms, named_ms: missed_ms + 100, served_ms: missed_ms + 1700 };
    said = answers(cluster());
    said["GET /operations"] = () => [200, [
      operation("resize", { nodes: [part("a"), part("b", { is_done: false, trouble: "shard 1: the values need more RAM" })] }),
      operation("flush", { nodes: [part("b", { is_done: false, is_live: false, trouble: "shard 3: old news" })] }),
      operation("pause", { state: "failed", error: "'orders' was deleted before b had done it", ended_ms: Date.now() }),
      operation("create", { state: "done", ended_ms: Date.now(), by: "" }),
      drained,
      operation("failover", { target: "orders.3", by: "the cluster", state: "done", nodes: [], about: "from b to a", failover }),
    ]];
    said["POST /operations/drain/abort"] = () => ((drained.aborted_by = "admin"), [204]);
    await open("/cluster");
    const operations = page.getByRole("table", { name: "Operations of the cluster" });
    await operations.getByRole("row", { name: /resize/ }).getByText("waits for b (shard 1: the values need more RAM)").waitFor();
    same(await operations.getByRole("row").filter({ hasText: "orders" }).count(), 5, "operations");
    await operations.getByRole("row", { name: /flush/ }).getByText("waits for b (does not run)").waitFor();
    await operations.getByRole("row", { name: /pause/ }).getByText("'orders' was deleted before b had done it").waitFor();
    await operations.getByRole("row", { name: /create/ }).getByText("done", { exact: true }).waitFor();
    const of_drain = operations.getByRole("row", { name: /drain/ });
    await of_drain.getByText("waits for the copy of orders.1 on node a is not in sync").waitFor();
    await of_drain.getByText(/^1 of 2 steps, for 1 min/).click();
    await of_drain.getByText("orders.1: the primary goes to a").waitFor();
    same(await operations.getByRole("button").count(), 1, "buttons: only what runs in steps can be aborted");
    const failovers = page.getByRole("table", { name: "Failovers of the cluster's shards" });
    same((await failovers.getByRole("row", { name: "orders.3" }).getByRole("cell").allTextContents()).filter((_, index) => index !== 2), ["b → a", "its node does not run", "0.1 s", "1.7 s", "7"], "what is said of a failover");
    await seen("cluster-operations");
    sent.length = 0;
    await button("Abort the drain of b").click();
    await dialog.getByText("The node takes primaries again. Those that have left stay where they are.").waitFor();
    await clean();
    await dialog.getByRole("button", { name: "Abort it" }).click();
    await of_drain.getByText("is aborted by admin").waitFor();
    same(sent.map((one) => one.name), ["POST /operations/drain/abort"], "what was sent");
  });

  await step("a node is drained: the plan first, then how far it is, what it waits for, and an abort", async () => {
    const steps = [0, 2].map((number) => ({ kind: "switchover", shard: `orders.${number}`, from: null, to: "b" }));
    const notes = ["carts.0 has no other copy: it stays"];
    let running = { id: "7", kind: "drain", target: "a", about: null, failover: null, by: "admin", state: "running", started_ms: Date.now(), ended_ms: null, error: null, nodes: [], steps, steps_done: 1, waits_for: "the copy of orders.2 on node b is not in sync", aborted_by: null };
    said = { ...answers(cluster()), "POST /cluster/nodes/a/drain": ({ url }) => (url.searchParams.get("dry_run") === "true" ? [200, { id: null, kind: "drain", target: "a", steps, notes }] : [201, { id: "7", kind: "drain", target: "a", steps, notes }]) };
    await open("/cluster");
    sent.length = 0;
    await button("Drain a").click();
    await dialog.getByText("orders.2: the primary goes to b").waitFor();
    await dialog.getByText("carts.0 has no other copy: it stays").waitFor();
    await dialog.getByText("within 2 seconds").waitFor();
    await clean();
    await picture(page, "cluster-drain-plan");
    said["GET /operations"] = () => [200, [running]];
    await dialog.getByRole("button", { name: "Drain" }).click();
    await dialog.getByText("Waits for: the copy of orders.2 on node b is not in sync").waitFor();
    same(await dialog.getByRole("progressbar").getAttribute("value"), "1", "steps that are done");
    await clean();
    await picture(page, "cluster-drain-runs");
    said["POST /operations/7/abort"] = () => ((running = { ...running, aborted_by: "admin" }), [204]);
    await dialog.getByRole("button", { name: "Abort…" }).click();
    const aborting = page.getByRole("dialog", { name: "Abort the drain of a" });
    await aborting.getByText("The node takes primaries again.").waitFor();
    await aborting.getByRole("button", { name: "Abort it" }).click();
    await aborting.waitFor({ state: "detached" });
    await dialog.getByText("1 of 2 steps, is aborted by admin").waitFor();
    running = { ...running, state: "failed", ended_ms: Date.now(), error: "aborted by admin" };
    await dialog.getByText("aborted by admin", { exact: true }).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    same(sent.map((one) => one.name + one.query), ["POST /cluster/nodes/a/drain?dry_run=true", "POST /cluster/nodes/a/drain", "POST /operations/7/abort"], "what was sent");
    // What is refused is told before it is begun.
    said["POST /cluster/restart"] = () => refusal(409, "busy", "node b does not run");
    await button("Restart all nodes").click();
    await dialog.getByText("node b does not run", { exact: true }).waitFor();
    same(await dialog.getByRole("button", { name: "Restart" }).getAttribute("aria-disabled"), "true", "beginning what is refused");
    await page.keyboard.press("Escape");
    // A node that is drained, and one that is down.
    said["GET /cluster"] = () => [200, cluster({ nodes: [member("a", { is_draining: true, primaries: 0 }), member("b", { is_live: false }), member("c", { role: "quorum", shards: 0 })] })];
    await button("Undrain a").waitFor();
    await page.getByRole("row", { name: /^a / }).getByText("2 replicas").waitFor();
    await button("Replace the copies of b").waitFor();
    for (const name of ["Drain a", "Restart b", "Drain c", "Restart c"]) same(await button(name).count(), 0, name);
    await clean();
    await picture(page, "cluster-drained", { fullPage: true });
  });

  await step("when copies are replaced without an operator", async () => {
    said = { ...answers(cluster()), "PUT /cluster/settings": ({ body }) => ((said["GET /cluster/settings"] = () => [200, body]), [200, body]) };
    await open("/cluster");
    sent.length = 0;
    await button("Change when copies are replaced").click();
    await dialog.getByLabel("Minutes without the node").fill("x");
    same(await dialog.getByRole("button", { name: "Set" }).getAttribute("aria-disabled"), "true", "setting no number");
    await dialog.getByLabel("Minutes without the node").fill("");
    await dialog.getByRole("button", { name: "Set" }).click();
    await page.getByText("made anew on other nodes only when an operator asks for it").waitFor();
    same(sent.map(({ name, body }) => [name, body]), [["PUT /cluster/settings", { replace_after_s: 0 }]], "what was sent");
  });

  await step("the pages of another node: all of them are fetched through this one, and a banner says whose they are", async () => {
    said = answers(cluster());
    const real = await page.evaluate(() => fetch("/api/v1/session").then((answer) => answer.json()));
    await open("/cluster");
    const asked = new Set();
    page.on("request", (request) => request.url().includes("/api/v1/") && asked.add(new URL(request.url()).pathname.slice("/api/v1".length)));
    await page.getByRole("link", { name: "b", exact: true }).click();
    const banner = page.getByRole("region", { name: "The node that is shown" });
    await banner.getByText("b", { exact: true }).waitFor();
    await page.getByRole("heading", { name: "Machine" }).first().waitFor();
    same(new URL(page.url()).pathname, "/nodes/b/node", "the address");
    await seen("cluster-other-node");
    const menu = page.getByRole("navigation", { name: "Pages" });
    for (const [link, heading] of [["Databases", "Databases"], ["Alerts", "Alerts"], ["Events", "Events"], ["Planner", "Planner"], ["Benchmark", "Benchmark"]]) {
      await menu.getByRole("link", { name: link }).click();
      await page.getByRole("heading", { level: 1, name: heading }).waitFor();
      await banner.waitFor();
    }
    await menu.getByRole("link", { name: "Databases" }).click();
    await page.getByRole("link", { name: "default", exact: true }).click();
    for (const tab of ["Metrics", "Keys", "Command line", "Slow log", "Clients", "Users", "Configuration", "Overview"]) {
      await page.getByRole("navigation", { name: "Of this database" }).getByRole("link", { name: tab, exact: true }).click();
      that(new URL(page.url()).pathname.startsWith("/nodes/b/databases/default"), `the address of ${tab}: ${page.url()}`);
    }
    // The event that is shown is that of b alone; it is loaded anew without losing the node.
    await page.goto("/nodes/b/events?view=audit");
    await page.getByRole("heading", { name: "Audit log" }).waitFor();
    await banner.waitFor();
    const own = [...asked].filter((path) => !path.startsWith("/nodes/b/") && !path.startsWith("/session"));
    same(own.filter((path) => !["/cluster", "/cluster/etcd", "/cluster/settings", "/operations", "/cluster/alerts"].includes(path)), [], "what was asked of this node itself");
    that([...asked].includes("/nodes/b/audit") && [...asked].includes("/nodes/b/databases/default"), "what was asked of b");
    same(real.user, "admin", "the session");
    // What belongs to all nodes stays here.
    same(await menu.getByRole("link", { name: "Users" }).getAttribute("href"), "/users", "the address of the users");
    await banner.getByRole("link", { name: "Back to the cluster" }).click();
    await banner.waitFor({ state: "detached" });
    same(new URL(page.url()).pathname, "/cluster", "the address after it");
    // A node that is away.
    said["GET /nodes/b/node"] = () => refusal(502, "unreachable", "node 'b' cannot be asked: it cannot be reached: Connection refused (os error 111)", "the cluster sees that the node does not run");
    await page.getByRole("link", { name: "b", exact: true }).click();
    await page.getByText("node 'b' cannot be asked").waitFor();
    await clean();
    await picture(page, "cluster-other-node-away");
    await banner.getByRole("link", { name: "Back to the cluster" }).click();
  });

  await step("what a page still shows of a node that is away is said to be old", async () => {
    const why = "node 'b' cannot be asked: it cannot be reached";
    const old = page.getByRole("alert").filter({ hasText: why });
    for (const [path, asked, shown] of [
      ["/nodes/b/databases", "/nodes/b/databases", page.getByRole("link", { name: "default", exact: true })],
      ["/nodes/b/databases/default", "/nodes/b/databases/default", page.getByRole("region", { name: "Durability" })],
      ["/nodes/b/databases/default/keys", "/nodes/b/databases/default", page.getByRole("link", { name: "Overview", exact: true })],
      ["/nodes/b/node", "/nodes/b/node", page.getByRole("heading", { name: "Machine" }).first()],
      ["/alerts", "/cluster/alerts", page.getByRole("heading", { name: "Rules of this node, a" })],
    ]) {
      said = answers(cluster());
      await open(path);
      await shown.waitFor();
      same(await old.count(), 0, `alerts of ${path} while it is new`);
      said[`GET ${asked}`] = () => refusal(502, "unreachable", why);
      await old.waitFor();
      same(await old.count(), 1, `alerts of ${path}`);
      that(await shown.isVisible(), `${path} has lost what it showed`);
      await clean();
    }
    await picture(page, "cluster-old");
  });

  await step("events and alerts of all nodes, each with its node; what a node does not say is named", async () => {
    const event = (id, message, more = {}) => ({ id, at_ms: Date.now() - 1000 * id, kind: "database", severity: "info", database: "orders", user: "ann", message, mark: "", ...more });
    const rule = { id: "ram", name: "RAM is full", metric: "ram_full", scope: "databases", op: ">", threshold: 0, for_s: 60, keep_s: 0, severity: "critical", enabled: true };
    const state = (more = {}) => ({ rule_id: "ram", scope: "database:orders", state: "firing", since_ms: Date.now() - 5000, value: 1, acknowledged: null, silenced_until_ms: null, ...more });
    const of_node = (node, more = {}) => ({ node, alerts: { ...quiet, rules: [rule], states: [state()], ...more } });
    const silence = { id: "s1", rule_id: null, scope: null, until_ms: Date.now() + 3_600_000, by: "ann", reason: "" };
    said = answers(cluster());
    const missing = [{ node: "d", why: "node 'd' cannot be asked: it has not answered within 3 s" }];
    // A node numbers its events by itself.
    said["GET /cluster/events"] = ({ url }) => [200, { events: url.searchParams.get("before_ms") ? [{ node: "a", event: event(9, "older") }] : [{ node: "a", event: event(1, "at a") }, { node: "b", event: event(1, "at b") }], missing }];
    said["GET /cluster/alerts"] = () => [200, { nodes: [of_node("a"), of_node("b", { silences: [silence] })], missing }];
    await open("/events");
    await page.getByRole("row", { name: /at a/ }).getByRole("cell", { name: "a", exact: true }).waitFor();
    await page.getByRole("row", { name: /at b/ }).getByRole("cell", { name: "b", exact: true }).waitFor();
    await page.getByRole("alert").filter({ hasText: "The events of d are missing" }).getByText("it has not answered within 3 s").waitFor();
    await seen("cluster-events");
    await visit(page, "/alerts");
    await page.getByRole("region", { name: "Now" }).getByRole("status").filter({ hasText: "2 firing" }).waitFor();
    await page.getByRole("alert").filter({ hasText: "The alerts of d are missing" }).waitFor();
    await page.getByRole("heading", { name: "Rules of this node, a" }).waitFor();
    await seen("cluster-alerts");
    said["POST /nodes/b/alerts/acknowledge"] = () => [204];
    said["DELETE /nodes/b/alerts/silences/s1"] = () => [204];
    said["POST /nodes/b/alerts/silences"] = ({ body }) => [201, { ...silence, ...body }];
    sent.length = 0;
    await button("Acknowledge RAM is full of orders at b").click();
    await page.getByText("Everybody sees that you work on it.").waitFor();
    await button("End the silence of every rule at b").click();
    await page.getByText("The silence is over.").waitFor();
    await button("Silence RAM is full of orders at b").click();
    await dialog.getByRole("button", { name: "Silence" }).click();
    await dialog.waitFor({ state: "detached" });
    same(sent.map((one) => one.name), ["POST /nodes/b/alerts/acknowledge", "DELETE /nodes/b/alerts/silences/s1", "POST /nodes/b/alerts/silences"], "what was sent");
    same(sent[0].body, { rule_id: "ram", scope: "database:orders" }, "the acknowledgement");
  });

  await step("etcd is away: the rest of the page stays", async () => {
    said = { ...answers(cluster({ etcd_trouble: "no member of etcd answers" })), "GET /cluster/etcd": () => refusal(500, "failed", "deadline has elapsed") };
    await open("/cluster");
    await page.getByRole("alert").filter({ hasText: "This node cannot follow etcd" }).waitFor();
    await page.getByRole("region", { name: "etcd" }).getByText("deadline has elapsed").waitFor();
    await page.getByRole("row", { name: /^b / }).getByText("runs", { exact: true }).waitFor();
    await seen("cluster-etcd-away");
    said["GET /cluster/etcd"] = () => [200, etcd({ members: [of_etcd("a", { has_leader: false }), of_etcd("b", { trouble: "gone" }), of_etcd("c", { trouble: "gone" })], alarms: ["NoSpace at member 1f"] })];
    await page.getByRole("region", { name: "etcd" }).getByRole("button", { name: "Try again" }).click();
    await page.getByText("1 of 3 answer, no majority").waitFor();
    await page.getByRole("region", { name: "etcd" }).getByRole("row", { name: /^a / }).getByText("knows no leader").waitFor();
    await page.getByText("Alarm: NoSpace at member 1f").waitFor();
    await clean();
  });

  await step("a member that cannot work for its cluster says why", async () => {
    said = { "GET /cluster": () => refusal(409, "busy", "this node does not work for its cluster: its certificate has ended") };
    await open("/cluster");
    await page.getByRole("alert").filter({ hasText: "its certificate has ended" }).waitFor();
    await in_menu().waitFor();
    await clean();
  });

  await step("a node is added with a line that is shown once, and a node without shards leaves", async () => {
    said = answers(cluster({ nodes: [member("a", { shards: 0 }), member("b")] }));
    const command = `flintkv cluster join a:8380 --token fkvj.${"0123456789abcdef".repeat(6)}`;
    said["POST /cluster/tokens"] = () => [201, { token: "fkvj", command, expires_ms: Date.now() + 3_600_000 }];
    said["POST /cluster/leave"] = () => {
      said["GET /cluster"] = () => refusal(422, "unsupported", "this node is a member of no cluster");
      return [204];
    };
    sent.length = 0;
    await open("/cluster");
    await button("Add a node").click();
    await clean();
    await dialog.getByLabel("No: it only has shards").check();
    await dialog.getByRole("button", { name: "Make the command" }).click();
    await dialog.getByText(command).waitFor();
    await dialog.getByRole("button", { name: "Copy the command" }).waitFor();
    await dialog.getByText("The token in it is a secret").waitFor();
    await dialog.getByText(/^Valid for one node, until \d{4}-/).waitFor();
    await page.setViewportSize({ width: 390, height: 860 });
    await clean();
    await picture(page, "cluster-token-390");
    await page.setViewportSize({ width: 1280, height: 860 });
    await dialog.getByRole("button", { name: "Done" }).click();
    same(await page.getByText(command).count(), 0, "the command after the dialog");
    await button("Leave the cluster").click();
    await dialog.getByLabel("Type a to confirm").fill("a");
    await dialog.getByRole("button", { name: "Leave" }).click();
    await page.getByText("a has left the cluster shop.").waitFor();
    await page.getByRole("heading", { name: "This node is a member of no cluster" }).waitFor();
    await in_menu().waitFor({ state: "detached" });
    same(sent.map(({ name, body }) => [name, body]), [["POST /cluster/tokens", { no_coordinator: true }], ["POST /cluster/leave", null]], "what was sent");
  });

  await step("whoever is no admin sees the cluster, and cannot change it", async () => {
    said = { ...answers(cluster(DOWN)), "GET /session": async ({ route }) => [200, { ...(await (await route.fetch()).json()), role: "operator" }] };
    await open("/cluster");
    for (const name of ["Add a node", "Remove b from the cluster", "Leave the cluster", "Drain a", "Restart a", "Replace the copies of b", "Restart all nodes", "Change when copies are replaced"]) {
      same(await button(name).getAttribute("aria-disabled"), "true", name);
      that((await button(name).getAttribute("title")).includes("admin"), `${name}: the reason is missing`);
    }
  });

  await step("a database of the cluster: its shards, those that are not served, and nothing that the API refuses", async () => {
    const real = await page.evaluate(() => fetch("/api/v1/databases/default").then((answer) => answer.json()));
    const orders = (down) => ({ ...real, name: "orders", is_default: false, shards: shards(down), definition: { ...real.definition, shards: 4, has_password: true, memory_limit_bytes: 80 * GB, ram_limit_bytes: 24 * GB } });
    const figures = (down) => shards(down).map((one) => {
      const of = one.is_served ? { keys: 1000 + one.number, used_ram_bytes: 5 * GB, used_flash_bytes: 11 * GB, values_in_ram: 400, values_in_ram_percent: 40, ram_hit_percent: 91.5, ops_per_s: 12_500 } : { keys: null, used_ram_bytes: null, used_flash_bytes: null, values_in_ram: null, values_in_ram_percent: null, ram_hit_percent: null, ops_per_s: null };
      return { ...one, ...of, ram_limit_bytes: one.is_served ? 6 * GB : null, trouble: one.is_served ? null : "it does not answer", copies: [{ node: one.node, role: "primary", state: "serves", is_in_sync: true, offset: null, lag_bytes: null }] };
    });
    said = { ...answers(cluster()), "GET /databases/orders": () => [200, orders([])], "GET /databases/orders/shards": () => [200, figures([])], "GET /databases/orders/metrics": ({ route, url }) => route.fetch({ url: url.href.replace("/orders/", "/default/") }).then(async (answer) => [200, await answer.json()]) };
    await open("/databases/orders/shards");
    await page.getByText("4 of 4 served").waitFor();
    const of_shard = page.getByRole("row", { name: "orders.2" });
    await of_shard.getByText("5 GiB", { exact: true }).waitFor();
    same((await of_shard.getByRole("cell").allTextContents()).map((text) => text.trim()), ["served", "a", "1 k", "5 GiB", "11 GiB", "40 %", "91.5 %", "12.5 k", "1"], "what is said of a shard");
    same(await page.getByRole("alert").count(), 0, "alerts");
    same(await page.getByRole("heading", { name: "Copies" }).count(), 0, "copies, without replicas");
    const tabs = page.getByRole("navigation", { name: "Of this database" });
    await tabs.getByRole("link", { name: "Shards" }).waitFor();
    same(await tabs.getByRole("link").allTextContents(), ["Overview", "Shards", "Metrics", "Keys", "Command line", "Slow log", "Clients", "Users", "Configuration"], "tabs");
    said["GET /databases/orders"] = () => [200, orders([1])];
    said["GET /databases/orders/shards"] = () => [200, figures([1])];
    await page.getByRole("alert").filter({ hasText: "Keys of shard 1 answer CLUSTERDOWN" }).waitFor();
    await page.getByRole("row", { name: "orders.1" }).getByText("not served").waitFor();
    await page.getByRole("row", { name: "orders.1" }).getByText("it does not answer").waitFor();
    await seen("cluster-shards");
    await visit(page, "/databases/orders");
    await page.getByRole("alert").filter({ hasText: "Shard 1 is not served" }).waitFor();
    same(await page.getByRole("region", { name: "Durability" }).getByRole("button").count(), 0, "buttons that change the persistence");
    await clean();
    await button("Resize").click();
    await dialog.getByLabel("Memory limit").waitFor();
    same(await dialog.getByRole("textbox").count(), 2, "fields of text: memory and RAM");
    said["PATCH /databases/orders"] = () => refusal(422, "no_room", "no node takes it\nnode a: RAM 96gb, 90gb placed, 6gb free, 20gb needed\nnode b: only votes");
    sent.length = 0;
    await dialog.getByLabel("Memory limit").fill("90 gb");
    await dialog.getByLabel("RAM limit").fill("80 gb");
    // A dry run would be sent a moment after the typing, long before the page has asked for the database twice.
    const asked = () => page.waitForResponse((answer) => new URL(answer.url()).pathname === "/api/v1/databases/orders" && answer.request().method() === "GET");
    await asked();
    await asked();
    await dialog.getByRole("button", { name: "Apply" }).click();
    await dialog.getByText("node a: RAM 96 GiB, 90 GiB placed, 6 GiB free, 20 GiB needed", { exact: true }).waitFor();
    await clean();
    same(sent, [{ name: "PATCH /databases/orders", query: "", body: { memory_limit_bytes: 90 * GB, ram_limit_bytes: 80 * GB } }], "what was sent: no dry run, which the API refuses");
    await page.keyboard.press("Escape");
    await button("Delete").click();
    same(await dialog.getByText("Make a backup first").count(), 0, "the offer of a backup");
    await page.keyboard.press("Escape");
    await visit(page, "/databases/orders/backups");
    await page.getByText("Not in a cluster yet").waitFor();
    await clean();
  });

  await step("a database with replicas: each copy, which of them is not in sync, switchover and move", async () => {
    const real = await page.evaluate(() => fetch("/api/v1/databases/default").then((answer) => answer.json()));
    const replicated = [0, 1].map((number) => ({ number, node: "a", epoch: 3 + number, is_served: true, in_sync: number === 0 ? 2 : 1, copies: 2 }));
    const copy = (node, role, more = {}) => ({ node, role, state: role === "primary" ? "serves" : "follows", is_in_sync: true, offset: 9000, lag_bytes: 0, ...more });
    const figures = replicated.map((one) => ({
      ...one, keys: 1000, used_ram_bytes: 5 * GB, ram_limit_bytes: 6 * GB, used_flash_bytes: 11 * GB, values_in_ram: 400, values_in_ram_percent: 40, ram_hit_percent: 91.5, ops_per_s: 12_500, trouble: null,
      copies: [copy("a", "primary"), one.number === 0 ? copy("b", "replica", { lag_bytes: 2048 }) : copy("b", "replica", { is_in_sync: false, state: "is given the dataset, 1.2 GB of 4 GB", lag_bytes: 4096 })],
    }));
    const nodes = [member("a"), member("b"), member("d", { zone: "west" }), member("e", { is_live: false })];
    const plan = (kind, steps) => ({ id: null, kind, target: "orders", steps, notes: [] });
    let polls = 0;
    said = {
      ...answers(cluster({ nodes, databases: [{ ...cluster().databases[0], replicas: 1, shards: replicated }] })),
      "GET /databases/orders": () => [200, { ...real, name: "orders", is_default: false, shards: replicated }],
      "GET /databases/orders/shards": () => { polls += 1; return [200, figures]; },
      "POST /cluster/switchover": ({ url, body }) => (url.searchParams.get("dry_run") ? [200, plan("switchover", [{ kind: "switchover", shard: `orders.${body.shard ?? 0}`, from: null, to: body.to ?? "b" }])] : [201, { ...plan("switchover", []), id: "9" }]),
      "POST /cluster/move": ({ url, body }) => (url.searchParams.get("dry_run") ? [200, plan("move", [{ kind: "move", shard: body.shard, from: body.from, to: body.to }])] : refusal(409, "busy", "operation 9 is about orders.1 too")),
    };
    await open("/databases/orders/shards");
    await page.getByText("3 of 4 in sync").waitFor();
    await page.getByRole("status").filter({ hasText: "Shard 1 has no replica in sync" }).getByText("If node a is lost now, no other copy can take over.").waitFor();
    const copies = page.getByRole("table", { name: "Copies of the shards" });
    const cells = async (row) => (await row.getByRole("cell").allTextContents()).slice(0, 5).map((text) => text.trim());
    same(await cells(copies.getByRole("row", { name: "orders.0" }).nth(1)), ["b", "replica", "in sync", "follows", "2 KiB"], "what is said of a replica");
    same(await cells(copies.getByRole("row", { name: "orders.1" }).nth(1)), ["b", "replica", "not in sync", "is given the dataset, 1.2 GB of 4 GB", "4 KiB"], "what is said of one that joins");
    same(await button("Make primary: orders.1 on b").getAttribute("title"), "It is not in sync.", "why it cannot become the primary");
    await seen("cluster-copies");
    sent.length = 0;
    await button("Make primary: orders.0 on b").click();
    same(await dialog.getByLabel("Node of the next primary").inputValue(), "b", "the node that was chosen");
    await dialog.getByText("orders.0: the primary goes to b").waitFor();
    await clean();
    said["GET /operations"] = () => [200, [{ id: "9", kind: "switchover", target: "orders.0", about: null, failover: null, by: "admin", state: "done", started_ms: 1, ended_ms: 2, error: null, nodes: [], steps: [{ kind: "switchover", shard: "orders.0", from: null, to: "b" }], steps_done: 1, waits_for: null, aborted_by: null }]];
    await dialog.getByRole("button", { name: "Switch over" }).click();
    await dialog.getByText("1 of 1 step").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await button("Switch over all shards").click();
    await dialog.getByText("orders.0: the primary goes to b").waitFor();
    const before = polls;
    await until("the page behind the form was loaded anew, and what would follow has been asked", () => polls >= before + 2);
    await page.keyboard.press("Escape");
    await button("Move the copy of orders.1 on b").click();
    const options = dialog.getByLabel("To the node").getByRole("option");
    await options.nth(1).waitFor({ state: "attached" });
    same(await options.allTextContents(), ["choose a node", "d, zone west"], "nodes that run and have no copy");
    same(await dialog.getByRole("button", { name: "Move" }).getAttribute("aria-disabled"), "true", "moving without a node");
    await dialog.getByLabel("To the node").selectOption("d");
    await dialog.getByText("orders.1: the copy on b goes to d").waitFor();
    await clean();
    await dialog.getByRole("button", { name: "Move" }).click();
    await dialog.getByText("operation 9 is about orders.1 too").waitFor();
    await page.keyboard.press("Escape");
    const DRY = "?dry_run=true";
    same(sent.map(({ name, query, body }) => [name + query, body]), [
      [`POST /cluster/switchover${DRY}`, { database: "orders", shard: 0, to: "b" }], ["POST /cluster/switchover", { database: "orders", shard: 0, to: "b" }],
      [`POST /cluster/switchover${DRY}`, { database: "orders" }],
      [`POST /cluster/move${DRY}`, { shard: "orders.1", from: "b", to: "d" }], ["POST /cluster/move", { shard: "orders.1", from: "b", to: "d" }],
    ], "what was sent");
  });

  await step("a new database: where its shards would be, and a refusal with what each node has", async () => {
    said = answers(cluster());
    said["POST /databases"] = ({ body }) => {
      const { memory_limit_bytes: memory, ram_limit_bytes: ram, shards: count = 1 } = body;
      if (ram > 200 * GB) return refusal(422, "no_room", "no node takes a copy of shard 0 of database 77aa, which needs RAM 300gb\nnode a: RAM 96gb, 12gb placed, 84gb free, 300gb needed\nnode c: only votes");
      if (body.replicas > 1) return [422, { error: { code: "invalid", message: "replicas: there are 2 nodes with data", hint: "", fields: [{ field: "replicas", message: "there are 2 nodes with data" }] } }];
      const parts = count * (1 + (body.replicas ?? 0));
      const [copy_ram_bytes, copy_flash_bytes] = [ram / parts, (memory - ram) / parts];
      const placed = Array.from({ length: count }, (_, number) => ({ number, nodes: (number % 2 ? ["b", "a"] : ["a", "b"]).slice(0, 1 + (body.replicas ?? 0)) }));
      const nodes = cluster().nodes.map((one) => {
        const more = placed.filter((shard) => shard.nodes.includes(one.name)).length;
        return { ...one, ram_placed_bytes: one.ram_placed_bytes + more * copy_ram_bytes, flash_placed_bytes: one.flash_placed_bytes + more * copy_flash_bytes };
      });
      return [200, { port: 12001, copy_ram_bytes, copy_flash_bytes, shards: placed, nodes }];
    };
    await open("/create?ram=50%20%25&memory=40%20gb");
    await page.getByRole("heading", { name: "Where it would be" }).waitFor();
    same(await page.getByLabel("Begin with").count(), 0, "the field for a backup");
    await page.getByRole("textbox", { name: "Name" }).fill("events");
    await page.getByLabel("Shards").fill("1025");
    await page.getByText("At most 1024.").waitFor();
    await page.getByLabel("Shards").fill("4");
    const of_b = page.getByRole("region", { name: "Node b" });
    await of_b.getByText("shards 1 and 3").waitFor();
    same(await of_b.getByRole("meter", { name: "RAM" }).getAttribute("aria-valuetext"), "22 GiB of 96 GiB", "the RAM placed on b after it");
    await page.getByText("Nothing of it is on c.").waitFor();
    await page.getByText("The node would create this database.").waitFor();
    await page.getByText("Endpoints, persistence, flash limit, zones").click();
    for (const label of ["Backup every", "Archive the journal for"]) same(await page.getByLabel(label).count(), 0, label);
    await seen("cluster-create");
    const meaning = page.getByRole("status", { name: "What the loss of a node takes with it" });
    await meaning.getByText("Each shard has one copy.").waitFor();
    await page.getByLabel("Replicas").fill("2");
    await page.getByText("there are 2 nodes with data").waitFor();
    await page.getByLabel("Replicas").fill("1");
    await of_b.getByText("primaries 1 and 3, replicas 0 and 2").waitFor();
    await meaning.getByText("it may lack the newest writes").waitFor();
    await page.getByLabel("Replication").selectOption("sync");
    await page.getByLabel("Copies in sync at least").fill("2");
    await meaning.getByText("while one node is away every write is refused").waitFor();
    await clean();
    await picture(page, "cluster-create-replicas", { fullPage: true });
    // An answer is lost: the form asks again by itself.
    const answer = said["POST /databases"];
    said["POST /databases"] = async ({ route }) => { said["POST /databases"] = answer; await route.abort(); return [200]; };
    await page.getByLabel("Replicas").fill("0");
    await page.getByText("The node does not answer.").first().waitFor();
    await page.getByText("The node would create this database.").waitFor();
    await page.getByLabel("Memory limit").fill("1 tb");
    await page.getByText("node a: RAM 96 GiB, 12 GiB placed, 84 GiB free, 300 GiB needed", { exact: true }).waitFor();
    await page.getByText("node c: only votes", { exact: true }).waitFor();
    same(await page.getByRole("region", { name: /^Node / }).count(), 0, "a placement beside a refusal");
    await seen("cluster-refused");
    await open("/create?from=shop/one");
    await page.getByText("A database of the cluster cannot begin with a backup yet.").waitFor();
  });
  done();
});
