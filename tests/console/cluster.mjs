// The pages of a cluster. The node is a member of none, and the answers of one are replaced on their way to the page: all is well, a node
// is down, etcd is away. What is sent to the API is compared with what the API takes.
import { logIn, main, openPage, overflow, picture, same, story, that, violations, visit } from "./harness.mjs";

const GB = 1024 ** 3;
const member = (name, more = {}) => ({
  id: `id-of-${name}`, name, zone: "default", role: "data", address: `${name}:8380`, is_live: true, version: "0.4.0",
  ram_bytes: 96 * GB, flash_bytes: 1700 * GB, ram_placed_bytes: 12 * GB, flash_placed_bytes: 60 * GB, shards: 2, ...more,
});
const shards = (down = []) => [0, 1, 2, 3].map((number) => ({ number, node: number % 2 ? "b" : "a", epoch: 1, is_served: !down.includes(number) }));
const cluster = (more = {}) => ({
  name: "shop", id: "5f1d", node: "a", etcd_trouble: null, troubles: [],
  nodes: [member("a"), member("b", { zone: "south" }), member("c", { role: "quorum", shards: 0, ram_placed_bytes: 0, flash_placed_bytes: 0, flash_bytes: 0 })],
  databases: [{ id: "1", name: "orders", state: "serving", port: 12000, tls_port: 0, memory_limit_bytes: 80 * GB, ram_limit_bytes: 24 * GB, shards: shards() }],
  ...more,
});
const of_etcd = (name, more = {}) => ({ name, client_url: `https://${name}:2379`, is_leader: false, is_learner: false, version: "3.5.16", db_bytes: 1_400_000, trouble: null, ...more });
const etcd = (more = {}) => ({ members: [of_etcd("a", { is_leader: true }), of_etcd("b"), of_etcd("c", { is_learner: true })], alarms: [], ...more });
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
      if (!answer) return await route.fallback();
      if (request.method() !== "GET") sent.push({ name, query: url.search, body: request.postDataJSON() });
      const [status, body] = await answer({ url, body: request.postDataJSON(), route });
      await route.fulfill({ status, contentType: "application/json", body: status === 204 ? "" : JSON.stringify(body) });
    } catch (error) {
      if (!/already handled|closed|disposed/.test(error.message)) throw error;
    }
  });
  const refusal = (status, code, message, hint = "") => [status, { error: { code, message, hint, fields: [] } }];
  const answers = (of_cluster, of_etcd = etcd()) => ({ "GET /cluster": () => [200, of_cluster], "GET /cluster/etcd": () => [200, of_etcd], "GET /operations": () => [200, []] });
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
    same(await page.getByRole("heading", { name: "What is left" }).count(), 1, "what is left of the machine");
    same(await page.getByLabel("Begin with").count(), 1, "the field for a backup");
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
    await page.getByText("Loading…").waitFor();
    let_go();
    await page.getByText("2 of 3 answer").waitFor();
    await page.getByText("connection refused").waitFor();
    await seen("cluster-down");
  });

  await step("a node is removed by its name, and its data are given up only with a second choice", async () => {
    said["DELETE /cluster/nodes/b"] = ({ url }) =>
      url.searchParams.get("lose_data") === "true" ? [204] : refusal(409, "busy", "node 'b' has the shards orders.1, orders.3: delete their databases first, or give up the data that were only there (--lose-data)");
    sent.length = 0;
    await button("Remove b from the cluster").click();
    same(await dialog.getByRole("button", { name: "Remove" }).getAttribute("aria-disabled"), "true", "removing without the name");
    await dialog.getByLabel("Type b to confirm").fill("b");
    await dialog.getByRole("button", { name: "Remove" }).click();
    await dialog.getByText("node 'b' has the shards orders.1, orders.3").waitFor();
    that(!(await dialog.textContent()).includes("--lose-data"), "the dialog names a flag of the command line");
    same(await dialog.getByRole("button", { name: "Remove" }).getAttribute("aria-disabled"), "true", "removing without the second choice");
    await clean();
    await picture(page, "cluster-remove");
    await dialog.getByLabel("Remove it all the same").check();
    await dialog.getByRole("button", { name: "Remove and lose the data" }).click();
    await page.getByText("b is removed from the cluster.").waitFor();
    same(sent.map((one) => one.name + one.query), ["DELETE /cluster/nodes/b", "DELETE /cluster/nodes/b?lose_data=true"], "what was sent");
  });

  await step("etcd is away: the rest of the page stays", async () => {
    said = { ...answers(cluster({ etcd_trouble: "no member of etcd answers" })), "GET /cluster/etcd": () => refusal(500, "failed", "deadline has elapsed") };
    await open("/cluster");
    await page.getByRole("alert").filter({ hasText: "This node cannot follow etcd" }).waitFor();
    await page.getByRole("region", { name: "etcd" }).getByText("deadline has elapsed").waitFor();
    await page.getByRole("row", { name: /^b / }).getByText("runs", { exact: true }).waitFor();
    await seen("cluster-etcd-away");
    said["GET /cluster/etcd"] = () => [200, etcd({ members: [of_etcd("a"), of_etcd("b", { trouble: "gone" }), of_etcd("c", { trouble: "gone" })], alarms: ["NoSpace at member 1f"] })];
    await page.getByRole("region", { name: "etcd" }).getByRole("button", { name: "Try again" }).click();
    await page.getByText("1 of 3 answer, no majority").waitFor();
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
    for (const name of ["Add a node", "Remove b from the cluster", "Leave the cluster"]) {
      same(await button(name).getAttribute("aria-disabled"), "true", name);
      that((await button(name).getAttribute("title")).includes("admin"), `${name}: the reason is missing`);
    }
  });

  await step("a database of the cluster: its shards, those that are not served, and nothing that the API refuses", async () => {
    const real = await page.evaluate(() => fetch("/api/v1/databases/default").then((answer) => answer.json()));
    const orders = (down) => ({ ...real, name: "orders", is_default: false, shards: shards(down), definition: { ...real.definition, shards: 4, has_password: true, memory_limit_bytes: 80 * GB, ram_limit_bytes: 24 * GB } });
    const figures = (down) => shards(down).map((one) => {
      const of = one.is_served ? { keys: 1000 + one.number, used_ram_bytes: 5 * GB, used_flash_bytes: 11 * GB, values_in_ram: 400, values_in_ram_percent: 40, ram_hit_percent: 91.5, ops_per_s: 12_500 } : { keys: null, used_ram_bytes: null, used_flash_bytes: null, values_in_ram: null, values_in_ram_percent: null, ram_hit_percent: null, ops_per_s: null };
      return { ...one, ...of, ram_limit_bytes: one.is_served ? 6 * GB : null, trouble: one.is_served ? null : "it does not answer" };
    });
    said = { ...answers(cluster()), "GET /databases/orders": () => [200, orders([])], "GET /databases/orders/shards": () => [200, figures([])], "GET /databases/orders/metrics": ({ route, url }) => route.fetch({ url: url.href.replace("/orders/", "/default/") }).then(async (answer) => [200, await answer.json()]) };
    await open("/databases/orders/shards");
    await page.getByText("4 of 4 served").waitFor();
    const of_shard = page.getByRole("row", { name: "orders.2" });
    await of_shard.getByText("5 GiB", { exact: true }).waitFor();
    same((await of_shard.getByRole("cell").allTextContents()).map((text) => text.trim()), ["served", "a", "1 k", "5 GiB", "11 GiB", "40 %", "91.5 %", "12.5 k", "1"], "what is said of a shard");
    same(await page.getByRole("alert").count(), 0, "alerts");
    const tabs = page.getByRole("navigation", { name: "Of this database" });
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

  await step("a new database: where its shards would be, and a refusal with what each node has", async () => {
    said = answers(cluster());
    said["POST /databases"] = ({ body }) => {
      const { memory_limit_bytes: memory, ram_limit_bytes: ram, shards: count = 1 } = body;
      if (ram > 200 * GB) return refusal(422, "no_room", "no node takes a copy of shard 0 of database 77aa, which needs RAM 300gb\nnode a: RAM 96gb, 12gb placed, 84gb free, 300gb needed\nnode c: only votes");
      const [copy_ram_bytes, copy_flash_bytes] = [ram / count, (memory - ram) / count];
      const placed = Array.from({ length: count }, (_, number) => ({ number, nodes: [number % 2 ? "b" : "a"] }));
      const nodes = cluster().nodes.map((one) => {
        const more = placed.filter((shard) => shard.nodes[0] === one.name).length;
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
    for (const label of ["Replicas", "Backup every", "Archive the journal for"]) same(await page.getByLabel(label).count(), 0, label);
    await seen("cluster-create");
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
