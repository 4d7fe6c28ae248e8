// What an operator must not miss, with real nodes: a database that refuses writes, a node that is frozen, a session over a restart, an
// alert and its webhook, marks on graphs, and a replica that follows and takes over. The dialogs are used with the keyboard alone.
import { createHmac, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { connect } from "node:net";
import { flintkv, logIn, main, makeNode, openPage, overflow, PASSWORD, picture, same, story, that, until, violations, visit } from "./harness.mjs";

/** Sends SETs of values that do not compress, and returns the replies. */
function setMany(port, count, bytes) {
  const value = randomBytes(bytes);
  return new Promise((done, fail) => {
    const socket = connect(port, "127.0.0.1");
    let replies = "";
    const ended = () => (replies.match(/\r\n/g) ?? []).length >= count;
    socket.on("error", fail).on("data", (data) => {
      replies += data;
      if (ended()) socket.end();
    }).on("close", () => done(replies));
    for (let nth = 0; nth < count; nth += 1) socket.write(Buffer.concat([Buffer.from(`*3\r\n$3\r\nSET\r\n$8\r\nk${String(nth).padStart(7, "0")}\r\n$${bytes}\r\n`), value, Buffer.from("\r\n")]));
  });
}

await main(async (node, browser) => {
  const { step, done, on } = story("watch");
  const page = await openPage(browser, node);
  on(page);
  const button = (name, of = page) => of.getByRole("button", { name, exact: true });

  async function clean(of, name) {
    // pages.mjs has every page at both widths in both themes.
    for (const [width, height, colorScheme] of [[1440, 900, "light"], [390, 844, "dark"]]) {
      await of.setViewportSize({ width, height });
      await of.emulateMedia({ colorScheme });
      same(await violations(of), [], `axe-core at ${width}, ${colorScheme}`);
      that((await overflow(of)) <= 0, `something runs out of the window at ${width}`);
      await picture(of, `watch-${name}-${width}-${colorScheme}`, { fullPage: true });
    }
    await of.emulateMedia({ colorScheme: "light" });
    await of.setViewportSize({ width: 1280, height: 860 });
  }
  /** The API as the page's user. */
  const api = (of, method, path, body) =>
    of.evaluate(async ([method, path, body]) => {
      const { csrf } = await (await fetch("/api/v1/session")).json();
      const headers = { "x-csrf-token": csrf, ...(body ? { "content-type": "application/json" } : {}) };
      const response = await fetch(`/api/v1${path}`, { method, headers, body: body ? JSON.stringify(body) : null });
      return { status: response.status, body: response.status === 204 ? null : await response.json() };
    }, [method, path, body]);
  /** Moves the focus with Tab until it is on something. */
  async function tabTo(of, target) {
    await target.waitFor();
    await until("the focus is there", async () => {
      if (await target.evaluate((element) => document.activeElement === element)) return true;
      await of.keyboard.press("Tab");
      return false;
    });
  }

  await logIn(page);

  await step("a database that refuses writes is red in the list, on its page and on the command line", async () => {
    const made = await api(page, "POST", "/databases", { name: "small", memory_limit_bytes: 48 << 20, ram_limit_bytes: 40 << 20, persistence: "none" });
    same(made.status, 201, JSON.stringify(made.body));
    const { port } = made.body.definition;
    // The client keeps writing, so that the last second always has a refused write.
    let stop = false;
    const writing = (async () => {
      while (!stop) await setMany(port, 600, 100_000);
    })();
    try {
      await visit(page, "/databases");
      await page.getByRole("row", { name: /small/ }).locator(".tag.bad", { hasText: /^full$/ }).waitFor();
      await page.getByRole("row", { name: /small/ }).locator(".fill.critical, .fill.warning").first().waitFor();
      await clean(page, "full-list");
      // A second without a refused write may lie between two rounds of them.
      await until("the command line says so", async () => /^small\s+full/m.test(await flintkv(node, "database", "list")));
      await visit(page, "/databases/small");
      await page.getByRole("alert").filter({ hasText: /writes are refused/ }).waitFor();
      await clean(page, "full");
    } finally {
      stop = true;
      await writing;
    }
    same((await api(page, "DELETE", "/databases/small?confirm=small")).status, 204, "the deletion");
  });

  await step("a frozen node shows a banner, and the console goes on when it answers again", async () => {
    await visit(page, "/databases/default/config");
    node.freeze();
    try {
      await page.getByRole("alert").filter({ hasText: "The node does not answer." }).waitFor();
      await clean(page, "frozen");
    } finally {
      node.thaw();
    }
    await page.getByText("The node does not answer.").waitFor({ state: "detached" });
    await visit(page, "/databases");
    await page.getByRole("link", { name: "default" }).first().waitFor();
  });

  await step("whoever is logged in stays logged in over a restart of the node", async () => {
    await node.stop();
    await page.getByText("The node does not answer.").waitFor();
    await node.start();
    await page.getByText("The node does not answer.").waitFor({ state: "detached" });
    await page.reload();
    await page.getByRole("link", { name: "default" }).first().waitFor();
    // The CSRF token is still good as well.
    same((await api(page, "POST", "/databases/default/flush", { confirm: "default" })).status, 200, "a change");
  });

  await step("an alert tells a signed webhook when it fires and when it ends, and is acknowledged and silenced by keyboard", async () => {
    const heard = [];
    const hook = createServer((request, response) => {
      let body = "";
      request.on("data", (data) => (body += data)).on("end", () => {
        heard.push({ headers: request.headers, body, message: JSON.parse(body) });
        response.writeHead(204).end();
      });
    });
    await new Promise((listening) => hook.listen(0, "127.0.0.1", listening));
    try {
      await visit(page, "/alerts");
      await page.getByLabel("Address").fill(`http://127.0.0.1:${hook.address().port}/hook`);
      await page.getByLabel("Secret").fill("of both");
      await page.getByLabel("The webhook is on").check();
      await button("Save").click();
      await page.getByText("signed", { exact: true }).waitFor();
      await button("Send a test").click();
      await until("the test is heard", async () => heard.some((one) => one.message.kind === "test"));

      await tabTo(page, button("New rule"));
      await page.keyboard.press("Enter");
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Name").fill("many keys");
      await dialog.getByLabel("Metric").selectOption("keys");
      await dialog.getByLabel("Is", { exact: true }).selectOption(">");
      await dialog.getByLabel("Threshold").fill("2");
      await dialog.getByLabel("For seconds").fill("0");
      await tabTo(page, button("Save", dialog));
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await setMany(node.port, 5, 10);
      const ours = (status) => heard.find((one) => one.message.rule?.name === "many keys" && one.message.status === status);
      const firing = await until("it is heard to fire", async () => ours("firing"));
      const signed = createHmac("sha256", "of both").update(`${firing.headers["flintkv-timestamp"]}.${firing.body}`).digest("hex");
      same(firing.headers["flintkv-signature"], `v1=${signed}`, "the signature");

      await tabTo(page, button("Acknowledge many keys of default"));
      await page.keyboard.press("Enter");
      await page.getByText("admin works on it").waitFor();
      await tabTo(page, button("Silence many keys of default"));
      await page.keyboard.press("Enter");
      await dialog.waitFor();
      await tabTo(page, button("Silence", dialog));
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await page.getByRole("list", { name: "Silences" }).getByText(/many keys of default/).waitFor();
      await clean(page, "alerts");
      await button("End the silence of many keys").click();
      await page.getByRole("list", { name: "Silences" }).waitFor({ state: "detached" });
      same((await api(page, "POST", "/databases/default/flush", { confirm: "default" })).status, 200, "the flush");
      const resolved = await until("it is heard to end", async () => ours("resolved"));
      same(resolved.message.id, firing.message.id, "the incident");
      // On a busy machine, other alerts may fire.
      await button("Silence many keys of default").waitFor({ state: "detached" });
      await button("Switch off many keys").click();
      await button("Switch on many keys").click();
      await button("Switch off many keys").waitFor();
    } finally {
      hook.closeAllConnections();
      hook.close();
    }
  });

  await step("graphs show thresholds, and what happened", async () => {
    for (const what of ["pause", "resume"]) same((await api(page, "POST", `/databases/default/${what}`)).status, 200, what);
    await visit(page, "/databases/default/metrics?range=1h&a=keys&b=ops");
    const first = page.getByRole("region", { name: "The first large graph: Keys" });
    await first.getByText("many keys: 2").waitFor();
    await first.getByText(/paused.*resumed/).waitFor();
    await clean(page, "graphs");
  });

  await step("a second node follows, is seen from both sides, and takes over", async () => {
    const copy = await makeNode();
    const other = await openPage(browser, copy);
    on(other);
    const dialog = other.getByRole("dialog");
    try {
      await setMany(node.port, 20, 1000);
      await logIn(other);
      // Otherwise the replica would wait a minute before it treats a silent primary as lost.
      for (const [of, line] of [[page, "CONFIG SET repl-ping-replica-period 1"], [other, "CONFIG SET repl-timeout 20"]]) {
        same((await api(of, "POST", "/databases/default/command", { line })).status, 200, line);
      }
      await visit(other, "/databases/default/replication");
      await other.getByText("No replica follows this database.").waitFor();
      await tabTo(other, button("Follow a primary", other));
      await other.keyboard.press("Enter");
      await dialog.getByText("are lost when the primary's dataset arrives").waitFor();
      for (const [label, text] of [["Host", "127.0.0.1"], ["Port", String(node.port)], ["Type default to confirm", "default"]]) {
        await tabTo(other, dialog.getByLabel(label, { exact: true }));
        await other.keyboard.press("Control+A");
        await other.keyboard.type(text);
      }
      await clean(other, "follow");
      await other.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await other.getByText("link up", { exact: true }).waitFor();
      await other.getByRole("article", { name: `Primary 127.0.0.1:${node.port}` }).waitFor();
      await other.getByText(`follows 127.0.0.1:${node.port}`).first().waitFor();
      await clean(other, "replica");

      await visit(page, "/databases/default/replication");
      const replica = page.getByRole("article", { name: `Replica 127.0.0.1:${copy.port}` });
      await replica.waitFor();
      await page.getByText("0 B and under 1 s behind").waitFor();
      await page.getByText(/^the full synchronisation of the replica .* has ended: /).waitFor();
      await clean(page, "primary");

      // The primary is frozen, and the replica says that the link is down.
      node.freeze();
      try {
        await other.getByText("link down", { exact: true }).first().waitFor();
        await other.getByText(/^the link to the primary .* is lost/).waitFor();
        await clean(other, "link-down");
      } finally {
        node.thaw();
      }
      await other.getByText("link up", { exact: true }).waitFor();

      await page.getByText("The node does not answer.").waitFor({ state: "detached" });
      await page.getByText("online", { exact: true }).waitFor();
      await button(`Hand over to 127.0.0.1:${copy.port}`).click();
      await page.getByRole("dialog").getByText("No write is lost.").waitFor();
      await clean(page, "hand-over");
      await button("Hand over", page.getByRole("dialog")).click();
      await page.getByText("link up", { exact: true }).waitFor();
      await other.getByText("Primary, this database").waitFor();
      await other.getByText(/^was promoted: /).waitFor();

      await button("Promote").click();
      await page.getByRole("dialog").getByText("The old primary is not told.").waitFor();
      await button("Promote", page.getByRole("dialog")).click();
      await page.getByText("Primary, this database").waitFor();
    } finally {
      await other.context().close();
      await copy.remove();
      on(page);
    }
  });
  done();
});
