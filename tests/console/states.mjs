// States that a healthy node does not have: its answers are replaced on their way to the page. Also a node that stops answering.
import { main, openPage, overflow, PASSWORD, picture, same, story, that, violations, visit } from "./harness.mjs";

const HUGE = 2 ** 62;

await main(async (node, browser) => {
  const { step, done, on } = story("states");
  const page = await openPage(browser, node);
  on(page);

  /** Answers of the API at a path, replaced until the returned function is called. */
  async function replaced(path, change) {
    const match = (url) => url.pathname === `/api/v1${path}`;
    await page.route(match, async (route) => {
      try {
        await change(route);
      } catch (error) {
        // The browser has left the page, which cancelled its request. If a page lacks an answer, the step fails.
        if (!/already handled|closed|disposed/.test(error.message)) throw error;
      }
    });
    return () => page.unroute(match);
  }
  const answer = (status, body) => (route) => route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body) });
  const failure = (status, code, message) => answer(status, { error: { code, message, hint: "This is the hint.", fields: [] } });
  async function clean() {
    same(await violations(page), [], "axe-core");
    that((await overflow(page)) <= 0, "something runs out of the window");
  }

  await step("whoever is not logged in sees the login, and comes back to where they wanted to go", async () => {
    await page.goto("/databases/default/clients");
    await page.getByRole("button", { name: "Log in" }).waitFor();
    await page.getByLabel("User").fill("admin");
    await page.getByLabel("Password").fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").waitFor();
    await clean();
    await picture(page, "login-refused");
    await page.getByLabel("Password").fill(PASSWORD);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("link", { name: "Clients" }).and(page.locator("[aria-current]")).waitFor();
  });

  await step("loading, then an error with its hint, and trying again helps", async () => {
    let let_go;
    const held = new Promise((open) => (let_go = open));
    let end = await replaced("/databases/default/config", async (route) => {
      await held;
      await failure(500, "internal", "The configuration cannot be read.")(route);
    });
    await page.goto("/databases/default/config");
    await page.getByText("Loading…").waitFor();
    await clean();
    let_go();
    await page.getByText("The configuration cannot be read. This is the hint.").waitFor();
    await clean();
    await picture(page, "state-error");
    await end();
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("maxclients", { exact: true }).waitFor();
  });

  await step("nothing to show", async () => {
    for (const [path, api, body, text] of [
      ["/databases/default/slowlog", "/databases/default/slowlog", [], "No command was slow"],
      ["/databases/default/clients", "/databases/default/clients", [], "No client is connected"],
      ["/databases/default/keys", "/databases/default/keys", { cursor: "0", keys: [], scanned: 0 }, "There are no keys"],
      ["/events", "/events", [], "Nothing has happened yet"],
      ["/benchmark", "/benchmarks", [], "No scenario was run yet"],
      ["/users", "/tokens", [], "There are no tokens"],
    ]) {
      const end = await replaced(api, answer(200, body));
      await visit(page, path);
      await page.getByText(text).waitFor();
      await clean();
      await end();
    }
  });

  await step("no permission is said, not shown as an error", async () => {
    const end = await replaced("/databases/default/clients", failure(403, "forbidden", "Clients need another role."));
    await visit(page, "/databases/default/clients");
    await page.getByText("You may not see this").waitFor();
    await clean();
    await end();
  });

  await step("a database that is not there", async () => {
    await visit(page, "/databases/nowhere");
    await page.getByText("There is nothing with this name").waitFor();
    await clean();
  });

  await step("long names, zero, huge and missing numbers, every state", async () => {
    const end = await replaced("/databases", async (route) => {
      const response = await route.fetch();
      const list = await response.json();
      const [one] = list.databases;
      const named = (name, more, now) => ({ ...one, name, is_default: false, ...more, now: Object.fromEntries(Object.keys(one.now).map((key) => [key, now])) });
      const is = (name, level) => [{ name, level, sentence: "This is so.", advice: "Do that." }];
      list.databases = [
        named("w".repeat(40), { definition: { ...one.definition, memory_limit_bytes: HUGE, ram_limit_bytes: HUGE / 2 } }, HUGE),
        named("zero", { state: "paused", conditions: is("paused", "warning") }, 0),
        named("unknown", { state: "resizing", conditions: is("resizing", "info"), progress: { done_bytes: 1, total_bytes: 3 } }, null),
        named("leaving", { state: "deleting", conditions: [...is("degraded", "critical"), ...is("waiting for flash", "warning"), ...is("deleting", "warning")], endpoints: [] }, 0.5),
      ];
      await route.fulfill({ response, json: list });
    });
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 844 });
      await visit(page, "/databases");
      await page.getByText("resizing 33 %").or(page.getByText("resizing 33 %")).first().waitFor();
      await clean();
      await picture(page, `state-extremes-${width}`, { fullPage: true });
    }
    await page.setViewportSize({ width: 1280, height: 860 });
    await end();
  });

  await step("the keyboard: skip link, a dialog that holds the focus and gives it back, the menu on a narrow screen", async () => {
    await page.goto("/databases/default");
    await page.getByRole("heading", { level: 1, name: "default" }).waitFor();
    await page.keyboard.press("Tab");
    same(await page.evaluate(() => document.activeElement.textContent), "Skip to the content", "the first stop");
    const flush = page.getByRole("button", { name: "Flush" });
    await flush.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    for (let presses = 0; presses < 8; presses += 1) {
      await page.keyboard.press("Tab");
      that(await page.evaluate(() => document.activeElement === document.body || !!document.activeElement.closest("dialog")), "the focus left the dialog");
    }
    await clean();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    that(await flush.evaluate((button) => document.activeElement === button), "the focus did not come back");
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole("button", { name: "Open the menu" }).click();
    await page.getByRole("link", { name: "Alerts" }).waitFor();
    await clean();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Open the menu" }).waitFor();
    await page.setViewportSize({ width: 1280, height: 860 });
  });

  await step("keyboard only: logged in, a database created, a key written and looked at, the database deleted", async () => {
    const own = await openPage(browser, node);
    on(own);
    const button = (name) => own.getByRole("button", { name, exact: true });
    const tab = (name) => own.getByRole("navigation", { name: "Of this database" }).getByRole("link", { name });
    /** Presses Tab until it is there. */
    async function reach(target) {
      await target.waitFor();
      for (let presses = 0; presses < 150; presses += 1) {
        if (await target.evaluate((one) => document.activeElement === one)) return;
        await own.keyboard.press("Tab");
      }
      throw new Error(`Tab does not reach ${target}`);
    }
    async function press(target, key = "Enter") {
      await reach(target);
      await own.keyboard.press(key);
    }
    async function type(target, text) {
      await reach(target);
      await own.keyboard.press("ControlOrMeta+A");
      await own.keyboard.insertText(text);
    }
    await own.goto("/login");
    await type(own.getByLabel("User"), "admin");
    await type(own.getByLabel("Password"), PASSWORD);
    await own.keyboard.press("Enter");
    await press(button("Create a database"));
    await type(own.getByRole("textbox", { name: "Name" }), "by-keys");
    await type(own.getByLabel("Memory limit"), "64 mb");
    await type(own.getByLabel("RAM limit"), "32 mb");
    await press(own.locator("summary", { hasText: "Endpoints, shards, replicas" }));
    await reach(own.getByLabel("Persistence"));
    await own.keyboard.type("none");
    await own.getByText("The node would create this database.").waitFor();
    await press(button("Create"));
    await own.getByRole("heading", { level: 1, name: "by-keys" }).waitFor();
    await press(tab("Command line"));
    await type(own.locator("#line"), "SET colour red");
    await own.keyboard.press("Enter");
    await own.getByRole("log").getByText("OK", { exact: true }).waitFor();
    await press(tab("Keys"));
    await press(own.locator(".list").getByRole("button", { name: /^colour/ }));
    await own.getByText("red", { exact: true }).waitFor();
    await press(tab("Overview"));
    await press(button("Delete"));
    const dialog = own.getByRole("dialog");
    await type(dialog.getByLabel(/^Type by-keys/), "by-keys");
    await press(dialog.getByLabel("Make a backup first"), "Space");
    await press(dialog.getByRole("button", { name: /^Delete/ }));
    await own.getByText("by-keys is deleted.").waitFor();
    await own.context().close();
    on(page);
  });

  await step("the theme is chosen and remembered", async () => {
    await page.getByLabel("Theme").selectOption("dark");
    const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.reload();
    await page.getByRole("heading", { level: 1 }).waitFor();
    same(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), dark, "the background after a reload");
    await page.getByLabel("Theme").selectOption("system");
    that((await page.evaluate(() => getComputedStyle(document.body).backgroundColor)) !== dark, "the theme did not change");
  });

  await step("the node goes and comes back: a banner, what was known stays, and it goes on by itself", async () => {
    await page.goto("/databases");
    await page.getByRole("link", { name: "default" }).waitFor();
    await node.stop();
    await page.getByText("The node does not answer.").waitFor();
    await page.getByRole("link", { name: "default" }).waitFor();
    await clean();
    await picture(page, "state-gone");
    await node.start();
    await page.getByText("The node does not answer.").waitFor({ state: "detached" });
    // The session survives the restart.
    await page.getByRole("link", { name: "default" }).first().waitFor();
    page.wrong.length = 0;
  });
  done();
});
